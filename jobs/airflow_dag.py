"""Nightly loads as DAGs of Airflow 3: copy this file, or link to it, from Airflow's folder of DAGs.

``layoutopt_nightly`` loads the date partition of each day when the day is over: one run a day, so that missed days are
caught up, ``airflow backfill create`` loads a range, and several days load at once. A repeated try finds what an
earlier one committed. ``layoutopt_plan_check`` asks each week whether the log of late still fits the plan.
``layoutopt_follow_log`` lets the table follow its queries each night: partitions are laid out for the log of late once
they have lost what that costs, and not before.

Airflow needs only this file; the work is done by commands in the environment of layoutopt. Variables of Airflow's
process, all optional:

    LAYOUTOPT_CONF       the TOML file with [load] source and table, [drift] table and log,
                         [optimize] table and log                                             layoutopt.toml
    LAYOUTOPT_PARTITION  the date column                                                      dt
    LAYOUTOPT_SUBMIT     what starts a job                                                    spark-submit
    LAYOUTOPT_JOBS       the folder of the jobs                                               that of this file
    LAYOUTOPT_COMMAND    the command line                                                     layoutopt
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


def read(name: str, default: str, meant: str, of: Callable[[str], Value]) -> Value:
    """The value of a variable; a bad one is named, since Airflow shows no more than the error of a DAG's import."""
    text = os.environ.get(name, default)
    try:
        return of(text)
    except ValueError as error:
        raise ValueError(f"the variable {name} is {text!r}, not {meant} ({error})") from error


def tries_and_seconds(text: str) -> tuple[int, int]:
    """Two numbers with a comma between them."""
    tries, seconds = text.split(",")
    return int(tries), int(seconds)


CONF = os.environ.get("LAYOUTOPT_CONF", "layoutopt.toml")
PARTITION = os.environ.get("LAYOUTOPT_PARTITION", "dt")
SUBMIT = read("LAYOUTOPT_SUBMIT", "spark-submit", "a command", shlex.split)
JOBS = Path(os.environ.get("LAYOUTOPT_JOBS", Path(__file__).parent))
COMMAND = read("LAYOUTOPT_COMMAND", "layoutopt", "a command", shlex.split)
START = read(
    "LAYOUTOPT_START", "2026-01-01", "a date as 2026-01-01", lambda day: datetime.fromisoformat(f"{day}T00:00:00+00:00")
)
PARALLEL = read("LAYOUTOPT_PARALLEL", "2", "a number", int)
RETRIES, WAIT = read("LAYOUTOPT_RETRIES", "3,300", "two numbers as 3,300", tries_and_seconds)

FOR_GOOD = (2, 3)
"""Exit codes of bad usage or input, and of somebody else's rows in the partition: another try would fail too."""


def run(command: list[str]) -> None:
    """Run a command; its output goes to the task's log. Fails for good where another try can't help."""
    code = subprocess.run(command, check=False).returncode
    said = f"{shlex.join(command)} exited with {code}"
    if code in FOR_GOOD:
        raise AirflowFailException(said)
    if code:
        raise RuntimeError(said)


@dag(
    # The run of a day begins when it is over, and is dated by it.
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
    """Fail, and so alert, where the queries of late skip much less than those that the plan was made for."""

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
    """Lay partitions out for the queries of late where that pays."""

    @task
    def optimize() -> None:
        run([*SUBMIT, str(JOBS / "optimize.py"), "--conf", CONF, "--auto", "--log-json", "-"])

    optimize()


nightly = layoutopt_nightly()
follow_log = layoutopt_follow_log()
plan_check = layoutopt_plan_check()
