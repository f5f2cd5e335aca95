"""A table that Spark changes: it finds the rows, computes the new ones, and opens them for a load."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, MapType, StructType

from layoutopt.catalog.load_check import Content
from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.partition_names import PlainValue
from layoutopt.catalog.table import Catalog
from layoutopt.changes.affected_rows import AffectedRows, TableChange, null_key_error, unite_content
from layoutopt.changes.commit import ChangeReport
from layoutopt.changes.verbs import change_rows
from layoutopt.errors import NotATableError, SettingError
from layoutopt.events import NO_EVENTS, EventLog, Progress, silent
from layoutopt.inspect.status import current_plan
from layoutopt.loading.append import OpenEntries, open_entries
from layoutopt.loading.partition_rows import open_segments
from layoutopt.loading.rewrite import OpenSegments
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import FALSE, Filter
from layoutopt.model.requests import ChangeRequest, MergeRequest
from layoutopt.model.schema import END_OF_SOURCE, PLACE, schema_ddl
from layoutopt.model.types import quote_name, type_sql
from layoutopt.scan.table import Table, open_own_table, plan_read
from layoutopt.scan.table_read import TableRead
from layoutopt.sources.door import Door
from layoutopt.sources.executor import Executor
from layoutopt.sources.segments import Segment
from layoutopt.sources.source import Source
from layoutopt.spark.catalyst.rule import get_analyzed_plan
from layoutopt.spark.changes.located_rows import (
    SEGMENT_NUMBER,
    LocatedRows,
    is_true,
    locate_rows,
    translate_expression_errors,
)
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.functions import check_plan, find_declared_udfs
from layoutopt.spark.core.partition_values import partition_column
from layoutopt.spark.core.sessions import AnySession
from layoutopt.spark.core.source import conform_columns, measure_content, open_source
from layoutopt.spark.core.workers import SparkTasks
from layoutopt.spark.loading.source_files import source_partitions
from layoutopt.spark.loading.spool import spool
from layoutopt.spark.loading.verify import rows_of_entries
from layoutopt.spark.session.enabling import plan_reads, table_to_dataframe, with_functions
from layoutopt.sql.scans import TableScan

_NESTED: Final = (ArrayType, MapType, StructType)
_VALUE: Final = "_w_value"
# The most values of a merge key in an IN list; more become a range.
_MOST_VALUES: Final = 1_000
# Key types whose literals mean the same under all session settings.
_SURE_TYPES: Final = frozenset({"tinyint", "smallint", "int", "bigint", "date", "string"})


@dataclass(frozen=True, eq=False)
class SparkChange(TableChange[DataFrame]):
    """A table that a Spark session changes."""

    spark: SparkSession

    @property
    def executor(self) -> Executor:
        """Return the session's tasks."""
        return SparkTasks(self.spark)

    def read(self, entries: Sequence[PartitionEntry]) -> DataFrame:
        """Return the live rows of some entries."""
        return rows_of_entries(self.spark, self.table, entries)

    def list_values(self, rows: DataFrame) -> tuple[PlainValue, ...]:
        """Return the distinct values of the partition column in some rows; (None,) without partitions."""
        if self.plan.partition_by is None:
            return (None,)
        column = partition_column(rows, self.plan.partition_by).alias(_VALUE)
        return tuple(row[_VALUE] for row in rows.select(column).distinct().collect())

    def measure(self, rows: DataFrame, name: str) -> Content:
        """Return the content of rows, by a job."""
        return measure_content(rows, name)

    def compute(self, rows: DataFrame) -> DataFrame:
        """Return the rows computed once, so that each read returns the same."""
        return rows.localCheckpoint()

    def find(self, where: str, *, locate: bool) -> AffectedRows[DataFrame]:
        """Return the rows for which a condition is TRUE, with positions if it is on a single scan of the table."""
        rows = self.match(where)
        with translate_expression_errors("--where", where, parsed=True):
            read = self._plan_read(rows) if locate else None
            if read is None:
                return AffectedRows(rows, measure_content(rows, repr(self.path)))
            located = locate_rows(self.spark, read).transform(lambda rows: rows.where(is_true(where)))
            return self._collect(located)

    def match(self, where: str) -> DataFrame:
        """Return the table's rows that meet a condition, read as by a query.

        Raises:
            SettingError: Spark can't parse the condition, or it is not deterministic.
        """
        with translate_expression_errors("--where", where):
            table = table_to_dataframe(self.spark, with_functions(self.spark, self.table))
            rows = table.where(F.expr(f"({where})"))
            plan = get_analyzed_plan(rows)
        if not plan.deterministic():
            raise SettingError(f"--where {where!r} is not deterministic; use a condition on the values of the rows")
        return rows

    def _plan_read(self, rows: DataFrame) -> TableRead | None:
        """Return what some rows read of the table's blocks; None if that is not a single scan of all columns."""
        reads = plan_reads(rows)
        table, names = self.table, self.table.schema.names
        if not reads:  # no row can match
            scan = TableScan(table.name, table.name, names, Filter.of(FALSE))
            return plan_read(table, scan, table.settings)
        return reads[0] if len(reads) == 1 and reads[0].scan.columns == names else None

    def _collect(self, located: LocatedRows) -> AffectedRows[DataFrame]:
        segments = located.collect()
        return AffectedRows(located.rows, unite_content(segments, self.table.schema.names), segments)

    def exclude(self, rows: DataFrame, where: str) -> DataFrame:
        """Return the rows for which a condition is not TRUE."""
        return rows.where(~is_true(where))

    def parse_assignments(self, assignments: Mapping[str, str]) -> Callable[[DataFrame, str | None], DataFrame]:
        """Return a function of rows and a condition, which assigns new values where it is TRUE."""
        rows = self.spark.createDataFrame([], schema_ddl(self.table.schema.columns))
        columns: dict[str, SparkColumn] = {}
        for name, value in assignments.items():
            column, text = self.table.schema.find(name), f"{name} ={value}"
            with translate_expression_errors("--set", text):
                expression = F.expr(value)  # brackets would make a struct of several values
                field, *_ = rows.select(expression).schema.fields
                columns[column.name] = expression.cast(type_sql(column.type))
                _ = rows.select(columns[column.name]).schema  # fails for several values
            if isinstance(field.dataType, _NESTED) and "<" not in column.type:
                raise SettingError(
                    f"--set {text!r} gives {column.name!r}, which is {column.type}, a value of type "
                    f"{field.dataType.simpleString()}; cast it to {column.type}"
                )
        return lambda rows, where: _assign(rows, columns, None if where is None else is_true(where))

    def read_source(self, request: MergeRequest) -> tuple[DataFrame, DataFrame]:
        """Return the rows of a merge's source, and those of them that the table is to have afterwards."""
        source = open_source(self.spark, request.source)
        source_partitions(source, request.source, None)  # checks that Spark reads whole files
        schema = self.plan.schema
        if request.delete_when is None:
            rows = conform_columns(source, schema, "the table")
            return rows, rows
        with translate_expression_errors("--delete-when", request.delete_when):
            _ = source.where(F.expr(f"({request.delete_when})")).schema
        # The condition may use columns that the table lacks, such as the kind of change.
        columns = [name for name in source.columns if schema.get(name) is not None]
        rows = conform_columns(source.select(*map(quote_name, columns)), schema, "the table")
        upserts = source.where(~is_true(request.delete_when)).select(*map(quote_name, columns))
        return rows.select(*map(quote_name, schema.names)), conform_columns(upserts, schema, "the table")

    def find_repeated_key(self, rows: DataFrame, keys: Sequence[str], source: str) -> tuple[object, ...] | None:
        """Return a key that several rows of a source have, followed by their number; None if there is none."""
        with translate_spark_errors(repr(source)):
            if rows.where(" OR ".join(f"{quote_name(name)} IS NULL" for name in keys)).limit(1).count():
                raise null_key_error(source, keys)
            row = rows.groupBy(*map(quote_name, keys)).count().where("count > 1").first()
        return None if row is None else tuple(row)

    def find_keys(self, source: DataFrame, keys: Sequence[str]) -> AffectedRows[DataFrame]:
        """Return the table's rows with a key of a source, and their positions; computed once."""
        rows = table_to_dataframe(self.spark, self.table).where(key_condition(source, keys))
        read = self._plan_read(rows)
        assert read is not None, "a condition on columns reads the table once"
        located = locate_rows(self.spark, read)
        return self._collect(
            located.transform(lambda rows: self.select_keys(rows, source, keys, present=True)).checkpoint()
        )

    def select_keys(self, rows: DataFrame, others: DataFrame, keys: Sequence[str], *, present: bool) -> DataFrame:
        """Return the rows with a key that other rows have, or (not ``present``) that these lack."""
        return rows.join(others.select(*map(quote_name, keys)), list(keys), "left_semi" if present else "left_anti")

    def unite(self, rows: DataFrame, others: DataFrame) -> DataFrame:
        """Return the rows of both."""
        return rows.select(*map(quote_name, self.plan.schema.names)).unionByName(others)

    def open_rows(self, rows: DataFrame, name: str) -> Source:
        """Open rows for a load by the plan."""
        return spool(conform_columns(rows, self.plan.schema), self.plan, name, self.table.catalog.files)

    @contextmanager
    def translate_errors(self, assignments: Sequence[str]) -> Iterator[None]:
        """Raise Spark's errors about assignments as SettingError, and others as layoutopt's."""
        with ExitStack() as stack:
            if assignments:
                stack.enter_context(translate_expression_errors("--set", ", ".join(assignments)))
            stack.enter_context(translate_spark_errors(repr(self.path)))
            yield


