"""Merge: a feed of changes, whose rows take the place of those with the same keys, come to them, or delete them.

Rows that go are found by their keys, of what skipping leaves under a condition on these. Few are marked by vectors, and
the feed's rows stand beside; else the partitions that have any of either are written anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from layoutopt.config.changing import MergeSettings
from layoutopt.errors import SourceError
from layoutopt.events import NO_EVENTS, EventLog, Progress, Stages, silent
from layoutopt.model.types import quoted, unquoted
from layoutopt.publish.publishing import published_after
from layoutopt.spark.changing.beside import put_beside
from layoutopt.spark.changing.concerned import holds, may_mark, measured, read_of, understood
from layoutopt.spark.changing.found import Placed, rows_with_places
from layoutopt.spark.changing.marking import deleted_share, mark_deleted
from layoutopt.spark.changing.opened import Place, open_to_change
from layoutopt.spark.changing.rewrite import ChangeReport, changed_content, rewrite
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.source import conformed, open_source
from layoutopt.spark.loading.same_rows import rows_of_entries
from layoutopt.spark.loading.source_files import source_partitions
from layoutopt.spark.session.enabling import marked_rows

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
