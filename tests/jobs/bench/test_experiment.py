"""Steps of one experiment: in their order, in folders of their own, on the logs that results are read with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.bench.experiment import (
    Experiment,
    LoggedQuery,
    Source,
    Variant,
    rewritten_bytes,
    spark_rewrite_seconds,
    write_log,
)
from jobs.bench.steps import Step
from jobs.bench.tpch import Tpch, TpchData
from jobs.bench.tpch_queries import STREAMS, draw_stream
from tests.jobs.bench.without_spark import no_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOP = Variant("SOP", "sop", "o_month", 700)


@pytest.fixture
def bench(tmp_path: Path) -> Tpch:
    return Tpch(TpchData(0.1, tmp_path), no_spark)


def steps_before(step: Step) -> Iterator[Step]:
    for needed in step.needs:
        yield from steps_before(needed)
    yield step


def test_a_table_is_analysed_planned_loaded_and_evaluated_in_this_order(bench: Tpch) -> None:
    names = list(dict.fromkeys(step.name for step in steps_before(bench.stream("chapter4").evaluation(SOP))))
    assert names == [
        "generating TPC-H at scale factor 0.1 and denormalising it",
        "chapter4: analysing the training log",
        "chapter4: planning SOP",
        "chapter4: loading SOP",
        "chapter4: evaluating SOP on the test log",
    ]


def test_every_parameter_has_a_folder_of_its_own(bench: Tpch) -> None:
    changes: list[dict[str, Any]] = [
        {"method": "range"},
        {"partition_by": None},
        {"block_rows": 701},
        {"by": ("l_quantity",)},
        {"max_vectors": 2_999},
        {"features": False},
        {"written": False},
        {"budget": 1.2},
    ]
    folders = {bench.stream("chapter3").folder(replace(SOP, **change)) for change in [{}, *changes]}
    assert len(folders | {bench.stream("chapter4").folder(SOP)}) == len(changes) + 2


def test_streams_share_the_tables_that_know_no_features_but_not_their_evaluations(bench: Tpch) -> None:
    one, other = bench.stream("chapter3"), bench.stream("chapter5")
    variant = replace(SOP, features=False)
    assert one.folder(variant) == other.folder(variant)
    assert one.evaluation(variant).product != other.evaluation(variant).product


def test_the_logs_of_a_stream_are_the_draws_that_results_are_read_with(bench: Tpch) -> None:
    stream = bench.stream("chapter3")
    lines = stream.log("test").read_text().splitlines()
    assert len(lines) == len(stream.queries("test")) == 80
    assert [json.loads(line)["sql"] for line in lines] == [query.sql for query in stream.queries("test")]
    assert stream.log("train") != stream.log("test")


def test_logs_hold_every_query_once(tmp_path: Path) -> None:
    queries = draw_stream(STREAMS["chapter3"], "test", 2, seed=1)
    write_log(queries, tmp_path / "log.jsonl")
    records = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert records == [{"sql": query.sql, "user": query.template} for query in queries]


def test_rehearsed_tables_are_not_loaded_and_those_of_the_same_partitions_share_a_step(bench: Tpch) -> None:
    measured = [replace(SOP, written=False, label=label) for label in ("one", "two")]
    measured.append(replace(SOP, written=False, label="three", partition_by=None))
    steps = bench.stream("chapter4").tables(measured).steps
    assert [step.name for step in steps] == [
        "chapter4: rehearsing 2 tables by o_month: one, two",
        "chapter4: rehearsing 1 table without partitions: three",
    ]
    assert len({step.product for step in steps}) == 2
    assert not any("loading" in before.name for step in steps for before in steps_before(step))


@pytest.mark.long
@pytest.mark.spark
def test_matching_rows_are_counted_by_spark_on_the_source(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(10).selectExpr("id", "if(id < 5, NULL, id) AS late").write.parquet(str(tmp_path / "numbers"))
    filters = ["id < 3", "late > 7", "late IS NULL", "late < 0"]

    def queries(role: str) -> list[LoggedQuery]:
        return [LoggedQuery("", f"SELECT id FROM numbers WHERE {condition}") for condition in filters]

    made = Step("made", tmp_path / "made.json", dict)
    source = Source("numbers", tmp_path / "numbers", tmp_path, made)
    stream = Experiment("numbers", source, queries, lambda: spark)
    by_rest: Any = stream.matching("id % 2").make()["rows"]
    assert len(by_rest) == 2
    assert [sum(counts) for counts in zip(*by_rest, strict=True)] == [3, 2, 5, 0]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    for part in range(2):
        numbers = pa.table({"n": pa.array(range(part * 1000, part * 1000 + 1000)), "text": ["x"] * 1000})
        pq.write_table(numbers, folder / f"part-{part}.parquet")
    return folder


def test_rewriting_keeps_rows_and_order_in_row_groups_of_the_given_size(source: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.parquet"
    original = Path.unlink

    def keep(path: Path, missing_ok: bool = False) -> None:
        path.rename(kept) if path.name == "scratch.parquet" else original(path, missing_ok)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "unlink", keep)
        size = rewritten_bytes(source, tmp_path / "scratch.parquet", 300)
    file = pq.ParquetFile(kept)
    assert size == kept.stat().st_size
    assert [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)] == [300] * 6 + [200]
    assert file.read().column("n").to_pylist() == list(range(2000))


def test_small_row_groups_cost_bytes_and_nothing_is_left_behind(source: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch.parquet"
    assert rewritten_bytes(source, scratch, 50) > rewritten_bytes(source, scratch, 2000)
    assert not scratch.exists()


@pytest.mark.spark
def test_sparks_rewrite_takes_time_and_leaves_nothing(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    assert spark_rewrite_seconds(spark, source, tmp_path / "scratch") > 0
    assert not (tmp_path / "scratch").exists()
