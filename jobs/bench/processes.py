"""The memory of this process, and of the processes that a command starts."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from layoutopt.errors import LayoutoptError, SettingError

PROC: Final = Path("/proc")

# The kinds of processes of a command.
JVM, WORKER, DRIVER = "jvm", "worker", "driver"

# Seconds between two looks at the processes of a command.
_PAUSE: Final = 0.05
_LAYOUTOPT: Final = "import sys; from layoutopt.cli.app import main; sys.exit(main())"


def peak_bytes() -> int:
    """Return the peak memory of this process in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def check_peaks() -> None:
    """Check that the system tells how much memory a process took.

    Raises:
        SettingError: this is not Linux.
    """
    if not PROC.joinpath("self", "status").exists():
        raise SettingError("peaks of memory are read from /proc, which this system does not have; run it on Linux")


def processor_seconds_of_children() -> float:
    """Return the processor time of all processes that this one started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_layoutopt(*words: str) -> Mapping[str, int]:
    """Run a command in processes of its own; return the largest peak of each kind of process, in bytes.

    Raises:
        LayoutoptError: the command failed.
    """
    with tempfile.TemporaryFile("w+") as output:  # a pipe without a reader would fill up and block
        command = [sys.executable, "-c", _LAYOUTOPT, *words]
        started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=output)
        peaks: dict[str, int] = {}
        while started.poll() is None:
            for kind, peak in process_peaks(descendants(started.pid)):
                peaks[kind] = max(peak, peaks.get(kind, 0))
            time.sleep(_PAUSE)
        if started.returncode:
            output.seek(0)
            raise LayoutoptError(f"`layoutopt {words[0]}` failed: {output.read().strip()[-500:]}")
    return peaks


def process_peaks(pids: Sequence[int]) -> list[tuple[str, int]]:
    """Return the kind and the peak memory in bytes of each process that has not ended."""
    peaks = []
    for pid in pids:
        peak = _status(pid).get("VmHWM")
        if peak is not None:
            peaks.append((process_kind(pid), 1024 * int(peak.split()[0])))
    return peaks


def process_kind(pid: int) -> str:
    """Return :data:`JVM`, :data:`WORKER` or :data:`DRIVER`; an empty text where the process has ended."""
    words = _text(PROC / str(pid) / "cmdline").split("\0")
    if words == [""]:
        return ""
    if words[0].endswith("java"):
        return JVM
    return WORKER if "pyspark.daemon" in words else DRIVER


def descendants(pid: int) -> list[int]:
    """Return a process and all living processes that it started."""
    children: dict[int, list[int]] = {}
    for folder in PROC.iterdir():
        if folder.name.isdigit() and (parent := _status(int(folder.name)).get("PPid")) is not None:
            children.setdefault(int(parent), []).append(int(folder.name))
    pids, left = [], [pid]
    while left:
        pids.append(left.pop())
        left += children.get(pids[-1], [])
    return pids


def _status(pid: int) -> dict[str, str]:
    """Return the fields of a process's status; none where it has ended."""
    lines = (line.partition(":") for line in _text(PROC / str(pid) / "status").splitlines())
    return {name: value.strip() for name, _, value in lines}


def _text(path: Path) -> str:
    """Return the text of a file of /proc; nothing where its process has ended."""
    try:
        return path.read_text()
    except OSError:
        return ""
