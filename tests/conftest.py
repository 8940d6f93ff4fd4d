"""Fixtures that several test modules share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pandas as pd
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


@pytest.fixture
def run_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Call a command's main in a folder of its own; DataFrames among the arguments become files.

    Returns the exit code and what was written to standard output and standard error.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")

    def call(main: Callable[[list[str]], int], *arguments: object) -> tuple[int, str, str]:
        argv = []
        for index, argument in enumerate(arguments):
            if isinstance(argument, pd.DataFrame):
                argument.to_csv(tmp_path / f"table{index}.csv", index=False)
                argument = f"table{index}.csv"
            argv.append(str(argument))
        code = main(argv)
        out, err = capsys.readouterr()
        return code, out, err

    return call
