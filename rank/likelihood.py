"""The paired-comparison likelihood of one fit: value, gradient, information, and linear systems with the
information.

The data are *cells*. A cell has an item shown first, an item shown second, wins of either and ties; without
an order effect both orders of a pair are one cell. Parameters are the strengths, one order effect per
bucket, and the log of Davidson's tie parameter. In all of them the log-likelihood is concave.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import linalg, sparse
from scipy.sparse import csgraph

from rank.exceptions import ConvergenceError

__all__ = ["Information", "PairLikelihood", "Parameters"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_DENSE_ITEMS = 600
_DENSE_ITEMS_FILLED = 3000
_BAND_CELLS = 4.0e7
_BAND_WORK = 4.0e10
#: Precision of a prior, as a share of the mean degree, that is lost in the rounding of a factor.
_WEAK_PRIOR = 1e-10
_SINGULAR = "the information matrix is singular to rounding; add a prior (prior_sd) or alpha"


def _sum_by(index: IntArray, values: FloatArray, size: int) -> FloatArray:
    """Sums of values over equal indices."""
    return np.bincount(index, weights=values, minlength=size).astype(np.float64, copy=False)


@dataclass(frozen=True)
class Parameters:
    """A point: strengths (n,), order effects (K,), log tie parameter (0 or 1 entries)."""

    strengths: FloatArray
    order: FloatArray
    log_tie: FloatArray

    def moved(self, step: Parameters, length: float = 1.0) -> Parameters:
        return Parameters(
            self.strengths + length * step.strengths,
            self.order + length * step.order,
            self.log_tie + length * step.log_tie,
        )

    def dot(self, other: Parameters) -> float:
        return float(
            self.strengths @ other.strengths + self.order @ other.order + self.log_tie @ other.log_tie
        )

    def largest(self) -> float:
        return float(
            max(np.abs(part).max(initial=0.0) for part in (self.strengths, self.order, self.log_tie))
        )

    def pack(self) -> FloatArray:
        return np.concatenate([self.strengths, self.order, self.log_tie])


@dataclass(frozen=True)
class PairLikelihood:
    """Data of one fit.

    Attributes
    ----------
    n_items : int
        Items, all of them compared.
    first, second : ndarray of int, shape (cells,)
    first_wins, second_wins : ndarray, shape (cells,)
        Wins, half of the ties included.
    ties : ndarray, shape (cells,)
        Ties, used with ``davidson`` only.
    bucket : ndarray of int, shape (cells,) or None
        Bucket of the order effect.
    n_buckets : int
    davidson : bool
    labels : ndarray of int, shape (n,)
        Connected component of each item.
    precision : float
        Precision of the Gaussian prior on the strengths; 0 without one.
    """

    n_items: int
    first: IntArray
    second: IntArray
    first_wins: FloatArray
    second_wins: FloatArray
    ties: FloatArray
    bucket: IntArray | None
    n_buckets: int
    davidson: bool
    labels: IntArray
    precision: float

    @cached_property
    def total(self) -> FloatArray:
        return self.first_wins + self.second_wins

    @cached_property
    def sizes(self) -> FloatArray:
        return np.bincount(self.labels).astype(np.float64)

    @cached_property
    def verdicts_per_item(self) -> FloatArray:
        return _sum_by(self.first, self.total, self.n_items) + np.bincount(
            self.second, self.total, self.n_items
        )

    @property
    def n_extra(self) -> int:
        return self.n_buckets + int(self.davidson)

    def origin(self) -> Parameters:
        return Parameters(np.zeros(self.n_items), np.zeros(self.n_buckets), np.zeros(int(self.davidson)))

    def unpack(self, vector: FloatArray) -> Parameters:
        n, k = self.n_items, self.n_buckets
        return Parameters(vector[:n], vector[n : n + k], vector[n + k :])

    def centred(self, strengths: FloatArray) -> FloatArray:
        """Subtract the mean of each component."""
        if self.sizes.size == 1:
            return strengths - strengths.mean()
        means = _sum_by(self.labels, strengths, self.sizes.size) / self.sizes
        return strengths - means[self.labels]

    def _slopes(self, point: Parameters) -> FloatArray:
        slope = point.strengths[self.first] - point.strengths[self.second]
        if self.bucket is not None:
            slope += point.order[self.bucket]
        return slope

    def probabilities(self, point: Parameters) -> tuple[FloatArray, FloatArray, FloatArray]:
        """P(first), P(second), P(tie) in each cell; the small ones keep their relative precision."""
        slope = self._slopes(point)
        weak = np.exp(-np.abs(slope))
        if self.davidson:
            tie = np.exp(point.log_tie[0]) * np.sqrt(weak)
            inverse = 1.0 / (1.0 + weak + tie)
            tie *= inverse
        else:
            inverse = 1.0 / (1.0 + weak)
            tie = np.zeros(0)
        weak *= inverse
        forward = slope >= 0
        return np.where(forward, inverse, weak), np.where(forward, weak, inverse), tie

    def log_likelihood(self, point: Parameters) -> float:
        """Log-likelihood of the verdicts (prior left out)."""
        slope = self._slopes(point)
        size = np.abs(slope)
        upset = np.where(slope >= 0, self.second_wins, self.first_wins)
        if self.davidson:
            log_tie = float(point.log_tie[0])
            denominator = np.log1p(np.exp(-size) + np.exp(log_tie - size / 2))
            return float(self.ties.sum() * log_tie - upset @ size - self.total @ denominator)
        return float(-(upset @ size) - self.total @ np.log1p(np.exp(-size)))

    def objective(self, point: Parameters) -> float:
        """What is maximised: log-likelihood plus log prior (up to its constant)."""
        value = self.log_likelihood(point)
        if self.precision:
            value -= 0.5 * self.precision * float(point.strengths @ point.strengths)
        return value

    def cell_scores(self, point: Parameters) -> tuple[FloatArray, FloatArray]:
        """Derivative of each cell with respect to its slope and to the log tie parameter."""
        p_first, p_second, p_tie = self.probabilities(point)
        if not self.davidson:
            return self.first_wins * p_second - self.second_wins * p_first, p_tie
        score = self.first_wins * (p_second + p_tie / 2) - self.second_wins * (p_first + p_tie / 2)
        tie_score = self.ties * (p_first + p_second) - (self.total - self.ties) * p_tie
        return score, tie_score

    def collect(self, cells: FloatArray, tie_cells: FloatArray) -> Parameters:
        """Sum cell derivatives into a vector of parameters."""
        n = self.n_items
        strengths = _sum_by(self.first, cells, n) - _sum_by(self.second, cells, n)
        order = np.zeros(0) if self.bucket is None else _sum_by(self.bucket, cells, self.n_buckets)
        return Parameters(strengths, order, np.array([tie_cells.sum()]) if self.davidson else np.zeros(0))

    def gradient(self, point: Parameters) -> Parameters:
        """Gradient of the objective."""
        gradient = self.collect(*self.cell_scores(point))
        if self.precision:
            prior = gradient.strengths - self.precision * point.strengths
            return Parameters(prior, gradient.order, gradient.log_tie)
        return gradient

    def rounding(self, point: Parameters) -> float:
        """Size of the rounding error to expect in one entry of the gradient."""
        scale = float(self.verdicts_per_item.max(initial=0.0))
        if self.n_extra:
            scale = float(self.total.sum())
        return 4 * np.finfo(float).eps * (scale + self.precision * np.abs(point.strengths).max(initial=0.0))

    def information(self, point: Parameters) -> Information:
        """Observed information at a point, ready to solve with."""
        p_first, p_second, p_tie = self.probabilities(point)
        n_extra, n = self.n_extra, self.n_items
        border = np.zeros((n, n_extra))
        corner = np.zeros((n_extra, n_extra))
        if self.davidson:
            weight = self.total * (p_tie * (1 - p_tie) / 4 + p_first * p_second)
            cross = -self.total * (p_first - p_second) * p_tie / 2
            border[:, -1] = _sum_by(self.first, cross, n) - _sum_by(self.second, cross, n)
            corner[-1, -1] = self.total @ (p_tie * (1 - p_tie))
        else:
            weight = self.total * p_first * p_second
        if self.bucket is not None:
            for k in range(self.n_buckets):
                inside = weight * (self.bucket == k)
                border[:, k] = _sum_by(self.first, inside, n) - _sum_by(self.second, inside, n)
                corner[k, k] = inside.sum()
                if self.davidson:
                    corner[k, -1] = corner[-1, k] = cross[self.bucket == k].sum()
        return Information(self, weight, border, corner)

    @cached_property
    def _pairs(self) -> tuple[IntArray, IntArray, IntArray]:
        """Distinct unordered pairs (low, high) and the pair of each cell."""
        low, high = np.minimum(self.first, self.second), np.maximum(self.first, self.second)
        keys, index = np.unique(low * self.n_items + high, return_inverse=True)
        return keys // self.n_items, keys % self.n_items, index

    @cached_property
    def _dense(self) -> bool:
        n = self.n_items
        return n <= _DENSE_ITEMS or (n <= _DENSE_ITEMS_FILLED and 20 * self.first.size > n * n)

    @cached_property
    def _flat(self) -> IntArray:
        return self.first * self.n_items + self.second

    @cached_property
    def _pattern(self) -> tuple[sparse.csr_array, IntArray]:
        """Symmetric adjacency whose data say which pair an entry belongs to."""
        low, high, _ = self._pairs
        position = np.arange(low.size)
        pattern = sparse.csr_array(
            (
                np.concatenate([position, position]),
                (np.concatenate([low, high]), np.concatenate([high, low])),
            ),
            shape=(self.n_items, self.n_items),
        )
        return pattern, pattern.data.copy()

    @cached_property
    def _band_order(self) -> tuple[IntArray, int] | None:
        """Order of items with a small bandwidth, if there is one that makes banded factors cheap."""
        n = self.n_items
        pattern, _ = self._pattern
        plain = sparse.csr_array(
            (np.ones(pattern.nnz, dtype=np.int8), pattern.indices, pattern.indptr), shape=(n, n)
        )
        order = csgraph.reverse_cuthill_mckee(plain, symmetric_mode=True).astype(np.int64)
        place = np.empty(n, dtype=np.int64)
        place[order] = np.arange(n)
        low, high, _ = self._pairs
        width = int(np.abs(place[low] - place[high]).max(initial=0))
        if n * width > _BAND_CELLS or n * float(width) ** 2 > _BAND_WORK:
            return None
        return place, width


class Information:
    """Observed information at one point: a Laplacian over the items, bordered by the extra parameters."""

    def __init__(
        self, model: PairLikelihood, weight: FloatArray, border: FloatArray, corner: FloatArray
    ) -> None:
        self.model = model
        self.weight = weight
        self.border = border
        self.corner = corner
        n = model.n_items
        self.degree = _sum_by(model.first, weight, n) + _sum_by(model.second, weight, n)
        self._factor: Any = None

    def dense(self) -> FloatArray:
        """The strengths' block, (n, n)."""
        model, n = self.model, self.model.n_items
        matrix = _sum_by(model._flat, -self.weight, n * n).reshape(n, n)
        matrix = matrix + matrix.T
        matrix[np.diag_indices(n)] = self.degree + model.precision
        return matrix

    def _grounded(self) -> FloatArray:
        """The strengths' block made regular on the constants of each component.

        A prior alone would make it regular too, but hardly when it is weak; nothing else is changed by this,
        as the constants are eigenvectors.
        """
        matrix = self.dense()
        model = self.model
        scale = self.degree.mean()
        if model.sizes.size == 1:
            matrix += scale / model.n_items
        else:
            same = model.labels[:, None] == model.labels[None, :]
            matrix += same * (scale / model.sizes[model.labels])[:, None]
        return matrix

    def _centre(self, columns: FloatArray) -> FloatArray:
        model = self.model
        if model.sizes.size == 1:
            return columns - columns.mean(axis=0)
        return np.column_stack([model.centred(columns[:, k]) for k in range(columns.shape[1])])

    @cached_property
    def inverse(self) -> FloatArray:
        """Covariance of the centred strengths when the extra parameters are known, (n, n)."""
        inverse = _inverse(self._grounded())
        centred = inverse - inverse.mean(axis=0) if self.model.sizes.size == 1 else self._centre(inverse)
        return self._centre(centred.T.copy())

    def solve_strengths(self, columns: FloatArray, relative: float = 1e-12) -> FloatArray:
        """Solve with the strengths' block for right-hand sides (n, k); centred in each component.

        Right-hand sides add up to zero in each component, and so do the solutions, with a prior too.
        ``relative`` is the accuracy asked of conjugate gradients; factors are exact whatever it is.
        """
        if columns.shape[1] == 0:
            return columns
        model = self.model
        if model._dense:
            if self._factor is None:
                with _singular_matrices_refused():
                    self._factor = linalg.cho_factor(self._grounded(), lower=True, check_finite=False)
            solved = linalg.cho_solve(self._factor, columns, check_finite=False)
        elif model._band_order is not None:
            solved = self._solve_banded(columns, *model._band_order)
        else:
            solved = np.column_stack(
                [self._solve_iteratively(columns[:, k], relative) for k in range(columns.shape[1])]
            )
        return self._centre(solved)

    def _solve_banded(self, columns: FloatArray, place: IntArray, width: int) -> FloatArray:
        model = self.model
        if self._factor is None:
            low, high, index = model._pairs
            pair_weight = _sum_by(index, self.weight, low.size)
            band = np.zeros((width + 1, model.n_items))
            a, b = place[low], place[high]
            band[np.abs(a - b), np.minimum(a, b)] = -pair_weight
            band[0, place] = self.degree + model.precision
            if model.precision < _WEAK_PRIOR * self.degree.mean():
                # One anchored item per component: without a prior, adding to its diagonal only moves the component's
                # constant; with a weak one, steps are off by as little as the prior.
                _, anchor = np.unique(model.labels, return_index=True)
                band[0, place[anchor]] += self.degree[anchor]
            with _singular_matrices_refused():
                self._factor = linalg.cholesky_banded(band, lower=True, check_finite=False)
        shuffled = np.empty_like(columns)
        shuffled[place] = self._centre(columns)
        return linalg.cho_solve_banded((self._factor, True), shuffled, check_finite=False)[place]

    def _solve_iteratively(self, column: FloatArray, relative: float) -> FloatArray:
        """Conjugate gradients with the diagonal as preconditioner."""
        model, n = self.model, self.model.n_items
        if self._factor is None:
            pattern, which = model._pattern
            pair_weight = _sum_by(model._pairs[2], self.weight, model._pairs[0].size)
            self._factor = sparse.csr_array(
                (pair_weight[which], pattern.indices, pattern.indptr), shape=(n, n)
            )
        adjacency = self._factor
        diagonal = self.degree + model.precision
        column = model.centred(column)
        solution = np.zeros(n)
        residual = column.copy()
        scaled = residual / diagonal
        direction = scaled.copy()
        energy = float(residual @ scaled)
        goal = relative**2 * energy
        for _ in range(5000):
            if energy <= goal:
                return solution
            image = diagonal * direction - adjacency @ direction
            length = energy / float(direction @ image)
            solution += length * direction
            residual -= length * image
            scaled = residual / diagonal
            previous, energy = energy, float(residual @ scaled)
            direction = scaled + (energy / previous) * direction
        raise ConvergenceError(
            f"conjugate gradients did not solve the {n} equations of a Newton step in 5,000 "
            f"iterations: the comparisons "
            "form long thin chains; add a prior (prior_sd) or pseudo-wins (alpha)"
        )

    @cached_property
    def border_solution(self) -> FloatArray:
        return self.solve_strengths(self.border)

    @cached_property
    def extra_information(self) -> FloatArray:
        """Information about the extra parameters with the strengths profiled out (Schur complement)."""
        return self.corner - self.border.T @ self.border_solution

    def solve(self, right: Parameters, relative: float = 1e-12) -> Parameters:
        """Solve with the whole information matrix."""
        strengths = self.solve_strengths(right.strengths[:, None], relative)[:, 0]
        if self.model.n_extra == 0:
            return Parameters(strengths, right.order, right.log_tie)
        extra: FloatArray = np.concatenate([right.order, right.log_tie]) - self.border.T @ strengths
        extra = np.asarray(np.linalg.solve(self.extra_information, extra), dtype=np.float64)
        strengths = strengths - self.border_solution @ extra
        k = self.model.n_buckets
        return Parameters(strengths, extra[:k], extra[k:])

    def identifies_extra(self) -> bool:
        """Whether the data tell the extra parameters apart from the strengths."""
        if self.model.n_extra == 0:
            return True
        scale: FloatArray = np.sqrt(np.diag(self.corner)).astype(np.float64)
        if not np.all(scale > 0):
            return False
        smallest = np.linalg.eigvalsh(self.extra_information / np.outer(scale, scale))[0]
        return bool(smallest > 1e-11)


@contextlib.contextmanager
def _singular_matrices_refused() -> Iterator[None]:
    try:
        yield
    except linalg.LinAlgError as error:
        raise ConvergenceError(_SINGULAR) from error


def _inverse(matrix: FloatArray) -> FloatArray:
    """Inverse of a symmetric positive definite matrix."""
    factor, info = linalg.lapack.dpotrf(matrix, lower=1)
    if info == 0:
        inverse, info = linalg.lapack.dpotri(factor, lower=1)
    if info != 0:
        raise ConvergenceError(_SINGULAR)
    lower = np.tril(inverse, -1)
    return np.asarray(lower + lower.T + np.diag(np.diag(inverse)))
