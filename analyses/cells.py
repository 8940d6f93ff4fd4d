"""Many cells of C, phi and A: T per cell, dispersion over formats, variance shares, and summaries along an axis."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pandas as pd

from difficulty.reliability import (
    DIFFERENCES,
    METRICS,
    MetricTable,
    failure_mode,
    rates_from_summary,
)
from rank.columns import describe_rows, finite_numbers, list_some
from rank.exceptions import InputError
from rank.tally import Tally

#: What a summary table must have, in percent or as shares.
SUMMARY_COLUMNS = ("repeatability", "flip_rate", "accuracy")
UNITS = ("auto", "percent", "fraction")

#: Cells of verdicts with fewer pairs than this say little about a format.
DEFAULT_MIN_PAIRS = 10

#: What the pairs of a metric are, other than those judged in both orders (and with gold).
_PAIRS_OF = dict.fromkeys(
    ("repeatability", "repeat_agreement", "first_slot_rate", "gold_coverage"), "n_pairs"
)
_PAIRS_OF |= dict.fromkeys(("flip_rate", "swap_consistency", "inconsistent_pair_primacy"), "n_pairs_swapped")
_PAIRS_OF |= dict.fromkeys(("accuracy_verdicts", "repeatability_gold"), "n_pairs_gold")

_DECIMAL = re.compile(r"\.(\d+)\s*$")


@dataclass(frozen=True)
class Cells:
    """Cells (judge x dataset x format ...) with their rates as shares in [0, 1].

    Attributes
    ----------
    table : DataFrame
        One row per cell: labels, ``repeatability``, ``flip_rate``, ``accuracy``, ``undecided_accuracy``,
        ``decisive_accuracy``, ``ceiling``, ``capability_gap``, ``trustworthy_rate``,
        ``trustworthy_rate_upper`` (A - phi q_u), ``failure_mode``; from verdicts also counts (with
        ``n_pairs_swapped_gold``, the pairs that T rests on) and the bounds of each; from a summary with a stated
        T also ``trustworthy_rate_stated``.
    labels : tuple of str
        The label columns.
    source : {"summary", "verdicts"}
    unit : {"percent", "fraction"}
        Unit of the input.
    rounding : float
        By how much the input values may be off (shares): half a unit of their last digit, at
        most half a percent.
    """

    table: pd.DataFrame
    labels: tuple[str, ...]
    source: str
    unit: str
    rounding: float

    @property
    def default_metric(self) -> str:
        """T, or its upper bound where repeatability is nowhere observed."""
        known = self.table["trustworthy_rate"].notna().any() or not len(self.table)
        return "trustworthy_rate" if known else "trustworthy_rate_upper"

    def is_thin(self, metric: str, min_pairs: int = DEFAULT_MIN_PAIRS) -> npt.NDArray[np.bool_]:
        """Return which cells have the metric from fewer than `min_pairs` pairs; none in a summary. Shape (cells,)."""
        count = _PAIRS_OF.get(metric, "n_pairs_swapped_gold")
        if count not in self.table.columns:
            return np.zeros(len(self.table), dtype=bool)
        few = self.table[count].to_numpy() < min_pairs
        return np.asarray(few & self.table[metric].notna().to_numpy(), dtype=bool)


def cells_from_summary(
    frame: pd.DataFrame,
    *,
    units: str = "auto",
    high_repeatability: float = 0.90,
    low_flip_rate: float = 0.20,
) -> Cells:
    """Compute T, ceiling, gap, decisive accuracy and failure mode of summary rows (C, phi, A).

    Parameters
    ----------
    frame : DataFrame
        Columns ``repeatability``, ``flip_rate``, ``accuracy``; optionally ``trustworthy_rate`` as stated by the
        source; every other column is a label. Empty repeatability: unobserved, T is undefined.
    units : {"auto", "percent", "fraction"}
        "auto": percent if any value exceeds 1. A table that mixes both is refused.
    high_repeatability, low_flip_rate : float
        Thresholds of `difficulty.reliability.failure_mode`.

    Returns
    -------
    Cells

    Raises
    ------
    InputError
        Missing columns, text instead of numbers, mixed units, values out of range, or a triple outside
        phi/2 <= A <= 1 - phi/2 (beyond rounding); the sentence names the row.

    Notes
    -----
    T = C (A - phi/2): forced binary verdicts and gold are assumed, so that a flipped pair is half right
    (Kumar, Rathore & Moitra 2026).

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"judge": ["m"], "repeatability": ["89.3"], "flip_rate": ["5.1"], "accuracy": ["64.8"]})
    >>> cells = cells_from_summary(rows)
    >>> round(float(cells.table.trustworthy_rate[0]), 4), cells.unit
    (0.5559, 'percent')
    """
    missing = [name for name in SUMMARY_COLUMNS if name not in frame.columns]
    if missing:
        raise InputError(
            f"the summary table lacks {list_some(missing)}; needed are repeatability, flip_rate and accuracy per row "
            "(or a verdict table with item_first and item_second)"
        )
    if units not in UNITS:
        raise InputError(f"units '{units}' is unknown; choose {', '.join(UNITS)}")
    if frame.empty:
        raise InputError("the summary table has a header but no rows")
    frame = frame.reset_index(drop=True)
    stated = [name for name in ("trustworthy_rate",) if name in frame.columns]
    names = [*SUMMARY_COLUMNS, *stated]
    known = {*METRICS, *(f"{name}_{end}" for name in METRICS for end in ("low", "high"))}
    labels = [name for name in frame.columns if name not in known and name != "failure_mode"]
    values = np.stack(
        [finite_numbers(frame[name], name, allow_empty=name not in SUMMARY_COLUMNS[1:]) for name in names]
    )
    decimals = np.stack([_decimals(frame[name]) for name in names])
    row_names = [" / ".join(map(str, row)) for row in frame[labels].to_numpy()] if labels else None
    unit = _find_unit(values, decimals, row_names) if units == "auto" else units
    scale = 100.0 if unit == "percent" else 1.0
    # At least whole percents: 0.40 is often written as 0.4.
    rounding = min(0.5 * 10.0 ** -float(decimals.max()) / scale, 0.005)
    # Rounding of 89.3 to a share must not make a longer decimal than 0.893.
    shares = np.round(values / scale, 15)
    rates = rates_from_summary(shares[0], shares[1], shares[2], rounding=rounding, labels=row_names)
    table = frame[labels].copy()
    for name, column in zip(SUMMARY_COLUMNS, shares, strict=False):
        table[name] = column
    table["undecided_accuracy"] = np.where(shares[1] > 0, 0.5, np.nan)
    table["decisive_accuracy"] = rates.decisive_accuracy
    table["ceiling"] = rates.ceiling
    table["capability_gap"] = rates.capability_gap
    table["trustworthy_rate"] = rates.trustworthy_rate
    table["trustworthy_rate_upper"] = shares[2] - shares[1] / 2
    if stated:
        table["trustworthy_rate_stated"] = shares[3]
    return _finish(table, labels, "summary", unit, rounding, high_repeatability, low_flip_rate)


def cells_from_metrics(
    tally: Tally, metrics: MetricTable, *, high_repeatability: float = 0.90, low_flip_rate: float = 0.20
) -> Cells:
    """Return the cells of measured groups (`difficulty.reliability.measure_reliability`)."""
    labels = [str(name) for name in tally.groups.columns]
    table = pd.concat([tally.groups.reset_index(drop=True), metrics.to_frame()], axis=1)
    table["n_pairs_swapped_gold"] = metrics.count("n_pairs_swapped_gold")
    return _finish(table, labels, "verdicts", "fraction", 0.0, high_repeatability, low_flip_rate)


def _finish(
    table: pd.DataFrame, labels: list[str], source: str, unit: str, rounding: float, high: float, low: float
) -> Cells:
    pairs = zip(table["repeatability"], table["flip_rate"], strict=True)
    table["failure_mode"] = [
        failure_mode(c, phi, high_repeatability=high, low_flip_rate=low) for c, phi in pairs
    ]
    return Cells(table, tuple(labels), source, unit, rounding)


def _decimals(column: pd.Series) -> npt.NDArray[np.int64]:
    """Number of decimals as written, shape (n,)."""
    found = (_DECIMAL.search(str(value)) for value in column)
    return np.array([len(match.group(1)) if match else 0 for match in found], dtype=np.int64)


def _find_unit(
    values: npt.NDArray[np.float64], decimals: npt.NDArray[np.int64], row_names: list[str] | None
) -> str:
    """Decide between percent and shares; refuse a mixture, naming the rows that differ from the rest."""
    large = np.nan_to_num(values) > 1
    if not large.any():
        return "fraction"
    small = (values > 0) & (values <= 1)
    # A flip rate below one percent is ordinary; one that is written with more digits than its row is a share.
    others = np.delete(decimals, 1, axis=0)[:2].max(axis=0)
    small[1] &= (decimals[1] > others) | ~large.any(axis=0)
    has_small = np.asarray(small.any(axis=0))
    has_large = np.asarray(large.any(axis=0))
    inside, as_share = has_small & has_large, has_small & ~has_large
    if not inside.any() and not as_share.any():
        return "percent"
    if inside.any():
        rows, what = inside, "mixes percent and shares within the row"
    elif as_share.sum() * 2 <= len(as_share):
        rows, what = as_share, "is in shares while other rows are in percent"
    else:
        rows, what = has_large, "is in percent while other rows are in shares"
    k = int(np.flatnonzero(rows)[0])
    name = f" ({row_names[k]})" if row_names else ""
    found = ", ".join(f"{value:g}" for value in values[:3, k])
    raise InputError(
        f"{describe_rows(rows)}{name}: repeatability, flip_rate, accuracy = {found} {what}; give all rows in one unit, or "
        "state it with --units percent or --units fraction"
    )


# --- dispersion ---------------------------------------------------------------------------------------------


def format_dispersion(
    cells: Cells, *, role: str = "format", metric: str | None = None, min_pairs: int = DEFAULT_MIN_PAIRS
) -> pd.DataFrame:
    """Return how far a metric moves when only the format changes: max - min per (judge, dataset).

    Parameters
    ----------
    cells : Cells
    role : str
        The column that plays the role of the format.
    metric : str, optional
        Default: T (its upper bound where repeatability is unobserved).
    min_pairs : int
        Cells with the metric from fewer pairs are left out (`Cells.is_thin`).

    Returns
    -------
    DataFrame
        One row per combination of the other labels: labels, ``n_formats``, ``dispersion``, ``min``, ``max``,
        ``format_min``, ``format_max`` (several that are equal joined by " = "). Undefined (NaN) with fewer
        than two formats. The order of the input rows does not matter.

    Raises
    ------
    InputError
        Unknown column or metric, or two cells for one format.
    """
    metric = _metric_iv(cells, metric)
    if role not in cells.labels:
        raise InputError(
            f"there is no column '{role}' to play the role of the format; the label columns are {list_some(cells.labels)}"
        )
    others = [name for name in cells.labels if name != role]
    table = cells.table.assign(**{metric: cells.table[metric].mask(cells.is_thin(metric, min_pairs))})
    table = table.sort_values(list(cells.labels), key=lambda c: c.astype(str), kind="stable")
    _refuse_repeats(table, list(cells.labels))
    rows = []
    groups = table.groupby(others, sort=True, dropna=False) if others else [((), table)]
    for key, part in groups:
        part = part[part[metric].notna()]
        values = part[metric].to_numpy(dtype=float)
        row = dict(zip(others, key, strict=True)) | {"n_formats": len(part)}
        if len(part) < 2:
            nan = float("nan")
            rows.append(row | {"dispersion": nan, "min": nan, "max": nan, "format_min": "", "format_max": ""})
            continue
        low, high = values.min(), values.max()
        ends = {
            f"format_{name}": " = ".join(part[role].astype(str)[np.abs(values - end) < 1e-12])
            for name, end in (("min", low), ("max", high))
        }
        rows.append(row | {"dispersion": high - low, "min": low, "max": high} | ends)
    columns = [*others, "n_formats", "dispersion", "min", "max", "format_min", "format_max"]
    return pd.DataFrame(rows, columns=columns)


def _metric_iv(cells: Cells, metric: str | None) -> str:
    metric = metric or cells.default_metric
    possible = [name for name in (*METRICS, "trustworthy_rate_stated") if name in cells.table.columns]
    if metric not in possible:
        raise InputError(f"metric '{metric}' is unknown here; choose one of {', '.join(possible)}")
    if cells.table[metric].isna().all():
        raise InputError(
            f"{metric} is undefined in all {len(cells.table)} cells; choose another one with --metric"
        )
    return metric


def _refuse_repeats(table: pd.DataFrame, columns: list[str]) -> None:
    repeated = table.duplicated(columns, keep=False)
    if repeated.any():
        first = table[repeated].iloc[0]
        raise InputError(
            f"rows {', '.join(str(k + 1) for k in table.index[repeated][:4])}: more than one cell for "
            f"{' / '.join(str(first[name]) for name in columns)}; add the column that tells them apart, or keep one row each"
        )


# --- eta squared --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class VarianceShares:
    """Shares of the total sum of squares of a metric.

    Attributes
    ----------
    term : tuple of str
        Factors, pairwise interactions ("judge x format"), then "residual".
    df : ndarray of int, shape (terms,)
    sum_sq : ndarray, shape (terms,)
        In squared shares.
    eta_squared : ndarray, shape (terms,)
        Shares of the total, sum 1; NaN where the metric is constant.
    metric : str
    n_cells, n_left_out, n_thin : int
        Cells used, cells without a value, and cells with a value from too few pairs.
    balanced : bool
        Every combination of the factors equally often: then the sums of squares do not depend on the order.
    notes : tuple of str
    """

    term: tuple[str, ...]
    df: npt.NDArray[np.int64]
    sum_sq: npt.NDArray[np.float64]
    eta_squared: npt.NDArray[np.float64]
    metric: str
    n_cells: int
    n_left_out: int
    n_thin: int
    balanced: bool
    notes: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        """Return one row per term."""
        return pd.DataFrame({name: getattr(self, name) for name in ("term", "df", "sum_sq", "eta_squared")})


def variance_shares(
    cells: Cells, factors: Sequence[str], *, metric: str | None = None, min_pairs: int = DEFAULT_MIN_PAIRS
) -> VarianceShares:
    """Split the variation of a metric over cells among factors and their pairwise interactions.

    Parameters
    ----------
    cells : Cells
    factors : sequence of str
        Label columns; main effects enter in this order, then the interactions.
    metric : str, optional
        Default: T (its upper bound where repeatability is unobserved).
    min_pairs : int
        Cells with the metric from fewer pairs are left out (`Cells.is_thin`).

    Returns
    -------
    VarianceShares

    Raises
    ------
    InputError
        Unknown, repeated or constant factors; no cell with enough pairs.

    Notes
    -----
    Sequential (type I) sums of squares by least squares on indicator columns, so the shares sum to 1 for any
    table. In a balanced table all types agree; otherwise a share is what a term explains beyond the terms
    before it.
    """
    metric = _metric_iv(cells, metric)
    factors = list(factors)
    unknown = [name for name in factors if name not in cells.labels]
    if unknown or not factors:
        raise InputError(
            f"factors {list_some(unknown) or '(none)'}: choose from the label columns {list_some(cells.labels)}"
        )
    if len(set(factors)) < len(factors):
        raise InputError(f"factors {list_some(factors)}: a factor is named twice")
    thin = cells.is_thin(metric, min_pairs)
    known = cells.table[metric].notna()
    use = known & ~thin
    if not use.any():
        raise InputError(
            f"all {len(thin)} cells have {metric} from fewer than {min_pairs} pairs; lower --min-pairs, or group by fewer columns"
        )
    # The order of the rows must not change the last bits.
    table = cells.table[use].sort_values(
        [*factors, metric], key=lambda c: c if c.name == metric else c.astype(str)
    )
    y = table[metric].to_numpy(dtype=float)
    codes = {name: pd.factorize(table[name].astype(str))[0] for name in factors}
    notes = []
    for name in factors:
        if codes[name].max(initial=0) == 0:
            raise InputError(f"factor {name} has a single value; it cannot explain any variation")
    terms: list[tuple[str, ...]] = [(name,) for name in factors]
    terms += list(combinations(factors, 2))
    sizes = [int(codes[name].max()) + 1 for name in factors]
    joint = np.ravel_multi_index(tuple(codes[name] for name in factors), sizes)
    per_cell = np.bincount(joint, minlength=int(np.prod(sizes)))
    balanced = bool((per_cell == per_cell[0]).all())
    if not balanced:
        notes.append(
            "unbalanced table: sequential (type I) sums of squares, each term beyond those listed before it; "
            "another order of --factors can give other shares"
        )
    basis = np.full((len(y), 1), 1 / np.sqrt(len(y)))
    remainder = y - y.mean()
    total = float(remainder @ remainder)
    df, sum_sq = [], []
    for term in terms:
        code = np.unique(np.stack([codes[name] for name in term]), axis=1, return_inverse=True)[1].ravel()
        columns = (code[:, None] == np.arange(code.max() + 1)).astype(float)
        new = _orthonormal_complement(columns, basis)
        part = new.T @ remainder
        df.append(new.shape[1])
        sum_sq.append(float(part @ part))
        remainder = remainder - new @ part
        basis = np.hstack([basis, new])
    df.append(len(y) - basis.shape[1])
    sum_sq.append(float(remainder @ remainder) if df[-1] else 0.0)
    if not df[-1]:
        notes.append(
            "no degrees of freedom are left for a residual: the last interaction and the residual are one and the same"
        )
    squares = np.array(sum_sq)
    constant = total <= 1e-20 * max(1.0, float(y @ y))
    eta = np.full(len(squares), np.nan) if constant else squares / squares.sum()
    if constant:
        notes.append(f"{metric} is the same in all cells: nothing to explain")
    return VarianceShares(
        (*(" x ".join(term) for term in terms), "residual"), np.array(df, dtype=np.int64), squares, eta,
        metric, len(y), int((~known).sum()), int(thin.sum()), balanced, tuple(notes),
    )  # fmt: skip


def _orthonormal_complement(
    columns: npt.NDArray[np.float64], basis: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Orthonormal basis of what `columns` span beyond an orthonormal `basis`."""
    rest = columns
    for _ in range(2):  # Once more: the first pass loses digits where little is left.
        rest = rest - basis @ (basis.T @ rest)
    u, s, _ = np.linalg.svd(rest, full_matrices=False)
    return np.asarray(u[:, s > 1e-8 * np.sqrt(len(columns))])


