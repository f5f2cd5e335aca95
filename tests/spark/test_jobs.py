"""The jobs as users start them: in processes of their own, on separate executors, and with tasks that are retried."""

from __future__ import annotations

import errno
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pyspark
import pytest

from layoutopt.catalog.table import Catalog
from layoutopt.cli.console import Session
from layoutopt.cli.jobs import Tell, run_job
from layoutopt.config.settings import LoadSettings, VacuumSettings
from layoutopt.model.layout import Plan
from layoutopt.scan.table import open_table
from tests.conftest import QUICK_JAVA
from tests.effort import long_too
from tests.spark.tables import plan_of, simple_document, simple_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent

Here = Callable[..., tuple[int, str]]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run with the package importable, in this process too and in the workers that Spark starts."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(SPARK_HOME),
        "JDK_JAVA_OPTIONS": QUICK_JAVA,  # for every Java that is started, executors too
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SCALA_VERSION": "2.13",
    }
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def submit(master: str, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Submit a program; what it says comes out of ``spark-submit`` on stdout."""
    settings = ["--conf", "spark.ui.enabled=false", "--conf", "spark.sql.session.timeZone=UTC"]
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", master, "--driver-memory", "1g", *settings]
    return run(*command, program, *arguments)


@pytest.fixture
def here(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """Runs a job's file in this process, in the tests' own session: its exit code, and all that it says."""

    monkeypatch.setattr(spark, "stop", lambda: None)
    monkeypatch.setattr("layoutopt.cli.jobs.start_spark", lambda *_, **__: spark)

    def run_here(job: str, *arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", [f"{job}.py", *arguments])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(ROOT / "jobs" / f"{job}.py"), run_name="__main__")
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out + said.err

    return run_here


@pytest.fixture(scope="module")
def place(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a source, a features file and a configuration."""
    place = tmp_path_factory.mktemp("jobs")
    source = simple_rows(spark)
    source.write.parquet(str(place / "source"))
    (place / "features.json").write_bytes(simple_document(source).dumps())
    (place / "made.json").write_bytes(plan_of(simple_document(source), partition_by="day").dumps())
    (place / "t.toml").write_text(
        f"""
        [plan]
        source = "{place}/source"
        features = "{place}/features.json"
        partition-by = "day"
        method = "gsop"
        block-rows = 20
        output = "{place}/plan.json"
        [load]
        source = "{place}/source"
        table = "{place}/table"
        plan = "{place}/made.json"
        """
    )
    return place


# Tasks of the driver's own process are retried, too, if asked for: an executor takes half a minute more.
@pytest.mark.long
@pytest.mark.parametrize("master", ["local[2,2]", *long_too("local-cluster[1,1,1024]")])
def test_a_load_whose_tasks_are_retried_leaves_no_duplicate(place: Path, tmp_path: Path, master: str) -> None:
    marks, table, job = tmp_path / "marks", str(tmp_path / "table"), str(ROOT / "jobs" / "load.py")
    marks.mkdir()
    retrying = str(Path(__file__).with_name("retrying_load.py"))
    done = submit(master, retrying, job, str(marks), "--conf", f"{place}/t.toml", "--table", table)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "loaded 400 rows" in done.stdout
    assert len(list(marks.iterdir())) == 2
    assert [entry.key for entry in Catalog.open(table).snapshot.partitions] == ["0", "1", "2", "3"]
    named = {file for _, blocks in Catalog.open(table).block_tables() for file in blocks.files}
    ids = [i for file in named for i in pq.read_table(Path(table) / file)["id"].to_pylist()]
    assert sorted(ids) == list(range(400))
    # What the failed attempts wrote is garbage that nothing names, each under a name of its own.
    assert len(list(Path(table, "data").rglob("*.parquet"))) == 6


@pytest.mark.long
def test_a_table_is_verified_on_executors_of_their_own(place: Path) -> None:
    table = f"{place}/verified"
    flags = ["--conf", f"{place}/t.toml", "--table", table, "--partition", "day=1"]
    assert submit("local[1]", str(ROOT / "jobs" / "load.py"), *flags).returncode == 0
    done = submit("local-cluster[1,1,1024]", str(ROOT / "jobs" / "verify.py"), "--table", table)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "100 rows read; no problems" in done.stdout


def test_a_job_ends_with_one_sentence_and_exit_code_2_on_bad_input(here: Here, place: Path) -> None:
    code, said = here("load", "--conf", f"{place}/t.toml", "--source", f"{place}/nowhere")
    assert code == 2
    assert "nowhere' does not exist" in said
    assert "Traceback" not in said


def test_a_job_on_a_full_disk_ends_with_one_sentence_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def body(spark: SparkSession, settings: VacuumSettings, session: Session, tell: Tell) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/table/0.json")

    monkeypatch.setattr("layoutopt.cli.jobs.start_spark", lambda *_, **__: SimpleNamespace(stop=lambda: None))
    assert run_job("job", VacuumSettings, body, ["--table", "t"]) == 1
    said = capsys.readouterr().err
    assert said == "layoutopt: /data/table/0.json: No space left on device; check the path and the disk\n"


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("target", ["-", None])
def test_with_events_on_stderr_all_that_a_job_says_is_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], target: str | None, hidden: bool
) -> None:
    def body(spark: SparkSession, settings: LoadSettings, session: Session, tell: Tell) -> None:
        tell("half done")
        try:
            raise KeyboardInterrupt("nothing was committed")
        finally:
            if hidden:
                raise RuntimeError("Spark's client could not clean up")

    monkeypatch.setattr("layoutopt.cli.jobs.start_spark", lambda *_, **__: SimpleNamespace(stop=lambda: None))
    words = ["--source", "s", "--table", "t", *(["--log-json", target] if target else [])]
    assert run_job("job", LoadSettings, body, words) == 130
    lines = capsys.readouterr().err.splitlines()
    said = [json.loads(line)["sentence"] for line in lines] if target else lines
    assert said == ["half done", f"{'' if target else 'layoutopt: '}interrupted: nothing was committed"]


def test_featurising_and_planning_by_its_pairs_is_planning(here: Here, place: Path) -> None:
    code, said = here("plan", "--conf", f"{place}/t.toml")
    assert code == 0, said
    assert Plan.loads((place / "plan.json").read_bytes()).block_rows == 20
    code, said = here("featurize", "--conf", f"{place}/t.toml", "--output", f"{place}/pairs.parquet")
    assert code == 0, said
    assert sum(pq.read_table(place / "pairs.parquet")["count"].to_pylist()) == 300, "three of four days are sampled"
    words = ["--pairs", f"{place}/pairs.parquet", "--output", f"{place}/by-pairs.json"]
    code, said = here("plan", "--conf", f"{place}/t.toml", *words)
    assert code == 0, said
    assert "taking the pairs that were counted" in said
    assert (place / "by-pairs.json").read_bytes() == (place / "plan.json").read_bytes()


def test_the_first_load_of_a_table_plans_it(here: Here, place: Path, tmp_path: Path) -> None:
    conf = tmp_path / "first.toml"
    conf.write_text((place / "t.toml").read_text().replace(f'plan = "{place}/made.json"', ""))
    words = ["--plan-first", f"{place}/features.json", "--table", f"{tmp_path}/table"]
    code, said = here("load", "--conf", str(conf), *words)
    assert code == 0, said
    (plan,) = open_table(f"{tmp_path}/table").catalog.plans.values()
    assert (plan.method, plan.partition_by, plan.block_rows) == ("gsop", "day", 20)
    assert f"planned gsop: plan {plan.digest}" in said
    assert "loaded 400 rows" in said
