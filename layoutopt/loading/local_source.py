"""Load plain Parquet files of this machine without Spark: Arrow reads them in processes, and DuckDB sums them.

Files are opened only where Arrow surely reads them as Spark does (:mod:`layoutopt.local.parquet_files`); others raise
NeedsSparkError before anything is written. DuckDB's own reader of Parquet is the second one, which proves a load.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pyarrow as pa

from layoutopt.catalog.entries import content_of_entries
from layoutopt.catalog.load_check import Content
from layoutopt.catalog.partition_names import (
    PlainValue,
    no_partitions,
    null_first_key,
    parse_request,
    wrong_partition_value,
)
from layoutopt.catalog.snapshot import PartitionEntry
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.config.settings import LoadSettings
from layoutopt.errors import ContentMismatchError, NeedsSparkError, SettingError
from layoutopt.events import NO_EVENTS, EventLog, Progress, silent
from layoutopt.external.snapshot import SourceFile, SourcePartition
from layoutopt.indexes.expressions import select_for_spark
from layoutopt.loading.load import LoadsReport, RowSource, run_load
from layoutopt.local.local_rows import LocalRows, count_partition_rows
from layoutopt.local.parquet_files import check_columns
from layoutopt.local.processes import Processes, Tasks
from layoutopt.local.second_reader import read_by_duckdb, sum_file, sum_whole_rows, sum_written
from layoutopt.local.segments import Chunk, Segment, segment_ranges
from layoutopt.local.splits import (
    LEAST_ROWS,
    CutJob,
    LocalFile,
    assign_splits,
    count_files,
    estimate_rows,
    group_splits,
    list_local_files,
    read_segment_rows,
    read_shuffle_batches,
    write_shuffle_batches,
)
from layoutopt.local.vectors import check_features_by_arrow, evaluate_words
from layoutopt.model.feature import SessionSettings
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import TRUE, Filter
from layoutopt.model.schema import Schema
from layoutopt.model.types import INTEGER_BITS
from layoutopt.scan.read import read_segments
from layoutopt.scan.table import Table
from layoutopt.scan.table_read import TableRead
from layoutopt.sql.scans import TableScan
from layoutopt.writer.task import WriteJob, gather_and_write
from layoutopt.writer.task_result import TaskResult

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True)
class LocalFiles(RowSource):
    """The rows of a load from plain files.

    Attributes:
        rows: the splits that have rows to load, and the rows of each partition to load.
        files: those that have rows to load, as they were when they were counted.
    """

    rows: LocalRows
    files: Mapping[LocalFile, SourceFile]

    def count_chunks(self, segment_rows: int) -> Sequence[Chunk]:
        """Count chunks of neighbouring rows of large partitions."""
        return self.rows.chunks(segment_rows) if self.rows.partition_rows else []

    def writers(self, plan: Plan, segments: Sequence[Segment], counts: dict[str, object]) -> Sequence[ProcessWriter]:
        """Return the writer in processes.

        Raises:
            NeedsSparkError: a feature needs Spark.
        """
        rows, ranges = self.rows, segment_ranges(segments)
        splits = [split for split, _ in rows.splits]
        overlapping = [
            {segment.id for segment in segments if segment.may_overlap(split, values)} for split, values in rows.splits
        ]
        segment_splits = assign_splits(splits, overlapping, ranges)
        tasks = group_splits(splits) if segment_splits is None else tuple(map(tuple, segment_splits))
        cut = CutJob(plan.schema, plan.partition_by, ranges, tasks, segment_splits is not None)
        if splits:
            check_features_by_arrow(cut, splits[0], plan.features)
        return [ProcessWriter(cut, rows.tasks, self.measure)]

    def measure(self) -> Content:
        """Sum the source as DuckDB reads it.

        Raises:
            ContentMismatchError: a file was changed since it was counted.
        """
        rows, files = self.rows, list(self.files)
        task = partial(_sum_file, files, rows.schema, rows.partition_by, list(rows.partition_rows))
        parts = rows.tasks.map(len(files), task)
        for file, counted in self.files.items():
            if stat_file(file.path) != counted:
                raise ContentMismatchError(
                    f"{str(file.path)!r} was changed during the load; nothing was committed, load again once it no "
                    "longer changes"
                )
        sums = {name: sum(part.sums[name] for part in parts) for name in rows.schema.names}
        return Content(sum(part.rows for part in parts), sums)

    def read_back(self, files: TableFiles, plan: Plan, blocks: pa.Table) -> Mapping[str, int]:
        """Read the checksums of nested columns by DuckDB."""
        return sum_written(files, plan, blocks)


def _sum_file(
    files: Sequence[LocalFile], schema: Schema, partition_by: str | None, wanted: Collection[PlainValue], number: int
) -> Content:
    return sum_file(files[number], schema, partition_by, wanted)


@dataclass(frozen=True)
class ProcessWriter:
    """Writes segments in processes of this machine: a :class:`~layoutopt.loading.load.SegmentWriter`.

    Where files have rows of many segments, processes first cut the rows into files in a temporary folder.
    """

    cut: CutJob
    tasks: Tasks
    measure: Callable[[], Content]
    reader: str = "arrow"

    def write(self, job: WriteJob) -> tuple[Iterable[TaskResult], Content]:
        """Write all segments, and sum the source."""
        job, cut = replace(job, of_left=evaluate_words), self.cut
        count = len(cut.ranges.values)
        if cut.by_segment:
            results = self.tasks.map(count, partial(_write_own_files, cut, job))
        else:
            with TemporaryDirectory(prefix="layoutopt-") as folder:
                written = self.tasks.map(len(cut.tasks), partial(write_shuffle_batches, cut, None, folder))
                results = self.tasks.map(count, partial(_write_shuffled, folder, written, job))
        return [result for result in results if result is not None], self.measure()


def _write_own_files(cut: CutJob, job: WriteJob, segment: int) -> TaskResult | None:
    return _split_result(gather_and_write(job, read_segment_rows(cut, [segment])))


def _write_shuffled(folder: str, written: Sequence[Sequence[int]], job: WriteJob, segment: int) -> TaskResult | None:
    return _split_result(gather_and_write(job, read_shuffle_batches(folder, written, segment, segment)))


def _split_result(result: TaskResult | None) -> TaskResult | None:
    return None if result is None else result.split()


def run_local_load(settings: LoadSettings, say: Progress = silent, log: EventLog = NO_EVENTS) -> LoadsReport:
    """Load without Spark what the settings request and the table lacks, as :func:`layoutopt.loading.load.run_load`.

    Raises:
        SettingError: source or plan need Spark.
    """
    try:
        return run_load(LocalSource, settings, say, log)
    except NeedsSparkError as error:
        raise SettingError(
            f"{settings.source!r} can't be loaded without Spark: {error}; give --executor spark"
        ) from error


class LocalSource:
    """A source of plain Parquet files: a :class:`~layoutopt.loading.load.LoadSource`.

    Raises:
        NeedsSparkError: Spark might read the files otherwise, the plan needs Spark, or there are more than
            ``most_rows`` rows.
        SourceError: a file is damaged.
    """

    def __init__(self, source: str, plan: Plan, most_rows: int | None = None) -> None:
        check_plan(plan)
        files = list_local_files(source, plan.schema, plan.partition_by)
        rows = estimate_rows(files)
        if most_rows is not None and rows > most_rows:
            raise NeedsSparkError(f"there are more than {most_rows} rows")
        # Processes take a second to start.
        self._tasks = Processes(1) if rows < LEAST_ROWS else Processes()
        self._source, self._plan = source, plan
        self._files = {str(file.path): (file, stat_file(file.path)) for file in files}
        self._splits = count_files(files, plan.schema, plan.partition_by, self._tasks)

    def list_partitions(self) -> tuple[SourcePartition, ...]:
        """List all partitions that have rows."""
        files: dict[PlainValue, dict[str, SourceFile]] = {}
        for split, counts in self._splits:
            for value in counts:
                files.setdefault(value, {})[split.path] = self._files[split.path][1]
        rows = count_partition_rows(self._splits)
        return tuple(
            SourcePartition(value, tuple(sorted(files[value].values(), key=lambda file: file.uri)), rows[value])
            for value in sorted(files, key=null_first_key)
        )

    def select_partitions(self, texts: Sequence[str]) -> tuple[SourcePartition, ...]:
        """Return the partitions that texts name."""
        by = self._plan.partition_by
        if by is None:
            raise no_partitions(texts[0])
        type = self._plan.schema.find(by).type
        requests = [parse_request(text, by, type == "string") for text in texts]
        values = dict.fromkeys(None if text is None else _parse_value(text, type, by) for text in requests)
        by_value = {partition.value: partition for partition in self.list_partitions()}
        return tuple(by_value.get(value, SourcePartition(value, ())) for value in values)

    def select_range(self, first: str | None, last: str | None) -> tuple[SourcePartition, ...]:
        """Return the partitions from one value to another."""
        by = self._plan.partition_by
        if by is None:
            raise SettingError(
                "the plan has no partitions, but a range of them was asked for; leave --from and --to out"
            )
        type = self._plan.schema.find(by).type
        low, high = (None if text is None else null_first_key(_parse_value(text, type, by)) for text in (first, last))
        return tuple(
            partition
            for partition in self.list_partitions()
            if partition.value is not None
            and (low is None or low <= null_first_key(partition.value))
            and (high is None or null_first_key(partition.value) <= high)
        )

    def check_reachable(self, partitions: Sequence[SourcePartition]) -> None:
        """Do nothing: rows are counted and selected by the same values."""

    def open_rows(self, partitions: Sequence[SourcePartition] | None) -> LocalFiles:
        """Open the rows of some partitions, or of all with None."""
        plan, rows = self._plan, count_partition_rows(self._splits)
        if partitions is not None and plan.partition_by is not None:
            wanted = {partition.value for partition in partitions}
            rows = {value: count for value, count in rows.items() if value in wanted}
        splits = tuple((split, counts) for split, counts in self._splits if not counts.keys().isdisjoint(rows))
        paths = dict.fromkeys(split.path for split, _ in splits)
        local_rows = LocalRows(self._tasks, plan.schema, plan.partition_by, splits, rows)
        return LocalFiles(local_rows, dict(self._files[path] for path in paths))

    def holds_same_rows(self, partition: SourcePartition, table: Table, entries: Sequence[PartitionEntry]) -> bool:
        """Return whether a partition's entries hold its rows, by rows, column checksums, and hashes of whole rows."""
        plan = table.catalog.plans[entries[-1].plan]
        if {(c.name, c.type) for c in plan.schema.columns} != {(c.name, c.type) for c in self._plan.schema.columns}:
            return False
        rows, expected = self.open_rows([partition]), content_of_entries(entries)
        content = rows.measure()
        if content.rows != expected.rows or any(content.sums[name] != sum for name, sum in expected.sums.items()):
            return False
        schema, by = self._plan.schema, self._plan.partition_by
        source = (part for file in rows.files for part in read_by_duckdb(file, schema, by, [partition.value]))
        written = (pa.Table.from_batches([batch]) for batch in read_entries(table, entries))
        return sum_whole_rows(source, schema) == sum_whole_rows(written, schema)


