"""The rows of a segment as its files have them, regardless of what a query skips.

Every row group of a layout is read. A row's place is its tid, or its position in the files if a plan has one layout. In
a segment with deleted rows it is the rank among the remaining rows.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import lru_cache
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

from layoutopt.catalog.arrow_types import arrow_type, conform, nested_type
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import QueryError, SkippingError
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.schema import TID, Column, Schema
from layoutopt.scan.files import BATCH_ROWS, read_files
from layoutopt.scan.prune import PlanBlocks
from layoutopt.scan.segments import plan_file_reads

# The most bytes of rows that are cached for the next query; a single segment may have more.
_MOST_BYTES: Final = 64 * 2**20


class SegmentRows:
    """All rows of one segment of a plan; columns are read on first use and cached."""

    def __init__(self, files: TableFiles, source: PlanBlocks, segment: int) -> None:
        blocks, ids = source.blocks, np.flatnonzero(source.segment_of == segment)
        ids = ids[np.lexsort((blocks.row_group[ids], blocks.file[ids]))]
        self._files, self._source = files, source
        self._block_ids = {k: ids[blocks.layout[ids] == k] for k in range(len(source.plan.scheme.layouts))}
        self._columns: dict[str, pa.ChunkedArray] = {}
        self._tids = {layout: self._read_tids(layout) for layout in self._block_ids}
        if blocks.deleted_rows[ids].any():
            all_tids = np.unique(np.concatenate(list(self._tids.values())))
            self._tids = {layout: np.searchsorted(all_tids, tids) for layout, tids in self._tids.items()}
        self.rows = max((int(tids.max()) + 1 for tids in self._tids.values() if len(tids)), default=0)
        self._block_of = {layout: self._scatter_blocks(layout) for layout in self._block_ids}
        # Updated as it grows, since the cache sums it over all its segments for each new one.
        self.nbytes = sum(int(array.nbytes) for array in (*self._tids.values(), *self._block_of.values()))

    def block_of(self, layout: int) -> Ints:
        """Return the block of a layout that holds each row, -1 if the layout lacks it; int64[rows]."""
        return self._block_of[layout]

    def table(self, columns: Iterable[Column]) -> pa.Table:
        """Return some columns of all rows, in the order of their places."""
        names = []
        for column in columns:
            names.append(column.name)
            if column.name not in self._columns:
                self._columns[column.name] = array = self._read_column(column)
                self.nbytes += int(array.nbytes)
        return pa.Table.from_arrays([self._columns[name] for name in names], names=names)

    def _read_column(self, column: Column) -> pa.ChunkedArray:
        if column in self._source.absent:
            return pa.chunked_array([pa.nulls(self.rows, arrow_type(column.type) or nested_type(column.type))])
        layouts = self._source.plan.scheme.layouts
        master = next(k for k, layout in enumerate(layouts) if column.name in layout.master)
        place = np.full(self.rows, -1, dtype=np.int64)
        place[self._tids[master]] = np.arange(len(self._tids[master]))
        if (place < 0).any():
            raise SkippingError(
                f"layout {master} has the master column {column.name!r}, but lacks {int((place < 0).sum())} rows of a "
                "segment; run `layoutopt verify` and load the partition again"
            )
        batches = [batch.column(0) for batch in self._read(master, column.name)]
        array = pa.chunked_array(batches) if batches else pa.chunked_array([pa.nulls(0)])
        return conform([array.take(pa.array(place))], [column])[0]

    def _read_tids(self, layout: int) -> Ints:
        if not self._source.plan.scheme.has_tids:
            return np.arange(int(self._source.blocks.live_rows[self._block_ids[layout]].sum()), dtype=np.int64)
        arrays = [batch.column(0).to_numpy().astype(np.int64) for batch in self._read(layout, TID)]
        return np.concatenate([np.zeros(0, np.int64), *arrays])

    def _scatter_blocks(self, layout: int) -> Ints:
        block_of_row, block_ids = np.full(self.rows, -1, dtype=np.int64), self._block_ids[layout]
        block_of_row[self._tids[layout]] = np.repeat(block_ids, self._source.blocks.live_rows[block_ids])
        return block_of_row

    def _read(self, layout: int, name: str) -> Iterable[pa.RecordBatch]:
        reads = plan_file_reads(self._source.blocks, self._block_ids[layout])
        return read_files(self._files, reads, [name], BATCH_ROWS)


_CACHE: Final[WeakKeyDictionary[PlanBlocks, dict[int, SegmentRows]]] = WeakKeyDictionary()
_CACHE_LOCK: Final = threading.Lock()


def load_segment(files: TableFiles, source: PlanBlocks, segment: int) -> SegmentRows:
    """Return a segment's rows; the last segments are cached as long as their table is open."""
    with _CACHE_LOCK:
        cached = _CACHE.get(source, {}).get(segment)
    if cached is not None:
        return cached
    loaded = SegmentRows(files, source, segment)
    with _CACHE_LOCK:
        if sum(rows.nbytes for segments in _CACHE.values() for rows in segments.values()) > _MOST_BYTES:
            _CACHE.clear()
        _CACHE.setdefault(source, {})[segment] = loaded
    return loaded


@lru_cache(maxsize=1000)
def can_match(schema: Schema, condition: str, zone: str) -> bool:
    """Return whether DuckDB evaluates a condition in Spark's dialect as Spark does."""
    from layoutopt.scan.matches import bits_query

    try:
        bits_query(schema, (condition,), zone)
    except QueryError:
        return False
    return True


def match_condition(schema: Schema, condition: str, rows: pa.Table, zone: str) -> Bits | None:
    """Return the rows for which a condition in Spark's dialect is TRUE; None if DuckDB may differ from Spark."""
    from layoutopt.scan.matches import evaluate_conditions

    columns = tuple(column for column in schema.columns if column.name in rows.column_names)
    try:
        return evaluate_conditions(Schema(columns), [condition], rows, zone)[0]
    except QueryError:  # for example a cast that fails on a row that no query reads
        return None
