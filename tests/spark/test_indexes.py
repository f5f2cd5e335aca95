"""Indexes through Spark: built by a load, found sound, and used by queries in an enabled session."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from layoutopt.indexes.choosing import parse_indexes
from layoutopt.inspect.verify import verify
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import Call, Col
from layoutopt.scan.table import open_table
from layoutopt.spark import disable, enable, last_scans, register
from layoutopt.spark.loading.load import load
from tests.extension_package import install_package
from tests.scan.builder import build, building
from tests.scan.tables import SCHEMA, some_rows
from tests.spark.tables import plan_of, simple_document, simple_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_load_builds_what_its_plan_says_and_queries_skip_by_it(spark: SparkSession, tmp_path: Path) -> None:
    source = simple_rows(spark)
    document = simple_document(source)
    asked = parse_indexes(("text:bloom", "lower(text):ngrams", "upper(TEXT):bloom:0.2"), document.schema)
    lower = Call("lower", (Col("text", "string"),), "string")
    assert asked[:2] == (IndexSpec(Col("text", "string"), "bloom"), IndexSpec(lower, "ngrams"))
    plan = replace(plan_of(document, partition_by="day"), indexes=asked)
    load(spark, source, str(tmp_path / "t"), plan)
    table = open_table(str(tmp_path / "t"))
    assert verify(table).problems == ()
    session = spark.newSession()
    register(session, "t", str(tmp_path / "t"))
    enable(session)
    for condition, row in [
        ("text = 'row 137'", 137),
        ("lower(text) LIKE '%w 241%'", 241),
        ("upper(text) = 'ROW 77' OR id < 0", 77),
    ]:
        found = session.sql(f"SELECT id FROM t WHERE {condition}").collect()
        assert [each["id"] for each in found] == [row]
        (scan,) = last_scans(session)
        assert scan.skipped_by["index"].blocks > scan.read.blocks
    disable(session)


def test_an_installed_type_skips_in_an_enabled_session(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_package(tmp_path, monkeypatch)
    indexes = (IndexSpec(Col("id", "int"), "last-digits"),)
    build(
        tmp_path / "t",
        some_rows(),
        building(SCHEMA, blocking=lambda rows, bits: np.asarray(rows["id"]) % 10, indexes=indexes),
    )
    session = spark.newSession()
    register(session, "t", str(tmp_path / "t"))
    enable(session)
    assert [row["id"] for row in session.sql("SELECT id FROM t WHERE id = 13").collect()] == [13]
    (scan,) = last_scans(session)
    assert (scan.read.blocks, scan.skipped_by["index"].blocks) == (1, 9)
    disable(session)
