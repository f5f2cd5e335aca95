"""Partition values between Spark and Python: out as plain values, in as literals of the column's own type.

A value that Spark gave is never a text that somebody reads again, nor a moment of Python's, which knows neither the
session's time zone nor both times that clocks show twice, nor years before 1: see
:mod:`layoutopt.catalog.partition_names`.
"""

from __future__ import annotations

import json
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

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.errors import SettingError
from layoutopt.model.types import quoted

_NO_ZONE: Final = "timestamp_ntz'1970-01-01 00:00:00'"
# What stands for NULL: in the names of Hive's folders, and in our own keys. Of other types no value is called "null".
_NULLS: Final = frozenset({"__HIVE_DEFAULT_PARTITION__", "__null__"})


def plain_column(value: SparkColumn, type: DataType) -> SparkColumn:
    """A column of values as what Python takes as plain values."""
    if isinstance(type, DateType):
        return F.unix_date(value)
    if isinstance(type, TimestampType):
        return F.unix_micros(value)
    if isinstance(type, TimestampNTZType):
        return _microseconds(value)
    return value


def _microseconds(local: SparkColumn) -> SparkColumn:
    """Microseconds of local times since 1970, from their parts: Spark's ``timestampdiff`` takes the session's zone."""
    days, seconds = F.unix_date(local.cast("date")).cast("bigint"), F.extract(F.lit("SECOND"), local)
    minutes = days * 1440 + F.hour(local) * 60 + F.minute(local)
    return minutes * 60_000_000 + (seconds * 1_000_000).cast("bigint")


def literal(value: PlainValue, type: DataType) -> SparkColumn:
    """A plain value as a literal of its column's type; the optimiser folds it, so that files can be left out by it."""
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
    """The condition that a row lies in one of some partitions; never NULL."""
    column, type = F.col(quoted(partition_by)), df.schema[partition_by].dataType
    known = [literal(value, type) for value in values if value is not None]
    tests = [column.isNotNull() & column.isin(known)] if known else []
    tests += [column.isNull()] if len(known) < len(values) else []
    return reduce(SparkColumn.__or__, tests, F.lit(False)) if len(tests) != 1 else tests[0]


def of_partitions(df: DataFrame, partition_by: str, values: Sequence[PlainValue]) -> DataFrame:
    """The rows of some partitions."""
    return df.where(is_one_of(df, partition_by, values))


def partition_values(df: DataFrame, partition_by: str | None, asked: Sequence[object]) -> tuple[PlainValue, ...]:
    """The partition values that ``--partition`` asks for: ``o_year=1994``, or just ``1994``.

    NULL is ``o_year=__null__`` (or Hive's name for it; ``o_year=null`` where no value is called so, in all columns but
    texts). ``kind:="..."`` has a text between quotes, as JSON has it, for those that would be read as something else.

    Args:
        df: the source.
        partition_by: its partition column.
        asked: texts; anything else stands for what it is as a text, None for NULL.

    Raises:
        SettingError: the plan has no partitions, the text names another column, or is no value of its type.
    """
    if partition_by is None:
        raise SettingError(f"the plan has no partitions, but {asked[0]!r} was asked for; leave --partition out")
    type = df.schema[partition_by].dataType
    texts = [_text_asked(text, partition_by, type) for text in asked]
    return tuple(dict.fromkeys(_typed(df, text, partition_by, type) for text in texts))


def asked_for(df: DataFrame, partition_by: str, asked: Sequence[object]) -> SparkColumn:
    """The rows of the partitions that :func:`partition_values` reads from the same texts: Spark's own reading of them.

    Raises:
        SettingError: as there.
    """
    column, type = F.col(quoted(partition_by)), df.schema[partition_by].dataType
    texts = [_text_asked(text, partition_by, type) for text in asked]
    return reduce(SparkColumn.__or__, (column.eqNullSafe(F.lit(text).try_cast(type)) for text in texts), F.lit(False))


def _typed(df: DataFrame, text: str | None, partition_by: str, type: DataType) -> PlainValue:
    if text is None or isinstance(type, StringType):
        return text
    row = df.sparkSession.range(1).select(plain_column(F.lit(text).try_cast(type), type).alias("value")).first()
    value: PlainValue = None if row is None else row["value"]
    if value is None:
        raise SettingError(
            f"{text!r} is no {type.simpleString()}; write --partition {partition_by}=VALUE with a value of that type"
        )
    return value


def _text_asked(asked: object, partition_by: str, type: DataType) -> str | None:
    """The text of one value; None for NULL."""
    if not isinstance(asked, str):
        return None if asked is None else str(asked)
    name, operator, value = _parts(asked, partition_by)
    if operator == ":=":
        return _quoted_text(value, asked)
    if operator == "=" and name.strip().lower() != partition_by.lower():
        raise SettingError(f"the table is partitioned by {partition_by}, not {name!r}; write {partition_by}={value}")
    is_null = value in _NULLS or (value.lower() == "null" and not isinstance(type, StringType))
    return None if is_null else value


def _parts(asked: str, partition_by: str) -> tuple[str, str, str]:
    """Name, operator and value; the first two empty where a value stands alone. A name may have an ``=``, too."""
    for operator in ("=", ":="):
        start = f"{partition_by}{operator}"
        if asked[: len(start)].lower() == start.lower():
            return partition_by, operator, asked[len(start) :]
    name, equals, value = asked.partition("=")
    return (name, equals, value) if equals else ("", "", asked)


def _quoted_text(value: str, asked: str) -> str | None:
    try:
        found = json.loads(value)
    except ValueError:
        found = False
    if found is None or isinstance(found, str):
        return found
    raise SettingError(f"--partition {asked!r} has no text in quotes behind :=, nor null; write it as JSON has it")


def partition_column(df: DataFrame, partition_by: str | None) -> SparkColumn:
    """The plain value of each row's partition; NULL in a table without partitions."""
    if partition_by is None:
        return F.lit(None).cast("int")
    return plain_column(F.col(quoted(partition_by)), df.schema[partition_by].dataType)


def plain_type(type: DataType) -> DataType:
    """The type of :func:`plain_column`."""
    if isinstance(type, DateType):
        return IntegerType()
    return LongType() if isinstance(type, TimestampType | TimestampNTZType) else type


def null_first(value: PlainValue) -> tuple[bool, PlainValue]:
    """The order of the partitions of a table, as a key to sort by."""
    return value is not None, value if value is not None else 0
