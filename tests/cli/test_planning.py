"""Planning on the command line: Spark is started where it is needed, and where somebody wants it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.cli import inputs as opening
from layoutopt.cli.app import main
from layoutopt.cli.console import BAD_USAGE, DONE, Session
from layoutopt.cli.inputs import make_execution, plan_new_table
from layoutopt.config.documents import read_plan
from layoutopt.model.feature import SessionSettings
from layoutopt.model.layout import Plan
from layoutopt.scan.table import open_table
from tests.effort import PROCESSES

ROOT = Path(__file__).parents[2]
SPARK = ("SPARK_ENV_LOADED", "PYSPARK_GATEWAY_PORT", "SPARK_HOME", "SPARK_CONF_DIR")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Session]:
    """The sessions that were started, as stand-ins."""
    asked: list[Session] = []

    def start(session: Session) -> object:
        asked.append(session)
        return object()

    monkeypatch.setattr(opening, "start_spark", start)
    for name in (*SPARK, "HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    return asked


def test_files_of_this_machine_are_planned_without_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], started: list[Session]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(PROCESSES)
    source = str(ROOT / "data" / "tpch_sample.parquet")
    asked = ["--schema", source, "--num-features", "4"]
    assert main(["analyze", str(ROOT / "data" / "tpch_queries.sql"), *asked]) == DONE
    capsys.readouterr()
    words = ["--partition-by", "o_year", "--method", "sop", "--guides", "features", "--block-rows", "500", "--json"]
    assert main(["plan", source, *words]) == DONE
    planned = json.loads(capsys.readouterr().out)
    assert 0 < planned["predicted"]["bytes_fraction"] < 1
    assert started == []


def test_a_session_is_started_once_and_when_it_is_asked_for(started: list[Session]) -> None:
    session = Session(None, json=False, progress=False)
    execution = make_execution(session, "auto")
    assert started == []
    assert execution.start() is execution.start()
    assert started == [session]


@pytest.mark.parametrize("wanted", [*SPARK, "properties", "functions"])
def test_a_session_is_there_where_spark_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[Session], wanted: str
) -> None:
    session = Session(None, json=False, progress=False)
    if wanted in SPARK:
        monkeypatch.setenv(wanted, "1")
    else:
        given: Callable[[Session], object] = lambda session: {"spark.hadoop.fs.defaultFS": "hdfs://x"}  # noqa: E731
        monkeypatch.setattr(Session, "spark_properties" if wanted == "properties" else "udfs", given)
    assert make_execution(session, "auto").reason is not None
    assert started == []


def test_properties_that_change_no_plan_start_nothing(started: list[Session], monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"spark.driver.memory": "4g", "spark.sql.session.timeZone": "Asia/Tokyo", "spark.sql.ansi.enabled": "true"}
    monkeypatch.setattr(Session, "spark_properties", lambda session: given)
    session = Session(None, json=False, progress=False)
    assert make_execution(session, "auto", SessionSettings(time_zone="Asia/Tokyo")).reason is None
    assert make_execution(session, "auto").reason == "the configuration file sets spark.sql.session.timeZone"
    assert started == []


class TestPlanFirst:
    """`load --plan-first`: the first load of a table plans it."""

    @pytest.fixture
    def here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
        """A folder with a source of one day, features and settings."""
        monkeypatch.chdir(tmp_path)
        (tmp_path / "source").mkdir()
        write_day(1)
        (tmp_path / "log.sql").write_text("SELECT n FROM t WHERE n < 50;\nSELECT n FROM t WHERE n > 900;\n" * 4)
        (tmp_path / "layoutopt.toml").write_text(
            '[plan]\nmethod = "sop"\npartition-by = "day"\nblock-rows = 100\n[load]\nexecutor = "local"\n'
        )
        assert main(["analyze", "log.sql", "--schema", "source"]) == DONE
        capsys.readouterr()
        return tmp_path

    def test_the_first_load_plans_and_later_ones_keep_the_plan(
        self, here: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(words()) == DONE
        first = json.loads(capsys.readouterr().out)
        assert [key for load in first["loads"] for key in load["partitions"]] == ["1"]
        (here / "features.json").unlink()
        write_day(2)
        assert main(words()) == DONE
        second = json.loads(capsys.readouterr().out)
        assert (second["plan"], second["already"]) == (first["plan"], ["1"])
        assert [key for load in second["loads"] for key in load["partitions"]] == ["2"]

    def test_a_table_is_as_one_by_plan_and_load(self, here: Path) -> None:
        assert main(["plan", path("source"), "--conf", "layoutopt.toml"]) == DONE
        assert main(words()) == DONE
        table = open_table("table")
        assert {*table.catalog.plans} == {read_plan(here / "plan.json").digest}
        assert table.sql("SELECT sum(n) AS s FROM t").to_pylist() == [{"s": 499_500}]

    @pytest.mark.long
    def test_a_load_that_stopped_plans_again(self, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as stopping:
            stopping.setattr("layoutopt.loading.load.load", fail)
            assert main(words()) != DONE
        assert main(words()) == DONE

    @pytest.mark.long
    def test_a_table_that_another_load_began_meanwhile_has_one_plan(
        self, here: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def plan_late(*arguments: Any) -> Plan:
            made = plan_new_table(*arguments)
            assert main(["plan", path("source"), "--conf", "layoutopt.toml", "--block-rows", "50"]) == DONE
            assert main(["load", path("source"), path("table"), "--partition", "day=1", "--executor", "local"]) == DONE
            return made

        monkeypatch.setattr("layoutopt.cli.layouts.plan_new_table", plan_late)
        write_day(2)
        assert main(words()) == DONE
        table = open_table("table")
        assert {*table.catalog.plans} == {read_plan(here / "plan.json").digest}
        assert {entry.key for entry in table.catalog.partitions} == {"1", "2"}

    def test_a_failed_plan_is_an_event(self, here: Path) -> None:
        assert main([*words(), "--log-json", "events.jsonl", "--plan-first", "log.sql"]) == BAD_USAGE
        last = json.loads((here / "events.jsonl").read_text().splitlines()[-1])
        assert (last["event"], last["outcome"], last["exit"]) == ("load", "failed", BAD_USAGE)

    @pytest.mark.parametrize(
        ("flags", "sentence"),
        [
            (("--partition", "day=x"), "'x'"),
            (("--partition", "day=1", "--from", "1"), "leave one out"),
            (("--publish", "nothing"), "'nothing'"),
            (("--encrypt", "env:NO_KEY"), "NO_KEY"),
            (("--plan-first", "log.sql"), "is not a features file"),
            (("--plan", "plan.json"), "--plan-first 'features.json' are both given"),
            (("--conf", "other.toml", "--partition", "day=1"), "set partition-by in [plan]"),
        ],
    )
    def test_mistakes_are_told_before_planning(
        self,
        here: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        flags: tuple[str, ...],
        sentence: str,
    ) -> None:
        monkeypatch.setattr("layoutopt.spark.planning.indexes.plan_with_indexes", fail)
        (here / "other.toml").write_text('[load]\nexecutor = "local"\n')
        assert main([*words(), *flags]) == BAD_USAGE
        assert sentence in capsys.readouterr().err

    def test_a_folder_with_other_files_is_refused_before_planning(
        self, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("layoutopt.spark.planning.indexes.plan_with_indexes", fail)
        assert main(words("source")) == BAD_USAGE
        assert "holds other files" in capsys.readouterr().err


def path(name: str) -> str:
    """The absolute path: processes that earlier tests started are in other folders."""
    return str(Path(name).absolute())


def words(table: str = "table") -> list[str]:
    """The load of the source into a table, which plans a new one."""
    conf = ["--conf", "layoutopt.toml", "--json"]
    return ["load", path("source"), path(table), "--plan-first", "features.json", *conf]


def write_day(day: int) -> None:
    table = pa.table({"day": pa.array([day] * 1000, pa.int32()), "n": [i * 37 % 1000 for i in range(1000)]})
    pq.write_table(table, f"source/{day}.parquet")


def fail(*_: object) -> None:
    raise OSError("the machine stopped")
