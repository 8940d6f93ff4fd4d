"""``python -m analyses``: dispatch, formats, exit codes, quick help, pictures."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analyses.__main__ import COMMANDS, main

ROOT = Path(__file__).resolve().parents[1]
OURS = ["audit", "cells", "gstudy", "proxies", "compare"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Two judges, two formats, five items, both orders, two runs; gold; two summaries."""
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(6)
    items, score = "abcde", (3, 5, 1, 4, 2)
    rows = []
    for judge, skill in (("good", 0.9), ("bad", 0.55)):
        for form in ("plain", "json"):
            for dataset in ("x", "y"):
                for context in range(4):
                    for i, first in enumerate(items):
                        for j, second in enumerate(items):
                            if i == j:
                                continue
                            for run in range(2):
                                near = abs(score[i] - score[j]) == 1
                                right = rng.random() < (0.5 if near else skill)
                                verdict = "first" if right == (score[i] > score[j]) else "second"
                                rows.append((judge, form, dataset, context, first, second, run, verdict))
    columns = ["judge", "format", "dataset", "context", "item_first", "item_second", "run", "verdict"]
    tables = {
        "verdicts": pd.DataFrame(rows, columns=columns),
        "gold": pd.DataFrame({"item": list(items), "score": score}),
        "summary": pd.DataFrame(
            [("m", "p", 90.0, 10.0, 80.0), ("m", "q", 95.0, 20.0, 70.0), ("n", "p", 80.0, 5.0, 60.0), ("n", "q", 99.0, 1.0, 50.5)],
            columns=["judge", "format", "repeatability", "flip_rate", "accuracy"],
        ),
        "points": pd.DataFrame(
            {"judge": list("abcdef"), "dataset": ["x"] * 6, "swap_consistency": [0.1, 0.5, 0.4, 0.8, 0.7, 0.9],
             "spearman": [0.2, 0.3, 0.1, 0.6, 0.7, 0.8]}
        ),
    }  # fmt: skip
    paths = {}
    for name, table in tables.items():
        paths[name] = str(folder / f"{name}.csv")
        table.to_csv(paths[name], index=False)
    return paths


def arguments(command: str, files: dict[str, str]) -> list[str]:
    verdicts, gold = files["verdicts"], ["--gold", files["gold"]]
    return {
        "audit": ["audit", verdicts, *gold, "--resamples", "20", "--seed", "1"],
        "cells": ["cells", files["summary"], "--factors", "judge", "format", "--axis", "format"],
        "gstudy": ["gstudy", verdicts, "--facets", "judge", "format", "--target", "0.2"],
        "proxies": ["proxies", files["points"], "--permutations", "99", "--seed", "1"],
        "compare": [
            "compare",
            verdicts,
            *gold,
            "--judges",
            "good",
            "bad",
            "--resamples",
            "50",
            "--seed",
            "1",
        ],
    }[command]


@pytest.mark.parametrize("command", OURS)
@pytest.mark.parametrize("form", ["table", "csv", "json", "markdown"])
def test_every_command_prints_every_format(
    command: str, form: str, files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments(command, files), "--format", form]) == 0
    out = capsys.readouterr().out
    assert out.strip()
    if form == "json":
        # Strict JSON: no NaN.
        json.loads(out, parse_constant=lambda name: pytest.fail(name))
    if form == "csv":
        assert len(pd.read_csv(io.StringIO(out))) > 0


