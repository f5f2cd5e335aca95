"""The files that the guides speak of: a source of events, late rows, changes, and query logs."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

DAYS: Final = (date(2026, 11, 18), date(2026, 11, 19), date(2026, 11, 20))
COUNTRIES: Final = ("FR", "DE", "CZ", "Czechia", "PL")
STATEMENTS: Final = (
    "SELECT user_id, amount FROM events WHERE country = 'FR'",
    "SELECT user_id FROM events WHERE country = 'DE' AND amount > 100",
    "SELECT url, amount FROM events WHERE amount > 180",
    "SELECT count(*) FROM events WHERE country = 'FR' AND amount > 100",
    "SELECT event_id FROM events WHERE user_id = {user}",
)
FUNCTIONS: Final = (
    "SELECT event_id FROM events WHERE agent_name(agent) = 'curl'",
    "SELECT event_id, amount FROM events WHERE agent_name(agent) = 'curl' AND country = 'FR'",
    "SELECT url FROM events WHERE kilometres(lat, lon, 50.1, 14.4) < 3",
)


def write_files(folder: Path, rows: int = 120) -> None:
    """Write the source, with so many rows a day, and everything else that the guides name."""
    data = folder / "data"
    for number, day in enumerate(DAYS):
        place = data / "events" / f"day={day}"
        place.mkdir(parents=True)
        pq.write_table(events(day, rows, first=number * rows), place / "rows.parquet")
    late = events(DAYS[-1], 8, first=10_000)
    pq.write_table(with_day(late, DAYS[-1]), data / "late.parquet")
    changed = with_day(events(DAYS[0], rows, first=0).slice(0, 4), DAYS[0])
    pq.write_table(changed.append_column("op", pa.array(["U", "D", "U", "D"])), data / "changes.parquet")
    for name in ("queries.jsonl", "last-week.jsonl", "last-month.jsonl"):
        (folder / name).write_text("".join(f"{json.dumps(record)}\n" for record in log()), encoding="utf-8")
    users = pa.table({"user_id": [4711, 4712, *range(5_000, 5_040)], "plan": ["paid", "free"] * 21})
    csv.write_csv(users, folder / "users.csv")
    pq.write_table(users, folder / "users.parquet")
    (folder / "functions.sql").write_text(";\n".join(FUNCTIONS * 4), encoding="utf-8")


def events(day: date, rows: int, first: int) -> pa.Table:
    """Return rows of one day, with ids from `first` on."""
    draw = np.random.default_rng(first)
    ids = np.arange(first, first + rows)
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    users = draw.choice([4711, 4712, *range(5_000, 5_040)], rows)
    return pa.table(
        {
            "event_id": pa.array(ids, pa.int64()),
            "user_id": pa.array(users, pa.int64()),
            "country": pa.array(draw.choice(COUNTRIES, rows)),
            "email": pa.array([f"User{user}@example.org" for user in users]),
            "url": pa.array([f"/shop/{name}" for name in draw.choice(["cart", "search", "word", "pay"], rows)]),
            "agent": pa.array(draw.choice(["curl/8.1", "Firefox/130", "Chrome/129"], rows)),
            "amount": pa.array(draw.uniform(0, 200, rows).round(2)),
            "lat": pa.array(draw.uniform(49, 51, rows)),
            "lon": pa.array(draw.uniform(13, 16, rows)),
            "tags": pa.array([list(draw.choice(["new", "hot", "old"], 2)) for _ in range(rows)]),
            "ts": pa.array([start + timedelta(minutes=int(minute)) for minute in draw.integers(0, 1_440, rows)]),
        }
    )


def with_day(rows: pa.Table, day: date) -> pa.Table:
    """Return rows with their day as a column, as in a file that is in no folder of a day."""
    return rows.append_column("day", pa.array([day] * rows.num_rows, pa.date32()))


def log() -> list[dict[str, str]]:
    """Return the records of a query log of three weeks."""
    start = datetime(2026, 11, 1, 8, tzinfo=UTC)
    return [
        {
            "sql": STATEMENTS[i % len(STATEMENTS)].format(user=5_000 + i),
            "timestamp": (start + timedelta(hours=12 * i)).isoformat(),
        }
        for i in range(40)
    ]
