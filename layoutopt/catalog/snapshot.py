"""Snapshots: what a table is at one moment, their JSON, and their files.

Whatever is read is validated: a changed, truncated or unrelated file never becomes a :class:`Snapshot`.
"""

from __future__ import annotations

import base64
import bisect
import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal

import pyarrow as pa

from layoutopt.catalog.block_index import damage_error
from layoutopt.catalog.manifests import Manifest, ManifestName, decode_cached
from layoutopt.catalog.partition_entry import Bounds, EntryName, PartitionEntry
from layoutopt.catalog.paths import (
    MANIFESTS,
    SNAPSHOTS,
    Count,
    Digest,
    FileDigest,
    LoadId,
    SafePath,
    Text,
    UtcTime,
    plan_path,
    read_field,
    snapshot_number,
    snapshot_path,
)
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import CatalogError, NoSnapshotError, SettingError, blame_file
from layoutopt.evaluation.keys import is_wide_decimal
from layoutopt.model.records import Form, Record, short
from layoutopt.model.schema import Schema
from layoutopt.model.values import Key, key_kind

FORMAT = "layoutopt-table"
# The newest version: entries may stand in manifests.
FORMAT_VERSION = 4

# From this version on rows may be deleted by vectors. A reader that ignores vectors would return deleted rows.
DELETED_ROWS = 3

# The version of an encrypted table's marker, so that programs that know no keys see that the table is too new.
ENCRYPTED = 4

# From this version on a partition may have several entries, and appended batches are listed.
SEVERAL_ENTRIES = 2

# The oldest version that is read. It is also written where it can express the snapshot, for older programs.
OLDEST_SUPPORTED = 1

VersionState = Literal["current", "supported", "unsupported", "too new"]


def version_state(version: int, current: int = FORMAT_VERSION, oldest: int = OLDEST_SUPPORTED) -> VersionState:
    """Return what this program does with a format version: write and read it, only read it, or neither.

    >>> [version_state(v, current=3, oldest=2) for v in (1, 2, 3, 4)]
    ['unsupported', 'supported', 'current', 'too new']
    """
    if version == current:
        return "current"
    if version > current:
        return "too new"
    return "supported" if version >= oldest else "unsupported"


def check_version(version: object, where: str, current: int = FORMAT_VERSION, oldest: int = OLDEST_SUPPORTED) -> None:
    """Refuse versions that can't be read; raise CatalogError if the version is no number, unsupported or too new."""
    state = version_state(number := read_field(Count, version, f"the version of {where}"), current, oldest)
    if state == "too new":
        raise CatalogError(f"{where} has format version {number}, newer than {current}; install a newer layoutopt")
    if state == "unsupported":
        raise CatalogError(f"{where} has format version {number}, older than {oldest}; load the table again")


