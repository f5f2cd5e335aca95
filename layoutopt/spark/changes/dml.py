"""Delete, update and merge rows of a table.

Each verb says which rows go, found by a query, so that skipping applies, and which come;
:mod:`layoutopt.spark.changes.pipeline` commits them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial, reduce
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, MapType, StructType

from layoutopt.catalog.commit import forget_superseded_entries
from layoutopt.catalog.deletion_vectors import DELETE
from layoutopt.catalog.load_check import Content
from layoutopt.catalog.partition_names import PlainValue
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.vacuum import vacuum
from layoutopt.errors import PublicationError, SettingError, SourceError
from layoutopt.events import NO_EVENTS, EventLog, Progress, Stages, silent
from layoutopt.external.source_check import check_source
from layoutopt.inspect.status import current_plan
from layoutopt.model.requests import DeleteRequest, MergeRequest, UpdateRequest
from layoutopt.model.schema import schema_ddl
from layoutopt.model.types import quote_name, type_sql, unquote_name
from layoutopt.publish.publishing import publish_after
from layoutopt.scan.table import Table
from layoutopt.spark.changes.affected_rows import (
    LocatedRows,
    TableChange,
    find_matches,
    is_true,
    locate_removed,
    locate_rows,
    mark_limit,
    open_for_change,
    plan_table_read,
    translate_expression_errors,
)
from layoutopt.spark.changes.pipeline import ChangeReport, NewRows, RowChange, commit_change
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.sessions import AnySession
from layoutopt.spark.core.source import conform_columns, measure_content, open_source
from layoutopt.spark.loading.source_files import source_partitions
from layoutopt.spark.session.enabling import table_to_dataframe
from layoutopt.sql.expression_check import check_condition, check_expression, find_column, split_assignments

_NESTED: Final = (ArrayType, MapType, StructType)


def delete_rows(
    spark: AnySession, request: DeleteRequest, say: Progress = silent, log: EventLog = NO_EVENTS
) -> ChangeReport:
    """Delete the rows for which a condition is TRUE.

    Deletion vectors are used where few rows of the affected partitions are deleted afterwards. Hard deletes and
    published tables rewrite the partitions, since readers of other formats don't know the vectors.

    A hard delete also rewrites all partitions with deleted rows, then removes the older snapshots and their files, so
    no data file has a copy of a deleted row, and no manifest its bounds. The catalog's file of a load keeps the least
    and greatest values of blocks that are gone while another partition of that load is unchanged. Concurrent readers of
    older snapshots fail; concurrent loads may have to retry.

    Raises:
        SettingError: Spark can't parse or compute the condition.
        CommitConflictError: another commit changed one of the partitions.
        PublicationError: of a hard delete: an older snapshot is still published.
        LayoutoptError: as :func:`layoutopt.spark.loading.load.load`.
    """
    watch = Stages(say, log)
    with publish_after(request.table_path, request.publish, say, log):
        report = _delete(spark, request, watch)
        if request.hard and report.load is None:  # its commit shares no manifest
            forget_superseded_entries(TableFiles(request.table_path), DELETE)
    if not request.hard:
        return report
    with watch.stage("vacuum", "removing older snapshots"):
        removed = vacuum(TableFiles(request.table_path), 1, timedelta(0))
    if removed.published:
        snapshots = ", ".join(map(str, removed.published))
        raise PublicationError(
            f"the rows are deleted, but copies are left: snapshots {snapshots} are published as tables of another "
            "format; publish the newest snapshot there, or run `publish --forget`, then run the same command again"
        )
    return replace(report, vacuum=removed)


def _delete(spark: AnySession, request: DeleteRequest, watch: Stages) -> ChangeReport:
    with watch.stage("all", "looking for rows to delete"):
        change = open_for_change(
            spark, request.table_path, lambda table: check_condition("--where", request.where, table.schema)
        )
        removed = find_matches(change, request.where, 0.0 if request.hard else mark_limit(change, request))
        values: tuple[PlainValue, ...] = ()
        if request.hard:  # no copy of rows deleted earlier may be left either
            keys = {entry.key for entry in change.table.catalog.partitions if entry.deletes is not None}
            values = change.read_stored_values(keys)
    report = ChangeReport(request.table_path, deleted=removed.content.rows)
    if not removed.content.rows and not values:
        return report
    keep = ~is_true(request.where)
    row_change = RowChange(removed, lambda rows: rows.where(keep), values=values, shares=not request.hard)
    return commit_change(change, DELETE, report, row_change, watch)


def update_rows(
    spark: AnySession, request: UpdateRequest, say: Progress = silent, log: EventLog = NO_EVENTS
) -> ChangeReport:
    """Assign new values to columns of the rows that meet a condition, computed from the old row.

    Raises:
        SettingError: Spark can't parse or compute the condition or an assignment, or it assigns the partition column.
        CommitConflictError: another commit changed one of the partitions.
        LayoutoptError: as :func:`layoutopt.spark.loading.load.load`.
    """
    with publish_after(request.table_path, request.publish, say, log):
        return _update(spark, request, Stages(say, log))


def _update(spark: AnySession, request: UpdateRequest, watch: Stages) -> ChangeReport:
    with watch.stage("all", "looking for rows to update"):
        change = open_for_change(spark, request.table_path, partial(_check_update, request))
        assignments = _parse_assignments(change, request.assignments)
        removed = find_matches(change, request.where, mark_limit(change, request))
    report = ChangeReport(request.table_path, updated=removed.content.rows)
    if not removed.content.rows:
        return report
    with (
        watch.stage("all", "computing the new rows"),
        translate_expression_errors("--set", ", ".join(request.assignments)),
        translate_spark_errors(repr(request.table_path)),
    ):
        new_rows = _assign(removed.rows, assignments)
        if removed.segments is None:
            content = measure_content(new_rows, repr(request.table_path))
        else:  # computed once, since an expression may return another value each time
            new_rows = new_rows.localCheckpoint()
            unchanged = [name for name in change.plan.schema.names if name not in assignments]
            content = Content(removed.content.rows, {name: removed.content.sums[name] for name in unchanged})
    is_updated = is_true(request.where)
    row_change = RowChange(removed, lambda rows: _assign(rows, assignments, is_updated), NewRows(new_rows, content))
    return commit_change(change, "update", report, row_change, watch)


def _check_update(request: UpdateRequest, table: Table) -> None:
    partition_by = current_plan(table.catalog).partition_by if table.catalog.plans else None
    for name, value in split_assignments(request.assignments, table.schema, partition_by).items():
        check_expression("--set", f"{name} ={value}", table.schema)
    check_condition("--where", request.where, table.schema)


def _parse_assignments(change: TableChange, texts: tuple[str, ...]) -> dict[str, SparkColumn]:
    """Return the new value of each assigned column, cast to the column's type."""
    rows = change.spark.createDataFrame([], schema_ddl(change.table.schema.columns))
    assignments: dict[str, SparkColumn] = {}
    for name, value in split_assignments(texts, change.table.schema, change.plan.partition_by).items():
        column, text = change.table.schema.find(name), f"{name} ={value}"
        with translate_expression_errors("--set", text):
            expression = F.expr(value)  # brackets would make a struct of several values
            field, *_ = rows.select(expression).schema.fields
            assignments[column.name] = expression.cast(type_sql(column.type))
            _ = rows.select(assignments[column.name]).schema  # fails for several values
        if isinstance(field.dataType, _NESTED) and "<" not in column.type:
            raise SettingError(
                f"--set {text!r} gives {column.name!r}, which is {column.type}, a value of type "
                f"{field.dataType.simpleString()}; cast it to {column.type}"
            )
    return assignments


