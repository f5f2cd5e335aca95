"""The rows of a segment as its files have them, whatever a query skips.

Every row group of a layout is read. A row's place is its tid, or its position in the files where a plan has one layout;
of a segment with deleted rows its rank among those that are left.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import lru_cache
from typing import Final
from weakref import WeakKeyDictionary

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import QueryError, SkippingError
from layoutopt.model.arrays import Ints
from layoutopt.model.schema import TID, Column, Schema
from layoutopt.scan.arrow_types import arrow_type, conform, nested_type
from layoutopt.scan.engine import connect
from layoutopt.scan.files import BATCH_ROWS, read_files
from layoutopt.scan.matches import bits_sql, with_places
from layoutopt.scan.prune import PlanBlocks
from layoutopt.scan.segments import file_reads

_MOST_BYTES: Final = 64 * 2**20
"""Of rows that are kept for the next query; one segment's may be more."""


class SegmentRows:
    """All rows of one segment of a plan; columns are read when they are first asked for, then kept.

    Attributes:
        rows: how many there are.
        nbytes: the memory that they take.
    """

    def __init__(self, files: TableFiles, source: PlanBlocks, segment: int) -> None:
        blocks, here = source.blocks, np.flatnonzero(source.segment_of == segment)
        here = here[np.lexsort((blocks.row_group[here], blocks.file[here]))]
        self._files, self._source = files, source
        self._members = {k: here[blocks.layout[here] == k] for k in range(len(source.plan.scheme.layouts))}
        self._columns: dict[str, pa.ChunkedArray] = {}
        self._tids = {layout: self._tids_of(layout) for layout in self._members}
        if blocks.deleted_rows[here].any():
            self._tids = _dense(self._tids)
        self.rows = max((int(tids.max()) + 1 for tids in self._tids.values() if len(tids)), default=0)
        self._block_of = {layout: self._scattered(layout) for layout in self._members}
        # Counted as it grows: it is asked for with each segment that comes, of all that are kept.
        self.nbytes = sum(int(array.nbytes) for array in (*self._tids.values(), *self._block_of.values()))

    def block_of(self, layout: int) -> Ints:
        """The block of a layout that holds each row, -1 where the layout lacks it; int64[rows]."""
        return self._block_of[layout]

    def table(self, columns: Iterable[Column]) -> pa.Table:
        """Some columns of all rows, in the order of their places.

        Raises:
            SkippingError: a row has no value of a column in the layout that is the column's master.
            DataFileError: a data file is missing or damaged.
        """
        wanted = list(columns)
        return pa.Table.from_arrays([self._column(column) for column in wanted], names=[c.name for c in wanted])

    def _column(self, column: Column) -> pa.ChunkedArray:
        if column.name not in self._columns:
            self._columns[column.name] = read = self._read_column(column)
            self.nbytes += int(read.nbytes)
        return self._columns[column.name]

    def _read_column(self, column: Column) -> pa.ChunkedArray:
        if column in self._source.absent:
            return pa.chunked_array([pa.nulls(self.rows, arrow_type(column.type) or nested_type(column.type))])
        layouts = self._source.plan.scheme.layouts
        master = next(k for k, layout in enumerate(layouts) if column.name in layout.master)
        place = np.full(self.rows, -1, dtype=np.int64)
        place[self._tids[master]] = np.arange(len(self._tids[master]))
        if (place < 0).any():
            raise SkippingError(
                f"layout {master} is the master of the column {column.name!r}, but lacks {int((place < 0).sum())} rows "
                "of a segment; run `layoutopt verify` and load the partition again"
            )
        batches = [batch.column(0) for batch in self._read(master, column.name)]
        found = pa.chunked_array(batches) if batches else pa.chunked_array([pa.nulls(0)])
        return conform([found.take(pa.array(place))], [column])[0]

    def _tids_of(self, layout: int) -> Ints:
        members = self._members[layout]
        if not self._source.plan.scheme.has_tids:
            return np.arange(int(self._source.blocks.live_rows[members].sum()), dtype=np.int64)
        arrays = [batch.column(0).to_numpy().astype(np.int64) for batch in self._read(layout, TID)]
        return np.concatenate([np.zeros(0, np.int64), *arrays])

    def _scattered(self, layout: int) -> Ints:
        found, members = np.full(self.rows, -1, dtype=np.int64), self._members[layout]
        found[self._tids[layout]] = np.repeat(members, self._source.blocks.live_rows[members])
        return found

    def _read(self, layout: int, name: str) -> Iterable[pa.RecordBatch]:
        parts = file_reads(self._source.blocks, self._members[layout])
        yield from read_files(self._files, parts, [name], BATCH_ROWS)


def _dense(tids: dict[int, Ints]) -> dict[int, Ints]:
    """Tids by layout, each as its rank among all of them."""
    every = np.unique(np.concatenate(list(tids.values())))
    return {layout: np.searchsorted(every, of_layout) for layout, of_layout in tids.items()}


_KEPT: Final[WeakKeyDictionary[PlanBlocks, dict[int, SegmentRows]]] = WeakKeyDictionary()
_KEEPING: Final = threading.Lock()


def segment_rows(files: TableFiles, source: PlanBlocks, segment: int) -> SegmentRows:
    """A segment's rows; those of the last segments asked for are kept as long as their table is open.

    Raises:
        DataFileError: a data file is missing or damaged.
    """
    with _KEEPING:
        kept = _KEPT.get(source, {}).get(segment)
    if kept is not None:
        return kept
    found = SegmentRows(files, source, segment)
    with _KEEPING:
        if sum(each.nbytes for segments in _KEPT.values() for each in segments.values()) > _MOST_BYTES:
            _KEPT.clear()
        _KEPT.setdefault(source, {})[segment] = found
    return found


# ----------------------------------------------------------------------------------------------------
# The rows for which a text's own condition holds, by DuckDB: the analysis of the text is not believed.

Bits = npt.NDArray[np.bool_]


@lru_cache(maxsize=1000)
def compiled_condition(schema: Schema, condition: str, zone: str) -> str | None:
    """DuckDB's text for which rows a condition holds; None where it may mean something else there."""
    try:
        return bits_sql(schema, [condition], zone)
    except QueryError:
        return None


def matching_text(schema: Schema, condition: str, rows: pa.Table, zone: str) -> Bits | None:
    """The rows for which a condition is TRUE, by DuckDB; None where it can't say what Spark would.

    Args:
        schema: the table's.
        condition: in Spark's dialect.
        rows: they have the condition's columns.
        zone: the session's time zone.
    """
    here = Schema(tuple(column for column in schema.columns if column.name in rows.column_names))
    compiled = compiled_condition(here, condition, zone)
    if compiled is None:
        return None
    with connect(zone) as connection:
        connection.register("t", with_places(rows))
        try:
            found = connection.sql(compiled).to_arrow_table()
        except duckdb.Error:  # a cast that fails on a row that no query reads
            return None
    matched = np.zeros(rows.num_rows, dtype=np.bool_)
    matched[np.asarray(found.column(0))] = np.asarray(found.column(1))
    return matched
