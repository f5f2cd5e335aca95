"""Vacuum: remove old snapshots, and files that no snapshot names (SPEC.md, "Vacuum").

Four steps keep needed files safe. The removal is planned on the newest snapshot, by the store's own clock. It is
**committed** as tombstones of the next snapshot; after a concurrent commit the vacuum starts again. From then on no
load or restore can name a removed file. Then snapshots are removed, the oldest first, and finally files. A crash leaves
garbage, never a snapshot with missing files.
"""

from __future__ import annotations

import errno
import io
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from layoutopt.catalog.block_index import check_expansion, damage_error
from layoutopt.catalog.optimistic_commit import Change, CommitHook, append_snapshot, make_next_snapshot
from layoutopt.catalog.paths import (
    BLOCKS,
    CATALOG,
    DATA,
    DELETES,
    INDEXES,
    MANIFESTS,
    SNAPSHOTS,
    SOURCES,
    load_folder,
    load_of,
    new_load_id,
    snapshot_path,
)
from layoutopt.catalog.publications import PUBLISHED, group_notes, note_paths
from layoutopt.catalog.snapshot import Snapshot, latest_snapshot, read_checked, read_snapshot, snapshot_numbers
from layoutopt.catalog.source_lists import find_source_lists
from layoutopt.catalog.storage.exclusive import TEMPORARY
from layoutopt.catalog.storage.filesystem import StoredFile, TableFiles
from layoutopt.catalog.storage.index_files import list_index_files
from layoutopt.catalog.table_root import check_is_table
from layoutopt.errors import CommitConflictError, NotATableError, SettingError, SourceIndexError, TableError
from layoutopt.model.summary import Report

OPERATION = "vacuum"
# The points at which ``at`` is called: those of a commit if any, "snapshot-removed" and "file-removed" after each.
VACUUM_POINTS = ("planned", "before-snapshot", "snapshot-created", "snapshot-removed", "file-removed", "finished")

_MOST_ATTEMPTS = 20


@dataclass(frozen=True)
class VacuumReport(Report):
    """What a vacuum removed, or with ``dry_run`` would remove.

    Attributes:
        snapshot: the newest snapshot, afterwards.
        snapshots: the numbers of the removed snapshots.
        files: the other removed files, by path; ``bytes`` is their size.
        young: the number of unnamed files that were kept, since a running load may need them.
        published: the numbers of snapshots that are kept only because they are published in another format.
    """

    table: str
    snapshot: int
    dry_run: bool
    snapshots: tuple[int, ...]
    files: tuple[str, ...]
    bytes: int
    young: int
    published: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Removal:
    """A planned removal: snapshots, tombstones, files older than ``horizon``, and notes of publications.

    ``published`` are the snapshots that readers of other formats may need, ``kept`` those that are kept only for them.
    """

    latest: Snapshot
    snapshots: tuple[int, ...]
    tombstones: tuple[str, ...]
    files: tuple[StoredFile, ...]
    young: int
    horizon: float
    published: frozenset[int]
    kept: tuple[int, ...]
    notes: tuple[str, ...]


def vacuum(
    files: TableFiles,
    retain_snapshots: int,
    older_than: timedelta,
    *,
    dry_run: bool = False,
    at: CommitHook = lambda point: None,
) -> VacuumReport:
    """Remove old snapshots, and the files that no kept snapshot names and no running load may need.

    A snapshot is kept if it is among the newest ``retain_snapshots`` (not counting those of vacuums), or if it was the
    newest one at any time within ``older_than``. An unnamed file is kept while any file of its load is younger than
    that. Plans are small and kept: a load may reuse one. A published snapshot is kept until ``older_than`` after a
    later one replaced it there.

    Args:
        files: the table's folder, or that of a source's indexes.
        retain_snapshots: at least 1.
        older_than: should be longer than any load or query takes; a slower load is refused, not broken.
        dry_run: only report.
        at: called at each of VACUUM_POINTS, for tests.

    Raises:
        NotATableError: the path holds no table, or one that was never loaded.
        SettingError: a bad number or time.
        CatalogError: a kept snapshot, or a blocks file of one, is missing or damaged: nothing is removed.
        CommitConflictError: there are too many concurrent commits.
    """
    if retain_snapshots < 1 or older_than < timedelta(0):
        raise SettingError(
            f"a vacuum can't retain {retain_snapshots} snapshots and files younger than {older_than}; "
            "retain 1 or more, and give no negative time"
        )
    with suppress(SourceIndexError):  # a catalog like a table's, without data files
        check_is_table(files)
    for _ in range(_MOST_ATTEMPTS):
        removal = _plan_removal(files, retain_snapshots, older_than)
        at("planned")
        if dry_run:
            return _make_report(files, removal, removal.latest.number, dry_run)
        try:
            newest = _commit_tombstones(files, removal, at)
        except _StaleRemovalError:
            continue
        # A publication writes its note first, then looks for tombstones: one of the two sees the other.
        if _find_published(files.walk(PUBLISHED), removal.horizon)[0] - removal.published:
            continue
        _remove(files, removal, at)
        return _make_report(files, removal, newest.number, dry_run)
    raise CommitConflictError(
        f"{_MOST_ATTEMPTS} other commits came before the vacuum; try again when fewer loaders run"
    )


