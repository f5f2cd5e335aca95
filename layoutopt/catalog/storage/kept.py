"""What was used last, kept within a number of bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

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
