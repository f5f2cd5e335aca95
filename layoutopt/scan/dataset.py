"""A scan's surviving row groups as a pyarrow Dataset, which Polars, DuckDB and Arrow can read.

A table of one layout becomes a dataset of its own data files, with each fragment restricted to the surviving row
groups. Data is read lazily, columns and filters are pushed down, and footers are read once. Rows that are combined from
several layouts are reconstructed in memory when the dataset is made.
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
from layoutopt.scan.files import check_footers, check_row_groups, translate_read_errors
from layoutopt.scan.segments import FileRead
from layoutopt.scan.table_read import TableRead

# Bytes of a request.
_MOST_AT_ONCE = 32 << 20


def open_dataset(reads: Sequence[TableRead]) -> ds.Dataset:
    """Return the rows of a scan: all that match its filter (apply it again), and others of the same row groups.

    Raises:
        QueryError: the text does not mention one table once.
        DataFileError: a data file is missing, damaged, or differs from the catalog.
    """
    if len(reads) != 1:
        names = ", ".join(repr(read.scan.table) for read in reads) or "none"
        raise QueryError(
            f"the text mentions {len(reads)} tables ({names}), but a dataset holds the rows of one mention; use "
            "to_arrow() for the answer, or make one scan for each mention"
        )
    read = reads[0]
    files = read.table.catalog.data
    # Every row is whole in one file, and none of its rows is deleted.
    is_plain = all(len(segment.layouts) == 1 and not segment.has_deletes for segment in read.segments)
    if read.columns and is_plain and not files.is_external:
        return _open_files(files, read)
    return ds.dataset(pa.Table.from_batches(list(read.batches()), schema=read.arrow_schema()))


def _open_files(files: TableFiles, read: TableRead) -> ds.Dataset:
    reads = [file for segment in read.segments for layout in segment.layouts for file in layout.files]
    reads = [file for file in reads if file.row_groups]
    if files.local_root is not None:
        store, root = fs.LocalFileSystem(), files.full_path("")
    else:
        fsspec_store, root = url_to_fs(files.full_path(""))
        store = fs.PyFileSystem(_CountingStore(fsspec_store, root, files))
    check_footers(files, ((file.path, file.footer) for file in reads))
    fragments = [_make_fragment(files, store, root, file) for file in reads]
    return _RowGroups(fragments, read.arrow_schema(), ds.ParquetFileFormat(), store)


class _CountingStore(fs.FSSpecHandler):  # type: ignore[misc]  # pyarrow has no types
    """A table's store for Arrow that counts requests and reads only the ranges that Arrow names."""

    def __init__(self, store: Any, root: str, files: TableFiles) -> None:
        super().__init__(store)
        self._root, self._files = root, files

    def open_input_file(self, path: str) -> pa.NativeFile:
        return self._files.open_input(path.removeprefix(self._root).lstrip("/"))


class _RowGroups(ds.FileSystemDataset):  # type: ignore[misc]  # pyarrow has no types
    """A dataset of parts of files, which Arrow would count as if they were whole."""

    def count_rows(self, filter: ds.Expression | None = None, **options: Any) -> int:
        if filter is None:
            return sum(group.num_rows for fragment in self.get_fragments() for group in fragment.row_groups)
        return int(super().count_rows(filter=filter, **options))


def _make_fragment(files: TableFiles, store: fs.FileSystem, root: str, read: FileRead) -> ds.ParquetFileFragment:
    """Return one file's surviving row groups after comparing its footer with the catalog."""
    options: dict[str, Any] = {"page_checksum_verification": True, "decryption_properties": files.decryption(read.path)}
    if files.local_root is None:
        most = _MOST_AT_ONCE + files.read_through
        cache_options = pa.CacheOptions(hole_size_limit=files.read_through, range_size_limit=most)
        options |= {"pre_buffer": True, "cache_options": cache_options}
    format = ds.ParquetFileFormat(default_fragment_scan_options=ds.ParquetFragmentScanOptions(**options))
    with translate_read_errors(read.path):
        path = f"{root.rstrip('/')}/{files.stored_path(read.path)}"
        fragment = format.make_fragment(path, store)
        check_row_groups(fragment.metadata, read)
        return fragment.subset(row_group_ids=list(read.row_groups))
