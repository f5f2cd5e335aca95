"""Some of a log's statements that stand for all: to understand one takes milliseconds, and a log may have millions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from layoutopt.model.sequences import spread
from layoutopt.workload.entries import LogEntry

MOST_TEXTS: Final = 1_000
"""Different texts that are understood; of more so many, spread evenly along the log, each with all of its runs."""


def some_statements(entries: Iterable[LogEntry]) -> list[LogEntry]:
    """The entries of some texts, with as many runs as the log has in all.

    >>> few = some_statements(LogEntry(i, f"SELECT {i}") for i in range(5_000))
    >>> len(few), few[1].sql, few[1].count
    (1000, 'SELECT 7', 5.0)
    """
    listed = list(entries)
    texts = list(dict.fromkeys(entry.sql for entry in listed))
    if len(texts) <= MOST_TEXTS:
        return listed
    kept = set(spread(texts, MOST_TEXTS))
    some = [entry for entry in listed if entry.sql in kept]
    factor = sum(entry.count for entry in listed) / sum(entry.count for entry in some)
    return [replace(entry, count=entry.count * factor) for entry in some]
