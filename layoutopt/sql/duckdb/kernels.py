"""Arithmetic and casts of whole columns by Arrow and numpy, as :mod:`layoutopt.sql.duckdb.columns` computes a row's.

A kernel raises ``pyarrow.ArrowInvalid`` where some row of its columns may fail in Spark or needs more care; then the
rows are computed one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.model.arrays import Floats
from layoutopt.model.types import INTEGER_BITS, decimal_digits

Kernel: TypeAlias = Callable[..., pa.Array]

# What Spark removes around a text that it casts.
BLANKS: Final = "".join(map(chr, range(33))) + "\x7f"
_MOST_DIGITS: Final = 38
# Digits of the largest whole number.
_LONG_DIGITS: Final = 19
_WHOLE_TEXT: Final = r"\A[+-]?[0-9]{1,18}\z"
_NUMBER_TEXT: Final = r"\A[+-]?([0-9]{1,300}(\.[0-9]{0,300})?|\.[0-9]{1,300})([eE][+-]?[0-9]{1,4})?\z"
_FIRST_DAY, _LAST_DAY = np.datetime64("1000-01-01"), np.datetime64("9999-12-31")
_CHECKED: Final = MappingProxyType(
    {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked, "div": pc.divide_checked}
)
_UNCHECKED: Final = MappingProxyType({"+": pc.add, "-": pc.subtract, "*": pc.multiply})


def find_kernel(name: str, types: tuple[str, ...], returns: str) -> Kernel | None:
    """Return the kernel of a function of columns, see :func:`~layoutopt.sql.duckdb.columns.column_function`, or None.

    >>> find_kernel("+", ("int", "int"), "int")(pa.array([1, None]), pa.array([2, 3])).to_pylist()
    [3, None]
    """
    plain, digits = name.removeprefix("try_"), decimal_digits(returns)
    if plain == "cast":
        return _find_cast(types[0], returns)
    if plain in ("+", "-", "*", "/", "%", "div", "pmod"):
        if returns in INTEGER_BITS:
            return partial(_compute_whole, plain, _whole_type(returns)) if plain != "/" else None
        if returns == "double":
            return partial(_compute_double, plain) if plain in ("+", "-", "*", "/", "%") else None
        return partial(_compute_decimal, plain, types, digits) if digits and plain in ("+", "-", "*") else None
    source = decimal_digits(types[0])
    if source is not None and digits is not None and name in ("round", "floor", "ceil"):
        return partial(_round_decimal, name, digits)
    return _DOUBLE_KERNELS.get(name) if set(types) == {"double"} else None


def _whole_type(name: str) -> pa.DataType:
    return pa.type_for_alias(f"int{INTEGER_BITS[name]}")


def _compute_whole(operator: str, type: pa.DataType, *columns: pa.ChunkedArray) -> pa.Array:
    first, second = (column.cast(type) for column in columns)
    if operator in _CHECKED:
        return _CHECKED[operator](first, second)
    rest = _take_rest(first, second)
    if operator == "pmod":
        again = _take_rest(pc.add_checked(rest, second), second)
        return pc.if_else(pc.less(rest, 0), again, rest)
    return rest


def _take_rest(first: pa.ChunkedArray, second: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.subtract(first, pc.multiply(pc.divide_checked(first, second), second))


def _compute_double(operator: str, first: pa.ChunkedArray, second: pa.ChunkedArray) -> pa.Array:
    if operator in _UNCHECKED:
        return _UNCHECKED[operator](first, second)
    if pc.any(pc.equal(second, 0.0)).as_py():
        raise pa.ArrowInvalid("division by zero")
    return pc.divide(first, second) if operator == "/" else _apply(np.fmod, first, second)


def _apply(function: Callable[..., npt.NDArray[np.floating]], *columns: pa.ChunkedArray) -> pa.Array:
    """Return a function of doubles as numpy has it, NULL where any of them is."""
    with np.errstate(all="ignore"):
        values = function(*(np.asarray(column.fill_null(0.0)) for column in columns))
    missing = np.logical_or.reduce([np.asarray(column.is_null()) for column in columns])
    return pa.array(values, mask=missing)


def _compute_decimal(
    operator: str, types: tuple[str, ...], returns: tuple[int, int], *columns: pa.ChunkedArray
) -> pa.Array:
    digits = [decimal_digits(type) or (_LONG_DIGITS, 0) for type in types]
    (first, first_scale), (second, second_scale) = digits
    if operator == "*":
        needed = first + second + 1
    else:
        needed = max(first_scale, second_scale) + max(first - first_scale, second - second_scale) + 1
    make = pa.decimal128 if needed <= _MOST_DIGITS else pa.decimal256
    exact = (column.cast(make(*of_column)) for column, of_column in zip(columns, digits, strict=True))
    return _fit_decimal(_UNCHECKED[operator](*exact), returns)


def _fit_decimal(values: pa.ChunkedArray, digits: tuple[int, int]) -> pa.Array:
    """Return decimals of some digits, rounded half away from zero."""
    if values.type.scale > digits[1]:
        values = pc.round(_widen(values), ndigits=digits[1], round_mode="half_towards_infinity")
    return values.cast(pa.decimal128(*digits))


def _widen(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return decimals with one more digit, since Arrow's floor and ceil return 0 where a value needs it."""
    precision, scale = values.type.precision + 1, values.type.scale
    return values.cast((pa.decimal128 if precision <= _MOST_DIGITS else pa.decimal256)(precision, scale))


