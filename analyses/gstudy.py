"""Generalizability study: which facet of a judging design moves the verdict, and what more of it would buy.

The verdict direction y (1: the canonical item i wins, 0: item j wins) of a call is modelled as (which item of a
pair is the canonical one follows from the verdicts, never from names: see `g_study_of_tally`)

    y = mean + pair + judge + format + order + pair:judge + pair:format + pair:order + residual

with all effects random and independent. The pair component is what a study wants to measure (which item is
better); everything else is error that more judges, formats, orders or runs average out. The residual holds
the noise of repeated runs and every interaction that is not in the model (judge x format and so on).

The restricted likelihood needs no rows and no n x n matrix: within a pair, all effects act through the
one-hot columns of [1, judge, format, order], so a pair enters through the counts A = X'X and the sums b = X'y
(q columns), pairs with equal counts share all matrix work, and judge, format and order are added as a rank-q
update. One evaluation costs O(distinct designs x q^3), whatever the number of verdicts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rank.codes import combine_codes
from rank.exceptions import InputError
from rank.tally import I_WINS, INCONSISTENT, INVALID, J_WINS, TIE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from rank.tally import Tally

COMPONENTS = ("pair", "judge", "format", "order", "pair:judge", "pair:format", "pair:order", "residual")
FACETS = ("judge", "format", "order")

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_RESIDUAL = len(COMPONENTS) - 1
_MEMBERS = (
    (0,),
    (1,),
    (2,),
    (3,),
    (0, 1),
    (0, 2),
    (0, 3),
)  # which of pair, judge, format, order a component crosses
_FLOOR = 1e-7  # residual, in units of the variance of y, that counts as none
_ZERO = 1e-6  # components below this, in the same units, are zero: far inside any standard error
_TOLERANCE = 1e-12  # of the projected Newton decrement, in units of -2 log-likelihood
_TIE_POLICIES = ("half", "drop")


@dataclass(frozen=True)
class GStudy:
    """Variance components of the verdict direction.

    Attributes
    ----------
    component : tuple of str
        `COMPONENTS`, in this order in all arrays.
    variance : (8,) float
        REML estimates, never negative, in squared units of y. NaN: not estimable from this table, see
        `reason`.
    percent : (8,) float
        Share of the sum of the estimated components, in percent; NaN where the variance is, or if y is
        constant.
    std_error : (8,) float
        From the observed information; NaN for components at zero (the normal approximation fails at a bound).
    anova : (8,) float
        Unconstrained estimates from mean squares, possibly negative. Balanced tables only, otherwise NaN.
    reason : tuple of str
        Why a component is NaN; empty where it is not.
    mean : float
        Generalized least-squares mean of y.
    n_pairs, n_judges, n_formats, n_orders : int
        Levels.
    n_verdicts, n_cells : int
        Verdicts used; (pair, judge, format, order) cells they fall into.
    n_invalid : int
        Verdicts that carry no direction (unparsed, or ties with ``ties="drop"``) and were left out.
    confounded : tuple of str
        Facets whose every contrast is also one of another facet (each judge seen with one format only: then the
        format is). Their share may belong to the other one, so `d_study` does not project over them.
    balanced : bool
        Every cell present, with the same number of runs.
    method : str
        "anova" (closed form, equal to REML) or "reml" (optimised).
    log_likelihood : float
        Restricted log-likelihood, without the term 1/2 log|X'X|; NaN if y is constant. Unbounded where there is
        no residual variance; then its value at a residual of 1e-7 times the variance of y.
    converged : bool
    notes : tuple of str
        Sentences for the reader.
    """

    component: tuple[str, ...]
    variance: Floats
    percent: Floats
    std_error: Floats
    anova: Floats
    reason: tuple[str, ...]
    mean: float
    n_pairs: int
    n_judges: int
    n_formats: int
    n_orders: int
    n_verdicts: int
    n_cells: int
    n_invalid: int
    confounded: tuple[str, ...]
    balanced: bool
    method: str
    log_likelihood: float
    converged: bool
    notes: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        """One row per component."""
        import pandas as pd

        columns = ("component", "variance", "percent", "std_error", "anova", "reason")
        return pd.DataFrame({name: getattr(self, name) for name in columns})


@dataclass(frozen=True)
class DStudy:
    """Projected reliability of designs; all arrays have one entry per design of the grid.

    Attributes
    ----------
    n_judges, n_formats, n_orders, n_runs : (D,) int
    n_calls : (D,) int
        Calls per pair, the product of the four.
    generalizability : (D,) float
        G coefficient (E rho^2 in the literature; no rank correlation), reliability of the order of pairs
        (relative error).
    dependability : (D,) float
        Index of dependability (Phi in the literature; no flip rate), reliability of the absolute value (main
        effects of the facets count as error). Never above the G coefficient.
    target : float or None
    kind : str
        Which coefficient the target is for.
    cheapest : int or None
        Index of the design with the fewest calls that reaches the target (the higher coefficient on equal
        calls).
    notes : tuple of str
    """

    n_judges: Ints
    n_formats: Ints
    n_orders: Ints
    n_runs: Ints
    n_calls: Ints
    generalizability: Floats
    dependability: Floats
    target: float | None
    kind: str
    cheapest: int | None
    notes: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        """One row per design."""
        import pandas as pd

        columns = (
            "n_judges",
            "n_formats",
            "n_orders",
            "n_runs",
            "n_calls",
            "generalizability",
            "dependability",
        )
        return pd.DataFrame({name: getattr(self, name) for name in columns})


def g_study(
    pair: npt.ArrayLike,
    judge: npt.ArrayLike,
    format: npt.ArrayLike,
    order: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    count: npt.ArrayLike | None = None,
    std_errors: str = "observed",
    max_iter: int = 100,
) -> GStudy:
    """Estimate the variance components of y by restricted maximum likelihood.

    Parameters
    ----------
    pair, judge, format, order : (M,) int
        Level of each facet, any integer codes. A facet without variation is given as zeros.
    y : (M,) float
        Verdict direction, or any response; NaN is left out and counted.
    count : (M,) float, optional
        How many verdicts a row stands for (default 1): a table of counts is never expanded.
    std_errors : {"observed", "none"}
    max_iter : int
        Iterations of the optimiser.

    Returns
    -------
    GStudy

    Raises
    ------
    InputError
        Lengths that differ, negative counts, fewer than two verdicts.

    Notes
    -----
    A component is left out, with its reason, when the table cannot tell it apart from the mean and the
    components before it (residual, pair, judge, format, order, pair:judge, pair:format, pair:order): one
    level only, a facet nested in another one, a single run per cell where the residual is the highest
    interaction. This is decided on the inner products tr(P K P L) of the covariance structures, P the
    projection on contrasts.

    Balanced tables with non-negative mean-square estimates use these: they are the REML solution in closed
    form. Otherwise projected Newton steps on the variances with exact gradients reach the constrained
    maximum.

    References
    ----------
    Brennan 2001, Generalizability Theory, Springer; Patterson & Thompson 1971, Biometrika 58.

    Examples
    --------
    Two judges, three pairs, and a perfect understanding about all but one verdict:

    >>> result = g_study([0, 0, 1, 1, 2, 2], [0, 1] * 3, [0] * 6, [0] * 6, [1, 1, 0, 0, 0, 1])
    >>> result.percent.round(1)
    array([50.,  0., nan, nan, nan, nan, nan, 50.])
    >>> result.reason[4]
    'pair:judge cannot be told apart from the residual in this table'
    """
    data = _data_iv(pair, judge, format, order, y, count, std_errors)
    return _fit(data, std_errors == "observed", max_iter, ())


def g_study_of_tally(
    tally: Tally,
    *,
    judge: str = "judge",
    format: str = "format",
    ties: str = "half",
    std_errors: str = "observed",
) -> GStudy:
    """Variance components of the verdicts of a tally.

    A pair is two items of a context (and dataset), across all groups. Which of the two is called i, so that y = 1 says
    "i wins", is a convention; so every pair enters in both directions, once with (order, y) and once with
    (other order, 1 - y). Then the mean is 1/2, and neither the names of items nor the slots they were shown in
    change a number: the pair component is how far, and which way, pairs lean from a draw. What would move all pairs
    towards their arbitrary item i (judge, format as main effects) is zero by symmetry. The mirrored half carries no
    information of its own, so standard errors are those of the doubled table times the square root of 2.

    The facets judge and format are columns
    of ``tally.groups``; a column the tally does not have counts as one level. Verdicts of groups that differ in
    other columns only are treated as runs of the same cell.

    Parameters
    ----------
    tally : Tally
    judge, format : str
        Group columns that play these roles; ``format`` may be any column, e.g. temperature.
    ties : {"half", "drop"}
        A tie counts y = 1/2, or has no direction. Invalid verdicts never have
        one. What is left out is counted in `n_invalid`.
    std_errors : {"observed", "none"}

    Returns
    -------
    GStudy
    """
    if ties not in _TIE_POLICIES:
        raise InputError(f"g-study: ties must be one of {', '.join(_TIE_POLICIES)}, found '{ties}'")
    if n_merged := int(tally.counts[..., INCONSISTENT].sum()):
        raise InputError(
            f"g-study: {n_merged} verdicts are stated merged results of both orders ('tie (inconsistent)'), which hide what each order "
            "said; give the single calls"
        )
    notes = []
    levels = []
    for name in (judge, format):
        if name in tally.groups.columns:
            codes, _ = _codes(tally.groups[name].to_numpy(dtype=str))
            levels.append(codes[tally.group])
        else:
            levels.append(np.zeros(tally.group.size, dtype=np.int64))
    others = [
        str(name)
        for name in tally.groups.columns
        if name not in (judge, format, "dataset") and tally.groups[name].nunique() > 1
    ]
    if others:
        notes.append(
            f"{', '.join(others)} differ between groups and are no facet here: "
            "their effect is part of the residual"
        )
    n_items = len(tally.items)
    pair = combine_codes(
        (tally.context, len(tally.contexts)), (tally.item_i, n_items), (tally.item_j, n_items)
    )
    value = np.full(tally.counts.shape[-1], np.nan)
    value[[I_WINS, J_WINS]] = 1.0, 0.0
    if ties == "half":
        value[TIE] = 0.5
    used, order, outcome = np.nonzero(tally.counts)
    count = tally.counts[used, order, outcome]
    notes.append("direction-free: every pair enters with either item as the one that may win")
    y = value[outcome]
    n_odd = int(tally.counts[..., TIE].sum())
    if n_odd:
        treated = "count as half a win for either item" if ties == "half" else "are left out"
        notes.append(f"{n_odd} ties {treated}")
    n_bad = int(tally.counts[..., INVALID].sum())
    if n_bad:
        notes.append(f"{n_bad} invalid verdicts are left out")
    codes, _ = _codes(pair[used])
    both = codes.max(initial=-1) + 1 + codes
    data = _data_iv(
        np.concatenate([codes, both]),
        np.tile(levels[0][used], 2),
        np.tile(levels[1][used], 2),
        np.concatenate([order, 1 - order]),
        np.concatenate([y, 1 - y]),
        np.tile(count, 2),
        std_errors,
    )
    found = _fit(data, std_errors == "observed", 100, tuple(notes))
    return replace(
        found,
        std_error=found.std_error * np.sqrt(2.0),
        n_pairs=found.n_pairs // 2,
        n_verdicts=found.n_verdicts // 2,
        n_cells=found.n_cells // 2,
        n_invalid=found.n_invalid // 2,
        log_likelihood=found.log_likelihood / 2,
    )


def d_study(
    study: GStudy,
    *,
    n_judges: int | Sequence[int] = (1, 2, 3, 5),
    n_formats: int | Sequence[int] = (1, 2, 3, 5),
    n_orders: int | Sequence[int] = (1, 2),
    n_runs: int | Sequence[int] = (1, 2, 3, 5, 10),
    target: float | None = None,
    kind: str = "generalizability",
) -> DStudy:
    r"""Project the reliability of a pair's mean verdict to other designs.

    With n_j judges, n_f formats, n_o orders and n_r runs, all crossed with pairs (Brennan 2001, ch. 4):

        relative error  d = pair:judge / n_j + pair:format / n_f + pair:order / n_o + residual / (n_j n_f n_o n_r)
        absolute error  D = d + judge / n_j + format / n_f + order / n_o
        generalizability = pair / (pair + d),  dependability = pair / (pair + D)

    Parameters
    ----------
    study : GStudy
    n_judges, n_formats, n_orders, n_runs : int or sequence of int
        The grid is their product.
    target : float in (0, 1), optional
        Coefficient to reach; the cheapest design of the grid that does so is named.
    kind : {"generalizability", "dependability"}
        Which coefficient the target is for.

    Returns
    -------
    DStudy
        A design with several levels of a facet that the study saw at one level only is NaN: how pairs
        interact with that facet is unobserved (it sits inside the pair component). Likewise for a facet that is
        confounded with another one (`GStudy.confounded`). NaN as well if the pair component is not estimable,
        and 0 / 0 (no variance at all).

    Raises
    ------
    InputError
        Sizes below 1, a target outside (0, 1), an unknown kind.

    Notes
    -----
    The residual includes interactions that are not in the model; dividing it by n_r as well assumes that it
    is noise between runs, so gains from runs alone are an upper bound.

    Examples
    --------
    >>> study = g_study([0, 0, 1, 1, 2, 2], [0, 1] * 3, [0] * 6, [0] * 6, [1, 1, 0, 0, 0, 1])
    >>> plan = d_study(study, n_judges=[1, 2, 4], n_formats=1, n_orders=1, n_runs=1, target=0.6)
    >>> plan.generalizability.round(3)
    array([0.5  , 0.667, 0.8  ])
    >>> int(plan.n_judges[plan.cheapest])
    2
    """
    if kind not in ("generalizability", "dependability"):
        raise InputError(f"d-study: kind must be generalizability or dependability, found '{kind}'")
    if target is not None and not 0 < target < 1:
        raise InputError(f"d-study: the target must lie between 0 and 1, found {target}")
    sizes = {"n_judges": n_judges, "n_formats": n_formats, "n_orders": n_orders, "n_runs": n_runs}
    choices = []
    for name, value in sizes.items():
        choice = np.unique(np.atleast_1d(np.asarray(value)))
        if choice.size == 0 or (choice < 1).any() or (choice != np.floor(choice)).any():
            raise InputError(f"d-study: {name} must be whole numbers of at least 1, found {value}")
        choices.append(choice.astype(np.int64).tolist())
    grid = np.array(list(product(*choices)), dtype=np.int64)
    n_calls = grid.prod(axis=1)
    part = dict(zip(study.component, study.variance, strict=True))
    relative = _known(part["residual"]) / n_calls
    main = np.zeros(len(grid))
    unseen = np.zeros(len(grid), dtype=bool)
    notes = []
    for column, facet in enumerate(FACETS):
        relative = relative + _known(part[f"pair:{facet}"]) / grid[:, column]
        main = main + _known(part[facet]) / grid[:, column]
        if getattr(study, f"n_{facet}s") < 2:
            unseen |= grid[:, column] > 1
            if (grid[:, column] > 1).any():
                notes.append(
                    f"the study has one {facet} only, so designs with more than one cannot be projected"
                )
        elif facet in study.confounded:
            unseen |= grid[:, column] > 1
            if (grid[:, column] > 1).any():
                notes.append(
                    f"{facet} is confounded with another facet, so designs with more than one cannot be projected"
                )
        elif math.isnan(part[f"pair:{facet}"]):
            notes.append(
                f"pair:{facet} is not estimable here and counts as part of what it is confounded with"
            )
    pair = part["pair"]
    if math.isnan(pair):
        notes.append(f"no reliability without a pair component: {study.reason[0]}")
    elif pair + relative.max() + main.max() <= 0:
        notes.append("all verdicts are equal: reliability is undefined")
        pair = math.nan
    generalizability = np.where(unseen, np.nan, pair / (pair + relative))
    dependability = np.where(unseen, np.nan, pair / (pair + relative + main))
    cheapest = None
    if target is not None:
        reached = generalizability if kind == "generalizability" else dependability
        good = np.flatnonzero(reached >= target)
        if good.size:
            cheapest = int(good[np.lexsort((-reached[good], n_calls[good]))[0]])
        else:
            notes.append(f"no design of the grid reaches {kind} {target:g}")
    return DStudy(
        n_judges=grid[:, 0],
        n_formats=grid[:, 1],
        n_orders=grid[:, 2],
        n_runs=grid[:, 3],
        n_calls=n_calls,
        generalizability=generalizability,
        dependability=dependability,
        target=target,
        kind=kind,
        cheapest=cheapest,
        notes=tuple(notes),
    )


def _known(value: float) -> float:
    """A component that is not estimable adds nothing of its own: it is inside another one."""
    return 0.0 if math.isnan(value) else float(value)


# --- data
# -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Data:
    """Cells of a study: facet codes (4, C), verdicts n and sum of centred y per cell; totals."""

    code: Ints
    levels: tuple[int, int, int, int]
    n: Floats
    total: Floats
    within: float  # sum of squares of y about the means of their cells
    squares: float  # and about the mean of all
    mean: float
    n_left_out: int

    @property
    def n_all(self) -> float:
        return float(self.n.sum())


def _codes(values: npt.NDArray) -> tuple[Ints, int]:
    distinct, code = np.unique(values, return_inverse=True)
    return code.astype(np.int64), distinct.size


def _data_iv(
    pair: npt.ArrayLike,
    judge: npt.ArrayLike,
    format: npt.ArrayLike,
    order: npt.ArrayLike,
    y: npt.ArrayLike,
    count: npt.ArrayLike | None,
    std_errors: str,
) -> _Data:
    if std_errors not in ("observed", "none"):
        raise InputError(f"g-study: std_errors must be observed or none, found '{std_errors}'")
    value = np.asarray(y, dtype=float).ravel()
    facets = [np.asarray(facet).ravel() for facet in (pair, judge, format, order)]
    n = np.ones(value.size) if count is None else np.asarray(count, dtype=float).ravel()
    sizes = [array.size for array in (*facets, value, n)]
    if len(set(sizes)) > 1:
        raise InputError(f"g-study: pair, judge, format, order, y, count differ in length: {sizes}")
    if not (np.isfinite(n) & (n >= 0)).all():
        raise InputError("g-study: counts must be finite and not negative")
    if np.isinf(value).any():
        raise InputError("g-study: y must be finite (NaN where there is no direction)")
    known = np.isfinite(value) & (n > 0)
    left_out = int(round(n[np.isnan(value)].sum()))
    value, n = value[known], n[known]
    if n.sum() < 2:
        raise InputError(f"g-study: needs at least two verdicts with a direction, found {n.sum():g}")
    coded = [_codes(facet[known]) for facet in facets]
    key = combine_codes(*coded)
    _, example, cell = np.unique(key, return_index=True, return_inverse=True)
    mean = float(n @ value / n.sum())
    centred = value - mean
    n_cell = np.bincount(cell, weights=n).astype(float)
    total = np.bincount(cell, weights=n * centred).astype(float)
    return _Data(
        code=np.stack([codes[example] for codes, _ in coded]),
        levels=(coded[0][1], coded[1][1], coded[2][1], coded[3][1]),
        n=n_cell,
        total=total,
        within=float(n @ (centred - (total / n_cell)[cell]) ** 2),
        squares=float(n @ centred**2),
        mean=mean,
        n_left_out=left_out,
    )


def _confounding(data: _Data) -> tuple[tuple[str, ...], list[str]]:
    """Facets whose every contrast is also one of another facet, and warnings for the reader.

    Two facets span a graph with their levels as nodes and the cells as edges. In one connected piece, all of
    their contrasts can be told apart; levels of different pieces never meet a common level of the other facet.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    found, said = set(), []
    for a, b in ((1, 2), (1, 3), (2, 3)):
        n_a, n_b = data.levels[a], data.levels[b]
        if min(n_a, n_b) < 2:
            continue
        edges = (np.ones(data.n.size), (data.code[a], n_a + data.code[b]))
        n_pieces, _ = connected_components(coo_array(edges, shape=(n_a + n_b, n_a + n_b)), directed=False)
        if n_pieces == 1:
            continue
        one, two = FACETS[a - 1], FACETS[b - 1]
        lost = [name for name, n in ((one, n_a), (two, n_b)) if n == n_pieces]
        found.update(lost)
        what = f"CONFOUNDED: {one} and {two} fall into {n_pieces} sets that never cross"
        if len(lost) == 2:
            what += f" (each {one} occurs with one {two} only, and the other way round)"
        elif lost:
            fixed, varied = (one, two) if lost[0] == two else (two, one)
            what += f" (each {fixed} occurs with one {varied} only)"
        said.append(
            f"{what}: a difference between sets may be one of {one} or of {two}, and how it is shared out between their "
            "components rests on the model alone"
            + (f"; no design is projected over {' or '.join(lost)}" if lost else "")
        )
    return tuple(name for name in FACETS if name in found), said


