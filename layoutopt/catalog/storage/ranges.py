"""Byte ranges of files in object stores, where a request costs as much as a megabyte: few requests for many ranges."""

from __future__ import annotations

import io
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

import pyarrow.parquet as pq

Range = tuple[int, int]
"""The first byte of a file that is meant, and the first that is not."""


def coalesced(ranges: Iterable[Range], gap: int, most: int) -> list[Range]:
    """The ranges to ask for so that all the given ones are read, ascending and apart from each other.

    Args:
        ranges: what is wanted.
        gap: the most bytes between two of them that are read along rather than asking twice.
        most: the most bytes of one request, unless a single range is longer.

    >>> coalesced([(10, 20), (0, 5), (21, 30), (90, 99)], gap=5, most=100)
    [(0, 30), (90, 99)]
    """
    found: list[Range] = []
    for start, end in sorted(ranges):
        if end <= start:
            continue  # nothing is wanted
        if found and start < found[-1][1]:  # they overlap
            found[-1] = found[-1][0], max(end, found[-1][1])
        elif found and start - found[-1][1] <= gap and end - found[-1][0] <= most:
            found[-1] = found[-1][0], end
        else:
            found.append((start, end))
    return found


def chunk_ranges(metadata: pq.FileMetaData, row_group: int, names: Iterable[str]) -> list[Range]:
    """Where the column chunks of some columns, nested ones with all that is in them, lie in a row group."""
    group, wanted = metadata.row_group(row_group), tuple(names)
    roots = {*wanted}
    inner = tuple(f"{name}." for name in wanted)
    chunks = (group.column(i) for i in range(group.num_columns))
    return [chunk_range(c) for c in chunks if c.path_in_schema in roots or c.path_in_schema.startswith(inner)]


def chunk_range(chunk: pq.ColumnChunkMetaData) -> Range:
    """Where a column chunk lies in its file, its dictionary included."""
    dictionary = chunk.dictionary_page_offset
    start = min(chunk.data_page_offset, dictionary) if dictionary else chunk.data_page_offset
    return start, start + chunk.total_compressed_size


def bytes_of_chunks(metadata: pq.FileMetaData) -> int:
    """How many bytes of a file hold all its column chunks; after them there is the footer, perhaps after indexes.

    Whoever has the footer reads no further, and needs not ask a store how long the file is.
    """
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    return max((chunk_range(group.column(i))[1] for group in groups for i in range(group.num_columns)), default=0)


class FetchedFile(io.RawIOBase):
    """A file of which some ranges are here already; what else is read of it is asked for then.

    Each thread has a position of its own, so that readers of several threads never read at each other's.

    Args:
        size: the file's bytes, or as many as somebody will read.
        ranges: those that are here, ascending, with their contents.
        fetch: asks for one more.
    """

    def __init__(self, size: int, ranges: Sequence[tuple[Range, bytes]], fetch: Callable[[int, int], bytes]) -> None:
        super().__init__()
        self._size, self._ranges, self._fetch = size, ranges, fetch
        self._starts = [start for (start, _), _ in ranges]
        self._of_thread = threading.local()

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def size(self) -> int:
        """The file's bytes."""
        return self._size

    def tell(self) -> int:
        """Where this thread reads on."""
        return int(getattr(self._of_thread, "position", 0))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Read on elsewhere, in this thread."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self.tell(), io.SEEK_END: self._size}[whence]
        self._of_thread.position = base + offset
        return base + offset

    def read(self, size: int | None = -1, /) -> bytes:
        """As many bytes, fewer only at the end of the file."""
        start = self.tell()
        end = self._size if size is None or size < 0 else min(start + size, self._size)
        data = self._bytes(start, end) if end > start else b""
        self._of_thread.position = start + len(data)
        return data

    def _bytes(self, start: int, end: int) -> bytes:
        place = bisect_right(self._starts, start) - 1
        if place >= 0:
            (first, last), data = self._ranges[place]
            if end <= last:
                return data[start - first : end - first]
        return self._fetch(start, end)


# ----------------------------------------------------------------------------------------------------
# What was used last, kept within a number of bytes.

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class LastUsed(Generic[Key, Value]):
    """The values used last, by key; threads may share it, and processes that it is sent to begin with none.

    Args:
        most: the bytes to keep.

    >>> kept = LastUsed[str, int](most=10)
    >>> kept.put("a", 1, size=6), kept.put("b", 2, size=6)
    (None, None)
    >>> kept.get("a"), kept.get("b")
    (None, 2)
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._kept: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key) -> Value | None:
        """The value, None where it is not kept."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
        return None if found is None else found[0]

    def put(self, key: Key, value: Value, size: int) -> None:
        """Keep a value of so many bytes, in place of another under that key and of those used longest ago."""
        with self._lock:
            _, before = self._kept.pop(key, (None, 0))
            self._kept[key] = value, size
            self._bytes += size - before
            while self._bytes > self._most and self._kept:
                self._bytes -= self._kept.popitem(last=False)[1][1]

    def __reduce__(self) -> tuple[type[LastUsed[Key, Value]], tuple[int]]:
        return LastUsed, (self._most,)
