"""Parquet's own indexes: of which columns a plan's files have them, and that readers of others find them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem

from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import Call, Col, Const
from layoutopt.model.predicates.nodes import GET_FIELD
from layoutopt.model.schema import Column, Schema
from layoutopt.writer.parquet_indexes import parquet_index_options
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
    indexes = (of("user", "bloom"), of("n", "gap-list"), of("flag", "value-list"), IndexSpec(field, "hybrid"),
               IndexSpec(lower, "bloom"))  # fmt: skip
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


class Counted(LocalFileSystem):  # type: ignore[misc]
    """Local files under another name, whose bytes are counted as they are read."""

    protocol = "counted"
    read_bytes_so_far = 0

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        file = super()._open(path, mode, **options)
        read = file.f.read

        def counted(size: int = -1) -> bytes:
            data: bytes = read(size)
            Counted.read_bytes_so_far += len(data)
            return data

        file.read = counted
        return file


@pytest.fixture
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.register_filesystem(Counted())
        yield connection


def bytes_read(duck: duckdb.DuckDBPyConnection, path: Path, number: int) -> int:
    before = Counted.read_bytes_so_far
    sql = f"SELECT count(*), sum(v) FROM read_parquet('counted://{path}') WHERE n = {number}"
    ((count, _),) = duck.sql(sql).fetchall()
    assert count == number % 2
    return Counted.read_bytes_so_far - before


def test_duckdb_reads_less_by_bloom_filters(tmp_path: Path, duck: duckdb.DuckDBPyConnection) -> None:
    rng = np.random.default_rng(0)
    numbers = 2 * rng.integers(0, 10**9, 40_000)
    numbers[30_123] += 1
    rows = pa.table({"n": numbers, "v": rng.random(len(numbers))})
    sizes = {}
    for wanted in ((), ("bloom",)):
        options = parquet_index_options(plan(of("n", "bloom"), wanted=wanted), rows.schema, np.array([0, 4_000]))
        path = tmp_path / f"{len(options)}.parquet"
        with pq.ParquetWriter(path, rows.schema, **options) as writer:
            for start in range(0, len(numbers), 4_000):
                writer.write_table(rows.slice(start, 4_000))
        sizes[wanted] = [bytes_read(duck, path, number) for number in (int(numbers[5]) + 2, int(numbers[30_123]))]
    assert all(3 * less < more for less, more in zip(sizes[("bloom",)], sizes[()], strict=True))
