"""Constants cast exactly as Spark 4 casts them with ANSI on; a cast whose result is not surely known is refused."""

from __future__ import annotations

import datetime as dt
import re
import struct
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

from layoutopt.model.types import INTEGER_BITS, decimal_digits
from layoutopt.sql.problems import Unusable
from layoutopt.sql.types.rules import is_integer, is_number
from layoutopt.sql.types.zones import is_agreed, zone_of

Value = int | bool | float | Decimal | str | bytes | dt.date | dt.datetime

EXACT = Context(prec=200)
"""Decimal arithmetic that rounds nothing: Python's own context keeps 28 digits, Spark's decimals have up to 38."""
_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_TIMESTAMP = re.compile(
    r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?)?)?)?", re.ASCII
)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_TRUE = frozenset({"t", "true", "y", "yes", "1"})
_FALSE = frozenset({"f", "false", "n", "no", "0"})
_EPOCH = dt.datetime(1970, 1, 1)


@dataclass(frozen=True)
class TypedConstant:
    """A folded constant.

    Attributes:
        value: a Python value (``datetime`` with a zone for timestamp, without for timestamp_ntz), None for NULL.
        type: Spark's type; ``void`` for an untyped NULL.
    """

    value: Value | None
    type: str


def cast_constant(constant: TypedConstant, to: str, zone: str) -> TypedConstant:
    """The constant cast as Spark casts it with ANSI on.

    Args:
        constant: what is cast.
        to: a normal type name.
        zone: the session's time zone, which timestamps without one are read in.

    Raises:
        Unusable: ``inexact``: Spark would fail, or the exact result is not known here.
    """
    value = constant.value
    if value is None or constant.type == to:
        return TypedConstant(value, to)
    cast = _cast(value, constant.type, to, zone)
    if cast is None:
        raise Unusable("inexact", f"{value!r} can't be cast exactly from {constant.type} to {to}")
    return TypedConstant(cast, to)


def _cast(value: Value, source: str, to: str, zone: str) -> Value | None:
    if isinstance(value, str) and source == "string":
        return _cast_string(value.strip(" \t\n\r"), value, to, zone)
    if isinstance(value, bool):
        if is_number(to):
            return _cast_number(int(value), to)
        return str(value).lower() if to == "string" else None
    if isinstance(value, int | float | Decimal):
        return _cast_number(value, to)
    if isinstance(value, dt.datetime):
        return _cast_timestamp(value, to, zone)
    if isinstance(value, dt.date):
        if to == "string":
            return value.isoformat()
        return _localised(dt.datetime(value.year, value.month, value.day), to, zone)
    return None


def _cast_timestamp(value: dt.datetime, to: str, zone: str) -> Value | None:
    local = value
    if value.tzinfo:
        clocks = zone_of(zone)
        local = value.astimezone(clocks).replace(tzinfo=None)
        if not is_agreed(local, clocks):
            return None
    return local.date() if to == "date" else _localised(local, to, zone)


def _localised(local: dt.datetime, to: str, zone: str) -> dt.datetime | None:
    if to == "timestamp_ntz":
        return local
    if to != "timestamp":
        return None
    clocks = zone_of(zone)
    if not is_agreed(local, clocks):
        return None
    # fold=0: in an overlap the earlier instant, in a gap the time moved forward, as java.time does
    try:
        return local.replace(tzinfo=clocks).astimezone(dt.UTC)
    except OverflowError:
        return None


def _cast_number(value: int | float | Decimal, to: str) -> Value | None:
    if to == "string":
        return str(value) if isinstance(value, int) else None  # Spark writes fractions its own way
    if to == "boolean":
        return value != 0 if isinstance(value, int) else None
    if to in INTEGER_BITS:
        return _to_integer(value, INTEGER_BITS[to])
    if to == "double":
        return _to_double(value)
    if to == "float":
        return _to_float(value)
    size = decimal_digits(to)
    if size is None or isinstance(value, float):
        return None
    return _to_decimal(Decimal(value), *size)


