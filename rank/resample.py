"""Resampling: the cluster bootstrap as multinomial weights on distinct counts, and interval rules."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rank.exceptions import InputError
from rank.parallel import one_thread

DEFAULT_RESAMPLES = 2_000
DEFAULT_LEVEL = 0.95


def seed_of(rng: np.random.Generator | int | None) -> np.random.SeedSequence:
    """Turn ``rng=`` into one seed sequence, from which equal generators can be made again and again.

    Giving every group of a study the same generator makes its interval independent of which other groups
    are in the file.
    """
    if isinstance(rng, np.random.Generator):
        return np.random.SeedSequence(rng.integers(0, 2**63, size=4).tolist())
    return np.random.SeedSequence(rng)


def sum_by(codes: np.ndarray, values: np.ndarray, n: int) -> np.ndarray:
    """Sum rows of `values` (P, ...) by `codes` (P,) into (n, ...)."""
    flat = values.reshape(len(values), -1)
    total = np.empty((n, flat.shape[1]))
    for column in range(flat.shape[1]):
        total[:, column] = np.bincount(codes, weights=flat[:, column], minlength=n)
    return total.reshape(n, *values.shape[1:])


def content_hash(rows: np.ndarray) -> np.ndarray:
    """Hash rows (C, F) of numbers to int64 by content, insensitive to rounding beyond about 1e-6."""
    drawn = np.random.default_rng(20_240_607).integers(1, 2**63, size=rows.shape[1], dtype=np.uint64)
    odd = np.asarray(drawn, dtype=np.uint64) | np.uint64(1)
    total = np.zeros(len(rows), dtype=np.uint64)
    for index in range(rows.shape[1]):  # a column at a time stays in the cache
        scaled = np.rint(rows[:, index] * 2.0**20).astype(np.int64).view(np.uint64)
        mixed = scaled * odd[index]
        mixed ^= mixed >> np.uint64(29)
        total += mixed
    return total.view(np.int64)


def bootstrap_sums(
    statistics: np.ndarray,
    n_resamples: int = DEFAULT_RESAMPLES,
    *,
    secondary: np.ndarray | None = None,
    rng: np.random.Generator | int | None = None,
) -> np.ndarray:
    """Resample clusters with replacement and return the sums of their statistics.

    Clusters with equal statistics are exchangeable, so only how often each distinct row is drawn matters:
    one multinomial per resample over the distinct rows, or, where most rows are distinct, single clusters are
    drawn and counted. Because distinct rows are put in an order that
    depends on their content alone, the result depends neither on the order nor on the names of clusters.

    Parameters
    ----------
    statistics : ndarray, shape (C, F)
        Additive statistics of each cluster.
    n_resamples : int
        Number of resamples B.
    secondary : ndarray of bool, shape (F,), optional
        Statistics that are drawn in a second stage, given the others (slot statistics: so that everything
        else is unchanged when all slots are swapped).
    rng : Generator, int or None

    Returns
    -------
    ndarray, shape (B, F)

    References
    ----------
    Efron & Tibshirani 1993, An Introduction to the Bootstrap, ch. 8 (clusters as units).
    """
    with one_thread():
        return _bootstrap_sums(statistics, n_resamples, secondary, np.random.default_rng(rng))


def _bootstrap_sums(
    statistics: np.ndarray, n_resamples: int, secondary: np.ndarray | None, rng: np.random.Generator
) -> np.ndarray:
    n_clusters, n_features = statistics.shape
    if n_clusters == 0:
        return np.zeros((n_resamples, n_features))
    primary = np.ones(n_features, dtype=bool) if secondary is None else ~secondary
    major = content_hash(statistics[:, primary])
    minor = (
        content_hash(statistics[:, ~primary])
        if secondary is not None
        else np.zeros(n_clusters, dtype=np.int64)
    )
    order = np.lexsort((minor, major))
    new_major = np.diff(major[order], prepend=major[order[0]] - 1) != 0
    new_row = new_major | (np.diff(minor[order], prepend=minor[order[0]] - 1) != 0)
    start = np.flatnonzero(new_row)
    size = np.diff(np.append(start, n_clusters))
    rows = statistics[order[start]]
    if n_clusters <= _INDICES_PER_ROW * len(rows):
        return _drawn_sums(rows, size, n_resamples, rng)
    block = np.cumsum(new_major[start]) - 1
    block_size = np.bincount(block, weights=size).astype(np.int64)
    drawn = rng.multinomial(n_clusters, block_size / n_clusters, size=n_resamples)
    if len(block_size) == len(rows):
        return drawn @ rows
    weights = np.empty((n_resamples, len(rows)), dtype=np.int64)
    block_start = np.flatnonzero(np.diff(block, prepend=-1))
    members = np.diff(np.append(block_start, len(rows)))
    single = members == 1
    weights[:, block_start[single]] = drawn[:, single]
    for index in np.flatnonzero(~single):
        inside = slice(block_start[index], block_start[index] + members[index])
        weights[:, inside] = rng.multinomial(drawn[:, index], size[inside] / block_size[index])
    return weights @ rows


#: Up to so many clusters per distinct row, drawing clusters one by one is quicker than binomials.
_INDICES_PER_ROW = 10

_DRAWN_AT_ONCE = 1_600_000
#: Counts that stay in the cache while draws are added to them.
_COUNTED_AT_ONCE = 65_536


def draw_counts(n_resamples: int, codes: np.ndarray, n_codes: int, rng: np.random.Generator) -> np.ndarray:
    """Draw as many entries of `codes` as there are, with replacement, and count them: shape (B, n_codes)."""
    n = len(codes)
    counts = np.empty((n_resamples, n_codes))
    step = max(1, _COUNTED_AT_ONCE // n_codes)
    for start in range(0, n_resamples, step):  # blocks change no number: draws come one after the other
        size = min(step, n_resamples - start)
        drawn = codes.take(rng.integers(0, n, size=(size, n)))
        drawn += n_codes * np.arange(size)[:, None]
        counts[start : start + size] = np.bincount(drawn.ravel(), minlength=size * n_codes).reshape(size, -1)
    return counts


def _drawn_sums(rows: np.ndarray, size: np.ndarray, n_resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Sums (B, F) of clusters drawn one by one; `rows` (R, F) occur `size` (R,) times.

    How often a block of equal primary statistics is drawn depends on its size and place alone, as in two stages.
    """
    row_of = np.repeat(np.arange(len(rows)), size)
    sums = np.empty((n_resamples, rows.shape[1]))
    step = max(1, _DRAWN_AT_ONCE // len(row_of))
    for start in range(0, n_resamples, step):
        n = min(step, n_resamples - start)
        sums[start : start + n] = draw_counts(n, row_of, len(rows), rng) @ rows
    return sums


@dataclass(frozen=True)
class Interval:
    """Estimates with their intervals; three arrays of one shape, and the level."""

    estimate: np.ndarray
    low: np.ndarray
    high: np.ndarray
    level: float = DEFAULT_LEVEL


def check_resampling(n_resamples: int, level: float) -> None:
    """Refuse impossible resampling settings."""
    if n_resamples < 0:
        raise InputError(f"resamples must not be negative, found {n_resamples}")
    if not 0 < level < 1:
        percent = f" (did you mean {level / 100:g}?)" if 1 < level < 100 else ""
        raise InputError(f"the confidence level must lie between 0 and 1, found {level:g}{percent}")


def percentile_interval(
    samples: np.ndarray,
    estimate: np.ndarray,
    *,
    level: float = DEFAULT_LEVEL,
    bounds: tuple[float, float] | None = None,
    n_trials: np.ndarray | None = None,
) -> Interval:
    """Return percentile intervals from bootstrap samples.

    Parameters
    ----------
    samples : ndarray, shape (B, ...)
        Resampled values; undefined ones are NaN and are left out (at least half must be defined, otherwise
        the interval is NaN).
    estimate : ndarray, shape (...)
        The full-data values; always the reported point, and always inside the interval.
    level : float
        Coverage.
    bounds : pair of float, optional
        The parameter's range.
    n_trials : ndarray, shape (...), optional
        Number of independent units behind a proportion. Where the estimate sits on a bound and no resample
        differs, a Wilson interval with this size replaces the interval of width zero.

    Notes
    -----
    Wilson 1927, J. Am. Stat. Assoc. 22.
    """
    estimate = np.asarray(estimate, dtype=float)
    if len(samples) == 0:
        nan = np.full(estimate.shape, np.nan)
        return Interval(estimate, nan, nan, level)
    defined = np.isfinite(samples).sum(axis=0)
    tail = (1 - level) / 2
    low, high = _quantiles(samples, np.array([tail, 1 - tail]))
    unknown = (defined < len(samples) / 2) | np.isnan(estimate)
    low = np.where(unknown, np.nan, np.minimum(low, estimate))
    high = np.where(unknown, np.nan, np.maximum(high, estimate))
    if bounds is not None:
        if n_trials is not None:
            for bound in bounds:
                flat = (estimate == bound) & (low == high)
                if bounds == (0.0, 1.0) and flat.any():
                    wilson_low, wilson_high = wilson_interval(estimate * n_trials, n_trials, level=level)
                    low, high = np.where(flat, wilson_low, low), np.where(flat, wilson_high, high)
        low, high = np.maximum(low, bounds[0]), np.minimum(high, bounds[1])
    return Interval(estimate, low, high, level)


#: From this many items on, intervals of rank correlations use the standard error on Fisher's scale.
FISHER_ITEMS = 10


def correlation_interval(
    samples: np.ndarray, estimate: np.ndarray, n_items: int, *, level: float = DEFAULT_LEVEL
) -> Interval:
    """Return the interval of a rank correlation from its bootstrap samples.

    A resampled ranking is noisier than the observed one, so resampled correlations lie nearer to 0 than the
    estimate, often so far that percentiles leave it out. With ten items or more the interval is therefore the
    estimate plus and minus a normal quantile times the bootstrap standard error on the scale of atanh; with
    fewer items, where correlations take few values, it is the percentile interval.

    Parameters
    ----------
    samples : ndarray, shape (B,)
        Resampled correlations; undefined ones are NaN (at least half must be defined).
    estimate : ndarray, shape ()
        The full-data value.
    n_items : int
        Number of ranked items.
    level : float

    Returns
    -------
    Interval
        Inside [-1, 1] and around the estimate.

    Notes
    -----
    Fisher's scale is cut at 1 - 1/n^3, so that a perfect correlation has a finite standard error.
    """
    plain = percentile_interval(samples, estimate, level=level, bounds=(-1.0, 1.0))
    if n_items < FISHER_ITEMS or np.isnan(plain.low):
        return plain
    from scipy.special import ndtri

    edge = 1.0 - 1.0 / n_items**3
    scaled = np.arctanh(np.clip(samples[np.isfinite(samples)], -edge, edge))
    centre = np.arctanh(np.clip(estimate, -edge, edge))
    half = float(ndtri(0.5 + level / 2)) * scaled.std(ddof=1) if len(scaled) > 1 else 0.0
    low, high = np.minimum(np.tanh(centre - half), estimate), np.maximum(np.tanh(centre + half), estimate)
    return Interval(
        plain.estimate, np.where(estimate <= -1, -1.0, low), np.where(estimate >= 1, 1.0, high), level
    )


def _quantiles(samples: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Linear-interpolated quantiles along axis 0, ignoring NaN (as `numpy.nanquantile`, without its loop)."""
    ordered = np.sort(samples, axis=0)  # NaN goes last
    n = np.isfinite(samples).sum(axis=0)
    result = np.full((len(q), *samples.shape[1:]), np.nan)
    for index, level in enumerate(q):
        place = level * np.maximum(n - 1, 0)
        below = np.floor(place).astype(np.int64)
        above = np.minimum(below + 1, np.maximum(n - 1, 0))
        lower = np.take_along_axis(ordered, below[None], axis=0)[0]
        upper = np.take_along_axis(ordered, above[None], axis=0)[0]
        result[index] = np.where(n > 0, lower + (upper - lower) * (place - below), np.nan)
    return result


def wilson_interval(
    successes: np.ndarray, n: np.ndarray, *, level: float = DEFAULT_LEVEL
) -> tuple[np.ndarray, np.ndarray]:
    """Return Wilson score intervals of proportions, inside [0, 1]; NaN where n = 0.

    Examples
    --------
    >>> low, high = wilson_interval(np.array([0.0]), np.array([10.0]))
    >>> round(float(low[0]), 4), round(float(high[0]), 4)
    (0.0, 0.2775)
    """
    from scipy.special import ndtri

    z = float(ndtri(0.5 + level / 2))
    n = np.asarray(n, dtype=float)
    safe = np.where(n > 0, n, 1.0)
    p = np.asarray(successes, dtype=float) / safe
    centre = (p + z * z / (2 * safe)) / (1 + z * z / safe)
    half = z / (1 + z * z / safe) * np.sqrt(p * (1 - p) / safe + z * z / (4 * safe * safe))
    low = np.where(p <= 0, 0.0, np.clip(centre - half, 0, 1))
    high = np.where(p >= 1, 1.0, np.clip(centre + half, 0, 1))
    return np.where(n > 0, low, np.nan), np.where(n > 0, high, np.nan)


def two_sided_p(samples: np.ndarray) -> np.ndarray:
    """Return the two-sided bootstrap p-value of "the difference is zero", (k + 1) / (B + 1) per tail, doubled.

    Parameters
    ----------
    samples : ndarray, shape (B, ...)
        Bootstrap differences; NaN are left out.
    """
    n = np.isfinite(samples).sum(axis=0)
    below = (samples <= 0).sum(axis=0)
    above = (samples >= 0).sum(axis=0)
    p = 2 * (np.minimum(below, above) + 1) / (n + 1)
    return np.where(n > 0, np.minimum(p, 1.0), np.nan)
