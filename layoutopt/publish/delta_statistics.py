"""What a Delta table's log says of a file's values, so that no reader skips a row by it that it asks for.

Delta's protocol leaves open what readers do with NaN, and some read its JSON less exactly than it is written. So:

- a float column with a NaN in a file (or perhaps with one) has no minimum and no maximum there: to Spark, DuckDB and
  Polars NaN is the largest number, to others it is none;
- infinities are no JSON numbers, and make both unknown as well;
- zero is -0.0 as a minimum and 0.0 as a maximum, since some readers order the two;
- times are rounded outwards to milliseconds, to which some readers cut them;
- decimals of more than 15 digits are rounded outwards to 15, which survive a reader's doubles;
- texts are UTF-8: some readers take characters beyond U+FFFF, written as two escapes of JSON, for smaller ones;
- readers are told to skip by those columns alone that have both in every file with values (deltalake's Arrow dataset
  takes a minimum that is missing in one file for a reason to skip the file).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Final

import numpy as np

from layoutopt.catalog.snapshot import Bounds, PartitionEntry
from layoutopt.catalog.table import Catalog
from layoutopt.model.schema import Column, Schema
from layoutopt.model.types import decimal_digits
from layoutopt.model.values import NAN_KEY, Key, from_key, key_kind
from layoutopt.publish.contents import DataFile

_DOUBLE_DIGITS: Final = 15
_UNBOUNDED: Final = ("boolean", "binary")
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)  # names that every reader finds in a list with commas
_FLOATS: Final = ("float", "double")
_TIMES: Final = ("timestamp", "timestamp_ntz")
# Texts that every reader of dates takes: four digits of a year.
_FIRST_DAY, _LAST_DAY = int(np.datetime64("0001-01-01", "D").astype(int)), int(np.datetime64("9999-12-31").astype(int))
_MILLISECOND: Final = 1000
_DAY: Final = 86_400_000_000

Extreme = float | int | str | Decimal


def delta_statistics(file: DataFile, schema: Schema, partition_by: str | None) -> str:
    """The ``stats`` of an add action: rows, and of each column NULLs and, where both are known, minimum and maximum.

    The partition column has none.
    """
    low: dict[str, Extreme] = {}
    high: dict[str, Extreme] = {}
    nulls: dict[str, int] = {}
    for column in schema.columns:
        # Of a struct Delta counts the fields' NULLs, not its own.
        if column.name == partition_by or column.type.startswith("struct<"):
            continue
        bounds = file.bounds(column)
        if bounds.nulls is not None:
            nulls[column.name] = bounds.nulls
        pair = _extremes(bounds, column)
        if pair is not None:
            low[column.name], high[column.name] = pair
    extremes = f'"minValues":{_object(low)},"maxValues":{_object(high)}'
    return f'{{"numRecords":{file.rows},{extremes},"nullCount":{_object(nulls)}}}'


def bounded_columns(catalog: Catalog, schema: Schema) -> tuple[str, ...]:
    """The columns of which every file has a minimum and a maximum, or nothing but NULL: those that readers skip by."""
    return tuple(
        column.name
        for column in schema.columns
        if _PLAIN.fullmatch(column.name) and all(_is_bounded(catalog, entry, column) for entry in catalog.partitions)
    )


def _is_bounded(catalog: Catalog, entry: PartitionEntry, column: Column) -> bool:
    if key_kind(column.type) is None or column.type in _UNBOUNDED:
        return False
    # What is known of a partition together is known of each of its blocks.
    bounds = catalog.bounds_in(entry, column.name)
    return bounds.nulls == entry.rows or _extremes(bounds, column) is not None


def _extremes(bounds: Bounds, column: Column) -> tuple[Extreme, Extreme] | None:
    low, high, type = bounds.low, bounds.high, column.type
    if low is None or high is None or type in _UNBOUNDED:
        return None
    if type in _FLOATS:
        return None if high == NAN_KEY else _numbers(low, high, type)
    if type == "date":
        in_range = int(low) >= _FIRST_DAY and int(high) <= _LAST_DAY
        return (str(np.datetime64(low, "D")), str(np.datetime64(high, "D"))) if in_range else None
    if type in _TIMES:
        return _times(int(low), int(high), "Z" if type == "timestamp" else "")
    digits = decimal_digits(type)
    if digits:
        return _decimals(int(low), int(high), *digits)
    assert not isinstance(low, bytes)
    assert not isinstance(high, bytes)
    return low, high


def _numbers(low: Key, high: Key, type: str) -> tuple[Extreme, Extreme] | None:
    least, most = from_key(low, type), from_key(high, type)
    assert isinstance(least, float)
    assert isinstance(most, float)
    if not np.isfinite([least, most]).all():
        return None
    return (-0.0 if least == 0 else least), (0.0 if most == 0 else most)


def _times(low: int, high: int, zone: str) -> tuple[str, str] | None:
    """Both in milliseconds, the first not after, the second not before the instants in microseconds."""
    least, most = low // _MILLISECOND, -(-high // _MILLISECOND)
    if least < _FIRST_DAY * _DAY // _MILLISECOND or most >= (_LAST_DAY + 1) * _DAY // _MILLISECOND:
        return None
    return f"{np.datetime64(least, 'ms')}{zone}", f"{np.datetime64(most, 'ms')}{zone}"


def _decimals(low: int, high: int, precision: int, scale: int) -> tuple[Extreme, Extreme] | None:
    least, most = (
        Context(prec=_DOUBLE_DIGITS, rounding=rounding).plus(Decimal(unscaled).scaleb(-scale, Context(prec=100)))
        for unscaled, rounding in ((low, ROUND_FLOOR), (high, ROUND_CEILING))
    )
    limit = Decimal(10) ** (precision - scale)
    return (least, most) if -limit < least and most < limit else None


def _object(members: Mapping[str, Extreme]) -> str:
    """A JSON object in which decimals are the numbers they are, which Python's own writer has no way to say."""
    values = {
        name: f"{value:f}" if isinstance(value, Decimal) else json.dumps(value, allow_nan=False, ensure_ascii=False)
        for name, value in members.items()
    }
    return "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{value}" for name, value in values.items()) + "}"
