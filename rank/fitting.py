"""One Bradley-Terry fit after another, or many by the dense kernels: from cells of counts to numbers."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from rank.dense import (
    DeferredCovariance,
    DeferredLogLikelihoods,
    RowSums,
    certified,
    fit_scores,
    log_likelihoods,
    renew_gradients,
    std_errors_of,
    verdicts_per_item,
)
from rank.exceptions import NoMaximumError
from rank.existence import check_extra_parameters, check_strengths, find_islands, one_sided_items
from rank.likelihood import PairLikelihood, Parameters
from rank.pair_counts import Design, PairMap, check_counts, outcomes, summed_outcomes
from rank.solvers import WIDEST_SPAN, maximise

__all__ = ["COVARIANCE_ITEMS", "OneFit", "Options", "fit_densely", "fit_one", "no_fit"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

COVARIANCE_ITEMS = 500
_DENSE_ALWAYS = 64
_DENSE_NEVER = 3000
_DENSE_CELLS = 3.0e6  # numbers in matrices of totals at once: allocators hand out less than 32 MB anew without clearing it
_THREADS_FROM = 1e8  # bytes of counts, from which on reading them takes longest
_SINGLE_LARGEST = 1e30  # counts and precisions that sums in single precision hold


@dataclass(frozen=True)
class Options:
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


@dataclass(frozen=True)
class OneFit:
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


def no_fit(n: int, n_buckets: int, options: Options, reason: str) -> OneFit:
    blank = np.full(n, np.nan)
    return OneFit(
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


def fit_one(design: Design, counts: npt.NDArray[Any], options: Options, start: FloatArray | None) -> OneFit:
    wins_i, wins_j, ties = outcomes(counts)
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
        null = replace(model, bucket=None, n_buckets=0)
        null_start = Parameters(point.strengths, np.zeros(0), point.log_tie)
        null_fit = maximise(
            null, null_start, method=options.method, tol=options.tol, max_iter=options.max_iter
        )
        statistic = max(0.0, 2 * (model.objective(point) - null.objective(null_fit.point)))

    log_likelihood = model.log_likelihood(point)
    if options.alpha > 0:
        log_likelihood = replace(model, first_wins=real[0][used], second_wins=real[1][used]).log_likelihood(
            point
        )
    std_errors = covariance = None
    extra_errors = np.full(model.n_extra, np.nan)
    if options.std_errors != "none":
        spread, extra_errors = _covariance(design, counts, options, model, point, place)
        std_errors = np.full(design.n_items, np.nan)
        std_errors[kept] = np.sqrt(np.diag(spread))
        if design.n_items <= COVARIANCE_ITEMS:
            covariance = np.full((design.n_items, design.n_items), np.nan)
            covariance[np.ix_(kept, kept)] = spread
    strengths = np.full(design.n_items, np.nan)
    strengths[kept] = model.centred(point.strengths)
    nu = float(np.exp(point.log_tie[0])) if davidson else 0.0
    return OneFit(
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


def _covariance(
    design: Design,
    counts: npt.NDArray[Any],
    options: Options,
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
    design: Design,
    counts: npt.NDArray[Any],
    options: Options,
    model: PairLikelihood,
    point: Parameters,
    place: IntArray,
    bread: FloatArray,
) -> FloatArray:
    """Cluster-robust covariance: bread, outer products of cluster scores, bread, times G / (G - 1)."""
    wins_i, wins_j, ties = outcomes(counts)
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


def fit_densely(
    left: IntArray,
    right: IntArray,
    flat: npt.NDArray[Any],
    n_items: int,
    options: Options,
    give_up: bool = False,
) -> tuple[list[OneFit | None], DeferredLogLikelihoods | None]:
    """Fits by the dense kernels where those apply and prove their result; None in the other places.

    With `give_up`, fits that plainly have no maximum are among the results, with the reason.
    """
    n_fits, n_rows = flat.shape[0], left.size
    nothing: list[OneFit | None] = [None] * n_fits
    filled = n_items <= _DENSE_ALWAYS or (n_items <= _DENSE_NEVER and 40 * n_rows >= n_items * n_items)
    plain = (
        options.method == "newton" and options.ties == "half" and options.std_errors in ("none", "observed")
    )
    if not (filled and plain and options.tol >= 1e-12) or n_fits == 0:
        return nothing, None
    scores, first_row, same = _add_up(left, right, flat, n_items)
    pair_map = PairMap(left, right, n_items)
    if same:
        totals = np.asarray(float(first_row[0])) if pair_map.uniform(first_row) else pair_map.one(first_row)
    elif n_fits * n_items * n_items > _DENSE_CELLS and n_fits > 1:
        return _fit_in_parts(left, right, flat, n_items, options, give_up), None
    else:
        # Not the same number of verdicts per pair in every fit: each one needs a matrix of its own.
        totals = pair_map.many(sum(summed_outcomes(flat), start=np.zeros(1)))
    # The log-likelihood is that of the verdicts, without the pseudo-wins.
    real_scores, real_totals = scores, totals
    if options.alpha > 0:
        compared = totals > 0
        opponents = n_items - 1 if totals.ndim == 0 else compared.sum(axis=-1)
        totals = totals + 2 * options.alpha * compared
        scores = scores + options.alpha * opponents
    precision = 0.0 if options.prior_sd is None else options.prior_sd**-2
    connected = _all_connected(totals)
    if give_up and not precision and not options.alpha:
        # Most resamples without a maximum have an item that won or lost all its verdicts: no need to look further.
        played = verdicts_per_item(totals, n_items)
        for b in np.flatnonzero(connected & np.any((scores <= 0) | (scores >= played), axis=1)):
            never_win, never_lose = _one_sided(left, right, flat[b : b + 1], n_items)
            if never_win.size or never_lose.size:
                error = one_sided_items(never_win, never_lose, options.item_names)
                nothing[b] = no_fit(n_items, 0, options, str(error))
    if not np.any(connected):
        return nothing, None
    if totals.ndim < 3:
        smallest = totals[totals > 0].min()
    else:
        smallest = np.where(totals > 0, totals, np.inf).min(axis=(-2, -1))
    largest = float(totals.max())
    if not max(largest, precision) < _SINGLE_LARGEST or np.min(smallest) * WIDEST_SPAN <= largest:
        return nothing, None
    fitted = fit_scores(scores, totals, precision, options.tol, connected)
    done = fitted.done & connected
    if not precision and not options.alpha:
        proved = certified(fitted, smallest)
        if not np.all(proved[done]):
            # The gradients at hand are those before the last step; after it they are smaller.
            renew_gradients(fitted, np.flatnonzero(done & ~proved), scores, totals)
            proved = certified(fitted, smallest)
        done &= proved
    if not np.any(done):
        return nothing, None
    deferred = None
    if totals.ndim < 3:
        values = np.full(n_fits, np.nan)
        deferred = DeferredLogLikelihoods(fitted.strengths, real_scores, real_totals)
    else:
        values = log_likelihoods(fitted.strengths, real_scores, real_totals)
    labels = np.zeros(n_items, dtype=np.int64)
    none = np.zeros(0)
    for b in np.flatnonzero(done):
        std_errors = covariance = None
        if options.std_errors == "observed":
            own = totals[b] if totals.ndim == 3 else totals
            std_errors = std_errors_of(fitted.strengths[b], own, precision)
            if n_fits == 1 and n_items <= COVARIANCE_ITEMS:
                covariance = DeferredCovariance(fitted.strengths[b], own, precision)
        nothing[b] = OneFit(
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


def _add_up(
    left: IntArray, right: IntArray, flat: npt.NDArray[Any], n_items: int
) -> tuple[FloatArray, npt.NDArray[Any], bool]:
    """Scores (fits, n); the first fit's verdicts per row (M,), and whether all fits have them."""
    n_fits = flat.shape[0]
    by_left, by_right = RowSums(left, n_items, n_fits), RowSums(right, n_items, n_fits)
    scores = np.empty((n_fits, n_items))
    wins_i, wins_j, total = _half_wins(flat[:1])
    first_row = total[0]
    scores[:1] = by_left(wins_i) + by_right(wins_j)
    large = flat.nbytes > _THREADS_FROM
    # A piece stays in the cache for all its passes; larger ones let two threads work side by side.
    at_once = max(1, int((1.5e6 if large else 5e5) / (flat[0].nbytes + 1)))

    def score(start: int, end: int) -> bool:
        same = True
        for low in range(start, end, at_once):
            here = slice(low, min(low + at_once, end))
            wins_i, wins_j, total = _half_wins(flat[here])
            scores[here] = by_left(wins_i) + by_right(wins_j)
            same = same and bool(np.all(total == first_row))
        return same

    if large:
        half = n_fits // 2
        with ThreadPoolExecutor(2) as pool:
            same = all(pool.map(score, [1, half], [half, n_fits]))
    else:
        same = score(1, n_fits)
    return scores, first_row, same


