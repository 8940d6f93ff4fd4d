"""Triads: does a judge contradict itself across three items?

All item triples inside a (group, context) whose three pairs have a verdict are *complete* and fall into four
classes (`>` decided, `~` undecided: a tie, or a verdict that depends on the order shown):

=============  =======================  =========================================================
class          pattern                  reading
=============  =======================  =========================================================
cyclic         A > B, B > C, C > A      contradiction
mixed          A > B, B > C, A ~ C      the two steps are decided, their sum is not
inequality     A ~ B, B ~ C, A > C      two indifferences that add up to a preference
transitive     everything else          includes A ~ B ~ C ~ A and A > B, A > C, B ~ C
=============  =======================  =========================================================

Counts are exact integers. Dense contexts are counted by matrix products, contexts of similar size together in
one batch; sparse contexts by closing the wedges of the degree-ordered graph (the "forward" algorithm),
O(pairs^1.5) time and no n x n array.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from difficulty.reliability import pair_verdicts
from rank.codes import combine_codes
from rank.exceptions import InputError
from rank.resample import (
    DEFAULT_LEVEL,
    DEFAULT_RESAMPLES,
    Interval,
    bootstrap_sums,
    check_resampling,
    percentile_interval,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rank.gold import PairGold
    from rank.tally import Tally

TRIAD_COLUMNS = (
    "n_complete",
    "n_transitive",
    "n_cyclic",
    "n_mixed",
    "n_inequality",
    "n_incomplete",
    "n_inequality_assessed",
    "n_inequality_valid",
)
TRIAD_SHARES = (
    "transitive_share",
    "cyclic_share",
    "mixed_share",
    "inequality_share",
    "nontransitive_share",
    "inequality_valid_share",
)
ITEM_I, ITEM_J, UNDECIDED, MISSING = 0, 1, 2, -1

_SMALL = 64  # contexts up to this many items are padded and multiplied in batches, whatever their density
_CHUNK = 1 << 22  # array elements (or wedges) worked on at a time
_TRANSITIVE, _CYCLIC, _MIXED, _INEQUALITY = range(4)


@dataclass(frozen=True)
class TriadCounts:
    """Exact triad counts (Python ints) with their shares.

    Attributes
    ----------
    n_complete, n_transitive, n_cyclic, n_mixed, n_inequality
        Triads whose three pairs all have a verdict, in total and by class; the four classes add up to
        `n_complete`.
    n_incomplete
        The other triples of items that occur in the context: C(n, 3) - `n_complete`, summed over contexts.
    n_inequality_assessed
        Inequality triads whose three gold gaps, and the gold winner of the decided pair, are known (0 without
        gold).
    n_inequality_valid
        Of these, the *substantively valid* ones: no gold gap of the three exceeds that of the decided pair
        (equal gaps allowed), and the decision agrees with a gold winner (so never on a gold tie).

    Notes
    -----
    Shares (`cyclic_share`, `mixed_share`, `inequality_share`, `transitive_share`, `nontransitive_share`) are
    of the complete triads, `inequality_valid_share` of the assessed inequality triads; NaN where the
    denominator is 0.
    """

    n_complete: int
    n_transitive: int
    n_cyclic: int
    n_mixed: int
    n_inequality: int
    n_incomplete: int
    n_inequality_assessed: int = 0
    n_inequality_valid: int = 0

    def __add__(self, other: TriadCounts) -> TriadCounts:
        return TriadCounts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def _share(self, count: int) -> float:
        return count / self.n_complete if self.n_complete else math.nan

    @property
    def transitive_share(self) -> float:
        return self._share(self.n_transitive)

    @property
    def cyclic_share(self) -> float:
        return self._share(self.n_cyclic)

    @property
    def mixed_share(self) -> float:
        return self._share(self.n_mixed)

    @property
    def inequality_share(self) -> float:
        return self._share(self.n_inequality)

    @property
    def nontransitive_share(self) -> float:
        return self._share(self.n_complete - self.n_transitive)

    @property
    def inequality_valid_share(self) -> float:
        return (
            self.n_inequality_valid / self.n_inequality_assessed if self.n_inequality_assessed else math.nan
        )

    @property
    def reason(self) -> str:
        """Why the shares are NaN; empty where they are not."""
        if self.n_complete:
            return ""
        if self.n_incomplete:
            return f"none of the {self.n_incomplete} item triples has a verdict on all three pairs"
        return "fewer than three items share a context"


@dataclass(frozen=True)
class ContextTriads:
    """Triad counts of every (group, context) block, the unit that is resampled.

    Attributes
    ----------
    group, context : (B,) int64
        Codes of the tally's groups and contexts; only combinations that occur, sorted.
    counts : (B, 8) int64
        Columns `TRIAD_COLUMNS`.
    """

    group: npt.NDArray[np.int64]
    context: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]

    def of_group(self, group: int) -> npt.NDArray[np.int64]:
        """Counts (B_g, 8) of one group's contexts."""
        return self.counts[self.group == group]


