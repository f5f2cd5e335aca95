"""The snapshots of a table: listing, reading, claiming a folder for a table."""

from __future__ import annotations

import bisect
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from layoutopt.catalog import snapshot_json
from layoutopt.catalog.fields import Text, read_field
from layoutopt.catalog.paths import CATALOG, MARKER, SNAPSHOTS, snapshot_number, snapshot_path
from layoutopt.catalog.snapshot import PartitionEntry, Snapshot
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.versions import ENCRYPTED, FORMAT, FORMAT_VERSION, OLDEST_SUPPORTED, check_version
from layoutopt.errors import (
    CatalogError,
    EncryptionKeyError,
    NoSnapshotError,
    NotATableError,
    SettingError,
    SourceIndexError,
)


def snapshot_numbers(files: TableFiles) -> tuple[int, ...]:
    """The numbers of the snapshots that are there, ascending; there may be gaps, and other files are ignored."""
    numbers = (snapshot_number(name) for name in files.list(SNAPSHOTS))
    return tuple(sorted(number for number in numbers if number is not None))


def snapshot_states(files: TableFiles) -> dict[int, tuple[int, float | None]]:
    """The sizes and times of change of all snapshots' files, by number.

    They tell a table from one of the same numbers that was there before.
    """
    found = ((snapshot_number(file.path.rpartition("/")[2]), file) for file in files.walk(SNAPSHOTS))
    return {number: (file.size, file.modified) for number, file in found if number is not None}


def newest_state(files: TableFiles) -> tuple[int, int, float | None] | None:
    """The highest snapshot's number, and what :func:`snapshot_states` has of it; None where there is none."""
    if files.local_root is None:  # one listing has all of it; on a disk one file is asked about
        return max(((number, *state) for number, state in snapshot_states(files).items()), default=None)
    numbers = snapshot_numbers(files)
    if not numbers:
        return None
    status = (files.local_root / snapshot_path(numbers[-1])).stat()
    return numbers[-1], status.st_size, status.st_mtime


def read_snapshot(files: TableFiles, number: int) -> Snapshot:
    """One snapshot.

    Raises:
        CatalogError: it is missing, damaged, or of a version that can't be read.
    """
    path = snapshot_path(number)
    where = files.full_path(path)
    try:
        data = files.read_bytes(path)
    except FileNotFoundError as error:
        raise NoSnapshotError(
            f"the table {files.root!r} has no snapshot {number}; choose one that `history` lists"
        ) from error
    snapshot = snapshot_json.loads(data, where)
    if snapshot.number != number:
        raise CatalogError(f"{where} holds snapshot {snapshot.number}; restore the file from a copy")
    return snapshot


def latest_snapshot(files: TableFiles) -> Snapshot | None:
    """The snapshot with the highest number, None where there is none.

    Raises:
        CatalogError: that snapshot is damaged or of a version that can't be read; older ones are no substitute.
    """
    numbers = snapshot_numbers(files)
    return read_snapshot(files, numbers[-1]) if numbers else None


def snapshot_as_of(files: TableFiles, time: str) -> Snapshot:
    """The newest snapshot that was there at a time (ISO 8601; UTC where it names no zone).

    Raises:
        SettingError: the text is no time.
        CatalogError: no snapshot is that old, or one is damaged.
    """
    try:
        moment = _moment(time)
    except ValueError as error:
        raise SettingError(f"{time!r} is no time; write it as 2024-05-31T12:00:00Z") from error
    numbers = snapshot_numbers(files)
    # Times never fall from one snapshot to the next, so few of many snapshots are read.
    later = bisect.bisect_right(numbers, moment, key=lambda number: _moment(read_snapshot(files, number).created_at))
    if later == 0:
        raise NoSnapshotError(
            f"the table {files.root!r} has no snapshot as old as {time}; choose one that `history` lists"
        )
    return read_snapshot(files, numbers[later - 1])


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


RESTORE: Final = "restore"
"""The operation of a snapshot that has an older one's content."""


