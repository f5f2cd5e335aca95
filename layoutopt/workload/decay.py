"""Statements that count less the older they are, so that what a log says follows what people ask now."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from layoutopt.errors import LogError
from layoutopt.model.arrays import Floats
from layoutopt.model.query import Query
from layoutopt.sql.problems import Unusable
from layoutopt.sql.types.zones import zone_of

FORGOTTEN: Final = 20.0
"""After so many half-lives a statement, which is worth a millionth then, counts no more."""


def decayed(queries: Sequence[Query], half_life: dt.timedelta, time_zone: str = "UTC") -> tuple[Query, ...]:
    """The queries with weights that halve with each half-life that they are older than the newest one.

    Those of more than :data:`FORGOTTEN` half-lives are left out.

    Args:
        queries: of one log, in any order, each with the time when it ran.
        half_life: longer than nothing.
        time_zone: of times without one.

    Raises:
        LogError: a statement has no time, or one that can't be read.
    """
    times = times_of(queries, time_zone)
    ages = (times.max(initial=0.0) - times) / half_life.total_seconds()
    return tuple(
        replace(query, weight=query.weight * 0.5**age)
        for query, age in zip(queries, ages.tolist(), strict=True)
        if age <= FORGOTTEN
    )


def times_of(queries: Sequence[Query], time_zone: str = "UTC") -> Floats:
    """When each query ran, in seconds since 1970, ``float64[n_queries]``.

    Raises:
        LogError: a statement has no time, or one that can't be read; or the zone's clocks are not known.
    """
    try:
        zone = zone_of(time_zone)
    except Unusable as error:
        raise LogError(f"{error}, so times without one can't be read; name a region, as Europe/Prague") from error
    return np.array([_seconds(query, zone) for query in queries], dtype=np.float64)


def _seconds(query: Query, zone: dt.tzinfo) -> float:
    try:
        moment = dt.datetime.fromisoformat(query.timestamp or "")
    except ValueError:
        has = f"the timestamp {query.timestamp!r}" if query.timestamp else "no timestamp"
        raise LogError(
            f"statement {query.id} of the log has {has}; give each the time when it ran, like 2026-11-22T10:00:00"
        ) from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).timestamp()
