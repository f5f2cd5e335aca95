"""Handlers of Catalyst's value expressions: each returns the model's expression, which never fails on a row."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, cast

from layoutopt.functions.function import Function
from layoutopt.functions.registry import FUNCTIONS
from layoutopt.model.predicates import Call, Col, Const, Expr
from layoutopt.model.predicates.nodes import RUN_CODE
from layoutopt.model.types import INTEGER_BITS, decimal_digits
from layoutopt.model.values import key_kind
from layoutopt.model.values.keys import from_key
from layoutopt.spark.catalyst.trees import (
    OperandReader,
    Tree,
    cast_operand,
    depends_on_zone,
    describe,
    get_constant,
    get_zone,
    int_constant,
    is_cast_from_binary,
    text_constant,
    unknown,
)
from layoutopt.sql import expressions as sql_expressions
from layoutopt.sql import typed_arithmetic as sql_arithmetic
from layoutopt.sql.calls import MAX_SHIFT, build_call, shift_by, shift_by_days
from layoutopt.sql.operands import Operand, Subject, explicit_cast
from layoutopt.sql.problems import Unusable
from layoutopt.sql.types import TypedConstant, is_floating, is_integer, is_number, normal_type

Handler = Callable[[Tree, OperandReader], Subject]

_MODE: Final = re.compile(r"NumericEvalContext\((\w+),(\w+)\)")
_JSON_PATH: Final = re.compile(r"\$(?:\.[A-Za-z_]\w{0,63}|\[\d{1,9}\]){1,50}", re.ASCII)
_CONTAINED_TYPES: Final = frozenset(
    {*INTEGER_BITS, "string", "boolean", "date", "timestamp", "timestamp_ntz", "float", "double"}
)
_NO_END: Final = (1 << 31) - 1  # the length in Catalyst's ``substr(s, 2)``
_MICROS: Final = (("DAY", 86_400_000_000), ("HOUR", 3_600_000_000), ("MINUTE", 60_000_000), ("SECOND", 1_000_000))


def check_zone(tree: Tree, reader: OperandReader) -> None:
    """Raise Unusable if a part depends on another time zone than the reader's."""
    if depends_on_zone(tree) and get_zone(tree) != reader.zone:
        raise Unusable("inexact", f"{describe(tree)} is read in {get_zone(tree)}, other parts in {reader.zone}")


def read_argument(tree: Tree, reader: OperandReader) -> Expr:
    """Return an operand as an argument: a constant, or a subject with explicit casts.

    Raises:
        Unusable: it has no exact meaning here.
    """
    constant = get_constant(tree)
    return constant if constant is not None else explicit_cast(reader.subject(tree))


def text_argument(tree: Tree, reader: OperandReader) -> Expr:
    """Return an operand that must be a text, not cast from binary.

    Raises:
        Unusable: it is not.
    """
    result = read_argument(tree, reader)
    if result.type != "string" or is_cast_from_binary(result):
        raise Unusable("coercion", f"{describe(tree)} is not a text that compares byte by byte")
    return result


def read_column(tree: Tree, reader: OperandReader) -> Subject:
    """Read a column of the table."""
    name = tree.detail("name")
    if name is None or reader.element is not None:
        raise Unusable("correlated", f"{describe(tree)} is not a column of the scan")
    column = reader.schema.get(str(name))
    if column is None or column.name != name:
        raise Unusable("unsupported-expression", f"{name} is not a column of the table")
    kind = column.type if "<" in column.type else normal_type(column.type)
    if kind.startswith("char") or ("collate" in kind and "<" not in kind):
        raise Unusable("unordered-type", f"{name} is {column.type}, which is not compared byte by byte")
    return Subject(Col(column.name, kind), kind)


def read_element(tree: Tree, reader: OperandReader) -> Subject:
    """Read the variable of a lambda."""
    if reader.element is None:
        raise unknown(tree)
    return reader.element


def see_through(tree: Tree, reader: OperandReader) -> Subject:
    """Read an expression that has the value of its operand."""
    return reader.subject(tree.only)


def read_cast(tree: Tree, reader: OperandReader) -> Subject:
    """Read a cast."""
    check_zone(tree, reader)
    return cast_operand(tree, reader.subject(tree.only), reader.context)


