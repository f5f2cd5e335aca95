"""Show what a verb is doing: a bar on a terminal; elsewhere a line a step, and one every ten seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from typing import Final

from layoutopt.events import NO_EVENTS, EventLog, following_steps

# Seconds. Verbs that end sooner than the first write nothing to files and pipes.
QUIET: Final = 3.0
EVERY: Final = 10.0
_DRAWN_EVERY: Final = 0.2


@dataclass
class Progress:
    """The step that a verb is at.

    Attributes:
        sentence: what the step does.
        done, total: how much of it is done, of how much; a total of 0 is unknown.
    """

    sentence: str
    done: int = 0
    total: int = 0
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.began = self._began_step = self.clock()
        self.changed = Event()

    def say(self, sentence: str) -> None:
        """Begin a step."""
        self.sentence, self.done, self.total, self._began_step = sentence, 0, 0, self.clock()
        self.changed.set()

    def step(self, done: int, total: int) -> None:
        """Note how much of the step is done."""
        if total != self.total or done < self.done:
            self._began_step = self.clock()
        self.done, self.total = done, total

    def line(self) -> str:
        """Return a line about the step; it tells the time left if the rest takes as long as what is done.

        >>> progress = Progress("writing", clock=iter([0.0, 0.0, 6.0, 6.0]).__next__)
        >>> progress.step(3, 12)
        >>> progress.line()
        'writing: 3 of 12 done, about 18 s left, 6 s so far'
        """
        text = f"{self.sentence}: "
        if self.total:
            text += f"{self.done:,} of {self.total:,} done, "
        if 0 < self.done < self.total:
            left = (self.clock() - self._began_step) * (self.total - self.done) / self.done
            text += f"about {left:.0f} s left, "
        return f"{text}{self.clock() - self.began:.0f} s so far"


@contextmanager
def show_progress(title: str, log: EventLog = NO_EVENTS, *, shown: bool = True) -> Iterator[Progress]:
    """Show progress on stderr while the block runs, if it is to be shown, and in an event log every ten seconds."""
    progress = Progress(title)

    def write_line() -> None:
        sys.stderr.write(f"{progress.line()}\n")
        sys.stderr.flush()

    def write_event() -> None:
        seconds = round(progress.clock() - progress.began, 3)
        log.write("progress", sentence=progress.sentence, done=progress.done, total=progress.total, seconds=seconds)

    with ExitStack() as stack:
        stack.enter_context(following_steps(progress.step))
        if log is not NO_EVENTS:
            stack.enter_context(_calling(write_event, progress, EVERY, EVERY))
        if shown and sys.stderr.isatty():
            stack.enter_context(_drawing(progress))
        elif shown:
            stack.enter_context(_calling(write_line, progress, QUIET, EVERY))
        yield progress


@contextmanager
def _calling(write: Callable[[], None], progress: Progress, first: float, every: float) -> Iterator[None]:
    """Call a function while the block runs: after some seconds, then as each step begins, and every so many seconds."""
    ended = Event()

    def run() -> None:
        if ended.wait(first):
            return
        while not ended.is_set():
            progress.changed.clear()
            _count_spark_tasks(progress)
            write()
            progress.changed.wait(every)

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        progress.changed.set()
        thread.join(1.0)


def _count_spark_tasks(progress: Progress) -> None:
    """Note the tasks of the stages that a session of this process runs."""
    sessions = sys.modules.get("layoutopt.spark.core.sessions")
    counted = None if sessions is None else sessions.count_running_tasks()
    if counted is not None:
        progress.step(*counted)


@contextmanager
def _drawing(progress: Progress) -> Iterator[None]:
    """Draw a bar while the block runs."""
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import TimeElapsedColumn

    columns = (*Bar.get_default_columns(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(progress.sentence, total=None)

        def draw() -> None:
            bar.update(task, description=progress.sentence, completed=progress.done, total=progress.total or None)

        with _calling(draw, progress, 0.0, _DRAWN_EVERY):
            yield
