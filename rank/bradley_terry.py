"""Bradley-Terry strengths from tallied verdicts: ties, order effect, regularisation, standard errors,
existence.

P(i beats j) = 1 / (1 + exp(-(theta_i - theta_j))), theta in nats, mean 0 in each connected component.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph
from scipy.special import gammaincc

from rank.dense import (
    DeferredCovariance,
    DeferredLogLikelihoods,
    RowSums,
    certified,
    fit_scores,
    log_likelihoods,
    run_in_threads,
    std_errors_of,
)
from rank.exceptions import ConvergenceError, InputError, NoMaximumError
from rank.existence import check_extra_parameters, check_strengths, find_islands
from rank.likelihood import PairLikelihood, Parameters
from rank.solvers import DEFAULT_ITERATIONS, maximise

__all__ = [
    "BradleyTerryFit",
    "StrengthDifference",
    "cross_check",
    "fit_bradley_terry",
    "rank_by_score",
    "score_items",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_STD_ERROR_ITEMS = 3000
_COVARIANCE_ITEMS = 500
_DENSE_ALWAYS = 64
_DENSE_NEVER = 1500
_DENSE_CELLS = 6.0e7


@dataclass(frozen=True)
class BradleyTerryFit:
    """Fitted strengths and the settings they belong to.

    With leading axes in the counts every number below has the same leading axes; without any, ``float``,
    ``int`` and ``bool`` stand in their place.

    Attributes
    ----------
    strengths : ndarray, shape (..., n)
        In nats, mean 0 within each component; NaN for items without a comparison and for fits without a
        maximum.
    std_errors : ndarray, shape (..., n), or None
        Standard errors of the centred strengths; None if not computed (``std_errors_note`` says why).
    std_errors_kind : str
        "observed", "sandwich" or "none".
    std_errors_note : str
        Why there are none; empty otherwise.
    covariance : ndarray, shape (n, n), or None
        Covariance of the centred strengths, for a single fit of at most 500 items.
    log_likelihood : float or ndarray
        Of the verdicts given, without pseudo-wins and prior. A half tie contributes half of either
        log-probability.
    order_effect : float, ndarray, or None
        gamma of logit P(first wins) = theta_first - theta_second + gamma; (..., K) with bucket labels.
    order_effect_std_error : same shape
    order_effect_labels : tuple
        Bucket labels in the order of the last axis; empty with a single gamma.
    order_effect_statistic, order_effect_df, order_effect_p_value
        Likelihood-ratio test of all gammas = 0, refitted without them. With a penalty it compares
        penalised maxima and is a guide, not a test.
    tie_parameter, tie_parameter_std_error : float, ndarray or None
        Davidson's nu: P(tie) = nu sqrt(P(first) P(second)). Exactly 0, with standard error NaN, if nothing
        was tied.
    components : ndarray of int, shape (..., n)
        Connected component of each item, -1 for an item that was never compared.
    n_components : int or ndarray of int
    not_compared : tuple of int
        Items without a comparison in any of the fits: their strength is NaN because nothing was observed
        about them.
    converged : bool or ndarray
        True wherever there is a number; False where ``on_no_maximum="nan"`` left NaN.
    reasons : tuple of str
        Why fits are NaN (one sentence each, without repetition).
    n_iterations : int or ndarray of int
    gradient_norm : float or ndarray
        Largest absolute entry of the gradient, in wins, where it was last evaluated: for dense fits that is
        one step before the strengths returned.
    distance : float or ndarray
        Estimated distance to the maximum, in nats: inverse information times gradient, largest entry.
    penalised : bool
        The fit has pseudo-wins or a prior: strengths are pulled together and no maximum-likelihood estimate.
    method, ties, alpha, prior_sd, tol
        The settings.
    """

    strengths: FloatArray
    std_errors: FloatArray | None
    std_errors_kind: str
    std_errors_note: str
    _covariance: FloatArray | DeferredCovariance | None = field(repr=False)
    _log_likelihood: Any = field(repr=False)
    _deferred: DeferredLogLikelihoods | None = field(repr=False)
    order_effect: Any
    order_effect_std_error: Any
    order_effect_labels: tuple[Any, ...]
    order_effect_statistic: Any
    order_effect_df: int
    order_effect_p_value: Any
    tie_parameter: Any
    tie_parameter_std_error: Any
    components: IntArray
    n_components: Any
    not_compared: tuple[int, ...]
    converged: Any
    reasons: tuple[str, ...]
    n_iterations: Any
    gradient_norm: Any
    distance: Any
    penalised: bool
    method: str
    ties: str
    alpha: float
    prior_sd: float | None
    tol: float

    @cached_property
    def covariance(self) -> FloatArray | None:
        """Covariance of the centred strengths, (n, n), for a single fit of at most 500 items; else None."""
        if isinstance(self._covariance, DeferredCovariance):
            return self._covariance.compute()
        return self._covariance

    @cached_property
    def log_likelihood(self) -> Any:
        """Log-likelihood of the verdicts; worked out on first use for a batch on a common design."""
        if self._deferred is None or not np.any(np.isnan(self._log_likelihood)):
            return self._log_likelihood
        late = self._deferred.compute()
        if np.ndim(self._log_likelihood) == 0:
            return float(late[0])
        late = late.reshape(self._log_likelihood.shape)
        return np.where(np.isnan(self._log_likelihood), late, self._log_likelihood)


@dataclass(frozen=True)
class _Design:
    """What every fit of a batch shares: indices, and the cells that rows of the pair list add up to."""

    n_items: int
    item_i: IntArray
    item_j: IntArray
    n_orders: int
    first: IntArray
    second: IntArray
    bucket: IntArray | None
    row_bucket: IntArray | None
    labels: tuple[Any, ...]
    gather: sparse.csr_array
    pair: IntArray
    cells_per_pair: IntArray


@dataclass(frozen=True)
class _OrderEffect:
    """Bucket of each row of the pair list; labels are empty with a single gamma."""

    bucket: IntArray
    n_buckets: int
    labels: tuple[Any, ...]


def _check_order_effect(
    order_effect: bool | npt.ArrayLike | None, n_rows: int, n_orders: int
) -> _OrderEffect | None:
    if order_effect is None or (isinstance(order_effect, (bool, np.bool_)) and not order_effect):
        return None
    if n_orders != 2:
        raise InputError(
            "an order effect needs counts with the order axis, (..., M, 2, outcomes); these have none, "
            "so which item was shown first is unknown"
        )
    if isinstance(order_effect, (bool, np.bool_)):
        return _OrderEffect(np.zeros(n_rows, dtype=np.int64), 1, ())
    given = np.asarray(order_effect)
    if given.shape != (n_rows,):
        raise InputError(
            f"order_effect must be True, False or one bucket label for each of the {n_rows} pairs, "
            f"found shape {given.shape}"
        )
    labels, bucket = np.unique(given, return_inverse=True)
    return _OrderEffect(bucket.astype(np.int64), int(labels.size), tuple(labels.tolist()))


def _check_start(start: npt.ArrayLike | None, n_items: int, batch: tuple[int, ...]) -> FloatArray | None:
    if start is None:
        return None
    starts = np.asarray(start, dtype=np.float64)
    try:
        return np.broadcast_to(starts, (*batch, n_items)).reshape(-1, n_items)
    except ValueError:
        raise InputError(
            f"start must have shape {(*batch, n_items)} or one that broadcasts to it, found {starts.shape}"
        ) from None


@dataclass(frozen=True)
class _Options:
    method: str
    ties: str
    alpha: float
    prior_sd: float | None
    std_errors: str
    separate: bool
    item_names: Sequence[str] | None
    tol: float
    max_iter: int
    clusters: IntArray | None


def _integers(values: npt.ArrayLike, name: str) -> IntArray:
    array = np.asarray(values)
    if array.ndim != 1:
        raise InputError(f"{name} must be one-dimensional, found shape {array.shape}")
    whole = np.issubdtype(array.dtype, np.integer) or (
        np.issubdtype(array.dtype, np.floating) and bool(np.all(array == np.floor(array)))
    )
    if array.size and not whole:
        raise InputError(f"{name} must hold item numbers 0, 1, ..., found {array.dtype}")
    return array.astype(np.int64)


def _fit_bradley_terry_iv(
    item_i: npt.ArrayLike,
    item_j: npt.ArrayLike,
    counts: npt.ArrayLike,
    n_items: int | None,
    order_axis: bool | None,
) -> tuple[IntArray, IntArray, npt.NDArray[Any], int]:
    """Checked item numbers and counts as (fits..., M, orders, outcomes)."""
    left, right = _integers(item_i, "item_i"), _integers(item_j, "item_j")
    if left.size != right.size:
        raise InputError(f"item_i has {left.size} entries and item_j has {right.size}; they must be equal")
    if left.size == 0:
        raise InputError("there is no pair to fit: item_i and item_j are empty")
    smallest, largest = min(left.min(), right.min()), max(left.max(), right.max())
    if smallest < 0:
        raise InputError(f"item numbers start at 0, found {smallest}")
    if n_items is None:
        n_items = int(largest) + 1
    elif largest >= n_items:
        raise InputError(f"item number {largest} does not fit n_items = {n_items}; items are numbered from 0")
    same = np.flatnonzero(left == right)
    if same.size:
        raise InputError(
            f"row {same[0]} of the pair list compares item {left[same[0]]} with itself; drop such rows"
        )

    array = np.asarray(counts)
    if array.dtype == bool or not np.issubdtype(array.dtype, np.number) or np.iscomplexobj(array):
        raise InputError(f"counts must be numbers, found {array.dtype}")
    shape, n_rows = array.shape, left.size
    plain = array.ndim >= 2 and shape[-2] == n_rows and shape[-1] in (3, 5)
    ordered = array.ndim >= 3 and shape[-3] == n_rows and shape[-2] == 2 and shape[-1] in (3, 5)
    if order_axis is None and plain and ordered:
        if shape[-1] == 5:
            plain = False  # five outcomes are those of a tally, which always has the order axis
        else:
            raise InputError(
                f"counts of shape {shape} for {n_rows} pairs can be read with or without an order axis; "
                "pass order_axis=True or order_axis=False"
            )
    if order_axis is not None:
        plain, ordered = plain and not order_axis, ordered and order_axis
    if not (plain or ordered):
        raise InputError(
            f"counts have shape {shape}; for {n_rows} pairs they must be (..., {n_rows}, 3) with [i "
            f"wins, j wins, tie] "
            f"or (..., {n_rows}, 2, 3 or 5) with the order shown before the outcomes"
        )
    return left, right, (array if ordered else array[..., None, :]), n_items


def _make_design(
    left: IntArray, right: IntArray, n_items: int, n_orders: int, order: _OrderEffect | None
) -> _Design:
    rows = left.size
    low, high = np.minimum(left, right), np.maximum(left, right)
    labels: tuple[Any, ...] = ()
    row_bucket: IntArray | None = None
    if order is None:
        keys, cell = np.unique(low * n_items + high, return_inverse=True)
        first, second, bucket = keys // n_items, keys % n_items, None
        pair = np.arange(keys.size)
        # A row's wins of i are wins of the lower item, or of the higher one if the row is the other way
        # round.
        row_cell = np.repeat(cell, n_orders)
        straight = np.repeat(left == low, n_orders)
    else:
        labels, row_bucket, n_buckets = order.labels, order.bucket, order.n_buckets
        pair_keys, row_pair = np.unique(low * n_items + high, return_inverse=True)
        group_keys, row_group = np.unique(row_pair * n_buckets + row_bucket, return_inverse=True)
        group_pair, group_bucket = group_keys // n_buckets, group_keys % n_buckets
        a, b = pair_keys[group_pair] // n_items, pair_keys[group_pair] % n_items
        # Two cells per (pair, bucket): lower item first, higher item first.
        first = np.stack([a, b], axis=1).ravel()
        second = np.stack([b, a], axis=1).ravel()
        bucket = np.repeat(group_bucket, 2)
        pair = np.repeat(group_pair, 2)
        shown_low = np.stack([left == low, left != low], axis=1)
        row_cell = (2 * row_group[:, None] + np.where(shown_low, 0, 1)).ravel()
        # Outcomes are counted in item space; the item shown first is i in order 0 and j in order 1.
        straight = np.tile(np.array([True, False]), rows)
    n_cells = first.size
    # Columns: wins of i, wins of j, ties for each (row, order); rows of the product: first wins, second
    # wins, ties.
    source = np.arange(rows * n_orders)
    to_first = np.where(straight, row_cell, row_cell + n_cells)
    to_second = np.where(straight, row_cell + n_cells, row_cell)
    gather = sparse.csr_array(
        (
            np.ones(3 * source.size),
            (
                np.concatenate([to_first, to_second, row_cell + 2 * n_cells]),
                np.concatenate([source, source + source.size, source + 2 * source.size]),
            ),
        ),
        shape=(3 * n_cells, 3 * source.size),
    )
    n_pairs = int(pair.max()) + 1
    return _Design(
        n_items=n_items,
        item_i=left,
        item_j=right,
        n_orders=n_orders,
        first=first,
        second=second,
        bucket=bucket,
        row_bucket=row_bucket,
        labels=labels,
        gather=gather,
        pair=pair,
        cells_per_pair=np.bincount(pair, minlength=n_pairs),
    )


def _outcomes(counts: npt.NDArray[Any]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Wins of i, wins of j, ties of (M, orders, outcomes) counts; invalid dropped, inconsistent tied."""
    wins_i = counts[..., 0].astype(np.float64)
    wins_j = counts[..., 1].astype(np.float64)
    ties = counts[..., 2].astype(np.float64)
    if counts.shape[-1] == 5:
        ties += counts[..., 4]
    return wins_i, wins_j, ties


