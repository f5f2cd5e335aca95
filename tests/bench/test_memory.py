"""`layoutopt bench memory`: peaks are those of a load's processes, and partitions have the rows they should have."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from layoutopt.bench.memory import (
    DRIVER,
    TARGET,
    MemoryFigure,
    peaks_of,
    print_memory,
    run_layoutopt,
    write_rows,
)
from layoutopt.bench.stages import cpu_seconds, descendants
from layoutopt.errors import LayoutoptError

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peaks are read from /proc")

MEGABYTE = 2**20
# Takes 60 MB, frees them, and tells that it did; its child does nothing.
GREEDY = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
taken = bytes(60 * 2**20).replace(b"\\0", b"x"); del taken
print(child.pid, flush=True); input(); child.communicate(b"\\n")
"""


def test_a_peak_is_remembered_after_the_memory_was_freed_and_children_count() -> None:
    started = subprocess.Popen([sys.executable, "-c", GREEDY], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert started.stdin is not None
    assert started.stdout is not None
    child = int(started.stdout.readline())
    assert set(descendants(started.pid)) == {started.pid, child}
    assert {started.pid, child} < set(descendants(os.getpid()))
    (greedy,), (modest,) = peaks_of([started.pid]), peaks_of([child])
    assert greedy[0] == modest[0] == DRIVER
    assert greedy[1] > 60 * MEGABYTE > modest[1] > MEGABYTE
    started.communicate(b"\n")
    assert peaks_of([started.pid, child]) == []


@pytest.mark.slow
def test_a_command_that_fails_is_named_with_what_it_said() -> None:
    with pytest.raises(LayoutoptError, match=r"`layoutopt history` failed: layoutopt: there is nothing at"):
        run_layoutopt("history", "/nonexistent/table")
    assert run_layoutopt("--help")[DRIVER] > MEGABYTE


@pytest.mark.parametrize("rows", [1, 10, 25, 60])
def test_a_partition_has_the_first_rows_of_its_source(rows: int, tmp_path: Path) -> None:
    for part in range(3):
        pq.write_table(pa.table({"id": range(20 * part, 20 * part + 20)}), tmp_path / f"{part}.parquet")
    assert write_rows(tmp_path, tmp_path.with_suffix(".parquet"), rows) == rows
    assert pq.read_table(tmp_path.with_suffix(".parquet"))["id"].to_pylist() == list(range(rows))


def test_figures_are_told_against_one_segment() -> None:
    figures = [MemoryFigure(100 * n, 100, 1.0, 600_000_000, 200_000_000 * n, 1) for n in (1, 2)]
    out = io.StringIO()
    print_memory(Console(file=out, width=160), figures)
    assert f"target {TARGET}x" in out.getvalue()
    assert "1.00x" in out.getvalue()
    assert "1.25x" in out.getvalue()


def test_processor_time_counts_what_a_process_started() -> None:
    before = cpu_seconds([os.getpid()])
    work = "total = sum(number * number for number in range(2_000_000))"
    subprocess.run([sys.executable, "-c", work], check=True)
    assert cpu_seconds([os.getpid()]) > before
    assert cpu_seconds([2**31 - 1]) == 0  # no such process
