"""Rows of one segment on their way to its task, many as one value: a compressed batch of Arrow's."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from layoutopt.model.columns import POSITION, SEGMENT

ROWS: Final = "_rows"
PARCEL_SCHEMA: Final = pa.schema([(SEGMENT, pa.int32()), (POSITION, pa.int64()), (ROWS, pa.binary())])
"""Of parcels: the segment, the position in the source of the first row, the rows."""

PARCEL_TYPES: Final = f"{SEGMENT} int, {POSITION} bigint, {ROWS} binary"
"""The same for Spark."""

_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4")


def parcel_of(segment: int, position: int, rows: pa.Table) -> pa.RecordBatch:
    """One row of ``PARCEL_SCHEMA``.

    Args:
        segment: the segment's number.
        position: of the first row; the rows of a segment follow each other as their parcels do by this.
        rows: under the plan's columns.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as stream:
        stream.write_table(rows)
    values = [[segment], [position], [sink.getvalue().to_pybytes()]]
    return pa.RecordBatch.from_arrays(values, schema=PARCEL_SCHEMA)


def rows_of(parcel: pa.Scalar) -> pa.Table:
    """The rows of one parcel."""
    return pa.ipc.open_stream(parcel.as_buffer()).read_all()
