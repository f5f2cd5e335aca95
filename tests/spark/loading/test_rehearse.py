"""A rehearsed load is evaluated exactly as the loaded table is, and leaves nothing behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from layoutopt.inspect.evaluate import Evaluation, evaluate
from layoutopt.model.feature import FeatureSet
from layoutopt.model.layout import CUT_BY, ByOrder, ByVectors, Layout, Plan, Scheme
from layoutopt.scan.table import open_table
from layoutopt.spark.loading.dry_run import dry_run_load, dry_run_loads
from layoutopt.spark.loading.load import load
from layoutopt.writer.dry_run import needed_columns
from tests.spark.tables import plan_of, simple_document, simple_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("uncompiled")]

ESTIMATED = ("bytes_scanned", "skipped_by", "indicators")
ABSENT = ("layouts", "footer_bytes")  # which name the plan, and know of files


@pytest.mark.long
def test_a_rehearsal_scans_what_the_loaded_table_scans(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = simple_rows(spark).selectExpr("*", "id % 7 AS unread")
    document = simple_document(source)
    document = replace(document, queries=tuple(replace(q, columns=("id", "kind", "text")) for q in document.queries))
    plan = plan_of(document, partition_by="day", block_rows=20)
    groups = Scheme(
        (
            Layout(("id", "day"), (0,), ("id", "day"), ByVectors("ward")),
            Layout(("kind", "text"), (0,), ("kind", "text"), ByVectors("ward")),
            Layout(("unread",), (), ("unread",), ByOrder("input")),
        )
    )
    plans = [plan, replace(plan, scheme=groups), by_kind(plan)]
    monkeypatch.chdir(tmp_path)
    together = dry_run_loads(spark, source, plans, columns=["id"])
    assert not list(tmp_path.rglob("*"))
    assert together[0].schema.names == ("id", "day", "kind", "text")
    for number, (one, narrow) in enumerate(zip(plans, together, strict=True)):
        rehearsed = evaluate(dry_run_load(spark, source, one), document.queries)
        assert scanned(evaluate(narrow, document.queries)) == scanned(rehearsed)
        load(spark, source, tmp_path / f"t{number}", one)
        loaded = evaluate(open_table(str(tmp_path / f"t{number}")), document.queries)
        assert any(query.blocks_scanned < query.blocks_total for query in loaded.queries)
        assert scanned(rehearsed) == scanned(loaded)


def test_plans_of_other_segments_are_not_rehearsed_in_one_pass(spark: SparkSession) -> None:
    source = simple_rows(spark)
    plan = plan_of(simple_document(source), partition_by="day", block_rows=20)
    with pytest.raises(ValueError, match="run each alone"):
        dry_run_loads(spark, source, [plan, replace(plan, segment_rows=17)])


def test_what_cuts_a_layout_is_needed_though_no_query_reads_it(spark: SparkSession) -> None:
    plan = plan_of(simple_document(simple_rows(spark)))
    queries = tuple(replace(query, columns=("kind",)) for query in plan.queries)
    (layout,) = plan.scheme.layouts
    cut = replace(layout, blocking=ByVectors("ward", ((CUT_BY, "id"),)))
    assert needed_columns([replace(plan, queries=queries)], ["kind"]) == ("kind",)
    assert needed_columns([replace(plan, queries=queries, scheme=Scheme((cut,)))], ["kind"]) == ("id", "kind")


def scanned(evaluation: Evaluation) -> list[dict[str, object]]:
    """What each query reads, and of the figures that a rehearsal estimates only whether there is anything."""
    return [
        {
            name: value if name not in ESTIMATED else bool(value)
            for name, value in query.to_json().items()
            if name not in ABSENT
        }
        for query in evaluation.queries
    ]


def by_kind(plan: Plan) -> Plan:
    """The rows in an order, and nothing to skip by but their bounds."""
    layout = Layout(plan.schema.names, (), plan.schema.names, ByOrder("sort", ("kind",)))
    return replace(plan, features=FeatureSet((), plan.features.settings), scheme=Scheme((layout,)))
