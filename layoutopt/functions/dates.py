"""Functions of dates and times.

Time zones: bounds hold for all zones. Local time and UTC differ by less than a day, and differences of two instants by
less than two. A local day has 22 to 26 hours, and some times are skipped; so a timestamp shifted by days or months
differs from the same shift in UTC by less than two days.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

import numpy as np

from layoutopt.functions.function import Function, always, never
from layoutopt.functions.ranges import Range, limits
from layoutopt.model.arrays import Ints
from layoutopt.model.predicates import Call, Const, Expr

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


def cast_time(a: Range, type: str) -> Range | None:
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


def is_interval(expr: Expr) -> bool:
    """Return whether an expression is a constant interval."""
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
    numbers = _constant_ints(step.args) if isinstance(step, Call) and is_interval(step) else None
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


def _truncate(
    unit_place: int, truncate: Callable[[Range, str], Range | None], call: Call, args: Sequence[Range]
) -> Range | None:
    unit = call.args[unit_place]
    if not isinstance(unit, Const) or not isinstance(unit.value, str):
        return None
    return truncate(args[1 - unit_place], unit.value)


def _first_day_of_year(year: int) -> int:
    """Return the days from 1970-01-01 to January 1 of a year (proleptic Gregorian calendar).

    >>> _first_day_of_year(1970), _first_day_of_year(1971), _first_day_of_year(0)
    (0, 365, -719528)
    """
    before = year - 1
    return before * 365 + before // 4 - before // 100 + before // 400 - 719162


def _make_date_part(
    name: str,
    parsed: tuple[str, ...],
    units: tuple[str, ...],
    is_portable: Callable[[Call], bool] = never,
    first_argument: Callable[[int], int] | None = None,
    compute: Callable[[int], int | None] | None = None,
) -> Function:
    return Function(
        name,
        ("date",),
        "int",
        parsed=parsed,
        units=units,
        catalyst=parsed[-1:],
        bounds=lambda call, args: _date_part(args[0], call.fn),
        total=True,
        first_argument=first_argument,
        compute=compute,
        is_portable=is_portable,
    )


def _week_of_year(day: int) -> int | None:
    """Return the ISO week of a day since 1970-01-01; None beyond the years 1 to 9999."""
    ordinal = day + dt.date(1970, 1, 1).toordinal()
    return dt.date.fromordinal(ordinal).isocalendar().week if 0 < ordinal <= dt.date.max.toordinal() else None


def _make_clock_part(name: str, most: int, units: tuple[str, ...] = ()) -> Function:
    return Function(
        name,
        ("timestamp",),
        "int",
        parsed=(name.capitalize(),),
        units=units,
        catalyst=(name.capitalize(),),
        bounds=lambda call, args: _constant_range(0, most, args[0]),
        total=True,
    )


# A time plus an interval, which ``try_add`` also means.
SHIFT: Final = Function("try_add", ("time",), bounds=lambda call, args: _add_interval(call, args[0]))

FUNCTIONS: Final = (
    _make_date_part("year", ("Year",), ("YEAR",), is_portable=always, first_argument=_first_day_of_year),
    _make_date_part("quarter", ("Quarter",), ("QUARTER",), is_portable=always),
    _make_date_part("month", ("Month",), ("MONTH",), is_portable=always),
    _make_date_part("weekofyear", ("WeekOfYear",), ("WEEK",), is_portable=always, compute=_week_of_year),
    _make_date_part("day", ("Day", "DayOfMonth"), ("DAY",), is_portable=always),
    _make_date_part("dayofyear", ("DayOfYear",), ("DOY",), is_portable=always),
    _make_date_part("dayofweek", ("DayOfWeek",), ("DOW", "DAYOFWEEK"), compute=lambda day: (day + 4) % 7 + 1),
    _make_clock_part("hour", 23, ("HOUR",)),
    _make_clock_part("minute", 59, ("MINUTE",)),
    _make_clock_part("second", 59),
    Function(
        "last_day",
        ("date",),
        "date",
        parsed=("LastDay",),
        catalyst=("LastDay",),
        bounds=lambda call, args: _last_day(args[0]),
        total=True,
        is_portable=always,
    ),
    Function(
        "datediff",
        ("date", "date"),
        "int",
        parsed=("DateDiff",),
        keys=("this", "expression"),
        refused=("unit",),
        catalyst=("DateDiff",),
        bounds=lambda call, args: _days_between(args[0], args[1]),
        total=True,
        is_portable=always,
    ),
    Function(
        "unix_date",
        ("date",),
        "int",
        parsed=("UnixDate",),
        catalyst=("UnixDate",),
        bounds=lambda call, args: Range(args[0].low, args[0].high, args[0].known, "int"),
        total=True,
        first_argument=lambda days: days,
        is_portable=always,
    ),
    Function(
        "date_add",
        ("date", "int"),
        bounds=lambda call, args: _add_days(call, args[0]),
        total=True,
        is_portable=always,
    ),
    Function(
        "trunc",
        ("date", "string"),
        parsed=("DateTrunc",),
        keys=("this", "unit"),
        catalyst=("TruncDate",),
        bounds=partial(_truncate, 1, _truncate_date),
    ),
    Function(
        "date_trunc",
        ("string", "time"),
        parsed=("TimestampTrunc",),
        keys=("unit", "this"),
        catalyst=("TruncTimestamp",),
        bounds=partial(_truncate, 0, _truncate_timestamp),
    ),
)
