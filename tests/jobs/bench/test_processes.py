"""Peaks of memory are those of the processes that a command starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.bench.processes import DRIVER, descendants, process_peaks, run_layoutopt
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
    (greedy,), (modest,) = process_peaks([started.pid]), process_peaks([child])
    assert greedy[0] == modest[0] == DRIVER
    assert greedy[1] > 60 * MEGABYTE > modest[1] > MEGABYTE
    started.communicate(b"\n")
    assert process_peaks([started.pid, child]) == []


@pytest.mark.slow
def test_a_command_that_fails_is_named_with_what_it_said() -> None:
    with pytest.raises(LayoutoptError, match=r"`layoutopt history` failed: layoutopt: there is nothing at"):
        run_layoutopt("history", "/nonexistent/table")
    assert run_layoutopt("--help")[DRIVER] > MEGABYTE
