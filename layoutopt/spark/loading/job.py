"""The Spark job of a load: it scans, sums, cuts into segments, and has every segment written by one task.

Where tasks read the source's files by Arrow, the sum is a second job.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from layoutopt.catalog.checks import Content
from layoutopt.catalog.commit import comes_beside, partition_entries
from layoutopt.catalog.deletion_vectors import Marks
from layoutopt.catalog.partition_names import PartitionNames, PlainValue
from layoutopt.catalog.snapshot import PartitionEntry, Snapshot
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import NeedsSparkError
from layoutopt.features.weights import feature_shares
from layoutopt.indexes.expressions import left_to_spark
from layoutopt.local.parquet_files import check_columns
from layoutopt.local.splits import CutJob, Places, Split, check_split, cut_rows, first_rows, rows_of_segments
from layoutopt.local.vectors import evaluate_words, vectors_of
from layoutopt.model.feature import FeatureSet
from layoutopt.model.layout import Plan
from layoutopt.model.schema import POSITION, Schema
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.featurize import index_values, with_feature_words
from layoutopt.spark.core.partition_values import partition_column
from layoutopt.spark.core.segments import Segment, with_positions, with_segments
from layoutopt.spark.core.sessions import compiled_in_parts
from layoutopt.spark.core.source import content_columns, content_of, measure_content
from layoutopt.spark.core.workers import Batches, Task, map_in_workers, map_segments
from layoutopt.sql.schema import values_in_folders
from layoutopt.writer.evaluation import features_left_to_spark
from layoutopt.writer.load_ids import check_block_numbers, first_block, removed_after
from layoutopt.writer.segment import PARCEL_TYPES, unpacked
from layoutopt.writer.task import WriteJob, write_segment
from layoutopt.writer.task_result import RESULT_SCHEMA, Written, answers_of, collected

# ----------------------------------------------------------------------------------------------------
# Which files of Parquet on this machine Spark's tasks read for a source, in which ranges, and what rows those have.
#
# Tasks that read the same files by Arrow then know the place of every row in the source's order.

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


# ----------------------------------------------------------------------------------------------------
# The jobs of a load whose source is plain files of Parquet: tasks read these by Arrow, and Spark sums them up.
#
# Two readers that know nothing of each other then agree about every column, or the load is done again as any other is.

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
    job = replace(job, of_left=evaluate_words)
    if not cut.by_segment:
        return map_parcels(spark, cut, partial(write_segment, job), RESULT_SCHEMA)
    numbers = spark.range(0, len(cut.tasks), 1, len(cut.tasks))
    return map_in_workers(numbers, partial(_write_own, cut, job), RESULT_SCHEMA)


def _write_own(cut: CutJob, job: WriteJob, numbers: Batches) -> Iterator[pa.RecordBatch]:
    return write_segment(job, rows_of_segments(cut, numbers))


_LONGEST_WAIT: Final = 4.0  # seconds; Spark ends a Python worker two seconds after it gave its task up


@dataclass(frozen=True)
class Basis:
    """What a load is based on, where its caller has looked before.

    Attributes:
        snapshot: the table's newest then, None for a table that was not there: what is refused as a conflict is what
            changed since.
        source: names the source in messages.
        values: of the partitions to load; None where the caller's texts say which, or nobody does.
        whole: whether these are all that the source has, so that no row of it may be left out.
        fingerprints: of partition keys, the digest of the source's files; recorded, so that a retry knows its own work.
        rows: of partition keys, the rows that the caller counted in the source.
        content: what all rows together must have, where the caller knows that better than the source does.
        operation: what the history calls it, see :func:`~layoutopt.catalog.commit.commit_load`.
        batch: what is appended.
        marks: rows that are deleted in the same commit; what is loaded then stands beside those that are left.
        plain: whether the source's rows are those of its files of Parquet, which nothing computes.
    """

    snapshot: Snapshot | None
    source: str
    values: tuple[PlainValue, ...] | None = None
    whole: bool = False
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    content: Content | None = None
    operation: str | None = None
    batch: str | None = None
    marks: Marks | None = None
    plain: bool = False


@dataclass(frozen=True)
class Loading:
    """One load: where from, where to, and the segments between."""

    spark: SparkSession
    source: DataFrame
    source_name: str
    plan: Plan
    files: TableFiles
    load_id: str
    segments: tuple[Segment, ...]
    values: Mapping[str, PlainValue]
    names: PartitionNames
    basis: Basis


def discarded_after(
    failures: tuple[type[BaseException], ...], spark: SparkSession, files: TableFiles, load_id: str, keys: Iterable[str]
) -> AbstractContextManager[None]:
    """As :func:`~layoutopt.writer.load_ids.removed_after`, once the session's tasks, which write, have ended."""
    return removed_after(failures, files, load_id, keys, partial(_wait_for_tasks, spark))


