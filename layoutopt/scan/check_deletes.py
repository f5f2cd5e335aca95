"""Compare deletion vectors with the rows that they delete."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import CatalogError, DataFileError
from layoutopt.evaluation.checksum import hash_array, is_hashable
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.schema import TID
from layoutopt.scan.files import BATCH_ROWS, read_files
from layoutopt.scan.prune import PlanBlocks
from layoutopt.scan.segments import plan_file_reads

# A file of deletion vectors, and what is wrong with it.
Problem = tuple[str, str]


def find_wrong_deletes(files: TableFiles, source: PlanBlocks) -> Iterator[Problem]:
    """Yield what is wrong with the deletion vectors of a plan's entries; the deleted rows are read again.

    Columns that only Spark can hash are not compared. Unreadable files are left to other checks.
    """
    for index in np.unique(source.entry_of).tolist():
        entry = source.entries[index]
        if entry.deletes is None:
            continue
        try:
            wrong = _check_entry(files, source, index)
        except DataFileError:
            continue
        except CatalogError as error:
            wrong = str(error)
        if wrong is not None:
            yield entry.deletes.file, f"partition {entry.key!r}: {wrong}"


def _check_entry(files: TableFiles, source: PlanBlocks, index: int) -> str | None:
    entry, blocks = source.entries[index], source.blocks
    assert entry.deletes is not None
    sums = dict.fromkeys((name for name in entry.deletes.checksums if _is_hashable(source, name)), 0)
    count = 0
    ids = np.flatnonzero(source.entry_of == index)
    for segment in np.unique(source.segment_of[ids[blocks.deleted_rows[ids] > 0]]).tolist():
        ids = np.flatnonzero(source.segment_of == segment)
        ids = ids[np.lexsort((blocks.row_group[ids], blocks.file[ids]))]
        if source.plan.scheme.has_tids and not _have_equal_deletes(files, source, ids):
            return f"different rows are deleted in the layouts of segment {int(blocks.segment[ids[0]])}"
        for number, layout in enumerate(source.plan.scheme.layouts):
            layout_ids = ids[(blocks.layout[ids] == number) & (blocks.deleted_rows[ids] > 0)]
            for name in (name for name in layout.master if name in sums):
                sums[name] += _sum_deleted(files, source, layout_ids[blocks.has_column(name)[layout_ids]], name)
        count += int(np.bincount(blocks.layout[ids], blocks.deleted_rows[ids]).max())
    if count != entry.deletes.rows:
        return f"{count} rows are deleted, expected {entry.deletes.rows}"
    differing = [name for name, sum in sums.items() if sum != entry.deletes.checksums[name]]
    return f"the wrong rows are deleted: checksums of {', '.join(differing)} differ" if differing else None


def _is_hashable(source: PlanBlocks, name: str) -> bool:
    masters = sum(name in layout.master for layout in source.plan.scheme.layouts)
    return masters == 1 and is_hashable(source.plan.schema.find(name).type)


def _have_equal_deletes(files: TableFiles, source: PlanBlocks, ids: Ints) -> bool:
    """Return whether the same rows are deleted in every layout of a segment that has them."""
    blocks = source.blocks
    master_deletes: list[Ints] = []
    pairs: list[tuple[Ints, Ints]] = []
    for number, layout in enumerate(source.plan.scheme.layouts):
        layout_ids = ids[blocks.layout[ids] == number]
        tids = _read_values(files, source, layout_ids, TID).to_numpy().astype(np.int64)
        deleted = np.sort(tids[_mask_deleted(source, layout_ids)])
        pairs.append((tids, deleted))
        if layout.master:
            master_deletes.append(deleted)
    expected = master_deletes[0]
    return all(np.array_equal(deleted, expected) for deleted in master_deletes) and all(
        np.array_equal(np.sort(tids[np.isin(tids, expected)]), deleted) for tids, deleted in pairs
    )


def _sum_deleted(files: TableFiles, source: PlanBlocks, ids: Ints, name: str) -> int:
    """Return the checksum of a column over the deleted rows of some blocks."""
    if not len(ids):
        return 0
    values = _read_values(files, source, ids, name).filter(pa.array(_mask_deleted(source, ids)))
    type = source.plan.schema.find(name).type
    return sum(int(hash_array(chunk, type).astype(np.int64).sum()) for chunk in values.chunks)


def _read_values(files: TableFiles, source: PlanBlocks, ids: Ints, name: str) -> pa.ChunkedArray:
    """Return a column of all rows of some blocks, deleted ones included."""
    reads = [replace(read, deleted=()) for read in plan_file_reads(source.blocks, ids)]
    arrays = [batch.column(0) for batch in read_files(files, reads, [name], BATCH_ROWS)]
    return pa.chunked_array(arrays) if arrays else pa.chunked_array([pa.nulls(0)])


def _mask_deleted(source: PlanBlocks, ids: Ints) -> Bits:
    """Return which rows of some blocks are deleted, in the same order."""
    masks = [np.zeros(0, dtype=np.bool_)]
    for read in plan_file_reads(source.blocks, ids):
        alive = read.alive()
        masks.append(np.zeros(sum(read.rows), dtype=np.bool_) if alive is None else ~alive)
    return np.concatenate(masks)
