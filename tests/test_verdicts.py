"""The gate: what it accepts, maps, counts and refuses."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from difficulty.study import StudyOptions, study_group
from rank.columns import describe_rows, finite_numbers, id_strings, is_reserved
from rank.exceptions import InputError
from rank.ranking import RankingOptions, rank_group
from rank.readers import read_gold, read_verdicts
from rank.tally import INCONSISTENT, OUTCOMES, tally_verdicts
from rank.verdicts import GROUP_COLUMNS, LAYOUTS, SLOT_VOCABULARIES, check_verdicts
from tests.strategies import SPOILED, rows_of, spoiled_tables, tally_of, verdict_frames

CODES = {"first": 0, "second": 1, "tie": 2, "": 3}


def frame_of(rows: list[tuple[object, ...]], **columns: object) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["item_first", "item_second", "verdict"]).assign(**columns)


def meaning(frame: pd.DataFrame, **options: object) -> list[str]:
    """What every row says, as the winning item, "tie", "" or "inconsistent", via the gate's codes."""
    table = check_verdicts(frame, **options)  # type: ignore[arg-type]
    pairs = zip(table.first, table.second, table.verdict, strict=True)
    return [[str(table.items[a]), str(table.items[b]), "tie", "", "inconsistent"][v] for a, b, v in pairs]


@given(verdict_frames())
def test_codes_read_back_as_the_rows_that_went_in(frame: pd.DataFrame) -> None:
    table = check_verdicts(frame)
    assert list(table.items[table.first]) == list(frame["item_first"])
    assert list(table.items[table.second]) == list(frame["item_second"])
    assert list(table.verdict) == [CODES[v] for v in frame["verdict"]]
    assert list(table.groups["judge"].to_numpy()[table.group]) == list(frame["judge"])
    expected = list(frame["context"]) if "context" in frame else [""] * len(frame)
    assert list(table.contexts["context"].to_numpy()[table.context]) == expected
    assert table.ledger == {"n_rows": len(frame), "n_invalid": int((frame["verdict"] == "").sum())}
    assert sorted(table.items) == list(table.items)


@given(verdict_frames())
def test_item_space_and_slot_space_state_the_same_table(frame: pd.DataFrame) -> None:
    winner = np.select(
        [frame["verdict"] == "first", frame["verdict"] == "second"],
        [frame["item_first"], frame["item_second"]],
        frame["verdict"],
    )
    by_winner = check_verdicts(frame.drop(columns="verdict").assign(winner=winner))
    assert (by_winner.verdict == check_verdicts(frame).verdict).all()
    assert (check_verdicts(frame.assign(winner=winner)).verdict == by_winner.verdict).all()


@given(spoiled_tables())
def test_spoiled_tables_are_refused_with_the_place_and_the_way_out(case: tuple[pd.DataFrame, str]) -> None:
    frame, pattern = case
    with pytest.raises(InputError, match=pattern):
        check_verdicts(frame)


@pytest.mark.parametrize("name", sorted(SPOILED))
def test_refusals_are_one_sentence_without_line_breaks(name: str) -> None:
    spoil, pattern = SPOILED[name]
    with pytest.raises(InputError, match=pattern) as caught:
        check_verdicts(spoil(rows_of("alpha>bravo, bravo>alpha")))
    assert "\n" not in str(caught.value)


def test_both_columns_that_disagree_are_refused_by_row() -> None:
    frame = frame_of([("x", "y", "first"), ("y", "x", "first")], winner=["x", "x"])
    with pytest.raises(InputError, match="row 2: the columns verdict and winner disagree"):
        check_verdicts(frame)


def test_case_20_an_item_against_itself_is_refused_by_row() -> None:
    with pytest.raises(InputError, match=r"row 2: .*same item \('b'\)"):
        check_verdicts(frame_of([("a", "b", "first"), ("b", "b", "first")]))


