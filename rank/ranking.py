"""A ranking with labels: one group's items by Bradley-Terry strength, with standard errors and rank intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from rank.bradley_terry import BradleyTerryFit, StrengthDifference, cross_check, fit_bradley_terry
from rank.buckets import bucket_gaps
from rank.exceptions import ConvergenceError, InputError
from rank.gold import Gold
from rank.order_batch import fit_order_batch
from rank.recovery import (
    Recovery,
    cluster_keys,
    draw_clusters,
    pool_pairs,
    recover_ranking,
)
from rank.resample import (
    DEFAULT_LEVEL,
    DEFAULT_RESAMPLES,
    check_resampling,
    percentile_interval,
    seed_of,
)
from rank.tally import INCONSISTENT, TIE, Tally

ORDER_EFFECTS = ("none", "one", "gap")
STD_ERRORS = ("observed", "sandwich", "bootstrap")

#: Strengths that agree to this many decimals (nats) share a rank.
_RANK_DECIMALS = 7


@dataclass(frozen=True)
class RankingOptions:
    """How a group is ranked; see `rank.bradley_terry.fit_bradley_terry` for the meaning of each."""

    method: str = "newton"
    ties: str = "half"
    order_effect: str = "none"
    alpha: float = 0.0
    prior_sd: float | None = None
    components: str = "error"
    std_errors: str = "observed"
    recovery_level: str = "auto"
    n_resamples: int = DEFAULT_RESAMPLES
    level: float = DEFAULT_LEVEL


@dataclass(frozen=True)
class GroupRanking:
    """The ranking of one group.

    Attributes
    ----------
    labels : mapping of str to str
        Group columns and values.
    items : DataFrame
        One row per item, best first: ``item, rank, rank_low, rank_high, strength, strength_low,
        strength_high, std_error, component, n_verdicts, n_wins, n_losses, n_ties, gold``. With several
        components, ranks count inside each.
    fit : BradleyTerryFit or None
        None where there is no finite maximum; `reason` says why.
    bucket_names : tuple of str
        Names of the order-effect buckets, if there is one per gap bucket.
    recovery : Recovery or None
        Rank recovery against item gold.
    difference : StrengthDifference or None
        Cross-check against choix, if asked for; `checked` says of which fit.
    n_undefined_resamples : int
        Bootstrap resamples without a finite maximum, left out of the intervals.
    reason : str
        Why there is no fit, or no interval; empty when all is well.
    """

    labels: Mapping[str, str]
    items: pd.DataFrame
    fit: BradleyTerryFit | None
    bucket_names: tuple[str, ...]
    recovery: Recovery | None
    difference: StrengthDifference | None
    n_undefined_resamples: int
    reason: str
    options: RankingOptions = field(repr=False)
    checked: str = ""

    @property
    def name(self) -> str:
        """The labels joined for people, or "all"."""
        return " / ".join(self.labels.values()) or "all"

    def order_effect_fields(self) -> dict[str, Any] | None:
        """Return gamma with its standard error and test; None without an order effect."""
        fit = self.fit
        if fit is None or fit.order_effect is None:
            return None
        names = self.bucket_names or ("all",)
        estimates = np.atleast_1d(fit.order_effect)
        errors = np.atleast_1d(fit.order_effect_std_error)
        return {
            "estimate": float(estimates[0]) if len(estimates) == 1 else None,
            "std_error": float(errors[0]) if len(errors) == 1 else None,
            "buckets": [
                {"bucket": name, "estimate": float(value), "std_error": float(error)}
                for name, value, error in zip(names, estimates, errors, strict=True)
            ],
            "statistic": float(fit.order_effect_statistic),
            "degrees_of_freedom": int(fit.order_effect_df),
            "p_value": float(fit.order_effect_p_value),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of the group (SPEC section 9)."""
        fit, r, check = self.fit, self.recovery, self.difference
        names = ("spearman", "spearman_low", "spearman_high", "kendall", "kendall_low", "kendall_high")
        return {
            **self.labels,
            "items": self.items,
            "order_effect": self.order_effect_fields(),
            "tie_parameter": None if fit is None else fit.tie_parameter,
            "tie_parameter_std_error": None if fit is None else fit.tie_parameter_std_error,
            **{name: getattr(r, name) if r else None for name in names},
            "spearman_level": r.level if r else None,
            "spearman_reason": r.reason if r else "there is no item gold",
            "method": self.options.method,
            "ties": self.options.ties,
            "alpha": self.options.alpha,
            "prior_sd": self.options.prior_sd,
            "penalised": None if fit is None else fit.penalised,
            "converged": False if fit is None else bool(fit.converged),
            "n_iterations": None if fit is None else fit.n_iterations,
            "gradient_norm": None if fit is None else fit.gradient_norm,
            "log_likelihood": None if fit is None else fit.log_likelihood,
            "n_components": None if fit is None else fit.n_components,
            "std_errors": self.options.std_errors,
            "std_errors_note": "" if fit is None else fit.std_errors_note,
            "n_undefined_resamples": self.n_undefined_resamples,
            "cross_check": None
            if check is None
            else {
                "largest": check.largest,
                "witness": check.witness,
                "reason": check.reason,
                "of": self.checked,
            },
            "reason": self.reason,
        }


