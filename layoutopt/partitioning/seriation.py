"""In which order blocks are written: those that the same queries read stand side by side (seriation).

A query then reads few runs of neighbours: fewer and longer requests for readers, and fewer ranges of blocks in the
condition that an engine is given.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints

_MOST_BLOCKS: Final = 4096
"""Of more blocks, whose distances would fill 128 MB, the order stays as it is."""
_ROUNDS: Final = 20


def in_reading_order(unions: Bits, weights: Floats) -> Ints:
    """An order of blocks in which neighbours differ little in what skips them.

    The distance of two blocks is the weight of the features that skip just one of them (a weighted Hamming distance);
    the sum over neighbours is the weighted number of ends of runs. It is a path of a travelling salesman: nearest
    neighbour first, then 2-opt (Croes 1958) until nothing improves, or for 20 rounds.

    Args:
        unions: the blocks' union vectors, ``bool[n_blocks, f]``.
        weights: of the features, ``float64[f]``.

    Returns:
        the blocks in their new order, ``int64[n_blocks]``; the same for the same input.

    >>> in_reading_order(np.array([[1, 0], [0, 1], [1, 1], [0, 0]], dtype=bool), np.ones(2)).tolist()
    [3, 0, 2, 1]
    """
    n = len(unions)
    if n < 3 or n > _MOST_BLOCKS:
        return np.arange(n)
    # A block that is like every other stands before the first and after the last: ends cost nothing.
    distances = np.pad(_distances(unions, weights), (0, 1))
    path: Ints = np.r_[n, _nearest_neighbours(distances[:n, :n], int(np.argmin(unions @ weights))), n]
    for _ in range(_ROUNDS):
        if not _reverse_what_shortens(path, distances):
            break
    return path[1:-1]


def _distances(unions: Bits, weights: Floats) -> Floats:
    """What every two blocks differ by, ``float64[n, n]``."""
    bits = unions.astype(np.float64)
    weighted = bits * weights
    totals = weighted.sum(axis=1)
    distances: Floats = np.maximum(totals[:, None] + totals - 2 * (weighted @ bits.T), 0.0)
    return distances


def _nearest_neighbours(distances: Floats, first: int) -> Ints:
    """A path that always goes on to the nearest block that it has not yet; of equals to the first."""
    n = len(distances)
    path = np.empty(n, dtype=np.int64)
    left = np.zeros(n)  # infinite where the path has been
    path[0] = first
    for i in range(1, n):
        left[path[i - 1]] = np.inf
        path[i] = np.argmin(distances[path[i - 1]] + left)
    return path


def _reverse_what_shortens(path: Ints, distances: Floats) -> bool:
    """One round of 2-opt in place: wherever turning a part round shortens the path, the part that gains most."""
    improved = False
    least = 1e-9 * float(distances.max(initial=0.0))
    for i in range(len(path) - 3):
        # The part from `after` to `ends` is turned, so that both get another neighbour.
        here, after, ends, beyond = path[i], path[i + 1], path[i + 2 : -1], path[i + 3 :]
        gains = distances[here, after] + distances[ends, beyond] - distances[here, ends] - distances[after, beyond]
        j = int(np.argmax(gains))
        if gains[j] > least:
            path[i + 1 : i + 3 + j] = path[i + 1 : i + 3 + j][::-1].copy()
            improved = True
    return improved
