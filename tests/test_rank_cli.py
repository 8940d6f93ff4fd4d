"""``python -m rank`` from the command line."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from functools import partial

import pandas as pd
import pytest

from rank.__main__ import main
from tests.strategies import rows_of

VERDICTS = "a>b x4, b>a x2, a>c x5, c>a, b=c, b>c x3, c>b x2"
GOLD = pd.DataFrame({"item": list("abc"), "score": [4.0, 2.5, 1.0]})

Result = tuple[int, str, str]


@pytest.fixture
def run(run_command: Callable[..., Result]) -> Callable[..., Result]:
    return partial(run_command, main)


def document(result: Result) -> dict:
    code, out, _ = result
    assert code == 0

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(out, parse_constant=refuse)


def refused(result: Result, *words: str) -> None:
    code, out, err = result
    assert code == 1
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.startswith("rankgap rank: error: ")
    for word in words:
        assert word in err, err


def test_json_has_the_keys_of_the_specification(run: Callable[..., Result]) -> None:
    result = document(
        run(rows_of(VERDICTS, judge="x"), "--gold", GOLD, "--format", "json", "--resamples", 50, "--seed", 1)
    )
    (group,) = result["groups"]
    assert group["judge"] == "x"
    assert {"items", "order_effect", "spearman"} <= set(group)
    assert group["order_effect"] is None
    assert {"item", "strength", "std_error", "rank"} <= set(group["items"][0])
    assert [row["item"] for row in group["items"]] == ["a", "b", "c"]
    assert sum(row["strength"] for row in group["items"]) == pytest.approx(0, abs=1e-12)
    assert group["spearman"] == 1
    assert group["converged"] is True
    assert result["counts"]["n_rows"] == 18


def test_methods_agree_and_the_cross_check_prints_the_largest_difference(run: Callable[..., Result]) -> None:
    found = []
    for method in ("newton", "mm", "newman"):
        options = ("--method", method, "--format", "json", "--resamples", 0, "--cross-check")
        (group,) = document(run(rows_of(VERDICTS), *options))["groups"]
        assert group["cross_check"]["largest"] < 1e-6
        found.append([row["strength"] for row in group["items"]])
    assert found[1] == pytest.approx(found[0], abs=1e-8)
    assert found[2] == pytest.approx(found[0], abs=1e-8)
    out = run(rows_of(VERDICTS), "--cross-check", "--resamples", 0)[1]
    assert "differs from choix" in out


@pytest.mark.parametrize("how", ["table", "csv", "markdown"])
def test_other_formats_list_the_items_best_first(run: Callable[..., Result], how: str) -> None:
    frame = pd.concat([rows_of(f"{VERDICTS}, a<b, c<a x2, b<c", judge=j) for j in ("one", "two")])
    code, out, _ = run(frame, "--format", how, "--resamples", 20, "--order-effect")
    assert code == 0
    assert "nan" not in out.lower()
    if how == "csv":
        rows = list(csv.DictReader(io.StringIO(out)))
        assert [(row["judge"], row["item"]) for row in rows] == [
            (j, i) for j in ("one", "two") for i in "abc"
        ]
    else:
        assert "order effect: gamma" in out


def test_order_effects_are_said_in_words_and_in_numbers(run: Callable[..., Result]) -> None:
    frame = rows_of("a>b x9, a<b x2, b>a x7, b<a x3, a>c x9, c>a x6, c<a x5, b>c x9, b<c, c>b x5, c<b x4")
    (group,) = document(run(frame, "--order-effect", "--format", "json", "--resamples", 0))["groups"]
    effect = group["order_effect"]
    assert effect["estimate"] > 0
    assert effect["degrees_of_freedom"] == 1
    assert 0 < effect["p_value"] < 0.01
    gap = document(run(frame, "--order-effect", "gap", "--gold", GOLD, "--format", "json", "--resamples", 0))[
        "groups"
    ][0]
    assert len(gap["order_effect"]["buckets"]) == 2
    assert gap["order_effect"]["estimate"] is None
    refused(run(frame, "--order-effect", "gap"), "--gold")


def test_case_1_never_wins(run: Callable[..., Result]) -> None:
    frame = rows_of("A>B, B>A, A>C, B>C")
    refused(run(frame), "C never wins", "alpha")
    code, out, _ = run(frame, "--alpha", 0.5, "--resamples", 0)
    assert code == 0
    assert "PENALISED" in out


def test_case_2_islands(run: Callable[..., Result]) -> None:
    frame = rows_of("A>B x2, B>A, C>D, D>C x2")
    refused(run(frame), "A", "B", "C", "D")
    code, out, _ = run(frame, "--components", "separate", "--resamples", 50)
    assert code == 0
    assert "island" in out
    (group,) = document(run(frame, "--components", "separate", "--resamples", 0, "--format", "json"))[
        "groups"
    ]
    assert [(row["item"], row["rank"]) for row in group["items"]] == [("A", 1), ("B", 2), ("D", 1), ("C", 2)]


def test_case_3_a_chain(run: Callable[..., Result]) -> None:
    refused(run(rows_of("A>B, B>C, C>D")), "D never wins", "without bound")


def test_case_4_ties_only(run: Callable[..., Result]) -> None:
    (group,) = document(run(rows_of("A=B, B=C, A=C"), "--format", "json", "--resamples", 20))["groups"]
    assert {row["rank"] for row in group["items"]} == {1}
    assert all(row["std_error"] > 0 for row in group["items"])


def test_case_5_seven_against_three(run: Callable[..., Result]) -> None:
    (group,) = document(run(rows_of("A>B x7, A<B x3"), "--format", "json", "--resamples", 0))["groups"]
    a, b = (row["strength"] for row in group["items"])
    assert a - b == pytest.approx(math.log(7 / 3), abs=1e-9)


def test_case_6_layouts_are_found_declared_or_refused(run: Callable[..., Result]) -> None:
    frame = rows_of("gpt>llama x3, llama>gpt x2, gpt<llama")
    winner = frame.drop(columns="verdict").assign(run=range(6))
    labelled = winner.assign(winner=["model_a"] * 5 + ["model_b"])
    code, out, _ = run(labelled, "--resamples", 0)
    assert code == 0
    assert "'model_a' = first" in out
    (mapped,) = document(run(labelled, "--format", "json", "--resamples", 0, "--layout", "models"))["groups"]
    (plain,) = document(run(frame, "--format", "json", "--resamples", 0))["groups"]
    assert [r["strength"] for r in mapped["items"]] == pytest.approx([r["strength"] for r in plain["items"]])
    refused(run(winner.assign(winner="GPT-4")), "GPT-4: 6")


def test_case_14_and_24_undefined_recovery_is_null_with_its_reason(run: Callable[..., Result]) -> None:
    options = ("--format", "json", "--resamples", 20)
    (group,) = document(run(rows_of(VERDICTS), "--gold", GOLD.assign(score=1), *options))["groups"]
    assert group["spearman"] is None
    assert "the same for all" in group["spearman_reason"]
    (pair,) = document(run(rows_of("a>b, b>a"), "--gold", GOLD, *options))["groups"]
    assert pair["items"][0]["strength_low"] is None  # one pair cannot be resampled
    assert "single pair" in pair["reason"]


def test_a_judge_without_a_ranking_does_not_stop_the_others(run: Callable[..., Result]) -> None:
    frame = pd.concat(
        [rows_of(VERDICTS, judge="good"), rows_of("a>b, b?a", judge="bad"), rows_of("a?b", judge="mute")]
    )
    result = document(run(frame, "--gold", GOLD, "--format", "json", "--resamples", 20))
    by_name = {group["judge"]: group for group in result["groups"]}
    assert by_name["good"]["spearman"] == 1
    assert by_name["bad"]["items"] == []
    assert "never wins" in by_name["bad"]["reason"]
    assert "no valid verdict" in by_name["mute"]["reason"]
    for how in ("table", "csv", "markdown"):
        code, out, _ = run(frame, "--gold", GOLD, "--format", how, "--resamples", 20)
        assert code == 0
        if how != "csv":
            assert "never wins" in out


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--alpha", -1), "alpha"),
        (("--prior-sd", 0), "prior"),
        (("--resamples", -1), "resamples"),
        (("--confidence", 1), "level"),
        (("--by", "colour"), "no such column"),
    ],
)
def test_impossible_options_leave_with_one(
    run: Callable[..., Result], options: tuple[object, ...], word: str
) -> None:
    refused(run(rows_of(VERDICTS), *options), word)


def test_usage_errors_leave_with_two_and_help_with_zero(run: Callable[..., Result]) -> None:
    assert run()[0] == 2
    assert run("x.csv", "--method", "elo")[0] == 2
    assert run("x.csv", "--order-effect", "two")[0] == 2
    code, out, _ = run("--help")
    assert code == 0
    assert "--cross-check" in out


@pytest.mark.parametrize("errors", ["observed", "sandwich", "bootstrap"])
@pytest.mark.parametrize("ties", ["half", "davidson"])
def test_every_kind_of_standard_error_works_with_every_kind_of_tie(
    run: Callable[..., Result], errors: str, ties: str
) -> None:
    frame = pd.concat([rows_of(VERDICTS, context=str(k)) for k in range(6)])
    options = ("--std-errors", errors, "--ties", ties, "--format", "json", "--resamples", 60, "--seed", 1)
    (group,) = document(run(frame, *options))["groups"]
    for row in group["items"]:
        assert row["std_error"] >= 0
        assert row["strength_low"] <= row["strength"] <= row["strength_high"]
        assert row["rank_low"] <= row["rank"] <= row["rank_high"]
    assert (group["tie_parameter"] is not None) == (ties == "davidson")


def test_several_files_are_one_table(run: Callable[..., Result]) -> None:
    frame = rows_of(VERDICTS)
    together = document(run(frame, "--format", "json", "--resamples", 0))["groups"]
    assert (
        document(run(frame.iloc[:7], frame.iloc[7:], "--format", "json", "--resamples", 0))["groups"]
        == together
    )


def test_many_items_are_ranked_without_a_bootstrap_unless_it_is_asked_for(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rank.__main__._MOST_RESAMPLED_ITEMS", 2)
    frame = rows_of("A>B x2, B>A, B>C x2, C>B, C>A, A>C x2")
    code, out, _ = run(frame, "--format", "json", "--seed", 1)
    document = json.loads(out)
    assert code == 0
    assert document["groups"][0]["items"][0]["strength_low"] is None
    assert any("no bootstrap intervals for 3 items" in note for note in document["notes"])
    asked = json.loads(run(frame, "--format", "json", "--seed", 1, "--resamples", 200)[1])
    assert asked["groups"][0]["items"][0]["strength_low"] is not None
