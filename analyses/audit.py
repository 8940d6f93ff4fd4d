"""The audit: every metric of every group in one row, and how judges rank under A, under T and under rho."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from difficulty.study import GroupStudy
from rank.columns import list_some
from rank.exceptions import InputError

#: Differences below this are ties: the metrics are ratios of counts, rounded in the last bits.
_TIE = 1e-9

#: Symbols that can stand for columns.
SORT_ALIASES = {
    "C": "repeatability",
    "phi": "flip_rate",
    "A": "accuracy",
    "T": "trustworthy_rate",
    "IPP": "inconsistent_pair_primacy",
    "rho": "spearman",
    "tau": "kendall",
}


@dataclass(frozen=True)
class Audit:
    """Groups side by side.

    Attributes
    ----------
    rows : DataFrame
        One row per group: labels, counts, every metric of `GroupStudy.flat` with its bounds, the close minus
        far differences (``*_close_minus_far``), the flip budget of the close and far bucket, and
        ``rank_accuracy``, ``rank_trustworthy_rate``, ``rank_spearman`` (1 = best of its stratum; ties share the
        better rank; NaN where undefined).
    reorderings : DataFrame
        One row per pair of judges whose order changes: the stratum's labels, ``judge_a``, ``judge_b``,
        ``changes`` (such as "A / rho"), ``changes_apart`` (those of them for which the intervals of the two
        judges overlap on neither metric; the others may be noise), and the differences a minus b of the three
        orders.
    compared : str
        The column whose values are ranked ("judge"), or "group" when whole groups are.
    strata : tuple of str
        Columns inside whose values the ranking takes place.
    n_labels : int
        The first columns of `rows` that are labels.
    trustworthy : str
        What stands for T in orders: "trustworthy_rate", or "trustworthy_rate_upper" for all groups when one
        of them has no repeated call.
    """

    rows: pd.DataFrame
    reorderings: pd.DataFrame
    compared: str
    strata: tuple[str, ...]
    trustworthy: str
    n_labels: int

    @property
    def has_orders(self) -> bool:
        """Whether some stratum has two groups with an accuracy, so that there is an order."""
        known = self.rows[self.rows["accuracy"].notna()]
        if not self.strata:
            return len(known) > 1
        return bool((known.groupby(list(self.strata)).size() > 1).any())


def audit_groups(studies: Sequence[GroupStudy], *, sort: str | None = None) -> Audit:
    """Put measured groups side by side and find the judges whose order changes between A, T and rho.

    Parameters
    ----------
    studies : sequence of GroupStudy
        From `difficulty.study.study_groups`.
    sort : str, optional
        A column of the result, or one of `SORT_ALIASES`; the largest value comes first, undefined ones last. Default: by label.

    Returns
    -------
    Audit

    Raises
    ------
    InputError
        When `sort` is no column of the result.

    Notes
    -----
    Judges are ranked among the groups that share the dataset and every other label that varies within a judge
    (a format that only one judge was asked in belongs to that judge). Where there is a single judge, or no
    judge column, whole groups are ranked inside their dataset. A pair is reordered when one of the two is strictly better under one
    of A, T, rho and strictly worse under another one. These are orders of point estimates; whether a
    difference exceeds noise is the question of `analyses.comparison`.
    """
    if not studies:
        raise InputError("there is no group to audit")
    labels = list(studies[0].labels)
    rows = pd.DataFrame([_row(study) for study in studies])
    # One basis for all: a bound of one judge is not compared with the T of another one.
    bound_only = rows["trustworthy_rate"].isna() & rows["trustworthy_rate_upper"].notna()
    trustworthy = "trustworthy_rate_upper" if bound_only.any() else "trustworthy_rate"
    compared = "judge" if "judge" in labels and rows["judge"].nunique() > 1 else "group"
    if compared == "judge":
        strata = strata_columns(rows[labels])
    else:
        strata = ("dataset",) if "dataset" in labels else ()
    names = rows["judge"] if compared == "judge" else pd.Series([study.name for study in studies])
    stratum = rows[list(strata)].apply(tuple, axis=1) if strata else pd.Series([()] * len(rows))
    orders = {"accuracy": "A", trustworthy: "T", "spearman": "rho"}
    for metric in orders:
        values = rows[metric].round(9)
        ranks = values.groupby(pd.factorize(stratum)[0]).rank(ascending=False, method="min")
        rows[f"rank_{'trustworthy_rate' if metric == trustworthy else metric}"] = ranks
    found: list[dict[str, Any]] = []
    for index in pd.Series(range(len(rows))).groupby(pd.factorize(stratum)[0]).groups.values():
        for a, b in _that_may_change(rows[list(orders)].to_numpy(dtype=float), np.asarray(index)):
            difference = {
                name: float(rows[metric].iloc[a] - rows[metric].iloc[b]) for metric, name in orders.items()
            }
            changes = [
                f"{x} / {y}"
                for x, y in combinations(difference, 2)
                if difference[x] * difference[y] < 0 and min(abs(difference[x]), abs(difference[y])) > _TIE
            ]
            if changes:
                apart = {name for metric, name in orders.items() if _are_apart(rows, metric, a, b)}
                first, second = (a, b) if difference["A"] > 0 or np.isnan(difference["A"]) else (b, a)
                sign = 1 if first == a else -1
                found.append(
                    {
                        **{name: rows[name].iloc[a] for name in strata},
                        "judge_a": names.iloc[first],
                        "judge_b": names.iloc[second],
                        "changes": ", ".join(changes),
                        "changes_apart": ", ".join(c for c in changes if set(c.split(" / ")) <= apart),
                        "accuracy_difference": sign * difference["A"],
                        "trustworthy_rate_difference": sign * difference["T"],
                        "spearman_difference": sign * difference["rho"],
                    }
                )
    columns = [
        *strata, "judge_a", "judge_b", "changes", "changes_apart",
        "accuracy_difference", "trustworthy_rate_difference", "spearman_difference",
    ]  # fmt: skip
    if sort is not None:
        sort = SORT_ALIASES.get(sort, sort)
        if sort not in rows.columns:
            likely = [name for name in rows.columns if sort in name and not name.endswith(("_low", "_high"))]
            hint = f"; similar: {list_some(likely)}" if likely else "; see the keys of --format json"
            raise InputError(f"--sort {sort}: there is no such column{hint}")
        rows = rows.sort_values(
            sort, ascending=isinstance(rows[sort].iloc[0], str), kind="stable", na_position="last"
        )
    return Audit(
        rows.reset_index(drop=True),
        pd.DataFrame(found, columns=columns),
        compared,
        strata,
        trustworthy,
        len(labels),
    )


def _that_may_change(values: np.ndarray, index: np.ndarray) -> list[tuple[int, int]]:
    """Return the pairs of rows (positions in `values`, rows by metrics) whose order differs between two metrics."""
    pairs = []
    for place, a in enumerate(index[:-1]):
        others = index[place + 1 :]
        ahead = values[a] - values[others]
        pairs += [(int(a), int(b)) for b in others[(ahead > 0).any(axis=1) & (ahead < 0).any(axis=1)]]
    return pairs


def _are_apart(rows: pd.DataFrame, metric: str, a: int, b: int) -> bool:
    """Whether the intervals of two rows do not overlap; False where there is none."""
    low, high = (rows[f"{metric}_{end}"].to_numpy(dtype=float) for end in ("low", "high"))
    return bool(low[a] > high[b] or low[b] > high[a])


def strata_columns(groups: pd.DataFrame, column: str = "judge") -> tuple[str, ...]:
    """Return the label columns inside whose values the values of `column` are compared.

    The dataset always; every other one that varies within a value of `column` (and dataset): a format that
    only one judge was asked in belongs to that judge.

    Parameters
    ----------
    groups : DataFrame
        Label columns only, one row per group.
    column : str
    """
    others = [str(name) for name in groups.columns if name != column]
    fixed = [column, *(name for name in others if name == "dataset")]
    free = [name for name in others if name not in fixed]
    parts = groups.groupby(fixed)
    varies = {name: int(parts[name].nunique().max()) > 1 for name in free}
    return tuple(name for name in others if name == "dataset" or varies[name])


def _row(study: GroupStudy) -> dict[str, Any]:
    """Return one flat row: what `GroupStudy.flat` has, and the differences and budgets of the buckets."""
    row = study.flat()
    for name in ("swap_consistency", "inconsistent_pair_primacy", "accuracy", "trustworthy_rate"):
        bounds = study.profile.close_minus_far.get(name, (float("nan"),) * 3)
        for end, value in zip(("", "_low", "_high"), bounds, strict=True):
            row[f"{name}_close_minus_far{end}"] = float(value)
    for which in ("close", "far"):
        cell = study.bucket(which)
        for name in ("share_of_flips", "share_of_wrong"):
            row[f"{name}_{which}"] = float(cell.get(name, float("nan")))
    return row