def _assign(rows: DataFrame, assignments: Mapping[str, SparkColumn], where: SparkColumn | None = None) -> DataFrame:
    """Return the rows with new column values; only in rows for which ``where`` is TRUE, if given."""
    columns = []
    for name in rows.columns:
        old = F.col(quote_name(name))
        new = assignments.get(name, old)
        columns.append((new if where is None else F.when(where, new).otherwise(old)).alias(name))
    return rows.select(*columns)


# The most values of a merge key in an IN list; more become a range.
_MOST_VALUES: Final = 1_000
# Key types whose literals mean the same under all session settings.
_SURE_TYPES: Final = frozenset({"tinyint", "smallint", "int", "bigint", "date", "string"})


def merge_rows(
    spark: AnySession, request: MergeRequest, say: Progress = silent, log: EventLog = NO_EVENTS
) -> ChangeReport:
    """Replace the rows that have a key of the source, insert rows with new keys, and delete rows marked for deletion.

    Raises:
        SettingError: a key column or the condition is invalid.
        SourceError: the source has a key twice or a NULL key.
        CommitConflictError: another commit changed one of the partitions.
        LayoutoptError: as :func:`layoutopt.spark.loading.load.load`.
    """
    with publish_after(request.table_path, request.publish, say, log):
        return _merge(spark, request, Stages(say, log))


