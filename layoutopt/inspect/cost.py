"""Estimate the work and bytes of queries from the catalog: for predicted seconds, limits and prices before they run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from layoutopt.model.arrays import Bits, Floats
from layoutopt.model.engine_costs import BUILT_IN, KINDS, Calibration, QueryWork, from_cost_predictions
from layoutopt.model.layout import Layout
from layoutopt.model.predicates import TRUE
from layoutopt.model.query import Query, group_queries
from layoutopt.scan.opened_table import sum_all, sum_read
from layoutopt.scan.prune import PrunedPlan, PrunedQueries, Question
from layoutopt.scan.table import Scan, Table


def count_work(pruned: Iterable[PrunedPlan], layouts: Sequence[Layout] = ()) -> QueryWork:
    """Return the work of a query; ``layouts`` are those of the files, if the pruned plan has fewer columns."""
    counts = sum((count_plan_work(plan.alone, layouts)[0] for plan in pruned), _ONE_QUERY)
    return QueryWork(*counts.tolist())


def count_work_of_all(pruned: Iterable[PrunedQueries], queries: int) -> Floats:
    """Return the work of each of so many queries in the order of :data:`KINDS`, ``float64[queries, kinds]``."""
    return sum(map(count_plan_work, pruned), np.tile(_ONE_QUERY, (queries, 1)))


_ONE_QUERY: Final = QueryWork(queries=1).counts


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
    return predicted_seconds_of_all(calibration, work.counts[None])[0]


def predicted_seconds_of_all(calibration: Calibration, work: Floats) -> list[dict[str, float]]:
    """Return :func:`predicted_seconds` of the work of many queries, ``float64[queries, kinds]``."""
    engines = sorted(calibration.engines)
    if not engines:
        return [{} for _ in work]
    costs = np.stack([calibration.costs(engine).vector for engine in engines])
    # A matrix product may add in another order for other numbers of queries.
    seconds = (work[:, None] * costs).sum(axis=2)
    rounded = [[round(value, 6) for value in row] for row in seconds.tolist()]
    return [dict(zip(engines, row, strict=True)) for row in rounded]


def scan_work(scan: Scan) -> QueryWork:
    """Return the work of a query that may read a table several times."""
    parts = sum((count_work(read.pruned) for read in scan.reads), QueryWork())
    return replace(parts, queries=1)


def count_plan_work(pruned: PrunedQueries, layouts: Sequence[Layout] = ()) -> Floats:
    """Return the work of queries on one plan's blocks, without the queries themselves, ``float64[queries, kinds]``.

    That of a query without columns is none: the number of rows is in the catalog.
    """
    source, sizes, joined = pruned.source, pruned.read_sizes, pruned.joined
    blocks = source.blocks
    # Files of rows without a local feature have only the master columns.
    stored = np.array([(len(x.columns), len(x.master)) for x in layouts or source.plan.scheme.layouts])
    chunks_of_file = np.bincount(blocks.file, stored[blocks.layout, blocks.part], len(blocks.files))
    columns = pruned.n_columns + (joined[:, None] & pruned.chosen)
    rows, values = sizes.rows.sum(axis=1), (sizes.rows * columns).sum(axis=1)
    segments = np.zeros(len(pruned), dtype=np.int64)
    for number in np.flatnonzero(joined).tolist():
        segments[number] = len(np.unique(source.segment_of[pruned.read[number]]))
    work = {
        "files": pruned.opened.sum(axis=1),
        "footer_chunks": pruned.opened @ chunks_of_file,
        "row_groups": sizes.blocks.sum(axis=1),
        "chunks": (sizes.blocks * columns).sum(axis=1),
        "bytes": sizes.bytes,
        "rows": rows * ~joined,
        "values": values * ~joined,
        "joined_segments": segments,
        "joined_rows": rows * joined,
        "joined_values": values * joined,
    }
    nothing = np.zeros(len(pruned))
    counts = np.column_stack([work.get(kind, nothing) for kind in KINDS]).astype(np.float64)
    counts[~pruned.n_columns.any(axis=1)] = 0.0
    return counts


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
