"""Spark's types: coercion, constants, time zones, and sets of a function's values as sets of its argument's values.

The rules are those of Spark 4's ``AnsiTypeCoercion`` and ``DecimalPrecision``. Where Spark fails, or a decimal would
need more than 38 digits, functions raise :class:`Unusable` (``coercion`` or ``inexact``). Types are Spark's names, as
:func:`normal_type` gives them.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import partial, reduce
from math import inf, nextafter
from typing import Final
from zoneinfo import ZoneInfo

from layoutopt.functions.registry import FUNCTIONS
from layoutopt.model.predicates import ANY_STRING, Call, Const, Expr, InSet, Node, conjunction, like
from layoutopt.model.types import INTEGER_BITS, decimal_digits, whole_type
from layoutopt.model.values import NAN_KEY, Key, ValueSet
from layoutopt.model.values.keys import domain, float_key
from layoutopt.model.values.value_sets import first_key
from layoutopt.sql.problems import Unusable
from layoutopt.sql.time_formats import times_before_text

# The types of whole numbers, narrowest first, with the precision of the decimal that Spark converts them to.
INTEGER_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_ALIASES = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint", "timestamp_ltz": "timestamp"}
_ATOMIC = frozenset({"boolean", "binary", "date", "timestamp", "timestamp_ntz"})
_MAX_PRECISION = 38
_MIN_QUOTIENT_PLACES = 6


def normal_type(name: str) -> str:
    """Return the one name of a type: ``integer`` is ``int``, ``varchar(n)`` is compared as ``string``.

    >>> normal_type("VARCHAR(5)"), normal_type("decimal(5, 2)"), normal_type("decimal")
    ('string', 'decimal(5,2)', 'decimal(10,0)')
    """
    name = name.casefold().strip()
    if name.startswith("varchar"):
        return "string"
    if name.startswith("decimal"):
        precision, scale = [*re.findall(r"\d+", name), "0"][:2] if "(" in name else ("10", "0")
        return f"decimal({precision},{scale})"
    return _ALIASES.get(name, name)


def exact_digits(name: str) -> tuple[int, int] | None:
    """Return precision and scale of a decimal, or of the decimal that holds a type of whole numbers; None for others.

    >>> exact_digits("decimal(15,2)"), exact_digits("int"), exact_digits("date")
    ((15, 2), (10, 0), None)
    """
    return (INTEGER_DIGITS[name], 0) if name in INTEGER_DIGITS else decimal_digits(name)


def is_integer(name: str) -> bool:
    """Return whether the type is one of whole numbers."""
    return name in INTEGER_DIGITS


def is_floating(name: str) -> bool:
    """Return whether the type is float or double."""
    return name in ("float", "double")


def is_number(name: str) -> bool:
    """Return whether the type is one of whole numbers, decimals, float or double."""
    return is_floating(name) or exact_digits(name) is not None


def number_type(text: str) -> str:
    """Return the type of a number literal: int, bigint or decimal; with an exponent, double.

    >>> number_type("5"), number_type("3000000000"), number_type("0.05"), number_type("12.5"), number_type("1e3")
    ('int', 'bigint', 'decimal(2,2)', 'decimal(3,1)', 'double')
    >>> number_type("2147483648"), number_type("-2147483648")
    ('bigint', 'int')
    """
    if "e" in text.casefold():
        return "double"
    whole, point, fraction = text.removeprefix("-").partition(".")
    whole_number = None if point else whole_type(int(text))
    if whole_number is not None:
        return whole_number
    digits = (whole + fraction).lstrip("0") or "0"
    return decimal_type(max(len(digits), len(fraction)), len(fraction))


def decimal_type(precision: int, scale: int) -> str:
    """Return the decimal type of that size."""
    if precision > _MAX_PRECISION:
        raise Unusable("coercion", f"decimal({precision},{scale}) exceeds Spark's {_MAX_PRECISION} digits")
    return f"decimal({precision},{scale})"


def common_type(left: str, right: str) -> str:
    """Return the type that Spark compares two types in, in ANSI mode.

    >>> common_type("string", "int"), common_type("date", "string"), common_type("decimal(5,2)", "int")
    ('bigint', 'date', 'decimal(12,2)')
    """
    if left == right:
        return left
    if "void" in (left, right):
        return right if left == "void" else left
    if is_number(left) and is_number(right):
        return _common_number(left, right)
    pair = {left, right}
    if "string" in pair:
        return _type_beside_string((pair - {"string"}).pop())
    if pair == {"date", "timestamp_ntz"}:
        return "timestamp_ntz"
    if pair <= {"date", "timestamp", "timestamp_ntz"}:
        return "timestamp"
    raise Unusable("coercion", f"Spark does not compare {left} with {right}")


def comparison_type(left: str, right: str, *, ansi: bool, in_list: bool = False) -> str:
    """Return the type that Spark compares two types in, with or without ANSI mode.

    Without ANSI mode, Spark casts a text to the type of a number beside it (NULL if it does not fit), and a whole
    number to a float beside it. The values of one list (IN, coalesce) become texts if one is a text.
    """
    pair = {left, right}
    if not ansi and len(pair) == 2 and "void" not in pair:
        casts_text = "string" in pair and (in_list or is_number(left) or is_number(right))
        if casts_text or ("float" in pair and pair & INTEGER_DIGITS.keys()):
            raise Unusable("coercion", f"{left} and {right} are compared in another type without ANSI mode")
    return common_type(left, right)


def list_type(types: Iterable[str], *, ansi: bool) -> str:
    """Return the type of all values of a list (coalesce, branches of CASE); raises as :func:`comparison_type`."""
    return reduce(partial(comparison_type, ansi=ansi, in_list=True), types, "void")


def _common_number(left: str, right: str) -> str:
    if is_integer(left) and is_integer(right):
        return max(left, right, key=INTEGER_DIGITS.__getitem__)
    first, second = exact_digits(left), exact_digits(right)
    if first is None or second is None:
        return "double"  # also for a float beside a whole number or decimal
    scale = max(first[1], second[1])
    return decimal_type(max(first[0] - first[1], second[0] - second[1]) + scale, scale)


def _type_beside_string(name: str) -> str:
    if is_integer(name):
        return "bigint"
    if is_number(name):
        return "double"
    if name in _ATOMIC:
        return name
    raise Unusable("coercion", f"Spark does not compare string with {name}")


def arithmetic_type(operator: str, left: str, right: str) -> str:
    """Return the type of ``left operator right`` of numbers, for ``+``, ``-`` and ``*``, and of decimals for ``/``.

    >>> arithmetic_type("*", "decimal(15,2)", "decimal(16,2)"), arithmetic_type("-", "int", "decimal(15,2)")
    ('decimal(32,4)', 'decimal(16,2)')
    >>> arithmetic_type("/", "decimal(15,2)", "decimal(1,0)")
    'decimal(19,6)'
    """
    first, second = exact_digits(left), exact_digits(right)
    if first is None or second is None or (is_integer(left) and is_integer(right)):
        return _common_number(left, right)
    if operator == "*":
        return decimal_type(first[0] + second[0] + 1, first[1] + second[1])
    if operator == "/":
        scale = max(_MIN_QUOTIENT_PLACES, first[1] + second[0] + 1)
        return decimal_type(first[0] - first[1] + second[1] + scale, scale)
    scale = max(first[1], second[1])
    return decimal_type(max(first[0] - first[1], second[0] - second[1]) + scale + 1, scale)


_DAY_MICROS = 86_400_000_000
# Keys of dates (days) and timestamps (microseconds) that Spark can hold lie within these; a bound beyond is no bound.
_DAY_LIMIT = 1 << 31
_MICRO_LIMIT = 1 << 63
_Interval = tuple[Key | None, Key | None]


def in_set(expr: Expr, values: ValueSet, null: bool, zone: str) -> Node:
    """Return the node for "the expression's value is in the set", on the expression's argument where that is exact.

    ``year(d) = 1994`` holds on exactly one range of dates; minima, maxima and other conditions work with that range.

    Args:
        expr: the expression.
        values: keys of the expression's type.
        null: whether NULL is in the set.
        zone: the session's time zone; a timestamp's date is a range of instants only in UTC.
    """
    while isinstance(expr, Call):
        argument_values = _argument_values(expr, values, zone)
        if argument_values is None:
            break
        expr, values = expr.args[0], argument_values
    node = _as_like(expr, values, null)
    return node if node is not None else conjunction([InSet(expr, values, null)])


def _argument_values(call: Call, values: ValueSet, zone: str) -> ValueSet | None:
    argument = call.args[0] if call.args else None
    if argument is None or isinstance(argument, Const):
        return None
    function = FUNCTIONS.get(call.fn)
    if function is not None and function.first_argument is not None and function.accepts([argument.type]):
        return _map_bounds(values, function.first_argument, _DAY_LIMIT, argument.type)
    if call.fn == "div":
        return _map_bounds(values, partial(_first_divided, call.args[1]), 1 << 63, argument.type)
    if call.fn in _FORMATTED:
        return times_before_text(values, str(_constant_of(call.args[1])), argument.type)
    if is_rounded_double(call):
        first = _first_floored if call.fn == "floor" else _first_ceiled
        numbers = _map_bounds(values, first, NAN_KEY, "double").intersect(ValueSet.interval(None, NAN_KEY))
        # Both functions are 0 for NaN.
        return numbers.union(ValueSet.point(NAN_KEY)) if values.contains(0) else numbers
    if call.fn != "try_cast":
        return None
    if call.type == "double" and is_number(argument.type):
        return _values_before_double(values, argument.type)
    if {argument.type, call.type} == {"timestamp", "timestamp_ntz"} and zone == "UTC":
        return values  # the same count of microseconds
    if argument.type == "date" and _has_utc_midnights(call.type, zone):
        return _map_bounds(values, lambda micros: -(-micros // _DAY_MICROS), _DAY_LIMIT, "date")
    if call.type == "date" and _has_utc_midnights(argument.type, zone):
        return _map_bounds(values, lambda day: day * _DAY_MICROS, _MICRO_LIMIT, argument.type)
    return None


_FORMATTED: Final = frozenset({"date_format", "from_unixtime"})


def is_rounded_double(expr: Expr) -> bool:
    """Return whether the expression is ``floor`` or ``ceil`` of a double, which fails if no bigint holds the value.

    Its value for infinities does not matter: no row of an answer has one.
    """
    return isinstance(expr, Call) and expr.fn in ("floor", "ceil") and expr.args[0].type == "double"


def is_compared_only(expr: Expr) -> bool:
    """Return whether the expression is a call that no filter contains: :func:`in_set` replaces it by its argument."""
    return is_rounded_double(expr) or is_formatted(expr) or (isinstance(expr, Call) and expr.fn == "div")


def is_formatted(expr: Expr) -> bool:
    """Return whether the expression is a time's text, for which :func:`in_set` returns times of far years too."""
    return isinstance(expr, Call) and expr.fn in _FORMATTED


