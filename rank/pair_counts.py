"""Pair lists and counts for the Bradley-Terry engine: checked, oriented, and added up into cells."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from rank.exceptions import InputError

__all__ = [
    "Design",
    "OrderEffect",
    "PairMap",
    "check_counts",
    "check_order_effect",
    "check_pair_counts",
    "make_design",
    "outcomes",
    "summed_outcomes",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_SHORT = 2**27  # up to here, sums over both orders and all outcomes fit into 32 bits
_MOST_COUNTED = 2**53  # beyond, whole numbers have gaps in floating point


@dataclass(frozen=True)
class Design:
    """What every fit of a batch shares: indices, and the cells that rows of the pair list add up to."""

    n_items: int
    item_i: IntArray
    item_j: IntArray
    n_orders: int
    first: IntArray
    second: IntArray
    bucket: IntArray | None
    row_bucket: IntArray | None
    labels: tuple[Any, ...]
    gather: sparse.csr_array
    pair: IntArray
    cells_per_pair: IntArray


@dataclass(frozen=True)
class OrderEffect:
    """Bucket of each row of the pair list; labels are empty with a single gamma."""

    bucket: IntArray
    n_buckets: int
    labels: tuple[Any, ...]


def check_order_effect(
    order_effect: bool | npt.ArrayLike | None, n_rows: int, n_orders: int
) -> OrderEffect | None:
    if order_effect is None or (isinstance(order_effect, (bool, np.bool_)) and not order_effect):
        return None
    if n_orders != 2:
        raise InputError(
            "an order effect needs counts with the order axis, (..., M, 2, outcomes); these have none, "
            "so which item was shown first is unknown"
        )
    if isinstance(order_effect, (bool, np.bool_)):
        return OrderEffect(np.zeros(n_rows, dtype=np.int64), 1, ())
    given = np.asarray(order_effect)
    if given.shape != (n_rows,):
        raise InputError(
            f"order_effect must be True, False or one bucket label for each of the {n_rows} pairs, "
            f"found shape {given.shape}"
        )
    labels, bucket = np.unique(given, return_inverse=True)
    return OrderEffect(bucket.astype(np.int64), int(labels.size), tuple(labels.tolist()))


def _integers(values: npt.ArrayLike, name: str) -> IntArray:
    array = np.asarray(values)
    if array.ndim != 1:
        raise InputError(f"{name} must be one-dimensional, found shape {array.shape}")
    whole = np.issubdtype(array.dtype, np.integer) or (
        np.issubdtype(array.dtype, np.floating) and bool(np.all(array == np.floor(array)))
    )
    if array.size and not whole:
        raise InputError(f"{name} must hold item numbers 0, 1, ..., found {array.dtype}")
    return array.astype(np.int64, copy=False)


def check_pair_counts(
    item_i: npt.ArrayLike,
    item_j: npt.ArrayLike,
    counts: npt.ArrayLike,
    n_items: int | None,
    order_axis: bool | None,
) -> tuple[IntArray, IntArray, npt.NDArray[Any], int]:
    """Checked item numbers and counts as (fits..., M, orders, outcomes)."""
    left, right = _integers(item_i, "item_i"), _integers(item_j, "item_j")
    if left.size != right.size:
        raise InputError(f"item_i has {left.size} entries and item_j has {right.size}; they must be equal")
    if left.size == 0:
        raise InputError("there is no pair to fit: item_i and item_j are empty")
    # Read without a sign, a negative number is the largest: one pass finds both ends.
    largest = max(left.view(np.uint64).max(), right.view(np.uint64).max())
    if largest > np.iinfo(np.int64).max:
        raise InputError(f"item numbers start at 0, found {min(left.min(), right.min())}")
    if n_items is None:
        n_items = int(largest) + 1
    elif largest >= n_items:
        raise InputError(f"item number {largest} does not fit n_items = {n_items}; items are numbered from 0")
    same = left == right
    if np.any(same):
        row = int(np.argmax(same))
        raise InputError(f"row {row} of the pair list compares item {left[row]} with itself; drop such rows")

    array = np.asarray(counts)
    if array.dtype == bool or not np.issubdtype(array.dtype, np.number) or np.iscomplexobj(array):
        raise InputError(f"counts must be numbers, found {array.dtype}")
    shape, n_rows = array.shape, left.size
    plain = array.ndim >= 2 and shape[-2] == n_rows and shape[-1] in (3, 5)
    ordered = array.ndim >= 3 and shape[-3] == n_rows and shape[-2] == 2 and shape[-1] in (3, 5)
    if order_axis is None and plain and ordered:
        if shape[-1] == 5:
            plain = False  # five outcomes are those of a tally, which always has the order axis
        else:
            raise InputError(
                f"counts of shape {shape} for {n_rows} pairs can be read with or without an order axis; "
                "pass order_axis=True or order_axis=False"
            )
    if order_axis is not None:
        plain, ordered = plain and not order_axis, ordered and order_axis
    if not (plain or ordered):
        raise InputError(
            f"counts have shape {shape}; for {n_rows} pairs they must be (..., {n_rows}, 3) with [i "
            f"wins, j wins, tie] "
            f"or (..., {n_rows}, 2, 3 or 5) with the order shown before the outcomes"
        )
    return left, right, (array if ordered else array[..., None, :]), n_items


def make_design(
    left: IntArray, right: IntArray, n_items: int, n_orders: int, order: OrderEffect | None
) -> Design:
    rows = left.size
    low, high = np.minimum(left, right), np.maximum(left, right)
    labels: tuple[Any, ...] = ()
    row_bucket: IntArray | None = None
    if order is None:
        keys, cell = np.unique(low * n_items + high, return_inverse=True)
        first, second, bucket = keys // n_items, keys % n_items, None
        pair = np.arange(keys.size)
        # A row's wins of i are wins of the lower item, or of the higher one if the row is the other way
        # round.
        row_cell = np.repeat(cell, n_orders)
        straight = np.repeat(left == low, n_orders)
    else:
        labels, row_bucket, n_buckets = order.labels, order.bucket, order.n_buckets
        pair_keys, row_pair = np.unique(low * n_items + high, return_inverse=True)
        group_keys, row_group = np.unique(row_pair * n_buckets + row_bucket, return_inverse=True)
        group_pair, group_bucket = group_keys // n_buckets, group_keys % n_buckets
        a, b = pair_keys[group_pair] // n_items, pair_keys[group_pair] % n_items
        # Two cells per (pair, bucket): lower item first, higher item first.
        first = np.stack([a, b], axis=1).ravel()
        second = np.stack([b, a], axis=1).ravel()
        bucket = np.repeat(group_bucket, 2)
        pair = np.repeat(group_pair, 2)
        shown_low = np.stack([left == low, left != low], axis=1)
        row_cell = (2 * row_group[:, None] + np.where(shown_low, 0, 1)).ravel()
        # Outcomes are counted in item space; the item shown first is i in order 0 and j in order 1.
        straight = np.tile(np.array([True, False]), rows)
    n_cells = first.size
    # Columns: wins of i, wins of j, ties for each (row, order); rows of the product: first wins, second
    # wins, ties.
    source = np.arange(rows * n_orders)
    to_first = np.where(straight, row_cell, row_cell + n_cells)
    to_second = np.where(straight, row_cell + n_cells, row_cell)
    gather = sparse.csr_array(
        (
            np.ones(3 * source.size),
            (
                np.concatenate([to_first, to_second, row_cell + 2 * n_cells]),
                np.concatenate([source, source + source.size, source + 2 * source.size]),
            ),
        ),
        shape=(3 * n_cells, 3 * source.size),
    )
    n_pairs = int(pair.max()) + 1
    return Design(
        n_items=n_items,
        item_i=left,
        item_j=right,
        n_orders=n_orders,
        first=first,
        second=second,
        bucket=bucket,
        row_bucket=row_bucket,
        labels=labels,
        gather=gather,
        pair=pair,
        cells_per_pair=np.bincount(pair, minlength=n_pairs),
    )


def outcomes(counts: npt.NDArray[Any]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Wins of i, wins of j, ties of (M, orders, outcomes) counts; invalid dropped, inconsistent tied."""
    wins_i = counts[..., 0].astype(np.float64)
    wins_j = counts[..., 1].astype(np.float64)
    ties = counts[..., 2].astype(np.float64)
    if counts.shape[-1] == 5:
        ties += counts[..., 4]
    return wins_i, wins_j, ties


