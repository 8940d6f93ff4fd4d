"""Items with known strengths, the pairs that are compared, and what people say about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from rank.exceptions import InputError
from rank.gold import round_noise

STRENGTHS = ("normal", "uniform", "t", "clusters")
DESIGNS = ("all", "random", "regular")
HUMANS = ("votes", "deterministic")

#: The two clusters sit at -0.9 and +0.9 with this spread inside, which makes the total variance 1.
_CLUSTER_CENTRE = 0.9
_CLUSTER_SD = float(np.sqrt(1.0 - _CLUSTER_CENTRE**2))


@dataclass(frozen=True)
class Population:
    """Items, compared pairs and the human reference.

    Pairs are unordered and sorted by (item_i, item_j).

    Attributes
    ----------
    items : ndarray of str, shape (n,)
        Item ids, sorted.
    theta : ndarray, shape (n,)
        Strengths in nats: i beats j with probability ``1 / (1 + exp(-(theta_i - theta_j)))``.
    item_i, item_j : ndarray of int64, shape (m,)
        The compared pairs, with ``item_i < item_j``.
    difference : ndarray, shape (m,)
        ``theta_i - theta_j``, in nats, as `strength_differences` gives it.
    human_votes_i : ndarray of int64, shape (m,)
        Votes for item i, out of `votes`.
    human_i : ndarray of bool, shape (m,)
        Whether item i is the human winner: more votes, and a fair coin where an even number of votes is split
        (a forced reference, so that accuracy has the same denominator for every pair).
    votes : int
        Human votes per pair.
    strengths, design, human : str
        How the three parts were made.
    spread : float
        Factor that the strengths were multiplied with.
    """

    items: np.ndarray
    theta: npt.NDArray[np.float64]
    item_i: npt.NDArray[np.int64]
    item_j: npt.NDArray[np.int64]
    difference: npt.NDArray[np.float64]
    human_votes_i: npt.NDArray[np.int64]
    human_i: npt.NDArray[np.bool_]
    votes: int
    strengths: str
    design: str
    human: str
    spread: float

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.theta)

    @property
    def n_pairs(self) -> int:
        """Number of compared pairs."""
        return len(self.difference)

    @cached_property
    def gap(self) -> npt.NDArray[np.float64]:
        """``|theta_i - theta_j|``, in nats, shape (m,)."""
        return np.abs(self.difference)

    @cached_property
    def gap_order(self) -> npt.NDArray[np.int64]:
        """Positions of the pairs from the smallest gap to the largest, shape (m,)."""
        return np.argsort(self.gap)

    @cached_property
    def gap_rank(self) -> npt.NDArray[np.float64]:
        """Percentile rank u of the gap among the compared pairs, ``(rank - 1/2) / m`` in (0, 1), shape (m,).

        Equal gaps share their mid-rank.
        """
        return percentile_rank(self.gap, self.gap_order)

    @cached_property
    def log_gap_rank(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Logarithms of u and of 1 - u, the bases of placement weights."""
        return np.log(self.gap_rank), np.log1p(-self.gap_rank)

    @property
    def is_round_robin(self) -> bool:
        """Whether every pair of items is compared; then the Bradley-Terry order is the order of scores."""
        return 2 * self.n_pairs == self.n_items * (self.n_items - 1)


