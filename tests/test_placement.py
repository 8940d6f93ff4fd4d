"""Error placement: the estimating equation against simulation, and the simulator's own q as outside witness."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from difficulty.gaps import profile_difficulty
from difficulty.placement import error_placement, fit_placement, gap_ranks, inclusion_probabilities
from rank.exceptions import InputError
from rank.readers import read_gold, read_verdicts
from rank.tally import tally_verdicts
from simulate.judges import JudgeSettings, SimulatedJudge, place, simulate_judge
from simulate.population import draw_population, percentile_rank

QS = (-0.8, -0.4, 0.0, 0.4, 0.8)


def simulate(n: int, q: float, seed: int, *, flip_q: float | None = None) -> SimulatedJudge:
    people = draw_population(n, rng=1000 + seed)
    asked = JudgeSettings(runs=1, repeatability=1.0, agreement=0.75, flip_q=-q if flip_q is None else flip_q)
    return simulate_judge(people, q, settings=asked, rng=seed)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=20))
def test_gap_ranks_are_those_of_the_simulator(gaps: list[int]) -> None:
    values = np.array(gaps, dtype=float)
    np.testing.assert_allclose(gap_ranks(values), percentile_rank(values))


@pytest.mark.parametrize("q", [-0.9, -0.3, 0.0, 0.5, 0.8])
def test_inclusion_probabilities_against_placing_many_times(q: float) -> None:
    rng = np.random.default_rng(3)
    u = (np.arange(40) + 0.5) / 40
    hits = np.zeros(40)
    for _ in range(4000):
        hits[place(12, q, gap_rank=u, keys=np.log(rng.standard_exponential(40)))] += 1
    p = inclusion_probabilities(u, 12, q)
    assert p.sum() == pytest.approx(12)
    assert np.abs(hits / 4000 - p).max() < 0.01 + 4 * 0.5 / np.sqrt(4000)


@settings(max_examples=50)
@given(st.floats(-1, 1), st.integers(1, 29), st.integers(0, 10_000))
def test_inclusion_probabilities_add_up_and_are_monotone(q: float, size: int, seed: int) -> None:
    u = gap_ranks(np.random.default_rng(seed).integers(0, 15, 30))
    p = inclusion_probabilities(u, size, q)
    assert p.sum() == pytest.approx(size)
    assert ((p >= 0) & (p <= 1)).all()
    step = np.diff(p[np.argsort(u, kind="stable")])
    assert (step >= -1e-9).all() if q >= 0 else (step <= 1e-9).all()
    np.testing.assert_allclose(p, inclusion_probabilities(1 - u, size, -q), atol=1e-9)


def test_estimate_solves_its_equation_and_mirrors() -> None:
    rng = np.random.default_rng(5)
    u = gap_ranks(rng.random(300))
    placed = np.zeros(300, dtype=bool)
    placed[place(60, 0.4, gap_rank=u, keys=np.log(rng.standard_exponential(300)))] = True
    fit = fit_placement(u, placed, rng=1)
    assert inclusion_probabilities(u, 60, fit.q) @ u == pytest.approx(u[placed].sum(), abs=1e-6)
    mirrored = fit_placement(1 - u, placed, rng=1)
    assert mirrored.q == pytest.approx(-fit.q, abs=1e-6)
    assert fit.mean_rank == pytest.approx(u[placed].mean())


def test_marking_at_the_mean_rank_is_zero() -> None:
    u = (np.arange(40) + 0.5) / 40
    even = np.isin(np.arange(40), [0, 39, 5, 34, 12, 27])
    assert fit_placement(u, even, n_resamples=0).q == pytest.approx(0, abs=1e-6)


def test_limits_have_the_extreme_pairs_and_an_interval_with_width() -> None:
    u = gap_ranks(np.random.default_rng(2).random(200))
    far = fit_placement(u, u > 0.9, rng=1)
    close = fit_placement(u, u < 0.1, rng=1)
    assert far.q == far.high == 1.0
    assert close.q == close.low == -1.0
    assert 0.9 < far.low < 1.0
    assert close.high == pytest.approx(-far.low, abs=1e-6)


def test_resamples_agree_with_solving_each_of_them_exactly() -> None:
    rng = np.random.default_rng(8)
    u = gap_ranks(rng.random(120))
    placed = rng.random(120) < 0.3 * (0.4 + u)
    fit = fit_placement(u, placed, n_resamples=300, rng=1)
    exact = []
    for _ in range(300):
        drawn = rng.integers(0, 120, 120)
        exact.append(fit_placement(u[drawn], placed[drawn], n_resamples=0).q)
    assert np.mean(fit.samples) == pytest.approx(np.mean(exact), abs=4 * np.std(exact) / np.sqrt(150))
    assert np.std(fit.samples) == pytest.approx(np.std(exact), rel=0.2)
    assert fit.low <= fit.q <= fit.high


def test_equal_seeds_and_renamed_clusters_give_equal_intervals() -> None:
    rng = np.random.default_rng(4)
    u, placed = gap_ranks(rng.random(200)), rng.random(200) < 0.3
    cluster = rng.integers(0, 30, 200)
    one = fit_placement(u, placed, cluster=cluster, rng=7)
    shuffled = rng.permutation(200)
    two = fit_placement(u[shuffled], placed[shuffled], cluster=99 - cluster[shuffled], rng=7)
    assert (one.low, one.high) == pytest.approx((two.low, two.high), abs=1e-9)
    assert -1 <= one.low <= one.q <= one.high <= 1


@pytest.mark.parametrize(
    ("u", "placed", "reason"),
    [
        (np.linspace(0.01, 0.99, 20), np.zeros(20), "only 0 of 20"),
        (np.linspace(0.01, 0.99, 20), np.arange(20) < 4, "only 4 of 20"),
        (np.linspace(0.01, 0.99, 20), np.ones(20), "nearly all"),
        (np.full(20, 0.5), np.arange(20) < 8, "same gap"),
        (np.full(20, np.nan), np.arange(20) < 8, "no candidate pair has a known gap"),
        (np.zeros(0), np.zeros(0), "no candidate pair"),
    ],
)
def test_undefined_is_nan_with_a_reason(u: np.ndarray, placed: np.ndarray, reason: str) -> None:
    fit = fit_placement(u, placed)
    assert np.isnan([fit.q, fit.low, fit.high]).all()
    assert reason in fit.reason


def test_impossible_requests_are_refused() -> None:
    with pytest.raises(InputError, match="cannot be placed on 3"):
        inclusion_probabilities(np.array([0.2, 0.5, 0.8]), 4, 0.5)
    with pytest.raises(InputError, match="between -1"):
        inclusion_probabilities(np.array([0.2, 0.5, 0.8]), 2, 1.5)


@pytest.mark.parametrize("q", [-1.0, -0.6, 0.0, 0.6, 1.0])
def test_simulated_judge_gets_its_own_q_and_flip_q_back(q: float) -> None:
    judge = simulate(120, q, 3, flip_q=-q)
    tally = judge.to_tally()
    found = error_placement(tally, judge.to_human_gold().align(tally), n_resamples=200, rng=1)
    assert found.errors.n_placed == judge.errors.sum()
    assert found.flips.n_placed == judge.undecided.sum()
    assert found.flips.n_candidates == judge.population.n_pairs
    assert found.errors.n_candidates == (~judge.undecided).sum()
    # |q| = 1 is barred from the extreme pairs that already flip, so only its own estimate is exact.
    assert found.errors.q == pytest.approx(q, abs=0.1)
    assert found.flips.q == pytest.approx(-q, abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "repetitions"), [(50, 50), (200, 6)])
@pytest.mark.parametrize("q", QS)
def test_recovery_of_known_placement_bias_and_coverage(n: int, repetitions: int, q: float) -> None:
    estimates, covered = [], 0
    for seed in range(repetitions):
        judge = simulate(n, q, seed)
        tally = judge.to_tally()
        found = error_placement(tally, judge.to_human_gold().align(tally), n_resamples=300, rng=1)
        for fit, truth in ((found.errors, q), (found.flips, -q)):
            estimates.append([fit.q - truth, fit.samples.std()])
            covered += fit.low <= truth <= fit.high
    error, spread = np.array(estimates).T
    assert abs(error.mean()) < 0.01 + 3 * error.std() / np.sqrt(len(error))
    assert 0.7 < np.sqrt((spread**2).mean()) / np.sqrt((error**2).mean()) < (1.35 if n == 50 else 2.0)
    assert covered / len(error) > 0.95 - 3.5 * np.sqrt(0.95 * 0.05 / len(error))


@pytest.mark.slow
@pytest.mark.parametrize(("q", "flip_q"), [(0.5, -0.5), (-0.6, 0.3)])
def test_simulator_given_the_fitted_values_reproduces_the_bucket_table(q: float, flip_q: float) -> None:
    observed = simulate(60, q, 11, flip_q=flip_q)
    tally, gold = observed.to_tally(), observed.to_human_gold()
    found = error_placement(tally, gold.align(tally), n_resamples=0)
    names = ("swap_consistency", "accuracy")

    def bucket_table(judge: SimulatedJudge) -> np.ndarray:
        profile = profile_difficulty(judge.to_tally(), gold, n_resamples=0)
        assert profile.by_bucket is not None
        return np.array([profile.by_bucket.estimate[name] for name in names])

    asked = JudgeSettings(runs=1, repeatability=1.0, agreement=0.75, flip_q=found.flips.q)
    again = np.array(
        [
            bucket_table(simulate_judge(observed.population, found.errors.q, settings=asked, rng=seed))
            for seed in range(40)
        ]
    )
    z = (bucket_table(observed) - again.mean(axis=0)) / again.std(axis=0)
    assert np.abs(z).max() < 4
    wrong = JudgeSettings(runs=1, repeatability=1.0, agreement=0.75, flip_q=-flip_q)
    other = bucket_table(simulate_judge(observed.population, -q, settings=wrong, rng=1))
    assert np.abs((other - again.mean(axis=0)) / again.std(axis=0)).max() > 6


def test_real_tables_have_healthy_placement(shared_data: Path) -> None:
    tally = tally_verdicts(read_verdicts(shared_data / "summeval_coherence.csv"))
    gold = read_gold(shared_data / "summeval_coherence_gold.csv").align(tally)
    found = error_placement(tally, gold, rng=1)
    assert found.flips.q < 0
    assert found.errors.q < 0
    assert found.errors.high < 0.2
    profile = profile_difficulty(tally, read_gold(shared_data / "summeval_coherence_gold.csv"), n_resamples=0)
    # Expected share of flips per bucket under the one fitted number, beside the observed one.
    assert profile.buckets is not None
    rank = gap_ranks(gold.gap)
    p = inclusion_probabilities(rank, found.flips.n_placed, found.flips.q)
    expected = np.bincount(profile.buckets.bucket, p) / p.sum()
    assert np.abs(expected - profile.share_of_flips).max() < 0.04


def calibrated_flips(gap: np.ndarray, n_judges: int, rng: np.random.Generator) -> np.ndarray:
    """Flips of judges that draw one verdict per order from the strengths."""
    p = 1 / (1 + np.exp(-gap))
    first, second = rng.random((2, n_judges, len(gap))) < p
    return (first != second).sum(axis=1)


def test_expected_flips_are_those_of_simulated_calibrated_judges() -> None:
    judge = simulate(40, 0.0, 1)
    profile = profile_difficulty(judge.to_tally(), judge.to_gold(), gold_scale="strengths", n_resamples=0)
    reference = profile.reference
    assert reference is not None
    flips = calibrated_flips(judge.population.gap, 4000, np.random.default_rng(1))
    spread = flips.std()
    assert reference.expected_flips[-1] == pytest.approx(flips.mean(), abs=4 * spread / np.sqrt(4000))
    assert reference.expected_flips_sd[-1] == pytest.approx(spread, rel=0.05)
    assert reference.observed_flips[-1] == judge.undecided.sum() == reference.observed_flips[:-1].sum()


@pytest.mark.parametrize(
    ("flip_rate", "words"),
    [(0.60, "Of 468 flips, about "), (0.1, "Its 78 flips are fewer than a calibrated judge would show")],
)
def test_sentence_about_a_calibrated_judge(flip_rate: float, words: str) -> None:
    from difficulty.__main__ import describe_calibrated
    from difficulty.study import StudyOptions, study_group

    asked = JudgeSettings(runs=1, repeatability=1.0, agreement=0.65, flip_rate=flip_rate)
    judge = simulate_judge(draw_population(40, rng=1), 0.0, settings=asked, rng=1)
    for scale, given_that in (("strengths", "scores taken as declared"), ("rescale", "the factor that fits")):
        study = study_group(judge.to_tally(), judge.to_gold(), StudyOptions(gold_scale=scale, n_resamples=0))
        sentence = describe_calibrated(study)
        assert given_that in sentence
        if scale == "strengths":
            assert words in sentence
    assert (
        describe_calibrated(study_group(judge.to_tally(), judge.to_gold(), StudyOptions(n_resamples=0))) == ""
    )


def test_study_carries_placement_into_every_output() -> None:
    from difficulty.study import StudyOptions, study_group

    judge = simulate(40, 0.3, 1)
    study = study_group(judge.to_tally(), judge.to_human_gold(), StudyOptions(n_resamples=50), rng=1)
    assert study.placement is not None
    for row in (study.overall(), study.flat(), study.to_dict()["overall"]):
        assert row["q_hat"] == study.placement.errors.q
        assert row["flip_q_hat_low"] <= row["flip_q_hat"] <= row["flip_q_hat_high"]
    without = study_group(judge.to_tally(), None, StudyOptions(n_resamples=50), rng=1).flat()
    assert np.isnan(without["q_hat"])
    assert without["q_hat_reason"] == "there is no gold"
