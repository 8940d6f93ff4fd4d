"""The one gate: any table of verdicts becomes the canonical verdict table, or an error that says why not."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from rank.codes import combine_codes, dense_codes
from rank.columns import (
    CONTEXT_COLUMNS,
    describe_rows,
    finite_numbers,
    id_strings,
    is_reserved,
    list_some,
    name_rows,
)
from rank.exceptions import InputError

#: Slot-space codes of `VerdictTable.verdict`.
FIRST, SECOND, TIE, INVALID, INCONSISTENT = range(5)

#: Default grouping: every one of these columns that the table has.
GROUP_COLUMNS = ("judge", "dataset", "format", "temperature")

#: Vocabularies for the two slots, by the name that ``layout=`` takes. All are compared without case.
SLOT_VOCABULARIES: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "slots": (frozenset({"first"}), frozenset({"second"})),
    "models": (frozenset({"model_a", "model_1"}), frozenset({"model_b", "model_2"})),
    "letters": (frozenset({"a"}), frozenset({"b"})),
    "numbers": (frozenset({"1"}), frozenset({"2"})),
    "sides": (frozenset({"left"}), frozenset({"right"})),
}
LAYOUTS = (*SLOT_VOCABULARIES, "items")

#: What other tools call our columns; only for hints in errors.
_OTHER_NAMES = {
    "model_a": "item_first",
    "model_b": "item_second",
    "model_1": "item_first",
    "model_2": "item_second",
    "left": "item_first",
    "right": "item_second",
    "output_1": "item_first",
    "output_2": "item_second",
    "label": "winner",
    "preference": "winner",
    "question_id": "context",
    "prompt": "context",
}

_BOTH_BAD = frozenset({"tie (bothbad)", "tie (both_bad)", "both_bad", "bothbad", "both bad"})
_INCONSISTENT = frozenset({"tie (inconsistent)", "inconsistent"})


@dataclass(frozen=True)
class VerdictTable:
    """A checked verdict table, one row per call (criteria already merged), as codes into labels.

    Attributes
    ----------
    groups : DataFrame, shape (G, k)
        Labels of the groups, sorted.
    contexts : DataFrame, shape (K, 2)
        Columns ``dataset`` and ``context``; empty strings where the table has none.
    items : ndarray of str, shape (N,)
        Item ids, sorted.
    group, context, first, second, run : ndarray of int64, shape (rows,)
        Codes; ``first`` and ``second`` are the items in slot 1 and slot 2.
    verdict : ndarray of int64, shape (rows,)
        Slot space: 0 first, 1 second, 2 tie, 3 invalid, 4 inconsistent (the stated merged result of
        both orders).
    extras : DataFrame
        The columns that are carried along, aligned with the rows.
    has_context : bool
        Whether the input had a context column.
    ledger : mapping of str to int
        Everything that was counted on the way in.
    notes : tuple of str
        Everything that was mapped or assumed, in sentences.
    """

    groups: pd.DataFrame
    contexts: pd.DataFrame
    items: np.ndarray
    group: np.ndarray
    context: np.ndarray
    first: np.ndarray
    second: np.ndarray
    run: np.ndarray
    verdict: np.ndarray
    extras: pd.DataFrame
    has_context: bool
    ledger: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.verdict)


def check_verdicts(
    frame: pd.DataFrame,
    *,
    by: Sequence[str] | None = None,
    layout: str | None = None,
    drop_exact_copies: bool = False,
    number_runs: bool = False,
) -> VerdictTable:
    """Check a table of verdicts and return it in canonical form.

    Parameters
    ----------
    frame : DataFrame
        Columns ``item_first``, ``item_second`` and one of ``verdict`` (slot space: first, second, tie),
        ``winner`` (an item id of the row, or tie) or ``score_first`` with ``score_second``. Optional:
        ``criterion``, ``judge``, ``dataset``, ``format``, ``temperature``, ``context``, ``run``; others are
        carried along. An empty verdict is invalid (unparsed, refused) and is counted.
    by : sequence of str, optional
        Grouping columns. Default: every one of judge, dataset, format, temperature that is there.
    layout : str, optional
        Which vocabulary the verdict labels use (one of `LAYOUTS`). Default: found out where it is
        unambiguous, and said in `VerdictTable.notes`.
    drop_exact_copies : bool
        Drop rows that equal an earlier row in every column, and count them. A key that repeats with
        anything different stays an error.
    number_runs : bool
        Number the calls that share a key as runs, in the order of the rows (for tables of votes that have no
        run column). Only for tables without one.

    Returns
    -------
    VerdictTable

    Raises
    ------
    InputError
        On missing columns, empty or equal ids, unknown labels, disagreeing ``verdict`` and ``winner``,
        and repeated keys; the sentence names rows, values and the way out.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"item_first": ["a", "b"], "item_second": ["b", "a"], "verdict": ["first", "second"]})
    >>> table = check_verdicts(rows)
    >>> len(table), table.ledger["n_invalid"]
    (2, 0)
    """
    check_columns(list(frame.columns), by, layout, number_runs=number_runs)
    if frame.empty:
        raise InputError("the verdict table has a header but no rows")
    n_rows = len(frame)
    frame = frame.reset_index(drop=True)
    copies = _exact_copies(frame).to_numpy() if drop_exact_copies else np.zeros(0, dtype=bool)
    if copies.any():
        frame = frame[~copies].reset_index(drop=True)
    by = grouping_columns(frame.columns) if by is None else list(by)
    table, facts = gate_rows(frame, by, layout)
    ledger = {"n_rows": n_rows, **facts.ledger}
    if drop_exact_copies:
        ledger["n_exact_copies_dropped"] = int(copies.sum())
    parts = [
        (table.group, len(table.groups)),
        (table.context, len(table.contexts)),
        (table.first, len(table.items)),
        (table.second, len(table.items)),
    ]
    if number_runs:
        call = combine_codes(*parts)
        run = _number_within(call, math.prod(size for _, size in parts))
        ledger["n_numbered_runs"] = int((run > 0).sum())
        table = replace(table, run=run)
    else:
        parts.append((table.run, int(table.run.max()) + 1))
    if "criterion" in frame.columns:
        criterion, criteria = label_codes(frame, ["criterion"])
        refuse_repeated_keys(frame, [*parts, (criterion, len(criteria))], table.verdict, by)
        keep, verdict, n_splits = _merge_criteria(combine_codes(*parts), table.verdict)
        table = replace(
            table,
            group=table.group[keep],
            context=table.context[keep],
            first=table.first[keep],
            second=table.second[keep],
            run=table.run[keep],
            verdict=verdict,
            extras=table.extras.iloc[keep].reset_index(drop=True),
        )
        ledger["n_criteria_merged"] = len(frame) - len(keep)
        ledger["n_criteria_splits"] = n_splits
    elif not number_runs:
        refuse_repeated_keys(frame, parts, table.verdict, by)
    ledger["n_invalid"] = int((table.verdict == INVALID).sum())
    if (table.verdict == INCONSISTENT).any():
        table = _expand_merged(table, ledger)
    return replace(table, ledger=ledger, notes=facts.notes(table.items, table.groups, table.contexts, ledger))


def _number_within(key: np.ndarray, size: int) -> np.ndarray:
    """Number the rows of each key from 0, in their order; keys are below `size`."""
    codes, distinct = dense_codes(key, size)
    # Sixteen bits are sorted by counting, not by comparing.
    order = np.argsort(codes.astype(np.uint16) if len(distinct) < 2**16 else codes, kind="stable")
    n = np.bincount(codes)
    numbers = np.empty(len(codes), dtype=np.int64)
    numbers[order] = np.arange(len(codes)) - np.repeat(np.cumsum(n) - n, n)
    return numbers


def grouping_columns(columns: Sequence[str] | pd.Index) -> list[str]:
    """Return the default grouping: every one of `GROUP_COLUMNS` among the columns."""
    return [column for column in GROUP_COLUMNS if column in columns]


@dataclass
class GateFacts:
    """What the gate found in some rows, besides the verdicts; the facts of disjoint sets of rows add up.

    Attributes
    ----------
    labels : dict of str to Counter
        Per column of stated verdicts (``verdict``, ``winner``): how often each label occurs.
    layouts : dict of str to str
        The layout each of these columns was read with.
    ledger : Counter
        Counts for `VerdictTable.ledger`.
    n_scored : int
        Rows with two scores and a stated verdict.
    """

    labels: dict[str, Counter[str]] = field(default_factory=dict)
    layouts: dict[str, str] = field(default_factory=dict)
    ledger: Counter[str] = field(default_factory=Counter)
    n_scored: int = 0

    def add(self, other: GateFacts) -> None:
        """Add the facts of other rows, read with the same layouts."""
        for column, labels in other.labels.items():
            self.labels.setdefault(column, Counter()).update(labels)
        self.layouts.update(other.layouts)
        for key, count in other.ledger.items():
            self.ledger[key] += count
        self.n_scored += other.n_scored

    def notes(
        self, items: np.ndarray, groups: pd.DataFrame, contexts: pd.DataFrame, ledger: Mapping[str, int]
    ) -> tuple[str, ...]:
        """Say what was mapped or assumed, given all labels and the complete ledger."""
        notes = []
        if copies := ledger.get("n_exact_copies_dropped", 0):
            notes.append(f"{copies} exact copies of earlier rows were dropped")
        notes += _near_identical("ids of items", items)
        for column in dict.fromkeys([*groups, *contexts]):
            labels = (groups if column in groups else contexts)[column].unique()
            notes += _near_identical(f"labels of column '{column}'", sorted(labels))
        if "n_numbered_runs" in ledger:
            notes.append(
                f"{ledger['n_numbered_runs']} row(s) that repeat an earlier call were numbered as further runs of it"
            )
        for column, labels in self.labels.items():
            if both_bad := sum(n for label, n in labels.items() if _plain(label) in _BOTH_BAD):
                notes.append(f"{both_bad} verdict(s) say that both items are bad; they count as ties")
            notes += _mapping_note(column, sorted(labels), self.layouts[column])
        if "n_score_disagreements" in ledger:
            notes.append(
                f"{ledger['n_score_disagreements']} of {self.n_scored} scored rows state another verdict than their scores; "
                "the verdict stands"
            )
        if "n_criteria_merged" in ledger:
            n_rows = ledger["n_rows"] - ledger.get("n_exact_copies_dropped", 0)
            notes.append(
                f"{n_rows} rows of single criteria were merged into {n_rows - ledger['n_criteria_merged']} verdicts by majority; "
                f"{ledger['n_criteria_splits']} even split(s) count as ties"
            )
        if "n_merged_rows" in ledger:
            notes.append(
                f"{ledger['n_stated_inconsistent']} row(s) say 'tie (inconsistent)': the {ledger['n_merged_rows']} rows of those groups "
                "are merged results of both orders; a winner counts in both orders, an inconsistent row is a flip (not a tie) "
                "whose lean to a slot is unknown"
            )
        return tuple(notes)


def gate_rows(
    frame: pd.DataFrame, by: Sequence[str], layout: str | Mapping[str, str] | None
) -> tuple[VerdictTable, GateFacts]:
    """Check what can be checked row by row: ids, labels and the verdict of each row.

    What needs all rows (repeated keys, criteria, merged results, notes) is left to the caller:
    `check_verdicts`, or `rank.streaming.tally_files`, which sees the rows in batches.

    Parameters
    ----------
    frame : DataFrame
        Rows numbered from 0, with the columns that `check_columns` wants.
    by : sequence of str
        Grouping columns.
    layout : str or mapping, optional
        One for all columns, or per column; default: guessed from these rows.
    """
    facts = GateFacts()
    first, second, items = _item_codes(frame)
    same = first == second
    if same.any():
        where = int(np.flatnonzero(same)[0])
        raise InputError(
            f"{describe_rows(same)}: item_first and item_second are the same item ('{items[first[where]]}'); "
            "an item cannot be compared with itself"
        )
    group, groups = label_codes(frame, list(by))
    context, contexts = label_codes(frame, [c for c in CONTEXT_COLUMNS if c in frame.columns])
    for column in CONTEXT_COLUMNS:
        if column not in contexts:
            contexts[column] = ""
    run, _ = label_codes(frame, ["run"] if "run" in frame.columns else [])
    table = VerdictTable(
        groups=groups,
        contexts=contexts[CONTEXT_COLUMNS].astype(object),
        items=items,
        group=group,
        context=context,
        first=first,
        second=second,
        run=run,
        verdict=_read_verdict(frame, first, second, items, layout, facts),
        extras=frame[[c for c in frame.columns if c not in _KNOWN and c not in by]],
        has_context="context" in frame.columns,
    )
    return table, facts


def _exact_copies(frame: pd.DataFrame) -> pd.Series:
    """Mark rows that equal an earlier row in every column; nested values are compared as they print."""
    try:
        return frame.duplicated()
    except TypeError:  # lists or dicts in an extra column
        return frame.apply(lambda column: column.map(repr) if column.dtype == object else column).duplicated()


_KNOWN = frozenset(
    {"item_first", "item_second", "verdict", "winner", "score_first", "score_second", "criterion", "run"}
    | set(GROUP_COLUMNS)
    | set(CONTEXT_COLUMNS)
)


def check_columns(
    columns: Sequence[str], by: Sequence[str] | None, layout: str | None, *, number_runs: bool = False
) -> None:
    """Refuse a table whose columns cannot be a verdict table."""
    columns = list(columns)
    if layout is not None and layout not in LAYOUTS:
        raise InputError(f"layout '{layout}' is unknown; choose one of {', '.join(LAYOUTS)}")
    duplicated = sorted({str(c) for c in columns if columns.count(c) > 1})
    if duplicated:
        raise InputError(
            f"column name(s) {list_some(duplicated)} occur twice; every column needs its own name"
        )
    missing = [column for column in ("item_first", "item_second") if column not in columns]
    has_scores = {"score_first", "score_second"} <= set(columns)
    if missing or not ({"verdict", "winner"} & set(columns) or has_scores):
        what = [*missing] + (
            [] if {"verdict", "winner"} & set(columns) or has_scores else ["verdict (or winner)"]
        )
        names = [
            f"{old} to {new}" for old, new in _OTHER_NAMES.items() if old in columns and new not in columns
        ]
        hint = f" Here, rename {', '.join(names)}." if names else ""
        raise InputError(
            f"missing column(s) {', '.join(what)}; found {list_some(columns)}. A verdict table needs item_first, "
            f"item_second and one of verdict (first, second, tie), winner (an item id or tie), or score_first with score_second.{hint}"
        )
    if number_runs and "run" in columns:
        raise InputError("the table has a run column; drop it, or do not ask for runs to be numbered")
    if number_runs and "criterion" in columns:
        raise InputError("runs cannot be numbered in a table with a criterion column; add a run column")
    if by and (twice := sorted({column for column in by if list(by).count(column) > 1})):
        raise InputError(f"--by names {list_some(twice)} twice; name each grouping column once")
    for column in by or ():
        if is_reserved(column):
            raise InputError(
                f"--by {column}: results have a field of this name; rename the column, for example to {column}_group"
            )
        if column not in columns:
            raise InputError(
                f"--by {column}: there is no such column; the table has {list_some(columns, 12)}"
            )
        if column in {"item_first", "item_second", "verdict", "winner", "run", "context", "criterion"}:
            raise InputError(
                f"--by {column}: this column cannot be a grouping; group by judge, dataset, format or the like"
            )


def label_codes(frame: pd.DataFrame, columns: list[str]) -> tuple[np.ndarray, pd.DataFrame]:
    """Return codes (rows,) and the sorted distinct label rows of some columns (one empty row for none)."""
    if not columns:
        return np.zeros(len(frame), dtype=np.int64), pd.DataFrame(index=range(1))
    parts = [_codes(frame[column], column, allow_empty=True) for column in columns]
    size = math.prod(len(labels) for _, labels in parts)
    codes, distinct = dense_codes(combine_codes(*[(codes, len(labels)) for codes, labels in parts]), size)
    example = np.empty(len(distinct), dtype=np.int64)
    example[codes] = np.arange(len(codes))
    labels = {column: labels[part[example]] for column, (part, labels) in zip(columns, parts, strict=True)}
    return codes, pd.DataFrame(labels, dtype=object)


def _codes(
    column: pd.Series, name: str, *, allow_empty: bool, decimals: str = "keep"
) -> tuple[np.ndarray, np.ndarray]:
    """Return codes into the sorted distinct texts of a column."""
    raw, distinct = pd.factorize(column, use_na_sentinel=False)
    try:
        texts = id_strings(pd.Series(distinct), name, allow_empty=allow_empty, decimals=decimals)
    except InputError:
        # Once more, to name the rows of the table and not of the distinct texts.
        id_strings(column, name, allow_empty=allow_empty, decimals=decimals)
        raise
    # Sorted as Python strings: numpy's own strings drop trailing NULs and are as wide as the longest.
    labels = np.empty(texts.nunique(), dtype=object)
    labels[:] = sorted(set(texts))
    place = pd.Index(labels, dtype=object).get_indexer(pd.Index(texts, dtype=object))
    return place[raw].astype(np.int64, copy=False), labels


def _item_codes(frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return codes of both slots into one sorted list of items."""
    first, first_ids = _codes(frame["item_first"], "item_first", allow_empty=False, decimals="refuse")
    second, second_ids = _codes(frame["item_second"], "item_second", allow_empty=False, decimals="refuse")
    items = np.array(sorted({*first_ids, *second_ids}), dtype=object)
    where = {item: code for code, item in enumerate(items)}
    to_items = [np.array([where[item] for item in ids], dtype=np.int64) for ids in (first_ids, second_ids)]
    return to_items[0][first], to_items[1][second], items


