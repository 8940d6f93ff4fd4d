"""Gap buckets and the difficulty profile."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from difficulty.gaps import fit_gold_scale, profile_difficulty
from difficulty.reliability import METRICS
from rank.buckets import GapBuckets, bucket_gaps, within_context_gaps
from rank.exceptions import InputError
from rank.gold import check_gold
from tests.strategies import mirrored, relabelled, rows_of, studies, tally_of


def gold_of(scores: dict[str, float]) -> pd.DataFrame:
    return pd.DataFrame({"item": list(scores), "score": list(scores.values())})


def pairs_with_gaps(gaps: list[float]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One context per pair, whose two items lie the stated gap apart; every pair in both orders."""
    frame = pd.concat([rows_of("a>b, b>a", context=str(k)) for k in range(len(gaps))])
    gold = pd.DataFrame(
        [(str(k), item, score) for k, gap in enumerate(gaps) for item, score in (("a", gap), ("b", 0.0))],
        columns=["context", "item", "score"],
    )
    return frame, gold


def buckets_of(
    frame: pd.DataFrame, gold: pd.DataFrame, *, without_ties: bool = False, **options: object
) -> GapBuckets:
    tally, checked = tally_of(frame), check_gold(gold)
    if without_ties:
        checked = checked.without_ties()
    return bucket_gaps(tally, checked, checked.align(tally), **options)  # type: ignore[arg-type]


def sizes(buckets: GapBuckets) -> list[int]:
    return np.bincount(buckets.bucket[buckets.bucket >= 0], minlength=len(buckets.names)).tolist()


