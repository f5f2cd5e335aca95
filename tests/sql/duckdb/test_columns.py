"""Spark's functions of columns: what is certain is computed, and everything else fails."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from layoutopt.sql.duckdb.columns import column_function


def computed(name: str, types: list[str], returns: str, *row: Any) -> Any:
    function = column_function(name, types, returns, "UTC")
    assert function is not None
    values = function(*(pa.chunked_array([pa.array([value])]) for value in row))
    return values[0] if isinstance(values, list) else values[0].as_py()


@pytest.mark.parametrize(
    ("name", "types", "returns", "row", "expected"),
    [
        ("try_cast", ["string"], "int", (" 12 ",), 12),
        ("try_cast", ["string"], "int", ("1.5",), None),
        ("try_cast", ["string"], "double", ("1e5",), 1e5),
        ("try_cast", ["string"], "decimal(5,1)", ("1e3",), Decimal("1000.0")),
        ("get_json_object", ["string", "string"], "string", ('{"b":"x"}', "$.b"), "x"),
    ],
)
def test_values_are_sparks(name: str, types: list[str], returns: str, row: tuple[Any, ...], expected: Any) -> None:
    assert computed(name, types, returns, *row) == expected


@pytest.mark.parametrize(
    ("name", "types", "returns", "row"),
    [
        ("try_cast", ["string"], "double", ("1e00005",)),  # of which libraries cut the exponent differently
        ("try_cast", ["string"], "double", ("1e99999",)),
        ("try_cast", ["string"], "decimal(5,1)", ("1e00005",)),
        ("try_cast", ["string"], "int", ("1" * 5000,)),
        ("get_json_object", ["string", "string"], "string", ('{"a":NaN,"b":"x"}', "$.b")),
        ("get_json_object", ["string", "string"], "string", ('{"a":1,"a":2}', "$.a")),
    ],
)
def test_uncertain_values_are_left_to_spark(name: str, types: list[str], returns: str, row: tuple[Any, ...]) -> None:
    with pytest.raises(RuntimeError, match="--engine spark"):
        computed(name, types, returns, *row)
