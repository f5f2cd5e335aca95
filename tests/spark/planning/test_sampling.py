"""Samples of rows as vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from layoutopt.model.arrays import spread
from layoutopt.model.feature import FeatureSet
from layoutopt.model.vectors import VectorCounts
from layoutopt.planning.source_profile import SAMPLE_ROWS
from layoutopt.spark.core.featurize import count_vectors
from layoutopt.spark.core.source import schema_of
from layoutopt.spark.planning.frame_rows import draw_rows
from tests.spark.tables import document, every_type, is_value, simple_document, simple_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def sample_vectors(
    rows: DataFrame, features: FeatureSet, by: str | None, counts: Mapping[Any, int], sample_rows: int
) -> dict[Any, VectorCounts]:
    return count_vectors(draw_rows(rows, features, by, counts, sample_rows), features.features, by)


def test_values_are_spread_evenly() -> None:
    assert spread([1, 2], 3) == [1, 2]
    assert spread([], 3) == []
    assert spread(list(range(100)), 3) == [16, 50, 83]


@pytest.mark.spark
def test_all_rows_are_taken_where_they_are_few(spark: SparkSession) -> None:
    source = simple_rows(spark)
    features = simple_document(source).features
    found = sample_vectors(source, features, "day", {1: 100, 3: 100}, SAMPLE_ROWS)
    expected = count_vectors(source, features.features, "day")
    assert set(found) == {1, 3}
    for value, vectors in found.items():
        assert vectors.words.tolist() == expected[value].words.tolist()
        assert vectors.counts.tolist() == expected[value].counts.tolist()
    (whole,) = sample_vectors(source, features, None, {None: 400}, SAMPLE_ROWS).values()
    assert whole.rows == 400


@pytest.mark.spark
def test_about_as_many_rows_as_wanted_are_drawn_and_the_same_ones_in_any_order(spark: SparkSession) -> None:
    source = simple_rows(spark, 4000)
    features = simple_document(source).features
    first = sample_vectors(source, features, None, {None: 4000}, 1000)[None]
    again = sample_vectors(source.repartition(5), features, None, {None: 4000}, 1000)[None]
    assert 800 < first.rows < 1200
    assert (first.words.tolist(), first.counts.tolist()) == (again.words.tolist(), again.counts.tolist())
    # Five kinds of equal frequency stay about equal.
    assert np.abs(first.counts / first.rows - 0.2).max() < 0.06


@pytest.mark.spark
def test_rows_of_every_type_and_the_null_partition_are_sampled(spark: SparkSession) -> None:
    source = every_type(spark, 300)
    schema = schema_of(source)
    features = document(schema, [is_value(schema, "flag", "=", True)]).features
    found = sample_vectors(source, features, "year", {None: 100, 1994: 100}, SAMPLE_ROWS)
    assert {value: vectors.rows for value, vectors in found.items()} == {None: 100, 1994: 100}
