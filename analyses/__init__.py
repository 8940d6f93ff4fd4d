"""Studies over many groups of verdicts, and the command line that serves all packages."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Public name -> module that defines it, imported when first asked for.
_EXPORTS: dict[str, str] = {
    "Audit": "analyses.audit",
    "Cells": "analyses.cells",
    "Comparison": "analyses.comparison",
    "DStudy": "analyses.gstudy",
    "GStudy": "analyses.gstudy",
    "LeverStudy": "analyses.levers",
    "ProxyStudy": "analyses.proxies",
    "audit_groups": "analyses.audit",
    "cells_from_metrics": "analyses.cells",
    "cells_from_summary": "analyses.cells",
    "compare_groups": "analyses.comparison",
    "d_study": "analyses.gstudy",
    "format_dispersion": "analyses.cells",
    "g_study": "analyses.gstudy",
    "g_study_of_tally": "analyses.gstudy",
    "points_from_studies": "analyses.proxies",
    "points_from_summary": "analyses.proxies",
    "pull_levers": "analyses.levers",
    "study_proxies": "analyses.proxies",
    "summarise_axis": "analyses.cells",
    "variance_shares": "analyses.cells",
}

__all__ = [*_EXPORTS]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
