"""A table's catalog, opened at one snapshot: what readers see, whatever writers do meanwhile."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from layoutopt.catalog.blocks import BlockTable, concatenated
from layoutopt.catalog.bounds import bounds_over
from layoutopt.catalog.deletion_vectors import decode_deletes, with_deletes
from layoutopt.catalog.entries import is_older, written_rows
from layoutopt.catalog.paths import FileDigest, plan_path
from layoutopt.catalog.snapshot import (
    Bounds,
    Deletes,
    EntryName,
    PartitionEntry,
    Snapshot,
    check_is_table,
    latest_snapshot,
    read_snapshot,
    snapshot_as_of,
)
from layoutopt.catalog.storage.filesystem import READ_THROUGH, TableFiles
from layoutopt.catalog.storage.index_files import IndexFile, read_index
from layoutopt.errors import CatalogError, NotATableError, PlanError, SettingError
from layoutopt.model import layout
from layoutopt.model.arrays import Ints
from layoutopt.model.layout import Plan
from layoutopt.model.records import short
from layoutopt.model.schema import Schema
from layoutopt.skipping.cannot_match import BlockStatistics

_PLANS: Final = 8
"""So many plans are remembered by a process, by their bytes."""


@dataclass(frozen=True, eq=False)
class Catalog:
    """What a table knows of itself at one snapshot. Blocks are read when they are first asked for, then kept.

    ``plans`` has every plan that the snapshot's partitions name, by digest. ``written`` is False where there are no
    files, see :meth:`rehearsed`. ``others`` are the data files where somebody else keeps them, see :meth:`over_files`.
    """

    files: TableFiles
    snapshot: Snapshot
    plans: Mapping[str, Plan]
    written: bool = True
    others: TableFiles | None = None

    @classmethod
    def open(
        cls, root: str, snapshot: int | None = None, as_of: str | None = None, read_through: int = READ_THROUGH,
        key: str | None = None,
    ) -> Catalog:  # fmt: skip
        """Open a table at its newest snapshot, at one by number, or at the newest not after a time (ISO 8601).

        ``read_through`` and ``key`` are :class:`TableFiles`'s.

        Raises:
            NotATableError: the path holds something else, nothing, or a table that was never loaded.
            CatalogError: the snapshot or a plan is missing, damaged or of a version that can't be read.
            SettingError: both a number and a time, or a text that is no time.
            EncryptionKeyError: as :func:`~layoutopt.catalog.snapshot.check_is_table`.
        """
        files = TableFiles(root, read_through, key=key)
        check_is_table(files)
        found = chosen_snapshot(files, snapshot, as_of)
        return cls(files, found, {digest: read_plan(files, found, digest) for digest in found.plans_read})

    @classmethod
    def open_partitions(cls, files: TableFiles, snapshot: int, keys: Collection[str]) -> Catalog:
        """Open some partitions of a table at a snapshot, by their keys: a task of many, which needs no others.

        Raises:
            CatalogError: the snapshot or a plan is missing, damaged or of a version that can't be read.
        """
        found = read_snapshot(files, snapshot)
        part = replace(found, partitions=tuple(entry for entry in found.partitions if entry.key in keys))
        return cls(files, part, {digest: read_plan(files, found, digest) for digest in part.plans_read})

    @classmethod
    def rehearsed(cls, snapshot: Snapshot, plan: Plan, blocks: BlockTable) -> Catalog:
        """The catalog of a table that was never written: one plan's blocks, as a load would measure them.

        Args:
            snapshot: what the load would commit; its partitions all name one blocks file.
            plan: theirs.
            blocks: theirs.
        """
        catalog = cls(TableFiles("rehearsed"), snapshot, {plan.digest: plan}, written=False)
        for entry in snapshot.partitions:
            catalog._tables[entry.blocks_file, plan.digest] = blocks
        return catalog

    @classmethod
    def over_files(
        cls, files: TableFiles, snapshot: Snapshot, plans: Mapping[str, Plan], blocks: Sequence[BlockTable],
        others: TableFiles,
    ) -> Catalog:  # fmt: skip
        """The catalog of files that somebody else keeps, from what was measured of them.

        Args:
            files: the folder of what was measured.
            snapshot: what there is; it was never committed so.
            plans: those of its partitions, by digest.
            blocks: those of its partitions, one item each.
            others: where the blocks' files are.
        """
        catalog = cls(files, snapshot, plans, others=others)
        for entry, part in zip(snapshot.partitions, blocks, strict=True):
            catalog._parts[entry.name] = part
        return catalog

    @property
    def data(self) -> TableFiles:
        """Where the data files are, as blocks name them."""
        return self.files if self.others is None else self.others

    @property
    def schema(self) -> Schema:
        """The table's schema."""
        return self.snapshot.schema

    @property
    def partitions(self) -> tuple[PartitionEntry, ...]:
        """The entries of the snapshot's partitions, sorted by key."""
        return self.snapshot.partitions

    @cached_property
    def _tables(self) -> dict[tuple[str, str], BlockTable]:
        """The blocks files read so far, by path and plan."""
        return {}

    @cached_property
    def _vectors(self) -> dict[str, pa.Table]:
        """The vectors files read so far, by path."""
        return {}

    @cached_property
    def _parts(self) -> dict[EntryName, BlockTable]:
        """The blocks of single entries made so far."""
        return {}

    def blocks(self, entry: PartitionEntry) -> BlockTable:
        """The blocks of one entry of this snapshot, with the vectors of its deleted rows.

        Raises:
            CatalogError: the blocks file, or that of the vectors, is missing or damaged, or does not hold what the
                snapshot says.
        """
        if entry.name not in self._parts:
            self._parts[entry.name] = self._blocks(entry)
        return self._parts[entry.name]

    def _blocks(self, entry: PartitionEntry) -> BlockTable:
        table = self.file_blocks(entry)
        index = table.partitions.index(entry.key) if entry.key in table.partitions else -1
        mask = table.partition == index
        part = table if mask.all() else table.take(mask)
        if written_rows(part) != entry.rows:
            where = self.files.full_path(entry.blocks_file)
            raise CatalogError(f"{where} does not hold the {entry.rows} rows of partition {entry.key!r}; load it again")
        return part if entry.deletes is None else self._marked(part, entry.deletes)

    def _marked(self, part: BlockTable, deletes: Deletes) -> BlockTable:
        """An entry's blocks with the vectors of its deleted rows.

        Raises:
            CatalogError: their file is missing or damaged: without it deleted rows would come back.
        """
        where = self.files.full_path(deletes.file)
        if deletes.file not in self._vectors:
            data = read_checked(self.files, self.snapshot, deletes.file)
            self._vectors[deletes.file] = decode_deletes(data, where)
        return with_deletes(part, self._vectors[deletes.file], deletes, where)

    def file_blocks(self, entry: PartitionEntry) -> BlockTable:
        """All blocks of the file that holds a partition's: those of other partitions of the load too.

        Raises:
            CatalogError: the blocks file is missing or damaged.
        """
        key = (entry.blocks_file, entry.plan)
        if key not in self._tables:
            data = read_checked(self.files, self.snapshot, entry.blocks_file)
            where = self.files.full_path(entry.blocks_file)
            self._tables[key] = BlockTable.from_parquet(data, self.plans[entry.plan], where, self._index)
        return self._tables[key]

    def _index(self, named: IndexFile, rows: int) -> pa.Array | None:
        """What an index file holds; None where it can't be had, for then it proves nothing. ``verify`` says why."""
        try:
            return read_index(self.files, named, rows)
        except CatalogError:
            return None

    def block_tables(self) -> list[tuple[PartitionEntry, BlockTable]]:
        """Every entry with its blocks.

        Raises:
            CatalogError: as for :meth:`blocks`.
        """
        return [(entry, self.blocks(entry)) for entry in self.partitions]

    def blocks_by_plan(self) -> dict[str, tuple[BlockTable, Ints]]:
        """All blocks, in one table for each plan (by digest), and the place of each one's entry in :attr:`partitions`.

        Raises:
            CatalogError: as for :meth:`blocks`.
        """
        tables = [table for _, table in self.block_tables()]
        found = {}
        for digest in self.plans:
            places = [place for place, entry in enumerate(self.partitions) if entry.plan == digest]
            if places:
                parts = [tables[place] for place in places]
                entry_of = np.repeat(np.array(places, dtype=np.int64), [part.n for part in parts])
                found[digest] = (concatenated(parts), entry_of)
        return found

    def partition_statistics(self) -> BlockStatistics:
        """The entries in order, each as if it were one block, for the one skipping rule; without feature bits."""
        rows = np.array([entry.rows for entry in self.partitions], dtype=np.int64)
        bounds = {}
        for column in self.schema.columns:
            by_partition = [self.bounds_in(entry, column.name) for entry in self.partitions]
            bounds[column.name] = bounds_over(by_partition, rows, column.type)
        return BlockStatistics(rows=rows, bounds=bounds)

    def bounds_in(self, entry: PartitionEntry, name: str) -> Bounds:
        """What is known of a column in a partition; it is NULL throughout where the partition's plan is older."""
        if self.plans[entry.plan].schema.get(name) is None:
            return Bounds(nulls=entry.rows)
        return entry.bounds.get(name, Bounds())


