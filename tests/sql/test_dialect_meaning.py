"""Conditions of other dialects have the rows that their own system gives them."""

from __future__ import annotations

import datetime as dt
import importlib.util
import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

from layoutopt.errors import QueryError
from layoutopt.evaluation.conditions import bits_query, evaluate_conditions
from layoutopt.model.predicates import to_sql
from layoutopt.model.schema import Column, Schema
from layoutopt.sql.dialect_meaning import MEANINGS, TRAITS, list_meanings
from layoutopt.sql.problems import StatementError
from layoutopt.sql.scans import TableScan, find_scans
from layoutopt.sql.templates import ScanFinder
from tests.sql.systems import (
    TYPES,
    ClickHouse,
    DuckDb,
    Row,
    System,
    clickhouse_value,
    find_postgres,
    make_rows,
    start_postgres,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA: Final = Schema(tuple(Column(name, type) for name, type in TYPES.items()))
ROWS: Final = make_rows()
ROWS_OF_CLICKHOUSE: Final = [tuple(map(clickhouse_value, TYPES.values(), row)) for row in ROWS]
# Columns and constants for the operands of entries.
SAMPLES: Final = {
    "_day": ["d", "ts"], "_calendar": ["d", "ts"], "_date": ["d",
    "e"], "_time": ["ts"], "_text": ["s"], "_whole": ["i", "b"], "_int": ["i", "j"],
    "_number": ["i", "p", "g"], "_sum": ["i", "d", "p"], "_wide": ["i", "d"], "_exact": ["i", "p"], "_decimal": ["p"],
    "_array": ["arr"], "_positive": ["1", "2", "3"], "_natural": ["2", "0"], "_nonzero": ["3", "-2"],
    "_word": ["'a'", "'-'", "'k'"], "_isodate": ["'2024-01-01'"], "_count": ["3", "-7"],
}  # fmt: skip
SECOND: Final = {
    "_date": ["e"], "_text": ["u", "'a'"], "_sum": ["2", "j"], "_wide": ["2"], "_number": ["2", "g"], "_int": ["j"],
    "_exact": ["2", "j"],
}  # fmt: skip


def scan(condition: str, dialect: str) -> TableScan:
    (read,) = find_scans(f"SELECT id FROM t WHERE {condition}", {"t": SCHEMA}, dialect)
    return read


def _is_portable(condition: str) -> bool:
    try:
        bits_query(SCHEMA, (condition,), "UTC")
    except QueryError:
        return False
    return True


def rows_of(conditions: Sequence[str]) -> dict[str, list[int]]:
    """The rows of conditions of Spark, by the product's own engine; of some only Spark knows them."""
    types = {
        "int": pa.int32(), "bigint": pa.int64(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
        "string": pa.string(), "double": pa.float64(), "decimal(15,2)": pa.decimal128(15, 2),
        "array<string>": pa.list_(pa.string()),
    }  # fmt: skip
    columns = {name: pa.array([row[i] for row in ROWS], types[type]) for i, (name, type) in enumerate(TYPES.items())}
    portable = list(filter(_is_portable, dict.fromkeys(conditions)))
    bits = evaluate_conditions(SCHEMA, portable, pa.table(columns), "UTC")
    return {text: [int(i) for i in array.nonzero()[0]] for text, array in zip(portable, bits, strict=True)}


def instances(source: str) -> Iterator[str]:
    """The expressions of an entry."""
    names = sorted(set(re.findall(r"\b_[a-z]+\d?", source)))
    choices = [SECOND[name[:-1]] if name[-1] == "2" else SAMPLES[name] for name in names]
    for values in itertools.product(*choices):
        operands = dict(zip(names, values, strict=True))
        yield re.sub(r"\b_[a-z]+\d?", lambda match, operands=operands: operands[match[0]], source)  # type: ignore[misc]


def conditions_of(expression: str, dialect: str, values: Sequence[Any], most: int) -> Iterator[str]:
    """Conditions that compare an expression with some of its values."""
    if scan(expression, dialect).exact:
        yield from (expression, f"NOT {expression}")
        return
    test = scan(f"{expression} IS NOT NULL", dialect)
    if not test.exact:
        return
    type = test.filter.root.subject.type  # type: ignore[union-attr]
    distinct = sorted({text for text in map(_format, values) if text and text[-1] not in "nf"})
    for text in distinct[:: max(1, len(distinct) // most)][:most]:
        literal = text if re.fullmatch(r"-?\d+(\.\d+)?", text) and type != "string" else _quote(text, dialect)
        yield f"NOT {expression} = {literal}"
        if type != "string" or TRAITS[dialect].ordered_texts:
            yield f"{expression} >= {literal}"
        else:
            yield f"{expression} = {literal}"


def _format(value: object) -> str:
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat(" ")
    return "" if value is None else re.sub(r"(:\d\d)(\.0+)?(\+00)$", r"\1", str(value))


def _quote(text: str, dialect: str) -> str:
    text = text.replace("'", "''")
    return "'" + (text.replace("\\", "\\\\") if dialect == "clickhouse" else text) + "'"


# What no entry says: comparisons, patterns, regular expressions, formats, JSON and intervals.
CONDITIONS: Final = [
    "i = 5", "i <> 5", "NOT (i < 3 OR b IS NULL)", "i IN (1, 2, -7)", "i NOT IN (1, 2)", "i BETWEEN -2 AND 3",
    "d = '2024-01-01'", "d >= '2020-02-29'", "d BETWEEN '2020-12-27' AND '2021-01-03'", "ts >= '2020-12-31 04:00:00'",
    "d > DATE '2024-01-01'", "NOT d = DATE '2024-01-01'", "s = 'a'", "s <> 'a'", "s = 'A'", "s = ''", "s = '5'",
    "s IN ('a', 'AB', '10%')", "s IS NULL", "i = '5'", "i = 2.5", "p = 0.05", "p < 2.5", "g = 0.1", "g > 2.5",
    "NOT g > 2.5", "g >= 5", "NOT g <= 5", "g < 0.5", "g BETWEEN 0 AND 3", "NOT g BETWEEN 0 AND 3", "g IN (0.1, 5)",
    "2.5 < g", "g = 0", "i + 1 = 6", "coalesce(i, 0) = 0", "coalesce(s, 'a') = 'a'",
    "CASE WHEN i > 2 THEN 'x' ELSE 'y' END = 'x'",
    "CASE s WHEN 'a' THEN 1 ELSE 0 END = 1", "nullif(i, 5) IS NULL", "s LIKE 'a%'", "s LIKE '10\\%'",
    "s LIKE '10\\\\%'",
    "s LIKE 'a_b'", "s NOT LIKE '%b%'", "s LIKE '_'", "s LIKE '1\\_0'", "s LIKE '10!%' ESCAPE '!'", "s LIKE '[Aa]%'",
    "s ILIKE 'a%b%'", "s LIKE '%\\\\'", "i <> i", "i < j", "d < e", "s = u",
]  # fmt: skip
OWN: Final = {
    "duckdb": [
        "s ~ '^ab$'", "NOT s ~ '^a.*b$'", "d >= DATE '2024-01-31' + INTERVAL 1 MONTH", "s < 'B'",
        "d + INTERVAL 1 MONTH = '2024-02-29'", "d - INTERVAL 7 DAY > '2024-01-01'", "js ->> 'a' = 'x'",
        "js ->> '$.a.b' = 'x'", "js ->> 'a' <> 'x'", "strftime(d, '%Y-%m') = '2024-01'", "strftime(ts, '%Y') > '2023'",
        "strftime(d, '%Y-%m-%d') IN ('2024-01-01', '2020-02-29')", "i IS NOT DISTINCT FROM 5", "i IS DISTINCT FROM 5",
        "d > '2024-01-01'::DATE - 7", "ts >= TIMESTAMP '2024-01-01 10:00:00' - INTERVAL 3 DAY",
        "d::date = '2024-01-01'",
        "regexp_matches(s, 'ab')", "regexp_matches(s, 'a.b')", "regexp_matches(s, 'b$')", "regexp_matches(s, '^a|x$')",
        "regexp_matches(s, 'ab', 'i')", "regexp_full_match(s, 'a.*')",
    ],
    "postgres": [
        "s ~ 'ab'", "s ~ 'a.b'", "s ~ 'b$'", "s !~ '^a'", "s ~* 'ab'", "s ~ '^10|x$'", "'k' = ANY(arr)",
        "NOT 'k' = ANY(arr)",
        "i = ANY(ARRAY[1, 2])", "d + interval '1 month' = '2024-02-29'", "s LIKE '1\\x'",
        "d >= date '2024-01-31' + interval '1 month'", "to_char(d, 'YYYY-MM') = '2024-01'",
        "to_char(ts, 'YYYY') > '2023'",
        "js ->> 'a' = 'x'", "js -> 'a' ->> 'b' = 'x'", "js ->> 'a' <> 'x'", "d::date = '2024-01-01'",
        "i IS DISTINCT FROM 5",
        "d > '2024-01-01'::date - 7", "extract(year from d)::bigint = 2024", "p = 5.555", "date_part('dow', d) = 0",
    ],
    "clickhouse": [
        "match(s, 'ab')", "match(s, 'a.b')", "match(s, 'b$')", "match(s, '^a|x$')", "s < 'B'",
        "s LIKE '10\\\\\\\\%'", "has(arr, 'k')",
        "formatDateTime(d, '%Y-%m') = '2024-01'", "s LIKE '1\\\\x'", "s LIKE '10\\\\\\\\x'", "d > toDate('2024-01-01')",
    ],
}  # fmt: skip


def ask(system: System, dialect: str, most: int) -> tuple[list[tuple[str, str, list[int]]], list[str]]:
    """Each condition with its filter and the rows that the system returns; and what can't be asked, with the reason.

    Of each expression there are conditions with some of its values, and of the entries at most ``most`` expressions.
    """
    entries = [
        (source, text) for source, _ in list_meanings(dialect) for text in itertools.islice(instances(source), most)
    ]
    conditions = [*CONDITIONS, *OWN[dialect]]
    unproved = dict.fromkeys(source for source, _ in entries)
    for (source, text), values in zip(entries, system.ask([text for _, text in entries]), strict=True):
        made = [] if isinstance(values, str) else list(conditions_of(text, dialect, values, most))
        conditions += made
        if made:
            unproved.pop(source, None)
    left_out = [f"{source}: no condition" for source in unproved]
    asked = []
    for condition, answer in zip(conditions, system.ask(conditions), strict=True):
        read = scan(condition, dialect)
        if isinstance(answer, str) or not read.exact:
            left_out.append(f"{condition}: {answer[:60] if isinstance(answer, str) else read.unusable[0].detail}")
        else:
            assert len(answer) == len(ROWS)
            rows = [number for number, value in enumerate(answer) if value in (True, "t", "1", "true")]
            asked.append((condition, to_sql(read.filter.root), rows))
    return asked, left_out


def rows_in_spark(spark: SparkSession, conditions: Sequence[str], rows: Sequence[Row] = ROWS) -> Iterator[list[int]]:
    """The rows of conditions of Spark, by Spark."""
    kinds = ", ".join(f"{name} {type}" for name, type in TYPES.items())
    frame = spark.createDataFrame(rows, kinds).coalesce(1).cache()
    for start in range(0, len(conditions), 50):
        part = conditions[start : start + 50]
        found = frame.selectExpr(*(f"collect_list(CASE WHEN {text} THEN id END) c{i}" for i, text in enumerate(part)))
        yield from map(sorted, found.first() or ())


def differences(asked: Sequence[tuple[str, str, list[int]]], rows: Iterator[list[int]]) -> list[str]:
    return [
        f"{condition} -> {text}: {sorted(set(own) ^ set(expected))[:5]}"
        for (condition, text, expected), own in zip(asked, rows, strict=True)
        if own != expected
    ]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("dialect", ["duckdb", "clickhouse", "postgres"])
def test_rows_of_the_system(spark: SparkSession, dialect: str) -> None:
    with start(dialect) as system:
        asked, left_out = ask(system, dialect, 3)
    assert not [reason for reason in left_out if reason.endswith("no condition")]
    assert len(asked) > 300
    rows = ROWS_OF_CLICKHOUSE if dialect == "clickhouse" else ROWS
    assert differences(asked, rows_in_spark(spark, [text for _, text, _ in asked], rows)) == []


@contextmanager
def start(dialect: str) -> Iterator[System]:
    if dialect == "postgres":
        if find_postgres() is None:
            pytest.skip("there is no PostgreSQL server: install Debian's package postgresql")
        with start_postgres(ROWS) as system:
            yield system
    elif dialect == "clickhouse":
        if importlib.util.find_spec("chdb") is None:
            pytest.skip("there is no ClickHouse: install chdb")
        yield ClickHouse(ROWS_OF_CLICKHOUSE)
    else:
        yield DuckDb(ROWS)


def test_rows_of_duckdb() -> None:
    """One expression of each entry, by the product's own engine."""
    asked, _ = ask(DuckDb(ROWS), "duckdb", 1)
    simple = [(condition, text, rows) for condition, text, rows in asked if "rlike" not in text and "json" not in text]
    own = rows_of([text for _, text, _ in simple])
    assert len(own) > 100
    wrong = [condition for condition, text, rows in simple if own.get(text, rows) != rows]
    assert wrong == []


@pytest.mark.parametrize("dialect", [*MEANINGS, "athena", "fabric"])
def test_each_entry_is_read(dialect: str) -> None:
    for source, _ in list_meanings(dialect):
        made = [f"{text} IS NOT NULL" for text in instances(source)] + list(instances(source))
        assert any(scan(condition, dialect).exact for condition in made), source


LINES: Final = [
    line.split("\t")
    for line in (Path(__file__).parent / "dialect_values.tsv").read_text(encoding="utf-8").splitlines()
    if line and line[0] != "#"
]


@pytest.mark.spark
def test_values_of_the_documentation(spark: SparkSession) -> None:
    """Each line has a dialect, a condition, a row's values, and whether the condition is TRUE, FALSE or NULL."""
    wrong = []
    checks = []
    for dialect, condition, values, truth in LINES:
        reads = [scan(condition, dialect), scan(f"NOT ({condition})", dialect)]
        assert all(read.exact for read in reads), (dialect, condition, [read.unusable for read in reads])
        assigned = dict(value.split("=", 1) for value in values.split(";"))
        columns = ", ".join(f"CAST({assigned.get(name, 'NULL')} AS {type}) AS {name}" for name, type in TYPES.items())
        tests = ", ".join(f"coalesce({to_sql(read.filter.root)}, FALSE)" for read in reads)
        checks.append((f"SELECT {tests} FROM (SELECT {columns})", truth))
    rows = spark.sql(" UNION ALL ".join(text for text, _ in checks)).collect()
    for line, (is_true, is_false), (_, truth) in zip(LINES, rows, checks, strict=True):
        if (is_true, is_false) != (truth == "TRUE", truth == "FALSE"):
            wrong.append(line)
    assert wrong == []


@pytest.mark.parametrize(
    ("dialect", "condition"),
    [
        ("postgres", "s < 'b'"), ("tsql", "s = 'a'"), ("mysql", "s IN ('a', 'b')"), ("tsql", "s LIKE 'a%'"),
        ("tsql", "s + 'a' = 'ba'"), ("trino", "regexp_like(s, 'a.b')"), ("postgres", "i / j = 2"), ("duckdb",
        "s ~ 'ab'"),
        ("postgres", "round(g) = 2"), ("snowflake", "greatest(i, j) = 2"), ("bigquery", "TRIM(s) = 'a'"),
        ("snowflake", "to_char(d, 'Mon') = 'Jan'"), ("postgres", "substring(s, 0, 2) = 'a'"), ("postgres",
        "d = '1/2/2024'"),
        ("postgres", "i = '5.5'"), ("hive", "dayofweek(d) = 1"), ("hive", "s = 'a'"), ("clickhouse", "length(s) = 1"),
        ("bigquery", "EXTRACT(HOUR FROM ts AT TIME ZONE 'America/New_York') = 3"), ("snowflake", "s LIKE i"),
        ("bigquery", "DATE(ts, 'Europe/Nowhere') = '2024-03-01'"), ("trino", "s = 5"), ("oracle", "g > 5"),
        ("snowflake", "i = ANY(arr)"), ("snowflake", "regexp_like(s, 'ask', 'i')"), ("trino",
        "date_trunc('decade', d) = d"),
    ],
)  # fmt: skip
def test_what_is_not_proved_is_left_out(dialect: str, condition: str) -> None:
    for text in (condition, f"NOT ({condition})"):
        read = scan(f"i = 1 AND {text}", dialect)
        assert [problem.code for problem in read.unusable] == ["dialect"], read.unusable
        assert to_sql(read.filter.root) == "`i` = 1"
        assert "DIALECT_" not in read.unusable[0].sql + read.unusable[0].detail.upper()


def test_prewhere_is_read_and_versions_are_refused() -> None:
    (read,) = find_scans("SELECT id FROM t PREWHERE i = 1 WHERE b = 2", {"t": SCHEMA}, "clickhouse")
    assert to_sql(read.filter.root) == "`b` = 2L AND `i` = 1"
    for join in ("LEFT JOIN u USING (id)", "ANY JOIN u USING (id)", "ASOF JOIN u ON t.id = u.id AND t.d >= u.d"):
        with pytest.raises(StatementError, match="joins"):
            find_scans(f"SELECT t.id FROM t {join} WHERE t.i = 1", {"t": SCHEMA}, "clickhouse")
    for dialect in ("spark", "databricks"):
        with pytest.raises(StatementError, match="version"):
            find_scans("SELECT id FROM t@v3 WHERE i = 1", {"t": SCHEMA}, dialect)


@pytest.mark.parametrize(
    ("dialect", "texts"),
    [
        ("trino", ["s LIKE '10%'", "s LIKE '10\\%'", "s LIKE 'a_'"]),
        ("snowflake", ["to_char(d, 'YYYY-MM') = '2024-02'", "to_char(d, 'YYYY') = '2024'",
        "to_char(d, 'YYYY-MM') = '2024'"]),
        ("bigquery", [f"DATE(ts, '{zone}') = '{day}'" for zone in ("UTC",
        "America/New_York") for day in ("2024-03-01", "2024-03-10")]),
        ("postgres", ["substring(s, 1, 2) = 'a'", "substring(s, 0, 2) = 'a'", "substring(s, 2, 2) = 'a'"]),
        ("postgres", ["d = '2024-01-01'", "d = '2024-01-02 10:00'", "d = '2024-1-1'", "i = '5'", "i = '5.5'"]),
        ("duckdb", ["date_trunc('week', d) = '2024-01-01'", "date_trunc('month', d) = '2024-01-01'"]),
    ],
)  # fmt: skip
def test_constants_of_templates_decide_each(dialect: str, texts: list[str]) -> None:
    finder = ScanFinder({"t": SCHEMA})
    for text in texts * 2:
        sql = f"SELECT id FROM t WHERE {text}"
        assert finder.find(sql, dialect) == [replace(scan(text, dialect), span=None)], text
