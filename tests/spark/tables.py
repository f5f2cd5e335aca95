"""Small sources, features and plans for the tests of the Spark side."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from layoutopt.model.feature import Feature, FeatureSet
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.layout import ByVectors, Layout, Plan, Scheme
from layoutopt.model.predicates import Col, Filter, InSet, Node, to_sql
from layoutopt.model.query import Query
from layoutopt.model.schema import Schema
from layoutopt.model.values import compare
from layoutopt.planning.rows import SourceRows
from layoutopt.sources.door import Door
from layoutopt.spark.core.source import schema_of
from layoutopt.spark.planning.frame_rows import FrameRows
from layoutopt.sql.scans import TableScan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVERY_TYPE = """
    year int, flag boolean, tiny tinyint, small smallint, n bigint, f float, d double, text string, bin binary,
    day date, at timestamp, local timestamp_ntz, price decimal(12,2), wide decimal(38,4), list array<int>,
    inner struct<a: int, b: array<string>>, tags map<string, double>, deep array<map<int, map<string, int>>>
"""


def every_type(spark: SparkSession, rows: int = 600) -> DataFrame:
    """Rows over three partitions (1994, 1995, NULL) with NULL, NaN, -0.0, infinities and unicode in every column."""
    return spark.createDataFrame([_row(i) for i in range(rows)], EVERY_TYPE)


def _row(i: int) -> tuple[object, ...]:
    floats = [0.0, -0.0, float("nan"), float("inf"), float("-inf"), i / 7, None]
    texts = ["", "a", "ünïcödé", "😀", "x" * (i % 90), None, f"value {i}"]
    moment = dt.datetime(1994, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=i, microseconds=i)
    present = i % 11 != 0

    def unless(value: object) -> object:
        return value if present else None

    return (
        [1994, 1995, None][i % 3],
        unless(i % 2 == 0),
        unless(i % 100 - 50),
        unless(i * 31 % 30000),
        unless(i * 2**40 - 2**50),
        floats[i % 7],
        floats[(i + 3) % 7],
        texts[i % 7],
        unless((texts[(i + 1) % 7] or "").encode()),
        unless(moment.date()),
        unless(moment),
        unless(moment.replace(tzinfo=None)),
        unless(Decimal(i * 37 - 9000) / 100),
        unless(Decimal(i - 300) * Decimal(10) ** 30 / Decimal(10000)),
        unless([i, None, i % 3]),
        unless((i, [texts[i % 7], None])),
        unless({"b": float(i), "a": None, "": float("nan")}),
        [None, {i: {"k": i, "j": None}}, {}] if i % 2 else None,
    )


def simple_rows(spark: SparkSession, rows: int = 400) -> DataFrame:
    """Rows in a known order: ``id`` 0 .., ``day`` in order, ``kind`` scattered, ``text`` unique."""
    return spark.range(rows, numPartitions=2).selectExpr(
        "cast(id as int) AS id",
        f"cast(id * 4 / {rows} as int) AS day",
        "cast(id % 5 as int) AS kind",
        "concat('row ', id) AS text",
    )


def kinds_and_shops(spark: SparkSession, rows: int, days: int, *more: str) -> DataFrame:
    """Rows in the order of their days, with kinds and shops scattered and long texts that are unique; ``more``: SQL."""
    return spark.range(rows, numPartitions=1).selectExpr(
        "cast(id as int) AS id",
        f"cast(id * {days} / {rows} as int) AS day",
        "cast(id % 5 as int) AS kind",
        "cast((id div 5) % 10 as int) AS shop",
        "sha2(cast(id as string), 256) AS text",
        *more,
    )


def is_value(schema: Schema, column: str, op: str, value: object) -> Node:
    """A comparison of a column with a Python value."""
    type = schema.find(column).type
    return InSet(Col(column, type), compare(op, value, type))


def document(schema: Schema, conditions: Sequence[Node], table: str = "t") -> FeaturesDocument:
    """Every condition is a feature, and a query that reads all columns."""
    filters = [Filter.of(node) for node in conditions]
    features = FeatureSet(tuple(Feature(filter.predicates, 1.0 + i) for i, filter in enumerate(filters)))
    queries = tuple(Query(i, table, schema.names, filter) for i, filter in enumerate(filters))
    return FeaturesDocument(table, schema, features, queries)


def simple_document(df: DataFrame) -> FeaturesDocument:
    """Features ``kind = 0`` .. ``kind = 3``; queries by them."""
    schema = schema_of(df)
    return document(schema, [is_value(schema, "kind", "=", kind) for kind in range(4)])


def compared(rows: DataFrame, texts: Sequence[str], scans: Sequence[TableScan]) -> tuple[list[int], list[int]]:
    """Of each condition the rows for which Spark and the filter that was read differ, and those that match."""
    pairs = [(text, to_sql(scan.filter)) for text, scan in zip(texts, scans, strict=True)]
    differing = [F.sum(F.expr(f"if(({a}) <=> true, 1, 0) <> if(({b}) <=> true, 1, 0)").cast("int")) for a, b in pairs]
    matching = [F.sum(F.expr(f"if({a}, 1, 0)")) for a, _ in pairs]
    counted = rows.select(*differing, *matching).first()
    assert counted is not None
    return list(counted[: len(pairs)]), list(counted[len(pairs) :])


def plan_of(
    of: FeaturesDocument,
    *,
    partition_by: str | None = None,
    scheme: Scheme | None = None,
    block_rows: int = 20,
    segment_rows: int = 1000,
    max_vectors: int = 100,
) -> Plan:
    """A plan without counting anything: one layout by Ward's method unless another scheme is given."""
    names = of.schema.names
    whole = Scheme((Layout(names, tuple(range(len(of.features))), names, ByVectors("ward")),))
    return Plan(
        table=of.table,
        schema=of.schema,
        partition_by=partition_by,
        method="sop",
        features=of.features,
        queries=of.queries,
        scheme=scheme or whole,
        block_rows=block_rows,
        segment_rows=segment_rows,
        max_vectors=max_vectors,
        seed=0,
        settings=of.features.settings,
    )


def source_rows(frame: DataFrame, partition_by: str | None) -> SourceRows:
    """Rows as planning reads them by Spark."""
    return Door(lambda _: FrameRows(frame, partition_by))
