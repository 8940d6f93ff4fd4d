"""``python -m simulate``: judges with exact reliability, and what the placement of their errors does to a ranking."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rank.command import DASK_HELP, add_output_arguments, build_parser, run

if TYPE_CHECKING:
    from rank.command import Report
    from simulate.judges import JudgeSettings
    from simulate.sweep import Sweep

EXAMPLE = """
python -m simulate --q 0.5
python -m simulate --q -1 -0.5 0 0.5 1 --reps 100 --plot sweep.png
python -m simulate --preset figure1 --strengths uniform
"""

#: Other commands of this package: name -> (module, function, what it is for). The first word on the command line.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "twins": (
        "simulate.twins_command",
        "twins_command",
        "two judges with equal C, phi, A and T, and other rankings",
    ),
    "plan": (
        "simulate.planning_command",
        "planning_command",
        "rho against pairs, orders and runs; the cheapest design",
    ),
}

_JUDGE = (
    "agreement",
    "flip_rate",
    "flip_q",
    "primacy",
    "repeatability",
    "noise_q",
    "runs",
    "scheme",
    "judge",
    "k_close",
)
_NUMBER: dict[str, Any] = {"type": float, "metavar": "X"}
_SHARE: dict[str, Any] = {"type": float, "metavar": "SHARE"}
_WHOLE: dict[str, Any] = {"type": int, "metavar": "N"}
_POPULATION = ("strengths", "spread", "df", "design", "n_pairs", "pairs_per_item", "human", "votes")


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``python -m simulate`` and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in COMMANDS:
        module, function, _ = COMMANDS[arguments[0]]
        command = getattr(import_module(module), function)
        return run(command, arguments[1:], prog=f"rankgap simulate {arguments[0]}")
    return run(_simulate, arguments, prog="rankgap simulate")


def _parser() -> argparse.ArgumentParser:
    others = "".join(f"\n  {name}: {purpose}" for name, (_, _, purpose) in COMMANDS.items())
    parser = build_parser(
        "simulate",
        "Simulate judges that have the asked repeatability C, flip rate phi and accuracy A (hence T) to one pair, with\n"
        "their errors placed on close pairs (q = -1), anywhere (0) or on far pairs (1), and measure rho, the rank\n"
        "correlation with gold. That is the scale of the default --scheme weight; with --scheme spread, which the presets\n"
        "set, q = 0 is near ties only and q = 1 is anywhere."
        + (f"\n\nother commands:{others}" if others else ""),
        example=EXAMPLE,
    )
    parser.add_argument(
        "--q", type=float, nargs="+", metavar="Q",
        help="where errors fall, one row each, on the scale of --scheme (default: 0.5; a preset has its own six)",
    )  # fmt: skip
    parser.add_argument(
        "--preset", choices=("figure1", "figure2"),
        help="settings of the published figures, among them --scheme spread and --reps 200; what is given beside it goes before",
    )  # fmt: skip
    parser.add_argument(
        "--reps",
        **_WHOLE,
        help="repetitions (default: 1, which gives a bootstrap interval; with a preset 200)",
    )
    parser.add_argument(
        "--jobs", default=1, **_WHOLE, help="processes; each takes about a second to start (default: 1)"
    )
    parser.add_argument("--dask", metavar="ADDRESS", help=DASK_HELP)
    parser.add_argument(
        "--gold", choices=("latent", "human"),
        help="what rho is measured against: strengths, or the ranking from the human votes (default: latent)",
    )  # fmt: skip
    parser.add_argument(
        "--resamples", default=500, **_WHOLE, help="bootstrap resamples with one repetition (default: 500)"
    )

    add_people_arguments(parser)
    add_judge_arguments(parser)

    files = parser.add_argument_group("files")
    files.add_argument("--plot", metavar="PATH", help="draw rho and T against q")
    files.add_argument(
        "--save-verdicts", metavar="PATH", help="write the verdicts of the first repetition, one judge per q"
    )
    files.add_argument("--save-gold", metavar="PATH", help="write its strengths as gold (item,score)")
    files.add_argument("--save-human", metavar="PATH", help="write its human winners as gold of pairs")
    add_output_arguments(parser)
    return parser


def add_people_arguments(
    parser: argparse.ArgumentParser, *, design: bool = True, human: str = "votes"
) -> None:
    """Add the options of `simulate.population.draw_population`.

    Parameters
    ----------
    parser : ArgumentParser
    design : bool
        Whether there are options for the pairs that are compared.
    human : str
        What the help names as the default of ``--human``.
    """
    people = parser.add_argument_group("items, pairs and people" if design else "items and people")
    people.add_argument("--items", **_WHOLE, help="number of items (default: 200)")
    people.add_argument(
        "--strengths", choices=("normal", "uniform", "t", "clusters"),
        help="distribution of the strengths, variance 1 (default: normal)",
    )  # fmt: skip
    people.add_argument("--spread", **_NUMBER, help="factor on the strengths, which are in nats (default: 1)")
    people.add_argument("--df", **_NUMBER, help="degrees of freedom of t (default: 5)")
    people.add_argument(
        "--strengths-from", metavar="GOLD", help="take items and strengths from a file with item,score"
    )
    if design:
        people.add_argument("--pairs-per-item", **_WHOLE, help="partners of every item (default: all)")
        people.add_argument("--n-pairs", **_WHOLE, help="number of pairs drawn at random (default: all)")
        people.add_argument(
            "--design",
            choices=("all", "random", "regular"),
            help="default: follows from the two options above",
        )
    people.add_argument("--human", choices=("votes", "deterministic"), help=f"default: {human}")
    people.add_argument("--votes", **_WHOLE, help="human votes per pair (default: 1)")


def add_judge_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `simulate.judges.JudgeSettings`."""
    judge = parser.add_argument_group("judge")
    judge.add_argument("--agreement", **_SHARE, help="accuracy A against the human winner (default: 0.6)")
    judge.add_argument("--flip-rate", **_SHARE, help="phi, pairs answered by slot (default: 0.2)")
    judge.add_argument("--flip-q", **_NUMBER, help="where flips fall, -1 to 1 (default: -0.5)")
    judge.add_argument("--primacy", **_SHARE, help="flips that go to the first slot (default: 0.8)")
    judge.add_argument("--repeatability", **_SHARE, help="C, unanimous conditions (default: 0.95)")
    judge.add_argument("--noise-q", **_NUMBER, help="where the others fall, -1 to 1 (default: -0.5)")
    judge.add_argument("--runs", **_WHOLE, help="calls per pair and order (default: 5)")
    judge.add_argument(
        "--scheme", choices=("weight", "spread", "mixture"),
        help="scale of q: weight, -1 closest, 0 anywhere, 1 farthest pairs; spread, 0 near ties, 1 anywhere; mixture, -1 "
        "closer half, 0 anywhere, 1 farther half (default: weight)",
    )  # fmt: skip
    judge.add_argument("--k-close", **_NUMBER, help="steepness of scheme spread, per nat (default: 3)")
    judge.add_argument(
        "--judge", choices=("errors", "blind-zone"),
        help="placed pairs are wrong, or twice as many are coin flips (default: errors)",
    )  # fmt: skip


