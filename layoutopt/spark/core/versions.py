"""What versions of Spark name or make differently, on Python's side; ``Versions`` of ``ReadBlocks.java`` is Java's.

:data:`PRIVATE` and its neighbours list Spark's private interfaces that are used; a test looks each of them up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa

from layoutopt.evaluation.murmur3 import hash_words
from layoutopt.model.values.keys import text_sql
from layoutopt.spark.core.sessions import override_settings

if TYPE_CHECKING:  # plans without Spark import this module, too
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

# The session's settings for DataFrames of Arrow tables.
LOCAL_ROWS: Final = "spark.sql.execution.arrow.localRelationThreshold"
BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_SETTING: Final = Lock()
# Spark's private methods that are called from Python or found by reflection, by class, as Spark 4 names it. What the
# rule calls besides is checked when it is compiled.
PRIVATE: Final = {
    "org.apache.spark.sql.classic.Dataset": ("ofRows", "queryExecution"),
    "org.apache.spark.sql.classic.SparkSession": ("experimental", "sessionState", "sessionUUID"),
    "org.apache.spark.sql.internal.SessionState": (
        "adaptiveRulesHolder",
        "catalog",
        "conf",
        "functionRegistry",
        "sqlParser",
    ),
    "org.apache.spark.sql.execution.adaptive.AdaptiveRulesHolder": ("runtimeOptimizerRules",),
    "org.apache.spark.sql.ExperimentalMethods": ("extraOptimizations", "extraOptimizations_$eq"),
    "org.apache.spark.sql.catalyst.analysis.FunctionRegistry": ("builtin",),
    "org.apache.spark.sql.catalyst.analysis.SimpleFunctionRegistry": ("lookupFunctionBuilder",),
    "org.apache.spark.sql.catalyst.catalog.SessionCatalog": ("getRawTempView",),
    "org.apache.spark.sql.execution.QueryExecution": ("analyzed", "optimizedPlan"),
    "org.apache.spark.api.python.PythonUtils": ("toSeq", "toScalaMap"),
    "org.codehaus.janino.SimpleCompiler": ("cook", "setParentClassLoader"),
}
# Case classes that the rule makes by their only constructor.
ONE_CONSTRUCTOR: Final = (
    "org.apache.spark.sql.catalyst.catalog.CatalogTable",
    "org.apache.spark.sql.catalyst.plans.logical.LocalRelation",
    "org.apache.spark.sql.catalyst.plans.logical.UnresolvedWith",
    "org.apache.spark.sql.execution.LogicalRDD",
    "org.apache.spark.sql.execution.datasources.LogicalRelation",
)
# PySpark's private attributes, by public class.
PRIVATE_ATTRIBUTES: Final = {
    "SparkSession": ("_activeSession", "_jsparkSession", "_jvm"),
    "SparkContext": ("_active_spark_context", "_ensure_initialized", "_gateway", "_jsc"),
    "DataFrame": ("_jdf",),
    "Column": ("_jc",),
}


def spark_version() -> tuple[int, int]:
    """Return the version of PySpark: (4, 3)."""
    import pyspark

    major, minor = pyspark.__version__.split(".")[:2]
    return int(major), int(minor)


def variant_type() -> type[DataType]:
    """Return Spark's VARIANT; on Spark 3.5, a type that no column has."""
    from pyspark.sql import types

    return types.UserDefinedType if is_spark_3() else types.VariantType


def is_spark_3() -> bool:
    """Whether this is Spark 3.5: one kind of session, Scala 2.12, no ANSI mode by default."""
    return spark_version() < (4, 0)


def adapt_java(source: str) -> str:
    """Return Java code for Spark 4 with the names of the version that is there."""
    if not is_spark_3():
        return source
    return source.replace("scala.collection.immutable.Seq", "scala.collection.Seq").replace(
        "org.apache.spark.sql.classic.", "org.apache.spark.sql."
    )


def java_class(spark: SparkSession, name: str) -> Any:
    """Return a Java class by its full name in Spark 4.

    By attributes, Java would search all of its archives for each part of the name.
    """
    jvm: Any = spark._jvm
    return getattr(jvm, adapt_java(name))


def has_function_scopes() -> bool:
    """Whether identifiers of functions tell Spark's own from those of the session, as since 4.2."""
    return spark_version() >= (4, 2)


def function_identifier(spark: SparkSession, name: str, scope: Literal["session", "builtin"] = "session") -> Any:
    """Return the identifier of a function of the session, or of Spark's own, in a session's registries."""
    identifier = java_class(spark, "org.apache.spark.sql.catalyst.FunctionIdentifier")
    if not has_function_scopes():
        return identifier(name.lower())
    some = java_class(spark, "scala.Option").apply
    return identifier(name, some(scope), some("system"))


