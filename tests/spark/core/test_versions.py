"""Spark's private interfaces that are used, and what stands in for newer ones on older versions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812

import layoutopt
from layoutopt.spark.core import versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def java_type(spark: SparkSession, name: str) -> Any:
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return jvm.java.lang.Class.forName(versions.adapt_java(name), False, loader)


@pytest.mark.parametrize("name", versions.PRIVATE)
def test_private_methods_are_there(spark: SparkSession, name: str) -> None:
    methods = {method.getName() for method in java_type(spark, name).getMethods()}
    assert set(versions.PRIVATE[name]) <= methods


@pytest.mark.parametrize("name", versions.ONE_CONSTRUCTOR)
def test_case_classes_have_one_constructor(spark: SparkSession, name: str) -> None:
    assert len(java_type(spark, name).getConstructors()) == 1


def test_private_attributes_are_there(spark: SparkSession) -> None:
    objects = {
        "SparkSession": spark,
        "SparkContext": spark.sparkContext,
        "DataFrame": spark.range(1),
        "Column": F.col("id"),
    }
    missing = [(n, a) for n, names in versions.PRIVATE_ATTRIBUTES.items() for a in names if not hasattr(objects[n], a)]
    assert not missing


def test_only_one_module_uses_methods_of_spark_4() -> None:
    """Tests may use them everywhere, so none of their own would fail on 3.5."""
    root = Path(layoutopt.__file__).parent
    newer = (
        ".toArrow(",
        ".repartitionById(",
        ".try_cast(",
        ".metadataColumn(",
        "conf.getAll",
        "types import VariantType",
    )
    users = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if any(name in path.read_text(encoding="utf-8") for name in newer)
    }
    assert users == {"spark/core/versions.py"}


@pytest.mark.parametrize("version", [(3, 5), (4, 0), (4, 3)])
@pytest.mark.parametrize("count", [1, 3, 50])
def test_rows_get_to_their_partitions(
    spark: SparkSession, version: tuple[int, int], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if version > versions.spark_version():
        pytest.skip("an older version of Spark runs")
    monkeypatch.setattr(versions, "spark_version", lambda: version)
    rows = spark.range(200).withColumn("place", (F.col("id") % count).cast("int"))
    found = versions.repartition_by_id(rows, count, "place").withColumn("in", F.spark_partition_id()).collect()
    assert all(row["in"] == row["place"] for row in found)
    assert Counter(row["place"] for row in found) == Counter(number % count for number in range(200))


def test_rows_come_and_go_as_arrow(spark: SparkSession) -> None:
    rows = pa.table({"a": pa.array([1, None, 3], pa.int32()), "s": ["x", None, "z"]})
    frame = versions.to_dataframe(spark, rows)
    assert versions.to_arrow(frame).to_pylist() == rows.to_pylist()
    assert versions.to_arrow(frame.where("a > 5")).schema.names == ["a", "s"]
