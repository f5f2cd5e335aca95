"""Kernels compute columns as the functions of single rows do, or leave them to these."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.model.types import INTEGER_BITS, decimal_digits
from layoutopt.sql.duckdb import columns
from layoutopt.sql.duckdb.kernels import find_kernel
from layoutopt.sql.types import EXACT

_ARROW = {"double": pa.float64(), "float": pa.float32(), "string": pa.string(), "date": pa.date32()}
_EDGES = (0.0, -0.0, 1.0, -1.0, math.nan, math.inf, -math.inf, 5e-324, 1.7e308, 2.0**63, -(2.0**63), 0.1)
_TEXTS = ("", " 1 ", "+7", "-0", "1.", ".5", "1e3", "1e400", "0x1", "1d", "nan", "9" * 19, "٣", "\x7f2\t", "1_0", "e1")

FUNCTIONS = [
    *((operator, (type, type), type) for operator in ("+", "-", "*", "%", "pmod", "div") for type in ("int", "bigint")),
    ("try_+", ("tinyint", "tinyint"), "tinyint"),
    *((operator, ("double", "double"), "double") for operator in ("+", "-", "*", "/", "%", "try_/")),
    ("+", ("decimal(15,2)", "decimal(7,4)"), "decimal(18,4)"),
    ("-", ("decimal(38,10)", "decimal(38,0)"), "decimal(38,9)"),
    ("*", ("decimal(15,2)", "decimal(16,2)"), "decimal(32,4)"),
    ("*", ("decimal(38,6)", "decimal(20,6)"), "decimal(38,6)"),
    ("try_*", ("decimal(38,30)", "int"), "decimal(38,19)"),
    ("round", ("decimal(9,4)", "int"), "decimal(8,2)"),
    ("floor", ("decimal(9,4)",), "decimal(6,0)"),
    ("ceil", ("decimal(9,4)",), "decimal(6,0)"),
    ("floor", ("double",), "bigint"),
    ("ceil", ("double",), "bigint"),
    ("sqrt", ("double",), "double"),
    ("greatest_double", ("double", "double"), "double"),
    ("least_double", ("double", "double"), "double"),
    ("cast", ("string",), "int"),
    ("try_cast", ("string",), "tinyint"),
    ("cast", ("string",), "double"),
    ("cast", ("double",), "float"),
    ("cast", ("date",), "string"),
]


def arrow(type: str) -> pa.DataType:
    digits = decimal_digits(type)
    return pa.decimal128(*digits) if digits else _ARROW.get(type) or pa.type_for_alias(f"int{INTEGER_BITS[type]}")


def values_of(type: str) -> st.SearchStrategy[Any]:
    digits = decimal_digits(type)
    if digits:
        end = 10 ** digits[0] - 1
        numbers = st.one_of(st.integers(-end, end), st.integers(-200, 200), st.sampled_from((end, -end)))
        return numbers.map(lambda number: Decimal(number).scaleb(-digits[1], EXACT))
    if type in INTEGER_BITS:
        end = 1 << INTEGER_BITS[type] - 1
        return st.one_of(st.integers(-end, end - 1), st.integers(-9, 9), st.sampled_from((-end, end - 1)))
    if type == "double":
        return st.one_of(st.floats(), st.sampled_from(_EDGES), st.integers(-99, 99).map(lambda n: n / 2))
    if type == "date":
        return st.integers(-900_000, 3_000_000)
    numbers = st.from_regex(r"[+-]?[0-9]{1,20}(\.[0-9]{0,20})?(e[+-]?[0-9]{1,3})?", fullmatch=True)
    return st.one_of(numbers, st.sampled_from(_TEXTS), st.text(max_size=4))


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return repr(left) == repr(right)  # the sign of zero, and NaN
    return bool(left == right)


@pytest.mark.parametrize(("name", "types", "returns"), FUNCTIONS, ids=lambda part: str(part).replace(" ", ""))
@given(data=st.data())
def test_a_kernel_computes_what_rows_compute(
    name: str, types: tuple[str, ...], returns: str, data: st.DataObject
) -> None:
    rows = data.draw(
        st.lists(
            st.tuples(*(st.none() | values_of(type) for type in types[: 1 if name == "round" else 2])),
            min_size=1,
            max_size=6,
        )
    )
    if name == "round":
        rows = [(*row, 2) for row in rows]  # the places are a literal
    inputs = [
        pa.chunked_array([pa.array(column, pa.int32() if type == "date" else arrow(type)).cast(arrow(type))])
        for column, type in zip(zip(*rows, strict=True), types, strict=True)
    ]
    kernel = find_kernel(name, types, returns)
    assert kernel is not None
    try:
        computed = kernel(*inputs).cast(arrow(returns)).to_pylist()
    except pa.ArrowInvalid:
        return
    function = columns._row_function(name, types, returns, "UTC")
    assert function is not None
    for row, value in zip(rows, computed, strict=True):
        expected = None if None in row else function(*row)  # raises where Spark fails
        assert same(value, expected), (row, value, expected)


@pytest.mark.parametrize(("name", "types", "returns"), FUNCTIONS, ids=lambda part: str(part).replace(" ", ""))
def test_a_kernel_takes_plain_values(name: str, types: tuple[str, ...], returns: str) -> None:
    plain = {"string": "12", "double": 2.5, "date": dt.date(2024, 2, 29)}
    inputs = [
        pa.chunked_array([pa.array([plain.get(type, Decimal(3) if decimal_digits(type) else 3), None], arrow(type))])
        for type in types
    ]
    kernel = find_kernel(name, types, returns)
    assert kernel is not None
    assert len(kernel(*inputs)) == 2
