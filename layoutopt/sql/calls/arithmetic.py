"""Arithmetic of columns in the form that fails on no row, with the types that Spark gives it; rounding, extremes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from sqlglot import exp

from layoutopt.model.predicates import Call, Const, Expr
from layoutopt.sql.calls import moments
from layoutopt.sql.calls.subjects import Context, Operand, Reader, Subject, const, constant_of, explicit_cast, typed
from layoutopt.sql.functions import TRY_ARITHMETIC
from layoutopt.sql.problems import Unusable
from layoutopt.sql.types.coerce import TypedConstant
from layoutopt.sql.types.fold import type_beside_decimal
from layoutopt.sql.types.rules import (
    INTEGER_DIGITS,
    arithmetic_type,
    common_type,
    decimal_type,
    exact_digits,
    is_floating,
    is_integer,
    is_number,
    listed_type,
)

_SIGNS: Final[dict[type[exp.Expr], str]] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}
_MOST_PLACES: Final = 30


def arithmetic(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """``a + b`` and the like of numbers, and dates and times moved by days or intervals.

    Raises:
        Unusable: of others, or ANSI mode is off, where results wrap around.
    """
    if not context.settings.ansi:
        raise Unusable("can-fail", f"{node.sql('spark')} has another meaning without ANSI mode")
    moved = moments.moved(node, context, read)
    if moved is not None:
        return moved
    left, right = read(node.this), read(node.expression)
    kinds = {left.type, right.type}
    if kinds <= {*INTEGER_DIGITS, "double"}:
        kind = "double" if isinstance(node, exp.Div) else common_type(left.type, right.type)
        if isinstance(node, exp.Mod) and kind == "double":
            raise Unusable("can-fail", f"{node.sql('spark')} is followed for integers only")
        return _called(node, [_as_it_is(each) for each in (left, right)], kind)
    if not all(map(is_number, kinds)) or kinds == {"float"} or isinstance(node, exp.Mod):
        raise Unusable("can-fail", f"{node.sql('spark')} is followed for numbers of other types only")
    if any(map(is_floating, kinds)):
        return _called(node, [typed(each, "double", context) for each in (left, right)], "double")
    kind = arithmetic_type(_SIGNS[type(node)], _type_of(node.this, left), _type_of(node.expression, right))
    return _called(node, [_as_it_is(each) for each in (left, right)], kind)


def _called(node: exp.Expr, args: Sequence[Expr], kind: str) -> Subject:
    return Subject(Call(TRY_ARITHMETIC[type(node)], tuple(args), kind), kind)


def _as_it_is(given: Operand) -> Expr:
    return const(given) if isinstance(given, TypedConstant) else explicit_cast(given)


def _type_of(node: exp.Expr, given: Operand) -> str:
    return type_beside_decimal(node, given) if isinstance(given, TypedConstant) else given.type


def negative(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """``-a``."""
    return arithmetic(exp.Sub(this=exp.Literal.number(0), expression=node.this.copy()), context, read)


def floored(name: str) -> Callable[[exp.Expr, Context, Reader], Subject]:
    """``floor(a)`` or ``ceil(a)`` of exact numbers; of a float it fails where that is NaN, or no bigint holds it."""

    def reader(node: exp.Expr, context: Context, read: Reader) -> Subject:
        if node.args.get("decimals") is not None or node.args.get("to") is not None:
            raise Unusable("unsupported-function", f"{node.sql('spark')} names the places, which is not followed here")
        given = _subject(read(node.this), node)
        digits = exact_digits(given.type)
        if is_integer(given.type):
            return Subject(given.expr, "bigint")
        if digits is None:
            raise Unusable("unsupported-function", f"{node.sql('spark')} of {given.type} may fail")
        kind = decimal_type(digits[0] - digits[1] + 1, 0)
        return Subject(Call(name, (explicit_cast(given),), kind), kind)

    return reader


def whole_of_double(node: exp.Expr, context: Context, read: Reader) -> Subject | None:
    """``floor(x)`` or ``ceil(x)`` of a double, which a comparison with a constant says of ``x`` itself; else None.

    It fails where no bigint holds the value, so it may stand nowhere else.
    """
    node = node.unnest()
    if not isinstance(node, exp.Floor | exp.Ceil) or node.args.get("decimals") or node.args.get("to"):
        return None
    if not context.settings.ansi:
        return None  # what does not fit is the largest bigint then, not a failure
    given = read(node.this)
    if isinstance(given, TypedConstant) or not is_floating(given.type):
        return None
    name = "floor" if isinstance(node, exp.Floor) else "ceil"
    return Subject(Call(name, (typed(given, "double", context),), "bigint"), "bigint")


def rounded(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """``round(a, 2)``: half away from zero."""
    given, places = _subject(read(node.this), node), 0
    if node.args.get("decimals") is not None:
        places = int(str(constant_of(read(node.args["decimals"]), int, node.sql("spark"))))
    if node.args.get("truncate") is not None or not 0 <= places <= _MOST_PLACES:
        raise Unusable("unsupported-function", f"{node.sql('spark')} is followed for places after the point only")
    digits = exact_digits(given.type)
    if is_integer(given.type):
        return given
    if digits is not None:
        scale = min(places, digits[1])
        kind = decimal_type(digits[0] - digits[1] + 1 + scale, scale)
    elif given.type == "double":
        kind = "double"
    else:
        raise Unusable("coercion", f"{node.sql('spark')} is taken of {given.type}")
    return Subject(Call("round", (explicit_cast(given), Const(places, "int")), kind), kind)


def _subject(given: Operand, node: exp.Expr) -> Subject:
    if isinstance(given, TypedConstant):
        raise Unusable("unsupported-expression", f"{node.sql('spark')} is a constant")
    return given


def one_of(name: str) -> Callable[[exp.Expr, Context, Reader], Subject]:
    """``coalesce``, ``greatest`` or ``least`` of expressions of one type: NULL where all are."""

    def reader(node: exp.Expr, context: Context, read: Reader) -> Subject:
        given = [read(each) for each in (node.this, *node.expressions)]
        kind = listed_type((each.type for each in given), ansi=context.settings.ansi)
        return Subject(Call(name, tuple(typed(each, kind, context) for each in given), kind), kind)

    return reader
