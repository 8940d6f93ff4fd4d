"""Arguments of the simulate commands that follow a real judge: ``--like VERDICTS --gold GOLD``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rank.command import LAYOUTS, reading_options

if TYPE_CHECKING:
    from rank.gold import Gold
    from rank.tally import Tally
    from simulate.fitted import FittedJudge


def add_like_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--like``, ``--gold``, ``--by``, ``--group`` and how to read the verdicts."""
    group = parser.add_argument_group(
        "a real judge to follow (options of the judge and the items go before it)"
    )
    group.add_argument(
        "--like", nargs="+", metavar="VERDICTS",
        help="take C, phi, A and the placement of flips and errors from these verdicts, and items from --gold",
    )  # fmt: skip
    group.add_argument("--gold", metavar="GOLD", help="its reference: a file with item,score")
    group.add_argument("--by", nargs="+", action="extend", metavar="COLUMN", help="grouping columns")
    group.add_argument(
        "--group", metavar="LABEL", help="which group, where there are several: 'judge / dataset'"
    )
    group.add_argument("--layout", choices=LAYOUTS, help="what the verdict labels mean (default: found out)")
    group.add_argument(
        "--drop-exact-copies", action="store_true", help="drop rows that repeat an earlier row"
    )
    group.add_argument(
        "--number-runs", action="store_true", help="number repeated calls as runs, in file order"
    )


def read_like(args: argparse.Namespace) -> tuple[Tally, Gold] | None:
    """Return the verdicts (one group) and the gold that the arguments of `add_like_arguments` name, or None."""
    from rank.exceptions import InputError

    if not args.like:
        for name in ("gold", "by", "group", "layout"):
            if getattr(args, name):
                raise InputError(f"--{name} belongs to --like, which was not given")
        return None
    if not args.gold:
        raise InputError("--like needs --gold with the scores of the items (item,score)")
    from rank.readers import read_gold, read_verdicts
    from rank.tally import tally_verdicts
    from simulate.fitted import choose_group

    tally = tally_verdicts(read_verdicts(args.like, **reading_options(args)))
    return choose_group(tally, args.group), read_gold(args.gold)


def fit_like(args: argparse.Namespace, like: tuple[Tally, Gold] | None) -> FittedJudge | None:
    """Return the judge that was read by `read_like`, or None."""
    if like is None:
        return None
    from simulate.fitted import fit_judge

    return fit_judge(*like, rng=args.seed)
