"""The jobs of a load whose source is plain files of Parquet: tasks read these by Arrow, and Spark sums them up.

Two readers that know nothing of each other then agree about every column, or the load is done again as any other is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from layoutopt.direct.cut_rows import CutJob, Places, Split, check_split, cut_rows, first_rows, rows_of_segments
from layoutopt.direct.plain_parquet import check_columns
from layoutopt.direct.vectors import vectors_of, words_left
from layoutopt.errors import NeedsSparkError
from layoutopt.indexes.expressions import left_to_spark
from layoutopt.model.columns import POSITION
from layoutopt.model.layout import Plan
from layoutopt.spark.core.partition_values import partition_column
from layoutopt.spark.core.segments import Segment, with_positions
from layoutopt.spark.core.tasks import map_segments
from layoutopt.spark.core.workers import Batches, map_in_workers
from layoutopt.sql.folder_columns import values_in_folders
from layoutopt.writer.answers import RESULT_SCHEMA
from layoutopt.writer.features import features_left_to_spark
from layoutopt.writer.parcels import PARCEL_TYPES, unpacked
from layoutopt.writer.task import WriteJob, write_segment

LEAST_ROWS: Final = 200_000
"""Of fewer rows the two jobs more take longer than what they save."""

MOST_SMALL_PARCELS: Final = 2_000
"""Of more pieces (the rows of a partition in a file) each has to have ``LEAST_IN_PARCEL`` rows on the average."""

LEAST_IN_PARCEL: Final = 500
_TASK_BYTES: Final = 1 << 25
_MOST_READ: Final = 1.25  # times the rows that there are
_LOOKED_AT: Final = 16  # files whose footers the driver reads, so that tasks seldom meet one that they can't read
_PLAIN_URI: Final = re.compile(r"file:(?://)?(/[A-Za-z0-9_./=-]+\.parquet)")

Held = Sequence[Sequence[Row]]
"""Of each range of a file that Spark reads together: value, rows, lowest and highest position of each group."""


def _check_plan(plan: Plan) -> None:
    """Refuse a plan by which a load needs values that only Spark computes.

    Raises:
        NeedsSparkError: an index is of a function that is left to Spark, or a column's type is.
    """
    check_columns(plan.schema, plan.partition_by)
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
    for uri in rows.inputFiles():
        _path(uri)
    held = _held(rows, plan, max(MOST_SMALL_PARCELS, sum(segment.rows for segment in segments) // LEAST_IN_PARCEL))
    splits = [_split(groups, plan) for groups in held]
    places = Places(
        tuple(segment.value for segment in segments),
        tuple(segment.low for segment in segments),
        tuple(segment.high for segment in segments),
    )
    of_segments = _splits_of_segments(held, splits, places)
    tasks = _in_tasks(splits) if of_segments is None else tuple(map(tuple, of_segments))
    job = CutJob(plan.schema, plan.partition_by, places, tasks, of_segments is not None)
    _try(job, plan, splits)
    return job


def _try(job: CutJob, plan: Plan, splits: Sequence[Split]) -> None:
    """Look at some files and rows here, so that tasks seldom meet what they can't read."""
    for split in splits[:: -(-len(splits) // _LOOKED_AT)]:
        check_split(job, split)
    if features_left_to_spark(plan.features.features, plan.schema.names):
        vectors_of(plan.features.features, first_rows(job, splits[0]), plan.schema)


def _held(rows: DataFrame, plan: Plan, most: int) -> Held:
    """Of what Spark's tasks read of each file the rows of each value of the partition column, in the source's order."""
    try:
        file = rows.metadataColumn("_metadata")
        named = [file[name].alias(name) for name in ("file_path", "file_block_start", "file_block_length")]
        keys = rows.select(partition_column(rows, plan.partition_by).alias("value"), *named)
    except AnalysisException as error:
        raise NeedsSparkError("the source does not say which files its rows are from") from error
    position = F.col(POSITION)
    counted = [F.count("*").alias("rows"), F.min(position).alias("low"), F.max(position).alias("high")]
    found = with_positions(keys).groupBy(*keys.columns).agg(*counted).limit(most + 1).collect()
    if len(found) > most:
        raise NeedsSparkError("the rows of partitions lie scattered in many files")
    if not found:
        raise NeedsSparkError("the source has no rows any more")
    held: dict[tuple[str, int], list[Row]] = {}
    for group in sorted(found, key=lambda group: int(group["low"])):
        held.setdefault((group["file_path"], group["file_block_start"]), []).append(group)
    return list(held.values())


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


def _split(groups: Sequence[Row], plan: Plan) -> Split:
    """The split of which some groups hold the rows of each value of the partition column."""
    path, start = _path(groups[0]["file_path"]), int(groups[0]["file_block_start"])
    named = {name.lower() for name in values_in_folders(path)} & {name.lower() for name in plan.schema.names}
    by_folder = named == {str(plan.partition_by).lower()}
    if by_folder != bool(named) or (by_folder and len(groups) > 1):
        raise NeedsSparkError(f"folders tell of columns of {path!r}")
    low, high = min(group["low"] for group in groups), max(group["high"] for group in groups)
    rows = sum(group["rows"] for group in groups)
    if high - low + 1 != rows:
        raise NeedsSparkError(f"only some rows of {path!r} are read")
    folder = (groups[0]["value"],) if by_folder else None
    return Split(path, start, start + int(groups[0]["file_block_length"]), low, rows, folder)


def written_by_arrow(spark: SparkSession, cut: CutJob, job: WriteJob) -> DataFrame:
    """The answers of the tasks that write a load's segments, of rows that they, or others for them, read by Arrow.

    Args:
        spark: the session.
        cut: what the tasks that read go by.
        job: what the tasks that write go by.
    """
    job = replace(job, of_left=words_left)
    numbers = spark.range(0, len(cut.tasks), 1, len(cut.tasks))
    if cut.by_segment:
        return map_in_workers(numbers, partial(_write_own, cut, job), RESULT_SCHEMA)
    parcels = map_in_workers(numbers, partial(cut_rows, cut), PARCEL_TYPES)
    return map_segments(parcels, len(job.keys), partial(_write_parcels, job), RESULT_SCHEMA)


def _write_own(cut: CutJob, job: WriteJob, numbers: Batches) -> Iterator[pa.RecordBatch]:
    return write_segment(job, rows_of_segments(cut, numbers))


def _write_parcels(job: WriteJob, parcels: Batches) -> Iterator[pa.RecordBatch]:
    return write_segment(job, unpacked(parcels))


def _path(uri: str) -> str:
    """The path of a file of this machine."""
    plain = _PLAIN_URI.fullmatch(uri)
    if plain is None or "/../" in uri:
        raise NeedsSparkError(f"{uri!r} is no file of Parquet of this machine by a plain name")
    return plain[1]


def _in_tasks(splits: Sequence[Split]) -> tuple[tuple[Split, ...], ...]:
    """Splits that follow each other, so many to a task that it is worth starting."""
    tasks: list[list[Split]] = []
    held = _TASK_BYTES
    for split in splits:
        if held >= _TASK_BYTES:
            tasks.append([])
            held = 0
        tasks[-1].append(split)
        held += split.stop - split.start
    return tuple(map(tuple, tasks))
