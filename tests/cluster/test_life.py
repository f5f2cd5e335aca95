"""One life of a table on a cluster: each verb as users run it, and the answers of one machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import layoutopt
import layoutopt.spark
from layoutopt.config.documents import read_features
from layoutopt.inspect.verify import verify
from layoutopt.model.layout import Plan
from tests.cluster.events import DAYS, GROUPS, ROWS_A_DAY, UNSEEN, make_rows, query_rows
from tests.cluster.spark_cluster import Cluster, submit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.cluster, pytest.mark.spark]


@pytest.fixture(scope="module")
def features(place: Path) -> Path:
    layoutopt.analyze(place / "log.sql", place / "source", table="events", threshold=1).save(place / "features.json")
    return place / "features.json"


@pytest.fixture(scope="module")
def plan(place: Path, features: Path, cluster: Cluster) -> Plan:
    """The plan of the job."""
    words = ["--source", place / "source", "--features", features, "--partition-by", "day", "--method", "sop"]
    said = submit(cluster, "plan", *words, "--block-rows", 100, "--output", place / "plan.json")
    assert "planned sop" in said
    return Plan.loads((place / "plan.json").read_bytes())


@pytest.fixture(scope="module")
def table(place: Path, plan: Plan, cluster: Cluster) -> Path:
    """A table that a job loads."""
    words = ["--source", place / "source", "--table", place / "table", "--plan", place / "plan.json"]
    assert f"loaded {DAYS * ROWS_A_DAY} rows" in submit(cluster, "load", *words)
    return place / "table"


@pytest.fixture(scope="module")
def lived(place: Path, table: Path, cluster: Cluster, shared_session: SparkSession) -> Path:
    """The table after an append, a delete and an optimize."""
    pq.write_table(make_rows(0, ROWS_A_DAY, 100), place / "late.parquet")
    said = submit(cluster, "append", "--source", place / "late.parquet", "--table", table, "--batch-id", "late")
    assert "appended 100 rows" in said
    layoutopt.delete(table, where="code = 11 AND day = 1", executor=shared_session)
    submit(cluster, "optimize", "--table", table)
    return table


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    """The rows after these changes."""
    all_rows = pa.concat_tables([*(make_rows(day) for day in range(DAYS)), make_rows(0, ROWS_A_DAY, 100)])
    return query_rows(all_rows, "SELECT * FROM events WHERE NOT (code = 11 AND day = 1)")


def answer_by_spark(session: SparkSession, table: Path, query: str, by_driver: bool) -> list[dict[str, object]]:
    layoutopt.spark.register(session, "events", str(table))
    layoutopt.spark.enable(session, by_driver=by_driver)
    try:
        return [row.asDict() for row in session.sql(query).collect()]
    finally:
        layoutopt.spark.disable(session)


def test_the_plan_is_that_of_one_machine(place: Path, features: Path, plan: Plan) -> None:
    here = layoutopt.plan(
        place / "source", features, executor="local", partition_by="day", method="sop", block_rows=100
    )
    assert here.digest == plan.digest


def test_the_blocks_are_those_of_one_machine(place: Path, table: Path, plan: Plan) -> None:
    layoutopt.load(place / "source", place / "here", plan, executor="local")
    assert list_blocks(table) == list_blocks(place / "here")


def list_blocks(table: Path) -> list[tuple[list[int], list[list[int]]]]:
    """Return the rows and union vectors of the blocks of a table's first load, by partition."""
    catalog = layoutopt.open_table(str(table), snapshot=0).catalog
    return [(blocks.rows.tolist(), blocks.words.tolist()) for _, blocks in catalog.block_tables()]


def test_three_jobs_make_the_plan_of_one(place: Path, features: Path, plan: Plan, cluster: Cluster) -> None:
    words: list[object] = ["--source", place / "source", "--features", features, "--partition-by", "day"]
    words += ["--method", "sop", "--block-rows", 100]
    submit(cluster, "featurize", *words, "--output", place / "pairs.parquet")
    assert sum(pq.read_table(place / "pairs.parquet")["count"].to_pylist()) == DAYS * ROWS_A_DAY
    submit(cluster, "plan", *words, "--pairs", place / "pairs.parquet", "--output", place / "by-pairs.json")
    assert Plan.loads((place / "by-pairs.json").read_bytes()).digest == plan.digest


def test_the_table_is_whole_after_a_life(lived: Path, cluster: Cluster, rows: pa.Table) -> None:
    assert "rows read; no problems" in submit(cluster, "verify", "--table", lived)
    table = layoutopt.open_table(str(lived))
    assert verify(table).ok
    assert table.sql("SELECT count(*) AS n FROM events").to_pylist() == [{"n": rows.num_rows}]


@pytest.mark.parametrize("by_driver", [True, False], ids=["driver", "tasks"])
@pytest.mark.parametrize("query", UNSEEN)
def test_answers_of_one_layout(session: SparkSession, lived: Path, rows: pa.Table, query: str, by_driver: bool) -> None:
    expected = query_rows(rows, query).to_pylist()
    assert expected
    assert layoutopt.open_table(str(lived)).sql(query).to_pylist() == expected
    assert answer_by_spark(session, lived, query, by_driver) == expected


@pytest.fixture(scope="module")
def grouped(place: Path, features: Path, plan: Plan, shared_session: SparkSession) -> Path:
    """A table of two layouts, in which rows are deleted."""
    assert len(read_features(features).features) == 4
    scheme = replace(plan, method="gsop", scheme=GROUPS)
    layoutopt.load(place / "source", place / "grouped", scheme, executor=shared_session)
    pq.write_table(make_rows(0, ROWS_A_DAY, 100), place / "late.parquet")
    layoutopt.append(place / "grouped", place / "late.parquet", executor=shared_session)
    layoutopt.delete(place / "grouped", where="code = 11 AND day = 1", executor=shared_session)
    return place / "grouped"


@pytest.mark.parametrize("by_driver", [True, False], ids=["driver", "tasks"])
@pytest.mark.parametrize("query", UNSEEN)
def test_answers_of_two_layouts(
    session: SparkSession, grouped: Path, rows: pa.Table, query: str, by_driver: bool
) -> None:
    assert answer_by_spark(session, grouped, query, by_driver) == query_rows(rows, query).to_pylist()
