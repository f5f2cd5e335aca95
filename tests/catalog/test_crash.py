"""Killed with -9 at every step on disk of a load, a vacuum and a restore: nothing lost, doubled or half visible."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from layoutopt.catalog.snapshot import snapshot_numbers
from layoutopt.catalog.storage.filesystem import TableFiles
from tests.catalog.crash import (
    Content,
    Load,
    Restore,
    Step,
    Vacuum,
    WithManifests,
    check_contents,
    check_nothing_is_left,
    events_of,
    read,
    start,
)


@dataclass(frozen=True)
class Scenario:
    """A step on a table that other steps made, what the table holds before (None: nothing) and after it.

    ``sample`` is how many of its events the short test kills it at.
    """

    made_by: tuple[Step, ...]
    step: Step
    before: Content | None
    after: Content
    sample: int = 2


TWO_LOADS = (Load("a", (1994, 1995), None), Load("b", (1995, 1996), 0))
SCENARIOS = {
    "first load": Scenario((), Load("a", (1994, 1995), None), None, {1994: "a", 1995: "a"}),
    "load": Scenario(
        TWO_LOADS,
        Load("c", (1994, 1996), 1),
        {1994: "a", 1995: "b", 1996: "b"},
        {1994: "c", 1995: "b", 1996: "c"},
    ),
    "vacuum": Scenario(
        (*TWO_LOADS, Load("c", (1994, 1995), 1), Load("d", (1996,), 2)),
        Vacuum(1),
        {1994: "c", 1995: "c", 1996: "d"},
        {1994: "c", 1995: "c", 1996: "d"},
        sample=4,
    ),
    "restore": Scenario(TWO_LOADS, Restore(0), {1994: "a", 1995: "b", 1996: "b"}, {1994: "a", 1995: "a"}),
}


class Crashes:
    """Tables to kill a scenario's step on, each a copy of one that was made once."""

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self.scenario = scenario
        self.folder = folder
        self.made = folder / "made"
        for step in scenario.made_by:
            step(str(self.made))
        self.events = events_of(scenario.step, str(self._copy("counted")))

    def _copy(self, name: str) -> Path:
        copy = self.folder / name
        copy.mkdir(parents=True)
        if self.made.exists():
            shutil.copytree(self.made, copy, dirs_exist_ok=True)
        return copy

    def kill_at(self, event: int) -> int:
        """Kill the step before an event; check the table, kill a retry, retry, check again: how many were killed."""
        root = str(self._copy(f"killed-{event}"))
        assert start(self.scenario.step, root, event).wait() is None, "it was not killed"
        self._check_between(root)
        # A crash in the retry too: as often as it takes.
        killed = 1 + (start(self.scenario.step, root, max(1, self.events // 2)).wait() is None)
        self._check_between(root)
        for _ in range(2):
            self.scenario.step(root)
            assert read(root) == self.scenario.after
        check_contents(root)
        check_nothing_is_left(root)
        assert read(root) == self.scenario.after
        check_contents(root)
        shutil.rmtree(root)
        return killed

    def _check_between(self, root: str) -> None:
        """Old or new, and whole; so is every other snapshot that is there."""
        numbers = snapshot_numbers(TableFiles(root))
        if not numbers:
            assert self.scenario.before is None
            return
        for number in numbers:
            read(root, number)
            check_contents(root, number)
        assert read(root) in (self.scenario.before, self.scenario.after)


def kill_everywhere(folder: Path, sample: bool, manifests: bool) -> dict[str, int]:
    """Kill each scenario's step at all of its events, or at some evenly spaced ones: how many processes were killed."""
    killed = {}
    for name, scenario in SCENARIOS.items():
        if manifests:
            steps = tuple(map(WithManifests, scenario.made_by))
            scenario = replace(scenario, made_by=steps, step=WithManifests(scenario.step))
        crashes = Crashes(scenario, folder / name)
        events = list(range(1, crashes.events + 1))
        every = len(events) // scenario.sample if sample else 1
        killed[name] = sum(crashes.kill_at(event) for event in events[::-every])
    return killed


pytestmark = pytest.mark.usefixtures("has_manifests")


@pytest.mark.slow
def test_killed_at_some_steps_nothing_is_lost(tmp_path: Path, has_manifests: bool) -> None:
    killed = kill_everywhere(tmp_path, sample=True, manifests=has_manifests)
    assert sum(killed.values()) >= 12, killed


@pytest.mark.long
def test_killed_at_every_step_nothing_is_lost(tmp_path: Path, has_manifests: bool) -> None:
    killed = kill_everywhere(tmp_path, sample=False, manifests=has_manifests)
    print(f"killed: {killed}")  # noqa: T201 - what the long run reports
    assert sum(killed.values()) >= 200, killed
