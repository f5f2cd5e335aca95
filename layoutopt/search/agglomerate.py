"""Merging groups of columns by who reads them, on whole arrays: a wide table has a hundred thousand pairs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from layoutopt.model.arrays import Bits, Floats

Gain = Callable[[Floats, Floats, Floats, Floats, Floats], Floats]
"""What merging pairs gains, from arrays: the readers of the one and of the other, by weight; a size of both, which adds
up when groups merge; the readers that both have."""


def agglomerate(readers: Bits, weight: Floats, size: Floats, gain: Gain, most: int | None = None) -> list[list[int]]:
    """Merge the pair that gains most, again and again; of equal pairs the first.

    Args:
        readers: which query reads which group, ``bool[groups, queries]``.
        weight: of the queries.
        size: of each group, ``float64[groups]``.
        gain: of merging.
        most: merge until so few groups are left; None merges while that gains anything.

    Returns:
        The numbers of the groups that were merged into one, in the order of their last merge.
    """
    n = len(readers)
    slots = max(1, 2 * n - 1)  # every merge takes a new one
    read = np.zeros((slots, readers.shape[1]))
    read[:n] = readers
    sizes = np.r_[size, np.zeros(slots - n)]
    count = read @ weight
    gains = np.full((slots, slots), -np.inf)
    alive = np.zeros(slots, dtype=np.bool_)
    members = {slot: [slot] for slot in range(n)}
    for slot in range(n):
        _meet(slot, read, weight, count, sizes, alive, gains, gain)
    while len(members) > (1 if most is None else max(1, most)):
        i, j = np.unravel_index(int(gains.argmax()), gains.shape)
        if most is None and gains[i, j] <= 0:
            break
        new = n + n - len(members)
        members[new] = members.pop(int(i)) + members.pop(int(j))
        read[new], sizes[new] = np.maximum(read[i], read[j]), sizes[i] + sizes[j]
        count[new] = read[new] @ weight
        alive[[i, j]] = False
        gains[[i, j]] = -np.inf
        gains[:, [i, j]] = -np.inf
        _meet(new, read, weight, count, sizes, alive, gains, gain)
    return list(members.values())


def _meet(
    slot: int, read: Floats, weight: Floats, count: Floats, sizes: Floats, alive: Bits, gains: Floats, gain: Gain
) -> None:
    """Compare a new slot with all before it, and let it live."""
    others = np.flatnonzero(alive)
    common = read[others] @ (read[slot] * weight)
    gains[others, slot] = gain(count[others], np.full(len(others), count[slot]), sizes[others], sizes[slot], common)
    alive[slot] = True
