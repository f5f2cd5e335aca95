"""A load that waits at one point of its way, to be killed there: run by ``test_killed`` with a Spark of its own.

Arguments: a folder for marks, the point ("" for none), then what the command line takes. The mark ``asked`` says that
Spark runs and the load begins, ``reached`` that it waits; ``go`` lets what was not killed go on.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

from layoutopt.catalog.commit import CRASH_POINTS
from layoutopt.cli.app import main
from layoutopt.events import Stages
from layoutopt.loading import load as loading

SEGMENTS_FIRST = 4
SEGMENT_WRITTEN, MORE_WRITTEN = "segment-written", "more-segments-written"
POINTS = ("all", "count", "write", SEGMENT_WRITTEN, MORE_WRITTEN, "check", "commit", *CRASH_POINTS)
"""Where it can wait: as a stage begins, in tasks whose segments are written (the first ones, or later ones), in the
commit."""


def reach(marks: Path, wanted: str, point: str) -> None:
    """Wait at the point that is wanted, at the others go on."""
    if point == wanted:
        (marks / "reached").touch()
        while not (marks / "go").exists():
            time.sleep(0.02)


def in_task(marks: Path, wanted: str, point: str) -> None:
    """The same in a task; every task leaves a mark, so that later ones know how many are done."""
    (marks / "written" / str(time.time_ns())).touch()
    reach(marks, wanted, point)
    if len(list((marks / "written").iterdir())) > SEGMENTS_FIRST:
        reach(marks, wanted, MORE_WRITTEN)


def run(marks: Path, wanted: str, words: list[str]) -> int:
    """Run the command with its load watched."""
    begin = Stages.stage

    @contextmanager
    def stage(self: Stages, name: str, sentence: str, **fields: object) -> Iterator[dict[str, object]]:
        (marks / "asked").touch()
        reach(marks, wanted, name)
        began: AbstractContextManager[dict[str, object]] = begin(self, name, sentence, **fields)
        with began as counts:
            yield counts

    watched = partial(loading.load, at=partial(reach, marks, wanted), in_task=partial(in_task, marks, wanted))
    with patch.object(Stages, "stage", stage), patch.object(loading, "load", watched):
        return main(words)


if __name__ == "__main__":
    folder, point, *command = sys.argv[1:]
    sys.exit(run(Path(folder), point, command))