# --- what the table can tell
# ----------------------------------------------------------------------------------------


def _structure(data: _Data) -> tuple[Floats, Floats, list[Ints]]:
    """Inner products tr(P K P L) of the covariance structures, y'P K P y, and the levels of all cells."""
    level = []
    for members in _MEMBERS:
        code, _ = _codes(combine_codes(*[(data.code[k], data.levels[k]) for k in members]))
        level.append(code)
    n_all = data.n_all
    size = [np.bincount(code, weights=data.n) for code in level]
    gram = np.empty((_RESIDUAL + 1, _RESIDUAL + 1))
    score = np.empty(_RESIDUAL + 1)
    for a in range(_RESIDUAL):
        row_sum = float(size[a] @ size[a])
        for b in range(a, _RESIDUAL):
            joint, _ = _codes(level[a] * size[b].size + level[b])
            n_joint = np.bincount(joint, weights=data.n)
            cross = float(data.n @ (size[a][level[a]] * size[b][level[b]]))
            both = (
                float(n_joint @ n_joint) - 2 * cross / n_all + row_sum * float(size[b] @ size[b]) / n_all**2
            )
            gram[a, b] = gram[b, a] = both
        gram[a, _RESIDUAL] = gram[_RESIDUAL, a] = n_all - row_sum / n_all
        score[a] = float((np.bincount(level[a], weights=data.total) ** 2).sum())
    gram[_RESIDUAL, _RESIDUAL] = n_all - 1
    score[_RESIDUAL] = data.squares
    return gram, score, level


