"""Reading surviving row groups as Arrow batches, in bounded memory.

A scan is a list of segments; each is handed on before the next, so that memory follows the size of a batch where one
layout is read, and of a segment where rows are put together from several (Sun 2017, 5.6). Once the first batch is
handed on, threads read ahead in the next segments of local files, by 64 MB together. Within a segment only the row
groups that pruning left are opened.
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
from layoutopt.catalog.storage.prefetch import made_ahead
from layoutopt.errors import DataFileError, SkippingError
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.predicates import TRUE, Node, columns_of, conjuncts, describe
from layoutopt.model.schema import PLACE, TID, Column
from layoutopt.scan import check_switch as switch
from layoutopt.scan.arrow_types import arrow_type, conform, conform_one, nested_type
from layoutopt.scan.check_switch import TALLY
from layoutopt.scan.files import BATCH_ROWS, footer_of, live_batches, live_rows, read_files
from layoutopt.scan.segments import LayoutRead, SegmentRead
from layoutopt.writer.evaluation import matching_rows, may_match

# ----------------------------------------------------------------------------------------------------
# Putting rows together from several layouts of a segment, by position (Sun 2017, 4.2.2 and 5.6).
#
# Tids are dense from 0 within a segment, so a row's place is its tid: each layout's rows are scattered into an array of
# the segment's length, no sort and no join. Materialisation is late: layouts that tell a part of the filter by their
# own
# columns come first, and what matches there is all that is read on for. Other columns are read only from row groups
# that
# hold a row still wanted, and nothing where none is.

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
        columns: the columns wanted, perhaps :data:`~layoutopt.model.schema.TID` among them.
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


ROWS_ONLY = "_rows"
"""The stand-in column of a scan that reads no column: engines count its rows."""

_MOST_BYTES_AHEAD: Final = 64 << 20
"""Of batches that are read while those before them are used, together."""
_MOST_THREADS: Final = 4
_TEXT_BYTES: Final = 256
"""More than most texts take, of which nobody knows before they are read."""


def read_segments(
    files: TableFiles,
    segments: Sequence[SegmentRead],
    columns: Sequence[Column],
    batch_rows: int = BATCH_ROWS,
    condition: Node = TRUE,
    checked: bool | None = None,
    coded: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """The surviving rows, segment by segment, as batches of at most ``batch_rows`` rows.

    Args:
        files: the table's files.
        segments: what pruning left.
        columns: the columns wanted, in order; none means one column :data:`ROWS_ONLY` with the right number of rows.
            Positions, too, are given where they are wanted as columns: :data:`~layoutopt.model.schema.TID` of plans
            with tids, :data:`~layoutopt.model.schema.PLACE` of others.
        batch_rows: rows of a batch, which bounds memory where a single layout is read.
        condition: rows for which it is not TRUE may be left out, which saves reading where there are several layouts.
        checked: whether to prove that no other rows are; by default where this process checks skipping.
        coded: columns to be given as dictionaries and codes, which all the files have so; each segment has one layout.

    Raises:
        DataFileError: a file is missing or damaged, or holds something else than the catalog says.
        SkippingError: it is checked, and other rows are left out.
    """
    checked = switch.is_on() if checked is None else checked
    reading = partial(
        _read_segment, files, columns=columns, batch_rows=batch_rows, condition=condition, checked=checked, coded=coded
    )
    threads = min(pa.cpu_count(), _MOST_THREADS)  # one in tasks of Spark
    if threads == 1 or len(segments) < 2 or files.local_root is None:
        yield from chain.from_iterable(map(reading, segments))
        return
    first = reading(segments[0])
    yield from islice(first, 1)  # who wants a row has it at once, and perhaps wants no more
    most = _MOST_BYTES_AHEAD // (threads + 1)

    def read_ahead(item: tuple[SegmentRead, Iterator[pa.RecordBatch]]) -> Iterable[pa.RecordBatch]:
        segment, batches = item
        return batches if _is_large(segment, columns, most) else _begun(batches, most)

    in_turn = zip(segments, chain([first], map(reading, segments[1:])), strict=True)
    yield from chain.from_iterable(made_ahead(read_ahead, in_turn, threads))


def _begun(batches: Iterator[pa.RecordBatch], most: int) -> Iterable[pa.RecordBatch]:
    """The batches, of which so many bytes are there already."""
    found: list[pa.RecordBatch] = []
    size = 0
    while size < most and (batch := next(batches, None)) is not None:
        found.append(batch)
        size += batch.nbytes
    return chain(found, batches)


def _is_large(segment: SegmentRead, columns: Sequence[Column], most: int) -> bool:
    """Whether a segment whose rows are put together, so all of them at once, may take more bytes than that."""
    if len(segment.layouts) == 1:
        return False
    rows = max(sum(sum(file.rows) for file in layout.files) for layout in segment.layouts)
    return rows * sum(_width(column.type) for column in columns) > most


def _width(type: str) -> float:
    """About how many bytes a value takes; infinite of types whose values may take any number."""
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
        yield from _count_only(files, segment, batch_rows)
        return
    # Columns that came after the segment's plan are in none of its layouts: NULL in every row.
    held = {name for layout in segment.layouts for name in layout.columns}
    stored = [column for column in columns if column.name in held or column.name in (TID, PLACE)]
    if not stored:
        batches = _count_only(files, segment, batch_rows)
    elif len(segment.layouts) == 1:
        batches = _read_one_layout(files, segment.layouts[0], stored, batch_rows, coded)
    else:
        whole = read_rows_by_tid(files, segment, stored, condition, checked)
        batches = iter(whole.to_batches(max_chunksize=batch_rows))
    yield from batches if len(stored) == len(columns) else (_with_absent(batch, columns) for batch in batches)


def _with_absent(batch: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    """All the columns, in order; NULL where the batch lacks one."""
    arrays = [
        batch.column(column.name)
        if column.name in batch.schema.names
        else pa.nulls(batch.num_rows, arrow_type(column.type) or nested_type(column.type))
        for column in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def _count_only(files: TableFiles, segment: SegmentRead, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Batches with no values of the table: the catalog alone says how many rows there are."""
    remaining = sum(live_rows(files, file, partial(footer_of, files)) for file in segment.layouts[0].files)
    while remaining > 0:
        size = min(remaining, batch_rows)
        yield pa.RecordBatch.from_arrays([pa.nulls(size, pa.int8())], names=[ROWS_ONLY])
        remaining -= size


def _read_one_layout(
    files: TableFiles, read: LayoutRead, columns: Sequence[Column], batch_rows: int, coded: Collection[str]
) -> Iterator[pa.RecordBatch]:
    names = [column.name for column in columns]
    reading = partial(read_files, files, names=names, batch_rows=batch_rows, coded=coded)
    for batch in live_batches(files, read.files, partial(footer_of, files), reading):
        arrays = [
            array if column.name in coded else conform_one(array, column)
            for array, column in zip(batch.columns, columns, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=names)
