"""Bounds of functions from bounds of their arguments: falsifiable expressions (Edara 2021, 5.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final

import numpy as np

from layoutopt.model.arrays import Ints, Keys
from layoutopt.model.predicates import Call, Col, Const, Expr, InSet
from layoutopt.model.types import INTEGER_BITS, decimal_digits
from layoutopt.model.values import ValueSet, key_kind
from layoutopt.skipping.block_statistics import UNKNOWN_NULLS, BlockStatistics, ColumnBounds
from layoutopt.skipping.derived_arithmetic import (
    absolute,
    added,
    cast_number,
    divide_decimals,
    divided,
    exact,
    floored,
    multiplied,
    remainder,
    rounded,
    square_root,
    subtracted,
)
from layoutopt.skipping.ranges import FLOATS, Range, has_int_keys, limits

# ----------------------------------------------------------------------------------------------------
# Ranges of functions of dates and timestamps.
#
# What depends on the session's time zone is taken over all zones: local time and UTC differ by less than a day, and two
# moments' differences by less than two.

DAY: Final = 86_400_000_000
"""A day in microseconds."""
_DAYS_OF: Final[Mapping[str, int]] = MappingProxyType(
    {"YEAR": 366, "YYYY": 366, "YY": 366, "QUARTER": 92, "MONTH": 31, "MM": 31, "MON": 31, "WEEK": 7, "DAY": 1, "DD": 1}
)
_SHORTER: Final = frozenset({"HOUR", "MINUTE", "SECOND"})
_MONTHS_OF: Final[Mapping[str, int]] = MappingProxyType(
    {"YEAR": 12, "YYYY": 12, "YY": 12, "QUARTER": 3, "MONTH": 1, "MM": 1, "MON": 1}
)
_MONDAY: Final = 4  # 1970-01-05


def truncated_date(a: Range, unit: str) -> Range | None:
    """``trunc(date, unit)``: the first day of the unit, which keeps order."""
    if unit == "WEEK":
        low, high = ((days - _MONDAY) // 7 * 7 + _MONDAY for days in (a.low, a.high))
    elif unit in _MONTHS_OF:
        low, high = (_first_days(_months(days) // _MONTHS_OF[unit] * _MONTHS_OF[unit]) for days in (a.low, a.high))
    else:
        return None
    return Range(low, high, a.known, "date")


def truncated_timestamp(a: Range, unit: str) -> Range | None:
    """``date_trunc(unit, timestamp)``: back by less than the unit, and by what the zone's offset changed meanwhile."""
    days = _DAYS_OF.get(unit, 1 if unit in _SHORTER else None)
    if days is None:
        return None
    return _widened(a, (days + 2) * DAY, 2 * DAY, "timestamp")


def last_day(a: Range) -> Range | None:
    """The last day of the month, which keeps order."""
    low, high = (_first_days(_months(days) + 1) - 1 for days in (a.low, a.high))
    return Range(low, high, a.known, "date")


def months_later(days: Ints, months: int) -> Ints:
    """Days since 1970-01-01 moved by months, to the last day of a month that is shorter; this keeps order."""
    month = _months(days)
    place = days - _first_days(month)
    return np.minimum(_first_days(month + months) + place, _first_days(month + months + 1) - 1)


def date_part(a: Range, fn: str) -> Range | None:
    """``year``, ``month``, ``day`` and the like of a date: in order while all that is larger stays the same."""
    if fn in _ALWAYS:
        return constant_range(*_ALWAYS[fn], a)
    parts = [_parts(days) for days in (a.low, a.high)]
    low, high = parts[0][fn], parts[1][fn]
    same = np.ones(len(a.low), np.bool_)
    for larger in _WITHIN[fn]:
        same &= parts[0][larger] == parts[1][larger]
    least, most = _PARTS[fn]
    return Range(np.where(same, low, least), np.where(same, high, most), a.known, "int")


def clock_part(a: Range, fn: str) -> Range | None:
    """``hour``, ``minute`` and ``second``: as much as a clock shows."""
    return constant_range(0, 23 if fn == "hour" else 59, a)


def days_between(a: Range, b: Range) -> Range | None:
    """``datediff(a, b)``; nothing is claimed where the difference might not fit an int."""
    low, high = a.low - b.high, a.high - b.low
    smallest, largest = limits("int")
    return Range(low, high, a.known & b.known & (low >= smallest) & (high <= largest), "int")


