"""Read surviving row groups as Arrow batches, in bounded memory.

A scan is a list of segments, read one after the other. Memory is bounded by a batch if one layout is read, and by a
segment if rows are combined from several layouts (Sun 2017, 5.6). After the first batch, threads read ahead in the next
segments of local files, 64 MB in total. Only row groups that survive pruning are opened.

Layouts are combined by position (Sun 2017, 4.2.2). Tids are dense from 0 within a segment, so a row's place is its tid:
rows are scattered into an array of the segment's length, without sort or join. Materialisation is late: layouts whose
columns decide a part of the filter are read first, and other columns only from row groups that still hold a row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from math import inf
from typing import Final

import numpy as np
import pyarrow as pa

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.storage.ranges import map_ahead
from layoutopt.errors import DataFileError, SkippingError
from layoutopt.evaluation.arrow_types import arrow_type, conform, conform_one, nested_type
from layoutopt.evaluation.predicates import matching_rows, may_match
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.predicates import TRUE, Node, columns_of, conjuncts, describe
from layoutopt.model.schema import PLACE, TID, Column
from layoutopt.scan import check_switch as switch
from layoutopt.scan.check_switch import TALLY
from layoutopt.scan.files import BATCH_ROWS, read_files
from layoutopt.scan.segments import LayoutRead, SegmentRead

_NOTHING = pa.table({})
# The stand-in column of a scan that reads no column: engines count its rows.
ROWS_ONLY = "_rows"
# The most bytes of all batches that are read ahead.
_MOST_BYTES_AHEAD: Final = 64 << 20
_MOST_THREADS: Final = 4
# The assumed size of a text, which is known only once it is read; most are smaller.
_TEXT_BYTES: Final = 256


def read_segments(
    files: TableFiles,
    segments: Sequence[SegmentRead],
    columns: Sequence[Column],
    batch_rows: int = BATCH_ROWS,
    condition: Node = TRUE,
    checked: bool | None = None,
    coded: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield the surviving rows, segment by segment, in batches of at most ``batch_rows`` rows.

    Args:
        columns: the columns wanted, in order; none means one column :data:`ROWS_ONLY` with the right number of rows.
            Positions can be among them: :data:`~layoutopt.model.schema.TID` for plans with tids,
            :data:`~layoutopt.model.schema.PLACE` for others.
        condition: rows for which it is not TRUE may be left out, which saves reads with several layouts.
        checked: whether to check that no other rows are left out; by default, whether this process checks skipping.
        coded: columns to be returned as dictionaries, if all files have them so and each segment has one layout.

    Raises:
        DataFileError: a file is missing, damaged, or differs from the catalog.
        SkippingError: the check is on, and other rows are left out.
    """
    checked = switch.is_on() if checked is None else checked
    read_one = partial(
        _read_segment, files, columns=columns, batch_rows=batch_rows, condition=condition, checked=checked, coded=coded
    )
    threads = min(pa.cpu_count(), _MOST_THREADS)  # one in tasks of Spark
    if threads == 1 or len(segments) < 2 or files.local_root is None:
        yield from chain.from_iterable(map(read_one, segments))
        return
    first = read_one(segments[0])
    yield from islice(first, 1)  # a caller that wants only the first rows doesn't wait for other segments
    most = _MOST_BYTES_AHEAD // (threads + 1)

    def read_ahead(item: tuple[SegmentRead, Iterator[pa.RecordBatch]]) -> Iterable[pa.RecordBatch]:
        segment, batches = item
        return batches if _is_large(segment, columns, most) else _prefetch_batches(batches, most)

    pairs = zip(segments, chain([first], map(read_one, segments[1:])), strict=True)
    yield from chain.from_iterable(map_ahead(read_ahead, pairs, threads))


