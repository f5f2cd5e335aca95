"""The stages of a load: said as they begin, timed, and written to the log as they end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from layoutopt.events import NO_EVENTS, EventLog

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
