"""The first hour of a new user: a fresh wheel, a table of their own, every verb, and what goes wrong by a typo.

    python -m tests.first_hour               all of it; about ten minutes on two cores
    python -m tests.first_hour --no-install  with the package of this environment instead of a wheel

Prints for each command the seconds to its first words and to its end. Exits with 1 if a verb fails or is silent for
ten seconds, or a mistake takes more than three seconds or more than one sentence.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import random
import selectors
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.cli.mistakes import MISTAKES, make_shop

ROWS: Final = 600_000
DAYS: Final = 6
STATEMENTS: Final = 150
# The longest silence of a verb, which speaks every ten seconds, and the longest answer to a mistake, in seconds.
MOST_SILENT: Final = 11.0
MOST_WRONG: Final = 3.0
HERE: Final = Path(__file__).parents[1]
WHERE: Final = HERE / "build" / "first-hour"

# In the order of a first hour; the first starts with an evaluated table.
VERBS: Final = (
    "up events q.sql --into trial",
    "advise events q.sql",
    "analyze q.sql --schema events -o features.json",
    "plan events --features features.json --partition-by day -o plan.json",
    "load events table --plan plan.json --executor local",
    "status table",
    "history table",
    "files table",
    "query table 'SELECT country, count(*) FROM events WHERE hour(ts) = 7 AND geo.lat > 60 GROUP BY country'",
    "query table 'SELECT plan, count(*) FROM events e JOIN users u ON e.user = u.id WHERE status = 404 GROUP BY plan'"
    " --with users=users.csv",
    """explain table "SELECT count(*) FROM events WHERE country = 'FR' AND status = 500" """,
    "evaluate table q.sql --html report.html",
    "verify table",
    "verify table --queries q.sql",
    "drift table q.sql",
    "append table more.parquet --executor local",
    "delete table --where 'user = 17'",
    "optimize table --deleted-share 0",
    "publish table --as delta",
    "vacuum table --older-than 0s",
    "index events --into indexes --index user:bloom",
    "load events by-spark --plan plan.json --executor spark",
)


def events(rows: int, seed: int = 7) -> pa.Table:
    """Web events of some days, with an array and a struct."""
    rng = np.random.default_rng(seed)
    seconds = np.sort(rng.integers(0, DAYS * 86_400, rows))
    start = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
    micros = (int(start.timestamp()) + seconds) * 1_000_000 + rng.integers(0, 1_000_000, rows)
    countries = np.array(["FR", "DE", "US", "JP", "BR", "IN", "GB", "ES"])
    pages = np.array(
        [f"https://shop.example/{part}/{i}" for part in ("item", "list", "cart", "blog") for i in range(50)]
    )
    tags = [["new"], ["sale", "eu"], [], ["vip"], ["sale"]]
    geo = pa.StructArray.from_arrays(
        [pa.array(rng.uniform(-60, 70, rows)), pa.array(rng.uniform(-180, 180, rows))], names=["lat", "lon"]
    )
    return pa.table(
        {
            "day": pa.array(
                (seconds // 86_400 + (start.date() - dt.date(1970, 1, 1)).days).astype(np.int32), pa.date32()
            ),
            "ts": pa.array(micros, pa.timestamp("us", tz="UTC")),
            "user": pa.array(rng.zipf(1.3, rows) % 20_000),
            "country": countries[rng.choice(8, rows, p=[0.3, 0.2, 0.2, 0.1, 0.08, 0.06, 0.04, 0.02])],
            "url": pages[rng.integers(0, len(pages), rows)],
            "referer": pa.array(pages[rng.integers(0, len(pages), rows)], mask=rng.random(rows) < 0.4),
            "status": pa.array(rng.choice([200, 301, 404, 500], rows, p=[0.9, 0.05, 0.04, 0.01]).astype(np.int16)),
            "duration": pa.array(rng.gamma(2, 40, rows).astype(np.int32)),
            "price": pa.array(np.round(rng.gamma(2, 30, rows), 2)),
            "agent": pa.array([f"agent/{i}" for i in rng.integers(0, 30, rows)]),
            "tags": pa.array([tags[i] for i in rng.integers(0, len(tags), rows)], pa.list_(pa.string())),
            "geo": geo,
        }
    )


def statements(number: int, seed: int = 7) -> list[str]:
    """What the shop's analysts ask."""
    draw = random.Random(seed)
    forms = (
        lambda: f"country = '{draw.choice(['FR', 'DE', 'US', 'ES'])}' AND status = {draw.choice([404, 500])}",
        lambda: f"hour(ts) = {draw.randint(0, 23)} AND country IN ('FR', 'ES')",
        lambda: f"day = DATE '2026-03-0{draw.randint(1, DAYS)}' AND url LIKE 'https://shop.example/cart/%'",
        lambda: f"geo.lat BETWEEN {(lat := draw.randint(-5, 5) * 10)} AND {lat + 10} AND price > 100",
        lambda: f"user = {draw.randint(1, 60)}",
        lambda: f"duration > {draw.choice([200, 300])} AND agent = 'agent/{draw.randint(0, 29)}'",
        lambda: "array_contains(tags, 'vip') AND status = 500",
    )
    columns = ("count(*)", "sum(price), max(duration)", "user, url, ts", "country, avg(price)")
    texts = []
    for _ in range(number):
        what = draw.choice(columns)
        grouped = " GROUP BY country" if what.startswith("country") else ""
        texts.append(f"SELECT {what} FROM events WHERE {draw.choice(forms)()}{grouped};")
    return texts


