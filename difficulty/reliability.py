"""Reliability of a judge: C, phi, A, T and what surrounds them, as functions of summed pair statistics.

Every metric is a ratio of sums over pairs. So the work is: counts -> one row of additive statistics per pair
-> sums over a group, a bucket, a bootstrap resample -> metrics. The last step does not know which it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rank.exceptions import InputError
from rank.gold import NO_GOLD, PairGold
from rank.resample import (
    DEFAULT_LEVEL,
    DEFAULT_RESAMPLES,
    bootstrap_sums,
    check_resampling,
    percentile_interval,
    seed_of,
    sum_by,
)
from rank.tally import INCONSISTENT, INVALID, TIE, Tally

#: Codes of `modal_verdicts` and `pair_verdicts`: no valid verdict; undecided pair.
NO_VERDICT, UNDECIDED = -1, 2

#: The additive pair statistics, in the order of the last axis of `pair_statistics`.
STATISTICS = (
    "n_pairs",
    "n_pairs_swapped",
    "n_pairs_one_order",
    "n_pairs_invalid",
    "n_flips",
    "n_conditions",
    "n_conditions_repeated",
    "n_unanimous",
    "agreement",
    "n_verdicts",
    "n_ties",
    "n_invalid",
    "n_pairs_gold",
    "n_pairs_swapped_gold",
    "n_flips_gold",
    "n_conditions_repeated_gold",
    "n_unanimous_gold",
    "credit_decided",
    "credit_flipped",
    "n_conditions_joint",
    "n_joint",
    "n_verdicts_gold",
    "credit_verdicts",
    "n_wrong_decisive",
    # Slot statistics: the only ones that change when the two slots of every row are swapped.
    "n_lean_first",
    "n_lean_second",
    "n_first",
    "n_second",
)
SLOT_STATISTICS = ("n_lean_first", "n_lean_second", "n_first", "n_second")
_AT = {name: index for index, name in enumerate(STATISTICS)}
IS_SLOT_STATISTIC = np.array([name in SLOT_STATISTICS for name in STATISTICS])

#: Every metric with its range; all are shares. Those in `DIFFERENCES` are differences of shares.
METRICS = (
    "repeatability",
    "repeat_agreement",
    "flip_rate",
    "swap_consistency",
    "inconsistent_pair_primacy",
    "first_slot_rate",
    "accuracy",
    "accuracy_verdicts",
    "decisive_accuracy",
    "undecided_accuracy",
    "ceiling",
    "capability_gap",
    "trustworthy_rate",
    "trustworthy_rate_upper",
    "trustworthy_rate_joint",
    "joint_minus_closed",
    "repeatability_gold",
    "flip_rate_gold",
    "gold_coverage",
)
DIFFERENCES = ("joint_minus_closed",)

#: Counts that are reported beside the metrics.
COUNTS = (
    "n_pairs",
    "n_pairs_swapped",
    "n_pairs_one_order",
    "n_pairs_invalid",
    "n_flips",
    "n_conditions",
    "n_conditions_repeated",
    "n_verdicts",
    "n_ties",
    "n_invalid",
    "n_pairs_gold",
    "n_wrong_decisive",
)

#: Which count a metric is a proportion of; decides the size in a Wilson interval.
_TRIALS = {
    "repeatability": "n_conditions_repeated",
    "repeat_agreement": "n_conditions_repeated",
    "flip_rate": "n_pairs_swapped",
    "swap_consistency": "n_pairs_swapped",
    "inconsistent_pair_primacy": "n_flips",
    "first_slot_rate": "n_verdicts",
    "accuracy": "n_pairs_swapped_gold",
    "accuracy_verdicts": "n_verdicts_gold",
    "decisive_accuracy": "n_pairs_swapped_gold",
    "undecided_accuracy": "n_flips_gold",
    "ceiling": "n_pairs_swapped_gold",
    "capability_gap": "n_pairs_swapped_gold",
    "trustworthy_rate": "n_pairs_swapped_gold",
    "trustworthy_rate_upper": "n_pairs_swapped_gold",
    "trustworthy_rate_joint": "n_conditions_joint",
    "repeatability_gold": "n_conditions_repeated_gold",
    "flip_rate_gold": "n_pairs_swapped_gold",
    "gold_coverage": "n_pairs",
    "joint_minus_closed": "n_conditions_joint",
}

INVALID_POLICIES = ("exclude", "equal")


def modal_verdicts(counts: np.ndarray, *, invalid: str = "exclude") -> np.ndarray:
    """Return the most frequent outcome of every condition.

    Parameters
    ----------
    counts : ndarray of int, shape (..., P, 2, 5)
        Outcome counts as in `rank.tally.Tally`.
    invalid : {"exclude", "equal"}
        "exclude": unparsed verdicts are no verdicts. "equal": unparsed is an outcome of its own, and two
        unparsed verdicts count as equal (the policy of LLMBar's authors).

    Returns
    -------
    ndarray of int8, shape (..., P, 2)
        0 = i, 1 = j, 2 = tie (a draw for the first place included), 3 = invalid (only under "equal"),
        4 = inconsistent (a stated merged result), -1 = no valid verdict.
    """
    if invalid not in INVALID_POLICIES:
        raise InputError(f"invalid='{invalid}' is unknown; choose exclude or equal")
    valid = counts if invalid == "equal" else counts * _VALID
    top = valid.max(axis=-1)
    drawn = (valid == top[..., None]).sum(axis=-1) > 1
    modal = np.where(drawn, TIE, valid.argmax(axis=-1))
    return np.where(top == 0, NO_VERDICT, modal).astype(np.int8)


_VALID = np.array([1, 1, 1, 0, 1])


def pair_verdicts(counts: np.ndarray, *, invalid: str = "exclude") -> np.ndarray:
    """Return the verdict on each pair.

    Parameters
    ----------
    counts : ndarray of int, shape (..., P, 2, 5)
    invalid : {"exclude", "equal"}
        See `difficulty.reliability.modal_verdicts`.

    Returns
    -------
    ndarray of int8, shape (..., P)
        0 = i and 1 = j where both orders agree (or the only order says so), 2 = undecided (the orders
        differ, or say tie), -1 = no valid verdict.

    Examples
    --------
    >>> counts = np.zeros((3, 2, 5), dtype=int)
    >>> counts[0, :, 0] = 1                       # i wins in both orders
    >>> counts[1, 0, 0] = counts[1, 1, 1] = 1     # a flip
    >>> counts[2, 0, 1] = 2                       # j wins, second order never asked
    >>> pair_verdicts(counts)
    array([0, 2, 1], dtype=int8)
    """
    modal = modal_verdicts(counts, invalid=invalid)
    a, b = modal[..., 0], modal[..., 1]
    verdict = np.where(a == NO_VERDICT, b, np.where((b == NO_VERDICT) | (a == b), a, UNDECIDED))
    verdict = np.where(verdict > TIE, UNDECIDED, verdict)
    return verdict.astype(np.int8)


def pair_statistics(
    counts: np.ndarray,
    gold: PairGold | None = None,
    *,
    invalid: str = "exclude",
    tie_credit: float = 0.0,
) -> np.ndarray:
    """Return the additive statistics of every pair.

    Parameters
    ----------
    counts : ndarray of int, shape (..., P, 2, 5)
        Outcome counts per pair, order and outcome.
    gold : PairGold, optional
        Gold of the P pairs; without it everything that needs gold counts nothing.
    invalid : {"exclude", "equal"}
        See `modal_verdicts`.
    tie_credit : float in [0, 1]
        Credit of a tie on a pair whose gold is decided.

    Returns
    -------
    ndarray of float, shape (..., P, S)
        Last axis as in `STATISTICS`. Sums over pairs are what `metrics_from_sums` takes.
    """
    if not 0 <= tie_credit <= 1:
        raise InputError(f"tie_credit must lie in [0, 1], found {tie_credit}")
    modal = modal_verdicts(counts, invalid=invalid)
    valid = counts if invalid == "equal" else counts * _VALID
    n_valid = valid.sum(axis=-1)
    seen = modal != NO_VERDICT
    both = seen.all(axis=-1)
    one = seen.any(axis=-1) & ~both
    stated = (modal == INCONSISTENT).any(axis=-1)
    flip = both & ((modal[..., 0] != modal[..., 1]) | stated)
    repeated = n_valid >= 2
    unanimous = repeated & (valid.max(axis=-1) == n_valid)
    pairs_of_runs = n_valid * (n_valid - 1.0)
    equal_pairs = (valid * (valid - 1.0)).sum(axis=-1)
    agreement = np.divide(equal_pairs, pairs_of_runs, out=np.zeros(n_valid.shape), where=repeated)

    # Lean of a verdict to the first slot: +1 first, -1 second, 0 tie; order 0 shows i first, order 1 shows j first.
    direction = np.where(modal == 0, 1, np.where(modal == 1, -1, 0)) * np.array([1, -1])
    lean = direction.sum(axis=-1)
    stats = np.zeros((*counts.shape[:-2], len(STATISTICS)))

    def put(name: str, value: np.ndarray) -> None:
        stats[..., _AT[name]] = value

    put("n_pairs", np.ones(both.shape))
    put("n_pairs_swapped", both)
    put("n_pairs_one_order", one)
    put("n_pairs_invalid", ~seen.any(axis=-1))
    put("n_flips", flip)
    put("n_lean_first", flip & ~stated & (lean > 0))
    put("n_lean_second", flip & ~stated & (lean < 0))
    put("n_conditions", seen.sum(axis=-1))
    put("n_conditions_repeated", repeated.sum(axis=-1))
    put("n_unanimous", unanimous.sum(axis=-1))
    put("agreement", agreement.sum(axis=-1))
    put("n_verdicts", n_valid.sum(axis=-1))
    put("n_first", counts[..., 0, 0] + counts[..., 1, 1])
    put("n_second", counts[..., 0, 1] + counts[..., 1, 0])
    put("n_ties", counts[..., TIE].sum(axis=-1))
    put("n_invalid", counts[..., INVALID].sum(axis=-1))
    if gold is not None:
        credit_of = _credits(gold.winner, tie_credit)
        index = np.where(modal == NO_VERDICT, INVALID, modal).astype(np.int64)
        credit = np.take_along_axis(
            np.broadcast_to(credit_of[:, None, :], (*modal.shape, 5)), index[..., None], axis=-1
        )[..., 0]
        covered = gold.winner != NO_GOLD
        basis = both & covered
        put("n_pairs_gold", np.broadcast_to(covered, both.shape))
        put("n_pairs_swapped_gold", basis)
        put("n_flips_gold", basis & flip)
        put("n_conditions_repeated_gold", repeated.sum(axis=-1) * covered)
        put("n_unanimous_gold", unanimous.sum(axis=-1) * covered)
        put("credit_decided", np.where(basis & ~flip, credit.sum(axis=-1), 0.0))
        put("credit_flipped", np.where(basis & flip, credit.sum(axis=-1), 0.0))
        joint = repeated & basis[..., None]
        put("n_conditions_joint", joint.sum(axis=-1))
        put("n_joint", ((joint & unanimous & ~flip[..., None]) * credit).sum(axis=-1))
        put("n_verdicts_gold", n_valid.sum(axis=-1) * covered)
        put("credit_verdicts", np.where(covered, (valid * credit_of[:, None, :]).sum(axis=(-1, -2)), 0.0))
        put("n_wrong_decisive", basis & ~flip & (credit[..., 0] < 1))
    return stats


def _credits(winner: np.ndarray, tie_credit: float) -> np.ndarray:
    """Return the credit of each outcome given gold, shape (P, 5).

    A stated "inconsistent" result hides one verdict for each item: half of a decided gold.
    """
    table = np.zeros((4, 5))
    table[0] = [1, 0, tie_credit, 0, 0.5]
    table[1] = [0, 1, tie_credit, 0, 0.5]
    table[2] = [0, 0, 1, 0, 0]
    return table[winner]  # NO_GOLD = -1 takes the last row: no credit


def metrics_from_sums(sums: np.ndarray) -> dict[str, np.ndarray]:
    """Return every metric from summed pair statistics.

    Parameters
    ----------
    sums : ndarray, shape (..., S)
        Sums over the pairs of a group, bucket or resample.

    Returns
    -------
    dict of str to ndarray, shape (...)
        Keys are `METRICS`; shares in [0, 1]; NaN where the denominator is zero.
    """

    def total(name: str) -> np.ndarray:
        return sums[..., _AT[name]]

    def ratio(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
        return np.divide(top, bottom, out=np.full(np.shape(bottom), np.nan), where=bottom > 0)

    n, n_gold = total("n_pairs_swapped"), total("n_pairs_swapped_gold")
    flips_gold = total("n_flips_gold")
    repeatability_gold = ratio(total("n_unanimous_gold"), total("n_conditions_repeated_gold"))
    flip_rate = ratio(total("n_flips"), n)
    decided, flipped = total("credit_decided"), total("credit_flipped")
    accuracy = ratio(decided + flipped, 2 * n_gold)
    right_and_stable = ratio(decided, 2 * n_gold)
    ceiling = ratio(2 * (n_gold - flips_gold) + flipped, 2 * n_gold)
    joint = ratio(total("n_joint"), total("n_conditions_joint"))
    closed = repeatability_gold * right_and_stable
    return {
        "repeatability": ratio(total("n_unanimous"), total("n_conditions_repeated")),
        "repeat_agreement": ratio(total("agreement"), total("n_conditions_repeated")),
        "flip_rate": flip_rate,
        "swap_consistency": 1 - flip_rate,
        "inconsistent_pair_primacy": ratio(
            total("n_lean_first"), total("n_lean_first") + total("n_lean_second")
        ),
        "first_slot_rate": ratio(total("n_first"), total("n_first") + total("n_second")),
        "accuracy": accuracy,
        "accuracy_verdicts": ratio(total("credit_verdicts"), total("n_verdicts_gold")),
        "decisive_accuracy": ratio(decided, 2 * (n_gold - flips_gold)),
        "undecided_accuracy": ratio(flipped, 2 * flips_gold),
        "ceiling": ceiling,
        "capability_gap": ceiling - accuracy,
        "trustworthy_rate": closed,
        "trustworthy_rate_upper": right_and_stable,
        "trustworthy_rate_joint": joint,
        "joint_minus_closed": joint - closed,
        "repeatability_gold": repeatability_gold,
        "flip_rate_gold": ratio(flips_gold, n_gold),
        "gold_coverage": ratio(total("n_pairs_gold"), total("n_pairs")),
    }


@dataclass(frozen=True)
class MetricTable:
    """Metrics with intervals for some cells (groups, buckets), one array entry per cell.

    Attributes
    ----------
    sums : ndarray, shape (cells, S)
        The summed statistics (`STATISTICS`), from which everything else follows.
    estimate, low, high : mapping of str to ndarray, shape (cells,)
        Per metric: the full-data value and its interval; NaN where undefined. The interval is NaN as well
        where a single cluster is all there is to resample.
    n_clusters : ndarray of int, shape (cells,)
        Number of resampling clusters in each cell.
    level : float
    """

    sums: np.ndarray
    estimate: Mapping[str, np.ndarray]
    low: Mapping[str, np.ndarray]
    high: Mapping[str, np.ndarray]
    n_clusters: np.ndarray
    level: float

    def count(self, name: str) -> np.ndarray:
        """Return one of the summed statistics as integers, shape (cells,)."""
        return np.rint(self.sums[:, _AT[name]]).astype(np.int64)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per cell: counts, then every metric with its ``_low`` and ``_high``."""
        columns: dict[str, np.ndarray] = {name: self.count(name) for name in COUNTS}
        for name in self.estimate:
            columns[name] = self.estimate[name]
            columns[f"{name}_low"] = self.low[name]
            columns[f"{name}_high"] = self.high[name]
        return pd.DataFrame(columns)


def cluster_sums(
    stats: np.ndarray, cluster: np.ndarray, cell: np.ndarray, n_cells: int
) -> tuple[np.ndarray, np.ndarray]:
    """Sum pair statistics (P, S) by cluster and cell into (clusters, cells, S); also return cluster codes.

    Pairs whose cell is negative are left out of every cell.
    """
    _, dense = np.unique(cluster, return_inverse=True)
    n = int(dense.max()) + 1 if len(dense) else 0
    inside = cell >= 0
    total = sum_by(dense[inside] * n_cells + cell[inside], stats[inside], n * n_cells)
    return total.reshape(n, n_cells, stats.shape[-1]), dense


def resample_metrics(
    by_cluster: np.ndarray,
    *,
    n_resamples: int,
    level: float,
    rng: np.random.Generator | int | None | np.random.SeedSequence,
) -> tuple[MetricTable, dict[str, np.ndarray]]:
    """Return metrics with bootstrap intervals, and the resampled metrics themselves.

    Parameters
    ----------
    by_cluster : ndarray, shape (clusters, cells, S)
        Summed statistics; whole clusters (all their cells) are drawn together, so that differences between
        cells are paired.

    Returns
    -------
    MetricTable
    dict of str to ndarray, shape (B, cells)
    """
    n, n_cells, n_stats = by_cluster.shape
    sums = by_cluster.sum(axis=0)
    estimate = metrics_from_sums(sums)
    drawn = bootstrap_sums(
        by_cluster.reshape(n, -1),
        n_resamples,
        secondary=np.tile(IS_SLOT_STATISTIC, n_cells),
        rng=np.random.default_rng(rng),
    )
    samples = metrics_from_sums(drawn.reshape(n_resamples, n_cells, n_stats))
    in_cell = by_cluster[..., _AT["n_pairs"]] > 0
    low, high = {}, {}
    for name in METRICS:
        count = by_cluster[..., _AT[_TRIALS[name]]]
        n_informative = (count > 0).sum(axis=0)
        trials = np.minimum(count.sum(axis=0), n_informative)
        bounds = (-1.0, 1.0) if name in DIFFERENCES else (0.0, 1.0)
        interval = percentile_interval(
            samples[name], estimate[name], level=level, bounds=bounds, n_trials=trials
        )
        # One cluster resampled is that cluster: its spread is unobserved, not zero. At 0 and 1 Wilson's rule stands.
        unknown = (n_informative == 1) & (interval.low == interval.high)
        low[name] = np.where(unknown, np.nan, interval.low)
        high[name] = np.where(unknown, np.nan, interval.high)
    return MetricTable(sums, estimate, low, high, in_cell.sum(axis=0), level), samples


def measure_reliability(
    tally: Tally,
    gold: PairGold | None = None,
    *,
    invalid: str = "exclude",
    tie_credit: float = 0.0,
    n_resamples: int = DEFAULT_RESAMPLES,
    level: float = DEFAULT_LEVEL,
    rng: np.random.Generator | int | None = None,
) -> MetricTable:
    """Measure every group of a tally.

    Parameters
    ----------
    tally : Tally
        Counts of the verdicts.
    gold : PairGold, optional
        ``Gold.align(tally)``.
    invalid, tie_credit
        See `pair_statistics`.
    n_resamples : int
        Bootstrap resamples over clusters (contexts if the table has them, else pairs).
    level : float
        Coverage of the intervals.
    rng : Generator, int or None
        Seed; a group's interval does not depend on the other groups.

    Returns
    -------
    MetricTable
        One entry per group of the tally, in the order of `Tally.groups`.

    Notes
    -----
    Definitions: Kumar, Rathore & Moitra 2026, "All Verdicts are Not Equal" (C, phi, A, T, ceiling);
    "Pair Difficulty Matters" 2026 (inconsistent-pair primacy).
    """
    check_resampling(n_resamples, level)
    stats = pair_statistics(tally.counts, gold, invalid=invalid, tie_credit=tie_credit)
    cluster = tally.clusters()
    seed = seed_of(rng)
    parts = []
    bounds = np.searchsorted(tally.group, np.arange(tally.n_groups + 1))
    for index in range(tally.n_groups):
        rows = slice(bounds[index], bounds[index + 1])
        by_cluster, _ = cluster_sums(
            stats[rows], cluster[rows], np.zeros(rows.stop - rows.start, dtype=np.int64), 1
        )
        parts.append(resample_metrics(by_cluster, n_resamples=n_resamples, level=level, rng=seed)[0])
    return join_metric_tables(parts)


def join_metric_tables(parts: list[MetricTable]) -> MetricTable:
    """Join the cells of several tables into one."""
    return MetricTable(
        np.concatenate([part.sums for part in parts]),
        {name: np.concatenate([part.estimate[name] for part in parts]) for name in METRICS},
        {name: np.concatenate([part.low[name] for part in parts]) for name in METRICS},
        {name: np.concatenate([part.high[name] for part in parts]) for name in METRICS},
        np.concatenate([part.n_clusters for part in parts]),
        parts[0].level,
    )


#: Failure modes with the remedy of each.
FAILURE_MODES = {
    "trustworthy": "repeating or swapping its calls would change little; whether they are right is for A to say",
    "noisy but fair": "repeat each call and take the majority",
    "chaotic": "ask in both orders, repeat each call, and keep only what survives both",
    "confidently biased": "the dangerous one: it repeats its position bias, so repeats do not help; always ask in both "
    "orders and treat pairs that flip as undecided",
}


def failure_mode(
    repeatability: float, flip_rate: float, *, high_repeatability: float = 0.90, low_flip_rate: float = 0.20
) -> str | None:
    """Name the failure mode of a judge; None where repeatability or flip rate is unobserved.

    Parameters
    ----------
    repeatability, flip_rate : float in [0, 1]
        C and phi.
    high_repeatability, low_flip_rate : float
        C at or above the first is "high", phi at or below the second is "low".

    Examples
    --------
    >>> failure_mode(1.0, 1.0)
    'confidently biased'
    """
    for name, bound in (("high repeatability", high_repeatability), ("low flip rate", low_flip_rate)):
        if not 0 <= bound <= 1:
            raise InputError(f"the threshold of {name} must lie in [0, 1], found {bound:g}")
    if np.isnan(repeatability) or np.isnan(flip_rate):
        return None
    # Tolerance: 0.9 computed as 9/10 must not lose to 0.9 written as a float.
    high, low = repeatability >= high_repeatability - 1e-12, flip_rate <= low_flip_rate + 1e-12
    if low:
        return "trustworthy" if high else "noisy but fair"
    return "confidently biased" if high else "chaotic"


@dataclass(frozen=True)
class SummaryRates:
    """T and its relatives of one summary row, all as shares in [0, 1]."""

    trustworthy_rate: np.ndarray
    ceiling: np.ndarray
    decisive_accuracy: np.ndarray
    capability_gap: np.ndarray


def rates_from_summary(
    repeatability: np.ndarray,
    flip_rate: np.ndarray,
    accuracy: np.ndarray,
    *,
    rounding: float = 0.0,
    labels: list[str] | None = None,
) -> SummaryRates:
    """Return T = C (A - phi/2) and its relatives from published or summarised C, phi, A.

    Assumes forced binary verdicts and gold (q_u = 1/2).

    Parameters
    ----------
    repeatability, flip_rate, accuracy : array_like of float in [0, 1], one shape
    rounding : float
        By how much the three may be off because they were rounded (half a unit of the last digit).
    labels : list of str, optional
        Names of the rows, for errors.

    Raises
    ------
    InputError
        When a row lies outside phi/2 <= A <= 1 - phi/2 by more than rounding allows: C, phi and A were
        then measured on different bases. Nothing is clipped.

    Examples
    --------
    >>> rates = rates_from_summary([0.893], [0.051], [0.648])
    >>> round(float(rates.trustworthy_rate[0]), 4)
    0.5559
    """
    c, phi, a = (np.asarray(x, dtype=float) for x in (repeatability, flip_rate, accuracy))
    for name, values in (("repeatability", c), ("flip_rate", phi), ("accuracy", a)):
        bad = np.flatnonzero(~((values >= 0) & (values <= 1)) & ~np.isnan(values))
        if len(bad):
            raise InputError(
                f"{_name_row(labels, bad[0])}: {name} {values.flat[bad[0]]:g} is not a share in [0, 1]"
            )
    slack = 1.5 * rounding + 1e-12
    bad = np.flatnonzero((a > 1 - phi / 2 + slack) | (a < phi / 2 - slack))
    if len(bad):
        k = int(bad[0])
        raise InputError(
            f"{_name_row(labels, k)}: C = {c.flat[k]:g}, phi = {phi.flat[k]:g}, A = {a.flat[k]:g} cannot belong together: "
            f"with forced binary verdicts phi/2 <= A <= 1 - phi/2, that is {phi.flat[k] / 2:g} <= A <= {1 - phi.flat[k] / 2:g}; "
            "the three were measured on different bases"
        )
    decided = a - phi / 2
    ceiling = 1 - phi / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        decisive = np.where(phi < 1, decided / (1 - phi), np.nan)
    return SummaryRates(c * decided, ceiling, decisive, ceiling - a)


def _name_row(labels: list[str] | None, index: int) -> str:
    return f"row {index + 1}" + (f" ({labels[index]})" if labels else "")
