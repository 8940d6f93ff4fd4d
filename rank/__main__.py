"""``python -m rank``: items by Bradley-Terry strength, and how well the ranking recovers gold."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rank.command import (
    add_level_argument,
    add_output_arguments,
    add_resampling_arguments,
    add_verdict_arguments,
    build_parser,
    run,
)
from rank.exceptions import InputError

if TYPE_CHECKING:
    import pandas as pd

    from rank.command import Section
    from rank.ranking import GroupRanking

EXAMPLE = """
python -m rank verdicts.csv --gold gold.csv
python -m rank verdicts.csv --by judge --order-effect --cross-check
"""

#: Beyond so many items the bootstrap has to be asked for.
_MOST_RESAMPLED_ITEMS = 2000


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``python -m rank`` and return its exit code."""
    return run(_rank, argv, prog="rankgap rank")


def _build_parser() -> argparse.ArgumentParser:
    parser = build_parser(
        "rank",
        "Rank the items by Bradley-Terry strength (contexts pooled), with standard errors and rank intervals; "
        "with item gold also Spearman's rho and Kendall's tau.",
        example=EXAMPLE,
    )
    add_verdict_arguments(parser)
    model = parser.add_argument_group("model")
    model.add_argument(
        "--method",
        choices=("newton", "mm", "newman"),
        default="newton",
        help="all reach the same maximum (default: newton)",
    )
    model.add_argument(
        "--ties",
        choices=("half", "davidson"),
        default="half",
        help="half a win each, or Davidson's tie parameter, whose resamples take some milliseconds each (default: half)",
    )
    model.add_argument(
        "--order-effect", nargs="?", const="one", default="none", choices=("none", "one", "gap"),
        help="fit gamma in logit P(first wins) = difference + gamma; 'gap' fits one per quartile of the gold gap",
    )  # fmt: skip
    model.add_argument(
        "--alpha",
        type=float,
        default=0.0,
        metavar="X",
        help="pseudo-wins per compared ordered pair (default: 0)",
    )
    model.add_argument(
        "--prior-sd", type=float, metavar="SD", help="Gaussian prior on the strengths, in nats"
    )
    model.add_argument(
        "--components", choices=("error", "separate"), default="error",
        help="islands that no comparison connects: refuse, or rank each on its own (default: error)",
    )  # fmt: skip
    model.add_argument(
        "--std-errors", choices=("observed", "sandwich", "bootstrap"), default="observed",
        help="from the observed information, cluster-robust, or the spread of the bootstrap (default: observed)",
    )  # fmt: skip
    model.add_argument(
        "--cross-check", action="store_true", help="refit with choix and print the largest difference"
    )
    measure = parser.add_argument_group("measuring")
    add_level_argument(measure)
    add_resampling_arguments(measure)
    parser.set_defaults(resamples=None)  # 2000, or none where every resample is a fit of many items
    add_output_arguments(parser)
    return parser


def _rank(argv: list[str]) -> None:
    args = _build_parser().parse_args(argv)
    if args.invalid == "equal":
        raise InputError(
            "rank has no use for invalid verdicts; --invalid equal belongs to difficulty and analyses, leave it out here"
        )

    from rank.command import Report, batch_options, emit, reading_options
    from rank.ranking import RankingOptions, rank_groups
    from rank.readers import read_gold
    from rank.streaming import read_tally

    tally = read_tally(args.verdicts, **reading_options(args), **batch_options(args))
    gold = read_gold(args.gold, gap_digits=args.gap_digits) if args.gold else None
    n_resamples, remarks = args.resamples, []
    if n_resamples is None:
        n_resamples = 2000 if len(tally.items) <= _MOST_RESAMPLED_ITEMS else 0
        if not n_resamples:
            remarks.append(
                f"no bootstrap intervals for {len(tally.items):,} items, because each resample is a fit of all of them: ask for some "
                "with --resamples N"
            )
    options = RankingOptions(
        method=args.method,
        ties=args.ties,
        order_effect=args.order_effect,
        alpha=args.alpha,
        prior_sd=args.prior_sd,
        components=args.components,
        std_errors=args.std_errors,
        recovery_level=args.level,
        n_resamples=n_resamples,
        level=args.confidence,
    )
    rankings = rank_groups(tally, gold, options, check=args.cross_check, rng=args.seed)
    notes = [*tally.notes, tally.count_note(), *remarks]
    if gold is not None:
        notes += gold.coverage_notes(tally)
    report = Report(
        title=f"Bradley-Terry ranking: {', '.join(args.verdicts)}",
        sections=tuple(_section(ranking) for ranking in rankings),
        sentences=tuple(
            sentence for ranking in rankings for sentence in _sentences(ranking, len(rankings) > 1)
        ),
        data={
            "groups": [ranking.to_dict() for ranking in rankings],
            "notes": notes,
            "counts": dict(tally.ledger),
        },
        notes=tuple(notes),
        flat=_flat(rankings),
    )
    emit(report, args)


