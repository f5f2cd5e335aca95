"""A real Airflow on this machine: its API server, scheduler and DAG processor, over SQLite.

It has an environment of its own under build/, since it pins half of PyPI.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
import venv
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from jobs.bench.processes import descendants
from tests.ports import HOST, find_port

ROOT: Final = Path(__file__).parents[2]
# The release, and the versions that were installed with it.
RELEASE: Final = "apache-airflow==3.3.2"
VERSIONS: Final = Path(__file__).with_name("airflow_versions.txt")
_PATIENCE: Final = 600.0  # seconds that a command, or a step of the scheduler, may take on a busy machine


class AirflowNotInstalledError(Exception):
    """Airflow can't be installed here; the text gives pip's reason."""


def make_airflow() -> Path:
    """Return the command of Airflow, in an environment that is made once."""
    folder = Path(os.environ.get("LAYOUTOPT_AIRFLOW_VENV", ROOT / "build" / "airflow" / ".venv"))
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    if not (folder / "bin" / "python").exists():
        venv.create(folder, with_pip=True)
    done = subprocess.run([*pip, "--constraint", str(VERSIONS), RELEASE], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AirflowNotInstalledError(done.stderr.strip()[-300:])
    return folder / "bin" / "airflow"


@dataclass
class Airflow:
    """The processes of Airflow.

    Attributes:
        command: the command of Airflow.
        home: its folder, with the folder ``dags``.
        settings: environment variables of all its processes.
    """

    command: Path
    home: Path
    settings: Mapping[str, str]
    _port: int = field(default_factory=find_port)
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self) -> None:
        """Make the database, start the processes and wait until they know the DAGs."""
        self.run("db", "migrate")
        self._launch("api-server", "--host", HOST, "--port", str(self._port), "--workers", "1")
        self._launch("dag-processor")
        self._launch("scheduler")
        self.wait("the DAGs are known", self._knows_dags)

    def stop(self) -> None:
        """End all processes, those that they started too."""
        for process in self._processes.values():
            for pid in [process.pid, *descendants(process.pid)]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()

    def run(self, *words: str) -> str:
        """Run a command of Airflow and return what it prints."""
        done = subprocess.run(
            [str(self.command), *words], env=self._environment(), cwd=self.home, capture_output=True, text=True,
            check=False, timeout=_PATIENCE,
        )  # fmt: skip
        assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout

    def get(self, path: str) -> Any:
        """Return what the API server answers."""
        with urllib.request.urlopen(f"{self._url}/api/v2/{path}", timeout=_PATIENCE) as answer:
            return json.load(answer)

    def wait(self, what: str, is_done: Callable[[], object], patience: float = _PATIENCE) -> None:
        """Wait until something is done, while the processes are alive."""
        until = time.monotonic() + patience
        while not is_done():
            for name, process in self._processes.items():
                assert process.poll() is None, f"{name} ended: {self._log(name).read_text()[-3000:]}"
            assert time.monotonic() < until, f"not in {patience} seconds: {what}"
            time.sleep(1)

    def list_runs(self, dag: str) -> dict[str, dict[str, Any]]:
        """Return the runs of a DAG by their date."""
        runs = self.get(f"dags/{dag}/dagRuns?limit=100")["dag_runs"]
        return {run["logical_date"][:10]: run for run in runs}

    def list_tasks(self, dag: str, run: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
        """Return the tasks of a run by their names, of each the one of each table."""
        tasks: dict[str, list[dict[str, Any]]] = {}
        for task in self.get(f"dags/{dag}/dagRuns/{run['dag_run_id']}/taskInstances?limit=100")["task_instances"]:
            tasks.setdefault(task["task_id"], []).append(task)
        return {name: sorted(found, key=lambda task: task["map_index"]) for name, found in tasks.items()}

    def wait_for_runs(self, dag: str, days: Sequence[str], patience: float = _PATIENCE) -> dict[str, dict[str, Any]]:
        """Wait until the runs of these dates have ended, and return them."""
        runs: dict[str, dict[str, Any]] = {}

        def have_ended() -> bool:
            runs.update(self.list_runs(dag))
            return all(day in runs and runs[day]["state"] in ("success", "failed") for day in days)

        self.wait(f"{dag} of {', '.join(days)}", have_ended, patience)
        return runs

    def read_log(self, task: Mapping[str, Any]) -> str:
        """Return the log of the last try of a task."""
        folder = self.home / "logs" / f"dag_id={task['dag_id']}" / f"run_id={task['dag_run_id']}"
        (file,) = (folder / f"task_id={task['task_id']}").rglob(
            f"map_index={task['map_index']}/attempt={task['try_number']}.log"
            if task["map_index"] >= 0
            else f"attempt={task['try_number']}.log"
        )
        return file.read_text(encoding="utf-8")

    @property
    def _url(self) -> str:
        return f"http://{HOST}:{self._port}"

    def _knows_dags(self) -> bool:
        try:
            errors = self.get("importErrors")["import_errors"]
        except OSError:  # the server does not listen yet
            return False
        assert not errors, errors
        return bool(self.get("dags")["dags"])

    def _log(self, name: str) -> Path:
        return self.home / f"{name}.log"

    def _launch(self, name: str, *words: str) -> None:
        with self._log(name).open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [str(self.command), name, *words], env=self._environment(), cwd=self.home, stdout=log, stderr=log
            )

    def _environment(self) -> dict[str, str]:
        """Return the environment of a process: nothing of layoutopt or of Spark is in it."""
        kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "LANG", "TMPDIR") if name in os.environ}
        return {
            **kept,
            "HOME": str(self.home),
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__API__BASE_URL": self._url,
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": str(_PATIENCE),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self._url}/execution/",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PARALLELISM": "3",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": str(int(_PATIENCE)),
            "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": str(int(_PATIENCE)),
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": str(int(_PATIENCE)),
            # Tasks fail whose requests are not answered in time, by default five in five seconds each.
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": str(_PATIENCE),
            **self.settings,
        }