def draw_population(
    n_items: int | None = None,
    *,
    strengths: str = "normal",
    spread: float = 1.0,
    df: float = 5.0,
    theta: npt.ArrayLike | None = None,
    item_names: Sequence[str] | None = None,
    design: str | None = None,
    n_pairs: int | None = None,
    pairs_per_item: int | None = None,
    human: str = "votes",
    votes: int = 1,
    rng: np.random.Generator | int | None = None,
) -> Population:
    """Draw items, the pairs to compare and the human votes.

    Parameters
    ----------
    n_items : int, optional
        Number of items; 200 by default. With `theta`, all given items by default, else a random subset of
        them.
    strengths : {"normal", "uniform", "t", "clusters"}
        Distribution of the strengths. All four have mean 0 and variance 1 before scaling; "clusters" are two
        normal groups of equal size centred at -0.9 and 0.9.
    spread : float
        Positive factor on the strengths (also on given ones).
    df : float
        Degrees of freedom of "t", above 2 (below, there is no variance to scale).
    theta : array_like, shape (N,), optional
        Given gold scores, taken as Bradley-Terry log-strengths after scaling by `spread`.
    item_names : sequence of str, optional
        Ids of the items (with `theta`, of the given ones); "item_000", "item_001", ... by default.
    design : {"all", "random", "regular"}, optional
        Every pair; `n_pairs` pairs drawn without replacement; or a random graph in which all items have the
        same number of partners (give or take one where the numbers do not divide). By default "all" when
        neither `n_pairs` nor `pairs_per_item` is given, "random" for `n_pairs`, "regular" for
        `pairs_per_item`.
    n_pairs, pairs_per_item : int, optional
        Size of a sparse design; give one of the two.
    human : {"votes", "deterministic"}
        Votes drawn from the Bradley-Terry model, or all for the item with the higher strength.
    votes : int
        Human votes per pair.
    rng : Generator or int, optional
        Strengths, pairs and votes have a stream each: another design leaves the strengths as they are.

    Returns
    -------
    Population

    Raises
    ------
    InputError
        When a setting is outside its range, or the design asks for more pairs than there are.

    Examples
    --------
    >>> people = draw_population(200, rng=1)
    >>> people.n_pairs, people.is_round_robin
    (19900, True)
    >>> draw_population(200, pairs_per_item=40, rng=1).n_pairs
    4000
    """
    _check_choice("strengths", strengths, STRENGTHS)
    _check_choice("human", human, HUMANS)
    if not (np.isfinite(spread) and spread > 0):
        raise InputError(f"spread must be a positive number, found {spread}")
    if votes < 1:
        raise InputError(
            f"votes must be at least 1 per pair, found {votes}; use human='deterministic' for none"
        )
    theta_rng, pairs_rng, human_rng = np.random.default_rng(rng).spawn(3)

    if theta is None:
        n = 200 if n_items is None else int(n_items)
        if n < 2:
            raise InputError(f"items must be at least 2, found {n}")
        values = _draw_strengths(n, strengths, df, theta_rng) * spread
        names = _check_names(item_names, n)
    else:
        given = np.asarray(theta, dtype=float)
        values, names = _pick_given(given, item_names, n_items, theta_rng)
        values, n, strengths = values * spread, len(values), "given"
    if item_names is not None:  # the default ones are sorted
        order = np.argsort(names, kind="stable")
        names, values = names[order], values[order]

    item_i, item_j, design = _draw_pairs(n, design, n_pairs, pairs_per_item, pairs_rng)
    difference = strength_differences(values, item_i, item_j)
    votes_i, human_i = _vote(difference, human, votes, human_rng)
    return Population(
        items=names,
        theta=values,
        item_i=item_i,
        item_j=item_j,
        difference=difference,
        human_votes_i=votes_i,
        human_i=human_i,
        votes=int(votes),
        strengths=strengths,
        design=design,
        human=human,
        spread=float(spread),
    )