def change_by_spark(
    spark: AnySession, request: ChangeRequest, say: Progress = silent, log: EventLog = NO_EVENTS
) -> ChangeReport:
    """Delete, update or merge rows as :func:`layoutopt.changes.verbs.change_rows`."""
    return change_rows(Door(lambda _: partial(open_for_change, spark)), request, say, log)


def open_for_change(spark: AnySession, path: str, check: Callable[[Table], None] | None = None) -> SparkChange:
    """Open a table at its newest snapshot, with its newest plan.

    A session that does not run yet is started once ``check`` has checked the change, which then fails in no time.

    Raises:
        NotATableError: there is no table, or it has no plan.
        SettingError: the session's settings or functions differ from those of the table's plans.
    """
    if callable(spark):
        table = open_own_table(path)
        if check is not None:
            check(table)
        spark = spark()
    table = open_own_table(path, udfs=tuple(find_declared_udfs(spark).values()))
    return SparkChange(path, table, newest_checked_plan(spark, table.catalog), spark)


def open_entries_door(spark: SparkSession, path: str) -> Door[OpenEntries]:
    """Return the door of a table's own rows: tasks read them by Arrow, or Spark reads them."""

    def by_arrow(table: Table, plan: Plan, entries: Sequence[PartitionEntry]) -> Source:
        return open_entries(table, plan, entries, SparkTasks(spark))

    def by_spark(table: Table, plan: Plan, entries: Sequence[PartitionEntry]) -> Source:
        newest_checked_plan(spark, table.catalog)
        change = SparkChange(path, table, plan, spark)
        return change.open_rows(change.read(entries), f"the table {path!r}")

    return Door(lambda _: by_arrow, lambda _: by_spark, errors=partial(translate_spark_errors, repr(path)))


