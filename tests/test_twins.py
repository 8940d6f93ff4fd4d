"""Twins: equal in everything that C, phi, A and T are made of, read back by the analyses, apart in rho."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from difficulty.__main__ import main as difficulty_main
from rank.exceptions import InputError
from simulate.__main__ import main
from simulate.judges import JudgeSettings
from simulate.sweep import sweep
from simulate.twins import judged_values, make_twins

SMALL = ["--items", "30", "--seed", "1", "--resamples", "20"]
SHARED = ("repeatability", "flip_rate", "accuracy", "trustworthy_rate")


def run(capsys, *arguments):
    code = main(["twins", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("people", [{"n_items": 60}, {"n_items": 60, "pairs_per_item": 12, "human": "votes"}])
def test_twins_are_equal_in_c_phi_a_and_t_and_apart_in_rho(people):
    twins = make_twins(population=people, n_resamples=0, rng=3)
    close, far = twins.rows
    for name in SHARED:
        assert close[name] == far[name], name
    m = twins.population.n_pairs
    assert close["accuracy"] == pytest.approx(0.6, abs=1 / m)
    assert close["trustworthy_rate"] == pytest.approx(
        close["repeatability"] * (close["accuracy"] - close["flip_rate"] / 2), abs=1e-12
    )
    assert close["spearman"] > 0.5 > far["spearman"]


def test_only_the_errors_of_twins_differ():
    """Common random numbers: flips, noise and reference are the same arrays of values."""
    twins = make_twins(population={"n_items": 40}, n_resamples=0, rng=3)
    assert (twins.close.undecided == twins.far.undecided).all()
    assert (twins.close.unstable == twins.far.unstable).all()
    assert twins.close.population is twins.far.population
    changed = (twins.close.wins_i != twins.far.wins_i).any(axis=1)
    assert (changed == (twins.close.errors != twins.far.errors)).all()
    assert changed.any()


@pytest.mark.parametrize("people", [{"n_items": 40}, {"n_items": 40, "pairs_per_item": 8}])
def test_rows_of_twins_are_those_of_the_sweep_with_the_same_seed(people):
    rows = make_twins(-0.7, 0.6, population=people, n_resamples=0, rng=5).rows
    swept = sweep([-0.7, 0.6], population={**people, "human": "deterministic"}, n_resamples=0, rng=5).rows
    for one, other in zip(rows, swept):
        for name in ("spearman", "kendall", *SHARED, "trustworthy_rate_joint"):
            assert one[name] == pytest.approx(other[name], abs=1e-12), name


@pytest.mark.parametrize("people", [{"n_items": 40}, {"n_items": 40, "pairs_per_item": 8}])
def test_the_drawn_ranking_has_the_printed_rho(people):
    """Outside witness: scipy."""
    twins = make_twins(population=people, n_resamples=0, rng=5)
    for answer, row in zip((twins.close, twins.far), twins.rows):
        rho = spearmanr(twins.population.theta, judged_values(answer)).statistic
        assert rho == pytest.approx(row["spearman"], abs=1e-12)


def test_saved_twins_measured_by_difficulty_return_what_was_printed(capsys, tmp_path):
    verdicts, gold, human, picture = (
        str(tmp_path / name) for name in ("verdicts.csv", "gold.csv", "human.csv", "twins.png")
    )
    files = ["--save-verdicts", verdicts, "--save-gold", gold, "--save-human", human, "--plot", picture]
    code, out, _ = run(capsys, *SMALL, *files, "--format", "json")
    assert code == 0
    printed = {row["judge"]: row for row in json.loads(out)["rows"]}
    assert set(printed) == {"twin_close", "twin_far"}
    measured = {}
    for path in (gold, human):
        options = ["--format", "json", "--seed", "1", "--resamples", "20", "--by", "judge"]
        assert difficulty_main([verdicts, "--gold", path, *options]) == 0
        measured[path] = json.loads(capsys.readouterr().out)["groups"]
    for path, groups in measured.items():
        assert {group["judge"] for group in groups} == set(printed)
        for group in groups:
            row = printed[group["judge"]]
            for name in (*SHARED, "trustworthy_rate_joint", "inconsistent_pair_primacy"):
                assert group["overall"][name] == pytest.approx(row[name], abs=1e-12), (path, name)
    for group in measured[gold]:
        assert group["spearman"] == pytest.approx(printed[group["judge"]]["spearman"], abs=1e-12)
    with open(picture, "rb") as stream:
        assert stream.read(4) == b"\x89PNG"


def test_the_sentence_names_the_shared_rates_and_both_rho(capsys):
    code, out, err = run(capsys, "--items", 100, "--seed", 1, "--resamples", 0)
    assert code == 0
    assert err == ""
    text = " ".join(out.split())
    assert (
        "Both judges have C 0.950, phi 0.200, A 0.600 and T 0.475. One recovers the ranking with rho 0.9"
        in text
    )
    assert "the other with rho -0." in text


def test_json_has_settings_rows_and_the_judge_that_was_followed(capsys, tmp_path):
    code, out, _ = run(capsys, *SMALL, "--runs", 1, "--format", "json")
    document = json.loads(out, parse_constant=pytest.fail)
    assert code == 0
    assert document["settings"]["seed"] == 1
    assert (document["settings"]["q_close"], document["settings"]["q_far"]) == (-0.9, 0.9)
    assert document["like"] is None
    for row in document["rows"]:
        assert row["trustworthy_rate"] is None
        assert row["trustworthy_rate_upper"] == pytest.approx(0.5, abs=1 / 435)
        for name in (
            "judge",
            "q",
            "spearman",
            "spearman_low",
            "kendall",
            "accuracy",
            "close",
            "far",
            "triads",
        ):
            assert name in row


def test_twins_of_a_real_judge_have_its_rates_and_its_items(capsys, tmp_path):
    verdicts, gold = str(tmp_path / "verdicts.csv"), str(tmp_path / "gold.csv")
    twins = make_twins(
        judge=JudgeSettings(agreement=0.7, flip_rate=0.3, primacy=0.6), population={"n_items": 25}, n_resamples=0, rng=2
    )  # fmt: skip
    frame = twins.verdicts()
    frame[frame["judge"] == "twin_close"].to_csv(verdicts, index=False)
    twins.close.gold_frame().to_csv(gold, index=False)
    saved = str(tmp_path / "saved.csv")
    code, out, _ = run(
        capsys, "--like", verdicts, "--gold", gold, "--seed", 1, "--resamples", 0, "--format", "json",
        "--save-gold", saved,
    )  # fmt: skip
    assert code == 0
    document = json.loads(out)
    for row in document["rows"]:
        for name in SHARED:
            assert row[name] == pytest.approx(twins.rows[0][name], abs=1e-12), name
    assert document["like"]["spearman"] == pytest.approx(twins.rows[0]["spearman"], abs=1e-12)
    pd.testing.assert_frame_equal(pd.read_csv(saved), pd.read_csv(gold))


def test_twins_of_recurring_items_are_refused_unless_a_list_is_asked_for(capsys, shared_data):
    """Eight systems over 80 prompts are not a list of eight items: the far twin would rank as well by chance."""
    like = ["--like", shared_data / "qlora_vicuna.csv", "--gold", shared_data / "qlora_vicuna_gold.csv"]
    code, out, err = run(capsys, *like, "--seed", 1)
    assert (code, out) == (1, "")
    assert "recur over 80 contexts" in err
    assert "--items N" in err
    code, out, _ = run(capsys, *like, "--seed", 1, "--items", 60, "--resamples", 0, "--format", "json")
    assert code == 0
    assert json.loads(out)["settings"]["n_items"] == 60


def test_pictures_draw_what_the_rows_say():
    from simulate.plotting import plot_twin_errors, plot_twin_ranks, plot_twin_rates

    twins = make_twins(population={"n_items": 40}, n_resamples=0, rng=3)
    lines = plot_twin_errors(twins).get_lines()
    m = twins.population.n_pairs
    for line, answer in zip(lines, (twins.close, twins.far)):
        assert np.sum(line.get_ydata()) / 10 == pytest.approx(answer.errors.sum() / m, abs=0.01)
    labels = plot_twin_ranks(twins).get_legend_handles_labels()[1]
    assert any(f"rho = {twins.rows[1]['spearman']:.2f}" in label for label in labels)
    heights = [bar.get_height() for bar in plot_twin_rates(twins).patches]
    assert heights[:4] == heights[5:9]
    assert (heights[4], heights[9]) == tuple(row["spearman"] for row in twins.rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--q-close", "0.5", "--q-far", "0.5"], "q_close must be below q_far"),
        (["--judge", "blind-zone"], "blind-zone judge is random"),
        (["--agreement", "0.95"], "above the ceiling"),
        (["--q-far", "2"], "between -1"),
        (["--like", "missing.csv"], "--like needs --gold"),
        (["--gold", "gold.csv"], "belongs to --like"),
        (["--like", "missing.csv", "--gold", "gold.csv"], "missing.csv"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_one(capsys, arguments, message):
    code, out, err = run(capsys, *arguments, *SMALL)
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert message in err


def test_a_judge_without_errors_has_no_twin():
    from simulate.twins_command import describe_twins

    perfect = JudgeSettings(agreement=1.0, flip_rate=0.0)
    (sentence,) = describe_twins(make_twins(judge=perfect, population={"n_items": 20}, n_resamples=0, rng=1))
    assert "they are the same judge" in sentence
    with pytest.raises(InputError, match="blind-zone"):
        make_twins(judge=JudgeSettings(judge="blind-zone"))
