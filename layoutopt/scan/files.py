"""Read chosen row groups of data files and compare them with the catalog.

External files are read under the source's column names and types, with constants and without deleted rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.storage.footers import UnknownFooterError, coded_columns, footer_digest, metadata_of, template_of
from layoutopt.catalog.storage.ranges import Window, bytes_of_chunks, map_ahead, windows_of
from layoutopt.catalog.storage.store_errors import find_refusal
from layoutopt.errors import DataFileError
from layoutopt.external.source_files import SourceFiles, external_files, stored_names, to_source_columns
from layoutopt.external.whole_files import ARROW_OPTIONS
from layoutopt.model.schema import PLACE
from layoutopt.scan.segments import FileRead

BATCH_ROWS = 65_536
_OPEN_AT_ONCE = 8
# For object stores: enough that neither decoding nor a request waits for the other; windows have some megabytes.
_FOOTERS_AHEAD = 8
_WINDOWS_AHEAD = 3


def read_files(
    files: TableFiles, reads: Sequence[FileRead], names: Sequence[str], batch_rows: int, coded: Collection[str] = ()
) -> Iterator[pa.RecordBatch]:
    """Return batches of some columns, in that order, from the chosen row groups of files, one file after the other.

    Deleted rows are left out. :data:`~layoutopt.model.schema.PLACE` is a row's place among all rows of the
    row groups of the files, deleted ones included. For object stores, footers and row groups are prefetched.

    Args:
        coded: columns to be returned as dictionaries, some of :func:`find_coded_columns`.

    Raises:
        DataFileError: a file is missing, damaged, or differs from the catalog.
    """
    if files.is_external:
        return _read_external(external_files(files), reads, names, batch_rows)
    return _read_stored(files, reads, names, batch_rows, coded)


def load_footer(files: TableFiles, read: FileRead) -> pq.FileMetaData:
    """Return a file's footer; raises as :func:`open_parquet`."""
    with open_parquet(files, read.path, read.footer, remember=True) as parquet:
        return parquet.metadata


def _read_stored(
    files: TableFiles, reads: Sequence[FileRead], names: Sequence[str], batch_rows: int, coded: Collection[str] = ()
) -> Iterator[pa.RecordBatch]:
    non_empty = [read for read in reads if read.row_groups]
    stored = [name for name in names if name != PLACE]
    if not stored:
        raise ValueError("places are read along with a column")
    if files.local_root is None:
        batches_by_file = _read_remote(files, non_empty, stored, batch_rows)
    else:
        batches_by_file = ((read, _read_local(files, read, stored, batch_rows, coded)) for read in non_empty)
    start = 0
    for read, batches in batches_by_file:
        yield from _drop_deleted(read, names, start, _check_batches(read, stored, batches))
        start += sum(read.rows)


