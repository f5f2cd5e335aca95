"""Open the source of a plan or a load, check it against a plan, and sum its content.

Tables of other formats are read by Spark's own Parquet reader, without jars: the files of a snapshot are read under the
columns that they have, deleted rows are left out by an anti-join on file and row, and values that only the table's
metadata has are joined by file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
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
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from layoutopt.catalog.load_check import Content
from layoutopt.catalog.storage.filesystem import absolute
from layoutopt.errors import SchemaError, SourceError
from layoutopt.evaluation.checksum import is_hashable
from layoutopt.external.external_tables import check_is_no_table, open_snapshot
from layoutopt.external.formats import PARQUET, FileFormat, parse_path, parse_table_name
from layoutopt.external.snapshot import SnapshotFile, SourceSnapshot, strip_scheme, uri_to_path
from layoutopt.external.source_check import compare_columns
from layoutopt.model.schema import RESERVED, Schema
from layoutopt.model.schema import Column as SchemaColumn
from layoutopt.model.types import is_padded, quote_name, type_sql
from layoutopt.spark.core.failures import broken_file, translate_spark_errors
from layoutopt.spark.core.versions import file_metadata, to_dataframe, variant_type
from layoutopt.sql.schema import check_folders, list_files

# A missing or damaged file must never read as empty, whatever the session's settings.
WHOLE_FILES: Final = {
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "parquet.page.verify-checksum.enabled": "true",
}
# Columns of a row's file: its URI, its bytes, and the time of its last change in microseconds since 1970. Where rows
# are deleted, a # and a digest of their positions follow the URI: with other rows deleted it counts as another file.
FILE: Final = ("_w_uri", "_w_size", "_w_modified")
ROWS = "_w_rows"  # no source has names that begin so
RESERVED_PREFIXES = ("_w",)

_KEY, _FILE, _ROW, _MARK, _CONSTANT = "_w_key", "_w_file", "_w_row", "_w_mark", "_w_constant"
_SCHEME: Final = re.compile("^[A-Za-z][A-Za-z0-9+.-]*:/*")
_SPECIAL: Final = re.compile(r"([*?\[\]{}\\])")
# The binaries of a variant, as Arrow and Parquet name them, and Spark's methods that return them.
_VARIANT_PARTS: Final = (("value", "getValue"), ("metadata", "getMetadata"))
_ATOMIC = (NumericType, StringType, BinaryType, BooleanType, DateType, TimestampType, TimestampNTZType)
VariantType: Final = variant_type()
_NO_PARTITION = (FloatType, DoubleType, BinaryType, ArrayType, MapType, StructType, VariantType)
_CHAR_METADATA = "__CHAR_VARCHAR_TYPE_STRING"  # where Spark keeps the declared type of a text


def read_files(
    spark: SparkSession,
    format: FileFormat,
    paths: Sequence[str],
    *,
    merged: bool = False,
    schema: StructType | None = None,
    **options: str,
) -> DataFrame:
    """Read files of a format by Spark, which fails where one is missing or damaged, whatever the session's settings.

    ``merged`` makes a column that only some files have a column; ``options`` are Spark's.

    Raises:
        SourceError: the files have columns that Spark would mix up.
    """
    reader = spark.read.options(**WHOLE_FILES, **format.options, **options, mergeSchema=merged)
    rows = (reader if schema is None else reader.schema(schema)).format(format.reader).load(list(paths))
    if format.find_problem is not None:
        uris = rows.inputFiles()
        problem = format.find_problem(rows.columns, uris)
        if problem is not None:
            raise SourceError(f"the source's file {uri_to_path(uris[0])!r} can't be read: {problem}")
    return rows


def is_pattern(path: str) -> bool:
    """Whether Spark reads a path as a pattern, which may match other files."""
    return _SPECIAL.search(path) is not None


def escape_pattern(path: str) -> str:
    r"""Return a path escaped so that Spark reads just that file or folder.

    >>> print(escape_pattern("/tables/ev[1]?/a.parquet"))
    /tables/ev\[1\]\?/a.parquet
    """
    return _SPECIAL.sub(r"\\\1", path)


def open_source(spark: SparkSession, source: DataFrame | str | Path, *, merged: bool = True) -> DataFrame:
    """Open the rows of a source: a DataFrame, a table of another format, or the files under a path.

    Args:
        spark: the session.
        source: rows, a path to Parquet (with Hive-style folders, too), or a name with the prefix of a format.
        merged: whether columns of some files are NULL elsewhere; otherwise Spark takes the schema of one file.

    Raises:
        SourceError: the path or table does not exist or can't be understood, or a file is damaged.
        SettingError: the library of the table's format is not installed.
        SchemaError: a column's name is reserved or given twice, or its type can't be stored, or is CHAR.
    """
    name = parse_table_name(source)
    if isinstance(source, DataFrame):
        df = source
    elif name is not None:
        snapshot = open_snapshot(name)
        with translate_spark_errors(repr(str(source))):
            df = snapshot_rows(spark, snapshot)
    else:
        files = parse_path(str(source))
        path = files.path
        if is_pattern(path) and Path(path).exists():
            raise SourceError(f"Spark reads the name {path!r} as a pattern, which may mean other files; rename it")
        check_is_no_table(path)
        local_files = list_files(Path(path))
        check_folders([file.relative_to(path).as_posix() for file in local_files])
        # Spark skips files without a byte, which a copy that was interrupted leaves.
        for file in local_files:
            if not file.stat().st_size:
                raise broken_file(str(file))
        with translate_spark_errors(repr(str(source))):
            df = read_files(spark, files.format, [path], merged=merged)
            folders = {uri.rpartition("/")[0] for uri in df.inputFiles()} if is_pattern(path) else set()
        for folder in sorted(folders):
            check_is_no_table(unquote(folder))
        _check_all_are_read(df, Path(path), local_files)
    _check_columns(df)
    return df


def _check_all_are_read(df: DataFrame, root: Path, files: Sequence[Path]) -> None:
    """Raise SourceError for a file below a folder that Spark passes over, since its name gives no column a value."""
    nested = [file for file in files if any("=" not in part for part in file.relative_to(root).parts[:-1])]
    if nested:
        read = {strip_scheme(unquote(uri)) for uri in df.inputFiles()}
        unread = [file for file in nested if strip_scheme(absolute(str(file))) not in read]
        if unread:
            raise SourceError(
                f"Spark reads no file of the folder {str(unread[0].parent)!r}; move it out of {str(root)!r}"
            )


def _check_columns(df: DataFrame) -> None:
    names: set[str] = set()
    for field in df.schema.fields:
        name = field.name.lower()
        if name in names:
            raise SchemaError(f"the source has two columns {field.name!r}; rename one")
        names.add(name)
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
    if not names:
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


def snapshot_rows(
    spark: SparkSession, snapshot: SourceSnapshot, *, with_file: bool = False, only: Collection[str] | None = None
) -> DataFrame:
    """Return the rows of a snapshot, ``with_file`` adds the columns :data:`FILE`.

    ``only`` are the URIs of the files to read, as in :data:`FILE`; None reads all.
    """
    wanted = None if only is None else {strip_scheme(unquote(uri.partition("#")[0])) for uri in only}
    groups: dict[tuple[object, ...], list[SnapshotFile]] = {}
    for file in snapshot.files:
        if wanted is None or strip_scheme(file.path) in wanted:
            groups.setdefault((file.stored, *sorted(file.constants)), []).append(file)
    if not groups:
        columns = [f"{quote_name(column.name)} {type_sql(column.type)}" for column in snapshot.schema.columns]
        files = [f"{FILE[0]} string", f"{FILE[1]} bigint", f"{FILE[2]} bigint"] if with_file else []
        return spark.createDataFrame([], ", ".join([*columns, *files]))
    parts = (_read_alike_files(spark, snapshot, files, with_file) for files in groups.values())
    return reduce(lambda rows, part: rows.unionAll(part), parts)


def _read_alike_files(
    spark: SparkSession, snapshot: SourceSnapshot, files: Sequence[SnapshotFile], with_file: bool
) -> DataFrame:
    stored, constants = files[0].stored, sorted(files[0].constants)
    types = [spark.createDataFrame([], f"x {type_sql(type)}").schema[0].dataType for type in snapshot.stored_types]
    fields = [StructField(name, type) for name, type in zip(stored, types, strict=True) if name is not None]
    paths = [escape_pattern(file.path) for file in files]
    parquet = read_files(spark, PARQUET, paths, schema=StructType(fields))
    metadata = file_metadata(parquet)
    rows = parquet.select(
        *(F.col(quote_name(field.name)) for field in fields),
        metadata["file_path"].alias(FILE[0]),
        metadata["row_index"].alias(_ROW),
        metadata["file_size"].alias(FILE[1]),
        F.unix_micros(metadata["file_modification_time"]).alias(FILE[2]),
    )
    if constants or any(file.deleted is not None for file in files):
        rows = _join_metadata(spark, rows, snapshot, files, parquet.inputFiles())
        rows = _without_deleted(spark, rows, files).withColumn(FILE[0], F.concat(FILE[0], _MARK))
    columns = []
    for column, name in zip(snapshot.schema.columns, stored, strict=True):
        value = F.lit(None) if name is None else F.col(quote_name(name))
        if column.name in constants:
            value = F.when(F.col(_FILE) >= 0, F.col(f"{_CONSTANT}{constants.index(column.name)}"))
        columns.append(value.cast(type_sql(column.type)).alias(column.name))
    return rows.select(*columns, *(FILE if with_file else ()))


def _join_metadata(
    spark: SparkSession, rows: DataFrame, snapshot: SourceSnapshot, files: Sequence[SnapshotFile], uris: Sequence[str]
) -> DataFrame:
    """Add to the rows the number of their file in ``files``, its mark, and the constants of its metadata.

    Spark spells a file's URI in two ways, so schemes are left out. A row of an unknown file fails the query: it might
    be a deleted row.
    """
    places = {strip_scheme(file.path): number for number, file in enumerate(files)}
    keys = [_SCHEME.sub("", uri) for uri in uris]
    numbers = [places[strip_scheme(unquote(uri))] for uri in uris]
    names = sorted(files[0].constants)
    columns = [
        pa.array(keys),
        pa.array(numbers, pa.int32()),
        pa.array([files[number].version_suffix for number in numbers]),
    ]
    for name in names:
        values = [files[number].constants[name] for number in numbers]
        columns.append(pa.array([None if value is None else str(value) for value in values], pa.string()))
    labels = [_KEY, _FILE, _MARK, *(f"{_CONSTANT}{place}" for place in range(len(names)))]
    known = to_dataframe(spark, pa.table(columns, names=labels))
    keyed = rows.withColumn(_KEY, F.regexp_replace(FILE[0], _SCHEME.pattern, ""))
    unknown = F.raise_error(F.concat(F.lit(f"{snapshot.name} has no file "), F.col(FILE[0])))
    number = F.when(F.col(_FILE).isNull(), unknown.cast("int")).otherwise(F.col(_FILE))
    return keyed.join(F.broadcast(known), _KEY, "left").withColumn(_FILE, number)


def _without_deleted(spark: SparkSession, rows: DataFrame, files: Sequence[SnapshotFile]) -> DataFrame:
    deleted = [(number, file.deleted) for number, file in enumerate(files) if file.deleted is not None]
    if not deleted:
        return rows
    numbers = np.repeat([number for number, _ in deleted], [len(positions) for _, positions in deleted])
    positions = np.concatenate([positions for _, positions in deleted])
    table = pa.table({_FILE: pa.array(numbers, pa.int32()), _ROW: pa.array(positions, pa.int64())})
    return rows.join(to_dataframe(spark, table), [_FILE, _ROW], "left_anti")


def variant_binaries(name: str) -> SparkColumn:
    """Return a variant column as ``struct<value:binary,metadata:binary>``, by which it is hashed and compared.

    No SQL function returns these, so methods of Spark's own object are invoked, however a file stores the value.
    """
    variant = F.col(quote_name(name))
    parts = F.struct(*(_invoke(variant, method).alias(part) for part, method in _VARIANT_PARTS))
    return F.when(variant.isNotNull(), parts)


def with_binaries(rows: DataFrame) -> DataFrame:
    """Return the rows with variants as :func:`variant_binaries`, since Spark can't convert NULL variants to Arrow."""
    if not any(isinstance(field.dataType, VariantType) for field in rows.schema.fields):
        return rows
    numbered = rows.toDF(*(f"c{place}" for place in range(len(rows.columns))))  # a name may come twice
    columns = [
        variant_binaries(field.name) if isinstance(field.dataType, VariantType) else F.col(field.name)
        for field in numbered.schema
    ]
    return numbered.select(*columns).toDF(*rows.columns)


