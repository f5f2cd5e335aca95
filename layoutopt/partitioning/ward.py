"""Ward's bottom-up clustering of feature vectors (Sun 2017, 3.4.4), exact, on whole arrays.

Merging clusters ``i`` and ``j`` loses ``loss(i, j) = |i| (W_j - g_ij) + |j| (W_i - g_ij)``, the negative of Equation
3.5, where ``W`` is the weight of a cluster's union vector and ``g_ij`` the weight of the features both unions have.
All ``g`` of a cluster are one product of a matrix and a vector. Floats are integers, so every loss is exact.

The loss is not reducible (a merged cluster may be nearer to a third than either part was), so there is no
nearest-neighbour chain. Instead each cluster remembers its nearest later cluster and that loss. When the neighbour is
gone the loss remembered is still a lower bound, since what remains can't be nearer, and the only new cluster is
compared with everybody at once. So a cluster looks for its nearest again only when its bound is the smallest of all.
"""

from __future__ import annotations

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints, Singles
from layoutopt.model.vectors import VectorCounts
from layoutopt.partitioning.balance import with_heavy
from layoutopt.partitioning.objective import Objective
from layoutopt.partitioning.partition import Partition
from layoutopt.partitioning.partitioner import check_arguments
from layoutopt.partitioning.weights import integer_weights

# Rows of the matrix of losses held at once while the first neighbours are found: few enough to stay in a cache.
_CHUNK = 64
# Cluster slots are compacted when so many of them (one in ...) are empty.
_COMPACT_AT = 8


def ward(
    vectors: VectorCounts, weights: Floats, min_rows: int, seed: int, objective: Objective | None = None
) -> Partition:
    """Blocks by Ward's method; a :class:`layoutopt.partitioning.partitioner.Partitioner`.

    Vectors of at least ``min_rows`` rows become blocks of their own first. Of the others the pair that loses least is
    merged again and again (of equal pairs the first in the order of the vectors); a block that has ``min_rows`` leaves.

    The text calls ``min_rows`` minSize. There is no chance in it, so the seed is not used, nor the objective: the loss
    is Equation 3.5.
    """
    check_arguments(vectors, weights, min_rows)
    return ward_by(vectors.counts, vectors.bits(), integer_weights(weights, vectors.rows), min_rows)


def ward_by(counts: Ints, bits: Bits, weights: Floats, min_rows: int) -> Partition:
    """Blocks by Ward's method over any bits of the vectors.

    Args:
        counts: rows of every vector, ``int64[d]``.
        bits: ``bool[d, t]``: features, or derived ones (:mod:`layoutopt.partitioning.derived`).
        weights: integers of which all sums are exact in float32, ``float64[t]``.
        min_rows: the smallest block.
    """
    light = counts < min_rows
    labels = cluster(bits[light], counts[light], weights, min_rows)
    return with_heavy(counts, labels, bits, weights, min_rows)


def cluster(bits: Bits, sizes: Ints, weights: Floats, min_rows: int) -> Ints:
    """The cluster of each vector, named by its first member, ``int64[n]``.

    Args:
        bits: the vectors, ``bool[n, f]``.
        sizes: rows of each, ``int64[n]``, all below ``min_rows``.
        weights: integers from :func:`layoutopt.partitioning.weights.integer_weights`.
        min_rows: a cluster of so many rows is merged no further.
    """
    clusters = _Clusters(bits, sizes, weights)
    while clusters.alive > 1:
        first, second = clusters.nearest_pair()
        clusters.merge(first, second, min_rows)
    return clusters.labels()


