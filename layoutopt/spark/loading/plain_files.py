"""Which files of Parquet on this machine Spark's tasks read for a source, in which ranges, and what rows those have.

Tasks that read the same files by Arrow then know the place of every row in the source's order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from layoutopt.direct.cut_rows import CutJob, Places, Split, check_split, cut_rows, first_rows
from layoutopt.direct.plain_parquet import check_columns
from layoutopt.direct.vectors import vectors_of
from layoutopt.errors import NeedsSparkError
from layoutopt.model.columns import POSITION
from layoutopt.model.feature import FeatureSet
from layoutopt.model.schema import Schema
from layoutopt.spark.core.partition_values import partition_column
from layoutopt.spark.core.segments import Segment, with_positions
from layoutopt.spark.core.tasks import map_segments
from layoutopt.spark.core.workers import Batches, Task, map_in_workers
from layoutopt.sql.folder_columns import values_in_folders
from layoutopt.writer.features import features_left_to_spark
from layoutopt.writer.parcels import PARCEL_TYPES, unpacked

LEAST_ROWS: Final = 200_000
"""Of fewer rows the extra jobs take longer than they save."""

MOST_SMALL_PARCELS: Final = 2_000
"""Of more pieces (the rows of a partition in a file) each has to have ``LEAST_IN_PARCEL`` rows on the average."""

LEAST_IN_PARCEL: Final = 500
_MOST_PIECES: Final = 1 << 19  # half a kilobyte each in the driver
_TASK_BYTES: Final = 1 << 25
_LOOKED_AT: Final = 16
_PLAIN_URI: Final = re.compile(r"file:(?://)?(/[A-Za-z0-9_./=-]+\.parquet)")

Held = Sequence[Sequence[Row]]
"""Of each range of a file that Spark reads together: value, rows, lowest and highest position of each group."""


def held_in_files(rows: DataFrame, schema: Schema, partition_by: str | None, n_rows: int) -> tuple[Held, list[Split]]:
    """What Spark's tasks read of each file, and the same as splits, both in the source's order.

    Args:
        rows: of the source, in the schema; its files are those of :func:`paths_of`.
        schema: of the table.
        partition_by: the partition column, None for none.
        n_rows: about how many rows there are.

    Raises:
        NeedsSparkError: the source is not read from files of this machine by plain names, or by rules of Spark's own;
            a file's rows are only read in part, or those of the partitions lie scattered in too many files.
    """
    check_columns(schema, partition_by)
    held = _held(rows, partition_by, min(_MOST_PIECES, max(MOST_SMALL_PARCELS, n_rows // LEAST_IN_PARCEL)))
    return held, [_split(groups, schema, partition_by) for groups in held]


def _held(rows: DataFrame, partition_by: str | None, most: int) -> Held:
    """Of what Spark's tasks read of each file the rows of each value of the partition column, in the source's order."""
    try:
        file = rows.metadataColumn("_metadata")
        named = [file[name].alias(name) for name in ("file_path", "file_block_start", "file_block_length")]
        keys = rows.select(partition_column(rows, partition_by).alias("value"), *named)
    except AnalysisException as error:
        raise NeedsSparkError("the source does not say which files its rows are from") from error
    position = F.col(POSITION)
    counted = [F.count("*").alias("rows"), F.min(position).alias("low"), F.max(position).alias("high")]
    found = with_positions(keys).groupBy(*keys.columns).agg(*counted).limit(most + 1).collect()
    if len(found) > most:
        raise NeedsSparkError("the rows of partitions lie in too many pieces, scattered in many files")
    if not found:
        raise NeedsSparkError("the source has no rows any more")
    held: dict[tuple[str, int], list[Row]] = {}
    for group in sorted(found, key=lambda group: int(group["low"])):
        held.setdefault((group["file_path"], group["file_block_start"]), []).append(group)
    return list(held.values())


def _split(groups: Sequence[Row], schema: Schema, partition_by: str | None) -> Split:
    """The split of which some groups hold the rows of each value of the partition column."""
    path, start = _path(groups[0]["file_path"]), int(groups[0]["file_block_start"])
    named = {name.lower() for name in values_in_folders(path)} & {name.lower() for name in schema.names}
    by_folder = named == {str(partition_by).lower()}
    if by_folder != bool(named) or (by_folder and len(groups) > 1):
        raise NeedsSparkError(f"folders tell of columns of {path!r}")
    low, high = min(group["low"] for group in groups), max(group["high"] for group in groups)
    rows = sum(group["rows"] for group in groups)
    if high - low + 1 != rows:
        raise NeedsSparkError(f"only some rows of {path!r} are read")
    folder = (groups[0]["value"],) if by_folder else None
    return Split(path, start, start + int(groups[0]["file_block_length"]), low, rows, folder)


def paths_of(rows: DataFrame) -> list[str]:
    """The paths of a source's files.

    Raises:
        NeedsSparkError: one is not on this machine under a plain name.
    """
    return [_path(uri) for uri in rows.inputFiles()]


def _path(uri: str) -> str:
    """The path of a file of this machine."""
    plain = _PLAIN_URI.fullmatch(uri)
    if plain is None or "/../" in uri:
        raise NeedsSparkError(f"{uri!r} is no file of Parquet of this machine by a plain name")
    return plain[1]


def check_some(job: CutJob, splits: Sequence[Split], features: FeatureSet) -> None:
    """Look at the footers of some files, and at some rows, here, so that tasks seldom meet what they can't read.

    Raises:
        NeedsSparkError: a file is not surely read as Spark reads it, or only Spark can tell a feature.
    """
    for split in splits[:: -(-len(splits) // _LOOKED_AT)]:
        check_split(job, split)
    check_features_of(job, splits[0], features)


def check_features_of(job: CutJob, split: Split, features: FeatureSet) -> None:
    """Look at some rows of a split.

    Raises:
        NeedsSparkError: the file is not surely read as Spark reads it, or only Spark can tell a feature.
    """
    if features_left_to_spark(features.features, job.schema.names):
        vectors_of(features.features, first_rows(job, split), job.schema)


def places_of(segments: Sequence[Segment]) -> Places:
    """Which rows each of some segments takes."""
    return Places(
        tuple(segment.value for segment in segments),
        tuple(segment.low for segment in segments),
        tuple(segment.high for segment in segments),
    )


def map_parcels(spark: SparkSession, cut: CutJob, task: Task, schema: str) -> DataFrame:
    """What a task makes of each segment's rows, which other tasks read and cut.

    Args:
        spark: the session.
        cut: what the tasks that read go by; names the segments.
        task: gets the batches of one segment.
        schema: of what it gives.
    """
    numbers = spark.range(0, len(cut.tasks), 1, len(cut.tasks))
    parcels = map_in_workers(numbers, partial(cut_rows, cut), PARCEL_TYPES)
    return map_segments(parcels, len(cut.places.values), partial(_of_parcels, task), schema)


def _of_parcels(task: Task, parcels: Batches) -> Iterator[pa.RecordBatch]:
    return task(unpacked(parcels))


def in_tasks(splits: Sequence[Split], most: int | None = None) -> tuple[tuple[Split, ...], ...]:
    """Splits that follow each other, so many to a task that it is worth starting.

    Args:
        splits: to be read.
        most: how many tasks there may be, about; as many as are worth it when None.
    """
    at_once = max(_TASK_BYTES, sum(split.stop - split.start for split in splits) // most if most else 0)
    tasks: list[list[Split]] = []
    held = at_once
    for split in splits:
        if held >= at_once:
            tasks.append([])
            held = 0
        tasks[-1].append(split)
        held += split.stop - split.start
    return tuple(map(tuple, tasks))
