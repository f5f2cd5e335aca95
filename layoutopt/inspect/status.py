"""What a table holds, at a glance: partitions, plans, blocks, bytes, last loads. Nothing is locked; writers go on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from layoutopt.catalog.snapshot import PartitionEntry
from layoutopt.catalog.snapshots import HistoryEntry, history
from layoutopt.catalog.table import Catalog
from layoutopt.model.layout import Plan

LOADS = 10


@dataclass(frozen=True)
class PartitionStatus:
    """A partition: its rows and blocks, the compressed bytes of its columns, its plan and the load that made it."""

    key: str
    rows: int
    blocks: int
    bytes: int
    plan: str
    load_id: str


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

    def to_json(self) -> dict[str, Any]:
        """The status as JSON."""
        return asdict(self)


def status(catalog: Catalog) -> Status:
    """The status of a table at the snapshot at which its catalog was opened.

    Raises:
        CatalogError: a catalog file is damaged.
    """
    snapshot = catalog.snapshot
    partitions = tuple(_partition(entry, catalog.blocks(entry).n) for entry in catalog.partitions)
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
    )


def current_plan(catalog: Catalog) -> Plan:
    """The plan that came to the table last; new partitions are loaded by it unless another is given.

    A partition that is loaded again by an older plan does not bring that back. The table must have partitions.
    """
    first: dict[str, str] = {}
    for entry in catalog.partitions:
        first[entry.plan] = min(entry.load_id, first.get(entry.plan, entry.load_id))
    return catalog.plans[max(first, key=lambda digest: (first[digest], digest))]


def _partition(entry: PartitionEntry, blocks: int) -> PartitionStatus:
    return PartitionStatus(entry.key, entry.rows, blocks, entry.bytes, entry.plan, entry.load_id)


def _plan(plan: Plan, catalog: Catalog, current: bool) -> PlanStatus:
    mine = [entry for entry in catalog.partitions if entry.plan == plan.digest]
    rows = sum(entry.rows for entry in mine)
    return PlanStatus(plan.digest, plan.method, len(plan.scheme.layouts), len(plan.features), len(mine), rows, current)