class _Clusters:
    """Clusters that may still be merged, one a slot, in the order of their first members.

    An empty slot has an infinite ``total``, hence an infinite loss with everybody.
    """

    def __init__(self, bits: Bits, sizes: Ints, weights: Floats) -> None:
        self.weights = weights.astype(np.float32)
        self.unions: Singles = bits.astype(np.float32)
        self.sizes: Floats = sizes.astype(np.float64)
        self.totals: Floats = bits @ weights
        self.members: Ints = np.arange(len(bits))  # a slot's first member
        self.parent: Ints = np.arange(len(bits))
        self.alive = len(bits)
        self.bound: Floats = np.full(len(bits), np.inf)  # at most the loss with the nearest later slot
        self.nearest: Ints = np.full(len(bits), -1)
        self.stale: Bits = np.zeros(len(bits), dtype=np.bool_)  # the bound is no more than a lower bound
        for start in range(0, len(bits), _CHUNK):
            self._find_nearest(start, min(start + _CHUNK, len(bits)))

    def nearest_pair(self) -> tuple[int, int]:
        """The two slots whose merge loses least; of equal pairs the first."""
        while True:
            first = int(self.bound.argmin())
            if not self.stale[first]:
                return first, int(self.nearest[first])
            self._find_again(first)

    def merge(self, first: int, second: int, min_rows: int) -> None:
        """Put ``second`` into ``first``, which leaves as well when it has ``min_rows`` rows."""
        self.parent[self.members[second]] = self.members[first]
        np.maximum(self.unions[first], self.unions[second], out=self.unions[first])
        self.sizes[first] += self.sizes[second]
        self.totals[first] = float(self.unions[first] @ self.weights)
        self.stale |= (self.nearest == first) | (self.nearest == second)
        self._empty(second)
        if self.sizes[first] >= min_rows:
            self._empty(first)
        else:
            self._meet_the_others(first)
        if self.alive * _COMPACT_AT < len(self.sizes) * (_COMPACT_AT - 1):
            self._compact()

    def labels(self) -> Ints:
        """The first member of each vector's cluster."""
        labels = self.parent.copy()
        for vector in range(len(labels)):  # parents come before their children
            labels[vector] = labels[labels[vector]]
        return labels

    def _losses(self, rows: slice, start: int) -> Floats:
        """The losses of these slots with all slots from ``start`` on, ``float64[rows, slots - start]``."""
        shared = (self.unions[rows] * self.weights) @ self.unions[start:].T
        losses: Floats = self.totals[start:] - shared
        losses *= self.sizes[rows, None]
        rest = self.totals[rows, None] - shared
        rest *= self.sizes[start:]
        losses += rest
        return losses

    def _find_nearest(self, start: int, stop: int) -> None:
        """Find anew the nearest later slot of the slots from ``start`` to ``stop``."""
        losses = self._losses(slice(start, stop), start)
        losses[:, : stop - start][np.tri(stop - start, dtype=np.bool_)] = np.inf  # itself and what is before it
        nearest = losses.argmin(axis=1)
        self.nearest[start:stop] = nearest + start
        self.bound[start:stop] = losses[np.arange(stop - start), nearest]
        self.stale[start:stop] = False

    def _find_again(self, slot: int) -> None:
        """The same of one slot."""
        losses = self._losses(slice(slot, slot + 1), slot)[0]
        losses[0] = np.inf
        nearest = int(losses.argmin())
        self.nearest[slot], self.bound[slot], self.stale[slot] = nearest + slot, losses[nearest], False

    def _meet_the_others(self, slot: int) -> None:
        """Compare a slot whose cluster is new with all others."""
        losses = self._losses(slice(slot, slot + 1), 0)[0]
        before = losses[:slot]
        nearer = before < self.bound[:slot]
        as_near_and_first = (before == self.bound[:slot]) & ~self.stale[:slot] & (self.nearest[:slot] > slot)
        self.bound[:slot][nearer] = before[nearer]
        self.nearest[:slot][nearer | as_near_and_first] = slot
        self.stale[:slot][nearer] = False
        self.bound[slot] = np.inf
        if slot + 1 < len(losses):
            nearest = slot + 1 + int(losses[slot + 1 :].argmin())
            self.bound[slot], self.nearest[slot] = losses[nearest], nearest
        self.stale[slot] = False

    def _empty(self, slot: int) -> None:
        self.unions[slot] = 0
        self.totals[slot] = self.bound[slot] = np.inf
        self.stale[slot] = False
        self.nearest[slot] = -1
        self.alive -= 1

    def _compact(self) -> None:
        kept = np.isfinite(self.totals)
        slot_of = np.cumsum(kept) - 1
        gone = ~np.append(kept, False)[self.nearest]  # -1 finds the False at the end
        self.nearest = np.where(gone, -1, slot_of[self.nearest])[kept]
        self.unions, self.sizes, self.totals = self.unions[kept], self.sizes[kept], self.totals[kept]
        self.members, self.bound, self.stale = self.members[kept], self.bound[kept], self.stale[kept]
