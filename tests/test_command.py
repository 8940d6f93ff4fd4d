"""Arguments, exit codes and the four output formats."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rank.command as command
from analyses.command import COMMANDS, main
from rank import __version__
from rank.command import (
    Column,
    Report,
    Section,
    add_output_arguments,
    add_verdict_arguments,
    build_parser,
    emit,
    format_interval,
    format_value,
    progress,
    run,
    to_jsonable,
    write_text,
)
from rank.exceptions import ConvergenceError, InputError, NoMaximumError

ROOT = Path(__file__).resolve().parents[1]
NAN = float("nan")


def options(**given: object) -> argparse.Namespace:
    return argparse.Namespace(**{"format": "table", "output": None, "quiet": False, "seed": None, **given})


@pytest.fixture
def report() -> Report:
    table = pd.DataFrame(
        {
            "judge": ["long-judge-name-[bold]", "long-judge-name-[bold]", "b|c\n\x1b[31m"],
            "n_pairs": [1200, 38, 7],
            **{
                f"{metric}{end}": [0.612 + shift, NAN, 0.5 + shift]
                for metric in ("repeatability", "flip_rate", "accuracy", "trustworthy_rate", "ceiling")
                for end, shift in (("", 0.0), ("_low", -0.06), ("_high", 0.06))
            },
        }
    )
    section = Section(
        "Per judge",
        table,
        undefined={"repeatability": "one run only"},
        notes=("A note.",),
        group_by=("judge",),
    )
    return Report("Audit", (section,), ("A finding.",), {"rows": table}, ("3 rows were invalid.",))


def printed(capsys: pytest.CaptureFixture[str], report: Report, **given: object) -> str:
    emit(report, options(**given))
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [60, 80, 120, 250])
def test_table_fits_and_loses_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, report: Report, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = printed(capsys, report)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert "\x1b" not in text
    assert text.count("0.61 [0.55, 0.67]") == 5
    for part in ("Audit", "A finding.", "1,200", "[bold]", "– under repeatability: one run only", "A note."):
        assert part in text
    assert text.rstrip().endswith("3 rows were invalid.")


def test_one_wide_row_becomes_a_list(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = printed(capsys, Report("", (Section("", report.sections[0].table.iloc[:1]),)))
    assert any(
        line.split() == ["trustworthy", "rate", "0.61", "[0.55,", "0.67]"] for line in text.splitlines()
    )


def test_names_wider_than_the_terminal_are_folded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    table = pd.DataFrame({"item": ["x" * 150, "y"], "strength": [1.0, -1.0]})
    text = printed(capsys, Report("", (Section("", table),)))
    assert text.count("x") == 150
    assert max(map(len, text.splitlines())) <= 60


def test_csv_has_every_column_unrounded_and_remarks_go_to_stderr(
    capsys: pytest.CaptureFixture[str], report: Report
) -> None:
    emit(report, options(format="csv"))
    out, err = capsys.readouterr()
    header, first, *_ = csv.reader(io.StringIO(out))
    assert header == list(report.sections[0].table.columns)
    assert float(first[header.index("repeatability_low")]) == 0.612 - 0.06
    assert err.splitlines() == ["A finding.", "A note.", "3 rows were invalid."]
    emit(report, options(format="csv", quiet=True))
    assert capsys.readouterr().err == ""


def test_csv_of_several_sections_is_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    sections = (Section("x", pd.DataFrame({"n": [1]})), Section("y", pd.DataFrame({"m": [0.5]})))
    assert printed(capsys, Report("", sections), format="csv") == "section,n,m\nx,1,\ny,,0.5\n"


def test_json_is_strict_and_carries_the_notes(capsys: pytest.CaptureFixture[str], report: Report) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    document = json.loads(printed(capsys, report, format="json"), parse_constant=refuse)
    assert document["rows"][0]["repeatability"] == 0.612
    assert document["rows"][1]["repeatability"] is None
    assert document["notes"] == ["A note.", "3 rows were invalid."]


def test_markdown_escapes_what_would_break_the_table(
    capsys: pytest.CaptureFixture[str], report: Report
) -> None:
    lines = printed(capsys, report, format="markdown").splitlines()
    rows = [line.replace("\\|", "") for line in lines if line.startswith("|")]
    assert {row.count("|") for row in rows} == {8}
    assert "| :-- | --: |" in rows[1][:13]


@pytest.mark.parametrize("kind", ["table", "csv", "json", "markdown"])
def test_output_goes_to_the_file_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, report: Report, kind: str
) -> None:
    emit(report, options(format=kind, output=str(tmp_path / "out"), quiet=True))
    assert capsys.readouterr() == ("", "")
    assert [file.name for file in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out").read_text("utf-8").endswith("\n")


def test_output_to_a_stream_that_is_not_unicode(monkeypatch: pytest.MonkeyPatch, report: Report) -> None:
    for kind in ("table", "csv", "json", "markdown"):
        stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        monkeypatch.setattr(sys, "stdout", stream)
        emit(report, options(format=kind, quiet=True))
        assert stream.buffer.getvalue().isascii()  # type: ignore[attr-defined]


def test_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "out"
    file.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(InputError, match=r"out: cannot be written \(No space left on device\)"):
        write_text(file, "new")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("target", [".", "no/such/folder/out"])
def test_unwritable_output_is_an_input_error(tmp_path: Path, target: str) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_text(tmp_path / target, "x")


@pytest.mark.parametrize(
    ("value", "kind", "digits", "text"),
    [
        (1234567, "count", None, "1,234,567"),
        (np.int64(3), "count", None, "3"),
        (2.5, "count", None, "2.5"),
        (0.0, "p", None, "< 0.001"),
        (0.0301, "p", None, "0.030"),
        (-0.0001, "number", None, "0.000"),
        (-0.0001, "difference", 2, "0.00"),
        (-0.25, "difference", 2, "-0.25"),
        (np.bool_(True), "text", None, "yes"),
        (None, "share", None, "–"),
        (pd.NA, "share", None, "–"),
        (-np.inf, "number", None, "-∞"),
        ("07", "text", None, "07"),
        (2, "text", None, "2"),
        ("a\nb", "text", None, "a\\nb"),
    ],
)
def test_format_value(value: object, kind: str, digits: int | None, text: str) -> None:
    assert format_value(value, kind, digits) == text


def test_format_interval_of_an_undefined_value_is_a_dash() -> None:
    assert format_interval(NAN, 0.1, 0.2) == "–"


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.floats(width=32).map(np.float32)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(JSON_VALUES)
@settings(deadline=None, derandomize=True)
def test_to_jsonable_always_gives_strict_json(value: object) -> None:
    json.dumps(to_jsonable(value), allow_nan=False)


def test_to_jsonable_takes_labelled_and_numpy_values() -> None:
    frame = pd.DataFrame({"q": [0.5, NAN], "n": [1, 2], "j": pd.Series(["a", None], dtype="str")})
    assert to_jsonable(frame) == [{"q": 0.5, "n": 1, "j": "a"}, {"q": None, "n": 2, "j": None}]
    assert to_jsonable({np.int64(1): np.array([[True], [False]])}) == {"1": [[True], [False]]}
    assert to_jsonable(pd.Series([1.0, np.inf])) == [1.0, None]
    with pytest.raises(TypeError, match="object"):
        to_jsonable(object())


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InputError("rows 1\nand 2 repeat"), 1, "rankgap rank: error: rows 1 and 2 repeat"),
        (NoMaximumError("C never wins", never_win=["C"]), 1, "rankgap rank: error: C never wins"),
        (ConvergenceError("try newton"), 1, "rankgap rank: error: try newton"),
        (OSError(28, "No space left", "out.csv"), 1, "rankgap rank: error: out.csv: No space left"),
        (
            UnicodeEncodeError("utf-8", "a\ud800", 1, 2, "surrogates not allowed"),
            1,
            "rankgap rank: error: a text holds '\\ud800', which utf-8 cannot write",
        ),
        (MemoryError(), 1, "rankgap rank: error: out of memory"),
        (KeyboardInterrupt(), 130, ""),
        (SystemExit(2), 2, None),
    ],
)
def test_run_turns_errors_into_exit_codes(
    capsys: pytest.CaptureFixture[str], error: BaseException, code: int, line: str | None
) -> None:
    def fail(argv: list[str]) -> int:
        raise error

    assert run(fail, [], prog="rankgap rank") == code
    err = capsys.readouterr().err.splitlines()
    assert len(err) == (line is not None)
    assert line is None or err[0].startswith(line)


def test_run_leaves_defects_their_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        run(lambda argv: 1 // 0, [])


def test_reader_that_stops_early_is_no_error() -> None:
    code = (
        "import sys; from rank.command import run\n"
        "def f(argv):\n"
        "    for _ in range(100000): print('x' * 100)\n"
        "sys.exit(run(f, []))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert (process.wait(timeout=30), err) == (0, b"")


@pytest.mark.parametrize(
    ("closed", "code", "words"),
    [
        (">&-", 1, "standard output is closed"),
        (">&- 2>&-", 1, None),
        ("2>&-", 0, None),
        (">&- --output out.txt", 0, None),
        ("--by nope 2>&-", 1, None),
        ("--by nope >&-", 1, "standard output is closed"),
    ],
)
def test_closed_streams_are_no_defects(tmp_path: Path, closed: str, code: int, words: str | None) -> None:
    (tmp_path / "v.csv").write_text("item_first,item_second,verdict\na,b,first\nb,a,first\n")
    line = f'"$0" -m rank v.csv --alpha 0.1 --resamples 5 --quiet {closed}'
    done = subprocess.run(
        ["bash", "-c", line, sys.executable],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == (words is not None)
    assert words is None or words in done.stderr


def test_full_disk_behind_standard_output_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys, "stdout", Full())
    assert run(lambda argv: None, []) == 1
    assert capsys.readouterr().err == "rankgap: error: No space left on device\n"


def parse(tmp_path: Path, line: str) -> argparse.Namespace:
    parser = build_parser("x", "What.", example="x")
    add_verdict_arguments(parser)
    parser.add_argument("--plot", metavar="PATH")
    add_output_arguments(parser)
    words = line.replace("@", f"{tmp_path}/").split()
    return parser.parse_args(["" if word == "''" else word for word in words])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("- -", "standard input is named twice (- and -)"),
        ("- --gold -", "standard input is named twice (- and --gold -)"),
        ("''", "an empty path was given; name a file"),
        ("@v.csv --gold ''", "an empty path was given after --gold"),
        ("@v.csv --plot ''", "an empty path was given after --plot"),
        ("@v.csv --output ''", "an empty path was given after --output"),
        ("@v.csv --output @v.csv", "v.csv would overwrite the input"),
        ("@v.csv --output @link.csv", "link.csv would overwrite the input"),
        ("- --gold @v.csv --plot @./v.csv", "would overwrite the input --gold"),
        ("@v.csv --plot @new --output @new", "are the same file; name two"),
    ],
)
def test_paths_that_cannot_be_meant_are_refused(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "v.csv").write_text("x")
    (tmp_path / "link.csv").symlink_to("v.csv")
    with pytest.raises(InputError) as caught:
        parse(tmp_path, line)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "line", ["- --gold @v.csv --output -", "@v.csv @v.csv --plot /dev/null --output /dev/null"]
)
def test_paths_that_can_be_meant_are_taken(tmp_path: Path, line: str) -> None:
    (tmp_path / "v.csv").write_text("x")
    parse(tmp_path, line)


def test_markdown_makes_no_links_of_labels(capsys: pytest.CaptureFixture[str]) -> None:
    table = pd.DataFrame({"item": ["[x](http://a.b)", "[1](http://a.b)", "[1]: c"], "q": 0.5, "q_low": 0.25})
    table["q_high"] = 0.75
    text = printed(capsys, Report("[t](u)", (Section("", table),)), format="markdown")
    for shown in (r"\[x\](http", r"\[1\](http", r"\[1\]: c", "0.50 [0.25, 0.75]", r"# \[t\](u)"):
        assert shown in text


def test_name_of_a_file_that_is_no_text_is_printed_with_escapes(tmp_path: Path) -> None:
    report = Report("v\udcff.csv", data={"file": "v\udcff.csv"})
    for kind in ("json", "markdown", "table"):
        emit(report, options(format=kind, output=str(tmp_path / kind)))
        assert "v\\udcff.csv" in (tmp_path / kind).read_text("utf-8")


def test_shared_arguments() -> None:
    parser = build_parser("difficulty", "What.", example="rankgap difficulty v.csv --gold g.csv")
    add_verdict_arguments(parser, gold="required")
    add_output_arguments(parser)
    line = "a.csv b.csv --gold g.csv --by judge format --layout letters --seed 3 --quiet"
    args = parser.parse_args(line.split())
    assert args.verdicts == ["a.csv", "b.csv"]
    assert (args.gold, args.by, args.layout, args.seed, args.quiet) == (
        "g.csv",
        ["judge", "format"],
        "letters",
        3,
        True,
    )
    assert (args.format, args.output, args.invalid, args.drop_exact_copies) == (
        "table",
        None,
        "exclude",
        False,
    )
    assert "example:\n  rankgap difficulty v.csv" in parser.format_help()
    for wrong in ("a.csv", "a.csv --gold g --seed -1", "a.csv --gold g --format xml", "a.csv --gold g --qui"):
        with pytest.raises(SystemExit) as stop:
            parser.parse_args(wrong.split())
        assert stop.value.code == 2


def test_layouts_are_those_of_the_gate() -> None:
    from rank import verdicts

    assert set(command.LAYOUTS) == set(verdicts.LAYOUTS)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_waits_two_seconds_and_cleans_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.5, 1.0, 3.0, 3.1])
    monkeypatch.setattr(command.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert list(progress(range(4), label="resamples")) == [0, 1, 2, 3]
    text = sys.stderr.getvalue()  # type: ignore[union-attr]
    assert text.count("resamples") == 1
    assert "2 of 4 (50%)" in text
    assert text.endswith("\r\x1b[K")


@pytest.mark.parametrize(("stream", "quiet"), [(Terminal(), True), (io.StringIO(), False)])
def test_progress_is_silent_when_quiet_or_without_terminal(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, quiet: bool
) -> None:
    monkeypatch.setattr(command.time, "monotonic", iter(range(0, 1000, 10)).__next__)
    monkeypatch.setattr(sys, "stderr", stream)
    assert list(progress([1, 2, 3], quiet=quiet)) == [1, 2, 3]
    assert stream.getvalue() == ""


def test_columns_choose_headers_and_order(capsys: pytest.CaptureFixture[str]) -> None:
    table = pd.DataFrame({"a": [0.5], "b": ["x"], "hidden": [1]})
    columns = (Column("b", "item"), Column("a", "strength (nats)", "difference", 1))
    text = printed(capsys, Report("", (Section("", table, columns),)))
    assert text.split("\n")[1].split() == ["item", "strength", "(nats)"]
    assert "+0.5" in text
    assert "hidden" not in text


def test_dispatcher(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"rankgap {__version__}\n"
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in COMMANDS)
    assert main([]) == 2
    assert main(["rnak"]) == 2
    assert "rnak" in capsys.readouterr().err


def test_dispatcher_hands_everything_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    class Module:
        @staticmethod
        def main(argv: list[str]) -> int:
            seen.append(argv)
            return 1

    monkeypatch.setattr("analyses.command.import_module", lambda name: Module)
    assert main(["rank", "--help", "--version", "--", "x"]) == 1
    assert seen == [["--help", "--version", "--", "x"]]


def test_help_answers_at_once() -> None:
    """The rule is 0.3 s; the modules loaded are counted, since a busy machine makes a clock lie."""
    code = "import sys; from analyses.command import main; main(['--help']); "
    code += "print(len(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert int(done.stderr) < 250
