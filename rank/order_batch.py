"""Many small Bradley-Terry fits with order effects at once: Newton's method with one matrix product per step."""

from __future__ import annotations

import numpy as np

_MOST_CELLS = 4_000_000  # entries of (parameters^2, cells)
_CHUNK = 8_000_000
_ROUNDS = 60
_LONGEST_STEP = 2.0  # nats
_RANGE = 15.0  # nats; fits that run farther are left to the general method


def fit_order_batch(
    item_i: np.ndarray, item_j: np.ndarray, bucket: np.ndarray, counts: np.ndarray, n_items: int
) -> np.ndarray:
    """Fit strengths and order effects, ties as half a win, to a batch of counts on the same pairs.

    Parameters
    ----------
    item_i, item_j, bucket : ndarray of int, shape (M,)
        Items of each pair, and which order effect it has (0 with a single one).
    counts : ndarray, shape (B, M, 2, 3)
        Order shown (i first, j first) by outcome (i wins, j wins, tie).
    n_items : int

    Returns
    -------
    ndarray, shape (B, n_items)
        Centred strengths in nats, exact to 1e-9. NaN rows are not settled here: no maximum, one that is far
        out, or a design too large for this method; `rank.bradley_terry.fit_bradley_terry` decides those.

    Notes
    -----
    With half ties the model is a logistic regression on (pair, order) cells. Newton steps that shrink to
    1e-9 within 15 nats show that the maximum exists: where it does not, they stay near one nat.
    """
    n_buckets = int(bucket.max()) + 1 if len(bucket) else 0
    width = n_items + n_buckets
    first, second = np.concatenate([item_i, item_j]), np.concatenate([item_j, item_i])
    n_cells = len(first)
    result = np.full((len(counts), n_items), np.nan)
    if width * width * n_cells > _MOST_CELLS:
        return result
    design = np.zeros((n_cells, width))
    cells = np.arange(n_cells)
    design[cells, first] = 1.0
    design[cells, second] = -1.0
    design[cells, n_items + np.concatenate([bucket, bucket])] = 1.0
    products = (design[:, :, None] * design[:, None, :]).reshape(n_cells, -1)
    half = counts[..., 2] / 2
    wins = np.concatenate([counts[:, :, 0, 0] + half[..., 0], counts[:, :, 1, 1] + half[..., 1]], axis=1)
    total = counts.sum(axis=-1).transpose(0, 2, 1).reshape(len(counts), n_cells)
    level = np.zeros((width, width))
    level[:n_items, :n_items] = 1.0 / n_items  # strengths are free up to a constant
    step_size = max(1, _CHUNK // (width * width + n_cells))
    for start in range(0, len(counts), step_size):
        rows = np.arange(start, min(start + step_size, len(counts)))
        point = np.zeros((len(rows), width))
        for _ in range(_ROUNDS):
            if not len(rows):
                break
            p = 1.0 / (1.0 + np.exp(-(point @ design.T)))
            gradient = (wins[rows] - total[rows] * p) @ design
            information = ((total[rows] * p * (1.0 - p)) @ products).reshape(-1, width, width)
            scale = np.maximum(information[:, range(width), range(width)].mean(axis=1), 1e-12)
            information += scale[:, None, None] * level
            # A trace keeps bucketless or separated resamples solvable; the gradient alone decides where they end.
            information[:, range(width), range(width)] += 1e-12 * scale[:, None]
            move = np.linalg.solve(information, gradient[..., None])[..., 0]
            length = np.abs(move).max(axis=1)
            point = point + move * np.minimum(1.0, _LONGEST_STEP / np.maximum(length, 1e-300))[:, None]
            done = length < 1e-9
            result[rows[done]] = point[done, :n_items]
            going = ~done & (np.abs(point).max(axis=1) < _RANGE)
            rows, point = rows[going], point[going]
    return result - result.mean(axis=1, keepdims=True)