def _invoke(variant: SparkColumn, method: str) -> SparkColumn:
    spark = SparkSession.active()
    java: Any = spark._jvm
    utils = java.org.apache.spark.sql.classic.ExpressionUtils
    nothing = java.scala.jdk.javaapi.CollectionConverters.asScala(java.java.util.ArrayList()).toSeq()
    binary = java.org.apache.spark.sql.types.DataTypes.BinaryType
    call = java.org.apache.spark.sql.catalyst.expressions.objects.Invoke(
        utils.expression(variant._jc), method, binary, nothing, nothing, True, True, True
    )
    column: Any = utils.column(call)
    return SparkColumn(column)


def schema_of(df: DataFrame) -> Schema:
    """Return the model's schema of a DataFrame."""
    return Schema(tuple(SchemaColumn(f.name, f.dataType.simpleString(), f.nullable) for f in df.schema.fields))


def rename_columns(df: DataFrame, schema: Schema) -> DataFrame:
    """Return the rows under a schema's spelling of their columns; columns that it lacks keep theirs."""
    known = {column.name.lower(): column.name for column in schema.columns}
    return df.toDF(*(known.get(name.lower(), name) for name in df.columns))


def conform_columns(df: DataFrame, schema: Schema, what: str = "the plan") -> DataFrame:
    """Return a source's columns in the order and spelling of a document's schema; ``what`` names it in messages.

    Raises:
        SchemaError: a column is missing, new, or of another type; names it.
    """
    actual = schema_of(df)
    compare_columns(actual, schema, what, "the source")
    return df.selectExpr(*(f"{quote_name(actual.find(c.name).name)} AS {quote_name(c.name)}" for c in schema.columns))


