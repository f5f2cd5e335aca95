"""The rows of small entries joined: what appends left of a partition, in one entry beside what it was loaded with."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import SparkSession

from layoutopt.catalog.entries import content_of_entries
from layoutopt.errors import CommitConflictError
from layoutopt.events import Stages
from layoutopt.evolve.joining import JOIN, has_small_entries, in_place_of, small_entries
from layoutopt.spark.changing.opened import Place, open_to_change
from layoutopt.spark.loading.job import Basis
from layoutopt.spark.loading.load import load
from layoutopt.spark.loading.same_rows import rows_of_entries
from layoutopt.writer.load_report import LoadReport


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
