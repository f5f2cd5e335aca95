"""Column statistics of blocks: nulls, NaNs, smallest and largest key, measured on whole arrays.

Soundness: no non-null, non-NaN value of a block lies outside [min, max]. Otherwise both are null: unknown, and unknown
never skips.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.evaluation.keys import FLOATS, ArrowValues, decode_text, fill_nulls, key_storage, stored_keys
from layoutopt.model.arrays import Bits, Ints, reduce_blocks
from layoutopt.model.schema import Schema
from layoutopt.model.values import NAN_KEY, key_kind

# Characters (or bytes of binary) kept of a minimum or maximum; longer ones are rounded outwards.
MAX_TEXT = 64

T = TypeVar("T", str, bytes)
_INT64 = np.iinfo(np.int64)


def statistics_type(schema: Schema) -> pa.StructType:
    """Return the Arrow type of ``stats``: one child ``c<i>`` for each column, see :func:`column_statistics_type`."""
    return pa.struct([(f"c{i}", column_statistics_type(column.type)) for i, column in enumerate(schema.columns)])


def column_statistics_type(type: str) -> pa.StructType:
    """Return the type of a column's statistics: nulls, nans (floats), min and max (ordered types), bytes, sum, tid_sum.

    All are nullable: null means unknown. ``min`` and ``max`` are keys in the type of
    :func:`~layoutopt.evaluation.keys.key_storage`; ``bytes`` is the compressed column chunk, ``sum`` the checksum,
    ``tid_sum`` the sum of hash(tid, value) (only where the scheme has several layouts).
    """
    storage = key_storage(type)
    nans = [("nans", pa.int64())] if type in FLOATS else []
    extremes = [] if storage is None else [("min", storage), ("max", storage)]
    return pa.struct(
        [("nulls", pa.int64()), *nans, *extremes, ("bytes", pa.int64()), ("sum", pa.int64()), ("tid_sum", pa.int64())]
    )


def block_statistics(
    table: pa.Table,
    offsets: Ints,
    schema: Schema,
    column_bytes: Mapping[str, Ints] | None = None,
    sums: Mapping[str, Ints] | None = None,
    tid_sums: Mapping[str, Ints] | None = None,
) -> pa.StructArray:
    """Return the ``stats`` of blocks that are ranges of rows: block i is ``offsets[i] .. offsets[i+1]-1``.

    ``table`` holds the rows in block order and any of the schema's columns; the statistics of other columns are null.
    ``column_bytes``, ``sums`` and ``tid_sums`` have an int64[n_blocks] by column name, where known.
    """
    rows = table.num_rows
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != rows or (np.diff(offsets) < 0).any():
        raise ValueError(f"the block offsets must rise from 0 to {rows} rows, not {offsets[:3]} .. {offsets[-1:]}")
    children, stored = [], frozenset(table.column_names)  # which Arrow lists anew each time
    for column in schema.columns:
        type = column_statistics_type(column.type)
        if column.name not in stored:
            children.append(pa.nulls(len(offsets) - 1, type))
            continue
        measured = measure(table[column.name], offsets, column.type)
        values = {
            **measured.by_name(),
            "bytes": (column_bytes or {}).get(column.name),
            "sum": (sums or {}).get(column.name),
            "tid_sum": (tid_sums or {}).get(column.name),
        }
        children.append(_make_struct(type, values, len(offsets) - 1))
    fields = list(statistics_type(schema))
    return pa.StructArray.from_arrays(children, fields=fields)


def with_bytes(stats: pa.StructArray, schema: Schema, column_bytes: Mapping[str, Ints]) -> pa.StructArray:
    """Return the same ``stats`` with the bytes of the named columns; null statistics stay null otherwise."""
    children = []
    for i, column in enumerate(schema.columns):
        child = stats.field(i)
        if column.name in column_bytes:
            values = {field.name: child.field(field.name) for field in child.type}
            child = _make_struct(child.type, {**values, "bytes": column_bytes[column.name]}, len(stats))
        children.append(child)
    return pa.StructArray.from_arrays(children, fields=list(stats.type))


def _make_struct(type: pa.StructType, values: Mapping[str, pa.Array | Ints | None], n: int) -> pa.StructArray:
    """Return a struct array whose missing members are null."""
    arrays = [
        pa.nulls(n, field.type) if values.get(field.name) is None else pa.array(values[field.name], field.type)
        for field in type
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(type))


@dataclass(frozen=True)
class Measured:
    """One column over n blocks: ``nulls`` int64[n], ``nans`` int64[n] (floats), ``low`` and ``high`` keys [n]."""

    nulls: Ints
    nans: Ints | None = None
    low: pa.Array | None = None
    high: pa.Array | None = None

    def by_name(self) -> dict[str, pa.Array | Ints | None]:
        """Return the members under their names in the ``stats`` struct."""
        return {"nulls": self.nulls, "nans": self.nans, "min": self.low, "max": self.high}


def measure(array: ArrowValues, offsets: Ints, type: str) -> Measured:
    """Measure one column over the blocks that ``offsets`` (int64[n+1]) delimit; raise SchemaError for another type."""
    if key_kind(type) is None:
        return Measured(_count_by_block(_find_nulls(array), offsets))
    keys = stored_keys(array, type)
    if keys.type == pa.int64():
        return _measure_integers(keys, offsets, with_nans=type in FLOATS)
    low, high = _measure_objects(keys, offsets, type)
    storage = key_storage(type)
    return Measured(_count_by_block(_find_nulls(keys), offsets), None, pa.array(low, storage), pa.array(high, storage))


def _measure_objects(keys: pa.Array, offsets: Ints, type: str) -> tuple[list[Any], list[Any]]:
    """Return the smallest and largest key of each block, for keys that are no int64."""
    starts, sizes = offsets[:-1].tolist(), np.diff(offsets).tolist()
    # One call a block beats any grouping: min_max runs over contiguous memory and hashes nothing.
    extremes = [pc.min_max(keys.slice(start, size)) for start, size in zip(starts, sizes, strict=True)]
    low, high = ([extreme[name].as_py() for extreme in extremes] for name in ("min", "max"))
    if key_kind(type) == "str":
        texts = ([decode_text(value) for value in low], [decode_text(value) for value in high])
        return _round_outwards(*texts, _ceil_text)
    if key_kind(type) == "bytes":
        return _round_outwards(low, high, _ceil_bytes)
    return low, high


def _find_nulls(array: ArrowValues) -> Bits:
    if array.null_count == 0:
        return np.zeros(len(array), dtype=np.bool_)
    return np.asarray(array.is_null())


def _count_by_block(mask: Bits, offsets: Ints) -> Ints:
    """Return the number of each block's rows in the mask, int64[n]."""
    return reduce_blocks(np.add, mask, offsets) if mask.any() else np.zeros(len(offsets) - 1, dtype=np.int64)


