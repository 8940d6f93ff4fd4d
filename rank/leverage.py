"""Leverage: how much rho would change if the verdict on one pair were set right.

Rankings are compared that may lie at the edge of what Bradley-Terry can fit: setting verdicts right soon leaves an item
that never loses, and its strength without a finite maximum. Such a set of verdicts is ranked with `LIFELINE` pseudo-wins
per compared ordered pair instead. Its order is then that of the limit of small pseudo-wins wherever the verdicts themselves
order the items.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from rank.columns import CONTEXT_COLUMNS
from rank.dense import certified, fit_far_scores, fit_scores
from rank.exceptions import InputError
from rank.gold import GOLD_I, GOLD_J, Gold
from rank.recovery import _STRENGTH_DECIMALS, RecoveryProblem, is_balanced, rank_values, spearman
from rank.tally import INVALID, Tally

Floats = npt.NDArray[np.float64]

_MOST_DENSE_ITEMS = 1500
_CHUNK = 16_000_000  # numbers in one batch of fits

#: Pseudo-wins per compared ordered pair where the strengths have no finite maximum.
LIFELINE = 1e-4

UNRANKED = "an item is left without a verdict, or no comparison connects some items"

_MOST_BATCHED_ITEMS = 64
_TOLERANCE = 1e-9  # nats


def rank_always(
    item_i: np.ndarray, item_j: np.ndarray, wins: np.ndarray, n_items: int, *, alpha: float = 0.0
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return values that order the items as strengths do, with pseudo-wins where the strengths are not finite.

    Parameters
    ----------
    item_i, item_j : ndarray of int, shape (M,)
        Each pair once.
    wins : ndarray, shape (B, M, 2)
        Wins of i and of j, ties as half each.
    n_items : int
    alpha : float
        Pseudo-wins per compared ordered pair of every fit.

    Returns
    -------
    values : ndarray, shape (B, n_items)
        Scores in a balanced round robin, else strengths. NaN rows where an item was not compared or items are not
        connected.
    penalised : ndarray of bool, shape (B,)
        Ranked with `LIFELINE` pseudo-wins, because there is no finite maximum without.

    Examples
    --------
    Item 0 beats everyone, so its strength has no maximum:

    >>> values, penalised = rank_always(np.array([0, 0, 1]), np.array([1, 2, 2]), np.array([[[3, 0], [1, 0], [2, 1]]]), 3)
    >>> np.argsort(-values[0]).tolist(), penalised.tolist()
    ([0, 1, 2], [True])
    """
    wins = np.asarray(wins, dtype=float)
    if n_items == 0:
        return np.full((len(wins), 0), np.nan), np.zeros(len(wins), dtype=bool)
    if is_balanced(item_i, item_j, wins, n_items):
        return rank_values(item_i, item_j, wins, n_items)[0], np.zeros(len(wins), dtype=bool)
    if n_items > _MOST_BATCHED_ITEMS:
        values, defined = rank_values(item_i, item_j, wins, n_items, alpha=alpha)
        missing = np.flatnonzero(~defined)
        values = np.array(values)
        if len(missing):
            values[missing] = rank_values(item_i, item_j, wins[missing], n_items, alpha=LIFELINE)[0]
        return values, ~defined & ~np.isnan(values[:, 0])
    values, penalised = np.full((len(wins), n_items), np.nan), np.zeros(len(wins), dtype=bool)
    step = max(1, _CHUNK // (8 * n_items * n_items))
    for start in range(0, len(wins), step):
        part = slice(start, start + step)
        values[part], penalised[part] = _rank_batch(item_i, item_j, wins[part], n_items, alpha)
    return values, penalised


def _rank_batch(
    item_i: np.ndarray, item_j: np.ndarray, wins: Floats, n: int, alpha: float
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """`rank_always` for few items: one matrix of wins per fit."""
    table = np.zeros((len(wins), n, n))
    table[:, item_i, item_j], table[:, item_j, item_i] = wins[..., 0], wins[..., 1]
    met = (table + table.transpose(0, 2, 1)) > 0
    connected = _all_reach(met)
    strong = _all_reach(table > 0)
    penalised = connected & ~strong & (alpha == 0)
    table += np.where(penalised, LIFELINE, alpha)[:, None, None] * met
    values = np.full((len(wins), n), np.nan)
    rows = np.flatnonzero(connected)
    chosen = table[rows]
    fits = fit_far_scores(chosen.sum(axis=2), chosen + chosen.transpose(0, 2, 1), _TOLERANCE)
    values[rows] = np.round(fits.strengths, _STRENGTH_DECIMALS)
    for row in rows[np.isnan(values[rows, 0])]:
        extra = LIFELINE if penalised[row] else alpha
        values[row] = rank_values(item_i, item_j, wins[row][None], n, alpha=extra)[0][0]
    return values, penalised


def _all_reach(links: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Whether every item reaches every other one along links (B, n, n), (B,)."""
    n = links.shape[-1]
    reach = links | np.eye(n, dtype=bool)
    for _ in range(max(1, int(np.ceil(np.log2(max(n, 2)))))):
        paths = reach.astype(np.float32)
        reach = (paths @ paths) > 0
    return np.asarray(reach.reshape(len(links), -1).all(axis=1))


def set_right(wins: np.ndarray, winner: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return wins (P, 2) in which the verdicts of the chosen rows all name gold's item (0 = i, 1 = j)."""
    result = np.array(wins, dtype=float)
    total = result.sum(axis=1)
    for side in (GOLD_I, GOLD_J):
        chosen = rows & (winner == side)
        result[chosen, side], result[chosen, 1 - side] = total[chosen], 0.0
    return result


@dataclass(frozen=True)
class ContextPairs:
    """The rows of one context: their items numbered from 0, and gold of those items."""

    context: int
    rows: np.ndarray
    item_i: np.ndarray
    item_j: np.ndarray
    score: Floats

    def rho(self, wins: np.ndarray, alpha: float) -> Floats:
        """Rho of a batch of wins (B, rows, 2) of this context's rows, (B,); NaN where there is no ranking."""
        known = ~np.isnan(self.score)
        if known.sum() < 3 or np.ptp(self.score[known]) == 0:
            return np.full(len(wins), np.nan)
        values = rank_always(self.item_i, self.item_j, wins, len(self.score), alpha=alpha)[0]
        return spearman(values[:, known], self.score[known])


def context_pairs(problem: RecoveryProblem) -> Iterator[ContextPairs]:
    """Pass through the contexts of a problem, in order."""
    tally = problem.tally
    order = np.argsort(tally.context, kind="stable")
    cuts = np.flatnonzero(np.diff(tally.context[order])) + 1
    for rows in np.split(order, cuts):
        if len(rows):
            items, place = np.unique(np.stack([tally.item_i[rows], tally.item_j[rows]]), return_inverse=True)
            context = int(tally.context[rows[0]])
            score = problem.gold.scores(tally, np.full(len(items), context), items)
            left, right = place.reshape(2, -1)
            yield ContextPairs(context, rows, left, right, score)


@dataclass(frozen=True)
class Leverage:
    """Change of rho when the verdict on a single pair is set right.

    Attributes
    ----------
    spearman : float
        Rho as observed.
    level : {"system", "context"}
    rows : ndarray of int, shape (R,)
        Pair rows of the tally, most damaging first (largest change; then widest gap).
    change : ndarray, shape (R,)
        Rho afterwards minus rho now; NaN where no ranking would be left.
    moved : ndarray, shape (R,)
        Wins that go over to gold's item (a tie is half a win).
    winner : ndarray of int8, shape (R,)
        Gold's side, 0 = i, 1 = j.
    gap : ndarray, shape (R,)
    reason : str
        Why there is no number; empty otherwise.
    """

    spearman: float
    level: str
    rows: np.ndarray
    change: Floats
    moved: Floats
    winner: np.ndarray
    gap: Floats
    reason: str
    tally: Tally

    def to_frame(self, top: int | None = None) -> pd.DataFrame:
        """Return one row per pair, most damaging first.

        Columns: group and context labels, ``item_a``, ``item_b``, ``gold_winner``, ``gap``, ``n_verdicts`` (valid
        ones), ``n_right``, ``spearman_change``, ``spearman_after``.
        """
        t, rows = self.tally, self.rows[:top]
        frame = t.groups.iloc[t.group[rows]].reset_index(drop=True)
        for column in CONTEXT_COLUMNS:
            values = t.contexts[column].to_numpy()
            if column not in frame and (values != "").any():
                frame[column] = values[t.context[rows]]
        frame["item_a"], frame["item_b"] = t.items[t.item_i[rows]], t.items[t.item_j[rows]]
        winner = self.winner[:top]
        frame["gold_winner"] = np.where(winner == GOLD_I, frame["item_a"], frame["item_b"])
        frame["gap"] = self.gap[:top]
        total = t.counts[rows].sum(axis=1)
        frame["n_verdicts"] = total.sum(axis=1) - total[:, INVALID]
        frame["n_right"] = total[np.arange(len(rows)), winner]
        frame["spearman_change"] = self.change[:top]
        frame["spearman_after"] = self.spearman + self.change[:top]
        return frame


def leverage(
    tally: Tally,
    gold: Gold,
    *,
    rows: np.ndarray | None = None,
    level: str = "auto",
    alpha: float = 0.0,
) -> Leverage:
    """Return by how much rho would change if the verdicts on one pair all named gold's item, for each pair.

    Every change is that of a recomputed ranking, not of a linear approximation. In a balanced round robin two scores
    move; otherwise the strengths are fitted again, and pairs of the same items with as many wins to move
    share a fit.

    Parameters
    ----------
    tally : Tally
        One group.
    gold : Gold
        Item gold.
    rows : ndarray of bool, shape (P,), optional
        Pairs to try; by default every pair whose gold is decided. Pairs whose verdicts are all right already
        are left out.
    level : {"auto", "system", "context"}
        See `rank.recovery.recover_ranking`.
    alpha : float
        Pseudo-wins per compared ordered pair.

    Returns
    -------
    Leverage

    Examples
    --------
    >>> from rank.gold import check_gold
    >>> from rank.tally import tally_verdicts
    >>> from rank.verdicts import check_verdicts
    >>> said = [("a", "b", "second"), ("a", "c", "first"), ("b", "c", "first")]
    >>> frame = pd.DataFrame(said, columns=["item_first", "item_second", "verdict"])
    >>> gold = check_gold(pd.DataFrame({"item": ["a", "b", "c"], "score": [3, 2, 1]}))
    >>> found = leverage(tally_verdicts(check_verdicts(frame)), gold)
    >>> found.to_frame()[["item_a", "item_b", "gold_winner", "spearman_after"]].values.tolist()
    [['a', 'b', 'a', 1.0]]
    """
    problem = RecoveryProblem(tally, gold, level=level, alpha=alpha)
    seen = np.flatnonzero(_valid(tally) > 0)
    pair_gold = gold.align(problem.tally)
    side = pair_gold.winner
    moved = problem.wins.sum(axis=1) - problem.wins[np.arange(len(side)), np.maximum(side, 0) % 2]
    use = ((side == GOLD_I) | (side == GOLD_J)) & (moved > 0)
    if rows is not None:
        if len(rows) != tally.n_pairs:
            raise InputError(f"rows must mark each of the {tally.n_pairs} pairs, found {len(rows)} marks")
        use &= np.asarray(rows, dtype=bool)[seen]
    chosen = np.flatnonzero(use)
    if problem.level == "context":
        rho, change = _leverage_by_context(problem, side, use)
    else:
        rho, change = _leverage_pooled(problem, side, moved, chosen)
    reason = "" if rho == rho else f"rho is undefined: {_why_undefined(problem)}"
    order = np.lexsort((chosen, -pair_gold.gap[chosen], -np.nan_to_num(change, nan=-9.0)))
    place = chosen[order]
    return Leverage(
        rho,
        problem.level,
        seen[place],
        change[order],
        moved[place],
        side[place],
        pair_gold.gap[place],
        reason,
        tally,
    )


def _valid(tally: Tally) -> np.ndarray:
    total = tally.counts.sum(axis=(1, 2))
    return np.asarray(total - tally.counts[..., INVALID].sum(axis=1))


def _why_undefined(problem: RecoveryProblem) -> str:
    known = ~np.isnan(problem.score)
    if problem.level == "context":
        return "no context has three ranked items, varying gold and a ranking"
    if known.sum() < 2:
        return f"{known.sum()} ranked item(s) have gold; at least 2 are needed"
    if np.ptp(problem.score[known]) == 0:
        return "gold is the same for all ranked items"
    return f"the judge ranks all items equally, or {UNRANKED}"


def _leverage_pooled(
    problem: RecoveryProblem, side: np.ndarray, moved: Floats, chosen: np.ndarray
) -> tuple[float, Floats]:
    """Rho, and its change for each chosen row."""
    p = problem.pooled
    known = ~np.isnan(problem.score)
    wins = problem.pooled_wins()
    base = rank_always(p.item_i, p.item_j, wins[None], p.n_items, alpha=problem.alpha)[0]
    rho = float(spearman(base[:, known], problem.score[known])[0])
    if not len(chosen):
        return rho, np.zeros(0)
    keys = np.stack([p.pair_of_row[chosen], side[chosen], moved[chosen]], axis=1)
    distinct, inverse = np.unique(keys, axis=0, return_inverse=True)
    pair, to, amount = distinct[:, 0].astype(np.int64), distinct[:, 1].astype(np.int64), distinct[:, 2]
    after = np.empty(len(distinct))
    step = max(1, _CHUNK // max(p.n_items**2, 1))
    for start in range(0, len(distinct), step):
        part = slice(start, start + step)
        values = _move_wins(problem, wins, pair[part], to[part], amount[part])
        after[part] = spearman(values[:, known], problem.score[known])
    return rho, (after - rho)[inverse.ravel()]


def _move_wins(
    problem: RecoveryProblem, wins: Floats, pair: np.ndarray, to: np.ndarray, amount: Floats
) -> Floats:
    """Rank values (R, n) after moving wins inside one pooled pair each."""
    p = problem.pooled
    n, each = p.n_items, np.arange(len(pair))
    score = np.bincount(p.item_i, wins[:, 0], n) + np.bincount(p.item_j, wins[:, 1], n)
    scores = np.repeat(score[None], len(pair), axis=0)
    winner = np.where(to == 0, p.item_i[pair], p.item_j[pair])
    loser = np.where(to == 0, p.item_j[pair], p.item_i[pair])
    scores[each, winner] += amount
    scores[each, loser] -= amount
    if is_balanced(p.item_i, p.item_j, wins[None], n):
        return scores
    values = np.full(scores.shape, np.nan)
    done = np.zeros(len(pair), dtype=bool)
    if n <= _MOST_DENSE_ITEMS:
        from scipy.sparse import csgraph

        totals = np.zeros((n, n))
        totals[p.item_i, p.item_j] = totals[p.item_j, p.item_i] = wins.sum(axis=1)
        if csgraph.connected_components(totals, directed=False)[0] == 1:
            compared = totals > 0
            totals = totals + 2 * problem.alpha * compared
            fits = fit_scores(scores + problem.alpha * compared.sum(axis=1), totals, 0.0, 1e-10)
            done = fits.done & (certified(fits, float(totals[compared].min())) | (problem.alpha > 0))
            values[done] = np.round(fits.strengths[done], _STRENGTH_DECIMALS)
    rest = np.flatnonzero(~done)
    step = max(1, _CHUNK // (2 * len(wins)))
    for start in range(0, len(rest), step):
        part = rest[start : start + step]
        batch = np.repeat(wins[None], len(part), axis=0)
        k = np.arange(len(part))
        batch[k, pair[part], to[part]] += amount[part]
        batch[k, pair[part], 1 - to[part]] -= amount[part]
        values[part] = rank_always(p.item_i, p.item_j, batch, n, alpha=problem.alpha)[0]
    return values


def _leverage_by_context(problem: RecoveryProblem, side: np.ndarray, use: np.ndarray) -> tuple[float, Floats]:
    """Mean rho over contexts, and its change for each used row: only the row's own context moves."""
    change = np.full(len(use), np.nan)
    rhos = []
    for part in context_pairs(problem):
        wins = problem.wins[part.rows]
        places = np.flatnonzero(use[part.rows])
        batch = np.repeat(wins[None], len(places) + 1, axis=0)
        for k, place in enumerate(places):
            total = wins[place].sum()
            batch[k + 1, place] = (total, 0.0) if side[part.rows[place]] == GOLD_I else (0.0, total)
        rho = part.rho(batch, problem.alpha)
        if rho[0] == rho[0]:
            rhos.append(rho[0])
            change[part.rows[places]] = rho[1:] - rho[0]
    if not rhos:
        return float("nan"), change[use]
    return float(np.mean(rhos)), change[use] / len(rhos)
