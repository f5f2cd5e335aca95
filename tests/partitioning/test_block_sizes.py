"""Sizes: heavy vectors, the remainder, calibration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.model.arrays import Floats
from layoutopt.model.vectors import VectorCounts, pack
from layoutopt.partitioning.block_sizes import (
    blocking_lower_bound,
    calibrate_min_rows,
    join_remainder,
    min_rows_for,
    split_heavy,
)
from layoutopt.partitioning.objective import Objective, Partition
from layoutopt.partitioning.registry import find_partitioner
from layoutopt.partitioning.ward import ward
from tests.effort import examples
from tests.partitioning.objectives import of_subsumed, skip_set_objective
from tests.partitioning.segments import Segment, count_scanned, random_segment, segments


@given(st.lists(st.integers(1, 10_000), max_size=8), st.integers(1, 200))
def test_heavy_vectors_become_pure_blocks_of_the_right_size(counts: list[int], min_rows: int) -> None:
    partition = split_heavy(np.array(counts, dtype=np.int64), min_rows)
    assert len(set(partition.block.tolist())) == len(partition.block)  # one vector a block
    assert set(partition.vector.tolist()) == {v for v, count in enumerate(counts) if count >= min_rows}
    for vector in set(partition.vector.tolist()):
        sizes = partition.rows[partition.vector == vector]
        assert sizes.sum() == counts[vector]
        assert sizes.min() >= min_rows
        assert sizes.max() < 2 * min_rows
        assert sizes.max() - sizes.min() <= 1


def test_a_very_heavy_vector_gets_blocks_of_the_mean_size() -> None:
    partition = split_heavy(np.array([70_000]), min_rows_for(700))
    assert partition.n_blocks == 100


def test_the_remainder_joins_the_block_that_loses_least() -> None:
    bits = np.array([[1, 0, 0], [0, 1, 1], [0, 1, 0]], dtype=bool)
    partition = Partition.of(np.arange(3), np.arange(3), np.array([10, 12, 3]))
    joined = join_remainder(partition, bits, np.array([1.0, 1.0, 1.0]), min_rows=10)
    assert joined.block.tolist() == [0, 1, 1]


def test_the_remainder_stays_where_every_block_would_be_too_large() -> None:
    bits = np.array([[1, 0], [1, 1]], dtype=bool)
    partition = Partition.of(np.arange(2), np.arange(2), np.array([17, 3]))
    assert join_remainder(partition, bits, np.ones(2), min_rows=10).sizes().tolist() == [17, 3]
    assert join_remainder(partition, bits, np.ones(2), min_rows=11).sizes().tolist() == [20]


@pytest.mark.parametrize("block_rows", [60, 150, 400])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_calibrated_mean_is_within_a_tenth_of_the_one_wanted(block_rows: int, seed: int) -> None:
    samples = [random_segment(n_rows=12_000, n_features=10, seed=seed + k, min_rows=1) for k in (0, 10)]
    pairs = [(sample.vectors, sample.weights) for sample in samples]
    min_rows = calibrate_min_rows(ward, pairs, block_rows, seed=0)
    blocks = sum(ward(vectors, weights, min_rows, 0).n_blocks for vectors, weights in pairs)
    assert 24_000 / blocks == pytest.approx(block_rows, rel=0.1)


@pytest.mark.parametrize("mean_over_min", [1.05, 1.4, 1.9])
def test_calibration_finds_min_rows_whatever_the_partitioner_makes_of_it(mean_over_min: float) -> None:
    def always_so(
        vectors: VectorCounts, weights: Floats, min_rows: int, seed: int, objective: Objective | None = None
    ) -> Partition:
        n_blocks = round(vectors.rows / (min_rows * mean_over_min))
        return split_evenly(vectors.rows, n_blocks)

    sample = random_segment(n_rows=90_000, n_features=3, seed=0, min_rows=1)
    min_rows = calibrate_min_rows(always_so, [(sample.vectors, sample.weights)], 700, seed=0)
    assert min_rows * mean_over_min == pytest.approx(700, rel=0.035)


def split_evenly(rows: int, n_blocks: int) -> Partition:
    blocks = np.arange(n_blocks)
    return Partition.of(np.zeros(n_blocks, dtype=np.int64), blocks, rows // n_blocks + (blocks < rows % n_blocks))


def test_calibration_without_rows_is_the_usual_ratio() -> None:
    assert calibrate_min_rows(ward, [], 700, seed=0) == min_rows_for(700)


def test_calibration_refuses_blocks_without_rows() -> None:
    with pytest.raises(ValueError, match="block_rows is 0"):
        calibrate_min_rows(ward, [], 0, seed=0)


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
