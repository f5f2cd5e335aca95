"""Handlers of Catalyst's value expressions: each returns the model's expression, which never fails on a row."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, cast

from layoutopt.model.predicates import Call, Col, Const, Expr
from layoutopt.model.predicates.nodes import RUN_CODE
from layoutopt.model.predicates.patterns import template_groups
from layoutopt.model.types import INTEGER_BITS, VARIANT, decimal_digits
from layoutopt.model.values import key_kind
from layoutopt.model.values.keys import from_key
from layoutopt.spark.catalyst.trees import (
    Reader,
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
from layoutopt.sql import calls as sql_calls
from layoutopt.sql import expressions as sql_expressions
from layoutopt.sql import typed_arithmetic as sql_arithmetic
from layoutopt.sql.calls import MAX_SHIFT, shift_by, shift_by_days
from layoutopt.sql.functions import DATE_TRUNC_UNITS, TRUNC_UNITS
from layoutopt.sql.operands import Subject, explicit_cast
from layoutopt.sql.problems import Unusable
from layoutopt.sql.types import TypedConstant, is_floating, is_integer, is_number, normal_type

Handler = Callable[[Tree, Reader], Subject]

_MODE: Final = re.compile(r"NumericEvalContext\((\w+),(\w+)\)")
_JSON_PATH: Final = re.compile(r"\$(?:\.[A-Za-z_]\w{0,63}|\[\d{1,9}\]){1,50}", re.ASCII)
_VARIANT_PATH: Final = re.compile(r"\$(?:\.[A-Za-z_]\w{0,63}|\[\d{1,9}\]){0,50}", re.ASCII)
_VARIANT_TYPES: Final = frozenset({*INTEGER_BITS, "boolean", "float", "double", "string", "date"})
_CONTAINED_TYPES: Final = frozenset(
    {*INTEGER_BITS, "string", "boolean", "date", "timestamp", "timestamp_ntz", "float", "double"}
)
_NO_END: Final = (1 << 31) - 1  # the length in Catalyst's ``substr(s, 2)``
_MICROS: Final = (("DAY", 86_400_000_000), ("HOUR", 3_600_000_000), ("MINUTE", 60_000_000), ("SECOND", 1_000_000))


def check_zone(tree: Tree, reader: Reader) -> None:
    """Raise Unusable if a part depends on another time zone than the reader's."""
    if depends_on_zone(tree) and get_zone(tree) != reader.zone:
        raise Unusable("inexact", f"{describe(tree)} is read in {get_zone(tree)}, other parts in {reader.zone}")


def read_argument(tree: Tree, reader: Reader) -> Expr:
    """Return an operand as an argument: a constant, or a subject with explicit casts.

    Raises:
        Unusable: it has no exact meaning here.
    """
    constant = get_constant(tree)
    return constant if constant is not None else explicit_cast(reader.subject(tree))


def text_argument(tree: Tree, reader: Reader) -> Expr:
    """Return an operand that must be a text, not cast from binary.

    Raises:
        Unusable: it is not.
    """
    result = read_argument(tree, reader)
    if result.type != "string" or is_cast_from_binary(result):
        raise Unusable("coercion", f"{describe(tree)} is not a text that compares byte by byte")
    return result


def read_column(tree: Tree, reader: Reader) -> Subject:
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


def read_element(tree: Tree, reader: Reader) -> Subject:
    """Read the variable of a lambda."""
    if reader.element is None:
        raise unknown(tree)
    return reader.element


def see_through(tree: Tree, reader: Reader) -> Subject:
    """Read an expression that has the value of its operand."""
    return reader.subject(tree.only)


def read_cast(tree: Tree, reader: Reader) -> Subject:
    """Read a cast."""
    check_zone(tree, reader)
    return cast_operand(tree, reader.subject(tree.only), reader.context)


