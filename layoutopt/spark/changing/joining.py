"""The rows of small entries joined: what appends left of a partition, in one entry beside what it was loaded with."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import SparkSession

from layoutopt.catalog.deletes import Marks
from layoutopt.catalog.snapshot import PartitionEntry, Snapshot
from layoutopt.errors import CommitConflictError
from layoutopt.evolve.joining import joined_from
from layoutopt.spark.changing.opened import open_to_change
from layoutopt.spark.core.stages import Stages
from layoutopt.spark.loading.job import Basis
from layoutopt.spark.loading.load import LoadReport, load
from layoutopt.spark.loading.same_rows import content_of_entries, rows_of_entries

JOIN = "join"
"""The operation of a snapshot in which entries were joined."""


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
    table, plan = open_to_change(spark, path)
    snapshot = table.catalog.snapshot
    entries = [entry for key in keys for entry in small_entries(snapshot, key)]
    if not entries:
        return None
    basis = Basis(
        snapshot,
        f"the table {path!r}",
        whole=True,
        content=content_of_entries(entries),
        operation=JOIN,
        marks=Marks({}, {}, replaced=frozenset(entry.name for entry in entries)),
    )
    try:
        return load(spark, rows_of_entries(spark, table, entries), path, plan, basis=basis, stages=watch)
    except CommitConflictError:
        return None


def small_entries(snapshot: Snapshot, key: str) -> tuple[PartitionEntry, ...]:
    """The entries of a partition that are to be joined."""
    entries = snapshot.by_key.get(key, ())
    first = joined_from([entry.live_rows for entry in entries])
    return () if first is None else entries[first:]
