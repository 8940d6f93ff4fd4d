"""The reference (gold): scores of items or winners of pairs, and its alignment with a tally."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from rank.columns import CONTEXT_COLUMNS, describe_rows, finite_numbers, id_strings, list_some
from rank.exceptions import InputError
from rank.tally import Tally

#: Codes of `PairGold.winner`.
GOLD_I, GOLD_J, GOLD_TIE, NO_GOLD = 0, 1, 2, -1


@dataclass(frozen=True)
class PairGold:
    """Gold aligned with the pairs of one tally.

    Attributes
    ----------
    winner : ndarray of int8, shape (P,)
        0 = item i is better, 1 = item j is better, 2 = tie, -1 = no gold for this pair.
    gap : ndarray of float, shape (P,)
        ``|score_i - score_j|`` (or the stated gap of pair gold), in gold's own unit; NaN where unknown.
    score_i, score_j : ndarray of float, shape (P,)
        Item scores in the pair's context; NaN where unknown and with pair gold.
    """

    winner: np.ndarray
    gap: np.ndarray
    score_i: np.ndarray
    score_j: np.ndarray

    def rows(self, mask: np.ndarray) -> PairGold:
        """Return the gold of the chosen pair rows."""
        return PairGold(self.winner[mask], self.gap[mask], self.score_i[mask], self.score_j[mask])


def round_noise(values: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Round differences and means of scores where their last bits are noise: at the fifteenth digit of a score.

    The digit is that of the median size of all scores that are not zero, so that every subset of items and
    pairs rounds alike and one giant does not make all the others equal.

    Examples
    --------
    >>> scores = np.array([1.0, 0.7, 0.6, 0.3])
    >>> round_noise(scores[[0, 2]] - scores[[1, 3]], scores).tolist()
    [0.3, 0.3]
    """
    sizes = np.abs(scores)
    sizes = sizes[sizes > 0]
    typical = float(np.median(sizes)) if len(sizes) else 0.0
    if not 1e-200 < typical < 1e200:  # beyond decimal rounding, or all zero
        return values
    with np.errstate(over="ignore", invalid="ignore"):
        short = np.round(values, 14 - int(np.floor(np.log10(typical))))
    return np.where(np.isfinite(short), short, values)


