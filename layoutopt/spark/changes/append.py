"""Append rows to the partitions of a table; retrying a batch adds it only once.

An append adds an entry with its own blocks, by the table's newest plan, and leaves the other entries unchanged. Then
small entries are compacted; see :mod:`layoutopt.maintenance.compaction`. `optimize` compacts all entries.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from pyspark.sql import SparkSession
from pyspark.sql.types import StringType

from layoutopt.catalog.commit import APPEND
from layoutopt.catalog.entries import content_of_entries
from layoutopt.catalog.partition_names import PartitionNames
from layoutopt.config.settings import AppendSettings
from layoutopt.errors import MissingPartitionError
from layoutopt.events import NO_EVENTS, EventLog, Progress, Stages, silent
from layoutopt.external.external_tables import pin_version
from layoutopt.external.snapshot import name_batch, parse_source_name
from layoutopt.local.append import AppendReport, append_batch
from layoutopt.maintenance.compaction import COMPACTION, find_small_entries, mark_replaced
from layoutopt.publish.publishing import publish_after
from layoutopt.spark.changes.affected_rows import open_for_change
from layoutopt.spark.changes.pipeline import NewRows, write_rows
from layoutopt.spark.core.source import conform_columns, open_source
from layoutopt.spark.loading.job import Basis
from layoutopt.spark.loading.load import load
from layoutopt.spark.loading.source_files import check_reachable, source_partitions
from layoutopt.spark.loading.verify import rows_of_entries
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
    change = open_for_change(spark, path)
    entries = find_small_entries(change.table.catalog.snapshot, keys)
    if not entries:
        return None
    live = [entry for entry in entries if entry.live_rows]
    counts = {key: sum(entry.live_rows for entry in live if entry.key == key) for key in {entry.key for entry in live}}
    new_rows = NewRows(rows_of_entries(spark, change.table, entries), content_of_entries(entries))
    values, marks = change.get_known_values(live), mark_replaced(entries)
    return write_rows(change, COMPACTION, values, new_rows, watch, counts=counts, marks=marks)


def append_rows(
    spark: SparkSession, settings: AppendSettings, say: Progress = silent, log: EventLog = NO_EVENTS
) -> AppendReport:
    """Append a source's rows in one commit, compact small entries in another, and publish if the settings ask for it.

    Raises:
        MissingPartitionError: the source has no rows.
        NotATableError: there is no table at the path.
        LayoutoptError: as :func:`layoutopt.spark.loading.load.load`, and of publishing.
    """
    with publish_after(settings.table_path, settings.publish, say, log):
        return _append(spark, settings, Stages(say, log))


def _append(spark: SparkSession, settings: AppendSettings, watch: Stages) -> AppendReport:
    with watch.stage("all", "looking at the source"):
        settings = settings.model_copy(update={"source": pin_version(settings.source)})
        change = open_for_change(spark, settings.table_path)
        plan, snapshot = change.plan, change.table.catalog.snapshot
        rows = conform_columns(open_source(spark, settings.source), plan.schema, "the table")
        by = plan.partition_by
        partitions = source_partitions(rows, settings.source, by)
        if not any(partition.rows for partition in partitions):
            raise MissingPartitionError(f"{settings.source!r} has no rows to append; append again once it has rows")
        if by is not None and isinstance(rows.schema[by].dataType, StringType):  # other types lose no row in Python
            check_reachable(rows, settings.source, by, partitions)
        batch = settings.batch_id or name_batch(partitions)
        names = PartitionNames.of(plan.schema, by, snapshot)
        basis = Basis(
            snapshot,
            repr(settings.source),
            values=None if by is None else tuple(partition.value for partition in partitions),
            whole=True,
            fingerprints={names.key(partition.value): partition.fingerprint for partition in partitions},
            rows={names.key(partition.value): partition.rows for partition in partitions},
            operation=APPEND,
            batch=batch,
            plain=parse_source_name(settings.source) is None,
        )
    write = partial(load, spark, rows, settings.table_path, plan, basis=basis, stages=watch)
    return append_batch(settings, batch, snapshot, write, partial(compact_small_entries, spark), watch)
