"""Feature words in Spark SQL against the conditions evaluated one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from layoutopt.errors import BoundError
from layoutopt.evaluation.predicates import read_word_columns, segment_words
from layoutopt.model.feature import Feature, FeatureSet
from layoutopt.model.predicates import Call, Col, Const, Expr, to_sql
from layoutopt.model.vectors import unpack
from layoutopt.spark.core.featurize import count_vectors, with_feature_words, word_columns
from layoutopt.spark.core.source import schema_of
from tests.scan.builder import feature_of
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
    table = source.select("*", *word_columns(features.features)).toArrow()
    bits = unpack(read_word_columns(table, 70), 70)
    conditions = [to_sql(feature.predicates[0]) for feature in features]
    each = source.selectExpr(*(f"coalesce({condition}, false)" for condition in conditions[:7])).toArrow()
    for i, condition in enumerate(conditions):
        assert condition == conditions[i % 7]
        rows = each[i % 7].to_pylist()
        assert bits[:, i].tolist() == rows
        assert 0 < sum(rows) < 150


def test_tasks_find_the_very_bits_that_spark_finds(spark: SparkSession) -> None:
    """Of those that are left to Spark the words come along; fields of structs have names that are paths elsewhere."""
    source = spark.range(200).selectExpr(
        "id", "if(id % 5 = 0, NULL, concat('t', id % 17)) AS text", "if(id % 3 = 0, NULL, id % 11) / 2D AS f",
        "named_struct('.x', int(id % 4), 'x', 5, '[0]', if(id % 2 = 0, NULL, int(id % 9))) AS s",
        "cast(if(id % 7 = 0, NULL, id - 99) AS decimal(30,2)) AS d", "array(id) AS a",
    ).coalesce(2)  # fmt: skip
    conditions = (
        "text LIKE '%3'", "text IN ('t1', 't9') OR f < 1", "s.`.x` = 1", "s.x = 1", "s.`[0]` IS NULL", "f >= 2.5",
        "d < 0 OR text IS NULL", "substring(text, 2, 1) = '1' AND d > 3", "a IS NOT NULL", "d = 12.00", "id = 7",
    )  # fmt: skip
    schema = schema_of(source)
    features = FeatureSet(tuple(feature_of(condition, schema) for condition in conditions * 7))
    left = with_feature_words(source, features.features).toArrow()
    found = segment_words(
        features.features, left.select(source.columns), lambda places: read_word_columns(left, len(places))
    )
    expected = read_word_columns(source.select("*", *word_columns(features.features)).toArrow(), len(features))
    assert (found == expected).all()
    shares = unpack(expected, len(features)).mean(axis=0)
    assert (shares > 0).sum() > 60


def test_a_feature_of_several_predicates_is_their_conjunction(spark: SparkSession) -> None:
    source = simple_rows(spark)
    schema = schema_of(source)
    first, second = (document(schema, [is_value(schema, *t)]).features[0] for t in (("kind", "=", 1), ("id", "<", 10)))
    feature = Feature((*first.predicates, *second.predicates))
    table = source.select("*", *word_columns([feature])).where("_w0 = 1").toArrow()
    assert table["id"].to_pylist() == [1, 6]


def test_counts_by_partition_are_those_of_the_rows(spark: SparkSession) -> None:
    source = simple_rows(spark).selectExpr("if(day = 3, NULL, day) AS day", "id", "kind", "text")
    features = simple_document(source).features.features
    counts = count_vectors(source, features, "day")
    assert set(counts) == {0, 1, 2, None}
    for vectors in counts.values():
        assert vectors.words[:, 0].tolist() == [0, 1, 2, 4, 8]
        assert vectors.counts.tolist() == [20] * 5
    everything = count_vectors(source, features)
    assert everything[None].counts.tolist() == [80] * 5


def test_without_features_there_is_one_vector(spark: SparkSession) -> None:
    counts = count_vectors(simple_rows(spark), [])
    assert counts[None].counts.tolist() == [400]
    assert np.array_equal(counts[None].words, [[0]])


def test_too_many_pairs_are_refused(spark: SparkSession) -> None:
    source = simple_rows(spark)
    with pytest.raises(BoundError, match="4 features make more than 3 pairs"):
        count_vectors(source, simple_document(source).features.features, max_pairs=3)


@pytest.mark.parametrize(
    "value",
    [Call("try_cast", (Col("text", "string"),), "timestamp"), Const(None, "timestamp")],
    ids=["cast", "null"],
)
def test_timestamps_have_a_zone_whatever_a_session_calls_so(spark: SparkSession, value: Expr) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    found = session.sql(f"SELECT {to_sql(value)} AS value FROM (SELECT '1970-01-01 00:00:00' AS text)")
    assert found.schema["value"].dataType.simpleString() == "timestamp"