def _to_integer(value: int | float | Decimal, bits: int) -> int | None:
    if isinstance(value, float) and not abs(value) < 2.0**63:
        return None
    whole = int(value)  # towards zero, as Spark does
    return whole if -(1 << bits - 1) <= whole < 1 << bits - 1 else None


def _to_double(value: int | float | Decimal) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None


def _to_float(value: int | float | Decimal) -> float | None:
    if isinstance(value, float) or (isinstance(value, int) and abs(value) <= 1 << 24):
        try:
            return float(struct.unpack("f", struct.pack("f", value))[0])
        except OverflowError:
            return None
    # Spark goes through double or text here: rounding twice may differ, so only what is exact at once
    double = _to_double(value)
    single = None if double is None else _to_float(double)
    return single if single is not None and Decimal(single) == value else None


def _to_decimal(value: Decimal, precision: int, scale: int) -> Decimal | None:
    try:
        rounded = value.quantize(Decimal(1).scaleb(-scale), rounding=ROUND_HALF_UP, context=EXACT)
    except InvalidOperation:
        return None
    return rounded if abs(rounded) < Decimal(10) ** (precision - scale) else None


def _cast_string(text: str, raw: str, to: str, zone: str) -> Value | None:
    if to == "binary":
        return raw.encode()
    if to == "boolean":
        folded = text.casefold()
        return True if folded in _TRUE else False if folded in _FALSE else None
    if to in INTEGER_BITS:
        return _to_integer(int(text), INTEGER_BITS[to]) if _INTEGER.fullmatch(text) else None
    if to in ("double", "float"):
        return _string_to_fraction(text, to)
    if to == "date":
        return _string_to_date(text)
    if to in ("timestamp", "timestamp_ntz"):
        return _string_to_timestamp(text, to, zone)
    size = decimal_digits(to)
    return _to_decimal(Decimal(text), *size) if size and _NUMBER.fullmatch(text) else None


def _string_to_fraction(text: str, to: str) -> float | None:
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if to == "double" else _to_float(Decimal(text))


def _string_to_date(text: str) -> dt.date | None:
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    try:
        return dt.date(int(match[1]), int(match[2] or 1), int(match[3] or 1))
    except ValueError:
        return None


def _string_to_timestamp(text: str, to: str, zone: str) -> dt.datetime | None:
    offset = re.search(r"(?<=[\d])\s?(Z|UTC|GMT|\+00:00)$", text)
    match = _TIMESTAMP.fullmatch(text[: offset.start()] if offset else text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part) if part else None for part in match.groups()[:6])
    try:
        local = dt.datetime(
            year or 0, month or 1, day or 1, hour or 0, minute or 0, second or 0, int((match[7] or "0").ljust(6, "0"))
        )
    except ValueError:
        return None
    if offset and (to == "timestamp_ntz" or hour is None):
        return None
    return _localised(local, to, "UTC" if offset else zone)


def outcome_for_all(type_name: str, operator: str, constant: TypedConstant) -> bool | None:
    """What comparing any whole number with a decimal beyond BIGINT comes to; None where Spark looks at the number.

    Its analyser puts TRUE in place of ``b < 9223372036854775808`` and FALSE in place of ``b >= 9223372036854775808``,
    for every row: also where ``b`` is NULL. It does so for what is a literal in the text, not for what is computed,
    cast or has a plus before it; the parser here does not tell all of these apart.

    >>> outcome_for_all("int", "<", TypedConstant(Decimal(2**63), "decimal(19,0)"))
    True
    >>> outcome_for_all("int", ">", TypedConstant(Decimal("9223372036854775807.5"), "decimal(20,1)"))
    False
    >>> outcome_for_all("bigint", "=", TypedConstant(Decimal(2**63), "decimal(19,0)")) is None
    True
    """
    value = constant.value
    if not is_integer(type_name) or operator not in ("<", "<=", ">", ">=") or not isinstance(value, Decimal):
        return None
    return None if -(1 << 63) <= value <= (1 << 63) - 1 else (value > 0) == (operator in ("<", "<="))
