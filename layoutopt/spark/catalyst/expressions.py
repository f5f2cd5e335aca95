"""Handlers of Catalyst's expressions with a value: each gives the model's expression, which fails on no row."""

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
    constant_of,
    depends_on_zone,
    is_of_binary,
    read_cast,
    text_constant,
    text_of,
    unknown,
    whole_constant,
    zone_of,
)
from layoutopt.sql import calls as pieces
from layoutopt.sql import expressions as nested
from layoutopt.sql import typed_arithmetic as numbers
from layoutopt.sql.calls import MOST, shift_by, shift_by_days
from layoutopt.sql.functions import DATE_TRUNC_UNITS, TRUNC_UNITS
from layoutopt.sql.operands import Subject, explicit_cast
from layoutopt.sql.problems import Unusable
from layoutopt.sql.types import TypedConstant, is_floating, is_integer, is_number, normal_type

Handler = Callable[[Tree, Reader], Subject]

_MODE: Final = re.compile(r"NumericEvalContext\((\w+),(\w+)\)")
_JSON_PATH: Final = re.compile(r"\$(?:\.[A-Za-z_]\w{0,63}|\[\d{1,9}\]){1,50}", re.ASCII)
_VARIANT_PATH: Final = re.compile(r"\$(?:\.[A-Za-z_]\w{0,63}|\[\d{1,9}\]){0,50}", re.ASCII)
_OF_VARIANTS: Final = frozenset({*INTEGER_BITS, "boolean", "float", "double", "string", "date"})
_CONTAINED: Final = frozenset(
    {*INTEGER_BITS, "string", "boolean", "date", "timestamp", "timestamp_ntz", "float", "double"}
)
_NO_END: Final = (1 << 31) - 1
"""The length that ``substr(s, 2)`` takes."""
_MICROS: Final = (("DAY", 86_400_000_000), ("HOUR", 3_600_000_000), ("MINUTE", 60_000_000), ("SECOND", 1_000_000))


def check_zone(tree: Tree, reader: Reader) -> None:
    """Refuse a part that depends on another time zone than the reader's.

    Raises:
        Unusable: it does.
    """
    if depends_on_zone(tree) and zone_of(tree) != reader.zone:
        raise Unusable("inexact", f"{text_of(tree)} is read in {zone_of(tree)}, other parts in {reader.zone}")


def argument(tree: Tree, reader: Reader) -> Expr:
    """Return an operand as an argument: a constant, or a subject with its casts written down.

    Raises:
        Unusable: it has no exact meaning here.
    """
    constant = constant_of(tree)
    return constant if constant is not None else explicit_cast(reader.subject(tree))


def text_argument(tree: Tree, reader: Reader) -> Expr:
    """Return an operand that is a text of its own, not one cast from binary.

    Raises:
        Unusable: it is none.
    """
    found = argument(tree, reader)
    if found.type != "string" or is_of_binary(found):
        raise Unusable("coercion", f"{text_of(tree)} is no text that compares byte by byte")
    return found


def read_column(tree: Tree, reader: Reader) -> Subject:
    """Read a column of the table."""
    name = tree.detail("name")
    if name is None or reader.element is not None:
        raise Unusable("correlated", f"{text_of(tree)} is no column of the scan")
    column = reader.schema.get(str(name))
    if column is None or column.name != name:
        raise Unusable("unsupported-expression", f"{name} is no column of the table")
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
    """Read the operand of an expression that has its value."""
    return reader.subject(tree.only)


def cast_of(tree: Tree, reader: Reader) -> Subject:
    """Read a cast."""
    check_zone(tree, reader)
    return read_cast(tree, reader.subject(tree.only), reader.context)


def called(name: str, kinds: Sequence[str] | None = None, gives: str | None = None) -> Handler:
    """Return the handler of a function that is called with its operands.

    Args:
        name: Spark's name of it.
        kinds: the types of the operands; any, where left out.
        gives: the type of the result; Catalyst's, where left out.
    """

    def read(tree: Tree, reader: Reader) -> Subject:
        check_zone(tree, reader)
        if kinds is not None and tuple(child.type for child in tree.children) != tuple(kinds):
            raise Unusable("unsupported-function", f"{text_of(tree)} has other arguments than are followed here")
        take = text_argument if kinds is not None and "string" in kinds else None
        args = tuple(
            (take if take is not None and child.type == "string" else argument)(child, reader)
            for child in tree.children
        )
        kind = gives or tree.type
        return Subject(Call(name, args, kind), kind)

    return read


