"""The plot of figure 5.8: points by hand, and a picture of them."""

from __future__ import annotations

from pathlib import Path

from layoutopt.bench.tpch.plots import plot_replication, replication_curves
from layoutopt.bench.tpch.report import Result


def result(label: str, storage: int | None, cells: int, tids: int) -> Result:
    return Result("chapter5", label, rows=1, cells=cells, tids=tids, storage=storage)


RESULTS = [
    result("full scan", 900, 90_000_000, 0),
    result("GSOP by year", 1000, 16_000_000, 4_000_000),
    result("GSOP-R 1.5", 1400, 5_000_000, 1_000_000),
    result("GSOP-R 1.2", 1150, 8_000_000, 2_000_000),
    result("GSOP-R 1.1", 930, 9_000_000, 2_000_000),
    result("GSOP-fullcopy 2", 2000, 10_000_000, 0),
    result("GSOP-selective 1.2", None, 1, 1),
]


def test_curves_start_at_gsop_and_ascend_by_budget() -> None:
    assert replication_curves(RESULTS, queries=10) == {
        "GSOP-R": [(1.0, 2.0), (0.93, 1.1), (1.15, 1.0), (1.4, 0.6)],
        "GSOP-fullcopy": [(1.0, 2.0), (2.0, 1.0)],
    }
    assert replication_curves(RESULTS[2:], queries=10) == {}


def test_the_plot_is_a_png_and_the_same_each_time(tmp_path: Path) -> None:
    curves = replication_curves(RESULTS, queries=10)
    for name in ("one", "two"):
        plot_replication(curves, tmp_path / name / "plot.png")
    content = (tmp_path / "one" / "plot.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert content == (tmp_path / "two" / "plot.png").read_bytes()
