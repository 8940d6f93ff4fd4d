"""The experiment: judges with the same C, phi, A and T whose errors fall on ever farther pairs, and their
rho.

Within a repetition all values of q share items, pairs, human votes, flips and noise, and the random keys of
the error placement (common random numbers): what differs between two rows of a sweep is where the errors
fall. Every number is measured from the verdicts, also those that are exact by construction.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rank.exceptions import InputError
from rank.parallel import map_tasks, one_thread
from rank.recovery import rank_correlations, spearman
from rank.resample import correlation_interval, draw_counts
from simulate.judges import JudgeSettings, PreparedJudge, SimulatedJudge, prepare_judge
from simulate.population import Population, draw_population, strength_differences

if TYPE_CHECKING:
    import pandas as pd

GOLDS = ("latent", "human")

#: Pseudo-wins per compared ordered pair in the Bradley-Terry fits of sparse designs: one vote on each of 40
#: pairs leaves some items without a win or a loss, and the fit without a maximum. Smaller than any vote.
FIT_ALPHA = 0.1

#: Long enough to be worth sending, short enough to share out evenly.
_REPETITIONS_PER_TASK = 5

#: Values of q when none are given.
DEFAULT_Q = (0.5,)

#: Published settings: `population` and `judge` hold what differs from the defaults.
PRESETS: dict[str, dict[str, Any]] = {
    "figure1": {
        "q_values": (0.1, 0.25, 0.4, 0.55, 0.7, 0.85),
        "n_reps": 200,
        "gold": "human",
        "population": {"n_items": 200, "design": "random", "n_pairs": 4000, "votes": 1},
        "judge": {
            "scheme": "spread",
            "judge": "errors",
            "agreement": 0.6,
            "flip_rate": 0.0,
            "repeatability": 1.0,
            "runs": 1,
        },
    },
}
PRESETS["figure2"] = {**PRESETS["figure1"], "judge": {**PRESETS["figure1"]["judge"], "judge": "blind-zone"}}

_RELIABILITY = (
    "n_pairs",
    "repeatability",
    "flip_rate",
    "swap_consistency",
    "inconsistent_pair_primacy",
    "accuracy",
    "decisive_accuracy",
    "trustworthy_rate",
    "trustworthy_rate_upper",
    "trustworthy_rate_joint",
    "accuracy_latent",
)
_RECOVERY = ("spearman", "kendall", "human_spearman")
_BLOCKS = ("close", "far")
_FIELDS = (
    *_RECOVERY,
    *_RELIABILITY,
    *(f"{block}_{name}" for block in _BLOCKS for name in _RELIABILITY),
)
_AT = {name: index for index, name in enumerate(_FIELDS)}
_SHOWN = (
    "accuracy",
    "repeatability",
    "flip_rate",
    "inconsistent_pair_primacy",
    "trustworthy_rate",
    "trustworthy_rate_upper",
    "trustworthy_rate_joint",
    "accuracy_latent",
)


@dataclass(frozen=True)
class Sweep:
    """Rows of a sweep, one per q, and the settings that made them.

    Attributes
    ----------
    settings : dict
        Everything that was asked, in field names of the rows and of `JudgeSettings`.
    rows : tuple of dict
        Per q: ``q``, ``spearman`` with ``spearman_low`` and ``spearman_high``, ``kendall``, ``accuracy``
        (against the human winners) with ``accuracy_sd``, ``repeatability``, ``flip_rate``,
        ``inconsistent_pair_primacy``, ``trustworthy_rate`` (NaN with one run: then ``trustworthy_rate_upper``
        says what perfect repeatability would give), ``trustworthy_rate_joint``, ``accuracy_latent`` (against
        theta), ``human_spearman``, and the blocks ``close``, ``far`` (gap buckets) and ``triads``. Means over
        repetitions; triads are those of the first.
    """

    settings: dict[str, Any]
    rows: tuple[dict[str, Any], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON shape: ``{"settings": {...}, "rows": [...]}``."""
        return {"settings": dict(self.settings), "rows": [dict(row) for row in self.rows]}

    def to_frame(self) -> pd.DataFrame:
        """Return one flat row per q; blocks become columns such as ``close_swap_consistency``."""
        import pandas as pd

        return pd.DataFrame([flatten_row(row) for row in self.rows])


