"""Append: late rows come to the partitions that they belong to, each batch once however often it is retried.

What is there is not touched: a partition gets one more entry in the snapshot, with blocks of its own by the table's
newest plan. Then what appends left is joined, once several times as many rows have come since; `optimize` joins all.
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
from layoutopt.errors import AlreadyLoadedError, CommitConflictError, MissingPartitionError
from layoutopt.events import NO_EVENTS, EventLog, Progress, Stages, silent
from layoutopt.local.append import AppendReport, joined_after
from layoutopt.maintenance.compaction import JOIN, has_small_entries, in_place_of, small_entries
from layoutopt.publish.publishing import published_after
from layoutopt.sources.external_tables import pinned
from layoutopt.sources.snapshot import batch_of, source_name
from layoutopt.spark.changes.affected_rows import Place, open_to_change
from layoutopt.spark.core.source import conformed, open_source
from layoutopt.spark.loading.job import Basis
from layoutopt.spark.loading.load import load
from layoutopt.spark.loading.source_files import check_reachable, source_partitions
from layoutopt.spark.loading.verify import rows_of_entries
from layoutopt.writer.task_result import LoadReport

# ----------------------------------------------------------------------------------------------------
# The rows of small entries joined: what appends left of a partition, in one entry beside what it was loaded with.


def join_small(spark: SparkSession, path: str, keys: Collection[str], watch: Stages) -> LoadReport | None:
    """Join small entries of some partitions, in one commit, by the table's newest plan.

    Args:
        spark: the session.
        path: of the table.
        keys: of the partitions.
        watch: times the stages.

    Returns:
        The commit; None where none is to be joined, or somebody else changed one meanwhile: theirs counts.

    Raises:
        ContentMismatchError: what was written is not what the entries have.
        LayoutoptError: as :func:`layoutopt.spark.loading.load.load`.
    """
    if not has_small_entries(path, keys):
        return None
    table, plan = open_to_change(spark, path)
    snapshot = table.catalog.snapshot
    entries = small_entries(snapshot, keys)
    if not entries:
        return None
    live = [entry for entry in entries if entry.live_rows]
    rows = {key: sum(entry.live_rows for entry in live if entry.key == key) for key in {entry.key for entry in live}}
    basis = Basis(
        snapshot,
        f"the table {path!r}",
        values=None if plan.partition_by is None else Place(spark, path, table, plan).known_values(live),
        whole=True,
        rows=rows,
        content=content_of_entries(entries),
        operation=JOIN,
        marks=in_place_of(entries),
    )
    try:
        return load(spark, rows_of_entries(spark, table, entries), path, plan, basis=basis, stages=watch)
    except CommitConflictError:
        return None


def append_by(
    spark: SparkSession, settings: AppendSettings, say: Progress = silent, log: EventLog = NO_EVENTS
) -> AppendReport:
    """Add a source's rows to a table, in one commit, join small entries in another, and publish as the settings ask.

    Args:
        spark: the session.
        settings: of the verb.
        say: called with a short sentence as each stage begins.
        log: gets an event for each stage.

    Raises:
        MissingPartitionError: the source has no rows.
        NotATableError: there is no table to append to.
        LayoutoptError: as :func:`layoutopt.spark.loading.load.load`, and of publishing.
    """
    with published_after(settings.table_path, settings.publish, say, log):
        return _append(spark, settings, Stages(say, log))


def _append(spark: SparkSession, settings: AppendSettings, watch: Stages) -> AppendReport:
    with watch.stage("all", "looking at the source"):
        settings = settings.model_copy(update={"source": pinned(settings.source)})
        table, plan = open_to_change(spark, settings.table_path)
        rows = conformed(open_source(spark, settings.source), plan.schema, "the table")
        by = plan.partition_by
        partitions = source_partitions(rows, settings.source, by)
        if not any(partition.rows for partition in partitions):
            raise MissingPartitionError(f"{settings.source!r} has no rows to append; append when they have come")
        if by is not None and isinstance(rows.schema[by].dataType, StringType):  # others lose no row in Python
            check_reachable(rows, settings.source, by, partitions)
        snapshot = table.catalog.snapshot
        batch = settings.batch_id or batch_of(partitions)
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
            plain=source_name(settings.source) is None,
        )
    if batch in snapshot.batches:
        return AppendReport(settings.table_path, batch, None)
    try:
        report = load(spark, rows, settings.table_path, plan, basis=basis, stages=watch)
    except AlreadyLoadedError:  # by another process meanwhile, that was taken for dead
        return AppendReport(settings.table_path, batch, None)
    done = AppendReport(settings.table_path, batch, report)
    return done if settings.keep_apart else joined_after(done, partial(join_small, spark), watch)
