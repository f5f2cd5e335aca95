"""Local search: it keeps its promises and its counters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.model.vectors import VectorCounts, pack
from layoutopt.partitioning.local_search import State, refine
from layoutopt.partitioning.objective import (
    FeatureObjective,
    Objective,
    Partition,
    SkipSetObjective,
    count_scanned,
    derive,
)
from layoutopt.partitioning.ward import ward
from tests.partitioning.objectives import of_subsumed, skip_set_objective
from tests.partitioning.segments import Segment, random_segment, segments


@given(segment=segments(), seed=st.integers(0, 20), skip_sets=st.booleans())
def test_refining_never_scans_more_and_keeps_the_sizes(segment: Segment, seed: int, skip_sets: bool) -> None:
    vectors, min_rows = segment.vectors, segment.min_rows
    objective: Objective = skip_set_objective(segment, seed)
    if not skip_sets:
        objective = FeatureObjective.of(segment.weights, vectors.rows)
    before = ward(vectors, np.zeros(vectors.n_features), min_rows, 0)  # without weights any merge will do
    after = refine(before, vectors, objective, min_rows, seed)
    assert count_scanned(objective, after, vectors) <= count_scanned(objective, before, vectors)
    sizes = after.sizes()
    assert sizes.sum() == vectors.rows
    assert sizes.max() < 2 * min_rows
    assert (sizes < min_rows).sum() <= 1


def test_a_misplaced_vector_moves_home() -> None:
    """Two blocks of like vectors, but one vector among strangers."""
    bits = np.array([[1, 0], [1, 0], [0, 1], [0, 1], [1, 0]], dtype=bool)
    vectors = VectorCounts(pack(np.c_[bits, np.eye(5, dtype=bool)]), np.full(5, 5), 7)
    weights = np.array([10.0, 10.0, 0, 0, 0, 0, 0])
    start = Partition.of(np.arange(5), np.array([0, 0, 1, 1, 1]), np.full(5, 5))
    objective = FeatureObjective.of(weights, vectors.rows)
    after = refine(start, vectors, objective, min_rows=10, seed=0)
    assert after.block.tolist() == [0, 0, 1, 1, 0]
    assert refine(start, vectors, objective, min_rows=11, seed=0).block.tolist() == [
        0,
        0,
        1,
        1,
        1,
    ]  # too few would stay
    assert refine(start, vectors, objective, min_rows=6, seed=0).block.tolist() == [0, 0, 1, 1, 1]  # no room


def test_refining_scans_less_than_moves_alone_would() -> None:
    """Where a feature leaves a block only with all who have it."""
    bits = np.array([[1, 0], [1, 0], [1, 1], [1, 1], [0, 1], [0, 1]], dtype=bool)
    vectors = VectorCounts(pack(np.c_[bits, np.eye(6, dtype=bool)]), np.array([6, 6, 1, 1, 6, 6]), 8)
    objective = FeatureObjective(np.array([1.0, 2, 0, 0, 0, 0, 0, 0]))
    start = Partition.of(np.arange(6), np.array([0, 0, 0, 0, 1, 1]), vectors.counts)
    moved = State(start, derive(objective, vectors), min_rows=10)
    assert moved.move_each(np.arange(6)) == 0
    after = refine(start, vectors, objective, min_rows=10, seed=0)
    assert count_scanned(objective, after, vectors) < count_scanned(objective, start, vectors)


@pytest.mark.parametrize("seed", range(4))
def test_no_single_move_is_left_that_would_scan_less(seed: int) -> None:
    """What a local optimum is, looked for with nothing but the objective: the search's own counters were right."""
    segment = random_segment(n_rows=500, n_features=8, seed=seed, min_rows=70)
    vectors, min_rows, objective = segment.vectors, segment.min_rows, FeatureObjective.of(segment.weights, 500)
    start = ward(vectors, np.zeros(vectors.n_features), min_rows, 0)
    after = refine(start, vectors, objective, min_rows, seed=0, max_passes=100)
    least, sizes = count_scanned(objective, after, vectors), after.sizes()
    assert least < count_scanned(objective, start, vectors)
    for share, rows in enumerate(after.rows.tolist()):
        for target in range(after.n_blocks):
            block = after.block.copy()
            block[share] = target
            moved = Partition.of(after.vector, block, after.rows)
            if sizes[after.block[share]] - rows >= min_rows and sizes[target] + rows < 2 * min_rows:
                assert count_scanned(objective, moved, vectors) >= least


def test_refining_finds_something_on_correlated_rows() -> None:
    segment = random_segment(n_rows=4_000, n_features=12, seed=3, min_rows=100)
    objective = skip_set_objective(segment, 1)
    before = ward(segment.vectors, segment.weights, segment.min_rows, 0)
    after = refine(before, segment.vectors, objective, segment.min_rows, seed=0)
    assert count_scanned(objective, after, segment.vectors) < 0.98 * count_scanned(objective, before, segment.vectors)


@given(segment=segments(max_features=5), seed=st.integers(0, 50))
def test_the_skip_set_objective_is_what_queries_read(segment: Segment, seed: int) -> None:
    objective = skip_set_objective(segment, seed)
    unions = segment.vectors.bits()
    for union, reading in zip(unions, objective.reading(unions), strict=True):
        expected = 0.0
        for query, weight in enumerate(objective.weights):
            skips = [not union[skip_set].any() for skip_set in objective.skip_sets[objective.has_skip_set[query]]]
            expected += 0.0 if any(skips) else weight
        assert reading == expected


def test_the_matrix_form_skips_by_any_feature_of_a_query() -> None:
    matrix = np.array([[1, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)
    objective = of_subsumed(matrix, np.array([1.0, 2.0, 4.0]), rows=1)
    reading = objective.reading(np.array([[1, 0, 1], [1, 1, 0], [1, 1, 1], [0, 0, 0]], dtype=bool))
    assert (reading / reading[2] * 7).round(9).tolist() == [6, 5, 7, 4]


def test_a_skip_set_skips_only_where_all_its_features_are_0() -> None:
    """An IN list of two values, features 0 and 1, of query 0; query 1 has that skip set and feature 2."""
    has_skip_set = np.array([[1, 0], [1, 1]], dtype=bool)
    objective = SkipSetObjective.from_skip_sets(
        [frozenset({0, 1}), frozenset({2})], has_skip_set, 3, np.array([1.0, 2.0]), rows=1
    )
    reading = objective.reading(np.array([[0, 0, 1], [1, 0, 0], [0, 1, 1]], dtype=bool))
    assert (reading / reading[2] * 3).round(9).tolist() == [0, 1, 3]
