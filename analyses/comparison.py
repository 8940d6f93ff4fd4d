"""Two judges on the pairs that both have judged: differences of every metric, flips, and rho."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from analyses.audit import strata_columns
from analyses.proxies import holm
from difficulty.reliability import (
    METRICS,
    SLOT_STATISTICS,
    STATISTICS,
    cluster_sums,
    modal_verdicts,
    pair_statistics,
    resample_metrics,
)
from rank.columns import list_some
from rank.exceptions import InputError
from rank.gold import Gold
from rank.recovery import RecoveryProblem, resample_clusters
from rank.resample import (
    DEFAULT_LEVEL,
    DEFAULT_RESAMPLES,
    check_resampling,
    content_hash,
    percentile_interval,
    seed_of,
    two_sided_p,
)
from rank.tally import Tally

#: Metrics that are tested, besides T (its upper bound where repeatability is unobserved), flips and rho; the
#: others follow from these.
TESTED = ("repeatability", "inconsistent_pair_primacy", "accuracy")
FAMILIES = ("all", "metric", "comparison")


class NoSharedPairsError(InputError):
    """Two groups have judged no pair in the same orders."""


@dataclass(frozen=True)
class Comparison:
    """Judge a minus judge b on shared pairs.

    Attributes
    ----------
    name_a, name_b : str
    stratum : mapping of str to str
        Labels that the two share.
    table : DataFrame
        One row per metric (``METRICS``, then ``spearman``, ``kendall``): ``metric``, ``a``, ``b``,
        ``difference``, ``difference_low``, ``difference_high``, ``p_value`` (bootstrap; exact McNemar for
        ``flip_rate``; NaN for metrics that are not tested), ``test``.
    n_shared, n_only_a, n_only_b : int
        Pairs judged by both in the same orders, and pairs that only one has judged.
    n_other_orders : int
        Pairs that both have judged, but not with valid verdicts in the same orders: left out.
    n_flips_only_a, n_flips_only_b : int
        Discordant pairs of the McNemar test.
    n_clusters : int
        Shared clusters that were resampled.
    reason : str
        Why rho is undefined.
    notes : tuple of str
    """

    name_a: str
    name_b: str
    stratum: dict[str, str]
    table: pd.DataFrame
    n_shared: int
    n_only_a: int
    n_only_b: int
    n_other_orders: int
    n_flips_only_a: int
    n_flips_only_b: int
    n_clusters: int
    reason: str
    notes: tuple[str, ...]


def mcnemar_exact(n_only_a: int, n_only_b: int) -> float:
    """Exact two-sided McNemar test of discordant pairs; 1 where there are none.

    Examples
    --------
    >>> mcnemar_exact(0, 6)
    0.03125
    """
    from scipy.stats import binomtest

    n = n_only_a + n_only_b
    return float(binomtest(n_only_a, n, 0.5).pvalue) if n else 1.0


def compare_groups(
    tally: Tally,
    gold: Gold | None,
    a: int,
    b: int,
    *,
    invalid: str = "exclude",
    tie_credit: float = 0.0,
    recovery_level: str = "auto",
    alpha: float = 0.0,
    n_resamples: int = DEFAULT_RESAMPLES,
    level: float = DEFAULT_LEVEL,
    rng: np.random.Generator | int | None = None,
) -> Comparison:
    """Compare two groups of a tally on the pairs that both have judged.

    Parameters
    ----------
    tally : Tally
    gold : Gold or None
    a, b : int
        Groups of the tally.
    invalid, tie_credit
        See `difficulty.reliability.pair_statistics`.
    recovery_level, alpha
        See `rank.recovery.recover_ranking`.
    n_resamples, level, rng
        Paired bootstrap: the same clusters are drawn for both judges. Exchanging a and b mirrors every
        number; names and row order change nothing.

    Returns
    -------
    Comparison

    Raises
    ------
    NoSharedPairsError
        When no pair is shared.

    Notes
    -----
    A pair is shared if both judges gave a valid verdict in the same orders; so every metric of both rests on
    the same pairs. McNemar's test takes pairs as independent; the interval of the flip rates resamples whole
    clusters.
    """
    check_resampling(n_resamples, level)
    seed = seed_of(rng)
    one, two, counts = _shared_pairs(tally, a, b, invalid)
    if not one.n_pairs:
        raise NoSharedPairsError(
            f"{tally.group_label(a)} and {tally.group_label(b)} share no pair with valid verdicts in the same orders "
            f"({counts['n_only_a']} and {counts['n_only_b']} judged by one alone, {counts['n_other_orders']} in other orders)"
        )
    pair_gold = gold.align(one) if gold is not None else None
    stats = [
        pair_statistics(part.counts, pair_gold, invalid=invalid, tie_credit=tie_credit) for part in (one, two)
    ]
    cell = np.zeros(one.n_pairs, dtype=np.int64)
    cluster = one.clusters()
    sums = [cluster_sums(part, cluster, cell, 1)[0][:, 0] for part in stats]
    # Drawn in an order of the judges that depends on their content, so that exchanging them mirrors the result.
    slots = np.array([STATISTICS.index(name) for name in SLOT_STATISTICS])
    keys = [content_hash(np.delete(part, slots, axis=1)) for part in sums]
    exchange = _fingerprint(keys[0], sums[0]) > _fingerprint(keys[1], sums[1])
    first, second = (1, 0) if exchange else (0, 1)
    by_cluster = np.stack([sums[first], sums[second]], axis=1)
    table, samples = resample_metrics(
        by_cluster, n_resamples=n_resamples, level=level, rng=np.random.default_rng(seed)
    )
    at = (first, second)  # judge a sits in cell at.index(0)
    cell_a, cell_b = at.index(0), at.index(1)
    both_flip = [part[:, STATISTICS.index("n_flips")] > 0 for part in stats]
    only_a = int((both_flip[0] & ~both_flip[1]).sum())
    only_b = int((both_flip[1] & ~both_flip[0]).sum())
    rows: list[dict[str, Any]] = []
    observed = not np.isnan(table.estimate["trustworthy_rate"]).any()
    tested = {*TESTED, "trustworthy_rate" if observed else "trustworthy_rate_upper"}
    for name in METRICS:
        if name == "gold_coverage":
            continue  # The pairs are the same.
        values, low, high = table.estimate[name], table.low[name], table.high[name]
        difference = values[cell_a] - values[cell_b]
        drawn = samples[name][:, cell_a] - samples[name][:, cell_b]
        interval = percentile_interval(drawn, difference, level=level, bounds=(-1.0, 1.0))
        bounds = float(interval.low), float(interval.high)
        if bounds[0] == bounds[1] and (low != high)[[cell_a, cell_b]].any():
            # No resample differs, which is no proof: square-and-add of the two intervals (Newcombe 1998).
            spread = np.stack([values - low, high - values])
            down = np.hypot(spread[0, cell_a], spread[1, cell_b])
            up = np.hypot(spread[1, cell_a], spread[0, cell_b])
            bounds = max(float(difference - down), -1.0), min(float(difference + up), 1.0)
        p, test = float("nan"), ""
        if name == "flip_rate" and not np.isnan(difference):
            p, test = mcnemar_exact(only_a, only_b), "exact McNemar"
        elif name in tested and not np.isnan(difference) and n_resamples:
            p, test = float(two_sided_p(drawn)), "bootstrap"
        rows.append(_row(name, values[cell_a], values[cell_b], bounds, p, test))
    recovery, reason = _compare_recovery(
        one, two, gold, sums, keys, recovery_level, alpha, n_resamples, level, np.random.default_rng(seed)
    )
    names_a, names_b = (dict(tally.groups.iloc[index].astype(str)) for index in (a, b))
    differing = [name for name in names_a if names_a[name] != names_b[name]]
    notes = []
    runs = [int(part.counts[..., :].sum(axis=-1).max()) for part in (one, two)]
    if runs[0] != runs[1] and max(runs) > 1:
        notes.append(
            f"up to {runs[0]} and {runs[1]} runs per call: C falls with the number of runs and cannot be compared; use repeat_agreement"
        )
    return Comparison(
        " / ".join(names_a[name] for name in differing) or tally.group_label(a),
        " / ".join(names_b[name] for name in differing) or tally.group_label(b),
        {str(name): names_a[name] for name in names_a if name not in differing},
        pd.DataFrame(rows + recovery),
        one.n_pairs,
        counts["n_only_a"],
        counts["n_only_b"],
        counts["n_other_orders"],
        only_a,
        only_b,
        len(sums[0]),
        reason,
        tuple(notes),
    )


def _row(name: str, a: float, b: float, bounds: tuple[float, float], p: float, test: str) -> dict[str, Any]:
    return {
        "metric": name, "a": float(a), "b": float(b), "difference": float(a - b),
        "difference_low": bounds[0], "difference_high": bounds[1], "p_value": p, "test": test,
    }  # fmt: skip


def _fingerprint(keys: np.ndarray, sums: np.ndarray) -> tuple[Any, ...]:
    """What orders two judges: their cluster contents in sorted order, then slot statistics."""
    return (*np.sort(keys).tolist(), *sums.sum(axis=0).tolist())


def _shared_pairs(tally: Tally, a: int, b: int, invalid: str) -> tuple[Tally, Tally, dict[str, int]]:
    """Return the shared pair rows of both groups, in the same order, and what was not shared."""
    one, two = tally.select(a), tally.select(b)
    seen = [modal_verdicts(part.counts, invalid=invalid) >= 0 for part in (one, two)]
    n = max(len(tally.items), 1)
    keys = [(part.context * n + part.item_i) * n + part.item_j for part in (one, two)]
    valid = [keys[k][seen[k].any(axis=1)] for k in (0, 1)]
    _, at_a, at_b = np.intersect1d(keys[0], keys[1], assume_unique=True, return_indices=True)
    usable = seen[0][at_a].any(axis=1) & seen[1][at_b].any(axis=1)
    same = usable & (seen[0][at_a] == seen[1][at_b]).all(axis=1)
    counts = {
        "n_only_a": len(np.setdiff1d(valid[0], valid[1])),
        "n_only_b": len(np.setdiff1d(valid[1], valid[0])),
        "n_other_orders": int((usable & ~same).sum()),
    }
    keep_a, keep_b = np.zeros(one.n_pairs, dtype=bool), np.zeros(two.n_pairs, dtype=bool)
    keep_a[at_a[same]], keep_b[at_b[same]] = True, True
    return one.rows(keep_a), two.rows(keep_b), counts


def _compare_recovery(
    one: Tally,
    two: Tally,
    gold: Gold | None,
    sums: list[np.ndarray],
    keys: list[np.ndarray],
    level_of_ranking: str,
    alpha: float,
    n_resamples: int,
    level: float,
    rng: np.random.Generator,
) -> tuple[list[dict[str, Any]], str]:
    """Return the rows of rho and tau; both judges are ranked under the same resampled clusters."""
    nan = float("nan")
    nothing = [_row(name, nan, nan, (nan, nan), nan, "") for name in ("spearman", "kendall")]
    if gold is None or gold.kind != "items":
        return nothing, "there is no item gold"
    problems = [RecoveryProblem(part, gold, level=level_of_ranking, alpha=alpha) for part in (one, two)]
    if any(problem.n_clusters == 0 for problem in problems):
        return nothing, "there is no valid verdict"
    if problems[0].level == "context":
        return _compare_by_context(problems, n_resamples, level, rng)
    values = [problem.correlate(problem.rank(problem.pooled_wins()[None])[0]) for problem in problems]
    if any(np.isnan(value[0][0]) for value in values):
        return (
            nothing,
            "one of the two has no finite ranking of the shared pairs (or ranks all items equally)",
        )
    n = len(sums[0])
    distinct = np.unique(one.clusters())
    where = [np.searchsorted(distinct, problem.cluster_ids) for problem in problems]
    # A content key per cluster, symmetric in the judges.
    content = [keys[k].astype(np.uint64, copy=True) for k in (0, 1)]
    with np.errstate(over="ignore"):
        for k in (0, 1):
            content[k][where[k]] += problems[k].cluster_key().view(np.uint64)
        key = ((content[0] + content[1]) ^ (content[0] * content[1])).view(np.int64)
    samples: list[list[np.ndarray]] = [[], []]
    step = max(1, 4_000_000 // max(n, 1))
    for start in range(0, n_resamples, step):
        weights = resample_clusters(key, min(step, n_resamples - start), rng)
        for k in (0, 1):
            samples[k].append(np.stack(problems[k].resample(weights[:, where[k]])))
    drawn = [np.concatenate(part, axis=1) if part else np.zeros((2, 0)) for part in samples]
    rows = []
    for index, name in enumerate(("spearman", "kendall")):
        difference = drawn[0][index] - drawn[1][index]
        rows.append(_rank_row(name, values[0][index][0], values[1][index][0], difference, level))
    undefined = int(np.isnan(drawn[0][0] - drawn[1][0]).sum())
    reason = (
        f"{undefined} of {n_resamples} resamples have no finite ranking and are left out" if undefined else ""
    )
    return rows, reason


def _compare_by_context(
    problems: list[RecoveryProblem], n_resamples: int, level: float, rng: np.random.Generator
) -> tuple[list[dict[str, Any]], str]:
    """Average rho over the contexts that both judges rank; resample these contexts."""
    rho = [problem.context_rho() for problem in problems]
    contexts = [np.unique(problem.tally.context) for problem in problems]
    _, at_a, at_b = np.intersect1d(contexts[0], contexts[1], return_indices=True)
    values = np.stack([rho[0][at_a], rho[1][at_b]], axis=1)
    use = ~np.isnan(values).any(axis=1)
    left_out = (
        f"{int((~use).sum())} context(s) that not both judges rank are left out" if (~use).any() else ""
    )
    nan = float("nan")
    no_tau = _row("kendall", nan, nan, (nan, nan), nan, "")
    if use.sum() < 2:
        why = f"fewer than two contexts are ranked by both judges; {left_out}"
        return [_row("spearman", nan, nan, (nan, nan), nan, ""), no_tau], why
    values = values[use]
    # Symmetric in the judges, so that exchanging them mirrors the draws.
    values = values[np.lexsort((np.abs(values[:, 0] - values[:, 1]), values.sum(axis=1)))]
    mean = values.mean(axis=0)
    drawn = values[rng.integers(0, len(values), size=(n_resamples, len(values)))].mean(axis=1)
    return [_rank_row("spearman", mean[0], mean[1], drawn[:, 0] - drawn[:, 1], level), no_tau], left_out


def _rank_row(name: str, a: float, b: float, drawn: np.ndarray, level: float) -> dict[str, Any]:
    interval = percentile_interval(drawn, np.asarray(a - b), level=level, bounds=(-2.0, 2.0))
    p = float(two_sided_p(drawn)) if len(drawn) and not np.isnan(interval.low) else float("nan")
    tested = name == "spearman"
    bounds = float(interval.low), float(interval.high)
    return _row(name, a, b, bounds, p if tested else float("nan"), "bootstrap" if tested and p == p else "")


def pairs_to_compare(
    tally: Tally, column: str | None = None, values: Sequence[str] | None = None
) -> list[tuple[int, int]]:
    """Return the pairs of groups that differ in one column (and in those that belong to it, see `strata_columns`).

    Parameters
    ----------
    tally : Tally
    column : str, optional
        Default: judge where it is a group column, else the first one.
    values : sequence of str, optional
        Values of the column to compare; default all. Pairs keep this order.

    Raises
    ------
    InputError
        Unknown column or values, or nothing to compare.
    """
    columns = [str(name) for name in tally.groups.columns]
    if not columns:
        raise InputError("nothing is grouped, so there is nothing to compare; name a column with --by")
    column = column or ("judge" if "judge" in columns else columns[0])
    if column not in columns:
        raise InputError(f"there is no group column '{column}'; there are {list_some(columns)}")
    labels = tally.groups.astype(str)
    there = sorted(labels[column].unique())
    wanted = list(values) if values is not None else there
    unknown = [value for value in wanted if value not in there]
    if unknown:
        raise InputError(f"column {column} has no {list_some(unknown)}; it has {list_some(there, 12)}")
    if len(set(wanted)) < 2:
        raise InputError(f"a comparison needs two different values of {column}, found {list_some(wanted)}")
    others = list(strata_columns(labels, column))
    pairs = []
    strata = labels[others].apply(tuple, axis=1) if others else pd.Series([()] * len(labels))
    for stratum in sorted(set(strata)):
        inside = {labels[column].iloc[k]: k for k in range(len(labels)) if strata.iloc[k] == stratum}
        pairs += [(inside[x], inside[y]) for x, y in combinations(wanted, 2) if x in inside and y in inside]
    if not pairs:
        raise InputError(
            f"{list_some(wanted)} never occur with the same {' and '.join(others)}; group by fewer columns with --by"
        )
    return pairs


def adjust_p_values(comparisons: Sequence[Comparison], *, family: str = "all") -> list[pd.DataFrame]:
    """Return the tables of comparisons with ``p_holm``.

    Parameters
    ----------
    comparisons : sequence of Comparison
    family : {"all", "metric", "comparison"}
        Holm over all tests shown; per metric, over the compared pairs; or per pair, over the metrics.
    """
    if family not in FAMILIES:
        raise InputError(f"family '{family}' is unknown; choose {', '.join(FAMILIES)}")
    joined = pd.concat([c.table.assign(comparison=k) for k, c in enumerate(comparisons)], ignore_index=True)
    keys = {"all": np.zeros(len(joined)), "metric": joined["metric"], "comparison": joined["comparison"]}
    joined["p_holm"] = np.nan
    for rows in joined.groupby(np.asarray(keys[family]), sort=False).groups.values():
        joined.loc[rows, "p_holm"] = holm(joined.loc[rows, "p_value"].to_numpy(dtype=float))
    return [
        part.drop(columns="comparison").reset_index(drop=True) for _, part in joined.groupby("comparison")
    ]
