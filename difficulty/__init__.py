"""How hard the pairs are: reliability, gap buckets, triads and where the errors fall."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Public name -> module that defines it, imported when first asked for.
_EXPORTS: dict[str, str] = {
    "DifficultyProfile": "difficulty.gaps",
    "ErrorPlacement": "difficulty.placement",
    "GroupStudy": "difficulty.study",
    "MetricTable": "difficulty.reliability",
    "Placement": "difficulty.placement",
    "StudyOptions": "difficulty.study",
    "TriadCounts": "difficulty.triads",
    "compare_gaps": "difficulty.human_votes",
    "count_triads": "difficulty.triads",
    "decide_pairs": "difficulty.decisions",
    "error_placement": "difficulty.placement",
    "failure_mode": "difficulty.reliability",
    "fit_placement": "difficulty.placement",
    "inclusion_probabilities": "difficulty.placement",
    "list_disputed": "difficulty.decisions",
    "measure_reliability": "difficulty.reliability",
    "metrics_from_sums": "difficulty.reliability",
    "modal_verdicts": "difficulty.reliability",
    "own_ranking_to_gold": "difficulty.human_votes",
    "pair_statistics": "difficulty.reliability",
    "pair_verdicts": "difficulty.reliability",
    "plot_buckets": "difficulty.plotting",
    "profile_difficulty": "difficulty.gaps",
    "rates_from_summary": "difficulty.reliability",
    "study_group": "difficulty.study",
    "study_groups": "difficulty.study",
    "triads_of_tally": "difficulty.triads",
    "votes_to_gold": "difficulty.human_votes",
}

__all__ = [*_EXPORTS]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
