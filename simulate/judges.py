"""Judges with exactly the asked accuracy, flip rate and repeatability; only where their errors fall is free.

A judge is made in three layers (undecided pairs, errors among the decided ones, unstable conditions), each an
exact number of pairs or conditions that are *placed* on close or far pairs. Everything random about a judge
except the placement of its errors is drawn once, by `prepare_judge`; the same prepared judge then answers for
any number of values of q. Two judges that differ in q alone therefore share people, flips and noise (common
random numbers).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rank.exceptions import InputError
from simulate.population import Population

if TYPE_CHECKING:
    import pandas as pd

    from rank.gold import Gold
    from rank.tally import Tally

#: What q means in every scheme, for readers.
SCALES = {
    "weight": "-1 close pairs, 0 anywhere, 1 far pairs",
    "spread": "0 near ties, 1 anywhere",
    "mixture": "-1 closer half, 0 anywhere, 1 farther half",
}
SCHEMES = (*SCALES,)
JUDGES = ("errors", "blind-zone")

_TINY = float(np.finfo(float).tiny)
_SLACK = 1e-9  # rounding of decimal settings such as 1 - 0.2 / 2


@dataclass(frozen=True)
class JudgeSettings:
    """What is asked of a judge; shares are in [0, 1], placements in [-1, 1].

    Attributes
    ----------
    agreement : float
        Accuracy over conditions against the human winner.
    flip_rate : float
        Share of pairs answered by slot in both orders.
    flip_q : float
        Placement of those pairs.
    primacy : float
        Share of the flipping pairs that go to the first slot.
    repeatability : float
        Share of conditions whose runs all agree.
    noise_q : float
        Placement of the other conditions.
    runs : int
        Calls per pair and order.
    scheme : {"weight", "spread", "mixture"}
        How q places the errors, see `place_errors`.
    judge : {"errors", "blind-zone"}
        Whether the placed pairs are answered wrongly, or twice as many by coin flips.
    k_close : float
        Steepness of scheme "spread", per nat.
    """

    agreement: float = 0.6
    flip_rate: float = 0.2
    flip_q: float = -0.5
    primacy: float = 0.8
    repeatability: float = 0.95
    noise_q: float = -0.5
    runs: int = 5
    scheme: str = "weight"
    judge: str = "errors"
    k_close: float = 3.0

    def __post_init__(self) -> None:
        for name, choices in (("scheme", SCHEMES), ("judge", JUDGES)):
            if (value := getattr(self, name)) not in choices:
                raise InputError(f"{name} must be one of {', '.join(choices)}; found {value!r}")
        for name in ("agreement", "flip_rate", "primacy", "repeatability"):
            if not 0.0 <= (share := getattr(self, name)) <= 1.0:
                raise InputError(f"{name} must be a share between 0 and 1, found {share}")
        for name in ("flip_q", "noise_q"):
            if not -1.0 <= (q := getattr(self, name)) <= 1.0:
                raise InputError(f"{name} must be between -1 (close pairs) and 1 (far pairs), found {q}")
        if not (np.isfinite(self.k_close) and self.k_close >= 0):
            raise InputError(f"k_close must be a number of at least 0, found {self.k_close}")
        if self.runs < 1 or self.runs != int(self.runs):
            raise InputError(f"runs must be a whole number of at least 1, found {self.runs}")
        if self.runs < 3 and self.repeatability < 1.0:
            raise InputError(
                f"repeatability {self.repeatability:g} cannot be made with {self.runs} run(s): a dissenting "
                "run needs "
                "a majority against it, so at least 3 runs; ask for more runs or repeatability 1"
            )
        ceiling, floor = 1.0 - self.flip_rate / 2.0, self.flip_rate / 2.0
        if self.agreement > ceiling + _SLACK:
            raise InputError(
                f"agreement {self.agreement:g} is above the ceiling 1 - flip_rate/2 = {ceiling:g}: a pair "
                "that flips "
                f"(flip_rate {self.flip_rate:g}) is right in one order only; lower the agreement or the "
                "flip rate"
            )
        if self.agreement < floor - _SLACK:
            raise InputError(
                f"agreement {self.agreement:g} is below the floor flip_rate/2 = {floor:g}: a pair that flips "
                f"(flip_rate {self.flip_rate:g}) is right in one order anyway; raise the agreement or lower "
                "the flip rate"
            )

    def n_undecided(self, n_pairs: int) -> int:
        """Return the number of pairs that flip."""
        return round(self.flip_rate * n_pairs)

    def n_errors(self, n_pairs: int) -> int:
        """Return the number of decided pairs to get wrong: accuracy is (2 right + undecided) / (2 pairs)."""
        undecided = self.n_undecided(n_pairs)
        errors = round(n_pairs * (1.0 - self.agreement) - undecided / 2.0)
        return min(max(errors, 0), n_pairs - undecided)

    def n_unstable(self, n_pairs: int) -> int:
        """Return the number of conditions with dissenting runs."""
        return round((1.0 - self.repeatability) * 2 * n_pairs)


@dataclass(frozen=True)
class SimulatedJudge:
    """The verdicts of one simulated judge, and the record of how they were made.

    Attributes
    ----------
    population : Population
        Items, pairs and the human reference.
    settings : JudgeSettings
        What was asked.
    q : float
        Where the errors fall.
    undecided : ndarray of bool, shape (m,)
        Pairs answered by slot in both orders.
    placed : ndarray of bool, shape (m,)
        Decided pairs chosen by q: answered wrongly, or by coin flips for a blind-zone judge.
    errors : ndarray of bool, shape (m,)
        Decided pairs answered against the human winner.
    unstable : ndarray of bool, shape (m, 2)
        Conditions with dissenting runs.
    wins_i : ndarray of int, shape (m, 2)
        Runs won by item i per pair and order (0 = i in the first slot); item j won the others.
    """

    population: Population
    settings: JudgeSettings
    q: float
    undecided: npt.NDArray[np.bool_]
    placed: npt.NDArray[np.bool_]
    errors: npt.NDArray[np.bool_]
    unstable: npt.NDArray[np.bool_]
    wins_i: npt.NDArray[np.int64]

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """Counts per pair, order and outcome (i, j, tie, invalid, inconsistent), shape (m, 2, 5)."""
        counts = np.zeros((*self.wins_i.shape, 5), dtype=np.int64)
        counts[..., 0] = self.wins_i
        counts[..., 1] = self.settings.runs - self.wins_i
        return counts

    def to_tally(self) -> Tally:
        """Return the verdicts as a tally with one group, ``judge = simulated``."""
        import pandas as pd

        from rank.tally import Tally

        people = self.population
        nothing = np.zeros(people.n_pairs, dtype=np.int64)
        return Tally(
            groups=pd.DataFrame({"judge": ["simulated"]}, dtype=object),
            contexts=pd.DataFrame({"dataset": [""], "context": [""]}, dtype=object),
            items=people.items,
            group=nothing,
            context=nothing,
            item_i=people.item_i,
            item_j=people.item_j,
            counts=self.counts,
            has_context=False,
        )

    def to_frame(self, *, rng: np.random.Generator | int | None = 0) -> pd.DataFrame:
        """Return the verdict table: one row per pair, order and run.

        Parameters
        ----------
        rng : Generator or int, optional
            Chooses which runs of an unstable condition dissent (no metric depends on it). A fixed seed by
            default, so that the table is a function of the judge.

        Returns
        -------
        DataFrame
            Columns ``judge, item_first, item_second, run, verdict``.
        """
        import pandas as pd

        people, runs = self.population, self.settings.runs
        rng = np.random.default_rng(rng)
        i_wins = np.arange(runs) < self.wins_i[..., None]
        i_wins[self.unstable] = rng.permuted(i_wins[self.unstable], axis=-1)
        first_wins = (
            i_wins ^ np.array([False, True])[:, None]
        )  # in the second order, item j is in the first slot
        shown = np.stack([people.item_i, people.item_j], axis=1)
        first, second = np.repeat(shown.ravel(), runs), np.repeat(shown[:, ::-1].ravel(), runs)
        return pd.DataFrame(
            {
                "judge": "simulated",
                "item_first": people.items[first],
                "item_second": people.items[second],
                "run": np.tile(np.arange(runs), 2 * people.n_pairs),
                "verdict": np.where(first_wins.ravel(), "first", "second"),
            }
        )

    def gold_frame(self) -> pd.DataFrame:
        """Return the latent strengths as item gold: columns ``item, score``."""
        import pandas as pd

        return pd.DataFrame({"item": self.population.items, "score": self.population.theta})

    def human_frame(self) -> pd.DataFrame:
        """Return the human reference as pair gold: ``item_a, item_b, winner, gap, votes_a, votes_b``."""
        import pandas as pd

        people = self.population
        a, b = people.items[people.item_i], people.items[people.item_j]
        return pd.DataFrame(
            {
                "item_a": a,
                "item_b": b,
                "winner": np.where(people.human_i, a, b),
                "gap": people.gap,
                "votes_a": people.human_votes_i,
                "votes_b": people.votes - people.human_votes_i,
            }
        )

    def to_gold(self) -> Gold:
        """Return the latent strengths as checked item gold."""
        from rank.gold import check_gold

        return check_gold(self.gold_frame())

    def to_human_gold(self) -> Gold:
        """Return the human winners as checked pair gold."""
        from rank.gold import check_gold

        return check_gold(self.human_frame())


@dataclass(frozen=True)
class PreparedJudge:
    """A judge of which everything is drawn but the placement of its errors.

    Attributes
    ----------
    population : Population
    settings : JudgeSettings
    undecided : ndarray of bool, shape (m,)
        Pairs answered by slot.
    unstable : ndarray of bool, shape (2, m)
        Conditions with dissenting runs.
    wins_i : ndarray of int, shape (2, m)
        Runs won by item i in each order if no decided pair were wrong.
    keys : ndarray, shape (1, m) or (2, m)
        Logarithms of independent standard exponential variates, the random part of every placement; one row
        per step of the scheme.
    coin_errs : ndarray of bool, shape (m,), or None
        Coin flips of a blind-zone judge: whether the answer to a placed pair is wrong.
    """

    population: Population
    settings: JudgeSettings
    undecided: npt.NDArray[np.bool_]
    unstable: npt.NDArray[np.bool_]
    wins_i: npt.NDArray[np.int64]
    keys: npt.NDArray[np.float64]
    coin_errs: npt.NDArray[np.bool_] | None

    def place(self, q: float) -> npt.NDArray[np.int64]:
        """Return the positions of the decided pairs that q chooses, in no particular order."""
        people, settings = self.population, self.settings
        size = settings.n_errors(people.n_pairs)
        if self.coin_errs is not None:
            size *= 2
            if size > (room := people.n_pairs - int(np.count_nonzero(self.undecided))):
                raise InputError(
                    f"a blind-zone judge with agreement {settings.agreement:g} answers {size} pairs by coin "
                    f"flips, but only {room} of the {people.n_pairs} pairs are decided; "
                    "raise the agreement to at least 0.5"
                )
        if settings.scheme == "weight":
            return place(
                size, q, gap_rank=people.gap_rank, keys=self._open_keys, log_rank=people.log_gap_rank
            )
        return place_errors(
            size,
            q,
            scheme=settings.scheme,
            gap_rank=people.gap_rank,
            gap=people.gap,
            keys=self.keys,
            barred=self.undecided,
            k_close=settings.k_close,
        )

    @cached_property
    def _open_keys(self) -> npt.NDArray[np.float64]:
        """Keys of the only race of scheme "weight", in which undecided pairs never arrive."""
        return np.where(self.undecided, np.inf, self.keys[0])

    def place_wrong(self, q: float) -> npt.NDArray[np.int64]:
        """Return the positions of the decided pairs that are answered wrongly, in no particular order."""
        placed = self.place(q)
        return placed if self.coin_errs is None else placed[self.coin_errs[placed]]

    def answer(self, q: float) -> SimulatedJudge:
        """Return the judge whose errors are placed by q."""
        placed = np.zeros(self.population.n_pairs, dtype=bool)
        placed[self.place(q)] = True
        errors = placed if self.coin_errs is None else placed & self.coin_errs
        return SimulatedJudge(
            population=self.population,
            settings=self.settings,
            q=float(q),
            undecided=self.undecided,
            placed=placed,
            errors=errors,
            unstable=self.unstable.T,
            wins_i=np.where(errors, int(self.settings.runs) - self.wins_i, self.wins_i).T,
        )


def prepare_judge(
    population: Population,
    settings: JudgeSettings | None = None,
    *,
    rng: np.random.Generator | int | None = None,
) -> PreparedJudge:
    """Draw everything of a judge but the placement of its errors.

    Parameters
    ----------
    population : Population
    settings : JudgeSettings, optional
    rng : Generator or int, optional
        Flips, noise and errors have a stream each: changing one setting leaves the others' draws as they are.

    Returns
    -------
    PreparedJudge
    """
    settings = JudgeSettings() if settings is None else settings
    m, runs = population.n_pairs, int(settings.runs)
    flip_rng, noise_rng, error_rng, coin_rng = np.random.default_rng(rng).spawn(4)

    undecided = np.zeros(m, dtype=bool)
    modal_i = np.stack([population.human_i] * 2)
    if n_undecided := settings.n_undecided(m):
        placed = place(
            n_undecided,
            settings.flip_q,
            gap_rank=population.gap_rank,
            keys=_log_exponential(flip_rng, m),
            log_rank=population.log_gap_rank,
        )
        undecided[placed] = True
        # `place` does not return positions in the same order on every processor.
        flipping = np.flatnonzero(undecided)
        # Which of them go to the first slot: a random subset of exact size.
        to_first = np.zeros(n_undecided, dtype=bool)
        to_first[_smallest(flip_rng.random(n_undecided), round(settings.primacy * n_undecided))] = True
        modal_i[0][flipping] = to_first
        modal_i[1][flipping] = ~to_first

    # Small integers: a sweep spends its time on arrays of this shape.
    dissents: npt.NDArray[np.int64] = np.zeros(2 * m, dtype=np.int16 if runs < 2**15 else np.int64)
    if n_unstable := settings.n_unstable(m):
        unstable = np.sort(
            place(
                n_unstable,
                settings.noise_q,
                gap_rank=population.gap_rank,
                keys=_log_exponential(noise_rng, (2, m)),
                log_rank=population.log_gap_rank,
            )
        )
        dissents[unstable] = noise_rng.integers(1, (runs - 1) // 2, size=n_unstable, endpoint=True)
    dissent = dissents.reshape(2, m)

    return PreparedJudge(
        population=population,
        settings=settings,
        undecided=undecided,
        unstable=dissent > 0,
        wins_i=dissent + modal_i * (runs - 2 * dissent),
        keys=_log_exponential(error_rng, (1 if settings.scheme == "weight" else 2, m)),
        coin_errs=coin_rng.random(m) < 0.5 if settings.judge == "blind-zone" else None,
    )


def simulate_judge(
    population: Population,
    q: float = 0.5,
    *,
    settings: JudgeSettings | None = None,
    rng: np.random.Generator | int | None = None,
) -> SimulatedJudge:
    """Simulate one judge.

    Parameters
    ----------
    population : Population
        From `simulate.population.draw_population`.
    q : float
        Where errors fall: -1 on the closest pairs, 0 anywhere, 1 on the farthest (scheme "weight").
    settings : JudgeSettings, optional
        What is asked of the judge.
    rng : Generator or int, optional

    Returns
    -------
    SimulatedJudge

    Raises
    ------
    InputError
        When the scheme cannot place as many errors.

    Examples
    --------
    >>> from simulate.population import draw_population
    >>> judge = simulate_judge(draw_population(50, rng=1), q=-1.0, rng=2)
    >>> int(judge.undecided.sum()), int(judge.errors.sum())
    (245, 368)
    """
    return prepare_judge(population, settings, rng=rng).answer(q)


def place(
    size: int,
    q: float,
    *,
    gap_rank: npt.NDArray[np.float64],
    keys: npt.NDArray[np.float64],
    barred: npt.NDArray[np.bool_] | None = None,
    log_rank: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None = None,
) -> npt.NDArray[np.int64]:
    """Choose pairs without replacement, the more on far (q > 0) or close (q < 0) pairs the larger \\|q\\|.

    Successive sampling with weight ``u ** (q / (1 - q))`` for q >= 0 and ``(1 - u) ** (-q / (1 + q))`` for q
    < 0, in the form of an exponential race [1]_: the smallest of E / weight come first, compared in
    logarithms so that no weight underflows. The limits q = 1 and q = -1 are the farthest and the closest
    pairs exactly, with equal gaps in random order.

    Parameters
    ----------
    size : int
        Number of pairs to choose.
    q : float
        In [-1, 1].
    gap_rank : ndarray, shape (m,)
        Percentile rank u of the gap, in (0, 1).
    keys : ndarray, shape (m,) or (k, m)
        Logarithms of standard exponential variates. Same keys, same race; who has inf is not chosen. With k
        rows, every pair takes part k times, and positions are those in the flattened array.
    barred : ndarray of bool, shape (m,), optional
        Pairs that may not be chosen.
    log_rank : pair of ndarrays, optional
        Logarithms of u and 1 - u, if they are at hand.

    Returns
    -------
    ndarray of int64, shape (size,)
        Positions in no particular order.

    References
    ----------
    .. [1] Efraimidis and Spirakis (2006), Information Processing Letters 97(5),
           doi:10.1016/j.ipl.2005.11.003.
    """
    if not -1.0 <= q <= 1.0:
        raise InputError(f"q must be between -1 (close pairs) and 1 (far pairs), found {q}")
    if barred is not None:
        keys = np.where(barred, np.inf, keys)
    if q == 0.0:
        race = keys
    elif abs(q) == 1.0:
        # Distinct mid-ranks differ by at least one rank; the rest of a rank is left to chance.
        race = -np.expm1(-np.exp(keys)) * (0.5 / keys.size) - q * gap_rank
        race[np.isposinf(keys)] = np.inf
    else:
        if log_rank is not None:
            log_u = log_rank[0 if q > 0 else 1]
        else:
            log_u = np.log(gap_rank) if q > 0 else np.log1p(-gap_rank)
        race = log_u * (-abs(q) / (1.0 - abs(q))) + keys
    return _smallest(race.ravel(), size)


def place_errors(
    size: int,
    q: float,
    *,
    scheme: str = "weight",
    gap_rank: npt.NDArray[np.float64],
    gap: npt.NDArray[np.float64],
    keys: npt.NDArray[np.float64],
    barred: npt.NDArray[np.bool_],
    k_close: float = 3.0,
) -> npt.NDArray[np.int64]:
    """Choose the pairs that a judge gets wrong.

    Parameters
    ----------
    size : int
        Number of errors k.
    q : float
        Meaning by scheme.
    scheme : {"weight", "spread", "mixture"}
        * weight: see `place`.
        * spread: first round(q k) errors uniformly, then the other k - round(q k) among the pairs that are
          left, with weight ``2 ** (-k_close * gap)``. q in [0, 1]; 0 is "all near ties", 1 "anywhere".
        * mixture: first round(|q| k) errors uniformly among the farther (q > 0) or closer (q < 0) half of all
          pairs (m // 2 of them, equal gaps at the border at random), then the rest uniformly among all pairs
          that are left.
    gap_rank, gap : ndarray, shape (m,)
        Percentile rank and size of the gap.
    keys : ndarray, shape (1, m) or (2, m)
        Logarithms of standard exponential variates, one row per step: "weight" has one, the others two.
    barred : ndarray of bool, shape (m,)
        Pairs that may not be chosen (the undecided ones).
    k_close : float
        Steepness of "spread" per nat.

    Returns
    -------
    ndarray of int64, shape (size,)

    Raises
    ------
    InputError
        When q is out of range or the half of a mixture has too few decided pairs.
    """
    if scheme == "weight":
        return place(size, q, gap_rank=gap_rank, keys=keys[0], barred=barred)
    if scheme == "spread":
        if not 0.0 <= q <= 1.0:
            raise InputError(
                f"q must be between 0 (near ties) and 1 (anywhere) for scheme 'spread', found {q}"
            )
        first = _choose(keys[0], round(q * size), barred)
        second_race = keys[1] + np.minimum(
            (k_close * np.log(2.0)) * gap, np.finfo(float).max / 2
        )  # not barred
    elif scheme == "mixture":
        if not -1.0 <= q <= 1.0:
            raise InputError(f"q must be between -1 (closer half) and 1 (farther half), found {q}")
        outside = barred
        if q != 0:
            m = len(gap)
            side = place(m // 2, float(np.sign(q)), gap_rank=gap_rank, keys=keys[1])
            outside = np.ones(m, dtype=bool)
            outside[side] = barred[side]
            room = m - int(np.count_nonzero(outside))
            if round(abs(q) * size) > room:
                raise InputError(
                    f"scheme 'mixture' with q {q:g} puts {round(abs(q) * size)} errors into the "
                    f"{'farther' if q > 0 else 'closer'} half, which has only {room} decided pairs; "
                    "lower |q|, or raise the agreement"
                )
        first = _choose(keys[0], round(abs(q) * size), outside)
        second_race = keys[1]
    else:
        raise InputError(f"scheme must be one of {', '.join(SCHEMES)}; found {scheme!r}")
    taken = barred.copy()
    taken[first] = True
    return np.concatenate([first, _choose(second_race, size - len(first), taken)])


def _log_exponential(rng: np.random.Generator, shape: int | tuple[int, ...]) -> npt.NDArray[np.float64]:
    """Return logarithms of standard exponential variates (negated Gumbel variates)."""
    variates = rng.standard_exponential(shape)
    np.maximum(variates, _TINY, out=variates)
    return np.log(variates, out=variates)


def _choose(race: npt.NDArray[np.float64], size: int, barred: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return the positions of the `size` smallest values that are not barred."""
    return _smallest(np.where(barred, np.inf, race), size)


def _smallest(values: npt.NDArray[np.float64], size: int) -> npt.NDArray[np.int64]:
    if size <= 0:
        return np.empty(0, dtype=np.int64)
    if size >= len(values):
        return np.arange(len(values))
    return np.argpartition(values, size - 1)[:size]
