"""Reading chosen row groups of data files, after comparing them with what the catalog says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.storage.footers import UnknownFooterError, coded_columns, footer_digest, metadata_of, template_of
from layoutopt.catalog.storage.prefetch import Window, made_ahead, windows_of
from layoutopt.catalog.storage.ranges import bytes_of_chunks
from layoutopt.errors import DataFileError
from layoutopt.external.listing import constant
from layoutopt.external.source_files import SourceFiles, stored_names
from layoutopt.model.arrays import Ints
from layoutopt.model.schema import PLACE
from layoutopt.scan.arrow_types import any_arrow_type
from layoutopt.scan.segments import FileRead
from layoutopt.sources.whole_files import ARROW_OPTIONS

# ----------------------------------------------------------------------------------------------------
# Rows of a source's files: under its columns' names and types, with constants, and without those deleted.

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


BATCH_ROWS = 65_536
_OPEN_AT_ONCE = 8
# Of an object store: enough that neither decoding nor a request waits for the other; windows have some megabytes.
_FOOTERS_AHEAD = 8
_WINDOWS_AHEAD = 3

_OfFiles = Iterator[tuple[FileRead, Iterator[pa.RecordBatch]]]


def read_files(
    files: TableFiles,
    reads: Sequence[FileRead],
    names: Sequence[str],
    batch_rows: int,
    coded: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Batches of the named columns, in that order, from the chosen row groups of some files, one after the other.

    Deleted rows are left out. Where :data:`~layoutopt.model.schema.PLACE` is named, it is a row's place among all rows
    of the row groups of the files, deleted ones counted. Of an object store footers and row groups are read ahead,
    while others are decoded.

    Args:
        files: the table's files.
        reads: the files' row groups.
        names: the columns.
        batch_rows: rows of a batch, at most.
        coded: columns to be given as dictionaries and codes, some of :func:`coded_in_all`.

    Raises:
        DataFileError: a file is missing or damaged, or holds something else than the catalog says.
    """
    if isinstance(files, SourceFiles):
        stored = partial(_read_stored, files, batch_rows=batch_rows)
        return source_batches(files, reads, names, batch_rows, partial(footer_of, files), stored)
    return _read_stored(files, reads, names, batch_rows, coded)


def footer_of(files: TableFiles, read: FileRead) -> pq.FileMetaData:
    """A file's footer, as the catalog knows it; raises as :func:`open_parquet`."""
    with open_parquet(files, read.path, read.footer, remember=True) as parquet:
        return parquet.metadata


