"""Real verdict tables against numbers that were obtained with other code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from difficulty.gaps import profile_difficulty
from difficulty.reliability import MetricTable, measure_reliability, modal_verdicts, rates_from_summary
from difficulty.triads import triads_of_tally
from rank.gold import Gold, check_gold
from rank.ranking import RankingOptions, rank_group, rank_groups
from rank.readers import read_gold, read_verdicts
from rank.recovery import recover_ranking
from rank.tally import Tally, tally_verdicts

NO_BOOTSTRAP = RankingOptions(n_resamples=0)


def load(folder: Path, name: str, gold: str = "") -> tuple[Tally, Gold]:
    tally = tally_verdicts(read_verdicts(folder / f"{name}.csv"))
    return tally, read_gold(folder / f"{gold or name + '_gold'}.csv")


def value(table: MetricTable, name: str, index: int = 0) -> float:
    return float(table.estimate[name][index])


def test_qlora_vicuna_counts_and_rates_measured_independently(shared_data: Path) -> None:
    tally, gold = load(shared_data, "qlora_vicuna")
    table = measure_reliability(tally, gold.align(tally), n_resamples=0)
    assert table.count("n_pairs_swapped")[0] == 2227
    assert value(table, "swap_consistency") == pytest.approx(0.614, abs=5e-4)
    assert value(table, "inconsistent_pair_primacy") == pytest.approx(0.927, abs=5e-4)
    assert tally.ledger["n_invalid"] == 13
    assert (table.count("n_pairs")[0], table.count("n_pairs_one_order")[0]) == (2240, 13)
    # One run: T is unobserved, its upper bound is not.
    assert np.isnan(value(table, "trustworthy_rate"))
    upper = value(table, "accuracy") - value(table, "flip_rate") * value(table, "undecided_accuracy")
    assert value(table, "trustworthy_rate_upper") == pytest.approx(upper)


def test_qlora_vicuna_triads_are_complete_in_every_context(shared_data: Path) -> None:
    tally, gold = load(shared_data, "qlora_vicuna")
    (triads,) = triads_of_tally(tally, gold.align(tally))
    assert triads.n_complete == 80 * 56  # 80 prompts, all triples of 8 systems


def test_qlora_vicuna_strengths_equal_choix(shared_data: Path) -> None:
    tally, gold = load(shared_data, "qlora_vicuna")
    ranking = rank_group(tally, gold, NO_BOOTSTRAP, check=True)
    assert ranking.difference.largest < 1e-6
    assert ranking.items["item"].iloc[0] == "gpt4"
    effect = rank_group(tally, gold, RankingOptions(n_resamples=0, order_effect="one")).order_effect_fields()
    assert effect["estimate"] > 0.5  # flips lean to the first slot nine times out of ten


def test_summeval_rates_and_equal_sized_quartiles_measured_independently(shared_data: Path) -> None:
    tally, gold = load(shared_data, "summeval_coherence")
    aligned = gold.align(tally)
    table = measure_reliability(tally, aligned, n_resamples=0)
    assert value(table, "swap_consistency") == pytest.approx(0.644, abs=5e-4)
    profile = profile_difficulty(tally, gold, edges="judged", n_resamples=0)
    # The published quartiles hold 275 pairs each: a stable sort by the unrounded float gap, documents in the order
    # of the gold file and pairs by name inside, which splits equal gaps. The same cut of our flips gives them.
    documents = list(dict.fromkeys(gold.frame["context"]))
    document = pd.Index(documents).get_indexer(tally.contexts["context"])[tally.context]
    order = np.lexsort((tally.item_j, tally.item_i, document))
    by_gap = order[np.argsort(np.abs(aligned.score_i - aligned.score_j)[order], kind="stable")]
    modal = modal_verdicts(tally.counts)
    flips = modal[:, 0] != modal[:, 1]
    quarters = 1 - flips[by_gap].reshape(4, 275).mean(axis=1)
    assert quarters == pytest.approx([0.571, 0.607, 0.651, 0.745], abs=5e-4)
    # Our own buckets are cut by value: other sizes, the same flips in total, and the same rise.
    assert profile.by_bucket.count("n_flips").sum() == flips.sum() == table.count("n_flips")[0] == 392
    assert profile.by_bucket.count("n_pairs").sum() == 1100
    assert set(profile.by_bucket.count("n_pairs")) != {275}
    consistency = profile.by_bucket.estimate["swap_consistency"]
    assert (np.diff(consistency) > 0).all()
    np.testing.assert_allclose(consistency, quarters, atol=0.01)


def test_smollm2_rates_measured_independently_and_its_rho_near_the_floor(shared_data: Path) -> None:
    tally, gold = load(shared_data, "smollm2_clear")
    expected = {"greedy": (0.7218, 0.6465, 0.4736), "centred margin": (0.7126, 0.4871, 0.4598)}
    assert list(tally.groups["format"]) == sorted(expected)
    measured = measure_reliability(tally, gold.align(tally), n_resamples=0)
    for index, name in enumerate(tally.groups["format"]):
        found = [value(measured, m, index) for m in ("flip_rate", "inconsistent_pair_primacy", "accuracy")]
        assert found == pytest.approx(expected[name], abs=5e-5), name
        # forced binary verdicts and gold: q_u is one half
        assert value(measured, "undecided_accuracy", index) == pytest.approx(0.5)
        flip_rate = value(measured, "flip_rate", index)
        assert value(measured, "ceiling", index) == pytest.approx(1 - flip_rate / 2)
        recovery = recover_ranking(tally.select(index), gold, n_resamples=100, rng=1)
        assert recovery.spearman_items_low < 0.1


def test_prd_judges_rank_and_flip_as_counted_with_pandas(shared_data: Path) -> None:
    tally, gold = load(shared_data, "prd_vicuna80")
    frame = pd.read_csv(shared_data / "prd_vicuna80.csv", dtype=str, keep_default_na=False)
    measured = measure_reliability(tally, gold.align(tally), n_resamples=0)
    for index, judge in enumerate(tally.groups["judge"]):
        rows = frame[frame["judge"] == judge].copy()
        low = rows[["item_first", "item_second"]].min(axis=1)
        rows["lower_wins"] = np.where(
            rows["verdict"] == "tie", 0.5, (rows["verdict"] == "first") == (rows["item_first"] == low)
        )
        rows["pair"] = rows["context"] + "|" + low + "|" + rows[["item_first", "item_second"]].max(axis=1)
        once = rows[rows["run"] == "1"].groupby("pair")["lower_wins"]
        # Pairs with a second run may have a modal tie: compare those that were asked once per order.
        several = set(rows.loc[rows["run"] != "1", "pair"])
        single = [key for key in once.groups if key not in several]
        flips = once.nunique().loc[single].gt(1).sum()
        keep = np.array(
            [
                f"{tally.contexts['context'].iloc[c]}|{tally.items[i]}|{tally.items[j]}" not in several
                for c, i, j in zip(tally.context, tally.item_i, tally.item_j, strict=True)
            ]
        )
        subset = tally.rows(keep & (tally.group == index))
        table = measure_reliability(subset.select(index), n_resamples=0)
        assert table.count("n_flips")[0] == flips
        assert measured.count("n_pairs")[index] == rows["pair"].nunique() == 800
    rankings = rank_groups(tally, gold, NO_BOOTSTRAP, check=True)
    assert all(r.difference.largest < 1e-6 for r in rankings)
    assert {r.name.split(" / ")[0]: round(r.recovery.spearman, 1) for r in rankings} == {
        "gpt35": 1.0, "gpt4": 1.0, "vicuna-13b": 0.9,
    }  # fmt: skip
    repeated = value(measured, "repeatability", list(tally.groups["judge"]).index("gpt35"))
    assert 0 < repeated < 1  # one system pair has a second run
    assert np.isnan(value(measured, "repeatability", list(tally.groups["judge"]).index("gpt4")))


def test_prd_human_votes_are_several_runs_of_one_order(shared_data: Path) -> None:
    tally = tally_verdicts(read_verdicts(shared_data / "prd_vicuna80_human_votes.csv"))
    assert tally.counts.sum() == 7040
    table = measure_reliability(tally, n_resamples=0)
    assert table.count("n_verdicts")[0] == 7040
    # The gold file is the win rate of these votes, ties half.
    wins = tally.counts.sum(axis=1)
    n = len(tally.items)
    half = wins[:, 2] / 2
    won = np.bincount(tally.item_i, wins[:, 0] + half, n) + np.bincount(tally.item_j, wins[:, 1] + half, n)
    played = np.bincount(tally.item_i, wins[:, :3].sum(axis=1), n) + np.bincount(
        tally.item_j, wins[:, :3].sum(axis=1), n
    )
    gold = pd.read_csv(shared_data / "prd_vicuna80_gold.csv").set_index("item")
    for code, item in enumerate(tally.items):
        assert won[code] / played[code] == pytest.approx(gold.loc[item, "score"], abs=5e-5)
        assert played[code] == gold.loc[item, "n_votes"]


def test_mtbench_repeats_equal_a_pandas_count_of_unanimous_conditions(shared_data: Path) -> None:
    tally = tally_verdicts(read_verdicts(shared_data / "mtbench_repeats.csv"))
    table = measure_reliability(tally, n_resamples=200, rng=1)
    frame = pd.read_csv(shared_data / "mtbench_repeats.csv", dtype=str, keep_default_na=False)
    valid = frame[frame["verdict"] != ""]
    condition = ["judge", "dataset", "format", "context", "item_first", "item_second"]
    several = valid.groupby(condition)["verdict"].agg(["nunique", "size"]).query("size >= 2")
    expected = (several["nunique"] == 1).groupby(level=["dataset", "format", "judge"]).mean()
    labels = tally.groups[["dataset", "format", "judge"]].itertuples(index=False, name=None)
    for index, key in enumerate(labels):
        assert value(table, "repeatability", index) == pytest.approx(expected.loc[key])
        low, high = table.low["repeatability"][index], table.high["repeatability"][index]
        assert low < value(table, "repeatability", index) < high
    assert tally.n_groups == 9


def test_mtbench_with_arena_gold_has_the_factors_of_trustworthiness(shared_data: Path) -> None:
    tally, gold = load(shared_data, "mtbench_repeats", "mtbench_models_gold")
    table = measure_reliability(tally, gold.align(tally), n_resamples=0)
    m = {name: table.estimate[name] for name in table.estimate}
    covered = m["gold_coverage"]
    assert ((covered > 0) & (covered < 1)).all()  # not every system has a score
    np.testing.assert_allclose(
        m["trustworthy_rate"],
        m["repeatability_gold"] * (m["accuracy"] - m["flip_rate_gold"] * m["undecided_accuracy"]),
    )
    assert (m["accuracy"] <= m["ceiling"]).all()
    assert any("have no gold" in note for note in gold.coverage_notes(tally))


def test_llmbar_authors_policy_reproduces_their_equal_verdicts(shared_data: Path) -> None:
    tally, gold = load(shared_data, "llmbar")
    table = measure_reliability(tally, gold.align(tally), invalid="equal", n_resamples=0)
    reported = pd.read_csv(shared_data / "llmbar_author_reported.csv").set_index(
        ["judge", "dataset", "format"]
    )
    exact = 0
    groups = tally.groups[["judge", "dataset", "format"]].itertuples(index=False, name=None)
    for index, key in enumerate(groups):
        if key not in reported.index or key[2].startswith(("Swap", "Rating")):
            continue  # those formats were elicited differently
        row = reported.loc[key]
        assert table.count("n_pairs_swapped")[index] == row["n_pairs"]
        equal = row["n_pairs"] - table.count("n_flips")[index]
        exact += equal == row["n_equal"]
        assert equal == row["n_equal"], key
    assert exact > 100


def test_published_trustworthy_rates_follow_from_the_other_columns(shared_data: Path) -> None:
    frame = pd.read_csv(shared_data / "published" / "verdicts_not_equal_table1.csv")
    c, phi, a = (frame[name].to_numpy() / 100 for name in ("repeatability", "flip_rate", "accuracy"))
    labels = (frame["judge"] + " " + frame["format"] + " " + frame["dataset"]).tolist()
    rates = rates_from_summary(c, phi, a, rounding=0.0005, labels=labels)
    difference = np.abs(rates.trustworthy_rate - frame["trustworthy_rate"].to_numpy() / 100)
    assert difference.max() < 0.0015  # C, phi, A and T are all rounded to 0.1 percent
    assert len(frame) == 120


def test_gold_strengths_of_4724_texts_are_read(shared_data: Path) -> None:
    gold = check_gold(pd.read_csv(shared_data / "clear_gold.csv"))
    assert len(gold.frame) == 4724
