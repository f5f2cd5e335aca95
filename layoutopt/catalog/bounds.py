"""Bounds from stored statistics: missing or contradictory values become unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.partition_entry import Bounds
from layoutopt.evaluation.keys import FLOATS, key_storage
from layoutopt.model.arrays import Bits, Ints, Keys
from layoutopt.model.schema import Column, Schema
from layoutopt.model.values import NAN_KEY, Key
from layoutopt.skipping.cannot_match import UNKNOWN_NULLS as UNKNOWN
from layoutopt.skipping.cannot_match import ColumnBounds


def column_bounds(stats: pa.StructArray, rows: Ints, type: str) -> ColumnBounds:
    """Return one column's bounds over n blocks, from its ``stats`` child and the blocks' ``rows`` (int64[n]).

    A block that has, or may have, a NaN has NAN_KEY as its high key, since Spark orders NaN last.
    """
    nulls = _read_counts(stats, "nulls", rows)
    low, high, known = _read_range(stats, type)
    # Contradictions: a range where every row is null, or an upside-down one. Such bounds become unknown.
    contradictory = known & ((nulls == rows) | np.greater(low, high).astype(np.bool_))
    known &= ~contradictory
    nulls[contradictory] = UNKNOWN
    if type in FLOATS:
        nans = _read_counts(stats, "nans", np.where(nulls == UNKNOWN, rows, rows - nulls))
        only_nans = (nans > 0) & (nulls != UNKNOWN) & (nans == rows - nulls) & ~known
        low = np.where(only_nans, NAN_KEY, low)
        high = np.where(nans == 0, high, NAN_KEY)
        known |= only_nans
    return ColumnBounds(low=low, high=high, known=known, nulls=nulls, type=type)


class LazyBounds(Mapping[str, ColumnBounds]):
    """The bounds of a schema's columns by name, computed on first use."""

    def __init__(self, schema: Schema, bounds_of: Callable[[Column], ColumnBounds]) -> None:
        self._schema, self._bounds_of = schema, bounds_of
        self._bounds: dict[str, ColumnBounds] = {}

    def __getitem__(self, name: str) -> ColumnBounds:
        if name not in self._bounds:
            column = self._schema.get(name)
            if column is None or column.name != name:
                raise KeyError(name)
            self._bounds[name] = self._bounds_of(column)
        return self._bounds[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._schema.names)

    def __len__(self) -> int:
        return len(self._schema.names)


def _read_member(stats: pa.StructArray, name: str, type: pa.DataType) -> pa.Array | None:
    """Return a member of the struct with the struct's nulls; None where missing or of another type."""
    index = stats.type.get_field_index(name)
    if index < 0 or stats.type.field(index).type != type:
        return None
    return pc.struct_field(stats, [index])


def _read_counts(stats: pa.StructArray, name: str, most: Ints) -> Ints:
    """Return a count in 0 .. ``most`` for each block, int64[n]; -1 where unknown or impossible."""
    stored = _read_member(stats, name, pa.int64())
    if stored is None:
        return np.full(len(stats), UNKNOWN, dtype=np.int64)
    counts = np.array(pc.fill_null(stored, UNKNOWN), dtype=np.int64)
    counts[(counts < 0) | (counts > most)] = UNKNOWN
    return counts


def _read_range(stats: pa.StructArray, type: str) -> tuple[Keys, Keys, Bits]:
    """Return each block's smallest and largest key, and where both are known."""
    storage = key_storage(type)
    low = None if storage is None else _read_member(stats, "min", storage)
    high = None if storage is None else _read_member(stats, "max", storage)
    if low is None or high is None:
        zeros = np.zeros(len(stats), dtype=np.int64)
        return zeros, zeros, np.zeros(len(stats), dtype=np.bool_)
    known = np.asarray(low.is_valid()) & np.asarray(high.is_valid())
    return _decode_keys(low), _decode_keys(high), known


def _decode_keys(stored: pa.Array) -> Keys:
    """Return stored keys as int64[n], or object[n] of int, str or bytes; the values at nulls are arbitrary."""
    if stored.type == pa.int64():
        return np.array(pc.fill_null(stored, 0), dtype=np.int64)
    keys = np.empty(len(stored), dtype=np.object_)
    if pa.types.is_decimal(stored.type):
        keys[:] = [0 if value is None else int(value) for value in stored.to_pylist()]
    else:
        keys[:] = pc.fill_null(stored, b"" if pa.types.is_binary(stored.type) else "").to_pylist()
    return keys


def merge_bounds(bounds: ColumnBounds, rows: Ints, blocks: Ints) -> Bounds:
    """Return the bounds over some blocks (their indices); ``rows`` are all blocks', int64[n].

    The range is unknown if it is unknown for a block with values.
    """
    return merge_bounds_of_groups(bounds, rows, blocks, np.zeros(len(blocks), dtype=np.int64), 1)[0]


def merge_bounds_of_groups(bounds: ColumnBounds, rows: Ints, blocks: Ints, group: Ints, count: int) -> list[Bounds]:
    """Return :func:`merge_bounds` of each group of some blocks: ``group`` is that of each of ``blocks``, int64[k]."""
    counts, known = bounds.nulls[blocks], bounds.known[blocks]
    nulls = sum_groups(counts, group, count).tolist()
    unknown = sum_groups(counts == UNKNOWN, group, count).tolist()
    unranged = sum_groups(~known & (counts != rows[blocks]), group, count)
    ranged = known & (unranged[group] == 0)
    order = np.flatnonzero(ranged)[np.argsort(group[ranged], kind="stable")]
    groups, starts = np.unique(group[order], return_index=True)
    merged = [Bounds(nulls=None if some else total) for total, some in zip(nulls, unknown, strict=True)]
    if len(groups):
        low = np.minimum.reduceat(bounds.low[blocks[order]], starts)
        high = np.maximum.reduceat(bounds.high[blocks[order]], starts)
        for number, place in enumerate(groups.tolist()):
            merged[place] = Bounds(_to_key(low[number]), _to_key(high[number]), merged[place].nulls)
    return merged


def sum_groups(values: npt.ArrayLike, group: Ints, count: int) -> Ints:
    """Return the sum of the values of each group, int64[count]; ``group`` is that of each value."""
    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, group, np.asarray(values, dtype=np.int64))
    return sums


def _to_key(value: object) -> Key:
    return int(value) if isinstance(value, np.integer) else value  # type: ignore[return-value]


def bounds_over(entries: list[Bounds], rows: Ints, type: str) -> ColumnBounds:
    """Return bounds of single partitions as one :class:`ColumnBounds` over them."""
    known = np.array([b.low is not None and b.high is not None for b in entries], dtype=np.bool_)
    nulls = np.array(
        [UNKNOWN if b.nulls is None or b.nulls > n else b.nulls for b, n in zip(entries, rows, strict=True)]
    )
    return ColumnBounds(
        low=_to_keys([b.low for b in entries], type),
        high=_to_keys([b.high for b in entries], type),
        known=known,
        nulls=nulls.astype(np.int64),
        type=type,
    )


def _to_keys(keys: list[Key | None], type: str) -> Keys:
    storage = key_storage(type)
    if storage is None or storage == pa.int64():
        return np.array([0 if key is None else key for key in keys], dtype=np.int64)
    empty: Key = "" if storage == pa.string() else b"" if storage == pa.binary() else 0
    column = np.empty(len(keys), dtype=np.object_)
    column[:] = [empty if key is None else key for key in keys]
    return column
