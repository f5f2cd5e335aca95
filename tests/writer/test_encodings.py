"""The choice of encodings: never larger than the defaults on what it sampled, and readable again."""

from __future__ import annotations

import io
import itertools
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.writer.encodings import (
    blocks_to_encode,
    choose_encodings,
    column_bytes,
    estimate_sizes,
    list_chunks,
    row_group_starts,
)


def sample(n: int = 4000) -> pa.Table:
    random = np.random.default_rng(1)
    return pa.table(
        {
            "unique": [f"value number {i * 7919 % n}" for i in range(n)],
            "few": [["AIR", "RAIL", None][i % 3] for i in range(n)],
            "rising": pa.array(np.arange(n), pa.int64()),
            "noise": pa.array(random.integers(0, 2**31, n), pa.int32()),
            "price": pa.array([Decimal(i % 997) / 100 for i in range(n)], pa.decimal128(15, 2)),
            "wide": pa.array([Decimal(i) for i in range(n)], pa.decimal128(38, 0)),
            "flag": pa.array(random.random(n) < 0.5),
            "x": pa.array(random.random(n)),
            "inner": pa.array([{"a": i, "b": [i, None]} for i in range(n)]),
            "map": pa.array([[("k", i)] for i in range(n)], pa.map_(pa.string(), pa.int32())),
            "nothing": pa.array([None] * n, pa.string()),
        }
    )


def written(table: pa.Table, offsets: np.ndarray, **options: object) -> pq.ParquetFile:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        for start, stop in itertools.pairwise(offsets):
            writer.write_table(table.slice(start, stop - start), row_group_size=stop - start)
    return pq.ParquetFile(io.BytesIO(sink.getvalue()))


def test_no_column_is_larger_than_by_the_defaults() -> None:
    table, offsets = sample(), np.arange(0, 4001, 500)
    chosen = written(table, offsets, **choose_encodings(table, offsets, "zstd").options("zstd"))
    plain = {
        "compression": "zstd",
        "compression_level": 3,
        "store_decimal_as_integer": True,
        "write_page_checksum": True,
    }
    default = written(table, offsets, **plain)
    ours, theirs = (column_bytes(list_chunks(file.metadata), table.schema) for file in (chosen, default))
    for name in table.column_names:
        assert ours[name].sum() <= theirs[name].sum() * 1.01, name
    assert sum(sizes.sum() for sizes in ours.values()) < 0.8 * sum(sizes.sum() for sizes in theirs.values())
    assert chosen.read().equals(table)


def test_row_groups_begin_where_their_chunks_follow_each_other() -> None:
    table, sink = sample(600), io.BytesIO()
    pq.write_table(table, sink, row_group_size=250)
    metadata = pq.read_metadata(sink)
    chunks = list_chunks(metadata)
    assert chunks.shape == (3, metadata.num_columns, 2)
    firsts = [metadata.row_group(i).column(0) for i in range(3)]
    assert row_group_starts(chunks) == [of.dictionary_page_offset or of.data_page_offset for of in firsts]
    chunks[1, 4, 0] += 1
    assert row_group_starts(chunks)[1] is None
    assert row_group_starts(chunks)[::2] == [4, row_group_starts(list_chunks(metadata))[2]]


def test_column_bytes_are_the_files_own() -> None:
    table, offsets = sample(1000), np.array([0, 300, 1000])
    file = written(table, offsets)
    sizes = column_bytes(list_chunks(file.metadata), table.schema)
    assert list(sizes) == table.column_names
    for group in range(2):
        columns = [file.metadata.row_group(group).column(i) for i in range(file.metadata.num_columns)]
        assert sum(int(of[group]) for of in sizes.values()) == sum(column.total_compressed_size for column in columns)
        inner = [c.total_compressed_size for c in columns if c.path_in_schema.startswith("inner.")]
        assert sizes["inner"][group] == sum(inner)


def estimated_of(table: pa.Table, offsets: np.ndarray) -> dict[str, np.ndarray]:
    """What the blocks of a table are estimated to take, by the rows of some of them alone."""
    some = [table.slice(offsets[block], offsets[block + 1] - offsets[block]) for block in blocks_to_encode(offsets)]
    return estimate_sizes(pa.concat_tables(some), offsets, "zstd")


def test_few_blocks_are_estimated_as_they_are_written_and_of_many_the_neighbours() -> None:
    table = sample()
    for offsets in (np.arange(0, 4001, 500), np.array([0, 10, 4000])):
        file = written(table, offsets, **choose_encodings(table, offsets, "zstd").options("zstd"))
        exact, estimated = column_bytes(list_chunks(file.metadata), table.schema), estimated_of(table, offsets)
        assert {name: sizes.tolist() for name, sizes in estimated.items()} == {n: s.tolist() for n, s in exact.items()}
    many = pa.concat_tables([table] * 10)
    offsets = np.arange(0, 40_001, 500)
    assert len(blocks_to_encode(offsets)) < 50
    file = written(many, offsets, **choose_encodings(many, offsets, "zstd").options("zstd"))
    exact, estimated = column_bytes(list_chunks(file.metadata), table.schema), estimated_of(many, offsets)
    for name in table.column_names:
        assert len(estimated[name]) == 80
        assert abs(estimated[name].sum() - exact[name].sum()) <= 0.2 * exact[name].sum(), name


def test_one_tiny_block_is_enough_to_choose_by() -> None:
    table = sample(1)
    offsets = np.array([0, 1])
    assert written(table, offsets, **choose_encodings(table, offsets, "snappy").options("snappy")).read().equals(table)
