"""The footers of a source's files: which columns a file holds, under which names and types."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog.storage.footers import footer_digest, metadata_of
from layoutopt.errors import LayoutoptError, SchemaError, SourceError
from layoutopt.external.listing import ListedFile
from layoutopt.external.snapshot import has_old_dates, has_old_int96
from layoutopt.external.source_files import SourceFiles, file_key, stored_names
from layoutopt.model.schema import Column, Schema
from layoutopt.model.types import INTEGER_BITS, is_padded
from layoutopt.sql.schema import arrow_type_name, find_collations, read_arrow_schema

# The most footers that are read where a sample of a source's files is enough.
SAMPLED_FOOTERS: Final = 16
# Days from 1970-01-01 to 1582-10-15, the first day on which all calendars agree.
_FIRST_DAY: Final = -141_427
# Seconds from 1970-01-01 to 1900-01-01, before which Spark converts times.
_FIRST_SECOND: Final = -2_208_988_800
_UNITS_PER_SECOND: Final = {"milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
_REQUESTS_AT_ONCE: Final = 16
# The codecs that Spark reads without further libraries.
_CODECS: Final = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"})
# Declared types of texts, as Spark stores them in footers.
_DECLARED_TYPE: Final = re.compile(rb'CHAR_VARCHAR_TYPE_STRING"\s*:\s*"([^"]*)"')


@dataclass(frozen=True, eq=False)
class Footer:
    """A file's footer, with the digest of its bytes."""

    listed: ListedFile
    digest: str
    metadata: pq.FileMetaData

    @property
    def key(self) -> str:
        """The file's key."""
        return file_key(self.listed.file.path)

    @cached_property
    def arrow(self) -> pa.Schema:
        """The columns of the file."""
        return read_arrow_schema(self.metadata.schema)

    def columns(self) -> tuple[Column, ...]:
        """Return the columns of the file with Spark's types; raise SchemaError if a type can't be read."""
        path = self.listed.file.path
        declared = _DECLARED_TYPE.findall(b" ".join((self.metadata.metadata or {}).values()))
        if padded := [type for type in declared if is_padded(type.decode())]:
            raise SchemaError(
                f"the source's file {path!r} has a column of {padded[0].decode()}, whose texts Spark pads with blanks; "
                "write it as a string to index it"
            )
        try:
            collated = find_collations(self.arrow)
            return tuple(Column(f.name, arrow_type_name(f.type, collated.get(f.name, {}), f.name)) for f in self.arrow)
        except SchemaError as error:
            raise SchemaError(f"the source's file {path!r} can't be indexed: {error}") from error


def is_native(footer: Footer, schema: Schema) -> bool:
    """Return whether Spark's own reader returns a file's stored rows as this package does, under the source's columns.

    False if that is not certain: for renamed or widened columns, and unusual types or encodings.
    """
    file, metadata = footer.listed.file, footer.metadata
    if "\n" in file.path:
        return False
    if any(stored != name for name, stored in stored_names(file, schema, footer.arrow.names).items()):
        return False
    types = {column.name: column.type for column in schema.columns}
    if any(types.get(column.name) != column.type or "collate" in column.type for column in footer.columns()):
        return False
    leaves = [metadata.schema.column(i) for i in range(metadata.num_columns)]
    expected = [leaf for field in footer.arrow for leaf in standard_leaves(field.type, field.name)]
    if [leaf.path for leaf in leaves] != [path for path, _ in expected]:
        return False
    kinds = [(leaf.physical_type == "INT96", type) for leaf, (_, type) in zip(leaves, expected, strict=True)]
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    codecs = {group.column(i).compression for group in groups for i in range(group.num_columns)}
    return all(is_int96 or _is_same_to_spark(type) for is_int96, type in kinds) and codecs <= _CODECS


def standard_leaves(type: pa.DataType, path: str) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the paths and types of a column's leaves, if its lists and maps are stored as Parquet specifies."""
    if pa.types.is_struct(type):
        for field in type:
            yield from standard_leaves(field.type, f"{path}.{field.name}")
    elif pa.types.is_map(type):
        yield from standard_leaves(type.key_type, f"{path}.key_value.key")
        yield from standard_leaves(type.item_type, f"{path}.key_value.value")
    elif pa.types.is_list(type):
        yield from standard_leaves(type.value_type, f"{path}.list.element")
    else:
        yield path, type


