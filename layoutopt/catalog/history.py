"""The history of a table: what each snapshot changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from layoutopt.catalog.partition_entry import PartitionEntry, are_same
from layoutopt.catalog.paths import load_of_deletes
from layoutopt.catalog.snapshot import Snapshot, read_snapshot, snapshot_numbers
from layoutopt.catalog.storage.filesystem import TableFiles

# The operation of a snapshot with an older one's content.
RESTORE: Final = "restore"


@dataclass(frozen=True)
class HistoryEntry:
    """A snapshot's line in the history.

    Attributes:
        rows, partitions: of the whole table.
        changed: keys of the partitions added, replaced or dropped; for a restore, only where rows or plan differ.
            Where a vacuum removed the snapshot before, those that this one wrote; None for a restore, which wrote none.
        changed_rows: the rows that these have now.
    """

    number: int
    created_at: str
    operation: str
    load_id: str
    rows: int
    partitions: int
    changed: tuple[str, ...] | None
    changed_rows: int | None
    parent: int | None


def history(files: TableFiles, newest: int | None = None, last: int | None = None) -> tuple[HistoryEntry, ...]:
    """Return the table's history, oldest first; the first snapshot is compared with an empty table.

    Args:
        newest: leave out later snapshots.
        last: return only so many, the newest, and read no more files than needed; None for all.
    """
    entries = []
    before: Snapshot | None = None
    numbers = [number for number in snapshot_numbers(files) if newest is None or number <= newest]
    # The changes of the first entry need the snapshot before it.
    for number in numbers if last is None else numbers[-last - 1 :]:
        snapshot = read_snapshot(files, number)
        by_key, changed = snapshot.by_key, _find_changed(before, snapshot)
        changed_rows = None
        if changed is not None:
            changed_rows = sum(entry.live_rows for key in changed for entry in by_key.get(key, ()))
        row = (number, snapshot.created_at, snapshot.operation, snapshot.load_id, snapshot.rows, len(by_key))
        entries.append(HistoryEntry(*row, changed, changed_rows, snapshot.parent))
        before = snapshot
    return tuple(entries if last is None else entries[-last:])


def _find_changed(before: Snapshot | None, snapshot: Snapshot) -> tuple[str, ...] | None:
    """Return the keys of the partitions that a snapshot changed; None if that is unknown."""
    after = snapshot.by_key
    if snapshot.parent != (None if before is None else before.number):  # a vacuum removed the snapshot before
        written = {entry.key for entry in snapshot.partitions if _has_written(snapshot.load_id, entry)}
        return None if snapshot.operation == RESTORE else tuple(sorted(written))
    previous = {} if before is None else before.by_key
    content = _list_contents if snapshot.operation == RESTORE else _list_loads
    keys = [key for key in previous.keys() | after.keys() if not are_same(previous.get(key, ()), after.get(key, ()))]
    return tuple(sorted(key for key in keys if content(previous.get(key, ())) != content(after.get(key, ()))))


def _has_written(load_id: str, entry: PartitionEntry) -> bool:
    """Return whether a load wrote an entry or its deletion vectors."""
    return entry.load_id == load_id or (entry.deletes is not None and load_of_deletes(entry.deletes.file) == load_id)


def _list_loads(entries: Sequence[PartitionEntry]) -> list[object]:
    return [(entry.load_id, entry.deletes) for entry in entries]


def _list_contents(entries: Sequence[PartitionEntry]) -> list[object]:
    """Return what a partition holds, whichever loads wrote it."""
    return [(entry.plan, entry.live_rows, dict(entry.live_checksums)) for entry in entries]
