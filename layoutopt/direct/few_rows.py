"""The few rows of a source of plain Parquet, read in this process just as Spark would read them, or not at all.

What is not surely read alike, folders of partitions too, raises :class:`~layoutopt.errors.NeedsSparkError` before
anything is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.direct.plain_parquet import (
    arrow_schema,
    check_path,
    coded_partitions,
    local_root,
    open_plain,
    shown_in,
    typed,
)
from layoutopt.errors import NeedsSparkError
from layoutopt.model.arrays import Ints
from layoutopt.model.schema import Schema
from layoutopt.sources.partitions import SourceFile, SourcePartition

MOST_ROWS: Final = 100_000
"""Of more rows a Spark job is no longer what takes longest."""

MOST_BYTES: Final = 1 << 28
"""Of rows in memory, as Arrow has them."""

MOST_PARTITIONS: Final = 32
"""Of more partitions Spark writes several at once."""

_ROWS_AT_ONCE: Final = 1024


@dataclass(frozen=True, eq=False)
class FewRows:
    """Rows that were read.

    Attributes:
        rows: under the schema's columns, in the order of files' paths and of their rows.
        counted: how many the footers say that there are.
        partitions: those that the rows lie in, each with the files that have rows of it, NULL first.
        places: of each partition the places of its rows, ``int64[k]``, by its value.
    """

    rows: pa.Table
    counted: int
    partitions: tuple[SourcePartition, ...]
    places: Mapping[PlainValue, Ints]


def read_few_rows(source: str, schema: Schema, partition_by: str | None) -> FewRows:
    """Read a source.

    Args:
        source: a path.
        schema: the columns that it has to have.
        partition_by: the partition column, None for none.

    Raises:
        NeedsSparkError: it has no rows, too many, or Spark might read it otherwise.
    """
    try:
        files = [(path, _source_file(path)) for path in _paths(source)]
    except OSError as error:
        raise NeedsSparkError(f"{source!r} can't be looked at without it ({error})") from error
    tables: list[pa.Table] = []
    counted = taken = 0
    for path, file in files:
        tables.append(_read(path, schema, MOST_ROWS - counted, MOST_BYTES - taken))
        try:
            changed = _source_file(path) != file
        except OSError as error:
            raise NeedsSparkError(f"{str(path)!r} can't be looked at without it ({error})") from error
        counted += tables[-1].num_rows
        taken += tables[-1].nbytes
        if changed:
            raise NeedsSparkError(f"{str(path)!r} is being changed")
    if not counted:
        raise NeedsSparkError(f"{source!r} has no rows")
    rows = pa.concat_tables(tables)
    file_of = np.repeat(np.arange(len(files)), [table.num_rows for table in tables])
    places = dict(_places(rows, partition_by))
    partitions = tuple(
        SourcePartition(value, tuple(files[number][1] for number in np.unique(file_of[at]).tolist()), len(at))
        for value, at in places.items()
    )
    return FewRows(rows, counted, partitions, places)


def _paths(source: str) -> list[Path]:
    """The files of a source, sorted: one, or those of a folder that has no folders."""
    shown = shown_in(local_root(source))
    for path in shown:
        check_path(path)
    return shown


def _source_file(path: Path) -> SourceFile:
    """The file as Spark tells of it: to the millisecond."""
    status = path.stat()
    return SourceFile(f"file:{path}", status.st_size, status.st_mtime_ns // 1_000_000 * 1_000)


def _read(path: Path, schema: Schema, most: int, room: int) -> pa.Table:
    """All rows of a file, with its footer's word for how many they are."""
    columns = arrow_schema(schema)
    with open_plain(path, schema) as file:
        if file.metadata.num_rows > most:
            raise NeedsSparkError(f"there are more than {MOST_ROWS} rows")
        parts, taken = [], 0
        # Few at a time: what a dictionary has once takes a thousand times more where it is spelled out.
        for batch in file.iter_batches(_ROWS_AT_ONCE):
            parts.append(typed(pa.Table.from_batches([batch]), columns))
            taken += parts[-1].nbytes
            if taken > room:
                raise NeedsSparkError(f"the rows of {str(path)!r} and those before take more than {MOST_BYTES} bytes")
        rows = pa.concat_tables([columns.empty_table(), *parts]).combine_chunks()
        if rows.num_rows != file.metadata.num_rows:
            raise NeedsSparkError(f"{str(path)!r} has other rows than its footer says")
        return rows


def _places(rows: pa.Table, partition_by: str | None) -> Iterator[tuple[PlainValue, Ints]]:
    """The partitions' values, plain, with the places of their rows; NULL first, then in order."""
    if partition_by is None:
        yield None, np.arange(rows.num_rows)
        return
    coded = coded_partitions(rows, partition_by)
    try:
        values: list[Any] = coded.dictionary.to_pylist()
    except UnicodeDecodeError as error:
        raise NeedsSparkError("a partition's value is no UTF-8") from error
    if len(values) > MOST_PARTITIONS:
        raise NeedsSparkError(f"there are more than {MOST_PARTITIONS} partitions")
    codes = np.asarray(coded.indices)
    null = [code for code, value in enumerate(values) if value is None]
    known = [code for code, value in enumerate(values) if value is not None]
    for code in (*null, *sorted(known, key=values.__getitem__)):
        yield values[code], np.flatnonzero(codes == code)
