"""How calls in conditions are read: functions that Spark types, or fails, by rules of their own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from sqlglot import exp

from layoutopt.model.predicates import Call, Const, Expr
from layoutopt.model.predicates.patterns import template_groups
from layoutopt.model.types import INTEGER_BITS, VARIANT, decimal_digits, nested_parts
from layoutopt.model.values import key_kind
from layoutopt.sql import typed_arithmetic as numbers
from layoutopt.sql.constant_folding import type_beside_decimal
from layoutopt.sql.functions import TRY_ARITHMETIC
from layoutopt.sql.operands import (
    Context,
    Operand,
    Reader,
    Subject,
    cast_subject,
    const,
    constant_of,
    explicit_cast,
    typed,
)
from layoutopt.sql.problems import Unusable
from layoutopt.sql.types import TypedConstant, cast_constant, decimal_type, exact_digits, is_integer, listed_type

# ----------------------------------------------------------------------------------------------------
# Dates and times moved by a constant: ``d + 3``, ``date_add(d, 3)``, ``add_months(d, 1)``, ``ts - INTERVAL 1 DAY``.
#
# A date moved by days stays one, and wraps around silently. All others are sums that are NULL beyond Spark's calendar.

_MONTHS: Final[Mapping[str, int]] = MappingProxyType({"YEAR": 12, "MONTH": 1})
_CLOCK: Final = ("DAY", "HOUR", "MINUTE", "SECOND")
_TIMES: Final = frozenset({"date", "timestamp", "timestamp_ntz"})
MOST: Final = 1_000_000
"""The most days, months or seconds that are followed."""


def shift_by_constant(node: exp.Expr, context: Context, read: Reader) -> Subject | None:
    """A sum or difference of a date or time and a constant; None for any other arithmetic.

    Raises:
        Unusable: the interval is of another form.
    """
    if not isinstance(node, exp.Add | exp.Sub):
        return None
    start, step = node.this, node.expression
    if isinstance(start, exp.Interval) and isinstance(node, exp.Add):
        start, step = step, start
    sign = -1 if isinstance(node, exp.Sub) else 1
    if isinstance(step, exp.Interval):
        unit = step.args["unit"].name.upper().removesuffix("S") if isinstance(step.args.get("unit"), exp.Var) else ""
        steps = sign * _count(read(step.this), node, context)
        return shift_by(_time(read(start), node), unit, steps, context, node.sql("spark"))
    given = read(start)
    if isinstance(given, TypedConstant) or given.type != "date":
        return None
    count = read(step)
    if not is_integer(count.type):
        return None
    return shift_by_days(given, sign * _count(count, node, context))


def date_added(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """``date_add(d, 3)`` and ``date_sub(d, 3)``."""
    unit = node.args.get("unit")
    if unit is not None and unit.name.upper() != "DAY":
        raise Unusable("unsupported-expression", f"{node.sql('spark')} is followed for days only")
    given = _time(read(node.this), node)
    return shift_by_days(cast_subject(given, "date", context), _count(read(node.expression), node, context))


def months_added(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """``add_months(d, 1)``: to the last day of the month, where that is shorter."""
    given = cast_subject(_time(read(node.this), node), "date", context)
    return shift_by(given, "MONTH", _count(read(node.expression), node, context), context, node.sql("spark"))


def _time(given: Operand, node: exp.Expr) -> Subject:
    if isinstance(given, TypedConstant) or given.type not in _TIMES:
        raise Unusable("coercion", f"{node.sql('spark')} is followed for columns of dates and times only")
    return given


def _count(given: Operand, node: exp.Expr, context: Context) -> int:
    value = None
    if isinstance(given, TypedConstant):
        value = cast_constant(given, "int", context.settings.time_zone).value
    if not isinstance(value, int) or abs(value) > MOST:
        raise Unusable("unsupported-expression", f"{node.sql('spark')} is followed for constants to {MOST:,} only")
    return value


def shift_by_days(given: Subject, days: int) -> Subject:
    """Return a date so many days later."""
    return Subject(Call("date_add", (explicit_cast(given), Const(days, "int")), "date"), "date")


def shift_by(given: Subject, unit: str, count: int, context: Context, text: str) -> Subject:
    """Return a date or time so many years, months, days, hours, minutes or seconds later.

    Raises:
        Unusable: the unit is another one.
    """
    if unit in _MONTHS:
        step = _interval("make_ym_interval", [0, count * _MONTHS[unit]], "interval year to month")
    elif unit == "DAY" and given.type == "date":
        return shift_by_days(given, count)
    elif unit in _CLOCK:
        place = _CLOCK.index(unit)
        step = _interval("make_dt_interval", [0] * place + [count], "interval day to second")
        given = cast_subject(given, "timestamp", context) if given.type == "date" else given
    else:
        raise Unusable("unsupported-expression", f"{text} is followed for years, months, and days to seconds")
    return Subject(Call("try_add", (explicit_cast(given), step), given.type), given.type)


def _interval(name: str, parts: list[int], kind: str) -> Expr:
    return Call(name, tuple(Const(part, "int") for part in parts), kind)


# ----------------------------------------------------------------------------------------------------
# Arithmetic of columns as SQL texts write it; rounding, extremes.


def arithmetic(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """``a + b`` and the like of numbers, and dates and times moved by days or intervals.

    Raises:
        Unusable: of others, or ANSI mode is off, where results wrap around.
    """
    if not context.settings.ansi:
        raise Unusable("can-fail", f"{node.sql('spark')} has another meaning without ANSI mode")
    moved = shift_by_constant(node, context, read)
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


# ----------------------------------------------------------------------------------------------------
# Pieces of texts and of arrays: ``split_part``, ``regexp_extract``, ``get_json_object``, ``array_max``.

_KEY: Final = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII)
_VARIANT_PATH: Final = re.compile(r"\$(?:\.[A-Za-z_]\w{0,63}|\[\d{1,9}\]){0,50}", re.ASCII)
_OF_VARIANTS: Final = frozenset({*INTEGER_BITS, "boolean", "float", "double", "string", "date"})
_SYNONYMS: Final = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}


def split_part(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """``split_part(text, ',', 2)``: NULL only for NULL, and '' where there are fewer parts."""
    place = _whole(read, node.args["part_index"])
    if place == 0:
        raise Unusable("can-fail", f"{node.sql('spark')} asks for part 0, which Spark refuses")
    return _piece("split_part", node, "delimiter", place, context, read)


def substring_index(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """``substring_index(text, '.', 2)``."""
    return _piece("substring_index", node, "delimiter", _whole(read, node.args["count"]), context, read)


def regexp_extract(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """``regexp_extract(text, 'a(.)', 1)`` by a template: '' where it is not found."""
    if any(node.args.get(name) for name in ("position", "occurrence", "parameters")):
        raise Unusable("unsupported-function", f"{node.sql('spark')} has an argument that is not followed here")
    pattern = str(constant_of(read(node.expression), str, node.sql("spark")))
    group = _whole(read, node.args["group"]) if node.args.get("group") is not None else 1
    groups = template_groups(pattern)
    if groups is None or not 0 <= group <= groups:
        raise Unusable("can-fail", f"{pattern!r} may not be a pattern that Java takes, with a group {group}")
    return _piece("regexp_extract", node, "expression", group, context, read)


def get_json_object(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """``get_json_object(text, '$.a.b[0]')``, of plain keys and places: NULL where the text is no JSON or has none."""
    path = node.expression
    parts = path.expressions if isinstance(path, exp.JSONPath) else []
    written = "".join(map(_step, parts[1:]))
    if not parts or not isinstance(parts[0], exp.JSONPathRoot) or not written:
        raise Unusable("unsupported-expression", f"{node.sql('spark')} has a path that is not followed here")
    text = typed(read(node.this), "string", context)
    return Subject(Call("get_json_object", (text, Const(f"${written}", "string")), "string"), "string")


def try_variant_get(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """``try_variant_get(v, '$.a.b[0]', 'int')``, of plain keys and places: NULL where there is none that can be cast.

    ``variant_get`` is not followed: it fails on values of other types.
    """
    arguments = node.expressions
    if len(arguments) != 3:
        raise Unusable("unsupported-expression", f"{node.sql('spark')} has other arguments than are followed here")
    variant = read(arguments[0])
    if isinstance(variant, TypedConstant) or variant.type != VARIANT:
        raise Unusable("coercion", f"{node.sql('spark')} is asked of {variant.type}")
    path, wanted = (str(constant_of(read(each), str, node.sql("spark"))) for each in arguments[1:])
    type = _SYNONYMS.get(wanted.strip().lower(), wanted.strip().lower())
    if not _VARIANT_PATH.fullmatch(path) or not (type in _OF_VARIANTS or decimal_digits(type)):
        raise Unusable("unsupported-expression", f"{node.sql('spark')} has a path or type that is not followed here")
    return Subject(Call("try_variant_get", (variant.expr, Const(path, "string"), Const(type, "string")), type), type)


def _step(part: exp.Expr) -> str:
    name = part.this
    if isinstance(part, exp.JSONPathKey) and isinstance(name, str) and _KEY.fullmatch(name):
        return f".{name}"
    if isinstance(part, exp.JSONPathSubscript) and isinstance(name, int) and 0 <= name < 1 << 31:
        return f"[{name}]"
    raise Unusable("unsupported-expression", "a path is followed for plain keys and places only")


def end_of_array(name: str, array: Subject, text: str) -> Subject:
    """``array_max(values)`` or ``array_min(values)``: the last or first of the elements that are not NULL."""
    kind, parts = nested_parts(array.type)
    if kind != "array" or len(parts) != 1 or key_kind(parts[0]) is None or "collate" in parts[0] or "char" in parts[0]:
        raise Unusable("unordered-type", f"{text} is asked of {array.type}")
    return Subject(Call(name, (array.expr,), parts[0]), parts[0])


def _whole(read: Reader, node: exp.Expr) -> int:
    value = constant_of(read(node), int, node.sql("spark"))
    assert isinstance(value, int), "asked for above"
    if not -(1 << 31) <= value < 1 << 31:
        raise Unusable("inexact", f"{value} is no int")
    return value


def _piece(name: str, node: exp.Expr, by: str, place: int, context: Context, read: Reader) -> Subject:
    separator = str(constant_of(read(node.args[by]), str, node.sql("spark")))
    given = read(node.this)
    if given.type == "binary":
        raise Unusable("coercion", f"{node.sql('spark')} is of binary, where functions of strings mean something else")
    args = (typed(given, "string", context), Const(separator, "string"), Const(place, "int"))
    return Subject(Call(name, args, "string"), "string")


# ----------------------------------------------------------------------------------------------------
# CASE, IF, NULLIF and NVL2 within a condition: the tests that are made one after the other, and what each leaves.

_KINDS: Final = (exp.Case, exp.If, exp.Nullif, exp.Nvl2)
_MOST_BRANCHES: Final = 16
_MOST_CHOICES: Final = 4


@dataclass(frozen=True, eq=False)
class Choice:
    """A condition that holds a choice.

    Attributes:
        tests: in the order in which they are made; the first that is TRUE counts.
        outcomes: the condition with each test's value in the choice's place, and last with the value where none is.
    """

    tests: tuple[exp.Expr, ...]
    outcomes: tuple[exp.Expr, ...]


def choice_in(condition: exp.Expr, context: Context, read: Reader) -> Choice | None:
    """A choice within a condition; None where it has none.

    Raises:
        Unusable: it has too many branches, or their values have no common type here.
    """
    parts = list(condition.walk())
    places = [i for i, part in enumerate(parts) if isinstance(part, _KINDS) and part.arg_key != "ifs"]
    if not places or any(isinstance(part, exp.Query | exp.Lambda) for part in parts):
        return None
    # Values have types once the choices within them are made; the alternatives of a condition are conditions.
    place = places[-1] if places[0] else 0
    tests, values = _branches(parts[place])
    if len(tests) > _MOST_BRANCHES or len(places) > _MOST_CHOICES:
        raise Unusable("unsupported-expression", f"{condition.sql('spark')[:80]} has too many branches")
    if place:
        values = _of_one_type(values, context, read)
    return Choice(tuple(tests), tuple(_replaced(condition, place, value) for value in values))


def _branches(node: exp.Expr) -> tuple[list[exp.Expr], list[exp.Expr]]:
    null = exp.Null()
    if isinstance(node, exp.Nullif):
        return [exp.EQ(this=node.this.copy(), expression=node.expression.copy())], [null, node.this]
    if isinstance(node, exp.Nvl2):
        return [exp.Is(this=node.this.copy(), expression=exp.Null()).not_()], [node.args["true"], node.args["false"]]
    if isinstance(node, exp.If):
        return [node.this], [node.args["true"], node.args.get("false") or null]
    ifs, given = node.args["ifs"], node.this
    tests = [each.this if given is None else exp.EQ(this=given.copy(), expression=each.this.copy()) for each in ifs]
    return tests, [*(each.args["true"] for each in ifs), node.args.get("default") or null]


def _of_one_type(values: Sequence[exp.Expr], context: Context, read: Reader) -> list[exp.Expr]:
    """The values as Spark casts them to their common type."""
    types = [read(value).type for value in values]
    kind = listed_type(types, ansi=context.settings.ansi)
    return [
        value if type == kind else exp.cast(value.copy(), kind, dialect="spark")
        for value, type in zip(values, types, strict=True)
    ]


def _replaced(condition: exp.Expr, place: int, value: exp.Expr) -> exp.Expr:
    if not place:
        return value.copy()
    copied = condition.copy()
    list(copied.walk())[place].replace(exp.Paren(this=value.copy()))
    return copied
