"""The ``rankgap`` command: finds the package that serves a command and hands the arguments on."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module

from rank.command import run

__all__ = ["main"]

# Command -> what it is for; the code is <command>.__main__, the same as `python -m <command>`.
COMMANDS = {
    "simulate": "a judge with exact reliability and chosen error placement, and the ranking it recovers",
    "rank": "Bradley-Terry ranking of the items, and how well it recovers gold",
    "difficulty": "reliability on close and far pairs, triads, error placement",
    "analyses": "studies over many groups: audit, cells, gstudy, proxies, levers, ...",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``rankgap <command> ...`` and return its exit code.

    Examples
    --------
    >>> main(["--version"])
    rankgap 0.1.0
    0
    """
    return run(_dispatch, argv)


def _dispatch(argv: list[str]) -> int:
    from rank import __version__

    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {purpose}" for name, purpose in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="rankgap",
        usage="rankgap [-h] [--version] COMMAND ...",
        description="Audit LLM judges: reliability of pairwise verdicts, difficulty of the pairs, and what\n"
        f"both do to a ranking.\n\ncommands:\n{commands}",
        epilog="example:\n  rankgap simulate --q 0.5\n  rankgap difficulty verdicts.csv --gold gold.csv\n\n"
        "rankgap COMMAND --help explains a command. "
        "exit status: 0 ok, 1 bad input, 2 wrong usage",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"rankgap {__version__}")
    parser.add_argument("command", metavar="COMMAND", choices=list(COMMANDS), help=argparse.SUPPRESS)
    # Only the first word is ours: everything after it belongs to the command.
    command = parser.parse_args(argv[:1]).command
    code: int = import_module(f"{command}.__main__").main(argv[1:])
    return code
