"""Spark's functions of Arrow columns, which DuckDB calls where its own may mean something else.

A function of the registry computes one row's value (``Function.compute``), casts are those of constants, and arithmetic
follows Spark's types. A row whose value is uncertain, or where Spark fails, fails here; the query then needs Spark.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from functools import partial
from inspect import Parameter, Signature
from operator import add, mul, sub, truediv
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa

from layoutopt.errors import QueryError, encode_error
from layoutopt.functions.function import TIMES
from layoutopt.functions.ranges import FLOATS
from layoutopt.functions.registry import FUNCTIONS
from layoutopt.model.predicates import Call
from layoutopt.model.types import INTEGER_BITS, decimal_digits
from layoutopt.model.values import Key, from_key, to_key
from layoutopt.sql.duckdb.kernels import BLANKS, find_kernel
from layoutopt.sql.problems import Unusable
from layoutopt.sql.types import EXACT, TypedConstant, cast_constant

# A function of one row's values, none of which is NULL.
RowFunction = Callable[..., Any]
# The places of a quotient of decimals before Spark rounds it to its type.
_QUOTIENT_PLACES: Final = Decimal(1).scaleb(-39)
# Doubles from here on have no places.
_WHOLE_FLOATS: Final = 2.0**53
SIGNED_DIGITS: Final = 34
_MOST_EXPONENT_DIGITS: Final = 4
_EPOCH: Final = dt.datetime(1970, 1, 1)
_SPECIAL: Final = MappingProxyType(
    {"nan": math.nan, "inf": math.inf, "+inf": math.inf, "-inf": -math.inf}
    | {"infinity": math.inf, "+infinity": math.inf, "-infinity": -math.inf}
)


class FailingError(Exception):
    """Spark fails for the values, or may compute something else."""


def column_function(
    name: str, types: Sequence[str], returns: str, zone: str
) -> Callable[..., pa.Array | list[Any]] | None:
    """Return a function of columns of these Spark types to values, times as numbers; None if it is unknown.

    Where there is a kernel (:mod:`layoutopt.sql.duckdb.kernels`), rows are computed one by one only in batches of which
    one may fail.

    Args:
        name: a function of the registry with a value (``Function.compute``), ``cast``, or an operator; ``try_`` before
            an operator or ``cast`` makes its failures NULL.
        types: of the columns.
        returns: Spark's type of the result.
        zone: the session's time zone.
    """
    function = _row_function(name, types, returns, zone)
    if function is None:
        return None
    is_try, kernel = name.startswith("try_"), find_kernel(name, tuple(types), returns)

    def compute(*columns: pa.ChunkedArray) -> pa.Array | list[Any]:
        if kernel is not None:
            with suppress(pa.ArrowInvalid):
                return kernel(*columns)
        return [
            None if None in row else _call(function, row, is_try, name)
            for row in zip(*map(_to_python, columns, types), strict=True)
        ]

    parameters = [Parameter(f"column_{place}", Parameter.POSITIONAL_ONLY) for place in range(len(types))]
    compute.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # DuckDB counts the parameters
    return compute


def compute_call(call: Call, arguments: Sequence[Key], zone: str) -> Key | None:
    """Return the key of a call's value for keys of its arguments, none of which is NULL; None for NULL.

    Raises:
        ValueError: the value is unknown, or Spark fails.
    """
    types = [argument.type for argument in call.args]
    if any(key == 0 and type in FLOATS for key, type in zip(arguments, types, strict=True)):
        raise ValueError("zero has two signs and one key")
    function = _key_function(call, types, zone)
    if function is None:
        raise ValueError(f"the value of {call.fn} is unknown")
    values = [key if type in TIMES else from_key(key, type) for key, type in zip(arguments, types, strict=True)]
    try:
        value = function(*values)
    except (FailingError, Unusable, ArithmeticError, AttributeError, TypeError) as error:  # also damaged documents'
        if call.fn.startswith("try_") and isinstance(error, FailingError) and not error.args:
            return None
        raise ValueError(f"the value of {call.fn} is unknown") from error
    return int(value) if call.type in TIMES else to_key(value, call.type)


def _key_function(call: Call, types: Sequence[str], zone: str) -> RowFunction | None:
    """Return a function as the model has it, and what DuckDB itself computes for columns."""
    if call.fn in _CLOCK:
        return partial(_read_clock, *_CLOCK[call.fn], types[0], zone)
    function = _row_function(call.fn, types, call.type, zone)
    if function is None and call.fn == "try_cast":
        return partial(_cast_value, types[0], call.type, zone)
    return function


def _call(function: RowFunction, row: Sequence[Any], is_try: bool, name: str) -> Any:
    try:
        return function(*row)
    except (FailingError, ValueError, ArithmeticError) as error:
        if is_try and isinstance(error, FailingError) and not error.args:
            return None
        text = ", ".join(repr(value)[:60] for value in row)
        problem = f"{name}({text}) fails in Spark or is unknown to the embedded engine"
        raise encode_error(QueryError(f"{problem}; run the query with --engine spark")) from error


def _to_python(column: pa.ChunkedArray, type: str) -> list[Any]:
    """Return values; dates and times as whole numbers of days and microseconds."""
    if type in TIMES:
        column = column.cast(pa.int32() if type == "date" else pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def _row_function(name: str, types: Sequence[str], returns: str, zone: str) -> RowFunction | None:
    plain = name.removeprefix("try_")
    if plain == "cast":
        return _cast_function(types[0], returns, zone)
    if plain in _OPERATORS:
        return _arithmetic(plain, types, returns)
    if name in _NUMBERS:
        make = _NUMBERS[name]
        return make(returns)
    function = FUNCTIONS.get(name)
    if function is None or function.compute is None:
        return None
    compute = function.compute

    def known(*arguments: Any) -> Any:
        value = compute(*arguments)
        if value is None:
            raise FailingError("unknown")
        return value

    return known


# Arithmetic.


def _arithmetic(operator: str, types: Sequence[str], returns: str) -> RowFunction | None:
    if returns in INTEGER_BITS:
        return partial(_whole, operator, INTEGER_BITS[returns])
    if returns == "double":
        return partial(_double, operator)
    return partial(_decimal, operator, *(decimal_digits(returns) or (0, 0))) if decimal_digits(returns) else None


def _quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(a: int, b: int) -> int:
    return a - _quotient(a, b) * b


def _modulus(a: int, b: int) -> int:
    rest = _remainder(a, b)
    return _remainder(rest + b, b) if rest < 0 else rest


def _whole(operator: str, bits: int, a: int, b: int) -> int:
    if not b and operator not in "+-*":
        raise FailingError
    return _fit(_OPERATORS[operator](a, b), bits)


def _fit(value: int, bits: int) -> int:
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise FailingError
    return value


def _double(operator: str, a: float, b: float) -> float:
    if operator not in "+-*" and b == 0:
        raise FailingError
    if operator in ("div", "pmod"):
        raise FailingError("unknown")
    if operator != "%":
        return float(_OPERATORS[operator](a, b))
    return math.fmod(a, b) if math.isfinite(a) else math.nan


def _decimal(operator: str, precision: int, scale: int, a: Decimal | int, b: Decimal | int) -> Decimal:
    first, second = Decimal(a), Decimal(b)
    if operator == "/":
        if not second:
            raise FailingError
        value = EXACT.divide(first, second).quantize(_QUOTIENT_PLACES, ROUND_HALF_UP, EXACT)
    elif operator == "%":
        if not second:
            raise FailingError
        value = EXACT.remainder(first, second)
    else:
        value = {"+": EXACT.add, "-": EXACT.subtract, "*": EXACT.multiply}[operator](first, second)
    return _fit_decimal(value, precision, scale)


def _fit_decimal(value: Decimal, precision: int, scale: int) -> Decimal:
    rounded = value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, EXACT)
    if rounded.copy_abs() >= Decimal(1).scaleb(precision - scale):
        raise FailingError
    return rounded


def _round_float(is_single: bool, value: float, places: int) -> float:
    """Return the rounded value; Spark rounds a float as the double that it is."""
    if not math.isfinite(value) or abs(value) >= _WHOLE_FLOATS:
        return value
    rounded = Decimal(repr(value)).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, EXACT)
    return math.copysign(_decimal_to_single(rounded) if is_single else float(rounded), 1 if not rounded else value)


def _round(returns: str) -> RowFunction:
    digits = decimal_digits(returns)
    if digits is None:
        return partial(_round_float, returns == "float")
    return lambda value, places: _fit_decimal(value, *digits)


def _toward(rounding: str, returns: str) -> RowFunction:
    digits = decimal_digits(returns)

    def compute(value: Any) -> Any:
        if digits is not None:
            return _fit_decimal(value.to_integral_value(rounding, EXACT), *digits)
        if not -(2.0**63) <= value < 2.0**63:
            raise FailingError("unknown")
        return math.floor(value) if rounding == ROUND_FLOOR else math.ceil(value)

    return compute


def _checked_decimal(value: Decimal) -> Decimal:
    """Return the value; Spark rounds longer ones when it changes their sign."""
    if len(value.as_tuple().digits) > SIGNED_DIGITS:
        raise FailingError("unknown")
    return value


def _largest(is_less: bool, returns: str) -> RowFunction:
    def compute(*values: float) -> float:
        chosen = values[0]
        for value in values[1:]:
            is_greater = value > chosen or (math.isnan(value) and not math.isnan(chosen))
            is_smaller = value < chosen or (math.isnan(chosen) and not math.isnan(value))
            chosen = value if (is_smaller if is_less else is_greater) else chosen
        return chosen

    return compute


_OPERATORS: Final[Mapping[str, Callable[[Any, Any], Any]]] = MappingProxyType(
    {"+": add, "-": sub, "*": mul, "/": truediv, "%": _remainder, "div": _quotient, "pmod": _modulus}
)
_NUMBERS: Final[Mapping[str, Callable[[str], RowFunction]]] = MappingProxyType(
    {
        "round": _round,
        "floor": partial(_toward, ROUND_FLOOR),
        "ceil": partial(_toward, ROUND_CEILING),
        "get_json_object": lambda returns: _json_value,
        "negative": lambda returns: lambda value: _checked_decimal(value).copy_negate(),
        "abs": lambda returns: lambda value: _checked_decimal(value).copy_abs(),
        "sqrt": lambda returns: lambda value: math.sqrt(value) if value >= 0 else math.nan,
        "greatest_double": partial(_largest, False),
        "least_double": partial(_largest, True),
    }
)


class _Number(str):
    """The text of a whole number in JSON."""


def _json_value(text: str, path: str) -> str | None:
    """Return the text, whole number or boolean that a path of keys and positions finds; None for NULL."""
    if "{" not in text and "[" not in text:
        return None
    try:
        value = json.loads(
            text, parse_int=_Number, parse_float=_refuse_json, parse_constant=_refuse_json,
            object_pairs_hook=_unique_keys,
        )  # fmt: skip
    except ValueError as error:
        raise FailingError("unknown") from error
    for key, place in re.findall(r"\.(\w+)|\[(\d+)\]", path):
        if isinstance(value, dict) and key:
            value = value.get(key)
        elif isinstance(value, list) and place:
            value = value[int(place)] if int(place) < len(value) else None
        elif isinstance(value, dict | list):
            raise FailingError("unknown")
        else:
            return None
    if isinstance(value, dict | list):
        raise FailingError("unknown")
    return str(value).lower() if isinstance(value, bool) else value


def _refuse_json(text: str) -> Any:
    raise ValueError(text)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


# Casts.


def _cast_function(source: str, target: str, zone: str) -> RowFunction | None:
    if source == "string":
        return partial(_cast_text, target, zone)
    digits = decimal_digits(target)
    if source in ("float", "double") and digits is not None:
        return partial(_double_to_decimal, source, *digits)
    if source == "double" and target == "float":
        return _to_single
    if decimal_digits(source) is not None and target == "double":
        return float
    if decimal_digits(source) is not None and target == "float":
        return _decimal_to_single
    if target == "string" and source == "binary":
        return _decode
    if target == "string" and source == "date":
        return _format_date
    if target == "string" and source == "timestamp_ntz":
        return _format_time
    if target == "timestamp" and source in ("date", "timestamp_ntz"):
        return partial(_to_instant, 86_400_000_000 if source == "date" else 1, zone)
    return None


def _cast_value(source: str, target: str, zone: str, value: Any) -> Any:
    """Return a value as a constant is cast."""
    if source == "timestamp" and target == "string":
        return _format_time(_cast_value(source, "timestamp_ntz", zone, value))
    if target == "string" and isinstance(value, Decimal) and "E" not in str(value):
        return str(value)
    constant: Any = from_key(value, source) if source in TIMES else value
    result = cast_constant(TypedConstant(constant, source), target, zone)
    return _time_to_int(result.value) if isinstance(result.value, dt.date) else result.value


_CLOCK: Final = MappingProxyType({"hour": (3_600_000_000, 24), "minute": (60_000_000, 60), "second": (1_000_000, 60)})


def _read_clock(unit: int, count: int, source: str, zone: str, value: int) -> int:
    return int(_cast_value(source, "timestamp_ntz", zone, value)) // unit % count


def _cast_text(target: str, zone: str, text: str) -> Any:
    if target == "binary":
        return text.encode()
    stripped = text.strip(BLANKS)
    if target in INTEGER_BITS:
        if not re.fullmatch(r"[+-]?\d+", stripped, re.ASCII):
            raise FailingError
        return _fit(int(stripped), INTEGER_BITS[target])
    if target in ("double", "float"):
        return _parse_float(target, stripped)
    if target == "boolean" and stripped.lower() not in _BOOLEANS:
        raise FailingError
    if decimal_digits(target) and not _is_number(stripped):
        raise FailingError
    if target == "date" and not _DATE.fullmatch(stripped):
        raise FailingError
    if target in TIMES and not re.match(r"[+\-\dTt]", stripped):
        raise FailingError
    try:
        value = cast_constant(TypedConstant(stripped, "string"), target, zone).value
    except (Unusable, ArithmeticError) as error:
        raise FailingError("unknown") from error
    return _time_to_int(value) if isinstance(value, dt.date) else value


_BOOLEANS: Final = frozenset({"t", "true", "y", "yes", "1", "f", "false", "n", "no", "0"})
_DATE: Final = re.compile(r"[+-]?\d{4,7}(?:-\d{1,2}(?:-\d{1,2}(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(?:[eE][+-]?(\d+))?", re.ASCII)


def _is_number(text: str) -> bool:
    """Return whether a text is a number; its exponent must be short enough for all libraries to read it alike."""
    match = _NUMBER.fullmatch(text)
    if match is not None and len(match[3] or "") > _MOST_EXPONENT_DIGITS:
        raise FailingError("unknown")
    return match is not None


def _parse_float(target: str, text: str) -> float:
    value = _SPECIAL.get(text.lower())
    if value is not None:
        return value
    digits = re.sub(r"[dDfF]$", "", text)
    if not _is_number(digits):
        raise FailingError("unknown") if re.search("[xX]", text) else FailingError
    return float(digits) if target == "double" else _decimal_to_single(Decimal(digits))


def _time_to_int(value: dt.date) -> int:
    if not isinstance(value, dt.datetime):
        return value.toordinal() - _EPOCH.toordinal()
    zoned = value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
    return (zoned - _EPOCH) // dt.timedelta(microseconds=1)


def _double_to_decimal(source: str, precision: int, scale: int, value: float) -> Decimal:
    if not math.isfinite(value):
        raise FailingError
    return _fit_decimal(Decimal(repr(value)), precision, scale)


def _to_single(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _decimal_to_single(value: Decimal) -> float:
    """Return the nearest float; a double between two floats needs the decimal's own digits."""
    near = np.float32(float(value))
    others = (np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf)))
    if not np.isfinite(near):
        raise FailingError("unknown")
    distances = sorted((EXACT.subtract(Decimal(float(f)), value).copy_abs(), float(f)) for f in (near, *others))
    if distances[0][0] == distances[1][0]:
        return float(near)  # the double is exact, and was rounded to even
    return distances[0][1]


def _decode(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise FailingError("unknown") from error


def _format_date(days: int) -> str:
    return _format_day(np.datetime64(days, "D"))


def _format_day(day: np.datetime64) -> str:
    text = str(day)
    year = int(text[: text.index("-", 1)])
    return f"+{text}" if year > 9999 else f"-{-year:04}{text[-6:]}" if year < 0 else f"{year:04}{text[-6:]}"


def _format_time(micros: int) -> str:
    days, rest = divmod(micros, 86_400_000_000)
    seconds, fraction = divmod(rest, 1_000_000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{_format_date(days)} {clock}" + (f".{fraction:06}".rstrip("0") if fraction else "")


def _to_instant(unit: int, zone: str, count: int) -> int:
    try:
        local = _EPOCH + dt.timedelta(microseconds=count * unit)
        value = cast_constant(TypedConstant(local, "timestamp_ntz"), "timestamp", zone).value
    except (Unusable, OverflowError) as error:
        raise FailingError("unknown") from error
    assert isinstance(value, dt.datetime), "an instant"
    return _time_to_int(value)
