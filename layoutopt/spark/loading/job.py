"""Run the Spark jobs of a load: they sum the source, cut it into segments, and write each segment in one task.

Large sources of plain Parquet files are read by Arrow in the tasks, and Spark sums them in a second job. Two
independent readers then agree about every column; where they don't, Spark reads everything again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.types import StructType

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.load_check import Content
from layoutopt.catalog.partition_names import PlainValue
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import NeedsSparkError
from layoutopt.evaluation.checksum import is_hashable
from layoutopt.external.formats import parse_table_name
from layoutopt.external.snapshot import uri_to_path
from layoutopt.loading.load import RowSource
from layoutopt.loading.local_source import ArrowRows, LocalSource
from layoutopt.model.layout import Plan
from layoutopt.model.schema import Schema
from layoutopt.scan.segments import LayoutRead, SegmentRead, plan_file_reads
from layoutopt.sources.executor import Batches, Executor
from layoutopt.sources.segments import Chunk, Segment
from layoutopt.sources.shuffle import LEAST_ROWS, CutJob, cut_rows
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.featurize import with_feature_words, with_index_values
from layoutopt.spark.core.segments import count_chunks, with_positions, with_segments
from layoutopt.spark.core.sessions import limit_method_size
from layoutopt.spark.core.source import checksum_column, content_columns, content_of, escape_pattern, measure_content
from layoutopt.spark.core.versions import to_arrow
from layoutopt.spark.core.workers import SparkTasks, map_in_workers, map_segments
from layoutopt.spark.session.readers import PARQUET_OPTIONS, read_in_workers
from layoutopt.writer.load_ids import remove_on_failure
from layoutopt.writer.segment import SHUFFLE_BATCH_TYPES, unpack_shuffle_batches
from layoutopt.writer.task import WriteJob, write_segment
from layoutopt.writer.task_result import RESULT_SCHEMA, TaskResult, read_task_results

# With more pieces (the rows of a partition in a split), each has to have ``LEAST_IN_PIECE`` rows on average.
MOST_SMALL_PIECES: Final = 2_000
LEAST_IN_PIECE: Final = 500
_PLAIN_URI: Final = re.compile(r"file:(?://)?(/[A-Za-z0-9_./=-]+)")
_LONGEST_WAIT: Final = 4.0  # seconds; Spark ends a Python worker two seconds after it gave its task up


@dataclass(frozen=True)
class SparkRows(RowSource):
    """The rows of a load as a DataFrame under the plan's columns.

    Attributes:
        name: names the source in messages.
    """

    rows: DataFrame
    partition_by: str | None
    name: str
    open_faster: Callable[[], RowSource] | None = None
    reader: ClassVar[str] = "spark"

    def count_chunks(self, segment_rows: int) -> Sequence[Chunk]:
        """Count chunks of neighbouring rows by a job."""
        with translate_spark_errors(self.name):
            return count_chunks(with_positions(self.rows), self.partition_by, segment_rows)

    def write(self, job: WriteJob, segments: Sequence[Segment]) -> tuple[Iterator[TaskResult], Content]:
        """Scan, sum, evaluate features, shuffle and write in one job.

        Raises:
            BoundError, SourceError: as :func:`~layoutopt.spark.core.failures.translate_spark_errors`.
        """
        plan, spark = job.plan, self.rows.sparkSession
        observation = Observation(f"layoutopt {job.load_id}")
        with translate_spark_errors(self.name), limit_method_size(spark):
            observed = with_positions(self.rows).observe(observation, *content_columns(self.rows))
            routed = with_segments(spark, observed, segments, plan.partition_by)
            featurised = with_index_values(with_feature_words(routed, plan.features.features), plan.indexes)
            results = to_arrow(map_segments(featurised, len(segments), partial(write_segment, job), RESULT_SCHEMA))
            return read_task_results(results), content_of(observation.get, plan.schema.names)

    def measure(self) -> Content:
        """Sum the source by a job of its own."""
        return measure_content(self.rows, self.name)

    def read_back(self, files: TableFiles, plan: Plan, columns: Schema, blocks: pa.Table) -> Mapping[str, int]:
        """Read the checksums by Spark, which alone can hash these columns as it hashed the source's."""
        fields = StructType([self.rows.schema[name] for name in columns.names])
        sums = [checksum_column(field.name, field.dataType).alias(field.name) for field in fields]
        with translate_spark_errors("the files just written"):
            row = _open_written(self.rows.sparkSession, files, plan, blocks, fields).agg(*sums).first()
        return {} if row is None else {name: int(row[name]) for name in columns.names}

    def wait_for_tasks(self) -> None:
        """Wait while tasks of a failed job run."""
        wait_for_tasks(self.rows.sparkSession)