def _check_counts(array: npt.NDArray[Any]) -> None:
    low = array.min(initial=0)
    if low < 0 or (array.dtype.kind == "f" and not (np.isfinite(low) and np.isfinite(array.max(initial=0)))):
        bad = np.argwhere(~(np.isfinite(array) & (array >= 0)))[0]
        raise InputError(
            f"counts must be finite and not negative, found {array[tuple(bad)]} in row {bad[-3]} of "
            f"the pair list"
        )


@dataclass(frozen=True)
class _OneFit:
    """Results of one member of a batch, item axis expanded to all items."""

    strengths: FloatArray
    std_errors: FloatArray | None
    covariance: FloatArray | DeferredCovariance | None
    log_likelihood: float
    order: FloatArray
    order_std_errors: FloatArray
    order_statistic: float
    nu: float
    nu_std_error: float
    components: IntArray
    n_components: int
    n_iterations: int
    gradient_norm: float
    distance: float
    exists: bool = True
    reason: str = ""


def _fit_one(
    design: _Design, counts: npt.NDArray[Any], options: _Options, start: FloatArray | None
) -> _OneFit:
    wins_i, wins_j, ties = _outcomes(counts)
    stacked = np.concatenate([wins_i.ravel(), wins_j.ravel(), ties.ravel()])
    n_cells = design.first.size
    first_wins, second_wins, tied = (design.gather @ stacked).reshape(3, n_cells)
    first_wins = first_wins + tied / 2
    second_wins = second_wins + tied / 2
    if not np.any(first_wins + second_wins > 0):
        raise NoMaximumError("there is no valid verdict to fit: all counts are zero")
    real = (first_wins, second_wins)
    if options.alpha > 0:
        seen = np.bincount(design.pair, first_wins + second_wins) > 0
        extra = (options.alpha * seen / design.cells_per_pair)[design.pair]
        first_wins, second_wins = first_wins + extra, second_wins + extra
    total = first_wins + second_wins
    islands = find_islands(design.n_items, design.first, design.second, total)
    if options.prior_sd is None:
        check_strengths(
            design.n_items,
            design.first,
            design.second,
            first_wins,
            second_wins,
            islands,
            separate=options.separate,
            item_names=options.item_names,
        )
    used = np.flatnonzero(total > 0)
    kept = np.flatnonzero(islands.labels >= 0)
    place = np.full(design.n_items, -1, dtype=np.int64)
    place[kept] = np.arange(kept.size)
    davidson = options.ties == "davidson" and bool(np.any(tied > 0))
    bucket = None if design.bucket is None else design.bucket[used]
    n_buckets = 0 if bucket is None else max(1, len(design.labels))
    model = PairLikelihood(
        n_items=kept.size,
        first=place[design.first[used]],
        second=place[design.second[used]],
        first_wins=first_wins[used],
        second_wins=second_wins[used],
        ties=tied[used],
        bucket=bucket,
        n_buckets=n_buckets,
        davidson=davidson,
        labels=islands.labels[kept],
        precision=0.0 if options.prior_sd is None else options.prior_sd**-2,
    )
    check_extra_parameters(
        model.n_items,
        model.first,
        model.second,
        model.first_wins,
        model.second_wins,
        model.ties,
        bucket,
        n_buckets,
        davidson=davidson,
        strengths_bounded=options.prior_sd is not None,
        bucket_names=[str(label) for label in design.labels],
    )
    origin = model.origin()
    if start is not None:
        given = start[kept]
        origin = Parameters(
            model.centred(np.where(np.isfinite(given), given, 0.0)), origin.order, origin.log_tie
        )
    solution = maximise(model, origin, method=options.method, tol=options.tol, max_iter=options.max_iter)
    point = solution.point

    statistic = np.nan
    if n_buckets:
        null = _without_order(model)
        null_start = Parameters(point.strengths, np.zeros(0), point.log_tie)
        null_fit = maximise(
            null, null_start, method=options.method, tol=options.tol, max_iter=options.max_iter
        )
        statistic = max(0.0, 2 * (model.objective(point) - null.objective(null_fit.point)))

    log_likelihood = model.log_likelihood(point)
    if options.alpha > 0:
        log_likelihood = _replaced(model, real[0][used], real[1][used]).log_likelihood(point)
    std_errors = covariance = None
    extra_errors = np.full(model.n_extra, np.nan)
    if options.std_errors != "none":
        spread, extra_errors = _covariance(design, counts, options, model, point, place)
        std_errors = np.full(design.n_items, np.nan)
        std_errors[kept] = np.sqrt(np.diag(spread))
        if design.n_items <= _COVARIANCE_ITEMS:
            covariance = np.full((design.n_items, design.n_items), np.nan)
            covariance[np.ix_(kept, kept)] = spread
    strengths = np.full(design.n_items, np.nan)
    strengths[kept] = model.centred(point.strengths)
    nu = float(np.exp(point.log_tie[0])) if davidson else 0.0
    return _OneFit(
        strengths=strengths,
        std_errors=std_errors,
        covariance=covariance,
        log_likelihood=log_likelihood,
        order=point.order,
        order_std_errors=extra_errors[:n_buckets],
        order_statistic=statistic,
        nu=nu,
        nu_std_error=nu * float(extra_errors[-1]) if davidson else np.nan,
        components=islands.labels,
        n_components=islands.n_components,
        n_iterations=solution.n_iterations,
        gradient_norm=solution.gradient_norm,
        distance=solution.distance,
    )


