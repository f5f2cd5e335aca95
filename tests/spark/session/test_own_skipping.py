"""Which blocks Spark is taken to leave out by itself; what it really reads is its own tests' business."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from layoutopt.model.feature import Settings
from layoutopt.model.schema import Column, Schema
from layoutopt.scan.table import Table
from layoutopt.spark.session.own_skipping import skipped_by_spark
from tests.scan.builder import build, building

KINDS = ("air", "rail", "ship", "truck")
SCHEMA = Schema((Column("id", "int"), Column("kind", "string"), Column("size", "int"), Column("price", "int")))


def table_of(path: Path, schema: Schema = SCHEMA) -> Table:
    """Forty rows of four kinds in turns, in blocks by features of two of them; sizes go with kinds."""
    kinds = ["air", "truck", *(KINDS[i % 4] for i in range(36)), "air", "truck"]
    rows = pa.table(
        {
            "id": pa.array(range(40), pa.int32()),
            "kind": kinds,
            "size": pa.array([10 * KINDS.index(kind) for kind in kinds], pa.int32()),
            "price": pa.array([i % 7 for i in range(40)], pa.int32()),
        }
    )
    if "x" in schema.names:
        rows = rows.append_column("x", pa.array([float(i) for i in range(40)]))
    features = ["kind = 'rail'", "kind = 'ship'", "size IN (10, 11)", "upper(kind) = 'RAIL'"]
    return build(path, rows, building(schema, features))


def skipped(table: Table, condition: str) -> tuple[int, int]:
    """How many blocks Spark skips, and how many we do."""
    (read,) = table.reads_under(f"SELECT id FROM t WHERE {condition}", Settings())
    (pruned,) = read.pruned
    found = skipped_by_spark(read, pruned)
    return int(np.count_nonzero(found)), int(np.count_nonzero(~pruned.read))


@pytest.mark.parametrize(
    "condition",
    [
        "kind = 'rail'",
        "kind IN ('rail', 'ship') AND price < 100",
        "size IN (10, 11)",
        "size = 10 AND upper(kind) = 'RAIL'",
    ],
)
def test_the_dictionary_has_none_of_a_few_values(tmp_path: Path, condition: str) -> None:
    by_spark, by_us = skipped(table_of(tmp_path / "t"), condition)
    assert 0 < by_spark <= by_us


@pytest.mark.parametrize(
    "condition",
    ["upper(kind) = 'RAIL'", "kind = 'rail' OR upper(kind) = 'RAIL'", "length(kind) = size"],
)
def test_what_spark_can_not_push_skips_nothing(tmp_path: Path, condition: str) -> None:
    assert skipped(table_of(tmp_path / "t"), condition)[0] == 0


def test_minima_and_maxima_skip_what_they_exclude(tmp_path: Path) -> None:
    by_spark, by_us = skipped(table_of(tmp_path / "t"), "kind > 'zoo' AND upper(kind) = 'RAIL'")
    assert by_spark == by_us > 0


def test_no_dictionary_is_asked_where_zeros_may_differ(tmp_path: Path) -> None:
    schema = Schema((*SCHEMA.columns, Column("x", "double")))
    without, by_us = skipped(table_of(tmp_path / "t", schema), "kind = 'rail'")
    assert without < skipped(table_of(tmp_path / "u"), "kind = 'rail'")[0] == by_us
