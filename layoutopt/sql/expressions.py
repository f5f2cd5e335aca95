"""Expressions of columns: SQL to the model's ``Expr``, typed as Spark types them, deterministic and failing nowhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from layoutopt.model.feature import Settings
from layoutopt.model.predicates import Call, Col, Const, Expr
from layoutopt.model.predicates.nodes import RUN_CODE
from layoutopt.model.schema import Column
from layoutopt.model.udf import Udfs
from layoutopt.model.values import to_key
from layoutopt.sql import nested
from layoutopt.sql.functions import (
    DATE_TRUNC_UNITS,
    EXTRACT_UNITS,
    FUNCTIONS,
    TRUNC_UNITS,
    TRY_ARITHMETIC,
    Function,
    is_non_deterministic,
)
from layoutopt.sql.problems import Unusable
from layoutopt.sql.schema import spark_type
from layoutopt.sql.types.coerce import TypedConstant, cast_constant
from layoutopt.sql.types.fold import fold
from layoutopt.sql.types.rules import (
    INTEGER_DIGITS,
    common_type,
    compared_type,
    exact_digits,
    is_integer,
    is_number,
    normal_type,
)


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


def operand(node: exp.Expr, context: Context) -> Operand:
    """An expression as a constant or as a subject.

    Raises:
        Unusable: it has no exact, deterministic, error-free meaning here.
    """
    node = node.unnest()
    for part in node.walk():
        if is_non_deterministic(part):
            raise Unusable("non-deterministic", f"{part.sql('spark')} may differ from run to run")
        if isinstance(part, exp.Query):
            raise Unusable("subquery", f"{part.sql('spark')[:80]} is a subquery")
    if node.find(exp.Column) is None and not isinstance(node, exp.Anonymous):
        return fold(node, context.settings.time_zone)
    return subject(node, context)


def subject(node: exp.Expr, context: Context) -> Subject:
    """An expression with columns as a subject.

    Raises:
        Unusable: it has no exact, deterministic, error-free meaning here.
    """
    node = node.unnest()
    reader = _READERS.get(type(node))
    if reader is not None:
        return reader(node, context)
    function = FUNCTIONS.get(type(node))
    if function is not None:
        if any(node.args.get(name) for name in function.refused):
            raise Unusable("unsupported-function", f"{node.sql('spark')} has an argument that is not followed here")
        arguments = [node.args[name] for name in function.arguments if node.args.get(name) is not None]
        return _called(function, arguments, context)
    if type(node) in TRY_ARITHMETIC:
        return _arithmetic(node, context)
    code = "unsupported-function" if isinstance(node, exp.Func) else "unsupported-expression"
    raise Unusable(code, f"{node.sql('spark')} has no exact meaning here")


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


def _column(node: exp.Expr, context: Context) -> Subject:
    assert isinstance(node, exp.Column)
    column, fields = context.resolve(node)
    # Names of fields are as the schema spells them: files have them so.
    kind = column.type if "<" in column.type else normal_type(column.type)
    if not fields and (kind.startswith("char") or "collate" in kind):
        raise Unusable("unordered-type", f"{column.name} is {column.type}, which is not compared byte by byte")
    found: Expr = Col(column.name, kind)
    for name in fields:
        found = nested.field_of(found, name, node.sql("spark"))
    return Subject(found, found.type)


def _field(node: exp.Expr, context: Context) -> Subject:
    struct = subject(node.this, context)
    found = nested.field_of(struct.expr, node.expression.name, node.sql("spark"))
    return Subject(found, found.type)


def _element(node: exp.Expr, context: Context) -> Subject:
    if len(node.expressions) != 1:
        raise Unusable("unsupported-expression", f"{node.sql('spark')} has no exact meaning here")
    container, key = subject(node.this, context), operand(node.expressions[0], context)
    if not isinstance(key, TypedConstant):
        raise Unusable("unsupported-expression", f"{node.sql('spark')} is followed for constant keys only")
    found = nested.element_of(container.expr, key, node.args.get("offset") == 1, node.sql("spark"))
    return Subject(found, found.type)


def _array_contains(node: exp.Expr, context: Context) -> Subject:
    array, value = subject(node.this, context), operand(node.expression, context)
    if not isinstance(value, TypedConstant) or value.value is None:
        raise Unusable("unsupported-expression", f"{node.sql('spark')} is followed for a constant only")
    return Subject(nested.contains(array.expr, value, node.sql("spark")), "boolean")


def _cast(node: exp.Expr, context: Context) -> Subject:
    return cast_subject(subject(node.this, context), normal_type(spark_type(node.args["to"])), context)


def _to_date(node: exp.Expr, context: Context) -> Subject:
    if node.args.get("format"):
        raise Unusable("unsupported-expression", f"{node.sql('spark')} has a format, which is not followed here")
    return cast_subject(subject(node.this, context), "date", context)


def _called(function: Function, arguments: Sequence[exp.Expr], context: Context) -> Subject:
    cast = tuple(_argument(a, kind, context) for a, kind in zip(arguments, function.takes, strict=False))
    return Subject(Call(function.name, cast, function.gives), function.gives)


def _argument(node: exp.Expr, kind: str, context: Context) -> Expr:
    given = operand(node, context)
    if isinstance(given, TypedConstant):
        return const(cast_constant(given, kind, context.settings.time_zone))
    if kind == "timestamp" and given.type == "timestamp_ntz":
        return explicit_cast(given)  # hour() and the like take both
    if kind == "string" and given.type == "binary":
        raise Unusable("coercion", f"{node.sql('spark')} is binary, where functions of strings mean something else")
    return explicit_cast(cast_subject(given, kind, context))


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


def _user_defined(node: exp.Expr, context: Context) -> Subject:
    udf = context.udfs.get(node.name.casefold())
    if udf is None or udf.name in RUN_CODE:
        raise Unusable(
            "unsupported-function", f"{node.sql('spark')} has no exact meaning here; a function can be declared"
        )
    given = [operand(argument, context) for argument in node.expressions]
    if any(each.type.startswith("timestamp") for each in given):
        raise Unusable(
            "unsupported-function", f"{node.sql('spark')} sees timestamps in the zone of whatever machine runs it"
        )
    arguments = tuple(const(each) if isinstance(each, TypedConstant) else explicit_cast(each) for each in given)
    return Subject(Call(udf.measured_name, arguments, udf.returns), udf.returns)


def _extract(node: exp.Expr, context: Context) -> Subject:
    function = EXTRACT_UNITS.get(node.name.upper())
    if function is None:
        raise Unusable("unsupported-function", f"{node.sql('spark')} is not on the list")
    return _called(function, [node.expression], context)


def _trim(node: exp.Expr, context: Context) -> Subject:
    if node.expression is not None and not isinstance(node.expression, str):
        raise Unusable("unsupported-function", f"{node.sql('spark')} names the characters to trim")
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or "").upper(), "trim")
    return _called(Function(name, ("string",), "string"), [node.this], context)


def _concat(node: exp.Expr, context: Context) -> Subject:
    return _called(Function("concat", ("string",) * len(node.expressions), "string"), node.expressions, context)


def _absolute(node: exp.Expr, context: Context) -> Subject:
    given = subject(node.this, context)
    if is_integer(given.type):
        if not context.settings.ansi:
            raise Unusable("coercion", f"{node.sql('spark')} of the smallest {given.type} is itself without ANSI mode")
        # the smallest integer has no absolute value in its own type, in which Spark compares all the same
        wider = "decimal(20,0)" if given.type == "bigint" else "bigint"
        return Subject(Call("abs", (Call("try_cast", (given.expr,), wider),), wider), given.type)
    if not is_number(given.type):
        raise Unusable("coercion", f"{node.sql('spark')} is taken of {given.type}")
    return Subject(Call("abs", (explicit_cast(given),), given.type), given.type)


def _trunc(node: exp.Expr, context: Context) -> Subject:
    unit = node.args["unit"].name.upper()
    given = subject(node.this, context)
    if unit not in TRUNC_UNITS or given.type != "date":
        raise Unusable("unsupported-function", f"{node.sql('spark')} is followed for dates and plain units only")
    return Subject(Call("trunc", (explicit_cast(given), Const(unit, "string")), "date"), "date")


def _date_trunc(node: exp.Expr, context: Context) -> Subject:
    unit = node.args["unit"].name.upper()
    given = subject(node.this, context)
    if unit not in DATE_TRUNC_UNITS or given.type not in ("date", "timestamp"):
        raise Unusable("unsupported-function", f"{node.sql('spark')} is followed for dates and timestamps only")
    moment = explicit_cast(cast_subject(given, "timestamp", context))
    return Subject(Call("date_trunc", (Const(unit, "string"), moment), "timestamp"), "timestamp")


def _coalesce(node: exp.Expr, context: Context) -> Subject:
    given = [operand(each, context) for each in (node.this, *node.expressions)]
    kind = "void"
    for each in given:
        kind = compared_type(kind, each.type, ansi=context.settings.ansi, listed=True)
    arguments = tuple(
        const(cast_constant(each, kind, context.settings.time_zone))
        if isinstance(each, TypedConstant)
        else explicit_cast(cast_subject(each, kind, context))
        for each in given
    )
    return Subject(Call("coalesce", arguments, kind), kind)


def _arithmetic(node: exp.Expr, context: Context) -> Subject:
    left, right = operand(node.this, context), operand(node.expression, context)
    kinds = {left.type, right.type}
    if not kinds <= {*INTEGER_DIGITS, "double"} or not context.settings.ansi:
        raise Unusable("can-fail", f"{node.sql('spark')} is followed for integers and doubles only")
    kind = "double" if isinstance(node, exp.Div) else common_type(left.type, right.type)
    if isinstance(node, exp.Mod) and kind == "double":
        raise Unusable("can-fail", f"{node.sql('spark')} is followed for integers only")
    arguments = tuple(const(each) if isinstance(each, TypedConstant) else explicit_cast(each) for each in (left, right))
    return Subject(Call(TRY_ARITHMETIC[type(node)], arguments, kind), kind)


def _negative(node: exp.Expr, context: Context) -> Subject:
    zero = exp.Sub(this=exp.Literal.number(0), expression=node.this.copy())
    return _arithmetic(zero, context)


_READERS: dict[type[exp.Expr], Callable[[exp.Expr, Context], Subject]] = {
    exp.Column: _column,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.TsOrDsToDate: _to_date,
    exp.Extract: _extract,
    exp.Trim: _trim,
    exp.Concat: _concat,
    exp.Abs: _absolute,
    exp.DateTrunc: _trunc,
    exp.TimestampTrunc: _date_trunc,
    exp.Coalesce: _coalesce,
    exp.Neg: _negative,
    exp.Anonymous: _user_defined,
    exp.Dot: _field,
    exp.Bracket: _element,
    exp.ArrayContains: _array_contains,
}
