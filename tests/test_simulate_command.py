"""The simulate command: what it prints, what it writes, what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from difficulty.__main__ import main as difficulty_main
from rank.exceptions import InputError
from simulate.__main__ import main

SMALL = ["--items", "30", "--seed", "1", "--resamples", "20"]


def run(capsys, *arguments):
    code = main([*map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_one_judge_says_what_it_recovers(capsys):
    code, out, err = run(capsys, "--q", 0.5, *SMALL)
    assert code == 0
    assert err == ""
    assert "30 items, 435 pairs" in out
    assert "T 0.475" in out or "T 0.474" in out or "T 0.476" in out
    assert "Reference: the ranking from one human vote per pair reaches rho" in out
    assert "seed 1" in out


def test_several_values_of_q_say_that_the_trustworthy_rate_stands_still(capsys):
    code, out, _ = run(capsys, "--q", -1, 0, 1, "--items", 100, "--seed", 1, "--reps", 3)
    assert code == 0
    assert "T is 0.475 for every q, while rho falls from 0.9" in out
    assert "T cannot see where errors fall" in out


def test_json_has_the_specified_fields_and_no_nan(capsys):
    code, out, _ = run(capsys, "--q", 0.5, "--runs", 1, *SMALL, "--format", "json")
    document = json.loads(out, parse_constant=pytest.fail)
    assert code == 0
    assert document["settings"]["seed"] == 1
    assert document["settings"]["repeatability"] == 1.0
    (row,) = document["rows"]
    assert row["trustworthy_rate"] is None
    assert row["trustworthy_rate_upper"] == pytest.approx(0.5, abs=1 / 435)
    for name in (
        "q",
        "spearman",
        "spearman_low",
        "spearman_high",
        "kendall",
        "accuracy",
        "repeatability",
        "flip_rate",
    ):
        assert name in row
    for name in ("trustworthy_rate_joint", "accuracy_latent", "human_spearman", "close", "far", "triads"):
        assert name in row
    assert any("repeatability is 1" in note for note in document["notes"])


def test_csv_has_one_row_per_q(capsys, tmp_path):
    path = tmp_path / "rows.csv"
    assert run(capsys, "--q", 0, 0.5, *SMALL, "--format", "csv", "--output", path, "--quiet")[0] == 0
    frame = pd.read_csv(path)
    assert frame["q"].tolist() == [0.0, 0.5]
    assert frame["close_swap_consistency"].between(0, 1).all()


def test_written_judge_measured_by_difficulty_returns_what_went_in(capsys, tmp_path):
    verdicts, gold, human = (str(tmp_path / f"{name}.csv") for name in ("verdicts", "gold", "human"))
    files = ["--save-verdicts", verdicts, "--save-gold", gold, "--save-human", human]
    code, out, _ = run(capsys, "--q", -0.5, 0.5, *SMALL, *files, "--format", "json")
    assert code == 0
    rows = json.loads(out)["rows"]
    measured = {}
    for name in (gold, human):
        assert (
            difficulty_main(
                [verdicts, "--gold", name, "--format", "json", "--seed", "1", "--resamples", "20"]
            )
            == 0
        )
        measured[name] = json.loads(capsys.readouterr().out)["groups"]
    for row in rows:
        label = f"q={row['q']:g}"
        (against_gold,) = [group for group in measured[gold] if group["judge"] == label]
        (against_human,) = [group for group in measured[human] if group["judge"] == label]
        assert against_gold["spearman"] == pytest.approx(row["spearman"], abs=1e-12)
        assert against_gold["overall"]["accuracy"] == pytest.approx(row["accuracy_latent"], abs=1e-12)
        for name in ("accuracy", "repeatability", "flip_rate", "trustworthy_rate", "trustworthy_rate_joint"):
            assert against_human["overall"][name] == pytest.approx(row[name], abs=1e-12)
        assert against_gold["triads"]["n_cyclic"] == row["triads"]["n_cyclic"]
        assert against_human["buckets"][0]["accuracy"] == pytest.approx(row["close"]["accuracy"], abs=1e-12)
        assert against_human["buckets"][-1]["accuracy"] == pytest.approx(row["far"]["accuracy"], abs=1e-12)


def cells_of(out, name):
    """Cell of the first row of the first table under a header."""
    lines = out.splitlines()
    at = next(k for k, line in enumerate(lines) if line.split()[:2] == ["q", "rho"])
    header = lines[at].replace("A theta", "A_theta").replace("T joint", "T_joint").split()
    row = [cell for cell in lines[at + 2].replace(", ", ",").split() if not cell.startswith("[")]
    return dict(zip(header, row, strict=True))[name]


def test_accuracy_against_theta_stands_beside_that_against_the_votes(capsys, tmp_path):
    """What python -m difficulty prints for the saved files is in the table that announced them, and a note says where."""
    verdicts, gold, human = (str(tmp_path / f"{name}.csv") for name in ("verdicts", "gold", "human"))
    files = ["--save-verdicts", verdicts, "--save-gold", gold, "--save-human", human]
    code, out, _ = run(capsys, "--q", 0.5, *SMALL, *files)
    assert code == 0
    shown = {name: float(cells_of(out, name)) for name in ("A", "A_theta", "T")}
    assert abs(shown["A"] - shown["A_theta"]) > 0.01
    for name, column in ((gold, "A_theta"), (human, "A")):
        assert difficulty_main([verdicts, "--gold", name, "--format", "json", "--resamples", "0"]) == 0
        overall = json.loads(capsys.readouterr().out)["groups"][0]["overall"]
        assert overall["accuracy"] == pytest.approx(shown[column], abs=5e-4)
    text = " ".join(out.split())
    assert "show A theta (with the T that belongs to it) against the gold of --save-gold" in text
    assert "A and T of this table against that of --save-human" in text
    certain = run(capsys, "--q", 0.5, *SMALL, "--human", "deterministic")[1]
    assert "A theta" not in certain
    assert "--save-human" not in certain


@pytest.mark.parametrize(
    ("arguments", "scale"),
    [
        ([], "scheme weight: -1 close pairs, 0 anywhere, 1 far pairs"),
        (["--scheme", "mixture"], "scheme mixture: -1 closer half, 0 anywhere, 1 farther half"),
        (
            ["--preset", "figure1", "--reps", 2, "--pairs-per-item", 10],
            "scheme spread: 0 near ties, 1 anywhere",
        ),
    ],
)
def test_caption_says_which_scale_of_q_is_in_force(capsys, arguments, scale):
    code, out, _ = run(capsys, "--q", 0.5, *SMALL, *arguments)
    text = " ".join(out.split())
    assert code == 0
    assert scale in text
    assert ("preset figure1: scheme spread, 2 repetition(s)" in text) == ("--preset" in arguments)


def test_help_says_what_a_preset_changes(capsys):
    text = " ".join(run(capsys, "--help")[1].split())
    assert "with --scheme spread, which the presets set, q = 0 is near ties only" in text
    assert "--scheme spread and --reps 200" in text
    assert "with a preset 200" in text


def test_presets_can_be_varied(capsys):
    arguments = [
        "--preset",
        "figure1",
        "--reps",
        1,
        "--q",
        0.4,
        "--seed",
        1,
        "--format",
        "json",
        "--resamples",
        0,
    ]
    settings = json.loads(run(capsys, *arguments)[1])["settings"]
    assert (settings["n_items"], settings["n_pairs"], settings["scheme"], settings["gold"]) == (
        200,
        4000,
        "spread",
        "human",
    )
    varied = ["--strengths", "uniform", "--human", "deterministic", "--agreement", 0.8, "--gold", "latent"]
    settings = json.loads(run(capsys, *arguments, *varied, "--items", 50, "--pairs-per-item", 10)[1])[
        "settings"
    ]
    assert (settings["strengths"], settings["human"], settings["agreement"]) == (
        "uniform",
        "deterministic",
        0.8,
    )
    assert (settings["gold"], settings["n_pairs"], settings["design"]) == ("latent", 250, "regular")


def test_strengths_can_come_from_a_gold_file(capsys, tmp_path):
    path = tmp_path / "gold.csv"
    pd.DataFrame({"item": [f"text {k}" for k in range(20)], "score": np.linspace(-2, 2, 20)}).to_csv(
        path, index=False
    )
    saved = tmp_path / "saved.csv"
    code, out, _ = run(
        capsys, "--strengths-from", path, "--spread", 2, "--seed", 1, "--resamples", 0, "--save-gold", saved
    )
    assert code == 0
    assert "20 items" in out
    frame = pd.read_csv(saved)
    assert sorted(frame["item"]) == sorted(f"text {k}" for k in range(20))
    assert frame["score"].max() == pytest.approx(4.0)


def test_a_picture_is_written(capsys, tmp_path):
    path = tmp_path / "sweep.png"
    assert run(capsys, "--q", 0, 0.5, *SMALL, "--plot", path)[0] == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    code, _, err = run(capsys, "--q", 0, *SMALL, "--plot", tmp_path / "sweep.nothing")
    assert code == 1
    assert "pictures can be written as" in err


def test_picture_draws_rho_and_a_flat_trustworthy_rate():
    from simulate.plotting import plot_sweep
    from simulate.sweep import sweep

    rows = sweep([1.0, -1.0, 0.0], n_reps=2, population={"n_items": 30}, rng=1).rows
    ax = plot_sweep(rows)
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert lines["rho of the judge"].get_xdata().tolist() == [-1.0, 0.0, 1.0]
    assert lines["rho of the judge"].get_ydata()[0] == rows[1]["spearman"]
    assert np.ptp(lines["T"].get_ydata()) < 1e-12
    with pytest.raises(InputError, match="no row"):
        plot_sweep([])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--agreement", "0.95"], "above the ceiling 1 - flip_rate/2 = 0.9"),
        (["--q", "2"], "between -1"),
        (["--items", "1"], "at least 2"),
        (["--runs", "2", "--repeatability", "0.9"], "at least 3 runs"),
        (["--items", "20", "--pairs-per-item", "20"], "between 1 and 19"),
        (["--strengths-from", "missing.csv"], "missing.csv"),
        (["--jobs", "0"], "jobs must be"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_one(capsys, arguments, message):
    code, out, err = run(capsys, *arguments, "--seed", 1)
    assert code == 1
    assert out == ""
    assert err.count("\n") == 1
    assert message in err


def test_a_judge_without_a_ranking_says_so(capsys):
    always_first = ["--agreement", 0.5, "--flip-rate", 1, "--primacy", 1, "--repeatability", 1]
    code, out, _ = run(capsys, *always_first, *SMALL)
    assert code == 0
    assert "rho is undefined" in out


def test_help_imports_neither_numpy_nor_pandas():
    code = "import sys; from simulate.__main__ import main; main(['--help']); print({'numpy', 'pandas'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.rstrip().endswith("set()")
    assert "python -m simulate --q 0.5" in result.stdout
