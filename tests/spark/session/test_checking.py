"""The check of skipping in Spark: what a session skips wrongly is found when it is asked, whatever reads the text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from layoutopt.errors import SkippingError
from layoutopt.model.predicates import Filter, conjunction
from layoutopt.scan import check_switch as switch
from layoutopt.scan import reads
from layoutopt.scan.reads import remembered_mentions
from layoutopt.scan.table import Table
from layoutopt.spark import disable, enable, register, unregister
from layoutopt.spark.session.datasource import register_format
from layoutopt.spark.session.tables import session_tables
from layoutopt.sql.scans import TableScan, scans_of
from tests.effort import long_too
from tests.scan import builder
from tests.scan.builder import build, building, by_position
from tests.scan.layouts import GROUPS
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows

pytestmark = pytest.mark.spark

AIR = "SELECT id FROM t WHERE kind = 'air'"
TEXTS = [
    "SELECT id FROM t WHERE id >= 100",
    "SELECT lower(kind) AS k, avg(score) FROM t WHERE id >= 100 GROUP BY lower(kind)",  # for Spark alone
    "SELECT a.id, initcap(b.kind) FROM t a LEFT JOIN t b USING (id) WHERE a.id >= 100",
]


@pytest.fixture(autouse=True)
def switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(switch.SWITCH, "1")


@pytest.fixture
def misreading(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From when it is called, texts are misread: in place of what the session remembered."""

    def begin() -> None:
        monkeypatch.setattr(session_tables(spark), "mentions", remembered_mentions())
        monkeypatch.setattr(reads, "scans_of", misread)

    return begin


@pytest.fixture
def enabled(spark: SparkSession) -> Iterator[SparkSession]:
    enable(spark)
    yield spark
    disable(spark)
    unregister(spark, "t")


@pytest.fixture
def forged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    monkeypatch.setattr(builder, "pack", lambda bits: np.zeros((len(bits), 1), dtype=np.uint64))
    return build(tmp_path, some_rows(), building(SCHEMA, CONDITIONS))


def misread(*args: Any, **kwargs: Any) -> list[TableScan]:
    """Scans as an analyser would find them that adds a condition of its own."""
    narrow = scans_of("SELECT id FROM t WHERE id < 150", {"t": SCHEMA})[0].filter.root
    found = scans_of(*args, **kwargs)
    return [replace(scan, filter=Filter.of(conjunction([scan.filter.root, narrow]))) for scan in found]


def test_a_wrong_catalog_is_found(enabled: SparkSession, forged: Table) -> None:
    register(enabled, "t", forged.catalog.files.root)
    with pytest.raises(SkippingError, match="skipped by features"):
        enabled.sql(AIR)
    with pytest.raises(SkippingError, match="skipped by features"):
        forged.scan_under(AIR, forged.settings)
    with pytest.raises(SkippingError, match="Spark's answer"):
        enabled.sql(
            "SELECT count(*) FROM t x JOIN range(300) r ON x.id = r.id WHERE lower(x.kind) = x.kind AND x.price > 60"
        )


@pytest.mark.long
def test_the_data_source_skips_nothing_by_it(spark: SparkSession, forged: Table) -> None:
    """What Spark filters, of all rows; a decision under no condition has nothing that a forged catalog could hide."""
    register_format(spark)
    rows = spark.read.format("layoutopt").load(forged.catalog.files.root)
    kinds = some_rows()["kind"].to_pylist()
    assert rows.filter("kind = 'air'").count() == kinds.count("air") > 0
    assert rows.count() == forged.rows


@pytest.mark.parametrize(
    ("layouts", "text"),
    [*((None, text) for text in TEXTS), *((GROUPS, text) for text in TEXTS[:2]), *long_too((GROUPS, TEXTS[2]))],
    ids=[f"{method}-{text}" for method in ("sop", "gsop") for text in TEXTS],
)
def test_a_text_that_is_misread_is_found(
    enabled: SparkSession, tmp_path: Path, text: str, layouts: Any, misreading: Callable[[], None]
) -> None:
    plan = building(SCHEMA, CONDITIONS, layouts=layouts, blocking=by_position(25))
    laid_out = build(tmp_path, some_rows().sort_by("id"), plan)
    register(enabled, "t", str(tmp_path))
    rows = enabled.sql(text).count()
    scan = laid_out.scan(text)
    assert scan.to_spark(enabled).count() == rows
    misreading()
    with pytest.raises(SkippingError):
        enabled.sql(text)
    with pytest.raises(SkippingError):
        replace(scan, table=replace(laid_out)).to_spark(enabled)  # what it read in the text before, it remembers


def test_an_answer_that_is_open_is_left_undecided(enabled: SparkSession, tmp_path: Path) -> None:
    build(tmp_path, some_rows(), building(SCHEMA, CONDITIONS))
    register(enabled, "t", str(tmp_path))
    before = switch.TALLY.copy()
    assert enabled.sql(f"{AIR} AND lower(kind) = 'air' LIMIT 3").count() == 3
    assert enabled.sql(f"{AIR} AND lower(kind) = 'air'").count() > 3
    found = switch.TALLY - before
    assert (found["undecided texts"], found["answers of Spark"]) == (1, 1)
