"""A source of events, a log of queries on it, its rows as one machine reads them, and a scheme of two layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.model.layout import ByVectors, Layout, Scheme

DAYS: Final = 3
ROWS_A_DAY: Final = 1_200
_KINDS: Final = ("air", "rail", "ship", "truck")

# Two groups of queries, which read other columns: methods for several layouts divide the columns between them.
QUERIES: Final = (
    "SELECT id, price FROM events WHERE kind = 'air' AND price > 150",
    "SELECT sum(price) AS total FROM events WHERE kind = 'rail'",
    "SELECT note, code FROM events WHERE code IN (3, 5) AND note LIKE 'late%'",
    "SELECT count(note) AS notes FROM events WHERE code = 7",
)
# Others than the log's, which read one group's columns or both.
UNSEEN: Final = (
    "SELECT id, price FROM events WHERE kind = 'air' AND price > 170 AND day = 1 ORDER BY id",
    "SELECT code, count(*) AS n FROM events WHERE code < 9 GROUP BY code ORDER BY code",
    "SELECT kind, note, sum(price) AS total FROM events WHERE code = 3 GROUP BY kind, note ORDER BY kind, note",
)

# Two layouts that share no column.
GROUPS: Final = Scheme(
    (
        Layout(("id", "day", "kind", "price"), (0, 1), ("id", "day", "kind", "price"), ByVectors()),
        Layout(("code", "note"), (2, 3), ("code", "note"), ByVectors()),
    )
)


def make_rows(day: int, first: int = 0, count: int = ROWS_A_DAY) -> pa.Table:
    """Return rows of a day; ``first`` is the number of the first of them."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": pa.array([day * 100_000 + n for n in numbers], pa.int64()),
            "day": pa.array([day] * count, pa.int32()),
            "kind": [_KINDS[n * 7 % 4] for n in numbers],
            "price": pa.array([n * 37 % 200 for n in numbers], pa.int64()),
            "code": pa.array([n * 13 % 40 for n in numbers], pa.int32()),
            "note": [f"{'late' if n % 9 == 0 else 'in time'} {n % 5}" for n in numbers],
        }
    )


def write_source(folder: Path) -> Path:
    """Write two files of each day, and the log; return the folder of the files."""
    source = folder / "source"
    source.mkdir(parents=True)
    for day in range(DAYS):
        for half in range(2):
            rows = make_rows(day, half * ROWS_A_DAY // 2, ROWS_A_DAY // 2)
            pq.write_table(rows, source / f"day-{day}-{half}.parquet", row_group_size=200)
    (folder / "log.sql").write_text("".join(f"{query};\n" for query in QUERIES * 3), encoding="utf-8")
    return source


def query_rows(rows: pa.Table, query: str) -> pa.Table:
    """Return the answer of a query on rows in memory."""
    with duckdb.connect() as connection:
        connection.register("events", rows)
        return connection.sql(query).to_arrow_table()
