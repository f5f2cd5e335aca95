"""Joins of the normalised tables answer what the denormalised one does, and what they read is counted."""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.bench.query_times import digest
from jobs.bench.tpch import Tpch, TpchData
from jobs.bench.tpch_joins import (
    count_joins,
    has_dimensions_alone,
    join_text,
    joins_step,
    normalised_folder,
    normalised_step,
)
from jobs.bench.tpch_queries import TEMPLATES, Draw
from layoutopt.cli.demo import DENORMALISE, MIN_SCALE, RAW_TABLES, generate
from tests.jobs.bench.without_spark import no_spark

DIMENSIONS = {"q2", "q11", "q16", "q20", "q22"}
OF_LINES = {  # what a dimension's row needs in order to have a line item
    "q2": "(ps.ps_partkey, ps.ps_suppkey) IN (SELECT (l_partkey, l_suppkey) FROM lineitem)",
    "q11": "(ps.ps_partkey, ps.ps_suppkey) IN (SELECT (l_partkey, l_suppkey) FROM lineitem)",
    "q16": "(ps.ps_partkey, ps.ps_suppkey) IN (SELECT (l_partkey, l_suppkey) FROM lineitem)",
    "q20": "s.s_suppkey IN (SELECT l_suppkey FROM lineitem)",
    "q22": "c.c_custkey IN (SELECT o_custkey FROM orders JOIN lineitem ON l_orderkey = o_orderkey)",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TpchData:
    """The smallest TPC-H."""
    if shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("tpchgen-cli is not installed")
    made = TpchData(MIN_SCALE, tmp_path_factory.mktemp("tpch"))
    generate(made.scale, made.raw)
    return made


@pytest.fixture(scope="module")
def connection(data: TpchData) -> Iterator[duckdb.DuckDBPyConnection]:
    """Its tables, and the one denormalised by the statement that Spark runs too."""
    with duckdb.connect() as connected:
        for table in RAW_TABLES:
            connected.execute(f"CREATE TABLE {table} AS FROM read_parquet('{data.raw / table}.parquet')")
            connected.execute(f"CREATE VIEW raw_{table} AS FROM {table}")
        connected.execute(f"CREATE TABLE tpch AS {DENORMALISE}")
        yield connected


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_join_has_the_answer_of_the_denormalised_table(connection: duckdb.DuckDBPyConnection, template: str) -> None:
    def answer(sql: str) -> tuple[int, int]:
        return digest(connection.sql(sql).to_arrow_table())

    texts = (TEMPLATES[template].sql(Draw(random.Random(seed))) for seed in range(50))
    text, of_wide = next((text, found) for text in texts if (found := answer(text))[0])
    assert answer(join_text(text, lines=True)) == of_wide
    assert has_dimensions_alone(text) == (template in DIMENSIONS)
    if template not in DIMENSIONS:
        assert join_text(text) == join_text(text, lines=True)
        return
    narrow = join_text(text)
    assert " lineitem " not in narrow
    of_lines = f"SELECT DISTINCT * FROM ({narrow} AND {OF_LINES[template]})"
    assert answer(of_lines) == answer(f"SELECT DISTINCT * FROM ({text})")
    assert answer(narrow)[0] < of_wide[0]


def test_the_tables_keep_their_rows_in_small_row_groups(data: TpchData) -> None:
    bench = Tpch(data, no_spark)
    normalised_step(bench, 1000).make()
    for table in RAW_TABLES:
        written = pq.ParquetFile(normalised_folder(bench, 1000) / f"{table}.parquet")
        groups = [written.metadata.row_group(place).num_rows for place in range(written.num_row_groups)]
        assert max(groups) <= 1000
        assert sum(groups) == pq.read_metadata(data.raw / f"{table}.parquet").num_rows
    assert joins_step(bench, bench.stream("chapter4"), 1000).make()["dimensions"] == 40, "of 100: 4.7.5"


def test_columns_and_row_groups_of_each_table_are_counted(tmp_path: Path) -> None:
    days = pa.array([8000 + day // 10 for day in range(100)], pa.int32()).cast(pa.date32())
    lines = pa.table({"l_orderkey": range(100), "l_suppkey": [1, 2] * 50, "l_shipdate": days, "l_tax": [0.5] * 100})
    suppliers = pa.table({"s_suppkey": [1, 2], "s_nationkey": [0, 1], "s_name": ["a", "b"]})
    nations = pa.table({"n_nationkey": [0, 1], "n_name": ["INDIA", "PERU"]})
    for name, rows in (("lineitem", lines), ("supplier", suppliers), ("nation", nations)):
        pq.write_table(rows, tmp_path / f"{name}.parquet", row_group_size=10)
    text = "SELECT l_tax, s_name FROM tpch WHERE sn_name = 'INDIA' AND l_shipdate >= DATE '1991-12-04'"
    read = count_joins(tmp_path, [join_text(text)])
    least = 3 * 30 + 3 * 2 + 2 * 2  # shipdate, tax and the key of three of ten row groups; all of the others
    assert read["evaluation"]["totals"]["cells_scanned"] == least
    assert read["evaluation"]["totals"]["rows_scanned"] == 30 + 2 + 2
    assert read["full_scan"]["cells_scanned"] == 3 * 100 + 3 * 2 + 2 * 2
    assert 0 < read["evaluation"]["totals"]["bytes_scanned"] < read["full_scan"]["bytes_scanned"]
    assert read["evaluation"]["totals"]["tids_scanned"] == 0


def test_a_table_joined_twice_is_read_twice(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n_nationkey": [0, 1], "n_name": ["INDIA", "PERU"]}), tmp_path / "nation.parquet")
    for name, columns in (("lineitem", "l_orderkey l_suppkey"), ("orders", "o_orderkey o_custkey")):
        pq.write_table(pa.table({column: [1] for column in columns.split()}), tmp_path / f"{name}.parquet")
    for name, columns in (("customer", "c_custkey c_nationkey"), ("supplier", "s_suppkey s_nationkey")):
        pq.write_table(pa.table({column: [1] for column in columns.split()}), tmp_path / f"{name}.parquet")
    text = "SELECT l_orderkey FROM tpch WHERE sn_name = 'INDIA' AND cn_name = 'PERU'"
    assert count_joins(tmp_path, [join_text(text)])["evaluation"]["totals"]["cells_scanned"] == 4 * 2 + 2 * (2 * 2)
