"""``analyses levers``: what rho would become if some verdicts were fixed, and which to check first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rank.command import (
    Column,
    Report,
    Section,
    add_bucket_arguments,
    add_output_arguments,
    add_recovery_arguments,
    add_resampling_arguments,
    add_verdict_arguments,
    batch_options,
    build_parser,
    emit,
    progress,
    reading_options,
    write_table,
)

if TYPE_CHECKING:
    import pandas as pd

    from analyses.levers import LeverStudy

EXAMPLE = """
python -m analyses levers verdicts.csv --gold gold.csv
python -m analyses levers verdicts.csv --gold gold.csv --by judge --check-first review.csv --top 20
"""

_SHOWN = 5
_MOST_SENTENCES = 6


def levers_command(argv: Sequence[str]) -> None:
    """Run ``analyses levers``."""
    parser = build_parser(
        "analyses levers",
        "What would rho have been if the flips on close (far, ...) pairs had been resolved rightly, if their wrong decisive "
        "verdicts had been right, or if those pairs had not been judged? And which single verdicts cost most?",
        example=EXAMPLE,
    )
    add_verdict_arguments(parser, gold="required")
    add_bucket_arguments(parser)
    measure = parser.add_argument_group("measuring")
    add_recovery_arguments(measure)
    add_resampling_arguments(measure, resamples=1000)
    files = parser.add_argument_group("single verdicts")
    files.add_argument(
        "--check-first",
        metavar="PATH",
        help="write the most damaging wrong and flipped pairs of each group, for review",
    )
    files.add_argument(
        "--top", type=int, default=20, metavar="N", help="how many of them per group (default: 20)"
    )
    add_output_arguments(parser)
    args = parser.parse_args(list(argv))

    import pandas as pd

    from analyses.levers import describe_levers, pull_levers
    from rank.exceptions import InputError
    from rank.readers import read_gold
    from rank.resample import seed_of
    from rank.streaming import read_tally

    if args.top < 1:
        raise InputError(f"--top must be at least 1, found {args.top}")
    tally = read_tally(args.verdicts, **reading_options(args), **batch_options(args))
    gold = read_gold(args.gold, gap_digits=args.gap_digits)
    if args.exclude_gold_ties:
        gold = gold.without_ties()
    if gold.kind != "items":
        raise InputError(
            f"{args.gold}: levers move rho, which needs gold scores of items (columns item, score); pair gold has none"
        )
    gold.require_coverage(tally)
    seed = seed_of(args.seed)

    import numpy as np

    studies = [
        pull_levers(
            tally.select(index),
            gold,
            n_buckets=args.buckets,
            edges=args.gap_edges or args.edges,
            invalid=args.invalid,
            recovery_level=args.level,
            alpha=args.alpha,
            n_resamples=args.resamples,
            level=args.confidence,
            rng=np.random.default_rng(seed),
        )
        for index in progress(range(tally.n_groups), label="groups", quiet=args.quiet)
    ]
    first = pd.concat([study.check_first_frame(args.top) for study in studies], ignore_index=True)
    if args.check_first:
        write_table(args.check_first, first)
    notes = [
        "every number is conditional on the verdicts observed and on this gold: it says what another verdict on these pairs "
        "would have done to rho, not that it can be had",
        *tally.notes,
        tally.count_note(),
        *gold.coverage_notes(tally),
    ]
    sections = _sections(studies, args.confidence)
    sections.append(_check_first(studies, args.check_first))
    flat = pd.concat([study.levers.assign(**study.labels) for study in studies], ignore_index=True)
    flat = flat[[*studies[0].labels, *(c for c in flat.columns if c not in studies[0].labels)]]
    sentences = [describe_levers(study) for study in studies[:_MOST_SENTENCES]]
    if len(studies) > _MOST_SENTENCES:
        sentences.append(f"({len(studies) - _MOST_SENTENCES} more groups in the tables)")
    report = Report(
        title=f"Levers: {', '.join(args.verdicts)}",
        sections=tuple(sections),
        sentences=tuple(sentences),
        data={
            "groups": [study.to_dict(args.top) for study in studies],
            "notes": notes,
            "counts": dict(tally.ledger),
        },
        notes=tuple(notes),
        flat=flat,
    )
    emit(report, args)


def _sections(studies: list[LeverStudy], confidence: float) -> list[Section]:
    from analyses.levers import LEVER_NAMES, NO_INTERVAL

    sections = []
    for study in studies:
        table = study.levers
        title = study.name if study.labels else ""
        if not len(table):
            sections.append(Section(title, table, (), (study.reason, *study.notes)))
            continue
        ends = zip(table["gap_low"], table["gap_high"], strict=True)
        shown = table.assign(
            gap=[f"{low:.3g} – {high:.3g}" if low == low else "" for low, high in ends],
            lever=table["lever"].map(LEVER_NAMES),
        )
        columns = (
            Column("bucket"),
            Column("gap", "gold gap", "text"),
            Column("lever"),
            Column("n_pairs", "pairs", "count"),
            Column("n_verdicts", "verdicts", "count"),
            Column("spearman_after", "rho after", "number", 3),
            _interval("spearman_change", "change of rho", 2),
            _interval("change_per_100", "per 100 verdicts", 3),
        )
        notes = [
            f"rho now: {study.spearman:.3f}"
            + (
                f" [{study.spearman_low:.2f}, {study.spearman_high:.2f}]"
                if study.spearman_low == study.spearman_low
                else ""
            )
            + (", averaged over contexts" if study.level == "context" else "")
            + f"; {confidence:.0%} intervals, all levers on the same resamples",
            "pairs, verdicts: those a lever changes; for 'do not judge' those it saves",
            *(
                f"no interval for {bucket}, {LEVER_NAMES[kind]}: {reason}"
                for bucket, kind, reason in zip(table["bucket"], table["lever"], table["reason"], strict=True)
                if reason == NO_INTERVAL
            ),
            *study.notes,
        ]
        undefined = {
            "spearman_after": "no ranking is left: an item without a verdict, or items that nothing compares",
            "spearman_change": "no ranking is left",
            "change_per_100": "nothing to change, or no ranking is left",
        }
        sections.append(Section(title, shown, columns, tuple(notes), undefined, ("bucket", "gap")))
    return sections


def _interval(name: str, header: str, digits: int) -> Column:
    return Column(name, header, "difference", digits, low=f"{name}_low", high=f"{name}_high")


def _check_first(studies: list[LeverStudy], path: str | None) -> Section:
    import pandas as pd

    frame: pd.DataFrame = pd.concat([s.check_first_frame(_SHOWN) for s in studies], ignore_index=True)
    several = len(studies) > 1
    keys = [name for name in studies[0].labels if several and frame[name].nunique() > 1]
    columns = [*(Column(name) for name in keys)]
    columns += [
        Column(name) for name in ("dataset", "context") if name in frame and name not in studies[0].labels
    ]
    columns += [
        Column("item_a"),
        Column("item_b"),
        Column("gold_winner", "gold"),
        Column("kind"),
        Column("gap", "gold gap", "number"),
        Column("n_right", "right", "count"),
        Column("n_verdicts", "verdicts", "count"),
        Column("spearman_change", "change of rho", "difference", 4),
    ]
    # Only what would help: others are in the file, with their change.
    frame = frame[frame["spearman_change"] > 1e-12]
    total = sum(len(s.check_first.rows) for s in studies)
    helpful = sum(int((s.check_first.change > 1e-12).sum()) for s in studies)
    notes = [
        f"{helpful:,} of {total:,} wrong or flipped pairs would raise rho if set right alone, everything else as it is"
        + (f"; {path} has more of them" if path else "; --check-first PATH writes more of them")
    ]
    if not helpful and total:
        notes[0] = (
            f"no single one of the {total:,} wrong or flipped pairs would raise rho if set right alone, everything else as it is"
            + ("" if path else "; --check-first PATH writes those with the widest gap all the same")
        )
        return Section("Check these first", pd.DataFrame(), (), tuple(notes))
    return Section("Check these first", frame, tuple(columns), tuple(notes), {}, tuple(keys))
