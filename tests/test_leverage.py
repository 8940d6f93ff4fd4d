"""Leverage against brute-force recomputation, and rankings in the limit against small pseudo-wins."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from rank.bradley_terry import fit_bradley_terry
from rank.dense import fit_far_scores
from rank.exceptions import InputError
from rank.gold import Gold
from rank.leverage import LIFELINE, leverage, rank_always, set_right
from rank.readers import read_gold, read_verdicts
from rank.recovery import RecoveryProblem, half_wins, rank_values, recover_ranking, spearman
from rank.tally import Tally, tally_verdicts
from simulate.judges import JudgeSettings, simulate_judge
from simulate.population import draw_population


def judged(seed: int, *, runs: int = 1, **design: int) -> tuple[Tally, Gold]:
    people = draw_population(rng=seed, **design)  # type: ignore[arg-type]
    asked = JudgeSettings(runs=runs, repeatability=1.0 if runs < 3 else 0.8, agreement=0.7)
    judge = simulate_judge(people, 0.3, settings=asked, rng=seed)
    return judge.to_tally(), judge.to_gold()


def recompute(tally: Tally, gold: Gold, row: int, side: int) -> float:
    """Rho of a table in which the verdicts of one row were rewritten by hand."""
    counts = tally.counts.copy()
    valid = counts[row].sum(axis=1) - counts[row, :, 3]
    counts[row] = 0
    counts[row, :, side] = valid
    changed = Tally(**{**vars(tally), "counts": counts})
    problem = RecoveryProblem(changed, gold)
    p = problem.pooled
    wins = problem.pooled_wins()[None]
    values, defined = rank_values(p.item_i, p.item_j, wins, p.n_items)
    if not defined[0]:
        values, _ = rank_values(p.item_i, p.item_j, wins, p.n_items, alpha=LIFELINE)
    return float(problem.correlate(values)[0][0])


@pytest.mark.parametrize(
    ("design", "runs"),
    [
        ({"n_items": 12}, 1),
        ({"n_items": 12}, 5),
        ({"n_items": 14, "n_pairs": 45}, 3),
        ({"n_items": 8, "n_pairs": 18}, 1),
    ],
    ids=["balanced", "balanced with noise", "sparse", "sparse without a maximum"],
)
def test_leverage_equals_brute_force_recomputation(design: dict[str, int], runs: int) -> None:
    tally, gold = judged(5, runs=runs, **design)
    found = leverage(tally, gold)
    assert len(found.rows) > 5
    for row, side, change in zip(found.rows, found.winner, found.change, strict=True):
        after = recompute(tally, gold, row, side)
        assert found.spearman + change == pytest.approx(after, abs=1e-12, nan_ok=True)
    finite = found.change[~np.isnan(found.change)]
    assert (np.diff(finite) <= 0).all()


def test_rho_is_that_of_the_recovery() -> None:
    for seed, design in ((1, {"n_items": 15}), (2, {"n_items": 15, "n_pairs": 60})):
        tally, gold = judged(seed, **design)
        assert leverage(tally, gold).spearman == pytest.approx(
            recover_ranking(tally, gold, n_resamples=0).spearman, abs=1e-12
        )


def test_contexts_with_equal_wins_to_move_share_their_change(shared_data: Path) -> None:
    tally = tally_verdicts(read_verdicts(shared_data / "qlora_vicuna.csv"))
    gold = read_gold(shared_data / "qlora_vicuna_gold.csv")
    found = leverage(tally, gold)
    for k in np.linspace(0, len(found.rows) - 1, 12).astype(int):
        after = recompute(tally, gold, found.rows[k], found.winner[k])
        assert found.spearman + found.change[k] == pytest.approx(after, abs=1e-12)
    frame = found.to_frame(20)
    assert len(frame) == 20
    assert (frame["n_right"] < frame["n_verdicts"]).all()
    assert frame["spearman_change"].is_monotonic_decreasing


def test_context_level_equals_recomputing_the_mean(shared_data: Path) -> None:
    tally = tally_verdicts(read_verdicts(shared_data / "summeval_coherence.csv"))
    gold = read_gold(shared_data / "summeval_coherence_gold.csv")
    few = tally.rows(tally.context < 6)
    found = leverage(few, gold, level="context", alpha=0.5)
    assert found.level == "context"
    before = recover_ranking(few, gold, level="context", alpha=0.5, n_resamples=0)
    assert found.spearman == pytest.approx(before.spearman, abs=1e-12)
    for k in (0, 3, len(found.rows) - 1):
        counts = few.counts.copy()
        valid = counts[found.rows[k]].sum(axis=1) - counts[found.rows[k], :, 3]
        counts[found.rows[k]] = 0
        counts[found.rows[k], :, found.winner[k]] = valid
        after = recover_ranking(
            Tally(**{**vars(few), "counts": counts}), gold, level="context", alpha=0.5, n_resamples=0
        )
        assert found.spearman + found.change[k] == pytest.approx(after.spearman, abs=1e-9)


def test_right_verdicts_have_no_leverage_and_undecided_gold_none() -> None:
    tally, gold = judged(3, n_items=8)
    side = gold.align(tally).winner
    counts = np.zeros_like(tally.counts)
    for s in (0, 1):
        counts[side == s, :, s] = 1
    assert len(leverage(Tally(**{**vars(tally), "counts": counts}), gold).rows) == 0
    only = np.zeros(tally.n_pairs, dtype=bool)
    only[:6] = True
    assert set(leverage(tally, gold, rows=only).rows) <= set(range(6))
    with pytest.raises(InputError, match="mark each of the 28 pairs"):
        leverage(tally, gold, rows=only[:3])


def test_constant_gold_gives_nan_with_a_reason() -> None:
    from rank.gold import check_gold

    tally, gold = judged(3, n_items=6)
    flat = check_gold(gold.frame.assign(score=1.0))
    found = leverage(tally, flat)
    assert np.isnan(found.spearman)
    assert "gold is the same" in found.reason
    assert len(found.rows) == 0


def test_set_right_moves_all_wins_of_the_rows_and_nothing_else() -> None:
    wins = np.array([[1.0, 1.0], [0.5, 1.5], [2.0, 0.0], [1.0, 1.0]])
    right = set_right(wins, np.array([0, 1, 1, 2]), np.array([True, True, False, True]))
    np.testing.assert_array_equal(right, [[2, 0], [0, 2], [2, 0], [1, 1]])


@pytest.mark.parametrize("seed", range(8))
def test_batched_ranking_is_that_of_the_fit_with_pseudo_wins_where_needed(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 9
    i, j = np.triu_indices(n, 1)
    strength = np.arange(n) * 0.6
    wins = rng.binomial(3, 1 / (1 + np.exp(strength[j] - strength[i])), size=(30, len(i)))
    batch = np.stack([wins, 3 - wins], axis=2) * (rng.random((30, len(i), 1)) < 0.7)
    batch = batch.astype(float)
    values, penalised = rank_always(i, j, batch, n)
    plain, defined = rank_values(i, j, batch, n)
    np.testing.assert_allclose(values[defined], plain[defined], atol=2e-7)
    assert not penalised[defined].any()
    extra, connected = rank_values(i, j, batch[~defined], n, alpha=LIFELINE)
    np.testing.assert_allclose(values[~defined], extra, atol=2e-7)
    np.testing.assert_array_equal(penalised[~defined], connected)


@pytest.mark.parametrize("n", [2, 5, 25])
def test_far_strengths_equal_those_of_the_general_method(n: int) -> None:
    rng = np.random.default_rng(n)
    i, j = np.triu_indices(n, 1)
    wins = np.stack([rng.integers(1, 4, (6, len(i))), np.zeros((6, len(i)))], axis=2)
    wins[3:] = wins[3:, :, ::-1] * (rng.random((3, len(i), 1)) < 0.1) + wins[3:]
    table = np.zeros((6, n, n))
    table[:, i, j], table[:, j, i] = wins[..., 0] + LIFELINE, wins[..., 1] + LIFELINE
    fits = fit_far_scores(table.sum(axis=2), table + table.transpose(0, 2, 1), 1e-9)
    assert fits.done.all()
    counts = np.concatenate([wins, np.zeros((6, len(i), 1))], axis=2)
    plain = fit_bradley_terry(i, j, counts, alpha=LIFELINE, start=np.zeros(n), std_errors="none")
    np.testing.assert_allclose(fits.strengths, plain.strengths, atol=2e-9)
    assert np.ptp(plain.strengths[0]) > 9


def test_perfect_verdicts_are_ranked_right_though_nothing_is_finite() -> None:
    rng = np.random.default_rng(1)
    for n in (5, 20, 70):
        i, j = np.triu_indices(n, 1)
        met = (rng.random(len(i)) < 0.5) | (j == i + 1)
        wins = np.stack([np.ones(met.sum()), np.zeros(met.sum())], axis=1)[None]
        values, penalised = rank_always(i[met], j[met], wins, n)
        assert penalised.all()
        assert spearman(values, -np.arange(n))[0] == 1


def test_islands_and_items_without_a_verdict_have_no_ranking() -> None:
    i, j = np.array([0, 2]), np.array([1, 3])
    assert np.isnan(rank_always(i, j, np.ones((1, 2, 2)), 4)[0]).all()
    assert np.isnan(rank_always(i, j, np.array([[[1.0, 1.0], [0.0, 0.0]]]), 4)[0]).all()


def test_large_sparse_design_is_exact_in_seconds() -> None:
    tally, gold = judged(1, n_items=200, n_pairs=4000)
    start = time.perf_counter()
    found = leverage(tally, gold)
    assert time.perf_counter() - start < 20
    assert not np.isnan(found.change).any()
    for k in (0, len(found.rows) // 2, len(found.rows) - 1):
        wins = half_wins(tally.counts)
        one = np.zeros(tally.n_pairs, dtype=bool)
        one[found.rows[k]] = True
        problem = RecoveryProblem(tally, gold)
        problem.wins = set_right(wins, gold.align(tally).winner, one)
        after = problem.correlate(problem.rank(problem.pooled_wins()[None])[0])[0][0]
        assert found.spearman + found.change[k] == pytest.approx(after, abs=1e-12)
