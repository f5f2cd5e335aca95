"""Putting rows together from several layouts of a segment, by position (Sun 2017, 4.2.2 and 5.6).

Tids are dense from 0 within a segment, so a row's place is its tid: each layout's rows are scattered into an array of
the segment's length, no sort and no join. Materialisation is late: layouts that tell a part of the filter by their own
columns come first, and what matches there is all that is read on for. Other columns are read only from row groups that
hold a row still wanted, and nothing where none is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import DataFileError, SkippingError
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.columns import TID
from layoutopt.model.predicates import TRUE, Node, columns_of, conjuncts, describe
from layoutopt.model.schema import Column
from layoutopt.scan.arrow_types import conform
from layoutopt.scan.check_switch import TALLY
from layoutopt.scan.files import BATCH_ROWS, read_files
from layoutopt.scan.segments import LayoutRead, SegmentRead
from layoutopt.writer.matching import matching_rows, may_match

_NOTHING = pa.table({})


@dataclass(frozen=True, eq=False)
class _Rows:
    """One layout's row groups with their tids, and the columns already read of them.

    Row group i has ``tids[offsets[i]:offsets[i + 1]]``, those of its rows that are not deleted. ``values`` has a row
    for each of ``of``, tids too.
    """

    read: LayoutRead
    tids: Ints
    offsets: Ints
    of: Ints
    values: pa.Table


def read_rows_by_tid(
    files: TableFiles,
    segment: SegmentRead,
    columns: Sequence[Column],
    condition: Node = TRUE,
    checked: bool = False,
) -> pa.Table:
    """The rows that survive in every layout read, with the wanted columns, in the order of their tids.

    Args:
        files: the table's files.
        segment: what pruning left of it.
        columns: the columns wanted, perhaps :data:`~layoutopt.model.columns.TID` among them.
        condition: rows for which it is not TRUE need not be given; the parts of its AND that one layout's columns
            tell are tested, so others are given still.
        checked: whether to compare with what is read without the condition.

    Raises:
        DataFileError: a file is missing or damaged, or its tids are no set of positions.
        SkippingError: it is checked, and the condition loses a row for which it is TRUE.
    """
    rows = _rows_by_tid(files, segment, columns, condition)
    if checked and condition != TRUE:
        check_late(rows, _rows_by_tid(files, segment, columns, TRUE), condition)
    return rows


def _rows_by_tid(files: TableFiles, segment: SegmentRead, columns: Sequence[Column], condition: Node) -> pa.Table:
    parts = conjuncts(condition)
    layouts: list[_Rows] = []
    present: Ints | None = None
    for read in sorted(segment.layouts, key=lambda read: not _testable(parts, read)):
        found = _read_tids(files, read if present is None or len(present) else replace(read, files=()))
        present = present_everywhere([found.tids] if present is None else [found.tids, present])
        found = _tested(files, _only_groups_with(found, present), columns, _testable(parts, read))
        present = present_everywhere([present, found.of]) if found.values.num_columns else present
        layouts.append(found)
    assert present is not None, "a segment has a layout"
    values = {
        name: array for rows in layouts for name, array in _columns_of_rows(files, rows, columns, present).items()
    }
    values[TID] = pa.chunked_array([pa.array(present)])
    return pa.Table.from_arrays([values[column.name] for column in columns], names=[c.name for c in columns])


def _testable(parts: Sequence[Node], read: LayoutRead) -> list[Node]:
    """The parts of a filter that are about columns of one layout alone."""
    return [part for part in parts if (about := columns_of(part)) and about <= set(read.columns)]


def _tested(files: TableFiles, rows: _Rows, columns: Sequence[Column], parts: Sequence[Node]) -> _Rows:
    """The layout with the columns of some parts of the filter read, for the rows that match them."""
    names = frozenset().union(*(columns_of(part) for part in parts))
    filtering = [column for column in columns if column.name in names]
    if len(filtering) < len(names) or not parts:  # the text's columns have its filter's, but who calls may want fewer
        return rows
    values = _read_columns(files, rows.read, filtering)
    keep = may_match(parts, values)
    return replace(rows, of=rows.tids[keep], values=values.filter(pa.array(keep)))


def _columns_of_rows(
    files: TableFiles, rows: _Rows, columns: Sequence[Column], present: Ints
) -> dict[str, pa.ChunkedArray]:
    """The layout's columns for the rows present; only those not read yet are read."""
    known = set(rows.values.column_names)
    wanted = [column for column in columns if column.name in rows.read.columns and column.name not in known]
    kept = _only_groups_with(rows, present)
    taken = [rows.values.take(pa.array(gather_positions(rows.of, present)))] if known else []
    if wanted:
        taken.append(_read_columns(files, kept.read, wanted).take(pa.array(gather_positions(kept.tids, present))))
    return {name: table.column(name) for table in taken for name in table.column_names}


