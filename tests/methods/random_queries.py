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


def as_text(df: DataFrame) -> list[str]:
    found = df.selectExpr(f"to_json(struct({listed(df.columns)}), map('ignoreNullFields', 'false')) AS j").collect()
    return sorted(row.j for row in found)


def rows_of(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))
