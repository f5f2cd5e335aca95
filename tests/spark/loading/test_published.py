"""What Spark wrote, every type of it, as other engines read it once it is published."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from layoutopt.catalog.publications import Publication
from layoutopt.publish.publishing import publish
from layoutopt.spark.core.source import schema_of
from layoutopt.spark.loading.load import load
from tests.spark.tables import document, every_type, is_value, plan_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_every_type_is_read_by_others(spark: SparkSession, tmp_path: Path) -> None:
    source = every_type(spark, 90)
    table = str(tmp_path / "table")
    schema = schema_of(source)
    features = document(schema, [is_value(schema, "d", ">", 1)])
    load(spark, source, table, plan_of(features, partition_by="year"))
    for format in ("delta", "iceberg"):
        publish(table, Publication(format, table))
    rows = source.toArrow()
    for found in (DeltaTable(table).to_pyarrow_table(), StaticTable.from_metadata(table).scan().to_arrow()):
        for name in rows.column_names:
            assert sorted(map(str, found[name].to_pylist())) == sorted(map(str, rows[name].to_pylist())), name
