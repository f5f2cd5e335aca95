"""The merging of :mod:`layoutopt.partitioning.ward`, pair by pair."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints, Singles
from layoutopt.partitioning.native import compiled, part_of_a_loop

# Cluster slots are compacted when so many of them (one in ...) are empty.
_COMPACT_AT = 8


class Clusters(NamedTuple):
    """Clusters that may still be merged, one a slot, in the order of their first members.

    Attributes:
        weights: of the features, ``float32[f]``.
        unions: union vectors, a feature a row, ``float32[f, n]``.
        sizes: rows, ``float64[n]``.
        totals: the weight of each union, ``float64[n]``; infinite where a slot is empty.
        members: a slot's first member, ``int64[n]``.
        nearest: the nearest later slot, ``int64[n]``; -1 where there is none.
        bound: at most the loss with that one, ``float64[n]``.
        stale: where it may be less, ``bool[n]``.
        shared, losses: of one slot with the others: the weight of the features that both have, and what merging loses;
            ``float32[n]`` and ``float64[n]``.
    """

    weights: Singles
    unions: Singles
    sizes: Floats
    totals: Floats
    members: Ints
    nearest: Ints
    bound: Floats
    stale: Bits
    shared: Singles
    losses: Floats


@compiled
def merge_all(of: Clusters, min_rows: int) -> Ints:
    """Merge the nearest pair until one cluster is left, or none; those of ``min_rows`` rows leave.

    The arrays are changed. Returns the first member of each vector's cluster, ``int64[n]``.
    """
    slots = alive = len(of.sizes)
    parent = np.arange(slots)
    for slot in range(slots):
        _find_nearest(of, slot, slots)
    while alive > 1:
        first = _nearest_of_all(of, slots)
        second = of.nearest[first]
        parent[of.members[second]] = of.members[first]
        _join(of, first, second, slots)
        alive -= 1
        if of.sizes[first] >= min_rows:
            _empty(of, first)
            alive -= 1
        else:
            _meet_the_others(of, first, slots)
        if alive * _COMPACT_AT < slots * (_COMPACT_AT - 1):
            slots = _compact(of, slots)
    for vector in range(len(parent)):  # parents come before their children
        parent[vector] = parent[parent[vector]]
    return parent


@part_of_a_loop
def _compare(of: Clusters, slot: int, start: int | np.int64, slots: int) -> None:
    """Put into ``losses`` what merging loses with each slot from ``start`` on, feature by feature for all of them."""
    # Slices begin at 0, so that the compiler knows which indexes are not negative and takes several slots at once.
    shared, losses = of.shared[start:slots], of.losses[start:slots]
    totals, sizes = of.totals[start:slots], of.sizes[start:slots]
    shared[:] = 0
    for feature in range(len(of.weights)):
        if of.unions[feature, slot]:
            union, weight = of.unions[feature, start:slots], of.weights[feature]
            for other in range(slots - start):
                shared[other] += union[other] * weight
    size, total = of.sizes[slot], of.totals[slot]
    for other in range(slots - start):
        losses[other] = size * (totals[other] - shared[other]) + sizes[other] * (total - shared[other])


@part_of_a_loop
def _find_nearest(of: Clusters, slot: int, slots: int) -> None:
    """Compare a slot with all later ones."""
    _compare(of, slot, slot + 1, slots)
    _take_nearest(of, slot, slots)


@part_of_a_loop
def _take_nearest(of: Clusters, slot: int, slots: int) -> None:
    """Remember the nearest of the later slots, by their losses."""
    least, nearest = np.inf, -1
    for other in range(slot + 1, slots):
        if of.losses[other] < least:
            least, nearest = of.losses[other], other
    of.bound[slot], of.nearest[slot], of.stale[slot] = least, nearest, False


@part_of_a_loop
def _nearest_of_all(of: Clusters, slots: int) -> int:
    """The first slot of the pair whose merge loses least; of equal pairs the first."""
    while True:
        first = int(of.bound[:slots].argmin())
        if not of.stale[first]:
            return first
        _find_nearest(of, first, slots)


@part_of_a_loop
def _join(of: Clusters, first: int, second: int, slots: int) -> None:
    """Put ``second`` into ``first``; what was nearest to either has to look again."""
    total = np.float32(0)
    for feature in range(len(of.weights)):
        of.unions[feature, first] = max(of.unions[feature, first], of.unions[feature, second])
        total += of.unions[feature, first] * of.weights[feature]
    of.totals[first] = total
    of.sizes[first] += of.sizes[second]
    for slot in range(slots):
        if of.nearest[slot] == first or of.nearest[slot] == second:
            of.stale[slot] = True
    _empty(of, second)


@part_of_a_loop
def _meet_the_others(of: Clusters, slot: int, slots: int) -> None:
    """Compare a slot whose cluster is new with all others, which may be nearer to it than to what they had."""
    _compare(of, slot, np.int64(0), slots)
    for other in range(slot):
        loss = of.losses[other]
        if loss < of.bound[other]:
            of.bound[other], of.nearest[other], of.stale[other] = loss, slot, False
        elif loss == of.bound[other] and not of.stale[other] and of.nearest[other] > slot:
            of.nearest[other] = slot
    _take_nearest(of, slot, slots)


@part_of_a_loop
def _empty(of: Clusters, slot: int) -> None:
    of.totals[slot] = of.bound[slot] = np.inf
    of.nearest[slot], of.stale[slot] = -1, False


@part_of_a_loop
def _compact(of: Clusters, slots: int) -> int:
    """Move the clusters to the first slots; returns how many these are."""
    moved_to = np.empty(slots, dtype=np.int64)
    kept = 0
    for slot in range(slots):
        moved_to[slot] = -1
        if of.totals[slot] != np.inf:
            moved_to[slot] = kept
            of.sizes[kept], of.totals[kept], of.members[kept] = of.sizes[slot], of.totals[slot], of.members[slot]
            of.nearest[kept], of.bound[kept], of.stale[kept] = of.nearest[slot], of.bound[slot], of.stale[slot]
            kept += 1
    for feature in range(len(of.weights)):
        for slot in range(slots):
            if moved_to[slot] >= 0:
                of.unions[feature, moved_to[slot]] = of.unions[feature, slot]
    for slot in range(kept):
        if of.nearest[slot] >= 0:
            of.nearest[slot] = moved_to[of.nearest[slot]]
    return kept
