"""VARIANT columns: the two binaries that a value is of, by which it is compared, since Spark won't hash a variant."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import VariantType

from layoutopt.model.types import quoted

_PARTS: Final = (("value", "getValue"), ("metadata", "getMetadata"))
"""Of a variant, as Arrow and Parquet have it: the names of its binaries, and Spark's own readers of them."""


def binaries(name: str) -> Column:
    """A variant column as ``struct<value:binary,metadata:binary>``.

    No function of Spark's SQL gives these, so Spark's own object is asked, whichever way a file stores the value.

    Args:
        name: of the column.
    """
    variant = F.col(quoted(name))
    parts = F.struct(*(_called(variant, method).alias(part) for part, method in _PARTS))
    return F.when(variant.isNotNull(), parts)


def with_binaries(rows: DataFrame) -> DataFrame:
    """Rows with their variants as :func:`binaries`, since Spark hands no column with a NULL variant to Arrow."""
    if not any(isinstance(field.dataType, VariantType) for field in rows.schema.fields):
        return rows
    numbered = rows.toDF(*(f"c{place}" for place in range(len(rows.columns))))  # a name may come twice
    chosen = [binaries(of.name) if isinstance(of.dataType, VariantType) else F.col(of.name) for of in numbered.schema]
    return numbered.select(*chosen).toDF(*rows.columns)


def _called(variant: Column, method: str) -> Column:
    spark = SparkSession.active()
    java: Any = spark._jvm
    made = java.org.apache.spark.sql.classic.ExpressionUtils
    nothing = java.scala.jdk.javaapi.CollectionConverters.asScala(java.java.util.ArrayList()).toSeq()
    binary = java.org.apache.spark.sql.types.DataTypes.BinaryType
    asked = java.org.apache.spark.sql.catalyst.expressions.objects.Invoke(
        made.expression(variant._jc), method, binary, nothing, nothing, True, True, True
    )
    found: Any = made.column(asked)
    return Column(found)
