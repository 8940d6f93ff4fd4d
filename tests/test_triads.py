"""Triad counts against networkx's census, brute force over triples, and invariances."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from difficulty import triads
from difficulty.triads import (
    TRIAD_COLUMNS,
    TriadCounts,
    context_triads,
    count_triads,
    expected_triads,
    pair_verdicts,
    triad_intervals,
    triad_shares,
    triads_of_tally,
)
from rank.exceptions import InputError
from rank.gold import PairGold
from rank.tally import Tally


def brute_force(item_i, item_j, verdict, gap=None, gold_winner=None, *, n_items):
    """Every triple, one by one, straight from the definitions."""
    known = {}
    for k, (i, j, v) in enumerate(zip(item_i, item_j, verdict, strict=True)):
        if v >= 0:
            winner = {0: i, 1: j, 2: None}[int(v)]
            gold = None
            if gap is not None and gold_winner[k] >= 0 and not math.isnan(gap[k]):
                gold = {0: i, 1: j, 2: "tie"}[int(gold_winner[k])]
            known[frozenset((i, j))] = (winner, math.nan if gap is None else gap[k], gold)
    number = dict.fromkeys(TRIAD_COLUMNS, 0)
    for triple in combinations(range(n_items), 3):
        pairs = [frozenset(pair) for pair in combinations(triple, 2)]
        if not all(pair in known for pair in pairs):
            number["n_incomplete"] += 1
            continue
        number["n_complete"] += 1
        wins = [known[pair][0] for pair in pairs if known[pair][0] is not None]
        beaten = [next(iter(pair - {known[pair][0]})) for pair in pairs if known[pair][0] is not None]
        if len(wins) == 3 and len(set(wins)) == 3:
            number["n_cyclic"] += 1
        elif len(wins) == 2 and len(set(wins)) == 2 and len(set(beaten)) == 2:
            number["n_mixed"] += 1
        elif len(wins) == 1:
            number["n_inequality"] += 1
            decided = next(pair for pair in pairs if known[pair][0] is not None)
            gaps = [known[pair][1] for pair in pairs]
            winner, size, gold = known[decided]
            if gold is not None and not any(math.isnan(g) for g in gaps):
                number["n_inequality_assessed"] += 1
                number["n_inequality_valid"] += gold == winner and size >= max(gaps)
        else:
            number["n_transitive"] += 1
    return TriadCounts(**number)


@st.composite
def judged_graphs(draw, max_items=9):
    n = draw(st.integers(3, max_items))
    pairs = list(combinations(range(n), 2))
    codes = draw(st.lists(st.sampled_from([0, 1, 2, 2, -1]), min_size=len(pairs), max_size=len(pairs)))
    swap = draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs)))
    i, j = (np.array(side) for side in zip(*pairs, strict=True))
    i, j = np.where(swap, j, i), np.where(swap, i, j)
    keep = np.array(draw(st.lists(st.integers(0, 5), min_size=len(pairs), max_size=len(pairs)))) > 0
    score = draw(st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.0, math.nan]), min_size=n, max_size=n))
    return n, i[keep], j[keep], np.array(codes)[keep], np.array(score)


def random_graph(rng, n, density=1.0, tied=0.4, missing=0.0):
    i, j = np.triu_indices(n, 1)
    keep = rng.random(i.size) < density
    shape = [(1 - tied - missing) / 2] * 2 + [tied, missing]
    return i[keep], j[keep], rng.choice([0, 1, 2, -1], size=keep.sum(), p=shape)


def gold_of(score, i, j):
    gap = np.abs(score[i] - score[j])
    winner = np.where(
        np.isnan(gap), -1, np.where(score[i] > score[j], 0, np.where(score[i] < score[j], 1, 2))
    )
    return gap, winner


@settings(deadline=None, max_examples=150)
@given(judged_graphs())
def test_equals_brute_force_with_item_gold(graph):
    n, i, j, verdict, score = graph
    gap, winner = gold_of(score, i, j)
    assert count_triads(i, j, verdict, n_items=n, score=score) == brute_force(
        i, j, verdict, gap, winner, n_items=n
    )


@settings(deadline=None, max_examples=150)
@given(judged_graphs(), st.randoms(use_true_random=False))
def test_equals_brute_force_with_pair_gold_that_no_scores_explain(graph, random):
    n, i, j, verdict, _ = graph
    gap = np.array([random.choice([0.0, 1.0, 2.0, 3.0, math.nan]) for _ in i])
    winner = np.array([random.choice([0, 1, 2, -1]) for _ in i], dtype=int)
    expected = brute_force(i, j, verdict, gap, winner, n_items=n)
    assert count_triads(i, j, verdict, gap, winner, n_items=n) == expected


@pytest.mark.parametrize(("n", "density"), [(20, 1.0), (70, 1.0), (70, 0.3), (90, 0.015), (40, 0.4)])
def test_every_engine_equals_networkx_triadic_census(n, density):
    import networkx as nx

    i, j, verdict = random_graph(np.random.default_rng(n), n, density, missing=0.1)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n))
    for a, b, v in zip(i, j, verdict, strict=True):
        if v in (0, 2):
            graph.add_edge(a, b)
        if v in (1, 2):
            graph.add_edge(b, a)
    census = nx.triadic_census(graph)
    found = count_triads(i, j, verdict, n_items=n)
    assert found.n_cyclic == census["030C"]
    assert found.n_mixed == census["120C"]
    assert found.n_inequality == census["210"]
    assert found.n_transitive == sum(census[kind] for kind in ("030T", "120D", "120U", "300"))
    assert found.n_incomplete == math.comb(n, 3) - found.n_complete


@pytest.mark.parametrize(("n", "density"), [(70, 1.0), (70, 0.5), (150, 0.05), (12, 1.0)])
@pytest.mark.parametrize("missing_gold", [0.0, 0.2])
def test_product_listing_and_row_engines_agree_with_brute_force_on_gold(
    monkeypatch, n, density, missing_gold
):
    rng = np.random.default_rng(n)
    i, j, verdict = random_graph(rng, n, density, missing=0.05)
    score = rng.integers(0, 12, n).astype(float)
    score[rng.random(n) < missing_gold] = np.nan
    gap, winner = gold_of(score, i, j)
    expected = brute_force(i, j, verdict, gap, winner, n_items=n)
    assert count_triads(i, j, verdict, n_items=n, score=score) == expected
    assert count_triads(i, j, verdict, gap, winner, n_items=n) == expected
    monkeypatch.setattr(triads, "_CHUNK", 50)  # many chunks must add up to the same
    assert count_triads(i, j, verdict, gap, winner, n_items=n) == expected
    assert expected.n_inequality_assessed > 0


def test_hub_of_a_sparse_graph_is_cheap_and_exact():
    n = 30_000  # a star plus one ring: every ring edge closes one triad with the hub
    spokes = np.arange(1, n)
    i = np.concatenate([np.zeros(n - 1, dtype=int), spokes])
    j = np.concatenate([spokes, np.roll(spokes, -1)])
    verdict = np.concatenate([np.zeros(n - 1, dtype=int), np.full(n - 1, 2)])
    found = count_triads(i, j, verdict, n_items=n)
    assert (found.n_complete, found.n_transitive) == (n - 1, n - 1)
    assert found.n_incomplete == math.comb(n, 3) - (n - 1)


def test_regular_tournament_attains_the_closed_form_maximum_of_cycles():
    n = 301  # every item beats the next (n - 1) / 2: (n^3 - n) / 24 cycles (Kendall & Babington Smith 1940)
    i, j = np.triu_indices(n, 1)
    found = count_triads(i, j, np.where(j - i <= (n - 1) // 2, 0, 1), n_items=n)
    assert found.n_cyclic == (n**3 - n) // 24
    assert found.n_complete == math.comb(n, 3)


def test_cycles_of_a_tournament_follow_from_its_scores():
    n = 400  # C(n, 3) - sum C(wins, 2), exact where single-precision sums would no longer be
    i, j, verdict = random_graph(np.random.default_rng(3), n, tied=0.0)
    wins = np.bincount(np.where(verdict == 0, i, j), minlength=n)
    assert count_triads(i, j, verdict, n_items=n).n_cyclic == math.comb(n, 3) - sum(
        math.comb(w, 2) for w in wins
    )


@settings(deadline=None, max_examples=50)
@given(judged_graphs(), st.randoms(use_true_random=False))
def test_renaming_shuffling_and_mirroring_change_nothing(graph, random):
    n, i, j, verdict, score = graph
    original = count_triads(i, j, verdict, n_items=n, score=score)
    name = np.array(random.sample(range(n), n))
    order = np.array(random.sample(range(i.size), i.size), dtype=int)
    renamed = np.empty(n)
    renamed[name] = score
    mirrored = np.where(verdict >= 0, np.array([1, 0, 2, -1])[verdict], -1)
    assert original == count_triads(name[j][order], name[i][order], mirrored[order], n_items=n, score=renamed)


@settings(deadline=None, max_examples=50)
@given(judged_graphs())
def test_reversing_every_decision_keeps_the_classes(graph):
    n, i, j, verdict, _ = graph
    reversed_ = np.where(verdict >= 0, np.array([1, 0, 2, -1])[verdict], -1)
    assert count_triads(i, j, verdict, n_items=n) == count_triads(i, j, reversed_, n_items=n)


def test_largest_gap_may_be_shared_but_a_gold_tie_validates_nothing():
    triad = ([0, 1, 0], [1, 2, 2], [2, 2, 0])  # 0 ~ 1, 1 ~ 2, 0 > 2
    shared = count_triads(*triad, n_items=3, score=[2, 0, 0])
    assert (shared.n_inequality_assessed, shared.n_inequality_valid) == (1, 1)
    outside = count_triads(*triad, n_items=3, score=[2, 3, 0])
    assert (outside.n_inequality_assessed, outside.n_inequality_valid) == (1, 0)
    level = count_triads(*triad, n_items=3, score=[0, 0, 0])
    assert (level.n_inequality_assessed, level.n_inequality_valid) == (1, 0)
    against = count_triads(*triad, n_items=3, score=[0, 1, 2])
    assert (against.n_inequality_assessed, against.n_inequality_valid) == (1, 0)
    unknown = count_triads(*triad, n_items=3, score=[2, math.nan, 0])
    assert unknown.n_inequality_assessed == 0
    assert math.isnan(unknown.inequality_valid_share)


@pytest.mark.parametrize(
    ("item_i", "item_j", "verdict", "n_items", "reason"),
    [
        ([0], [1], [0], 2, "fewer than three items"),
        ([], [], [], 0, "fewer than three items"),
        ([0, 0], [1, 2], [0, 0], 3, "none of the 1 item triples"),
        ([0, 0, 1], [1, 2, 2], [0, 0, -1], 3, "none of the 1 item triples"),
    ],
)
def test_without_a_complete_triad_shares_are_nan_with_a_reason(item_i, item_j, verdict, n_items, reason):
    found = count_triads(item_i, item_j, verdict, n_items=n_items)
    assert found.n_complete == 0
    assert math.isnan(found.cyclic_share)
    assert math.isnan(found.nontransitive_share)
    assert reason in found.reason


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"item_i": [0], "item_j": [0], "verdict": [0], "n_items": 3}, "with itself"),
        ({"item_i": [0, 1], "item_j": [1, 0], "verdict": [0, 0], "n_items": 3}, "given twice"),
        ({"item_i": [0], "item_j": [3], "verdict": [0], "n_items": 3}, "n_items"),
        ({"item_i": [0], "item_j": [1], "verdict": [4], "n_items": 3}, "codes"),
        ({"item_i": [0], "item_j": [1], "verdict": [0], "n_items": 3, "gap": [1.0]}, "together"),
        ({"item_i": [0], "item_j": [1], "verdict": [0], "n_items": 3, "score": [1.0]}, "one value per item"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        count_triads(**arguments)


def make_tally(rows, n_groups, n_contexts, n_items):
    """rows: (group, context, i, j, counts (2, 5))."""
    rows = sorted(rows, key=lambda row: row[:4])
    group, context, i, j = (np.array([row[k] for row in rows], dtype=np.int64) for k in range(4))
    return Tally(
        groups=pd.DataFrame({"judge": [f"judge {g}" for g in range(n_groups)]}),
        contexts=pd.DataFrame({"dataset": [""] * n_contexts, "context": [str(c) for c in range(n_contexts)]}),
        items=np.array([f"item {k:03}" for k in range(n_items)], dtype=object),
        group=group,
        context=context,
        item_i=i,
        item_j=j,
        counts=np.array([row[4] for row in rows], dtype=np.int64).reshape(-1, 2, 5),
        has_context=True,
        notes=(),
    )


def test_pair_verdicts_follow_the_rules_of_the_two_orders():
    i, j, tie, bad, odd, none = (np.eye(6, 5, dtype=int)[k] for k in range(6))
    cases = [
        ((i, i), 0),
        ((j, j), 1),
        ((tie, tie), 2),
        ((i, j), 2),
        ((i, tie), 2),
        ((j, none), 1),
        ((bad, i), 0),
        ((tie, none), 2),
        ((none, odd), 2),
        ((odd, odd), 2),
        ((bad, bad), -1),
        ((none, none), -1),
        ((2 * i + j, 3 * i), 0),
        ((i + j, i), 2),  # a draw for first place is a tie
    ]
    assert pair_verdicts(np.array([orders for orders, _ in cases])).tolist() == [code for _, code in cases]


def test_a_tally_gives_the_sum_over_contexts_of_single_counts():
    rng = np.random.default_rng(5)
    rows, expected, item_score = [], [TriadCounts(0, 0, 0, 0, 0, 0)] * 3, rng.integers(0, 5, 80).astype(float)
    for group in range(3):
        for context in range(6):
            members = np.sort(rng.choice(80, size=[3, 5, 9, 2, 70, 17][context], replace=False))
            i, j, verdict = random_graph(rng, members.size, density=0.8)
            for a, b, v in zip(members[i], members[j], verdict, strict=True):
                counts = np.zeros((2, 5), dtype=int)
                counts[0, v], counts[1, v] = 2, 1
                rows.append((group, context, a, b, counts))
            present = np.unique(np.concatenate([i, j]))
            place = np.searchsorted(present, np.arange(members.size))
            gap, winner = gold_of(item_score[members], i, j)
            expected[group] += brute_force(place[i], place[j], verdict, gap, winner, n_items=present.size)
    tally = make_tally(rows, 3, 6, 80)
    score_i, score_j = item_score[tally.item_i], item_score[tally.item_j]
    gap, winner = gold_of(item_score, tally.item_i, tally.item_j)
    assert triads_of_tally(tally, PairGold(winner, gap, score_i, score_j)) == expected
    unknown = np.full(gap.size, np.nan)
    assert triads_of_tally(tally, PairGold(winner, gap, unknown, unknown)) == expected
    blocks = context_triads(tally)
    assert blocks.counts.shape == (len({row[:2] for row in rows}), 8)
    assert (blocks.counts[:, 6:] == 0).all()
    assert (blocks.counts[:, 1:5].sum(axis=1) == blocks.counts[:, 0]).all()


def test_a_group_without_rows_has_zero_triads():
    tally = make_tally([(0, 0, 0, 1, np.eye(2, 5, dtype=int))], 2, 1, 2)
    assert triads_of_tally(tally) == [TriadCounts(0, 0, 0, 0, 0, 0)] * 2


def test_intervals_are_the_percentiles_of_resampled_contexts():
    rng = np.random.default_rng(0)
    counts = np.zeros((400, 8), dtype=int)
    counts[:, 0] = 10
    counts[:, 2] = rng.binomial(10, 0.3, size=400)
    counts[:, 1] = 10 - counts[:, 2]
    result = triad_intervals(counts, rng=1)
    error = counts[:, 2].std() / 10 / math.sqrt(400)  # equal sizes: the mean of 400 shares
    assert result.estimate[1] == counts[:, 2].sum() / 4000
    np.testing.assert_allclose(result.high[1] - result.low[1], 2 * 1.96 * error, rtol=0.06)
    assert result.low[2] == 0.0  # no mixed triad: Wilson with 400 contexts
    np.testing.assert_allclose(result.high[2], 1.96**2 / (400 + 1.96**2), rtol=1e-3)
    assert np.isnan(result.low[5])
    assert "assessed by gold" in result.reason


def test_one_context_has_shares_but_no_interval():
    counts = np.array([[10, 7, 1, 1, 1, 0, 1, 1], [0, 0, 0, 0, 0, 4, 0, 0]])
    result = triad_intervals(counts, rng=1)
    np.testing.assert_allclose(result.estimate, [0.7, 0.1, 0.1, 0.1, 0.3, 1.0])
    assert np.isnan(result.low).all()
    assert np.isnan(result.high).all()
    assert result.n_contexts == 1
    assert "at least two" in result.reason


def test_shares_of_arrays_equal_the_properties():
    counts = TriadCounts(10, 5, 1, 2, 2, 3, 2, 1)
    row = [getattr(counts, name) for name in TRIAD_COLUMNS]
    expected = [getattr(counts, name) for name in triads.TRIAD_SHARES]
    np.testing.assert_allclose(triad_shares([row, np.zeros(8)]), [expected, [math.nan] * 6])


def test_expected_triads_equal_the_mean_of_simulated_bradley_terry_judges():
    rng = np.random.default_rng(4)
    theta = rng.normal(size=8)
    win = 0.8 / (1 + np.exp(theta[None, :] - theta[:, None]))
    np.fill_diagonal(win, 0)
    tied = 0.2 * (1 - np.eye(8))
    i, j = np.triu_indices(8, 1)
    draws = []
    for _ in range(1500):
        u = rng.random(i.size)
        verdict = np.where(u < win[i, j], 0, np.where(u < win[i, j] + win[j, i], 1, 2))
        found = count_triads(i, j, verdict, n_items=8)
        draws.append(
            [found.n_complete, found.n_transitive, found.n_cyclic, found.n_mixed, found.n_inequality]
        )
    draws = np.array(draws)
    error = draws.std(axis=0) / math.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - expected_triads(win, tied)) <= 4 * error + 1e-9).all()