def strength_differences(
    theta: npt.NDArray[np.float64], item_i: npt.NDArray[np.int64], item_j: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Return ``theta_i - theta_j``, equal where it is equal on paper: rounded as gaps of gold are."""
    difference = theta.take(item_i)
    difference -= theta.take(item_j)
    return round_noise(difference, theta)


def percentile_rank(
    values: npt.NDArray[np.float64], order: npt.NDArray[np.int64] | None = None
) -> npt.NDArray[np.float64]:
    """Return (rank - 1/2) / m, in (0, 1); equal values share their mid-rank. `order` sorts the values.

    Examples
    --------
    >>> percentile_rank(np.array([0.1, 0.7, 0.7, 0.2]))
    array([0.125, 0.75 , 0.75 , 0.375])
    """
    m = len(values)
    order = np.argsort(values) if order is None else order
    sorted_values = values.take(order)
    rank = np.empty(m)
    rank[order] = np.arange(0.5, m)
    if m and (sorted_values[1:] == sorted_values[:-1]).any():
        low = np.searchsorted(sorted_values, values, side="left")
        high = np.searchsorted(sorted_values, values, side="right")
        rank = (low + high) / 2.0
    return rank / max(m, 1)


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(choices)}; found {value!r}")


def _draw_strengths(n: int, strengths: str, df: float, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Draw n strengths with mean 0 and variance 1."""
    if strengths == "normal":
        return rng.standard_normal(n)
    if strengths == "uniform":
        return rng.uniform(-np.sqrt(3.0), np.sqrt(3.0), n)
    if strengths == "t":
        if not (np.isfinite(df) and df > 2):
            raise InputError(
                f"df must be above 2 for strengths 't' (otherwise there is no variance), found {df}"
            )
        return rng.standard_t(df, n) * np.sqrt((df - 2.0) / df)
    side = np.where(rng.permutation(n) < n // 2, -1.0, 1.0)
    return side * _CLUSTER_CENTRE + rng.standard_normal(n) * _CLUSTER_SD


def _check_names(item_names: Sequence[str] | None, n: int) -> np.ndarray:
    if item_names is None:
        return _default_names(n)
    names = np.array([str(name) for name in item_names], dtype=object)
    if len(names) != n:
        raise InputError(f"{n} items need {n} names, found {len(names)}")
    if len(set(names)) != n:
        raise InputError(f"item names must be distinct, found {n - len(set(names))} repeated")
    return names


@lru_cache(maxsize=4)
def _default_names(n: int) -> np.ndarray:
    """Return zero-padded ids, which sort as they are numbered; shared, hence read-only."""
    width = max(3, len(str(n - 1)))
    names = np.array([f"item_{index:0{width}d}" for index in range(n)], dtype=object)
    names.flags.writeable = False
    return names


def _pick_given(
    given: npt.NDArray[np.float64],
    item_names: Sequence[str] | None,
    n_items: int | None,
    rng: np.random.Generator,
) -> tuple[npt.NDArray[np.float64], np.ndarray]:
    """Return the given strengths with names, or a random subset of them."""
    if given.ndim != 1 or len(given) < 2:
        raise InputError(f"given strengths must be a list of at least 2 numbers, found shape {given.shape}")
    if not np.isfinite(given).all():
        raise InputError(
            f"given strengths must be finite, found {int((~np.isfinite(given)).sum())} that are not"
        )
    names = _check_names(item_names, len(given))
    if n_items is None or n_items == len(given):
        return given, names
    if not 2 <= n_items <= len(given):
        raise InputError(f"items must be between 2 and the {len(given)} given ones, found {n_items}")
    chosen = np.sort(rng.choice(len(given), size=n_items, replace=False))
    return given[chosen], names[chosen]


def _vote(
    difference: npt.NDArray[np.float64], human: str, votes: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return votes for item i and the human winner of each pair."""
    m = len(difference)
    if human == "deterministic":
        # Equal strengths have no higher item: a coin decides, as it does for a split vote.
        wins = difference > 0
        level = difference == 0
        if level.any():
            wins = np.where(level, rng.random(m) < 0.5, wins)
        return wins.astype(np.int64) * votes, wins
    # In place: a sweep spends its time on arrays of this shape.
    p = np.clip(difference, -700.0, 700.0)
    np.exp(np.negative(p, out=p), out=p)
    np.divide(1.0, np.add(p, 1.0, out=p), out=p)
    if votes == 1:
        wins = rng.random(m) < p
        return wins.astype(np.int64), wins
    votes_i = rng.binomial(votes, p).astype(np.int64)
    wins = 2 * votes_i > votes
    split = 2 * votes_i == votes
    if split.any():
        wins = np.where(split, rng.random(m) < 0.5, wins)
    return votes_i, wins


@lru_cache(maxsize=4)
def _all_pairs(n: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return all pairs i < j of n items, sorted; shared between populations, hence read-only."""
    item_i, item_j = np.triu_indices(n, 1)
    item_i.flags.writeable = item_j.flags.writeable = False
    return item_i, item_j


def _draw_pairs(
    n: int, design: str | None, n_pairs: int | None, pairs_per_item: int | None, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], str]:
    """Return the compared pairs, sorted, and the name of the design."""
    total = n * (n - 1) // 2
    if design is None:
        design = "random" if n_pairs is not None else "regular" if pairs_per_item is not None else "all"
    _check_choice("design", design, DESIGNS)
    if n_pairs is not None and pairs_per_item is not None:
        raise InputError(f"give n_pairs ({n_pairs}) or pairs_per_item ({pairs_per_item}), not both")
    if design == "all":
        if n_pairs is not None or pairs_per_item is not None:
            raise InputError(
                "design 'all' compares every pair; choose 'random' or 'regular' to limit the pairs"
            )
        return (*_all_pairs(n), design)
    if pairs_per_item is not None:
        if not 1 <= pairs_per_item <= n - 1:
            raise InputError(
                f"pairs_per_item must be between 1 and {n - 1} ({n} items have {n - 1} possible partners "
                "each), "
                f"found {pairs_per_item}"
            )
        n_pairs = n * pairs_per_item // 2
    if n_pairs is None:
        raise InputError(f"design {design!r} needs n_pairs or pairs_per_item")
    if not 1 <= n_pairs <= total:
        raise InputError(f"n_pairs must be between 1 and {total} (all pairs of {n} items), found {n_pairs}")
    if design == "random":
        # Positions in the list of all pairs, which is too long to be written down for some thousand items.
        chosen = np.sort(rng.choice(total, size=n_pairs, replace=False, shuffle=False))
        items = np.arange(n)
        starts = items * (2 * n - items - 1) // 2
        item_i = np.searchsorted(starts, chosen, side="right") - 1
        # The last item starts no pair, and shares its place with the end of the list.
        return item_i, chosen - starts[item_i] + item_i + 1, design
    code = _regular_graph(n, n_pairs, rng)
    return code // n, code % n, design


def _regular_graph(n: int, n_edges: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return sorted edge codes ``i * n + j`` (i < j) of a random graph whose degrees differ by at most one.

    Stubs are paired at random; loops and double edges are then removed by switching partners with random
    other edges, accepted only when both new edges are sound. Dense graphs are drawn as complements.
    """
    total = n * (n - 1) // 2
    if 2 * n_edges > total:
        all_i, all_j = _all_pairs(n)
        rest = _regular_graph(n, total - n_edges, rng)
        return np.setdiff1d(all_i * n + all_j, rest, assume_unique=True)
    degree, extra = divmod(2 * n_edges, n)
    degrees = np.full(n, degree)
    degrees[rng.permutation(n)[:extra]] += 1
    stubs = np.repeat(np.arange(n), degrees)
    for _ in range(1000):
        edges = _repair(rng.permutation(stubs), n, rng)
        if edges is not None:
            return edges
    raise InputError(
        f"no design with equal degree found for {n} items and {n_edges} pairs; use design='random' or other "
        "numbers"
    )


def _repair(stubs: npt.NDArray[np.int64], n: int, rng: np.random.Generator) -> npt.NDArray[np.int64] | None:
    """Return the sorted simple graph near a random pairing of stubs, or None when switching gets stuck."""
    a, b = stubs[::2].tolist(), stubs[1::2].tolist()
    seen: set[int] = set()
    code: list[int] = []  # -1 marks an edge that is a loop or a copy
    for x, y in zip(a, b):
        key = min(x, y) * n + max(x, y)
        code.append(-1 if x == y or key in seen else key)
        seen.add(code[-1])
    bad = [edge for edge, key in enumerate(code) if key < 0]
    for edge in bad:
        for other in rng.integers(0, len(a), 200).tolist():
            if code[other] < 0:
                continue
            x, y, u, v = a[edge], b[edge], a[other], b[other]
            one, two = min(x, v) * n + max(x, v), min(u, y) * n + max(u, y)
            if x == v or u == y or one == two or one in seen or two in seen:
                continue
            seen.remove(code[other])
            seen.update((one, two))
            b[edge], b[other] = v, y
            code[edge], code[other] = one, two
            break
        else:
            return None
    return np.sort(np.array(code, dtype=np.int64))
