"""What queries read of a table's files as they lie now: of the row groups whose minima and maxima don't exclude them.

Nothing but footers is read. Bounds are believed as engines believe them: a NaN, which no footer tells of, may lie
outside. So this says what engines read, and never decides what is skipped.
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

MOST_FILES: Final = 500
"""Footers that are read; of more files so many, spread evenly, stand for all."""

_AT_ONCE: Final = 16
_PARSED: Final[Mapping[str, Callable[[str], object]]] = MappingProxyType(
    {**dict.fromkeys(("tinyint", "smallint", "int", "bigint"), int), "date": dt.date.fromisoformat, "string": str}
)
"""How values that stand in folders' names are read, by the types that such columns mostly have."""

Bounds = tuple[pa.Array, pa.Array, Ints]
"""Of each row group the least value, the greatest one, null where they are not known, and how many are NULL."""


@dataclass(frozen=True, eq=False)
class RowGroups:
    """Row groups of a table's files.

    Attributes:
        statistics: their rows, and the bounds of the columns that queries filter by.
        bytes: of each column that queries read the compressed bytes, ``int64[row groups]``.
        scale: how many row groups of the table each of these stands for.
        files: how many files the table has.
        rows: of the whole table, deleted ones too.
        stored: the compressed bytes of all columns of the whole table.
    """

    statistics: BlockStatistics
    bytes: Mapping[str, Ints]
    scale: float
    files: int
    rows: int
    stored: float

    def read(self, queries: Sequence[Query]) -> Floats:
        """The bytes that each query reads, ``float64[queries]``; its weight is not counted."""
        skipped = (cannot_match(query.filter.root, self.statistics, None) for query in queries)
        return self._sums(self._of(query)[~bits] for query, bits in zip(queries, skipped, strict=True))

    def full(self, queries: Sequence[Query]) -> Floats:
        """The bytes of a full scan of each query's columns, ``float64[queries]``."""
        return self._sums(map(self._of, queries))

    def stored_of(self, columns: Iterable[str]) -> float:
        """The compressed bytes of some columns of the whole table, of those that queries read."""
        return self.scale * float(sum(int(self.bytes[name].sum()) for name in columns if name in self.bytes))

    def _of(self, query: Query) -> Ints:
        """The bytes of a query's columns in each row group."""
        nothing = np.zeros(self.statistics.n, dtype=np.int64)
        return np.asarray(sum((self.bytes[name] for name in query.columns), nothing))

    def _sums(self, of_queries: Iterable[Ints]) -> Floats:
        return self.scale * np.array([float(sizes.sum()) for sizes in of_queries], dtype=np.float64)


def row_groups_of(files: Sequence[SnapshotFile], schema: Schema, queries: Sequence[Query]) -> RowGroups:
    """The row groups of a table's files, and what queries need to know of them.

    Args:
        files: the table's; values that a file's folder or the table's metadata says are among its ``constants``.
        schema: the table's columns.
        queries: they name the columns whose bytes and bounds are of interest.

    Raises:
        SourceError: a file is gone or its footer is damaged.
    """
    some = spread(files, MOST_FILES)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        footers = list(pool.map(read_footer, (file.path for file in some)))
    read = {name for query in queries for name in query.columns}
    filtered = {name for query in queries for name in columns_of(query.filter.root)}
    found = [_groups_of(*each, schema, read, filtered) for each in zip(some, footers, strict=True)]
    known = [column for column in schema.columns if column.name in filtered and key_kind(column.type) is not None]
    rows = _joined([of.rows for of in found])
    scale = len(files) / max(1, len(some))
    return RowGroups(
        BlockStatistics(
            rows, bounds={one.name: _together([of.bounds[one.name] for of in found], one) for one in known}
        ),
        {name: _joined([of.bytes[name] for of in found]) for name in read},
        scale,
        len(files),
        round(scale * int(rows.sum())),
        scale * sum(of.stored for of in found),
    )


@dataclass(frozen=True, eq=False)
class _FileGroups:
    """The row groups of one file: as :class:`RowGroups` has them, but bounds as least, greatest and NULL counts."""

    rows: Ints
    bytes: Mapping[str, Ints]
    bounds: Mapping[str, Bounds]
    stored: int


