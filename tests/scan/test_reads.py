"""Texts reach the embedded engine as dictionaries and codes where all files have them so; answers are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.catalog.arrow_types import CODED
from layoutopt.errors import DataFileError
from layoutopt.model.schema import Column, Schema
from layoutopt.scan.table import Table
from tests.effort import examples
from tests.scan.builder import build, building, by_position
from tests.scan.layouts import GROUPS
from tests.scan.tables import CONDITIONS, SCHEMA, same, some_rows

TEXTS = Schema((Column("id", "int"), Column("year", "int"), Column("kind", "string"), Column("word", "string")))
KINDS = [None, "", "air", "ship", "a longer name of a kind", "\N{GREEK SMALL LETTER ALPHA}"]


def texts() -> pa.Table:
    """Few kinds with NULLs in both years; words are few in 2020, and all different in 2021."""
    rows = [(i, 2020 + i % 2, KINDS[i // 7 % 6], f"word {i if i % 2 else i % 8}, of some length") for i in range(4000)]
    return pa.table(dict(zip(TEXTS.names, zip(*rows, strict=True), strict=True))).cast(
        pa.schema([("id", pa.int32()), ("year", pa.int32()), ("kind", pa.string()), ("word", pa.string())])
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    plan = building(TEXTS, partition_by="year", blocking=by_position(500), footers=True)
    return build(tmp_path_factory.mktemp("coded"), texts(), plan)


def test_texts_are_coded_where_every_file_has_them_so(table: Table) -> None:
    assert table.scan("SELECT * FROM t").reads[0].coded == {"kind"}
    assert table.scan("SELECT * FROM t WHERE year = 2020").reads[0].coded == {"kind", "word"}
    assert table.scan("SELECT id FROM t").reads[0].coded == frozenset()
    assert table.scan("SELECT * FROM t WHERE id < 0").reads[0].segments == []


def test_batches_have_them_so_if_asked(table: Table) -> None:
    (read,) = table.scan("SELECT id, kind FROM t").reads
    given = pa.Table.from_batches(read.batches(coded=read.coded), read.arrow_schema(read.coded))
    assert given.schema.field("kind").type == CODED
    assert read.arrow_schema().field("kind").type == pa.string()
    assert given.sort_by("id")["kind"].to_pylist() == texts()["kind"].to_pylist()


def test_rows_put_together_and_columns_that_came_later_are_not(tmp_path: Path) -> None:
    together = build(tmp_path / "g", some_rows(), building(SCHEMA, CONDITIONS, layouts=GROUPS, footers=True))
    assert together.scan("SELECT * FROM t").reads[0].coded == frozenset()
    narrow = Schema(tuple(column for column in TEXTS.columns if column.name != "word"))
    old = texts().filter(pc.equal(texts()["year"], 2020))
    build(tmp_path / "t", old.select(narrow.names), building(narrow, partition_by="year", footers=True), "load-1")
    new = texts().filter(pc.equal(texts()["year"], 2021))
    grown = build(tmp_path / "t", new, building(TEXTS, partition_by="year", footers=True), "load-2")
    (read,) = grown.scan("SELECT * FROM t").reads
    assert read.coded == {"kind"}
    assert grown.sql("SELECT count(word) AS n FROM t").to_pylist() == [{"n": 2000}]


WHERE = st.sampled_from(
    [
        "kind = 'air'",
        "kind IS NULL",
        "kind <> ''",
        "kind LIKE 'a%'",
        "word > 'word 5'",
        "word IN ('word 3, of some length')",
    ]
)


@settings(max_examples=examples(15))
@given(WHERE, WHERE, st.sampled_from(["AND", "OR"]), st.sampled_from(["", " AND year = 2020"]))
def test_answers_are_those_of_the_rows(table: Table, left: str, right: str, word: str, year: str) -> None:
    sql = f"SELECT id, kind, word FROM t WHERE ({left} {word} {right}){year}"
    found = table.sql(sql)
    assert found.schema.types == [pa.int32(), pa.string(), pa.string()]
    assert same(found.to_pylist(), answer(sql))
    grouped = f"SELECT kind, count(*) AS n FROM t WHERE {left} GROUP BY kind"
    assert same(table.sql(grouped).to_pylist(), answer(grouped))


def answer(sql: str) -> list[dict[str, Any]]:
    """What DuckDB answers on the rows themselves."""
    with duckdb.connect() as connection:
        connection.register("t", texts())
        return list(connection.sql(sql).to_arrow_table().to_pylist())


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    there = build(tmp_path, texts(), building(TEXTS, partition_by="year", footers=True))
    next((tmp_path / "data").rglob("*.parquet")).unlink()
    with pytest.raises(DataFileError, match="is missing"):
        there.sql("SELECT kind FROM t")
