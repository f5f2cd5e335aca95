"""Functions of numbers, casts, and functions of values of any type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from layoutopt.functions.arithmetic import (
    absolute_value,
    add,
    cast_number,
    combine_decimals,
    divide,
    divide_decimals,
    floor_decimal,
    multiply,
    remainder,
    round_number,
    square_root,
    subtract,
)
from layoutopt.functions.dates import cast_time
from layoutopt.functions.function import TIMES, Function, always, is_bounded_number, unbounded
from layoutopt.functions.ranges import Range
from layoutopt.model.predicates import Call, Const
from layoutopt.model.types import INTEGER_BITS, decimal_digits
from layoutopt.model.values import key_kind

_SIGNS: Final = MappingProxyType({"try_add": "+", "try_subtract": "-", "try_multiply": "*"})


def _arithmetic(
    operate: Callable[[Range, Range, str], Range | None], call: Call, args: Sequence[Range]
) -> Range | None:
    if decimal_digits(call.type) is not None:
        if call.fn == "try_divide":
            return divide_decimals(args[0], args[1], call.type)
        sign = _SIGNS.get(call.fn)
        return None if sign is None else combine_decimals(sign, args[0], args[1], call.type)
    return operate(args[0], args[1], call.type) if is_bounded_number(call.type) else None


def _round(call: Call, args: Sequence[Range]) -> Range | None:
    places = call.args[1].value if len(call.args) == 2 and isinstance(call.args[1], Const) else None
    return round_number(args[0], places, call.type) if isinstance(places, int) and 0 <= places <= 30 else None


def _cast(call: Call, args: Sequence[Range]) -> Range | None:
    (a,) = args
    if a.type == call.type:
        return a
    if {a.type, call.type} <= TIMES:
        return cast_time(a, call.type)
    if a.type in TIMES | {"boolean"} or call.type in TIMES | {"boolean"} or key_kind(a.type) != "int":
        return None
    return cast_number(a, call.type)


def _is_no_time(call: Call) -> bool:
    return not call.type.startswith("timestamp")  # a day is no 24 hours to DuckDB


def _has_positive_divisor(call: Call) -> bool:
    """Return whether the divisor is a positive constant: division by zero fails only in Spark."""
    divisor = call.args[1]
    is_positive = isinstance(divisor, Const) and isinstance(divisor.value, int) and divisor.value > 0
    return is_positive and not decimal_digits(call.type)


def _make_arithmetic(
    name: str, operate: Callable[[Range, Range, str], Range | None], is_portable: Callable[[Call], bool] = _is_no_time
) -> Function:
    return Function(name, ("number", "number"), bounds=partial(_arithmetic, operate), is_portable=is_portable)


def _has_one_order(call: Call) -> bool:
    """Return whether equal values are the same value, so that it does not matter which is taken."""
    return call.type in TIMES or call.type in INTEGER_BITS or call.type == "string" or bool(decimal_digits(call.type))


_make_selection = partial(Function, takes=("any",), variadic=True, keys=("this", "expressions"), strict=False)

FUNCTIONS: Final = (
    _make_arithmetic("try_add", add),
    _make_arithmetic("try_subtract", subtract),
    _make_arithmetic("try_multiply", multiply),
    _make_arithmetic("try_divide", divide, _has_positive_divisor),
    _make_arithmetic("try_mod", remainder, _has_positive_divisor),
    Function("try_cast", ("any",), bounds=_cast),
    Function(
        "abs",
        ("number",),
        parsed=("Abs",),
        bounds=lambda call, args: absolute_value(args[0], call.type),
        is_portable=always,
    ),
    Function(
        "sqrt",
        ("double",),
        "double",
        parsed=("Sqrt",),
        catalyst=("Sqrt",),
        bounds=lambda call, args: square_root(args[0], call.type),
        total=True,
    ),
    Function(
        "floor",
        ("number",),
        parsed=("Floor",),
        refused=("decimals", "to"),
        catalyst=("Floor",),
        bounds=lambda call, args: floor_decimal(args[0], False, call.type),
        total=True,
    ),
    Function(
        "ceil",
        ("number",),
        parsed=("Ceil",),
        refused=("decimals", "to"),
        catalyst=("Ceil",),
        bounds=lambda call, args: floor_decimal(args[0], True, call.type),
        total=True,
    ),
    Function(
        "round",
        ("number", "int"),
        optional=1,
        parsed=("Round",),
        keys=("this", "decimals"),
        refused=("truncate",),
        catalyst=("Round",),
        bounds=_round,
        total=True,
    ),
    # Bounds of the next three also follow from NULLs of the arguments: see skipping/derived_bounds.py.
    _make_selection("coalesce", parsed=("Coalesce",), is_portable=always),
    _make_selection("greatest", parsed=("Greatest",), is_portable=_has_one_order),
    _make_selection("least", parsed=("Least",), is_portable=_has_one_order),
    Function("try_variant_get", ("variant", "string", "string"), bounds=unbounded),
    Function("array_max", ("any",), parsed=("ArrayMax",), catalyst=("ArrayMax",), bounds=unbounded),
    Function("array_min", ("any",), parsed=("ArrayMin",), catalyst=("ArrayMin",), bounds=unbounded),
)
