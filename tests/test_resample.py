"""Bootstrap weights, percentile and Wilson intervals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from rank.exceptions import InputError
from rank.resample import (
    bootstrap_sums,
    check_resampling,
    content_hash,
    percentile_interval,
    seed_of,
    two_sided_p,
    wilson_interval,
)


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
def test_wilson_equals_statsmodels(level: float) -> None:
    n = np.repeat([1, 2, 10, 38, 1000], 3)
    k = np.concatenate([[0, size // 2, size] for size in (1, 2, 10, 38, 1000)])
    low, high = wilson_interval(k, n, level=level)
    expected = proportion_confint(k, n, alpha=1 - level, method="wilson")
    np.testing.assert_allclose(low, np.clip(expected[0], 0, 1), atol=1e-12)
    np.testing.assert_allclose(high, np.clip(expected[1], 0, 1), atol=1e-12)


def test_case_17_no_successes_and_all_successes_have_a_width_inside_the_range() -> None:
    low, high = wilson_interval(np.array([0, 38]), np.array([10, 38]))
    assert low.tolist() == [0.0, pytest.approx(0.9082, abs=1e-4)]
    assert high.tolist() == [pytest.approx(0.2775, abs=1e-4), 1.0]
    assert np.isnan(wilson_interval(np.array([0]), np.array([0]))).all()


def test_weights_are_those_of_drawing_clusters_with_replacement() -> None:
    # Mean 1, variance 1 - 1/n, covariance -1/n: the moments of multinomial weights.
    n, b = 12, 40_000
    sums = bootstrap_sums(np.eye(n), b, rng=1)
    assert (sums.sum(axis=1) == n).all()
    np.testing.assert_allclose(sums.mean(axis=0), 1, atol=5 / np.sqrt(b))
    expected = np.eye(n) - 1 / n
    np.testing.assert_allclose(np.cov(sums.T), expected, atol=0.05)


@pytest.mark.parametrize("copies", [1, 20])  # few clusters are drawn one by one, many by multinomials
def test_equal_clusters_are_exchangeable_equal_rows_give_the_law_of_single_ones(copies: int) -> None:
    rows = np.repeat([[1.0], [0.0], [1.0], [1.0], [0.0]], copies, axis=0)
    drawn = bootstrap_sums(rows, 50_000, rng=2)[:, 0]
    n = 5 * copies
    expected = stats.binom(n, 0.6).pmf(np.arange(n + 1))
    np.testing.assert_allclose(np.bincount(drawn.astype(int), minlength=n + 1) / 50_000, expected, atol=0.01)


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.sampled_from([1, 15]))
def test_order_and_names_of_clusters_change_nothing(seed: int, n: int, copies: int) -> None:
    rng = np.random.default_rng(seed)
    rows = np.repeat(rng.integers(0, 4, size=(n, 3)).astype(float), copies, axis=0)
    n *= copies
    shuffled = rows[rng.permutation(n)]
    np.testing.assert_array_equal(bootstrap_sums(rows, 20, rng=7), bootstrap_sums(shuffled, 20, rng=7))


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.sampled_from([1, 15]))
def test_nested_sampling_leaves_primary_statistics_alone_when_secondary_ones_mirror(
    seed: int, n: int, copies: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = np.repeat(rng.integers(0, 3, size=(n, 4)).astype(float), copies, axis=0)
    secondary = np.array([False, False, True, True])
    mirror = rows[:, [0, 1, 3, 2]]
    one = bootstrap_sums(rows, 50, secondary=secondary, rng=3)
    two = bootstrap_sums(mirror, 50, secondary=secondary, rng=3)
    np.testing.assert_array_equal(one[:, :2], two[:, :2])
    # ... and the secondary sums still belong to whole clusters.
    total = rows.sum(axis=1)
    whole = bootstrap_sums(np.column_stack([rows, total]), 50, secondary=np.append(secondary, True), rng=3)
    np.testing.assert_allclose(whole[:, :4].sum(axis=1), whole[:, 4])


@pytest.mark.parametrize("copies", [1, 15])
def test_nested_sampling_has_the_law_of_plain_sampling(copies: int) -> None:
    rows = np.repeat([[1.0, 0.0], [1.0, 1.0], [1.0, 1.0], [2.0, 0.0]], copies, axis=0)
    n = 4 * copies
    nested = bootstrap_sums(rows, 60_000, secondary=np.array([False, True]), rng=4)
    plain = bootstrap_sums(rows, 60_000, rng=5)
    expected = n * np.cov(rows.T, bias=True)
    for drawn in (nested, plain):
        np.testing.assert_allclose(drawn.mean(axis=0), rows.sum(axis=0), atol=0.02 * np.sqrt(copies))
        np.testing.assert_allclose(np.cov(drawn.T), expected, atol=0.03 * copies)


def test_no_clusters_sum_to_zero() -> None:
    assert bootstrap_sums(np.zeros((0, 3)), 5, rng=1).tolist() == [[0.0] * 3] * 5


@given(
    st.lists(st.floats(-10, 10), min_size=1, max_size=60),
    st.floats(-12, 12),
    st.sampled_from([0.5, 0.9, 0.95]),
)
def test_percentile_intervals_are_numpy_quantiles_stretched_to_the_estimate(
    values: list[float], estimate: float, level: float
) -> None:
    samples = np.array(values)
    interval = percentile_interval(samples, np.array(estimate), level=level)
    low, high = np.quantile(samples, [(1 - level) / 2, (1 + level) / 2])
    assert interval.low == pytest.approx(min(low, estimate))
    assert interval.high == pytest.approx(max(high, estimate))


def test_undefined_resamples_are_left_out_until_they_are_the_majority() -> None:
    samples = np.array([[0.1, 0.1], [0.2, np.nan], [0.3, np.nan], [np.nan, np.nan]])
    interval = percentile_interval(samples, np.array([0.2, 0.1]), level=0.5)
    assert interval.low[0] == pytest.approx(np.quantile([0.1, 0.2, 0.3], 0.25))
    assert np.isnan([interval.low[1], interval.high[1]]).all()


def test_a_proportion_on_its_bound_gets_wilson_instead_of_width_zero() -> None:
    samples = np.column_stack([np.zeros(50), np.ones(50), np.full(50, 0.5)])
    interval = percentile_interval(
        samples, np.array([0.0, 1.0, 0.5]), bounds=(0.0, 1.0), n_trials=np.array([10, 38, 10])
    )
    assert interval.low.tolist() == [0.0, pytest.approx(0.9082, abs=1e-4), 0.5]
    assert interval.high.tolist() == [pytest.approx(0.2775, abs=1e-4), 1.0, 0.5]


def test_no_resamples_give_no_interval_and_impossible_settings_are_refused() -> None:
    interval = percentile_interval(np.zeros((0, 2)), np.array([0.1, 0.2]))
    assert interval.estimate.tolist() == [0.1, 0.2]
    assert np.isnan(interval.low).all()
    for settings in ((-1, 0.95), (10, 0.0), (10, 1.0), (10, 95.0)):
        with pytest.raises(InputError):
            check_resampling(*settings)


def test_p_values_are_never_zero_and_at_most_one() -> None:
    samples = np.column_stack([np.ones(999), np.zeros(999), np.linspace(-1, 1, 999)])
    p = two_sided_p(samples)
    assert p[0] == pytest.approx(2 / 1000)
    assert p[1] == 1.0
    assert p[2] == pytest.approx(1.0, abs=0.01)
    assert np.isnan(two_sided_p(np.full((5, 1), np.nan))).all()


def test_one_seed_makes_equal_generators_again_and_again() -> None:
    for rng in (5, np.random.default_rng(5)):
        seed = seed_of(rng)
        draws = [np.random.default_rng(seed).integers(1_000_000) for _ in range(2)]
        assert draws[0] == draws[1]
    assert seed_of(None).entropy != seed_of(None).entropy


def test_content_hashes_ignore_rounding_and_see_everything_else() -> None:
    rows = np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0 + 1e-12], [1.0, 2.001]])
    a, b, c, d = content_hash(rows)
    assert a == c
    assert len({a, b, d}) == 3


@pytest.mark.slow
def test_bootstrap_intervals_of_a_share_cover_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(11)
    n, truth, trials = 120, 0.3, 600
    covered = 0
    for _ in range(trials):
        size = rng.integers(1, 6, n)
        rows = np.column_stack([rng.binomial(size, truth), size]).astype(float)
        drawn = bootstrap_sums(rows, 400, rng=rng)
        interval = percentile_interval(
            drawn[:, 0] / drawn[:, 1], np.array(rows[:, 0].sum() / rows[:, 1].sum())
        )
        covered += interval.low <= truth <= interval.high
    assert 0.92 < covered / trials < 0.975  # 0.95 with a binomial standard error of 0.009
