"""Rows deleted and updated: few by vectors beside what is there, many by writing their partitions anew, no others.

Which partitions these are is asked of the table as any query is, so skipping makes it cheap; what they keep is read
whole where they are written anew. Statistics and union vectors are measured again from what is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, MapType, StructType

from layoutopt.catalog.checks import Content
from layoutopt.catalog.deletes import DELETE
from layoutopt.catalog.partition_names import PlainValue
from layoutopt.catalog.retention.vacuum import vacuum
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.config.changing import DeleteSettings, UpdateSettings
from layoutopt.errors import PublicationError, SettingError
from layoutopt.events import NO_EVENTS, EventLog, Progress, Stages, silent
from layoutopt.model.schema import schema_ddl
from layoutopt.model.types import quoted, type_sql, unquoted
from layoutopt.publish.publishing import published_after
from layoutopt.spark.changing.beside import put_beside
from layoutopt.spark.changing.concerned import (
    computed,
    holds,
    matching_rows,
    may_mark,
    measured,
    nothing,
    placed_rows,
    understood,
)
from layoutopt.spark.changing.found import FoundIn, Placed
from layoutopt.spark.changing.marking import deleted_share, mark_deleted
from layoutopt.spark.changing.opened import Place, open_to_change
from layoutopt.spark.changing.rewrite import ChangeReport, changed_content, rewrite
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.loading.same_rows import rows_of_entries

_NESTED: Final = (ArrayType, MapType, StructType)


def delete_by(
    spark: SparkSession, settings: DeleteSettings, say: Progress = silent, log: EventLog = NO_EVENTS
) -> ChangeReport:
    """Delete the rows that meet a condition; rows for which it is NULL stay.

    Where few rows of the partitions concerned are deleted then, vectors say which; else these are written anew. So they
    are for a hard delete, and where the table is published, since readers of other formats know no vectors.

    A hard delete also writes anew what has rows that were deleted before, and then gives up all older snapshots and
    removes their files, so that no copy of any deleted row is left. Who reads an older snapshot meanwhile fails, and
    who loads may have to try again.

    Raises:
        SettingError: the condition can't be understood.
        CommitConflictError: somebody else changed one of the partitions meanwhile.
        PublicationError: of a hard delete: an older snapshot is still published somewhere.
        LayoutoptError: as :func:`layoutopt.spark.loading.load.load`.
    """
    watch = Stages(say, log)
    with published_after(settings.table_path, settings.publish, say, log):
        report = _delete(spark, settings, watch)
    if not settings.hard:
        return report
    with watch.stage("vacuum", "removing older snapshots"):
        removed = vacuum(TableFiles(settings.table_path), 1, timedelta(0))
    if removed.published:
        kept = ", ".join(map(str, removed.published))
        raise PublicationError(
            f"the rows are deleted, but copies are left: snapshots {kept} are published as tables of another format; "
            "publish the newest one there, or `publish --forget`, then run the same command again"
        )
    return replace(report, vacuum=removed)


def _delete(spark: SparkSession, settings: DeleteSettings, watch: Stages) -> ChangeReport:
    with watch.stage("all", "looking for rows to delete"):
        place = Place(spark, settings.table_path, *open_to_change(spark, settings.table_path))
        _, found = _found(place, settings.where) if may_mark(place, settings) and not settings.hard else (None, None)
    if found is not None and not found:
        return ChangeReport(settings.table_path)
    if found is not None and deleted_share(place, found) <= settings.rewrite_share:
        done = mark_deleted(place, DELETE, found, watch)
        return ChangeReport(settings.table_path, deleted=sum(one.rows for one in found), marked=done)
    return _delete_by_rewriting(place, settings, watch)


def _delete_by_rewriting(place: Place, settings: DeleteSettings, watch: Stages) -> ChangeReport:
    spark = place.spark
    with watch.stage("all", "looking for rows to delete"):
        _, values, gone = _concerned(place, settings.where)
        if settings.hard:  # what was deleted before may be what is to leave no copy now
            marked = {entry.key for entry in place.table.catalog.partitions if entry.deletes is not None}
            values = tuple(dict.fromkeys((*values, *place.values_of(marked))))
    if not values:
        return ChangeReport(settings.table_path)
    entries = place.entries(values)
    rows = rows_of_entries(spark, place.table, entries).where(~holds(settings.where))
    content = changed_content(entries, gone, nothing(gone))
    done = rewrite(place, "delete", values, rows, content, watch)
    return ChangeReport(settings.table_path, deleted=gone.rows, load=done)


def update_by(
    spark: SparkSession, settings: UpdateSettings, say: Progress = silent, log: EventLog = NO_EVENTS
) -> ChangeReport:
    """Give columns of the rows that meet a condition new values, each computed of the row as it was.

    Raises:
        SettingError: the condition or an assignment can't be understood, or the partition column is assigned.
        CommitConflictError: somebody else changed one of the partitions meanwhile.
        LayoutoptError: as :func:`layoutopt.spark.loading.load.load`.
    """
    with published_after(settings.table_path, settings.publish, say, log):
        return _update(spark, settings, Stages(say, log))


def _update(spark: SparkSession, settings: UpdateSettings, watch: Stages) -> ChangeReport:
    with watch.stage("all", "looking for rows to update"):
        place = Place(spark, settings.table_path, *open_to_change(spark, settings.table_path))
        assigned = _assignments(place, settings.assignments)
        placed, found = _found(place, settings.where) if may_mark(place, settings) else (None, None)
    if found is not None and not found:
        return ChangeReport(settings.table_path)
    if placed is None or found is None or deleted_share(place, found) > settings.rewrite_share:
        return _update_by_rewriting(place, settings, assigned, watch)
    with (
        watch.stage("all", "computing the new rows"),
        understood("--set", ", ".join(settings.assignments)),
        translate_spark_errors(repr(settings.table_path)),
    ):  # kept, since an expression may have another value each time
        come = _assigned(placed.rows, assigned).localCheckpoint()
    kept = [name for name in place.plan.schema.names if name not in assigned]
    content = Content(sum(one.rows for one in found), {name: sum(one.sums[name] for one in found) for name in kept})
    load, marked = put_beside(place, "update", found, come, watch, content)
    return ChangeReport(settings.table_path, updated=content.rows, load=load, marked=marked)


def _update_by_rewriting(
    place: Place, settings: UpdateSettings, assigned: Mapping[str, SparkColumn], watch: Stages
) -> ChangeReport:
    with watch.stage("all", "looking for rows to update"):
        concerned, values, gone = _concerned(place, settings.where)
    if not gone.rows:
        return ChangeReport(settings.table_path)
    entries = place.entries(values)
    all_rows = rows_of_entries(place.spark, place.table, entries)
    with understood("--set", ", ".join(settings.assignments)):
        come = measured(_assigned(concerned, assigned), settings.table_path)
    rows = _assigned(all_rows, assigned, holds(settings.where))
    done = rewrite(place, "update", values, rows, changed_content(entries, gone, come), watch)
    return ChangeReport(settings.table_path, updated=gone.rows, load=done)


def _found(place: Place, where: str) -> tuple[Placed | None, list[FoundIn] | None]:
    """The rows that meet a condition and where they are; None for both where one scan can't tell their places."""
    placed = placed_rows(place, where)
    with computed("--where", where):
        return placed, None if placed is None else placed.found()


