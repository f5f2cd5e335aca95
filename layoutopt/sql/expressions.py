"""Expressions of columns: SQL to the model's ``Expr``, typed as Spark types them, deterministic and failing nowhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from sqlglot import exp

from layoutopt.model.predicates import Call, Col, Comparison, Const, Expr, Node, simplified
from layoutopt.model.predicates.nodes import GET_FIELD, RUN_CODE
from layoutopt.model.predicates.normal import keys_of, values_of
from layoutopt.model.types import INTEGER_BITS, nested_parts
from layoutopt.model.values import key_kind
from layoutopt.sql import calls as arithmetic
from layoutopt.sql.calls import (
    date_added,
    end_of_array,
    get_json_object,
    months_added,
    regexp_extract,
    split_part,
    substring_index,
    try_variant_get,
)
from layoutopt.sql.constant_folding import fold
from layoutopt.sql.functions import (
    DATE_TRUNC_UNITS,
    EXTRACT_UNITS,
    FUNCTIONS,
    TRUNC_UNITS,
    TRY_ARITHMETIC,
    Function,
    is_non_deterministic,
)
from layoutopt.sql.operands import Context, Operand, Reader, Subject, cast_subject, const, explicit_cast
from layoutopt.sql.problems import Unusable
from layoutopt.sql.schema import spark_type
from layoutopt.sql.types import TypedConstant, cast_constant, is_integer, is_whole_of_double, normal_type

# ----------------------------------------------------------------------------------------------------
# Parts of nested values in conditions: fields of structs, keys and values of maps, elements of arrays.
#
# Each is a call that fails on no row: ``get_field`` (of a struct and a field's name), ``try_element_at`` and ``get``,
# which give NULL where a map lacks the key or an array the place. Spark without ANSI mode gives NULL there too; in ANSI
# mode it may fail, and then the condition is TRUE for no such row either.

_COMPARED: Final = frozenset({"boolean", "date", "timestamp", "timestamp_ntz", "float", "double"})
"""Types of elements that are compared with constants of the very same type, beside texts and whole numbers."""


def field_of(struct: Expr, name: str, text: str) -> Call:
    """A field of a struct, found as Spark finds it, without regard to case.

    Raises:
        Unusable: the expression is no struct, or has not just one field of that name.
    """
    kind, inner = _parts(struct.type, text)
    fields = [part.partition(":") for part in inner] if kind == "struct" else []
    found = [(field, type) for field, _, type in fields if field.lower() == name.lower()]
    if len(found) != 1:
        raise Unusable("unsupported-expression", f"{text} is not surely one field of a struct")
    ((field, type),) = found
    return Call(GET_FIELD, (struct, Const(field, "string")), comparable(type, text))


def element_of(container: Expr, key: TypedConstant, from_one: bool, text: str) -> Call:
    """A map's value of a key, an array's element at a place (from 0, or ``from_one``), or a struct's field by its name.

    Raises:
        Unusable: the expression is none of these, or the key has another type.
    """
    kind, inner = _parts(container.type, text)
    if kind == "struct" and isinstance(key.value, str) and not from_one:
        return field_of(container, key.value, text)
    if kind == "map":
        return Call("try_element_at", (container, _constant(key, inner[0], text)), comparable(inner[1], text))
    if kind == "array" and is_integer(key.type) and not (from_one and key.value == 0):
        place = _constant(key, "int", text)
        return Call("try_element_at" if from_one else "get", (container, place), comparable(inner[0], text))
    raise Unusable("unsupported-expression", f"{text} is an element of {container.type} by a {key.type}")


def contains(array: Expr, value: TypedConstant, text: str) -> Call:
    """Whether an array has an element; NULL where it is NULL, or has a NULL and not the element.

    Raises:
        Unusable: the expression is no array, or its elements are of another type than the value.
    """
    kind, inner = _parts(array.type, text)
    if kind != "array":
        raise Unusable("unsupported-expression", f"{text} is asked of {array.type}, which is no array")
    same_type = value.type == inner[0] and value.type in _COMPARED
    return Call("array_contains", (array, const(value) if same_type else _constant(value, inner[0], text)), "boolean")


def part_of_map(of_map: Expr, values: bool, text: str) -> Call:
    """A map's keys or its values, as an array; NULL where it is NULL.

    Raises:
        Unusable: the expression is no map, or its keys or values do not compare byte by byte.
    """
    found = values_of(of_map) if values else keys_of(of_map)
    if found is None:
        raise Unusable("unsupported-expression", f"{text} is asked of {of_map.type}, which is no map")
    comparable(nested_parts(found.type)[1][0], text)
    return found


def comparable(type: str, text: str) -> str:
    """The type of a part, if values of it compare byte by byte or are parts of others.

    Raises:
        Unusable: it is CHAR, or has a collation.
    """
    if type.startswith(("char", "varchar")) or "collate" in type:
        raise Unusable("unordered-type", f"{text} is {type}, which is not compared byte by byte")
    return type


def _parts(type: str, text: str) -> tuple[str, list[str]]:
    kind, inner = nested_parts(type)
    if not inner:
        raise Unusable("unsupported-expression", f"{text} is a part of {type}, which has none")
    return kind, inner


def _constant(given: TypedConstant, type: str, text: str) -> Const:
    """A key or an element of just that type: a text, or a whole number that fits."""
    value = given.value
    if type == "string" and given.type == "string" and isinstance(value, str):
        return Const(value, "string")
    if is_integer(type) and is_integer(given.type) and isinstance(value, int) and _fits(value, type):
        return Const(value, type)
    raise Unusable(
        "coercion",
        f"{text} compares {type} with {given.type}; only texts, whole numbers and values of the very type are",
    )


def _fits(value: int, type: str) -> bool:
    half = 1 << (INTEGER_BITS[type] - 1)
    return -half <= value < half


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
    code = "unsupported-function" if isinstance(node, exp.Func) else "unsupported-expression"
    raise Unusable(code, f"{node.sql('spark')} has no exact meaning here")


def _column(node: exp.Expr, context: Context) -> Subject:
    assert isinstance(node, exp.Column)
    column, fields = context.resolve(node)
    # Names of fields are as the schema spells them: files have them so.
    kind = column.type if "<" in column.type else normal_type(column.type)
    if not fields and (kind.startswith("char") or "collate" in kind):
        raise Unusable("unordered-type", f"{column.name} is {column.type}, which is not compared byte by byte")
    found: Expr = Col(column.name, kind)
    for name in fields:
        found = field_of(found, name, node.sql("spark"))
    return Subject(found, found.type)


def _field(node: exp.Expr, context: Context) -> Subject:
    struct = subject(node.this, context)
    found = field_of(struct.expr, node.expression.name, node.sql("spark"))
    return Subject(found, found.type)


def _element(node: exp.Expr, context: Context) -> Subject:
    if len(node.expressions) != 1:
        raise Unusable("unsupported-expression", f"{node.sql('spark')} has no exact meaning here")
    container, key = subject(node.this, context), operand(node.expressions[0], context)
    if not isinstance(key, TypedConstant):
        raise Unusable("unsupported-expression", f"{node.sql('spark')} is followed for constant keys only")
    found = element_of(container.expr, key, node.args.get("offset") == 1, node.sql("spark"))
    return Subject(found, found.type)


def _array_contains(node: exp.Expr, context: Context) -> Subject:
    array, value = subject(node.this, context), operand(node.expression, context)
    if not isinstance(value, TypedConstant) or value.value is None:
        raise Unusable("unsupported-expression", f"{node.sql('spark')} is followed for a constant only")
    return Subject(contains(array.expr, value, node.sql("spark")), "boolean")


def _map_contains_key(node: exp.Expr, context: Context) -> Subject:
    keys = exp.MapKeys(this=node.this.copy())
    return _array_contains(exp.ArrayContains(this=keys, expression=node.args["key"].copy()), context)


def _part_of_map(node: exp.Expr, of_map: exp.Expr, context: Context, values: bool = False) -> Subject:
    found = part_of_map(subject(of_map, context).expr, values, node.sql("spark"))
    return Subject(found, found.type)


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


def _by_name(node: exp.Expr, context: Context) -> Subject:
    name = node.name.casefold()
    if name == "map_values" and name not in context.udfs and len(node.expressions) == 1:
        return _part_of_map(node, node.expressions[0], context, values=True)
    if name == "try_variant_get" and name not in context.udfs:
        return try_variant_get(node, context, lambda argument: operand(argument, context))
    return _user_defined(node, context)


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


def _left(node: exp.Expr, context: Context) -> Subject:
    """``left(s, 3)``, which to Spark's optimiser is ``substring(s, 1, 3)``."""
    length = _argument(node.expression, "int", context)
    return _of_text("substring", node, (Const(1, "int"), length), context)


