"""Bradley-Terry strengths from tallied verdicts: ties, order effect, regularisation, standard errors,
existence.

P(i beats j) = 1 / (1 + exp(-(theta_i - theta_j))), theta in nats, mean 0 in each connected component.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.special import gammaincc

from rank.dense import DeferredCovariance, DeferredLogLikelihoods
from rank.exceptions import ConvergenceError, InputError, NoMaximumError
from rank.fitting import OneFit, Options, fit_densely, fit_one, no_fit
from rank.pair_counts import (
    check_counts,
    check_order_effect,
    check_pair_counts,
    make_design,
    outcomes,
)
from rank.parallel import one_thread
from rank.solvers import DEFAULT_ITERATIONS

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

#: Below this, threads of matrix products wait for each other longer than they work.
_ONE_THREAD_ITEMS = 500


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
    left, right, array, n_items = check_pair_counts(item_i, item_j, counts, n_items, order_axis)
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
    order = check_order_effect(order_effect, left.size, array.shape[-2])
    batch = array.shape[:-3]
    flat = array.reshape(-1, *array.shape[-3:])
    starts = _check_start(start, n_items, batch)
    fits: list[OneFit | None] = [None] * flat.shape[0]
    deferred = None
    with one_thread() if n_items < _ONE_THREAD_ITEMS else contextlib.nullcontext():
        if order is None and starts is None:
            fits, deferred = fit_densely(left, right, flat, n_items, options, on_no_maximum == "nan")
        if any(fit is None for fit in fits):
            check_counts(array)
            design = make_design(left, right, n_items, array.shape[-2], order)
            for b in [b for b, fit in enumerate(fits) if fit is None]:
                where = (
                    ""
                    if not batch
                    else f"fit {', '.join(str(k) for k in np.unravel_index(b, batch))} of the batch: "
                )
                try:
                    fits[b] = fit_one(design, flat[b], options, None if starts is None else starts[b])
                except NoMaximumError as error:
                    if on_no_maximum == "nan":
                        n_buckets = 0 if design.bucket is None else max(1, len(design.labels))
                        fits[b] = no_fit(n_items, n_buckets, options, str(error))
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
) -> Options:
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
    if not 0 <= alpha < 1e100:
        raise InputError(f"alpha must be a number of pseudo-wins >= 0, found {alpha}")
    if prior_sd is not None and not 1e-100 < prior_sd < 1e100:
        raise InputError(
            f"prior_sd must be a positive number of nats (1e-100 to 1e100), found {prior_sd}; leave it out for no prior"
        )
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
    return Options(
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
    fits: list[OneFit],
    batch: tuple[int, ...],
    n: int,
    with_order: bool,
    labels: tuple[Any, ...],
    options: Options,
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
    left, right, array, n_items = check_pair_counts(item_i, item_j, counts, n_items, None)
    check_counts(array)
    return _scores(left, right, array, n_items)


def _scores(left: IntArray, right: IntArray, array: npt.NDArray[Any], n_items: int) -> FloatArray:
    wins_i, wins_j, ties = outcomes(array)
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
    left, right, array, n_items = check_pair_counts(item_i, item_j, counts, n_items, None)
    check_counts(array)
    wins_i, wins_j, ties = outcomes(array)
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

    left, right, array, n_items = check_pair_counts(item_i, item_j, counts, fit.strengths.size, None)
    wins_i, wins_j, ties = outcomes(array)
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
