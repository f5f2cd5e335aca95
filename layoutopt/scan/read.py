"""Reading surviving row groups as Arrow batches, in bounded memory.

A scan is a list of segments; each is handed on before the next, so that memory follows the size of a batch where one
layout is read, and of a segment where rows are put together from several (Sun 2017, 5.6). Once the first batch is
handed on, threads read ahead in the next segments of local files, by 64 MB together. Within a segment only the row
groups that pruning left are opened.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from math import inf
from typing import Final

import pyarrow as pa

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.storage.windows import made_ahead
from layoutopt.model.columns import PLACE, TID
from layoutopt.model.predicates import TRUE, Node
from layoutopt.model.schema import Column
from layoutopt.scan import check_switch as switch
from layoutopt.scan.arrow_types import arrow_type, conform_one, nested_type
from layoutopt.scan.files import BATCH_ROWS, footer_of, read_files
from layoutopt.scan.foreign.rows import live_batches, live_rows
from layoutopt.scan.reconstruct import read_rows_by_tid
from layoutopt.scan.segments import LayoutRead, SegmentRead

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
            Positions, too, are given where they are wanted as columns: :data:`~layoutopt.model.columns.TID` of plans
            with tids, :data:`~layoutopt.model.columns.PLACE` of others.
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
