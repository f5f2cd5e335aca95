"""Open sources to append by Spark, and compact small entries by Spark (:mod:`layoutopt.loading.append`)."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import SparkSession

from layoutopt.catalog.table import Catalog
from layoutopt.events import Stages
from layoutopt.inspect.status import current_plan
from layoutopt.loading import append
from layoutopt.loading.load import LoadSource
from layoutopt.spark.changes.spark_change import newest_checked_plan, open_entries_door
from layoutopt.spark.core.sessions import AnySession, start_session
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
    door = open_entries_door(spark, path)
    return door.read(lambda open_rows: append.compact_small_entries(path, keys, open_rows, watch))


def open_to_append(spark: AnySession, source: str, catalog: Catalog, *, by_arrow: bool) -> LoadSource:
    """Open a source by Spark, to append it to a table; or for Spark's tasks, which read it ``by_arrow``."""
    plan = current_plan(catalog)
    if by_arrow and catalog.plans:
        return open_in_tasks(spark, source, plan, "the table")
    newest_checked_plan(start_session(spark), catalog)
    return open_by_session(spark, source, plan, "the table")
