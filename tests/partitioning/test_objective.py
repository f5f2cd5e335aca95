"""Partition and the routing of rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.model.vectors import VectorCounts
from layoutopt.partitioning import objective as module
from layoutopt.partitioning.objective import (
    DerivedObjective,
    FeatureObjective,
    Objective,
    Partition,
    assign_rows,
    derive,
    integer_weights,
)
from tests.partitioning.objectives import of_subsumed, skip_set_objective
from tests.partitioning.segments import Segment, count_scanned, random_segment, segments


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_blocks_are_numbered_by_their_smallest_vector_and_shares_summed() -> None:
    partition = Partition.of(ints(2, 0, 1, 0, 0), ints(7, 9, 7, 4, 9), ints(1, 2, 3, 4, 5))
    assert partition.vector.tolist() == [0, 0, 1, 2]
    assert partition.block.tolist() == [0, 1, 2, 2]
    assert partition.rows.tolist() == [4, 7, 3, 1]
    assert partition.sizes().tolist() == [4, 7, 4]


def test_a_share_without_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="0 rows"):
        Partition.of(ints(0), ints(0), ints(0))


def test_a_split_vector_is_cut_along_the_order() -> None:
    partition = Partition.of(ints(0, 0, 1), ints(0, 1, 2), ints(2, 3, 1))
    inverse = ints(0, 0, 1, 0, 0, 0)
    assert assign_rows(partition, inverse).tolist() == [0, 0, 2, 1, 1, 1]
    assert assign_rows(partition, inverse, ints(5, 4, 3, 2, 1, 0)).tolist() == [1, 1, 2, 1, 0, 0]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(1, 5)), max_size=12), st.randoms())
def test_each_block_gets_its_rows_of_each_vector(
    shares: list[tuple[int, int, int]], random: np.random.Generator
) -> None:
    columns = np.array(shares, dtype=np.int64).reshape(-1, 3).T
    partition = Partition.of(*columns)
    rows = np.repeat(partition.vector, partition.rows).tolist()
    random.shuffle(rows)
    inverse = np.array(rows, dtype=np.int64)
    block = assign_rows(partition, inverse)
    for vector, number, n_rows in zip(partition.vector, partition.block, partition.rows, strict=True):
        assert ((inverse == vector) & (block == number)).sum() == n_rows


@pytest.mark.parametrize("inverse", [ints(0, 0), ints(0, 0, 0, 1), ints(1, 1, 1)])
def test_rows_that_were_not_partitioned_are_refused(inverse: np.ndarray) -> None:
    with pytest.raises(ValueError, match="differ"):
        assign_rows(Partition.of(ints(0), ints(0), ints(3)), inverse)


def some_partitions(vectors: VectorCounts, seed: int, count: int = 4) -> list[Partition]:
    rng = np.random.default_rng(seed)
    n = len(vectors)
    return [Partition.of(np.arange(n), rng.integers(0, 1 + n // 2, n), vectors.counts) for _ in range(count)]


def all_in_one(vectors: VectorCounts) -> Partition:
    n = len(vectors)
    return Partition.of(np.arange(n), np.zeros(n, dtype=np.int64), vectors.counts)


def saved(derived: DerivedObjective, partition: Partition, vectors: VectorCounts) -> float:
    """Rows that queries skip, weighted, beyond those that they skip of all rows in one block."""
    return float(np.ldexp(derived.cost(all_in_one(vectors)) - derived.cost(partition), -derived.exponent))


def truly_saved(objective: Objective, partition: Partition, vectors: VectorCounts) -> float:
    return count_scanned(objective, all_in_one(vectors), vectors) - count_scanned(objective, partition, vectors)


@given(segment=segments(), seed=st.integers(0, 200))
def test_derived_features_save_what_queries_skip(segment: Segment, seed: int) -> None:
    vectors, objective = segment.vectors, skip_set_objective(segment, seed, n_skip_sets=5)
    derived = derive(objective, vectors)
    for partition in some_partitions(vectors, seed):
        assert derived.exact
        assert saved(derived, partition, vectors) == truly_saved(objective, partition, vectors)


@given(segment=segments(), seed=st.integers(0, 50))
def test_derived_features_of_equation_3_1_are_the_features(segment: Segment, seed: int) -> None:
    objective = FeatureObjective.of(segment.weights, segment.vectors.rows)
    derived = derive(objective, segment.vectors)
    for partition in some_partitions(segment.vectors, seed):
        assert derived.cost(partition) == count_scanned(objective, partition, segment.vectors)


def test_two_skip_sets_count_a_query_once() -> None:
    """Query 0 skips by feature 0 or by feature 1: together they make a derived feature of negative weight."""
    vectors = VectorCounts(np.array([[0b00], [0b01], [0b10]], dtype=np.uint64), np.array([5, 5, 5]), 2)
    objective = of_subsumed(np.array([[True, True]]), np.ones(1), vectors.rows)
    derived = derive(objective, vectors)
    assert sorted(np.sign(derived.weights)) == [-1, 1, 1]
    apart = Partition.of(np.arange(3), np.arange(3), vectors.counts)
    mixed = Partition.of(np.arange(3), np.array([0, 1, 1]), vectors.counts)
    assert derived.cost(mixed) > derived.cost(apart)  # the union of 01 and 10 has both bits, so the query reads it


def test_too_many_combinations_of_skip_sets_are_estimated_too_high_never_too_low(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    segment = random_segment(n_rows=300, n_features=12, seed=2, min_rows=20)
    vectors, objective = segment.vectors, skip_set_objective(segment, 5, n_queries=12, n_skip_sets=10)
    partitions = some_partitions(vectors, 0, 20)
    monkeypatch.setattr(module, "_MAX_DERIVED", 10)
    rough = derive(objective, vectors)
    assert len(rough.weights) <= 10
    assert not rough.exact
    estimated = [saved(rough, partition, vectors) for partition in partitions]
    true = [truly_saved(objective, partition, vectors) for partition in partitions]
    assert all(e <= t for e, t in zip(estimated, true, strict=True))
    assert estimated != true


@given(st.lists(st.integers(0, 5_000), min_size=1, max_size=64), st.integers(1, 10**8), st.integers(-4, 4))
def test_counts_and_their_binary_fractions_keep_their_ratios(counts: list[int], rows: int, power: int) -> None:
    weights = np.ldexp(np.array(counts, dtype=np.float64), power)
    exact = integer_weights(weights, rows)
    assert (exact == np.rint(exact)).all()
    assert (exact * weights.sum() == weights * exact.sum()).all()


@given(st.lists(st.floats(0, 1e9), max_size=64), st.integers(1, 10**9))
def test_sums_are_exact_in_the_types_that_hold_them(values: list[float], rows: int) -> None:
    weights = np.array(values, dtype=np.float64)
    exact = integer_weights(weights, rows)
    assert exact.sum() + len(exact) < 2**24
    assert 2 * rows * exact.sum() < 2**53 or exact.sum() <= len(exact)
    assert ((exact > 0) == (weights > 0)).all()
