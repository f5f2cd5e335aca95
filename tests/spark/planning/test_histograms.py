"""Bounds of partitions as planning knows them, and the queries that reach a partition."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from layoutopt.model.feature import Feature, FeatureSet
from layoutopt.model.predicates import Col, Filter, InSet, Predicate
from layoutopt.model.query import Query
from layoutopt.model.schema import Column, Schema
from layoutopt.model.values import compare
from layoutopt.planning.source_profile import CountRequest, count_histograms, partition_bounds, sample_histograms
from layoutopt.skipping.cannot_match import BlockStatistics, cannot_match
from tests.spark.tables import source_rows


def texts(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary()).view(pa.string())


def test_partitions_with_texts_that_are_no_utf8_are_excluded_from_no_query() -> None:
    """By bytes, FF is above the emoji; as a str with a surrogate it would be below, and the query excluded."""
    emoji = "\U0001f600"
    measured = pa.table({"_low0": texts(b"a", b"a", None), "_high0": texts(b"b", b"\xff", None), "_n0": [2, 2, 0]})
    rows = np.array([2, 2, 2])
    bounds = partition_bounds(measured, 0, "string", rows)
    assert bounds.known.tolist() == [True, False, False]
    above = Filter.of(InSet(Col("s", "string"), compare(">", emoji, "string")))
    statistics = BlockStatistics(rows=rows, bounds={"s": bounds})
    assert cannot_match(above.root, statistics, None).tolist() == [True, False, True]


SCHEMA = Schema((Column("part", "int"), Column("day", "date"), Column("word", "string"), Column("n", "int")))


def asked(column: str, type: str, operator: str, value: object) -> Query:
    root = InSet(Col(column, type), compare(operator, value, type))
    return Query(0, "t", ("n",), Filter.of(root))


FIVE = InSet(Col("n", "int"), compare("=", 5, "int"))
FEATURES = FeatureSet((Feature((Predicate((FIVE,)),)),))
QUERIES = (
    asked("day", "date", "<", datetime.date(2026, 2, 1)),
    asked("word", "string", ">", "p1"),
    asked("word", "string", "=", "p0 17"),
    Query(0, "t", ("n",), Filter.of(FIVE)),
    asked("n", "int", "<", -1),
)
REACHED = {
    None: [1, 1, 0, 1, 0],  # its days and words are unlike all others
    0: [1, 0, 1, 1, 0],
    1: [0, 1, 0, 1, 0],
}


@pytest.mark.spark
@pytest.mark.parametrize("few", [False, True], ids=["all counted", "sampled"])
def test_queries_reach_the_partitions_whose_bounds_don_t_exclude_them(spark: SparkSession, few: bool) -> None:
    rows = spark.range(3_000).selectExpr(
        "if(id % 3 = 2, null, cast(id % 3 AS int)) AS part",
        "date_add(date '2026-01-01', if(id % 3 = 1, 40, 0) + cast(id % 20 AS int)) AS day",
        "if(id % 3 = 2, 'zz', concat('p', id % 3, ' ', (id DIV 3) % 50)) AS word",
        "cast(id % 10 AS int) AS n",
    )
    of = CountRequest(source_rows(rows, "part"), QUERIES, SCHEMA, 100, lambda sentence: None)
    pairs = sample_histograms(of, FEATURES) if few else count_histograms(of, FEATURES)[1]
    assert {pair.value: pair.query_weights.tolist() for pair in pairs} == REACHED
    assert [pair.rows for pair in pairs] == [1_000] * 3


@pytest.mark.spark
def test_a_partition_of_so_few_rows_that_none_is_sampled_has_its_bounds_too(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [(i, datetime.date(2026, 3, i), f"p{i}", i) for i in (1, 2)], "part int, day date, word string, n int"
    )
    of = CountRequest(source_rows(rows, "part"), QUERIES, SCHEMA, 100, lambda sentence: None)
    found = {pair.value: pair.query_weights.tolist() for pair in count_histograms(of, FEATURES)[1]}
    assert found == {1: [0, 0, 0, 0, 0], 2: [0, 1, 0, 0, 0]}
