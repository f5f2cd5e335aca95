"""What plans of one source and log share while an experiment runs, and what each is charged with."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from layoutopt.methods.interface import Known, PlanRequest
from layoutopt.methods.strategies import REPLICATING

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
        self._finder: dict[tuple[str, PlanRequest], tuple[str, float]] = {}
        self._used: defaultdict[str, set[tuple[str, PlanRequest]]] = defaultdict(set)
        self._copying = 0.0

    def once(self, what: str, request: PlanRequest, find: Callable[[], T]) -> T:
        """As :class:`~layoutopt.methods.interface.Known` has it, timed."""
        key = self.key(what, request)
        self._used[self.method].add(key)

        def timed() -> T:
            started = time.perf_counter()
            found = find()
            self._finder[key] = (self.method, time.perf_counter() - started)
            return found

        return super().once(what, request, timed)

    def charge(self, seconds: float) -> float:
        """What a plan of the method takes that took so many seconds itself: with what other methods found for it.

        A plan with copies is charged for all such plans so far, of whatever method, which evaluated layouts for it:
        never less than it would take alone.
        """
        used = self._used[self.method]
        charged = seconds + sum(took for what, (by, took) in self._finder.items() if what in used and by != self.method)
        if self.method in REPLICATING:
            charged += self._copying
            self._copying += seconds
        return charged


@lru_cache(maxsize=1)
def known_of(source: str, features: bytes) -> TimedKnown:
    """What this process knows of the source and log that it planned for last, by the bytes of their features.json."""
    return TimedKnown()
