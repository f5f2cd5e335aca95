"""A standalone cluster of Spark on this machine: a master and workers with a Python and folders of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
import venv
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

import pyspark
from packaging.requirements import Requirement

from jobs.bench.processes import WORKER, descendants, process_kind
from tests.conftest import QUICK_JAVA
from tests.ports import HOST, find_port

ROOT = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
_PATIENCE = 300.0  # seconds that processes may take to start or to end

# Of every session on the cluster. A session takes one core of each worker, so that a second one finds the others.
PROPERTIES: Final[Mapping[str, bool | float | int | str | None]] = {
    "spark.cores.max": "2",
    "spark.driver.bindAddress": HOST,
    "spark.driver.host": HOST,
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.executor.memory": "512m",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def make_worker_python(folder: Path, packages: Sequence[str]) -> Path:
    """Make an environment with some of the packages that are installed here, and what they need; return its Python."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    site = find_site(python)
    for package in list_needed(packages):
        files = distribution(package).files or ()
        for name in {file.parts[0] for file in files if file.parts[0] != ".."}:
            with suppress(FileExistsError):
                (site / name).symlink_to(Path(str(distribution(package).locate_file(name))))
    return python


def find_site(python: Path) -> Path:
    """Return the folder of an environment's packages."""
    (site,) = python.parents[1].glob("lib/python*/site-packages")
    return site


def link_package(python: Path, package: Path) -> None:
    """Let an environment import a package that lies elsewhere."""
    (find_site(python) / package.name).symlink_to(package)


def list_needed(packages: Iterable[str]) -> set[str]:
    """Return the packages and those that they need, without their extras."""
    needed, left = set[str](), list(packages)
    while left:
        name = left.pop()
        if name not in needed:
            needed.add(name)
            requirements = map(Requirement, distribution(name).requires or ())
            left += [item.name for item in requirements if item.marker is None or item.marker.evaluate({"extra": ""})]
    return needed


@dataclass
class Cluster:
    """A master and its workers, of two cores each.

    Attributes:
        folder: has a folder for each process.
        python: runs the tasks; unless a session names another.
        environment: of the workers' processes, in addition to the least that Java needs.
    """

    folder: Path
    python: Path
    workers: int = 2
    environment: Mapping[str, str] = field(default_factory=dict)
    _port: int = field(default_factory=find_port)
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self) -> None:
        """Start all processes, and wait until the master knows its workers."""
        self._status_port = find_port()
        ports = ("--port", str(self._port), "--webui-port", str(self._status_port))
        self._launch("master", "master.Master", *ports)
        self._wait(lambda: self._read_status() is not None, "the master answers")
        for number in range(self.workers):
            self.start_worker(f"worker{number}")
        self._wait(lambda: self.count_workers() == self.workers, "the workers are registered")

    def start_worker(self, name: str) -> None:
        """Start a worker with a folder of its own."""
        place = self.folder / name
        self._launch(
            name, "worker.Worker", "--cores", "2", "--memory", "2g", "--webui-port", "0",
            "--work-dir", str(place / "work"), self.master,
        )  # fmt: skip

    def stop(self) -> None:
        """End all processes, those that they started too."""
        for process in reversed(self._processes.values()):
            self._end(process, signal.SIGTERM)
        self._processes.clear()

    def restore(self) -> None:
        """Start the workers that have ended, and wait for them."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                self.start_worker(name)
        self._wait(lambda: self.count_workers() == self.workers, "the workers are registered")

    def kill_worker(self, name: str) -> None:
        """Kill a worker and all that it started: its machine is gone."""
        self._end(self._processes[name], signal.SIGKILL)

    def list_python_workers(self) -> list[int]:
        """Return the processes that run tasks in Python."""
        started = [pid for process in self._processes.values() for pid in descendants(process.pid)]
        return [pid for pid in started if process_kind(pid) == WORKER]

    @property
    def master(self) -> str:
        """The URL of the master."""
        return f"spark://{HOST}:{self._port}"

    def count_workers(self) -> int:
        """Return how many workers the master knows to be alive."""
        status = self._read_status()
        return 0 if status is None else sum(worker["state"] == "ALIVE" for worker in status["workers"])

    def _read_status(self) -> dict[str, list[dict[str, str]]] | None:
        with suppress(OSError), urllib.request.urlopen(f"http://{HOST}:{self._status_port}/json/", timeout=5) as answer:
            status: dict[str, list[dict[str, str]]] = json.load(answer)
            return status
        return None

    def _launch(self, name: str, role: str, *words: str) -> None:
        place = self.folder / name
        place.mkdir(parents=True, exist_ok=True)
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", "--host", HOST]
        with (place / "log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [*command, *words], cwd=place, env=self._environment(place), stdout=log, stderr=log
            )

    def _environment(self, place: Path) -> dict[str, str]:
        """Return the environment of a process: nothing of this process's Python or Spark is in it."""
        kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "LANG") if name in os.environ}
        return {
            **kept,
            "HOME": str(place),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_DIRS": str(place / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_IP": HOST,
            "SPARK_SCALA_VERSION": "2.13",
            "JDK_JAVA_OPTIONS": QUICK_JAVA,
            **self.environment,
        }

    def _wait(self, is_done: object, what: str) -> None:
        until = time.monotonic() + _PATIENCE
        while not is_done():  # type: ignore[operator]
            for name, process in self._processes.items():
                assert process.poll() is None, f"{name} ended: {(self.folder / name / 'log').read_text()[-2000:]}"
            assert time.monotonic() < until, f"not in {_PATIENCE} seconds: {what}"
            time.sleep(0.1)

    @staticmethod
    def _end(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        pids = [process.pid, *descendants(process.pid)]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        process.wait(_PATIENCE)


def run_job(
    cluster: Cluster, job: str, *words: str, conf: Mapping[str, str] | None = None, python: Path | str | None = None,
    py_files: Sequence[Path] = (), environment: Mapping[str, str] | None = None, folder: Path | None = None,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Submit a job's file to the cluster, from a folder; what it says comes out of ``spark-submit`` on stdout."""
    properties = {**PROPERTIES, **(conf or {})}
    flags = [word for key, value in properties.items() for word in ("--conf", f"{key}={value}")]
    files = ["--py-files", ",".join(map(str, py_files))] if py_files else []
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", cluster.master, "--driver-memory", "1g"]
    program = job if job.endswith(".py") else str(ROOT / "jobs" / f"{job}.py")
    return subprocess.run(
        [*command, *flags, *files, program, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": str(python or cluster.python),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_SCALA_VERSION": "2.13",
            "JDK_JAVA_OPTIONS": QUICK_JAVA,
            **(environment or {}),
        },
    )


def submit(cluster: Cluster, job: str, *words: object, **options: object) -> str:
    """Submit a job that succeeds; return what it says."""
    done = run_job(cluster, job, *map(str, words), **options)  # type: ignore[arg-type]
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout


def refuse(cluster: Cluster, job: str, *words: object, code: int, **options: object) -> str:
    """Submit a job that ends with an exit code and one sentence; return this."""
    done = run_job(cluster, job, *map(str, words), **options)  # type: ignore[arg-type]
    said = [line for line in done.stdout.splitlines() if line.startswith("layoutopt: ")]
    assert (done.returncode, len(said)) == (code, 1), done.stdout + done.stderr[-3000:]
    assert "Traceback" not in done.stdout  # Spark's log of failed tasks is on stderr
    return said[0]
