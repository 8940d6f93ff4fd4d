"""C, phi, A, T and their relatives against a plain re-implementation, and the identities between them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from difficulty.reliability import (
    COUNTS,
    DIFFERENCES,
    FAILURE_MODES,
    METRICS,
    SLOT_STATISTICS,
    STATISTICS,
    MetricTable,
    failure_mode,
    measure_reliability,
    metrics_from_sums,
    modal_verdicts,
    pair_statistics,
    pair_verdicts,
    rates_from_summary,
)
from rank.exceptions import InputError
from rank.gold import check_gold
from tests.strategies import mirrored, relabelled, rows_of, studies, tally_of, verdict_frames

SLOT_METRICS = ("inconsistent_pair_primacy", "first_slot_rate")


def measure(frame: pd.DataFrame, gold: pd.DataFrame | None = None, **options: object) -> MetricTable:
    tally = tally_of(frame)
    pair_gold = None if gold is None else check_gold(gold).align(tally)
    return measure_reliability(tally, pair_gold, **{"n_resamples": 0, **options})  # type: ignore[arg-type]


def values(table: MetricTable, index: int = 0) -> dict[str, float]:
    return {name: float(table.estimate[name][index]) for name in METRICS}


# --- the witness: section 2 of the specification, read off the rows with nothing but loops
# --------------------------------------------------------------------------------------------------------


def gold_lookup(gold: pd.DataFrame | None):
    rows = [] if gold is None else gold.to_dict("records")

    def winner(context: str, a: str, b: str) -> str | None:
        here = [row for row in rows if row.get("context", context) == context]
        if rows and "item" in rows[0]:
            score = {row["item"]: row["score"] for row in here}
            if a not in score or b not in score:
                return None
            return "tie" if abs(score[a] - score[b]) < 1e-9 else a if score[a] > score[b] else b
        return next((row["winner"] for row in here if {row["item_a"], row["item_b"]} == {a, b}), None)

    return winner


def brute_force(frame: pd.DataFrame, gold: pd.DataFrame | None, tie_credit: float = 0.0) -> dict[str, float]:
    """Every metric of one group from its rows."""
    winner_of = gold_lookup(gold)
    said: dict[tuple[str, str, str], list[str]] = defaultdict(
        list
    )  # condition -> valid verdicts in item space
    n_invalid = first_named = second_named = 0
    for row in frame.to_dict("records"):
        a, b, context = row["item_first"], row["item_second"], row.get("context", "")
        said[context, a, b]  # the condition exists even if nothing in it is valid
        if row["verdict"] == "":
            n_invalid += 1
            continue
        first_named += row["verdict"] == "first"
        second_named += row["verdict"] == "second"
        said[context, a, b].append({"first": a, "second": b}.get(row["verdict"], "tie"))

    def modal(context: str, a: str, b: str) -> str | None:
        ranking = Counter(said.get((context, a, b), [])).most_common()
        if not ranking:
            return None
        return "tie" if len(ranking) > 1 and ranking[0][1] == ranking[1][1] else ranking[0][0]

    def credit(verdict: str, gold_winner: str) -> float:
        return 1.0 if verdict == gold_winner else tie_credit if verdict == "tie" else 0.0

    pairs = sorted({(c, *sorted((a, b))) for c, a, b in said})
    counts = dict.fromkeys(COUNTS, 0)
    counts |= {"n_invalid": n_invalid, "n_verdicts": sum(map(len, said.values()))}
    counts["n_ties"] = sum(v.count("tie") for v in said.values())
    flips: list[bool] = []
    leans: list[int] = []
    gold_flips: list[bool] = []
    decided: list[float] = []
    undecided: list[float] = []
    plain: list[float] = []
    joint: list[float] = []
    unanimous: list[bool] = []
    unanimous_gold: list[bool] = []
    agreement: list[float] = []
    for context, a, b in pairs:
        orders = [(a, b), (b, a)]
        modes = [modal(context, *order) for order in orders]
        gold_winner = winner_of(context, a, b)
        both = None not in modes
        flip = both and modes[0] != modes[1]
        counts["n_pairs"] += 1
        counts["n_pairs_swapped"] += both
        counts["n_pairs_one_order"] += modes.count(None) == 1
        counts["n_pairs_invalid"] += modes.count(None) == 2
        counts["n_pairs_gold"] += gold_winner is not None
        counts["n_flips"] += flip
        counts["n_conditions"] += 2 - modes.count(None)
        if both:
            flips.append(flip)
            if gold_winner is not None:
                gold_flips.append(flip)
                credits = [credit(str(mode), gold_winner) for mode in modes]
                (undecided if flip else decided).extend(credits)
                counts["n_wrong_decisive"] += not flip and credits[0] < 1
        if flip:  # (first, first), (first, tie), (tie, first) lean first; second likewise
            named = [mode == order[0] for mode, order in zip(modes, orders, strict=True)]
            leans.append(1 if any(named) else 0)
        for order, mode in zip(orders, modes, strict=True):
            runs = said.get((context, *order), [])
            if gold_winner is not None:
                plain.extend(credit(v, gold_winner) for v in runs)
            if len(runs) < 2:
                continue
            same = len(set(runs)) == 1
            unanimous.append(same)
            equal = sum(runs[s] == runs[t] for s in range(len(runs)) for t in range(len(runs)) if s != t)
            agreement.append(equal / (len(runs) * (len(runs) - 1)))
            if gold_winner is not None:
                unanimous_gold.append(same)
                if both:
                    joint.append(credit(str(mode), gold_winner) if same and not flip else 0.0)
    counts["n_conditions_repeated"] = len(unanimous)

    def mean(list_: list) -> float:
        return sum(list_) / len(list_) if list_ else math.nan

    c, phi, phi_gold = mean(unanimous_gold), mean(flips), mean(gold_flips)
    accuracy, q_u = mean(decided + undecided), mean(undecided)
    flipped_share = 0.0 if not gold_flips or not any(gold_flips) else phi_gold * q_u
    upper = accuracy - flipped_share
    ceiling = 1 - phi_gold + flipped_share
    return {
        "repeatability": mean(unanimous),
        "repeat_agreement": mean(agreement),
        "flip_rate": phi,
        "swap_consistency": 1 - phi,
        "inconsistent_pair_primacy": mean(leans),
        "first_slot_rate": first_named / (first_named + second_named)
        if first_named + second_named
        else math.nan,
        "accuracy": accuracy,
        "accuracy_verdicts": mean(plain),
        "decisive_accuracy": mean(decided),
        "undecided_accuracy": q_u,
        "ceiling": ceiling,
        "capability_gap": ceiling - accuracy,
        "trustworthy_rate": c * upper,
        "trustworthy_rate_upper": upper,
        "trustworthy_rate_joint": mean(joint),
        "joint_minus_closed": mean(joint) - c * upper,
        "repeatability_gold": c,
        "flip_rate_gold": phi_gold,
        "gold_coverage": counts["n_pairs_gold"] / counts["n_pairs"],
        **counts,
    }


@given(studies(), st.sampled_from([0.0, 0.5, 1.0]))
def test_every_metric_equals_a_plain_reimplementation_from_the_rows(
    case: tuple[pd.DataFrame, pd.DataFrame], tie_credit: float
) -> None:
    frame, gold = case
    table = measure(frame, gold, tie_credit=tie_credit)
    for index, (_, rows) in enumerate(frame.groupby("judge")):
        expected = brute_force(rows, gold, tie_credit)
        found = values(table, index) | {name: int(table.count(name)[index]) for name in COUNTS}
        assert found == pytest.approx(expected, abs=1e-12, nan_ok=True)


@given(verdict_frames(max_judges=1))
def test_without_gold_everything_else_is_the_same_and_what_needs_gold_is_undefined(
    frame: pd.DataFrame,
) -> None:
    found, expected = values(measure(frame)), brute_force(frame, None)
    assert found == pytest.approx({name: expected[name] for name in METRICS}, abs=1e-12, nan_ok=True)
    assert math.isnan(found["accuracy"])
    assert math.isnan(found["trustworthy_rate_upper"])


# --- identities
# --------------------------------------------------------------------------------------------------------


def zero_if_nan(x: float) -> float:
    return 0.0 if math.isnan(x) else x


@given(studies(max_judges=1))
def test_identities_of_accuracy_ceiling_and_trustworthy_rate(case: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    m = values(measure(*case))
    if math.isnan(m["accuracy"]):
        assert math.isnan(m["trustworthy_rate"])
        return
    phi, a, a_dec = m["flip_rate_gold"], m["accuracy"], m["decisive_accuracy"]
    q_u, c = m["undecided_accuracy"], m["repeatability_gold"]
    assert math.isnan(q_u) == (phi == 0)
    assert math.isnan(a_dec) == (phi == 1)
    a_dec, q_u = zero_if_nan(a_dec), zero_if_nan(q_u)
    assert a == pytest.approx((1 - phi) * a_dec + phi * q_u, abs=1e-12)
    assert a <= m["ceiling"] + 1e-12
    assert m["ceiling"] == pytest.approx(1 - phi * (1 - q_u), abs=1e-12)
    assert m["capability_gap"] == pytest.approx(m["ceiling"] - a, abs=1e-12)
    assert m["trustworthy_rate_upper"] == pytest.approx(a - phi * q_u, abs=1e-12)
    assert m["trustworthy_rate"] == pytest.approx(c * (a - phi * q_u), abs=1e-12, nan_ok=True)
    assert m["trustworthy_rate"] == pytest.approx(c * (1 - phi) * a_dec, abs=1e-12, nan_ok=True)
    assert m["joint_minus_closed"] == pytest.approx(
        m["trustworthy_rate_joint"] - m["trustworthy_rate"], abs=1e-12, nan_ok=True
    )


@given(st.data())
def test_forced_binary_verdicts_and_gold_give_undecided_accuracy_of_one_half(data: st.DataObject) -> None:
    # Odd numbers of runs, so that no draw between runs turns into a tie.
    runs = data.draw(st.sampled_from([1, 3]))
    frame = data.draw(
        verdict_frames(max_judges=1, max_runs=1, verdicts=("first", "second"), both_orders=True)
    )
    frames = [frame.assign(run=1)]
    for run in range(2, runs + 1):
        size = len(frame)
        verdicts = data.draw(st.lists(st.sampled_from(["first", "second"]), min_size=size, max_size=size))
        frames.append(frame.assign(run=run, verdict=verdicts))
    gold = pd.DataFrame({"item": ["alpha", "bravo", "charlie", "delta"], "score": [4, 3, 2, 1]})
    m = values(measure(pd.concat(frames), gold))
    a, phi = m["accuracy"], m["flip_rate"]
    if phi:
        assert m["undecided_accuracy"] == pytest.approx(0.5)
    assert m["ceiling"] == pytest.approx(1 - phi / 2)
    assert m["trustworthy_rate_upper"] == pytest.approx(a - phi / 2)
    if runs > 1:
        assert m["trustworthy_rate"] == pytest.approx(m["repeatability"] * (a - phi / 2))
        summary = rates_from_summary(m["repeatability"], phi, a)  # type: ignore[arg-type]
        assert float(summary.trustworthy_rate) == pytest.approx(m["trustworthy_rate"])
        assert float(summary.capability_gap) == pytest.approx(m["capability_gap"])
    else:
        assert math.isnan(m["trustworthy_rate"])


@given(studies())
def test_statistics_of_disjoint_rows_add_up_to_the_same_metrics(
    case: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    frame, gold_frame = case
    tally = tally_of(frame)
    stats = pair_statistics(tally.counts, check_gold(gold_frame).align(tally))
    assert stats.shape == (tally.n_pairs, len(STATISTICS))
    half = tally.n_pairs // 2
    total = metrics_from_sums(stats[:half].sum(axis=0) + stats[half:].sum(axis=0))
    whole = metrics_from_sums(stats.sum(axis=0))
    for name in METRICS:
        np.testing.assert_allclose(total[name], whole[name], atol=1e-12)
    batch = pair_statistics(
        np.stack([tally.counts, tally.counts[:, ::-1]]), check_gold(gold_frame).align(tally)
    )
    np.testing.assert_array_equal(batch[0], stats)


# --- case 28: relabelling, row order, mirrored slots
# --------------------------------------------------------------------------------------------------------


def assert_same(one: MetricTable, two: MetricTable, skip: tuple[str, ...] = ()) -> None:
    for name in METRICS:
        if name not in skip:
            for part in ("estimate", "low", "high"):
                np.testing.assert_allclose(
                    getattr(one, part)[name], getattr(two, part)[name], atol=1e-9, err_msg=f"{name} {part}"
                )


@given(studies(), st.randoms(use_true_random=False))
def test_case_28_renamed_items_and_contexts_and_shuffled_rows_change_nothing_intervals_included(
    case: tuple[pd.DataFrame, pd.DataFrame], random
) -> None:
    frame, gold = case
    items = sorted({*frame["item_first"], *frame["item_second"]})
    names = dict(zip(items, random.sample(["q", "r", "s", "t", "u"], len(items)), strict=True))
    # Renamed in gold too, also where gold has items that nobody judged.
    changed, changed_gold = relabelled(frame, names), relabelled(gold, names)
    for table in (changed, changed_gold):
        if "context" in table:
            table["context"] = table["context"].map({"0": "9", "1": "5", "2": "7"})
    changed = changed.sample(frac=1, random_state=random.randrange(1000))
    one = measure(frame, gold, n_resamples=100, rng=1)
    assert_same(one, measure(changed, changed_gold, n_resamples=100, rng=1))


@given(studies())
def test_case_28_mirrored_slots_mirror_slot_metrics_and_leave_all_other_intervals_alone(
    case: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    frame, gold = case
    one = measure(frame, gold, n_resamples=100, rng=1)
    two = measure(mirrored(frame), gold, n_resamples=100, rng=1)
    assert_same(one, two, skip=SLOT_METRICS)
    for name in SLOT_METRICS:
        np.testing.assert_allclose(two.estimate[name], 1 - one.estimate[name], atol=1e-12)
    for name in SLOT_STATISTICS:
        other = name.replace("first", "#").replace("second", "first").replace("#", "second")
        assert (one.count(name) == two.count(other)).all()


@pytest.mark.parametrize("n_contexts", [40, 600])  # clusters drawn one by one, and by multinomials
def test_case_28_mirrored_slots_leave_the_intervals_of_many_contexts_alone(n_contexts: int) -> None:
    rng = np.random.default_rng(1)
    calls = [("x", "y"), ("y", "x"), ("x", "z"), ("z", "x")] if n_contexts < 100 else [("x", "y"), ("y", "x")]
    labels = ["first", "first", "second", "tie"]
    rows = [(str(c), a, b, rng.choice(labels)) for c in range(n_contexts) for a, b in calls]
    frame = pd.DataFrame(rows, columns=["context", "item_first", "item_second", "verdict"])
    gold = pd.DataFrame({"item": ["x", "y", "z"], "score": [3, 2, 1]})
    one = measure(frame, gold, n_resamples=300, rng=1)
    assert_same(one, measure(mirrored(frame), gold, n_resamples=300, rng=1), skip=SLOT_METRICS)
    names = {"x": "z", "y": "x", "z": "y"}
    assert_same(one, measure(relabelled(frame, names), relabelled(gold, names), n_resamples=300, rng=1))


def test_a_groups_interval_does_not_depend_on_the_other_groups() -> None:
    frame = pd.concat(
        [rows_of("a>b, b>a, a>c x3, c>a, b=c, c=b", judge="x"), rows_of("a>b, b<a, c>b, b>c", judge="y")]
    )
    both, alone = (
        measure(frame, n_resamples=200, rng=3),
        measure(frame[frame["judge"] == "y"], n_resamples=200, rng=3),
    )
    for name in METRICS:
        np.testing.assert_array_equal(both.low[name][1:], alone.low[name])


# --- intervals
# --------------------------------------------------------------------------------------------------------


@given(studies())
def test_intervals_contain_the_estimate_and_stay_in_range(case: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    table = measure(*case, n_resamples=60, rng=5)
    for name in METRICS:
        estimate, low, high = (getattr(table, part)[name] for part in ("estimate", "low", "high"))
        known = ~np.isnan(low)
        assert (known == ~np.isnan(high)).all()
        assert not (known & np.isnan(estimate)).any()
        assert (low[known] <= estimate[known]).all()
        assert (estimate[known] <= high[known]).all()
        floor = -1 if name in DIFFERENCES else 0
        assert (low[known] >= floor).all()
        assert (high[known] <= 1).all()
        if name not in DIFFERENCES:  # no proportion on a bound claims to be certain
            on_bound = known & np.isin(estimate, [0.0, 1.0])
            assert (low[on_bound] < high[on_bound]).all()


def test_case_17_zero_of_ten_flips_gets_a_wilson_interval() -> None:
    frame = pd.concat([rows_of("a>b, b<a", context=str(k)) for k in range(10)])
    table = measure(frame, n_resamples=200, rng=1)
    assert (table.estimate["flip_rate"][0], table.low["flip_rate"][0]) == (0.0, 0.0)
    assert table.high["flip_rate"][0] == pytest.approx(0.2775, abs=1e-4)
    assert table.low["swap_consistency"][0] == pytest.approx(1 - 0.2775, abs=1e-4)


def test_a_single_cluster_has_no_interval_but_on_the_bounds() -> None:
    table = measure(rows_of("a>b, b>a, a>c, c<a", context="1"), n_resamples=200, rng=1)
    assert table.estimate["flip_rate"][0] == 0.5
    assert np.isnan([table.low["flip_rate"][0], table.high["flip_rate"][0]]).all()
    assert table.low["inconsistent_pair_primacy"][0] < 0.5  # 1 of 1: Wilson, very wide
    assert table.n_clusters[0] == 1


@pytest.mark.slow
def test_intervals_of_the_flip_rate_cover_the_truth_of_clustered_data() -> None:
    rng = np.random.default_rng(3)
    covered = {"flip_rate": 0, "accuracy": 0}
    trials = 250
    for _ in range(trials):
        rows = []
        for context in range(60):  # what a context's pairs share: some contexts are hard
            hard = rng.random() < 0.5
            for pair in (("a", "b"), ("a", "c"), ("b", "c")):
                flip = rng.random() < (0.5 if hard else 0.1)
                right = rng.random() < 0.8
                verdicts = (
                    ("first", "first") if flip else ("first", "second") if right else ("second", "first")
                )
                rows += [(str(context), *pair, verdicts[0]), (str(context), *pair[::-1], verdicts[1])]
        frame = pd.DataFrame(rows, columns=["context", "item_first", "item_second", "verdict"])
        gold = pd.DataFrame({"item": ["a", "b", "c"], "score": [3, 2, 1]})
        table = measure(frame, gold, n_resamples=300, rng=rng)
        truth = {"flip_rate": 0.3, "accuracy": 0.7 * 0.8 + 0.3 * 0.5}
        for name, value in truth.items():
            covered[name] += bool(table.low[name][0] <= value <= table.high[name][0])
    assert 0.91 < covered["flip_rate"] / trials < 0.985
    assert 0.91 < covered["accuracy"] / trials < 0.985


# --- cases by name
# --------------------------------------------------------------------------------------------------------


def test_case_9_both_orders_invalid_is_no_consistency() -> None:
    m = measure(rows_of("a?b, b?a, a>c, c<a"), pd.DataFrame({"item": ["a", "b", "c"], "score": [3, 2, 1]}))
    assert m.count("n_pairs_invalid")[0] == 1
    assert m.count("n_pairs_swapped")[0] == 1
    assert values(m)["flip_rate"] == 0
    assert values(m)["accuracy"] == 1
    only = measure(rows_of("a?b, b?a"))
    assert math.isnan(values(only)["swap_consistency"])


def test_case_10_a_draw_of_ten_runs_is_a_tie_whichever_came_first() -> None:
    for frame in (rows_of("a>b x5, a<b x5"), rows_of("a<b x5, a>b x5")):
        tally = tally_of(frame)
        assert modal_verdicts(tally.counts).tolist() == [[2, -1]]
        gold = pd.DataFrame({"item_a": ["a"], "item_b": ["b"], "winner": ["tie"]})
        other = tally_of(pd.concat([frame, rows_of("b=a")]))
        table = measure_reliability(other, check_gold(gold).align(other), n_resamples=0)
        assert (values(table)["flip_rate"], values(table)["accuracy"]) == (0, 1)


def test_case_11_one_order_only_leaves_position_bias_unobserved() -> None:
    m = measure(
        rows_of("a>b x2, a>c x2, c<b x2"), pd.DataFrame({"item": ["a", "b", "c"], "score": [3, 2, 1]})
    )
    found = values(m)
    for name in (
        "flip_rate",
        "ceiling",
        "trustworthy_rate",
        "trustworthy_rate_upper",
        "accuracy",
        "capability_gap",
    ):
        assert math.isnan(found[name]), name
    assert m.count("n_pairs_one_order")[0] == 3
    assert found["repeatability"] == 1
    assert found["accuracy_verdicts"] == 1


@pytest.mark.parametrize(
    ("c", "phi", "a", "band"), [(0.40, 0.90, 0.40, "0.45 <= A <= 0.55"), (0.9, 0.4, 0.85, "0.2 <= A <= 0.8")]
)
def test_case_12_rates_on_different_bases_are_refused_with_the_band(
    c: float, phi: float, a: float, band: str
) -> None:
    with pytest.raises(InputError, match=rf"row 1 \(judge x\): C = {c:g}, phi = {phi:g}, A = {a:g} .*{band}"):
        rates_from_summary(c, phi, a, labels=["judge x"])  # type: ignore[arg-type]


def test_case_12_rounding_is_allowed_for_and_nothing_is_clipped() -> None:
    with pytest.raises(InputError):
        rates_from_summary([0.9], [0.2], [0.9005])  # type: ignore[arg-type]
    rates = rates_from_summary([0.9], [0.2], [0.9005], rounding=0.0005)  # type: ignore[arg-type]
    assert float(rates.capability_gap[0]) == pytest.approx(-0.0005)
    with pytest.raises(InputError, match="accuracy 64.8 is not a share"):
        rates_from_summary([0.9], [0.2], [64.8])  # type: ignore[arg-type]


@pytest.mark.parametrize("slot", ["first", "second"])
def test_case_26_a_judge_that_always_answers_one_slot(slot: str) -> None:
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    frame = pd.DataFrame(
        [(*p, r) for a, b in pairs for p in ((a, b), (b, a)) for r in (1, 2, 3)],
        columns=["item_first", "item_second", "run"],
    ).assign(verdict=slot)
    m = values(measure(frame, pd.DataFrame({"item": ["a", "b", "c"], "score": [3, 2, 1]})))
    assert (m["repeatability"], m["flip_rate"], m["accuracy"], m["trustworthy_rate"]) == (1, 1, 0.5, 0)
    assert m["trustworthy_rate_joint"] == 0
    assert m["inconsistent_pair_primacy"] == m["first_slot_rate"] == (1 if slot == "first" else 0)
    assert failure_mode(m["repeatability"], m["flip_rate"]) == "confidently biased"
    assert math.isnan(m["decisive_accuracy"])


@pytest.mark.parametrize(
    ("verdicts", "lean"),
    [
        (("first", "first"), 1), (("first", "tie"), 1), (("tie", "first"), 1),
        (("second", "second"), 0), (("second", "tie"), 0), (("tie", "second"), 0),
    ],
)  # fmt: skip
def test_leans_of_the_six_kinds_of_flips(verdicts: tuple[str, str], lean: int) -> None:
    frame = pd.DataFrame({"item_first": ["a", "b"], "item_second": ["b", "a"], "verdict": verdicts})
    m = values(measure(frame))
    assert (m["flip_rate"], m["inconsistent_pair_primacy"]) == (1, lean)


def test_case_8_a_stated_inconsistency_is_a_flip_without_a_lean_worth_half_of_a_decided_gold() -> None:
    frame = pd.DataFrame(
        {
            "item_first": ["x", "x", "y"],
            "item_second": ["y", "z", "z"],
            "winner": ["tie (inconsistent)", "x", "tie"],
        }
    )
    gold = pd.DataFrame({"item": ["x", "y", "z"], "score": [3, 2, 1]})
    table = measure(frame, gold)
    m = values(table)
    assert m["flip_rate"] == pytest.approx(1 / 3)
    assert math.isnan(m["inconsistent_pair_primacy"])
    assert m["undecided_accuracy"] == 0.5  # one of the two orders named each item
    assert m["decisive_accuracy"] == 0.5  # x is right, the tie of y and z is not
    assert table.count("n_ties")[0] == 2


def test_repeat_agreement_does_not_depend_on_the_number_of_runs_in_expectation() -> None:
    rng = np.random.default_rng(1)
    p, expected = 0.8, 0.8**2 + 0.2**2
    for runs in (2, 3, 8):
        wins = rng.binomial(runs, p, size=20_000)
        counts = np.zeros((20_000, 2, 5), dtype=np.int64)
        counts[:, 0, 0], counts[:, 0, 1] = wins, runs - wins
        m = metrics_from_sums(pair_statistics(counts).sum(axis=0))
        assert float(m["repeat_agreement"]) == pytest.approx(expected, abs=0.01)
        assert float(m["repeatability"]) == pytest.approx(p**runs + (1 - p) ** runs, abs=0.01)


@pytest.mark.parametrize(
    ("c", "phi", "mode"),
    [
        (0.9, 0.2, "trustworthy"),
        (9 / 10, 1 - 8 / 10, "trustworthy"),
        (0.89, 0.2, "noisy but fair"),
        (0.89, 0.21, "chaotic"),
        (0.9, 0.21, "confidently biased"),
        (math.nan, 0.1, None),
        (0.9, math.nan, None),
    ],
)
def test_failure_modes_at_their_thresholds(c: float, phi: float, mode: str | None) -> None:
    assert failure_mode(c, phi) == mode
    assert mode is None or FAILURE_MODES[mode]
    assert failure_mode(0.8, 0.3, high_repeatability=0.8, low_flip_rate=0.3) == "trustworthy"


# --- the policy that counts unparsed verdicts as an outcome
# --------------------------------------------------------------------------------------------------------


def test_invalid_equal_counts_two_unparsed_verdicts_as_equal_and_keeps_them_in_the_denominator() -> None:
    frame = rows_of("a?b, b?a, a>c, c?a, b>c, c<b")
    exclude, equal = values(measure(frame)), values(measure(frame, invalid="equal"))
    assert exclude["flip_rate"] == 0
    assert equal["flip_rate"] == pytest.approx(1 / 3)
    assert values(measure(frame, invalid="equal"))["inconsistent_pair_primacy"] == 1
    with pytest.raises(InputError, match="choose exclude or equal"):
        measure(frame, invalid="drop")


@given(studies(max_judges=1))
def test_the_accuracy_identity_holds_under_every_policy_for_invalid_verdicts(
    case: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    m = values(measure(*case, invalid="equal"))
    if not math.isnan(m["accuracy"]):
        phi = m["flip_rate_gold"]
        decided = (1 - phi) * zero_if_nan(m["decisive_accuracy"])
        assert m["accuracy"] == pytest.approx(decided + phi * zero_if_nan(m["undecided_accuracy"]), abs=1e-12)
        assert m["accuracy"] <= m["ceiling"] + 1e-12


@given(verdict_frames(max_judges=1))
def test_pair_verdicts_agree_with_the_modes_of_both_orders(frame: pd.DataFrame) -> None:
    counts = tally_of(frame).counts
    for (a, b), verdict in zip(modal_verdicts(counts).tolist(), pair_verdicts(counts).tolist(), strict=True):
        seen = [v for v in (a, b) if v >= 0]
        expected = -1 if not seen else seen[0] if len(set(seen)) == 1 and seen[0] < 2 else 2
        assert verdict == expected


def test_tie_credit_outside_zero_and_one_is_refused() -> None:
    with pytest.raises(InputError, match="tie_credit"):
        pair_statistics(np.zeros((1, 2, 5), dtype=int), tie_credit=1.5)
