"""Read a source's Parquet files by Arrow, in splits, and cut their rows into segments.

Spark would turn columns into rows, shuffle these one by one, and build columns again; here columns stay columns. Where
each file has rows of few segments, the task that writes a segment reads its files itself. Otherwise other tasks read
each file once, and thousands of rows of a segment are shuffled as one value (a shuffle batch), by Spark or in files.

Unless stated otherwise, functions raise NeedsSparkError where a file might not be read as Spark reads it.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.errors import NeedsSparkError, SourceError, encode_errors
from layoutopt.external.footers import SAMPLED_FOOTERS
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.schema import END_OF_SOURCE, Schema
from layoutopt.sources.executor import Executor
from layoutopt.sources.parquet_files import (
    arrow_schema,
    cast_columns,
    check_columns,
    encode_partitions,
    list_visible,
    open_plain,
    plain_type,
    resolve_local_path,
)
from layoutopt.sql.schema import folder_columns, folder_values
from layoutopt.writer.segment import (
    POOL,
    SHUFFLE_BATCH_SCHEMA,
    add_positions,
    pack_shuffle_batch,
)

# With fewer rows, the additional jobs of reading by Arrow take longer than they save.
LEAST_ROWS: Final = 200_000

_TASK_BYTES: Final = 1 << 25
_BATCH_BYTES: Final = 1 << 27  # of rows in memory that are cut together
_BATCH_ROWS: Final = 1 << 20
_ROWS_AT_ONCE: Final = 1 << 13  # few, since decoding a dictionary column can expand it 1000 times
_PARCEL_BYTES: Final = 1 << 24  # of rows in a shuffle batch
_ALIGNMENT: Final = 64  # of shuffle batches in files, as Arrow aligns values
_TRIED_ROWS: Final = 1000
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./=-]+")
_MOST_READ: Final = 1.25  # times the source's rows, by tasks that read their segments' files themselves
_SPLIT_BYTES: Final = 1 << 27
_FILES_A_TASK: Final = 16
_ROW_BITS: Final = 33  # of a position; the split's number is above, as in Spark


@dataclass(frozen=True)
class Split:
    """The row groups of a file whose middle lies in a range of its bytes, as Spark reads them together.

    Attributes:
        path: the file's.
        start, stop: the range, ``[start, stop)``.
        low: the position in the source of its first row; the others follow it.
        rows: how many were counted.
        folder: the partition column's plain value by the name of the file's folder; None where files have the column.
    """

    path: str
    start: int
    stop: int
    low: int
    rows: int
    folder: tuple[PlainValue] | None


# Splits in the order of their files' names, with the rows of each value of the partition column.
SplitCounts: TypeAlias = "tuple[tuple[Split, Mapping[PlainValue, int]], ...]"

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
    """A request to read splits and to cut their rows into segments; pickled to the tasks.

    Attributes:
        tasks: the splits that each task reads.
        by_segment: whether task ``i`` writes segment ``i``, and its splits have all of that segment's rows.
        columns: to read, the partition column among them; all when None.
        compressed: whether shuffle batches are.
    """

    schema: Schema
    partition_by: str | None
    ranges: SegmentRanges
    tasks: tuple[tuple[Split, ...], ...]
    by_segment: bool = False
    columns: tuple[str, ...] | None = None
    compressed: bool = True

    @property
    def read_schema(self) -> Schema:
        """The columns that are read."""
        return self.schema if self.columns is None else self.schema.select(self.columns)


def cut_rows(job: CutJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the shuffle batches of tasks' splits, from batches of the tasks' numbers; the body of ``mapInArrow``.

    Raises:
        RuntimeError: carries a NeedsSparkError to the driver.
    """
    with encode_errors():
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _cut_task(job, number)


def write_shuffle_batches(job: CutJob, extra_batches: ExtraBatches | None, folder: str, number: int) -> Ints:
    """Write the shuffle batches of a task's rows, and extra ones of the same rows, to a file.

    Returns:
        Segment, first row's position in the source, offset in the file and bytes of each batch, ``int64[n, 4]``.
    """
    places: list[tuple[int, int, int, int]] = []
    with pa.OSFile(str(Path(folder, str(number))), "wb") as file:
        for batch in _cut_task(job, number, extra_batches):
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