def _measure_integers(keys: pa.Array, offsets: Ints, with_nans: bool) -> Measured:
    null = ignored = _find_nulls(keys)
    values = np.asarray(fill_nulls(keys, 0))
    nulls, nans = _count_by_block(null, offsets), np.zeros(len(offsets) - 1, dtype=np.int64)
    if with_nans:
        nan = (values == NAN_KEY) & ~null
        nans, ignored = _count_by_block(nan, offsets), null | nan
    empty = np.diff(offsets) - nulls - nans == 0
    all_in = not ignored.any()
    low = reduce_blocks(np.minimum, values if all_in else np.where(ignored, _INT64.max, values), offsets)
    high = reduce_blocks(np.maximum, values if all_in else np.where(ignored, _INT64.min, values), offsets)
    return Measured(nulls, nans if with_nans else None, pa.array(low, mask=empty), pa.array(high, mask=empty))


def _round_outwards(
    low: Sequence[T | None], high: Sequence[T | None], ceil: Callable[[T], T | None]
) -> tuple[list[T | None], list[T | None]]:
    """Return both bounds rounded outwards where long; both unknown where one is."""
    # The first characters of a long value sort before it.
    pairs = [
        (None, None) if a is None or b is None else (a[:MAX_TEXT], ceil(b)) for a, b in zip(low, high, strict=True)
    ]
    known = [pair if None not in pair else (None, None) for pair in pairs]
    return [pair[0] for pair in known], [pair[1] for pair in known]


def _ceil_text(value: str) -> str | None:
    """Return the value or, where long, a short text that sorts after it; None where there is none.

    >>> _ceil_text("b" * 65) == "b" * 63 + "c"
    True
    """
    if len(value) <= MAX_TEXT:
        return value
    kept = value[:MAX_TEXT].rstrip("\U0010ffff")
    # U+D800 .. U+DFFF are no characters: the one after U+D7FF is U+E000.
    return kept[:-1] + ("\ue000" if kept[-1] == "\ud7ff" else chr(ord(kept[-1]) + 1)) if kept else None


def _ceil_bytes(value: bytes) -> bytes | None:
    if len(value) <= MAX_TEXT:
        return value
    kept = value[:MAX_TEXT].rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