def function_call(name: str, kinds: Sequence[str] | None = None, result: str | None = None) -> Handler:
    """Return the handler of a function of its operands.

    Args:
        name: Spark's name of the function.
        kinds: the types of the operands; None accepts all types.
        result: the result type; None is Catalyst's type.
    """

    def read(tree: Tree, reader: Reader) -> Subject:
        check_zone(tree, reader)
        if kinds is not None and tuple(child.type for child in tree.children) != tuple(kinds):
            raise Unusable("unsupported-function", f"{describe(tree)} has other arguments than are supported")
        takes_text = kinds is not None and "string" in kinds
        args = tuple(
            text_argument(child, reader) if takes_text and child.type == "string" else read_argument(child, reader)
            for child in tree.children
        )
        kind = result or tree.type
        return Subject(Call(name, args, kind), kind)

    return read


def clock_part(name: str) -> Handler:
    """Return the handler of ``hour`` and similar functions, for both timestamp types."""

    def read(tree: Tree, reader: Reader) -> Subject:
        check_zone(tree, reader)
        if tree.only.type not in ("timestamp", "timestamp_ntz"):
            raise unknown(tree)
        return Subject(Call(name, (read_argument(tree.only, reader),), "int"), "int")

    return read


def concat(tree: Tree, reader: Reader) -> Subject:
    """Read ``concat`` of texts."""
    if tree.type != "string":
        raise unknown(tree)
    return Subject(Call("concat", tuple(text_argument(c, reader) for c in tree.children), "string"), "string")


def read_substring(tree: Tree, reader: Reader) -> Subject:
    """Read ``substring``, which Spark also makes of ``left`` and ``right``."""
    text, *bounds = tree.children
    if len(bounds) != 2 or tree.type != "string":
        raise unknown(tree)
    args = [read_argument(bound, reader) for bound in bounds]
    if args[1] == Const(_NO_END, "int"):
        args.pop()
    return Subject(Call("substring", (text_argument(text, reader), *args), "string"), "string")


def locate(tree: Tree, reader: Reader) -> Subject:
    """Read ``locate('a', text)``, which is ``instr(text, 'a')``."""
    if len(tree.children) != 3 or int_constant(tree.children[2], tree) != 1:
        raise unknown(tree)
    part, text, _ = tree.children
    part_text = Const(text_constant(part, tree), "string")
    return Subject(Call("instr", (text_argument(text, reader), part_text), "int"), "int")


def read_side(tree: Tree, reader: Reader) -> sql_arithmetic.Side:
    """Read an operand of arithmetic: a constant or a subject."""
    constant = get_constant(tree)
    return constant if constant is not None else reader.subject(tree)


def arithmetic(function: str) -> Handler:
    """Return the handler of ``a + b`` and the like."""

    def read(tree: Tree, reader: Reader) -> Subject:
        left, right = tree.pair
        mode = _MODE.fullmatch(str(tree.detail("evalContext")))
        if mode is None or not is_number(tree.type):
            raise unknown(tree)
        wraps = is_integer(tree.type) and function in ("try_add", "try_subtract", "try_multiply")
        if wraps and mode[1] not in ("ANSI", "TRY"):
            raise Unusable("can-fail", f"{describe(tree)} has another meaning without ANSI mode")
        sides = read_side(left, reader), read_side(right, reader)
        result = sql_arithmetic.combine(function, *sides, reader.context, describe(tree))
        if decimal_digits(tree.type) and (
            mode[2] != "true" or _count_decimals(result.type) != _count_decimals(tree.type)
        ):
            raise Unusable("coercion", f"{describe(tree)} is {tree.type}, with another scale than computed here")
        if not decimal_digits(tree.type) and result.type != tree.type:
            raise Unusable("coercion", f"{describe(tree)} is {tree.type}, and {result.type} here")
        return result

    return read


def _count_decimals(kind: str) -> int | None:
    digits = decimal_digits(kind)
    return None if digits is None else digits[1]


def _check_ansi_mode(tree: Tree) -> None:
    if tree.detail("failOnError") != "true":
        raise Unusable("can-fail", f"{describe(tree)} has another meaning without ANSI mode")


def negate(tree: Tree, reader: Reader) -> Subject:
    """Read ``-a``."""
    if is_integer(tree.type):
        _check_ansi_mode(tree)
    return sql_arithmetic.negate(reader.subject(tree.only), reader.context, describe(tree))


