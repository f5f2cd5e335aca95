"""`python -m jobs.bench star`: what joins with filtered dimensions read of a fact, and their seconds in Spark.

The tables have the shape of TPC-DS's sales of stores; they are random, the same for the same number of rows. Sales come
day by day; customers buy near their home, and items of a season together. The layout is made for a log of queries on
the fact alone, by its own columns. The queries that are timed are others: joins whose filters name dimensions only.
Spark reads the same rows beside it as plain Parquet in the generator's order, with its dynamic partition pruning.
"""

from __future__ import annotations

import json
import random
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table as Grid

from jobs.bench.processes import run_layoutopt
from jobs.bench.query_times import OPTIMISED, PLAIN, Way, check_answers, spark_way, time_ways
from jobs.bench.steps import Json, Say, Step, run, spark_when_needed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FACT: Final = "store_sales"
DIMENSIONS: Final = ("date_dim", "item", "store", "customer", "promotion")
ROWS: Final = 2_000_000
BLOCK_ROWS: Final = 5_000
_DAYS, _ITEMS, _STORES, _CUSTOMERS, _PROMOTIONS = 730, 6_000, 60, 40_000, 100
_SEED: Final = 70
REPEATS: Final = 3

# What is drawn for each query.
_DRAWN: Final[Mapping[str, Callable[[random.Random], object]]] = {
    "year": lambda drawn: drawn.choice([2023, 2024]),
    "month": lambda drawn: drawn.randrange(1, 13),
    "quarter": lambda drawn: drawn.randrange(1, 5),
    "state": lambda drawn: f"S{drawn.randrange(12):02d}",
    "category": lambda drawn: f"category {drawn.randrange(12):02d}",
    "brand": lambda drawn: f"brand {drawn.randrange(300):03d}",
    "store": lambda drawn: drawn.randrange(_STORES),
    "city": lambda drawn: f"city {drawn.randrange(60):02d}",
    "channel": lambda drawn: drawn.choice(["mail", "tv", "event"]),
}
_SUM: Final = "sum(ss_sales_price * ss_quantity), count(*)"


@cache
def read_templates() -> Mapping[str, str]:
    """Return the texts of ``star.toml`` by name."""
    templates: dict[str, str] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["templates"]
    return templates