@dataclass(frozen=True)
class Snapshot(Record):
    """A table at one moment: its schema and, for each partition, what to read.

    Attributes:
        created_at: ISO 8601 in UTC, never before the parent's.
        load_id: the load that made the snapshot.
        partitions: the entries, sorted by key.
        files: the digest of every plan, manifest, blocks and vectors file that the snapshot names, by path.
        tombstones: the load folders and files that a vacuum removes after this snapshot; nothing may name them again.
        batches: the appended batches, so that none is appended twice.
        plans: digests of the table's plans, the newest last, also unused ones; see :attr:`plans_in_order`.
        manifests: the files with the entries, the newest last: of a partition in several it counts; none where the
            snapshot's own file has the entries.
        parent_load: the load that made the parent, by which a parent of the same number is told apart; older versions
            did not note it.
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
    manifests: tuple[ManifestName, ...] = ()
    parent_load: LoadId | None = None
    format_version: Count = OLDEST_SUPPORTED
    form: ClassVar = Form(
        names={"format_version": "version", "tombstones": "given_up"},
        constants={"format": FORMAT},
        left_out=("tombstones", "batches", "plans", "manifests", "parent_load"),
    )

    @property
    def rows(self) -> int:
        """Return the number of rows that are not deleted."""
        return sum(entry.live_rows for entry in self.partitions)

    @property
    def stored_rows(self) -> int:
        """Return the number of rows in the table's files, including deleted ones."""
        return sum(entry.rows for entry in self.partitions)

    @property
    def plans_in_order(self) -> tuple[str, ...]:
        """Return the digests of the table's plans, the newest last; unrecorded ones by their oldest loads."""
        first_loads: dict[str, str] = {}
        for entry in self.partitions:
            first_loads[entry.plan] = min(entry.load_id, first_loads.get(entry.plan, entry.load_id))
        unrecorded = first_loads.keys() - set(self.plans)
        return (*sorted(unrecorded, key=lambda digest: (first_loads[digest], digest)), *self.plans)

    @property
    def plans_read(self) -> tuple[str, ...]:
        """Return the digests of the plans that a reader needs: the partitions' or, without any, the newest."""
        newest = [digest for digest in self.plans[-1:] if plan_path(digest) in self.files]
        return tuple(sorted({entry.plan for entry in self.partitions} or newest))

    @cached_property
    def by_key(self) -> Mapping[str, tuple[PartitionEntry, ...]]:
        """Return the entries by partition key, in the order of their loads."""
        entries: dict[str, tuple[PartitionEntry, ...]] = {}
        for entry in self.partitions:
            entries[entry.key] = (*entries.get(entry.key, ()), entry)
        return entries

    def select(self, keys: Collection[str]) -> Snapshot:
        """Return the entries of some partitions and the files that these name, as a task that reads them needs."""
        entries = tuple(entry for key in sorted(keys) for entry in self.by_key[key])
        paths = {path for entry in entries for path in (plan_path(entry.plan), *entry.catalog_files)}
        files = {path: self.files[path] for path in paths}
        return replace(self, partitions=entries, files=files, tombstones=(), batches=(), manifests=())

    @cached_property
    def places(self) -> Mapping[EntryName, int]:
        """Return the place of each entry in :attr:`partitions`, by its name."""
        return {entry.name: place for place, entry in enumerate(self.partitions)}


def dumps(snapshot: Snapshot) -> bytes:
    """Return a snapshot's file content; ``checksum`` is the SHA-256 of the other fields in canonical JSON."""
    content = replace(snapshot, format_version=_needed_version(snapshot)).to_json()
    return _canonical({**content, "checksum": _checksum(content)})


@lru_cache(maxsize=2)  # a commit reads the newest snapshot several times
def loads(data: bytes, where: str) -> Snapshot:
    """Return the snapshot of a file's content; raise CatalogError with ``where``, the file's name, if it is damaged."""
    content = parse_json(data, where)
    if content.get("format") != FORMAT:
        raise CatalogError(f"{where} has the format {short(content.get('format'))}, not {FORMAT!r}; restore the file")
    # The version comes first: a newer format may compute its checksum in another way.
    check_version(content.get("version"), where)
    checksum = content.pop("checksum", None)
    if not checksum or checksum != _checksum(content):
        raise CatalogError(f"{where} is damaged: its checksum does not fit its content; restore the file from a copy")
    snapshot: Snapshot = read_field(Snapshot, content, f"{where}, snapshot")
    try:
        return _validate(snapshot)
    except ValueError as error:
        raise CatalogError(f"{where} is damaged: {error}; restore the file from a copy") from error


def _needed_version(snapshot: Snapshot) -> int:
    """Return the oldest format version that can express a snapshot."""
    if snapshot.manifests:
        return FORMAT_VERSION
    if any(entry.deletes is not None for entry in snapshot.partitions):
        return DELETED_ROWS
    several = snapshot.batches or len(snapshot.by_key) < len(snapshot.partitions)
    return SEVERAL_ENTRIES if several else OLDEST_SUPPORTED


def parse_json(data: bytes, where: str) -> dict[str, Any]:
    """Return the JSON object in a file's content; raise CatalogError if the bytes are no JSON object in UTF-8."""
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


