"""The nouns of a snapshot: what a table is at one moment. Their JSON is in :mod:`layoutopt.catalog.snapshot_json`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from layoutopt.catalog.versions import FORMAT_VERSION
from layoutopt.model.schema import Schema
from layoutopt.model.values import Key

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


@dataclass(frozen=True)
class FileDigest:
    """Size in bytes and SHA-256 (64 hex digits) of a catalog file, so that a flipped bit is noticed."""

    size: int
    sha256: str

    @classmethod
    def of(cls, data: bytes) -> FileDigest:
        """The digest of these bytes."""
        return cls(len(data), hashlib.sha256(data).hexdigest())


@dataclass(frozen=True)
class PartitionEntry:
    """One date partition in a snapshot, as one load left it.

    ``key`` is path-safe and unique in the snapshot; ``value`` is the partition column's value as a JSON scalar (None:
    NULL, or the table has no partitions). ``plan`` is a digest. A column missing from ``bounds`` is unknown.
    ``checksums`` are sums of unsigned 32-bit hashes by column, ``bytes`` the compressed column chunks of all layouts.
    ``source`` is a digest of the source's files that the rows came from, None where it is not known.
    """

    key: str
    value: Scalar
    plan: str
    load_id: str
    blocks_file: str
    rows: int
    bounds: Mapping[str, Bounds]
    checksums: Mapping[str, int]
    bytes: int
    source: str | None = None


@dataclass(frozen=True)
class Snapshot:
    """A table at one moment: its schema and, per partition, what to read.

    ``created_at`` is ISO 8601 in UTC and never before the parent's. ``load_id`` is the load that made the snapshot.
    ``files`` has the digest of every plan and blocks file that the partitions name, by path. ``given_up`` are the load
    folders and blocks files that a vacuum removes after it committed this snapshot: nothing may name them any more.
    """

    number: int
    parent: int | None
    created_at: str
    operation: str
    load_id: str
    schema: Schema
    partition_by: str | None
    partitions: tuple[PartitionEntry, ...]
    files: Mapping[str, FileDigest] = field(default_factory=dict)
    given_up: tuple[str, ...] = ()
    format_version: int = FORMAT_VERSION

    @property
    def rows(self) -> int:
        """Rows of the whole table."""
        return sum(entry.rows for entry in self.partitions)

    def partition(self, key: str) -> PartitionEntry | None:
        """The entry of that key, or None."""
        return next((entry for entry in self.partitions if entry.key == key), None)
