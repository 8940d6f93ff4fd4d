"""Ranking from pairwise verdicts: verdict table, tallies, Bradley-Terry fits, recovery of a gold ranking."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Public name -> module that defines it, imported when first asked for, so that `--help` answers at once.
_EXPORTS = {
    "ConvergenceError": "rank.exceptions",
    "InputError": "rank.exceptions",
    "NoMaximumError": "rank.exceptions",
    "read_gold": "rank.readers",
    "read_table": "rank.readers",
    "read_verdicts": "rank.readers",
}

__all__ = ["__version__", *_EXPORTS]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
