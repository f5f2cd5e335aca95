"""The one Spark job of a load: it scans, sums, cuts into segments, and has every segment written by one task."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import fsspec
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, Observation, SparkSession

from layoutopt.catalog.checks import Content, TidSums
from layoutopt.catalog.commit import comes_beside, partition_entries
from layoutopt.catalog.deletes import Marks
from layoutopt.catalog.partition_names import PartitionNames, PlainValue
from layoutopt.catalog.paths import load_folder, new_load_id
from layoutopt.catalog.snapshot import PartitionEntry, Snapshot
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.storage.index_encoding import PackedIndexes, split_indexes
from layoutopt.errors import BoundError, CommitConflictError, PlanError, SchemaError
from layoutopt.features.weights import feature_shares
from layoutopt.indexes.measuring import blocks_with_indexes
from layoutopt.model.layout import Plan
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.featurize import feature_words, index_values
from layoutopt.spark.core.segments import Segment, with_positions, with_segments
from layoutopt.spark.core.sessions import compiled_in_parts
from layoutopt.spark.core.source import content_columns, content_of
from layoutopt.spark.core.tasks import map_segments
from layoutopt.writer.answers import RESULT_SCHEMA, answers_of
from layoutopt.writer.task import WriteJob, write_segment

# A block's number is the load's mark, 23 bits, and a number in the load, 40 bits: positive, and unique in the table.
_NUMBER_BITS = 40
_MARKS = 1 << 23
ANY: Final = (BaseException,)
_LONGEST_WAIT: Final = 4.0  # seconds; Spark ends a Python worker two seconds after it gave its task up
REFUSED: Final = (CommitConflictError, PlanError, SchemaError)
"""How a commit is refused for certain. After any other failure the snapshot may exist, and name the load's files."""


@dataclass(frozen=True)
class Written:
    """What the job left: the blocks, what they are to hold, and joined vectors by partition key.

    ``observed`` is the source's content as the scan saw it, ``positions`` the sums of its values at their tids.
    ``indexes`` are those of the blocks, in parts that follow each other.
    """

    blocks: pa.Table
    indexes: tuple[PackedIndexes, ...]
    observed: Content
    joined: Mapping[str, int]
    positions: TidSums


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


def fresh_load_id(base: Snapshot | None, blocks: Collection[int] = ()) -> str:
    """A new load id whose blocks' numbers no load of the snapshot has, nor any of the loads of some other blocks."""
    taken = set() if base is None else {_mark(entry.load_id) for entry in base.partitions}
    taken |= {number >> _NUMBER_BITS for number in blocks}
    while True:
        load_id = new_load_id()
        if _mark(load_id) not in taken:
            return load_id


def check_block_numbers(plan: Plan, segments: int) -> None:
    """Refuse a load of so many segments whose blocks might take the numbers of another load's.

    Raises:
        BoundError: they might.
    """
    most = (1 << _NUMBER_BITS) // (max(1, segments) * len(plan.scheme.layouts))
    if plan.segment_rows > most:
        raise BoundError(
            f"with segment_rows {plan.segment_rows} the blocks of {segments} segments can't be numbered; "
            f"plan with at most {most}"
        )


@contextmanager
def discarded_after(
    failures: tuple[type[BaseException], ...], spark: SparkSession, files: TableFiles, load_id: str, keys: Iterable[str]
) -> Iterator[None]:
    """Remove what a load wrote to partitions where what is done within fails in one of these ways.

    Nothing names these files then, so one that can't be removed is garbage that nobody sees.

    Args:
        failures: :data:`ANY` before the commit, :data:`REFUSED` while committing.
        spark: the session whose tasks write.
        files: the table's.
        load_id: the load's.
        keys: of the partitions.
    """
    try:
        yield
    except failures:
        try:
            _wait_for_tasks(spark)
        finally:
            for key in keys:
                with suppress(OSError):
                    filesystem, path = fsspec.core.url_to_fs(files.full_path(load_folder(key, load_id)))
                    filesystem.rm(path, recursive=True)
        raise


