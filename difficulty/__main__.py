"""``python -m difficulty``: reliability on close and far pairs, triads, and the ranking they lead to."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rank.command import (
    add_bucket_arguments,
    add_mode_arguments,
    add_output_arguments,
    add_recovery_arguments,
    add_resampling_arguments,
    add_tie_credit_argument,
    add_verdict_arguments,
    build_parser,
    run,
)

if TYPE_CHECKING:
    from difficulty.study import GroupStudy, StudyOptions
    from rank.command import Section
    from rank.gold import Gold
    from rank.tally import Tally

EXAMPLE = """
python -m difficulty verdicts.csv --gold gold.csv
python -m difficulty verdicts.csv --gold gold.csv --by judge --plot buckets.png --disputed review.csv
python -m difficulty verdicts.csv --votes human_votes.csv --votes-level pair
"""

_MOST_SENTENCES = 6


def add_study_arguments(parser: argparse.ArgumentParser) -> None:
    """Add every option of `difficulty.study.StudyOptions`."""
    buckets = add_bucket_arguments(parser)
    buckets.add_argument(
        "--gold-scale", choices=("unknown", "strengths", "rescale"), default="unknown",
        help="strengths: gold scores are Bradley-Terry log-strengths; rescale: fit the factor that makes them so. "
        "Either adds what a calibrated judge would show (default: unknown)",
    )  # fmt: skip
    measure = parser.add_argument_group("measuring")
    add_tie_credit_argument(measure)
    add_recovery_arguments(measure)
    add_mode_arguments(measure)
    add_resampling_arguments(measure)


def study_options(args: argparse.Namespace) -> StudyOptions:
    """Return the options that the arguments of `add_study_arguments` state."""
    from difficulty.study import StudyOptions

    return StudyOptions(
        n_buckets=args.buckets,
        edges=args.gap_edges or args.edges,
        exclude_gold_ties=args.exclude_gold_ties,
        gold_scale=args.gold_scale,
        invalid=args.invalid,
        tie_credit=args.tie_credit,
        recovery_level=args.level,
        alpha=args.alpha,
        high_repeatability=args.high_repeatability,
        low_flip_rate=args.low_flip_rate,
        n_resamples=args.resamples,
        level=args.confidence,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``python -m difficulty`` and return its exit code."""
    return run(_difficulty, argv, prog="rankgap difficulty")


