"""Ranking from pairwise verdicts: verdict table, tallies, Bradley-Terry fits, recovery of a gold ranking."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Public name -> module that defines it, imported when first asked for, so that `--help` answers at once.
_EXPORTS: dict[str, str] = {
    "BradleyTerryFit": "rank.bradley_terry",
    "ConvergenceError": "rank.exceptions",
    "GapBuckets": "rank.buckets",
    "Gold": "rank.gold",
    "GroupRanking": "rank.ranking",
    "InputError": "rank.exceptions",
    "NoMaximumError": "rank.exceptions",
    "PairGold": "rank.gold",
    "RankingOptions": "rank.ranking",
    "Recovery": "rank.recovery",
    "RecoveryProblem": "rank.recovery",
    "Tally": "rank.tally",
    "VerdictTable": "rank.verdicts",
    "bootstrap_sums": "rank.resample",
    "bucket_gaps": "rank.buckets",
    "check_gold": "rank.gold",
    "check_verdicts": "rank.verdicts",
    "cross_check": "rank.bradley_terry",
    "fit_bradley_terry": "rank.bradley_terry",
    "kendall": "rank.recovery",
    "midranks": "rank.recovery",
    "percentile_interval": "rank.resample",
    "rank_group": "rank.ranking",
    "rank_groups": "rank.ranking",
    "read_gold": "rank.readers",
    "read_table": "rank.readers",
    "read_verdicts": "rank.readers",
    "recover_ranking": "rank.recovery",
    "spearman": "rank.recovery",
    "tally_verdicts": "rank.tally",
    "wilson_interval": "rank.resample",
}

__all__ = ["__version__", *_EXPORTS]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