def _round_decimal(name: str, digits: tuple[int, int], values: pa.ChunkedArray, *places: object) -> pa.Array:
    if name == "round":
        return _fit_decimal(values, digits)
    return (pc.floor if name == "floor" else pc.ceil)(_widen(values)).cast(pa.decimal128(*digits))


def _floor_double(function: Callable[..., Floats], values: pa.ChunkedArray) -> pa.Array:
    return _apply(function, values).cast(pa.int64())  # NaN and larger numbers are invalid


def _choose(is_chosen: Callable[[Any, Any], Any], first: pa.ChunkedArray, second: pa.ChunkedArray) -> pa.Array:
    def choose(a: Floats, b: Floats) -> Floats:
        chosen: Floats = np.where(is_chosen(a, b), b, a)
        return chosen

    return _apply(choose, first, second)


_DOUBLE_KERNELS: Final = MappingProxyType(
    {
        "sqrt": partial(_apply, np.sqrt),
        "floor": partial(_floor_double, np.floor),
        "ceil": partial(_floor_double, np.ceil),
        "greatest_double": partial(_choose, lambda a, b: (b > a) | (np.isnan(b) & ~np.isnan(a))),
        "least_double": partial(_choose, lambda a, b: (b < a) | (np.isnan(a) & ~np.isnan(b))),
    }
)


# Casts.


def _find_cast(source: str, target: str) -> Kernel | None:
    if source == "string" and target in INTEGER_BITS:
        return partial(_parse, _WHOLE_TEXT, _whole_type(target))
    if source == "string" and target == "double":
        return partial(_parse, _NUMBER_TEXT, pa.float64())
    if source == "double" and target == "float":
        return partial(_apply, lambda values: values.astype(np.float32))
    return _format_dates if (source, target) == ("date", "string") else None


def _parse(form: str, type: pa.DataType, texts: pa.ChunkedArray) -> pa.Array:
    stripped = pc.utf8_trim(texts, BLANKS)
    if not pc.all(pc.match_substring_regex(stripped, form), min_count=0).as_py():
        raise pa.ArrowInvalid("a text is no plain number")
    return pc.replace_substring_regex(stripped, r"\A\+", "").cast(type)


def _format_dates(days: pa.ChunkedArray) -> pa.Array:
    values = np.asarray(days.drop_null()).astype("datetime64[D]")
    if len(values) and (values.min() < _FIRST_DAY or values.max() > _LAST_DAY):
        raise pa.ArrowInvalid("a year has other than four digits")
    return days.cast(pa.date32()).cast(pa.string())
