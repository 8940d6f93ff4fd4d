"""Gaps from votes and from the judge's own ranking: counts by hand, simulation, and the commands."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from difficulty.__main__ import main
from difficulty.human_votes import compare_gaps, describe_votes, own_ranking_to_gold, votes_to_gold
from difficulty.study import StudyOptions, study_group
from rank.bradley_terry import fit_bradley_terry
from rank.exceptions import InputError, NoMaximumError
from rank.readers import read_gold, read_verdicts
from rank.recovery import spearman
from rank.tally import Tally, tally_verdicts
from rank.verdicts import check_verdicts
from simulate.judges import JudgeSettings, SimulatedJudge, simulate_judge
from simulate.population import draw_population


def tally_of(rows: list[tuple[str, str, str, str]]) -> Tally:
    frame = pd.DataFrame(rows, columns=["context", "item_first", "item_second", "verdict"])
    return tally_verdicts(check_verdicts(frame, number_runs=True))


VOTES = [
    ("1", "a", "b", "first"),
    ("1", "b", "a", "second"),
    ("1", "a", "b", "tie"),
    ("2", "a", "b", "second"),
    ("2", "b", "a", "tie"),
    ("2", "b", "c", "first"),
    ("2", "c", "b", "first"),
    ("3", "c", "a", ""),
]


def test_margins_counted_by_hand_per_prompt_and_pair() -> None:
    frame = votes_to_gold(tally_of(VOTES)).frame.set_index(["context", "item_a", "item_b"])
    assert frame["winner"].to_dict() == {("1", "a", "b"): "a", ("2", "a", "b"): "b", ("2", "b", "c"): "tie"}
    np.testing.assert_allclose(frame["gap"], [2 / 3, 1 / 2, 0.0])


def test_margins_counted_by_hand_over_all_prompts() -> None:
    gold = votes_to_gold(tally_of(VOTES), level="pair")
    assert gold.context_columns == ()
    frame = gold.frame.set_index(["item_a", "item_b"])
    assert frame["winner"].to_dict() == {("a", "b"): "a", ("b", "c"): "tie"}
    np.testing.assert_allclose(frame["gap"], [1 / 5, 0.0])  # a: 1 + 1 + 1/2 + 0 + 1/2 of 5 votes


def test_order_of_slots_and_names_of_voters_do_not_matter() -> None:
    turned = [(c, b, a, {"first": "second", "second": "first"}.get(v, v)) for c, a, b, v in VOTES]
    pd.testing.assert_frame_equal(votes_to_gold(tally_of(VOTES)).frame, votes_to_gold(tally_of(turned)).frame)


def test_votes_without_a_valid_one_and_unknown_levels_are_refused() -> None:
    with pytest.raises(InputError, match="no valid verdict"):
        votes_to_gold(tally_of([("1", "a", "b", ""), ("1", "b", "a", "")]))
    with pytest.raises(InputError, match="choose context, pair"):
        votes_to_gold(tally_of(VOTES), level="prompt")


def judged(n: int, seed: int, votes: int = 1) -> SimulatedJudge:
    people = draw_population(n, votes=votes, spread=1.5, rng=seed)
    asked = JudgeSettings(runs=1, repeatability=1.0, agreement=0.75)
    return simulate_judge(people, -0.4, settings=asked, rng=seed)


def voting_tally(judge: SimulatedJudge) -> Tally:
    people = judge.population
    counts = np.zeros((people.n_pairs, 2, 5), dtype=np.int64)
    counts[:, 0, 0], counts[:, 0, 1] = people.human_votes_i, people.votes - people.human_votes_i
    return Tally(**{**vars(judge.to_tally()), "counts": counts})


def test_margins_of_many_votes_are_those_of_the_strengths() -> None:
    judge = judged(12, 2, votes=4001)
    gold = votes_to_gold(voting_tally(judge))
    gap = judge.population.gap
    np.testing.assert_allclose(gold.align(judge.to_tally()).gap, np.tanh(gap / 2), atol=0.07)
    table = compare_gaps(judge.to_tally(), judge.to_gold(), {"votes": gold})
    assert table["gap_spearman"].iloc[0] > 0.99
    assert table["same_winner"].iloc[0] > 0.97


def test_more_votes_track_the_gap_better_and_one_vote_not_at_all() -> None:
    found = []
    for votes in (1, 3, 51):
        judge = judged(25, 3, votes=votes)
        gold = votes_to_gold(voting_tally(judge))
        found.append(compare_gaps(judge.to_tally(), judge.to_gold(), {"votes": gold})["gap_spearman"].iloc[0])
    assert np.isnan(found[0])  # every margin is 1
    assert 0.1 < found[1] < found[2]


def test_study_with_votes_has_buckets_accuracy_and_placement_but_no_rho() -> None:
    judge = judged(20, 4, votes=9)
    gold = votes_to_gold(voting_tally(judge))
    study = study_group(judge.to_tally(), gold, StudyOptions(n_resamples=20), rng=1)
    assert study.profile.buckets is not None
    assert study.value("accuracy") == pytest.approx(0.75, abs=0.005)  # as asked for, against the majority
    assert study.placement is not None
    assert study.placement.errors.q < 0
    assert study.recovery is None


def test_own_ranking_is_the_fit_of_the_judge(shared_data: Path) -> None:
    tally = tally_verdicts(read_verdicts(shared_data / "qlora_vicuna.csv"))
    gold = own_ranking_to_gold(tally)
    assert gold.kind == "pairs"
    fit = fit_bradley_terry(tally.item_i, tally.item_j, tally.counts, n_items=len(tally.items))
    lead = fit.strengths[tally.item_i] - fit.strengths[tally.item_j]
    aligned = gold.align(tally)
    np.testing.assert_allclose(aligned.gap, np.abs(lead), atol=1e-6)
    np.testing.assert_array_equal(aligned.winner, np.where(lead > 0, 0, 1))


def test_own_ranking_without_a_maximum_is_refused_and_with_alpha_is_not() -> None:
    tally = tally_of([("1", "a", "b", "first"), ("1", "b", "a", "second"), ("1", "b", "c", "tie")])
    with pytest.raises(NoMaximumError, match="a"):
        own_ranking_to_gold(tally)
    assert len(own_ranking_to_gold(tally, alpha=0.5).frame) == 2


def test_comparison_is_the_plain_spearman_on_real_votes(shared_data: Path) -> None:
    votes = tally_verdicts(read_verdicts(shared_data / "prd_vicuna80_human_votes.csv"))
    gold = read_gold(shared_data / "prd_vicuna80_gold.csv")
    sources = {"context": votes_to_gold(votes), "pair": votes_to_gold(votes, level="pair")}
    table = compare_gaps(votes, gold, sources).set_index("source")
    real = gold.align(votes).gap
    for name, source in sources.items():
        assert table.loc[name, "gap_spearman"] == pytest.approx(spearman(source.align(votes).gap, real))
    # A pair of answers is not a pair of systems: only the pooled margin tracks the gap of the systems.
    assert table.loc["context", "gap_spearman"] < 0.3 < 0.8 < table.loc["pair", "gap_spearman"]
    assert "7,040 human votes on 2,560 pairs (2.8 per prompt and pair)" in describe_votes(
        votes, sources["context"]
    )


@pytest.fixture
def files(tmp_path: Path) -> Path:
    judge = judged(12, 5, votes=3)
    judge.to_frame().to_csv(tmp_path / "v.csv", index=False)
    judge.gold_frame().to_csv(tmp_path / "g.csv", index=False)
    human = judge.human_frame()
    rows = [
        {
            "item_first": r.item_a,
            "item_second": r.item_b,
            "run": k,
            "verdict": "first" if k < r.votes_a else "second",
        }
        for r in human.itertuples()
        for k in range(3)
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "votes.csv", index=False)
    return tmp_path


def run(files: Path, *options: str, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    given = [str(files / option) if option.endswith(".csv") else option for option in options]
    assert main([str(files / "v.csv"), *given, "--format", "json", "--resamples", "20", "--seed", "1"]) == 0
    data: dict[str, object] = json.loads(capsys.readouterr().out)
    return data


def test_command_with_votes_in_place_of_gold(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = run(files, "--votes", "votes.csv", capsys=capsys)
    overall = data["groups"][0]["overall"]  # type: ignore[index]
    assert overall["accuracy"] == pytest.approx(0.75, abs=0.01)
    assert overall["spearman"] is None
    assert overall["q_hat"] is not None
    assert "gap_sources" not in data
    assert any("198 human votes on 66 pairs" in note for note in data["notes"])  # type: ignore[attr-defined]


def test_command_with_gold_compares_the_sources(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = run(files, "--gold", "g.csv", "--votes", "votes.csv", "--own-ranking", capsys=capsys)
    assert data["groups"][0]["overall"]["spearman"] is not None  # type: ignore[index]
    sources = data["gap_sources"]
    assert [row["source"] for row in sources] == ["human votes", "own ranking (circular)"]  # type: ignore[attr-defined]
    plain = run(files, "--gold", "g.csv", capsys=capsys)
    assert plain["groups"] == data["groups"]


def test_command_with_own_ranking_says_that_it_is_circular(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = run(files, "--own-ranking", capsys=capsys)
    overall = data["groups"][0]["overall"]  # type: ignore[index]
    assert overall["spearman"] is None
    assert overall["accuracy"] > 0.5
    assert any("CIRCULAR" in note for note in data["notes"])  # type: ignore[attr-defined]
    assert main([str(files / "v.csv"), "--own-ranking", "--resamples", "20"]) == 0
    assert "CIRCULAR" in capsys.readouterr().out