def _estimable(gram: Floats, levels: tuple[int, ...]) -> tuple[list[int], list[str]]:
    """Components to keep, and for every component the reason why it is not kept (or "")."""
    reason = [""] * (_RESIDUAL + 1)
    kept = [_RESIDUAL]
    scale = np.sqrt(np.maximum(np.diag(gram), 0))
    for k in range(_RESIDUAL):
        name = COMPONENTS[k]
        single = [("pair", *FACETS)[m] for m in _MEMBERS[k] if levels[m] < 2 and not (m == 0 and k)]
        if single:
            reason[k] = f"only one {single[0]} in this table"
            continue
        if scale[k] ** 2 <= 1e-9 * gram[_RESIDUAL, _RESIDUAL]:
            reason[k] = f"{name} does not vary in this table"
            continue
        cosine = gram[np.ix_(kept, kept)] / np.outer(scale[kept], scale[kept])
        toward = gram[kept, k] / (scale[kept] * scale[k])
        weight = np.linalg.solve(cosine, toward)
        if 1 - toward @ weight > 1e-9:
            kept.append(k)
            continue
        names = [COMPONENTS[c] for c, w in zip(kept, weight, strict=True) if abs(w) > 1e-6]
        names.sort(key=COMPONENTS.index)
        text = " and ".join("the residual" if other == "residual" else other for other in names)
        reason[k] = f"{name} cannot be told apart from {text} in this table"
    return sorted(kept), reason


