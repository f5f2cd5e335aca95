"""Putting rows together from several layouts of a segment, by position (Sun 2017, 4.2.2 and 5.6).

Tids are dense from 0 within a segment, so a row's place is its tid: each layout's rows are scattered into an array of
the segment's length, no sort and no join. Tids come first; the other columns are read only from row groups that hold a
row which every layout still has (late materialisation).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from layoutopt.catalog.filesystem import TableFiles
from layoutopt.errors import DataFileError
from layoutopt.model.schema import Column
from layoutopt.scan.arrow_types import conform
from layoutopt.scan.read import BATCH_ROWS, TID, LayoutRead, SegmentRead, read_file

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _TidsOfLayout:
    """One layout's surviving row groups with their tids: row group i has ``tids[offsets[i]:offsets[i + 1]]``."""

    read: LayoutRead
    tids: Ints
    offsets: Ints


def read_rows_by_tid(files: TableFiles, segment: SegmentRead, columns: Sequence[Column]) -> pa.Table:
    """The rows that survive in every layout read, with the wanted columns, in the order of their tids.

    Raises:
        DataFileError: a file is missing or damaged, or its tids are no set of positions.
    """
    layouts = [_read_tids(files, read) for read in segment.layouts]
    present = present_everywhere([layout.tids for layout in layouts])
    found: dict[str, pa.ChunkedArray] = {}
    for layout in layouts:
        kept = _only_groups_with(layout, present)
        wanted = [column for column in columns if column.name in layout.read.columns]
        found |= _scatter(files, kept, wanted, present)
    arrays = [found[column.name] for column in columns]
    return pa.Table.from_arrays(arrays, names=[column.name for column in columns])


def present_everywhere(tids: Sequence[Ints]) -> Ints:
    """The tids, ascending, that every layout has.

    >>> present_everywhere([np.array([3, 0, 2]), np.array([2, 3, 5])]).tolist()
    [2, 3]
    """
    length = max((int(one.max()) + 1 for one in tids if len(one)), default=0)
    present = np.ones(length, dtype=np.bool_)
    for one in tids:
        here = np.zeros(length, dtype=np.bool_)
        here[one] = True
        present &= here
    return np.flatnonzero(present)


def gather_positions(tids: Ints, wanted: Ints) -> Ints:
    """Where each wanted tid stands among ``tids``, by scattering positions; every wanted tid must be there.

    >>> gather_positions(np.array([3, 0, 2]), np.array([2, 3])).tolist()
    [2, 0]
    """
    positions = np.full(int(tids.max()) + 1 if len(tids) else 0, -1, dtype=np.int64)
    positions[tids] = np.arange(len(tids))
    return positions[wanted]


def _read_tids(files: TableFiles, read: LayoutRead) -> _TidsOfLayout:
    arrays = [batch.column(0) for file in read.files for batch in read_file(files, file, [TID], BATCH_ROWS)]
    tids = np.concatenate([np.zeros(0, np.int64), *(_as_tids(array, read) for array in arrays)])
    if len(np.unique(tids)) != len(tids):
        raise DataFileError(f"the data file {read.files[0].path!r} repeats a row's position; load its partition again")
    rows = [rows for file in read.files for rows in file.rows]
    return _TidsOfLayout(read, tids, np.cumsum([0, *rows]))


def _as_tids(array: pa.Array, read: LayoutRead) -> Ints:
    if array.null_count or not pa.types.is_integer(array.type):
        raise DataFileError(f"the data file {read.files[0].path!r} has no row positions; load its partition again")
    tids: Ints = array.to_numpy(zero_copy_only=False).astype(np.int64)
    if len(tids) and int(tids.min()) < 0:
        raise DataFileError(f"the data file {read.files[0].path!r} has a negative position; load its partition again")
    return tids


def _only_groups_with(layout: _TidsOfLayout, present: Ints) -> _TidsOfLayout:
    """The layout's row groups that hold a present row."""
    wanted = np.isin(layout.tids, present)
    keep = np.add.reduceat(np.r_[wanted, False], layout.offsets[:-1]) > 0 if len(layout.offsets) > 1 else wanted[:0]
    files, position = [], 0
    for file in layout.read.files:
        kept = [i for i in range(len(file.row_groups)) if keep[position + i]]
        position += len(file.row_groups)
        if kept:
            groups, rows = (tuple(values[i] for i in kept) for values in (file.row_groups, file.rows))
            files.append(replace(file, row_groups=groups, rows=rows))
    lengths = np.diff(layout.offsets)
    tids = layout.tids[np.repeat(keep, lengths)]
    read = LayoutRead(layout.read.layout, layout.read.columns, tuple(files))
    return _TidsOfLayout(read, tids, np.cumsum(np.r_[0, lengths[keep]]))


def _scatter(
    files: TableFiles, layout: _TidsOfLayout, columns: Sequence[Column], present: Ints
) -> dict[str, pa.ChunkedArray]:
    names = [column.name for column in columns]
    batches = [batch for file in layout.read.files for batch in read_file(files, file, names, BATCH_ROWS)]
    if not batches:
        arrays = conform([pa.chunked_array([pa.nulls(0)]) for _ in columns], columns)
        return dict(zip(names, arrays, strict=True))
    order = pa.array(gather_positions(layout.tids, present))
    taken = pa.Table.from_batches(batches).take(order)
    return dict(zip(names, conform(taken.columns, columns), strict=True))
