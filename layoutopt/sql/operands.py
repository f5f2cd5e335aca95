"""Operands of conditions: typed constants and expressions of columns, cast as Spark casts them.

A cast that does not exist or is not exact raises :class:`Unusable`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sqlglot import exp

from layoutopt.model.feature import SessionSettings
from layoutopt.model.predicates import Call, Const, Expr
from layoutopt.model.schema import Column
from layoutopt.model.udf import Udfs
from layoutopt.model.values import to_key
from layoutopt.sql.problems import Unusable
from layoutopt.sql.types import INTEGER_DIGITS, TypedConstant, cast_constant, exact_digits, is_integer


@dataclass(frozen=True)
class Subject:
    """The subject of a condition: an expression of columns.

    Attributes:
        expr: the expression as it is evaluated.
        type: the type it is compared as. It may be wider than the expression's own type where the widening keeps
            every value and order (``cast(x as bigint)`` of an int x), so that the cast can be left out.
        dialect: whose rules its comparisons follow; "" for Spark's.
    """

    expr: Expr
    type: str
    dialect: str = ""


Operand = TypedConstant | Subject


@dataclass(frozen=True)
class Context:
    """The context of an expression: its session, declared functions, and a resolver of column references.

    Attributes:
        resolve: returns the table's column and the names of the fields that follow, or raises :class:`Unusable`.
        is_strict: whether filters must be exact; else they may hold for more rows.
        known: operands that are read once, by the identity of their nodes, which outlive the context; None for those
            that were not yet read.
    """

    resolve: Callable[[exp.Column], tuple[Column, tuple[str, ...]]]
    settings: SessionSettings
    udfs: Udfs = field(default_factory=dict)
    known: dict[int, Operand | None] = field(default_factory=dict)
    is_strict: bool = False


# Reads an argument.
Reader = Callable[[exp.Expr], Operand]


def cast_subject(subject: Subject, to: str, context: Context) -> Subject:
    """Return the subject cast to a type, in a form that fails on no row (a value that can't be cast is NULL)."""
    if subject.type == to:
        return subject
    if _keeps_values(subject.type, to):
        return Subject(subject.expr, to)
    if not context.settings.ansi:
        raise Unusable("coercion", f"a cast to {to} is supported in ANSI mode only")
    if "<" in subject.type or "<" in to or to.startswith("interval"):
        raise Unusable("coercion", f"a cast from {subject.type} to {to} is not supported")
    if subject.type == "string" and to == "timestamp":
        raise Unusable("non-deterministic", "a text with a time alone, such as '12:30', becomes a timestamp of today")
    if to == "float" and subject.type in ("int", "bigint"):
        # Below a cast to double, Spark's optimiser drops this cast and compares the digits it would have rounded.
        raise Unusable("inexact", f"a cast from {subject.type} to float may or may not round")
    return Subject(Call("try_cast", (explicit_cast(subject),), to), to)


def explicit_cast(subject: Subject) -> Expr:
    """Return the expression in the subject's type, with the cast that was left out."""
    if subject.expr.type == subject.type:
        return subject.expr
    return Call("try_cast", (subject.expr,), subject.type)


def _keeps_values(source: str, to: str) -> bool:
    """Return whether a cast changes no value and no comparison, so that it can be left out."""
    if is_integer(source) and is_integer(to):
        return INTEGER_DIGITS[source] <= INTEGER_DIGITS[to]
    if to == "double":
        return source in ("float", "tinyint", "smallint", "int")
    before, after = exact_digits(source), exact_digits(to)
    if before is None or after is None or is_integer(to):
        return False
    return after[1] >= before[1] and after[0] - after[1] >= before[0] - before[1]


def to_const(constant: TypedConstant) -> Const:
    """Return the model's constant."""
    if constant.value is None:
        return Const(None, constant.type)
    try:
        return Const(to_key(constant.value, constant.type), constant.type)
    except ValueError as error:
        raise Unusable("inexact", str(error)) from error


def cast_operand(operand: Operand, kind: str, context: Context) -> Expr:
    """Return an operand cast to a type."""
    if isinstance(operand, TypedConstant):
        return to_const(cast_constant(operand, kind, context.settings.time_zone))
    return explicit_cast(cast_subject(operand, kind, context))


def constant_value(operand: Operand, type: type, text: str) -> object:
    """Return the value of an operand that must be a constant of a Python type."""
    if not isinstance(operand, TypedConstant) or not isinstance(operand.value, type):
        raise Unusable("unsupported-expression", f"{text} is supported for constants only")
    return operand.value
