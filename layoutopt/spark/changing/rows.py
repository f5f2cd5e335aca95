"""Rows deleted, updated and merged by rewriting the partitions that have any of them, and no others.

Which partitions these are is asked of the table as any query is, so skipping makes it cheap; what they keep is read
whole. Statistics and union vectors are measured again from what is written. A delete of few rows writes vectors
instead, beside what is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from layoutopt.catalog.checks import Content
from layoutopt.catalog.retention.publications import publications
from layoutopt.catalog.retention.vacuum import vacuum
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.config.changing import DeleteSettings, MergeSettings, UpdateSettings
from layoutopt.errors import PublicationError, SettingError, SourceError
from layoutopt.events import NO_EVENTS, EventLog
from layoutopt.model.types import quoted
from layoutopt.publish.publishing import published_after
from layoutopt.scan.table import Scan
from layoutopt.spark.changing.found import FoundIn, find_rows
from layoutopt.spark.changing.marking import mark_deleted
from layoutopt.spark.changing.opened import open_to_change
from layoutopt.spark.changing.rewrite import ChangeReport, Place, changed_content, rewrite
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.source import conformed, measure_content, open_source
from layoutopt.spark.core.stages import Progress, Stages, silent
from layoutopt.spark.loading.same_rows import rows_of_entries
from layoutopt.spark.session.read import reads_in_session, with_functions


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
        found = _found(place, settings)
    if found is not None and not found:
        return ChangeReport(settings.table_path)
    if found is not None and _deleted_share(found) <= settings.rewrite_share:
        done = mark_deleted(spark, place.table.catalog, found, watch)
        return ChangeReport(settings.table_path, deleted=sum(one.rows for one in found), marked=done)
    return _delete_by_rewriting(place, settings, watch)


def _found(place: Place, settings: DeleteSettings) -> list[FoundIn] | None:
    """The rows to delete, by their places; None where partitions have to be written anew whatever these are."""
    if settings.hard or settings.publish or not settings.rewrite_share or publications(place.table.catalog.files):
        return None
    scan = _scan(place, settings.where)
    reads = reads_in_session(place.spark, replace(scan, table=with_functions(place.spark, scan.table)))
    return find_rows(place.spark, reads[0], _holds(settings.where)) if len(reads) == 1 else None


def _deleted_share(found: Sequence[FoundIn]) -> float:
    """Of the rows of the partitions concerned, as they were written, the share that is deleted then."""
    entries = {(one.entry.key, one.entry.load_id): one.entry for one in found}.values()
    gone = sum(one.rows for one in found) + sum(entry.rows - entry.live_rows for entry in entries)
    return gone / sum(entry.rows for entry in entries)


def _delete_by_rewriting(place: Place, settings: DeleteSettings, watch: Stages) -> ChangeReport:
    spark = place.spark
    with watch.stage("all", "looking for rows to delete"):
        matching = _matching(place, settings.where)
        values, gone = place.values_in(matching), _measured(matching, settings.table_path)
        if settings.hard:  # what was deleted before may be what is to leave no copy now
            marked = {entry.key for entry in place.table.catalog.partitions if entry.deletes is not None}
            values = tuple(dict.fromkeys((*values, *place.values_of(marked))))
    if not values:
        return ChangeReport(settings.table_path)
    entries = place.entries(values)
    rows = rows_of_entries(spark, place.table, entries).where(~_holds(settings.where))
    content = changed_content(entries, gone, _nothing(gone))
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
        matching = _matching(place, settings.where)
        values, gone = place.values_in(matching), _measured(matching, settings.table_path)
    if not gone.rows:
        return ChangeReport(settings.table_path)
    entries = place.entries(values)
    all_rows = rows_of_entries(spark, place.table, entries)
    with _understood("--set", ", ".join(settings.assignments)):
        come = _measured(_assigned(matching, assigned), settings.table_path)
    rows = _assigned(all_rows, assigned, _holds(settings.where))
    done = rewrite(place, "update", values, rows, changed_content(entries, gone, come), watch)
    return ChangeReport(settings.table_path, updated=gone.rows, load=done)


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
        keys = [place.plan.schema.find(name).name for name in settings.on]
        source, kept = _source_of(place, settings)
        _check_keys(source, keys, settings.source)
        table = rows_of_entries(spark, place.table, place.table.catalog.partitions)
        matched = table.join(source.select(*map(quoted, keys)), keys, "left_semi").select(*table.columns)
        # Counted twice and written: joins don't give rows in the same order each time, so they are kept.
        matched, come = matched.localCheckpoint(), kept.localCheckpoint()
        gone, new = _measured(matched, settings.table_path), _measured(come, settings.source)
        values = tuple(dict.fromkeys((*place.values_in(matched), *place.values_in(come))))
    if not gone.rows and not new.rows:
        return ChangeReport(settings.table_path)
    entries = place.entries(values)
    others = rows_of_entries(spark, place.table, entries).join(source.select(*map(quoted, keys)), keys, "left_anti")
    rows = others.select(*map(quoted, place.plan.schema.names)).unionByName(come).localCheckpoint()
    updated = come.join(matched.select(*map(quoted, keys)), keys, "left_semi").count()
    done = rewrite(place, "merge", values, rows, changed_content(entries, gone, new), watch)
    deleted, inserted = gone.rows - updated, new.rows - updated
    return ChangeReport(settings.table_path, deleted=deleted, updated=updated, inserted=inserted, load=done)


def _matching(place: Place, where: str) -> DataFrame:
    """The table's rows that meet a condition, read as a query reads them."""
    return _scan(place, where).to_spark(place.spark).select(*map(quoted, place.table.schema.names))


