"""Answers of scans over one layout equal those over the source, and blocks are skipped on the way."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import layoutopt
from layoutopt.cli.app import main
from layoutopt.cli.console import BAD_USAGE
from layoutopt.errors import DataFileError, QueryError, SchemaError
from layoutopt.scan.table import Table
from tests.scan.builder import build, building, by_position
from tests.scan.queries import QUERIES
from tests.scan.tables import CONDITIONS, SCHEMA, expected, same, some_rows

pytestmark = pytest.mark.checks_texts


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory, rows: pa.Table) -> Table:
    plan = building(SCHEMA, CONDITIONS, partition_by="year", segment_rows=60)
    return build(tmp_path_factory.mktemp("sop"), rows, plan)


@pytest.mark.parametrize("sql", QUERIES)
def test_answers_equal_those_over_the_source(sql: str, table: Table, rows: pa.Table) -> None:
    assert same(table.sql(sql).to_pylist(), expected(sql, rows))


@pytest.mark.parametrize("sql", QUERIES)
def test_answers_in_batches_are_the_same(sql: str, table: Table) -> None:
    batches = list(table.scan(sql).to_batches(batch_rows=7))
    assert same([row for batch in batches for row in batch.to_pylist()], table.sql(sql).to_pylist())


def test_quotes_doubled_in_a_text_are_one(tmp_path: Path) -> None:
    kinds = ["air", "it's", 'it"s', "its"] * 60
    rows = some_rows(240)
    rows = rows.set_column(rows.column_names.index("kind"), "kind", pa.array(kinds))
    table = build(tmp_path / "t", rows, building(SCHEMA, ["kind = 'it''s'", "kind = 'it\"s'"], segment_rows=60))
    for text, meant in (("'it''s'", "it's"), ('"it""s"', 'it"s'), ("'it\"s'", 'it"s'), ('"it\'s"', "it's")):
        scan = table.scan(f"SELECT id, kind FROM t WHERE kind = {text}")
        assert scan.to_arrow()["kind"].to_pylist() == [meant] * 60
        assert scan.explain().reads[0].read.rows < 240


def test_a_text_that_comes_again_is_read_once_for_each_session(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "SELECT count(*) AS n FROM t WHERE seen < TIMESTAMP '2021-01-01 00:00:00' AND id > 41"
    first = table.scan(text)
    answer = first.to_arrow()
    elsewhere = table.scan_under(text, replace(table.settings, time_zone="Asia/Tokyo"))
    assert elsewhere.reads[0].scan.filter != first.reads[0].scan.filter
    monkeypatch.setattr("layoutopt.scan.table_read.find_scans", lambda *_, **__: pytest.fail("read again"))
    assert table.scan(text).to_arrow() == answer


def test_an_answer_has_the_time_zone_by_which_blocks_are_skipped(table: Table, rows: pa.Table) -> None:
    moment = rows["seen"].to_pylist()[100].replace(tzinfo=None)
    text = "SELECT count(*) AS n FROM t WHERE seen <= TIMESTAMP '{}'"
    in_tokyo = table.scan_under(text.format(moment), replace(table.settings, time_zone="Asia/Tokyo")).to_arrow()
    assert in_tokyo == table.sql(text.format(moment - dt.timedelta(hours=9)))
    assert in_tokyo != table.sql(text.format(moment))


def test_a_text_is_read_anew_where_its_views_have_other_names(table: Table) -> None:
    text = "SELECT max(id) AS m FROM t WHERE id > 41"
    answer = table.scan(text).to_arrow()
    with duckdb.connect() as connection:
        assert table.scan(text).to_duckdb(connection).to_arrow_table().to_pylist() == answer.to_pylist()


def test_answers_have_sparks_types(table: Table) -> None:
    found = table.sql(
        "SELECT sum(price) AS p, count(*) AS n, sum(id) AS s, max(seen) AS t, year(day) AS y FROM t GROUP BY 5"
    )
    assert found.schema.types == [
        pa.decimal128(25, 2),
        pa.int64(),
        pa.int64(),
        pa.timestamp("us", tz="UTC"),
        pa.int32(),
    ]
    assert table.sql("SELECT * FROM t WHERE id < 0").schema.names == list(SCHEMA.names)


@pytest.mark.parametrize("bound", ["0.25", "-1", "5"])
def test_nan_is_above_every_number_in_both_ways_of_reading(bound: str, table: Table, rows: pa.Table) -> None:
    limit = float(bound)
    scores = dict(zip(rows["id"].to_pylist(), rows["score"].to_pylist(), strict=True))
    above = {i for i, score in scores.items() if score is not None and (math.isnan(score) or score > limit)}
    below = {i for i, score in scores.items() if score is not None and i not in above}
    streamed = table.sql(f"SELECT id FROM t WHERE score > {bound}")["id"].to_pylist()
    kept = table.sql(f"WITH c AS (SELECT * FROM t) SELECT id FROM c WHERE score > {bound}")["id"].to_pylist()
    assert set(streamed) == set(kept) == above
    assert set(table.sql(f"SELECT id FROM t WHERE score <= {bound}")["id"].to_pylist()) == below
    assert any(math.isnan(score) for i, score in scores.items() if i in above and score is not None)


def test_columns_and_condition_are_exact(table: Table, rows: pa.Table) -> None:
    found = table.scan(columns=["price", "ID"], where="kind = 'air' AND price > 60").to_arrow()
    assert found.column_names == ["price", "id"]
    assert same(found.to_pylist(), expected("SELECT price, id FROM t WHERE kind = 'air' AND price > 60", rows))
    assert table.scan(columns=["id"]).to_arrow().num_rows == rows.num_rows
    assert table.scan(where="id = 3").to_arrow().column_names == list(SCHEMA.names)


def test_surviving_rows_hold_every_match(table: Table, rows: pa.Table) -> None:
    (read,) = table.scan("SELECT id FROM t WHERE kind = 'air' AND price > 60").reads
    survivors = pa.Table.from_batches(read.batches())
    matching = {row["id"] for row in expected("SELECT id FROM t WHERE kind = 'air' AND price > 60", rows)}
    assert matching <= set(survivors["id"].to_pylist())
    assert survivors.num_rows < rows.num_rows / 2
    assert survivors.column_names == ["id", "kind", "price"]


def test_a_self_join_skips_by_each_mention(table: Table) -> None:
    scan = table.scan("SELECT a.id FROM t a JOIN t b ON a.id = b.id WHERE a.kind = 'air' AND b.year = 1995")
    by_kind, by_year = scan.explain().reads
    assert by_kind.skipped_by["features"].blocks > 0
    assert by_kind.skipped_by["partition"].blocks == 0
    assert by_year.skipped_by["partition"].rows == 200


def test_duckdb_relation_is_the_callers(table: Table, rows: pa.Table) -> None:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    relation = table.scan("SELECT id FROM t WHERE kind = 'air'").to_duckdb(connection)
    assert relation.count("*").fetchall() == [(len(expected("SELECT id FROM t WHERE kind = 'air'", rows)),)]
    assert len(relation.fetchall()) == len(expected("SELECT id FROM t WHERE kind = 'air'", rows))


def test_a_duckdb_relation_has_the_names_of_the_answer(table: Table) -> None:
    scan = table.scan("SELECT id AS Id, price AS `The Price` FROM t WHERE kind = 'air'")
    assert scan.to_duckdb(duckdb.connect()).columns == scan.to_arrow().column_names == ["Id", "The Price"]
    twice = table.scan("SELECT id, id AS ID FROM t WHERE kind = 'air'").to_duckdb(duckdb.connect())
    assert len(twice.columns) == 2


def test_answers_as_frames(table: Table) -> None:
    scan = table.scan("SELECT id AS Id, kind FROM t WHERE kind = 'air'")
    answer = scan.to_arrow()
    for frame in (scan.to_pandas(), scan.to_polars()):
        assert list(frame.columns) == ["Id", "kind"]
        assert list(frame["Id"]) == answer["Id"].to_pylist()


def test_files_are_readable_by_anybody(table: Table, rows: pa.Table) -> None:
    found = pa.concat_tables([pq.read_table(path) for path in table.files()])
    assert same(found.select(list(SCHEMA.names)).to_pylist(), rows.to_pylist())
    with pytest.raises(QueryError, match="layout 1"):
        table.files(layout=1)


def test_bad_input_is_named(table: Table) -> None:
    with pytest.raises(QueryError, match="nonsense"):
        table.sql("SELECT nonsense FROM t")
    with pytest.raises(SchemaError, match="nonsense"):
        table.scan(columns=["nonsense"])
    with pytest.raises(QueryError, match="remove one of them"):
        table.scan("SELECT 1 FROM t", columns=["id"])
    with pytest.raises(QueryError, match="--engine spark"):
        table.sql("SELECT stddev(price) FROM t")


def test_an_overflow_is_an_error_of_ours(table: Table) -> None:
    with pytest.raises(QueryError, match="--engine spark"):
        table.sql("SELECT max(id + 2147483647) FROM t")


@pytest.mark.unshadowed("data files are damaged")
def test_damaged_and_missing_files_are_named(tmp_path: Path, rows: pa.Table) -> None:
    table = build(tmp_path, rows, building(SCHEMA, CONDITIONS, partition_by="year"))
    cut, gone = (Path(path) for path in table.files()[:2])
    cut.write_bytes(cut.read_bytes()[:-20])
    with pytest.raises(DataFileError, match=cut.name):
        table.sql("SELECT max(price) FROM t WHERE year = 1994")
    gone.unlink()
    with pytest.raises(DataFileError, match=gone.name):
        table.sql("SELECT max(price) FROM t WHERE year = 1995")
    assert table.sql("SELECT count(price) FROM t WHERE year = 1996").num_rows == 1


def test_a_flipped_page_is_no_wrong_answer(tmp_path: Path, rows: pa.Table) -> None:
    table = build(tmp_path, rows, building(SCHEMA, CONDITIONS, blocking=by_position(100)))
    (path,) = (Path(path) for path in table.files())
    content = bytearray(path.read_bytes())
    start = pq.read_metadata(path).row_group(1).column(3).dictionary_page_offset
    content[start : start + 40] = bytes(40)
    path.write_bytes(bytes(content))
    with pytest.raises(DataFileError, match="damaged"):
        table.sql("SELECT sum(price) FROM t")


def test_an_empty_table_answers(tmp_path: Path, rows: pa.Table) -> None:
    table = build(tmp_path, rows.slice(0, 0), building(SCHEMA, CONDITIONS))
    assert table.sql("SELECT count(*) AS n FROM t").to_pylist() == [{"n": 0}]
    assert table.sql("SELECT id, day FROM t WHERE kind = 'air'").num_rows == 0


def test_a_table_keeps_its_snapshot(tmp_path: Path, rows: pa.Table) -> None:
    first = build(tmp_path, rows, building(SCHEMA, CONDITIONS))
    build(tmp_path, rows.slice(0, 10), building(SCHEMA, CONDITIONS), load_id="load-2")
    assert first.sql("SELECT count(*) AS n FROM t").to_pylist() == [{"n": rows.num_rows}]
    assert layoutopt.open_table(str(tmp_path)).rows == 10
    assert layoutopt.open_table(str(tmp_path), snapshot=0).rows == rows.num_rows


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("SELECT id FROM films WHERE kind = 'air'", "films"),
        ("SELECT id FROM prod.t", "prod.t"),
        ("WITH c AS (SELECT 1 AS x) SELECT x FROM c JOIN films ON TRUE", "films"),
    ],
)
def test_a_text_about_another_table_is_refused(table: Table, sql: str, named: str) -> None:
    with pytest.raises(QueryError, match=f"reads '{named}', but the table is called 't'"):
        table.scan(sql)


def test_a_text_about_no_table_is_answered(table: Table) -> None:
    assert table.sql("SELECT 1 AS one").to_pylist() == [{"one": 1}]
    assert table.sql("WITH c AS (SELECT 1 AS one) SELECT one FROM c").to_pylist() == [{"one": 1}]


@pytest.mark.parametrize("words", [("query",), ("explain",), ("explain", "--bytes"), ("query", "--engine", "spark")])
def test_the_command_line_says_what_the_table_is_called(
    table: Table, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    verb, *flags = words
    assert main([verb, table.catalog.files.root, "SELECT id FROM films", *flags]) == BAD_USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert "'films', but the table is called 't'" in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("returns", ["float", "double"])
def test_functions_of_users_may_give_nan(tmp_path: Path, rows: pa.Table, returns: str) -> None:
    @layoutopt.udf(returns, version="1")
    def half(a: float | None) -> float | None:
        return None if a is None else a / 2

    built = build(tmp_path, rows, building(SCHEMA, CONDITIONS))
    table = layoutopt.open_table(built.catalog.files.root, udfs=[half])

    def ids(condition: str) -> list[int]:
        return sorted(table.sql(f"SELECT id FROM t WHERE {condition}")["id"].to_pylist())

    assert any(score is not None and math.isnan(score) for score in rows["score"].to_pylist())
    for condition in ("half({}) > 0.2", "NOT (half({}) < 0.2)", "half({}) IS NULL", "half({}) IS NOT NULL"):
        assert ids(condition.format("score")) == ids(condition.replace("half({})", "score / 2")) != []
    with pytest.raises(QueryError, match=r"half\('air'\) failed .*fix the function"):
        ids("half(kind) > 1 AND kind = 'air'")
