"""The rows of a source's files for tasks of loads, which are Spark's, and of planning: read by Arrow, cut by segment.

Through Spark rows are made of columns, shuffled one by one, and made columns of again. Here columns stay columns. Where
each file has rows of few segments, the task that writes a segment reads its files itself; else other tasks read each
file once, and a shuffle sees thousands of rows of a segment as one value.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.errors import NeedsSparkError, SourceError, carrying
from layoutopt.local.parquet_files import (
    arrow_schema,
    check_columns,
    coded_partitions,
    local_root,
    open_plain,
    plain_type,
    shown_in,
    typed,
)
from layoutopt.local.processes import Tasks
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.schema import END_OF_SOURCE, Schema
from layoutopt.sql.schema import folder_columns, values_in_folders
from layoutopt.writer.segment import PARCEL_SCHEMA, POOL, parcel_of, placed, unpacked

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


# ----------------------------------------------------------------------------------------------------
# Rows of segments from the tasks that read files to those that take segments, through a folder of their own.


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


# ----------------------------------------------------------------------------------------------------
# The files of a source on this machine, as Spark would list them, and how many rows of each partition they have.

# What is no pattern to Spark, and is spelled in one way as a URI.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./=-]+")
_SPLIT_BYTES: Final = 1 << 27
_FILES_A_TASK: Final = 16
_LOOKED_AT: Final = 16  # files whose footers tell how many rows there are about
_ROW_BITS: Final = 33  # of a position; the split's number is above, as in Spark's own

Counted: TypeAlias = "tuple[tuple[Split, Mapping[PlainValue, int]], ...]"
"""Splits in the order of their files' names, with the rows of each value of the partition column."""


@dataclass(frozen=True)
class LocalFile:
    """A file of a source.

    Attributes:
        path: its path.
        folder: what the name of its folder says that the partition column is, plain; None where files have it.
    """

    path: Path
    folder: tuple[PlainValue] | None


def local_files(source: str, schema: Schema, partition_by: str | None) -> tuple[LocalFile, ...]:
    """The files of a source by their names: one, those of a folder, or of folders named after the partition column.

    Args:
        source: a path.
        schema: the columns that it has to have.
        partition_by: the partition column, None for none.

    Raises:
        NeedsSparkError: it may be no path of this machine, or there is something that Spark might read otherwise.
    """
    check_columns(schema, partition_by)
    root = local_root(source)
    plain = _PLAIN.fullmatch(source) and _PLAIN.fullmatch(str(root)) and ".." not in root.parts
    named = {name.lower() for name in values_in_folders(f"{root}/")} & {name.lower() for name in schema.names}
    if not plain or named:
        raise NeedsSparkError(f"{source!r} has no plain name")
    try:
        found = shown_in(root)
        if not found:
            raise NeedsSparkError(f"{source!r} has no files")
        folders = [path for path in found if path.is_dir()]
        if not folders:
            return tuple(LocalFile(_checked(path), None) for path in found)
        if len(folders) < len(found):
            raise NeedsSparkError(f"{source!r} has files beside folders")
        return tuple(_in_folders(folders, schema, partition_by))
    except OSError as error:
        raise NeedsSparkError(f"{source!r} can't be looked at ({error})") from error


def _in_folders(folders: Sequence[Path], schema: Schema, partition_by: str | None) -> Iterator[LocalFile]:
    said = [values_in_folders(f"{folder.name}/") for folder in folders]
    try:
        columns = folder_columns(said)
    except SourceError as error:
        raise NeedsSparkError("a folder's value may be of a type that is not guessed here") from error
    if len(columns) != 1 or any(len(each) != 1 for each in said) or partition_by is None:
        raise NeedsSparkError("folders tell of other columns than of one that the table is partitioned by")
    (column,) = columns
    if (column.name, column.type) != (partition_by, schema.find(partition_by).type):
        raise NeedsSparkError(f"folders tell of {column.name!r} of type {column.type}")
    for folder, each in zip(folders, said, strict=True):
        value = _typed(each[column.name], column.type)
        for path in shown_in(folder):
            yield LocalFile(_checked(path), (value,))


