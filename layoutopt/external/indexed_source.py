"""Open a source's current files as a catalog: by their footers alone, or with indexes of those that have not changed.

Of an indexed source, a new or changed file has blocks without statistics, so all of it is read; a removed file has
none. Answers are always those of the current source.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from layoutopt.catalog.blocks import BlockTable, encode_blocks
from layoutopt.catalog.entries import is_older
from layoutopt.catalog.optimistic_commit import next_time
from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.paths import new_load_id
from layoutopt.catalog.snapshot import Snapshot, latest_snapshot
from layoutopt.catalog.storage.filesystem import READ_THROUGH, TableFiles
from layoutopt.catalog.table import Catalog, read_plan
from layoutopt.catalog.table_root import source_of_index
from layoutopt.errors import NotATableError, SchemaError, SourceError
from layoutopt.external.footers import Footer, is_native, merge_file_columns, read_footers
from layoutopt.external.listing import ListedFile, Listing, add_folder_columns, digest_file, digest_listing, list_source
from layoutopt.external.row_groups import (
    make_blocks,
    make_source_plan,
    mark_deleted,
    mask_partitions,
    number_blocks,
    widen_plan,
)
from layoutopt.external.source_files import SourceFiles, file_key, source_files
from layoutopt.model.layout import Plan
from layoutopt.model.schema import Column, Schema

# The partitions of indexed files, and of files that are read whole.
INDEXED: Final = "indexed"
UNKNOWN: Final = "not-indexed"


def count_unindexed_files(catalog: Catalog) -> int:
    """Return the number of a source's files that are read whole, because they are not indexed as they are now."""
    return sum(len(catalog.blocks(entry).files) for entry in catalog.partitions if entry.key == UNKNOWN)


def has_changed(catalog: Catalog) -> bool:
    """Return whether an opened source has other files or rows by now; always False for a table."""
    state = catalog.data.state
    return state is not None and digest_listing(list_source(source_of_index(catalog.files.root))) != state


def open_indexed(root: str, source: str, read_through: int = READ_THROUGH) -> Catalog:
    """Return the catalog of a source's current files.

    Args:
        read_through: as of :class:`~layoutopt.catalog.storage.filesystem.TableFiles`.

    Raises:
        NotATableError: nothing was ever indexed.
        SourceError, SchemaError: the source can't be read.
    """
    files = TableFiles(root, read_through)
    snapshot = latest_snapshot(files)
    if snapshot is None or not snapshot.partitions:
        raise NotATableError(f"the indexes {root!r} were never finished; run `layoutopt index` again")
    digest = snapshot.partitions[0].plan
    plan = read_plan(files, snapshot, digest)
    listing = list_source(source)
    current = _find_changes(listing, snapshot, plan)
    schema = current.schema
    native = {entry.key for entry in snapshot.partitions if entry.native and entry.key in current.unchanged}
    native |= {footer.key for footer in current.changed if is_native(footer, schema)}
    held = replace(
        source_files(listing.files, schema),
        read_through=read_through, state=digest_listing(listing), native=frozenset(native),
    )  # fmt: skip
    indexed = Catalog(files, snapshot, {digest: plan})
    blocks = indexed.file_blocks(indexed.partitions[0])
    mask = mask_partitions(blocks, current.unchanged)
    parts, plans = [blocks if mask.all() else blocks.take(mask)], [plan]
    if current.changed:
        tables = [make_blocks(footer, schema, use_bounds=False) for footer in current.changed]
        plans.append(plan if schema == plan.schema else widen_plan(plan, schema))
        encoded = encode_blocks(number_blocks(pa.concat_tables(tables)))  # like the blocks in a blocks file
        parts.append(BlockTable.from_parquet(encoded, plans[1], f"the blocks of {source!r}"))
    parts = [mark_deleted(part, held.held) for part in parts]
    load_id, path = snapshot.load_id, snapshot.partitions[0].blocks_file
    entries = [_make_entry(*args, load_id, path) for args in zip((INDEXED, UNKNOWN), plans, parts, strict=False)]
    snapshot = replace(snapshot, schema=schema, partitions=tuple(entries))
    return Catalog.over_files(files, snapshot, {plan.digest: plan for plan in plans}, parts, held)


def open_source_catalog(source: str, name: str) -> Catalog:
    """Return the catalog of a source's current files, one block a row group, skipped by its footer's statistics.

    Args:
        source: the :func:`~layoutopt.external.listing.canonical_name` name of the source, possibly at a version.
        name: the table's name in queries.

    Raises:
        SourceError, SchemaError, SettingError: the source can't be read.
    """
    listing = list_source(source)
    if not listing.files:
        raise SourceError(f"{source!r} has no file; query it when it has rows")
    footers, files = read_current_footers(listing)
    plan = make_source_plan(name, files.schema, ())
    blocks = BlockTable.from_arrow(
        number_blocks(pa.concat_tables([make_blocks(footer, files.schema) for footer in footers])), plan
    )
    blocks = mark_deleted(blocks, files.held)
    native = frozenset(footer.key for footer in footers if is_native(footer, files.schema))
    load_id = new_load_id()
    snapshot = Snapshot(
        number=1, parent=None, created_at=next_time(None), operation="open", load_id=load_id, schema=files.schema,
        partition_by=None, partitions=(_make_entry(INDEXED, plan, blocks, load_id, "none"),),
    )  # fmt: skip
    held = replace(files, native=native)
    return Catalog.over_files(TableFiles(files.root), snapshot, {plan.digest: plan}, [blocks], held)


def read_current_footers(listing: Listing) -> tuple[list[Footer], SourceFiles]:
    """Return the footers of a source's files in their order, and the files with the columns of all of them."""
    files = source_files(listing.files, listing.schema)
    footers = read_footers(files, listing.files)
    return footers, replace(files, schema=_merge_schema(listing, (), footers))


@dataclass(frozen=True, eq=False)
class _CurrentFiles:
    """A source's files: the keys of unchanged ones, the footers of changed and new ones, and the columns of all."""

    unchanged: frozenset[str]
    changed: list[Footer]
    schema: Schema


def _find_changes(listing: Listing, snapshot: Snapshot, plan: Plan) -> _CurrentFiles:
    digests = {entry.key: entry.source for entry in snapshot.partitions}
    files = source_files(listing.files, listing.schema)
    unchanged: list[ListedFile] = []
    changed: list[ListedFile] = []
    for file in listing.files:
        same = digests.get(file_key(file.file.path)) == digest_file(file, listing.schema, plan.schema.names)
        (unchanged if same else changed).append(file)
    footers = read_footers(files, changed)
    try:
        schema = _merge_schema(listing, plan.schema.columns, footers)
        if is_older(plan.schema, schema):
            return _CurrentFiles(frozenset(file_key(file.file.path) for file in unchanged), footers, schema)
    except SchemaError:  # the conflicting type may be that of a removed file
        pass
    # A column has another type or is gone: the existing indexes are not valid.
    footers, files = read_current_footers(listing)
    return _CurrentFiles(frozenset(), footers, files.schema)


def _merge_schema(listing: Listing, columns: Iterable[Column], footers: Iterable[Footer]) -> Schema:
    return add_folder_columns(listing, merge_file_columns(columns, footers)) if listing.is_folder else listing.schema


def _make_entry(key: str, plan: Plan, blocks: BlockTable, load_id: str, path: str) -> PartitionEntry:
    return PartitionEntry(
        key=key, value=None, plan=plan.digest, load_id=load_id, blocks_file=path,
        rows=int(blocks.rows.sum()), bounds={}, checksums={}, bytes=int(blocks.bytes.sum()),
    )  # fmt: skip
