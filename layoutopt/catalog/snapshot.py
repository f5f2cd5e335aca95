"""The nouns of a snapshot: what a table is at one moment. Their JSON is in :mod:`layoutopt.catalog.snapshot`."""

from __future__ import annotations

import base64
import bisect
import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Annotated, Any, ClassVar, Final, Literal

from layoutopt.catalog.keys import is_wide_decimal
from layoutopt.catalog.paths import (
    CATALOG,
    MARKER,
    SNAPSHOTS,
    Count,
    Digest,
    FileDigest,
    LoadId,
    PartitionKey,
    SafePath,
    Text,
    UtcTime,
    plan_path,
    read_field,
    snapshot_number,
    snapshot_path,
)
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import (
    CatalogError,
    EncryptionKeyError,
    NoSnapshotError,
    NotATableError,
    SettingError,
    SourceIndexError,
)
from layoutopt.model.records import As, Form, Record, short
from layoutopt.model.schema import Schema
from layoutopt.model.values import Key, key_kind

# ----------------------------------------------------------------------------------------------------
# Versions of the on-disk format, in four states.

FORMAT = "layoutopt-table"
FORMAT_VERSION = 3
"""The newest: rows may be deleted by vectors, which a reader that knows nothing of them would bring back."""

ENCRYPTED = 4
"""The version of an encrypted table's marker: programs that know nothing of keys see that the table is too new."""

SEVERAL_ENTRIES = 2
"""From this one on a partition may have several entries, and batches that were appended are listed."""

OLDEST_SUPPORTED = 1
"""The oldest that is read. It is written, too, where it can say all that there is: older programs then go on."""

VersionState = Literal["current", "supported", "unsupported", "too new"]


def version_state(version: int, current: int = FORMAT_VERSION, oldest: int = OLDEST_SUPPORTED) -> VersionState:
    """What this program makes of a format version: write and read it, only read it, or neither.

    >>> [version_state(v, current=3, oldest=2) for v in (1, 2, 3, 4)]
    ['unsupported', 'supported', 'current', 'too new']
    """
    if version == current:
        return "current"
    if version > current:
        return "too new"
    return "supported" if version >= oldest else "unsupported"


def check_version(version: object, where: str, current: int = FORMAT_VERSION, oldest: int = OLDEST_SUPPORTED) -> None:
    """Refuse versions that can't be read.

    Raises:
        CatalogError: the version is no number, unsupported or too new.
    """
    state = version_state(number := read_field(Count, version, f"the version of {where}"), current, oldest)
    if state == "too new":
        raise CatalogError(f"{where} has format version {number}, newer than {current}; install a newer layoutopt")
    if state == "unsupported":
        raise CatalogError(f"{where} has format version {number}, older than {oldest}; load the table again")


Scalar = str | int | float | bool | None


@dataclass(frozen=True)
class Bounds:
    """What is known of one column over a set of rows.

    ``low`` and ``high`` are keys (:mod:`layoutopt.model.values`): no non-null value lies outside (a NaN has the largest
    key). Both are None where unknown, or where every value is null. ``nulls`` is a count, None where unknown.
    """

    low: Key | None = None
    high: Key | None = None
    nulls: int | None = None


_Row = tuple[int | str | None, int | str | None, Count | None]
"""Bounds in a snapshot's JSON: low, high, nulls; of bytes the base64."""


def _rows(bounds: Mapping[str, Bounds]) -> dict[str, _Row]:
    return {name: (_key_json(of.low), _key_json(of.high), of.nulls) for name, of in bounds.items()}


def _key_json(key: Key | None) -> str | int | None:
    return base64.b64encode(key).decode("ascii") if isinstance(key, bytes) else key


def _bounds(rows: Mapping[str, _Row]) -> dict[str, Bounds]:
    """The bounds of a snapshot's JSON, bytes still as base64: only the schema tells them from texts."""
    return {name: Bounds(*row) for name, row in rows.items()}


@dataclass(frozen=True)
class Deletes(Record):
    """Rows of an entry that are deleted, by the vectors of a file.

    ``rows`` is how many, each counted once however many layouts it lies in; ``checksums`` are theirs, of the columns
    of which the entry has some.
    """

    file: SafePath
    rows: Count
    checksums: Mapping[str, Count]


EntryName = tuple[str, str]
"""A partition's key, and the load that left the entry."""


