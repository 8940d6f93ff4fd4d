"""Difficulty: buckets of the gold gap, and the reliability of a judge within and between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from difficulty.reliability import (
    METRICS,
    STATISTICS,
    MetricTable,
    cluster_sums,
    measure_reliability,
    pair_statistics,
    resample_metrics,
)
from rank.buckets import EDGE_BASES, GapBuckets, bucket_gaps
from rank.exceptions import InputError
from rank.gold import Gold, PairGold
from rank.recovery import half_wins
from rank.resample import DEFAULT_LEVEL, DEFAULT_RESAMPLES, check_resampling, percentile_interval, seed_of
from rank.tally import Tally

GOLD_SCALES = ("unknown", "strengths", "rescale")


@dataclass(frozen=True)
class CalibratedReference:
    """What a judge that draws verdicts from the gold strengths would show, per bucket (then overall).

    Attributes
    ----------
    scale : float
        Factor from gold units to nats (1 when gold is declared to be BT strengths).
    expected_swap_consistency, expected_accuracy : ndarray, shape (buckets + 1,)
        Means of p^2 + (1-p)^2 and max(p, 1-p), p = 1 / (1 + exp(-scale * gap)).
    observed_minus_expected_swap_consistency, observed_minus_expected_accuracy : ndarray
    expected_flips : ndarray
        Number of flips that a calibrated judge would show on the pairs seen in both orders, answering once
        per order and without ties.
    expected_flips_sd : ndarray
        Standard deviation of that number between such judges.
    observed_flips : ndarray
        Number of flips that this judge shows on the same pairs.
    flip_cost : ndarray
        Mean log-likelihood difference of the two outcomes of a pair, in nats.
    fisher_information : ndarray
        Mean p (1 - p).
    """

    scale: float
    expected_swap_consistency: np.ndarray
    expected_accuracy: np.ndarray
    observed_minus_expected_swap_consistency: np.ndarray
    observed_minus_expected_accuracy: np.ndarray
    expected_flips: np.ndarray
    expected_flips_sd: np.ndarray
    observed_flips: np.ndarray
    flip_cost: np.ndarray
    fisher_information: np.ndarray


@dataclass(frozen=True)
class DifficultyProfile:
    """Reliability of one judge overall and by bucket of the gold gap.

    Attributes
    ----------
    overall : MetricTable
        One cell.
    buckets : GapBuckets or None
        None where there are no buckets; `reason` says why.
    by_bucket : MetricTable or None
        One cell per bucket.
    close_minus_far : mapping of str to (estimate, low, high)
        Paired differences of every metric.
    share_of_flips, share_of_wrong : ndarray, shape (buckets,)
        The flip budget: which share of all flips, and of all wrong decisive verdicts, falls into each bucket.
    reference : CalibratedReference or None
        Where a gold scale was declared.
    reason : str
    """

    overall: MetricTable
    buckets: GapBuckets | None
    by_bucket: MetricTable | None
    close_minus_far: Mapping[str, tuple[float, float, float]]
    share_of_flips: np.ndarray
    share_of_wrong: np.ndarray
    reference: CalibratedReference | None
    reason: str

    def to_frame(self) -> pd.DataFrame:
        """Return one row per bucket (empty without buckets)."""
        if self.by_bucket is None or self.buckets is None:
            return pd.DataFrame()
        frame = self.by_bucket.to_frame()
        frame.insert(0, "bucket", self.buckets.names)
        frame.insert(1, "gap_low", self.buckets.low)
        frame.insert(2, "gap_high", self.buckets.high)
        frame["share_of_flips"] = self.share_of_flips
        frame["share_of_wrong"] = self.share_of_wrong
        if self.reference is not None:
            for name, values in vars(self.reference).items():
                if name != "scale":
                    frame[name] = values[:-1]
        return frame


def profile_difficulty(
    tally: Tally,
    gold: Gold | None,
    *,
    n_buckets: int = 4,
    edges: str | Sequence[float] = "items",
    gold_scale: str = "unknown",
    invalid: str = "exclude",
    tie_credit: float = 0.0,
    n_resamples: int = DEFAULT_RESAMPLES,
    level: float = DEFAULT_LEVEL,
    rng: np.random.Generator | int | None = None,
) -> DifficultyProfile:
    """Measure one group overall and by bucket of the gold gap.

    Parameters
    ----------
    tally : Tally
        One group (``tally.select(k)``).
    gold : Gold or None
    n_buckets, edges
        See `bucket_gaps`.
    gold_scale : {"unknown", "strengths", "rescale"}
        "strengths": item gold is on the BT log scale (nats). "rescale": the factor that makes it so is
        fitted to this judge's verdicts by maximum likelihood. Otherwise there is no calibrated reference.
    invalid, tie_credit, n_resamples, level, rng
        See `difficulty.reliability.measure_reliability`.

    Returns
    -------
    DifficultyProfile
        With buckets None, and the reason, where gold is missing, constant or has no gaps.
    """
    check_resampling(n_resamples, level)
    if gold_scale not in GOLD_SCALES:
        raise InputError(f"gold scale '{gold_scale}' is unknown; choose {', '.join(GOLD_SCALES)}")
    pair_gold = gold.align(tally) if gold is not None else None
    seed = seed_of(rng)
    policy = {"invalid": invalid, "tie_credit": tie_credit}
    overall = measure_reliability(
        tally, pair_gold, invalid=invalid, tie_credit=tie_credit, n_resamples=n_resamples, level=level,
        rng=np.random.default_rng(seed),
    )  # fmt: skip
    nothing = np.zeros(0)
    buckets, reason = None, "there is no gold"
    if gold is not None and pair_gold is not None:
        try:
            buckets = bucket_gaps(tally, gold, pair_gold, n_buckets=n_buckets, edges=edges)
        except InputError as error:
            if not isinstance(edges, str) or edges not in EDGE_BASES or n_buckets < 2:
                raise
            reason = str(error)
    if buckets is None or pair_gold is None:
        return DifficultyProfile(overall, None, None, {}, nothing, nothing, None, reason)
    n = len(buckets.names)
    stats = pair_statistics(tally.counts, pair_gold, **policy)  # type: ignore[arg-type]
    by_cluster, _ = cluster_sums(stats, tally.clusters(), buckets.bucket, n)
    table, samples = resample_metrics(by_cluster, n_resamples=n_resamples, level=level, rng=seed)
    difference = {}
    for name in METRICS:
        interval = percentile_interval(
            samples[name][:, 0] - samples[name][:, -1],
            table.estimate[name][0] - table.estimate[name][-1],
            level=level,
            bounds=(-1.0, 1.0),
        )
        low, high = float(interval.low), float(interval.high)
        if low == high and table.n_clusters[[0, -1]].min() < 2:  # one cluster: its spread is unobserved
            low = high = float("nan")
        difference[name] = (float(interval.estimate), low, high)
    reference = None
    if gold_scale != "unknown":
        if gold is None or gold.kind != "items":
            raise InputError("a gold scale needs scores of items; pair gold has none")
        scale = 1.0 if gold_scale == "strengths" else fit_gold_scale(tally, pair_gold)
        flip = stats[:, STATISTICS.index("n_flips")] > 0
        reference = calibrated_reference(table, overall, tally, pair_gold, buckets, scale, flip)
    return DifficultyProfile(
        overall,
        buckets,
        table,
        difference,
        _shares(table.count("n_flips")),
        _shares(table.count("n_wrong_decisive")),
        reference,
        "",
    )


def _shares(counts: np.ndarray) -> np.ndarray:
    total = counts.sum()
    return counts / total if total else np.full(len(counts), np.nan)


def fit_gold_scale(tally: Tally, pair_gold: PairGold) -> float:
    """Return the factor b that maximises the likelihood of the verdicts under logit P(i) = b (g_i - g_j).

    Ties count half a win each. NaN where it does not exist (no verdict against gold, or none with it).
    """
    from scipy.optimize import brentq

    difference = pair_gold.score_i - pair_gold.score_j
    win_i, win_j = half_wins(tally.counts).T
    use = ~np.isnan(difference) & (difference != 0) & (win_i + win_j > 0)
    d = np.abs(difference[use])
    right = np.where(difference[use] > 0, win_i[use], win_j[use])
    n = (win_i + win_j)[use]
    if not (0 < right.sum() < n.sum()):
        return float("nan")

    def score(b: float) -> float:
        return float((d * (right - n / (1 + np.exp(-np.clip(b * d, -700, 700))))).sum())

    width = 1 / d.mean()
    low, high = -width, width
    while score(low) < 0 and low > -1e6 * width:
        low *= 2
    while score(high) > 0 and high < 1e6 * width:
        high *= 2
    return float(brentq(score, low, high, xtol=1e-12)) if score(low) * score(high) < 0 else float("nan")


def calibrated_reference(
    table: MetricTable,
    overall: MetricTable,
    tally: Tally,
    pair_gold: PairGold,
    buckets: GapBuckets,
    scale: float,
    flip: np.ndarray,
) -> CalibratedReference:
    """Return the expectations of a calibrated judge on the pairs that were seen in both orders.

    A calibrated judge picks i with p = 1 / (1 + exp(-scale (g_i - g_j))), independently in each order.
    """
    valid = tally.counts[..., [0, 1, 2, 4]].sum(axis=-1) > 0
    use = valid.all(axis=1) & ~np.isnan(pair_gold.gap)
    difference = scale * pair_gold.gap
    p = 1 / (1 + np.exp(-difference))
    cells = [use & (buckets.bucket == k) for k in range(len(buckets.names))] + [use]

    def mean(values: np.ndarray) -> np.ndarray:
        return np.array([values[cell].mean() if cell.any() else np.nan for cell in cells])

    expected_consistency, expected_accuracy = mean(p**2 + (1 - p) ** 2), mean(np.maximum(p, 1 - p))
    flip_chance = 2 * p * (1 - p)
    variance = np.array([(flip_chance * (1 - flip_chance))[cell].sum() for cell in cells])
    # On the pairs with gold only: those are what the expectation is about.
    observed = {
        "swap_consistency": 1
        - np.append(table.estimate["flip_rate_gold"], overall.estimate["flip_rate_gold"]),
        "accuracy": np.append(table.estimate["accuracy"], overall.estimate["accuracy"]),
    }
    return CalibratedReference(
        scale,
        expected_consistency,
        expected_accuracy,
        observed["swap_consistency"] - expected_consistency,
        observed["accuracy"] - expected_accuracy,
        np.array([flip_chance[cell].sum() for cell in cells]),
        np.sqrt(variance),
        np.array([(flip & cell).sum() for cell in cells]),
        mean(np.abs(difference)),
        mean(p * (1 - p)),
    )