def _wait_for_tasks(spark: SparkSession) -> None:
    """Wait some seconds while tasks run: where one of a job has failed, Spark lets others end, which write files."""
    until = time.monotonic() + _LONGEST_WAIT
    with suppress(AttributeError, Py4JError, OSError):  # the session may have been stopped, Java may have ended
        tracker = spark.sparkContext._jsc.sc().statusTracker()
        while any(one.numRunningTasks() for one in tracker.getExecutorInfos()) and time.monotonic() < until:
            time.sleep(0.05)


def write(one: Loading, in_task: Callable[[str], None] | None, cut: CutJob | None = None) -> Written:
    """Run the job.

    Args:
        one: the load.
        in_task: called in every task after its files are written; for tests.
        cut: how tasks read the source's files by Arrow; None lets Spark read them.

    Raises:
        BoundError: its blocks can't be numbered, or memory ran out.
        SourceError: a file of the source is damaged.
        NeedsSparkError: by Arrow, a file is not surely read as Spark reads it.
    """
    plan = one.plan
    check_block_numbers(plan, len(one.segments))
    keys = tuple(one.names.key(segment.value) for segment in one.segments)
    numbers = tuple(segment.number for segment in one.segments)
    if not one.segments:
        return collected(plan, keys, numbers, (), Content(0, dict.fromkeys(plan.schema.names, 0)))
    job = WriteJob(
        plan=plan,
        shares=feature_shares(plan.features, plan.queries),
        root=one.files.full_path(""),
        load_id=one.load_id,
        first_block=first_block(one.load_id),
        keys=keys,
        numbers=numbers,
        at=in_task,
        late=comes_beside(one.basis.operation, one.basis.marks),
        lent=one.files.for_tasks().lent,
    )
    answers = _by_spark if cut is None else partial(_by_arrow, cut)
    with translate_spark_errors(one.source_name):
        result, observed = answers(one, job)
    return collected(plan, keys, numbers, answers_of(result), observed)


def _by_spark(one: Loading, job: WriteJob) -> tuple[pa.Table, Content]:
    """The tasks' answers and what the source holds, which is summed on the way."""
    observation = Observation(f"layoutopt {one.load_id}")
    with compiled_in_parts(one.spark):
        result = _job(one, job, observation).toArrow()
    return result, content_of(observation.get, one.plan.schema.names)


def _by_arrow(cut: CutJob, one: Loading, job: WriteJob) -> tuple[pa.Table, Content]:
    """The tasks' answers and what the source holds, which Spark reads for itself."""
    result = written_by_arrow(one.spark, cut, job).toArrow()
    return result, measure_content(one.source, one.source_name)


def _job(one: Loading, job: WriteJob, observation: Observation) -> DataFrame:
    """The one job of a load: scan, positions, sums, words, segments, shuffle, write."""
    positioned = with_positions(one.source)
    observed = positioned.observe(observation, *content_columns(one.source))
    routed = with_segments(one.spark, observed, one.segments, one.plan.partition_by)
    featurised = index_values(with_feature_words(routed, one.plan.features.features), one.plan.indexes)
    return map_segments(featurised, len(one.segments), partial(write_segment, job), RESULT_SCHEMA)


def entries_of(one: Loading, blocks: pa.Table) -> tuple[PartitionEntry, ...]:
    """The partitions as they were measured while they were written."""
    values = {key: one.names.scalar(value) for key, value in one.values.items()}
    return partition_entries(blocks, one.plan, one.load_id, values)