@dataclass(frozen=True)
class PartitionEntry(Record):
    """What one load left of one date partition. A partition has several entries where rows were appended to it.

    ``key`` is path-safe, and with ``load_id`` unique in the snapshot; ``value`` is the partition column's value as a
    JSON scalar (None: NULL, or the table has no partitions). ``plan`` is a digest. A column missing from ``bounds``
    is unknown. ``checksums`` are sums of unsigned 32-bit hashes by column, ``bytes`` the compressed column chunks of
    all layouts. ``source`` is a digest of the source's files that the rows came from, None where it is not known.
    All of it is of the rows as they were written; ``deletes`` says which of them are deleted since, None where none is.
    """

    key: PartitionKey
    value: Scalar
    plan: Digest
    load_id: LoadId
    blocks_file: SafePath
    rows: Count
    bounds: Annotated[Mapping[str, Bounds], As(Mapping[str, _Row], _bounds, _rows)]
    checksums: Mapping[str, Count]
    bytes: Count
    source: Digest | None = None
    deletes: Deletes | None = None
    form: ClassVar = Form(left_out=("source", "deletes"))

    @property
    def name(self) -> EntryName:
        """What tells the entry from all others of a snapshot."""
        return self.key, self.load_id

    @property
    def live_rows(self) -> int:
        """The rows that are not deleted."""
        return self.rows - (0 if self.deletes is None else self.deletes.rows)

    @property
    def live_checksums(self) -> Mapping[str, int]:
        """The checksums of the rows that are not deleted, by column."""
        if self.deletes is None:
            return self.checksums
        gone = self.deletes.checksums
        return {name: sum - gone[name] for name, sum in self.checksums.items() if name in gone}

    @property
    def catalog_files(self) -> tuple[str, ...]:
        """The catalog's files that the entry needs beside its plan."""
        return (self.blocks_file,) if self.deletes is None else (self.blocks_file, self.deletes.file)


@dataclass(frozen=True)
class Snapshot(Record):
    """A table at one moment: its schema and, per partition, what to read; ``partitions`` are sorted by key.

    ``created_at`` is ISO 8601 in UTC and never before the parent's. ``load_id`` is the load that made the snapshot.
    ``files`` has the digest of every plan and blocks file that the partitions name, by path. ``tombstones``
    are the load folders and blocks files that a vacuum removes after it committed this snapshot: nothing may name them
    any more. ``batches`` are those that were appended so far, so that none is appended twice. ``plans`` are the digests
    of those that came to the table, the newest last, also of some that no partition names any more; see
    :attr:`plans_in_order`.
    """

    number: Count
    parent: Count | None
    created_at: UtcTime
    operation: Text
    load_id: LoadId
    schema: Schema
    partition_by: Text | None
    partitions: tuple[PartitionEntry, ...]
    files: Mapping[SafePath, FileDigest] = field(default_factory=dict)
    tombstones: tuple[SafePath, ...] = ()
    batches: tuple[Text, ...] = ()
    plans: tuple[Digest, ...] = ()
    format_version: Count = OLDEST_SUPPORTED
    form: ClassVar = Form(
        names={"format_version": "version", "tombstones": "given_up"},
        constants={"format": FORMAT},
        left_out=("tombstones", "batches", "plans"),
    )

    @property
    def rows(self) -> int:
        """Rows of the whole table, without those that are deleted."""
        return sum(entry.live_rows for entry in self.partitions)

    @property
    def stored_rows(self) -> int:
        """Rows of the whole table's files, deleted ones among them."""
        return sum(entry.rows for entry in self.partitions)

    @property
    def plans_in_order(self) -> tuple[str, ...]:
        """The digests of the plans that came to the table, the newest last.

        A plan by which a partition is loaded again stays where it was. Where nobody noted the order, it is that of the
        oldest load that is left of each.
        """
        first: dict[str, str] = {}
        for entry in self.partitions:
            first[entry.plan] = min(entry.load_id, first.get(entry.plan, entry.load_id))
        unnoted = first.keys() - set(self.plans)
        return (*sorted(unnoted, key=lambda digest: (first[digest], digest)), *self.plans)

    @property
    def plans_read(self) -> tuple[str, ...]:
        """The digests of the plans that a reader needs: those of the partitions; where there are none, the newest."""
        named = {entry.plan for entry in self.partitions} or {
            digest for digest in self.plans[-1:] if plan_path(digest) in self.files
        }
        return tuple(sorted(named))

    @cached_property
    def by_key(self) -> Mapping[str, tuple[PartitionEntry, ...]]:
        """The partitions by their keys, of each the entries in the order in which they came."""
        found: dict[str, tuple[PartitionEntry, ...]] = {}
        for entry in self.partitions:
            found[entry.key] = (*found.get(entry.key, ()), entry)
        return found


# ----------------------------------------------------------------------------------------------------
# A snapshot as JSON and back. What is read is validated: a changed, cut or foreign file never becomes a Snapshot.


def dumps(snapshot: Snapshot) -> bytes:
    """The snapshot's file content; its ``checksum`` field is the SHA-256 of all the others in canonical JSON."""
    content = replace(snapshot, format_version=_needed_version(snapshot)).to_json()
    return _canonical({**content, "checksum": _checksum(content)})