def _prefetch_batches(batches: Iterator[pa.RecordBatch], most: int) -> Iterable[pa.RecordBatch]:
    """Return the batches after reading ``most`` bytes of them."""
    ready: list[pa.RecordBatch] = []
    size = 0
    while size < most and (batch := next(batches, None)) is not None:
        ready.append(batch)
        size += batch.nbytes
    return chain(ready, batches)


def _is_large(segment: SegmentRead, columns: Sequence[Column], most: int) -> bool:
    """Return whether a segment that is combined from several layouts, all at once, may take more bytes."""
    if len(segment.layouts) == 1:
        return False
    rows = max(sum(sum(file.rows) for file in layout.files) for layout in segment.layouts)
    return rows * sum(_estimate_width(column.type) for column in columns) > most


def _estimate_width(type: str) -> float:
    """Return about how many bytes a value takes; infinite for types without a limit."""
    arrow = arrow_type(type)
    if arrow is None or pa.types.is_binary(arrow):
        return inf
    return _TEXT_BYTES if pa.types.is_string(arrow) else 8


def _read_segment(
    files: TableFiles,
    segment: SegmentRead,
    columns: Sequence[Column],
    batch_rows: int,
    condition: Node,
    checked: bool,
    coded: Collection[str],
) -> Iterator[pa.RecordBatch]:
    if not columns:
        yield from _yield_counts(files, segment, batch_rows)
        return
    # Columns that were added after the segment's plan are in none of its layouts: NULL in every row.
    names = {name for layout in segment.layouts for name in layout.columns} | {TID, PLACE}
    stored = [column for column in columns if column.name in names]
    if not stored:
        batches = _yield_counts(files, segment, batch_rows)
    elif len(segment.layouts) == 1:
        batches = _read_one_layout(files, segment.layouts[0], stored, batch_rows, coded)
    else:
        whole = read_rows_by_tid(files, segment, stored, condition, checked)
        batches = iter(whole.to_batches(max_chunksize=batch_rows))
    yield from batches if len(stored) == len(columns) else (_add_absent(batch, columns) for batch in batches)


