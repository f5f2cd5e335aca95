"""Spools: where they are, what they show, and that nothing of them is left."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.vacuum import vacuum
from layoutopt.encryption.table_keys import TableKeys
from layoutopt.errors import TableError
from layoutopt.scan.table import open_table
from layoutopt.sources.source import Source
from layoutopt.spark.loading import load as spark_load
from layoutopt.spark.loading import spool as module
from layoutopt.spark.loading.load import load
from layoutopt.spark.loading.spool import spool
from tests.spark.tables import plan_of, simple_document, simple_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("uncompiled")]


def raise_disk_full(point: str) -> None:
    raise OSError(28, os.strerror(28))


@pytest.mark.parametrize("here", [True, False])
def test_nothing_is_left_also_of_a_load_that_fails(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: bool
) -> None:
    rows, table, temporary = simple_rows(spark), tmp_path / "table", tmp_path / "tmp"
    plan = plan_of(simple_document(rows), partition_by="day")
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(module, "_runs_here", lambda session: here)
    places: list[str] = []

    def note(*arguments: Any) -> Source:
        source = spool(*arguments)
        splits: Sequence[Any] = [split for split, _ in source.splits]
        places.extend(split.spool.root for split in splits)
        return source

    monkeypatch.setattr(spark_load, "spool", note)
    load(spark, rows, table, plan)
    with pytest.raises(TableError, match="No space left"):
        load(spark, rows, table, plan, in_task=raise_disk_full)
    assert open_table(str(table)).rows == 400
    parent = str(temporary) if here else str(table / "_layoutopt" / "spool-")
    assert len(set(places)) == 2
    assert all(place.startswith(parent) for place in places)
    assert not any(Path(place).exists() for place in places)
    assert not list(temporary.iterdir())


def test_vacuum_removes_what_a_killed_driver_left(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, table = simple_rows(spark), tmp_path / "table"
    plan = plan_of(simple_document(rows), partition_by="day")
    load(spark, rows, table, plan)
    monkeypatch.setattr(module, "_runs_here", lambda session: False)
    spool(rows, plan, "the rows", TableFiles(str(table)))
    assert list((table / "_layoutopt").glob("spool-*/.tmp-*.parquet"))
    vacuum(TableFiles(str(table)), 1, timedelta(0))
    assert not list((table / "_layoutopt").glob("spool-*/.tmp-*"))


def test_the_spool_of_an_encrypted_table_is_encrypted(spark: SparkSession, tmp_path: Path) -> None:
    rows = simple_rows(spark)
    plan = plan_of(simple_document(rows), partition_by="day")
    source = spool(rows, plan, "the rows", TableFiles(str(tmp_path), lent=(TableKeys(bytes(32)),)))
    splits: Sequence[Any] = [split for split, _ in source.splits]
    files = [path for split in splits for path in Path(split.spool.root).iterdir()]
    for file in files:
        assert b"row 1" not in file.read_bytes()
        with pytest.raises(OSError, match="encrypt"):
            pq.read_table(file)
    assert sum(rows.num_rows for split in splits for rows, _ in split.read_rows(source.schema, ["id"])) == 400
    source.close()
    assert files
    assert not any(file.exists() for file in files)
