"""Local search after a partitioner: clear blocks of features, move single vectors to other blocks, or exchange two.

Clearing is an ejection chain (Glover 1996): steps that may each cost something, kept where all of them save.
"""

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
_WORTH_A_PASS = 0.01  # of what all passes have saved: what is scanned is only known up to a constant


def refine(
    partition: Partition,
    vectors: VectorCounts,
    objective: Objective,
    min_rows: int,
    seed: int,
    max_passes: int = DEFAULT_PASSES,
) -> Partition:
    """A partition that scans no more rows, with sizes in the same bounds.

    In each pass every block is cleared once of every derived feature for which that pays, all shares (the rows of one
    vector in one block) that have it moving to where they cost least. Then every share may move once to the block where
    it lowers the objective most; where that block is full, or its own would be left too small, it is exchanged for the
    share there that lowers it most. Orders are drawn from the seed. A pass that saves next to nothing ends the search;
    so do ``max_passes``.

    Args:
        partition: blocks of ``[min_rows, 2 * min_rows)`` rows and at most one remainder, which may shrink and vanish.
        vectors: what was partitioned.
        objective: with integer weights, so that a gain is a gain on every machine.
        min_rows: the smallest block.
        seed: of the orders.
        max_passes: bounds the work: a pass looks at every block once or twice a share.
    """
    state = State(partition, derive(objective, vectors), min_rows)
    improve(state, np.random.default_rng(seed), max_passes)
    return state.partition()


def improve(state: State, rng: np.random.Generator, max_passes: int) -> None:
    """Pass over all blocks and shares until that saves next to nothing."""
    blocks, features = state.having.shape
    first = state.cost
    for _ in range(max_passes):
        before = state.cost
        state.clear_each(rng.permutation(blocks), rng.permutation(features))
        state.move_each(rng.permutation(len(state.rows)))
        if before - state.cost <= _WORTH_A_PASS * (first - state.cost):
            break


def refined_ward(
    vectors: VectorCounts, weights: Floats, min_rows: int, seed: int, objective: Objective | None = None
) -> Partition:
    """Ward's method, refined; a :class:`layoutopt.partitioning.partitioner.Partitioner`."""
    partition = ward(vectors, weights, min_rows, seed)
    return refine(partition, vectors, objective or FeatureObjective.of(weights, vectors.rows), min_rows, seed)
