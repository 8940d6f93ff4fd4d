"""The proxy study: published values, permutation tests against exact enumeration and scipy, invariances."""

from __future__ import annotations

import math
from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyses.proxies import (
    PROXIES,
    ProxyStudy,
    fisher_interval,
    holm,
    minimum_detectable_correlation,
    permutation_p,
    points_from_studies,
    points_from_summary,
    study_proxies,
)
from difficulty.study import StudyOptions, study_groups
from rank.exceptions import InputError
from rank.readers import read_gold, read_table, read_verdicts
from rank.recovery import spearman
from rank.tally import tally_verdicts

#: Pooled over 12 judge x corpus points; computed by the authors before their table was rounded.
PUBLISHED = {
    "swap_consistency": 0.559,
    "swap_consistency_close": 0.245,
    "swap_consistency_far": 0.897,
    "inconsistent_pair_primacy": 0.126,
    "nontransitive_share": -0.608,
}


@pytest.fixture(scope="module")
def summary(shared_data: Path) -> pd.DataFrame:
    return read_table(shared_data / "published" / "pair_difficulty_table1.csv")


@pytest.fixture(scope="module")
def study(summary: pd.DataFrame) -> ProxyStudy:
    return study_proxies(points_from_summary(summary), rng=1)


def test_published_pooled_correlations_within_rounding_of_the_table(study: ProxyStudy) -> None:
    ours = study.table.set_index("proxy")["spearman"]
    assert set(ours.index) == set(PUBLISHED)
    for name, value in PUBLISHED.items():
        assert ours[name] == pytest.approx(value, abs=0.02), name
    assert (study.table["n"] == 12).all()


def test_published_holm_decision_far_pairs_only(study: ProxyStudy) -> None:
    table = study.table.set_index("proxy")
    assert (table["p_holm"] <= 0.05).to_dict() == {name: name == "swap_consistency_far" for name in PUBLISHED}
    assert table.loc["swap_consistency_far", "p_holm"] == pytest.approx(0.001, abs=0.001)


def test_pooled_correlation_equals_scipy(summary: pd.DataFrame, study: ProxyStudy) -> None:
    from scipy.stats import spearmanr

    points = points_from_summary(summary)
    for name, ours in zip(study.table["proxy"], study.table["spearman"], strict=True):
        assert ours == pytest.approx(spearmanr(points[name], points["spearman"]).statistic, abs=1e-12)


def test_permutation_p_agrees_with_the_exact_distribution() -> None:
    x = np.array([1.0, 2.0, 2.0, 4.0, 5.0, 7.0, 6.0])
    y = np.array([2.0, 1.0, 3.0, 3.0, 6.0, 5.0, 7.0])
    orders = np.array(list(permutations(range(7))))
    null = np.abs(spearman(y[orders], x))
    exact = float((null >= abs(spearman(y, x)) - 1e-12).mean())
    b = 40_000
    assert permutation_p(x, y, n_permutations=b, rng=2) == pytest.approx(
        exact, abs=5 * math.sqrt(exact / b) + 1 / b
    )


def test_permutation_p_is_never_zero_and_two_sided() -> None:
    x = np.arange(40.0)
    assert permutation_p(x, x, n_permutations=999, rng=1) == 1 / 1000
    assert permutation_p(x, -x, n_permutations=999, rng=1) == 1 / 1000


@pytest.mark.slow
def test_permutation_p_is_uniform_under_the_null() -> None:
    rng = np.random.default_rng(11)
    n, b = 1500, 199
    p = np.array(
        [permutation_p(rng.normal(size=10), rng.normal(size=10), n_permutations=b, rng=rng) for _ in range(n)]
    )
    for alpha in (0.05, 0.2, 0.5, 0.8):
        # (k + 1) / (B + 1) is valid and, on multiples of 1 / (B + 1), nearly exact; ranks are discrete.
        assert (p <= alpha).mean() == pytest.approx(alpha, abs=4 * math.sqrt(alpha * (1 - alpha) / n) + 0.01)


def test_within_corpus_correlation_ignores_shifts_between_corpora() -> None:
    rng = np.random.default_rng(4)
    x, noise = rng.normal(size=20), rng.normal(size=20)
    frame = pd.DataFrame({"judge": range(20), "dataset": ["a"] * 10 + ["b"] * 10, "swap_consistency": x})
    frame["spearman"] = np.tanh(0.3 * x + 0.1 * noise)
    moved = frame.copy()
    moved.loc[10:, "swap_consistency"] += 100
    one, two = (study_proxies(f, n_permutations=500, rng=3).table.iloc[0] for f in (frame, moved))
    assert one["within_spearman"] == two["within_spearman"]
    assert one["within_p_value"] == two["within_p_value"]
    assert one["spearman"] != two["spearman"]
    # Equal corpora without ties: the mean of the correlations inside them.
    inside = [
        float(spearman(frame["swap_consistency"][part].to_numpy(), frame["spearman"][part].to_numpy()))
        for part in (slice(0, 10), slice(10, 20))
    ]
    assert one["within_spearman"] == pytest.approx(np.mean(inside), abs=1e-12)


