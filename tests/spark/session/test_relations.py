"""Views of a table's files in a session: made once, right, and gone with the table's name."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from layoutopt.spark import disable, enable, register
from layoutopt.spark.session import relations
from layoutopt.spark.session.tables import session_tables, unregister
from tests.scan.builder import build, building, by_position
from tests.scan.layouts import GROUPS
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
WITHOUT_STATISTICS = {"spark.sql.adaptive.enabled": "false", "spark.sql.autoBroadcastJoinThreshold": "-1"}


@pytest.mark.left_to_spark
def test_a_few_files_asked_for_together_have_a_view_of_their_own(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = some_rows()
    build(tmp_path / "t", rows, building(SCHEMA, CONDITIONS, partition_by="year", segment_rows=60))
    before = {view.name for view in spark.catalog.listTables()}
    register(spark, "few", str(tmp_path / "t"))
    enable(spark)
    monkeypatch.setattr(relations, "_MOST_VIEWS", 2)
    try:
        for views, year in ((1, 1994), (1, 1994), (2, 1995), (2, 1996)):
            for condition in (f"year = {year}", f"year = {year} AND kind = 'air'"):
                found = spark.sql(f"SELECT id, kind FROM few WHERE {condition}").collect()
                right = [
                    (row["id"], row["kind"])
                    for row in rows.to_pylist()
                    if row["year"] == year and ("kind" not in condition or row["kind"] == "air")
                ]
                assert sorted(map(tuple, found), key=str) == sorted(right, key=str)
            assert len(session_tables(spark).tables["few"].layouts[0].of_few) == views
    finally:
        disable(spark)
        unregister(spark, "few")
    assert {view.name for view in spark.catalog.listTables()} == before


def test_a_table_that_was_made_again_is_the_new_one(spark: SparkSession, tmp_path: Path) -> None:
    """Its newest snapshot has the same number."""
    session = spark.newSession()
    build(tmp_path / "t", some_rows(100), building(SCHEMA, CONDITIONS))
    register(session, "again", str(tmp_path / "t"))
    enable(session)
    try:
        assert session.sql("SELECT count(*) FROM again").first() == (100,)
        shutil.rmtree(tmp_path / "t")
        build(tmp_path / "t", some_rows(200), building(SCHEMA, CONDITIONS, partition_by="year"))  # in other files
        assert session.sql("SELECT count(*), max(id) FROM again").first() == (200, 199)
    finally:
        disable(session)
        unregister(session, "again")


@pytest.mark.long
@pytest.mark.left_to_spark
@pytest.mark.parametrize(
    ("patched", "parts"),
    [
        ({}, 1),  # few rows
        ({"_ROWS_OF_A_PART": 20}, 2),  # one for each core
        ({"_ROWS_OF_A_PART": 20, "_CUT_BYTES": 1}, 1),  # Spark cuts the file itself
        ({"_ROWS_OF_A_PART": 20, "_MOST_PARTS": 1}, 1),
        ({"_ROWS_OF_A_PART": 1_000}, 1),
    ],
)
def test_a_small_file_of_many_rows_is_read_in_parts_where_nothing_else_is_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patched: dict[str, int], parts: int
) -> None:
    rows = some_rows().sort_by("id")
    build(tmp_path / "t", rows, building(SCHEMA, CONDITIONS, blocking=by_position(10)))
    for name, value in patched.items():
        monkeypatch.setattr(relations, name, value)
    session = spark.newSession()
    register(session, "parted", str(tmp_path / "t"))
    enable(session)
    try:
        found = session.sql("SELECT id FROM parted WHERE id BETWEEN 20 AND 90 OR id > 250")
        assert found.rdd.getNumPartitions() == parts
        wanted = [id for id in rows["id"].to_pylist() if 20 <= id <= 90 or id > 250]
        assert sorted(row.id for row in found.collect()) == wanted
        beside = session.sql("SELECT id FROM parted WHERE id < 20 UNION ALL SELECT id FROM parted WHERE id > 290")
        assert beside.rdd.getNumPartitions() == 2  # one for each mention
    finally:
        disable(session)
        unregister(session, "parted")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("SELECT a.id, b.id AS other FROM none a JOIN none b ON a.id = b.id WHERE a.kind = 'zzz'", []),
        ("SELECT count(*), min(id) FROM none JOIN (SELECT DISTINCT id FROM none WHERE kind = 'zzz') q USING (id)",
         [(0, None)]),
        ("SELECT count(b.id), count(a.id) FROM none b LEFT JOIN none a ON a.id = b.id AND a.kind = 'zzz'", [(300, 0)]),
        ("SELECT count(*) FROM none WHERE kind = 'zzz'", [(0,)]),
    ],
)  # fmt: skip
def test_what_stands_for_no_rows_is_asked_of_no_others(
    spark: SparkSession, tmp_path: Path, text: str, answer: list[tuple[object, ...]]
) -> None:
    """Spark puts the expressions of one side of a join in the other's place, in conditions on its rows too."""
    build(tmp_path / "t", some_rows(), building(SCHEMA, CONDITIONS, layouts=GROUPS))
    session = spark.newSession()
    for key, value in WITHOUT_STATISTICS.items():
        session.conf.set(key, value)
    register(session, "none", str(tmp_path / "t"))
    enable(session)
    try:
        assert [tuple(row) for row in session.sql(text).collect()] == answer
    finally:
        disable(session)
        unregister(session, "none")