def summed_outcomes(
    counts: npt.NDArray[Any], largest: float = np.inf
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Wins of i, wins of j and ties (fits, M) of counts (fits, M, orders, outcomes), both orders together.

    Outcomes lie side by side in the table; where no count is above `largest`, they become short integers of their
    own, which later passes read several times as fast.
    """
    kind: type = np.float64
    # Sums of small integers would overflow, of single-precision weights lose digits.
    if counts.dtype.kind == "i":
        kind = np.int32 if largest < _SHORT else np.int64
    columns: list[list[npt.NDArray[Any]]] = [
        [counts[:, :, order, k].astype(kind, copy=False) for order in range(counts.shape[2])]
        for k in (0, 1, 2, 4)[: 4 if counts.shape[-1] == 5 else 3]
    ]
    wins_i, wins_j, ties, *inconsistent = (sum(column[1:], start=column[0]) for column in columns)
    return wins_i, wins_j, sum(inconsistent, start=ties)


def check_counts(array: npt.NDArray[Any]) -> float:
    """Refuse what is no count; return the largest if it is known without another pass, else infinity."""
    if array.dtype == np.int64:
        # Read without a sign, a negative number is the largest: one pass finds both ends.
        largest = int(array.view(np.uint64).max(initial=0))
        if _MOST_COUNTED < largest <= np.iinfo(np.int64).max:
            raise InputError(
                f"counts of more than 2**53 are not exact, found {largest}; weights may be larger as floats"
            )
        if largest <= _MOST_COUNTED:
            return largest
    low = array.min(initial=0)
    if low < 0 or (array.dtype.kind == "f" and not (np.isfinite(low) and np.isfinite(array.max(initial=0)))):
        bad = np.argwhere(~(np.isfinite(array) & (array >= 0)))[0]
        raise InputError(
            f"counts must be finite and not negative, found {array[tuple(bad)]} in row {bad[-3]} of "
            f"the pair list"
        )
    return np.inf


class PairMap:
    """Turns totals per row of the pair list into symmetric matrices."""

    def __init__(self, left: IntArray, right: IntArray, n_items: int) -> None:
        self.n_items = n_items
        self.left = left
        self.right = right

    @cached_property
    def keys(self) -> IntArray:
        """Cell of the upper triangle each row belongs to."""
        return np.minimum(self.left, self.right) * self.n_items + np.maximum(self.left, self.right)

    def uniform(self, totals: npt.NDArray[Any]) -> bool:
        """Whether (M,) totals are the same, and not 0, for every pair of items, each listed once."""
        n = self.n_items
        if totals.size != n * (n - 1) // 2 or not 0 < totals.min() == totals.max():
            return False
        listed = np.zeros((n, n), dtype=bool)
        listed.ravel()[self.left * n + self.right] = True
        return np.count_nonzero(listed | listed.T) == n * (n - 1)

    def one(self, totals: npt.NDArray[Any]) -> FloatArray:
        """(M,) to (n, n)."""
        n = self.n_items
        upper = np.bincount(self.keys, weights=totals, minlength=n * n).reshape(n, n)
        return np.asarray(upper + upper.T, dtype=np.float64)

    @cached_property
    def _places(self) -> tuple[sparse.csr_array | None, IntArray, int]:
        """Matrix that adds repeated pairs up (or None), position of each cell's pair, number of pairs."""
        n, rows = self.n_items, self.keys.size
        keys, cell = np.unique(self.keys, return_inverse=True)
        add = None
        position = np.empty(keys.size, dtype=np.int64)
        if keys.size < rows:
            add = sparse.csr_array((np.ones(rows), (np.arange(rows), cell)), shape=(rows, keys.size))
            position[:] = np.arange(keys.size)
        else:
            position[cell] = np.arange(rows)
        where = np.full((n, n), keys.size, dtype=np.int64)
        where[keys // n, keys % n] = position
        return add, np.minimum(where, where.T).ravel(), keys.size

    def many(self, totals: npt.NDArray[Any]) -> FloatArray:
        """(fits, M) to (fits, n, n)."""
        add, where, n_pairs = self._places
        padded = np.zeros((totals.shape[0], n_pairs + 1))
        padded[:, :-1] = totals if add is None else totals @ add
        return padded.take(where, axis=1, mode="clip").reshape(-1, self.n_items, self.n_items)
