"""Tables that older code wrote (``tests/fixtures/older``): still opened, answered from, verified and loaded into.

`texts` was loaded when a load lost partitions: the text 'null' was taken for NULL. Its files are sound, so only its
source tells.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import layoutopt.spark
from layoutopt.cli.app import main
from layoutopt.cli.console import DONE, FAILED
from layoutopt.inspect.verify import verify
from layoutopt.model.requests import LoadRequest
from layoutopt.scan.table import open_table
from layoutopt.spark.core.source import open_source
from layoutopt.spark.loading.load import run_load
from layoutopt.spark.loading.verify import compare_with_source
from tests.effort import long_too

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

OLDER = Path(__file__).parents[1] / "fixtures" / "older"
A_PARTITION = {"texts": "p=b", "days": "p=2020-02-29", "moments": "p=2020-01-01 01:02:03"}
LAYOUTS = {"texts": 1, "days": 3, "moments": 1}
QUERIES = [
    "SELECT id, kind, amount, p FROM t",
    "SELECT id, kind FROM t WHERE kind = 'air'",
    "SELECT id, amount FROM t WHERE amount < 20",
    "SELECT count(*) AS n FROM t WHERE p IS NULL",
]


@pytest.fixture(params=list(A_PARTITION))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a table, with its source and features beside it."""
    return Path(shutil.copytree(OLDER / request.param, tmp_path / request.param))


def held(place: Path) -> pa.Table:
    """The rows that the table should answer from: the source's, but for what was lost."""
    rows = pq.read_table(place / "source.parquet")
    return rows.filter(pa.compute.fill_null(pa.compute.not_equal(rows["p"], "null"), True)) if is_lossy(place) else rows


def is_lossy(place: Path) -> bool:
    return place.name == "texts"


def in_order(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


@pytest.fixture
def expected(spark: SparkSession, place: Path) -> Iterator[dict[str, list[str]]]:
    """What Spark answers from the source's rows."""
    spark.createDataFrame(held(place)).createOrReplaceTempView("t")
    yield {sql: in_order(spark.sql(sql).toArrow()) for sql in QUERIES}
    spark.catalog.dropTempView("t")


def test_it_answers_as_its_source_does(place: Path, expected: dict[str, list[str]]) -> None:
    table = open_table(str(place / "table"))
    assert {len(plan.scheme.layouts) for plan in table.catalog.plans.values()} == {LAYOUTS[place.name]}
    assert {sql: in_order(table.sql(sql)) for sql in QUERIES} == expected


def test_it_still_skips(place: Path) -> None:
    (read,) = open_table(str(place / "table")).scan(QUERIES[1]).reads
    assert 0 < sum(int(pruned.read.sum()) for pruned in read.pruned) < sum(len(pruned.read) for pruned in read.pruned)


def test_spark_answers_from_it(spark: SparkSession, place: Path, expected: dict[str, list[str]]) -> None:
    layoutopt.spark.register(spark, "older", str(place / "table"))
    layoutopt.spark.enable(spark)
    try:
        answers = {sql: in_order(spark.sql(sql.replace("FROM t", "FROM older")).toArrow()) for sql in QUERIES}
    finally:
        layoutopt.spark.disable(spark)
    assert answers == expected


def test_its_files_are_sound_and_its_source_tells_what_was_lost(
    spark: SparkSession, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, source = str(place / "table"), str(place / "source.parquet")
    assert verify(open_table(table)).ok
    problems = compare_with_source(open_source(spark, source), open_table(table), source).problems
    lost = [("source-missing", "partition p = 'null' lacks all 8 rows of the source")]
    assert [(one.check, one.message.partition(";")[0]) for one in problems] == (lost if is_lossy(place) else [])
    assert main(["verify", table, "--source", source]) == (FAILED if is_lossy(place) else DONE)
    assert ("source-missing" in capsys.readouterr().out) == is_lossy(place)


@pytest.mark.parametrize("again", [True, *long_too(False)], ids=["reload", "load"])
def test_a_partition_is_loaded_again_and_not_twice(spark: SparkSession, place: Path, again: bool) -> None:
    rows = open_table(str(place / "table")).rows
    settings = LoadRequest(
        source=str(place / "source.parquet"),
        table_path=str(place / "table"),
        partition=(A_PARTITION[place.name],),
        replace=again,
    )
    report = run_load(spark, settings)
    assert len(report.partitions) == again
    # Of partitions by timestamps no more than this: how they are named may change, how many rows there are may not.
    after = open_table(str(place / "table"))
    assert after.rows == rows
    assert len(after.sql("SELECT id FROM t")) == len(set(after.sql("SELECT id FROM t")["id"].to_pylist())) == rows
    assert verify(after).ok
