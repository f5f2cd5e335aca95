from __future__ import annotations

import io
from dataclasses import asdict, astuple, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from layoutopt.bench.queries import (
    CASES,
    ENGINES,
    OPTIMISED,
    PLAIN,
    PlainFiles,
    queries_report,
    query_step,
    run_queries,
    summary_of,
)
from layoutopt.bench.timing import Timing, check_answers, time_ways
from layoutopt.bench.tpch.data import TpchData
from layoutopt.bench.tpch.experiment import Bench
from layoutopt.bench.tpch.queries import TABLE
from layoutopt.errors import SettingError
from layoutopt.model.engine_costs import BUILT_IN, Work
from tests.effort import long_too
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
@pytest.mark.parametrize("engine", ["duckdb", *long_too("spark")])
def test_both_ways_of_an_engine_give_the_same_answers(engine: str, spark: SparkSession, tmp_path: Path) -> None:
    rows = some_rows()
    before = PlainFiles(TABLE, tmp_path / "before")
    before.folder.mkdir()
    pq.write_table(rows, before.folder / "part-0.parquet")
    made = building(SCHEMA, CONDITIONS, partition_by="year")
    build(tmp_path / "table", rows, replace(made, plan=replace(made.plan, table=TABLE)))
    wanted = sum(row["kind"] == "air" and (row["price"] or 0) > 50 for row in rows.to_pylist())
    with ENGINES[engine](lambda: spark, before, tmp_path / "table") as ways:
        assert check_answers(ways, TEXTS[:1]) == wanted > 0
        assert check_answers(ways, TEXTS) > wanted
        assert set(time_ways(ways, TEXTS[:1], repeats=1)) == {PLAIN, OPTIMISED}


def test_totals_and_their_ratio_are_printed() -> None:
    timings = {
        PLAIN: Timing([[0.5, 0.5]], [[2.0, 4.0]]),
        OPTIMISED: Timing([[0.5, 1.0]], [[1.0, 1.5]]),
    }
    product = {"rows": 7, "timings": {name: asdict(timing) for name, timing in timings.items()}}
    assert summary_of(product, ["q3", "q5"], BUILT_IN.costs("duckdb"))["predicted_seconds"] is None
    work = [Work(queries=1), Work(queries=1, values=1e6)]
    summary = summary_of({**product, "work": [astuple(each) for each in work]}, ["q3", "q5"], BUILT_IN.costs("duckdb"))
    predicted = sum(BUILT_IN.costs("duckdb").seconds(each) for each in work)
    assert summary["predicted_seconds"] == pytest.approx(predicted, abs=1e-5) != 0
    assert (summary["rows"], summary["rounds"], summary["ratio"]) == (7, 1, 2.4)
    assert summary[OPTIMISED] == {"seconds": 2.5, "planning_seconds": 1.5, "by_label": {"q3": 1.0, "q5": 1.5}}
    said = io.StringIO()
    Console(width=160, file=said).print(queries_report({"chapter4": {"duckdb": summary}}, 0.1))
    assert "warm, median of 1 rounds" in said.getvalue()
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in said.getvalue().splitlines()]
    assert [
        "chapter4 (2)",
        "duckdb",
        "6.00 s",
        "1.00 s",
        "2.50 s",
        "1.50 s",
        f"{predicted:.2f} s",
        "2.40x",
        "0 of 2",
    ] in cells
    assert ["q5", "4.00 s", "1.50 s"] in cells


def test_a_label_has_the_median_of_each_of_its_queries() -> None:
    timing = Timing([[0.0] * 3] * 3, [[1.0, 2.0, 9.0], [2.0, 3.0, 9.0], [9.0, 4.0, 9.0]])
    assert timing.by_label(["q5", "q3", "q5"]) == {"q5": 11.0, "q3": 3.0}


def test_engines_are_timed_apart(tmp_path: Path) -> None:
    bench = Bench(TpchData(0.01, tmp_path), lambda: None)  # type: ignore[arg-type, return-value]
    steps = [query_step(bench.spark, case(bench), engine, 5) for case in CASES.values() for engine in ENGINES]
    assert len({step.product for step in steps}) == len(CASES) * len(ENGINES)
    assert len({needed.product for step in steps for needed in step.needs}) == len(CASES)


def test_brushed_queries_are_told_apart_by_how_many_columns_have_a_range(tmp_path: Path) -> None:
    case = CASES["weather"](Bench(TpchData(1, tmp_path), lambda: None))  # type: ignore[arg-type, return-value]
    queries = case.queries()
    told = {label: sum(of == label for of, _ in queries) for label, _ in queries}
    assert [told[f"columns with a range: {count}"] for count in range(1, 7)] == [130, 101, 36, 24, 9, 1]
    assert next(text for label, text in queries if label.endswith("2")).count(" AND ") == 3


def test_a_query_counts_as_slowed_down_beyond_a_fifth_and_a_moment() -> None:
    plain, ours = [0.125, 0.125, 1.0], [0.15, 0.25, 0.5]
    timings = {PLAIN: Timing([plain], [plain]), OPTIMISED: Timing([ours], [ours])}
    product = {"rows": 3, "timings": {name: asdict(timing) for name, timing in timings.items()}}
    summary = summary_of(product, ["q"] * 3, BUILT_IN.costs("spark"))
    assert (summary["slowed"], summary["slowest"]) == (1, 2.0)


def test_unknown_cases_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="there is no case 'chapter9' of queries; give one of chapter3, "):
        run_queries(0.01, root=tmp_path, cases=["chapter9"])
