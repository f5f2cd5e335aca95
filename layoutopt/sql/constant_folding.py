"""Constant folding: compute an expression without columns, typed and rounded exactly as Spark does.

Whatever can't be computed exactly (an overflow, a rounded quotient, an unknown function) raises :class:`Unusable`; a
wrong constant would make a wrong filter.
"""

from __future__ import annotations

import calendar
import datetime as dt
import operator
from collections.abc import Callable
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final

from sqlglot import exp

from layoutopt.model.types import INTEGER_BITS
from layoutopt.model.values import to_key
from layoutopt.sql.dialect_checks import is_check, read_check
from layoutopt.sql.functions import PARSED, SUFFIXED, list_arguments
from layoutopt.sql.problems import Unusable
from layoutopt.sql.schema import spark_type
from layoutopt.sql.time_formats import format_time, is_sorted_pattern, parse_time
from layoutopt.sql.types import (
    EXACT,
    TypedConstant,
    arithmetic_type,
    cast_constant,
    common_type,
    decimal_type,
    exact_digits,
    is_integer,
    is_number,
    normal_type,
    number_type,
)

# The months and days of an interval's units.
MONTHS: Final = MappingProxyType({"YEAR": 12, "MONTH": 1})
DAYS: Final = MappingProxyType({"WEEK": 7, "DAY": 1})
Shift = tuple[exp.Expr, exp.Expr, str, int]


def fold(node: exp.Expr, zone: str) -> TypedConstant:
    """Return the value of an expression of Spark's dialect without columns, in the session's time zone."""
    folder = _FOLDERS.get(type(node))
    if folder is None:
        raise Unusable("unsupported-expression", f"{node.sql('spark')} is not supported")
    return folder(node, zone)


def _fold_literal(node: exp.Expr, zone: str) -> TypedConstant:
    return TypedConstant(node.name, "string") if node.args["is_string"] else parse_number(node.name)


def parse_number(text: str) -> TypedConstant:
    """Return a number literal in Spark's type (:func:`layoutopt.sql.types.number_type`).

    >>> parse_number("5"), parse_number("0.05")
    (TypedConstant(value=5, type='int'), TypedConstant(value=Decimal('0.05'), type='decimal(2,2)'))
    """
    kind = number_type(text)
    if kind == "double":
        return TypedConstant(float(text), kind)
    return TypedConstant(int(text) if is_integer(kind) else Decimal(text), kind)


def _fold_negative(node: exp.Expr, zone: str) -> TypedConstant:
    inner = node.this
    if isinstance(inner, exp.Literal) and not inner.args["is_string"]:
        return parse_number("-" + inner.name)  # Spark reads the sign as part of the number
    operand = fold(inner, zone)
    if operand.value is None:
        return operand
    if not is_number(operand.type) or not isinstance(operand.value, int | float | Decimal):
        raise Unusable("inexact", f"{node.sql('spark')} is not supported")
    value = operand.value.copy_negate() if isinstance(operand.value, Decimal) else -operand.value
    return _check_range(value, operand.type)


def _check_range(value: int | float | Decimal, kind: str) -> TypedConstant:
    if is_integer(kind) and not -(1 << INTEGER_BITS[kind] - 1) <= value < 1 << INTEGER_BITS[kind] - 1:
        raise Unusable("inexact", f"{value} overflows {kind}")
    return TypedConstant(value, kind)


def _fold_cast(node: exp.Expr, zone: str) -> TypedConstant:
    return cast_constant(fold(node.this, zone), normal_type(spark_type(node.args["to"])), zone)


def _fold_to_date(node: exp.Expr, zone: str) -> TypedConstant:
    return cast_constant(_fold_time(node, zone) if node.args.get("format") else fold(node.this, zone), "date", zone)


def _fold_time(node: exp.Expr, zone: str) -> TypedConstant:
    """Return ``to_timestamp('20200131', 'yyyyMMdd')``, of exactly the format's digits."""
    operand, pattern = fold(node.this, zone), node.args.get("format")
    if pattern is None or not isinstance(operand.value, str):
        return cast_constant(operand, "timestamp", zone)
    time = parse_time(operand.value, pattern.name)
    if time is None:
        raise Unusable("inexact", f"{node.sql('spark')} can't be computed exactly")
    return cast_constant(TypedConstant(time, "timestamp_ntz"), "timestamp", zone)


