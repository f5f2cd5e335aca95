"""Whether a partition of a table holds the rows of a source: by counts and column checksums, then by whole rows.

Column checksums alone can't see two rows that swapped a value; so rows that agree in them are hashed as wholes too.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField

from layoutopt.catalog.entries import content_of_entries
from layoutopt.catalog.snapshot import PartitionEntry
from layoutopt.errors import SchemaError
from layoutopt.model.predicates import TRUE, Filter
from layoutopt.model.types import quoted
from layoutopt.scan.reads import TableRead
from layoutopt.scan.table import Table
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.source import conformed, hashable, measure_content
from layoutopt.spark.session.read import read_to_dataframe
from layoutopt.sql.scans import TableScan


def holds_same_rows(spark: SparkSession, rows: DataFrame, table: Table, entries: Sequence[PartitionEntry]) -> bool:
    """Whether a partition's rows are these, in any order.

    Args:
        spark: the session.
        rows: of the source.
        table: at one snapshot.
        entries: the partition's there.
    """
    held = content_of_entries(entries)
    try:
        source = conformed(rows, table.catalog.plans[entries[-1].plan].schema)
    except SchemaError:
        return False
    found = measure_content(source, "the source")
    if found.rows != held.rows or any(found.sums.get(name, sum) != sum for name, sum in held.sums.items()):
        return False
    there = rows_of_entries(spark, table, entries).select(*[quoted(name) for name in source.columns])
    return _sum_of_rows(source) == _sum_of_rows(there)


def rows_of_entries(spark: SparkSession, table: Table, entries: Sequence[PartitionEntry]) -> DataFrame:
    """The rows that some entries of a table's partitions have."""
    scan = TableScan(table.name, table.name, table.schema.names, Filter.of(TRUE))
    return read_to_dataframe(spark, TableRead(table, scan, table.all_rows_of(entries, scan.columns)))


def sum_of_rows(fields: Sequence[StructField]) -> SparkColumn:
    """The sum of hashes of whole rows. NULLs leave a hash as it is, so where they stand is hashed too."""
    parts: list[SparkColumn] = []
    for field in fields:
        parts += [F.col(quoted(field.name)).isNull(), hashable(field.name, field.dataType)]
    return F.sum(F.xxhash64(*parts).cast("decimal(38,0)"))


def _sum_of_rows(rows: DataFrame) -> int:
    with translate_spark_errors("the rows of a partition"):
        row = rows.agg(sum_of_rows(rows.schema.fields).alias("sum")).first()
    return 0 if row is None or row["sum"] is None else int(row["sum"])