def _parse_value(text: str, type: str, partition_by: str) -> PlainValue:
    """Return the plain value of a text, where Spark certainly reads the same; raises SettingError."""
    if type == "string":
        return text
    try:
        if type == "date":
            return (dt.date.fromisoformat(text.strip()) - dt.date(1970, 1, 1)).days
        value, bound = int(text) if _INTEGER.fullmatch(text.strip()) else None, 1 << INTEGER_BITS[type] - 1
        if value is not None and -bound <= value < bound:
            return value
    except ValueError:
        pass
    raise wrong_partition_value(text, type, partition_by)


def read_entries(table: Table, entries: Sequence[PartitionEntry]) -> Iterator[pa.RecordBatch]:
    """Yield the live rows of some entries of a table's partitions."""
    scan = TableScan(table.name, table.name, table.schema.names, Filter.of(TRUE))
    read = TableRead(table, scan, table.all_rows_of(entries, scan.columns))
    return read_segments(table.catalog.files, read.segments, read.columns)


def check_plan(plan: Plan) -> None:
    """Raise NeedsSparkError for a plan whose settings, indexes or columns need Spark."""
    if plan.settings != SessionSettings():
        raise NeedsSparkError(f"the table is for sessions with {plan.settings}")
    if select_for_spark(spec.subject for spec in plan.indexes):
        raise NeedsSparkError("the table has an index of an expression that only Spark computes")
    check_columns(plan.schema, plan.partition_by)


def stat_file(path: Path) -> SourceFile:
    """Return the file's size and time of change as Spark reports them, to the millisecond."""
    status = path.stat()
    return SourceFile(f"file:{path}", status.st_size, status.st_mtime_ns // 1_000_000 * 1_000)
