"""The audit: one flat row per group, sorting, and the pairs of judges whose order changes."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analyses.audit import Audit, _are_apart, _that_may_change, audit_groups, strata_columns
from analyses.audit_command import audit_sentences
from difficulty.reliability import METRICS, measure_reliability
from difficulty.study import StudyOptions, study_groups
from rank.exceptions import InputError
from rank.gold import check_gold
from rank.readers import read_gold, read_verdicts
from rank.tally import tally_verdicts
from rank.verdicts import check_verdicts
from simulate.judges import simulate_judge
from simulate.population import draw_population

ITEMS = list("abcdefgh")
GOLD = pd.DataFrame({"item": ITEMS, "score": range(8, 0, -1)})


def judged(
    judge: str, wrong: list[tuple[str, str]], *, flips: list[tuple[str, str]] = (), runs: int = 2
) -> pd.DataFrame:  # type: ignore[assignment]
    """A judge that is right but for some pairs, in both orders, and answers by slot on `flips`."""
    rows = []
    for i, better in enumerate(ITEMS):
        for worse in ITEMS[i + 1 :]:
            pair = (better, worse)
            for first, second in (pair, pair[::-1]):
                says = "first" if (first == better) != (pair in wrong) else "second"
                if pair in flips:
                    says = "first"
                rows += [(judge, first, second, run, says) for run in range(runs)]
    return pd.DataFrame(rows, columns=["judge", "item_first", "item_second", "run", "verdict"])


def audit(frame: pd.DataFrame, *, sort: str | None = None, gold: pd.DataFrame | None = GOLD) -> Audit:
    tally = tally_verdicts(check_verdicts(frame))
    options = StudyOptions(n_resamples=30)
    return audit_groups(
        list(study_groups(tally, None if gold is None else check_gold(gold), options, rng=1)), sort=sort
    )


#: Few errors, on far pairs, against more errors, on neighbours: A and T favour the first, rho the second.
FAR = judged("far", [("a", "h"), ("a", "g"), ("a", "f")])
NEAR = judged("near", [(ITEMS[k], ITEMS[k + 1]) for k in (0, 2, 4, 6)])


def test_orders_of_a_and_rho_differ_where_errors_sit_on_far_pairs() -> None:
    result = audit(pd.concat([FAR, NEAR]))
    rows = result.rows.set_index("judge")
    assert rows.loc["far", "accuracy"] == pytest.approx(25 / 28)
    assert rows.loc["near", "accuracy"] == pytest.approx(24 / 28)
    assert rows.loc["far", "spearman"] < rows.loc["near", "spearman"]
    assert rows[["rank_accuracy", "rank_trustworthy_rate", "rank_spearman"]].loc["far"].tolist() == [1, 1, 2]
    found = result.reorderings
    assert len(found) == 1
    assert found.iloc[0][["judge_a", "judge_b", "changes"]].tolist() == ["far", "near", "A / rho, T / rho"]
    assert found["accuracy_difference"][0] == pytest.approx(1 / 28)
    assert found["spearman_difference"][0] < 0


def test_flips_reorder_a_and_t() -> None:
    flippy = judged("flippy", [], flips=[(ITEMS[k], ITEMS[k + 1]) for k in range(5)])
    result = audit(pd.concat([flippy, FAR]))
    found = result.reorderings.set_index(["judge_a", "judge_b"])
    assert found.loc[("flippy", "far"), "changes"].startswith("A / T")
    rows = result.rows.set_index("judge")
    assert rows.loc["flippy", "accuracy"] == pytest.approx(1 - 2.5 / 28)
    assert rows.loc["flippy", "trustworthy_rate"] == pytest.approx(23 / 28)


def test_ties_between_judges_are_no_reordering_and_share_a_rank() -> None:
    result = audit(pd.concat([FAR, FAR.assign(judge="twin"), NEAR]))
    assert result.rows.set_index("judge")["rank_accuracy"].to_dict() == {"far": 1, "twin": 1, "near": 3}
    pairs = result.reorderings[["judge_a", "judge_b"]].apply(set, axis=1).tolist()
    assert {"far", "twin"} not in pairs
    assert len(pairs) == 2


def test_rows_hold_every_metric_with_bounds_and_agree_with_the_difficulty_study(shared_data: Path) -> None:
    table = read_verdicts(shared_data / "mtbench_repeats.csv", by=["judge"])
    gold = read_gold(shared_data / "mtbench_models_gold.csv")
    tally = tally_verdicts(table)
    rows = audit_groups(list(study_groups(tally, gold, StudyOptions(n_resamples=20), rng=1))).rows
    assert len(rows) == 9
    metrics = measure_reliability(tally, gold.align(tally), n_resamples=1)
    for name in METRICS:
        np.testing.assert_array_equal(rows[name], metrics.estimate[name])
        for suffix in ("", "_close", "_far"):
            columns = [f"{name}{suffix}{end}" for end in ("_low", "", "_high")]
            low, middle, high = rows[columns].to_numpy(dtype=float).T
            known = ~np.isnan(low)
            assert (low[known] <= middle[known]).all()
            assert (middle[known] <= high[known]).all()
    triads = ["cyclic_share", "mixed_share", "inequality_share", "nontransitive_share"]
    for name in (
        "spearman",
        "kendall",
        "swap_consistency_close_minus_far",
        "failure_mode",
        "share_of_wrong_far",
        *triads,
    ):
        assert name in rows.columns
    assert rows.columns.is_unique


def test_a_simulated_judge_is_audited_back_to_what_went_in() -> None:
    population = draw_population(n_items=30, rng=3)
    judge = simulate_judge(population, rng=4)
    tally = judge.to_tally()
    rows = audit_groups(
        list(study_groups(tally, judge.to_human_gold(), StudyOptions(n_resamples=10), rng=1))
    ).rows
    m = population.n_pairs
    assert rows["accuracy"][0] == pytest.approx(0.6, abs=1 / m)
    assert rows["flip_rate"][0] == pytest.approx(0.2, abs=1 / m)
    assert rows["repeatability"][0] == pytest.approx(0.95, abs=1 / m)
    assert rows["trustworthy_rate"][0] == pytest.approx(
        rows["repeatability"][0] * (rows["accuracy"][0] - rows["flip_rate"][0] / 2), abs=1e-12
    )


def test_sorting_puts_the_largest_first_and_undefined_last() -> None:
    once = judged("once", [], runs=1)
    result = audit(pd.concat([NEAR, once, FAR]), sort="T")
    assert result.rows["judge"].tolist() == ["far", "near", "once"]
    assert audit(pd.concat([NEAR, FAR]), sort="rho").rows["judge"].tolist() == ["near", "far"]
    with pytest.raises(InputError, match="similar: accuracy"):
        audit(NEAR, sort="accurac")


def test_one_judge_without_repeats_puts_all_on_the_upper_bound_of_t() -> None:
    result = audit(pd.concat([NEAR, judged("once", [], runs=1)]))
    assert result.trustworthy == "trustworthy_rate_upper"
    assert result.rows["rank_trustworthy_rate"].notna().all()
    assert audit(pd.concat([NEAR, FAR])).trustworthy == "trustworthy_rate"


def test_judges_are_ranked_inside_a_dataset() -> None:
    frame = pd.concat([FAR.assign(dataset="x"), NEAR.assign(dataset="x"), NEAR.assign(dataset="y")])
    result = audit(frame)
    assert result.strata == ("dataset",)
    ranks = result.rows.set_index(["judge", "dataset"])["rank_accuracy"]
    assert ranks.loc[("near", "y")] == 1
    assert ranks.loc[("near", "x")] == 2
    assert result.reorderings["dataset"].tolist() == ["x"]


def test_a_format_that_belongs_to_a_judge_is_no_stratum() -> None:
    groups = pd.DataFrame({"judge": ["a", "b"], "format": ["f", "g"], "temperature": ["0", "0"]})
    assert strata_columns(groups) == ()
    crossed = pd.concat([groups, groups.assign(format="h")])
    assert strata_columns(crossed) == ("format",)


def test_without_gold_or_judges_there_is_still_an_audit() -> None:
    frame = FAR.drop(columns="judge")
    result = audit(frame, gold=None)
    assert result.compared == "group"
    assert len(result.rows) == 1
    assert result.rows["flip_rate"][0] == 0
    assert np.isnan(result.rows["accuracy"][0])
    assert result.reorderings.empty


def test_row_order_and_names_change_nothing() -> None:
    frame = pd.concat([FAR, NEAR], ignore_index=True)
    shuffled = frame.sample(frac=1, random_state=2)
    pd.testing.assert_frame_equal(audit(frame).rows, audit(shuffled).rows, rtol=0, atol=1e-9)
    names = dict(zip(ITEMS, [f"z{k}" for k in (3, 1, 4, 0, 5, 9, 2, 6)], strict=True))
    renamed = frame.assign(
        item_first=frame["item_first"].map(names), item_second=frame["item_second"].map(names)
    )
    gold = GOLD.assign(item=GOLD["item"].map(names))
    pd.testing.assert_frame_equal(audit(frame).rows, audit(renamed, gold=gold).rows, rtol=0, atol=1e-9)


def test_the_headline_says_which_reorderings_exceed_noise_and_that_few_items_say_little() -> None:
    result = audit(pd.concat([FAR, NEAR]))
    found = result.reorderings.iloc[0]
    rows = result.rows.set_index("judge")

    def apart(metric: str) -> bool:
        far, near = rows.loc["far"], rows.loc["near"]
        return bool(
            far[f"{metric}_low"] > near[f"{metric}_high"] or near[f"{metric}_low"] > far[f"{metric}_high"]
        )

    assert apart("accuracy") is False
    assert found["changes_apart"] == ""
    text = " ".join(audit_sentences(result))
    assert (
        "for none of them are the intervals of the two apart on both metrics, so all of this may be noise"
        in text
    )
    assert "(which may be noise: intervals overlap)" in text
    assert "Rho over 8 items takes few values" in text
    # With intervals that do not overlap on A and rho, the change is told apart from those that may be noise.
    sharp = result.rows.copy()
    for metric in ("accuracy", "spearman"):
        for end in ("low", "high"):
            sharp[f"{metric}_{end}"] = sharp[metric]
    assert _are_apart(sharp, "accuracy", 0, 1)
    assert not _are_apart(sharp.assign(accuracy_low=np.nan), "accuracy", 0, 1)
    one = replace(result, reorderings=result.reorderings.assign(changes_apart="A / rho"))
    text = " ".join(audit_sentences(one))
    assert "for all of them the intervals of the two are apart on both metrics" in text
    two = pd.concat([one.reorderings, result.reorderings])
    text = " ".join(audit_sentences(replace(result, reorderings=two)))
    assert "for 1 the intervals of the two are apart on both metrics, the other 1 may be noise" in text


def test_the_picture_sets_groups_with_equal_rho_apart() -> None:
    from analyses.plotting import plot_audit

    frame = pd.concat([judged("x", []), judged("y", [])])
    result = audit(frame)
    assert result.rows["spearman"].tolist() == [1.0, 1.0]
    ax = plot_audit(result)
    markers = [line for line in ax.lines if line.get_marker() == "o"]
    heights = [line.get_transform().transform((0.9, 1.0))[1] for line in markers]
    assert abs(heights[0] - heights[1]) > 5
    assert ax.get_xlim()[0] < result.rows["trustworthy_rate_low"].min() < 1 < ax.get_xlim()[1]
    assert max(ax.get_yticks()) <= 1


def test_reorderings_of_many_groups_equal_those_of_every_pair_tried() -> None:
    rng = np.random.default_rng(0)
    values = np.round(rng.random((40, 3)), 1)
    values[rng.random(values.shape) < 0.2] = np.nan
    index = np.arange(40)
    expected = set()
    for a, b in itertools.combinations(index, 2):
        ahead = values[a] - values[b]
        if any(x * y < 0 for x, y in itertools.combinations(ahead, 2)):
            expected.add((int(a), int(b)))
    assert set(_that_may_change(values, index)) == expected
