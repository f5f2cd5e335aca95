"""The check of skipping in Spark: what a session skips wrongly is found when a query is planned, whatever wrote it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.errors import QueryExecutionException
from pyspark.sql import SparkSession

from layoutopt.errors import SkippingError
from layoutopt.model.predicates import conjunction
from layoutopt.scan import check_switch as switch
from layoutopt.scan.table import Table
from layoutopt.spark import disable, enable, read_table, register
from layoutopt.spark.catalyst.predicates import Condition, read_condition
from layoutopt.spark.session import enabling
from layoutopt.spark.session.enabling import scan_to_dataframe
from layoutopt.sql.scans import find_scans
from tests.effort import one_in
from tests.scan import builder
from tests.scan.builder import build, building, by_position
from tests.scan.layouts import SCHEMES
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows

pytestmark = pytest.mark.spark

AIR = "SELECT id FROM t WHERE kind = 'air'"
TEXTS = [
    "SELECT id FROM t WHERE id >= 100",
    "SELECT lower(kind) AS k, avg(score) FROM t WHERE id >= 100 GROUP BY lower(kind)",
    "SELECT a.id, initcap(b.kind) FROM t a LEFT JOIN t b USING (id) WHERE a.id >= 100",
]


@pytest.fixture(autouse=True)
def switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(switch.SWITCH, "1")


@pytest.fixture
def enabled(spark: SparkSession) -> Iterator[SparkSession]:
    session = spark.newSession()
    enable(session)
    yield session
    disable(session)


@pytest.fixture
def forged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    monkeypatch.setattr(builder, "pack", lambda bits: np.zeros((len(bits), 1), dtype=np.uint64))
    return build(tmp_path, some_rows(), building(SCHEMA, CONDITIONS))


def misread(*given: Any) -> Condition:
    """A condition as it would be read by a translation that adds a test of its own."""
    found = read_condition(*given)
    narrow = find_scans("SELECT id FROM t WHERE id < 150", {"t": SCHEMA})[0].filter.root
    return replace(found, root=conjunction([found.root, narrow]))


def test_a_wrong_catalog_is_found(enabled: SparkSession, forged: Table) -> None:
    path = forged.catalog.files.root
    register(enabled, "t", path)
    for frame in (
        enabled.sql(AIR),
        enabled.table("t").where("kind = 'air'"),
        read_table(enabled, path).where("kind = 'air'").groupBy("year").count(),
        enabled.sql("SELECT count(*) FROM t x JOIN range(300) r ON x.id = r.id WHERE x.kind = 'air' AND x.price > 60"),
    ):
        with pytest.raises(QueryExecutionException, match="skipped by features"):
            frame.collect()
    with pytest.raises(QueryExecutionException, match="skipped by features"):
        scan_to_dataframe(enabled, {forged.name: forged}, AIR).collect()
    with pytest.raises(SkippingError, match="skipped by features"):
        forged.scan_under(AIR, forged.settings)
    kinds = some_rows()["kind"].to_pylist()
    assert enabled.table("t").count() == len(kinds)  # nothing is skipped, so nothing is hidden
    assert enabled.table("t").where("lower(upper(kind)) = 'air'").count() == kinds.count("air") > 0


@pytest.mark.parametrize(
    ("layouts", "text"),
    one_in(3, {f"{method}-{text}": (SCHEMES[method], text) for text in TEXTS for method in ("sop", "gsop")}),
)
def test_a_condition_that_is_misread_is_found(
    enabled: SparkSession, tmp_path: Path, text: str, layouts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = building(SCHEMA, CONDITIONS, layouts=layouts, blocking=by_position(25))
    laid_out = build(tmp_path, some_rows().sort_by("id"), plan)
    register(enabled, "t", str(tmp_path))
    rows = enabled.sql(text).count()
    assert laid_out.scan(text).to_spark(enabled).count() == rows
    assert enabled.table("t").where("id >= 100").count() > 0
    monkeypatch.setattr(enabling, "read_condition", misread)
    for frame in (enabled.sql(text), laid_out.scan(text).to_spark(enabled), enabled.table("t").where("id >= 100")):
        with pytest.raises(QueryExecutionException, match=r"reads 50 matching rows, but 200 rows meet"):
            frame.collect()


@pytest.mark.parametrize(
    ("condition", "counted"),
    [
        ("lower(kind) = 'air'", "scans of Spark"),
        ("kind = 'air' AND rand() >= 0.000001", "undecided scans"),
        ("price > (SELECT min(price) FROM t)", "undecided scans"),
        ("1 / (id - 17) IS NOT NULL AND id < 40", "undecided scans"),  # fails, as it does without skipping
    ],
)
def test_what_is_checked_and_what_is_not_is_counted(
    enabled: SparkSession, tmp_path: Path, condition: str, counted: str
) -> None:
    build(tmp_path, some_rows(), building(SCHEMA, CONDITIONS))
    register(enabled, "t", str(tmp_path))
    before = switch.TALLY.copy()
    frame = enabled.sql(f"SELECT id FROM t WHERE {condition}")
    if "17" in condition:
        with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
            frame.collect()
    else:
        assert len(frame.collect()) > 3
    found = switch.TALLY - before
    assert (found["undecided scans"], found["scans of Spark"]) == ((1, 0) if "un" in counted else (0, 1))
