"""Partition and the routing of rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.partitioning.objective import Partition, assign_rows


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