def _constant_of(expr: Expr) -> Key | None:
    assert isinstance(expr, Const), "only calls with a constant are built"
    return expr.value


def _first_divided(divisor: Expr, quotient: int) -> int:
    """Return the smallest whole number whose quotient by a positive one, cut to a whole one, is at least a number.

    >>> [_first_divided(Const(10, "bigint"), quotient) for quotient in (2, 1, 0, -1)]
    [20, 10, -9, -19]
    """
    number = _constant_of(divisor)
    assert isinstance(number, int), "only calls with a whole number are built"
    return quotient * number - (number - 1 if quotient <= 0 else 0)


def fails_unless_replaced(expr: Expr) -> bool:
    """Return whether the expression contains a :func:`is_compared_only` call that :func:`in_set` does not replace."""
    if not isinstance(expr, Call) or is_compared_only(expr):
        return False
    return any(is_compared_only(arg) or fails_unless_replaced(arg) for arg in expr.args)


def _first_floored(number: int) -> int:
    """Return the key of the smallest double that is at least a whole number.

    >>> from layoutopt.model.values.keys import key_to_float
    >>> [key_to_float(_first_floored(n)) for n in (3, 2**53 + 1)]
    [3.0, 9007199254740994.0]
    """
    nearest = float(number)
    return float_key(nearest if int(nearest) >= number else nextafter(nearest, inf))