def _difficulty(argv: list[str]) -> None:
    parser = build_parser(
        "difficulty",
        "How reliable is a judge on close and on far pairs? Repeatability C, flip rate phi, accuracy A and the "
        "trustworthy rate T, overall and by quartile of the gold gap; triads; and rho of the ranking against gold.",
        example=EXAMPLE,
    )
    add_verdict_arguments(parser)
    add_study_arguments(parser)
    without = parser.add_argument_group(
        "without item gold", "beside --gold, only compared with it; without, in its place (no rho then)"
    )
    without.add_argument(
        "--votes", metavar="FILE",
        help="human votes, one row each like verdicts: the majority is right, the margin is the gap of a pair",
    )  # fmt: skip
    without.add_argument(
        "--votes-level", choices=("context", "pair"), default="context",
        help="margins per prompt and pair, or per pair over all prompts (default: context)",
    )  # fmt: skip
    without.add_argument(
        "--own-ranking", action="store_true",
        help="gaps from the judge's own Bradley-Terry ranking (circular: it says nothing about being right)",
    )  # fmt: skip
    files = parser.add_argument_group("files")
    files.add_argument(
        "--disputed", metavar="PATH", help="write the pairs that flip or are unstable, for people to review"
    )
    files.add_argument(
        "--decisions", metavar="PATH", help="write one row per pair with the swap-consistent decision"
    )
    files.add_argument("--plot", metavar="PATH", help="draw swap consistency and accuracy by gap bucket")
    add_output_arguments(parser)
    args = parser.parse_args(argv)

    from difficulty.decisions import decide_pairs, list_disputed
    from difficulty.study import study_groups
    from rank.command import Report, batch_options, emit, progress, reading_options, write_table
    from rank.readers import read_gold
    from rank.streaming import read_tally

    tally = read_tally(args.verdicts, **reading_options(args), **batch_options(args))
    gold = read_gold(args.gold, gap_digits=args.gap_digits) if args.gold else None
    notes = [*tally.notes, tally.count_note()]
    others: dict[str, Gold | None] = {}
    if args.votes:
        from difficulty.human_votes import describe_votes, votes_to_gold
        from rank.readers import display_name, naming, read_table
        from rank.tally import tally_verdicts
        from rank.verdicts import check_verdicts

        # Several people's votes on a pair are runs of it; who voted doesn't matter.
        frame = read_table(args.votes)
        with naming(display_name(args.votes)):
            votes = tally_verdicts(
                check_verdicts(
                    frame,
                    drop_exact_copies=args.drop_exact_copies,
                    number_runs=not {"run", "criterion"} & set(frame.columns),
                )
            )
        notes += [f"votes: {note}" for note in (*votes.notes, votes.count_note())]
        from_votes = votes_to_gold(votes, level=args.votes_level)
        said = describe_votes(votes, from_votes, level=args.votes_level)
        if gold is None:
            gold = from_votes
            notes.append(said)
        else:
            from_votes.require_coverage(tally)
            others["human votes"] = from_votes
            notes.append(said.replace("gold from", "compared with gold:", 1))
    if args.own_ranking and gold is not None:
        others["own ranking (circular)"] = None  # one per group
    options = study_options(args)
    if args.own_ranking and gold is None:
        found = _study_own_ranking(tally, options, args.seed, notes)
    else:
        found = study_groups(tally, gold, options, rng=args.seed, n_jobs=args.jobs, dask=args.dask)
    studies = list(progress(found, total=tally.n_groups, label="groups", quiet=args.quiet))
    if gold is not None:
        notes += (gold.without_ties() if args.exclude_gold_ties else gold).coverage_notes(tally)
    elif not args.own_ranking:
        notes.append(
            "no gold given: C, phi, primacy and triads only; --gold adds accuracy, T, gap buckets and rho"
        )
    if args.disputed:
        write_table(
            args.disputed, list_disputed(tally, gold.align(tally) if gold else None, invalid=args.invalid)
        )
    if args.decisions:
        write_table(args.decisions, decide_pairs(tally, invalid=args.invalid))
    if args.plot:
        from difficulty.plotting import save_bucket_plot

        save_bucket_plot(studies, args.plot)
    sections = _sections(studies)
    data = {"groups": [study.to_dict() for study in studies], "notes": notes, "counts": dict(tally.ledger)}
    if others and gold is not None:
        comparison = _compare_gaps(tally, gold, others, args.alpha)
        sections.append(comparison)
        data["gap_sources"] = comparison.table
    report = Report(
        title=f"Difficulty of pairs: {', '.join(args.verdicts)}",
        sections=tuple(sections),
        sentences=tuple(_sentences(studies)),
        data=data,
        notes=tuple(notes),
    )
    emit(report, args)


def _study_own_ranking(
    tally: Tally, options: StudyOptions, seed: int | None, notes: list[str]
) -> Iterator[GroupStudy]:
    """Measure every group against its own ranking; groups without one are measured without gold."""
    import numpy as np

    from difficulty.human_votes import CIRCULAR, own_ranking_to_gold
    from difficulty.study import study_group
    from rank.exceptions import InputError
    from rank.resample import seed_of

    notes.append(CIRCULAR)
    seeds = seed_of(seed)
    for index in range(tally.n_groups):
        one = tally.select(index)
        try:
            own = own_ranking_to_gold(one, alpha=options.alpha)
        except InputError as error:
            own = None
            notes.append(f"{tally.group_label(index)} has no ranking of its own: {error}")
        yield study_group(one, own, options, rng=np.random.default_rng(seeds))


