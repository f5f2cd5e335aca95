"""Appends without Spark leave what appends by Spark do, and each knows what the other has done."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest

from layoutopt.catalog.table import Catalog
from layoutopt.cli.app import main
from layoutopt.cli.console import DONE
from layoutopt.config.settings import AppendSettings
from layoutopt.inspect.verify import verify
from layoutopt.local.append import append_few_rows, read_few_rows
from layoutopt.scan.table import open_table
from layoutopt.spark.changes.append import append_rows
from layoutopt.spark.core.source import conform_columns, open_source
from layoutopt.spark.loading.source_files import source_partitions
from tests.spark.changes.living import COLUMNS, SCHEMES, Living

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def no_join(*_: object) -> None:
    raise AssertionError("these are few rows")


def test_both_read_the_same_of_a_source_and_write_the_same(spark: SparkSession, tmp_path: Path) -> None:
    living = Living(spark, tmp_path)
    living.begin(SCHEMES["gsop-r"])
    other = str(tmp_path / "other")
    shutil.copytree(living.path, other)
    rows = living.new_rows(50)
    source = str(tmp_path / "source")
    spark.createDataFrame(rows, COLUMNS).coalesce(1).write.parquet(source)
    schema = open_table(living.path).schema
    seen = source_partitions(conform_columns(open_source(spark, source), schema), source, "day")
    assert read_few_rows(source, schema, "day").partitions == seen

    by_spark = append_rows(spark, AppendSettings(table_path=living.path, source=source))
    without = append_few_rows(AppendSettings(table_path=other, source=source), no_join)
    assert without.batch == by_spark.batch
    assert by_spark.load is not None
    assert without.load is not None
    told = ("partitions", "rows", "segments", "blocks", "files", "notes")
    assert [getattr(by_spark.load, name) for name in told] == [getattr(without.load, name) for name in told]
    tables = [Catalog.open(path) for path in (living.path, other)]
    for entry, same in zip(*(table.partitions for table in tables), strict=True):
        assert (entry.key, entry.value, entry.rows, entry.source) == (same.key, same.value, same.rows, same.source)
        assert dict(entry.checksums) == dict(same.checksums)
        assert dict(entry.bounds) == dict(same.bounds)
        blocks, others = tables[0].blocks(entry), tables[1].blocks(same)
        for name in ("words", "rows", "layout", "segment", "part"):
            assert np.array_equal(getattr(blocks, name), getattr(others, name)), name
        for number in range(blocks.n):
            groups = [
                pq.ParquetFile(f"{root}/{of.files[of.file[number]]}").read_row_group(int(of.row_group[number]))
                for root, of in ((living.path, blocks), (other, others))
            ]
            assert str(groups[0].drop_columns("_block")) == str(groups[1].drop_columns("_block"))
    # each finds the other's batch
    assert append_few_rows(AppendSettings(table_path=living.path, source=source), no_join).load is None
    assert append_rows(spark, AppendSettings(table_path=other, source=source)).load is None
    living.model |= {row[0]: row for row in rows}
    living.check()
    assert verify(open_table(other)).ok


def test_the_command_line_starts_spark_only_where_it_has_to(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    living = Living(spark, tmp_path)
    living.begin(None)
    started: list[str] = []

    def start(*arguments: object, **named: object) -> SparkSession:
        started.append("spark")
        return spark

    monkeypatch.setattr("layoutopt.cli.changes.start_spark", start)
    rows = living.new_rows(10)
    assert main(["append", living.path, living.source(rows)]) == DONE
    assert not started
    more = living.new_rows(10)
    spaced = tmp_path / "by Spark"
    shutil.copytree(living.source(more), spaced)
    assert main(["append", living.path, str(spaced)]) == DONE
    assert started == ["spark"]
    capsys.readouterr()
    living.model |= {row[0]: row for row in [*rows, *more]}
    living.check()
