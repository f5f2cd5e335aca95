"""The lower bound is below what any blocking scans, and reached by the best one."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.model.vectors import VectorCounts, pack
from layoutopt.partitioning.bounds import blocking_lower_bound, scanned_lower_bound
from layoutopt.partitioning.objective import SkipSetObjective, scanned
from layoutopt.partitioning.registry import find_partitioner
from tests.partitioning.objectives import skip_set_objective
from tests.partitioning.segments import Segment, segments


@given(st.integers(1, 4), st.integers(1, 40), st.integers(0, 99))
def test_no_blocking_scans_less(n_blocks: int, block_rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = n_blocks * block_rows
    matches = rng.random((3, rows)) < rng.random((3, 1)) / 4
    weights = rng.integers(1, 4, 3).astype(np.float64)
    read = matches.reshape(3, n_blocks, block_rows).any(axis=2).sum(axis=1) * block_rows
    bound = scanned_lower_bound(matches.sum(axis=1)[:, None], np.array([rows]), block_rows, weights)
    assert bound <= weights @ read


def test_a_segment_smaller_than_a_block_is_a_block() -> None:
    assert scanned_lower_bound(np.array([[1]]), np.array([30]), 100, np.ones(1)) == 30


@given(segment=segments(max_vectors=25), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_no_blocks_of_vectors_scan_less(segment: Segment, seed: int) -> None:
    vectors, min_rows = segment.vectors, segment.min_rows
    objective = skip_set_objective(segment, seed)
    bound = blocking_lower_bound(objective, vectors, min_rows)
    for name in ("ward", "portfolio-low", "qdtree"):
        partition = find_partitioner(name)(vectors, segment.weights, min_rows, seed, objective)
        if int(partition.sizes().min()) >= min(min_rows, vectors.rows):
            assert bound <= scanned(objective, partition, vectors) + 1e-6


def test_the_bound_by_vectors_sees_what_the_one_by_queries_does_not() -> None:
    """Four vectors of one query each fill only half a block: whatever is joined, each row is read by two queries."""
    vectors = VectorCounts(pack(np.eye(4, dtype=bool)), np.full(4, 10), 4)
    objective = SkipSetObjective.of_matrix(np.eye(4, dtype=bool), np.ones(4), vectors.rows)
    one_query = objective.weights[0]
    assert blocking_lower_bound(objective, vectors, 10) == 40 * one_query
    assert blocking_lower_bound(objective, vectors, 20) == 80 * one_query
    assert blocking_lower_bound(objective, vectors, 30) == 4 * 30 * one_query
    best = find_partitioner("portfolio")(vectors, np.ones(4), 20, 0, objective)
    assert scanned(objective, best, vectors) == 80 * one_query
