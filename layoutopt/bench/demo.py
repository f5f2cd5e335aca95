"""`layoutopt bench demo`: from nothing to a table that queries skip most of, with the numbers that prove it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from layoutopt.bench.experiment import TEST, LoggedQuery, Variant
from layoutopt.bench.methods_table import baselines, comparison_table, percent, results_of
from layoutopt.bench.steps import spark_when_needed
from layoutopt.bench.tpch import MONTH, MONTH_BLOCK_ROWS, tpch_at
from layoutopt.bench.tpch_queries import STREAMS

STREAM: Final = "chapter3"
SOP: Final = Variant("SOP", "sop", MONTH, MONTH_BLOCK_ROWS)

# Aggregates over the filters of some test queries, by template.
AGGREGATES: Final = {
    "q6": "sum(l_extendedprice * l_discount) AS revenue",
    "q12": "count(*) AS line_items",
    "q19": "sum(l_extendedprice) AS price",
}


def run_demo(scale: float, *, root: Path, console: Console | None = None) -> None:
    """Generate TPC-H, lay it out in four ways, and print what the queries of an unseen stream scan of each.

    What an earlier run left in `root` is used again.

    Args:
        scale: the TPC-H scale factor.
        root: the folder of all experiments.
        console: where to print.

    Raises:
        SettingError: a scale factor that can't be generated.
    """
    console = console or Console(highlight=False)
    started = time.monotonic()

    def say(sentence: str) -> None:
        console.print(f"[dim]{time.monotonic() - started:4.0f} s[/dim]  {sentence}")

    with spark_when_needed("layoutopt-demo") as spark:
        stream = tpch_at(scale, root, spark).stream(STREAM)
        results = results_of(stream, (*baselines(MONTH, MONTH_BLOCK_ROWS), SOP), say)
    queries, table = stream.queries(TEST), stream.folder(SOP) / "table"
    console.print(f"\nSome queries on {table}:")
    evaluated = stream.evaluation(SOP).read()["evaluation"]["queries"]
    show_queries(console, table, queries[: len(STREAMS[STREAM].templates)], evaluated)
    console.print()
    console.print(comparison_table(results, len(queries)))
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