def loads(data: bytes, where: str) -> Snapshot:
    """The snapshot of a file's content; ``where`` names the file in messages.

    Raises:
        CatalogError: the content is damaged, inconsistent, or of a version that can't be read.
    """
    content = parse_json(data, where)
    if content.get("format") != FORMAT:
        raise CatalogError(f"{where} has the format {short(content.get('format'))}, not {FORMAT!r}; restore the file")
    # The version comes first: a newer format may well reckon its checksum in another way.
    check_version(content.get("version"), where)
    checksum = content.pop("checksum", None)
    if not checksum or checksum != _checksum(content):
        raise CatalogError(f"{where} is damaged: its checksum does not fit its content; restore the file from a copy")
    snapshot: Snapshot = read_field(Snapshot, content, f"{where}, snapshot")
    try:
        return _checked(snapshot)
    except ValueError as error:
        raise CatalogError(f"{where} is damaged: {error}; restore the file from a copy") from error


def _needed_version(snapshot: Snapshot) -> int:
    """The oldest version of the format that can say what a snapshot holds."""
    if any(entry.deletes is not None for entry in snapshot.partitions):
        return FORMAT_VERSION
    several = snapshot.batches or len(snapshot.by_key) < len(snapshot.partitions)
    return SEVERAL_ENTRIES if several else OLDEST_SUPPORTED


def parse_json(data: bytes, where: str) -> dict[str, Any]:
    """Any JSON object.

    Raises:
        CatalogError: the bytes are no JSON object in UTF-8.
    """
    try:
        value = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CatalogError(
            f"{where} is damaged: {short(str(error))}; restore the file from a copy or load again"
        ) from error
    if not isinstance(value, dict):
        raise CatalogError(f"{where} should be an object, not {short(value)}; restore the file from a copy")
    return value


def _canonical(content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def _checksum(content: Mapping[str, Any]) -> str:
    try:
        return hashlib.sha256(_canonical(content)).hexdigest()
    except (ValueError, RecursionError):  # a lone surrogate, a NaN, lists in lists: dumps() writes none of them
        return ""


def _checked(snapshot: Snapshot) -> Snapshot:
    """The snapshot, with bounds of their columns' types, if its parts agree; else raises ValueError."""
    names = [entry.name for entry in snapshot.partitions]
    if len(set(names)) < len(names) or snapshot.format_version < min(SEVERAL_ENTRIES, _needed_version(snapshot)):
        raise ValueError("it has a partition twice")
    if snapshot.format_version < _needed_version(snapshot):
        raise ValueError(f"it has deleted rows, which its version {snapshot.format_version} does not know")
    if snapshot.parent is not None and snapshot.parent >= snapshot.number:
        raise ValueError(f"it names the parent {snapshot.parent}, which is not before it")
    if snapshot.partition_by is not None and snapshot.partition_by not in snapshot.schema.names:
        raise ValueError(f"it is partitioned by {short(snapshot.partition_by)}, no column of it")
    for entry in snapshot.partitions:
        for path in (*entry.catalog_files, plan_path(entry.plan)):
            if path not in snapshot.files:
                raise ValueError(f"it has no digest of {short(path)}, which it names")
        if entry.live_rows < 0:
            raise ValueError(f"partition {short(entry.key)} has fewer rows than are deleted")
    return replace(snapshot, partitions=tuple(_typed(entry, snapshot.schema) for entry in snapshot.partitions))


def _typed(entry: PartitionEntry, schema: Schema) -> PartitionEntry:
    gone = () if entry.deletes is None else entry.deletes.checksums
    for name in (*entry.bounds, *entry.checksums, *gone):
        if name not in schema.names:
            raise ValueError(f"partition {short(entry.key)} names {short(name)}, which is no column of the schema")
    bounds = {}
    for name, found in entry.bounds.items():
        type = schema.find(name).type
        low, high = _key(found.low, type), _key(found.high, type)
        if (low is None) != (high is None) or (low is not None and high is not None and low > high):  # type: ignore[operator]
            raise ValueError(
                f"partition {short(entry.key)} has the bounds {short(low)} .. {short(high)} of {short(name)}"
            )
        bounds[name] = Bounds(low, high, found.nulls)
    return replace(entry, bounds=bounds)


def _key(value: Key | None, type: str) -> Key | None:
    """A key of a type as JSON has it: bytes as base64, integers within 64 bits or those of decimals."""
    kind, end = key_kind(type), 10**38 if is_wide_decimal(type) else 2**63
    if value is None or (kind == "str" and isinstance(value, str)):
        return value
    if kind == "int" and isinstance(value, int) and -end <= value < end:
        return value
    if kind == "bytes" and isinstance(value, str):
        return base64.b64decode(value, validate=True)
    raise ValueError(f"{short(value)} is no key of a {type}")


# ----------------------------------------------------------------------------------------------------
# The snapshots of a table: listing, reading, claiming a folder for a table.


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
    snapshot = loads(data, where)
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
    content = parse_json(files.read_bytes(MARKER), where)
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
