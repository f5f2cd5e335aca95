"""Derived features: linear in them, the objective is the one that queries have."""

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
    count_scanned,
    derive,
)
from tests.partitioning.objectives import of_subsumed, skip_set_objective
from tests.partitioning.segments import Segment, random_segment, segments


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
