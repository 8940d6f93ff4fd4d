"""``python -m difficulty`` from the command line: exit codes, formats, files, and the cases that arrive as files."""

from __future__ import annotations

import csv
import gzip
import io
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from difficulty.__main__ import main
from difficulty.reliability import METRICS
from tests.strategies import rows_of

ROOT = Path(__file__).resolve().parents[1]
VERDICTS = "a>b x2, b<a x2, a>c x2, c>a x2, b=c, b>c, c<b x2"
GOLD = pd.DataFrame({"item": list("abc"), "score": [4.0, 2.5, 1.0]})

Result = tuple[int, str, str]


@pytest.fixture
def run(run_command: Callable[..., Result]) -> Callable[..., Result]:
    return partial(run_command, main)


def strict(text: str) -> dict:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_json_is_strict_and_has_the_keys_of_the_specification(run: Callable[..., Result]) -> None:
    frame = pd.concat([rows_of(VERDICTS, judge="x"), rows_of("a>b", judge="y")])
    code, out, err = run(frame, "--gold", GOLD, "--format", "json", "--seed", 1, "--resamples", 50)
    assert (code, err) == (0, "")
    document = strict(out)
    assert set(document) == {"groups", "notes", "counts"}
    x, y = document["groups"]
    assert (x["judge"], y["judge"]) == ("x", "y")
    for group in (x, y):
        assert {"overall", "buckets", "close_minus_far", "triads", "spearman"} <= set(group)
        assert {*METRICS, "n_pairs", "n_flips", "failure_mode"} <= set(group["overall"])
        for name in METRICS:
            assert {f"{name}_low", f"{name}_high"} <= set(group["overall"])
    assert x["overall"]["flip_rate"] == 2 / 3  # c always second, and b=c, b>c is a draw, hence a tie
    assert y["overall"]["flip_rate"] is None  # NaN is null, never 0
    assert [b["bucket"] for b in x["buckets"]][0] == "close"
    assert document["counts"]["n_rows"] == len(frame)


def test_the_same_seed_gives_the_same_document_and_row_order_does_not_matter(
    run: Callable[..., Result],
) -> None:
    texts = (VERDICTS, "a<b x2, b<a, c>a, a>c", "b>c, c=b, a=b, b=a", "a>b, b>a x3, a>c, c<a")
    frame = pd.concat([rows_of(text, context=str(k)) for k, text in enumerate(texts)])
    options = ("--gold", GOLD, "--format", "json", "--seed", 7, "--resamples", 50)
    first, second = run(frame, *options)[1], run(frame.sample(frac=1, random_state=1), *options)[1]
    assert first == second
    other = run(frame, *options[:-3], 8, "--resamples", 50)[1]
    assert other != first


@pytest.mark.parametrize("how", ["table", "csv", "markdown"])
def test_other_formats_show_every_group_and_bucket(run: Callable[..., Result], how: str) -> None:
    frame = pd.concat([rows_of(VERDICTS, judge=j) for j in ("x", "y")])
    code, out, _ = run(frame, "--gold", GOLD, "--format", how, "--resamples", 20)
    assert code == 0
    for word in ("x", "y", "close", "far"):
        assert word in out
    assert "nan" not in out.lower()
    if how == "csv":
        header = next(csv.reader(io.StringIO(out)))
        assert {"judge", "flip_rate", "flip_rate_low"} <= set(header)
    if how == "markdown":
        assert "| --- |" in out or "|---" in out or "| :" in out


def test_files_for_people_are_written(run: Callable[..., Result], tmp_path: Path) -> None:
    frame = rows_of(VERDICTS, judge="x")
    code, _, _ = run(
        frame, "--gold", GOLD, "--disputed", "review.csv", "--decisions", "decided.csv", "--plot", "p.png",
        "--resamples", 20, "--output", "out.md", "--format", "markdown",
    )  # fmt: skip
    assert code == 0
    decided = pd.read_csv("decided.csv").set_index(["item_a", "item_b"])["winner"].to_dict()
    assert decided == {("a", "b"): "a", ("a", "c"): "disputed", ("b", "c"): "disputed"}
    review = pd.read_csv("review.csv")
    assert review["gap"].tolist() == [3.0, 1.5]
    assert Path("p.png").read_bytes().startswith(b"\x89PNG")
    assert "close" in Path("out.md").read_text(encoding="utf-8")


