"""Rank correlations and the recovery of the gold ranking."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rank.bradley_terry import fit_bradley_terry
from rank.exceptions import InputError, NoMaximumError
from rank.gold import Gold, check_gold
from rank.recovery import (
    Recovery,
    RecoveryProblem,
    cluster_keys,
    is_balanced,
    kendall,
    midranks,
    pool_pairs,
    rank_values,
    recover_ranking,
    resample_clusters,
    spearman,
)
from simulate.judges import JudgeSettings, simulate_judge
from simulate.population import draw_population
from tests.strategies import mirrored, relabelled, rows_of, studies, tally_of

small = st.integers(-2, 2).map(float)


def gold_of(**scores: float) -> Gold:
    return check_gold(pd.DataFrame({"item": list(scores), "score": list(scores.values())}))


def fields(r: Recovery) -> dict[str, float]:
    return {k: v for k, v in vars(r).items() if isinstance(v, float)}


# --- coefficients
# --------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(small, small), min_size=2, max_size=12))
def test_coefficients_equal_scipy_with_ties(rows: list[tuple[float, float]]) -> None:
    a, b = np.array(rows).T
    np.testing.assert_array_equal(midranks(a), stats.rankdata(a))
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        assert math.isnan(spearman(a, b))
        assert math.isnan(kendall(a, b))
    else:
        assert float(spearman(a, b)) == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-12)
        assert float(kendall(a, b)) == pytest.approx(stats.kendalltau(a, b).statistic, abs=1e-12)


def test_batches_equal_their_rows_and_broadcast() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 5, size=(3, 4, 9)).astype(float), rng.normal(size=9)
    for function, witness in ((spearman, stats.spearmanr), (kendall, stats.kendalltau)):
        found = function(a, b)
        assert found.shape == (3, 4)
        expected = [[witness(row, b).statistic for row in block] for block in a]
        np.testing.assert_allclose(found, expected, atol=1e-12)
    bad = a.copy()
    bad[1, 2, 3] = np.nan
    for function in (spearman, kendall):
        assert np.isnan(function(bad, b)).sum() == 1
        assert np.isnan(function(bad, b)[1, 2])


def test_case_15_midranks() -> None:
    a, b = np.array([1, 1, 1, 1, 2]), np.array([5, 4, 3, 2, 1])
    assert float(spearman(a, b)) == pytest.approx(-0.7071, abs=5e-5)
    assert float(spearman(b, b)) == 1.0
    assert float(kendall(b, -b)) == -1.0


# --- ranking
# --------------------------------------------------------------------------------------------------------


@given(st.integers(3, 6), st.integers(0, 10**6))
def test_in_a_balanced_round_robin_strengths_are_in_the_order_of_scores(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    i, j = np.triu_indices(n, 1)
    wins = rng.integers(1, 8, size=(len(i), 1)).astype(float)
    wins = np.concatenate([wins, 8 - wins], axis=1)
    assert is_balanced(i, j, wins[None], n)
    scores, defined = rank_values(i, j, wins[None], n)
    assert defined[0]
    strengths = fit_bradley_terry(
        i, j, np.column_stack([wins, np.zeros(len(i))]), std_errors="none"
    ).strengths
    np.testing.assert_array_equal(midranks(scores[0]), midranks(np.round(strengths, 7)))


def test_unbalanced_designs_are_fitted_and_undefined_ones_are_undefined() -> None:
    i, j = np.array([0, 1, 0]), np.array([1, 2, 2])
    wins = np.array([[[3.0, 1], [1, 2], [1, 1]], [[1.0, 0], [1, 0], [1, 1]], [[1.0, 0], [1, 0], [0, 0]]])
    values, defined = rank_values(i, j, wins, 3)
    assert defined.tolist() == [True, True, False]
    counts = np.concatenate([wins[0], np.zeros((3, 1))], axis=1)
    np.testing.assert_allclose(values[0], fit_bradley_terry(i, j, counts).strengths, atol=1e-6)


@given(studies(kinds=("items",), max_judges=1))
def test_rho_equals_scipy_on_the_strengths_of_the_general_fit(
    case: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    frame, gold_frame = case
    tally, gold = tally_of(frame), check_gold(gold_frame)
    r = recover_ranking(tally, gold, level="system", n_resamples=0, alpha=0.5)
    valid = tally.rows(tally.counts[..., :3].sum(axis=(1, 2)) > 0)
    score = gold.item_scores(valid)
    if not valid.n_pairs:
        assert r.reason == "there is no valid verdict"
        return
    pooled = pool_pairs(valid)
    known = ~np.isnan(score[pooled.items])
    if known.sum() < 2 or np.ptp(score[pooled.items][known]) == 0:
        assert math.isnan(r.spearman)
        assert r.reason
        return
    place = pooled.pair_of_row
    counts = np.zeros((len(pooled.item_i), 3))
    np.add.at(counts, place, valid.counts[..., :3].sum(axis=1))
    try:
        fit = fit_bradley_terry(pooled.item_i, pooled.item_j, counts, alpha=0.5, std_errors="none")
    except NoMaximumError:  # islands: nothing connects them, whatever alpha
        assert math.isnan(r.spearman)
        assert r.reason
        return
    strengths = np.round(fit.strengths[known], 6)
    if np.ptp(strengths) == 0:
        assert r.reason == "the judge ranks all items equally" or known.sum() == 2
        assert math.isnan(r.spearman)
    else:
        expected = stats.spearmanr(strengths, score[pooled.items][known]).statistic
        assert r.spearman == pytest.approx(expected, abs=1e-9)
        expected = stats.kendalltau(strengths, score[pooled.items][known]).statistic
        assert r.kendall == pytest.approx(expected, abs=1e-9)


@given(studies(kinds=("items",), max_judges=1), st.randoms(use_true_random=False))
def test_case_28_recovery_survives_renaming_shuffling_and_mirroring_intervals_included(
    case: tuple[pd.DataFrame, pd.DataFrame], random
) -> None:
    frame, gold = case
    items = sorted({*frame["item_first"], *frame["item_second"]})
    names = dict(zip(items, random.sample(["q", "r", "s", "t", "u"], len(items)), strict=True))
    options = {"n_resamples": 40, "rng": 5, "alpha": 0.3}
    one = recover_ranking(tally_of(frame), check_gold(gold), **options)
    changed = relabelled(frame, names).sample(frac=1, random_state=2)
    two = recover_ranking(tally_of(changed), check_gold(relabelled(gold, names)), **options)
    three = recover_ranking(tally_of(mirrored(frame)), check_gold(gold), **options)
    for other in (two, three):
        assert fields(other) == pytest.approx(fields(one), abs=1e-9, nan_ok=True)


@given(studies(kinds=("items",), max_judges=1))
def test_recovery_intervals_contain_the_estimate_and_stay_in_range(
    case: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    frame, gold = case
    r = recover_ranking(tally_of(frame), check_gold(gold), n_resamples=40, alpha=0.3, rng=1)
    for value, low, high in (
        (r.spearman, r.spearman_low, r.spearman_high),
        (r.kendall, r.kendall_low, r.kendall_high),
        (r.spearman, r.spearman_items_low, r.spearman_items_high),
    ):
        assert math.isnan(low) == math.isnan(high)
        assert math.isnan(low) or -1 <= low <= value <= high <= 1
    assert not math.isnan(r.spearman) or r.reason


# --- levels
# --------------------------------------------------------------------------------------------------------


def per_context() -> tuple[pd.DataFrame, Gold]:
    """Three contexts with their own items and orders: right, reversed, and one with constant gold."""
    rows, gold = [], []
    for context, order, scores in (("1", "abc", (3, 2, 1)), ("2", "def", (1, 2, 3)), ("3", "ghi", (1, 1, 1))):
        for x, y in itertools.combinations(order, 2):
            rows += [(context, x, y, "first"), (context, y, x, "second")]
        gold += [(context, item, score) for item, score in zip(order, scores, strict=True)]
    frame = pd.DataFrame(rows, columns=["context", "item_first", "item_second", "verdict"])
    return frame, check_gold(pd.DataFrame(gold, columns=["context", "item", "score"]))


def test_items_of_one_context_each_are_ranked_inside_contexts_and_averaged() -> None:
    frame, gold = per_context()
    r = recover_ranking(tally_of(frame), gold, n_resamples=200, rng=1)
    assert r.level == "context"
    assert (r.spearman, r.kendall) == (0, 0)
    assert (r.n_contexts, r.n_contexts_left_out) == (2, 1)
    assert r.spearman_sd == pytest.approx(np.std([1, -1], ddof=1))
    assert (r.spearman_low, r.spearman_high) == (-1, 1)


def test_items_that_recur_are_pooled_and_gold_per_context_is_averaged() -> None:
    frame = pd.concat([rows_of("a>b, b>c, a>c, c>a", context=str(k)) for k in range(3)])
    gold = pd.DataFrame(
        [(str(k), item, score + k) for k in range(3) for item, score in (("a", 3), ("b", 2), ("c", 1))],
        columns=["context", "item", "score"],
    )
    r = recover_ranking(tally_of(frame), check_gold(gold), n_resamples=50, rng=1)
    assert (r.level, r.spearman, r.n_items) == ("system", 1.0, 3)
    forced = recover_ranking(tally_of(frame), check_gold(gold), level="context", n_resamples=50, rng=1)
    assert (forced.level, forced.spearman, forced.n_contexts) == ("context", 1.0, 3)
    with pytest.raises(InputError, match="level 'corpus' is unknown"):
        recover_ranking(tally_of(frame), check_gold(gold), level="corpus")


def test_many_contexts_give_the_same_rho_as_few() -> None:
    # Above 64 contexts rows are found by bisection instead of comparison.
    frame, gold = [], []
    rng = np.random.default_rng(2)
    for k in range(80):
        names = [f"{k}-{x}" for x in "abc"]
        for x, y in itertools.combinations(names, 2):
            frame.append((str(k), x, y, rng.choice(["first", "second", "tie"])))
        gold += [(str(k), item, s) for item, s in zip(names, rng.permutation(3), strict=True)]
    table = pd.DataFrame(frame, columns=["context", "item_first", "item_second", "verdict"])
    checked = check_gold(pd.DataFrame(gold, columns=["context", "item", "score"]))
    every = RecoveryProblem(tally_of(table), checked)
    assert every.level == "context"
    rho = every.context_rho()
    for k in range(0, 80, 9):
        one = RecoveryProblem(
            tally_of(table[table["context"] == str(k)]), checked, level="context"
        ).context_rho()
        index = sorted(map(str, range(80))).index(str(k))
        assert rho[index] == pytest.approx(one[0], nan_ok=True)


# --- what is undefined, and why
# --------------------------------------------------------------------------------------------------------


def test_case_14_constant_gold_has_no_rho() -> None:
    r = recover_ranking(tally_of(rows_of("a>b, b>c, c>a")), gold_of(a=1, b=1, c=1))
    assert math.isnan(r.spearman)
    assert r.reason == "gold is the same for all ranked items"


def test_case_24_two_items_and_one_pair() -> None:
    r = recover_ranking(tally_of(rows_of("a>b, b<a")), gold_of(a=2, b=1), rng=1)
    assert r.spearman == 1
    assert math.isnan(r.spearman_low)
    assert "with two items" in r.reason
    assert "1 ranked item(s) have gold" in recover_ranking(tally_of(rows_of("a>b")), gold_of(a=2)).reason


def test_no_ranking_comes_with_the_sentence_of_the_fit() -> None:
    r = recover_ranking(tally_of(rows_of("a>b x2, b>a, c>d, d>c")), gold_of(a=4, b=3, c=2, d=1))
    assert math.isnan(r.spearman)
    assert all(name in r.reason for name in "abcd")
    assert recover_ranking(tally_of(rows_of("a?b")), gold_of(a=2, b=1)).reason == "there is no valid verdict"


def test_a_single_context_has_no_interval_over_contexts() -> None:
    frame = rows_of("a>b, b>c, a>c, c<a, b<a, c<b", context="only")
    r = recover_ranking(tally_of(frame), gold_of(a=3, b=2, c=1), n_resamples=50, rng=1)
    assert r.spearman == 1
    assert np.isnan([r.spearman_low, r.kendall_high]).all()
    assert "a single context" in r.reason


def test_pair_gold_has_no_rank_recovery() -> None:
    gold = check_gold(pd.DataFrame({"item_a": ["a"], "item_b": ["b"], "winner": ["a"]}))
    with pytest.raises(InputError, match="pair gold has none"):
        recover_ranking(tally_of(rows_of("a>b")), gold)


def test_a_judge_that_ties_everything_has_no_rho() -> None:
    r = recover_ranking(tally_of(rows_of("a=b, b=c, a=c")), gold_of(a=3, b=2, c=1), n_resamples=20, rng=1)
    assert math.isnan(r.spearman)
    assert r.reason == "the judge ranks all items equally"


def test_mostly_undefined_resamples_leave_no_interval_and_are_counted() -> None:
    r = recover_ranking(
        tally_of(rows_of("a>b, b>c, c>d, d>a, a>c")), gold_of(a=4, b=3, c=2, d=1), n_resamples=200, rng=1
    )
    assert not math.isnan(r.spearman)
    assert r.n_undefined_resamples > 100
    assert math.isnan(r.spearman_low)
    assert "no finite ranking" in r.reason


# --- resampling
# --------------------------------------------------------------------------------------------------------


@given(studies(kinds=("items",), max_judges=1), st.randoms(use_true_random=False))
def test_cluster_keys_see_content_and_not_names(case: tuple[pd.DataFrame, pd.DataFrame], random) -> None:
    frame, gold = case
    items = sorted({*frame["item_first"], *frame["item_second"]})
    names = dict(zip(items, random.sample(["q", "r", "s", "t", "u"], len(items)), strict=True))
    one = cluster_keys(tally_of(frame), check_gold(gold))
    two = cluster_keys(tally_of(relabelled(frame, names)), check_gold(relabelled(gold, names)))
    np.testing.assert_array_equal(np.sort(one), np.sort(two))
    np.testing.assert_array_equal(one, cluster_keys(tally_of(mirrored(frame)), check_gold(gold)))


@pytest.mark.parametrize("seed", [23, 24, 137])
def test_pairs_that_only_their_opponents_tell_apart_keep_their_resamples_under_new_names(seed: int) -> None:
    # Sparse designs with ties in gold and in scores; one look at the opponents, or three, is not enough for all.
    rng = np.random.default_rng(seed)
    pairs = list(itertools.combinations("abcdef", 2))
    rows = []
    for k in rng.permutation(len(pairs))[:10]:
        a, b = pairs[k]
        rows += [(a, b, rng.choice(["first", "second"])), (b, a, rng.choice(["first", "second"]))]
    frame = pd.DataFrame(rows, columns=["item_first", "item_second", "verdict"])
    gold = pd.DataFrame({"item": list("abcdef"), "score": [1, 1, 2, 2, 3, 3]})
    names = dict(zip("abcdef", rng.permutation(list("uvwxyz")), strict=True))
    options = {"n_resamples": 40, "rng": 5, "alpha": 0.3}
    one = recover_ranking(tally_of(frame), check_gold(gold), **options)
    two = recover_ranking(tally_of(relabelled(frame, names)), check_gold(relabelled(gold, names)), **options)
    np.testing.assert_allclose(one.samples, two.samples, atol=1e-12)


def test_cluster_weights_are_counts_of_draws_with_replacement() -> None:
    weights = resample_clusters(np.array([5, 3, 9, 3]), 20_000, np.random.default_rng(1))
    assert (weights.sum(axis=1) == 4).all()
    np.testing.assert_allclose(weights.mean(axis=0), 1, atol=0.03)
    np.testing.assert_allclose(np.cov(weights.T), np.eye(4) - 1 / 4, atol=0.03)


def test_resampled_rho_equals_rho_of_the_rows_repeated() -> None:
    rng = np.random.default_rng(3)
    frame = pd.concat(
        [rows_of("a>b, b=c, c>d, a<c, b>d, d>a", context=str(k)).assign(
            verdict=rng.choice(["first", "second", "tie"], 6)) for k in range(8)]
    )  # fmt: skip
    gold = gold_of(a=4, b=3, c=2, d=1)
    problem = RecoveryProblem(tally_of(frame), gold)
    weights = rng.multinomial(8, np.full(8, 1 / 8), size=5)
    rho, tau = problem.resample(weights.astype(float))
    for k, weight in enumerate(weights):
        parts = [
            frame[frame["context"] == str(c)].assign(context=f"{c}-{copy}")
            for c, times in enumerate(weight)
            for copy in range(times)
        ]
        r = recover_ranking(tally_of(pd.concat(parts)), gold, n_resamples=0)
        assert rho[k] == pytest.approx(r.spearman, abs=1e-9, nan_ok=True)
        assert tau[k] == pytest.approx(r.kendall, abs=1e-9, nan_ok=True)
    assert problem.rho(problem.wins[None])[0] == pytest.approx(
        recover_ranking(tally_of(frame), gold, n_resamples=0).spearman
    )


def test_interval_of_rho_surrounds_the_estimate_where_percentiles_of_noisier_resamples_leave_it_out() -> None:
    judge = simulate_judge(draw_population(40, rng=3), -0.5, settings=JudgeSettings(agreement=0.7), rng=4)
    recovery = recover_ranking(judge.to_tally(), judge.to_gold(), rng=1)
    # The bias this guards against: resampled rankings lie below the estimate, almost all of them.
    assert np.mean(recovery.samples < recovery.spearman) > 0.9
    assert recovery.spearman_low + 0.02 < recovery.spearman < recovery.spearman_high - 0.01
    # Witness: the spread over repetitions of the same kind of judge.
    repeated = np.array(
        [
            float(recover_ranking(one.to_tally(), one.to_gold(), n_resamples=0, rng=1).spearman)
            for one in (
                simulate_judge(
                    draw_population(40, rng=100 + k), -0.5, settings=JudgeSettings(agreement=0.7), rng=k
                )
                for k in range(40)
            )
        ]
    )
    width = recovery.spearman_high - recovery.spearman_low
    assert 0.5 < width / (2 * 1.96 * repeated.std(ddof=1)) < 2.0
