"""Views of a table's files in a session: made once, right, and gone with the table's name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from layoutopt.spark import disable, enable, register
from layoutopt.spark.session import relations
from layoutopt.spark.session.tables import session_tables, unregister
from tests.scan.builder import build, building
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


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
