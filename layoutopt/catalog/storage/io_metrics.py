"""What was asked of an object store: requests, bytes and seconds.

Requests are counted as they are asked for; for some, such as whether a path exists, a store's driver may send two.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Amount:
    """So many requests, the bytes that came back or were sent, and the seconds that somebody waited for them.

    Where several threads wait at once, the seconds of each count.
    """

    requests: int = 0
    bytes: int = 0
    seconds: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.requests + other.requests, self.bytes + other.bytes, self.seconds + other.seconds)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.requests - other.requests, self.bytes - other.bytes, self.seconds - other.seconds)

    def __str__(self) -> str:
        """The numbers for people.

        >>> str(Amount(3, 12_345, 0.25))
        '3 requests, 12,345 bytes, 0.250 s'
        """
        return f"{self.requests:,} requests, {self.bytes:,} bytes, {self.seconds:.3f} s"

    def to_json(self) -> dict[str, int | float]:
        """The numbers as JSON."""
        return {"requests": self.requests, "bytes": self.bytes, "seconds": round(self.seconds, 4)}


class Traffic:
    """Counts what is asked of a store; several threads may."""

    def __init__(self) -> None:
        self._amount = Amount()
        self._lock = threading.Lock()

    @property
    def so_far(self) -> Amount:
        """All that was asked until now."""
        with self._lock:
            return self._amount

    @contextmanager
    def request(self, count: int = 1) -> Iterator[list[int]]:
        """Time some requests sent together; what is put into the list counts as their bytes. Failed ones count too."""
        sizes: list[int] = []
        start = time.perf_counter()
        try:
            yield sizes
        finally:
            with self._lock:
                self._amount += Amount(count, sum(sizes), time.perf_counter() - start)

    def __reduce__(self) -> tuple[type[Traffic], tuple[()]]:
        return Traffic, ()