def _make_report(files: TableFiles, removal: _Removal, newest: int, dry_run: bool) -> VacuumReport:
    paths = tuple(sorted(file.path for file in removal.files))
    size = sum(file.size for file in removal.files)
    return VacuumReport(files.root, newest, dry_run, removal.snapshots, paths, size, removal.young, removal.kept)


def _plan_removal(files: TableFiles, retain: int, older_than: timedelta) -> _Removal:
    latest = latest_snapshot(files)
    if latest is None:
        raise NotATableError(f"the table at {files.root!r} was never loaded; there is nothing to vacuum")
    horizon = _read_clock(files) - older_than.total_seconds()
    # List files before reading snapshots: the files of later commits are not listed, or are young.
    stored = [*files.walk(CATALOG), *files.walk(DATA)]
    kept = _find_kept(files, stored, latest, retain, horizon)
    oldest, numbers = kept[0].number, snapshot_numbers(files)
    noted, notes = _find_published(stored, horizon)
    published = tuple(number for number in numbers if number < oldest and number in noted)
    needed = _list_named_files(files, [*(read_snapshot(files, number) for number in published), *kept])
    # Some disks list a file under the case of another partition's folder.
    folded = {path.casefold() for path in needed}
    garbage = [file for file in stored if _is_removable(file.path) and file.path.casefold() not in folded]
    old = _select_old(garbage, horizon)
    expired = tuple(number for number in numbers if number < oldest and number not in noted)
    young = len(garbage) - len(old)
    return _Removal(latest, expired, _make_tombstones(old, needed), tuple(old), young, horizon, noted, published, notes)


def _read_clock(files: TableFiles) -> float:
    """Return the store's time; raise TableError on a full disk."""
    try:
        return files.now(CATALOG)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise TableError(
            f"the disk of {files.root!r} is full; free a few kilobytes for the record of the removed files, then run "
            "this again"
        ) from error


def _find_published(stored: Iterable[StoredFile], horizon: float) -> tuple[frozenset[int], tuple[str, ...]]:
    """Return the snapshots that readers of other formats may need, and obsolete notes."""
    needed: set[int] = set()
    old: list[str] = []
    for folder, notes in group_notes(stored).items():
        needed |= notes.needed(horizon)
        old += [path for number in sorted(notes.given_up(horizon)) for path in note_paths(folder, number)]
    return frozenset(needed), tuple(old)


def _find_kept(
    files: TableFiles, stored: Iterable[StoredFile], latest: Snapshot, retain: int, horizon: float
) -> list[Snapshot]:
    """Return the snapshots to keep, ascending, without a gap; a snapshot's time ends when its successor was stored."""
    times = {file.path: file.modified for file in stored if file.path.startswith(f"{SNAPSHOTS}/")}
    kept = [latest]
    loads = int(latest.operation != OPERATION)
    numbers = [number for number in snapshot_numbers(files) if number < latest.number]
    for number in reversed(numbers):
        ended = times.get(snapshot_path(kept[0].number))
        if loads >= retain and ended is not None and ended <= horizon:
            break
        kept.insert(0, read_snapshot(files, number))
        loads += kept[0].operation != OPERATION
    return kept


def _list_named_files(files: TableFiles, kept: Sequence[Snapshot]) -> frozenset[str]:
    """Return every stored manifest, blocks, vectors, index, source list and data file that the snapshots name."""
    partitions: dict[str, set[str]] = defaultdict(set)
    paths: set[str] = set()
    sources: dict[str, Snapshot] = {}
    for snapshot in kept:
        paths |= {manifest.path for manifest in snapshot.manifests}
        for entry in snapshot.partitions:
            partitions[entry.blocks_file].add(entry.key)
            sources[entry.blocks_file] = snapshot
            paths |= set(entry.catalog_files)
    for path, keys in partitions.items():
        paths |= _list_names(files, sources[path], path, keys)
    return frozenset(map(files.stored_path, paths))