def rank_group(
    tally: Tally,
    gold: Gold | None = None,
    options: RankingOptions | None = None,
    *,
    check: bool = False,
    rng: np.random.Generator | int | None = None,
) -> GroupRanking:
    """Rank the items of one group, contexts pooled.

    Parameters
    ----------
    tally : Tally
        One group (``tally.select(k)``).
    gold : Gold, optional
        Item gold adds rank recovery; gaps are needed for an order effect per gap bucket.
    options : RankingOptions, optional
    check : bool
        Refit with choix and report the largest difference.
    rng : Generator, int or None
        Seed of the bootstrap over clusters.

    Returns
    -------
    GroupRanking

    Raises
    ------
    NoMaximumError, ConvergenceError
        From the fit; the sentence names the items and the ways out.
    """
    options = options or RankingOptions()
    check_resampling(options.n_resamples, options.level)
    if options.order_effect not in ORDER_EFFECTS:
        raise InputError(
            f"order effect '{options.order_effect}' is unknown; choose {', '.join(ORDER_EFFECTS)}"
        )
    if options.std_errors not in STD_ERRORS:
        raise InputError(f"std_errors='{options.std_errors}' is unknown; choose {', '.join(STD_ERRORS)}")
    seed = seed_of(rng)
    valid = tally.counts[..., [0, 1, TIE, INCONSISTENT]].sum(axis=(1, 2)) > 0
    if not valid.any():
        raise InputError(f"{tally.group_label(0)}: there is no valid verdict to rank by")
    rows = tally.rows(valid)
    pooled = pool_pairs(rows)
    names = [str(item) for item in tally.items[pooled.items]]
    buckets: np.ndarray | None = None
    bucket_names: tuple[str, ...] = ()
    if options.order_effect == "gap":
        if gold is None:
            raise InputError(
                "an order effect per gap bucket needs --gold with scores of items or gaps of pairs"
            )
        found = bucket_gaps(rows, gold, gold.align(rows))
        if (found.bucket < 0).any():
            raise InputError(
                f"{int((found.bucket < 0).sum())} pair(s) have no known gap; an order effect per gap bucket needs gold for all items"
            )
        buckets, bucket_names = found.bucket, found.names
    order_effect: Any = None if options.order_effect == "none" else True if buckets is None else buckets
    item_i, item_j = (pooled.item_i[pooled.pair_of_row], pooled.item_j[pooled.pair_of_row])
    model: dict[str, Any] = {
        "n_items": pooled.n_items,
        "method": options.method,
        "ties": options.ties,
        "alpha": options.alpha,
        "prior_sd": options.prior_sd,
        "components": options.components,
        "order_effect": order_effect,
    }
    fit = fit_bradley_terry(
        item_i,
        item_j,
        rows.counts,
        std_errors="sandwich" if options.std_errors == "sandwich" else "auto",
        clusters=rows.clusters() if options.std_errors == "sandwich" else None,
        item_names=names,
        order_axis=True,
        **model,
    )
    strengths = np.asarray(fit.strengths)
    samples = _bootstrap_strengths(
        rows, gold, pooled.pair_of_row, item_i, item_j, buckets, model, options, seed
    )
    interval = percentile_interval(samples, strengths, level=options.level)
    islands = np.asarray(fit.components)
    ranks = _rank_within(strengths, islands)
    rank_interval = percentile_interval(_rank_within(samples, islands), ranks, level=options.level)
    std_error = fit.std_errors if fit.std_errors is not None else np.full(len(strengths), np.nan)
    if options.std_errors == "bootstrap":
        enough = (~np.isnan(samples)).sum(axis=0) > 1
        std_error = np.full(len(strengths), np.nan)
        std_error[enough] = np.nanstd(samples[:, enough], axis=0, ddof=1)
    counts = _item_counts(rows, pooled.n_items, pooled.items)
    frame = pd.DataFrame(
        {
            "item": names,
            "rank": ranks.astype(np.int64),
            "rank_low": np.floor(rank_interval.low),
            "rank_high": np.ceil(rank_interval.high),
            "strength": strengths,
            "strength_low": interval.low,
            "strength_high": interval.high,
            "std_error": std_error,
            "component": fit.components,
            **counts,
            "gold": gold.item_scores(rows)[pooled.items] if gold is not None else np.nan,
        }
    ).sort_values(["component", "rank", "item"], kind="stable", ignore_index=True)
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
    difference, checked = None, ""
    if check:
        difference, checked = cross_check(fit, item_i, item_j, rows.counts), "this fit"
        if difference.reason and (options.order_effect != "none" or options.ties != "half"):
            # choix knows neither order effects nor a tie parameter: check what the engine makes of the same verdicts without.
            plain = {**model, "order_effect": None, "ties": "half"}
            simple = fit_bradley_terry(
                item_i, item_j, rows.counts, item_names=names, order_axis=True, **plain
            )
            difference = cross_check(simple, item_i, item_j, rows.counts)
            checked = "the fit of the same verdicts without order effect and tie parameter"
    labels = {str(column): str(tally.groups[column].iloc[0]) for column in tally.groups.columns}
    undefined = int(np.isnan(samples).all(axis=1).sum())
    reason = ""
    if options.n_resamples and not len(samples):
        reason = f"a single {'context' if tally.has_context else 'pair'}: there are no clusters to resample, so no intervals"
    return GroupRanking(
        labels, frame, fit, bucket_names, recovery, difference, undefined, reason, options, checked
    )


