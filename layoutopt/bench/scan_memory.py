"""The second part of `layoutopt bench memory`: the peak memory of a query against the size of the table.

Rows are put together from the layouts of column groups segment by segment, so memory should follow ``segment_rows``
and not the table. Each query runs in a process of its own, on tables of one partition and one to ten segments.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow.dataset as ds
from rich.console import Console
from rich.table import Table

from layoutopt.bench.memory import DRIVER, SEGMENT_SHARE, run_layoutopt, write_rows
from layoutopt.bench.session import spark_when_needed
from layoutopt.bench.steps import run
from layoutopt.bench.tpch.data import DEFAULT_ROOT, TpchData
from layoutopt.bench.tpch.experiment import Bench, data_step, size_of, write_stream
from layoutopt.bench.tpch.queries import TABLE

STREAM: Final = "chapter4"
FACTORS: Final = (1, 2, 5, 10)
NOTHING: Final = f"SELECT count(*) AS n FROM {TABLE}"
"""Reads no file: what a process takes before it scans."""
_VALUES = "count(l_comment) AS a, count(p_name) AS b, sum(l_quantity) AS c, max(o_orderkey) AS d"
SCANS: Final = {
    "all rows": f"SELECT {_VALUES} FROM {TABLE}",
    "few rows": f"SELECT {_VALUES} FROM {TABLE} WHERE o_orderkey < 100",
}


@dataclass(frozen=True)
class ScanFigure:
    """One query: the table's rows and bytes, and the peak of the process in bytes, over one that reads no file."""

    scan: str
    rows: int
    segment_rows: int
    table_bytes: int
    seconds: float
    peak: int


def scan_figures(scale: float = 0.1, *, root: Path = DEFAULT_ROOT) -> tuple[ScanFigure, ...]:
    """Load tables of one to ten segments by GSOP, and measure what queries over several layouts take of each.

    Args:
        scale: the scale factor.
        root: the folder of all experiments.

    Raises:
        SettingError: a scale factor that can't be generated.
        LayoutoptError: a load or a query failed.
    """
    with spark_when_needed("layoutopt-memory") as spark:
        bench = Bench(TpchData(scale, root), spark)
        run(data_step(bench), lambda sentence: None)
    folder = bench.folder / "memory"
    folder.mkdir(parents=True, exist_ok=True)
    rows = ds.dataset(bench.data.denormalised, format="parquet").count_rows() // SEGMENT_SHARE
    source, features, plan = str(bench.data.denormalised), str(folder / "features4.json"), str(folder / "plan4.json")
    log = str(write_stream(bench, STREAM, "train"))
    run_layoutopt("analyze", log, "--schema", source, "--table", TABLE, "-o", features)
    flags = ["--method", "gsop", "--block-rows", "1000", "--segment-rows", str(rows), "-o", plan]
    run_layoutopt("plan", source, "--features", features, *flags)
    return tuple(figure for factor in FACTORS for figure in _measure(bench, folder, plan, factor, rows))


def _measure(bench: Bench, folder: Path, plan: str, factor: int, segment_rows: int) -> list[ScanFigure]:
    source, table = folder / f"source4-{factor}.parquet", folder / f"table4-{factor}-{time.time_ns()}"
    rows = write_rows(bench.data.denormalised, source, factor * segment_rows)
    run_layoutopt("load", str(source), str(table), "--plan", plan)
    source.unlink()
    before = run_layoutopt("query", str(table), NOTHING)[DRIVER]
    figures = []
    for scan, sql in SCANS.items():
        start = time.perf_counter()
        peak = run_layoutopt("query", str(table), sql)[DRIVER]
        seconds = round(time.perf_counter() - start, 1)
        figures.append(ScanFigure(scan, rows, segment_rows, size_of(table / "data"), seconds, max(0, peak - before)))
    return figures


def print_scans(console: Console, figures: Sequence[ScanFigure]) -> None:
    """Print the peaks of each query, over that of a process that reads no file."""
    title = f"memory that a query over several layouts takes, segments of {figures[0].segment_rows:,} rows"
    table = Table("query", title=title, title_justify="left")
    for name in ("rows", "segments", "table", "seconds", "peak", "of one segment's"):
        table.add_column(name, justify="right")
    first = {figure.scan: figure.peak for figure in reversed(figures)}
    for figure in figures:
        segments = -(-figure.rows // figure.segment_rows)
        sizes = [f"{size / 1e6:,.0f} MB" for size in (figure.table_bytes, figure.peak)]
        share = figure.peak / max(1, first[figure.scan])
        cells = (f"{figure.rows:,}", str(segments), sizes[0], f"{figure.seconds:.1f}", sizes[1], f"{share:.2f}x")
        table.add_row(figure.scan, *cells)
    console.print(table)