@dataclass(frozen=True)
class Gold:
    """Checked gold.

    Attributes
    ----------
    kind : {"items", "pairs"}
        Scores of items, or winners of pairs.
    frame : DataFrame
        ``item, score`` or ``item_a, item_b, winner, gap``, with ``dataset`` and ``context`` where the
        input had them; ids are strings, scores and gaps floats.
    context_columns : tuple of str
        Which of ``dataset``, ``context`` the gold distinguishes.
    gap_digits : int or None
        Decimals that gaps are rounded to, where the scores were rounded in their file.
    exclude_ties : bool
        Treat pairs with equal gold (or gap zero) as pairs without gold.
    """

    kind: str
    frame: pd.DataFrame
    context_columns: tuple[str, ...]
    gap_digits: int | None = None
    exclude_ties: bool = False
    _prepared: dict[str, _Matched] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def has_gaps(self) -> bool:
        """Whether pairs have gaps (always with item gold)."""
        return self.kind == "items" or bool(self.frame["gap"].notna().any())

    def scores(self, tally: Tally, context: np.ndarray, item: np.ndarray) -> np.ndarray:
        """Return the gold scores of items in contexts, given as codes of the tally; NaN where unknown."""
        if self.kind != "items":
            return np.full(np.broadcast(context, item).shape, np.nan)
        return self._lookup(tally, ["item"], context, (item,), self.frame["score"].to_numpy(dtype=float))

    def gaps(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return ``|a - b|`` of two arrays of gold scores, without the noise of their last bits (`rounded`).

        With that noise, gaps that are equal on paper (1.0 - 0.7 and 0.6 - 0.3) differ in their last bits
        and would fall on two sides of a bucket edge. With `gap_digits`, rounded to that many decimals.
        """
        return self._gap_rounded(np.abs(a - b))

    def _gap_rounded(self, gaps: np.ndarray) -> np.ndarray:
        return self.rounded(gaps) if self.gap_digits is None else np.round(gaps, self.gap_digits)

    def rounded(self, values: np.ndarray) -> np.ndarray:
        """Round differences and means of gold where its last bits are noise, see `round_noise`."""
        sizes = self.frame["score" if self.kind == "items" else "gap"]
        return round_noise(values, sizes.to_numpy(dtype=float))

    @property
    def decimals(self) -> int | None:
        """How many decimals the scores (or gaps) were written with: 0 to 8, or None for more."""
        values = self.frame["score" if self.kind == "items" else "gap"].dropna().to_numpy()
        return next((d for d in range(9) if np.array_equal(np.round(values, d), values)), None)

    def item_scores(self, tally: Tally) -> np.ndarray:
        """Return one score per item, shape (N,): averaged over the contexts in which the item was judged.

        NaN for items without gold and for items that the tally never shows.
        """
        n = len(tally.items)
        context, item = tally.judged_items()
        score = self.scores(tally, context, item)
        known = ~np.isnan(score)
        total = np.bincount(item[known], weights=score[known], minlength=n)
        count = np.bincount(item[known], minlength=n)
        mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
        return self.rounded(mean)

    def align(self, tally: Tally) -> PairGold:
        """Return the gold of every pair of a tally.

        Raises
        ------
        InputError
            When gold distinguishes datasets or contexts that the tally does not have.
        """
        gold = self.align_all(tally)
        if not self.exclude_ties:
            return gold
        tie = (gold.winner == GOLD_TIE) | (gold.gap == 0)
        return PairGold(
            np.where(tie, NO_GOLD, gold.winner).astype(np.int8),
            np.where(tie, np.nan, gold.gap),
            np.where(tie, np.nan, gold.score_i),
            np.where(tie, np.nan, gold.score_j),
        )

    def align_all(self, tally: Tally) -> PairGold:
        """Return the gold of every pair of a tally, gold ties included even where they are excluded."""
        if self.kind == "items":
            score_i = self.scores(tally, tally.context, tally.item_i)
            score_j = self.scores(tally, tally.context, tally.item_j)
            gap = self.gaps(score_i, score_j)
            tied = self.rounded(np.abs(score_i - score_j)) == 0
            winner = np.select([tied, score_i > score_j, score_j > score_i], [2, 0, 1], -1)
            gold = PairGold(winner.astype(np.int8), gap, score_i, score_j)
        else:
            nan = np.full(tally.n_pairs, np.nan)
            a, b = self.frame["item_a"].to_numpy(), self.frame["item_b"].to_numpy()
            stated = self.frame["winner"].to_numpy()
            low_wins = np.where(stated == "tie", 2, np.where(stated == np.where(a < b, a, b), 0, 1))
            items = (tally.item_i, tally.item_j)
            code = self._lookup(tally, ["low", "high"], tally.context, items, low_wins.astype(float))
            gap = self._lookup(
                tally, ["low", "high"], tally.context, items, self.frame["gap"].to_numpy(dtype=float)
            )
            gold = PairGold(
                np.where(np.isnan(code), -1, code).astype(np.int8), self._gap_rounded(gap), nan, nan
            )
        return gold

    def without_ties(self) -> Gold:
        """Return gold in which pairs with equal gold have none: they leave every measure that needs gold."""
        twin = replace(self, exclude_ties=True)
        object.__setattr__(twin, "_prepared", self._prepared)  # labels are matched once for both
        return twin

    def require_coverage(self, tally: Tally) -> None:
        """Raise where gold covers none of the judged pairs: then the two files do not belong together."""
        if tally.n_pairs and (self.align(tally).winner == NO_GOLD).all():
            raise InputError(
                f"gold covers none of the {tally.n_pairs} judged pairs: the ids of gold "
                f"({list_some(self._gold_ids())}) and of the verdicts ({list_some(tally.items)}) must be the same "
                "strings, and so must their contexts"
            )

    def coverage_notes(self, tally: Tally) -> tuple[str, ...]:
        """Return sentences that list judged items without gold and gold items that were never judged, and count
        the judged pairs without gold."""
        judged = set(tally.items[np.unique(np.concatenate([tally.item_i, tally.item_j]))])
        known = set(self._gold_ids())
        notes = []
        if missing := sorted(judged - known):
            notes.append(
                f"{len(missing)} judged item(s) have no gold; their pairs are excluded from everything that "
                f"needs gold: {list_some(missing)}"
            )
        winner = self.align_all(tally).winner
        if lacking := int((winner == NO_GOLD).sum()):
            notes.append(f"{lacking:,} of {tally.n_pairs:,} judged pair(s) have no gold")
        if ties := int((winner == GOLD_TIE).sum()):
            what = (
                "they are left out of everything that needs gold"
                if self.exclude_ties
                else "there only a tie agrees with gold (difficulty and audit leave them out with --exclude-gold-ties)"
            )
            notes.append(f"{ties:,} of {tally.n_pairs:,} judged pair(s) are gold ties; {what}")
        if unused := sorted(known - judged):
            notes.append(
                f"{len(unused)} gold item(s) are in no verdict and are not used: {list_some(unused)}"
            )
        return tuple(notes)

    def _gold_ids(self) -> np.ndarray:
        columns = ["item"] if self.kind == "items" else ["item_a", "item_b"]
        return pd.unique(pd.concat([self.frame[column] for column in columns]))

    def _lookup(
        self,
        tally: Tally,
        id_columns: list[str],
        context: np.ndarray,
        items: tuple[np.ndarray, ...],
        values: np.ndarray,
    ) -> np.ndarray:
        """Look values of gold rows up by (context, item codes)."""
        known = self._prepared.get(id_columns[0])
        # The groups of a table share its labels, so what one has matched serves all.
        if known is None or known.contexts is not tally.contexts or known.items is not tally.items:
            known = self._match_labels(tally, id_columns)
            self._prepared[id_columns[0]] = known
        asked = combine_small(known.n_contexts, len(tally.items), known.context_key[context], *items)
        found = np.append(values[known.usable], np.nan)
        return found[known.index.get_indexer(pd.Index(asked))]

    def _match_labels(self, tally: Tally, id_columns: list[str]) -> _Matched:
        """Match the labels of gold with those of a tally."""
        columns = _usable_context_columns(self, tally)
        if columns:
            keys = pd.MultiIndex.from_frame(tally.contexts[columns])
            context_key, distinct = pd.factorize(keys)
            gold_context = pd.MultiIndex.from_frame(self.frame[columns])
            row_context = pd.MultiIndex.from_tuples(list(distinct), names=columns).get_indexer(gold_context)
            n_contexts = len(distinct)
        else:
            context_key, n_contexts = np.zeros(len(tally.contexts), dtype=np.int64), 1
            row_context = np.zeros(len(self.frame), dtype=np.int64)
        index = pd.Index(tally.items)
        if id_columns == ["item"]:
            row_items = [index.get_indexer(self.frame["item"])]
        else:
            a, b = index.get_indexer(self.frame["item_a"]), index.get_indexer(self.frame["item_b"])
            row_items = [np.minimum(a, b), np.maximum(a, b)]
        usable = row_context >= 0
        for codes in row_items:
            usable &= codes >= 0
        gold_key = combine_small(
            n_contexts, len(tally.items), row_context[usable], *[codes[usable] for codes in row_items]
        )
        return _Matched(tally.contexts, tally.items, context_key, n_contexts, usable, pd.Index(gold_key))


@dataclass(frozen=True)
class _Matched:
    """Labels of gold matched with those of a tally; see `Gold._match_labels`."""

    contexts: pd.DataFrame
    items: np.ndarray
    context_key: np.ndarray
    n_contexts: int
    usable: np.ndarray
    index: pd.Index


def combine_small(n_context: int, n_items: int, context: np.ndarray, *items: np.ndarray) -> np.ndarray:
    """Combine a context code and item codes into one comparable key (same formula for every caller)."""
    if float(n_context) * float(max(n_items, 1)) ** len(items) >= 2**62:
        raise InputError(f"too many contexts ({n_context}) times items ({n_items}) for one table; split it")
    key = context.astype(np.int64)
    for codes in items:
        key = key * n_items + codes
    return key


def _usable_context_columns(gold: Gold, tally: Tally) -> list[str]:
    """Return the context columns to match on; refuse gold that is finer than the verdicts."""
    columns = []
    for column in gold.context_columns:
        if (tally.contexts[column] != "").any():
            columns.append(column)
        elif gold.frame[column].nunique() > 1:
            raise InputError(
                f"gold distinguishes {gold.frame[column].nunique()} values of '{column}' but the verdicts have no "
                f"'{column}' column; add it to the verdicts or give gold without it"
            )
    return columns


def check_gold(frame: pd.DataFrame, *, gap_digits: int | None = None) -> Gold:
    """Check a gold table and return it in canonical form.

    Parameters
    ----------
    frame : DataFrame
        Items: ``item, score[, context][, dataset]`` (higher is better). Pairs:
        ``item_a, item_b, winner[, gap][, context][, dataset]`` (winner an item id of the row or ``tie``).
        Other columns are ignored.
    gap_digits : int, optional
        Round gaps to so many decimals, so that scores that were rounded in their file do not part gaps that are
        equal on paper (thirds written as 0.3333 and 0.6667).

    Returns
    -------
    Gold

    Raises
    ------
    InputError
        On missing columns, empty ids, repeated items or pairs, scores that are not finite numbers,
        or a winner that is no item of its row.

    Examples
    --------
    >>> import pandas as pd
    >>> gold = check_gold(pd.DataFrame({"item": ["a", "b"], "score": [1.5, 0.2]}))
    >>> gold.kind
    'items'
    """
    columns = set(frame.columns)
    if {"item", "score"} <= columns:
        kind, needed = "items", ["item", "score"]
    elif {"item_a", "item_b", "winner"} <= columns:
        kind, needed = "pairs", ["item_a", "item_b", "winner"]
    else:
        raise InputError(
            f"gold has columns {list_some(frame.columns)}; needed are item and score (one row per item), "
            "or item_a, item_b and winner (one row per pair)"
        )
    if frame.empty:
        raise InputError("gold has a header but no rows")
    context_columns = [column for column in CONTEXT_COLUMNS if column in columns]
    ids = [column for column in needed if column.startswith("item")]
    clean = pd.DataFrame({column: id_strings(frame[column], column) for column in ids})
    for column in context_columns:
        clean[column] = id_strings(frame[column], column, decimals="keep")
    if kind == "items":
        clean["score"] = finite_numbers(frame["score"], "score", allow_empty=False)
        huge = clean["score"].abs() > 1e300
        if huge.any():
            raise InputError(
                f"gold {describe_rows(huge)}: scores beyond 1e300 leave no room for gaps; use another unit"
            )
        key = [*context_columns, "item"]
        duplicated = clean.duplicated(key, keep=False)
    else:
        same = clean["item_a"] == clean["item_b"]
        if same.any():
            raise InputError(f"gold {describe_rows(same)}: item_a and item_b are the same item")
        clean["winner"] = id_strings(frame["winner"], "winner")
        if ((clean["item_a"] == "tie") | (clean["item_b"] == "tie")).any():
            raise InputError(
                "gold has an item called 'tie', which cannot be told from the label 'tie'; rename it"
            )
        known = clean["winner"].isin(["tie"]) | (clean["winner"] == clean["item_a"])
        known |= clean["winner"] == clean["item_b"]
        if not known.all():
            raise InputError(
                f"gold {describe_rows(~known)}: winner {list_some(clean['winner'][~known].unique())} is neither an item of "
                "its row nor 'tie'"
            )
        clean["gap"] = finite_numbers(frame["gap"], "gap", allow_empty=True) if "gap" in columns else np.nan
        if (clean["gap"] < 0).any():
            raise InputError(f"gold {describe_rows(clean['gap'] < 0)}: a gap cannot be negative")
        low = np.where(clean["item_a"] < clean["item_b"], clean["item_a"], clean["item_b"])
        high = np.where(clean["item_a"] < clean["item_b"], clean["item_b"], clean["item_a"])
        keys = clean[context_columns].assign(low=low, high=high)
        duplicated = keys.duplicated(keep=False)
    if duplicated.any():
        raise InputError(
            f"gold {describe_rows(duplicated)}: the same {'item' if kind == 'items' else 'pair'} twice "
            f"({list_some(clean[ids[0]][duplicated].unique())}); keep one row each"
            + ("" if context_columns else ", or add a context or dataset column that tells them apart")
        )
    return Gold(kind, clean.reset_index(drop=True), tuple(context_columns), gap_digits)
