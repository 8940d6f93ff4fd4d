"""LLMBar's own table of swap consistency and accuracy, from the verdicts its authors published."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from difficulty.reliability import STATISTICS, metrics_from_sums, pair_statistics
from rank.gold import Gold
from rank.readers import read_gold, read_table
from rank.resample import sum_by
from rank.tally import tally_verdicts
from rank.verdicts import check_verdicts

KEY = ["judge", "dataset", "format"]

#: Formats whose reported verdict is not one call: the second stage decides where the first contradicts itself.
STAGED = ("Swap", "Swap_CoT")


@pytest.fixture(scope="module")
def verdicts(shared_data: Path) -> pd.DataFrame:
    return read_table(shared_data / "llmbar.csv")


@pytest.fixture(scope="module")
def gold(shared_data: Path) -> Gold:
    return read_gold(shared_data / "llmbar_gold.csv")


@pytest.fixture(scope="module")
def reported(shared_data: Path) -> pd.DataFrame:
    return pd.read_csv(shared_data / "llmbar_author_reported.csv").set_index(KEY)


def measure(frame: pd.DataFrame, gold: Gold, invalid: str) -> pd.DataFrame:
    """Count equal pairs and accuracy per cell."""
    tally = tally_verdicts(check_verdicts(frame))
    stats = pair_statistics(tally.counts, gold.align(tally), invalid=invalid)
    sums = sum_by(tally.group, stats, tally.n_groups)
    count = {name: sums[:, STATISTICS.index(name)] for name in ("n_pairs_swapped", "n_flips")}
    return tally.groups.assign(
        n_equal=count["n_pairs_swapped"] - count["n_flips"],
        n_pairs=count["n_pairs_swapped"],
        accuracy=metrics_from_sums(sums)["accuracy"],
    ).set_index(KEY)


def reproduced(ours: pd.DataFrame, reported: pd.DataFrame) -> pd.Series:
    """Whether a reported row comes out exactly: both counts, and accuracy to rounding."""
    both = reported.join(ours.rename(columns=lambda name: f"our_{name}"))
    return (
        (both["n_equal"] == both["our_n_equal"])
        & (both["n_pairs"] == both["our_n_pairs"])
        & np.isclose(both["accuracy_pct"] / 100, both["our_accuracy"], rtol=0, atol=1e-12)
    )


def final_verdicts(frame: pd.DataFrame) -> pd.DataFrame:
    """Let the verdict of the second stage replace that of the first one, call by call."""
    stage = frame["format"].str.extract(r"^(?P<base>.*):stage(?P<stage>\d)$")
    staged = frame.assign(format=stage["base"], stage=stage["stage"])[stage["base"].notna()]
    call = ["judge", "dataset", "format", "context", "item_first", "item_second", "run"]
    return staged.sort_values("stage").drop_duplicates(call, keep="last").drop(columns="stage")


def test_exactly_the_rows_of_single_calls_reproduce_under_the_authors_policy(
    verdicts: pd.DataFrame, gold: Gold, reported: pd.DataFrame
) -> None:
    exact = reproduced(measure(verdicts, gold, "equal"), reported)
    formats = exact.index.get_level_values("format")
    assert set(formats[~exact]) == set(STAGED)
    assert exact[~formats.isin(STAGED)].all()
    assert (exact.sum(), (~exact).sum()) == (157, 40)
    assert exact[formats.str.startswith("Rating")].sum() == 35


def test_swap_formats_reproduce_once_their_second_stage_decides(
    verdicts: pd.DataFrame, gold: Gold, reported: pd.DataFrame
) -> None:
    ours = measure(final_verdicts(verdicts), gold, "equal")
    staged = reported[reported.index.get_level_values("format").isin(STAGED)]
    assert len(staged) == 40
    assert reproduced(ours, staged).all()


def test_second_stage_was_asked_exactly_where_the_first_contradicts_itself(verdicts: pd.DataFrame) -> None:
    pair = ["judge", "dataset", "format", "context"]
    first = verdicts[verdicts["format"].str.endswith(":stage0")]
    second = verdicts[verdicts["format"].str.endswith(":stage1")]
    assert second.groupby(pair).size().eq(2).all()
    # Contradiction: the same slot in both orders. Unparsed first stages (14 pairs) were not followed up.
    parsed = first.groupby(pair)["verdict"].agg(lambda v: (v != "").all())
    same_slot = first.groupby(pair)["verdict"].nunique().eq(1) & parsed
    asked = second.assign(format=second["format"].str.replace("stage1", "stage0")).groupby(pair).size().index
    assert set(same_slot.index[same_slot]) == set(asked)
    assert (~parsed).sum() == 14


def test_default_policy_differs_only_where_a_verdict_is_unparsed(
    verdicts: pd.DataFrame, gold: Gold, reported: pd.DataFrame
) -> None:
    exact = reproduced(measure(verdicts, gold, "exclude"), reported)
    unparsed = verdicts[verdicts["verdict"] == ""].groupby(KEY).size()
    single = ~exact.index.get_level_values("format").isin(STAGED)
    differing = exact.index[~exact & single]
    assert set(differing) <= set(unparsed.index)
    assert len(differing) > 0