def _validate(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot, with bounds of their columns' types; raise ValueError where its parts disagree."""
    if snapshot.format_version < min(SEVERAL_ENTRIES, _needed_version(snapshot)):
        raise ValueError("it has a partition twice")
    if snapshot.manifests and snapshot.format_version < FORMAT_VERSION:
        raise ValueError(f"it has manifests, which its version {snapshot.format_version} does not know")
    if snapshot.format_version < _needed_version(snapshot):
        raise ValueError(f"it has deleted rows, which its version {snapshot.format_version} does not know")
    if snapshot.parent is not None and snapshot.parent >= snapshot.number:
        raise ValueError(f"it names the parent {snapshot.parent}, which is not before it")
    if snapshot.partition_by is not None and snapshot.partition_by not in snapshot.schema.names:
        raise ValueError(f"it is partitioned by {short(snapshot.partition_by)}, no column of it")
    for manifest in snapshot.manifests:
        if manifest.path not in snapshot.files:
            raise ValueError(f"it has no digest of {short(manifest.path)}, which it names")
    _validate_entries(snapshot)
    return replace(snapshot, partitions=tuple(_convert_bounds(entry, snapshot.schema) for entry in snapshot.partitions))


def _validate_entries(snapshot: Snapshot) -> None:
    """Raise ValueError where entries disagree with each other or with the files."""
    names = [entry.name for entry in snapshot.partitions]
    if len(set(names)) < len(names):
        raise ValueError("it has a partition twice")
    for entry in snapshot.partitions:
        for path in (*entry.catalog_files, plan_path(entry.plan)):
            if path not in snapshot.files:
                raise ValueError(f"it has no digest of {short(path)}, which it names")
        if entry.live_rows < 0:
            raise ValueError(f"partition {short(entry.key)} has fewer rows than are deleted")


def _check_entries(snapshot: Snapshot, where: str) -> Snapshot:
    """Return a snapshot with the entries of its manifests; raise CatalogError where they disagree."""
    try:
        _validate_entries(snapshot)
    except ValueError as error:
        raise CatalogError(f"{where} is damaged: {error}; restore the file from a copy") from error
    return snapshot


def _convert_bounds(entry: PartitionEntry, schema: Schema) -> PartitionEntry:
    deleted = () if entry.deletes is None else entry.deletes.checksums
    for name in (*entry.bounds, *entry.checksums, *deleted):
        if name not in schema.names:
            raise ValueError(f"partition {short(entry.key)} names {short(name)}, which is no column of the schema")
    bounds = {}
    for name, raw in entry.bounds.items():
        type = schema.find(name).type
        low, high = _parse_key(raw.low, type), _parse_key(raw.high, type)
        if (low is None) != (high is None) or (low is not None and high is not None and low > high):  # type: ignore[operator]
            raise ValueError(
                f"partition {short(entry.key)} has the bounds {short(low)} .. {short(high)} of {short(name)}"
            )
        bounds[name] = Bounds(low, high, raw.nulls)
    return replace(entry, bounds=bounds)


def _parse_key(value: Key | None, type: str) -> Key | None:
    """Return a key of a type from JSON: bytes from base64, integers within 64 bits or a decimal's digits."""
    kind, end = key_kind(type), 10**38 if is_wide_decimal(type) else 2**63
    if value is None or (kind == "str" and isinstance(value, str)):
        return value
    if kind == "int" and isinstance(value, int) and -end <= value < end:
        return value
    if kind == "bytes" and isinstance(value, str):
        return base64.b64decode(value, validate=True)
    raise ValueError(f"{short(value)} is no key of a {type}")


def snapshot_numbers(files: TableFiles) -> tuple[int, ...]:
    """Return the numbers of the table's snapshots, ascending, perhaps with gaps."""
    numbers = (snapshot_number(name) for name in files.list(SNAPSHOTS))
    return tuple(sorted(number for number in numbers if number is not None))


def snapshot_states(files: TableFiles) -> dict[int, tuple[int, float | None]]:
    """Return the size and modification time of all snapshot files by number, which identify the table."""
    snapshots = ((snapshot_number(file.path.rpartition("/")[2]), file) for file in files.walk(SNAPSHOTS))
    return {number: (file.size, file.modified) for number, file in snapshots if number is not None}


def newest_state(files: TableFiles) -> tuple[int, int, float | None] | None:
    """Return the newest snapshot's number, size and modification time; None without a snapshot."""
    if files.local_root is None:  # one listing has all; on a disk the status of one file is enough
        return max(((number, *state) for number, state in snapshot_states(files).items()), default=None)
    numbers = snapshot_numbers(files)
    if not numbers:
        return None
    status = (files.local_root / snapshot_path(numbers[-1])).stat()
    return numbers[-1], status.st_size, status.st_mtime


@dataclass(frozen=True)
class SnapshotHead:
    """What a snapshot's own file says, which need not have its entries."""

    _content: Snapshot

    @property
    def number(self) -> int:
        """Return the snapshot's number."""
        return self._content.number

    @property
    def created_at(self) -> str:
        """Return the snapshot's time."""
        return self._content.created_at

    @property
    def load_id(self) -> str:
        """Return the load that made the snapshot."""
        return self._content.load_id

    @property
    def parent_load(self) -> str | None:
        """Return the load that made the snapshot's parent, if it is noted."""
        return self._content.parent_load

    @property
    def tombstones(self) -> tuple[str, ...]:
        """Return what a vacuum removes after the snapshot."""
        return self._content.tombstones

    def read(self, files: TableFiles) -> Snapshot:
        """Return the snapshot with its entries; raise CatalogError if a manifest is missing or damaged."""
        if not self._content.manifests:
            return self._content
        return _check_entries(read_partitions(files, self._content), files.full_path(snapshot_path(self.number)))


def read_snapshot(files: TableFiles, number: int) -> Snapshot:
    """Read one snapshot; raise CatalogError if it is missing, damaged, or of a version that can't be read."""
    return read_head(files, number).read(files)


def read_head(files: TableFiles, number: int) -> SnapshotHead:
    """Read one snapshot's own file; raises as :func:`read_snapshot`."""
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
    return SnapshotHead(snapshot)


def read_checked(files: TableFiles, snapshot: Snapshot, path: str) -> bytes:
    """Read a catalog file, and check its digest against the snapshot's."""
    where, expected = files.full_path(path), snapshot.files[path]
    # Without a manifest of the newest snapshot no load can be committed.
    remedy = "restore it from a copy" + ("" if path.startswith(f"{MANIFESTS}/") else " or load again")
    try:
        data = files.read_cached(path, expected.sha256)
    except FileNotFoundError as error:
        raise CatalogError(f"the catalog file {where} is missing; {remedy}") from error
    if FileDigest.of(data) != expected:
        raise CatalogError(
            f"the catalog file {where} is damaged: its {len(data)} bytes are not those that snapshot {snapshot.number} "
            f"names; {remedy}"
        )
    files.cache_content(path, expected.sha256, data)
    return data


def read_partitions(files: TableFiles, snapshot: Snapshot) -> Snapshot:
    """Return a snapshot with the entries of its manifests; raise CatalogError if one is missing or damaged."""
    entries: list[PartitionEntry] = []
    digests = dict(snapshot.files)
    later: set[str] = set()
    for name in reversed(snapshot.manifests):
        manifest = read_manifest(files, snapshot, name)
        kept = [entry for entry in manifest.entries if entry.key not in later] if later else manifest.entries
        entries += kept
        for path in {path for entry in kept for path in entry.catalog_files}:
            digests[path] = manifest.files[path]
        later |= manifest.keys
    entries.sort(key=lambda entry: entry.key)  # stable: one manifest has all entries of a key, in their order
    return replace(snapshot, partitions=tuple(entries), files=digests)


def read_manifest(files: TableFiles, snapshot: Snapshot, name: ManifestName) -> Manifest:
    """Read a manifest that a snapshot names; raise CatalogError if it is missing or damaged."""
    where = files.full_path(name.path)
    with blame_file(name.path):
        data = read_checked(files, snapshot, name.path)
        try:
            manifest = decode_cached(data, snapshot.files[name.path], snapshot.schema)
        except (ValueError, pa.ArrowException, OSError) as error:
            raise damage_error(where, str(error)) from error
        if manifest.table.num_rows + len(manifest.removed) != name.entries:
            raise damage_error(where, f"it has other than {name.entries} entries")
        return manifest


def latest_snapshot(files: TableFiles) -> Snapshot | None:
    """Read the snapshot with the highest number; None without a snapshot.

    Raises CatalogError if that snapshot is damaged: older ones are no substitute.
    """
    numbers = snapshot_numbers(files)
    return read_snapshot(files, numbers[-1]) if numbers else None


def snapshot_as_of(files: TableFiles, time: str) -> Snapshot:
    """Read the newest snapshot at a time (ISO 8601; UTC where it names no zone); raise NoSnapshotError without one."""
    try:
        moment = _parse_time(time)
    except ValueError as error:
        raise SettingError(f"{time!r} is no time; write it as 2024-05-31T12:00:00Z") from error
    numbers = snapshot_numbers(files)
    # Times never decrease, so a binary search reads few snapshots.
    n_before = bisect.bisect_right(numbers, moment, key=lambda number: _parse_time(read_head(files, number).created_at))
    if n_before == 0:
        raise NoSnapshotError(
            f"the table {files.root!r} has no snapshot as old as {time}; choose one that `history` lists"
        )
    return read_snapshot(files, numbers[n_before - 1])


def _parse_time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
