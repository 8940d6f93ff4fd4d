"""Simulated judges with exact reliability and free placement of their errors."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Public name -> module that defines it, imported when first asked for.
_EXPORTS: dict[str, str] = {}

__all__ = [*_EXPORTS]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
