"""How many contexts a ranking needs: rho against contexts, orders and runs, by resampling the contexts of a file.

Where a few items are judged on many prompts, more prompts average noise out, and what they average to is in the file.
Every repetition draws contexts of the file with replacement; the designs are parts of the same draw (common random
numbers): m contexts are the first m drawn, one order is the order that a coin chose for each context and pair, fewer
runs are the first of the calls of each order in a random sequence. With m beyond the number of contexts in the file
the plan extrapolates, as if more prompts of the same kind were judged.

Nothing is assumed about the judge, and everything is conditional on the file: as contexts are added, rho tends to that
of all verdicts of the file, whichever orders and runs are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from difficulty.reliability import metrics_from_sums, pair_statistics
from rank.exceptions import InputError
from rank.gold import Gold
from rank.parallel import map_tasks
from rank.recovery import RecoveryProblem, cluster_keys, half_wins, rank_values, spearman
from rank.tally import Tally
from simulate.planning import (
    DEFAULT_PROBABILITY,
    DEFAULT_REPS,
    DEFAULT_TARGET,
    REPETITIONS_PER_TASK,
    Plan,
    cheapest_row,
    check_goal,
    default_runs,
    recovery_row,
    whole_numbers,
)
from simulate.sweep import FIT_ALPHA

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Wins of the one and of the other item per outcome (`rank.tally.OUTCOMES`), and for no call at all.
_WINS = np.array([[1.0, 0.0, 0.5, 0.0, 0.5, 0.0], [0.0, 1.0, 0.5, 0.0, 0.5, 0.0]])
_NO_CALL = 5
_OF_THE_OTHER = [1, 0, 2, 3, 4]

#: Where contexts start when none are given, how many numbers up to those of the file, and how far beyond.
_LEAST, _STEPS, _BEYOND = 5, 6, (2, 4)


def default_contexts(n_contexts: int) -> tuple[int, ...]:
    """Return about eight numbers of contexts: up to those of the file on a log scale, twice and four times as many.

    Examples
    --------
    >>> default_contexts(80)
    (5, 9, 15, 26, 46, 80, 160, 320)
    """
    steps = np.geomspace(min(_LEAST, n_contexts), n_contexts, _STEPS)
    return tuple(sorted({*(round(step) for step in steps.tolist()), *(n_contexts * k for k in _BEYOND)}))


def items_recur(tally: Tally, gold: Gold) -> bool:
    """Whether the items of a group are judged in several contexts and ranked over all of them together."""
    return len(np.unique(tally.context)) > 1 and RecoveryProblem(tally, gold).level == "system"


def plan_contexts(
    tally: Tally,
    gold: Gold,
    *,
    n_contexts: Iterable[int] | None = None,
    orders: Iterable[int] | None = None,
    runs: Iterable[int] | None = None,
    target: float = DEFAULT_TARGET,
    probability: float = DEFAULT_PROBABILITY,
    n_reps: int = DEFAULT_REPS,
    rng: np.random.Generator | int | None = None,
    n_jobs: int = 1,
    dask: Any = None,
    progress: Callable[[Iterable[Any]], Iterable[Any]] | None = None,
) -> Plan:
    """Resample the contexts of a verdict file over call designs and find the cheapest that reaches a target rho.

    Parameters
    ----------
    tally : Tally
        One group whose items recur over at least two contexts.
    gold : Gold
        Item gold; scores given per context are averaged per item.
    n_contexts : iterable of int, optional
        Numbers of contexts to try, also more than the file has. Default: `default_contexts`.
    orders : iterable of int, optional
        1, 2 or both; default both where the file has pairs in both orders.
    runs : iterable of int, optional
        Calls per order, at most those of most conditions of the file. Default: one, about half, all.
    target, probability, n_reps, n_jobs, dask, progress
        As in `simulate.planning.plan_designs`.
    rng : Generator or int, optional
        Numbers depend on the seed alone: not on the number of processes, the order of rows, the names of items and
        contexts, or the other designs.

    Returns
    -------
    Plan
        With ``n_contexts`` in every row instead of ``pairs_per_item``; ``n_pairs`` counts pairs in contexts (the mean
        of the file per context, rounded at the end). ``complete`` and ``own`` are the design of the file: as many
        contexts, all orders and runs. Its percentiles are the bootstrap over contexts.

    Raises
    ------
    InputError
        When a setting is out of range, there is one context, gold is not of items, fewer than three judged items have
        gold or all of them the same, or a design asks for orders or runs that the file does not have.

    Notes
    -----
    Items are ranked as `rank.recovery.recover_ranking` does. Where few contexts leave an item that wins or loses
    everything, so that strengths have no finite maximum, the fit gets ``simulate.sweep.FIT_ALPHA`` pseudo-wins per
    compared ordered pair.

    Examples
    --------
    >>> import pandas as pd
    >>> from rank.gold import check_gold
    >>> from rank.tally import tally_verdicts
    >>> from rank.verdicts import check_verdicts
    >>> rows = [
    ...     (str(c), a, b, "first" if (c + k) % 3 else "second")
    ...     for c in range(12) for k, (a, b) in enumerate([("x", "y"), ("x", "z"), ("y", "z")])
    ... ]
    >>> frame = pd.DataFrame(rows, columns=["context", "item_first", "item_second", "verdict"])
    >>> scores = check_gold(pd.DataFrame({"item": ["x", "y", "z"], "score": [3.0, 2.0, 1.0]}))
    >>> plan = plan_contexts(tally_verdicts(check_verdicts(frame)), scores, n_contexts=[3, 24], n_reps=20, rng=1)
    >>> [(row["n_contexts"], row["n_pairs"], row["calls"]) for row in plan.rows]
    [(3, 9, 9), (24, 72, 72)]
    >>> plan.rows[0]["spearman"] < plan.rows[1]["spearman"]
    True
    """
    check_goal(target, probability, n_reps, n_jobs)
    problem = RecoveryProblem(tally, gold, level="system")
    contexts = np.unique(tally.context)
    if len(contexts) < 2:
        raise InputError(
            f"contexts are resampled, and the verdicts have {len(contexts)}; at least 2 are needed"
        )
    known = ~np.isnan(problem.score)
    if known.sum() < 3:
        raise InputError(
            f"{int(known.sum())} judged item(s) have gold scores; a plan needs a ranking of at least 3"
        )
    if np.ptp(problem.score[known]) == 0:
        raise InputError("all judged items have the same gold score: there is no ranking to recover")
    calls = tally.counts.sum(axis=-1)  # (P, 2)
    swapped = (calls > 0).all(axis=1)
    own_orders, own_runs = (2 if swapped.any() else 1), _most_frequent(calls[calls > 0])
    numbers = whole_numbers("contexts", n_contexts or default_contexts(len(contexts)), 1, 10_000_000)
    order_numbers = whole_numbers("orders", orders or range(1, own_orders + 1), 1, 2)
    if order_numbers[-1] > own_orders:
        raise InputError(
            "no pair of the verdicts was judged in both orders, so what a second order buys is unknown"
        )
    run_numbers = whole_numbers("runs", runs or default_runs(own_runs), 1, 10_000_000)
    if run_numbers[-1] > own_runs:
        raise InputError(
            f"runs must be at most {own_runs}, the calls that most pairs of the file have per order, found "
            f"{run_numbers[-1]}; what further calls would say is unknown"
        )
    own = (len(contexts), own_orders, own_runs)
    grid = [(m, o, r) for m in numbers for o in order_numbers for r in run_numbers]
    asked = list(dict.fromkeys([*grid, own]))

    source = _Source.of(problem, contexts)
    children = np.random.default_rng(rng).spawn(n_reps)
    tasks = [
        _Task(tuple(children[start : start + REPETITIONS_PER_TASK]), source, tuple(asked))
        for start in range(0, n_reps, REPETITIONS_PER_TASK)
    ]
    repetitions = (row for part in map_tasks(_measure, tasks, n_jobs=n_jobs, dask=dask) for row in part)
    rho = np.stack(list(progress(repetitions) if progress else repetitions))  # (n_reps, designs)

    per_context = tally.n_pairs / len(contexts)
    row_of = {}
    for index, (m, o, r) in enumerate(asked):
        n_pairs = round(m * per_context)
        fields = {"n_contexts": m, "n_pairs": n_pairs, "orders": o, "runs": r, "calls": n_pairs * o * r}
        row_of[m, o, r] = recovery_row(fields, rho[:, index], target, probability)
    rows = sorted((row_of[d] for d in grid), key=lambda row: (row["calls"], row["n_pairs"], row["orders"]))
    metrics = metrics_from_sums(pair_statistics(tally.counts, gold.align(tally)).sum(axis=0))
    found = problem.correlate(_rank(source, problem.pooled_wins()[None]))[0]
    return Plan(
        settings={
            "label": tally.group_label(0),
            "n_items": problem.pooled.n_items,
            "n_items_gold": int(known.sum()),
            "n_contexts": len(contexts),
            "pairs_per_context": per_context,
            "orders": own_orders,
            "runs": own_runs,
            "share_swapped": float(swapped.mean()),
            "share_fewer_runs": float((calls[calls > 0] < own_runs).mean()),
            **{name: float(metrics[name]) for name in ("repeatability", "flip_rate", "accuracy")},
            "spearman": float(found[0]),
            "gold": "file",
            "target": target,
            "probability": probability,
            "n_reps": n_reps,
        },
        rows=tuple(rows),
        chosen=cheapest_row(rows, "reach_probability", probability),
        assured=cheapest_row(rows, "reach_low", probability),
        complete=row_of[own],
        own=row_of[own],
    )


def _most_frequent(values: np.ndarray) -> int:
    distinct, times = np.unique(values, return_counts=True)
    return int(distinct[times.argmax()])


@dataclass(frozen=True)
class _Source:
    """Verdicts of a file in an order that depends on their content alone.

    Attributes
    ----------
    start, length : ndarray of int, shape (C,)
        Rows of every context.
    calls : ndarray of int8, shape (P, 2, S)
        Outcomes of the calls of every row and order, from the side of one of its items; `_NO_CALL` fills up.
    turned : ndarray of bool, shape (P,)
        Whether that is item_j of the pooled pair.
    pair : ndarray of int, shape (P,)
        Pooled pair of every row.
    item_i, item_j : ndarray of int, shape (M,)
    score : ndarray, shape (n,)
    """

    start: Ints
    length: Ints
    calls: npt.NDArray[np.int8]
    turned: npt.NDArray[np.bool_]
    pair: Ints
    item_i: Ints
    item_j: Ints
    score: Floats

    @classmethod
    def of(cls, problem: RecoveryProblem, contexts: np.ndarray) -> _Source:
        tally, pooled = problem.tally, problem.pooled
        key = cluster_keys(tally, problem.gold)
        place = np.searchsorted(contexts, tally.context)
        context_key = np.zeros(len(contexts), dtype=np.uint64)
        with np.errstate(over="ignore"):
            np.add.at(context_key, place, key.view(np.uint64))
        by_content = np.argsort(context_key.view(np.int64), kind="stable")
        rank = np.empty(len(contexts), dtype=np.int64)
        rank[by_content] = np.arange(len(contexts))
        order = np.lexsort((key, rank[place]))
        length = np.bincount(rank[place], minlength=len(contexts))
        score = np.full(len(tally.items), np.nan)
        score[pooled.items] = problem.score
        turned = _turned(tally, score)
        counts = np.where(turned[:, None, None], tally.counts[:, ::-1][:, :, _OF_THE_OTHER], tally.counts)
        until = counts.cumsum(axis=-1)
        longest = int(until[..., -1].max())
        calls = (np.arange(longest)[:, None] >= until[:, :, None, :]).sum(axis=-1, dtype=np.int8)
        return cls(
            start=np.cumsum(length) - length,
            length=length,
            calls=calls[order],
            turned=turned[order],
            pair=pooled.pair_of_row[order],
            item_i=pooled.item_i,
            item_j=pooled.item_j,
            score=problem.score,
        )


def _turned(tally: Tally, score: Floats) -> npt.NDArray[np.bool_]:
    """Whether item j of every row goes before item i by what is known of them, whatever their names, shape (P,)."""
    wins, n = half_wins(tally.counts), len(tally.items)
    total = np.bincount(tally.item_i, wins[:, 0], n) + np.bincount(tally.item_j, wins[:, 1], n)
    games = np.bincount(tally.item_i, wins.sum(axis=1), n) + np.bincount(tally.item_j, wins.sum(axis=1), n)
    of_item = np.stack([np.nan_to_num(score, nan=-np.inf), total, games], axis=1)
    other = tally.counts[:, ::-1][:, :, _OF_THE_OTHER]
    one = np.concatenate([of_item[tally.item_i], tally.counts.reshape(-1, 10)], axis=1)
    two = np.concatenate([of_item[tally.item_j], other.reshape(-1, 10)], axis=1)
    differs = one != two
    first = differs.argmax(axis=1)
    rows = np.arange(len(one))
    return np.asarray(two[rows, first] > one[rows, first])


@dataclass(frozen=True)
class _Task:
    children: tuple[np.random.Generator, ...]
    source: _Source
    designs: tuple[tuple[int, int, int], ...]


def _measure(task: _Task) -> list[Floats]:
    """Return rho of every design, one array (designs,) per repetition."""
    source = task.source
    wins = np.stack([_pooled_wins(source, task.designs, child) for child in task.children])
    values = _rank(source, wins.reshape(-1, *wins.shape[2:]))
    known = ~np.isnan(source.score)
    rho = spearman(values[:, known], source.score[known])
    return list(rho.reshape(len(task.children), len(task.designs)))


def _pooled_wins(
    source: _Source, designs: tuple[tuple[int, int, int], ...], rng: np.random.Generator
) -> Floats:
    """Return wins of both items of every pooled pair in every design of one repetition, (designs, M, 2)."""
    # Streams of their own, each used in the order of the draws: further contexts do not change the first ones.
    context_rng, order_rng, run_rng = rng.spawn(3)
    numbers = sorted({m for m, _, _ in designs})
    drawn = context_rng.integers(0, len(source.start), size=numbers[-1])
    length = source.length[drawn]
    draw = np.repeat(np.arange(len(drawn)), length)
    row = np.arange(len(draw)) + np.repeat(source.start[drawn] - (np.cumsum(length) - length), length)
    calls = source.calls[row]  # (L, 2, S)
    has = calls[:, :, 0] != _NO_CALL
    coin = (order_rng.random(len(row)) < 0.5).astype(np.int64)
    chosen = np.where(has.all(axis=1), coin, has.argmax(axis=1))
    if calls.shape[-1] > 1:
        random = np.where(calls == _NO_CALL, 2.0, run_rng.random(calls.shape))
        calls = np.take_along_axis(calls, random.argsort(axis=-1), axis=-1)
    # By which number of contexts a draw comes in, and the pair it counts for.
    m = len(source.item_i)
    cell = np.searchsorted(numbers, draw, side="right") * m + source.pair[row]
    turned, rows = source.turned[row], np.arange(len(row))
    at = {number: index for index, number in enumerate(numbers)}
    found: dict[tuple[int, int], Floats] = {}
    for orders, runs in sorted({(o, r) for _, o, r in designs}):
        sides = [won[calls[:, :, :runs]].sum(axis=-1) for won in _WINS]
        one, two = (side.sum(axis=1) if orders == 2 else side[rows, chosen] for side in sides)
        of_i, of_j = np.where(turned, two, one), np.where(turned, one, two)
        total = np.stack([np.bincount(cell, won, len(numbers) * m) for won in (of_i, of_j)], axis=-1)
        found[orders, runs] = total.reshape(len(numbers), m, 2).cumsum(axis=0)
    return np.stack([found[o, r][at[number]] for number, o, r in designs])


def _rank(source: _Source, wins: Floats) -> Floats:
    """Return what the items are ranked by, (B, n), from pooled wins (B, M, 2)."""
    n = len(source.score)
    values, defined = rank_values(source.item_i, source.item_j, wins, n)
    if not defined.all():
        values = values.copy()
        values[~defined] = rank_values(source.item_i, source.item_j, wins[~defined], n, alpha=FIT_ALPHA)[0]
    return values