def _add_absent(batch: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    """Return all the columns, in order; NULL if the batch lacks one."""
    arrays = [
        batch.column(column.name)
        if column.name in batch.schema.names
        else pa.nulls(batch.num_rows, arrow_type(column.type) or nested_type(column.type))
        for column in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def _yield_counts(files: TableFiles, segment: SegmentRead, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield batches without columns of the table; the catalog has the number of rows."""
    remaining = sum(sum(file.live_rows) for file in segment.layouts[0].files)
    while remaining > 0:
        size = min(remaining, batch_rows)
        yield pa.RecordBatch.from_arrays([pa.nulls(size, pa.int8())], names=[ROWS_ONLY])
        remaining -= size


def _read_one_layout(
    files: TableFiles, read: LayoutRead, columns: Sequence[Column], batch_rows: int, coded: Collection[str]
) -> Iterator[pa.RecordBatch]:
    names = [column.name for column in columns]
    for batch in read_files(files, read.files, names, batch_rows, coded):
        arrays = [
            array if column.name in coded else conform_one(array, column)
            for array, column in zip(batch.columns, columns, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=names)


def read_rows_by_tid(
    files: TableFiles, segment: SegmentRead, columns: Sequence[Column], condition: Node = TRUE, checked: bool = False
) -> pa.Table:
    """Return the rows that survive in every layout read, in the order of their tids.

    Args:
        columns: the columns wanted, which may include :data:`~layoutopt.model.schema.TID`.
        condition: rows for which it is not TRUE may be left out. Only parts of its AND that use columns of one layout
            are tested, so some such rows are returned.

    Raises:
        DataFileError: a file is missing or damaged, or its tids are not a set of positions.
        SkippingError: the check is on, and a row for which the condition is TRUE is missing.
    """
    rows = _combine_layouts(files, segment, columns, condition)
    if checked and condition != TRUE:
        check_late(rows, _combine_layouts(files, segment, columns, TRUE), condition)
    return rows


def _combine_layouts(files: TableFiles, segment: SegmentRead, columns: Sequence[Column], condition: Node) -> pa.Table:
    parts = conjuncts(condition)
    layouts: list[_Rows] = []
    present: Ints | None = None
    for read in sorted(segment.layouts, key=lambda read: not _local_conjuncts(parts, read)):
        rows = _read_tids(files, read if present is None or len(present) else replace(read, files=()))
        present = intersect_tids([rows.tids] if present is None else [rows.tids, present])
        rows = _apply_filter(files, _drop_groups_without(rows, present), columns, _local_conjuncts(parts, read))
        present = intersect_tids([present, rows.value_tids]) if rows.values.num_columns else present
        layouts.append(rows)
    assert present is not None, "a segment has a layout"
    values = {
        name: array for rows in layouts for name, array in _complete_columns(files, rows, columns, present).items()
    }
    values[TID] = pa.chunked_array([pa.array(present)])
    return pa.Table.from_arrays([values[column.name] for column in columns], names=[c.name for c in columns])


@dataclass(frozen=True, eq=False)
class _Rows:
    """One layout's row groups with their tids, and the columns read so far.

    Row group i has ``tids[offsets[i]:offsets[i + 1]]``, without deleted rows. ``values`` has a row for each of
    ``value_tids``.
    """

    read: LayoutRead
    tids: Ints
    offsets: Ints
    value_tids: Ints
    values: pa.Table


def _local_conjuncts(parts: Sequence[Node], read: LayoutRead) -> list[Node]:
    """Return the parts of a filter that use only columns of one layout."""
    return [part for part in parts if (names := columns_of(part)) and names <= set(read.columns)]


def _apply_filter(files: TableFiles, rows: _Rows, columns: Sequence[Column], parts: Sequence[Node]) -> _Rows:
    """Return the layout with the filter's columns read, for the rows that match these parts."""
    names = frozenset().union(*(columns_of(part) for part in parts))
    filter_columns = [column for column in columns if column.name in names]
    if len(filter_columns) < len(names) or not parts:  # a caller may want fewer columns than the filter has
        return rows
    values = _read_columns(files, rows.read, filter_columns)
    mask = may_match(parts, values)
    return replace(rows, value_tids=rows.tids[mask], values=values.filter(pa.array(mask)))


def _complete_columns(
    files: TableFiles, rows: _Rows, columns: Sequence[Column], present: Ints
) -> dict[str, pa.ChunkedArray]:
    """Return the layout's columns for the rows present; reads only columns that were not read yet."""
    known = set(rows.values.column_names)
    missing = [column for column in columns if column.name in rows.read.columns and column.name not in known]
    tables = [rows.values.take(pa.array(gather_positions(rows.value_tids, present)))] if known else []
    if missing:
        kept = _drop_groups_without(rows, present)
        tables.append(_read_columns(files, kept.read, missing).take(pa.array(gather_positions(kept.tids, present))))
    return {name: table.column(name) for table in tables for name in table.column_names}


def intersect_tids(tids: Sequence[Ints]) -> Ints:
    """Return the tids, ascending, that every layout has.

    >>> intersect_tids([np.array([3, 0, 2]), np.array([2, 3, 5])]).tolist()
    [2, 3]
    """
    length = _length(*tids)
    present = np.ones(length, dtype=np.bool_)
    for layout_tids in tids:
        present &= _to_mask(layout_tids, length)
    return np.flatnonzero(present)


def _to_mask(tids: Ints, length: int) -> Bits:
    """Return whether each place is one of the tids, bool[length]; needs no sort, since tids are dense."""
    mask = np.zeros(length, dtype=np.bool_)
    mask[tids] = True
    return mask


def _length(*arrays: Ints) -> int:
    """Return the greatest tid plus one."""
    return max((int(tids.max()) + 1 for tids in arrays if len(tids)), default=0)


def gather_positions(tids: Ints, wanted: Ints) -> Ints:
    """Return the position in ``tids`` of each wanted tid; every wanted tid must be there.

    >>> gather_positions(np.array([3, 0, 2]), np.array([2, 3])).tolist()
    [2, 0]
    """
    positions = np.full(_length(tids), -1, dtype=np.int64)
    positions[tids] = np.arange(len(tids))
    return positions[wanted]


def _read_tids(files: TableFiles, read: LayoutRead) -> _Rows:
    arrays = [batch.column(0) for batch in read_files(files, read.files, [TID], BATCH_ROWS)]
    tids = np.concatenate([np.zeros(0, np.int64), *(_check_tids(array, read) for array in arrays)])
    if np.count_nonzero(_to_mask(tids, _length(tids))) != len(tids):
        raise DataFileError(f"the data file {read.files[0].path!r} repeats a row's position; load its partition again")
    rows = [rows for file in read.files for rows in file.live_rows]
    return _Rows(read, tids, np.cumsum([0, *rows]), tids, _NOTHING)


def _check_tids(array: pa.Array, read: LayoutRead) -> Ints:
    if array.null_count or not pa.types.is_integer(array.type):
        raise DataFileError(f"the data file {read.files[0].path!r} has no row positions; load its partition again")
    tids: Ints = array.to_numpy(zero_copy_only=False).astype(np.int64)
    if len(tids) and int(tids.min()) < 0:
        raise DataFileError(f"the data file {read.files[0].path!r} has a negative position; load its partition again")
    return tids


def _drop_groups_without(layout: _Rows, present: Ints) -> _Rows:
    """Return the layout without row groups that hold no present row."""
    mask = _to_mask(present, _length(layout.tids, present))[layout.tids]
    keep = np.add.reduceat(np.r_[mask, False], layout.offsets[:-1]) > 0 if len(layout.offsets) > 1 else mask[:0]
    files, position = [], 0
    for file in layout.read.files:
        groups = [i for i in range(len(file.row_groups)) if keep[position + i]]
        position += len(file.row_groups)
        if groups:
            files.append(file.only(groups))
    lengths = np.diff(layout.offsets)
    tids = layout.tids[np.repeat(keep, lengths)]
    read = replace(layout.read, files=tuple(files))
    return replace(layout, read=read, tids=tids, offsets=np.cumsum(np.r_[0, lengths[keep]]))


def _read_columns(files: TableFiles, read: LayoutRead, columns: Sequence[Column]) -> pa.Table:
    names = [column.name for column in columns]
    batches = list(read_files(files, read.files, names, BATCH_ROWS))
    arrays = pa.Table.from_batches(batches).columns if batches else [pa.chunked_array([pa.nulls(0)]) for _ in names]
    return pa.Table.from_arrays(conform(arrays, columns), names=names)


def check_late(filtered: pa.Table, whole: pa.Table, condition: Node) -> None:
    """Compare late-materialised rows with all rows of the same row groups.

    Args:
        filtered: the rows read under the condition.
        whole: the rows read without it; both in the order of their tids.
        condition: rows for which it is not TRUE may be missing in ``filtered``.

    Raises:
        SkippingError: another row is missing or has other values.
    """
    if not columns_of(condition) <= set(whole.column_names):
        return
    whole_mask, filtered_mask = matching_rows(condition, whole), matching_rows(condition, filtered)
    if whole_mask is None or filtered_mask is None:
        TALLY["undecided late readings"] += 1
        return
    expected, actual = whole.filter(pa.array(whole_mask)), filtered.filter(pa.array(filtered_mask))
    if not expected.equals(actual) and repr(expected.to_pylist()) != repr(actual.to_pylist()):  # NaN != NaN
        raise SkippingError(
            f"late materialisation returns {actual.num_rows} of the {expected.num_rows} rows that match "
            f"{describe(condition):.200}, or other values; run `layoutopt verify`, and report this if it finds nothing"
        )
    TALLY["late readings"] += 1
