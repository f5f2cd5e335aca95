"""The source of a plan or a load: opening it, checking it against a plan, and summing what it holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from layoutopt.catalog.checks import Content
from layoutopt.errors import SchemaError, SourceError
from layoutopt.model.columns import RESERVED
from layoutopt.model.schema import Column, Schema
from layoutopt.model.types import is_padded, quoted
from layoutopt.sources.opening import open_snapshot
from layoutopt.sources.other_formats import check_is_no_table
from layoutopt.sources.snapshot import source_name
from layoutopt.spark.core.failures import broken_file, translate_spark_errors
from layoutopt.spark.core.parquet_reader import parquet_reader
from layoutopt.spark.core.patterns import is_pattern
from layoutopt.spark.core.table_sources import snapshot_rows
from layoutopt.spark.core.variants import binaries
from layoutopt.sql.folder_columns import is_shown
from layoutopt.writer.checksum import is_hashable

ROWS = "_w_rows"  # no source has names that begin so
RESERVED_PREFIXES = ("_w",)
_ATOMIC = (NumericType, StringType, BinaryType, BooleanType, DateType, TimestampType, TimestampNTZType)
_NO_PARTITION = (FloatType, DoubleType, BinaryType, ArrayType, MapType, StructType, VariantType)
_CHAR_METADATA = "__CHAR_VARCHAR_TYPE_STRING"  # what Spark keeps of the type that a text was declared as


def open_source(spark: SparkSession, source: DataFrame | str | Path, *, merged: bool = True) -> DataFrame:
    """The rows of a source: a DataFrame as it is, a table of another format, or the Parquet files under a path.

    Args:
        spark: the session.
        source: rows, a path to Parquet (Hive-style folders too), ``delta:PATH`` or ``iceberg:CATALOG/NAMESPACE.TABLE``,
            these perhaps with ``@VERSION``.
        merged: a column that only some files have is a column, NULL elsewhere. Without, Spark believes one file's
            schema and reads no other's new columns.

    Raises:
        SourceError: the path or table does not exist or can't be understood, or a file is truncated or no Parquet.
        SettingError: the library of the table's format is not installed.
        SchemaError: a column's name is reserved or given twice, or its type can't be stored, or is CHAR.
    """
    name = source_name(source)
    if isinstance(source, DataFrame):
        df = source
    elif name is not None:
        snapshot = open_snapshot(name)
        with translate_spark_errors(repr(str(source))):
            df = snapshot_rows(spark, snapshot)
    else:
        _check_is_no_pattern(str(source))
        check_is_no_table(str(source))
        _check_no_file_is_empty(Path(source))
        with translate_spark_errors(repr(str(source))):
            df = parquet_reader(spark, merged=merged).parquet(str(source))
            folders = {uri.rpartition("/")[0] for uri in df.inputFiles()} if is_pattern(str(source)) else set()
        for folder in sorted(folders):
            check_is_no_table(unquote(folder))
    _check_columns(df)
    return df


def _check_is_no_pattern(path: str) -> None:
    """Refuse a file or folder of this machine whose name Spark reads as a pattern: it would take others for it."""
    if is_pattern(path) and Path(path).exists():
        raise SourceError(f"Spark reads the name {path!r} as a pattern, which may mean other files; rename it")


def _check_no_file_is_empty(path: Path) -> None:
    """Refuse a local folder with a file without a byte, as a copy that died leaves it: Spark reads past it."""
    for file in path.rglob("*.parquet"):
        if all(map(is_shown, file.relative_to(path).parts)) and file.is_file() and not file.stat().st_size:
            raise broken_file(str(file))


def _check_columns(df: DataFrame) -> None:
    seen: set[str] = set()
    for field in df.schema.fields:
        name = field.name.lower()
        if name in seen:
            raise SchemaError(f"the source has two columns {field.name!r}; rename one")
        seen.add(name)
        if name in RESERVED or name.startswith(RESERVED_PREFIXES):
            raise SchemaError(f"the source's column {field.name!r} has a name that the table needs itself; rename it")
        if not isinstance(field.dataType, VariantType) and not _is_storable(field.dataType):
            raise SchemaError(
                f"column {field.name!r} is of type {field.dataType.simpleString()}, which can't be stored; cast it"
            )
        if is_padded(str(field.metadata.get(_CHAR_METADATA, ""))):
            raise SchemaError(
                f"column {field.name!r} is {field.metadata[_CHAR_METADATA]} to Spark, by the source's metadata: texts "
                f"are compared with blanks behind them; give a source in which it is cast to STRING"
            )
    if not seen:
        raise SchemaError("the source has no columns; give one with some")
    schema_of(df).writable()


def _is_storable(type: DataType) -> bool:
    if isinstance(type, ArrayType):
        return _is_storable(type.elementType)
    if isinstance(type, MapType):
        return _is_storable(type.keyType) and _is_storable(type.valueType)
    if isinstance(type, StructType):
        return all(_is_storable(field.dataType) for field in type.fields)
    return isinstance(type, _ATOMIC)


def schema_of(df: DataFrame) -> Schema:
    """The schema of a DataFrame in the model's words."""
    return Schema(tuple(Column(f.name, f.dataType.simpleString(), f.nullable) for f in df.schema.fields))


def rename_columns(df: DataFrame, schema: Schema) -> DataFrame:
    """Return the rows under a schema's spelling of their columns; columns that it lacks keep theirs."""
    known = {column.name.lower(): column.name for column in schema.columns}
    return df.toDF(*(known.get(name.lower(), name) for name in df.columns))


