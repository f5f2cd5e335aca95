"""Parquet's own indexes in tables: loads write them, `verify` is content, and Spark's reader skips pages by them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.indexes.choosing import parse_indexes
from layoutopt.inspect.verify import verify
from layoutopt.methods.interface import PlanRequest
from layoutopt.scan.table import open_table
from layoutopt.spark.loading.load import load
from layoutopt.spark.planning.indexes import plan_with_indexes
from layoutopt.writer.task import parquet_index_options
from tests.spark.tables import plan_of, simple_document, simple_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from layoutopt.model.layout import Plan

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def plan(spark: SparkSession) -> Plan:
    document = simple_document(simple_rows(spark))
    return replace(plan_of(document), indexes=parse_indexes(["text:bloom"], document.schema))


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_load_writes_those_that_its_plan_wants(
    spark: SparkSession, tmp_path: Path, plan: Plan, encrypted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARQUET_KEY", "ab" * 16)
    wanted, key = replace(plan, parquet_indexes=("bloom", "page")), "env:PARQUET_KEY" if encrypted else None
    load(spark, simple_rows(spark), str(tmp_path / "t"), wanted, encrypt=key)
    table = open_table(str(tmp_path / "t"))
    assert verify(table).ok
    if encrypted:  # whoever has no key can't read the file either
        return
    (file, *_) = table.files()
    group = pq.read_metadata(tmp_path / "t" / file).row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert all(column.has_column_index for name, column in columns.items() if name in ("id", "text"))
    assert [name for name, column in columns.items() if column.bloom_filter_offset is not None] == ["text"]


def test_nobody_gets_them_unasked(spark: SparkSession, tmp_path: Path) -> None:
    source = simple_rows(spark)
    source.write.parquet(str(tmp_path / "rows"))
    for given, expected in (((), ()), (("page", "bloom"), ("bloom", "page"))):
        request = PlanRequest("input-order", parquet_index=given)
        plan = plan_with_indexes(spark, str(tmp_path / "rows"), simple_document(source), request)
        assert plan.parquet_indexes == expected


def rows_read(found: DataFrame) -> int:
    """What the scan of files handed on, before any filter."""
    found.collect()
    node = found._jdf.queryExecution().executedPlan()
    while node.children().size():
        node = node.children().apply(0)
    rows: int = node.metrics().apply("numOutputRows").value()
    return rows


def test_spark_skips_pages_by_their_index(spark: SparkSession, tmp_path: Path, plan: Plan) -> None:
    rows = pa.table({"id": np.arange(10_000), "text": [f"row {i}" for i in range(10_000)]})
    read = {}
    for wanted in ((), ("page",)):
        options = parquet_index_options(replace(plan, parquet_indexes=wanted), rows.schema, np.array([0, 10_000]))
        pq.write_table(rows, tmp_path / f"{len(wanted)}.parquet", **options)
        found = spark.read.parquet(str(tmp_path / f"{len(wanted)}.parquet")).where("id = 4321")
        assert [row["text"] for row in found.collect()] == ["row 4321"]
        read[wanted] = rows_read(found)
    assert read == {(): 10_000, ("page",): 1_000}
