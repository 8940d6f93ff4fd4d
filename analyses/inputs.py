"""Input of the studies that take verdicts or a summary table: which of the two it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from rank.exceptions import InputError
from rank.readers import read_table
from rank.streaming import is_large, read_tally
from rank.tally import Tally, tally_verdicts
from rank.verdicts import check_verdicts


def read_verdicts_or_summary(
    paths: Sequence[str],
    summary_columns: Sequence[str],
    *,
    batch_rows: int | None = None,
    n_jobs: int = 1,
    dask: Any = None,
    **options: Any,
) -> Tally | pd.DataFrame:
    """Read files and tell verdicts from a summary table.

    Parameters
    ----------
    paths : sequence of str
        As for `rank.readers.read_verdicts`; a summary is a single file.
    summary_columns : sequence of str
        A table with at least one of these and no ``item_first`` is a summary.
    batch_rows, n_jobs, dask
        For `rank.streaming.read_tally`; what is large or a folder is not looked at as a summary.
    **options
        For `rank.verdicts.check_verdicts`.

    Returns
    -------
    Tally or DataFrame
        The counted verdicts, or the summary as text.

    Raises
    ------
    InputError
        From the reader or the gate; or several files that are summaries.
    """
    if any(is_large(path) for path in paths):
        return read_tally(paths, batch_rows=batch_rows, n_jobs=n_jobs, dask=dask, **options)
    frame = read_table(paths[0])
    if "item_first" not in frame.columns and set(summary_columns) & set(frame.columns):
        if len(paths) > 1:
            raise InputError(
                f"{paths[0]} is a summary table; give one summary file, found {len(paths)} files"
            )
        return frame
    if len(paths) > 1:
        return read_tally(paths, batch_rows=batch_rows, n_jobs=n_jobs, dask=dask, **options)
    name = "standard input" if paths[0] == "-" else paths[0]
    try:
        return tally_verdicts(check_verdicts(frame, **options))
    except InputError as error:
        if "item_first" in frame.columns:
            raise InputError(f"{name}: {error}") from error
        raise InputError(
            f"{name}: {error}; a summary table would need the columns {', '.join(summary_columns)}"
        ) from error
