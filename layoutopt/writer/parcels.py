"""Rows of one segment on their way to its task, many as one value: a compressed batch of Arrow's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from layoutopt.model.columns import POSITION, SEGMENT

ROWS: Final = "_rows"
PARCEL_SCHEMA: Final = pa.schema([(SEGMENT, pa.int32()), (POSITION, pa.int64()), (ROWS, pa.binary())])
"""Of parcels: the segment, the position in the source of the first row, the rows."""

PARCEL_TYPES: Final = f"{SEGMENT} int, {POSITION} bigint, {ROWS} binary"
"""The same for Spark."""

_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4")


def parcel_of(segment: int, position: int, rows: pa.Table, compressed: bool = True) -> pa.RecordBatch:
    """One row of ``PARCEL_SCHEMA``.

    Args:
        segment: the segment's number.
        position: of the first row; the others follow it before the first row of any other parcel of the segment.
        rows: under the plan's columns.
        compressed: as is worth it where they travel, or are many.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED if compressed else None) as stream:
        stream.write_table(rows)
    values = [[segment], [position], [sink.getvalue().to_pybytes()]]
    return pa.RecordBatch.from_arrays(values, schema=PARCEL_SCHEMA)


def unpacked(parcels: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of parcels as a task takes them: with their segment and a position that rises as theirs in the source.

    Args:
        parcels: batches of ``PARCEL_SCHEMA``.
    """
    for batch in parcels:
        for segment, position, content in zip(*(batch.column(name) for name in PARCEL_SCHEMA.names), strict=True):
            yield from placed(pa.ipc.open_stream(content.as_buffer()).read_all(), segment.as_py(), position.as_py())


def placed(rows: pa.Table, segment: int, low: int) -> Iterator[pa.RecordBatch]:
    """Neighbouring rows with their segment and their positions, the first of which is ``low``."""
    positions = pa.array(np.arange(low, low + rows.num_rows))
    segments = pa.array(np.full(rows.num_rows, segment, dtype=np.int32))
    yield from rows.append_column(SEGMENT, segments).append_column(POSITION, positions).to_batches()
