from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from layoutopt.bench.steps import Step
from layoutopt.bench.tpch.data import TpchData
from layoutopt.bench.tpch.experiment import Bench, Variant, stream_for_testing, table_folder, table_step, write_stream
from layoutopt.bench.tpch.queries import STREAMS
from layoutopt.bench.tpch.rehearsals import rehearsal_steps
from layoutopt.bench.tpch.runner import full_scan, lower_bound, matching, result_of, rows_by_template, with_ratios
from layoutopt.bench.tpch.variants import RANGE_2, baselines, label_of, variants
from tests.bench.without_spark import no_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOP = Variant("SOP", "sop", "o_month", 700)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(TpchData(0.1, tmp_path), no_spark)


def steps_before(step: Step) -> Iterator[Step]:
    for needed in step.needs:
        yield from steps_before(needed)
    yield step


def test_a_table_is_analysed_planned_loaded_and_evaluated_in_this_order(bench: Bench) -> None:
    names = list(dict.fromkeys(step.name for step in steps_before(table_step(bench, "chapter4", SOP))))
    assert names == [
        "generating TPC-H at scale factor 0.1 and denormalising it",
        "chapter4: analysing the training stream",
        "chapter4: planning SOP",
        "chapter4: loading SOP",
        "chapter4: evaluating SOP on the test stream",
    ]


def test_every_parameter_has_a_folder_of_its_own(bench: Bench) -> None:
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
    folders = {table_folder(bench, "chapter3", replace(SOP, **change)) for change in [{}, *changes]}
    assert len(folders | {table_folder(bench, "chapter4", SOP)}) == len(changes) + 2


def test_streams_share_the_tables_that_know_no_features_but_not_their_evaluations(bench: Bench) -> None:
    for variant in baselines("o_month", 700):
        assert table_folder(bench, "chapter3", variant) == table_folder(bench, "chapter5", variant)
        assert table_step(bench, "chapter3", variant).product != table_step(bench, "chapter5", variant).product


def test_the_logs_of_a_stream_are_the_draws_that_results_are_read_with(bench: Bench) -> None:
    lines = write_stream(bench, "chapter3", "test").read_text().splitlines()
    assert len(lines) == len(stream_for_testing("chapter3")) == 80
    assert all(
        query.sql.replace('"', "") in line for line, query in zip(lines, stream_for_testing("chapter3"), strict=True)
    )
    assert write_stream(bench, "chapter3", "train") != write_stream(bench, "chapter3", "test")


def test_every_registered_method_takes_part_and_later_ones_join(bench: Bench) -> None:
    methods = ("sop", "input-order", "sort", "range", "qdtree", "gsop", "gsop-single", "gsop-r")
    by_stream = {stream: variants(methods, stream) for stream in STREAMS}
    used = {stream: {variant.method for variant in chosen} for stream, chosen in by_stream.items()}
    assert used["chapter3"] == used["chapter3-skewed"] == set(methods[:6])
    assert used["chapter4"] == set(methods) - {"gsop-r", "input-order"}
    assert used["chapter5"] == set(methods) - {"gsop-single", "input-order"}
    assert {one.block_rows for one in by_stream["chapter4"] if one.method == "gsop"} == {10_000, 3_000, 1_000}
    for chosen in by_stream.values():
        assert len({variant.label for variant in chosen}) == len(chosen)
    # Where storage is the question, tables are written; elsewhere their blocks are only measured.
    assert [variant.label for variant in by_stream["chapter5"] if variant.written] == [
        "SOP by year", "GSOP by year", "GSOP-R 1.1", "GSOP-R 1.2", "GSOP-R 1.5", "GSOP-R 2",
    ]  # fmt: skip


