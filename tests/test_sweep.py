"""Sweeps: measured against the analyses on the same verdicts, common random numbers, the experiment "
"itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kendalltau, spearmanr

from difficulty.gaps import profile_difficulty
from difficulty.reliability import metrics_from_sums, pair_statistics
from difficulty.triads import triads_of_tally
from rank.bradley_terry import fit_bradley_terry
from rank.exceptions import InputError
from simulate.judges import JudgeSettings, prepare_judge, simulate_judge
from simulate.population import draw_population
from simulate.sweep import PRESETS, bootstrap_spearman, flatten_row, sweep

SMALL = {"n_items": 30}
SPARSE = {"n_items": 30, "pairs_per_item": 8}
RELIABILITY = (
    "repeatability",
    "flip_rate",
    "swap_consistency",
    "inconsistent_pair_primacy",
    "accuracy",
    "decisive_accuracy",
    "trustworthy_rate",
    "trustworthy_rate_upper",
    "trustworthy_rate_joint",
)


def judge_of_sweep(seed, q, judge=None, population=SMALL):
    """Return the judge of the only repetition of a sweep, by the documented order of spawned children."""
    people_rng, judge_rng = np.random.default_rng(seed).spawn(1)[0].spawn(2)
    return simulate_judge(draw_population(**population, rng=people_rng), q, settings=judge, rng=judge_rng)


def rows_equal(one, two):
    return all(
        a == b or (a != a and b != b) for a, b in zip(flatten_row(one).values(), flatten_row(two).values())
    )


@pytest.mark.parametrize(
    "population", [SMALL, SPARSE, {"n_items": 31, "votes": 4, "design": "random", "n_pairs": 200}]
)
@pytest.mark.parametrize("runs", [1, 4, 5])
@pytest.mark.parametrize("kind", ["errors", "blind-zone"])
def test_rows_agree_with_the_analyses_of_the_same_verdicts(population, runs, kind):
    """Outside witness: difficulty.reliability, difficulty.gaps and difficulty.triads on the tally."""
    judge = JudgeSettings(runs=runs, repeatability=0.9 if runs > 2 else 1.0, judge=kind)
    (row,) = sweep([0.4], judge=judge, population=population, rng=5, n_resamples=0).rows
    answer = judge_of_sweep(5, 0.4, judge, population)
    tally, human = answer.to_tally(), answer.to_human_gold()
    statistics = pair_statistics(tally.counts, human.align(tally))
    overall = metrics_from_sums(statistics.sum(axis=0))
    latent = metrics_from_sums(pair_statistics(tally.counts, answer.to_gold().align(tally)).sum(axis=0))
    for name in RELIABILITY:
        if name in row:
            assert row[name] == pytest.approx(float(overall[name]), abs=1e-12, nan_ok=True), name
    assert row["accuracy_latent"] == pytest.approx(float(latent["accuracy"]), abs=1e-12)

    theta = answer.population.theta
    gaps = np.abs(theta[:, None] - theta[None, :])[np.triu_indices(len(theta), 1)]
    low, high = np.quantile(gaps, [0.25, 0.75])
    for block, inside in (("close", answer.population.gap <= low), ("far", answer.population.gap >= high)):
        metrics = metrics_from_sums(statistics[inside].sum(axis=0))
        assert row[block]["n_pairs"] == inside.sum()
        for name in RELIABILITY:
            assert row[block][name] == pytest.approx(float(metrics[name]), abs=1e-12, nan_ok=True), (
                block,
                name,
            )

    triads = triads_of_tally(tally, answer.to_gold().align(tally))[0]
    assert row["triads"]["n_complete"] == triads.n_complete
    assert row["triads"]["n_cyclic"] == triads.n_cyclic
    assert row["triads"]["n_mixed"] == triads.n_mixed
    assert row["triads"]["n_inequality_valid"] == triads.n_inequality_valid


def test_close_and_far_are_the_buckets_of_the_difficulty_profile():
    (row,) = sweep([0.4], population=SMALL, rng=5, n_resamples=0).rows
    answer = judge_of_sweep(5, 0.4)
    profile = profile_difficulty(answer.to_tally(), answer.to_gold(), n_resamples=2, rng=0)
    buckets = profile.to_frame()
    assert row["close"]["n_pairs"] == buckets["n_pairs"].iloc[0]
    assert row["far"]["n_pairs"] == buckets["n_pairs"].iloc[-1]
    assert row["close"]["swap_consistency"] == pytest.approx(buckets["swap_consistency"].iloc[0], abs=1e-12)
    assert row["far"]["swap_consistency"] == pytest.approx(buckets["swap_consistency"].iloc[-1], abs=1e-12)


def test_bucket_bounds_are_inclusive_on_gold_with_equal_gaps():
    """Gaps of 12 equidistant items are 1 to 11; Q1 = 2 and Q3 = 6 are gaps that occur."""
    (row,) = sweep([0.4], population={"theta": np.arange(12.0)}, rng=5, n_resamples=0).rows
    assert row["close"]["n_pairs"] == 11 + 10
    assert row["far"]["n_pairs"] == sum(12 - gap for gap in range(6, 12))


@pytest.mark.parametrize(
    "theta", [np.arange(12) * 0.1, np.round(np.arange(12) * 0.1, 1), np.arange(12) / 7 + 1e3]
)
def test_gaps_that_are_equal_on_paper_are_equal_in_buckets_and_placement(theta):
    population = {"theta": theta, "human": "deterministic"}
    (row,) = sweep([0.4], population=population, rng=5, n_resamples=0).rows
    answer = judge_of_sweep(5, 0.4, population=population)
    assert len(np.unique(answer.population.gap_rank)) == 11
    buckets = profile_difficulty(answer.to_tally(), answer.to_gold(), n_resamples=2, rng=0).to_frame()
    for block, place in (("close", 0), ("far", -1)):
        assert row[block]["n_pairs"] == buckets["n_pairs"].iloc[place] == 21
        assert row[block]["swap_consistency"] == pytest.approx(
            buckets["swap_consistency"].iloc[place], abs=1e-12
        )


def test_strengths_that_are_equal_on_paper_are_won_by_a_coin():
    theta = [0.1 + 0.2, 0.3]
    wins = [
        draw_population(theta=theta, human="deterministic", rng=seed).human_i.item() for seed in range(60)
    ]
    assert 10 < sum(wins) < 50


def test_every_repetition_has_a_child_of_its_own():
    (row,) = sweep([0.4], n_reps=3, population=SMALL, rng=8).rows
    rho = []
    for child in np.random.default_rng(8).spawn(3):
        people_rng, judge_rng = child.spawn(2)
        answer = simulate_judge(draw_population(**SMALL, rng=people_rng), 0.4, rng=judge_rng)
        scores = np.zeros(30)
        np.add.at(scores, answer.population.item_i, answer.counts[..., 0].sum(axis=1))
        np.add.at(scores, answer.population.item_j, answer.counts[..., 1].sum(axis=1))
        rho.append(spearmanr(answer.population.theta, scores).statistic)
    assert row["spearman"] == pytest.approx(np.mean(rho), abs=1e-12)
    assert (row["spearman_low"], row["spearman_high"]) == pytest.approx(
        tuple(np.quantile(rho, [0.025, 0.975]))
    )


def test_rank_correlations_agree_with_scipy_on_round_robin_scores():
    (row,) = sweep([0.2], population=SMALL, rng=3, n_resamples=0).rows
    answer = judge_of_sweep(3, 0.2)
    people, scores, votes = answer.population, np.zeros(30), np.zeros(30)
    np.add.at(scores, people.item_i, answer.counts[..., 0].sum(axis=1))
    np.add.at(scores, people.item_j, answer.counts[..., 1].sum(axis=1))
    np.add.at(votes, people.item_i, people.human_votes_i)
    np.add.at(votes, people.item_j, people.votes - people.human_votes_i)
    assert row["spearman"] == pytest.approx(spearmanr(people.theta, scores).statistic, abs=1e-12)
    assert row["kendall"] == pytest.approx(kendalltau(people.theta, scores).statistic, abs=1e-12)
    assert row["human_spearman"] == pytest.approx(spearmanr(people.theta, votes).statistic, abs=1e-12)
    (row,) = sweep([0.2], population=SMALL, gold="human", rng=3, n_resamples=0).rows
    assert row["spearman"] == pytest.approx(spearmanr(votes, scores).statistic, abs=1e-12)
    assert row["kendall"] == pytest.approx(kendalltau(votes, scores).statistic, abs=1e-12)


def test_round_robin_scores_have_the_order_of_a_bradley_terry_fit():
    (row,) = sweep([0.2], population=SMALL, rng=3, n_resamples=0).rows
    answer = judge_of_sweep(3, 0.2)
    people = answer.population
    fit = fit_bradley_terry(people.item_i, people.item_j, answer.counts.sum(axis=1)[:, :3])
    assert row["spearman"] == pytest.approx(spearmanr(people.theta, np.round(fit.strengths, 7)).statistic)


def test_sparse_designs_are_ranked_by_bradley_terry_strengths():
    (row,) = sweep([0.2], population=SPARSE, rng=3, n_resamples=0).rows
    answer = judge_of_sweep(3, 0.2, population=SPARSE)
    people = answer.population
    fit = fit_bradley_terry(people.item_i, people.item_j, answer.counts.sum(axis=1)[:, :3], alpha=0.1)
    assert row["spearman"] == pytest.approx(spearmanr(people.theta, np.round(fit.strengths, 7)).statistic)


def test_trustworthy_rate_is_the_same_for_every_q_while_rho_falls():
    """The experiment: C, phi, A and T = C (A - phi/2) are exact in every repetition, only rho moves."""
    q_values = [-1.0, -0.5, 0.0, 0.5, 1.0]
    rows = sweep(q_values, n_reps=5, population={"n_items": 100}, rng=1).rows
    rho = [row["spearman"] for row in rows]
    assert rho == sorted(rho, reverse=True)
    assert rho[0] > 0.9
    assert rho[-1] < -0.5
    for row in rows:
        assert row["repeatability"] == pytest.approx(0.95, abs=1e-12)
        assert row["flip_rate"] == pytest.approx(0.2, abs=1e-12)
        assert row["accuracy"] == pytest.approx(0.6, abs=1e-12)
        assert row["trustworthy_rate"] == pytest.approx(0.95 * (0.6 - 0.1), abs=1e-12)
        assert row["accuracy_sd"] == pytest.approx(0.0, abs=1e-12)
        assert row["human_spearman"] == rows[0]["human_spearman"]
        assert row["spearman_low"] < row["spearman"] < row["spearman_high"]


def test_always_first_judge_is_unanimous_flips_everywhere_and_is_trusted_nowhere():
    asked = JudgeSettings(agreement=0.5, flip_rate=1.0, primacy=1.0, repeatability=1.0)
    (row,) = sweep([0.5], judge=asked, population=SMALL, rng=1).rows
    for name, value in (("repeatability", 1), ("flip_rate", 1), ("accuracy", 0.5), ("trustworthy_rate", 0)):
        assert row[name] == value
    assert row["inconsistent_pair_primacy"] == 1
    assert np.isnan(row["spearman"])  # all items have the same score
    assert np.isnan(row["spearman_low"])
    assert np.isnan(row["kendall"])


def test_one_run_leaves_repeatability_and_trustworthy_rate_unobserved():
    asked = JudgeSettings(runs=1, repeatability=1.0)
    (row,) = sweep([0.5], judge=asked, population=SMALL, rng=1, n_resamples=0).rows
    assert np.isnan([row["repeatability"], row["trustworthy_rate"], row["trustworthy_rate_joint"]]).all()
    assert row["trustworthy_rate_upper"] == pytest.approx(0.5, abs=1 / 435)


def test_a_row_does_not_depend_on_the_other_values_of_q():
    together = sweep([-0.5, 0.3, 0.9], n_reps=3, population=SMALL, rng=4).rows
    alone = sweep([0.3], n_reps=3, population=SMALL, rng=4).rows
    assert rows_equal(together[1], alone[0])
    one_rep = [sweep(q_values, population=SMALL, rng=4).rows for q_values in ([0.1, 0.3], [0.3])]
    assert rows_equal(one_rep[0][1], one_rep[1][0])


def test_rows_do_not_depend_on_the_number_of_processes():
    one, two = (sweep([0.3, 0.8], n_reps=7, population=SPARSE, rng=4, n_jobs=jobs) for jobs in (1, 2))
    assert all(rows_equal(a, b) for a, b in zip(one.rows, two.rows))
    assert one.settings == two.settings


def test_seeds_decide():
    one, same, other = (sweep([0.3], population=SMALL, rng=seed, n_resamples=0).rows[0] for seed in (1, 1, 2))
    assert rows_equal(one, same)
    assert one["spearman"] != other["spearman"]


def test_progress_wraps_every_repetition():
    seen = []

    def watch(iterable):
        for element in iterable:
            seen.append(element.shape[0])
            yield element

    sweep([0.1, 0.2], n_reps=4, population=SMALL, rng=1, progress=watch)
    assert seen == [2, 2, 2, 2]


@pytest.mark.slow
@pytest.mark.parametrize("population", [{"n_items": 60}, {"n_items": 60, "pairs_per_item": 20}])
def test_bootstrap_standard_error_is_the_spread_over_judges(population):
    """The standard error against the spread of rho over judges that differ in their errors and flips only."""
    people = draw_population(**population, rng=2)
    asked = JudgeSettings(agreement=0.7, flip_rate=0.1)
    rho, widths = [], []
    for seed in range(60):
        answer = simulate_judge(people, 0.0, settings=asked, rng=seed)
        low, high = bootstrap_spearman(answer, n_resamples=200, rng=seed)
        rho.append((np.arctanh(low) + np.arctanh(high)) / 2)
        widths.append((np.arctanh(high) - np.arctanh(low)) / 2 / 1.96)
    # Not equal: people are fixed here, and the number of errors is exact.
    assert 0.6 < np.mean(widths) / np.std(rho, ddof=1) < 1.7


def test_bootstrap_interval_contains_the_estimate_and_stays_in_range():
    for q in (-1.0, 0.0, 1.0):
        (row,) = sweep([q], population={"n_items": 12}, rng=1).rows
        assert -1 <= row["spearman_low"] < row["spearman"] < row["spearman_high"] <= 1
    perfect = JudgeSettings(agreement=1.0, flip_rate=0.0, repeatability=1.0)
    (row,) = sweep([0.0], judge=perfect, population={"n_items": 12, "human": "deterministic"}, rng=1).rows
    assert row["spearman"] == row["spearman_high"] == 1.0
    assert row["accuracy"] == row["accuracy_latent"] == row["trustworthy_rate"] == 1.0
    assert row["triads"]["cyclic_share"] == 0.0


def test_bootstrap_works_on_a_design_in_several_parts():
    people = draw_population(40, pairs_per_item=1, votes=5, rng=2)  # 20 islands of two items
    answer = simulate_judge(people, 0.0, rng=3)
    low, high = bootstrap_spearman(answer, gold="human", n_resamples=50, rng=1)
    assert -1 <= low <= high <= 1


def test_one_newton_step_is_close_to_refitting_every_resample():
    from simulate.sweep import _resampled_strengths

    answer = judge_of_sweep(3, 0.0)
    people = answer.population
    wins = answer.counts[..., 0].sum(axis=1)
    step, second = _resampled_strengths(people, wins, 10, 2, 0)
    m = people.n_pairs
    weights = np.bincount(np.random.default_rng(0).integers(0, m, m), minlength=m)
    counts = np.stack([wins, 10 - wins, 0 * wins], axis=1)
    full = fit_bradley_terry(people.item_i, people.item_j, counts + np.array([0.1, 0.1, 0])).strengths
    counts = counts * weights[:, None] + np.array([0.1, 0.1, 0])
    refit = fit_bradley_terry(people.item_i, people.item_j, counts).strengths
    assert np.std(step - refit) < 0.35 * np.std(refit - full)
    assert np.corrcoef(step - full, refit - full)[0, 1] > 0.95
    assert (step != second).any()


def test_spread_scheme_with_q_zero_errs_on_near_ties():
    judge = JudgeSettings(scheme="spread", flip_rate=0.0)
    near, anywhere = sweep([0.0, 1.0], judge=judge, population={"n_items": 100}, rng=1, n_resamples=0).rows
    assert near["close"]["accuracy"] < 0.25
    assert near["far"]["accuracy"] > 0.85
    assert anywhere["close"]["accuracy"] == pytest.approx(0.6, abs=0.05)
    assert near["spearman"] > anywhere["spearman"]


def test_blind_zone_reports_the_spread_of_its_agreement():
    judge = JudgeSettings(judge="blind-zone", flip_rate=0.0)
    (row,) = sweep([0.3], n_reps=20, judge=judge, population=SMALL, rng=1).rows
    # Binomial(2k, 1/2) wrong pairs out of 435.
    assert row["accuracy_sd"] == pytest.approx(np.sqrt(2 * 174 * 0.25) / 435, rel=0.5)


@pytest.mark.parametrize("name", ["figure1", "figure2"])
def test_presets_are_the_published_settings(name):
    preset = PRESETS[name]
    judge = JudgeSettings(**preset["judge"])
    people = draw_population(**preset["population"], rng=0)
    assert (people.n_items, people.n_pairs, people.votes, people.strengths) == (200, 4000, 1, "normal")
    assert (judge.scheme, judge.agreement, judge.flip_rate, judge.runs) == ("spread", 0.6, 0.0, 1)
    assert judge.judge == {"figure1": "errors", "figure2": "blind-zone"}[name]
    assert preset["q_values"] == (0.1, 0.25, 0.4, 0.55, 0.7, 0.85)
    assert (preset["gold"], preset["n_reps"]) == ("human", 200)
    result = sweep(
        preset["q_values"][::5], n_reps=2, judge=judge, population=preset["population"], gold="human", rng=0
    )
    assert result.rows[0]["spearman"] > result.rows[1]["spearman"]


def test_a_shared_preparation_answers_as_a_judge_of_its_own():
    people = draw_population(30, rng=1)
    assert (
        prepare_judge(people, rng=2).answer(0.4).counts == simulate_judge(people, 0.4, rng=2).counts
    ).all()


def test_sweep_as_json_shape_and_as_table():
    result = sweep([0.0, 0.5], population=SMALL, rng=1, n_resamples=0)
    data = result.to_dict()
    assert set(data) == {"settings", "rows"}
    assert {"q", "spearman", "spearman_low", "spearman_high", "kendall", "accuracy", "repeatability"} <= set(
        data["rows"][0]
    )
    assert {"flip_rate", "trustworthy_rate", "trustworthy_rate_joint", "accuracy_latent"} <= set(
        data["rows"][0]
    )
    assert {"human_spearman", "close", "far", "triads"} <= set(data["rows"][0])
    frame = result.to_frame()
    assert len(frame) == 2
    assert frame["close_swap_consistency"].between(0, 1).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"q_values": []}, "no value of q"),
        ({"n_reps": 0}, "reps must be"),
        ({"n_jobs": 0}, "jobs must be"),
        ({"gold": "silver"}, "gold must be one of latent, human"),
        ({"q_values": [2.0]}, "q must be between"),
    ],
)
def test_impossible_sweeps_are_refused_in_a_sentence(arguments, message):
    with pytest.raises(InputError, match=message):
        sweep(**{"population": SMALL, "rng": 0, **arguments})


@pytest.mark.parametrize("n_values", [1, 2, 3])
def test_a_sparse_design_of_two_pairs_is_swept_for_any_number_of_values(n_values):
    rows = sweep(np.linspace(0, 1, n_values), population={"n_items": 5, "n_pairs": 2}, rng=1).rows
    assert len(rows) == n_values


def test_constant_strengths_have_no_rho_and_no_buckets():
    (row,) = sweep([0.0], population={"theta": np.ones(12)}, rng=0).rows
    assert np.isnan(row["spearman"])
    assert row["close"]["n_pairs"] == row["far"]["n_pairs"] == 0
    assert np.isnan(row["close"]["accuracy"])
    assert row["accuracy_latent"] == 0.0  # a tie in gold is matched by ties only


def test_replaced_settings_are_checked_again():
    with pytest.raises(InputError, match="ceiling"):
        replace(JudgeSettings(), agreement=0.99)
