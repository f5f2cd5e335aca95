"""Expressions of columns: translate SQL to the model's ``Expr``, typed as Spark types it, deterministic and error-free.

Whatever has no such translation raises :class:`Unusable`.

Parts of nested values are calls that fail on no row: ``get_field`` (of a struct and a field's name),
``try_element_at`` and ``get``, which give NULL if a map lacks the key or an array the position. Spark without ANSI
mode gives NULL there too. In ANSI mode it may fail, and then no such row is part of an answer either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlglot import exp

from layoutopt.functions.function import TIMES
from layoutopt.functions.registry import FUNCTIONS
from layoutopt.model.predicates import Call, Col, Comparison, Const, Expr, Node, simplified
from layoutopt.model.predicates.nodes import GET_FIELD, RUN_CODE
from layoutopt.model.predicates.normal import keys_of, values_of
from layoutopt.model.types import INTEGER_BITS, nested_parts
from layoutopt.model.values import key_kind
from layoutopt.sql import calls
from layoutopt.sql.constant_folding import fold, is_folded
from layoutopt.sql.dialect_checks import is_check, read_check
from layoutopt.sql.functions import (
    EXTRACT_UNITS,
    PARSED,
    TRY_ARITHMETIC,
    is_non_deterministic,
    list_arguments,
)
from layoutopt.sql.operands import Context, Operand, Reader, Subject, cast_subject, explicit_cast, to_const
from layoutopt.sql.problems import Unusable
from layoutopt.sql.schema import plain_name, spark_type
from layoutopt.sql.types import TypedConstant, is_compared_only, is_integer, normal_type

# The operator that is TRUE where another one is FALSE.
OPPOSITE: Final = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
# The operator that means the same with the sides exchanged.
MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
# Types of elements that are compared with constants of the very same type, besides texts and whole numbers.
_COMPARED: Final = frozenset({"boolean", "date", "timestamp", "timestamp_ntz", "float", "double"})


def read_operand(node: exp.Expr, context: Context) -> Operand:
    """Return an expression as a constant or as a subject."""
    node = node.unnest()
    if isinstance(node, exp.Literal):
        return fold(node, context.settings.time_zone)
    if id(node) not in context.known:
        return _read_operand(node, context)
    operand = context.known[id(node)]
    if operand is None:
        operand = context.known[id(node)] = _read_operand(node, context)
    return operand


def _read_operand(node: exp.Expr, context: Context) -> Operand:
    for part in node.walk():
        if is_non_deterministic(part):
            raise Unusable("non-deterministic", f"{part.sql('spark')} may differ from run to run")
        if isinstance(part, exp.Query):
            raise Unusable("subquery", f"{part.sql('spark')[:80]} is a subquery")
    if is_check(node):
        return read_check(node, context.settings.time_zone, lambda part: read_operand(part, context))
    is_named = isinstance(node, exp.Anonymous) and (node.name.casefold() in context.udfs or not is_folded(node))
    if node.find(exp.Column) is None and not is_named:
        return fold(node, context.settings.time_zone)
    return read_subject(node, context)


def read_subject(node: exp.Expr, context: Context, read: Reader | None = None) -> Subject:
    """Return an expression with columns as a subject; ``read`` reads its operands, by default :func:`read_operand`."""
    node = node.unnest()
    if read is None:
        return read_subject(node, context, lambda operand: read_operand(operand, context))
    reader = _READERS.get(type(node))
    if reader is not None:
        return reader(node, context, read)
    if type(node) in PARSED:
        function = PARSED[type(node)]
        if any(node.args.get(name) for name in function.refused):
            raise Unusable("unsupported-function", f"{node.sql('spark')} has an unsupported argument")
        return calls.build_call(function, list(map(read, list_arguments(node))), context, node.sql("spark"))
    code = "unsupported-function" if isinstance(node, exp.Func) else "unsupported-expression"
    raise Unusable(code, f"{node.sql('spark')} is not supported")


def check_compared(expr: Expr) -> None:
    """Raise Unusable for a call that is supported in comparisons with constants only."""
    if is_compared_only(expr):
        assert isinstance(expr, Call), "only calls are"
        raise Unusable("can-fail", f"{expr.fn} of {expr.args[0].type} is supported in comparisons with constants only")


def compare_subjects(left: Subject, operator: str, right: Subject) -> Node:
    """Return the comparison of two subjects of one type."""
    for side in (left, right):
        check_compared(side.expr)
    first, second = left.expr, right.expr  # whole numbers of any width compare alike
    if not (is_integer(first.type) and is_integer(second.type)):
        first, second = explicit_cast(left), explicit_cast(right)
        if first.type != second.type or key_kind(first.type) is None:
            raise Unusable("unordered-type", f"{first.type} and {second.type} can't be compared")
    if operator in (">", ">="):
        first, second, operator = second, first, MIRRORED[operator]
    return simplified(Comparison(first, operator, second))


def struct_field(struct: Expr, name: str, text: str) -> Call:
    """Return a field of a struct, found as Spark finds it, ignoring case; the name may be a stand-in."""
    kind, inner = _split_nested(struct.type, text)
    fields = [part.partition(":") for part in inner] if kind == "struct" else []
    matches = [(field, type) for field, _, type in fields if plain_name(field).lower() == plain_name(name).lower()]
    if len(matches) != 1:
        raise Unusable("unsupported-expression", f"{text} is not certainly one field of a struct")
    ((field, type),) = matches
    return Call(GET_FIELD, (struct, Const(field, "string")), _check_comparable(type, text))


def container_element(container: Expr, key: TypedConstant, from_one: bool, text: str) -> Call:
    """Return a map's value by key, an array's element by position (from 0, or ``from_one``), or a struct's field."""
    kind, inner = _split_nested(container.type, text)
    if kind == "struct" and isinstance(key.value, str) and not from_one:
        return struct_field(container, key.value, text)
    if kind == "map":
        map_key = _element_const(key, inner[0], text)
        return Call("try_element_at", (container, map_key), _check_comparable(inner[1], text))
    if kind == "array" and is_integer(key.type) and not (from_one and key.value == 0):
        position = _element_const(key, "int", text)
        function = "try_element_at" if from_one else "get"
        return Call(function, (container, position), _check_comparable(inner[0], text))
    raise Unusable("unsupported-expression", f"{text} is an element of {container.type} by a {key.type}")