def absolute_value(tree: Tree, reader: Reader) -> Subject:
    """Read ``abs(a)``."""
    if is_integer(tree.type):
        _check_ansi_mode(tree)
    return sql_arithmetic.absolute_value(reader.subject(tree.only), describe(tree))


def floor_or_ceil(name: str) -> Handler:
    """Return the handler of ``floor`` or ``ceil`` of exact numbers."""
    return lambda tree, reader: sql_arithmetic.floor_or_ceil(name, reader.subject(tree.only), describe(tree))


def floor_or_ceil_double(tree: Tree, reader: Reader) -> Subject | None:
    """Read ``floor(x)`` or ``ceil(x)`` of a double, compared with a constant; None for other expressions."""
    if tree.name not in ("Floor", "Ceil") or len(tree.children) != 1 or not is_floating(tree.children[0].type):
        return None
    _check_ansi_mode(tree)
    return sql_arithmetic.floor_or_ceil_double(tree.name.lower(), reader.subject(tree.children[0]), reader.context)


def round_number(tree: Tree, reader: Reader) -> Subject:
    """Read ``round(a, 2)``."""
    number, places = tree.pair
    result = sql_arithmetic.round_number(reader.subject(number), int_constant(places, tree), describe(tree))
    if result.type != tree.type:
        raise Unusable("coercion", f"{describe(tree)} is {tree.type}, and {result.type} here")
    return result


def same_type_call(name: str) -> Handler:
    """Return the handler of ``coalesce``, ``greatest`` or ``least`` of operands of one type."""

    def read(tree: Tree, reader: Reader) -> Subject:
        if key_kind(tree.type) is None or any(child.type != tree.type for child in tree.children):
            raise unknown(tree)
        args = [read_argument(child, reader) for child in tree.children]
        return Subject(Call(name, tuple(args), tree.type), tree.type)

    return read


def trunc_date(tree: Tree, reader: Reader) -> Subject:
    """Read ``trunc(d, 'MM')``."""
    date, unit = tree.pair
    name = text_constant(unit, tree).upper()
    if name not in TRUNC_UNITS or date.type != "date":
        raise Unusable("unsupported-function", f"{describe(tree)} is supported for dates and plain units only")
    return Subject(Call("trunc", (read_argument(date, reader), Const(name, "string")), "date"), "date")


def trunc_time(tree: Tree, reader: Reader) -> Subject:
    """Read ``date_trunc('month', ts)``."""
    check_zone(tree, reader)
    unit, time = tree.pair
    name = text_constant(unit, tree).upper()
    if name not in DATE_TRUNC_UNITS or time.type != "timestamp":
        raise Unusable("unsupported-function", f"{describe(tree)} is supported for timestamps and plain units only")
    return Subject(Call("date_trunc", (Const(name, "string"), read_argument(time, reader)), "timestamp"), "timestamp")


def add_days(sign: int) -> Handler:
    """Return the handler of ``date_add`` or ``date_sub``."""

    def read(tree: Tree, reader: Reader) -> Subject:
        date, count = tree.pair
        return shift_by_days(reader.subject(date), sign * _read_count(count, tree))

    return read


def add_months(tree: Tree, reader: Reader) -> Subject:
    """Read ``add_months(d, 1)``, and dates or timestamps plus months or years."""
    check_zone(tree, reader)
    moment, count = tree.pair
    kind = count.type
    if kind not in INTEGER_BITS and kind not in ("interval month", "interval year", "interval year to month"):
        raise unknown(tree)
    return shift_by(reader.subject(moment), "MONTH", _read_count(count, tree), reader.context, describe(tree))


def add_interval(tree: Tree, reader: Reader) -> Subject:
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


def struct_field(tree: Tree, reader: Reader) -> Subject:
    """Read a field of a struct."""
    struct = reader.subject(tree.only)
    result = sql_expressions.struct_field(struct.expr, str(tree.detail("field")), describe(tree))
    return Subject(result, result.type)


