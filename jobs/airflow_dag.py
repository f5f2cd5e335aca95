"""Define DAGs of Airflow 3 for nightly loads; copy or link this file into Airflow's folder of DAGs.

``layoutopt_nightly`` loads the date partition of each past day, one run per day. Airflow catches up missed days, and
``airflow backfill create`` loads a range; retries do not load twice. A day without rows is tried again, then skipped.
``layoutopt_follow_log`` drops each night the partitions that are too old, and rewrites others for the recent log, once
their queries have lost as much as rewriting costs; then it verifies the table and removes old snapshots.
``layoutopt_plan_check`` checks each week whether the recent log still fits the plan. If not, it updates the asset
``layoutopt-plan-outdated``, on which other DAGs can be scheduled. A day without rows and an outdated plan are no
failures.

Each run has tasks for each table; tables do not wait for each other. Airflow needs only this file; the
work is done by commands in the environment of layoutopt, in the folder of the configuration file. A setting is the
parameter of a manually started run, else the Variable of Airflow, else the environment variable of Airflow, else the
default:

    parameter, Variable       environment           meaning and default
    conf, layoutopt_conf      LAYOUTOPT_CONF        the tables' TOML files, with commas between them: layoutopt.toml.
                                                    A relative path begins at $AIRFLOW_HOME. Each file has [load] source
                                                    and table, [drift] and [optimize] table and log, [verify] and
                                                    [vacuum] table; and where partitions expire, [expire] table and
                                                    keep.
    -, layoutopt_submit       LAYOUTOPT_SUBMIT      the command before a job: spark-submit
    -, layoutopt_jobs         LAYOUTOPT_JOBS        the folder of the jobs: that of this file, if that is a link, of its
                                                    target
    -, layoutopt_command      LAYOUTOPT_COMMAND     the layoutopt command: layoutopt
    -, -                      LAYOUTOPT_START       the first date: 2026-01-01
    -, -                      LAYOUTOPT_PARALLEL    days that load at once: 2
    -, -                      LAYOUTOPT_RETRIES     tries after the first, and the seconds before the first of them:
                                                    3,300
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tomllib
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from airflow.sdk import Asset, CronDataIntervalTimetable, Variable, dag, get_current_context, task, task_group
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

Value = TypeVar("Value")


def parse_setting(name: str, text: str, expected: str, parse: Callable[[str], Value]) -> Value:
    """Return the value of a setting; the error names it, since Airflow shows only the error of a DAG's import."""
    try:
        return parse(text)
    except ValueError as error:
        raise ValueError(f"the variable {name} is {text!r}: expected {expected} ({error})") from error


def read_environment(name: str, default: str, expected: str, parse: Callable[[str], Value]) -> Value:
    """Return the value of an environment variable."""
    return parse_setting(name, os.environ.get(name, default), expected, parse)


def parse_retries(text: str) -> tuple[int, int]:
    """Parse two numbers with a comma between them."""
    tries, seconds = text.split(",")
    return int(tries), int(seconds)


def parse_confs(text: str) -> list[str]:
    """Parse the paths of configuration files with commas between them; relative ones begin at Airflow's folder."""
    home = Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser().absolute()
    paths = [str(home / Path(part.strip()).expanduser()) for part in text.split(",") if part.strip()]
    if not paths or len(set(paths)) < len(paths):
        raise ValueError("no path, or one twice")
    return paths


# By setting: the default, what is expected, and the parser.
SETTINGS: dict[str, tuple[str, str, Callable[[str], Any]]] = {
    "conf": ("layoutopt.toml", "paths of TOML files with commas between them", parse_confs),
    "submit": ("spark-submit", "a command", shlex.split),
    "jobs": (str(Path(__file__).resolve().parent), "a folder", Path),
    "command": ("layoutopt", "a command", shlex.split),
}


def read_setting(name: str, params: Mapping[str, Any]) -> Any:
    """Return a setting while a task runs; a DAG's import must not ask for Variables."""
    default, expected, parse = SETTINGS[name]
    if params.get(name):
        return parse_setting(name, str(params[name]), expected, parse)
    variable = f"layoutopt_{name}"
    text = Variable.get(variable, default=None)
    if text is not None:
        return parse_setting(variable, text, expected, parse)
    return read_environment(variable.upper(), default, expected, parse)


START = read_environment(
    "LAYOUTOPT_START",
    "2026-01-01",
    "a date like 2026-01-01",
    lambda day: datetime.fromisoformat(f"{day}T00:00:00+00:00"),
)
PARALLEL = read_environment("LAYOUTOPT_PARALLEL", "2", "a number", int)
RETRIES, WAIT = read_environment("LAYOUTOPT_RETRIES", "3,300", "two numbers like 3,300", parse_retries)
for setting, (default, expected, parse) in SETTINGS.items():
    read_environment(f"LAYOUTOPT_{setting.upper()}", default, expected, parse)