def test_rehearsed_tables_are_not_loaded_and_those_of_the_same_partitions_share_a_step(bench: Bench) -> None:
    measured = [replace(SOP, written=False, label=label) for label in ("one", "two")]
    measured.append(replace(SOP, written=False, label="three", partition_by=None))
    steps = rehearsal_steps(bench, "chapter4", measured)
    assert [step.name for step in steps] == [
        "chapter4: rehearsing 2 tables by o_month: one, two",
        "chapter4: rehearsing 1 table without partitions: three",
    ]
    assert len({step.product for step in steps}) == 2
    assert not any("loading" in before.name for step in steps for before in steps_before(step))


def test_baselines_are_those_of_the_thesis_and_skip_without_features() -> None:
    parquet, range_1, range_2 = baselines("o_month", 700)
    assert (parquet.method, parquet.partition_by) == ("input-order", None)
    assert range_1.by == ("o_orderdate",)
    assert range_2.by == RANGE_2 == ("o_orderdate", "cr_name", "c_mktsegment", "l_quantity")
    assert not any(variant.features for variant in (parquet, range_1, range_2))


def test_methods_are_labelled_as_in_the_thesis() -> None:
    assert [label_of(name) for name in ("sop", "gsop-r", "gsop-hyrise", "zorder")] == [
        "SOP",
        "GSOP-R",
        "GSOP-hyrise",
        "zorder",
    ]


def evaluation(rows: Mapping[int, int]) -> dict[str, Any]:
    totals = {"rows_scanned": sum(rows.values()), "cells_scanned": 5, "tids_scanned": 0, "bytes_scanned": 7}
    return {
        "evaluation": {"totals": totals, "queries": [{"id": place, "rows_scanned": n} for place, n in rows.items()]},
        "full_scan": {"rows_scanned": 100, "cells_scanned": 300, "bytes_scanned": 900},
        "planning_seconds": 1.0,
        "loading_seconds": 2.0,
        "storage_bytes": 11,
        "source_bytes": 10,
    }


def test_rows_go_to_the_template_that_a_query_was_drawn_from() -> None:
    templates = STREAMS["chapter3"].templates
    place = next(i for i, query in enumerate(stream_for_testing("chapter3")) if query.template == "q14")
    assert rows_by_template("chapter3", {place: 4, place + len(templates): 3})["q14"] == 7
    assert sum(rows_by_template("chapter3", dict.fromkeys(range(80), 1)).values()) == 80


def test_results_are_read_off_the_products() -> None:
    product = evaluation({0: 3, 1: 4})
    assert full_scan("chapter3", product).rows == 100
    result = result_of("chapter3", SOP, product)
    assert (result.rows, result.cells, result.bytes, result.storage) == (7, 5, 7, 11)
    assert result.thesis == "3.9 %"
    necessary = matching("chapter3", {"rows": [1] * 80, "columns": [2] * 80})
    assert (necessary.rows, necessary.cells) == (80, 160)
    bound = lower_bound("chapter3", {"rows": [0, 20, *[1] * 78], "columns": [2] * 80}, block_rows=10)
    assert (bound.rows, bound.cells) == (20 + 78 * 10, 2 * (20 + 78 * 10))


def test_tables_are_compared_with_the_source_rewritten() -> None:
    result = with_ratios(result_of("chapter3", SOP, evaluation({0: 3})), {"seconds": 4.0, "bytes": 10})
    assert (result.loading_ratio, result.storage_ratio) == (0.5, 1.1)
    unloaded = matching("chapter3", {"rows": [1] * 80, "columns": [2] * 80})
    assert with_ratios(unloaded, {"seconds": 4.0, "bytes": 10}) == unloaded


@pytest.mark.long
@pytest.mark.spark
def test_matching_rows_are_counted_by_spark_on_the_source(spark: SparkSession, tmp_path: Path) -> None:
    from layoutopt.bench.tpch.denormalise import count_matching

    spark.range(10).selectExpr("id", "if(id < 5, NULL, id) AS late").write.parquet(str(tmp_path / "numbers"))
    assert count_matching(spark, tmp_path / "numbers", ["id < 3", "late > 7", "late IS NULL", "late < 0"]) == [
        3,
        2,
        5,
        0,
    ]
