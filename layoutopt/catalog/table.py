"""A table's catalog, opened at one snapshot: what readers see, whatever writers do meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from layoutopt.catalog.blocks import BlockTable, concat_blocks
from layoutopt.catalog.bounds import LazyBounds, bounds_over
from layoutopt.catalog.deletion_vectors import attach_deletes, decode_deletes
from layoutopt.catalog.entries import BlocksByPartition, is_older
from layoutopt.catalog.partition_entry import Bounds, Deletes, EntryName, PartitionEntry
from layoutopt.catalog.paths import plan_path
from layoutopt.catalog.snapshot import Snapshot, latest_snapshot, read_checked, read_snapshot, snapshot_as_of
from layoutopt.catalog.storage.filesystem import READ_THROUGH, TableFiles
from layoutopt.catalog.storage.index_files import IndexFile, read_index
from layoutopt.catalog.table_root import check_is_table
from layoutopt.errors import CatalogError, NotATableError, PlanError, SettingError, blame_file
from layoutopt.model import layout
from layoutopt.model.arrays import Ints
from layoutopt.model.layout import Plan
from layoutopt.model.records import short
from layoutopt.model.schema import Column, Schema
from layoutopt.skipping.cannot_match import BlockStatistics, ColumnBounds

# How many plans a process caches, by their bytes.
_PLANS: Final = 8


@dataclass(frozen=True, eq=False)
class _Cache:
    """What was read of a table's files: by blocks file and plan, by vectors file, and by entry."""

    tables_by_file: dict[tuple[str, str], BlockTable] = field(default_factory=dict)
    partitions_by_file: dict[tuple[str, str], BlocksByPartition] = field(default_factory=dict)
    vectors_by_file: dict[str, pa.Table] = field(default_factory=dict)
    blocks_by_entry: dict[EntryName, BlockTable] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Catalog:
    """A table's metadata at one snapshot. Blocks are read on first use, then cached.

    Attributes:
        plans: every plan that the snapshot's partitions name, by digest.
        written: False for a dry run without files, see :meth:`rehearsed`.
        others: the data files of an external table, see :meth:`over_files`.
    """

    files: TableFiles
    snapshot: Snapshot
    plans: Mapping[str, Plan]
    written: bool = True
    others: TableFiles | None = None
    _cache: _Cache = field(default_factory=_Cache, init=False)  # not shared by copies, whose entries may differ

    @classmethod
    def open(
        cls, root: str, snapshot: int | None = None, as_of: str | None = None, read_through: int = READ_THROUGH,
        key: str | None = None,
    ) -> Catalog:  # fmt: skip
        """Open a table at its newest snapshot, at one by number, or at the newest not after a time (ISO 8601).

        Raises:
            NotATableError: the path holds something else, nothing, or a table that was never loaded.
            CatalogError: the snapshot or a plan is missing, damaged or of a version that can't be read.
            SettingError: both a number and a time, or a text that is no time.
            EncryptionKeyError: the key is unavailable or wrong.
        """
        files = TableFiles(root, read_through, key=key)
        check_is_table(files)
        opened = chosen_snapshot(files, snapshot, as_of)
        return cls.of_snapshot(files, opened)

    def select(self, entries: Sequence[PartitionEntry], plans: Mapping[str, Plan]) -> Catalog:
        """Return the catalog of some of the entries and plans; blocks that were read are not read again."""
        part = replace(self, snapshot=replace(self.snapshot, partitions=tuple(entries)), plans=plans)
        object.__setattr__(part, "_cache", self._cache)
        return part

    @classmethod
    def of_snapshot(cls, files: TableFiles, snapshot: Snapshot) -> Catalog:
        """Open a table at a snapshot that was read, or the part of it that a task needs; raises as :meth:`open`."""
        return cls(files, snapshot, {digest: read_plan(files, snapshot, digest) for digest in snapshot.plans_read})

    @classmethod
    def rehearsed(cls, snapshot: Snapshot, plan: Plan, blocks: BlockTable) -> Catalog:
        """Return the catalog of a dry run, without files: one plan's blocks, as a load would measure them.

        All partitions of ``snapshot``, which a load would commit, name one blocks file.
        """
        catalog = cls(TableFiles("rehearsed"), snapshot, {plan.digest: plan}, written=False)
        for entry in snapshot.partitions:
            catalog._cache.tables_by_file[entry.blocks_file, plan.digest] = blocks
        return catalog

    @classmethod
    def over_files(
        cls, files: TableFiles, snapshot: Snapshot, plans: Mapping[str, Plan], blocks: Sequence[BlockTable],
        others: TableFiles,
    ) -> Catalog:  # fmt: skip
        """Return the catalog of an external table, from measurements of its files.

        ``snapshot`` was never committed. ``blocks`` has an item for each of its partitions; ``others`` is their folder.
        """
        catalog = cls(files, snapshot, plans, others=others)
        for entry, part in zip(snapshot.partitions, blocks, strict=True):
            catalog._cache.blocks_by_entry[entry.name] = part
        return catalog

    @property
    def data(self) -> TableFiles:
        """Return the folder of the data files, as blocks name them."""
        return self.files if self.others is None else self.others

    @property
    def schema(self) -> Schema:
        """Return the table's schema."""
        return self.snapshot.schema

    @property
    def partitions(self) -> tuple[PartitionEntry, ...]:
        """Return the entries of the snapshot's partitions, sorted by key."""
        return self.snapshot.partitions

    def blocks(self, entry: PartitionEntry) -> BlockTable:
        """Return the blocks of an entry with their deletion vectors; raise CatalogError if a file is damaged."""
        if entry.name not in self._cache.blocks_by_entry:
            self._cache.blocks_by_entry[entry.name] = self._read_blocks(entry)
        return self._cache.blocks_by_entry[entry.name]

    def _read_blocks(self, entry: PartitionEntry) -> BlockTable:
        table, places = self.file_blocks(entry), self._find_blocks(entry)
        part = table if len(places) == table.n else table.take(places)
        return part if entry.deletes is None else self._read_deletes(part, entry.deletes)

    def _find_blocks(self, entry: PartitionEntry) -> Ints:
        """Return an entry's blocks in its blocks file (their indices); raise CatalogError if the file is damaged."""
        table = self.file_blocks(entry)
        key = (entry.blocks_file, entry.plan)
        if key not in self._cache.partitions_by_file:
            self._cache.partitions_by_file[key] = BlocksByPartition.of(table)
        by_partition = self._cache.partitions_by_file[key]
        if by_partition.rows(entry.key) != entry.rows:
            where = self.files.full_path(entry.blocks_file)
            raise CatalogError(f"{where} does not hold the {entry.rows} rows of partition {entry.key!r}; load it again")
        return by_partition.blocks(entry.key)

    def count_blocks(self, entry: PartitionEntry) -> int:
        """Return the number of an entry's blocks; raises as :meth:`blocks`."""
        return len(self._find_blocks(entry)) if entry.deletes is None else self.blocks(entry).n

    def _read_deletes(self, part: BlockTable, deletes: Deletes) -> BlockTable:
        """Return an entry's blocks with their deletion vectors, without which deleted rows would come back."""
        where = self.files.full_path(deletes.file)
        with blame_file(deletes.file):
            if deletes.file not in self._cache.vectors_by_file:
                data = read_checked(self.files, self.snapshot, deletes.file)
                self._cache.vectors_by_file[deletes.file] = decode_deletes(data, where)
            return attach_deletes(part, self._cache.vectors_by_file[deletes.file], deletes, where)

    def file_blocks(self, entry: PartitionEntry) -> BlockTable:
        """Return all blocks of an entry's blocks file, including those of the load's other partitions."""
        key = (entry.blocks_file, entry.plan)
        if key not in self._cache.tables_by_file:
            data = read_checked(self.files, self.snapshot, entry.blocks_file)
            where = self.files.full_path(entry.blocks_file)
            self._cache.tables_by_file[key] = BlockTable.from_parquet(
                data, self.plans[entry.plan], where, self._read_index
            )
        return self._cache.tables_by_file[key]

    def _read_index(self, index_file: IndexFile, rows: int) -> pa.Array | None:
        """Return the values of an index file; None where unreadable: queries work without, ``verify`` reports it."""
        try:
            return read_index(self.files, index_file, rows)
        except CatalogError:
            return None

    def block_tables(self) -> list[tuple[PartitionEntry, BlockTable]]:
        """Return every entry with its blocks."""
        return [(entry, self.blocks(entry)) for entry in self.partitions]

    def blocks_by_plan(self) -> dict[str, tuple[BlockTable, Ints]]:
        """Return all blocks in one table for each plan (by digest), and each block's index in :attr:`partitions`."""
        entries_by_plan: dict[str, list[int]] = {}
        for entry_id, entry in enumerate(self.partitions):
            entries_by_plan.setdefault(entry.plan, []).append(entry_id)
        return {
            digest: self._read_entries(entries_by_plan[digest]) for digest in self.plans if digest in entries_by_plan
        }

    def _read_entries(self, entry_ids: Sequence[int]) -> tuple[BlockTable, Ints]:
        """Return the blocks of some entries (their indices) of one plan, in this order, and the entry of each block.

        Blocks files are used whole or in few parts, since a load may have written thousands of partitions.
        """
        parts: list[tuple[BlockTable, Ints]] = []
        by_file: dict[str, tuple[PartitionEntry, list[Ints], list[int]]] = {}
        for entry_id in entry_ids:
            entry = self.partitions[entry_id]
            if entry.deletes is not None or entry.name in self._cache.blocks_by_entry:
                part = self.blocks(entry)
                parts.append((part, np.full(part.n, entry_id, dtype=np.int64)))
                continue
            _, places, ids = by_file.setdefault(entry.blocks_file, (entry, [], []))
            places.append(self._find_blocks(entry))
            ids.append(entry_id)
        for entry, places, ids in by_file.values():
            table, of_file = self.file_blocks(entry), np.concatenate(places)
            is_whole = len(of_file) == table.n and bool((np.diff(of_file) > 0).all())
            entry_of = np.repeat(np.array(ids, dtype=np.int64), list(map(len, places)))
            parts.append((table if is_whole else table.take(of_file), entry_of))
        blocks, entry_of = concat_blocks([part for part, _ in parts]), np.concatenate([ids for _, ids in parts])
        if (np.diff(entry_of) < 0).any():
            order = np.argsort(entry_of, kind="stable")
            return blocks.take(order), entry_of[order]
        return blocks, entry_of

    def partition_statistics(self) -> BlockStatistics:
        """Return statistics of the entries in order, each as one block, for the skipping rule; without feature bits."""
        rows = np.array([entry.rows for entry in self.partitions], dtype=np.int64)

        def over_partitions(column: Column) -> ColumnBounds:
            return bounds_over([self.bounds_in(entry, column.name) for entry in self.partitions], rows, column.type)

        return BlockStatistics(rows=rows, bounds=LazyBounds(self.schema, over_partitions))

    def bounds_in(self, entry: PartitionEntry, name: str) -> Bounds:
        """Return a column's bounds in an entry; the column is NULL throughout if the entry's plan is older."""
        if self.plans[entry.plan].schema.get(name) is None:
            return Bounds(nulls=entry.rows)
        return entry.bounds.get(name, Bounds())


