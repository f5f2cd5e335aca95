"""Whole loads killed with -9, Spark with them: nothing is lost, nothing half visible, and a retry mends it."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from jobs.bench.processes import DRIVER, JVM, WORKER, descendants, process_kind
from layoutopt.catalog.snapshot import snapshot_numbers
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.cli.app import main
from layoutopt.cli.console import DONE
from layoutopt.inspect.verify import verify
from layoutopt.model.layout import ByVectors, Layout, Scheme
from layoutopt.scan.table import open_table
from tests.catalog.crash import check_nothing_is_left
from tests.conftest import QUICK_JAVA
from tests.spark.killed_load import MORE_WRITTEN, POINTS, SEGMENT_WRITTEN
from tests.spark.tables import plan_of, simple_document

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="processes are found in /proc"),
]

ROOT = Path(__file__).parents[2]
ROWS, SEGMENT_ROWS = 600, 100
PATIENCE = 120.0
NAMES = ["id", "kind", "text", "day"]

Content = dict[int, str]
"""Which version of its rows each day has."""
BEFORE: Content = {0: "old", 1: "old"}


@dataclass(frozen=True)
class Step:
    """A load that is killed: the source it reads, its flags, and what the table has after it."""

    source: str
    flags: tuple[str, ...]
    after: Content


NEW_DAYS = Step("more", (), {0: "old", 1: "old", 2: "old", 3: "old"})
REPLACE = Step("changed", ("--replace",), {0: "old", 1: "new", 2: "new"})


def source_rows(spark: SparkSession, content: Content) -> DataFrame:
    versions = ", ".join(f"{day}, '{version}'" for day, version in content.items())
    days = spark.range(ROWS, numPartitions=1).selectExpr("id AS i", f"explode(map({versions})) AS (day, version)")
    return days.selectExpr(
        "cast(1000 * day + i AS int) AS id", "cast(i % 5 AS int) AS kind", "concat(version, ' row ', i) AS text", "day"
    )


def expected_rows(content: Content) -> list[dict[str, object]]:
    return [
        {"id": 1000 * day + i, "kind": i % 5, "text": f"{content[day]} row {i}", "day": day}
        for day in sorted(content)
        for i in range(ROWS)
    ]


def content_of(root: Path, snapshot: int | None = None) -> Content:
    """Which version each day has; fails where its rows are not all of that version's, each once."""
    table = open_table(str(root), snapshot=snapshot)
    assert verify(table).ok
    (read,) = table.scan(columns=NAMES).reads
    rows = pa.Table.from_batches(list(read.batches()), read.arrow_schema()).sort_by("id").to_pylist()
    content = {row["day"]: row["text"].split()[0] for row in rows}
    assert rows == expected_rows(content)
    return content


