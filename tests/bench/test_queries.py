from __future__ import annotations

import io
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from layoutopt.bench.experiment import Bench
from layoutopt.bench.queries import ENGINES, OPTIMISED, PLAIN, queries_table, query_step, summary_of
from layoutopt.bench.timing import Timing, check_answers, time_ways
from layoutopt.bench.tpch_data import TpchData
from layoutopt.bench.tpch_queries import TABLE
from tests.scan.builder import build, building
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXTS = [
    f"SELECT id, price, day FROM {TABLE} WHERE kind = 'air' AND price > 50",
    f"SELECT id FROM {TABLE} WHERE day >= DATE '1995-01-01' AND day < DATE '1995-01-01' + INTERVAL '1' YEAR",
    f"SELECT kind FROM {TABLE} WHERE id > 1000",
]


@pytest.mark.spark
@pytest.mark.parametrize("engine", ENGINES)
def test_both_ways_of_an_engine_give_the_same_answers(engine: str, spark: SparkSession, tmp_path: Path) -> None:
    rows = some_rows()
    bench = Bench(TpchData(0.01, tmp_path), lambda: spark)
    bench.data.denormalised.mkdir(parents=True)
    pq.write_table(rows, bench.data.denormalised / "part-0.parquet")
    made = building(SCHEMA, CONDITIONS, partition_by="year")
    build(tmp_path / "table", rows, replace(made, plan=replace(made.plan, table=TABLE)))
    wanted = sum(row["kind"] == "air" and (row["price"] or 0) > 50 for row in rows.to_pylist())
    with ENGINES[engine](bench, tmp_path / "table") as ways:
        assert check_answers(ways, TEXTS[:1]) == wanted > 0
        assert check_answers(ways, TEXTS) > wanted
        assert set(time_ways(ways, TEXTS[:1], repeats=1)) == {PLAIN, OPTIMISED}


def test_totals_and_their_ratio_are_printed() -> None:
    timings = {
        PLAIN: Timing([[0.5, 0.5]], [[2.0, 4.0]]),
        OPTIMISED: Timing([[0.5, 1.0]], [[1.0, 1.5]]),
    }
    summary = summary_of({"rows": 7, "timings": {name: asdict(timing) for name, timing in timings.items()}})
    assert (summary["rows"], summary["ratio"]) == (7, 2.4)
    assert summary[OPTIMISED] == {"seconds": 2.5, "planning_seconds": 1.5}
    said = io.StringIO()
    Console(width=120, file=said).print(queries_table({"duckdb": summary}, 0.1))
    (line,) = [line for line in said.getvalue().splitlines() if "duckdb" in line]
    assert [cell.strip() for cell in line.split("│")[1:-1]] == [
        "duckdb", "6.00 s", "1.00 s", "2.50 s", "1.50 s", "2.40x"
    ]  # fmt: skip


def test_engines_are_timed_apart(tmp_path: Path) -> None:
    bench = Bench(TpchData(0.01, tmp_path), lambda: None)  # type: ignore[arg-type, return-value]
    steps = [query_step(bench, engine, 5) for engine in ENGINES]
    assert len({step.product for step in steps}) == len(ENGINES)
    assert len({needed.product for step in steps for needed in step.needs}) == 1