def flatten_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with its blocks turned into prefixed fields.

    Examples
    --------
    >>> flatten_row({"q": 0.5, "close": {"n_pairs": 3}})
    {'q': 0.5, 'close_n_pairs': 3}
    """
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            flat.update({f"{key}_{name}": part for name, part in value.items()})
        else:
            flat[key] = value
    return flat


def sweep(
    q_values: Iterable[float] = DEFAULT_Q,
    *,
    n_reps: int = 1,
    judge: JudgeSettings | None = None,
    population: Mapping[str, Any] | None = None,
    gold: str = "latent",
    n_resamples: int = 500,
    rng: np.random.Generator | int | None = None,
    n_jobs: int = 1,
    dask: Any = None,
    progress: Callable[[Iterable[Any]], Iterable[Any]] | None = None,
) -> Sweep:
    """Simulate judges over values of q.

    Parameters
    ----------
    q_values : iterable of float
        Where errors fall; one row each, in the given order.
    n_reps : int
        Repetitions; each draws its own items, people and judge.
    judge : JudgeSettings, optional
        What all judges have in common.
    population : mapping, optional
        Keyword arguments of `simulate.population.draw_population`.
    gold : {"latent", "human"}
        What rho and tau are measured against: the strengths theta, or the ranking from the human votes.
    n_resamples : int
        Bootstrap resamples of the interval when there is one repetition; 0 for none (bounds are NaN).
    rng : Generator or int, optional
        Every repetition gets its own child: rows do not depend on `n_jobs`, on the other values of q, nor on
        later repetitions.
    n_jobs : int
        Processes.
    dask : str or distributed.Client, optional
        Scheduler of a Dask cluster to use instead; see `rank.parallel.map_tasks`.
    progress : callable, optional
        Wrapped around the iteration over repetitions, such as `rank.command.progress`.

    Returns
    -------
    Sweep
        ``spearman_low`` and ``spearman_high`` are the 2.5 and 97.5 percentiles over repetitions. With one
        repetition they are a 95 % interval from a bootstrap over pairs: the standard error of atanh(rho) over
        resamples, around the estimate (rho of a resample is biased towards 0, so its percentiles would not be
        centred on the estimate).

    Raises
    ------
    InputError
        When a setting is out of range or a request is impossible.

    Notes
    -----
    When all pairs are compared the ranking is that of the scores (a balanced round robin has the
    Bradley-Terry order). Sparse designs are ranked by Bradley-Terry strengths fitted with ``alpha =
    FIT_ALPHA``, the human votes too.

    Examples
    --------
    >>> result = sweep([-1.0, 1.0], n_reps=2, population={"n_items": 40}, rng=1)
    >>> [round(row["trustworthy_rate"], 3) for row in result.rows]
    [0.475, 0.475]
    >>> result.rows[0]["spearman"] > 0.5 > result.rows[1]["spearman"]
    True
    """
    values = [float(q) for q in q_values]
    if not values:
        raise InputError("no value of q was given; give at least one")
    if n_reps < 1:
        raise InputError(f"reps must be at least 1, found {n_reps}")
    if n_jobs < 1:
        raise InputError(f"jobs must be at least 1, found {n_jobs}")
    if gold not in GOLDS:
        raise InputError(f"gold must be one of {', '.join(GOLDS)}; found {gold!r}")
    settings = JudgeSettings() if judge is None else judge
    asked = dict(population or {})
    children = np.random.default_rng(rng).spawn(n_reps)

    first = _prepare(children[0], asked, settings)
    lots = int(children[0].spawn(1)[0].integers(2**63))
    bounds = n_resamples if n_reps == 1 else 0
    _keep_memory()
    with one_thread():  # as in every task, so that no sum depends on where it is taken
        repetition = _measure_repetition(first, values, gold)
    repetitions = itertools.chain(
        [repetition],
        _repeat(children[1:], asked, settings, values, gold, n_jobs, dask),
    )
    table = np.stack(list(progress(repetitions) if progress else repetitions))  # (n_reps, n_q, fields)

    rows = []
    for index, q in enumerate(values):
        answer = first.answer(q)
        if n_reps > 1:
            low, high = _percentiles(table[:, index, _AT["spearman"]])
        elif bounds:
            # The same resamples for every q, so that rows differ by their errors only.
            low, high = bootstrap_spearman(
                answer, gold=gold, n_resamples=bounds, rng=np.random.default_rng(lots)
            )
        else:
            low = high = np.nan
        rows.append(_build_row(q, _mean(table[:, index]), table[:, index], low, high, _count_triads(answer)))
    interval = "repetitions" if n_reps > 1 else "bootstrap over pairs" if bounds else "none"
    people = first.population
    return Sweep(
        settings={
            "n_items": people.n_items,
            "n_pairs": people.n_pairs,
            "design": people.design,
            "fit_alpha": FIT_ALPHA if people.design != "all" else 0.0,
            "strengths": people.strengths,
            "spread": people.spread,
            "human": people.human,
            "votes": people.votes,
            "gold": gold,
            **asdict(settings),
            "n_reps": n_reps,
            "spearman_interval": interval,
            "triads_of": "first repetition" if n_reps > 1 else "the judge",
        },
        rows=tuple(rows),
    )


def first_repetition(
    *,
    judge: JudgeSettings | None = None,
    population: Mapping[str, Any] | None = None,
    rng: np.random.Generator | int | None = None,
) -> PreparedJudge:
    """Return the first repetition of the sweep with the same settings and seed, to look at or to write out.

    Examples
    --------
    >>> first = first_repetition(population={"n_items": 40}, rng=1)
    >>> int(first.answer(-1.0).errors.sum()), int(first.answer(1.0).errors.sum())
    (234, 234)
    """
    child = np.random.default_rng(rng).spawn(1)[0]
    return _prepare(child, population or {}, JudgeSettings() if judge is None else judge)


def _prepare(rng: np.random.Generator, population: Mapping[str, Any], judge: JudgeSettings) -> PreparedJudge:
    people_rng, judge_rng = rng.spawn(2)
    return prepare_judge(draw_population(**population, rng=people_rng), judge, rng=judge_rng)


def _repeat(
    children: Sequence[np.random.Generator],
    population: Mapping[str, Any],
    judge: JudgeSettings,
    q_values: Sequence[float],
    gold: str,
    n_jobs: int,
    dask: Any,
) -> Iterator[npt.NDArray[np.float64]]:
    """Measure further repetitions here or on workers; the order is that of the children."""
    measure = partial(_measure_chunk, population=population, judge=judge, q_values=tuple(q_values), gold=gold)
    size = 1 if n_jobs == 1 and dask is None else _REPETITIONS_PER_TASK
    chunks = [children[start : start + size] for start in range(0, len(children), size)]
    for part in map_tasks(measure, chunks, n_jobs=n_jobs, dask=dask):
        yield from part


def _keep_memory() -> None:
    """Free one large untouched block: glibc then keeps memory of arrays below that size for the next arrays.

    Otherwise every array of a sweep is mapped and cleared by the system anew, a quarter of the running time.
    """
    np.empty(30 * 2**20, dtype=np.int8)


def _measure_chunk(
    children: Sequence[np.random.Generator],
    population: Mapping[str, Any],
    judge: JudgeSettings,
    q_values: Sequence[float],
    gold: str,
) -> list[npt.NDArray[np.float64]]:
    _keep_memory()
    return [_measure_repetition(_prepare(child, population, judge), q_values, gold) for child in children]


def _measure_repetition(
    prepared: PreparedJudge, q_values: Sequence[float], gold: str
) -> npt.NDArray[np.float64]:
    """Measure one repetition for all q, shape (n_q, fields).

    Judges of one preparation differ from the one without errors on their wrong pairs only: counts and scores
    are those of that judge, and what the wrong pairs change.
    """
    people, runs = prepared.population, int(prepared.settings.runs)
    wrong = [prepared.place_wrong(q) for q in q_values]
    wins = prepared.wins_i[0] + prepared.wins_i[1].astype(np.int64)
    strengths = _strengths_with_errors(people, wins, 2 * runs, wrong)
    human = _strengths(people, people.human_votes_i[None], people.votes)

    rho, tau = rank_correlations(np.concatenate([strengths, human]), people.theta)
    human_spearman = np.full(len(wrong), rho[-1])
    if gold == "human":
        rho, tau = rank_correlations(strengths, human[0])
    recovery = np.stack([rho[: len(wrong)], tau[: len(wrong)], human_spearman], axis=1)
    reliability = _measure_reliability(_count_kinds(_find_kinds(prepared), wrong), runs)
    return np.concatenate([recovery, reliability], axis=1)


def _find_kinds(prepared: PreparedJudge) -> npt.NDArray[np.int16]:
    """Return the kind of every pair (see `_facts_of_kinds`) for the judge without errors, shape (m,)."""
    people, runs = prepared.population, int(prepared.settings.runs)
    low, high = _bucket_edges(people)
    kind = people.human_i * np.int16(16)
    kind += (people.difference > 0) * np.int16(32)
    kind += (people.difference == 0) * np.int16(64)
    kind += (people.gap <= low) * np.int16(128)
    kind += (people.gap >= high) * np.int16(256)
    for order, wins in enumerate(prepared.wins_i):
        kind += (wins > runs // 2) * np.int16(1 + order)
        kind += ((wins == 0) | (wins == runs)) * np.int16(4 + 4 * order)
    return kind


def _count_kinds(
    kind: npt.NDArray[np.int16], wrong: Sequence[npt.NDArray[np.int64]]
) -> npt.NDArray[np.int64]:
    """Return how many pairs of each kind every judge has, shape (n_judges, 512).

    Parameters
    ----------
    kind : ndarray, shape (m,)
        Kinds for the judge without errors.
    wrong : sequence of ndarray
        Positions of the wrong pairs of each judge.
    """
    moved = np.stack([np.bincount(kind.take(positions), minlength=512) for positions in wrong])
    # A wrong pair is won by the other item in both orders: the first two bits turn.
    return np.bincount(kind, minlength=512) - moved + moved[:, np.arange(512) ^ 3]


def _facts_of_kinds() -> npt.NDArray[np.float64]:
    """Return what follows from the kind of a pair, shape (512, 8); see `_measure_reliability`.

    The kind is a number of nine bits: item i is the modal winner in order 0 (1) and in order 1 (2), order 0
    (4) and order 1 (8) are unanimous, item i is the human winner (16) and the stronger one (32), the
    strengths are equal (64), the pair is close (128), or far (256).
    """
    bits = (np.arange(512)[:, None] >> np.arange(9)) & 1
    modal, unanimous = bits[:, :2], bits[:, 2:4]
    human, latent, level = bits[:, 4:5], bits[:, 5:6], bits[:, 6:7]
    decided = modal[:, 0] == modal[:, 1]
    right = modal == human
    solid = decided & right[:, 0]
    facts = (
        np.ones(512),
        ~decided,
        ~decided & (modal[:, 0] == 1),  # the first slot wins in both orders
        right.sum(axis=1),
        solid,
        unanimous.sum(axis=1),
        solid * unanimous.sum(axis=1),
        ((modal == latent) & (level == 0)).sum(axis=1),  # a tie in gold is matched by ties only
    )
    return np.stack(facts, axis=1).astype(float)


_KINDS = _facts_of_kinds()
#: All pairs, close ones, far ones.
_BUCKETS = np.stack([np.arange(512) >= 0, np.arange(512) & 128 > 0, np.arange(512) & 256 > 0]).astype(float)


def _measure_reliability(n_kinds: npt.NDArray[np.int64], runs: int) -> npt.NDArray[np.float64]:
    """Measure all of `_RELIABILITY`, for all pairs and then for each bucket.

    Verdicts are forced and binary with a clear mode in every condition, so a pair is one of 512 kinds, and
    every rate of `difficulty.reliability` follows from how many pairs there are of each.

    Parameters
    ----------
    n_kinds : ndarray, shape (n_judges, 512)
    runs : int

    Returns
    -------
    ndarray, shape (n_judges, 3 len(_RELIABILITY))
    """
    chosen = n_kinds[:, None] * _BUCKETS  # whole numbers far below 2**53: exact in floating point
    m, flipped, lean_first, right, solid, same, joint, latent = np.moveaxis(chosen @ _KINDS, -1, 0)
    unseen = np.full(m.shape, np.nan)
    repeatability = _share(same, 2 * m) if runs >= 2 else unseen
    upper = _share(solid, m)  # A - phi q_u: pairs that do not flip and are right
    values = (
        m,
        repeatability,
        _share(flipped, m),
        _share(m - flipped, m),
        _share(lean_first, flipped),
        _share(right, 2 * m),
        _share(solid, m - flipped),
        repeatability * upper,
        upper,
        _share(joint, 2 * m) if runs >= 2 else unseen,
        _share(latent, 2 * m),
    )
    return np.stack(values, axis=-1).reshape(len(n_kinds), -1)


def _share(part: npt.NDArray[np.float64], whole: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.divide(part, whole, out=np.full(whole.shape, np.nan), where=whole > 0)


def _bucket_edges(people: Population) -> tuple[float, float]:
    """Return the bounds of close (gap <= Q1) and far (gap >= Q3) over all pairs of the items.

    Nothing is close or far when the two coincide.
    """
    # As np.quantile(gaps, [0.25, 0.75]), for which numpy needs four times as long.
    if people.is_round_robin:
        gaps, order = people.gap, people.gap_order
    else:
        i, j = np.triu_indices(people.n_items, 1)
        gaps = np.abs(strength_differences(people.theta, i, j))
        order = np.argsort(gaps)
    place = np.array([0.25, 0.75]) * (len(gaps) - 1)
    below = place.astype(int)
    lower, upper = gaps[order[below]], gaps[order[np.minimum(below + 1, len(gaps) - 1)]]
    low, high = lower + (place - below) * (upper - lower)
    return (float(low), float(high)) if low < high else (-np.inf, np.inf)


def _strengths(people: Population, wins_i: npt.NDArray[np.int64], total: int) -> npt.NDArray[np.float64]:
    """Return something that ranks the items as Bradley-Terry strengths do, shape (k, n).

    Parameters
    ----------
    people : Population
    wins_i : ndarray, shape (k, m)
        Wins of item i in each pair, for k judges at once.
    total : int
        Verdicts per pair.
    """
    if people.is_round_robin:
        # Pairs are sorted by item i; `turned` sorts them by item j.
        starts_i, turned, starts_j = _segments(people.n_items)
        scores = np.zeros((len(wins_i), people.n_items))
        for score, wins in zip(scores, wins_i):
            score[:-1] = np.add.reduceat(wins, starts_i)
            score[1:] += np.add.reduceat(total - wins.take(turned), starts_j)
        return scores
    return fitted_strengths(people, wins_i, total)


def _strengths_with_errors(
    people: Population,
    wins_i: npt.NDArray[np.int64],
    total: int,
    wrong: Sequence[npt.NDArray[np.int64]],
) -> npt.NDArray[np.float64]:
    """Return `_strengths` of judges with wins `wins_i` (m,) but for their wrong pairs, shape (n_judges, n)."""
    gain = total - 2 * wins_i
    if not people.is_round_robin:
        answers = np.tile(wins_i, (len(wrong), 1))
        for wins, positions in zip(answers, wrong):
            wins[positions] += gain[positions]
        return _strengths(people, answers, total)
    scores = np.tile(_strengths(people, wins_i[None], total), (len(wrong), 1))
    for score, positions in zip(scores, wrong):
        change = gain.take(positions)
        score += np.bincount(people.item_i.take(positions), change, people.n_items)
        score -= np.bincount(people.item_j.take(positions), change, people.n_items)
    return scores


@lru_cache(maxsize=4)
def _segments(n: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return where the pairs of each item start in the list of all pairs sorted by i, and sorted by j."""
    item_i, item_j = np.triu_indices(n, 1)
    turned = np.lexsort((item_i, item_j))
    items = np.arange(n)
    return item_i.searchsorted(items[:-1]), turned, item_j[turned].searchsorted(items[1:])


