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


# --- what new users stumbled over -----------------------------------------------------------------------------


def said(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """What was printed, in one line each, so that line breaks do not matter."""
    captured = capsys.readouterr()
    return " ".join(captured.out.split()), " ".join(captured.err.split())


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["cells", "{verdicts}"], "nothing is drawn: --plot draws the dispersion, which needs a value"),
        (["audit", "{verdicts}"], "there is no picture of T against rho"),
    ],
)
def test_a_picture_that_cannot_be_drawn_does_not_cost_the_report(
    argv: list[str],
    words: str,
    files: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    picture = tmp_path / "picture.png"
    options = ["--resamples", "10", "--plot", str(picture)]
    assert main([*(part.format(**files) for part in argv), *options]) == 1
    out, err = said(capsys)
    assert "row(s) read" in out
    assert words in err
    assert not picture.exists()


def test_gstudy_warns_of_confounded_facets_and_keeps_their_columns_to_one(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pd.read_csv(files["verdicts"])
    frame = frame[(frame["judge"] == "good") | (frame["format"] == "json")]
    frame.loc[frame["judge"] == "good", "format"] = "only"
    frame = frame.drop_duplicates(["judge", "dataset", "context", "item_first", "item_second", "run"])
    third = frame[frame["judge"] == "bad"].assign(judge="third")
    path = tmp_path / "nested.csv"
    pd.concat([frame, third]).to_csv(path, index=False)
    assert main(["gstudy", str(path), "--formats", "1", "2"]) == 0
    out, _ = said(capsys)
    assert "Take care: format cannot be told apart from another facet" in out
    assert "CONFOUNDED: judge and format fall into 2 sets that never cross" in out
    assert "G coefficient" in out
    assert "direction-free" in out
    document = load(["gstudy", str(path), "--formats", "1", "2"], capsys)
    assert document["confounded"] == ["format"]
    assert {design["n_formats"] for design in document["designs"]} == {1}


def test_compare_skips_cells_without_shared_pairs_and_counts_them(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pd.read_csv(files["verdicts"])
    apart = (frame["format"] == "json") & (frame["dataset"] == "y")
    apart &= (frame["judge"] == "good") == (frame["context"] < 2)
    path = tmp_path / "apart.csv"
    frame[~apart].to_csv(path, index=False)
    argv = ["compare", str(path), "--gold", files["gold"], "--resamples", "10"]
    document = load(argv, capsys)
    assert (len(document["comparisons"]), document["n_skipped"]) == (3, 1)
    assert main(argv) == 0
    assert "1 of 4 comparisons are left out, such as:" in said(capsys)[0]
    only = frame[~apart & (frame["format"] == "json") & (frame["dataset"] == "y")]
    only.to_csv(path, index=False)
    assert main(argv) == 1
    assert "nothing can be compared" in said(capsys)[1]


def test_cells_of_few_pairs_are_shown_but_enter_no_dispersion(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pd.read_csv(files["verdicts"])
    frame = frame[(frame["dataset"] == "x") & (frame["context"] == 0)]
    few = frame[
        (frame["format"] == "json")
        & frame["item_first"].isin(["a", "b"])
        & frame["item_second"].isin(["a", "b"])
    ]
    few = few.assign(format="few")
    path = tmp_path / "few.csv"
    pd.concat([frame, few]).to_csv(path, index=False)
    argv = ["cells", str(path), "--gold", files["gold"], "--resamples", "10", "--factors", "judge", "format"]
    document = load(argv, capsys)
    assert {row["n_formats"] for row in document["dispersion"]} == {2}
    assert {row["n_pairs_swapped_gold"] for row in document["rows"]} == {1, 10}
    assert (document["eta_squared"]["n_cells"], document["eta_squared"]["n_thin"]) == (4, 2)
    assert main(argv) == 0
    out, _ = said(capsys)
    assert "2 of 6 cells rest on fewer than 10 pairs and are left out of dispersion and eta^2" in out
    assert "pairs: judged in both orders, with gold" in out
    every = load([*argv, "--min-pairs", "1"], capsys)
    assert {row["n_formats"] for row in every["dispersion"]} == {3}
    assert every["eta_squared"]["n_thin"] == 0
    assert main([*argv, "--min-pairs", "11"]) == 1
    assert "lower --min-pairs" in said(capsys)[1]


def test_an_axis_without_any_t_gives_the_reason_and_no_empty_table(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pd.read_csv(files["verdicts"])
    path = tmp_path / "once.csv"
    frame[frame["run"] == 0].to_csv(path, index=False)
    argv = ["cells", str(path), "--resamples", "10", "--axis", "format"]
    assert main([*argv, "--gold", files["gold"]]) == 0
    out, _ = said(capsys)
    assert "unknown, because there is no T: needs repeated calls" in out
    assert "through C" not in out
    assert "A - phi q_u mean [IQR]" in out
    assert "T mean [IQR]" not in out
    assert main(argv) == 0
    out, _ = said(capsys)
    assert "no C at any level: no call was repeated" in out
    assert "mean [IQR]" not in out


def test_the_picture_of_the_dispersion_keeps_its_names_inside() -> None:
    from analyses.plotting import plot_dispersion

    dispersion = pd.DataFrame(
        {"judge": ["a judge with a long name", "b"], "n_formats": 2, "dispersion": [1.0, 0.5], "min": [0.0, 0.1],
         "max": [1.0, 0.6], "format_min": ["Swap_CoT:stage0_long", "p"], "format_max": ["Metrics_Reference", "q"]}
    )  # fmt: skip
    ax = plot_dispersion(dispersion, metric="trustworthy_rate_upper")
    assert ax.get_title() == "T at most when only the format changes"
    figure = ax.get_figure()
    figure.canvas.draw()  # type: ignore[union-attr]
    inside = ax.get_window_extent()
    for text in ax.texts:
        box = text.get_window_extent()
        assert inside.x0 <= box.x0
        assert box.x1 <= inside.x1