def chosen_snapshot(files: TableFiles, number: int | None, as_of: str | None) -> Snapshot:
    """Return the newest snapshot, that of a number, or the newest not after a time; raises as Catalog.open."""
    if number is not None and as_of is not None:
        raise SettingError(f"both snapshot {number} and the time {as_of!r} are given; give one of them")
    if number is not None:
        return read_snapshot(files, number)
    if as_of is not None:
        return snapshot_as_of(files, as_of)
    latest = latest_snapshot(files)
    if latest is None:
        raise NotATableError(f"the table at {files.root!r} was never loaded; run `layoutopt load` first")
    return latest


# A change opens its table several times.
_parse_plan = lru_cache(maxsize=_PLANS)(Plan.loads_late)


def read_plan(files: TableFiles, snapshot: Snapshot, digest: str) -> Plan:
    """Read a plan that a snapshot names; raise CatalogError if it is missing, damaged, or can't be used."""
    path = plan_path(digest)
    try:
        data = read_checked(files, snapshot, path)
        plan = _parse_plan(data) if layout.compute_digest(data) == digest else Plan.loads(data)
    except PlanError as error:
        raise CatalogError(
            f"the plan {files.full_path(path)} can't be used ({short(str(error))}); load again"
        ) from error
    if not is_older(plan.schema, snapshot.schema):
        raise CatalogError(
            f"the plan {files.full_path(path)} has another schema than the table; restore it from a copy"
        )
    return plan
