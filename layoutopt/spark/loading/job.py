"""The Spark job of a load: it scans, sums, cuts into segments, and has every segment written by one task.

Where tasks read the source's files by Arrow, the sum is a second job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, Observation, SparkSession

from layoutopt.catalog.checks import Content
from layoutopt.catalog.commit import comes_beside, partition_entries
from layoutopt.catalog.deletes import Marks
from layoutopt.catalog.partition_names import PartitionNames, PlainValue
from layoutopt.catalog.snapshot import PartitionEntry, Snapshot
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.direct.cut_rows import CutJob
from layoutopt.features.weights import feature_shares
from layoutopt.model.layout import Plan
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.featurize import index_values, words_left
from layoutopt.spark.core.segments import Segment, with_positions, with_segments
from layoutopt.spark.core.sessions import compiled_in_parts
from layoutopt.spark.core.source import content_columns, content_of, measure_content
from layoutopt.spark.core.tasks import map_segments
from layoutopt.spark.loading.by_arrow import written_by_arrow
from layoutopt.writer.answers import RESULT_SCHEMA, answers_of
from layoutopt.writer.load_ids import check_block_numbers, first_block, removed_after
from layoutopt.writer.task import WriteJob, write_segment
from layoutopt.writer.written import Written, collected

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
    featurised = index_values(words_left(routed, one.plan.features.features), one.plan.indexes)
    return map_segments(featurised, len(one.segments), partial(write_segment, job), RESULT_SCHEMA)


def entries_of(one: Loading, blocks: pa.Table) -> tuple[PartitionEntry, ...]:
    """The partitions as they were measured while they were written."""
    values = {key: one.names.scalar(value) for key, value in one.values.items()}
    return partition_entries(blocks, one.plan, one.load_id, values)
