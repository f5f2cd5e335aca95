"""Ranges of functions of dates and timestamps.

What depends on the session's time zone is taken over all zones: local time and UTC differ by less than a day, and two
moments' differences by less than two.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from layoutopt.model.arrays import Ints
from layoutopt.skipping.derived.ranges import Range, limits

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