# --- along an axis ------------------------------------------------------------------------------------------

#: What an axis summary follows: T = C (A - phi q_u) and its two factors.
AXIS_METRICS = ("repeatability", "trustworthy_rate_upper", "trustworthy_rate")


@dataclass(frozen=True)
class AxisSummary:
    """C, A - phi q_u and T along the levels of one column.

    Attributes
    ----------
    axis : str
    levels : DataFrame
        One row per level, in numeric order where all are numbers: the level, ``n_cells``, and ``*_mean``,
        ``*_q25``, ``*_q75`` of `AXIS_METRICS`.
    steps : DataFrame
        One row per step to the next level, and one from the first to the last (where there are more than two):
        ``level_from``, ``level_to``, ``n_matched`` (cells that exist at both levels, equal in all other labels),
        ``trustworthy_rate_change`` over these, ``through_repeatability`` and ``through_decided_accuracy``
        (they add up to the change), and ``moved``: the factor with the larger part.
    notes : tuple of str
    """

    axis: str
    levels: pd.DataFrame
    steps: pd.DataFrame
    notes: tuple[str, ...]


def summarise_axis(cells: Cells, axis: str) -> AxisSummary:
    """Summarise C, A - phi q_u and T per level of a column, and say which factor of T moved.

    Parameters
    ----------
    cells : Cells
    axis : str
        A label column (temperature, model size, ...).

    Returns
    -------
    AxisSummary

    Notes
    -----
    The change of a product between two levels is split by its midpoints: dT = dC mean(U) + dU mean(C) with
    U = A - phi q_u, exact for every matched cell, then averaged over cells.
    """
    if axis not in cells.labels:
        raise InputError(f"there is no column '{axis}'; the label columns are {list_some(cells.labels)}")
    table = cells.table.sort_values(list(cells.labels), key=lambda c: c.astype(str), kind="stable")
    _refuse_repeats(table, list(cells.labels))
    others = [name for name in cells.labels if name != axis]
    levels = sorted(table[axis].unique(), key=_level_key)
    rows, parts = [], []
    for level in levels:
        part = table[table[axis] == level]
        row: dict[str, object] = {axis: level, "n_cells": len(part)}
        for name in AXIS_METRICS:
            values = part[name].dropna().to_numpy(dtype=float)
            q25, q75 = np.quantile(values, [0.25, 0.75]) if len(values) else (np.nan, np.nan)
            row |= {
                f"{name}_mean": values.mean() if len(values) else np.nan,
                f"{name}_q25": q25,
                f"{name}_q75": q75,
            }
        rows.append(row)
        key = part[others].astype(str).agg("\0".join, axis=1) if others else pd.Series("", index=part.index)
        parts.append(part.set_index(key)[list(AXIS_METRICS)].dropna())
    steps = [(k, k + 1) for k in range(len(levels) - 1)]
    if len(levels) > 2:
        steps.append((0, len(levels) - 1))
    changes, notes = [], []
    for a, b in steps:
        shared = parts[a].index.intersection(parts[b].index, sort=False)
        (c1, u1, t1), (c2, u2, t2) = (
            part.loc[shared].to_numpy(dtype=float).T for part in (parts[a], parts[b])
        )
        nan = float("nan")
        through_c = float(((c2 - c1) * (u1 + u2) / 2).mean()) if len(shared) else nan
        through_u = float(((u2 - u1) * (c1 + c2) / 2).mean()) if len(shared) else nan
        larger = "C" if abs(through_c) > abs(through_u) else "A - phi q_u"
        moved = larger if max(abs(through_c), abs(through_u)) > 1e-12 else "neither"
        changes.append(
            {
                "level_from": levels[a],
                "level_to": levels[b],
                "n_matched": len(shared),
                "trustworthy_rate_change": float((t2 - t1).mean()) if len(shared) else nan,
                "through_repeatability": through_c,
                "through_decided_accuracy": through_u,
                "moved": moved if len(shared) else "",
            }  # fmt: skip
        )
        unmatched = len(parts[a]) + len(parts[b]) - 2 * len(shared)
        if unmatched:
            notes.append(
                f"{unmatched} cell(s) exist only at one of {axis} {levels[a]} and {levels[b]} and are left out of the change"
            )
    if len(levels) < 2:
        notes.append(f"{axis} has a single level: there is no change to explain")
    columns = [
        "level_from", "level_to", "n_matched", "trustworthy_rate_change", "through_repeatability",
        "through_decided_accuracy", "moved",
    ]  # fmt: skip
    return AxisSummary(axis, pd.DataFrame(rows), pd.DataFrame(changes, columns=columns), tuple(notes))


def _level_key(level: object) -> tuple[int, float, str]:
    """Sort key: numbers by value (a size such as 7B by its number), then text."""
    match = re.fullmatch(r"\s*([-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*([kKmMbBtT]?)\s*", str(level))
    if match is None:
        return 1, 0.0, str(level)
    unit = {"": 0, "K": 3, "M": 6, "B": 9, "T": 12}[match.group(2).upper()]
    return 0, float(match.group(1)) * 10.0**unit, str(level)


def bounds_of(metric: str) -> tuple[float, float]:
    """Return the range of a metric, for axes of pictures."""
    return (-1.0, 1.0) if metric in DIFFERENCES else (0.0, 1.0)
