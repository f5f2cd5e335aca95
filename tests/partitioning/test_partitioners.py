"""The suite that every registered partitioner passes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from layoutopt.errors import SettingError
from layoutopt.extensions import names
from layoutopt.model.vectors import VectorCounts, pack, unpack
from layoutopt.partitioning.objective import FeatureObjective, Partition, assign_rows
from layoutopt.partitioning.registry import PARTITIONERS, find_partitioner
from tests.effort import examples
from tests.partitioning.segments import Segment, check_sizes, count_scanned, random_segment, segments

SLOW = ("portfolio", "portfolio-high")
every_partitioner = pytest.mark.parametrize("name", sorted(set(names("partitioners", PARTITIONERS)) - set(SLOW)))


def partition_of(name: str, segment: Segment, seed: int = 0) -> Partition:
    return find_partitioner(name)(segment.vectors, segment.weights, segment.min_rows, seed)


def check_blocks(name: str, segment: Segment, seed: int) -> None:
    """Every row is in one block, by the same arguments the same; sizes fit, and light vectors stay whole."""
    partition, again = partition_of(name, segment, seed), partition_of(name, segment, seed)
    for field in ("vector", "block", "rows"):
        np.testing.assert_array_equal(getattr(partition, field), getattr(again, field))
    vectors = segment.vectors
    np.testing.assert_array_equal(
        np.bincount(partition.vector, weights=partition.rows, minlength=len(vectors)), vectors.counts
    )
    pairs = list(zip(partition.vector.tolist(), partition.block.tolist(), strict=True))
    assert pairs == sorted(set(pairs))
    assert set(partition.block.tolist()) == set(range(partition.n_blocks))
    check_sizes(partition, segment)
    light = vectors.counts[partition.vector] < segment.min_rows
    np.testing.assert_array_equal(partition.rows[light], vectors.counts[partition.vector[light]])
    inverse = np.random.default_rng(0).permutation(np.repeat(np.arange(len(vectors)), vectors.counts))
    block = assign_rows(partition, inverse)
    np.testing.assert_array_equal(np.bincount(block), partition.sizes())
    unions = unpack(partition.unions(vectors), vectors.n_features)
    for number in range(partition.n_blocks):
        np.testing.assert_array_equal(unions[number], vectors.bits()[inverse[block == number]].any(axis=0))


@every_partitioner
@given(segment=segments(), seed=st.integers(0, 3))
def test_blocks_keep_the_promises_of_partitioners(name: str, segment: Segment, seed: int) -> None:
    check_blocks(name, segment, seed)


@pytest.mark.parametrize("name", sorted(set(names("partitioners", PARTITIONERS))))
@given(segment=segments(), more=st.integers(0, 20))
@settings(max_examples=examples(20), deadline=None)
def test_rows_too_few_for_two_blocks_are_one_block(name: str, segment: Segment, more: int) -> None:
    few = Segment(segment.vectors, segment.weights, segment.vectors.rows // 2 + 1 + more)
    assert partition_of(name, few).n_blocks == 1


@pytest.mark.parametrize("name", SLOW)
@given(segment=segments(), seed=st.integers(0, 3))
@settings(max_examples=examples(8), deadline=None)
def test_those_that_search_long_keep_them_too(name: str, segment: Segment, seed: int) -> None:
    check_blocks(name, segment, seed)


@every_partitioner
@given(segment=segments(), power=st.integers(-3, 5))
def test_scaling_all_weights_by_a_power_of_two_changes_nothing(name: str, segment: Segment, power: int) -> None:
    scaled = Segment(segment.vectors, np.ldexp(segment.weights, power), segment.min_rows)
    assume(np.array_equal(np.ldexp(scaled.weights, -power), segment.weights))  # the smallest floats become 0
    np.testing.assert_array_equal(partition_of(name, segment).block, partition_of(name, scaled).block)


@every_partitioner
def test_blocking_skips_far_more_than_chance(name: str) -> None:
    segment = random_segment(n_rows=4_000, n_features=12, seed=3, min_rows=100)
    partition = partition_of(name, segment)
    shuffled = np.random.default_rng(0).permutation(partition.block)
    by_chance = Partition.of(partition.vector, shuffled, partition.rows)
    objective = FeatureObjective.of(segment.weights, segment.vectors.rows)
    assert count_scanned(objective, partition, segment.vectors) < 0.7 * count_scanned(
        objective, by_chance, segment.vectors
    )


@every_partitioner
def test_no_rows_make_no_blocks(name: str) -> None:
    empty = VectorCounts.of_rows(pack(np.zeros((0, 3), dtype=bool)), 3)
    assert find_partitioner(name)(empty, np.ones(3), 10, 0).n_blocks == 0


@every_partitioner
def test_no_features_make_blocks_of_the_right_size(name: str) -> None:
    vectors = VectorCounts.of_rows(pack(np.zeros((95, 0), dtype=bool)), 0)
    sizes = find_partitioner(name)(vectors, np.zeros(0), 10, 0).sizes()
    assert sizes.sum() == 95
    assert set(sizes.tolist()) <= set(range(10, 20))


@every_partitioner
@pytest.mark.parametrize(
    ("weights", "min_rows", "named"),
    [
        (np.ones(3), 0, "min_rows is 0"),
        (np.ones(2), 5, r"\(2,\)"),
        (np.array([1, -1, 0.0]), 5, "-1.0"),
        (np.array([1, np.nan, 0.0]), 5, "nan"),
    ],
)
def test_arguments_without_meaning_are_refused(name: str, weights: np.ndarray, min_rows: int, named: str) -> None:
    vectors = VectorCounts.of_rows(pack(np.eye(3, dtype=bool)), 3)
    with pytest.raises(ValueError, match=named):
        find_partitioner(name)(vectors, weights, min_rows, 0)


def test_an_unknown_partitioner_is_named() -> None:
    with pytest.raises(SettingError, match="'wart'"):
        find_partitioner("wart")
