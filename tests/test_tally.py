"""The tally: counts, and that they add up."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rank.codes import combine_codes
from rank.exceptions import InputError
from rank.tally import OUTCOMES, build_tally
from tests.strategies import mirrored, rows_of, tally_of, verdict_frames


def long(tally) -> dict[tuple[str, ...], tuple[int, ...]]:
    """Counts by labels, without the rows of zeros."""
    frame = tally.to_frame()
    keys = [c for c in frame.columns if not c.startswith("n_")]
    counts = frame[[f"n_{o}" for o in OUTCOMES]].to_numpy()
    return {
        tuple(k): tuple(n) for k, n in zip(frame[keys].to_numpy(), counts.tolist(), strict=True) if any(n)
    }


@given(verdict_frames())
def test_counts_equal_a_plain_count_of_the_rows(frame: pd.DataFrame) -> None:
    tally = tally_of(frame)
    expected: Counter[tuple[str, ...]] = Counter()
    for row in frame.to_dict("records"):
        i, j = sorted((row["item_first"], row["item_second"]))
        named = {"first": row["item_first"], "second": row["item_second"]}.get(row["verdict"])
        outcome = {i: "i", j: "j"}.get(named) if named else {"tie": "tie", "": "invalid"}[row["verdict"]]
        expected[row["judge"], row.get("context", ""), i, j, row["item_first"], str(outcome)] += 1
    found: Counter[tuple[str, ...]] = Counter()
    for row in tally.to_frame().to_dict("records"):
        for outcome in OUTCOMES:
            key = (row["judge"], row["context"], row["item_i"], row["item_j"], row["item_first"], outcome)
            found[key] += row[f"n_{outcome}"]
    assert +found == expected
    assert (tally.item_i < tally.item_j).all()
    assert tally.counts.sum() == len(frame)
    order = np.lexsort((tally.item_j, tally.item_i, tally.context, tally.group))
    assert (order == np.arange(tally.n_pairs)).all()


@given(verdict_frames(), st.data())
def test_tallies_add_up_over_any_split_of_the_rows(frame: pd.DataFrame, data: st.DataObject) -> None:
    part = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(frame), max_size=len(frame))))
    parts = [tally_of(frame[part == k]) for k in np.unique(part)]
    total = parts[0]
    for other in parts[1:]:
        total = total + other
    whole = tally_of(frame)
    assert long(total) == long(whole)
    assert (total.counts == whole.counts).all()
    assert list(total.items) == list(whole.items)
    assert total.ledger == whole.ledger
    assert total.has_context == whole.has_context
    if len(parts) > 1:
        assert long(parts[1] + parts[0]) == long(parts[0] + parts[1])


@given(verdict_frames())
def test_mirrored_slots_exchange_the_orders_and_nothing_else(frame: pd.DataFrame) -> None:
    assert (tally_of(mirrored(frame)).counts == tally_of(frame).counts[:, ::-1]).all()


@given(verdict_frames(max_judges=2))
def test_groups_selected_one_by_one_are_the_whole(frame: pd.DataFrame) -> None:
    tally = tally_of(frame)
    parts = [tally.select(k) for k in range(tally.n_groups)]
    assert [one.group_label(0) for one in parts] == sorted(set(frame["judge"]))
    assert long(parts[0] if len(parts) == 1 else parts[0] + parts[1]) == long(tally)


def test_pairs_are_clusters_without_contexts_and_contexts_are_with_them() -> None:
    tally = tally_of(pd.concat([rows_of("a>b, b>a, a>c", judge=j) for j in "xy"]))
    assert tally.clusters().tolist() == [0, 1, 0, 1]
    with_context = tally_of(pd.concat([rows_of("a>b, a>c", judge=j, context=c) for j in "xy" for c in "12"]))
    assert with_context.clusters().tolist() == [0, 0, 1, 1] * 2


def test_tallies_of_other_groupings_do_not_add_up() -> None:
    one, other = tally_of(rows_of("a>b", judge="x")), tally_of(rows_of("a>b"))
    with pytest.raises(InputError, match="--by"):
        one + other
    with pytest.raises(TypeError):
        one + 1


@given(st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 2**21), st.integers(0, 2**22)), min_size=1))
def test_combined_codes_sort_as_tuples_even_beyond_63_bits(rows: list[tuple[int, int, int]]) -> None:
    columns = [np.array(c, dtype=np.int64) for c in zip(*rows, strict=True)]
    key = combine_codes(*[(c, 2**22 + 1) for c in columns])
    assert [rows[k] for k in np.argsort(key, kind="stable")] == sorted(rows)
    assert len(set(key.tolist())) == len(set(rows))


def test_built_rows_are_turned_round_to_the_canonical_pair() -> None:
    counts = np.arange(10).reshape(1, 2, 5)
    labels = (
        pd.DataFrame(index=range(1)),
        pd.DataFrame({"dataset": [""], "context": [""]}),
        np.array(["a", "b"], object),
    )
    zero, one = np.array([0]), np.array([1])
    tally = build_tally(*labels, zero, zero, one, zero, counts, has_context=False)
    assert tally.counts.tolist() == [[[6, 5, 7, 8, 9], [1, 0, 2, 3, 4]]]
    assert (tally.item_i.tolist(), tally.item_j.tolist()) == ([0], [1])