@dataclass(frozen=True)
class TriadIntervals(Interval):
    """Percentile bootstrap intervals of the six shares (`TRIAD_SHARES`), contexts resampled.

    Attributes
    ----------
    estimate, low, high : (6,) float
        Shares in [0, 1]; the estimate is the full-data value and lies inside its interval.
    n_contexts : int
        Contexts with at least one complete triad.
    reason : str
        Why bounds are NaN; empty where none is.
    """

    n_contexts: int = 0
    reason: str = ""


def count_triads(
    item_i: npt.ArrayLike,
    item_j: npt.ArrayLike,
    verdict: npt.ArrayLike,
    gap: npt.ArrayLike | None = None,
    gold_winner: npt.ArrayLike | None = None,
    *,
    n_items: int,
    score: npt.ArrayLike | None = None,
) -> TriadCounts:
    """Count the triads of one context.

    Parameters
    ----------
    item_i, item_j : (P,) ints in [0, n_items)
        The two items of each pair; a pair occurs once, in either orientation.
    verdict : (P,) ints
        0 item i wins, 1 item j wins, 2 undecided, -1 no verdict.
    gap, gold_winner : (P,) optional
        Gold gap (>= 0, NaN unknown) and gold winner (0 i, 1 j, 2 tie, -1 unknown) per pair; both or neither.
    n_items : int
        Items of the context; triples of them that are not complete are counted as incomplete.
    score : (n_items,) optional
        Item gold (NaN unknown) instead of `gap` and `gold_winner`; the faster way on large dense contexts.

    Returns
    -------
    TriadCounts

    Raises
    ------
    InputError
        Items out of range, an item paired with itself, a pair given twice, unknown codes, negative gaps.

    Notes
    -----
    Three n x n products (one or two more with gold) on dense contexts: time O(n^3) at BLAS speed, memory
    O(n^2). Entries of a product are at most n, so single precision is exact; their sums are taken in double
    precision.

    Examples
    --------
    A > B, B > C, C > A, and D undecided against A and B:

    >>> count = count_triads([0, 1, 2, 0, 1], [1, 2, 0, 3, 3], [0, 0, 0, 2, 2], n_items=4)
    >>> count.n_cyclic, count.n_inequality, count.n_incomplete
    (1, 1, 2)
    >>> count.cyclic_share
    0.5

    With gold scores A 3, B 1, D 2: A > B has the largest gap and agrees, so the inequality triad is valid.

    >>> count_triads([0, 1, 2, 0, 1], [1, 2, 0, 3, 3], [0, 0, 0, 2, 2], n_items=4,
    ...              score=[3, 1, 0, 2]).n_inequality_valid
    1
    """
    first, second, code = _pairs_iv(item_i, item_j, verdict, n_items)
    if score is not None and (gap is not None or gold_winner is not None):
        raise InputError("triads: give either item scores or gap and gold_winner per pair, not both")
    if (gap is None) != (gold_winner is None):
        raise InputError("triads: gap and gold_winner go together; one of them is missing")
    gaps, winner, scores = None, None, None
    if score is not None:
        scores = np.asarray(score, dtype=float)
        if scores.shape != (n_items,):
            raise InputError(
                f"triads: score needs one value per item ({n_items}), found shape {scores.shape}"
            )
        gaps, winner = _gold_of_scores(scores[first], scores[second])
    elif gap is not None:
        gaps, winner = np.asarray(gap, dtype=float), np.asarray(gold_winner)
        if gaps.shape != code.shape or winner.shape != code.shape:
            raise InputError(f"triads: gap and gold_winner need one value per pair ({code.size})")
        if (gaps < 0).any():
            raise InputError("triads: gold gaps are distances, found a negative one")
    node_block = np.zeros(n_items, dtype=np.int64)
    counts = _count_blocks(first, second, code, node_block, 1, gaps, winner, scores)
    return _to_counts(counts)