def cast_time(a: Range, type: str) -> Range | None:
    """A cast between dates and timestamps."""
    match a.type, type:
        case "date", "timestamp_ntz":
            return _in_microseconds(a, 0, type)
        case "date", "timestamp":
            return _in_microseconds(a, DAY, type)
        case "timestamp_ntz", "date":
            return Range(a.low // DAY, a.high // DAY, a.known, type)
        case "timestamp", "date":
            return Range(a.low // DAY - 1, a.high // DAY + 1, a.known, type)
        case ("timestamp", "timestamp_ntz") | ("timestamp_ntz", "timestamp"):
            return _widened(a, DAY, DAY, type)
    return None


def constant_range(low: int, high: int, of: Range) -> Range:
    """The same range of ints in every block."""
    return Range(np.full(len(of.low), low), np.full(len(of.low), high), np.ones_like(of.known), "int")


def _in_microseconds(a: Range, margin: int, type: str) -> Range:
    most = limits("bigint")[1] // DAY - 2
    inside = (a.low > -most) & (a.high < most)
    low, high = np.where(inside, a.low, 0) * DAY - margin, np.where(inside, a.high, 0) * DAY + margin
    return Range(low, high, a.known & inside, type)


def _widened(a: Range, below: int, above: int, type: str) -> Range:
    smallest, largest = limits("bigint")
    low = np.maximum(a.low, smallest + below) - below
    return Range(low, np.minimum(a.high, largest - above) + above, a.known, type)


def _months(days: Ints) -> Ints:
    """Months since 1970-01 of days since 1970-01-01."""
    return days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)


def _first_days(months: Ints) -> Ints:
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _parts(days: Ints) -> dict[str, Ints]:
    months = _months(days)
    year, month = months // 12 + 1970, months % 12 + 1
    return {
        "year": year,
        "quarter": (month + 2) // 3,
        "month": month,
        "day": days - _first_days(months) + 1,
        "dayofyear": days - _first_days(months // 12 * 12) + 1,
    }


_PARTS: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {"year": limits("int"), "quarter": (1, 4), "month": (1, 12), "day": (1, 31), "dayofyear": (1, 366)}
)
_WITHIN: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"year": (), "quarter": ("year",), "month": ("year",), "day": ("year", "month"), "dayofyear": ("year",)}
)
_ALWAYS: Final[Mapping[str, tuple[int, int]]] = MappingProxyType({"weekofyear": (1, 53), "dayofweek": (1, 7)})


# ----------------------------------------------------------------------------------------------------
# Ranges of dates and times moved by a constant: by days, months, or an interval.
#
# In a zone's local time a day has 22 to 26 hours, and on one side of a change of zones some moments are left out: a
# timestamp that is moved by days or months is off from the same in UTC by less than two days, in whichever zone.

