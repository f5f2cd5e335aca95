"""Other engines' readers give the rows' own answers over published tables, whatever they skip by the statistics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from pyiceberg.table import StaticTable

from layoutopt.catalog.publications import Publication
from layoutopt.publish.publishing import publish
from tests.effort import examples
from tests.publish.readers import Filter, check_delta, check_iceberg, filters, is_plain
from tests.publish.typed import POOLS, SCHEMA, typed_rows
from tests.scan.builder import build, building, by_position

COMPARABLE = [name for name in POOLS if name not in ("raw",)]


@dataclass(frozen=True)
class Case:
    connection: duckdb.DuckDBPyConnection
    rows: pa.Table
    files: list[str]
    location: str
    iceberg: StaticTable


@pytest.fixture(scope="module", params=[None, "p", "p without NULL"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    """A table of many small files, published both ways in its own folder."""
    root = tmp_path_factory.mktemp("published") / "table"
    rows = typed_rows(60, seed=3)
    if request.param == "p without NULL":
        rows = rows.set_column(rows.column_names.index("p"), "p", rows["p"].fill_null("none"))
    by = request.param and "p"
    build(root, rows, building(SCHEMA, partition_by=by, blocking=by_position(2), segment_rows=5))
    for format in ("delta", "iceberg"):
        publish(str(root), Publication(format, str(root)))
    files = [str(path) for path in sorted((root / "data").rglob("*.parquet"))]
    with duckdb.connect() as connection:
        yield Case(connection, rows, files, str(root), StaticTable.from_metadata(str(root)))


def test_every_reader_reads_every_value(case: Case) -> None:
    by_id = case.rows.sort_by("id")
    for found in (DeltaTable(case.location).to_pyarrow_table(), case.iceberg.scan().to_arrow()):
        assert found.column_names == list(SCHEMA.names)
        there = found.sort_by("id")
        for name in SCHEMA.names:
            assert str(there[name].to_pylist()) == str(by_id[name].to_pylist()), name


@settings(max_examples=examples(10))
@given(filters(COMPARABLE))
def test_readers_of_delta_skip_no_row_that_they_ask_for(case: Case, filter: Filter) -> None:
    check_delta(case.connection, case.location, case.rows, case.files, filter)


@settings(max_examples=examples(10))
@given(filters(COMPARABLE).filter(is_plain))
def test_readers_of_iceberg_skip_no_row_that_they_ask_for(case: Case, filter: Filter) -> None:
    check_iceberg(case.connection, case.iceberg, case.rows, case.files, filter)


@pytest.mark.long
@settings(max_examples=2000)
@given(filters(COMPARABLE))
def test_readers_of_delta_skip_no_row_for_many_filters(case: Case, filter: Filter) -> None:
    check_delta(case.connection, case.location, case.rows, case.files, filter)


@pytest.mark.long
@settings(max_examples=2000)
@given(filters(COMPARABLE).filter(is_plain))
def test_readers_of_iceberg_skip_no_row_for_many_filters(case: Case, filter: Filter) -> None:
    check_iceberg(case.connection, case.iceberg, case.rows, case.files, filter)


def test_readers_skip_files(case: Case) -> None:
    dataset = DeltaTable(case.location).to_pyarrow_dataset()
    every = len(list(dataset.get_fragments()))
    assert len(list(dataset.get_fragments(pa.compute.field("id") == 7))) < every / 2
    assert len(list(case.iceberg.scan(row_filter="id = 7").plan_files())) < every / 2
