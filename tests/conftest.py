"""Fixtures that several test modules share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples on every machine, and no limit on time: several test processes share the cores.
settings.register_profile("rankgap", deadline=None, derandomize=True, max_examples=60, database=None)
# For hunting: pytest --hypothesis-profile=hunt
settings.register_profile("hunt", deadline=None, max_examples=1000)
settings.load_profile("rankgap")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder with the real verdict tables, beside the repository."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if folder.is_dir():
        return folder
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail("CI=true, but there is no ../shared/data beside the repository: check it out there")
    pytest.skip("needs ../shared/data beside the repository")


@pytest.fixture(autouse=True)
def _same_width_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are as wide as in a file, whatever terminal or test runner is around."""
    monkeypatch.setenv("COLUMNS", "120")
