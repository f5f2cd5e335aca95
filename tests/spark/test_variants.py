"""VARIANT columns: values travel as they are, what `try_variant_get` takes out of them makes features and skips."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812

import layoutopt
from layoutopt.errors import LayoutoptError, SchemaError
from layoutopt.features.selection import mine_all
from layoutopt.indexes.choosing import parse_indexes
from layoutopt.inspect.verify import verify
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.layout import ByVectors, Layout, Plan, Scheme
from layoutopt.model.predicates import TRUE, to_sql
from layoutopt.model.requests import DeleteRequest, UpdateRequest
from layoutopt.spark import disable, enable, read_table, register
from layoutopt.spark.changes.spark_change import change_by_spark
from layoutopt.spark.core.source import measure_content, open_source, schema_of, with_binaries
from layoutopt.spark.loading.load import load
from layoutopt.sql.scans import find_scans
from layoutopt.sql.schema import schema_from
from layoutopt.workload.analyze import analyze
from layoutopt.workload.log import LogEntry
from tests.spark.session.answers import scans_under
from tests.spark.settings import compared_here
from tests.spark.tables import compared, plan_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
ROWS = 600
JSON = """
    CASE WHEN id % 11 = 0 THEN NULL WHEN id % 7 = 0 THEN '[1, 2.5, {"a": 3}]' WHEN id % 13 = 0 THEN '"word"'
    WHEN id % 17 = 0 THEN 'null' WHEN id % 19 = 0 THEN '{"a": "5"}'
    ELSE concat('{"a":', id DIV 40, ',"b":{"c":"k', id % 30, '","d":', id / 100, '},"on":', id % 3 = 0, '}') END
"""
CONDITIONS = [
    "try_variant_get(v, '$.a', 'int') = 5", "try_variant_get(v, '$.a', 'long') BETWEEN 3 AND 4",
    "try_variant_get(v, '$.b.c', 'string') = 'k3'", "try_variant_get(v, '$.b.c', 'STRING') LIKE 'k1%'",
    "try_variant_get(v, '$[1]', 'double') > 1", "try_variant_get(v, '$.on', 'boolean')",
    "try_variant_get(v, '$.b.d', 'decimal(9,2)') < 1.5", "try_variant_get(v, '$.a', 'string') IS NULL",
    "NOT try_variant_get(v, '$.a', 'int') > 2", "try_variant_get(v, '$', 'string') = 'word'", "v IS NULL",
    "CAST(v AS string) = 'word'",
]  # fmt: skip
LEFT_OUT = [
    "variant_get(v, '$.a', 'int') = 5",  # fails where it is a text
    "try_variant_get(v, '$.a', 'timestamp') > TIMESTAMP '2020-01-01 00:00:00'",
    "try_variant_get(v, '$[\"a b\"]', 'int') = 5",
]  # fmt: skip


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.sql(f"SELECT CAST(id AS int) AS id, parse_json({JSON}) AS v FROM range({ROWS})").coalesce(1)


def said(rows: DataFrame) -> list[tuple[object, ...]]:
    """Each row's id and the two binaries of its variant."""
    found = rows.select("id", "v").orderBy("id").collect()
    return [
        (row.id, *((None, None) if row.v is None else (bytes(row.v.value), bytes(row.v.metadata)))) for row in found
    ]


def planned(rows: DataFrame) -> Plan:
    schema = schema_of(rows)
    log = [LogEntry(i, f"SELECT id FROM t WHERE {text}") for i, text in enumerate(CONDITIONS * 2)]
    found = analyze(log, schema, "t")
    features = mine_all(found.queries, schema, threshold=2, num_features=30)
    assert any("try_variant_get" in to_sql(feature.node) for feature in features)
    return plan_of(FeaturesDocument("t", schema, features, found.queries), block_rows=40)


def test_conditions_mean_what_they_mean_to_spark(rows: DataFrame) -> None:
    schema = schema_of(rows)
    assert schema.find("v").type == "variant"
    read = [find_scans(f"SELECT id FROM t WHERE {text}", {"t": schema})[0] for text in CONDITIONS]
    assert not [text for text, scan in zip(CONDITIONS, read, strict=True) if scan.unusable or scan.filter.root == TRUE]
    differing, matching = compared(rows, CONDITIONS, read)
    assert differing == [0] * len(CONDITIONS)
    assert not [n for n in matching if not 0 < n < ROWS], matching
    for text in LEFT_OUT:
        (scan,) = find_scans(f"SELECT id FROM t WHERE {text}", {"t": schema})
        assert scan.filter.root == TRUE, text