def chosen_snapshot(files: TableFiles, number: int | None, as_of: str | None) -> Snapshot:
    """The newest snapshot, the one of a number, or the newest not after a time; raises as :meth:`Catalog.open`."""
    if number is not None and as_of is not None:
        raise SettingError(f"snapshot {number} and the time {as_of!r} are both asked for; give one of them")
    if number is not None:
        return read_snapshot(files, number)
    if as_of is not None:
        return snapshot_as_of(files, as_of)
    latest = latest_snapshot(files)
    if latest is None:
        raise NotATableError(f"the table at {files.root!r} was never loaded; run `layoutopt load` first")
    return latest


def read_checked(files: TableFiles, snapshot: Snapshot, path: str) -> bytes:
    """A catalog file's content, equal to what was committed to the last bit."""
    where, expected = files.full_path(path), snapshot.files[path]
    try:
        data = files.read_known(path, expected.sha256)
    except FileNotFoundError as error:
        raise CatalogError(f"the catalog file {where} is missing; restore it from a copy or load again") from error
    if FileDigest.of(data) != expected:
        raise CatalogError(
            f"the catalog file {where} is damaged: its {len(data)} bytes are not those that snapshot {snapshot.number} "
            "names; restore it from a copy or load again"
        )
    files.keep_known(path, expected.sha256, data)
    return data


@lru_cache(maxsize=_PLANS)
def _plan_of(data: bytes) -> Plan:
    """Remembered, since a change opens its table several times, and most of a plan is read as soon as it is written by.

    Raises:
        PlanError: it can't be used.
    """
    return Plan.loads_late(data)


def read_plan(files: TableFiles, snapshot: Snapshot, digest: str) -> Plan:
    """A plan that a snapshot names.

    Raises:
        CatalogError: it is missing, damaged, or can't be used.
    """
    path = plan_path(digest)
    try:
        data = read_checked(files, snapshot, path)
        plan = _plan_of(data) if layout.digest_of(data) == digest else Plan.loads(data)
    except PlanError as error:
        raise CatalogError(
            f"the plan {files.full_path(path)} can't be used ({short(str(error))}); load again"
        ) from error
    if not is_older(plan.schema, snapshot.schema):
        raise CatalogError(
            f"the plan {files.full_path(path)} has another schema than the table; restore it from a copy"
        )
    return plan
