"""Rewrite partitions from the table's own rows, and check their content before the commit.

Column checksums are sums over rows, so the content afterwards is known before the write: the catalog's sums, minus the
removed rows, plus the added rows. The load fails if the written rows differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from pyspark.sql import DataFrame

from layoutopt.catalog.entries import content_of_entries
from layoutopt.catalog.load_check import Content
from layoutopt.catalog.partition_names import PlainValue
from layoutopt.catalog.snapshot import PartitionEntry
from layoutopt.catalog.vacuum import VacuumReport
from layoutopt.events import Stages
from layoutopt.spark.changes.affected_rows import TableChange
from layoutopt.spark.changes.deletion_vectors import MarkReport
from layoutopt.spark.loading.job import Basis
from layoutopt.spark.loading.load import load
from layoutopt.writer.task_result import LoadReport


@dataclass(frozen=True)
class ChangeReport:
    """What a delete, update or merge did.

    Attributes:
        table: the table's path.
        deleted, updated, inserted: numbers of rows.
        load: the commit of written rows, if any.
        marked: the rows deleted by vectors, if any; in the commit of ``load`` if there is one.
        vacuum: the removed files of a hard delete.
    """

    table: str
    deleted: int = 0
    updated: int = 0
    inserted: int = 0
    load: LoadReport | None = None
    marked: MarkReport | None = None
    vacuum: VacuumReport | None = None

    def to_json(self) -> dict[str, object]:
        """Return the report as a JSON object."""
        return asdict(self)


def rewrite(
    change: TableChange,
    operation: str,
    values: Sequence[PlainValue],
    rows: DataFrame,
    content: Content,
    watch: Stages,
    fingerprints: Mapping[str, str] | None = None,
) -> LoadReport:
    """Replace all rows of some partitions, by the table's newest plan.

    Args:
        values: the partitions' values.
        rows: the new rows of these partitions.
        content: the expected content; columns that it lacks are checked against ``rows`` only.
        fingerprints: by partition key, the digest of the source files whose rows the partition still has.

    Raises:
        ContentMismatchError: the rows have other content.
        CommitConflictError: another commit changed one of the partitions.
        LayoutoptError: as :func:`layoutopt.spark.loading.load.load`.
    """
    # A single partition's rows are known, so they need not be counted.
    counts = {change.names.key(values[0]): content.rows} if len(values) == 1 else {}
    basis = Basis(
        change.table.catalog.snapshot,
        f"the table {change.path!r}",
        values=None if change.plan.partition_by is None else tuple(values),
        whole=True,
        fingerprints=fingerprints or {},
        rows=counts,
        content=content,
        operation=operation,
    )
    return load(change.spark, rows, change.path, change.plan, basis=basis, stages=watch)


def changed_content(entries: Sequence[PartitionEntry], removed: Content, added: Content) -> Content:
    """Return the content of entries after rows are removed and added, for the columns whose sums are known."""
    if not entries:
        return added
    before = content_of_entries(entries)
    sums = {name: sum - removed.sums[name] + added.sums[name] for name, sum in before.sums.items()}
    return Content(before.rows - removed.rows + added.rows, sums)
