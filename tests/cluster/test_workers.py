"""What workers have to have, and one sentence for each thing that they lack."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import layoutopt
from layoutopt.errors import SettingError
from layoutopt.spark.core.workers import run_in_workers
from tests.cluster.spark_cluster import Cluster, link_package, make_worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.cluster, pytest.mark.spark]


def name_pythons(session: SparkSession) -> list[str]:
    """Return the Pythons of two tasks; their function is sent as code, since workers lack this module."""
    return run_in_workers(session, range(2), lambda number: sys.executable)


def refuse(session: SparkSession) -> str:
    """Return the sentence that a job ends with."""
    with pytest.raises(SettingError) as caught:
        name_pythons(session)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_tasks_run_in_the_python_of_the_workers(session: SparkSession, cluster: Cluster) -> None:
    assert name_pythons(session) == [str(cluster.python)] * 2


def test_workers_without_layoutopt(
    session: SparkSession, libraries_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session.sparkContext, "pythonExec", str(libraries_python))
    said = refuse(session)
    assert f"workers run a Python without layoutopt {layoutopt.__version__} ({libraries_python});" in said


def test_workers_without_python(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.sparkContext, "pythonExec", "/nowhere/python")
    assert "workers have no Python '/nowhere/python';" in refuse(session)


def test_workers_of_another_minor_version(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.sparkContext, "pythonVer", "3.9")
    assert "and the driver 3.9;" in refuse(session)


@pytest.mark.parametrize(("has", "lacks"), [([], "pyarrow"), (["pyarrow", "numpy"], "sqlglot")])
def test_workers_without_a_library(
    session: SparkSession, tmp_path: Path, has: list[str], lacks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = make_worker_python(tmp_path / "some", has)
    link_package(python, Path(layoutopt.__file__).parent)
    monkeypatch.setattr(session.sparkContext, "pythonExec", str(python))
    assert f"Spark's workers run a Python without {lacks}" in refuse(session)
