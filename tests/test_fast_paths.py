"""Every fast path against the plain one."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from difficulty.reliability import measure_reliability, metrics_from_sums, pair_statistics
from difficulty.triads import count_triads
from rank.bradley_terry import fit_bradley_terry
from rank.recovery import draw_clusters, kendall, midranks, rank_values, resample_clusters, spearman
from rank.resample import bootstrap_sums
from rank.tally import Tally, build_tally, tally_verdicts
from rank.verdicts import check_verdicts
from simulate.judges import JudgeSettings
from simulate.sweep import FIT_ALPHA, first_repetition, sweep


def random_rows(rng: np.random.Generator, n: int) -> pd.DataFrame:
    items = np.array(["a", "b", "c", "d"], dtype=object)
    first = rng.integers(0, 4, n)
    second = (first + rng.integers(1, 4, n)) % 4
    return pd.DataFrame(
        {
            "item_first": items[first],
            "item_second": items[second],
            "verdict": rng.choice(["first", "second", "tie", ""], n),
            "judge": rng.choice(["x", "y"], n),
            "context": rng.choice(["p", "q", "r"], n),
        }
    )


def test_tally_equals_counting_row_by_row() -> None:
    frame = random_rows(np.random.default_rng(0), 300)
    table = check_verdicts(frame, number_runs=True)
    tally = tally_verdicts(table)
    counted: dict[tuple[str, ...], int] = {}
    for row in frame.itertuples():
        low, high = sorted([row.item_first, row.item_second])
        outcome = {"first": row.item_first, "second": row.item_second}.get(row.verdict, row.verdict)
        outcome = {low: "i", high: "j", "tie": "tie", "": "invalid"}[outcome]
        key = (row.judge, row.context, low, high, row.item_first, outcome)
        counted[key] = counted.get(key, 0) + 1
    long = tally.to_frame().melt(
        ["judge", "context", "item_i", "item_j", "item_first"],
        [f"n_{name}" for name in ("i", "j", "tie", "invalid", "inconsistent")],
    )
    found = {
        (r.judge, r.context, r.item_i, r.item_j, r.item_first, r.variable[2:]): r.value
        for r in long.itertuples()
        if r.value
    }
    assert found == counted


def test_runs_are_numbered_as_a_counter_per_call_would() -> None:
    frame = random_rows(np.random.default_rng(1), 400)
    table = check_verdicts(frame, number_runs=True)
    seen: dict[tuple[str, ...], int] = {}
    for run, row in zip(table.run, frame.itertuples(), strict=True):
        key = (row.judge, row.context, row.item_first, row.item_second)
        assert run == seen.get(key, 0)
        seen[key] = run + 1


def test_repeated_rows_of_a_tally_add_up_as_one_at_a_time() -> None:
    rng = np.random.default_rng(2)
    n = 200
    i = rng.integers(0, 5, n)
    j = (i + rng.integers(1, 5, n)) % 5
    group, context = rng.integers(0, 2, n), rng.integers(0, 3, n)
    counts = rng.integers(0, 4, (n, 2, 5))
    tally = build_tally(
        pd.DataFrame({"judge": ["x", "y"]}, dtype=object),
        pd.DataFrame({"dataset": "", "context": list("pqr")}, dtype=object),
        np.array(list("abcde"), dtype=object), group, context, i, j, counts, has_context=True,
    )  # fmt: skip
    plain = np.zeros((2, 3, 5, 5, 2, 5), dtype=int)
    for k in range(n):
        for order, outcome in itertools.product(range(2), range(5)):
            a, b, o, y = i[k], j[k], order, outcome
            if a > b:
                a, b, o, y = b, a, 1 - o, {0: 1, 1: 0}.get(y, y)
            plain[group[k], context[k], a, b, o, y] += counts[k, order, outcome]
    np.testing.assert_array_equal(tally.counts, plain[tally.group, tally.context, tally.item_i, tally.item_j])
    assert tally.counts.sum() == counts.sum()


@pytest.mark.parametrize("n_items", [4, 9, 70])
@pytest.mark.parametrize("equal_totals", [True, False])
@pytest.mark.parametrize("prior_sd", [None, 2.0])
def test_batch_of_dense_fits_equals_each_fit_by_the_sparse_method(
    n_items: int, equal_totals: bool, prior_sd: float | None
) -> None:
    rng = np.random.default_rng(n_items)
    theta = rng.normal(size=n_items)
    i, j = np.triu_indices(n_items, 1)
    total = 12 if equal_totals else rng.integers(6, 20, (5, len(i)))
    wins = rng.binomial(total, 1 / (1 + np.exp(theta[j] - theta[i])), size=(5, len(i)))
    ties = rng.binomial(wins, 0.2)
    counts = np.stack([wins - ties, total - wins, ties], axis=-1)
    batch = fit_bradley_terry(i, j, counts, prior_sd=prior_sd, on_no_maximum="nan")
    for k, one in enumerate(counts):
        # With an order effect asked for, or mm, the general method is taken; mm knows nothing of dense kernels.
        plain = fit_bradley_terry(i, j, one, prior_sd=prior_sd, method="mm", on_no_maximum="nan")
        np.testing.assert_allclose(batch.strengths[k], plain.strengths, atol=1e-7)
        single = fit_bradley_terry(i, j, one, prior_sd=prior_sd, on_no_maximum="nan")
        np.testing.assert_allclose(batch.strengths[k], single.strengths, atol=1e-9)
        np.testing.assert_allclose(batch.log_likelihood[k], plain.log_likelihood, rtol=1e-10)


@pytest.mark.parametrize("equal_totals", [True, False])
def test_fits_that_memory_holds_only_in_parts_are_those_made_at_once(
    monkeypatch: pytest.MonkeyPatch, equal_totals: bool
) -> None:
    rng = np.random.default_rng(3)
    i, j = np.triu_indices(30, 1)
    wins = rng.integers(1, 9, (7, len(i)))
    total = np.full((7, len(i)), 9)
    if not equal_totals:  # the last three fits have the totals of each other
        total[:4] = rng.integers(9, 12, (4, len(i)))
    counts = np.stack([wins, total - wins, 0 * wins], axis=-1)
    at_once = fit_bradley_terry(i, j, counts)
    monkeypatch.setattr("rank.fitting._DENSE_CELLS", 3 * 30 * 30)
    parts = fit_bradley_terry(i, j, counts)
    np.testing.assert_allclose(parts.strengths, at_once.strengths, atol=1e-9)
    np.testing.assert_allclose(parts.log_likelihood, at_once.log_likelihood, rtol=1e-12)
    np.testing.assert_allclose(parts.std_errors, at_once.std_errors, rtol=1e-9)


def test_order_by_scores_is_that_of_the_fits_in_a_balanced_round_robin() -> None:
    rng = np.random.default_rng(4)
    i, j = np.triu_indices(15, 1)
    wins = rng.binomial(6, 0.5, size=(40, len(i))).astype(float)
    both = np.stack([wins, 6 - wins], axis=-1)
    values, defined = rank_values(i, j, both, 15)
    assert defined.all()
    counts = np.concatenate([both, np.zeros((*wins.shape, 1))], axis=-1)
    strengths = np.round(np.asarray(fit_bradley_terry(i, j, counts, std_errors="none").strengths), 7)
    gold = rng.normal(size=15)
    np.testing.assert_allclose(spearman(values, gold), spearman(strengths, gold), atol=1e-12)


@pytest.mark.parametrize("complete", [1.0, 0.6])
def test_triad_products_equal_listing_every_triple(complete: float) -> None:
    rng = np.random.default_rng(5)
    n = 14
    i, j = np.triu_indices(n, 1)
    keep = rng.random(len(i)) < complete
    i, j = i[keep], j[keep]
    verdict = rng.choice(3, len(i)).astype(np.int8)
    code = np.full((n, n), -1)
    code[i, j] = verdict
    code[j, i] = np.where(verdict == 2, 2, 1 - verdict)
    cyclic = mixed = inequality = whole = 0
    for a, b, c in itertools.combinations(range(n), 3):
        edges = [code[a, b], code[b, c], code[c, a]]
        if min(edges) < 0:
            continue
        whole += 1
        ties = edges.count(2)
        cyclic += edges in ([0, 0, 0], [1, 1, 1])
        inequality += ties == 2
        if ties == 1:
            rest = [edge for edge in edges if edge != 2]
            mixed += rest[0] == rest[1]
    found = count_triads(i, j, verdict, n_items=n)
    assert (found.n_complete, found.n_cyclic) == (whole, cyclic)
    assert (found.n_mixed, found.n_inequality) == (mixed, inequality)


def reliability_tally(n_pairs: int) -> Tally:
    rng = np.random.default_rng(6)
    low, high = np.triu_indices(60, 1)
    chosen = rng.choice(len(low), n_pairs, replace=False)
    counts = np.zeros((n_pairs, 2, 5), dtype=np.int64)
    counts[..., 0] = rng.binomial(3, rng.random((n_pairs, 1)), (n_pairs, 2))
    counts[..., 1] = 3 - counts[..., 0]
    return build_tally(
        pd.DataFrame(index=range(1)),
        pd.DataFrame({"dataset": [""], "context": [""]}, dtype=object),
        np.array([f"i{k:02d}" for k in range(60)], dtype=object),
        np.zeros(n_pairs, dtype=np.int64), np.zeros(n_pairs, dtype=np.int64), low[chosen], high[chosen],
        counts, has_context=False,
    )  # fmt: skip


@pytest.mark.parametrize(("n", "distinct"), [(400, 5), (60, 60)], ids=["multinomial", "one by one"])
def test_bootstrap_on_distinct_rows_has_the_distribution_of_one_on_indices(n: int, distinct: int) -> None:
    rng = np.random.default_rng(7)
    rows = rng.integers(0, 9, (distinct, 3)).astype(float)[rng.integers(0, distinct, n)]
    fast = bootstrap_sums(rows, 6_000, rng=1)
    index = np.random.default_rng(2).integers(0, n, (6_000, n))
    plain = rows[index].sum(axis=1)
    scale = plain.std(axis=0)
    np.testing.assert_allclose(fast.mean(axis=0), plain.mean(axis=0), atol=5 * scale.max() / np.sqrt(3_000))
    np.testing.assert_allclose(np.cov(fast.T), np.cov(plain.T), atol=0.12 * scale.max() ** 2)
    for q in (0.025, 0.975):
        np.testing.assert_allclose(
            np.quantile(fast, q, axis=0), np.quantile(plain, q, axis=0), atol=0.2 * scale.max()
        )


def test_intervals_of_metrics_are_those_of_a_bootstrap_that_recounts_every_resample() -> None:
    tally = reliability_tally(250)
    table = measure_reliability(tally, n_resamples=4_000, rng=1)
    rng = np.random.default_rng(2)
    samples = []
    for _ in range(1_500):
        drawn = tally.counts[rng.integers(0, 250, 250)]
        samples.append(metrics_from_sums(pair_statistics(drawn).sum(axis=0))["flip_rate"])
    low, high = np.quantile(samples, [0.025, 0.975])
    assert table.low["flip_rate"][0] == pytest.approx(low, abs=0.012)
    assert table.high["flip_rate"][0] == pytest.approx(high, abs=0.012)


def test_blocks_of_cluster_draws_are_the_draws_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import rank.recovery

    key = np.random.default_rng(8).integers(0, 9, 37)
    at_once = resample_clusters(key, 50, np.random.default_rng(1))
    monkeypatch.setattr(rank.recovery, "_CHUNK_BYTES", 32 * 37 * 7)
    blocks = list(draw_clusters(key, 50, np.random.default_rng(1)))
    assert [len(block) for block in blocks] == [7] * 7 + [1]
    np.testing.assert_array_equal(np.concatenate(blocks), at_once)


@pytest.mark.parametrize("cells", [7, 1_000_000])
def test_batches_of_rank_correlations_equal_scipy_row_by_row(
    monkeypatch: pytest.MonkeyPatch, cells: int
) -> None:
    monkeypatch.setattr("rank.recovery._KENDALL_CELLS", cells)  # a few items at once, or all of them
    rng = np.random.default_rng(6)
    many, other = rng.integers(0, 9, (2, 5, 12)).astype(float)
    untied = rng.permutation(12).astype(float)
    for a, b in ((many, other), (many, other[0]), (many[0], other), (many, untied), (untied, many)):
        pairs = list(zip(*(np.broadcast_to(side, (5, 12)) for side in (a, b)), strict=True))
        np.testing.assert_allclose(
            kendall(a, b), [stats.kendalltau(x, y).statistic for x, y in pairs], atol=1e-12
        )
        np.testing.assert_allclose(
            spearman(a, b), [stats.spearmanr(x, y).statistic for x, y in pairs], atol=1e-12
        )
    np.testing.assert_array_equal(midranks(many), stats.rankdata(many, axis=-1))


@pytest.mark.parametrize("scheme", ["weight", "spread", "mixture"])
@pytest.mark.parametrize("kind", ["errors", "blind-zone"])
@pytest.mark.parametrize("design", [{}, {"pairs_per_item": 9}])
@pytest.mark.parametrize("gold", ["latent", "human"])
def test_sweep_by_what_errors_change_equals_counting_every_verdict(
    scheme: str, kind: str, design: dict[str, int], gold: str
) -> None:
    settings = JudgeSettings(agreement=0.75, scheme=scheme, judge=kind)
    population = {"n_items": 24, "votes": 2, **design}
    q_values = (0.0, 0.3, 1.0) if scheme == "spread" else (-1.0, -0.6, 0.0, 0.5, 1.0)
    rows = sweep(q_values, judge=settings, population=population, gold=gold, n_resamples=0, rng=3).rows
    prepared = first_repetition(judge=settings, population=population, rng=3)
    for q, row in zip(q_values, rows, strict=True):
        answer = prepared.answer(q)
        tally = answer.to_tally()
        plain = metrics_from_sums(
            pair_statistics(tally.counts, answer.to_human_gold().align(tally)).sum(axis=0)
        )
        for name in ("accuracy", "repeatability", "flip_rate", "trustworthy_rate"):
            assert row[name] == pytest.approx(float(plain[name]), abs=1e-12)
        people = answer.population
        human = np.zeros((people.n_pairs, 1, 5), dtype=int)
        human[:, 0, 0], human[:, 0, 1] = people.human_votes_i, people.votes - people.human_votes_i
        ranked, people_ranked = (
            np.round(
                fit_bradley_terry(
                    people.item_i,
                    people.item_j,
                    counts.sum(axis=1)[:, :3],
                    alpha=FIT_ALPHA,
                    std_errors="none",
                ).strengths,
                7,
            )
            for counts in (tally.counts, human)
        )
        target = people.theta if gold == "latent" else people_ranked
        assert row["spearman"] == pytest.approx(stats.spearmanr(ranked, target).statistic, abs=1e-9)
        assert row["kendall"] == pytest.approx(stats.kendalltau(ranked, target).statistic, abs=1e-9)


@pytest.mark.parametrize("own_totals", [False, True])
def test_resamples_given_up_at_once_are_those_without_a_maximum_and_say_the_same(own_totals: bool) -> None:
    rng = np.random.default_rng(9)
    i, j = np.triu_indices(12, 1)
    total = rng.integers(1, 3, (60, len(i))) if own_totals else np.full((60, len(i)), 1)
    theta = rng.normal(size=12) * 2
    wins = rng.binomial(total, 1 / (1 + np.exp(theta[j] - theta[i])))
    counts = np.stack([wins, total - wins, 0 * wins], axis=-1)
    fast = fit_bradley_terry(i, j, counts, on_no_maximum="nan", std_errors="none")
    reasons = {}
    for k, one in enumerate(counts):  # mm takes the general path, which looks at the whole graph
        plain = fit_bradley_terry(i, j, one, on_no_maximum="nan", std_errors="none", method="mm")
        assert np.isnan(fast.strengths[k]).all() == np.isnan(plain.strengths).all()
        reasons |= dict.fromkeys(plain.reasons)
    assert set(fast.reasons) == set(reasons)
    assert sum("never wins" in reason or "never loses" in reason for reason in reasons) > 1


def test_scores_added_up_by_two_threads_are_those_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(11)
    i, j = np.triu_indices(30, 1)
    for total in (np.full((9, len(i)), 12), rng.integers(10, 13, (9, len(i)))):
        wins = rng.integers(1, 9, (9, len(i)))
        counts = np.stack([wins, total - wins, 0 * wins], axis=-1)
        one = fit_bradley_terry(i, j, counts)
        monkeypatch.setattr("rank.fitting._THREADS_FROM", 0.0)
        two = fit_bradley_terry(i, j, counts)
        monkeypatch.undo()
        np.testing.assert_allclose(two.strengths, one.strengths, rtol=0, atol=1e-14)