@settings(max_examples=10)
@given(st.permutations(range(12)), st.booleans())
def test_row_order_names_and_other_proxies_change_no_number(order: list[int], rename: bool) -> None:
    rng = np.random.default_rng(0)
    points = pd.DataFrame(
        {
            "judge": list("abcdefghijkl"),
            "dataset": ["x"] * 5 + ["y"] * 7,
            "spearman": rng.normal(size=12).clip(-1, 1),
        }
    )
    for name in PROXIES:
        points[name] = rng.integers(0, 6, size=12) / 6
    reference = study_proxies(points, n_permutations=200, rng=9).table
    other = points.iloc[order].reset_index(drop=True)
    if rename:
        other["judge"], other["dataset"] = other["judge"] * 2, other["dataset"].map({"x": "zz", "y": "aa"})
    pd.testing.assert_frame_equal(
        reference, study_proxies(other, n_permutations=200, rng=9).table, rtol=1e-12
    )
    alone = study_proxies(other, proxies=["swap_consistency_far"], n_permutations=200, rng=9).table.iloc[0]
    both = reference.set_index("proxy").loc["swap_consistency_far"]
    assert (alone["p_value"], alone["within_p_value"]) == (both["p_value"], both["within_p_value"])


@settings(max_examples=25)
@given(st.lists(st.floats(0.0001, 1), min_size=1, max_size=8))
def test_holm_is_monotone_at_least_p_and_equals_the_definition(p: list[float]) -> None:
    adjusted = holm(p)
    order = np.argsort(p, kind="stable")
    assert (np.diff(adjusted[order]) >= -1e-12).all()
    assert (adjusted >= np.array(p) - 1e-12).all()
    steps = np.maximum.accumulate(np.array(p)[order] * np.arange(len(p), 0, -1))
    np.testing.assert_allclose(adjusted[order], np.minimum(steps, 1), rtol=1e-12)


def test_holm_leaves_undefined_tests_out() -> None:
    np.testing.assert_allclose(holm([0.01, np.nan, 0.04]), [0.02, np.nan, 0.04])
    assert np.isnan(holm([np.nan])).all()


@pytest.mark.slow
@pytest.mark.parametrize("n", [12, 30])
def test_minimum_detectable_correlation_is_found_with_power_080_by_simulation(n: int) -> None:
    rng = np.random.default_rng(8)
    critical = np.quantile(np.abs(spearman(rng.normal(size=(20_000, n)), np.arange(n))), 0.95)
    r = 2 * np.sin(
        np.pi * minimum_detectable_correlation(n) / 6
    )  # Pearson's r of a normal pair with that rho
    x, e = rng.normal(size=(2, 10_000, n))
    power = (np.abs(spearman(x, r * x + math.sqrt(1 - r * r) * e)) >= critical).mean()
    assert power == pytest.approx(0.8, abs=0.03)


def test_intervals_contain_the_estimate_and_stay_inside_the_range() -> None:
    for r in (-0.99, -0.3, 0.0, 0.7, 0.999):
        low, high = fisher_interval(r, 12)
        assert -1 <= low < r < high <= 1
    assert np.isnan(fisher_interval(1.0, 12)).all()
    assert np.isnan(fisher_interval(0.5, 3)).all()
    assert math.isnan(minimum_detectable_correlation(3))


def test_missing_values_leave_a_point_out_of_that_proxy_only() -> None:
    frame = pd.DataFrame(
        {
            "spearman": [0.1, 0.4, 0.2, 0.8, ""],
            "swap_consistency": [0.3, "", 0.5, 0.9, 0.1],
            "accuracy": [0.5] * 5,
        }
    ).astype(str)
    study = study_proxies(points_from_summary(frame), proxies=["swap_consistency", "accuracy"], rng=1)
    assert study.table["n"].tolist() == [3, 4]
    assert (study.n_points, study.n_left_out) == (4, 1)
    assert study.table["spearman"][0] == pytest.approx(1)
    assert np.isnan(study.table["p_value"][1])
    assert study.table["reason"][1] == "the proxy is the same for all points"


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"swap_consistency": ["1"] * 3}, "lacks spearman"),
        ({"spearman": ["0.1"] * 3}, "no proxy"),
        ({"spearman": ["0.1", "1.5", "0.2"], "accuracy": ["1"] * 3}, "row 2: spearman 1.5"),
        ({"spearman": ["0.1"] * 2, "accuracy": ["1"] * 2}, "at least 3"),
        (
            {"spearman": ["0.1"] * 3, "triads_cyclic_pct": ["1"] * 3},
            "triads_inequality_pct, triads_mixed_pct",
        ),
        ({"spearman": ["x"] * 3, "accuracy": ["1"] * 3}, "not a finite number"),
    ],
)
def test_bad_summaries_are_refused(columns: dict[str, list[str]], words: str) -> None:
    with pytest.raises(InputError, match=words):
        study_proxies(points_from_summary(pd.DataFrame(columns)), proxies=["accuracy"])


def test_verdicts_and_the_summary_of_their_own_numbers_agree(shared_data: Path) -> None:
    table = read_verdicts(shared_data / "prd_vicuna80.csv", by=["judge"])
    gold = read_gold(shared_data / "prd_vicuna80_gold.csv")
    studies = list(study_groups(tally_verdicts(table), gold, StudyOptions(n_resamples=20), rng=1))
    points = points_from_studies(studies)
    assert list(points["judge"]) == ["gpt35", "gpt4", "vicuna-13b"]
    assert points["swap_consistency"][1] == pytest.approx(0.68875)
    direct = study_proxies(points, n_permutations=100, rng=1).table
    again = study_proxies(points_from_summary(points.astype(str)), n_permutations=100, rng=1).table
    pd.testing.assert_frame_equal(direct, again)
