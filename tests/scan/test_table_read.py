"""The rows of a mention: all at once just those that match, and texts as codes where all files have them so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.errors import DataFileError, SkippingError
from layoutopt.evaluation.arrow_types import CODED
from layoutopt.model.schema import Column, Schema
from layoutopt.scan import table_read as reads
from layoutopt.scan.table import Table
from layoutopt.scan.table_read import read_rows
from tests.effort import examples
from tests.scan.builder import build, building, by_position
from tests.scan.deleting import delete_ids, kept
from tests.scan.layouts import GROUPS
from tests.scan.tables import CONDITIONS, SCHEMA, expected, same, some_rows

MOST = 1 << 20
SQL = "SELECT id, price FROM t WHERE kind = 'air' AND price > 20 AND score > 0"


def at_once_of(table: Table, sql: str) -> pa.Table:
    (read,) = table.scan(sql).reads
    found = read_rows(read, MOST)
    assert found is not None
    return found


def test_rows_that_do_not_match_are_left_out(table: Table) -> None:
    found = at_once_of(table, SQL)
    assert set(found.column_names) == {"id", "kind", "price", "score"}
    assert found.num_rows == len(expected(SQL, some_rows())) > 0
    assert same(expected(SQL, found), expected(SQL, some_rows()))


def test_deleted_rows_stay_deleted(table: Table) -> None:
    gone = set(range(0, 300, 7))
    changed = delete_ids(table.catalog.files.root, gone)
    assert same(expected(SQL, at_once_of(changed, SQL)), expected(SQL, kept(some_rows(), gone)))


def test_nothing_left_has_the_same_columns(table: Table) -> None:
    found, none = at_once_of(table, SQL), at_once_of(table, SQL.replace("'air'", "'no such kind'"))
    assert none.num_rows == 0
    assert none.schema == found.schema


def test_a_file_that_is_gone_is_named(table: Table) -> None:
    scan = table.scan(SQL)
    for path in table.data_files(0):
        Path(path).unlink()
    with pytest.raises(DataFileError, match="missing"):
        read_rows(scan.reads[0], MOST)


def test_rows_of_more_bytes_are_given_up(table: Table) -> None:
    (read,) = table.scan("SELECT * FROM t").reads
    assert read_rows(read, 3_000) is None
    assert len(read_rows(read, MOST) or ()) == 300


def test_a_row_that_is_lost_is_noticed_where_skipping_is_checked(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "may_match", lambda parts, rows: np.zeros(rows.num_rows, dtype=np.bool_))
    with pytest.raises(SkippingError):
        at_once_of(table, SQL)


TEXTS = Schema((Column("id", "int"), Column("year", "int"), Column("kind", "string"), Column("word", "string")))
KINDS = [None, "", "air", "ship", "a longer name of a kind", "\N{GREEK SMALL LETTER ALPHA}"]


def texts() -> pa.Table:
    """Few kinds with NULLs in both years; words are few in 2020, and all different in 2021."""
    rows = [(i, 2020 + i % 2, KINDS[i // 7 % 6], f"word {i if i % 2 else i % 8}, of some length") for i in range(4000)]
    return pa.table(dict(zip(TEXTS.names, zip(*rows, strict=True), strict=True))).cast(
        pa.schema([("id", pa.int32()), ("year", pa.int32()), ("kind", pa.string()), ("word", pa.string())])
    )


@pytest.fixture(scope="module")
def coded(tmp_path_factory: pytest.TempPathFactory) -> Table:
    plan = building(TEXTS, partition_by="year", blocking=by_position(500), footers=True)
    return build(tmp_path_factory.mktemp("coded"), texts(), plan)


def test_texts_are_coded_where_every_file_has_them_so(coded: Table) -> None:
    assert coded.scan("SELECT * FROM t").reads[0].coded == {"kind"}
    assert coded.scan("SELECT * FROM t WHERE year = 2020").reads[0].coded == {"kind", "word"}
    assert coded.scan("SELECT id FROM t").reads[0].coded == frozenset()
    assert coded.scan("SELECT * FROM t WHERE id < 0").reads[0].segments == []


def test_batches_have_them_so_if_asked(coded: Table) -> None:
    (read,) = coded.scan("SELECT id, kind FROM t").reads
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
def test_answers_are_those_of_the_rows(coded: Table, left: str, right: str, word: str, year: str) -> None:
    sql = f"SELECT id, kind, word FROM t WHERE ({left} {word} {right}){year}"
    found = coded.sql(sql)
    assert found.schema.types == [pa.int32(), pa.string(), pa.string()]
    assert same(found.to_pylist(), answer(sql))
    grouped = f"SELECT kind, count(*) AS n FROM t WHERE {left} GROUP BY kind"
    assert same(coded.sql(grouped).to_pylist(), answer(grouped))


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
