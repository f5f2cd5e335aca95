"""What a condition is about while it is read: expressions of columns with their types, cast as Spark casts them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sqlglot import exp

from layoutopt.model.feature import Settings
from layoutopt.model.predicates import Call, Const, Expr
from layoutopt.model.schema import Column
from layoutopt.model.udf import Udfs
from layoutopt.model.values import to_key
from layoutopt.sql.problems import Unusable
from layoutopt.sql.types import INTEGER_DIGITS, TypedConstant, cast_constant, exact_digits, is_integer


@dataclass(frozen=True)
class Subject:
    """What a condition is about: an expression of columns.

    Attributes:
        expr: the expression as it is evaluated.
        type: the type it is compared as. It may be wider than the expression's own type where the widening keeps
            every value and order (``cast(x as bigint)`` of an int x), so that the cast can be left out.
    """

    expr: Expr
    type: str


Operand = TypedConstant | Subject


@dataclass(frozen=True)
class Context:
    """What an expression is read in.

    Attributes:
        resolve: the table's column that a reference means, and the names of the fields of it that follow; raises
            :class:`Unusable` where it is none.
        settings: the session settings that decide types and meaning.
        udfs: the deterministic functions that the user declared.
    """

    resolve: Callable[[exp.Column], tuple[Column, tuple[str, ...]]]
    settings: Settings
    udfs: Udfs = field(default_factory=dict)


Reader = Callable[[exp.Expr], Operand]
"""Reads an argument."""


def cast_subject(given: Subject, to: str, context: Context) -> Subject:
    """The subject cast to a type, in a form that fails on no row (a value that can't be cast is NULL).

    Raises:
        Unusable: ``coercion``: no such cast, or ANSI mode is off, where casts wrap around.
    """
    if given.type == to:
        return given
    if _keeps_values(given.type, to):
        return Subject(given.expr, to)
    if not context.settings.ansi:
        raise Unusable("coercion", f"a cast to {to} has another meaning without ANSI mode")
    if "<" in given.type or "<" in to or to.startswith("interval"):
        raise Unusable("coercion", f"a cast from {given.type} to {to} is not followed here")
    if given.type == "string" and to == "timestamp":
        raise Unusable(
            "non-deterministic", "a text of a time alone, as '12:30', is a timestamp of the day it is read on"
        )
    if to == "float" and given.type in ("int", "bigint"):
        # Spark's optimiser drops it below a cast to double, and compares the digits that it would have rounded
        raise Unusable("inexact", f"a cast from {given.type} to float rounds, or not, by where it stands")
    return Subject(Call("try_cast", (explicit_cast(given),), to), to)


def explicit_cast(given: Subject) -> Expr:
    """The expression with its type as evaluated: a cast that was left out is written down."""
    if given.expr.type == given.type:
        return given.expr
    return Call("try_cast", (given.expr,), given.type)


def _keeps_values(source: str, to: str) -> bool:
    """Whether a cast changes no value and no comparison, so that it can be left out."""
    if is_integer(source) and is_integer(to):
        return INTEGER_DIGITS[source] <= INTEGER_DIGITS[to]
    if to == "double":
        return source in ("float", "tinyint", "smallint", "int")
    before, after = exact_digits(source), exact_digits(to)
    if before is None or after is None or is_integer(to):
        return False
    return after[1] >= before[1] and after[0] - after[1] >= before[0] - before[1]


def const(constant: TypedConstant) -> Const:
    """The model's constant.

    Raises:
        Unusable: ``inexact``: the type can't hold the value.
    """
    if constant.value is None:
        return Const(None, constant.type)
    try:
        return Const(to_key(constant.value, constant.type), constant.type)
    except ValueError as error:
        raise Unusable("inexact", str(error)) from error


def typed(given: Operand, kind: str, context: Context) -> Expr:
    """A constant or a subject cast to a type, as an argument.

    Raises:
        Unusable: there is no such cast, or it is not exact.
    """
    if isinstance(given, TypedConstant):
        return const(cast_constant(given, kind, context.settings.time_zone))
    return explicit_cast(cast_subject(given, kind, context))


def constant_of(given: Operand, type: type, text: str) -> object:
    """The value of an argument that has to be a constant, of a Python type.

    Raises:
        Unusable: it is none, or NULL, or of another type.
    """
    if not isinstance(given, TypedConstant) or not isinstance(given.value, type):
        raise Unusable("unsupported-expression", f"{text} is followed for constants only")
    return given.value