def write_tables(rows: int, folder: Path) -> None:
    """Write the fact, of so many rows, and its dimensions as Parquet, each in a folder of its own."""
    numbers = np.random.default_rng(_SEED)
    days = np.datetime64("2023-01-01") + np.arange(_DAYS)
    months = days.astype("datetime64[M]").astype(int) % 12
    names = np.array(["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"])
    dates = {
        "d_date_sk": np.arange(_DAYS) + 2_459_000, "d_date": days,
        "d_year": days.astype("datetime64[Y]").astype(int) + 1970,
        "d_moy": months + 1, "d_qoy": months // 3 + 1, "d_day": names[days.astype(int) % 7],
        "d_holiday": np.where(np.arange(_DAYS) % 61 == 7, "Y", "N"),
    }  # fmt: skip
    items = np.arange(_ITEMS)
    item = {
        "i_item_sk": items, "i_brand": np.char.mod("brand %03d", items // 20), "i_price": items * 7 % 100,
        "i_category": np.char.mod("category %02d", items // 500),
    }  # fmt: skip
    stores = np.arange(_STORES)
    store = {
        "s_store_sk": stores, "s_store_name": np.char.mod("store %d", stores),
        "s_state": np.char.mod("S%02d", stores // 5),
    }  # fmt: skip
    people = np.arange(_CUSTOMERS)
    home = people * _STORES // _CUSTOMERS
    customer = {"c_customer_sk": people, "c_city": np.char.mod("city %02d", home), "c_year": 1940 + people % 60}
    promotions = np.arange(_PROMOTIONS)
    promotion = {
        "p_promo_sk": promotions, "p_channel": np.array(["mail", "tv", "event"])[promotions % 3],
        "p_discount": promotions // 2,
    }  # fmt: skip
    day = np.sort(numbers.integers(0, _DAYS, rows))
    buyer = numbers.integers(0, _CUSTOMERS, rows)
    near = numbers.random(rows) < 0.9
    season = numbers.random(rows) < 0.7
    seasonal = (months[day] * 500 + numbers.integers(0, 500, rows)) % _ITEMS
    sales = {
        "ss_sold_date_sk": dates["d_date_sk"][day], "ss_customer_sk": buyer,
        "ss_store_sk": np.where(near, home[buyer], numbers.integers(0, _STORES, rows)),
        "ss_item_sk": np.where(season, seasonal, numbers.integers(0, _ITEMS, rows)),
        "ss_promo_sk": numbers.integers(0, _PROMOTIONS, rows), "ss_quantity": numbers.integers(1, 100, rows),
        "ss_sales_price": numbers.integers(1, 20_000, rows), "ss_ticket": np.arange(rows),
    }  # fmt: skip
    tables = dict(zip((*DIMENSIONS, FACT), (dates, item, store, customer, promotion, sales), strict=True))
    for name, columns in tables.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), folder / name / "0.parquet", row_group_size=100_000)


def draw_queries(count: int, fact: str) -> list[tuple[str, str]]:
    """Return the name and text of ``count`` queries of each template."""
    drawn = random.Random(_SEED)
    queries = []
    for name, text in read_templates().items():
        for _ in range(count):
            values = {key: draw(drawn) for key, draw in _DRAWN.items()}
            queries.append((name, text.format(fact=fact, sum=_SUM, **values)))
    return queries


def write_log(path: Path) -> None:
    """Write a log of queries on the fact alone: stores and items by number, and some columns of its own."""
    drawn = random.Random(_SEED + 1)
    texts = []
    for _ in range(300):
        store, item = drawn.randrange(0, _STORES, 5), drawn.randrange(0, _ITEMS, 500)
        first = drawn.randrange(2_459_000, 2_459_000 + _DAYS)
        texts += [
            f"SELECT sum(ss_sales_price) FROM {FACT} WHERE ss_store_sk BETWEEN {store} AND {store + 4}",
            f"SELECT sum(ss_quantity) FROM {FACT} WHERE ss_item_sk BETWEEN {item} AND {item + 499}",
            f"SELECT count(*) FROM {FACT} WHERE ss_sold_date_sk BETWEEN {first} AND {first + 30} AND ss_quantity > 90",
        ]
    path.write_text("\n".join(json.dumps({"sql": text}) for text in texts))


def count_needed(folder: Path, sql: str) -> int:
    """Return in how many blocks the fact has a row that the query's joins keep, by DuckDB over the table's files."""
    files = f"read_parquet('{folder}/table/data/**/*.parquet', hive_partitioning = false)"
    body = sql.split(" FROM ", 1)[1].split(" GROUP BY ")[0].split(" ORDER BY ")[0].replace(FACT, f"{files} {FACT}", 1)
    with duckdb.connect() as connection:
        for name in DIMENSIONS:
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{folder}/{name}/*.parquet')")
        row = connection.execute(f"SELECT count(DISTINCT _block) FROM {body}").fetchone()
    assert row is not None
    return int(row[0])


def measure(folder: Path, count: int, spark: SparkSession) -> Json:
    """Time the queries in both ways, and count the blocks that they read and need."""
    from layoutopt import spark as skipping

    plain, optimised = spark.newSession(), spark.newSession()
    for session in (plain, optimised):
        for name in DIMENSIONS:
            session.read.parquet(str(folder / name)).createOrReplaceTempView(name)
    plain.read.parquet(str(folder / FACT)).createOrReplaceTempView(FACT)
    skipping.enable(optimised)
    skipping.register(optimised, FACT, str(folder / "table"))
    queries = draw_queries(count, FACT)
    texts = [text for _, text in queries]
    ways: Sequence[Way] = (spark_way(PLAIN, plain), spark_way(OPTIMISED, optimised))
    check_answers(ways, texts)
    timings = time_ways(ways, texts, REPEATS)
    blocks = []
    for _, text in queries:
        frame = optimised.sql(text)
        frame.collect()
        (scan,) = skipping.last_scans(optimised)
        blocks.append({"total": scan.total.blocks, "read": scan.read.blocks, "needed": count_needed(folder, text)})
    seconds = {name: timing.by_query for name, timing in timings.items()}
    return {"names": [name for name, _ in queries], "blocks": blocks, "seconds": seconds}


def run_star(rows: int, root: Path, count: int, say: Say = print) -> dict[str, Any]:
    """Make the tables, lay out the fact in one layout, and measure the joins; see :func:`measure`."""
    folder = root / f"star-{rows}"

    def make() -> Json:
        write_tables(rows, folder)
        write_log(folder / "log.jsonl")
        return {"rows": rows}

    def lay_out() -> Json:
        source, features, plan = str(folder / FACT), str(folder / "features.json"), str(folder / "plan.json")
        run_layoutopt("analyze", str(folder / "log.jsonl"), "--schema", source, "-o", features)
        blocks = ("--block-rows", str(BLOCK_ROWS))
        run_layoutopt("plan", source, "--features", features, "--method", "sop", *blocks, "-o", plan)
        run_layoutopt("load", source, str(folder / "table"), "--plan", plan, "--executor", "local")
        return {"table": "table"}

    made = Step(f"generating {rows:,} sales", folder / "made.json", make, ())
    laid_out = Step("laying out the sales for a log without joins", folder / "laid-out.json", lay_out, (made,))
    with spark_when_needed("layoutopt-star") as spark:
        step = Step(
            f"joins, {count} of each template", folder / f"joins-{count}.json",
            lambda: measure(folder, count, spark()), (laid_out,),
        )  # fmt: skip
        return run(step, say)


def star_report(measured: Mapping[str, Any]) -> Grid:
    """Tabulate what :func:`run_star` returns, a row a template, and all together."""
    names, blocks, seconds = measured["names"], measured["blocks"], measured["seconds"]
    grid = Grid("joins", title="joins of filtered dimensions in Spark; medians", title_justify="left")
    for heading in ("blocks", "needed", "read", "skipped of skippable", PLAIN, OPTIMISED, "times faster", "slowest"):
        grid.add_column(heading, justify="right")

    def add(label: str, places: Sequence[int]) -> None:
        total, needed, read = (sum(blocks[place][key] for place in places) for key in ("total", "needed", "read"))
        before, after = ([seconds[name][place] for place in places] for name in (PLAIN, OPTIMISED))
        share = f"{(total - read) / (total - needed):.0%}" if total > needed else "-"
        slowest = max(after[i] / before[i] for i in range(len(places)))
        grid.add_row(
            label, f"{total:,}", f"{needed:,}", f"{read:,}", share, f"{median(before):.2f} s", f"{median(after):.2f} s",
            f"{sum(before) / sum(after):.2f}x", f"{slowest:.2f}",
        )  # fmt: skip

    for name in read_templates():
        add(name, [place for place, other in enumerate(names) if other == name])
    add("all", range(len(names)))
    return grid