def test_without_gold_there_are_no_buckets_and_a_note_says_why(run: Callable[..., Result]) -> None:
    code, out, _ = run(rows_of(VERDICTS), "--format", "json", "--resamples", 20)
    (group,) = strict(out)["groups"]
    assert code == 0
    assert group["buckets"] == []
    assert group["buckets_reason"] == "there is no gold"
    assert group["spearman"] is None
    assert group["overall"]["accuracy"] is None
    assert any("no gold given" in note for note in strict(out)["notes"])


def test_options_of_buckets_and_groups_reach_the_measurement(run: Callable[..., Result]) -> None:
    frame = rows_of(VERDICTS, length="long")
    options = ("--gold", GOLD, "--format", "json", "--resamples", 0)
    (group,) = strict(run(frame, *options, "--by", "length", "--gap-edges", 1, 2)[1])["groups"]
    assert group["length"] == "long"
    assert (group["gap_edges_basis"], group["gap_edges"]) == ("fixed", [1, 2])
    (group,) = strict(
        run(frame, *options, "--buckets", 2, "--edges", "judged", "--gold-scale", "strengths")[1]
    )["groups"]
    assert [b["bucket"] for b in group["buckets"]] == ["close", "far"]
    assert group["calibrated_reference"]["scale"] == 1
    credited = strict(run(frame, *options, "--tie-credit", 1)[1])["groups"][0]["overall"]["accuracy"]
    assert credited > group["overall"]["accuracy"]


# --- exit codes
# --------------------------------------------------------------------------------------------------------


def refused(result: Result, *words: str) -> None:
    code, out, err = result
    assert code == 1
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.startswith("rankgap difficulty: error: ")
    assert "Traceback" not in err
    for word in words:
        assert word in err, err


def test_usage_errors_leave_with_two_and_help_with_zero(run: Callable[..., Result]) -> None:
    assert run()[0] == 2
    assert run("x.csv", "--format", "xml")[0] == 2
    assert run("x.csv", "--seed", "-1")[0] == 2
    assert run("x.csv", "--res", "5")[0] == 2  # no abbreviations
    code, out, _ = run("--help")
    assert code == 0
    assert "example" in out


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--buckets", 1), "at least 2 buckets"),
        (("--resamples", -1), "resamples"),
        (("--confidence", 95), "level"),
        (("--tie-credit", 2), "tie_credit"),
        (("--gap-edges", 2, 1), "increasing"),
        (("--by", "colour"), "no such column"),
        (("--plot", "p.xyz"), "p.xyz"),
        (("--output", "no/such/folder/out.txt"), "no/such/folder"),
    ],
)
def test_impossible_options_leave_with_one_and_one_line(
    run: Callable[..., Result], options: tuple[object, ...], word: str
) -> None:
    refused(run(rows_of(VERDICTS), "--gold", GOLD, *options), word)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("header.csv", b"item_first,item_second,verdict\n", ("header.csv", "no rows")),
        ("wrong.csv", b"a,b\n1,2\n", ("wrong.csv", "item_first", "found")),
        ("empty.csv", b"", ("empty.csv", "empty")),
        ("same.csv", b"item_first,item_second,verdict\nx,x,first\n", ("same.csv", "row 1", "'x'")),
        ("twice.csv", b"item_first,item_second,verdict\nx,y,first\nx,y,first\n", ("rows 1, 2", "run")),
        ("blank.csv", b"item_first,item_second,verdict\n,y,first\n", ("item_first row 1", "empty id")),
        ("label.csv", b"item_first,item_second,verdict\nx,y,GPT-4\n", ("GPT-4: 1", "Accepted")),
        ("binary.csv", bytes(range(256)) * 4, ("binary.csv",)),
    ],
)
def test_cases_19_to_22_bad_files_are_one_line(
    run: Callable[..., Result], tmp_path: Path, name: str, content: bytes, words: tuple[str, ...]
) -> None:
    (tmp_path / name).write_bytes(content)
    refused(run(name), *words)


def test_case_22_missing_files_and_folders_are_one_line(run: Callable[..., Result], tmp_path: Path) -> None:
    refused(run("nothing.csv"), "nothing.csv")
    (tmp_path / "folder").mkdir()
    refused(run("folder"), "folder")


