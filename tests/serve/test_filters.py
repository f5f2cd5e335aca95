"""Iceberg's filters as conditions of ours, one by one; what they leave out is compared with rows in test_soundness."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from layoutopt.errors import QueryError
from layoutopt.model.predicates import TRUE, Col, InSet, Node
from layoutopt.model.schema import Column, Schema
from layoutopt.model.values import ValueSet
from layoutopt.model.values.keys import float_key
from layoutopt.serve.filters import (
    MOST_LITERALS,
    FilterTarget,
    LiteralPosition,
    literal_keys,
    to_condition,
    to_residual,
)
from layoutopt.sql.scans import find_scans

TYPES = {
    "id": "int", "tiny": "tinyint", "x": "double", "f": "float", "s": "string", "v": "varchar(5)", "day": "date",
    "at": "timestamp", "local": "timestamp_ntz", "price": "decimal(9,2)", "flag": "boolean", "raw": "binary",
    "st": "struct<a:int>", "Odd.Name": "int",
}  # fmt: skip
SCHEMA = Schema(tuple(Column(name, type) for name, type in TYPES.items()))
COLUMNS = {column.name: column for column in SCHEMA.columns}
WHOLE = FilterTarget(COLUMNS, may_be_null=lambda name: False, may_be_nan=lambda name: False)
"""Columns without NULL and NaN, where all readers agree."""
ANY = FilterTarget(COLUMNS)


def of_sql(condition: str) -> Node:
    """The condition that a Spark SQL text is."""
    (scan,) = find_scans(f"SELECT * FROM t WHERE {condition}", {"t": SCHEMA})
    assert not scan.unusable
    return scan.filter.root


def one(kind: str, term: Any, value: Any = None) -> dict[str, Any]:
    return {"type": kind, "term": term, "value": value}


def joined(kind: str, left: Any, right: Any) -> dict[str, Any]:
    return {"type": kind, "left": left, "right": right}


def negated(child: Any) -> dict[str, Any]:
    return {"type": "not", "child": child}


@pytest.mark.parametrize(
    ("filter", "sql"),
    [
        (one("eq", "id", 5), "id = 5"),
        (one("lt", "id", 5), "id < 5"),
        (one("lt-eq", "x", 1.5), "x <= 1.5D"),
        (one("gt", "x", "1.5"), "x > 1.5D"),
        (one("lt", "x", "0.1"), "x <= 0.1D"),
        (one("eq", "x", "1E-1"), "x = 0.1D"),
        (one("gt", "s", "é"), "s > 'é'"),
        (one("gt-eq", "day", "2024-02-29"), "day >= DATE '2024-02-29'"),
        (one("gt-eq", "day", 1), "day >= DATE '1970-01-02'"),
        (one("not-eq", "s", "b"), "s <> 'b'"),
        (one("eq", "at", "2024-02-29T01:00:00+01:00"), "at = TIMESTAMP '2024-02-29 00:00:00Z'"),
        (one("eq", "at", "2024-02-29T00:00:00Z"), "at = TIMESTAMP '2024-02-29 00:00:00Z'"),
        (one("eq", "at", "2024-02-29T00:00:00.000001"), "at = TIMESTAMP '2024-02-29 00:00:00.000001Z'"),
        (one("eq", "local", "2024-02-29T00:00:00"), "local = TIMESTAMP_NTZ '2024-02-29 00:00:00'"),
        (one("eq", "price", "1.50"), "price = 1.50"),
        (one("eq", "price", "15E-1"), "price = 1.50"),
        (one("lt", "price", 3), "price < 3"),
        (one("eq", "flag", True), "flag"),
        (one("eq", "raw", "00fF"), "raw = X'00FF'"),
        (one("eq", "v", "abc"), "v = 'abc'"),
        (one("eq", {"type": "reference", "term": "id"}, {"type": "literal", "value": 5}), "id = 5"),
        (one("eq", "Odd.Name", 5), "`Odd.Name` = 5"),
        (one("is-nan", "x"), "isnan(x)"),
        (one("starts-with", "s", "ab"), "s LIKE 'ab%'"),
        (one("not-starts-with", "s", "ab"), "s NOT LIKE 'ab%'"),
        ({"type": "in", "term": "id", "values": [1, 5]}, "id IN (1, 5)"),
        ({"type": "not-in", "term": "id", "values": [1, 5]}, "id NOT IN (1, 5)"),
        (negated(one("lt", "id", 5)), "id >= 5"),
        (negated(negated(one("lt", "id", 5))), "id < 5"),
        (negated(joined("or", one("lt", "id", 5), one("eq", "s", "b"))), "id >= 5 AND s <> 'b'"),
        (joined("and", one("gt", "id", 1), joined("and", one("lt", "id", 5), True)), "id > 1 AND id < 5"),
        (joined("or", one("eq", "id", 1), one("gt", "x", 2)), "id = 1 OR x > 2D"),
        (one("lt", "tiny", 300), "tiny IS NOT NULL"),
        (one("eq", "tiny", 300), "false"),
        (one("is-null", "id"), "false"),
        (False, "false"),
        ({"type": "false"}, "false"),
        (negated({"type": "true"}), "false"),
        (None, "true"),
    ],
)
def test_what_is_judged_means_what_spark_sql_does(filter: Any, sql: str) -> None:
    assert to_condition(filter, WHOLE) == of_sql(sql)


@pytest.mark.parametrize(
    ("filter", "condition"),
    [
        (one("not-eq", "id", 5), InSet(Col("id", "int"), ValueSet.point(5).complement(), null=True)),
        (negated(one("lt", "id", 5)), InSet(Col("id", "int"), ValueSet.interval(5, None), null=True)),
        (one("lt", "id", 5), InSet(Col("id", "int"), ValueSet.interval(None, 5))),
        (joined("and", one("not-eq", "id", 5), one("not-null", "id")), of_sql("id <> 5")),
        (negated(one("is-null", "st")), of_sql("st IS NOT NULL")),
        (one("is-null", "st"), of_sql("st IS NULL")),
    ],
)
def test_what_is_negated_may_be_null(filter: Any, condition: Node) -> None:
    assert to_condition(filter, ANY) == condition


@pytest.mark.parametrize(
    "filter",
    [
        one("eq", "x", None),
        one("eq", "x", float("nan")),
        one("eq", "x", 2**53 + 1),
        one("eq", "x", 10**400),
        one("eq", "x", "NaN"),
        one("eq", "x", "0x1p3"),
        one("eq", "id", 1.5),
        one("eq", "id", True),
        one("eq", "flag", 1),
        one("eq", "s", 5),
        one("eq", "s", "\ud800"),
        one("eq", "raw", "abc"),
        one("eq", "day", "2024-2-1"),
        one("eq", "day", "2024-02-30"),
        one("eq", "day", "+12024-02-01"),
        one("eq", "at", "2024-02-29"),
        one("eq", "at", "2024-02-29T00:00:00.0000001"),
        one("eq", "local", "2024-02-29T00:00:00Z"),
        one("eq", "price", "a"),
        one("eq", "price", "1e999"),
        one("eq", "price", "NaN"),
        one("eq", "st.a", 5),
        one("eq", {"type": "transform", "transform": "bucket[16]", "term": "id"}, 5),
        one("st-intersects", "raw", "00"),
        one("is-nan", "id"),
        one("starts-with", "raw", "00"),
        {"type": "in", "term": "id", "values": [1, None]},
        {"type": "in", "term": "id", "values": [1, "b"]},
    ],
)
def test_what_cannot_be_judged_leaves_everything_in(filter: Any) -> None:
    assert to_condition(filter, WHOLE) == TRUE
    assert to_condition(negated(filter), WHOLE) == TRUE
    assert to_condition(joined("and", filter, one("eq", "id", 5)), WHOLE) == of_sql("id = 5")


@pytest.mark.parametrize(
    ("filter", "says"),
    [
        (5, "5 is no expression"),
        ("maybe", "'maybe' is no expression"),
        ([], r"\[\] is no expression"),
        ({"type": 5}, "is no expression"),
        ({"term": "id"}, "is no expression"),
        ({"type": "eq"}, "has no 'term'"),
        ({"type": "and", "left": True}, "has no 'right'"),
        ({"type": "not"}, "has no 'child'"),
        (one("eq", 5, 5), "5 is no term"),
        (one("eq", "nothing", 5), "'nothing', which is no column"),
        (one("eq", "ID", 5), "'ID', which is no column"),
        ({"type": "in", "term": "id"}, "has no 'values'"),
        ({"type": "in", "term": "id", "values": 5}, "no list"),
    ],
)
def test_what_is_no_filter_is_refused(filter: Any, says: str) -> None:
    with pytest.raises(QueryError, match=says):
        to_condition(filter, WHOLE)


def test_names_in_any_case_where_the_client_says_so() -> None:
    assert to_condition(one("eq", "ID", 5), WHOLE, case_sensitive=False) == of_sql("id = 5")
    assert to_condition(one("eq", "ST.A", 5), WHOLE, case_sensitive=False) == TRUE


def test_filters_are_nested_so_deep_and_no_deeper() -> None:
    def deep(levels: int, kind: str) -> Any:
        filter: Any = one("eq", "id", 5)
        for _ in range(levels):
            filter = negated(filter) if kind == "not" else joined(kind, filter, one("eq", "s", "a"))
        return filter

    for kind in ("not", "and", "or"):
        to_condition(deep(10, kind), WHOLE, deepest=10)
        with pytest.raises(QueryError, match="nested deeper than 10"):
            to_condition(deep(11, kind), WHOLE, deepest=10)


def wide(kind: str, n: int) -> Any:
    """So many comparisons, balanced."""
    parts: list[Any] = [one("eq", "id", i) for i in range(n)]
    while len(parts) > 1:
        parts = [joined(kind, *parts[i : i + 2]) if i + 1 < len(parts) else parts[i] for i in range(0, len(parts), 2)]
    return parts[0]


def test_of_very_many_comparisons_some_are_judged() -> None:
    assert to_condition(wide("or", MOST_LITERALS), WHOLE) == of_sql(f"id >= 0 AND id < {MOST_LITERALS}")
    assert to_condition(wide("or", MOST_LITERALS + 1), WHOLE) == TRUE
    assert to_condition(wide("and", MOST_LITERALS + 1), WHOLE) == of_sql("false")


def test_very_long_lists_are_judged_by_their_ends() -> None:
    values = list(range(0, 40_000, 2))
    assert to_condition({"type": "in", "term": "id", "values": values}, WHOLE) == of_sql("id >= 0 AND id <= 39998")
    assert to_condition({"type": "not-in", "term": "id", "values": values}, WHOLE) == TRUE


def test_the_filter_goes_back_as_it_came_if_its_sender_can_read_it() -> None:
    filter = joined("and", one("eq", "id", 5), {"type": "in", "term": "s", "values": ["a", "b"]})
    assert to_residual(filter) == filter
    assert to_residual(None) is True
    for unreadable in (
        one("lt", "x", None),
        one("lt", "x", float("inf")),
        {"type": "in", "term": "x", "values": [1, None]},
    ):
        found = to_residual(negated(unreadable))
        assert found != True  # noqa: E712  # which says that every row matches
        assert to_condition(found, ANY) == TRUE


@pytest.mark.parametrize(
    ("text", "type", "meant"),
    [
        ("1.000000059604644775390625000001", "float", [1.0, float(np.nextafter(np.float32(1), np.float32(2)))]),
        ("0.1", "float", [0.1, float(np.float32(0.1))]),
        ("0.1", "double", [0.1]),
        ("-1e400", "double", [-math.inf]),
        ("1e39", "float", [1e39, math.inf]),
    ],
)
def test_a_text_holds_every_number_that_a_reader_takes_it_for(text: str, type: str, meant: list[float]) -> None:
    """Some round a decimal's text to a 64-bit number first and then to 32 bits, others at once."""
    keys = literal_keys(text, type)
    assert keys is not None
    assert not keys.none_below
    assert not keys.none_above
    for number in meant:
        assert keys.low <= float_key(number) <= keys.high  # type: ignore[operator]


def test_a_text_of_zero_may_have_lost_its_sign() -> None:
    assert literal_keys("-0.0", "double") == LiteralPosition(
        float_key(0.0), float_key(0.0), none_below=False, none_above=False
    )
