"""Rows that go to their segments through a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.local.splits import CutJob, SegmentRanges, Split, read_shuffle_batches, write_shuffle_batches
from layoutopt.model.schema import END_OF_SOURCE, POSITION, SEGMENT, Column, Schema
from layoutopt.writer.segment import pack_shuffle_batch

SCHEMA = Schema((Column("id", "int"), Column("kind", "int")))


def test_each_segment_gets_its_rows_and_further_parcels_go_with_them(tmp_path: Path) -> None:
    source, folder = tmp_path / "x.parquet", tmp_path / "parcels"
    folder.mkdir()
    rows = pa.table({"id": pa.array(range(20), pa.int32()), "kind": pa.array([i % 3 for i in range(20)], pa.int32())})
    pq.write_table(rows, source, row_group_size=10)
    first, second = pq.read_metadata(source).row_group(0).total_byte_size, source.stat().st_size
    splits = (Split(str(source), 0, first, 0, 10, None), Split(str(source), first, second, 1000, 10, None))
    places = SegmentRanges((0, 2), (0, 0), (END_OF_SOURCE, 1005))  # of kind 2 the rows before position 1005
    job = CutJob(SCHEMA, "kind", places, tuple((split,) for split in splits), compressed=False)

    def also(split: Split, rows: pa.Table, low: int) -> Iterator[pa.RecordBatch]:
        yield pack_shuffle_batch(7, low, rows.slice(0, 1))

    for number in range(2):
        write_shuffle_batches(job, also, str(folder), number)
    found = {
        segment: pa.Table.from_batches(read_shuffle_batches(str(folder), segment, 10 + segment))
        for segment in (0, 1, 7)
    }
    assert found[0]["id"].to_pylist() == [0, 3, 6, 9, 12, 15, 18]
    assert found[1]["id"].to_pylist() == [2, 5, 8, 11, 14]
    assert found[7]["id"].to_pylist() == [0, 10]
    for segment, table in found.items():
        positions = table[POSITION].to_pylist()
        assert positions == sorted(set(positions))
        assert table[SEGMENT].unique().to_pylist() == [10 + segment]
    assert list(read_shuffle_batches(str(folder), 2, 12)) == []
