"""A rehearsed load is evaluated exactly as the loaded table is, and leaves nothing behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from layoutopt.model.layout import ByVectors, Layout, Scheme
from layoutopt.scan.evaluate import evaluate
from layoutopt.scan.table import open_table
from layoutopt.spark.load import load
from layoutopt.spark.rehearse import rehearse
from tests.spark.tables import plan_of, simple_document, simple_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ESTIMATED = ("bytes_scanned", "footer_bytes", "skipped_by")


def test_a_rehearsal_scans_what_the_loaded_table_scans(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = simple_rows(spark)
    document = simple_document(source)
    plan = plan_of(document, partition_by="day", block_rows=20)
    groups = Scheme(
        (
            Layout(("id", "day"), (0,), ("id", "day"), ByVectors("ward")),
            Layout(("kind", "text"), (0,), ("kind", "text"), ByVectors("ward")),
        )
    )
    for number, one in enumerate([plan, replace(plan, scheme=groups)]):
        monkeypatch.chdir(tmp_path)
        before = set(tmp_path.rglob("*"))
        rehearsed = evaluate(rehearse(spark, source, one), document.queries)
        assert set(tmp_path.rglob("*")) == before
        load(spark, source, tmp_path / f"t{number}", one)
        loaded = evaluate(open_table(str(tmp_path / f"t{number}")), document.queries)
        assert any(query["blocks_scanned"] < query["blocks_total"] for query in loaded["queries"])
        for ours, theirs in zip(rehearsed["queries"], loaded["queries"], strict=True):
            assert {k: v for k, v in ours.items() if k not in ESTIMATED} == {
                k: v for k, v in theirs.items() if k not in ESTIMATED
            }
            assert (ours["bytes_scanned"] > 0) == (theirs["bytes_scanned"] > 0)
