"""Restore: a new snapshot with an older one's content, committed as any other (SPEC.md, "Restore")."""

from __future__ import annotations

from layoutopt.catalog.optimistic_commit import (
    Change,
    CommitHook,
    append_snapshot,
    contents,
    followed,
    names_of,
    next_number,
)
from layoutopt.catalog.paths import DATA, new_load_id
from layoutopt.catalog.snapshot import Snapshot
from layoutopt.catalog.snapshots import RESTORE, latest_snapshot
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.errors import CatalogError, CommitConflictError

RESTORE_POINTS = ("started", "before-snapshot", "snapshot-created")
"""Where ``at`` is called, in order."""


def restore(files: TableFiles, number: int, *, at: CommitHook = lambda point: None) -> Snapshot:
    """Make the table what it was at a snapshot, and return the newest snapshot, which then has that content.

    Nothing is copied or removed: what came in between stays in the history. A table that has the content already is
    left as it is, so that a retry after a crash makes no second snapshot.

    Raises:
        NotATableError: the path holds no table.
        CatalogError: there is no such snapshot, or it, its catalog files or its data are damaged or missing.
        CommitConflictError: somebody else committed meanwhile, or a vacuum's tombstones have what the snapshot names.
        OSError: the store failed; the table is as it was.
    """
    catalog = Catalog.open(files.root, snapshot=number)
    target, latest = catalog.snapshot, latest_snapshot(files)
    at("started")
    if latest is not None and _same(target, latest):
        return latest
    data = _data_files(catalog)

    def after(now: Snapshot | None) -> Snapshot:
        if contents(now) != contents(latest):
            raise CommitConflictError(
                f"somebody else committed snapshot {next_number(now) - 1} while snapshot {number} was being restored; "
                "look at the table, then restore again if it still needs it"
            )
        return followed(now, target, RESTORE, load_id)

    load_id = f"restore-{new_load_id()}"
    # Planned on the old snapshot: what has a tombstone since then can't be named again.
    change = Change(load_id, target, names_of(target.partitions, data | _index_files(catalog)), after)
    return append_snapshot(files, change, at)


def _index_files(catalog: Catalog) -> frozenset[str]:
    """The index files of the snapshot; queries do without one that is missing."""
    return frozenset(index.path for _, blocks in catalog.block_tables() for index in blocks.index_files)


def _same(target: Snapshot, latest: Snapshot) -> bool:
    return (
        contents(target) == contents(latest)
        and target.schema == latest.schema
        and target.partition_by == latest.partition_by
    )


def _data_files(catalog: Catalog) -> frozenset[str]:
    """The data files of the snapshot, all there.

    Raises:
        CatalogError: one is missing, or a catalog file is damaged.
    """
    named = frozenset(path for _, blocks in catalog.block_tables() for path in blocks.files)
    there = {file.path for file in catalog.files.walk(DATA)}
    missing = {path for path in named if catalog.files.stored_path(path) not in there}
    if missing:
        raise CatalogError(
            f"snapshot {catalog.snapshot.number} can't be restored, its data file {min(missing)!r} is missing; "
            "restore that file from a copy, or choose another snapshot that `history` lists"
        )
    return named
