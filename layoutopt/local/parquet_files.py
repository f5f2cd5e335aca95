"""Files of Parquet on this machine whose rows Arrow reads just as Spark does; whatever else there is, is left to Spark.

Whatever Spark reads by rules of its own (other schemas, calendars of older versions, nested types, columns that only
folders' names tell of) raises :class:`~layoutopt.errors.NeedsSparkError` before a row is read.
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

from layoutopt.catalog.storage.filesystem import absolute, is_url
from layoutopt.errors import NeedsSparkError, SchemaError
from layoutopt.model.schema import Schema
from layoutopt.scan.arrow_types import any_arrow_type
from layoutopt.sources.external_tables import check_is_no_table
from layoutopt.sources.snapshot import has_old_dates, has_old_int96, source_name
from layoutopt.sources.whole_files import ARROW_OPTIONS, damaged_page, is_checksum_failure
from layoutopt.sql.schema import arrow_schema_of, arrow_type_name, collations_of, is_shown
from layoutopt.writer.checksum import is_hashable

# A path of other characters is spelled in more than one way as a URI.
_PLAIN_PATH: Final = re.compile(r"[A-Za-z0-9_./-]+")
# With Hadoop's configuration a path without a scheme may be another file system's.
_ELSEWHERE: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_PARTITION_TYPES: Final = frozenset({"tinyint", "smallint", "int", "bigint", "date", "string"})
# So Spark says in a footer what other readers don't know: texts padded with blanks, and types that files have as
# numbers.
_OWN_RULES: Final = (b"CHAR_VARCHAR", b'"interval ', b'"udt"')


def check_columns(schema: Schema, partition_by: str | None) -> None:
    """Refuse a table with columns whose checksums or partitions only Spark knows.

    Raises:
        NeedsSparkError: it has one.
    """
    for column in schema.columns:
        if not is_hashable(column.type):
            raise NeedsSparkError(f"the column {column.name!r} is {column.type}")
    if partition_by is not None and schema.find(partition_by).type not in _PARTITION_TYPES:
        raise NeedsSparkError(f"partitions are by a {schema.find(partition_by).type}")


def check_path(path: Path) -> None:
    """Refuse a path that is no file of Parquet, or whose name is not the same as a URI.

    Raises:
        NeedsSparkError: it is such a path.
    """
    plain = _PLAIN_PATH.fullmatch(str(path)) and ".." not in path.parts
    if not plain or not path.name.endswith(".parquet") or not path.is_file():
        raise NeedsSparkError(f"{str(path)!r} is no file of Parquet by a plain name")


def local_root(source: str) -> Path:
    """A source's path.

    Raises:
        NeedsSparkError: it names a table of another format, or is perhaps elsewhere.
        SourceError: it is the folder of such a table.
    """
    if source_name(source) is not None or is_url(source):
        raise NeedsSparkError(f"{source!r} is no path of this machine")
    if any(map(os.environ.get, _ELSEWHERE)):
        raise NeedsSparkError(f"{source!r} is not surely a path of this machine")
    check_is_no_table(source)
    return Path(absolute(source))


def shown_in(root: Path) -> list[Path]:
    """What Spark looks at of a folder, sorted, its own folders too; of a file itself."""
    return sorted(path for path in (root.iterdir() if root.is_dir() else [root]) if is_shown(path.name))


@contextmanager
def open_plain(path: Path, schema: Schema, *, compared: bool = False) -> Iterator[pq.ParquetFile]:
    """A file that has exactly these columns, and says nothing that Spark would go by.

    Args:
        path: the file's.
        schema: the columns that it has to have, in any order.
        compared: whether what is read is compared with what Spark reads, or nothing but a plan goes by it; then
            timestamps of the old kind (INT96, which Spark writes unless it is told not to) are read too.

    Raises:
        NeedsSparkError: it has other columns, can't be read, or Spark reads it by rules of its own.
        SourceError: a page is damaged.
    """
    try:
        with pq.ParquetFile(path, **ARROW_OPTIONS) as file:
            _check_file(path, file, schema, compared)
            yield file
    except (OSError, pa.ArrowException, SchemaError) as error:
        if is_checksum_failure(str(error)):
            raise damaged_page(str(path)) from error
        raise NeedsSparkError(f"{str(path)!r} can't be read without it ({error})") from error


def _check_file(path: Path, file: pq.ParquetFile, schema: Schema, compared: bool) -> None:
    found = arrow_schema_of(file.metadata.schema)
    collated = collations_of(found)
    types = {field.name: arrow_type_name(field.type, collated.get(field.name, {}), field.name) for field in found}
    old = any(file.schema.column(i).physical_type == "INT96" for i in range(len(file.schema)))
    if old and not compared:
        raise NeedsSparkError(f"{str(path)!r} has timestamps of the old kind")
    if len(types) < len(found) or types != {column.name: column.type for column in schema.columns}:
        raise NeedsSparkError(f"{str(path)!r} has other columns than the table")
    said = file.metadata.metadata or {}
    if has_old_dates(said) or has_old_int96(said) or any(rule in each for each in said.values() for rule in _OWN_RULES):
        raise NeedsSparkError(f"{str(path)!r} has values that Spark reads by rules of its own")


def arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow forms of a schema's columns, as rows are read in."""
    return pa.schema([(column.name, any_arrow_type(column.type)) for column in schema.columns])


def typed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """A file's rows under the columns of a schema, in its order and types.

    Raises:
        pa.ArrowException: a value has no place in the type; Spark may know better.
    """
    return pa.Table.from_arrays([rows[field.name].cast(field.type) for field in schema], schema=schema)


def plain_type(type: pa.DataType) -> pa.DataType:
    """The type of a partition column's plain values: days of a date, else what they are."""
    return pa.int32() if pa.types.is_date(type) else type


def plain_partitions(rows: pa.Table, partition_by: str) -> pa.Array:
    """The partition column as its plain values."""
    column = rows[partition_by].combine_chunks()
    return column.cast(plain_type(column.type))


def coded_partitions(rows: pa.Table, partition_by: str) -> pa.DictionaryArray:
    """The partition column as codes of its plain values; NULL has a code too."""
    return plain_partitions(rows, partition_by).dictionary_encode(null_encoding="encode")