def _right(node: exp.Expr, context: Context) -> Subject:
    """``right(s, 3)``, which to Spark's optimiser is ``substring(s, -3)``."""
    length = _argument(node.expression, "int", context)
    if isinstance(length, Const) and isinstance(length.value, int) and length.value > 0:
        return _of_text("substring", node, (Const(-length.value, "int"),), context)
    return _of_text("right", node, (length,), context)


def _of_text(name: str, node: exp.Expr, others: tuple[Expr, ...], context: Context) -> Subject:
    return Subject(Call(name, (_argument(node.this, "string", context), *others), "string"), "string")


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


def _end_of_array(name: str) -> Callable[[exp.Expr, Context], Subject]:
    return lambda node, context: end_of_array(name, subject(node.this, context), node.sql("spark"))


def _with_arguments(reader: Callable[[exp.Expr, Context, Reader], Subject]) -> Callable[[exp.Expr, Context], Subject]:
    return lambda node, context: reader(node, context, lambda argument: operand(argument, context))


_READERS: dict[type[exp.Expr], Callable[[exp.Expr, Context], Subject]] = {
    exp.Column: _column,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.TsOrDsToDate: _to_date,
    exp.Extract: _extract,
    exp.Trim: _trim,
    exp.Concat: _concat,
    exp.Abs: _with_arguments(arithmetic.absolute),
    exp.Left: _left,
    exp.Right: _right,
    exp.DateTrunc: _trunc,
    exp.TimestampTrunc: _date_trunc,
    exp.Coalesce: _with_arguments(arithmetic.one_of("coalesce")),
    exp.Greatest: _with_arguments(arithmetic.one_of("greatest")),
    exp.Least: _with_arguments(arithmetic.one_of("least")),
    exp.Neg: _with_arguments(arithmetic.negative),
    **dict.fromkeys(TRY_ARITHMETIC, _with_arguments(arithmetic.arithmetic)),
    exp.Floor: _with_arguments(arithmetic.floored("floor")),
    exp.Ceil: _with_arguments(arithmetic.floored("ceil")),
    exp.Round: _with_arguments(arithmetic.rounded),
    exp.TsOrDsAdd: _with_arguments(date_added),
    exp.AddMonths: _with_arguments(months_added),
    exp.SplitPart: _with_arguments(split_part),
    exp.SubstringIndex: _with_arguments(substring_index),
    exp.RegexpExtract: _with_arguments(regexp_extract),
    **dict.fromkeys((exp.JSONExtractScalar, exp.JSONExtract), _with_arguments(get_json_object)),
    exp.ArrayMax: _end_of_array("array_max"),
    exp.ArrayMin: _end_of_array("array_min"),
    exp.Anonymous: _by_name,
    exp.Dot: _field,
    exp.Bracket: _element,
    exp.ArrayContains: _array_contains,
    exp.MapContainsKey: _map_contains_key,
    exp.MapKeys: lambda node, context: _part_of_map(node, node.this, context),
}


# ----------------------------------------------------------------------------------------------------
# Comparisons of two expressions of a row, as both readers build them: the one of SQL texts and that of Catalyst.

OPPOSITE: Final = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
"""The operator that is TRUE where another one is FALSE."""
MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
"""The operator that means the same with the sides exchanged."""


def compare_subjects(left: Subject, operator: str, right: Subject) -> Node:
    """Return the rows for which two subjects of one type compare so.

    Raises:
        Unusable: their type has no order here, or one of them may fail.
    """
    if is_whole_of_double(left.expr) or is_whole_of_double(right.expr):
        raise Unusable("can-fail", "floor or ceil of a double is followed beside constants only")
    first, second = left.expr, right.expr  # whole numbers compare alike in any width
    if not (is_integer(first.type) and is_integer(second.type)):
        first, second = explicit_cast(left), explicit_cast(right)
        if first.type != second.type or key_kind(first.type) is None:
            raise Unusable("unordered-type", f"{first.type} and {second.type} are not compared here")
    if operator in (">", ">="):
        first, second, operator = second, first, MIRRORED[operator]
    return simplified(Comparison(first, operator, second))