def _compare_gaps(tally: Tally, gold: Gold, others: Mapping[str, Gold | None], alpha: float) -> Section:
    """How well other sources of gaps track those of gold; None stands for a group's own ranking."""
    import pandas as pd

    from difficulty.human_votes import compare_gaps, own_ranking_to_gold
    from rank.command import Column, Section
    from rank.exceptions import InputError

    parts, notes = [], []
    for index in range(tally.n_groups):
        one = tally.select(index)
        sources = {}
        for name, source in others.items():
            try:
                sources[name] = own_ranking_to_gold(one, alpha=alpha) if source is None else source
            except InputError as error:
                notes.append(f"{tally.group_label(index)} has no ranking of its own: {error}")
        frame = compare_gaps(one, gold, sources)
        for position, column in enumerate(tally.groups.columns):
            frame.insert(position, column, tally.groups[column].iloc[index])
        parts.append(frame)
    table = pd.concat(parts, ignore_index=True)
    if not len(table):
        return Section("Gaps without item gold", table, (), tuple(notes))
    labels = [name for name in tally.groups.columns if tally.groups[name].nunique() > 1]
    columns = (
        *(Column(name) for name in labels),
        Column("source", "gaps from"),
        Column("n_pairs", "pairs", "count"),
        Column("gap_spearman", "Spearman of gaps", "difference", 2),
        Column("n_decided", "decided", "count"),
        Column("same_winner", "same winner", "share", 2),
    )
    notes = [
        "how well each source of gaps tracks the gold gap on the judged pairs, and how often both name the same winner",
        *notes,
    ]
    return Section("Gaps without item gold", table, columns, tuple(notes), {}, tuple(labels))


def base_notes(studies: list[GroupStudy]) -> list[str]:
    """Say where C rests on a part of the calls, where A and T live on a part of the pairs, and where T and T joint part."""
    notes = []
    for study in studies:
        overall = study.overall()
        name = study.name if study.labels else "all"
        repeated, conditions = overall["n_conditions_repeated"], overall["n_conditions"]
        if 0 < repeated < conditions:
            notes.append(
                f"CAUTION {name}: C, and so T, rests on the {repeated:,} of {conditions:,} (pair, order) conditions that were repeated"
            )
        covered = overall["gold_coverage"]
        if 0 < covered < 1:
            c, phi = overall["repeatability_gold"], overall["flip_rate_gold"]
            text = f"{name}: A, ceiling and T live on the {covered:.0%} of pairs with gold; there phi is {phi:.3f}"
            notes.append(text + (f" and C is {c:.3f}" if c == c else ""))
        low, high = overall["joint_minus_closed_low"], overall["joint_minus_closed_high"]
        if low > 0 or high < 0:
            notes.append(
                f"{name}: T joint differs from T by {overall['joint_minus_closed']:+.3f} [{low:+.3f}, {high:+.3f}]: repeatability, flips "
                "and errors are not independent"
                + (", or the repeated calls are not like the others" if repeated < conditions else "")
                + "; trust T joint"
            )
    return notes