def _wait_for_tasks(spark: SparkSession) -> None:
    """Wait some seconds while tasks run: where one of a job has failed, Spark lets others end, which write files."""
    until = time.monotonic() + _LONGEST_WAIT
    with suppress(AttributeError, Py4JError, OSError):  # the session may have been stopped, Java may have ended
        tracker = spark.sparkContext._jsc.sc().statusTracker()
        while any(one.numRunningTasks() for one in tracker.getExecutorInfos()) and time.monotonic() < until:
            time.sleep(0.05)


def first_block(load_id: str) -> int:
    """The least number that a block of a load may have; no other load's has the same upper bits."""
    return _mark(load_id) << _NUMBER_BITS


def _mark(load_id: str) -> int:
    return int.from_bytes(hashlib.sha256(load_id.encode()).digest()[:4], "big") % _MARKS


def write(one: Loading, in_task: Callable[[str], None] | None) -> Written:
    """Run the job.

    Raises:
        BoundError: its blocks can't be numbered, or memory ran out.
        SourceError: a file of the source is damaged.
    """
    plan = one.plan
    check_block_numbers(plan, len(one.segments))
    empty, of_none = split_indexes(blocks_with_indexes(plan).empty_table())
    if not one.segments:
        return Written(empty, (of_none,), Content(0, dict.fromkeys(plan.schema.names, 0)), {}, {})
    job = WriteJob(
        plan=plan,
        shares=feature_shares(plan.features, plan.queries),
        root=one.files.full_path(""),
        load_id=one.load_id,
        first_block=first_block(one.load_id),
        keys=tuple(one.names.key(segment.value) for segment in one.segments),
        numbers=tuple(segment.number for segment in one.segments),
        at=in_task,
        late=comes_beside(one.basis.operation, one.basis.marks),
        lent=one.files.for_tasks().lent,
    )
    observation = Observation(f"layoutopt {one.load_id}")
    with translate_spark_errors(one.source_name), compiled_in_parts(one.spark):
        result = _job(one, job, observation).toArrow()
        observed = content_of(observation.get, plan.schema.names)
    return _collected(one, result, Written(empty, (of_none,), observed, {}, {}))


def _job(one: Loading, job: WriteJob, observation: Observation) -> DataFrame:
    """The one job of a load: scan, positions, sums, words, segments, shuffle, write."""
    positioned = with_positions(one.source)
    observed = positioned.observe(observation, *content_columns(one.source))
    routed = with_segments(one.spark, observed, one.segments, one.plan.partition_by)
    featurised = index_values(feature_words(routed, one.plan.features.features), one.plan.indexes)
    return map_segments(featurised, len(one.segments), partial(write_segment, job), RESULT_SCHEMA)


def _collected(one: Loading, result: pa.Table, none: Written) -> Written:
    """The tasks' answers put together, in the order of the segments, after what there is of no segment."""
    tables, indexes, joined = [none.blocks], list(none.indexes), dict.fromkeys(one.values, 0)
    positions: dict[tuple[str, int, int], Mapping[str, int]] = {}
    for answer in answers_of(result):
        tables.append(answer.blocks)
        indexes.append(answer.indexes)
        segment = one.segments[answer.segment]
        key = one.names.key(segment.value)
        joined[key] = max(joined[key], answer.joined_vectors)
        for layout, sums in enumerate(answer.tid_sums):
            by_name = zip(one.plan.schema.names, sums, strict=True)
            positions[key, segment.number, layout] = {name: sum for name, sum in by_name if sum is not None}
    return Written(pa.concat_tables(tables), tuple(indexes), none.observed, joined, positions)


def entries_of(one: Loading, blocks: pa.Table) -> tuple[PartitionEntry, ...]:
    """The partitions as they were measured while they were written."""
    values = {key: one.names.scalar(value) for key, value in one.values.items()}
    return partition_entries(blocks, one.plan, one.load_id, values)
