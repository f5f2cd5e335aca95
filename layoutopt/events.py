"""Structured logs, one JSON object a line, for machines; progress of stages, for people too."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final

from layoutopt.errors import SettingError

STDERR: Final = "-"


@dataclass(frozen=True)
class EventLog:
    """A destination of events, an open text stream; by default none."""

    stream: IO[str] | None = None

    def write(self, event: str, **fields: object) -> None:
        """Write one line with ``at`` (UTC), ``event`` and the fields, and flush it."""
        if self.stream is None:
            return
        line = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **fields}
        self.stream.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
        self.stream.flush()


NO_EVENTS: Final = EventLog()


@contextmanager
def event_log(target: str | None) -> Iterator[EventLog]:
    """Open the log at a file's path (appending), ``-`` for stderr, or None for no log."""
    if target is None:
        yield NO_EVENTS
    elif target == STDERR:
        yield EventLog(sys.stderr)
    else:
        with _open_log(target) as stream:
            yield EventLog(stream)


def _open_log(path: str) -> IO[str]:
    try:
        return Path(path).open("a", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise SettingError(f"the log {path!r} can't be written ({error.strerror}); name another file") from error


# Takes how much of a step is done, of how much.
Step = Callable[[int, int], None]


def ignore_step(done: int, total: int) -> None:
    """Ignore how much is done."""


_step: ContextVar[Step] = ContextVar("step", default=ignore_step)


@contextmanager
def following_steps(step: Step) -> Iterator[None]:
    """Call a function with the arguments of each :func:`report_step` of the block, in this thread."""
    token = _step.set(step)
    try:
        yield
    finally:
        _step.reset(token)


def report_step(done: int, total: int) -> None:
    """Report how much of the current step is done, of how much."""
    _step.get()(done, total)


Progress = Callable[[str], None]


def silent(sentence: str) -> None:
    """Ignore progress."""


@dataclass(frozen=True)
class Stages:
    """The observers of one piece of work.

    ``say`` gets a short sentence as each stage begins, ``log`` an event as it ends; ``seconds`` are by stage name.
    """

    say: Progress = silent
    log: EventLog = NO_EVENTS
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str, sentence: str, **fields: object) -> Iterator[dict[str, object]]:
        """Time and log the block, even if it fails; the caller may add counts to the mapping."""
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