def _first_ceiled(number: int) -> int:
    """Return the key of the smallest double that is greater than ``number - 1``.

    >>> from layoutopt.model.values.keys import key_to_float
    >>> key_to_float(_first_ceiled(1)) == 5e-324
    True
    """
    nearest = float(number - 1)
    return float_key(nearest if int(nearest) <= number - 1 else nextafter(nearest, -inf)) + 1


def _values_before_double(values: ValueSet, kind: str) -> ValueSet:
    """Return the numbers whose doubles are in a set: the cast never decreases, and gives no number NULL.

    >>> _values_before_double(ValueSet.point(float_key(5.0)), "decimal(5,2)").intervals
    ((500, 501),)
    """
    digits = exact_digits(kind)
    if digits is None:
        return ValueSet.normalised(values.intervals, kind)  # floats have the keys of their doubles
    unit = 10 ** digits[1]
    low, high = domain(kind)
    assert isinstance(low, int), "numbers have a smallest key"
    assert isinstance(high, int), "numbers have a largest key"
    keys = range(low, high + 1)

    def first(double: int) -> int:
        return first_key(keys, lambda key: float_key(key / unit) >= double)

    return _map_bounds(values, first, high + 1, kind)


def _has_utc_midnights(kind: str, zone: str) -> bool:
    return kind == "timestamp_ntz" or (kind == "timestamp" and zone == "UTC")


