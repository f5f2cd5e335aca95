"""Killed with -9 at steps on disk of a publication and of a vacuum: both tables whole, and the next run heals."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from layoutopt.catalog.publications import Publication
from layoutopt.publish.publishing import publish, publish_all
from tests.catalog.crash import Content, Load, Step, Vacuum, check_contents, events_of, read, start

BEFORE: Content = {1994: "a", 1995: "a"}
AFTER: Content = {1994: "a", 1995: "b", 1996: "b"}
LAST: Content = {1994: "a", 1995: "c", 1996: "b"}


@dataclass(frozen=True)
class Publish:
    """A publication in the table's own folder."""

    format: str

    def __call__(self, root: str) -> None:
        publish(root, Publication(self.format, root))


@dataclass(frozen=True)
class LoadAndPublish:
    """A load with ``--publish``: what an earlier try committed is found, and shown."""

    load: Load
    format: str

    def __call__(self, root: str) -> None:
        self.load(root)
        publish_all(root, [self.format], lambda sentence: None)


@dataclass(frozen=True)
class Scenario:
    """Steps that make a table, the step that is killed, what may be shown then, and what the table may hold."""

    made_by: tuple[Step, ...]
    step: Step
    shown: tuple[Content | None, ...]
    held: tuple[Content, ...]  # the last once the step is done


def scenarios(format: str) -> dict[str, Scenario]:
    again = Load("b", (1995, 1996), 0)
    loads = (Load("a", (1994, 1995), None), Publish(format), again)
    return {
        "first": Scenario((loads[0],), Publish(format), (None, BEFORE), (BEFORE,)),
        "next": Scenario(loads, Publish(format), (BEFORE, AFTER), (AFTER,)),
        "load": Scenario(loads[:2], LoadAndPublish(again, format), (BEFORE, AFTER), (BEFORE, AFTER)),
        "vacuum": Scenario((*loads, Load("c", (1995,), 1)), Vacuum(1), (BEFORE,), (LAST,)),
    }


CASES = [(format, name) for format in ("delta", "iceberg") for name in scenarios("delta")]


def shown(root: str, format: str) -> Content | None:
    """Which load each year's rows are of, as a reader of the format sees them; None where there is no table."""
    folder = Path(root) / ("_delta_log" if format == "delta" else "metadata")
    if format == "delta":
        if not folder.exists() or not list(folder.glob("*.json")):
            return None
        found = DeltaTable(root).to_pyarrow_table()
    else:
        if not (folder / "version-hint.text").exists():
            return None
        found = StaticTable.from_metadata(root).scan().to_arrow()
    assert pc.all(pc.equal(pc.count(found["id"]), found.num_rows)).as_py() in (True, None)
    assert found.num_rows == 6 * len(set(found["year"].to_pylist()))
    return dict(zip(found["year"].to_pylist(), found["load"].to_pylist(), strict=True))


def made(scenario: Scenario, root: Path) -> str:
    for step in scenario.made_by:
        step(str(root))
    return str(root)


def kill_and_heal(scenario: Scenario, format: str, root: Path, event: int) -> None:
    table = made(scenario, root)
    start(scenario.step, table, event).wait()
    assert shown(table, format) in scenario.shown
    assert read(table) in scenario.held
    check_contents(table)
    for step in (scenario.step, Publish(format), Vacuum(1), Publish(format)):
        step(table)
    assert read(table) == shown(table, format) == scenario.held[-1]
    check_contents(table)


@pytest.mark.slow
@pytest.mark.parametrize(("format", "name"), [("delta", "load"), ("iceberg", "first")])
def test_killed_in_the_middle(tmp_path: Path, format: str, name: str) -> None:
    scenario = scenarios(format)[name]
    events = events_of(scenario.step, made(scenario, tmp_path / "counted"))
    assert events > 10
    kill_and_heal(scenario, format, tmp_path / "killed", 2 * events // 3)


@pytest.mark.long
@pytest.mark.parametrize(("format", "name"), CASES)
def test_killed_at_every_step(tmp_path: Path, format: str, name: str) -> None:
    scenario = scenarios(format)[name]
    events = events_of(scenario.step, made(scenario, tmp_path / "counted"))
    for event in range(1, events + 1):
        kill_and_heal(scenario, format, tmp_path / str(event), event)