@pytest.mark.parametrize("shredded", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_table_of_variants(spark: SparkSession, tmp_path: Path, shredded: bool) -> None:
    form = "a int, b struct<c string>" if shredded else ""
    writing = spark.newSession()
    writing.conf.set("spark.sql.variant.writeShredding.enabled", str(shredded).lower())
    writing.conf.set("spark.sql.variant.forceShreddingSchemaForTest", form)
    written = writing.sql(f"SELECT CAST(id AS int) AS id, parse_json({JSON}) AS v FROM range({ROWS})")
    written.coalesce(1).write.parquet(str(tmp_path / "source"))
    (file,) = (tmp_path / "source").glob("*.parquet")
    assert ("typed_value" in str(pq.ParquetFile(file).schema)) == shredded
    source = open_source(spark, str(tmp_path / "source"))
    assert schema_from(tmp_path / "source").find("v").type == "variant"
    plan = planned(source)
    asked = ("try_variant_get(v, '$.a', 'int'):value-list", "try_variant_get(v, '$.b.c', 'string'):bloom")
    load(spark, source, str(tmp_path / "t"), replace(plan, indexes=parse_indexes(asked, plan.schema)))
    table = layoutopt.open_table(str(tmp_path / "t"))
    assert verify(table).problems == ()
    session = spark.newSession()
    register(session, "t", str(tmp_path / "t"))
    enable(session)
    try:
        found = session.sql("SELECT * FROM t")
        assert found.schema["v"].dataType.simpleString() == "variant"
        assert said(found) == said(source)
        assert said(read_table(session, str(tmp_path / "t"))) == said(source)
        source.createOrReplaceTempView("variant_rows")
        texts = [*CONDITIONS, *LEFT_OUT[1:2], "try_variant_get(v, '$.a', 'int') = 77"]
        arms = " UNION ALL ".join(f"SELECT {n} AS of, id FROM {{}} WHERE {text}" for n, text in enumerate(texts))
        with compared_here():
            answer = session.sql(arms.replace("{}", "t")).collect()
        assert sorted(answer) == sorted(spark.sql(arms.replace("{}", "variant_rows")).collect())
        scans = scans_under(session, texts)
        assert len(scans) == len(texts)
        for mechanism in ("features", "index"):
            assert sum(scan.skipped_by[mechanism].blocks for scan in scans.values()) > 5, mechanism
    finally:
        disable(session)


def test_column_groups_with_variants_are_put_together(spark: SparkSession, rows: DataFrame, tmp_path: Path) -> None:
    plan = planned(rows)
    layouts = (Layout(("id",), (0,), ("id",), ByVectors()), Layout(("v",), (1,), ("v",), ByVectors()))
    load(spark, rows, str(tmp_path / "t"), replace(plan, scheme=Scheme(layouts)))
    assert verify(layoutopt.open_table(str(tmp_path / "t"))).problems == ()
    session = spark.newSession()
    register(session, "t", str(tmp_path / "t"))
    enable(session)
    try:
        assert said(session.sql("SELECT * FROM t")) == said(rows)
    finally:
        disable(session)


@pytest.mark.long
def test_rows_with_variants_are_deleted_and_updated(spark: SparkSession, rows: DataFrame, tmp_path: Path) -> None:
    load(spark, rows, str(tmp_path / "t"), planned(rows))
    change_by_spark(spark, DeleteRequest(table_path=str(tmp_path / "t"), where="try_variant_get(v, '$.a', 'int') = 5"))
    change = UpdateRequest(table_path=str(tmp_path / "t"), assignments=("v = parse_json('[7]')",), where="id = 1")
    change_by_spark(spark, change)
    assert verify(layoutopt.open_table(str(tmp_path / "t"))).problems == ()
    session = spark.newSession()
    register(session, "t", str(tmp_path / "t"))
    enable(session)
    try:
        left = rows.where("NOT try_variant_get(v, '$.a', 'int') <=> 5")
        assert said(session.sql("SELECT * FROM t")) == said(
            left.selectExpr("id", "if(id = 1, parse_json('[7]'), v) AS v")
        )
    finally:
        disable(session)


def test_arrow_gets_the_binaries(rows: DataFrame) -> None:
    both = rows.select("v", "id", F.col("v").alias("v")).coalesce(1)
    found = with_binaries(both).toArrow()
    assert found.column_names == ["v", "id", "v"]
    pairs = [None if value is None else (value["value"], value["metadata"]) for value in found.column(2).to_pylist()]
    assert pairs == [None if value is None else (value, metadata) for _, value, metadata in said(rows)]


def test_variants_are_summed_by_their_binaries(spark: SparkSession) -> None:
    texts = ["1", "1.0", '"1"', '{"a":1}', '{"b":1}', "null"]
    texts = [*(f"parse_json('{text}')" for text in texts), "NULL"]
    sums = [measure_content(spark.sql(f"SELECT CAST({text} AS variant) AS v"), "t").sums["v"] for text in texts]
    assert len(set(sums)) == len(texts)


def test_what_is_not_done_is_said(spark: SparkSession, rows: DataFrame, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="which can't be stored"):
        open_source(spark, rows.selectExpr("struct(v) AS s"))
    load(spark, rows, str(tmp_path / "t"), planned(rows))
    table = layoutopt.open_table(str(tmp_path / "t"))
    assert table.sql("SELECT count(*) AS n FROM t WHERE v IS NULL").to_pylist() == [{"n": -(-ROWS // 11)}]
    with pytest.raises(LayoutoptError, match="--engine spark"):
        table.sql("SELECT id FROM t WHERE try_variant_get(v, '$.a', 'int') = 5")
