"""Vacuum: remove snapshots that are given up, and the files that nothing names (SPEC.md, "Vacuum").

Nothing that is still needed can go, in four steps. What is to be removed is worked out on the newest snapshot, and by
the store's own clock. It is **committed** as tombstones of the next snapshot, or the vacuum starts again where
somebody else came first. From then on no load or restore can name any of it. Then snapshots are removed, the oldest
first; only then files. A crash anywhere leaves garbage, never a snapshot that lacks something.
"""

from __future__ import annotations

import errno
import io
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from layoutopt.catalog.block_index import check_expansion, damaged
from layoutopt.catalog.optimistic_commit import Change, CommitHook, append_snapshot, followed
from layoutopt.catalog.paths import (
    BLOCKS,
    CATALOG,
    DATA,
    DELETES,
    INDEXES,
    SNAPSHOTS,
    load_folder,
    load_of,
    new_load_id,
    snapshot_path,
)
from layoutopt.catalog.publications import PUBLISHED, note_paths, notes_among
from layoutopt.catalog.snapshot import Snapshot, check_is_table, latest_snapshot, read_snapshot, snapshot_numbers
from layoutopt.catalog.storage.exclusive import TEMPORARY
from layoutopt.catalog.storage.filesystem import StoredFile, TableFiles
from layoutopt.catalog.storage.index_files import named_indexes
from layoutopt.catalog.table import read_checked
from layoutopt.errors import CommitConflictError, NotATableError, SettingError, SourceIndexError, TableError

OPERATION = "vacuum"
VACUUM_POINTS = ("planned", "before-snapshot", "snapshot-created", "snapshot-removed", "file-removed", "finished")
"""Where ``at`` is called: those of the commit if there is one, "snapshot-removed" and "file-removed" after each."""

_MOST_ATTEMPTS = 20


@dataclass(frozen=True)
class VacuumReport:
    """What a vacuum removed, or with ``dry_run`` would.

    Attributes:
        table: the table's folder or URL.
        snapshot: the newest snapshot, afterwards.
        dry_run: whether nothing was removed.
        snapshots: the numbers of the snapshots removed.
        files: the other files removed, by path.
        bytes: their size.
        young: how many files nothing names that were left alone, since a load that runs may need them.
        published: the numbers of snapshots that are kept only because they are published as another format's table.
    """

    table: str
    snapshot: int
    dry_run: bool
    snapshots: tuple[int, ...]
    files: tuple[str, ...]
    bytes: int
    young: int
    published: tuple[int, ...] = ()

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        return asdict(self)


@dataclass(frozen=True)
class _Removal:
    """What is to go: snapshots, the folders and blocks files that nothing may name any more, the files, and notes.

    ``published`` are the snapshots that readers of other formats may need, ``kept`` those that are kept for them alone,
    ``notes`` the notes about others; ``horizon`` is the time before which things are old.
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

    A snapshot is kept if it is among the newest ``retain_snapshots`` (those that vacuums made not counted), or if it
    was the newest one at any time within ``older_than``. A file that nothing kept names is left alone while any file
    of its load is younger than that. Plans are small, and kept: a load may take up one that is there. A snapshot that
    is published as a table of another format is kept, too, until ``older_than`` after a later one took its place there.

    Args:
        files: the table's folder, or that of a source's indexes.
        retain_snapshots: at least 1.
        older_than: should be longer than any load or query takes; a load that is slower is refused, not broken.
        dry_run: only report.
        at: called at each of VACUUM_POINTS, for tests.

    Raises:
        NotATableError: the path holds no table, or one that was never loaded.
        SettingError: a bad number or time.
        CatalogError: a kept snapshot, or a blocks file of one, is missing or damaged: nothing is removed.
        CommitConflictError: too many others commit meanwhile.
    """
    if retain_snapshots < 1 or older_than < timedelta(0):
        raise SettingError(
            f"a vacuum that retains {retain_snapshots} snapshots and what is younger than {older_than} can't be; "
            "retain 1 or more, and give no negative time"
        )
    with suppress(SourceIndexError):  # a catalog like a table's, without data files
        check_is_table(files)
    for _ in range(_MOST_ATTEMPTS):
        removal = _plan(files, retain_snapshots, older_than)
        at("planned")
        if dry_run:
            return _report(files, removal, removal.latest.number, dry_run)
        try:
            newest = _commit_tombstones(files, removal, at)
        except _MovedError:
            continue
        # Whoever publishes notes it first, then looks for tombstones: one of the two sees the other.
        if _published(files.walk(PUBLISHED), removal.horizon)[0] - removal.published:
            continue
        _remove(files, removal, at)
        return _report(files, removal, newest.number, dry_run)
    raise CommitConflictError(
        f"{_MOST_ATTEMPTS} other commits came before the vacuum; try again when fewer loaders run"
    )


def _report(files: TableFiles, removal: _Removal, newest: int, dry_run: bool) -> VacuumReport:
    paths = tuple(sorted(file.path for file in removal.files))
    size = sum(file.size for file in removal.files)
    return VacuumReport(files.root, newest, dry_run, removal.snapshots, paths, size, removal.young, removal.kept)