def test_case_22_encodings_separators_and_gzip_are_read(run: Callable[..., Result], tmp_path: Path) -> None:
    text = rows_of(VERDICTS).to_csv(index=False)
    variants = {
        "bom.csv": text.encode("utf-8-sig"),
        "utf16.csv": text.encode("utf-16"),
        "semicolon.csv": text.replace(",", ";").encode(),
        "packed.csv": gzip.compress(text.encode()),
    }
    expected = run(rows_of(VERDICTS), "--format", "json", "--seed", 1, "--resamples", 20)[1]
    for name, content in variants.items():
        (tmp_path / name).write_bytes(content)
        code, out, _ = run(name, "--format", "json", "--seed", 1, "--resamples", 20)
        assert code == 0
        assert strict(out)["groups"] == strict(expected)["groups"]


@pytest.mark.parametrize(
    ("gold", "words"),
    [
        (pd.DataFrame({"item": ["a", "a"], "score": [1, 2]}), ("rows 1, 2", "the same item twice")),
        (pd.DataFrame({"item": ["a", "b"], "score": [1, "inf"]}), ("score row 2", "inf")),
        (pd.DataFrame({"item": ["a", "b"], "score": [1, "high"]}), ("score row 2", "high")),
        (pd.DataFrame({"item": ["y", "z"], "score": [1, 2]}), ("covers none",)),
        (pd.DataFrame({"name": ["y"], "points": [1]}), ("item and score",)),
    ],
)
def test_case_23_bad_gold_is_one_line(
    run: Callable[..., Result], gold: pd.DataFrame, words: tuple[str, ...]
) -> None:
    refused(run(rows_of(VERDICTS), "--gold", gold), *words)


def test_case_23_partial_gold_and_unknown_items_are_listed(run: Callable[..., Result]) -> None:
    gold = pd.DataFrame({"item": ["a", "b", "zebra"], "score": [1, 2, 3]})
    code, out, _ = run(rows_of(VERDICTS), "--gold", gold, "--resamples", 20)
    assert code == 0
    assert "1 judged item(s) have no gold" in out
    assert "zebra" in out
    document = strict(run(rows_of(VERDICTS), "--gold", gold, "--format", "json", "--resamples", 20)[1])
    assert document["groups"][0]["overall"]["gold_coverage"] == 1 / 3


def test_case_7_and_9_invalid_verdicts_are_counted_in_the_output(run: Callable[..., Result]) -> None:
    code, out, _ = run(rows_of("a>b, b?a, a?c, c?a"), "--resamples", 20)
    assert code == 0
    assert "3 invalid verdict(s)" in out
    overall = strict(run(rows_of("a>b, b?a, a?c, c?a"), "--format", "json", "--resamples", 0)[1])["groups"][
        0
    ]["overall"]
    assert (overall["n_pairs_invalid"], overall["n_pairs_one_order"], overall["n_invalid"]) == (1, 1, 3)


def test_case_11_one_order_says_that_position_bias_is_unobserved(run: Callable[..., Result]) -> None:
    for how in ("table", "markdown"):
        code, out, _ = run(rows_of("a>b, a>c, b>c"), "--gold", GOLD, "--format", how, "--resamples", 20)
        assert code == 0
        assert "UNOBSERVED" in out


def test_case_13_real_edges_and_sizes_are_printed(run: Callable[..., Result]) -> None:
    gaps = [0.0] * 28 + [1.0] * 45 + [2.0] * 27
    frame = pd.concat([rows_of("a>b, b>a", context=str(k)) for k in range(100)])
    gold = pd.DataFrame(
        [(str(k), item, score) for k, gap in enumerate(gaps) for item, score in (("a", gap), ("b", 0))],
        columns=["context", "item", "score"],
    )
    code, out, _ = run(frame, "--gold", gold, "--resamples", 50)
    assert code == 0
    for size in (" 28 ", " 45 ", " 27 "):
        assert size in out


def test_case_14_equal_gold_is_a_sentence(run: Callable[..., Result]) -> None:
    code, out, _ = run(rows_of(VERDICTS), "--gold", GOLD.assign(score=1), "--resamples", 20)
    assert code == 0
    assert "all gold gaps are equal (1)" not in out
    assert "all gold gaps are equal (0)" in out
    assert "gold is the same for all ranked items" in out


