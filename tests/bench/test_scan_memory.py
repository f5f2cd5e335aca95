"""The memory of scans is printed beside that of a table of one segment."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from layoutopt.bench.scan_memory import NOTHING, SCANS, ScanFigure, print_scans
from layoutopt.bench.tpch.queries import TABLE


def test_figures_stand_beside_those_of_one_segment() -> None:
    figures = [ScanFigure("all rows", 100 * n, 100, 10**6 * n, 1.0, 10**7 + 10**6 * n) for n in (1, 10)]
    text = StringIO()
    print_scans(Console(file=text, width=200), figures)
    assert "1.00x" in text.getvalue()
    assert "1.82x" in text.getvalue()
    assert "1,000" in text.getvalue()


def test_every_query_is_of_the_table() -> None:
    for sql in (NOTHING, *SCANS.values()):
        assert f"FROM {TABLE}" in sql
