"""Index files: what is stored is what is read, and lists of keys that ascend take few bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.catalog.storage.index_files import encode_index
from layoutopt.indexes.protocol import BlockColumn, Index
from layoutopt.indexes.registry import BUILT_IN, find_index

RNG = np.random.default_rng(0)


def keys(blocks: int, rows: int, of: int) -> BlockColumn:
    values = pa.array(RNG.integers(0, of, blocks * rows))
    return BlockColumn(pa.chunked_array([values]), rows * np.arange(blocks + 1), "bigint")


def texts(column: BlockColumn) -> BlockColumn:
    names = pa.array([f"Customer#{number:09d}" for number in column.values.to_pylist()])
    return BlockColumn(pa.chunked_array([names]), column.offsets, "string")


@pytest.mark.parametrize("kind", sorted(BUILT_IN))
def test_an_index_is_read_as_it_was_measured(kind: str) -> None:
    index: Index = find_index(kind)
    numbers = keys(3, 200, 500)
    for column in (numbers, texts(numbers)):
        if index.storage(column.type) is not None:
            stored = index.measure(column, index.parameter.default)
            read = pq.ParquetFile(pa.BufferReader(encode_index(stored))).read()["index"].combine_chunks()
            assert read.type == stored.type
            assert read.equals(stored)


def test_keys_side_by_side_take_no_more_than_a_filter_that_errs() -> None:
    column = keys(4, 10_000, 150_000)
    listed = len(encode_index(find_index("value-list").measure(column, 16_384)))
    filters = len(encode_index(find_index("bloom").measure(column, 0.05)))
    assert listed < 1.05 * filters
