"""The SQL of filters in Spark: TRUE for exactly the rows that the condition is TRUE for, over every keyed type."""

from __future__ import annotations

from itertools import chain, islice
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from layoutopt.model.predicates import to_sql
from tests.model.conditions import (
    CONSTANTS,
    OPERATORS,
    TYPES,
    VALUES,
    Both,
    Compare,
    Condition,
    Either,
    In,
    IsNull,
    Matches,
    Not,
    Row,
    TwoColumns,
    to_node,
    truth,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ARROW = {
    "tinyint": pa.int8(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "float": pa.float32(),
    "decimal(4,1)": pa.decimal128(4, 1),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
}
LENGTH = max(map(len, VALUES.values())) + 1


def _column(name: str) -> list[Any]:
    """All sample values of a column, with NULL, repeated to the table's length."""
    values = [None, *VALUES[name]]
    return [values[k % len(values)] for k in range(LENGTH)]


def _rows() -> list[Row]:
    columns = {name: _column(name) for name in TYPES}
    return [{name: columns[name][k] for name in TYPES} for k in range(LENGTH)]


def _table(spark: SparkSession) -> DataFrame:
    rows = _rows()
    arrays = [pa.array([row[name] for row in rows], ARROW[type]) for name, type in TYPES.items()]
    # One partition keeps the rows in order.
    return spark.createDataFrame(pa.table(arrays, list(TYPES))).coalesce(1)


def _leaves() -> list[Condition]:
    leaves: list[Condition] = [
        Compare(name, op, value) for name in TYPES for op in OPERATORS for value in CONSTANTS[name]
    ]
    leaves += [In(name, tuple(VALUES[name][1:4])) for name in TYPES]
    leaves += [IsNull(name) for name in TYPES]
    leaves += [Matches("s", text) for text in ("a%", "%a%", "_", "a_%", "\\%", "%\U0001f600", "", "%")]
    leaves += [TwoColumns(*pair) for op in OPERATORS for pair in (("i", op, "j"), ("s", op, "r"))]
    return [leaf for each in leaves for leaf in (each, Not(each))]


def _compound(random: Random, leaves: list[Condition]) -> Condition:
    parts = tuple(random.sample(leaves, 3))
    inner = Both(parts[:2]) if random.random() < 0.5 else Either(parts[:2])
    return Either((inner, parts[2])) if isinstance(inner, Both) else Both((inner, parts[2]))


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_the_sql_of_a_filter_is_true_where_the_condition_is(spark: SparkSession, ansi: str) -> None:
    random, leaves = Random(7), _leaves()
    compounds = (_compound(random, leaves) for _ in range(100))
    tried = [*dict.fromkeys(chain(random.sample(leaves, 500), compounds))]
    rows = _rows()
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        source, waiting = _table(spark), iter(tried)
        while batch := list(islice(waiting, 200)):
            texts = [to_sql(to_node(condition)) for condition in batch]
            found = source.selectExpr(*(f"coalesce({text}, false) AS c{k}" for k, text in enumerate(texts))).toArrow()
            for k, condition in enumerate(batch):
                expected = [truth(condition, row) is True for row in rows]
                assert found[f"c{k}"].to_pylist() == expected, (condition, texts[k])
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")
