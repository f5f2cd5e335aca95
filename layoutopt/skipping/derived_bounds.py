"""Bounds of functions from bounds of their arguments: falsifiable expressions (Edara 2021, 5.3).

Soundness: every value of the function that is not NULL has its key between the derived bounds, as for columns; counts
of NULLs are exact or unknown. So the rules for columns (:mod:`layoutopt.skipping.zone_maps`) hold for functions, too. A
function that is not in :data:`FUNCTION_RULES`, or an argument without bounds, has no bounds.

Filters contain only functions that fail on no row: a value that can't be computed is NULL, for which only IS NULL is
TRUE.

Time zones: bounds hold for all zones. Local time and UTC differ by less than a day, and differences of two instants by
less than two. A local day has 22 to 26 hours, and some times are skipped; so a timestamp shifted by days or months
differs from the same shift in UTC by less than two days.
"""

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
    absolute_value,
    add,
    cast_number,
    combine_decimals,
    divide,
    divide_decimals,
    floor_decimal,
    multiply,
    remainder,
    round_number,
    square_root,
    subtract,
)
from layoutopt.skipping.ranges import FLOATS, Range, has_int_keys, limits

# A day in microseconds.
DAY: Final = 86_400_000_000
_DAYS_PER_UNIT: Final[Mapping[str, int]] = MappingProxyType(
    {"YEAR": 366, "YYYY": 366, "YY": 366, "QUARTER": 92, "MONTH": 31, "MM": 31, "MON": 31, "WEEK": 7, "DAY": 1, "DD": 1}
)
_CLOCK_UNITS: Final = frozenset({"HOUR", "MINUTE", "SECOND"})
_MONTHS_PER_UNIT: Final[Mapping[str, int]] = MappingProxyType(
    {"YEAR": 12, "YYYY": 12, "YY": 12, "QUARTER": 3, "MONTH": 1, "MM": 1, "MON": 1}
)
_MONDAY: Final = 4  # 1970-01-05
_CLOCK: Final = (DAY, DAY // 24, DAY // 1440, DAY // 86_400)
_INTERVALS: Final = frozenset({"make_dt_interval", "make_ym_interval"})
_SAFE: Final = 2.0**62
_MAX_INTERVAL_PART: Final = 1 << 31
# The bounds of parts of dates.
_DATE_PART_LIMITS: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {"year": limits("int"), "quarter": (1, 4), "month": (1, 12), "day": (1, 31), "dayofyear": (1, 366)}
)
# The larger parts within which a part of a date keeps order.
_LARGER_PARTS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"year": (), "quarter": ("year",), "month": ("year",), "day": ("year", "month"), "dayofyear": ("year",)}
)
# The bounds of parts of dates that keep no order.
_UNORDERED_PARTS: Final[Mapping[str, tuple[int, int]]] = MappingProxyType({"weekofyear": (1, 53), "dayofweek": (1, 7)})


