"""The rows of a source's files for tasks of loads, which are Spark's, and of planning: read by Arrow, cut by segment.

Through Spark rows are made of columns, shuffled one by one, and made columns of again. Here columns stay columns. Where
each file has rows of few segments, the task that writes a segment reads its files itself; else other tasks read each
file once, and a shuffle sees thousands of rows of a segment as one value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.direct.plain_parquet import arrow_schema, coded_partitions, open_plain, plain_type, typed
from layoutopt.errors import NeedsSparkError, carrying
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.columns import END_OF_SOURCE
from layoutopt.model.schema import Schema
from layoutopt.writer.gather import POOL
from layoutopt.writer.parcels import parcel_of, placed

_BATCH_BYTES: Final = 1 << 27  # of rows in memory that are cut together
_BATCH_ROWS: Final = 1 << 20
_ROWS_AT_ONCE: Final = 1 << 13  # few: what a dictionary has once takes a thousand times more where it is spelled out
_PARCEL_BYTES: Final = 1 << 24  # of rows that travel as one value
_TRIED_ROWS: Final = 1000


MoreParcels: TypeAlias = "Callable[[Split, pa.Table, int], Iterator[pa.RecordBatch]]"
"""Further parcels of some rows of a split; the last argument is the position in the source of the first of them."""


@dataclass(frozen=True)
class Split:
    """The row groups of a file whose middle lies in a range of its bytes, as Spark reads them together.

    Attributes:
        path: the file's.
        start, stop: the range, ``[start, stop)``.
        low: the position in the source of its first row; the others follow it.
        rows: how many were counted.
        folder: what the name of the file's folder says that the partition column is, plain; None where files have it.
    """

    path: str
    start: int
    stop: int
    low: int
    rows: int
    folder: tuple[PlainValue] | None


@dataclass(frozen=True)
class Places:
    """Which segment takes a row: that of its value in whose range of positions it lies.

    Attributes:
        values: of the partition column, plain, one for each segment; those of one value in the order of their ranges.
        lows, highs: the positions of each segment's rows, ``[low, high)``; those of one value rise.
    """

    values: tuple[PlainValue, ...]
    lows: tuple[int, ...]
    highs: tuple[int, ...]

    @cached_property
    def of_values(self) -> Mapping[PlainValue, tuple[int, int]]:
        """The segments of each value, ``[first, stop)``."""
        found: dict[PlainValue, tuple[int, int]] = {}
        for value, held in groupby(range(len(self.values)), key=self.values.__getitem__):
            ids = list(held)
            found[value] = ids[0], ids[-1] + 1
        return found

    def takes_all(self, first: int, stop: int) -> bool:
        """Whether the segments of a value are a single one of all its positions, or none."""
        return stop <= first or (stop == first + 1 and (self.lows[first], self.highs[first]) == (0, END_OF_SOURCE))

    def segments_at(self, first: int, stop: int, positions: Ints) -> Ints:
        """Which of a value's segments, those from ``first`` to ``stop``, takes each of some positions; -1 for none."""
        place = np.searchsorted(self._lows[first:stop], positions, side="right") - 1
        found = np.where(place < 0, -1, first + place)
        if self._ends_early[first:stop].any():
            found[positions >= self._highs[found]] = -1
        return found

    @cached_property
    def _lows(self) -> Ints:
        return np.array(self.lows, dtype=np.int64)

    @cached_property
    def _highs(self) -> Ints:
        return np.array(self.highs, dtype=np.int64)

    @cached_property
    def _ends_early(self) -> Bits:
        """Whether positions after each segment, up to the next one of its value, are none's."""
        ends = np.full(len(self.lows), END_OF_SOURCE)
        for first, stop in self.of_values.values():
            ends[first : stop - 1] = self._lows[first + 1 : stop]
        return self._highs < ends


@dataclass(frozen=True)
class CutJob:
    """What every task that cuts rows needs to know; pickled to the tasks.

    Attributes:
        schema: of the table.
        partition_by: the partition column, None for none.
        places: of the segments.
        tasks: the splits that each task reads.
        by_segment: whether the task of a number writes the segment of that number, of which its splits have all rows.
        columns: those that are read, the partition column among them; all when None.
        compressed: whether parcels are.
    """

    schema: Schema
    partition_by: str | None
    places: Places
    tasks: tuple[tuple[Split, ...], ...]
    by_segment: bool = False
    columns: tuple[str, ...] | None = None
    compressed: bool = True

    @property
    def read(self) -> Schema:
        """The columns that are read."""
        return self.schema if self.columns is None else self.schema.select(self.columns)


