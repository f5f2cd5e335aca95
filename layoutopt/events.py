"""Structured logs: one JSON object a line, for machines that watch loads."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final

from layoutopt.errors import SettingError

STDERR: Final = "-"


@dataclass(frozen=True)
class EventLog:
    """Where events go; nowhere by default.

    Attributes:
        stream: an open text stream, or None.
    """

    stream: IO[str] | None = None

    def write(self, event: str, **fields: object) -> None:
        """Write one line: ``at`` (UTC), ``event`` and the fields; it is there as soon as this returns."""
        if self.stream is None:
            return
        line = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **fields}
        self.stream.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
        self.stream.flush()


NO_EVENTS: Final = EventLog()


@contextmanager
def event_log(target: str | None) -> Iterator[EventLog]:
    """The log of a file's path (lines are added to what is there), of ``-`` for stderr, or of None for nothing.

    Raises:
        SettingError: the file can't be written.
    """
    if target is None:
        yield NO_EVENTS
    elif target == STDERR:
        yield EventLog(sys.stderr)
    else:
        with _opened(target) as stream:
            yield EventLog(stream)


def _opened(target: str) -> IO[str]:
    try:
        return Path(target).open("a", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise SettingError(f"the log {target!r} can't be written ({error.strerror}); name another file") from error