@pytest.fixture(scope="module")
def place(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sources, a plan with two layouts that share columns, and a table of two days."""
    place = tmp_path_factory.mktemp("killed")
    sources: dict[str, Content] = {
        "first": BEFORE,
        NEW_DAYS.source: NEW_DAYS.after,
        REPLACE.source: {1: "new", 2: "new"},
    }
    for name, content in sources.items():
        source_rows(spark, content).write.partitionBy("day").parquet(str(place / name))
    document = simple_document(spark.read.parquet(str(place / "first")))
    whole = Layout(tuple(NAMES), (0, 1), ("id", "kind", "day"), ByVectors())
    rest = Layout(("id", "kind", "text"), (2, 3), ("text",), ByVectors())
    plan = plan_of(document, partition_by="day", scheme=Scheme((whole, rest)), segment_rows=SEGMENT_ROWS)
    (place / "plan.json").write_bytes(plan.dumps())
    (place / "spark.toml").write_text(
        f"""
        [spark]
        "spark.master" = "local[2]"
        "spark.driver.memory" = "512m"
        "spark.driver.extraJavaOptions" = "{QUICK_JAVA}"
        "spark.local.dir" = "{place}/local"
        """
    )
    assert main(["load", str(place / "first"), str(place / "made"), "--plan", str(place / "plan.json")]) == DONE
    assert content_of(place / "made") == BEFORE
    return place


class Killed:
    """One load of its own processes on a copy of the table, and the table after it was killed."""

    def __init__(self, place: Path, folder: Path, step: Step) -> None:
        self.place, self.step = place, step
        self.root, self.marks = folder / "table", folder / "marks"
        self.said = ""
        shutil.copytree(place / "made", self.root)
        (self.marks / "written").mkdir(parents=True)

    def words(self) -> list[str]:
        plan = ["--plan", str(self.place / "plan.json")]
        return ["load", str(self.place / self.step.source), str(self.root), *plan, *self.step.flags]

    @contextmanager
    def running(self, point: str) -> Iterator[subprocess.Popen[str]]:
        """The load in processes of its own, until it is done or killed."""
        script = [sys.executable, str(Path(__file__).with_name("killed_load.py")), str(self.marks), point]
        command = [*script, *self.words(), "--conf", str(self.place / "spark.toml")]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
            try:
                yield process
                self.said = process.communicate(timeout=PATIENCE)[1]
            finally:
                if process.poll() is None:  # the test failed
                    for pid in descendants(process.pid):
                        kill(pid)

    def wait_for(self, mark: str, process: subprocess.Popen[str]) -> None:
        end = time.monotonic() + PATIENCE
        while not (self.marks / mark).exists():
            assert process.poll() is None, process.communicate()[1][-3000:]
            assert time.monotonic() < end, f"the load never came to the mark {mark!r}"
            time.sleep(0.02)

    def check(self) -> None:
        """Old or new and whole, then by a retry new, then without what the killed load left."""
        for number in snapshot_numbers(TableFiles(str(self.root))):
            assert content_of(self.root, number) in (BEFORE, self.step.after)
        for _ in range(2):
            assert main(self.words()) == DONE
            assert content_of(self.root) == self.step.after
        check_nothing_is_left(str(self.root))
        assert content_of(self.root) == self.step.after


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def kill_those(process: subprocess.Popen[str], victims: frozenset[str]) -> list[int]:
    """Kill the load's processes of some kinds, its driver last; all of its processes, those that now end too."""
    pids = descendants(process.pid)
    for pid in reversed(pids):
        if process_kind(pid) in victims:
            kill(pid)
    return pids


def wait_until_gone(pids: list[int]) -> None:
    """Wait for processes whose driver or JVM was killed; they end by themselves."""
    end = time.monotonic() + PATIENCE
    while any(process_kind(pid) for pid in pids):
        assert time.monotonic() < end, "a process of a killed load lives on"
        time.sleep(0.05)


EVERYTHING = frozenset([DRIVER, JVM, WORKER])


def kill_at(place: Path, folder: Path, step: Step, point: str, victims: frozenset[str]) -> str:
    """Kill a load at a point and check the table; what it said where its driver lived, and failed."""
    load = Killed(place, folder, step)
    with load.running(point) as process:
        load.wait_for("reached", process)
        pids = kill_those(process, victims)
        (load.marks / "go").touch()
    wait_until_gone(pids)
    said = ""
    if process.returncode == DONE:  # neither check nor commit needs Spark
        assert content_of(load.root) == step.after
    elif DRIVER not in victims:
        assert process.returncode == 1, load.said
        said = load.said
    load.check()
    return said


@pytest.mark.long
def test_a_load_killed_while_its_tasks_write_leaves_the_table_and_a_retry_loads(place: Path, tmp_path: Path) -> None:
    kill_at(place, tmp_path, NEW_DAYS, MORE_WRITTEN, EVERYTHING)


@pytest.mark.long
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("victims", [EVERYTHING, frozenset([DRIVER]), frozenset([JVM])], ids=["all", "driver", "jvm"])
def test_a_load_killed_at_a_step_leaves_the_table(
    point: str, victims: frozenset[str], place: Path, tmp_path: Path
) -> None:
    step = (NEW_DAYS, REPLACE)[(POINTS.index(point) + len(victims)) % 2]
    said = kill_at(place, tmp_path, step, point, victims)
    needs_spark = POINTS.index(point) < POINTS.index("check")
    assert bool(said) == (DRIVER not in victims and needs_spark)
    if said:
        assert said.splitlines()[-1].startswith("layoutopt: ")
        assert "unexpected" not in said
        assert "Traceback" not in said


@pytest.mark.long
def test_killed_workers_are_a_failure_and_leave_the_table(place: Path, tmp_path: Path) -> None:
    said = kill_at(place, tmp_path, REPLACE, SEGMENT_WRITTEN, frozenset([WORKER]))
    assert said.splitlines()[-1].startswith("layoutopt: ")
    assert "Traceback" not in said


@pytest.mark.long
def test_loads_killed_at_any_moment_leave_the_table(place: Path, tmp_path: Path) -> None:
    rng = random.Random(0)
    longest = duration(place, tmp_path / "whole")
    outcomes: Counter[str] = Counter()
    for number in range(20):
        load = Killed(place, tmp_path / str(number), (NEW_DAYS, REPLACE)[number % 2])
        with load.running("") as process:
            load.wait_for("asked", process)
            time.sleep(rng.uniform(0, longest))
            pids = kill_those(process, rng.choice([EVERYTHING, frozenset([DRIVER]), frozenset([JVM])]))
        wait_until_gone(pids)
        newest = snapshot_numbers(TableFiles(str(load.root)))[-1]
        outcomes[f"{process.returncode}, {'committed' if newest else 'not committed'}"] += 1
        load.check()
        shutil.rmtree(tmp_path / str(number))
    print(dict(outcomes))  # noqa: T201 - what the long run reports
    assert sum(count for outcome, count in outcomes.items() if "not committed" in outcome) > 5


def duration(place: Path, folder: Path) -> float:
    """The seconds of a load that nobody kills, from where Spark runs."""
    load = Killed(place, folder, NEW_DAYS)
    with load.running("") as process:
        load.wait_for("asked", process)
        start = time.monotonic()
        assert process.wait(PATIENCE) == DONE
    load.check()
    return time.monotonic() - start
