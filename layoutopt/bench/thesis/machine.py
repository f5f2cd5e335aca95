"""The machine in words: what seconds depend on, and nothing that names it."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path


def machine() -> dict[str, object]:
    """Cores that this process may use, memory, and the versions of what runs on it."""
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory, GiB": _memory(),
        "system": f"{platform.system()} on {platform.machine()}",
        "Python": platform.python_version(),
        "Java": _java(),
        "Spark": version("pyspark"),
        "pyarrow": version("pyarrow"),
        "DuckDB": version("duckdb"),
    }


def _memory() -> float | None:
    """Of the whole machine, or of the group of processes where that has less."""
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.exists() else "max"
    return round(min(whole, int(text) if text.isdigit() else whole) / 2**30, 1)


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else "java"
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError:
        return "unknown"
    found = re.search(r'version "([^"]+)"', said)
    return found.group(1) if found else "unknown"
