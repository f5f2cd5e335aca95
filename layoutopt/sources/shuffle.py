"""Cut the rows of a source's splits into segments, and shuffle them to the tasks that write these.

Spark would turn columns into rows, shuffle these one by one, and build columns again; here columns stay columns. Where
each file has rows of few segments, the task that writes a segment reads its files itself. Otherwise other tasks read
each file once, and thousands of rows of a segment are shuffled as one value (a shuffle batch), by Spark or in files.

Unless stated otherwise, functions raise NeedsSparkError where a file might not be read as Spark reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.schema import END_OF_SOURCE, Schema
from layoutopt.sources.split import Split, arrow_schema, encode_partitions
from layoutopt.writer.segment import (
    POOL,
    SHUFFLE_BATCH_SCHEMA,
    add_positions,
    pack_shuffle_batch,
)

# With fewer rows, the additional jobs of reading by Arrow take longer than they save.
LEAST_ROWS: Final = 200_000

_TASK_BYTES: Final = 1 << 25
_PARCEL_BYTES: Final = 1 << 24  # of rows in a shuffle batch
_ALIGNMENT: Final = 64  # of shuffle batches in files, as Arrow aligns values
_TRIED_ROWS: Final = 1000
_MOST_READ: Final = 1.25  # times the source's rows, by tasks that read their segments' files themselves


# What one task reads.
Splits: TypeAlias = tuple[Split, ...]
# Yields further shuffle batches of some rows of a split, from the first row's position in the source.
ExtraBatches: TypeAlias = "Callable[[Split, pa.Table, int], Iterator[pa.RecordBatch]]"


@dataclass(frozen=True)
class SegmentRanges:
    """The partition value and the positions, ``[low, high)``, of each segment; segments of one value are in order."""

    values: tuple[PlainValue, ...]
    lows: tuple[int, ...]
    highs: tuple[int, ...]

    @cached_property
    def by_value(self) -> Mapping[PlainValue, tuple[int, int]]:
        """The segments of each value, ``[first, stop)``."""
        ranges: dict[PlainValue, tuple[int, int]] = {}
        for value, group in groupby(range(len(self.values)), key=self.values.__getitem__):
            ids = list(group)
            ranges[value] = ids[0], ids[-1] + 1
        return ranges

    def overlapping(self, split: Split, values: Iterable[PlainValue]) -> list[int]:
        """Return the segments that may have rows of a split with rows of some partitions."""
        ends = split.low, split.low + split.rows
        return [
            segment
            for value in values
            for segment in range(*self.by_value.get(value, (0, 0)))
            if self.lows[segment] < ends[1] and ends[0] < self.highs[segment]
        ]

    def is_whole(self, first: int, stop: int) -> bool:
        """Whether a value's segments, ``[first, stop)``, are none, or one of all positions."""
        return stop <= first or (stop == first + 1 and (self.lows[first], self.highs[first]) == (0, END_OF_SOURCE))

    def locate(self, first: int, stop: int, positions: Ints) -> Ints:
        """Return the segment, of a value's ``[first, stop)``, of each position; -1 for none."""
        place = np.searchsorted(self._lows[first:stop], positions, side="right") - 1
        segments = np.where(place < 0, -1, first + place)
        if self._ends_early[first:stop].any():
            segments[positions >= self._highs[segments]] = -1
        return segments

    @cached_property
    def _lows(self) -> Ints:
        return np.array(self.lows, dtype=np.int64)

    @cached_property
    def _highs(self) -> Ints:
        return np.array(self.highs, dtype=np.int64)

    @cached_property
    def _ends_early(self) -> Bits:
        """Whether positions between each segment and the next one of its value belong to no segment."""
        ends = np.full(len(self.lows), END_OF_SOURCE)
        for first, stop in self.by_value.values():
            ends[first : stop - 1] = self._lows[first + 1 : stop]
        return self._highs < ends


NO_RANGES: Final = SegmentRanges((), (), ())


@dataclass(frozen=True)
class CutJob:
    """A request to read splits and to cut their rows into segments; pickled to the tasks, each with its own splits.

    Attributes:
        columns: to read, the partition column among them; all when None.
        compressed: whether shuffle batches are.
    """

    schema: Schema
    partition_by: str | None
    ranges: SegmentRanges
    columns: tuple[str, ...] | None = None
    compressed: bool = True

    @property
    def read_schema(self) -> Schema:
        """The columns that are read."""
        return self.schema if self.columns is None else self.schema.select(self.columns)


