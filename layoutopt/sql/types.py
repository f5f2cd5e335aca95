"""What Spark's types, literals and arithmetic mean, decided before any row is seen."""

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

from layoutopt.model.predicates import ANY_STRING, Call, Const, Expr, InSet, Node, conjunction, like
from layoutopt.model.types import INTEGER_BITS, decimal_digits, whole_type
from layoutopt.model.values import NAN_KEY, Key, ValueSet
from layoutopt.model.values.keys import domain, float_key
from layoutopt.model.values.value_sets import first_key
from layoutopt.sql.problems import Unusable

# ----------------------------------------------------------------------------------------------------
# Which types Spark 4 gives expressions and compares values in, by the names of types.
#
# The rules are those of Spark's ``AnsiTypeCoercion`` and ``DecimalPrecision``. Where Spark refuses, or would round
# since
# a decimal needs more than 38 digits, they raise :class:`Unusable`.

INTEGER_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
"""The types of whole numbers, narrowest first, with the precision of the decimal that Spark takes them as."""
_ALIASES = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint", "timestamp_ltz": "timestamp"}
_ATOMIC = frozenset({"boolean", "binary", "date", "timestamp", "timestamp_ntz"})
_MAX_PRECISION = 38
_QUOTIENT_PLACES = 6  # at least


def normal_type(name: str) -> str:
    """One name for each type: ``integer`` is ``int``, ``varchar(n)`` is compared as ``string``.

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
    """Precision and scale of a decimal, or of the decimal that a type of whole numbers is taken as; None for others.

    >>> exact_digits("decimal(15,2)"), exact_digits("int"), exact_digits("date")
    ((15, 2), (10, 0), None)
    """
    return (INTEGER_DIGITS[name], 0) if name in INTEGER_DIGITS else decimal_digits(name)


def is_integer(name: str) -> bool:
    """Whether values are whole numbers: tinyint, smallint, int or bigint."""
    return name in INTEGER_DIGITS


def is_floating(name: str) -> bool:
    """Float or double."""
    return name in ("float", "double")


def is_number(name: str) -> bool:
    """Whole numbers, decimals, float or double."""
    return is_floating(name) or exact_digits(name) is not None


def number_type(text: str) -> str:
    """The type of a number written as ``text``: int, bigint or decimal; with an exponent, double.

    >>> number_type("5"), number_type("3000000000"), number_type("0.05"), number_type("12.5"), number_type("1e3")
    ('int', 'bigint', 'decimal(2,2)', 'decimal(3,1)', 'double')
    >>> number_type("2147483648"), number_type("-2147483648")
    ('bigint', 'int')

    Raises:
        Unusable: ``coercion``: more than 38 digits.
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
    """The decimal type of that size.

    Raises:
        Unusable: ``coercion``: more than 38 digits, where Spark drops some.
    """
    if precision > _MAX_PRECISION:
        raise Unusable("coercion", f"decimal({precision},{scale}) has more digits than Spark keeps")
    return f"decimal({precision},{scale})"


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
    if is_number(left) and is_number(right):
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
        texts = "string" in pair and (listed or is_number(left) or is_number(right))
        if texts or ("float" in pair and pair & INTEGER_DIGITS.keys()):
            raise Unusable("coercion", f"{left} and {right} meet in another type without ANSI mode")
    return common_type(left, right)


def listed_type(types: Iterable[str], *, ansi: bool) -> str:
    """The type that all values of a list (coalesce, the branches of CASE) have; raises as :func:`compared_type`."""
    return reduce(partial(compared_type, ansi=ansi, listed=True), types, "void")


def _common_number(left: str, right: str) -> str:
    if is_integer(left) and is_integer(right):
        return max(left, right, key=INTEGER_DIGITS.__getitem__)
    first, second = exact_digits(left), exact_digits(right)
    if first is None or second is None:
        return "double"  # Spark takes float with an integral or decimal as double
    scale = max(first[1], second[1])
    return decimal_type(max(first[0] - first[1], second[0] - second[1]) + scale, scale)


def _promoted_string(other: str) -> str:
    if is_integer(other):
        return "bigint"
    if is_number(other):
        return "double"
    if other in _ATOMIC:
        return other
    raise Unusable("coercion", f"Spark does not compare string with {other}")


