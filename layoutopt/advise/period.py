"""How many queries run in a month: as somebody says, or as the times in a log tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from layoutopt.advise.advice import MONTH, Period
from layoutopt.errors import LogError
from layoutopt.model.query import Query, weight_of
from layoutopt.workload.decay import times_of

_DAY: Final = 86_400.0
_DAYS_A_MONTH: Final = 365.25 / 12
_SHORTEST: Final = 1.0
"""Days that a log spans at least, so that it tells of a month."""
_THOUSAND: Final = 1_000


def period_of(queries: Sequence[Query], runs_a_month: float | None, time_zone: str = "UTC") -> Period:
    """What savings are told for: a month, where it is known how many queries it has, else a thousand queries.

    Args:
        queries: of the log, each with its runs as its weight.
        runs_a_month: as somebody says; None asks the log's times.
        time_zone: of times without one.
    """
    if runs_a_month is not None:
        return Period(MONTH, runs_a_month, "as --queries-per-month says")
    days = _days(queries, time_zone)
    if days is None:
        return Period(f"{_THOUSAND:,} queries", _THOUSAND, "since the log spans no day; see --queries-per-month")
    runs = weight_of(queries)
    return Period(MONTH, runs / days * _DAYS_A_MONTH, f"by the {days:,.1f} days of the log")


def _days(queries: Sequence[Query], time_zone: str) -> float | None:
    """How long the log is; None where a query has no time, or where it is too short to tell of a month."""
    try:
        times = times_of(queries, time_zone)
    except LogError:
        return None
    days = float(times.max() - times.min()) / _DAY
    return days if days >= _SHORTEST else None
