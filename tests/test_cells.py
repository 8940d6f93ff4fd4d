"""Cells of C, phi and A: published table, unit detection, dispersion, eta squared, axis summaries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyses.cells import (
    Cells,
    cells_from_metrics,
    cells_from_summary,
    format_dispersion,
    summarise_axis,
    variance_shares,
)
from difficulty.reliability import measure_reliability
from rank.exceptions import InputError
from rank.gold import check_gold
from rank.readers import read_table
from rank.tally import tally_verdicts
from rank.verdicts import check_verdicts

#: The paper's eta squared of T in percent. They do not follow exactly from the rounded table; see the test.
PUBLISHED_ETA = {
    "judge": 27.0, "format": 0.7, "dataset": 26.2, "judge x format": 8.3, "judge x dataset": 28.1,
    "format x dataset": 1.3, "residual": 8.4,
}  # fmt: skip
#: What the printed table gives, exactly the same with statsmodels.
OURS_ETA = {
    "judge": 27.3, "format": 0.8, "dataset": 26.0, "judge x format": 10.3, "judge x dataset": 25.3,
    "format x dataset": 1.6, "residual": 8.7,
}  # fmt: skip


def summary(
    *rows: tuple[object, ...], columns: str = "judge repeatability flip_rate accuracy"
) -> pd.DataFrame:
    return pd.DataFrame([tuple(map(str, row)) for row in rows], columns=columns.split())


@pytest.fixture(scope="module")
def published(shared_data: Path) -> Cells:
    return cells_from_summary(read_table(shared_data / "published" / "verdicts_not_equal_table1.csv"))


# --- the published table ------------------------------------------------------------------------------------


def test_t_of_all_120_published_cells_is_within_their_rounding(published: Cells) -> None:
    table = published.table
    assert (len(table), published.unit, published.labels) == (120, "percent", ("judge", "format", "dataset"))
    off = 100 * (table["trustworthy_rate"] - table["trustworthy_rate_stated"]).abs()
    assert off.notna().all()
    assert off.max() <= 0.05 + 1e-9


def test_published_dispersion_matches_the_range_of_the_stated_t(published: Cells) -> None:
    ours = format_dispersion(published).set_index(["judge", "dataset"])
    stated = published.table.groupby(["judge", "dataset"])["trustworthy_rate_stated"]
    assert len(ours) == 24
    assert (ours["n_formats"] == 5).all()
    np.testing.assert_allclose(ours["dispersion"], (stated.max() - stated.min()).loc[ours.index], atol=0.0011)
    widest = ours.loc[("Gemini-2.5-Pro", "JudgeBench")]
    assert widest["dispersion"] == ours["dispersion"].max()
    assert (widest["format_min"], widest["format_max"]) == ("Direct", "VF-JSON")
    assert widest["dispersion"] == pytest.approx(0.4855, abs=5e-4)


def test_published_eta_squared_is_near_but_does_not_follow_from_the_rounded_table(published: Cells) -> None:
    shares = variance_shares(published, ["judge", "format", "dataset"])
    ours = dict(zip(shares.term, 100 * shares.eta_squared, strict=True))
    assert shares.balanced
    assert {name: round(value, 1) for name, value in ours.items()} == pytest.approx(OURS_ETA, abs=0.051)
    # Neither set is claimed to be wrong: rounding of the table cannot move a share by this much.
    assert max(abs(ours[name] - value) for name, value in PUBLISHED_ETA.items()) < 3
    assert abs(ours["judge x dataset"] - PUBLISHED_ETA["judge x dataset"]) > 2


@pytest.mark.parametrize("metric", ["trustworthy_rate", "accuracy", "flip_rate"])
def test_eta_squared_of_the_balanced_table_equals_statsmodels_anova(published: Cells, metric: str) -> None:
    check_against_statsmodels(published, ["judge", "format", "dataset"], metric)


def test_eta_squared_of_an_unbalanced_table_equals_statsmodels_type_one(published: Cells) -> None:
    keep = np.random.default_rng(3).permutation(120)[:83]
    part = Cells(
        published.table.iloc[keep].reset_index(drop=True), published.labels, "summary", "percent", 0.0
    )
    shares = check_against_statsmodels(part, ["dataset", "judge", "format"], "trustworthy_rate")
    assert not shares.balanced
    assert any("type I" in note for note in shares.notes)


def check_against_statsmodels(cells: Cells, factors: list[str], metric: str):  # type: ignore[no-untyped-def]
    from statsmodels.formula.api import ols
    from statsmodels.stats.anova import anova_lm

    shares = variance_shares(cells, factors, metric=metric)
    a, b, c = factors
    formula = f"{metric} ~ {a} + {b} + {c} + {a}:{b} + {a}:{c} + {b}:{c}"
    witness = anova_lm(ols(formula, cells.table).fit(), typ=1)
    np.testing.assert_allclose(shares.sum_sq, witness["sum_sq"], rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(shares.df, witness["df"].round().astype(int))
    assert shares.eta_squared.sum() == pytest.approx(1, abs=1e-12)
    return shares


# --- units and impossible rows ------------------------------------------------------------------------------


def test_percent_and_shares_give_the_same_cells() -> None:
    percent = cells_from_summary(summary(("a", 89.3, 5.1, 64.8), ("b", 100, 0, 90.0)))
    shares = cells_from_summary(summary(("a", 0.893, 0.051, 0.648), ("b", 1, 0, 0.900)))
    assert (percent.unit, shares.unit) == ("percent", "fraction")
    columns = ["repeatability", "trustworthy_rate", "ceiling", "capability_gap", "decisive_accuracy"]
    np.testing.assert_allclose(percent.table[columns], shares.table[columns], atol=1e-14)
    t = percent.table["trustworthy_rate"]
    assert t.tolist() == pytest.approx([0.893 * (0.648 - 0.0255), 0.9])


@pytest.mark.parametrize(
    "rows",
    [
        (("a", 89.3, 5.1, 64.8), ("bad", 0.9, 0.05, 0.7), ("c", 90.0, 8.0, 70.0)),
        (("a", 89.3, 5.1, 64.8), ("bad", 0.9, 5.1, 64.8)),
        (("a", 89.3, 5.1, 64.8), ("bad", 90.0, 5.1, 0.648)),
        (("a", 89.3, 5.1, 64.8), ("bad", 90.0, 0.051, 64.8)),
        (("a", 0.9, 0.1, 0.8), ("bad", 90.0, 10.0, 80.0), ("c", 0.8, 0.2, 0.7)),
    ],
)
def test_mixed_units_are_refused_naming_the_row(rows: tuple[tuple[object, ...], ...]) -> None:
    with pytest.raises(InputError, match=r"row 2 \(bad\).*one unit"):
        cells_from_summary(summary(*rows))


def test_a_flip_rate_below_one_percent_is_no_mixture() -> None:
    cells = cells_from_summary(summary(("a", 98.3, 0.6, 84.8), ("b", 90.0, 0, 80.0)))
    assert cells.unit == "percent"
    assert cells.table["flip_rate"].tolist() == pytest.approx([0.006, 0])


def test_stated_units_settle_what_looks_mixed() -> None:
    cells = cells_from_summary(summary(("a", 0.9, 0.1, 0.8)), units="percent")
    assert cells.table["repeatability"][0] == pytest.approx(0.009)


@pytest.mark.parametrize("row", [("x", 0.40, 0.90, 0.40), ("x", 0.9, 0.4, 0.81), ("x", 90, 40, 81)])
def test_impossible_triples_are_refused_with_the_band(row: tuple[object, ...]) -> None:
    with pytest.raises(InputError, match=r"row 1 \(x\).*phi/2 <= A <= 1 - phi/2"):
        cells_from_summary(summary(row))


def test_rounding_of_the_printed_values_is_allowed_for() -> None:
    # A = 1 - phi/2 exactly, then printed with one decimal: 66.65 became 66.7, 66.7 stayed.
    assert len(cells_from_summary(summary(("x", 90.0, 66.7, 66.7))).table) == 1


def test_rows_at_the_corners() -> None:
    table = cells_from_summary(summary(("always first", 1, 1, 0.5), ("perfect", 1, 0, 1))).table
    assert table["trustworthy_rate"].tolist() == [0, 1]
    assert table["failure_mode"].tolist() == ["confidently biased", "trustworthy"]
    assert np.isnan(table["decisive_accuracy"][0])


def test_empty_repeatability_leaves_t_undefined_but_not_its_bound() -> None:
    cells = cells_from_summary(summary(("a", "", 0.2, 0.7)))
    assert np.isnan(cells.table["trustworthy_rate"][0])
    assert cells.table["trustworthy_rate_upper"][0] == pytest.approx(0.6)
    assert cells.default_metric == "trustworthy_rate_upper"


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (summary(("a", 0.9, 0.1), columns="judge repeatability flip_rate"), "lacks accuracy"),
        (summary(("a", 0.9, 0.1, "high")), "accuracy row 1"),
        (summary(("a", 0.9, 0.1, 0.8)).iloc[:0], "no rows"),
        (summary(("a", 0.9, -0.1, 0.8)), "not a share"),
    ],
)
def test_bad_summary_tables_are_refused(frame: pd.DataFrame, words: str) -> None:
    with pytest.raises(InputError, match=words):
        cells_from_summary(frame)


# --- properties ---------------------------------------------------------------------------------------------


@st.composite
def random_cells(draw: st.DrawFn) -> Cells:
    sizes = [draw(st.integers(2, 3)) for _ in range(3)]
    grid = [
        (f"j{a}", f"f{b}", f"d{c}") for a in range(sizes[0]) for b in range(sizes[1]) for c in range(sizes[2])
    ]
    drop = draw(st.sets(st.sampled_from(grid), max_size=len(grid) // 3))
    rows = []
    for key in grid:
        if key not in drop:
            phi = draw(st.integers(0, 100)) / 100
            a = phi / 2 + draw(st.integers(0, 100)) / 100 * (1 - phi)
            rows.append((*key, draw(st.integers(0, 100)) / 100, phi, a))
    frame = pd.DataFrame(
        rows, columns=["judge", "format", "dataset", "repeatability", "flip_rate", "accuracy"]
    )
    return cells_from_summary(frame, units="fraction")


@settings(max_examples=30)
@given(random_cells(), st.randoms(use_true_random=False))
def test_shares_sum_to_one_and_row_order_changes_nothing(cells: Cells, random) -> None:  # type: ignore[no-untyped-def]
    factors = [name for name in ("judge", "format", "dataset") if cells.table[name].nunique() > 1]
    order = list(range(len(cells.table)))
    random.shuffle(order)
    shuffled = Cells(cells.table.iloc[order].reset_index(drop=True), cells.labels, "summary", "fraction", 0.0)
    pd.testing.assert_frame_equal(format_dispersion(cells), format_dispersion(shuffled))
    if not factors:
        return
    shares, again = (variance_shares(part, factors) for part in (cells, shuffled))
    if np.isnan(shares.eta_squared).any():
        assert cells.table["trustworthy_rate"].nunique() == 1
        return
    assert (shares.eta_squared >= 0).all()
    assert shares.eta_squared.sum() == pytest.approx(1, abs=1e-9)
    np.testing.assert_allclose(shares.eta_squared, again.eta_squared, atol=1e-9)


def test_a_planted_effect_gets_all_of_the_variation() -> None:
    rows = [(j, f, 1.0, 0.0, a) for j, a in (("x", 0.5), ("y", 0.9)) for f in "pqr"]
    frame = pd.DataFrame(rows, columns=["judge", "format", "repeatability", "flip_rate", "accuracy"])
    shares = variance_shares(cells_from_summary(frame, units="fraction"), ["judge", "format"])
    assert dict(zip(shares.term, shares.eta_squared.round(12), strict=True)) == {
        "judge": 1.0, "format": 0.0, "judge x format": 0.0, "residual": 0.0
    }  # fmt: skip
    assert any("one and the same" in note for note in shares.notes)


def test_constant_metric_has_no_shares() -> None:
    frame = summary(("x", 1, 0, 0.7), ("y", 1, 0, 0.7))
    shares = variance_shares(cells_from_summary(frame), ["judge"])
    assert np.isnan(shares.eta_squared).all()
    assert any("nothing to explain" in note for note in shares.notes)


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        ([], "choose from"),
        (["color"], "color"),
        (["judge", "judge"], "named twice"),
        (["constant"], "single value"),
    ],
)
def test_bad_factors_are_refused(factors: list[str], words: str) -> None:
    frame = summary(("x", 1, 0, 0.7), ("y", 1, 0, 0.8)).assign(constant="c")
    with pytest.raises(InputError, match=words):
        variance_shares(cells_from_summary(frame), factors)


# --- dispersion and axis ------------------------------------------------------------------------------------


def test_dispersion_names_all_formats_at_an_end_and_leaves_single_formats_undefined() -> None:
    rows = [("x", "p", 0.9), ("x", "q", 0.9), ("x", "r", 0.6), ("y", "p", 0.5)]
    frame = pd.DataFrame(rows, columns=["judge", "format", "accuracy"]).assign(repeatability=1, flip_rate=0)
    table = format_dispersion(cells_from_summary(frame, units="fraction"))
    assert table["dispersion"][0] == pytest.approx(0.3)
    assert (table["format_min"][0], table["format_max"][0]) == ("r", "p = q")
    assert table["n_formats"].tolist() == [3, 1]
    assert np.isnan(table["dispersion"][1])


def test_any_column_can_play_the_format() -> None:
    rows = [("x", "0", 0.9), ("x", "1", 0.6)]
    frame = pd.DataFrame(rows, columns=["judge", "temperature", "accuracy"]).assign(
        repeatability=1, flip_rate=0
    )
    table = format_dispersion(cells_from_summary(frame, units="fraction"), role="temperature")
    assert (table["format_min"][0], table["format_max"][0]) == ("1", "0")
    with pytest.raises(InputError, match="no column 'format'"):
        format_dispersion(cells_from_summary(frame, units="fraction"))


def test_repeated_cells_are_refused() -> None:
    cells = cells_from_summary(summary(("x", 1, 0, 0.7), ("x", 1, 0, 0.8)))
    with pytest.raises(InputError, match="more than one cell for x"):
        format_dispersion(cells, role="judge")


def test_axis_parts_add_up_and_name_the_factor_that_moved() -> None:
    rows = [
        ("m", "2", 0.95, 0.10, 0.80), ("m", "10", 0.60, 0.10, 0.80),
        ("n", "2", 0.90, 0.20, 0.70), ("n", "10", 0.70, 0.25, 0.70), ("only", "2", 1.0, 0.0, 0.9),
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["judge", "temperature", "repeatability", "flip_rate", "accuracy"])
    axis = summarise_axis(cells_from_summary(frame, units="fraction"), "temperature")
    assert axis.levels["temperature"].tolist() == ["2", "10"]  # By value, not by text.
    step = axis.steps.iloc[0]
    expected = np.mean([0.6 * 0.75 - 0.95 * 0.75, 0.7 * 0.575 - 0.9 * 0.6])
    assert step["trustworthy_rate_change"] == pytest.approx(expected)
    assert step["through_repeatability"] + step["through_decided_accuracy"] == pytest.approx(expected)
    assert (step["moved"], step["n_matched"]) == ("C", 2)
    assert any("left out of the change" in note for note in axis.notes)
    c = axis.levels.iloc[0]
    assert c["repeatability_mean"] == pytest.approx(0.95)
    assert (c["repeatability_q25"], c["repeatability_q75"]) == pytest.approx(
        tuple(np.quantile([0.95, 0.9, 1.0], [0.25, 0.75]))
    )


# --- from verdicts ------------------------------------------------------------------------------------------


def test_cells_from_verdicts_agree_with_the_closed_form_of_their_own_rates() -> None:
    rng = np.random.default_rng(5)
    rows = [
        (judge, *(("a", "b") if order else ("b", "a")), context, run, rng.choice(["first", "second"]))
        for judge in ("x", "y") for context in range(40) for order in (0, 1) for run in range(3)
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["judge", "item_first", "item_second", "context", "run", "verdict"])
    tally = tally_verdicts(check_verdicts(frame))
    gold = check_gold(pd.DataFrame({"item": ["a", "b"], "score": [1, 0]}))
    metrics = measure_reliability(tally, gold.align(tally), n_resamples=50, rng=1)
    measured = cells_from_metrics(tally, metrics)
    rates = measured.table[["judge", "repeatability", "flip_rate", "accuracy"]]
    recomputed = cells_from_summary(rates, units="fraction")
    for name in ("trustworthy_rate", "ceiling", "capability_gap", "decisive_accuracy"):
        np.testing.assert_allclose(measured.table[name], recomputed.table[name], atol=1e-12)
