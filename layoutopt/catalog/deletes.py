"""Deletion vectors: which rows of which blocks are deleted, in a file beside the blocks (SPEC.md, "Deletes").

A vector is a Roaring bitmap of places in one block, so a reader of any layout needs that layout's vectors alone. All
else that is known of a block speaks of its rows as they were written: bounds and union vectors are never narrower than
the rows that live.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap

from layoutopt.catalog.block_index import check_expansion, damaged
from layoutopt.catalog.blocks import DELETED, DELETED_ROWS, BlockTable
from layoutopt.catalog.keys import one_chunk
from layoutopt.catalog.optimistic_commit import (
    Change,
    CommitHook,
    append_snapshot,
    names_of,
    next_number,
    next_time,
)
from layoutopt.catalog.paths import deletes_path
from layoutopt.catalog.snapshot import Deletes, FileDigest, PartitionEntry, Snapshot
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import CatalogError, CommitConflictError
from layoutopt.model.arrays import Ints

DELETE: Final = "delete"
"""The operation of a snapshot in which rows are deleted, by vectors or by partitions written anew."""
DELETE_POINTS: Final = ("started", "vectors-written", "before-snapshot", "snapshot-created")
"""Where ``at`` is called, in order."""

EntryName = tuple[str, str]
"""A partition's key, and the load that left the entry."""