def _sections(studies: list[GroupStudy]) -> list[Section]:
    import pandas as pd

    from difficulty.study import UNDEFINED_REASONS
    from rank.command import Column, Section
    from rank.recovery import undefined_resamples_note

    labels = list(studies[0].labels)
    keys = tuple(
        Column(name) for name in labels if len({s.labels[name] for s in studies}) > 1 or len(labels) == 1
    )
    level = f"{studies[0].options.level:.0%}"

    def interval(name: str, header: str, kind: str = "share") -> Any:
        return Column(name, header, kind, low=f"{name}_low", high=f"{name}_high")

    overall = pd.DataFrame([{**s.labels, **s.overall()} for s in studies])
    repeated = overall["repeatability"].notna().any()
    with_gold = bool((overall["n_pairs_gold"] > 0).any())
    columns = [*keys, Column("n_pairs_swapped", "pairs", "count"), interval("repeatability", "C")]
    columns += [interval("flip_rate", "phi"), interval("inconsistent_pair_primacy", "IPP")]
    if with_gold:
        columns += [interval("accuracy", "A"), interval("trustworthy_rate", "T")]
        if repeated:
            columns.append(interval("trustworthy_rate_joint", "T joint"))
        else:
            columns.append(interval("trustworthy_rate_upper", "T at most"))
        columns.append(interval("ceiling", "ceiling"))
    if overall["spearman"].notna().any():
        columns += [interval("spearman", "rho"), interval("kendall", "tau")]
    notes = [
        f"C repeatability, phi flip rate, IPP share of flips that lean to the first slot, all shares with {level} intervals"
    ]
    if with_gold:
        notes.append(
            "A accuracy, T = C (A - phi q_u) trustworthy rate, ceiling 1 - phi (1 - q_u); rho and tau: ranking against gold"
        )
        notes.append(
            "q_u: A on the pairs that flip (1/2 with forced binary verdicts); "
            + (
                "T joint: the same share counted condition by condition, without assuming independence"
                if repeated
                else "T at most: A - phi q_u, which assumes perfect repeatability"
            )
        )
    notes += base_notes(studies)
    for study in studies:
        r = study.recovery
        name = study.name if study.labels else "all"
        if r is not None and r.reason:
            notes.append(f"rho of {name}: {r.reason}")
        elif r is not None and r.n_undefined_resamples:
            notes.append(undefined_resamples_note(r.n_undefined_resamples, name))
    sections = [Section("Overall", overall, tuple(columns), tuple(notes), UNDEFINED_REASONS)]

    parts = [s.profile.to_frame().assign(**s.labels) for s in studies if s.profile.buckets is not None]
    reasons = {s.profile.reason for s in studies if s.profile.buckets is None}
    if parts:
        frame = pd.concat(parts, ignore_index=True)
        frame["gap"] = [
            f"{low:.3g}–{high:.3g}" if low == low else "no pair"
            for low, high in zip(frame["gap_low"], frame["gap_high"], strict=True)
        ]
        bucket_columns = [
            *keys,
            Column("bucket"),
            Column("gap", "gold gap", "text"),
            Column("n_pairs_swapped", "pairs", "count"),
        ]
        bucket_columns += [interval("swap_consistency", "swap consistency"), interval("accuracy", "A")]
        if frame["trustworthy_rate"].notna().any():
            bucket_columns += [interval("repeatability", "C"), interval("trustworthy_rate", "T")]
        bucket_columns += [interval("inconsistent_pair_primacy", "IPP")]
        bucket_columns += [
            Column("share_of_flips", "of all flips", "share", 2),
            Column("share_of_wrong", "of all errors", "share", 2),
        ]
        if "expected_swap_consistency" in frame:
            bucket_columns += [
                Column("expected_swap_consistency", "calibrated swap c.", "share", 2),
                Column("expected_accuracy", "calibrated A", "share", 2),
                Column("flip_cost", "flip cost (nats)", "number", 2),
            ]
        bucket_notes = list(
            dict.fromkeys(note for s in studies if s.profile.buckets for note in s.profile.buckets.notes)
        )
        basis = {s.profile.buckets.basis for s in studies if s.profile.buckets}
        of_what = {
            "items": "all within-context pairs of the judged items",
            "judged": "the judged pairs",
            "fixed": "given by --gap-edges",
        }
        bucket_notes.append(
            "edges: "
            + "; ".join(of_what[b] for b in sorted(basis))
            + ". close: gap <= first edge, far: gap >= last edge"
        )
        unknown = sum(s.profile.buckets.n_unknown for s in studies if s.profile.buckets)
        ties = sum(s.profile.buckets.n_excluded_ties for s in studies if s.profile.buckets)
        if unknown or ties:
            bucket_notes.append(
                f"{unknown} pair(s) without a known gap and {ties} excluded gold tie(s) are in no bucket"
            )
        sections.append(
            Section(
                "By gold gap",
                frame,
                tuple(bucket_columns),
                tuple(bucket_notes),
                UNDEFINED_REASONS,
                tuple(labels),
            )
        )
        difference = _difference_section(studies, keys)
        if len(difference.table):
            sections.append(difference)
    elif reasons != {"there is no gold"}:
        sections.append(Section("By gold gap", pd.DataFrame(), (), tuple(sorted(reasons))))
    if with_gold:
        sections.append(_placement_section(studies, keys))
    sections.append(_triad_section(studies, keys))
    return sections