def _scan(place: Place, where: str) -> Scan:
    """All columns of the rows that meet a condition.

    Raises:
        SettingError: Spark can't understand it.
    """
    empty = place.spark.createDataFrame([], _schema_text(place))
    with _understood("--where", where):
        _ = empty.where(F.expr(f"({where})")).schema
    return place.table.scan(columns=place.table.schema.names, where=f"({where})")


def _schema_text(place: Place) -> str:
    return ", ".join(f"{quoted(column.name)} {column.type}" for column in place.table.schema.columns)


@contextmanager
def _understood(flag: str, text: str) -> Iterator[None]:
    """Turn what Spark says of a text that it can't read, or can't compute for a row, into a sentence.

    Raises:
        SettingError: it can't.
    """
    try:
        yield
    except PySparkException as error:
        said = str(error).strip().splitlines()[0]
        raise SettingError(f"{flag} {text!r} is of no use here: {said}") from error


def _holds(condition: str) -> SparkColumn:
    """Whether a condition is TRUE; never NULL."""
    return F.coalesce(F.expr(f"({condition})"), F.lit(False))


def _assignments(place: Place, texts: tuple[str, ...]) -> dict[str, SparkColumn]:
    """By column the new value, of the column's type."""
    rows = place.spark.createDataFrame([], _schema_text(place))
    found: dict[str, SparkColumn] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise SettingError(f"--set {text!r} is no assignment; write it as 'column = expression'")
        column = place.table.schema.find(name.strip().strip("`"))
        if column.name == place.plan.partition_by:
            raise SettingError(
                f"--set can't assign {column.name!r}, by which the table is partitioned; use `layoutopt merge`, which "
                "moves rows between partitions"
            )
        if column.name in found:
            raise SettingError(f"--set assigns {column.name!r} twice; leave one of them out")
        found[column.name] = F.expr(f"({value})").cast(column.type)
        with _understood("--set", text):
            _ = rows.select(found[column.name]).schema
    return found


def _assigned(rows: DataFrame, assigned: Mapping[str, SparkColumn], where: SparkColumn | None = None) -> DataFrame:
    """The rows with the columns assigned, in those rows alone for which ``where`` holds."""
    columns = []
    for name in rows.columns:
        old = F.col(quoted(name))
        new = assigned.get(name, old)
        columns.append((new if where is None else F.when(where, new).otherwise(old)).alias(name))
    return rows.select(*columns)


def _source_of(place: Place, settings: MergeSettings) -> tuple[DataFrame, DataFrame]:
    """The rows of a merge's source, and those of them that are to be in the table afterwards."""
    found = open_source(place.spark, settings.source)
    names = place.plan.schema.names
    if settings.delete_when is None:
        rows = conformed(found, place.plan.schema, "the table")
        return rows, rows
    with _understood("--delete-when", settings.delete_when):
        _ = found.where(F.expr(f"({settings.delete_when})")).schema
    # The condition may ask a column that the table has not, such as the kind of change.
    wanted = [name for name in found.columns if place.plan.schema.get(name) is not None]
    rows = conformed(found.select(*map(quoted, wanted)), place.plan.schema, "the table")
    stays = found.where(~_holds(settings.delete_when)).select(*map(quoted, wanted))
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


def _measured(rows: DataFrame, named: str) -> Content:
    return measure_content(rows, repr(named))


def _nothing(like: Content) -> Content:
    return Content(0, dict.fromkeys(like.sums, 0))