_CLOCK: Final = (DAY, DAY // 24, DAY // 1440, DAY // 86_400)
_INTERVALS: Final = frozenset({"make_dt_interval", "make_ym_interval"})
_SAFE: Final = 2.0**62
_MOST: Final = 1 << 31


def is_interval(expr: Expr) -> bool:
    """Whether an expression is an interval that stands in the text."""
    return isinstance(expr, Call) and expr.fn in _INTERVALS and not expr.columns


def by_days(call: Call, a: Range) -> Range | None:
    """``date_add(a, n)``; Spark's days wrap around, so at the ends nothing is claimed."""
    days, (least, most) = _numbers(call.args[1:]), limits("date")
    if days is None or len(days) != 1 or a.type != "date":
        return None
    low, high = a.low + days[0], a.high + days[0]
    return Range(low, high, a.known & (low >= least) & (high <= most), "date")


def by_interval(call: Call, a: Range) -> Range | None:
    """``try_add(a, interval)``: NULL beyond the calendar."""
    step = call.args[1] if len(call.args) == 2 else None
    numbers = _numbers(step.args) if isinstance(step, Call) and is_interval(step) else None
    if not isinstance(step, Call) or numbers is None or a.type != call.type:
        return None
    if step.fn == "make_ym_interval":
        if len(numbers) != 2:
            return None
        months = 12 * numbers[0] + numbers[1]
        if a.type == "date":
            return Range(months_later(a.low, months), months_later(a.high, months), a.known, a.type)
        shortest, longest = sorted((28 * months * DAY, 31 * months * DAY))
        return _within(a, shortest - 2 * DAY, longest + 2 * DAY)
    if a.type == "date" or len(numbers) > len(_CLOCK):
        return None
    shift = sum(number * unit for number, unit in zip(numbers, _CLOCK, strict=False))
    margin = 2 * DAY if a.type == "timestamp" and abs(shift) >= DAY else 0  # 24 hours are a day to Spark
    return _within(a, shift - margin, shift + margin)


def _within(a: Range, below: int, above: int) -> Range:
    fits = (np.abs(a.low + float(below)) < _SAFE) & (np.abs(a.high + float(above)) < _SAFE)
    low, high = np.where(fits, a.low, 0) + below, np.where(fits, a.high, 0) + above
    return Range(low, high, a.known & fits, a.type)


def _numbers(args: Sequence[Expr]) -> list[int] | None:
    found = [arg.value for arg in args if isinstance(arg, Const) and isinstance(arg.value, int)]
    return found if len(found) == len(args) and all(abs(number) < _MOST for number in found) else None


# ----------------------------------------------------------------------------------------------------
# Ranges of functions of texts that keep their order, and what regular expressions say of beginnings.

_REPEATED_FROM_NONE: Final = "*?{"
_SPECIAL: Final = ".^$+()[]\\}"


def beginning(a: Range, length: int) -> Range:
    """The first characters of a text; of texts in order they are in order."""
    kept = max(length, 0)
    return _mapped(a, lambda text: text[:kept])


def preceded(text: str, a: Range) -> Range:
    """A constant text with another behind it."""
    return _mapped(a, lambda other: text + other)


def substring_length(args: tuple[Expr, ...]) -> int | None:
    """How many characters ``substring(text, start, length)`` takes from the beginning; None where it takes others."""
    places = [arg.value if isinstance(arg, Const) else None for arg in args[1:]]
    if not places or places[0] not in (0, 1) or not all(isinstance(place, int) for place in places):
        return None
    # Place 0 is the first character too.
    return int(places[1]) if len(places) > 1 and places[1] is not None else 2**31 - 1


def implied_beginning(literal: InSet) -> InSet | None:
    """What follows from ``text RLIKE '^beginning...'`` being TRUE: the text begins so; None for any other literal."""
    call = literal.subject
    if not isinstance(call, Call) or call.fn != "rlike" or len(call.args) != 2:
        return None
    if literal.null or literal.values != ValueSet.point(1):
        return None
    text, pattern = call.args
    if not isinstance(pattern, Const) or not isinstance(pattern.value, str) or text.type != "string":
        return None
    found = regex_beginning(pattern.value)
    return InSet(text, ValueSet.prefix(found)) if found else None


def regex_beginning(pattern: str) -> str:
    """The letters that every text begins with in which a regular expression of Java's is found; none where unsure.

    >>> regex_beginning("^ab+c.*"), regex_beginning("^abc?"), regex_beginning("^ab|c"), regex_beginning("ab")
    ('ab', 'ab', '', '')
    """
    if not pattern.startswith("^") or "|" in pattern:
        return ""
    found = ""
    for letter in pattern[1:]:
        if letter in _REPEATED_FROM_NONE:
            return found[:-1]
        if letter in _SPECIAL:
            return found
        found += letter
    return found


def _mapped(a: Range, function: Callable[[str], str]) -> Range:
    return Range(_each(a.low, a, function), _each(a.high, a, function), a.known, "string")


def _each(keys: Keys, a: Range, function: Callable[[str], str]) -> Keys:
    found = np.empty(len(keys), dtype=np.object_)
    found[:] = ""
    found[a.known] = [function(key) for key in keys[a.known]]
    return found


# ----------------------------------------------------------------------------------------------------
# Bounds of a function's values in every block, from bounds of the columns that it reads (Edara 2021, 5.3.6 and 5.3.7).
#
# Soundness: every value of the function that is not NULL has its key between the derived bounds, as for columns; the
# counts of NULLs are exact or unknown. So the rules for columns (:mod:`layoutopt.skipping.zone_maps`) hold for
# functions
# as they stand. A function that is not in :data:`FUNCTIONS`, or an argument without bounds, has none.
#
# Functions are those of filters, which fail on no row: a value that can't be computed is NULL, which no literal is TRUE
# of but IS NULL.

Rule = Callable[[Call, Sequence[Range]], Range | None]
_DEEPEST: Final = 16
_INT_MOST: Final = limits("int")[1]
# Derived bounds of so many functions are kept.
_MOST_KEPT: Final = 32


@dataclass(frozen=True)
class Function:
    """What is known of a function.

    Attributes:
        rule: the range of its values, from those of its arguments; None where nothing is known.
        takes: of what kind each argument is, by :data:`_KINDS`; of a call with others, which only a damaged document
            has, nothing is known. None: the rule looks at none.
        total: whether it is NULL only where an argument is.
        optional: how many of the last arguments may be left out.
    """

    rule: Rule
    takes: tuple[str, ...] | None = None
    total: bool = False
    optional: int = 0

    def fits(self, args: Sequence[ColumnBounds]) -> bool:
        """Whether arguments are those that it takes."""
        if self.takes is None:
            return True
        enough = len(self.takes) - self.optional <= len(args) <= len(self.takes)
        return enough and all(_KINDS[kind](arg.type) for kind, arg in zip(self.takes, args, strict=False))


def bounds_of(expr: Expr, statistics: BlockStatistics) -> ColumnBounds | None:
    """What is known of an expression in each block; None where nothing is."""
    if isinstance(expr, Col):
        bounds = statistics.bounds.get(expr.name)
        return bounds if bounds is not None and bounds.type == expr.type else None
    if isinstance(expr, Const) or not expr.columns:
        return None
    kept = statistics.derived
    if expr not in kept:
        if len(kept) >= _MOST_KEPT:
            kept.clear()
        kept[expr] = _derived(expr, statistics, 0)
    return kept[expr]


def _of(expr: Expr, statistics: BlockStatistics, depth: int) -> ColumnBounds | None:
    if isinstance(expr, Const):
        return _constant(expr, statistics.n, statistics.rows)
    return _derived(expr, statistics, depth + 1) if isinstance(expr, Call) else bounds_of(expr, statistics)


def _derived(call: Call, statistics: BlockStatistics, depth: int) -> ColumnBounds | None:
    # A boolean function may be the user's own, whatever it is called.
    function = FUNCTIONS.get(call.fn) if call.type != "boolean" or call.fn == "rlike" else None
    if depth > _DEEPEST or (function is None and call.fn not in _OF_SEVERAL):
        return None
    if call.fn == "try_add" and any(map(is_interval, call.args)):
        function = _BY_INTERVAL
    args = [_of(arg, statistics, depth) for arg in call.args if not is_interval(arg)]
    if function is None:
        return _OF_SEVERAL[call.fn](call, args, statistics)
    known = [arg for arg in args if arg is not None]
    if len(known) < len(args) or not function.fits(known):
        return None
    found = function.rule(call, [_range(arg) for arg in known])
    if found is None:
        return _without_range(call, _nulls(function, known, statistics.rows), statistics.n)
    nulls = _nulls(function, known, statistics.rows)
    usable = found.known & (nulls != statistics.rows)
    return ColumnBounds(found.low, found.high, usable, nulls, call.type)


def _range(of: ColumnBounds) -> Range:
    """Bounds as a range; whatever stands where they are not known becomes harmless."""
    if of.low.dtype == np.int64:
        return Range(np.where(of.known, of.low, 0), np.where(of.known, of.high, 0), of.known, of.type)
    return Range(of.low, of.high, of.known, of.type)


def _nulls(function: Function, args: Sequence[ColumnBounds], rows: Ints) -> Ints:
    """How many values are NULL: all where all of an argument's are, and else what is known of a total function."""
    counts = np.array([arg.nulls for arg in args])
    nulls = np.full(len(rows), UNKNOWN_NULLS, dtype=np.int64)
    if function.total:
        # Of several arguments nobody knows whether they are NULL in the same rows.
        others = np.sort(counts, axis=0)[:-1]
        alone = (counts >= 0).all(axis=0) & (others == 0).all(axis=0)
        nulls[alone] = counts.max(axis=0)[alone]
    only_nulls = (counts == rows).any(axis=0)
    nulls[only_nulls] = rows[only_nulls]
    return nulls


def _without_range(call: Call, nulls: Ints, n: int) -> ColumnBounds:
    zeros = np.zeros(n, dtype=np.int64)
    return ColumnBounds(zeros, zeros, np.zeros(n, dtype=np.bool_), nulls, call.type)


def _constant(const: Const, n: int, rows: Ints) -> ColumnBounds | None:
    if const.value is None:
        return _without_range(Call("null", (), const.type), rows.copy(), n)
    nulls = np.zeros(n, dtype=np.int64)
    ends = np.empty(n, dtype=np.int64 if has_int_keys(const.type) else np.object_)
    ends[:] = const.value
    return ColumnBounds(ends, ends, np.ones(n, dtype=np.bool_), nulls, const.type)


def _coalesced(call: Call, args: Sequence[ColumnBounds | None], statistics: BlockStatistics) -> ColumnBounds | None:
    """The first argument that is not NULL: within the hull of those up to the first that never is."""
    if not args or not has_int_keys(call.type) or any(arg is None or arg.type != call.type for arg in args):
        return None
    rows, n = statistics.rows, statistics.n
    open_, known = np.ones(n, np.bool_), np.ones(n, np.bool_)
    low, high = np.full(n, np.iinfo(np.int64).max), np.full(n, np.iinfo(np.int64).min)
    for arg in args:
        assert arg is not None, "looked at above"
        asked = open_ & (arg.nulls != rows)  # where all of it is NULL it gives nothing
        known &= ~asked | arg.known
        low, high = np.where(asked, np.minimum(low, arg.low), low), np.where(asked, np.maximum(high, arg.high), high)
        open_ = open_ & (arg.nulls != 0)
    counts = np.array([arg.nulls for arg in args if arg is not None])
    nulls = np.where((counts == 0).any(axis=0), 0, UNKNOWN_NULLS)
    nulls = np.where((counts == rows).all(axis=0), rows, nulls)
    return ColumnBounds(low, high, known & (low <= high), nulls.astype(np.int64), call.type)


def _extreme(call: Call, args: Sequence[ColumnBounds | None], statistics: BlockStatistics) -> ColumnBounds | None:
    """``greatest`` or ``least`` of the arguments that are not NULL."""
    if not args or not has_int_keys(call.type) or any(arg is None or arg.type != call.type for arg in args):
        return None
    rows, n, turn = statistics.rows, statistics.n, 1 if call.fn == "greatest" else -1
    # As if of greatest: the keys of least are turned round, and so are its ends.
    given = [arg for arg in args if arg is not None]
    asked = [arg.nulls != rows for arg in given]
    ends = [(arg.low, arg.high) if turn > 0 else (~arg.high, ~arg.low) for arg in given]
    smallest = np.iinfo(np.int64).min
    high = np.max([np.where(some, end, smallest) for some, (_, end) in zip(asked, ends, strict=True)], axis=0)
    hull = np.min([np.where(some, end, ~smallest) for some, (end, _) in zip(asked, ends, strict=True)], axis=0)
    always = [np.where(arg.nulls == 0, end, smallest) for arg, (end, _) in zip(given, ends, strict=True)]
    low = np.maximum(hull, np.max(always, axis=0))
    known = np.logical_and.reduce([~some | arg.known for some, arg in zip(asked, given, strict=True)])
    counts = np.array([arg.nulls for arg in given])
    nulls = np.where((counts == 0).any(axis=0), 0, UNKNOWN_NULLS)
    nulls = np.where((counts == rows).all(axis=0), rows, nulls).astype(np.int64)
    known &= np.logical_or.reduce(asked) & np.ones(n, np.bool_)
    low, high = (low, high) if turn > 0 else (~high, ~low)
    return ColumnBounds(np.where(known, low, 0), np.where(known, high, 0), known, nulls, call.type)


def _arithmetic(of: Callable[[Range, Range, str], Range | None], call: Call, args: Sequence[Range]) -> Range | None:
    if decimal_digits(call.type) is not None:
        if call.fn == "try_divide":
            return divide_decimals(args[0], args[1], call.type)
        sign = _EXACT_SIGNS.get(call.fn)
        return None if sign is None else exact(sign, args[0], args[1], call.type)
    return of(args[0], args[1], call.type) if _KINDS["number"](call.type) else None


def _rounded(call: Call, args: Sequence[Range]) -> Range | None:
    places = call.args[1].value if isinstance(call.args[1], Const) else None
    return rounded(args[0], places, call.type) if isinstance(places, int) and 0 <= places <= 30 else None


def _cast(call: Call, args: Sequence[Range]) -> Range | None:
    (given,) = args
    if given.type == call.type:
        return given
    if {given.type, call.type} <= _TIMES:
        return cast_time(given, call.type)
    if given.type in _TIMES | {"boolean"} or call.type in _TIMES | {"boolean"} or key_kind(given.type) != "int":
        return None
    return cast_number(given, call.type)


def _truncated(place: int, of: Callable[[Range, str], Range | None], call: Call, args: Sequence[Range]) -> Range | None:
    unit = call.args[place]
    known = isinstance(unit, Const) and isinstance(unit.value, str)
    return of(args[1 - place], str(unit.value)) if known and isinstance(unit, Const) else None


def _left(call: Call, args: Sequence[Range]) -> Range | None:
    length = call.args[1]
    if not isinstance(length, Const) or not isinstance(length.value, int):
        return None
    return beginning(args[0], length.value)


def _substring(call: Call, args: Sequence[Range]) -> Range | None:
    length = substring_length(call.args)
    return None if length is None else beginning(args[0], length)


def _concat(call: Call, args: Sequence[Range]) -> Range | None:
    first = call.args[0]
    if len(args) != 2 or args[1].type != "string" or not isinstance(first, Const) or not isinstance(first.value, str):
        return None
    return preceded(first.value, args[1])


def _of_date(call: Call, args: Sequence[Range]) -> Range | None:
    return date_part(args[0], call.fn)


def _is_number(type: str) -> bool:
    return type in FLOATS or type in INTEGER_BITS or decimal_digits(type) is not None


_TIMES: Final = frozenset({"date", "timestamp", "timestamp_ntz"})
_DATE_PARTS: Final = ("year", "quarter", "month", "weekofyear", "day", "dayofyear", "dayofweek")

_KINDS: Final[Mapping[str, Callable[[str], bool]]] = MappingProxyType(
    {
        "number": lambda type: (
            type in FLOATS or type in INTEGER_BITS or (bool(decimal_digits(type)) and has_int_keys(type))
        ),
        "date": lambda type: type == "date",
        "time": lambda type: type in _TIMES,
        "text": lambda type: type == "string",
        "int": lambda type: type == "int",
    }
)

_EXACT_SIGNS: Final = MappingProxyType({"try_add": "+", "try_subtract": "-", "try_multiply": "*"})
_OF_SEVERAL: Final = MappingProxyType({"coalesce": _coalesced, "greatest": _extreme, "least": _extreme})
_BY_INTERVAL: Final = Function(lambda call, args: by_interval(call, args[0]), ("time",))

FUNCTIONS: Final[Mapping[str, Function]] = MappingProxyType(
    {
        "try_add": Function(partial(_arithmetic, added), ("number", "number")),
        "try_subtract": Function(partial(_arithmetic, subtracted), ("number", "number")),
        "try_multiply": Function(partial(_arithmetic, multiplied), ("number", "number")),
        "try_divide": Function(partial(_arithmetic, divided), ("number", "number")),
        "try_mod": Function(partial(_arithmetic, remainder), ("number", "number")),
        "try_cast": Function(_cast),
        "abs": Function(lambda call, args: absolute(args[0], call.type), ("number",)),
        "sqrt": Function(lambda call, args: square_root(args[0], call.type), ("number",), total=True),
        "floor": Function(lambda call, args: floored(args[0], False, call.type), ("number",), total=True),
        "ceil": Function(lambda call, args: floored(args[0], True, call.type), ("number",), total=True),
        "round": Function(_rounded, ("number", "int"), total=True),
        "date_add": Function(lambda call, args: by_days(call, args[0]), ("date", "int"), total=True),
        "trunc": Function(partial(_truncated, 1, truncated_date), ("date", "text")),
        "date_trunc": Function(partial(_truncated, 0, truncated_timestamp), ("text", "time")),
        "last_day": Function(lambda call, args: last_day(args[0]), ("date",), total=True),
        "datediff": Function(lambda call, args: days_between(args[0], args[1]), ("date", "date"), total=True),
        **{name: Function(_of_date, ("date",), total=True) for name in _DATE_PARTS},
        **{name: Function(lambda call, args: clock_part(args[0], call.fn), ("time",), total=True)
           for name in ("hour", "minute", "second")},
        "levenshtein": Function(lambda call, args: constant_range(0, _INT_MOST, args[0]), ("text", "text"), True),
        "left": Function(_left, ("text", "int"), total=True),
        "substring": Function(_substring, ("text", "int", "int"), total=True, optional=1),
        "concat": Function(_concat, total=True),
        # Of these only NULLs are known: they don't keep the order of texts.
        **{name: Function(lambda call, args: None, total=True)
           for name in ("lower", "upper", "reverse", "trim", "ltrim", "rtrim", "length", "instr", "right", "rlike",
                        "split_part", "substring_index", "regexp_extract")},
        **{name: Function(lambda call, args: None)
            for name in ("get_json_object", "try_variant_get", "array_max", "array_min")},
    }
)  # fmt: skip
"""Functions by their Spark names, with what is known of each; ``coalesce`` has a rule of its own."""
