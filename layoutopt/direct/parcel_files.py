"""Rows of segments from the tasks that read files to those that take segments, through a folder of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa

from layoutopt.direct.cut_rows import CutJob, MoreParcels, parcels_of_task
from layoutopt.writer.parcels import PARCEL_SCHEMA, unpacked


def write_parcels(job: CutJob, also: MoreParcels | None, folder: str, number: int) -> None:
    """Write the parcels of a task's rows, those of each segment to a file.

    Args:
        job: what to go by.
        also: gives other parcels of the rows that are read.
        folder: that takes the files.
        number: of the task.

    Raises:
        NeedsSparkError: a file is not surely read as Spark reads it.
    """
    with ExitStack() as opened:
        streams: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
        for parcel in parcels_of_task(job, number, also):
            segment = parcel.column(0)[0].as_py()
            if segment not in streams:
                file = opened.enter_context(pa.OSFile(str(Path(folder, f"{segment}-{number}")), "wb"))
                streams[segment] = opened.enter_context(pa.ipc.new_stream(file, PARCEL_SCHEMA))
            streams[segment].write_batch(parcel)


def read_parcels(folder: str, segment: int, task: int) -> Iterator[pa.RecordBatch]:
    """The rows of a segment with their positions, for a task whose number stands in place of the segment's."""
    for path in sorted(Path(folder).glob(f"{segment}-*")):
        with pa.memory_map(str(path)) as file:
            for parcel in pa.ipc.open_stream(file):
                yield from unpacked([parcel.set_column(0, parcel.schema.field(0), pa.array([task], pa.int32()))])