def _cut_task(job: CutJob, number: int, extra_batches: ExtraBatches | None = None) -> Iterator[pa.RecordBatch]:
    for split in job.tasks[number]:
        for rows, low in read_split(job, split):
            yield from _pack(job, rows, low)
            if extra_batches is not None:
                yield from extra_batches(split, rows, low)


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


def read_segment_rows(job: CutJob, segments: Iterable[int]) -> Iterator[pa.RecordBatch]:
    """Yield all rows of some segments with their positions, from the segments' own splits (``job.by_segment``)."""
    for segment in segments:
        for split in job.tasks[segment]:
            for rows, low in _read(job, split, job.ranges.lows[segment], job.ranges.highs[segment]):
                is_member = _assign_segments(job, rows, low) == segment
                edges = np.flatnonzero(np.diff(is_member, prepend=False, append=False)).tolist()
                for start, stop in zip(edges[::2], edges[1::2], strict=True):
                    yield from add_positions(rows.slice(start, stop - start), segment, low + start)


def check_split(job: CutJob, split: Split) -> None:
    """Check the footer of a split's file, before tasks read it."""
    with _open_split(job, split):
        pass


def read_split(job: CutJob, split: Split, at_once: int | None = None) -> Iterator[tuple[pa.Table, int]]:
    """Return all rows of a split in tables of about so many bytes, each with its first row's position in the source."""
    return _read(job, split, split.low, split.low + split.rows, at_once)


def read_first_rows(job: CutJob, split: Split) -> pa.Table:
    """Return some rows of a split."""
    for rows, _ in _read(job, split, split.low, split.low + 1, at_once=1):
        return rows.slice(0, _TRIED_ROWS)
    return arrow_schema(job.read_schema).empty_table()


def _read(
    job: CutJob, split: Split, first: int, stop: int, at_once: int | None = None
) -> Iterator[tuple[pa.Table, int]]:
    """Yield rows as :func:`read_split` does, without row groups that have no row at positions ``[first, stop)``."""
    columns = arrow_schema(job.read_schema)
    with _open_split(job, split) as (file, groups):
        ends = split.low + np.cumsum([0, *(file.metadata.row_group(group).num_rows for group in groups)])
        wanted = np.flatnonzero((ends[:-1] < stop) & (ends[1:] > first)).tolist()
        low = int(ends[wanted[0]]) if wanted else 0
        stored = file.schema_arrow.names
        names = None if job.columns is None else [name for name in job.columns if name in stored] or stored[:1]
        batches = file.iter_batches(_ROWS_AT_ONCE, [groups[place] for place in wanted], names)
        for rows in _combine_batches(batches, at_once or _BATCH_BYTES):
            if split.folder is not None:
                type = plain_type(arrow_schema(job.schema).field(job.partition_by).type)
                rows = rows.append_column(job.partition_by, pa.repeat(pa.scalar(split.folder[0], type), len(rows)))
            yield cast_columns(rows, columns), low
            low += len(rows)
        if wanted and low != ends[wanted[-1] + 1]:
            raise NeedsSparkError(f"{split.path!r} has other rows than its footer says")


@contextmanager
def _open_split(job: CutJob, split: Split) -> Iterator[tuple[pq.ParquetFile, list[int]]]:
    in_files = job.schema
    if split.folder is not None:
        in_files = job.schema.select([name for name in job.schema.names if name != job.partition_by])
    with open_plain(Path(split.path), in_files) as file:
        groups = _select_row_groups(file.metadata, split)
        if sum(file.metadata.row_group(group).num_rows for group in groups) != split.rows:
            raise NeedsSparkError(f"{split.path!r} has other rows than were counted")
        yield file, groups


def _select_row_groups(footer: pq.FileMetaData, split: Split) -> list[int]:
    """Select the row groups that Spark reads for a split: those whose middle it has."""
    return [g for g in range(footer.num_row_groups) if split.start <= _row_group_middle(footer, g) < split.stop]


def _combine_batches(batches: Iterable[pa.RecordBatch], at_once: int) -> Iterator[pa.Table]:
    pending: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in batches:
        pending.append(batch)
        size, rows = size + batch.nbytes, rows + batch.num_rows
        if size >= at_once or rows >= _BATCH_ROWS:
            yield pa.Table.from_batches(pending)
            pending, size, rows = [], 0, 0
    if pending:
        yield pa.Table.from_batches(pending)


