"""How long a stream of queries takes in several ways, which have to give the same answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

import duckdb

from layoutopt.errors import LayoutoptError

if TYPE_CHECKING:
    import pyarrow as pa

REPEATS: Final = 5


class WrongAnswerError(LayoutoptError):
    """A query's answer from the optimised table is not that from plain Parquet."""


@dataclass(frozen=True)
class Way:
    """One engine on one table.

    Attributes:
        name: what is printed.
        plan: from a text to what runs it, to its end, without giving rows to anybody.
        answer: a text's rows.
    """

    name: str
    plan: Callable[[str], Callable[[], object]]
    answer: Callable[[str], pa.Table]


@dataclass(frozen=True)
class Timing:
    """How long a stream took in one way: seconds by round and query, of planning and of both.

    Attributes:
        planning: until the query could run: analysing the text, and finding the blocks to read.
        total: until its last row.
    """

    planning: Sequence[Sequence[float]]
    total: Sequence[Sequence[float]]

    @property
    def seconds(self) -> float:
        """All queries together, the median of the rounds."""
        return median(map(sum, self.total))

    @property
    def planning_seconds(self) -> float:
        """What of it is planning, the median of the rounds."""
        return median(map(sum, self.planning))

    @property
    def by_query(self) -> list[float]:
        """Each query's seconds, the median of the rounds."""
        return [median(rounds) for rounds in zip(*self.total, strict=True)]

    def by_label(self, labels: Sequence[str]) -> dict[str, float]:
        """The seconds of the queries of each label, one a query, in the order in which labels first occur."""
        found = dict.fromkeys(labels, 0.0)
        for label, seconds in zip(labels, self.by_query, strict=True):
            found[label] += seconds
        return found


def time_ways(ways: Sequence[Way], texts: Sequence[str], repeats: int = REPEATS) -> dict[str, Timing]:
    """Run the texts in each way, once unmeasured and then in turns.

    Args:
        ways: the ways.
        texts: the queries.
        repeats: rounds that are measured.

    Returns:
        The timing of each way, by its name.
    """
    measured: dict[str, list[list[tuple[float, float]]]] = {way.name: [] for way in ways}
    for _ in range(repeats + 1):
        for way in ways:
            measured[way.name].append([_time(way, text) for text in texts])
    return {
        name: Timing(*([[pair[kind] for pair in one] for one in rounds[1:]] for kind in (0, 1)))
        for name, rounds in measured.items()
    }


def _time(way: Way, text: str) -> tuple[float, float]:
    started = time.perf_counter()
    ready = way.plan(text)
    planned = time.perf_counter()
    ready()
    return planned - started, time.perf_counter() - started


def check_answers(ways: Sequence[Way], texts: Sequence[str]) -> int:
    """Compare all ways' answers to each text; returns the rows of all answers together.

    Raises:
        WrongAnswerError: two differ.
    """
    rows = 0
    for text in texts:
        digests = {way.name: digest(way.answer(text)) for way in ways}
        if len(set(digests.values())) > 1:
            raise WrongAnswerError(f"{text!r} has different answers: {digests}")
        rows += next(iter(digests.values()))[0]
    return rows


def digest(answer: pa.Table) -> tuple[int, int]:
    """The number of rows, and a sum over them of hashes, which no order of the rows changes."""
    with duckdb.connect() as connection:
        connection.register("answer", answer)
        row = connection.execute("SELECT count(*), coalesce(sum(hash(answer)::HUGEINT), 0) FROM answer").fetchone()
    assert row is not None
    return int(row[0]), int(row[1])
