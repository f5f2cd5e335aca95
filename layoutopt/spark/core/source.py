"""The source of a plan or a load: opening it, checking it against a plan, and summing what it holds."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import Column as SparkColumn
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
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from layoutopt.catalog.checks import Content
from layoutopt.errors import SchemaError, SourceError
from layoutopt.model.schema import RESERVED, Schema
from layoutopt.model.schema import Column as SchemaColumn
from layoutopt.model.types import is_padded, quoted, type_sql
from layoutopt.sources.external_tables import check_is_no_table, open_snapshot
from layoutopt.sources.snapshot import SnapshotFile, SourceSnapshot, ending, source_name
from layoutopt.spark.core.failures import broken_file, translate_spark_errors
from layoutopt.sql.schema import is_shown
from layoutopt.writer.checksum import is_hashable

# ----------------------------------------------------------------------------------------------------
# Spark's reader of a source's Parquet files.

# A file that is gone or damaged must never read as empty, whatever the session says.
WHOLE_FILES: Final = {
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "parquet.page.verify-checksum.enabled": "true",
}


def parquet_reader(spark: SparkSession, *, merged: bool = False) -> DataFrameReader:
    """Return a reader of Parquet that fails where a file is missing or damaged, whatever the session says.

    Args:
        spark: the session.
        merged: whether a column that only some files have is a column.
    """
    return spark.read.options(**WHOLE_FILES, mergeSchema=merged)


# ----------------------------------------------------------------------------------------------------
# Paths that Spark would take for patterns of many.

_SPECIAL: Final = re.compile(r"([*?\[\]{}\\])")


def is_pattern(path: str) -> bool:
    """Whether Spark reads a path as a pattern, which may mean other files."""
    return _SPECIAL.search(path) is not None


def as_no_pattern(path: str) -> str:
    r"""What Spark is given to read just the file or folder of that path.

    >>> print(as_no_pattern("/tables/ev[1]?/a.parquet"))
    /tables/ev\[1\]\?/a.parquet
    """
    return _SPECIAL.sub(r"\\\1", path)


# ----------------------------------------------------------------------------------------------------
# Tables of other formats as Spark's rows, by Spark's own Parquet reader: no jars are needed.
#
# The files of a snapshot are read under the columns that they have; rows that were deleted are left out by an anti-join
# on file and row, and values that only the table's metadata has are joined by file.

FILE: Final = ("_w_uri", "_w_size", "_w_modified")
"""Columns that tell a row's file, if asked for: its URI, its bytes, and microseconds since 1970 when it was changed.

