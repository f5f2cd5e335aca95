"""What is told of work: structured logs, one JSON object a line, for machines; its stages, for people too."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
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


Progress = Callable[[str], None]


def silent(sentence: str) -> None:
    """Progress that nobody wants to see."""


@dataclass(frozen=True)
class Stages:
    """What watches one piece of work.

    Attributes:
        say: called with a short sentence as each stage begins.
        log: gets an event ``stage`` as each ends.
        seconds: how long each took, by name, in the order of their ends.
    """

    say: Progress = silent
    log: EventLog = NO_EVENTS
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str, sentence: str, **fields: object) -> Iterator[dict[str, object]]:
        """Time the block; what it puts into the mapping is logged too, and so is its failure."""
        self.say(sentence)
        counts = dict(fields)
        start = time.perf_counter()
        outcome = "failed"
        try:
            yield counts
            outcome = "done"
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + time.perf_counter() - start, 3)
            self.log.write("stage", stage=name, outcome=outcome, seconds=self.seconds[name], **counts)