_SCHEMA: Final = pa.schema(
    [
        pa.field("block", pa.int64(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("places", pa.large_binary(), nullable=False),
    ]
)


def packed(places: Ints) -> bytes:
    """Places in a block as a bitmap in Roaring's portable form."""
    found = BitMap(np.ascontiguousarray(places, dtype=np.uint32))
    found.run_optimize()
    return bytes(found.serialize())


def places_in(vector: bytes) -> Ints:
    """The places of a bitmap, ascending, int64[n].

    >>> places_in(packed(np.array([7, 3]))).tolist()
    [3, 7]

    Raises:
        CatalogError: it is no bitmap.
    """
    try:
        found = BitMap.deserialize(vector)
    except ValueError as error:
        raise CatalogError(f"a deletion vector is damaged ({error}); restore its file from a copy") from error
    return np.array(found.to_array(), dtype=np.int64)


def united(vectors: Sequence[bytes]) -> bytes:
    """The places that are in any of some bitmaps."""
    found = BitMap.union(*map(BitMap.deserialize, vectors))
    found.run_optimize()
    return bytes(found.serialize())


def encode_deletes(vectors: Mapping[int, bytes]) -> bytes:
    """The content of a vectors file: of each block, by its number, the places that are deleted."""
    blocks = sorted(vectors)
    rows = [len(BitMap.deserialize(vectors[block])) for block in blocks]
    table = pa.table([blocks, rows, [vectors[block] for block in blocks]], schema=_SCHEMA)
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", use_dictionary=False, write_statistics=False)
    return sink.getvalue()


def decode_deletes(data: bytes, where: str) -> pa.Table:
    """The vectors of a file's content, one row a block: ``block``, ``rows`` and ``places``.

    Raises:
        CatalogError: it is none.
    """
    try:
        check_expansion(pq.read_metadata(io.BytesIO(data)), len(data), where)
        table = pq.read_table(io.BytesIO(data)).combine_chunks()
    except (pa.ArrowException, OSError) as error:
        raise damaged(where, str(error)) from error
    if table.schema.names != _SCHEMA.names or table.schema.types != _SCHEMA.types:
        raise damaged(where, f"it has the columns {table.schema.names}, not {_SCHEMA.names}")
    return table


def with_deletes(blocks: BlockTable, stored: pa.Table, deletes: Deletes, where: str) -> BlockTable:
    """The blocks of an entry with the vectors of its file.

    Raises:
        CatalogError: the file has not the rows that the snapshot says, or more than a block has.
    """
    found = pc.index_in(one_chunk(blocks.block_index["block"]), one_chunk(stored["block"]))
    rows = one_chunk(stored["rows"].take(found)).fill_null(0)
    marked = blocks.marked(one_chunk(stored["places"].take(found)), rows)
    by_layout = np.bincount(marked.layout, marked.deleted_rows) if marked.n else np.zeros(1)
    if (marked.deleted_rows > marked.rows).any() or int(by_layout.max()) != deletes.rows:
        raise damaged(where, f"it does not have the {deletes.rows} rows that are deleted")
    return marked


def vectors_of(blocks: BlockTable) -> dict[int, bytes]:
    """The vectors that some blocks have, by the blocks' numbers."""
    index = blocks.block_index
    if DELETED not in index.column_names:
        return {}
    mine = index.filter(pc.greater(index[DELETED_ROWS], 0))
    return dict(zip(mine["block"].to_pylist(), mine[DELETED].to_pylist(), strict=True))


def commit_deletes(
    files: TableFiles,
    base: Snapshot,
    load_id: str,
    deleted: Mapping[EntryName, Deletes],
    vectors: Mapping[int, bytes],
    *,
    at: CommitHook = lambda point: None,
) -> Snapshot:
    """Make rows deleted: write the vectors of all blocks of the entries concerned, then the next snapshot.

    Args:
        files: the table's.
        base: the snapshot in which the rows were found.
        load_id: of the change.
        deleted: by entry what of it is deleted then, earlier deletes included; all name the file of the load id.
        vectors: of every block with a deleted row of these entries, earlier deletes included.
        at: called at each of :data:`DELETE_POINTS`.

    Raises:
        CommitConflictError: somebody else changed one of the entries since ``base``; rows may have come beside them.
        OSError: the store failed; the table is as it was.
    """
    at("started")
    data, path = encode_deletes(vectors), deletes_path(load_id)
    files.write_new(path, data)
    at("vectors-written")
    digest = FileDigest.of(data)
    touched = [entry for entry in base.partitions if (entry.key, entry.load_id) in deleted]

    def after(latest: Snapshot | None) -> Snapshot:
        return _marked(base, latest, load_id, deleted, digest)

    change = Change(load_id, base, names_of(touched, [path]), after)
    try:
        return append_snapshot(files, change, at)
    except CommitConflictError:
        files.delete(path)  # refused for certain; after any other failure a snapshot may name it
        raise


def _marked(
    base: Snapshot, latest: Snapshot | None, load_id: str, deleted: Mapping[EntryName, Deletes], digest: FileDigest
) -> Snapshot:
    """The snapshot after the newest one, in which entries have other deletes."""
    assert latest is not None, "the table has a snapshot"
    planned_on, now = ({(entry.key, entry.load_id): entry for entry in each.partitions} for each in (base, latest))
    for name in deleted:
        if now.get(name) != planned_on[name]:
            raise CommitConflictError(
                f"partition {name[0]!r} was changed by somebody else ({latest.load_id!r}) while rows were being "
                "deleted; look at the table, then delete again if it still needs it"
            )
    partitions = tuple(_with(entry, deleted.get((entry.key, entry.load_id))) for entry in latest.partitions)
    named = {entry.deletes.file for entry in partitions if entry.deletes is not None}
    gone = {entry.deletes.file for entry in latest.partitions if entry.deletes is not None} - named
    kept = {path: of for path, of in latest.files.items() if path not in gone}
    return replace(
        latest,
        number=next_number(latest),
        parent=latest.number,
        created_at=next_time(latest),
        operation=DELETE,
        load_id=load_id,
        partitions=partitions,
        files=dict(sorted({**kept, deletes_path(load_id): digest}.items())),
        tombstones=(),
    )


def _with(entry: PartitionEntry, deletes: Deletes | None) -> PartitionEntry:
    """The entry with other deletes: it no longer has what its source has."""
    return entry if deletes is None else replace(entry, deletes=deletes, source=None)