def cut_rows(job: CutJob, splits: Splits, extra_batches: ExtraBatches | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the shuffle batches of a task's splits, and extra ones of the same rows."""
    for split in splits:
        for rows, low in read_split(job, split):
            yield from _pack(job, rows, low)
            if extra_batches is not None:
                yield from extra_batches(split, rows, low)


def write_shuffle_batches(
    job: CutJob, extra_batches: ExtraBatches | None, folder: str, task: tuple[int, Splits]
) -> Ints:
    """Write the batches of :func:`cut_rows` to a file, which a task's number names.

    Returns:
        Segment, first row's position in the source, offset in the file and bytes of each batch, ``int64[n, 4]``.
    """
    number, splits = task
    places: list[tuple[int, int, int, int]] = []
    with pa.OSFile(str(Path(folder, str(number))), "wb") as file:
        for batch in cut_rows(job, splits, extra_batches):
            segment, position, rows = (batch.column(name)[0] for name in SHUFFLE_BATCH_SCHEMA.names)
            content = rows.as_buffer()
            places.append((segment.as_py(), position.as_py(), file.tell(), content.size))
            file.write(content)
            file.write(bytes(-content.size % _ALIGNMENT))
    return np.array(places, dtype=np.int64).reshape(-1, 4)


@dataclass(frozen=True, eq=False)
class ShuffledRows:
    """Shuffle batches in the files of a folder, found by segment.

    Attributes:
        folder: has a file of each task of :func:`write_shuffle_batches`.
        places: what these tasks returned, each place with its task's number before it, by segment; ``int64[n, 5]``.
    """

    folder: str
    places: Ints

    @classmethod
    def of(cls, folder: str, written: Sequence[Ints]) -> ShuffledRows:
        """Return the batches that tasks have written."""
        tasks = [np.insert(places, 0, number, axis=1) for number, places in enumerate(written)]
        places = np.concatenate([np.zeros((0, 5), dtype=np.int64), *tasks])
        return cls(folder, places[np.argsort(places[:, 1], kind="stable")])

    def read(self, segment: int, task: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a segment with their positions, task by task; ``task`` replaces the segment's number."""
        first, stop = np.searchsorted(self.places[:, 1], (segment, segment + 1)).tolist()
        for number, group in groupby(self.places[first:stop].tolist(), key=itemgetter(0)):
            with pa.memory_map(str(Path(self.folder, str(number)))) as file:
                for _, _, position, offset, size in group:
                    file.seek(offset)
                    yield from add_positions(pa.ipc.open_stream(file.read_buffer(size)).read_all(), task, position)


def _pack(job: CutJob, rows: pa.Table, low: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows from a position of the source on as shuffle batches; rows of no segment are left out."""
    segments = _assign_segments(job, rows, low)
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
            some = rows.slice(first, min(stop, first + at_once) - first)
            yield pack_shuffle_batch(int(segments[first]), int(positions[first]), some, job.compressed)


def _assign_segments(job: CutJob, rows: pa.Table, low: int) -> Ints:
    """Return the segment of each row, -1 for none; in few bits, which are sorted faster."""
    ranges, n = job.ranges, rows.num_rows
    type = np.int16 if len(ranges.values) < 1 << 15 else np.int64
    if job.partition_by is None:
        return ranges.locate(0, len(ranges.values), low + np.arange(n)).astype(type)
    coded = encode_partitions(rows, job.partition_by)
    codes = np.asarray(coded.indices)
    known = list(ranges.by_value)
    places = pc.index_in(coded.dictionary, value_set=pa.array(known, coded.dictionary.type)).to_pylist()
    by_code = [(-1, -1) if place is None else ranges.by_value[known[place]] for place in places]
    segments: Ints = np.array([first for first, _ in by_code], dtype=type)[codes]
    for code, (first, stop) in enumerate(by_code):
        if not ranges.is_whole(first, stop):
            members = np.flatnonzero(codes == code)
            segments[members] = ranges.locate(first, stop, low + members)
    return segments


def read_segment_rows(job: CutJob, segment: int, splits: Splits) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a segment with their positions, from the splits that have any."""
    ends = job.ranges.lows[segment], job.ranges.highs[segment]
    for split in splits:
        for rows, low in split.read_rows(job.schema, job.read_schema.names, ends=ends):
            is_member = _assign_segments(job, rows, low) == segment
            edges = np.flatnonzero(np.diff(is_member, prepend=False, append=False)).tolist()
            for start, stop in zip(edges[::2], edges[1::2], strict=True):
                yield from add_positions(rows.slice(start, stop - start), segment, low + start)


def read_split(job: CutJob, split: Split, at_once: int | None = None) -> Iterator[tuple[pa.Table, int]]:
    """Return all rows of a split in tables of about so many bytes, each with its first row's position in the source."""
    return split.read_rows(job.schema, job.read_schema.names, at_once=at_once)


def read_first_rows(job: CutJob, split: Split) -> pa.Table:
    """Return some rows of a split."""
    for rows, _ in read_split(job, split, at_once=1):
        return rows.slice(0, _TRIED_ROWS)
    return arrow_schema(job.read_schema).empty_table()


def assign_splits(splits: Sequence[Split], overlapping: Sequence[Collection[int]], segments: int) -> tuple[Splits, ...]:
    """Return each segment's splits, given the segments that may have rows of each split."""
    assigned: list[list[Split]] = [[] for _ in range(segments)]
    for split, numbers in zip(splits, overlapping, strict=True):
        for number in sorted(numbers):
            assigned[number].append(split)
    return tuple(map(tuple, assigned))


def reads_little_twice(ranges: SegmentRanges, tasks: Sequence[Splits]) -> bool:
    """Return whether tasks that read their own segments' splits read few rows of other segments."""
    read, rows = 0, dict[int, int]()
    for segment, splits in enumerate(tasks):
        for split in splits:
            read += min(split.low + split.rows, ranges.highs[segment]) - max(split.low, ranges.lows[segment])
            rows[split.low] = split.rows
    return read <= _MOST_READ * sum(rows.values())


def group_splits(splits: Sequence[Split], most: int | None = None) -> tuple[Splits, ...]:
    """Group successive splits into tasks large enough to be worth starting; about ``most`` tasks at most."""
    task_bytes = max(_TASK_BYTES, sum(split.size for split in splits) // most if most else 0)
    tasks: list[list[Split]] = []
    size = task_bytes
    for split in splits:
        if size >= task_bytes:
            tasks.append([])
            size = 0
        tasks[-1].append(split)
        size += split.size
    return tuple(map(tuple, tasks))
