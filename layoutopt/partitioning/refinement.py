"""Local search after a partitioner: move single vectors to other blocks while that lowers an objective (DESIGN 8)."""

from __future__ import annotations

import numpy as np

from layoutopt.model.vectors import Bits, Ints, VectorCounts
from layoutopt.partitioning.objective import FeatureObjective, Objective
from layoutopt.partitioning.partition import Partition, Weights
from layoutopt.partitioning.ward import ward

DEFAULT_PASSES = 8


def refine(
    partition: Partition,
    vectors: VectorCounts,
    objective: Objective,
    min_rows: int,
    seed: int,
    max_passes: int = DEFAULT_PASSES,
) -> Partition:
    """A partition that scans no more rows, with sizes in the same bounds.

    In each pass every share (the rows of one vector in one block) may move once, in an order drawn from the seed, to
    the block where it lowers the objective most. A pass without a move ends the search; so do ``max_passes``.

    Args:
        partition: blocks of ``[min_rows, 2 * min_rows)`` rows and at most one remainder, which may shrink and vanish.
        vectors: what was partitioned.
        objective: with integer weights, so that a gain is a gain on every machine.
        min_rows: the smallest block.
        seed: of the order.
        max_passes: bounds the work: a pass evaluates the objective once a share.
    """
    search = _Search(partition, vectors, objective, min_rows)
    rng = np.random.default_rng(seed)
    for _ in range(max_passes):
        moves = [search.try_to_move(int(share)) for share in rng.permutation(len(search.rows))]
        if not any(moves):
            break
    return Partition.of(partition.vector, search.block, search.rows)


def refined_ward(vectors: VectorCounts, weights: Weights, min_rows: int, seed: int) -> Partition:
    """Ward's method, refined for Equation 3.1; a :class:`layoutopt.partitioning.partition.Partitioner`."""
    partition = ward(vectors, weights, min_rows, seed)
    return refine(partition, vectors, FeatureObjective.of(weights, vectors.rows), min_rows, seed)


class _Search:
    """The state of a local search: shares, blocks, and how many shares of each block have each feature."""

    def __init__(self, partition: Partition, vectors: VectorCounts, objective: Objective, min_rows: int) -> None:
        self.objective = objective
        self.min_rows = min_rows
        self.rows: Ints = partition.rows
        self.block: Ints = partition.block.copy()
        self.bits: Bits = vectors.bits()[partition.vector]
        self.sizes: Ints = partition.sizes()
        self.having: Ints = np.zeros((partition.n_blocks, vectors.n_features), dtype=np.int64)
        np.add.at(self.having, self.block, self.bits.astype(np.int64))
        self.reading: Weights = objective.reading(self.having > 0)
        self.alone: Weights = objective.reading(self.bits)

    def try_to_move(self, share: int) -> bool:
        """Move a share to the block where it costs least, if that costs less than where it is."""
        source, rows, bits = int(self.block[share]), int(self.rows[share]), self.bits[share]
        left = int(self.sizes[source]) - rows
        if left < self.min_rows <= self.sizes[source]:
            return False
        without = self.having[source] - bits > 0
        reading_without = float(self.objective.reading(without[None])[0])
        saved = float(self.sizes[source] * self.reading[source]) - left * reading_without
        if saved <= rows * self.alone[share]:  # a row costs at least that wherever it is
            return False
        targets = np.flatnonzero((self.sizes + rows < 2 * self.min_rows) & (self.sizes > 0))
        targets = targets[targets != source]
        if not len(targets):
            return False
        reading_with = self.objective.reading((self.having[targets] > 0) | bits)
        costs = (self.sizes[targets] + rows) * reading_with - self.sizes[targets] * self.reading[targets]
        best = int(costs.argmin())
        if costs[best] >= saved:
            return False
        self._move(share, int(targets[best]), reading_without, float(reading_with[best]))
        return True

    def _move(self, share: int, target: int, reading_source: float, reading_target: float) -> None:
        source = int(self.block[share])
        for block, sign in ((source, -1), (target, 1)):
            self.sizes[block] += sign * self.rows[share]
            self.having[block] += sign * self.bits[share].astype(np.int64)
        self.reading[source], self.reading[target] = reading_source, reading_target
        self.block[share] = target
