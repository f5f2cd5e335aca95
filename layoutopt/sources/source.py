"""A source: rows in Parquet files of any origin, which tasks of an executor read by Arrow, in splits.

What only Spark reads is spooled to such files first (:mod:`layoutopt.spark.loading.spool`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import ceil
from typing import Final, Protocol, TypeVar

import pyarrow as pa

from layoutopt.catalog.entries import content_of_entries
from layoutopt.catalog.load_check import Content
from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.partition_names import (
    PlainValue,
    no_partition_range,
    no_partitions,
    null_first_key,
    parse_range,
    parse_requests,
)
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import CommitConflictError, ContentMismatchError, LayoutoptError, NeedsSparkError, SourceError
from layoutopt.evaluation.checksum import is_hashable
from layoutopt.external.snapshot import SnapshotFile, SourceFile, SourcePartition
from layoutopt.model.arrays import spread
from layoutopt.model.feature import SessionSettings
from layoutopt.model.layout import Plan
from layoutopt.model.schema import Column, Schema
from layoutopt.scan.read import read_segments
from layoutopt.scan.table import Table, plan_entries_read
from layoutopt.sources.executor import Executor, Pack, RowsFunction, Value, map_in_groups
from layoutopt.sources.listing import count_files, read_version
from layoutopt.sources.profile import ChunkCountJob, list_chunks
from layoutopt.sources.second_reader import read_by_duckdb, sum_rows, sum_whole_rows, sum_written
from layoutopt.sources.segments import Chunk, Segment, chunk_bits, chunks_from_counts, segment_ranges
from layoutopt.sources.shuffle import (
    NO_RANGES,
    CutJob,
    Splits,
    assign_splits,
    group_splits,
    read_segment_rows,
    reads_little_twice,
)
from layoutopt.sources.split import FileSplit, Split, SplitCounts, partition_value
from layoutopt.sources.vectors import evaluate_words
from layoutopt.writer.segment import FindWords

# At most this many tasks a core, since the driver receives the result of each.
_TASKS_A_CORE: Final = 8
# Rows of a partition, in whole row groups, that a sample is drawn from: neighbours are more alike than rows of a block.
SAMPLED_ROWS: Final = 160_000
# Splits of a partition, at least, that a sample is drawn from: as many as fit into so many of all partitions.
_FEWEST_SPLITS, _MOST_SPLITS, _SPLITS_OF_ALL = 2, 8, 96

T = TypeVar("T", covariant=True)
# Whether the rows of a partition are needed, given its files.
IsNeeded = Callable[[SourcePartition], bool]


@dataclass(frozen=True)
class ListedFile:
    """A file of a source, and its version when it was listed."""

    file: SnapshotFile
    version: SourceFile


class TaskJob(Protocol[T]):
    """A job that runs as one task for each group of splits."""

    def run_task(self, splits: Splits) -> T | None:
        """Return the result of one task; None where it reads no rows."""
        ...


@dataclass(eq=False)
class Source:
    """The rows of some partitions of a source, and a second reader that sums them.

    Methods raise NeedsSparkError where Arrow might read a file otherwise than Spark.

    Attributes:
        name: names it in messages.
        schema: its columns.
        partition_by: the partition column, None for none.
        files: all files that may have rows of these partitions, as they were when they were listed.
        splits: those that have rows of them, in the order of the files, with their rows by partition value.
        executor: runs the tasks.
        partition_rows: the rows of each partition by its value, NULL first.
        values: the partitions; None for all.
        problems: the errors of partitions of which a file can't be read.
        uncounted: partitions that are not needed, with their files, but not their rows; none of ``files`` is theirs.
    """

    name: str
    schema: Schema
    partition_by: str | None
    files: Sequence[ListedFile]
    splits: SplitCounts
    executor: Executor
    partition_rows: Mapping[PlainValue, int]
    values: frozenset[PlainValue] | None = None
    problems: Mapping[PlainValue, LayoutoptError] = field(default_factory=dict)
    uncounted: tuple[SourcePartition, ...] = ()
    _chunks: dict[int, list[Chunk]] = field(default_factory=dict)

    @property
    def reader(self) -> str:
        """What reads the source: ``arrow`` or ``spark``."""
        return "spark" if self.carries_words else "arrow"

    @property
    def carries_words(self) -> bool:
        """Whether rows carry the words of features, and values of indexes, that only Spark computes."""
        return False

    def make_rest_evaluator(self, settings: SessionSettings) -> FindWords | None:
        """Return what finds the features that keys don't decide; None where rows carry their words."""
        return None if self.carries_words else partial(evaluate_words, settings=settings)

    @cached_property
    def partitions(self) -> tuple[SourcePartition, ...]:
        """All partitions that have rows or can't be read, with the versions of their files, by value; NULL is first."""
        versions = {listed.file.path: listed.version for listed in self.files}
        files: dict[PlainValue, dict[str, SourceFile]] = {}
        for split, counts in self.splits:
            assert isinstance(split, FileSplit), "only files are listed"
            for value in counts:
                files.setdefault(value, {})[split.file.path] = versions[split.file.path]
        readable = [
            SourcePartition(value, tuple(sorted(files[value].values(), key=_uri)), rows)
            for value, rows in self.partition_rows.items()
        ]
        damaged = [SourcePartition(value, (), problem=error) for value, error in self.problems.items()]
        return tuple(
            sorted([*readable, *damaged, *self.uncounted], key=lambda partition: null_first_key(partition.value))
        )

    def select(self, values: Iterable[PlainValue] | None) -> Source:
        """Return the rows of the partitions of some values, or all with None.

        Raises:
            LayoutoptError: one of them can't be read.
            CommitConflictError: one was not counted, since the table had it.
        """
        some = None if values is None else frozenset(values)
        for partition in self.uncounted:
            if some is None or partition.value in some:
                raise CommitConflictError(
                    f"the table had the partition {partition.value!r} of {self.name} when the load began, and was "
                    "changed since; load again"
                )
        for value, error in self.problems.items():
            if some is None or value in some:
                raise error
        if some is None or self.partition_by is None:
            return self
        rows = {value: count for value, count in self.partition_rows.items() if value in some}
        splits = tuple((split, counts) for split, counts in self.splits if not counts.keys().isdisjoint(rows))
        files = []
        for listed in self.files:
            constant = partition_value(listed.file, self.schema, self.partition_by)
            if constant is None or constant[0] in some:
                files.append(listed)
        return replace(
            self, files=files, splits=splits, partition_rows=rows, values=some, problems={}, uncounted=(), _chunks={}
        )

    def select_partitions(self, texts: Sequence[object]) -> tuple[SourcePartition, ...]:
        """Return the partitions that texts of ``--partition`` name.

        Raises:
            SettingError: a text is no value of the partition column.
        """
        by = self.partition_by
        if by is None:
            raise no_partitions(texts[0])
        values = parse_requests(texts, by, self.schema.find(by).type)
        by_value = {partition.value: partition for partition in self.partitions}
        return tuple(by_value.get(value, SourcePartition(value, ())) for value in values)

    def select_range(self, first: str | None, last: str | None) -> tuple[SourcePartition, ...]:
        """Return the partitions from one value to another; NULL never is between them.

        Raises:
            SettingError: a text is no value of the partition column.
        """
        if self.partition_by is None:
            raise no_partition_range()
        is_between = parse_range(first, last, self.schema.find(self.partition_by).type)
        return tuple(partition for partition in self.partitions if is_between(partition.value))

    def check_reachable(self, partitions: Sequence[SourcePartition]) -> None:
        """Do nothing: rows are counted and selected by the same values."""

    def check_rows(self, partitions: Sequence[SourcePartition] | None) -> None:
        """Raise the error of partitions that can't be read."""
        self.select(None if partitions is None else [partition.value for partition in partitions])

    def open_rows(self, partitions: Sequence[SourcePartition] | None, beside: TableFiles) -> Source:
        """Return the rows of some partitions, or of all with None, to be written to a table.

        Raises:
            NeedsSparkError: the table is encrypted, and DuckDB is to read nested columns back.
        """
        nested = next((column.name for column in self.schema.columns if not is_hashable(column.type)), None)
        if nested is not None and not beside.is_plain:
            raise NeedsSparkError(f"the column {nested!r} of an encrypted table is nested")
        return self.select(None if partitions is None else [partition.value for partition in partitions])

    def close(self) -> None:
        """Remove files that were written to read these rows; there are none."""

    def holds_same_rows(self, partition: SourcePartition, table: Table, entries: Sequence[PartitionEntry]) -> bool:
        """Return whether a partition's entries hold its rows, by rows, column checksums, and hashes of whole rows."""
        plan = table.catalog.plans[entries[-1].plan]
        if {(c.name, c.type) for c in plan.schema.columns} != {(c.name, c.type) for c in self.schema.columns}:
            return False
        content, of_source = sum_whole_rows(self.select([partition.value]).read_again(), self.schema)
        expected = content_of_entries(entries)
        if content.rows != expected.rows or any(content.sums[name] != sum for name, sum in expected.sums.items()):
            return False
        written = (pa.Table.from_batches([batch]) for batch in read_entries(table, entries))
        return sum_whole_rows(written, self.schema)[1] == of_source

    def sum(self) -> Content:
        """Return the rows and column checksums as DuckDB reads them: of all files, whatever rows Arrow counted there.

        Raises:
            ContentMismatchError: a file was changed since it was listed.
        """
        partition = None if self.partition_by is None else self.schema.find(self.partition_by)
        # Tasks share the columns of few files.
        shares = min(len(self.schema.columns), max(1, self.executor.cores // max(1, len(self.files))))
        groups = [self.schema.names[share::shares] for share in range(shares)]
        reads = [(listed.file, names) for listed in self.files for names in groups]
        parts = map_in_groups(self.executor, reads, partial(_sum_columns, self.schema, partition, self.values))
        self.check_unchanged()
        sums = {name: sum(part.sums.get(name, 0) for part in parts) for name in self.schema.names}
        return Content(sum(part.rows for part in parts[::shares]), sums)

    def sum_written(self, files: TableFiles, plan: Plan, schema: Schema, blocks: pa.Table) -> Mapping[str, int]:
        """Return the checksums of columns that tasks can't hash (nested, collated), from a layout's blocks."""
        return sum_written(files, schema, blocks["file"].unique().to_pylist())

    def read_again(self) -> Iterator[pa.Table]:
        """Yield the rows as DuckDB reads them, in this process."""
        partition = None if self.partition_by is None else self.schema.find(self.partition_by)
        for listed in self.files:
            yield from read_by_duckdb(listed.file, self.schema, None, partition, self.values)

    def check_unchanged(self) -> None:
        """Raise ContentMismatchError for a file that was changed since it was listed."""
        for listed in self.files:
            try:
                is_changed = read_version(listed.file) != listed.version
            except OSError:
                is_changed = True
            if is_changed:
                raise ContentMismatchError(
                    f"{listed.file.path!r} was changed during the load; nothing was committed, load again once it no "
                    "longer changes"
                )

    def sum_again(self) -> Content:
        """Sum once more, where what was written has other sums."""
        return self.sum()

    @contextmanager
    def checks_changes(self) -> Iterator[None]:
        """Raise ContentMismatchError, if files were changed, for any error of reading them within the block."""
        try:
            yield
        except LayoutoptError:
            self.check_unchanged()
            raise

    def chunks(self, segment_rows: int) -> list[Chunk]:
        """Return chunks of neighbouring rows, in file order; a partition that fits into one segment is one chunk."""
        if segment_rows not in self._chunks:
            self._chunks[segment_rows] = self._count_chunks(segment_rows)
        return self._chunks[segment_rows]

    def _count_chunks(self, segment_rows: int) -> list[Chunk]:
        chunks = chunks_from_counts(self.partition_rows, segment_rows)
        if chunks is not None:
            return chunks
        shift = chunk_bits(segment_rows)
        job = ChunkCountJob(self.cut_job(()), shift)
        counts = job.merge(self.run(job, self.splits_with(self.partition_rows)))
        return [chunk for chunk in list_chunks(counts, shift) if chunk.value in self.partition_rows]

    def map_segments(
        self,
        segments: Sequence[Segment],
        function: RowsFunction[Value],
        pack: Pack[Value] = list,
        *,
        columns: Collection[str] | None = None,
        is_secret: bool = False,
    ) -> Sequence[Value | None]:
        """Return a function's value of each segment's rows, each from a task; None for a segment without rows.

        Where files have rows of many segments, tasks first cut each file once, and shuffle the rows to the segments.

        Args:
            segments: numbered from 0.
            function: gets the number of a segment, and batches of its rows with their positions; perhaps none.
            pack: as of :meth:`~layoutopt.sources.executor.Executor.shuffle`.
            columns: those that are read, and the partition column; all when None.
            is_secret: whether the rows may not lie open in temporary files.

        Raises:
            ContentMismatchError: a file was changed since it was counted.
            LayoutoptError: a task failed.
        """
        splits = [split for split, _ in self.splits]
        ranges = segment_ranges(segments)
        overlapping = [ranges.overlapping(split, values) for split, values in self.splits]
        names = None if columns is None else self.cut_job(columns).columns
        own = assign_splits(splits, overlapping, len(segments))
        job = CutJob(self.schema, self.partition_by, ranges, columns=names)
        with self.checks_changes():
            if reads_little_twice(ranges, own) or (is_secret and self.executor.shuffles_openly):
                call = partial(_call_with_own_rows, job, function)
                return map_in_groups(self.executor, list(enumerate(own)), call, pack=pack)
            return self.executor.shuffle(job, group_splits(splits), function, pack)

    def run(self, job: TaskJob[T], splits: Sequence[Split]) -> list[T]:
        """Return the results of a job's tasks that read rows of some splits."""
        results = [result for result in self.executor.map(self.group(splits), job.run_task) if result is not None]
        if not results:
            raise NeedsSparkError("the source has no rows any more")
        return results

    def group(self, splits: Sequence[Split]) -> tuple[Splits, ...]:
        """Return the splits of each task, a few tasks a core."""
        return group_splits(splits, _TASKS_A_CORE * self.executor.cores)

    def splits_with(self, values: Collection[PlainValue]) -> list[Split]:
        """Return the splits that have rows of some partitions."""
        return [split for split, counts in self.splits if not counts.keys().isdisjoint(values)]

    def sample_splits(self, value: PlainValue) -> tuple[list[Split], int]:
        """Return some splits that have rows of a partition, spread evenly, and the number of these rows.

        There are at least :data:`SAMPLED_ROWS` rows in at least some splits, or all. So the work does not follow the
        table's rows.
        """
        having = self._splits_by_value.get(value, [])
        rows = sum(count for _, count in having)
        fewest = max(_FEWEST_SPLITS, min(_MOST_SPLITS, _SPLITS_OF_ALL // max(1, len(self.partition_rows))))
        some = spread(having, max(fewest, ceil(SAMPLED_ROWS * len(having) / max(1, rows))))
        return [split for split, _ in some], sum(count for _, count in some)

    @cached_property
    def _splits_by_value(self) -> Mapping[PlainValue, list[tuple[Split, int]]]:
        splits: dict[PlainValue, list[tuple[Split, int]]] = {}
        for split, counts in self.splits:
            for value, count in counts.items():
                splits.setdefault(value, []).append((split, count))
        return splits

    def cut_job(self, columns: Collection[str]) -> CutJob:
        """Return the job of reading some columns, and the partition column."""
        wanted = {*columns, *([] if self.partition_by is None else [self.partition_by])}
        names = tuple(name for name in self.schema.names if name in wanted) or self.schema.names[:1]
        return CutJob(self.schema, self.partition_by, NO_RANGES, columns=names)


def need_all(partition: SourcePartition) -> bool:
    """Return that a partition is needed."""
    return True


def list_versions(name: str, files: Sequence[SnapshotFile]) -> list[ListedFile]:
    """Return files of a source with their versions; raise SourceError if one was removed meanwhile."""
    try:
        return [ListedFile(file, read_version(file)) for file in files]
    except OSError as error:
        raise SourceError(f"a file of {name!r} was removed meanwhile ({error}); load again") from error


def set_aside(
    files: Sequence[ListedFile], schema: Schema, partition_by: str | None, is_needed: IsNeeded
) -> tuple[Sequence[ListedFile], tuple[SourcePartition, ...]]:
    """Return the files of partitions that are needed, and the other partitions.

    All files are needed where one stores the partition column: it may have rows of any partition.
    """
    by_value: dict[PlainValue, list[SourceFile]] = {}
    values: list[PlainValue] = []
    for listed in files:
        constant = None if partition_by is None else partition_value(listed.file, schema, partition_by)
        if constant is None:
            return files, ()
        values += constant
        by_value.setdefault(constant[0], []).append(listed.version)
    partitions = [SourcePartition(value, tuple(sorted(of_value, key=_uri))) for value, of_value in by_value.items()]
    others = {partition.value: partition for partition in partitions if not is_needed(partition)}
    needed = [listed for listed, value in zip(files, values, strict=True) if value not in others]
    return needed, tuple(others.values())


def _uri(file: SourceFile) -> str:
    return file.uri


def open_files(
    name: str,
    files: Sequence[ListedFile],
    schema: Schema,
    partition_by: str | None,
    executor: Executor,
    others: Sequence[SnapshotFile] = (),
) -> Source:
    """Open files of a source: read their footers, and count their rows.

    ``others`` are files of the source that are not read; they may have columns that these files lack.

    Raises:
        NeedsSparkError: a file might not be read as Spark reads it.
    """
    splits = count_files([listed.file for listed in files], schema, partition_by, executor, others)
    return Source(name, schema, partition_by, files, splits, executor, count_partition_rows(splits))


def read_entries(table: Table, entries: Sequence[PartitionEntry]) -> Iterator[pa.RecordBatch]:
    """Yield the live rows of some entries of a table's partitions."""
    read = plan_entries_read(table, entries)
    return read_segments(table.catalog.files, read.segments, read.columns)


def _call_with_own_rows(job: CutJob, function: RowsFunction[Value], task: tuple[int, Splits]) -> Value:
    segment, splits = task
    return function(segment, read_segment_rows(job, segment, splits))


def _sum_columns(
    schema: Schema,
    partition: Column | None,
    wanted: Collection[PlainValue] | None,
    read: tuple[SnapshotFile, Sequence[str]],
) -> Content:
    file, names = read
    return sum_rows(read_by_duckdb(file, schema, names, partition, wanted), schema.select(names))


def count_partition_rows(splits: SplitCounts) -> dict[PlainValue, int]:
    """Return the rows of each partition by its value, NULL first."""
    rows: dict[PlainValue, int] = {}
    for _, counts in splits:
        for value, count in counts.items():
            rows[value] = rows.get(value, 0) + count
    return {value: rows[value] for value in sorted(rows, key=null_first_key)}
