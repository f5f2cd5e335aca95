"""Ward's bottom-up clustering of feature vectors (Sun 2017, 3.4.4), exact.

Merging clusters ``i`` and ``j`` loses ``loss(i, j) = |i| (W_j - g_ij) + |j| (W_i - g_ij)``, the negative of Equation
3.5. ``W`` is the weight of a cluster's union vector, and ``g_ij`` the weight of the features that both unions have.
Floats are integers, so every loss is exact.

The loss is not reducible (a merged cluster may be nearer to a third than either part was), so nearest-neighbour chains
don't apply. Instead each cluster remembers its nearest later cluster and that loss. If the neighbour is gone, the
remembered loss is still a lower bound, since a new cluster is compared with all clusters at once. So a cluster
searches its nearest again only when its bound is the smallest of all.
"""

from __future__ import annotations

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.model.vectors import VectorCounts
from layoutopt.partitioning.block_sizes import add_heavy_blocks
from layoutopt.partitioning.objective import Objective, Partition, integer_weights
from layoutopt.partitioning.partitioner import check_arguments


def ward(
    vectors: VectorCounts, weights: Floats, min_rows: int, seed: int, objective: Objective | None = None
) -> Partition:
    """Return blocks by Ward's method; a :class:`layoutopt.partitioning.partitioner.Partitioner`.

    Vectors of at least ``min_rows`` rows (minSize in the text) become blocks of their own first. Of the rest, the pair
    that loses least is merged repeatedly (of equal pairs the first in the order of the vectors); a block that reaches
    ``min_rows`` is done. Seed and objective are not used: the loss is Equation 3.5.
    """
    check_arguments(vectors, weights, min_rows)
    return ward_over_bits(vectors.counts, vectors.bits(), integer_weights(weights, vectors.rows), min_rows)


def ward_over_bits(counts: Ints, bits: Bits, weights: Floats, min_rows: int) -> Partition:
    """Return blocks by Ward's method over features or derived ones (:mod:`layoutopt.partitioning.objective`).

    Weights are integers of which all sums are exact in float32.
    """
    if int(counts.sum()) < 2 * min_rows:  # one block in any case
        return Partition.of(np.arange(len(counts)), np.zeros(len(counts), dtype=np.int64), counts)
    light = counts < min_rows
    labels = cluster(bits[light], counts[light], weights, min_rows)
    return add_heavy_blocks(counts, labels, bits, weights, min_rows)


def cluster(bits: Bits, sizes: Ints, weights: Floats, min_rows: int) -> Ints:
    """Return the cluster of each vector, named by its first member, ``int64[d]``.

    All sizes are below ``min_rows``; a cluster of so many rows is merged no further. Weights are integers of which all
    sums are exact in float32; some may be negative.
    """
    n = len(bits)
    if n < 2:
        return np.arange(n)
    # Imported here, since importing the compiler takes long.
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
