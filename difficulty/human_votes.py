"""Difficulty without item gold: gaps from the spread of human votes, or from the judge's own ranking.

Both give pair gold with gaps, so that buckets, accuracy and error placement work as they do with real gold. What they lack is
an independent score of every item, and with it rho.

Votes: the gap of a pair is the margin ``|votes for a - votes for b| / votes`` (ties half each), in [0, 1]. Taken per prompt
it says how clear this pair of answers was to people; with two or three votes it has three or four values and much noise.
Taken over all prompts of a pair of items it says how far the items are apart, and is what gaps of item scores measure.

Own ranking: the gap is the difference of the strengths (nats) fitted to the judge's own verdicts. That is circular: the
verdicts that are to be explained have made the gaps. A pair on which the judge errs badly looks closer, or the other way
round, than it is.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from difficulty.reliability import NO_VERDICT, pair_verdicts
from rank.bradley_terry import fit_bradley_terry
from rank.columns import CONTEXT_COLUMNS
from rank.exceptions import InputError
from rank.gold import GOLD_I, GOLD_J, Gold, check_gold
from rank.recovery import half_wins, pool_pairs, spearman
from rank.tally import Tally

VOTE_LEVELS = ("context", "pair")

#: Strengths closer than this many decimals (nats) are equal.
_STRENGTH_DECIMALS = 7

CIRCULAR = (
    "CIRCULAR: winners and gaps are those of the judge's own ranking; A says how far the judge agrees with itself, not how "
    "often it is right"
)


def votes_to_gold(votes: Tally, *, level: str = "context") -> Gold:
    """Turn several human votes per pair into pair gold with gaps.

    Parameters
    ----------
    votes : Tally
        The votes, read like verdicts: one row per vote. All groups (people) and both orders are pooled.
    level : {"context", "pair"}
        One gap per (context, pair), or per pair of items over all contexts of a dataset.

    Returns
    -------
    Gold
        ``kind="pairs"``: the majority is the winner (``tie`` when split evenly), the margin the gap; pairs
        without a valid vote are left out. Votes on one context or dataset are gold for that one only.

    Raises
    ------
    InputError
        When there is no valid vote.

    Examples
    --------
    >>> from rank.tally import tally_verdicts
    >>> from rank.verdicts import check_verdicts
    >>> said = [("a", "b", 0, "first"), ("a", "b", 1, "first"), ("a", "b", 2, "tie"), ("c", "b", 0, "second")]
    >>> frame = pd.DataFrame(said, columns=["item_first", "item_second", "run", "verdict"])
    >>> votes_to_gold(tally_verdicts(check_verdicts(frame))).frame[["item_a", "item_b", "winner"]].values.tolist()
    [['a', 'b', 'a'], ['b', 'c', 'b']]
    """
    if level not in VOTE_LEVELS:
        raise InputError(f"level of votes '{level}' is unknown; choose {', '.join(VOTE_LEVELS)}")
    frame = pd.DataFrame(
        {
            **{column: votes.contexts[column].to_numpy()[votes.context] for column in CONTEXT_COLUMNS},
            "item_a": votes.items[votes.item_i],
            "item_b": votes.items[votes.item_j],
        }
    )
    frame[["wins_a", "wins_b"]] = half_wins(votes.counts)
    keys = [column for column in CONTEXT_COLUMNS if (frame[column] != "").any()]
    if level == "pair":
        keys = [column for column in keys if column != "context"]
    frame = frame.groupby([*keys, "item_a", "item_b"], as_index=False, sort=True)[["wins_a", "wins_b"]].sum()
    frame = frame[frame["wins_a"] + frame["wins_b"] > 0].reset_index(drop=True)
    if not len(frame):
        raise InputError("the votes have no valid verdict, so there are no gaps")
    lead = frame["wins_a"] - frame["wins_b"]
    frame["winner"] = np.select([lead > 0, lead < 0], [frame["item_a"], frame["item_b"]], "tie")
    frame["gap"] = np.round(lead.abs() / (frame["wins_a"] + frame["wins_b"]), 12)  # equal shares stay equal
    return check_gold(frame.drop(columns=["wins_a", "wins_b"]))


def describe_votes(votes: Tally, gold: Gold, *, level: str = "context") -> str:
    """Say how many votes there are per pair, and what the gaps are."""
    n = half_wins(votes.counts).sum()
    ties = float((gold.frame["winner"] == "tie").mean())
    per = "prompt and pair" if level == "context" else "pair, prompts pooled"
    return (
        f"gold from {n:,.0f} human votes on {len(gold.frame):,} pairs ({n / len(gold.frame):.1f} per {per}): the majority is "
        f"right, the margin is the gap; {ties:.0%} of the pairs are split evenly"
    )


def own_ranking_to_gold(tally: Tally, *, alpha: float = 0.0) -> Gold:
    """Turn the judge's own Bradley-Terry ranking into pair gold with gaps (circular, see the module).

    Parameters
    ----------
    tally : Tally
        One group; contexts are pooled.
    alpha : float
        Pseudo-wins per compared ordered pair.

    Returns
    -------
    Gold
        ``kind="pairs"`` over the compared pairs of items, for every context; gaps in nats.

    Raises
    ------
    NoMaximumError
        When the ranking has no finite maximum.
    """
    seen = half_wins(tally.counts).sum(axis=1) > 0
    if not seen.any():
        raise InputError("there is no valid verdict, so the judge has no ranking of its own")
    kept = tally.rows(seen)
    pooled = pool_pairs(kept)
    wins = half_wins(kept.counts)
    m = len(pooled.item_i)
    counts = np.stack(
        [np.bincount(pooled.pair_of_row, wins[:, side], m) for side in (0, 1)] + [np.zeros(m)], 1
    )
    names = tally.items[pooled.items]
    fit = fit_bradley_terry(
        pooled.item_i, pooled.item_j, counts, n_items=pooled.n_items, alpha=alpha, std_errors="none",
        item_names=[str(name) for name in names],
    )  # fmt: skip
    strength = np.round(fit.strengths, _STRENGTH_DECIMALS)
    lead = strength[pooled.item_i] - strength[pooled.item_j]
    a, b = names[pooled.item_i], names[pooled.item_j]
    winner = np.select([lead > 0, lead < 0], [a, b], "tie")
    gap = np.round(np.abs(lead), _STRENGTH_DECIMALS)
    return check_gold(pd.DataFrame({"item_a": a, "item_b": b, "winner": winner, "gap": gap}))


def compare_gaps(tally: Tally, reference: Gold, others: Mapping[str, Gold]) -> pd.DataFrame:
    """Measure how well other sources of gaps track the reference, on the judged pairs of one group.

    Parameters
    ----------
    tally : Tally
        One group.
    reference : Gold
    others : mapping of str to Gold
        Name -> gold with gaps.

    Returns
    -------
    DataFrame
        One row per source: ``source``, ``n_pairs`` (judged pairs whose gap both know), ``gap_spearman`` (NaN where either is
        constant), ``n_decided`` (pairs on which both name a winner), ``same_winner`` (share of them on which it
        is the same).
    """
    base = reference.align(tally)
    judged = pair_verdicts(tally.counts) != NO_VERDICT
    rows = []
    for name, gold in others.items():
        found = gold.align(tally)
        both = judged & ~np.isnan(base.gap) & ~np.isnan(found.gap)
        decided = judged & np.isin(base.winner, (GOLD_I, GOLD_J)) & np.isin(found.winner, (GOLD_I, GOLD_J))
        rows.append(
            {
                "source": name,
                "n_pairs": int(both.sum()),
                "gap_spearman": float(spearman(found.gap[both], base.gap[both]))
                if both.sum() > 1
                else np.nan,
                "n_decided": int(decided.sum()),
                "same_winner": float((base.winner == found.winner)[decided].mean())
                if decided.any()
                else np.nan,
            }
        )
    return pd.DataFrame(rows)