def function_call(function: Function) -> Handler:
    """Return the handler of a function of the registry."""

    def read(tree: Tree, reader: OperandReader) -> Subject:
        if function.gives is None:
            return _build_call(function, tree, [_read_operand(child, reader) for child in tree.children], reader)
        check_zone(tree, reader)
        if not function.accepts([child.type for child in tree.children]):
            raise Unusable("unsupported-function", f"{describe(tree)} has other arguments than are supported")
        args = tuple(
            text_argument(child, reader) if child.type == "string" else read_argument(child, reader)
            for child in tree.children
        )
        return Subject(Call(function.name, args, function.gives), function.gives)

    return read


def _read_operand(tree: Tree, reader: OperandReader) -> Operand:
    constant = get_constant(tree)
    if constant is None:
        return Subject(text_argument(tree, reader), "string") if tree.type == "string" else reader.subject(tree)
    if constant.type != "string" and constant.type not in INTEGER_BITS:
        raise Unusable("unsupported-expression", f"{describe(tree)} is a constant of type {constant.type}")
    return TypedConstant(constant.value, constant.type)  # the key of a text or a whole number is its value


def _build_call(function: Function, tree: Tree, operands: Sequence[Operand], reader: OperandReader) -> Subject:
    check_zone(tree, reader)
    result = build_call(function, operands, reader.context, describe(tree))
    if result.type != tree.type:
        raise Unusable("coercion", f"{describe(tree)} is {tree.type}, and {result.type} here")
    return result


def variant_get(tree: Tree, reader: OperandReader) -> Subject:
    """Read ``try_variant_get(v, '$.a', 'int')``, or ``variant_get``, which fails if that is NULL."""
    operands = [*(_read_operand(child, reader) for child in tree.children), TypedConstant(tree.type, "string")]
    return _build_call(FUNCTIONS["try_variant_get"], tree, operands, reader)


def read_substring(tree: Tree, reader: OperandReader) -> Subject:
    """Read ``substring``, which Spark also makes of ``left`` and ``right``."""
    text, *bounds = tree.children
    if len(bounds) != 2 or tree.type != "string":
        raise unknown(tree)
    args = [read_argument(bound, reader) for bound in bounds]
    if args[1] == Const(_NO_END, "int"):
        args.pop()
    return Subject(Call("substring", (text_argument(text, reader), *args), "string"), "string")


def locate(tree: Tree, reader: OperandReader) -> Subject:
    """Read ``locate('a', text)``, which is ``instr(text, 'a')``."""
    if len(tree.children) != 3 or int_constant(tree.children[2], tree) != 1:
        raise unknown(tree)
    part, text, _ = tree.children
    part_text = Const(text_constant(part, tree), "string")
    return Subject(Call("instr", (text_argument(text, reader), part_text), "int"), "int")


def read_side(tree: Tree, reader: OperandReader) -> sql_arithmetic.Side:
    """Read an operand of arithmetic: a constant or a subject."""
    constant = get_constant(tree)
    return constant if constant is not None else reader.subject(tree)


def arithmetic(function: str) -> Handler:
    """Return the handler of ``a + b`` and the like."""

    def read(tree: Tree, reader: OperandReader) -> Subject:
        left, right = tree.pair
        mode, keeps_digits = _read_mode(tree)
        if not is_number(tree.type):
            raise unknown(tree)
        wraps = is_integer(tree.type) and function in ("try_add", "try_subtract", "try_multiply")
        if wraps and mode not in ("ANSI", "TRY"):
            raise Unusable("can-fail", f"{describe(tree)} has another meaning without ANSI mode")
        sides = read_side(left, reader), read_side(right, reader)
        result = sql_arithmetic.combine(function, *sides, reader.context, describe(tree))
        if decimal_digits(tree.type) and (
            not keeps_digits or _count_decimals(result.type) != _count_decimals(tree.type)
        ):
            raise Unusable("coercion", f"{describe(tree)} is {tree.type}, with another scale than computed here")
        if not decimal_digits(tree.type) and result.type != tree.type:
            raise Unusable("coercion", f"{describe(tree)} is {tree.type}, and {result.type} here")
        return result

    return read


