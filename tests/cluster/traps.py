"""Traps in the Python of workers: the first task that comes to a point stays there, and its worker is killed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Final

from tests.cluster.spark_cluster import Cluster, find_site

# Where a task begins: its function is unpickled; and where it creates a data file.
BEGINS, WRITES = "begins", "writes"

# Python imports this module of a site when it starts. A trap is a file, which its first process renames.
_CODE: Final = """
import os, sys, time

FOLDER = {folder!r}


def stay(event, arguments):
    if event == "pickle.find_class":
        point = "begins"
    elif event == "open" and str(arguments[0]).endswith(".parquet") and "w" in str(arguments[1]):
        point = "writes"
    else:
        return
    try:
        os.rename(os.path.join(FOLDER, point), os.path.join(FOLDER, "sprung"))
    except OSError:
        return
    worker = next(part for part in os.getcwd().split(os.sep) if part.startswith("worker"))
    os.rename(os.path.join(FOLDER, "sprung"), os.path.join(FOLDER, "sprung-" + worker))
    time.sleep(300)


sys.addaudithook(stay)
"""


@dataclass(frozen=True)
class Traps:
    """Traps of the workers whose Python they are installed in; ``folder`` holds those that are set."""

    folder: Path

    def install(self, python: Path) -> None:
        """Let a worker's Python look for traps."""
        self.folder.mkdir(exist_ok=True)
        (find_site(python) / "sitecustomize.py").write_text(_CODE.format(folder=str(self.folder)), encoding="utf-8")

    @contextmanager
    def killing(self, cluster: Cluster, point: str) -> Iterator[list[str]]:
        """Kill, within the block, the worker of the first task that comes to a point; it is started again afterwards.

        The list has the names of workers that were killed.
        """
        killed, is_over = list[str](), Event()

        def kill() -> None:
            while not killed and not is_over.is_set():
                for sprung in self.folder.glob("sprung-*"):
                    name = sprung.name.removeprefix("sprung-")
                    sprung.unlink()
                    cluster.kill_worker(name)
                    killed.append(name)
                time.sleep(0.05)

        (self.folder / point).touch()
        watcher = Thread(target=kill, daemon=True)
        watcher.start()
        try:
            yield killed
        finally:
            is_over.set()
            watcher.join()
            (self.folder / point).unlink(missing_ok=True)
            if killed:
                cluster.restore()
