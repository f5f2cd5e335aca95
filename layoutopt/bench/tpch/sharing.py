"""What plans of one source and log share while an experiment runs, and what each is charged with."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from layoutopt.methods.proposals import Known, PlanRequest
from layoutopt.methods.replication import REPLICATING

T = TypeVar("T")


class TimedKnown(Known):
    """What was found for plans of one source and log, with the seconds that it took.

    Attributes:
        method: of the plan that is being made.
    """

    def __init__(self) -> None:
        """Nothing is known yet."""
        super().__init__()
        self.method = ""
        self._finder: dict[str, tuple[str, float]] = {}
        self._used: defaultdict[str, set[str]] = defaultdict(set)
        self._spent: defaultdict[str, float] = defaultdict(float)

    def once(self, what: str, request: PlanRequest, find: Callable[[], T]) -> T:
        """As :class:`~layoutopt.methods.proposals.Known` has it, timed."""
        self._used[self.method].add(what)

        def timed() -> T:
            started = time.perf_counter()
            found = find()
            self._finder[what] = (self.method, time.perf_counter() - started)
            return found

        return super().once(what, request, timed)

    def charge(self, seconds: float) -> float:
        """What a plan of the method takes that took so many seconds itself: with what other methods found for it.

        A plan with copies is charged for all such plans of its method so far, which evaluated layouts for it: never
        less than it would take alone.
        """
        earlier = self._spent[self.method] if self.method in REPLICATING else 0.0
        self._spent[self.method] += seconds
        used = self._used[self.method]
        return (
            seconds
            + earlier
            + sum(took for what, (method, took) in self._finder.items() if what in used and method != self.method)
        )


@lru_cache(maxsize=1)
def known_of(source: str, features: bytes) -> TimedKnown:
    """What this process knows of the source and log that it planned for last, by the bytes of their features.json."""
    return TimedKnown()
