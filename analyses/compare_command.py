"""``analyses compare``: two judges on the pairs that both have judged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rank.command import (
    Column,
    Section,
    add_output_arguments,
    add_recovery_arguments,
    add_resampling_arguments,
    add_tie_credit_argument,
    add_verdict_arguments,
    batch_options,
    build_parser,
    reading_options,
)

if TYPE_CHECKING:
    import pandas as pd

    from analyses.comparison import Comparison

EXAMPLE = """
python -m analyses compare verdicts.csv --gold gold.csv --judges gpt-4 claude-3 --seed 1
python -m analyses compare verdicts.csv --gold gold.csv --by judge format --column format --family metric
"""

_SHOWN = {
    "repeatability": "C repeatability",
    "repeat_agreement": "agreement of two runs",
    "flip_rate": "phi flip rate",
    "inconsistent_pair_primacy": "IPP lean of flips to slot 1",
    "accuracy": "A accuracy",
    "decisive_accuracy": "A on pairs that do not flip",
    "ceiling": "ceiling",
    "trustworthy_rate": "T trustworthy rate",
    "trustworthy_rate_upper": "T at most",
    "spearman": "rho",
    "kendall": "tau",
}
_MOST_SENTENCES = 6


def compare_command(argv: Sequence[str]) -> None:
    """Run ``analyses compare``."""
    parser = build_parser(
        "analyses compare",
        "Differences of judges on the pairs that both have judged: every metric with a paired bootstrap over shared clusters, "
        "exact McNemar test of flips, rho; Holm over the tests shown.",
        example=EXAMPLE,
    )
    add_verdict_arguments(parser)
    study = parser.add_argument_group("comparison")
    study.add_argument(
        "--judges", nargs="+", metavar="NAME", help="values to compare, in this order: the first minus the second (default: all pairs)"
    )  # fmt: skip
    study.add_argument(
        "--column",
        metavar="COLUMN",
        help="group column whose values are compared (default: judge, else the first)",
    )
    study.add_argument(
        "--family", choices=("all", "metric", "comparison"), default="all",
        help="Holm over all tests shown, over the pairs for each metric, or over the metrics for each pair (default: all)",
    )  # fmt: skip
    add_tie_credit_argument(study)
    add_recovery_arguments(study)
    add_resampling_arguments(study)
    add_output_arguments(parser)
    args = parser.parse_args(list(argv))

    import numpy as np

    from analyses.comparison import NoSharedPairsError, adjust_p_values, compare_groups, pairs_to_compare
    from rank.command import Report, emit, progress
    from rank.exceptions import InputError
    from rank.readers import read_gold
    from rank.resample import seed_of
    from rank.streaming import read_tally

    tally = read_tally(args.verdicts, **reading_options(args), **batch_options(args))
    gold = read_gold(args.gold, gap_digits=args.gap_digits) if args.gold else None
    notes = [*tally.notes, tally.count_note()]
    if gold is not None:
        gold.require_coverage(tally)
        notes += gold.coverage_notes(tally)
    else:
        notes.append("no gold given: C, phi and primacy only; --gold adds A, T and rho")
    pairs = pairs_to_compare(tally, args.column, args.judges)
    seed = seed_of(args.seed)
    comparisons, skipped = [], []
    for a, b in progress(pairs, label="comparisons", quiet=args.quiet):
        try:
            comparisons.append(
                compare_groups(
                    tally, gold, a, b, invalid=args.invalid, tie_credit=args.tie_credit, recovery_level=args.level,
                    alpha=args.alpha, n_resamples=args.resamples, level=args.confidence, rng=np.random.default_rng(seed),
                )
            )  # fmt: skip
        except NoSharedPairsError as error:
            skipped.append(str(error))
    if not comparisons:
        more = f" (and {len(skipped) - 1} more comparisons likewise)" if len(skipped) > 1 else ""
        raise InputError(f"{skipped[0]}{more}; nothing can be compared")
    if skipped:
        notes.append(f"{len(skipped)} of {len(pairs)} comparisons are left out, such as: {skipped[0]}")
    tables = adjust_p_values(comparisons, family=args.family)
    data = [
        {
            **c.stratum, "a": c.name_a, "b": c.name_b, "n_shared": c.n_shared, "n_only_a": c.n_only_a,
            "n_only_b": c.n_only_b, "n_other_orders": c.n_other_orders, "n_clusters": c.n_clusters,
            "n_flips_only_a": c.n_flips_only_a, "n_flips_only_b": c.n_flips_only_b, "spearman_reason": c.reason,
            "metrics": table, "notes": list(c.notes),
        }
        for c, table in zip(comparisons, tables, strict=True)
    ]  # fmt: skip
    level = f"{args.confidence:.0%}"
    emit(
        Report(
            title=f"Comparison of judges on shared pairs: {', '.join(args.verdicts)}",
            sections=tuple(
                _section(c, table, level, args.family, len(comparisons))
                for c, table in zip(comparisons, tables, strict=True)
            ),
            sentences=tuple(_sentences(comparisons, tables)),
            data={
                "comparisons": data,
                "family": args.family,
                "n_skipped": len(skipped),
                "skipped": skipped,
                "notes": notes,
            },
            notes=tuple(notes),
            flat=_flat(comparisons, tables),
        ),
        args,
    )


def _where(comparison: Comparison) -> str:
    return ", ".join(f"{value}" for value in comparison.stratum.values())


def _flat(comparisons: Sequence[Comparison], tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    parts = []
    for c, table in zip(comparisons, tables, strict=True):
        names = {**c.stratum, "judge_a": c.name_a, "judge_b": c.name_b}
        parts.append(table.assign(**names, n_shared=c.n_shared)[[*names, "n_shared", *table.columns]])
    return pd.concat(parts, ignore_index=True)


def _section(c: Comparison, table: pd.DataFrame, level: str, family: str, n_comparisons: int) -> Section:
    shown = table[table["metric"].isin(list(_SHOWN))]
    observed = shown.loc[shown["metric"] == "trustworthy_rate", "difference"].notna().any()
    if observed:
        shown = shown[shown["metric"] != "trustworthy_rate_upper"]
    left_out = shown[shown["a"].isna() & shown["b"].isna()]["metric"].map(_SHOWN)
    shown = shown[shown["a"].notna() | shown["b"].notna()]
    shown = shown.assign(words=shown["metric"].map(_SHOWN))
    columns = (
        Column("words", "metric", "text"),
        Column("a", c.name_a, "number", 3),
        Column("b", c.name_b, "number", 3),
        Column("difference", "difference", "difference", 3, "difference_low", "difference_high"),
        Column("p_value", "p", "p"),
        Column("p_holm", "p (Holm)", "p"),
    )
    over = {
        "all": "over all tests shown", "metric": "over the pairs compared, for each metric",
        "comparison": "over the metrics of this pair",
    }[family]  # fmt: skip
    notes = [
        f"{c.n_shared:,} shared pairs in {c.n_clusters:,} clusters; {c.n_only_a:,} judged by {c.name_a} alone, {c.n_only_b:,} by "
        f"{c.name_b} alone, {c.n_other_orders:,} in other orders are left out",
        f"difference: {c.name_a} minus {c.name_b}, {level} paired bootstrap over shared clusters; p (Holm) {over}",
        f"flips: {c.n_flips_only_a:,} pairs flip under {c.name_a} only, {c.n_flips_only_b:,} under {c.name_b} only (exact McNemar)",
    ]
    if c.reason:
        notes.append(f"rho: {c.reason}")
    if len(left_out):
        notes.append(f"undefined for both: {', '.join(left_out)}")
    title = f"{c.name_a} against {c.name_b}" + (f" ({_where(c)})" if n_comparisons > 1 and _where(c) else "")
    undefined = {
        "a": "no repeated call, no flip, or no finite ranking",
        "b": "no repeated call, no flip, or no finite ranking",
        "difference": "undefined for one of the two",
        "p_value": "not tested: follows from the others, or undefined",
        "p_holm": "as before",
    }
    return Section(title, shown, columns, (*notes, *c.notes), undefined)


def _sentences(comparisons: Sequence[Comparison], tables: Sequence[pd.DataFrame]) -> list[str]:
    sentences = []
    for c, table in list(zip(comparisons, tables, strict=True))[:_MOST_SENTENCES]:
        tested = table[table["p_holm"].notna()]
        words = {name: _SHOWN[name] for name in tested["metric"]}
        found = tested[tested["p_holm"] <= 0.05]
        where = f" ({_where(c)})" if len(comparisons) > 1 and _where(c) else ""
        start = f"{c.name_a} against {c.name_b}{where}: "
        if not len(tested):
            sentences.append(start + "nothing could be tested.")
        elif not len(found):
            sentences.append(start + f"no difference is shown on {c.n_shared:,} shared pairs (Holm, 5 %).")
        else:
            parts = [
                f"{words[name]} {difference:+.3f}"
                for name, difference in zip(found["metric"], found["difference"], strict=True)
            ]
            others = [words[name] for name in tested["metric"] if name not in set(found["metric"])]
            sentences.append(
                start
                + f"they differ in {', '.join(parts)} (Holm, 5 %)"
                + (f"; not shown to differ in {', '.join(others)}." if others else ".")
            )
    if len(comparisons) > _MOST_SENTENCES:
        sentences.append(f"({len(comparisons) - _MOST_SENTENCES} more comparisons below)")
    return sentences