@dataclass(frozen=True)
class HistoryEntry:
    """A snapshot in one line.

    Attributes:
        rows, partitions: of the whole table.
        changed: the keys of the partitions that it added, replaced or dropped; of a restore, only those whose rows or
            plan are others than before.
        changed_rows: the rows that these have now.
    """

    number: int
    created_at: str
    operation: str
    load_id: str
    rows: int
    partitions: int
    changed: tuple[str, ...]
    changed_rows: int
    parent: int | None


def history(files: TableFiles, newest: int | None = None, last: int | None = None) -> tuple[HistoryEntry, ...]:
    """The snapshots that are there, oldest first; what the oldest changed is reckoned against an empty table.

    Args:
        files: the table's.
        newest: leave out those after this number.
        last: how many of them, the newest; None for all. As few files are read.

    Raises:
        CatalogError: a snapshot is damaged.
    """
    entries = []
    before: Mapping[str, Sequence[PartitionEntry]] = {}
    numbers = [number for number in snapshot_numbers(files) if newest is None or number <= newest]
    # One more is read: what the first of them changed is told by the one before.
    for number in numbers if last is None else numbers[-last - 1 :]:
        snapshot = read_snapshot(files, number)
        after = snapshot.by_key
        content = _content if snapshot.operation == RESTORE else _loads_of
        keys = before.keys() | after.keys()
        changed = [key for key in keys if content(before.get(key, ())) != content(after.get(key, ()))]
        entries.append(
            HistoryEntry(
                number,
                snapshot.created_at,
                snapshot.operation,
                snapshot.load_id,
                snapshot.rows,
                len(after),
                tuple(sorted(changed)),
                sum(entry.live_rows for key in changed for entry in after.get(key, ())),
                snapshot.parent,
            )
        )
        before = after
    return tuple(entries if last is None else entries[-last:])


def _loads_of(entries: Sequence[PartitionEntry]) -> list[object]:
    return [(entry.load_id, entry.deletes) for entry in entries]


def _content(entries: Sequence[PartitionEntry]) -> list[object]:
    """What a partition has, whichever loads put it there."""
    return [(entry.plan, entry.live_rows, dict(entry.live_checksums)) for entry in entries]


def check_is_table(files: TableFiles) -> None:
    """Refuse paths that hold no table.

    Raises:
        NotATableError: the path holds nothing, a file, or a folder that layoutopt did not make.
        CatalogError: the folder's marker is damaged or of a version that can't be read.
        EncryptionKeyError: the table is encrypted, and the key can't be had or is another one; or it is not, and a key
            is given.
    """
    if not files.exists(""):
        raise NotATableError(f"there is nothing at {files.root!r}; `layoutopt load` makes a table there")
    if files.is_file(""):
        raise NotATableError(f"{files.root!r} is a file, not a table; name the table's folder")
    if not files.exists(MARKER):
        raise NotATableError(
            f"{files.root!r} holds something else than a layoutopt table (it has no {MARKER}); name a table's folder"
        )
    _check_marker(files)


INDEX_FORMAT: Final = "layoutopt-index"
"""What the marker of a folder says that holds indexes of files which somebody else keeps."""


def not_a_table(root: str, source: str) -> SourceIndexError:
    """The error for who asks for a table and names the indexes of a source."""
    return SourceIndexError(
        f"{root!r} holds the indexes of {source!r}, which `query`, `explain`, `files`, `serve`, `refresh`, `vacuum` "
        "and Spark sessions take; this asks for a table of layoutopt's own",
        source,
    )


def _check_marker(files: TableFiles) -> None:
    where = files.full_path(MARKER)
    content = snapshot_json.parse_json(files.read_bytes(MARKER), where)
    if content.get("format") == INDEX_FORMAT:
        check_version(content.get("version"), where, 1, 1)
        source = read_field(Text, content.get("source"), f"the source of {where}")
        raise not_a_table(files.root, source)
    if content.get("format") != FORMAT:
        raise NotATableError(f"{where} is of another format than {FORMAT!r}; name a layoutopt table's folder")
    check_version(content.get("version"), where, ENCRYPTED if "encryption" in content else FORMAT_VERSION)
    if files.keys is None and files.key is not None:
        raise EncryptionKeyError(f"the table {files.root!r} is not encrypted, but a key is given; leave the key out")