def _simulate(argv: list[str]) -> None:
    args = _parser().parse_args(argv)

    from functools import partial

    from rank.command import emit, progress
    from simulate.sweep import DEFAULT_Q, PRESETS, sweep

    preset = PRESETS[args.preset] if args.preset else {}
    people, notes = people_options(args, preset.get("population", {}))
    judge, more = judge_settings(args, preset.get("judge", {}))
    notes += more
    if args.seed is None:
        import secrets

        args.seed = secrets.randbits(32)
    n_reps = args.reps if args.reps is not None else preset.get("n_reps", 1)
    result = sweep(
        args.q or preset.get("q_values", DEFAULT_Q),
        n_reps=n_reps,
        judge=judge,
        population=people,
        gold=args.gold or preset.get("gold", "latent"),
        n_resamples=args.resamples,
        rng=args.seed,
        n_jobs=args.jobs,
        dask=args.dask,
        progress=partial(progress, total=n_reps, label="repetitions", quiet=args.quiet),
    )
    if args.save_verdicts or args.save_gold or args.save_human:
        _save(args, result, people, judge)
    if args.plot:
        from simulate.plotting import save_sweep_plot

        save_sweep_plot(result, args.plot)
    emit(_report(result, args, notes), args)


def _given(args: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(args, name, None)) is not None}


def judge_settings(args: argparse.Namespace, start: Mapping[str, Any]) -> tuple[JudgeSettings, list[str]]:
    """Return what the arguments of `add_judge_arguments` ask on top of other settings, and notes."""
    from simulate.judges import JudgeSettings

    asked, notes = {**start, **_given(args, _JUDGE)}, []
    if asked.get("runs", 5) < 3 and "repeatability" not in _given(args, _JUDGE):
        if asked.get("repeatability") != 1.0:
            notes.append("with fewer than 3 runs no run can be outvoted: repeatability is 1")
        asked["repeatability"] = 1.0
    return JudgeSettings(**asked), notes


