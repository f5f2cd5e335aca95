"""Feature words in Spark SQL against the conditions evaluated one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from layoutopt.catalog.partition_names import PartitionNames
from layoutopt.errors import BoundError
from layoutopt.model.feature import Feature
from layoutopt.model.predicates import to_sql
from layoutopt.model.vectors import unpack
from layoutopt.spark.core.featurize import feature_words, pairs_table, vector_counts
from layoutopt.spark.core.source import schema_of
from layoutopt.writer.features import words_of
from tests.spark.tables import document, every_type, is_value, simple_document, simple_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_bits_are_true_only_where_the_condition_is(spark: SparkSession) -> None:
    source = every_type(spark, 150)
    schema = schema_of(source)
    tests = [
        ("flag", "=", True),
        ("text", "=", "😀"),
        ("text", "<>", "a"),
        ("d", ">", 0.0),
        ("f", "<=", 0.0),
        ("price", ">=", -50),
        ("n", "<", 0),
    ]
    # 70 features: some lie in the second word, one at bit 63.
    features = document(schema, [is_value(schema, *tests[i % 7]) for i in range(70)]).features
    table = feature_words(source, features.features).toArrow()
    bits = unpack(words_of(table, 70), 70)
    for i, feature in enumerate(features):
        rows = source.selectExpr(f"coalesce({to_sql(feature.predicates[0])}, false) AS t").toArrow()["t"].to_pylist()
        assert bits[:, i].tolist() == rows
        assert 0 < sum(rows) < 150


def test_a_feature_of_several_predicates_is_their_conjunction(spark: SparkSession) -> None:
    source = simple_rows(spark)
    schema = schema_of(source)
    first, second = (document(schema, [is_value(schema, *t)]).features[0] for t in (("kind", "=", 1), ("id", "<", 10)))
    feature = Feature((*first.predicates, *second.predicates))
    table = feature_words(source, [feature]).where("_w0 = 1").toArrow()
    assert table["id"].to_pylist() == [1, 6]


def test_counts_by_partition_are_those_of_the_rows(spark: SparkSession) -> None:
    source = simple_rows(spark).selectExpr("if(day = 3, NULL, day) AS day", "id", "kind", "text")
    features = simple_document(source).features.features
    counts = vector_counts(source, features, "day")
    assert set(counts) == {0, 1, 2, None}
    for vectors in counts.values():
        assert vectors.words[:, 0].tolist() == [0, 1, 2, 4, 8]
        assert vectors.counts.tolist() == [20] * 5
    everything = vector_counts(source, features)
    assert everything[None].counts.tolist() == [80] * 5
    pairs = pairs_table(counts, PartitionNames("day", "int"))
    assert (pairs.num_rows, sum(pairs["count"].to_pylist())) == (20, 400)


def test_without_features_there_is_one_vector(spark: SparkSession) -> None:
    counts = vector_counts(simple_rows(spark), [])
    assert counts[None].counts.tolist() == [400]
    assert np.array_equal(counts[None].words, [[0]])


def test_too_many_pairs_are_refused(spark: SparkSession) -> None:
    source = simple_rows(spark)
    with pytest.raises(BoundError, match="4 features make more than 3 pairs"):
        vector_counts(source, simple_document(source).features.features, max_pairs=3)
