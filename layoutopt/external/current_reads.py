"""Estimate what queries read of a table's files now: the row groups whose min/max allow a match.

Only footers are read. Bounds are trusted as engines trust them; a NaN, which footers don't record, may lie outside. The
result says what engines read and is never used to skip blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from layoutopt.errors import SchemaError, SourceError
from layoutopt.evaluation.keys import has_key, key_array
from layoutopt.external.row_groups import FooterColumns
from layoutopt.external.snapshot import SnapshotFile
from layoutopt.external.whole_files import read_footer
from layoutopt.model.arrays import Bits, Floats, Ints, Keys, spread
from layoutopt.model.predicates import columns_of
from layoutopt.model.query import Query
from layoutopt.model.schema import Column, Schema
from layoutopt.model.values import key_kind
from layoutopt.skipping.cannot_match import UNKNOWN_NULLS, BlockStatistics, ColumnBounds, cannot_match

# The most footers that are read; of more files, so many are sampled evenly.
MOST_FILES: Final = 500
# Segments that are sampled of a table without partitions.
MOST_RUNS: Final = 2
# Partitions that are sampled of a table with partitions, with the files of one segment each.
MOST_PARTITIONS: Final = 6

_REQUESTS_AT_ONCE: Final = 16


@dataclass(frozen=True, eq=False)
class RowGroups:
    """Row groups of a table's files.

    Attributes:
        statistics: their rows, and the bounds of the columns that queries filter by.
        bytes: for each column that queries read its compressed bytes, ``int64[row groups]``.
        scale: how many row groups of the table each of these represents.
        files: the number of the table's files.
        rows: the rows of the whole table, deleted ones included.
        stored: the compressed bytes of all columns of the whole table.
    """

    statistics: BlockStatistics
    bytes: Mapping[str, Ints]
    scale: float
    files: int
    rows: int
    stored: float

    def read(self, queries: Sequence[Query]) -> Floats:
        """Return the bytes that each query reads, without its weight, ``float64[queries]``."""
        skipped = (cannot_match(query.filter.root, self.statistics, None) for query in queries)
        return self._sum(self._query_bytes(query)[~mask] for query, mask in zip(queries, skipped, strict=True))

    def full(self, queries: Sequence[Query]) -> Floats:
        """Return the bytes of a full scan of each query's columns, ``float64[queries]``."""
        return self._sum(map(self._query_bytes, queries))

    def stored_of(self, columns: Iterable[str]) -> float:
        """Return the compressed bytes of some columns of the whole table; only columns that queries read count."""
        return self.scale * float(sum(int(self.bytes[name].sum()) for name in columns if name in self.bytes))

    def _query_bytes(self, query: Query) -> Ints:
        zeros = np.zeros(self.statistics.n, dtype=np.int64)
        return np.asarray(sum((self.bytes[name] for name in query.columns), zeros))

    def _sum(self, arrays: Iterable[Ints]) -> Floats:
        return self.scale * np.array([float(sizes.sum()) for sizes in arrays], dtype=np.float64)


def read_row_groups(files: Sequence[SnapshotFile], schema: Schema, queries: Sequence[Query]) -> RowGroups:
    """Return the row groups of a table's files, with the bytes and bounds of the columns in some queries."""
    sample = spread(files, MOST_FILES)
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
        footers = list(pool.map(read_footer, (file.path for file in sample)))
    read = {name for query in queries for name in query.columns}
    filtered = {name for query in queries for name in columns_of(query.filter.root)}
    parts = [FooterColumns(file, footer, schema) for file, footer in zip(sample, footers, strict=True)]
    known = [column for column in schema.columns if column.name in filtered and key_kind(column.type) is not None]
    rows = np.concatenate([np.zeros(0, dtype=np.int64), *(part.rows for part in parts)])
    scale = len(files) / max(1, len(sample))
    bounds = {column.name: _read_bounds(parts, column) for column in known}
    return RowGroups(
        BlockStatistics(rows, bounds=bounds),
        {name: np.concatenate([part.bytes(name) for part in parts]) for name in read},
        scale,
        len(files),
        round(scale * int(rows.sum())),
        scale * sum(int(part.bytes().sum()) for part in parts),
    )


def _read_bounds(parts: Sequence[FooterColumns], column: Column) -> ColumnBounds:
    keys, known, nulls = zip(*(_read_keys(part, column) for part in parts), strict=True)
    ends, has_end = np.concatenate(keys), np.concatenate(known)
    return ColumnBounds(ends[0::2], ends[1::2], has_end[0::2] & has_end[1::2], np.concatenate(nulls), column.type)


def _read_keys(part: FooterColumns, column: Column) -> tuple[Keys, Bits, Ints]:
    """Return the keys of a file's bounds in turn, which are known, and the numbers of NULLs."""
    n = len(part.rows)
    nothing, nulls = pa.nulls(2 * n), np.full(n, UNKNOWN_NULLS, dtype=np.int64)
    try:
        ends, counts = part.bounds(column)
        nulls = np.asarray(counts.fill_null(UNKNOWN_NULLS), dtype=np.int64)
        return key_array(ends, column.type), has_key(ends, column.type), nulls
    except (SchemaError, SourceError):  # a type of another order, or an invalid value in a folder name
        return key_array(nothing, column.type), has_key(nothing, column.type), nulls


def sample_files(
    files: Sequence[SnapshotFile], rows: float, partition_by: str | None, segment_rows: int
) -> tuple[SnapshotFile, ...]:
    """Return a sample of files that holds whole segments, spread evenly along the table.

    All files are returned if there are few, or if partitions share files.

    Args:
        files: the table's files, in the order in which they are read.
        rows: the average rows of a file.
        partition_by: the column whose every value is a partition, None for none.
        segment_rows: the most rows of a segment.
    """
    length = max(1, math.ceil(segment_rows / max(1.0, rows)))
    if partition_by is None:
        return _sample_runs(files, length, MOST_RUNS)
    if any(partition_by not in file.constants for file in files):
        return tuple(files)
    by_value: dict[object, list[SnapshotFile]] = {}
    for file in files:
        by_value.setdefault(file.constants[partition_by], []).append(file)
    values = spread(sorted(by_value, key=lambda value: (value is not None, str(value))), MOST_PARTITIONS)
    return tuple(file for value in values for file in _sample_runs(by_value[value], length, 1))


def _sample_runs(files: Sequence[SnapshotFile], length: int, count: int) -> tuple[SnapshotFile, ...]:
    """Return so many evenly spread runs of neighbouring files; all files if there are no more."""
    if len(files) <= length * count:
        return tuple(files)
    starts = [round((i + 0.5) * len(files) / count - length / 2) for i in range(count)]
    return tuple(file for start in starts for file in files[start : start + length])
