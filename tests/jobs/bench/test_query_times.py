"""Queries are timed in turns and their answers compared; what is reported is read off the timings."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from jobs.bench.experiment import Source, WrongAnswerError
from jobs.bench.query_times import (
    CASES,
    ENGINES,
    OPTIMISED,
    PLAIN,
    Timing,
    Way,
    check_answers,
    digest,
    queries_report,
    query_step,
    run_queries,
    summarize,
    time_ways,
)
from jobs.bench.steps import Step
from jobs.bench.tpch import Tpch, TpchData
from jobs.bench.tpch_queries import TABLE
from layoutopt.errors import SettingError
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
    before = Source(TABLE, tmp_path / "before", tmp_path, Step("made", tmp_path / "made.json", dict))
    before.path.mkdir()
    pq.write_table(rows, before.path / "part-0.parquet")
    made = building(SCHEMA, CONDITIONS, partition_by="year")
    build(tmp_path / "table", rows, replace(made, plan=replace(made.plan, table=TABLE)))
    wanted = sum(row["kind"] == "air" and (row["price"] or 0) > 50 for row in rows.to_pylist())
    with ENGINES[engine](lambda: spark, before, tmp_path / "table") as ways:
        assert check_answers(ways, TEXTS[:1]) == wanted > 0
        assert check_answers(ways, TEXTS) > wanted
        assert set(time_ways(ways, TEXTS[:1], repeats=1)) == {PLAIN, OPTIMISED}


def test_totals_and_their_ratio_are_printed() -> None:
    timings = {PLAIN: Timing([[0.5, 0.5]], [[2.0, 4.0]]), OPTIMISED: Timing([[0.5, 1.0]], [[1.0, 1.5]])}
    product = {"rows": 7, "timings": {name: asdict(timing) for name, timing in timings.items()}}
    summary = summarize(product, ["q3", "q5"])
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
        "2.40x",
        "0 of 2",
    ] in cells
    assert ["q5", "4.00 s", "1.50 s"] in cells


def test_a_label_has_the_median_of_each_of_its_queries() -> None:
    timing = Timing([[0.0] * 3] * 3, [[1.0, 2.0, 9.0], [2.0, 3.0, 9.0], [9.0, 4.0, 9.0]])
    assert timing.by_label(["q5", "q3", "q5"]) == {"q5": 11.0, "q3": 3.0}


def test_engines_are_timed_apart(tmp_path: Path) -> None:
    tpch = Tpch(TpchData(0.01, tmp_path), lambda: None)  # type: ignore[arg-type, return-value]
    steps = [query_step(tpch.spark, case(tpch), engine, 5) for case in CASES.values() for engine in ENGINES]
    assert len({step.product for step in steps}) == len(CASES) * len(ENGINES)
    assert len({needed.product for step in steps for needed in step.needs}) == len(CASES)


def test_brushed_queries_are_told_apart_by_how_many_columns_have_a_range(tmp_path: Path) -> None:
    case = CASES["weather"](Tpch(TpchData(1, tmp_path), lambda: None))  # type: ignore[arg-type, return-value]
    queries = case.queries()
    told = {label: sum(of == label for of, _ in queries) for label, _ in queries}
    assert [told[f"columns with a range: {count}"] for count in range(1, 7)] == [130, 101, 36, 24, 9, 1]
    assert next(text for label, text in queries if label.endswith("2")).count(" AND ") == 3


def test_a_query_counts_as_slowed_down_beyond_a_fifth_and_a_moment() -> None:
    plain, ours = [0.125, 0.125, 1.0], [0.15, 0.25, 0.5]
    timings = {PLAIN: Timing([plain], [plain]), OPTIMISED: Timing([ours], [ours])}
    product = {"rows": 3, "timings": {name: asdict(timing) for name, timing in timings.items()}}
    summary = summarize(product, ["q"] * 3)
    assert (summary["slowed"], summary["slowest"]) == (1, 2.0)


def test_unknown_cases_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="unknown case of queries 'chapter9': did you mean 'chapter"):
        run_queries(0.01, root=tmp_path, cases=["chapter9"])


ANSWERS = {"a": pa.table({"x": [1, 2, 2, None]}), "b": pa.table({"x": ["é"], "y": [0.5]})}


def way(name: str, said: list[str], change: Callable[[pa.Table], pa.Table] = lambda answer: answer) -> Way:
    def plan(text: str) -> Callable[[], object]:
        said.append(f"{name} plans {text}")
        return lambda: said.append(f"{name} runs {text}")

    return Way(name, plan, lambda text: change(ANSWERS[text]))


def test_ways_take_turns_and_the_first_round_is_not_measured() -> None:
    said: list[str] = []
    timings = time_ways([way("p", said), way("q", said)], ["a", "b"], repeats=2)
    round_of_p = ["p plans a", "p runs a", "p plans b", "p runs b"]
    round_of_q = [line.replace("p ", "q ", 1) for line in round_of_p]
    assert said == 3 * [*round_of_p, *round_of_q]
    for timing in timings.values():
        assert [len(one) for one in timing.total] == [2, 2]
        assert 0 < timing.planning_seconds <= timing.seconds


def test_totals_are_medians_of_rounds() -> None:
    timing = Timing(planning=[[1, 1], [1, 2], [0, 0]], total=[[2, 2], [9, 9], [3, 4]])
    assert (timing.seconds, timing.planning_seconds, timing.by_query) == (7, 2, [3, 4])


def test_answers_are_the_same_in_any_order_of_rows() -> None:
    reverse = way("q", [], lambda answer: answer.take(list(range(answer.num_rows))[::-1]))
    assert check_answers([way("p", []), reverse], ["a", "b"]) == 5


@pytest.mark.parametrize(
    "change",
    [
        lambda answer: answer.slice(1),
        lambda answer: pa.concat_tables([answer.slice(0, 1), answer.slice(0, answer.num_rows - 1)]),
        lambda answer: pa.table({"x": [1, 1, 2, None]}),
    ],
    ids=["one less", "one for another", "duplicates of another"],
)
def test_a_wrong_answer_is_named(change: Callable[[pa.Table], pa.Table]) -> None:
    with pytest.raises(WrongAnswerError, match="'a'"):
        check_answers([way("p", []), way("q", [], change)], ["a"])


def test_an_empty_answer_has_a_digest() -> None:
    assert digest(ANSWERS["a"].slice(4)) == (0, 0)
