"""Planning on the command line: Spark is started where it is needed, and where somebody wants it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from layoutopt.cli import inputs as opening
from layoutopt.cli.app import main
from layoutopt.cli.console import DONE, Session
from layoutopt.cli.inputs import spark_if_needed
from layoutopt.model.feature import SessionSettings
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
    spark: Any = spark_if_needed(session, SessionSettings())
    assert started == []
    assert spark() is spark()
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
    assert not callable(spark_if_needed(session, SessionSettings()))
    assert started == [session]


def test_properties_that_change_no_plan_start_nothing(started: list[Session], monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"spark.driver.memory": "4g", "spark.sql.session.timeZone": "Asia/Tokyo", "spark.sql.ansi.enabled": "true"}
    monkeypatch.setattr(Session, "spark_properties", lambda session: given)
    session = Session(None, json=False, progress=False)
    assert callable(spark_if_needed(session, SessionSettings(time_zone="Asia/Tokyo")))
    assert started == []
    assert not callable(spark_if_needed(session, SessionSettings()))
