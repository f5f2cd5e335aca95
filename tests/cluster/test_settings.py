"""Loads under settings of Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import layoutopt
from layoutopt.inspect.verify import verify
from tests.cluster.events import DAYS, ROWS_A_DAY, UNSEEN, make_rows, query_rows
from tests.cluster.spark_cluster import Cluster, submit

pytestmark = [pytest.mark.cluster, pytest.mark.spark]

ALL = DAYS * ROWS_A_DAY


def load(cluster: Cluster, place: Path, table: Path, **options: Any) -> None:
    """Load the source by the job, and check that the table is whole and answers as one machine does."""
    words = ["--source", place / "source", "--table", table, "--plan", place / "made.json"]
    assert f"loaded {ALL} rows" in submit(cluster, "load", *words, **options)
    opened = layoutopt.open_table(str(table))
    assert verify(opened).ok
    assert opened.rows == ALL
    rows = pa.concat_tables([make_rows(day) for day in range(DAYS)])
    assert opened.sql(UNSEEN[2]).to_pylist() == query_rows(rows, UNSEEN[2]).to_pylist()


def test_a_python_worker_a_task(cluster: Cluster, place: Path, made: Path, tmp_path: Path) -> None:
    load(cluster, place, tmp_path / "table", conf={"spark.python.worker.reuse": "false"})