def _open_written(
    spark: SparkSession, files: TableFiles, plan: Plan, blocks: pa.Table, fields: StructType
) -> DataFrame:
    """Open some columns of all blocks of a layout, by Spark's own reader where it can read the files."""
    if files.is_plain:
        paths = [files.full_path(path) for path in dict.fromkeys(blocks["file"].to_pylist())]
        return spark.read.schema(fields).options(**PARQUET_OPTIONS).parquet(*map(escape_pattern, paths))
    table = BlockTable.from_arrow(blocks, plan)
    reads = plan_file_reads(table, np.lexsort((table.row_group, table.file)))
    segments = [SegmentRead("", 0, (LayoutRead(0, tuple(fields.names), (file,)),)) for file in reads]
    return read_in_workers(spark, files, segments, plan.schema.select(fields.names).columns)


@dataclass(frozen=True)
class SparkFiles(ArrowRows):
    """Plain files that Spark's tasks read by Arrow, and that Spark itself sums.

    Attributes:
        opened: the same rows as Spark opens them.
    """

    opened: SparkRows

    def write(self, job: WriteJob, segments: Sequence[Segment]) -> tuple[Iterable[TaskResult], Content]:
        """Write the segments as files on this machine are, but in Spark's tasks.

        Raises:
            NeedsSparkError: Arrow might read a file otherwise than Spark.
            BoundError, SourceError: as :func:`~layoutopt.spark.core.failures.translate_spark_errors`.
        """
        with translate_spark_errors(self.opened.name):
            return super().write(job, segments)

    def can_shuffle(self, job: WriteJob) -> bool:
        """Return True: Spark shuffles as the session is configured."""
        return True

    def shuffle(self, cut: CutJob, job: WriteJob) -> Sequence[TaskResult]:
        """Cut the rows and shuffle them to the tasks that write the segments, in one job."""
        numbers = self.opened.rows.sparkSession.range(0, len(cut.tasks), 1, len(cut.tasks))
        batches = map_in_workers(numbers, partial(cut_rows, cut), SHUFFLE_BATCH_TYPES)
        results = map_segments(batches, len(cut.ranges.values), partial(_write_shuffled, job), RESULT_SCHEMA)
        return list(read_task_results(to_arrow(results)))

    def measure(self) -> Content:
        """Sum the source by Spark."""
        return self.opened.measure()

    def wait_for_tasks(self) -> None:
        """Wait while tasks of a failed job run."""
        self.opened.wait_for_tasks()


def _write_shuffled(job: WriteJob, batches: Batches) -> Iterator[pa.RecordBatch]:
    return write_segment(job, unpack_shuffle_batches(batches))


def open_files(opened: SparkRows, source: str, plan: Plan, values: Sequence[PlainValue] | None) -> SparkFiles:
    """Open the rows of a source's partitions, or of all, for tasks that read its files by Arrow.

    Raises:
        NeedsSparkError: there are few rows; the plan needs values that only Spark computes; a file is elsewhere or is
            read by rules of Spark's own; or the rows of partitions lie scattered in too many files.
    """
    for column in plan.schema.columns:
        if not is_hashable(column.type):
            raise NeedsSparkError(f"the column {column.name!r} is {column.type}")
    # The files of a table's version are known by its metadata; a load may be of some.
    parse = _parse_path if parse_table_name(source) is None else uri_to_path
    only = set(map(parse, opened.rows.inputFiles()))
    tasks = partial(_choose_tasks, opened.rows.sparkSession)
    with translate_spark_errors(opened.name):
        files = LocalSource(source, plan, choose_tasks=tasks, only=only).open_values(values).source
    pieces = sum(len(counts) for _, counts in files.splits)
    if pieces > max(MOST_SMALL_PIECES, sum(files.partition_rows.values()) // LEAST_IN_PIECE):
        raise NeedsSparkError("the rows of partitions lie in too many pieces, scattered in many files")
    return SparkFiles(files, opened)


def _choose_tasks(spark: SparkSession, rows: int) -> Executor:
    if rows < LEAST_ROWS:
        raise NeedsSparkError(f"there are fewer than {LEAST_ROWS} rows")
    return SparkTasks(spark)


def _parse_path(uri: str) -> str:
    """Return the path of a file on this machine with a plain name; raises NeedsSparkError for others."""
    match = _PLAIN_URI.fullmatch(uri)
    if match is None or "/../" in uri:
        raise NeedsSparkError(f"{uri!r} is no file of Parquet of this machine by a plain name")
    return match[1]


def discard_files_after(
    failures: tuple[type[BaseException], ...], spark: SparkSession, files: TableFiles, load_id: str, keys: Iterable[str]
) -> AbstractContextManager[None]:
    """Remove files as :func:`~layoutopt.writer.load_ids.remove_on_failure`, once the writing tasks have ended."""
    return remove_on_failure(failures, files, load_id, keys, partial(wait_for_tasks, spark))


def wait_for_tasks(spark: SparkSession) -> None:
    """Wait some seconds while tasks run: after one of a job has failed, others still write files."""
    until = time.monotonic() + _LONGEST_WAIT
    with suppress(AttributeError, Py4JError, OSError):  # the session may have been stopped, Java may have ended
        tracker = spark.sparkContext._jsc.sc().statusTracker()
        while any(info.numRunningTasks() for info in tracker.getExecutorInfos()) and time.monotonic() < until:
            time.sleep(0.05)
