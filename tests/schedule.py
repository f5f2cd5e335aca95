"""Which tests run where and when: by the seconds that files took, or in an order that a commit draws."""

from __future__ import annotations

import json
import signal
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

# Seconds of each file that takes some, on two quiet cores: written by `make durations`.
DURATIONS: Final = Path(__file__).with_name("durations.json")
# Files below this are not listed.
_LEAST_SECONDS: Final = 1.0
# In a drawn run no test of a file begins after so many seconds, so that some files have their turn.
_SECONDS_A_FILE: Final = 300


@cache
def read_seconds() -> Mapping[str, float]:
    """Return the recorded seconds of each file."""
    seconds: dict[str, float] = json.loads(DURATIONS.read_text(encoding="utf-8"))
    return seconds


def write_seconds(seconds: Mapping[str, float]) -> None:
    """Replace the recorded seconds of the files that ran."""
    there = {file: known for file, known in read_seconds().items() if Path(file).exists()}
    merged = there | {file: round(measured, 1) for file, measured in seconds.items()}
    listed = {file: known for file, known in sorted(merged.items()) if known >= _LEAST_SECONDS}
    DURATIONS.write_text(json.dumps(listed, indent=0) + "\n", encoding="utf-8")


def find_file(nodeid: str) -> str:
    """Return the file of a test."""
    return nodeid.partition("::")[0]


@cache
def needs_spark(file: str) -> bool:
    """Return whether tests of a file need the session that the tests of a process share."""
    return Path(file).name.startswith("test_") and "mark.spark" in Path(file).read_text(encoding="utf-8")


def balance(files: Iterable[str], scopes: int) -> dict[str, int]:
    """Return a scope of each file, such that the scopes take about the same time."""
    seconds, totals = read_seconds(), [0.0] * scopes
    scope_of = {}
    for file in sorted(files, key=lambda file: (-seconds.get(file, _LEAST_SECONDS), file)):
        scope_of[file] = totals.index(min(totals))
        totals[scope_of[file]] += seconds.get(file, _LEAST_SECONDS)
    return scope_of


class BySeconds(LoadScopeScheduling):  # type: ignore[misc]
    """Give each process files that share its Spark session, then the longest of the other files to who is free."""

    _spark_scope: Mapping[str, int] | None = None

    def _split_scope(self, nodeid: str) -> str:
        file = find_file(nodeid)
        if self._spark_scope is None:
            files = dict.fromkeys(map(find_file, next(iter(self.registered_collections.values()))))
            self._spark_scope = balance(filter(needs_spark, files), self.numnodes)
        return file if file not in self._spark_scope else f"spark-{self._spark_scope[file]}"

    def _assign_work_unit(self, node: Any) -> None:
        first = max(self.workqueue, key=lambda scope: (scope.startswith("spark-"), read_seconds().get(scope, 0.0)))
        self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)


class InOrder(LoadScopeScheduling):  # type: ignore[misc]
    """Give files to who is free, in the order of the tests."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return find_file(nodeid)


@dataclass
class Draw:
    """A run of as many tests as fit into some seconds, in an order that a text draws.

    Attributes:
        text: a commit's hash.
        seconds: what the tests may take.
    """

    text: str
    seconds: float
    _begun: float = field(default_factory=time.monotonic)
    _file: str = ""
    _file_begun: float = 0.0
    _runs_test: bool = False
    _is_over: bool = False

    def sort(self, items: list[pytest.Item]) -> None:
        """Sort tests by drawn files; each file begins with a drawn test, and those before it come last."""
        by_file: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            by_file[find_file(item.nodeid)].append(item)
        items.clear()
        for file in sorted(by_file, key=self._hash):
            tests = by_file[file]
            first = self._hash(f"first of {file}") % len(tests)
            items += tests[first:] + tests[:first]

    def _hash(self, file: str) -> int:
        return int.from_bytes(sha256(f"{self.text} {file}".encode()).digest()[:8])

    def set_alarm(self) -> None:
        """End the test that runs when the time is over as skipped."""

        def skip(*_: object) -> None:
            if self._runs_test:
                self._is_over = True
                pytest.skip("the drawn run's time is over")

        signal.signal(signal.SIGALRM, skip)
        signal.setitimer(signal.ITIMER_REAL, max(0.1, self.seconds))

    def begin(self, item: pytest.Item) -> None:
        """Skip a test that comes too late."""
        now, file = time.monotonic(), find_file(item.nodeid)
        if file != self._file:
            self._file, self._file_begun = file, now
        if now - self._begun > self.seconds or now - self._file_begun > _SECONDS_A_FILE:
            pytest.skip("left to another drawn run")
        self._runs_test = True

    def end(self) -> None:
        """Note that no test runs."""
        self._runs_test = False

    def correct(self, report: pytest.TestReport) -> None:
        """Report the test in which the time was over as skipped, whatever it made of that."""
        if self._is_over and report.failed:
            file, line, _ = report.location
            report.outcome, report.longrepr = "skipped", (file, line or 0, "the drawn run's time is over")