def arithmetic_type(operator: str, left: str, right: str) -> str:
    """The type of ``left operator right`` of two numbers, for ``+``, ``-`` and ``*``, and of a decimal for ``/``.

    >>> arithmetic_type("*", "decimal(15,2)", "decimal(16,2)"), arithmetic_type("-", "int", "decimal(15,2)")
    ('decimal(32,4)', 'decimal(16,2)')
    >>> arithmetic_type("/", "decimal(15,2)", "decimal(1,0)")
    'decimal(19,6)'

    Raises:
        Unusable: ``coercion``: a decimal would lose digits.
    """
    first, second = exact_digits(left), exact_digits(right)
    if first is None or second is None or (is_integer(left) and is_integer(right)):
        return _common_number(left, right)
    if operator == "*":
        return decimal_type(first[0] + second[0] + 1, first[1] + second[1])
    if operator == "/":
        scale = max(_QUOTIENT_PLACES, first[1] + second[0] + 1)
        return decimal_type(first[0] - first[1] + second[1] + scale, scale)
    scale = max(first[1], second[1])
    return decimal_type(max(first[0] - first[1], second[0] - second[1]) + scale + 1, scale)


# ----------------------------------------------------------------------------------------------------
# Sets of a function's values as sets of its argument's values, where that is exact.
#
# ``year(d) = 1994`` holds on exactly one range of dates; a condition on the column itself is one that min/max
# statistics and other conditions on the column can work with.

_DAY_MICROS = 86_400_000_000
# Values beyond these are no dates or timestamps that Spark can hold: a bound there is no bound.
_DAY_LIMIT = 1 << 31
_MICRO_LIMIT = 1 << 63
_Interval = tuple[Key | None, Key | None]


def in_set(expr: Expr, values: ValueSet, null: bool, zone: str) -> Node:
    """The node for "the expression's value is one of these, or NULL where ``null``", on the column where possible.

    Args:
        expr: the expression.
        values: keys of the expression's type.
        null: whether NULL is in the set.
        zone: the session's time zone; a timestamp's date is a range of instants only in UTC.
    """
    while isinstance(expr, Call):
        shifted = _argument_values(expr, values, zone)
        if shifted is None:
            break
        expr, values = expr.args[0], shifted
    found = _as_like(expr, values, null)
    return found if found is not None else conjunction([InSet(expr, values, null)])