def rank_descending(strengths: np.ndarray) -> np.ndarray:
    """Return ranks from 1 = strongest; ties share the best rank; NaN strengths have rank NaN, (..., n)."""
    rounded = np.round(strengths, _RANK_DECIMALS)
    unknown = np.isnan(rounded)
    key = np.where(unknown, np.inf, -rounded)
    order = np.argsort(key, axis=-1, kind="stable")
    ordered = np.take_along_axis(key, order, axis=-1)
    starts = np.ones(key.shape, dtype=bool)
    starts[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    first = np.maximum.accumulate(np.where(starts, np.arange(key.shape[-1]), 0), axis=-1)
    ranks = np.empty(key.shape)
    np.put_along_axis(ranks, order, first + 1.0, axis=-1)
    return np.where(unknown, np.nan, ranks)


def _rank_within(strengths: np.ndarray, islands: np.ndarray) -> np.ndarray:
    """Rank (..., n) inside each island: strengths of two islands share no scale."""
    ranks = np.full(strengths.shape, np.nan)
    for island in np.unique(islands):
        ranks[..., islands == island] = rank_descending(strengths[..., islands == island])
    return ranks


def _item_counts(tally: Tally, n_items: int, items: np.ndarray) -> dict[str, np.ndarray]:
    """Count verdicts, wins, losses and ties per item."""
    place = np.zeros(len(tally.items), dtype=np.int64)
    place[items] = np.arange(len(items))
    total = tally.counts.sum(axis=1)
    i, j = place[tally.item_i], place[tally.item_j]

    def both(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return (np.bincount(i, first, n_items) + np.bincount(j, second, n_items)).astype(np.int64)

    ties = total[:, TIE] + total[:, INCONSISTENT]
    wins, losses, tied = both(total[:, 0], total[:, 1]), both(total[:, 1], total[:, 0]), both(ties, ties)
    return {"n_verdicts": wins + losses + tied, "n_wins": wins, "n_losses": losses, "n_ties": tied}


def _bootstrap_strengths(
    rows: Tally,
    gold: Gold | None,
    pair_of_row: np.ndarray,
    item_i: np.ndarray,
    item_j: np.ndarray,
    buckets: np.ndarray | None,
    model: Mapping[str, Any],
    options: RankingOptions,
    seed: np.random.SeedSequence,
) -> np.ndarray:
    """Refit the model on resampled clusters; return strengths (B, n), NaN rows where there is no maximum.

    A single cluster cannot be resampled: then B = 0.
    """
    from scipy.sparse import csr_matrix

    n_items = int(model["n_items"])
    if options.n_resamples == 0:
        return np.zeros((0, n_items))
    cluster_ids, cluster = np.unique(rows.clusters(), return_inverse=True)
    if len(cluster_ids) == 1:
        return np.zeros((0, n_items))
    key = np.zeros(len(cluster_ids), dtype=np.uint64)
    with np.errstate(over="ignore"):
        np.add.at(key, cluster, cluster_keys(rows, gold).view(np.uint64))
    # Distinct (pair, bucket) cells; six counts each: order x (i, j, tie).
    label = pair_of_row if buckets is None else pair_of_row * (int(buckets.max()) + 1) + buckets
    _, example, cell = np.unique(label, return_index=True, return_inverse=True)
    counts = rows.counts[..., :3].astype(float)
    counts[..., TIE] += rows.counts[..., INCONSISTENT]
    if model["order_effect"] is None:
        counts = counts.sum(axis=1, keepdims=True)
    size = counts.shape[1] * 3
    columns = (cell[:, None] * size + np.arange(size)).ravel()
    matrix = csr_matrix(
        (counts.ravel(), (np.repeat(cluster, size), columns)), shape=(len(cluster_ids), len(example) * size)
    )
    settings = dict(model)
    if buckets is not None:
        settings["order_effect"] = buckets[example]
    in_batch = (
        model["order_effect"] is not None
        and model["ties"] == "half"
        and not model["alpha"]
        and model["prior_sd"] is None
        and len(np.unique(np.concatenate([item_i, item_j]))) == n_items
    )
    parts = []
    step = max(1, 64_000_000 // (16 * max(len(example) * size, 1)))
    for weights in draw_clusters(key.view(np.int64), options.n_resamples, np.random.default_rng(seed)):
        for start in range(0, len(weights), step):
            drawn = np.asarray(weights[start : start + step] @ matrix).reshape(
                -1, len(example), counts.shape[1], 3
            )
            strengths = np.full((len(drawn), n_items), np.nan)
            if in_batch:
                label = np.zeros(len(example), dtype=np.int64) if buckets is None else buckets[example]
                strengths = fit_order_batch(item_i[example], item_j[example], label, drawn, n_items)
            left = np.flatnonzero(np.isnan(strengths).any(axis=1))
            if len(left):
                fit = fit_bradley_terry(
                    item_i[example],
                    item_j[example],
                    drawn[left] if counts.shape[1] == 2 else drawn[left, :, 0],
                    std_errors="none",
                    on_no_maximum="nan",
                    order_axis=counts.shape[1] == 2,
                    **settings,
                )
                strengths[left] = fit.strengths
            parts.append(strengths)
    return np.concatenate(parts)


def rank_groups(
    tally: Tally,
    gold: Gold | None = None,
    options: RankingOptions | None = None,
    *,
    check: bool = False,
    rng: np.random.Generator | int | None = None,
) -> list[GroupRanking]:
    """Rank every group of a tally.

    A group that cannot be ranked (no finite maximum, no valid verdict, no gold where the model needs it) gets an
    empty ranking with its reason, unless it is the only one or all fail: then the error is raised.
    """
    options = options or RankingOptions()
    seed = seed_of(rng)
    if gold is not None:
        gold.require_coverage(tally)
    rankings: list[GroupRanking] = []
    failures: list[Exception] = []
    for index in range(tally.n_groups):
        one = tally.select(index)
        try:
            rankings.append(rank_group(one, gold, options, check=check, rng=np.random.default_rng(seed)))
        except (InputError, ConvergenceError) as error:
            failures.append(error)
            labels = {str(column): str(one.groups[column].iloc[0]) for column in one.groups.columns}
            rankings.append(
                GroupRanking(labels, pd.DataFrame(), None, (), None, None, 0, str(error), options)
            )
    if failures and len(failures) == len(rankings):
        raise failures[0]
    return rankings
