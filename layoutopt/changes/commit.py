"""Commit a change: rows that go and rows that come.

Either deletion vectors mark the rows that go, and those that come are written into entries of their own
(merge-on-read), or the partitions are rewritten from the table's own rows (copy-on-write). Both are one commit.

Column checksums are sums over rows, so the content of a rewritten partition is known before the write: the catalog's
sums, minus the removed rows, plus the added rows. The load fails if the written rows differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic

from layoutopt.catalog.deletion_vectors import Marks, commit_deletes
from layoutopt.catalog.entries import content_of_entries
from layoutopt.catalog.load_check import Content
from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.partition_names import PlainValue
from layoutopt.catalog.paths import new_load_id
from layoutopt.catalog.vacuum import VacuumReport
from layoutopt.changes.affected_rows import AffectedRows, Rows, TableChange
from layoutopt.changes.deletion_vectors import make_marks
from layoutopt.events import Stages
from layoutopt.loading.load import LoadBasis, load
from layoutopt.model.summary import Report, Summarised
from layoutopt.writer.task_result import LoadReport


@dataclass(frozen=True)
class MarkReport:
    """What a delete by vectors wrote.

    Attributes:
        load_id: the change's id.
        snapshot: the number of the committed snapshot.
        partitions: the keys of the changed partitions.
        blocks: the number of blocks that have a deleted row now.
        bytes: the size of the vectors.
    """

    load_id: str
    snapshot: int
    partitions: tuple[str, ...]
    blocks: int
    bytes: int


@dataclass(frozen=True, repr=False)
class ChangeReport(Summarised, Report):
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

    def summarise(self) -> dict[str, object]:
        """Return the summary of a notebook."""
        return {name: getattr(self, name) for name in ("table", "deleted", "updated", "inserted")}


@dataclass(frozen=True, eq=False)
class NewRows(Generic[Rows]):
    """Rows to write.

    Attributes:
        rows: the rows; the same each time they are read, if they are added beside marked rows.
        content: their number, and the checksums of the columns for which these are known beforehand.
    """

    rows: Rows
    content: Content


@dataclass(frozen=True, eq=False)
class RowChange(Generic[Rows]):
    """The rows that go and the rows that come.

    Attributes:
        removed: says whether to mark or to rewrite.
        rewritten: from the rows of partitions, the rows that they have afterwards.
        added: the rows that come, if any.
        values: more partitions to rewrite than those of the removed rows.
        exclusive: whether rows that another commit adds to the partitions are a conflict also for marked rows.
        shares: as of :class:`~layoutopt.loading.load.LoadBasis`, where partitions are rewritten.
    """

    removed: AffectedRows[Rows]
    rewritten: Callable[[Rows], Rows]
    added: NewRows[Rows] | None = None
    values: Sequence[PlainValue] = ()
    exclusive: bool = False
    shares: bool = True


def commit_change(
    change: TableChange[Rows], operation: str, report: ChangeReport, row_change: RowChange[Rows], watch: Stages
) -> ChangeReport:
    """Mark the removed rows and write the added ones, or rewrite their partitions, in one commit.

    ``report`` counts the rows; it is returned with what was committed.

    Raises:
        ContentMismatchError: the rows have other content.
        CommitConflictError: another commit changed one of the partitions.
        LayoutoptError: as :func:`layoutopt.spark.loading.load.load`, and of :func:`make_marks`.
    """
    removed, added = row_change.removed, row_change.added
    if removed.segments is None:
        values = tuple(dict.fromkeys((*change.list_values(removed.rows), *row_change.values)))
        entries = change.entries(values)
        rewritten = row_change.rewritten(change.read(entries))
        none = Content(0, dict.fromkeys(removed.content.sums, 0))
        content = _change_content(entries, removed.content, none if added is None else added.content)
        return replace(
            report,
            load=write_rows(change, operation, values, NewRows(rewritten, content), watch, shares=row_change.shares),
        )
    catalog = change.table.catalog
    with change.translate_errors(()):
        marks = make_marks(catalog, removed.segments, change.executor, watch, exclusive=row_change.exclusive)
    if added is not None and added.content.rows:
        load = write_rows(change, operation, change.list_values(added.rows), added, watch, marks=marks)
        load_id, number = load.load_id, load.snapshot
    else:
        load, load_id = None, new_load_id()
        with watch.stage("commit", "committing") as counts:
            number = commit_deletes(catalog.files, catalog.snapshot, load_id, marks, operation=operation).number
            counts["snapshot"] = number
    keys = tuple(sorted({key for key, _ in marks.deleted}))
    marked = MarkReport(load_id, number, keys, len(marks.vectors), len(marks.data)) if marks.deleted else None
    return replace(report, load=load, marked=marked)


def write_rows(
    change: TableChange[Rows],
    operation: str,
    values: Sequence[PlainValue],
    new_rows: NewRows[Rows],
    watch: Stages,
    *,
    marks: Marks | None = None,
    shares: bool = True,
) -> LoadReport:
    """Write rows by the plan of a change: all rows of some partitions, or with ``marks`` rows beside those that remain.

    Args:
        values: the partitions' values.
        new_rows: the rows of these partitions; columns whose checksums are unknown are checked against the rows only.
        marks: the rows that go.
        shares: as of :class:`~layoutopt.loading.load.LoadBasis`.

    Raises:
        ContentMismatchError: the rows have other content.
        CommitConflictError: another commit changed one of the partitions.
        LayoutoptError: as :func:`layoutopt.spark.loading.load.load`.
    """
    basis = LoadBasis(
        snapshot=change.table.catalog.snapshot,
        source=f"the table {change.path!r}",
        values=None if change.plan.partition_by is None else tuple(values),
        rows={change.names.key(values[0]): new_rows.content.rows} if len(values) == 1 else {},
        content=new_rows.content,
        operation=operation,
        marks=marks,
        shares=shares,
    )
    return load(change.open_rows(new_rows.rows, basis.source), change.path, change.plan, basis, watch)


def _change_content(entries: Sequence[PartitionEntry], removed: Content, added: Content) -> Content:
    """Return the content of entries after rows are removed and added, for the columns whose sums are known."""
    if not entries:
        return added
    before = content_of_entries(entries)
    sums = {name: sum - removed.sums[name] + added.sums[name] for name, sum in before.sums.items()}
    return Content(before.rows - removed.rows + added.rows, sums)