def conformed(df: DataFrame, schema: Schema, what: str = "the plan") -> DataFrame:
    """The source's columns in a document's order and spelling.

    Args:
        df: the source.
        schema: the document's.
        what: the document, for messages.

    Raises:
        SchemaError: a column is missing, new, or of another type; names it.
    """
    found = schema_of(df)
    for column in schema.columns:
        has = found.get(column.name)
        if has is None:
            raise SchemaError(f"the source lacks the column {column.name!r} of {what}; add it (as NULL) or plan again")
        if has.type != column.type:
            raise SchemaError(
                f"column {column.name!r} is {has.type} in the source but {column.type} in {what}; cast it, or analyze "
                "the log again with a file of the source as --schema, and plan again"
            )
    for column in found.columns:
        if schema.get(column.name) is None:
            raise SchemaError(f"the source's column {column.name!r} is not in {what}; drop it or plan again")
    return df.selectExpr(*(f"{quoted(found.find(c.name).name)} AS {quoted(c.name)}" for c in schema.columns))


def check_partition_column(df: DataFrame, partition_by: str | None) -> None:
    """Refuse a column by which a table can't be partitioned.

    Raises:
        SchemaError: it does not exist, or is nested, binary, floating or collated.
    """
    if partition_by is None:
        return
    name = schema_of(df).find(partition_by).name
    type = df.schema[name].dataType
    # of a collated text, groups are of texts that are equal under it, and not one value each
    if isinstance(type, _NO_PARTITION) or (isinstance(type, StringType) and not is_hashable(type.simpleString())):
        raise SchemaError(
            f"the table can't be partitioned by {name!r} of type {type.simpleString()}; choose a date, number or "
            "plain text"
        )


def content_columns(df: DataFrame) -> list[SparkColumn]:
    """Aggregates over a source: its rows, and the checksum of each column under the column's name."""
    sums = [checksum_column(field.name, field.dataType).alias(field.name) for field in df.schema.fields]
    return [F.count(F.lit(1)).alias(ROWS), *sums]


def checksum_column(name: str, type: DataType) -> SparkColumn:
    """The sum of unsigned 32-bit hashes of a column, as :mod:`layoutopt.writer.checksum` sums them."""
    if isinstance(type, VariantType):
        return F.coalesce(F.sum(hash_column(name, type)), F.lit(0).cast("bigint"))
    return F.expr(f"coalesce(sum({_hash_sql(name, type)}), 0L)")


def hash_column(name: str, type: DataType) -> SparkColumn:
    """The unsigned 32-bit hash of each value of a column, a bigint, as :func:`checksum_column` sums them."""
    if isinstance(type, VariantType):
        return F.hash(binaries(name)).cast("bigint").bitwiseAND(F.lit(4294967295))
    return F.expr(_hash_sql(name, type))


def _hash_sql(name: str, type: DataType) -> str:
    """As :func:`hash_column`, as a text, which takes Spark's driver one call in place of ten."""
    return f"cast(hash({hashable_sql(quoted(name), type)}) AS bigint) & 4294967295L"


def hashable(name: str, type: DataType) -> SparkColumn:
    """A column as :func:`hashable_sql` has it; a variant as its two binaries."""
    return binaries(name) if isinstance(type, VariantType) else F.expr(hashable_sql(quoted(name), type))


def hashable_sql(value: str, type: DataType, depth: int = 0) -> str:
    """An expression that hashes alike for equal values: maps, which Spark won't hash, as arrays sorted by key.

    Collated texts hash by their bytes, so that two spellings of one collation key differ.
    """
    if isinstance(type, StringType) and not is_hashable(type.simpleString()):
        return f"cast({value} AS binary)"
    if not _holds_special(type):
        return value
    inner = f"x{depth}"
    if isinstance(type, MapType):
        entry = (
            f"named_struct('k', {hashable_sql(inner, type.keyType, depth + 1)}, "
            f"'v', {hashable_sql(f'{value}[{inner}]', type.valueType, depth + 1)})"
        )
        return f"transform(array_sort(map_keys({value})), {inner} -> {entry})"
    if isinstance(type, ArrayType):
        return f"transform({value}, {inner} -> {hashable_sql(inner, type.elementType, depth + 1)})"
    if not isinstance(type, StructType):
        return value
    fields = ", ".join(
        f"'f{i}', {hashable_sql(f'{value}.{quoted(field.name)}', field.dataType, depth + 1)}"
        for i, field in enumerate(type.fields)
    )
    return f"if({value} IS NULL, NULL, named_struct({fields}))"


def _holds_special(type: DataType) -> bool:
    """Whether a type is or contains a map or a collated text."""
    if isinstance(type, ArrayType):
        return _holds_special(type.elementType)
    if isinstance(type, StructType):
        return any(_holds_special(field.dataType) for field in type.fields)
    return isinstance(type, MapType) or (isinstance(type, StringType) and not is_hashable(type.simpleString()))


def measure_content(df: DataFrame, source: str) -> Content:
    """Rows and checksums by a pass of their own."""
    with translate_spark_errors(source):
        row = df.agg(*content_columns(df)).first()
    if row is None:
        raise SourceError(f"the source {source} gave no answer to an aggregate; check Spark's log")
    return content_of(row.asDict(), df.columns)


def content_of(values: dict[str, int], columns: Sequence[str]) -> Content:
    """The content from the values of :func:`content_columns`."""
    return Content(int(values[ROWS]), {name: int(values[name]) for name in columns})
