"""``plan --index`` and ``--index-budget``: what is asked for, and what queries held back would save."""

from __future__ import annotations

from hashlib import sha1
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from layoutopt.api.options import make_request
from layoutopt.errors import SettingError
from layoutopt.methods.interface import PlanRequest
from layoutopt.model.predicates import Call, Col, Const, InSet
from layoutopt.model.values import ValueSet
from layoutopt.spark.core.source import schema_of
from layoutopt.spark.planning.indexes import plan_with_indexes
from tests.spark.tables import document, is_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from layoutopt.model.features_document import FeaturesDocument
    from layoutopt.model.layout import Plan

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def source(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of which ``text`` is another in each, in no order."""
    path = tmp_path_factory.mktemp("source") / "rows.parquet"
    numbers = spark.range(6000, numPartitions=2)
    numbers.selectExpr(
        "cast(id as int) AS id", "cast(id / 1500 as int) AS day", "cast(id % 5 as int) AS kind",
        "sha1(cast(id AS string)) AS text", "array('common', left(sha1(cast(id AS string)), 8), NULL) AS words",
    ).write.parquet(str(path))  # fmt: skip
    return path


def planned(spark: SparkSession, source: Path, of: FeaturesDocument, **more: Any) -> Plan:
    request = make_request(PlanRequest, {"method": "input-order", "block_rows": 300, **more})
    return plan_with_indexes(spark, str(source), of, request)


def of_values(spark: SparkSession, source: Path, column: str, values: list[object]) -> FeaturesDocument:
    schema = schema_of(spark.read.parquet(str(source)))
    return document(schema, [is_value(schema, column, "=", value) for value in values])


@pytest.mark.long
def test_values_that_never_recur_are_worth_an_index(spark: SparkSession, source: Path) -> None:
    log = of_values(spark, source, "text", [sha1(b"%d" % i).hexdigest() for i in range(3, 6000, 147)])
    plan = planned(spark, source, log, index_budget=0.3, index="day:value-list")
    assert {str(index).split(":")[0] for index in plan.indexes} == {"day", "text"}
    assert plan.predicted["index_share"] <= 0.3
    assert plan.predicted["index_saves"] > 0.5
    assert planned(spark, source, log, index_budget=0.0001).indexes == ()
    assert planned(spark, source, log).indexes == ()


@pytest.mark.long
def test_elements_that_never_recur_are_worth_an_index(spark: SparkSession, source: Path) -> None:
    schema = schema_of(spark.read.parquet(str(source)))
    words = Col("words", "array<string>")
    looked_up = [Const(sha1(b"%d" % i).hexdigest()[:8], "string") for i in range(3, 6000, 147)]
    holds = [InSet(Call("array_contains", (words, word), "boolean"), ValueSet.point(1)) for word in looked_up]
    plan = planned(spark, source, document(schema, holds), index_budget=0.3)
    assert {str(index).split(":")[0] for index in plan.indexes} == {"words"}
    assert plan.predicted["index_saves"] > 0.5


def test_what_the_log_foresaw_needs_none(spark: SparkSession, source: Path) -> None:
    log = of_values(spark, source, "kind", [0, 1, 2, 3] * 10)
    assert planned(spark, source, log, index_budget=0.3).indexes == ()


def test_what_no_load_could_build_is_refused(spark: SparkSession, source: Path) -> None:
    log = of_values(spark, source, "kind", [0])
    for text, said in [
        ("kind", "names no type; write COLUMN:TYPE"),
        ("kind:magic", "unknown type of index 'magic'"),
        ("nobody:bloom", "'nobody' is not an expression of the table's columns"),
        ("kind:ngrams", "'int', for which ngrams has no use"),
        ("rand():bloom", "may differ from run to run"),
        ("kind:bloom:7", "the share of false positives; give 1e-06 to 0.5"),
    ]:
        with pytest.raises(SettingError, match=said):
            planned(spark, source, log, index=text)
