"""A cluster that all of these tests share, the Pythons of its workers, and a session on it.

Only ``make test-cluster`` runs them: see the marker ``cluster``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import layoutopt
from layoutopt.spark.core.workers import LIBRARIES
from tests.cluster.events import ROWS_A_DAY, make_rows, write_source
from tests.cluster.spark_cluster import PROPERTIES, ROOT, Cluster, link_package, make_worker_python
from tests.cluster.traps import Traps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the driver and all workers see, with a source of events and a log of queries."""
    place = tmp_path_factory.mktemp("cluster")
    write_source(place)
    return place


@pytest.fixture(scope="session")
def made(place: Path) -> Path:
    """A table of the events, made on this machine by the plan ``made.json``, and ``later`` rows of two days."""
    document = layoutopt.analyze(place / "log.sql", place / "source", table="events", threshold=1)
    plan = layoutopt.plan(
        place / "source", document, executor="local", method="sop", block_rows=100, partition_by="day"
    )
    plan.save(place / "made.json")
    layoutopt.load(place / "source", place / "made", plan, executor="local")
    (place / "later").mkdir()
    for day in range(2):
        pq.write_table(make_rows(day, ROWS_A_DAY, 300), place / "later" / f"{day}.parquet")
    return place / "made"


@pytest.fixture(scope="session")
def libraries_python(place: Path) -> Path:
    """The Python of workers that have the libraries which the guide names, but not layoutopt."""
    return make_worker_python(place / "libraries", LIBRARIES)


@pytest.fixture(scope="session")
def traps(place: Path) -> Traps:
    """Traps of workers: their Python is ``installed_python``."""
    return Traps(place / "traps")


@pytest.fixture(scope="session")
def installed_python(place: Path, traps: Traps) -> Path:
    """The Python of workers that have layoutopt, too, and the driver of a store."""
    python = make_worker_python(place / "installed", (*LIBRARIES, "s3fs"))
    link_package(python, ROOT / "layoutopt")
    traps.install(python)
    return python


@pytest.fixture(scope="session")
def cluster(place: Path, installed_python: Path) -> Iterator[Cluster]:
    """A master and two workers."""
    cluster = Cluster(place / "spark", installed_python)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="session")
def shared_session(cluster: Cluster) -> Iterator[SparkSession]:
    """A session of this process on the cluster, which takes half of its cores."""
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", str(cluster.python))
        session = SparkSession.builder.master(cluster.master).config(map=dict(PROPERTIES)).getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()


@pytest.fixture
def session(shared_session: SparkSession, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """The session, with workers that have layoutopt."""
    assert os.environ["PYSPARK_PYTHON"] == str(cluster.python)
    monkeypatch.setattr(shared_session.sparkContext, "pythonExec", str(cluster.python))
    return shared_session
