"""Files for people: pairs to review, and the swap-consistent decision on every pair."""

from __future__ import annotations

import numpy as np
import pandas as pd

from difficulty.reliability import NO_VERDICT, UNDECIDED, modal_verdicts, pair_verdicts
from rank.gold import PairGold
from rank.tally import INCONSISTENT, OUTCOMES, TIE, Tally


def _label_pairs(tally: Tally, rows: np.ndarray) -> pd.DataFrame:
    """Return group, context and item labels of some pair rows."""
    frame = tally.groups.iloc[tally.group[rows]].reset_index(drop=True)
    for column in ("dataset", "context"):
        values = tally.contexts[column].to_numpy()
        if column not in frame and (values != "").any():
            frame[column] = values[tally.context[rows]]
    frame["item_a"] = tally.items[tally.item_i[rows]]
    frame["item_b"] = tally.items[tally.item_j[rows]]
    return frame


def decide_pairs(tally: Tally, *, invalid: str = "exclude") -> pd.DataFrame:
    """Return one row per pair with the swap-consistent decision.

    Returns
    -------
    DataFrame
        Group and context columns, ``item_a``, ``item_b``, ``winner`` (an item id, ``tie`` when both orders
        say tie, ``disputed`` when the orders differ or the repeats of an order are split evenly, empty
        when there is no valid verdict) and ``orders`` (how many orders have a valid verdict). A pair seen in
        one order keeps that order's verdict.
    """
    modal = modal_verdicts(tally.counts, invalid=invalid)
    verdict = pair_verdicts(tally.counts, invalid=invalid)
    rows = np.arange(tally.n_pairs)
    frame = _label_pairs(tally, rows)
    agreed_tie = ((modal == TIE) | (modal == NO_VERDICT)).all(axis=1) & (_drawn(tally.counts) == 0).all(
        axis=1
    )
    winner = np.where(verdict == 0, frame["item_a"], np.where(verdict == 1, frame["item_b"], "disputed"))
    winner = np.where((verdict == UNDECIDED) & agreed_tie, "tie", winner)
    frame["winner"] = np.where(verdict == NO_VERDICT, "", winner)
    frame["orders"] = (modal != NO_VERDICT).sum(axis=1)
    return frame


def _drawn(counts: np.ndarray) -> np.ndarray:
    """Mark conditions whose first place is shared by two valid outcomes, shape (P, 2)."""
    valid = counts[..., [0, 1, 2, INCONSISTENT]]
    top = valid.max(axis=-1)
    return ((valid == top[..., None]).sum(axis=-1) > 1) & (top > 0)


def list_disputed(tally: Tally, gold: PairGold | None = None, *, invalid: str = "exclude") -> pd.DataFrame:
    """Return the pairs that flip or are unstable, for review by people, widest gold gap first.

    Returns
    -------
    DataFrame
        Group and context columns, ``item_a``, ``item_b``, ``why`` ("flips", "unstable", "flips, unstable"),
        the counts of each outcome with item_a shown first (``a_first_*``) and item_b shown first
        (``b_first_*``), and ``gap`` with ``gold_winner`` where gold is known.
    """
    modal = modal_verdicts(tally.counts, invalid=invalid)
    both = (modal != NO_VERDICT).all(axis=1)
    flips = both & ((modal[:, 0] != modal[:, 1]) | (modal == INCONSISTENT).any(axis=1))
    valid = tally.counts if invalid == "equal" else tally.counts[..., [0, 1, 2, INCONSISTENT]]
    unstable = (valid.max(axis=-1) < valid.sum(axis=-1)).any(axis=1)
    rows = np.flatnonzero(flips | unstable)
    frame = _label_pairs(tally, rows)
    frame["why"] = np.select(
        [flips[rows] & unstable[rows], flips[rows]], ["flips, unstable", "flips"], "unstable"
    )
    names = {"i": "a_wins", "j": "b_wins"}
    for order, shown in enumerate(("a_first", "b_first")):
        for code, outcome in enumerate(OUTCOMES):
            if outcome != "inconsistent" or tally.counts[..., INCONSISTENT].any():
                frame[f"{shown}_{names.get(outcome, outcome)}"] = tally.counts[rows, order, code]
    if gold is not None:
        frame["gap"] = gold.gap[rows]
        labels = np.array(["item_a", "item_b", "tie", ""])  # -1 takes the last
        which = labels[gold.winner[rows]]
        frame["gold_winner"] = np.where(
            which == "item_a", frame["item_a"], np.where(which == "item_b", frame["item_b"], which)
        )
        gap = gold.gap[rows]
        frame = frame.iloc[np.argsort(np.where(np.isnan(gap), np.inf, -gap), kind="stable")].reset_index(
            drop=True
        )
    return frame
