"""Conditions of other dialects have the rows that their own system gives them."""

from __future__ import annotations

import datetime as dt
import importlib.util
import itertools
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

from layoutopt.errors import QueryError
from layoutopt.model.predicates import to_sql
from layoutopt.model.schema import Column, Schema
from layoutopt.scan.matches import bits_query, evaluate_conditions
from layoutopt.sql.dialect_meaning import TRAITS, list_meanings
from layoutopt.sql.scans import TableScan, find_scans
from tests.sql.systems import TYPES, ClickHouse, DuckDb, System, find_postgres, make_rows, start_postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA: Final = Schema(tuple(Column(name, type) for name, type in TYPES.items()))
ROWS: Final = make_rows()
# Columns and constants for the operands of entries.
SAMPLES: Final = {
    "_day": ["d", "ts"], "_date": ["d", "e"], "_time": ["ts"], "_text": ["s"], "_whole": ["i", "b"], "_int": ["i", "j"],
    "_number": ["i", "p", "g"], "_sum": ["i", "d", "p"], "_wide": ["i", "d"], "_exact": ["i", "p"], "_decimal": ["p"],
    "_array": ["arr"], "_positive": ["1", "2", "3"], "_natural": ["0", "2"], "_nonzero": ["3", "-2"],
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
        yield re.sub(r"\b_[a-z]+\d?", lambda match: operands[match[0]], source)


def conditions_of(expression: str, dialect: str, values: Sequence[Any]) -> Iterator[str]:
    """Conditions that compare an expression with some of its values."""
    test = scan(f"{expression} IS NOT NULL", dialect)
    if not test.exact:
        return
    type = getattr(getattr(test.filter.root, "subject", None), "type", "boolean")
    if type == "boolean":
        yield from (expression, f"NOT {expression}")
        return
    distinct = sorted({text for text in map(_format, values) if text and text[-1] not in "nf"})
    for text in distinct[:: max(1, len(distinct) // 6)]:
        literal = text if re.fullmatch(r"-?\d+(\.\d+)?", text) and type != "string" else _quote(text, dialect)
        yield f"{expression} = {literal}"
        yield f"NOT {expression} = {literal}"
        if type != "string" or TRAITS[dialect].ordered_texts:
            yield f"{expression} > {literal}"
            yield f"NOT ({expression} >= {literal})"


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
    "2.5 < g", "g = 0", "i + 1 = 6", "coalesce(i, 0) = 0", "coalesce(s, 'a') = 'a'", "CASE WHEN i > 2 THEN 'x' ELSE 'y' END = 'x'",
    "CASE s WHEN 'a' THEN 1 ELSE 0 END = 1", "nullif(i, 5) IS NULL", "s LIKE 'a%'", "s LIKE '10\\%'", "s LIKE '10\\\\%'",
    "s LIKE 'a_b'", "s NOT LIKE '%b%'", "s LIKE '_'", "s LIKE '1\\_0'", "s LIKE '10!%' ESCAPE '!'", "s LIKE '[Aa]%'",
    "s ILIKE 'a%b%'", "s LIKE '%\\\\'", "i <> i", "i < j", "d < e", "s = u",
]  # fmt: skip
OWN: Final = {
    "duckdb": [
        "s ~ 'ab'", "s ~ 'a.*'", "NOT s ~ '.*b.*'", "s !~ 'ab'", "d >= DATE '2024-01-31' + INTERVAL 1 MONTH", "s < 'B'",
        "d + INTERVAL 1 MONTH = '2024-02-29'", "d - INTERVAL 7 DAY > '2024-01-01'", "js ->> 'a' = 'x'",
        "js ->> '$.a.b' = 'x'", "js ->> 'a' <> 'x'", "strftime(d, '%Y-%m') = '2024-01'", "strftime(ts, '%Y') > '2023'",
        "strftime(d, '%Y-%m-%d') IN ('2024-01-01', '2020-02-29')", "i IS NOT DISTINCT FROM 5", "i IS DISTINCT FROM 5",
        "d > '2024-01-01'::DATE - 7", "ts >= TIMESTAMP '2024-01-01 10:00:00' - INTERVAL 3 DAY", "d::date = '2024-01-01'",
    ],
    "duckdb ": ["regexp_matches(s, 'ab')", "regexp_matches(s, 'a.b')", "regexp_matches(s, 'b$')", "regexp_matches(s, '^a|x$')",
        "regexp_matches(s, 'ab', 'i')", "regexp_full_match(s, 'a.*')"],
    "postgres": [
        "s ~ 'ab'", "s ~ 'a.b'", "s ~ 'b$'", "s !~ '^a'", "s ~* 'ab'", "s ~ '^10|x$'", "'k' = ANY(arr)", "NOT 'k' = ANY(arr)",
        "i = ANY(ARRAY[1, 2])", "i <> ALL(ARRAY[1, 2])", "d + interval '1 month' = '2024-02-29'", "s LIKE '1\\x'",
        "d >= date '2024-01-31' + interval '1 month'", "to_char(d, 'YYYY-MM') = '2024-01'", "to_char(ts, 'YYYY') > '2023'",
        "js ->> 'a' = 'x'", "js -> 'a' ->> 'b' = 'x'", "js ->> 'a' <> 'x'", "d::date = '2024-01-01'", "i IS DISTINCT FROM 5",
        "d > '2024-01-01'::date - 7", "extract(year from d)::bigint = 2024", "p = 5.555", "date_part('dow', d) = 0",
    ],
    "clickhouse": [
        "match(s, 'ab')", "match(s, 'a.b')", "match(s, 'b$')", "match(s, '^a|x$')", "s < 'B'", "s LIKE '10\\\\\\\\%'", "has(arr, 'k')",
        "formatDateTime(d, '%Y-%m') = '2024-01'", "s LIKE '1\\\\x'", "s LIKE '10\\\\\\\\x'", "d > toDate('2024-01-01')",
    ],
}  # fmt: skip


def differences(system: System, dialect: str) -> tuple[list[str], list[str], int, list[tuple[str, str, list[int]]]]:
    """What differs, what the system or the product can't answer, and each condition with its filter and rows."""
    sources = [source for source, _ in list_meanings(dialect)]
    expressions = [(source, text) for source in sources for text in instances(source)]
    values = system.ask([text for _, text in expressions])
    conditions: list[str] = [*CONDITIONS, *OWN.get(dialect, ()), *OWN.get(f"{dialect} ", ())]
    proved: dict[str, int] = dict.fromkeys(sources, 0)
    for (source, text), answer in zip(expressions, values, strict=True):
        if not isinstance(answer, str):
            made = list(conditions_of(text, dialect, answer))
            conditions += made
            proved[source] += len(made)
    answers = system.ask(conditions)
    wrong: list[str] = []
    left_out: list[str] = [f"{source}: no condition" for source, count in proved.items() if not count]
    asked: list[tuple[str, str, list[int]]] = []
    for condition, answer in zip(conditions, answers, strict=True):
        read = scan(condition, dialect)
        if isinstance(answer, str) or not read.exact:
            left_out.append(f"{condition}: {answer[:60] if isinstance(answer, str) else read.unusable[0].detail}")
            continue
        expected = [number for number, value in enumerate(answer) if value in (True, "t", "1", "true")]
        asked.append((condition, to_sql(read.filter.root), expected))
    own = rows_of([text for _, text, _ in asked])
    for condition, text, expected in asked:
        rows = own.get(text, expected)
        if rows != expected:
            wrong.append(f"{condition} -> {text}: {sorted(set(rows) ^ set(expected))[:5]}")
    return wrong, left_out, len(asked), asked
