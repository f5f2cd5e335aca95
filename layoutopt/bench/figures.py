"""`layoutopt bench micro`: single algorithms and one load, each beside the project's target."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from layoutopt.bench.micro import micro_figures
from layoutopt.bench.session import spark_when_needed
from layoutopt.bench.steps import run
from layoutopt.bench.tpch.data import DEFAULT_ROOT, TpchData
from layoutopt.bench.tpch.experiment import SOP_BY_MONTH, Bench, rewrite_step, table_step

LOADING_TARGET = 2.0  # times Spark's rewrite of the same Parquet, checksums included (the thesis needed 2.6)
STORAGE_TARGET = 1.25  # times the source rewritten with the same codec and row group size


def run_micro(scale: float = 0.1, *, root: Path = DEFAULT_ROOT, console: Console | None = None) -> None:
    """Measure the single algorithms, and the load of SOP by month; print figures and targets.

    Args:
        scale: the TPC-H scale factor of the load; ratios are only fair from 1 on.
        root: the folder of all experiments; a load that was measured there is not measured again.
        console: where to print.

    Raises:
        SettingError: a scale factor that can't be generated.
    """
    console = console or Console(highlight=False)
    table = Table("figure", "measured", "target", title="micro-benchmarks on this machine", title_justify="left")
    for figure in micro_figures():
        table.add_row(figure.name, f"{figure.seconds:.3f} s", f"{figure.target:.3f} s")
    with spark_when_needed("layoutopt-micro") as spark:
        bench = Bench(TpchData(scale, root), spark)
        loaded = run(table_step(bench, "chapter3", SOP_BY_MONTH), console.print)
        rewritten = run(rewrite_step(bench, SOP_BY_MONTH.block_rows), console.print)
    loading, storage = loaded["loading_seconds"] / rewritten["seconds"], loaded["storage_bytes"] / rewritten["bytes"]
    table.add_row(f"loading at SF {scale:g}, over Spark's rewrite", f"{loading:.2f}x", f"{LOADING_TARGET:.2f}x")
    table.add_row(f"storage at SF {scale:g}, over the source's", f"{storage:.2f}x", f"{STORAGE_TARGET:.2f}x")
    console.print(table)
