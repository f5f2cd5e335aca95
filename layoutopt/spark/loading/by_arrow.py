"""The jobs of a load whose source is plain files of Parquet: tasks read these by Arrow, and Spark sums them up.

Two readers that know nothing of each other then agree about every column, or the load is done again as any other is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession

from layoutopt.direct.cut_rows import CutJob, Places, Split, rows_of_segments
from layoutopt.direct.vectors import words_left
from layoutopt.errors import NeedsSparkError
from layoutopt.indexes.expressions import left_to_spark
from layoutopt.model.layout import Plan
from layoutopt.spark.core.segments import Segment
from layoutopt.spark.core.workers import Batches, map_in_workers
from layoutopt.spark.loading.plain_files import (
    Held,
    check_some,
    held_in_files,
    in_tasks,
    map_parcels,
    paths_of,
    places_of,
)
from layoutopt.writer.answers import RESULT_SCHEMA
from layoutopt.writer.task import WriteJob, write_segment

_MOST_READ: Final = 1.25  # times the rows that there are


def _check_plan(plan: Plan) -> None:
    """Refuse a plan by which a load needs values that only Spark computes.

    Raises:
        NeedsSparkError: an index is of a function that is left to Spark.
    """
    if left_to_spark(spec.subject for spec in plan.indexes):
        raise NeedsSparkError("indexes are of functions")


def cut_job(rows: DataFrame, plan: Plan, segments: Sequence[Segment]) -> CutJob:
    """How tasks read the files of a source and cut their rows into a load's segments.

    Args:
        rows: of the source, in the plan's schema.
        plan: to load by.
        segments: the load's, whose ranges are of positions in these rows.

    Raises:
        NeedsSparkError: the plan needs values that only Spark computes; the source is not read from files of this
            machine by plain names, or by rules of Spark's own; a file's rows are only read in part, or those of the
            partitions lie scattered in too many files.
    """
    _check_plan(plan)
    paths_of(rows)
    held, splits = held_in_files(rows, plan.schema, plan.partition_by, sum(segment.rows for segment in segments))
    places = places_of(segments)
    of_segments = _splits_of_segments(held, splits, places)
    tasks = in_tasks(splits) if of_segments is None else tuple(map(tuple, of_segments))
    job = CutJob(plan.schema, plan.partition_by, places, tasks, of_segments is not None)
    check_some(job, splits, plan.features)
    return job


def _splits_of_segments(held: Held, splits: Sequence[Split], places: Places) -> list[list[Split]] | None:
    """Where each segment's rows are; None where tasks of segments would read many rows that are of others."""
    found: list[list[Split]] = [[] for _ in places.values]
    read = 0
    for groups, split in zip(held, splits, strict=True):
        for segment in sorted({segment for group in groups for segment in _segments_with(group, places)}):
            read += min(split.low + split.rows, places.highs[segment]) - max(split.low, places.lows[segment])
            found[segment].append(split)
    return found if read <= _MOST_READ * sum(split.rows for split in splits) else None


def _segments_with(group: Row, places: Places) -> Iterator[int]:
    """The segments that may have rows of a group."""
    for segment in range(*places.of_values.get(group["value"], (0, 0))):
        if places.lows[segment] <= group["high"] and group["low"] < places.highs[segment]:
            yield segment


def written_by_arrow(spark: SparkSession, cut: CutJob, job: WriteJob) -> DataFrame:
    """The answers of the tasks that write a load's segments, of rows that they, or others for them, read by Arrow.

    Args:
        spark: the session.
        cut: what the tasks that read go by.
        job: what the tasks that write go by.
    """
    job = replace(job, of_left=words_left)
    if not cut.by_segment:
        return map_parcels(spark, cut, partial(write_segment, job), RESULT_SCHEMA)
    numbers = spark.range(0, len(cut.tasks), 1, len(cut.tasks))
    return map_in_workers(numbers, partial(_write_own, cut, job), RESULT_SCHEMA)


def _write_own(cut: CutJob, job: WriteJob, numbers: Batches) -> Iterator[pa.RecordBatch]:
    return write_segment(job, rows_of_segments(cut, numbers))
