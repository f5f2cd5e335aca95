"""The demo compares rows and bytes with the full scan, and with the numbers of the thesis."""

from __future__ import annotations

import io

from rich.console import Console

from layoutopt.bench.demo import BASELINES, comparison_table


def evaluated(rows: int, size: int) -> dict[str, object]:
    totals = {"rows_scanned": rows, "cells_scanned": 5, "tids_scanned": 0, "bytes_scanned": size}
    return {"evaluation": {"totals": totals}, "full_scan": {"rows_scanned": 100_000, "bytes_scanned": 4_000_000}}


def test_shares_are_of_the_full_scan_and_stand_beside_the_thesis() -> None:
    console = Console(file=io.StringIO(), width=200)
    tables = {"Parquet min/max": evaluated(90_000, 3_000_000), "SOP": evaluated(3_900, 200_000)}
    console.print(comparison_table(tables, [0, 20, 900], queries=3))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    lines = [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if "│" in line]
    assert lines == [
        ["full scan", "100,000", "100 %", "4.0 MB", "100 %", "100 %"],
        ["Parquet min/max", "90,000", "90 %", "3.0 MB", "75 %", ""],
        ["SOP", "3,900", "3.9 %", "0.2 MB", "5.0 %", "3.9 %"],
        ["lower bound, blocks of 700", "1,600", "1.6 %", "", "", ""],
        ["matching", "920", "0.92 %", "", "", "0.7 %"],
    ]


def test_baselines_are_those_of_the_thesis_and_skip_without_features() -> None:
    parquet, range_1, range_2 = BASELINES
    assert (parquet.method, parquet.partition_by) == ("input-order", None)
    assert range_1.by == ("o_orderdate",)
    assert range_2.by == ("o_orderdate", "cr_name", "c_mktsegment", "l_quantity")
    assert not any(variant.features for variant in (parquet, range_1, range_2))