def _truncate_date(a: Range, unit: str) -> Range | None:
    """Bound ``trunc(date, unit)``, the first day of the unit, which keeps order."""
    if unit == "WEEK":
        low, high = ((days - _MONDAY) // 7 * 7 + _MONDAY for days in (a.low, a.high))
    elif unit in _MONTHS_PER_UNIT:
        months = _MONTHS_PER_UNIT[unit]
        low, high = (_first_days(_months(days) // months * months) for days in (a.low, a.high))
    else:
        return None
    return Range(low, high, a.known, "date")


def _truncate_timestamp(a: Range, unit: str) -> Range | None:
    """Bound ``date_trunc(unit, timestamp)``: back by less than the unit and the change of the zone's offset."""
    days = _DAYS_PER_UNIT.get(unit, 1 if unit in _CLOCK_UNITS else None)
    if days is None:
        return None
    return _widen(a, (days + 2) * DAY, 2 * DAY, "timestamp")


def _last_day(a: Range) -> Range | None:
    """Bound the last day of the month, which keeps order."""
    low, high = (_first_days(_months(days) + 1) - 1 for days in (a.low, a.high))
    return Range(low, high, a.known, "date")


def _add_months(days: Ints, months: int) -> Ints:
    """Shift days since 1970-01-01 by months, to the last day of a shorter month; this keeps order."""
    month = _months(days)
    place = days - _first_days(month)
    return np.minimum(_first_days(month + months) + place, _first_days(month + months + 1) - 1)


def _date_part(a: Range, fn: str) -> Range | None:
    """Bound ``year``, ``month``, ``day`` and the like of a date: in order while all larger parts stay the same."""
    if fn in _UNORDERED_PARTS:
        return _constant_range(*_UNORDERED_PARTS[fn], a)
    parts = [_split_dates(days) for days in (a.low, a.high)]
    low, high = parts[0][fn], parts[1][fn]
    same = np.ones(len(a.low), np.bool_)
    for larger in _LARGER_PARTS[fn]:
        same &= parts[0][larger] == parts[1][larger]
    least, most = _DATE_PART_LIMITS[fn]
    return Range(np.where(same, low, least), np.where(same, high, most), a.known, "int")


def _days_between(a: Range, b: Range) -> Range | None:
    """Bound ``datediff(a, b)``; unknown where the difference may not fit an int."""
    low, high = a.low - b.high, a.high - b.low
    smallest, largest = limits("int")
    return Range(low, high, a.known & b.known & (low >= smallest) & (high <= largest), "int")


def _cast_time(a: Range, type: str) -> Range | None:
    """Bound a cast between dates and timestamps."""
    match a.type, type:
        case "date", "timestamp_ntz":
            return _to_microseconds(a, 0, type)
        case "date", "timestamp":
            return _to_microseconds(a, DAY, type)
        case "timestamp_ntz", "date":
            return Range(a.low // DAY, a.high // DAY, a.known, type)
        case "timestamp", "date":
            return Range(a.low // DAY - 1, a.high // DAY + 1, a.known, type)
        case ("timestamp", "timestamp_ntz") | ("timestamp_ntz", "timestamp"):
            return _widen(a, DAY, DAY, type)
    return None


def _constant_range(low: int, high: int, like: Range) -> Range:
    """Return the same range of ints in every block."""
    return Range(np.full(len(like.low), low), np.full(len(like.low), high), np.ones_like(like.known), "int")


def _to_microseconds(a: Range, margin: int, type: str) -> Range:
    most = limits("bigint")[1] // DAY - 2
    inside = (a.low > -most) & (a.high < most)
    low, high = np.where(inside, a.low, 0) * DAY - margin, np.where(inside, a.high, 0) * DAY + margin
    return Range(low, high, a.known & inside, type)


def _widen(a: Range, below: int, above: int, type: str) -> Range:
    smallest, largest = limits("bigint")
    low = np.maximum(a.low, smallest + below) - below
    return Range(low, np.minimum(a.high, largest - above) + above, a.known, type)


def _months(days: Ints) -> Ints:
    """Convert days since 1970-01-01 to months since 1970-01."""
    return days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)


def _first_days(months: Ints) -> Ints:
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _split_dates(days: Ints) -> dict[str, Ints]:
    months = _months(days)
    year, month = months // 12 + 1970, months % 12 + 1
    return {
        "year": year,
        "quarter": (month + 2) // 3,
        "month": month,
        "day": days - _first_days(months) + 1,
        "dayofyear": days - _first_days(months // 12 * 12) + 1,
    }


def _is_interval(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.fn in _INTERVALS and not expr.columns


def _add_days(call: Call, a: Range) -> Range | None:
    """Bound ``date_add(a, n)``; unknown at the ends, where Spark's days wrap around."""
    days, (least, most) = _constant_ints(call.args[1:]), limits("date")
    if days is None or len(days) != 1 or a.type != "date":
        return None
    low, high = a.low + days[0], a.high + days[0]
    return Range(low, high, a.known & (low >= least) & (high <= most), "date")


def _add_interval(call: Call, a: Range) -> Range | None:
    """Bound ``try_add(a, interval)``, which is NULL beyond the calendar."""
    step = call.args[1] if len(call.args) == 2 else None
    numbers = _constant_ints(step.args) if isinstance(step, Call) and _is_interval(step) else None
    if not isinstance(step, Call) or numbers is None or a.type != call.type:
        return None
    if step.fn == "make_ym_interval":
        if len(numbers) != 2:
            return None
        months = 12 * numbers[0] + numbers[1]
        if a.type == "date":
            return Range(_add_months(a.low, months), _add_months(a.high, months), a.known, a.type)
        shortest, longest = sorted((28 * months * DAY, 31 * months * DAY))
        return _shift(a, shortest - 2 * DAY, longest + 2 * DAY)
    if a.type == "date" or len(numbers) > len(_CLOCK):
        return None
    shift = sum(number * unit for number, unit in zip(numbers, _CLOCK, strict=False))
    margin = 2 * DAY if a.type == "timestamp" and abs(shift) >= DAY else 0  # Spark takes 24 hours for a day
    return _shift(a, shift - margin, shift + margin)


def _shift(a: Range, below: int, above: int) -> Range:
    fits = (np.abs(a.low + float(below)) < _SAFE) & (np.abs(a.high + float(above)) < _SAFE)
    low, high = np.where(fits, a.low, 0) + below, np.where(fits, a.high, 0) + above
    return Range(low, high, a.known & fits, a.type)


def _constant_ints(args: Sequence[Expr]) -> list[int] | None:
    values = [arg.value for arg in args if isinstance(arg, Const) and isinstance(arg.value, int)]
    return values if len(values) == len(args) and all(abs(value) < _MAX_INTERVAL_PART for value in values) else None


_OPTIONAL_QUANTIFIERS: Final = "*?{"
_SPECIAL: Final = ".^$+()[]\\}"


def implied_prefix(literal: InSet) -> InSet | None:
    """Return the prefix condition that ``text RLIKE '^prefix...'`` being TRUE implies; None for any other literal."""
    call = literal.subject
    if not isinstance(call, Call) or call.fn != "rlike" or len(call.args) != 2:
        return None
    if literal.null or literal.values != ValueSet.point(1):
        return None
    text, pattern = call.args
    if not isinstance(pattern, Const) or not isinstance(pattern.value, str) or text.type != "string":
        return None
    prefix = _regex_prefix(pattern.value)
    return InSet(text, ValueSet.prefix(prefix)) if prefix else None


def _regex_prefix(pattern: str) -> str:
    """Return a prefix of every text that matches a Java regular expression; '' if uncertain.

    >>> _regex_prefix("^ab+c.*"), _regex_prefix("^abc?"), _regex_prefix("^ab|c"), _regex_prefix("ab")
    ('ab', 'ab', '', '')
    """
    if not pattern.startswith("^") or "|" in pattern:
        return ""
    prefix = ""
    for character in pattern[1:]:
        if character in _OPTIONAL_QUANTIFIERS:
            return prefix[:-1]
        if character in _SPECIAL:
            return prefix
        prefix += character
    return prefix


def _take_prefix(a: Range, length: int) -> Range:
    """Bound the first characters of a text, which keep order."""
    return _map_texts(a, lambda text: text[: max(length, 0)])


def _map_texts(a: Range, function: Callable[[str], str]) -> Range:
    return Range(_map_keys(a.low, a, function), _map_keys(a.high, a, function), a.known, "string")


def _map_keys(keys: Keys, a: Range, function: Callable[[str], str]) -> Keys:
    mapped = np.empty(len(keys), dtype=np.object_)
    mapped[:] = ""
    mapped[a.known] = [function(key) for key in keys[a.known]]
    return mapped


Rule = Callable[[Call, Sequence[Range]], Range | None]
_MAX_DEPTH: Final = 16
_MAX_INT: Final = limits("int")[1]
# The cache of derived bounds is cleared beyond so many functions.
_MAX_CACHED: Final = 32


@dataclass(frozen=True)
class FunctionRule:
    """The derivation rule of a function.

    Attributes:
        rule: the range of its values, from those of its arguments; None if unknown.
        takes: the kind of each argument, by :data:`_KINDS`; a call with other arguments, as only a damaged document
            has, has no bounds. None if the rule looks at no argument.
        total: whether it is NULL only if an argument is.
        optional: how many of the last arguments may be left out.
    """

    rule: Rule
    takes: tuple[str, ...] | None = None
    total: bool = False
    optional: int = 0

    def accepts(self, args: Sequence[ColumnBounds]) -> bool:
        """Return whether the arguments' number and kinds are right."""
        if self.takes is None:
            return True
        enough = len(self.takes) - self.optional <= len(args) <= len(self.takes)
        return enough and all(_KINDS[kind](arg.type) for kind, arg in zip(self.takes, args, strict=False))


def derive_bounds(expr: Expr, statistics: BlockStatistics) -> ColumnBounds | None:
    """Return the bounds of an expression in each block; None if there are none."""
    if isinstance(expr, Col):
        bounds = statistics.bounds.get(expr.name)
        return bounds if bounds is not None and bounds.type == expr.type else None
    if isinstance(expr, Const) or not expr.columns:
        return None
    cache = statistics.derived
    if expr not in cache:
        if len(cache) >= _MAX_CACHED:
            cache.clear()
        cache[expr] = _derive(expr, statistics, 0)
    return cache[expr]


def _derive_argument(expr: Expr, statistics: BlockStatistics, depth: int) -> ColumnBounds | None:
    if isinstance(expr, Const):
        return _constant_bounds(expr, statistics.n, statistics.rows)
    return _derive(expr, statistics, depth + 1) if isinstance(expr, Call) else derive_bounds(expr, statistics)


def _derive(call: Call, statistics: BlockStatistics, depth: int) -> ColumnBounds | None:
    # A boolean function may be a UDF, whatever its name is.
    function = FUNCTION_RULES.get(call.fn) if call.type != "boolean" or call.fn == "rlike" else None
    if depth > _MAX_DEPTH or (function is None and call.fn not in _SELECTIONS):
        return None
    if call.fn == "try_add" and any(map(_is_interval, call.args)):
        function = _INTERVAL_RULE
    args = [_derive_argument(arg, statistics, depth) for arg in call.args if not _is_interval(arg)]
    if function is None:
        return _SELECTIONS[call.fn](call, args, statistics)
    known_args = [arg for arg in args if arg is not None]
    if len(known_args) < len(args) or not function.accepts(known_args):
        return None
    values = function.rule(call, [_to_range(arg) for arg in known_args])
    nulls = _count_nulls(function, known_args, statistics.rows)
    if values is None:
        return _without_range(call.type, nulls, statistics.n)
    return ColumnBounds(values.low, values.high, values.known & (nulls != statistics.rows), nulls, call.type)


def _to_range(bounds: ColumnBounds) -> Range:
    """Return bounds as a range, with harmless ends where they are unknown."""
    if bounds.low.dtype == np.int64:
        low, high = np.where(bounds.known, bounds.low, 0), np.where(bounds.known, bounds.high, 0)
        return Range(low, high, bounds.known, bounds.type)
    return Range(bounds.low, bounds.high, bounds.known, bounds.type)


def _count_nulls(function: FunctionRule, args: Sequence[ColumnBounds], rows: Ints) -> Ints:
    """Count NULLs: all rows if an argument is always NULL; otherwise known only for total functions."""
    counts = np.array([arg.nulls for arg in args])
    nulls = np.full(len(rows), UNKNOWN_NULLS, dtype=np.int64)
    if function.total:
        # NULLs of several arguments may or may not be in the same rows.
        smaller = np.sort(counts, axis=0)[:-1]
        single = (counts >= 0).all(axis=0) & (smaller == 0).all(axis=0)
        nulls[single] = counts.max(axis=0)[single]
    only_nulls = (counts == rows).any(axis=0)
    nulls[only_nulls] = rows[only_nulls]
    return nulls


def _without_range(type: str, nulls: Ints, n: int) -> ColumnBounds:
    zeros = np.zeros(n, dtype=np.int64)
    return ColumnBounds(zeros, zeros, np.zeros(n, dtype=np.bool_), nulls, type)


def _constant_bounds(const: Const, n: int, rows: Ints) -> ColumnBounds | None:
    if const.value is None:
        return _without_range(const.type, rows.copy(), n)
    ends = np.empty(n, dtype=np.int64 if has_int_keys(const.type) else np.object_)
    ends[:] = const.value
    return ColumnBounds(ends, ends, np.ones(n, dtype=np.bool_), np.zeros(n, dtype=np.int64), const.type)


def _same_type_args(call: Call, args: Sequence[ColumnBounds | None]) -> list[ColumnBounds] | None:
    known = [arg for arg in args if arg is not None and arg.type == call.type]
    return known if known and len(known) == len(args) and has_int_keys(call.type) else None


def _selection_nulls(args: Sequence[ColumnBounds], rows: Ints) -> Ints:
    """Count NULLs of a function that is NULL only if all arguments are."""
    counts = np.array([arg.nulls for arg in args])
    nulls = np.where((counts == 0).any(axis=0), 0, UNKNOWN_NULLS)
    return np.where((counts == rows).all(axis=0), rows, nulls).astype(np.int64)


def _coalesce(call: Call, args: Sequence[ColumnBounds | None], statistics: BlockStatistics) -> ColumnBounds | None:
    """Bound the first argument that is not NULL by the hull of those up to the first that is never NULL."""
    known_args = _same_type_args(call, args)
    if known_args is None:
        return None
    rows, n = statistics.rows, statistics.n
    reached, known = np.ones(n, np.bool_), np.ones(n, np.bool_)
    low, high = np.full(n, np.iinfo(np.int64).max), np.full(n, np.iinfo(np.int64).min)
    for arg in known_args:
        used = reached & (arg.nulls != rows)  # an argument that is always NULL adds no value
        known &= ~used | arg.known
        low, high = np.where(used, np.minimum(low, arg.low), low), np.where(used, np.maximum(high, arg.high), high)
        reached = reached & (arg.nulls != 0)
    return ColumnBounds(low, high, known & (low <= high), _selection_nulls(known_args, rows), call.type)


def _extreme(call: Call, args: Sequence[ColumnBounds | None], statistics: BlockStatistics) -> ColumnBounds | None:
    """Bound ``greatest`` or ``least`` of the arguments that are not NULL."""
    known_args = _same_type_args(call, args)
    if known_args is None:
        return None
    rows, n, is_greatest = statistics.rows, statistics.n, call.fn == "greatest"
    # Least is computed as greatest, with inverted keys and exchanged ends.
    used = [arg.nulls != rows for arg in known_args]
    ends = [(arg.low, arg.high) if is_greatest else (~arg.high, ~arg.low) for arg in known_args]
    smallest = np.iinfo(np.int64).min
    high = np.max([np.where(mask, end, smallest) for mask, (_, end) in zip(used, ends, strict=True)], axis=0)
    hull = np.min([np.where(mask, end, ~smallest) for mask, (end, _) in zip(used, ends, strict=True)], axis=0)
    always = [np.where(arg.nulls == 0, end, smallest) for arg, (end, _) in zip(known_args, ends, strict=True)]
    low = np.maximum(hull, np.max(always, axis=0))
    known = np.logical_and.reduce([~mask | arg.known for mask, arg in zip(used, known_args, strict=True)])
    known &= np.logical_or.reduce(used) & np.ones(n, np.bool_)
    low, high = (low, high) if is_greatest else (~high, ~low)
    nulls = _selection_nulls(known_args, rows)
    return ColumnBounds(np.where(known, low, 0), np.where(known, high, 0), known, nulls, call.type)


def _arithmetic(
    operate: Callable[[Range, Range, str], Range | None], call: Call, args: Sequence[Range]
) -> Range | None:
    if decimal_digits(call.type) is not None:
        if call.fn == "try_divide":
            return divide_decimals(args[0], args[1], call.type)
        sign = _SIGNS.get(call.fn)
        return None if sign is None else combine_decimals(sign, args[0], args[1], call.type)
    return operate(args[0], args[1], call.type) if _KINDS["number"](call.type) else None


def _round(call: Call, args: Sequence[Range]) -> Range | None:
    places = call.args[1].value if isinstance(call.args[1], Const) else None
    return round_number(args[0], places, call.type) if isinstance(places, int) and 0 <= places <= 30 else None


def _cast(call: Call, args: Sequence[Range]) -> Range | None:
    (a,) = args
    if a.type == call.type:
        return a
    if {a.type, call.type} <= _TIMES:
        return _cast_time(a, call.type)
    if a.type in _TIMES | {"boolean"} or call.type in _TIMES | {"boolean"} or key_kind(a.type) != "int":
        return None
    return cast_number(a, call.type)


def _truncate(
    unit_place: int, truncate: Callable[[Range, str], Range | None], call: Call, args: Sequence[Range]
) -> Range | None:
    unit = call.args[unit_place]
    if not isinstance(unit, Const) or not isinstance(unit.value, str):
        return None
    return truncate(args[1 - unit_place], unit.value)


def _left(call: Call, args: Sequence[Range]) -> Range | None:
    length = call.args[1]
    if not isinstance(length, Const) or not isinstance(length.value, int):
        return None
    return _take_prefix(args[0], length.value)


def _substring(call: Call, args: Sequence[Range]) -> Range | None:
    """Bound ``substring(text, start, length)`` from the beginning; position 0 is the first character too."""
    places = [arg.value if isinstance(arg, Const) else None for arg in call.args[1:]]
    if not places or places[0] not in (0, 1) or not all(isinstance(place, int) for place in places):
        return None
    return _take_prefix(args[0], int(places[1]) if len(places) > 1 and places[1] is not None else 2**31 - 1)


def _concat(call: Call, args: Sequence[Range]) -> Range | None:
    """Bound a constant text followed by another text."""
    first = call.args[0]
    if len(args) != 2 or args[1].type != "string" or not isinstance(first, Const) or not isinstance(first.value, str):
        return None
    text = first.value
    return _map_texts(args[1], lambda suffix: text + suffix)


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

_SIGNS: Final = MappingProxyType({"try_add": "+", "try_subtract": "-", "try_multiply": "*"})
_SELECTIONS: Final = MappingProxyType({"coalesce": _coalesce, "greatest": _extreme, "least": _extreme})
_INTERVAL_RULE: Final = FunctionRule(lambda call, args: _add_interval(call, args[0]), ("time",))

# The rules of functions, by Spark's names; ``coalesce``, ``greatest`` and ``least`` have rules of their own.
FUNCTION_RULES: Final[Mapping[str, FunctionRule]] = MappingProxyType(
    {
        "try_add": FunctionRule(partial(_arithmetic, add), ("number", "number")),
        "try_subtract": FunctionRule(partial(_arithmetic, subtract), ("number", "number")),
        "try_multiply": FunctionRule(partial(_arithmetic, multiply), ("number", "number")),
        "try_divide": FunctionRule(partial(_arithmetic, divide), ("number", "number")),
        "try_mod": FunctionRule(partial(_arithmetic, remainder), ("number", "number")),
        "try_cast": FunctionRule(_cast),
        "abs": FunctionRule(lambda call, args: absolute_value(args[0], call.type), ("number",)),
        "sqrt": FunctionRule(lambda call, args: square_root(args[0], call.type), ("number",), total=True),
        "floor": FunctionRule(lambda call, args: floor_decimal(args[0], False, call.type), ("number",), total=True),
        "ceil": FunctionRule(lambda call, args: floor_decimal(args[0], True, call.type), ("number",), total=True),
        "round": FunctionRule(_round, ("number", "int"), total=True),
        "date_add": FunctionRule(lambda call, args: _add_days(call, args[0]), ("date", "int"), total=True),
        "trunc": FunctionRule(partial(_truncate, 1, _truncate_date), ("date", "text")),
        "date_trunc": FunctionRule(partial(_truncate, 0, _truncate_timestamp), ("text", "time")),
        "last_day": FunctionRule(lambda call, args: _last_day(args[0]), ("date",), total=True),
        "datediff": FunctionRule(lambda call, args: _days_between(args[0], args[1]), ("date", "date"), total=True),
        **{name: FunctionRule(lambda call, args: _date_part(args[0], call.fn), ("date",), total=True)
           for name in _DATE_PARTS},
        "hour": FunctionRule(lambda call, args: _constant_range(0, 23, args[0]), ("time",), total=True),
        **{name: FunctionRule(lambda call, args: _constant_range(0, 59, args[0]), ("time",), total=True)
           for name in ("minute", "second")},
        "levenshtein": FunctionRule(lambda call, args: _constant_range(0, _MAX_INT, args[0]), ("text", "text"), True),
        "left": FunctionRule(_left, ("text", "int"), total=True),
        "substring": FunctionRule(_substring, ("text", "int", "int"), total=True, optional=1),
        "concat": FunctionRule(_concat, total=True),
        # Only their NULLs are known: they don't keep the order of texts.
        **{name: FunctionRule(lambda call, args: None, total=True)
           for name in ("lower", "upper", "reverse", "trim", "ltrim", "rtrim", "length", "instr", "right", "rlike",
                        "split_part", "substring_index", "regexp_extract")},
        **{name: FunctionRule(lambda call, args: None)
            for name in ("get_json_object", "try_variant_get", "array_max", "array_min")},
    }
)  # fmt: skip