# --- case 6: vocabularies
# ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "layout"),
    [
        (("model_a", "model_b"), "models"),
        (("MODEL_A", "Model_B"), "models"),
        (("model_1", "model_2"), "models"),
        (("a", "b"), "letters"),
        (("A", "B"), "letters"),
        (("1", "2"), "numbers"),
        ((1, 2), "numbers"),
        (("left", "right"), "sides"),
        (("FIRST", " second "), "slots"),
    ],
)
@pytest.mark.parametrize("column", ["verdict", "winner"])
def test_case_6_unambiguous_slot_labels_are_mapped_and_the_mapping_is_printed(
    labels: tuple[object, object], layout: str, column: str
) -> None:
    first, second = labels
    frame = frame_of([("gpt", "llama", first), ("llama", "gpt", second), ("gpt", "phi", "Tie")])
    frame = frame.rename(columns={"verdict": column})
    if layout == "slots" and column == "winner":  # never: slots in a column of item ids
        with pytest.raises(InputError, match="rename the column to verdict"):
            check_verdicts(frame)
        return
    assert meaning(frame) == ["gpt", "gpt", "tie"]
    (note,) = check_verdicts(frame).notes
    assert f"'{first}' = first" in note
    assert f"'{second}' = second" in note
    assert meaning(frame, layout=layout) == ["gpt", "gpt", "tie"]


def test_case_6_item_ids_in_another_spelling_are_refused_with_counts_never_ties() -> None:
    frame = frame_of(
        [("gpt-4", "llama", "GPT-4"), ("llama", "gpt-4", "GPT-4"), ("gpt-4", "llama", "tie")], run=[1, 1, 2]
    )
    with pytest.raises(InputError, match=r"GPT-4 is none of the two items.*GPT-4: 2, tie: 1"):
        check_verdicts(frame.rename(columns={"verdict": "winner"}))
    with pytest.raises(InputError, match=r"unknown label.*GPT-4.*GPT-4: 2.*Accepted: first, second, tie"):
        check_verdicts(frame)


def test_case_6_mixed_vocabularies_are_refused() -> None:
    with pytest.raises(InputError, match="unknown label"):
        check_verdicts(frame_of([("x", "y", "first"), ("y", "x", "model_b")]))
    with pytest.raises(InputError, match=r"unknown label.*'x'.*layout slots"):
        check_verdicts(frame_of([("x", "y", "first"), ("y", "x", "x")]), layout="slots")


def test_labels_that_are_slots_and_items_need_a_declared_layout() -> None:
    rows = [("b", "a", "a"), ("a", "b", "a")]
    for column in ("verdict", "winner"):
        frame = frame_of(rows).rename(columns={"verdict": column})
        with pytest.raises(InputError, match="--layout letters or --layout items"):
            check_verdicts(frame)
        assert meaning(frame, layout="items") == ["a", "a"]
        assert meaning(frame, layout="letters") == ["b", "a"]


def test_item_ids_in_the_verdict_column_are_refused_with_the_remedy() -> None:
    with pytest.raises(InputError, match="rename the column to winner"):
        check_verdicts(frame_of([("x", "y", "x")]))
    assert meaning(frame_of([("x", "y", "x")]), layout="items") == ["x"]


def test_unknown_layout_lists_the_choices() -> None:
    with pytest.raises(InputError, match=", ".join(LAYOUTS)):
        check_verdicts(rows_of("a>b"), layout="colours")
    assert set(LAYOUTS) == {*SLOT_VOCABULARIES, "items"}


def test_slots_and_items_share_no_word_besides_tie() -> None:
    words = set().union(*(left | right for left, right in SLOT_VOCABULARIES.values()))
    assert "tie" not in words
    with pytest.raises(InputError, match="called 'tie' cannot be told"):
        check_verdicts(pd.DataFrame({"item_first": ["tie"], "item_second": ["x"], "winner": ["tie"]}))
    assert meaning(frame_of([("tie", "x", "first")])) == ["tie"]  # a verdict column can tell them apart


# --- cases 7 and 8: invalid, both bad, inconsistent
# --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("empty", ["", "  ", None, np.nan, pd.NA])
def test_case_7_empty_winners_are_invalid_and_counted(empty: object) -> None:
    frame = pd.DataFrame(
        {"item_first": ["x"] * 10, "item_second": ["y"] * 10, "run": range(10), "winner": ["x", empty] * 5}
    )
    tally = tally_of(frame)
    assert tally.counts[0, 0].tolist() == [5, 0, 0, 5, 0]
    assert tally.ledger["n_invalid"] == 5
    assert "5 invalid verdict(s)" in tally.count_note()