def container_element(from_one: bool) -> Handler:
    """Return the handler of an element of an array, a map, or a split text."""

    def read(tree: Tree, reader: Reader) -> Subject:
        container, key = tree.pair
        if container.name == "StringSplitSQL":
            return _split_part(tree, container, key, reader)
        operand = reader.subject(container)
        constant = get_constant(key)
        if constant is None or constant.value is None:
            raise Unusable("unsupported-expression", f"{describe(tree)} is supported for constant keys only")
        value = TypedConstant(constant.value, constant.type)  # an int or a text, of which the key is the value
        result = sql_expressions.container_element(operand.expr, value, from_one, describe(tree))
        return Subject(result, result.type)

    return read


def _split_part(tree: Tree, split: Tree, place: Tree, reader: Reader) -> Subject:
    """Read ``split_part(text, ',', 2)``."""
    text, separator = split.pair
    number = int_constant(place, tree)
    if number == 0 or tree.detail("failOnError") != "false":
        raise unknown(tree)
    args = (text_argument(text, reader), Const(text_constant(separator, tree), "string"), Const(number, "int"))
    return Subject(Call("split_part", args, "string"), "string")


def substring_index(tree: Tree, reader: Reader) -> Subject:
    """Read ``substring_index(text, '.', 2)``."""
    if len(tree.children) != 3:
        raise unknown(tree)
    text, separator, count = tree.children
    args = (
        text_argument(text, reader),
        Const(text_constant(separator, tree), "string"),
        Const(int_constant(count, tree), "int"),
    )
    return Subject(Call("substring_index", args, "string"), "string")


def regexp_extract(tree: Tree, reader: Reader) -> Subject:
    """Read ``regexp_extract(text, 'a(.)', 1)`` with a pattern that Java surely accepts."""
    if len(tree.children) != 3:
        raise unknown(tree)
    pattern, group = text_constant(tree.children[1], tree), int_constant(tree.children[2], tree)
    groups = template_groups(pattern)
    if groups is None or not 0 <= group <= groups:
        raise Unusable("can-fail", f"{pattern!r} may not be a valid Java pattern with a group {group}")
    args = (text_argument(tree.children[0], reader), Const(pattern, "string"), Const(group, "int"))
    return Subject(Call("regexp_extract", args, "string"), "string")


def get_json_object(tree: Tree, reader: Reader) -> Subject:
    """Read ``get_json_object(text, '$.a.b[0]')`` with plain keys and indexes."""
    text, path = tree.pair
    path_text = text_constant(path, tree)
    if not _JSON_PATH.fullmatch(path_text):
        raise Unusable("unsupported-expression", f"{describe(tree)} has a path that is not supported")
    return Subject(
        Call("get_json_object", (text_argument(text, reader), Const(path_text, "string")), "string"), "string"
    )


def variant_get(tree: Tree, reader: Reader) -> Subject:
    """Read ``try_variant_get(v, '$.a', 'int')``, or ``variant_get``, which fails if that is NULL."""
    check_zone(tree, reader)
    variant, path = tree.pair
    path_text, operand = text_constant(path, tree), reader.subject(variant)
    is_supported = tree.type in _VARIANT_TYPES or decimal_digits(tree.type)
    if operand.type != VARIANT or not is_supported or not _VARIANT_PATH.fullmatch(path_text):
        raise Unusable("unsupported-expression", f"{describe(tree)} has a path or type that is not supported")
    args = (operand.expr, Const(path_text, "string"), Const(tree.type, "string"))
    return Subject(Call("try_variant_get", args, tree.type), tree.type)


def array_contains(tree: Tree, reader: Reader) -> Subject:
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


def array_end(name: str) -> Handler:
    """Return the handler of ``array_max`` or ``array_min``."""
    return lambda tree, reader: sql_calls.array_end(name, reader.subject(tree.only), describe(tree))


def map_part(values: bool) -> Handler:
    """Return the handler of ``map_keys`` or ``map_values``."""

    def read(tree: Tree, reader: Reader) -> Subject:
        result = sql_expressions.map_part(reader.subject(tree.only).expr, values, describe(tree))
        return Subject(result, result.type)

    return read


def user_function(tree: Tree, reader: Reader) -> Subject:
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
