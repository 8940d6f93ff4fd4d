"""Two judges on shared pairs: McNemar, paired bootstrap, antisymmetry, what is left out."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analyses.comparison import (
    Comparison,
    adjust_p_values,
    compare_groups,
    mcnemar_exact,
    pairs_to_compare,
)
from difficulty.reliability import measure_reliability
from rank.exceptions import InputError
from rank.gold import Gold, check_gold
from rank.readers import read_gold, read_verdicts
from rank.recovery import recover_ranking
from rank.tally import Tally, tally_verdicts
from rank.verdicts import check_verdicts


@pytest.fixture(scope="module")
def prd(shared_data: Path) -> tuple[Tally, Gold]:
    table = read_verdicts(shared_data / "prd_vicuna80.csv", by=["judge"])
    return tally_verdicts(table), read_gold(shared_data / "prd_vicuna80_gold.csv")


def calls(
    seed: int = 0, *, judges: str = "xy", n_contexts: int = 30, runs: int = 2, items: str = "abcd"
) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    rows = []
    for k, judge in enumerate(judges):
        for context in range(n_contexts):
            for i, first in enumerate(items):
                for j, second in enumerate(items):
                    if i != j:
                        right = "first" if i < j else "second"
                        for run in range(runs):
                            noisy = rng.choice(["first", "second", "tie"])
                            verdict = right if rng.random() < 0.8 - 0.2 * k else noisy
                            rows.append((judge, str(context), first, second, run, verdict))
    return pd.DataFrame(rows, columns=["judge", "context", "item_first", "item_second", "run", "verdict"])


GOLD = check_gold(pd.DataFrame({"item": list("abcd"), "score": [4, 3, 2, 1]}))


def compare(frame: pd.DataFrame, gold: Gold | None = GOLD, **options: object) -> Comparison:
    tally = tally_verdicts(check_verdicts(frame))
    options = {"n_resamples": 300, "rng": 7, **options}
    return compare_groups(tally, gold, 0, 1, **options)  # type: ignore[arg-type]


def value(comparison: Comparison, metric: str, column: str = "difference") -> float:
    return float(comparison.table.set_index("metric").loc[metric, column])


def test_mcnemar_equals_statsmodels_and_the_binomial_by_hand() -> None:
    from statsmodels.stats.contingency_tables import mcnemar

    for b, c in ((0, 6), (3, 9), (5, 5), (1, 0), (40, 61)):
        witness = mcnemar([[10, b], [c, 10]], exact=True).pvalue
        assert mcnemar_exact(b, c) == pytest.approx(witness, rel=1e-12)
    assert mcnemar_exact(0, 6) == 2 / 2**6
    assert mcnemar_exact(0, 0) == 1.0


def test_estimates_are_those_of_each_judge_alone(prd: tuple[Tally, Gold]) -> None:
    tally, gold = prd
    result = compare_groups(tally, gold, 0, 2, n_resamples=50, rng=1)
    assert (result.name_a, result.name_b) == ("gpt35", "vicuna-13b")
    assert (result.n_shared, result.n_only_a, result.n_only_b, result.n_other_orders) == (800, 0, 0, 0)
    metrics = measure_reliability(tally, gold.align(tally), n_resamples=1)
    table = result.table.set_index("metric")
    for name in ("flip_rate", "accuracy", "inconsistent_pair_primacy", "ceiling", "trustworthy_rate_upper"):
        assert table.loc[name, "a"] == pytest.approx(metrics.estimate[name][0], abs=1e-12)
        assert table.loc[name, "b"] == pytest.approx(metrics.estimate[name][2], abs=1e-12)
    for column, group in (("a", 0), ("b", 2)):
        alone = recover_ranking(tally.select(group), gold, n_resamples=0)
        assert table.loc["spearman", column] == alone.spearman
        assert table.loc["kendall", column] == alone.kendall
    assert table.loc["flip_rate", "p_value"] == mcnemar_exact(result.n_flips_only_a, result.n_flips_only_b)
    flips = result.n_flips_only_a - result.n_flips_only_b
    assert table.loc["flip_rate", "difference"] == pytest.approx(flips / 800, abs=1e-12)


def test_exchanging_the_judges_mirrors_every_number(prd: tuple[Tally, Gold]) -> None:
    tally, gold = prd
    one = compare_groups(tally, gold, 0, 1, n_resamples=200, rng=3).table
    two = compare_groups(tally, gold, 1, 0, n_resamples=200, rng=3).table
    for a, b in (
        ("difference", "difference"),
        ("difference_low", "difference_high"),
        ("difference_high", "difference_low"),
    ):
        np.testing.assert_allclose(one[a], -two[b], atol=1e-12)
    np.testing.assert_allclose(one["p_value"], two["p_value"], atol=1e-12)


def test_same_verdicts_differ_in_nothing_but_do_not_prove_it() -> None:
    frame = calls(judges="x")
    result = compare(pd.concat([frame, frame.assign(judge="y")]))
    for metric in ("flip_rate", "accuracy", "trustworthy_rate", "spearman"):
        assert value(result, metric) == 0
        assert value(result, metric, "p_value") == 1
    # No resample differs; an interval of width zero would claim that no other context could.
    low, high = value(result, "accuracy", "difference_low"), value(result, "accuracy", "difference_high")
    assert -0.2 < low < 0 < high < 0.2


def test_pairing_makes_the_interval_narrower_than_independent_resampling() -> None:
    # Two judges that share what is hard: nearly equal verdicts, very different contexts.
    frame = calls(judges="x", n_contexts=60, runs=1)
    other = frame.assign(judge="y")
    change = np.random.default_rng(1).random(len(other)) < 0.03
    other.loc[change, "verdict"] = "tie"
    result = compare(pd.concat([frame, other], ignore_index=True), n_resamples=800)
    width = value(result, "accuracy", "difference_high") - value(result, "accuracy", "difference_low")
    tally = tally_verdicts(check_verdicts(pd.concat([frame, other], ignore_index=True)))
    alone = measure_reliability(tally, GOLD.align(tally), n_resamples=800, rng=1)
    single = (alone.high["accuracy"] - alone.low["accuracy"]).min()
    assert width < 0.7 * single


@pytest.mark.slow
def test_paired_intervals_cover_a_true_difference_of_zero() -> None:
    hits = []
    for seed in range(120):
        frame = calls(seed, judges="x", n_contexts=25, runs=1)
        other = calls(1000 + seed, judges="x", n_contexts=25, runs=1).assign(judge="y")
        result = compare(pd.concat([frame, other]), n_resamples=300, rng=seed)
        hits.append(
            value(result, "accuracy", "difference_low") <= 0 <= value(result, "accuracy", "difference_high")
        )
    assert 0.88 <= np.mean(hits) <= 1


def test_row_order_and_item_names_change_nothing() -> None:
    frame = calls()
    reference = compare(frame).table
    shuffled = frame.sample(frac=1, random_state=1)
    pd.testing.assert_frame_equal(reference, compare(shuffled).table, rtol=0, atol=1e-9)
    names = {"a": "q", "b": "p", "c": "z", "d": "a"}
    renamed = shuffled.assign(
        item_first=frame["item_first"].map(names), item_second=frame["item_second"].map(names)
    )
    gold = check_gold(pd.DataFrame({"item": [names[x] for x in "abcd"], "score": [4, 3, 2, 1]}))
    pd.testing.assert_frame_equal(reference, compare(renamed, gold).table, rtol=0, atol=1e-9)


def test_pairs_that_are_not_shared_are_counted_and_left_out() -> None:
    frame = calls(n_contexts=6, runs=1)
    x, y = frame["judge"] == "x", frame["judge"] == "y"
    in_0 = frame["context"] == "0"
    pair = (frame["item_first"] + frame["item_second"]).isin(["ab", "ba"])
    # Judge y never saw context 0; of judge x the order "ba" in context 1 is unparsed.
    frame = frame[~(y & in_0)].copy()
    frame.loc[x & pair & (frame["context"] == "1") & (frame["item_first"] == "b"), "verdict"] = ""
    result = compare(frame, n_resamples=20)
    assert (result.n_only_a, result.n_only_b, result.n_other_orders, result.n_shared) == (6, 0, 1, 29)
    assert result.n_clusters == 5


def test_no_shared_pair_is_refused() -> None:
    frame = calls(n_contexts=2)
    apart = frame[(frame["judge"] == "x") == (frame["context"] == "0")]
    with pytest.raises(InputError, match="share no pair"):
        compare(apart)


def test_single_runs_test_the_upper_bound_of_t_instead() -> None:
    result = compare(calls(runs=1))
    assert math.isnan(value(result, "trustworthy_rate"))
    assert math.isnan(value(result, "trustworthy_rate", "p_value"))
    assert value(result, "trustworthy_rate_upper", "p_value") <= 1
    assert math.isnan(value(compare(calls(runs=2)), "trustworthy_rate_upper", "p_value"))


def test_unequal_numbers_of_runs_are_noted() -> None:
    frame = calls(runs=3)
    frame = frame[(frame["judge"] == "x") | (frame["run"] < 2)]
    assert any("repeat_agreement" in note for note in compare(frame).notes)


def test_context_level_compares_rankings_inside_contexts() -> None:
    result = compare(calls(n_contexts=12), recovery_level="context", n_resamples=100)
    assert -2 <= value(result, "spearman", "difference_low") <= value(result, "spearman") <= 2


def test_judges_at_a_bound_get_an_interval_of_positive_width() -> None:
    frame = calls(judges="x", n_contexts=5, runs=1)
    right = frame.assign(verdict=np.where(frame["item_first"] < frame["item_second"], "first", "second"))
    wrong = right.assign(judge="y", verdict=right["verdict"].map({"first": "second", "second": "first"}))
    result = compare(pd.concat([right, wrong]), n_resamples=50)
    assert value(result, "accuracy") == 1
    assert 0 < value(result, "accuracy", "difference_low") < 1
    assert value(result, "accuracy", "difference_high") == 1


def test_without_gold_flips_are_still_compared() -> None:
    result = compare(calls(), None)
    assert value(result, "flip_rate", "p_value") <= 1
    assert math.isnan(value(result, "accuracy"))
    assert result.reason == "there is no item gold"


def test_holm_families() -> None:
    tally = tally_verdicts(check_verdicts(calls(judges="xyz", n_contexts=8)))
    pairs = pairs_to_compare(tally)
    assert pairs == [(0, 1), (0, 2), (1, 2)]
    results = [compare_groups(tally, GOLD, a, b, n_resamples=100, rng=1) for a, b in pairs]
    whole, metric, comparison = (
        pd.concat(adjust_p_values(results, family=family)) for family in ("all", "metric", "comparison")
    )
    tested = whole["p_value"].notna()
    assert (whole["p_holm"].notna() == tested).all()
    for narrow in (metric, comparison):
        assert (narrow["p_holm"][tested] <= whole["p_holm"][tested] + 1e-12).all()
        assert (narrow["p_holm"][tested] >= narrow["p_value"][tested] - 1e-12).all()


def test_pairs_are_those_that_share_the_other_labels() -> None:
    frame = calls(n_contexts=2).assign(dataset="d", format="f")
    other = calls(n_contexts=2).assign(dataset="d", format="g")
    tally = tally_verdicts(check_verdicts(pd.concat([frame, other])))
    labels = tally.groups.apply(tuple, axis=1).tolist()
    named = [(labels[a], labels[b]) for a, b in pairs_to_compare(tally, "judge", ["y", "x"])]
    assert [(a[0], b[0], a[1:] == b[1:]) for a, b in named] == [("y", "x", True)] * 2
    assert len(pairs_to_compare(tally, "format")) == 2


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("color", None, "no group column 'color'"),
        (None, ["x", "nobody"], "nobody"),
        (None, ["x", "x"], "two different"),
    ],
)
def test_bad_choices_are_refused(column: str | None, values: list[str] | None, words: str) -> None:
    tally = tally_verdicts(check_verdicts(calls(n_contexts=1)))
    with pytest.raises(InputError, match=words):
        pairs_to_compare(tally, column, values)
