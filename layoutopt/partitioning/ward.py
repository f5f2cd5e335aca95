"""Ward's bottom-up clustering of feature vectors (Sun 2017, 3.4.4), exact.

Merging clusters ``i`` and ``j`` loses ``loss(i, j) = |i| (W_j - g_ij) + |j| (W_i - g_ij)``, the negative of Equation
3.5, where ``W`` is the weight of a cluster's union vector and ``g_ij`` the weight of the features both unions have.
Floats are integers, so every loss is exact.

The loss is not reducible (a merged cluster may be nearer to a third than either part was), so there is no
nearest-neighbour chain. Instead each cluster remembers its nearest later cluster and that loss. When the neighbour is
gone the loss remembered is still a lower bound, since what remains can't be nearer, and the only new cluster is
compared with everybody at once. So a cluster looks for its nearest again only when its bound is the smallest of all.
"""

from __future__ import annotations

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.model.vectors import VectorCounts
from layoutopt.partitioning.block_sizes import with_heavy
from layoutopt.partitioning.objective import Objective, Partition, integer_weights
from layoutopt.partitioning.partitioner import check_arguments


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
        bits: ``bool[d, t]``: features, or derived ones (:mod:`layoutopt.partitioning.objective`).
        weights: integers of which all sums are exact in float32, ``float64[t]``.
        min_rows: the smallest block.
    """
    if int(counts.sum()) < 2 * min_rows:  # one block, whatever is merged first
        return Partition.of(np.arange(len(counts)), np.zeros(len(counts), dtype=np.int64), counts)
    light = counts < min_rows
    labels = cluster(bits[light], counts[light], weights, min_rows)
    return with_heavy(counts, labels, bits, weights, min_rows)


def cluster(bits: Bits, sizes: Ints, weights: Floats, min_rows: int) -> Ints:
    """The cluster of each vector, named by its first member, ``int64[n]``.

    Args:
        bits: the vectors, ``bool[n, f]``.
        sizes: rows of each, ``int64[n]``, all below ``min_rows``.
        weights: integers of which all sums are exact in float32, ``float64[f]``; some may be negative.
        min_rows: a cluster of so many rows is merged no further.
    """
    n = len(bits)
    if n < 2:
        return np.arange(n)
    # Compiling takes its time to be imported, which nothing else here needs.
    from layoutopt.partitioning.ward_loops import Clusters, merge_all

    clusters = Clusters(
        weights=weights.astype(np.float32),
        unions=bits.T.astype(np.float32, order="C"),
        sizes=sizes.astype(np.float64),
        totals=bits @ weights,
        members=np.arange(n),
        nearest=np.full(n, -1),
        bound=np.full(n, np.inf),
        stale=np.zeros(n, dtype=np.bool_),
        shared=np.zeros(n, dtype=np.float32),
        losses=np.zeros(n),
    )
    return merge_all(clusters, min_rows)