def _map_bounds(values: ValueSet, start: Callable[[int], int], limit: int, kind: str) -> ValueSet:
    """Map each interval's bounds to the smallest argument that reaches them; the function must not decrease."""
    intervals: list[_Interval] = []
    for low, high in values.intervals:
        first = start(low) if isinstance(low, int) else None
        last = start(high) if isinstance(high, int) else None
        if (first is not None and first >= limit) or (last is not None and last <= -limit):
            continue
        intervals.append(
            (None if first is None or first <= -limit else first, None if last is None or last >= limit else last)
        )
    return ValueSet.normalised(tuple(intervals), kind)


def _as_like(expr: Expr, values: ValueSet, null: bool) -> Node | None:
    """Return ``instr(s, 'x') > 0`` as ``s LIKE '%x%'``; None for everything else."""
    if null or not isinstance(expr, Call) or expr.fn != "instr":
        return None
    text, part = expr.args
    if not isinstance(part, Const) or not isinstance(part.value, str) or not part.value:
        return None
    positions = values.intersect(ValueSet.interval(0, None))
    if positions not in (ValueSet.interval(1, None), ValueSet.point(0)):
        return None
    return like(text, (ANY_STRING, part.value, ANY_STRING), negated=positions == ValueSet.point(0))


_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::(\d{2}))?", re.ASCII)
_FIXED: Final = frozenset({"UTC", "GMT", "UT", "Z", "Etc/UTC"})
# Names of one zone without offsets, whatever the machine's clock settings are.
_UTC_NAMES: Final = frozenset(
    {"UTC", "Etc/UTC", "Z", "GMT", "Etc/GMT", "UCT", "Etc/UCT", "Zulu", "Etc/Zulu", "Universal", "Etc/Universal"}
)
# Java's and Python's time zone databases agree from this year on. For earlier years their builds merge zones, and keep
# clocks of before 1970, differently: a hundred zones differ, the latest one (WET) in 1995.
_AGREED_FROM: Final = dt.datetime(2000, 1, 1)


def normal_zone(name: str) -> str:
    """Return the one name of a time zone: all names of UTC become ``UTC``.

    >>> normal_zone("Etc/UTC"), normal_zone("Asia/Tokyo")
    ('UTC', 'Asia/Tokyo')
    """
    return "UTC" if name in _UTC_NAMES else name


def zone_of(name: str) -> dt.tzinfo:
    """Return the time zone of a name: a region, or an offset in Spark's spelling.

    >>> zone_of("+08:00") == zone_of("GMT+8") == dt.timezone(dt.timedelta(hours=8))
    True
    """
    if name in _FIXED:
        return dt.UTC
    offset = _OFFSET.fullmatch(name)
    try:
        if offset is None:
            return ZoneInfo(name)
        ahead = dt.timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        return dt.timezone(ahead if offset[1] == "+" else -ahead)
    except (KeyError, OSError, ValueError) as error:
        raise Unusable("inexact", f"unknown time zone {name!r}") from error


def has_agreed_offset(local: dt.datetime, zone: dt.tzinfo) -> bool:
    """Return whether Java's and Python's databases agree on a zone's offset at a local time."""
    return isinstance(zone, dt.timezone) or local >= _AGREED_FROM


Value = int | bool | float | Decimal | str | bytes | dt.date | dt.datetime

# Decimal arithmetic that rounds nothing: Python's own context keeps 28 digits, Spark's decimals have up to 38.
EXACT = Context(prec=200)
_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_TIMESTAMP = re.compile(
    r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?)?)?)?", re.ASCII
)
# Offsets as two numbers each; Spark's own limit is 18 hours.
_LITERAL_ZONE = re.compile(r"(?<=[\d])\s?(Z|UTC|GMT|[+-](?:0\d|1[0-7]):[0-5]\d)$", re.ASCII)
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
    """Return a constant cast as Spark does in ANSI mode; timestamps without a zone are in the session's."""
    value = constant.value
    if value is None or constant.type == to:
        return TypedConstant(value, to)
    cast = _cast(value, constant.type, to, zone)
    if cast is None:
        raise Unusable("inexact", f"can't cast {value!r} exactly from {constant.type} to {to}")
    return TypedConstant(cast, to)