def _has_files(files: TableFiles) -> bool:
    """Whether a folder holds anything but what a claim has before its marker: an empty folder of ours."""
    names = files.list("")
    return bool(names) and (names != (CATALOG,) or bool(files.list(CATALOG)))


def _check_exclusive(files: TableFiles) -> None:
    """Ask the store to create the marker again, which it must refuse: it may ignore that files are to be new.

    Raises:
        CatalogError: it does ignore it, so two loads at once could overwrite each other's snapshot.
    """
    try:
        files.write_new(MARKER, files.read_bytes(MARKER))
    except FileExistsError:
        return
    raise CatalogError(
        f"the store of {files.root!r} overwrites files that should be created exclusively; put the table on one that "
        "can't, such as a local disk or a store with conditional puts"
    )


def source_of_index(root: str) -> str:
    """The source whose indexes a folder holds.

    Raises:
        NotATableError: it holds something else, a table too.
        CatalogError: its marker is damaged or of a version that can't be read.
    """
    try:
        check_is_table(TableFiles(root))
    except SourceIndexError as found:
        return found.source
    raise NotATableError(f"{root!r} is a table, not the indexes of a source; `layoutopt index` makes such a folder")


def newest_of_index(files: TableFiles, source: str) -> Snapshot | None:
    """What a folder holds of the indexes of a source: the newest snapshot, None where it is empty or not there.

    Raises:
        NotATableError: it holds something else, a table too.
        SourceIndexError: it holds the indexes of another source.
        CatalogError: the newest snapshot is damaged or of a version that can't be read.
    """
    if files.is_file("") or (_has_files(files) and not files.exists(MARKER)):
        raise NotATableError(f"{files.root!r} holds something else than indexes; name an empty or a new folder")
    if not files.exists(MARKER):
        return None
    held = source_of_index(files.root)
    if held != source:
        raise SourceIndexError(
            f"{files.root!r} holds the indexes of {held!r}, not of {source!r}; name an empty or a new folder", held
        )
    return latest_snapshot(files)


def claim_index_root(files: TableFiles, source: str) -> None:
    """Claim an empty folder for the indexes of a source.

    Raises:
        NotATableError, SourceIndexError: as :func:`newest_of_index`.
        CatalogError: the store can't create files exclusively.
    """
    marker = json.dumps({"format": INDEX_FORMAT, "version": 1, "source": source}).encode()
    with suppress(FileExistsError):
        files.write_new(MARKER, marker)
    newest_of_index(files, source)
    _check_exclusive(files)


def _marker(key: str | None) -> bytes:
    """What the marker of a new table says, encrypted by the key of a reference where there is one."""
    if key is None:
        return json.dumps({"format": FORMAT, "version": OLDEST_SUPPORTED}).encode()
    from layoutopt.encryption.table_keys import new_encryption

    return json.dumps({"format": FORMAT, "version": ENCRYPTED, "encryption": new_encryption(key)}).encode()


def ensure_table_root(files: TableFiles) -> Snapshot | None:
    """Claim a path for a table before a load writes its first data file; the newest snapshot, or None.

    A new table is encrypted where ``files`` name a key; one that is there must then be encrypted by that key.

    Raises:
        SettingError, EncryptionKeyError: the key can't be had, or the table that is there is not encrypted by it.
        NotATableError: the path holds something else.
        CatalogError: the newest snapshot is damaged or of a version that can't be read, or the store can't create files
            exclusively.
    """
    if files.is_file("") or (_has_files(files) and not files.exists(MARKER)):
        raise NotATableError(
            f"{files.root!r} holds something else than a layoutopt table; name an empty or a new folder to load into"
        )
    if not files.exists(MARKER):
        with suppress(FileExistsError):  # another loader claims it at this moment, which is as good
            files.write_new(MARKER, _marker(files.key))
    _check_marker(files)
    _check_exclusive(files)
    return latest_snapshot(files)