def _near_identical(what: str, labels: Iterable[str]) -> list[str]:
    """Report labels that differ only in case, white space or leading zeros."""
    alike: dict[str, list[str]] = {}
    for label in labels:
        plain = _plain(label)
        plain = plain.lstrip("0") or "0" if plain.isdigit() else plain
        alike.setdefault(plain, []).append(label)
    pairs = [names for names in alike.values() if len(names) > 1]
    if not pairs:
        return []
    shown = "; ".join(" and ".join(f"'{name}'" for name in names) for names in pairs[:3])
    more = f" (and {len(pairs) - 3} more)" if len(pairs) > 3 else ""
    return [f"{what} that look alike are kept apart: {shown}{more}"]


def _read_verdict(
    frame: pd.DataFrame,
    first: np.ndarray,
    second: np.ndarray,
    items: np.ndarray,
    layout: str | Mapping[str, str] | None,
    facts: GateFacts,
) -> np.ndarray:
    """Return the slot-space verdict of every row from whichever columns state it."""
    stated: np.ndarray | None = None
    for name in ("verdict", "winner"):
        if name not in frame.columns:
            continue
        chosen = layout.get(name) if isinstance(layout, Mapping) else layout
        verdict = _from_labels(frame[name], name, first, second, items, chosen, facts)
        if stated is not None and (stated != verdict).any():
            raise InputError(
                f"{describe_rows(stated != verdict)}: the columns verdict and winner disagree; keep the right one and drop the other"
            )
        stated = verdict
    if {"score_first", "score_second"} <= set(frame.columns):
        a = finite_numbers(frame["score_first"], "score_first", allow_empty=True)
        b = finite_numbers(frame["score_second"], "score_second", allow_empty=True)
        scored = np.select([a > b, b > a, a == b], [FIRST, SECOND, TIE], INVALID)
        if stated is None:
            return scored
        both = (scored != INVALID) & (stated <= TIE)
        facts.ledger["n_score_disagreements"] = int((both & (scored != stated)).sum())
        facts.n_scored = int(both.sum())
    assert stated is not None  # check_columns guarantees one source
    return stated


