"""``simulate plan``: what a target rho costs in calls, given a judge."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rank.command import DASK_HELP, Report, add_output_arguments, build_parser
from simulate.__main__ import add_judge_arguments, add_people_arguments, judge_settings, people_options
from simulate.like import add_like_arguments, fit_like, read_like

if TYPE_CHECKING:
    import pandas as pd

    from rank.command import Column
    from simulate.fitted import FittedJudge
    from simulate.planning import Plan

#: Options that change a simulated judge, its items or its graph of pairs.
_OF_A_LIST = (
    "q", "strengths", "spread", "df", "human", "votes", "agreement", "flip_rate", "flip_q", "primacy", "repeatability",
    "noise_q", "runs", "scheme", "k_close", "judge", "try_pairs_per_item",
)  # fmt: skip

EXAMPLE = """
python -m simulate plan --agreement 0.75 --q -0.3 --target 0.9 --jobs 2 --plot plan.png
python -m simulate plan --items 50 --try-pairs-per-item 5 10 20 49 --try-orders 2 --try-runs 1 3
python -m simulate plan --like verdicts.csv --gold gold.csv --target 0.8
python -m simulate plan --like verdicts.csv --gold gold.csv --try-contexts 20 40 80 160 --try-runs 1
"""


def planning_command(argv: Sequence[str]) -> None:
    """Run ``simulate plan``."""
    args = _parser().parse_args(list(argv))
    # One thread per process, as workers have: numbers do not depend on --jobs, and small systems gain nothing by more.
    if "numpy" not in sys.modules:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    from dataclasses import asdict
    from functools import partial

    from rank.command import emit, progress
    from rank.exceptions import InputError
    from simulate.planning import Design, plan_designs

    if args.seed is None:
        import secrets

        args.seed = secrets.randbits(32)
    shared = {
        "runs": args.try_runs,
        "target": args.target,
        "probability": args.probability,
        "n_reps": args.reps,
        "rng": args.seed,
        "n_jobs": args.jobs,
        "dask": args.dask,
        "progress": partial(progress, total=args.reps, label="repetitions", quiet=args.quiet),
    }
    like = read_like(args)
    if like and args.items is None and not args.strengths_from:
        from simulate.context_planning import items_recur, plan_contexts

        if items_recur(*like):
            _refuse_list_options(args)
            over = plan_contexts(*like, n_contexts=args.try_contexts, orders=args.try_orders, **shared)
            _draw(over, args)
            emit(_report_contexts(over, args), args)
            return
    if args.try_contexts:
        raise InputError(
            "--try-contexts needs --like with a file whose items recur over several contexts, and no --items: only then "
            "is there something to draw contexts from"
        )
    fitted = fit_like(args, like)
    people, notes = people_options(args, fitted.population if fitted else {})
    judge, more = judge_settings(args, asdict(fitted.settings) if fitted else {})
    q = args.q if args.q is not None else fitted.q if fitted else 0.0
    own = None
    if fitted and fitted.pairs_per_item and not _changed(args):
        own = Design(fitted.pairs_per_item, 2, min(fitted.runs, judge.runs))
    plan = plan_designs(
        q,
        judge=judge,
        population=people,
        pairs_per_item=args.try_pairs_per_item,
        orders=args.try_orders or (1, 2),
        own_design=own,
        **shared,
    )
    _draw(plan, args)
    notes = [*(fitted.notes if fitted else ()), *notes, *more]
    emit(_report(plan, args, fitted, notes), args)


def _draw(plan: Plan, args: argparse.Namespace) -> None:
    if args.plot:
        from simulate.plotting import save_plan_plot

        save_plan_plot(plan, args.plot)


def _refuse_list_options(args: argparse.Namespace) -> None:
    """Refuse what has no meaning where the verdicts of a file are drawn and no judge is simulated."""
    from rank.exceptions import InputError

    given = [name for name in _OF_A_LIST if getattr(args, name) is not None]
    if given:
        raise InputError(
            f"--{given[0].replace('_', '-')} belongs to a plan over one list of items, but the items of this file recur "
            "over contexts, and the plan draws its contexts as they are; leave it out, or add --items N to simulate a "
            "judge like this on an invented list of N items"
        )


def _parser() -> argparse.ArgumentParser:
    parser = build_parser(
        "simulate plan",
        "How many calls does a ranking need? Expected rho against the number of pairs, orders and runs, for an assumed\n"
        "judge or one like a real judge (--like), and the cheapest design that reaches a target. Where the items of the\n"
        "file recur over many prompts (a few systems x many contexts), nothing is simulated: its contexts are resampled,\n"
        "and the designs differ by how many are judged. Whatever it says holds for that judge only.",
        example=EXAMPLE,
    )
    parser.add_argument(
        "--q", type=float, metavar="Q", help="where errors fall (default: 0, anywhere; with --like as fitted)"
    )
    parser.add_argument(
        "--target", type=float, default=0.9, metavar="RHO", help="rho to reach (default: 0.9)"
    )
    parser.add_argument(
        "--probability", type=float, default=0.9, metavar="P", help="with which probability (default: 0.9)"
    )
    parser.add_argument("--reps", type=int, default=100, metavar="N", help="repetitions (default: 100)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (default: 1)")
    parser.add_argument("--dask", metavar="ADDRESS", help=DASK_HELP)
    tries = parser.add_argument_group("designs to try (all combinations; calls = pairs x orders x runs)")
    tries.add_argument(
        "--try-pairs-per-item", type=int, nargs="+", metavar="K",
        help="partners of every item (default: eight numbers up to all)",
    )  # fmt: skip
    tries.add_argument(
        "--try-contexts", type=int, nargs="+", metavar="M",
        help="numbers of contexts, with --like and items that recur; also more than the file has (default: eight numbers "
        "up to four times as many)",
    )  # fmt: skip
    tries.add_argument(
        "--try-orders", type=int, nargs="+", choices=(1, 2), help="orders per pair (default: 1 2)"
    )
    tries.add_argument(
        "--try-runs", type=int, nargs="+", metavar="N",
        help="calls per order, up to the judge's --runs or those of the file (default: 1, half, all)",
    )  # fmt: skip
    add_people_arguments(parser, design=False)
    add_judge_arguments(parser)
    add_like_arguments(parser)
    parser.add_argument_group("files").add_argument("--plot", metavar="PATH", help="draw rho against calls")
    add_output_arguments(parser)
    return parser


def _changed(args: argparse.Namespace) -> bool:
    """Whether the simulated judge or its items are not those of the file any more."""
    kept = (
        "q",
        "items",
        "strengths",
        "strengths_from",
        "human",
        "agreement",
        "flip_rate",
        "flip_q",
        "primacy",
    )
    return any(
        getattr(args, name) is not None for name in (*kept, "repeatability", "noise_q", "scheme", "judge")
    )


def _report(plan: Plan, args: argparse.Namespace, fitted: FittedJudge | None, notes: list[str]) -> Report:
    from rank.command import Section

    asked = plan.settings
    frame, columns, shown_note = _table(plan, "pairs_per_item", "partners")
    about = [
        f"A against {'the gold order' if asked['human'] == 'deterministic' else 'the human winner'}; rho against theta: "
        f"mean and 2.5 to 97.5 percentiles of {asked['n_reps']} repetitions; P: share of them with a 95 % "
        "Wilson interval",
        shown_note,
    ]
    undefined = {"spearman": "no repetition has a ranking"}
    notes.append(
        "C, phi and A are exact for all pairs, both orders and all runs, and hold in expectation for a part of them; with "
        "one order a coin decides which item of a pair is first"
    )
    data = plan.to_dict()
    data["settings"] = {"seed": args.seed, **data["settings"]}
    data["like"] = {"label": fitted.label, **fitted.measured} if fitted else None
    return Report(
        title=f"Plan: {asked['n_items']:,} items, {len(plan.rows)} designs",
        sections=(Section("", frame.iloc[_frontier(plan)], columns, tuple(about), undefined),),
        sentences=tuple(describe_plan(plan, fitted)),
        data=data,
        flat=_flat(plan),
        notes=(*notes, f"seed {args.seed}"),
    )


def _table(plan: Plan, size: str, what: str) -> tuple[pd.DataFrame, tuple[Column, ...], str]:
    """Return all designs for people, the columns to show, and which of the rows are shown."""
    from rank.command import Column

    frame = plan.to_frame()
    frame["design"] = [f"{row[size]:,} x {row['orders']} x {row['runs']}" for row in plan.rows]
    named = plan.chosen or plan.best
    word = "chosen" if plan.chosen else "highest rho"
    frame["choice"] = [word if row is named else "" for row in plan.rows]
    columns = (
        Column("design", f"{what} x orders x runs", "text"),
        Column("calls", "calls", "count"),
        Column("spearman", "rho", "number", low="spearman_low", high="spearman_high"),
        Column(
            "reach_probability",
            f"P(rho >= {plan.settings['target']:g})",
            "share",
            low="reach_low",
            high="reach_high",
        ),
        Column("choice", " ", "text"),
    )
    note = (
        f"{len(_frontier(plan))} of {len(frame)} designs are shown: those with a higher rho than every cheaper one, "
        f"the {'chosen' if plan.chosen else 'best'} one, and the most expensive (--format csv has all)"
    )
    return frame, columns, note


def _flat(plan: Plan) -> pd.DataFrame:
    return plan.to_frame().assign(chosen=[row is plan.chosen for row in plan.rows])


def _report_contexts(plan: Plan, args: argparse.Namespace) -> Report:
    from rank.command import Section

    asked = plan.settings
    frame, columns, shown_note = _table(plan, "n_contexts", "contexts")
    n = asked["n_contexts"]
    about = [
        f"rho against gold: mean and 2.5 to 97.5 percentiles of {asked['n_reps']} draws of contexts with replacement from "
        f"the {n:,} of the file; P: share of the draws with a 95 % Wilson interval",
        f"calls: {asked['pairs_per_context']:.3g} pairs per context x contexts x orders x runs",
        shown_note,
    ]
    notes = [
        f"everything is conditional on this file: its judge, its {asked['n_items']} items, its prompts and its gold; with "
        f"more contexts rho tends to {asked['spearman']:.2f}, that of all its verdicts, whatever the truth is"
    ]
    if any(row["n_contexts"] > n for row in plan.rows):
        notes.append(
            f"designs with more than {n:,} contexts extrapolate: as if more prompts of the same kind were judged"
        )
    if any(row["orders"] == 1 for row in plan.rows) and asked["orders"] == 2:
        notes.append(
            "with one order a coin decides, for every context and pair, which of its two orders is asked"
        )
    if asked["orders"] == 1:
        notes.append("no pair of the file was judged in both orders: what a second order buys is unknown")
    elif asked["share_swapped"] < 1:
        notes.append(
            f"{1 - asked['share_swapped']:.1%} of the pairs of the file have one order only, and keep it in designs of two"
        )
    if asked["runs"] == 1:
        notes.append("calls were not repeated: what repeated calls would gain is unknown")
    elif asked["share_fewer_runs"] > 0:
        notes.append(
            f"{asked['share_fewer_runs']:.1%} of the pairs and orders of the file have fewer than {asked['runs']} runs, and "
            "give what they have"
        )
    if asked["n_items_gold"] < asked["n_items"]:
        notes.append(
            f"rho is over the {asked['n_items_gold']} of {asked['n_items']} items that have gold; all pairs count as calls"
        )
    if asked["n_items_gold"] <= 10:
        notes.append(
            f"with {asked['n_items_gold']} items rho takes few values: one exchange of neighbours costs "
            f"{_exchange(asked['n_items_gold']):.2f}"
        )
    data = plan.to_dict()
    data["settings"] = {"seed": args.seed, **data["settings"]}
    kept = ("label", "repeatability", "flip_rate", "accuracy", "spearman")
    data["like"] = {name: asked[name] for name in kept}
    undefined = {"spearman": "no draw has a ranking"}
    return Report(
        title=f"Plan: {asked['n_items']:,} items over contexts, {len(plan.rows)} designs",
        sections=(Section("", frame.iloc[_frontier(plan)], columns, tuple(about), undefined),),
        sentences=tuple(describe_context_plan(plan)),
        data=data,
        flat=_flat(plan),
        notes=(*notes, f"seed {args.seed}"),
    )


def _exchange(n_items: int) -> float:
    """What rho loses when two neighbours of a perfect ranking change places."""
    return 12.0 / (n_items * (n_items**2 - 1))


def describe_context_plan(plan: Plan) -> list[str]:
    """Return what a plan over contexts says, in sentences that name the file it is conditional on."""
    asked, chosen = plan.settings, plan.chosen
    target, probability, reps, n = (asked[k] for k in ("target", "probability", "n_reps", "n_contexts"))
    rates = [
        f"{name} {asked[key]:.3g}"
        for name, key in (("C", "repeatability"), ("phi", "flip_rate"), ("A", "accuracy"))
        if asked[key] == asked[key]
    ]
    given = f"Given the verdicts of {asked['label']} ({', '.join(rates)}) on {asked['n_items']:,} items"
    goal = f"rho {target:g} with probability {probability:g}"
    own, found = plan.complete, asked["spearman"]
    file = f"The file itself, with all its verdicts on {n:,} contexts, has rho " + (
        f"{found:.2f}" if found == found else "undefined"
    )
    sentences = []
    if chosen is not None:
        beyond = chosen["n_contexts"] > n
        sentences.append(
            f"{given}, the cheapest of {len(plan.rows)} designs that reaches {goal} takes {chosen['calls']:,} calls: "
            f"{_contexts(chosen)}. It reached the target in {_count(chosen, reps)} of {reps} draws of contexts "
            f"(95 % interval {chosen['reach_low']:.2f} to {chosen['reach_high']:.2f}); its rho is {_rho(chosen)}."
            + (
                f" These are more contexts than the {n:,} of the file: it holds if more prompts are of the same kind."
                if beyond
                else ""
            )
        )
        if chosen["reach_low"] < probability:
            sure = plan.assured
            sentences.append(
                f"That interval includes less than {probability:g}; more repetitions settle it, and the cheapest design "
                + (
                    f"whose interval does not takes {sure['calls']:,} calls ({_contexts(sure)})."
                    if sure
                    else f"whose interval does not is none of these ({reps} repetitions may be too few for any)."
                )
            )
        sentences.append(f"{file}; as many contexts drawn from it have {_rho(own)}.")
        return sentences
    best = plan.best
    most = max(row["n_contexts"] for row in plan.rows)
    sentences.append(
        f"{given}, none of {len(plan.rows)} designs with up to {most:,} contexts reaches {goal}. The highest rho, "
        f"{_rho(best)}, has {_contexts(best)} ({best['calls']:,} calls); it reached the target in {_count(best, reps)} of "
        f"{reps} draws of contexts."
    )
    if found != found or found >= target:
        sentences.append(f"{file}: more contexts may get there (--try-contexts).")
    else:
        sentences.append(
            f"{file}, and that is where more prompts of the same kind lead: more calls of this judge will not reach "
            f"{target:g}. Another judge is needed, or a lower target."
        )
    return sentences


def _contexts(row: dict[str, Any]) -> str:
    return (
        f"{row['n_contexts']:,} context{'s' if row['n_contexts'] > 1 else ''} with all their pairs "
        f"({row['n_pairs']:,}), in {'one order' if row['orders'] == 1 else 'both orders'} with {_runs(row)}"
    )


def _frontier(plan: Plan) -> list[int]:
    """Positions of the rows that beat every cheaper one, the chosen one, the best where none is, and the last."""
    named = plan.chosen or plan.best
    kept, best = [], float("-inf")
    for index, row in enumerate(plan.rows):
        if row["spearman"] > best or row is named or index == len(plan.rows) - 1:
            kept.append(index)
        if row["spearman"] > best:
            best = row["spearman"]
    return kept


def describe_plan(plan: Plan, fitted: FittedJudge | None = None) -> list[str]:
    """Return what a plan says, in sentences that name the judge they are conditional on."""
    asked, chosen = plan.settings, plan.chosen
    target, probability, reps = asked["target"], asked["probability"], asked["n_reps"]
    rates = f"phi {asked['flip_rate']:.3g}, A {asked['agreement']:.3g} and errors at q {asked['q']:.2g}"
    if asked["runs"] >= 2:
        rates = f"C {asked['repeatability']:.3g}, {rates}"
    whose = f"like {fitted.label}" if fitted else "assumed to have"
    judge = f"a judge {whose} ({rates})" if fitted else f"a judge {whose} {rates}"
    given = f"Given {judge} on {asked['n_items']:,} items"
    goal = f"rho {target:g} with probability {probability:g}"
    complete = plan.complete
    at_most = f"all {complete['n_pairs']:,} pairs in both orders with {_runs(complete)} ({complete['calls']:,} calls)"
    sentences = []
    if chosen is not None:
        sentences.append(
            f"{given}, the cheapest of {len(plan.rows)} designs that reaches {goal} takes {chosen['calls']:,} calls: "
            f"{_design(chosen)}. It reached the target in {_count(chosen, reps)} of {reps} repetitions "
            f"(95 % interval {chosen['reach_low']:.2f} to {chosen['reach_high']:.2f}); its rho is "
            f"{_rho(chosen)}."
        )
        if chosen["reach_low"] < probability:
            sure = plan.assured
            sentences.append(
                f"That interval includes less than {probability:g}; more repetitions settle it, and the cheapest design "
                + (
                    f"whose interval does not takes {sure['calls']:,} calls ({_design(sure)})."
                    if sure
                    else f"whose interval does not is none of these ({reps} repetitions may be too few for any)."
                )
            )
    elif complete["reach_probability"] >= probability:
        best = plan.best
        sentences.append(
            f"{given}, none of the {len(plan.rows)} designs reaches {goal}. The best, {_design(best)} "
            f"({best['calls']:,} calls), has rho {_rho(best)} and reaches it in {_count(best, reps)} of {reps} "
            f"repetitions; {at_most} would reach it, with rho {_rho(complete)}."
        )
    else:
        best = plan.best
        reach = f"{_count(complete, reps)} of {reps} repetitions"
        sentences.append(
            f"{given}, more calls will not reach {goal}: {at_most} give rho {_rho(complete)} and reach the target in "
            f"{reach}. Its flips and errors{_where(asked['q'])} are the same in every run; another judge is needed, or "
            "a lower target."
            + (
                f" (Another set of repetitions might find it just reached: the 95 % interval is "
                f"{complete['reach_low']:.2f} to {complete['reach_high']:.2f}; --reps narrows it.)"
                if complete["reach_high"] >= probability
                else ""
            )
        )
        if (best["calls"], best["spearman"]) != (complete["calls"], complete["spearman"]):
            sentences.append(
                f"The best of the designs tried is {_design(best)} ({best['calls']:,} calls), with rho {_rho(best)}."
            )
    if plan.own is not None and fitted is not None:
        own, found = plan.own, fitted.measured["spearman"]
        if found == found and own["spearman"] == own["spearman"]:
            text = (
                f"Check: with the calls of the file ({_design(own)}) the simulated judge has rho {_rho(own)}, and the "
                f"file has rho {found:.2f}"
            )
            inside = own["spearman_low"] <= found <= own["spearman_high"]
            sentences.append(
                f"{text}."
                if inside
                else f"{text}, which is outside: do not rely on this plan for this judge."
            )
    return sentences


def _where(q: float) -> str:
    return ", which lean to far pairs," if q > 0.05 else ""


def _count(row: dict[str, Any], reps: int) -> int:
    return round(row["reach_probability"] * reps)


def _rho(row: dict[str, Any]) -> str:
    if row["spearman"] != row["spearman"]:
        return "undefined"
    return f"{row['spearman']:.2f} [{row['spearman_low']:.2f}, {row['spearman_high']:.2f}]"


def _runs(row: dict[str, Any]) -> str:
    return "one run" if row["runs"] == 1 else f"{row['runs']} runs"


def _design(row: dict[str, Any]) -> str:
    return (
        f"{row['n_pairs']:,} pairs, {row['pairs_per_item']} partners per item, in "
        f"{'one order' if row['orders'] == 1 else 'both orders'} with {_runs(row)}"
    )
