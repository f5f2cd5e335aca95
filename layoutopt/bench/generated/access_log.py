"""An access log of videos of Conviva's stated shape (3.2.1, 3.7.2): synthetic, of its columns and queries the numbers.

Known of the original: one table with 104 columns, such as customer, city, media URL, genre, date, time, browser and
response time; 674 queries to plan by and 61 later ones; seven days of rows; the tenth of the filters that is used most
is in 90 % of the queries, and 80 % of the queries use filters of the log's first 30 %; queries select 0.03 % of the
rows on average. A query here asks for a day, mostly for a customer, and for one or two things more. The days of both
logs are those of the rows: as months of a past that has no rows any more they would say nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.bench.generated.bigdata import zipf
from layoutopt.bench.generated.tables import TRAIN
from layoutopt.model.arrays import Ints

TABLE: Final = "sessions"
DAY: Final = "day"
CUSTOMER: Final = "customer"
COLUMNS: Final = 104
TRAINING: Final = 674
QUERIES: Final = 735
FIRST_DAY: Final = 20121124
DAYS: Final = 7
KINDS: Final = {"city": 2_000, "genre": 40, "browser": 25, "event": 60, "media": 20_000, "player": 12}
"""Columns of texts, and how many values each has; the first values are the most frequent."""
CUSTOMERS: Final = 150
MEASURES: Final = COLUMNS - len(KINDS) - 2
_FILTERED: Final = 12
"""Measures that queries filter by, from below."""
_THINGS: Final = 60
"""Different filters beside days and customers that people ask for."""
_SEED: Final = 104


def write_sessions(rows: int, folder: Path) -> None:
    """Write the table, a file a day, the rows of a day in no order."""
    per_day = -(-rows // DAYS)
    for number in range(DAYS):
        size = min(per_day, rows - number * per_day)
        rng = np.random.default_rng([_SEED, number])
        columns: dict[str, pa.Array] = {DAY: pa.array(np.full(size, FIRST_DAY + number, dtype=np.int32))}
        columns[CUSTOMER] = pa.array(_ranked(rng, CUSTOMERS, size, 0.7).astype(np.int32))
        for name, distinct in KINDS.items():
            codes = _ranked(rng, distinct, size, 1.0)
            columns[name] = pa.array([text_of(name, code) for code in range(distinct)]).take(pa.array(codes))
        for place in range(MEASURES):
            columns[f"m{place}"] = pa.array(np.floor(rng.exponential(100.0, size)).astype(np.int32))
        pq.write_table(pa.table(columns), folder / f"{FIRST_DAY + number}.parquet", compression="zstd")


def text_of(name: str, code: int) -> str:
    """A value of a column of texts."""
    return f"{name} {code:05d}"


def _ranked(rng: np.random.Generator, distinct: int, rows: int, exponent: float) -> Ints:
    return rng.choice(distinct, rows, p=zipf(distinct, exponent))


def session_texts(role: str) -> list[str]:
    """The log to plan by, or the one that comes after it."""
    rng = np.random.default_rng(_SEED)
    things = [_thing(rng) for _ in range(_THINGS)]
    texts = [_query(rng, things) for _ in range(QUERIES)]
    return texts[:TRAINING] if role == TRAIN else texts[TRAINING:]


def _thing(rng: np.random.Generator) -> str:
    """A filter that people come back to: a value of a column of texts, not too rare, or a large measure."""
    if rng.random() < 0.25:
        return f"m{rng.integers(_FILTERED)} > {int(rng.choice([200, 300, 400]))}"
    name = list(KINDS)[rng.integers(len(KINDS))]
    return f"{name} = '{text_of(name, int(_ranked(rng, min(KINDS[name], 40), 1, 0.5)[0]))}'"


def _query(rng: np.random.Generator, things: list[str]) -> str:
    """A day, a customer but for a tenth of the queries, and things; one query in twelve asks for one never seen."""
    filters = [f"{DAY} = {FIRST_DAY + int(rng.integers(DAYS))}"]
    if rng.random() < 0.9:
        filters.append(f"{CUSTOMER} = {int(_ranked(rng, CUSTOMERS, 1, 1.6)[0])}")
    asked = rng.choice(len(things), 1 + int(rng.random() < 0.6), replace=False, p=zipf(len(things), 1.2))
    found = [_thing(rng) if rng.random() < 1 / 12 else things[place] for place in asked]
    filters += {text.split()[0]: text for text in found}.values()  # of a column one thing only
    measured = rng.choice(MEASURES, int(rng.integers(2, 9)), replace=False, p=zipf(MEASURES, 0.8))
    select = ", ".join([*(f"m{place}" for place in measured), list(KINDS)[int(rng.integers(len(KINDS)))]])
    return f"SELECT {select} FROM {TABLE} WHERE {' AND '.join(filters)}"
