"""Deletion vectors: which rows of which blocks are deleted, in a file beside the blocks (SPEC.md, "Deletes").

A vector is a Roaring bitmap of places in one block, so a reader of any layout needs that layout's vectors alone. All
else that is known of a block speaks of its rows as they were written: bounds and union vectors are never narrower than
the rows that live.
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

from layoutopt.catalog.block_index import check_expansion, damaged
from layoutopt.catalog.blocks import DELETED, DELETED_ROWS, BlockTable
from layoutopt.catalog.checks import Content
from layoutopt.catalog.keys import one_chunk
from layoutopt.catalog.optimistic_commit import Change, CommitHook, append_snapshot, names_of, next_number, next_time
from layoutopt.catalog.paths import FileDigest, deletes_path
from layoutopt.catalog.snapshot import Deletes, EntryName, PartitionEntry, Snapshot
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import CatalogError, CommitConflictError
from layoutopt.model.arrays import Ints

DELETE: Final = "delete"
"""The operation of a snapshot in which rows are deleted, by vectors or by partitions written anew."""
DELETE_POINTS: Final = ("started", "vectors-written", "before-snapshot", "snapshot-created")
"""Where ``at`` is called, in order."""

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


@dataclass(frozen=True, eq=False)
class Marks:
    """Rows to be deleted by vectors.

    Attributes:
        deleted: by entry what of it is deleted then, earlier deletes included: rows, and sums of the columns of which
            the entry has some.
        vectors: of every block with a deleted row of these entries, earlier deletes included, by the blocks' numbers.
        alone: whether rows that came beside these entries are a conflict too. A merge's new rows are of keys that the
            table lacked, so it must not meet others that bring them.
        replaced: entries that go whole, since their rows are among those that come.
    """

    deleted: Mapping[EntryName, Content]
    vectors: Mapping[int, bytes]
    alone: bool = False
    replaced: frozenset[EntryName] = frozenset()

    @cached_property
    def data(self) -> bytes:
        """The content of the vectors file; empty where nothing is deleted."""
        return encode_deletes(self.vectors) if self.deleted else b""

    def entries_in(self, snapshot: Snapshot) -> list[PartitionEntry]:
        """The entries of a snapshot of which rows are to be deleted."""
        return [entry for entry in snapshot.partitions if entry.name in self.deleted]


@contextmanager
def vectors_written(files: TableFiles, load_id: str, marks: Marks | None) -> Iterator[dict[str, FileDigest]]:
    """Write the vectors of a change, and take them away again where it is refused; gives their digests by path."""
    if marks is None or not marks.deleted:
        yield {}
        return
    path = deletes_path(load_id)
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
    files: TableFiles,
    base: Snapshot,
    load_id: str,
    marks: Marks,
    *,
    operation: str = DELETE,
    at: CommitHook = lambda point: None,
) -> Snapshot:
    """Make rows deleted: write the vectors of all blocks of the entries concerned, then the next snapshot.

    Args:
        files: the table's.
        base: the snapshot in which the rows were found.
        load_id: of the change.
        marks: the rows.
        operation: what the history calls it.
        at: called at each of :data:`DELETE_POINTS`.

    Raises:
        CommitConflictError: somebody else changed one of the entries since ``base``; rows may have come beside them.
        OSError: the store failed; the table is as it was.
    """
    at("started")
    with vectors_written(files, load_id, marks) as digests:
        at("vectors-written")

        def after(latest: Snapshot | None) -> Snapshot:
            partitions = marked_partitions(base, latest, load_id, marks)
            return _following(latest, operation, load_id, partitions, digests)

        names = names_of(marks.entries_in(base), digests)
        return append_snapshot(files, Change(load_id, base, names, after), at)


def marked_partitions(
    base: Snapshot | None, latest: Snapshot | None, load_id: str, marks: Marks
) -> tuple[PartitionEntry, ...]:
    """The entries of the newest snapshot, with rows of some deleted that were found in an earlier one, and some gone.

    Raises:
        CommitConflictError: somebody else changed one of these since.
    """
    planned_on, now = ({entry.name: entry for entry in _entries_of(each)} for each in (base, latest))
    for name in (*marks.deleted, *marks.replaced):
        if now.get(name) != planned_on[name]:
            raise CommitConflictError(
                f"partition {name[0]!r} was changed by somebody else ({_load_id(latest)!r}) while rows were being "
                "changed; look at the table, then make the change again if it still needs it"
            )
    left = (entry for entry in _entries_of(latest) if entry.name not in marks.replaced)
    return tuple(_with(entry, marks.deleted.get(entry.name), load_id) for entry in left)


def _following(
    latest: Snapshot | None,
    operation: str,
    load_id: str,
    partitions: tuple[PartitionEntry, ...],
    digests: Mapping[str, FileDigest],
) -> Snapshot:
    """The snapshot after the newest one, in which entries have other deletes."""
    assert latest is not None, "the table has a snapshot"
    named = {entry.deletes.file for entry in partitions if entry.deletes is not None}
    gone = {entry.deletes.file for entry in latest.partitions if entry.deletes is not None} - named
    kept = {path: of for path, of in latest.files.items() if path not in gone}
    return replace(
        latest,
        number=next_number(latest),
        parent=latest.number,
        created_at=next_time(latest),
        operation=operation,
        load_id=load_id,
        partitions=partitions,
        files=dict(sorted({**kept, **digests}.items())),
        tombstones=(),
    )


def _with(entry: PartitionEntry, gone: Content | None, load_id: str) -> PartitionEntry:
    """The entry with other deletes: it no longer has what its source has."""
    if gone is None:
        return entry
    return replace(entry, deletes=Deletes(deletes_path(load_id), gone.rows, gone.sums), source=None)


def _entries_of(snapshot: Snapshot | None) -> tuple[PartitionEntry, ...]:
    return () if snapshot is None else snapshot.partitions


def _load_id(snapshot: Snapshot | None) -> str | None:
    return None if snapshot is None else snapshot.load_id
