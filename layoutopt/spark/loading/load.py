"""Load by Spark: a session reads the source, and writes segments in its tasks.

See :mod:`layoutopt.loading.load` for the steps of a load. Tasks read plain files by Arrow; what only Spark reads is
spooled to such files first (:mod:`layoutopt.spark.loading.spool`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from layoutopt.catalog.commit import CommitHook, ensure_table_root
from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.partition_names import PlainValue
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import NeedsSparkError, SourceError
from layoutopt.events import NO_EVENTS, EventLog, Progress, Stages, silent
from layoutopt.external.snapshot import SourcePartition
from layoutopt.external.source_check import check_source
from layoutopt.loading import load as loading
from layoutopt.loading.load import LoadBasis, LoadSource, LoadsReport
from layoutopt.loading.local_source import find_damaged_file, open_local
from layoutopt.model.layout import Plan
from layoutopt.model.requests import LoadRequest
from layoutopt.scan.table import Table
from layoutopt.sources.door import Door
from layoutopt.sources.source import IsNeeded, Source, need_all
from layoutopt.spark.core.functions import check_plan
from layoutopt.spark.core.partition_values import filter_partitions, match_partition_texts, parse_partition_values
from layoutopt.spark.core.sessions import AnySession, has_local_paths, start_session
from layoutopt.spark.core.source import (
    check_partition_column,
    conform_columns,
    open_source,
    rename_columns,
)
from layoutopt.spark.core.workers import SparkTasks
from layoutopt.spark.loading.source_files import between, check_reachable, count_each, read_partition, source_partitions
from layoutopt.spark.loading.spool import spool
from layoutopt.spark.loading.verify import holds_same_rows
from layoutopt.writer.task_result import LoadReport


def load(
    spark: SparkSession,
    source: DataFrame | str | Path,
    table_path: str | Path,
    plan: Plan,
    partitions: Sequence[object] | None = None,
    progress: Progress | None = None,
    *,
    stages: Stages | None = None,
    whole_table: bool = False,
    encrypt: str | None = None,
    at: CommitHook = lambda point: None,
    in_task: Callable[[str], None] | None = None,
) -> LoadReport:
    """Rewrite a source's partitions into blocks, and commit them as the table's next snapshot.

    Args:
        spark: the session, whose settings must be the plan's.
        source: rows, or a path to Parquet.
        table_path: the table's folder, created where missing.
        plan: the layout to load by.
        partitions: those to load, as texts of ``--partition`` (``o_year=1994``) or values; all of the source when
            None. One that has no rows there becomes empty.
        progress: called with a short sentence as each stage begins.
        stages: times and logs the stages, instead of ``progress``.
        whole_table: drop the partitions that the source lacks.
        encrypt, at, in_task: as :func:`layoutopt.loading.load.load`.

    Raises:
        SourceError: the source is missing, truncated or no Parquet.
        SchemaError: the source's schema is not the plan's, or has a type that can't be stored.
        SettingError: the session's settings are not the plan's, or a partition is no value of its column.
        NotATableError: the table's path holds something else.
        LayoutoptError: as :func:`layoutopt.loading.load.load`.
    """
    files, stages = TableFiles(str(table_path), key=encrypt), stages or Stages(progress or silent)

    def write(name: str, rows: Source, values: Sequence[PlainValue] | None) -> LoadReport:
        basis = LoadBasis(
            snapshot=base, source=name, values=None if values is None else tuple(values), whole_table=whole_table
        )
        return loading.load(
            rows, str(table_path), plan, basis, stages,
            encrypt=encrypt, at=at, in_task=in_task,
        )  # fmt: skip

    def write_named(opened: LoadSource) -> LoadReport:
        some = None if partitions is None else opened.select_partitions(partitions)
        values = None if some is None else [partition.value for partition in some]
        return write(repr(str(source)), opened.open_rows(some, files), values)

    if not isinstance(source, DataFrame):
        door = open_door(spark, str(source), plan, say=stages.say, log=stages.log)
        door.read(lambda opened: opened.check_rows([]))
        base = ensure_table_root(files)
        return door.read(write_named)
    check_plan(spark, plan, "the plan")
    rows, values = conform_columns(open_source(spark, source), plan.schema), None
    check_partition_column(rows, plan.partition_by)
    if partitions is not None:  # parsed by Spark, so that the checks notice rows of other values than parsed here
        values = parse_partition_values(rows, plan.partition_by, partitions)
        rows = rows.where(match_partition_texts(rows, str(plan.partition_by), partitions))
    base = ensure_table_root(files)
    return write("DataFrame", spool(rows, plan, "DataFrame", files), values)


def run_load(
    spark: AnySession,
    request: LoadRequest,
    say: Progress = silent,
    log: EventLog = NO_EVENTS,
    make_plan: Callable[[], Plan] | None = None,
) -> LoadsReport:
    """Load by Spark what the request names and the table lacks, as :func:`layoutopt.loading.load.run_load`."""

    def open_named(source: str, plan: Plan, is_needed: IsNeeded) -> Door[LoadSource]:
        return open_door(spark, source, plan, is_partial=request.is_partial, is_needed=is_needed, say=say, log=log)

    return loading.run_load(open_named, request, say, log, make_plan, request.parallel)


def open_door(
    spark: AnySession,
    source: str,
    plan: Plan,
    *,
    is_partial: bool = False,
    is_needed: IsNeeded = need_all,
    say: Progress = silent,
    log: EventLog = NO_EVENTS,
) -> Door[LoadSource]:
    """Return the door of a source whose segments are written by Spark's tasks.

    Args:
        spark: a session that does not run yet is started once the source has been checked.
        source: a path, or the name of a table.
        plan: the layout to load by.
        is_partial: whether partitions that are not loaded may have further columns.
        is_needed: as of :func:`~layoutopt.loading.local_source.open_local`.
        say, log: receive why Spark reads the rows, too.
    """

    def open_by_arrow(_: object) -> LoadSource:
        return open_in_tasks(spark, source, plan, is_partial=is_partial, is_needed=is_needed)

    def open_by_spark(_: object) -> LoadSource:
        return open_by_session(spark, source, plan, is_partial=is_partial)

    return Door(open_by_arrow, open_by_spark, say=say, log=log, distrusts=True)


def open_in_tasks(
    spark: AnySession,
    source: str,
    plan: Plan,
    document: str = "the plan",
    *,
    is_partial: bool = False,
    is_needed: IsNeeded = need_all,
) -> Source:
    """Open a source for Spark's tasks, which read it by Arrow.

    A session that does not run yet is started once tasks are needed: files of few rows are counted in this process.

    Args:
        spark, source, plan, is_partial, is_needed: as of :func:`open_door`.
        document: names what has the columns in messages.

    Raises:
        SettingError: the session's settings are not the plan's.
        NeedsSparkError, SourceError: as :func:`~layoutopt.loading.local_source.open_local`.
    """

    def start() -> SparkSession:
        session = start_session(spark)
        check_plan(session, plan, document)
        if not has_local_paths(session):
            raise NeedsSparkError(f"{source!r} is not surely a path of this machine")
        return session

    if callable(spark):
        check_source(source, plan.schema, document, more=is_partial)
    else:
        start()
    return open_local(source, plan, SparkTasks(cache(start)), counts_here=callable(spark), is_needed=is_needed)


def open_by_session(
    spark: AnySession, source: str, plan: Plan, document: str = "the plan", *, is_partial: bool = False
) -> SparkSource:
    """Open a source by Spark; raises the error of other columns, or of a damaged file, before Spark starts."""
    if callable(spark):
        check_source(source, plan.schema, document, more=is_partial)
    problem = find_damaged_file(source, plan) if callable(spark) else None
    if problem is not None:
        raise problem
    return SparkSource(start_session(spark), source, plan, document)


class SparkSource:
    """A source that Spark reads: a :class:`~layoutopt.loading.load.LoadSource` whose rows are spooled.

    ``document`` names what has the columns in messages.
    """

    def __init__(self, spark: SparkSession, source: str, plan: Plan, document: str = "the plan") -> None:
        check_plan(spark, plan, document)
        rows = open_source(spark, source, merged=False)
        if {name.lower() for name in plan.schema.names} - {name.lower() for name in rows.columns}:
            rows = open_source(spark, source)
        self._spark, self._source, self._plan, self._document = spark, source, plan, document
        self._rows = rename_columns(rows, plan.schema)
        self._selected: tuple[tuple[SourcePartition, ...] | None, DataFrame] | None = None
        check_partition_column(self._rows, plan.partition_by)

    @property
    def partitions(self) -> tuple[SourcePartition, ...]:
        """All partitions."""
        return source_partitions(self._rows, self._source, self._plan.partition_by)

    def select_partitions(self, texts: Sequence[object]) -> tuple[SourcePartition, ...]:
        """Return the partitions that texts name; Spark parses these."""
        rows, by = self._rows, self._plan.partition_by
        values = parse_partition_values(rows, by, texts)
        condition = match_partition_texts(rows, str(by), texts)
        by_value = {found.value: found for found in source_partitions(rows, self._source, by, condition)}
        return tuple(by_value.get(value, SourcePartition(value, ())) for value in values)

    def select_range(self, first: str | None, last: str | None) -> tuple[SourcePartition, ...]:
        """Return the partitions from one value to another."""
        rows, by = self._rows, self._plan.partition_by
        condition = between(rows, by, first, last)
        try:
            return source_partitions(rows, self._source, by, condition)
        except SourceError:  # perhaps of one day
            by_day = count_each(rows, self._source, str(by), condition)
            if by_day is None or all(partition.problem for partition in by_day):
                raise
            return by_day

    def check_reachable(self, partitions: Sequence[SourcePartition]) -> None:
        """Raise SourceError if the partitions' values select other rows than were counted."""
        readable = [partition for partition in partitions if partition.problem is None]
        check_reachable(self._rows, self._source, str(self._plan.partition_by), readable)

    def check_rows(self, partitions: Sequence[SourcePartition] | None) -> None:
        """Raise SchemaError for other columns than the plan's."""
        self._select(partitions)

    def open_rows(self, partitions: Sequence[SourcePartition] | None, beside: TableFiles) -> Source:
        """Spool the rows of some partitions, or of all with None."""
        return spool(self._select(partitions), self._plan, repr(self._source), beside)

    def _select(self, partitions: Sequence[SourcePartition] | None) -> DataFrame:
        """Return the rows of some partitions, or of all with None, under the plan's columns; the last ones again."""
        key = None if partitions is None else tuple(partitions)
        if self._selected is None or self._selected[0] != key:
            self._selected = key, self._open_rows(partitions)
        return self._selected[1]

    def _open_rows(self, partitions: Sequence[SourcePartition] | None) -> DataFrame:
        by, schema = self._plan.partition_by, self._plan.schema
        if partitions is not None and by is not None and len(partitions) == 1 and partitions[0].files:
            rows = read_partition(self._spark, self._source, self._rows, by, partitions[0], schema)
        else:
            rows = open_source(self._spark, self._source)
        rows = conform_columns(rows, schema, self._document)
        if partitions is None or by is None:
            return rows
        return filter_partitions(rows, by, [partition.value for partition in partitions])

    def holds_same_rows(self, partition: SourcePartition, table: Table, entries: Sequence[PartitionEntry]) -> bool:
        """Return whether a partition's entries hold its rows."""
        return holds_same_rows(self._spark, self._select([partition]), table, entries)
