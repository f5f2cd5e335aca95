"""Parquet's own indexes: of which columns a plan's files have them, and that readers of others find them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import Call, Col, Const
from layoutopt.model.predicates.nodes import GET_FIELD
from layoutopt.model.schema import Column, Schema
from layoutopt.writer.task import parquet_index_options
from tests.scan.builder import building

ROWS = pa.schema(
    [("user", pa.string()), ("n", pa.int64()), ("flag", pa.bool_()), ("st", pa.struct([("a", pa.int32())]))]
)
KINDS = {"user": "string", "n": "bigint", "flag": "boolean", "st": "struct<a:int>"}


def plan(*indexes: IndexSpec, wanted: tuple[str, ...] = ("bloom",)) -> Plan:
    schema = Schema(tuple(Column(name, kind) for name, kind in KINDS.items()))
    return replace(building(schema).plan, indexes=indexes, parquet_indexes=wanted)


def of(name: str, kind: str) -> IndexSpec:
    return IndexSpec(Col(name, KINDS[name]), kind)


def test_filters_are_of_what_indexes_for_equality_are_of() -> None:
    field = Call(GET_FIELD, (Col("st", KINDS["st"]), Const("a", "string")), "int")
    lower = Call("lower", (Col("user", "string"),), "string")
    elements = Call("elements", (Col("user", "array<string>"),), "string")
    indexes = (of("user", "bloom"), of("n", "gap-list"), of("flag", "value-list"), IndexSpec(field, "hybrid"),
               IndexSpec(lower, "bloom"), IndexSpec(elements, "bloom"))  # fmt: skip
    options = parquet_index_options(plan(*indexes), ROWS, np.array([0, 70, 100]))
    assert set(options) == {"bloom_filter_options"}
    assert set(options["bloom_filter_options"]) == {"user", "st.a"}
    assert options["bloom_filter_options"]["user"]["ndv"] == 70


def test_nothing_is_written_that_nobody_asked_for() -> None:
    assert parquet_index_options(plan(of("user", "bloom"), wanted=()), ROWS, np.array([0, 5])) == {}
    assert parquet_index_options(plan(), ROWS, np.array([0, 5])) == {}
    assert "write_page_index" in parquet_index_options(plan(wanted=("page",)), ROWS, np.array([0, 5]))


def test_a_plan_knows_no_others() -> None:
    with pytest.raises(ValueError, match="parquet_indexes are 'column'; give some of page, bloom"):
        plan(wanted=("column",))
    for each in (plan(), plan(wanted=("bloom", "page"))):
        assert Plan.loads(each.dumps()) == each
    assert b"parquet_indexes" not in plan(wanted=()).dumps()


def test_duckdb_excludes_row_groups_by_bloom_filters(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    numbers = 2 * rng.integers(0, 10**9, 20_000)
    numbers[15_123] += 1
    rows = pa.table({"n": numbers, "v": rng.random(len(numbers))})
    excluded = {}
    for wanted in ((), ("bloom",)):
        options = parquet_index_options(plan(of("n", "bloom"), wanted=wanted), rows.schema, np.array([0, 2_000]))
        path = tmp_path / f"{len(options)}.parquet"
        with pq.ParquetWriter(path, rows.schema, **options) as writer:
            for start in range(0, len(numbers), 2_000):
                writer.write_table(rows.slice(start, 2_000))
        with duckdb.connect() as connection:
            probed = f"SELECT row_group_id, bloom_filter_excludes FROM parquet_bloom_probe('{path}', 'n', {{}})"
            excluded[wanted] = [
                {group for group, out in connection.sql(probed.format(number)).fetchall() if out}
                for number in (int(numbers[5]) + 1, int(numbers[15_123]))
            ]
    assert excluded[()] == [set(), set()]
    absent, there = excluded[("bloom",)]
    assert len(absent) >= 9
    assert 8 <= len(there) <= 9
    assert 7 not in there