def _one_sided(
    left: IntArray, right: IntArray, counts: npt.NDArray[Any], n_items: int
) -> tuple[IntArray, IntArray]:
    """Items without a win or half a win, and without a loss or half a loss, of one fit."""
    wins_i, wins_j, ties = (part[0] > 0 for part in summed_outcomes(counts))
    won, lost = np.zeros((2, n_items), dtype=bool)
    won[left[wins_i | ties]] = lost[left[wins_j | ties]] = True
    won[right[wins_j | ties]] = lost[right[wins_i | ties]] = True
    return np.flatnonzero(~won), np.flatnonzero(~lost)


def _fit_in_parts(
    left: IntArray, right: IntArray, flat: npt.NDArray[Any], n_items: int, options: Options, give_up: bool
) -> list[OneFit | None]:
    """`fit_densely` for some fits after the other, as many as the matrices of totals leave memory for."""
    fits: list[OneFit | None] = []
    step = max(1, int(_DENSE_CELLS / (n_items * n_items)))
    for low in range(0, flat.shape[0], step):
        some, deferred = fit_densely(left, right, flat[low : low + step], n_items, options, give_up)
        if deferred is not None:
            values = deferred.compute()
            some = [fit and replace(fit, log_likelihood=float(values[k])) for k, fit in enumerate(some)]
        fits += some
    return fits


def _half_wins(
    counts: npt.NDArray[Any],
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Checked wins of i and of j with half of the ties, and verdicts, (fits, M)."""
    wins_i, wins_j, ties = summed_outcomes(counts, check_counts(counts))
    total = wins_i + wins_j
    if ties.max() > 0:
        total += ties
        half = 0.5 * ties
        wins_i, wins_j = wins_i + half, wins_j + half
    return wins_i, wins_j, total


def _all_connected(totals: FloatArray) -> npt.NDArray[np.bool_]:
    """Whether all items hang together, for one matrix of totals or for each of many."""
    links = totals > 0
    if totals.ndim == 0:
        return np.atleast_1d(links)
    n = totals.shape[-1]
    answer = np.atleast_1d(links.sum(axis=-1).max(axis=-1) == n - 1)  # one item met all the others
    for b in np.flatnonzero(~answer):
        one = links if links.ndim == 2 else links[b]
        reached = one[0].copy()
        reached[0] = True
        count = 0
        while count < reached.sum():
            count = int(reached.sum())
            reached |= one[reached].any(axis=0)
        answer[b] = count == n
    return answer