def check_partition_column(df: DataFrame, partition_by: str | None) -> None:
    """Raise SchemaError for a partition column that does not exist, or is nested, binary, floating or collated."""
    if partition_by is None:
        return
    name = schema_of(df).find(partition_by).name
    type = df.schema[name].dataType
    # groups of a collated text are of texts that are equal under the collation, not of one value each
    if isinstance(type, _NO_PARTITION) or (isinstance(type, StringType) and not is_hashable(type.simpleString())):
        raise SchemaError(
            f"the table can't be partitioned by {name!r} of type {type.simpleString()}; choose a date, timestamp, "
            "whole number, decimal or plain text"
        )


def content_columns(df: DataFrame) -> list[SparkColumn]:
    """Return aggregates over a source: its rows, and the checksum of each column under the column's name."""
    sums = [checksum_column(field.name, field.dataType).alias(field.name) for field in df.schema.fields]
    return [F.count(F.lit(1)).alias(ROWS), *sums]


def checksum_column(name: str, type: DataType) -> SparkColumn:
    """Return the sum of unsigned 32-bit hashes of a column, as :mod:`layoutopt.evaluation.checksum` sums them."""
    if isinstance(type, VariantType):
        return F.coalesce(F.sum(hash_column(name, type)), F.lit(0).cast("bigint"))
    return F.expr(f"coalesce(sum({_hash_sql(name, type)}), 0L)")


