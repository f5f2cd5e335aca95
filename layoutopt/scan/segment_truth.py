"""The rows of a segment as its files have them, regardless of what a query skips: what every check is compared with.

Shadow checks, audits of a log and `evaluate --actual` share it. It uses no feature, statistic or retrieval path. Every
row group of a layout is read. A row's place is its tid, or its position in the files if a plan has one layout. In
a segment with deleted rows it is the rank among the remaining rows.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import SkippingError
from layoutopt.evaluation.arrow_types import arrow_type, conform, nested_type
from layoutopt.model.arrays import Ints
from layoutopt.model.schema import TID, Column
from layoutopt.scan.files import BATCH_ROWS, read_files
from layoutopt.scan.prune import PlanBlocks
from layoutopt.scan.segments import plan_file_reads

# The most bytes of rows that are cached for the next query; a single segment may have more.
_MOST_BYTES: Final = 64 * 2**20


class SegmentTruth:
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
        columns = tuple(columns)
        by_layout: dict[int, list[Column]] = {}
        for column in (column for column in columns if column.name not in self._columns):
            if column in self._source.absent:
                type = arrow_type(column.type) or nested_type(column.type)
                self._columns[column.name] = pa.chunked_array([pa.nulls(self.rows, type)])
            else:
                layouts = self._source.plan.scheme.layouts
                master = next(k for k, layout in enumerate(layouts) if column.name in layout.master)
                by_layout.setdefault(master, []).append(column)
        for layout, layout_columns in by_layout.items():
            self._read_columns(layout, layout_columns)
        return pa.Table.from_arrays(
            [self._columns[column.name] for column in columns], names=[column.name for column in columns]
        )

    def _read_columns(self, layout: int, columns: Sequence[Column]) -> None:
        """Read master columns of a layout."""
        place = np.full(self.rows, -1, dtype=np.int64)
        place[self._tids[layout]] = np.arange(len(self._tids[layout]))
        if (place < 0).any():
            raise SkippingError(
                f"layout {layout} has the master column {columns[0].name!r}, but lacks {int((place < 0).sum())} rows "
                "of a segment; run `layoutopt verify` and load the partition again"
            )
        batches = list(self._read(layout, [column.name for column in columns]))
        for index, column in enumerate(columns):
            array = pa.chunked_array([batch.column(index) for batch in batches] or [pa.nulls(0)])
            if not self._is_in_order(layout):
                array = array.take(pa.array(place))
            self._columns[column.name] = array = conform([array], [column])[0]
            self.nbytes += int(array.nbytes)

    def _is_in_order(self, layout: int) -> bool:
        tids = self._tids[layout]
        return bool((tids == np.arange(len(tids))).all())

    def _read_tids(self, layout: int) -> Ints:
        if not self._source.plan.scheme.has_tids:
            return np.arange(int(self._source.blocks.live_rows[self._block_ids[layout]].sum()), dtype=np.int64)
        arrays = [batch.column(0).to_numpy().astype(np.int64) for batch in self._read(layout, [TID])]
        return np.concatenate([np.zeros(0, np.int64), *arrays])

    def _scatter_blocks(self, layout: int) -> Ints:
        block_of_row, block_ids = np.full(self.rows, -1, dtype=np.int64), self._block_ids[layout]
        block_of_row[self._tids[layout]] = np.repeat(block_ids, self._source.blocks.live_rows[block_ids])
        return block_of_row

    def _read(self, layout: int, names: Sequence[str]) -> Iterable[pa.RecordBatch]:
        reads = plan_file_reads(self._source.blocks, self._block_ids[layout])
        return read_files(self._files, reads, names, BATCH_ROWS)


_CACHE: Final[WeakKeyDictionary[PlanBlocks, dict[int, SegmentTruth]]] = WeakKeyDictionary()
_CACHE_LOCK: Final = threading.Lock()


def load_segment(files: TableFiles, source: PlanBlocks, segment: int) -> SegmentTruth:
    """Return a segment's rows; the last segments are cached as long as their table is open."""
    with _CACHE_LOCK:
        cached = _CACHE.get(source, {}).get(segment)
    if cached is not None:
        return cached
    loaded = SegmentTruth(files, source, segment)
    with _CACHE_LOCK:
        if sum(rows.nbytes for segments in _CACHE.values() for rows in segments.values()) > _MOST_BYTES:
            _CACHE.clear()
        _CACHE.setdefault(source, {})[segment] = loaded
    return loaded
