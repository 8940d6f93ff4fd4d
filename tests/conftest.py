"""Fixtures that several test modules share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder with the real verdict tables, beside the repository."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if folder.is_dir():
        return folder
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail("CI=true, but there is no ../shared/data beside the repository: check it out there")
    pytest.skip("needs ../shared/data beside the repository")