def open_segments_door(spark: SparkSession, path: str) -> Door[OpenSegments]:
    """Return the door of whole segments of a table, which are read to write layouts of them: by Arrow, or by Spark."""

    def by_arrow(table: Table, plan: Plan, read: TableRead) -> tuple[Source, tuple[Segment, ...]]:
        return open_segments(table, plan, read, SparkTasks(spark))

    def by_spark(table: Table, plan: Plan, read: TableRead) -> tuple[Source, tuple[Segment, ...]]:
        check_plan(spark, plan, "the plan")
        located = locate_rows(spark, read)
        rows = located.numbered.sortWithinPartitions(SEGMENT_NUMBER, PLACE).drop(PLACE)
        source = spool(rows, plan, f"the table {path!r}", table.catalog.files, partition_by=SEGMENT_NUMBER)
        segments = (
            Segment(i, i, segment.read.segment, 0, END_OF_SOURCE, segment.read.live_rows)
            for i, segment in enumerate(located.segments)
        )
        return source, tuple(segments)

    return Door[OpenSegments](
        lambda _: by_arrow, lambda _: by_spark, errors=partial(translate_spark_errors, repr(path))
    )


def newest_checked_plan(spark: SparkSession, catalog: Catalog) -> Plan:
    """Return a table's newest plan, after all of its plans were compared with the session.

    Raises:
        NotATableError, SettingError: as :func:`open_for_change`.
    """
    if not catalog.plans:
        raise NotATableError(f"the table at {catalog.files.root!r} has no plan yet; run `layoutopt load` first")
    for plan in catalog.plans.values():
        check_plan(spark, plan, "the table")
    return current_plan(catalog)


def _assign(rows: DataFrame, assignments: Mapping[str, SparkColumn], where: SparkColumn | None = None) -> DataFrame:
    """Return the rows with new column values; only in rows for which ``where`` is TRUE, if given."""
    columns = []
    for name in rows.columns:
        old = F.col(quote_name(name))
        new = assignments.get(name, old)
        columns.append((new if where is None else F.when(where, new).otherwise(old)).alias(name))
    return rows.select(*columns)


def key_condition(source: DataFrame, keys: Collection[str]) -> SparkColumn:
    """Return a condition that is TRUE for each row with a key of the source, and by which most blocks are skipped."""
    names = [field.name for field in source.schema.fields if field.name in keys]
    names = [name for name in names if source.schema[name].dataType.simpleString() in _SURE_TYPES]
    return reduce(SparkColumn.__and__, (_value_condition(source, name) for name in names), F.lit(True))


def _value_condition(source: DataFrame, name: str) -> SparkColumn:
    column = F.col(quote_name(name))
    with translate_spark_errors("the source"):
        values = [row[0] for row in source.select(column).distinct().limit(_MOST_VALUES + 1).collect()]
        if len(values) > _MOST_VALUES:
            least, greatest = source.agg(F.min(column), F.max(column)).collect()[0]
            return column.between(least, greatest)
    return column.isin(sorted(values)) if values else F.lit(False)
