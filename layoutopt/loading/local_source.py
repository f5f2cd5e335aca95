"""Load Parquet files of this machine without Spark, also those of Delta and Iceberg tables.

Arrow reads files in processes, and DuckDB sums them. They are opened only where Arrow surely reads them as Spark does
(:mod:`layoutopt.sources.parquet_files`); others raise NeedsSparkError before anything is written. DuckDB's own reader
of Parquet is the second one, which proves a load.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

import pyarrow as pa

from layoutopt.catalog.entries import content_of_entries
from layoutopt.catalog.load_check import Content
from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.partition_names import (
    PlainValue,
    no_partition_range,
    no_partitions,
    null_first_key,
    parse_plain_value,
    parse_request,
)
from layoutopt.catalog.storage.filesystem import absolute, is_url
from layoutopt.errors import NeedsSparkError, SourceError, TableError
from layoutopt.evaluation.expressions import select_for_spark
from layoutopt.external.formats import parse_source_name
from layoutopt.external.snapshot import SourcePartition
from layoutopt.loading.load import RowSource
from layoutopt.model.feature import SessionSettings
from layoutopt.model.layout import Plan
from layoutopt.scan.read import read_segments
from layoutopt.scan.table import Table, plan_entries_read
from layoutopt.sources.executor import Executor, Processes, map_in_groups
from layoutopt.sources.listing import estimate_rows, list_source_files
from layoutopt.sources.parquet_files import check_columns
from layoutopt.sources.second_reader import sum_whole_rows
from layoutopt.sources.segments import Chunk, Segment, segment_ranges
from layoutopt.sources.shuffle import (
    LEAST_ROWS,
    CutJob,
    ShuffledRows,
    assign_splits,
    group_splits,
    read_segment_rows,
    reads_little_twice,
    write_shuffle_batches,
)
from layoutopt.sources.source import Source, open_files
from layoutopt.sources.vectors import check_features_by_arrow, evaluate_words
from layoutopt.writer.task import WriteJob, gather_and_write
from layoutopt.writer.task_result import PackedResults, TaskResult


@dataclass(frozen=True)
class ArrowRows(RowSource):
    """The rows of a load that tasks read by Arrow."""

    source: Source

    def count_chunks(self, segment_rows: int) -> Sequence[Chunk]:
        """Count chunks of neighbouring rows of large partitions."""
        return self.source.chunks(segment_rows) if self.source.partition_rows else []

    def write(self, job: WriteJob, segments: Sequence[Segment]) -> tuple[Iterable[TaskResult], Content]:
        """Write each segment in a task, and sum the source by another reader.

        Where files have rows of many segments, tasks first cut each file once, and shuffle the rows to the segments.

        Raises:
            NeedsSparkError: Arrow might read a file otherwise than Spark.
            ContentMismatchError: a file was changed since it was counted.
        """
        source, plan = self.source, job.plan
        job = replace(job, evaluate_rest=partial(evaluate_words, settings=plan.settings))
        splits = [split for split, _ in source.splits]
        ranges = segment_ranges(segments)
        overlapping = [ranges.overlapping(split, values) for split, values in source.splits]
        tasks = assign_splits(splits, overlapping, len(segments))
        own = CutJob(plan.schema, plan.partition_by, ranges, tasks, by_segment=True)
        results: Sequence[TaskResult | None]
        try:
            if reads_little_twice(own) or not self.can_shuffle(job):
                results = map_in_groups(
                    source.executor, len(segments), partial(_write_own_files, own, job), pack=PackedResults
                )
            else:
                shared = replace(own, tasks=group_splits(splits), by_segment=False)
                results = self.shuffle(shared, job)
        except NeedsSparkError:
            source.check_unchanged()
            raise
        return [result for result in results if result is not None], self.measure()

    def can_shuffle(self, job: WriteJob) -> bool:
        """Whether rows may lie in temporary files: those of an encrypted table may not."""
        return not job.lent

    def shuffle(self, cut: CutJob, job: WriteJob) -> Sequence[TaskResult | None]:
        """Cut the rows into files of a temporary folder, and write the segments from these.

        Raises:
            TableError: the temporary folder is full.
        """
        try:
            with TemporaryDirectory(prefix="layoutopt-") as folder:
                written = self.source.executor.map(len(cut.tasks), partial(write_shuffle_batches, cut, None, folder))
                write = partial(_write_shuffled, ShuffledRows.of(folder, written), job)
                return map_in_groups(self.source.executor, len(cut.ranges.values), write, pack=PackedResults)
        except OSError as error:
            raise TableError(
                f"rows can't be stored in the temporary folder {gettempdir()!r} ({error.strerror or error}); nothing "
                "was committed; make room there, or name another by TMPDIR"
            ) from error

    def measure(self) -> Content:
        """Sum the source as DuckDB reads it."""
        return self.source.sum()


def _write_own_files(cut: CutJob, job: WriteJob, segment: int) -> TaskResult | None:
    return _split_result(gather_and_write(job, read_segment_rows(cut, [segment])))


def _write_shuffled(rows: ShuffledRows, job: WriteJob, segment: int) -> TaskResult | None:
    return _split_result(gather_and_write(job, rows.read(segment, segment)))


def _split_result(result: TaskResult | None) -> TaskResult | None:
    return None if result is None else result.split()


class LocalSource:
    """A source of Parquet files, also of a Delta or Iceberg table: a :class:`~layoutopt.loading.load.LoadSource`.

    Args:
        source: a path, or the name of a table.
        plan: the layout to load by.
        most_rows: more are refused; None for no bound.
        choose_tasks: chooses the executor for so many rows (an estimate); None for processes of this machine.
        only: the paths of the files to read; None for all.

    Raises:
        NeedsSparkError: Spark might read the files otherwise, the plan needs Spark, or there are more than
            ``most_rows`` rows.
        SourceError: a file is damaged.
    """

    def __init__(
        self,
        source: str,
        plan: Plan,
        most_rows: int | None = None,
        *,
        choose_tasks: Callable[[int], Executor] | None = None,
        only: Collection[str] | None = None,
    ) -> None:
        check_plan(plan)
        if choose_tasks is None:
            check_settings(plan)
        if parse_source_name(source) is None and not is_url(source) and not Path(absolute(source)).exists():
            raise SourceError(f"the source {source!r} does not exist; name a file or a folder of Parquet")
        files = list_source_files(source, plan.schema, plan.partition_by)
        if only is not None:
            files = tuple(file for file in files if file.path in only)
            if len(files) != len(only):
                raise NeedsSparkError(f"Spark lists other files of {source!r}")
        rows = estimate_rows(files)
        executor = (choose_tasks or _choose_processes)(rows)
        if most_rows is not None and rows > most_rows:
            raise NeedsSparkError(f"there are more than {most_rows} rows")
        self._plan = plan
        self._source = open_files(source, files, plan.schema, plan.partition_by, executor)
        if most_rows is not None and sum(self._source.partition_rows.values()) > most_rows:
            raise NeedsSparkError(f"there are more than {most_rows} rows")

    def list_partitions(self) -> tuple[SourcePartition, ...]:
        """List all partitions that have rows."""
        return self._source.partitions

    def select_partitions(self, texts: Sequence[str]) -> tuple[SourcePartition, ...]:
        """Return the partitions that texts name."""
        by = self._plan.partition_by
        if by is None:
            raise no_partitions(texts[0])
        type = self._plan.schema.find(by).type
        requests = [parse_request(text, by, type == "string") for text in texts]
        values = {
            None if text is None else parse_plain_value(text, type, f"--partition {by}="): None for text in requests
        }
        by_value = {partition.value: partition for partition in self._source.partitions}
        return tuple(by_value.get(value, SourcePartition(value, ())) for value in values)

    def select_range(self, first: str | None, last: str | None) -> tuple[SourcePartition, ...]:
        """Return the partitions from one value to another."""
        by = self._plan.partition_by
        if by is None:
            raise no_partition_range()
        return select_between(self._source.partitions, self._plan.schema.find(by).type, first, last)

    def check_reachable(self, partitions: Sequence[SourcePartition]) -> None:
        """Do nothing: rows are counted and selected by the same values."""

    def open_rows(self, partitions: Sequence[SourcePartition] | None) -> ArrowRows:
        """Open the rows of some partitions, or of all with None."""
        return self.open_values(None if partitions is None else [partition.value for partition in partitions])

    def open_values(self, wanted: Sequence[PlainValue] | None) -> ArrowRows:
        """Open the rows of the partitions of some values, or of all with None."""
        source = self._source.select(wanted)
        for split, _ in source.splits[:1]:
            check_features_by_arrow(source.cut_job((), source.schema.names), split, self._plan.features)
        return ArrowRows(source)

    def holds_same_rows(self, partition: SourcePartition, table: Table, entries: Sequence[PartitionEntry]) -> bool:
        """Return whether a partition's entries hold its rows, by rows, column checksums, and hashes of whole rows."""
        schema, plan = self._plan.schema, table.catalog.plans[entries[-1].plan]
        if {(c.name, c.type) for c in plan.schema.columns} != {(c.name, c.type) for c in schema.columns}:
            return False
        content, of_source = sum_whole_rows(self._source.select([partition.value]).read_again(), schema)
        expected = content_of_entries(entries)
        if content.rows != expected.rows or any(content.sums[name] != sum for name, sum in expected.sums.items()):
            return False
        written = (pa.Table.from_batches([batch]) for batch in read_entries(table, entries))
        return sum_whole_rows(written, schema)[1] == of_source


