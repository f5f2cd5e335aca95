"""Reading chosen row groups of one data file, after comparing it with what the catalog says of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.storage.footers import footer_digest, metadata_of, read_footer
from layoutopt.errors import DataFileError
from layoutopt.scan.segments import FileRead

BATCH_ROWS = 65_536
_OPEN_AT_ONCE = 8


def read_file(files: TableFiles, read: FileRead, names: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Batches of the named columns, in that order, from one file's chosen row groups.

    Raises:
        DataFileError: the file is missing or damaged, or holds something else than the catalog says.
    """
    if not read.row_groups:
        return
    found = 0
    try:
        with open_parquet(files, read.path, read.footer, remember=True) as parquet:
            check_row_groups(parquet, read)
            for batch in parquet.iter_batches(batch_rows, list(read.row_groups), columns=list(names)):
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
        source = files.open_input(path)
        metadata = None
        if footer is not None:
            metadata = files.footers.get(path, footer) if remember else None
            if metadata is None:
                found = checked_footer(source, path, footer)
                metadata = files.footers.put(path, footer, found) if remember else metadata_of(found)
        read_dictionary = None
        if coded is not None:
            metadata = metadata or pq.read_metadata(source)
            read_dictionary = coded(metadata)
        return pq.ParquetFile(
            source, metadata=metadata, read_dictionary=read_dictionary, page_checksum_verification=True
        )
    except FileNotFoundError as error:
        raise missing(path) from error
    except (pa.ArrowException, OSError) as error:
        raise damaged(path, error) from error


def checked_footer(source: pa.NativeFile, path: str, digest: str) -> bytes:
    """A data file's footer.

    Raises:
        DataFileError: it is not the one that was written.
        OSError: it can't be read.
    """
    try:
        footer = read_footer(source)
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
            with files.open_input(path) as source:
                checked_footer(source, path, digest)
        except FileNotFoundError as error:
            raise missing(path) from error
        except OSError as error:
            raise damaged(path, error) from error

    known = [(path, digest) for path, digest in reads if digest is not None]
    with ThreadPoolExecutor(_OPEN_AT_ONCE) as pool:
        for _ in pool.map(check, *zip(*known, strict=True)) if known else ():
            pass


def check_row_groups(parquet: pq.ParquetFile, read: FileRead) -> None:
    """Compares a file's footer with the catalog.

    Raises:
        DataFileError: a row group is missing or has another number of rows.
    """
    metadata = parquet.metadata
    for row_group, rows in zip(read.row_groups, read.rows, strict=True):
        actual = metadata.row_group(row_group).num_rows if row_group < metadata.num_row_groups else None
        if actual != rows:
            raise DataFileError(
                f"the data file {read.path!r} has {actual or 'no'} rows in row group {row_group}, not {rows}; "
                "load its partition again"
            )


def missing(path: str) -> DataFileError:
    """The error for a file that is not there."""
    return DataFileError(f"the data file {path!r} is missing; restore it or load its partition again")


def damaged(path: str, error: Exception) -> DataFileError:
    """The error for a file that can't be read, naming it and the cause in one line."""
    cause = " ".join(str(error).split())[:200]
    return DataFileError(f"the data file {path!r} is damaged ({cause}); restore it or load its partition again")