def _fit_densely(
    left: IntArray, right: IntArray, flat: npt.NDArray[Any], n_items: int, options: _Options
) -> tuple[list[_OneFit | None], DeferredLogLikelihoods | None]:
    """Fits by the dense kernels where those apply and prove their result; None in the other places."""
    n_fits, n_rows = flat.shape[0], left.size
    nothing: list[_OneFit | None] = [None] * n_fits
    filled = n_items <= _DENSE_ALWAYS or (n_items <= _DENSE_NEVER and 8 * n_rows >= n_items * n_items)
    plain = (
        options.method == "newton" and options.ties == "half" and options.std_errors in ("none", "observed")
    )
    if not (filled and plain and options.tol >= 1e-12) or n_fits == 0:
        return nothing, None
    by_left, by_right = RowSums(left, n_items, n_fits), RowSums(right, n_items, n_fits)
    scores = np.empty((n_fits, n_items))
    first_row = sum(_summed_outcomes(flat[:1]), start=np.zeros((1, n_rows)))[0]
    differs: list[int] = []
    at_once = max(1, int(1e6 / (flat[0].nbytes + 1)))  # a piece stays in the cache for all its passes
    together = at_once * max(1, 32 // at_once)

    def score(start: int) -> None:
        for low in range(start, min(start + together, n_fits), at_once):
            part = flat[low : min(low + at_once, start + together)]
            _check_counts(part)
            wins_i, wins_j, ties = _summed_outcomes(part)
            total = wins_i + wins_j
            if np.any(ties):
                total += ties
                half = 0.5 * ties
                wins_i, wins_j = wins_i + half, wins_j + half
            scores[low : low + part.shape[0]] = by_left(wins_i) + by_right(wins_j)
            if not np.all(total == first_row):
                differs.append(low)

    run_in_threads(score, range(0, n_fits, together), n_items)
    pair_map = _PairMap(left, right, n_items)
    if not differs:
        totals = pair_map.one(first_row)
    elif n_fits * n_items * n_items > _DENSE_CELLS:
        return nothing, None
    else:
        # Not the same number of verdicts per pair in every fit: each one needs a matrix of its own.
        totals = np.empty((n_fits, n_items, n_items))
        for low in range(0, n_fits, at_once):
            part = flat[low : low + at_once]
            totals[low : low + at_once] = pair_map.many(sum(_summed_outcomes(part), start=np.zeros(1)))
    if options.alpha > 0:
        compared = totals > 0
        totals = totals + 2 * options.alpha * compared
        scores += options.alpha * compared.sum(axis=-1)
    precision = 0.0 if options.prior_sd is None else options.prior_sd**-2
    connected = _all_connected(totals)
    if not np.any(connected):
        return nothing, None
    fitted = fit_scores(scores, totals, precision, options.tol)
    done = fitted.done & connected
    if not precision and not options.alpha:
        if totals.ndim == 2:
            smallest = totals[totals > 0].min()
        else:
            smallest = np.where(totals > 0, totals, np.inf).min(axis=(-2, -1))
        done &= certified(fitted, smallest)
    if not np.any(done):
        return nothing, None
    real_scores, real_totals = scores, totals
    if options.alpha > 0:
        # The log-likelihood is that of the verdicts, without the pseudo-wins.
        real_totals = totals - 2 * options.alpha * compared
        real_scores = scores - options.alpha * compared.sum(axis=-1)
    deferred = None
    if totals.ndim == 2:
        values = np.full(n_fits, np.nan)
        deferred = DeferredLogLikelihoods(fitted.strengths, real_scores, real_totals)
    else:
        values = log_likelihoods(fitted.strengths, real_scores, real_totals)
    labels = np.zeros(n_items, dtype=np.int64)
    none = np.zeros(0)
    for b in np.flatnonzero(done):
        std_errors = covariance = None
        if options.std_errors == "observed":
            own = totals if totals.ndim == 2 else totals[b]
            std_errors = std_errors_of(fitted.strengths[b], own, precision)
            if n_fits == 1 and n_items <= _COVARIANCE_ITEMS:
                covariance = DeferredCovariance(fitted.strengths[b], own, precision)
        nothing[b] = _OneFit(
            strengths=fitted.strengths[b],
            std_errors=std_errors,
            covariance=covariance,
            log_likelihood=float(values[b]),
            order=none,
            order_std_errors=none,
            order_statistic=np.nan,
            nu=0.0,
            nu_std_error=np.nan,
            components=labels,
            n_components=1,
            n_iterations=int(fitted.n_iterations[b]),
            gradient_norm=float(fitted.gradient_norm[b]),
            distance=float(fitted.distance[b]),
        )
    return nothing, deferred


class _PairMap:
    """Turns totals per row of the pair list into symmetric matrices."""

    def __init__(self, left: IntArray, right: IntArray, n_items: int) -> None:
        self.n_items = n_items
        self.keys = np.minimum(left, right) * n_items + np.maximum(left, right)

    def one(self, totals: npt.NDArray[Any]) -> FloatArray:
        """(M,) to (n, n)."""
        n = self.n_items
        upper = np.bincount(self.keys, weights=totals, minlength=n * n).reshape(n, n)
        return np.asarray(upper + upper.T, dtype=np.float64)

    @cached_property
    def _places(self) -> tuple[sparse.csr_array | None, IntArray, int]:
        """Matrix that adds repeated pairs up (or None), position of each cell's pair, number of pairs."""
        n, rows = self.n_items, self.keys.size
        keys, cell = np.unique(self.keys, return_inverse=True)
        add = None
        position = np.empty(keys.size, dtype=np.int64)
        if keys.size < rows:
            add = sparse.csr_array((np.ones(rows), (np.arange(rows), cell)), shape=(rows, keys.size))
            position[:] = np.arange(keys.size)
        else:
            position[cell] = np.arange(rows)
        where = np.full((n, n), keys.size, dtype=np.int64)
        where[keys // n, keys % n] = position
        return add, np.minimum(where, where.T).ravel(), keys.size

    def many(self, totals: npt.NDArray[Any]) -> FloatArray:
        """(fits, M) to (fits, n, n)."""
        add, where, n_pairs = self._places
        padded = np.zeros((totals.shape[0], n_pairs + 1))
        padded[:, :-1] = totals if add is None else totals @ add
        return padded.take(where, axis=1, mode="clip").reshape(-1, self.n_items, self.n_items)


def _all_connected(totals: FloatArray) -> npt.NDArray[np.bool_]:
    """Whether all items hang together, for one matrix of totals or for each of many."""
    n = totals.shape[-1]
    links = totals > 0
    answer = np.atleast_1d(links.sum(axis=-1).max(axis=-1) == n - 1)  # one item met all the others
    for b in np.flatnonzero(~answer):
        one = links if links.ndim == 2 else links[b]
        count, _ = csgraph.connected_components(sparse.csr_array(one), directed=False)
        answer[b] = count == 1
    return answer


def _summed_outcomes(
    counts: npt.NDArray[Any],
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Wins of i, wins of j and ties (fits, M) of counts (fits, M, orders, outcomes), both orders together."""
    if counts.dtype.kind == "u":
        counts = counts.astype(np.int64)
    parts = [counts[:, :, order] for order in range(counts.shape[2])]
    wins_i, wins_j, ties = (
        sum((part[..., k] for part in parts[1:]), start=parts[0][..., k]) for k in range(3)
    )
    if counts.shape[-1] == 5:
        ties = sum((part[..., 4] for part in parts), start=ties)
    return wins_i, wins_j, ties


def _replaced(model: PairLikelihood, first_wins: FloatArray, second_wins: FloatArray) -> PairLikelihood:
    return PairLikelihood(
        model.n_items,
        model.first,
        model.second,
        first_wins,
        second_wins,
        model.ties,
        model.bucket,
        model.n_buckets,
        model.davidson,
        model.labels,
        model.precision,
    )


def _without_order(model: PairLikelihood) -> PairLikelihood:
    return PairLikelihood(
        model.n_items,
        model.first,
        model.second,
        model.first_wins,
        model.second_wins,
        model.ties,
        None,
        0,
        model.davidson,
        model.labels,
        model.precision,
    )


def _covariance(
    design: _Design,
    counts: npt.NDArray[Any],
    options: _Options,
    model: PairLikelihood,
    point: Parameters,
    place: IntArray,
) -> tuple[FloatArray, FloatArray]:
    """Covariance of the centred strengths and standard errors of the other parameters."""
    information = model.information(point)
    inverse = information.inverse
    n, n_extra = model.n_items, model.n_extra
    if n_extra:
        solved = information.border_solution
        extra = np.linalg.inv(information.extra_information)
        whole = np.block([[inverse + solved @ extra @ solved.T, -solved @ extra], [-extra @ solved.T, extra]])
    else:
        whole = inverse
    if options.std_errors == "sandwich":
        whole = _sandwich(design, counts, options, model, point, place, whole)
    return whole[:n, :n], np.sqrt(np.diag(whole)[n:])


def _sandwich(
    design: _Design,
    counts: npt.NDArray[Any],
    options: _Options,
    model: PairLikelihood,
    point: Parameters,
    place: IntArray,
    bread: FloatArray,
) -> FloatArray:
    """Cluster-robust covariance: bread, outer products of cluster scores, bread, times G / (G - 1)."""
    wins_i, wins_j, ties = _outcomes(counts)
    left, right = place[design.item_i], place[design.item_j]
    rows = np.arange(left.size)
    clusters = rows if options.clusters is None else options.clusters
    parts = []
    for order in range(design.n_orders):
        swap = order == 1
        first, second = (right, left) if swap else (left, right)
        up, down = (wins_j, wins_i) if swap else (wins_i, wins_j)
        tied = ties[:, order]
        used = up[:, order] + down[:, order] + tied > 0
        bucket = None if design.row_bucket is None else design.row_bucket[used]
        part = PairLikelihood(
            model.n_items,
            first[used],
            second[used],
            (up[:, order] + tied / 2)[used],
            (down[:, order] + tied / 2)[used],
            tied[used],
            bucket,
            model.n_buckets,
            model.davidson,
            model.labels,
            0.0,
        )
        scores, tie_scores = part.cell_scores(point)
        group = clusters[used]
        columns = [part.first, part.second]
        values = [scores, -scores]
        groups = [group, group]
        if bucket is not None:
            columns.append(model.n_items + bucket)
            values.append(scores)
            groups.append(group)
        if model.davidson:
            columns.append(np.full(group.size, model.n_items + model.n_buckets))
            values.append(tie_scores)
            groups.append(group)
        parts.append((np.concatenate(groups), np.concatenate(columns), np.concatenate(values)))
    group, column, value = (np.concatenate([part[k] for part in parts]) for k in range(3))
    seen, group = np.unique(group, return_inverse=True)
    scores_matrix = sparse.csr_array((value, (group, column)), shape=(seen.size, bread.shape[0]))
    if seen.size < 2:
        return np.full_like(bread, np.nan)
    half = scores_matrix @ bread
    return np.asarray(half.T @ half) * (seen.size / (seen.size - 1))


def fit_bradley_terry(
    item_i: npt.ArrayLike,
    item_j: npt.ArrayLike,
    counts: npt.ArrayLike,
    *,
    n_items: int | None = None,
    method: str = "newton",
    ties: str = "half",
    order_effect: bool | npt.ArrayLike | None = None,
    alpha: float = 0.0,
    prior_sd: float | None = None,
    std_errors: str = "auto",
    clusters: npt.ArrayLike | None = None,
    components: str = "error",
    on_no_maximum: str = "raise",
    item_names: Sequence[str] | None = None,
    order_axis: bool | None = None,
    tol: float = 1e-10,
    max_iter: int | None = None,
    start: npt.ArrayLike | None = None,
) -> BradleyTerryFit:
    r"""Fit Bradley-Terry strengths by maximum likelihood.

    Parameters
    ----------
    item_i, item_j : array_like of int, shape (M,)
        Item numbers of each compared pair. A pair may be listed more than once and either way round; counts
        add up.
    counts : array_like, shape (..., M, 3) or (..., M, 2, 3 or 5)
        Verdicts per pair: i wins, j wins, tie[, invalid, inconsistent]. With an axis of length 2 before the
        outcomes: i shown first, j shown first. Invalid verdicts are ignored, inconsistent ones count as
        ties. Weights need not be whole numbers. Leading axes are independent fits on the same list of pairs.
    n_items : int, optional
        Number of items; default largest item number + 1.
    method : {"newton", "mm", "newman"}
        Newton, minorise-maximise (Hunter 2004) or Newman's iteration (2023). All reach the same maximum.
    ties : {"half", "davidson"}
        A tie is half a win each, or has a probability of its own: with s = theta_first - theta_second +
        gamma, the odds of first : second : tie are e^(s/2) : e^(-s/2) : nu (Davidson 1970). With an order
        effect this is the multiplicative model of Davidson & Beaver (1977) with the effect split evenly over
        the two slots, so that nu does not depend on which slot is called the first; their nu is ours times
        e^(-gamma/2).
    order_effect : bool or array_like, shape (M,), optional
        True: one gamma, logit P(first wins) = theta_first - theta_second + gamma. An array gives each pair
        a bucket and each bucket a gamma.
    alpha : float
        Pseudo-wins: every compared pair gets alpha wins for either item, split evenly over the two orders.
        The same data for every method.
    prior_sd : float, optional
        Standard deviation (nats) of a Gaussian prior with mean 0 on each strength; not on gamma or nu.
    std_errors : {"auto", "observed", "sandwich", "none"}
        From the observed information, or cluster-robust. "auto" is "observed" up to 3,000 items and "none"
        above.
    clusters : array_like, shape (M,), optional
        Cluster of each pair for "sandwich"; default every row of the pair list is its own cluster.
    components : {"error", "separate"}
        What to do with islands that no comparison connects: refuse, or rank each on its own.
    on_no_maximum : {"raise", "nan"}
        "nan" leaves NaN in fits without a maximum and lists the reasons (for bootstrap resamples).
    item_names : sequence of str, optional
        Names for messages.
    order_axis : bool, optional
        Whether counts have the order axis; only needed where both readings fit.
    tol : float
        Largest accepted distance to the maximum, in nats: the largest entry of inverse information times
        gradient. The methods mm and newman stop at ten times tol.
    max_iter : int, optional
        Default 200 for Newton, 20,000 for the others.
    start : array_like, shape (..., n), optional
        Strengths to start from.

    Returns
    -------
    BradleyTerryFit

    Raises
    ------
    InputError
        Malformed input.
    NoMaximumError
        The likelihood has no finite maximum: islands, items that never win or never lose, an order effect
        that the data leave unbounded or cannot tell from the strengths.
    ConvergenceError
        ``max_iter`` was reached first.

    Notes
    -----
    Items that were never compared get NaN and are listed in ``not_compared``; that is no error. Standard
    errors are those of the centred strengths: the inverse information on the subspace of mean 0 in each
    component. With half ties the observed information treats a tie as half a verdict each way, which
    overstates the spread of one verdict; the sandwich does not.

    References
    ----------
    Bradley & Terry 1952, doi:10.2307/2334029. Davidson 1970, doi:10.1080/01621459.1970.10481082. Davidson &
    Beaver 1977, doi:10.2307/2529467. Hunter 2004, doi:10.1214/aos/1079120141. Newman 2023, JMLR 24(238).

    Examples
    --------
    Seven wins against three are log-odds of ln(7/3):

    >>> from rank.bradley_terry import fit_bradley_terry
    >>> fit = fit_bradley_terry([0], [1], [[7, 3, 0]])
    >>> print(round(fit.strengths[0] - fit.strengths[1], 4))
    0.8473
    """
    left, right, array, n_items = _fit_bradley_terry_iv(item_i, item_j, counts, n_items, order_axis)
    options = _check_options(
        method=method,
        ties=ties,
        alpha=alpha,
        prior_sd=prior_sd,
        std_errors=std_errors,
        clusters=clusters,
        components=components,
        on_no_maximum=on_no_maximum,
        item_names=item_names,
        tol=tol,
        max_iter=max_iter,
        n_items=n_items,
        n_rows=left.size,
    )
    note = ""
    if std_errors == "auto" and options.std_errors == "none":
        note = (
            f"not computed for {n_items} items: more than {_STD_ERROR_ITEMS} need the inverse of a "
            f"dense matrix; "
            "ask with std_errors='observed'"
        )
    elif options.std_errors == "none":
        note = "not asked for"
    order = _check_order_effect(order_effect, left.size, array.shape[-2])
    batch = array.shape[:-3]
    flat = array.reshape(-1, *array.shape[-3:])
    starts = _check_start(start, n_items, batch)
    fits: list[_OneFit | None] = [None] * flat.shape[0]
    deferred = None
    if order is None and starts is None:
        fits, deferred = _fit_densely(left, right, flat, n_items, options)
    if any(fit is None for fit in fits):
        _check_counts(array)
        design = _make_design(left, right, n_items, array.shape[-2], order)
        for b in [b for b, fit in enumerate(fits) if fit is None]:
            where = (
                ""
                if not batch
                else f"fit {', '.join(str(k) for k in np.unravel_index(b, batch))} of the batch: "
            )
            try:
                fits[b] = _fit_one(design, flat[b], options, None if starts is None else starts[b])
            except NoMaximumError as error:
                if on_no_maximum == "nan":
                    fits[b] = _no_fit(design, options, str(error))
                    continue
                if not batch:
                    raise
                raise NoMaximumError(
                    where + str(error),
                    components=error.components,
                    never_win=error.never_win,
                    never_lose=error.never_lose,
                ) from None
            except ConvergenceError as error:
                raise ConvergenceError(where + str(error)) from None
    labels = () if order is None else order.labels
    return _assemble(
        [fit for fit in fits if fit is not None],
        batch,
        n_items,
        order is not None,
        labels,
        options,
        note,
        deferred,
    )


def _no_fit(design: _Design, options: _Options, reason: str) -> _OneFit:
    n = design.n_items
    blank = np.full(n, np.nan)
    n_buckets = 0 if design.bucket is None else max(1, len(design.labels))
    return _OneFit(
        strengths=blank,
        std_errors=None if options.std_errors == "none" else blank,
        covariance=None,
        log_likelihood=np.nan,
        order=np.full(n_buckets, np.nan),
        order_std_errors=np.full(n_buckets, np.nan),
        order_statistic=np.nan,
        nu=np.nan,
        nu_std_error=np.nan,
        components=np.full(n, -1, dtype=np.int64),
        n_components=0,
        n_iterations=0,
        gradient_norm=np.nan,
        distance=np.nan,
        exists=False,
        reason=reason,
    )


def _check_options(
    *,
    method: str,
    ties: str,
    alpha: float,
    prior_sd: float | None,
    std_errors: str,
    clusters: npt.ArrayLike | None,
    components: str,
    on_no_maximum: str,
    item_names: Sequence[str] | None,
    tol: float,
    max_iter: int | None,
    n_items: int,
    n_rows: int,
) -> _Options:
    choices = {
        "method": (method, ("newton", "mm", "newman")),
        "ties": (ties, ("half", "davidson")),
        "std_errors": (std_errors, ("auto", "observed", "sandwich", "none")),
        "components": (components, ("error", "separate")),
        "on_no_maximum": (on_no_maximum, ("raise", "nan")),
    }
    for name, (value, allowed) in choices.items():
        if value not in allowed:
            raise InputError(f"{name} must be one of {', '.join(allowed)}; found {value!r}")
    if not (np.isfinite(alpha) and alpha >= 0):
        raise InputError(f"alpha must be a number of pseudo-wins >= 0, found {alpha}")
    if prior_sd is not None and not (np.isfinite(prior_sd) and prior_sd > 0):
        raise InputError(f"prior_sd must be a positive number of nats, found {prior_sd}; None means no prior")
    if not (np.isfinite(tol) and tol > 0):
        raise InputError(f"tol must be positive, found {tol}")
    if max_iter is not None and max_iter < 1:
        raise InputError(f"max_iter must be at least 1, found {max_iter}")
    if item_names is not None and len(item_names) != n_items:
        raise InputError(f"item_names has {len(item_names)} names for {n_items} items")
    groups = None
    if clusters is not None:
        given = np.asarray(clusters)
        if given.shape != (n_rows,):
            raise InputError(f"clusters must label each of the {n_rows} pairs, found shape {given.shape}")
        groups = np.unique(given, return_inverse=True)[1].astype(np.int64)
    kind = std_errors
    if kind == "auto":
        kind = "observed" if n_items <= _STD_ERROR_ITEMS else "none"
    return _Options(
        method=method,
        ties=ties,
        alpha=float(alpha),
        prior_sd=None if prior_sd is None else float(prior_sd),
        std_errors=kind,
        separate=components == "separate",
        item_names=item_names,
        tol=float(tol),
        max_iter=DEFAULT_ITERATIONS[method] if max_iter is None else int(max_iter),
        clusters=groups,
    )


def _assemble(
    fits: list[_OneFit],
    batch: tuple[int, ...],
    n: int,
    with_order: bool,
    labels: tuple[Any, ...],
    options: _Options,
    note: str,
    deferred: DeferredLogLikelihoods | None,
) -> BradleyTerryFit:
    def each(values: list[Any]) -> Any:
        if not batch:
            return values[0]
        return np.array(values).reshape(batch)

    strengths = np.array([fit.strengths for fit in fits]).reshape(*batch, n)
    std_errors = None
    if options.std_errors != "none":
        std_errors = np.array([fit.std_errors for fit in fits], dtype=np.float64).reshape(*batch, n)
    components = np.array([fit.components for fit in fits]).reshape(*batch, n)
    order: Any = None
    errors: Any = None
    statistic: Any = None
    p_value: Any = None
    df = 0
    if with_order:
        df = max(1, len(labels))
        statistic = each([fit.order_statistic for fit in fits])
        p_value = gammaincc(df / 2, np.asarray(statistic) / 2)
        p_value = float(p_value) if not batch else p_value
        if labels:
            order = np.array([fit.order for fit in fits]).reshape(*batch, df)
            errors = np.array([fit.order_std_errors for fit in fits]).reshape(*batch, df)
        else:
            order = each([float(fit.order[0]) for fit in fits])
            errors = each([float(fit.order_std_errors[0]) for fit in fits])
    ranked = [fit.components < 0 for fit in fits if fit.exists]
    never = np.all(np.array(ranked), axis=0) if ranked else np.zeros(n, dtype=bool)
    davidson = options.ties == "davidson"
    return BradleyTerryFit(
        strengths=strengths,
        std_errors=std_errors,
        std_errors_kind=options.std_errors,
        std_errors_note=note,
        _covariance=None if batch else fits[0].covariance,
        _log_likelihood=each([fit.log_likelihood for fit in fits]),
        _deferred=deferred,
        order_effect=order,
        order_effect_std_error=errors,
        order_effect_labels=labels,
        order_effect_statistic=statistic,
        order_effect_df=df,
        order_effect_p_value=p_value,
        tie_parameter=each([fit.nu for fit in fits]) if davidson else None,
        tie_parameter_std_error=each([fit.nu_std_error for fit in fits]) if davidson else None,
        components=components,
        n_components=each([fit.n_components for fit in fits]),
        not_compared=tuple(int(k) for k in np.flatnonzero(never)),
        converged=each([fit.exists for fit in fits]),
        reasons=tuple(dict.fromkeys(fit.reason for fit in fits if fit.reason)),
        n_iterations=each([fit.n_iterations for fit in fits]),
        gradient_norm=each([fit.gradient_norm for fit in fits]),
        distance=each([fit.distance for fit in fits]),
        penalised=options.alpha > 0 or options.prior_sd is not None,
        method=options.method,
        ties=options.ties,
        alpha=options.alpha,
        prior_sd=options.prior_sd,
        tol=options.tol,
    )


def score_items(
    item_i: npt.ArrayLike, item_j: npt.ArrayLike, counts: npt.ArrayLike, *, n_items: int | None = None
) -> FloatArray:
    """Wins plus half of the ties of each item.

    Parameters
    ----------
    item_i, item_j, counts, n_items
        As for :func:`fit_bradley_terry`.

    Returns
    -------
    ndarray, shape (..., n)

    Examples
    --------
    >>> from rank.bradley_terry import score_items
    >>> score_items([0, 0, 1], [1, 2, 2], [[2, 1, 0], [3, 0, 0], [0, 2, 1]])
    array([5. , 1.5, 2.5])
    """
    left, right, array, n_items = _fit_bradley_terry_iv(item_i, item_j, counts, n_items, None)
    _check_counts(array)
    return _scores(left, right, array, n_items)


def _scores(left: IntArray, right: IntArray, array: npt.NDArray[Any], n_items: int) -> FloatArray:
    wins_i, wins_j, ties = _outcomes(array)
    batch = array.shape[:-3]
    for_i = (wins_i + ties / 2).sum(axis=-1).reshape(-1, left.size)
    for_j = (wins_j + ties / 2).sum(axis=-1).reshape(-1, left.size)
    rows = np.arange(left.size)
    ones = np.ones(left.size)
    to_i = sparse.csr_array((ones, (rows, left)), shape=(left.size, n_items))
    to_j = sparse.csr_array((ones, (rows, right)), shape=(left.size, n_items))
    return np.asarray(for_i @ to_i + for_j @ to_j).reshape(*batch, n_items)


def rank_by_score(
    item_i: npt.ArrayLike, item_j: npt.ArrayLike, counts: npt.ArrayLike, *, n_items: int | None = None
) -> FloatArray:
    """Scores whose order is the Bradley-Terry order, for a balanced round robin, without a fit.

    When every pair of items was compared equally often (ties half a win each), strengths and scores order
    the items alike, ties in score included. Where only ranks are needed this replaces the fit.

    Returns
    -------
    ndarray, shape (..., n)
        Wins plus half of the ties: rank them as you would rank strengths.

    Raises
    ------
    InputError
        The design is not a balanced round robin: then the two orders may differ and a fit is needed.

    Examples
    --------
    >>> from rank.bradley_terry import rank_by_score
    >>> rank_by_score([0, 0, 1], [1, 2, 2], [[2, 1, 0], [3, 0, 0], [0, 2, 1]])
    array([5. , 1.5, 2.5])
    """
    left, right, array, n_items = _fit_bradley_terry_iv(item_i, item_j, counts, n_items, None)
    _check_counts(array)
    wins_i, wins_j, ties = _outcomes(array)
    per_row = (wins_i + wins_j + ties).sum(axis=-1).reshape(-1, left.size)
    low, high = np.minimum(left, right), np.maximum(left, right)
    keys, index = np.unique(low * n_items + high, return_inverse=True)
    if keys.size == left.size:
        per_pair = per_row
    else:
        add = sparse.csr_array(
            (np.ones(left.size), (np.arange(left.size), index)), shape=(left.size, keys.size)
        )
        per_pair = np.asarray(per_row @ add)
    complete = keys.size == n_items * (n_items - 1) // 2
    if not complete or np.any(per_pair <= 0) or np.ptp(per_pair, axis=-1).max() > 1e-9 * per_pair.max():
        raise InputError(
            "scores order the items as Bradley-Terry does only when every pair was compared equally often; "
            "this design is not balanced, use fit_bradley_terry"
        )
    return _scores(left, right, array, n_items)


@dataclass(frozen=True)
class StrengthDifference:
    """Agreement of a fit with another program.

    Attributes
    ----------
    largest : float
        Largest absolute difference of the centred strengths, in nats; NaN if the two cannot be compared.
    witness : str
        What was compared with.
    reason : str
        Why there is no number; empty otherwise.
    """

    largest: float
    witness: str
    reason: str


def cross_check(
    fit: BradleyTerryFit,
    item_i: npt.ArrayLike,
    item_j: npt.ArrayLike,
    counts: npt.ArrayLike,
) -> StrengthDifference:
    """Refit with choix and report the largest difference of centred strengths.

    Defined for a single fit with ties as half wins and without order effect, prior or several components;
    pseudo-wins are handed to choix as data. Up to 3,000 items (choix works on the dense matrix of wins).

    Parameters
    ----------
    fit : BradleyTerryFit
    item_i, item_j, counts
        What it was fitted to.

    Returns
    -------
    StrengthDifference

    Examples
    --------
    >>> from rank.bradley_terry import cross_check, fit_bradley_terry
    >>> data = [0, 0, 1], [1, 2, 2], [[2, 1, 0], [3, 1, 0], [1, 2, 1]]
    >>> cross_check(fit_bradley_terry(*data), *data).largest < 1e-6
    True
    """
    witness = "choix.ilsr_pairwise_dense"
    reason = ""
    if fit.strengths.ndim != 1:
        reason = "a batch of fits is compared one by one"
    elif fit.order_effect is not None:
        reason = "choix has no order effect"
    elif fit.ties != "half" and fit.tie_parameter != 0:
        reason = "choix has no tie parameter"
    elif fit.prior_sd is not None:
        reason = "choix has no Gaussian prior of this form"
    elif fit.n_components != 1:
        reason = "choix ranks one connected component"
    elif fit.strengths.size > _STD_ERROR_ITEMS:
        reason = f"choix needs a dense matrix of wins, too large for {fit.strengths.size} items"
    if reason:
        return StrengthDifference(np.nan, witness, reason)
    import choix

    left, right, array, n_items = _fit_bradley_terry_iv(item_i, item_j, counts, fit.strengths.size, None)
    wins_i, wins_j, ties = _outcomes(array)
    wins = np.zeros((n_items, n_items))
    np.add.at(wins, (left, right), (wins_i + ties / 2).sum(axis=-1))
    np.add.at(wins, (right, left), (wins_j + ties / 2).sum(axis=-1))
    wins += fit.alpha * (wins + wins.T > 0)
    kept = np.flatnonzero(fit.components >= 0)
    try:
        other = choix.ilsr_pairwise_dense(wins[np.ix_(kept, kept)], max_iter=10_000, tol=1e-10)
    except (RuntimeError, ValueError) as error:
        return StrengthDifference(np.nan, witness, f"choix failed: {error}")
    difference = fit.strengths[kept] - (other - other.mean())
    return StrengthDifference(float(np.abs(difference).max()), witness, "")