def _plain(label: str) -> str:
    return " ".join(label.split()).casefold()


def needs_layout(label: str) -> bool:
    """Whether what a label means depends on the layout: all but ties, empty and inconsistent ones."""
    return _meaning(label) < 0


def _meaning(label: str) -> int:
    """Return the code of a label that means the same in every layout, else -1."""
    text = _plain(label)
    if text == "":
        return INVALID
    if text == "tie" or text in _BOTH_BAD:
        return TIE
    return INCONSISTENT if text in _INCONSISTENT else -1


def _from_labels(
    column: pd.Series,
    name: str,
    first: np.ndarray,
    second: np.ndarray,
    items: np.ndarray,
    layout: str | None,
    facts: GateFacts,
) -> np.ndarray:
    """Map the labels of a ``verdict`` or ``winner`` column to slot-space codes."""
    raw, labels = _codes(column, name, allow_empty=True)
    count = np.bincount(raw, minlength=len(labels))
    meaning = np.array([_meaning(label) for label in labels])
    if name == "winner" and (reserved := [str(item) for item in items if _meaning(item) >= 0]):
        raise InputError(
            f"item(s) called {list_some([repr(item) for item in reserved])} cannot be told from the labels of a winner column "
            "(tie, both bad, inconsistent); rename them or use a verdict column"
        )
    facts.labels[name] = Counter(dict(zip(labels.tolist(), count.tolist(), strict=True)))
    if both_bad := sum(n for label, n in facts.labels[name].items() if _plain(label) in _BOTH_BAD):
        facts.ledger["n_both_bad"] = both_bad

    layout = layout or guess_layout(name, facts.labels[name], items)
    facts.layouts[name] = layout
    if layout == "items":
        to_item = pd.Index(items).get_indexer(pd.Index(labels))
        item = to_item[raw]
        verdict = np.select([item == first, item == second], [FIRST, SECOND], -1)
        verdict = np.where(meaning[raw] >= 0, meaning[raw], verdict)
        wrong = verdict < 0
        if wrong.any():
            raise InputError(
                f"{describe_rows(wrong)}: {name} {list_some(labels[np.unique(raw[wrong])])} is none of the two items of its row; "
                f"needed is an item id of the row, or tie. {_label_counts(facts.labels[name])}"
            )
        return verdict
    left, right = SLOT_VOCABULARIES[layout]
    for code, label in enumerate(labels):
        if _plain(label) in left:
            meaning[code] = FIRST
        elif _plain(label) in right:
            meaning[code] = SECOND
    unknown = meaning < 0
    if unknown.any():
        raise InputError(
            f"column {name}: unknown label(s) {list_some([repr(str(x)) for x in labels[unknown]])}. "
            f"{_label_counts(facts.labels[name])} "
            f"Accepted with layout {layout}: {', '.join(sorted(left | right))}, tie, or empty (invalid)"
        )
    return meaning[raw]