def clock_part(name: str) -> Handler:
    """Return the handler of ``hour`` and the like, of both kinds of timestamps."""

    def read(tree: Tree, reader: Reader) -> Subject:
        check_zone(tree, reader)
        if tree.only.type not in ("timestamp", "timestamp_ntz"):
            raise unknown(tree)
        return Subject(Call(name, (argument(tree.only, reader),), "int"), "int")

    return read


def concatenated(tree: Tree, reader: Reader) -> Subject:
    """Read ``concat`` of texts."""
    if tree.type != "string":
        raise unknown(tree)
    return Subject(Call("concat", tuple(text_argument(c, reader) for c in tree.children), "string"), "string")


def substring(tree: Tree, reader: Reader) -> Subject:
    """Read ``substring``, of which ``left`` and ``right`` are made too."""
    text, *others = tree.children
    if len(others) != 2 or tree.type != "string":
        raise unknown(tree)
    args = [argument(other, reader) for other in others]
    if args[1] == Const(_NO_END, "int"):
        args.pop()
    return Subject(Call("substring", (text_argument(text, reader), *args), "string"), "string")


def located(tree: Tree, reader: Reader) -> Subject:
    """Read ``locate('a', text)``, which is ``instr(text, 'a')``."""
    if len(tree.children) != 3 or whole_constant(tree.children[2], tree) != 1:
        raise unknown(tree)
    part, text, _ = tree.children
    sought = Const(text_constant(part, tree), "string")
    return Subject(Call("instr", (text_argument(text, reader), sought), "int"), "int")


def side(tree: Tree, reader: Reader) -> numbers.Side:
    """Read an operand of arithmetic."""
    constant = constant_of(tree)
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
            raise Unusable("can-fail", f"{text_of(tree)} has another meaning without ANSI mode")
        sides = side(left, reader), side(right, reader)
        found = numbers.combine(function, *sides, reader.context, text_of(tree))
        if decimal_digits(tree.type) and (mode[2] != "true" or _places(found.type) != _places(tree.type)):
            raise Unusable("coercion", f"{text_of(tree)} is {tree.type}, with other places than are computed here")
        if not decimal_digits(tree.type) and found.type != tree.type:
            raise Unusable("coercion", f"{text_of(tree)} is {tree.type}, and {found.type} here")
        return found

    return read


def _places(kind: str) -> int | None:
    digits = decimal_digits(kind)
    return None if digits is None else digits[1]


def negative(tree: Tree, reader: Reader) -> Subject:
    """Read ``-a``."""
    if is_integer(tree.type) and tree.detail("failOnError") != "true":
        raise Unusable("can-fail", f"{text_of(tree)} has another meaning without ANSI mode")
    return numbers.negative(reader.subject(tree.only), reader.context, text_of(tree))


def absolute(tree: Tree, reader: Reader) -> Subject:
    """Read ``abs(a)``."""
    if is_integer(tree.type) and tree.detail("failOnError") != "true":
        raise Unusable("can-fail", f"{text_of(tree)} has another meaning without ANSI mode")
    return numbers.absolute(reader.subject(tree.only), text_of(tree))


def whole(name: str) -> Handler:
    """Return the handler of ``floor`` or ``ceil`` of exact numbers."""
    return lambda tree, reader: numbers.whole(name, reader.subject(tree.only), text_of(tree))


def whole_of_double(tree: Tree, reader: Reader) -> Subject | None:
    """Read ``floor(x)`` or ``ceil(x)`` of a double beside a constant; None of other expressions."""
    if tree.name not in ("Floor", "Ceil") or len(tree.children) != 1 or not is_floating(tree.children[0].type):
        return None
    if tree.detail("failOnError") != "true":
        raise Unusable("can-fail", f"{text_of(tree)} has another meaning without ANSI mode")
    return numbers.whole_of_double(tree.name.lower(), reader.subject(tree.children[0]), reader.context)


def rounded(tree: Tree, reader: Reader) -> Subject:
    """Read ``round(a, 2)``."""
    number, places = tree.pair
    found = numbers.rounded(reader.subject(number), whole_constant(places, tree), text_of(tree))
    if found.type != tree.type:
        raise Unusable("coercion", f"{text_of(tree)} is {tree.type}, and {found.type} here")
    return found


