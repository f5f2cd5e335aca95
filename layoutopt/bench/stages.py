"""What the stages of an experiment take: seconds, processors and memory, of this process and those that it started."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Final

from rich.table import Table

PROC: Final = Path("/proc")


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


def descendants(pid: int) -> list[int]:
    """A process and all that it started, as far as they live."""
    parents: dict[int, list[int]] = {}
    for folder in PROC.iterdir():
        if folder.name.isdigit() and (parent := status_of(int(folder.name)).get("PPid")) is not None:
            parents.setdefault(int(parent), []).append(int(folder.name))
    found, left = [], [pid]
    while left:
        found.append(left.pop())
        left += parents.get(found[-1], [])
    return found


def cpu_seconds(pids: Sequence[int]) -> float:
    """The seconds of processors that processes have taken, with those that they started and that have ended."""
    stats = (text_of(PROC / str(pid) / "stat").rpartition(")")[2].split() for pid in pids)
    ticks = sum(int(ticks) for fields in stats for ticks in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def status_of(pid: int) -> dict[str, str]:
    """What the kernel says of a process, by name; nothing where it has ended."""
    lines = (line.partition(":") for line in text_of(PROC / str(pid) / "status").splitlines())
    return {name: value.strip() for name, _, value in lines}


def text_of(path: Path) -> str:
    """What a file of /proc says; nothing where its process has ended."""
    try:
        return path.read_text()
    except OSError:  # the process has ended
        return ""
