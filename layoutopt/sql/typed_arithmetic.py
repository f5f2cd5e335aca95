"""Arithmetic, rounding and absolute values of typed operands, in forms that fail on no row.

The readers of SQL texts and of Catalyst's trees both build expressions here, so that a condition gets one form. In it,
constants have the type that Spark computes in, and an integer column lacks the cast that Spark's arithmetic implies.
Functions raise :class:`Unusable` where Spark may fail or the result has no exact type; ``text`` is for its message.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from layoutopt.model.predicates import Call, Const, Expr
from layoutopt.model.values.keys import float_key
from layoutopt.sql.operands import Context, Subject, cast_subject, explicit_cast
from layoutopt.sql.problems import Unusable
from layoutopt.sql.types import (
    INTEGER_DIGITS,
    arithmetic_type,
    common_type,
    decimal_type,
    exact_digits,
    is_floating,
    is_integer,
    is_number,
)

SIGNS: Final = {"try_add": "+", "try_subtract": "-", "try_multiply": "*", "try_divide": "/"}
_MAX_PLACES: Final = 30

# An operand; a constant has the type that Spark gives it beside the other operand.
Side: TypeAlias = Const | Subject


def combine(function: str, left: Side, right: Side, context: Context, text: str) -> Subject:
    """Return the result of ``try_add``, ``try_subtract``, ``try_multiply``, ``try_divide`` or ``try_mod``."""
    sides, kinds = (left, right), {left.type, right.type}
    if any(isinstance(side, Const) and side.value is None for side in sides) or not all(map(is_number, kinds)):
        raise Unusable("can-fail", f"{text} is supported for numbers only")
    is_whole = kinds <= INTEGER_DIGITS.keys()
    if function == "try_mod" and not is_whole:
        raise Unusable("can-fail", f"{text} is supported for integers only")
    if kinds == {"float"}:
        raise Unusable("can-fail", f"{text} is computed in single precision, which is not supported")
    if any(map(is_floating, kinds)) or (is_whole and function == "try_divide"):
        return _make_call(function, [_as_double(side, context) for side in sides], "double")
    if is_whole:
        kind = common_type(left.type, right.type)
        args = [_without_cast(side, kind) for side in sides]
        if common_type(*(arg.type for arg in args)) != kind:  # the casts make the result wider than the columns
            args = [arg if arg.type == kind else Call("try_cast", (arg,), kind) for arg in args]
        return _make_call(function, args, kind)
    kind = arithmetic_type(SIGNS[function], left.type, right.type)
    return _make_call(function, [_as_decimal(side) for side in sides], kind)


def _make_call(function: str, args: list[Expr], kind: str) -> Subject:
    return Subject(Call(function, tuple(args), kind), kind)


def _without_cast(side: Side, kind: str) -> Expr:
    if isinstance(side, Const):
        return Const(side.value, kind)
    return side.expr if is_integer(side.expr.type) else explicit_cast(side)


def _as_double(side: Side, context: Context) -> Expr:
    if isinstance(side, Const):
        return Const(_double_key(side), "double")
    expr = explicit_cast(cast_subject(side, "double", context))
    is_cast = isinstance(expr, Call) and expr.fn == "try_cast" and expr.type == "double"
    inner = expr.args[0] if isinstance(expr, Call) and is_cast else expr
    return inner if is_integer(inner.type) else expr


def _double_key(constant: Const) -> int:
    assert isinstance(constant.value, int), "keys of numbers are whole"
    if is_floating(constant.type):
        return constant.value
    digits = exact_digits(constant.type)
    assert digits is not None, "any other number is exact"
    return float_key(constant.value / 10 ** digits[1])


def _as_decimal(side: Side) -> Expr:
    if isinstance(side, Const):
        digits = exact_digits(side.type)
        assert digits is not None, "only whole numbers and decimals are passed"
        return Const(side.value, decimal_type(*digits))
    own = exact_digits(side.expr.type)
    if is_integer(side.expr.type) and own == exact_digits(side.type):
        return side.expr
    return explicit_cast(side)


def negate(number: Subject, context: Context, text: str) -> Subject:
    """Return ``-a``."""
    if is_floating(number.type):
        return combine("try_subtract", Const(0, "double"), number, context, text)
    zero = Const(0, "int" if is_integer(number.type) else "decimal(1,0)")
    difference = combine("try_subtract", zero, number, context, text)
    # Spark keeps a decimal's type, which decides the places of a quotient.
    return difference if is_integer(number.type) else Subject(difference.expr, number.type)


def absolute_value(number: Subject, text: str) -> Subject:
    """Return ``abs(a)``, in a wider type for integers: the smallest one has no absolute value of its own type."""
    if is_integer(number.type):
        wider = "decimal(20,0)" if number.type == "bigint" else "bigint"
        return Subject(Call("abs", (Call("try_cast", (number.expr,), wider),), wider), number.type)
    if not is_number(number.type):
        raise Unusable("coercion", f"{text}: {number.type} is not supported")
    return Subject(Call("abs", (explicit_cast(number),), number.type), number.type)


def floor_or_ceil(name: str, number: Subject, text: str) -> Subject:
    """Return ``floor(a)`` or ``ceil(a)`` of exact numbers."""
    if is_integer(number.type) or (is_floating(number.type) and is_integer(number.expr.type)):
        return Subject(number.expr, "bigint")
    digits = exact_digits(number.type)
    if digits is None:
        raise Unusable("unsupported-function", f"{text} of {number.type} may fail")
    kind = decimal_type(digits[0] - digits[1] + 1, 0)
    return Subject(Call(name, (explicit_cast(number),), kind), kind)


def floor_or_ceil_double(name: str, number: Subject, context: Context) -> Subject | None:
    """Return ``floor(x)`` or ``ceil(x)`` of a double, for comparisons with constants only; None for other numbers."""
    if not is_floating(number.type) or is_integer(number.expr.type):
        return None
    double = explicit_cast(cast_subject(number, "double", context))
    return Subject(Call(name, (double,), "bigint"), "bigint")


def divide_whole(number: Subject, divisor: object, text: str) -> Subject:
    """Return ``a DIV 10``, cut to a whole number, for comparisons with constants only."""
    if not is_integer(number.type) or not is_integer(number.expr.type):
        raise Unusable("unsupported-expression", f"{text} is supported for whole numbers only")
    if not isinstance(divisor, int) or divisor <= 0:
        raise Unusable("can-fail", f"{text} is supported for positive constants only")
    return Subject(Call("div", (number.expr, Const(divisor, "bigint")), "bigint"), "bigint")


def round_number(number: Subject, places: int, text: str) -> Subject:
    """Return ``round(a, places)``: half away from zero."""
    if not 0 <= places <= _MAX_PLACES:
        raise Unusable("unsupported-function", f"{text} is supported for 0 to {_MAX_PLACES} places only")
    digits = exact_digits(number.type)
    if is_integer(number.type):
        return number
    if digits is not None:
        scale = min(places, digits[1])
        kind = decimal_type(digits[0] - digits[1] + 1 + scale, scale)
    elif number.type == "double":
        kind = "double"
    else:
        raise Unusable("coercion", f"{text}: {number.type} is not supported")
    return Subject(Call("round", (explicit_cast(number), Const(places, "int")), kind), kind)
