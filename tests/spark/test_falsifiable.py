"""Falsifiable expressions against Spark: generated conditions on functions, all asked in one job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.model.predicates import Call, Col, Const, InSet, to_sql
from layoutopt.model.predicates.patterns import template_groups
from layoutopt.model.values import ValueSet
from layoutopt.scan.prune import under_zone
from layoutopt.skipping.cannot_match import cannot_match
from layoutopt.skipping.implied_literals import derive_function_literal
from layoutopt.sql.types import normal_type
from tests.effort import examples
from tests.skipping.falsifiable import (
    ARROW,
    SCHEMA,
    Values,
    computed,
    conditions,
    holds,
    parts_of,
    rows,
    sides_of,
    single_conditions,
    sorted_blocks,
    statistics_of,
)
from tests.skipping.indexed import NESTED, indexed_conditions, nested_rows, with_indexes
from tests.spark.settings import under

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from layoutopt.model.predicates import Expr, Node
    from layoutopt.model.schema import Schema
    from layoutopt.skipping.cannot_match import BlockStatistics

pytestmark = pytest.mark.spark
TEMPLATES = (
    "^([A-Z]+)-(\\d+)", "(\\d+)$", ".", "^.{2}", "[^-]+-", "(\\w)(\\s?)", "[A-Z]{1,2}", "\\.", "([a-z_]*)/", "b?-",
)  # fmt: skip


def check(spark: SparkSession, folder: Path, count: int, seed: int) -> float:
    """Ask so many conditions of generated rows; returns the share of blocks without a match that are skipped.

    Spark computes what the conditions are about, hundreds of expressions; which of their values a condition is TRUE of
    is left to numpy.
    """
    table, asked = rows(300, seed), list(conditions(count, seed))
    values = values_of(spark, folder / f"{seed}.parquet", table, asked, SCHEMA)
    blocks = sorted_blocks(table, 10)
    return share_skipped(asked, values, table, blocks, statistics_of(table, blocks))


def check_indexed(spark: SparkSession, folder: Path, count: int, seed: int) -> float:
    """As :func:`check`, of values that have no bounds, but indexes."""
    table, asked = nested_rows(300, seed), list(indexed_conditions(count, seed))
    values = values_of(spark, folder / f"{seed}-nested.parquet", table, asked, NESTED)
    blocks = sorted_blocks(table.select(["a", "x", "s", "j"]), 10)
    statistics = statistics_of(table.select(SCHEMA.names), blocks)
    indexed = with_indexes(statistics, [node for _, node in asked], values, table, blocks)
    return share_skipped(asked, values, table, blocks, indexed)


def values_of(
    spark: SparkSession, path: Path, table: pa.Table, asked: Sequence[tuple[str, Node]], schema: Schema
) -> dict[Expr, Values]:
    """What Spark has for all that conditions are about, of the rows of a table."""
    pq.write_table(table, path)
    frame = spark.read.parquet(str(path))
    assert [normal_type(kind) for _, kind in frame.dtypes] == [column.type for column in schema.columns]
    sides = dict.fromkeys(side for _, node in asked for literal in parts_of(node) for side in sides_of(literal))
    return computed(frame, tuple(sides))


def share_skipped(
    asked: Sequence[tuple[str, Node]],
    values: Mapping[Expr, Values],
    table: pa.Table,
    blocks: Sequence[np.ndarray[Any, Any]],
    statistics: BlockStatistics,
) -> float:
    """Of the blocks without a match the share that is skipped; none with one may be."""
    in_blocks, starts = np.concatenate(blocks), np.cumsum([0, *map(len, blocks[:-1])])
    skipped = empty = 0
    for text, node in asked:
        there = np.logical_or.reduceat(holds(node, values)[in_blocks], starts)
        denied = cannot_match(node, statistics, None)
        wrong = np.flatnonzero(there & denied)
        assert not len(wrong), f"{text}: {to_sql(node)}, block {table.take(blocks[wrong[0]]).to_pylist()}"
        skipped, empty = skipped + int(denied.sum()), empty + int((~there).sum())
    return skipped / empty


def test_no_condition_skips_a_block_that_spark_finds_a_row_in(spark: SparkSession, tmp_path: Path) -> None:
    share = check(spark, tmp_path, examples(50_000), seed=1)  # 10,000 in `make test`
    assert share > 0.3  # each block is narrow in one column of twelve


@pytest.mark.parametrize("zone", ["UTC", "America/Sao_Paulo"])
def test_single_values(zone: str, spark: SparkSession, tmp_path: Path) -> None:
    """Blocks of one row twice, some beside NULLs: most that have no match are skipped."""
    table = pa.concat_tables([rows(150, 5), pa.Table.from_pylist([{}], ARROW)])
    asked = [*single_conditions(examples(2_000), 7), *conditions(examples(1_000), 7)]
    with under(spark, {"spark.sql.session.timeZone": zone}):
        values = values_of(spark, tmp_path / "rows.parquet", table, asked, SCHEMA)
    blocks = [np.array([place, place if place % 3 else table.num_rows - 1]) for place in range(table.num_rows)]
    statistics = under_zone(statistics_of(table, blocks), zone)
    assert share_skipped(asked, values, table, blocks, statistics) > 0.85


def test_spark_finds_the_rows_that_its_values_say(spark: SparkSession, tmp_path: Path) -> None:
    """What the test above leaves to numpy, asked of Spark: whole conditions."""
    table, asked = rows(300, 1), list(conditions(60, 1))
    pq.write_table(table, tmp_path / "rows.parquet")
    frame = spark.read.parquet(str(tmp_path / "rows.parquet"))
    found = frame.selectExpr(*(f"coalesce({to_sql(node)}, false) AS c{i}" for i, (_, node) in enumerate(asked)))
    sides = dict.fromkeys(side for _, node in asked for literal in parts_of(node) for side in sides_of(literal))
    values = computed(frame, tuple(sides))
    for (text, node), column in zip(asked, found.toArrow().columns, strict=True):
        assert holds(node, values).tolist() == column.to_pylist(), text


def test_what_follows_for_pieces_is_what_spark_computes(spark: SparkSession) -> None:
    text = Col("s", "string")
    texts = ["", "a", "AB-12", "ab-12-", "--", "A.b", "é-1", "😀b2", "a b\tc", "x_1/y_2", "AB-12 CD-34", "Zz"]
    places = (-2, -1, 1, 2, 3)
    functions = [
        Call("split_part", (text, Const(by, "string"), Const(i, "int")), "string")
        for by in ("-", "", "b")
        for i in places
    ]
    for template in TEMPLATES:
        for group in range((template_groups(template) or 0) + 1):
            functions.append(Call("regexp_extract", (text, Const(template, "string"), Const(group, "int")), "string"))
    functions += [Call(name, (text,), "string") for name in ("lower", "upper")]
    functions += [Call("left", (text, Const(i, "int")), "string") for i in (-1, 0, 2)]
    frame = spark.createDataFrame([(each,) for each in texts], "s string").coalesce(1)
    found = frame.selectExpr(*(f"{to_sql(each)} AS c{i}" for i, each in enumerate(functions))).toArrow()
    known = 0
    for function, column in zip(functions, found.columns, strict=True):
        for each, value in zip(texts, column.to_pylist(), strict=True):
            follows = derive_function_literal(function, InSet(text, ValueSet.point(each)))
            known += follows is not None
            assert follows is None or follows.values.points() == (value,), (function, each)
    assert known > 0.9 * len(texts) * len(functions)


def test_no_index_skips_a_block_that_spark_finds_a_row_in(spark: SparkSession, tmp_path: Path) -> None:
    assert check_indexed(spark, tmp_path, examples(3_000), seed=1) > 0.9


@pytest.mark.long
def test_nor_do_a_million(spark: SparkSession, tmp_path: Path) -> None:
    for seed in range(2, 42):
        assert check(spark, tmp_path, 22_500, seed) > 0.3
        assert check_indexed(spark, tmp_path, 2_500, seed) > 0.9
