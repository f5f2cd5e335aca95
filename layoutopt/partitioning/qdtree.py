"""Cut vectors greedily by features, top down: a qd-tree (Yang et al., SIGMOD 2020)."""

from __future__ import annotations

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.model.vectors import VectorCounts
from layoutopt.partitioning.block_sizes import add_heavy_blocks
from layoutopt.partitioning.local_search import State, fit_sizes, join_leaves
from layoutopt.partitioning.objective import DerivedObjective, FeatureObjective, Objective, Partition, derive
from layoutopt.partitioning.partitioner import check_arguments
from layoutopt.partitioning.ward import ward_over_bits


def qdtree(
    vectors: VectorCounts, weights: Floats, min_rows: int, seed: int, objective: Objective | None = None
) -> Partition:
    """Return the leaves of a qd-tree as blocks; a :class:`layoutopt.partitioning.partitioner.Partitioner`.

    Ward's method cuts a leaf that no cut helps but that is too large, and joins leftovers to other blocks, so sizes
    are as usual.
    """
    check_arguments(vectors, weights, min_rows)
    derived = derive(objective or FeatureObjective.of(weights, vectors.rows), vectors)
    light = np.flatnonzero(vectors.counts < min_rows)
    light_derived, rows = derived.select(light), vectors.counts[light]
    leaves = cut_greedily(light_derived, vectors.bits()[light], rows, min_rows)
    start = add_heavy_blocks(
        vectors.counts, join_leaves(leaves, light_derived, rows, min_rows), derived.bits, derived.weights, min_rows
    )
    state = State(start, derived, min_rows)
    if fit_sizes(state, start.n_blocks):
        return state.partition()
    return ward_over_bits(vectors.counts, derived.bits, derived.weights, min_rows)


def cut_greedily(derived: DerivedObjective, cuts: Bits, rows: Ints, min_rows: int) -> Ints:
    """Return the leaf of each vector, ``int64[d]``, of a tree whose every cut skips the most.

    A cut separates the vectors with a feature (``cuts``, ``bool[d, f]``) from the rest. A node is cut as long as some
    cut lowers the rows scanned and leaves ``min_rows`` on both sides.
    """
    leaf = np.zeros(len(rows), dtype=np.int64)
    open_nodes = [np.arange(len(rows))] if len(rows) else []
    n_leaves = 0
    while open_nodes:
        node = open_nodes.pop()
        cut = _find_best_cut(derived.bits[node], cuts[node], rows[node], derived.weights, min_rows)
        if cut < 0:
            leaf[node] = n_leaves
            n_leaves += 1
        else:
            has = cuts[node, cut]
            open_nodes += [node[has], node[~has]]
    return leaf


def _find_best_cut(bits: Bits, cuts: Bits, rows: Ints, weights: Floats, min_rows: int) -> int:
    """Return the cut that lowers the rows scanned most, of equal cuts the first; -1 if there is none."""
    total = int(rows.sum())
    having = rows @ cuts
    allowed = np.flatnonzero((having >= min_rows) & (total - having >= min_rows))
    if not len(allowed):
        return -1
    cuts = cuts[:, allowed].astype(np.float32)
    ones = bits.astype(np.float32)
    with_cut = (cuts.T @ ones > 0) @ weights  # of the side that has the feature, float64[allowed]
    without = ((1 - cuts).T @ ones > 0) @ weights
    costs = having[allowed] * with_cut + (total - having[allowed]) * without
    best = int(costs.argmin())
    return int(allowed[best]) if costs[best] < total * float(bits.any(axis=0) @ weights) else -1
