"""Partition entries: what one load wrote of one partition."""

from __future__ import annotations

import base64
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from layoutopt.catalog.paths import Count, Digest, LoadId, PartitionKey, SafePath
from layoutopt.model.records import As, Form, Record
from layoutopt.model.values import Key

Scalar = str | int | float | bool | None


@dataclass(frozen=True)
class Bounds:
    """The bounds of one column over a set of rows.

    ``low`` and ``high`` are keys (:mod:`layoutopt.model.values`): no non-null value lies outside (a NaN has the largest
    key). Both are None where unknown, or where every value is null. ``nulls`` is a count, None where unknown.
    """

    low: Key | None = None
    high: Key | None = None
    nulls: int | None = None


# Bounds in a snapshot's JSON: low, high, nulls; bytes as base64.
_Row = tuple[int | str | None, int | str | None, Count | None]


def _format_bounds(bounds: Mapping[str, Bounds]) -> dict[str, _Row]:
    def encode(key: Key | None) -> str | int | None:
        return base64.b64encode(key).decode("ascii") if isinstance(key, bytes) else key

    return {name: (encode(bound.low), encode(bound.high), bound.nulls) for name, bound in bounds.items()}


# Bytes stay base64: only the schema tells them from texts.
_BoundsByColumn = Annotated[
    Mapping[str, Bounds],
    As(Mapping[str, _Row], lambda rows: {name: Bounds(*row) for name, row in rows.items()}, _format_bounds),
]


@dataclass(frozen=True)
class Deletes(Record):
    """Deleted rows of an entry in a file of deletion vectors, each counted once, with their checksums."""

    file: SafePath
    rows: Count
    checksums: Mapping[str, Count]


# A partition's key, and the load that wrote the entry.
EntryName = tuple[str, str]


@dataclass(frozen=True)
class PartitionEntry(Record):
    """A manifest entry: what one load wrote of one partition. Appended partitions have several entries.

    ``key`` is path-safe, and with ``load_id`` unique in the snapshot; ``value`` is the partition column's value as a
    JSON scalar (None: NULL, or the table has no partitions). ``plan`` is a digest. A column missing from ``bounds``
    is unknown. ``checksums`` are sums of unsigned 32-bit hashes by column, ``bytes`` the compressed column chunks of
    all layouts. ``source`` is a digest of the rows' source files, None where unknown. All of these describe the rows as
    written; ``deletes`` are the rows deleted since, None for none. ``native`` is whether Spark's own reader can read an
    indexed external file.
    """

    key: PartitionKey
    value: Scalar
    plan: Digest
    load_id: LoadId
    blocks_file: SafePath
    rows: Count
    bounds: _BoundsByColumn
    checksums: Mapping[str, Count]
    bytes: Count
    source: Digest | None = None
    deletes: Deletes | None = None
    native: bool = False
    form: ClassVar = Form(left_out=("source", "deletes", "native"))

    @property
    def name(self) -> EntryName:
        """Return what identifies the entry in a snapshot."""
        return self.key, self.load_id

    @property
    def live_rows(self) -> int:
        """Return the number of rows that are not deleted."""
        return self.rows - (0 if self.deletes is None else self.deletes.rows)

    @property
    def live_checksums(self) -> Mapping[str, int]:
        """Return the checksums of the rows that are not deleted, by column."""
        if self.deletes is None:
            return self.checksums
        deleted = self.deletes.checksums
        return {name: sum - deleted[name] for name, sum in self.checksums.items() if name in deleted}

    @property
    def catalog_files(self) -> tuple[str, ...]:
        """Return the catalog's files that the entry needs besides its plan."""
        return (self.blocks_file,) if self.deletes is None else (self.blocks_file, self.deletes.file)


def are_same(before: Sequence[PartitionEntry], entries: Sequence[PartitionEntry]) -> bool:
    """Return whether entries are the very objects; equal ones need not be, and take longer to compare."""
    return len(before) == len(entries) and all(map(operator.is_, before, entries))
