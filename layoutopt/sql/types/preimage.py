"""Sets of a function's values as sets of its argument's values, where that is exact.

``year(d) = 1994`` holds on exactly one range of dates; a condition on the column itself is one that min/max
statistics and other conditions on the column can work with.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nextafter

from layoutopt.model.predicates import ANY_STRING, Call, Const, Expr, InSet, Node, conjunction, like
from layoutopt.model.values import NAN_KEY, Key, ValueSet
from layoutopt.model.values.comparing import first_key
from layoutopt.model.values.keys import domain, float_key
from layoutopt.sql.types.rules import exact_digits, is_number

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
