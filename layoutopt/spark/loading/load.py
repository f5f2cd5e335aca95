"""Load by Spark: a session reads the source, and writes segments in its tasks.

See :mod:`layoutopt.loading.load` for the steps of a load, and :mod:`layoutopt.spark.loading.job` for the jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from layoutopt.catalog.commit import CommitHook, ensure_table_root
from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import SourceError
from layoutopt.events import NO_EVENTS, EventLog, Progress, Stages, silent
from layoutopt.external.formats import is_parquet
from layoutopt.external.snapshot import SourcePartition
from layoutopt.external.source_check import check_source
from layoutopt.loading import load as loading
from layoutopt.loading.load import Basis, LoadSource, LoadsReport
from layoutopt.loading.readable_days import list_before_spark
from layoutopt.model.layout import Plan
from layoutopt.model.requests import LoadRequest
from layoutopt.scan.table import Table
from layoutopt.sources.segments import Cutter, cut_in_input_order
from layoutopt.spark.core.functions import check_plan
from layoutopt.spark.core.partition_values import filter_partitions, match_partition_texts, parse_partition_values
from layoutopt.spark.core.sessions import AnySession, start_session
from layoutopt.spark.core.source import (
    check_partition_column,
    conform_columns,
    open_source,
    rename_columns,
)
from layoutopt.spark.loading.job import SparkRows, open_files
from layoutopt.spark.loading.source_files import between, check_reachable, count_each, read_partition, source_partitions
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
    cutter: Cutter = cut_in_input_order,
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
        whole_table, encrypt, cutter, at, in_task: as :func:`layoutopt.loading.load.load`.

    Raises:
        SourceError: the source is missing, truncated or no Parquet.
        SchemaError: the source's schema is not the plan's, or has a type that can't be stored.
        SettingError: the session's settings are not the plan's, or a partition is no value of its column.
        NotATableError: the table's path holds something else.
        LayoutoptError: as :func:`layoutopt.loading.load.load`.
    """
    check_plan(spark, plan, "the plan")
    rows = conform_columns(open_source(spark, source), plan.schema)
    check_partition_column(rows, plan.partition_by)
    values = None if partitions is None else parse_partition_values(rows, plan.partition_by, partitions)
    base = ensure_table_root(TableFiles(str(table_path), key=encrypt))
    name = "DataFrame" if isinstance(source, DataFrame) else repr(str(source))
    if not isinstance(source, DataFrame):
        source_partitions(rows, str(source), None)  # proves that Spark reads whole files
    if partitions is not None:  # parsed by Spark: the checks then notice rows of other values than those parsed here
        rows = rows.where(match_partition_texts(rows, str(plan.partition_by), partitions))
    row_source = SparkRows(rows, plan.partition_by, name)
    if not isinstance(source, DataFrame) and is_parquet(str(source)):
        row_source = replace(row_source, open_faster=partial(open_files, row_source, str(source), plan, values))
    basis, stages = Basis(base, name, values), stages or Stages(progress or silent)
    return loading.load(
        row_source, str(table_path), plan, basis, stages,
        whole_table=whole_table, encrypt=encrypt, cutter=cutter, at=at, in_task=in_task,
    )  # fmt: skip


def run_load(
    spark: AnySession,
    request: LoadRequest,
    say: Progress = silent,
    log: EventLog = NO_EVENTS,
    make_plan: Callable[[], Plan] | None = None,
) -> LoadsReport:
    """Load by Spark what the request names and the table lacks, as :func:`layoutopt.loading.load.run_load`."""
    open_spark = partial(SparkSource, spark, is_partial=request.is_partial)
    return loading.run_load(open_spark, request, say, log, make_plan, request.parallel)


class SparkSource:
    """The source of a load as Spark opens it: a :class:`~layoutopt.loading.load.LoadSource`.

    ``document`` names what has the columns in messages. A session that does not run yet is started once rows are read:
    until then Arrow lists the partitions, where it can. With ``is_partial``, partitions that are not loaded may have
    further columns.
    """

    def __init__(
        self, spark: AnySession, source: str, plan: Plan, document: str = "the plan", *, is_partial: bool = False
    ) -> None:
        self._start, self._source, self._plan, self._document = spark, source, plan, document
        self._listed: LoadSource | None = None
        if callable(spark):
            check_source(source, plan.schema, document, more=is_partial)
            self._listed = list_before_spark(source, plan)
        if self._listed is None:
            self._rows  # noqa: B018 - starts Spark, and checks the rows

    @cached_property
    def _spark(self) -> SparkSession:
        spark = start_session(self._start)
        check_plan(spark, self._plan, self._document)
        return spark

    @cached_property
    def _rows(self) -> DataFrame:
        """The source's rows, with the plan's names."""
        schema = self._plan.schema
        rows = open_source(self._spark, self._source, merged=False)
        if {name.lower() for name in schema.names} - {name.lower() for name in rows.columns}:
            rows = open_source(self._spark, self._source)
        rows = rename_columns(rows, schema)
        check_partition_column(rows, self._plan.partition_by)
        return rows

    def list_partitions(self) -> tuple[SourcePartition, ...]:
        """List all partitions."""
        if self._listed is not None:
            return self._listed.list_partitions()
        return source_partitions(self._rows, self._source, self._plan.partition_by)

    def select_partitions(self, texts: Sequence[str]) -> tuple[SourcePartition, ...]:
        """Return the partitions that texts name; Spark parses these where it lists the partitions."""
        if self._listed is not None:
            return self._listed.select_partitions(texts)
        rows, by = self._rows, self._plan.partition_by
        values = parse_partition_values(rows, by, texts)
        condition = match_partition_texts(rows, str(by), texts)
        by_value = {found.value: found for found in source_partitions(rows, self._source, by, condition)}
        return tuple(by_value.get(value, SourcePartition(value, ())) for value in values)

    def select_range(self, first: str | None, last: str | None) -> tuple[SourcePartition, ...]:
        """Return the partitions from one value to another."""
        if self._listed is not None:
            return self._listed.select_range(first, last)
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
        """Raise SourceError if the partitions' values select other rows than Spark counted."""
        if self._listed is not None:
            return
        readable = [partition for partition in partitions if partition.problem is None]
        check_reachable(self._rows, self._source, str(self._plan.partition_by), readable)

    def open_rows(self, partitions: Sequence[SourcePartition] | None) -> SparkRows:
        """Open the rows of some partitions, or of all with None."""
        by, schema = self._plan.partition_by, self._plan.schema
        if partitions is not None and by is not None and len(partitions) == 1 and partitions[0].files:
            rows = read_partition(self._spark, self._source, self._rows, by, partitions[0], schema)
        else:
            rows = open_source(self._spark, self._source)
        rows = conform_columns(rows, schema, self._document)
        if partitions is not None and by is not None:
            rows = filter_partitions(rows, by, [partition.value for partition in partitions])
        opened = SparkRows(rows, by, repr(self._source))
        if not is_parquet(self._source):
            return opened
        values = None if partitions is None else [partition.value for partition in partitions]
        return replace(opened, open_faster=partial(open_files, opened, self._source, self._plan, values))

    def holds_same_rows(self, partition: SourcePartition, table: Table, entries: Sequence[PartitionEntry]) -> bool:
        """Return whether a partition's entries hold its rows."""
        return holds_same_rows(self._spark, self.open_rows([partition]).rows, table, entries)