def _merge(spark: AnySession, request: MergeRequest, watch: Stages) -> ChangeReport:
    with watch.stage("all", "comparing keys"):
        change = open_for_change(spark, request.table_path, partial(_check_merge, request))
        keys = [find_column("--on", unquote_name(name), change.plan.schema).name for name in request.on]
        source, upserts = _read_merge_source(change, request)
        _check_keys(source, keys, request.source)
        source_keys = source.select(*map(quote_name, keys))
        # Both are read several times, and joins may return rows in another order each time.
        located = _locate_keys(change, source_keys, keys).checkpoint()
        removed, new_rows = locate_removed(change, located, mark_limit(change, request)), upserts.localCheckpoint()
        new = measure_content(new_rows, repr(request.source))
        updated = new_rows.join(removed.rows.select(*map(quote_name, keys)), keys, "left_semi").count()
        values = change.read_values(new_rows) if removed.segments is None else ()
    report = ChangeReport(request.table_path, removed.content.rows - updated, updated, new.rows - updated)
    if not removed.content.rows and not new.rows:
        return report

    def rewritten(rows: DataFrame) -> DataFrame:
        rest = rows.join(source_keys, keys, "left_anti").select(*map(quote_name, change.plan.schema.names))
        return rest.unionByName(new_rows).localCheckpoint()

    row_change = RowChange(removed, rewritten, NewRows(new_rows, new), values, exclusive=True)
    return commit_change(change, "merge", report, row_change, watch)


def _locate_keys(change: TableChange, source_keys: DataFrame, keys: Sequence[str]) -> LocatedRows:
    rows = table_to_dataframe(change.spark, change.table).where(_key_condition(source_keys, keys))
    read = plan_table_read(change, rows)
    assert read is not None, "a condition on columns reads the table once"
    return locate_rows(change.spark, read).transform(lambda rows: rows.join(source_keys, list(keys), "left_semi"))


def _key_condition(source: DataFrame, keys: Sequence[str]) -> SparkColumn:
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


def _check_merge(request: MergeRequest, table: Table) -> None:
    schema = current_plan(table.catalog).schema
    for name in request.on:
        find_column("--on", unquote_name(name), schema)
    has_more = request.delete_when is not None
    columns = check_source(request.source, schema, "the table", more=has_more)
    if request.delete_when is not None and columns is not None:
        check_condition("--delete-when", request.delete_when, columns)


def _read_merge_source(change: TableChange, request: MergeRequest) -> tuple[DataFrame, DataFrame]:
    """Return the source's rows, and those that are to be in the table afterwards."""
    source = open_source(change.spark, request.source)
    source_partitions(source, request.source, None)  # checks that Spark reads whole files
    names = change.plan.schema.names
    if request.delete_when is None:
        rows = conform_columns(source, change.plan.schema, "the table")
        return rows, rows
    with translate_expression_errors("--delete-when", request.delete_when):
        _ = source.where(F.expr(f"({request.delete_when})")).schema
    # The condition may use columns that the table lacks, such as the kind of change.
    columns = [name for name in source.columns if change.plan.schema.get(name) is not None]
    rows = conform_columns(source.select(*map(quote_name, columns)), change.plan.schema, "the table")
    upserts = source.where(~is_true(request.delete_when)).select(*map(quote_name, columns))
    return rows.select(*map(quote_name, names)), conform_columns(upserts, change.plan.schema, "the table")


def _check_keys(source: DataFrame, keys: list[str], source_name: str) -> None:
    with translate_spark_errors(repr(source_name)):
        columns = [F.col(quote_name(name)) for name in keys]
        if source.where(" OR ".join(f"{quote_name(name)} IS NULL" for name in keys)).limit(1).count():
            raise SourceError(
                f"{source_name!r} has rows with a NULL in {', '.join(keys)}, which match nothing; remove these rows"
            )
        duplicate = source.groupBy(*columns).count().where("count > 1").first()
    if duplicate is not None:
        key = ", ".join(f"{name}={duplicate[name]!r}" for name in keys)
        raise SourceError(f"{source_name!r} has {duplicate['count']} rows with {key}; keep the newest of each key")
