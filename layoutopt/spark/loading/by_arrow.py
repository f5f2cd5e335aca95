"""The jobs of a load whose source is plain files of Parquet: tasks read these by Arrow, and Spark sums them up.

Two readers that know nothing of each other then agree about every column, or the load is done again as any other is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import pyarrow as pa
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
from layoutopt.writer.answers import RESULT_SCHEMA
from layoutopt.writer.features import features_left_to_spark
from layoutopt.writer.parcels import PARCEL_TYPES, unpacked
from layoutopt.writer.task import WriteJob, write_segment

LEAST_ROWS: Final = 200_000
"""Of fewer rows the two jobs more take longer than what they save."""

MOST_SMALL_PARCELS: Final = 2_000
"""Of more parcels each has to have ``LEAST_IN_PARCEL`` rows on the average, or is not worth its making."""

LEAST_IN_PARCEL: Final = 500
_TASK_BYTES: Final = 1 << 25
_MOST_READ: Final = 1.25  # times the rows that there are
_LOOKED_AT: Final = 16  # files whose footers the driver reads, so that tasks seldom meet one that they can't read
# A path of other characters is spelled in more than one way as a URI.
_PLAIN_URI: Final = re.compile(r"file:(?://)?(/[A-Za-z0-9_./=-]+\.parquet)")
_FOLDER: Final = re.compile(r"/([^/=]+)=[^/]*(?=/)")

Held = Mapping[tuple[str, int], Sequence[Row]]
"""By file and first byte of what one task of Spark's reads: value, rows, lowest and highest position of each group."""


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
    held = _held(rows, plan)
    splits = {group: _split(groups, plan) for group, groups in held.items()}
    places = Places(tuple(segment.value for segment in segments), tuple(segment.low for segment in segments))
    by_segment = _by_segment(held, places)
    tasks = _in_tasks(list(splits.values()))
    if by_segment is not None:
        tasks = tuple(tuple(splits[group] for group in groups) for groups in by_segment)
    elif sum(map(len, held.values())) > max(MOST_SMALL_PARCELS, _rows_of(held) // LEAST_IN_PARCEL):
        raise NeedsSparkError("the rows of partitions lie scattered in many files")
    job = CutJob(plan.schema, plan.partition_by, places, tasks, by_segment is not None)
    some = list(splits.values())[:: -(-len(splits) // _LOOKED_AT)]
    for split in some:
        check_split(job, split)
    if features_left_to_spark(plan.features.features, plan.schema.names):
        for split in some[:1]:
            vectors_of(plan.features.features, first_rows(job, split), plan.schema)
    return job


def _held(rows: DataFrame, plan: Plan) -> Held:
    """Of what Spark's tasks read of each file the rows of each value of the partition column, in the source's order."""
    file = rows.metadataColumn("_metadata")
    named = [file[name].alias(name) for name in ("file_path", "file_block_start", "file_block_length")]
    keys = rows.select(partition_column(rows, plan.partition_by).alias("value"), *named)
    position = F.col(POSITION)
    counted = [F.count("*").alias("rows"), F.min(position).alias("low"), F.max(position).alias("high")]
    found = with_positions(keys).groupBy(*keys.columns).agg(*counted).collect()
    held: dict[tuple[str, int], list[Row]] = {}
    for group in sorted(found, key=lambda group: int(group["low"])):
        held.setdefault((group["file_path"], group["file_block_start"]), []).append(group)
    return held


def _rows_of(held: Held) -> int:
    return sum(group["rows"] for groups in held.values() for group in groups)


def _by_segment(held: Held, places: Places) -> list[list[tuple[str, int]]] | None:
    """Where each segment's rows are; None where tasks of segments would read many rows that are of others."""
    found: list[list[tuple[str, int]]] = [[] for _ in places.values]
    read = 0
    for where, groups in held.items():
        first, last = min(group["low"] for group in groups), max(group["high"] for group in groups)
        having: set[int] = set()
        for group in groups:
            for segment in range(*places.of_values.get(group["value"], (0, 0))):
                low, high = places.range_of(segment)
                if low <= group["high"] and group["low"] < high:
                    having.add(segment)
        for segment in having:
            low, high = places.range_of(segment)
            read += min(last + 1, high) - max(first, low)
            found[segment].append(where)
    return found if read <= _MOST_READ * _rows_of(held) else None


def _split(groups: Sequence[Row], plan: Plan) -> Split:
    """The split of which some groups hold the rows of each value of the partition column."""
    uri, start = str(groups[0]["file_path"]), int(groups[0]["file_block_start"])
    plain = _PLAIN_URI.fullmatch(uri)
    if plain is None or ".." in uri:
        raise NeedsSparkError(f"{uri!r} is no file of Parquet of this machine by a plain name")
    named = {name.lower() for name in _FOLDER.findall(plain[1])} & {name.lower() for name in plan.schema.names}
    by_folder = named == {str(plan.partition_by).lower()}
    if by_folder != bool(named) or (by_folder and len(groups) > 1):
        raise NeedsSparkError(f"folders tell of columns of {uri!r}")
    low, high = min(group["low"] for group in groups), max(group["high"] for group in groups)
    rows = sum(group["rows"] for group in groups)
    if high - low + 1 != rows:
        raise NeedsSparkError(f"only some rows of {uri!r} are read")
    folder = (groups[0]["value"],) if by_folder else None
    return Split(plain[1], start, start + int(groups[0]["file_block_length"]), low, rows, folder)


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
