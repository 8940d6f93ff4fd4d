"""One group measured whole: reliability, difficulty, triads, recovery and failure mode, as fields of one object."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from difficulty.gaps import DifficultyProfile, profile_difficulty
from difficulty.placement import ErrorPlacement, error_placement
from difficulty.reliability import COUNTS, FAILURE_MODES, METRICS, failure_mode
from difficulty.triads import TRIAD_COLUMNS, TRIAD_SHARES, TriadIntervals, context_triads, triad_intervals
from rank.exceptions import InputError
from rank.gold import Gold
from rank.parallel import map_tasks, one_thread
from rank.recovery import Recovery, recover_ranking
from rank.resample import DEFAULT_LEVEL, DEFAULT_RESAMPLES, seed_of
from rank.tally import Tally

_MANY_ITEMS = 500

#: Why a metric can be undefined, for people.
UNDEFINED_REASONS = {
    "repeatability": "no call was repeated, so repeatability is unobserved (use two or more runs)",
    "repeat_agreement": "no call was repeated",
    "flip_rate": "no pair was judged in both orders, so position bias is unobserved",
    "swap_consistency": "no pair was judged in both orders, so position bias is unobserved",
    "inconsistent_pair_primacy": "no pair flips with a lean to a slot",
    "accuracy": "no pair judged in both orders has gold",
    "trustworthy_rate": "needs repeated calls, both orders and gold; without repeats see the upper bound A - phi q_u",
    "trustworthy_rate_joint": "needs repeated calls, both orders and gold",
    "spearman": "needs item gold and a finite ranking",
}


@dataclass(frozen=True)
class StudyOptions:
    """How a group is measured; every field is an option of the commands.

    See `difficulty.gaps.profile_difficulty`, `rank.recovery.recover_ranking` and
    `difficulty.reliability.failure_mode` for the meaning of each.
    """

    n_buckets: int = 4
    edges: str | Sequence[float] = "items"
    exclude_gold_ties: bool = False
    gold_scale: str = "unknown"
    invalid: str = "exclude"
    tie_credit: float = 0.0
    recovery_level: str = "auto"
    alpha: float = 0.0
    high_repeatability: float = 0.90
    low_flip_rate: float = 0.20
    n_resamples: int = DEFAULT_RESAMPLES
    level: float = DEFAULT_LEVEL


@dataclass(frozen=True)
class GroupStudy:
    """Everything measured on one group.

    Attributes
    ----------
    labels : mapping of str to str
        Group columns and their values; empty when nothing is grouped.
    profile : DifficultyProfile
        Overall and by gap bucket.
    triads : TriadIntervals
        Shares with intervals; `triad_counts` has the counts (``TRIAD_COLUMNS``).
    recovery : Recovery or None
        None without item gold.
    mode : str or None
        Failure mode.
    placement : ErrorPlacement or None
        Where flips and errors fall; None without gold.
    """

    labels: Mapping[str, str]
    profile: DifficultyProfile = field(repr=False)
    triads: TriadIntervals = field(repr=False)
    triad_counts: Mapping[str, int]
    recovery: Recovery | None = field(repr=False)
    mode: str | None
    placement: ErrorPlacement | None = field(repr=False)
    options: StudyOptions = field(repr=False)

    @property
    def name(self) -> str:
        """The labels joined for people, or "all"."""
        return " / ".join(self.labels.values()) or "all"

    def value(self, metric: str) -> float:
        """Return one overall metric, by its field name (`difficulty.reliability.METRICS`); rho is in `recovery`."""
        if metric not in self.profile.overall.estimate:
            raise InputError(f"there is no metric '{metric}'; choose one of {', '.join(METRICS)}")
        return float(self.profile.overall.estimate[metric][0])

    def overall(self) -> dict[str, Any]:
        """Return the overall fields as a flat dict: counts, metrics with bounds, recovery, mode."""
        return {
            **_cell(self.profile.overall.to_frame().iloc[0]),
            **self.placement_fields(),
            **self.recovery_fields(),
            "failure_mode": self.mode,
            "remedy": FAILURE_MODES[self.mode] if self.mode else None,
        }

    def placement_fields(self) -> dict[str, Any]:
        """Return ``q_hat`` and ``flip_q_hat`` with bounds and reasons."""
        if self.placement is not None:
            return self.placement.fields()
        nan = float("nan")
        return {
            key: value
            for name in ("q_hat", "flip_q_hat")
            for key, value in (
                (name, nan), (f"{name}_low", nan), (f"{name}_high", nan), (f"{name}_reason", "there is no gold")
            )
        }  # fmt: skip

    def recovery_fields(self) -> dict[str, Any]:
        """Return rho and tau with bounds and what limits them."""
        r = self.recovery
        names = (
            "spearman", "spearman_low", "spearman_high", "kendall", "kendall_low", "kendall_high",
            "spearman_items_low", "spearman_items_high", "spearman_sd",
        )  # fmt: skip
        fields: dict[str, Any] = {name: getattr(r, name) if r else float("nan") for name in names}
        return {
            **fields,
            "spearman_level": r.level if r else None,
            "spearman_reason": r.reason if r else "there is no item gold",
            "n_items_ranked": r.n_items if r else 0,
            "n_contexts_ranked": r.n_contexts if r else 0,
            "n_contexts_left_out": r.n_contexts_left_out if r else 0,
            "n_undefined_resamples": r.n_undefined_resamples if r else 0,
        }

    def triad_fields(self) -> dict[str, Any]:
        """Return triad counts and shares with bounds."""
        shares: dict[str, Any] = {}
        for index, name in enumerate(TRIAD_SHARES):
            shares[name] = float(self.triads.estimate[index])
            shares[f"{name}_low"] = float(self.triads.low[index])
            shares[f"{name}_high"] = float(self.triads.high[index])
        return {**self.triad_counts, **shares, "triads_reason": self.triads.reason}

    def bucket(self, which: str) -> dict[str, Any]:
        """Return the fields of one bucket ("close", "far"); all NaN where there are no buckets."""
        frame = self.profile.to_frame()
        found = frame[frame["bucket"] == which] if len(frame) else frame
        if not len(found):
            return {name: (0 if name in COUNTS else float("nan")) for name in (*COUNTS, *METRICS)}
        return _cell(found.iloc[0])

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of the group (SPEC section 9)."""
        p = self.profile
        difference = {
            key: value
            for name, (estimate, low, high) in p.close_minus_far.items()
            for key, value in ((name, estimate), (f"{name}_low", low), (f"{name}_high", high))
        }
        return {
            **self.labels,
            "overall": self.overall(),
            "buckets": [_cell(row) for _, row in p.to_frame().iterrows()],
            "gap_edges": None if p.buckets is None else p.buckets.edges,
            "gap_edges_basis": None if p.buckets is None else p.buckets.basis,
            "buckets_reason": p.reason,
            "buckets_notes": [] if p.buckets is None else list(p.buckets.notes),
            "close_minus_far": difference,
            "calibrated_reference": None if p.reference is None else _reference(p),
            "triads": self.triad_fields(),
            **self.recovery_fields(),
        }

    def flat(self) -> dict[str, Any]:
        """Return one flat row: labels, overall, close and far swap consistency and accuracy, triads."""
        row: dict[str, Any] = {**self.labels, **self.overall()}
        for which in ("close", "far"):
            cell = self.bucket(which)
            for name in ("n_pairs", *METRICS):
                row[f"{name}_{which}"] = cell[name]
                for end in ("low", "high"):
                    if f"{name}_{end}" in cell:
                        row[f"{name}_{which}_{end}"] = cell[f"{name}_{end}"]
        return {**row, **self.triad_fields()}