def _groups_of(
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
    bytes = {name: sizes[:, _leaves(paths, stored[name])].sum(axis=1) for name in read}
    bounds = {}
    for column in schema.columns:
        if column.name not in filtered or key_kind(column.type) is None:
            continue
        if column.name in file.constants:
            bounds[column.name] = _constant(file.constants[column.name], column, rows)
        else:
            name = stored[column.name]
            leaf = paths.index(name) if name in paths else None
            bounds[column.name] = _measured(groups, leaf, None if leaf is None else types.field(name).type, rows)
    return _FileGroups(rows, bytes, bounds, int(sizes.sum()))


def _leaves(paths: Sequence[str], name: str | None) -> list[int]:
    """The Parquet columns of a column; none where the file lacks it."""
    return [i for i, path in enumerate(paths) if name is not None and (path == name or path.startswith(f"{name}."))]


def _constant(value: object, column: Column, rows: Ints) -> Bounds:
    """Bounds of a column that has one value in all rows of a file; of a type that is rare there nothing is known."""
    if value is None:
        return _nulls(rows)
    parse = _PARSED.get(column.type)
    try:
        values = None if parse is None else pa.array([parse(str(value))] * len(rows))
    except ValueError:
        values = None
    return _unknown(rows) if values is None else (values, values, np.zeros(len(rows), dtype=np.int64))


def _measured(groups: Sequence[Any], leaf: int | None, type: pa.DataType | None, rows: Ints) -> Bounds:
    """Bounds of a column as a file's footer has them; a column that the file lacks is NULL everywhere."""
    if leaf is None or type is None:
        return _nulls(rows)
    known = [group.column(leaf).statistics for group in groups]
    nulls = [each.null_count if each is not None and each.has_null_count else UNKNOWN_NULLS for each in known]
    bounded = [each if each is not None and each.has_min_max else None for each in known]
    try:
        low = pa.array([None if each is None else each.min for each in bounded], type)
        high = pa.array([None if each is None else each.max for each in bounded], type)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):  # what Python has no value for
        return _unknown(rows)
    return low, high, np.array(nulls, dtype=np.int64)


def _nulls(rows: Ints) -> Bounds:
    return pa.nulls(len(rows)), pa.nulls(len(rows)), rows


def _unknown(rows: Ints) -> Bounds:
    return pa.nulls(len(rows)), pa.nulls(len(rows)), np.full(len(rows), UNKNOWN_NULLS, dtype=np.int64)


def _together(parts: Sequence[Bounds], column: Column) -> ColumnBounds:
    """The bounds of one column over the row groups of all files."""
    lows, highs = [_keys(low, column.type) for low, _, _ in parts], [_keys(high, column.type) for _, high, _ in parts]
    return ColumnBounds(
        low=np.concatenate([keys for keys, _ in lows]),
        high=np.concatenate([keys for keys, _ in highs]),
        known=np.concatenate([low & high for (_, low), (_, high) in zip(lows, highs, strict=True)]),
        nulls=_joined([nulls for _, _, nulls in parts]),
        type=column.type,
    )


def _keys(values: pa.Array, type: str) -> tuple[Keys, Bits]:
    """The keys of bounds, and which are known; none of a file that holds the column under a type of another order."""
    try:
        return key_array(values, type), has_key(values, type)
    except SchemaError:
        nothing = pa.nulls(len(values))
        return key_array(nothing, type), has_key(nothing, type)


def _joined(parts: Sequence[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


# ----------------------------------------------------------------------------------------------------
# Some of a table's files that stand for all: whole segments of a load, spread evenly along the table.

MOST_RUNS: Final = 2
"""Of a table without partitions so many segments are taken."""
MOST_PARTITIONS: Final = 6
"""Of a table with partitions so many, of each the files of one segment."""


def some_files(
    files: Sequence[SnapshotFile], rows: float, partition_by: str | None, segment_rows: int
) -> tuple[SnapshotFile, ...]:
    """Files that hold whole segments; all where they are few, or where partitions don't lie in files of their own.

    Args:
        files: the table's, in the order in which they are read.
        rows: how many rows a file has on average.
        partition_by: the column whose every value is a partition, None for none.
        segment_rows: the most rows of a segment.
    """
    length = max(1, math.ceil(segment_rows / max(1.0, rows)))
    if partition_by is None:
        return _runs(files, length, MOST_RUNS)
    if any(partition_by not in file.constants for file in files):
        return tuple(files)
    by_value: dict[object, list[SnapshotFile]] = {}
    for file in files:
        by_value.setdefault(file.constants[partition_by], []).append(file)
    in_order = sorted(by_value, key=lambda value: (value is not None, str(value)))
    return tuple(file for value in spread(in_order, MOST_PARTITIONS) for file in _runs(by_value[value], length, 1))


def _runs(files: Sequence[SnapshotFile], length: int, count: int) -> tuple[SnapshotFile, ...]:
    """So many runs of neighbouring files, spread evenly; all files where they are no more."""
    if len(files) <= length * count:
        return tuple(files)
    starts = [round((i + 0.5) * len(files) / count - length / 2) for i in range(count)]
    return tuple(file for start in starts for file in files[start : start + length])
