"""Integer codes: several of them as one sortable key, and keys as dense numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd


def combine_codes(*parts: tuple[np.ndarray, int]) -> np.ndarray:
    """Combine code arrays into one int64 key that sorts as the tuple of codes does.

    Parameters
    ----------
    *parts : pairs (codes, size)
        Non-negative codes below their size. Where the sizes do not fit into 63 bits, the codes seen
        so far are made dense first, which keeps their order.
    """
    key, size = parts[0][0].astype(np.int64, copy=False), int(parts[0][1])
    for codes, n in parts[1:]:
        n = max(int(n), 1)
        if n == 1:  # all zero
            continue
        if size * n >= 2**62:
            distinct, key = np.unique(key, return_inverse=True)
            size = len(distinct)
        key = key * n + codes
        size *= n
    return key


def distinct_codes(key: np.ndarray) -> np.ndarray:
    """Return the sorted distinct values of a key; `np.unique` hashes integers, several times as slowly.

    Examples
    --------
    >>> distinct_codes(np.array([3, 1, 3, 0])).tolist()
    [0, 1, 3]
    """
    ordered = np.sort(key)
    first = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def dense_codes(key: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Number the distinct values of a key in increasing order.

    Parameters
    ----------
    key : ndarray of int64, shape (rows,)
        Values from 0 to `size` - 1.
    size : int
        Decides how: a table of all possible values where there are not many more than rows, else by hashing.

    Returns
    -------
    codes : ndarray of int64, shape (rows,)
    distinct : ndarray of int64
        Sorted; ``distinct[codes]`` is the key.
    """
    if size <= 4 * len(key) + 65_536:
        present = np.zeros(size, dtype=bool)
        present[key] = True
        return (np.cumsum(present, dtype=np.int64) - 1)[key], np.flatnonzero(present)
    codes, distinct = pd.factorize(key, sort=False)
    order = np.argsort(distinct)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place[codes], distinct[order]