@pytest.mark.parametrize("text", ["a>b", "a>b, b>a", "a?b", "a=b, b=a", "a>b, b>c"])
def test_case_24_the_smallest_tables_have_an_answer(run: Callable[..., Result], text: str) -> None:
    for how in ("table", "csv", "json", "markdown"):
        code, out, _ = run(rows_of(text), "--gold", GOLD, "--format", how, "--resamples", 20)
        assert code == 0
        assert out
        if how == "json":
            strict(out)


def test_case_26_always_first_in_words(run: Callable[..., Result]) -> None:
    frame = pd.concat(rows_of("a>b, b>a, a>c, c>a, b>c, c>b").assign(run=r) for r in range(3))
    code, out, _ = run(frame, "--gold", GOLD, "--resamples", 20)
    assert code == 0
    assert "confidently biased" in " ".join(out.split())
    assert "3 of 3 pairs flip" in out
    assert "100% of them towards the first slot (within noise of half)" in " ".join(
        out.split()
    )  # three flips are few
    many = pd.concat([frame.assign(context=str(k)) for k in range(5)])
    assert "100% of them towards the first slot." in " ".join(run(many, "--resamples", 20)[1].split())


def test_case_21_look_alike_ids_are_reported(run: Callable[..., Result]) -> None:
    frame = rows_of("07>7, 7>07, A>B, B>A").replace("B", "A ")
    code, out, _ = run(frame, "--resamples", 0)
    assert code == 0
    assert "look alike" in out


def test_look_alike_judges_and_contexts_are_reported(run: Callable[..., Result]) -> None:
    parts = [("GPT-4", "p1"), ("gpt-4 ", "P1"), ("other", "p2")]
    frame = pd.concat([rows_of(VERDICTS).assign(judge=judge, context=context) for judge, context in parts])
    out = " ".join(run(frame, "--resamples", 0)[1].split())
    assert "labels of column 'judge' that look alike are kept apart: 'GPT-4' and 'gpt-4 '" in out
    assert "labels of column 'context' that look alike are kept apart: 'P1' and 'p1'" in out


def test_odd_ids_pass_through_every_format(run: Callable[..., Result]) -> None:
    names = {"a": "line\nbreak", "b": 'bär, 熊 "🐻"', "c": "x" * 300}
    frame = rows_of(VERDICTS)
    for column in ("item_first", "item_second"):
        frame[column] = frame[column].map(names)
    gold = GOLD.assign(item=GOLD["item"].map(names))
    for how in ("table", "csv", "json", "markdown"):
        assert run(frame, "--gold", gold, "--format", how, "--resamples", 0, "--disputed", "d.csv")[0] == 0
    review = pd.read_csv("d.csv")
    assert set(review["item_a"]) | set(review["item_b"]) <= set(names.values())


def test_the_module_runs_as_a_program_and_reads_standard_input() -> None:
    text = rows_of(VERDICTS).to_csv(index=False)
    done = subprocess.run(
        [sys.executable, "-m", "difficulty", "-", "--format", "json", "--resamples", "0"],
        input=text, capture_output=True, text=True, cwd=ROOT, check=True,
    )  # fmt: skip
    assert strict(done.stdout)["groups"][0]["overall"]["n_flips"] == 2
    bad = subprocess.run(
        [sys.executable, "-m", "difficulty", "no-such-file.csv"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert bad.returncode == 1
    assert bad.stderr.count("\n") == 1


def test_names_with_dollar_signs_are_drawn_as_names(run: Callable[..., Result], tmp_path: Path) -> None:
    frame = pd.concat([rows_of(VERDICTS, judge="$x^$"), rows_of(VERDICTS, judge=r"$\frac{")])
    picture = tmp_path / "buckets.png"
    code, _, err = run(frame, "--gold", GOLD, "--resamples", 10, "--plot", str(picture))
    assert (code, err) == (0, "")
    assert picture.stat().st_size > 0


def test_partly_repeated_calls_and_partial_gold_are_said_loudly(run: Callable[..., Result]) -> None:
    code, out, _ = run(rows_of("a>b x2, b<a, a>c, c>a, b>c, c<b"), "--gold", GOLD, "--resamples", 10)
    assert code == 0
    assert "CAUTION all: C, and so T, rests on the 1 of" in " ".join(out.split())