@pytest.mark.parametrize("label", ["tie (bothbad)", "both_bad", "Tie (both_bad)", "BOTHBAD"])
@pytest.mark.parametrize("column", ["verdict", "winner"])
def test_case_8_both_bad_counts_as_a_tie_with_a_line_saying_so(label: str, column: str) -> None:
    frame = frame_of([("x", "y", label), ("y", "x", "tie")]).rename(columns={"verdict": column})
    table = check_verdicts(frame)
    assert list(table.verdict) == [2, 2]
    assert table.ledger["n_both_bad"] == 1
    assert "1 verdict(s) say that both items are bad" in table.notes[0]


def test_case_8_a_merged_inconsistent_row_is_a_flip_and_a_merged_winner_counts_in_both_orders() -> None:
    frame = frame_of([("x", "y", "x"), ("x", "z", "tie (inconsistent)"), ("z", "y", "tie")])
    table = check_verdicts(frame.rename(columns={"verdict": "winner"}))
    tally = tally_verdicts(table)
    shown = {
        (str(tally.items[i]), str(tally.items[j])): tally.counts[p]
        for p, (i, j) in enumerate(zip(tally.item_i, tally.item_j, strict=True))
    }
    assert shown["x", "y"].tolist() == [[1, 0, 0, 0, 0]] * 2
    assert shown["x", "z"][:, INCONSISTENT].tolist() == [1, 1]
    assert shown["y", "z"][:, OUTCOMES.index("tie")].tolist() == [1, 1]
    assert table.ledger["n_stated_inconsistent"] == 1
    assert table.ledger["n_merged_rows"] == 3
    assert "a flip (not a tie)" in table.notes[-1]


def test_case_8_merged_rows_beside_single_calls_are_refused() -> None:
    frame = frame_of([("x", "y", "first"), ("y", "x", "first"), ("x", "z", "inconsistent")])
    with pytest.raises(InputError, match="also shows pairs in both orders"):
        check_verdicts(frame)


def test_case_8_only_the_groups_that_state_merged_results_are_expanded() -> None:
    frame = frame_of(
        [("x", "y", "inconsistent"), ("x", "y", "first"), ("y", "x", "first")],
        judge=["m", "single", "single"],
    )
    tally = tally_of(frame)
    assert tally.counts.sum(axis=(1, 2)).tolist() == [2, 2]


# --- case 19: repeated keys
# --------------------------------------------------------------------------------------------------------


def test_case_19_the_same_key_with_the_same_verdict_names_both_ways_out() -> None:
    frame = frame_of([("x", "y", "first"), ("y", "x", "tie"), ("x", "y", "first")])
    with pytest.raises(InputError, match=r"2 rows, for example rows 1, 3 .*run column.*--drop-exact-copies"):
        check_verdicts(frame)
    table = check_verdicts(frame, drop_exact_copies=True)
    assert len(table) == 2
    assert table.ledger["n_exact_copies_dropped"] == 1


def test_case_19_a_conflict_is_never_averaged_not_even_when_copies_are_dropped() -> None:
    frame = frame_of([("x", "y", "first"), ("x", "y", "second")])
    for options in ({}, {"drop_exact_copies": True}):
        with pytest.raises(InputError, match="different verdicts.*never averaged"):
            check_verdicts(frame, **options)  # type: ignore[arg-type]


def test_case_19_copies_that_differ_in_an_extra_column_are_not_exact() -> None:
    frame = frame_of([("x", "y", "first"), ("x", "y", "first")], cost=[0.1, 0.2])
    with pytest.raises(InputError, match="run column"):
        check_verdicts(frame, drop_exact_copies=True)


def test_case_19_a_grouping_that_is_too_coarse_is_named_as_the_fix() -> None:
    frame = frame_of([("x", "y", "first"), ("x", "y", "second")], judge=["one", "two"])
    assert len(check_verdicts(frame)) == 2
    with pytest.raises(InputError, match=r"differ in judge: add it to the grouping \(--by format judge\)"):
        check_verdicts(frame.assign(format="f"), by=["format"])


def test_numbered_runs_keep_the_order_of_the_rows() -> None:
    frame = frame_of([("x", "y", "first"), ("y", "x", "tie"), ("x", "y", "second")])
    table = check_verdicts(frame, number_runs=True)
    assert list(table.run) == [0, 0, 1]
    assert table.ledger["n_numbered_runs"] == 1
    with pytest.raises(InputError, match="has a run column"):
        check_verdicts(frame.assign(run=1), number_runs=True)


def test_copies_are_found_beside_nested_extra_columns() -> None:
    frame = frame_of([("x", "y", "first")] * 2, tokens=[[1, 2], [1, 2]])
    assert len(check_verdicts(frame, drop_exact_copies=True)) == 1