# --- restricted likelihood
# ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Likelihood:
    """Sufficient statistics. Columns of X are [1, levels of each facet with more than one level].

    Per pair X = QG with orthonormal Q, so that only z = Q'y and the part of y outside X matter: no difference
    of large numbers is taken where the residual is small.
    """

    g: Floats  # (D, q, q) of every distinct pair design; rows of zeros where X has a lower rank
    design: Ints  # (K,) design of every pair
    z: Floats  # (K, q)
    group: Ints  # (q,) 0 for the constant column, 1..3 for judge, format, order
    n_all: float
    outside: float  # squared length of y outside the columns of all X
    kept: tuple[int, ...]

    def evaluate(self, theta: Floats) -> tuple[float, Floats, float]:
        """-2 x restricted log-likelihood (without constants), its gradient in the kept components, and the
        mean.

        B = residual I + X D X' is the covariance of one pair without the main effects of judge, format,
        order, which enter as the update X L X' over all pairs; the constant column of L carries the mean (a
        flat prior).
        """
        full = np.zeros(_RESIDUAL + 1)
        full[list(self.kept)] = theta
        residual = full[_RESIDUAL]
        q = self.group.size
        inner = np.where(self.group == 0, full[0], full[self.group + 3])
        outer = np.sqrt(np.where(self.group == 0, 1.0, full[self.group]))
        w = residual * np.eye(q) + (self.g * inner) @ np.swapaxes(self.g, -1, -2)  # Q'BQ
        log_det = 2 * np.log(np.diagonal(np.linalg.cholesky(w), axis1=-2, axis2=-1)).sum(axis=-1)
        w_inverse = np.linalg.inv(w)
        left = np.swapaxes(self.g, -1, -2) @ w_inverse  # X'B^-1 y = left @ z
        c = left @ self.g  # X'B^-1 X
        number = np.bincount(self.design, minlength=len(self.g)).astype(float)
        c_sum, u_sum = np.einsum("d,dij->ij", number, c), _times(left[self.design], self.z).sum(axis=0)
        t = outer[:, None] * c_sum * outer + np.diag((self.group > 0).astype(float))
        t_inverse = np.linalg.inv(t)
        solved = np.linalg.solve(t, outer * u_sum)
        h = outer * solved  # mean and predicted main effects
        rest = self.z - _times(self.g[self.design], h)
        score = _times(left[self.design], rest)  # X'Py of every pair
        quadratic = self.outside / residual + float((rest * _times(w_inverse[self.design], rest)).sum())
        quadratic += float((solved[self.group > 0] ** 2).sum())
        value = (self.n_all - q * len(self.z)) * math.log(residual) + float(number @ log_det) + quadratic
        value += 2 * float(np.log(np.diagonal(np.linalg.cholesky(t))).sum())

        c_update = c @ (outer[:, None] * t_inverse * outer)
        trace = np.diagonal(c, axis1=-2, axis2=-1) - (c_update * c).sum(axis=-1)  # c is symmetric
        inner_gradient = number @ trace - (score**2).sum(axis=0)
        # X'PX and X'Py of all pairs, for components above zero from the equations that t solves.
        positive = outer > 0
        divisor = np.where(positive, outer, 1.0)
        whole_trace = np.diag(c_sum - c_sum @ (outer[:, None] * t_inverse * outer) @ c_sum)
        whole_trace = np.where(positive, (1 - np.diag(t_inverse)) / divisor**2, whole_trace)
        whole_score = np.where(positive, solved / divisor, score.sum(axis=0))
        outer_gradient = whole_trace - whole_score**2
        gradient = np.zeros(_RESIDUAL + 1)
        gradient[0] = inner_gradient[self.group == 0].sum()
        for facet in (1, 2, 3):
            gradient[facet] = outer_gradient[self.group == facet].sum()
            gradient[facet + 3] = inner_gradient[self.group == facet].sum()
        # The covariance is linear in its components: their gradients, weighted, add up to tr(PV) - y'Py.
        explained = full[:_RESIDUAL] @ gradient[:_RESIDUAL]
        gradient[_RESIDUAL] = (self.n_all - 1 - quadratic - explained) / residual
        return float(value), gradient[list(self.kept)], float(h[0])