def _cast(value: Value, source: str, to: str, zone: str) -> Value | None:
    if isinstance(value, str) and source == "string":
        return _cast_string(value, to, zone)
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
        return _to_instant(dt.datetime(value.year, value.month, value.day), to, zone)
    return None


def _cast_timestamp(value: dt.datetime, to: str, zone: str) -> Value | None:
    local = value
    if value.tzinfo:
        clocks = zone_of(zone)
        local = value.astimezone(clocks).replace(tzinfo=None)
        if not has_agreed_offset(local, clocks):
            return None
    return local.date() if to == "date" else _to_instant(local, to, zone)


def _to_instant(local: dt.datetime, to: str, zone: str) -> dt.datetime | None:
    if to == "timestamp_ntz":
        return local
    if to != "timestamp":
        return None
    clocks = zone_of(zone)
    if not has_agreed_offset(local, clocks):
        return None
    # fold=0: in an overlap the earlier instant, in a gap the time moved forward, as java.time does
    try:
        return local.replace(tzinfo=clocks).astimezone(dt.UTC)
    except OverflowError:
        return None


def _cast_number(value: int | float | Decimal, to: str) -> Value | None:
    if to == "string":
        return str(value) if isinstance(value, int) else None  # Spark formats fractions differently
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
    # Spark goes through double or text here. Rounding twice may differ, so only exact results are taken.
    double = _to_double(value)
    single = None if double is None else _to_float(double)
    return single if single is not None and Decimal(single) == value else None


def _to_decimal(value: Decimal, precision: int, scale: int) -> Decimal | None:
    try:
        rounded = value.quantize(Decimal(1).scaleb(-scale), rounding=ROUND_HALF_UP, context=EXACT)
    except InvalidOperation:
        return None
    return rounded if abs(rounded) < Decimal(10) ** (precision - scale) else None


def _cast_string(raw: str, to: str, zone: str) -> Value | None:
    text = raw.strip(" \t\n\r")
    if to == "binary":
        return raw.encode()
    if to == "boolean":
        folded = text.casefold()
        return True if folded in _TRUE else False if folded in _FALSE else None
    if to in INTEGER_BITS:
        return _to_integer(int(text), INTEGER_BITS[to]) if _INTEGER.fullmatch(text) else None
    if to in ("double", "float"):
        if not _NUMBER.fullmatch(text):
            return None
        return float(text) if to == "double" else _to_float(Decimal(text))
    if to == "date":
        return _string_to_date(text)
    if to in ("timestamp", "timestamp_ntz"):
        return _string_to_timestamp(text, to, zone)
    size = decimal_digits(to)
    return _to_decimal(Decimal(text), *size) if size and _NUMBER.fullmatch(text) else None


def _string_to_date(text: str) -> dt.date | None:
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    try:
        return dt.date(int(match[1]), int(match[2] or 1), int(match[3] or 1))
    except ValueError:
        return None


def _string_to_timestamp(text: str, to: str, zone: str) -> dt.datetime | None:
    offset = _LITERAL_ZONE.search(text)
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
    return _to_instant(local, to, offset[1] if offset else zone)


def constant_result(type_name: str, operator: str, constant: TypedConstant) -> bool | None:
    """Return the result of comparing whole numbers with a decimal beyond BIGINT; None if it depends on the number.

    Spark's analyser replaces ``b < 9223372036854775808`` by TRUE and ``b >= 9223372036854775808`` by FALSE for every
    row, even where ``b`` is NULL. It does so for literals, not for constants that are computed, cast or have a plus
    sign; the parser does not distinguish all of these.

    >>> constant_result("int", "<", TypedConstant(Decimal(2**63), "decimal(19,0)"))
    True
    >>> constant_result("int", ">", TypedConstant(Decimal("9223372036854775807.5"), "decimal(20,1)"))
    False
    >>> constant_result("bigint", "=", TypedConstant(Decimal(2**63), "decimal(19,0)")) is None
    True
    """
    value = constant.value
    if not is_integer(type_name) or operator not in ("<", "<=", ">", ">=") or not isinstance(value, Decimal):
        return None
    return None if -(1 << 63) <= value <= (1 << 63) - 1 else (value > 0) == (operator in ("<", "<="))
