"""When the maximum of a paired-comparison likelihood exists, and the sentence for the reader when it does
not.

For strengths alone the maximum exists iff the directed graph of wins (ties count both ways) is strongly
connected (Ford 1957, doi:10.2307/2308513). With an order effect or a tie parameter the question becomes
whether the likelihood has a direction along which it never falls: cheap sufficient conditions settle nearly
every real table, a linear programme settles the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph

from rank.exceptions import NoMaximumError

__all__ = ["Islands", "check_extra_parameters", "check_strengths", "find_islands", "one_sided_items"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_KEEPS_RISING = ": the likelihood has no maximum, it keeps rising as the strengths move apart without bound; "
_WAYS_OUT = (
    "add pseudo-wins (alpha > 0), put a prior on the strengths (prior_sd), or drop the items concerned"
)


@dataclass(frozen=True)
class Islands:
    """Weakly connected components of the comparison graph.

    Attributes
    ----------
    labels : ndarray of int, shape (n,)
        Component of each item; -1 for an item that was never compared.
    n_components : int
        Components among the compared items.
    """

    labels: IntArray
    n_components: int


def _adjacency(n_items: int, tail: IntArray, head: IntArray) -> sparse.csr_array:
    data = np.ones(tail.size, dtype=np.int8)
    return sparse.csr_array((data, (tail, head)), shape=(n_items, n_items))


def find_islands(n_items: int, first: IntArray, second: IntArray, total: FloatArray) -> Islands:
    """Label the islands of the comparison graph; pairs with no verdict (total 0) do not connect."""
    used = total > 0
    first, second = first[used], second[used]
    _, raw = csgraph.connected_components(_adjacency(n_items, first, second), directed=False)
    compared = np.zeros(n_items, dtype=bool)
    compared[first] = True
    compared[second] = True
    labels = np.full(n_items, -1, dtype=np.int64)
    found, inverse = np.unique(raw[compared], return_inverse=True)
    labels[compared] = inverse
    return Islands(labels, int(found.size))


def _names(items: npt.ArrayLike, item_names: Sequence[str] | None, limit: int = 6) -> str:
    index = np.asarray(items)
    shown = [str(item_names[k]) if item_names is not None else f"item {k}" for k in index[:limit]]
    if index.size > limit:
        shown.append(f"... {index.size - limit} more")
    return ", ".join(shown)


def _name_list(items: npt.ArrayLike, item_names: Sequence[str] | None) -> list[str]:
    return [str(item_names[k]) if item_names is not None else f"item {k}" for k in np.asarray(items)]


def check_strengths(
    n_items: int,
    first: IntArray,
    second: IntArray,
    first_wins: FloatArray,
    second_wins: FloatArray,
    islands: Islands,
    *,
    separate: bool,
    item_names: Sequence[str] | None = None,
) -> None:
    """Raise unless every component that is ranked is strongly connected through its wins.

    Parameters
    ----------
    first_wins, second_wins : ndarray, shape (cells,)
        Wins of either side with half of the ties on both.
    separate : bool
        Whether several islands may be ranked side by side, each on its own.

    Raises
    ------
    NoMaximumError
        Names the islands, or the items that never win or never lose, and the ways out.
    """
    labels = islands.labels
    if islands.n_components > 1 and not separate:
        groups = [np.flatnonzero(labels == k) for k in range(min(islands.n_components, 4))]
        listed = " and ".join("{" + _names(group, item_names) + "}" for group in groups)
        more = "" if islands.n_components <= 4 else f" and {islands.n_components - 4} more islands"
        sizes = np.bincount(labels[labels >= 0])
        full = (
            [np.flatnonzero(labels == k) for k in range(islands.n_components)]
            if sizes.size <= 1000
            else groups
        )
        raise NoMaximumError(
            f"no comparison connects {listed}{more}, so there is no common ranking of the "
            f"{int(sizes.sum())} items; "
            "compare items across the islands, rank each island on its own (components='separate'), "
            "or put a prior on the strengths (prior_sd)",
            components=[_name_list(group, item_names) for group in full],
        )
    forward, backward = first_wins > 0, second_wins > 0
    winner = np.concatenate([first[forward], second[backward]])
    loser = np.concatenate([second[forward], first[backward]])
    _, strong = csgraph.connected_components(
        _adjacency(n_items, winner, loser), directed=True, connection="strong"
    )
    compared = labels >= 0
    if np.unique(strong[compared]).size == islands.n_components:
        return
    raise _not_strong(n_items, winner, loser, strong, labels, item_names)


def _not_strong(
    n_items: int,
    winner: IntArray,
    loser: IntArray,
    strong: npt.NDArray[np.int32],
    labels: IntArray,
    item_names: Sequence[str] | None,
) -> NoMaximumError:
    wins = np.bincount(winner, minlength=n_items)
    losses = np.bincount(loser, minlength=n_items)
    compared = labels >= 0
    never_win = np.flatnonzero(compared & (wins == 0))
    never_lose = np.flatnonzero(compared & (losses == 0))
    if never_win.size or never_lose.size:
        return one_sided_items(never_win, never_lose, item_names)
    # A group of items without a loss to the rest: a source of the condensed graph.
    crossing = strong[winner] != strong[loser]
    beaten = np.zeros(int(strong.max()) + 1, dtype=bool)
    beaten[strong[loser[crossing]]] = True
    beating = np.zeros_like(beaten)
    beating[strong[winner[crossing]]] = True
    source = np.flatnonzero(beating & ~beaten)[0]
    top = np.flatnonzero(strong == source)
    rest = np.flatnonzero(compared & (strong != source) & (labels == labels[top[0]]))
    said = f"{{{_names(top, item_names)}}} never lose to {{{_names(rest, item_names)}}}"
    return NoMaximumError(f"{said}{_KEEPS_RISING}{_WAYS_OUT}")


def one_sided_items(
    never_win: npt.ArrayLike, never_lose: npt.ArrayLike, item_names: Sequence[str] | None
) -> NoMaximumError:
    """Error that names the items that never win and those that never lose."""
    said = []
    for items, one, several in (
        (np.asarray(never_win), "never wins", "never win"),
        (np.asarray(never_lose), "never loses", "never lose"),
    ):
        if items.size:
            said.append(f"{_names(items, item_names)} {one if items.size == 1 else several}")
    return NoMaximumError(
        f"{'; '.join(said)}{_KEEPS_RISING}{_WAYS_OUT}",
        never_win=_name_list(never_win, item_names),
        never_lose=_name_list(never_lose, item_names),
    )


def check_extra_parameters(
    n_items: int,
    first: IntArray,
    second: IntArray,
    first_wins: FloatArray,
    second_wins: FloatArray,
    ties: FloatArray,
    bucket: IntArray | None,
    n_buckets: int,
    *,
    davidson: bool,
    strengths_bounded: bool,
    bucket_names: Sequence[str] = (),
) -> None:
    """Raise if an order effect or the tie parameter has no finite maximum, given that the strengths have one.

    Parameters
    ----------
    first, second : ndarray of int, shape (cells,)
        Item shown first and second in each cell (one cell per pair and order).
    first_wins, second_wins : ndarray, shape (cells,)
        Wins of either side including half of the ties.
    ties : ndarray, shape (cells,)
    bucket : ndarray of int, shape (cells,) or None
        Bucket of the order effect of each cell; None without an order effect.
    davidson : bool
        Whether a tie parameter is fitted (only asked when there are ties: without any it is exactly 0).
    strengths_bounded : bool
        True with a prior on the strengths: they cannot move without bound, whatever the other parameters do.

    Raises
    ------
    NoMaximumError
    """
    if bucket is None and not davidson:
        return
    if bucket is not None:
        for k in range(n_buckets):
            inside = bucket == k
            name = f"the order effect of bucket {bucket_names[k]}" if n_buckets > 1 else "the order effect"
            if not np.any(first_wins[inside] > 0):
                raise NoMaximumError(
                    f"{name} has no finite value: no verdict names the item shown first; fit without "
                    f"an order effect"
                )
            if not np.any(second_wins[inside] > 0):
                raise NoMaximumError(
                    f"{name} has no finite value: every verdict names the item shown first; "
                    "fit without an order effect"
                )
    if davidson and not np.any(first_wins + second_wins - ties > 0):
        raise NoMaximumError(
            "every verdict is a tie, so Davidson's tie parameter has no finite maximum; use ties='half'"
        )
    if _settled_cheaply(
        n_items, first, second, first_wins, second_wins, ties, bucket, n_buckets, davidson, strengths_bounded
    ):
        return
    direction = _recession_direction(
        n_items, first, second, first_wins, second_wins, ties, bucket, n_buckets, davidson, strengths_bounded
    )
    if direction is None:
        return
    gamma, log_tie = direction
    if np.abs(gamma).max(initial=0.0) > 1e-6:
        worst = int(np.abs(gamma).argmax())
        name = f"the order effect of bucket {bucket_names[worst]}" if n_buckets > 1 else "the order effect"
        raise NoMaximumError(
            f"{name} has no finite value: the verdicts of every circle of comparisons can be "
            f"explained by the slot "
            "alone; judge more pairs in both orders, or fit without an order effect"
        )
    if abs(log_tie) > 1e-6:
        raise NoMaximumError(
            "Davidson's tie parameter has no finite maximum: the decided verdicts never contradict "
            "each other; "
            "use ties='half'"
        )
    raise NoMaximumError(f"the likelihood has no maximum; {_WAYS_OUT}")


def _settled_cheaply(
    n_items: int,
    first: IntArray,
    second: IntArray,
    first_wins: FloatArray,
    second_wins: FloatArray,
    ties: FloatArray,
    bucket: IntArray | None,
    n_buckets: int,
    davidson: bool,
    strengths_bounded: bool,
) -> bool:
    """Sufficient: each bucket has a pair won from the first slot in both orders, and one from the second."""
    if davidson:
        # Both outcomes decided in one cell keep the tie parameter from growing: its two odds cannot both
        # vanish.
        decided_first, decided_second = first_wins - ties / 2, second_wins - ties / 2
        tolerance = 1e-12 * (first_wins + second_wins)
        both = (decided_first > tolerance) & (decided_second > tolerance)
        if not np.any(both):
            return False
    if bucket is None or strengths_bounded:
        return True  # each bucket has verdicts for both slots: checked by the caller
    low, high = np.minimum(first, second), np.maximum(first, second)
    forward = first == low
    keys, pair = np.unique((low * n_items + high) * n_buckets + bucket, return_inverse=True)
    kind = keys % n_buckets
    for wins in (first_wins, second_wins):
        both_orders = np.bincount(pair[forward & (wins > 0)], minlength=keys.size) > 0
        both_orders &= np.bincount(pair[~forward & (wins > 0)], minlength=keys.size) > 0
        if np.unique(kind[both_orders]).size < n_buckets:
            return False
    return True


def _recession_direction(
    n_items: int,
    first: IntArray,
    second: IntArray,
    first_wins: FloatArray,
    second_wins: FloatArray,
    ties: FloatArray,
    bucket: IntArray | None,
    n_buckets: int,
    davidson: bool,
    strengths_bounded: bool,
) -> tuple[FloatArray, float] | None:
    """A direction along which the likelihood rises for ever, as (order effects, log tie parameter), or None.

    Rows of the programme say that an observed outcome does not lose against another outcome of its cell; the
    total gain is maximised with every single gain capped at 1, so an optimum of 0 means that no such
    direction exists.
    """
    from scipy.optimize import linprog

    n_bucket_columns = 0 if bucket is None else n_buckets
    n_columns = n_items + n_bucket_columns + int(davidson)
    cells = np.arange(first.size)
    parts = [
        sparse.csr_array((np.ones(first.size), (cells, first)), shape=(first.size, n_columns)),
        sparse.csr_array((-np.ones(first.size), (cells, second)), shape=(first.size, n_columns)),
    ]
    if bucket is not None:
        parts.append(
            sparse.csr_array((np.ones(first.size), (cells, n_items + bucket)), shape=(first.size, n_columns))
        )
    slope = sum(parts[1:], start=parts[0])
    tolerance = 1e-12 * (first_wins + second_wins)
    if davidson:
        last = np.full(first.size, n_columns - 1)
        tie_row = sparse.csr_array((np.full(first.size, 2.0), (cells, last)), shape=(first.size, n_columns))
        won = first_wins - ties / 2 > tolerance
        lost = second_wins - ties / 2 > tolerance
        tied = ties > 0
        rows = [
            slope[won],
            (slope - tie_row)[won],
            -slope[lost],
            (-slope - tie_row)[lost],
            (tie_row - slope)[tied],
            (tie_row + slope)[tied],
        ]
    else:
        rows = [slope[first_wins > 0], -slope[second_wins > 0]]
    gains = sparse.vstack(rows).tocsr()
    bounds: list[tuple[float | None, float | None]] = [(None, None)] * n_columns
    bounds[:n_items] = [(0.0, 0.0)] * n_items if strengths_bounded else [(None, None)] * n_items
    n_rows = gains.shape[0]
    answer = linprog(
        -np.asarray(gains.sum(axis=0)).ravel(),
        A_ub=sparse.vstack([-gains, gains]).tocsr(),
        b_ub=np.concatenate([np.zeros(n_rows), np.ones(n_rows)]),
        bounds=bounds,
        method="highs",
    )
    if answer.status != 0 or answer.fun is None or answer.fun > -1e-6:
        return None
    assert answer.x is not None
    gamma = answer.x[n_items : n_items + n_bucket_columns]
    return gamma, float(answer.x[-1]) if davidson else 0.0
