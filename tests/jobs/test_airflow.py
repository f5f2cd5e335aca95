"""The DAGs end to end, in Airflow's own test mode and an environment of its own, since Airflow pins half of PyPI."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from layoutopt.catalog.table import Catalog
from layoutopt.inspect.verify import verify
from layoutopt.scan.table import open_table
from tests.conftest import QUICK_JAVA
from tests.spark.tables import plan_of, simple_document

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]

ROOT = Path(__file__).parents[2]
DAYS = ("2026-11-18", "2026-11-19", "2026-11-20")
EMPTY = "2026-11-21"
# Runs a job; of one date, says that the first try failed, though it had committed: the worst moment to die at.
SUBMIT = """#!/bin/sh
echo "$@" >> {place}/tries
{python} "$@" || exit $?
case "$*" in *load.py*2026-11-19*table.toml*) [ -e {place}/failed ] || {{ touch {place}/failed; exit 1; }} ;; esac
"""
# Of a table in the folder of the file.
CONF = """
[load]
source = "source"
table = "{name}"
plan = "plan.json"
[drift]
table = "{name}"
log = "{log}"
[optimize]
table = "{name}"
log = "log.jsonl"
[verify]
table = "{name}"
[vacuum]
table = "{name}"
[spark]
"spark.driver.memory" = "1g"
"spark.driver.extraJavaOptions" = "{java}"
"""


@pytest.fixture(scope="module")
def airflow() -> Path:
    """The Python of an environment with Airflow, made once under build/."""
    folder = Path(os.environ.get("LAYOUTOPT_AIRFLOW_VENV", ROOT / "build" / "airflow-venv"))
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "apache-airflow>=3.1,<4"]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"Airflow can't be installed here: {done.stderr.strip()[-200:]}")
    return python


@pytest.fixture(scope="module")
def place(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source of three days, a plan, two tables, a log that it fits and one that it does not, and a script."""
    place = tmp_path_factory.mktemp("nightly")
    for number, day in enumerate(DAYS):
        rows = spark.range(40, numPartitions=1).selectExpr(f"cast(id + {1000 * number} as int) AS id", "id % 5 AS kind")
        rows.selectExpr("id", "cast(kind as int) AS kind").write.parquet(str(place / "source" / f"dt={day}"))
    source = spark.read.parquet(str(place / "source"))
    (place / "plan.json").write_bytes(plan_of(simple_document(source), partition_by="dt").dumps())
    (place / "others.sql").write_text("SELECT id FROM t WHERE id = 1; SELECT id FROM t WHERE id = 2;")
    (place / "log.sql").write_text("SELECT id FROM t WHERE kind = 1; SELECT id FROM t WHERE kind = 2;")
    asked = [f"SELECT id FROM t WHERE kind = {kind}" for kind in (1, 1, 2, 2)]
    lines = [json.dumps({"sql": sql, "timestamp": "2026-01-01T12:00:00Z"}) for sql in asked]
    (place / "log.jsonl").write_text("\n".join(lines))
    for name, log in (("table", "log.sql"), ("second", "others.sql")):
        (place / f"{name}.toml").write_text(CONF.format(name=name, log=log, java=QUICK_JAVA))
    (place / "submit").write_text(SUBMIT.format(place=place, python=sys.executable))
    (place / "submit").chmod(0o755)
    return place


def run_dags(airflow: Path, place: Path) -> dict[str, Any]:
    """Run three days and the check of the plan; what became of each."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")},
        "AIRFLOW_HOME": str(place / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "jobs"),
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "AIRFLOW_VAR_LAYOUTOPT_CONF": f"{place}/table.toml,{place}/second.toml",
        "LAYOUTOPT_SUBMIT": str(place / "submit"),
        "LAYOUTOPT_COMMAND": str(Path(sys.executable).with_name("layoutopt")),
        "LAYOUTOPT_RETRIES": "2,1",
    }
    command = [str(airflow.with_name("airflow")), "db", "migrate"]
    subprocess.run(command, env=environment, capture_output=True, check=True)
    script = [str(airflow), str(ROOT / "tests/jobs/run_dags.py"), str(ROOT / "jobs/airflow_dag.py"), *DAYS, EMPTY]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("OUTCOME ")]
    assert lines, done.stdout[-3000:] + done.stderr[-3000:]
    found: dict[str, Any] = json.loads(lines[0].removeprefix("OUTCOME "))
    return found


def test_three_days_are_loaded_once_each_though_one_fails_and_is_retried(airflow: Path, place: Path) -> None:
    found = run_dags(airflow, place)
    names = [*DAYS, EMPTY, "check", "follow"]
    assert {name: each["state"] for name, each in found.items()} == dict.fromkeys(names, "success")
    assert [found[day]["tries"] for day in DAYS] == [1, 2, 1]
    tries = (place / "tries").read_text().splitlines()
    loads = [line for line in tries if "load.py" in line]
    assert [sum(day in line for line in loads) for day in DAYS] == [2, 3, 2]
    # A day without rows is tried again, then skipped.
    assert found[EMPTY]["tasks"]["load_partition"] == ["skipped", "skipped"]
    assert sum(EMPTY in line for line in loads) == 2 * 3
    # The second table's log has queries that the plan does not know.
    assert found["check"]["tasks"]["check.tell_outdated"] == ["skipped", "success"]
    assert {name: states for name, states in found["follow"]["tasks"].items() if name.startswith("maintain")} == {
        f"maintain.{task}": ["success", "success"] for task in ("expire", "optimize", "verify", "vacuum")
    }
    for name in ("table", "second"):
        table = open_table(str(place / name))
        ids = table.sql("SELECT id FROM t")["id"].to_pylist()
        assert sorted(ids) == [1000 * day + i for day in range(3) for i in range(40)]
        # The try that was repeated had committed, and the next one left that as it was; so did `optimize`, since
        # nobody has asked since the partitions were loaded.
        assert Catalog.open(str(place / name)).snapshot.number == 2
        assert verify(table).ok
