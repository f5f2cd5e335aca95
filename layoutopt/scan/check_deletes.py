"""Deletion vectors compared with the rows that they are of: what is gone is what the catalog says is gone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import CatalogError, DataFileError
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.schema import TID
from layoutopt.scan.files import BATCH_ROWS, read_files
from layoutopt.scan.prune import PlanBlocks
from layoutopt.scan.segments import file_reads
from layoutopt.writer.checksum import hash_array, is_hashable

Where = tuple[str, str]
"""A file of vectors, and what is wrong with it."""


def wrong_deletes(files: TableFiles, source: PlanBlocks) -> Iterator[Where]:
    """What is wrong with the vectors of a plan's entries; the deleted rows are read again.

    The rows deleted in each layout must be the same, as many as the snapshot says, and have the checksums that it
    names. Columns that only Spark can hash are not compared. Files that can't be read are left to other checks.
    """
    for index in np.unique(source.entry_of).tolist():
        entry = source.entries[index]
        if entry.deletes is None:
            continue
        try:
            wrong = _wrong(files, source, index)
        except DataFileError:
            continue
        except CatalogError as error:
            wrong = str(error)
        if wrong is not None:
            yield entry.deletes.file, f"of partition {entry.key!r} {wrong}"


def _wrong(files: TableFiles, source: PlanBlocks, index: int) -> str | None:
    """What is wrong with the vectors of an entry."""
    entry, blocks = source.entries[index], source.blocks
    assert entry.deletes is not None
    sums = dict.fromkeys((name for name in entry.deletes.checksums if _is_hashable(source, name)), 0)
    count = 0
    mine = np.flatnonzero(source.entry_of == index)
    for segment in np.unique(source.segment_of[mine[blocks.deleted_rows[mine] > 0]]).tolist():
        here = np.flatnonzero(source.segment_of == segment)
        here = here[np.lexsort((blocks.row_group[here], blocks.file[here]))]
        if source.plan.scheme.has_tids and not _agree(files, source, here):
            return f"the layouts of segment {int(blocks.segment[here[0]])} have lost different rows"
        for number, layout in enumerate(source.plan.scheme.layouts):
            of_layout = here[(blocks.layout[here] == number) & (blocks.deleted_rows[here] > 0)]
            for name in (name for name in layout.master if name in sums):
                held = of_layout[blocks.has_column(name)[of_layout]]
                sums[name] += _sum_of_deleted(files, source, held, name)
        by_layout = np.bincount(blocks.layout[here], blocks.deleted_rows[here])
        count += int(by_layout.max())
    if count != entry.deletes.rows:
        return f"{count} rows are deleted, not {entry.deletes.rows}"
    differing = [name for name, sum in sums.items() if sum != entry.deletes.checksums[name]]
    return f"other rows are deleted than were found: {', '.join(differing)} differ" if differing else None


def _is_hashable(source: PlanBlocks, name: str) -> bool:
    masters = sum(name in layout.master for layout in source.plan.scheme.layouts)
    return masters == 1 and is_hashable(source.plan.schema.find(name).type)


def _agree(files: TableFiles, source: PlanBlocks, here: Ints) -> bool:
    """Whether every layout of a segment has lost the same rows, as far as it has them."""
    blocks = source.blocks
    gone: list[Ints] = []
    present: list[tuple[Ints, Ints]] = []
    for number, layout in enumerate(source.plan.scheme.layouts):
        mine = here[blocks.layout[here] == number]
        tids = _values(files, source, mine, TID).to_numpy().astype(np.int64)
        deleted = np.sort(tids[_marks(source, mine)])
        present.append((tids, deleted))
        if layout.master:
            gone.append(deleted)
    every = gone[0]
    return all(np.array_equal(one, every) for one in gone) and all(
        np.array_equal(np.sort(tids[np.isin(tids, every)]), deleted) for tids, deleted in present
    )


def _sum_of_deleted(files: TableFiles, source: PlanBlocks, held: Ints, name: str) -> int:
    """The checksum of a column over the deleted rows of some blocks."""
    if not len(held):
        return 0
    values = _values(files, source, held, name).filter(pa.array(_marks(source, held)))
    type = source.plan.schema.find(name).type
    return sum(int(hash_array(chunk, type).astype(np.int64).sum()) for chunk in values.chunks)


def _values(files: TableFiles, source: PlanBlocks, chosen: Ints, name: str) -> pa.ChunkedArray:
    """A column of all rows of some blocks, deleted ones too."""
    reads = [replace(read, deleted=()) for read in file_reads(source.blocks, chosen)]
    arrays = [batch.column(0) for batch in read_files(files, reads, [name], BATCH_ROWS)]
    return pa.chunked_array(arrays) if arrays else pa.chunked_array([pa.nulls(0)])


def _marks(source: PlanBlocks, chosen: Ints) -> Bits:
    """Which rows of some blocks are deleted, in the same order."""
    gone = [np.zeros(0, dtype=np.bool_)]
    for read in file_reads(source.blocks, chosen):
        alive = read.alive()
        gone.append(np.zeros(sum(read.rows), dtype=np.bool_) if alive is None else ~alive)
    return np.concatenate(gone)