def one_of(name: str) -> Handler:
    """Return the handler of ``coalesce``, ``greatest`` and ``least``, whose operands have one type."""

    def read(tree: Tree, reader: Reader) -> Subject:
        if key_kind(tree.type) is None or any(child.type != tree.type for child in tree.children):
            raise unknown(tree)
        args = [argument(child, reader) for child in tree.children]
        return Subject(Call(name, tuple(args), tree.type), tree.type)

    return read


def truncated_date(tree: Tree, reader: Reader) -> Subject:
    """Read ``trunc(d, 'MM')``."""
    date, unit = tree.pair
    name = text_constant(unit, tree).upper()
    if name not in TRUNC_UNITS or date.type != "date":
        raise Unusable("unsupported-function", f"{text_of(tree)} is followed for dates and plain units only")
    return Subject(Call("trunc", (argument(date, reader), Const(name, "string")), "date"), "date")


def truncated_time(tree: Tree, reader: Reader) -> Subject:
    """Read ``date_trunc('month', ts)``."""
    check_zone(tree, reader)
    unit, time = tree.pair
    name = text_constant(unit, tree).upper()
    if name not in DATE_TRUNC_UNITS or time.type != "timestamp":
        raise Unusable("unsupported-function", f"{text_of(tree)} is followed for timestamps and plain units only")
    return Subject(Call("date_trunc", (Const(name, "string"), argument(time, reader)), "timestamp"), "timestamp")


def days_added(sign: int) -> Handler:
    """Return the handler of ``date_add`` or ``date_sub``."""

    def read(tree: Tree, reader: Reader) -> Subject:
        date, count = tree.pair
        return shift_by_days(reader.subject(date), sign * _count(count, tree))

    return read


def months_added(tree: Tree, reader: Reader) -> Subject:
    """Read ``add_months(d, 1)``, and dates and times moved by months or years."""
    check_zone(tree, reader)
    moment, count = tree.pair
    kind = count.type
    if kind not in INTEGER_BITS and kind not in ("interval month", "interval year", "interval year to month"):
        raise unknown(tree)
    return shift_by(reader.subject(moment), "MONTH", _count(count, tree), reader.context, text_of(tree))


def time_added(tree: Tree, reader: Reader) -> Subject:
    """Read ``ts + INTERVAL 1 DAY``."""
    check_zone(tree, reader)
    moment, step = tree.pair
    micros = step.detail("value")
    if step.name != "Literal" or not isinstance(micros, int) or moment.type not in ("timestamp", "timestamp_ntz"):
        raise unknown(tree)
    last = step.type.rpartition(" ")[2].upper()  # of `interval day to second`
    for unit, size in _MICROS:
        if micros % size == 0 and (unit == last or _rank(unit) > _rank(last)):
            count = micros // size
            if abs(count) > MOST:
                break
            return shift_by(reader.subject(moment), unit, count, reader.context, text_of(tree))
    raise Unusable("unsupported-expression", f"{text_of(tree)} is followed for whole seconds only")


def _rank(unit: str) -> int:
    return next((place for place, (name, _) in enumerate(_MICROS) if name == unit), len(_MICROS))


def _count(tree: Tree, parent: Tree) -> int:
    value = tree.detail("value")
    if tree.name != "Literal" or not isinstance(value, int) or isinstance(value, bool) or abs(value) > MOST:
        raise Unusable("unsupported-expression", f"{text_of(parent)} is followed for constants to {MOST:,} only")
    return value


def field_of(tree: Tree, reader: Reader) -> Subject:
    """Read a field of a struct."""
    struct = reader.subject(tree.only)
    found = nested.field_of(struct.expr, str(tree.detail("field")), text_of(tree))
    return Subject(found, found.type)


def element_of(from_one: bool) -> Handler:
    """Return the handler of an element of an array or a map; a part of a text that is split is one, too."""

    def read(tree: Tree, reader: Reader) -> Subject:
        container, key = tree.pair
        if container.name == "StringSplitSQL":
            return _part(tree, container, key, reader)
        given = reader.subject(container)
        constant = constant_of(key)
        if constant is None or constant.value is None:
            raise Unusable("unsupported-expression", f"{text_of(tree)} is followed for constant keys only")
        value = TypedConstant(constant.value, constant.type)  # an int or a text, of which the key is the value
        found = nested.element_of(given.expr, value, from_one, text_of(tree))
        return Subject(found, found.type)

    return read


