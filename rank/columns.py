"""Columns of an input table as clean arrays, and the words that errors use for rows and values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from rank.exceptions import InputError


def id_strings(column: pd.Series, name: str, *, allow_empty: bool = False) -> pd.Series:
    """Return ids as strings kept as written; refuse empty ones and numbers that are not whole."""
    if pd.api.types.is_bool_dtype(column.dtype):
        column = column.astype(str)
    if pd.api.types.is_float_dtype(column.dtype):
        values = column.to_numpy(dtype=float, na_value=np.nan)
        whole = np.isnan(values) | (np.floor(values) == values)
        if not whole.all():
            raise InputError(
                f"column {name} {describe_rows(~whole)}: ids must be text or whole numbers, found {values[~whole][0]}"
            )
        text = pd.Series([("" if np.isnan(v) else str(int(v))) for v in values], dtype=object)
    elif isinstance(column.dtype, pd.CategoricalDtype):
        text = column.astype(object).reset_index(drop=True)
    else:
        text = column.reset_index(drop=True)
    missing = text.isna()
    text = text.where(~missing, "").astype(str).astype(object)
    if not allow_empty:
        empty = text.str.strip() == ""
        if empty.any():
            raise InputError(f"column {name} {describe_rows(empty)}: empty id; every row needs one")
    return text


def finite_numbers(column: pd.Series, name: str, *, allow_empty: bool) -> np.ndarray:
    """Return a column as finite floats; empty cells are NaN where allowed; text and inf are refused."""
    text = column.reset_index(drop=True)
    empty = text.isna() | (text.astype(str).str.strip() == "")
    values = pd.to_numeric(text.where(~empty, None), errors="coerce").to_numpy(dtype=float)
    bad = ~empty.to_numpy() & ~np.isfinite(values)
    if not allow_empty:
        bad |= empty.to_numpy()
    if bad.any():
        found = [repr(str(value)) for value in text[bad].unique()[:3]]
        raise InputError(f"column {name} {describe_rows(bad)}: {', '.join(found)} is not a finite number")
    return values


def describe_rows(mask: Sequence[bool] | np.ndarray | pd.Series) -> str:
    """Name the rows of a mask for an error: "row 3" or "rows 3, 7, 9 and 12 more"; 1 = first data row."""
    where = np.flatnonzero(np.asarray(mask)) + 1
    if len(where) == 1:
        return f"row {where[0]}"
    shown = ", ".join(map(str, where[:4]))
    return f"rows {shown}" + (f" and {len(where) - 4} more" if len(where) > 4 else "")


def list_some(values: Iterable[object], most: int = 6) -> str:
    """List up to `most` values for a sentence, with the number left out."""
    texts = [str(value) for value in values]
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")
