"""A worker is killed in the middle of each verb: the verb ends as if nothing had happened, and the table is whole."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import layoutopt
from layoutopt.inspect.verify import verify
from layoutopt.spark.loading.verify import spark_file_checker
from tests.cluster.events import DAYS, ROWS_A_DAY
from tests.cluster.spark_cluster import Cluster
from tests.cluster.traps import BEGINS, WRITES, Traps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.cluster, pytest.mark.spark]

Verb = Callable[["SparkSession", Path, Path], Any]
ALL = DAYS * ROWS_A_DAY


def load(session: SparkSession, place: Path, table: Path) -> Any:
    shutil.rmtree(table)
    return layoutopt.load(place / "source", table, place / "made.json", executor=session)


def append(session: SparkSession, place: Path, table: Path) -> Any:
    return layoutopt.append(table, place / "later", batch_id="later", executor=session)


def delete(session: SparkSession, place: Path, table: Path) -> Any:
    return layoutopt.delete(table, where="code < 20", executor=session)


def optimize(session: SparkSession, place: Path, table: Path) -> Any:
    layoutopt.append(table, place / "later", batch_id="later", keep_apart=True, executor="local")
    return layoutopt.optimize(table, partition=("0", "1"), executor=session)


def check(session: SparkSession, place: Path, table: Path) -> Any:
    assert verify(layoutopt.open_table(str(table)), checker=spark_file_checker(session)).ok


@pytest.mark.parametrize(
    ("verb", "point", "rows"),
    [
        (load, WRITES, ALL),
        (append, WRITES, ALL + 600),
        (delete, BEGINS, ALL // 2),
        (optimize, WRITES, ALL + 600),
        (check, BEGINS, ALL),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_killed_worker(
    session: SparkSession, cluster: Cluster, traps: Traps, place: Path, made: Path, tmp_path: Path,
    verb: Verb, point: str, rows: int,
) -> None:  # fmt: skip
    table = tmp_path / "table"
    shutil.copytree(made, table)
    with traps.killing(cluster, point) as killed:
        verb(session, place, table)
    assert len(killed) == 1
    opened = layoutopt.open_table(str(table))
    assert verify(opened).ok
    assert opened.rows == rows
