"""The DAG file without Airflow: a stub takes its tasks, which the tests run."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from layoutopt.errors import CommitConflictError, InputError, MissingPartitionError, StalePlanError

DAGS = Path(__file__).parent.parent.parent / "jobs" / "airflow_dag.py"


POPEN = subprocess.Popen


def is_running(pid: str) -> bool:
    """Return whether a process still runs: one that ended may wait for its parent."""
    with suppress(FileNotFoundError):
        for _ in range(500):
            if Path("/proc", pid, "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z":
                return False
            time.sleep(0.01)
        return True
    return False


class FailedError(Exception):
    """Stands for the error of a task that is not tried again."""


class SkippedError(Exception):
    """Stands for the error of a task that is skipped."""


class Node:
    """A task or group in a DAG."""

    def __rshift__(self, other: Node) -> Node:
        return other


class Airflow:
    """What the file asks Airflow for, and what it gave Airflow.

    ``codes`` are the exit codes of the next commands; ``ran`` has their words and folders.
    """

    def __init__(self) -> None:
        self.tasks: dict[str, Callable[..., Any]] = {}
        self.variables: dict[str, str] = {}
        self.context: dict[str, Any] = {
            "ds": "2026-11-20",
            "params": {},
            "ti": SimpleNamespace(try_number=1, max_tries=1),
        }
        self.codes: list[int] = []
        self.ran: list[tuple[list[str], str]] = []

    def task(self, body: Callable[..., Any] | None = None, **_: object) -> Any:
        def take(body: Callable[..., Any]) -> Any:
            self.tasks[body.__name__] = body

            def call(*_: object, **__: object) -> Node:
                return Node()

            vars(call)["expand"] = call
            return call

        return take if body is None else take(body)

    def task_group(self, body: Callable[..., Any]) -> Any:
        return SimpleNamespace(expand=lambda **_: body("conf"))

    def start(self, command: list[str], *, cwd: Path, process_group: int) -> AbstractContextManager[SimpleNamespace]:
        self.ran.append((command, str(cwd)))
        return nullcontext(SimpleNamespace(wait=lambda: self.codes.pop(0)))

    def load(self) -> dict[str, Any]:
        return runpy.run_path(str(DAGS))


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Airflow:
    stub = Airflow()
    sdk, exceptions = ModuleType("airflow.sdk"), ModuleType("airflow.sdk.exceptions")
    vars(sdk).update(
        Asset=str,
        CronDataIntervalTimetable=lambda *_, **__: None,
        Variable=SimpleNamespace(get=lambda name, default: stub.variables.get(name, default)),
        dag=lambda **_: lambda body: body,
        get_current_context=lambda: stub.context,
        task=stub.task,
        task_group=stub.task_group,
    )
    vars(exceptions).update(AirflowFailException=FailedError, AirflowSkipException=SkippedError)
    for module in (ModuleType("airflow"), sdk, exceptions):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(subprocess, "Popen", stub.start)
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    return stub


def test_variables_have_their_defaults(airflow: Airflow, tmp_path: Path) -> None:
    found = airflow.load()
    assert (found["START"].isoformat(), found["PARALLEL"]) == ("2026-01-01T00:00:00+00:00", 2)
    assert (found["RETRIES"], found["WAIT"]) == (3, 300)
    assert [found["read_setting"](name, {}) for name in ("submit", "jobs", "command")] == [
        ["spark-submit"], DAGS.parent, ["layoutopt"],
    ]  # fmt: skip
    assert airflow.tasks["list_tables"]() == [str(tmp_path / "layoutopt.toml")]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LAYOUTOPT_START", "yesterday"), ("LAYOUTOPT_PARALLEL", "two"), ("LAYOUTOPT_RETRIES", "3"),
        ("LAYOUTOPT_RETRIES", "3,x"), ("LAYOUTOPT_SUBMIT", "spark-submit 'a"), ("LAYOUTOPT_COMMAND", '"'),
        ("LAYOUTOPT_CONF", ","), ("LAYOUTOPT_CONF", "a.toml,a.toml"),
    ],
)  # fmt: skip
def test_a_bad_variable_is_named(airflow: Airflow, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=name) as caught:
        airflow.load()
    assert repr(value) in str(caught.value)


def test_tables_are_those_of_the_run_or_the_variable_or_the_environment(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LAYOUTOPT_CONF", "/etc/a.toml, b.toml")
    airflow.load()
    list_tables = airflow.tasks["list_tables"]
    assert list_tables() == ["/etc/a.toml", str(tmp_path / "b.toml")]
    airflow.variables["layoutopt_conf"] = "/etc/c.toml"
    assert list_tables() == ["/etc/c.toml"]
    airflow.context["params"] = {"conf": "/etc/d.toml"}
    assert list_tables() == ["/etc/d.toml"]
    airflow.context["params"] = {}
    airflow.variables["layoutopt_conf"] = ""
    with pytest.raises(ValueError, match="the variable layoutopt_conf is ''"):
        list_tables()


def test_a_day_is_loaded_into_the_partition_column_of_the_plan(airflow: Airflow) -> None:
    airflow.load()
    airflow.variables["layoutopt_submit"] = "submit --master local"
    airflow.codes = [0]
    airflow.tasks["load_partition"]("/etc/a.toml")
    words = ["submit", "--master", "local", str(DAGS.parent / "load.py")]
    arguments = ["--partition", "2026-11-20", "--log-json", "-", "--conf", "/etc/a.toml"]
    assert airflow.ran == [([*words, *arguments], "/etc")]


def test_a_day_without_rows_is_tried_again_then_skipped(airflow: Airflow) -> None:
    airflow.load()
    airflow.codes = [4, 4, 1, 3]
    load = airflow.tasks["load_partition"]
    with pytest.raises(RuntimeError, match="has no rows of 2026-11-20 yet"):
        load("/etc/a.toml")
    airflow.context["ti"].try_number = 2
    with pytest.raises(SkippedError, match="has no rows of 2026-11-20 yet"):
        load("/etc/a.toml")
    with pytest.raises(RuntimeError, match="exited with 1"):
        load("/etc/a.toml")
    with pytest.raises(FailedError, match="exited with 3"):
        load("/etc/a.toml")


def test_a_task_that_airflow_ends_leaves_no_process(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    airflow.load()
    monkeypatch.setattr(subprocess, "Popen", POPEN)
    job = tmp_path / "job"
    # A program that started another one, as Spark's does, and waits for it.
    job.write_text('sleep 60 & echo "$$ $!" > started.new; mv started.new started; wait', encoding="utf-8")
    airflow.variables["layoutopt_submit"] = f"sh {job}"
    handler = signal.getsignal(signal.SIGTERM)
    started = tmp_path / "started"

    def end() -> None:
        while not started.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end).start()
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match="Airflow ended the task"):
        airflow.tasks["load_partition"](str(tmp_path / "a.toml"))
    for pid in started.read_text(encoding="utf-8").split():
        assert not is_running(pid)
    assert time.monotonic() - begin < 30
    assert signal.getsignal(signal.SIGTERM) == handler


def test_an_outdated_plan_is_a_signal(airflow: Airflow) -> None:
    airflow.load()
    airflow.codes = [0, 5, 1]
    compare, tell = airflow.tasks["compare_with_log"], airflow.tasks["tell_outdated"]
    assert [compare("/etc/a.toml"), compare("/etc/a.toml")] == [True, False]
    with pytest.raises(RuntimeError, match="exited with 1"):
        compare("/etc/a.toml")
    tell(fits=False)
    with pytest.raises(SkippedError):
        tell(fits=True)


def test_a_table_is_verified_and_vacuumed_beside_optimize(airflow: Airflow) -> None:
    airflow.load()
    airflow.codes = [0, 0, 0]
    for name in ("optimize", "verify", "vacuum"):
        airflow.tasks[name]("/etc/a.toml")
    assert [command[:2] for command, _ in airflow.ran] == [
        ["spark-submit", str(DAGS.parent / "optimize.py")],
        ["spark-submit", str(DAGS.parent / "verify.py")],
        ["layoutopt", "vacuum"],
    ]


def test_partitions_expire_where_the_configuration_says_so(airflow: Airflow, tmp_path: Path) -> None:
    airflow.load()
    conf = tmp_path / "a.toml"
    conf.write_text('[load]\ntable = "t"\n', encoding="utf-8")
    airflow.tasks["expire"](str(conf))
    assert airflow.ran == []
    conf.write_text('[expire]\ntable = "t"\nkeep = "400d"\n', encoding="utf-8")
    airflow.codes = [0, 3]
    airflow.tasks["expire"](str(conf))
    assert airflow.ran == [(["layoutopt", "expire", "--conf", str(conf)], str(tmp_path))]
    with pytest.raises(FailedError, match="exited with 3"):
        airflow.tasks["expire"](str(conf))


def test_codes_are_those_of_the_errors(airflow: Airflow) -> None:
    found = airflow.load()
    assert found["NO_ROWS"] == MissingPartitionError.exit_code
    assert found["FITS_NO_MORE"] == StalePlanError.exit_code
    assert found["NO_RETRY"] == (InputError.exit_code, CommitConflictError.exit_code)