def _wins(answer: SimulatedJudge) -> npt.NDArray[np.int64]:
    """Return the wins of item i over both orders and all runs, shape (m,)."""
    return answer.wins_i[:, 0].astype(np.int64) + answer.wins_i[:, 1]


def fitted_strengths(
    people: Population, wins_i: npt.NDArray[np.int64], total: int | npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Return Bradley-Terry strengths of k judges, shape (k, n), fitted with ``alpha = FIT_ALPHA``."""
    from rank.bradley_terry import fit_bradley_terry

    # Added here, so that a pair which a resample leaves out keeps its pseudo-wins and the design its connections.
    counts = np.stack([wins_i + FIT_ALPHA, total - wins_i + FIT_ALPHA, np.zeros(wins_i.shape)], axis=-1)
    fit = fit_bradley_terry(
        people.item_i,
        people.item_j,
        counts,
        n_items=people.n_items,
        std_errors="none",
        components="separate",
        order_axis=False,
    )
    # Strengths that are equal but for rounding must tie, or ranks would depend on the order of summation.
    return np.round(fit.strengths, 7)


def bootstrap_spearman(
    answer: SimulatedJudge,
    *,
    gold: str = "latent",
    n_resamples: int = 500,
    rng: np.random.Generator | int | None = None,
) -> tuple[float, float]:
    """Return a 95 % interval of rho for one judge, from a bootstrap over pairs.

    Both orders and all runs of a pair move together; the rule is that of `rank.resample.correlation_interval`.

    Parameters
    ----------
    answer : SimulatedJudge
    gold : {"latent", "human"}
        With "human", votes are resampled together with the verdicts on the same pairs.
    n_resamples : int
        At least 2.
    rng : Generator or int, optional

    Returns
    -------
    low, high : float
        NaN when rho is undefined.
    """
    if n_resamples < 2:
        raise InputError(f"an interval needs at least 2 resamples, found {n_resamples}")
    people, total = answer.population, 2 * int(answer.settings.runs)
    wins = _wins(answer)
    rng = np.random.default_rng(rng)
    seed = int(rng.integers(2**63))
    judged = _resampled_strengths(people, wins, total, n_resamples, seed)
    if gold == "human":
        reference = _resampled_strengths(people, people.human_votes_i, people.votes, n_resamples, seed)
        target = _strengths(people, people.human_votes_i[None], people.votes)[0]
    else:
        reference = target = people.theta
    estimate = spearman(_strengths(people, wins[None], total)[0], target)
    resampled = spearman(judged, reference)
    if np.isnan(estimate) or np.isnan(resampled).any():
        return np.nan, np.nan
    interval = correlation_interval(resampled, estimate, people.n_items)
    return float(interval.low), float(interval.high)


def _resampled_strengths(
    people: Population, wins_i: npt.NDArray[np.int64], total: int, n_resamples: int, seed: int
) -> npt.NDArray[np.float64]:
    """Return strengths of resamples of pairs, shape (B, n); equal seeds, equal pairs.

    With at least eight partners per item, one Newton step from the strengths of the full data, which is exact
    to first order in the weights (the standard error of rho is that of fits, within a few per cent). Below,
    fits.
    """
    n, i, j = people.n_items, people.item_i, people.item_j
    rng, m = np.random.default_rng(seed), people.n_pairs
    pairs = np.arange(m)
    if 2 * m < 8 * n:
        weights = draw_counts(n_resamples, pairs, m, rng)
        return fitted_strengths(people, weights * wins_i, weights * total)
    strengths = fitted_strengths(people, wins_i[None], total)[0]
    p = 1.0 / (1.0 + np.exp(strengths[j] - strengths[i]))
    information = np.zeros((n, n))
    information[i, j] = information[j, i] = -(total + 2 * FIT_ALPHA) * p * (1.0 - p)
    np.fill_diagonal(information, -information.sum(axis=1))
    # At the maximum the gradient is zero, so only the change of the weights is left of it.
    residual = wins_i - total * p
    gradient = np.empty((n_resamples, n))
    for row in gradient:
        excess = (draw_counts(1, pairs, m, rng)[0] - 1) * residual
        row[:] = np.bincount(i, excess, n) - np.bincount(j, excess, n)
    # The information is singular along constants on every connected part of the design. Gradients sum to zero
    # there, so a touch of ridge solves without moving anything; ranks do not see a constant on all items.
    scale = information.trace() / n
    information[np.diag_indices(n)] += 1e-8 * scale
    return strengths + np.linalg.solve(information + scale / n, gradient.T).T


def _count_triads(answer: SimulatedJudge) -> dict[str, Any]:
    """Return exact triad counts and shares of one judge."""
    from difficulty.triads import TRIAD_COLUMNS, TRIAD_SHARES, count_triads, pair_verdicts

    people = answer.population
    verdict = pair_verdicts(answer.counts)
    triads = count_triads(people.item_i, people.item_j, verdict, n_items=people.n_items, score=people.theta)
    return {name: getattr(triads, name) for name in (*TRIAD_COLUMNS, *TRIAD_SHARES)}


def _mean(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the mean over repetitions where a value is defined; NaN where it never is."""
    defined = ~np.isnan(values)
    number = defined.sum(axis=0)
    # Around one of the values, so that the mean of equal values is that value.
    pivot = np.take_along_axis(values, defined.argmax(axis=0)[None], axis=0)[0]
    total = np.where(defined, values - pivot, 0.0).sum(axis=0)
    return np.where(number > 0, pivot + total / np.maximum(number, 1), np.nan)


def _percentiles(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    defined = values[~np.isnan(values)]
    if not len(defined):
        return np.nan, np.nan
    low, high = np.quantile(defined, [0.025, 0.975])
    return float(low), float(high)


def _build_row(
    q: float,
    mean: npt.NDArray[np.float64],
    repetitions: npt.NDArray[np.float64],
    low: float,
    high: float,
    triads: dict[str, Any],
) -> dict[str, Any]:
    def value(name: str) -> float:
        return float(mean[_AT[name]])

    accuracy = repetitions[:, _AT["accuracy"]]
    row: dict[str, Any] = {
        "q": q,
        "spearman": value("spearman"),
        "spearman_low": low,
        "spearman_high": high,
        "kendall": value("kendall"),
        **{name: value(name) for name in _SHOWN},
        "accuracy_sd": float(accuracy.std(ddof=1)) if len(accuracy) > 1 else np.nan,
        "human_spearman": value("human_spearman"),
    }
    for block in _BLOCKS:
        row[block] = {name: value(f"{block}_{name}") for name in _RELIABILITY}
        if (n_pairs := row[block]["n_pairs"]).is_integer():  # a mean over repetitions need not be
            row[block]["n_pairs"] = int(n_pairs)
    row["triads"] = triads
    return row
