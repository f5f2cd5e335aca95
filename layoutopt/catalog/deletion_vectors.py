"""Deletion vectors: the deleted rows of blocks, in a file beside the blocks (SPEC.md, "Deletes").

A vector is a Roaring bitmap of row positions in one block, so a reader of a layout needs only that layout's vectors.
All other metadata of a block describes its rows as written: bounds and union vectors may be wider than the live rows.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap

from layoutopt.catalog.block_index import check_expansion, damage_error
from layoutopt.catalog.blocks import DELETED, DELETED_ROWS, BlockTable
from layoutopt.catalog.load_check import Content
from layoutopt.catalog.optimistic_commit import (
    Change,
    CommitHook,
    append_snapshot,
    make_next_snapshot,
    names_of,
    next_number,
)
from layoutopt.catalog.partition_entry import Deletes, EntryName, PartitionEntry
from layoutopt.catalog.paths import FileDigest, deletes_path
from layoutopt.catalog.snapshot import Snapshot
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import CatalogError, CommitConflictError
from layoutopt.evaluation.keys import one_chunk
from layoutopt.model.arrays import Ints

# The operation of a snapshot that deletes rows, by vectors or by rewritten partitions.
DELETE: Final = "delete"
# The points at which ``at`` is called, in order.
DELETE_POINTS: Final = ("started", "vectors-written", "before-snapshot", "snapshot-created")

_SCHEMA: Final = pa.schema(
    [
        pa.field("block", pa.int64(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("places", pa.large_binary(), nullable=False),
    ]
)


def pack_positions(positions: Ints) -> bytes:
    """Return positions in a block as a bitmap in Roaring's portable form."""
    bitmap = BitMap(np.ascontiguousarray(positions, dtype=np.uint32))
    bitmap.run_optimize()
    return bytes(bitmap.serialize())


def unpack_positions(vector: bytes) -> Ints:
    """Return the positions of a bitmap, ascending, int64[n]; raise CatalogError if it is no bitmap.

    >>> unpack_positions(pack_positions(np.array([7, 3]))).tolist()
    [3, 7]
    """
    try:
        bitmap = BitMap.deserialize(vector)
    except ValueError as error:
        raise CatalogError(f"a deletion vector is damaged ({error}); restore its file from a copy") from error
    return np.array(bitmap.to_array(), dtype=np.int64)


def unite_vectors(vectors: Sequence[bytes]) -> bytes:
    """Return the union of bitmaps."""
    bitmap = BitMap.union(*map(BitMap.deserialize, vectors))
    bitmap.run_optimize()
    return bytes(bitmap.serialize())


def encode_deletes(vectors: Mapping[int, bytes]) -> bytes:
    """Return the content of a vectors file: the deleted positions of blocks, by the blocks' numbers."""
    blocks = sorted(vectors)
    rows = [len(BitMap.deserialize(vectors[block])) for block in blocks]
    table = pa.table([blocks, rows, [vectors[block] for block in blocks]], schema=_SCHEMA)
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", use_dictionary=False, write_statistics=False)
    return sink.getvalue()


def decode_deletes(data: bytes, where: str) -> pa.Table:
    """Return a file's vectors, one row a block, by ``block``; raise CatalogError if it has none."""
    try:
        check_expansion(pq.read_metadata(io.BytesIO(data)), len(data), where)
        table = pq.read_table(io.BytesIO(data)).combine_chunks()
    except (pa.ArrowException, OSError) as error:
        raise damage_error(where, str(error)) from error
    if table.schema.names != _SCHEMA.names or table.schema.types != _SCHEMA.types:
        raise damage_error(where, f"it has the columns {table.schema.names}, not {_SCHEMA.names}")
    if table["block"].null_count:
        raise damage_error(where, "it has a vector of no block")
    return table.sort_by("block")


def attach_deletes(blocks: BlockTable, stored: pa.Table, deletes: Deletes, where: str) -> BlockTable:
    """Return an entry's blocks with the vectors of its file; raise CatalogError if these disagree with the snapshot."""
    known = one_chunk(stored["block"]).to_numpy()
    # A table of all blocks for each of thousands of entries would take the square of their number.
    places = np.searchsorted(known, blocks.block_id)
    has_deletes = places < len(known)
    has_deletes[has_deletes] = known[places[has_deletes]] == blocks.block_id[has_deletes]
    indices = pa.array(places, mask=~has_deletes)
    rows = one_chunk(stored["rows"].take(indices)).fill_null(0)
    marked = blocks.marked(one_chunk(stored["places"].take(indices)), rows)
    by_layout = np.bincount(marked.layout, marked.deleted_rows) if marked.n else np.zeros(1)
    if (marked.deleted_rows > marked.rows).any() or int(by_layout.max()) != deletes.rows:
        raise damage_error(where, f"it does not delete the {deletes.rows} rows that the snapshot says")
    return marked


