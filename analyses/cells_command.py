"""``analyses cells``: T of every cell, dispersion over formats, eta squared, summaries along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rank.command import (
    Column,
    Section,
    add_mode_arguments,
    add_output_arguments,
    add_resampling_arguments,
    add_tie_credit_argument,
    add_verdict_arguments,
    batch_options,
    build_parser,
    reading_options,
)

if TYPE_CHECKING:
    import pandas as pd

    from analyses.cells import AxisSummary, Cells, VarianceShares

EXAMPLE = """
python -m analyses cells summary.csv --factors judge format dataset
python -m analyses cells verdicts.csv --gold gold.csv --role-format temperature --axis temperature
"""

_NAMES = {
    "repeatability": "C",
    "flip_rate": "phi",
    "accuracy": "A",
    "trustworthy_rate": "T",
    "trustworthy_rate_upper": "T at most",
}


def cells_command(argv: Sequence[str]) -> None:
    """Run ``analyses cells``."""
    parser = build_parser(
        "analyses cells",
        "T, ceiling, gap and failure mode of every cell (judge x dataset x format ...), from verdicts or from a table of C, phi "
        "and A; how far T moves when only the format changes; which factor explains T (eta^2).",
        example=EXAMPLE,
    )
    add_verdict_arguments(
        parser, summary="repeatability, flip_rate and accuracy per row, in percent or as shares"
    )
    study = parser.add_argument_group("study")
    study.add_argument(
        "--units", choices=("auto", "percent", "fraction"), default="auto",
        help="unit of a summary table (default: found out; a mixture is refused)",
    )  # fmt: skip
    study.add_argument(
        "--role-format", metavar="COLUMN", default=None,
        help="column that plays the role of the format in the dispersion (default: format, where there is one)",
    )  # fmt: skip
    study.add_argument(
        "--metric", metavar="METRIC",
        help="what dispersion and eta^2 are about: repeatability, flip_rate, accuracy, ... (default: trustworthy_rate)",
    )  # fmt: skip
    study.add_argument(
        "--factors", nargs="+", metavar="COLUMN",
        help="split the variation of the metric among these columns and their pairwise interactions (eta^2)",
    )  # fmt: skip
    study.add_argument(
        "--axis",
        metavar="COLUMN",
        help="C, A - phi q_u and T per level of this column, and which of them moved",
    )
    study.add_argument(
        "--min-pairs", type=int, default=10, metavar="N",
        help="cells of verdicts with fewer pairs enter neither dispersion nor eta^2 (default: 10)",
    )  # fmt: skip
    add_mode_arguments(study)
    add_tie_credit_argument(study)
    add_resampling_arguments(study)
    parser.add_argument("--plot", metavar="PATH", help="draw the dispersion")
    add_output_arguments(parser)
    args = parser.parse_args(list(argv))

    import pandas as pd

    from analyses.cells import (
        SUMMARY_COLUMNS,
        cells_from_metrics,
        cells_from_summary,
        format_dispersion,
        summarise_axis,
        variance_shares,
    )
    from analyses.inputs import read_verdicts_or_summary
    from difficulty.reliability import measure_reliability
    from rank.command import Report, emit
    from rank.exceptions import InputError
    from rank.readers import read_gold

    modes = {"high_repeatability": args.high_repeatability, "low_flip_rate": args.low_flip_rate}
    found = read_verdicts_or_summary(
        args.verdicts, SUMMARY_COLUMNS, **reading_options(args), **batch_options(args)
    )
    notes: list[str] = []
    if isinstance(found, pd.DataFrame):
        if args.gold or args.by:
            option = "--gold" if args.gold else "--by"
            raise InputError(f"{args.verdicts[0]} is a summary table; {option} is for verdicts")
        cells = cells_from_summary(found, units=args.units, **modes)
        unit = "percent" if cells.unit == "percent" else "shares in [0, 1]"
        notes.append(
            f"{len(cells.table)} summary rows read, in {unit}; q_u = 1/2 (forced binary verdicts) is assumed"
        )
    else:
        gold = read_gold(args.gold, gap_digits=args.gap_digits) if args.gold else None
        if gold is not None:
            gold.require_coverage(found)
            notes += gold.coverage_notes(found)
        metrics = measure_reliability(
            found, gold.align(found) if gold else None, invalid=args.invalid, tie_credit=args.tie_credit,
            n_resamples=args.resamples, level=args.confidence, rng=args.seed,
        )  # fmt: skip
        cells = cells_from_metrics(found, metrics, **modes)
        notes = [*found.notes, found.count_note(), *notes]
        if gold is None:
            notes.append("no gold given: C and phi only; --gold adds A, T and the ceiling")
    role = args.role_format or ("format" if "format" in cells.labels else None)
    undefined_metric = args.metric is None and cells.table[cells.default_metric].isna().all()
    dispersion = None
    if role is not None and (args.role_format or not undefined_metric):
        dispersion = format_dispersion(cells, role=role, metric=args.metric, min_pairs=args.min_pairs)
    shares = None
    if args.factors:
        shares = variance_shares(cells, args.factors, metric=args.metric, min_pairs=args.min_pairs)
    axis = summarise_axis(cells, args.axis) if args.axis else None
    metric = args.metric or cells.default_metric
    if args.metric is None and metric != "trustworthy_rate" and not undefined_metric:
        notes.append(
            "repeatability is unobserved, so dispersion and eta^2 are about the upper bound of T, A - phi q_u"
        )
    n_thin = 0 if dispersion is None and shares is None else int(cells.is_thin(metric, args.min_pairs).sum())
    if n_thin:
        notes.append(
            f"{n_thin} of {len(cells.table)} cells rest on fewer than {args.min_pairs} pairs and are left out of dispersion and eta^2 "
            "(--min-pairs changes that)"
        )
    sections = [_cells_section(cells, f"{args.confidence:.0%}")]
    if dispersion is not None:
        sections.append(_dispersion_section(dispersion, role or "format", metric))
    if shares is not None:
        sections.append(_shares_section(shares))
    if axis is not None:
        sections += _axis_sections(axis)
    data: dict[str, Any] = {"rows": cells.table, "unit": cells.unit, "metric": metric}
    if dispersion is not None:
        data["dispersion"] = dispersion
    if shares is not None:
        data["eta_squared"] = {
            "metric": shares.metric, "n_cells": shares.n_cells, "n_left_out": shares.n_left_out,
            "n_thin": shares.n_thin, "balanced": shares.balanced, "sum_of_squares": "sequential", "terms": shares.to_frame(),
        }  # fmt: skip
        notes += shares.notes
    if axis is not None:
        data["axis"] = {"axis": axis.axis, "levels": axis.levels, "steps": axis.steps}
        notes += axis.notes
    emit(
        Report(
            title=f"Cells: {', '.join(args.verdicts)}",
            sections=tuple(sections),
            sentences=tuple(_sentences(cells, dispersion, shares, axis, role or "format", metric)),
            data={**data, "notes": notes},
            notes=tuple(notes),
        ),
        args,
    )
    if args.plot:
        # After the report: where there is nothing to draw, what was asked for besides is still there.
        if dispersion is None:
            raise InputError(
                "nothing is drawn: --plot draws the dispersion, which needs a value per cell (--gold, or --metric)"
                if role is not None
                else "nothing is drawn: --plot draws the dispersion; name the column with --role-format"
            )
        from analyses.plotting import plot_dispersion, save_plot

        save_plot(plot_dispersion(dispersion, role=role or "format", metric=_header(metric)), args.plot)


def _label_columns(cells: Cells) -> list[Column]:
    return [
        Column(name, kind="text")
        for name in cells.labels
        if cells.table[name].nunique() > 1 or len(cells.labels) == 1
    ]


def _cells_section(cells: Cells, level: str) -> Section:
    from difficulty.study import UNDEFINED_REASONS

    table = cells.table
    columns = _label_columns(cells)
    names = {**_NAMES, "ceiling": "ceiling", "capability_gap": "gap"}
    bounded = "repeatability_low" in table
    if bounded:
        with_gold = table["n_pairs_swapped_gold"].any()
        columns.append(Column("n_pairs_swapped_gold" if with_gold else "n_pairs_swapped", "pairs", "count"))
    for name, header in names.items():
        if table[name].isna().all() or (
            name == "trustworthy_rate_upper" and table["trustworthy_rate"].notna().all()
        ):
            continue
        main = bounded and name in _NAMES
        columns.append(
            Column(name, header, "share", low=f"{name}_low", high=f"{name}_high")
            if main
            else Column(name, header, "share", 3)
        )
        if name == "trustworthy_rate" and table["failure_mode"].notna().any():
            columns.append(Column("failure_mode", "mode", "text"))
    notes = ["shares: C repeatability, phi flip rate, A accuracy"]
    if table["accuracy"].notna().any():
        notes[0] += ", T = C (A - phi q_u), ceiling = 1 - phi (1 - q_u), gap = ceiling - A"
    if bounded:
        notes.append("pairs: judged in both orders" + (", with gold" if with_gold else ""))
        notes.append(f"in brackets: {level} intervals")
    if "trustworthy_rate_stated" in table:
        off = (table["trustworthy_rate"] - table["trustworthy_rate_stated"]).abs()
        # Half a unit of T itself, and what the rounding of C, phi and A can do to it.
        notes.append(
            f"stated T: differs from C (A - phi/2) by at most {off.max() * 100:.3f} points in {int(off.notna().sum())} rows"
        )
    reasons = {
        **UNDEFINED_REASONS,
        "failure_mode": "needs C and phi",
        "ceiling": UNDEFINED_REASONS["accuracy"],
        "capability_gap": UNDEFINED_REASONS["accuracy"],
        "decisive_accuracy": "every pair flips, or none is judged in both orders with gold",
    }
    return Section("Cells", table, tuple(columns), tuple(notes), reasons)


def _labels_of(dispersion: pd.DataFrame) -> list[str]:
    names = [str(name) for name in dispersion.columns]
    return names[: names.index("n_formats")]


def _header(metric: str) -> str:
    return _NAMES.get(metric, metric.replace("_", " "))


def _dispersion_section(dispersion: pd.DataFrame, role: str, metric: str) -> Section:
    labels = _labels_of(dispersion)
    columns = [
        Column(name, kind="text") for name in labels if dispersion[name].nunique() > 1 or len(labels) == 1
    ]
    columns += [
        Column("n_formats", f"{role}s", "count"),
        Column("dispersion", "max - min", "share", 3),
        Column("min", "min", "share", 3),
        Column("format_min", "at", "text"),
        Column("max", "max", "share", 3),
        Column("format_max", "at", "text"),
    ]
    return Section(
        f"Dispersion of {_header(metric)} over {role}",
        dispersion.sort_values("dispersion", ascending=False, kind="stable", na_position="last"),
        tuple(columns),
        ("largest first; noise alone also makes max - min positive",),
        dict.fromkeys(("dispersion", "min", "max"), f"fewer than two {role}s with a value from enough pairs"),
    )


def _shares_section(shares: VarianceShares) -> Section:
    frame = shares.to_frame()
    columns = (
        Column("term", kind="text"),
        Column("df", "df", "count"),
        Column("sum_sq", "sum of squares", "number", 4),
        Column("eta_squared", "eta^2", "share", 3),
    )
    how = "balanced: exact" if shares.balanced else "sequential (type I), in this order"
    notes = [f"eta^2: shares of the total sum of squares over {shares.n_cells} cells, sum 1 ({how})"]
    if shares.n_left_out:
        notes.append(f"{shares.n_left_out} cell(s) without a value are left out")
    return Section(
        f"What explains {_header(shares.metric)}", frame, columns, tuple(notes),
        {"eta_squared": "the metric is the same in all cells"},
    )  # fmt: skip


def _why_undefined(metric: str) -> str:
    from difficulty.study import UNDEFINED_REASONS

    return UNDEFINED_REASONS.get(metric, "needs both orders and gold")


def _axis_sections(axis: AxisSummary) -> list[Section]:
    import pandas as pd

    headers = {
        "repeatability": "C", "trustworthy_rate_upper": "A - phi q_u", "trustworthy_rate": "T"
    }  # fmt: skip
    columns = [Column(axis.axis, kind="text"), Column("n_cells", "cells", "count")]
    defined = [name for name in headers if axis.levels[f"{name}_mean"].notna().any()]
    columns += [
        Column(f"{n}_mean", f"{headers[n]} mean [IQR]", "share", 3, f"{n}_q25", f"{n}_q75") for n in defined
    ]
    absent = [
        f"no {header} at any level: {_why_undefined(name)}"
        for name, header in headers.items()
        if name not in defined
    ]
    if not defined:
        return [Section(f"Along {axis.axis}", pd.DataFrame(), (), tuple(absent))]
    missing = {f"{name}_mean": "undefined in every cell of this level" for name in headers}
    sections = [
        Section(
            f"Along {axis.axis}",
            axis.levels,
            tuple(columns),
            ("in brackets: inter-quartile range over cells", *absent),
            missing,
        )
    ]
    if len(axis.steps) and not axis.steps["n_matched"].any():
        why = "no cell has a T at two levels"
        if "trustworthy_rate" not in defined:
            why = f"there is no T: {_why_undefined('trustworthy_rate')}"
        title = f"Which factor of T moved along {axis.axis}"
        sections.append(Section(title, pd.DataFrame(), (), (f"unknown, because {why}",)))
    elif len(axis.steps):
        steps = (
            Column("level_from", "from", "text"),
            Column("level_to", "to", "text"),
            Column("n_matched", "cells", "count"),
            Column("trustworthy_rate_change", "change of T", "difference"),
            Column("through_repeatability", "through C", "difference"),
            Column("through_decided_accuracy", "through A - phi q_u", "difference"),
            Column("moved", "moved most", "text"),
        )
        reason = "no cell with a T at both levels"
        names = ("trustworthy_rate_change", "through_repeatability", "through_decided_accuracy")
        sections.append(
            Section(
                f"Which factor of T moved along {axis.axis}",
                axis.steps,
                steps,
                ("mean change over cells that exist at both levels; the two parts add up",),
                dict.fromkeys(names, reason),
            )  # fmt: skip
        )
    return sections


def _sentences(
    cells: Cells,
    dispersion: pd.DataFrame | None,
    shares: VarianceShares | None,
    axis: AxisSummary | None,
    role: str,
    metric: str,
) -> list[str]:
    table = cells.table
    sentences = []
    t = table[cells.default_metric].dropna()
    if len(t):
        name = _header(cells.default_metric)
        spread = f" (from {t.min():.3f} to {t.max():.3f})" if len(t) > 1 else ""
        sentences.append(
            f"{len(table)} cell(s); mean {name} is {t.mean():.3f}{spread}, mean A {table['accuracy'].mean():.3f}."
        )
        modes = table["failure_mode"].dropna().value_counts()
        if len(modes):
            sentences.append("Failure modes: " + ", ".join(f"{n} {mode}" for mode, n in modes.items()) + ".")
    if dispersion is not None and dispersion["dispersion"].notna().any():
        worst = dispersion.iloc[int(dispersion["dispersion"].fillna(-1).argmax())]
        labels = _labels_of(dispersion)
        where = " / ".join(str(worst[name]) for name in labels)
        sentences.append(
            f"Changing only the {role} moves {_header(metric)} by {dispersion['dispersion'].median():.3f} in the median and by up to "
            f"{worst['dispersion']:.3f}{f' ({where}' if where else ' ('}: {worst['format_min']} {worst['min']:.3f}, {worst['format_max']} "
            f"{worst['max']:.3f})."
        )
    if shares is not None and shares.eta_squared[0] == shares.eta_squared[0]:
        order = sorted(zip(shares.eta_squared, shares.term, strict=True), reverse=True)
        parts = ", ".join(f"{term} {share:.1%}" for share, term in order[:3])
        sentences.append(f"Most of the variation of {_header(shares.metric)} lies in {parts}.")
    if axis is not None and len(axis.steps):
        last = axis.steps.iloc[-1]
        if last["n_matched"]:
            sentences.append(
                f"From {axis.axis} {last['level_from']} to {last['level_to']} T changes by {last['trustworthy_rate_change']:+.3f}: "
                f"{last['through_repeatability']:+.3f} through C and {last['through_decided_accuracy']:+.3f} through A - phi q_u."
            )
    return sentences
