"""A table foretold from some of its partitions: what queries read where they were tried, and elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.inspect.evaluate import compare, evaluate
from layoutopt.methods.interface import PlanRequest
from layoutopt.model.arrays import Floats
from layoutopt.model.predicates import And, Filter
from layoutopt.model.query import Query
from layoutopt.planning.segment_evaluation import RoughFigures, TriedSegments, scale_up
from layoutopt.scan.table import open_table
from layoutopt.spark.core.source import schema_of
from layoutopt.spark.loading.load import load
from tests.spark.plans import make_plan
from tests.spark.tables import is_value, simple_document, simple_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

YEARS: dict[PlainValue, int] = {1992: 50, 1993: 200, 1994: 100, 1995: 150}
TRIED = TriedSegments((1993, 1995), np.array([200.0, 150.0]), YEARS)
FAMILIES = np.array([0, 0, 1, 1, 1])


def figures(of: dict[int, list[float]]) -> Floats:
    return np.array(list(of.values()), dtype=np.float64)


READ = figures({1992: [5, 0, 1, 0, 0], 1993: [20, 0, 0, 0, 7], 1994: [0, 6, 0, 3, 3], 1995: [0, 10, 0, 0, 9]})
"""The third and the fourth query read nothing where it was tried."""


@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=2))
def test_what_is_wrong_by_as_much_for_all_of_a_family_is_set_right(wrong: list[float]) -> None:
    rough = RoughFigures(tuple(YEARS), READ / np.array(wrong)[FAMILIES])
    assert scale_up(TRIED, READ[[1, 3]], rough, FAMILIES) == pytest.approx(READ.sum(axis=0))


def test_a_family_that_was_nowhere_tried_is_set_right_as_the_median_is() -> None:
    families = np.array([0, 1, 2, 2, 3])
    rough = RoughFigures(tuple(YEARS), READ / np.array([1, 2, 4, 4, 4]))
    # 1992 and 1994 are not tried, where the third and fourth are said to read a quarter of what they do.
    found = scale_up(TRIED, READ[[1, 3]], rough, families)
    assert found == pytest.approx([25, 16, 1 / 4 * 2, 3 / 4 * 2, 19])


def test_segments_stand_for_their_partition_and_partitions_for_those_that_are_not_sampled() -> None:
    halves = TriedSegments((1993, 1993), np.array([60.0, 40.0]), YEARS)
    assert halves.times.tolist() == [2, 2]
    rough = RoughFigures((1993, 1994), figures({1993: [10], 1994: [7]}))
    # Of the 300 rows elsewhere 100 are sampled; 1993 reads 2 * (3 + 2), as was said.
    assert scale_up(halves, np.array([[3.0], [2.0]]), rough, np.array([0])).tolist() == [10 + 7 * 3]


def test_figures_of_several_kinds_are_scaled_alike() -> None:
    both = np.stack([READ, 2 * READ], axis=-1)
    found = scale_up(TRIED, both[[1, 3]], RoughFigures(tuple(YEARS), READ), FAMILIES)
    assert found == pytest.approx(both.sum(axis=0))


def test_nothing_said_of_what_was_tried_leaves_what_was_measured() -> None:
    rough = RoughFigures(tuple(YEARS), READ * np.array([[1], [0], [1], [0]]))
    assert scale_up(TRIED, READ[[1, 3]], rough, FAMILIES) == pytest.approx(READ[[1, 3]].sum(axis=0))


@pytest.mark.long
@pytest.mark.spark
def test_queries_of_one_partition_each_are_foretold_wherever_they_are(spark: SparkSession, tmp_path: Path) -> None:
    """Of ten partitions six are rehearsed, so that four queries' own are not."""
    rows = simple_rows(spark, 4_000).selectExpr("id", "cast(id / 400 as int) AS day", "kind", "text")
    schema, features = schema_of(rows), simple_document(rows)
    kind = is_value(schema, "kind", "=", 1)
    conditions = [And((kind, is_value(schema, "day", "=", day))) for day in range(10)]
    queries = tuple(Query(day, "t", ("id", "text"), Filter.of(root)) for day, root in enumerate(conditions))
    request = PlanRequest("sop", partition_by="day", block_rows=40)
    plan = make_plan(spark, rows, replace(features, queries=queries), request)
    load(spark, rows, tmp_path / "t", plan=plan)
    table = open_table(str(tmp_path / "t"))
    found = compare(table, queries, evaluate(table, queries)).foreseen
    assert found.queries == 10
    assert found.within_a_quarter == 1
