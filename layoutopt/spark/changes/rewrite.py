"""Partitions of a table written anew from the table's own rows, and proved to hold what they should.

Checksums of a partition's columns are sums over its rows. So what is to be there afterwards is known before anything is
written: the sums that the catalog has, less those of the rows that go, plus those of the rows that come. The first and
the second are of different readings of the table, and a load is refused where they don't add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from pyspark.sql import DataFrame

from layoutopt.catalog.checks import Content
from layoutopt.catalog.entries import content_of_entries
from layoutopt.catalog.partition_names import PlainValue
from layoutopt.catalog.snapshot import PartitionEntry
from layoutopt.catalog.vacuum import VacuumReport
from layoutopt.events import Stages
from layoutopt.spark.changes.affected_rows import Place
from layoutopt.spark.changes.deletion_vectors import MarkReport
from layoutopt.spark.loading.job import Basis
from layoutopt.spark.loading.load import load
from layoutopt.writer.task_result import LoadReport


@dataclass(frozen=True)
class ChangeReport:
    """What a change of rows did.

    Attributes:
        table: its path.
        deleted, updated, inserted: rows.
        load: the commit of what was written, partitions anew or rows beside what is marked; None where nothing was.
        marked: what was deleted by vectors, in a commit of its own or in that of ``load``; None where nothing was.
        vacuum: what was removed, where no copy of a row was to be left.
    """

    table: str
    deleted: int = 0
    updated: int = 0
    inserted: int = 0
    load: LoadReport | None = None
    marked: MarkReport | None = None
    vacuum: VacuumReport | None = None

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        return asdict(self)


def rewrite(
    place: Place,
    operation: str,
    values: Sequence[PlainValue],
    rows: DataFrame,
    content: Content,
    watch: Stages,
    fingerprints: Mapping[str, str] | None = None,
) -> LoadReport:
    """Put rows in the place of all that some partitions have, by the table's newest plan.

    Args:
        place: the table.
        operation: what the history calls it.
        values: of the partitions.
        rows: all that they are to have.
        content: what ``rows`` must have, known without them; columns that it lacks are checked against ``rows`` alone.
        watch: times the stages.
        fingerprints: of partition keys, the digest of the source's files that their rows still are.

    Raises:
        ContentMismatchError: the rows have something else.
        CommitConflictError: somebody else changed one of the partitions meanwhile.
        LayoutoptError: as :func:`layoutopt.spark.loading.load.load`.
    """
    basis = Basis(
        place.table.catalog.snapshot,
        f"the table {place.path!r}",
        values=None if place.plan.partition_by is None else tuple(values),
        whole=True,
        fingerprints=fingerprints or {},
        rows=_rows_of(place, values, content),
        content=content,
        operation=operation,
    )
    return load(place.spark, rows, place.path, place.plan, basis=basis, stages=watch)


def _rows_of(place: Place, values: Sequence[PlainValue], content: Content) -> dict[str, int]:
    """By key the rows that a partition is to have, where there is one only: nobody then has to count them."""
    if len(values) != 1:
        return {}
    return {place.names.key(values[0]): content.rows}


def changed_content(entries: Sequence[PartitionEntry], gone: Content, come: Content) -> Content:
    """What entries have once some rows have gone and others have come, of the columns whose sums are known."""
    if not entries:
        return come
    before = content_of_entries(entries)
    sums = {name: sum - gone.sums[name] + come.sums[name] for name, sum in before.sums.items()}
    return Content(before.rows - gone.rows + come.rows, sums)
