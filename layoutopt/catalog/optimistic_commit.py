"""The optimistic commit by which one snapshot follows another: a load's, a restore's or a vacuum's (SPEC.md, "Commit").

Whatever is committed is written under the number after the newest snapshot, which one writer alone can create. Before
each attempt the snapshots since the change's base are read, the newest of them becomes the parent, and the change is
refused where they can't be had (a vacuum removed some) or have a tombstone for a file that the change names. A vacuum
therefore only has to commit tombstones before it removes files, and no load or restore can ever name what is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from layoutopt.catalog.paths import MARKER, load_folder, load_of, snapshot_path
from layoutopt.catalog.snapshot import Deletes, PartitionEntry, Snapshot, dumps, read_snapshot, snapshot_numbers
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import CatalogError, CommitConflictError

CommitHook = Callable[[str], None]

_MOST_ATTEMPTS = 100


@dataclass(frozen=True)
class Change:
    """Something to be committed.

    Attributes:
        load_id: its identifier; a snapshot since ``base`` that has it is this very change, made by an earlier attempt.
        base: the snapshot that it was planned on, None for a new table.
        names: the load folders, blocks, index and data files that it names (not plans: vacuums leave those).
        after: the snapshot that it makes of the newest one; raises where it can't be.
    """

    load_id: str
    base: Snapshot | None
    names: frozenset[str]
    after: Callable[[Snapshot | None], Snapshot]


def append_snapshot(files: TableFiles, change: Change, at: CommitHook = lambda point: None) -> Snapshot:
    """Commit a change as the next snapshot, whoever else commits meanwhile; the same change twice is done once.

    Raises:
        CommitConflictError: a file that it names has a tombstone, or too many others commit.
        CatalogError: a snapshot since its base is damaged or gone.
        OSError: the store failed; the table is as it was.
    """
    for _ in range(_MOST_ATTEMPTS):
        history = snapshots_since(files, change.base)
        made = find_change(history, change.load_id)
        if made is not None:
            return made
        check_no_tombstone(files, history, change)
        # The newest of the very snapshots that were looked through: a later one may give files up.
        snapshot = change.after(history[-1] if history else change.base)
        at("before-snapshot")
        try:
            files.write_new(snapshot_path(snapshot.number), dumps(snapshot))
        except FileExistsError:
            continue
        except OSError:
            # The store failed, perhaps after it had done its work. Only looking tells.
            made = find_change(snapshots_since(files, change.base), change.load_id)
            if made is None:
                raise
            return made
        at("snapshot-created")
        return snapshot
    raise CommitConflictError(
        f"{_MOST_ATTEMPTS} other commits came before {change.load_id!r}; try again when fewer loaders run"
    )


def snapshots_since(files: TableFiles, base: Snapshot | None) -> tuple[Snapshot, ...]:
    """The snapshots after ``base``, ascending; all of them for None.

    Raises:
        CatalogError: one is damaged, or some are no longer there, or the table is another one by now: nobody knows what
            happened since, not even whether the change was made. (No conflict: of a refused load the files may be
            removed, of this one not.)
    """
    first = 0 if base is None else base.number + 1
    there = snapshot_numbers(files)
    numbers = [number for number in there if number >= first]
    _check_is_the_table(files, base, there, numbers)
    if numbers and numbers != list(range(first, first + len(numbers))):
        raise CatalogError(
            f"the table {files.root!r} no longer has every snapshot from {first} to {numbers[-1]}, so nothing planned "
            "on an earlier one can be committed; look at the table, and load again if it needs it"
        )
    return tuple(read_snapshot(files, number) for number in numbers)


def _check_is_the_table(files: TableFiles, base: Snapshot | None, there: Sequence[int], since: Sequence[int]) -> None:
    """Refuse a table that was removed, put back from a copy or made again since the base: it may have lost anything.

    A vacuum may have removed the base, but then there are later ones.
    """
    same = files.exists(MARKER)
    if same and base is not None:
        if base.number in there:
            found = read_snapshot(files, base.number)
            same = (found.load_id, found.created_at) == (base.load_id, base.created_at)
        else:
            same = bool(since)
    if not same:
        planned = "nothing" if base is None else f"snapshot {base.number}"
        raise CatalogError(
            f"the table {files.root!r} was removed or replaced meanwhile (this was to follow {planned} of "
            "it); nothing was committed, so look at the table, then start again"
        )


def find_change(history: Sequence[Snapshot], load_id: str) -> Snapshot | None:
    """The snapshot that a change made, if an earlier attempt got that far."""
    return next((snapshot for snapshot in reversed(history) if snapshot.load_id == load_id), None)


def check_no_tombstone(files: TableFiles, history: Iterable[Snapshot], change: Change) -> None:
    """Refuse a change that names what a vacuum has removed, or is about to.

    Raises:
        CommitConflictError: it does.
    """
    past = [*([] if change.base is None else [change.base]), *history]
    gone = sorted({path for each in past for path in each.tombstones} & set(map(files.stored_path, change.names)))
    if gone:
        raise CommitConflictError(
            f"a vacuum gave up {gone[0]!r}, which {change.load_id!r} needs, as older than its --older-than; "
            "start again, and vacuum with a longer time"
        )


def names_of(entries: Iterable[PartitionEntry], written: Iterable[str]) -> frozenset[str]:
    """What partitions need and a vacuum may remove: folders of loads, blocks and vectors, and the data and index files.

    Files of an entry may lie in folders of older loads than its own, of which a vacuum gives up whole ones.
    """
    written = list(written)
    folders = {load_folder(*load) for load in map(load_of, written) if load is not None}
    of_entries = (path for entry in entries for path in (load_folder(entry.key, entry.load_id), *entry.catalog_files))
    return frozenset([*of_entries, *written, *folders])


def contents(snapshot: Snapshot | None) -> dict[str, list[tuple[str, str, Deletes | None]]]:
    """Which loads each partition holds, by which plans and less which rows: what makes two snapshots the same table."""
    if snapshot is None:
        return {}
    return {
        key: [(entry.load_id, entry.plan, entry.deletes) for entry in entries]
        for key, entries in snapshot.by_key.items()
    }


def followed(
    latest: Snapshot | None, content: Snapshot, operation: str, load_id: str, tombstones: tuple[str, ...] = ()
) -> Snapshot:
    """The snapshot after the newest one, with the partitions, schema and files of ``content``."""
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
    """The number after the newest snapshot's."""
    return 0 if latest is None else latest.number + 1


def next_time(latest: Snapshot | None) -> str:
    """The time in UTC to the microsecond, but never before the latest snapshot's: clocks differ, history does not."""
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    return now if latest is None else max(now, latest.created_at)
