"""Define DAGs of Airflow 3 for nightly loads; copy or link this file into Airflow's folder of DAGs.

``layoutopt_nightly`` loads the date partition of each past day, one run per day. Airflow catches up missed days, and
``airflow backfill create`` loads a range; retries do not load twice. ``layoutopt_plan_check`` checks each week whether
the recent log still fits the plan. ``layoutopt_follow_log`` rewrites partitions for the recent log each night, once
their queries have lost as much as rewriting costs.

Airflow needs only this file; the work is done by commands in the environment of layoutopt. Optional environment
variables of Airflow:

    LAYOUTOPT_CONF       the TOML file with [load] source and table, [drift] table and log,
                         [optimize] table and log                                             layoutopt.toml
    LAYOUTOPT_PARTITION  the date column                                                      dt
    LAYOUTOPT_SUBMIT     the command before a job                                            spark-submit
    LAYOUTOPT_JOBS       the folder of the jobs                                               that of this file
    LAYOUTOPT_COMMAND    the layoutopt command                                                 layoutopt
    LAYOUTOPT_START      the first date                                                       2026-01-01
    LAYOUTOPT_PARALLEL   days that load at once                                               2
    LAYOUTOPT_RETRIES    tries after the first, and the seconds before the first of them      3,300
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

from airflow.sdk import CronDataIntervalTimetable, dag, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

Value = TypeVar("Value")


def read_variable(name: str, default: str, expected: str, parse: Callable[[str], Value]) -> Value:
    """Return the value of a variable; the error names it, since Airflow shows only the error of a DAG's import."""
    text = os.environ.get(name, default)
    try:
        return parse(text)
    except ValueError as error:
        raise ValueError(f"the variable {name} is {text!r}: expected {expected} ({error})") from error


def parse_retries(text: str) -> tuple[int, int]:
    """Parse two numbers with a comma between them."""
    tries, seconds = text.split(",")
    return int(tries), int(seconds)


CONF = os.environ.get("LAYOUTOPT_CONF", "layoutopt.toml")
PARTITION = os.environ.get("LAYOUTOPT_PARTITION", "dt")
SUBMIT = read_variable("LAYOUTOPT_SUBMIT", "spark-submit", "a command", shlex.split)
JOBS = Path(os.environ.get("LAYOUTOPT_JOBS", Path(__file__).parent))
COMMAND = read_variable("LAYOUTOPT_COMMAND", "layoutopt", "a command", shlex.split)
START = read_variable(
    "LAYOUTOPT_START",
    "2026-01-01",
    "a date like 2026-01-01",
    lambda day: datetime.fromisoformat(f"{day}T00:00:00+00:00"),
)
PARALLEL = read_variable("LAYOUTOPT_PARALLEL", "2", "a number", int)
RETRIES, WAIT = read_variable("LAYOUTOPT_RETRIES", "3,300", "two numbers like 3,300", parse_retries)

# Exit codes for which a retry would fail too: bad usage or input, and a conflict with other rows in the partition.
NO_RETRY = (2, 3)


def run(command: list[str]) -> None:
    """Run a command, with its output in the task's log; fail without retries where these cannot help."""
    code = subprocess.run(command, check=False).returncode
    message = f"{shlex.join(command)} exited with {code}"
    if code in NO_RETRY:
        raise AirflowFailException(message)
    if code:
        raise RuntimeError(message)


@dag(
    # A day's run has its date and starts when it is over.
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=START,
    catchup=True,
    max_active_runs=PARALLEL,
    default_args={"retries": RETRIES, "retry_delay": timedelta(seconds=WAIT), "retry_exponential_backoff": True},
    tags=["layoutopt"],
    doc_md=__doc__,
)
def layoutopt_nightly() -> None:
    """Load each day's partition."""

    @task
    def load_partition() -> None:
        day = get_current_context()["ds"]
        run([*SUBMIT, str(JOBS / "load.py"), "--conf", CONF, "--partition", f"{PARTITION}={day}", "--log-json", "-"])

    load_partition()


@dag(schedule="@weekly", start_date=START, catchup=False, default_args={"retries": 1}, tags=["layoutopt"])
def layoutopt_plan_check() -> None:
    """Fail, which sends an alert, if recent queries skip much less than the plan's own queries."""

    @task
    def compare_with_log() -> None:
        run([*COMMAND, "drift", "--conf", CONF])

    compare_with_log()


@dag(
    schedule="@daily",
    start_date=START,
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 1},
    tags=["layoutopt"],
)
def layoutopt_follow_log() -> None:
    """Rewrite partitions for recent queries where that pays."""

    @task
    def optimize() -> None:
        run([*SUBMIT, str(JOBS / "optimize.py"), "--conf", CONF, "--auto", "--log-json", "-"])

    optimize()


nightly = layoutopt_nightly()
follow_log = layoutopt_follow_log()
plan_check = layoutopt_plan_check()
