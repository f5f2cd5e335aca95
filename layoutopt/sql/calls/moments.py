"""Dates and times moved by a constant: ``d + 3``, ``date_add(d, 3)``, ``add_months(d, 1)``, ``ts - INTERVAL 1 DAY``.

A date moved by days stays one, and wraps around silently. All others are sums that are NULL beyond Spark's calendar.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sqlglot import exp

from layoutopt.model.predicates import Call, Const, Expr
from layoutopt.sql.calls.subjects import Context, Operand, Reader, Subject, cast_subject, explicit_cast
from layoutopt.sql.problems import Unusable
from layoutopt.sql.types.coerce import TypedConstant, cast_constant
from layoutopt.sql.types.rules import is_integer

_MONTHS: Final[Mapping[str, int]] = MappingProxyType({"YEAR": 12, "MONTH": 1})
_CLOCK: Final = ("DAY", "HOUR", "MINUTE", "SECOND")
_TIMES: Final = frozenset({"date", "timestamp", "timestamp_ntz"})
MOST: Final = 1_000_000
"""The most days, months or seconds that are followed."""


def moved(node: exp.Expr, context: Context, read: Reader) -> Subject | None:
    """A sum or difference of a date or time and a constant; None for any other arithmetic.

    Raises:
        Unusable: the interval is of another form.
    """
    if not isinstance(node, exp.Add | exp.Sub):
        return None
    start, step = node.this, node.expression
    if isinstance(start, exp.Interval) and isinstance(node, exp.Add):
        start, step = step, start
    sign = -1 if isinstance(node, exp.Sub) else 1
    if isinstance(step, exp.Interval):
        unit = step.args["unit"].name.upper().removesuffix("S") if isinstance(step.args.get("unit"), exp.Var) else ""
        steps = sign * _count(read(step.this), node, context)
        return moved_by(_time(read(start), node), unit, steps, context, node.sql("spark"))
    given = read(start)
    if isinstance(given, TypedConstant) or given.type != "date":
        return None
    count = read(step)
    if not is_integer(count.type):
        return None
    return moved_by_days(given, sign * _count(count, node, context))


def date_added(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """``date_add(d, 3)`` and ``date_sub(d, 3)``."""
    unit = node.args.get("unit")
    if unit is not None and unit.name.upper() != "DAY":
        raise Unusable("unsupported-expression", f"{node.sql('spark')} is followed for days only")
    given = _time(read(node.this), node)
    return moved_by_days(cast_subject(given, "date", context), _count(read(node.expression), node, context))


def months_added(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """``add_months(d, 1)``: to the last day of the month, where that is shorter."""
    given = cast_subject(_time(read(node.this), node), "date", context)
    return moved_by(given, "MONTH", _count(read(node.expression), node, context), context, node.sql("spark"))


def _time(given: Operand, node: exp.Expr) -> Subject:
    if isinstance(given, TypedConstant) or given.type not in _TIMES:
        raise Unusable("coercion", f"{node.sql('spark')} is followed for columns of dates and times only")
    return given


def _count(given: Operand, node: exp.Expr, context: Context) -> int:
    value = None
    if isinstance(given, TypedConstant):
        value = cast_constant(given, "int", context.settings.time_zone).value
    if not isinstance(value, int) or abs(value) > MOST:
        raise Unusable("unsupported-expression", f"{node.sql('spark')} is followed for constants to {MOST:,} only")
    return value


def moved_by_days(given: Subject, days: int) -> Subject:
    """Return a date so many days later."""
    return Subject(Call("date_add", (explicit_cast(given), Const(days, "int")), "date"), "date")


def moved_by(given: Subject, unit: str, count: int, context: Context, text: str) -> Subject:
    """Return a date or time so many years, months, days, hours, minutes or seconds later.

    Raises:
        Unusable: the unit is another one.
    """
    if unit in _MONTHS:
        step = _interval("make_ym_interval", [0, count * _MONTHS[unit]], "interval year to month")
    elif unit == "DAY" and given.type == "date":
        return moved_by_days(given, count)
    elif unit in _CLOCK:
        place = _CLOCK.index(unit)
        step = _interval("make_dt_interval", [0] * place + [count], "interval day to second")
        given = cast_subject(given, "timestamp", context) if given.type == "date" else given
    else:
        raise Unusable("unsupported-expression", f"{text} is followed for years, months, and days to seconds")
    return Subject(Call("try_add", (explicit_cast(given), step), given.type), given.type)


def _interval(name: str, parts: list[int], kind: str) -> Expr:
    return Call(name, tuple(Const(part, "int") for part in parts), kind)
