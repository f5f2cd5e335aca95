"""What runs the tasks of a source: this machine where that is quick and safe, else Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

import layoutopt
from layoutopt.api import execution as choosing
from layoutopt.api.execution import AUTO, LOCAL, SPARK, Execution, use_session
from layoutopt.errors import SettingError
from layoutopt.methods.interface import PlanRequest
from layoutopt.model.layout import Plan
from layoutopt.model.requests import AppendRequest, LoadRequest

ROWS = pa.table({"id": pa.array(range(50), pa.int64()), "kind": ["air", "rail"] * 25})


class StartedError(Exception):
    """Spark would have been started."""


def start() -> NoReturn:
    raise StartedError


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.chdir(tmp_path)
    pq.write_table(ROWS, "rows.parquet")
    pyarrow.orc.write_table(ROWS, "rows.orc")
    Path("log.sql").write_text("SELECT id FROM t WHERE kind = 'air';\n" * 4)
    features = layoutopt.analyze("log.sql", "rows.parquet")
    return layoutopt.plan("rows.parquet", features, method="input-order", row_order="none")


def load(plan: Plan, execution: Execution, source: str = "rows.parquet", parallel: int = 1) -> int:
    return execution.load(LoadRequest(source=source, table_path="table", plan=plan, parallel=parallel)).loads[0].rows


def test_a_small_plain_source_is_loaded_on_this_machine(plan: Plan) -> None:
    assert load(plan, Execution(AUTO, start)) == 50
    report = Execution(AUTO, start).append(AppendRequest(table_path="table", source="rows.parquet"))
    assert report.load is not None


@pytest.mark.parametrize("reason", ["what only Spark reads", "many rows", "several at once", "a reason", "chosen"])
def test_spark_takes_the_others(plan: Plan, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    execution = Execution(SPARK if reason == "chosen" else AUTO, start, "functions" if reason == "a reason" else None)
    if reason == "many rows":
        monkeypatch.setattr(choosing, "MOST_LOCAL_ROWS", 49)
    source = "orc:rows.orc" if reason == "what only Spark reads" else "rows.parquet"
    with pytest.raises(StartedError):
        load(plan, execution, source, 2 if reason == "several at once" else 1)


def test_this_machine_takes_all_where_it_is_chosen_or_alone(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "MOST_LOCAL_ROWS", 49)
    assert load(plan, Execution(LOCAL, start)) == 50
    with pytest.raises(SettingError, match="can't be read without Spark"):
        Execution(LOCAL, start).load(LoadRequest(source="orc:rows.orc", table_path="other", plan=plan))
    monkeypatch.setattr(choosing, "has_pyspark", lambda: False)
    execution = Execution(AUTO, start, "a Spark of its own")
    assert execution.load(LoadRequest(source="rows.parquet", table_path="other", plan=plan)).loads[0].rows == 50


def test_what_spark_cannot_read_stays_here(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "MOST_LOCAL_ROWS", 49)
    pq.write_table(ROWS, "rows.parquet", compression="brotli")
    assert load(plan, Execution(AUTO, start)) == 50
    with pytest.raises(SettingError, match="which Spark can't read; give --executor local"):
        load(plan, Execution(SPARK, start))


def test_a_plan_needs_spark_for_a_reason(plan: Plan) -> None:
    document = layoutopt.analyze("log.sql", "rows.parquet").document
    request = PlanRequest("input-order", row_order=("none",))
    assert Execution(AUTO, start).plan("rows.parquet", document, request) == plan
    for execution in (Execution(SPARK, start), Execution(AUTO, start, "functions")):
        with pytest.raises(StartedError):
            execution.plan("rows.parquet", document, request)
    with pytest.raises(SettingError, match="the executor is local"):
        Execution(LOCAL, start).plan("orc:rows.orc", document, request)


class ConnectSession:
    """A session of Spark Connect to code that looks at classes: it has no Java."""

    __module__ = "pyspark.sql.connect.session"


def test_sessions_of_spark_connect_are_refused(plan: Plan) -> None:
    pytest.importorskip("pyspark")
    from layoutopt.spark import enable

    session: Any = ConnectSession()
    for refused in (
        lambda: layoutopt.load("rows.parquet", "table", plan, executor=session),
        lambda: layoutopt.append("table", "rows.parquet", executor=session),
        lambda: use_session(session),  # as jobs do
        lambda: enable(session),
    ):
        with pytest.raises(SettingError, match=r"^Spark Connect sessions .*; use a classic session .*--executor local"):
            refused()
    assert not Path("table").exists()
