"""How well a judge's verdicts recover the gold ranking: Spearman's rho and Kendall's tau with intervals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rank.exceptions import ConvergenceError, InputError, NoMaximumError
from rank.gold import Gold
from rank.resample import (
    DEFAULT_LEVEL,
    DEFAULT_RESAMPLES,
    Interval,
    check_resampling,
    content_hash,
    correlation_interval,
    draw_counts,
    percentile_interval,
    seed_of,
)
from rank.tally import INCONSISTENT, TIE, Tally

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

LEVELS = ("auto", "system", "context")

#: Strengths closer than this (nats) share a rank: fits agree to 1e-8 at best.
_STRENGTH_DECIMALS = 7

_CHUNK_BYTES = 64_000_000
_ALPHA_HELPS = "pseudo-wins (--alpha 0.1) give every resample a ranking"
#: Comparisons of two items at once: what stays in the cache.
_KENDALL_CELLS = 1_000_000


def midranks(values: np.ndarray) -> np.ndarray:
    """Rank along the last axis from 1, ties sharing their mean rank.

    Parameters
    ----------
    values : ndarray, shape (..., n)

    Returns
    -------
    ndarray of float, shape (..., n)

    Examples
    --------
    >>> midranks(np.array([5.0, 1.0, 5.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    values = np.asarray(values)
    n = values.shape[-1]
    rows = values.reshape(-1, n) if n else values.reshape(1, 0)
    offset = n * np.arange(len(rows))[:, None]
    order = (np.argsort(rows, axis=-1) + offset).ravel()
    ordered = rows.take(order).reshape(rows.shape)
    opens = np.ones(rows.shape, dtype=bool)  # the first of every run of equal values
    np.not_equal(ordered[:, 1:], ordered[:, :-1], out=opens[:, 1:])
    bounds = np.append(np.flatnonzero(opens), rows.size)
    ranks = np.empty(rows.size)
    ranks[order] = np.repeat((bounds[1:] + bounds[:-1] + 1) / 2, bounds[1:] - bounds[:-1])
    return (ranks.reshape(rows.shape) - offset).reshape(values.shape)


def spearman(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Spearman's rho along the last axis (Pearson correlation of mid-ranks).

    Parameters
    ----------
    a, b : ndarray, shapes (..., n), broadcast against each other

    Returns
    -------
    ndarray, shape (...)
        NaN where either side is constant or a value is NaN.

    Examples
    --------
    >>> round(float(spearman(np.array([1, 1, 1, 1, 2]), np.array([5, 4, 3, 2, 1]))), 4)
    -0.7071
    """
    a, b, known = _check_sides(a, b)
    return np.where(known, _pearson(midranks(a), midranks(b)), np.nan)


def kendall(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Kendall's tau-b along the last axis.

    Parameters
    ----------
    a, b : ndarray, shapes (..., n), broadcast against each other

    Returns
    -------
    ndarray, shape (...)
        NaN where either side is constant or a value is NaN. O(n^2) time, memory in chunks.
    """
    a, b, known = _check_sides(a, b)
    return np.where(known, _tau_b(midranks(a), midranks(b)), np.nan)


def rank_correlations(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Spearman's rho and Kendall's tau-b of the same rankings, see `spearman` and `kendall`.

    Examples
    --------
    >>> rho, tau = rank_correlations(np.array([[1, 2, 3, 4], [4, 3, 1, 2]]), np.array([1, 2, 3, 4]))
    >>> rho.round(2).tolist(), tau.round(2).tolist()
    ([1.0, -0.8], [1.0, -0.67])
    """
    a, b, known = _check_sides(a, b)
    a, b = midranks(a), midranks(b)
    return np.where(known, _pearson(a, b), np.nan), np.where(known, _tau_b(a, b), np.nan)


def _check_sides(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return both sides as floats, and where neither has a NaN."""
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    return a, b, ~(np.isnan(a).any(axis=-1) | np.isnan(b).any(axis=-1))


def _pearson(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.shape[-1] == 0 or b.shape[-1] == 0:
        return np.full(np.broadcast_shapes(a.shape[:-1], b.shape[:-1]), np.nan)
    a = a - a.mean(axis=-1, keepdims=True)
    b = b - b.mean(axis=-1, keepdims=True)
    scale = np.sqrt((a * a).sum(axis=-1) * (b * b).sum(axis=-1))
    covariance = (a * b).sum(axis=-1)
    r = np.divide(covariance, scale, out=np.full(np.shape(scale), np.nan), where=scale > 0)
    return np.clip(r, -1.0, 1.0)


def _tau_b(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Tau-b of mid-ranks: pairs of items in the same order less those in opposite orders, over the untied."""
    n, one_b = a.shape[-1], b.ndim == 1
    shape = np.broadcast_shapes(a.shape, b.shape)
    if n == 0:
        return np.full(shape[:-1], np.nan)
    kind = np.int16 if n < 2**14 else np.int32  # twice a mid-rank is a small whole number
    x, y = (np.broadcast_to((2 * side).astype(kind), shape).reshape(-1, n) for side in (a, b))
    excess, untied_x, untied_y = np.zeros((3, int(np.prod(shape[:-1]))))
    block = max(1, _KENDALL_CELLS // n)
    for start in range(0, n, block):
        part = slice(start, start + block)
        step = max(1, _KENDALL_CELLS // (n * min(n, block)))
        for low in range(0, len(excess), step):
            rows = slice(low, low + step)
            if low == 0 or not one_b:
                some = y[:1] if one_b else y[rows]
                above_y, tied_y = some[:, part, None] > some[:, None], some[:, part, None] == some[:, None]
                n_above_y = _count(above_y)
                # Every item ties with itself; look for other ties only where there are any.
                ties = np.count_nonzero(tied_y) > tied_y.shape[0] * tied_y.shape[1]
            above_x = x[rows, part, None] > x[rows, None]
            n_above_x, agreed = _count(above_x), _count(above_x & above_y)
            undecided = _count(above_x & tied_y) if ties else 0
            untied_x[rows] += n_above_x
            untied_y[rows] += n_above_y
            excess[rows] += agreed - (n_above_x - undecided - agreed)
    scale = np.sqrt(untied_x * untied_y)
    tau = np.divide(excess, scale, out=np.full(len(excess), np.nan), where=scale > 0)
    return tau.reshape(shape[:-1])


def _count(marked: np.ndarray) -> np.ndarray:
    """Number of true entries of each (n, m) table, shape (B,)."""
    if marked[0].size > 2_500:  # counting is quicker than adding, but for the call
        return np.array([np.count_nonzero(table) for table in marked], dtype=float)
    return marked.reshape(len(marked), -1).view(np.uint8).sum(axis=1, dtype=np.uint32).astype(float)


@dataclass(frozen=True)
class PooledPairs:
    """The pairs of one group with contexts pooled.

    Attributes
    ----------
    items : ndarray of int, shape (n,)
        Tally item codes of the compared items.
    item_i, item_j : ndarray of int, shape (M,)
        Positions in `items`.
    pair_of_row : ndarray of int, shape (P,)
        Pooled pair of each tally row.
    """

    items: np.ndarray
    item_i: np.ndarray
    item_j: np.ndarray
    pair_of_row: np.ndarray

    @property
    def n_items(self) -> int:
        """Number of compared items."""
        return len(self.items)


def pool_pairs(tally: Tally) -> PooledPairs:
    """Pool the rows of one group over contexts; rows without a valid verdict pool as well."""
    items = np.unique(np.concatenate([tally.item_i, tally.item_j]))
    place = np.zeros(len(tally.items), dtype=np.int64)
    place[items] = np.arange(len(items))
    key = place[tally.item_i] * max(len(items), 1) + place[tally.item_j]
    distinct, pair_of_row = np.unique(key, return_inverse=True)
    low, high = np.divmod(distinct, max(len(items), 1))
    return PooledPairs(items, low, high, pair_of_row)


def half_wins(counts: np.ndarray) -> np.ndarray:
    """Return wins of i and of j per pair, ties (and stated inconsistent results) as half each, (..., P, 2)."""
    total = counts.sum(axis=-2)
    half = (total[..., TIE] + total[..., INCONSISTENT]) / 2
    return np.stack([total[..., 0] + half, total[..., 1] + half], axis=-1)


def is_balanced(item_i: np.ndarray, item_j: np.ndarray, wins: np.ndarray, n_items: int) -> bool:
    """Whether every pair of items is compared, equally often in each fit of a batch (..., M, 2)."""
    if len(item_i) == 0 or len(item_i) != n_items * (n_items - 1) // 2:
        return False
    total = wins.sum(axis=-1)
    return bool(np.all(total == total[..., :1]) and np.all(total[..., 0] > 0))


def rank_values(
    item_i: np.ndarray, item_j: np.ndarray, wins: np.ndarray, n_items: int, *, alpha: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return values that order the items as Bradley-Terry strengths do, for a batch of win counts.

    In a balanced round robin the order of the strengths is the order of the scores, so scores are used
    (exact ties and all); otherwise the strengths are fitted and rounded where the fit cannot tell.

    Parameters
    ----------
    item_i, item_j : ndarray of int, shape (M,)
    wins : ndarray, shape (B, M, 2)
        Wins of i and of j, ties as half each.
    n_items : int
    alpha : float
        Pseudo-wins per compared ordered pair.

    Returns
    -------
    values : ndarray, shape (B, n_items)
        NaN rows where the likelihood has no finite maximum.
    defined : ndarray of bool, shape (B,)
    """
    if is_balanced(item_i, item_j, wins, n_items):
        from scipy.sparse import csr_array

        m = len(item_i)
        gather = csr_array(
            (
                np.ones(2 * m),
                (
                    np.stack([2 * np.arange(m), 2 * np.arange(m) + 1], 1).ravel(),
                    np.stack([item_i, item_j], 1).ravel(),
                ),
            ),
            shape=(2 * m, n_items),
        )
        return np.asarray(wins.reshape(len(wins), -1) @ gather), np.ones(len(wins), dtype=bool)
    from rank.bradley_terry import fit_bradley_terry

    counts = np.concatenate([wins, np.zeros((*wins.shape[:-1], 1))], axis=-1)
    fit = fit_bradley_terry(
        item_i,
        item_j,
        counts,
        n_items=n_items,
        alpha=alpha,
        std_errors="none",
        on_no_maximum="nan",
        order_axis=False,
    )
    values = np.round(fit.strengths, _STRENGTH_DECIMALS)
    return values, np.asarray(~np.isnan(values).all(axis=-1))


@dataclass(frozen=True)
class Recovery:
    """Rank recovery of one judge.

    Attributes
    ----------
    spearman, spearman_low, spearman_high : float
        Rho between the judge's ranking and gold, and its interval over clusters.
    kendall, kendall_low, kendall_high : float
        Tau-b likewise.
    spearman_items_low, spearman_items_high : float
        Interval of rho over items (other items of the same kind).
    level : {"system", "context"}
        One ranking over pooled contexts, or one per context, averaged.
    spearman_sd : float
        Spread of rho over contexts (context level only).
    n_items : int
        Ranked items with gold (system level) or the median per context.
    n_contexts, n_contexts_left_out : int
        Rankings averaged, and contexts left out (context level; else 1 and 0).
    n_undefined_resamples : int
        Resamples without a finite ranking, left out of the interval.
    values : ndarray, shape (N,)
        What the items were ranked by (strengths in nats, or scores), NaN where unranked; system level only.
    reason : str
        Why rho is undefined, or what limits it; empty when all is well.
    samples : ndarray, shape (B,)
        Resampled rho.
    """

    spearman: float
    spearman_low: float
    spearman_high: float
    kendall: float
    kendall_low: float
    kendall_high: float
    spearman_items_low: float
    spearman_items_high: float
    level: str
    spearman_sd: float
    n_items: int
    n_contexts: int
    n_contexts_left_out: int
    n_undefined_resamples: int
    values: np.ndarray
    reason: str
    samples: np.ndarray


def cluster_keys(tally: Tally, gold: Gold | None) -> np.ndarray:
    """Return a content key per pair row, equal under renaming of items and swapping of slots, shape (P,).

    Items start as what they are (gold, wins, number of verdicts) and are refined by what their opponents are
    until that tells no more items apart, so that equal keys mean pairs that are exchangeable, but for freaks of
    symmetry.

    References
    ----------
    Weisfeiler & Leman 1968 (colour refinement).
    """
    wins = half_wins(tally.counts)
    n = len(tally.items)
    total = np.bincount(tally.item_i, wins[:, 0], n) + np.bincount(tally.item_j, wins[:, 1], n)
    games = np.bincount(tally.item_i, wins.sum(axis=1), n) + np.bincount(tally.item_j, wins.sum(axis=1), n)
    score = gold.item_scores(tally) if gold is not None and gold.kind == "items" else np.zeros(n)
    score = np.clip(np.where(np.isnan(score), -1e9, score), -1e11, 1e11)
    colour = content_hash(np.stack([score, total, games], axis=1)).view(np.uint64)
    result_i, result_j = (content_hash(wins[:, side]).view(np.uint64) for side in ([0, 1], [1, 0]))
    n_colours, n_before = len(np.unique(colour)), 0
    while n_colours > n_before:
        seen = colour.copy()
        np.add.at(seen, tally.item_i, _scrambled(colour[tally.item_j] + result_i))
        np.add.at(seen, tally.item_j, _scrambled(colour[tally.item_i] + result_j))
        colour = _scrambled(seen)
        n_colours, n_before = len(np.unique(colour)), n_colours
    # Symmetric in the two items: sum and product of the two sides.
    a = _scrambled(colour[tally.item_i] + result_i)
    b = _scrambled(colour[tally.item_j] + result_j)
    return ((a + b) ^ (a * b)).view(np.int64)


def _scrambled(values: np.ndarray) -> np.ndarray:
    """Scramble unsigned 64-bit integers one to one (the finaliser of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def resample_clusters(cluster_key: np.ndarray, n_resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Return how often each cluster is drawn, shape (B, C); clusters are ordered by content, not by name."""
    return np.concatenate(list(draw_clusters(cluster_key, n_resamples, rng)))


def draw_clusters(
    cluster_key: np.ndarray, n_resamples: int, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Yield the rows of `resample_clusters` in blocks that fit into memory; their size changes no number."""
    n = len(cluster_key)
    order = np.argsort(cluster_key, kind="stable")
    step = max(1, _CHUNK_BYTES // (32 * max(n, 1)))
    for start in range(0, max(n_resamples, 1), step):  # one empty block where nothing is asked
        size = min(step, n_resamples - start)
        yield draw_counts(size, order, n, rng)


class RecoveryProblem:
    """One judge's verdicts prepared for ranking under any weighting of their clusters.

    Parameters
    ----------
    tally : Tally
        One group.
    gold : Gold
        Item gold.
    level : {"auto", "system", "context"}
    alpha : float
        Pseudo-wins per compared ordered pair, for designs without a finite maximum.
    """

    def __init__(self, tally: Tally, gold: Gold, *, level: str = "auto", alpha: float = 0.0) -> None:
        if level not in LEVELS:
            raise InputError(f"level '{level}' is unknown; choose {', '.join(LEVELS)}")
        if gold.kind != "items":
            raise InputError(
                "rank recovery needs gold scores of items (columns item, score); pair gold has none"
            )
        seen = half_wins(tally.counts).sum(axis=1) > 0
        self.tally = tally.rows(seen)
        self.gold = gold
        self.alpha = alpha
        self.pooled = pool_pairs(self.tally)
        self.wins = half_wins(self.tally.counts)
        self.cluster_ids, self.cluster = np.unique(tally.clusters()[seen], return_inverse=True)
        self.level = self._default_level() if level == "auto" else level
        self.score = gold.item_scores(self.tally)[self.pooled.items]

    def _default_level(self) -> str:
        contexts_of_item = np.bincount(self.tally.judged_items()[1])
        one_context = len(np.unique(self.tally.context)) <= 1
        return "system" if one_context or np.median(contexts_of_item[contexts_of_item > 0]) > 1 else "context"

    @property
    def n_clusters(self) -> int:
        """Number of resampling clusters."""
        return len(self.cluster_ids)

    def cluster_key(self) -> np.ndarray:
        """Content key of every cluster, shape (C,)."""
        total = np.zeros(self.n_clusters, dtype=np.uint64)
        with np.errstate(over="ignore"):
            np.add.at(total, self.cluster, cluster_keys(self.tally, self.gold).view(np.uint64))
        return total.view(np.int64)

    def pooled_wins(self, wins: np.ndarray | None = None) -> np.ndarray:
        """Sum wins (P, 2) over contexts to pooled pairs (M, 2)."""
        wins = self.wins if wins is None else wins
        m = len(self.pooled.item_i)
        return np.stack([np.bincount(self.pooled.pair_of_row, wins[:, side], m) for side in (0, 1)], axis=1)

    def rank(self, pooled_wins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rank values (B, n) of a batch of pooled wins (B, M, 2), and which are defined."""
        p = self.pooled
        return rank_values(p.item_i, p.item_j, pooled_wins, p.n_items, alpha=self.alpha)

    def correlate(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rho and tau of rank values (B, n) with gold over the items that have it, each (B,)."""
        known = ~np.isnan(self.score)
        return rank_correlations(values[:, known], self.score[known])

    def rho(self, wins: np.ndarray) -> np.ndarray:
        """Rho of a batch of row wins (B, P, 2) at the problem's level, shape (B,)."""
        if self.level == "context":
            return np.array(
                [np.nanmean(c) if np.isfinite(c := self.context_rho(one)).any() else np.nan for one in wins]
            )
        pooled = np.stack([self.pooled_wins(one) for one in wins])
        return self.correlate(self.rank(pooled)[0])[0]

    def resample(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rho and tau of every weighting (B, C) of the clusters, each (B,); system level."""
        m = len(self.pooled.item_i)
        matrix = self._wins_of_clusters()
        rho, tau = np.empty((2, len(weights)))
        step = max(1, _CHUNK_BYTES // (32 * max(m, 1)))
        for start in range(0, len(weights), step):
            part = slice(start, start + step)
            wins = np.asarray(weights[part] @ matrix).reshape(-1, m, 2)
            rho[part], tau[part] = self.correlate(self.rank(wins)[0])
        return rho, tau

    def _wins_of_clusters(self) -> csr_matrix:
        """Wins of every cluster on every pooled pair and side, sparse, shape (C, 2 M)."""
        from scipy.sparse import csr_matrix

        rows = np.concatenate([self.cluster, self.cluster])
        columns = np.concatenate([2 * self.pooled.pair_of_row, 2 * self.pooled.pair_of_row + 1])
        shape = (self.n_clusters, 2 * len(self.pooled.item_i))
        return csr_matrix((self.wins.T.ravel(), (rows, columns)), shape=shape)

    def context_rho(self, wins: np.ndarray | None = None) -> np.ndarray:
        """Rho inside every context, (contexts,), NaN where it is left out (see `Recovery`)."""
        return self._by_context(self.wins if wins is None else wins)[0]

    def _by_context(self, wins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        tally = self.tally
        contexts, code = np.unique(tally.context, return_inverse=True)
        rho, tau = np.full((2, len(contexts)), np.nan)
        for index in range(len(contexts)):
            rows = (
                np.flatnonzero(code == index)
                if len(contexts) < 64
                else slice(*np.searchsorted(code, [index, index + 1]))
            )
            items, place = np.unique(np.stack([tally.item_i[rows], tally.item_j[rows]]), return_inverse=True)
            score = self.gold.scores(tally, np.full(len(items), contexts[index]), items)
            known = ~np.isnan(score)
            if known.sum() < 3 or np.ptp(score[known]) == 0:
                continue
            try:
                values, defined = rank_values(
                    place[0], place[1], wins[rows][None], len(items), alpha=self.alpha
                )
            except (NoMaximumError, ConvergenceError):
                continue
            if defined[0]:
                rho[index], tau[index] = rank_correlations(values[0][known], score[known])
        return rho, tau


def recover_ranking(
    tally: Tally,
    gold: Gold,
    *,
    level: str = "auto",
    alpha: float = 0.0,
    n_resamples: int = DEFAULT_RESAMPLES,
    confidence: float = DEFAULT_LEVEL,
    rng: np.random.Generator | int | None = None,
) -> Recovery:
    """Measure how well the verdicts of one group recover the gold ranking.

    Parameters
    ----------
    tally : Tally
        One group (``tally.select(k)``).
    gold : Gold
        Item gold; at the system level, gold given per context is averaged per item.
    level : {"auto", "system", "context"}
        "system": contexts pooled in one Bradley-Terry fit (default when items recur across contexts).
        "context": one ranking per context, rho averaged.
    alpha : float
        Pseudo-wins per compared ordered pair; needed where the likelihood has no finite maximum.
    n_resamples, confidence, rng
        Bootstrap over clusters (contexts if the table has them, else pairs), and over items.

    Returns
    -------
    Recovery
        With NaN and a reason where rho is undefined; nothing is raised for data that merely lack a ranking.
    """
    check_resampling(n_resamples, confidence)
    problem = RecoveryProblem(tally, gold, level=level, alpha=alpha)
    generator = np.random.default_rng(seed_of(rng))
    nan = float("nan")
    empty = Recovery(
        *(nan,) * 8, problem.level, nan, 0, 0, 0, 0, np.full(len(tally.items), nan), "", np.zeros(0)
    )  # fmt: skip
    if problem.n_clusters == 0:
        left_out = len(np.unique(tally.context)) if problem.level == "context" else 0
        return replace(empty, reason="there is no valid verdict", n_contexts_left_out=left_out)
    if problem.level == "context":
        n_contexts = len(np.unique(tally.context))
        return _recover_by_context(problem, n_contexts, empty, n_resamples, confidence, generator)
    known = ~np.isnan(problem.score)
    if known.sum() < 2:
        return replace(empty, reason=f"{known.sum()} ranked item(s) have gold; at least 2 are needed")
    empty = replace(empty, n_items=int(known.sum()), n_contexts=1)
    if np.ptp(problem.score[known]) == 0:
        return replace(empty, reason="gold is the same for all ranked items")
    pooled = problem.pooled_wins()[None]
    values, defined = problem.rank(pooled)
    if not defined[0]:
        return replace(empty, reason=_why_no_ranking(problem, pooled[0]))
    rho, tau = problem.correlate(values)
    all_values = np.full(len(tally.items), nan)
    all_values[problem.pooled.items] = values[0]
    blocks = map(problem.resample, draw_clusters(problem.cluster_key(), n_resamples, generator))
    rho_samples, tau_samples = np.concatenate([np.stack(block) for block in blocks], axis=1)
    over_items = _resample_items(values[0][known], problem.score[known], n_resamples, generator)
    n_items = int(known.sum())
    interval = correlation_interval(rho_samples, rho[0], n_items, level=confidence)
    tau_interval = correlation_interval(tau_samples, tau[0], n_items, level=confidence)
    items_interval = percentile_interval(over_items, rho[0], level=confidence, bounds=(-1.0, 1.0))
    n_undefined = int(np.isnan(rho_samples).sum())
    if problem.n_clusters == 1:
        interval = tau_interval = Interval(rho[0], np.array(nan), np.array(nan), confidence)
    reason = ""
    if np.isnan(rho[0]):
        reason = "the judge ranks all items equally"
    elif known.sum() == 2:
        reason = "with two items rho can only be -1 or 1"
    elif problem.n_clusters == 1:
        what = "context" if tally.has_context else "pair"
        reason = f"a single {what}: rho has no interval over resampled clusters"
    elif n_undefined > n_resamples / 2:
        reason = f"{n_undefined} of {n_resamples} resamples have no finite ranking, so rho has no interval; {_ALPHA_HELPS}"
    return replace(
        empty,
        spearman=float(rho[0]),
        spearman_low=float(interval.low),
        spearman_high=float(interval.high),
        kendall=float(tau[0]),
        kendall_low=float(tau_interval.low),
        kendall_high=float(tau_interval.high),
        spearman_items_low=float(items_interval.low),
        spearman_items_high=float(items_interval.high),
        n_undefined_resamples=n_undefined,
        values=all_values,
        reason=reason,
        samples=rho_samples,
    )


def undefined_resamples_note(n_undefined: int, label: str) -> str:
    """Sentence on resamples that are in no interval although there is one."""
    return f"rho of {label}: {n_undefined} resamples have no finite ranking and are in no interval; {_ALPHA_HELPS}"


def _why_no_ranking(problem: RecoveryProblem, wins: np.ndarray) -> str:
    """Return the sentence of the fit that failed."""
    from rank.bradley_terry import fit_bradley_terry

    p = problem.pooled
    counts = np.concatenate([wins, np.zeros((len(wins), 1))], axis=-1)
    names = [str(item) for item in problem.tally.items[p.items]]
    try:
        fit_bradley_terry(
            p.item_i, p.item_j, counts, n_items=p.n_items, alpha=problem.alpha, item_names=names
        )
    except (NoMaximumError, ConvergenceError) as error:
        return str(error)
    return "the fit has no finite maximum"


def _resample_items(
    values: np.ndarray, score: np.ndarray, n_resamples: int, rng: np.random.Generator
) -> np.ndarray:
    """Rho over items drawn with replacement, (B,); items are ordered by gold and value, not by name."""
    order = np.lexsort((values, score))
    drawn = order[rng.integers(0, len(order), size=(n_resamples, len(order)))]
    return spearman(values[drawn], score[drawn])


def _recover_by_context(
    problem: RecoveryProblem,
    n_contexts: int,
    empty: Recovery,
    n_resamples: int,
    confidence: float,
    rng: np.random.Generator,
) -> Recovery:
    """Average rho over contexts; resample contexts."""
    rho, tau = problem._by_context(problem.wins)
    use = ~np.isnan(rho)
    # Contexts without a single valid verdict never reached the problem.
    left_out = n_contexts - int(use.sum())
    if not use.any():
        return replace(
            empty,
            n_contexts_left_out=left_out,
            reason=f"none of {left_out} contexts has three ranked items, varying gold and a finite ranking",
        )
    pairs = np.stack([rho[use], tau[use]], axis=1)
    pairs = pairs[np.lexsort(pairs.T)]
    drawn = rng.integers(0, len(pairs), size=(n_resamples, len(pairs)))
    samples = pairs[drawn].mean(axis=1)
    estimate = pairs.mean(axis=0)
    interval = percentile_interval(samples, estimate, level=confidence, bounds=(-1.0, 1.0))
    sizes = np.bincount(problem.tally.judged_items()[0])
    reason = "a single context: rho has no interval over contexts" if len(pairs) == 1 else ""
    nan = float("nan")
    one = len(pairs) == 1
    return replace(
        empty,
        spearman=float(estimate[0]),
        spearman_low=nan if one else float(interval.low[0]),
        spearman_high=nan if one else float(interval.high[0]),
        kendall=float(estimate[1]),
        kendall_low=nan if one else float(interval.low[1]),
        kendall_high=nan if one else float(interval.high[1]),
        spearman_sd=float(pairs[:, 0].std(ddof=1)) if not one else nan,
        n_items=int(np.median(sizes[sizes > 0])),
        n_contexts=len(pairs),
        n_contexts_left_out=left_out,
        reason=reason,
        samples=samples[:, 0],
    )