def map_part(map_expr: Expr, values: bool, text: str) -> Call:
    """Return a map's keys or its values, as an array; NULL for a NULL map."""
    part = values_of(map_expr) if values else keys_of(map_expr)
    if part is None:
        raise Unusable("unsupported-expression", f"{text}: {map_expr.type} is not a map")
    _check_comparable(nested_parts(part.type)[1][0], text)
    return part


def _check_comparable(type: str, text: str) -> str:
    """Return the type of a part if its values compare byte by byte; CHAR and collated types don't."""
    if type.startswith(("char", "varchar")) or "collate" in type:
        raise Unusable("unordered-type", f"{text} is {type}, which is not compared byte by byte")
    return type


def _split_nested(type: str, text: str) -> tuple[str, list[str]]:
    kind, inner = nested_parts(type)
    if not inner:
        raise Unusable("unsupported-expression", f"{text}: {type} has no parts")
    return kind, inner


def _element_const(constant: TypedConstant, type: str, text: str) -> Const:
    """Return a key or an element of exactly that type: a text, or a whole number that fits."""
    value = constant.value
    if type == "string" and constant.type == "string" and isinstance(value, str):
        return Const(value, "string")
    if is_integer(type) and is_integer(constant.type) and isinstance(value, int):
        half = 1 << (INTEGER_BITS[type] - 1)
        if -half <= value < half:
            return Const(value, type)
    raise Unusable(
        "coercion",
        f"{text} compares {type} with {constant.type}; expected texts, whole numbers or values of the same type",
    )


def _to_subject(expr: Expr) -> Subject:
    return Subject(expr, expr.type)


def _read_column(node: exp.Expr, context: Context, read: Reader) -> Subject:
    assert isinstance(node, exp.Column)
    column, fields = context.resolve(node)
    # Names of fields keep the schema's spelling, which is that of the files.
    kind = column.type if "<" in column.type else normal_type(column.type)
    if not fields and (kind.startswith("char") or "collate" in kind):
        raise Unusable("unordered-type", f"{column.name} is {column.type}, which is not compared byte by byte")
    expr: Expr = Col(column.name, kind)
    for name in fields:
        expr = struct_field(expr, name, node.sql("spark"))
    return _to_subject(expr)


def _read_field(node: exp.Expr, context: Context, read: Reader) -> Subject:
    struct = calls.check_subject(read(node.this), node.sql("spark"))
    return _to_subject(struct_field(struct.expr, node.expression.name, node.sql("spark")))


def _read_element(node: exp.Expr, context: Context, read: Reader) -> Subject:
    text = node.sql("spark")
    if len(node.expressions) != 1:
        raise Unusable("unsupported-expression", f"{text} is not supported")
    container, key = calls.check_subject(read(node.this), text), read(node.expressions[0])
    if not isinstance(key, TypedConstant):
        raise Unusable("unsupported-expression", f"{text} is supported for constant keys only")
    return _to_subject(container_element(container.expr, key, node.args.get("offset") == 1, text))


