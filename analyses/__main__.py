"""``python -m analyses``: the studies over many groups, each a command of its own."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from rank.command import run

# Command -> (module, function, what it is for); the module is imported when its command is asked for.
COMMANDS = {
    "audit": ("analyses.audit_command", "audit_command", "every metric of every group; A-, T- and rho-order"),
    "cells": ("analyses.cells_command", "cells_command", "T from C, phi, A; format dispersion; eta^2; axes"),
    "gstudy": (
        "analyses.gstudy_command",
        "gstudy_command",
        "variance components and what more calls would buy",
    ),
    "proxies": ("analyses.proxies_command", "proxies_command", "which proxy goes with rho"),
    "compare": ("analyses.compare_command", "compare_command", "two judges on the pairs both have judged"),
    "levers": (
        "analyses.levers_command",
        "levers_command",
        "what rho would become if some verdicts were fixed",
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``python -m analyses COMMAND ...`` and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    known = arguments[0] if arguments and arguments[0] in COMMANDS else ""
    return run(_dispatch, arguments, prog=f"rankgap analyses {known}".rstrip())


def _dispatch(argv: list[str]) -> int | None:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {purpose}" for name, (_, _, purpose) in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="rankgap analyses",
        usage="rankgap analyses [-h] COMMAND ...",
        description=f"Studies over many groups of verdicts.\n\ncommands:\n{commands}",
        epilog="example:\n  python -m analyses audit verdicts.csv --gold gold.csv\n  python -m analyses cells summary.csv\n\n"
        "rankgap analyses COMMAND --help explains a command. "
        "exit status: 0 ok, 1 bad input (one line on stderr), 2 wrong usage",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("command", metavar="COMMAND", choices=list(COMMANDS), help=argparse.SUPPRESS)
    # Only the first word is ours: everything after it belongs to the command.
    module, function, _ = COMMANDS[parser.parse_args(argv[:1]).command]
    code: int | None = getattr(import_module(module), function)(argv[1:])
    return code


if __name__ == "__main__":
    sys.exit(main())
