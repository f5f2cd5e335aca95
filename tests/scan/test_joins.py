"""Texts over several tables: each mention skips by its own filter, and the answer is that over all rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from layoutopt.errors import QueryError, SettingError, SourceError, UnknownTableError
from layoutopt.external.external_tables import read_schema
from layoutopt.scan.table import SourceTable, Table, open_source
from layoutopt.sql.duckdb.translate import portable_sql
from tests import duck
from tests.effort import examples
from tests.external.folders import index, write
from tests.scan.builder import build, building
from tests.scan.layouts import OVERLAPPING
from tests.scan.tables import CONDITIONS as FEATURES
from tests.scan.tables import SCHEMA, same, some_rows

pytestmark = pytest.mark.checks_texts

KINDS = pa.table(
    {
        "kind": ["air", "rail", "ship", "ship", "", "bike", None, "mail"],
        "speed": pa.array([900, 120, 30, None, 0, 20, 5, 60], pa.int64()),
        "id": pa.array([3, 5, 8, 13, 21, 34, 55, 89], pa.int32()),
    }
)
JOINS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN", "CROSS JOIN"]
CONDITIONS = [
    "t.kind = 'air'", "t.id < 40", "t.price > 90", "t.day >= DATE '1995-06-01'", "t.kind IS NULL",
    "k.speed > 50", "k.id IN (3, 8, 21)", "k.kind LIKE 's%'", "k.speed IS NULL", "k.id > t.id", "t.id % 7 = k.id % 7",
]  # fmt: skip


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> SourceTable:
    folder = tmp_path_factory.mktemp("kinds")
    write(folder / "a.parquet", KINDS.slice(0, 5), row_group_size=2)
    write(folder / "b.parquet", KINDS.slice(5), row_group_size=2)
    return open_source(str(folder), "k")


def answer(sql: str, rows: pa.Table) -> list[dict[str, Any]]:
    """The answer over all rows, by DuckDB without anything of the scan."""
    with duck.connection() as connection:
        connection.register("t", rows)
        connection.register("k", KINDS)
        return list(connection.sql(sql).to_arrow_table().to_pylist())


def some_join(draw: random.Random) -> str:
    kind = draw.choice(JOINS)
    on, where = (" AND ".join(draw.sample(CONDITIONS, draw.randint(0, 2))) for _ in range(2))
    if "SEMI" in kind or "ANTI" in kind:
        where = " AND ".join(part for part in where.split(" AND ") if part and "k." not in part)
    elif kind == "CROSS JOIN":
        on = ""
    keys = "" if kind == "CROSS JOIN" else f" ON t.kind = k.kind{' AND ' + on if on else ''}"
    columns = "t.id, t.price" if "SEMI" in kind or "ANTI" in kind else "t.id, t.price, k.speed, k.id AS other"
    return f"SELECT {columns} FROM t {kind} k{keys}{' WHERE ' + where if where else ''}"


def to_duckdb(sql: str) -> str:
    return sql.replace("LEFT SEMI", "SEMI").replace("LEFT ANTI", "ANTI")


@pytest.mark.parametrize("seed", range(examples(60)))
def test_joins_answer_as_over_all_rows(by_year: Table, kinds: SourceTable, rows: pa.Table, seed: int) -> None:
    sql = some_join(random.Random(seed))
    found = by_year.sql(sql, {"k": kinds}).to_pylist()
    assert same(found, answer(to_duckdb(sql), rows)), sql


def test_each_mention_skips_by_its_own_filter(by_year: Table, kinds: SourceTable) -> None:
    sql = "SELECT count(*) FROM t JOIN k ON t.kind = k.kind WHERE t.kind = 'air' AND k.id < 4"
    first, second = by_year.scan(sql, tables={"k": kinds}).explain().reads
    assert (first.table, second.table) == ("t", "k")
    assert by_year.explain(sql, {"k": kinds}).to_json() == by_year.scan(sql, tables={"k": kinds}).explain().to_json()
    assert first.read.blocks < first.total.blocks
    assert (second.total.blocks, second.read.blocks) == (5, 1), "row groups by their footers"


@pytest.mark.parametrize("join", ["JOIN k ON t.id = k.id", "RIGHT JOIN k ON k.id = t.id"])
def test_a_condition_on_a_key_skips_as_one_on_the_equal_column(
    by_year: Table, kinds: SourceTable, rows: pa.Table, join: str
) -> None:
    sql = f"SELECT t.price FROM t {join} WHERE k.id = 13"
    read = by_year.explain(sql, {"k": kinds}).reads[0]
    own = by_year.explain("SELECT price FROM t WHERE id = 13").reads[0]
    assert read.read.blocks == own.read.blocks < own.total.blocks
    assert read.conjuncts == own.conjuncts != ()
    assert "id = 13" in str(read.conjuncts).replace("`", "")
    assert same(by_year.sql(sql, {"k": kinds}).to_pylist(), answer(sql, rows))


def test_subqueries_and_ctes_read_further_tables(by_year: Table, kinds: SourceTable, rows: pa.Table) -> None:
    for sql in (
        "SELECT t.id FROM t WHERE t.kind IN (SELECT kind FROM k WHERE speed > 50)",
        "WITH fast AS (SELECT kind, max(speed) AS best FROM k GROUP BY kind) "
        "SELECT t.id, fast.best FROM fast JOIN t ON t.kind = fast.kind",
        "SELECT id FROM t WHERE id < 5 UNION ALL SELECT id FROM k",
        "SELECT k.kind FROM k WHERE k.speed > 100",
    ):
        assert same(by_year.sql(sql, {"k": kinds}).to_pylist(), answer(sql, rows)), sql


def test_a_layout_joins_another_and_itself(by_year: Table, rows: pa.Table) -> None:
    sql = "SELECT t.id FROM t JOIN k ON t.id = k.id WHERE t.kind = 'air' AND k.year = 1995"
    with duck.connection() as connection:
        connection.register("t", rows)
        connection.register("k", rows)
        assert same(by_year.sql(sql, {"k": by_year}).to_pylist(), connection.sql(sql).to_arrow_table().to_pylist())


def test_names_are_told_apart(by_year: Table, kinds: SourceTable) -> None:
    for name in ("t", "T"):
        with pytest.raises(SettingError, match=r"two tables are called '[tT]'"):
            by_year.sql("SELECT * FROM t", {name: kinds})
    with pytest.raises(SettingError, match="two tables are called 'K'"):
        by_year.sql("SELECT * FROM t", {"k": kinds, "K": kinds})
    with pytest.raises(UnknownTableError, match=r"^there is no table 'users'; the query can read t, k$"):
        by_year.sql("SELECT t.id FROM t JOIN users ON t.id = users.id", {"k": kinds})
    with pytest.raises(QueryError, match="called 't' or 'k'; use that name"):
        by_year.sql("SELECT * FROM prod.t", {"k": kinds})


def test_texts_of_one_table_are_not_taken_for_those_of_several(by_year: Table, kinds: SourceTable) -> None:
    sql = "SELECT k.id FROM k"  # each table has such a column
    assert by_year.sql(sql, {"k": kinds}).num_rows == KINDS.num_rows
    with pytest.raises(QueryError):
        by_year.sql(sql)
    assert by_year.sql(sql, {"k": by_year}).num_rows == by_year.rows


def test_files_of_a_table_are_no_source(tmp_path: Path, rows: pa.Table) -> None:
    """Its deleted rows would come back, and rows of several layouts would come several times."""
    root = tmp_path / "t"
    table = build(root, rows, building(SCHEMA, FEATURES, layouts=OVERLAPPING))
    for path in (root, root / "data", Path(table.files(0)[0]).parent, table.files(0)[0], f"file://{root}/data"):
        sentence = rf"'[^']*{root}' is a layoutopt table, whose files also hold deleted .* by open_table"
        with pytest.raises(SourceError, match=sentence):
            open_source(str(path))
        with pytest.raises(SourceError, match=sentence):
            read_schema(str(path))
    write(tmp_path / "lake" / "a.parquet", KINDS)
    index(tmp_path / "lake", tmp_path / "indexes", [])
    write(tmp_path / "indexes" / "more" / "a.parquet", KINDS)
    assert open_source(str(tmp_path / "indexes" / "more")).rows == KINDS.num_rows, "indexes hold no rows"


def test_sources_are_named_as_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "kinds" / "a.parquet", KINDS)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for source in (f"file://{tmp_path}/kinds", f"file:{tmp_path}/kinds/", "~/kinds", "kinds/"):
        table = open_source(source)
        assert (table.rows, table.source) == (KINDS.num_rows, str(tmp_path / "kinds")), source
    for source in ("", " "):
        with pytest.raises(SettingError, match=f"the source is '{source}', expected a path"):
            open_source(source)


def test_a_version_is_kept(tmp_path: Path) -> None:
    """Spark, which reads a source by its name, then has the same rows."""
    write_deltalake(str(tmp_path / "k"), KINDS)
    table = open_source(f"delta:{tmp_path / 'k'}")
    write_deltalake(str(tmp_path / "k"), KINDS, mode="append")
    assert table.source == f"delta:{tmp_path / 'k'}@0"
    assert open_source(table.source).rows == table.rows == KINDS.num_rows
    assert open_source(f"delta:{tmp_path / 'k'}@1").rows == 2 * KINDS.num_rows


def test_sources_are_read_as_they_are(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="there is nothing"):
        open_source(str(tmp_path / "none"))
    for day, part in (("1", KINDS.slice(0, 3)), ("2", KINDS.slice(3))):
        write(tmp_path / "days" / f"day={day}" / "a.parquet", part)
    table = open_source(str(tmp_path / "days"), "k")
    assert table.sql("SELECT day, count(*) AS n FROM k GROUP BY day ORDER BY day").to_pylist() == [
        {"day": 1, "n": 3},
        {"day": 2, "n": 5},
    ]
    pq.write_table(some_rows(), tmp_path / "one.parquet", row_group_size=50)
    one = open_source(str(tmp_path / "one.parquet"))
    with duck.connection() as connection:
        connection.register("t", some_rows())
        for condition in ("score > 0.5", "NOT score <= 0.5", "kind = 'air' AND price < 20", "day IS NULL"):
            sql = f"SELECT id FROM t WHERE {condition}"
            expected = connection.sql(portable_sql(sql, {"t": SCHEMA}, "t").sql).to_arrow_table().to_pylist()
            assert same(one.sql(sql).to_pylist(), expected), condition
