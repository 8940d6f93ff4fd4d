"""Three roads to the maximum of a paired-comparison likelihood: Newton, MM (Hunter 2004) and Newman's
iteration (2023).

All three stop on the same question, answered by the observed information: how far is this point from the
maximum? A fit that cannot answer "less than the tolerance" ends in a ConvergenceError.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph
from scipy.special import wrightomega

from rank.exceptions import ConvergenceError, NoMaximumError
from rank.likelihood import Information, PairLikelihood, Parameters

__all__ = ["DEFAULT_ITERATIONS", "WIDEST_SPAN", "Solution", "maximise"]

FloatArray = npt.NDArray[np.float64]

#: Counts of a wider span may have links that rounding loses.
WIDEST_SPAN = 1e10
_LOST = 1e-13

DEFAULT_ITERATIONS = {"newton": 200, "mm": 20_000, "newman": 20_000}


@dataclass(frozen=True)
class Solution:
    """A maximum: the point, how it was reached, and the information there."""

    point: Parameters
    n_iterations: int
    gradient_norm: float
    distance: float


def maximise(model: PairLikelihood, start: Parameters, *, method: str, tol: float, max_iter: int) -> Solution:
    """Maximise; raise ConvergenceError rather than return a point that is not the maximum."""
    if method == "newton":
        solution = _newton(model, start, tol, max_iter)
    else:
        update = _mm_update if method == "mm" else _newman_update
        solution = _fixed_point(model, start, update, method, tol, max_iter)
    _refuse_lost_links(model, solution.point)
    return solution


def _refuse_lost_links(model: PairLikelihood, point: Parameters) -> None:
    """Raise where items hang together only by weights that are lost in the rounding of the others."""
    smallest, largest = float(model.total.min()), float(model.total.max())
    if model.precision or smallest * WIDEST_SPAN > largest:
        return
    information = model.information(point)
    links = sparse.csr_array((information.weight, (model.first, model.second)), shape=(model.n_items,) * 2)
    links.data = 1.0 / np.maximum(links.data, 1e-300)  # repeated pairs were added up
    # In the tree of the heaviest links, the lightest is what some items hang on.
    weakest = 1.0 / float(csgraph.minimum_spanning_tree(links).data.max())
    if weakest < _LOST * float(information.degree.max()):
        raise ConvergenceError(
            f"counts lie between {smallest:.1e} and {largest:.1e}, and some items hang together only by "
            "comparisons that rounding loses beside the others; leave out the lightest"
        )


def _centre(model: PairLikelihood, point: Parameters) -> Parameters:
    return Parameters(model.centred(point.strengths), point.order, point.log_tie)


def _check_identified(information: Information) -> None:
    if not information.identifies_extra():
        raise NoMaximumError(
            "the order effect cannot be told apart from the strengths: the order shown follows the "
            "items in every "
            "comparison; judge some pairs in both orders, or fit without an order effect"
        )


def _is_rounding(model: PairLikelihood, point: Parameters, gradient: Parameters) -> bool:
    return gradient.largest() <= model.rounding(point)


def _newton(model: PairLikelihood, start: Parameters, tol: float, max_iter: int) -> Solution:
    point = start
    gradient = model.gradient(point)
    information: Information | None = None
    size = np.inf
    stalled = 0
    for iteration in range(max_iter + 1):
        # Below 1e-5 the information barely changes: the old factor measures the remaining distance well
        # enough.
        if information is None or size > 1e-5 or stalled:
            information = model.information(point)
            if iteration == 0:
                _check_identified(information)
        # An accuracy of the order of the last step keeps the convergence quadratic.
        step = information.solve(gradient, relative=float(np.clip(size, 1e-6, 1e-2)))
        previous, size = size, step.largest()
        if not np.isfinite(size):
            raise ConvergenceError(
                f"Newton's method broke down after {iteration} iterations; add alpha or prior_sd"
            )
        if size <= tol or (size < 1e-6 and size >= previous / 2 and _is_rounding(model, point, gradient)):
            final = _centre(model, point.moved(step)) if size < previous else point
            gradient = model.gradient(final)
            return Solution(final, iteration, gradient.largest(), size)
        stalled = stalled + 1 if size >= previous / 2 else 0
        if iteration == max_iter:
            break
        point, gradient = _safe_step(model, point, gradient, step)
    raise ConvergenceError(
        f"Newton's method stopped after max_iter = {max_iter} iterations, {size:.1e} nats from the maximum "
        f"(tolerance {tol:.1e}); raise max_iter"
    )


def _safe_step(
    model: PairLikelihood, point: Parameters, gradient: Parameters, step: Parameters
) -> tuple[Parameters, Parameters]:
    """Move along the step, halving it while the log-likelihood would fall."""
    slope = gradient.dot(step)
    length = 1.0
    value: float | None = None
    for _ in range(60):
        moved = _centre(model, point.moved(step, length))
        after = model.gradient(moved)
        # Concave: a slope that is still upwards, or small, says the likelihood rose; no logarithm needed.
        if after.dot(step) >= -0.25 * slope:
            return moved, after
        if value is None:
            value = model.objective(point)
        if model.objective(moved) > value:
            return moved, after
        length /= 2
    return moved, after


def _half_steps(model: PairLikelihood, point: Parameters) -> tuple[FloatArray, FloatArray]:
    p_first, p_second, p_tie = model.probabilities(point)
    if model.davidson:
        return p_first + p_tie / 2, p_second + p_tie / 2
    return p_first, p_second


def _mm_update(model: PairLikelihood, point: Parameters) -> Parameters:
    """Hunter's minorise-maximise step, item by item, then order effects, then the tie parameter.

    The tie term sqrt(pi_i pi_j) is majorised by its tangent (arithmetic mean above geometric mean), which
    leaves the update of a strength as wins over expected wins, as without ties.
    """
    n = model.n_items
    p_first, p_second = _half_steps(model, point)
    wins = np.bincount(model.first, model.first_wins, n) + np.bincount(model.second, model.second_wins, n)
    expected = np.bincount(model.first, model.total * p_first, n) + np.bincount(
        model.second, model.total * p_second, n
    )
    if model.precision:
        # wins - expected e^(x - theta) - precision x = 0, solved by the Wright omega function w of
        # log_scale + bound: x = bound - w, in a form that does not cancel.
        log_scale = np.log(expected / model.precision) - point.strengths
        bound = wins / model.precision
        strengths = np.log(wrightomega(log_scale + bound).real) - log_scale
    else:
        strengths = point.strengths + np.log(wins / expected)
    moved = Parameters(strengths, point.order, point.log_tie)
    if model.bucket is not None:
        p_first, p_second = _half_steps(model, moved)
        k = model.n_buckets
        excess = np.bincount(model.bucket, model.first_wins - model.second_wins, k)
        up = np.bincount(model.bucket, model.total * (p_first - _tie_half(model, moved)), k)
        down = np.bincount(model.bucket, model.total * (p_second - _tie_half(model, moved)), k)
        # up g^2 - excess g - down = 0 with g = e^(change / 2): the positive root, in the form without
        # cancellation.
        root = np.sqrt(excess**2 + 4 * up * down)
        factor = np.where(
            excess >= 0, (excess + root) / (2 * up), 2 * down / np.maximum(root - excess, 1e-300)
        )
        moved = Parameters(moved.strengths, moved.order + 2 * np.log(factor), moved.log_tie)
    if model.davidson:
        p_tie = model.probabilities(moved)[2]
        change = np.log(model.ties.sum() / (model.total @ p_tie))
        moved = Parameters(moved.strengths, moved.order, moved.log_tie + change)
    return moved


def _tie_half(model: PairLikelihood, point: Parameters) -> FloatArray | float:
    return model.probabilities(point)[2] / 2 if model.davidson else 0.0


def _newman_update(model: PairLikelihood, point: Parameters) -> Parameters:
    """Newman's iteration for all parameters at once, at half length.

    Each parameter moves by half the log ratio of what pushes it up and what pushes it down. Updating all
    items at once at full length oscillates (two items swap for ever); at half length two items are solved in
    one step.
    """
    n = model.n_items
    p_first, p_second = _half_steps(model, point)
    up_first, up_second = model.first_wins * p_second, model.second_wins * p_first
    up = np.bincount(model.first, up_first, n) + np.bincount(model.second, up_second, n)
    down = np.bincount(model.first, up_second, n) + np.bincount(model.second, up_first, n)
    if model.precision:
        pull = model.precision * point.strengths
        up, down = up + np.maximum(-pull, 0.0), down + np.maximum(pull, 0.0)
        # An item without wins and no pull upwards yet has no ratio; Hunter's step starts it.
        blank = (up <= 0) | (down <= 0)
        if np.any(blank):
            return _mm_update(model, point)
    strengths = point.strengths + 0.5 * np.log(up / down)
    order, log_tie = point.order, point.log_tie
    if model.bucket is not None:
        k = model.n_buckets
        ratio = np.bincount(model.bucket, up_first, k) / np.bincount(model.bucket, up_second, k)
        order = order + 0.5 * np.log(ratio)
    if model.davidson:
        p_tie = model.probabilities(point)[2]
        tie_up = model.ties @ (1 - p_tie)
        tie_down = (model.total - model.ties) @ p_tie
        log_tie = log_tie + 0.5 * np.log(tie_up / tie_down)
    return Parameters(strengths, order, log_tie)


_MEMORY = 8


def _fixed_point(
    model: PairLikelihood,
    start: Parameters,
    update: Callable[[PairLikelihood, Parameters], Parameters],
    name: str,
    tol: float,
    max_iter: int,
) -> Solution:
    """Repeat an update to its fixed point, with Anderson extrapolation that may only raise the likelihood.

    An extrapolated point that would lower the likelihood is dropped for the plain update, and a plain update
    that would (possible for Newman's, never for MM) is halved until it does not.
    """
    point = _centre(model, start)
    value = model.objective(point)
    _check_identified(model.information(point))
    points: list[FloatArray] = []
    residuals: list[FloatArray] = []
    check_at = tol
    distance = np.inf
    for iteration in range(max_iter + 1):
        image = _centre(model, update(model, point))
        here = point.pack()
        change = image.pack() - here
        size = float(np.abs(change).max(initial=0.0))
        if size <= check_at or iteration == max_iter:
            gradient = model.gradient(point)
            distance = model.information(point).solve(gradient).largest()
            goal = 10 * tol
            if distance <= goal or (distance < 1e-8 and _is_rounding(model, point, gradient)):
                return Solution(point, iteration, gradient.largest(), distance)
            check_at = min(check_at, size) * max(0.05, min(0.5, goal / distance))
            if size < 4 * np.finfo(float).eps * max(1.0, point.largest()):
                break  # the update no longer moves: rounding
        if iteration == max_iter:
            break
        points.append(here)
        residuals.append(change)
        if len(points) > _MEMORY + 1:
            del points[0], residuals[0]
        candidate = _extrapolated(model, points, residuals)
        slack = 1e-13 * abs(value)
        if candidate is not None:
            candidate_value = model.objective(candidate)
            if candidate_value >= value - slack:
                point, value = candidate, max(value, candidate_value)
                continue
            points, residuals = points[-1:], residuals[-1:]
        length = 1.0
        for _ in range(60):
            moved = model.unpack(here + length * change)
            moved_value = model.objective(moved)
            if moved_value >= value - slack:
                break
            length /= 2
        point, value = moved, max(value, moved_value)
    raise ConvergenceError(
        f"method '{name}' stopped after {iteration} iterations (max_iter = {max_iter}), "
        f"{distance:.1e} nats from the "
        f"maximum (tolerance {tol:.1e}); raise max_iter or use method='newton'"
    )


def _extrapolated(
    model: PairLikelihood, points: list[FloatArray], residuals: list[FloatArray]
) -> Parameters | None:
    """Anderson's combination of past updates that makes the linearised residual smallest."""
    if len(points) < 2:
        return None
    differences = np.diff(np.array(residuals), axis=0).T
    moves = np.diff(np.array(points), axis=0).T
    weights, *_ = np.linalg.lstsq(differences, residuals[-1], rcond=1e-10)
    combined = points[-1] + residuals[-1] - (moves + differences) @ weights
    if not np.all(np.isfinite(combined)) or np.abs(combined - points[-1]).max() > 20.0:
        return None
    return _centre(model, model.unpack(combined))
