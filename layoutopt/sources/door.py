"""The door of every verb that reads a source: by Arrow where that surely equals Spark's reading, else by Spark.

Nothing else goes on after NeedsSparkError.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from threading import RLock
from typing import Generic, NoReturn, TypeAlias, TypeVar

import pyarrow as pa

from layoutopt.errors import ContentMismatchError, NeedsSparkError, SettingError
from layoutopt.events import NO_EVENTS, EventLog, Progress, silent

S = TypeVar("S")
T = TypeVar("T")
# Why Arrow's reading is not used: Spark might read otherwise, or a second reader has other sums.
Reason: TypeAlias = Exception


class Door(Generic[S]):
    """A source that is opened when it is first read, and again by the next opener where the last does not suffice.

    Args:
        openers: open it, first by Arrow, last by Spark; each receives why the one before does not suffice, and may
            raise that there is no other.
        say: receives the reason where another opener is used; so does ``log``.
        errors: translates the errors of reading.
        distrusts: whether another opener is used, too, where written rows have other sums than a second reader's.
    """

    def __init__(
        self,
        *openers: Callable[[Reason | None], S],
        say: Progress = silent,
        log: EventLog = NO_EVENTS,
        errors: Callable[[], AbstractContextManager[None]] = nullcontext,
        distrusts: bool = False,
    ) -> None:
        self._openers, self._say, self._log, self._errors = openers, say, log, errors
        self._reasons = (NeedsSparkError, pa.ArrowException, *([ContentMismatchError] if distrusts else []))
        self._place, self._source = 0, list[S]()
        self._lock = RLock()

    @property
    def source(self) -> S:
        """The source by the opener that is used now."""
        return self.read(lambda source: source)

    def read(self, use: Callable[[S], T]) -> T:
        """Return a function's value of the source; the function is called again where another opener is used.

        Raises:
            LayoutoptError: the function, or opening the source, raised it.
        """
        reason: Reason | None = None
        place = self._place
        while True:
            try:
                with self._errors():
                    place, source = self._open(place, reason)
                    return use(source)
            except self._reasons as error:
                place, reason = place + 1, error
                if place >= len(self._openers):
                    raise

    def _open(self, place: int, reason: Reason | None) -> tuple[int, S]:
        """Open the source by the opener at a place, unless a later one is used already."""
        with self._lock:
            if place > self._place:
                self._place = place
                self._source.clear()
            if not self._source:
                self._source.append(self._openers[self._place](reason))
                if reason is not None:
                    text = str(reason).splitlines()[0]
                    self._say(f"reading by Spark: {text}")
                    self._log.write("read_by_spark", why=text)
            return self._place, self._source[0]


def refuse_spark(source: str, reason: Reason | None) -> NoReturn:
    """Raise the error for a source that only Spark can read, where another executor was chosen."""
    if isinstance(reason, NeedsSparkError):
        raise SettingError(f"{source!r} can't be read without Spark: {reason}; give --executor spark") from reason
    assert reason is not None, "the opener before did not suffice"
    raise reason
