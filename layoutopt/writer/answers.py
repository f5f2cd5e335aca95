"""What a load's tasks answer: the blocks of a segment, and the indexes of these, encoded where they were measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from layoutopt.catalog.storage.index_encoding import PackedIndexes, split_indexes

# Blocks are an Arrow stream, since Spark has no name for some of their types.
RESULT_SCHEMA: Final = (
    "segment int, rows bigint, joined_vectors bigint, blocks binary, indexes array<binary>, "
    "tid_sums array<array<bigint>>, also binary"
)
_RESULT: Final = pa.schema(
    [
        ("segment", pa.int32()),
        ("rows", pa.int64()),
        ("joined_vectors", pa.int64()),
        ("blocks", pa.binary()),
        ("indexes", pa.list_(pa.binary())),
        ("tid_sums", pa.list_(pa.list_(pa.int64()))),
        ("also", pa.binary()),
    ]
)


@dataclass(frozen=True, eq=False)
class Answer:
    """What a task made of a segment.

    Attributes:
        segment: its number among the load's.
        rows: how many it has.
        joined_vectors: the most feature vectors that were joined in a layout.
        blocks: one row a block, as :func:`~layoutopt.catalog.block_index.block_schema`; in a task also with the column
            of measured indexes.
        tid_sums: of each layout and column of the schema, from the segment's rows before they were put into blocks.
        also: what else was asked for.
        indexes: those of the blocks, encoded; empty in a task, or where the plan has none.
    """

    segment: int
    rows: int
    joined_vectors: int
    blocks: pa.Table
    tid_sums: list[list[int | None]]
    also: bytes | None = None
    indexes: PackedIndexes = ()

    def split(self) -> Answer:
        """The same with the indexes encoded, apart from the blocks."""
        blocks, indexes = split_indexes(self.blocks)
        return replace(self, blocks=blocks, indexes=indexes)

    def encoded(self) -> pa.RecordBatch:
        """One row of :data:`RESULT_SCHEMA`."""
        of = self.split()
        values = [of.segment, of.rows, of.joined_vectors, stream_of(of.blocks), of.indexes, of.tid_sums, of.also]
        arrays = [pa.array([value], field.type) for value, field in zip(values, _RESULT, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=_RESULT)


def answers_of(result: pa.Table) -> Iterator[Answer]:
    """The answers in rows of :data:`RESULT_SCHEMA`, by segments; encoded indexes stay where they lie in the rows."""
    for place in pa.compute.sort_indices(result["segment"]).to_pylist():
        of = {name: result[name][place] for name in result.column_names}
        yield Answer(
            of["segment"].as_py(),
            of["rows"].as_py(),
            of["joined_vectors"].as_py(),
            pa.ipc.open_stream(of["blocks"].as_buffer()).read_all(),
            of["tid_sums"].as_py(),
            of["also"].as_py(),
            tuple(each.as_buffer() for each in of["indexes"].values),
        )


def stream_of(blocks: pa.Table) -> bytes:
    """A table as an Arrow stream, compressed: drivers take so many bytes from their tasks, and indexes are long."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, blocks.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(blocks)
    return bytes(sink.getvalue().to_pybytes())
