"""One Spark session for an experiment, started only if a step needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def spark_when_needed(app: str) -> Iterator[Callable[[], SparkSession]]:
    """Give a function that makes one Spark session when it is first called; the session is stopped at the end.

    Args:
        app: the application's name.
    """
    started: list[SparkSession] = []

    @cache
    def session() -> SparkSession:
        from layoutopt.spark.core.sessions import spark_session

        started.append(spark_session(app))
        return started[0]

    try:
        yield session
    finally:
        for spark in started:
            spark.stop()
