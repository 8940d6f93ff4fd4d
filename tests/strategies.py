"""Hypothesis strategies in one place: good and bad verdict tables, gold, and tallies of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from rank.gold import Gold, check_gold
from rank.tally import Tally, tally_verdicts
from rank.verdicts import check_verdicts

ITEMS = ("delta", "alpha", "charlie", "bravo", "echo")
VERDICTS = ("first", "second", "tie", "")

#: Scores with exact ties, thirds (gaps that differ in their last bits) and decimals.
SCORES = (0.0, 1.0, 1 / 3, 2 / 3, 0.1, 0.2, 0.3, 0.7, 2.0, -1.5)


@st.composite
def verdict_frames(
    draw: st.DrawFn,
    *,
    max_items: int = 4,
    max_judges: int = 2,
    max_contexts: int = 3,
    max_runs: int = 3,
    verdicts: tuple[str, ...] = VERDICTS,
    with_context: bool | None = None,
    max_rows: int = 48,
    both_orders: bool = False,
) -> pd.DataFrame:
    """Draw a good verdict table: ties, invalid verdicts, repeats, missing orders, uneven designs.

    With ``both_orders`` every call is made in both orders.
    """
    items = ITEMS[: draw(st.integers(2, max_items))]
    context = draw(st.booleans()) if with_context is None else with_context
    contexts = [str(k) for k in range(draw(st.integers(1, max_contexts)))] if context else [""]
    judges = [f"judge {k}" for k in range(draw(st.integers(1, max_judges)))]
    ordered = [(a, b) for a in items for b in items if (a < b if both_orders else a != b)]
    runs = range(1, draw(st.integers(1, max_runs)) + 1)
    keys = [(j, c, *pair, r) for j in judges for c in contexts for pair in ordered for r in runs]
    chosen = draw(st.lists(st.sampled_from(keys), unique=True, min_size=1, max_size=min(len(keys), max_rows)))
    if both_orders:
        chosen += [(j, c, b, a, r) for j, c, a, b, r in chosen]
    labels = draw(st.lists(st.sampled_from(verdicts), min_size=len(chosen), max_size=len(chosen)))
    frame = pd.DataFrame(chosen, columns=["judge", "context", "item_first", "item_second", "run"])
    frame["verdict"] = labels
    return frame if context else frame.drop(columns="context")


@st.composite
def gold_frames(
    draw: st.DrawFn, frame: pd.DataFrame, *, kinds: tuple[str, ...] = ("items", "pairs")
) -> pd.DataFrame:
    """Draw gold for a verdict table: of items or of pairs, with ties, possibly partial, possibly per context."""
    items = sorted({*frame["item_first"], *frame["item_second"]})
    contexts = sorted(set(frame["context"])) if "context" in frame and draw(st.booleans()) else None
    rows: list[dict[str, object]] = []
    kind = draw(st.sampled_from(kinds))
    for context in contexts or [None]:  # type: ignore[list-item]
        label = {} if context is None else {"context": context}
        if kind == "items":
            known = draw(st.lists(st.sampled_from(items), unique=True, min_size=1))
            rows += [{**label, "item": item, "score": draw(st.sampled_from(SCORES))} for item in known]
        else:
            pairs = [(a, b) for a in items for b in items if a < b]
            known_pairs = draw(st.lists(st.sampled_from(pairs), unique=True, min_size=1))
            for pair in known_pairs:
                a, b = draw(st.permutations(pair))
                winner = draw(st.sampled_from([a, b, "tie"]))
                gap = 0.0 if winner == "tie" else draw(st.sampled_from([0.5, 1.0, None]))
                rows.append({**label, "item_a": a, "item_b": b, "winner": winner, "gap": gap})
    return pd.DataFrame(rows)


@st.composite
def studies(draw: st.DrawFn, **options: object) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Draw a verdict table with its gold."""
    kinds = options.pop("kinds", ("items", "pairs"))
    frame = draw(verdict_frames(**options))  # type: ignore[arg-type]
    return frame, draw(gold_frames(frame, kinds=kinds))  # type: ignore[arg-type]