def _list_names(files: TableFiles, snapshot: Snapshot, path: str, keys: set[str]) -> set[str]:
    """Return the data files of some partitions in a blocks file, and the index files and source lists of its load."""
    where = files.full_path(path)
    data = read_checked(files, snapshot, path)
    try:
        check_expansion(pq.read_metadata(io.BytesIO(data)), len(data), where)
        table = pq.read_table(io.BytesIO(data), columns=["file", "partition"])
        rows = table.filter(pc.is_in(table["partition"], pa.array(sorted(keys), pa.string())))
        lists = find_source_lists(table.schema.metadata, where)
        index_files = (index.path for index in list_index_files(table.schema.metadata, where))
        return {*rows["file"].to_pylist(), *index_files, *([] if lists is None else [lists.path])}
    except (pa.ArrowException, OSError, KeyError) as error:
        raise damage_error(where, str(error)) from error


def _is_removable(path: str) -> bool:
    """Return whether a load or a delete writes such files; all others are kept."""
    folder, _, name = path.rpartition("/")
    if load_of(path) is not None or (
        folder in (BLOCKS, DELETES, INDEXES, MANIFESTS, SOURCES) and name.endswith(".parquet")
    ):
        return True
    return name.startswith(TEMPORARY) and (folder == CATALOG or folder.startswith(f"{CATALOG}/"))


def _select_old(garbage: Sequence[StoredFile], horizon: float) -> list[StoredFile]:
    """Return the files of loads that wrote none since ``horizon``; files of unknown age are young."""
    newest: dict[str, float] = defaultdict(lambda: float("-inf"))
    for file in garbage:
        age = float("inf") if file.modified is None else file.modified
        newest[_find_owner(file.path)] = max(newest[_find_owner(file.path)], age)
    return [file for file in garbage if newest[_find_owner(file.path)] <= horizon]


def _find_owner(path: str) -> str:
    """Return what ages together: all data files of a load; any other file alone."""
    load = load_of(path)
    return load[1] if load is not None else path


def _make_tombstones(old: Iterable[StoredFile], needed: Iterable[str]) -> tuple[str, ...]:
    """Return the files that no commit may name again, or the load's folder where no file in it is named."""
    in_use = {load_folder(*load) for load in map(load_of, needed) if load is not None}
    tombstones = set()
    for file in old:
        load = load_of(file.path)
        folder = load_folder(*load) if load is not None else ""
        if not file.path.rpartition("/")[2].startswith(TEMPORARY):
            tombstones.add(file.path if folder in {"", *in_use} else folder)
    return tuple(sorted(tombstones))


class _StaleRemovalError(Exception):
    """Another commit came after the removal was planned."""


def _commit_tombstones(files: TableFiles, removal: _Removal, at: CommitHook) -> Snapshot:
    """Commit the removal's tombstones, unless the newest snapshot has them already."""
    latest = removal.latest
    needed = set(removal.tombstones)
    if needed <= set(latest.tombstones):
        # A listed file of a later base may lie in one of its folders, and its commit reads no tombstone of this one.
        if needed and snapshot_numbers(files)[-1] != latest.number:
            raise _StaleRemovalError
        return latest

    def after(now: Snapshot | None) -> Snapshot:
        if now is None or now.number != latest.number:
            raise _StaleRemovalError
        return make_next_snapshot(latest, latest, OPERATION, load_id, removal.tombstones)

    load_id = f"vacuum-{new_load_id()}"
    return append_snapshot(files, Change(load_id, latest, frozenset(), after), at)


def _remove(files: TableFiles, removal: _Removal, at: CommitHook) -> None:
    """Remove snapshots, the oldest first so that no gap arises, then their files."""
    for number in removal.snapshots:
        files.delete(snapshot_path(number))
        at("snapshot-removed")
    for file in sorted(removal.files, key=lambda file: file.path):
        files.delete(file.path)
        at("file-removed")
    for path in removal.notes:
        files.delete(path)
    for path in removal.tombstones:
        if path.startswith(f"{DATA}/") and not path.endswith(".parquet"):
            files.delete_empty_folders(path)
    at("finished")
