"""The additive tally: counts per (group, pair, order, outcome), of which every metric is a function."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rank.codes import combine_codes, dense_codes, distinct_codes
from rank.columns import CONTEXT_COLUMNS
from rank.exceptions import InputError

if TYPE_CHECKING:
    from rank.verdicts import VerdictTable

#: Outcomes of one call in item space, in the order of the last axis of `Tally.counts`.
#: "inconsistent" is a row that states the merged result of both orders and says that they differ.
OUTCOMES = ("i", "j", "tie", "invalid", "inconsistent")
I_WINS, J_WINS, TIE, INVALID, INCONSISTENT = range(5)


@dataclass(frozen=True)
class Tally:
    """Counts of outcomes per group, context, unordered pair and order.

    Rows are sorted by (group, context, item_i, item_j). Tallies of disjoint sets of calls add up.

    Attributes
    ----------
    groups : DataFrame, shape (G, k)
        One row of string labels per group; k = 0 with a single row when nothing is grouped.
    contexts : DataFrame, shape (K, 2)
        Columns ``dataset`` and ``context``; empty strings where the table has none.
    items : ndarray of str, shape (N,)
        Item ids, sorted.
    group, context, item_i, item_j : ndarray of int64, shape (P,)
        Codes into the labels above, with ``item_i < item_j``.
    counts : ndarray of int64, shape (P, 2, 5)
        Axis 1 is the order (0 = item i in the first slot), axis 2 the outcome (`OUTCOMES`).
    has_context : bool
        Whether the table had a context column; then resampling clusters are contexts, else pairs.
    ledger : mapping of str to int
        What the gate counted (rows, invalid verdicts, dropped copies, ...); adds up with the tally.
    notes : tuple of str
        What the gate mapped or assumed, in sentences.
    """

    groups: pd.DataFrame
    contexts: pd.DataFrame
    items: np.ndarray
    group: np.ndarray
    context: np.ndarray
    item_i: np.ndarray
    item_j: np.ndarray
    counts: np.ndarray
    has_context: bool
    ledger: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def n_pairs(self) -> int:
        """Number of (group, context, pair) rows."""
        return len(self.group)

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self.groups)

    def group_label(self, index: int) -> str:
        """Return the labels of one group joined for people, or "all" when nothing is grouped."""
        return " / ".join(str(value) for value in self.groups.iloc[index]) or "all"

    def count_note(self) -> str:
        """Say how many rows were read and how many verdicts are invalid."""
        text = f"{self.ledger.get('n_rows', 0):,} row(s) read"
        if invalid := self.ledger.get("n_invalid", 0):
            text += f"; {invalid:,} invalid verdict(s) (empty) are in no denominator unless --invalid equal is given"
        return text

    def rows(self, mask: np.ndarray) -> Tally:
        """Return the tally of the chosen pair rows; labels and codes stay as they are."""
        return replace(
            self,
            group=self.group[mask],
            context=self.context[mask],
            item_i=self.item_i[mask],
            item_j=self.item_j[mask],
            counts=self.counts[mask],
        )

    def select(self, index: int) -> Tally:
        """Return the tally of one group, as a tally with that single group."""
        one = self.rows(self.group == index)
        return replace(
            one, groups=self.groups.iloc[[index]].reset_index(drop=True), group=np.zeros_like(one.group)
        )

    def clusters(self) -> np.ndarray:
        """Return resampling cluster codes, shape (P,): the context when there is one, else the pair.

        Equal codes in two groups mean the same context (or pair), so that differences are paired.
        """
        if self.has_context:
            return self.context
        n = max(len(self.items), 1)
        return np.unique((self.context * n + self.item_i) * n + self.item_j, return_inverse=True)[1]

    def judged_items(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the items judged in each context: codes (context, item), sorted and each once, shapes (K,)."""
        n = max(len(self.items), 1)
        key = distinct_codes(
            combine_codes(
                (np.concatenate([self.context] * 2), len(self.contexts)),
                (np.concatenate([self.item_i, self.item_j]), n),
            )
        )
        context, item = np.divmod(key, n)
        return context, item

    def __add__(self, other: Tally) -> Tally:
        """Add the tally of a disjoint set of calls."""
        if not isinstance(other, Tally):
            return NotImplemented
        return add_tallies([self, other])

    def to_frame(self) -> pd.DataFrame:
        """Return one row per (group, context, pair, order) with a column per outcome."""
        rows = np.repeat(np.arange(self.n_pairs), 2)
        order = np.tile([0, 1], self.n_pairs)
        frame = self.groups.iloc[self.group[rows]].reset_index(drop=True)
        for column in CONTEXT_COLUMNS:
            if column not in frame:
                frame[column] = self.contexts[column].to_numpy()[self.context[rows]]
        frame["item_i"] = self.items[self.item_i[rows]]
        frame["item_j"] = self.items[self.item_j[rows]]
        frame["item_first"] = np.where(order == 0, frame["item_i"], frame["item_j"])
        for code, outcome in enumerate(OUTCOMES):
            frame[f"n_{outcome}"] = self.counts[rows, order, code]
        return frame


