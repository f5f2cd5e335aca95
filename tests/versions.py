"""Which version of Spark a test needs, where an older one lacks what the test is about."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, cast

import pyarrow as pa
import pytest


def has_spark(least: str) -> bool:
    """Whether PySpark is at least of a version: "4.1"."""
    return tuple(map(int, version("pyspark").split(".")[:2])) >= tuple(map(int, least.split(".")))


def needs_spark(least: str, what: str) -> pytest.MarkDecorator:
    """The mark of a test that older versions skip, since they lack something."""
    return pytest.mark.skipif(not has_spark(least), reason=f"Spark before {least} lacks {what}")


def add_newer_methods() -> None:
    """Give Spark 3.5 the methods by which tests pass Arrow tables; the product does not use them itself."""
    if has_spark("4.0"):
        return
    from pyspark.sql import DataFrame, SparkSession

    from layoutopt.spark.core.versions import to_arrow, to_dataframe

    create: Any = SparkSession.createDataFrame

    def create_dataframe(self: SparkSession, data: Any, schema: Any = None, *rest: Any, **others: Any) -> DataFrame:
        if not isinstance(data, pa.Table):
            return cast("DataFrame", create(self, data, schema, *rest, **others))
        return to_dataframe(self, data, schema)

    setattr(SparkSession, "createDataFrame", create_dataframe)  # noqa: B010 - it is another type
    setattr(DataFrame, "toArrow", to_arrow)  # noqa: B010 - Spark 3.5 has none