def _plan(files: TableFiles, retain: int, older_than: timedelta) -> _Removal:
    """What may go, as things stand at the newest snapshot."""
    latest = latest_snapshot(files)
    if latest is None:
        raise NotATableError(f"the table at {files.root!r} was never loaded; there is nothing to vacuum")
    horizon = _now(files) - older_than.total_seconds()
    # Listed before snapshots are read: whatever is committed after that has files of its own, or is young.
    stored = [*files.walk(CATALOG), *files.walk(DATA)]
    kept = _kept(files, stored, latest, retain, horizon)
    oldest, numbers = kept[0].number, snapshot_numbers(files)
    wanted, notes = _published(stored, horizon)
    published = tuple(number for number in numbers if number < oldest and number in wanted)
    named = _named_files(files, [*(read_snapshot(files, number) for number in published), *kept])
    # Some disks list a file under the case of another partition's folder.
    folded = {path.casefold() for path in named}
    garbage = [file for file in stored if _is_ours(file.path) and file.path.casefold() not in folded]
    old = _old_enough(garbage, horizon)
    expired = tuple(number for number in numbers if number < oldest and number not in wanted)
    young = len(garbage) - len(old)
    return _Removal(latest, expired, _tombstones(old, named), tuple(old), young, horizon, wanted, published, notes)


def _now(files: TableFiles) -> float:
    """The time as :meth:`TableFiles.now` tells it; raises as that, and TableError on a full disk."""
    try:
        return files.now(CATALOG)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise TableError(
            f"the disk of {files.root!r} is full: make room for a few kilobytes, in which it is written down what is "
            "removed, then run this again"
        ) from error


def _published(stored: Iterable[StoredFile], horizon: float) -> tuple[frozenset[int], tuple[str, ...]]:
    """The snapshots that readers of other formats may need, and the notes about those that they no longer do."""
    needed: set[int] = set()
    old: list[str] = []
    for folder, notes in notes_among(stored).items():
        needed |= notes.needed(horizon)
        old += [path for number in sorted(notes.given_up(horizon)) for path in note_paths(folder, number)]
    return frozenset(needed), tuple(old)


def _kept(
    files: TableFiles, stored: Iterable[StoredFile], latest: Snapshot, retain: int, horizon: float
) -> list[Snapshot]:
    """The snapshots to keep, ascending and without a gap; a snapshot's time ends when its successor was stored."""
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


def _named_files(files: TableFiles, kept: Sequence[Snapshot]) -> frozenset[str]:
    """Every blocks, vectors, index and data file that the snapshots name, as it is stored."""
    partitions: dict[str, set[str]] = defaultdict(set)
    named: set[str] = set()
    digests: dict[str, Snapshot] = {}
    for snapshot in kept:
        for entry in snapshot.partitions:
            partitions[entry.blocks_file].add(entry.key)
            digests[entry.blocks_file] = snapshot
            named |= set(entry.catalog_files)
    for path, keys in partitions.items():
        named |= _named_in(files, digests[path], path, keys)
    return frozenset(map(files.stored_path, named))


def _named_in(files: TableFiles, snapshot: Snapshot, path: str, keys: set[str]) -> set[str]:
    """The data files of some partitions that a blocks file names, and the index files of its load."""
    where = files.full_path(path)
    data = read_checked(files, snapshot, path)
    try:
        check_expansion(pq.read_metadata(io.BytesIO(data)), len(data), where)
        table = pq.read_table(io.BytesIO(data), columns=["file", "partition"])
        of_keys = table.filter(pc.is_in(table["partition"], pa.array(sorted(keys), pa.string())))
        return {*of_keys["file"].to_pylist(), *(index.path for index in named_indexes(table.schema.metadata, where))}
    except (pa.ArrowException, OSError, KeyError) as error:
        raise damaged(where, str(error)) from error


def _is_ours(path: str) -> bool:
    """Whether a file is one that a load or a delete writes, or an unfinished one; all else is left alone."""
    folder, _, name = path.rpartition("/")
    if load_of(path) is not None or (folder in (BLOCKS, DELETES, INDEXES) and name.endswith(".parquet")):
        return True
    return name.startswith(TEMPORARY) and (folder == CATALOG or folder.startswith(f"{CATALOG}/"))


def _old_enough(garbage: Sequence[StoredFile], horizon: float) -> list[StoredFile]:
    """The files of loads that wrote none since ``horizon``; files of unknown age are young."""
    newest: dict[str, float] = defaultdict(lambda: float("-inf"))
    for file in garbage:
        age = float("inf") if file.modified is None else file.modified
        newest[_owner(file.path)] = max(newest[_owner(file.path)], age)
    return [file for file in garbage if newest[_owner(file.path)] <= horizon]


def _owner(path: str) -> str:
    """What ages together: all data files of a load, wherever they lie; any other file alone."""
    load = load_of(path)
    return load[1] if load is not None else path


def _tombstones(old: Iterable[StoredFile], named: Iterable[str]) -> tuple[str, ...]:
    """What nobody may name again: files, or the load's folder where nothing in it is named."""
    in_use = {load_folder(*load) for load in map(load_of, named) if load is not None}
    found = set()
    for file in old:
        load = load_of(file.path)
        folder = load_folder(*load) if load is not None else ""
        if not file.path.rpartition("/")[2].startswith(TEMPORARY):
            found.add(file.path if folder in {"", *in_use} else folder)
    return tuple(sorted(found))


class _MovedError(Exception):
    """Somebody else committed since the removal was worked out."""


def _commit_tombstones(files: TableFiles, removal: _Removal, at: CommitHook) -> Snapshot:
    """Commit tombstones of what is to go; no snapshot is needed where the newest has them already, or nothing goes."""
    latest = removal.latest
    needed = set(removal.tombstones)
    if needed <= set(latest.tombstones):
        return latest

    def after(now: Snapshot | None) -> Snapshot:
        if now is None or now.number != latest.number:
            raise _MovedError
        return followed(latest, latest, OPERATION, load_id, removal.tombstones)

    load_id = f"vacuum-{new_load_id()}"
    return append_snapshot(files, Change(load_id, latest, frozenset(), after), at)


def _remove(files: TableFiles, removal: _Removal, at: CommitHook) -> None:
    """Snapshots first, the oldest first: those that are there always follow each other; then what they named."""
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
