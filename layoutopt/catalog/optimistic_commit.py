"""The optimistic commit of loads, restores and vacuums: one snapshot follows another (SPEC.md, "Commit").

A change is written under the number after the newest snapshot, which only one writer can create. Each attempt first
reads the snapshots since the change's base and takes the newest as parent. It refuses the change if a vacuum removed
some of them, or if one has a tombstone for a file that the change names. So a vacuum commits tombstones before it
removes files, and no load or restore can name a removed file. Earlier snapshots need no look: the files that a change
writes are named by its base (:mod:`layoutopt.catalog.paths`), so a vacuum that gives one up commits after the base.

A vacuum may have removed the very snapshot whose number a slow writer takes. So each snapshot names the load of its
parent, and a writer looks, after it wrote, whether the next snapshot follows its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise

from layoutopt.catalog.manifest_writing import dumps_with_manifests, name_manifests
from layoutopt.catalog.partition_entry import Deletes, PartitionEntry
from layoutopt.catalog.paths import MARKER, load_folder, load_of, snapshot_path
from layoutopt.catalog.snapshot import Snapshot, SnapshotHead, read_head, snapshot_numbers
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import CatalogError, CommitConflictError, StoreError

CommitHook = Callable[[str], None]

_MOST_ATTEMPTS = 100


@dataclass(frozen=True)
class Change:
    """A change to be committed.

    Attributes:
        load_id: a snapshot since ``base`` with this identifier is the same change, made by an earlier attempt.
        base: the snapshot that it was planned on, None for a new table.
        names: the load folders, blocks, index and data files that it names (not plans: vacuums keep those).
        after: returns the snapshot that follows the newest one; raises where the change conflicts.
        shares: whether the snapshot may name manifests of earlier ones.
    """

    load_id: str
    base: Snapshot | None
    names: frozenset[str]
    after: Callable[[Snapshot | None], Snapshot]
    shares: bool = True


def append_snapshot(files: TableFiles, change: Change, at: CommitHook = lambda point: None) -> Snapshot:
    """Commit a change as the next snapshot, despite concurrent commits; the same change is committed once.

    Raises:
        CommitConflictError: a file that it names has a tombstone, or there are too many concurrent commits.
        CatalogError: a snapshot since its base is damaged or missing.
        OSError: the store failed; the table is unchanged.
    """
    for _ in range(_MOST_ATTEMPTS):
        history = snapshots_since(files, change.base)
        committed = find_change(files, history, change.load_id)
        if committed is not None:
            return committed
        check_no_tombstone(files, history, change)
        # Follow the newest of the snapshots just checked: a later one may have tombstones.
        latest = history[-1].read(files) if history else change.base
        after = replace(change.after(latest), parent_load=None if latest is None else latest.load_id)
        snapshot = name_manifests(files, after, latest, change.load_id, shares=change.shares)
        at("before-snapshot")
        try:
            files.write_new(snapshot_path(snapshot.number), dumps_with_manifests(snapshot))
        except FileExistsError:
            continue
        except (OSError, StoreError):
            # The store failed, perhaps after it wrote the snapshot.
            committed = find_change(files, snapshots_since(files, change.base), change.load_id)
            if committed is None:
                raise
            return committed
        at("snapshot-created")
        _check_followed(files, snapshot)
        return snapshot
    raise CommitConflictError(
        f"{_MOST_ATTEMPTS} other commits came before {change.load_id!r}; try again when fewer loaders run"
    )


def snapshots_since(files: TableFiles, base: Snapshot | None) -> tuple[SnapshotHead, ...]:
    """Read the heads of the snapshots after ``base``, ascending; all of them for None.

    Raises CatalogError if one is damaged or missing, or the table was replaced: then it is unknown whether a change was
    made. So it is where a writer died that had taken the number of a removed snapshot. (This is no conflict: a
    conflict's files may be removed, these may not.)
    """
    first = 0 if base is None else base.number + 1
    existing = snapshot_numbers(files)
    numbers = [number for number in existing if number >= first]
    _check_is_the_table(files, base, existing, numbers)
    if numbers and numbers != list(range(first, first + len(numbers))):
        raise _make_gap_error(files, first, numbers[-1])
    heads = tuple(read_head(files, number) for number in numbers)
    chain: list[Snapshot | SnapshotHead] = [*([] if base is None else [base]), *heads]
    if not all(_follows(head, previous) for previous, head in pairwise(chain)):
        raise _make_gap_error(files, first, numbers[-1])
    return heads


def _make_gap_error(files: TableFiles, first: int, last: int) -> CatalogError:
    return CatalogError(
        f"the table {files.root!r} no longer has every snapshot from {first} to {last}, so nothing planned on an "
        "earlier one can be committed; look at the table, and load again if it needs it"
    )


def _follows(head: Snapshot | SnapshotHead, previous: Snapshot | SnapshotHead) -> bool:
    """Return whether a snapshot was made from the one before it; older versions did not note that."""
    return head.number == previous.number + 1 and head.parent_load in (None, previous.load_id)


def _check_followed(files: TableFiles, snapshot: Snapshot) -> None:
    """Raise CatalogError if later snapshots don't follow a new one: its number was that of a removed snapshot.

    No reader takes the new one for the newest then. It is removed where that is sure.
    """
    later = [number for number in snapshot_numbers(files) if number > snapshot.number]
    if not later:
        return
    head = read_head(files, later[0])
    if not _follows(head, snapshot):
        if head.number == snapshot.number + 1:
            files.delete(snapshot_path(snapshot.number))
        raise _make_gap_error(files, snapshot.number, later[-1])


def _check_is_the_table(
    files: TableFiles, base: Snapshot | None, existing: Sequence[int], since: Sequence[int]
) -> None:
    """Refuse a table that was removed, restored or created again since the base: it may have lost commits."""
    same = files.exists(MARKER)
    if same and base is not None:
        if base.number in existing:
            head = read_head(files, base.number)
            same = (head.load_id, head.created_at) == (base.load_id, base.created_at)
        else:
            same = bool(since)
    if not same:
        planned = "nothing" if base is None else f"snapshot {base.number}"
        raise CatalogError(
            f"the table {files.root!r} was removed or replaced meanwhile (this change was planned on {planned} of it); "
            "nothing was committed, so look at the table, then start again"
        )


def find_change(files: TableFiles, history: Sequence[SnapshotHead], load_id: str) -> Snapshot | None:
    """Read the snapshot that a change made in an earlier attempt, if any."""
    return next((head.read(files) for head in reversed(history) if head.load_id == load_id), None)


def check_no_tombstone(files: TableFiles, history: Iterable[Snapshot | SnapshotHead], change: Change) -> None:
    """Refuse a change that names files which a vacuum removed, or is about to; raise CommitConflictError if it does."""
    past = [*([] if change.base is None else [change.base]), *history]
    missing = sorted(
        {path for snapshot in past for path in snapshot.tombstones} & set(map(files.stored_path, change.names))
    )
    if missing:
        raise CommitConflictError(
            f"a vacuum removed {missing[0]!r}, which {change.load_id!r} needs, since it is older than --older-than; "
            "start again, and vacuum with a longer time"
        )


def names_of(entries: Iterable[PartitionEntry], paths: Iterable[str]) -> frozenset[str]:
    """Return what partitions need and a vacuum may remove: load folders, blocks, vectors, data and index files.

    Files of an entry may lie in folders of older loads, which a vacuum removes whole.
    """
    paths = list(paths)
    folders = {load_folder(*load) for load in map(load_of, paths) if load is not None}
    of_entries = (path for entry in entries for path in (load_folder(entry.key, entry.load_id), *entry.catalog_files))
    return frozenset([*of_entries, *paths, *folders])


def list_contents(snapshot: Snapshot | None) -> dict[str, list[tuple[str, str, Deletes | None]]]:
    """Return each partition's loads, with their plans and deletes: equal contents are the same table."""
    if snapshot is None:
        return {}
    return {
        key: [(entry.load_id, entry.plan, entry.deletes) for entry in entries]
        for key, entries in snapshot.by_key.items()
    }


def make_next_snapshot(
    latest: Snapshot | None, content: Snapshot, operation: str, load_id: str, tombstones: tuple[str, ...] = ()
) -> Snapshot:
    """Return the snapshot after the newest one, with the partitions, schema and files of ``content``."""
    return replace(
        content,
        number=next_number(latest),
        parent=None if latest is None else latest.number,
        created_at=next_time(latest),
        operation=operation,
        load_id=load_id,
        tombstones=tombstones,
    )


def next_number(latest: Snapshot | None) -> int:
    """Return the number after the newest snapshot's."""
    return 0 if latest is None else latest.number + 1


def next_time(latest: Snapshot | None) -> str:
    """Return the time in UTC to the microsecond, never before the latest snapshot's: clocks of writers differ."""
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    return now if latest is None else max(now, latest.created_at)
