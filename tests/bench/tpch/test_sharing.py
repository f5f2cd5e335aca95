"""What plans share is found once, and each is charged for what it uses."""

from __future__ import annotations

from functools import partial

import pytest

from layoutopt.bench.tpch.sharing import TimedKnown, known_of
from layoutopt.methods.interface import PlanRequest


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that pass are those appended."""
    passed = [0.0]
    monkeypatch.setattr("layoutopt.bench.tpch.sharing.time.perf_counter", lambda: sum(passed))
    return passed


def plan_by(known: TimedKnown, method: str, clock: list[float], own: float) -> float:
    """Search for 10 seconds, where nobody has, and plan for some of its own."""
    known.method = method
    before = sum(clock)
    known.once("groups", PlanRequest(method=method), lambda: clock.append(10.0))
    clock.append(own)
    return known.charge(sum(clock) - before)


def test_a_plan_is_charged_for_what_others_found_for_it(clock: list[float]) -> None:
    known = TimedKnown()
    assert plan_by(known, "gsop", clock, 1.0) == 11
    assert plan_by(known, "gsop-r", clock, 2.0) == 12
    assert sum(clock) == 13


def test_a_larger_budget_is_charged_for_the_smaller_ones(clock: list[float]) -> None:
    known = TimedKnown()
    assert [plan_by(known, "gsop-r", clock, own) for own in (1.0, 2.0, 4.0)] == [11, 13, 17]
    assert [plan_by(known, "gsop-single", clock, own) for own in (1.0, 2.0)] == [11, 12]


def test_a_plan_with_copies_is_charged_for_all_others_of_the_same_search(clock: list[float]) -> None:
    known = TimedKnown()
    assert plan_by(known, "gsop-r", clock, 1.0) == 11
    assert plan_by(known, "gsop-selective", clock, 2.0) >= 13


def test_what_another_request_found_is_still_owed(clock: list[float]) -> None:
    known = TimedKnown()
    for method, block_rows, charged in (("gsop", 100, 10.0), ("gsop", 200, 20.0), ("gsop-r", 100, 10.0)):
        known.method = method
        before = sum(clock)
        known.once("groups", PlanRequest(block_rows=block_rows), partial(clock.append, charged))
        assert known.charge(sum(clock) - before) == charged


def test_what_is_known_is_of_one_source_and_log() -> None:
    first = known_of("a", b"log")
    assert known_of("a", b"log") is first
    assert known_of("a", b"another log") is not first
