"""Local search after a partitioner: move single vectors to other blocks, or exchange two."""

from __future__ import annotations

import numpy as np

from layoutopt.model.arrays import Floats
from layoutopt.model.vectors import VectorCounts
from layoutopt.partitioning.derived import derive
from layoutopt.partitioning.objective import FeatureObjective, Objective
from layoutopt.partitioning.partition import Partition
from layoutopt.partitioning.state import State
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
    the block where it lowers the objective most; where that block is full, or its own would be left too small, it is
    exchanged for the share there that lowers it most. A pass without a move ends the search; so do ``max_passes``.

    Args:
        partition: blocks of ``[min_rows, 2 * min_rows)`` rows and at most one remainder, which may shrink and vanish.
        vectors: what was partitioned.
        objective: with integer weights, so that a gain is a gain on every machine.
        min_rows: the smallest block.
        seed: of the order.
        max_passes: bounds the work: a pass looks at every block once a share.
    """
    state = State(partition, derive(objective, vectors), min_rows)
    improve(state, np.random.default_rng(seed), max_passes)
    return state.partition()


def improve(state: State, rng: np.random.Generator, max_passes: int) -> None:
    """Pass over all shares until none moves."""
    for _ in range(max_passes):
        if not state.move_each(rng.permutation(len(state.rows))):
            break


def refined_ward(
    vectors: VectorCounts, weights: Floats, min_rows: int, seed: int, objective: Objective | None = None
) -> Partition:
    """Ward's method, refined; a :class:`layoutopt.partitioning.partitioner.Partitioner`."""
    partition = ward(vectors, weights, min_rows, seed)
    return refine(partition, vectors, objective or FeatureObjective.of(weights, vectors.rows), min_rows, seed)