def vectors_of(blocks: BlockTable) -> dict[int, bytes]:
    """Return the vectors of blocks that have deleted rows, by the blocks' numbers."""
    index = blocks.block_index
    if DELETED not in index.column_names:
        return {}
    deleted = index.filter(pc.greater(index[DELETED_ROWS], 0))
    return dict(zip(deleted["block"].to_pylist(), deleted[DELETED].to_pylist(), strict=True))


@dataclass(frozen=True, eq=False)
class Marks:
    """Rows to be deleted by vectors.

    Attributes:
        deleted: by entry its deleted rows afterwards, including earlier deletes: their number, and sums of the columns
            of which the entry has some.
        vectors: of every block with a deleted row of these entries, including earlier deletes, by the blocks' numbers.
        alone: whether rows that were added beside these entries are a conflict too. A merge inserts keys that the table
            lacked, so it conflicts with any other insert.
        replaced: entries that are removed whole, since the new rows include theirs.
    """

    deleted: Mapping[EntryName, Content]
    vectors: Mapping[int, bytes]
    alone: bool = False
    replaced: frozenset[EntryName] = frozenset()

    @cached_property
    def data(self) -> bytes:
        """Return the content of the vectors file; empty where nothing is deleted."""
        return encode_deletes(self.vectors) if self.deleted else b""

    def entries_in(self, snapshot: Snapshot) -> list[PartitionEntry]:
        """Return the snapshot's entries with rows to be deleted."""
        return [entry for entry in snapshot.partitions if entry.name in self.deleted]


@contextmanager
def write_vectors(
    files: TableFiles, base: Snapshot | None, load_id: str, marks: Marks | None
) -> Iterator[dict[str, FileDigest]]:
    """Write the vectors of a change planned on ``base``, and yield their digests by path.

    The file is removed again if the change is refused.
    """
    if marks is None or not marks.deleted:
        yield {}
        return
    path = deletes_path(load_id, next_number(base))
    try:
        files.write_new(path, marks.data)
    except FileExistsError:  # of an attempt that died
        if files.read_bytes(path) != marks.data:
            raise CommitConflictError(f"the load id {load_id!r} was used before; make the change again") from None
    try:
        yield {path: FileDigest.of(marks.data)}
    except CommitConflictError:
        files.delete(path)  # refused for certain; after any other failure a snapshot may name it
        raise


def commit_deletes(
    files: TableFiles, base: Snapshot, load_id: str, marks: Marks, *,
    operation: str = DELETE, at: CommitHook = lambda point: None,
) -> Snapshot:  # fmt: skip
    """Delete rows: write the vectors of all blocks of the affected entries, then commit the next snapshot.

    ``base`` is the snapshot in which the rows were found; ``at`` is called at each of :data:`DELETE_POINTS`.

    Raises:
        CommitConflictError: another commit changed one of the entries since ``base``; appended rows are no conflict.
        OSError: the store failed; the table is unchanged.
    """
    at("started")
    with write_vectors(files, base, load_id, marks) as digests:
        at("vectors-written")

        def after(latest: Snapshot | None) -> Snapshot:
            partitions = mark_partitions(base, latest, load_id, marks)
            return _make_snapshot(latest, operation, load_id, partitions, digests)

        names = names_of(marks.entries_in(base), digests)
        return append_snapshot(files, Change(load_id, base, names, after), at)


def mark_partitions(
    base: Snapshot | None, latest: Snapshot | None, load_id: str, marks: Marks
) -> tuple[PartitionEntry, ...]:
    """Return the newest snapshot's entries with deletes planned on ``base``, without replaced entries.

    Raises CommitConflictError if another commit changed one of these since.
    """
    partitions = () if latest is None else latest.partitions
    planned_on = {entry.name: entry for entry in (() if base is None else base.partitions)}
    current = {entry.name: entry for entry in partitions}
    for name in (*marks.deleted, *marks.replaced):
        if current.get(name) != planned_on[name]:
            newest = None if latest is None else latest.load_id
            raise CommitConflictError(
                f"partition {name[0]!r} was changed by another commit ({newest!r}) while rows were being changed; "
                "look at the table, then make the change again if it still needs it"
            )
    changed, path = [], deletes_path(load_id, next_number(base))
    for entry in partitions:
        if entry.name in marks.deleted:
            content = marks.deleted[entry.name]
            # The entry no longer has the rows of its source.
            entry = replace(entry, deletes=Deletes(path, content.rows, content.sums), source=None)
        if entry.name not in marks.replaced:
            changed.append(entry)
    return tuple(changed)


def _make_snapshot(
    latest: Snapshot | None, operation: str, load_id: str, partitions: tuple[PartitionEntry, ...],
    digests: Mapping[str, FileDigest],
) -> Snapshot:  # fmt: skip
    assert latest is not None, "the table has a snapshot"
    used = {entry.deletes.file for entry in partitions if entry.deletes is not None}
    unused = {entry.deletes.file for entry in latest.partitions if entry.deletes is not None} - used
    kept = {path: digest for path, digest in latest.files.items() if path not in unused}
    content = replace(latest, partitions=partitions, files=dict(sorted({**kept, **digests}.items())))
    return make_next_snapshot(latest, content, operation, load_id)
