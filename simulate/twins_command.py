"""``simulate twins``: the same C, phi, A and T, another ranking."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rank.command import Report, add_output_arguments, build_parser
from simulate.__main__ import add_judge_arguments, add_people_arguments, judge_settings, people_options
from simulate.like import add_like_arguments, fit_like, read_like

if TYPE_CHECKING:
    from simulate.twins import Twins

EXAMPLE = """
python -m simulate twins --plot twins.png
python -m simulate twins --save-verdicts twins.csv --save-gold gold.csv
python -m simulate twins --like verdicts.csv --gold gold.csv --by judge
"""


def twins_command(argv: Sequence[str]) -> None:
    """Run ``simulate twins``."""
    parser = build_parser(
        "simulate twins",
        "Two judges with exactly the same repeatability C, flip rate phi, accuracy A and trustworthy rate T. One has its\n"
        "errors on close pairs, the other on far pairs; everything else, flips and noise included, is shared.",
        example=EXAMPLE,
    )
    parser.add_argument(
        "--q-close",
        type=float,
        default=-0.9,
        metavar="Q",
        help="where errors of the one fall (default: -0.9)",
    )
    parser.add_argument(
        "--q-far", type=float, default=0.9, metavar="Q", help="where errors of the other fall (default: 0.9)"
    )
    parser.add_argument(
        "--resamples", type=int, default=500, metavar="N", help="bootstrap resamples (default: 500)"
    )
    add_people_arguments(parser, human="deterministic, so that A is against the gold order")
    add_judge_arguments(parser)
    add_like_arguments(parser)
    files = parser.add_argument_group("files")
    files.add_argument("--plot", metavar="PATH", help="draw where errors fall, both rankings, and the rates")
    files.add_argument(
        "--save-verdicts",
        metavar="PATH",
        help="write both judges as one verdict table (twin_close, twin_far)",
    )
    files.add_argument("--save-gold", metavar="PATH", help="write the strengths as gold (item,score)")
    files.add_argument("--save-human", metavar="PATH", help="write the reference of A as gold of pairs")
    add_output_arguments(parser)
    args = parser.parse_args(list(argv))

    from dataclasses import asdict

    from rank.command import emit, write_table
    from rank.exceptions import InputError
    from simulate.twins import make_twins

    if args.seed is None:
        import secrets

        args.seed = secrets.randbits(32)
    fitted = fit_like(args, read_like(args))
    if fitted and fitted.items_recur and args.items is None and not args.strengths_from:
        raise InputError(
            f"the items of {fitted.label} recur over {fitted.n_contexts} contexts and are ranked over all of them, which "
            "one list of items cannot imitate; add --items N for twins with its rates on an invented list of N items"
        )
    people, notes = people_options(args, fitted.population if fitted else {"human": "deterministic"})
    judge, more = judge_settings(args, asdict(fitted.settings) if fitted else {})
    twins = make_twins(
        args.q_close, args.q_far, judge=judge, population=people, n_resamples=args.resamples, rng=args.seed
    )
    if args.save_verdicts:
        write_table(args.save_verdicts, twins.verdicts())
    if args.save_gold:
        write_table(args.save_gold, twins.close.gold_frame())
    if args.save_human:
        write_table(args.save_human, twins.close.human_frame())
    if args.plot:
        from simulate.plotting import save_twins_plot

        save_twins_plot(twins, args.plot)
    if fitted:
        notes = [*fitted.notes, *notes]
    emit(_report(twins, args, [*notes, *more], fitted.measured if fitted else None), args)


def _report(twins: Twins, args: argparse.Namespace, notes: list[str], like: dict[str, Any] | None) -> Report:
    from rank.command import Column, Section
    from simulate.sweep import flatten_row

    asked = twins.settings
    observed = asked["runs"] >= 2
    import pandas as pd

    frame = pd.DataFrame([flatten_row(row) for row in twins.rows])
    trusted = "trustworthy_rate" if observed else "trustworthy_rate_upper"
    digits = max(len(f"{row['q']:g}".partition(".")[2]) for row in twins.rows)
    columns = [Column("judge"), Column("q", "q", "number", digits)]
    if observed:
        columns.append(Column("repeatability", "C", "share"))
    columns += [
        Column("flip_rate", "phi", "share"),
        Column("accuracy", "A", "share"),
        Column(trusted, "T" if observed else "T at most", "share"),
        Column("spearman", "rho", "number", low="spearman_low", high="spearman_high"),
        Column("kendall", "tau", "number"),
        Column("close_accuracy", "A close", "share"),
        Column("far_accuracy", "A far", "share"),
    ]
    against = "the gold order" if asked["human"] == "deterministic" else "the human winners"
    about = [
        f"A against {against}; T = C (A - phi/2); rho and tau of the ranking against theta"
        + (", with 95 % intervals from a bootstrap over pairs" if args.resamples else ""),
        "close, far: gap up to the first, from the third quartile",
    ]
    if not observed:
        about.append("one run: C is not observed; T at most assumes perfect repeatability")
    undefined = {
        "spearman": "the ranking or the gold is constant",
        "kendall": "the ranking or the gold is constant",
        "close_accuracy": "no compared pair is close",
        "far_accuracy": "no compared pair is far",
    }
    data = twins.to_dict()
    data["settings"] = {"seed": args.seed, **data["settings"]}
    data["like"] = like
    return Report(
        title=f"Twins: {asked['n_items']:,} items, {asked['n_pairs']:,} pairs ({asked['design']})",
        sections=(Section("", frame, tuple(columns), tuple(about), undefined),),
        sentences=tuple(describe_twins(twins)),
        data=data,
        flat=frame,
        notes=(*notes, f"seed {args.seed}"),
    )


def describe_twins(twins: Twins) -> list[str]:
    """Return what twins show, in one sentence."""
    close, far = twins.rows
    rates = f"phi {close['flip_rate']:.3f}, A {close['accuracy']:.3f} and "
    if twins.settings["runs"] >= 2:
        rates = f"C {close['repeatability']:.3f}, {rates}T {close['trustworthy_rate']:.3f}"
    else:
        rates += f"T at most {close['trustworthy_rate_upper']:.3f}"
    if any(row["spearman"] != row["spearman"] for row in (close, far)):
        return [f"Both judges have {rates}; rho is undefined, since a ranking or the gold is constant."]
    if twins.close.settings.n_errors(twins.population.n_pairs) == 0:
        return [f"Both judges have {rates} and no errors to place: they are the same judge."]
    return [
        f"Both judges have {rates}. One recovers the ranking with rho {close['spearman']:.2f}, the other with rho "
        f"{far['spearman']:.2f}: the errors of the one fall on close pairs (q {close['q']:g}), of the other on far "
        f"pairs (q {far['q']:g})."
        if close["q"] < 0 < far["q"]
        else f"Both judges have {rates}. With errors at q {close['q']:g} the ranking has rho {close['spearman']:.2f}, "
        f"with errors at q {far['q']:g} rho {far['spearman']:.2f}."
    ]
