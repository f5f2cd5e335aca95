"""Loads of many days of which some fail: the others are loaded, and a rerun does the rest."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from layoutopt.errors import (
    AlreadyLoadedError,
    LayoutoptError,
    MissingPartitionError,
    PartitionsFailedError,
)
from layoutopt.loading import load as loading
from layoutopt.loading.load import LoadsReport
from tests.loading.days import DAYS, Days


@pytest.fixture
def days(tmp_path: Path) -> Days:
    return Days(tmp_path)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Exception], None]:
    """Let each load of a day fail."""

    def fail(day: str, error: Exception) -> None:
        write, number = loading.load, (dt.date.fromisoformat(day) - dt.date(1970, 1, 1)).days

        def load(*arguments: Any, **named: Any) -> Any:
            if number in arguments[3].values:
                raise error
            return write(*arguments, **named)

        monkeypatch.setattr(loading, "load", load)

    return fail


@pytest.mark.parametrize("group", [None, 2, 10])
def test_a_day_that_fails_does_not_stop_the_others(
    days: Days, group: int | None, failing: Callable[[str, Exception], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(DAYS[1], LayoutoptError("a page is damaged"))
    with pytest.raises(PartitionsFailedError, match=rf"1 partition.s. were not loaded \({DAYS[1]}\).* a page is") as e:
        days.load(first=DAYS[0], last=DAYS[3], group=group)
    report: LoadsReport = e.value.report
    assert ([failure.partition for failure in report.failed], e.value.exit_code) == ([DAYS[1]], 1)
    assert sorted(report.partitions) == [DAYS[0], DAYS[2], DAYS[3]]
    assert days.loaded == {DAYS[0]: 20, DAYS[2]: 22, DAYS[3]: 23}
    monkeypatch.undo()
    again = days.load(first=DAYS[0], last=DAYS[3], group=group)
    assert (again.partitions, again.already) == ((DAYS[1],), (DAYS[0], DAYS[2], DAYS[3]))
    assert days.load(first=DAYS[0], last=DAYS[3]).loads == ()


@pytest.mark.parametrize(
    ("chosen", "group", "commits"),
    [
        ({"first": DAYS[0]}, 3, [DAYS[:3], DAYS[3:]]),
        ({}, 3, [DAYS[:3], DAYS[3:]]),
        ({}, None, [DAYS]),
        ({"first": DAYS[0]}, None, [DAYS[:1], DAYS[1:2], DAYS[2:3], DAYS[3:]]),
        ({"partition": DAYS[1:]}, 2, [DAYS[1:3], DAYS[3:]]),
    ],
)
def test_a_group_is_a_commit(
    days: Days, chosen: dict[str, Any], group: int | None, commits: list[tuple[str, ...]]
) -> None:
    days.load(**chosen, group=group)
    assert days.commits == commits


def test_days_without_rows_are_listed(days: Days, capsys: pytest.CaptureFixture[str]) -> None:
    report = days.load(first="2026-11-17", last="2026-11-21")
    assert report.empty == ("2026-11-17", "2026-11-21")
    assert report.partitions == DAYS[:3]
    assert days.run("--from", DAYS[0], "--to", "2026-11-21") == 0
    assert "1 partition(s) without rows: 2026-11-21" in capsys.readouterr().out
    assert days.run("--from", "2026-12-01", "--to", "2026-12-03") == 4
    assert days.load(last=DAYS[3]).empty == ()  # without a first day, nobody knows how many there are
    with pytest.raises(MissingPartitionError, match="no rows for day=2026-12-01"):
        days.load(partition=("2026-12-01",))


def test_the_worst_failure_gives_the_code(
    days: Days, failing: Callable[[str, Exception], None], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--partition", f"{DAYS[0]},{DAYS[1]},2026-12-01")
    assert days.run(*words, "--json") == 4
    out = json.loads(capsys.readouterr().out)
    assert (out["partitions"], [failure["exit"] for failure in out["failed"]]) == ([DAYS[0], DAYS[1]], [4])
    days.write_day(DAYS[0], 30)
    assert days.run(*words) == 3  # a conflict needs someone to look, before rows that come later
    shown = capsys.readouterr()
    assert f"not loaded: {DAYS[0]}: partition '{DAYS[0]}' was loaded from other content" in shown.out
    assert "not loaded: 2026-12-01: " in shown.out
    assert f"2 partition(s) were not loaded ({DAYS[0]}, 2026-12-01)" in shown.err
    failing(DAYS[2], OSError("the network is gone"))
    assert days.run("--from", DAYS[0]) == 1
    assert days.loaded == {DAYS[0]: 20, DAYS[1]: 21, DAYS[3]: 23}


def test_a_partition_alone_fails_as_it_always_did(days: Days) -> None:
    days.load(partition=(DAYS[0],))
    days.write_day(DAYS[0], 30)
    with pytest.raises(AlreadyLoadedError):
        days.load(partition=(DAYS[0],))


@pytest.mark.parametrize("group", [None, 4])
def test_a_damaged_file_stops_its_day_alone(days: Days, group: int | None) -> None:
    file = days.source / f"day={DAYS[2]}" / "a.parquet"
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    assert days.run("--from", DAYS[0], "--to", DAYS[3], *([] if group is None else ["--group", str(group)])) == 2
    assert days.loaded == {DAYS[0]: 20, DAYS[1]: 21, DAYS[3]: 23}
    assert days.run("--partition", DAYS[2]) == 2
    assert days.run() == 2  # a whole table lacks no day
    file.write_bytes(content)
    assert days.run("--from", DAYS[0], "--to", DAYS[3]) == 0
    assert days.loaded == {DAYS[0]: 20, DAYS[1]: 21, DAYS[2]: 22, DAYS[3]: 23}
