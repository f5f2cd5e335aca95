"""Cut vectors greedily by features, top down: a qd-tree (Yang et al., SIGMOD 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints, Singles
from layoutopt.model.vectors import VectorCounts
from layoutopt.partitioning.block_sizes import add_heavy_blocks
from layoutopt.partitioning.local_search import State, fit_sizes, join_leaves
from layoutopt.partitioning.objective import DerivedObjective, FeatureObjective, Objective, Partition, derive
from layoutopt.partitioning.partitioner import check_arguments
from layoutopt.partitioning.ward import ward_over_bits

# Counts of nodes with so few vectors are not kept: counting again is cheap, and open nodes may be many.
_FEW_VECTORS: Final = 256


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
    tree = _Tree(derived.bits.astype(np.float32), cuts.astype(np.float32), rows.astype(np.float64), derived.weights)
    leaf = np.zeros(len(rows), dtype=np.int64)
    open_nodes: list[tuple[Ints, _Counts | None]] = [(np.arange(len(rows)), None)]
    n_leaves = 0
    while open_nodes:
        members, known = open_nodes.pop()
        cut, counts = tree.find_best_cut(known or tree.count(members, np.arange(cuts.shape[1])), min_rows)
        if cut < 0:
            leaf[members] = n_leaves
            n_leaves += 1
        else:
            has = cuts[members, cut]
            sides = members[has], members[~has]
            open_nodes += zip(sides, tree.count_sides(sides, counts), strict=True)
    return leaf


class _Counts(NamedTuple):
    """What is counted of the vectors of a node; sums of integers, which floats hold exactly.

    Attributes:
        cuts: the cuts that may be possible, ascending, ``int64[c]``.
        rows: of the node.
        having: the rows with each cut's feature, ``float64[c]``.
        present: how many vectors have each derived feature, ``float32[t]``.
        shared: how many of them have each cut's feature, ``float32[c, t]``.
    """

    cuts: Ints
    rows: float
    having: Floats
    present: Singles
    shared: Singles

    def without(self, part: _Counts) -> _Counts:
        """Return the counts of the rest of the vectors."""
        return _Counts(
            self.cuts,
            self.rows - part.rows,
            self.having - part.having,
            self.present - part.present,
            self.shared - part.shared,
        )


@dataclass(frozen=True, eq=False)
class _Tree:
    """The vectors of a tree: their derived bits, the features to cut by, ``float32[d, ...]``, and their rows.

    Of two sides of a cut only the smaller one is counted.
    """

    bits: Singles
    cuts: Singles
    rows: Floats
    weights: Floats

    def count(self, members: Ints, cuts: Ints) -> _Counts:
        """Count some vectors."""
        bits, having, rows = self.bits[members], self.cuts[members][:, cuts], self.rows[members]
        return _Counts(cuts, float(rows.sum()), rows @ having, bits.sum(axis=0), having.T @ bits)

    def count_sides(self, sides: tuple[Ints, Ints], counts: _Counts) -> list[_Counts | None]:
        """Count both sides of a node; None for few vectors, which are counted when they are needed."""
        small = int(len(sides[1]) < len(sides[0]))
        if len(sides[1 - small]) <= _FEW_VECTORS:
            return [None, None]
        smaller = self.count(sides[small], counts.cuts)
        larger = counts.without(smaller)
        kept = smaller if len(sides[small]) > _FEW_VECTORS else None
        return [larger, kept] if small else [kept, larger]

    def find_best_cut(self, counts: _Counts, min_rows: int) -> tuple[int, _Counts]:
        """Return the cut that lowers the rows scanned most, of equal cuts the first; -1 if there is none.

        Also return the counts of the cuts that are possible: others are not possible in parts of the node either.
        """
        possible = (counts.having >= min_rows) & (counts.rows - counts.having >= min_rows)
        if not possible.any():
            return -1, counts
        cuts, having, shared = counts.cuts[possible], counts.having[possible], counts.shared[possible]
        counts = counts._replace(cuts=cuts, having=having, shared=shared)
        with_cut = (shared > 0) @ self.weights  # of the side that has the feature, float64[c]
        without = (shared < counts.present) @ self.weights
        costs = having * with_cut + (counts.rows - having) * without
        best = int(costs.argmin())
        gains = costs[best] < counts.rows * float((counts.present > 0) @ self.weights)
        return (int(cuts[best]) if gains else -1), counts
