"""The rows and buildings that the tests of scans share."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa

from layoutopt.model.schema import Column, Schema
from layoutopt.sql.duckdb.translate import portable_sql
from tests import duck

SCHEMA = Schema(
    (
        Column("id", "int"),
        Column("day", "date"),
        Column("kind", "string"),
        Column("price", "decimal(15,2)"),
        Column("score", "double"),
        Column("seen", "timestamp"),
        Column("year", "int"),
    )
)

ARROW = pa.schema(
    [
        ("id", pa.int32()),
        ("day", pa.date32()),
        ("kind", pa.string()),
        ("price", pa.decimal128(15, 2)),
        ("score", pa.float64()),
        ("seen", pa.timestamp("us", tz="UTC")),
        ("year", pa.int32()),
    ]
)

CONDITIONS = ("kind IN ('air', 'rail')", "price > 50", "kind LIKE '%p'", "score < 0.5", "id BETWEEN 10 AND 20")


def some_rows(n: int = 300, seed: int = 1) -> pa.Table:
    """Rows in no order, with NULL everywhere but in ``id`` and ``year``, and NaN, -0.0 and infinities in ``score``."""
    rng = random.Random(seed)
    scores = [float("nan"), -0.0, 0.0, float("inf"), float("-inf")]
    rows = [
        {
            "id": i,
            "day": dt.date(1994 + i % 3, rng.randint(1, 12), rng.randint(1, 28)),
            "kind": rng.choice(["air", "rail", "ship", "truck", "mail", ""]),
            "price": Decimal(rng.randint(0, 10_000)) / 100,
            "score": rng.choice([*scores, rng.random(), rng.random(), rng.random()]),
            "seen": dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=rng.randint(0, 10**7)),
            "year": 1994 + i % 3,
        }
        for i in rng.sample(range(n), n)
    ]
    for row in rows:
        for name in ("day", "kind", "price", "score", "seen"):
            if rng.random() < 0.05:
                row[name] = None
    return pa.Table.from_pylist(rows, schema=ARROW)


def expected(sql: str, rows: pa.Table) -> list[dict[str, Any]]:
    """The answer over the source rows, by DuckDB without anything of the scan."""
    portable = portable_sql(sql, {"t": SCHEMA}, "t")
    with duck.connection() as connection:
        connection.register("t", rows)
        found = connection.sql(portable.sql).to_arrow_table()
    named = found.rename_columns([column.name for column in portable.columns])
    return list(named.to_pylist())


def same(left: list[dict[str, Any]], right: list[dict[str, Any]]) -> bool:
    """Whether two answers hold the same rows, whatever their order; NaN equals itself."""
    return sorted(map(repr, map(_plain, left))) == sorted(map(repr, map(_plain, right)))


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: int(value) if isinstance(value, Decimal) and value == int(value) else value for name, value in row.items()
    }