@given(studies(kinds=("items",), max_judges=1))
def test_pool_of_gaps_equals_all_pairs_of_items_in_every_context(
    case: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    frame, gold_frame = case
    expected = []
    context_of = frame["context"] if "context" in frame else pd.Series("", index=frame.index)
    for context, rows in frame.groupby(context_of):
        here = gold_frame[gold_frame["context"] == context] if "context" in gold_frame else gold_frame
        score = dict(zip(here["item"], here["score"], strict=True))
        known = sorted({*rows["item_first"], *rows["item_second"]} & set(score))
        expected += [abs(score[a] - score[b]) for a, b in itertools.combinations(known, 2)]
    found = within_context_gaps(tally_of(frame), check_gold(gold_frame))
    np.testing.assert_allclose(np.sort(found), np.sort(expected), atol=1e-9)


@given(studies(kinds=("items",), max_judges=1), st.integers(2, 5), st.sampled_from(["items", "judged"]))
def test_edges_equal_numpy_quantiles_and_buckets_cut_by_value(
    case: tuple[pd.DataFrame, pd.DataFrame], k: int, edges: str
) -> None:
    frame, gold_frame = case
    tally, gold = tally_of(frame), check_gold(gold_frame)
    aligned = gold.align(tally)
    try:
        buckets = bucket_gaps(tally, gold, aligned, n_buckets=k, edges=edges)
    except InputError:
        known = aligned.gap[~np.isnan(aligned.gap)]
        pool = within_context_gaps(tally, gold) if edges == "items" else known
        cut = np.quantile(pool, np.arange(1, k) / k) if len(pool) else np.zeros(0)
        overlap = len(cut) > 1 and cut[0] == cut[-1]
        assert len(known) == 0 or np.ptp(pool) == 0 or overlap
        return
    pool = within_context_gaps(tally, gold) if edges == "items" else aligned.gap[~np.isnan(aligned.gap)]
    cut = np.quantile(pool, np.arange(1, k) / k)
    assert set(buckets.edges) <= set(cut)
    assert buckets.edges[0] == cut[0]
    if len(buckets.edges) > 1:
        assert buckets.edges[-1] == cut[-1]
    assert buckets.basis == edges
    gap = aligned.gap
    close, far = buckets.bucket == 0, buckets.bucket == len(buckets.names) - 1
    known = ~np.isnan(gap)
    np.testing.assert_array_equal(close, known & (gap <= cut[0]))
    np.testing.assert_array_equal(far, known & ((gap >= cut[-1]) if k > 2 else (gap > cut[-1])))
    assert (buckets.bucket[~known] == -1).all()
    for one in np.unique(gap[known]):  # equal gaps always together
        assert len(set(buckets.bucket[gap == one])) == 1
    order = np.argsort(gap[known], kind="stable")
    assert (np.diff(buckets.bucket[known][order]) >= 0).all()
    if len(np.unique(cut)) < len(cut):
        assert any("coincide" in note for note in buckets.notes)


def test_case_13_equal_gaps_stay_together_with_real_edges_and_sizes() -> None:
    frame, gold = pairs_with_gaps([0.0] * 28 + [1.0] * 45 + [2.0] * 20 + [3.0] * 7)
    buckets = buckets_of(frame, gold)
    assert buckets.names == ("close", "2", "far")
    assert sizes(buckets) == [28, 45, 27]
    assert buckets.low.tolist() == [0, 1, 2]
    assert buckets.high.tolist() == [0, 1, 3]
    assert buckets.edges[0] == 0  # the real first edge: where the zeros end


def test_coinciding_edges_merge_with_a_note() -> None:
    frame, gold = pairs_with_gaps([1.0] * 60 + [2.0] * 15 + [3.0] * 25)
    buckets = buckets_of(frame, gold)
    assert len(buckets.edges) == 2
    assert "1 of 3 edges coincide" in buckets.notes[0]
    assert sizes(buckets)[0] == 60


def test_overlapping_close_and_far_are_refused_with_both_ways_out() -> None:
    frame, gold = pairs_with_gaps([0.0] * 80 + [1.0] * 20)
    with pytest.raises(InputError, match=r"close and far would overlap.*--gap-edges.*--exclude-gold-ties"):
        buckets_of(frame, gold)
    with pytest.raises(InputError, match="all gold gaps are equal"):
        buckets_of(frame, gold, without_ties=True)


def test_case_14_constant_gold_gives_a_sentence_and_no_buckets() -> None:
    frame = rows_of("a>b, b>a, b>c, c<b, a>c, c>a")
    profile = profile_difficulty(
        tally_of(frame), check_gold(gold_of({"a": 1, "b": 1, "c": 1})), n_resamples=0
    )
    assert profile.buckets is None
    assert "all gold gaps are equal (0)" in profile.reason
    assert len(profile.to_frame()) == 0


@pytest.mark.parametrize("digits", [4, 6, 15])
def test_gaps_of_thirds_that_differ_in_their_last_bits_share_a_bucket(digits: int) -> None:
    scores = {name: round(k / 3, digits) for k, name in enumerate("abcdefg")}
    frame = rows_of(", ".join(f"{a}>{b}" for a, b in itertools.combinations(scores, 2)))
    if (
        digits < 15
    ):  # scores that were rounded in the file: 0.3333 and 0.3334 are two values and are not merged
        scores = {name: k * round(1 / 3, digits) for k, name in enumerate("abcdefg")}
    tally = tally_of(frame)
    gold = check_gold(gold_of(scores))
    buckets = bucket_gaps(tally, gold, gold.align(tally))
    steps = tally.item_j - tally.item_i  # items are in the order of their scores
    for step in range(1, 7):
        assert len(set(buckets.bucket[steps == step])) == 1
    assert len(np.unique(gold.align(tally).gap)) == 6


def test_contexts_of_different_sizes_round_their_gaps_alike() -> None:
    # A context with a large score and another size must not round 1/3 at another digit than the rest.
    small = rows_of("a>b, b>c, a>c", context="small")
    large = rows_of("a>b, a>c, a>d, b>c, b>d, c>d", context="large")
    frame = pd.concat([small, large])
    rows = [("small", k, s) for k, s in zip("abc", (1 / 3, 0, 2 / 3), strict=True)]
    rows += [("large", k, s) for k, s in zip("abcd", (1 / 3, 0, 2 / 3, 5000.0), strict=True)]
    gold = pd.DataFrame(rows, columns=["context", "item", "score"])
    tally, checked = tally_of(frame), check_gold(gold)
    pool = within_context_gaps(tally, checked)
    assert set(checked.align(tally).gap) == set(pool)
    assert len(np.unique(pool[pool < 1])) == 2


def test_edges_depend_on_the_items_and_not_on_the_design() -> None:
    gold = gold_of({"a": 0, "b": 1, "c": 3, "d": 7})
    full = rows_of("a>b, a>c, a>d, b>c, b>d, c>d")
    sparse = rows_of("a>b, b>c, c>d")
    assert buckets_of(full, gold).edges.tolist() == [2.25, 3.5, 5.5]
    few = buckets_of(sparse, gold)  # nobody judged a pair in (2.25, 3.5], so that bucket is left out
    assert few.edges.tolist() == [2.25, 5.5]
    assert "1 bucket(s) without a judged pair" in few.notes[-1]
    assert buckets_of(sparse, gold, edges="judged").edges.tolist() == [1.5, 3.0]


def test_fixed_edges_are_taken_as_given_inclusive_on_both_ends() -> None:
    frame, gold = pairs_with_gaps([0.5, 1.0, 1.5, 2.0, 2.5])
    buckets = buckets_of(frame, gold, edges=[1, 2])
    assert sizes(buckets) == [2, 1, 2]
    assert buckets.basis == "fixed"
    assert sizes(buckets_of(frame, gold, edges=[1])) == [2, 3]
    for bad in ([], [2, 1], [1, 1], [-1, 2], [1, math.inf], [math.nan]):
        with pytest.raises(InputError, match="gap edges must be increasing"):
            buckets_of(frame, gold, edges=bad)
    with pytest.raises(InputError, match="choose items or judged"):
        buckets_of(frame, gold, edges="quartiles")
    with pytest.raises(InputError, match="at least 2 buckets"):
        buckets_of(frame, gold, n_buckets=1)


def test_empty_buckets_are_said_and_left_out() -> None:
    frame, gold = pairs_with_gaps([0.5, 0.6, 5.0])
    buckets = buckets_of(frame, gold, edges=[1, 2, 3])
    assert buckets.names == ("close", "far")
    assert sizes(buckets) == [2, 1]
    assert any("2 bucket(s) without a judged pair" in note for note in buckets.notes)
    none_far = buckets_of(frame, gold, edges=[1, 10])
    assert any("no judged pair is far" in note for note in none_far.notes)


def test_excluded_gold_ties_and_unknown_gaps_are_counted() -> None:
    frame, gold = pairs_with_gaps([0.0, 0.0, 1.0, 2.0, 3.0, 4.0])
    buckets = buckets_of(frame, gold[gold["context"] != "5"], without_ties=True)
    assert (buckets.n_excluded_ties, buckets.n_unknown) == (2, 1)
    assert sum(sizes(buckets)) == 3


def test_pair_gold_has_buckets_of_its_stated_gaps_only() -> None:
    rows = [("a", "b", "a", 0.5), ("a", "c", "a", 1.0), ("b", "c", "b", 2.0), ("a", "d", "d", None)]
    gold = pd.DataFrame(rows, columns=["item_a", "item_b", "winner", "gap"])
    frame = rows_of("a>b, a>c, b>c, a>d")
    buckets = buckets_of(frame, gold)
    assert buckets.basis == "judged"
    assert buckets.n_unknown == 1
    assert sum(sizes(buckets)) == 3
    profile = profile_difficulty(tally_of(frame), check_gold(gold.drop(columns="gap")), n_resamples=0)
    assert profile.buckets is None
    assert "gap" in profile.reason


# --- the profile
# --------------------------------------------------------------------------------------------------------


@given(studies(kinds=("items",), max_judges=1))
def test_buckets_partition_the_pairs_and_counts_and_credits_add_up(
    case: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    frame, gold_frame = case
    tally, gold = tally_of(frame), check_gold(gold_frame)
    profile = profile_difficulty(tally, gold, n_resamples=20, rng=1)
    assume(profile.buckets is not None)
    covered = tally.rows(~np.isnan(gold.align(tally).gap))
    whole = profile_difficulty(covered, gold, edges=profile.buckets.edges.tolist(), n_resamples=0)
    np.testing.assert_allclose(profile.by_bucket.sums.sum(axis=0), whole.overall.sums[0], atol=1e-9)
    for share, name in ((profile.share_of_flips, "n_flips"), (profile.share_of_wrong, "n_wrong_decisive")):
        count = profile.by_bucket.count(name)
        if count.sum():
            np.testing.assert_allclose(share, count / count.sum())
            assert share.sum() == pytest.approx(1)
        else:
            assert np.isnan(share).all()
    for name in METRICS:
        estimate, low, high = profile.close_minus_far[name]
        difference = profile.by_bucket.estimate[name][0] - profile.by_bucket.estimate[name][-1]
        assert estimate == pytest.approx(difference, nan_ok=True)
        assert math.isnan(low) or -1 <= low <= estimate <= high <= 1


@given(studies(kinds=("items",), max_judges=1), st.randoms(use_true_random=False))
def test_case_28_profiles_survive_renaming_and_mirroring_at_a_fixed_seed(
    case: tuple[pd.DataFrame, pd.DataFrame], random
) -> None:
    frame, gold = case
    items = sorted({*frame["item_first"], *frame["item_second"]})
    names = dict(zip(items, random.sample(["q", "r", "s", "t", "u"], len(items)), strict=True))
    one = profile_difficulty(tally_of(frame), check_gold(gold), n_resamples=50, rng=2)
    changed = tally_of(relabelled(frame, names).sample(frac=1, random_state=1))
    two = profile_difficulty(changed, check_gold(relabelled(gold, names)), n_resamples=50, rng=2)
    three = profile_difficulty(tally_of(mirrored(frame)), check_gold(gold), n_resamples=50, rng=2)
    assert one.reason == two.reason == three.reason
    if one.buckets is None:
        return
    assert one.to_frame().round(9).equals(two.to_frame().round(9))
    slots = [c for c in one.to_frame() if c.startswith(("inconsistent_pair_primacy", "first_slot_rate"))]
    a, b = (p.to_frame().drop(columns=slots) for p in (one, three))
    pd.testing.assert_frame_equal(a, b, atol=1e-9, rtol=0)
    for name, (estimate, low, high) in one.close_minus_far.items():
        np.testing.assert_allclose(two.close_minus_far[name], (estimate, low, high), atol=1e-9)
        if not name.startswith(("inconsistent", "first_slot")):
            np.testing.assert_allclose(three.close_minus_far[name], (estimate, low, high), atol=1e-9)


def test_close_minus_far_is_paired_over_the_contexts() -> None:
    # Every context flips either everywhere or nowhere: the difference is exactly zero in every resample.
    gold = gold_of({"a": 0, "b": 1, "c": 10})
    stable, flips = "a>b, b<a, a>c, c<a, b>c, c<b", "a>b, b>a, a>c, c>a, b>c, c>b"
    frame = pd.concat([rows_of(stable if k % 2 else flips, context=str(k)) for k in range(30)])
    profile = profile_difficulty(tally_of(frame), check_gold(gold), edges=[1], n_resamples=200, rng=1)
    estimate, low, high = profile.close_minus_far["flip_rate"]
    assert (estimate, low, high) == pytest.approx((0, 0, 0))
    assert profile.by_bucket.high["flip_rate"][0] - profile.by_bucket.low["flip_rate"][0] > 0.2


def calibrated_study(n: int, scale: float, rng: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
    score = rng.normal(size=60)
    rows = []
    for k in range(n):
        i, j = rng.choice(60, 2, replace=False)
        p = 1 / (1 + math.exp(-scale * (score[i] - score[j])))
        for first, second, chance in ((i, j, p), (j, i, 1 - p)):
            rows.append(
                (str(k), f"{first:02d}", f"{second:02d}", "first" if rng.random() < chance else "second")
            )
    frame = pd.DataFrame(rows, columns=["context", "item_first", "item_second", "verdict"])
    return frame, pd.DataFrame({"item": [f"{k:02d}" for k in range(60)], "score": score})


def test_a_calibrated_judge_shows_no_inconsistency_beyond_the_reference() -> None:
    frame, gold = calibrated_study(4000, 1.0, np.random.default_rng(8))
    profile = profile_difficulty(tally_of(frame), check_gold(gold), gold_scale="strengths", n_resamples=0)
    reference = profile.reference
    assert reference.scale == 1
    np.testing.assert_allclose(reference.observed_minus_expected_swap_consistency, 0, atol=0.05)
    np.testing.assert_allclose(reference.observed_minus_expected_accuracy, 0, atol=0.05)
    assert reference.expected_flips[:-1].sum() == pytest.approx(reference.expected_flips[-1])
    assert (np.diff(reference.flip_cost[:-1]) > 0).all()
    assert (np.diff(reference.fisher_information[:-1]) < 0).all()
    assert reference.fisher_information[0] == pytest.approx(0.25, abs=0.01)


def test_calibrated_expectations_are_those_of_the_formula() -> None:
    frame, gold = pairs_with_gaps([0.2, 1.0, 3.0])
    reference = profile_difficulty(
        tally_of(frame), check_gold(gold), gold_scale="strengths", edges=[0.5, 2], n_resamples=0
    ).reference
    p = 1 / (1 + np.exp(-np.array([0.2, 1.0, 3.0])))
    np.testing.assert_allclose(reference.expected_swap_consistency[:-1], p**2 + (1 - p) ** 2)
    np.testing.assert_allclose(reference.expected_accuracy[:-1], p)
    np.testing.assert_allclose(reference.flip_cost, [0.2, 1.0, 3.0, 1.4])
    np.testing.assert_allclose(reference.fisher_information[:-1], p * (1 - p))
    assert reference.expected_accuracy[-1] == pytest.approx(p.mean())


def test_the_reference_compares_on_pairs_with_gold_only() -> None:
    frame = pd.concat(
        [rows_of("a>b, b<a", context="1"), rows_of("a>b, b>a", context="2"), rows_of("a>c, c<a", context="1")]
    )
    gold = pd.DataFrame({"context": ["1"] * 3, "item": list("abc"), "score": [0.0, 1.0, 3.0]})
    profile = profile_difficulty(
        tally_of(frame), check_gold(gold), gold_scale="strengths", edges=[2], n_resamples=0
    )
    reference = profile.reference
    assert profile.overall.estimate["flip_rate"][0] == pytest.approx(1 / 3)
    observed = reference.observed_minus_expected_swap_consistency + reference.expected_swap_consistency
    assert observed[-1] == pytest.approx(1)  # the flip is on the pair without gold


def test_fitted_scale_equals_logistic_regression_and_recovers_the_factor() -> None:
    import statsmodels.api as sm

    frame, gold_frame = calibrated_study(3000, 2.5, np.random.default_rng(9))
    gold_frame["score"] *= 10
    tally, gold = tally_of(frame), check_gold(gold_frame)
    aligned = gold.align(tally)
    wins = tally.counts.sum(axis=1)[:, :2]
    x = (aligned.score_i - aligned.score_j)[:, None]
    expected = sm.GLM(wins, x, family=sm.families.Binomial()).fit().params[0]
    found = fit_gold_scale(tally, aligned)
    assert found == pytest.approx(expected, rel=1e-6)
    assert found == pytest.approx(0.25, rel=0.1)


def test_a_scale_that_does_not_exist_is_undefined() -> None:
    tally = tally_of(rows_of("a>b, b<a, a>c, c<a"))
    gold = check_gold(gold_of({"a": 3, "b": 2, "c": 0}))
    assert math.isnan(fit_gold_scale(tally, gold.align(tally)))
    with pytest.raises(InputError, match="gold scale"):
        profile_difficulty(tally, gold, gold_scale="log")


def test_equal_gaps_are_counted_by_value_in_a_study_of_many_scores() -> None:
    rng = np.random.default_rng(4)
    scores = {f"{k:03d}": float(s) for k, s in enumerate(rng.integers(1, 6, size=80))}
    pairs = itertools.combinations(sorted(scores), 2)
    frame = pd.DataFrame([(*p, "first") for p in pairs], columns=["item_first", "item_second", "verdict"])
    gold = check_gold(gold_of(scores))
    tally = tally_of(frame)
    buckets = bucket_gaps(tally, gold, gold.align(tally))
    gap = gold.align(tally).gap
    assert {(g, b) for g, b in zip(gap, buckets.bucket, strict=True)} == {
        (g, buckets.bucket[gap == g][0]) for g in np.unique(gap)
    }


def test_gold_rounded_in_its_file_is_noted_and_gap_digits_join_what_rounding_parted() -> None:
    thirds = {"a": 1.0, "b": 1.3333, "c": 1.6667, "d": 2.0, "e": 2.3333, "f": 3.0}
    frame = pd.DataFrame(
        [(*p, "first") for p in itertools.combinations(thirds, 2)],
        columns=["item_first", "item_second", "verdict"],
    )
    tally = tally_of(frame)
    plain, joined = check_gold(gold_of(thirds)), check_gold(gold_of(thirds), gap_digits=3)
    assert plain.decimals == 4
    as_written = bucket_gaps(tally, plain, plain.align(tally))
    assert any("--gap-digits 3" in note for note in as_written.notes)
    rounded = bucket_gaps(tally, joined, joined.align(tally))
    assert not any("--gap-digits" in note for note in rounded.notes)
    third = np.isclose(joined.align(tally).gap, 1 / 3, atol=0.001)
    assert third.sum() == 4
    assert len(set(rounded.bucket[third])) == 1
    assert set(joined.align(tally).gap[third]) == {0.333}
