"""A scan as a pyarrow Dataset: Polars, DuckDB and Arrow read the surviving row groups, and nothing else."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from layoutopt.errors import DataFileError, QueryError
from layoutopt.model.layout import Layout
from layoutopt.scan.table import Table
from tests.scan.builder import build, building, by_position
from tests.scan.destroyed import without_bytes_of_other_blocks
from tests.scan.layouts import GROUPS, OVERLAPPING
from tests.scan.tables import CONDITIONS, SCHEMA, expected, same

SQL = "SELECT id, price FROM t WHERE kind = 'air' AND price > 60"


def ids(rows: pa.Table, sql: str = SQL) -> set[int]:
    return {row["id"] for row in expected(sql, rows)}


def test_it_holds_the_surviving_row_groups(by_year: Table, rows: pa.Table) -> None:
    scan = by_year.scan(SQL)
    found = scan.to_dataset()
    assert found.schema.names == ["id", "kind", "price"]
    assert found.count_rows() == scan.explain().reads[0].read.rows < rows.num_rows / 2
    assert same(found.to_table().to_pylist(), pa.Table.from_batches(scan.reads[0].batches()).to_pylist())
    assert ids(rows) <= set(found.to_table()["id"].to_pylist())
    assert sum(len(fragment.row_groups) for fragment in found.get_fragments()) == scan.explain().reads[0].read.blocks


def read_by_polars(dataset: Any) -> set[int]:
    frame = pl.scan_pyarrow_dataset(dataset).filter((pl.col("kind") == "air") & (pl.col("price") > 60))
    return set(frame.select("id").collect()["id"].to_list())


def read_by_duckdb(dataset: Any) -> set[int]:
    connection = duckdb.connect()
    connection.register("surviving", dataset)
    found = connection.execute("SELECT id FROM surviving WHERE kind = 'air' AND price > 60").fetchall()
    return {each for (each,) in found}


@pytest.mark.parametrize("read", [read_by_polars, read_by_duckdb])
def test_other_row_groups_are_never_touched(tmp_path: Path, rows: pa.Table, read: Any) -> None:
    table = build(tmp_path, rows, building(SCHEMA, CONDITIONS))
    scan = table.scan(SQL)
    without_bytes_of_other_blocks(scan)
    assert read(scan.to_dataset()) == ids(rows)
    with pytest.raises((OSError, pl.exceptions.PolarsError, duckdb.Error, pa.ArrowException)):
        read(table.scan("SELECT id, kind, price FROM t").to_dataset())


@pytest.mark.parametrize("layouts", [GROUPS, OVERLAPPING], ids=["gsop", "gsop-r"])
def test_several_layouts_are_put_together(tmp_path: Path, rows: pa.Table, layouts: list[Layout]) -> None:
    table = build(tmp_path, rows, building(SCHEMA, CONDITIONS, layouts=layouts, segment_rows=70))
    found = table.scan(SQL).to_dataset()
    assert found.schema.names == ["id", "kind", "price"]
    kept = found.to_table(filter=(pc.field("kind") == "air") & (pc.field("price") > pa.scalar(Decimal(60))))
    assert set(kept["id"].to_pylist()) == ids(rows)
    assert found.count_rows() < rows.num_rows


def test_one_layout_of_several_stays_in_its_files(tmp_path: Path, rows: pa.Table) -> None:
    table = build(tmp_path, rows, building(SCHEMA, CONDITIONS, layouts=GROUPS))
    found = table.scan("SELECT price FROM t WHERE price > 60").to_dataset()
    assert {fragment.path for fragment in found.get_fragments()} == set(table.files(layout=1))


def test_a_text_that_mentions_the_table_twice_is_refused(by_year: Table) -> None:
    with pytest.raises(QueryError, match=r"2 tables \('t', 't'\).*to_arrow"):
        by_year.scan("SELECT a.id FROM t a JOIN t b ON a.id = b.id").to_dataset()


def test_a_joined_table_is_read_from_its_own_files(by_year: Table, tmp_path: Path, rows: pa.Table) -> None:
    other = build(tmp_path, rows.slice(0, 100), building(SCHEMA))
    found = by_year.scan("SELECT id FROM k WHERE id >= 0", tables={"k": other}).to_dataset()
    assert {fragment.path for fragment in found.get_fragments()} == set(other.files())
    assert found.to_table()["id"].to_pylist() == rows["id"].to_pylist()[:100]
    with pytest.raises(QueryError, match=r"2 tables \('t', 'k'\)"):
        by_year.scan("SELECT t.id FROM t JOIN k ON t.id = k.id", tables={"k": other}).to_dataset()


def test_rows_without_columns_and_no_rows_at_all(by_year: Table, rows: pa.Table) -> None:
    assert by_year.scan("SELECT count(*) FROM t").to_dataset().count_rows() == rows.num_rows
    nothing = by_year.scan("SELECT id FROM t WHERE kind = 'no such kind' AND year = 1800").to_dataset()
    assert nothing.to_table().schema.names == ["id", "kind", "year"]
    assert nothing.count_rows() == 0


def test_missing_and_changed_files_are_named(tmp_path: Path, rows: pa.Table) -> None:
    table = build(tmp_path, rows, building(SCHEMA, CONDITIONS, blocking=by_position(100)))
    path = Path(table.files()[0])
    pq.write_table(pq.read_table(path), path)
    with pytest.raises(DataFileError, match=path.name):
        table.scan(SQL).to_dataset()
    path.unlink()
    with pytest.raises(DataFileError, match=rf"{path.name}.*missing"):
        table.scan(SQL).to_dataset()
