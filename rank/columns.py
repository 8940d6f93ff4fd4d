"""Columns of an input table as clean arrays, and the words that errors use for rows and values."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar

import numpy as np
import pandas as pd

from rank.exceptions import InputError

#: What tells contexts apart.
CONTEXT_COLUMNS = ["dataset", "context"]

#: Names of result fields, which no grouping column may carry: it would stand in one row with them.
RESERVED_NAMES = frozenset(
    {
        "accuracy",
        "accuracy_verdicts",
        "alpha",
        "bucket",
        "buckets",
        "buckets_notes",
        "calibrated_reference",
        "calls",
        "capability_gap",
        "ceiling",
        "close_minus",
        "close_minus_far",
        "component",
        "converged",
        "counts",
        "cross_check",
        "cyclic_share",
        "decisive_accuracy",
        "estimate",
        "expected_accuracy",
        "expected_flips",
        "expected_flips_sd",
        "expected_swap_consistency",
        "failure_mode",
        "first_slot_rate",
        "fisher_information",
        "flip_cost",
        "flip_q_hat",
        "flip_rate",
        "flip_rate_gold",
        "gap",
        "gap_edges",
        "gap_edges_basis",
        "gold",
        "gold_coverage",
        "gradient_norm",
        "groups",
        "inconsistent_pair_primacy",
        "inequality_share",
        "inequality_valid_share",
        "item",
        "items",
        "joint_minus_closed",
        "kendall",
        "kind",
        "lever",
        "log_likelihood",
        "method",
        "metric",
        "mixed_share",
        "n",
        "nontransitive_share",
        "notes",
        "observed_flips",
        "observed_minus_expected_accuracy",
        "observed_minus_expected_swap_consistency",
        "order_effect",
        "overall",
        "p",
        "p_value",
        "penalised",
        "prior_sd",
        "q_hat",
        "rank",
        "ranks",
        "reason",
        "remedy",
        "repeat_agreement",
        "repeatability",
        "repeatability_gold",
        "rows",
        "section",
        "settings",
        "share_of_flips",
        "share_of_wrong",
        "source",
        "spearman",
        "spearman_items",
        "spearman_level",
        "spearman_sd",
        "stated",
        "std_error",
        "std_errors",
        "std_errors_note",
        "strength",
        "swap_consistency",
        "tie_parameter",
        "tie_parameter_std_error",
        "ties",
        "transitive_share",
        "triads",
        "triads_reason",
        "trustworthy_rate",
        "trustworthy_rate_joint",
        "trustworthy_rate_upper",
        "undecided_accuracy",
        "n_complete",
        "n_components",
        "n_conditions",
        "n_conditions_repeated",
        "n_contexts_left_out",
        "n_contexts_ranked",
        "n_cyclic",
        "n_flips",
        "n_incomplete",
        "n_inequality",
        "n_inequality_assessed",
        "n_inequality_valid",
        "n_invalid",
        "n_items_ranked",
        "n_iterations",
        "n_losses",
        "n_mixed",
        "n_pairs",
        "n_pairs_gold",
        "n_pairs_invalid",
        "n_pairs_one_order",
        "n_pairs_swapped",
        "n_ties",
        "n_transitive",
        "n_undefined_resamples",
        "n_verdicts",
        "n_wins",
        "n_wrong_decisive",
    }
)


def is_reserved(name: str) -> bool:
    """Whether a column name is that of a result field (``..._low``, ``..._close`` and the like included).

    Examples
    --------
    >>> is_reserved("accuracy"), is_reserved("spearman_low"), is_reserved("n_pairs"), is_reserved("n_shots")
    (True, True, True, False)
    """
    while (shorter := re.sub("_(low|high|close|far|reason)$", "", name)) != name:
        if name in RESERVED_NAMES:
            return True
        name = shorter
    return name in RESERVED_NAMES


def id_strings(
    column: pd.Series, name: str, *, allow_empty: bool = False, decimals: str = "refuse"
) -> pd.Series:
    """Return ids as strings kept as written; refuse empty ones and numbers that have lost their spelling.

    Parameters
    ----------
    column : Series
        Of any dtype. Missing values are empty strings; whole floats (what integers with gaps become in pandas)
        lose their decimal point, so that they match the same ids read from a file.
    name : str
        Column name for errors.
    allow_empty : bool
        Whether empty cells are accepted.
    decimals : {"refuse", "keep"}
        Floats that are not whole, or too large to be exact: no ids (1.1 and 1.10 would be the same), but good
        labels (a temperature).
    """
    values = column.astype(object).to_numpy(dtype=object)
    missing = np.asarray(pd.isna(values), dtype=bool)
    text = np.empty(len(values), dtype=object)
    text[:] = ["" if gone else _text(value) for value, gone in zip(values, missing, strict=True)]
    if decimals == "refuse":
        inexact = np.array([isinstance(value, _FLOATS) for value in values], dtype=bool) & ~missing
        inexact[inexact] = [not _is_exact(value) for value in values[inexact]]
        if inexact.any():
            raise InputError(
                f"column {name} {describe_rows(inexact)}: ids must be text or whole numbers that floats hold exactly, "
                f"found {values[inexact][0]}; store the column as text"
            )
    strings = pd.Series(text, dtype=object)
    if not allow_empty:
        empty = strings.str.strip() == ""
        if empty.any():
            raise InputError(f"column {name} {describe_rows(empty)}: empty id; every row needs one")
    return strings


_FLOATS = (float, np.floating)


def _is_exact(value: float | np.floating) -> bool:
    """Whether a float is a whole number below 2**53, so that no other integer rounds to it."""
    return abs(float(value)) < 2**53 and float(value).is_integer()


def _text(value: object) -> str:
    if isinstance(value, _FLOATS) and _is_exact(value):
        return str(int(value))
    return str(value)


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
        comma = " (write decimals with a point)" if any("," in text for text in found) else ""
        raise InputError(
            f"column {name} {describe_rows(bad)}: {', '.join(found)} is not a finite number{comma}"
        )
    return values


_rows_before: ContextVar[int] = ContextVar("rows_before", default=0)


@contextlib.contextmanager
def counting_rows_after(rows_before: int) -> Iterator[None]:
    """Let `describe_rows` count from the start of a file while one batch of it is checked."""
    token = _rows_before.set(rows_before)
    try:
        yield
    finally:
        _rows_before.reset(token)


def describe_rows(mask: Sequence[bool] | np.ndarray | pd.Series) -> str:
    """Name the rows of a mask for an error: "row 3" or "rows 3, 7, 9 and 12 more"; 1 = first data row."""
    return name_rows(np.flatnonzero(np.asarray(mask)) + 1 + _rows_before.get())


def name_rows(numbers: Sequence[int] | np.ndarray) -> str:
    """Name rows by their numbers."""
    if len(numbers) == 1:
        return f"row {numbers[0]}"
    shown = ", ".join(map(str, numbers[:4]))
    return f"rows {shown}" + (f" and {len(numbers) - 4} more" if len(numbers) > 4 else "")


def list_some(values: Iterable[object], most: int = 6) -> str:
    """List up to `most` values for a sentence, with the number left out."""
    texts = [str(value) for value in values]
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")
