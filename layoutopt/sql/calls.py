"""Readers of calls that Spark types, or fails, by rules of their own; and of CASE within a condition.

Readers take the node, its context and a function that reads an argument; they raise :class:`Unusable`. A date shifted
by days stays a date and wraps around silently. All other shifts are sums that are NULL beyond Spark's calendar.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final

from sqlglot import exp

from layoutopt.functions.function import Function
from layoutopt.model.predicates import Call, Const, Expr
from layoutopt.model.predicates.patterns import template_groups
from layoutopt.model.types import INTEGER_BITS, VARIANT, decimal_digits, nested_parts
from layoutopt.model.values import key_kind
from layoutopt.sql import typed_arithmetic as numbers
from layoutopt.sql.constant_folding import DAYS, MONTHS, split_shift, type_beside_decimal
from layoutopt.sql.functions import DATE_TRUNC_UNITS, TRUNC_UNITS, TRY_ARITHMETIC
from layoutopt.sql.operands import (
    Context,
    Operand,
    Reader,
    Subject,
    cast_operand,
    cast_subject,
    constant_value,
    explicit_cast,
    to_const,
)
from layoutopt.sql.problems import Unusable
from layoutopt.sql.time_formats import is_sorted_pattern
from layoutopt.sql.types import TypedConstant, cast_constant, decimal_type, exact_digits, is_integer, list_type

_CLOCK: Final = ("DAY", "HOUR", "MINUTE", "SECOND")
_TIMES: Final = frozenset({"date", "timestamp", "timestamp_ntz"})
# The largest supported shift in days, months or seconds.
MAX_SHIFT: Final = 1_000_000


def read_date_add(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """Return ``date_add(d, 3)`` or ``date_sub(d, 3)``."""
    unit = node.args.get("unit")
    if unit is not None and unit.name.upper() != "DAY":
        raise Unusable("unsupported-expression", f"{node.sql('spark')} is supported for days only")
    date = cast_subject(_check_time(read(node.this), node), "date", context)
    return shift_by_days(date, _read_count(read(node.expression), node, context))


def read_add_months(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """Return ``add_months(d, 1)``: to the last day of the month, if that month is shorter."""
    date = cast_subject(_check_time(read(node.this), node), "date", context)
    return shift_by(date, "MONTH", _read_count(read(node.expression), node, context), context, node.sql("spark"))


def _check_time(operand: Operand, node: exp.Expr) -> Subject:
    if isinstance(operand, TypedConstant) or operand.type not in _TIMES:
        raise Unusable("coercion", f"{node.sql('spark')} is supported for date and timestamp columns only")
    return operand


def _read_count(operand: Operand, node: exp.Expr, context: Context) -> int:
    value = None
    if isinstance(operand, TypedConstant):
        value = cast_constant(operand, "int", context.settings.time_zone).value
    if not isinstance(value, int) or abs(value) > MAX_SHIFT:
        raise Unusable(
            "unsupported-expression", f"{node.sql('spark')} is supported for constants up to {MAX_SHIFT:,} only"
        )
    return value


def shift_by_days(date: Subject, days: int) -> Subject:
    """Return a date shifted by days."""
    return Subject(Call("date_add", (explicit_cast(date), Const(days, "int")), "date"), "date")


def shift_by(time: Subject, unit: str, count: int, context: Context, text: str) -> Subject:
    """Return a date or time shifted by years, months, days, hours, minutes or seconds."""
    if unit in MONTHS:
        step = _make_interval("make_ym_interval", [0, count * MONTHS[unit]], "interval year to month")
    elif unit in DAYS and time.type == "date":
        return shift_by_days(time, count * DAYS[unit])
    elif unit in _CLOCK:
        step = _make_interval("make_dt_interval", [0] * _CLOCK.index(unit) + [count], "interval day to second")
        time = cast_subject(time, "timestamp", context) if time.type == "date" else time
    else:
        raise Unusable("unsupported-expression", f"{text} is supported for years, months, and days to seconds only")
    return Subject(Call("try_add", (explicit_cast(time), step), time.type), time.type)


def _make_interval(name: str, parts: list[int], kind: str) -> Expr:
    return Call(name, tuple(Const(part, "int") for part in parts), kind)


def read_arithmetic(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """Return ``a + b`` and the like of numbers, or a date or time shifted by days or an interval."""
    if not context.settings.ansi:
        raise Unusable("can-fail", f"{node.sql('spark')} is supported in ANSI mode only")
    shift = split_shift(node)
    if shift is not None:
        start, amount, unit, sign = shift
        count = sign * _read_count(read(amount), node, context)
        return shift_by(_check_time(read(start), node), unit, count, context, node.sql("spark"))
    left, right = read(node.this), read(node.expression)
    is_sum = isinstance(node, exp.Add | exp.Sub)
    if isinstance(left, Subject) and left.type == "date" and is_sum and is_integer(right.type):
        days = _read_count(right, node, context)
        return shift_by_days(left, -days if isinstance(node, exp.Sub) else days)
    is_decimal = any(decimal_digits(operand.type) for operand in (left, right))
    sides = [_to_side(side, value, is_decimal) for side, value in ((node.this, left), (node.expression, right))]
    return numbers.combine(TRY_ARITHMETIC[type(node)], sides[0], sides[1], context, node.sql("spark"))


def _to_side(node: exp.Expr, operand: Operand, is_decimal: bool) -> numbers.Side:
    """Return an operand of arithmetic; beside a decimal, an integer literal has only its own digits."""
    if not isinstance(operand, TypedConstant):
        return operand
    if is_decimal and is_integer(operand.type) and isinstance(operand.value, int):
        digits = exact_digits(type_beside_decimal(node, operand))
        assert digits is not None, "a whole number has digits"
        return Const(operand.value, decimal_type(*digits))
    return to_const(operand)


def read_negation(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """Return ``-a``."""
    if not context.settings.ansi:
        raise Unusable("can-fail", f"{node.sql('spark')} is supported in ANSI mode only")
    text = node.sql("spark")
    return numbers.negate(check_subject(read(node.this), text), context, text)


def read_compared_only(node: exp.Expr, context: Context, read: Reader) -> Subject | None:
    """Return ``floor(x)`` or ``ceil(x)`` of a double, ``a DIV 10`` or a time's text; None for other expressions.

    Their comparison with a constant is one of the argument itself. Elsewhere they may fail, or have no exact form.
    """
    node = node.unnest()
    if node.find(exp.Column) is None:
        return None
    if isinstance(node, exp.IntDiv):
        divisor = read(node.expression)
        value = divisor.value if isinstance(divisor, TypedConstant) and is_integer(divisor.type) else None
        return numbers.divide_whole(check_subject(read(node.this), node.sql("spark")), value, node.sql("spark"))
    if isinstance(node, exp.TimeToStr | exp.UnixToStr):
        return _read_time_text(node, context, read)
    if not isinstance(node, exp.Floor | exp.Ceil) or node.args.get("decimals") or node.args.get("to"):
        return None
    if not context.settings.ansi:
        return None  # values that don't fit become the largest bigint instead of failing
    operand = read(node.this)
    if isinstance(operand, TypedConstant):
        return None
    return numbers.floor_or_ceil_double("floor" if isinstance(node, exp.Floor) else "ceil", operand, context)


def _read_time_text(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """Return ``date_format(d, 'yyyy-MM')`` or ``from_unixtime(n, 'yyyy-MM')``."""
    text, pattern, inner = node.sql("spark"), node.args["format"].name, node.this
    time = check_subject(read(inner.this if isinstance(inner, exp.TimeStrToTime) else inner), text)
    is_date, is_unix = time.type == "date", isinstance(node, exp.UnixToStr)
    if not (is_integer(time.expr.type) if is_unix else time.type in _TIMES):
        raise Unusable("coercion", f"{text} is supported for {'seconds' if is_unix else 'dates and timestamps'} only")
    if not is_sorted_pattern(pattern, has_time=not is_date) or not (is_date or context.settings.time_zone == "UTC"):
        raise Unusable(
            "unsupported-function", f"{text} is supported for years before months before days, and in UTC only"
        )
    argument = time.expr if is_unix else explicit_cast(time)
    name = "from_unixtime" if is_unix else "date_format"
    return Subject(Call(name, (argument, Const(pattern, "string")), "string"), "string")


def check_subject(operand: Operand, text: str) -> Subject:
    """Return an operand with columns; raise Unusable for a constant."""
    if isinstance(operand, TypedConstant):
        raise Unusable("unsupported-expression", f"{text} is a constant")
    return operand


_JSON_KEY: Final = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII)
_VARIANT_PATH: Final = re.compile(r"\$(?:\.[A-Za-z_]\w{0,63}|\[\d{1,9}\]){0,50}", re.ASCII)
_VARIANT_TYPES: Final = frozenset({*INTEGER_BITS, "boolean", "float", "double", "string", "date"})
_SYNONYMS: Final = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}


def read_get_json_object(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """Return ``get_json_object(text, '$.a.b[0]')`` with plain keys and positions: NULL if there is no such value."""
    path = node.expression
    parts = path.expressions if isinstance(path, exp.JSONPath) else []
    steps = "".join(map(_format_json_step, parts[1:]))
    if not parts or not isinstance(parts[0], exp.JSONPathRoot) or not steps:
        raise Unusable("unsupported-expression", f"{node.sql('spark')} has an unsupported path")
    text = cast_operand(read(node.this), "string", context)
    return Subject(Call("get_json_object", (text, Const(f"${steps}", "string")), "string"), "string")


def _format_json_step(part: exp.Expr) -> str:
    step = part.this
    if isinstance(part, exp.JSONPathKey) and isinstance(step, str) and _JSON_KEY.fullmatch(step):
        return f".{step}"
    if isinstance(part, exp.JSONPathSubscript) and isinstance(step, int) and 0 <= step < 1 << 31:
        return f"[{step}]"
    raise Unusable("unsupported-expression", "JSON paths are supported with plain keys and positions only")


# Builds a function's call from its arguments, for the readers of SQL texts and of Catalyst's trees.
Builder = Callable[[Sequence[Operand], Context, str], Subject]


def build_call(function: Function, arguments: Sequence[Operand], context: Context, text: str) -> Subject:
    """Return the call of a function: typed by its signature, or by a rule of its own.

    Raises:
        Unusable: the call has no exact meaning, or may fail; ``text`` is for the message.
    """
    kinds = function.argument_types(len(arguments))
    if kinds is None or (function.gives is None and function.name not in _BUILDERS):
        raise Unusable("unsupported-function", f"{text} is not supported")
    if function.gives is None:
        return _BUILDERS[function.name](arguments, context, text)
    args = tuple(cast_argument(operand, kind, context, text) for operand, kind in zip(arguments, kinds, strict=True))
    return Subject(Call(function.name, args, function.gives), function.gives)


def cast_argument(operand: Operand, kind: str, context: Context, text: str) -> Expr:
    """Return an argument cast to the type that a function takes."""
    if kind == "timestamp" and operand.type == "timestamp_ntz" and isinstance(operand, Subject):
        return explicit_cast(operand)  # hour() and the like take both
    if kind == "string" and operand.type == "binary" and isinstance(operand, Subject):
        raise Unusable("coercion", f"{text} is of binary; only functions of strings are supported")
    return cast_operand(operand, kind, context)


def _build_floor(name: str, arguments: Sequence[Operand], context: Context, text: str) -> Subject:
    """Build ``floor(a)`` or ``ceil(a)`` of exact numbers; of a float they may fail."""
    return numbers.floor_or_ceil(name, check_subject(arguments[0], text), text)


def _build_round(arguments: Sequence[Operand], context: Context, text: str) -> Subject:
    """Build ``round(a, 2)``: half away from zero."""
    places = _read_int(arguments[1], text) if len(arguments) == 2 else 0
    return numbers.round_number(check_subject(arguments[0], text), places, text)


def _build_abs(arguments: Sequence[Operand], context: Context, text: str) -> Subject:
    number = check_subject(arguments[0], text)
    if is_integer(number.type) and not context.settings.ansi:
        raise Unusable("coercion", f"{text} may be negative without ANSI mode")
    return numbers.absolute_value(number, text)


def _build_selection(name: str, arguments: Sequence[Operand], context: Context, text: str) -> Subject:
    """Build ``coalesce``, ``greatest`` or ``least`` of expressions of one type: NULL if all are."""
    kind = list_type((operand.type for operand in arguments), ansi=context.settings.ansi)
    return Subject(Call(name, tuple(cast_operand(operand, kind, context) for operand in arguments), kind), kind)


def _build_array_end(name: str, arguments: Sequence[Operand], context: Context, text: str) -> Subject:
    """Build ``array_max(values)`` or ``array_min(values)``: the last or first element that is not NULL."""
    array = check_subject(arguments[0], text)
    kind, parts = nested_parts(array.type)
    if kind != "array" or len(parts) != 1 or key_kind(parts[0]) is None or "collate" in parts[0] or "char" in parts[0]:
        raise Unusable("unordered-type", f"{text}: {array.type} is not an array of ordered elements")
    return Subject(Call(name, (array.expr,), parts[0]), parts[0])


def _build_trunc(arguments: Sequence[Operand], context: Context, text: str) -> Subject:
    """Build ``trunc(d, 'MM')``."""
    date, unit = arguments[0], _read_text(arguments[1], text).upper()
    if unit not in TRUNC_UNITS or isinstance(date, TypedConstant) or date.type != "date":
        raise Unusable("unsupported-function", f"{text} is supported for dates and plain units only")
    return Subject(Call("trunc", (explicit_cast(date), Const(unit, "string")), "date"), "date")


def _build_date_trunc(arguments: Sequence[Operand], context: Context, text: str) -> Subject:
    """Build ``date_trunc('month', ts)``."""
    unit, time = _read_text(arguments[0], text).upper(), arguments[1]
    is_time = isinstance(time, Subject) and time.type in ("date", "timestamp")
    if unit not in DATE_TRUNC_UNITS or not is_time:
        raise Unusable("unsupported-function", f"{text} is supported for dates and timestamps only")
    args = (Const(unit, "string"), cast_operand(time, "timestamp", context))
    return Subject(Call("date_trunc", args, "timestamp"), "timestamp")


def _build_split_part(arguments: Sequence[Operand], context: Context, text: str) -> Subject:
    """Build ``split_part(text, ',', 2)``: NULL only for NULL, and '' if there are fewer parts."""
    if _read_int(arguments[2], text) == 0:
        raise Unusable("can-fail", f"{text} requests part 0, which Spark rejects")
    return _build_text_part("split_part", arguments, context, text)


def _build_regexp_extract(arguments: Sequence[Operand], context: Context, text: str) -> Subject:
    """Build ``regexp_extract(text, 'a(.)', 1)``: '' if there is no match."""
    pattern, group = _read_text(arguments[1], text), _read_int(arguments[2], text) if len(arguments) == 3 else 1
    groups = template_groups(pattern)
    if groups is None or not 0 <= group <= groups:
        raise Unusable("can-fail", f"Java may reject the pattern {pattern!r} with group {group}")
    return _build_text_part("regexp_extract", [*arguments[:2], TypedConstant(group, "int")], context, text)


def _build_text_part(name: str, arguments: Sequence[Operand], context: Context, text: str) -> Subject:
    operand, separator, position = arguments
    if operand.type == "binary":
        raise Unusable("coercion", f"{text} is of binary; only texts are supported")
    constants = Const(_read_text(separator, text), "string"), Const(_read_int(position, text), "int")
    return Subject(Call(name, (cast_operand(operand, "string", context), *constants), "string"), "string")


def _build_try_variant_get(arguments: Sequence[Operand], context: Context, text: str) -> Subject:
    """Build ``try_variant_get(v, '$.a.b[0]', 'int')`` with plain keys and positions: NULL if nothing can be cast.

    ``variant_get`` is not supported in texts: it fails on values of other types.
    """
    variant, path, name = arguments[0], _read_text(arguments[1], text), _read_text(arguments[2], text).strip().lower()
    type = _SYNONYMS.get(name, name)
    if isinstance(variant, TypedConstant) or variant.type != VARIANT:
        raise Unusable("coercion", f"{text}: {variant.type} is not a variant column")
    if not _VARIANT_PATH.fullmatch(path) or not (type in _VARIANT_TYPES or decimal_digits(type)):
        raise Unusable("unsupported-expression", f"{text} has an unsupported path or type")
    return Subject(Call("try_variant_get", (variant.expr, Const(path, "string"), Const(type, "string")), type), type)


def _read_text(operand: Operand, text: str) -> str:
    return str(constant_value(operand, str, text))


def _read_int(operand: Operand, text: str) -> int:
    value = constant_value(operand, int, text)
    assert isinstance(value, int), "constant_value checks the type"
    if not -(1 << 31) <= value < 1 << 31:
        raise Unusable("inexact", f"{value} is out of range for int")
    return value


_BUILDERS: Final[Mapping[str, Builder]] = MappingProxyType(
    {
        **{name: partial(_build_floor, name) for name in ("floor", "ceil")},
        **{name: partial(_build_selection, name) for name in ("coalesce", "greatest", "least")},
        **{name: partial(_build_array_end, name) for name in ("array_max", "array_min")},
        "round": _build_round,
        "abs": _build_abs,
        "trunc": _build_trunc,
        "date_trunc": _build_date_trunc,
        "split_part": _build_split_part,
        "substring_index": partial(_build_text_part, "substring_index"),
        "regexp_extract": _build_regexp_extract,
        "try_variant_get": _build_try_variant_get,
    }
)


_CHOICES: Final = (exp.Case, exp.If, exp.Nullif, exp.Nvl2)
_MAX_BRANCHES: Final = 16
_MAX_CHOICES: Final = 4


@dataclass(frozen=True, eq=False)
class Choice:
    """A condition that contains CASE, IF, NULLIF or NVL2, as one condition for each branch.

    Attributes:
        tests: in order of evaluation; the first that is TRUE selects the branch.
        outcomes: the condition with each test's value in place of the CASE; last, with the value if no test is TRUE.
    """

    tests: tuple[exp.Expr, ...]
    outcomes: tuple[exp.Expr, ...]


def find_choice(condition: exp.Expr, context: Context, read: Reader) -> Choice | None:
    """Return a choice within a condition; None if it has none."""
    parts = list(condition.walk())
    positions = [i for i, part in enumerate(parts) if isinstance(part, _CHOICES) and part.arg_key != "ifs"]
    if not positions or any(isinstance(part, exp.Query | exp.Lambda) for part in parts):
        return None
    # The innermost choice first, so that its values have types. A choice that is the whole condition has conditions
    # as outcomes.
    position = positions[-1] if positions[0] else 0
    tests, values = split_branches(parts[position])
    if len(tests) > _MAX_BRANCHES or len(positions) > _MAX_CHOICES:
        raise Unusable("unsupported-expression", f"{condition.sql('spark')[:80]} has too many branches")
    if position:
        values = _cast_to_common_type(values, context, read)
    return Choice(tuple(tests), tuple(_replace_part(condition, position, value) for value in values))


def split_branches(node: exp.Expr) -> tuple[list[exp.Expr], list[exp.Expr]]:
    """Return the tests of CASE, IF, NULLIF or NVL2, and a value for each and one if none is TRUE."""
    null = exp.Null()
    if isinstance(node, exp.Nullif):
        return [exp.EQ(this=node.this.copy(), expression=node.expression.copy())], [null, node.this]
    if isinstance(node, exp.Nvl2):
        return [exp.Is(this=node.this.copy(), expression=exp.Null()).not_()], [node.args["true"], node.args["false"]]
    if isinstance(node, exp.If):
        return [node.this], [node.args["true"], node.args.get("false") or null]
    ifs, value = node.args["ifs"], node.this
    tests = [
        branch.this if value is None else exp.EQ(this=value.copy(), expression=branch.this.copy()) for branch in ifs
    ]
    return tests, [*(branch.args["true"] for branch in ifs), node.args.get("default") or null]


def _cast_to_common_type(values: Sequence[exp.Expr], context: Context, read: Reader) -> list[exp.Expr]:
    types = [read(value).type for value in values]
    kind = list_type(types, ansi=context.settings.ansi)
    return [
        value if type == kind else exp.cast(value.copy(), kind, dialect="spark")
        for value, type in zip(values, types, strict=True)
    ]


def _replace_part(condition: exp.Expr, position: int, value: exp.Expr) -> exp.Expr:
    if not position:
        return value.copy()
    copied = condition.copy()
    list(copied.walk())[position].replace(exp.Paren(this=value.copy()))
    return copied
