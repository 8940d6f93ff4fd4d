"""Which calls to pay for: rho against the number of pairs, orders and runs, for an assumed judge.

Every repetition draws the items, the people and one judge that answers all pairs in both orders and all runs; the
designs are parts of these answers. So designs differ by what they leave out and by nothing else (common random
numbers): a design with one order asks, for every pair, the order that a coin chose once; a design with fewer runs
asks the first of a fixed sequence of runs, in which the dissenting ones stand at random places; only the pairs of
two degrees are drawn independently, each a random graph in which every item has the same number of partners.

C, phi and A hold exactly for all pairs in both orders and all runs, and in expectation for a part of them. With one
order a pair that the judge answers by slot is won by the item that happened to be first: position bias turns into
noise, which more pairs average out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rank.dense import fit_scores
from rank.exceptions import InputError
from rank.parallel import map_tasks
from rank.recovery import spearman
from rank.resample import wilson_interval
from simulate.judges import JudgeSettings, SimulatedJudge, prepare_judge
from simulate.population import draw_population
from simulate.sweep import FIT_ALPHA

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]

DEFAULT_TARGET = 0.9
DEFAULT_PROBABILITY = 0.9
DEFAULT_REPS = 100

#: Repetitions of one task. They share the graphs of the sparse designs, each under item labels of its own.
REPETITIONS_PER_TASK = 5

#: Degrees tried when none are given.
_DEGREES = 8

#: Fits with more items or fewer partners than this go to the general engine: its work grows with the pairs, and
#: the steps of the dense one do not settle on few partners.
_DENSE_ITEMS = 600
_DENSE_FROM = 6

#: Partners per item from which the repetitions of a task are fitted together.
_BATCHED_FROM = 10

#: Strengths closer than this (nats) tie, as in `simulate.sweep.fitted_strengths`.
_DECIMALS = 7


@dataclass(frozen=True)
class Design:
    """What is asked of a judge: partners per item, orders per pair (1 or 2), runs per order."""

    pairs_per_item: int
    orders: int
    runs: int


@dataclass(frozen=True)
class Plan:
    """Expected recovery of every design, and the cheapest that reaches the target.

    Attributes
    ----------
    settings : dict
        Everything that was asked.
    rows : tuple of dict
        Per design, cheapest first: ``pairs_per_item`` (``n_contexts`` in a plan over contexts), ``n_pairs``,
        ``orders``, ``runs``, ``calls`` (the product of these three), ``spearman`` (mean over repetitions) with its
        2.5 and 97.5 percentiles ``spearman_low`` and ``spearman_high``, ``spearman_assured`` (the rho that is reached
        with the asked probability: that quantile),
        ``reach_probability`` (share of repetitions with rho of at least the target) with its 95 % Wilson interval
        ``reach_low`` and ``reach_high``, and ``n_undefined`` repetitions without a rho, which count as not
        reaching the target.
    chosen : dict or None
        The cheapest row whose `reach_probability`, the point estimate, is at least the asked probability; of equally
        cheap ones the most probable.
    assured : dict or None
        The cheapest row whose whole Wilson interval is.
    complete : dict
        The row of all pairs in both orders with all runs, whether it was among the designs or not: more cannot be
        asked of this judge. In a plan over contexts, as many contexts as the file has, and its orders and runs.
    own : dict or None
        The row of the design of the judge that was followed, if there is one (`own_design`).
    """

    settings: dict[str, Any]
    rows: tuple[dict[str, Any], ...]
    chosen: dict[str, Any] | None
    assured: dict[str, Any] | None
    complete: dict[str, Any]
    own: dict[str, Any] | None

    @property
    def best(self) -> dict[str, Any]:
        """The row that reaches the target most often, then the highest rho, then the cheapest.

        Where no design reaches the target as often as asked, how often each happens to says little: then it is the
        row of the highest expected rho, of equal ones the cheapest.
        """

        def goodness(row: dict[str, Any]) -> tuple[float, float, float]:
            rho = row["spearman"] if row["spearman"] == row["spearman"] else -np.inf
            return (row["reach_probability"] if self.chosen else 0.0, rho, -row["calls"])

        return max(self.rows, key=goodness)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON shape: settings, rows and the four rows that stand out."""
        return {
            "settings": dict(self.settings),
            "rows": [dict(row) for row in self.rows],
            "chosen": self.chosen,
            "assured": self.assured,
            "best": self.best,
            "complete": self.complete,
            "own_design": self.own,
        }

    def to_frame(self) -> pd.DataFrame:
        """Return one row per design."""
        import pandas as pd

        return pd.DataFrame(list(self.rows))


