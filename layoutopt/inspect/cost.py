"""How much work a query is, counted on the catalog alone: what its seconds are predicted from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.model.engine_costs import BUILT_IN, Calibration, Work, calibrations
from layoutopt.model.layout import Layout
from layoutopt.model.predicates import TRUE, Node
from layoutopt.model.query import Query, classes
from layoutopt.scan.prune import PrunedPlan, PruneOutcome, ScanSize
from layoutopt.scan.table import Scan, Table


def work_of(pruned: Iterable[PrunedPlan], layouts: Sequence[Layout] = ()) -> Work:
    """The work of a query that reads a table once.

    Args:
        pruned: what it reads of each plan's blocks.
        layouts: what the files hold, where the plan that was pruned has fewer columns.
    """
    return sum((_of_plan(plan, layouts) for plan in pruned), Work(queries=1))


def costs_for(table: Table, given: Calibration | None = None) -> Calibration:
    """What engines cost: as given, else as the newest plan of the table was chosen by, else the built-in costs."""
    if given is not None:
        return given
    recorded: dict[str, dict[str, float]] = {}
    for source in table.sources:
        recorded |= calibrations(source.plan.predicted)
    return Calibration({**BUILT_IN.engines, **recorded})


def predicted_seconds(calibration: Calibration, work: Work) -> dict[str, float]:
    """What the work is predicted to take, by the engines' names."""
    return {engine: round(calibration.costs(engine).seconds(work), 6) for engine in sorted(calibration.engines)}


def scan_work(scan: Scan) -> Work:
    """The work of a query that may read a table several times."""
    parts = sum((work_of(read.pruned) for read in scan.reads), Work())
    return replace(parts, queries=1)


def _of_plan(pruned: PrunedPlan, layouts: Sequence[Layout]) -> Work:
    if not any(choice.columns for choice in pruned.choice):
        return Work()  # the catalog alone says how many rows there are
    blocks, read = pruned.source.blocks, pruned.read
    opened = np.isin(blocks.file, np.unique(blocks.file[read]))
    # Files of rows without a local feature have the master columns alone.
    stored = [(len(of.columns), len(of.master)) for of in layouts or pruned.source.plan.scheme.layouts]
    in_files = np.array(stored)[blocks.layout[opened], blocks.part[opened].astype(np.int64)]
    joined = len(pruned.choice) > 1
    rows = values = chunks = 0
    for choice in pruned.choice:
        here = read & (blocks.layout == choice.layout)
        columns, n_rows = len(choice.columns) + joined, int(blocks.rows[here].sum())
        rows, values = rows + n_rows, values + n_rows * columns
        chunks += int(np.count_nonzero(here)) * columns
    return Work(
        files=len(np.unique(blocks.file[read])),
        footer_chunks=float(in_files.sum()),
        row_groups=int(np.count_nonzero(read)),
        chunks=chunks,
        bytes=float(pruned.bytes[read].sum()),
        rows=0 if joined else rows,
        values=0 if joined else values,
        joined_segments=len(np.unique(pruned.source.segment_of[read])) if joined else 0,
        joined_rows=rows if joined else 0,
        joined_values=values if joined else 0,
    )


# ----------------------------------------------------------------------------------------------------
# What a query would read, in bytes, from the catalog alone: for limits and prices before anything runs.

_ON_PATH = tuple(outcome for outcome in PruneOutcome if outcome is not PruneOutcome.OTHER_LAYOUT)


@dataclass(frozen=True)
class DryRun:
    """The compressed column chunks that a query reads, tids included, and those that it would read without skipping."""

    table: str
    snapshot: int
    bytes: int
    blocks: int
    rows: int
    bytes_total: int
    blocks_total: int
    rows_total: int

    def to_json(self) -> dict[str, Any]:
        """The numbers as JSON."""
        return asdict(self)

    def __str__(self) -> str:
        """The numbers in one line."""
        return f"{self.bytes:,} of {self.bytes_total:,} bytes, in {self.blocks:,} of {self.blocks_total:,} blocks"


