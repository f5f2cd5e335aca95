"""Every test query of the thesis, answered from a table by both engines, equals Spark's answer from the source.

The source's answers come from one pass in which the filters are values, not filters: nothing can be skipped, nor pushed
down to Parquet.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final

import pytest

from jobs.bench.experiment import write_log
from jobs.bench.tpch import TpchData
from jobs.bench.tpch_queries import STREAMS, TABLE
from layoutopt.cli.app import main
from layoutopt.inspect.evaluate import evaluate
from layoutopt.sql.schema import schema_from
from layoutopt.workload.analyze import analyze
from layoutopt.workload.log import read_log
from tests.effort import long_too
from tests.jobs.bench.answers import Case, Making, asked, check, make_case, write_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

STREAM_OF: Final = {"sop": "chapter3", "gsop": "chapter4"}
CASES: Final = {method: [(method, name) for name in STREAMS[stream].templates] for method, stream in STREAM_OF.items()}


@pytest.fixture(scope="module")
def source(spark: SparkSession, tpch: TpchData, tmp_path_factory: pytest.TempPathFactory) -> str:
    templates = {name for stream in STREAM_OF.values() for name in STREAMS[stream].templates}
    path = str(tmp_path_factory.mktemp("answers") / "source")
    years = "o_year BETWEEN 1994 AND 1995"  # of seven: filters name years that are there, and some that are not
    return write_source(spark, str(tpch.denormalised), asked(sorted(templates)), path, years)


@pytest.fixture(scope="module")
def made(spark: SparkSession, source: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    """The tables by method, each made when a test first asks for it."""

    def make(method: str) -> Case:
        making = Making(method, STREAMS[STREAM_OF[method]].templates)
        return make_case(spark, making, source, tmp_path_factory.mktemp(method))

    return cache(make)


# Of one layout other tests ask as much, of smaller tables.
every_template = pytest.mark.parametrize(
    ("case", "template"), [*CASES["gsop"], *long_too(*CASES["sop"])], indirect=["case"]
)
every_method = pytest.mark.parametrize("case", ["gsop", *long_too("sop")], indirect=True)


@pytest.mark.long
@every_template
def test_the_embedded_engine_answers_as_the_source(case: Case, template: str) -> None:
    check(case, template, lambda sql: case.table.scan(sql).to_arrow())


@pytest.mark.long
@every_template
def test_spark_answers_every_query_as_the_source(case: Case, template: str, spark: SparkSession) -> None:
    check(case, template, lambda sql: case.table.scan(sql).to_spark(spark).toArrow())


@pytest.mark.long
@every_method
def test_the_command_prints_the_answer(case: Case, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    # With one row at least, or nothing would be compared.
    query, expected = next((q, a) for q, a in zip(case.queries, case.answers, strict=True) if a.num_rows)
    wanted = sorted([str(value) for value in row.values()] for row in expected.to_pylist())
    for engine in ("duckdb", "spark"):
        assert main(["query", str(case.folder / "table"), query.sql, "--engine", engine, "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)["rows"]
        assert sorted([str(value) for value in row] for row in printed) == wanted


@pytest.mark.long
@every_method
def test_most_is_skipped_by_every_mechanism(case: Case, source: str) -> None:
    write_log(case.queries, case.folder / "test.jsonl")
    queries = analyze(read_log(case.folder / "test.jsonl"), schema_from(source), TABLE).queries
    assert len(queries) == len(case.queries)
    totals = evaluate(case.table, queries).totals
    assert totals.skipped_by["index"].blocks == 0  # nobody asked for one
    skipped = {name: size.blocks for name, size in totals.skipped_by.items() if name != "index"}
    assert min(skipped.values()) > 0, skipped
    assert totals.rows_scanned < 0.75 * totals.rows_scanned_by_statistics < totals.rows_total
    matching = sum(answer.num_rows for answer in case.answers)
    assert 0 < matching <= totals.rows_scanned < 0.4 * totals.rows_total
