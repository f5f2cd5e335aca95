"""Tests are shared out by their seconds, and drawn runs come to all of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import schedule
from tests.schedule import Draw, balance, read_seconds


def test_durations_name_files() -> None:
    root = Path(__file__).parents[1]
    assert [file for file in read_seconds() if not (root / file).is_file()] == []


def test_scopes_take_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {"a": 50.0, "b": 30.0, "c": 15.0, "d": 5.0, "e": 2.0}
    monkeypatch.setattr(schedule, "read_seconds", lambda: seconds)
    scope_of = balance(["new", *seconds], 2)
    assert scope_of == {"a": 0, "b": 1, "c": 1, "d": 1, "e": 0, "new": 1}


def test_each_test_has_its_turn() -> None:
    names = [f"{file}::test_{number}" for file in "abc" for number in range(4)]
    first = set()
    for commit in range(200):
        items: list[Any] = [SimpleNamespace(nodeid=name) for name in names]
        Draw(str(commit), 60).sort(items)
        assert sorted(item.nodeid for item in items) == names
        first.add(items[0].nodeid)
    assert first == set(names)


def test_late_tests_are_skipped() -> None:
    item: Any = SimpleNamespace(nodeid="a::test_1")
    Draw("", 60).begin(item)
    with pytest.raises(pytest.skip.Exception, match="another"):
        Draw("", -1).begin(item)
