"""Twins: two judges with exactly the same C, phi, A and T, one with its errors on close pairs, one on far pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from difficulty.reliability import STATISTICS, metrics_from_sums, pair_statistics
from rank.exceptions import InputError
from simulate.judges import JudgeSettings, SimulatedJudge
from simulate.population import Population
from simulate.sweep import first_repetition, sweep

if TYPE_CHECKING:
    import pandas as pd

#: Names in the judge column of the verdicts.
NAMES = ("twin_close", "twin_far")

DEFAULT_Q_CLOSE, DEFAULT_Q_FAR = -0.9, 0.9

#: Counts that C, phi, A and T are functions of (with binary verdicts and a reference without ties).
_SHARED = (
    "n_pairs_swapped", "n_flips", "n_lean_first", "n_conditions_repeated_gold", "n_unanimous_gold",
    "n_pairs_swapped_gold", "credit_decided", "credit_flipped",
)  # fmt: skip

_METRICS = (
    "repeatability", "flip_rate", "accuracy", "trustworthy_rate", "trustworthy_rate_upper", "trustworthy_rate_joint",
    "decisive_accuracy", "inconsistent_pair_primacy", "ceiling",
)  # fmt: skip


@dataclass(frozen=True)
class Twins:
    """Two judges that differ in the placement of their errors alone.

    Attributes
    ----------
    close, far : SimulatedJudge
        They share items, pairs, reference, flips and noise.
    rows : tuple of dict
        One per twin: ``judge``, ``q``, ``spearman`` with ``spearman_low`` and ``spearman_high``, ``kendall``, and
        ``repeatability``, ``flip_rate``, ``accuracy``, ``trustworthy_rate`` and their company as measured from the
        verdicts. ``trustworthy_rate_joint`` may differ by a little: it counts on which pairs errors and noise meet.
    settings : dict
        Everything that was asked.
    """

    close: SimulatedJudge
    far: SimulatedJudge
    rows: tuple[dict[str, Any], ...]
    settings: dict[str, Any]

    @property
    def population(self) -> Population:
        """Items, pairs and reference."""
        return self.close.population

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON shape: ``{"settings": {...}, "rows": [...]}``."""
        return {"settings": dict(self.settings), "rows": [dict(row) for row in self.rows]}

    def to_frame(self) -> pd.DataFrame:
        """Return one row per twin."""
        import pandas as pd

        return pd.DataFrame(list(self.rows))

    def verdicts(self) -> pd.DataFrame:
        """Return the verdicts of both as one table, told apart by ``judge``."""
        import pandas as pd

        parts = [answer.to_frame().assign(judge=name) for name, answer in zip(NAMES, (self.close, self.far))]
        return pd.concat(parts, ignore_index=True)


def make_twins(
    q_close: float = DEFAULT_Q_CLOSE,
    q_far: float = DEFAULT_Q_FAR,
    *,
    judge: JudgeSettings | None = None,
    population: Mapping[str, Any] | None = None,
    n_resamples: int = 500,
    rng: np.random.Generator | int | None = None,
) -> Twins:
    """Make two judges with the same C, phi, A and T and different rho.

    Parameters
    ----------
    q_close, q_far : float
        Where the errors of each fall; `q_close` must be the smaller.
    judge : JudgeSettings, optional
        What both have in common.
    population : mapping, optional
        Keyword arguments of `simulate.population.draw_population`; ``human`` is "deterministic" unless given, so that
        A is against the same gold order as rho.
    n_resamples : int
        Bootstrap resamples of the interval of rho; 0 for none.
    rng : Generator or int, optional

    Returns
    -------
    Twins

    Raises
    ------
    InputError
        When a setting is impossible, `q_close` is not below `q_far`, or the judge is a blind-zone judge, whose
        accuracy is random.

    Examples
    --------
    >>> twins = make_twins(population={"n_items": 50}, n_resamples=0, rng=1)
    >>> [round(row["trustworthy_rate"], 3) for row in twins.rows]
    [0.475, 0.475]
    >>> twins.rows[0]["spearman"] > 0.9 > 0 > twins.rows[1]["spearman"]
    True
    """
    settings = JudgeSettings() if judge is None else judge
    people = {"human": "deterministic", **(population or {})}
    if settings.judge == "blind-zone":
        raise InputError(
            "twins have exactly the same accuracy; that of a blind-zone judge is random, so use judge 'errors'"
        )
    if not q_close < q_far:
        raise InputError(f"q_close must be below q_far, found {q_close:g} and {q_far:g}")
    # The sweep and its first repetition start from the same seed.
    seed = rng if isinstance(rng, int) else int(np.random.default_rng(rng).integers(2**63))
    found = sweep([q_close, q_far], judge=settings, population=people, n_resamples=n_resamples, rng=seed)
    prepared = first_repetition(judge=settings, population=people, rng=seed)
    answers = [prepared.answer(q) for q in (q_close, q_far)]
    reference = answers[0].to_human_gold()
    sums = []
    for answer in answers:
        tally = answer.to_tally()
        sums.append(pair_statistics(tally.counts, reference.align(tally)).sum(axis=0))
    shared = [STATISTICS.index(name) for name in _SHARED]
    # Whole numbers: equal, not close to equal.
    assert (sums[0][shared] == sums[1][shared]).all(), "twins differ in C, phi, A or T"
    rows = []
    for name, row, total in zip(NAMES, found.rows, sums):
        metrics = metrics_from_sums(total)
        rows.append(
            {
                "judge": name,
                **{key: row[key] for key in ("q", "spearman", "spearman_low", "spearman_high", "kendall")},
                **{key: float(metrics[key]) for key in _METRICS},
                "accuracy_latent": row["accuracy_latent"],
                "human_spearman": row["human_spearman"],
                "close": row["close"],
                "far": row["far"],
                "triads": row["triads"],
            }
        )
    asked = {name: value for name, value in found.settings.items() if name not in ("n_reps", "triads_of")}
    return Twins(
        close=answers[0],
        far=answers[1],
        rows=tuple(rows),
        settings={"q_close": float(q_close), "q_far": float(q_far), **asked, **asdict(settings)},
    )


def judged_values(answer: SimulatedJudge) -> np.ndarray:
    """Return what a simulated judge ranks its items by: scores, or fitted strengths of sparse designs, shape (n,)."""
    from simulate.sweep import fitted_strengths

    people, total = answer.population, 2 * int(answer.settings.runs)
    wins = answer.wins_i.sum(axis=1, dtype=np.int64)
    if not people.is_round_robin:
        return fitted_strengths(people, wins[None], total)[0]
    n = people.n_items
    return np.bincount(people.item_i, wins, n) + np.bincount(people.item_j, total - wins, n)