def _times(matrix: Floats, vector: Floats) -> Floats:
    return (matrix @ vector[..., None])[..., 0]


def _likelihood(data: _Data, kept: list[int]) -> _Likelihood:
    columns, group = [np.zeros(data.n.size, dtype=np.int64)], [np.zeros(1, dtype=np.int64)]
    q = 1
    for facet in (1, 2, 3):
        if data.levels[facet] > 1:
            columns.append(q + data.code[facet])
            group.append(np.full(data.levels[facet], facet))
            q += data.levels[facet]
    n_pairs = data.levels[0]
    a = np.zeros((n_pairs, q * q))
    b = np.zeros((n_pairs, q))
    for first in columns:
        b += np.bincount(data.code[0] * q + first, weights=data.total, minlength=n_pairs * q).reshape(b.shape)
        for second in columns:
            place = (data.code[0] * q + first) * q + second
            a += np.bincount(place, weights=data.n, minlength=a.size).reshape(a.shape)
    # Pairs with equal counts share their matrices; compare rows of bytes, which is exact.
    packed = np.ascontiguousarray(a).view(np.dtype((np.void, a.shape[1] * a.itemsize))).ravel()
    _, example, design = np.unique(packed, return_index=True, return_inverse=True)
    n_designs = example.size
    size, vector = np.linalg.eigh(a[example].reshape(n_designs, q, q))
    root = np.sqrt(np.where(size > 1e-9 * size.max(axis=1, keepdims=True), size, 0.0))
    inverse = np.where(root > 0, 1 / np.where(root > 0, root, 1.0), 0.0)
    g = root[:, :, None] * np.swapaxes(vector, -1, -2)
    to_z = inverse[:, :, None] * np.swapaxes(vector, -1, -2)
    z = np.einsum("pij,pj->pi", to_z[design], b)
    coefficient = np.einsum("pij,pi->pj", to_z[design], z)
    fitted = sum(coefficient[data.code[0], column] for column in columns)
    return _Likelihood(
        g=g,
        design=design,
        z=z,
        group=np.concatenate(group),
        n_all=data.n_all,
        outside=data.within + float(data.n @ (data.total / data.n - fitted) ** 2),
        kept=tuple(kept),
    )