def _placement_section(studies: list[GroupStudy], keys: tuple[Any, ...]) -> Section:
    import pandas as pd

    from rank.command import Column, Section

    rows, reasons = [], []
    for study in studies:
        if study.placement is None:
            continue
        for name, what, p in (
            ("flip_q_hat", "flips, among all pairs", study.placement.flips),
            ("q_hat", "errors, among decided pairs", study.placement.errors),
        ):
            row = {**study.labels, "field": name, "what": what, "n_placed": p.n_placed}
            row |= {"n_candidates": p.n_candidates, "mean_rank": p.mean_rank}
            row |= {"mean_rank_anywhere": p.mean_rank_anywhere, "q": p.q, "q_low": p.low, "q_high": p.high}
            rows.append(row)
            if p.reason:
                reasons.append(f"{name}{f' of {study.name}' if len(studies) > 1 else ''}: {p.reason}")
    columns = (
        *keys,
        Column("what"),
        Column("n_placed", "number", "count"),
        Column("n_candidates", "of pairs", "count"),
        Column("mean_rank", "mean gap rank", "share", 2),
        Column("mean_rank_anywhere", "if anywhere", "share", 2),
        Column("q", "q", "difference", low="q_low", high="q_high"),
    )
    notes = [
        "q: where they fall; -1 the closest pairs (the healthy kind), 0 anywhere, +1 the farthest (a misaligned judge)",
        "mean gap rank: percentile rank of the gold gap, 0 the closest and 1 the farthest pair",
        *(
            reasons
            if len(reasons) <= 4
            else [*reasons[:3], f"q is undefined in {len(reasons) - 3} more places"]
        ),
    ]
    undefined = dict.fromkeys(
        ("q", "mean_rank", "mean_rank_anywhere"), "too few pairs of the kind, or no gaps (see below)"
    )
    return Section(
        "Where flips and errors fall", pd.DataFrame(rows), columns, tuple(notes), undefined,
        tuple(column.name for column in keys),
    )  # fmt: skip


def _difference_section(studies: list[GroupStudy], keys: tuple[Any, ...]) -> Section:
    import pandas as pd

    from rank.command import Column, Section

    names = {
        "swap_consistency": "swap consistency",
        "accuracy": "A",
        "trustworthy_rate": "T",
        "inconsistent_pair_primacy": "IPP",
    }
    rows = []
    for study in studies:
        for name, (estimate, low, high) in study.profile.close_minus_far.items():
            if name in names:
                rows.append(
                    {
                        **study.labels,
                        "metric": names[name],
                        "estimate": estimate,
                        "estimate_low": low,
                        "estimate_high": high,
                    }
                )
    frame = pd.DataFrame(rows).dropna(subset=["estimate"])
    columns = (
        *keys,
        Column("metric"),
        Column("estimate", "close minus far", "difference", low="estimate_low", high="estimate_high"),
    )
    return Section("Close minus far", frame, columns, (), {}, tuple(column.name for column in keys))


def _triad_section(studies: list[GroupStudy], keys: tuple[Any, ...]) -> Section:
    import pandas as pd

    from rank.command import Column, Section

    frame = pd.DataFrame([{**s.labels, **s.triad_fields()} for s in studies])
    columns = [
        *keys,
        Column("n_complete", "complete", "count"),
        Column("n_incomplete", "incomplete", "count"),
    ]
    for name in ("cyclic", "mixed", "inequality", "inequality_valid"):
        column = f"{name}_share"
        header = "valid inequality" if name == "inequality_valid" else name
        columns.append(Column(column, header, "share", 3, low=f"{column}_low", high=f"{column}_high"))
    notes = (
        "cyclic A>B>C>A; mixed A>B>C, A~C; inequality A~B~C, A>C (~ undecided); valid: the decided edge has the largest gold "
        "gap and agrees with gold",
    )
    undefined = {f"{name}_share": "no complete triad" for name in ("cyclic", "mixed", "inequality")}
    undefined["inequality_valid_share"] = "no inequality triad with known gold gaps"
    return Section("Triads", frame, tuple(columns), notes, undefined)


