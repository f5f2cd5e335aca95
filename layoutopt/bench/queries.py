"""`layoutopt bench query`: how long the unseen queries take on plain Parquet and on the optimised table.

Each engine runs the whole stream on both, in turns, several times after a first time that warms everything up. Answers
are compared before anything is timed: a fast wrong answer would be worth nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import duckdb
from rich.console import Group
from rich.table import Table

from layoutopt.bench.session import spark_when_needed
from layoutopt.bench.steps import Json, Step, run
from layoutopt.bench.timing import REPEATS, Timing, Way, check_answers, time_ways
from layoutopt.bench.tpch.data import DEFAULT_ROOT, TpchData
from layoutopt.bench.tpch.experiment import Bench, Variant, stream_for_testing, table_folder, table_step
from layoutopt.bench.tpch.queries import TABLE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

STREAM: Final = "chapter3"
VARIANT: Final = Variant("SOP by year", "sop", "o_year", 10_000)
PLAIN: Final = "plain Parquet"
OPTIMISED: Final = "optimised table"

Ways = Callable[[Bench, Path], AbstractContextManager[Sequence[Way]]]


@contextmanager
def in_spark(bench: Bench, table: Path) -> Iterator[tuple[Way, Way]]:
    """Spark's own Parquet reader on the source, and a session that is enabled."""
    from layoutopt import spark as skipping

    spark = bench.spark()
    plain, optimised = spark.newSession(), spark.newSession()
    plain.read.parquet(str(bench.data.denormalised)).createOrReplaceTempView(TABLE)
    skipping.register(optimised, TABLE, str(table))
    skipping.enable(optimised)

    def ready(session: SparkSession, text: str) -> Callable[[], None]:
        # The sink takes all rows and keeps none.
        return session.sql(text).write.format("noop").mode("overwrite").save

    def way(name: str, session: SparkSession) -> Way:
        return Way(name, partial(ready, session), lambda text: session.sql(text).toArrow())

    try:
        yield way(PLAIN, plain), way(OPTIMISED, optimised)
    finally:
        skipping.disable(optimised)


@contextmanager
def in_duckdb(bench: Bench, table: Path) -> Iterator[tuple[Way, Way]]:
    """DuckDB's own Parquet reader on the source, which keeps footers, and an open table."""
    from layoutopt.scan.table import open_table
    from layoutopt.sql.duckdb.translate import portable_sql

    opened = open_table(str(table))
    with duckdb.connect() as connection:
        connection.execute("SET parquet_metadata_cache = true")
        files = f"{bench.data.denormalised}/*.parquet".replace("'", "''")
        connection.execute(f"CREATE VIEW {TABLE} AS SELECT * FROM read_parquet('{files}')")

        def plain(text: str) -> Callable[[], pa.Table]:
            return connection.sql(portable_sql(text, {TABLE: opened.schema}, TABLE).sql).to_arrow_table

        def optimised(text: str) -> Callable[[], pa.Table]:
            return opened.scan(text).to_arrow

        yield (
            Way(PLAIN, plain, lambda text: plain(text)()),
            Way(OPTIMISED, optimised, lambda text: optimised(text)()),
        )


ENGINES: Final[Mapping[str, Ways]] = MappingProxyType({"spark": in_spark, "duckdb": in_duckdb})


def query_step(bench: Bench, engine: str, repeats: int) -> Step:
    """Time the test stream in one engine, on plain Parquet and on the table; the product has each query's seconds."""
    folder = table_folder(bench, STREAM, VARIANT)

    def make() -> Json:
        texts = [query.sql for query in stream_for_testing(STREAM)]
        with ENGINES[engine](bench, folder / "table") as ways:
            rows = check_answers(ways, texts)
            timings = time_ways(ways, texts, repeats)
        return {"rows": rows, "timings": {name: asdict(timing) for name, timing in timings.items()}}

    return Step(
        f"{STREAM}: timing the test stream in {engine}, {repeats} times on both",
        folder / f"queries-{engine}-{repeats}.json",
        make,
        (table_step(bench, STREAM, VARIANT),),
    )


def run_queries(
    scale: float, *, root: Path = DEFAULT_ROOT, repeats: int = REPEATS, say: Callable[[str], None] = print
) -> dict[str, dict[str, Any]]:
    """Time the test stream in both engines, on plain Parquet and on the optimised table.

    Args:
        scale: the TPC-H scale factor.
        root: the folder of all experiments; engines that were timed there are not timed again.
        repeats: the rounds whose median counts, after one that warms everything up.
        say: told each step that is run.

    Returns:
        By engine: the ``rows`` of all answers, the ``rounds`` whose median all seconds are, ``ratio``, how many times
        faster the optimised table is, and by way the ``seconds`` of all queries, of them the ``planning_seconds``, and
        the seconds ``by_template``.

    Raises:
        SettingError: a scale factor that can't be generated.
        WrongAnswerError: an answer from the table is not that from plain Parquet.
    """
    with spark_when_needed("layoutopt-queries") as spark:
        bench = Bench(TpchData(scale, root), spark)
        templates = [query.template for query in stream_for_testing(STREAM)]
        return {engine: summary_of(run(query_step(bench, engine, repeats), say), templates) for engine in ENGINES}


def summary_of(product: Mapping[str, Any], templates: Sequence[str]) -> dict[str, Any]:
    """What is said of one engine, from the product of its step and the templates of its queries."""
    timings = {name: Timing(**timing) for name, timing in product["timings"].items()}
    return {
        "rows": product["rows"],
        "rounds": len(timings[PLAIN].total),
        "ratio": timings[PLAIN].seconds / timings[OPTIMISED].seconds,
        **{
            name: {
                "seconds": timing.seconds,
                "planning_seconds": timing.planning_seconds,
                "by_template": timing.by_label(templates),
            }
            for name, timing in timings.items()
        },
    }


def queries_report(timed: Mapping[str, Mapping[str, Any]], scale: float) -> Group:
    """Tabulate what :func:`run_queries` found: all queries together, and where the time goes."""
    return Group(_totals(timed, scale), "", _templates(timed))


def _totals(timed: Mapping[str, Mapping[str, Any]], scale: float) -> Table:
    queries = len(stream_for_testing(STREAM))
    (rounds,) = {of["rounds"] for of in timed.values()}
    title = f"{queries} unseen queries at scale factor {scale:g}, warm, median of {rounds} rounds"
    table = Table(title=title, title_justify="left")
    for heading in ("engine", PLAIN, "of it planning", OPTIMISED, "of it planning", "times faster"):
        table.add_column(heading, justify="left" if heading == "engine" else "right")
    for engine, of in timed.items():
        seconds = [f"{of[way][kind]:.2f} s" for way in (PLAIN, OPTIMISED) for kind in ("seconds", "planning_seconds")]
        table.add_row(engine, *seconds, f"{of['ratio']:.2f}x")
    return table


def _templates(timed: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(title="by template", title_justify="left")
    table.add_column("template")
    columns = [of[way]["by_template"] for of in timed.values() for way in (PLAIN, OPTIMISED)]
    for engine in timed:
        for way in (PLAIN, OPTIMISED):
            table.add_column(f"{engine}, {way}", justify="right")
    for template in columns[0] if columns else ():
        table.add_row(template, *[f"{of[template]:.2f} s" for of in columns])
    return table
