"""Estimate the work and bytes of queries from the catalog: for predicted seconds, limits and prices before they run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from layoutopt.model.arrays import Bits, Floats
from layoutopt.model.engine_costs import BUILT_IN, Calibration, QueryWork, from_cost_predictions
from layoutopt.model.layout import Layout
from layoutopt.model.predicates import TRUE, Node
from layoutopt.model.query import Query, group_queries
from layoutopt.scan.opened_table import sum_all, sum_read
from layoutopt.scan.prune import PrunedPlan
from layoutopt.scan.table import Scan, Table


def count_work(pruned: Iterable[PrunedPlan], layouts: Sequence[Layout] = ()) -> QueryWork:
    """Return the work of a query; ``layouts`` are those of the files, if the pruned plan has fewer columns."""
    return sum((_count_plan_work(plan, layouts) for plan in pruned), QueryWork(queries=1))


def find_costs(table: Table, calibration: Calibration | None = None) -> Calibration:
    """Return the costs of engines: as passed, else as recorded by the table's plans, else the built-in ones."""
    if calibration is not None:
        return calibration
    recorded: dict[str, dict[str, float]] = {}
    for source in table.sources:
        recorded |= from_cost_predictions(source.plan.predicted)
    return Calibration({**BUILT_IN.engines, **recorded})


def predicted_seconds(calibration: Calibration, work: QueryWork) -> dict[str, float]:
    """Return the predicted seconds of the work, by engine."""
    return {engine: round(calibration.costs(engine).seconds(work), 6) for engine in sorted(calibration.engines)}


def scan_work(scan: Scan) -> QueryWork:
    """Return the work of a query that may read a table several times."""
    parts = sum((count_work(read.pruned) for read in scan.reads), QueryWork())
    return replace(parts, queries=1)


def _count_plan_work(pruned: PrunedPlan, layouts: Sequence[Layout]) -> QueryWork:
    if not any(choice.columns for choice in pruned.choice):
        return QueryWork()  # the number of rows is in the catalog
    blocks, read = pruned.source.blocks, pruned.read
    opened = np.isin(blocks.file, np.unique(blocks.file[read]))
    # Files of rows without a local feature have only the master columns.
    stored = [(len(layout.columns), len(layout.master)) for layout in layouts or pruned.source.plan.scheme.layouts]
    footer_chunks = np.array(stored)[blocks.layout[opened], blocks.part[opened].astype(np.int64)]
    joined = len(pruned.choice) > 1
    rows = values = chunks = 0
    for choice in pruned.choice:
        mask = read & (blocks.layout == choice.layout)
        columns, n_rows = len(choice.columns) + joined, int(blocks.rows[mask].sum())
        rows, values = rows + n_rows, values + n_rows * columns
        chunks += int(np.count_nonzero(mask)) * columns
    return QueryWork(
        files=len(np.unique(blocks.file[read])),
        footer_chunks=float(footer_chunks.sum()),
        row_groups=int(np.count_nonzero(read)),
        chunks=chunks,
        bytes=float(pruned.bytes[read].sum()),
        rows=0 if joined else rows,
        values=0 if joined else values,
        joined_segments=len(np.unique(pruned.source.segment_of[read])) if joined else 0,
        joined_rows=rows if joined else 0,
        joined_values=values if joined else 0,
    )


@dataclass(frozen=True)
class DryRun:
    """The compressed column chunks that a query reads, tids included, with and without skipping."""

    table: str
    snapshot: int
    bytes: int
    blocks: int
    rows: int
    bytes_total: int
    blocks_total: int
    rows_total: int

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as JSON."""
        return asdict(self)

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
    shape = (len(distinct), len(table.catalog.partitions))
    read, full, reached = np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=np.bool_)
    scans: dict[tuple[str, ...], Floats] = {}
    for number, query in enumerate(distinct):
        read[number], reached[number] = _sum_by_entry(table, query.filter.root, query.columns)
        if query.columns not in scans:
            scans[query.columns] = _sum_by_entry(table, TRUE, query.columns)[0]
        full[number] = scans[query.columns]
    live = [entry.live_rows / max(1, entry.rows) for entry in table.catalog.partitions]
    return EntryBytes(distinct, read, full, reached, np.array(live, dtype=np.float64))


def _sum_by_entry(table: Table, root: Node, columns: Sequence[str]) -> tuple[Floats, Bits]:
    """Return for each entry the bytes read, and whether its bounds allow a match."""
    n = len(table.catalog.partitions)
    read_bytes, reached = np.zeros(n), np.zeros(n, dtype=np.bool_)
    for pruned in table.prune(root, columns):
        mask, entry_of = pruned.read, pruned.source.entry_of
        read_bytes += np.bincount(entry_of[mask], pruned.bytes[mask], n)
        reached[entry_of[~pruned.excluded]] = True
    return read_bytes, reached