def _fold_unix_time(node: exp.Expr, zone: str) -> TypedConstant:
    value = _fold_time(node, zone).value
    if not isinstance(value, dt.datetime):
        raise Unusable("inexact", f"{node.sql('spark')} can't be computed exactly")
    return TypedConstant(int(to_key(value, "timestamp")) // 1_000_000, "bigint")


def _fold_time_text(node: exp.Expr, zone: str) -> TypedConstant:
    """Return ``date_format(DATE '2020-01-31', 'yyyyMM')``."""
    operand, pattern = node.this, node.args["format"].name
    value = cast_constant(fold(operand, zone), "timestamp_ntz", zone).value
    if not isinstance(value, dt.datetime) or not is_sorted_pattern(pattern):
        raise Unusable("inexact", f"{node.sql('spark')} can't be computed exactly")
    return TypedConstant(format_time(value, pattern), "string")


def is_folded(node: exp.Expr) -> bool:
    """Return whether a call without a class in sqlglot is folded."""
    return node.name.casefold() == "make_date" or is_check(node)


def _fold_named(node: exp.Expr, zone: str) -> TypedConstant:
    if is_check(node):
        operand = read_check(node, zone, lambda part: fold(part, zone))
        if isinstance(operand, TypedConstant):
            return operand
        raise Unusable("unsupported-expression", f"{node.sql('spark')} is not supported")
    parts = [fold(part, zone).value for part in node.expressions]
    if node.name.casefold() == "make_date" and len(parts) == 3 and all(isinstance(part, int) for part in parts):
        return TypedConstant(dt.date(*parts), "date")  # type: ignore[arg-type]  # they are whole numbers
    raise Unusable("unsupported-expression", f"{node.sql('spark')} is not supported")


def _fold_arithmetic(node: exp.Expr, zone: str) -> TypedConstant:
    shift = split_shift(node)
    if shift is not None:
        return _fold_shift(node, shift, zone)
    left, right = fold(node.this, zone), fold(node.expression, zone)
    if left.type == "date" and is_integer(right.type) and isinstance(node, exp.Add | exp.Sub):
        return _shift_time(left, right, node, days=-1 if isinstance(node, exp.Sub) else 1)
    if not (is_number(left.type) and is_number(right.type)):
        raise Unusable("inexact", f"{node.sql('spark')} is not supported")
    if left.value is None or right.value is None:
        return TypedConstant(None, "void")
    are_integers = is_integer(left.type) and is_integer(right.type)
    if are_integers and not isinstance(node, exp.Div):
        return _fold_integer_arithmetic(node, left, right)
    if exact_digits(left.type) and exact_digits(right.type) and not are_integers:
        return _fold_decimal_arithmetic(node, left, right)
    return _fold_double_arithmetic(node, left, right, zone)  # whole / whole is a double


def _fold_integer_arithmetic(node: exp.Expr, left: TypedConstant, right: TypedConstant) -> TypedConstant:
    first, second = int(left.value), int(right.value)  # type: ignore[arg-type]
    kind = common_type(left.type, right.type)
    if isinstance(node, exp.Mod | exp.IntDiv):
        if second == 0:
            raise Unusable("inexact", f"{node.sql('spark')} divides by zero")
        quotient = abs(first) // abs(second) * (1 if (first < 0) == (second < 0) else -1)
        if isinstance(node, exp.IntDiv):
            return _check_range(quotient, "bigint")
        return TypedConstant(first - quotient * second, kind)
    return _check_range(_OPERATIONS[type(node)](first, second), kind)


_DECIMAL_OPERATIONS: dict[type[exp.Expr], tuple[str, Callable[[Decimal, Decimal], Decimal]]] = {
    exp.Add: ("+", EXACT.add),
    exp.Sub: ("-", EXACT.subtract),
    exp.Mul: ("*", EXACT.multiply),
}


def type_beside_decimal(node: exp.Expr, constant: TypedConstant) -> str:
    """Return the type of a constant as an operand of decimal arithmetic.

    An integer literal has only its own digits; a computed integer has those of its type.

    >>> node, constant = exp.Literal.number(1024), parse_number("1024")
    >>> type_beside_decimal(node, constant), type_beside_decimal(exp.cast(node, "int"), constant)
    ('decimal(4,0)', 'int')
    """
    literal = node.unnest()
    if isinstance(literal, exp.Neg):
        literal = literal.this
    if literal.meta.get(SUFFIXED):
        literal = literal.this
    elif isinstance(literal, exp.TryCast) and "format" not in literal.args:
        raise Unusable("inexact", f"{node.sql('spark')} may be a literal or a cast; write cast(... AS ...)")
    if is_integer(constant.type) and isinstance(constant.value, int) and isinstance(literal, exp.Literal):
        return decimal_type(len(str(abs(constant.value))), 0)
    return constant.type


def _fold_decimal_arithmetic(node: exp.Expr, left: TypedConstant, right: TypedConstant) -> TypedConstant:
    first, second = Decimal(left.value), Decimal(right.value)  # type: ignore[arg-type]
    types = type_beside_decimal(node.this, left), type_beside_decimal(node.expression, right)
    if type(node) in _DECIMAL_OPERATIONS:
        sign, compute = _DECIMAL_OPERATIONS[type(node)]
        return TypedConstant(compute(first, second), arithmetic_type(sign, *types))
    if isinstance(node, exp.Div) and second:
        (p1, s1), (p2, s2) = exact_digits(types[0]) or (0, 0), exact_digits(types[1]) or (0, 0)
        scale = max(6, s1 + p2 + 1)
        kind = decimal_type(p1 - s1 + s2 + scale, scale)
        quotient = EXACT.divide(first, second).quantize(Decimal(1).scaleb(-scale), context=EXACT)
        if EXACT.multiply(quotient, second) == first:
            return TypedConstant(quotient, kind)
    raise Unusable("inexact", f"{node.sql('spark')} can't be computed exactly")


def _fold_double_arithmetic(node: exp.Expr, left: TypedConstant, right: TypedConstant, zone: str) -> TypedConstant:
    if "float" in (left.type, right.type):
        raise Unusable("inexact", f"{node.sql('spark')} is in single precision, which is not supported")
    first = cast_constant(left, "double", zone).value
    second = cast_constant(right, "double", zone).value
    if not isinstance(first, float) or not isinstance(second, float):
        raise Unusable("inexact", f"{node.sql('spark')} is not supported")
    if isinstance(node, exp.Div) and second != 0:
        return TypedConstant(first / second, "double")
    operation = _OPERATIONS.get(type(node))
    if operation is None:
        raise Unusable("inexact", f"{node.sql('spark')} can't be computed exactly")
    return TypedConstant(operation(first, second), "double")


_OPERATIONS: dict[type[exp.Expr], Callable[[Any, Any], Any]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
}


def split_shift(node: exp.Expr) -> Shift | None:
    """Return a time, and the count, unit and sign of the interval that it is shifted by; None for other arithmetic."""
    start, step = node.this, node.expression
    if isinstance(start, exp.Interval) and isinstance(node, exp.Add):
        start, step = step, start
    if not isinstance(step, exp.Interval) or not isinstance(node, exp.Add | exp.Sub):
        return None
    return start, step.this, step.text("unit").upper().removesuffix("S"), -1 if isinstance(node, exp.Sub) else 1


def _fold_shift(node: exp.Expr, shift: Shift, zone: str) -> TypedConstant:
    start, (_, amount, unit, sign) = fold(shift[0], zone), shift
    if start.value is None:
        return start
    count = cast_constant(fold(amount, zone), "int", zone)
    # A day of local time is not always 24 hours, so instants are shifted in UTC only.
    shiftable = start.type in ("date", "timestamp_ntz") or (start.type == "timestamp" and zone == "UTC")
    if not shiftable or unit not in MONTHS | DAYS or count.value is None:
        raise Unusable("inexact", f"{node.sql('spark')} is not supported")
    return _shift_time(start, count, node, months=sign * MONTHS.get(unit, 0), days=sign * DAYS.get(unit, 0))


def _shift_time(
    start: TypedConstant, count: TypedConstant, node: exp.Expr, *, months: int = 0, days: int = 0
) -> TypedConstant:
    """Return a date or time shifted by ``count`` times some months or days; NULL if a constant is."""
    if start.value is None or count.value is None:
        return TypedConstant(None, start.type)
    if not isinstance(start.value, dt.date) or not isinstance(count.value, int):
        raise Unusable("inexact", f"{node.sql('spark')} is not supported")
    if months:
        return TypedConstant(plus_months(start.value, months * count.value), start.type)
    try:
        return TypedConstant(start.value + dt.timedelta(days=days * count.value), start.type)
    except OverflowError as error:
        raise Unusable("inexact", f"{node.sql('spark')} is outside the years 1 to 9999") from error


def plus_months(day: dt.date, months: int) -> dt.date:
    """Return the day some months later, or the last day of a shorter month, as Spark does.

    >>> plus_months(dt.date(1994, 1, 31), 1)
    datetime.date(1994, 2, 28)
    """
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise Unusable("inexact", f"{day} plus {months} months is outside the years 1 to 9999")
    last = calendar.monthrange(year, month + 1)[1]
    return day.replace(year=year, month=month + 1, day=min(day.day, last))


def _fold_add_months(node: exp.Expr, zone: str) -> TypedConstant:
    start, months = fold(node.this, zone), fold(node.expression, zone)
    return _shift_time(cast_constant(start, "date", zone), cast_constant(months, "int", zone), node, months=1)


def _fold_date_add(node: exp.Expr, zone: str) -> TypedConstant:
    unit = node.args.get("unit")
    if unit is not None and unit.name.upper() != "DAY":
        raise Unusable("unsupported-expression", f"{node.sql('spark')} is not supported")
    start = cast_constant(fold(node.this, zone), "date", zone)
    return _shift_time(start, fold(node.expression, zone), node, days=1)


def _fold_call(node: exp.Expr, zone: str) -> TypedConstant:
    function, parts = PARSED[type(node)], list_arguments(node)
    kinds = function.argument_types(len(parts)) or ()
    values = [cast_constant(fold(p, zone), kind, zone).value for p, kind in zip(parts, kinds, strict=False)]
    if None in values:
        return TypedConstant(None, str(function.gives))
    value = function.evaluate([value for value in values if isinstance(value, int | str)])
    if value is None:
        raise Unusable("inexact", f"{node.sql('spark')} can't be computed exactly")
    return TypedConstant(value, str(function.gives))


def _fold_coalesce(node: exp.Expr, zone: str) -> TypedConstant:
    operands = [fold(argument, zone) for argument in (node.this, *node.expressions)]
    kinds = {operand.type for operand in operands} - {"void"}
    if len(kinds) > 1:
        raise Unusable("coercion", f"{node.sql('spark')} mixes {' and '.join(sorted(kinds))}")
    return next((operand for operand in operands if operand.value is not None), operands[0])


_FOLDERS: dict[type[exp.Expr], Callable[[exp.Expr, str], TypedConstant]] = {
    exp.Literal: _fold_literal,
    exp.RawString: lambda node, zone: TypedConstant(node.name, "string"),
    exp.HexString: lambda node, zone: TypedConstant(
        bytes.fromhex(node.name.zfill(len(node.name) + len(node.name) % 2)), "binary"
    ),
    exp.Boolean: lambda node, zone: TypedConstant(bool(node.this), "boolean"),
    exp.Null: lambda node, zone: TypedConstant(None, "void"),
    exp.Paren: lambda node, zone: fold(node.this, zone),
    exp.Neg: _fold_negative,
    exp.Cast: _fold_cast,
    exp.TryCast: _fold_cast,
    exp.TsOrDsToDate: _fold_to_date,
    exp.StrToTime: _fold_time,
    exp.StrToUnix: _fold_unix_time,
    exp.TimeToStr: _fold_time_text,
    exp.TimeStrToTime: lambda node, zone: fold(node.this, zone),
    exp.Anonymous: _fold_named,
    exp.Add: _fold_arithmetic,
    exp.Sub: _fold_arithmetic,
    exp.Mul: _fold_arithmetic,
    exp.Div: _fold_arithmetic,
    exp.Mod: _fold_arithmetic,
    exp.IntDiv: _fold_arithmetic,
    exp.AddMonths: _fold_add_months,
    exp.TsOrDsAdd: _fold_date_add,
    exp.Coalesce: _fold_coalesce,
    **{kind: _fold_call for kind, function in PARSED.items() if function.compute and function.gives},
}
