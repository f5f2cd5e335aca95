"""Falsifiable expressions against Spark: generated conditions on functions, all asked in one job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest

from layoutopt.model.predicates import to_sql
from layoutopt.skipping.cannot_match import cannot_match
from layoutopt.sql.types.rules import normal_type
from tests.effort import examples
from tests.skipping.falsifiable import SCHEMA, conditions, rows, sorted_blocks, statistics_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def check(spark: SparkSession, folder: Path, count: int, seed: int) -> float:
    """Ask so many conditions of generated rows; returns the share of blocks without a match that are skipped."""
    table = rows(300, seed)
    asked = list(conditions(count, seed))
    pq.write_table(table, folder / f"{seed}.parquet")
    frame = spark.read.parquet(str(folder / f"{seed}.parquet"))
    assert [normal_type(kind) for _, kind in frame.dtypes] == [column.type for column in SCHEMA.columns]
    tests = [f"coalesce({to_sql(node)}, false) AS c{i}" for i, (_, node) in enumerate(asked)]
    found = frame.selectExpr(*tests).toArrow()
    blocks = sorted_blocks(table, 10)
    statistics = statistics_of(table, blocks)
    skipped = empty = 0
    for (text, node), column in zip(asked, found.columns, strict=True):
        holds = np.asarray(column)
        there = np.array([holds[block].any() for block in blocks])
        denied = cannot_match(node, statistics, None)
        wrong = np.flatnonzero(there & denied)
        assert not len(wrong), f"{text}: {to_sql(node)}, block {table.take(blocks[wrong[0]]).to_pylist()}"
        skipped, empty = skipped + int(denied.sum()), empty + int((~there).sum())
    return skipped / empty


def test_no_condition_skips_a_block_that_spark_finds_a_row_in(spark: SparkSession, tmp_path: Path) -> None:
    share = check(spark, tmp_path, examples(400), seed=1)
    assert share > 0.3  # each block is narrow in one column of twelve


@pytest.mark.long
def test_nor_do_many(spark: SparkSession, tmp_path: Path) -> None:
    for seed in range(2, 12):
        assert check(spark, tmp_path, 1000, seed) > 0.3
