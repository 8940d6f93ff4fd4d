"""``analyses gstudy``: variance components of the verdict direction, and what other designs would reach."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rank.command import (
    Column,
    Section,
    add_output_arguments,
    add_verdict_arguments,
    batch_options,
    build_parser,
    reading_options,
)

if TYPE_CHECKING:
    from analyses.gstudy import DStudy, GStudy

EXAMPLE = """
python -m analyses gstudy verdicts.csv --facets judge format --target 0.8
python -m analyses gstudy verdicts.csv --facets judge temperature --judges 1 2 4 --runs 1 3 5 --kind dependability
"""

_MOST_DESIGNS = 24


def gstudy_command(argv: Sequence[str]) -> None:
    """Run ``analyses gstudy``."""
    parser = build_parser(
        "analyses gstudy",
        "Which facet of the design moves the verdict (pair, judge, format, order and their interactions; REML), and how reliable "
        "the mean verdict would be with other numbers of judges, formats, orders and runs.",
        example=EXAMPLE,
    )
    add_verdict_arguments(parser, gold="none")
    facets = parser.add_argument_group("study")
    facets.add_argument(
        "--facets", nargs=2, default=["judge", "format"], metavar=("JUDGE", "FORMAT"),
        help="columns that play the judge and the format (default: judge format)",
    )  # fmt: skip
    facets.add_argument(
        "--ties",
        choices=("half", "drop"),
        default="half",
        help="a tie is halfway, or left out (default: half)",
    )
    design = parser.add_argument_group("designs to project")
    for name, default in (
        ("judges", [1, 2, 3, 5]),
        ("formats", [1, 2, 3]),
        ("orders", [1, 2]),
        ("runs", [1, 3, 5]),
    ):
        design.add_argument(
            f"--{name}", nargs="+", type=int, default=default, metavar="N",
            help=f"numbers of {name} (default: {' '.join(map(str, default))})",
        )  # fmt: skip
    design.add_argument(
        "--target", type=float, metavar="X", help="reliability to reach; the cheapest design is named"
    )
    design.add_argument(
        "--kind", choices=("generalizability", "dependability"), default="generalizability",
        help="reliability of the order of pairs, or of the value itself (default: generalizability)",
    )  # fmt: skip
    add_output_arguments(parser)
    args = parser.parse_args(list(argv))

    from analyses.gstudy import d_study, g_study_of_tally
    from rank.command import Report, emit
    from rank.exceptions import InputError
    from rank.streaming import read_tally

    tally = read_tally(args.verdicts, **reading_options(args), **batch_options(args))
    columns = [str(name) for name in tally.groups.columns]
    asked = any(argument == "--facets" or argument.startswith("--facets=") for argument in argv)
    for name in args.facets:
        if asked and name not in columns:
            raise InputError(
                f"--facets {name}: there is no such group column; there are {', '.join(columns) or 'none'} (add it with --by)"
            )
    study = g_study_of_tally(tally, judge=args.facets[0], format=args.facets[1], ties=args.ties)
    sizes = {}
    notes = [*tally.notes, tally.count_note(), *study.notes]
    for facet, choice in (("judge", args.judges), ("format", args.formats), ("order", args.orders)):
        if getattr(study, f"n_{facet}s") < 2:
            sizes[f"n_{facet}s"] = [1]
            notes.append(
                f"one {facet} only: designs with more cannot be projected, and its share is unobserved"
            )
        elif facet in study.confounded:
            sizes[f"n_{facet}s"] = [1]
        else:
            sizes[f"n_{facet}s"] = choice
    plan = d_study(study, **sizes, n_runs=args.runs, target=args.target, kind=args.kind)
    notes += [note for note in plan.notes if note not in notes]
    emit(
        Report(
            title=f"G-study of verdicts: {', '.join(args.verdicts)}",
            sections=(_components_section(study, args.facets), _design_section(plan)),
            sentences=tuple(_sentences(study, plan, args.facets)),
            data={
                "components": study.to_frame(), "facets": {"judge": args.facets[0], "format": args.facets[1]},
                **{name: getattr(study, name) for name in (
                    "mean", "n_pairs", "n_judges", "n_formats", "n_orders", "n_verdicts", "n_cells", "n_invalid",
                    "confounded", "balanced", "method", "log_likelihood", "converged",
                )},
                "designs": plan.to_frame(), "target": plan.target, "kind": plan.kind,
                "cheapest": None if plan.cheapest is None else plan.to_frame().iloc[plan.cheapest].to_dict(),
                "notes": notes,
            },
            notes=tuple(notes),
        ),
        args,
    )  # fmt: skip


def _named(component: str, facets: Sequence[str]) -> str:
    """A component with the columns that play the facets."""
    names = {"judge": facets[0], "format": facets[1]}
    return " x ".join(names.get(part, part) for part in component.split(":"))


def _components_section(study: GStudy, facets: Sequence[str]) -> Section:
    frame = study.to_frame()
    frame["words"] = [_named(name, facets) for name in frame["component"]]
    columns = (
        Column("words", "component", "text"),
        Column("variance", "variance", "number", 4),
        Column("std_error", "std. error", "number", 4),
        Column("percent", "percent", "number", 1),
    )
    notes = [
        f"{study.n_verdicts:,} verdicts on {study.n_pairs:,} pairs, {study.n_judges} {facets[0]}(s), {study.n_formats} {facets[1]}(s), "
        f"{study.n_orders} order(s); direction-free: every pair enters both ways; variance in squared shares",
        "REML" + (" (balanced table: closed form)" if study.method == "anova" else ""),
    ]
    notes += [
        f"{name}: {reason}" for name, reason in zip(frame["words"], frame["reason"], strict=True) if reason
    ]
    undefined = {
        "variance": "not estimable from this table, see below",
        "std_error": "at zero, or not estimable",
        "percent": "not estimable from this table",
    }
    return Section("Variance components", frame, columns, tuple(notes), undefined)


def _design_section(plan: DStudy) -> Section:
    import numpy as np

    frame = plan.to_frame()
    frame["cheapest"] = ["<- cheapest" if index == plan.cheapest else "" for index in range(len(frame))]
    shown = frame.sort_values(["n_calls", "generalizability"], kind="stable")
    notes = [
        "calls: per pair; G coefficient: reliability of the order of pairs; dependability: of the value itself (E rho^2 and Phi in "
        "the literature; no rank correlation and no flip rate)"
    ]
    if len(shown) > _MOST_DESIGNS:
        # For people: the best design of each number of calls.
        best = shown.groupby("n_calls")["generalizability"].transform("max")
        use = np.asarray(shown["generalizability"] >= best) | np.asarray(shown["cheapest"] != "")
        shown = shown[use].drop_duplicates("n_calls", keep="last")
        notes.append(f"the best design for each number of calls; all {len(frame)} are in --format json")
    columns = [
        Column("n_calls", "calls", "count"),
        Column("n_judges", "judges", "count"),
        Column("n_formats", "formats", "count"),
        Column("n_orders", "orders", "count"),
        Column("n_runs", "runs", "count"),
        Column("generalizability", "G coefficient", "number", 3),
        Column("dependability", "dependability", "number", 3),
    ]
    if plan.cheapest is not None:
        columns.append(Column("cheapest", f"target {plan.target:g}", "text"))
    missing = "no pair component, or a facet with one level only (or confounded with another one)"
    return Section(
        "Projected designs",
        shown,
        tuple(columns),
        tuple(notes),
        {"generalizability": missing, "dependability": missing},
    )


def _sentences(study: GStudy, plan: DStudy, facets: Sequence[str]) -> list[str]:
    known = [
        (percent, _named(name, facets))
        for percent, name in zip(study.percent, study.component, strict=True)
        if percent == percent
    ]
    if not known:
        return ["No variance component can be estimated from this table."]
    known.sort(reverse=True)
    parts = ", ".join(f"{name} {percent:.0f} %" for percent, name in known[:3])
    pair = float(study.percent[study.component.index("pair")])
    sentences = [f"A single verdict varies through {parts}."]
    if pair == pair:
        sentences.append(
            f"Which item of a pair is better, and how clearly, accounts for {pair:.0f} % of it; the rest is "
            "error that more calls average out."
        )
    if study.confounded:
        names = " and ".join(_named(name, facets) for name in study.confounded)
        sentences.append(
            f"Take care: {names} cannot be told apart from another facet, because the levels never cross: its share may belong to "
            f"the other one, and no design is projected over {names}."
        )
    elif any(note.startswith("CONFOUNDED") for note in study.notes):
        sentences.append("Take care: some levels of the facets never cross, see CONFOUNDED in the notes.")
    if plan.target is not None:
        words = "G coefficient" if plan.kind == "generalizability" else "dependability"
        values = getattr(plan, plan.kind)
        if plan.cheapest is None:
            best = max((value for value in values.tolist() if value == value), default=float("nan"))
            reached = f"; the best reaches {best:.3f}" if best == best else ""
            sentences.append(f"No design of the grid reaches {words} = {plan.target:g}{reached}.")
        else:
            k = plan.cheapest
            sentences.append(
                f"Cheapest with {words} >= {plan.target:g}: {plan.n_judges[k]} {facets[0]}(s) x {plan.n_formats[k]} {facets[1]}(s) x "
                f"{plan.n_orders[k]} order(s) x {plan.n_runs[k]} run(s) = {plan.n_calls[k]} calls per pair ({words} = {values[k]:.3f})."
            )
    return sentences