def _hessian(likelihood: _Likelihood, theta: Floats, gradient: Floats, step: Floats, central: bool) -> Floats:
    """Differences of the exact gradient, symmetrised."""
    columns = []
    for k, h in enumerate(step):
        ahead = theta.copy()
        ahead[k] += h
        if central and theta[k] > h:
            behind = theta.copy()
            behind[k] -= h
            difference = likelihood.evaluate(ahead)[1] - likelihood.evaluate(behind)[1]
            columns.append(difference / (2 * h))
        else:
            columns.append((likelihood.evaluate(ahead)[1] - gradient) / h)
    matrix = np.array(columns)
    return (matrix + matrix.T) / 2


def _maximise(
    likelihood: _Likelihood, start: Floats, unit: Floats, floor: Floats, max_iter: int
) -> tuple[Floats, bool]:
    """Projected Newton (Bertsekas 1982) on variances of at least `floor`; `unit` sets difference steps."""
    theta = np.maximum(start, floor)
    value, gradient, _ = likelihood.evaluate(theta)
    for _ in range(max_iter):
        step = 1e-4 * (theta + unit * theta[-1])
        hessian = _hessian(likelihood, theta, gradient, step, central=False)
        scale = 1 / np.sqrt(np.maximum(np.abs(np.diag(hessian)), 1e-300))
        plain = -(scale**2) * gradient  # a diagonal step points down even where a bound cuts it short
        slope = _slope(theta, gradient, plain, floor)
        free = theta + plain > floor  # the others go to their bound, and Newton must not count on more
        eigenvalue, vector = np.linalg.eigh((hessian * np.outer(scale, scale))[np.ix_(free, free)])
        eigenvalue = np.maximum(np.abs(eigenvalue), 1e-6)  # away from saddles and flat directions
        newton = plain.copy()
        newton[free] = -scale[free] * (vector @ ((vector.T @ (scale * gradient)[free]) / eigenvalue))
        move = newton if _slope(theta, gradient, newton, floor) > 1e-3 * slope else plain
        if slope < _TOLERANCE:
            return np.maximum(theta + move, floor), True  # converges quadratically: one more step is worth it
        slack = 1e-13 * abs(value)
        length = 1.0
        while length > 1e-10:
            trial = np.maximum(theta + length * move, floor)
            trial_value, trial_gradient, _ = likelihood.evaluate(trial)
            if trial_value <= value + 1e-4 * float(gradient @ (trial - theta)) + slack:
                break
            length /= 2
        else:
            return theta, slope < (1e-3 if theta[-1] <= floor[-1] else 1e-8)  # at the floor rounding shows
        theta, value, gradient = trial, trial_value, trial_gradient
    return theta, False


