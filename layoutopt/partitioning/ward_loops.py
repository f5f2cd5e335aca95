"""The merging of :mod:`layoutopt.partitioning.ward`, pair by pair, as compiled loops."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from layoutopt.evaluation.native import compile_loop, compile_loop_helper
from layoutopt.model.arrays import Bits, Floats, Ints, Singles

# Cluster slots are compacted when one in this many is empty.
_COMPACT_SHARE = 8


class Clusters(NamedTuple):
    """Clusters that may still be merged, one a slot, in the order of their first members.

    Attributes:
        weights: of the features, ``float32[f]``.
        unions: union vectors, a feature a row, ``float32[f, n]``.
        sizes: rows, ``float64[n]``.
        totals: the weight of each union, ``float64[n]``; infinite where a slot is empty.
        members: a slot's first member, ``int64[n]``.
        nearest: the nearest later slot, ``int64[n]``; -1 where there is none.
        bound: at most the loss with that slot, ``float64[n]``.
        stale: where the loss may be less, ``bool[n]``.
        shared, losses: a buffer for one slot: the weight of the features shared with each slot, ``float32[n]``, and
            the loss of merging, ``float64[n]``.
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


@compile_loop
def merge_all(clusters: Clusters, min_rows: int) -> Ints:
    """Merge the nearest pair until at most one cluster is left; those of ``min_rows`` rows leave.

    The arrays are changed. Return the first member of each vector's cluster, ``int64[n]``.
    """
    slots = alive = len(clusters.sizes)
    parent = np.arange(slots)
    for slot in range(slots):
        _find_nearest(clusters, slot, slots)
    while alive > 1:
        first = _find_nearest_pair(clusters, slots)
        second = clusters.nearest[first]
        parent[clusters.members[second]] = clusters.members[first]
        _join(clusters, first, second, slots)
        alive -= 1
        if clusters.sizes[first] >= min_rows:
            _clear_slot(clusters, first)
            alive -= 1
        else:
            _compare_new(clusters, first, slots)
        if alive * _COMPACT_SHARE < slots * (_COMPACT_SHARE - 1):
            slots = _compact(clusters, slots)
    for vector in range(len(parent)):  # parents precede their children
        parent[vector] = parent[parent[vector]]
    return parent


@compile_loop_helper
def _compare(clusters: Clusters, slot: int, start: int | np.int64, slots: int) -> None:
    """Put into ``losses`` the loss of merging with each slot from ``start`` on, feature by feature."""
    # Slices begin at 0: then the compiler knows that indexes are not negative, and vectorises.
    shared, losses = clusters.shared[start:slots], clusters.losses[start:slots]
    totals, sizes = clusters.totals[start:slots], clusters.sizes[start:slots]
    shared[:] = 0
    for feature in range(len(clusters.weights)):
        if clusters.unions[feature, slot]:
            union, weight = clusters.unions[feature, start:slots], clusters.weights[feature]
            for k in range(slots - start):
                shared[k] += union[k] * weight
    size, total = clusters.sizes[slot], clusters.totals[slot]
    for k in range(slots - start):
        losses[k] = size * (totals[k] - shared[k]) + sizes[k] * (total - shared[k])


@compile_loop_helper
def _find_nearest(clusters: Clusters, slot: int, slots: int) -> None:
    _compare(clusters, slot, slot + 1, slots)
    _store_nearest(clusters, slot, slots)


@compile_loop_helper
def _store_nearest(clusters: Clusters, slot: int, slots: int) -> None:
    least, nearest = np.inf, -1
    for later in range(slot + 1, slots):
        if clusters.losses[later] < least:
            least, nearest = clusters.losses[later], later
    clusters.bound[slot], clusters.nearest[slot], clusters.stale[slot] = least, nearest, False


@compile_loop_helper
def _find_nearest_pair(clusters: Clusters, slots: int) -> int:
    """Return the first slot of the pair whose merge loses least; of equal pairs the first."""
    while True:
        first = int(clusters.bound[:slots].argmin())
        if not clusters.stale[first]:
            return first
        _find_nearest(clusters, first, slots)


@compile_loop_helper
def _join(clusters: Clusters, first: int, second: int, slots: int) -> None:
    """Put ``second`` into ``first``; slots whose nearest is either become stale."""
    total = np.float32(0)
    for feature in range(len(clusters.weights)):
        clusters.unions[feature, first] = max(clusters.unions[feature, first], clusters.unions[feature, second])
        total += clusters.unions[feature, first] * clusters.weights[feature]
    clusters.totals[first] = total
    clusters.sizes[first] += clusters.sizes[second]
    for slot in range(slots):
        if clusters.nearest[slot] == first or clusters.nearest[slot] == second:
            clusters.stale[slot] = True
    _clear_slot(clusters, second)


@compile_loop_helper
def _compare_new(clusters: Clusters, slot: int, slots: int) -> None:
    """Compare a new cluster with all slots; it may be nearer to them than their present neighbours."""
    _compare(clusters, slot, np.int64(0), slots)
    for k in range(slot):
        loss = clusters.losses[k]
        if loss < clusters.bound[k]:
            clusters.bound[k], clusters.nearest[k], clusters.stale[k] = loss, slot, False
        elif loss == clusters.bound[k] and not clusters.stale[k] and clusters.nearest[k] > slot:
            clusters.nearest[k] = slot
    _store_nearest(clusters, slot, slots)


@compile_loop_helper
def _clear_slot(clusters: Clusters, slot: int) -> None:
    clusters.totals[slot] = clusters.bound[slot] = np.inf
    clusters.nearest[slot], clusters.stale[slot] = -1, False


@compile_loop_helper
def _compact(clusters: Clusters, slots: int) -> int:
    """Move the clusters to the first slots; return how many there are."""
    moved_to = np.empty(slots, dtype=np.int64)
    kept = 0
    for slot in range(slots):
        moved_to[slot] = -1
        if clusters.totals[slot] != np.inf:
            moved_to[slot] = kept
            clusters.sizes[kept], clusters.totals[kept], clusters.members[kept] = (
                clusters.sizes[slot],
                clusters.totals[slot],
                clusters.members[slot],
            )
            clusters.nearest[kept], clusters.bound[kept], clusters.stale[kept] = (
                clusters.nearest[slot],
                clusters.bound[slot],
                clusters.stale[slot],
            )
            kept += 1
    for feature in range(len(clusters.weights)):
        for slot in range(slots):
            if moved_to[slot] >= 0:
                clusters.unions[feature, moved_to[slot]] = clusters.unions[feature, slot]
    for slot in range(kept):
        if clusters.nearest[slot] >= 0:
            clusters.nearest[slot] = moved_to[clusters.nearest[slot]]
    return kept
