"""What a table holds, at a glance: partitions, plans, blocks, bytes, last loads. Nothing is locked; writers go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from layoutopt.catalog.paths import plan_path, snapshot_path
from layoutopt.catalog.snapshot import (
    HistoryEntry,
    PartitionEntry,
    check_is_table,
    history,
    read_snapshot,
    snapshot_numbers,
)
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog, chosen_snapshot, read_plan
from layoutopt.errors import CatalogError
from layoutopt.inspect.verify import FileChecker, Problem, Progress, VerifyReport, verify
from layoutopt.model.layout import Plan
from layoutopt.scan.table import Table

LOADS = 10
DELETED_SHARE: Final = 0.05
"""From this share of deleted rows on it is worth a partition's writing: what queries read is that much too large."""


@dataclass(frozen=True)
class PartitionStatus:
    """A partition: its rows and blocks, the compressed bytes of its columns, its newest plan and load.

    ``entries`` is how many loads its rows are from: more than one where rows were appended. ``deleted`` is how many
    rows were deleted that its files still have; they are not among ``rows``.
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
        """Of the rows in its files, the share that is deleted."""
        return self.deleted / max(1, self.rows + self.deleted)


@dataclass(frozen=True)
class PlanStatus:
    """A plan that partitions were loaded by; ``current`` if new partitions are loaded by it."""

    digest: str
    method: str
    layouts: int
    features: int
    partitions: int
    rows: int
    current: bool


@dataclass(frozen=True)
class Status:
    """A table at one snapshot. ``loads`` are its last commits, the newest first."""

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
        """What would help the table most, in a sentence; None where it is as it should be."""
        appended = sum(one.entries > 1 for one in self.partitions)
        if appended:
            return f"{appended} partitions have rows of several loads; `layoutopt optimize {self.path}` joins them"
        deleted = [one for one in self.partitions if one.deleted_share >= DELETED_SHARE]
        if deleted:
            most = max(one.deleted_share for one in deleted)
            return (
                f"{len(deleted)} partitions have many deleted rows in their files, up to {most:.0%}; "
                f"`layoutopt optimize {self.path}` writes them anew"
            )
        current = {plan.digest for plan in self.plans if plan.current}
        older = sum(one.plan not in current and one.rows > 0 for one in self.partitions)
        if older:
            return (
                f"{older} partitions are of older plans; `layoutopt optimize {self.path}` writes those anew that gain"
            )
        return None

    def to_json(self) -> dict[str, Any]:
        """The status as JSON."""
        return {**asdict(self), "advice": self.advice}


def status(catalog: Catalog) -> Status:
    """The status of a table at the snapshot at which its catalog was opened.

    Raises:
        CatalogError: a catalog file is damaged.
    """
    snapshot = catalog.snapshot
    partitions = tuple(_partition(catalog, entries) for entries in snapshot.by_key.values())
    current = current_plan(catalog).digest if partitions else ""
    return Status(
        table=next((plan.table for plan in catalog.plans.values()), ""),
        path=catalog.files.root,
        snapshot=snapshot.number,
        created_at=snapshot.created_at,
        rows=snapshot.rows,
        blocks=sum(partition.blocks for partition in partitions),
        bytes=sum(partition.bytes for partition in partitions),
        plans=tuple(_plan(plan, catalog, plan.digest == current) for plan in catalog.plans.values()),
        partitions=partitions,
        loads=tuple(reversed(history(catalog.files, snapshot.number, LOADS))),
        encrypted=catalog.files.keys is not None,
    )


def current_plan(catalog: Catalog) -> Plan:
    """The plan that came to the table last; new partitions are loaded by it unless another is given.

    A partition that is loaded again by an older plan does not bring that back. The table must have partitions.
    """
    return catalog.plans[[digest for digest in catalog.snapshot.plans_in_order if digest in catalog.plans][-1]]


def _partition(catalog: Catalog, entries: Sequence[PartitionEntry]) -> PartitionStatus:
    newest = entries[-1]
    return PartitionStatus(
        newest.key,
        sum(entry.live_rows for entry in entries),
        sum(catalog.blocks(entry).n for entry in entries),
        sum(entry.bytes for entry in entries),
        newest.plan,
        newest.load_id,
        len(entries),
        sum(entry.rows - entry.live_rows for entry in entries),
    )


def _plan(plan: Plan, catalog: Catalog, current: bool) -> PlanStatus:
    mine = [entry for entry in catalog.partitions if entry.plan == plan.digest]
    rows = sum(entry.live_rows for entry in mine)
    keys = {entry.key for entry in mine}
    return PlanStatus(plan.digest, plan.method, len(plan.scheme.layouts), len(plan.features), len(keys), rows, current)


# ----------------------------------------------------------------------------------------------------
# What is left of a table whose catalog is damaged: every damaged file by name, and the partitions that can be read.
#
# A reader stops at the first damaged file, since it could only guess from there on. ``verify`` goes on, so that whoever
# restores files knows them all at once.


def verify_path(
    path: str,
    sample: float = 1.0,
    progress: Progress | None = None,
    *,
    snapshot: int | None = None,
    as_of: str | None = None,
    checker: FileChecker | None = None,
) -> VerifyReport:
    """Every damaged file of a table, of its catalog too; see :func:`layoutopt.inspect.verify.verify`.

    Raises:
        NotATableError, CatalogError, SettingError: as :func:`open_intact`.
    """
    table, damaged = open_intact(path, snapshot=snapshot, as_of=as_of)
    report = verify(table, sample, progress=progress, checker=checker)
    return replace(report, problems=(*damaged, *report.problems))


def open_intact(
    path: str, *, snapshot: int | None = None, as_of: str | None = None
) -> tuple[Table, tuple[Problem, ...]]:
    """A table with the partitions whose catalog files are whole, and what is wrong with the other files.

    Every snapshot is looked at, and the plans and blocks that the chosen one names.

    Raises:
        NotATableError: the path holds no table.
        CatalogError: the chosen snapshot itself is damaged: nobody knows what the table should hold.
        SettingError: as :func:`layoutopt.scan.table.open_table`.
    """
    files = TableFiles(path, fresh=True)
    check_is_table(files)
    chosen = chosen_snapshot(files, snapshot, as_of)
    damaged = _damaged_snapshots(files, chosen.number)
    plans = {}
    for digest in chosen.plans_read:
        try:
            plans[digest] = read_plan(files, chosen, digest)
        except CatalogError as error:
            damaged[plan_path(digest)] = str(error)
    catalog = Catalog(files, chosen, plans)
    whole: list[PartitionEntry] = []
    for entry in chosen.partitions:
        if entry.plan not in plans or not damaged.keys().isdisjoint(entry.catalog_files):
            continue
        try:
            catalog.blocks(entry)
            whole.append(entry)
        except CatalogError as error:
            named = [path for path in entry.catalog_files if files.full_path(path) in str(error)]
            damaged[named[-1] if named else entry.blocks_file] = str(error)
    used = {entry.plan: plans[entry.plan] for entry in whole} if chosen.partitions else plans
    left = Catalog(files, replace(chosen, partitions=tuple(whole)), used)
    return Table(left), tuple(Problem("catalog", path, message) for path, message in damaged.items())


def _damaged_snapshots(files: TableFiles, chosen: int) -> dict[str, str]:
    found = {}
    for number in snapshot_numbers(files):
        try:
            if number != chosen:
                read_snapshot(files, number)
        except CatalogError as error:
            found[snapshot_path(number)] = str(error)
    return found