def hash_column(name: str, type: DataType) -> SparkColumn:
    """Return the unsigned 32-bit hash of each value of a column, a bigint, as :func:`checksum_column` sums them."""
    if isinstance(type, VariantType):
        return F.hash(variant_binaries(name)).cast("bigint").bitwiseAND(F.lit(4294967295))
    return F.expr(_hash_sql(name, type))


def _hash_sql(name: str, type: DataType) -> str:
    """Return :func:`hash_column` as SQL text, which takes one call of Spark's driver instead of ten."""
    return f"cast(hash({_hash_input_sql(quote_name(name), type)}) AS bigint) & 4294967295L"


def hash_input(name: str, type: DataType) -> SparkColumn:
    """Return a column as an expression that hashes alike for equal values; a variant as its two binaries."""
    return variant_binaries(name) if isinstance(type, VariantType) else F.expr(_hash_input_sql(quote_name(name), type))


def _hash_input_sql(value: str, type: DataType, depth: int = 0) -> str:
    """Return SQL that hashes alike for equal values: maps, which Spark won't hash, become arrays sorted by key.

    Collated texts hash by their bytes, so that two spellings of one collation key differ.
    """
    if isinstance(type, StringType) and not is_hashable(type.simpleString()):
        return f"cast({value} AS binary)"
    if not _holds_special(type):
        return value
    inner = f"x{depth}"
    if isinstance(type, MapType):
        entry = (
            f"named_struct('k', {_hash_input_sql(inner, type.keyType, depth + 1)}, "
            f"'v', {_hash_input_sql(f'{value}[{inner}]', type.valueType, depth + 1)})"
        )
        return f"transform(array_sort(map_keys({value})), {inner} -> {entry})"
    if isinstance(type, ArrayType):
        return f"transform({value}, {inner} -> {_hash_input_sql(inner, type.elementType, depth + 1)})"
    if not isinstance(type, StructType):
        return value
    fields = ", ".join(
        f"'f{i}', {_hash_input_sql(f'{value}.{quote_name(field.name)}', field.dataType, depth + 1)}"
        for i, field in enumerate(type.fields)
    )
    return f"if({value} IS NULL, NULL, named_struct({fields}))"


def _holds_special(type: DataType) -> bool:
    if isinstance(type, ArrayType):
        return _holds_special(type.elementType)
    if isinstance(type, StructType):
        return any(_holds_special(field.dataType) for field in type.fields)
    return isinstance(type, MapType) or (isinstance(type, StringType) and not is_hashable(type.simpleString()))


def measure_content(df: DataFrame, source: str) -> Content:
    """Count rows and sum checksums in a pass of its own."""
    with translate_spark_errors(source):
        row = df.agg(*content_columns(df)).first()
    if row is None:
        raise SourceError(f"the source {source} gave no answer to an aggregate; check Spark's log")
    return content_of(row.asDict(), df.columns)


def content_of(values: dict[str, int], columns: Sequence[str]) -> Content:
    """Return the content from the values of :func:`content_columns`."""
    return Content(int(values[ROWS]), {name: int(values[name]) for name in columns})
