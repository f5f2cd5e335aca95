"""Types as Spark 4 coerces them (ANSI on), and constants cast exactly as Spark casts them.

The rules are those of Spark's ``AnsiTypeCoercion``: of two types that are compared, one common type is found and both
sides are cast to it. A cast that Spark would not do exactly as computed here raises :class:`Unusable`.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from zoneinfo import ZoneInfo

from layoutopt.sql.problems import Unusable

Value = int | bool | float | Decimal | str | bytes | dt.date | dt.datetime

INTEGRAL_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
"""Integral types, narrowest first, with the precision of the decimal that Spark takes them as."""
_INTEGRAL_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_ATOMIC = frozenset({"boolean", "binary", "date", "timestamp", "timestamp_ntz"})
_MAX_PRECISION = 38
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


def normal_type(name: str) -> str:
    """One name for each type: ``integer`` is ``int``, ``varchar(n)`` is compared as ``string``.

    >>> normal_type("VARCHAR(5)"), normal_type("decimal(5, 2)")
    ('string', 'decimal(5,2)')
    """
    name = name.casefold().strip()
    if name.startswith("varchar"):
        return "string"
    if name.startswith("decimal"):
        precision, scale = _decimal(name) or (10, 0)
        return f"decimal({precision},{scale})"
    aliases = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint", "timestamp_ltz": "timestamp"}
    return aliases.get(name, name)


def decimal_digits(name: str) -> tuple[int, int] | None:
    """(precision, scale) of a decimal type, or of the decimal that an integral type is taken as; None for others."""
    if name in INTEGRAL_DIGITS:
        return INTEGRAL_DIGITS[name], 0
    return _decimal(name)


def _decimal(name: str) -> tuple[int, int] | None:
    match = re.fullmatch(r"decimal(?:\(\s*(\d+)\s*(?:,\s*(-?\d+)\s*)?\))?", name)
    return (int(match[1] or 10), int(match[2] or 0)) if match else None


def is_numeric(name: str) -> bool:
    """Integral, decimal, float or double."""
    return name in ("float", "double") or decimal_digits(name) is not None


def common_type(left: str, right: str) -> str:
    """The type that Spark compares two types in.

    >>> common_type("string", "int"), common_type("date", "string"), common_type("decimal(5,2)", "int")
    ('bigint', 'date', 'decimal(12,2)')

    Raises:
        Unusable: ``coercion``: Spark refuses, or a decimal would lose digits.
    """
    if left == right:
        return left
    if "void" in (left, right):
        return right if left == "void" else left
    if is_numeric(left) and is_numeric(right):
        return _common_number(left, right)
    pair = {left, right}
    if "string" in pair:
        return _promoted_string((pair - {"string"}).pop())
    if pair == {"date", "timestamp_ntz"}:
        return "timestamp_ntz"
    if pair <= {"date", "timestamp", "timestamp_ntz"}:
        return "timestamp"
    raise Unusable("coercion", f"Spark does not compare {left} with {right}")


def compared_type(left: str, right: str, *, ansi: bool, listed: bool = False) -> str:
    """The type that Spark compares two types in, in either mode.

    Args:
        left: one type.
        right: the other.
        ansi: whether ANSI mode is on. Without it Spark narrows texts to the type of a number beside them, NULL where
            they don't fit, and whole numbers to a float.
        listed: whether they stand in one list (IN, coalesce), of which Spark makes texts without ANSI mode.

    Raises:
        Unusable: ``coercion``: Spark refuses, a decimal would lose digits, or ANSI mode is off and the type another.
    """
    pair = {left, right}
    if not ansi and len(pair) == 2 and "void" not in pair:
        texts = "string" in pair and (listed or is_numeric(left) or is_numeric(right))
        if texts or ("float" in pair and pair & INTEGRAL_DIGITS.keys()):
            raise Unusable("coercion", f"{left} and {right} meet in another type without ANSI mode")
    return common_type(left, right)


def _common_number(left: str, right: str) -> str:
    if left in INTEGRAL_DIGITS and right in INTEGRAL_DIGITS:
        return max(left, right, key=lambda name: INTEGRAL_DIGITS[name])
    first, second = decimal_digits(left), decimal_digits(right)
    if first is None or second is None:
        return "double"  # Spark takes float with an integral or decimal as double
    scale = max(first[1], second[1])
    return decimal_type(max(first[0] - first[1], second[0] - second[1]) + scale, scale)


def decimal_type(precision: int, scale: int) -> str:
    """The decimal type of that size.

    Raises:
        Unusable: ``coercion``: more than 38 digits, where Spark drops some.
    """
    if precision > _MAX_PRECISION:
        raise Unusable("coercion", f"decimal({precision},{scale}) has more digits than Spark keeps")
    return f"decimal({precision},{scale})"


def _promoted_string(other: str) -> str:
    if other in INTEGRAL_DIGITS:
        return "bigint"
    if is_numeric(other):
        return "double"
    if other in _ATOMIC:
        return other
    raise Unusable("coercion", f"Spark does not compare string with {other}")


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
        return (
            _cast_number(int(value), to)
            if is_numeric(to)
            else ("true" if value else "false")
            if to == "string"
            else None
        )
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
    local = value.astimezone(ZoneInfo(zone)).replace(tzinfo=None) if value.tzinfo else value
    return local.date() if to == "date" else _localised(local, to, zone)


def _localised(local: dt.datetime, to: str, zone: str) -> dt.datetime | None:
    if to == "timestamp_ntz":
        return local
    if to != "timestamp":
        return None
    # fold=0: in an overlap the earlier instant, in a gap the time moved forward, as java.time does
    try:
        return local.replace(tzinfo=ZoneInfo(zone)).astimezone(dt.UTC)
    except OverflowError:
        return None


def _cast_number(value: int | float | Decimal, to: str) -> Value | None:
    if to == "string":
        return str(value) if isinstance(value, int) else None  # Spark writes fractions its own way
    if to == "boolean":
        return value != 0 if isinstance(value, int) else None
    if to in _INTEGRAL_BITS:
        return _to_integer(value, _INTEGRAL_BITS[to])
    if to == "double":
        return _to_double(value)
    if to == "float":
        return _to_float(value)
    size = _decimal(to)
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
    if to in _INTEGRAL_BITS:
        return _to_integer(int(text), _INTEGRAL_BITS[to]) if _INTEGER.fullmatch(text) else None
    if to in ("double", "float"):
        return _string_to_fraction(text, to)
    if to == "date":
        return _string_to_date(text)
    if to in ("timestamp", "timestamp_ntz"):
        return _string_to_timestamp(text, to, zone)
    size = _decimal(to)
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
