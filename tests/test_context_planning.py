"""Plans over contexts: the bootstrap, parts of calls, names that do not matter, and what the command says."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from rank.exceptions import InputError
from rank.gold import check_gold
from rank.readers import read_gold, read_verdicts
from rank.recovery import RecoveryProblem, recover_ranking
from rank.tally import tally_verdicts
from rank.verdicts import check_verdicts
from simulate.__main__ import main
from simulate.context_planning import _pooled_wins, _Source, default_contexts, items_recur, plan_contexts

ITEMS = [f"s{k}" for k in range(6)]
GOLD = pd.DataFrame({"item": ITEMS, "score": np.arange(6.0)})


def run(capsys, *arguments):
    code = main(["plan", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def study(n_contexts=20, runs=2, noise=2.0, seed=1, ties=0.1, lean=0.5):
    """Verdicts of six systems on prompts, all pairs in both orders; strength 0 to 5 plus noise per context."""
    rng = np.random.default_rng(seed)
    rows = []
    for context in range(n_contexts):
        strength = np.arange(6.0) + noise * rng.normal(size=6)
        for a in range(6):
            for b in range(6):
                for number in range(runs if a != b else 0):
                    gain = strength[a] - strength[b] + lean + 0.5 * rng.normal()
                    verdict = "tie" if abs(gain) < ties else "first" if gain > 0 else "second"
                    rows.append((f"p{context}", ITEMS[a], ITEMS[b], number, verdict))
    return pd.DataFrame(rows, columns=["context", "item_first", "item_second", "run", "verdict"])


def tally_of(frame):
    return tally_verdicts(check_verdicts(frame))


def numbers(plan):
    return [
        [row[name] for name in ("calls", "spearman", "spearman_low", "spearman_high")] for row in plan.rows
    ]


def source_of(tally, gold):
    return _Source.of(RecoveryProblem(tally, gold, level="system"), np.unique(tally.context))


def test_as_many_contexts_as_the_file_has_are_its_bootstrap(shared_data):
    """Witness: the interval of recover_ranking, which draws weights of contexts in another way."""
    tally = tally_verdicts(read_verdicts(shared_data / "qlora_vicuna.csv")).select(0)
    gold = read_gold(shared_data / "qlora_vicuna_gold.csv")
    plan = plan_contexts(tally, gold, n_contexts=[10], n_reps=1_000, rng=1)
    found = recover_ranking(tally, gold, n_resamples=4_000, rng=2)
    own = plan.complete
    assert (own["n_contexts"], own["orders"], own["runs"], own["calls"]) == (80, 2, 1, 4480)
    assert plan.settings["spearman"] == pytest.approx(found.spearman, abs=1e-12)
    assert own["spearman"] == pytest.approx(found.samples.mean(), abs=5 * 0.08 / np.sqrt(1_000))
    assert own["spearman_low"] == pytest.approx(found.spearman_low, abs=0.05)
    assert own["spearman_high"] == pytest.approx(found.spearman_high, abs=0.05)


def test_wins_of_a_design_are_in_expectation_those_of_the_file():
    """Identity: every context, order and run is asked equally often, so shares of wins are those of the file."""
    tally, gold = tally_of(study(n_contexts=8, runs=3)), check_gold(GOLD)
    problem = RecoveryProblem(tally, gold)
    share = problem.pooled_wins() / (8 * 2 * 3)
    designs = ((5, 1, 1), (5, 2, 2), (12, 1, 3), (12, 2, 3))
    source = source_of(tally, gold)
    wins = np.stack([_pooled_wins(source, designs, rng) for rng in np.random.default_rng(3).spawn(600)])
    for index, (contexts, orders, runs) in enumerate(designs):
        asked = contexts * orders * runs
        assert (wins[:, index].sum(axis=-1) == asked).all()
        # A call is worth 0 to 1 with sd at most 1/2, and the calls of a context may all be alike.
        error = 0.5 / np.sqrt(contexts * 600)
        assert np.abs(wins[:, index].mean(axis=0) / asked - share).max() < 4.5 * error


def test_designs_are_nested_parts_of_one_draw():
    tally, gold = tally_of(study(runs=3)), check_gold(GOLD)
    designs = tuple((m, o, r) for m in (4, 9) for o in (1, 2) for r in (1, 2, 3))
    wins = dict(zip(designs, _pooled_wins(source_of(tally, gold), designs, np.random.default_rng(2))))
    for (m, orders, runs), fewer in wins.items():
        for more in ((9, orders, runs), (m, 2, runs), (m, orders, 3)):
            assert (wins[more] >= fewer).all()


def test_equal_contexts_give_the_ranking_of_the_file_with_any_number_of_them():
    one = study(n_contexts=1, runs=1, noise=1.0)
    frame = pd.concat([one.assign(context=f"p{k}") for k in range(7)])
    tally, gold = tally_of(frame), check_gold(GOLD)
    plan = plan_contexts(tally, gold, n_contexts=[1, 3, 30], orders=[2], n_reps=5, rng=1)
    expected = recover_ranking(tally, gold, n_resamples=0).spearman
    for row in plan.rows:
        assert row["spearman"] == row["spearman_low"] == pytest.approx(expected, abs=1e-12)


def test_runs_that_agree_add_nothing_and_position_bias_is_noise_in_one_order():
    frame = study(runs=1)
    again = pd.concat([frame, frame.assign(run=1)])
    gold = check_gold(GOLD)
    plan = plan_contexts(tally_of(again), gold, n_contexts=[5], orders=[2], runs=[1, 2], n_reps=20, rng=1)
    assert plan.rows[0]["spearman"] == plan.rows[1]["spearman"]
    biased = plan_contexts(tally_of(frame.assign(verdict="first")), gold, n_contexts=[10], n_reps=60, rng=1)
    one, both = biased.rows
    assert (one["orders"], both["orders"]) == (1, 2)
    assert both["n_undefined"] == 60
    assert abs(one["spearman"]) < 4 / np.sqrt(5 * 60)
    assert one["n_undefined"] < 60


def test_more_contexts_help_up_to_the_ranking_of_the_file():
    tally, gold = tally_of(study(noise=6.0, runs=1)), check_gold(GOLD)
    plan = plan_contexts(tally, gold, orders=[2], n_reps=200, rng=1)
    rho = [row["spearman"] for row in plan.rows]
    assert (np.diff(rho) > -0.01).all()
    assert rho[-1] > rho[0] + 0.05
    far = plan_contexts(tally, gold, n_contexts=[4_000], n_reps=20, rng=1)
    assert far.rows[-1]["spearman"] == pytest.approx(plan.settings["spearman"], abs=0.03)


def test_numbers_depend_on_the_seed_alone():
    """Neither rows, names, slots that are read in another order, processes nor further designs change them."""
    frame, options = study(runs=2), {"n_reps": 12, "rng": 5}
    gold = check_gold(GOLD)
    plan = plan_contexts(tally_of(frame), gold, n_contexts=[4, 20, 50], **options)
    name = dict(zip(ITEMS, ["z", "b", "y", "a", "m", "c"]))
    place = {f"p{k}": f"q{(k * 7) % 20:02d}" for k in range(20)}
    other = frame.sample(frac=1.0, random_state=1).assign(
        context=frame["context"].map(place),
        item_first=frame["item_first"].map(name),
        item_second=frame["item_second"].map(name),
    )
    renamed = plan_contexts(
        tally_of(other),
        check_gold(GOLD.assign(item=GOLD["item"].map(name))),
        n_contexts=[4, 20, 50],
        **options,
    )
    assert numbers(renamed) == numbers(plan)
    assert numbers(
        plan_contexts(tally_of(frame), gold, n_contexts=[4, 20, 50], n_jobs=2, **options)
    ) == numbers(plan)
    fewer = plan_contexts(tally_of(frame), gold, n_contexts=[4], orders=[1], runs=[1], **options)
    assert numbers(fewer) == numbers(plan)[:1]
    assert numbers(plan_contexts(tally_of(frame), gold, n_contexts=[4, 20, 50], n_reps=12, rng=6)) != numbers(
        plan
    )


def test_unswapped_pairs_keep_their_order_and_unparsed_calls_cost():
    frame = study(runs=1)
    frame.loc[::9, "verdict"] = ""
    one_order = frame[frame["item_first"] < frame["item_second"]]
    plan = plan_contexts(tally_of(one_order), check_gold(GOLD), n_contexts=[20], n_reps=3, rng=1)
    assert [(row["orders"], row["calls"]) for row in plan.rows] == [(1, 20 * 15)]
    with pytest.raises(InputError, match="what a second order buys is unknown"):
        plan_contexts(tally_of(one_order), check_gold(GOLD), orders=[2])
    swapped_once = pd.concat([one_order, frame[(frame["item_first"] == "s5") & (frame["context"] == "p3")]])
    plan = plan_contexts(tally_of(swapped_once), check_gold(GOLD), n_contexts=[20], n_reps=3, rng=1)
    assert plan.settings["share_swapped"] == pytest.approx(5 / 300)


def test_one_list_of_items_does_not_recur():
    frame = study(n_contexts=1)
    assert not items_recur(tally_of(frame), check_gold(GOLD))
    assert items_recur(tally_of(study(n_contexts=3)), check_gold(GOLD))
    assert default_contexts(2) == (2, 4, 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": 2}, "target must be"),
        ({"n_contexts": [0]}, "contexts must be between 1"),
        ({"runs": [3]}, "runs must be at most 2"),
        ({"orders": [3]}, "orders must be between"),
        ({"n_jobs": 0}, "jobs must be"),
    ],
)
def test_impossible_plans_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        plan_contexts(tally_of(study()), check_gold(GOLD), **{"n_reps": 2, "rng": 1, **options})


def test_gold_without_a_ranking_and_a_single_context_are_refused():
    tally = tally_of(study())
    with pytest.raises(InputError, match=r"2 judged item\(s\) have gold"):
        plan_contexts(tally, check_gold(GOLD.iloc[:2]))
    with pytest.raises(InputError, match="the same gold score"):
        plan_contexts(tally, check_gold(GOLD.assign(score=1.0)))
    with pytest.raises(InputError, match="the verdicts have 1"):
        plan_contexts(tally_of(study(n_contexts=1)), check_gold(GOLD))


# --- the command


@pytest.fixture
def files(tmp_path):
    verdicts, gold = tmp_path / "verdicts.csv", tmp_path / "gold.csv"
    study().to_csv(verdicts, index=False)
    GOLD.to_csv(gold, index=False)
    return ["--like", verdicts, "--gold", gold, "--seed", 1, "--reps", 30]


def test_command_names_the_cheapest_number_of_contexts(capsys, files, tmp_path):
    picture = tmp_path / "plan.png"
    code, out, err = run(capsys, *files, "--target", 0.8, "--plot", picture)
    text = " ".join(out.split())
    assert (code, err) == (0, "")
    document = json.loads(
        run(capsys, *files, "--target", 0.8, "--format", "json")[1], parse_constant=pytest.fail
    )
    chosen = document["chosen"]
    assert f"reaches rho 0.8 with probability 0.9 takes {chosen['calls']:,} calls" in text
    assert f"{chosen['n_contexts']} contexts with all their pairs" in text
    assert "with replacement from the 20 of the file" in text
    assert "extrapolate: as if more prompts of the same kind were judged" in text
    assert "everything is conditional on this file" in text
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert {"settings", "rows", "chosen", "assured", "best", "complete", "own_design", "like"} <= set(
        document
    )
    for row in document["rows"]:
        assert row["n_pairs"] == 15 * row["n_contexts"]
        assert row["calls"] == row["n_pairs"] * row["orders"] * row["runs"]
        assert {"spearman_low", "reach_probability", "reach_low", "spearman_assured"} <= set(row)
    assert document["settings"]["n_contexts"] == 20
    assert document["own_design"]["calls"] == 20 * 15 * 2 * 2
    enough = [row["calls"] for row in document["rows"] if row["reach_probability"] >= 0.9]
    assert chosen["calls"] == min(enough)


def test_command_says_where_more_prompts_lead(capsys, shared_data):
    like = ["--like", shared_data / "qlora_vicuna.csv", "--gold", shared_data / "qlora_vicuna_gold.csv"]
    code, out, _ = run(capsys, *like, "--seed", 1, "--reps", 30, "--target", 0.9)
    text = " ".join(out.split())
    assert code == 0
    assert "with up to 320 contexts reaches rho 0.9" in text
    assert "has rho 0.74, and that is where more prompts of the same kind lead" in text
    assert "highest rho" in out


@pytest.mark.parametrize("stem", ["prd_vicuna80", "mtbench_repeats"])
def test_command_plans_for_the_other_real_files(capsys, shared_data, stem):
    gold = "mtbench_models_gold" if stem == "mtbench_repeats" else f"{stem}_gold"
    group = (
        "gpt4 / vicuna80 / threeclass"
        if stem == "prd_vicuna80"
        else "claude-3-haiku-20240307 / MTBench / option3"
    )
    like = ["--like", shared_data / f"{stem}.csv", "--gold", shared_data / f"{gold}.csv", "--group", group]
    code, out, _ = run(capsys, *like, "--seed", 1, "--reps", 10, "--target", 0.7, "--format", "csv")
    assert code == 0
    assert out.splitlines()[0].startswith("n_contexts,n_pairs,orders,runs,calls,spearman")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--q", 0.5], "--q belongs to a plan over one list of items"),
        (["--agreement", 0.9], "--agreement belongs to a plan over one list"),
        (["--try-pairs-per-item", 3], "add --items N"),
        (["--try-runs", 5], "runs must be at most 2"),
        (["--try-contexts", 10, "--items", 20], "--try-contexts needs --like with a file whose items recur"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_one(capsys, files, arguments, message):
    code, out, err = run(capsys, *files, *arguments)
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert message in err


def test_hollow_points_have_more_contexts_than_the_file():
    from simulate.plotting import plot_plan

    plan = plan_contexts(tally_of(study(runs=1)), check_gold(GOLD), orders=[2], n_reps=4, rng=1)
    hollow = [
        line
        for line in plot_plan(plan).get_lines()
        if str(line.get_markerfacecolor()) == "white" and len(line.get_xdata())
    ]
    assert [line.get_xdata().tolist() for line in hollow] == [[40 * 30.0, 80 * 30.0]]
