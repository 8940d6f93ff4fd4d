"""``analyses audit``: one row per group, with every metric; judges in A-, T- and rho-order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from difficulty.__main__ import add_study_arguments, describe, study_options
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
    from analyses.audit import Audit
    from difficulty.study import GroupStudy

EXAMPLE = """
python -m analyses audit verdicts.csv --gold gold.csv
python -m analyses audit verdicts.csv --gold gold.csv --by judge dataset --sort rho --plot t_against_rho.png
"""

_MOST_REORDERINGS = 20
_FEW_ITEMS = 10


def audit_command(argv: Sequence[str]) -> None:
    """Run ``analyses audit``."""
    parser = build_parser(
        "analyses audit",
        "Every metric of every group in one row: C, phi, IPP, A, T, ceiling, close and far pairs, triads and rho, with "
        "intervals; and the judges in the order of A, of T and of rho.",
        example=EXAMPLE,
    )
    add_verdict_arguments(parser)
    parser.add_argument(
        "--sort",
        metavar="METRIC",
        help="largest first: C, phi, IPP, A, T, rho, tau or any key of the JSON rows",
    )
    add_study_arguments(parser)
    parser.add_argument("--plot", metavar="PATH", help="draw T against rho")
    add_output_arguments(parser)
    args = parser.parse_args(list(argv))

    from analyses.audit import audit_groups
    from difficulty.study import study_groups
    from rank.command import Report, emit, progress
    from rank.readers import read_gold
    from rank.streaming import read_tally

    tally = read_tally(args.verdicts, **reading_options(args), **batch_options(args))
    gold = read_gold(args.gold, gap_digits=args.gap_digits) if args.gold else None
    studies = list(
        progress(
            study_groups(tally, gold, study_options(args), rng=args.seed, n_jobs=args.jobs, dask=args.dask),
            total=tally.n_groups,
            label="groups",
            quiet=args.quiet,
        )
    )
    audit = audit_groups(studies, sort=args.sort)
    notes = [*tally.notes, tally.count_note()]
    if gold is not None:
        notes += gold.coverage_notes(tally)
    else:
        notes.append("no gold given: C, phi, primacy and triads only; --gold adds accuracy, T and rho")
    emit(
        Report(
            title=f"Audit of {tally.n_groups:,} group(s): {', '.join(args.verdicts)}",
            sections=tuple(audit_sections(audit, studies)),
            sentences=tuple(audit_sentences(audit) if len(studies) > 1 else [describe(studies[0])]),
            data={"rows": audit.rows, "reorderings": audit.reorderings, "notes": notes},
            notes=tuple(notes),
            flat=audit.rows,
        ),
        args,
    )
    if args.plot:
        # After the report: where there is nothing to draw, what was asked for besides is still there.
        from analyses.plotting import plot_audit, save_plot

        save_plot(plot_audit(audit), args.plot)


def audit_sections(audit: Audit, studies: Sequence[GroupStudy]) -> list[Section]:
    """Return the tables of an audit for people."""
    from difficulty.study import UNDEFINED_REASONS
    from rank.recovery import undefined_resamples_note

    rows = audit.rows
    labels = list(studies[0].labels)
    keys = [Column(name) for name in labels if rows[name].nunique() > 1] or [Column(n) for n in labels[:1]]
    level = f"{studies[0].options.level:.0%}"

    def interval(name: str, header: str, kind: str = "share") -> Column:
        return Column(name, header, kind, low=f"{name}_low", high=f"{name}_high")

    def known(*names: str) -> bool:
        return bool(rows[list(names)].notna().to_numpy().any())

    rates = [*keys, Column("n_pairs_swapped", "pairs", "count")]
    if rows["failure_mode"].notna().any():
        rates.append(Column("failure_mode", "mode", "text"))
    rates += [
        interval("repeatability", "C"),
        interval("flip_rate", "phi"),
        interval("inconsistent_pair_primacy", "IPP"),
    ]
    if known("accuracy"):
        rates.append(interval("accuracy", "A"))
        if known("trustworthy_rate"):
            rates.append(interval("trustworthy_rate", "T"))
        if rows["trustworthy_rate"].isna().any():
            rates.append(interval("trustworthy_rate_upper", "T at most"))
        rates += [Column("ceiling", "ceiling", "share", 2), Column("capability_gap", "gap", "share", 2)]
    if known("spearman"):
        rates += [interval("spearman", "rho"), Column("kendall", "tau", "number", 2)]
    notes = [
        f"shares with {level} intervals: C repeatability, phi flip rate, IPP share of flips that lean to the first slot"
    ]
    if known("accuracy"):
        notes.append("A accuracy, T = C (A - phi q_u), ceiling 1 - phi (1 - q_u), gap = ceiling - A")
    limits = rows["spearman_reason"].astype(str)
    for reason in dict.fromkeys(limits[(limits != "") & (limits != "there is no item gold")]):
        concerned = rows.loc[limits == reason, labels].astype(str).agg(" / ".join, axis=1)
        notes.append(
            f"rho of {', '.join(concerned[:3])}{' and others' if len(concerned) > 3 else ''}: {reason}"
        )
    partly = rows[(rows["n_undefined_resamples"] > 0) & (limits == "")]
    if len(partly):
        most = partly.sort_values("n_undefined_resamples", kind="stable").iloc[-1]
        label = " / ".join(str(most[column]) for column in labels)
        more = f" (the most of {len(partly)} groups)" if len(partly) > 1 else ""
        notes.append(undefined_resamples_note(int(most["n_undefined_resamples"]), label + more))
    reasons = {
        **UNDEFINED_REASONS,
        "failure_mode": "needs repeated calls and both orders",
        "kendall": UNDEFINED_REASONS["spearman"],
        "ceiling": UNDEFINED_REASONS["accuracy"],
        "capability_gap": UNDEFINED_REASONS["accuracy"],
    }
    sections = [Section("Reliability and recovery", rows, tuple(rates), tuple(notes), reasons)]

    pairs: list[Column] = [*keys, interval("swap_consistency", "swap c. all")]
    if known("swap_consistency_close") and known("swap_consistency_far"):
        pairs += [interval("swap_consistency_close", "close"), interval("swap_consistency_far", "far")]
        pairs.append(interval("swap_consistency_close_minus_far", "close - far", "difference"))
        pairs += [
            Column("accuracy_close", "A close", "share", 2),
            Column("accuracy_far", "A far", "share", 2),
        ]
        pairs.append(Column("share_of_wrong_far", "errors on far", "share", 2))
    if known("q_hat"):
        pairs.append(interval("q_hat", "q of errors", "difference"))
    if known("cyclic_share"):
        pairs += [Column(f"{name}_share", name, "share") for name in ("cyclic", "mixed", "inequality")]
    pair_notes = [
        "swap c.: 1 - phi, over all pairs and the close and far quarter of gold gaps; cyclic, mixed, inequality: shares of the "
        "complete triads"
    ]
    if known("share_of_wrong_far"):
        pair_notes.append("errors on far: share of all wrong decisive verdicts that fall on far pairs")
    if known("q_hat"):
        pair_notes.append(
            "q of errors: placement of wrong decisive verdicts, -1 on the closest pairs, 0 anywhere, 1 on the farthest"
        )
    missing = {f"{name}_share": "no complete triad" for name in ("cyclic", "mixed", "inequality")}
    missing |= {
        name.name: "no such pairs in this group"
        for name in pairs
        if "close" in name.name or "far" in name.name
    }
    missing["q_hat"] = "no wrong decisive verdict, or no gaps"
    missing["swap_consistency"] = UNDEFINED_REASONS["swap_consistency"]
    sections.append(Section("Close and far pairs, triads", rows, tuple(pairs), tuple(pair_notes), missing))

    if audit.has_orders:
        sections += _order_sections(audit, keys, rows)
    return sections


def _order_sections(audit: Audit, keys: list[Column], rows: Any) -> list[Section]:
    t_header = "T" if audit.trustworthy == "trustworthy_rate" else "T at most"
    columns = [*keys]
    for name, metric, header in (
        ("accuracy", "accuracy", "A"),
        ("trustworthy_rate", audit.trustworthy, t_header),
        ("spearman", "spearman", "rho"),
    ):
        if rows[metric].notna().any():
            columns += [
                Column(f"rank_{name}", f"by {header}", "count"),
                Column(metric, header, "number", 3),
            ]
    within = [name for name in audit.strata if rows[name].nunique() > 1]
    notes = ["rank 1 is the best" + (f", among the groups of one {' and '.join(within)}" if within else "")]
    sections = [Section("Orders", rows, tuple(columns), tuple(notes), {})]
    found = audit.reorderings
    if len(found):
        changed = (
            *(Column(name) for name in within),
            Column("judge_a", "ahead under A" if found["accuracy_difference"].notna().all() else "a"),
            Column("judge_b", "and behind"),
            Column("changes", "order differs between", "text"),
            *((Column("changes_apart", "beyond intervals", "text"),) if found["changes_apart"].any() else ()),
            Column("accuracy_difference", "A", "difference"),
            Column("trustworthy_rate_difference", t_header, "difference"),
            Column("spearman_difference", "rho", "difference"),
        )
        more = len(found) - _MOST_REORDERINGS
        sections.append(
            Section(
                "Reordered pairs of judges" if audit.compared == "judge" else "Reordered pairs of groups",
                found.head(_MOST_REORDERINGS),
                changed,
                (
                    "differences of point estimates; analyses compare says whether one exceeds noise",
                    *(
                        ("beyond intervals: those for which the two intervals overlap on neither metric",)
                        if found["changes_apart"].any()
                        else ()
                    ),
                    *((f"{more} more in --format json",) if more > 0 else ()),
                ),
                {"spearman_difference": "no rho for one of the two"},
            )
        )
    return sections


def audit_sentences(audit: Audit) -> list[str]:
    """Say what the orders mean."""
    rows, found = audit.rows, audit.reorderings
    sentences = []
    unobserved = int((rows["n_pairs_swapped"] == 0).sum())
    if unobserved:
        sentences.append(
            f"Position bias is UNOBSERVED in {unobserved} group(s) that show no pair in both orders: flip rate, ceiling and T are "
            "undefined there."
        )
    modes = rows["failure_mode"].dropna().value_counts()
    if len(modes):
        unknown = int(rows["failure_mode"].isna().sum())
        sentences.append(
            "Failure modes: "
            + ", ".join(f"{count} {mode}" for mode, count in modes.items())
            + (f", {unknown} unknown (repeats or both orders are missing)" if unknown else "")
            + "."
        )
    if not audit.has_orders:
        return sentences
    t = "T" if audit.trustworthy == "trustworthy_rate" else "the upper bound of T"
    what = "judges" if audit.compared == "judge" else "groups"
    if not len(found):
        sentences.append(f"A, {t} and rho put the {what} in the same order, as far as they are defined.")
        return [*sentences, *_few_items(audit, what)]
    against = [
        int(found["changes"].str.contains(change, regex=False).sum())
        for change in ("A / T", "A / rho", "T / rho")
    ]
    n_apart = int((found["changes_apart"] != "").sum())
    if not n_apart:
        noise = "but for none of them are the intervals of the two apart on both metrics, so all of this may be noise"
    elif n_apart < len(found):
        noise = f"for {n_apart} the intervals of the two are apart on both metrics, the other {len(found) - n_apart} may be noise"
    else:
        noise = "for all of them the intervals of the two are apart on both metrics"
    sentences.append(
        f"{len(found)} pair(s) of {what} change places in their point estimates ({against[0]} between A and {t}, {against[1]} between "
        f"A and rho, {against[2]} between {t} and rho), {noise}."
    )
    sentences += _few_items(audit, what)
    worst = found.iloc[
        int((found["trustworthy_rate_difference"] - found["spearman_difference"]).abs().fillna(0).argmax())
    ]
    if "T / rho" in worst["changes"]:
        a, b = worst["judge_a"], worst["judge_b"]
        if worst["trustworthy_rate_difference"] < 0:
            a, b = b, a
        sentences.append(
            f"Most of all {a} and {b}: {a} is ahead on {t} by {abs(worst['trustworthy_rate_difference']):.3f} and behind on rho by "
            f"{abs(worst['spearman_difference']):.3f}"
            + ("." if "T / rho" in worst["changes_apart"] else " (which may be noise: intervals overlap).")
        )
    return sentences


def _few_items(audit: Audit, what: str) -> list[str]:
    """Say it where rho rests on few items."""
    rows = audit.rows
    pooled = rows[rows["spearman"].notna() & (rows["spearman_level"] == "system")]
    few = pooled.loc[pooled["n_items_ranked"] < _FEW_ITEMS, "n_items_ranked"]
    if few.empty:
        return []
    n = f"{few.min()}" if few.min() == few.max() else f"{few.min()} to {few.max()}"
    return [
        f"Rho over {n} items takes few values and barely separates {what}; with {_FEW_ITEMS} or more it says more."
    ]
