"""`layoutopt bench demo`: from nothing to a table that queries skip most of, and the numbers to prove it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from layoutopt.bench.session import spark_when_needed
from layoutopt.bench.steps import run
from layoutopt.bench.tpch.data import DEFAULT_ROOT, TpchData
from layoutopt.bench.tpch.experiment import (
    MONTH_BLOCK_ROWS,
    SOP_BY_MONTH,
    Bench,
    stream_for_testing,
    table_folder,
    table_step,
)
from layoutopt.bench.tpch.queries import STREAMS
from layoutopt.bench.tpch.report import comparison_table, percent
from layoutopt.bench.tpch.runner import results_of
from layoutopt.bench.tpch.variants import baselines

STREAM: Final = "chapter3"
# What the demo asks of the finished table: aggregates over the filters of the test stream.
AGGREGATES: Final = {
    "q6": "sum(l_extendedprice * l_discount) AS revenue",
    "q12": "count(*) AS line_items",
    "q19": "sum(l_extendedprice) AS price",
}


def run_demo(scale: float = 0.1, *, root: Path = DEFAULT_ROOT, console: Console | None = None) -> None:
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

    def say(step: str) -> None:
        console.print(f"[dim]{time.monotonic() - started:4.0f} s[/dim]  {step}")

    chosen = (*baselines("o_month", MONTH_BLOCK_ROWS), SOP_BY_MONTH)
    with spark_when_needed("layoutopt-demo") as spark:
        bench = Bench(TpchData(scale, root), spark)
        results = results_of(bench, STREAM, chosen, say)
    evaluated = run(table_step(bench, STREAM, chosen[-1]), say)["evaluation"]
    table = table_folder(bench, STREAM, chosen[-1]) / "table"
    console.print(f"\nSome queries on {table}:")
    show_queries(console, table, evaluated["queries"])
    console.print()
    console.print(comparison_table(results, len(stream_for_testing(STREAM))))
    console.print("\nTry what a query skips, and why not more:")
    console.print(
        f'  .venv/bin/layoutopt explain {table} "SELECT count(*) FROM tpch WHERE l_quantity < 24"', soft_wrap=True
    )


def show_queries(console: Console, table: Path, evaluated: Sequence[Mapping[str, Any]]) -> None:
    """Answer a few queries from the finished table, and say how much of it each reads.

    Args:
        console: where to print.
        table: the table's folder.
        evaluated: the test stream's queries, as `evaluate` gives them.
    """
    from layoutopt.scan.table import open_table

    opened = open_table(str(table))
    for place, query in enumerate(stream_for_testing(STREAM)[: len(STREAMS[STREAM].templates)]):
        if query.template not in AGGREGATES:
            continue
        sql = f"SELECT {AGGREGATES[query.template]} FROM tpch WHERE {query.sql.partition(' WHERE ')[2]}"
        started = time.perf_counter()
        ((name, value),) = opened.sql(sql).to_pylist()[0].items()
        took = time.perf_counter() - started
        scanned = next(each for each in evaluated if each["id"] == place)
        share = percent(scanned["rows_scanned"], scanned["rows_total"])
        console.print(f"  {query.template:4} {name} = {value}, from {share} of the rows, in {took:.2f} s")