def _slope(theta: Floats, gradient: Floats, move: Floats, floor: Floats) -> float:
    """Decrease that the gradient promises for a move, cut off at the bounds."""
    return -float(gradient @ (np.maximum(theta + move, floor) - theta))


def _anova(data: _Data, kept: list[int], level: list[Ints]) -> Floats:
    """Mean-square estimates of a balanced table; components that are not kept are NaN."""
    n_all = data.n_all
    square, freedom, per_level = {}, {}, {}
    for k in kept[:-1]:
        total = np.bincount(level[k], weights=data.total)
        per_level[k] = n_all / total.size
        square[k], freedom[k] = float((total**2).sum()) / per_level[k], total.size - 1
    for k in kept[:-1]:
        if len(_MEMBERS[k]) == 2:
            for main in _MEMBERS[k]:
                square[k] -= square.get(main, 0.0)
                freedom[k] -= freedom.get(main, 0)
    rest = data.squares - sum(square.values())
    estimate = np.full(_RESIDUAL + 1, np.nan)
    estimate[_RESIDUAL] = max(rest, 0.0) / (n_all - 1 - sum(freedom.values()))
    expected = {k: square[k] / freedom[k] - estimate[_RESIDUAL] for k in kept[:-1]}
    for k in kept[:-1]:  # mean square - residual = sum of n_l x component over all l that contain k
        if len(_MEMBERS[k]) == 2:
            estimate[k] = expected[k] / per_level[k]
    for k in kept[:-1]:
        if len(_MEMBERS[k]) == 1:
            containing = [c for c in kept[:-1] if len(_MEMBERS[c]) == 2 and _MEMBERS[k][0] in _MEMBERS[c]]
            estimate[k] = (expected[k] - sum(expected[c] for c in containing)) / per_level[k]
    return np.where(np.abs(estimate) < 1e-13 * data.squares / (n_all - 1), 0.0, estimate)  # rounding only


