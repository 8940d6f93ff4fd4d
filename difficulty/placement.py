"""Error placement: how strongly a judge's flips and errors crowd on close or on far pairs, as one number q.

The model is the placement of `simulate.judges`: the k marked pairs (flips, or wrong decisive verdicts) are drawn
from the candidates one after the other without replacement, with weight ``u ** (q / (1 - q))`` for q >= 0 and
``(1 - u) ** (-q / (1 + q))`` for q < 0, where u is the percentile rank of the gap among all pairs.

Drawn as an exponential race, a candidate is among the first k with probability ``1 - exp(-w t)``, where t is
such that the probabilities add up to k. So q has an estimating equation: the mean percentile rank of the marked
pairs equals its expectation under q. This is what is solved. Against the likelihood of the same probabilities it
loses a little precision near q = 0 (standard errors about 15 % larger) and wins what matters on real tables: one
error on the very closest or farthest pair, whose log-weight is unbounded, cannot move the estimate far, and the
two families q < 0 and q > 0 join smoothly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from difficulty.reliability import STATISTICS, pair_statistics
from rank.exceptions import InputError
from rank.gold import GOLD_I, GOLD_J, PairGold
from rank.recovery import midranks
from rank.resample import (
    DEFAULT_LEVEL,
    DEFAULT_RESAMPLES,
    bootstrap_sums,
    check_resampling,
    percentile_interval,
    seed_of,
)
from rank.tally import Tally

Floats = npt.NDArray[np.float64]

#: Fewer marked (or unmarked) pairs than this say nothing about where they fall.
FEWEST = 5

#: Beyond this |q| the placement is the limit (exactly the closest or farthest pairs) to within 1 %.
_NEARLY_ONE = 0.99
_BINS = 128
_RESAMPLE_CELLS = 20_000_000


@dataclass(frozen=True)
class Placement:
    """Where marked pairs fall among their candidates.

    Attributes
    ----------
    q, low, high : float
        Placement in [-1, 1] with its interval: -1 on the closest pairs, 0 anywhere, 1 on the farthest. NaN
        where `reason` says why.
    n_placed, n_candidates : int
        Marked pairs, and the pairs they were drawn from.
    mean_rank, mean_rank_anywhere : float
        Mean percentile rank of the gap of the marked pairs, and of all candidates (its expectation at q = 0).
    reason : str
    samples : ndarray, shape (B,)
        Resampled q.
    """

    q: float
    low: float
    high: float
    n_placed: int
    n_candidates: int
    mean_rank: float
    mean_rank_anywhere: float
    reason: str
    samples: Floats = field(repr=False)


@dataclass(frozen=True)
class ErrorPlacement:
    """Placement of the wrong decisive verdicts among the decided pairs, and of the flips among all pairs."""

    errors: Placement
    flips: Placement

    def fields(self) -> dict[str, Any]:
        """Return ``q_hat``, ``flip_q_hat``, their bounds and reasons as a flat dict."""
        row: dict[str, Any] = {}
        for name, p in (("q_hat", self.errors), ("flip_q_hat", self.flips)):
            row |= {name: p.q, f"{name}_low": p.low, f"{name}_high": p.high, f"{name}_reason": p.reason}
        return row


def gap_ranks(gap: npt.ArrayLike) -> Floats:
    """Return percentile ranks ``(rank - 1/2) / m`` in (0, 1); equal gaps share their mid-rank, NaN stays NaN.

    Examples
    --------
    >>> gap_ranks([0.1, 0.7, np.nan, 0.7, 0.2])
    array([0.125, 0.75 ,   nan, 0.75 , 0.375])
    """
    values = np.asarray(gap, dtype=float)
    rank = np.full(values.shape, np.nan)
    known = ~np.isnan(values)
    rank[known] = (midranks(values[known]) - 0.5) / max(int(known.sum()), 1)
    return rank


def inclusion_probabilities(
    gap_rank: npt.ArrayLike, size: float, q: float, *, weights: npt.ArrayLike | None = None
) -> Floats:
    """Return the probability of each candidate to be among `size` pairs placed by q.

    Parameters
    ----------
    gap_rank : array_like, shape (m,)
        Percentile ranks of the candidates, in (0, 1).
    size : float
        Number of pairs placed, between 0 and m.
    q : float
        In [-1, 1].
    weights : array_like, shape (m,), optional
        How many pairs each entry stands for.

    Returns
    -------
    ndarray, shape (m,)
        Adds up to `size`. Exact at q = 0 and q = -1, 1 (equal ranks at the border share what is left); otherwise
        the limit for many pairs, off by less than 0.01 from about 20 pairs on.

    References
    ----------
    Rosen 1972, Ann. Math. Statist. 43(2) (successive sampling); Efraimidis & Spirakis 2006,
    doi:10.1016/j.ipl.2005.11.003 (the race).

    Examples
    --------
    >>> u = (np.arange(5) + 0.5) / 5
    >>> inclusion_probabilities(u, 2, 0.0)
    array([0.4, 0.4, 0.4, 0.4, 0.4])
    >>> inclusion_probabilities(u, 2, 1.0)
    array([0., 0., 0., 1., 1.])
    """
    u = np.asarray(gap_rank, dtype=float)
    c = np.ones(u.shape) if weights is None else np.asarray(weights, dtype=float)
    if not -1.0 <= q <= 1.0:
        raise InputError(f"q must be between -1 (close pairs) and 1 (far pairs), found {q}")
    if not 0 <= size <= c.sum() + 1e-9:
        raise InputError(f"{size:g} pairs cannot be placed on {c.sum():g} candidates")
    if abs(q) > 1 - 1e-9:  # powers beyond 1e9 drown in rounding
        return _most_extreme(u, c, size, far=q > 0)
    p, _ = _race(u, c[None], np.array([float(size)]), np.array([q]), None)
    return p[0]


def _most_extreme(u: Floats, c: Floats, size: float, *, far: bool) -> Floats:
    """Probabilities at q = 1 (far) or -1: the extremes, and equal shares of what is left at the border."""
    values, inverse = np.unique(-u if far else u, return_inverse=True)
    total = np.bincount(inverse, c, len(values))
    before = np.cumsum(total) - total
    share = np.clip((size - before) / np.where(total > 0, total, 1.0), 0.0, 1.0)
    return share[inverse]


def _log_weight(u: Floats, q: Floats) -> Floats:
    """Log-weights, shape (B, m), of ranks (m,) at every q (B,); the largest possible weight is 1."""
    power = np.abs(q) / (1 - np.abs(q))
    return power[:, None] * np.where(q[:, None] >= 0, np.log(u), np.log1p(-u))


def _race(
    u: Floats, c: Floats, size: Floats, q: Floats, start: Floats | None, tol: float = 1e-10
) -> tuple[Floats, Floats]:
    """Inclusion probabilities (B, m) and the log-times (B,) at which the race has `size` (B,) arrivals.

    Safeguarded Newton on sum c (1 - exp(-w t)) = size in log t; the left side increases with t.
    """
    log_w = _log_weight(u, q)
    whole = c.sum(axis=1)
    size = np.minimum(size, whole * (1 - 1e-12))
    open_ended = -np.log1p(-size / whole)  # t if all weights were 1: a lower bound
    low = np.log(np.maximum(open_ended, 1e-300))
    smallest = np.where(c > 0, log_w, np.inf).min(axis=1)
    high = low - smallest  # t if all weights were the smallest: an upper bound
    s = (
        np.clip(start, low, high)
        if start is not None
        else low - np.where(c > 0, log_w, 0).sum(axis=1) / (c > 0).sum(axis=1)
    )
    s = np.clip(s, low, high)
    for _ in range(60):
        arrivals = np.exp(np.minimum(log_w + s[:, None], 700.0))
        missing = np.exp(-arrivals)
        excess = whole - (c * missing).sum(axis=1) - size
        slope = (c * missing * arrivals).sum(axis=1)
        low, high = np.where(excess <= 0, s, low), np.where(excess >= 0, s, high)
        step = excess / np.maximum(slope, 1e-300)
        new = s - step
        new = np.where((new > low) & (new < high), new, (low + high) / 2)
        done = np.abs(excess) <= tol * size
        s = np.where(done, s, new)
        if done.all() or np.max(high - low) < 1e-13:
            break
    return -np.expm1(-np.exp(np.minimum(log_w + s[:, None], 700.0))), s


def _solve(
    u: Floats, c: Floats, size: Floats, target: Floats, *, around: float | None = None, tol: float = 1e-10
) -> Floats:
    """q (B,) at which `size` pairs placed on candidates (weights (B, m)) have sum of ranks `target` (B,).

    The expected sum increases with q, so q is bracketed (first close to `around`, if given) and found by
    the Illinois method. Placements beyond the limits |q| = 0.99 are taken as -1 or 1.
    """
    start: Floats | None = None

    def excess(q: Floats, rows: np.ndarray, s: Floats | None) -> tuple[Floats, Floats]:
        p, s = _race(u, c[rows], size[rows], q, s, tol)
        return (c[rows] * p) @ u - target[rows], s

    n = len(size)
    limit = np.full(n, _NEARLY_ONE)
    low, high, at_low, at_high = -limit, limit, np.full(n, np.nan), np.full(n, np.nan)
    if around is not None:
        for end in (np.clip(around - 0.1, -0.98, 0.98), np.clip(around + 0.1, -0.98, 0.98)):
            value, start = excess(np.full(n, end), np.arange(n), start)
            below = value <= 0
            low, at_low = np.where(below, end, low), np.where(below, value, at_low)
            above = ~below & np.isnan(at_high)
            high, at_high = np.where(above, end, high), np.where(above, value, at_high)
    for end, at_end in ((low, at_low), (high, at_high)):
        missing = np.flatnonzero(np.isnan(at_end))
        if len(missing):
            at_end[missing] = excess(end[missing], missing, None)[0]
    result = np.where(at_low >= 0, low, np.where(at_high <= 0, high, np.nan))
    result = np.where(np.abs(result) == _NEARLY_ONE, np.sign(result), result)
    rows = np.flatnonzero(np.isnan(result))
    a, b, fa, fb = low[rows], high[rows], at_low[rows], at_high[rows]
    scale, side = 10 * tol * np.maximum(size[rows], 1.0), np.zeros(len(rows))
    start = None if start is None else start[rows]
    for iteration in range(80):
        if not len(rows):
            break
        secant = (a * fb - b * fa) / np.where(fb > fa, fb - fa, 1.0)
        use = (secant > a) & (secant < b) & (iteration < 40)
        q = np.where(use, secant, (a + b) / 2)
        value, start = excess(q, rows, start)
        right = value > 0
        # Illinois: the value of an end that stays twice counts half.
        fa = np.where(right & (side > 0), fa / 2, fa)
        fb = np.where(~right & (side < 0), fb / 2, fb)
        side = np.where(right, 1.0, -1.0)
        a, fa = np.where(right, a, q), np.where(right, fa, value)
        b, fb = np.where(right, q, b), np.where(right, value, fb)
        done = (np.abs(value) <= scale) | (b - a < tol)
        result[rows[done]] = q[done]
        keep = ~done
        rows, a, b, fa, fb, side, scale, start = (x[keep] for x in (rows, a, b, fa, fb, side, scale, start))
    return result


def fit_placement(
    gap_rank: npt.ArrayLike,
    placed: npt.ArrayLike,
    *,
    candidate: npt.ArrayLike | None = None,
    cluster: npt.ArrayLike | None = None,
    what: str = "errors",
    n_resamples: int = DEFAULT_RESAMPLES,
    level: float = DEFAULT_LEVEL,
    rng: np.random.Generator | int | None | np.random.SeedSequence = None,
) -> Placement:
    """Estimate the q that explains where marked pairs fall.

    Parameters
    ----------
    gap_rank : array_like, shape (m,)
        Percentile rank of the gap of each pair (`gap_ranks`), NaN where unknown: no candidate then.
    placed : array_like of bool, shape (m,)
        The marked pairs.
    candidate : array_like of bool, shape (m,), optional
        Pairs that could have been marked; all by default. Ranks are not taken anew among them.
    cluster : array_like of int, shape (m,), optional
        Pairs that are resampled together; each its own by default.
    what : str
        Name of the marked pairs in reasons.
    n_resamples, level, rng
        Percentile bootstrap over clusters. Candidates are resampled with the marked pairs, with ranks held.

    Returns
    -------
    Placement
        The interval lies in [-1, 1] and contains the estimate.

    Examples
    --------
    >>> u = (np.arange(40) + 0.5) / 40
    >>> fit_placement(u, u > 0.75, n_resamples=0).q
    1.0
    >>> fit_placement(u, np.arange(40) == 3, n_resamples=0).reason
    'only 1 of 40 candidate pairs are errors; at least 5 are needed to say where they fall'
    """
    check_resampling(n_resamples, level)
    rank = np.asarray(gap_rank, dtype=float)
    inside = ~np.isnan(rank)
    if candidate is not None:
        inside &= np.asarray(candidate, dtype=bool)
    u, y = rank[inside], np.asarray(placed, dtype=bool)[inside]
    m, k = len(u), int(y.sum())
    nan = float("nan")
    mean, anywhere = float(u[y].mean()) if k else nan, float(u.mean()) if m else nan
    reason = ""
    if m == 0:
        reason = "no candidate pair has a known gap"
    elif k < FEWEST:
        reason = (
            f"only {k} of {m} candidate pairs are {what}; at least {FEWEST} are needed to say where they fall"
        )
    elif m - k < FEWEST:
        reason = f"{k} of {m} candidate pairs are {what}: nearly all, so where they fall is not a choice"
    elif np.ptp(u) == 0:
        reason = "all candidate pairs have the same gap"
    if reason:
        return Placement(nan, nan, nan, k, m, mean, anywhere, reason, np.zeros(0))
    q = float(_solve(u, np.ones((1, m)), np.array([float(k)]), np.array([u[y].sum()]))[0])
    codes = np.arange(m) if cluster is None else np.asarray(cluster)[inside]
    samples = _resample(u, y, codes, q, n_resamples, np.random.default_rng(rng))
    interval = percentile_interval(samples, np.array(q), level=level, bounds=(-1.0, 1.0))
    low, high = float(interval.low), float(interval.high)
    if abs(q) == 1.0 and low == high:
        bound = _bound_at_limit(u, k, float(u[y].sum()), float(np.sign(q)), level)
        low, high = (bound, high) if q > 0 else (low, bound)
    if n_resamples and len(np.unique(codes)) < 2:
        reason = "a single cluster: q has no interval"
        low = high = nan
    return Placement(q, low, high, k, m, mean, anywhere, reason, samples)


def _resample(
    u: Floats, y: np.ndarray, cluster: np.ndarray, q: float, n_resamples: int, rng: np.random.Generator
) -> Floats:
    """Bootstrap q over clusters: ranks in bins, counts of candidates and marked pairs per bin and cluster."""
    values, place = np.unique(u, return_inverse=True)
    if len(values) > _BINS:
        place = np.minimum((u * _BINS).astype(np.int64), _BINS - 1)
        place = np.unique(place, return_inverse=True)[1]
    n_bins = int(place.max()) + 1
    count = np.bincount(place, minlength=n_bins)
    centre = np.bincount(place, u, n_bins) / count
    dense = np.unique(cluster, return_inverse=True)[1]
    n_clusters = int(dense.max()) + 1
    alone = n_clusters == len(u)  # then pairs of one bin and mark are exchangeable
    if alone:
        cells = np.bincount(place + n_bins * y, minlength=2 * n_bins)
    else:
        table = np.zeros((n_clusters, 2 * n_bins))
        np.add.at(table, (dense, place), 1.0)
        np.add.at(table, (dense[y], n_bins + place[y]), 1.0)
    samples = [np.zeros(0)]
    step = max(1, _RESAMPLE_CELLS // max(n_clusters if not alone else 0, 2 * n_bins))
    for start in range(0, n_resamples, step):
        n = min(step, n_resamples - start)
        if alone:
            sums = rng.multinomial(len(u), cells / len(u), size=n).astype(float)
            sums[:, :n_bins] += sums[:, n_bins:]
        else:
            sums = bootstrap_sums(table, n, rng=rng)
        c, marked = sums[:, :n_bins], sums[:, n_bins:]
        size = marked.sum(axis=1)
        defined = (size > 0) & (size < c.sum(axis=1))
        part = np.full(n, np.nan)
        part[defined] = _solve(
            centre, c[defined], size[defined], marked[defined] @ centre, around=q, tol=1e-6
        )
        samples.append(part)
    return np.concatenate(samples)


def _bound_at_limit(u: Floats, k: int, target: float, sign: float, level: float) -> float:
    """The weakest placement under which marked pairs as extreme as these are no surprise.

    At q = -1 or 1 every resample has the extreme pairs marked as well, and the interval of the bootstrap has no
    width. This is the q at which the sum of ranks lies at the edge of its normal interval.
    """
    from scipy.special import ndtri

    z = float(ndtri(0.5 + level / 2))
    near, far = 0.0, _NEARLY_ONE
    for _ in range(30):
        middle = (near + far) / 2
        p = inclusion_probabilities(u, k, sign * middle)
        spread = p * (1 - p)
        centre = (spread @ u) / spread.sum()
        edge = sign * (p @ u) + z * np.sqrt(spread @ (u - centre) ** 2)
        near, far = (middle, far) if edge < sign * target else (near, middle)
    return sign * far


def error_placement(
    tally: Tally,
    gold: PairGold,
    *,
    invalid: str = "exclude",
    n_resamples: int = DEFAULT_RESAMPLES,
    level: float = DEFAULT_LEVEL,
    rng: np.random.Generator | int | None = None,
) -> ErrorPlacement:
    """Estimate ``q_hat`` and ``flip_q_hat`` of one group.

    Flips are placed among all pairs seen in both orders; then wrong decisive verdicts among those that do not
    flip and whose gold is no tie. Percentile ranks are those of the gap among all pairs seen in both orders, as
    in the simulator. Wrong decisive verdicts are those that the flip budget counts: both orders agree on
    something else than gold's winner, an agreed tie included.

    Parameters
    ----------
    tally : Tally
        One group.
    gold : PairGold
        ``Gold.align(tally)``, with gaps.
    invalid : {"exclude", "equal"}
        See `difficulty.reliability.modal_verdicts`.
    n_resamples, level, rng
        Percentile bootstrap over clusters (contexts if the table has them, else pairs).

    Returns
    -------
    ErrorPlacement
        NaN with a reason without gaps, with constant gaps, or where fewer than five pairs are marked or not.
    """
    stats = pair_statistics(tally.counts, gold, invalid=invalid)
    both, flip, wrong = (
        stats[:, STATISTICS.index(name)] > 0 for name in ("n_pairs_swapped", "n_flips", "n_wrong_decisive")
    )
    gap = np.where(both, gold.gap, np.nan)
    rank = gap_ranks(gap)
    seed = seed_of(rng)
    cluster = tally.clusters()
    decided = both & ~flip & ((gold.winner == GOLD_I) | (gold.winner == GOLD_J))
    flips = fit_placement(
        rank, flip, cluster=cluster, what="flips", n_resamples=n_resamples, level=level,
        rng=np.random.default_rng(seed),
    )  # fmt: skip
    errors = fit_placement(
        rank, wrong, candidate=decided, cluster=cluster, what="errors", n_resamples=n_resamples, level=level,
        rng=np.random.default_rng(seed),
    )  # fmt: skip
    return ErrorPlacement(errors, flips)