def _mapping_note(column: str, labels: list[str], layout: str) -> list[str]:
    """Say which labels were read as which slot, unless they are the plain words."""
    mapped = list(filter(needs_layout, labels))
    if layout == "items" or not mapped:
        return []
    if layout == "slots" and {"first", "second"} >= set(mapped):
        return []
    left, _ = SLOT_VOCABULARIES[layout]
    pairs = ", ".join(f"'{label}' = {'first' if _plain(label) in left else 'second'}" for label in mapped)
    return [f"the labels of column {column} were read as slots: {pairs}"]


def guess_layout(name: str, labels: Mapping[str, int], items: np.ndarray) -> str:
    """Return the one layout that explains the labels (with how often each occurs), or refuse."""
    known_items = set(items)
    stated = set(filter(needs_layout, labels))
    if not stated:
        return "slots" if name == "verdict" else "items"
    plain = {_plain(label) for label in stated}
    fits = [layout for layout, (left, right) in SLOT_VOCABULARIES.items() if plain <= left | right]
    in_items = {label for label in stated if label in known_items}
    # An item that is called like a slot makes the same word mean two things.
    collisions = sorted(item for item in known_items if item.strip().casefold() in plain)
    if fits and collisions and not (name == "verdict" and fits == ["slots"]):
        raise InputError(
            f"column {name}: {list_some(sorted(stated))} could be slots or items ({list_some(collisions)}); "
            f"say which with --layout {fits[0]} or --layout items"
        )
    if name == "winner":
        if fits == ["slots"]:
            raise InputError(
                f"column winner holds {list_some(sorted(stated))}, which are slots; rename the column to verdict, "
                "or put item ids into winner"
            )
        if fits:
            return fits[0]
        if in_items or not fits:
            return "items"
    if fits:
        return fits[0]
    if in_items == stated:
        raise InputError(
            f"column verdict holds item ids ({list_some(sorted(stated))}); rename the column to winner, or use first, second, tie"
        )
    # Name what does not fit the vocabulary that explains most of the verdicts.
    words = {layout: left | right for layout, (left, right) in SLOT_VOCABULARIES.items()}
    closest = max(
        words, key=lambda layout: sum(n for label, n in labels.items() if _plain(label) in words[layout])
    )
    strange = sorted(label for label in stated if _plain(label) not in words[closest])
    raise InputError(
        f"column {name}: unknown label(s) {list_some([repr(x) for x in strange])}. "
        f"{_label_counts(labels)} Accepted: first, second, "
        "tie, or empty (invalid); or one of the layouts "
        + ", ".join(f"{key} ({'/'.join(sorted(a | b))})" for key, (a, b) in SLOT_VOCABULARIES.items())
    )