def context_triads(
    tally: Tally, pair_gold: PairGold | None = None, *, invalid: str = "exclude"
) -> ContextTriads:
    """Triad counts of every (group, context) of a tally.

    The verdict of a pair is that of `pair_verdicts`; the items of a context are those of the group's pairs in
    it, judged validly or not.

    Parameters
    ----------
    tally : Tally
    pair_gold : PairGold, optional
        Aligned with the tally's pairs; adds the assessed and valid inequality triads.
    invalid : {"exclude", "equal"}
        See `difficulty.reliability.modal_verdicts`.

    Returns
    -------
    ContextTriads
    """
    key = combine_codes((tally.group, len(tally.groups)), (tally.context, len(tally.contexts)))
    keys, example, block = np.unique(key, return_index=True, return_inverse=True)
    ends = [
        combine_codes((block, keys.size), (item, len(tally.items))) for item in (tally.item_i, tally.item_j)
    ]
    nodes, code = np.unique(np.concatenate(ends), return_inverse=True)
    node_i, node_j = np.split(code, 2)
    node_block = np.empty(nodes.size, dtype=np.int64)
    node_block[node_i] = node_block[node_j] = block
    gaps, winner, scores = None, None, None
    if pair_gold is not None:
        gaps, winner = pair_gold.gap, pair_gold.winner
        known = np.isfinite(pair_gold.score_i) & np.isfinite(pair_gold.score_j)
        if known[np.isfinite(gaps)].all():  # item gold: one score per item and context
            scores = np.full(nodes.size, np.nan)
            scores[node_i[known]] = pair_gold.score_i[known]
            scores[node_j[known]] = pair_gold.score_j[known]
    verdict = pair_verdicts(tally.counts, invalid=invalid)
    counts = _count_blocks(node_i, node_j, verdict, node_block, keys.size, gaps, winner, scores)
    return ContextTriads(group=tally.group[example], context=tally.context[example], counts=counts)


def triads_of_tally(tally: Tally, pair_gold: PairGold | None = None) -> list[TriadCounts]:
    """Triad counts per group of a tally, summed over its contexts (see `context_triads`)."""
    blocks = context_triads(tally, pair_gold)
    return [_to_counts(blocks.of_group(group)) for group in range(len(tally.groups))]


