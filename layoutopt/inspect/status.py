"""Summarise a table: partitions, plans, blocks, bytes, last loads; and open a table whose catalog is damaged.

Nothing is locked; writers are not affected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from layoutopt.catalog.history import HistoryEntry, history
from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.paths import plan_path, snapshot_path
from layoutopt.catalog.snapshot import read_snapshot, snapshot_numbers
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog, chosen_snapshot, read_plan
from layoutopt.catalog.table_root import check_is_table
from layoutopt.errors import CatalogError
from layoutopt.inspect.verify import Difference, FileChecker, Progress, VerifyReport, verify
from layoutopt.model.layout import Plan
from layoutopt.model.requests import DELETED_SHARE
from layoutopt.model.summary import Report
from layoutopt.scan.table import Table

LOADS = 10


@dataclass(frozen=True)
class PartitionStatus:
    """A partition: its rows and blocks, the compressed bytes of its columns, its newest plan and load.

    ``entries`` is the number of loads of its rows. ``deleted`` rows are still in its files, but not among ``rows``.
    """

    key: str
    rows: int
    blocks: int
    bytes: int
    plan: str
    load_id: str
    entries: int = 1
    deleted: int = 0

    @property
    def deleted_share(self) -> float:
        """The share of the rows in its files that is deleted."""
        return self.deleted / max(1, self.rows + self.deleted)


@dataclass(frozen=True)
class PlanStatus:
    """A plan that partitions were loaded by; ``current`` if it is used for new partitions."""

    digest: str
    method: str
    layouts: int
    features: int
    partitions: int
    rows: int
    current: bool


@dataclass(frozen=True)
class Status(Report):
    """A table at one snapshot. ``loads`` are its last commits, the newest first."""

    derived = ("advice",)

    table: str
    path: str
    snapshot: int
    created_at: str
    rows: int
    blocks: int
    bytes: int
    plans: tuple[PlanStatus, ...]
    partitions: tuple[PartitionStatus, ...]
    loads: tuple[HistoryEntry, ...]
    encrypted: bool = False

    @property
    def advice(self) -> str | None:
        """The most useful maintenance for the table, in a sentence; None if it needs none."""
        command = f"`layoutopt optimize {self.path}`"
        appended = sum(partition.entries > 1 for partition in self.partitions)
        if appended:
            return f"{appended} partitions have rows of several loads; {command} compacts them"
        shares = [p.deleted_share for p in self.partitions if p.deleted_share >= DELETED_SHARE]
        if shares:
            return f"{len(shares)} partitions have up to {max(shares):.0%} deleted rows; {command} rewrites them"
        current = {plan.digest for plan in self.plans if plan.current}
        older = sum(partition.plan not in current and partition.rows > 0 for partition in self.partitions)
        return f"{older} partitions have older plans; {command} rewrites those that gain" if older else None


def status(catalog: Catalog) -> Status:
    """Return the status of a table at its catalog's snapshot."""
    snapshot = catalog.snapshot
    partitions = tuple(_partition_status(catalog, entries) for entries in snapshot.by_key.values())
    current = current_plan(catalog).digest if partitions else ""
    return Status(
        table=next((plan.table for plan in catalog.plans.values()), ""),
        path=catalog.files.root,
        snapshot=snapshot.number,
        created_at=snapshot.created_at,
        rows=snapshot.rows,
        blocks=sum(partition.blocks for partition in partitions),
        bytes=sum(partition.bytes for partition in partitions),
        plans=tuple(_plan_status(plan, catalog, plan.digest == current) for plan in catalog.plans.values()),
        partitions=partitions,
        loads=tuple(reversed(history(catalog.files, snapshot.number, LOADS))),
        encrypted=catalog.files.keys is not None,
    )


def current_plan(catalog: Catalog) -> Plan:
    """Return the plan that was added to the table last, which is used for new partitions by default.

    Loading a partition again by an older plan does not make that plan current. The table must have partitions.
    """
    return catalog.plans[[digest for digest in catalog.snapshot.plans_in_order if digest in catalog.plans][-1]]


def _partition_status(catalog: Catalog, entries: Sequence[PartitionEntry]) -> PartitionStatus:
    newest = entries[-1]
    return PartitionStatus(
        newest.key,
        sum(entry.live_rows for entry in entries),
        sum(map(catalog.count_blocks, entries)),
        sum(entry.bytes for entry in entries),
        newest.plan,
        newest.load_id,
        len(entries),
        sum(entry.rows - entry.live_rows for entry in entries),
    )


def _plan_status(plan: Plan, catalog: Catalog, current: bool) -> PlanStatus:
    entries = [entry for entry in catalog.partitions if entry.plan == plan.digest]
    rows = sum(entry.live_rows for entry in entries)
    keys = {entry.key for entry in entries}
    return PlanStatus(plan.digest, plan.method, len(plan.scheme.layouts), len(plan.features), len(keys), rows, current)


def verify_path(
    path: str,
    sample: float = 1.0,
    progress: Progress | None = None,
    *,
    snapshot: int | None = None,
    as_of: str | None = None,
    checker: FileChecker | None = None,
) -> VerifyReport:
    """Verify a table including its catalog, and report every damaged file; raises as :func:`open_intact`."""
    table, damaged = open_intact(path, snapshot=snapshot, as_of=as_of)
    report = verify(table, sample, progress=progress, checker=checker)
    return replace(report, problems=(*damaged, *report.problems))


def open_intact(
    path: str, *, snapshot: int | None = None, as_of: str | None = None
) -> tuple[Table, tuple[Difference, ...]]:
    """Return a table with the partitions whose catalog files are intact, and the problems of other files.

    Other readers stop at the first damaged file. All snapshots are checked, and the plans and blocks of the chosen one.

    Raises:
        NotATableError: the path holds no table.
        CatalogError: the chosen snapshot itself is damaged.
    """
    files = TableFiles(path, fresh=True)
    check_is_table(files)
    current = chosen_snapshot(files, snapshot, as_of)
    damaged: dict[str, str] = {}
    for number in snapshot_numbers(files):
        try:
            if number != current.number:
                read_snapshot(files, number)
        except CatalogError as error:
            damaged[error.path or snapshot_path(number)] = str(error)
    plans = {}
    for digest in current.plans_read:
        try:
            plans[digest] = read_plan(files, current, digest)
        except CatalogError as error:
            damaged[plan_path(digest)] = str(error)
    catalog = Catalog(files, current, plans)
    intact: list[PartitionEntry] = []
    for entry in current.partitions:
        if entry.plan not in plans or not damaged.keys().isdisjoint(entry.catalog_files):
            continue
        try:
            catalog.count_blocks(entry)
            intact.append(entry)
        except CatalogError as error:
            damaged[error.path or entry.blocks_file] = str(error)
    used = {entry.plan: plans[entry.plan] for entry in intact} if current.partitions else plans
    return Table(catalog.select(intact, used)), tuple(
        Difference("catalog", path, message) for path, message in damaged.items()
    )
