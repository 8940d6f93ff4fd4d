"""Many Bradley-Terry fits at once, or one quickly, for data that fill a good part of the matrix of pairs.

Ties are half wins and there is no order effect, so scores (wins plus half ties) and the number of verdicts
per pair say everything. With e = exp(theta) a gradient needs one division per pair and no exponential:

    gradient_i = score_i - e_i sum_j N_ij / (e_i + e_j).

All fits share one factor of the information, taken at the fit of their mean scores and rescaled by each
fit's own diagonal; Anderson's extrapolation does the rest. Where single precision saves time, early gradients are
computed in it, the last ones in double. When all pairs have equally many verdicts, series replace the sums over
pairs (:class:`_SmoothSums`). Nothing is assumed: a fit is accepted only when its remaining displacement is below
the tolerance and when its gradient proves that the maximum exists (see :func:`certified`); every other one
is left to the general method.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import linalg

__all__ = [
    "DeferredCovariance",
    "DeferredLogLikelihoods",
    "DenseFits",
    "RowSums",
    "certified",
    "fit_far_scores",
    "fit_scores",
    "log_likelihoods",
    "renew_gradients",
    "std_errors_of",
    "verdicts_per_item",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_EVALUATE_AT_ONCE = 2.5e6  # bytes of one block of e_i + e_j
_RANGE = 30.0
_ROUNDS = 16
_MEMORY = 3
# Up to so many items, matrices of many fits are solved together: where all have the same totals, and where each has its own.
_NEWTON_TOGETHER = 25
_NEWTON_OWN_TOTALS = 70
_NEWTON_ROUNDS = 30
_FAR = 340.0  # nats from the mean, where exponentials and their products are still finite
_NEWTON_FAR_ROUNDS = 100
_BLAS_SERIAL = 260_000  # multiplications up to which OpenBLAS keeps a product on one thread
_FITS_TOGETHER = 128
_SERIES_TOGETHER = 16
_KEEP_NUMBERS = 600_000  # 5 MB: two matrices of 512 items stay allocated
_NEWTON_FROM = 1e-2  # size of a step by log odds, after which an eighth of it or less remains
_NEWTON_UNTIL = 5e-3  # then the last factor gains two digits per step, which costs less than another
# The gradient after a step this small is about 1e-5 off, still above the noise of single precision.
_SINGLE_UNTIL = 1e-4
# Times the tolerance: what slow directions may hide at worst, were all of the last step in them.
_HIDDEN = 30.0


@dataclass(frozen=True)
class DenseFits:
    """Outcome for each fit; ``done`` is False where the general method has to take over."""

    strengths: FloatArray
    gradient_norm: FloatArray
    distance: FloatArray
    n_iterations: IntArray
    done: BoolArray


class RowSums:
    """Adds values of pair-list rows up by item, for many fits at once."""

    def __init__(self, items: IntArray, n_items: int, n_fits: int) -> None:
        self.items = items
        self.n_items = n_items
        self.n_fits = n_fits

    @cached_property
    def _sorted(self) -> bool:
        return bool(np.all(self.items[1:] >= self.items[:-1]))

    @cached_property
    def _grouped(self) -> tuple[IntArray | None, IntArray, IntArray | slice]:
        """Order that groups rows by item (None if they are), first row of each group, items of the groups."""
        order = None if self._sorted else np.argsort(self.items, kind="stable")
        ordered = self.items if order is None else self.items[order]
        starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        present = ordered[starts]
        first, last = int(present[0]), int(present[-1])
        return order, starts, slice(first, last + 1) if last - first == present.size - 1 else present

    def __call__(self, values: npt.NDArray[Any]) -> FloatArray:
        """Sums (fits, n) of values (fits, M)."""
        sums = np.zeros((values.shape[0], self.n_items))
        if self.n_fits <= 4:  # not worth a look at their order
            for row, one in zip(sums, values, strict=True):
                row[:] = np.bincount(self.items, weights=one, minlength=self.n_items)
            return sums
        order, starts, present = self._grouped
        ordered = values
        if order is not None:
            # Columns of a table of counts lie far apart; a copy first makes them quicker to pick from.
            ordered = np.ascontiguousarray(values).take(order, axis=1, mode="clip")
        sums[:, present] = np.add.reduceat(ordered, starts, axis=1)
        return sums


def _blocks(n_items: int) -> list[tuple[int, int]]:
    """Row blocks: block (a, b) meets the columns from a on, which leaves out most of the lower triangle."""
    edges = np.linspace(0, n_items, 2 if n_items < 64 else 5).astype(int).tolist()
    return list(zip(edges[:-1], edges[1:], strict=True))


class _PairSums:
    """Expected scores by visiting each pair once; totals is (n, n) or (fits, n, n)."""

    def __init__(self, totals: FloatArray) -> None:
        self.n = totals.shape[-1]
        self.shared = totals.ndim == 2
        self.blocks = _blocks(self.n)
        self.totals = {
            dtype: [np.ascontiguousarray(totals[..., a:b, a:], dtype=dtype) for a, b in self.blocks]
            for dtype in (np.float32, np.float64)
        }
        # Reused: fresh memory of this size would cost more in page faults than the arithmetic.
        largest = max((b - a) * (self.n - a) for a, b in self.blocks)
        self.memory = np.empty((2, int(_EVALUATE_AT_ONCE) // 8 + largest))

    def __call__(
        self, point: FloatArray, rows: IntArray, single: bool, with_diagonal: bool
    ) -> tuple[FloatArray, FloatArray | None]:
        """Expected scores and, if asked, the diagonal of the information, for the fits numbered rows."""
        dtype = np.float32 if single else np.float64
        e: npt.NDArray[Any] = np.exp(point).astype(dtype, copy=False)
        sums = np.zeros_like(e)
        second = np.zeros_like(e) if with_diagonal else None
        at_once = max(1, int(_EVALUATE_AT_ONCE / (e.itemsize * self.n * self.n)))
        for low in range(0, e.shape[0], at_once):
            here = slice(low, low + at_once)
            part = e[here]
            for (a, b), all_totals in zip(self.blocks, self.totals[dtype], strict=True):
                totals = all_totals if self.shared else all_totals[rows[here]]
                shape = (part.shape[0], b - a, self.n - a)
                used = shape[0] * shape[1] * shape[2]
                denominator = self.memory[0].view(dtype)[:used].reshape(shape)
                ratio = self.memory[1].view(dtype)[:used].reshape(shape)
                np.add(part[:, a:b, None], part[:, None, a:], out=denominator)
                np.divide(totals, denominator, out=ratio)
                self._add(sums[here], ratio, a, b)
                if second is not None:
                    np.divide(ratio, denominator, out=ratio)
                    self._add(second[here], ratio, a, b)
        expected: FloatArray = (e * sums).astype(np.float64)
        if second is None:
            return expected, None
        return expected, expected - (e * e * second).astype(np.float64)

    def _add(self, sums: npt.NDArray[np.floating], block: npt.NDArray[np.floating], a: int, b: int) -> None:
        # Plain sums: a BLAS product of this size would wake its threads for a few microseconds of work.
        sums[:, a:b] += block.sum(axis=2)
        if b < self.n:
            sums[:, b:] += block[:, :, b - a :].sum(axis=1)


class _SmoothSums:
    """Expected scores when all pairs have equal totals, through Chebyshev series.

    An item of strength t expects total * sum_j 1 / (1 + exp(theta_j - t)) wins. One term is analytic in the strip
    |Im| < pi of either variable, so on an interval of half-width w its interpolant with K nodes is off by about
    rho^-K with rho = pi / w + sqrt(1 + (pi / w)^2). Some 45 nodes stand in for 200 items, to the last digits: sums
    of 45 polynomials over the items, a matrix of 45 x 45 that is the same for all fits, and a series to evaluate,
    without a division per pair.
    """

    def __init__(self, total: float, n_items: int) -> None:
        self.total = total
        self.n = n_items

    @staticmethod
    def nodes(half_width: float, accuracy: float = 1e14) -> int:
        """Number of nodes needed; the strip is taken a little narrower than its poles."""
        ratio = 0.95 * np.pi / half_width
        return int(np.ceil(np.log(accuracy) / np.log(ratio + np.sqrt(1 + ratio * ratio)))) + 2

    def __call__(
        self, point: FloatArray, rows: IntArray, single: bool, with_diagonal: bool
    ) -> tuple[FloatArray, FloatArray | None]:
        """As for :class:`_PairSums`; single precision means a shorter series."""
        del rows
        half_width = max(1.0, float(np.abs(point).max()))
        count = self.nodes(half_width, 1e8 if single else 1e14)
        k = np.arange(count)
        angles = (k + 0.5) * np.pi / count
        to_coefficients = (2 / count) * np.cos(np.outer(angles, k))
        to_coefficients[:, 0] /= 2
        nodes = half_width * np.cos(angles)
        kernel = to_coefficients.T @ (1 / (1 + np.exp(nodes - nodes[:, None]))) @ to_coefficients
        # T_m' = 2 m (T_(m-1) + T_(m-3) + ...), the last T_0 halved.
        derivative = np.where((k[:, None] > k) & ((k[:, None] - k) % 2 == 1), 2.0 * k[:, None], 0.0)
        derivative[:, 0] /= 2
        matrices = [kernel.T, kernel.T @ derivative / half_width][: 2 if with_diagonal else 1]
        factored = _factored_series(count)
        matrices = [factored.T @ matrix @ factored for matrix in matrices]
        size, width = factored.shape[1], math.isqrt(count - 1) + 1
        sums = np.empty((len(matrices), *point.shape))
        for start in range(0, point.shape[0], _SERIES_TOGETHER):
            here = slice(start, start + _SERIES_TOGETHER)
            low = _polynomials(point[here] / half_width, width + 1)
            high = _polynomials(low[-1], size // width)
            low = low[:-1].transpose(1, 0, 2)
            products = (high.transpose(1, 0, 2) @ low.transpose(0, 2, 1)).reshape(-1, size)
            for out, matrix in zip(sums, matrices, strict=True):
                table = (products @ matrix).reshape(-1, size // width, width)
                np.einsum("fbn,bfn->fn", table @ low, high, out=out[here])
        # Every item also met itself, at even odds.
        expected: FloatArray = self.total * (sums[0] - 0.5)
        return expected, self.total * (sums[1] - 0.25) if with_diagonal else None


@lru_cache(maxsize=64)
def _factored_series(count: int) -> FloatArray:
    """Matrix (K, B s) that writes Chebyshev polynomials T_0, ..., T_(K-1) as sums of products of fewer.

    As T_(sb+a) = 2 T_a T_(sb) - T_(sb-a), the products of T_0, ..., T_(s-1) with T_0, T_s, T_2s, ..., numbered
    s b + a, span the same functions, so that about 2 sqrt(K) polynomials and small matrix products for each fit do the
    work of K.
    """
    width = math.isqrt(count - 1) + 1
    height = -(-count // width)
    rows = np.zeros((height, width, height, width))
    for b in range(height):
        rows[b, :, b] = np.eye(width)
        if b:
            rows[b, 1:, b] *= 2
            rows[b, 1:] -= rows[b - 1, :0:-1]
    return rows.reshape(height * width, -1)[:count]


def _polynomials(where: FloatArray, count: int) -> FloatArray:
    """T_0, ..., T_(count-1) at the points, one after the other."""
    polynomials = np.empty((count, *where.shape))
    polynomials[0] = 1
    polynomials[1:2] = where
    twice = 2 * where
    for m in range(2, count):
        np.multiply(twice, polynomials[m - 1], out=polynomials[m])
        polynomials[m] -= polynomials[m - 2]
    return polynomials


def _times(rows: FloatArray, matrix: FloatArray) -> FloatArray:
    """rows @ matrix in pieces that OpenBLAS does not split over threads, which would compete with ours."""
    n = matrix.shape[0]
    height = _BLAS_SERIAL // (n * n)
    if height < 2:
        return np.asarray(rows @ matrix)
    whole = rows.shape[0] // height * height
    product = np.empty_like(rows)
    np.matmul(rows[:whole].reshape(-1, height, n), matrix, out=product[:whole].reshape(-1, height, n))
    product[whole:] = rows[whole:] @ matrix
    return product


class _Scratch(threading.local):
    """Memory for matrices, kept from one fit to the next: fresh pages cost as much as the arithmetic."""

    def __init__(self) -> None:
        self.block = np.empty(0)

    def __call__(self, size: int) -> FloatArray:
        """The first numbers of the block; whoever asks next gets the same."""
        if self.block.size >= size:
            return self.block[:size]
        block = np.empty(size)
        if size <= _KEEP_NUMBERS:
            self.block = block
        return block


_scratch = _Scratch()


class _Information:
    """Expected scores and information of one fit, in reused memory.

    Totals are a symmetric matrix with zero diagonal, or one number for all pairs. An information in single
    precision survives later calls of :meth:`expected` in either precision, and nothing else.
    """

    def __init__(self, totals: FloatArray, n: int, precision: float, dtype: type) -> None:
        self.n = n
        self.totals: npt.NDArray[Any] = totals.astype(dtype, copy=False)
        # With one number for all pairs, every item also meets itself, at even odds.
        self.self_wins = dtype(0.5 * float(totals)) if totals.ndim == 0 else dtype(0)
        self.precision = dtype(precision)
        half = n * ((n + 1) // 2)  # doubles that hold a matrix in single precision, or half of one in double
        block = _scratch(4 * half)
        middle = half if dtype is np.float32 else 2 * half
        self.memory: npt.NDArray[Any] = block[:middle].view(dtype)[: n * n].reshape(n, n)
        self.matrix: npt.NDArray[Any] = block[middle : 2 * middle].view(dtype)[: n * n].reshape(n, n)
        self.rows_at_once = n if dtype is np.float32 else (n + 1) // 2
        self.left: npt.NDArray[Any] = np.ones((n, 2), dtype=dtype)
        self.right: npt.NDArray[Any] = np.ones((2, n), dtype=dtype)

    def expected(self, e: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Expected scores at e = exp(strengths)."""
        self.left[:, 0] = self.right[1] = e
        sums = np.empty_like(e)
        for low in range(0, self.n, self.rows_at_once):
            rows = slice(low, low + self.rows_at_once)
            left = self.left[rows]
            block = self.memory[: left.shape[0]]
            # A product of two columns and two rows: faster than a sum that repeats e along both axes.
            np.matmul(left, self.right, out=block)
            np.divide(self.totals if self.totals.ndim == 0 else self.totals[rows], block, out=block)
            np.einsum("ij->i", block, out=sums[rows])
        return np.asarray(e * sums - self.self_wins)

    def information(self, e: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Information at e = exp(strengths), made regular on the constants (with a weak prior it hardly is)."""
        self.left[:, 0] = self.right[1] = e
        sums, matrix = self.memory, self.matrix
        np.matmul(self.left, self.right, out=sums)
        np.divide(self.totals, sums, out=matrix)
        matrix /= sums
        right = np.zeros_like(self.right)
        right[0] = e
        matrix *= np.matmul(self.left, right, out=sums)
        degree = np.einsum("ij->i", matrix) - self.self_wins / 2
        regular = degree.mean() / self.n
        np.subtract(regular, matrix, out=matrix)
        matrix.ravel()[:: self.n + 1] = degree + (self.precision + regular)
        return matrix


def _centred(strengths: FloatArray) -> FloatArray:
    if strengths.ndim == 1:
        return strengths - strengths.sum() / strengths.size
    return strengths - strengths.mean(axis=-1, keepdims=True)


def verdicts_per_item(totals: FloatArray, n: int) -> FloatArray:
    """Verdicts of each item: (n,) or (fits, n)."""
    return np.full(n, (n - 1) * float(totals)) if totals.ndim == 0 else np.asarray(totals.sum(axis=-1))


def _once(totals: FloatArray) -> FloatArray:
    """A matrix that says the same about every pair, as that one number."""
    if totals.ndim != 2 or totals.shape[0] < 2:
        return totals
    one, n = totals[0, 1], totals.shape[0]
    uniform = bool(np.all(totals[0, 1:] == one)) and np.count_nonzero(totals == one) == n * (n - 1)
    return np.asarray(one) if uniform and one > 0 and not np.any(np.diagonal(totals)) else totals


def _matrix_of(totals: FloatArray, n: int) -> FloatArray:
    """Totals with one number for all pairs spelled out as a matrix."""
    return totals * (1.0 - np.eye(n)) if totals.ndim == 0 else totals


def _log_odds(share: FloatArray) -> FloatArray:
    inside = np.clip(share, 1e-6, 1 - 1e-6)
    return np.asarray(np.log(inside / (1 - inside)))


def _smoothed_odds(scores: FloatArray, played: FloatArray) -> FloatArray:
    """Log odds of each item's share of wins, half a win added either way."""
    return np.asarray(np.log((scores + 0.5) / (played - scores + 0.5)))


def _first_guess(odds: FloatArray, variance: FloatArray | float) -> FloatArray:
    """Strengths from log odds of shares of wins and their variance.

    Averaging over unequal opponents takes spread away. Were the opponents' strengths normal with variance s2, log
    odds x would belong to strengths of about x sqrt(1 + 0.346 s2) near the middle and x +- s2 / 2 far from it.
    """
    shrunk = np.maximum(1.0 - 0.346 * variance, 0.12)
    far = np.maximum(variance / shrunk / 2, 1e-9)
    slope = 1.15 * (1.0 / np.sqrt(shrunk) - 1.0)
    return _centred(odds + far * np.tanh(slope / far * odds))


@dataclass(frozen=True)
class _Single:
    point: FloatArray
    gradient_norm: float
    distance: float
    n_iterations: int


def _fit_single(scores: FloatArray, totals: FloatArray, precision: float, tol: float) -> _Single | None:
    """Newton's method on one fit, or None if it does not reach the tolerance.

    Information matrices are built and factored in single precision, which only decides how fast the iteration
    converges; the gradients, which decide where it converges to, are in double.
    """
    n = scores.size
    single = _Information(totals, n, precision, np.float32)
    point = _start(scores, verdicts_per_item(totals, n), precision, single)
    double = _Information(totals, n, precision, np.float64)
    size = np.inf
    for iteration in range(1, 20):
        if not np.abs(point).max() < _RANGE / 2:
            return None
        e = np.exp(point)
        if size > _NEWTON_UNTIL:
            # Symmetric, so the transposed view is the same matrix in the order LAPACK wants: no copy.
            matrix = single.information(e.astype(np.float32)).T
            factor, info = linalg.lapack.spotrf(matrix, lower=1, clean=0, overwrite_a=1)
            if info != 0:
                return None
        gradient = scores - double.expected(e) - precision * point
        largest = float(np.abs(gradient).max())
        # Scaled to 1: small gradients would be subnormal in single precision.
        step = _solve_single(factor, gradient / max(largest, 1e-300))
        previous, size = size, largest * float(np.abs(step).max())
        if not size < 5.0:
            return None
        point = _centred(point + largest * step)
        rate = min(1.0, size / max(previous, 1e-300))
        if iteration > 1 and rate < 0.1 and 10 * rate * size <= tol or size <= tol / 4:
            return _Single(point, largest, rate * size, iteration)
    return None


def _start(scores: FloatArray, played: FloatArray, precision: float, single: _Information) -> FloatArray:
    """Strengths to start from: a guess, then steps by the log odds of observed and expected shares of wins.

    What a step leaves over, because opponents move too, is mostly the common spread of all; the part of the step
    along the spread is lengthened by that. Wherever this leads, Newton's method starts from there.
    """
    odds = _smoothed_odds(scores, played)
    centre = odds.sum() / odds.size
    variance = float(odds @ odds) / odds.size - float(centre * centre)
    point = _first_guess(odds, variance)
    if precision:
        return point
    length = 1.0 / math.sqrt(max(1.0 - 0.346 * variance, 0.12))
    spread = 1.0 / (1.0 - min(0.35 * variance, 0.5)) - 1.0
    for _ in range(3):
        if not np.abs(point).max() < _RANGE / 2:
            break
        expected = single.expected(np.exp(point).astype(np.float32)).astype(np.float64)
        np.clip(expected, 0.0, played, out=expected)  # rounding of large numbers
        step = odds - _smoothed_odds(expected, played)
        step *= length
        weight = expected * (played - expected)
        weight *= point
        step += (spread * float(weight @ step) / max(float(weight @ point), 1e-300)) * point
        step = _centred(step)
        point = point + step
        if np.abs(step).max() < _NEWTON_FROM:
            break
    return point


def _solve_single(factor: npt.NDArray[np.float32], right: FloatArray) -> FloatArray:
    """Solution by a factor in single precision; two triangular solves are faster than LAPACK's one for many."""
    half = linalg.blas.strsv(factor, right.astype(np.float32), lower=1, overwrite_x=1)
    solved = linalg.blas.strsv(factor, half, lower=1, trans=1, overwrite_x=1)
    return np.asarray(solved, dtype=np.float64)


def _no_fits(n_fits: int, n: int) -> DenseFits:
    return DenseFits(
        strengths=np.full((n_fits, n), np.nan),
        gradient_norm=np.full(n_fits, np.nan),
        distance=np.full(n_fits, np.nan),
        n_iterations=np.zeros(n_fits, dtype=np.int64),
        done=np.zeros(n_fits, dtype=bool),
    )


def fit_scores(
    scores: FloatArray, totals: FloatArray, precision: float, tol: float, connected: BoolArray | None = None
) -> DenseFits:
    """Fit strengths to scores.

    Parameters
    ----------
    scores : ndarray, shape (fits, n)
        Wins plus half of the ties.
    totals : ndarray, shape (), (n, n) or (fits, n, n)
        Symmetric number of verdicts per pair, zero diagonal; one matrix if it is the same for every fit, one
        number if it is also the same for every pair of items.
    precision : float
        Of the Gaussian prior; 0 without.
    tol : float
        Largest accepted displacement, nats.
    connected : ndarray of bool, shape (1,) or (fits,), optional
        Fits to try; default all.

    Returns
    -------
    DenseFits
    """
    n_fits, n = scores.shape
    totals = _once(totals)
    result = _no_fits(n_fits, n)
    played = verdicts_per_item(totals, n)
    possible = np.ones(n_fits, dtype=bool) if connected is None else np.broadcast_to(connected, n_fits)
    if not precision:
        possible = possible & np.all((scores > 0) & (scores < played), axis=-1)
    active = np.flatnonzero(possible)
    if active.size == 0:
        return result
    together = n <= (_NEWTON_OWN_TOTALS if totals.ndim == 3 else _NEWTON_TOGETHER)
    # A resample weighs every pair anew, which a common factor follows badly.
    if active.size > 1 and not together and totals.ndim < 3:
        _fit_around_centre(result, active, scores, totals, precision, tol)
    left = active[~result.done[active]]
    if left.size > 1 and together:
        totals = _matrix_of(totals, n)
        step = max(1, int(_EVALUATE_AT_ONCE / (32 * n * n)))
        for low in range(0, left.size, step):
            _fit_by_newton(result, left[low : low + step], scores, totals, precision, tol)
        return result
    for which in left:
        alone = _fit_single(scores[which], totals[which] if totals.ndim == 3 else totals, precision, tol)
        if alone is not None:
            result.strengths[which] = alone.point
            result.gradient_norm[which] = alone.gradient_norm
            result.distance[which] = alone.distance
            result.n_iterations[which] = alone.n_iterations
            result.done[which] = True
    return result


def fit_far_scores(scores: FloatArray, totals: FloatArray, tol: float) -> DenseFits:
    """Fit strengths to scores that are known to have a maximum, however far from each other the strengths are.

    Parameters
    ----------
    scores : ndarray, shape (fits, n)
        Wins plus half of the ties.
    totals : ndarray, shape (fits, n, n)
        Symmetric number of verdicts per pair, zero diagonal.
    tol : float
        Largest accepted displacement, nats.

    Returns
    -------
    DenseFits
    """
    n_fits, n = scores.shape
    result = _no_fits(n_fits, n)
    together = max(1, int(_EVALUATE_AT_ONCE / (32 * n * n)))
    for low in range(0, n_fits, together):
        active = np.arange(low, min(low + together, n_fits))
        _fit_by_newton(result, active, scores, totals, 0.0, tol, _FAR, _NEWTON_FAR_ROUNDS)
    return result


def _fit_around_centre(
    result: DenseFits, active: IntArray, scores: FloatArray, totals: FloatArray, precision: float, tol: float
) -> None:
    """All fits by steps with the information at the fit of their mean scores."""
    n = scores.shape[1]
    mean_totals = totals[active].mean(axis=0) if totals.ndim == 3 else totals
    mean_scores = scores[active].mean(axis=0)
    centre = _fit_single(mean_scores, mean_totals, precision, 1e-6)
    if centre is None:
        return
    information = _Information(mean_totals, n, precision, np.float64).information(np.exp(centre.point))
    inverse = np.asarray(np.linalg.inv(information), dtype=np.float64)
    played = verdicts_per_item(totals, n)
    mean_played = verdicts_per_item(mean_totals, n)
    mean_share = mean_scores / mean_played
    mean_odds = _log_odds(mean_share)
    weight = mean_played * mean_share * (1 - mean_share)
    diagonal = np.diag(information).astype(np.float64)
    for low in range(0, active.size, _FITS_TOGETHER):
        some = active[low : low + _FITS_TOGETHER]
        # A first-order step in the log odds of the shares of wins: nearly linear in the strengths, unlike shares.
        change = _log_odds(scores[some] / (played[some] if played.ndim == 2 else played))
        change -= mean_odds
        change *= weight
        point = _centred(centre.point + _times(change, inverse))
        _iterate(result, some, point, scores, totals, precision, tol, centre.point, inverse, diagonal)


def _fit_by_newton(
    result: DenseFits,
    active: IntArray,
    scores: FloatArray,
    totals: FloatArray,
    precision: float,
    tol: float,
    within: float = _RANGE / 2,
    rounds: int = _NEWTON_ROUNDS,
) -> None:
    """Newton's method on a block of fits at once; fits that wander off are left alone."""
    n = scores.shape[1]
    shared = totals.ndim == 2
    played = totals.sum(axis=-1)
    odds = _smoothed_odds(scores[active], played if shared else played[active])
    point = _first_guess(odds, odds.var(axis=1, keepdims=True))
    diagonal = np.arange(n)
    previous = np.full(active.size, np.inf)
    for iteration in range(1, rounds):
        inside = np.abs(point).max(axis=1) < within
        active, point, previous = active[inside], point[inside], previous[inside]
        if active.size == 0:
            return
        e = np.exp(point)
        denominator = e[:, :, None] + e[:, None, :]
        matrix = (totals if shared else totals[active]) / denominator
        gradient = scores[active] - e * matrix.sum(axis=2) - precision * point
        matrix /= denominator
        matrix *= e[:, :, None]
        matrix *= e[:, None, :]
        degree = matrix.sum(axis=2)
        regular = degree.mean(axis=1)[:, None, None] / n
        np.subtract(regular, matrix, out=matrix)
        matrix[:, diagonal, diagonal] += degree + precision
        try:
            step = np.linalg.solve(matrix, gradient[:, :, None])[:, :, 0]
        except np.linalg.LinAlgError:
            return
        size = np.abs(step).max(axis=1)
        point = _centred(point + step * np.minimum(1.0, 2.0 / np.maximum(size, 1e-300))[:, None])
        # Quadratic convergence, seen: what remains is of the order of the square of the step.
        finished = (size <= tol / 4) | ((size < 1e-2 * previous) & (size * size * 10 <= tol))
        if np.any(finished):
            which = active[finished]
            final = point[finished]
            e = np.exp(final)
            ratio = (totals if shared else totals[which]) / (e[:, :, None] + e[:, None, :])
            gradient = scores[which] - e * ratio.sum(axis=2) - precision * final
            result.strengths[which] = final
            result.gradient_norm[which] = np.abs(gradient).max(axis=1)
            result.distance[which] = np.minimum(size, size * size * 10)[finished]
            result.n_iterations[which] = iteration
            result.done[which] = True
            active, point, size = active[~finished], point[~finished], size[~finished]
        previous = size


def _iterate(
    result: DenseFits,
    active: IntArray,
    point: FloatArray,
    scores: FloatArray,
    totals: FloatArray,
    precision: float,
    tol: float,
    centre: FloatArray,
    inverse: FloatArray,
    diagonal: FloatArray,
) -> None:
    """Rescaled chord steps with Anderson extrapolation; fits leave as they converge.

    Steps use the inverse information at another point, the centre. Strengths that differ by d from the centre's make
    the weight of a pair smaller by at most exp(-|d_i - d_j|), so a step may be as much too short in directions in which
    other, faster ones hide that. Fits are accepted only where that would still be little.
    """
    n = point.shape[1]
    pairs: _PairSums | None = None
    smooth: _SmoothSums | None = None
    if totals.ndim == 3:
        totals = totals[active]
    elif totals.ndim == 0:
        smooth = _SmoothSums(float(totals), n)
    rows = np.arange(active.size)
    scale = np.ones_like(point)
    points: list[FloatArray] = []
    steps: list[FloatArray] = []
    single = tol < 1e-3
    previous, rate = np.full(active.size, np.inf), np.zeros(active.size)
    for round_ in range(_ROUNDS):
        inside = np.abs(point).max(axis=1) < _RANGE / 2
        if not np.all(inside):
            active, rows, previous, rate = active[inside], rows[inside], previous[inside], rate[inside]
            point, scale = point[inside], scale[inside]
            points, steps = [p[inside] for p in points], [s[inside] for s in steps]
            if active.size == 0:
                return
        if smooth is not None and 3 * smooth.nodes(max(1.0, float(np.abs(point).max()))) < n:
            expected, own = smooth(point, rows, single, round_ == 0)
        else:
            pairs = pairs or _PairSums(_matrix_of(totals, n))
            expected, own = pairs(point, rows, single, round_ == 0)
        gradient = scores[active] - expected
        if precision:
            gradient -= precision * point
        if own is not None:
            scale = np.sqrt(diagonal / np.maximum(own + precision, 1e-3 * diagonal))
        step = _centred(scale * _times(scale * gradient, inverse))
        size = np.abs(step).max(axis=1)
        points.append(point)
        steps.append(step)
        if len(points) > _MEMORY + 1:
            del points[0], steps[0]
        point = _extrapolated(points, steps, diagonal)
        last_rate, rate = rate, np.minimum(size / np.maximum(previous, 1e-300), 1.0)
        if round_ == 0:
            rate[:] = 1.0
        if not single:
            # The next step would be shorter by about as much as this one is. Extrapolation makes that uneven, so the
            # worse of the last two counts, and a quarter of the tolerance is asked for.
            remains = np.maximum(rate, last_rate) * size
            finished = (np.maximum(rate, last_rate) < 0.25) & (4 * remains <= tol)
            finished |= (size <= tol / 4) & (rate < 1)
            finished &= size * np.exp(np.ptp(points[-1] - centre, axis=1)) <= _HIDDEN * tol
            if np.any(finished):
                which = active[finished]
                result.strengths[which] = _centred(point[finished])
                result.gradient_norm[which] = np.abs(gradient[finished]).max(axis=1)
                result.distance[which] = remains[finished]
                result.n_iterations[which] = round_ + 1
                result.done[which] = True
                left = ~finished
                active, rows, point = active[left], rows[left], point[left]
                scale, size, rate = scale[left], size[left], rate[left]
                points, steps = [p[left] for p in points], [s[left] for s in steps]
                if active.size == 0:
                    return
        previous = size
        if single and float(np.median(size)) < _SINGLE_UNTIL:
            single = False


def _extrapolated(points: list[FloatArray], steps: list[FloatArray], weight: FloatArray) -> FloatArray:
    plain = points[-1] + steps[-1]
    if len(points) < 2:
        return plain
    step_changes = np.stack([b - a for a, b in zip(steps[:-1], steps[1:], strict=True)], axis=1)
    moves = np.stack([b - a for a, b in zip(points[:-1], points[1:], strict=True)], axis=1)
    weighted = step_changes * weight
    normal = weighted @ step_changes.transpose(0, 2, 1)
    right = weighted @ steps[-1][:, :, None]
    k = normal.shape[1]
    sizes = np.sqrt(np.maximum(np.einsum("bii->bi", normal), 1e-300))
    normal /= sizes[:, :, None] * sizes[:, None, :]
    normal[:, np.arange(k), np.arange(k)] += 1e-10
    weights = np.linalg.solve(normal, right / sizes[:, :, None]) / sizes[:, :, None]
    change = (moves + step_changes).transpose(0, 2, 1) @ weights
    extrapolated = plain - change[:, :, 0]
    sane = np.abs(extrapolated - plain).max(axis=1) < 2.0
    return np.where(sane[:, None], extrapolated, plain)


def certified(fits: DenseFits, smallest_total: FloatArray | float) -> BoolArray:
    """Whether the gradient reached proves that the graph of wins is strongly connected.

    If some set of items never lost to the others, the gradient entries of that set would sum to the expected
    number of its losses, at least smallest_total / (1 + exp(range of strengths)); a smaller sum of absolute
    entries is a proof. The comparison graph itself must be connected.
    """
    spread = np.ptp(fits.strengths, axis=-1)
    n = fits.strengths.shape[-1]
    expected = smallest_total / (1.0 + np.exp(np.minimum(spread, 700.0)))
    return np.asarray(fits.done & (fits.gradient_norm * n < 0.5 * expected))


def renew_gradients(fits: DenseFits, rows: IntArray, scores: FloatArray, totals: FloatArray) -> None:
    """Write the gradients at the strengths found into some of the fits (without a prior)."""
    for b in rows:
        own = totals[b] if totals.ndim == 3 else totals
        information = _Information(own, scores.shape[1], 0.0, np.float64)
        gradient = scores[b] - information.expected(np.exp(fits.strengths[b]))
        fits.gradient_norm[b] = np.abs(gradient).max()


@dataclass(frozen=True)
class DeferredLogLikelihoods:
    """Log-likelihoods, computed when asked for: the logarithms cost as much as a third of the fits."""

    strengths: FloatArray
    scores: FloatArray
    totals: FloatArray

    def compute(self) -> FloatArray:
        return log_likelihoods(self.strengths, self.scores, self.totals)


def log_likelihoods(strengths: FloatArray, scores: FloatArray, totals: FloatArray) -> FloatArray:
    """Sum of score times strength minus the sum of N log(e_i + e_j) over pairs, for each fit."""
    n = strengths.shape[-1]
    value = np.einsum("bi,bi->b", scores, strengths)
    e = np.exp(strengths)
    uniform = totals.ndim == 0
    at_once = max(1, int(_EVALUATE_AT_ONCE / (8 * n * n)))
    for low in range(0, strengths.shape[0], at_once):
        here = slice(low, low + at_once)
        part = e[here]
        for a, b in _blocks(n) if strengths.shape[0] > 1 else [(0, n)]:
            block = part[:, a:b, None] + part[:, None, a:]
            if uniform:
                # Products of eight before each logarithm: strengths within +-15 keep them far from overflow.
                height = max(1, (b - a) // 8)
                product = block[:, :height]
                for k in range(height, b - a, height):
                    rows = min(height, b - a - k)
                    product[:, :rows] *= block[:, k : k + rows]
                logs = np.log(product).sum(axis=1)
                own = (strengths[here, a:b] + np.log(2.0)).sum(axis=1)
                logs *= totals
                own = own * totals
            else:
                np.log(block, out=block)
                block *= totals[a:b, a:] if totals.ndim == 2 else totals[here, a:b, a:]
                logs = block.sum(axis=1)
                own = np.zeros(1)
            # Columns of the block itself hold each pair twice and, without weights, each item with itself.
            value[here] -= logs[:, b - a :].sum(axis=1) + (logs[:, : b - a].sum(axis=1) - own) / 2
    return value


@dataclass(frozen=True)
class DeferredCovariance:
    """Covariance of the centred strengths of one fit, computed when asked for."""

    strengths: FloatArray
    totals: FloatArray
    precision: float

    def compute(self) -> FloatArray:
        n = self.strengths.size
        matrix = _Information(self.totals, n, self.precision, np.float64).information(np.exp(self.strengths))
        inverse = np.asarray(np.linalg.inv(matrix), dtype=np.float64)
        covariance = _centred(_centred(inverse).T)
        return np.asarray(covariance + covariance.T) / 2


def std_errors_of(strengths: FloatArray, totals: FloatArray, precision: float) -> FloatArray:
    """Standard errors of the centred strengths of one fit; NaN if the information is singular to rounding."""
    n = strengths.size
    matrix = _Information(totals, n, precision, np.float64).information(np.exp(strengths))
    # On the constants the matrix is a multiple of one: the prior's precision and the mean degree put there.
    on_constants = float(matrix.sum()) / n
    factor, info = linalg.lapack.dpotrf(matrix.T, lower=1, clean=1, overwrite_a=1)
    if info == 0:
        inverse, info = linalg.lapack.dtrtri(factor, lower=1, overwrite_c=1)
    if info != 0:
        return np.full(n, np.nan)
    variances = np.einsum("ki,ki->i", inverse, inverse) - 1.0 / (n * on_constants)
    return np.sqrt(variances)