def _row_group_middle(footer: pq.FileMetaData, group: int) -> int:
    """Return the byte of a file that decides which split has a row group."""
    row_group = footer.row_group(group)
    chunks = [row_group.column(place) for place in range(row_group.num_columns)]
    pages, dictionary = chunks[0].data_page_offset, chunks[0].dictionary_page_offset
    start = pages if dictionary is None else min(pages, dictionary)
    middle: int = start + sum(chunk.total_compressed_size for chunk in chunks) // 2
    return middle


@dataclass(frozen=True)
class LocalFile:
    """A file of a source, with the partition column's plain value by its folder's name; None where files have it."""

    path: Path
    folder: tuple[PlainValue] | None


def list_local_files(source: str, schema: Schema, partition_by: str | None) -> tuple[LocalFile, ...]:
    """List a source's files by name: one, those of a folder, or of folders named after the partition column.

    Raises:
        NeedsSparkError: the source may be elsewhere, or Spark might list or read it otherwise.
    """
    check_columns(schema, partition_by)
    root = resolve_local_path(source)
    is_plain = has_plain_name(source) and has_plain_name(str(root)) and ".." not in root.parts
    in_path = {name.lower() for name in folder_values(f"{root}/")} & {name.lower() for name in schema.names}
    if not is_plain or in_path:
        raise NeedsSparkError(f"{source!r} has no plain name")
    try:
        paths = list_visible(root)
        if not paths:
            raise NeedsSparkError(f"{source!r} has no files")
        folders = [path for path in paths if path.is_dir()]
        if not folders:
            return tuple(LocalFile(_check_is_file(path), None) for path in paths)
        if len(folders) < len(paths):
            raise NeedsSparkError(f"{source!r} has files beside folders")
        return tuple(_list_folders(folders, schema, partition_by))
    except OSError as error:
        raise NeedsSparkError(f"{source!r} can't be looked at ({error})") from error


def has_plain_name(path: str) -> bool:
    """Return whether a path is no pattern to Spark, and has one spelling as a URI."""
    return bool(_PLAIN.fullmatch(path.removeprefix("file:")))


def _list_folders(folders: Sequence[Path], schema: Schema, partition_by: str | None) -> Iterator[LocalFile]:
    texts = [folder_values(f"{folder.name}/") for folder in folders]
    try:
        columns = folder_columns(texts)
    except SourceError as error:
        raise NeedsSparkError("a folder's value may be of a type that is not guessed here") from error
    if len(columns) != 1 or any(len(values) != 1 for values in texts) or partition_by is None:
        raise NeedsSparkError("folders are named after other columns than the one that the table is partitioned by")
    (column,) = columns
    if (column.name, column.type) != (partition_by, schema.find(partition_by).type):
        raise NeedsSparkError(f"folders are named after {column.name!r} of type {column.type}")
    for folder, values in zip(folders, texts, strict=True):
        value = _parse_folder_value(values[column.name], column.type)
        for path in list_visible(folder):
            yield LocalFile(_check_is_file(path), (value,))


def _parse_folder_value(text: str | None, type: str) -> PlainValue:
    if text == "":
        raise NeedsSparkError("a folder's name has no value")
    if text is None or type == "string":
        return text
    return (dt.date.fromisoformat(text) - dt.date(1970, 1, 1)).days if type == "date" else int(text)


def _check_is_file(path: Path) -> Path:
    if not path.is_file():
        raise NeedsSparkError(f"{str(path)!r} is no file")
    return path