def select_between(
    partitions: Iterable[SourcePartition], type: str, first: str | None, last: str | None
) -> tuple[SourcePartition, ...]:
    """Return the partitions whose value lies between two texts of a type; NULL never does.

    Raises:
        SettingError: a text is no value of the type.
    """
    ends = (("--from ", first), ("--to ", last))
    low, high = (None if text is None else null_first_key(parse_plain_value(text, type, flag)) for flag, text in ends)
    return tuple(
        partition
        for partition in partitions
        if partition.value is not None
        and (low is None or low <= null_first_key(partition.value))
        and (high is None or null_first_key(partition.value) <= high)
    )


def read_entries(table: Table, entries: Sequence[PartitionEntry]) -> Iterator[pa.RecordBatch]:
    """Yield the live rows of some entries of a table's partitions."""
    read = plan_entries_read(table, entries)
    return read_segments(table.catalog.files, read.segments, read.columns)


def _choose_processes(rows: int) -> Executor:
    return Processes(1) if rows < LEAST_ROWS else Processes()  # which take a second to start


def check_settings(plan: Plan) -> None:
    """Raise NeedsSparkError for a plan of a session with other settings than the defaults."""
    if plan.settings != SessionSettings():
        raise NeedsSparkError(f"the table is for sessions with {plan.settings}")


def check_plan(plan: Plan) -> None:
    """Raise NeedsSparkError for a plan whose indexes or columns need Spark."""
    if select_for_spark(spec.subject for spec in plan.indexes):
        raise NeedsSparkError("the table has an index of an expression that only Spark computes")
    check_columns(plan.schema, plan.partition_by)