# --- case 21: ids
# --------------------------------------------------------------------------------------------------------


def test_case_21_ids_are_kept_as_written_and_look_alikes_are_reported() -> None:
    frame = frame_of(
        [("A ", "A", "first"), ("07", "7", "first"), ("NaN", "nan", "second"), ("a", "tie", "tie")]
    )
    table = check_verdicts(frame)
    assert set(table.items) == {"A ", "A", "07", "7", "NaN", "nan", "a", "tie"}
    (note,) = table.notes
    for pair in ("'07' and '7'", "'A' and 'A ' and 'a'", "'NaN' and 'nan'"):
        assert pair in note


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pd.Series([7, 10]), ["7", "10"]),
        (pd.Series([7.0, 10.0]), ["7", "10"]),
        (pd.Series([7.0, 10], dtype=object), ["7", "10"]),
        (pd.Series([2**63 + 1, 2**63 + 3]), ["9223372036854775809", "9223372036854775811"]),
        (pd.Series([10**30, 10**30 + 1], dtype=object), [str(10**30), str(10**30 + 1)]),
        (pd.Series([True, False]), ["True", "False"]),
        (pd.Series(pd.Categorical(["b", "a"])), ["b", "a"]),
        (pd.Series(pd.Categorical([2.0, 1.0])), ["2", "1"]),
        (pd.Series(["b", "a"], dtype="string[pyarrow]"), ["b", "a"]),
        (pd.Series([1, 2], dtype="int64[pyarrow]"), ["1", "2"]),
        (pd.Series(pd.array([1, 2], dtype="Int64")), ["1", "2"]),
        (pd.Series(["a\nb", "ü 🙂"]), ["a\nb", "ü 🙂"]),
        (pd.Series(["a\0", "a"]), ["a\0", "a"]),
        (pd.Series(["x" * 100_000, "x" * 100_001]), ["x" * 100_000, "x" * 100_001]),
    ],
    ids=lambda value: str(getattr(value, "dtype", ""))[:20] or None,
)
def test_ids_of_any_dtype_are_the_strings_that_a_file_would_hold(
    column: pd.Series, expected: list[str]
) -> None:
    frame = pd.DataFrame({"item_first": column, "item_second": ["other"] * 2, "verdict": ["first"] * 2})
    table = check_verdicts(frame)
    assert list(table.items[table.first]) == expected


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(pd.array([1, None], dtype="Int64")),
        pd.Series(pd.array([True, None], dtype="boolean")),
        pd.Series([1.0, np.nan]),
        pd.Series(["a", None]),
        pd.Series(pd.Categorical(["a", None])),
        pd.Series([pd.Timestamp("2026-01-01"), pd.NaT]),
        pd.Series(["a", pd.NA], dtype="string[pyarrow]"),
    ],
    ids=lambda column: str(column.dtype),
)
def test_missing_ids_of_any_dtype_are_refused_by_row(column: pd.Series) -> None:
    frame = pd.DataFrame({"item_first": column, "item_second": ["x", "y"], "verdict": ["first"] * 2})
    with pytest.raises(InputError, match="item_first row 2: empty id"):
        check_verdicts(frame)


@pytest.mark.parametrize("column", ["temperature", "format", "context", "run"])
def test_labels_may_be_decimals_and_may_be_missing(column: str) -> None:
    frame = frame_of([("x", "y", "first"), ("x", "y", "tie"), ("x", "y", "second")])
    table = check_verdicts(frame.assign(**{column: [0.7, 1.0, np.nan]}))
    text = check_verdicts(frame.assign(**{column: ["0.7", "1", ""]}))
    assert (table.group == text.group).all()
    assert table.groups.equals(text.groups)
    assert table.contexts.equals(text.contexts)
    assert (table.run == text.run).all()
    if column in GROUP_COLUMNS:
        assert sorted(table.groups[column]) == ["", "0.7", "1"]


def test_row_index_and_row_order_of_a_frame_do_not_matter() -> None:
    frame = pd.concat([rows_of("a>b"), rows_of("b>a"), rows_of("a=c")])
    assert list(frame.index) == [0, 0, 0]
    assert len(check_verdicts(frame)) == 3


# --- groupings, criteria, scores
# ------------------------------------------------------------------------------------------------------


