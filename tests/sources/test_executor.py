"""Work in processes of this machine: what it gives, and what its errors are here."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from layoutopt.errors import SourceIndexError, WorkerLostError
from layoutopt.events import following_steps
from layoutopt.sources.executor import Processes
from tests.effort import PROCESSES


def power(base: int, exponent: int) -> tuple[int, int]:
    return base**exponent, os.getpid()


def failing(number: int) -> int:
    raise SourceIndexError(f"no {number}", "there")


def killed(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(("cores", "count", "here"), [(1, 5, True), (2, 1, True), (2, 5, False), (2, 0, True)])
def test_each_number_is_given_to_the_function(cores: int, count: int, here: bool) -> None:
    values = Processes(cores).map(range(count), partial(power, 3))
    assert [value for value, _ in values] == [3**number for number in range(count)]
    assert all((process == os.getpid()) is here for _, process in values)


@pytest.mark.parametrize("cores", [1, 2])
def test_errors_are_what_they_were(cores: int) -> None:
    with pytest.raises(SourceIndexError, match=r"^no ") as raised:
        Processes(cores).map(range(2), failing)
    assert raised.value.source == "there"


def test_a_process_that_is_killed_says_so_and_others_take_its_place() -> None:
    with pytest.raises(WorkerLostError, match="one of 2 processes was killed"):
        Processes(2).map(range(2), killed)
    assert [value for value, _ in Processes(2).map(range(2), partial(power, 2))] == [1, 2]


@pytest.mark.parametrize("cores", [1, 2])
def test_each_value_is_reported(cores: int) -> None:
    seen: list[tuple[int, int]] = []
    with following_steps(lambda done, total: seen.append((done, total))):
        Processes(cores).map(range(3), abs)
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_there_are_as_many_as_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PROCESSES)
    assert Processes().cores == len(os.sched_getaffinity(0))


def noted(folder: Path, number: int) -> None:
    (folder / str(number)).touch()


def test_processes_begin_while_this_one_goes_on(tmp_path: Path) -> None:
    tasks = Processes(2)
    for _ in range(2):  # while a task is done no other is begun
        tasks.begin(partial(noted, tmp_path))
    assert [value for value, _ in tasks.map(range(2), partial(power, 2))] == [1, 2]
    assert {path.name for path in tmp_path.iterdir()} == {"0", "1"}


def test_what_fails_at_the_beginning_is_nobody_elses_failure() -> None:
    tasks = Processes(2)
    for function in (failing, killed):
        tasks.begin(function)
        assert [value for value, _ in tasks.map(range(2), partial(power, 2))] == [1, 2]


def test_one_core_begins_nothing(tmp_path: Path) -> None:
    tasks = Processes(1)
    tasks.begin(partial(noted, tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert [value for value, _ in tasks.map(range(1), partial(power, 2))] == [1]