def default_degrees(n_items: int) -> tuple[int, ...]:
    """Return about eight numbers of partners, evenly spaced on a log scale, the largest of them all partners.

    Examples
    --------
    >>> default_degrees(200)
    (6, 10, 16, 27, 44, 73, 121, 199)
    >>> default_degrees(6)
    (3, 4, 5)
    """
    largest = n_items - 1
    steps = np.geomspace(min(6 if n_items > 60 else 3, largest), largest, _DEGREES)
    return tuple(sorted({round(step) for step in steps.tolist()}))


def default_runs(runs: int) -> tuple[int, ...]:
    """Return the numbers of runs to try: one, about half, all.

    Examples
    --------
    >>> default_runs(5), default_runs(1)
    ((1, 3, 5), (1,))
    """
    return tuple(sorted({1, (runs + 1) // 2, runs}))


def plan_designs(
    q: float = 0.0,
    *,
    judge: JudgeSettings | None = None,
    population: Mapping[str, Any] | None = None,
    pairs_per_item: Iterable[int] | None = None,
    orders: Iterable[int] = (1, 2),
    runs: Iterable[int] | None = None,
    target: float = DEFAULT_TARGET,
    probability: float = DEFAULT_PROBABILITY,
    n_reps: int = DEFAULT_REPS,
    own_design: Design | None = None,
    rng: np.random.Generator | int | None = None,
    n_jobs: int = 1,
    dask: Any = None,
    progress: Callable[[Iterable[Any]], Iterable[Any]] | None = None,
) -> Plan:
    """Simulate a judge over call designs and find the cheapest that reaches a target rho.

    Parameters
    ----------
    q : float
        Where the errors of the judge fall, -1 (close pairs) to 1 (far pairs).
    judge : JudgeSettings, optional
        The assumed judge; C is defined on its ``runs``.
    population : mapping, optional
        Keyword arguments of `simulate.population.draw_population`, without a design: the judge answers all pairs.
    pairs_per_item, orders, runs : iterables of int, optional
        Designs to try: all their combinations. Default: `default_degrees`, both numbers of orders, `default_runs`.
    target : float
        Rho to reach, against the strengths.
    probability : float
        With which probability.
    n_reps : int
        Repetitions, at least 2.
    own_design : Design, optional
        One more design whose row is returned beside the others, as a check of a fitted judge.
    rng : Generator or int, optional
        Repetition k uses the streams of repetition k of `simulate.sweep.sweep` with the same seed, so that the
        complete design has the rho of the sweep.
    n_jobs : int
        Processes; numbers do not depend on it.
    dask : str or distributed.Client, optional
        Scheduler of a Dask cluster to use instead; see `rank.parallel.map_tasks`.
    progress : callable, optional
        Wrapped around the iteration over repetitions, such as `rank.command.progress`.

    Returns
    -------
    Plan

    Raises
    ------
    InputError
        When a setting is out of range, or a design asks for more partners or runs than there are.

    Notes
    -----
    The complete design is ranked by score, which is the Bradley-Terry order of a balanced round robin. Sparse
    designs are ranked by Bradley-Terry strengths with ``alpha = simulate.sweep.FIT_ALPHA`` pseudo-wins per compared
    ordered pair, without which an item that wins or loses all of its few pairs would have no finite strength.

    Examples
    --------
    >>> plan = plan_designs(-0.5, population={"n_items": 30}, pairs_per_item=[4, 29], runs=[1], n_reps=4, rng=1)
    >>> [(row["n_pairs"], row["orders"], row["calls"]) for row in plan.rows]
    [(60, 1, 60), (60, 2, 120), (435, 1, 435), (435, 2, 870)]
    >>> plan.rows[0]["spearman"] < plan.rows[-1]["spearman"]
    True
    """
    settings = JudgeSettings() if judge is None else judge
    people = dict(population or {})
    check_goal(target, probability, n_reps, n_jobs)
    if given := {"design", "n_pairs", "pairs_per_item"} & set(people):
        raise InputError(
            f"the population of a plan has no {sorted(given)[0]}: the designs to try say which pairs to ask"
        )
    children = np.random.default_rng(rng).spawn(n_reps)
    n_items = len(people["theta"]) if people.get("theta") is not None else 200
    if people.get("n_items") is not None:
        n_items = int(people["n_items"])
    if n_items < 3:
        raise InputError(f"a plan needs at least 3 items, found {n_items}")
    degrees = whole_numbers("pairs per item", pairs_per_item or default_degrees(n_items), 1, n_items - 1)
    order_numbers = whole_numbers("orders", orders, 1, 2)
    run_numbers = whole_numbers("runs", runs or default_runs(settings.runs), 1, settings.runs)
    grid = [Design(d, o, r) for d in degrees for o in order_numbers for r in run_numbers]
    complete = Design(n_items - 1, 2, int(settings.runs))
    asked = list(dict.fromkeys([*grid, complete, *([own_design] if own_design else [])]))

    tasks = [
        _Task(tuple(children[start : start + REPETITIONS_PER_TASK]), float(q), settings, people, tuple(asked))
        for start in range(0, n_reps, REPETITIONS_PER_TASK)
    ]
    repetitions = (row for part in map_tasks(_measure, tasks, n_jobs=n_jobs, dask=dask) for row in part)
    rho = np.stack(list(progress(repetitions) if progress else repetitions))  # (n_reps, designs)

    row_of = {
        design: recovery_row(_fields(design, n_items), rho[:, index], target, probability)
        for index, design in enumerate(asked)
    }
    rows = sorted((row_of[d] for d in grid), key=lambda row: (row["calls"], row["n_pairs"], row["orders"]))
    sample = draw_population(**{**people, "design": "all"}, rng=0)
    return Plan(
        settings={
            "n_items": n_items,
            "strengths": sample.strengths,
            "spread": sample.spread,
            "human": sample.human,
            "votes": sample.votes,
            "gold": "latent",
            "q": float(q),
            **asdict(settings),
            "target": target,
            "probability": probability,
            "n_reps": n_reps,
        },
        rows=tuple(rows),
        chosen=cheapest_row(rows, "reach_probability", probability),
        assured=cheapest_row(rows, "reach_low", probability),
        complete=row_of[complete],
        own=row_of[own_design] if own_design else None,
    )


def check_goal(target: float, probability: float, n_reps: int, n_jobs: int) -> None:
    """Refuse what no plan can aim at, in a sentence."""
    if not -1.0 < target <= 1.0:
        raise InputError(f"target must be a rho above -1 and at most 1, found {target}")
    if not 0.0 < probability < 1.0:
        raise InputError(f"probability must lie between 0 and 1, found {probability}")
    if n_reps < 2:
        raise InputError(f"a plan needs at least 2 repetitions, found {n_reps}; 100 or more are sensible")
    if n_jobs < 1:
        raise InputError(f"jobs must be at least 1, found {n_jobs}")


def whole_numbers(name: str, values: Iterable[int], least: int, most: int) -> list[int]:
    """Return distinct whole numbers in increasing order, all of them inside the bounds."""
    numbers = sorted({int(value) for value in values})
    if not numbers:
        raise InputError(f"no number of {name} was given; give at least one")
    if wrong := [number for number in numbers if not least <= number <= most]:
        hint = "; the judge answers no more, raise its runs" if name == "runs" and wrong[-1] > most else ""
        raise InputError(f"{name} must be between {least} and {most}, found {wrong[-1]}{hint}")
    return numbers


def _fields(design: Design, n_items: int) -> dict[str, Any]:
    n_pairs = n_items * design.pairs_per_item // 2
    return {
        "pairs_per_item": design.pairs_per_item,
        "n_pairs": n_pairs,
        "orders": design.orders,
        "runs": design.runs,
        "calls": n_pairs * design.orders * design.runs,
    }


def recovery_row(fields: Mapping[str, Any], rho: Floats, target: float, probability: float) -> dict[str, Any]:
    """Return the row of a design: its `fields`, and what its repetitions (R,) say; see `Plan.rows`."""
    defined = rho[~np.isnan(rho)]
    reached = int(np.count_nonzero(defined >= target - 1e-12))
    low, high = wilson_interval(np.array([reached]), np.array([len(rho)]))
    nan = float("nan")
    spread = np.quantile(defined, [0.025, 0.975]).tolist() if len(defined) else [nan, nan]
    # Undefined ones are the worst. The quantile itself was observed, so that it agrees with the count above.
    ranked = np.sort(np.where(np.isnan(rho), -np.inf, rho))[::-1]
    assured = float(ranked[int(np.ceil(probability * len(rho) - 1e-9)) - 1])
    return {
        **fields,
        "spearman": float(defined.mean()) if len(defined) else nan,
        "spearman_low": spread[0],
        "spearman_high": spread[1],
        "spearman_assured": assured if np.isfinite(assured) else nan,
        "reach_probability": reached / len(rho),
        "reach_low": float(low[0]),
        "reach_high": float(high[0]),
        "n_undefined": len(rho) - len(defined),
    }


def cheapest_row(rows: Sequence[dict[str, Any]], name: str, least: float) -> dict[str, Any] | None:
    """Return the cheapest row with at least so much of a probability, of equal ones the most probable."""
    enough = [row for row in rows if row[name] >= least - 1e-12]
    return min(enough, key=lambda row: (row["calls"], -row["reach_probability"]), default=None)


@dataclass(frozen=True)
class _Task:
    children: tuple[np.random.Generator, ...]
    q: float
    settings: JudgeSettings
    population: dict[str, Any]
    designs: tuple[Design, ...]


def _measure(task: _Task) -> list[Floats]:
    """Return rho of every design, one array (designs,) per repetition."""
    answers, labels, parts = [], [], []
    totals = sorted({(d.orders, d.runs) for d in task.designs})
    graph_rng: np.random.Generator | None = None
    for child in task.children:
        # The first two streams are those of a sweep.
        people_rng, judge_rng, ask_rng, label_rng, own_rng = child.spawn(5)
        graph_rng = own_rng if graph_rng is None else graph_rng
        people = draw_population(**{**task.population, "design": "all"}, rng=people_rng)
        answer = prepare_judge(people, task.settings, rng=judge_rng).answer(task.q)
        answers.append(answer)
        labels.append(label_rng.permutation(people.n_items))
        parts.append(wins_of_parts(answer, totals, rng=ask_rng))
    assert graph_rng is not None
    at = {total: index for index, total in enumerate(totals)}
    degrees = sorted({d.pairs_per_item for d in task.designs})
    rho = np.full((len(answers), len(task.designs)), np.nan)
    for degree, rng in zip(degrees, graph_rng.spawn(len(degrees))):
        found = _rho_of_degree(degree, answers, labels, parts, totals, rng)  # (repetitions, totals)
        for index, design in enumerate(task.designs):
            if design.pairs_per_item == degree:
                rho[:, index] = found[:, at[design.orders, design.runs]]
    return list(rho)


def wins_of_parts(
    answer: SimulatedJudge,
    parts: Sequence[tuple[int, int]],
    *,
    rng: np.random.Generator | int | None = None,
) -> npt.NDArray[np.int64]:
    """Return wins of item i when only a part of the calls is made.

    Parameters
    ----------
    answer : SimulatedJudge
        All pairs in both orders with all runs.
    parts : sequence of (orders, runs)
    rng : Generator or int, optional
        Chooses the order that is asked of each pair, and the places of the dissenting runs; parts are nested.

    Returns
    -------
    ndarray of int64, shape (len(parts), m)
        Out of orders times runs verdicts per pair.

    Examples
    --------
    >>> from simulate.judges import simulate_judge
    >>> answer = simulate_judge(draw_population(20, rng=1), 0.5, rng=2)
    >>> wins = wins_of_parts(answer, [(1, 1), (2, 5)], rng=3)
    >>> int(wins[0].max()), bool((wins[1] == answer.wins_i.sum(axis=1)).all())
    (1, True)
    """
    rng = np.random.default_rng(rng)
    full = int(answer.settings.runs)
    wins = answer.wins_i.astype(np.int64)  # (m, 2)
    asked = (rng.random(len(wins)) < 0.5).astype(np.int64)
    unstable = answer.unstable
    sequence = rng.permuted(np.arange(full) < wins[unstable][:, None], axis=1)
    won = np.cumsum(sequence, axis=1)
    result = np.empty((len(parts), len(wins)), dtype=np.int64)
    for index, (orders, runs) in enumerate(parts):
        some = np.where(wins > full // 2, runs, 0)
        some[unstable] = won[:, runs - 1]
        result[index] = some.sum(axis=1) if orders == 2 else some[np.arange(len(wins)), asked]
    return result


def _rho_of_degree(
    degree: int,
    answers: Sequence[SimulatedJudge],
    labels: Sequence[npt.NDArray[np.int64]],
    parts: Sequence[npt.NDArray[np.int64]],
    totals: Sequence[tuple[int, int]],
    rng: np.random.Generator,
) -> Floats:
    """Return rho, shape (repetitions, totals), of the designs with one number of partners per item."""
    n = answers[0].population.n_items
    verdicts = np.array([orders * runs for orders, runs in totals])
    if degree == n - 1:
        found = []
        for answer, wins in zip(answers, parts):
            people = answer.population
            scores = np.stack(
                [
                    np.bincount(people.item_i, won, n) + np.bincount(people.item_j, number - won, n)
                    for won, number in zip(wins, verdicts)
                ]
            )
            found.append(spearman(scores, people.theta))
        return np.stack(found)
    graph = draw_population(n, strengths="normal", human="deterministic", pairs_per_item=degree, rng=rng)
    left, right = graph.item_i, graph.item_j
    shares, theta = [], []
    for answer, label, wins in zip(answers, labels, parts):
        a, b = label[left], label[right]
        low, high = np.minimum(a, b), np.maximum(a, b)
        place = low * (2 * n - low - 1) // 2 + high - low - 1
        # Pseudo-wins added, and then one verdict per pair: scaling the counts of all pairs leaves the maximum where it is.
        share = (wins[:, place] + FIT_ALPHA) / (verdicts + 2 * FIT_ALPHA)[:, None]
        shares.append(np.where(a < b, share, 1.0 - share))
        theta.append(answer.population.theta[label])
    # Fits of a batch start from the fit of their mean, which is near all of them with many partners only.
    batches = [np.concatenate(shares)] if degree >= _BATCHED_FROM else shares
    values = np.concatenate([_fit_shares(left, right, batch, n) for batch in batches])
    values = values.reshape(len(answers), len(totals), n)
    return spearman(values, np.stack(theta)[:, None])


def _fit_shares(left: npt.NDArray[np.int64], right: npt.NDArray[np.int64], share: Floats, n: int) -> Floats:
    """Return Bradley-Terry strengths, shape (B, n), from shares of wins of the left items, shape (B, m)."""
    strengths = np.full((len(share), n), np.nan)
    left_out = np.arange(len(share))
    if n <= _DENSE_ITEMS and len(left) >= _DENSE_FROM * n / 2:
        scores = np.stack([np.bincount(left, s, n) + np.bincount(right, 1.0 - s, n) for s in share])
        compared = np.zeros((n, n))
        compared[left, right] = compared[right, left] = 1.0
        if _is_connected(compared):
            fits = fit_scores(scores, compared, 0.0, 1e-9)
            strengths[fits.done] = fits.strengths[fits.done]
            left_out = np.flatnonzero(~fits.done)
    if len(left_out):
        from rank.bradley_terry import fit_bradley_terry

        some = share[left_out]
        counts = np.stack([some, 1.0 - some, np.zeros(some.shape)], axis=-1)
        strengths[left_out] = fit_bradley_terry(
            left, right, counts, n_items=n, std_errors="none", components="separate", order_axis=False
        ).strengths
    return np.round(strengths, _DECIMALS)


def _is_connected(compared: Floats) -> bool:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    return int(connected_components(csr_array(compared), directed=False)[0]) == 1