After the URI comes a # and a digest of the positions of deleted rows, where there are some: with others gone it counts
as another file.
"""
_KEY, _FILE, _ROW, _MARK, _CONSTANT = "_w_key", "_w_file", "_w_row", "_w_mark", "_w_constant"
_SCHEME: Final = re.compile("^[A-Za-z][A-Za-z0-9+.-]*:/*")


def snapshot_rows(
    spark: SparkSession, snapshot: SourceSnapshot, *, with_file: bool = False, only: Collection[str] | None = None
) -> DataFrame:
    """The rows of a snapshot.

    Args:
        spark: the session.
        snapshot: what to read.
        with_file: add the columns :data:`FILE`.
        only: the URIs of the files to read, as :data:`FILE` has them; None reads all.
    """
    wanted = None if only is None else {ending(unquote(uri.partition("#")[0])) for uri in only}
    groups: dict[tuple[object, ...], list[SnapshotFile]] = {}
    for file in snapshot.files:
        if wanted is None or ending(file.path) in wanted:
            groups.setdefault((file.stored, *sorted(file.constants)), []).append(file)
    parts = [_rows_of(spark, snapshot, files, with_file) for files in groups.values()]
    if not parts:
        parts = [_no_rows(spark, snapshot, with_file)]
    rows = parts[0]
    for part in parts[1:]:
        rows = rows.unionAll(part)
    return rows


def _no_rows(spark: SparkSession, snapshot: SourceSnapshot, with_file: bool) -> DataFrame:
    columns = [f"{quoted(column.name)} {type_sql(column.type)}" for column in snapshot.schema.columns]
    files = [f"{FILE[0]} string", f"{FILE[1]} bigint", f"{FILE[2]} bigint"] if with_file else []
    return spark.createDataFrame([], ", ".join([*columns, *files]))


def _rows_of(
    spark: SparkSession, snapshot: SourceSnapshot, files: Sequence[SnapshotFile], with_file: bool
) -> DataFrame:
    """The rows of files that have the same columns."""
    stored, constants = files[0].stored, sorted(files[0].constants)
    types = [spark.createDataFrame([], f"x {type_sql(type)}").schema[0].dataType for type in snapshot.stored_types]
    fields = [StructField(name, type) for name, type in zip(stored, types, strict=True) if name is not None]
    rows = parquet_reader(spark).schema(StructType(fields)).parquet(*(as_no_pattern(file.path) for file in files))
    file = rows.metadataColumn("_metadata")
    found = rows.select(
        *(F.col(quoted(field.name)) for field in fields),
        file["file_path"].alias(FILE[0]),
        file["row_index"].alias(_ROW),
        file["file_size"].alias(FILE[1]),
        F.unix_micros(file["file_modification_time"]).alias(FILE[2]),
    )
    if constants or any(file.deleted is not None for file in files):
        found = _with_numbers(spark, found, snapshot, files, rows.inputFiles())
        found = _without_deleted(spark, found, files).withColumn(FILE[0], F.concat(FILE[0], _MARK))
    columns = []
    for column, name in zip(snapshot.schema.columns, stored, strict=True):
        value = F.lit(None) if name is None else F.col(quoted(name))
        if column.name in constants:
            value = F.when(F.col(_FILE) >= 0, F.col(f"{_CONSTANT}{constants.index(column.name)}"))
        columns.append(value.cast(type_sql(column.type)).alias(column.name))
    return found.select(*columns, *(FILE if with_file else ()))


def _with_numbers(
    spark: SparkSession, rows: DataFrame, snapshot: SourceSnapshot, files: Sequence[SnapshotFile], uris: Sequence[str]
) -> DataFrame:
    """The rows with the number of their file among ``files``, and the values that metadata says of it.

    Spark spells a file's URI in two ways, so schemes are left out. A row of an unknown file fails the reading: taken
    for one of a file without deleted rows it would come back.
    """
    places = {ending(file.path): number for number, file in enumerate(files)}
    keys = [_SCHEME.sub("", uri) for uri in uris]
    numbers = [places[ending(unquote(uri))] for uri in uris]
    names = sorted(files[0].constants)
    columns = [pa.array(keys), pa.array(numbers, pa.int32()), pa.array([_mark(files[number]) for number in numbers])]
    for name in names:
        held = [files[number].constants[name] for number in numbers]
        columns.append(pa.array([None if value is None else str(value) for value in held], pa.string()))
    labels = [_KEY, _FILE, _MARK, *(f"{_CONSTANT}{place}" for place in range(len(names)))]
    known = spark.createDataFrame(pa.table(columns, names=labels))
    keyed = rows.withColumn(_KEY, F.regexp_replace(FILE[0], _SCHEME.pattern, ""))
    unknown = F.raise_error(F.concat(F.lit(f"{snapshot.name} has no file "), F.col(FILE[0])))
    number = F.when(F.col(_FILE).isNull(), unknown.cast("int")).otherwise(F.col(_FILE))
    return keyed.join(F.broadcast(known), _KEY, "left").withColumn(_FILE, number)


def _mark(file: SnapshotFile) -> str:
    return "" if file.deleted is None else f"#{hashlib.sha256(file.deleted.tobytes()).hexdigest()[:16]}"


def _without_deleted(spark: SparkSession, rows: DataFrame, files: Sequence[SnapshotFile]) -> DataFrame:
    deleted = [(number, file.deleted) for number, file in enumerate(files) if file.deleted is not None]
    if not deleted:
        return rows
    of_file = np.repeat([number for number, _ in deleted], [len(positions) for _, positions in deleted])
    positions = np.concatenate([positions for _, positions in deleted])
    table = pa.table({_FILE: pa.array(of_file, pa.int32()), _ROW: pa.array(positions, pa.int64())})
    return rows.join(spark.createDataFrame(table), [_FILE, _ROW], "left_anti")


# ----------------------------------------------------------------------------------------------------
# VARIANT columns: the two binaries that a value is of, by which it is compared, since Spark won't hash a variant.

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
    return Schema(tuple(SchemaColumn(f.name, f.dataType.simpleString(), f.nullable) for f in df.schema.fields))


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