def estimate_rows(files: Sequence[LocalFile]) -> int:
    """Estimate the rows of files from some of their footers.

    Raises:
        NeedsSparkError: a footer can't be read.
    """
    some = files[:: -(-len(files) // SAMPLED_FOOTERS) or 1]
    counts = [_read_footer(file.path).num_rows for file in some]
    return int(sum(counts)) * len(files) // max(1, len(some))


def count_files(files: Sequence[LocalFile], schema: Schema, partition_by: str | None, tasks: Executor) -> SplitCounts:
    """Return the splits of files and their rows by partition value; reads every file's footer.

    Raises:
        NeedsSparkError: a file might not be read as Spark reads it.
    """
    _check_all_are_stored(files, schema)
    shares = [files[start : start + _FILES_A_TASK] for start in range(0, len(files), _FILES_A_TASK)]
    results = tasks.map(len(shares), partial(_count_share, shares, schema, partition_by))
    return tuple(
        (replace(split, low=number << _ROW_BITS), counts)
        for number, (split, counts) in enumerate(chain.from_iterable(results))
    )


def _check_all_are_stored(files: Sequence[LocalFile], schema: Schema) -> None:
    """Raise NeedsSparkError if no file has one of a schema's columns, which Spark refuses; some files may lack it."""
    missing = set(schema.names)
    for file in files:
        missing -= set(_read_footer(file.path).schema.to_arrow_schema().names) | set(folder_values(str(file.path)))
        if not missing:
            return
    if missing and files:
        raise NeedsSparkError(f"no file has the column {min(missing)!r}")


def _read_footer(path: Path) -> pq.FileMetaData:
    try:
        return pq.read_metadata(path)
    except (OSError, pa.ArrowException) as error:
        raise NeedsSparkError(f"the footer of {str(path)!r} can't be read ({error})") from error


def _count_share(
    shares: Sequence[Sequence[LocalFile]], schema: Schema, partition_by: str | None, number: int
) -> list[tuple[Split, Mapping[PlainValue, int]]]:
    try:
        return [split for file in shares[number] for split in _count_file(file, schema, partition_by)]
    except UnicodeDecodeError as error:
        raise NeedsSparkError("a partition's name is no text in UTF-8") from error


def _count_file(
    file: LocalFile, schema: Schema, partition_by: str | None
) -> Iterator[tuple[Split, Mapping[PlainValue, int]]]:
    """Yield the splits of a file that have rows, with positions from 0, and their rows by partition value."""
    in_file = schema if file.folder is None else schema.select([name for name in schema.names if name != partition_by])
    with open_plain(file.path, in_file) as parquet:
        footer = parquet.metadata
        for start, stop, groups in _cut_ranges(footer, file.path.stat().st_size):
            rows = sum(footer.row_group(group).num_rows for group in groups)
            split = Split(str(file.path), start, stop, 0, rows, file.folder)
            if not rows:
                continue
            if partition_by is None or file.folder is not None:
                yield split, {None if file.folder is None else file.folder[0]: rows}
            else:
                if partition_by not in parquet.schema_arrow.names:
                    raise NeedsSparkError(f"{str(file.path)!r} lacks the partition column {partition_by!r}")
                keys = encode_partitions(parquet.read_row_groups(groups, [partition_by]), partition_by)
                counts = keys.indices.value_counts()
                values = keys.dictionary.take(counts.field("values")).to_pylist()
                yield split, dict(zip(values, counts.field("counts").to_pylist(), strict=True))


def _cut_ranges(footer: pq.FileMetaData, size: int) -> Iterator[tuple[int, int, list[int]]]:
    """Yield ranges of a file's bytes, ``[start, stop)``, and the row groups whose middle lies in each."""
    start, range_bytes, groups = 0, 0, list[int]()
    for group in range(footer.num_row_groups):
        if range_bytes >= _SPLIT_BYTES:
            yield start, (start := _row_group_middle(footer, group)), groups
            range_bytes, groups = 0, []
        groups.append(group)
        range_bytes += footer.row_group(group).total_byte_size
    yield start, size, groups


def assign_splits(
    splits: Sequence[Split], overlapping: Sequence[Collection[int]], segments: int
) -> tuple[tuple[Split, ...], ...]:
    """Return each segment's splits, given the segments that may have rows of each split."""
    assigned: list[list[Split]] = [[] for _ in range(segments)]
    for split, numbers in zip(splits, overlapping, strict=True):
        for number in sorted(numbers):
            assigned[number].append(split)
    return tuple(map(tuple, assigned))


def reads_little_twice(job: CutJob) -> bool:
    """Return whether tasks that read their own segments' splits read few rows of other segments."""
    ranges, read, rows = job.ranges, 0, dict[Split, int]()
    for segment, splits in enumerate(job.tasks):
        for split in splits:
            read += min(split.low + split.rows, ranges.highs[segment]) - max(split.low, ranges.lows[segment])
            rows[split] = split.rows
    return read <= _MOST_READ * sum(rows.values())


def group_splits(splits: Sequence[Split], most: int | None = None) -> tuple[tuple[Split, ...], ...]:
    """Group successive splits into tasks large enough to be worth starting; about ``most`` tasks at most."""
    task_bytes = max(_TASK_BYTES, sum(split.stop - split.start for split in splits) // most if most else 0)
    tasks: list[list[Split]] = []
    size = task_bytes
    for split in splits:
        if size >= task_bytes:
            tasks.append([])
            size = 0
        tasks[-1].append(split)
        size += split.stop - split.start
    return tuple(map(tuple, tasks))
