"""Convert partition values between Spark and Python: to plain values, and to literals of the column's own type.

A value from Spark is never formatted and parsed again, and never a Python datetime, which knows neither the session's
time zone nor both times that clocks show twice, nor years before 1: see :mod:`layoutopt.catalog.partition_names`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from layoutopt.catalog.partition_names import PlainValue, no_partitions, parse_request, wrong_partition_value
from layoutopt.model.types import quote_name
from layoutopt.spark.core.versions import try_cast

_NO_ZONE: Final = "timestamp_ntz'1970-01-01 00:00:00'"


def plain_column(value: SparkColumn, type: DataType) -> SparkColumn:
    """Return a column as plain values."""
    if isinstance(type, DateType):
        return F.unix_date(value)
    if isinstance(type, TimestampType):
        return F.unix_micros(value)
    if isinstance(type, TimestampNTZType):
        return _local_microseconds(value)
    return value


def _local_microseconds(local: SparkColumn) -> SparkColumn:
    """Return microseconds since 1970 from a time's parts, since ``timestampdiff`` applies the session's zone."""
    days, seconds = F.unix_date(local.cast("date")).cast("bigint"), F.extract(F.lit("SECOND"), local)
    minutes = days * 1440 + F.hour(local) * 60 + F.minute(local)
    return minutes * 60_000_000 + (seconds * 1_000_000).cast("bigint")


def to_literal(value: PlainValue, type: DataType) -> SparkColumn:
    """Return a plain value as a literal of its column's type, which the optimiser folds to skip files."""
    if value is None or isinstance(type, StringType | DecimalType):
        return F.lit(value).cast(type)
    if isinstance(type, DateType):
        return F.date_from_unix_date(F.lit(value))
    if isinstance(type, TimestampType):
        return F.timestamp_micros(F.lit(value).cast("bigint"))
    if isinstance(type, TimestampNTZType):
        return F.timestamp_add("MICROSECOND", F.lit(value).cast("bigint"), F.expr(_NO_ZONE))
    return F.lit(value).cast(type)


def is_one_of(df: DataFrame, partition_by: str, values: Sequence[PlainValue]) -> SparkColumn:
    """Return the condition that a row is in one of some partitions; never NULL."""
    column, type = F.col(quote_name(partition_by)), df.schema[partition_by].dataType
    known = [to_literal(value, type) for value in values if value is not None]
    tests = [column.isNotNull() & column.isin(known)] if known else []
    tests += [column.isNull()] if len(known) < len(values) else []
    return reduce(SparkColumn.__or__, tests, F.lit(False)) if len(tests) != 1 else tests[0]


def filter_partitions(df: DataFrame, partition_by: str, values: Sequence[PlainValue]) -> DataFrame:
    """Return the rows of some partitions."""
    return df.where(is_one_of(df, partition_by, values))


def parse_partition_values(
    df: DataFrame, partition_by: str | None, requests: Sequence[object]
) -> tuple[PlainValue, ...]:
    """Return the values that ``--partition`` requests: ``o_year=1994``, or just ``1994``.

    Raises:
        SettingError: as :func:`~layoutopt.catalog.partition_names.parse_request`, or the text is no value of the
            column's type.
    """
    if partition_by is None:
        raise no_partitions(requests[0])
    type = df.schema[partition_by].dataType
    texts = [parse_request(request, partition_by, isinstance(type, StringType)) for request in requests]
    return tuple(dict.fromkeys(_cast_text(df, text, partition_by, type) for text in texts))


def match_partition_texts(df: DataFrame, partition_by: str, requests: Sequence[object]) -> SparkColumn:
    """Return the condition for the partitions of :func:`parse_partition_values`, with the texts parsed by Spark.

    Raises:
        SettingError: as :func:`~layoutopt.catalog.partition_names.parse_request`.
    """
    column, type = F.col(quote_name(partition_by)), df.schema[partition_by].dataType
    texts = [parse_request(request, partition_by, isinstance(type, StringType)) for request in requests]
    return reduce(SparkColumn.__or__, (column.eqNullSafe(try_cast(text, type)) for text in texts), F.lit(False))


def _cast_text(df: DataFrame, text: str | None, partition_by: str, type: DataType) -> PlainValue:
    if text is None or isinstance(type, StringType):
        return text
    row = df.sparkSession.range(1).select(plain_column(try_cast(text, type), type).alias("value")).first()
    value: PlainValue = None if row is None else row["value"]
    if value is None:
        raise wrong_partition_value(text, type.simpleString(), f"--partition {partition_by}=VALUE")
    return value


def partition_column(df: DataFrame, partition_by: str | None) -> SparkColumn:
    """Return the plain value of each row's partition; NULL in a table without partitions."""
    if partition_by is None:
        return F.lit(None).cast("int")
    return plain_column(F.col(quote_name(partition_by)), df.schema[partition_by].dataType)


def plain_type(type: DataType) -> DataType:
    """Return the type of :func:`plain_column`."""
    if isinstance(type, DateType):
        return IntegerType()
    return LongType() if isinstance(type, TimestampType | TimestampNTZType) else type
