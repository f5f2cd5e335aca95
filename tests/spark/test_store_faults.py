"""What a store refuses to Spark's tasks reaches the driver as such."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from layoutopt.errors import StoreError, decode_error
from layoutopt.scan.table import open_table
from layoutopt.spark.session.readers import read_by_tasks
from tests.catalog.storage.faulty_store import KEYS, LEFT, Fault, FaultyStore, store, table
from tests.scan.tables import expected, same

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["store", "table"]

SQL = "SELECT id, kind FROM t WHERE kind = 'air'"


@pytest.mark.spark
def test_a_task_is_refused(
    spark: SparkSession, store: FaultyStore, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*KEYS, "AWS_ENDPOINT_URL", "AWS_MAX_ATTEMPTS"):
        monkeypatch.setitem(spark.sparkContext.environment, name, os.environ[name])
    (read,) = open_table(table).scan(SQL).reads
    rows = read_by_tasks(spark, read, read.segments, "t").where("kind = 'air'")
    with store.fail(Fault("denied", r"GET \S+/data/1995/")), pytest.raises(Exception, match="AccessDenied") as caught:
        rows.collect()
    error = decode_error(str(caught.value))
    assert isinstance(error, StoreError)
    assert (error.status, error.code) == (403, "AccessDenied")
    assert error.path.startswith(f"{table}/data/1995/")
    assert "damaged" not in str(error)
    with store.fail(Fault("slow-down", r"GET \S+/data/1995/", 2)):
        assert same([row.asDict() for row in rows.select("id", "kind").collect()], expected(SQL, LEFT))
        assert store.hits == 2