def people_options(args: argparse.Namespace, start: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the keyword arguments of `draw_population` that the arguments ask on top of others, and notes."""
    given = _given(args, _POPULATION)
    people: dict[str, Any] = dict(start)
    if {"design", "n_pairs", "pairs_per_item"} & set(given):
        # One word about the design replaces the one to start from.
        people = {name: value for name, value in people.items() if name not in ("design", "n_pairs")}
    if "strengths" in given:
        people = {name: value for name, value in people.items() if name not in ("theta", "item_names")}
    people.update(given)
    if args.items is not None:
        people["n_items"] = args.items
    notes: list[str] = []
    if args.strengths_from:
        from rank.exceptions import InputError
        from rank.readers import read_gold

        if args.strengths:
            raise InputError("give --strengths or --strengths-from, not both")
        gold = read_gold(args.strengths_from)
        if gold.kind != "items" or gold.frame["item"].duplicated().any():
            raise InputError(
                f"{args.strengths_from}: strengths need one row per item with item and score; "
                "pairs, or items with several scores, cannot be used"
            )
        people["theta"] = gold.frame["score"].to_numpy(dtype=float)
        people["item_names"] = gold.frame["item"].tolist()
        if args.items is None:
            people.pop("n_items", None)
        notes.append(f"strengths are the scores of {args.strengths_from} times --spread, read as nats")
    return people, notes


def _save(args: argparse.Namespace, result: Sweep, people: dict[str, Any], judge: Any) -> None:
    import pandas as pd

    from rank.command import write_table
    from simulate.sweep import first_repetition

    first = first_repetition(judge=judge, population=people, rng=args.seed)
    values = list(dict.fromkeys(row["q"] for row in result.rows))
    answers = [first.answer(q) for q in values]
    if args.save_verdicts:
        frames = [answer.to_frame() for answer in answers]
        if len(values) > 1:
            frames = [frame.assign(judge=f"q={q:g}") for q, frame in zip(values, frames)]
        write_table(args.save_verdicts, pd.concat(frames, ignore_index=True))
    if args.save_gold:
        write_table(args.save_gold, answers[0].gold_frame())
    if args.save_human:
        write_table(args.save_human, answers[0].human_frame())


def _report(result: Sweep, args: argparse.Namespace, notes: list[str]) -> Report:
    from rank.command import Column, Report, Section
    from simulate.judges import SCALES

    asked, frame = result.settings, result.to_frame()
    observed = asked["runs"] >= 2
    digits = max(len(f"{q:g}".partition(".")[2]) for q in frame["q"])
    key = Column("q", "q", "number", digits)
    rates = [
        key,
        Column("spearman", "rho", "number", low="spearman_low", high="spearman_high"),
        Column("kendall", "tau", "number"),
    ]
    if observed:
        rates.append(Column("repeatability", "C", "share"))
    rates += [
        Column("flip_rate", "phi", "share"),
        Column("inconsistent_pair_primacy", "IPP", "share"),
        Column("accuracy", "A", "share"),
    ]
    if asked["human"] == "votes":
        rates.append(Column("accuracy_latent", "A theta", "share"))
    if asked["judge"] == "blind-zone" and asked["n_reps"] > 1:
        rates.append(Column("accuracy_sd", "sd of A", "number"))
    if observed:
        rates += [
            Column("trustworthy_rate", "T", "share"),
            Column("trustworthy_rate_joint", "T joint", "share"),
        ]
    else:
        rates.append(Column("trustworthy_rate_upper", "T at most", "share"))
    trusted = "trustworthy_rate" if observed else "trustworthy_rate_upper"
    where = [
        key,
        Column("close_swap_consistency", "swap close", "share"),
        Column("far_swap_consistency", "swap far", "share"),
        Column("close_accuracy", "A close", "share"),
        Column("far_accuracy", "A far", "share"),
        Column(f"close_{trusted}", "T close", "share"),
        Column(f"far_{trusted}", "T far", "share"),
        Column("triads_cyclic_share", "cyclic", "share"),
        Column("triads_mixed_share", "mixed", "share"),
        Column("triads_inequality_share", "inequality", "share"),
    ]
    band = {
        "repetitions": f"rho [2.5, 97.5 percentile of {asked['n_reps']} repetitions]",
        "bootstrap over pairs": "rho [95 % interval, bootstrap over pairs]",
        "none": "rho",
    }[asked["spearman_interval"]]
    against = "theta" if asked["gold"] == "latent" else "the ranking from the human votes"
    by_votes = asked["human"] == "votes"
    about = [
        f"{band} against {against}; A and T against the human winner"
        + (", A theta against the order of theta" if by_votes else "")
        + "; T = C (A - phi/2)",
        f"q on the scale of scheme {asked['scheme']}: {SCALES[asked['scheme']]}",
    ]
    if not observed:
        about.append("one run: C is not observed; T at most assumes perfect repeatability")
    about_where = [
        "close, far: gap up to the first, from the third quartile; swap: share of pairs that do not flip; "
        "triads: shares" + (" in the first repetition" if asked["n_reps"] > 1 else "")
    ]
    undefined = {
        "spearman": "the ranking or the gold is constant",
        "kendall": "the ranking or the gold is constant",
        "inconsistent_pair_primacy": "no pair flips",
    }
    for side in ("close", "far"):
        for name in ("swap_consistency", "accuracy", trusted):
            undefined[f"{side}_{name}"] = f"no compared pair is {side}"
    for name in ("cyclic", "mixed", "inequality"):
        undefined[f"triads_{name}_share"] = "no triple of items has a verdict on all three pairs"
    notes = list(notes)
    if args.preset:
        notes.append(
            f"preset {args.preset}: scheme {asked['scheme']}, {asked['n_reps']} repetition(s), judge {asked['judge']}"
        )
    if by_votes:
        notes.append(
            "the verdicts of --save-verdicts measured by python -m difficulty show A theta (with the T that belongs to it) "
            "against the gold of --save-gold, and A and T of this table against that of --save-human (where close and far are "
            "cut at the gaps of the judged pairs)"
            + (
                ""
                if asked["gold"] == "latent"
                else "; its rho is against the human ranking, of which there is no file: --gold latent measures against --save-gold"
            )
        )
    partners, uneven = divmod(2 * asked["n_pairs"], asked["n_items"])
    if asked["design"] == "regular" and uneven:
        notes.append(f"items have {partners} or {partners + 1} partners: the numbers do not divide")
    if asked["design"] != "all":
        notes.append(
            f"sparse design: every ranking is a Bradley-Terry fit with alpha {asked['fit_alpha']:g} pseudo-wins per compared ordered pair, "
            "so that items without a win or a loss have a place (difficulty and rank refuse those unless --alpha is given)"
        )
    title = f"Simulated judges: {asked['n_items']:,} items, {asked['n_pairs']:,} pairs ({asked['design']})"
    data = result.to_dict()
    data["settings"] = {"preset": args.preset, "seed": args.seed, **data["settings"]}
    return Report(
        title=title,
        sections=(
            Section("", frame, tuple(rates), tuple(about), undefined),
            Section("Where: close and far pairs, triads", frame, tuple(where), tuple(about_where), undefined),
        ),
        sentences=tuple(describe(result)),
        data=data,
        flat=frame,
        notes=(*notes, f"seed {args.seed}"),
    )


def describe(result: Sweep) -> list[str]:
    """Return what a sweep shows, in sentences."""
    rows, asked = result.rows, result.settings
    name = "trustworthy_rate" if asked["runs"] >= 2 else "trustworthy_rate_upper"
    label = "T" if asked["runs"] >= 2 else "A - phi/2"
    trusted = [row[name] for row in rows]
    known = [row for row in rows if row["spearman"] == row["spearman"]]
    sentences = []
    if len(known) > 1:
        first, last = min(known, key=lambda row: row["q"]), max(known, key=lambda row: row["q"])
        same = max(trusted) - min(trusted) < 5e-4
        rate = (
            f"{label} is {trusted[0]:.3f} for every q"
            if same
            else f"{label} stays between {min(trusted):.3f} and {max(trusted):.3f}"
        )
        change = last["spearman"] - first["spearman"]
        verb = "falls" if change < 0 else "rises"
        ends = [f"{row['spearman']:.2f} (q {row['q']:g})" for row in (first, last)]
        sentence = f"{rate}, while rho {verb} from {ends[0]} to {ends[1]}"
        if abs(change) > 0.05:
            sentence += f": {label} cannot see where errors fall"
        sentences.append(sentence + ".")
    elif known:
        row = known[0]
        sentences.append(
            f"A judge with A {row['accuracy']:.3f}, phi {row['flip_rate']:.3f} and {label} {trusted[0]:.3f} "
            f"recovers the ranking with rho {row['spearman']:.2f} when its errors fall at q {row['q']:g}."
        )
    else:
        sentences.append("rho is undefined: the ranking or the gold is constant.")
    votes = "one human vote" if asked["votes"] == 1 else f"{asked['votes']} human votes"
    if asked["human"] == "deterministic":
        votes = "deterministic people"
    reached = rows[0]["human_spearman"]
    reference = (
        f"reaches rho {reached:.2f} against theta" if reached == reached else "is constant: it has no rho"
    )
    sentences.append(f"Reference: the ranking from {votes} per pair {reference}.")
    return sentences


if __name__ == "__main__":
    sys.exit(main())
