"""Append rows to the partitions of a table; retrying a batch adds it only once.

An append adds an entry with its own blocks, by the table's newest plan, and leaves the other entries unchanged. Then
small entries are compacted; see :mod:`layoutopt.maintenance.compaction`. `optimize` compacts all entries.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.table import Catalog
from layoutopt.events import NO_EVENTS, EventLog, Progress, Stages, silent
from layoutopt.external.source_check import check_source
from layoutopt.inspect.status import current_plan
from layoutopt.loading import append
from layoutopt.loading.append import AppendReport, open_entries
from layoutopt.loading.partition_rows import PartitionRows
from layoutopt.model.layout import Plan
from layoutopt.model.requests import AppendRequest
from layoutopt.scan.table import Table
from layoutopt.spark.changes.spark_change import SparkChange, newest_checked_plan
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.sessions import AnySession, start_session
from layoutopt.spark.loading.job import SparkRows
from layoutopt.spark.loading.load import SparkSource
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

    def open_rows(table: Table, plan: Plan, entries: Sequence[PartitionEntry]) -> SparkRows:
        change = SparkChange(path, table, newest_checked_plan(spark, table.catalog), spark)
        opened = change.open_rows(change.read(entries), repr(path))

        def open_faster() -> PartitionRows:
            return replace(open_entries(table, plan, entries, change.executor), wait=opened.wait_for_tasks)

        return replace(opened, open_faster=open_faster)

    with translate_spark_errors(repr(path)):
        return append.compact_small_entries(path, keys, open_rows, watch)


def append_rows(
    spark: AnySession, request: AppendRequest, say: Progress = silent, log: EventLog = NO_EVENTS
) -> AppendReport:
    """Append by Spark as :func:`layoutopt.loading.append.append_rows` does."""

    def open_source(source: str, catalog: Catalog) -> SparkSource:
        if callable(spark) and catalog.plans:
            check_source(source, current_plan(catalog).schema, "the table")
        session = start_session(spark)
        return SparkSource(session, source, newest_checked_plan(session, catalog), "the table")

    def compact(path: str, keys: Collection[str], watch: Stages) -> LoadReport | None:
        return compact_small_entries(start_session(spark), path, keys, watch)

    return append.append_rows(open_source, request, compact, say, log)