def _label_counts(labels: Mapping[str, int]) -> str:
    """Say how often each label occurs, most frequent first."""
    ordered = sorted(labels.items(), key=lambda pair: (-pair[1], pair[0]))
    shown = [f"{label or '(empty)'}: {count}" for label, count in ordered[:8]]
    return f"Found {', '.join(shown)}{' and others' if len(labels) > 8 else ''}."


def refuse_repeated_keys(
    frame: pd.DataFrame,
    parts: list[tuple[np.ndarray, int]],
    verdict: np.ndarray,
    by: list[str],
    *,
    n_repeated: int | None = None,
) -> None:
    """Raise when a key occurs twice; name the rows by the index of the frame, and the fix that fits.

    `n_repeated` is the number of rows with a repeated key where the frame does not hold all of them.
    """
    key = combine_codes(*parts)
    ordered = np.sort(key)
    if not (ordered[1:] == ordered[:-1]).any():
        return
    repeated = pd.Series(key).duplicated(keep=False).to_numpy()
    where = np.flatnonzero(repeated)
    one = np.flatnonzero(key == key[where[0]])
    conflict = pd.Series(verdict[where]).groupby(key[where]).nunique().gt(1).any()
    finer = [
        c for c in GROUP_COLUMNS if c in frame.columns and c not in by and frame[c].iloc[one].nunique() > 1
    ]
    carried = [c for c in frame.columns if c not in _KNOWN and c not in by]
    prompts = [
        c for c in carried if "context" not in frame.columns and frame[c].iloc[one].nunique() == len(one)
    ]
    if finer:
        fix = f"the rows differ in {finer[0]}: add it to the grouping (--by {' '.join([*by, finer[0]])})"
    elif prompts:
        fix = (
            f"the rows differ in {prompts[0]}: if that is the prompt they answer, rename the column to context; if they are "
            "repeats of one call, number them in a run column, or with --number-runs"
        )
    elif frame.iloc[where].duplicated(keep=False).all() and not conflict:
        fix = "number the repeats in a run column (or with --number-runs), or drop exact copies with --drop-exact-copies"
    else:
        fix = "number the repeats in a run column, or with --number-runs (a conflict is never averaged)"
    first, second = frame["item_first"].iloc[one[0]], frame["item_second"].iloc[one[0]]
    n_repeated = len(where) if n_repeated is None else n_repeated
    raise InputError(
        f"the same call (groups, context, item_first, item_second, run) occurs more than once in {n_repeated} rows, "
        f"{'some with different verdicts, ' if conflict else ''}for example {name_rows(np.asarray(frame.index)[one] + 1)} "
        f"({first} against {second}); {fix}"
    )


