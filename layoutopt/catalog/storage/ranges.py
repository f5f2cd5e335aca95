"""Byte ranges of files in object stores, where a request costs as much as a megabyte; an LRU cache.

The column chunks of a file's needed row groups are cut into windows of some megabytes. A window's chunks are fetched
together, by as few requests as its gaps allow, while other threads read ahead. Arrow's own ``pre_buffer`` sends many
more requests through a Python file; see docs/performance.md#scan.
"""

from __future__ import annotations

import io
import threading
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from layoutopt.catalog.storage.filesystem import TableFiles

_WINDOW = 16 << 20

Item = TypeVar("Item")
Made = TypeVar("Made")
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

# The start and end offsets of some bytes of a file.
Range = tuple[int, int]


def coalesce(ranges: Iterable[Range], gap: int, most: int) -> list[Range]:
    """Return the ranges to request so that all wanted ranges are read, ascending and disjoint.

    Gaps of at most ``gap`` bytes are read along; a request has at most ``most`` bytes unless one range is longer.

    >>> coalesce([(10, 20), (0, 5), (21, 30), (90, 99)], gap=5, most=100)
    [(0, 30), (90, 99)]
    """
    requests: list[Range] = []
    for start, end in sorted(ranges):
        if end <= start:
            continue  # nothing is wanted
        if requests and start < requests[-1][1]:  # they overlap
            requests[-1] = requests[-1][0], max(end, requests[-1][1])
        elif requests and start - requests[-1][1] <= gap and end - requests[-1][0] <= most:
            requests[-1] = requests[-1][0], end
        else:
            requests.append((start, end))
    return requests


def chunk_ranges(metadata: pq.FileMetaData, row_group: int, names: Iterable[str]) -> list[Range]:
    """Return the ranges of the column chunks of some columns, with all nested ones, in a row group."""
    group, columns = metadata.row_group(row_group), tuple(names)
    roots = {*columns}
    inner = tuple(f"{name}." for name in columns)
    chunks = (group.column(i) for i in range(group.num_columns))
    return [chunk_range(c) for c in chunks if c.path_in_schema in roots or c.path_in_schema.startswith(inner)]


def chunk_range(chunk: pq.ColumnChunkMetaData) -> Range:
    """Return the range of a column chunk in its file, including its dictionary."""
    dictionary = chunk.dictionary_page_offset
    start = min(chunk.data_page_offset, dictionary) if dictionary else chunk.data_page_offset
    return start, start + chunk.total_compressed_size


def bytes_of_chunks(metadata: pq.FileMetaData) -> int:
    """Return the number of leading bytes of a file that hold all column chunks: readers need no more."""
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    return max((chunk_range(group.column(i))[1] for group in groups for i in range(group.num_columns)), default=0)


class FetchedFile(io.RawIOBase):
    """A file with some ``ranges`` in memory, ascending with their contents; ``fetch`` reads others, from start to end.

    Each thread has its own position. ``size`` is an upper bound of the bytes that will be read.
    """

    def __init__(self, size: int, ranges: Sequence[tuple[Range, bytes]], fetch: Callable[[int, int], bytes]) -> None:
        super().__init__()
        self._size, self._ranges, self._fetch = size, ranges, fetch
        self._starts = [start for (start, _), _ in ranges]
        self._by_thread = threading.local()

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def size(self) -> int:
        """Return the file's size in bytes."""
        return self._size

    def tell(self) -> int:
        """Return this thread's position."""
        return int(getattr(self._by_thread, "position", 0))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move this thread's position, and return it."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self.tell(), io.SEEK_END: self._size}[whence]
        self._by_thread.position = base + offset
        return base + offset

    def read(self, size: int | None = -1, /) -> bytes:
        """Return a number of bytes, fewer only at the end of the file."""
        start = self.tell()
        end = self._size if size is None or size < 0 else min(start + size, self._size)
        data = self._read_range(start, end) if end > start else b""
        self._by_thread.position = start + len(data)
        return data

    def _read_range(self, start: int, end: int) -> bytes:
        place = bisect_right(self._starts, start) - 1
        if place >= 0:
            (first, last), data = self._ranges[place]
            if end <= last:
                return data[start - first : end - first]
        return self._fetch(start, end)


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


class LastUsed(Generic[Key, Value]):
    """A thread-safe LRU cache of ``most`` bytes; a pickled cache is empty.

    >>> cache = LastUsed[str, int](most=10)
    >>> cache.put("a", 1, size=6), cache.put("b", 2, size=6)
    (None, None)
    >>> cache.get("a"), cache.get("b")
    (None, 2)
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._entries: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key) -> Value | None:
        """Return the value, None where it is not cached."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
        return None if entry is None else entry[0]

    def put(self, key: Key, value: Value, size: int) -> None:
        """Cache a value of ``size`` bytes, replacing an older one of that key and evicting those used longest ago."""
        with self._lock:
            _, before = self._entries.pop(key, (None, 0))
            self._entries[key] = value, size
            self._bytes += size - before
            while self._bytes > self._most and self._entries:
                self._bytes -= self._entries.popitem(last=False)[1][1]

    def __reduce__(self) -> tuple[type[LastUsed[Key, Value]], tuple[int]]:
        return LastUsed, (self._most,)
