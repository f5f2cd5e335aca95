"""The DAG file's variables, without Airflow: a stub in its place takes the DAGs and does nothing with them."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

DAGS = Path(__file__).parent.parent.parent / "jobs" / "airflow_dag.py"


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    def decorator(**_: object) -> Any:
        return lambda function: function

    sdk, exceptions = ModuleType("airflow.sdk"), ModuleType("airflow.sdk.exceptions")
    vars(sdk).update(
        CronDataIntervalTimetable=lambda *_, **__: None,
        dag=decorator,
        get_current_context=dict,
        task=lambda body: lambda: None,
    )
    vars(exceptions)["AirflowFailException"] = type("AirflowFailException", (Exception,), {})
    for module in (ModuleType("airflow"), sdk, exceptions):
        monkeypatch.setitem(sys.modules, module.__name__, module)


def test_variables_have_their_defaults(airflow: None) -> None:
    found = runpy.run_path(str(DAGS))
    assert (found["START"].isoformat(), found["PARALLEL"]) == ("2026-01-01T00:00:00+00:00", 2)
    assert (found["RETRIES"], found["WAIT"], found["SUBMIT"]) == (3, 300, ["spark-submit"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LAYOUTOPT_START", "yesterday"), ("LAYOUTOPT_PARALLEL", "two"), ("LAYOUTOPT_RETRIES", "3"),
        ("LAYOUTOPT_RETRIES", "3,x"), ("LAYOUTOPT_SUBMIT", "spark-submit 'a"), ("LAYOUTOPT_COMMAND", '"'),
    ],
)  # fmt: skip
def test_a_bad_variable_is_named(airflow: None, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=name) as caught:
        runpy.run_path(str(DAGS))
    assert repr(value) in str(caught.value)