def to_arrow(frame: DataFrame) -> pa.Table:
    """Return the rows of a DataFrame."""
    if not is_spark_3():
        return frame.toArrow()
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(frame.schema)
    collecting: Any = frame
    batches = collecting._collect_as_arrow()
    return pa.Table.from_batches(batches, batches[0].schema if batches else schema).cast(schema)


def to_dataframe(spark: SparkSession, rows: pa.Table, schema: StructType | None = None) -> DataFrame:
    """Return rows as a DataFrame, of a schema, whose partitions are as long as a batch in the session's settings."""
    if not is_spark_3():
        arguments: tuple[Any, ...] = (rows,) if schema is None else (rows, schema)
        from pyspark.sql import SparkSession

        return SparkSession.createDataFrame(spark, *arguments)
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    types: Any = schema or from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
    rows = rows.cast(to_arrow_schema(types))
    longest = int(spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") or 0)
    batches = rows.to_batches(longest or None) or [pa.RecordBatch.from_pylist([], rows.schema)]
    jvm: Any = spark._jvm
    python: Any = getattr(jvm, "org.apache.spark.sql.api.python.PythonSQLUtils")
    send: Any = spark.sparkContext._serialize_to_jvm
    sent = send(batches, ArrowStreamSerializer(), python.readArrowStreamFromFile, lambda: jvm.ArrowIteratorServer())
    java: Any = spark._jsparkSession
    return DataFrame(python.toDataFrame(sent, types.json(), java), spark)


def to_arrow_rdd(spark: SparkSession, rows: pa.Table, batch_rows: int, schema: StructType | None = None) -> DataFrame:
    """Return rows as a DataFrame of Arrow batches of so many rows, one for each task.

    By default, up to 48 MB become literal rows of the plan, which the optimiser visits many times.
    """
    settings = {LOCAL_ROWS: "0b", BATCH_ROWS: str(batch_rows)}
    with _SETTING, override_settings(spark, settings), keep_active_session(spark):
        return to_dataframe(spark, rows, schema)


@contextmanager
def keep_active_session(spark: SparkSession) -> Iterator[None]:
    """Restore the thread's active session, which `createDataFrame` replaces."""
    from pyspark.sql import SparkSession

    sessions = java_class(spark, "org.apache.spark.sql.classic.SparkSession")
    active, in_java = SparkSession._activeSession, sessions.getActiveSession()
    try:
        yield
    finally:
        SparkSession._activeSession = active
        if in_java.isDefined():
            sessions.setActiveSession(in_java.get())
        else:
            sessions.clearActiveSession()


def file_metadata(rows: DataFrame) -> Column:
    """Return the metadata of each row's file; on Spark 3.5, no column may be called so."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.col("_metadata") if is_spark_3() else rows.metadataColumn("_metadata")


def try_cast(text: str | None, type: DataType) -> Column:
    """Return a text as a value of a type; NULL if it is none."""
    from pyspark.sql import functions as F  # noqa: N812

    if is_spark_3():
        return F.expr(f"try_cast({'NULL' if text is None else text_sql(text)} AS {type.simpleString()})")
    return F.lit(text).try_cast(type)


def repartition_by_id(rows: DataFrame, count: int, column: str) -> DataFrame:
    """Return the rows in partitions 0 .. ``count`` - 1, each row in that with the number in its column."""
    from pyspark.sql import functions as F  # noqa: N812

    if spark_version() >= (4, 1):
        return rows.repartitionById(count, column)
    keys = ", ".join(map(str, _keys_of_partitions(count)))
    return rows.repartition(count, F.expr(f"element_at(array({keys}), int({column}) + 1)"))


@lru_cache(maxsize=16)
def _keys_of_partitions(count: int) -> tuple[int, ...]:
    """Return for each of some partitions an int that Spark's hash partitioning puts into it.

    >>> [int(hash_words([np.array([key], np.uint32)]).view(np.int32)[0]) % 3 for key in _keys_of_partitions(3)]
    [0, 1, 2]
    """
    keys = np.zeros(count, np.int32)
    found = np.zeros(count, np.bool_)
    start = 0
    while not found.all():
        tried = np.arange(start, start + 16 * count, dtype=np.int32)
        partitions = hash_words([tried.view(np.uint32)]).view(np.int32) % count
        keys[partitions], found[partitions] = tried, True
        start += len(tried)
    return tuple(keys.tolist())