def _argument_values(call: Call, values: ValueSet, zone: str) -> ValueSet | None:
    argument = call.args[0] if call.args else None
    if argument is None or isinstance(argument, Const):
        return None
    if call.fn == "year" and argument.type == "date":
        return _mapped(values, _first_day, _DAY_LIMIT, "date")
    if is_whole_of_double(call):
        first = _first_floored if call.fn == "floor" else _first_ceiled
        numbers = _mapped(values, first, NAN_KEY, "double").intersect(ValueSet.interval(None, NAN_KEY))
        # Of NaN both are 0.
        return numbers.union(ValueSet.point(NAN_KEY)) if values.contains(0) else numbers
    if call.fn == "try_cast" and call.type == "double" and is_number(argument.type):
        return _before_double(values, argument.type)
    if call.fn == "try_cast" and {argument.type, call.type} == {"timestamp", "timestamp_ntz"} and zone == "UTC":
        return values  # the same count of microseconds
    if call.fn == "try_cast" and argument.type == "date" and _zoneless(call.type, zone):
        return _mapped(values, lambda moment: -(-moment // _DAY_MICROS), _DAY_LIMIT, "date")
    if call.fn == "try_cast" and call.type == "date" and _zoneless(argument.type, zone):
        return _mapped(values, lambda day: day * _DAY_MICROS, _MICRO_LIMIT, argument.type)
    return None


def is_whole_of_double(expr: Expr) -> bool:
    """Whether the expression is ``floor`` or ``ceil`` of a double, which fails where no bigint holds the value.

    What it is of infinities is then nobody's concern: no row of an answer has one.
    """
    return isinstance(expr, Call) and expr.fn in ("floor", "ceil") and expr.args[0].type == "double"


def fails_unless_replaced(expr: Expr) -> bool:
    """Whether such a call stands within the expression, where :func:`in_set` does not replace it."""
    if not isinstance(expr, Call) or is_whole_of_double(expr):
        return False
    return any(is_whole_of_double(arg) or fails_unless_replaced(arg) for arg in expr.args)


def _first_floored(number: int) -> int:
    """The key of the smallest double that is no smaller than a whole number.

    >>> from layoutopt.model.values.keys import key_to_float
    >>> [key_to_float(_first_floored(n)) for n in (3, 2**53 + 1)]
    [3.0, 9007199254740994.0]
    """
    nearest = float(number)
    return float_key(nearest if int(nearest) >= number else nextafter(nearest, inf))


def _first_ceiled(number: int) -> int:
    """The key of the smallest double that is greater than the whole number before this one.

    >>> from layoutopt.model.values.keys import key_to_float
    >>> key_to_float(_first_ceiled(1)) == 5e-324
    True
    """
    nearest = float(number - 1)
    return float_key(nearest if int(nearest) <= number - 1 else nextafter(nearest, -inf)) + 1


def _before_double(values: ValueSet, kind: str) -> ValueSet:
    """The numbers whose doubles are in a set: the cast never decreases, and gives no number NULL.

    >>> _before_double(ValueSet.point(float_key(5.0)), "decimal(5,2)").intervals
    ((500, 501),)
    """
    digits = exact_digits(kind)
    if digits is None:
        return ValueSet.normalised(values.intervals, kind)  # floats have the keys of their doubles
    unit, low = 10 ** digits[1], domain(kind)[0]
    assert isinstance(low, int), "numbers have a smallest"
    high = domain(kind)[1]
    assert isinstance(high, int), "and a largest"
    keys = range(low, high + 1)

    def first(double: int) -> int:
        return first_key(keys, lambda key: float_key(key / unit) >= double)

    return _mapped(values, first, high + 1, kind)


def _zoneless(kind: str, zone: str) -> bool:
    """Whether local midnights are whole multiples of a day in this type."""
    return kind == "timestamp_ntz" or (kind == "timestamp" and zone == "UTC")


def _mapped(values: ValueSet, start: Callable[[int], int], limit: int, kind: str) -> ValueSet:
    """Each interval's bounds taken to the smallest argument that reaches them; the function must not decrease."""
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


def _first_day(year: int) -> int:
    """Days from 1970-01-01 to the first of January of a year of the proleptic Gregorian calendar.

    >>> _first_day(1970), _first_day(1971), _first_day(0)
    (0, 365, -719528)
    """
    before = year - 1
    return before * 365 + before // 4 - before // 100 + before // 400 - 719162


def _as_like(expr: Expr, values: ValueSet, null: bool) -> Node | None:
    """``instr(s, 'x') > 0`` as ``s LIKE '%x%'``; None for everything else."""
    if null or not isinstance(expr, Call) or expr.fn != "instr":
        return None
    text, sought = expr.args
    if not isinstance(sought, Const) or not isinstance(sought.value, str) or not sought.value:
        return None
    positive = ValueSet.interval(1, None)
    holds = values.intersect(ValueSet.interval(0, None))
    if holds == positive:
        return like(text, (ANY_STRING, sought.value, ANY_STRING))
    if holds == ValueSet.point(0):
        return like(text, (ANY_STRING, sought.value, ANY_STRING), negated=True)
    return None


# ----------------------------------------------------------------------------------------------------
# Time zones by Spark's names, as far as Java's and Python's databases surely agree on what clocks showed.

_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::(\d{2}))?", re.ASCII)
_FIXED: Final = frozenset({"UTC", "GMT", "UT", "Z", "Etc/UTC"})
_UTC_NAMES: Final = frozenset(
    {"UTC", "Etc/UTC", "Z", "GMT", "Etc/GMT", "UCT", "Etc/UCT", "Zulu", "Etc/Zulu", "Universal", "Etc/Universal"}
)
"""Names of one zone without offsets, whatever a machine's clock settings call it."""
_AGREED_FROM: Final = dt.datetime(2000, 1, 1)
"""Of earlier years releases of the database tell a hundred zones otherwise (the latest: WET in 1995): which zones were
merged, and which clocks of before 1970 are kept, is a choice of who builds it."""


def normal_zone(name: str) -> str:
    """Return one name for each zone: the many names of UTC are ``UTC``.

    >>> normal_zone("Etc/UTC"), normal_zone("Asia/Tokyo")
    ('UTC', 'Asia/Tokyo')
    """
    return "UTC" if name in _UTC_NAMES else name


def zone_of(name: str) -> dt.tzinfo:
    """The zone of a session's name: a region, or an offset as Spark writes them.

    Raises:
        Unusable: ``inexact``: it is not known here, as Java's short names are.

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
        raise Unusable("inexact", f"the clocks of the time zone {name!r} are not known here") from error


def is_agreed(local: dt.datetime, zone: dt.tzinfo) -> bool:
    """Whether every database says the same of a zone's clocks at a time without zone: fixed offsets, and of late."""
    return isinstance(zone, dt.timezone) or local >= _AGREED_FROM


# ----------------------------------------------------------------------------------------------------
# Constants cast exactly as Spark 4 casts them with ANSI on; a cast whose result is not surely known is refused.

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
