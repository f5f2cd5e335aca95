"""Reading surviving row groups as Arrow batches, in bounded memory.

A scan is a list of segments; each is read and handed on before the next, so that memory follows the size of a batch
where one layout is read, and of a segment where rows are put together from several (Sun 2017, 5.6). Within a segment
only the row groups that pruning left are opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.storage.footers import footer_digest, metadata_of, read_footer
from layoutopt.errors import DataFileError
from layoutopt.model.predicates import TRUE, Node
from layoutopt.model.schema import Column
from layoutopt.scan.arrow_types import arrow_type, conform, nested_type

TID = "_tid"
BLOCK = "_block"
ROWS_ONLY = "_rows"
"""The stand-in column of a scan that reads no column: engines count its rows."""

BATCH_ROWS = 65_536
_OPEN_AT_ONCE = 8


@dataclass(frozen=True)
class FileRead:
    """The row groups of one file to read, ascending, with the rows that the catalog says each holds.

    ``footer`` is the digest of the file's footer, None where the catalog has none.
    """

    path: str
    row_groups: tuple[int, ...]
    rows: tuple[int, ...]
    footer: str | None = None


@dataclass(frozen=True)
class LayoutRead:
    """What is read of one layout in one segment: these columns of these row groups."""

    layout: int
    columns: tuple[str, ...]
    files: tuple[FileRead, ...]


@dataclass(frozen=True)
class SegmentRead:
    """One segment's part of a scan; more than one layout means that rows are put together by tid."""

    partition: str
    segment: int
    layouts: tuple[LayoutRead, ...]


def read_segments(
    files: TableFiles,
    segments: Sequence[SegmentRead],
    columns: Sequence[Column],
    batch_rows: int = BATCH_ROWS,
    condition: Node = TRUE,
    checked: bool | None = None,
) -> Iterator[pa.RecordBatch]:
    """The surviving rows, segment by segment, as batches of at most ``batch_rows`` rows.

    Args:
        files: the table's files.
        segments: what pruning left.
        columns: the columns wanted, in order; none means one column :data:`ROWS_ONLY` with the right number of rows.
        batch_rows: rows of a batch, which bounds memory where a single layout is read.
        condition: rows for which it is not TRUE may be left out, which saves reading where there are several layouts.
        checked: whether to prove that no other rows are; by default where this process checks skipping.

    Raises:
        DataFileError: a file is missing or damaged, or holds something else than the catalog says.
        SkippingError: it is checked, and other rows are left out.
    """
    from layoutopt.scan.checking import decisions as shadow
    from layoutopt.scan.reconstruct import read_rows_by_tid

    checked = shadow.is_on() if checked is None else checked
    for segment in segments:
        if not columns:
            yield from _count_only(segment, batch_rows)
            continue
        # Columns that came after the segment's plan are in none of its layouts: NULL in every row.
        held = {name for layout in segment.layouts for name in layout.columns}
        stored = [column for column in columns if column.name in held]
        if not stored:
            batches = _count_only(segment, batch_rows)
        elif len(segment.layouts) == 1:
            batches = _read_one_layout(files, segment.layouts[0], stored, batch_rows)
        else:
            whole = read_rows_by_tid(files, segment, stored, condition, checked)
            batches = iter(whole.to_batches(max_chunksize=batch_rows))
        yield from batches if len(stored) == len(columns) else (_with_absent(batch, columns) for batch in batches)


def _with_absent(batch: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    """All the columns, in order; NULL where the batch lacks one."""
    arrays = [
        batch.column(column.name)
        if column.name in batch.schema.names
        else pa.nulls(batch.num_rows, arrow_type(column.type) or nested_type(column.type))
        for column in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def _count_only(segment: SegmentRead, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Batches with no values of the table: the catalog alone says how many rows there are."""
    remaining = sum(sum(file.rows) for file in segment.layouts[0].files)
    while remaining > 0:
        size = min(remaining, batch_rows)
        yield pa.RecordBatch.from_arrays([pa.nulls(size, pa.int8())], names=[ROWS_ONLY])
        remaining -= size


def _read_one_layout(
    files: TableFiles, read: LayoutRead, columns: Sequence[Column], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    names = [column.name for column in columns]
    for file in read.files:
        for batch in read_file(files, file, names, batch_rows):
            yield pa.RecordBatch.from_arrays(conform(batch.columns, columns), names=names)


def read_file(files: TableFiles, read: FileRead, names: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Batches of the named columns, in that order, from one file's chosen row groups.

    Raises:
        DataFileError: see :func:`read_segments`.
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


def open_parquet(files: TableFiles, path: str, footer: str | None = None, *, remember: bool = False) -> pq.ParquetFile:
    """A data file, opened. Pages are checked as they are read.

    Args:
        files: the table's files.
        path: the file.
        footer: the digest that its footer must have, if one is known.
        remember: take the footer as it was read before, and remember it for next time.

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
        return pq.ParquetFile(source, metadata=metadata, page_checksum_verification=True)
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
