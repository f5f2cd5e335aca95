"""Methods with copies: planned within their budget, loaded, and read back as the source has it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import jobs.bench  # the thesis's methods  # noqa: F401
from layoutopt.errors import SettingError
from layoutopt.inspect.verify import verify
from layoutopt.methods.interface import PartitionHistogram, PlanningCache, PlanRequest
from layoutopt.model.feature import FeatureSet
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.layout import Plan
from layoutopt.model.predictions import Predictions
from layoutopt.model.query import Query
from layoutopt.planning.source_profile import CountRequest, sample_histograms
from layoutopt.scan.table import Table, open_table
from layoutopt.spark.core.source import schema_of
from layoutopt.spark.loading.load import load
from tests.effort import examples, long_too
from tests.methods.random_queries import answers, as_text, random_queries, rows_of
from tests.spark.plans import make_plan, propose_plan
from tests.spark.session.answers import spark_sql
from tests.spark.tables import document, every_type, is_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def conflicting(df: DataFrame) -> FeaturesDocument:
    """Three families that read ``price`` and ``text`` and want other rows; the last one only a tenth of them."""
    schema = schema_of(df)
    conditions = [
        *((is_value(schema, "small", "<", limit), ("small", "price", "text")) for limit in (3000, 9000)),
        *((is_value(schema, "text", "=", text), ("text", "price", "bin")) for text in ("a", "")),
        *((is_value(schema, "tiny", "<", limit), ("tiny", "price", "text", "list", "tags")) for limit in (-45, -40)),
    ]
    doc = document(schema, [node for node, _ in conditions])
    queries = (replace(q, columns=columns) for q, (_, columns) in zip(doc.queries, conditions, strict=True))
    return replace(doc, queries=tuple(queries))


def planned(spark: SparkSession, source: DataFrame, method: str = "gsop-r", **settings: Any) -> Plan:
    return make_plan(
        spark, source, conflicting(source), PlanRequest(method=method, partition_by="year", block_rows=12, **settings)
    )


@pytest.fixture(scope="module")
def source(spark: SparkSession) -> DataFrame:
    return every_type(spark, 600).cache()


@pytest.fixture(scope="module")
def plan(spark: SparkSession, source: DataFrame) -> Plan:
    return planned(spark, source, storage_budget=(1.0, 1.1, 1.4), choose=1.4)


@pytest.fixture(scope="module")
def table(spark: SparkSession, source: DataFrame, plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Table:
    root = tmp_path_factory.mktemp("gsop-r") / "t"
    load(spark, source, root, replace(plan, segment_rows=120))
    return open_table(str(root))


def stored_cells(table: Table) -> float:
    """The cells that are stored, over those of the source."""
    (source,) = table.sources
    held = sum(int(source.blocks.rows[source.blocks.has_column(name)].sum()) for name in table.schema.names)
    return held / (table.rows * len(table.schema.names))


def test_more_storage_is_predicted_to_read_less_and_every_budget_is_kept(plan: Plan) -> None:
    figures = Predictions.parse(plan.predicted).by_budget
    assert list(figures) == [1.0, 1.1, 1.4]
    fractions = [figures[budget]["cells_and_tids_fraction"] for budget in figures]
    assert fractions[0] >= fractions[1] >= fractions[2]
    assert fractions[2] < fractions[0]
    assert all(figures[budget]["storage_cells"] <= budget + 1e-6 for budget in figures)
    assert all(figures[budget]["storage_bytes"] > 0 < figures[budget]["bytes_fraction"] for budget in figures)
    chosen = dict(Predictions.parse(plan.predicted).own)
    # Bytes read are predicted by the search for every budget, and for the plan by rehearsing segments.
    assert chosen.pop("bytes_fraction") > 0
    assert chosen == pytest.approx({name: figures[1.4][name] for name in chosen})


@pytest.mark.long
def test_plans_that_share_what_they_find_are_those_made_alone(
    spark: SparkSession, source: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampled: list[FeatureSet] = []

    def sampling(of: CountRequest, features: FeatureSet) -> tuple[PartitionHistogram, ...]:
        sampled.append(features)
        return sample_histograms(of, features)

    monkeypatch.setattr("layoutopt.planning.plan.sample_histograms", sampling)
    asked = PlanRequest(partition_by="year", block_rows=12)
    requests = [
        replace(asked, method=method, storage_budget=budgets)
        for method, budgets in (
            ("gsop", (1.2,)),
            ("gsop-r", (1.1, 1.4)),
            ("gsop-selective", (1.4,)),
        )
    ]
    known, doc = PlanningCache(), conflicting(source)
    shared = [propose_plan(spark, source, doc, request, known).dumps() for request in requests]
    assert len(sampled) == 1
    assert shared == [propose_plan(spark, source, doc, request).dumps() for request in requests]
    other = replace(asked, method="gsop", block_rows=24)
    assert propose_plan(spark, source, doc, other, known) == propose_plan(spark, source, doc, other)


def test_copies_overlap_and_some_hold_only_rows_that_they_are_for(plan: Plan) -> None:
    held = [name for layout in plan.scheme.layouts for name in layout.columns]
    assert len(held) > len(set(held))
    assert any(not layout.is_undivided for layout in plan.scheme.layouts)
    assert Plan.loads(plan.dumps()) == plan


def test_what_is_stored_is_what_was_predicted(plan: Plan, table: Table) -> None:
    # Three partitions of 200 rows are all sampled: the prediction is exact.
    assert stored_cells(table) == pytest.approx(plan.predicted["storage_cells"], abs=0.002)


def test_every_cell_is_in_its_master_layout(table: Table) -> None:
    assert verify(table).problems == ()


def test_queries_read_the_copies_that_are_for_them(source: DataFrame, table: Table) -> None:
    (plan,) = table.catalog.plans.values()
    copies = {i for i, layout in enumerate(plan.scheme.layouts) if not layout.is_undivided}
    read: set[int] = set()
    for query in conflicting(source).queries:
        (pruned,) = table.prune(query.filter.root, query.columns)
        read |= {choice.layout for choice in pruned.choice}
    assert read & copies


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, *long_too(1, 2)])
def test_answers_are_those_of_the_source(spark: SparkSession, source: DataFrame, table: Table, seed: int) -> None:
    texts = random_queries(source.columns, examples(10), seed)
    rng = np.random.default_rng(seed)
    for column, values in (
        ("small", (3000, 9000, 10)),
        ("tiny", (-45, -40, -42)),
        ("text", ("'a'", "''", "'value 6'")),
    ):
        value = values[int(rng.integers(3))]
        op = "=" if column == "text" else "<"
        texts.append(f"SELECT price, text, {column} FROM t WHERE {column} {op} {value}")
        texts.append(f"SELECT tags, price, {column} FROM t WHERE {column} {op} {value} AND flag")
    source.createOrReplaceTempView("t")
    try:
        for number, (sql, expected) in enumerate(zip(texts, answers(source, texts), strict=True)):
            assert rows_of(table.sql(sql)) == rows_of(expected), sql
            if number % 5 == 0:
                assert as_text(spark_sql(spark, table, sql)) == as_text(spark.sql(sql)), sql
        assert rows_of(table.sql("SELECT count(*) AS n FROM t")) == ["{'n': 600}"]
    finally:
        spark.catalog.dropTempView("t")


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "budget"), [("text-gsop-r", 1.3), *long_too(("gsop-selective", 1.3), ("gsop-fullcopy", 3.0))]
)
def test_the_ways_of_the_text_make_tables_too(
    spark: SparkSession, source: DataFrame, tmp_path: Path, method: str, budget: float
) -> None:
    plan = planned(spark, source, method, storage_budget=(budget,), slices=False)
    load(spark, source, tmp_path / "t", plan)
    table = open_table(str(tmp_path / "t"))
    assert verify(table).ok
    assert stored_cells(table) == pytest.approx(plan.predicted["storage_cells"], abs=0.002)
    assert 1.0 <= plan.predicted["storage_cells"] <= budget
    assert len(plan.scheme.layouts) > 1
    assert rows_of(table.sql("SELECT * FROM t")) == rows_of(source.toArrow())


@pytest.mark.long
def test_budgets_of_bytes_are_kept_in_bytes(spark: SparkSession, source: DataFrame) -> None:
    plan = planned(spark, source, storage_budget=(1.15,), budget_unit="bytes")
    assert plan.predicted["storage_bytes"] <= 1.15


def test_bad_budgets_are_refused(spark: SparkSession, source: DataFrame) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"storage_budget": (0.9,)}, "--storage-budget is 0.9"),
        ({"storage_budget": (1.1, 1.2), "choose": 1.5}, "--choose is 1.5"),
    ]
    for settings, message in cases:
        with pytest.raises(SettingError, match=message):
            planned(spark, source, **settings)


def test_a_query_of_no_family_is_answered(table: Table) -> None:
    query = Query(0, "t", ("at", "local"), next(iter(table.catalog.plans.values())).queries[0].filter)
    assert table.prune(query.filter.root, query.columns)
