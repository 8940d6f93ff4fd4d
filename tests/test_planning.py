"""Plans: the complete design is the sweep, a part of the calls is a part, costs, choices, and judges read from files."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from rank.bradley_terry import fit_bradley_terry
from rank.exceptions import InputError
from rank.gold import check_gold
from rank.readers import read_gold, read_verdicts
from rank.tally import tally_verdicts
from rank.verdicts import check_verdicts
from simulate.__main__ import main
from simulate.fitted import choose_group, fit_judge
from simulate.judges import JudgeSettings, prepare_judge, simulate_judge
from simulate.planning import (
    Design,
    Plan,
    _fit_shares,
    default_degrees,
    default_runs,
    plan_designs,
    wins_of_parts,
)
from simulate.population import draw_population
from simulate.sweep import FIT_ALPHA, fitted_strengths, sweep

GOOD = JudgeSettings(agreement=0.8)
SMALL = {"n_items": 30}


def run(capsys, *arguments):
    code = main(["plan", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def rows_equal(one, two):
    return all(
        a[key] == b[key] or (a[key] != a[key] and b[key] != b[key])
        for a, b in zip(one, two, strict=True)
        for key in a
    )


def test_complete_design_has_the_rho_of_the_sweep():
    """Identity: all pairs, both orders, all runs of the same judges."""
    plan = plan_designs(0.2, judge=GOOD, population=SMALL, pairs_per_item=[29], n_reps=7, rng=4)
    (row,) = sweep([0.2], judge=GOOD, population=SMALL, n_reps=7, rng=4).rows
    for name in ("spearman", "spearman_low", "spearman_high"):
        assert plan.rows[-1][name] == pytest.approx(row[name], abs=1e-12), name
    assert plan.complete == plan.rows[-1]


@pytest.mark.slow
@pytest.mark.parametrize(("degree", "runs"), [(4, 1), (10, 3)])
def test_sparse_design_in_both_orders_has_the_expected_rho_of_a_sweep_over_sparse_designs(degree, runs):
    """Statistical witness: a sweep whose judges are made for the sparse design itself, C = 1 so that runs agree."""
    judge = JudgeSettings(agreement=0.8, repeatability=1.0, runs=runs)
    plan = plan_designs(
        0.0,
        judge=judge,
        population=SMALL,
        pairs_per_item=[degree],
        orders=[2],
        runs=[runs],
        n_reps=200,
        rng=4,
    )
    (row,) = sweep([0.0], judge=judge, population={**SMALL, "pairs_per_item": degree}, n_reps=200, rng=9).rows
    assert plan.rows[0]["spearman"] == pytest.approx(row["spearman"], abs=0.05)


@pytest.mark.parametrize(("n", "degree"), [(30, 4), (30, 12), (31, 7)])
def test_fits_of_shares_are_the_fits_of_the_sweep(n, degree):
    """Outside witness for the dense kernel and the scaling to one verdict per pair: fit_bradley_terry on the counts."""
    people = draw_population(n, pairs_per_item=degree, rng=1)
    answer = prepare_judge(people, GOOD, rng=2).answer(0.0)
    totals = [(1, 1), (1, 3), (2, 1), (2, 5)]
    wins = wins_of_parts(answer, totals, rng=3)
    number = np.array([[orders * runs] for orders, runs in totals])
    share = (wins + FIT_ALPHA) / (number + 2 * FIT_ALPHA)
    values = _fit_shares(people.item_i, people.item_j, share, n)
    np.testing.assert_allclose(values, fitted_strengths(people, wins, number), atol=2e-7)


def test_rho_of_a_sparse_design_is_that_of_a_fit_to_its_verdicts():
    """One repetition rebuilt from the documented streams, ranked by fit_bradley_terry, correlated by scipy."""
    plan = plan_designs(
        0.0, judge=GOOD, population=SMALL, pairs_per_item=[6], orders=[1], runs=[2], n_reps=2, rng=4
    )
    child = np.random.default_rng(4).spawn(2)[0]
    people_rng, judge_rng, ask_rng, label_rng, graph_rng = child.spawn(5)
    people = draw_population(30, rng=people_rng)
    answer = prepare_judge(people, GOOD, rng=judge_rng).answer(0.0)
    label = label_rng.permutation(30)
    # The complete design is always simulated as well: degrees 6 and 29, totals (1, 2) and (2, 5).
    graph = draw_population(30, pairs_per_item=6, human="deterministic", rng=graph_rng.spawn(2)[0])
    wins = wins_of_parts(answer, [(1, 2), (2, 5)], rng=ask_rng)[0]
    lookup = np.zeros((30, 30), dtype=int)
    lookup[people.item_i, people.item_j] = wins
    lookup[people.item_j, people.item_i] = 2 - wins
    a, b = label[graph.item_i], label[graph.item_j]
    counts = np.stack([lookup[a, b], lookup[b, a], 0 * a], axis=1)
    fit = fit_bradley_terry(a, b, counts, n_items=30, alpha=FIT_ALPHA)
    first = spearmanr(people.theta, np.round(fit.strengths, 7)).statistic
    bounds = (plan.rows[0]["spearman_low"], plan.rows[0]["spearman_high"])
    low, high = (plan.rows[0]["spearman"] + sign * abs(plan.rows[0]["spearman"] - first) for sign in (-1, 1))
    # Two repetitions lie symmetrically around their mean; percentiles are inside by a fortieth of the distance.
    inset = 0.025 * (high - low)
    assert bounds == pytest.approx((low + inset, high - inset), abs=1e-9)
    assert high - low > 0.01


def test_parts_of_the_calls_are_nested_parts():
    answer = simulate_judge(draw_population(30, rng=1), 0.2, settings=replace(GOOD, repeatability=0.5), rng=2)
    parts = [(orders, runs) for orders in (1, 2) for runs in (1, 2, 3, 5)]
    wins = dict(zip(parts, wins_of_parts(answer, parts, rng=3)))
    assert (wins[2, 5] == answer.wins_i.sum(axis=1)).all()
    for orders in (1, 2):
        for fewer, more in ((1, 2), (2, 3), (3, 5)):
            gained = wins[orders, more] - wins[orders, fewer]
            assert gained.min() >= 0
            assert gained.max() <= orders * (more - fewer)
    for runs in (1, 2, 3, 5):
        gained = wins[2, runs] - wins[1, runs]
        assert gained.min() >= 0
        assert gained.max() <= runs
    # One order of five runs is one of the two orders, and both are asked.
    of_first, of_second = (wins[1, 5] == answer.wins_i[:, order] for order in (0, 1))
    assert (of_first | of_second).all()
    assert not of_first.all()
    assert not of_second.all()


def test_dissenting_runs_stand_at_random_places():
    """One of three runs dissents everywhere: the first run dissents in a third of the conditions."""
    judge = JudgeSettings(agreement=1.0, flip_rate=0.0, repeatability=0.0, runs=3)
    answer = simulate_judge(draw_population(80, rng=1), 0.0, settings=judge, rng=2)
    first = wins_of_parts(answer, [(1, 1)], rng=3)[0]
    wrong = (first == 1) != answer.population.human_i
    assert wrong.mean() == pytest.approx(1 / 3, abs=4 * np.sqrt(2 / 9 / 3160))


def test_position_bias_is_noise_with_one_order_and_cancels_with_two():
    always_first = JudgeSettings(agreement=0.5, flip_rate=1.0, primacy=1.0, repeatability=1.0, runs=1)
    answer = simulate_judge(draw_population(60, rng=1), 0.0, settings=always_first, rng=2)
    one, two = wins_of_parts(answer, [(1, 1), (2, 1)], rng=3)
    assert (two == 1).all()
    assert one.mean() == pytest.approx(0.5, abs=4 * np.sqrt(0.25 / 1770))
    plan = plan_designs(judge=always_first, population=SMALL, pairs_per_item=[29], n_reps=3, rng=1)
    assert plan.complete["n_undefined"] == 3
    assert np.isnan(plan.complete["spearman"])
    assert plan.complete["reach_probability"] == 0


@pytest.mark.parametrize("n", [30, 31])
def test_calls_are_pairs_times_orders_times_runs(n):
    plan = plan_designs(population={"n_items": n}, pairs_per_item=[3, 7, n - 1], n_reps=2, rng=1)
    assert len(plan.rows) == 3 * 2 * 3
    for row in plan.rows:
        assert row["n_pairs"] == n * row["pairs_per_item"] // 2
        assert row["calls"] == row["n_pairs"] * row["orders"] * row["runs"]
    assert plan.complete["calls"] == n * (n - 1) // 2 * 2 * 5
    calls = [row["calls"] for row in plan.rows]
    assert calls == sorted(calls)


def test_more_of_anything_is_not_worse_within_noise():
    plan = plan_designs(
        -0.3, judge=replace(GOOD, repeatability=0.7), population={"n_items": 50}, n_reps=40, rng=2
    )
    rho = {(row["pairs_per_item"], row["orders"], row["runs"]): row["spearman"] for row in plan.rows}
    degrees = default_degrees(50)
    for orders in (1, 2):
        for runs in (1, 3, 5):
            curve = [rho[degree, orders, runs] for degree in degrees]
            assert (np.diff(curve) > -0.02).all()
            assert curve[-1] > curve[0] + 0.2
    for degree in degrees:
        assert all(rho[degree, 2, runs] > rho[degree, 1, runs] - 0.01 for runs in (1, 3, 5))
        assert all(rho[degree, orders, 5] > rho[degree, orders, 1] - 0.01 for orders in (1, 2))


def test_chosen_is_the_cheapest_that_reaches_the_target_often_enough():
    plan = plan_designs(
        -0.6, judge=GOOD, population={"n_items": 50}, target=0.8, probability=0.7, n_reps=40, rng=2
    )
    enough = [row for row in plan.rows if row["reach_probability"] >= 0.7]
    assert plan.chosen in enough
    assert plan.chosen["calls"] == min(row["calls"] for row in enough)
    assert plan.chosen is not plan.rows[0]
    assert plan.assured["reach_low"] >= 0.7 > plan.chosen["reach_low"] or plan.assured is plan.chosen
    assert plan.assured["calls"] >= plan.chosen["calls"]
    for row in plan.rows:
        assert row["reach_low"] <= row["reach_probability"] <= row["reach_high"]
        # The rho that is reached with the probability says the same as the share of repetitions.
        assert (row["spearman_assured"] >= 0.8) == (row["reach_probability"] >= 0.7)


def test_best_is_the_highest_rho_where_no_design_reaches_the_target():
    """How often each of them happens to reach it is noise: a wide spread must not win over a higher mean."""
    rows = [
        {"spearman": 0.44, "reach_probability": 0.06, "calls": 32},
        {"spearman": 0.56, "reach_probability": 0.05, "calls": 56},
        {"spearman": 0.56, "reach_probability": 0.05, "calls": 50},
        {"spearman": float("nan"), "reach_probability": 0.0, "calls": 10},
    ]
    plan = Plan(settings={}, rows=tuple(rows), chosen=None, assured=None, complete=rows[1], own=None)
    assert plan.best is rows[2]
    assert replace(plan, chosen=rows[0]).best is rows[0]


def test_best_is_in_the_table_when_none_reaches_the_target(capsys, shared_data):
    like = ["--like", shared_data / "qlora_vicuna.csv", "--gold", shared_data / "qlora_vicuna_gold.csv"]
    options = ["--items", 8, *like, "--target", 0.8, "--seed", 2490777382]
    document = json.loads(run(capsys, *options, "--format", "json")[1])
    assert document["chosen"] is None
    best = document["best"]
    assert best["spearman"] == max(row["spearman"] for row in document["rows"])
    out = run(capsys, *options)[1]
    design = f"{best['pairs_per_item']} x {best['orders']} x {best['runs']}"
    (line,) = [line for line in out.splitlines() if line.startswith(design)]
    assert line.rstrip().endswith("highest rho")


@pytest.mark.parametrize("calls", [(12, 56), (140, 17_920), (10, 9_000_000)])
def test_ticks_of_the_picture_are_plain_numbers(calls):
    from simulate.plotting import plot_plan

    plan = plan_designs(judge=GOOD, population={"n_items": 8}, n_reps=2, rng=1)
    rows = [{**plan.rows[0], "calls": calls[0]}, {**plan.rows[-1], "calls": calls[1]}]
    ax = plot_plan(replace(plan, rows=tuple(rows), chosen=None))
    ax.figure.draw_without_rendering()
    labels = [label.get_text() for label in ax.get_xticklabels(which="both") if label.get_text()]
    assert 3 <= len(labels) <= 40
    assert all(label.replace(",", "").isdigit() for label in labels), labels
    low, high = ax.get_xlim()
    assert sum(low <= float(label.replace(",", "")) <= high for label in labels) >= 3


def test_plan_does_not_depend_on_the_number_of_processes_nor_on_the_other_designs():
    options = {"judge": GOOD, "population": SMALL, "n_reps": 12, "rng": 4}
    one, two = (plan_designs(0.1, pairs_per_item=[3, 8, 29], n_jobs=jobs, **options) for jobs in (1, 2))
    assert rows_equal(one.rows, two.rows)
    assert (one.settings, one.chosen) == (two.settings, two.chosen)
    fewer = plan_designs(0.1, pairs_per_item=[29], runs=[5], orders=[2], **options)
    assert fewer.rows[0]["spearman"] == one.rows[-1]["spearman"]


def test_default_designs_end_with_the_complete_one():
    for n in (3, 4, 10, 61, 200):
        degrees = default_degrees(n)
        assert degrees[-1] == n - 1
        assert len(degrees) <= 8
    assert default_runs(2) == (1, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": 1.2}, "target must be"),
        ({"probability": 1.0}, "probability must lie"),
        ({"n_reps": 1}, "at least 2 repetitions"),
        ({"n_jobs": 0}, "jobs must be"),
        ({"pairs_per_item": [30]}, "pairs per item must be between 1 and 29, found 30"),
        ({"orders": [3]}, "orders must be between 1 and 2, found 3"),
        ({"runs": [7]}, "runs must be between 1 and 5, found 7; the judge answers no more"),
        ({"population": {"n_items": 2}}, "at least 3 items"),
        ({"population": {"n_items": 30, "pairs_per_item": 4}}, "population of a plan has no pairs_per_item"),
    ],
)
def test_impossible_plans_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        plan_designs(**{"population": SMALL, "n_reps": 2, "rng": 1, **options})


# --- judges read from files


def verdicts_of(answer):
    return answer.to_tally(), answer.to_gold()


def test_fitted_judge_has_the_settings_that_made_the_verdicts():
    """Way back: what was asked of the simulator is read off its verdicts."""
    asked = JudgeSettings(
        agreement=0.7, flip_rate=0.25, flip_q=-0.4, primacy=0.7, repeatability=0.8, noise_q=0.3, runs=5
    )
    people = draw_population(120, human="deterministic", rng=1)
    fitted = fit_judge(*verdicts_of(simulate_judge(people, 0.4, settings=asked, rng=2)), rng=3)
    m = people.n_pairs
    for name in ("agreement", "flip_rate", "repeatability"):
        assert getattr(fitted.settings, name) == pytest.approx(getattr(asked, name), abs=1 / m), name
    assert fitted.settings.primacy == pytest.approx(0.7, abs=1 / asked.n_undecided(m))
    assert fitted.q == pytest.approx(0.4, abs=0.05)
    assert fitted.settings.flip_q == pytest.approx(-0.4, abs=0.05)
    assert fitted.settings.noise_q == pytest.approx(0.3, abs=0.05)
    assert (fitted.settings.runs, fitted.pairs_per_item, fitted.runs) == (5, 119, 5)
    np.testing.assert_allclose(fitted.population["theta"], people.theta, atol=1e-10)


def test_equal_gold_scores_are_told_apart_without_changing_other_orders():
    answer = simulate_judge(
        draw_population(theta=np.repeat(np.arange(6.0), 3), human="deterministic", rng=1), 0.0, rng=2
    )
    tally, gold = verdicts_of(answer)
    fitted = fit_judge(tally, gold, rng=3)
    theta = np.asarray(fitted.population["theta"])
    assert len(np.unique(theta)) == 18
    assert (np.abs(theta - answer.population.theta) < 1e-3).all()
    assert any("18 pairs with equal gold scores are left out" in note for note in fitted.notes)


def test_ties_of_a_judge_keep_c_phi_and_t():
    """T = C (1 - phi) A_dec = C (A - phi/2) at the accuracy that the binary judge gets."""
    frame = simulate_judge(draw_population(30, human="deterministic", rng=1), 0.0, rng=2)
    table = frame.to_frame()
    pair = table["item_first"].where(table["item_first"] < table["item_second"], table["item_second"])
    table.loc[pair.isin(frame.population.items[:4]), "verdict"] = "tie"
    tally = tally_verdicts(check_verdicts(table))
    fitted = fit_judge(tally, frame.to_gold(), rng=3)
    s = fitted.settings
    assert s.repeatability * (s.agreement - s.flip_rate / 2) == pytest.approx(
        fitted.measured["trustworthy_rate"]
    )
    assert s.flip_rate == fitted.measured["flip_rate"]


def test_repeatability_on_two_runs_is_that_of_three():
    """One dissenting run of three leaves a random two of them equal with probability 1/3."""
    rng = np.random.default_rng(1)
    judge = JudgeSettings(agreement=0.7, flip_rate=0.0, repeatability=0.7, runs=3)
    answer = simulate_judge(draw_population(150, human="deterministic", rng=1), 0.0, settings=judge, rng=2)
    two = rng.hypergeometric(answer.wins_i, 3 - answer.wins_i, 2)
    tally = answer.to_tally()
    counts = np.zeros_like(tally.counts)
    counts[..., 0], counts[..., 1] = two, 2 - two
    fitted = fit_judge(replace(tally, counts=counts), answer.to_gold(), rng=3)
    assert fitted.settings.runs == 3
    assert fitted.settings.repeatability == pytest.approx(0.7, abs=0.01)


def test_verdicts_that_cannot_be_followed_are_refused():
    answer = simulate_judge(draw_population(10, human="deterministic", rng=1), 0.0, rng=2)
    tally, gold = verdicts_of(answer)
    with pytest.raises(InputError, match="pair gold does not say which pairs are close"):
        fit_judge(tally, answer.to_human_gold())
    one_order = tally.counts.copy()
    one_order[:, 1] = 0
    with pytest.raises(InputError, match="position bias is unobserved"):
        fit_judge(replace(tally, counts=one_order), gold)
    with pytest.raises(InputError, match="gold covers none"):
        fit_judge(tally, check_gold(pd.DataFrame({"item": ["x", "y"], "score": [1.0, 2.0]})))


def test_group_is_chosen_by_its_label(shared_data):
    tally = tally_verdicts(read_verdicts(shared_data / "smollm2_clear.csv", by=["format"]))
    with pytest.raises(InputError, match="choose one with --group"):
        choose_group(tally, None)
    with pytest.raises(InputError, match="no group is called 'x'"):
        choose_group(tally, "x")
    fitted = fit_judge(
        choose_group(tally, "greedy"), read_gold(shared_data / "smollm2_clear_gold.csv"), rng=1
    )
    assert (fitted.label, fitted.pairs_per_item, fitted.runs) == ("greedy", 29, 1)
    assert any("calls were not repeated" in note for note in fitted.notes)


def test_several_contexts_become_one_list_of_their_size(shared_data):
    tally = tally_verdicts(read_verdicts(shared_data / "summeval_coherence.csv"))
    fitted = fit_judge(tally.select(0), read_gold(shared_data / "summeval_coherence_gold.csv"), rng=1)
    assert fitted.population["n_items"] == 12
    assert fitted.pairs_per_item == 0
    assert any("100 contexts" in note for note in fitted.notes)
    assert (fitted.n_contexts, fitted.items_recur) == (100, True)


def test_plan_over_recurring_items_is_over_one_list_when_a_list_is_asked_for(capsys, shared_data):
    like = [
        "--like",
        shared_data / "summeval_coherence.csv",
        "--gold",
        shared_data / "summeval_coherence_gold.csv",
    ]
    code, out, _ = run(capsys, *like, "--reps", 2, "--seed", 1, "--items", 10, "--format", "json")
    assert code == 0
    document = json.loads(out)
    assert document["settings"]["n_items"] == 10
    assert document["own_design"] is None


# --- the command

QUICK = ["--items", "30", "--reps", "10", "--seed", "1"]


def test_command_names_the_judge_the_cheapest_design_and_the_interval(capsys, tmp_path):
    picture = tmp_path / "plan.png"
    code, out, err = run(capsys, *QUICK, "--agreement", 0.85, "--q", -0.5, "--target", 0.7, "--plot", picture)
    text = " ".join(out.split())
    assert code == 0
    assert err == ""
    assert "Given a judge assumed to have C 0.95, phi 0.2, A 0.85 and errors at q -0.5 on 30 items" in text
    assert "the cheapest of 48 designs that reaches rho 0.7 with probability 0.9 takes" in text
    assert "of 10 repetitions (95 % interval" in text
    assert "chosen" in text
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_command_says_when_more_calls_will_not_help(capsys):
    code, out, _ = run(capsys, *QUICK, "--q", 0.9, "--agreement", 0.7, "--format", "json")
    assert code == 0
    document = json.loads(out)
    assert document["chosen"] is None
    _, out, _ = run(capsys, *QUICK, "--q", 0.9, "--agreement", 0.7)
    text = " ".join(out.split())
    complete = document["complete"]
    assert (
        "more calls will not reach rho 0.9 with probability 0.9: all 435 pairs in both orders with 5 runs"
        in text
    )
    assert f"(4,350 calls) give rho {complete['spearman']:.2f}" in text
    assert "which lean to far pairs" in text


def test_command_says_when_only_the_designs_tried_fall_short(capsys):
    options = ["--agreement", 0.9, "--flip-rate", 0.1, "--q", -0.9, "--human", "deterministic"]
    code, out, _ = run(capsys, *QUICK, *options, "--try-pairs-per-item", 3, "--try-runs", 1)
    text = " ".join(out.split())
    assert code == 0
    assert "none of the 2 designs reaches rho 0.9" in text
    assert "with 5 runs (4,350 calls) would reach it" in text


def test_json_has_rows_and_the_rows_that_stand_out(capsys):
    code, out, _ = run(capsys, *QUICK, "--try-pairs-per-item", 3, 29, "--format", "json")
    document = json.loads(out, parse_constant=pytest.fail)
    assert code == 0
    assert {"settings", "rows", "chosen", "assured", "best", "complete", "own_design", "like"} <= set(
        document
    )
    for name in ("n_items", "q", "agreement", "target", "probability", "n_reps", "seed"):
        assert name in document["settings"]
    assert len(document["rows"]) == 12
    for name in ("pairs_per_item", "n_pairs", "orders", "runs", "calls", "spearman", "spearman_low", "spearman_high",
                 "spearman_assured", "reach_probability", "reach_low", "reach_high", "n_undefined"):  # fmt: skip
        assert name in document["rows"][0]


def test_csv_has_every_design(capsys, tmp_path):
    path = tmp_path / "plan.csv"
    assert run(capsys, *QUICK, "--format", "csv", "--output", path, "--quiet")[0] == 0
    frame = pd.read_csv(path)
    assert len(frame) == 48
    assert (frame["calls"] == frame["n_pairs"] * frame["orders"] * frame["runs"]).all()


def test_plan_for_a_real_judge_is_checked_against_its_own_ranking(capsys, tmp_path):
    """A judge of the simulator is what the plan assumes, so its own rho lies inside the interval."""
    people = draw_population(30, human="deterministic", rng=1)
    answer = simulate_judge(people, -0.2, settings=JudgeSettings(agreement=0.75, runs=3), rng=2)
    verdicts, gold = tmp_path / "verdicts.csv", tmp_path / "gold.csv"
    answer.to_frame().to_csv(verdicts, index=False)
    answer.gold_frame().to_csv(gold, index=False)
    options = ["--like", verdicts, "--gold", gold, "--reps", 40, "--seed", 1, "--target", 0.7]
    code, out, _ = run(capsys, *options, "--format", "json")
    assert code == 0
    document = json.loads(out)
    own = document["own_design"]
    assert (own["n_pairs"], own["orders"], own["runs"]) == (435, 2, 3)
    assert own["spearman_low"] <= document["like"]["spearman"] <= own["spearman_high"]
    assert document["settings"]["agreement"] == pytest.approx(0.75, abs=1 / 435)
    text = " ".join(run(capsys, *options)[1].split())
    assert "Given a judge like simulated (C 0.949, phi 0.2, A 0.751 and errors at q -0." in text
    assert (
        "Check: with the calls of the file (435 pairs, 29 partners per item, in both orders with 3 runs)"
        in text
    )
    # What is asked on the command line goes before what was fitted; then the file's own rho is no check.
    code, out, _ = run(capsys, *options, "--agreement", 0.9, "--format", "json")
    document = json.loads(out)
    assert document["settings"]["agreement"] == 0.9
    assert document["own_design"] is None


def test_own_design_is_one_more_row():
    plan = plan_designs(
        judge=GOOD, population=SMALL, pairs_per_item=[3], own_design=Design(5, 2, 1), n_reps=2, rng=1
    )
    assert plan.own["pairs_per_item"] == 5
    assert all(row["pairs_per_item"] == 3 for row in plan.rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--try-runs", "9"], "runs must be between 1 and 5, found 9"),
        (["--try-pairs-per-item", "30"], "between 1 and 29"),
        (["--target", "2"], "target must be"),
        (["--q", "3"], "between -1"),
        (["--by", "judge"], "--by belongs to --like"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_one(capsys, arguments, message):
    code, out, err = run(capsys, *QUICK, *arguments)
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert message in err
