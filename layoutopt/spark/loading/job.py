"""Run the Spark job of a load: it sums the source, cuts it into segments, and writes each segment in one task.

Large sources of plain Parquet files are read by Arrow in the tasks, and Spark sums them in a second job. Two
independent readers then agree about every column; where they don't, Spark reads everything again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from layoutopt.catalog.load_check import Content
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import NeedsSparkError
from layoutopt.indexes.expressions import select_for_spark
from layoutopt.local.parquet_files import check_columns
from layoutopt.local.processes import Batches
from layoutopt.local.segments import Segment, segment_ranges
from layoutopt.local.splits import (
    CutJob,
    SegmentRanges,
    Split,
    assign_splits,
    check_split,
    cut_rows,
    group_splits,
    read_segment_rows,
    reads_little_twice,
)
from layoutopt.local.vectors import check_features_by_arrow, evaluate_words
from layoutopt.model.layout import Plan
from layoutopt.model.schema import POSITION, Schema
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.featurize import with_feature_words, with_index_values
from layoutopt.spark.core.partition_values import partition_column
from layoutopt.spark.core.segments import with_positions, with_segments
from layoutopt.spark.core.sessions import limit_method_size
from layoutopt.spark.core.source import content_columns, content_of, measure_content
from layoutopt.spark.core.workers import map_in_workers, map_segments
from layoutopt.sql.schema import folder_values
from layoutopt.writer.checksum import is_hashable
from layoutopt.writer.load_ids import remove_on_failure
from layoutopt.writer.segment import SHUFFLE_BATCH_TYPES, unpack_shuffle_batches
from layoutopt.writer.task import WriteJob, write_segment
from layoutopt.writer.task_result import RESULT_SCHEMA, TaskResult, read_task_results

# With more pieces (the rows of a partition in a file), each has to have ``LEAST_IN_PIECE`` rows on average.
MOST_SMALL_PIECES: Final = 2_000
LEAST_IN_PIECE: Final = 500
_MOST_PIECES: Final = 1 << 19  # half a kilobyte each in the driver
_CHECKED_SPLITS: Final = 16
_PLAIN_URI: Final = re.compile(r"file:(?://)?(/[A-Za-z0-9_./=-]+\.parquet)")
_LONGEST_WAIT: Final = 4.0  # seconds; Spark ends a Python worker two seconds after it gave its task up


@dataclass(frozen=True)
class SparkWriter:
    """Writes segments of rows that Spark reads, and sums the source in the same job."""

    rows: DataFrame
    name: str
    segments: tuple[Segment, ...]
    reader: str = "spark"

    def write(self, job: WriteJob) -> tuple[Iterator[TaskResult], Content]:
        """Scan, sum, evaluate features, shuffle and write in one job.

        Raises:
            BoundError, SourceError: as :func:`~layoutopt.spark.core.failures.translate_spark_errors`.
        """
        plan, spark = job.plan, self.rows.sparkSession
        observation = Observation(f"layoutopt {job.load_id}")
        with translate_spark_errors(self.name), limit_method_size(spark):
            observed = with_positions(self.rows).observe(observation, *content_columns(self.rows))
            routed = with_segments(spark, observed, self.segments, plan.partition_by)
            featurised = with_index_values(with_feature_words(routed, plan.features.features), plan.indexes)
            results = map_segments(featurised, len(self.segments), partial(write_segment, job), RESULT_SCHEMA).toArrow()
            return read_task_results(results), content_of(observation.get, plan.schema.names)


@dataclass(frozen=True)
class ArrowWriter:
    """Writes segments of rows that tasks read by Arrow, themselves or through other tasks; Spark sums the source."""

    rows: DataFrame
    name: str
    cut: CutJob
    reader: str = "arrow"

    def write(self, job: WriteJob) -> tuple[Iterator[TaskResult], Content]:
        """Write by one job or two, and sum by another.

        Raises:
            NeedsSparkError: Arrow might read a file otherwise than Spark.
            BoundError, SourceError: as :func:`~layoutopt.spark.core.failures.translate_spark_errors`.
        """
        job, cut = replace(job, of_left=evaluate_words), self.cut
        numbers = self.rows.sparkSession.range(0, len(cut.tasks), 1, len(cut.tasks))
        with translate_spark_errors(self.name):
            if cut.by_segment:
                results = map_in_workers(numbers, partial(_write_own_files, cut, job), RESULT_SCHEMA)
            else:
                batches = map_in_workers(numbers, partial(cut_rows, cut), SHUFFLE_BATCH_TYPES)
                write = partial(_write_shuffled, job)
                results = map_segments(batches, len(cut.ranges.values), write, RESULT_SCHEMA)
            return read_task_results(results.toArrow()), measure_content(self.rows, self.name)


def _write_own_files(cut: CutJob, job: WriteJob, numbers: Batches) -> Iterator[pa.RecordBatch]:
    return write_segment(job, read_segment_rows(cut, (n for batch in numbers for n in batch.column(0).to_pylist())))


def _write_shuffled(job: WriteJob, batches: Batches) -> Iterator[pa.RecordBatch]:
    return write_segment(job, unpack_shuffle_batches(batches))


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


def cut_job(rows: DataFrame, plan: Plan, segments: Sequence[Segment]) -> CutJob:
    """Return how tasks read a source's files by Arrow and cut the rows into segments, which are ranges of positions.

    Raises:
        NeedsSparkError: the plan needs values that only Spark computes; a file is elsewhere, is read by rules of
            Spark's own, or read in part only; or the rows of partitions lie scattered in too many files.
    """
    if select_for_spark(spec.subject for spec in plan.indexes):
        raise NeedsSparkError("indexes are of functions")
    check_columns(plan.schema, plan.partition_by)
    for column in plan.schema.columns:
        if not is_hashable(column.type):
            raise NeedsSparkError(f"the column {column.name!r} is {column.type}")
    for uri in rows.inputFiles():
        _parse_path(uri)
    n_rows = sum(segment.rows for segment in segments)
    pieces = _count_pieces(rows, plan.partition_by, min(_MOST_PIECES, max(MOST_SMALL_PIECES, n_rows // LEAST_IN_PIECE)))
    splits = [_split_from_pieces(group, plan.schema, plan.partition_by) for group in pieces]
    ranges = segment_ranges(segments)
    overlapping = [{segment for piece in group for segment in _overlapping_segments(piece, ranges)} for group in pieces]
    own = assign_splits(splits, overlapping, len(segments))
    job = CutJob(plan.schema, plan.partition_by, ranges, own, by_segment=True)
    if not reads_little_twice(job):
        job = replace(job, tasks=group_splits(splits), by_segment=False)
    # Checked here, so that tasks seldom find what they can't read.
    for split in splits[:: -(-len(splits) // _CHECKED_SPLITS)]:
        check_split(job, split)
    check_features_by_arrow(job, splits[0], plan.features)
    return job


# For each range of a file that Spark reads together: value, rows, lowest and highest position of each piece.
_Pieces = Sequence[Sequence[Row]]


def _count_pieces(rows: DataFrame, partition_by: str | None, most: int) -> _Pieces:
    """Count each partition's rows in each range of a file that a task of Spark reads, in the source's order."""
    try:
        file = rows.metadataColumn("_metadata")
        columns = [file[name].alias(name) for name in ("file_path", "file_block_start", "file_block_length")]
        keys = rows.select(partition_column(rows, partition_by).alias("value"), *columns)
    except AnalysisException as error:
        raise NeedsSparkError("the source does not say which files its rows are from") from error
    position = F.col(POSITION)
    aggregates = [F.count("*").alias("rows"), F.min(position).alias("low"), F.max(position).alias("high")]
    pieces = with_positions(keys).groupBy(*keys.columns).agg(*aggregates).limit(most + 1).collect()
    if len(pieces) > most:
        raise NeedsSparkError("the rows of partitions lie in too many pieces, scattered in many files")
    if not pieces:
        raise NeedsSparkError("the source has no rows any more")
    by_range: dict[tuple[str, int], list[Row]] = {}
    for piece in sorted(pieces, key=lambda piece: int(piece["low"])):
        by_range.setdefault((piece["file_path"], piece["file_block_start"]), []).append(piece)
    return list(by_range.values())


def _split_from_pieces(pieces: Sequence[Row], schema: Schema, partition_by: str | None) -> Split:
    path, start = _parse_path(pieces[0]["file_path"]), int(pieces[0]["file_block_start"])
    in_path = {name.lower() for name in folder_values(path)} & {name.lower() for name in schema.names}
    by_folder = in_path == {str(partition_by).lower()}
    if by_folder != bool(in_path) or (by_folder and len(pieces) > 1):
        raise NeedsSparkError(f"folders of {path!r} are named after columns other than the partition column")
    low, high = min(piece["low"] for piece in pieces), max(piece["high"] for piece in pieces)
    rows = sum(piece["rows"] for piece in pieces)
    if high - low + 1 != rows:
        raise NeedsSparkError(f"only some rows of {path!r} are read")
    folder = (pieces[0]["value"],) if by_folder else None
    return Split(path, start, start + int(pieces[0]["file_block_length"]), low, rows, folder)


def _parse_path(uri: str) -> str:
    """Return the path of a file on this machine with a plain name; raises NeedsSparkError for others."""
    match = _PLAIN_URI.fullmatch(uri)
    if match is None or "/../" in uri:
        raise NeedsSparkError(f"{uri!r} is no file of Parquet of this machine by a plain name")
    return match[1]


def _overlapping_segments(piece: Row, ranges: SegmentRanges) -> Iterator[int]:
    for segment in range(*ranges.by_value.get(piece["value"], (0, 0))):
        if ranges.lows[segment] <= piece["high"] and piece["low"] < ranges.highs[segment]:
            yield segment
