"""A part of a source's rows that one task reads, and the one Arrow reader of it, whatever wrote the files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import DataFileError, NeedsSparkError
from layoutopt.evaluation.arrow_types import any_arrow_type
from layoutopt.external.listing import to_arrow_constant
from layoutopt.external.snapshot import SnapshotFile
from layoutopt.external.source_files import file_of_source
from layoutopt.external.whole_files import damaged_page, is_checksum_failure
from layoutopt.model.schema import Column, Schema
from layoutopt.scan.files import read_files, read_source_columns
from layoutopt.scan.segments import FileRead

# A position in a source is the number of its file, shifted by so many bits, and the place among the file's live rows.
POSITION_BITS: Final = 40
_BATCH_BYTES: Final = 1 << 27  # of rows in memory that are read together
_BATCH_ROWS: Final = 1 << 20
_ROWS_AT_ONCE: Final = 1 << 13  # few, since decoding a dictionary column can expand it 1000 times


class Split(Protocol):
    """A part of a source's rows that one task reads; pickled to it."""

    @property
    def low(self) -> int:
        """The position in the source of the first live row; the others follow it."""
        ...

    @property
    def size(self) -> int:
        """The bytes of the rows."""
        ...

    @property
    def rows(self) -> int:
        """The number of live rows."""
        ...

    def read_rows(
        self, schema: Schema, names: Sequence[str], ends: tuple[int, int] | None = None, at_once: int | None = None
    ) -> Iterator[tuple[pa.Table, int]]:
        """Yield live rows in tables of about so many bytes, each with the position of its first row.

        Args:
            schema: the source's columns.
            names: those that are read.
            ends: rows at positions outside of ``[first, stop)`` may be left out; None reads all.
            at_once: the bytes.

        Raises:
            NeedsSparkError: a file can't be read, or was changed since its rows were counted.
            SourceError: a page is damaged.
            SchemaError: a time has nanoseconds, which tables can't store.
        """
        ...


