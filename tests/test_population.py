"""Populations: moments of the strengths, exactness of the designs, human votes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rank.exceptions import InputError
from simulate.population import draw_population, percentile_rank


@pytest.mark.parametrize("strengths", ["normal", "uniform", "t", "clusters"])
def test_strengths_have_mean_zero_and_the_asked_spread(strengths):
    theta = np.concatenate(
        [
            draw_population(1000, strengths=strengths, spread=2.0, df=8, n_pairs=1, rng=seed).theta
            for seed in range(20)
        ]
    )
    assert theta.mean() == pytest.approx(0, abs=0.06)
    assert theta.std() == pytest.approx(2.0, rel=0.03)


def test_uniform_strengths_are_bounded_and_clusters_have_a_gap():
    assert np.abs(draw_population(2000, strengths="uniform", n_pairs=1, rng=0).theta).max() <= np.sqrt(3)
    theta = draw_population(2001, strengths="clusters", n_pairs=1, rng=0).theta
    assert np.mean(np.abs(theta) < 0.2) < 0.08
    assert abs(np.sum(theta > 0) - np.sum(theta < 0)) < 60


def test_all_pairs_come_once_in_order():
    people = draw_population(30, rng=0)
    assert people.is_round_robin
    assert people.n_pairs == 435
    assert (people.item_i < people.item_j).all()
    assert (np.diff(people.item_i * 30 + people.item_j) > 0).all()
    assert np.allclose(people.gap, np.abs(people.theta[people.item_i] - people.theta[people.item_j]))


@given(
    n=st.integers(2, 25),
    share=st.floats(0, 1),
    design=st.sampled_from(["random", "regular"]),
    seed=st.integers(0, 99),
)
def test_sparse_designs_have_the_asked_number_of_distinct_pairs(n, share, design, seed):
    total = n * (n - 1) // 2
    n_pairs = max(1, round(share * total))
    people = draw_population(n, design=design, n_pairs=n_pairs, rng=seed)
    code = people.item_i * n + people.item_j
    assert people.n_pairs == n_pairs
    assert (people.item_i < people.item_j).all()
    assert (np.diff(code) > 0).all()
    if design == "regular":
        degree = np.bincount(np.concatenate([people.item_i, people.item_j]), minlength=n)
        assert degree.max() - degree.min() <= 1


def test_pairs_per_item_gives_every_item_that_many_partners():
    people = draw_population(200, pairs_per_item=40, rng=0)
    degree = np.bincount(np.concatenate([people.item_i, people.item_j]))
    assert people.n_pairs == 4000
    assert (degree == 40).all()
    odd = draw_population(
        7, pairs_per_item=3, rng=0
    )  # 21 ends do not pair up: one item has one partner fewer
    assert sorted(np.bincount(np.concatenate([odd.item_i, odd.item_j]))) == [2, 3, 3, 3, 3, 3, 3]


def test_every_pair_is_equally_likely_in_a_regular_design():
    times = np.zeros((8, 8))
    for seed in range(2000):
        people = draw_population(8, pairs_per_item=3, rng=seed)
        times[people.item_i, people.item_j] += 1
    share = times[np.triu_indices(8, 1)] / 2000
    assert np.abs(share - 3 / 7).max() < 0.05


@pytest.mark.parametrize("votes", [1, 3])
def test_human_votes_follow_bradley_terry(votes):
    people = draw_population(600, spread=1.5, votes=votes, rng=1)
    difference = people.theta[people.item_i] - people.theta[people.item_j]
    p = 1 / (1 + np.exp(-difference))
    for low, high in ((-9, -2), (-2, -0.5), (-0.5, 0.5), (0.5, 2), (2, 9)):
        inside = (difference >= low) & (difference < high)
        assert people.human_votes_i[inside].mean() / votes == pytest.approx(p[inside].mean(), abs=0.01)
    assert (people.human_i == (2 * people.human_votes_i > votes)).all()


def test_split_votes_go_to_either_item_by_a_fair_coin():
    people = draw_population(200, votes=2, rng=1)
    split = people.human_votes_i == 1
    assert people.human_i[split].mean() == pytest.approx(0.5, abs=0.03)
    assert (people.human_i[~split] == (people.human_votes_i[~split] == 2)).all()


def test_deterministic_humans_name_the_higher_item():
    people = draw_population(50, human="deterministic", votes=3, rng=1)
    assert (people.human_i == (people.theta[people.item_i] > people.theta[people.item_j])).all()
    assert set(people.human_votes_i) == {0, 3}


def test_deterministic_humans_toss_a_coin_on_equal_strengths():
    people = draw_population(theta=np.zeros(60), human="deterministic", rng=1)
    assert people.human_i.mean() == pytest.approx(0.5, abs=0.05)


def test_given_strengths_keep_their_names_and_sort_by_them():
    people = draw_population(theta=[3.0, 1.0, 2.0], item_names=["c", "a", "b"], spread=10, rng=0)
    assert people.items.tolist() == ["a", "b", "c"]
    assert people.theta.tolist() == [10.0, 20.0, 30.0]
    assert people.strengths == "given"


def test_a_subset_of_given_strengths_is_drawn_without_replacement():
    people = draw_population(40, theta=np.arange(100.0), rng=0)
    assert len(set(people.theta)) == 40
    assert [f"item_{int(value):03d}" for value in people.theta] == people.items.tolist()
    assert set(draw_population(40, theta=np.arange(100.0), rng=1).theta) != set(people.theta)


def test_percentile_rank_against_scipy_average_ranks():
    from scipy.stats import rankdata

    values = np.random.default_rng(0).integers(0, 30, 500).astype(float)
    assert np.allclose(percentile_rank(values), (rankdata(values) - 0.5) / 500)
    smooth = np.random.default_rng(0).random(500)
    assert np.allclose(percentile_rank(smooth), (rankdata(smooth) - 0.5) / 500)


def test_same_seed_same_population_and_designs_share_strengths():
    one, same, sparse = (
        draw_population(60, rng=4),
        draw_population(60, rng=4),
        draw_population(60, pairs_per_item=4, rng=4),
    )
    assert (one.theta == same.theta).all()
    assert (one.human_i == same.human_i).all()
    assert (one.theta == sparse.theta).all()
    assert (draw_population(60, rng=5).theta != one.theta).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_items": 1}, "at least 2"),
        ({"strengths": "cauchy"}, "strengths must be one of normal, uniform, t, clusters"),
        ({"strengths": "t", "df": 2.0}, "df must be above 2"),
        ({"spread": 0.0}, "spread must be a positive number"),
        ({"votes": 0}, "votes must be at least 1"),
        ({"human": "oracle"}, "human must be one of"),
        ({"design": "star"}, "design must be one of"),
        ({"n_items": 10, "pairs_per_item": 10}, "between 1 and 9"),
        ({"n_items": 10, "n_pairs": 46}, "between 1 and 45"),
        ({"n_pairs": 10, "pairs_per_item": 3}, "not both"),
        ({"design": "all", "n_pairs": 10}, "compares every pair"),
        ({"design": "regular"}, "needs n_pairs or pairs_per_item"),
        ({"theta": [1.0, np.nan]}, "finite"),
        ({"theta": [1.0]}, "at least 2 numbers"),
        ({"theta": [1.0, 2.0], "n_items": 3}, "between 2 and the 2 given"),
        ({"theta": [1.0, 2.0], "item_names": ["a"]}, "2 items need 2 names"),
        ({"theta": [1.0, 2.0], "item_names": ["a", "a"]}, "distinct"),
    ],
)
def test_impossible_populations_are_refused_in_a_sentence(arguments, message):
    with pytest.raises(InputError, match=message):
        draw_population(rng=0, **arguments)
