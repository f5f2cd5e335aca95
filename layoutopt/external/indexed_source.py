"""An indexed source, opened: its files as they are now, with what is known of those that are as they were.

A file that nobody has measured, or that was changed since, has blocks of which nothing is known, so all of it is read;
a file that is gone has none. So answers are always those of the source as it is now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from layoutopt.catalog.blocks import BlockTable, encode_blocks
from layoutopt.catalog.entries import is_older
from layoutopt.catalog.snapshot import PartitionEntry, Snapshot, latest_snapshot, source_of_index
from layoutopt.catalog.storage.filesystem import READ_THROUGH, TableFiles
from layoutopt.catalog.table import Catalog, read_plan
from layoutopt.errors import NotATableError, SchemaError
from layoutopt.external.footers import Footer, merged_columns, read_footers
from layoutopt.external.listing import Listed, Listing, list_source, mark_of, state_of, with_columns
from layoutopt.external.row_groups import blocks_of, grown, in_partitions, numbered
from layoutopt.external.source_files import SourceFiles, file_key, source_files
from layoutopt.model.layout import Plan
from layoutopt.model.schema import Column, Schema

INDEXED: Final = "indexed"
"""The partition of what is known."""
UNKNOWN: Final = "not-indexed"
"""The partition of files that are read whole."""


def not_indexed(catalog: Catalog) -> int:
    """How many files of a source are read whole, since nobody has measured them as they are now."""
    return sum(len(catalog.blocks(entry).files) for entry in catalog.partitions if entry.key == UNKNOWN)


def has_changed(catalog: Catalog) -> bool:
    """Whether a source that was opened has other files or rows by now; never for a table.

    Raises:
        SourceError: the source can't be listed.
    """
    held = catalog.others
    if not isinstance(held, SourceFiles):
        return False
    return state_of(list_source(source_of_index(catalog.files.root))) != held.state


def open_indexed(
    root: str, source: str, type_of: Callable[[str], pa.DataType], read_through: int = READ_THROUGH
) -> Catalog:
    """The catalog of a source's files as they are now.

    Args:
        root: the folder of the indexes.
        source: whose they are.
        type_of: the Arrow type of a Spark type.
        read_through: as of :class:`~layoutopt.catalog.storage.filesystem.TableFiles`.

    Raises:
        NotATableError: nothing was ever indexed.
        CatalogError: a catalog file is missing or damaged.
        SourceError, SchemaError: the source can't be read.
    """
    files = TableFiles(root, read_through)
    snapshot = latest_snapshot(files)
    if snapshot is None or not snapshot.partitions:
        raise NotATableError(f"the indexes {root!r} were never finished; run `layoutopt index` again")
    digest = snapshot.partitions[0].plan
    plan = read_plan(files, snapshot, digest)
    listing = list_source(source)
    now = _told_apart(listing, snapshot, plan)
    held = replace(source_files(listing.files, now.schema), read_through=read_through, state=state_of(listing))
    parts, plans = [_indexed(Catalog(files, snapshot, {digest: plan}), now.known)], [plan]
    if now.others:
        types = {column.name: type_of(column.type) for column in now.schema.columns}
        blocks = [blocks_of(footer, now.schema, types, believed=False) for footer in now.others]
        plans.append(plan if now.schema == plan.schema else grown(plan, now.schema))
        encoded = encode_blocks(numbered(pa.concat_tables(blocks)))  # as those are that stand in a file
        parts.append(BlockTable.from_parquet(encoded, plans[1], f"what is read of {source!r}"))
    entries = [_entry(*each, snapshot) for each in zip((INDEXED, UNKNOWN), plans, parts, strict=False)]
    shown = replace(snapshot, schema=now.schema, partitions=tuple(entries))
    return Catalog.over_files(files, shown, {of.digest: of for of in plans}, parts, held)


@dataclass(frozen=True, eq=False)
class _Now:
    """A source's files: the keys of those that are known, the footers of the others, and the columns of all."""

    known: frozenset[str]
    others: list[Footer]
    schema: Schema


def _told_apart(listing: Listing, snapshot: Snapshot, plan: Plan) -> _Now:
    marks = {entry.key: entry.source for entry in snapshot.partitions}
    files = source_files(listing.files, listing.schema)
    known: list[Listed] = []
    others: list[Listed] = []
    for one in listing.files:
        same = marks.get(file_key(one.file.path)) == mark_of(one, listing.schema, plan.schema.names)
        (known if same else others).append(one)
    footers = read_footers(files, others)
    try:
        schema = _schema(listing, plan.schema.columns, footers)
        if is_older(plan.schema, schema):
            return _Now(frozenset(file_key(one.file.path) for one in known), footers, schema)
    except SchemaError:  # perhaps only of files that are gone
        pass
    # A column is of another type, or gone: nothing holds any more of what is known.
    footers = read_footers(files, listing.files)
    return _Now(frozenset(), footers, _schema(listing, (), footers))


def _schema(listing: Listing, columns: Iterable[Column], footers: Iterable[Footer]) -> Schema:
    return with_columns(listing, merged_columns(columns, footers)) if listing.is_folder else listing.schema


def _entry(key: str, plan: Plan, blocks: BlockTable, snapshot: Snapshot) -> PartitionEntry:
    return PartitionEntry(
        key=key, value=None, plan=plan.digest, load_id=snapshot.load_id, blocks_file=snapshot.partitions[0].blocks_file,
        rows=int(blocks.rows.sum()), bounds={}, checksums={}, bytes=int(blocks.bytes.sum()),
    )  # fmt: skip


def _indexed(catalog: Catalog, keys: frozenset[str]) -> BlockTable:
    """The blocks of files that are as they were."""
    blocks = catalog.file_blocks(catalog.partitions[0])
    mask = in_partitions(blocks, keys)
    return blocks if mask.all() else blocks.take(mask)
