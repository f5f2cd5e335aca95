"""Row groups read from an object store some megabytes at once, and the next ones while these are used.

What is wanted of a file, its chosen row groups' column chunks, is cut into windows. A window's chunks are asked for
together, by as few requests as its gaps allow.
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
from layoutopt.catalog.storage.ranges import Range, bytes_of_chunks, chunk_ranges, coalesced

_WINDOW = 16 << 20

Item = TypeVar("Item")
Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class Window:
    """Row groups of a data file to be read at once, and the ranges that hold what is wanted of them."""

    path: str
    metadata: pq.FileMetaData
    row_groups: tuple[int, ...]
    ranges: tuple[Range, ...]

    def open(self, files: TableFiles) -> pa.NativeFile:
        """The file with the ranges in memory; raises as :meth:`TableFiles.fetch`."""
        return files.fetched(self.path, bytes_of_chunks(self.metadata), self.ranges)


def windows_of(
    files: TableFiles, path: str, metadata: pq.FileMetaData, row_groups: Sequence[int], names: Sequence[str]
) -> Iterator[Window]:
    """Some columns of some row groups of a file, at least one, in windows of some megabytes or one row group."""
    groups: list[int] = []
    ranges: list[Range] = []

    def window() -> Window:
        return Window(path, metadata, tuple(groups), tuple(coalesced(ranges, files.read_through, _WINDOW)))

    for group in row_groups:
        more = chunk_ranges(metadata, group, names)
        if groups and sum(end - start for start, end in (*ranges, *more)) > _WINDOW:
            yield window()
            groups, ranges = [], []
        groups.append(group)
        ranges += more
    yield window()


def made_ahead(make: Callable[[Item], Made], items: Iterable[Item], ahead: int) -> Iterator[Made]:
    """What is made of each item, in order; while one is used, so many of the next are made in other threads.

    >>> list(made_ahead(abs, [-1, 2, -3], ahead=2))
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
        pool.shutdown(wait=False, cancel_futures=True)  # whoever stops waits for no request
