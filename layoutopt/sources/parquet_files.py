"""Open local Parquet files whose rows Arrow reads exactly as Spark does, and refuse all others.

NeedsSparkError is raised before a row is read where Spark reads by rules of its own: other schemas, calendars of older
versions, nested types, or columns that only folders' names have.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog.storage.filesystem import absolute, is_url
from layoutopt.errors import NeedsSparkError, SchemaError
from layoutopt.evaluation.checksum import is_summable
from layoutopt.external.external_tables import check_is_no_table
from layoutopt.external.footers import SAMPLED_FOOTERS, standard_leaves
from layoutopt.external.formats import parse_source_name
from layoutopt.external.listing import UNNAMED
from layoutopt.external.snapshot import SnapshotFile, has_old_dates, has_old_int96
from layoutopt.external.source_files import file_of_source
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

# With Hadoop's configuration, a path without a scheme may be in another file system.
_HADOOP_VARIABLES: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_PARTITION_TYPES: Final = frozenset({"tinyint", "smallint", "int", "bigint", "date", "string"})
# The codecs that Arrow reads, and Spark only with further libraries.
_ARROW_CODECS: Final = frozenset({"BROTLI"})
# Marks in a footer's metadata of types that only Spark knows: padded texts, and types that files store as numbers.
_SPARK_TYPES: Final = (b"CHAR_VARCHAR", b'"interval ', b'"udt"')

# The types to which tables of other formats widen a column without rewriting its files.
_WIDER: Final = {
    "tinyint": ("smallint", "int", "bigint"), "smallint": ("int", "bigint"), "int": ("bigint",), "float": ("double",),
}  # fmt: skip


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
def open_plain(file: SnapshotFile, schema: Schema) -> Iterator[tuple[pq.ParquetFile, Mapping[str, str | None]]]:
    """Open a file that has a schema's columns, or some, in any order, and nothing that Spark reads by its own rules.

    Yields:
        The file, and the name in it of each column; None for those that it lacks or that are constant in it.

    Raises:
        NeedsSparkError: it has other columns, can't be read, or Spark reads it by rules of its own.
        SourceError: a page is damaged.
    """
    path = file.path
    try:
        stream = file_of_source(file, schema).open_input(path) if is_url(path) else path
        with pq.ParquetFile(stream, **ARROW_OPTIONS) as parquet:
            try:
                stored = _find_columns(file, parquet, schema)
            except SchemaError as error:
                raise NeedsSparkError(f"{path!r} can't be read without it ({error})") from error
            yield parquet, stored
    except (OSError, pa.ArrowException) as error:
        if is_checksum_failure(str(error)):
            raise damaged_page(path) from error
        raise NeedsSparkError(f"{path!r} can't be read without it ({error})") from error


def _find_columns(file: SnapshotFile, parquet: pq.ParquetFile, schema: Schema) -> dict[str, str | None]:
    """Return the name in a file of each column; check types, and that Spark reads nothing by its own rules."""
    path, is_of_table = file.path, file.stored != UNNAMED
    names = file.stored if is_of_table else tuple(None if n in file.constants else n for n in schema.names)
    check_parquet_types(parquet.metadata.schema)
    arrow = read_arrow_schema(parquet.metadata.schema, in_micros=True)
    fields = {field.name: field for field in arrow}
    if len(fields) < len(arrow) or (not is_of_table and not fields.keys() <= {*names}):
        raise NeedsSparkError(f"{path!r} has other columns than the table")
    collations = find_collations(arrow)
    stored = {}
    for column, name in zip(schema.columns, names, strict=True):
        field = None if name is None else fields.get(name)
        stored[column.name] = None if field is None else name
        if field is None:
            continue
        type = arrow_type_name(field.type, collations.get(field.name, {}), field.name)
        if type != column.type and not (is_of_table and column.type in _WIDER.get(type, ())):
            raise NeedsSparkError(f"{path!r} has other columns than the table")
        leaves = {_name_elements(leaf) for leaf, _ in standard_leaves(field.type, field.name)}
        if pa.types.is_nested(field.type) and not leaves <= {_name_elements(leaf.path) for leaf in parquet.schema}:
            raise NeedsSparkError(f"{path!r} stores the lists or maps of {field.name!r} in an older form")
    metadata = parquet.metadata.metadata or {}
    has_spark_types = any(mark in value for value in metadata.values() for mark in _SPARK_TYPES)
    if has_old_dates(metadata) or has_old_int96(metadata) or has_spark_types:
        raise NeedsSparkError(f"{path!r} has values that Spark reads by rules of its own")
    return stored


def _name_elements(leaf: str) -> str:
    """Return a leaf's path with the standard's name of lists' elements; some writers call them items, as Arrow did."""
    return leaf.replace(".list.item", ".list.element")


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
