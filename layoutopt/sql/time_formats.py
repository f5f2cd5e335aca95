"""Patterns of ``date_format`` and the like whose texts sort as the times do: years to seconds, padded with zeros.

Patterns are in sqlglot's notation. A four-digit year is exact from 1600 to 9999: before, ``y`` has fewer digits, years
before Christ recur, and old calendars differ; after, Spark writes a sign.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

from layoutopt.model.types import INTEGER_BITS
from layoutopt.model.values import ValueSet
from layoutopt.model.values.value_sets import first_key

_PATTERN: Final = re.compile(
    r"%Y(?:[-/.]?%mstrict(?:[-/.]?%dstrict(?:[ _-]?%Hstrict(?::?%Mstrict(?::?%Sstrict)?)?)?)?)?"
)
_DIGITS: Final = {"%Y": "4", "%mstrict": "2", "%dstrict": "2", "%Hstrict": "2", "%Mstrict": "2", "%Sstrict": "2"}
_FIELDS: Final = re.compile("|".join(_DIGITS))
_NAMES: Final = dict(zip(_DIGITS, ("year", "month", "day", "hour", "minute", "second"), strict=True))
_EPOCH: Final = dt.datetime(1970, 1, 1)
# The length of a key's unit.
_UNITS: Final = {
    "date": dt.timedelta(days=1),
    "timestamp": dt.timedelta(microseconds=1),
    "timestamp_ntz": dt.timedelta(microseconds=1),
    **dict.fromkeys(INTEGER_BITS, dt.timedelta(seconds=1)),
}
_FIRST, _END = dt.datetime(1600, 1, 1), dt.datetime(9999, 12, 31)


def is_sorted_pattern(pattern: str, has_time: bool = True) -> bool:
    """Return whether texts of a pattern sort as the times do; without ``has_time``, it must name no hours.

    >>> is_sorted_pattern("%Y-%mstrict"), is_sorted_pattern("%dstrict.%mstrict.%Y")
    (True, False)
    """
    return bool(_PATTERN.fullmatch(pattern)) and (has_time or "%H" not in pattern)


def format_time(time: dt.datetime, pattern: str) -> str:
    """Return a time's text.

    >>> format_time(dt.datetime(2020, 3, 1, 4), "%Y%mstrict%dstrict %Hstrict")
    '20200301 04'
    """
    return _FIELDS.sub(lambda match: f"{getattr(time, _NAMES[match[0]]):0{_DIGITS[match[0]]}d}", pattern)


def parse_time(text: str, pattern: str) -> dt.datetime | None:
    """Return the time of a text, if it has exactly the pattern's digits; None if uncertain.

    >>> parse_time("20200301", "%Y%mstrict%dstrict"), parse_time("2020-3-1", "%Y-%mstrict-%dstrict")
    (datetime.datetime(2020, 3, 1, 0, 0), None)
    """
    if not is_sorted_pattern(pattern):
        return None
    parts = _FIELDS.sub(
        lambda match: f"(?P<{_NAMES[match[0]]}>[0-9]{{{_DIGITS[match[0]]}}})", re.sub(r"\.", r"\.", pattern)
    )
    match = re.fullmatch(parts, text)
    if match is None:
        return None
    fields = {name: int(value) for name, value in match.groupdict().items()}
    year, month, day = fields.pop("year"), fields.pop("month", 1), fields.pop("day", 1)
    try:
        time = dt.datetime(year, month, day, fields.get("hour", 0), fields.get("minute", 0), fields.get("second", 0))
    except ValueError:
        return None
    return time if time >= _FIRST else None


def times_before_text(values: ValueSet, pattern: str, kind: str) -> ValueSet:
    """Return the times (or seconds since 1970) whose texts may be in a set: exact but for the far past and future.

    >>> times_before_text(ValueSet.point("2020-03"), "%Y-%mstrict", "date").intervals[1]
    (18322, 18353)
    """
    start, end = ((time - _EPOCH) // _UNITS[kind] for time in (_FIRST, _END))

    def first(text: object) -> int:
        return first_key(range(start, end), lambda key: format_time(_EPOCH + key * _UNITS[kind], pattern) >= str(text))

    inside = [
        (start if low is None else first(low), end if high is None else first(high)) for low, high in values.intervals
    ]
    return ValueSet.normalised(((None, start), *(ends for ends in inside if ends[0] < ends[1]), (end, None)), kind)