def _cell(row: pd.Series) -> dict[str, Any]:
    """Return a frame row with integers where the columns are counts."""
    return {
        str(name): int(value) if name in COUNTS else value if isinstance(value, str) else float(value)
        for name, value in row.items()
    }


def _reference(profile: DifficultyProfile) -> dict[str, Any]:
    assert profile.reference is not None
    fields = vars(profile.reference)
    return {"scale": fields["scale"], **{k: float(v[-1]) for k, v in fields.items() if k != "scale"}}


def study_group(
    tally: Tally,
    gold: Gold | None,
    options: StudyOptions | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    rng: np.random.Generator | int | None = None,
) -> GroupStudy:
    """Measure one group.

    Parameters
    ----------
    tally : Tally
        One group (``tally.select(k)``).
    gold : Gold or None
    options : StudyOptions, optional
    labels : mapping, optional
        Group labels; default: those of the tally's only group.
    rng : Generator, int or None
        Equal seeds give equal numbers, whatever else is in the file.

    Returns
    -------
    GroupStudy
    """
    options = options or StudyOptions()
    seed = seed_of(rng)
    every_gold = gold.align_all(tally) if gold is not None else None  # triads use gold ties, too
    if gold is not None and options.exclude_gold_ties:
        gold = gold.without_ties()
    pair_gold = gold.align(tally) if gold is not None else None
    profile = profile_difficulty(
        tally,
        gold,
        n_buckets=options.n_buckets,
        edges=options.edges,
        gold_scale=options.gold_scale,
        invalid=options.invalid,
        tie_credit=options.tie_credit,
        n_resamples=options.n_resamples,
        level=options.level,
        rng=np.random.default_rng(seed),
    )
    blocks = context_triads(tally, every_gold, invalid=options.invalid)
    triads = triad_intervals(
        blocks.counts, n_resamples=options.n_resamples, level=options.level, rng=np.random.default_rng(seed)
    )
    recovery = None
    if gold is not None and gold.kind == "items":
        recovery = recover_ranking(
            tally,
            gold,
            level=options.recovery_level,
            alpha=options.alpha,
            n_resamples=options.n_resamples,
            confidence=options.level,
            rng=np.random.default_rng(seed),
        )
    placement = None
    if pair_gold is not None:
        placement = error_placement(
            tally,
            pair_gold,
            invalid=options.invalid,
            n_resamples=options.n_resamples,
            level=options.level,
            rng=np.random.default_rng(seed),
        )
    overall = profile.overall.estimate
    mode = failure_mode(
        float(overall["repeatability"][0]),
        float(overall["flip_rate"][0]),
        high_repeatability=options.high_repeatability,
        low_flip_rate=options.low_flip_rate,
    )
    if labels is None:
        labels = {str(column): str(tally.groups[column].iloc[0]) for column in tally.groups.columns}
    counts = dict(zip(TRIAD_COLUMNS, blocks.counts.sum(axis=0).tolist(), strict=True))
    return GroupStudy(labels, profile, triads, counts, recovery, mode, placement, options)