def cut_rows(job: CutJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The body of ``mapInArrow``: the numbers of tasks in, the rows of their splits out, in parcels.

    Args:
        job: what to go by.
        batches: of the numbers.

    Raises:
        RuntimeError: carries a NeedsSparkError to the driver: a file is not surely read as Spark reads it.
    """
    with carrying():
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from parcels_of_task(job, number)


def parcels_of_task(job: CutJob, number: int, also: MoreParcels | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of a task's splits in parcels to their segments.

    Args:
        job: what to go by.
        number: of the task.
        also: gives other parcels of the rows that are read.

    Raises:
        NeedsSparkError: a file is not surely read as Spark reads it.
    """
    for split in job.tasks[number]:
        for rows, low in rows_of_split(job, split):
            yield from _packed(job, rows, low)
            if also is not None:
                yield from also(split, rows, low)


def check_split(job: CutJob, split: Split) -> None:
    """Look at the footer of a split's file, before tasks do.

    Raises:
        NeedsSparkError: the file is not surely read as Spark reads it.
    """
    with _opened(job, split):
        pass


def rows_of_split(job: CutJob, split: Split) -> Iterator[tuple[pa.Table, int]]:
    """All rows of a split, some bytes of them at once, each time with the position in the source of the first one.

    Raises:
        NeedsSparkError: the file is not surely read as Spark reads it.
    """
    return _read(job, split, split.low, split.low + split.rows)


def first_rows(job: CutJob, split: Split) -> pa.Table:
    """Some rows of a split.

    Raises:
        NeedsSparkError: the file is not surely read as Spark reads it.
    """
    for rows, _ in _read(job, split, split.low, split.low + 1, at_once=1):
        return rows.slice(0, _TRIED_ROWS)
    return arrow_schema(job.read).empty_table()


@contextmanager
def _opened(job: CutJob, split: Split) -> Iterator[tuple[pq.ParquetFile, list[int]]]:
    """A split's file and its row groups."""
    in_files = job.schema
    if split.folder is not None:
        in_files = job.schema.select([name for name in job.schema.names if name != job.partition_by])
    with open_plain(Path(split.path), in_files, compared=True) as file:
        groups = _row_groups(file.metadata, split)
        if sum(file.metadata.row_group(group).num_rows for group in groups) != split.rows:
            raise NeedsSparkError(f"{split.path!r} has other rows than were counted")
        yield file, groups


def rows_of_segments(job: CutJob, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All rows of some segments, with these and their positions, from the segments' own splits.

    Args:
        job: by segment.
        numbers: of segments.

    Raises:
        NeedsSparkError: a file is not surely read as Spark reads it.
    """
    for batch in numbers:
        for segment in batch.column(0).to_pylist():
            for split in job.tasks[segment]:
                yield from _rows_of_segment(job, split, segment)


def _rows_of_segment(job: CutJob, split: Split, segment: int) -> Iterator[pa.RecordBatch]:
    for rows, low in _read(job, split, job.places.lows[segment], job.places.highs[segment]):
        of_segment = _segments_of(job, rows, low) == segment
        edges = np.flatnonzero(np.diff(of_segment, prepend=False, append=False)).tolist()
        for start, stop in zip(edges[::2], edges[1::2], strict=True):
            yield from placed(rows.slice(start, stop - start), segment, low + start)


def _read(
    job: CutJob, split: Split, first: int, stop: int, at_once: int | None = None
) -> Iterator[tuple[pa.Table, int]]:
    """The rows of a split, some bytes of them at once, each time with the position of the first one.

    Row groups without a row at the positions ``[first, stop)`` are left out.
    """
    columns = arrow_schema(job.read)
    with _opened(job, split) as (file, groups):
        ends = split.low + np.cumsum([0, *(file.metadata.row_group(group).num_rows for group in groups)])
        wanted = np.flatnonzero((ends[:-1] < stop) & (ends[1:] > first)).tolist()
        low = int(ends[wanted[0]]) if wanted else 0
        for held in _together(
            file.iter_batches(_ROWS_AT_ONCE, [groups[place] for place in wanted], job.columns),
            at_once or _BATCH_BYTES,
        ):
            yield typed(_with_folder(job, split, held), columns), low
            low += len(held)
        if wanted and low != ends[wanted[-1] + 1]:
            raise NeedsSparkError(f"{split.path!r} has other rows than its footer says")


def _together(batches: Iterable[pa.RecordBatch], at_once: int) -> Iterator[pa.Table]:
    """Batches that follow each other as tables of so many bytes, or a million rows."""
    held: list[pa.RecordBatch] = []
    taken = rows = 0
    for batch in batches:
        held.append(batch)
        taken, rows = taken + batch.nbytes, rows + batch.num_rows
        if taken >= at_once or rows >= _BATCH_ROWS:
            yield pa.Table.from_batches(held)
            held, taken, rows = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)


def _with_folder(job: CutJob, split: Split, rows: pa.Table) -> pa.Table:
    """The rows, with the column that the file's folder stands for."""
    if split.folder is None:
        return rows
    type = plain_type(arrow_schema(job.schema).field(job.partition_by).type)
    return rows.append_column(job.partition_by, pa.repeat(pa.scalar(split.folder[0], type), len(rows)))


def _row_groups(footer: pq.FileMetaData, split: Split) -> list[int]:
    """The row groups that Spark reads for a split: those whose middle it has."""
    return [group for group in range(footer.num_row_groups) if split.start <= middle_of(footer, group) < split.stop]


def middle_of(footer: pq.FileMetaData, group: int) -> int:
    """The byte of a file that tells which split has a row group."""
    held = footer.row_group(group)
    chunks = [held.column(place) for place in range(held.num_columns)]
    pages, dictionary = chunks[0].data_page_offset, chunks[0].dictionary_page_offset
    start = pages if dictionary is None else min(pages, dictionary)
    middle: int = start + sum(chunk.total_compressed_size for chunk in chunks) // 2
    return middle


def _packed(job: CutJob, rows: pa.Table, low: int) -> Iterator[pa.RecordBatch]:
    """The rows from a position of the source on as parcels; rows that no segment takes are left out."""
    segments = _segments_of(job, rows, low)
    in_order = np.argsort(segments, kind="stable")
    in_order = in_order[np.count_nonzero(segments < 0) :]
    if len(in_order) == 0:
        return
    positions = low + in_order
    if len(in_order) < rows.num_rows or (np.diff(segments) < 0).any():
        rows, segments = pc.take(rows.combine_chunks(POOL), pa.array(in_order), memory_pool=POOL), segments[in_order]
    starts = np.concatenate(([0], np.flatnonzero(np.diff(segments)) + 1, [len(segments)])).tolist()
    at_once = max(1, rows.num_rows * _PARCEL_BYTES // max(1, rows.nbytes))
    for start, stop in pairwise(starts):
        for first in range(start, stop, at_once):
            last = min(stop, first + at_once)
            some = rows.slice(first, last - first)
            yield parcel_of(int(segments[first]), int(positions[first]), some, job.compressed)


def _segments_of(job: CutJob, rows: pa.Table, low: int) -> Ints:
    """The segment of each row, -1 for none; in few bits, which are sorted faster."""
    places, n = job.places, rows.num_rows
    type = np.int16 if len(places.values) < 1 << 15 else np.int64
    if job.partition_by is None:
        return places.segments_at(0, len(places.values), low + np.arange(n)).astype(type)
    coded = coded_partitions(rows, job.partition_by)
    codes = np.asarray(coded.indices)
    ranges = _ranges_of(coded.dictionary, places)
    segments: Ints = np.array([first for first, _ in ranges], dtype=type)[codes]
    for code, (first, stop) in enumerate(ranges):
        if not places.takes_all(first, stop):
            at = np.flatnonzero(codes == code)
            segments[at] = places.segments_at(first, stop, low + at)
    return segments


def _ranges_of(values: pa.Array, places: Places) -> Sequence[tuple[int, int]]:
    """The segments of each of some plain values of the partition column; ``(-1, -1)`` for a value that has none."""
    known = list(places.of_values)
    found = pc.index_in(values, value_set=pa.array(known, values.type))
    return [(-1, -1) if at is None else places.of_values[known[at]] for at in found.to_pylist()]
