"""`layoutopt bench demo`: from nothing to a table that queries skip most of, with the numbers that prove it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from layoutopt.bench.chapter3 import MATCHING
from layoutopt.bench.cold_times import FULL_SCAN
from layoutopt.bench.experiment import TEST, LoggedQuery, Variant, full_scan, scanned
from layoutopt.bench.figure import read_figures
from layoutopt.bench.plots import megabytes
from layoutopt.bench.steps import run, spark_when_needed
from layoutopt.bench.tpch import MONTH, MONTH_BLOCK_ROWS, RANGES, tpch_at
from layoutopt.bench.tpch_queries import STREAMS

STREAM: Final = "chapter3"
SOP: Final = Variant("SOP", "sop", MONTH, MONTH_BLOCK_ROWS)

# What plain Parquet gives, and the two range partitionings of 3.7.3, by minima and maxima alone.
BASELINES: Final = (
    Variant("Parquet min/max", "input-order", None, MONTH_BLOCK_ROWS, features=False, written=False),
    *(
        Variant(label, partition_by=MONTH, block_rows=MONTH_BLOCK_ROWS, written=False, **parameters)
        for label, parameters in RANGES.items()
    ),
)

# Aggregates over the filters of some test queries, by template.
AGGREGATES: Final = {
    "q6": "sum(l_extendedprice * l_discount) AS revenue",
    "q12": "count(*) AS line_items",
    "q19": "sum(l_extendedprice) AS price",
}


def run_demo(scale: float, *, root: Path, console: Console | None = None) -> None:
    """Generate TPC-H, lay it out in four ways, and print what the queries of an unseen stream scan of each.

    What an earlier run left below `root` is used again.

    Raises:
        SettingError: a scale factor that can't be generated.
    """
    console = console or Console(highlight=False)
    started = time.monotonic()

    def say(sentence: str) -> None:
        console.print(f"[dim]{time.monotonic() - started:4.0f} s[/dim]  {sentence}")

    with spark_when_needed("layoutopt-demo") as spark:
        stream = tpch_at(scale, root, spark).stream(STREAM)
        tables, matching = stream.tables((*BASELINES, SOP)), stream.matching(MONTH)
        for step in (*tables.steps, matching):
            run(step, say)
    queries, table = stream.queries(TEST), stream.folder(SOP) / "table"
    evaluated, counts = tables.read(), [sum(counts) for counts in zip(*matching.read()["rows"], strict=True)]
    console.print(f"\nSome queries on {table}:")
    shown = queries[: len(STREAMS[STREAM].templates)]
    show_queries(console, table, shown, evaluated[SOP.label]["evaluation"]["queries"])
    console.print()
    console.print(comparison_table(evaluated, counts, len(queries)))
    console.print("\nTry what a query skips, and why not more:")
    console.print(
        f'  .venv/bin/layoutopt explain {table} "SELECT count(*) FROM tpch WHERE l_quantity < 24"', soft_wrap=True
    )


def show_queries(
    console: Console, table: Path, queries: Sequence[LoggedQuery], evaluated: Sequence[Mapping[str, Any]]
) -> None:
    """Answer the queries of :data:`AGGREGATES` from the finished table, and print how much of it each reads.

    Args:
        console: where to print.
        table: the table's folder.
        queries: the first test queries.
        evaluated: the test queries as `evaluate` gives them.
    """
    from layoutopt.scan.table import open_table

    opened = open_table(str(table))
    rows = {query["id"]: (query["rows_scanned"], query["rows_total"]) for query in evaluated}
    for place, query in enumerate(queries):
        if query.template not in AGGREGATES:
            continue
        sql = f"SELECT {AGGREGATES[query.template]} FROM tpch WHERE {query.sql.partition(' WHERE ')[2]}"
        started = time.perf_counter()
        ((name, value),) = opened.sql(sql).to_pylist()[0].items()
        seconds = time.perf_counter() - started
        share = percent(*rows[place])
        console.print(f"  {query.template:4} {name} = {value}, from {share} of the rows, in {seconds:.2f} s")


def comparison_table(evaluated: Mapping[str, Mapping[str, Any]], matching: Sequence[int], queries: int) -> Table:
    """Tabulate rows and bytes as shares of a full scan, beside figure 3.5 (a) of the thesis.

    Args:
        evaluated: the tables by label.
        matching: the rows that each query matches, which no layout can beat.
        queries: how many there are.
    """
    claims = read_figures("tpch")["3.5a"].claims
    thesis = {claim.of[1]: f"{claim.thesis:g} %" for claim in claims if claim.unit == "%"} | {FULL_SCAN: "100 %"}
    first = next(iter(evaluated.values()))
    whole, whole_bytes = full_scan(first, "rows"), full_scan(first, "bytes")
    # No blocks of that size read fewer rows: whole blocks are read, or none.
    bound = sum(max(rows, MONTH_BLOCK_ROWS) for rows in matching if rows)
    rows_read: list[tuple[str, int, int | None]] = [
        (FULL_SCAN, whole, whole_bytes),
        *((label, scanned(table, "rows"), scanned(table, "bytes")) for label, table in evaluated.items()),
        (f"lower bound, blocks of {MONTH_BLOCK_ROWS:,}", bound, None),
        (MATCHING, sum(matching), None),
    ]
    table = Table(title=f"{STREAM}: {queries} unseen queries", title_justify="left")
    for heading in ("method", "rows scanned", "of all", "bytes read", "of all", "thesis"):
        table.add_column(heading, justify="left" if heading in ("method", "thesis") else "right")
    for label, rows, size in rows_read:
        shares = (f"{rows:,}", percent(rows, whole), megabytes(size), percent(size, whole_bytes))
        table.add_row(label, *shares, thesis.get(label, ""))
    return table


def percent(part: float | None, whole: float) -> str:
    """Format a share with two significant digits.

    >>> percent(39, 1000), percent(1, 10000), percent(250, 1000), percent(None, 1)
    ('3.9 %', '0.010 %', '25 %', '')
    """
    if part is None:
        return ""
    share = 100 * part / whole
    digits = 0 if share >= 10 else 1 if share >= 1 else 2 if share >= 0.1 else 3
    return f"{share:.{digits}f} %"
