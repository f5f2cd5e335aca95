"""Prefetching of row groups from an object store, some megabytes at a time.

The column chunks of a file's needed row groups are cut into windows. A window's chunks are fetched together, by as few
requests as its gaps allow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.storage.ranges import Range, bytes_of_chunks, chunk_ranges, coalesce

_WINDOW = 16 << 20

Item = TypeVar("Item")
Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class Window:
    """Row groups of a data file to be read together, and the ranges that hold their needed columns."""

    path: str
    metadata: pq.FileMetaData
    row_groups: tuple[int, ...]
    ranges: tuple[Range, ...]

    def open(self, files: TableFiles) -> pa.NativeFile:
        """Return the file with the ranges in memory; raises as :meth:`TableFiles.fetch`."""
        return files.fetched(self.path, bytes_of_chunks(self.metadata), self.ranges)


def windows_of(
    files: TableFiles, path: str, metadata: pq.FileMetaData, row_groups: Sequence[int], names: Sequence[str]
) -> Iterator[Window]:
    """Yield some columns of a file's row groups (at least one), in windows of some megabytes or one row group."""
    groups: list[int] = []
    ranges: list[Range] = []

    def window() -> Window:
        return Window(path, metadata, tuple(groups), tuple(coalesce(ranges, files.read_through, _WINDOW)))

    for group in row_groups:
        more = chunk_ranges(metadata, group, names)
        if groups and sum(end - start for start, end in (*ranges, *more)) > _WINDOW:
            yield window()
            groups, ranges = [], []
        groups.append(group)
        ranges += more
    yield window()


def map_ahead(make: Callable[[Item], Made], items: Iterable[Item], ahead: int) -> Iterator[Made]:
    """Yield the result for each item, in order; other threads compute the next ``ahead`` results.

    >>> list(map_ahead(abs, [-1, 2, -3], ahead=2))
    [1, 2, 3]
    """
    waiting: deque[Future[Made]] = deque()
    pool = ThreadPoolExecutor(ahead)
    try:
        for item in items:
            waiting.append(pool.submit(make, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # an early stop waits for no request
