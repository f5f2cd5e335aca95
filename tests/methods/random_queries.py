"""Random queries on a table of every type, and answers in a form to compare."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


CONDITIONS = [
    "flag = true",
    "text = 'a'",
    "d > 1",
    "n < 0",
    "price > 20",
    "year = 1994",
    "f IS NULL",
    "wide >= 0",
    "tiny > 10",
]


def random_queries(names: list[str], count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    texts = []
    for _ in range(count):
        columns = rng.sample(names, rng.randint(1, 5))
        tests = [
            f"{'NOT ' if rng.random() < 0.2 else ''}({test})" for test in rng.sample(CONDITIONS, rng.randint(0, 2))
        ]
        where = f" WHERE {rng.choice([' AND ', ' OR ']).join(tests)}" if tests else ""
        texts.append(f"SELECT {listed(columns)} FROM t{where}")
    return texts


def listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def answers(source: DataFrame, texts: Sequence[str]) -> list[pa.Table]:
    """What Spark says, in one job, to queries of its rows that each have columns and maybe a condition."""
    asked = [text.removeprefix("SELECT ").partition(" FROM t") for text in texts]
    conditions = [where.removeprefix(" WHERE ") or "true" for _, _, where in asked]
    holds = [f"coalesce({condition}, false) AS `_{i}`" for i, condition in enumerate(conditions)]
    rows = source.selectExpr("*", *holds).toArrow()
    named = [", ".join(source.columns) if columns == "*" else columns for columns, _, _ in asked]
    names = [[name.strip(" `") for name in columns.split(",")] for columns in named]
    return [rows.filter(rows[f"_{i}"]).select(of) for i, of in enumerate(names)]


def as_text(df: DataFrame) -> list[str]:
    found = df.selectExpr(f"to_json(struct({listed(df.columns)}), map('ignoreNullFields', 'false')) AS j").collect()
    return sorted(row.j for row in found)


def rows_of(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))
