"""Simulated judges with exact reliability and free placement of their errors."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Public name -> module that defines it, imported when first asked for.
_EXPORTS: dict[str, str] = {
    "Design": "simulate.planning",
    "FittedJudge": "simulate.fitted",
    "JudgeSettings": "simulate.judges",
    "Plan": "simulate.planning",
    "Population": "simulate.population",
    "SimulatedJudge": "simulate.judges",
    "Sweep": "simulate.sweep",
    "Twins": "simulate.twins",
    "draw_population": "simulate.population",
    "fit_judge": "simulate.fitted",
    "make_twins": "simulate.twins",
    "plan_contexts": "simulate.context_planning",
    "plan_designs": "simulate.planning",
    "prepare_judge": "simulate.judges",
    "simulate_judge": "simulate.judges",
}

__all__ = [*_EXPORTS]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