@pytest.mark.parametrize("command", OURS)
@pytest.mark.parametrize("width", ["80", "120"])
def test_tables_keep_to_the_width(
    command: str,
    width: str,
    files: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    assert main(arguments(command, files)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= int(width)


def load(argv: list[str], capsys: pytest.CaptureFixture[str]) -> dict:  # type: ignore[type-arg]
    assert main([*argv, "--format", "json", "--quiet"]) == 0
    return json.loads(capsys.readouterr().out)


def test_audit_json_is_one_flat_object_per_group(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    document = load([*arguments("audit", files), "--by", "judge", "format", "dataset"], capsys)
    assert len(document["rows"]) == 8
    for row in document["rows"]:
        assert {
            "judge",
            "format",
            "dataset",
            "accuracy",
            "accuracy_low",
            "spearman",
            "trustworthy_rate",
        } <= set(row)
        assert not any(isinstance(value, dict | list) for value in row.values())


def test_same_seed_same_numbers_and_sorting(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [*arguments("audit", files), "--sort", "A"]
    one, two = load(argv, capsys), load(argv, capsys)
    assert one == two
    accuracy = [row["accuracy"] for row in one["rows"]]
    assert accuracy == sorted(accuracy, reverse=True)


def test_cells_of_verdicts_and_of_a_summary(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    document = load(arguments("cells", files), capsys)
    assert document["unit"] == "percent"
    assert document["rows"][0]["trustworthy_rate"] == pytest.approx(0.9 * 0.75)
    assert sum(term["eta_squared"] for term in document["eta_squared"]["terms"]) == pytest.approx(1)
    assert document["dispersion"][0]["dispersion"] == pytest.approx(0.9 * 0.75 - 0.95 * 0.6)
    measured = load(
        [
            "cells",
            files["verdicts"],
            "--gold",
            files["gold"],
            "--role-format",
            "dataset",
            "--resamples",
            "20",
        ],
        capsys,
    )
    assert len(measured["rows"]) == 8
    assert [row["n_formats"] for row in measured["dispersion"]] == [2, 2, 2, 2]
    metric = load(["cells", files["summary"], "--metric", "accuracy"], capsys)
    assert metric["dispersion"][0]["dispersion"] == pytest.approx(0.1)


def test_gstudy_names_the_cheapest_design(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    document = load(arguments("gstudy", files), capsys)
    reaching = [d["n_calls"] for d in document["designs"] if d["generalizability"] >= 0.2]
    assert document["cheapest"]["n_calls"] == min(reaching)
    percent = [c["percent"] for c in document["components"] if c["percent"] is not None]
    assert sum(percent) == pytest.approx(100)
    assert main(arguments("gstudy", files)) == 0
    assert "Cheapest with G coefficient >= 0.2" in capsys.readouterr().out


def test_proxies_of_verdicts_need_gold_and_take_also(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["proxies", files["verdicts"], "--gold", files["gold"], "--by", "judge", "format", "dataset"]
    document = load(
        [*argv, "--also", "accuracy", "--permutations", "99", "--resamples", "20", "--seed", "1"], capsys
    )
    assert document["n_points"] == 8
    assert [row["proxy"] for row in document["rows"]][-1] == "accuracy"
    assert main(argv[:2]) == 1
    assert "--gold" in capsys.readouterr().err


def test_small_n_is_said_in_a_sentence(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments("proxies", files)) == 0
    assert "Few points: with N = 6" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["cells", "{summary}", "--gold", "{gold}"], "--gold is for verdicts"),
        (["cells", "{summary}", "{summary}"], "give one summary file"),
        (["cells", "{gold}"], "a summary table would need the columns repeatability"),
        (["cells", "{summary}", "--role-format", "color"], "no column 'color'"),
        (["cells", "{summary}", "--metric", "beauty"], "metric 'beauty' is unknown"),
        (["audit", "{verdicts}", "--sort", "beauty"], "no such column"),
        (["gstudy", "{verdicts}", "--facets", "judge", "color"], "--facets color"),
        (["compare", "{verdicts}", "--judges", "good", "ugly"], "ugly"),
        (["proxies", "{points}", "--also", "accuracy"], "no such column"),
        (["audit", "no_such_file.csv"], "no_such_file.csv"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_1(
    argv: list[str], words: str, files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([part.format(**files) for part in argv]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith(f"rankgap analyses {argv[0]}: error: ")
    assert words in captured.err


@pytest.mark.parametrize("argv", [[], ["nonsense"], ["audit"], ["cells", "x.csv", "--units", "inches"]])
def test_wrong_usage_is_exit_code_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert "usage" in capsys.readouterr().err


@pytest.mark.parametrize("command", OURS)
def test_help_answers_at_once_with_an_example(command: str) -> None:
    code = [sys.executable, "-m", "analyses", command, "--help"]
    best = 9.0
    for _ in range(3):  # The fastest of three: other processes share the machine.
        start = time.perf_counter()
        run = subprocess.run(code, capture_output=True, text=True, cwd=ROOT, check=True)
        best = min(best, time.perf_counter() - start)
    assert f"python -m analyses {command}" in run.stdout.split("example:")[1]
    assert best < 0.3


def test_overview_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"\n  {name} " in out for name in COMMANDS)


@pytest.mark.parametrize("command", ["audit", "cells", "proxies"])
def test_pictures_are_written_and_other_suffixes_refused(
    command: str, files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "picture.png"
    assert main([*arguments(command, files), "--plot", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert main([*arguments(command, files), "--plot", str(tmp_path / "picture.xyz")]) == 1
    assert "pictures can be written as" in capsys.readouterr().err


def test_verdicts_from_standard_input(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Stdin:
        buffer = io.BytesIO(Path(files["summary"]).read_bytes())

    monkeypatch.setattr(sys, "stdin", Stdin())
    assert len(load(["cells", "-"], capsys)["rows"]) == 4
