"""A simulated judge like a real one: what a verdict table says about the settings of the simulator.

The simulated judge answers every pair with one of the two items, so that a real judge with ties can be followed in
C, phi and T = C (1 - phi) A_dec, not in all four: its accuracy is the one that keeps these three, T / C + phi / 2,
which is A itself where there are no ties. Pairs whose gold is a tie are left out of the measurement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from difficulty.placement import Placement, error_placement, fit_placement, gap_ranks
from difficulty.reliability import STATISTICS, metrics_from_sums, pair_statistics
from rank.exceptions import InputError
from rank.gold import GOLD_I, GOLD_J, GOLD_TIE, Gold
from rank.recovery import recover_ranking
from rank.tally import INVALID, Tally
from simulate.judges import JudgeSettings
from simulate.population import STRENGTHS

#: Resamples of the intervals of q_hat and flip_q_hat.
_RESAMPLES = 400


@dataclass(frozen=True)
class FittedJudge:
    """Settings of the simulator that follow a real judge.

    Attributes
    ----------
    label : str
        Labels of the group, or "all".
    settings : JudgeSettings
    q : float
        Placement of the errors.
    population : dict
        Keyword arguments of `simulate.population.draw_population`: the judged items with their gold scores as
        strengths (equal scores told apart at random), or normal strengths where the table has several contexts.
        The reference is the gold order (``human="deterministic"``).
    measured : dict
        What was measured: ``repeatability``, ``flip_rate``, ``accuracy``, ``trustworthy_rate``,
        ``inconsistent_pair_primacy``, ``q_hat``, ``flip_q_hat`` with bounds, ``noise_q_hat``, ``runs``,
        ``n_pairs``, ``n_items``, ``spearman``.
    pairs_per_item, runs : int
        The judge's own design (both orders): partners per item, rounded, and runs; 0 partners where it has
        several contexts.
    n_contexts : int
        Contexts of the verdicts.
    items_recur : bool
        Whether the same items are judged in several contexts, and ranked over all of them together.
    notes : tuple of str
        What was assumed.
    """

    label: str
    settings: JudgeSettings
    q: float
    population: dict[str, Any]
    measured: dict[str, Any]
    pairs_per_item: int
    runs: int
    n_contexts: int
    items_recur: bool
    notes: tuple[str, ...]


def fit_judge(tally: Tally, gold: Gold, *, rng: np.random.Generator | int | None = None) -> FittedJudge:
    """Return the settings of a simulated judge like a real one.

    Parameters
    ----------
    tally : Tally
        One group, with pairs judged in both orders.
    gold : Gold
        Item gold.
    rng : Generator or int, optional
        Tells equal gold scores apart, and resamples the intervals of the placements.

    Returns
    -------
    FittedJudge

    Raises
    ------
    InputError
        Without item gold, without a pair in both orders with decided gold, or where C cannot be simulated.

    Examples
    --------
    >>> from simulate.judges import simulate_judge
    >>> from simulate.population import draw_population
    >>> judge = simulate_judge(draw_population(40, human="deterministic", rng=1), -0.4, rng=2)
    >>> fitted = fit_judge(judge.to_tally(), judge.to_gold(), rng=3)
    >>> round(fitted.settings.agreement, 3), round(fitted.settings.repeatability, 3), round(fitted.q, 1)
    (0.6, 0.95, -0.4)
    """
    label = tally.group_label(0)
    if gold.kind != "items":
        raise InputError(
            "a judge is fitted with item gold (columns item, score); pair gold does not say which pairs are close"
        )
    gold.require_coverage(tally)
    rng = np.random.default_rng(rng)
    pair_gold = gold.align(tally)
    decided = (pair_gold.winner == GOLD_I) | (pair_gold.winner == GOLD_J)
    one, one_gold = tally.rows(decided), pair_gold.rows(decided)
    statistics = pair_statistics(one.counts, one_gold)
    sums = dict(zip(STATISTICS, statistics.sum(axis=0).tolist(), strict=True))
    if not sums["n_pairs_swapped"]:
        raise InputError(
            f"{label}: no pair with decided gold was judged in both orders, so position bias is unobserved and the "
            "judge cannot be fitted; judge some pairs in both orders"
        )
    measured = {name: float(value) for name, value in metrics_from_sums(statistics.sum(axis=0)).items()}
    placement = error_placement(one, one_gold, n_resamples=_RESAMPLES, rng=rng)
    noise = _noise_placement(one, one_gold.gap)

    notes = [f"judge fitted to {label}: {int(sums['n_pairs_swapped']):,} pairs in both orders"]
    if (n_ties := int((pair_gold.winner == GOLD_TIE).sum())) > 0:
        notes.append(f"{n_ties:,} pairs with equal gold scores are left out of the fit")
    phi, primacy = measured["flip_rate"], measured["inconsistent_pair_primacy"]
    agreement = (1.0 - phi) * (measured["decisive_accuracy"] if phi < 1 else 0.0) + phi / 2.0
    if abs(agreement - measured["accuracy"]) > 5e-4:
        notes.append(
            f"the judge has ties ({sums['n_ties'] / sums['n_verdicts']:.1%} of its verdicts) and A {measured['accuracy']:.3f}; "
            f"a simulated judge has none, and the A that gives it the same C, phi and T: {agreement:.3f}"
        )
    q, flip_q = _known(placement.errors, "q", notes), _known(placement.flips, "flip_q", notes)
    runs, repeatability = _runs(one, measured["repeatability"], label, notes)
    valid = one.counts.sum(axis=-1) - one.counts[..., INVALID]
    own_runs = _most_frequent(valid[valid > 0])
    settings = JudgeSettings(
        agreement=min(max(agreement, 0.0), 1.0),
        flip_rate=phi,
        flip_q=flip_q,
        primacy=primacy if primacy == primacy else 0.5,
        repeatability=repeatability,
        noise_q=noise.q if noise.q == noise.q else 0.0,
        runs=max(runs, 3) if repeatability < 1 else runs,
    )
    population, n_items, partners = _items(tally, gold, rng, notes)
    recovery = recover_ranking(tally, gold, n_resamples=0)
    if np.isnan(recovery.spearman):
        recovery = recover_ranking(tally, gold, alpha=0.1, n_resamples=0)
    n_contexts = len(np.unique(tally.context))
    kept = (
        "repeatability", "flip_rate", "accuracy", "trustworthy_rate", "trustworthy_rate_upper",
        "inconsistent_pair_primacy",
    )  # fmt: skip
    return FittedJudge(
        label=label,
        settings=settings,
        q=q,
        population=population,
        measured={
            **{name: measured[name] for name in kept},
            **placement.fields(),
            "noise_q_hat": noise.q,
            "runs": own_runs,
            "n_pairs": tally.n_pairs,
            "n_items": n_items,
            "spearman": recovery.spearman,
        },
        pairs_per_item=partners,
        runs=min(own_runs, settings.runs),
        n_contexts=n_contexts,
        items_recur=n_contexts > 1 and recovery.level == "system",
        notes=tuple(notes),
    )


def _known(placement: Placement, name: str, notes: list[str]) -> float:
    """The fitted placement, or "anywhere" with a note."""
    what = "errors" if name == "q" else "flips"
    if np.isnan(placement.q):
        if placement.n_placed:
            notes.append(f"{what} are placed anywhere ({name} 0): {placement.reason}")
        return 0.0
    notes.append(f"{what} are placed at {name} {placement.q:.2f} [{placement.low:.2f}, {placement.high:.2f}]")
    return placement.q


def _noise_placement(tally: Tally, gap: np.ndarray) -> Placement:
    """Where the conditions fall whose runs do not all agree."""
    valid = tally.counts.sum(axis=-1) - tally.counts[..., INVALID]
    split = (valid >= 2) & (np.delete(tally.counts, INVALID, axis=-1).max(axis=-1) < valid)
    rank = np.repeat(gap_ranks(gap), 2)
    return fit_placement(rank, split.ravel(), candidate=(valid >= 2).ravel(), n_resamples=0)


def _runs(tally: Tally, repeatability: float, label: str, notes: list[str]) -> tuple[int, float]:
    """The usual number of runs of a repeated condition, and C as the simulator defines it."""
    valid = tally.counts.sum(axis=-1) - tally.counts[..., INVALID]
    if np.isnan(repeatability):
        notes.append(
            "calls were not repeated: C is taken as 1, and what repeated calls would gain is unknown"
        )
        return 1, 1.0
    if (rare := (valid[valid > 0] < 2).mean()) > 0.5:
        notes.append(f"C is that of the repeated calls; {rare:.0%} of the calls were not repeated")
    runs = _most_frequent(valid[valid > 1])
    if runs > 2 or repeatability == 1:
        return runs, repeatability
    # One run of three dissents: two of the three agree with probability 1/3.
    on_three = 1.0 - 1.5 * (1.0 - repeatability)
    if on_three < 0:
        raise InputError(
            f"{label}: C is {repeatability:.3f} on two runs, below the 1/3 that a judge with a clear mode has; judge "
            "with three or more runs"
        )
    notes.append(f"C {repeatability:.3f} on two runs is simulated as C {on_three:.3f} on three")
    return runs, on_three


def _most_frequent(values: np.ndarray) -> int:
    distinct, times = np.unique(values, return_counts=True)
    return int(distinct[times.argmax()])


def _items(
    tally: Tally, gold: Gold, rng: np.random.Generator, notes: list[str]
) -> tuple[dict[str, Any], int, int]:
    """Keyword arguments of the population, the number of items, and partners per item (0 with several contexts)."""
    contexts = np.unique(tally.context)
    if len(contexts) > 1:
        judged = [
            len(np.unique(np.stack([tally.item_i[inside], tally.item_j[inside]])))
            for inside in (tally.context == context for context in contexts)
        ]
        n = max(3, int(np.median(judged)))
        notes.append(
            f"the verdicts have {len(contexts):,} contexts: one list of {n} items (their median) with {STRENGTHS[0]} "
            "strengths is simulated; --items asks for another number"
        )
        return {"n_items": n, "human": "deterministic"}, n, 0
    score = gold.item_scores(tally)
    known = ~np.isnan(score)
    n, values = int(known.sum()), score[known]
    if n < 3:
        raise InputError(f"{n} judged item(s) have gold scores; at least 3 are needed to simulate a ranking")
    distinct = np.unique(values)
    if len(distinct) < 2:
        raise InputError("all judged items have the same gold score: there is no ranking to simulate")
    if len(distinct) < n:
        notes.append(
            f"{n} items have {len(distinct)} distinct gold scores; equal scores are told apart at random"
        )
        # Far below the smallest gap, far above the digit at which gold is rounded.
        values = values + 1e-4 * np.diff(distinct).min() * rng.random(n)
    both = known[tally.item_i] & known[tally.item_j]
    partners = round(2 * int(both.sum()) / n)
    people = {"theta": values, "item_names": tally.items[known].tolist(), "human": "deterministic"}
    return people, n, min(max(partners, 1), n - 1)


def choose_group(tally: Tally, label: str | None) -> Tally:
    """Return one group of a tally.

    Parameters
    ----------
    tally : Tally
    label : str or None
        As `Tally.group_label` writes it; may be left out where there is one group.

    Raises
    ------
    InputError
        When there are several and none is named, or none has this label.
    """
    labels = [tally.group_label(index) for index in range(tally.n_groups)]
    shown = ", ".join(f"'{name}'" for name in labels[:8]) + (", ..." if len(labels) > 8 else "")
    if label is None:
        if len(labels) > 1:
            raise InputError(
                f"the verdicts hold {len(labels)} groups ({shown}); choose one with --group, or name fewer columns "
                "with --by"
            )
        label = labels[0]
    if label not in labels:
        raise InputError(f"no group is called '{label}'; there are {shown}")
    return tally.select(labels.index(label))