def test_grouping_defaults_to_what_is_there_and_any_other_column_can_be_named() -> None:
    frame = frame_of(
        [("x", "y", "first"), ("x", "y", "tie")], temperature=[0, 1], dataset="d", length=["s", "l"]
    )
    assert list(check_verdicts(frame).groups.columns) == ["dataset", "temperature"]
    table = check_verdicts(frame, by=["length"])
    assert table.groups["length"].tolist() == ["l", "s"]
    assert list(table.extras.columns) == []
    assert list(check_verdicts(frame).extras.columns) == ["length"]
    assert check_verdicts(frame.assign(run=[1, 2]), by=[]).groups.shape == (1, 0)
    for column, message in (("colour", "no such column"), ("run", "cannot be a grouping")):
        with pytest.raises(InputError, match=message):
            check_verdicts(frame.assign(run=1), by=[column])


def test_equal_contexts_of_two_datasets_stay_apart_whatever_the_grouping() -> None:
    frame = frame_of([("x", "y", "first")] * 2, dataset=["d", "e"], context="1", judge="j")
    assert tally_of(frame, by=["judge"]).n_pairs == 2


@given(st.lists(st.sampled_from(["first", "second", "tie", ""]), min_size=1, max_size=7))
def test_criteria_merge_by_majority_even_splits_tie_and_are_counted(verdicts: list[str]) -> None:
    frame = frame_of([("x", "y", v) for v in verdicts], criterion=range(len(verdicts)))
    table = check_verdicts(frame)
    count = {v: verdicts.count(v) for v in ("first", "second", "tie")}
    top = max(count.values())
    winners = [v for v, n in count.items() if n == top]
    expected = "" if top == 0 else winners[0] if len(winners) == 1 else "tie"
    assert list(table.verdict) == [CODES[expected]]
    assert table.ledger["n_criteria_splits"] == int(top > 0 and len(winners) > 1)
    assert table.ledger["n_criteria_merged"] == len(verdicts) - 1
    assert table.ledger["n_invalid"] == int(expected == "")


def test_criteria_of_different_calls_are_not_mixed_and_repeated_criteria_are_refused() -> None:
    rows = [("x", "y", "first"), ("x", "y", "first"), ("y", "x", "tie"), ("y", "x", "first")]
    frame = frame_of(rows, criterion=["clarity", "depth"] * 2)
    assert list(check_verdicts(frame).verdict) == [0, 2]
    with pytest.raises(InputError, match="more than once"):
        check_verdicts(pd.concat([frame, frame.iloc[:1]]))


def test_criteria_that_state_an_inconsistent_merged_result_stay_inconsistent() -> None:
    frame = frame_of([("x", "y", "tie (inconsistent)"), ("x", "y", "inconsistent"), ("x", "y", "first")])
    tally = tally_of(frame.assign(criterion=range(3)))
    assert tally.counts[0, :, INCONSISTENT].tolist() == [1, 1]
    assert tally.ledger["n_invalid"] == 0


def test_scores_give_the_verdict_where_none_is_stated() -> None:
    frame = pd.DataFrame(
        {
            "item_first": ["x", "x", "x", "y"],
            "item_second": ["y", "z", "w", "z"],
            "score_first": ["1", 2.5, 3, None],
            "score_second": [2, "2.5", 1, 4],
        }
    )
    assert list(check_verdicts(frame).verdict) == [1, 2, 0, 3]
    with pytest.raises(InputError, match="score_first row 1: 'high' is not a finite number"):
        check_verdicts(frame.assign(score_first=["high", 1, 1, 1]))


def test_scores_beside_a_stated_verdict_are_counted_and_the_verdict_stands() -> None:
    frame = frame_of(
        [("x", "y", "first"), ("y", "x", "first"), ("x", "z", ""), ("z", "x", "tie")],
        score_first=[1, 5, 2, None],
        score_second=[2, 1, 1, 1],
    )
    table = check_verdicts(frame)
    assert list(table.verdict) == [0, 0, 3, 2]
    assert table.ledger["n_score_disagreements"] == 1
    assert "1 of 2 scored rows" in table.notes[0]


# --- columns
# --------------------------------------------------------------------------------------------------------


def test_rows_are_named_from_one_and_long_lists_are_cut() -> None:
    assert describe_rows([False, True, False]) == "row 2"
    assert describe_rows(np.ones(6, dtype=bool)) == "rows 1, 2, 3, 4 and 2 more"