def present_everywhere(tids: Sequence[Ints]) -> Ints:
    """The tids, ascending, that every layout has.

    >>> present_everywhere([np.array([3, 0, 2]), np.array([2, 3, 5])]).tolist()
    [2, 3]
    """
    length = _length(*tids)
    present = np.ones(length, dtype=np.bool_)
    for one in tids:
        present &= _marked(one, length)
    return np.flatnonzero(present)


def _marked(tids: Ints, length: int) -> Bits:
    """Whether each place up to a length is one of the tids, bool[length]: no sort, since tids are dense."""
    here = np.zeros(length, dtype=np.bool_)
    here[tids] = True
    return here


def _length(*tids: Ints) -> int:
    """One more than the greatest tid."""
    return max((int(one.max()) + 1 for one in tids if len(one)), default=0)


def gather_positions(tids: Ints, wanted: Ints) -> Ints:
    """Where each wanted tid stands among ``tids``, by scattering positions; every wanted tid must be there.

    >>> gather_positions(np.array([3, 0, 2]), np.array([2, 3])).tolist()
    [2, 0]
    """
    positions = np.full(_length(tids), -1, dtype=np.int64)
    positions[tids] = np.arange(len(tids))
    return positions[wanted]


def _read_tids(files: TableFiles, read: LayoutRead) -> _Rows:
    arrays = [batch.column(0) for batch in read_files(files, read.files, [TID], BATCH_ROWS)]
    tids = np.concatenate([np.zeros(0, np.int64), *(_as_tids(array, read) for array in arrays)])
    if np.count_nonzero(_marked(tids, _length(tids))) != len(tids):
        raise DataFileError(f"the data file {read.files[0].path!r} repeats a row's position; load its partition again")
    rows = [rows for file in read.files for rows in file.live_rows]
    return _Rows(read, tids, np.cumsum([0, *rows]), tids, _NOTHING)


def _as_tids(array: pa.Array, read: LayoutRead) -> Ints:
    if array.null_count or not pa.types.is_integer(array.type):
        raise DataFileError(f"the data file {read.files[0].path!r} has no row positions; load its partition again")
    tids: Ints = array.to_numpy(zero_copy_only=False).astype(np.int64)
    if len(tids) and int(tids.min()) < 0:
        raise DataFileError(f"the data file {read.files[0].path!r} has a negative position; load its partition again")
    return tids


def _only_groups_with(layout: _Rows, present: Ints) -> _Rows:
    """The layout's row groups that hold a present row."""
    wanted = _marked(present, _length(layout.tids, present))[layout.tids]
    keep = np.add.reduceat(np.r_[wanted, False], layout.offsets[:-1]) > 0 if len(layout.offsets) > 1 else wanted[:0]
    files, position = [], 0
    for file in layout.read.files:
        kept = [i for i in range(len(file.row_groups)) if keep[position + i]]
        position += len(file.row_groups)
        if kept:
            files.append(file.only(kept))
    lengths = np.diff(layout.offsets)
    tids = layout.tids[np.repeat(keep, lengths)]
    read = replace(layout.read, files=tuple(files))
    return replace(layout, read=read, tids=tids, offsets=np.cumsum(np.r_[0, lengths[keep]]))


def _read_columns(files: TableFiles, read: LayoutRead, columns: Sequence[Column]) -> pa.Table:
    """Some columns of a layout's row groups, in the order of the files."""
    names = [column.name for column in columns]
    batches = list(read_files(files, read.files, names, BATCH_ROWS))
    arrays = pa.Table.from_batches(batches).columns if batches else [pa.chunked_array([pa.nulls(0)]) for _ in names]
    return pa.Table.from_arrays(conform(arrays, columns), names=names)


def check_late(given: pa.Table, whole: pa.Table, condition: Node) -> None:
    """Compares rows that were put together late with all rows of the same row groups.

    Args:
        given: what was read under the condition.
        whole: the same without one; both in the order of their tids.
        condition: rows for which it is not TRUE may be missing in ``given``.

    Raises:
        SkippingError: another row is missing, or has other values.
    """
    if not columns_of(condition) <= set(whole.column_names):
        return
    expected, found = matching_rows(condition, whole), matching_rows(condition, given)
    if expected is None or found is None:
        TALLY["undecided late readings"] += 1
        return
    left, right = whole.filter(pa.array(expected)), given.filter(pa.array(found))
    if not left.equals(right) and repr(left.to_pylist()) != repr(right.to_pylist()):  # NaN is not equal to itself
        raise SkippingError(
            f"reading late gives {right.num_rows} of the {left.num_rows} rows that match {describe(condition):.200}, "
            "or other values; run `layoutopt verify`, and report this where nothing is found"
        )
    TALLY["late readings"] += 1