def _typed(text: str | None, type: str) -> PlainValue:
    """A text that was guessed to be of a type as its plain value; of the few types that name partitions."""
    if text == "":
        raise NeedsSparkError("a folder's name has no value")
    if text is None or type == "string":
        return text
    return (dt.date.fromisoformat(text) - dt.date(1970, 1, 1)).days if type == "date" else int(text)


def _checked(path: Path) -> Path:
    if not path.name.endswith(".parquet") or not path.is_file():
        raise NeedsSparkError(f"{str(path)!r} is no file of Parquet by its name")
    return path


def rows_in_files(files: Sequence[LocalFile]) -> int:
    """About how many rows files have, by the footers of some.

    Raises:
        NeedsSparkError: a footer can't be read.
    """
    some = files[:: -(-len(files) // _LOOKED_AT) or 1]
    try:
        counted = [pq.read_metadata(file.path).num_rows for file in some]
    except (OSError, pa.ArrowException) as error:
        raise NeedsSparkError("a file's footer can't be read") from error
    return int(sum(counted)) * len(files) // max(1, len(some))


def count_files(files: Sequence[LocalFile], schema: Schema, partition_by: str | None, tasks: Tasks) -> Counted:
    """The splits of files, and what rows they have; every file's footer is looked at.

    Args:
        files: of a source.
        schema: the columns that each has to have, but for that which its folder tells.
        partition_by: the partition column, None for none.
        tasks: that read the files.

    Raises:
        NeedsSparkError: a file is not surely read as Spark reads it, or there are no rows.
    """
    shares = [files[start : start + _FILES_A_TASK] for start in range(0, len(files), _FILES_A_TASK)]
    of_shares = tasks.each(len(shares), partial(_count_share, shares, schema, partition_by))
    counted = tuple(
        (replace(split, low=number << _ROW_BITS), held)
        for number, (split, held) in enumerate(chain.from_iterable(of_shares))
    )
    if not counted:
        raise NeedsSparkError("the source has no rows")
    return counted


def _count_share(
    shares: Sequence[Sequence[LocalFile]], schema: Schema, partition_by: str | None, number: int
) -> list[tuple[Split, Mapping[PlainValue, int]]]:
    try:
        return [each for file in shares[number] for each in _count(file, schema, partition_by)]
    except UnicodeDecodeError as error:
        raise NeedsSparkError("a partition's name is no text in UTF-8") from error


def _count(
    file: LocalFile, schema: Schema, partition_by: str | None
) -> Iterator[tuple[Split, Mapping[PlainValue, int]]]:
    """The splits of a file that have rows, as if it were the first."""
    in_file = schema if file.folder is None else schema.select([name for name in schema.names if name != partition_by])
    with open_plain(file.path, in_file, compared=True) as opened:
        footer = opened.metadata
        for start, stop, groups in _ranges(footer, file.path.stat().st_size):
            rows = sum(footer.row_group(group).num_rows for group in groups)
            split = Split(str(file.path), start, stop, 0, rows, file.folder)
            if not rows:
                continue
            if partition_by is None or file.folder is not None:
                yield split, {None if file.folder is None else file.folder[0]: rows}
            else:
                keys = coded_partitions(opened.read_row_groups(groups, [partition_by]), partition_by)
                counts = keys.indices.value_counts()
                values = keys.dictionary.take(counts.field("values")).to_pylist()
                yield split, dict(zip(values, counts.field("counts").to_pylist(), strict=True))


def _ranges(footer: pq.FileMetaData, size: int) -> Iterator[tuple[int, int, list[int]]]:
    """Ranges of a file's bytes, ``[start, stop)``, and the row groups whose middle lies in each."""
    start, held, groups = 0, 0, list[int]()
    for group in range(footer.num_row_groups):
        if held >= _SPLIT_BYTES:
            yield start, (start := middle_of(footer, group)), groups
            held, groups = 0, []
        groups.append(group)
        held += footer.row_group(group).total_byte_size
    yield start, size, groups
