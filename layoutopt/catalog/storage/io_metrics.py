"""I/O metrics of an object store: requests, bytes and seconds.

For some requests, such as whether a path exists, a store's driver may send two; they count as one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Amount:
    """A number of requests, the bytes received or sent, and the seconds spent waiting, summed over threads."""

    requests: int = 0
    bytes: int = 0
    seconds: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.requests + other.requests, self.bytes + other.bytes, self.seconds + other.seconds)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.requests - other.requests, self.bytes - other.bytes, self.seconds - other.seconds)

    def __str__(self) -> str:
        """Format the numbers for people.

        >>> str(Amount(3, 12_345, 0.25))
        '3 requests, 12,345 bytes, 0.250 s'
        """
        return f"{self.requests:,} requests, {self.bytes:,} bytes, {self.seconds:.3f} s"

    def to_json(self) -> dict[str, int | float]:
        """Return the numbers as JSON."""
        return {"requests": self.requests, "bytes": self.bytes, "seconds": round(self.seconds, 4)}


class Traffic:
    """A thread-safe counter of a store's requests."""

    def __init__(self) -> None:
        self._amount = Amount()
        self._lock = threading.Lock()

    @property
    def so_far(self) -> Amount:
        """Return all requests until now."""
        with self._lock:
            return self._amount

    @contextmanager
    def request(self, count: int = 1) -> Iterator[list[int]]:
        """Time requests that are sent together, failed ones too; the caller adds their bytes to the list."""
        sizes: list[int] = []
        start = time.perf_counter()
        try:
            yield sizes
        finally:
            with self._lock:
                self._amount += Amount(count, sum(sizes), time.perf_counter() - start)

    def __reduce__(self) -> tuple[type[Traffic], tuple[()]]:
        return Traffic, ()
