"""Arithmetic, rounding and absolute values of typed operands, in forms that fail on no row.

Both readers build their expressions here, the one of SQL texts and the one of Catalyst's trees, so that one condition
is one expression whichever of them reads it. In one form constants have the type that Spark computes in, and a column
of whole numbers stands without the cast that Spark's arithmetic adds anyway.
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
_MOST_PLACES: Final = 30

Side: TypeAlias = Const | Subject
"""An operand; the type of a constant is the one that Spark gives it beside the other operand."""


def combine(function: str, left: Side, right: Side, context: Context, text: str) -> Subject:
    """Return ``left + right`` and the like of numbers.

    Args:
        function: ``try_add``, ``try_subtract``, ``try_multiply``, ``try_divide`` or ``try_mod``.
        left: the first operand.
        right: the second.
        context: of casts.
        text: names the expression in messages.

    Raises:
        Unusable: the operands are no numbers, or the result has no exact type here.
    """
    sides, kinds = (left, right), {left.type, right.type}
    if any(isinstance(side, Const) and side.value is None for side in sides) or not all(map(is_number, kinds)):
        raise Unusable("can-fail", f"{text} is followed for numbers only")
    is_whole = kinds <= INTEGER_DIGITS.keys()
    if function == "try_mod" and not is_whole:
        raise Unusable("can-fail", f"{text} is followed for integers only")
    if kinds == {"float"}:
        raise Unusable("can-fail", f"{text} is computed in single precision, which is not followed here")
    if any(map(is_floating, kinds)) or (is_whole and function == "try_divide"):
        return _called(function, [_as_double(side, context) for side in sides], "double")
    if is_whole:
        kind = common_type(left.type, right.type)
        args = [_without_cast(side, kind) for side in sides]
        if common_type(*(arg.type for arg in args)) != kind:  # the casts make the result wider than the columns are
            args = [arg if arg.type == kind else Call("try_cast", (arg,), kind) for arg in args]
        return _called(function, args, kind)
    kind = arithmetic_type(SIGNS[function], left.type, right.type)
    return _called(function, [_as_decimal(side) for side in sides], kind)


def _called(function: str, args: list[Expr], kind: str) -> Subject:
    return Subject(Call(function, tuple(args), kind), kind)


def _without_cast(side: Side, kind: str) -> Expr:
    """Whole numbers in whole arithmetic, a constant in the type of the result."""
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
        assert digits is not None, "whole numbers and decimals alone come here"
        return Const(side.value, decimal_type(*digits))
    own = exact_digits(side.expr.type)
    if is_integer(side.expr.type) and own == exact_digits(side.type):
        return side.expr
    return explicit_cast(side)


def negative(given: Subject, context: Context, text: str) -> Subject:
    """Return ``-a``.

    Raises:
        Unusable: it is no number.
    """
    if is_floating(given.type):
        return combine("try_subtract", Const(0, "double"), given, context, text)
    zero = Const(0, "int" if is_integer(given.type) else "decimal(1,0)")
    found = combine("try_subtract", zero, given, context, text)
    # Of a decimal Spark keeps the type, by which it chooses the places of a quotient.
    return found if is_integer(given.type) else Subject(found.expr, given.type)


def absolute(given: Subject, text: str) -> Subject:
    """Return ``abs(a)``, which fails for the smallest integer: it has no absolute value of its own type.

    Raises:
        Unusable: it is no number.
    """
    if is_integer(given.type):
        # in a wider type, in which Spark compares all the same
        wider = "decimal(20,0)" if given.type == "bigint" else "bigint"
        return Subject(Call("abs", (Call("try_cast", (given.expr,), wider),), wider), given.type)
    if not is_number(given.type):
        raise Unusable("coercion", f"{text} is taken of {given.type}")
    return Subject(Call("abs", (explicit_cast(given),), given.type), given.type)


def whole(name: str, given: Subject, text: str) -> Subject:
    """Return ``floor(a)`` or ``ceil(a)`` of exact numbers.

    Raises:
        Unusable: of a float, where it may fail.
    """
    if is_integer(given.type) or (is_floating(given.type) and is_integer(given.expr.type)):
        return Subject(given.expr, "bigint")
    digits = exact_digits(given.type)
    if digits is None:
        raise Unusable("unsupported-function", f"{text} of {given.type} may fail")
    kind = decimal_type(digits[0] - digits[1] + 1, 0)
    return Subject(Call(name, (explicit_cast(given),), kind), kind)


def whole_of_double(name: str, given: Subject, context: Context) -> Subject | None:
    """Return ``floor(x)`` or ``ceil(x)`` of a double, which may stand beside a constant only; None of other numbers."""
    if not is_floating(given.type) or is_integer(given.expr.type):
        return None
    double = explicit_cast(cast_subject(given, "double", context))
    return Subject(Call(name, (double,), "bigint"), "bigint")


def rounded(given: Subject, places: int, text: str) -> Subject:
    """Return ``round(a, places)``: half away from zero.

    Raises:
        Unusable: of a float, or for places before the point.
    """
    if not 0 <= places <= _MOST_PLACES:
        raise Unusable("unsupported-function", f"{text} is followed for places after the point only")
    digits = exact_digits(given.type)
    if is_integer(given.type):
        return given
    if digits is not None:
        scale = min(places, digits[1])
        kind = decimal_type(digits[0] - digits[1] + 1 + scale, scale)
    elif given.type == "double":
        kind = "double"
    else:
        raise Unusable("coercion", f"{text} is taken of {given.type}")
    return Subject(Call("round", (explicit_cast(given), Const(places, "int")), kind), kind)