def _fit(data: _Data, with_errors: bool, max_iter: int, notes: tuple[str, ...]) -> GStudy:
    gram, score, level = _structure(data)
    kept, reason = _estimable(gram, data.levels)
    variance, std_error, anova = (np.full(_RESIDUAL + 1, np.nan) for _ in range(3))
    n_cells = data.n.size
    balanced = n_cells == math.prod(data.levels) and bool((data.n == data.n[0]).all())
    confounded, warnings = _confounding(data)
    said = [*warnings, *notes]
    for facet, levels in zip(FACETS, data.levels[1:], strict=True):
        if levels < 2:
            said.append(f"one {facet} only: {facet} and pair:{facet} drop out")
    said += [text for text in reason if text and not text.startswith("only one")]
    if sum(levels > 1 for levels in data.levels[1:]) > 1:
        said.append("the residual includes interactions outside the model (judge x format and the like)")
    if not balanced:
        said.append("unbalanced table: no mean-square estimates")
    method, converged, log_likelihood, mean = "reml", True, math.nan, data.mean
    scale = data.squares / (data.n_all - 1)
    if scale <= 1e-14 * max(1.0, data.mean**2):
        variance[kept] = 0.0
        if balanced:
            anova[kept] = 0.0
        said.append("all verdicts are equal: every component is 0 and its percentage undefined")
    else:
        likelihood = _likelihood(data, kept)
        floor = np.zeros(len(kept))
        floor[-1] = _FLOOR * scale
        unit = np.array([level[k].max() + 1 for k in kept[:-1]] + [data.n_all]) / data.n_all
        if balanced:
            anova = _anova(data, kept, level)
        if balanced and (anova[kept] >= 0).all():
            method, theta = "anova", np.array(anova[kept])
            at = np.maximum(theta, floor)
        else:
            moments = np.linalg.solve(gram[np.ix_(kept, kept)], score[kept])
            start = np.maximum(moments, 0.01 * scale * unit)
            start[-1] = max(start[-1], 0.01 * scale)
            theta, converged = _maximise(likelihood, start, unit, floor, max_iter)
            # Without a residual, gradients at zero are lost in rounding: small values mean nothing there.
            zero = _ZERO if theta[-1] > floor[-1] else 1e-4
            theta[:-1][theta[:-1] < zero * scale] = 0.0
            at = theta.copy()
        if at[-1] <= floor[-1]:
            said.append(
                "the other components leave no residual variance: it is 0 and there are no standard errors"
            )
            theta[-1] = 0.0
        value, gradient, shift = likelihood.evaluate(at)
        mean = data.mean + shift
        log_likelihood = -0.5 * (value + (data.n_all - 1) * math.log(2 * math.pi))
        variance[kept] = theta
        if with_errors and at[-1] > floor[-1]:
            std_error[kept] = _std_errors(likelihood, at, gradient, 1e-3 * (at + unit * at[-1]), floor)
    if not converged:
        said.append(f"REML did not converge in {max_iter} iterations; the components are not final")
    whole = np.nansum(variance)
    percent = 100 * variance / whole if whole > 0 else np.full(variance.shape, np.nan)
    n_pairs, n_judges, n_formats, n_orders = data.levels
    return GStudy(
        component=COMPONENTS,
        variance=variance,
        percent=percent,
        std_error=std_error,
        anova=anova,
        reason=tuple(reason),
        mean=mean,
        n_pairs=n_pairs,
        n_judges=n_judges,
        n_formats=n_formats,
        n_orders=n_orders,
        n_verdicts=int(round(data.n_all)),
        n_cells=n_cells,
        n_invalid=data.n_left_out,
        confounded=confounded,
        balanced=balanced,
        method=method,
        log_likelihood=log_likelihood,
        converged=converged,
        notes=tuple(said),
    )


def _std_errors(
    likelihood: _Likelihood, theta: Floats, gradient: Floats, step: Floats, floor: Floats
) -> Floats:
    """From the inverse observed information of the components off their bound; NaN for the others."""
    free = theta > floor
    result = np.full(theta.size, np.nan)
    information = _hessian(likelihood, theta, gradient, step, central=True)[np.ix_(free, free)] / 2
    scale = np.sqrt(np.abs(np.diag(information)))
    if (scale > 0).all():
        scaled = information / np.outer(scale, scale)
        if np.linalg.eigvalsh(scaled).min() > 1e-10:
            result[free] = np.sqrt(np.diag(np.linalg.inv(scaled))) / scale
    return result
