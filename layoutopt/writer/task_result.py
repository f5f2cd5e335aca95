"""What a load's tasks answer: the blocks of a segment, and the indexes of these, encoded where they were measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.checks import Content, TidSums
from layoutopt.catalog.snapshot import Snapshot
from layoutopt.catalog.storage.index_files import PackedIndexes, split_indexes
from layoutopt.indexes.measuring import blocks_with_indexes
from layoutopt.model.layout import Plan

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


# ----------------------------------------------------------------------------------------------------
# What the tasks of a load left, put together, and the proof that it is what the source has.


@dataclass(frozen=True)
class Written:
    """What the tasks left: the blocks, what they are to hold, and joined vectors by partition key.

    ``observed`` is the source's content as it was read, ``positions`` the sums of its values at their tids.
    ``indexes`` are those of the blocks, in parts that follow each other.
    """

    blocks: pa.Table
    indexes: tuple[PackedIndexes, ...]
    observed: Content
    joined: Mapping[str, int]
    positions: TidSums


def collected(
    plan: Plan, keys: Sequence[str], numbers: Sequence[int], answers: Iterable[Answer], observed: Content
) -> Written:
    """The tasks' answers put together, in the order of the segments.

    Args:
        plan: what they went by.
        keys: each segment's partition key.
        numbers: each segment's number in its partition.
        answers: by segments, as :func:`~layoutopt.writer.task_result.answers_of` gives them.
        observed: the source's content as it was read.
    """
    empty, of_none = split_indexes(blocks_with_indexes(plan).empty_table())
    tables, indexes, joined = [empty], [of_none], dict.fromkeys(keys, 0)
    positions: dict[tuple[str, int, int], Mapping[str, int]] = {}
    for answer in answers:
        tables.append(answer.blocks)
        indexes.append(answer.indexes)
        key, number = keys[answer.segment], numbers[answer.segment]
        joined[key] = max(joined[key], answer.joined_vectors)
        for layout, sums in enumerate(answer.tid_sums):
            by_name = zip(plan.schema.names, sums, strict=True)
            positions[key, number, layout] = {name: sum for name, sum in by_name if sum is not None}
    return Written(pa.concat_tables(tables), tuple(indexes), observed, joined, positions)


# ----------------------------------------------------------------------------------------------------
# What a load says when it is done.


@dataclass(frozen=True)
class LoadReport:
    """What a load did.

    Attributes:
        load_id: its name in the table's files.
        snapshot: the snapshot that it made.
        partitions: the keys of the partitions that it replaced, sorted.
        rows, segments, blocks, files: how many.
        bytes: the compressed column chunks written, over all layouts.
        notes: sentences on what a user should know, such as vectors beyond ``max_vectors``.
        seconds: by stage.
    """

    load_id: str
    snapshot: int
    partitions: tuple[str, ...]
    rows: int
    segments: int
    blocks: int
    files: int
    bytes: int
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        return asdict(self)


def load_report(
    load_id: str,
    snapshot: Snapshot,
    plan: Plan,
    keys: Sequence[str],
    segments: int,
    written: Written,
    seconds: Mapping[str, float],
) -> LoadReport:
    """The report of a load that was committed.

    Args:
        load_id: the load's.
        snapshot: the one that it made.
        plan: what it went by.
        keys: of its partitions.
        segments: how many they were written in.
        written: what was measured.
        seconds: by stage.
    """
    blocks: pa.Table = written.blocks
    notes = [
        f"partition {key} has {count} feature vectors beyond max_vectors={plan.max_vectors}; their rows were put "
        "with the nearest vectors'"
        for key, count in sorted(written.joined.items())
        if count
    ]
    return LoadReport(
        load_id=load_id,
        snapshot=snapshot.number,
        partitions=tuple(sorted(keys)),
        rows=sum(entry.rows for entry in snapshot.partitions if entry.load_id == load_id),
        segments=segments,
        blocks=blocks.num_rows,
        files=len(blocks["file"].unique()),
        bytes=int(pc.sum(blocks["bytes"]).as_py() or 0),
        notes=tuple(notes),
        seconds=dict(seconds),
    )
