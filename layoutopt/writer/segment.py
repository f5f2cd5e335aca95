"""Put a segment together from the batches of a shuffle, and pack its rows for the shuffle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from layoutopt.errors import BoundError
from layoutopt.evaluation.expressions import select_for_spark
from layoutopt.evaluation.predicates import read_word_columns, segment_words
from layoutopt.model.arrays import Words
from layoutopt.model.feature import Feature
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import Expr
from layoutopt.model.schema import POSITION, SEGMENT, Schema, value_names

# Columns of a segment's size come straight from the system: with Arrow's own allocator a quarter of a task's CPU time
# went into page faults.
POOL = pa.system_memory_pool()

# Finds the feature vectors over features that keys don't decide, from the features, the rows and their schema.
FindWords: TypeAlias = Callable[[Sequence[Feature], pa.Table, Schema], Words]
ROWS: Final = "_rows"
# Shuffle batches: the segment, the position in the source of the first row, and the rows as an Arrow stream.
SHUFFLE_BATCH_SCHEMA: Final = pa.schema([(SEGMENT, pa.int32()), (POSITION, pa.int64()), (ROWS, pa.binary())])
# The same as Spark types.
SHUFFLE_BATCH_TYPES: Final = f"{SEGMENT} int, {POSITION} bigint, {ROWS} binary"


@dataclass(frozen=True, eq=False)
class GatheredSegment:
    """The rows of a segment.

    Attributes:
        id: the number of the segment in its load.
        table: its rows, in the order of the source.
        words: their feature vectors, ``uint64[n, w]``.
        computed: the values that Spark computed for the plan's indexes, by expression.
    """

    id: int
    table: pa.Table
    words: Words
    computed: Mapping[Expr, pa.ChunkedArray] = field(default_factory=dict)


def gather_segment(
    plan: Plan, batches: Iterable[pa.RecordBatch], whole: bool = True, evaluate_rest: FindWords | None = None
) -> GatheredSegment | None:
    """Return the segment's rows sorted by position in the source, the same for every attempt; None without rows.

    Args:
        whole: whether the rows have all columns of the plan's schema; otherwise the available ones are taken.
        evaluate_rest: finds what keys don't decide; without it the rows carry Spark's words.

    Raises:
        BoundError: more rows came than a segment may have, or rows of several segments.
    """
    received, rows = [], 0
    for batch in batches:
        rows += batch.num_rows
        if rows > plan.segment_rows:
            raise BoundError(
                f"a segment has more than the {plan.segment_rows} rows of segment_rows; "
                "raise segment_rows, or load from files that do not change during the load"
            )
        received.append(batch)
    if rows == 0:
        return None
    table = sort_by_position(pa.Table.from_batches(received))
    ids = pa.compute.unique(table[SEGMENT]).to_pylist()
    if len(ids) != 1:
        raise BoundError(
            f"segments {sorted(ids)} came to one task: expected one; this is a bug of layoutopt, please report it"
        )
    received_names = frozenset(table.column_names)
    names = [name for name in plan.schema.names if whole or name in received_names]
    columns = _widen_offsets(to_stored_types(table.select(names))).combine_chunks(POOL)
    computed = select_for_spark(spec.subject for spec in plan.indexes)
    values = {
        expr: table[name]
        for expr, name in zip(computed, value_names(len(computed)), strict=True)
        if name in table.column_names  # dry runs have none
    }

    def words_left(places: Sequence[int]) -> Words:
        if evaluate_rest is None:
            return read_word_columns(table, len(places))
        return evaluate_rest([plan.features.features[place] for place in places], columns, plan.schema)

    words = segment_words(plan.features.features, columns, words_left)
    return GatheredSegment(ids[0], columns, words, values)


def sort_by_position(table: pa.Table) -> pa.Table:
    """Return the rows sorted by ``_pos``.

    A shuffle delivers parts of the source in any order, each sorted. Parts are concatenated; only where they
    interleave are rows sorted one by one.
    """
    positions = np.asarray(table[POSITION])
    starts = np.concatenate(([0], np.flatnonzero(positions[1:] < positions[:-1]) + 1))
    stops = np.append(starts[1:], len(positions))
    parts = np.argsort(positions[starts], kind="stable")
    if (positions[starts[parts[1:]]] < positions[stops[parts[:-1]] - 1]).any():
        in_order = pa.array(np.argsort(positions, kind="stable"))
        return pa.compute.take(table, in_order, memory_pool=POOL)
    return pa.concat_tables([table.slice(starts[part], stops[part] - starts[part]) for part in parts])


def to_stored_types(table: pa.Table) -> pa.Table:
    """Cast timestamps to UTC, and make nested fields nullable, since Parquet refuses nulls under a null struct."""
    for i, column in enumerate(table.schema):
        stored = _stored_type(column.type)
        if stored != column.type:
            table = table.set_column(i, column.with_type(stored), table.column(i).cast(stored))
    return table


def _stored_type(type: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type):
        return pa.struct([_nullable_field(field) for field in type])
    if pa.types.is_map(type):
        return pa.map_(type.key_field, _nullable_field(type.item_field))
    if pa.types.is_timestamp(type) and type.tz is not None:
        return pa.timestamp(type.unit, "UTC")
    return pa.list_(_nullable_field(type.value_field)) if pa.types.is_list(type) else type


def _nullable_field(field: pa.Field) -> pa.Field:
    return field.with_type(_stored_type(field.type)).with_nullable(True)


def _widen_offsets(table: pa.Table) -> pa.Table:
    """Use 64-bit offsets for text columns with more bytes than 32 bits can address."""
    for i, column in enumerate(table.schema):
        large = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(column.type)
        if large is not None and table.column(i).nbytes >= 2**31 - 1:
            table = table.set_column(i, column.with_type(large), table.column(i).cast(large))
    return table


def to_arrow_stream(rows: pa.Table, compression: str | None = None) -> bytes:
    """Return rows as a stream of Arrow's IPC format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as stream:
        stream.write_table(rows)
    return bytes(sink.getvalue())


def pack_shuffle_batch(segment: int, position: int, rows: pa.Table, compressed: bool = True) -> pa.RecordBatch:
    """Return a shuffle batch as one row of :data:`SHUFFLE_BATCH_SCHEMA`.

    ``position`` is that of the first row; the rest follow it before the first row of any other batch of the segment.
    Compression pays where batches travel or are many.
    """
    values = [[segment], [position], [to_arrow_stream(rows, "lz4" if compressed else None)]]
    return pa.RecordBatch.from_arrays(values, schema=SHUFFLE_BATCH_SCHEMA)


def unpack_shuffle_batches(parcels: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of shuffle batches with their segment, and positions that rise as in the source."""
    for batch in parcels:
        for segment, position, content in zip(
            *(batch.column(name) for name in SHUFFLE_BATCH_SCHEMA.names), strict=True
        ):
            yield from add_positions(
                pa.ipc.open_stream(content.as_buffer()).read_all(), segment.as_py(), position.as_py()
            )


def add_positions(rows: pa.Table, segment: int, low: int) -> Iterator[pa.RecordBatch]:
    """Yield consecutive rows with their segment and positions, the first of which is ``low``."""
    positions = pa.array(np.arange(low, low + rows.num_rows))
    segments = pa.array(np.full(rows.num_rows, segment, dtype=np.int32))
    yield from rows.append_column(SEGMENT, segments).append_column(POSITION, positions).to_batches()
