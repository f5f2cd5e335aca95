"""The lower bound is below what any blocking scans, and reached by the best one."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.model.vectors import VectorCounts, pack
from layoutopt.partitioning.block_sizes import blocking_lower_bound
from layoutopt.partitioning.objective import count_scanned
from layoutopt.partitioning.registry import find_partitioner
from tests.effort import examples
from tests.partitioning.objectives import of_subsumed, skip_set_objective
from tests.partitioning.segments import Segment, segments


@given(segment=segments(max_vectors=25), seed=st.integers(0, 99))
@settings(max_examples=examples(30), deadline=None)
def test_no_blocks_of_vectors_scan_less(segment: Segment, seed: int) -> None:
    vectors, min_rows = segment.vectors, segment.min_rows
    objective = skip_set_objective(segment, seed)
    bound = blocking_lower_bound(objective, vectors, min_rows)
    for name in ("ward", "portfolio-low", "qdtree"):
        partition = find_partitioner(name)(vectors, segment.weights, min_rows, seed, objective)
        if int(partition.sizes().min()) >= min(min_rows, vectors.rows):
            assert bound <= count_scanned(objective, partition, vectors) + 1e-6


def test_the_bound_by_vectors_sees_what_the_one_by_queries_does_not() -> None:
    """Four vectors of one query each fill only half a block: whatever is joined, each row is read by two queries."""
    vectors = VectorCounts(pack(np.eye(4, dtype=bool)), np.full(4, 10), 4)
    objective = of_subsumed(np.eye(4, dtype=bool), np.ones(4), vectors.rows)
    one_query = objective.weights[0]
    assert blocking_lower_bound(objective, vectors, 10) == 40 * one_query
    assert blocking_lower_bound(objective, vectors, 20) == 80 * one_query
    assert blocking_lower_bound(objective, vectors, 30) == 4 * 30 * one_query
    best = find_partitioner("portfolio")(vectors, np.ones(4), 20, 0, objective)
    assert count_scanned(objective, best, vectors) == 80 * one_query