def tally_of(frame: pd.DataFrame, **options: object) -> Tally:
    """Gate and count a table."""
    return tally_verdicts(check_verdicts(frame, **options))  # type: ignore[arg-type]


def gold_of(frame: pd.DataFrame) -> Gold:
    """Gate gold."""
    return check_gold(frame)


def tallies(**options: object) -> st.SearchStrategy[Tally]:
    """Tallies of good tables."""
    return verdict_frames(**options).map(tally_of)  # type: ignore[arg-type]


def rows_of(text: str, **columns: object) -> pd.DataFrame:
    """Read the shorthand of the case list: ``A>B`` is A shown first and winning, ``A<B`` B winning, ``A=B`` a tie,
    ``A?B`` invalid; ``x3`` repeats a row as runs 1 to 3, counting on where a condition occurs again."""
    marks = {">": "first", "<": "second", "=": "tie", "?": ""}
    rows: list[tuple[str, str, int, str]] = []
    seen: dict[tuple[str, str], int] = {}
    for part in text.split(","):
        call, _, times = part.strip().partition(" x")
        mark = next(m for m in marks if m in call)
        first, second = call.split(mark)
        for _ in range(int(times or 1)):
            seen[first, second] = seen.get((first, second), 0) + 1
            rows.append((first, second, seen[first, second], marks[mark]))
    frame = pd.DataFrame(rows, columns=["item_first", "item_second", "run", "verdict"])
    return frame.assign(**columns)


def mirrored(frame: pd.DataFrame) -> pd.DataFrame:
    """Swap the two slots of every row; the same items win."""
    swapped = frame.rename(columns={"item_first": "item_second", "item_second": "item_first"})
    swap = {"first": "second", "second": "first"}
    return swapped.assign(verdict=[swap.get(v, v) for v in frame["verdict"]])[list(frame.columns)]


def relabelled(frame: pd.DataFrame, names: dict[str, str]) -> pd.DataFrame:
    """Rename items in every column that holds item ids."""
    columns = [c for c in ("item_first", "item_second", "item", "item_a", "item_b") if c in frame]
    changed = frame.assign(**{c: [names.get(v, v) for v in frame[c]] for c in columns})
    if "winner" in frame:
        changed["winner"] = [names.get(v, v) for v in frame["winner"]]
    return changed


def _set(column: str, value: object) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def change(frame: pd.DataFrame) -> pd.DataFrame:
        values = frame[column].astype(object).to_numpy(copy=True)
        values[0] = value
        return frame.assign(**{column: values})

    return change


#: Name -> (how a good table is spoiled, what the refusal must say).
SPOILED: dict[str, tuple[Callable[[pd.DataFrame], pd.DataFrame], str]] = {
    "no verdict column": (lambda f: f.drop(columns="verdict"), r"missing column.*verdict.*found"),
    "no item column": (lambda f: f.drop(columns="item_second"), r"missing column.*item_second"),
    "no rows": (lambda f: f.iloc[:0], "no rows"),
    "an empty id": (_set("item_first", " "), r"item_first row 1: empty id"),
    "a missing id": (_set("item_second", None), r"item_second row 1: empty id"),
    "a decimal id": (_set("item_first", 1.5), r"item_first row 1: ids must be text or whole numbers.*1.5"),
    "an infinite id": (_set("item_first", np.inf), r"item_first row 1: ids must be .*inf"),
    "a rounded id": (_set("item_first", 2.0**60), r"item_first row 1: ids must be text"),
    "an unknown verdict": (_set("verdict", "the first one"), r"the first one.*Found .*Accepted"),
    "an item id as verdict": (_set("verdict", "alpha"), r"column verdict"),
    "the same call twice": (lambda f: pd.concat([f, f]), r"more than once.*run column"),
    "a column twice": (lambda f: pd.concat([f, f[["verdict"]]], axis=1), "occur twice"),
}


def spoiled_tables() -> st.SearchStrategy[tuple[pd.DataFrame, str]]:
    """Bad tables, each with the pattern of its refusal."""
    return st.builds(
        lambda frame, how: (how[0](frame), how[1]), verdict_frames(), st.sampled_from(list(SPOILED.values()))
    )
