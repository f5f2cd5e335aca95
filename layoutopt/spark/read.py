"""Reading surviving row groups with Spark: its native Parquet reader where one layout is read, Arrow where rows are put
together from several.

Spark skips row groups by a filter on ``_block`` that it pushes to Parquet. Pushdown loses NaN rows of float columns
(Spark compares with min/max, which leave NaN out), so float columns, and structs that hold some, are read through an
identity that Spark can't push through; every other filter of the query may be pushed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from layoutopt.catalog.filesystem import TableFiles
from layoutopt.errors import QueryError
from layoutopt.model.schema import Column as SchemaColumn
from layoutopt.model.schema import Schema
from layoutopt.scan.read import BLOCK, ROWS_ONLY, SegmentRead, read_segments
from layoutopt.scan.table import Scan, Table, TableRead
from layoutopt.spark.session import session_settings
from layoutopt.workload.splice import splice_views

IN_THRESHOLD = "spark.sql.parquet.pushdown.inFilterThreshold"
_FEW_RUNS = 16  # of neighbouring blocks: up to here ranges are quicker to check than a list of numbers
# A file that vacuum has deleted since must never read as empty, whatever the session says of other sources.
_STRICT = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}


def scan_to_dataframe(spark: SparkSession, scan: Scan) -> DataFrame:
    """The answer to a scan's text as a DataFrame: Spark runs the text, each mention of the table reads what survives.

    Features are used only where the session's settings are those under which they were measured.

    Raises:
        QueryError: the text's mentions of the table can't be told apart.
        pyspark.errors.PySparkException: Spark can't run the text.
    """
    read = scan.table.scan_under(scan.sql, session_settings(spark))
    views: dict[tuple[int, int], str] = {}
    try:
        for one in read.reads:
            if one.scan.span is None:
                raise QueryError(f"a mention of {scan.table.name!r} can't be found in the text; write its name plainly")
            views[one.scan.span] = f"_layoutopt_{uuid.uuid4().hex}"
            read_to_dataframe(spark, one).createTempView(views[one.scan.span])
        return spark.sql(splice_views(scan.sql, views))
    finally:
        # spark.sql() has resolved the views: the DataFrame needs their names no more.
        for view in views.values():
            spark.catalog.dropTempView(view)


def spark_sql(spark: SparkSession, table: Table, sql: str) -> DataFrame:
    """The answer to a SQL text over a table, as a DataFrame; raises as :func:`scan_to_dataframe`."""
    return scan_to_dataframe(spark, table.scan(sql))


def read_to_dataframe(spark: SparkSession, read: TableRead) -> DataFrame:
    """The rows that survive, under the table's whole schema, so that ``*`` means the same as on the source.

    The native reader leaves unread columns to Spark, which prunes them; elsewhere they are NULL.
    """
    if all(len(pruned.source.plan.scheme.layouts) == 1 for pruned in read.pruned):
        read = replace(read, scan=replace(read.scan, columns=read.table.schema.names))
    segments = read.segments
    if not read.columns:
        return _under_schema(_rows_only(spark, segments), read.table.schema)
    if not segments:
        return spark.createDataFrame([], schema_ddl(read.table.schema.columns))
    if any(len(segment.layouts) > 1 for segment in segments):
        rows = _by_arrow(spark, read.table.catalog.files.root, segments, read.columns)
    else:
        rows = _by_native_reader(spark, read)
    return _under_schema(rows, read.table.schema)


def _under_schema(rows: DataFrame, schema: Schema) -> DataFrame:
    """All columns of a schema, in its order; NULL where the rows lack one (which nothing reads)."""
    present = set(rows.columns)
    return rows.select(
        *[
            F.col(_quoted(column.name)) if column.name in present else F.lit(None).cast(column.type).alias(column.name)
            for column in schema.columns
        ]
    )


def _rows_only(spark: SparkSession, segments: Sequence[SegmentRead]) -> DataFrame:
    """As many rows as survive, without a column of the table: what ``count(*)`` needs."""
    rows = sum(sum(file.rows) for segment in segments for file in segment.layouts[0].files)
    return spark.range(rows).select(F.lit(None).cast("tinyint").alias(ROWS_ONLY))


def _by_native_reader(spark: SparkSession, read: TableRead) -> DataFrame:
    files = read.table.catalog.files
    paths: list[str] = []
    blocks: list[int] = []
    complete = True
    for pruned in read.pruned:
        of = pruned.source.blocks
        opened = sorted(set(of.file[pruned.read].tolist()))
        paths += [files.full_path(of.files[index]) for index in opened]
        blocks += of.block_id[pruned.read].tolist()
        complete &= all(bool(pruned.read[of.file == index].all()) for index in opened)
    rows = (
        spark.read.schema(schema_ddl((*read.columns, SchemaColumn(BLOCK, "bigint")))).options(**_STRICT).parquet(*paths)
    )
    if not complete:
        _raise_threshold(spark, len(blocks))
        rows = rows.where(_is_one_of(sorted(blocks)))
    return rows.select(*[_unpushable(column) for column in read.columns])


def _is_one_of(blocks: list[int]) -> Column:
    """That a row is of one of these blocks (ascending), as one text: a list would travel to Spark number by number."""
    numbers = np.array(blocks, dtype=np.int64)
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
    if len(runs) > _FEW_RUNS:
        return F.expr(f"{BLOCK} IN ({', '.join(map(str, blocks))})")
    ranges = (f"{BLOCK} BETWEEN {run[0]} AND {run[-1]}" if len(run) > 1 else f"{BLOCK} = {run[0]}" for run in runs)
    return F.expr(" OR ".join(ranges))


def _raise_threshold(spark: SparkSession, blocks: int) -> None:
    """Lets ``_block IN (...)`` be pushed whatever its length."""
    if int(str(spark.conf.get(IN_THRESHOLD))) < blocks:
        spark.conf.set(IN_THRESHOLD, str(blocks))


def _unpushable(column: SchemaColumn) -> Column:
    """The column; where it holds floats, in an expression that is the column itself, but is not pushed to Parquet."""
    value = F.col(_quoted(column.name))
    if column.type in ("float", "double"):
        return F.nanvl(value, value).alias(column.name)
    if "struct<" in column.type and ("float" in column.type or "double" in column.type):
        return F.when(value.isNotNull(), value).alias(column.name)
    return value


def _by_arrow(
    spark: SparkSession, root: str, segments: Sequence[SegmentRead], columns: Sequence[SchemaColumn]
) -> DataFrame:
    """One task a segment puts rows together by tid; only a segment's row groups and the table's path travel."""
    numbers = spark.range(len(segments), numPartitions=min(len(segments), 4 * spark.sparkContext.defaultParallelism))
    return numbers.mapInArrow(_segment_reader(root, list(segments), list(columns)), schema_ddl(columns))


def _segment_reader(
    root: str, segments: list[SegmentRead], columns: list[SchemaColumn]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            chosen = [segments[number] for number in batch.column(0).to_pylist()]
            yield from read_segments(TableFiles(root), chosen, columns)

    return read


def schema_ddl(columns: Sequence[SchemaColumn]) -> str:
    """Columns as Spark's schemas are written."""
    return ", ".join(f"{_quoted(column.name)} {column.type}" for column in columns)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
