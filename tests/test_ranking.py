"""The labelled ranking: strengths, standard errors, ranks, order effect, islands, cross-check."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st

from rank.bradley_terry import fit_bradley_terry
from rank.exceptions import InputError, NoMaximumError
from rank.gold import check_gold
from rank.order_batch import fit_order_batch
from rank.ranking import GroupRanking, RankingOptions, rank_descending, rank_group, rank_groups
from rank.readers import read_verdicts
from rank.tally import tally_verdicts
from tests.strategies import mirrored, relabelled, rows_of, tally_of, verdict_frames

ITEMS = "abcd"


def rank(frame: pd.DataFrame, gold: pd.DataFrame | None = None, **options: object) -> GroupRanking:
    settings = RankingOptions(**{"n_resamples": 0, **options})  # type: ignore[arg-type]
    return rank_group(
        tally_of(frame), None if gold is None else check_gold(gold), settings, check=True, rng=1
    )


def column(ranking: GroupRanking, name: str) -> dict[str, float]:
    return dict(zip(ranking.items["item"], ranking.items[name], strict=True))


def design(seed: int = 1, first_bonus: float = 0.0, runs: int = 12) -> pd.DataFrame:
    """Four items, all ordered pairs, binary verdicts drawn with an advantage of the first slot."""
    rng = np.random.default_rng(seed)
    strength = dict(zip(ITEMS, (0.8, 0.3, -0.2, -0.9), strict=True))
    rows = []
    for a, b in itertools.permutations(ITEMS, 2):
        p = 1 / (1 + math.exp(-(strength[a] - strength[b] + first_bonus)))
        rows += [(a, b, r, "first" if rng.random() < p else "second") for r in range(runs)]
    return pd.DataFrame(rows, columns=["item_first", "item_second", "run", "verdict"])


def logit_witness(frame: pd.DataFrame, order: bool):
    """The same model as a binomial regression with the last item as zero, then centred."""
    columns = {
        item: (frame["item_first"] == item) * 1.0 - (frame["item_second"] == item) for item in ITEMS[:-1]
    }
    x = pd.DataFrame(columns)
    if order:
        x["gamma"] = 1.0
    fit = sm.GLM((frame["verdict"] == "first") * 1.0, x, family=sm.families.Binomial()).fit(
        tol=1e-14, maxiter=200
    )
    n = len(ITEMS)
    centre = np.eye(n)[:, : n - 1] - 1 / n  # rows: items, columns: free strengths
    free = fit.params.to_numpy()[: n - 1]
    covariance = np.asarray(fit.cov_params())[: n - 1, : n - 1]
    strengths = centre @ free
    errors = np.sqrt(np.diag(centre @ covariance @ centre.T))
    return dict(zip(ITEMS, strengths, strict=True)), dict(zip(ITEMS, errors, strict=True)), fit


@pytest.mark.parametrize("order_effect", ["none", "one"])
@pytest.mark.parametrize("method", ["newton", "mm", "newman"])
def test_strengths_and_standard_errors_equal_a_statsmodels_regression(order_effect: str, method: str) -> None:
    frame = design(first_bonus=0.5)
    strengths, errors, fit = logit_witness(frame, order_effect == "one")
    ranking = rank(frame, order_effect=order_effect, method=method)
    assert column(ranking, "strength") == pytest.approx(strengths, abs=1e-7)
    assert column(ranking, "std_error") == pytest.approx(errors, rel=1e-5)
    assert ranking.fit.log_likelihood == pytest.approx(fit.llf, abs=1e-7)
    if order_effect == "one":
        effect = ranking.order_effect_fields()
        assert effect["estimate"] == pytest.approx(fit.params["gamma"], abs=1e-7)
        assert effect["std_error"] == pytest.approx(fit.bse["gamma"], rel=1e-5)
        without = logit_witness(frame, False)[2]
        assert effect["statistic"] == pytest.approx(2 * (fit.llf - without.llf), abs=1e-6)
        assert effect["degrees_of_freedom"] == 1


def test_sandwich_errors_equal_statsmodels_cluster_covariance() -> None:
    frame = design(seed=4)
    frame["context"] = (frame["run"] // 3).astype(str)
    strengths, _, fit = logit_witness(frame, False)
    robust = sm.GLM(fit.model.endog, fit.model.exog, family=sm.families.Binomial()).fit(
        tol=1e-14,
        cov_type="cluster",
        cov_kwds={"groups": frame["context"].to_numpy(), "use_correction": False},
    )
    centre = np.eye(4)[:, :3] - 1 / 4
    expected = np.sqrt(np.diag(centre @ np.asarray(robust.cov_params()) @ centre.T))
    ranking = rank(frame, std_errors="sandwich")
    assert column(ranking, "strength") == pytest.approx(strengths, abs=1e-7)
    found = np.array([column(ranking, "std_error")[item] for item in ITEMS])
    ratio = found / expected
    # Up to one small-sample factor, C / (C - 1) in the variance at most.
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-5)
    assert ratio[0] in (pytest.approx(1, abs=1e-5), pytest.approx(math.sqrt(4 / 3), abs=1e-5))


def test_bootstrap_errors_are_close_to_the_sandwich() -> None:
    frame = design(seed=2, runs=40)
    frame["context"] = frame["run"].astype(str)
    robust = column(rank(frame, std_errors="sandwich"), "std_error")
    bootstrap = column(rank(frame, std_errors="bootstrap", n_resamples=800), "std_error")
    assert bootstrap == pytest.approx(robust, rel=0.15)


def test_an_always_first_judge_has_a_positive_order_effect_and_mirrored_a_negative_one() -> None:
    frame = design(first_bonus=1.5)
    one, two = (rank(f, order_effect="one").order_effect_fields() for f in (frame, mirrored(frame)))
    assert one["estimate"] > 1
    assert one["p_value"] < 1e-6
    assert two["estimate"] == pytest.approx(-one["estimate"], abs=1e-7)
    assert column(rank(mirrored(frame), order_effect="one"), "strength") == pytest.approx(
        column(rank(frame, order_effect="one"), "strength"), abs=1e-7
    )


def test_case_26_order_effect_of_a_judge_that_only_answers_first_is_unbounded() -> None:
    frame = design().assign(verdict="first")
    with pytest.raises(NoMaximumError, match=r"order effect|gamma"):
        rank(frame, order_effect="one")
    assert list(column(rank(frame), "strength").values()) == pytest.approx([0] * 4, abs=1e-12)


def test_one_order_effect_per_gap_bucket() -> None:
    frame = pd.concat(
        [design(seed=s, first_bonus=1.0).assign(run=lambda f, s=s: f["run"] + 100 * s) for s in range(4)]
    )
    gold = pd.DataFrame({"item": list(ITEMS), "score": [0.8, 0.3, -0.2, -0.9]})
    effect = rank(frame, gold, order_effect="gap").order_effect_fields()
    assert [b["bucket"] for b in effect["buckets"]][0] == "close"
    assert all(b["estimate"] > 0.4 for b in effect["buckets"])
    with pytest.raises(InputError, match="needs --gold"):
        rank(frame, order_effect="gap")
    with pytest.raises(InputError, match="no known gap"):
        rank(frame, gold.iloc[:3], order_effect="gap")


# --- existence: cases 1 to 5
# --------------------------------------------------------------------------------------------------------


def test_case_1_an_item_that_never_wins_is_named_and_pseudo_wins_are_marked() -> None:
    frame = rows_of("A>B, B>A, A>C, B>C")
    with pytest.raises(NoMaximumError, match="C") as caught:
        rank(frame)
    assert caught.value.never_win == ("C",)
    ranking = rank(frame, alpha=0.5)
    strength = column(ranking, "strength")
    assert ranking.fit.penalised
    assert strength["A"] == pytest.approx(strength["B"], abs=1e-9)
    assert column(ranking, "rank") == {"A": 1, "B": 1, "C": 3}
    assert ranking.difference.largest < 1e-6


def test_case_2_two_islands_are_listed_and_ranked_apart_by_option() -> None:
    frame = rows_of("A>B x2, B>A, C>D, D>C x2")
    with pytest.raises(NoMaximumError) as caught:
        rank(frame)
    assert {frozenset(c) for c in caught.value.components} == {frozenset("AB"), frozenset("CD")}
    ranking = rank(frame, components="separate", n_resamples=50)
    assert column(ranking, "rank") == {"A": 1, "B": 2, "C": 2, "D": 1}
    strength = column(ranking, "strength")
    assert strength["A"] - strength["B"] == pytest.approx(math.log(2))
    assert strength["A"] + strength["B"] == pytest.approx(0)
    assert ranking.items["component"].nunique() == 2
    assert (ranking.items["rank_high"].dropna() <= 2).all()


def test_case_3_a_chain_is_unbounded() -> None:
    with pytest.raises(NoMaximumError, match=r"D never wins; A never loses: .*without bound"):
        rank(rows_of("A>B, B>C, C>D"))


def test_case_4_ties_only_are_one_shared_rank_with_standard_errors() -> None:
    ranking = rank(rows_of("A=B, B=C, A=C"), n_resamples=50)
    assert set(column(ranking, "strength").values()) == {0}
    assert set(column(ranking, "rank").values()) == {1}
    assert (ranking.items["std_error"] > 0).all()
    assert (ranking.items["n_ties"] == 2).all()


@pytest.mark.parametrize("method", ["newton", "mm", "newman"])
def test_case_5_seven_against_three_is_the_log_of_seven_thirds(method: str) -> None:
    strength = column(rank(rows_of("A>B x7, A<B x3"), method=method), "strength")
    assert strength["A"] - strength["B"] == pytest.approx(math.log(7 / 3), abs=1e-8)


def test_cross_check_agrees_with_choix_and_says_when_it_cannot() -> None:
    assert rank(design()).difference.largest < 1e-6
    with_prior = rank(design(), prior_sd=1.0).difference  # choix has no such prior
    assert math.isnan(with_prior.largest)
    assert "prior" in with_prior.reason
    two_pairs = rank(
        rows_of("A>B x2, B>A, B>C, C>B x2")
    )  # as many pairs as orders: the axes could be confused
    assert two_pairs.difference.largest < 1e-6


# --- ranks, counts, intervals
# --------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-2, 2), min_size=1, max_size=8))
def test_ranks_count_the_stronger_items(values: list[int]) -> None:
    strengths = np.array(values, dtype=float)
    assert rank_descending(strengths).tolist() == [1 + (strengths > v).sum() for v in strengths]
    with_gap = np.append(strengths, np.nan)
    assert np.isnan(rank_descending(with_gap)[-1])
    assert rank_descending(with_gap)[:-1].tolist() == rank_descending(strengths).tolist()


@given(verdict_frames(max_judges=1, max_runs=2))
def test_counts_per_item_equal_a_plain_count(frame: pd.DataFrame) -> None:
    valid = frame[frame["verdict"] != ""]
    if valid.empty:
        with pytest.raises(InputError, match="no valid verdict"):
            rank(frame, alpha=0.5)
        return
    ranking = rank(frame, alpha=0.5, components="separate")
    for row in ranking.items.to_dict("records"):
        item = row["item"]
        won = ((valid["item_first"] == item) & (valid["verdict"] == "first")).sum()
        won += ((valid["item_second"] == item) & (valid["verdict"] == "second")).sum()
        mine = valid[(valid["item_first"] == item) | (valid["item_second"] == item)]
        tied = (mine["verdict"] == "tie").sum()
        assert (row["n_verdicts"], row["n_wins"], row["n_ties"]) == (len(mine), won, tied)
        assert row["n_losses"] == len(mine) - won - tied


@given(verdict_frames(max_judges=1, max_runs=2), st.randoms(use_true_random=False))
def test_case_28_rankings_survive_renaming_shuffling_and_mirroring_intervals_included(
    frame: pd.DataFrame, random
) -> None:
    if (frame["verdict"] == "").all():
        return
    items = sorted({*frame["item_first"], *frame["item_second"]})
    names = dict(zip(items, random.sample(["q", "r", "s", "t", "u"], len(items)), strict=True))
    options = {"alpha": 0.5, "components": "separate", "n_resamples": 12}
    one = rank(frame, **options).items
    changed = rank(relabelled(frame, names).sample(frac=1, random_state=3), **options).items
    assert_same_ranking(one, changed)
    assert_same_ranking(one, rank(mirrored(frame), **options).items)
    estimates = ["strength", "std_error", "rank", "n_wins", "n_losses", "n_ties"]
    renamed = changed.set_index("item").loc[[names[item] for item in one["item"]], estimates]
    pd.testing.assert_frame_equal(renamed.reset_index(drop=True), one[estimates], atol=1e-6, rtol=0)


def assert_same_ranking(one: pd.DataFrame, two: pd.DataFrame) -> None:
    """Equal up to names; items that no name tells apart may have exchanged their resamples."""
    columns = ["strength", "rank", "n_verdicts", "n_wins", "n_ties", "std_error"]
    columns += ["strength_low", "strength_high", "rank_low", "rank_high"]
    a, b = (f[columns].round(6).sort_values(columns, ignore_index=True) for f in (one, two))
    pd.testing.assert_frame_equal(a, b, atol=2e-6, rtol=0)


def test_intervals_contain_the_estimates_and_ranks_are_whole() -> None:
    frame = design(runs=6)
    frame["context"] = frame["run"].astype(str)
    items = rank(frame, n_resamples=200).items
    assert (
        (items["strength_low"] <= items["strength"]) & (items["strength"] <= items["strength_high"])
    ).all()
    assert ((items["rank_low"] <= items["rank"]) & (items["rank"] <= items["rank_high"])).all()
    assert (items[["rank_low", "rank_high"]] % 1 == 0).all().all()
    assert items["rank"].is_monotonic_increasing


@pytest.mark.slow
def test_strength_intervals_cover_the_truth() -> None:
    # Differences of strengths to the mean; 200 contexts of one ordered pair each, in both orders.
    truth = dict(zip(ITEMS, np.array([0.8, 0.3, -0.2, -0.9]), strict=True))
    rng = np.random.default_rng(5)
    covered = 0
    trials = 60
    pairs = list(itertools.combinations(ITEMS, 2))
    for _ in range(trials):
        rows = []
        for context in range(150):
            a, b = pairs[context % 6]
            p = 1 / (1 + math.exp(-(truth[a] - truth[b])))
            for first, second, chance in ((a, b, p), (b, a, 1 - p)):
                rows.append((str(context), first, second, "first" if rng.random() < chance else "second"))
        frame = pd.DataFrame(rows, columns=["context", "item_first", "item_second", "verdict"])
        ranking = rank_group(tally_of(frame), None, RankingOptions(n_resamples=200), rng=rng)
        low, high = column(ranking, "strength_low"), column(ranking, "strength_high")
        covered += sum(low[item] <= truth[item] <= high[item] for item in ITEMS)
    assert 0.90 < covered / (4 * trials) < 0.985


def test_a_single_cluster_has_no_intervals_and_says_so() -> None:
    ranking = rank(rows_of("A>B, B>A, B>C, C>B, A>C", context="1"), n_resamples=50, std_errors="bootstrap")
    assert ranking.items[["strength_low", "rank_high", "std_error"]].isna().all().all()
    assert "a single context" in ranking.reason
    assert ranking.n_undefined_resamples == 0


# --- groups
# --------------------------------------------------------------------------------------------------------


def test_groups_that_cannot_be_ranked_give_their_reason_and_leave_the_others_alone() -> None:
    frame = pd.concat(
        [
            rows_of("A>B, B>A x2", judge="good"),
            rows_of("A?B, B?A", judge="silent"),
            rows_of("A>B, B<A", judge="one-sided"),
        ]
    )
    rankings = {r.name: r for r in rank_groups(tally_of(frame), None, RankingOptions(n_resamples=20), rng=1)}
    assert rankings["good"].fit is not None
    assert "no valid verdict" in rankings["silent"].reason
    assert rankings["one-sided"].fit is None
    assert rankings["one-sided"].to_dict()["converged"] is False
    with pytest.raises(NoMaximumError):
        rank_groups(tally_of(frame[frame["judge"] == "one-sided"]), None, RankingOptions(n_resamples=20))
    with pytest.raises(InputError, match="no valid verdict"):
        rank_groups(tally_of(frame[frame["judge"] == "silent"]), None, RankingOptions(n_resamples=20))


@pytest.mark.parametrize(
    ("option", "value"), [("order_effect", "two"), ("std_errors", "hc3"), ("method", "elo"), ("ties", "drop")]
)
def test_unknown_options_are_refused_with_the_choices(option: str, value: str) -> None:
    with pytest.raises(InputError, match=value):
        rank(design(), **{option: value})


def test_davidson_ties_equal_a_direct_maximisation() -> None:
    from scipy.optimize import minimize

    frame = rows_of("A>B x4, B>A x2, A=B x3, B>C x3, C>B x2, B=C x2, A>C x5, C>A, A=C")
    ranking = rank(frame, ties="davidson")
    data = frame[["item_first", "item_second", "verdict"]].to_numpy()

    def loss(x: np.ndarray) -> float:
        theta = dict(zip("ABC", (*x[:2], 0.0), strict=True))
        total = 0.0
        for first, second, verdict in data:
            a, b = math.exp(theta[first] / 2), math.exp(theta[second] / 2)
            weights = {"first": a / b, "second": b / a, "tie": math.exp(x[2])}
            total -= math.log(weights[verdict] / sum(weights.values()))
        return total

    best = minimize(loss, np.zeros(3), method="BFGS", options={"gtol": 1e-9})
    strength = column(ranking, "strength")
    assert strength["A"] - strength["C"] == pytest.approx(best.x[0], abs=1e-5)
    assert ranking.fit.tie_parameter == pytest.approx(math.exp(best.x[2]), abs=1e-5)
    assert ranking.fit.log_likelihood == pytest.approx(-best.fun, abs=1e-7)


def test_gold_adds_recovery_and_scores() -> None:
    gold = pd.DataFrame({"item": list("abcd"), "score": [4, 3, 2, 1]})
    ranking = rank(design(runs=30), gold, n_resamples=50)
    assert ranking.recovery.spearman == 1
    assert column(ranking, "gold") == {"a": 4, "b": 3, "c": 2, "d": 1}
    fields = ranking.to_dict()
    assert fields["spearman"] == 1
    assert fields["spearman_level"] == "system"
    assert rank(design()).to_dict()["spearman"] is None


@pytest.mark.parametrize("n_votes", [1, 8])
def test_batch_of_order_effect_fits_equals_the_general_fit_and_leaves_out_what_has_no_maximum(
    n_votes: int,
) -> None:
    rng = np.random.default_rng(5)
    item_i, item_j = np.triu_indices(6, 1)
    bucket = rng.integers(0, 2, len(item_i))
    counts = rng.multinomial(n_votes, [0.5, 0.4, 0.1], size=(80, len(item_i), 2)).astype(float)
    batch = fit_order_batch(item_i, item_j, bucket, counts, 6)
    general = fit_bradley_terry(
        item_i, item_j, counts, order_effect=bucket, std_errors="none", on_no_maximum="nan"
    ).strengths
    settled = ~np.isnan(batch).any(axis=1)
    assert settled.any()
    assert not np.isnan(general[settled]).any()  # never a number where there is no maximum
    np.testing.assert_allclose(batch[settled], general[settled], atol=1e-8)
    assert settled.sum() == (~np.isnan(general).any(axis=1)).sum()


def test_cross_check_with_an_order_effect_checks_the_fit_without_it(shared_data: Path) -> None:
    tally = tally_verdicts(read_verdicts(shared_data / "qlora_vicuna.csv"))
    options = RankingOptions(order_effect="one", n_resamples=0)
    ranking = rank_group(tally.select(0), None, options, check=True)
    assert ranking.difference is not None
    assert ranking.difference.largest < 1e-6
    assert "without order effect" in ranking.checked
