"""Whether a session takes lists of values to Parquet, which blocks can then be asked for by.

Spark hands Parquet the values of a short list, and of a longer one the least and the greatest alone, which skip next to
nothing. How long a short list may be is a setting of the session.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession

_SETTING: Final = "spark.sql.parquet.pushdown.inFilterThreshold"
MOST_LISTED: Final = 400
"""Parquet compares with one value after another, each a call within the last: many more would exhaust its stack."""


def take_lists(spark: SparkSession) -> str | None:
    """Let the session take lists of so many values; returns what to put back, empty where nothing was set.

    None where the session takes longer lists anyway.
    """
    if int(spark.conf.get(_SETTING) or 0) >= MOST_LISTED:
        return None
    before = dict(spark.conf.getAll).get(_SETTING, "")
    spark.conf.set(_SETTING, MOST_LISTED)
    return before


def put_back(spark: SparkSession, before: str | None) -> None:
    """Undo :func:`take_lists`, unless somebody has changed the setting since."""
    if before is None or spark.conf.get(_SETTING) != str(MOST_LISTED):
        return
    if before:
        spark.conf.set(_SETTING, before)
    else:
        spark.conf.unset(_SETTING)
