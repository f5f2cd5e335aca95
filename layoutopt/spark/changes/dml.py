"""Rows deleted and updated: few by vectors beside what is there, many by writing their partitions anew, no others.

Which partitions these are is asked of the table as any query is, so skipping makes it cheap; what they keep is read
whole where they are written anew. Statistics and union vectors are measured again from what is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import reduce
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, MapType, StructType

from layoutopt.catalog.checks import Content
from layoutopt.catalog.deletion_vectors import DELETE
from layoutopt.catalog.partition_names import PlainValue
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.vacuum import vacuum
from layoutopt.config.settings import DeleteSettings, MergeSettings, UpdateSettings
from layoutopt.errors import PublicationError, SettingError, SourceError
from layoutopt.events import NO_EVENTS, EventLog, Progress, Stages, silent
from layoutopt.model.schema import schema_ddl
from layoutopt.model.types import quoted, type_sql, unquoted
from layoutopt.publish.publishing import published_after
from layoutopt.spark.changes.affected_rows import (
    FoundIn,
    Place,
    Placed,
    computed,
    holds,
    matching_rows,
    may_mark,
    measured,
    nothing,
    open_to_change,
    placed_rows,
    read_of,
    rows_with_places,
    understood,
)
from layoutopt.spark.changes.deletion_vectors import deleted_share, mark_deleted, put_beside
from layoutopt.spark.changes.rewrite import ChangeReport, changed_content, rewrite
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.source import conformed, open_source
from layoutopt.spark.loading.source_files import source_partitions
from layoutopt.spark.loading.verify import rows_of_entries
from layoutopt.spark.session.enabling import marked_rows

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


# ----------------------------------------------------------------------------------------------------
# Merge: a feed of changes, whose rows take the place of those with the same keys, come to them, or delete them.
#
# Rows that go are found by their keys, of what skipping leaves under a condition on these. Few are marked by vectors,
# and
# the feed's rows stand beside; else the partitions that have any of either are written anew.

_MOST_VALUES: Final = 1_000
"""Up to so many values of a key are looked for by name; more between the least and the greatest."""
_SURE_TYPES: Final = frozenset({"tinyint", "smallint", "int", "bigint", "date", "string"})
"""Keys whose values a literal says exactly, whatever the session's settings."""


def merge_by(
    spark: SparkSession, settings: MergeSettings, say: Progress = silent, log: EventLog = NO_EVENTS
) -> ChangeReport:
    """Put a source's rows in the place of those with the same key, add those with a new one, delete those marked so.

    Raises:
        SettingError: a key column or the condition can't be understood.
        SourceError: the source has a key twice, or a NULL in one.
        CommitConflictError: somebody else changed one of the partitions meanwhile.
        LayoutoptError: as :func:`layoutopt.spark.loading.load.load`.
    """
    with published_after(settings.table_path, settings.publish, say, log):
        return _merge(spark, settings, Stages(say, log))


def _merge(spark: SparkSession, settings: MergeSettings, watch: Stages) -> ChangeReport:
    with watch.stage("all", "comparing keys"):
        place = Place(spark, settings.table_path, *open_to_change(spark, settings.table_path))
        keys = [place.plan.schema.find(unquoted(name)).name for name in settings.on]
        source, kept = _source_of(place, settings)
        _check_keys(source, keys, settings.source)
        # Counted twice and written: joins don't give rows in the same order each time, so they are kept.
        matched, come = _matched(place, source, keys).kept(), kept.localCheckpoint()
        gone, new = measured(matched.rows, settings.table_path), measured(come, settings.source)
        updated = come.join(matched.rows.select(*map(quoted, keys)), keys, "left_semi").count()
        found = matched.found() if may_mark(place, settings) else None
    report = ChangeReport(settings.table_path, gone.rows - updated, updated, new.rows - updated)
    if not gone.rows and not new.rows:
        return report
    if found is None or deleted_share(place, found) > settings.rewrite_share:
        values = tuple(dict.fromkeys((*place.values_in(matched.rows), *place.values_in(come))))
        entries = place.entries(values)
        others = rows_of_entries(spark, place.table, entries).join(source.select(*map(quoted, keys)), keys, "left_anti")
        rows = others.select(*map(quoted, place.plan.schema.names)).unionByName(come).localCheckpoint()
        done = rewrite(place, "merge", values, rows, changed_content(entries, gone, new), watch)
        return replace(report, load=done)
    if not new.rows:
        return replace(report, marked=mark_deleted(place, "merge", found, watch))
    load, marked = put_beside(place, "merge", found, come, watch, new, alone=True)
    return replace(report, load=load, marked=marked)


