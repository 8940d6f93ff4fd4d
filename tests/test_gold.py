"""Gold: the gate, and its alignment with the pairs of a tally."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rank.exceptions import InputError
from rank.gold import GOLD_I, GOLD_J, GOLD_TIE, NO_GOLD, Gold, check_gold
from rank.tally import tally_verdicts
from rank.verdicts import check_verdicts
from tests.strategies import rows_of, studies, tally_of


def items(**scores: object) -> pd.DataFrame:
    return pd.DataFrame({"item": list(scores), "score": list(scores.values())})


@given(studies())
def test_alignment_equals_looking_every_pair_up_in_the_rows(case: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    frame, gold_frame = case
    tally = tally_of(frame)
    gold = check_gold(gold_frame).align(tally)
    rows = gold_frame.to_dict("records")
    for p in range(tally.n_pairs):
        i, j = tally.items[tally.item_i[p]], tally.items[tally.item_j[p]]
        context = tally.contexts["context"].iloc[tally.context[p]]
        here = [row for row in rows if row.get("context", context) == context]
        if "item" in gold_frame:
            score = {row["item"]: row["score"] for row in here}
            if i not in score or j not in score:
                assert gold.winner[p] == NO_GOLD
                assert math.isnan(gold.gap[p])
                continue
            gap = abs(score[i] - score[j])
            expected = GOLD_TIE if gap < 1e-9 else GOLD_I if score[i] > score[j] else GOLD_J
            assert gold.gap[p] == pytest.approx(gap, abs=1e-9)
            assert (gold.score_i[p], gold.score_j[p]) == (score[i], score[j])
        else:
            found = [row for row in here if {row["item_a"], row["item_b"]} == {i, j}]
            if not found:
                assert gold.winner[p] == NO_GOLD
                continue
            expected = {i: GOLD_I, j: GOLD_J, "tie": GOLD_TIE}[found[0]["winner"]]
            gap = found[0]["gap"]
            assert gold.gap[p] == pytest.approx(math.nan if gap is None else gap, nan_ok=True)
        assert gold.winner[p] == expected


@given(studies(kinds=("items",)))
def test_item_scores_are_means_over_the_contexts_in_which_an_item_was_judged(
    case: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    frame, gold_frame = case
    tally = tally_of(frame)
    scores = check_gold(gold_frame).item_scores(tally)
    for code, item in enumerate(tally.items):
        rows = frame[(frame["item_first"] == item) | (frame["item_second"] == item)]
        known = gold_frame[gold_frame["item"] == item]
        if "context" in gold_frame:
            known = known[known["context"].isin(rows["context"])]
        expected = known["score"].mean() if len(known) else math.nan
        assert scores[code] == pytest.approx(expected, nan_ok=True)


def test_gaps_equal_on_paper_are_equal_whatever_the_last_bits() -> None:
    gold = check_gold(items(a=1.0, b=0.7, c=0.6, d=0.3, e=0.1 + 0.2))
    aligned = gold.align(tally_of(rows_of("a>b, c>d, d>e")))
    assert 1.0 - 0.7 != 0.6 - 0.3
    assert aligned.gap[0] == aligned.gap[1] == 0.3
    assert aligned.gap[2] == 0.0
    assert aligned.winner[2] == GOLD_TIE
    assert gold.align(tally_of(rows_of("a>b, b>a"))).gap[0] == 0.3


def test_gaps_round_alike_in_every_subset_of_the_pairs() -> None:
    # The largest score decides the digit; it must be that of the whole gold, not of the pairs at hand.
    gold = check_gold(items(a=1 / 3, b=0.0, c=2 / 3, big=1000.0))
    few, all_ = tally_of(rows_of("a>b, c>a")), tally_of(rows_of("a>b, c>a, big>a"))
    assert gold.align(few).gap[0] == gold.align(few).gap[1] == gold.align(all_).gap[0]


def test_means_over_contexts_keep_gold_ties() -> None:
    frame = pd.concat([rows_of("a>b", context=str(k)) for k in range(3)])
    gold = pd.DataFrame(
        {
            "context": ["0", "1", "2"] * 2,
            "item": ["a"] * 3 + ["b"] * 3,
            "score": [0.1, 0.2, 0.3, 0.3, 0.2, 0.1],
        }
    )
    assert (0.1 + 0.2) + 0.3 != (0.3 + 0.2) + 0.1
    a, b = check_gold(gold).item_scores(tally_of(frame))
    assert a == b


@pytest.mark.parametrize("scale", [1e-250, 1e-12, 1e15, 1e250])
def test_gaps_of_any_scale_keep_their_order(scale: float) -> None:
    aligned = check_gold(items(a=3 * scale, b=2 * scale, c=0.5 * scale)).align(
        tally_of(rows_of("a>b, b>c, a>c"))
    )
    assert np.all(np.diff(aligned.gap[[0, 2, 1]]) > 0)  # rows: ab, ac, bc
    assert aligned.gap[0] == pytest.approx(scale)


# --- case 23: what gold may miss, and what is refused
# --------------------------------------------------------------------------------------------------------


def test_case_23_items_without_gold_are_listed_and_their_pairs_counted() -> None:
    tally = tally_of(rows_of("a>b, b>c, a>c"))
    notes = check_gold(items(a=1, b=2, zz=3)).coverage_notes(tally)
    assert any("1 judged item(s) have no gold" in note and note.endswith(": c") for note in notes)
    assert any("2 of 3 judged pair(s) have no gold" in note for note in notes)
    assert any("1 gold item(s) are in no verdict" in note and note.endswith(": zz") for note in notes)


def test_pairs_that_only_lack_gold_in_their_context_are_counted() -> None:
    tally = tally_of(pd.concat([rows_of("a>b", context=k) for k in "12"]))
    gold = check_gold(items(a=1, b=2).assign(context="1"))
    assert gold.coverage_notes(tally) == ("1 of 2 judged pair(s) have no gold",)
    pairs = check_gold(pd.DataFrame({"item_a": ["b"], "item_b": ["a"], "winner": ["a"], "context": ["2"]}))
    assert pairs.coverage_notes(tally) == ("1 of 2 judged pair(s) have no gold",)


def test_gold_of_other_items_does_not_belong_to_the_verdicts() -> None:
    tally = tally_of(rows_of("a>b"))
    with pytest.raises(InputError, match=r"covers none of the 1 judged pairs: the ids of gold \(x, y\)"):
        check_gold(items(x=1, y=2)).require_coverage(tally)


@pytest.mark.parametrize(
    ("frame", "pattern"),
    [
        (items(a=1, b="inf"), "column score row 2: 'inf' is not a finite number"),
        (items(a=1, b="good"), "row 2: 'good'"),
        (items(a=1, b=None), "row 2"),
        (items(a=1).iloc[:0], "header but no rows"),
        (
            pd.DataFrame({"item": ["a", "a"], "score": [1, 1]}),
            r"rows 1, 2: the same item twice \(a\).*context",
        ),
        (pd.DataFrame({"item": ["a", ""], "score": [1, 1]}), "item row 2: empty id"),
        (pd.DataFrame({"item": [1.5], "score": [1]}), "whole numbers"),
        (
            pd.DataFrame({"name": ["a"], "score": [1]}),
            "gold has columns name, score; needed are item and score",
        ),
        (
            pd.DataFrame({"item_a": ["a"], "item_b": ["a"], "winner": ["a"]}),
            "row 1: item_a and item_b are the same",
        ),
        (
            pd.DataFrame({"item_a": ["a"], "item_b": ["b"], "winner": ["c"]}),
            "row 1: winner c is neither an item",
        ),
        (pd.DataFrame({"item_a": ["a"], "item_b": ["tie"], "winner": ["tie"]}), "an item called 'tie'"),
        (
            pd.DataFrame({"item_a": ["a"], "item_b": ["b"], "winner": ["a"], "gap": [-1]}),
            "gap cannot be negative",
        ),
        (
            pd.DataFrame({"item_a": ["a"], "item_b": ["b"], "winner": ["a"], "gap": ["inf"]}),
            "not a finite number",
        ),
        (
            pd.DataFrame({"item_a": ["a", "b"], "item_b": ["b", "a"], "winner": ["a", "tie"]}),
            "rows 1, 2: the same pair twice",
        ),
    ],
)
def test_case_23_gold_that_cannot_be_gold_is_refused(frame: pd.DataFrame, pattern: str) -> None:
    with pytest.raises(InputError, match=pattern):
        check_gold(frame)


def test_gold_finer_than_the_verdicts_is_refused_and_coarser_gold_holds_everywhere() -> None:
    gold = check_gold(
        pd.DataFrame({"item": ["a", "b"] * 2, "score": [1, 2, 2, 1], "context": ["1", "1", "2", "2"]})
    )
    with pytest.raises(InputError, match="gold distinguishes 2 values of 'context' but the verdicts have no"):
        gold.align(tally_of(rows_of("a>b")))
    coarse = check_gold(items(a=1, b=2)).align(tally_of(pd.concat([rows_of("a>b", context=k) for k in "12"])))
    assert list(coarse.winner) == [GOLD_J, GOLD_J]


def test_gold_with_one_dataset_matches_verdicts_without_one() -> None:
    gold = check_gold(items(a=1, b=2).assign(dataset="only"))
    assert list(gold.align(tally_of(rows_of("a>b"))).winner) == [GOLD_J]


def test_equal_contexts_of_two_datasets_have_their_own_gold() -> None:
    frame = pd.concat([rows_of("a>b", context="1", dataset=d) for d in "de"])
    gold = pd.DataFrame(
        {"dataset": ["d", "d", "e", "e"], "context": "1", "item": ["a", "b"] * 2, "score": [1, 2, 2, 1]}
    )
    assert list(check_gold(gold).align(tally_of(frame)).winner) == [GOLD_J, GOLD_I]


@given(st.sampled_from(["int64", "float64", "Int64", "int64[pyarrow]", "object", "category"]))
def test_numbers_as_ids_and_contexts_match_across_dtypes(dtype: str) -> None:
    frame = rows_of("1>2, 2>3", context="7")
    gold = pd.DataFrame(
        {"item": pd.Series([1, 2, 3]).astype(dtype), "context": pd.Series([7, 7, 7]).astype(dtype)}
    )
    aligned = check_gold(gold.assign(score=pd.Series([3, 2, 1]).astype(dtype))).align(tally_of(frame))
    assert list(aligned.winner) == [GOLD_I, GOLD_I]


def test_pair_gold_has_gaps_only_where_stated() -> None:
    def pairs(**columns: object) -> Gold:
        return check_gold(
            pd.DataFrame({"item_a": ["a", "b"], "item_b": ["b", "c"], "winner": ["a", "tie"], **columns})
        )

    assert not pairs().has_gaps
    assert pairs(gap=[None, 0.5]).has_gaps
    assert check_gold(items(a=1)).has_gaps
    tally = tally_of(rows_of("a>b, b>c"))
    assert np.isnan(pairs().align(tally).gap).all()
    assert np.isnan(pairs().item_scores(tally)).all()


def test_a_huge_score_elsewhere_turns_no_winner_into_a_tie_and_small_gaps_of_large_scores_stay_gaps() -> None:
    frame = pd.DataFrame(
        [("a", "b", "first"), ("b", "c", "first")], columns=["item_first", "item_second", "verdict"]
    )
    tally = tally_verdicts(check_verdicts(frame))
    scores = {"a": 0.0, "b": 0.7, "c": 1.4}
    plain = check_gold(pd.DataFrame({"item": list(scores), "score": list(scores.values())})).align(tally)
    with_giant = check_gold(pd.DataFrame({"item": [*scores, "zz"], "score": [*scores.values(), 1e15]})).align(
        tally
    )
    np.testing.assert_array_equal(plain.winner, with_giant.winner)
    np.testing.assert_array_equal(plain.gap, with_giant.gap)
    assert plain.gap[0] == plain.gap[1] == 0.7
    exact = check_gold(pd.DataFrame({"item": list("abc"), "score": [1e12, 1e12 + 0.125, 1e12 + 0.25]})).align(
        tally
    )
    np.testing.assert_allclose(exact.gap, [0.125, 0.125], atol=0.01)
    assert exact.winner.tolist() == [1, 1]
    with pytest.raises(InputError, match="another unit"):
        check_gold(pd.DataFrame({"item": ["a"], "score": [2e305]}))


def test_gold_ties_leave_every_measure_when_excluded() -> None:
    frame = pd.DataFrame(
        [("a", "b", "first"), ("b", "c", "first")], columns=["item_first", "item_second", "verdict"]
    )
    tally = tally_verdicts(check_verdicts(frame))
    gold = check_gold(pd.DataFrame({"item": list("abc"), "score": [1.0, 1.0, 0.0]}))
    assert gold.align(tally).winner.tolist() == [2, 0]
    assert gold.without_ties().align(tally).winner.tolist() == [-1, 0]
    assert any("1 of 2 judged pair(s) are gold ties" in note for note in gold.coverage_notes(tally))
