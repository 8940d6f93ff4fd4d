"""Buckets of the gold gap: which pairs are close and which are far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rank.exceptions import InputError
from rank.gold import Gold, PairGold
from rank.tally import Tally

EDGE_BASES = ("items", "judged")
_MOST_GAPS = 50_000_000


@dataclass(frozen=True)
class GapBuckets:
    """Pairs sorted into buckets of their gold gap.

    Attributes
    ----------
    names : tuple of str
        "close", numbers between, "far".
    edges : ndarray, shape (buckets - 1,)
        Gap values between the buckets. close is gap <= first edge, far is gap >= last edge.
    bucket : ndarray of int, shape (P,)
        Bucket of each pair; -1 where the gap is unknown or the pair was excluded.
    low, high : ndarray, shape (buckets,)
        Smallest and largest gap of the judged pairs in each bucket.
    basis : str
        Which gaps the edges are quantiles of ("items", "judged"), or "fixed".
    n_excluded_ties, n_unknown : int
        Pairs left out because their gap is zero (by option) or unknown.
    notes : tuple of str
    """

    names: tuple[str, ...]
    edges: np.ndarray
    bucket: np.ndarray
    low: np.ndarray
    high: np.ndarray
    basis: str
    n_excluded_ties: int
    n_unknown: int
    notes: tuple[str, ...]


def within_context_gaps(tally: Tally, gold: Gold) -> np.ndarray:
    """Return the gold gaps of all within-context pairs of the judged items, whether judged or not.

    Parameters
    ----------
    tally : Tally
        One group.
    gold : Gold
        Item gold.

    Returns
    -------
    ndarray, shape (pairs,)
    """
    context, item = tally.judged_items()
    score = gold.scores(tally, context, item)
    context, score = context[~np.isnan(score)], score[~np.isnan(score)]
    starts = np.flatnonzero(np.diff(context, prepend=-1))
    sizes = np.diff(np.append(starts, len(context)))
    total = int((sizes * (sizes - 1) // 2).sum())
    if total > _MOST_GAPS:
        raise InputError(
            f"{total:,} within-context pairs are too many to take quantiles of; use --edges judged or --gap-edges"
        )
    gaps = []
    for size in np.unique(sizes):  # contexts of equal size at once
        block = score[starts[sizes == size][:, None] + np.arange(size)]
        low, high = np.triu_indices(size, 1)
        gaps.append(gold.gaps(block[:, low].ravel(), block[:, high].ravel()))
    return np.concatenate(gaps) if gaps else np.zeros(0)


def _near_edges(gap: np.ndarray, edges: np.ndarray, gold: Gold) -> list[str]:
    """Say where gold that was rounded in its file may have parted equal gaps."""
    decimals = gold.decimals
    if gold.gap_digits is not None or not decimals:
        return []
    unit = 10.0**-decimals
    distance = np.abs(gap[:, None] - edges)
    near = int(((distance > unit / 2) & (distance < 1.5 * unit)).any(axis=1).sum())
    if not near:
        return []
    return [
        f"{near} pair(s) lie one unit of gold's last decimal ({unit:g}) from an edge; if gold was rounded in its file, "
        f"equal gaps may be parted there: --gap-digits {decimals - 1} joins them"
    ]


def bucket_gaps(
    tally: Tally,
    gold: Gold,
    pair_gold: PairGold,
    *,
    n_buckets: int = 4,
    edges: str | Sequence[float] = "items",
) -> GapBuckets:
    """Sort the pairs of one group into buckets of their gold gap.

    Parameters
    ----------
    tally : Tally
        One group.
    gold, pair_gold : Gold, PairGold
        Gold, and its alignment with the tally. ``gold.without_ties()`` leaves out pairs with gap zero before
        anything else.
    n_buckets : int
        Number of quantile buckets (4 = quartiles).
    edges : {"items", "judged"} or sequence of float
        Quantiles over all within-context pairs of the judged items (item gold only; with pair gold the
        judged pairs are all there is), over the judged pairs, or fixed edges.

    Returns
    -------
    GapBuckets

    Raises
    ------
    InputError
        Without gaps; when all gaps are equal; when close and far would share pairs.
    """
    if not gold.has_gaps:
        raise InputError(
            "gold has winners but no gaps; close and far pairs need a gap column or scores of items"
        )
    gap = (gold.align_all(tally) if gold.exclude_ties else pair_gold).gap
    known = ~np.isnan(gap)
    tied = known & (gap == 0)
    used = known & ~tied if gold.exclude_ties else known
    notes: list[str] = []
    if isinstance(edges, str):
        if edges not in EDGE_BASES:
            raise InputError(f"edges='{edges}' is unknown; choose items or judged")
        if n_buckets < 2:
            raise InputError(f"at least 2 buckets are needed, found {n_buckets}")
        basis = edges if gold.kind == "items" else "judged"
        pool = within_context_gaps(tally, gold) if basis == "items" else gap[known]
        if gold.exclude_ties:
            pool = pool[pool > 0]
        if len(pool) == 0 or not used.any():
            raise InputError("no pair has a known gap, so there are no close and far pairs")
        if pool.min() == pool.max():
            raise InputError(f"all gold gaps are equal ({pool.min():g}), so there are no close and far pairs")
        cut = np.quantile(pool, np.arange(1, n_buckets) / n_buckets)
    else:
        basis, cut = "fixed", np.asarray(edges, dtype=float)
        if len(cut) == 0 or not np.isfinite(cut).all() or (np.diff(cut) <= 0).any() or cut[0] < 0:
            raise InputError(f"gap edges must be increasing numbers of at least 0, found {list(edges)}")
        if not used.any():
            raise InputError("no pair has a known gap, so there are no close and far pairs")
    distinct = np.unique(cut)
    if len(distinct) < len(cut):
        notes.append(
            f"{len(cut) - len(distinct)} of {len(cut)} edges coincide (many equal gaps), so neighbouring buckets were merged"
        )
    if len(distinct) == 1 and len(cut) > 1:
        raise InputError(
            f"close and far would overlap: the first and the last of the {len(cut)} edges are both {distinct[0]:g} "
            "(too many equal gaps); give edges with --gap-edges, or drop gold ties with --exclude-gold-ties"
        )
    notes += _near_edges(gap[used], distinct, gold)
    # close: gap <= first edge; between: (edge, edge]; far: gap >= last edge. With one edge, far is gap > edge.
    bucket = np.searchsorted(distinct, gap, side="left")
    if len(distinct) > 1:
        bucket = np.where(gap >= distinct[-1], len(distinct), bucket)
    bucket = np.where(used, bucket, -1)
    size = np.bincount(bucket[bucket >= 0], minlength=len(distinct) + 1)
    if size[0] == 0 or size[-1] == 0:
        empty = "close" if size[0] == 0 else "far"
        notes.append(f"no judged pair is {empty} (edges {', '.join(f'{edge:g}' for edge in distinct)})")
    inner_empty = np.flatnonzero(size[1:-1] == 0) + 1
    if len(inner_empty):
        notes.append(f"{len(inner_empty)} bucket(s) without a judged pair were left out")
        keep = np.setdiff1d(np.arange(len(size)), inner_empty)
        place = np.full(len(size) + 1, -1)
        place[keep] = np.arange(len(keep))
        bucket = place[bucket]
        # Between two kept buckets any of the edges would do; close keeps the first edge, far the last.
        chosen = keep[:-1].copy()
        if len(keep) > 2:
            chosen[-1] = len(distinct) - 1
        distinct = distinct[chosen]
        size = size[keep]
    n = len(size)
    names = ("close", *(str(k) for k in range(2, n)), "far")
    low, high = np.full(n, np.nan), np.full(n, np.nan)
    for k in range(n):
        if size[k]:
            low[k], high[k] = gap[bucket == k].min(), gap[bucket == k].max()
    return GapBuckets(
        names,
        distinct,
        bucket,
        low,
        high,
        basis,
        int(tied.sum()) if gold.exclude_ties else 0,
        int((~known).sum()),
        tuple(notes),
    )
