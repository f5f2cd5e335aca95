from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from layoutopt.bench.experiment import Experiment, Variant
from layoutopt.bench.methods_table import (
    Result,
    baselines,
    comparison_table,
    experiment_table,
    label_of,
    paths_table,
    results_of,
    rows_by_template,
    template_table,
    variants,
    with_ratios,
)
from layoutopt.bench.tpch import Tpch
from layoutopt.bench.tpch_data import TpchData
from layoutopt.bench.tpch_queries import STREAMS
from tests.bench.without_spark import no_spark

FULL = Result("chapter3", "full scan", rows=1000, cells=8000, bytes=4_000_000, storage=9_000_000)
SOP = Result(
    "chapter3",
    "SOP",
    rows=39,
    cells=400,
    tids=0,
    bytes=200_000,
    storage=9_900_000,
    planning_seconds=1.25,
    loading_seconds=20.0,
    storage_ratio=1.1,
    loading_ratio=1.504,
    rows_by_template={"q3": 9, "q14": 30},
)


def stream(root: Path = Path()) -> Experiment:
    return Tpch(TpchData(0.1, root), no_spark).stream("chapter3")


def printed(table: Table) -> list[list[str]]:
    """The cells of a printed table's lines."""
    console = Console(file=io.StringIO(), width=200)
    console.print(table)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if "│" in line]


def test_the_comparison_gives_rows_and_bytes_as_shares_of_the_full_scan() -> None:
    full, sop = printed(comparison_table([FULL, SOP], queries=80))
    assert full == ["full scan", "1,000", "100 %", "4.0 MB", "100 %", "100 %"]
    assert sop == ["SOP", "39", "3.9 %", "0.2 MB", "5.0 %", "3.9 %"]


def test_the_experiment_table_shows_everything_measured_and_leaves_the_unknown_empty() -> None:
    rows = printed(experiment_table([FULL, SOP, Result("chapter3", "matching", rows=7)], scale=1))
    assert rows[1] == [
        "SOP",
        "39",
        "3.9 %",
        "5.0 %",
        "0.000 %",
        "20.0x",
        "0.2 MB",
        "20.0x",
        "9.9 MB (1.10x)",
        "1.2 s",
        "20.0 s (1.50x)",
        "3.9 %",
    ]
    assert rows[2] == ["matching", "7", "0.70 %", "", "", "", "", "", "", "", "", "0.7 %"]


def test_templates_add_up_to_the_methods_share() -> None:
    rows = printed(template_table([FULL, SOP], rows_total=1000))
    assert rows == [["q3", "0.90 %"], ["q14", "3.0 %"]]


def test_greedy_paths_are_shown_where_queries_can_choose() -> None:
    none = Result("chapter5", "GSOP by year", rows=1, greedy_paths={"queries": 0, "cheapest": 0, "worst_ratio": 1.0})
    some = Result("chapter5", "GSOP-R 1.2", rows=1, greedy_paths={"queries": 140, "cheapest": 131, "worst_ratio": 1.25})
    assert printed(paths_table([FULL, none, some])) == [["GSOP-R 1.2", "140", "131", "1.250x"]]


def test_every_registered_method_takes_part_and_later_ones_join() -> None:
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


def test_baselines_are_those_of_the_thesis_and_skip_without_features() -> None:
    parquet, range_1, range_2 = baselines("o_month", 700)
    assert (parquet.method, parquet.partition_by) == ("input-order", None)
    assert range_1.by == ("o_orderdate",)
    assert range_2.by == ("o_orderdate", "cr_name", "c_mktsegment", "l_quantity")
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
    place = next(i for i, query in enumerate(stream().queries("test")) if query.template == "q14")
    assert rows_by_template(stream(), {place: 4, place + len(templates): 3})["q14"] == 7
    assert sum(rows_by_template(stream(), dict.fromkeys(range(80), 1)).values()) == 80


def test_results_are_read_off_the_products(tmp_path: Path) -> None:
    of = stream(tmp_path)
    counted = {"rows": [0, 20, *[1] * 78], "columns": [2] * 80}
    variant = Variant("SOP", "sop", "o_month", 10)
    for step, product in ((of.evaluation(variant), evaluation({0: 3, 1: 4})), (of.matching(), counted)):
        step.product.parent.mkdir(parents=True, exist_ok=True)
        step.product.write_text(json.dumps(product))
    full, result, bound, necessary = results_of(of, [variant], pytest.fail)
    assert (full.label, full.rows, full.storage) == ("full scan", 100, 10)
    assert (result.rows, result.cells, result.bytes, result.storage) == (7, 5, 7, 11)
    assert result.thesis == "3.9 %"
    assert (necessary.rows, necessary.cells) == (98, 196)
    assert (bound.rows, bound.cells) == (20 + 78 * 10, 2 * (20 + 78 * 10))


def test_tables_are_compared_with_the_source_rewritten() -> None:
    result = with_ratios(replace(SOP, storage=11, loading_seconds=2.0), {"seconds": 4.0, "bytes": 10})
    assert (result.loading_ratio, result.storage_ratio) == (0.5, 1.1)
    unloaded = Result("chapter3", "matching", rows=80)
    assert with_ratios(unloaded, {"seconds": 4.0, "bytes": 10}) == unloaded
