"""The embedded engine's connections: cheap, and unknown to each other."""

from __future__ import annotations

import os

import duckdb
import pyarrow as pa
import pytest

from layoutopt.errors import QueryError
from layoutopt.evaluation.engine import connect

ZONE = "SELECT current_setting('TimeZone')"


def test_each_zone_has_its_own() -> None:
    with connect("Asia/Tokyo") as tokyo, connect("UTC") as utc, connect("Asia/Tokyo") as again:
        zones = [connection.execute(ZONE).fetchall() for connection in (tokyo, utc, again)]
    assert zones == [[("Asia/Tokyo",)], [("UTC",)], [("Asia/Tokyo",)]]


def test_views_and_settings_of_one_are_not_seen_by_others() -> None:
    with connect("UTC") as one, connect("UTC") as other:
        one.register("v", pa.table({"a": [1]}))
        other.register("v", pa.table({"a": [2]}))
        one.execute("SET TimeZone = 'Europe/Berlin'")
        assert [c.execute("SELECT a FROM v").fetchall() for c in (one, other)] == [[(1,)], [(2,)]]
        assert other.execute(ZONE).fetchall() == [("UTC",)]
    with connect("UTC") as later, pytest.raises(duckdb.CatalogException):
        later.execute("SELECT * FROM v")


def test_a_connection_outlives_others() -> None:
    with connect("UTC") as one:
        with connect("UTC"):
            pass
        assert one.execute("SELECT 1").fetchall() == [(1,)]


def test_an_unknown_zone_is_named() -> None:
    for _ in range(2):
        with pytest.raises(QueryError, match="Middle/Earth"):
            connect("Middle/Earth")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_opens_its_own() -> None:
    with connect("UTC") as before:
        before.execute("SELECT 1")
    child = os.fork()
    if not child:
        with connect("UTC") as inside:
            os._exit(0 if inside.execute("SELECT 2").fetchall() == [(2,)] else 1)
    assert os.waitpid(child, 0)[1] == 0