def _read_array_contains(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """Return ``array_contains(xs, 1)``: NULL if the array is NULL, or has a NULL and not the element."""
    text = node.sql("spark")
    array, constant = calls.check_subject(read(node.this), text).expr, read(node.expression)
    if not isinstance(constant, TypedConstant) or constant.value is None:
        raise Unusable("unsupported-expression", f"{text} is supported for a constant only")
    kind, inner = _split_nested(array.type, text)
    if kind != "array":
        raise Unusable("unsupported-expression", f"{text}: {array.type} is not an array")
    same_type = constant.type == inner[0] and constant.type in _COMPARED
    element = to_const(constant) if same_type else _element_const(constant, inner[0], text)
    return Subject(Call("array_contains", (array, element), "boolean"), "boolean")


def _read_map_contains_key(node: exp.Expr, context: Context, read: Reader) -> Subject:
    keys = exp.MapKeys(this=node.this.copy())
    return _read_array_contains(exp.ArrayContains(this=keys, expression=node.args["key"].copy()), context, read)


def _read_map_keys(node: exp.Expr, context: Context, read: Reader) -> Subject:
    text = node.sql("spark")
    return _to_subject(map_part(calls.check_subject(read(node.this), text).expr, False, text))


def _read_cast(node: exp.Expr, context: Context, read: Reader) -> Subject:
    subject = calls.check_subject(read(node.this), node.sql("spark"))
    return cast_subject(subject, normal_type(spark_type(node.args["to"])), context)


def _read_to_date(node: exp.Expr, context: Context, read: Reader) -> Subject:
    text = node.sql("spark")
    subject = calls.check_subject(read(node.this), text)
    if node.args.get("format") and subject.type not in TIMES:
        raise Unusable("can-fail", f"{text} fails on texts of another format")
    return cast_subject(subject, "date", context)


def _read_named_function(node: exp.Expr, context: Context, read: Reader) -> Subject:
    name, text = node.name.casefold(), node.sql("spark")
    udf = context.udfs.get(name)
    operands = list(map(read, node.expressions)) if udf is not None or name in _NAMED else []
    if udf is None and name == "map_values" and len(operands) == 1:
        return _to_subject(map_part(calls.check_subject(operands[0], text).expr, True, text))
    if udf is None and name == "try_variant_get":
        return calls.build_call(FUNCTIONS[name], operands, context, text)
    if udf is None or udf.name in RUN_CODE:
        raise Unusable("unsupported-function", f"{text} is an unknown function; declare it as a UDF")
    if any(operand.type.startswith("timestamp") for operand in operands):
        raise Unusable("unsupported-function", f"{text} takes a timestamp, whose value depends on the machine's zone")
    arguments = tuple(to_const(o) if isinstance(o, TypedConstant) else explicit_cast(o) for o in operands)
    return Subject(Call(udf.measured_name, arguments, udf.returns), udf.returns)


def _read_extract(node: exp.Expr, context: Context, read: Reader) -> Subject:
    function = EXTRACT_UNITS.get(node.name.upper())
    if function is None:
        raise Unusable("unsupported-function", f"{node.sql('spark')} has an unsupported unit")
    return calls.build_call(function, [read(node.expression)], context, node.sql("spark"))


def _read_trim(node: exp.Expr, context: Context, read: Reader) -> Subject:
    if node.expression is not None and not isinstance(node.expression, str):
        raise Unusable("unsupported-function", f"{node.sql('spark')} names the characters to trim")
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or "").upper(), "trim")
    return calls.build_call(FUNCTIONS[name], [read(node.this)], context, node.sql("spark"))


def _read_left(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """Return ``left(s, 3)``, which Spark's optimiser rewrites to ``substring(s, 1, 3)``."""
    start = TypedConstant(1, "int")
    operands = [read(node.this), start, read(node.expression)]
    return calls.build_call(FUNCTIONS["substring"], operands, context, node.sql("spark"))


def _read_right(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """Return ``right(s, 3)``, which Spark's optimiser rewrites to ``substring(s, -3)``."""
    text = node.sql("spark")
    length = calls.cast_argument(read(node.expression), "int", context, text)
    operand = calls.cast_argument(read(node.this), "string", context, text)
    if isinstance(length, Const) and isinstance(length.value, int) and length.value > 0:
        return _to_subject(Call("substring", (operand, Const(-length.value, "int")), "string"))
    return _to_subject(Call("right", (operand, length), "string"))


# Functions that sqlglot has no class for.
_NAMED: Final = frozenset({"map_values", "try_variant_get"})
_READERS: dict[type[exp.Expr], Callable[[exp.Expr, Context, Reader], Subject]] = {
    exp.Column: _read_column,
    exp.Cast: _read_cast,
    exp.TryCast: _read_cast,
    exp.TsOrDsToDate: _read_to_date,
    exp.Extract: _read_extract,
    exp.Trim: _read_trim,
    exp.Left: _read_left,
    exp.Right: _read_right,
    exp.Neg: calls.read_negation,
    **dict.fromkeys(TRY_ARITHMETIC, calls.read_arithmetic),
    exp.TsOrDsAdd: calls.read_date_add,
    exp.AddMonths: calls.read_add_months,
    **dict.fromkeys((exp.JSONExtractScalar, exp.JSONExtract), calls.read_get_json_object),
    exp.Anonymous: _read_named_function,
    exp.Dot: _read_field,
    exp.Bracket: _read_element,
    exp.ArrayContains: _read_array_contains,
    exp.MapContainsKey: _read_map_contains_key,
    exp.MapKeys: _read_map_keys,
}