def add_tallies(tallies: Sequence[Tally]) -> Tally:
    """Add the tallies of disjoint sets of calls, all at once.

    Raises
    ------
    InputError
        When they are grouped by different columns.
    """
    columns = list(tallies[0].groups.columns)
    for tally in tallies[1:]:
        if list(tally.groups.columns) != columns:
            raise InputError(
                f"tallies of different groupings cannot be added: {columns} "
                f"and {list(tally.groups.columns)}; read both with the same --by"
            )
    groups, group_maps = _merge_frames([tally.groups for tally in tallies])
    contexts, context_maps = _merge_frames([tally.contexts for tally in tallies])
    items = np.array(sorted(set().union(*(tally.items for tally in tallies))), dtype=object)
    where = {item: code for code, item in enumerate(items)}
    parts = []
    ledger: dict[str, int] = {}
    for tally, group_map, context_map in zip(tallies, group_maps, context_maps, strict=True):
        item_map = np.array([where[item] for item in tally.items], dtype=np.int64)
        parts.append(
            (
                group_map[tally.group],
                context_map[tally.context],
                item_map[tally.item_i],
                item_map[tally.item_j],
            )
        )
        for key, count in tally.ledger.items():
            ledger[key] = ledger.get(key, 0) + count
    group, context, item_i, item_j = (np.concatenate(column) for column in zip(*parts, strict=True))
    return build_tally(
        groups,
        contexts,
        items,
        group,
        context,
        item_i,
        item_j,
        np.concatenate([tally.counts for tally in tallies]),
        has_context=any(tally.has_context for tally in tallies),
        ledger=ledger,
        notes=tuple(dict.fromkeys(note for tally in tallies for note in tally.notes)),
    )


def _merge_frames(frames: list[pd.DataFrame]) -> tuple[pd.DataFrame, list[np.ndarray]]:
    """Return the sorted union of label rows and, per frame, the new code of each old one."""
    columns = list(frames[0].columns)
    if not columns:
        return frames[0], [np.zeros(len(frame), dtype=np.int64) for frame in frames]
    keys = [list(map(tuple, frame.to_numpy())) for frame in frames]
    union = sorted(set().union(*keys))
    where = {key: code for code, key in enumerate(union)}
    maps = [np.array([where[key] for key in part], dtype=np.int64) for part in keys]
    return pd.DataFrame(union, columns=columns, dtype=object), maps


def build_tally(
    groups: pd.DataFrame,
    contexts: pd.DataFrame,
    items: np.ndarray,
    group: np.ndarray,
    context: np.ndarray,
    item_i: np.ndarray,
    item_j: np.ndarray,
    counts: np.ndarray,
    *,
    has_context: bool,
    ledger: Mapping[str, int] | None = None,
    notes: tuple[str, ...] = (),
) -> Tally:
    """Return a canonical tally from pair rows in any order; repeated pair rows add up.

    Rows with ``item_i > item_j`` are turned round (orders and outcomes with them).
    """
    swap = item_i > item_j
    if swap.any():
        item_i, item_j = np.where(swap, item_j, item_i), np.where(swap, item_i, item_j)
        counts = counts.copy()
        counts[swap] = counts[swap][:, ::-1][:, :, [J_WINS, I_WINS, TIE, INVALID, INCONSISTENT]]
    key = combine_codes(
        (group, len(groups)), (context, len(contexts)), (item_i, len(items)), (item_j, len(items))
    )
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    first = order[starts]
    total = np.add.reduceat(counts[order], starts, axis=0) if len(starts) else counts
    return Tally(
        groups=groups,
        contexts=contexts,
        items=items,
        group=group[first],
        context=context[first],
        item_i=item_i[first],
        item_j=item_j[first],
        counts=total,
        has_context=has_context,
        ledger=dict(ledger or {}),
        notes=notes,
    )


def tally_verdicts(table: VerdictTable) -> Tally:
    """Count the verdicts of a checked table.

    Parameters
    ----------
    table : VerdictTable
        What `rank.verdicts.check_verdicts` returned.

    Returns
    -------
    Tally
        Counts per (group, context, pair, order, outcome); the row order of the table does not matter.
    """
    group, context, first, second, verdict, times = _distinct_calls(table)
    order = (first > second).astype(np.int64)
    low, high = np.minimum(first, second), np.maximum(first, second)
    n = len(table.items)
    key = combine_codes((group, len(table.groups)), (context, len(table.contexts)), (low, n), (high, n))
    pair, distinct = dense_codes(key, len(table.groups) * len(table.contexts) * n * n)
    outcome = np.where(verdict <= J_WINS, verdict ^ order, verdict)
    cell = pair * 10 + order * 5 + outcome
    counts = np.bincount(cell, weights=times, minlength=10 * len(distinct)).reshape(-1, 2, 5)
    example = np.empty(len(distinct), dtype=np.int64)
    example[pair] = np.arange(len(pair))
    return Tally(
        groups=table.groups,
        contexts=table.contexts,
        items=table.items,
        group=group[example].astype(np.int64),
        context=context[example].astype(np.int64),
        item_i=low[example].astype(np.int64),
        item_j=high[example].astype(np.int64),
        counts=counts.astype(np.int64),
        has_context=table.has_context,
        ledger=dict(table.ledger),
        notes=table.notes,
    )


def _distinct_calls(table: VerdictTable) -> tuple[np.ndarray, ...]:
    """Return group, context, first, second and verdict of the distinct calls and verdicts, and how often each occurs.

    Where there are not many fewer possible ones than rows, the rows themselves are returned, without a number.
    """
    codes = (table.group, table.context, table.first, table.second, table.verdict)
    sizes = (len(table.groups), len(table.contexts), len(table.items), len(table.items), 5)
    size = math.prod(sizes)
    if size > len(table.verdict):
        return (*codes, None)  # type: ignore[return-value]
    count = np.bincount(combine_codes(*zip(codes, sizes, strict=True)), minlength=size)
    distinct = np.flatnonzero(count)
    return (*np.unravel_index(distinct, sizes), count[distinct].astype(float))