@pytest.mark.parametrize("bad", ["inf", "-inf", "1,5", "x", np.inf])
def test_numbers_must_be_finite(bad: object) -> None:
    with pytest.raises(InputError, match="column score row 2"):
        finite_numbers(pd.Series([1, bad], dtype=object), "score", allow_empty=True)


def test_empty_numbers_are_unknown_where_allowed() -> None:
    for column in (
        pd.Series(["1", " "]),
        pd.Series(pd.array([1, None], dtype="Int64")),
        pd.Series([1.0, np.nan]),
    ):
        assert np.isnan(finite_numbers(column, "gap", allow_empty=True)).tolist() == [False, True]
        with pytest.raises(InputError, match="row 2"):
            finite_numbers(column, "score", allow_empty=False)


def test_ids_that_floats_cannot_hold_are_refused_and_labels_are_not() -> None:
    with pytest.raises(InputError, match="store the column as text"):
        id_strings(pd.Series([2.0**53]), "item")
    assert id_strings(pd.Series([2.0**53, 0.5]), "temperature", decimals="keep").tolist() == [
        "9007199254740992.0",
        "0.5",
    ]


@pytest.mark.slow
def test_case_25_a_million_rows_are_counted_in_seconds() -> None:
    rng = np.random.default_rng(25)
    n = 1_000_000
    first = rng.integers(0, 150, n)
    second = (first + rng.integers(1, 150, n)) % 150
    names = np.array([f"model-{k}" for k in range(150)])
    frame = pd.DataFrame(
        {
            "item_first": pd.Categorical.from_codes(first, names),
            "item_second": pd.Categorical.from_codes(second, names),
            "winner": np.where(rng.random(n) < 0.5, names[first], "tie"),
            "context": np.arange(n),
        }
    )
    start = time.perf_counter()
    tally = tally_of(frame)
    assert time.perf_counter() - start < 20
    assert tally.counts.sum() == n


def test_case_21_items_called_like_a_label_are_refused_in_any_spelling_with_a_winner_column() -> None:
    for name in ("tie", "TIE", "Both Bad", "inconsistent", "tie (bothbad)"):
        frame = pd.DataFrame({"item_first": ["a", name], "item_second": [name, "a"], "winner": ["a", "a"]})
        with pytest.raises(InputError, match="cannot be told from the labels"):
            check_verdicts(frame)
        slots = frame.drop(columns="winner").assign(verdict="first")
        assert len(check_verdicts(slots)) == 2


def test_grouping_columns_that_results_use_are_refused_for_every_field_of_a_study(shared_data: Path) -> None:
    tally = tally_verdicts(read_verdicts(shared_data / "mtbench_repeats.csv", by=["judge"]))
    gold = read_gold(shared_data / "mtbench_models_gold.csv")
    study = study_group(tally.select(0), gold, StudyOptions(n_resamples=2, gold_scale="rescale"), rng=1)
    ranking = rank_group(tally.select(0), gold, RankingOptions(n_resamples=2))
    fields = {*study.flat(), *study.to_dict(), *study.profile.to_frame(), *ranking.items, *ranking.to_dict()}
    assert not [name for name in sorted(fields - {"judge"}) if not is_reserved(name)]
    frame = pd.DataFrame({"item_first": ["a"], "item_second": ["b"], "verdict": ["first"], "accuracy": ["x"]})
    with pytest.raises(InputError, match="rename the column"):
        check_verdicts(frame, by=["accuracy"])
    with pytest.raises(InputError, match="twice"):
        check_verdicts(frame.assign(judge="j"), by=["judge", "judge"])


def test_repeated_calls_that_differ_in_a_prompt_column_are_told_to_rename_it() -> None:
    frame = pd.DataFrame(
        {"item_first": ["a", "a"], "item_second": ["b", "b"], "verdict": ["first", "second"]}
    )
    with pytest.raises(InputError, match="rename the column to context"):
        check_verdicts(frame.assign(question_id=["1", "2"]))
    with pytest.raises(InputError, match="rename model_a to item_first, model_b to item_second"):
        check_verdicts(pd.DataFrame({"model_a": ["x"], "model_b": ["y"], "winner": ["model_a"]}))
    with pytest.raises(InputError, match=r"unknown label\(s\) 'maybe'\."):
        check_verdicts(frame.assign(verdict=["first", "maybe"]))