def _merge_criteria(key: np.ndarray, verdict: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Merge the criteria of each call by majority; return kept rows, verdicts and the number of even splits."""
    _, keep, inverse = np.unique(key, return_index=True, return_inverse=True)
    counts = np.bincount(inverse * 5 + verdict, minlength=5 * len(keep)).reshape(-1, 5)
    outcomes = np.array([FIRST, SECOND, TIE, INCONSISTENT])
    valid = counts[:, outcomes]
    top = valid.max(axis=1)
    split = (valid == top[:, None]).sum(axis=1) > 1
    merged = np.where(top == 0, INVALID, np.where(split, TIE, outcomes[valid.argmax(axis=1)]))
    return keep, merged, int((split & (top > 0)).sum())


def _expand_merged(table: VerdictTable, ledger: dict[str, int]) -> VerdictTable:
    """Turn stated merged results of both orders into one verdict per order.

    A table that says "tie (inconsistent)" states, per row, what both orders gave together: a winner means
    that both orders agree, "inconsistent" that they differ (which way is lost). Groups that use the label
    and never show a pair in both orders are therefore expanded; a mixture is refused.
    """
    n = len(table.items)
    size = (len(table.groups), len(table.contexts))
    low, high = np.minimum(table.first, table.second), np.maximum(table.first, table.second)
    pair = combine_codes((table.group, size[0]), (table.context, size[1]), (low, n), (high, n))
    order = table.first > table.second
    uses = np.zeros(size[0], dtype=bool)
    uses[table.group[table.verdict == INCONSISTENT]] = True
    codes, _ = pd.factorize(pair)
    seen = np.zeros((codes.max() + 1, 2), dtype=bool)
    seen[codes, order.astype(int)] = True
    mixed = seen[codes].all(axis=1) & uses[table.group]
    if mixed.any():
        raise InputError(
            f"{describe_rows(mixed)}: the group states merged results ('tie (inconsistent)') and also shows pairs in both orders; "
            "keep either the merged rows or the single calls"
        )
    chosen = np.flatnonzero(uses[table.group])
    verdict = table.verdict[chosen]
    flipped = np.where(verdict <= SECOND, 1 - verdict, verdict)
    ledger["n_merged_rows"] = len(chosen)
    ledger["n_stated_inconsistent"] = int((table.verdict == INCONSISTENT).sum())
    return replace(
        table,
        group=np.concatenate([table.group, table.group[chosen]]),
        context=np.concatenate([table.context, table.context[chosen]]),
        first=np.concatenate([table.first, table.second[chosen]]),
        second=np.concatenate([table.second, table.first[chosen]]),
        run=np.concatenate([table.run, table.run[chosen]]),
        verdict=np.concatenate([table.verdict, flipped]),
        extras=pd.concat([table.extras, table.extras.iloc[chosen]], ignore_index=True),
    )
