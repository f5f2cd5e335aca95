"""Conditions on elements of arrays and on maps: TRUE, FALSE and NULL to DuckDB where they are to Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from layoutopt.errors import QueryError
from layoutopt.evaluation import engine
from layoutopt.evaluation.engine import EngineQuery, EngineView
from layoutopt.model.schema import Column, Schema
from layoutopt.model.udf import Udf
from layoutopt.sql.duckdb.translate import PortableSql, portable_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = Schema(
    (
        Column("id", "int"), Column("tags", "array<string>"), Column("xs", "array<int>"),
        Column("m", "map<string,int>"), Column("xd", "array<double>"),
        Column("c", "array<string collate UTF8_LCASE>"), Column("s", "string"),
    )
)  # fmt: skip
PORTABLE = [
    "array_contains(tags, 'red')", "NOT array_contains(tags, 'red')", "array_contains(tags, 'it''s')",
    "array_contains(tags, '')", "array_contains(xs, 5)", "array_contains(xs, -1)", "array_contains(xs, 5) IS NULL",
    "array_contains(xs, 5) <=> false", "NOT (array_contains(xs, 5) OR array_contains(tags, 'blue'))",
    "exists(tags, x -> x = 'red')", "NOT exists(tags, x -> x IN ('red', 'blue'))", "exists(xs, x -> x > 4)",
    "NOT exists(xs, x -> 4 <= x)", "exists(xs, x -> x < 0) IS NULL", "exists(tags, id -> id > 'blue')",
    "arrays_overlap(tags, array('red', 'x'))", "NOT arrays_overlap(array(5, -1), xs)",
    "arrays_overlap(xs, array(7)) IS NULL", "map_contains_key(m, 'k')", "NOT map_contains_key(m, 'k')",
    "array_contains(map_keys(m), '')", "array_contains(map_values(m), 1)", "NOT array_contains(map_values(m), 1)",
    "exists(map_values(m), v -> v > 1)", "map_keys(m) IS NULL", "map_values(m) IS NULL",
    "array_contains(xd, 0.0D)", "NOT array_contains(xd, double('NaN'))", "exists(xd, x -> x > 0D)",
    "exists(tags, x -> x LIKE 'r%')", "exists(xs, x -> x <> 5)", "NOT exists(xs, x -> x > id)",
    "exists(tags, x -> x IS NULL)", "size(map_keys(m)) = 1", "array_max(xs) > 4", "array_min(xd) < 1D", "size(xs) > 1",
    "CASE WHEN array_contains(tags, 'red') THEN id > 1 ELSE array_contains(xs, 5) END",
]  # fmt: skip
NOT_PORTABLE = [
    "array_contains(xs, 3000000000)", "array_contains(xs, 1.0)", "array_contains(xs, '1')",
    "array_contains(tags, s)", "array_contains(tags, NULL)", "array_contains(c, 'a')", "array_contains(s, 'a')",
    "arrays_overlap(xs, xs)", "arrays_overlap(tags, array(s))", "map_contains_key(m, s)", "map_contains_key(m, 1)",
    "map_keys(tags) IS NULL",
]  # fmt: skip


def rows() -> pa.Table:
    """Arrays and maps: NULL, empty, of NULL alone, with NULL and without."""
    tags = [None, [], [None], ["red", None], ["red", "blue"], ["", "it's"], ["Red"], ["blue", "blue"]]
    numbers = [None, [], [None], [5, None], [5, -1], [2**31 - 1], [-(2**31), 4], [7]]
    maps = [None, [], [("k", None)], [("k", 1)], [("", 2), ("k", 1)], [("K", 1)], [("é", None), ("", 1)], [("a", 3)]]
    doubles = pa.array(
        [[0.0], [-0.0], [float("nan"), None], [None], None, [], [5.0, 0.0], [-5.0]], pa.list_(pa.float64())
    )
    return pa.table(
        {
            "id": pa.array(range(8), pa.int32()),
            "tags": pa.array(tags, pa.list_(pa.string())),
            "xs": pa.array(numbers, pa.list_(pa.int32())),
            "m": pa.array(maps, pa.map_(pa.string(), pa.int32())),
            "xd": doubles,
            "c": pa.array(tags, pa.list_(pa.string())),
            "s": ["red"] * 8,
        }
    )


def run(portable: PortableSql) -> pa.Table:
    """The embedded engine's answer."""
    view = EngineView("rows_of_t", rows().schema, rows().to_batches)
    return engine.answer(EngineQuery(portable.sql, portable.columns, (view,), "UTC", False, portable.functions))


def answers(conditions: list[str]) -> dict[str, list[bool | None]]:
    """Each condition's value for every row, by DuckDB."""
    shown = ", ".join(f"({text}) AS c{i}" for i, text in enumerate(conditions))
    portable = portable_sql(f"SELECT id, {shown} FROM t", {"t": SCHEMA}, "rows_of_t")
    assert {column.type for column in portable.columns[1:]} == {"boolean"}
    found = run(portable).sort_by("id")
    return {text: found[i + 1].to_pylist() for i, text in enumerate(conditions)}


@pytest.mark.spark
def test_conditions_of_elements_answer_as_spark_does(spark: SparkSession) -> None:
    frame = spark.createDataFrame(rows()).coalesce(1)
    shown = [f"({text}) AS c{i}" for i, text in enumerate(PORTABLE)]
    found = frame.selectExpr("id", *shown).toArrow().sort_by("id")
    assert answers(PORTABLE) == {text: found[i + 1].to_pylist() for i, text in enumerate(PORTABLE)}


def test_conditions_of_elements_know_null() -> None:
    found = answers(PORTABLE)
    assert found["array_contains(tags, 'red')"] == [None, False, None, True, True, False, False, False]
    assert found["NOT exists(xs, x -> 4 <= x)"] == [None, True, None, False, False, False, False, False]
    assert found["arrays_overlap(xs, array(7)) IS NULL"] == [True, False, True, True, False, False, False, False]
    assert all(len(set(values)) > 1 for values in found.values())


@pytest.mark.parametrize("text", ["WITH q AS (SELECT * FROM t) SELECT id FROM q", "SELECT id FROM (SELECT * FROM t) q"])
def test_conditions_of_elements_are_followed_into_other_selects(text: str) -> None:
    expected = answers(PORTABLE)
    for condition in PORTABLE:
        portable = portable_sql(f"{text} WHERE {condition}", {"t": SCHEMA}, "rows_of_t")
        found = set(run(portable)["id"].to_pylist())
        assert found == {id for id, holds in enumerate(expected[condition]) if holds}, condition


@pytest.mark.parametrize("condition", NOT_PORTABLE)
def test_others_are_sent_to_spark(condition: str) -> None:
    with pytest.raises(QueryError, match="--engine spark"):
        portable_sql(f"SELECT id FROM t WHERE {condition}", {"t": SCHEMA}, "v")


def test_a_function_of_the_users_goes_before_sparks() -> None:
    mine = Udf("map_values", "int", lambda text: len(text), ("text",), {}, "00")
    found = portable_sql("SELECT id FROM t WHERE map_values(s) = 3", {"t": SCHEMA}, "v", udfs={"map_values": mine})
    assert [function.name.split("_")[2:4] for function in found.functions] == [["map", "values"]]
