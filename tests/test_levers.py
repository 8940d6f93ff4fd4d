"""Levers against identities, brute force and judges with a known defect."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import choix
import numpy as np
import pandas as pd
import pytest

from analyses.__main__ import main
from analyses.levers import LeverStudy, describe_levers, mark_wrong, pull_levers
from difficulty.reliability import STATISTICS, pair_statistics
from rank.gold import Gold, check_gold
from rank.readers import read_gold, read_verdicts
from rank.recovery import RecoveryProblem, half_wins, recover_ranking, resample_clusters, spearman
from rank.resample import seed_of
from rank.tally import Tally, tally_verdicts
from rank.verdicts import check_verdicts
from simulate.judges import JudgeSettings, SimulatedJudge, simulate_judge
from simulate.population import draw_population
from tests.strategies import rows_of


def simulate(n: int, q: float, seed: int, *, flip_q: float = 0.0, **asked: float) -> SimulatedJudge:
    people = draw_population(n, human="deterministic", rng=seed)
    settings = {"runs": 1, "repeatability": 1.0, "agreement": 0.75, "flip_q": flip_q} | asked
    return simulate_judge(people, q, settings=JudgeSettings(**settings), rng=seed)  # type: ignore[arg-type]


def lever(study: LeverStudy, bucket: str, kind: str) -> pd.Series:
    table = study.levers
    return table[(table["bucket"] == bucket) & (table["lever"] == kind)].iloc[0]


def rewritten(tally: Tally, gold: Gold, rows: np.ndarray, *, drop: bool = False) -> Tally:
    """The tally with the verdicts of some rows rewritten call by call."""
    counts = tally.counts.copy()
    winner = gold.align(tally).winner
    for row in np.flatnonzero(rows):
        valid = counts[row].sum(axis=1) - counts[row, :, 3]
        counts[row, :, [0, 1, 2, 4]] = 0
        if not drop:
            counts[row, :, winner[row]] = valid
    return Tally(**{**vars(tally), "counts": counts})


def test_fixing_everything_gives_rho_one_on_a_complete_design() -> None:
    judge = simulate(25, 0.5, 1)
    study = pull_levers(judge.to_tally(), judge.to_gold(), n_resamples=0)
    assert study.spearman < 0.9
    assert lever(study, "all", "both").spearman_after == pytest.approx(1.0, abs=1e-12)


def test_levers_without_anything_to_change_change_nothing() -> None:
    judge = simulate(20, -1.0, 2, agreement=0.95, flip_rate=0.0)
    study = pull_levers(judge.to_tally(), judge.to_gold(), n_resamples=50, rng=1)
    for bucket, kind in (("far", "errors"), ("far", "flips"), ("close", "flips"), ("all", "flips")):
        row = lever(study, bucket, kind)
        assert row.n_pairs == row.n_verdicts == 0
        assert row.spearman_change == row.spearman_change_low == row.spearman_change_high == 0
        assert np.isnan(row.change_per_100)


def test_perfect_judge_has_no_lever() -> None:
    judge = simulate(12, 0.0, 2, agreement=1.0, flip_rate=0.0)
    study = pull_levers(judge.to_tally(), judge.to_gold(), n_resamples=20, rng=1)
    assert study.spearman == 1.0
    assert study.best is None
    assert "it is 1 already" in describe_levers(study)


def test_marks_are_those_of_the_flip_budget_and_sum_up() -> None:
    judge = simulate(20, 0.2, 3)
    tally, gold = judge.to_tally(), judge.to_gold()
    kinds = mark_wrong(tally, gold)
    stats = pair_statistics(tally.counts, gold.align(tally))
    for kind, name in (("flip", "n_flips"), ("error", "n_wrong_decisive")):
        np.testing.assert_array_equal(kinds == kind, stats[:, STATISTICS.index(name)] > 0)
    study = pull_levers(tally, gold, n_resamples=0)
    for kind in ("flips", "errors", "both"):
        rows = study.levers[study.levers["lever"] == kind]
        assert rows["n_pairs"].iloc[:-1].sum() == rows["n_pairs"].iloc[-1]
        assert rows["n_verdicts"].iloc[:-1].sum() == rows["n_verdicts"].iloc[-1]
    assert lever(study, "all", "errors").n_verdicts == 2 * judge.errors.sum()
    assert lever(study, "all", "flips").n_verdicts == judge.undecided.sum()


def test_one_order_only_has_errors_and_no_flips() -> None:
    judge = simulate(12, 0.0, 4)
    tally = judge.to_tally()
    counts = tally.counts.copy()
    counts[:, 1] = 0
    kinds = mark_wrong(Tally(**{**vars(tally), "counts": counts}), judge.to_gold())
    side = judge.to_gold().align(tally).winner
    np.testing.assert_array_equal(kinds == "error", counts[np.arange(len(side)), 0, side] == 0)
    assert not (kinds == "flip").any()


@pytest.mark.parametrize("table", ["qlora_vicuna", "smollm2_clear", "summeval_coherence"])
def test_every_lever_equals_brute_force_on_real_tables(shared_data: Path, table: str) -> None:
    tally = tally_verdicts(read_verdicts(shared_data / f"{table}.csv")).select(0)
    gold = read_gold(shared_data / f"{table}_gold.csv")
    study = pull_levers(tally, gold, n_resamples=0)
    kinds = study.kinds
    gap = gold.align(tally).gap
    scores = gold.item_scores(tally)
    assert study.spearman == pytest.approx(recover_ranking(tally, gold, n_resamples=0).spearman, abs=1e-9)
    for bucket, kind in (
        ("close", "flips"),
        ("far", "errors"),
        ("far", "both"),
        ("far", "drop"),
        ("2", "drop"),
    ):
        row = lever(study, bucket, kind)
        inside = (gap >= row.gap_low) & (gap <= row.gap_high)
        marks = {
            "flips": ["flip"],
            "errors": ["error"],
            "both": ["flip", "error"],
            "drop": ["flip", "error", ""],
        }
        rows = inside & np.isin(kinds, marks[kind])
        assert rows.sum() == row.n_pairs
        changed = rewritten(tally, gold, rows, drop=kind == "drop")
        wins = half_wins(changed.counts)
        cells = np.zeros((len(tally.items), len(tally.items)))
        np.add.at(cells, (tally.item_i, tally.item_j), wins[:, 0])
        np.add.at(cells, (tally.item_j, tally.item_i), wins[:, 1])
        met = (cells + cells.T) > 0
        known = ~np.isnan(scores)
        if np.isnan(row.spearman_after):
            assert not np.linalg.matrix_power(met + np.eye(len(met)), len(met)).all()
        else:
            # choix is the witness of the ranking; a trace of pseudo-wins where an item never loses.
            extra = 0.0 if table == "summeval_coherence" or kind == "drop" else 1e-4
            balanced = extra and len(set((cells + cells.T)[met])) == 1
            strength = (
                cells.sum(axis=1)
                if balanced
                else choix.ilsr_pairwise_dense(cells + extra * met, max_iter=20_000)
            )
            assert row.spearman_after == pytest.approx(spearman(strength[known], scores[known]), abs=1e-3)


def test_context_level_equals_brute_force(shared_data: Path) -> None:
    tally = tally_verdicts(read_verdicts(shared_data / "summeval_coherence.csv"))
    tally = tally.rows(tally.context < 12)
    gold = read_gold(shared_data / "summeval_coherence_gold.csv")
    study = pull_levers(tally, gold, recovery_level="context", alpha=0.5, n_resamples=100, rng=1)
    assert study.level == "context"
    rows = (study.kinds == "flip") & (gold.align(tally).gap >= lever(study, "far", "flips").gap_low)
    after = recover_ranking(rewritten(tally, gold, rows), gold, level="context", alpha=0.5, n_resamples=0)
    found = lever(study, "far", "flips")
    assert found.spearman_after == pytest.approx(after.spearman, abs=1e-9)
    assert found.spearman_change_low <= found.spearman_change <= found.spearman_change_high


def test_not_judging_what_connects_the_items_is_nan_with_a_reason(shared_data: Path) -> None:
    tally = tally_verdicts(read_verdicts(shared_data / "qlora_vicuna.csv"))
    study = pull_levers(tally, read_gold(shared_data / "qlora_vicuna_gold.csv"), n_resamples=20, rng=1)
    row = lever(study, "far", "drop")  # all pairs with bard or gpt4 at the ends are far
    if np.isnan(row.spearman_after):
        assert "no comparison connects" in row.reason
    islands = tally.rows(np.isin(tally.item_i + 10 * tally.item_j, [10, 32]))  # pairs (0, 1) and (2, 3)
    study = pull_levers(islands, read_gold(shared_data / "qlora_vicuna_gold.csv"), n_resamples=20, rng=1)
    assert np.isnan(study.spearman)
    assert study.reason
    assert "no levers, because" in describe_levers(study)


def test_lever_that_pays_most_is_the_defect_that_was_built_in() -> None:
    judge = simulate(60, 1.0, 5, flip_q=-1.0, agreement=0.75)
    study = pull_levers(judge.to_tally(), judge.to_gold(), n_resamples=400, rng=1)
    assert study.best is not None
    best = study.levers.iloc[study.best]
    assert (best.bucket, best.lever) == ("far", "errors")
    # Not judging the far pairs would have done as well: in no resample does a lever elsewhere come near.
    assert best.share_best > 0.5
    single = study.levers[study.levers["bucket"] != "all"]
    assert (single.loc[single["bucket"] != "far", "share_best"].fillna(0) == 0).all()
    assert best.share_best_per_verdict == 1.0
    other = study.levers[(study.levers["bucket"] != "far") & (study.levers["bucket"] != "all")]
    assert other["spearman_change"].max() < 0.1 * best.spearman_change
    sentence = describe_levers(study)
    assert "fixing the wrong decisive verdicts on far pairs would pay most" in sentence
    assert "given these verdicts and this gold" in sentence


def test_interval_is_that_of_paired_resamples_ranked_by_the_recovery() -> None:
    judge = simulate(15, 0.3, 6)
    tally, gold = judge.to_tally(), judge.to_gold()
    study = pull_levers(tally, gold, alpha=0.5, n_resamples=200, rng=3)
    row = lever(study, "far", "both")
    problem = RecoveryProblem(tally, gold, alpha=0.5)
    # The same seed draws the same clusters.
    weights = resample_clusters(problem.cluster_key(), 200, np.random.default_rng(seed_of(3)))
    before = problem.resample(weights)[0]
    rows = (study.kinds != "") & (gold.align(tally).gap >= row.gap_low)
    problem.wins = half_wins(rewritten(tally, gold, rows).counts)
    change = problem.resample(weights)[0] - before
    assert row.spearman_change_low == pytest.approx(np.quantile(change, 0.025), abs=1e-9)
    assert row.spearman_change_high == pytest.approx(np.quantile(change, 0.975), abs=1e-9)
    assert study.spearman_low == pytest.approx(np.quantile(before, 0.025), abs=1e-9)
    pd.testing.assert_frame_equal(
        study.levers, pull_levers(tally, gold, alpha=0.5, n_resamples=200, rng=3).levers
    )


@pytest.mark.slow
def test_interval_covers_the_change_on_a_full_redraw_of_the_judge() -> None:
    """Judges of one design over and over: the interval from one covers the mean change over all of them."""
    people = draw_population(16, human="deterministic", rng=4)
    asked = JudgeSettings(runs=1, repeatability=1.0, agreement=0.7, flip_q=0.0)
    changes, bounds = [], []
    for seed in range(60):
        judge = simulate_judge(people, 0.2, settings=asked, rng=seed)
        study = pull_levers(judge.to_tally(), judge.to_gold(), n_resamples=100 if seed < 40 else 0, rng=1)
        row = lever(study, "far", "both")
        changes.append(row.spearman_change)
        if seed < 40:
            bounds.append((row.spearman_change_low, row.spearman_change_high))
    low, high = np.array(bounds).T
    covered = ((low <= np.mean(changes)) & (np.mean(changes) <= high)).mean()
    assert covered > 0.85


@pytest.mark.parametrize("form", ["table", "json", "csv", "markdown"])
def test_command_in_every_format(tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    judge = simulate(14, 0.5, 7)
    judge.to_frame().to_csv(tmp_path / "v.csv", index=False)
    judge.gold_frame().to_csv(tmp_path / "g.csv", index=False)
    code = main(
        [
            "levers",
            str(tmp_path / "v.csv"),
            "--gold",
            str(tmp_path / "g.csv"),
            "--format",
            form,
            "--seed",
            "1",
        ]
        + ["--resamples", "30", "--check-first", str(tmp_path / "first.csv"), "--top", "7"]
    )
    out, err = capsys.readouterr()
    assert code == 0
    first = pd.read_csv(tmp_path / "first.csv")
    assert len(first) == 7
    assert first["spearman_change"].is_monotonic_decreasing
    assert set(first["kind"]) <= {"flip", "error"}
    if form == "json":
        data = json.loads(out)
        group = data["groups"][0]
        assert len(group["levers"]) == 19
        assert len(group["check_first"]) == 7
        assert group["best"]["spearman_change"] == max(
            row["spearman_change"]
            for row in group["levers"]
            if row["lever"] != "both" and row["bucket"] != "all"
        )
        assert any("conditional on the verdicts observed" in note for note in data["notes"])
    elif form == "csv":
        from io import StringIO

        assert len(pd.read_csv(StringIO(out))) == 19
        assert "given these verdicts" in err
    else:
        assert "given these verdicts" in out
        assert "Check these first" in out


def test_command_refuses_pair_gold_and_odd_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judge = simulate(8, 0.5, 7)
    judge.to_frame().to_csv(tmp_path / "v.csv", index=False)
    judge.human_frame().to_csv(tmp_path / "pairs.csv", index=False)
    judge.gold_frame().to_csv(tmp_path / "g.csv", index=False)
    assert main(["levers", str(tmp_path / "v.csv"), "--gold", str(tmp_path / "pairs.csv")]) == 1
    assert "needs gold scores of items" in capsys.readouterr().err
    assert main(["levers", str(tmp_path / "v.csv"), "--gold", str(tmp_path / "g.csv"), "--top", "0"]) == 1
    assert "--top must be at least 1" in capsys.readouterr().err


def test_constant_gaps_leave_the_levers_on_all_pairs() -> None:
    frame = [("a", "b", "second"), ("b", "a", "first"), ("a", "b", "first"), ("b", "a", "second")]
    rows = pd.DataFrame(frame, columns=["item_first", "item_second", "verdict"]).assign(run=[0, 0, 1, 1])
    from rank.verdicts import check_verdicts

    tally = tally_verdicts(check_verdicts(rows))
    gold = check_gold(pd.DataFrame({"item": ["a", "b"], "score": [1.0, 0.0]}))
    study = pull_levers(tally, gold, n_resamples=10, rng=1)
    assert any("no buckets" in note for note in study.notes)
    assert RecoveryProblem(tally, gold).n_clusters == 1


def levers_of(judge: SimulatedJudge) -> LeverStudy:
    return pull_levers(judge.to_tally(), judge.to_gold(), n_resamples=10, rng=1)


def test_levers_that_tie_are_counted() -> None:
    study = levers_of(simulate(14, 0.5, 7))
    assert study.best is not None
    assert "would pay most" in describe_levers(study)
    table = study.levers.copy()
    usable = (table["bucket"] != "all") & table["lever"].isin(["flips", "errors"]) & (table["n_pairs"] > 0)
    usable[study.best] = False
    others = np.flatnonzero(usable)[:2]
    table.loc[others, "spearman_change"] = table["spearman_change"].iloc[study.best]
    tied = describe_levers(replace(study, levers=table))
    assert "would pay as much as 2 other levers (none pays more)" in tied
    # Levers on all pairs, and both at once, contain the others and are no rivals.
    table = study.levers.copy()
    table.loc[table["lever"] == "both", "spearman_change"] = table["spearman_change"].iloc[study.best]
    assert "would pay most" in describe_levers(replace(study, levers=table))


def test_why_a_right_verdict_can_lower_rho_is_said_where_it_does(shared_data: Path) -> None:
    tally = tally_verdicts(read_verdicts(shared_data / "summeval_coherence.csv"))
    study = pull_levers(tally, read_gold(shared_data / "summeval_coherence_gold.csv"), n_resamples=10, rng=1)
    assert lever(study, "close", "errors").spearman_change < 0
    assert any(note.startswith("setting verdicts right can lower rho") for note in study.notes)
    perfect = levers_of(simulate(12, 0.0, 2, agreement=1.0, flip_rate=0.0))
    assert not any(note.startswith("setting verdicts right can lower rho") for note in perfect.notes)


def test_pairs_that_change_nothing_are_not_listed_for_checking(
    shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gold = str(shared_data / "summeval_coherence_gold.csv")
    argv = ["levers", str(shared_data / "summeval_coherence.csv"), "--gold", gold, "--resamples", "10"]
    assert main(argv) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "no single one of the 532 wrong or flipped pairs would raise rho" in out
    assert "0.0000" not in out.split("Check these first")[1]


def test_a_group_without_a_valid_verdict_has_no_levers_and_the_other_groups_keep_theirs() -> None:
    frame = pd.concat(
        [rows_of("a>b, b>a, a>c, c<a, b>c, c<b", judge="good"), rows_of("a>b, b>a", judge="mute")]
    )
    frame.loc[frame["judge"] == "mute", "verdict"] = ""
    tally = tally_verdicts(check_verdicts(frame))
    gold = check_gold(pd.DataFrame({"item": list("abc"), "score": [3.0, 1.0, 0.0]}))
    studies = [pull_levers(tally.select(k), gold, n_resamples=20, rng=1) for k in range(2)]
    assert np.isfinite(studies[0].spearman)
    assert np.isnan(studies[1].spearman)
    assert studies[1].reason
