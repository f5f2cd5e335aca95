"""The DAGs in a real Airflow, whose scheduler starts their commands: ten nights, their accidents, and maintenance.

The tests of this file follow one another. ``make test-cluster`` runs them; LAYOUTOPT_TEST_MASTER names the master of
Spark, by default one core of this machine.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import layoutopt
from layoutopt.catalog.history import history
from layoutopt.catalog.table import Catalog
from tests.conftest import INSTALLATION
from tests.jobs.airflow_server import ROOT, Airflow, AirflowNotInstalledError, make_airflow

pytestmark = [pytest.mark.cluster, pytest.mark.spark]

TODAY = dt.datetime.now(dt.UTC).date()
# The scheduler starts with the first night; a backfill loads the days before.
NIGHTS = [str(TODAY - dt.timedelta(days=number)) for number in range(10, 0, -1)]
OLDER = [str(TODAY - dt.timedelta(days=number)) for number in range(15, 10, -1)]
DAMAGED, EMPTY, LATE = NIGHTS[3], NIGHTS[6], NIGHTS[1]
ROWS = 2_000
NIGHTLY, FOLLOW_LOG, PLAN_CHECK = "layoutopt_nightly", "layoutopt_follow_log", "layoutopt_plan_check"
# Tables of a folder of the file; the second one's log has queries that the plan does not know.
CONF = """
[load]
source = "source"
table = "events"
plan = "plan.json"
[append]
table = "events"
batch-id = "{batch}"
[drift]
table = "events"
log = "{log}"
[optimize]
table = "events"
log = "recent.jsonl"
[verify]
table = "events"
[vacuum]
table = "events"
older-than = "1s"
retain-snapshots = 1
"""
# What the plan was made for, and what is asked later.
KNOWN, NEW = "SELECT id FROM events WHERE kind = {value}", "SELECT id FROM events WHERE shop = {value}"


def make_rows(day: str, first: int = 0, count: int = ROWS) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": pa.array([dt.date.fromisoformat(day).toordinal() * 10_000 + n for n in numbers], pa.int64()),
            "kind": pa.array([n * 7 % 5 for n in numbers], pa.int32()),
            "shop": pa.array([n * 13 % 11 for n in numbers], pa.int32()),
        }
    )


@dataclass
class Nightly:
    """A source, a table and the Airflow that loads it, in one folder."""

    place: Path
    airflow: Airflow
    submit: str

    @property
    def table(self) -> str:
        return str(self.place / "events")

    def deliver(self, day: str, name: str = "rows.parquet", first: int = 0, count: int = ROWS) -> Path:
        """Write a file of a day into the source."""
        file = self.place / "source" / f"day={day}" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(make_rows(day, first, count), file)
        return file

    def clear(self, *days: str) -> None:
        """Clear the loads of days and wait until they have ended."""
        for day in days:
            self.airflow.run("tasks", "clear", NIGHTLY, "--yes", "--start-date", day, "--end-date", day)
        self.airflow.wait_for_runs(NIGHTLY, days, patience=300 * len(days))

    def show_loads(self, days: list[str]) -> dict[str, tuple[str, str, int]]:
        """Return of each day the states of its run and of its load, and the number of tries."""
        runs = self.airflow.list_runs(NIGHTLY)
        loads = {day: self.airflow.list_tasks(NIGHTLY, runs[day])["load_partition"] for day in days}
        return {day: (runs[day]["state"], load["state"], load["try_number"]) for day, (load,) in loads.items()}

    def list_commits(self) -> list[tuple[str, tuple[str, ...]]]:
        """Return the operation and the partitions of each snapshot."""
        entries = history(Catalog.open(self.table).files)
        return [(entry.operation, tuple(str(key) for key in entry.changed or ())) for entry in entries]


@pytest.fixture(scope="module")
def nightly(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nightly]:
    try:
        command = make_airflow()
    except AirflowNotInstalledError as error:
        pytest.skip(f"Airflow can't be installed here: {error}")
    place = tmp_path_factory.mktemp("nightly")
    programs = Path(sys.executable).parent
    # As Airflow has a Python of its own, the commands name layoutopt's.
    variables = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": str(INSTALLATION)}
    prefix = ["env", *(f"{name}={value}" for name, value in variables.items())]
    master = os.environ.get("LAYOUTOPT_TEST_MASTER", "local[1]")
    submit = shlex.join([*prefix, str(programs / "spark-submit"), "--master", master, "--driver-memory", "1g"])
    settings = {
        "LAYOUTOPT_COMMAND": shlex.join([*prefix, str(programs / "layoutopt")]),
        "LAYOUTOPT_CONF": str(place / "events.toml"),
        "LAYOUTOPT_PARALLEL": "1",
        "LAYOUTOPT_RETRIES": "1,1",
        "LAYOUTOPT_START": NIGHTS[0],
        "LAYOUTOPT_SUBMIT": submit,
    }
    (place / "airflow" / "dags").mkdir(parents=True)
    (place / "airflow" / "dags" / "nightly.py").symlink_to(ROOT / "jobs" / "airflow_dag.py")
    nightly = Nightly(place, Airflow(command, place / "airflow", settings), submit)
    for day in NIGHTS:
        if day != EMPTY:
            nightly.deliver(day)
    (place / "known.sql").write_text(";\n".join(KNOWN.format(value=value) for value in range(3)), encoding="utf-8")
    (place / "new.sql").write_text(";\n".join(NEW.format(value=value) for value in range(3)), encoding="utf-8")
    for name, log in (("events", "known.sql"), ("others", "new.sql")):
        (place / f"{name}.toml").write_text(CONF.format(log=log, batch=f"late-{LATE}"), encoding="utf-8")
    features = layoutopt.analyze(place / "known.sql", place / "source", table="events", threshold=1)
    plan = layoutopt.plan(
        place / "source",
        features,
        partition_by="day",
        method="sop",
        block_rows=200,
        row_order=("kind",),
        executor="local",
    )
    plan.save(place / "plan.json")
    try:
        nightly.airflow.start()
        yield nightly
    finally:
        nightly.airflow.stop()


def test_ten_nights_are_loaded_in_order_but_two_that_cannot(nightly: Nightly) -> None:
    file = nightly.deliver(DAMAGED)
    file.write_bytes(file.read_bytes()[:-100])
    nightly.airflow.run("dags", "unpause", NIGHTLY)
    runs = nightly.airflow.wait_for_runs(NIGHTLY, NIGHTS, patience=3000)
    states = nightly.show_loads(NIGHTS)
    # A damaged file is not read again; rows that are missing may come, so they are looked for twice.
    assert states[DAMAGED] == ("failed", "failed", 1)
    assert states[EMPTY] == ("success", "skipped", 2)
    loaded = [day for day in NIGHTS if day not in (DAMAGED, EMPTY)]
    assert {day: states[day] for day in loaded} == dict.fromkeys(loaded, ("success", "success", 1))
    assert sorted(NIGHTS, key=lambda day: runs[day]["start_date"]) == NIGHTS
    assert nightly.list_commits() == [("load", (day,)) for day in loaded]
    (task,) = nightly.airflow.list_tasks(NIGHTLY, runs[DAMAGED])["load_partition"]
    log = nightly.airflow.read_log(task)
    assert f"day={DAMAGED}/rows.parquet" in log
    assert "exited with 2" in log


def test_cleared_nights_are_loaded_once_their_rows_can_be_read(nightly: Nightly) -> None:
    commits = nightly.list_commits()
    nightly.deliver(DAMAGED)
    nightly.deliver(EMPTY)
    nightly.clear(DAMAGED, EMPTY)
    states = nightly.show_loads([DAMAGED, EMPTY])
    assert {day: state[:2] for day, state in states.items()} == dict.fromkeys((DAMAGED, EMPTY), ("success", "success"))
    assert sorted(nightly.list_commits()[len(commits) :]) == [("load", (day,)) for day in (DAMAGED, EMPTY)]


def test_a_night_that_is_cleared_after_a_late_batch_changes_nothing(nightly: Nightly) -> None:
    commits = nightly.list_commits()
    late = nightly.place / "late" / f"day={LATE}"
    late.mkdir(parents=True)
    pq.write_table(make_rows(LATE, ROWS, 100), late / "late.parquet")
    words = ["--conf", "events.toml", "--source", str(late.parent)]
    done = subprocess.run(
        [*shlex.split(nightly.submit), str(ROOT / "jobs" / "append.py"), *words],
        cwd=nightly.place, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    nightly.deliver(LATE, "late.parquet", ROWS, 100)
    nightly.clear(LATE)
    assert nightly.show_loads([LATE])[LATE][:2] == ("success", "success")
    assert nightly.list_commits() == [*commits, ("append", (LATE,))]


def test_a_backfill_loads_the_days_before_the_first_night(nightly: Nightly) -> None:
    commits = nightly.list_commits()
    for day in OLDER:
        nightly.deliver(day)
    nightly.airflow.run(
        "backfill", "create", "--dag-id", NIGHTLY, "--from-date", OLDER[0], "--to-date", OLDER[-1],
        "--max-active-runs", "2",
    )  # fmt: skip
    nightly.airflow.wait_for_runs(NIGHTLY, OLDER, patience=2000)
    assert {day: state[:2] for day, state in nightly.show_loads(OLDER).items()} == dict.fromkeys(
        OLDER, ("success", "success")
    )
    assert sorted(nightly.list_commits()[len(commits) :]) == [("load", (day,)) for day in OLDER]


def test_the_table_is_the_one_that_is_loaded_at_once(nightly: Nightly) -> None:
    source = nightly.place / "source"
    layoutopt.load(source, nightly.place / "at-once", nightly.place / "plan.json", executor="local")
    query = "SELECT * FROM events ORDER BY id"
    rows = layoutopt.open_table(nightly.table).scan(query).to_arrow()
    assert rows.num_rows == 15 * ROWS + 100
    assert rows.equals(layoutopt.open_table(str(nightly.place / "at-once")).scan(query).to_arrow())
    assert layoutopt.verify(layoutopt.open_table(nightly.table)).ok
    assert sorted(nightly.list_commits()) == sorted(
        [("append", (LATE,)), *(("load", (day,)) for day in (*OLDER, *NIGHTS))]
    )


def test_the_table_follows_its_log_and_is_verified_and_vacuumed(nightly: Nightly) -> None:
    moments = [dt.datetime.now(dt.UTC) + dt.timedelta(hours=hours) for hours in range(1, 40)]
    entries = [{"sql": NEW.format(value=n % 3), "timestamp": moment.isoformat()} for n, moment in enumerate(moments)]
    (nightly.place / "recent.jsonl").write_text("\n".join(map(json.dumps, entries)), encoding="utf-8")
    rows = layoutopt.open_table(nightly.table).scan("SELECT * FROM events ORDER BY id").to_arrow()
    nightly.airflow.run("dags", "unpause", FOLLOW_LOG)
    nightly.airflow.wait("a run is known", lambda: nightly.airflow.list_runs(FOLLOW_LOG))
    (day,) = nightly.airflow.list_runs(FOLLOW_LOG)
    runs = nightly.airflow.wait_for_runs(FOLLOW_LOG, [day], patience=1500)
    tasks = nightly.airflow.list_tasks(FOLLOW_LOG, runs[day])
    assert {name: [task["state"] for task in found] for name, found in tasks.items()} == {
        "list_tables": ["success"],
        **{f"maintain.{name}": ["success"] for name in ("expire", "optimize", "verify", "vacuum")},
    }
    # The partitions were rewritten for the new queries; then all older snapshots were removed, which is a commit too.
    assert [operation for operation, _ in nightly.list_commits()] == ["optimize", "vacuum"]
    table = layoutopt.open_table(nightly.table)
    assert table.scan("SELECT * FROM events ORDER BY id").to_arrow().equals(rows)
    assert layoutopt.verify(table).ok


def test_a_run_by_hand_checks_the_plans_of_other_tables(nightly: Nightly) -> None:
    confs = ",".join(str(nightly.place / f"{name}.toml") for name in ("events", "others"))
    # The scheduler's own run is of this week.
    day = NIGHTS[0]
    nightly.airflow.run("dags", "unpause", PLAN_CHECK)
    nightly.airflow.run(
        "dags", "trigger", PLAN_CHECK, "--logical-date", f"{day}T12:00:00+00:00", "--conf", json.dumps({"conf": confs})
    )  # fmt: skip
    runs = nightly.airflow.wait_for_runs(PLAN_CHECK, [day])
    tasks = nightly.airflow.list_tasks(PLAN_CHECK, runs[day])
    assert [task["state"] for task in tasks["check.compare_with_log"]] == ["success", "success"]
    states = [task["state"] for task in tasks["check.tell_outdated"]]
    assert sorted(states) == ["skipped", "success"]
    events = nightly.airflow.get("assets/events")["asset_events"]
    assert runs[day]["dag_run_id"] in [event["source_run_id"] for event in events]