def dry_run(scan: Scan) -> DryRun:
    """What a scan would read, summed over its mentions of the table; no data file is opened.

    Raises:
        CatalogError: a blocks file is damaged.
    """
    plans = [plan for read in scan.reads for plan in read.pruned]
    read, total = ScanSize(), ScanSize()
    for plan in plans:
        read, total = read + plan.size(PruneOutcome.READ), total + plan.size(*_ON_PATH)
    return DryRun(
        scan.table.name, scan.table.catalog.snapshot.number,
        read.bytes, read.blocks, read.rows, total.bytes, total.blocks, total.rows,
    )  # fmt: skip


# ----------------------------------------------------------------------------------------------------
# The bytes that queries read of each of a table's partitions, and what they would read of it by another plan.


@dataclass(frozen=True, eq=False)
class EntryBytes:
    """What queries read of each entry of a snapshot, by the catalog.

    Attributes:
        queries: one for each class of queries that are read and skipped alike.
        read: compressed bytes of columns, ``float64[n_queries, n_entries]``; weights don't count in it.
        full: the same of full scans of the queries' columns.
        reached: where the partition's own bounds don't exclude the query, ``bool[n_queries, n_entries]``.
        live: the share of the rows in the files that are not deleted, ``float64[n_entries]``.
    """

    queries: tuple[Query, ...]
    read: Floats
    full: Floats
    reached: Bits
    live: Floats

    @cached_property
    def weights(self) -> Floats:
        """Of the queries, ``float64[n_queries]``."""
        return np.array([query.weight for query in self.queries])

    def shares_of(self, entries: Sequence[int]) -> Floats | None:
        """What each query reads of full scans of those of some entries that it reaches, ``float64[n_queries]``.

        A query that reaches none of them has the share of all. None where no query reaches any.
        """
        reached = self.reached[:, entries]
        return shares(self.read[:, entries].sum(axis=1), (self.full[:, entries] * reached).sum(axis=1), self.weights)

    def expected(self, shares: Floats) -> Floats:
        """What queries would read of each entry, written anew without deleted rows, by a plan of these shares.

        Args:
            shares: what each query reads by the plan of what it reaches, ``float64[n_queries]``.

        Returns:
            ``float64[n_queries, n_entries]``.
        """
        expected: Floats = shares[:, None] * self.full * self.reached * self.live
        return expected


def shares(read: Floats, reached: Floats, weights: Floats) -> Floats | None:
    """What each query reads of what it reaches; of one that reaches nothing the share of all, None where none does.

    Args:
        read: bytes, ``float64[n_queries]``.
        reached: bytes of full scans of the partitions that it reaches, ``float64[n_queries]``.
        weights: ``float64[n_queries]``.
    """
    total = float(weights @ reached)
    if not total:
        return None
    found: Floats = np.full(len(read), float(weights @ read) / total)
    return np.divide(read, reached, out=found, where=reached > 0)


def entry_bytes(table: Table, queries: Sequence[Query]) -> EntryBytes:
    """Replay queries on a table's catalog.

    Raises:
        CatalogError: a blocks file is damaged.
    """
    distinct = tuple(classes(queries))
    shape = (len(distinct), len(table.catalog.partitions))
    read, full, reached = np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=np.bool_)
    scans: dict[tuple[str, ...], Floats] = {}
    for number, query in enumerate(distinct):
        read[number], reached[number] = _of_entries(table, query.filter.root, query.columns)
        if query.columns not in scans:
            scans[query.columns] = _of_entries(table, TRUE, query.columns)[0]
        full[number] = scans[query.columns]
    live = [entry.live_rows / max(1, entry.rows) for entry in table.catalog.partitions]
    return EntryBytes(distinct, read, full, reached, np.array(live, dtype=np.float64))


def _of_entries(table: Table, root: Node, columns: Sequence[str]) -> tuple[Floats, Bits]:
    """Of each entry the bytes read, and whether its bounds let the filter hold."""
    n = len(table.catalog.partitions)
    found, reached = np.zeros(n), np.zeros(n, dtype=np.bool_)
    for pruned in table.prune(root, columns):
        chosen, entry_of = pruned.read, pruned.source.entry_of
        found += _sums(entry_of[chosen], pruned.bytes[chosen], n)
        reached[entry_of[pruned.outcome != PruneOutcome.PARTITION]] = True
    return found, reached


def _sums(places: Ints, values: Ints, n: int) -> Floats:
    return np.bincount(places, values, n).astype(np.float64)