def triad_shares(counts: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Shares (..., 6) in the order of `TRIAD_SHARES` from counts (..., 8) in the order of `TRIAD_COLUMNS`.

    NaN where the denominator is 0. Weighted sums of counts (bootstrap weights @ counts) are counts, too.
    """
    number = np.asarray(counts, dtype=float)
    complete, assessed = number[..., :1], number[..., 6:7]
    with np.errstate(invalid="ignore", divide="ignore"):
        classes = number[..., 1:5] / complete
        rest = (complete - number[..., 1:2]) / complete
        valid = number[..., 7:8] / assessed
    return np.concatenate([classes, rest, valid], axis=-1)


def triad_intervals(
    counts: npt.NDArray[np.int64],
    *,
    n_resamples: int = DEFAULT_RESAMPLES,
    level: float = DEFAULT_LEVEL,
    rng: np.random.Generator | int | None = None,
) -> TriadIntervals:
    """Intervals of the triad shares by resampling contexts.

    Parameters
    ----------
    counts : (B, 8)
        Counts per context of one group (`ContextTriads.of_group`).
    n_resamples : int
    level : float
    rng : optional
        Seed or generator.

    Returns
    -------
    TriadIntervals
        NaN bounds with a reason where fewer than two contexts have the triads in question: triads of one
        context share pairs and are no independent draws. A share at 0 or 1 gets the Wilson interval with the
        number of contexts as its size, as if each context were one draw (wide on purpose).

    Examples
    --------
    >>> table = np.array([[4, 3, 1, 0, 0, 0, 0, 0], [4, 4, 0, 0, 0, 0, 0, 0], [4, 2, 1, 1, 0, 0, 0, 0]])
    >>> result = triad_intervals(table, rng=1)
    >>> bool(result.low[1] < result.estimate[1] < result.high[1])
    True
    >>> triad_intervals(table[:1]).reason
    'contexts with complete triads: 1; an interval needs at least two to resample'
    """
    check_resampling(n_resamples, level)
    table = np.asarray(counts, dtype=float)
    estimate = triad_shares(table.sum(axis=0))
    n_contexts, n_assessed = int((table[:, 0] > 0).sum()), int((table[:, 6] > 0).sum())
    draws = triad_shares(bootstrap_sums(table, n_resamples, rng=rng))
    size = np.array([n_contexts] * 5 + [n_assessed])
    interval = percentile_interval(draws, estimate, level=level, bounds=(0.0, 1.0), n_trials=size)
    known = size >= 2
    low, high = np.where(known, interval.low, np.nan), np.where(known, interval.high, np.nan)
    if n_contexts < 2:
        reason = f"contexts with complete triads: {n_contexts}; an interval needs at least two to resample"
    elif n_assessed < 2:
        reason = (
            f"contexts with inequality triads assessed by gold: {n_assessed}; an interval needs at least two"
        )
    else:
        reason = ""
    return TriadIntervals(estimate, low, high, level, n_contexts, reason)


def expected_triads(win: npt.ArrayLike, undecided: npt.ArrayLike | None = None) -> npt.NDArray[np.float64]:
    """Expected numbers of triads if pair verdicts are independent draws.

    Under independence the counts are sums of products of three probabilities, so the same matrix products
    that count triads give their expectation; with Bradley-Terry probabilities it is the null against which a
    cyclic share is read (a consistent judge with close items produces cycles by chance).

    Parameters
    ----------
    win : (..., n, n)
        Probability that the row item wins its pair with the column item; 0 on the diagonal and for pairs not
        judged.
    undecided : (..., n, n), optional
        Probability of no decision, symmetric.

    Returns
    -------
    (..., 5) float
        Expected n_complete, n_transitive, n_cyclic, n_mixed, n_inequality.

    Examples
    --------
    Coin flips: a quarter of all triads is cyclic.

    >>> expected_triads(0.5 * (1 - np.eye(4))).round(6)
    array([4., 3., 1., 0., 0.])
    """
    decided = np.asarray(win, dtype=float)
    tied = np.zeros_like(decided) if undecided is None else np.asarray(undecided, dtype=float)
    total = decided + np.swapaxes(decided, -1, -2) + tied
    if (total > 1 + 1e-9).any() or (decided < 0).any() or (tied < 0).any():
        raise InputError(
            "expected triads: the probabilities of a pair must lie in [0, 1] and sum to at most 1"
        )
    return _dense_classes(decided, tied)


def _to_counts(table: npt.NDArray[np.int64]) -> TriadCounts:
    return TriadCounts(*(sum(int(value) for value in column) for column in table.T))


def _gold_of_scores(
    score_i: npt.NDArray[np.float64], score_j: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int8]]:
    known = np.isfinite(score_i) & np.isfinite(score_j)
    winner = np.where(score_i > score_j, 0, np.where(score_i < score_j, 1, 2))
    return np.abs(score_i - score_j), np.where(known, winner, -1).astype(np.int8)


def _pairs_iv(
    item_i: npt.ArrayLike, item_j: npt.ArrayLike, verdict: npt.ArrayLike, n_items: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int8]]:
    first, second = np.asarray(item_i, dtype=np.int64).ravel(), np.asarray(item_j, dtype=np.int64).ravel()
    code = np.asarray(verdict).ravel()
    if not first.shape == second.shape == code.shape:
        raise InputError(
            f"triads: item_i, item_j, verdict differ in length: {first.size}, {second.size}, {code.size}"
        )
    if first.size and (min(first.min(), second.min()) < 0 or max(first.max(), second.max()) >= n_items):
        raise InputError(f"triads: item codes must lie in [0, {n_items}); check n_items")
    if (first == second).any():
        raise InputError(f"triads: pair {int(np.argmax(first == second))} compares an item with itself")
    if not np.isin(code, (ITEM_I, ITEM_J, UNDECIDED, MISSING)).all():
        raise InputError("triads: verdict codes are 0 (i), 1 (j), 2 (undecided), -1 (none)")
    low, high = np.minimum(first, second), np.maximum(first, second)
    key = np.sort(low * n_items + high)
    if (key[1:] == key[:-1]).any():
        twice = int(key[1:][key[1:] == key[:-1]][0])
        raise InputError(f"triads: the pair of items {twice // n_items} and {twice % n_items} is given twice")
    return first, second, code.astype(np.int8)


def _count_blocks(
    node_i: npt.NDArray[np.int64],
    node_j: npt.NDArray[np.int64],
    verdict: npt.NDArray[np.int8],
    node_block: npt.NDArray[np.int64],
    n_blocks: int,
    gap: npt.NDArray[np.float64] | None,
    gold_winner: npt.NDArray[np.int8] | None,
    score: npt.NDArray[np.float64] | None,
) -> npt.NDArray[np.int64]:
    """Counts (n_blocks, 8). Nodes are items of blocks, sorted by block; edges never cross blocks."""
    size = np.bincount(node_block, minlength=n_blocks)
    local = np.arange(node_block.size) - (np.cumsum(size) - size)[node_block]
    counts = np.zeros((n_blocks, 8), dtype=np.int64)
    judged = np.flatnonzero(verdict >= 0)
    node_i, node_j, verdict = node_i[judged], node_j[judged], verdict[judged]
    if gap is not None and gold_winner is not None:
        gap, gold_winner = gap[judged], gold_winner[judged]
    edge_block = node_block[node_i]
    n_edges = np.bincount(edge_block, minlength=n_blocks)
    # Products pay off on small blocks and on dense ones; gaps that do not come from scores need the triads
    # themselves, except where there are so many that a row-wise pass over the dense matrix is cheaper.
    dense_large = (size > _SMALL) & (n_edges.astype(float) * 50 > size.astype(float) ** 2)
    small = (size <= _SMALL) & (gap is None or score is not None)
    by_product = (dense_large | small) & (size >= 3) & (n_edges >= 3)

    listed = ~by_product[edge_block]
    if listed.any():
        gold = None if gap is None or gold_winner is None else (gap[listed], gold_winner[listed])
        counts += _count_by_listing(
            node_i[listed], node_j[listed], verdict[listed], node_block, n_blocks, gold
        )

    edge_order = np.argsort(edge_block, kind="stable")
    edge_start = np.cumsum(n_edges) - n_edges
    node_start = np.cumsum(size) - size
    for members, width in _batches(np.flatnonzero(by_product), size):
        slot = np.repeat(np.arange(members.size), n_edges[members])
        edges = edge_order[_ranges(edge_start[members], n_edges[members])]
        win, tied = _matrices(
            slot, local[node_i[edges]], local[node_j[edges]], verdict[edges], members.size, width
        )
        counts[members, :5] = np.rint(_dense_classes(win, tied)).astype(np.int64)
        if score is not None:
            scores = np.full((members.size, width), np.nan)
            nodes = _ranges(node_start[members], size[members])
            scores[np.repeat(np.arange(members.size), size[members]), local[nodes]] = score[nodes]
            counts[members, 6:8] = _valid_by_score(win, tied, scores, counts[members, 4])
        elif gap is not None and gold_winner is not None:
            here = (
                local[node_i[edges]],
                local[node_j[edges]],
                verdict[edges],
                gap[edges],
                gold_winner[edges],
            )
            counts[members[0], 6:8] = _valid_by_gap(tied[0], *here)
    triples = {int(n): math.comb(int(n), 3) for n in np.unique(size)}
    counts[:, 5] = np.array([triples[int(n)] for n in size], dtype=np.int64) - counts[:, 0]
    return counts


def _ranges(start: npt.NDArray[np.int64], length: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Concatenation of arange(start, start + length)."""
    offset = np.repeat(start - (np.cumsum(length) - length), length)
    return np.arange(length.sum()) + offset


def _batches(
    blocks: npt.NDArray[np.int64], size: npt.NDArray[np.int64]
) -> Iterator[tuple[npt.NDArray[np.int64], int]]:
    """Blocks to be padded to one width: small ones to powers of two, in bounded batches; large ones alone."""
    width = np.where(size <= _SMALL, 2 ** np.ceil(np.log2(np.maximum(size, 2))).astype(np.int64), size)
    for w in np.unique(width[blocks]):
        members = blocks[width[blocks] == w]
        step = max(1, _CHUNK // (4 * int(w) ** 2)) if w <= _SMALL else 1
        for begin in range(0, members.size, step):
            yield members[begin : begin + step], int(w)


def _matrices(
    slot: npt.NDArray[np.int64],
    row: npt.NDArray[np.int64],
    column: npt.NDArray[np.int64],
    verdict: npt.NDArray[np.int8],
    n_slots: int,
    width: int,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    win = np.zeros((n_slots, width, width), dtype=np.float32)
    tied = np.zeros_like(win)
    i_wins, j_wins, undecided = verdict == ITEM_I, verdict == ITEM_J, verdict == UNDECIDED
    win[slot[i_wins], row[i_wins], column[i_wins]] = 1
    win[slot[j_wins], column[j_wins], row[j_wins]] = 1
    tied[slot[undecided], row[undecided], column[undecided]] = 1
    tied[slot[undecided], column[undecided], row[undecided]] = 1
    return win, tied


def _masked_sum(product: npt.NDArray[np.floating], mask: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Sum of product where mask; every term is an exact integer, their sum is exact below 2^53."""
    return (product * mask).sum(axis=(-2, -1), dtype=np.float64)


def _dense_classes(win: npt.NDArray[np.floating], tied: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """n_complete, n_transitive, n_cyclic, n_mixed, n_inequality (..., 5) from (..., n, n) matrices."""
    beaten = np.swapaxes(win, -1, -2)
    two_steps = win @ win
    cyclic = _masked_sum(two_steps, beaten) / 3
    mixed = _masked_sum(two_steps, tied)
    inequality = _masked_sum(tied @ tied, win)
    judged = win + beaten + tied
    complete = _masked_sum(judged @ judged, judged) / 6
    return np.stack([complete, complete - cyclic - mixed - inequality, cyclic, mixed, inequality], axis=-1)


def _valid_by_score(
    win: npt.NDArray[np.float32],
    tied: npt.NDArray[np.float32],
    score: npt.NDArray[np.float64],
    n_inequality: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Assessed and valid inequality triads (B, 2).

    For a > c by gold, no gap of {a, b, c} exceeds that of (a, c) exactly if score_a >= score_b >= score_c. So
    the valid triads are the two-step paths of undecided pairs that descend (or stay level) in gold, and one
    product counts them.
    """
    above, below = score[:, :, None], score[:, None, :]
    descending = tied * (above >= below)
    valid = _masked_sum(descending @ descending, win * (above > below))
    assessed = n_inequality.astype(float)
    unknown = np.isnan(score).any(axis=1)
    if unknown.any():
        known = np.isfinite(score[unknown])
        both = known[:, :, None] & known[:, None, :]
        pairs = tied[unknown] * both
        assessed[unknown] = _masked_sum(pairs @ pairs, win[unknown] * both)
    return np.rint(np.stack([assessed, valid], axis=-1)).astype(np.int64)


def _valid_by_gap(
    tied: npt.NDArray[np.float32],
    row: npt.NDArray[np.int64],
    column: npt.NDArray[np.int64],
    verdict: npt.NDArray[np.int8],
    gap: npt.NDArray[np.float64],
    gold_winner: npt.NDArray[np.int8],
) -> npt.NDArray[np.int64]:
    """Assessed and valid inequality triads (2,) of one dense block whose gaps are known per pair only."""
    n = tied.shape[0]
    known = np.isfinite(gap)
    distance = np.full((n, n), np.inf)  # gold gap of undecided pairs, inf where there is none
    undecided = (verdict == UNDECIDED) & known
    distance[row[undecided], column[undecided]] = gap[undecided]
    distance[column[undecided], row[undecided]] = gap[undecided]
    decided = (verdict != UNDECIDED) & known & (gold_winner >= 0)
    near = np.isfinite(distance).astype(np.float32)
    two_steps = near @ near
    assessed = two_steps[row[decided], column[decided]].sum(dtype=np.float64)
    agree = decided & (gold_winner == verdict)
    limit = np.full((n, n), -1.0)
    limit[row[agree], column[agree]] = gap[agree]
    valid = 0
    for a in range(n):
        ends = np.flatnonzero(limit[a] >= 0)
        middle = np.flatnonzero(np.isfinite(distance[a]))
        longest = np.maximum(distance[np.ix_(ends, middle)], distance[a, middle])
        valid += int(np.count_nonzero(longest <= limit[a, ends][:, None]))
    return np.array([round(float(assessed)), valid], dtype=np.int64)


def _class_table() -> npt.NDArray[np.int64]:
    """Class of a triad low < mid < high by its codes low-mid, mid-high, low-high (0: the lower wins)."""
    table = np.full((3, 3, 3), _TRANSITIVE, dtype=np.int64)
    for x in range(3):
        for y in range(3):
            for z in range(3):
                beats = set()
                for code, (low, high) in zip((x, y, z), ((0, 1), (1, 2), (0, 2)), strict=True):
                    if code != UNDECIDED:
                        beats.add((low, high) if code == ITEM_I else (high, low))
                heads, tails = {a for a, _ in beats}, {b for _, b in beats}
                if len(beats) == 1:
                    table[x, y, z] = _INEQUALITY
                elif len(beats) == 2 and len(heads) == len(tails) == 2:
                    table[x, y, z] = _MIXED
                elif len(beats) == 3 and len(heads) == 3:
                    table[x, y, z] = _CYCLIC
    return table


def _count_by_listing(
    node_i: npt.NDArray[np.int64],
    node_j: npt.NDArray[np.int64],
    verdict: npt.NDArray[np.int8],
    node_block: npt.NDArray[np.int64],
    n_blocks: int,
    gold: tuple[npt.NDArray[np.float64], npt.NDArray[np.int8]] | None,
) -> npt.NDArray[np.int64]:
    """Counts (n_blocks, 8) of sparse graphs, all blocks at once, n_incomplete left at 0.

    Nodes are ranked by degree; every edge points to the higher rank, so no node has more than sqrt(2 P) edges
    out, and each triad is found once, as the wedge low -> mid -> high that low -> high closes.
    """
    n_nodes = node_block.size
    degree = np.bincount(node_i, minlength=n_nodes) + np.bincount(node_j, minlength=n_nodes)
    rank = np.empty(n_nodes, dtype=np.int64)
    rank[np.argsort(degree, kind="stable")] = np.arange(n_nodes)
    swap = rank[node_i] > rank[node_j]
    low = np.where(swap, rank[node_j], rank[node_i])
    high = np.where(swap, rank[node_i], rank[node_j])
    key = low * n_nodes + high
    order = np.argsort(key)
    key, low, high, swap = key[order], low[order], high[order], swap[order]
    code = _flip(verdict[order], swap)
    block = np.empty(n_nodes, dtype=np.int64)
    block[rank] = node_block
    out_degree = np.bincount(low, minlength=n_nodes)
    out_start = np.cumsum(out_degree) - out_degree
    if gold is not None:
        gap = gold[0][order]
        agrees = gold[1][order] == verdict[order]
        winner_known = gold[1][order] >= 0
    table = _class_table()
    counts = np.zeros((n_blocks, 8), dtype=np.int64)
    wedges = out_degree[high]
    chunk = np.cumsum(wedges) // _CHUNK
    for edges in np.split(np.arange(key.size), np.flatnonzero(np.diff(chunk)) + 1):
        low_mid = np.repeat(edges, wedges[edges])
        mid_high = _ranges(out_start[high[edges]], wedges[edges])
        wanted = low[low_mid] * n_nodes + high[mid_high]
        low_high = np.minimum(np.searchsorted(key, wanted), key.size - 1)
        closed = key[low_high] == wanted
        triad = np.stack([low_mid[closed], mid_high[closed], low_high[closed]])
        kind = table[code[triad[0]], code[triad[1]], code[triad[2]]]
        where = block[low[triad[0]]]
        counts[:, 1:5] += np.bincount(where * 4 + kind, minlength=4 * n_blocks).reshape(n_blocks, 4)
        if gold is None:
            continue
        chosen = kind == _INEQUALITY
        triad, where = triad[:, chosen], where[chosen]
        gaps = gap[triad]
        odd = np.argmax(code[triad] != UNDECIDED, axis=0)
        decided = triad[odd, np.arange(odd.size)]
        assessed = np.isfinite(gaps).all(axis=0) & winner_known[decided]
        largest = gap[decided] >= np.max(np.where(np.isfinite(gaps), gaps, np.inf), axis=0, initial=0.0)
        counts[:, 6] += np.bincount(where[assessed], minlength=n_blocks)
        counts[:, 7] += np.bincount(where[assessed & largest & agrees[decided]], minlength=n_blocks)
    counts[:, 0] = counts[:, 1:5].sum(axis=1)
    return counts


def _flip(code: npt.NDArray[np.int8], swap: npt.NDArray[np.bool_]) -> npt.NDArray[np.int8]:
    return np.where(swap & (code != UNDECIDED), 1 - code, code).astype(np.int8)
