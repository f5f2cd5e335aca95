"""One in-memory DuckDB that tests ask: opening one takes longer than most of their questions."""

from __future__ import annotations

import os
from functools import cache

import duckdb


def connection() -> duckdb.DuckDBPyConnection:
    """A connection in UTC; close it after use. What one registers is not seen by others."""
    return _database(os.getpid()).cursor()  # its threads are not there after a fork


@cache
def _database(process: int) -> duckdb.DuckDBPyConnection:
    database = duckdb.connect()
    database.execute("SET GLOBAL TimeZone = 'UTC'; SET threads = 1")
    return database
