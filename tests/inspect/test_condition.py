"""The condition on ``_block`` that other engines skip by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.cli.app import main
from layoutopt.cli.console import DONE
from layoutopt.inspect.block_condition import block_conditions, condition_sql
from layoutopt.scan.table import Table
from tests.effort import examples
from tests.scan.builder import build, building, by_vector
from tests.scan.destroyed import without_bytes_of_other_blocks
from tests.scan.layouts import GROUPS
from tests.scan.tables import CONDITIONS, SCHEMA, expected, some_rows

FILTER = "kind = 'air' AND price > 60"
SQL = f"SELECT id FROM t WHERE {FILTER}"


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return some_rows()


def at_random(rows: pa.Table, bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Blocks whose minima and maxima exclude little, so that it is ``_block`` that skips."""
    return np.asarray(by_vector(rows, bits) * 4 + np.arange(rows.num_rows) % 4)


def answers(sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        return connection.execute(sql).fetchall()


@settings(max_examples=examples(40))
@given(st.sets(st.integers(-5, 60)), st.data())
def test_the_condition_keeps_exactly_the_blocks_to_read(numbers: set[int], data: st.DataObject) -> None:
    ids = np.array(sorted(numbers), dtype=np.int64)
    read = np.array(data.draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids))), dtype=bool)
    sql = condition_sql(ids, read)
    found = answers(f"SELECT _block FROM (SELECT unnest({ids.tolist()}::BIGINT[]) AS _block) WHERE {sql}")
    assert sorted(each for (each,) in found) == ids[read].tolist()


def test_long_runs_are_ranges() -> None:
    ids = np.arange(1000, 2000)
    read = (ids >= 1100) & (ids < 1900) | (ids == 1001)
    assert condition_sql(ids, read) == "(_block BETWEEN 1100 AND 1899 OR _block IN (1001))"
    # Numbers that no block of these files has don't break a run.
    assert condition_sql(ids * 10, ids < 1500) == "_block BETWEEN 10000 AND 14990"
    assert condition_sql(ids, read & False) == "FALSE"
    assert condition_sql(ids, read | True) == "TRUE"


def row_groups_read_by_duckdb(files: tuple[str, ...], condition: str) -> tuple[set[int], str]:
    connection = duckdb.connect()
    text = f"SELECT id FROM read_parquet({list(files)}) WHERE {FILTER} AND {condition}"
    answer = {each for (each,) in connection.execute(text).fetchall()}
    return answer, connection.execute(f"EXPLAIN ANALYZE {text}").fetchall()[0][1]


def test_duckdb_reads_these_row_groups_alone(tmp_path: Path, rows: pa.Table) -> None:
    table = build(tmp_path, rows, building(SCHEMA, CONDITIONS, blocking=at_random))
    scan = table.scan(SQL)
    (condition,) = block_conditions(scan).conditions
    assert 0 < condition.blocks_read < condition.blocks_total / 3
    wanted = {row["id"] for row in expected(SQL, rows)}
    assert row_groups_read_by_duckdb(table.files(), "TRUE")[0] == wanted
    assert without_bytes_of_other_blocks(scan) == condition.blocks_total - condition.blocks_read
    answer, plan = row_groups_read_by_duckdb(table.files(), condition.sql)
    assert answer == wanted
    assert f"{condition.blocks_read} / {condition.blocks_total}" in plan
    with pytest.raises(duckdb.Error):
        row_groups_read_by_duckdb(table.files(), "TRUE")


def test_polars_reads_these_row_groups_alone(tmp_path: Path, rows: pa.Table) -> None:
    table = build(tmp_path, rows, building(SCHEMA, CONDITIONS, blocking=at_random))
    scan = table.scan(SQL)
    (condition,) = block_conditions(scan).conditions

    def read(sql: str) -> set[int]:
        frame = pl.scan_parquet(list(table.files())).filter(pl.sql_expr(f"{FILTER} AND {sql}"))
        return set(frame.select("id").collect()["id"].to_list())

    wanted = {row["id"] for row in expected(SQL, rows)}
    assert read("TRUE") == wanted
    without_bytes_of_other_blocks(scan)
    assert read(condition.sql) == wanted
    with pytest.raises((pl.exceptions.PolarsError, OSError)):
        read("TRUE")


def test_each_layout_has_its_own(tmp_path: Path, rows: pa.Table) -> None:
    table = build(tmp_path, rows, building(SCHEMA, CONDITIONS, layouts=GROUPS))
    found = block_conditions(table.scan(SQL))
    assert [(each.layout, each.columns) for each in found.conditions] == [(0, ("id", "kind")), (1, ("price",))]
    assert json.loads(json.dumps(found.to_json()))["conditions"][0]["sql"] == found.conditions[0].sql
    for each in found.conditions:
        files = [str(file) for file in table.files(each.layout)]
        kept = answers(f"SELECT count(DISTINCT _block) FROM read_parquet({files}) WHERE {each.sql}")
        assert kept == [(each.blocks_read,)]


def test_a_join_has_one_for_each_mention(table: Table) -> None:
    sql = "SELECT a.id FROM t a JOIN t b ON a.id = b.id WHERE a.kind = 'air' AND b.year = 1995"
    first, second = block_conditions(table.scan(sql)).conditions
    assert (first.mention, second.mention) == (0, 1)
    assert first.sql != second.sql


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory, rows: pa.Table) -> Table:
    return build(tmp_path_factory.mktemp("sop"), rows, building(SCHEMA, CONDITIONS, partition_by="year"))


def test_the_command_line_prints_it(table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    root = table.catalog.files.root
    assert main(["explain", root, "--predicate", FILTER]) == DONE
    printed = " ".join(capsys.readouterr().out.split())
    assert printed == block_conditions(table.scan(where=FILTER)).conditions[0].sql
    assert main(["explain", root, SQL, "--predicate", "--json"]) == DONE
    assert json.loads(capsys.readouterr().out)["conditions"][0]["columns"] == ["id", "kind", "price"]