# The exit codes of layoutopt. Bad usage or input, and a conflict with other rows, would fail in a retry too.
NO_RETRY = (2, 3)
NO_ROWS = 4
FITS_NO_MORE = 5

# Of manually started runs; an empty text stands for the Variable or the environment.
PARAMS = {"conf": ""}
OUTDATED = Asset("layoutopt-plan-outdated")


def stop_task(*_: object) -> None:
    """Let the task fail, since Airflow ends it."""
    raise RuntimeError("Airflow ended the task")


def run(conf: str, words: list[str], codes: tuple[int, ...] = ()) -> int:
    """Run a command in the folder of its configuration, with its output in the task's log, and return its exit code.

    Codes other than 0 and those expected raise an error, without retries where these cannot help.
    """
    command = [*words, "--conf", conf]
    # Airflow kills a task five seconds after SIGTERM, and not what it started: that is ended here.
    previous = signal.signal(signal.SIGTERM, stop_task)
    with subprocess.Popen(command, cwd=Path(conf).parent, process_group=0) as process:
        try:
            code = process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            raise
        finally:
            signal.signal(signal.SIGTERM, previous)
    message = f"{shlex.join(command)} exited with {code}"
    if code in NO_RETRY:
        raise AirflowFailException(message)
    if code and code not in codes:
        raise RuntimeError(message)
    return code


def make_job(name: str) -> list[str]:
    """Return the command that submits a job."""
    params = get_current_context()["params"]
    return [*read_setting("submit", params), str(read_setting("jobs", params) / f"{name}.py")]


def make_command(verb: str) -> list[str]:
    """Return the command of a verb."""
    return [*read_setting("command", get_current_context()["params"]), verb]


@task
def list_tables() -> list[str]:
    """Return the configuration files of the run."""
    confs: list[str] = read_setting("conf", get_current_context()["params"])
    return confs


@dag(
    # A day's run has its date and starts when it is over.
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=START,
    catchup=True,
    max_active_runs=PARALLEL,
    default_args={"retries": RETRIES, "retry_delay": timedelta(seconds=WAIT), "retry_exponential_backoff": True},
    params=PARAMS,
    tags=["layoutopt"],
    doc_md=__doc__,
)
def layoutopt_nightly() -> None:
    """Load each day's partition of each table."""

    @task
    def load_partition(conf: str) -> None:
        context = get_current_context()
        # The plan names the column.
        words = [*make_job("load"), "--partition", context["ds"], "--log-json", "-"]
        if run(conf, words, (NO_ROWS,)) == NO_ROWS:
            message = f"{conf} has no rows of {context['ds']} yet"
            if context["ti"].try_number <= context["ti"].max_tries:
                raise RuntimeError(message)
            raise AirflowSkipException(message)

    load_partition.expand(conf=list_tables())


@dag(
    schedule="@weekly",
    start_date=START,
    catchup=False,
    default_args={"retries": 1},
    params=PARAMS,
    tags=["layoutopt"],
)
def layoutopt_plan_check() -> None:
    """Update an asset if recent queries skip much less than the plan's own queries."""

    @task
    def compare_with_log(conf: str) -> bool:
        return run(conf, make_command("drift"), (FITS_NO_MORE,)) == 0

    @task(outlets=[OUTDATED])
    def tell_outdated(fits: bool) -> None:
        if fits:
            raise AirflowSkipException("the plan fits")

    @task_group
    def check(conf: str) -> None:
        tell_outdated(compare_with_log(conf))

    check.expand(conf=list_tables())


@dag(
    schedule="@daily",
    start_date=START,
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 1},
    params=PARAMS,
    tags=["layoutopt"],
)
def layoutopt_follow_log() -> None:
    """Drop old partitions, rewrite others where that pays, then verify the table and remove old snapshots."""

    @task
    def expire(conf: str) -> None:
        # A skipped task would skip those after it.
        if "expire" in tomllib.loads(Path(conf).read_text(encoding="utf-8")):
            run(conf, make_command("expire"))

    @task
    def optimize(conf: str) -> None:
        run(conf, [*make_job("optimize"), "--auto", "--log-json", "-"])

    @task
    def verify(conf: str) -> None:
        run(conf, make_job("verify"))

    @task
    def vacuum(conf: str) -> None:
        run(conf, make_command("vacuum"))

    @task_group
    def maintain(conf: str) -> None:
        expire(conf) >> optimize(conf) >> verify(conf) >> vacuum(conf)

    maintain.expand(conf=list_tables())


nightly = layoutopt_nightly()
follow_log = layoutopt_follow_log()
plan_check = layoutopt_plan_check()
