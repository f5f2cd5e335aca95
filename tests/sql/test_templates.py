"""Statements read by templates: the scans are those of each statement on its own."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest

from jobs.bench.brushing import make_rows, texts_of
from jobs.bench.tpch_queries import STREAMS, TABLE, draw_stream
from layoutopt.external.external_tables import read_schema
from layoutopt.model.schema import Column, Schema
from layoutopt.sql import dialect, scans, templates
from layoutopt.sql.problems import StatementError
from layoutopt.sql.scans import TableScan, find_scans
from layoutopt.sql.schema import schemas_from
from layoutopt.sql.templates import ScanFinder, take_constants
from layoutopt.workload.log import read_log
from tests.effort import one_in
from tests.workload.semantics import CONDITIONS
from tests.workload.semantics import SCHEMA as EVERY_TYPE

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = Schema((Column("a", "int"), Column("b", "string"), Column("c", "double"), Column("d", "date")))
PUBLIC_BI = next(
    (p / "shared/data/public_bi" for p in Path(__file__).resolve().parents if (p / "shared/data/public_bi").is_dir()),
    Path("shared/data/public_bi"),
)
Outcome = list[TableScan] | str


def on_its_own(sql: str, tables: Mapping[str, Schema], dialect: str = "spark") -> Outcome:
    try:
        return [replace(scan, span=None) for scan in find_scans(sql, tables, dialect, any_qualifier=True)]
    except StatementError as error:
        return error.code  # details may show another text of the template


def by_template(finder: ScanFinder, sql: str, dialect: str = "spark") -> Outcome:
    try:
        return finder.find(sql, dialect)
    except StatementError as error:
        return error.code  # details may show another text of the template


def other_texts(sql: str, count: int, seed: int = 0) -> Iterable[str]:
    """The text, and others of its template."""
    yield sql
    draw, (skeleton, constants) = random.Random(f"{sql} {seed}"), take_constants(sql)
    for _ in range(count):
        values = [_other(constant, draw) for constant in constants]
        parts = skeleton.split("\0")
        yield parts[0] + "".join(value + part[1:] for value, part in zip(values, parts[1:], strict=True))


def _other(constant: str, draw: random.Random) -> str:
    if constant[0] == "(":
        kinds = [*re.findall(r"'[^']*'|[\d.]+", constant), "'x'", "2.5"]
        items = [_other(draw.choice(kinds[: draw.choice([-2, 99])]), draw) for _ in range(draw.choice([1, 2, 9]))]
        return f"({draw.choice([', ', ',', ' , ']).join(items)})"
    if constant[0] != "'":
        whole, point, places = constant.partition(".")
        other = draw.choice(
            [whole, "0", "1", "7", "00", "2147483648", "99999999999999999999", str(draw.randint(0, 400))]
        )
        return other + point + (draw.choice([places, "0", "50", "000001"]) if point else "")
    text = constant[1:-1]
    if text[:4].isdecimal() and text[4:5] == "-":
        return f"'{draw.choice(['1994', '2026', '0001', '9999'])}{draw.choice([text[4:], '-02-30', '-12-31'])}'"
    if text.isdecimal():
        return f"'{draw.choice(['0', '5', '007', '12345678901'])}'"
    return draw.choice([constant, "''", "'a%'", "'%_b'", "' '", "'Zürich'", "'x\"y'", "'-- no comment'", "'a;b'"])


def check(texts: Sequence[str], tables: Mapping[str, Schema], dialect: str = "spark") -> None:
    finder = ScanFinder(tables, any_qualifier=True)
    for sql in texts:
        assert by_template(finder, sql, dialect) == on_its_own(sql, tables, dialect), sql


@pytest.mark.parametrize("number", one_in(2, range(8)))
def test_conditions_of_every_kind_with_other_constants(number: int) -> None:
    for condition in CONDITIONS[number::8]:
        check(list(other_texts(f"SELECT i FROM t WHERE {condition} LIMIT 5", 6, number)), {"t": EVERY_TYPE})


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a FROM t WHERE a = 5 AND b = 'x' ORDER BY 1 LIMIT 10",
        "SELECT a, 5 AS five FROM t WHERE c > 1.5 GROUP BY a, 2 HAVING count(*) > 3",
        "SELECT x.a FROM t x LEFT JOIN t y ON x.a = y.a AND y.c < 3.5 WHERE coalesce(y.a, 7) > 3 AND x.b LIKE 'ab%'",
        "SELECT * FROM (SELECT a AS k, c + 1 AS v FROM t WHERE d < DATE '1995-01-01') WHERE k IN (1, 2, 3) AND v > 10",
        "WITH w AS (SELECT a, b FROM t WHERE a BETWEEN 3 AND 9) SELECT w.a FROM w JOIN w v ON w.a = v.a WHERE w.b = ''",
        "SELECT a FROM t WHERE d >= DATE '1994-01-01' + INTERVAL '3' MONTH AND d < DATE '1994-01-01' + INTERVAL 1 YEAR",
        "SELECT a FROM t -- don't\n WHERE a = 5 /* it's 7 */ AND b = 'x'",
        "SELECT a FROM t WHERE b = 'it''s' AND a = 3 AND b <> \"5\" AND b <> r'\\5'",
        "SELECT a FROM t WHERE a = 5L OR a = 7 OR c = 1e3 OR c = .5 OR c = 3D",
        "SELECT a FROM t WHERE CASE WHEN a > 5 THEN b = 'x' ELSE c < 2.5 END",
        "SELECT a FROM t WHERE CAST(c AS decimal(7, 2)) > 3.25 AND substring(b, 1, 3) = 'abc'",
        "SELECT a FROM t WHERE a NOT IN (1, 2) AND NOT (b = 'y' OR c <= 4) AND a <> - 3",
        "SELECT a FROM t WHERE a = 1 AND nope = 5",
        "SELECT a FROM t TABLESAMPLE (5 PERCENT) WHERE a = 7",
        "SELECT a FROM t WHERE a IN (SELECT a FROM t WHERE c > 5.5 LIMIT 3) AND a > 2",
        "INSERT INTO u SELECT a FROM t WHERE a = 5",
        "SELECT a FROM t WHERE a IN (1, 2) AND NOT (b NOT IN ('x', 'y', 'z') OR c IN (1, 2.5)) AND d IN ('1994-01-01')",
        "SELECT a FROM t WHERE a IN (1, NULL) OR b NOT IN ('x', NULL) OR a IN (-1, 2) OR c NOT IN (-1.5, - 2.5, 3)",
        "SELECT a FROM t WHERE d IN (DATE '1994-01-01', DATE '1994-01-02') OR d IN (CAST('1994-01-01' AS DATE))",
        "SELECT a FROM t WHERE (a, b) IN ((1, 'x'), (2, 'y')) OR a IN ((1), (2)) OR a IN (1 + 1, 3) OR (a) IN ((7))",
        "SELECT a FROM t WHERE coalesce(a, 1, 2) = 3 AND concat(b, 'x', 'y') IN ('axy', 'bxy') AND least(a, 5) > 1",
        "SELECT a FROM t WHERE struct(1, 2) IN (struct(1, 2)) OR array(1, 2) IN (array(1), array(2, 3)) OR a IN (b, 1)",
        "SELECT a FROM t WHERE a IN (5L, 6L) OR a IN (1e3, 2) OR b IN ('it''s', 'x') OR b IN (r'x', 'y') AND b = 'y'",
        "SELECT a FROM t WHERE 5 IN (1, 2, a) OR 5 IN (4, 5) OR 'x' IN ('x', 'y') OR a + 1 IN (7, 8) OR c IN (5, 6)",
        "SELECT a IN (1, 2) FROM t WHERE position('a' IN b) > 0 AND CASE WHEN a IN (1, 2) THEN b ELSE 'z' END = 'x'",
        "SELECT x.a FROM t x LEFT JOIN t y ON x.a = y.a AND y.c IN (1, 2) WHERE y.b IN ('x', 'y') AND x.a NOT IN (1)",
        "SELECT k FROM (SELECT a AS k, b FROM t WHERE a IN (1, 2, 3)) WHERE k IN (2, 3) AND b IN ('x') OR k IN (4)",
        "SELECT a FROM (SELECT * FROM t PIVOT (sum(c) FOR b IN ('x', 'y'))) WHERE a IN (1, 2)",
        "SELECT a FROM t WHERE a IN (SELECT v FROM VALUES (1), (2) AS w(v)) OR exists(array(a), x -> x IN (1, 2))",
        "SELECT a FROM t WHERE b NOT IN('x','y')AND a IN\n(1,\n2) AND a IN (3 -- )\n, 4) AND b IN ('--', '/*')",
        "SELECT CASE WHEN (SELECT count(*) FROM t WHERE a > 3) > 7 THEN 1 WHEN c IN (1, 2) THEN a = 5 END FROM t",
        "SELECT k FROM (SELECT CASE WHEN a > 5 THEN 'x' ELSE b END AS k, a = 5 FROM t GROUP BY 1, a) WHERE k = 'x'",
        "SELECT v FROM (SELECT a BETWEEN 3 AND 9 AS v, c > 2.5 FROM t) WHERE v AND NOT v IS NULL ORDER BY v = 5, 1",
        "SELECT a FROM t WHERE a IN (SELECT a FROM t GROUP BY 1 ORDER BY 2 LIMIT 5) AND a > (SELECT max(5) FROM t)",
        "SELECT x.a FROM t x JOIN (SELECT a, 5 FROM t WHERE c > 3 LIMIT 7) y ON x.a = y.a AND y.a > 4 QUALIFY x.a > 5",
        "SELECT sum(CASE WHEN b IN ('x', 'y') THEN c ELSE 0 END) AS s FROM t WHERE a = 5 GROUP BY b LIKE 'x%'",
        "FROM t |> WHERE a = 5 |> LIMIT 3 |> WHERE b = 'x' |> EXTEND 7 AS k |> WHERE c > 2.5 AND k = 7",
        "FROM t |> AGGREGATE sum(c) AS s, max(5) GROUP BY a > 3 AS k, b |> WHERE k AND b = 'x' AND s > 7",
        "FROM (SELECT * FROM t WHERE a > 5) INSERT INTO u SELECT a WHERE b = 'x' INSERT INTO v SELECT 7 WHERE c > 2.5",
        "MERGE INTO u USING t ON u.a = t.a AND t.c > 2.5 WHEN MATCHED AND t.a = 7 THEN UPDATE SET b = 'x'",
        "WITH w AS (SELECT a FROM t WHERE c > 5) DELETE FROM u WHERE a IN (SELECT a FROM w WHERE a > 3) OR a = 7",
        "CACHE TABLE u AS SELECT a, 5 FROM t WHERE a = 5 AND b = 'x'",
        "SELECT a FROM t WHERE (a = 5) IS NOT TRUE AND coalesce(b = 'x', false) AND (c > 2.5) = true AND a DIV 7 = 3",
        "SELECT a FROM t WHERE (a, b) NOT IN ((1, 'x'), (2, 'y')) AND (a, c) = (5, 7.5)",
        "SELECT a FROM t WHERE exists(array(1, 2), x -> a = x) OR exists(array('x', 'y'), e -> b = e) AND a = 5",
        "SELECT a FROM t WHERE a IN (SELECT explode(array(1, 2))) AND d > to_date('20200131', 'yyyyMMdd')",
        "SELECT a FROM t WHERE date_format(d, 'yyyy-MM') = '2020-01' OR from_unixtime(a, 'yyyy') IN ('2020')",
        "SELECT a FROM t WHERE d = make_date(2020, 1, 31) OR b >= date_format(DATE '2020-01-31', 'yyyyMM') OR a < 5",
        "SELECT to_json(t) FROM t WHERE _PARTITIONTIME > '2020-01-01' AND a = 5",
        "SELECT a FROM t WHERE a IN () OR a IN (1,) OR a IN (,1)",
        "SELECT a FROM t WHERE a IN (1, 2",
        "SELECT a FROM t WHERE a =",
        "DROP TABLE t5",
    ],
)
def test_statements_of_every_shape(sql: str) -> None:
    check(list(other_texts(sql, 20)), {"t": SCHEMA})


@pytest.mark.long
def test_each_statement_of_the_streams_and_traces(tmp_path: Path) -> None:
    schema = read_schema(str(ROOT / "data" / "tpch_sample.parquet"))
    for stream in STREAMS.values():
        check([query.sql for query in draw_stream(stream, "test", 12, seed=1)], {TABLE: schema})
    for name in ("weather", "movies", "trips"):
        pq.write_table(make_rows(name, 50), tmp_path / f"{name}.parquet")
        check(texts_of(name, "test")[:300], {name: read_schema(str(tmp_path / f"{name}.parquet"))})


@pytest.mark.long
@pytest.mark.skipif(not PUBLIC_BI.is_dir(), reason="the Public BI workloads are not beside the project")
def test_public_bi() -> None:
    for folder in sorted(path for path in PUBLIC_BI.iterdir() if path.is_dir()):
        schemas = schemas_from((folder / "schema.sql").read_text(encoding="utf-8"))
        texts = [entry.sql for entry in read_log(folder / "queries.sql", dialect="postgres")]
        check([other for sql in texts for other in other_texts(sql, 2)], schemas, "postgres")


@pytest.mark.parametrize(
    "source", ["bigquery", "clickhouse", "duckdb", "mysql", "postgres", "snowflake", "trino", "tsql"]
)
def test_lists_in_other_dialects(source: str) -> None:
    sql = "SELECT a FROM t WHERE a IN (1, 2, 3) AND b NOT IN ('x', 'y') AND c IN (1, 2.5) AND d IN ('1994-01-01')"
    check(list(other_texts(sql, 40)), {"t": SCHEMA}, source)


def test_lists_of_any_length_are_one_template() -> None:
    finder, draw = ScanFinder({"t": SCHEMA}), random.Random(5)
    lists = [[draw.randint(-9, 99) ** 2 for _ in range(draw.randint(1, 60))] for _ in range(100)]
    texts = [
        f"SELECT a FROM t WHERE a IN ({', '.join(map(str, items))}) AND b NOT IN ('{items[0]}')" for items in lists
    ]
    with patch.object(dialect, "_parse", wraps=dialect._parse) as parse:
        found = [finder.find(sql) for sql in texts]
    assert parse.call_count <= 5, "with stand-ins, and the 1st, 8th and 64th text as a whole"
    assert found == [on_its_own(sql, {"t": SCHEMA}) for sql in texts]


def test_templates_share_what_their_conditions_mean() -> None:
    columns = ("a", "b", "a, c", "c AS a", "count(*)")
    conditions = (
        "a > {n} AND b = '{n}'", "a > {n} OR c > {n}.5", "(a > {n})", "a >= {n}", "a + {n} > 2",
        "coalesce(y.a, 7) > {n}", "y.a > {n}",
    )  # fmt: skip
    sources = (
        "t", "t y", "t AS a", "(SELECT * FROM t WHERE c < 1) t", "t JOIN t u ON t.a = u.a",
        "t x LEFT JOIN t y ON x.b = y.b", "t JOIN (SELECT k FROM u) u ON b = u.k", "t y TABLESAMPLE (5 PERCENT)",
    )  # fmt: skip
    texts = [
        f"SELECT {column} FROM {source} {clause} {condition.format(n=n)}"
        for n in (1, 2, 1)
        for condition in conditions
        for column in columns
        for source, clause in [*((source, "WHERE") for source in sources), ("t y LEFT JOIN (SELECT k FROM u) v", "ON")]
    ]
    schema = Schema((*SCHEMA.columns, Column("y", "struct<a:int>")))
    with patch.object(templates._Template, "is_check_due", return_value=False):  # it would mend what is shared wrongly
        check(texts, {"t": schema})
    finder = ScanFinder({"t": SCHEMA})
    with patch("layoutopt.sql.templates.read_condition", wraps=scans.read_condition) as read:
        for column in columns:
            for n in range(9):
                finder.find(f"SELECT {column} FROM t WHERE a > {n}")
    assert read.call_count == 9


def test_templates_parse_a_text_once() -> None:
    finder, tables = ScanFinder({"t": SCHEMA}), {"t": SCHEMA}
    texts = [f"SELECT a FROM t WHERE a = {n} AND b IN ('{n}x', 'y') LIMIT 5" for n in range(100)]
    with patch.object(dialect, "_parse", wraps=dialect._parse) as parse:
        found = [finder.find(sql) for sql in texts]
    assert parse.call_count <= 5, "with stand-ins, and the 1st, 8th and 64th text as a whole"
    assert found == [on_its_own(sql, tables) for sql in texts]