def _matched(place: Place, source: DataFrame, keys: Sequence[str]) -> Placed:
    """The table's rows that have a key of the source."""
    read = read_of(place, marked_rows(place.spark, place.table).where(_among(source, keys)))
    assert read is not None, "a condition on columns reads the table once"
    of_keys = source.select(*map(quoted, keys))
    return rows_with_places(place.spark, read).narrowed(lambda rows: rows.join(of_keys, list(keys), "left_semi"))


def _among(source: DataFrame, keys: Sequence[str]) -> SparkColumn:
    """A condition that holds for every row that has a key of the source, such as skips most others."""
    sure = [field.name for field in source.schema.fields if field.name in keys]
    sure = [name for name in sure if source.schema[name].dataType.simpleString() in _SURE_TYPES]
    return reduce(SparkColumn.__and__, (_among_values(source, name) for name in sure), F.lit(True))


def _among_values(source: DataFrame, name: str) -> SparkColumn:
    column = F.col(quoted(name))
    with translate_spark_errors("the source"):
        some = [row[0] for row in source.select(column).distinct().limit(_MOST_VALUES + 1).collect()]
        if len(some) > _MOST_VALUES:
            least, greatest = source.agg(F.min(column), F.max(column)).collect()[0]
            return column.between(least, greatest)
    return column.isin(sorted(some)) if some else F.lit(False)


def _source_of(place: Place, settings: MergeSettings) -> tuple[DataFrame, DataFrame]:
    """The rows of a merge's source, and those of them that are to be in the table afterwards."""
    found = open_source(place.spark, settings.source)
    source_partitions(found, settings.source, None)  # proves that Spark reads whole files
    names = place.plan.schema.names
    if settings.delete_when is None:
        rows = conformed(found, place.plan.schema, "the table")
        return rows, rows
    with understood("--delete-when", settings.delete_when):
        _ = found.where(F.expr(f"({settings.delete_when})")).schema
    # The condition may ask a column that the table has not, such as the kind of change.
    wanted = [name for name in found.columns if place.plan.schema.get(name) is not None]
    rows = conformed(found.select(*map(quoted, wanted)), place.plan.schema, "the table")
    stays = found.where(~holds(settings.delete_when)).select(*map(quoted, wanted))
    return rows.select(*map(quoted, names)), conformed(stays, place.plan.schema, "the table")


def _check_keys(source: DataFrame, keys: list[str], named: str) -> None:
    """Refuse a source whose keys don't tell its rows apart.

    Raises:
        SourceError: it has a key twice, or a NULL in one.
    """
    with translate_spark_errors(repr(named)):
        columns = [F.col(quoted(name)) for name in keys]
        if source.where(" OR ".join(f"{quoted(name)} IS NULL" for name in keys)).limit(1).count():
            raise SourceError(
                f"{named!r} has rows with a NULL in {', '.join(keys)}, which match nothing; leave them out"
            )
        twice = source.groupBy(*columns).count().where("count > 1").first()
    if twice is not None:
        said = ", ".join(f"{name}={twice[name]!r}" for name in keys)
        raise SourceError(f"{named!r} has {twice['count']} rows with {said}; keep the newest of each key")
