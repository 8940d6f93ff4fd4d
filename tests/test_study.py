"""One group measured whole: fields, reasons, seeds."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from difficulty.reliability import COUNTS, METRICS
from difficulty.study import UNDEFINED_REASONS, GroupStudy, StudyOptions, study_group, study_groups
from rank.command import to_jsonable
from rank.exceptions import InputError
from rank.gold import check_gold
from tests.strategies import mirrored, relabelled, rows_of, studies, tally_of

QUICK = StudyOptions(n_resamples=30)


def study(frame: pd.DataFrame, gold: pd.DataFrame | None = None, options: StudyOptions = QUICK) -> GroupStudy:
    return study_group(tally_of(frame), None if gold is None else check_gold(gold), options, rng=1)


def flat(value: object, prefix: str = "") -> dict[str, object]:
    if isinstance(value, dict):
        return {k: v for key, part in value.items() for k, v in flat(part, f"{prefix}{key}.").items()}
    if isinstance(value, list):
        return {k: v for index, part in enumerate(value) for k, v in flat(part, f"{prefix}{index}.").items()}
    return {prefix: math.nan if value is None else value}


@given(studies())
def test_every_study_has_every_field_and_the_overall_row_equals_the_metrics(
    case: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    frame, gold_frame = case
    tally, gold = tally_of(frame), check_gold(gold_frame)
    if (gold.align(tally).winner == -1).all():
        with pytest.raises(InputError, match="covers none"):
            next(study_groups(tally, gold, QUICK, rng=1))
        return
    for one in study_groups(tally, gold, QUICK, rng=1):
        overall = one.overall()
        assert {*COUNTS, *METRICS, "failure_mode", "spearman"} <= set(overall)
        assert overall["accuracy"] == pytest.approx(one.value("accuracy"), nan_ok=True)
        fields = one.to_dict()
        assert {"overall", "buckets", "close_minus_far", "triads", "spearman"} <= set(fields)
        assert (len(fields["buckets"]) == 0) == bool(fields["buckets_reason"])
        row = one.flat()
        assert {"accuracy_close", "swap_consistency_far", "cyclic_share", *one.labels} <= set(row)
        assert (one.mode is None) == (
            math.isnan(overall["repeatability"]) or math.isnan(overall["flip_rate"])
        )
        if gold.kind == "pairs":
            assert one.recovery is None
        elif math.isnan(overall["spearman"]):
            assert overall["spearman_reason"]


@given(studies(max_judges=1), st.randoms(use_true_random=False))
def test_case_28_a_whole_study_survives_renaming_and_shuffling(
    case: tuple[pd.DataFrame, pd.DataFrame], random
) -> None:
    frame, gold = case
    items = sorted({*frame["item_first"], *frame["item_second"]})
    names = dict(zip(items, random.sample(["q", "r", "s", "t", "u"], len(items)), strict=True))
    options = StudyOptions(n_resamples=20, alpha=0.3)
    one = flat(to_jsonable(study(frame, gold, options).to_dict()))
    shuffled = relabelled(frame, names).sample(frac=1, random_state=4)
    two = flat(to_jsonable(study(shuffled, relabelled(gold, names), options).to_dict()))
    three = flat(to_jsonable(study(mirrored(frame), gold, options).to_dict()))
    assert one.keys() == two.keys() == three.keys()
    for key, value in one.items():
        if isinstance(value, str):
            continue
        assert two[key] == pytest.approx(value, abs=1e-9, nan_ok=True), key
        if "primacy" not in key and "first_slot" not in key:
            assert three[key] == pytest.approx(value, abs=1e-9, nan_ok=True), key


def test_a_group_is_measured_alike_whatever_else_is_in_the_file() -> None:
    x = rows_of("a>b x2, b>a, a>c x2, c<a, b=c, c>b", judge="x")
    y = rows_of("a<b x2, b>a x2, a=c, c=a, b<c, c>b", judge="y")
    gold = check_gold(pd.DataFrame({"item": list("abc"), "score": [3, 2, 1]}))
    together = {s.name: s.to_dict() for s in study_groups(tally_of(pd.concat([x, y])), gold, QUICK, rng=9)}
    (alone,) = study_groups(tally_of(y), gold, QUICK, rng=9)
    assert flat(to_jsonable(together["y"])) == pytest.approx(flat(to_jsonable(alone.to_dict())), nan_ok=True)


def test_case_24_the_smallest_studies_report_what_exists_and_a_reason_for_the_rest() -> None:
    gold = pd.DataFrame({"item": list("abc"), "score": [3, 2, 1]})
    for text in ("a>b", "a>b, b<a", "a>b, b>a, b>c", "a?b", "a=b, b=a"):
        one = study(rows_of(text), gold)
        overall = one.overall()
        assert overall["n_pairs"] >= 1
        assert one.profile.reason or one.profile.buckets is not None
        assert one.triads.reason
        assert overall["spearman_reason"] or not math.isnan(overall["spearman"])
    assert one.bucket("far")["n_pairs"] == 0
    assert math.isnan(one.bucket("far")["flip_rate"])


def test_case_26_a_judge_of_one_slot_is_confidently_biased_with_its_remedy() -> None:
    frame = pd.concat(rows_of("a>b, b>a, a>c, c>a, b>c, c>b").assign(run=r) for r in range(3))
    overall = study(frame, pd.DataFrame({"item": list("abc"), "score": [3, 2, 1]})).overall()
    assert overall["failure_mode"] == "confidently biased"
    assert "dangerous" in overall["remedy"]
    assert overall["trustworthy_rate"] == 0
    assert overall["spearman_reason"] == "the judge ranks all items equally"


def test_a_group_without_gold_or_without_a_verdict_does_not_stop_the_others() -> None:
    frame = pd.concat(
        [
            rows_of("a>b, b<a", judge="covered"),
            rows_of("x>y, y<x", judge="other"),
            rows_of("a?b", judge="silent"),
        ]
    )
    gold = check_gold(pd.DataFrame({"item": ["a", "b"], "score": [1, 0]}))
    by_name = {s.name: s.overall() for s in study_groups(tally_of(frame), gold, QUICK, rng=1)}
    assert by_name["covered"]["accuracy"] == 1
    assert by_name["other"]["gold_coverage"] == 0
    assert math.isnan(by_name["other"]["accuracy"])
    assert "gold" in by_name["other"]["spearman_reason"]
    assert by_name["silent"]["n_pairs_invalid"] == 1
    assert "valid" in by_name["silent"]["spearman_reason"]


def test_options_reach_the_parts_they_are_for() -> None:
    frame = rows_of("a>b x2, b=a x2, a=c x2, c=a x2, b>c x2, c?b")
    gold = pd.DataFrame({"item": list("abc"), "score": [5, 2, 1]})
    plain = study(frame, gold)
    credited = study(frame, gold, StudyOptions(n_resamples=0, tie_credit=1.0))
    assert credited.value("accuracy") > plain.value("accuracy")
    assert math.isnan(credited.overall()["accuracy_low"])
    equal = study(frame, gold, StudyOptions(n_resamples=0, invalid="equal"))
    assert equal.overall()["n_pairs_swapped"] == plain.overall()["n_pairs_swapped"] + 1
    strict = study(frame, gold, StudyOptions(n_resamples=0, low_flip_rate=0.9))
    assert (plain.mode, strict.mode) == ("confidently biased", "trustworthy")
    with pytest.raises(InputError, match="high repeatability must lie in"):
        study(frame, gold, StudyOptions(n_resamples=0, high_repeatability=1.1))
    edges = study(frame, gold, StudyOptions(n_resamples=0, edges=[2.0], gold_scale="strengths"))
    assert edges.profile.buckets.basis == "fixed"
    assert edges.to_dict()["calibrated_reference"]["scale"] == 1


def test_reasons_are_given_for_metrics_that_exist() -> None:
    assert set(UNDEFINED_REASONS) <= {*METRICS, "spearman"}
    assert np.isnan(study(rows_of("a>b")).value("flip_rate"))