def _read_mode(tree: Tree) -> tuple[str, bool]:
    """Return the mode of arithmetic, and whether decimals keep their integer digits rather than their scale.

    Before 4.1, Spark takes the latter from the session when the query runs, and the rule from there.

    Raises:
        Unusable: the expression has no mode.
    """
    mode = _MODE.fullmatch(str(tree.detail("evalContext")))
    if mode is not None:
        return mode[1], mode[2] == "true"
    if tree.detail("evalMode") is None:
        raise unknown(tree)
    return str(tree.detail("evalMode")), True


def _count_decimals(kind: str) -> int | None:
    digits = decimal_digits(kind)
    return None if digits is None else digits[1]


def _check_ansi_mode(tree: Tree) -> None:
    if tree.detail("failOnError") != "true":
        raise Unusable("can-fail", f"{describe(tree)} has another meaning without ANSI mode")


def negate(tree: Tree, reader: OperandReader) -> Subject:
    """Read ``-a``."""
    if is_integer(tree.type):
        _check_ansi_mode(tree)
    return sql_arithmetic.negate(reader.subject(tree.only), reader.context, describe(tree))


def absolute_value(tree: Tree, reader: OperandReader) -> Subject:
    """Read ``abs(a)``."""
    if is_integer(tree.type):
        _check_ansi_mode(tree)
    return sql_arithmetic.absolute_value(reader.subject(tree.only), describe(tree))


def compared_only(tree: Tree, reader: OperandReader) -> Subject | None:
    """Read ``floor(x)`` of a double or ``a DIV 10``, compared with a constant; None for other expressions."""
    if tree.name == "IntegralDivide":
        divisor = get_constant(tree.pair[1])
        return sql_arithmetic.divide_whole(reader.subject(tree.pair[0]), divisor and divisor.value, describe(tree))
    if tree.name not in ("Floor", "Ceil") or len(tree.children) != 1 or not is_floating(tree.children[0].type):
        return None
    _check_ansi_mode(tree)
    return sql_arithmetic.floor_or_ceil_double(tree.name.lower(), reader.subject(tree.children[0]), reader.context)


def same_type_call(name: str) -> Handler:
    """Return the handler of ``coalesce``, ``greatest`` or ``least`` of operands of one type."""

    def read(tree: Tree, reader: OperandReader) -> Subject:
        if key_kind(tree.type) is None or any(child.type != tree.type for child in tree.children):
            raise unknown(tree)
        args = [read_argument(child, reader) for child in tree.children]
        return Subject(Call(name, tuple(args), tree.type), tree.type)

    return read


def add_days(sign: int) -> Handler:
    """Return the handler of ``date_add`` or ``date_sub``."""

    def read(tree: Tree, reader: OperandReader) -> Subject:
        date, count = tree.pair
        return shift_by_days(reader.subject(date), sign * _read_count(count, tree))

    return read


def add_months(tree: Tree, reader: OperandReader) -> Subject:
    """Read ``add_months(d, 1)``, and dates or timestamps plus months or years."""
    check_zone(tree, reader)
    moment, count = tree.pair
    kind = count.type
    if kind not in INTEGER_BITS and kind not in ("interval month", "interval year", "interval year to month"):
        raise unknown(tree)
    return shift_by(reader.subject(moment), "MONTH", _read_count(count, tree), reader.context, describe(tree))


def add_interval(tree: Tree, reader: OperandReader) -> Subject:
    """Read ``ts + INTERVAL 1 DAY``."""
    check_zone(tree, reader)
    moment, step = tree.pair
    micros = step.detail("value")
    if step.name != "Literal" or not isinstance(micros, int) or moment.type not in ("timestamp", "timestamp_ntz"):
        raise unknown(tree)
    last = step.type.rpartition(" ")[2].upper()  # the second unit of `interval day to second`
    for unit, size in _MICROS:
        if micros % size == 0 and (unit == last or _rank_unit(unit) > _rank_unit(last)):
            count = micros // size
            if abs(count) > MAX_SHIFT:
                break
            return shift_by(reader.subject(moment), unit, count, reader.context, describe(tree))
    raise Unusable("unsupported-expression", f"{describe(tree)} is supported for whole seconds only")