def study_groups(
    tally: Tally,
    gold: Gold | None,
    options: StudyOptions | None = None,
    *,
    rng: np.random.Generator | int | None = None,
    n_jobs: int = 1,
    dask: Any = None,
) -> Iterator[GroupStudy]:
    """Measure every group of a tally and yield them in its order; each uses the same random numbers.

    Parameters
    ----------
    tally : Tally
    gold : Gold or None
    options : StudyOptions, optional
    rng : Generator, int or None
    n_jobs, dask
        See `rank.parallel.map_tasks`; the numbers are the same for any number of workers.
    """
    seed = seed_of(rng)
    if gold is not None:
        gold.require_coverage(tally)
    study = partial(_study_alone, gold=gold, options=options, seed=seed)
    if n_jobs == 1 and dask is None:
        yield from map(study, map(tally.select, range(tally.n_groups)))
    else:
        groups = [tally.select(index) for index in range(tally.n_groups)]
        yield from map_tasks(study, groups, n_jobs=n_jobs, dask=dask)


def _study_alone(
    tally: Tally, gold: Gold | None, options: StudyOptions | None, seed: np.random.SeedSequence
) -> GroupStudy:
    # The matrices of one group are small unless it is the whole table.
    with one_thread() if len(tally.items) < _MANY_ITEMS else contextlib.nullcontext():
        return study_group(tally, gold, options, rng=np.random.default_rng(seed))
