"""``analyses proxies``: which pair-level proxy goes with rho over judges and corpora."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from difficulty.__main__ import add_study_arguments, study_options
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
    from analyses.proxies import ProxyStudy

EXAMPLE = """
python -m analyses proxies summary.csv --seed 1
python -m analyses proxies verdicts.csv --gold gold.csv --by judge dataset --also accuracy trustworthy_rate
"""


def proxies_command(argv: Sequence[str]) -> None:
    """Run ``analyses proxies``."""
    parser = build_parser(
        "analyses proxies",
        "Does a cheap pair-level proxy tell how well a judge ranks? Spearman of each proxy with rho over judges and corpora, "
        "pooled and within corpus, with permutation tests.",
        example=EXAMPLE,
    )
    add_verdict_arguments(
        parser, summary="one row per judge and dataset: swap_consistency, ..., spearman (rho)"
    )
    parser.add_argument(
        "--also", nargs="+", choices=("accuracy", "trustworthy_rate"), default=[], metavar="PROXY",
        help="study accuracy and trustworthy_rate as proxies, too",
    )  # fmt: skip
    parser.add_argument(
        "--permutations", type=int, default=10_000, metavar="N", help="random reshuffles (default: 10000)"
    )
    add_study_arguments(parser)
    parser.add_argument("--plot", metavar="PATH", help="draw each proxy against rho")
    add_output_arguments(parser)
    args = parser.parse_args(list(argv))

    import numpy as np
    import pandas as pd

    from analyses.inputs import read_verdicts_or_summary
    from analyses.proxies import (
        OPTIONAL_PROXIES,
        PROXIES,
        points_from_studies,
        points_from_summary,
        study_proxies,
    )
    from difficulty.study import study_groups
    from rank.command import Report, emit, progress
    from rank.exceptions import InputError
    from rank.readers import read_gold
    from rank.resample import seed_of

    columns = [*PROXIES, "spearman"]
    found = read_verdicts_or_summary(args.verdicts, columns, **reading_options(args), **batch_options(args))
    seed = seed_of(args.seed)
    if isinstance(found, pd.DataFrame):
        if args.gold or args.by:
            option = "--gold" if args.gold else "--by"
            raise InputError(f"{args.verdicts[0]} is a summary table; {option} is for verdicts")
        points = points_from_summary(found)
        notes = [f"{len(points)} summary rows read"]
    else:
        if not args.gold:
            raise InputError("the proxies are correlated with rho, which needs item gold; add --gold")
        gold = read_gold(args.gold, gap_digits=args.gap_digits)
        studies = progress(
            study_groups(
                found,
                gold,
                study_options(args),
                rng=np.random.default_rng(seed),
                n_jobs=args.jobs,
                dask=args.dask,
            ),
            total=found.n_groups, label="groups", quiet=args.quiet,
        )  # fmt: skip
        points = points_from_studies(list(studies))
        notes = [*found.notes, found.count_note(), *gold.coverage_notes(found)]
    for name in args.also:
        if name not in points:
            raise InputError(f"--also {name}: the table has no such column")
    chosen = [name for name in PROXIES if name in points] + [n for n in OPTIONAL_PROXIES if n in args.also]
    study = study_proxies(
        points,
        proxies=chosen,
        n_permutations=args.permutations,
        level=args.confidence,
        rng=np.random.default_rng(seed),
    )
    if args.plot:
        from analyses.plotting import save_proxy_plot

        save_proxy_plot(study, args.plot)
    emit(
        Report(
            title=f"Proxies of rho: {', '.join(args.verdicts)}",
            sections=(_section(study),),
            sentences=tuple(_sentences(study)),
            data={
                "rows": study.table, "points": study.points, "n_points": study.n_points, "n_corpora": study.n_corpora,
                "n_left_out": study.n_left_out, "n_permutations": study.n_permutations,
                "minimum_detectable_correlation": study.minimum_detectable, "notes": notes,
            },
            notes=tuple(notes),
        ),
        args,
    )  # fmt: skip


def _words(name: str) -> str:
    from analyses.proxies import OPTIONAL_PROXIES, PROXIES

    return {**PROXIES, **OPTIONAL_PROXIES}.get(name, name)


def _section(study: ProxyStudy) -> Section:
    table = study.table.assign(words=study.table["proxy"].map(_words))
    columns = [
        Column("words", "proxy", "text"),
        Column("n", "N", "count"),
        Column("spearman", "Spearman with rho", "difference", 2, "spearman_low", "spearman_high"),
        Column("p_value", "p", "p"),
        Column("p_holm", "p (Holm)", "p"),
    ]
    if (study.table["within_n"] > 0).any():
        columns += [
            Column("within_spearman", "within corpus", "difference", 2),
            Column("within_p_value", "p", "p"),
            Column("within_p_holm", "p (Holm)", "p"),
        ]
    notes = [
        f"{study.level:.0%} intervals by Fisher's z (variance 1.06 / (N - 3)); p: two-sided, {study.n_permutations:,} reshuffles, "
        "(k + 1) / (n + 1); Holm over the proxies shown",
    ]
    if (study.table["within_n"] > 0).any():
        notes.append(
            f"within corpus: ranks and reshuffles inside each of {study.n_corpora} corpora, then pooled; tells apart what is due to "
            "corpora that differ as a whole"
        )
    if study.minimum_detectable == study.minimum_detectable:
        notes.append(
            f"minimum detectable correlation with N = {study.n_points}: {study.minimum_detectable:.2f} = tanh((1.96 + 0.84) sqrt(1.06 / "
            "(N - 3))), power 0.8 at 5 % two-sided"
        )
    if study.n_left_out:
        notes.append(f"{study.n_left_out} point(s) without rho are left out")
    for proxy, reason in zip(table["words"], table["reason"], strict=True):
        if reason:
            notes.append(f"{proxy}: {reason}")
    return Section(
        "Correlation with rho", table, tuple(columns), tuple(notes),
        {
            "spearman": "see below", "p_value": "see below", "p_holm": "see below",
            "within_spearman": "fewer than three points, or constant, inside the corpora",
            "within_p_value": "as before", "within_p_holm": "as before",
        },
    )  # fmt: skip


def _sentences(study: ProxyStudy) -> list[str]:
    from analyses.proxies import SMALL_N

    table = study.table
    sentences = []
    results = list(zip(table["proxy"].map(_words), table["spearman"], table["p_holm"], strict=True))
    found = [f"{name} ({r:+.2f}, Holm p {_p(p)})" for name, r, p in results if p <= 0.05]
    others = [f"{name} ({r:+.2f})" for name, r, p in results if p > 0.05]
    if found:
        sentences.append(f"Over {study.n_points} judge x corpus points rho goes with {' and '.join(found)}.")
        if others:
            sentences.append(f"Not shown to go with rho: {', '.join(others)}.")
    elif table["p_value"].notna().any():
        sentences.append(
            f"Over {study.n_points} judge x corpus points no proxy is shown to go with rho (Holm, 5 %)."
        )
    if study.n_points < SMALL_N:
        limit = (
            f"only correlations beyond about {study.minimum_detectable:.2f} can be expected to show"
            if study.minimum_detectable == study.minimum_detectable
            else "nothing can be expected to show"
        )
        sentences.append(
            f"Few points: with N = {study.n_points} {limit}, so a missing finding is no evidence of absence."
        )
    return sentences


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
