"""Estimate what queries read of a table's files now: the row groups whose min/max allow a match.

Only footers are read. Bounds are trusted as engines trust them; a NaN, which footers don't record, may lie outside. The
result says what engines read and is never used to skip blocks.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog.keys import has_key, key_array
from layoutopt.errors import SchemaError
from layoutopt.model.arrays import Bits, Floats, Ints, Keys, spread
from layoutopt.model.predicates import columns_of
from layoutopt.model.query import Query
from layoutopt.model.schema import Column, Schema
from layoutopt.model.values import key_kind
from layoutopt.skipping.cannot_match import UNKNOWN_NULLS, BlockStatistics, ColumnBounds, cannot_match
from layoutopt.sources.snapshot import SnapshotFile
from layoutopt.sources.whole_files import read_footer

# The most footers that are read; of more files, so many are sampled evenly.
MOST_FILES: Final = 500
# Segments that are sampled of a table without partitions.
MOST_RUNS: Final = 2
# Partitions that are sampled of a table with partitions, with the files of one segment each.
MOST_PARTITIONS: Final = 6

_REQUESTS_AT_ONCE: Final = 16
# Parsers of values in folder names, for the usual types of such columns.
_PARSERS: Final[Mapping[str, Callable[[str], object]]] = MappingProxyType(
    {**dict.fromkeys(("tinyint", "smallint", "int", "bigint"), int), "date": dt.date.fromisoformat, "string": str}
)

# For each row group the least and the greatest value, null if unknown, and the number of NULLs.
Bounds = tuple[pa.Array, pa.Array, Ints]


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
    parts = [_read_file_groups(*pair, schema, read, filtered) for pair in zip(sample, footers, strict=True)]
    known = [column for column in schema.columns if column.name in filtered and key_kind(column.type) is not None]
    rows = _concatenate([part.rows for part in parts])
    scale = len(files) / max(1, len(sample))
    bounds = {column.name: _merge_bounds([part.bounds[column.name] for part in parts], column) for column in known}
    return RowGroups(
        BlockStatistics(rows, bounds=bounds),
        {name: _concatenate([part.bytes[name] for part in parts]) for name in read},
        scale,
        len(files),
        round(scale * int(rows.sum())),
        scale * sum(part.stored for part in parts),
    )


@dataclass(frozen=True, eq=False)
class _FileGroups:
    """The row groups of one file; like :class:`RowGroups`, but with bounds not yet as keys."""

    rows: Ints
    bytes: Mapping[str, Ints]
    bounds: Mapping[str, Bounds]
    stored: int


def _read_file_groups(
    file: SnapshotFile, footer: pq.FileMetaData, schema: Schema, read: Collection[str], filtered: Collection[str]
) -> _FileGroups:
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    paths = [footer.schema.column(i).path for i in range(footer.num_columns)]
    sizes = np.array(
        [[group.column(leaf).total_compressed_size for leaf in range(len(paths))] for group in groups], dtype=np.int64
    ).reshape(len(groups), len(paths))
    rows = np.array([group.num_rows for group in groups], dtype=np.int64)
    stored = dict(zip(schema.names, file.stored, strict=True))
    types = footer.schema.to_arrow_schema()
    bytes = {name: sizes[:, _find_leaves(paths, stored[name])].sum(axis=1) for name in read}
    bounds = {}
    for column in schema.columns:
        if column.name not in filtered or key_kind(column.type) is None:
            continue
        if column.name in file.constants:
            bounds[column.name] = _constant_bounds(file.constants[column.name], column, rows)
        else:
            name = stored[column.name]
            leaf = paths.index(name) if name in paths else None
            bounds[column.name] = _footer_bounds(groups, leaf, None if leaf is None else types.field(name).type, rows)
    return _FileGroups(rows, bytes, bounds, int(sizes.sum()))


def _find_leaves(paths: Sequence[str], name: str | None) -> list[int]:
    """Return the Parquet columns of a column; none if the file lacks it."""
    return [i for i, path in enumerate(paths) if name is not None and (path == name or path.startswith(f"{name}."))]


def _constant_bounds(value: object, column: Column, rows: Ints) -> Bounds:
    """Return bounds of a column with one value in all rows of a file; unknown for rare types."""
    if value is None:
        return _null_bounds(rows)
    parse = _PARSERS.get(column.type)
    try:
        values = None if parse is None else pa.array([parse(str(value))] * len(rows))
    except ValueError:
        values = None
    return _unknown_bounds(rows) if values is None else (values, values, np.zeros(len(rows), dtype=np.int64))


def _footer_bounds(groups: Sequence[Any], leaf: int | None, type: pa.DataType | None, rows: Ints) -> Bounds:
    """Return bounds of a column by a file's footer; a column that the file lacks is NULL."""
    if leaf is None or type is None:
        return _null_bounds(rows)
    statistics = [group.column(leaf).statistics for group in groups]
    nulls = [s.null_count if s is not None and s.has_null_count else UNKNOWN_NULLS for s in statistics]
    bounded = [s if s is not None and s.has_min_max else None for s in statistics]
    try:
        low = pa.array([None if s is None else s.min for s in bounded], type)
        high = pa.array([None if s is None else s.max for s in bounded], type)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):  # values that Python can't represent
        return _unknown_bounds(rows)
    return low, high, np.array(nulls, dtype=np.int64)


def _null_bounds(rows: Ints) -> Bounds:
    return pa.nulls(len(rows)), pa.nulls(len(rows)), rows


def _unknown_bounds(rows: Ints) -> Bounds:
    return pa.nulls(len(rows)), pa.nulls(len(rows)), np.full(len(rows), UNKNOWN_NULLS, dtype=np.int64)


def _merge_bounds(parts: Sequence[Bounds], column: Column) -> ColumnBounds:
    lows = [_to_keys(low, column.type) for low, _, _ in parts]
    highs = [_to_keys(high, column.type) for _, high, _ in parts]
    return ColumnBounds(
        low=np.concatenate([keys for keys, _ in lows]),
        high=np.concatenate([keys for keys, _ in highs]),
        known=np.concatenate([low & high for (_, low), (_, high) in zip(lows, highs, strict=True)]),
        nulls=_concatenate([nulls for _, _, nulls in parts]),
        type=column.type,
    )


def _to_keys(values: pa.Array, type: str) -> tuple[Keys, Bits]:
    """Return the keys of bounds, and which are known; none if the file has a type of another order."""
    try:
        return key_array(values, type), has_key(values, type)
    except SchemaError:
        nulls = pa.nulls(len(values))
        return key_array(nulls, type), has_key(nulls, type)


def _concatenate(parts: Sequence[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


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