def _concerned(place: Place, where: str) -> tuple[DataFrame, tuple[PlainValue, ...], Content]:
    """The rows that meet a condition, the partitions' values that they have, and what they hold."""
    rows = matching_rows(place, where)
    with computed("--where", where):
        return rows, place.values_in(rows), measured(rows, place.path)


def _assignments(place: Place, texts: tuple[str, ...]) -> dict[str, SparkColumn]:
    """By column the new value, of the column's type."""
    rows = place.spark.createDataFrame([], schema_ddl(place.table.schema.columns))
    found: dict[str, SparkColumn] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise SettingError(f"--set {text!r} is no assignment; write it as 'column = expression'")
        column = place.table.schema.find(unquoted(name.strip()))
        if column.name == place.plan.partition_by:
            raise SettingError(
                f"--set can't assign {column.name!r}, by which the table is partitioned; use `layoutopt merge`, which "
                "moves rows between partitions"
            )
        if column.name in found:
            raise SettingError(f"--set assigns {column.name!r} twice; leave one of them out")
        with understood("--set", text):
            given = F.expr(value)  # without brackets: several values in them would be a struct of all
            kind, *_ = rows.select(given).schema.fields  # of several the cast is refused
            found[column.name] = given.cast(type_sql(column.type))
            _ = rows.select(found[column.name]).schema
        if isinstance(kind.dataType, _NESTED) and "<" not in column.type:
            raise SettingError(
                f"--set {text!r} gives {column.name!r}, which is {column.type}, a value of type "
                f"{kind.dataType.simpleString()}; cast it as you mean it"
            )
    return found


def _assigned(rows: DataFrame, assigned: Mapping[str, SparkColumn], where: SparkColumn | None = None) -> DataFrame:
    """The rows with the columns assigned, in those rows alone for which ``where`` holds."""
    columns = []
    for name in rows.columns:
        old = F.col(quoted(name))
        new = assigned.get(name, old)
        columns.append((new if where is None else F.when(where, new).otherwise(old)).alias(name))
    return rows.select(*columns)
