"""Append rows to the partitions of a table; retrying a batch adds it only once.

An append adds an entry with its own blocks, by the table's newest plan, and leaves the other entries unchanged. Then
small entries are compacted; see :mod:`layoutopt.maintenance.compaction`. `optimize` compacts all entries.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from pyspark.sql import SparkSession

from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.table import Catalog
from layoutopt.events import NO_EVENTS, EventLog, Progress, Stages, silent
from layoutopt.external.source_check import check_source
from layoutopt.inspect.status import current_plan
from layoutopt.loading import append
from layoutopt.loading.append import AppendReport, OpenEntries
from layoutopt.loading.load import LoadSource
from layoutopt.model.layout import Plan
from layoutopt.model.requests import AppendRequest
from layoutopt.scan.table import Table
from layoutopt.sources.door import Door
from layoutopt.sources.source import Source
from layoutopt.spark.changes.spark_change import SparkChange, newest_checked_plan
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.sessions import AnySession, start_session
from layoutopt.spark.core.workers import SparkTasks
from layoutopt.spark.loading.load import open_by_session, open_in_tasks
from layoutopt.writer.task_result import LoadReport


def compact_small_entries(spark: SparkSession, path: str, keys: Collection[str], watch: Stages) -> LoadReport | None:
    """Compact small entries of some partitions in one commit, by the table's newest plan.

    Returns:
        The commit; None if there is nothing to compact.

    Raises:
        ContentMismatchError: the written rows differ from the entries' content.
        CommitConflictError: another commit changed one of the entries.
        LayoutoptError: as :func:`layoutopt.spark.loading.load.load`.
    """

    def by_arrow(table: Table, plan: Plan, entries: Sequence[PartitionEntry]) -> Source:
        return append.open_entries(table, plan, entries, SparkTasks(spark))

    def by_spark(table: Table, plan: Plan, entries: Sequence[PartitionEntry]) -> Source:
        change = SparkChange(path, table, newest_checked_plan(spark, table.catalog), spark)
        return change.open_rows(change.read(entries), repr(path))

    door = Door[OpenEntries](lambda _: by_arrow, lambda _: by_spark, errors=partial(translate_spark_errors, repr(path)))
    return door.read(lambda open_rows: append.compact_small_entries(path, keys, open_rows, watch))


def append_rows(
    spark: AnySession, request: AppendRequest, say: Progress = silent, log: EventLog = NO_EVENTS
) -> AppendReport:
    """Append by Spark as :func:`layoutopt.loading.append.append_rows` does."""

    def open_door(source: str, catalog: Catalog) -> Door[LoadSource]:
        openers = [partial(open_to_append, spark, source, catalog, by_arrow=by_arrow) for by_arrow in (True, False)]
        return Door(*(lambda _, opener=opener: opener() for opener in openers), say=say, log=log)

    def compact(path: str, keys: Collection[str], watch: Stages) -> LoadReport | None:
        return compact_small_entries(start_session(spark), path, keys, watch)

    return append.append_rows(open_door, request, compact, say, log)


def open_to_append(spark: AnySession, source: str, catalog: Catalog, *, by_arrow: bool) -> LoadSource:
    """Open a source by Spark, to append it to a table; or for Spark's tasks, which read it ``by_arrow``."""
    if callable(spark) and catalog.plans:
        check_source(source, current_plan(catalog).schema, "the table")
    plan = current_plan(catalog)
    if by_arrow and catalog.plans:
        return open_in_tasks(spark, source, plan, "the table")
    newest_checked_plan(start_session(spark), catalog)
    return open_by_session(spark, source, plan, "the table")
