"""A scan's surviving row groups as a pyarrow Dataset: what Polars, DuckDB and Arrow itself take as it is.

A table of one layout becomes a dataset of its own data files, each fragment cut down to the row groups that are left:
nothing is read before somebody asks, columns and filters are pushed down, and footers are read once. Rows that are put
together from several layouts can't stand in a file; they are reconstructed in memory when the dataset is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as fs
from fsspec.core import url_to_fs

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import QueryError
from layoutopt.external.source_files import SourceFiles
from layoutopt.scan.files import check_footers, check_row_groups, damaged, missing
from layoutopt.scan.segments import FileRead
from layoutopt.scan.table_read import TableRead

_MOST_AT_ONCE = 32 << 20  # bytes of a request


def dataset_of(files: TableFiles, name: str, reads: Sequence[TableRead]) -> ds.Dataset:
    """The rows that a scan reads: all that match its filter, and others of the same row groups.

    The one who reads it applies the filter again. The columns are those that the text reads, in the table's order.

    Raises:
        QueryError: the text mentions the table several times, each with rows of its own.
        DataFileError: a data file is missing or damaged, or holds something else than the catalog says.
    """
    if len(reads) != 1:
        raise QueryError(
            f"the text mentions {name!r} {len(reads)} times, and a dataset holds the rows of one "
            "mention; use to_arrow() for the answer, or make one scan of each mention"
        )
    read = reads[0]
    if _stands_in_files(read) and not isinstance(files, SourceFiles):
        return _dataset_of_files(files, read)
    schema = read.arrow_schema()
    return ds.dataset(pa.Table.from_batches(list(read.batches()), schema=schema))


def _stands_in_files(read: TableRead) -> bool:
    """Whether every row is whole in one file, and none there is deleted; without columns there is only their number."""
    whole = (len(segment.layouts) == 1 and not segment.has_deletes for segment in read.segments)
    return bool(read.columns) and all(whole)


def _dataset_of_files(files: TableFiles, read: TableRead) -> ds.Dataset:
    chosen = [file for segment in read.segments for layout in segment.layouts for file in layout.files]
    store, root = _arrow_store(files)
    check_footers(files, ((file.path, file.footer) for file in chosen if file.row_groups))
    fragments = [_fragment(files, store, root, file) for file in chosen if file.row_groups]
    return _RowGroups(fragments, read.arrow_schema(), ds.ParquetFileFormat(), store)


def _form(files: TableFiles, path: str) -> ds.ParquetFileFormat:
    """How a file is read. Pages are checked; of an object store, gaps are read through as elsewhere."""
    options: dict[str, Any] = {"page_checksum_verification": True, "decryption_properties": files.decryption(path)}
    if files.local_root is None:
        most = _MOST_AT_ONCE + files.read_through
        gaps = pa.CacheOptions(hole_size_limit=files.read_through, range_size_limit=most)
        options |= {"pre_buffer": True, "cache_options": gaps}
    return ds.ParquetFileFormat(default_fragment_scan_options=ds.ParquetFragmentScanOptions(**options))


class _Counted(fs.FSSpecHandler):  # type: ignore[misc]  # pyarrow has no types
    """A table's store for Arrow, which counts what is asked and reads just the ranges that Arrow names."""

    def __init__(self, store: Any, root: str, files: TableFiles) -> None:
        super().__init__(store)
        self._root, self._files = root, files

    def open_input_file(self, path: str) -> pa.NativeFile:
        """A data file of the table."""
        return self._files.open_input(path.removeprefix(self._root).lstrip("/"))


class _RowGroups(ds.FileSystemDataset):  # type: ignore[misc]  # pyarrow has no types
    """A dataset of parts of files, which Arrow counts as if they were whole while nothing is filtered."""

    def count_rows(self, filter: ds.Expression | None = None, **options: Any) -> int:
        """The rows of the row groups, under a filter those for which it holds."""
        if filter is None:
            return sum(group.num_rows for fragment in self.get_fragments() for group in fragment.row_groups)
        return int(super().count_rows(filter=filter, **options))


def _arrow_store(files: TableFiles) -> tuple[fs.FileSystem, str]:
    """Where the table's files are for Arrow, and the table's root there."""
    if files.local_root is not None:
        return fs.LocalFileSystem(), files.full_path("")
    store, root = url_to_fs(files.full_path(""))
    return fs.PyFileSystem(_Counted(store, root, files)), root


def _fragment(files: TableFiles, store: fs.FileSystem, root: str, read: FileRead) -> ds.ParquetFileFragment:
    """One file's surviving row groups, compared with the catalog."""
    try:
        path = f"{root.rstrip('/')}/{files.stored_path(read.path)}"
        whole = _form(files, read.path).make_fragment(path, store)
        check_row_groups(whole.metadata, read)
        return whole.subset(row_group_ids=list(read.row_groups))
    except FileNotFoundError as error:
        raise missing(read.path) from error
    except (pa.ArrowException, OSError) as error:
        raise damaged(read.path, error) from error
