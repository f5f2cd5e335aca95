"""Open local Parquet files whose rows Arrow reads exactly as Spark does, and refuse all others.

NeedsSparkError is raised before a row is read where Spark reads by rules of its own: other schemas, calendars of older
versions, nested types, or columns that only folders' names have.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog.arrow_types import any_arrow_type
from layoutopt.catalog.storage.filesystem import absolute, is_url
from layoutopt.errors import NeedsSparkError, SchemaError
from layoutopt.external.external_tables import check_is_no_table
from layoutopt.external.footers import SAMPLED_FOOTERS, standard_leaves
from layoutopt.external.formats import parse_source_name
from layoutopt.external.snapshot import has_old_dates, has_old_int96
from layoutopt.external.whole_files import ARROW_OPTIONS, damaged_page, is_checksum_failure
from layoutopt.model.arrays import spread
from layoutopt.model.schema import Schema
from layoutopt.sql.schema import (
    arrow_type_name,
    check_parquet_types,
    find_collations,
    is_listed,
    list_files,
    list_nanoseconds,
    read_arrow_schema,
)
from layoutopt.writer.checksum import is_summable

# With Hadoop's configuration, a path without a scheme may be in another file system.
_HADOOP_VARIABLES: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_PARTITION_TYPES: Final = frozenset({"tinyint", "smallint", "int", "bigint", "date", "string"})
# The codecs that Arrow reads, and Spark only with further libraries.
_ARROW_CODECS: Final = frozenset({"BROTLI"})
# Marks in a footer's metadata of types that only Spark knows: padded texts, and types that files store as numbers.
_SPARK_TYPES: Final = (b"CHAR_VARCHAR", b'"interval ', b'"udt"')


def check_columns(schema: Schema, partition_by: str | None) -> None:
    """Raise NeedsSparkError for columns whose values or partitions only Spark knows."""
    if len({name.lower() for name in schema.names}) < len(schema.names):
        raise NeedsSparkError("names of columns differ only in case")
    for column in schema.columns:
        if not is_summable(column.type):
            raise NeedsSparkError(f"the column {column.name!r} is {column.type}")
    if partition_by is not None and schema.find(partition_by).type not in _PARTITION_TYPES:
        raise NeedsSparkError(f"partitions are by a {schema.find(partition_by).type}")


def resolve_local_path(source: str) -> Path:
    """Return a source's absolute path.

    Raises:
        NeedsSparkError: it is of another format, or may be on another file system.
        SourceError: it is the folder of such a table.
    """
    if parse_source_name(source) is not None or is_url(source):
        raise NeedsSparkError(f"{source!r} is no path of Parquet of this machine")
    if any(map(os.environ.get, _HADOOP_VARIABLES)):
        raise NeedsSparkError(f"{source!r} is not surely a path of this machine")
    check_is_no_table(source)
    return Path(re.sub("^/+", "/", absolute(source)))  # two slashes would make another name


def list_visible(root: Path) -> list[Path]:
    """List the entries of a folder, folders included, that Spark reads, sorted; of a file the file."""
    return sorted(path for path in (root.iterdir() if root.is_dir() else [root]) if is_listed(path.name))


@contextmanager
def open_plain(path: Path, schema: Schema) -> Iterator[pq.ParquetFile]:
    """Open a file that has a schema's columns, or some, in any order, and nothing that Spark reads by its own rules.

    Raises:
        NeedsSparkError: it has other columns, can't be read, or Spark reads it by rules of its own.
        SourceError: a page is damaged.
    """
    try:
        with pq.ParquetFile(path, **ARROW_OPTIONS) as file:
            try:
                _check_file(path, file, schema)
            except SchemaError as error:
                raise NeedsSparkError(f"{str(path)!r} can't be read without it ({error})") from error
            yield file
    except (OSError, pa.ArrowException) as error:
        if is_checksum_failure(str(error)):
            raise damaged_page(str(path)) from error
        raise NeedsSparkError(f"{str(path)!r} can't be read without it ({error})") from error


def _check_file(path: Path, file: pq.ParquetFile, schema: Schema) -> None:
    check_parquet_types(file.metadata.schema)
    fields = read_arrow_schema(file.metadata.schema, in_micros=True)
    collations = find_collations(fields)
    types = {field.name: arrow_type_name(field.type, collations.get(field.name, {}), field.name) for field in fields}
    if len(types) < len(fields) or not types.items() <= {column.name: column.type for column in schema.columns}.items():
        raise NeedsSparkError(f"{str(path)!r} has other columns than the table")
    for field in fields:
        leaves = [path for path, _ in standard_leaves(field.type, field.name)]
        if pa.types.is_nested(field.type) and not set(leaves) <= {leaf.path for leaf in file.schema}:
            raise NeedsSparkError(f"{str(path)!r} stores the lists or maps of {field.name!r} in an older form")
    metadata = file.metadata.metadata or {}
    has_spark_types = any(mark in value for value in metadata.values() for mark in _SPARK_TYPES)
    if has_old_dates(metadata) or has_old_int96(metadata) or has_spark_types:
        raise NeedsSparkError(f"{str(path)!r} has values that Spark reads by rules of its own")


def find_spark_gap(source: str) -> str | None:
    """Return why Spark can't read files of a source that Arrow reads, by some footers; None if none says so.

    Raises:
        SourceError: the source is the folder of a table of another format.
    """
    try:
        root = resolve_local_path(source)
        files = list_files(root) if root.is_dir() else [root]
        for file in spread(files, SAMPLED_FOOTERS):
            footer = pq.read_metadata(file)
            for name in list_nanoseconds(footer.schema):
                return f"the column {name!r} has times in nanoseconds, which Spark can't read"
            groups = [footer.row_group(0)] if footer.num_row_groups else []
            codecs = {group.column(i).compression for group in groups for i in range(group.num_columns)}
            for codec in codecs & _ARROW_CODECS:
                return f"the file {str(file)!r} is compressed by {codec}, which Spark can't read"
    except (NeedsSparkError, OSError, pa.ArrowException):  # the reader says so
        return None
    return None


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema in which rows are read."""
    return pa.schema([(column.name, any_arrow_type(column.type)) for column in schema.columns])


def cast_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a file's rows in a schema's order and types; columns that the file lacks are NULL.

    Raises:
        SchemaError: a time has nanoseconds, which tables can't store.
        pa.ArrowException: a value does not fit the type; Spark may read it.
    """
    stored = dict(zip(rows.column_names, rows.columns, strict=True))
    columns = [
        pa.nulls(rows.num_rows, field.type) if field.name not in stored else _cast_column(stored[field.name], field)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _cast_column(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        if "[ns" in str(column.type) and "would lose data" in str(error):
            raise SchemaError(
                f"column {field.name!r} has times of nanoseconds, and tables store microseconds; round them"
            ) from error
        raise


def plain_type(type: pa.DataType) -> pa.DataType:
    """Return the type of a partition column's plain values: days for a date, else the type itself."""
    return pa.int32() if pa.types.is_date(type) else type


def plain_partition_values(rows: pa.Table, partition_by: str) -> pa.Array:
    """Return the partition column as plain values."""
    column = rows[partition_by].combine_chunks()
    return column.cast(plain_type(column.type))


def encode_partitions(rows: pa.Table, partition_by: str) -> pa.DictionaryArray:
    """Return the partition column as a dictionary of plain values; NULL has a code too."""
    return plain_partition_values(rows, partition_by).dictionary_encode(null_encoding="encode")
