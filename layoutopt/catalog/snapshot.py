"""The nouns of a snapshot: what a table is at one moment. Their JSON is in :mod:`layoutopt.catalog.snapshot_json`."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, ClassVar

from layoutopt.catalog.fields import Count, Digest, LoadId, PartitionKey, SafePath, Text, UtcTime
from layoutopt.catalog.paths import plan_path
from layoutopt.catalog.versions import FORMAT, OLDEST_SUPPORTED
from layoutopt.model.records import As, Form, Record
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
class FileDigest(Record):
    """Size in bytes and SHA-256 (64 hex digits) of a catalog file, so that a flipped bit is noticed."""

    size: Count
    sha256: Digest

    @classmethod
    def of(cls, data: bytes) -> FileDigest:
        """The digest of these bytes."""
        return cls(len(data), hashlib.sha256(data).hexdigest())


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