def _flat(rankings: list[GroupRanking]) -> pd.DataFrame:
    import pandas as pd

    return pd.concat(
        [r.items.assign(**r.labels)[[*r.labels, *r.items.columns]] for r in rankings if len(r.items)],
        ignore_index=True,
    )


def _section(ranking: GroupRanking) -> Section:
    from rank.command import Column, Section

    name = ranking.name if ranking.labels else ""
    if ranking.fit is None:
        return Section(name, ranking.items, (), (ranking.reason,))
    items = ranking.items
    columns = [
        Column("rank", kind="count"),
        Column("item"),
        Column("strength", "strength (nats)", "difference", 3, low="strength_low", high="strength_high"),
        Column("std_error", "std error", "number", 3),
    ]
    frame = items.assign(
        ranks=[
            f"{low:.0f}–{high:.0f}" if low == low else ""
            for low, high in zip(items["rank_low"], items["rank_high"], strict=True)
        ]
    )
    columns.insert(1, Column("ranks", f"{ranking.options.level:.0%} ranks", "text"))
    columns += [Column(f"n_{what}", what, "count") for what in ("wins", "losses", "ties")]
    if items["gold"].notna().any():
        columns.append(Column("gold", "gold", "number"))
    if items["component"].nunique() > 1:
        columns.insert(0, Column("component", "island", "count"))
    fit = ranking.fit
    notes = [
        f"best first; strengths in nats, mean 0{' in each island' if items['component'].nunique() > 1 else ''}; "
        f"{fit.method}, {fit.n_iterations} iterations, log-likelihood {fit.log_likelihood:,.3f}"
    ]
    if fit.penalised:
        notes.append(
            "PENALISED fit (alpha or prior): strengths are pulled together and are not maximum-likelihood estimates"
        )
    if fit.std_errors_note:
        notes.append(fit.std_errors_note)
    elif ranking.options.n_resamples and ranking.options.std_errors != "sandwich":
        notes.append(
            "intervals resample contexts (or pairs, without contexts) with all their verdicts; std error takes every verdict "
            "as independent (--std-errors sandwich does not)"
        )
    if ranking.reason:
        notes.append(ranking.reason)
    if ranking.n_undefined_resamples:
        notes.append(
            f"{ranking.n_undefined_resamples} of {ranking.options.n_resamples} resamples have no finite maximum and are in no interval"
        )
    if fit.tie_parameter is not None:
        notes.append(
            f"Davidson tie parameter nu = {fit.tie_parameter:.3f} (std error {fit.tie_parameter_std_error:.3f})"
        )
    undefined = {"gold": "the item has no gold", "std_error": fit.std_errors_note or "undefined"}
    return Section(name, frame, tuple(columns), tuple(notes), undefined)


def _sentences(ranking: GroupRanking, several: bool) -> list[str]:
    from rank.command import format_value

    name = f"{ranking.name}: " if several else ""
    if ranking.fit is None:
        return [f"{name}no ranking. {ranking.reason}"]
    sentences = []
    r = ranking.recovery
    if r is not None and r.spearman == r.spearman:
        bounds = f" [{r.spearman_low:.2f}, {r.spearman_high:.2f}]" if r.spearman_low == r.spearman_low else ""
        items = (
            f" over {r.n_items} items" if r.level == "system" else f", averaged over {r.n_contexts} contexts"
        )
        sentences.append(
            f"{name}the ranking agrees with gold at rho = {r.spearman:.3f}{bounds} (tau {r.kendall:.3f}){items}."
        )
    if r is not None and r.reason:
        sentences.append(f"{name}{r.reason}.")
    effect = ranking.order_effect_fields()
    if effect:
        for bucket in effect["buckets"]:
            where = "" if len(effect["buckets"]) == 1 else f" on {_bucket_words(bucket['bucket'])}"
            share = 1 / (1 + 2.718281828459045 ** -bucket["estimate"])
            sentences.append(
                f"{name}order effect{where}: gamma = {bucket['estimate']:+.3f} nats (std error {bucket['std_error']:.3f}): between equal "
                f"items the first slot wins {share:.0%}."
            )
        sentences.append(
            f"{name}likelihood-ratio test of no order effect: chi2({effect['degrees_of_freedom']}) = {effect['statistic']:.2f}, "
            f"p {'' if effect['p_value'] < 0.001 else '= '}{format_value(effect['p_value'], 'p')}."
        )
    check = ranking.difference
    if check is not None:
        sentences.append(
            f"{name}cross-check: no comparison with {check.witness}: {check.reason}."
            if check.reason
            else f"{name}cross-check: {ranking.checked} differs from {check.witness} by at most {check.largest:.1e} nats."
        )
    return sentences


def _bucket_words(name: str) -> str:
    return f"pairs of gap bucket {name}" if name.isdigit() else f"{name} pairs"


if __name__ == "__main__":
    sys.exit(main())
