"""Files of an older Spark, whose days before 1582 and times before 1900 nobody but Spark reads as what they mean."""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow.parquet as pq

from layoutopt.errors import SourceError
from layoutopt.sources.calendars import has_old_dates, has_old_int96

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
