"""Rows of a source's files: under its columns' names and types, with constants, and without those deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import DataFileError
from layoutopt.foreign.folder_values import constant
from layoutopt.foreign.source_files import SourceFiles, stored_names
from layoutopt.model.arrays import Ints
from layoutopt.scan.arrow_types import any_arrow_type
from layoutopt.scan.segments import FileRead

ReadStored = Callable[[Sequence[FileRead], Sequence[str]], Iterator[pa.RecordBatch]]
"""Reads columns of files by the names that they have there."""
FooterOf = Callable[[FileRead], pq.FileMetaData]


def source_batches(
    files: SourceFiles,
    reads: Iterable[FileRead],
    names: Sequence[str],
    batch_rows: int,
    footer_of: FooterOf,
    read_stored: ReadStored,
) -> Iterator[pa.RecordBatch]:
    """Batches of the named columns, in the source's types; deleted rows are among them.

    Args:
        files: the source's.
        reads: what to read of them.
        names: the columns, by the source's names.
        batch_rows: rows of a batch.
        footer_of: gives a file's footer.
        read_stored: reads what files hold.

    Raises:
        DataFileError: a file is gone or was changed since it was listed, or holds values of another type.
    """
    wanted = [read for read in reads if read.row_groups]
    for (stored, constants), group in groupby(wanted, lambda read: _held_by(files, read, names, footer_of)):
        same = list(group)
        try:
            if stored:
                batches = read_stored(same, [name for _, name in stored])
            else:
                batches = _without_columns(sum(sum(read.rows) for read in same), batch_rows)
            for batch in batches:
                yield _as_asked(batch, files, names, dict(stored), dict(constants))
        except (DataFileError, pa.ArrowException) as error:
            raise _changed(files, same, error) from error


def _held_by(
    files: SourceFiles, read: FileRead, names: Sequence[str], footer_of: FooterOf
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, Any], ...]]:
    """What a file holds of some columns, by their names there, and what is the same in all its rows."""
    file = files.held[read.path]
    try:
        held = footer_of(read).schema.to_arrow_schema().names
    except DataFileError as error:
        raise _changed(files, [read], error) from error
    stored = stored_names(file, files.schema, held)
    constants = tuple((name, file.constants[name]) for name in names if name in file.constants)
    return tuple((name, stored[name]) for name in names if name in stored), constants


def _without_columns(rows: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows, batch_rows):
        yield pa.RecordBatch.from_arrays([pa.nulls(min(batch_rows, rows - start))], names=[""])


def _as_asked(
    batch: pa.RecordBatch,
    files: SourceFiles,
    names: Sequence[str],
    stored: Mapping[str, str],
    constants: Mapping[str, Any],
) -> pa.RecordBatch:
    arrays = []
    for name in names:
        column = files.schema.find(name)
        type = any_arrow_type(column.type)
        if name in stored:
            held = batch.column(stored[name])
            arrays.append(held if held.type == type else held.cast(type))
        else:
            arrays.append(pa.repeat(constant(constants.get(name), column, type), batch.num_rows))
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def _changed(files: SourceFiles, reads: Sequence[FileRead], error: Exception) -> DataFileError:
    """The error for what can't be read as it was listed."""
    text = " ".join(str(error).split())[:200]
    read = next((read for read in reads if read.path in text), reads[0])
    path = files.held[read.path].path
    return DataFileError(
        f"the source's file {path!r} is damaged, or was changed or removed while it was read "
        f"({text.replace(read.path, path)}); ask again"
    )


def live_batches(
    files: TableFiles,
    reads: Sequence[FileRead],
    footer_of: FooterOf,
    read_files: Callable[[Sequence[FileRead]], Iterator[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """What is read of files, without the rows that a source's metadata says were deleted."""
    for has_deleted, group in groupby(reads, lambda read: _deleted(files, read) is not None):
        if not has_deleted:
            yield from read_files(list(group))
            continue
        for read in group:
            deleted = _deleted(files, read)
            assert deleted is not None, "just looked"
            for place, first in enumerate(_first_rows(read, footer_of)):
                one = replace(read, row_groups=(read.row_groups[place],), rows=(read.rows[place],))
                for batch in read_files([one]):
                    gone = deleted[(deleted >= first) & (deleted < first + batch.num_rows)] - first
                    alive = np.ones(batch.num_rows, dtype=np.bool_)
                    alive[gone] = False
                    first += batch.num_rows
                    yield batch.filter(pa.array(alive))


def live_rows(files: TableFiles, read: FileRead, footer_of: FooterOf) -> int:
    """How many of the rows to be read of a file were not deleted."""
    deleted = _deleted(files, read)
    if deleted is None:
        return sum(read.live_rows)
    inside = [
        np.count_nonzero((deleted >= first) & (deleted < first + rows))
        for first, rows in zip(_first_rows(read, footer_of), read.rows, strict=True)
    ]
    return sum(read.rows) - int(sum(inside))


def _deleted(files: TableFiles, read: FileRead) -> Ints | None:
    return files.held[read.path].deleted if isinstance(files, SourceFiles) else None


def _first_rows(read: FileRead, footer_of: FooterOf) -> list[int]:
    """The position in the file of each row group's first row."""
    footer = footer_of(read)
    sizes = [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
    return [sum(sizes[:group]) for group in read.row_groups]