def _drop_deleted(
    read: FileRead, names: Sequence[str], start: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the batches without deleted rows, with places counted from ``start`` if they are among the names."""
    alive, offset = read.alive(), 0
    for batch in batches:
        rows = batch.num_rows
        if PLACE in names:
            places = pa.array(np.arange(start + offset, start + offset + rows, dtype=np.int64))
            batch = batch.append_column(PLACE, places).select(list(names))
        yield batch if alive is None else batch.filter(pa.array(alive[offset : offset + rows]))
        offset += rows


def _read_remote(
    files: TableFiles, reads: Sequence[FileRead], names: Sequence[str], batch_rows: int
) -> Iterator[tuple[FileRead, Iterator[pa.RecordBatch]]]:
    """Yield each file's batches from an object store, prefetching footers and row groups."""
    footers = map_ahead(partial(_read_checked_footer, files), reads, _FOOTERS_AHEAD)
    windows = (
        (read, window)
        for read, metadata in zip(reads, footers, strict=True)
        for window in windows_of(files, read.path, metadata, read.row_groups, names)
    )
    fetched = map_ahead(partial(_fetch_window, files), windows, _WINDOWS_AHEAD)
    for read, file_windows in groupby(fetched, key=itemgetter(0)):
        yield read, _read_windows(files, file_windows, names, batch_rows)


def find_coded_columns(files: TableFiles, reads: Iterable[FileRead], names: Collection[str]) -> frozenset[str]:
    """Return the columns that are dictionary-encoded in all row groups; none for remote or external files."""
    coded = frozenset() if files.is_external else frozenset(names)
    for read in reads:
        if not coded or files.local_root is None or read.footer is None or read.chunks is not None:
            return frozenset()
        with translate_read_errors(read.path):
            metadata = _metadata(files, read.path, read.footer, remember=True)
        coded = coded.intersection(coded_columns(metadata, coded, read.row_groups))
    return coded


def _read_checked_footer(files: TableFiles, read: FileRead) -> pq.FileMetaData:
    with open_parquet(files, read.path, read.footer, remember=True) as parquet:
        check_row_groups(parquet.metadata, read)
        return parquet.metadata


def _fetch_window(files: TableFiles, item: tuple[FileRead, Window]) -> tuple[FileRead, Window, pa.NativeFile]:
    read, window = item
    with translate_read_errors(read.path):
        return read, window, window.open(files)


def _read_windows(
    files: TableFiles, windows: Iterable[tuple[FileRead, Window, pa.NativeFile]], names: Sequence[str], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    for _, window, source in windows:
        # No pre_buffer: Arrow would coalesce ranges that were not fetched.
        with pq.ParquetFile(
            source, metadata=window.metadata, pre_buffer=False, **ARROW_OPTIONS,
            decryption_properties=files.decryption(window.path),
        ) as parquet:  # fmt: skip
            yield from parquet.iter_batches(batch_rows, list(window.row_groups), columns=list(names))


def _read_external(
    files: SourceFiles, reads: Iterable[FileRead], names: Sequence[str], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield batches of columns of external files, in the source's types."""
    non_empty = [read for read in reads if read.row_groups]
    for (stored, constants), group in groupby(non_empty, lambda read: _resolve_columns(files, read, names)):
        same_columns = list(group)
        try:
            yield from read_source_columns(files, same_columns, names, dict(stored), dict(constants), batch_rows)
        except (DataFileError, pa.ArrowException) as error:
            raise _source_changed(files, same_columns, error) from error


def read_source_columns(
    files: SourceFiles,
    reads: Sequence[FileRead],
    names: Sequence[str],
    stored: Mapping[str, str],
    constants: Mapping[str, object],
    batch_rows: int,
) -> Iterator[pa.RecordBatch]:
    """Yield batches of a source's columns, without deleted rows, from files that store the same ones.

    ``stored`` and ``constants`` are as for :func:`~layoutopt.external.source_files.to_source_columns`.

    Raises:
        DataFileError: a file is missing or damaged, or has other rows than expected.
        SchemaError, pa.ArrowException: as there.
    """
    if stored:
        batches = _read_stored(files, reads, list(stored.values()), batch_rows)
    else:
        rows = sum(sum(read.live_rows) for read in reads)
        sizes = (min(batch_rows, rows - start) for start in range(0, rows, batch_rows))
        batches = (pa.RecordBatch.from_arrays([pa.nulls(size)], names=[""]) for size in sizes)
    for batch in batches:
        yield to_source_columns(batch, files.schema, names, stored, constants)


def _resolve_columns(
    files: SourceFiles, read: FileRead, names: Sequence[str]
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, Any], ...]]:
    """Return the columns that a file stores, with their names in it, and those that are constant in all its rows."""
    file = files.held[read.path]
    try:
        file_names = load_footer(files, read).schema.to_arrow_schema().names
    except DataFileError as error:
        raise _source_changed(files, [read], error) from error
    stored = stored_names(file, files.schema, file_names)
    constants = tuple((name, file.constants[name]) for name in names if name in file.constants)
    return tuple((name, stored[name]) for name in names if name in stored), constants


def _source_changed(files: SourceFiles, reads: Sequence[FileRead], error: Exception) -> DataFileError:
    text = " ".join(str(error).split())[:200]
    read = next((read for read in reads if read.path in text), reads[0])
    path = files.held[read.path].path
    return DataFileError(
        f"the source's file {path!r} is damaged, or was changed or removed while it was read "
        f"({text.replace(read.path, path)}); run the query again"
    )


def _read_local(
    files: TableFiles, read: FileRead, names: Sequence[str], batch_rows: int, coded: Collection[str]
) -> Iterator[pa.RecordBatch]:
    trimmed = _make_trimmed_footer(files, read, names)
    if trimmed is not None:
        with translate_read_errors(read.path):
            source = files.open_input(read.path)
        with pq.ParquetFile(source, metadata=trimmed, pre_buffer=False, **ARROW_OPTIONS) as parquet:
            yield from parquet.iter_batches(batch_rows)
        return
    with open_parquet(files, read.path, read.footer, remember=True, coded=lambda _: list(coded)) as parquet:
        check_row_groups(parquet.metadata, read)
        yield from parquet.iter_batches(batch_rows, list(read.row_groups), columns=list(names))


def _make_trimmed_footer(files: TableFiles, read: FileRead, names: Sequence[str]) -> pq.FileMetaData | None:
    """Return a footer of only the chunks that are read, without decoding the file's; None if it must be decoded."""
    if read.chunks is None or read.footer is None or files.decryption(read.path) is not None:
        return None
    try:
        template = files.templates.get((read.path, read.footer))
        if template is None:
            template = template_of(_check_footer(files, read.path, read.footer))
            files.templates.put((read.path, read.footer), template, size=1)
        return template.footer(names, read.chunks, read.rows)
    except UnknownFooterError:
        return None


def _check_batches(read: FileRead, names: Sequence[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches and fail if they don't have the rows that the catalog says."""
    rows = 0
    try:
        with translate_read_errors(read.path):
            for batch in batches:
                rows += batch.num_rows
                yield batch.select(list(names))
    except KeyError as error:
        raise damaged_file(read.path, error) from error
    if rows != sum(read.rows):
        raise DataFileError(
            f"the data file {read.path!r} has {rows} rows, expected {sum(read.rows)}; load its partition again"
        )


def open_parquet(
    files: TableFiles,
    path: str,
    footer: str | None = None,
    *,
    remember: bool = False,
    coded: Callable[[pq.FileMetaData], list[str]] | None = None,
) -> pq.ParquetFile:
    """Open a data file. Pages are checked as they are read.

    Args:
        footer: the digest that its footer must have, if known.
        remember: use the cached footer, or cache it.
        coded: returns the columns to read as dictionaries; all their pages must be so encoded.

    Raises:
        DataFileError: the file is missing, is not Parquet, or its footer was changed.
    """
    with translate_read_errors(path):
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


def _metadata(files: TableFiles, path: str, digest: str, remember: bool) -> pq.FileMetaData:
    cached = files.footers.get(path, digest) if remember else None
    if cached is not None:
        return cached
    footer = _check_footer(files, path, digest)
    decryption = files.decryption(path)
    return files.footers.put(path, digest, footer, decryption) if remember else metadata_of(footer, decryption)


def _check_footer(files: TableFiles, path: str, digest: str) -> bytes:
    """Return a data file's footer; raise DataFileError if it is missing or not the one that was written."""
    try:
        with translate_read_errors(path):
            footer = files.read_footer(path)
    except ValueError as error:
        raise damaged_file(path, error) from error
    if footer_digest(footer) != digest:
        raise damaged_file(path, ValueError("its footer is not the one that was written"))
    return footer


def check_footers(files: TableFiles, reads: Iterable[tuple[str, str | None]]) -> None:
    """Check the footers of files (path, digest) that another reader will read; files without digest pass."""

    known = [(path, digest) for path, digest in reads if digest is not None]
    with ThreadPoolExecutor(_OPEN_AT_ONCE) as pool:
        for _ in pool.map(partial(_check_footer, files), *zip(*known, strict=True)) if known else ():
            pass


def check_row_groups(metadata: pq.FileMetaData, read: FileRead) -> None:
    """Raise DataFileError if a row group is missing or has another number of rows than in the catalog."""
    for row_group, rows in zip(read.row_groups, read.rows, strict=True):
        actual = metadata.row_group(row_group).num_rows if row_group < metadata.num_row_groups else None
        if actual != rows:
            raise DataFileError(
                f"the data file {read.path!r} has {actual or 'no'} rows in row group {row_group}, expected {rows}; "
                "load its partition again"
            )


@contextmanager
def translate_read_errors(path: str) -> Iterator[None]:
    """Raise the errors of reading a data file as layoutopt's.

    Raises:
        DataFileError: the file is missing, or the bytes that were read are wrong.
        StoreError: the store or the disk refused it.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise DataFileError(
            f"the data file {path!r} is missing; open the table again if a vacuum ran since it was opened, otherwise "
            "restore the file or load its partition again"
        ) from error
    except (pa.ArrowException, OSError) as error:
        raise find_refusal(path, error) or damaged_file(path, error) from error


def damaged_file(path: str, error: Exception) -> DataFileError:
    """Return the error for a file whose bytes are wrong, with the cause in one line."""
    cause = " ".join(str(error).split())[:200]
    return DataFileError(f"the data file {path!r} is damaged ({cause}); restore it or load its partition again")
