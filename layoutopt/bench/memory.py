"""`layoutopt bench memory`: the peak memory of a load against the rows of one partition, process by process.

Every load runs in processes of its own. The kernel counts each one's peak (``VmHWM`` in ``/proc``), which is read while
it lives. Memory should follow ``segment_rows``, not the partition: a partition of ten segments takes what one takes.
All loads have the same heap, about the smallest that Spark takes: Java collects garbage only when it must, and would
show how much it may have, not how much it needs.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from layoutopt.bench.session import spark_when_needed
from layoutopt.bench.stages import PROC, descendants, status_of, text_of
from layoutopt.bench.steps import run
from layoutopt.bench.tpch.data import DEFAULT_ROOT, TpchData
from layoutopt.bench.tpch.experiment import Bench, data_step, write_stream
from layoutopt.bench.tpch.queries import TABLE
from layoutopt.errors import LayoutoptError, SettingError

FACTORS = (1, 2, 5, 10)
SEGMENT_SHARE = 12  # a segment is this part of the table, so that ten fit into it
STREAM = "chapter3"
HEAP = "512m"
TARGET = 1.3  # times the memory of a partition of one segment
JVM, WORKER, DRIVER = "jvm", "worker", "driver"

_PAUSE = 0.05
_LAYOUTOPT = "import sys; from layoutopt.cli.app import main; sys.exit(main())"


@dataclass(frozen=True)
class MemoryFigure:
    """The peaks of one load in bytes: Spark's JVM, its largest Python worker, and the Python that drives it."""

    rows: int
    segment_rows: int
    seconds: float
    jvm: int
    worker: int
    driver: int

    @property
    def all(self) -> int:
        """The three together: what a load with one task at a time takes."""
        return self.jvm + self.worker + self.driver


def memory_figures(scale: float = 0.1, *, root: Path = DEFAULT_ROOT) -> tuple[MemoryFigure, ...]:
    """Load partitions of one to ten segments of the TPC-H table by SOP, and measure the peaks of each.

    Args:
        scale: the scale factor.
        root: the folder of all experiments.

    Raises:
        SettingError: this is no Linux, or a scale factor that can't be generated.
        LayoutoptError: a load failed.
    """
    check_peaks()
    with spark_when_needed("layoutopt-memory") as spark:
        bench = Bench(TpchData(scale, root), spark)
        run(data_step(bench), lambda sentence: None)
    folder = bench.folder / "memory"
    folder.mkdir(parents=True, exist_ok=True)
    rows = ds.dataset(bench.data.denormalised, format="parquet").count_rows() // SEGMENT_SHARE
    _make_plan(bench, folder, rows)
    return tuple(_measure(bench, folder, factor, rows) for factor in FACTORS)


def check_peaks() -> None:
    """Refuse systems that don't say how much memory a process took.

    Raises:
        SettingError: this is no Linux.
    """
    if not PROC.joinpath("self", "status").exists():
        raise SettingError("peaks of memory are read from /proc, which this system does not have; run it on Linux")


def _make_plan(bench: Bench, folder: Path, segment_rows: int) -> None:
    source, features = str(bench.data.denormalised), str(folder / "features.json")
    log = str(write_stream(bench, STREAM, "train"))
    run_layoutopt("analyze", log, "--schema", source, "--table", TABLE, "-o", features)
    plan = str(folder / "plan.json")
    flags = ["--method", "sop", "--block-rows", "700", "--segment-rows", str(segment_rows), "-o", plan]
    run_layoutopt("plan", source, "--features", features, *flags)
    (folder / "spark.toml").write_text(f'[spark]\n"spark.driver.memory" = "{HEAP}"\n')


def _measure(bench: Bench, folder: Path, factor: int, segment_rows: int) -> MemoryFigure:
    """One load of ``factor`` segments in one partition."""
    source, table = folder / f"source-{factor}.parquet", folder / f"table-{factor}-{time.time_ns()}"
    rows = write_rows(bench.data.denormalised, source, factor * segment_rows)
    start = time.perf_counter()
    flags = ["--plan", str(folder / "plan.json"), "--conf", str(folder / "spark.toml")]
    peaks = run_layoutopt("load", str(source), str(table), *flags)
    seconds = time.perf_counter() - start
    source.unlink()
    return MemoryFigure(
        rows, segment_rows, round(seconds, 1), peaks.get(JVM, 0), peaks.get(WORKER, 0), peaks.get(DRIVER, 0)
    )


def write_rows(source: Path, target: Path, rows: int) -> int:
    """The first rows of a table as one file, batch by batch."""
    dataset = ds.dataset(source, format="parquet")
    left = rows
    with pq.ParquetWriter(target, dataset.schema) as writer:
        for batch in dataset.to_batches():
            writer.write_table(pa.Table.from_batches([batch.slice(0, left)]))
            left -= min(left, batch.num_rows)
            if left == 0:
                break
    return rows - left


def run_layoutopt(*words: str) -> Mapping[str, int]:
    """Run a command in processes of its own; the largest peak of each kind of process, in bytes.

    Raises:
        LayoutoptError: it failed.
    """
    with tempfile.TemporaryFile("w+") as said:  # a pipe that nobody reads would fill up, and block
        command = [sys.executable, "-c", _LAYOUTOPT, *words]
        started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
        peaks: dict[str, int] = {}
        while started.poll() is None:
            for kind, peak in peaks_of(descendants(started.pid)):
                peaks[kind] = max(peak, peaks.get(kind, 0))
            time.sleep(_PAUSE)
        if started.returncode:
            said.seek(0)
            raise LayoutoptError(f"`layoutopt {words[0]}` failed: {said.read().strip()[-500:]}")
    return peaks


def peaks_of(pids: Sequence[int]) -> list[tuple[str, int]]:
    """The kind and the peak memory in bytes of each process; those that have ended are left out."""
    found = []
    for pid in pids:
        peak = status_of(pid).get("VmHWM")
        if peak is not None:
            found.append((kind_of(pid), 1024 * int(peak.split()[0])))
    return found


def kind_of(pid: int) -> str:
    """Which of the three a process is; empty where it has ended."""
    words = text_of(PROC / str(pid) / "cmdline").split("\0")
    if words == [""]:
        return ""
    if words[0].endswith("java"):
        return JVM
    return WORKER if "pyspark.daemon" in words else DRIVER


def print_memory(console: Console, figures: Sequence[MemoryFigure]) -> None:
    """Print the peaks of each load, and JVM and worker together over those of one segment."""
    segment = f"segments of {figures[0].segment_rows:,} rows, a heap of {HEAP}"
    title = f"peak memory of a load, {segment}; target {TARGET}x of one segment's"
    table = Table(title=title, title_justify="left")
    for name in ("rows", "segments", "seconds", "JVM", "a Python worker", "driver", "all", "of one segment's"):
        table.add_column(name, justify="right")
    base = figures[0].all
    for figure in figures:
        megabytes = [f"{peak / 1e6:,.0f} MB" for peak in (figure.jvm, figure.worker, figure.driver)]
        segments = -(-figure.rows // figure.segment_rows)
        cells = [f"{figure.rows:,}", str(segments), f"{figure.seconds:.1f}", *megabytes, f"{figure.all / 1e6:,.0f} MB"]
        table.add_row(*cells, f"{figure.all / base:.2f}x")
    console.print(table)
