"""Arithmetic of columns as SQL texts write it; rounding, extremes."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from layoutopt.model.predicates import Call, Const
from layoutopt.model.types import decimal_digits
from layoutopt.sql.calls import moments, numbers
from layoutopt.sql.calls.subjects import Context, Operand, Reader, Subject, const, constant_of, typed
from layoutopt.sql.functions import TRY_ARITHMETIC
from layoutopt.sql.problems import Unusable
from layoutopt.sql.types.coerce import TypedConstant
from layoutopt.sql.types.fold import type_beside_decimal
from layoutopt.sql.types.rules import decimal_type, exact_digits, is_integer, listed_type


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
    is_decimal = any(decimal_digits(each.type) for each in (left, right))
    sides = [_side(of, given, is_decimal) for of, given in ((node.this, left), (node.expression, right))]
    return numbers.combine(TRY_ARITHMETIC[type(node)], sides[0], sides[1], context, node.sql("spark"))


def _side(node: exp.Expr, given: Operand, is_decimal: bool) -> numbers.Side:
    """An operand; beside a decimal a whole number that is written down has the digits that it has."""
    if not isinstance(given, TypedConstant):
        return given
    if is_decimal and is_integer(given.type) and isinstance(given.value, int):
        digits = exact_digits(type_beside_decimal(node, given))
        assert digits is not None, "a whole number has digits"
        return Const(given.value, decimal_type(*digits))
    return const(given)


def negative(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """``-a``."""
    if not context.settings.ansi:
        raise Unusable("can-fail", f"{node.sql('spark')} has another meaning without ANSI mode")
    return numbers.negative(_subject(read(node.this), node), context, node.sql("spark"))


def floored(name: str) -> Callable[[exp.Expr, Context, Reader], Subject]:
    """``floor(a)`` or ``ceil(a)`` of exact numbers; of a float it fails where that is NaN, or no bigint holds it."""

    def reader(node: exp.Expr, context: Context, read: Reader) -> Subject:
        if node.args.get("decimals") is not None or node.args.get("to") is not None:
            raise Unusable("unsupported-function", f"{node.sql('spark')} names the places, which is not followed here")
        return numbers.whole(name, _subject(read(node.this), node), node.sql("spark"))

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
    if isinstance(given, TypedConstant):
        return None
    return numbers.whole_of_double("floor" if isinstance(node, exp.Floor) else "ceil", given, context)


def rounded(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """``round(a, 2)``: half away from zero."""
    given, places = _subject(read(node.this), node), 0
    if node.args.get("decimals") is not None:
        places = int(str(constant_of(read(node.args["decimals"]), int, node.sql("spark"))))
    if node.args.get("truncate") is not None:
        raise Unusable("unsupported-function", f"{node.sql('spark')} has an argument that is not followed here")
    return numbers.rounded(given, places, node.sql("spark"))


def absolute(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """``abs(a)``."""
    given = _subject(read(node.this), node)
    if is_integer(given.type) and not context.settings.ansi:
        raise Unusable("coercion", f"{node.sql('spark')} of the smallest {given.type} is itself without ANSI mode")
    return numbers.absolute(given, node.sql("spark"))


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
