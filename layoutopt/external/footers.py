"""Footers of a source's files: which columns a file holds, under which names and types."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog.storage.footers import footer_digest, metadata_of
from layoutopt.errors import LayoutoptError, SchemaError, SourceError
from layoutopt.external.listing import Listed
from layoutopt.external.source_files import SourceFiles, file_key
from layoutopt.model.schema import Column
from layoutopt.model.types import INTEGER_BITS, is_padded
from layoutopt.sources.snapshot import has_old_dates, has_old_int96
from layoutopt.sql.schema import arrow_schema_of, arrow_type_name, collations_of

# ----------------------------------------------------------------------------------------------------
# Files of an older Spark, whose days before 1582 and times before 1900 nobody but Spark reads as what they mean.

_FIRST_DAY: Final = -141_427
"""Days from 1970-01-01 to 1582-10-15, from which on all calendars agree."""
_FIRST_SECOND: Final = -2_208_988_800
"""Seconds from 1970-01-01 to 1900-01-01, before which Spark moves times."""
_A_SECOND: Final = {"milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}


def check_calendar(path: str, metadata: pq.FileMetaData) -> None:
    """Refuse a file with values that Spark moves when it reads them.

    Answers are found by other readers, which don't, so neither they nor what they would skip were Spark's. Of most
    files the statistics say that there is no such value.

    Args:
        path: the file's, for messages.
        metadata: its footer.

    Raises:
        SourceError: it has such values, or may have.
    """
    old_dates, old_int96 = has_old_dates(metadata.metadata), has_old_int96(metadata.metadata)
    for i in range(metadata.num_columns) if old_dates or old_int96 else ():
        column = metadata.schema.column(i)
        is_int96 = column.physical_type == "INT96"
        if not (old_int96 if is_int96 else old_dates):
            continue
        first = _FIRST_SECOND if is_int96 else _first_unmoved(column)
        chunks = (metadata.row_group(group).column(i) for group in range(metadata.num_row_groups))
        if first is not None and not all(_is_since(chunk, first) for chunk in chunks):
            raise SourceError(
                f"the source's file {path!r} is of a Spark before version 3, and its column {column.path!r} may have "
                "dates before 1582 or times before 1900, which only Spark reads as they were meant; write it anew"
            )


def _first_unmoved(column: Any) -> int | None:
    """The least stored number of a column that means the same to all; None where all do."""
    kind = column.logical_type.type
    if kind == "DATE":
        return _FIRST_DAY
    if kind != "TIMESTAMP":
        return None
    return _FIRST_SECOND * _A_SECOND[json.loads(column.logical_type.to_json())["timeUnit"]]


def _is_since(chunk: pq.ColumnChunkMetaData, first: int) -> bool:
    """Whether no value of a column chunk is less, by its statistics."""
    found = chunk.statistics
    if found is None:
        return not chunk.num_values
    if found.has_min_max:
        return bool(found.min_raw >= first)
    return bool(found.has_null_count and found.null_count == chunk.num_values)


_AT_ONCE: Final = 16
_DECLARED: Final = re.compile(rb'CHAR_VARCHAR_TYPE_STRING"\s*:\s*"([^"]*)"')  # types of texts, as Spark keeps them


@dataclass(frozen=True, eq=False)
class Footer:
    """A file's footer: the file, and the digest and content of its end."""

    listed: Listed
    digest: str
    metadata: pq.FileMetaData

    @property
    def key(self) -> str:
        """The file's."""
        return file_key(self.listed.file.path)

    @cached_property
    def arrow(self) -> pa.Schema:
        """The columns that the file holds."""
        return arrow_schema_of(self.metadata.schema)

    def columns(self) -> tuple[Column, ...]:
        """The columns that the file holds, by Spark's types.

        Raises:
            SchemaError: a type can't be read; names the file.
        """
        path = self.listed.file.path
        declared = _DECLARED.findall(b" ".join((self.metadata.metadata or {}).values()))
        if padded := [type for type in declared if is_padded(type.decode())]:
            raise SchemaError(
                f"the source's file {path!r} has a column of {padded[0].decode()}, whose texts Spark pads with blanks: "
                "write it as a string to have it indexed"
            )
        try:
            collated = collations_of(self.arrow)
            return tuple(Column(f.name, arrow_type_name(f.type, collated.get(f.name, {}), f.name)) for f in self.arrow)
        except SchemaError as error:
            raise SchemaError(f"the source's file {path!r} can't be indexed: {error}") from error


def read_footers(files: SourceFiles, listed: Iterable[Listed]) -> list[Footer]:
    """The footers of some files, in their order.

    Raises:
        SourceError: a file is gone, is no Parquet, or may have days of the calendar before 1582.
    """

    def read(one: Listed) -> Footer:
        key = file_key(one.file.path)
        try:
            footer = files.read_footer(key)
            metadata = metadata_of(footer)
            check_calendar(one.file.path, metadata)
            return Footer(one, footer_digest(footer), metadata)
        except LayoutoptError:
            raise
        except (OSError, ValueError, pa.ArrowException) as error:
            raise SourceError(
                f"the source's file {one.file.path!r} can't be read ({error}); try again when nobody changes the source"
            ) from error

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(read, listed))


def merged_columns(columns: Iterable[Column], footers: Iterable[Footer]) -> tuple[Column, ...]:
    """Some columns and those that files hold; a column has the type that holds all that is found of it.

    Raises:
        SchemaError: two types have none in common; names a file.
    """
    found = {column.name.lower(): column for column in columns}
    for footer in footers:
        for column in footer.columns():
            known = found.setdefault(column.name.lower(), column)
            type = _wider(known.type, column.type)
            if type is None:
                raise SchemaError(
                    f"the column {known.name!r} is {known.type} in other files of the source, but {column.type} in "
                    f"{footer.listed.file.path!r}; write one of them anew"
                )
            found[column.name.lower()] = Column(known.name, type)
    return tuple(found.values())


def _wider(first: str, second: str) -> str | None:
    """The type that holds values of both; None where there is none.

    >>> _wider("int", "bigint"), _wider("double", "float"), _wider("int", "string")
    ('bigint', 'double', None)
    """
    if first == second:
        return first
    for kinds in (tuple(INTEGER_BITS), ("float", "double")):
        if first in kinds and second in kinds:
            return max(first, second, key=kinds.index)
    return None