def _read_stored(
    files: TableFiles,
    reads: Sequence[FileRead],
    names: Sequence[str],
    batch_rows: int,
    coded: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    wanted = [read for read in reads if read.row_groups]
    stored = [name for name in names if name != PLACE]
    if not stored:
        raise ValueError("places are read along with a column")
    found = _of_local(files, wanted, stored, batch_rows, coded) if files.local_root is not None else None
    start = 0
    for read, batches in found or _of_store(files, wanted, stored, batch_rows):
        yield from _alive(read, names, start, _checked(read, stored, batches))
        start += sum(read.rows)


def _alive(
    read: FileRead, names: Sequence[str], start: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The batches without deleted rows, with their rows' places from ``start`` on where these are named."""
    alive, at = read.alive(), 0
    for found in batches:
        batch, rows = found, found.num_rows
        if PLACE in names:
            places = pa.array(np.arange(start + at, start + at + rows, dtype=np.int64))
            batch = batch.append_column(PLACE, places).select(list(names))
        yield batch if alive is None else batch.filter(pa.array(alive[at : at + rows]))
        at += rows


def _of_local(
    files: TableFiles, wanted: Sequence[FileRead], names: Sequence[str], batch_rows: int, coded: Collection[str]
) -> _OfFiles:
    return ((read, _local_batches(files, read, names, batch_rows, coded)) for read in wanted)


def _of_store(files: TableFiles, wanted: Sequence[FileRead], names: Sequence[str], batch_rows: int) -> _OfFiles:
    """Of an object store: footers and row groups are read ahead."""
    opened = made_ahead(partial(_row_groups_of, files), wanted, _FOOTERS_AHEAD)
    windows = (
        (read, window)
        for read, metadata in zip(wanted, opened, strict=True)
        for window in windows_of(files, read.path, metadata, read.row_groups, names)
    )
    fetched = made_ahead(partial(_fetched, files), windows, _WINDOWS_AHEAD)
    for read, of_file in groupby(fetched, key=itemgetter(0)):
        yield read, _fetched_batches(files, of_file, names, batch_rows)


def coded_in_all(files: TableFiles, reads: Iterable[FileRead], names: Collection[str]) -> frozenset[str]:
    """The named columns that all row groups to read have as dictionaries and codes; none of a store's or others' files.

    Raises:
        DataFileError: a file is missing or damaged.
    """
    coded = frozenset() if isinstance(files, SourceFiles) else frozenset(names)
    for read in reads:
        if not coded or files.local_root is None or read.footer is None or read.chunks is not None:
            return frozenset()
        try:
            metadata = _metadata(files, read.path, read.footer, remember=True)
        except FileNotFoundError as error:
            raise missing(read.path) from error
        except (pa.ArrowException, OSError) as error:
            raise damaged(read.path, error) from error
        coded = coded.intersection(coded_columns(metadata, coded, read.row_groups))
    return coded


def _row_groups_of(files: TableFiles, read: FileRead) -> pq.FileMetaData:
    """A file's footer, compared with the catalog."""
    with open_parquet(files, read.path, read.footer, remember=True) as parquet:
        check_row_groups(parquet.metadata, read)
        return parquet.metadata


def _fetched(files: TableFiles, item: tuple[FileRead, Window]) -> tuple[FileRead, Window, pa.NativeFile]:
    read, window = item
    try:
        return read, window, window.open(files)
    except FileNotFoundError as error:
        raise missing(read.path) from error
    except OSError as error:
        raise damaged(read.path, error) from error


def _fetched_batches(
    files: TableFiles, of_file: Iterable[tuple[FileRead, Window, pa.NativeFile]], names: Sequence[str], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    for _, window, source in of_file:
        # Arrow would read other gaps through than those that are here.
        with pq.ParquetFile(
            source, metadata=window.metadata, pre_buffer=False, **ARROW_OPTIONS,
            decryption_properties=files.decryption(window.path),
        ) as parquet:  # fmt: skip
            yield from parquet.iter_batches(batch_rows, list(window.row_groups), columns=list(names))


def _local_batches(
    files: TableFiles, read: FileRead, names: Sequence[str], batch_rows: int, coded: Collection[str]
) -> Iterator[pa.RecordBatch]:
    trimmed = _trimmed_footer(files, read, names)
    if trimmed is not None:
        try:
            source = files.open_input(read.path)
        except FileNotFoundError as error:
            raise missing(read.path) from error
        with pq.ParquetFile(source, metadata=trimmed, pre_buffer=False, **ARROW_OPTIONS) as parquet:
            yield from parquet.iter_batches(batch_rows)
        return
    with open_parquet(files, read.path, read.footer, remember=True, coded=lambda _: list(coded)) as parquet:
        check_row_groups(parquet.metadata, read)
        yield from parquet.iter_batches(batch_rows, list(read.row_groups), columns=list(names))


def _trimmed_footer(files: TableFiles, read: FileRead, names: Sequence[str]) -> pq.FileMetaData | None:
    """A footer of the chunks that are read alone, made without decoding the file's; None where that is decoded.

    Raises:
        DataFileError: the file's footer is not the one that was written.
    """
    if read.chunks is None or read.footer is None or files.decryption(read.path) is not None:
        return None
    try:
        template = files.templates.get((read.path, read.footer))
        if template is None:
            template = template_of(_checked_footer(files, read.path, read.footer))
            files.templates.put((read.path, read.footer), template, size=1)
        return template.footer(names, read.chunks, read.rows)
    except UnknownFooterError:
        return None
    except FileNotFoundError as error:
        raise missing(read.path) from error


def _checked(read: FileRead, names: Sequence[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches; fails where they are not the rows that the catalog says."""
    found = 0
    try:
        for batch in batches:
            found += batch.num_rows
            yield batch.select(list(names))
    except (pa.ArrowException, OSError, KeyError) as error:
        raise damaged(read.path, error) from error
    if found != sum(read.rows):
        raise DataFileError(
            f"the data file {read.path!r} gave {found} rows, not {sum(read.rows)}; load its partition again"
        )


def open_parquet(
    files: TableFiles,
    path: str,
    footer: str | None = None,
    *,
    remember: bool = False,
    coded: Callable[[pq.FileMetaData], list[str]] | None = None,
) -> pq.ParquetFile:
    """A data file, opened. Pages are checked as they are read.

    Args:
        files: the table's files.
        path: the file.
        footer: the digest that its footer must have, if one is known.
        remember: take the footer as it was read before, and remember it for next time.
        coded: which columns to read as dictionaries; all their pages must be so encoded.

    Raises:
        DataFileError: it is missing, or no Parquet file, or its footer was changed.
    """
    try:
        metadata = None if footer is None else _metadata(files, path, footer, remember)
        known = metadata is not None and files.local_root is None
        source = files.open_input(path, bytes_of_chunks(metadata) if known else None)
        read_dictionary = None
        if coded is not None:
            metadata = metadata or pq.read_metadata(source, decryption_properties=files.decryption(path))
            read_dictionary = coded(metadata)
        return pq.ParquetFile(
            source, metadata=metadata, read_dictionary=read_dictionary, **ARROW_OPTIONS,
            pre_buffer=files.local_root is None, decryption_properties=files.decryption(path),
        )  # fmt: skip
    except FileNotFoundError as error:
        raise missing(path) from error
    except (pa.ArrowException, OSError) as error:
        raise damaged(path, error) from error


def _metadata(files: TableFiles, path: str, digest: str, remember: bool) -> pq.FileMetaData:
    kept = files.footers.get(path, digest) if remember else None
    if kept is not None:
        return kept
    found = _checked_footer(files, path, digest)
    decryption = files.decryption(path)
    return files.footers.put(path, digest, found, decryption) if remember else metadata_of(found, decryption)


def _checked_footer(files: TableFiles, path: str, digest: str) -> bytes:
    """A data file's footer.

    Raises:
        DataFileError: it is not the one that was written.
        OSError: it can't be read.
    """
    try:
        footer = files.read_footer(path)
    except ValueError as error:
        raise damaged(path, error) from error
    if footer_digest(footer) != digest:
        raise damaged(path, ValueError("its footer is not the one that was written"))
    return footer


def check_footers(files: TableFiles, reads: Iterable[tuple[str, str | None]]) -> None:
    """Compare the footers of files, by path and digest, that somebody else will read; files without one are passed.

    Raises:
        DataFileError: one is missing, or was changed.
    """

    def check(path: str, digest: str) -> None:
        try:
            _checked_footer(files, path, digest)
        except FileNotFoundError as error:
            raise missing(path) from error
        except OSError as error:
            raise damaged(path, error) from error

    known = [(path, digest) for path, digest in reads if digest is not None]
    with ThreadPoolExecutor(_OPEN_AT_ONCE) as pool:
        for _ in pool.map(check, *zip(*known, strict=True)) if known else ():
            pass


def check_row_groups(metadata: pq.FileMetaData, read: FileRead) -> None:
    """Compares a file's footer with the catalog.

    Raises:
        DataFileError: a row group is missing or has another number of rows.
    """
    for row_group, rows in zip(read.row_groups, read.rows, strict=True):
        actual = metadata.row_group(row_group).num_rows if row_group < metadata.num_row_groups else None
        if actual != rows:
            raise DataFileError(
                f"the data file {read.path!r} has {actual or 'no'} rows in row group {row_group}, not {rows}; "
                "load its partition again"
            )


def missing(path: str) -> DataFileError:
    """The error for a file that is not there."""
    return DataFileError(
        f"the data file {path!r} is missing; open the table again where a vacuum has passed since it was opened, else "
        "restore the file or load its partition again"
    )


def damaged(path: str, error: Exception) -> DataFileError:
    """The error for a file that can't be read, naming it and the cause in one line."""
    cause = " ".join(str(error).split())[:200]
    return DataFileError(f"the data file {path!r} is damaged ({cause}); restore it or load its partition again")
