"""Files for people: swap-consistent decisions and disputed pairs."""

from __future__ import annotations

import pandas as pd
from hypothesis import given

from difficulty.decisions import decide_pairs, list_disputed
from difficulty.reliability import measure_reliability, pair_verdicts
from rank.gold import check_gold
from tests.strategies import mirrored, rows_of, tally_of, verdict_frames


def decisions(text: str) -> dict[tuple[str, str], str]:
    frame = decide_pairs(tally_of(rows_of(text)))
    return {(row["item_a"], row["item_b"]): row["winner"] for row in frame.to_dict("records")}


def test_decisions_of_every_kind_of_pair() -> None:
    assert decisions("a>b, b<a") == {("a", "b"): "a"}
    assert decisions("a<b, b>a") == {("a", "b"): "b"}
    assert decisions("a>b, b>a") == {("a", "b"): "disputed"}
    assert decisions("a>b, b=a") == {("a", "b"): "disputed"}
    assert decisions("a=b, b=a") == {("a", "b"): "tie"}
    assert decisions("a>b x2, a<b x2, b=a") == {
        ("a", "b"): "disputed"
    }  # a split of repeats is no verdict of a tie
    assert decisions("a>b") == {("a", "b"): "a"}
    assert decisions("a=b") == {("a", "b"): "tie"}
    assert decisions("a?b, b?a") == {("a", "b"): ""}
    assert decisions("a>b x2, a<b, b<a") == {("a", "b"): "a"}


@given(verdict_frames())
def test_decisions_are_those_of_the_pair_verdicts_and_mirroring_changes_none(frame: pd.DataFrame) -> None:
    tally = tally_of(frame)
    decided = decide_pairs(tally)
    assert len(decided) == tally.n_pairs
    for verdict, row in zip(pair_verdicts(tally.counts), decided.to_dict("records"), strict=True):
        expected = {0: [row["item_a"]], 1: [row["item_b"]], 2: ["tie", "disputed"], -1: [""]}
        assert row["winner"] in expected[int(verdict)]
    assert decided.equals(decide_pairs(tally_of(mirrored(frame))))


@given(verdict_frames(max_judges=1))
def test_disputed_pairs_are_all_flips_and_all_unstable_pairs(frame: pd.DataFrame) -> None:
    tally = tally_of(frame)
    listed = list_disputed(tally)
    assert (
        listed["why"].str.contains("flips").sum()
        == measure_reliability(tally, n_resamples=0).count("n_flips")[0]
    )
    unstable = 0
    for _, rows in frame[frame["verdict"] != ""].groupby(
        [*(["context"] if "context" in frame else []), frame[["item_first", "item_second"]].min(axis=1),
         frame[["item_first", "item_second"]].max(axis=1)]
    ):  # fmt: skip
        unstable += (rows.groupby(["item_first"])["verdict"].nunique() > 1).any()
    assert listed["why"].str.contains("unstable").sum() == unstable
    counts = [c for c in listed.columns if c.startswith(("a_first_", "b_first_"))]
    assert listed[counts].to_numpy().sum() <= len(frame)


def test_disputed_pairs_are_listed_widest_gap_first_with_labels_and_counts() -> None:
    frame = rows_of("a>b, b>a, a>c x2, c>a, b=c, c>b, a>d, d>a", judge="j", dataset="d", context="7")
    tally = tally_of(frame)
    gold = check_gold(pd.DataFrame({"item": ["a", "b", "c"], "score": [1, 2, 5]}))
    listed = list_disputed(tally, gold.align(tally))
    assert listed["gap"].tolist()[:3] == [4, 3, 1]
    assert listed["gold_winner"].tolist() == ["c", "c", "b", ""]
    row = listed.iloc[0]
    assert (row["judge"], row["dataset"], row["context"], row["item_a"], row["item_b"]) == (
        "j",
        "d",
        "7",
        "a",
        "c",
    )
    assert (row["a_first_a_wins"], row["b_first_b_wins"], row["why"]) == (2, 1, "flips")


def test_nothing_to_review_is_an_empty_table_with_its_columns() -> None:
    listed = list_disputed(tally_of(rows_of("a>b, b<a")))
    assert len(listed) == 0
    assert "why" in listed


def test_a_merged_inconsistent_row_is_disputed() -> None:
    frame = pd.DataFrame(
        {"item_first": ["x", "x"], "item_second": ["y", "z"], "winner": ["tie (inconsistent)", "x"]}
    )
    tally = tally_of(frame)
    assert decide_pairs(tally)["winner"].tolist() == ["disputed", "x"]
    assert list_disputed(tally)["why"].tolist() == ["flips"]
