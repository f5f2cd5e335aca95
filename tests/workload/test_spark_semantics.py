"""Filters against Spark itself: on rows of every awkward kind, the node is TRUE where Spark's condition is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from layoutopt.model.predicates import to_sql
from layoutopt.sql.scans import find_scans
from tests.workload.semantics import COLUMNS, CONDITIONS, NAN, ROWS, SCHEMA, TYPES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _node_sql(condition: str) -> str:
    (scan,) = find_scans(f"SELECT count(*) FROM t WHERE {condition}", {"t": SCHEMA})
    assert scan.exact, (condition, scan.unusable)
    return to_sql(scan.filter.root)


def _differences(spark: SparkSession, conditions: Sequence[str]) -> list[str]:
    """Rows for which Spark and the node disagree, as texts; the conditions in a few wide queries."""
    wrong = []
    for start in range(0, len(conditions), 60):
        part = conditions[start : start + 60]
        pairs = ", ".join(f"array(coalesce(({text}), false), coalesce(({_node_sql(text)}), false))" for text in part)
        for row in spark.sql(f"SELECT array({pairs}) AS pairs FROM nasty_rows").collect():
            both = zip(part, row["pairs"], strict=True)
            wrong += [f"{text} -> {_node_sql(text)}: Spark {ours}" for text, (ours, node) in both if ours != node]
    return wrong


@pytest.fixture(scope="module")
def _nasty_rows(spark: SparkSession) -> None:
    rows = [(number, *(COLUMNS[name][number] for name in TYPES)) for number in range(ROWS)]
    fields = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
    spark.createDataFrame(rows, f"id int, {fields}").coalesce(1).createOrReplaceTempView("nasty_rows")


@pytest.mark.spark
def test_whole_numbers_of_doubles_are_those_of_spark(spark: SparkSession) -> None:
    """``floor`` and ``ceil`` fail where no bigint holds the value, so of these rows there are none here."""
    values = [None, NAN, 0.0, -0.0, 0.5, -0.5, 1.0, 5e-324, -5e-324, 2.0**53, -(2.0**63), 2.0**63 - 1024, 6.999, 7.0]
    frame = spark.createDataFrame([(value,) for value in values], "x double").coalesce(1)
    tests = ("= 0", "<> 0", "= 1", "> -1", "<= -1", "= -9223372036854775808", "> 9007199254740991", "IN (0, 7)",
             "NOT IN (1)", "BETWEEN -1 AND 0", "< 0.5D", ">= 6")  # fmt: skip
    texts = [f"{name}(x) {test}" for name in ("floor", "ceil") for test in tests]
    pairs = [f"array(coalesce(({text}), false), coalesce(({_node_sql(text)}), false))" for text in texts]
    for row in frame.selectExpr("x", *pairs).collect():
        assert [text for text, (ours, node) in zip(texts, row[1:], strict=True) if ours != node] == [], row["x"]


# Conditions whose filter holds for more rows in the far past and future.
_WIDENED = [
    "date_format(d, 'yyyy-MM') = '1994-01'",
    "date_format(d, 'yyyyMMdd') >= '19940101'",
    "NOT (date_format(d, 'yyyy-MM-dd') < '1994-12-31')",
    "date_format(d, 'yyyy') IN ('1970', '1996')",
    "date_format(ts, 'yyyy-MM-dd') = '1994-01-01'",
    "date_format(ts, 'yyyy-MM-dd HH:mm:ss') > '1993-12-31 23:59:58'",
    "date_format(n, 'yyyy/MM') <> '1994/01'",
    "from_unixtime(b) < '1970-01-01 00:00:05'",
    "from_unixtime(i, 'yyyy-MM-dd') = '1970-01-01'",
    "from_unixtime(y, 'yyyyMMdd HH') BETWEEN '19691231 23' AND '19700101 00'",
]


@pytest.mark.spark
@pytest.mark.usefixtures("_nasty_rows")
def test_texts_of_times_keep_every_row_and_few_more(spark: SparkSession) -> None:
    far = "d BETWEEN '1600-01-01' AND '9999-12-30' AND (b IS NULL OR b BETWEEN -11676096000 AND 253402214399)"
    for text in _WIDENED:
        found = spark.sql(
            f"SELECT ({text}) AS ours, ({_node_sql(text)}) AS node, {far} AS near FROM nasty_rows"
        ).collect()
        assert not [row for row in found if row["ours"] and not row["node"]], text
        assert not [row for row in found if row["near"] and row["node"] and not row["ours"]], text
        assert [row for row in found if not row["node"]], text


@pytest.mark.spark
@pytest.mark.usefixtures("_nasty_rows")
def test_elements_of_a_subquery_are_compared_as_spark_does(spark: SparkSession) -> None:
    for condition in ("i IN (SELECT explode(array(1, 5)))", "i NOT IN (SELECT explode(array(1, 5)))",
                      "x IN (SELECT explode(array(0.1, 0.5)))", "b NOT IN (SELECT explode(array(1, NULL)))",
                      "s IN (SELECT explode(array('a', '')))", "p IN (SELECT explode(array(5, 1)))"):  # fmt: skip
        texts = (condition, _node_sql(condition))
        ours, node = (
            [row.id for row in spark.sql(f"SELECT id FROM nasty_rows WHERE {t} ORDER BY id").collect()] for t in texts
        )
        assert ours == node, texts


@pytest.mark.spark
@pytest.mark.usefixtures("_nasty_rows")
def test_nodes_are_true_where_spark_says_so(spark: SparkSession) -> None:
    assert _differences(spark, CONDITIONS) == []