def _sentences(studies: list[GroupStudy]) -> list[str]:
    sentences = []
    for study in studies[:_MOST_SENTENCES]:
        sentences.append(describe(study))
    if len(studies) > _MOST_SENTENCES:
        sentences.append(f"({len(studies) - _MOST_SENTENCES} more groups in the tables)")
    return sentences


def describe(study: GroupStudy) -> str:
    """Say in one or two sentences what the numbers of a group mean."""
    from difficulty.reliability import FAILURE_MODES

    overall = study.overall()
    n, flips = overall["n_pairs_swapped"], overall["n_flips"]
    name = "" if not study.labels else f"{study.name}: "
    if not n:
        return f"{name}no pair was judged in both orders: position bias is UNOBSERVED, and flip rate, ceiling and T are undefined."
    text = f"{name}{flips:,} of {n:,} pairs flip when the order is swapped"
    close, far = study.bucket("close"), study.bucket("far")
    difference = study.profile.close_minus_far.get("swap_consistency")
    if difference is not None and close["n_pairs_swapped"] and far["n_pairs_swapped"]:
        text += f" ({close['flip_rate']:.0%} of the close, {far['flip_rate']:.0%} of the far pairs"
        if difference[1] <= 0 <= difference[2]:
            text += "; the difference is within noise"
        text += ")"
    lean = overall["inconsistent_pair_primacy"]
    low, high = overall["inconsistent_pair_primacy_low"], overall["inconsistent_pair_primacy_high"]
    if flips and lean == lean:
        if lean == 0.5:
            text += ", half of them towards either slot"
        else:
            text += (
                f", {max(lean, 1 - lean):.0%} of them towards the {'first' if lean > 0.5 else 'second'} slot"
            )
            # Few flips, or one cluster only: a lean that may be none.
            text += "" if low > 0.5 or high < 0.5 else " (within noise of half)"
    text += "."
    text += describe_calibrated(study)
    if study.mode:
        text += f" By C and phi it is {study.mode}: {FAILURE_MODES[study.mode]}."
    elif overall["repeatability"] != overall["repeatability"]:
        text += " Repeatability is unobserved (one run)."
    if overall["spearman"] == overall["spearman"]:
        low, high = overall["spearman_low"], overall["spearman_high"]
        bounds = f" [{low:.2f}, {high:.2f}]" if low == low else ""
        rate = "T" if overall["trustworthy_rate"] == overall["trustworthy_rate"] else "T is at most"
        value = overall["trustworthy_rate"] if rate == "T" else overall["trustworthy_rate_upper"]
        text += f" {rate} {'is ' if rate == 'T' else ''}{value:.3f} while rho is {overall['spearman']:.2f}{bounds}."
    return text


def describe_calibrated(study: GroupStudy) -> str:
    """Say how many of the flips a calibrated judge would show; empty without a gold scale.

    Conditional on the gold scores (declared or rescaled to be log-strengths), on one answer per order and on a judge
    without ties.
    """
    reference = study.profile.reference
    if reference is None:
        return ""
    expected, spread = float(reference.expected_flips[-1]), float(reference.expected_flips_sd[-1])
    if expected != expected:
        return " The gold scores cannot be rescaled to log-strengths (no verdict with or none against them)."
    observed = int(reference.observed_flips[-1])
    gold = "gold scores taken as declared"
    if study.options.gold_scale != "strengths":
        gold = f"gold scores times {reference.scale:.3g}, the factor that fits its verdicts best"
        gold += ", negative because they run against gold" if reference.scale < 0 else ""
    low, high = max(expected - 1.96 * spread, 0.0), expected + 1.96 * spread
    between = f"{expected:,.0f}, mostly between {low:,.0f} and {high:,.0f}"
    given = f"given {gold}, one answer per order and no ties"
    if observed <= low:
        return f" Its {observed:,} flips are fewer than a calibrated judge would show ({between}; {given})."
    if observed <= high:
        return f" A calibrated judge would show as many flips as these {observed:,} ({between}; {given})."
    return f" Of {observed:,} flips, about {expected:,.0f} are what a calibrated judge would show ({between}; {given})."


if __name__ == "__main__":
    sys.exit(main())
