"""Lists of blocks: a session takes them to Parquet while it is enabled, and its own setting comes back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from layoutopt import spark as skipping
from layoutopt.spark.session.enabling import MAX_IN_VALUES
from tests.scan.builder import build, building
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows

pytestmark = pytest.mark.spark
SETTING = "spark.sql.parquet.pushdown.inFilterThreshold"


def plan_of(session: SparkSession, text: str) -> str:
    return str(session.sql(text)._jdf.queryExecution().executedPlan().toString())


def test_the_setting_of_a_session_comes_back(spark: SparkSession) -> None:
    session = spark.newSession()
    skipping.enable(session)
    skipping.enable(session)
    assert session.conf.get(SETTING) == str(MAX_IN_VALUES)
    skipping.disable(session)
    assert session.conf.get(SETTING) == "10"


@pytest.mark.parametrize("own", ["0", "5000"])
def test_what_a_user_sets_stays(spark: SparkSession, own: str) -> None:
    before, later = spark.newSession(), spark.newSession()
    before.conf.set(SETTING, own)
    for session in (before, later):
        skipping.enable(session)
        session.conf.set(SETTING, own)
        skipping.disable(session)
        assert session.conf.get(SETTING) == own


@pytest.mark.usefixtures("by_tasks")
def test_the_code_of_a_query_has_no_numbers_of_blocks(spark: SparkSession, tmp_path: Path) -> None:
    rows = some_rows(90)
    build(tmp_path, rows, building(SCHEMA, CONDITIONS))
    session = spark.newSession()
    skipping.register(session, "t", str(tmp_path))
    skipping.enable(session)
    try:
        text = "SELECT id FROM t WHERE kind IN ('air', 'rail')"
        assert re.search(r"_block#\d+L INSET ", plan_of(session, text))
        found = sorted(row.id for row in session.sql(text).collect())
        assert found == sorted(row["id"] for row in rows.to_pylist() if row["kind"] in ("air", "rail"))
    finally:
        skipping.disable(session)
