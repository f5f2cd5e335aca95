"""Estimate the work and bytes of queries from the catalog: for limits and prices before they run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from operator import add

import numpy as np

from layoutopt.model.arrays import Bits, Floats
from layoutopt.model.predicates import TRUE
from layoutopt.model.query import Query, group_queries
from layoutopt.model.summary import Report
from layoutopt.scan.opened_table import sum_all, sum_read
from layoutopt.scan.prune import PrunedPlan, Question
from layoutopt.scan.table import Scan, Table


@dataclass(frozen=True)
class QueryWork:
    """What a query asks of a reader: files, column chunks in their footers, compressed bytes, and values with tids."""

    files: int = 0
    footer_chunks: int = 0
    bytes: int = 0
    values: int = 0

    def __add__(self, other: QueryWork) -> QueryWork:
        return QueryWork(*map(add, astuple(self), astuple(other)))


def count_work(pruned: Iterable[PrunedPlan]) -> QueryWork:
    """Return the work of a query. That of a query without columns is none: the number of rows is in the catalog."""
    return sum(map(_count_plan_work, pruned), QueryWork())


def _count_plan_work(plan: PrunedPlan) -> QueryWork:
    pruned = plan.alone
    if not pruned.n_columns.any():
        return QueryWork()
    blocks, sizes = pruned.source.blocks, pruned.read_sizes
    # Files of rows without a local feature have only the master columns.
    stored = np.array([(len(layout.columns), len(layout.master)) for layout in pruned.source.plan.scheme.layouts])
    chunks_of_file = np.bincount(blocks.file, stored[blocks.layout, blocks.part], len(blocks.files))
    columns = pruned.n_columns + (pruned.joined[:, None] & pruned.chosen)
    return QueryWork(
        files=int(pruned.opened.sum()),
        footer_chunks=int((pruned.opened @ chunks_of_file).sum()),
        bytes=int(sizes.bytes.sum()),
        values=int((sizes.rows * columns).sum()),
    )


@dataclass(frozen=True)
class DryRun(Report):
    """The compressed column chunks that a query reads, tids included, with and without skipping."""

    table: str
    snapshot: int
    bytes: int
    blocks: int
    rows: int
    bytes_total: int
    blocks_total: int
    rows_total: int

    def __str__(self) -> str:
        return f"{self.bytes:,} of {self.bytes_total:,} bytes, in {self.blocks:,} of {self.blocks_total:,} blocks"


def dry_run(scan: Scan) -> DryRun:
    """Return what a scan would read, summed over its mentions of the table; opens no data file."""
    plans = [plan for read in scan.reads for plan in read.pruned]
    read, total = sum_read(plans), sum_all(plans)
    return DryRun(
        scan.table.name, scan.table.catalog.snapshot.number,
        read.bytes, read.blocks, read.rows, total.bytes, total.blocks, total.rows,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class EntryBytes:
    """The bytes that queries read of each partition entry of a snapshot, by the catalog.

    Attributes:
        queries: one for each class of queries that read and skip the same.
        read: compressed bytes of columns, without weights, ``float64[n_queries, n_entries]``.
        full: the same for full scans of the queries' columns.
        reached: whether the partition's bounds allow a match, ``bool[n_queries, n_entries]``.
        live: the share of rows in the files that are not deleted, ``float64[n_entries]``.
    """

    queries: tuple[Query, ...]
    read: Floats
    full: Floats
    reached: Bits
    live: Floats

    @cached_property
    def weights(self) -> Floats:
        """The queries' weights, ``float64[n_queries]``."""
        return np.array([query.weight for query in self.queries])

    def shares_of(self, entries: Sequence[int]) -> Floats | None:
        """Return what each query reads of full scans of the entries that it reaches, ``float64[n_queries]``.

        A query that reaches none of them has the average share. None if no query reaches any.
        """
        reached = self.reached[:, entries]
        return shares(self.read[:, entries].sum(axis=1), (self.full[:, entries] * reached).sum(axis=1), self.weights)

    def expected(self, shares: Floats) -> Floats:
        """Return the bytes that queries would read of each entry if rewritten, ``float64[n_queries, n_entries]``.

        ``shares`` is what each query reads of what it reaches under the new plan, ``float64[n_queries]``.
        """
        expected: Floats = shares[:, None] * self.full * self.reached * self.live
        return expected


def shares(read: Floats, reached: Floats, weights: Floats) -> Floats | None:
    """Return the share that each query reads of what it reaches; None if no query reaches anything.

    A query that reaches nothing has the average share.

    Args:
        read: bytes, ``float64[n_queries]``.
        reached: bytes of full scans of the partitions that it reaches, ``float64[n_queries]``.
        weights: ``float64[n_queries]``.
    """
    total = float(weights @ reached)
    if not total:
        return None
    average: Floats = np.full(len(read), float(weights @ read) / total)
    return np.divide(read, reached, out=average, where=reached > 0)


def measure_entry_bytes(table: Table, queries: Sequence[Query]) -> EntryBytes:
    """Replay queries on a table's catalog."""
    distinct = tuple(group_queries(queries))
    read, reached = _sum_by_entry(table, [(query.filter.root, query.columns) for query in distinct])
    columns = {query.columns: None for query in distinct}
    scans = dict(zip(columns, _sum_by_entry(table, [(TRUE, names) for names in columns])[0], strict=True))
    full = np.array([scans[query.columns] for query in distinct]).reshape(read.shape)
    live = [entry.live_rows / max(1, entry.rows) for entry in table.catalog.partitions]
    return EntryBytes(distinct, read, full, reached, np.array(live, dtype=np.float64))


def _sum_by_entry(table: Table, questions: Sequence[Question]) -> tuple[Floats, Bits]:
    """Return for each query and entry the bytes read, and whether its bounds allow a match."""
    shape = len(questions), len(table.catalog.partitions)
    read_bytes, reached = np.zeros(shape), np.zeros(shape, dtype=np.bool_)
    for places, plans in table.prune_all(questions):
        for queries in plans:
            entry_of = queries.source.entry_of
            for number, pruned in enumerate(queries, places.start):
                mask = pruned.read
                read_bytes[number] += np.bincount(entry_of[mask], pruned.bytes[mask], shape[1])
                reached[number, entry_of[~pruned.excluded]] = True
    return read_bytes, reached