def _is_same_to_spark(type: pa.DataType) -> bool:
    if pa.types.is_timestamp(type):
        return type.unit in ("us", "ms")
    return (
        pa.types.is_signed_integer(type)
        or type in (pa.bool_(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32())
        or pa.types.is_decimal128(type)
    )


def read_footers(files: SourceFiles, listed: Iterable[ListedFile]) -> list[Footer]:
    """Read the footers of some files, in their order; raise SourceError for one that can't be read correctly."""

    def read(file: ListedFile) -> Footer:
        path = file.file.path
        try:
            footer = files.read_footer(file_key(path))
            metadata = metadata_of(footer)
            check_calendar(path, metadata)
            return Footer(file, footer_digest(footer), metadata)
        except LayoutoptError:
            raise
        except (OSError, ValueError, pa.ArrowException) as error:
            raise SourceError(
                f"the source's file {path!r} can't be read ({error}); try again when the source is not being changed"
            ) from error

    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
        return list(pool.map(read, listed))


def merge_file_columns(columns: Iterable[Column], footers: Iterable[Footer]) -> tuple[Column, ...]:
    """Merge columns with those of files; each has the type that can hold all its values.

    Raises:
        SchemaError: two types have no common type; names a file.
    """
    merged = {column.name.lower(): column for column in columns}
    for footer in footers:
        for column in footer.columns():
            known = merged.setdefault(column.name.lower(), column)
            type = _widen_type(known.type, column.type)
            if type is None:
                raise SchemaError(
                    f"the column {known.name!r} is {known.type} in other files of the source, but {column.type} in "
                    f"{footer.listed.file.path!r}; rewrite one of them"
                )
            merged[column.name.lower()] = Column(known.name, type)
    return tuple(merged.values())


def _widen_type(first: str, second: str) -> str | None:
    """Return the type that holds values of both; None if there is none.

    >>> _widen_type("int", "bigint"), _widen_type("double", "float"), _widen_type("int", "string")
    ('bigint', 'double', None)
    """
    if first == second:
        return first
    for kinds in (tuple(INTEGER_BITS), ("float", "double")):
        if first in kinds and second in kinds:
            return max(first, second, key=kinds.index)
    return None


def check_calendar(path: str, metadata: pq.FileMetaData) -> None:
    """Raise SourceError for a file with dates before 1582 or times before 1900 that Spark converts.

    Other readers don't convert them, so answers and skipping would differ from Spark's. For most files the statistics
    show that there are no such values.
    """
    old_dates, old_int96 = has_old_dates(metadata.metadata), has_old_int96(metadata.metadata)
    for i in range(metadata.num_columns) if old_dates or old_int96 else ():
        column = metadata.schema.column(i)
        is_int96 = column.physical_type == "INT96"
        if not (old_int96 if is_int96 else old_dates):
            continue
        first = _FIRST_SECOND if is_int96 else _first_unconverted(column)
        chunks = (metadata.row_group(group).column(i) for group in range(metadata.num_row_groups))
        if first is not None and not all(_has_only_since(chunk, first) for chunk in chunks):
            raise SourceError(
                f"the source's file {path!r} was written by Spark before version 3. Its column {column.path!r} may "
                "have dates before 1582 or times before 1900, which only Spark reads correctly; rewrite the file"
            )


def _first_unconverted(column: Any) -> int | None:
    """Return the least stored number that Spark does not convert; None if it converts none."""
    kind = column.logical_type.type
    if kind == "DATE":
        return _FIRST_DAY
    if kind != "TIMESTAMP":
        return None
    return _FIRST_SECOND * _UNITS_PER_SECOND[json.loads(column.logical_type.to_json())["timeUnit"]]


def _has_only_since(chunk: pq.ColumnChunkMetaData, first: int) -> bool:
    """Return whether no value of a column chunk is less than ``first``, by its statistics."""
    statistics = chunk.statistics
    if statistics is None:
        return not chunk.num_values
    if statistics.has_min_max:
        return bool(statistics.min_raw >= first)
    return bool(statistics.has_null_count and statistics.null_count == chunk.num_values)