def _rank_unit(unit: str) -> int:
    return next((place for place, (name, _) in enumerate(_MICROS) if name == unit), len(_MICROS))


def _read_count(tree: Tree, parent: Tree) -> int:
    value = tree.detail("value")
    if tree.name != "Literal" or not isinstance(value, int) or isinstance(value, bool) or abs(value) > MAX_SHIFT:
        raise Unusable("unsupported-expression", f"{describe(parent)} is supported for constants to {MAX_SHIFT:,} only")
    return value


def struct_field(tree: Tree, reader: OperandReader) -> Subject:
    """Read a field of a struct."""
    struct = reader.subject(tree.only)
    result = sql_expressions.struct_field(struct.expr, str(tree.detail("field")), describe(tree))
    return Subject(result, result.type)


def container_element(from_one: bool) -> Handler:
    """Return the handler of an element of an array, a map, or a split text."""

    def read(tree: Tree, reader: OperandReader) -> Subject:
        container, key = tree.pair
        if container.name == "StringSplitSQL":
            if tree.detail("failOnError") != "false":
                raise unknown(tree)
            operands = [_read_operand(part, reader) for part in (*container.pair, key)]
            return _build_call(FUNCTIONS["split_part"], tree, operands, reader)
        operand = reader.subject(container)
        constant = get_constant(key)
        if constant is None or constant.value is None:
            raise Unusable("unsupported-expression", f"{describe(tree)} is supported for constant keys only")
        value = TypedConstant(constant.value, constant.type)  # an int or a text, of which the key is the value
        result = sql_expressions.container_element(operand.expr, value, from_one, describe(tree))
        return Subject(result, result.type)

    return read


def get_json_object(tree: Tree, reader: OperandReader) -> Subject:
    """Read ``get_json_object(text, '$.a.b[0]')`` with plain keys and indexes."""
    text, path = tree.pair
    path_text = text_constant(path, tree)
    if not _JSON_PATH.fullmatch(path_text):
        raise Unusable("unsupported-expression", f"{describe(tree)} has a path that is not supported")
    return Subject(
        Call("get_json_object", (text_argument(text, reader), Const(path_text, "string")), "string"), "string"
    )


def array_contains(tree: Tree, reader: OperandReader) -> Subject:
    """Read ``array_contains(xs, 1)``."""
    array, value = tree.pair
    constant = get_constant(value)
    if constant is None:
        raise Unusable("unsupported-expression", f"{describe(tree)} is supported for a constant only")
    result = make_array_contains(reader.subject(array).expr, constant, describe(tree))
    return Subject(result, "boolean")


def make_array_contains(array: Expr, value: Const, text: str) -> Call:
    """Return the call that is TRUE if an array contains a value.

    Raises:
        Unusable: the value is NULL, or its type is unsupported or not the array's.
    """
    if value.value is None or array.type != f"array<{value.type}>" or value.type not in _CONTAINED_TYPES:
        raise Unusable("coercion", f"{text} looks for {value.type} among elements of {array.type}")
    return Call("array_contains", (array, value), "boolean")


def map_part(values: bool) -> Handler:
    """Return the handler of ``map_keys`` or ``map_values``."""

    def read(tree: Tree, reader: OperandReader) -> Subject:
        result = sql_expressions.map_part(reader.subject(tree.only).expr, values, describe(tree))
        return Subject(result, result.type)

    return read


def user_function(tree: Tree, reader: OperandReader) -> Subject:
    """Read a call of a declared function."""
    udf = reader.udfs.get(str(tree.detail("name")))
    if udf is None or udf.name in RUN_CODE or tree.type != udf.returns:
        raise Unusable(
            "unsupported-function", f"{describe(tree)} has no exact meaning here; a function can be declared"
        )
    args = tuple(read_argument(child, reader) for child in tree.children)
    if any(arg.type.startswith("timestamp") for arg in args):
        raise Unusable("unsupported-function", f"{describe(tree)} sees timestamps in the zone of its machine")
    return Subject(Call(udf.measured_name, args, udf.returns), udf.returns)


def to_python_number(constant: Const) -> object:
    """Return the Python value of a constant number, to compare it with numbers of other types."""
    return from_key(cast("int", constant.value), constant.type)
