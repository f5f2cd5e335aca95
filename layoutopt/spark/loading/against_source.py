"""Whether a table holds what its source has: rows, column checksums and whole rows of every partition value.

Both sides are grouped by the partition column as it stands in the files, and joined in Spark: no value is named, parsed
or compared outside it, so that what a load did to names can't hide what it did to rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, TimestampType

from layoutopt.errors import SchemaError
from layoutopt.inspect.verify import MOST_PROBLEMS, Problem, SourceCheck
from layoutopt.model.predicates import TRUE, Filter
from layoutopt.model.schema import Schema
from layoutopt.model.types import quoted
from layoutopt.scan.reads import TableRead
from layoutopt.scan.table import Table
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.sessions import check_settings
from layoutopt.spark.core.source import checksum_column, conformed, schema_of
from layoutopt.spark.loading.same_rows import sum_of_rows
from layoutopt.spark.session.read import read_to_dataframe
from layoutopt.sql.scans import TableScan

_SHOWN = 80  # characters of a partition value
_MOST_NAMES = 5  # columns of a sentence


@dataclass(frozen=True)
class _Sides:
    """One partition value on both sides; a side without it has None rows.

    Attributes:
        value: as text; None is NULL, or that the sides agree.
        source, table: rows.
        columns: the places of the columns whose checksums differ.
        rows_agree: whether the sums over whole rows do.
    """

    value: str | None
    source: int | None
    table: int | None
    columns: Sequence[int]
    rows_agree: bool


def compare_with_source(rows: DataFrame, table: Table, source: str) -> SourceCheck:
    """Compare all rows of a table, at one snapshot, with those of a source.

    Args:
        rows: of the source, as :func:`layoutopt.spark.core.source.open_source` has them.
        table: at one snapshot.
        source: names the source.

    Raises:
        SourceError: a file of the source is missing or damaged.
        SchemaError: the source has another schema than the table.
        SettingError: the session's settings are not those under which the table was loaded.
    """
    for plan in table.catalog.plans.values():
        check_settings(rows.sparkSession, plan.settings, "the table")
    _check_schema(schema_of(rows), table.schema, source)
    rows, by = conformed(rows, table.schema, "the table"), table.catalog.snapshot.partition_by
    with translate_spark_errors(repr(source)):
        counted = rows.count()
        sides = list(map(_sides, _joined(rows, _all_rows(rows.sparkSession, table), by).collect()))
    found = [problem for side in sides for problem in _problems(side, by, table.schema, source)]
    in_source, in_table = sum(side.source or 0 for side in sides), sum(side.table or 0 for side in sides)
    # What is joined has every row, unless it was changed meanwhile: counted without any grouping.
    for what, compared, has in (("the source", in_source, counted), ("the table", in_table, table.rows)):
        if compared != has:
            message = (
                f"of the {has:,} rows of {what} {compared:,} were compared; see that nobody changes it, and repeat"
            )
            found.insert(0, Problem("source-total", source, message))
    partitions = sum(side.source is not None for side in sides)
    return SourceCheck(source, counted, partitions, in_table, len(found), tuple(found[:MOST_PROBLEMS]))


def _check_schema(found: Schema, wanted: Schema, source: str) -> None:
    columns = [(column, found.get(column.name)) for column in wanted.columns]
    wrong = [f"it lacks {column.name!r}" for column, has in columns if has is None]
    wrong += [f"{c.name!r} is {has.type} and not {c.type}" for c, has in columns if has and has.type != c.type]
    wrong += [f"{column.name!r} is not in the table" for column in found.columns if wanted.get(column.name) is None]
    if wrong:
        listed = ", ".join(wrong[:_MOST_NAMES]) + (", ..." if len(wrong) > _MOST_NAMES else "")
        raise SchemaError(
            f"the source {source!r} has another schema than the table ({listed}); give the one that it was loaded from"
        )


def _all_rows(spark: SparkSession, table: Table) -> DataFrame:
    """Everything that the table holds; nothing is skipped."""
    scan = TableScan(table.name, table.name, table.schema.names, Filter.of(TRUE))
    return read_to_dataframe(spark, TableRead(table, scan, table.prune(TRUE, scan.columns)))


def _joined(source: DataFrame, table: DataFrame, by: str | None) -> DataFrame:
    """A row for each partition value of either side, in order: what :class:`_Sides` has."""
    both = _groups(source, by, "source").join(
        _groups(table, by, "table"), F.col("_w_source_key").eqNullSafe(F.col("_w_table_key")), "full_outer"
    )
    places = F.sequence(F.lit(0), F.lit(len(source.columns) - 1))
    sums, others = F.col("_w_source_sums"), F.col("_w_table_sums")
    columns = F.filter(places, lambda i: F.get(sums, i) != F.get(others, i))
    key = F.coalesce("_w_source_key", "_w_table_key")
    type = source.schema[by].dataType if by is not None else None
    return both.orderBy(key.asc_nulls_first()).select(
        _text(key, type).alias("value"),
        F.col("_w_source_rows").alias("source"),
        F.col("_w_table_rows").alias("table"),
        columns.alias("columns"),
        F.col("_w_source_whole").eqNullSafe(F.col("_w_table_whole")).alias("rows_agree"),
    )


def _groups(rows: DataFrame, by: str | None, side: str) -> DataFrame:
    """Rows, column checksums and the sum over whole rows of every partition value."""
    key = F.lit(0) if by is None else F.col(quoted(by))
    fields = rows.schema.fields
    return rows.groupBy(key.alias(f"_w_{side}_key")).agg(
        F.count(F.lit(1)).alias(f"_w_{side}_rows"),
        F.array(*(checksum_column(field.name, field.dataType) for field in fields)).alias(f"_w_{side}_sums"),
        sum_of_rows(fields).alias(f"_w_{side}_whole"),
    )


def _text(key: SparkColumn, type: DataType | None) -> SparkColumn:
    """A partition value as it is shown; instants with their offset, since clocks show some times twice."""
    text = key.cast("string")
    if isinstance(type, TimestampType):
        text = F.concat(text, F.lit(" "), F.date_format(key, "xxx"))
    return F.substring(text, 1, _SHOWN)


def _sides(row: Row) -> _Sides:
    return _Sides(row["value"], row["source"], row["table"], row["columns"] or (), row["rows_agree"])


def _problems(side: _Sides, by: str | None, schema: Schema, source: str) -> Iterator[Problem]:
    # repr: a value of somebody else's can't give a terminal commands, and NULL is not 'NULL'
    what = "the table" if by is None else f"partition {by} = {'NULL' if side.value is None else repr(side.value)}"
    if side.table is None:
        message = f"{what} lacks all {side.source:,} rows of the source; `layoutopt load` without --partition adds them"
        yield Problem("source-missing", source, message)
    elif side.source is None:
        message = (
            f"{what} has {side.table:,} rows and the source none; as it should be if the source was moved on, else "
            "load it again from a source that has it"
        )
        yield Problem("source-extra", source, message)
    elif side.source != side.table:
        message = f"{what} has {side.table:,} rows and the source {side.source:,}; load it again with --replace"
        yield Problem("source-differs", source, message)
    elif side.columns:
        names = ", ".join(repr(schema.names[i]) for i in side.columns[:_MOST_NAMES])
        more = f" and {len(side.columns) - _MOST_NAMES} more" if len(side.columns) > _MOST_NAMES else ""
        message = f"{what} has other values of {names}{more} than the source; load it again with --replace"
        yield Problem("source-differs", source, message)
    elif not side.rows_agree:
        agree = "though the checksums of columns agree, as where values change places"
        message = f"{what} has other rows than the source {agree}; load it again with --replace"
        yield Problem("source-differs", source, message)