def _part(tree: Tree, split: Tree, place: Tree, reader: Reader) -> Subject:
    """``split_part(text, ',', 2)``."""
    text, separator = split.pair
    number = whole_constant(place, tree)
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
        Const(whole_constant(count, tree), "int"),
    )
    return Subject(Call("substring_index", args, "string"), "string")


def regexp_extract(tree: Tree, reader: Reader) -> Subject:
    """Read ``regexp_extract(text, 'a(.)', 1)`` by a template that Java surely takes."""
    if len(tree.children) != 3:
        raise unknown(tree)
    pattern, group = text_constant(tree.children[1], tree), whole_constant(tree.children[2], tree)
    groups = template_groups(pattern)
    if groups is None or not 0 <= group <= groups:
        raise Unusable("can-fail", f"{pattern!r} may not be a pattern that Java takes, with a group {group}")
    args = (text_argument(tree.children[0], reader), Const(pattern, "string"), Const(group, "int"))
    return Subject(Call("regexp_extract", args, "string"), "string")


def get_json_object(tree: Tree, reader: Reader) -> Subject:
    """Read ``get_json_object(text, '$.a.b[0]')``, of plain keys and places."""
    text, path = tree.pair
    written = text_constant(path, tree)
    if not _JSON_PATH.fullmatch(written):
        raise Unusable("unsupported-expression", f"{text_of(tree)} has a path that is not followed here")
    return Subject(Call("get_json_object", (text_argument(text, reader), Const(written, "string")), "string"), "string")


def variant_get(tree: Tree, reader: Reader) -> Subject:
    """Read ``try_variant_get(v, '$.a', 'int')``, and ``variant_get``, which fails where that is NULL."""
    check_zone(tree, reader)
    variant, path = tree.pair
    written, given = text_constant(path, tree), reader.subject(variant)
    is_followed = tree.type in _OF_VARIANTS or decimal_digits(tree.type)
    if given.type != VARIANT or not is_followed or not _VARIANT_PATH.fullmatch(written):
        raise Unusable("unsupported-expression", f"{text_of(tree)} has a path or type that is not followed here")
    args = (given.expr, Const(written, "string"), Const(tree.type, "string"))
    return Subject(Call("try_variant_get", args, tree.type), tree.type)


def contains(tree: Tree, reader: Reader) -> Subject:
    """Read ``array_contains(xs, 1)``."""
    array, value = tree.pair
    constant = constant_of(value)
    if constant is None:
        raise Unusable("unsupported-expression", f"{text_of(tree)} is followed for a constant only")
    found = contained(reader.subject(array).expr, constant, text_of(tree))
    return Subject(found, "boolean")


def contained(array: Expr, value: Const, text: str) -> Call:
    """Return the call that is TRUE where an array has an element.

    Raises:
        Unusable: the element is NULL, or of another type than the array's, or of one that is not followed.
    """
    if value.value is None or array.type != f"array<{value.type}>" or value.type not in _CONTAINED:
        raise Unusable("coercion", f"{text} looks for {value.type} among elements of {array.type}")
    return Call("array_contains", (array, value), "boolean")


def end_of_array(name: str) -> Handler:
    """Return the handler of ``array_max`` or ``array_min``."""
    return lambda tree, reader: pieces.end_of_array(name, reader.subject(tree.only), text_of(tree))


def part_of_map(values: bool) -> Handler:
    """Return the handler of ``map_keys`` or ``map_values``."""

    def read(tree: Tree, reader: Reader) -> Subject:
        found = nested.part_of_map(reader.subject(tree.only).expr, values, text_of(tree))
        return Subject(found, found.type)

    return read


def user_defined(tree: Tree, reader: Reader) -> Subject:
    """Read a call of a function that a user declared."""
    udf = reader.udfs.get(str(tree.detail("name")))
    if udf is None or udf.name in RUN_CODE or tree.type != udf.returns:
        raise Unusable("unsupported-function", f"{text_of(tree)} has no exact meaning here; a function can be declared")
    args = tuple(argument(child, reader) for child in tree.children)
    if any(arg.type.startswith("timestamp") for arg in args):
        raise Unusable("unsupported-function", f"{text_of(tree)} sees timestamps in the zone of its machine")
    return Subject(Call(udf.measured_name, args, udf.returns), udf.returns)


def value_of(constant: Const) -> object:
    """Return the Python value of a constant number, for comparisons with numbers of other types."""
    return from_key(cast("int", constant.value), constant.type)