@dataclass(frozen=True, eq=False)
class FileSplit:
    """Successive row groups of one file: a :class:`Split`.

    Attributes:
        file: its path, and the names and constants of the source's columns in it.
        read: its row groups, with their rows and those of them that are deleted.
        low, size: as of a split.
        spool: the files among which it is, if the rows were spooled: they have the types of the source then.
    """

    file: SnapshotFile
    read: FileRead
    low: int
    size: int
    spool: TableFiles | None = None

    @property
    def rows(self) -> int:
        """The number of live rows."""
        return sum(self.read.live_rows)

    def read_rows(
        self, schema: Schema, names: Sequence[str], ends: tuple[int, int] | None = None, at_once: int | None = None
    ) -> Iterator[tuple[pa.Table, int]]:
        """Yield live rows of the row groups that have some at positions ``[first, stop)``; None reads all."""
        starts = self.low + np.cumsum([0, *self.read.live_rows])
        first, stop = ends or (self.low, int(starts[-1]))
        groups = np.flatnonzero((starts[:-1] < stop) & (starts[1:] > first)).tolist()
        if not groups:
            return
        low = int(starts[groups[0]])
        with nullcontext() if self.spool is not None else _translate_errors(self.file.path):
            batches = self._read_groups(self.read.only(groups), schema, names)
            for rows in _combine_batches(batches, at_once or _BATCH_BYTES):
                yield rows, low
                low += rows.num_rows

    def _read_groups(self, read: FileRead, schema: Schema, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if self.spool is not None:
            return read_files(self.spool, [read], names, _ROWS_AT_ONCE)
        by_name = dict(zip(schema.names, self.file.stored, strict=True))
        stored = {name: place for name in names if (place := by_name[name]) is not None}
        files = file_of_source(self.file, schema)
        return read_source_columns(files, [read], names, stored, self.file.constants, _ROWS_AT_ONCE)


@dataclass(frozen=True, eq=False)
class ReadSplit:
    """Rows of one partition that a function reads: a :class:`Split` of rows in memory, or of a table's own rows.

    Attributes:
        read: returns the rows in some columns.
        low, size, rows: as of a split.
    """

    read: Callable[[Sequence[str]], pa.Table]
    low: int
    size: int
    rows: int

    def read_rows(
        self, schema: Schema, names: Sequence[str], ends: tuple[int, int] | None = None, at_once: int | None = None
    ) -> Iterator[tuple[pa.Table, int]]:
        """Yield all rows, unless none is at positions ``[first, stop)``; None reads all."""
        if ends is None or (self.low < ends[1] and ends[0] < self.low + self.rows):
            yield self.read(names), self.low


# Splits in the order of the source, with the live rows of each value of the partition column.
SplitCounts: TypeAlias = "tuple[tuple[Split, Mapping[PlainValue, int]], ...]"


@contextmanager
def _translate_errors(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, DataFileError, pa.ArrowException) as error:
        if is_checksum_failure(str(error)):
            raise damaged_page(path) from error
        raise NeedsSparkError(f"{path!r} can't be read without it ({error})") from error


def _combine_batches(batches: Iterable[pa.RecordBatch], at_once: int) -> Iterator[pa.Table]:
    pending: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in batches:
        pending.append(batch)
        size, rows = size + batch.nbytes, rows + batch.num_rows
        if size >= at_once or rows >= _BATCH_ROWS:
            yield pa.Table.from_batches(pending)
            pending, size, rows = [], 0, 0
    if pending:
        yield pa.Table.from_batches(pending)


def number_splits(
    counts: Iterable[tuple[FileSplit, Mapping[PlainValue, int]]],
) -> tuple[tuple[FileSplit, Mapping[PlainValue, int]], ...]:
    """Return splits, in the order of their files, with their positions in the source."""
    numbered, number, path = list[tuple[FileSplit, Mapping[PlainValue, int]]](), -1, ""
    low = 0
    for split, rows_by_value in counts:
        if split.file.path != path:
            number, path = number + 1, split.file.path
            low = number << POSITION_BITS
        numbered.append((replace(split, low=low), rows_by_value))
        low += split.rows
    return tuple(numbered)


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema in which rows are read."""
    return pa.schema([(column.name, any_arrow_type(column.type)) for column in schema.columns])


def plain_type(type: pa.DataType) -> pa.DataType:
    """Return the type of a partition column's plain values: days of a date, microseconds of a time, else the type."""
    if pa.types.is_timestamp(type):
        return pa.int64()
    return pa.int32() if pa.types.is_date(type) else type


def partition_value(file: SnapshotFile, schema: Schema, partition_by: str) -> tuple[PlainValue] | None:
    """Return the plain value of the partition column in all of a file's rows; None where the file stores it."""
    if partition_by not in file.constants:
        return None
    return (_to_plain(file.constants[partition_by], schema.find(partition_by)),)


@lru_cache(maxsize=1 << 14, typed=True)  # many files have one value
def _to_plain(constant: object, column: Column) -> PlainValue:
    value = to_arrow_constant(constant, column)
    plain: PlainValue = value.cast(plain_type(value.type)).as_py()
    return plain


def plain_partition_values(rows: pa.Table, partition_by: str) -> pa.Array:
    """Return the partition column as plain values."""
    column = rows[partition_by].combine_chunks()
    return column.cast(plain_type(column.type))


def encode_partitions(rows: pa.Table, partition_by: str) -> pa.DictionaryArray:
    """Return the partition column as a dictionary of plain values; NULL has a code too."""
    return plain_partition_values(rows, partition_by).dictionary_encode(null_encoding="encode")


def count_partitions(rows: pa.Table, partition_by: str) -> dict[PlainValue, int]:
    """Return the rows of each value of the partition column."""
    keys = encode_partitions(rows, partition_by)
    counted = keys.indices.value_counts()
    values = keys.dictionary.take(counted.field("values")).to_pylist()
    return dict(zip(values, counted.field("counts").to_pylist(), strict=True))
