from __future__ import annotations

import io

from rich.console import Console
from rich.table import Table

from layoutopt.bench.tpch.report import Result, comparison_table, experiment_table, paths_table, template_table

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
