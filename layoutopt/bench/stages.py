"""How long the stages of an experiment take, and the memory of the process."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter, process_time

from rich.table import Table


@dataclass(frozen=True)
class Taken:
    """What a stage took in all: seconds of the clock, and of CPU, which others on the machine disturb less."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    times: int = 0


class Stages:
    """A stopwatch: ``with stages("loading"): ...``. A stage may be entered often, and lie within another.

    Attributes:
        taken: by stage, in the order in which they were first entered.
    """

    def __init__(self) -> None:
        self.taken: dict[str, Taken] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Measure what is done within, as part of this stage."""
        self.taken.setdefault(stage, Taken())
        clock, cpu = perf_counter(), process_time()
        try:
            yield
        finally:
            before = self.taken[stage]
            self.taken[stage] = Taken(
                before.seconds + perf_counter() - clock, before.cpu_seconds + process_time() - cpu, before.times + 1
            )


def stage_table(stages: Stages, title: str) -> Table:
    """The stages as a table."""
    table = Table("stage", title=title, title_justify="left")
    for name in ("times", "seconds", "CPU seconds"):
        table.add_column(name, justify="right")
    for stage, taken in stages.taken.items():
        table.add_row(stage, str(taken.times), f"{taken.seconds:.1f}", f"{taken.cpu_seconds:.1f}")
    return table


def peak_bytes() -> int:
    """The most memory that this process has had, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