def make_shop_of_events(folder: Path) -> None:
    """Write the table, its log, and small files beside it."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "events").mkdir(parents=True)
    rows = events(ROWS)
    for number in range(6):
        pq.write_table(rows.slice(number * ROWS // 6, ROWS // 6), folder / "events" / f"part-{number}.parquet")
    pq.write_table(rows.slice(0, 500), folder / "more.parquet")
    (folder / "q.sql").write_text("\n".join(statements(STATEMENTS)), encoding="utf-8")
    users = "".join(f"{number},{'paid' if number % 7 == 0 else 'free'}\n" for number in range(20_000))
    (folder / "users.csv").write_text("id,plan\n" + users, encoding="utf-8")


@dataclass(frozen=True)
class Ran:
    """A command's exit code, its seconds to the first words and to the end, its longest silence, and what it said."""

    code: int
    first: float
    total: float
    silence: float
    said: str


def run(words: Sequence[str], folder: Path) -> Ran:
    """Run a command and watch when it says something."""
    began = spoke = time.monotonic()
    first: float | None = None
    silence, parts = 0.0, []
    with subprocess.Popen(
        words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=_environment()
    ) as process:
        assert process.stdout is not None
        for part in _parts(process.stdout):
            now = time.monotonic()
            first = now - began if first is None else first
            silence, spoke = max(silence, now - spoke), now
            parts.append(part)
        code = process.wait()
    total = time.monotonic() - began
    said = b"".join(parts).decode(errors="replace")
    return Ran(code, total if first is None else first, total, max(silence, total - (spoke - began)), said)


def _environment() -> dict[str, str]:
    """Return the variables of this process but the one by which Python finds the sources beside this script."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def _parts(stream: IO[bytes]) -> Iterator[bytes]:
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            selector.select()
            part = os.read(stream.fileno(), 65_536)
            if not part:
                return
            yield part


def tell(sentence: str) -> None:
    """Print a line at once."""
    sys.stdout.write(sentence + "\n")
    sys.stdout.flush()


def install() -> Path:
    """Build a wheel, install it with PySpark in a new environment, and return its command."""
    for name in ("wheel", "venv"):
        shutil.rmtree(WHERE / name, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", str(WHERE / "wheel"), str(HERE)], check=True)
    (wheel,) = (WHERE / "wheel").glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(WHERE / "venv")], check=True)
    pip[0] = str(WHERE / "venv" / "bin" / "python")
    constraints = ["--constraint", str(HERE / "constraints.txt")]
    subprocess.run(
        [*pip, "install", *constraints, f"layoutopt[spark] @ file://{wheel}", "deltalake"],
        check=True,
        env=_environment(),
    )
    return WHERE / "venv" / "bin" / "layoutopt"


def main() -> int:
    """Run the hour and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-install", action="store_true")
    given = parser.parse_args()
    WHERE.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    command = Path(sys.executable).with_name("layoutopt") if given.no_install else install()
    tell(f"installed in {time.monotonic() - began:.0f} s")
    folder, wrong = WHERE / "shop", 0
    make_shop_of_events(folder)
    began = time.monotonic()
    for number, verb in enumerate(VERBS):
        ran = run([str(command), *shlex.split(verb)], folder)
        is_wrong = ran.code != 0 or ran.silence > MOST_SILENT
        wrong += is_wrong
        times = f"first {ran.first:5.1f} s, silent {ran.silence:5.1f} s, all {ran.total:6.1f} s"
        problem = "" if ran.code == 0 else f": {ran.code} {ran.said[-300:]}"
        tell(f"{'!' if is_wrong else ' '} {times}  {shlex.split(verb)[0]}{problem}")
        if number == 0:
            tell(f"an evaluated table after {time.monotonic() - began:.0f} s")
    wrong += _make_mistakes(command)
    return int(wrong > 0)


def _make_mistakes(command: Path) -> int:
    shop = WHERE / "mistakes"
    shutil.rmtree(shop, ignore_errors=True)
    shop.mkdir()
    make_shop(shop)
    wrong, slowest = 0, 0.0
    told = [mistake for mistake in MISTAKES if "PORT" not in mistake[0]]
    for text, code, named in told:
        ran = run([str(command), *shlex.split(text)], shop)
        slowest = max(slowest, ran.total)
        is_sentence = ran.said.startswith("layoutopt: ") and ran.said.count("\n") == 1
        if ran.code != code or not is_sentence or ran.total > MOST_WRONG:
            wrong += 1
            tell(f"! {ran.total:.1f} s  {text}: {ran.said[:300]!r}, expected {', '.join(named)}")
    tell(f"{len(told)} mistakes, {wrong} not told in {MOST_WRONG:.0f} s and one sentence; the slowest: {slowest:.1f} s")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
