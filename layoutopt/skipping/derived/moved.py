"""Ranges of dates and times moved by a constant: by days, months, or an interval.

In a zone's local time a day has 22 to 26 hours, and on one side of a change of zones some moments are left out: a
timestamp that is moved by days or months is off from the same in UTC by less than two days, in whichever zone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from layoutopt.model.predicates import Call, Const, Expr
from layoutopt.skipping.derived.ranges import Range, limits
from layoutopt.skipping.derived.times import DAY, months_later

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
