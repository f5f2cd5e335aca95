"""`layoutopt bench query`: how long the unseen queries take on plain Parquet and on the optimised table.

Each engine runs the whole stream on both, in turns, several times after a first time that warms everything up. Answers
are compared before anything is timed: a fast wrong answer would be worth nothing. What is timed is a dashboard's
query: one that came before, so an open table remembers what it read in its text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
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
from layoutopt.bench.tpch.experiment import (
    SOP_BY_MONTH,
    Bench,
    Variant,
    stream_for_testing,
    table_folder,
    table_step,
)
from layoutopt.bench.tpch.queries import TABLE
from layoutopt.errors import SettingError
from layoutopt.inspect.work import scan_work
from layoutopt.model.engine_costs import BUILT_IN, Calibration, EngineCosts, Work
from layoutopt.scan.table import open_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Case:
    """A stream of queries, and the table that it is timed on."""

    stream: str
    variant: Variant


CASES: Final[Mapping[str, Case]] = MappingProxyType(
    {
        "chapter3": Case("chapter3", Variant("SOP by year", "sop", "o_year", 10_000)),
        "chapter3-by-month": Case("chapter3", SOP_BY_MONTH),
        "chapter4": Case("chapter4", Variant("GSOP by year", "gsop", "o_year", 10_000)),
    }
)
"""What is timed, by name: an easy case first; then one of small row groups, and one of several layouts."""
SLOWER: Final = 1.2
GRACE_SECONDS: Final = 0.02
"""A query counts as slowed down if it takes so many times as long as on plain Parquet, and this beyond that."""
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


def time_table(bench: Bench, table: Path, texts: Sequence[str], engine: str, repeats: int) -> Json:
    """Time queries in one engine, on plain Parquet and on a table, in turns, once their answers are found equal.

    Args:
        bench: has the plain Parquet and the Spark session.
        table: the table's folder.
        texts: the queries.
        engine: one of :data:`ENGINES`.
        repeats: rounds that are measured, after one that warms everything up.

    Returns:
        The ``rows`` of all answers, ``work``, what each query asks of the table, and by way the ``timings``.

    Raises:
        WrongAnswerError: an answer from the table is not that from plain Parquet.
    """
    with ENGINES[engine](bench, table) as ways:
        rows = check_answers(ways, texts)
        timings = time_ways(ways, texts, repeats)
    opened = open_table(str(table))
    work = [scan_work(opened.scan(text)).counts.tolist() for text in texts]
    return {"rows": rows, "work": work, "timings": {name: asdict(timing) for name, timing in timings.items()}}


def query_step(bench: Bench, case: Case, engine: str, repeats: int) -> Step:
    """Time a case's test stream in one engine, on plain Parquet and on the table; the product has the seconds."""
    folder = table_folder(bench, case.stream, case.variant)

    def make() -> Json:
        texts = [query.sql for query in stream_for_testing(case.stream)]
        return time_table(bench, folder / "table", texts, engine, repeats)

    return Step(
        f"{case.stream}: timing the test stream on {case.variant.label} in {engine}, {repeats} times on both",
        folder / f"queries-{engine}-{repeats}.json",
        make,
        (table_step(bench, case.stream, case.variant),),
    )


def run_queries(
    scale: float,
    *,
    root: Path = DEFAULT_ROOT,
    cases: Sequence[str] = (),
    repeats: int = REPEATS,
    calibration: Calibration = BUILT_IN,
    say: Callable[[str], None] = print,
) -> dict[str, dict[str, dict[str, Any]]]:
    """Time test streams in both engines, on plain Parquet and on the optimised table.

    Args:
        scale: the TPC-H scale factor.
        root: the folder of all experiments; engines that were timed there are not timed again.
        cases: names of :data:`CASES`; all when empty.
        repeats: the rounds whose median counts, after one that warms everything up.
        calibration: what predicts the seconds.
        say: told each step that is run.

    Returns:
        By case and engine: the ``rows`` of all answers, the ``rounds`` whose median all seconds are, ``ratio``, how
        many times faster the optimised table is, ``slowed``, the queries that take over 1.2 times as long on it and
        20 ms, ``slowest``, the most times that one takes as long, ``predicted_seconds``, what the calibration says of
        it (None where it was timed before they were), and by way the ``seconds`` of all queries, of them
        the ``planning_seconds``, and the seconds ``by_template``.

    Raises:
        SettingError: a scale factor that can't be generated, or a case that is not known.
        WrongAnswerError: an answer from the table is not that from plain Parquet.
    """
    unknown = [name for name in cases if name not in CASES]
    if unknown:
        raise SettingError(f"there is no case {unknown[0]!r} of queries; give one of {', '.join(CASES)}")
    with spark_when_needed("layoutopt-queries") as spark:
        bench = Bench(TpchData(scale, root), spark)
        return {
            name: {
                engine: summary_of(
                    run(query_step(bench, CASES[name], engine, repeats), say),
                    _templates_of(name),
                    calibration.costs(engine),
                )
                for engine in ENGINES
            }
            for name in cases or CASES
        }


def _templates_of(case: str) -> list[str]:
    return [query.template for query in stream_for_testing(CASES[case].stream)]


def summary_of(product: Mapping[str, Any], templates: Sequence[str], costs: EngineCosts) -> dict[str, Any]:
    """What is said of one engine, from the product of its step, the templates of its queries, and what it costs."""
    timings = {name: Timing(**timing) for name, timing in product["timings"].items()}
    pairs = list(zip(timings[PLAIN].by_query, timings[OPTIMISED].by_query, strict=True))
    return {
        "rows": product["rows"],
        "rounds": len(timings[PLAIN].total),
        "predicted_seconds": _predicted(product.get("work"), costs),
        "ratio": timings[PLAIN].seconds / timings[OPTIMISED].seconds,
        "slowed": sum(ours > SLOWER * plain + GRACE_SECONDS for plain, ours in pairs),
        "slowest": max(ours / plain for plain, ours in pairs),
        **{
            name: {
                "seconds": timing.seconds,
                "planning_seconds": timing.planning_seconds,
                "by_template": timing.by_label(templates),
            }
            for name, timing in timings.items()
        },
    }


def _predicted(work: Sequence[Sequence[float]] | None, costs: EngineCosts) -> float | None:
    return None if work is None else round(sum(costs.seconds(Work(*of)) for of in work), 6)


def queries_report(timed: Mapping[str, Mapping[str, Mapping[str, Any]]], scale: float) -> Group:
    """Tabulate what :func:`run_queries` found: all queries together, and where the time goes."""
    by_template = [part for case in timed for part in ("", _templates(case, timed[case]))]
    return Group(_totals(timed, scale), *by_template)


def _totals(timed: Mapping[str, Mapping[str, Mapping[str, Any]]], scale: float) -> Table:
    (rounds,) = {of["rounds"] for engines in timed.values() for of in engines.values()}
    title = f"unseen queries at scale factor {scale:g}, warm, median of {rounds} rounds"
    table = Table(title=title, title_justify="left")
    for heading in ("queries", "engine"):
        table.add_column(heading)
    for heading in (PLAIN, "of it planning", OPTIMISED, "of it planning", "predicted", "times faster", "slowed down"):
        table.add_column(heading, justify="right")
    for case, engines in timed.items():
        queries = len(_templates_of(case))
        for engine, of in engines.items():
            ways = [f"{of[way][kind]:.2f} s" for way in (PLAIN, OPTIMISED) for kind in ("seconds", "planning_seconds")]
            predicted = of["predicted_seconds"]
            ways.append("-" if predicted is None else f"{predicted:.2f} s")
            table.add_row(f"{case} ({queries})", engine, *ways, f"{of['ratio']:.2f}x", f"{of['slowed']} of {queries}")
    return table


def _templates(case: str, timed: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(title=f"{case}, by template", title_justify="left")
    table.add_column("template")
    columns = [of[way]["by_template"] for of in timed.values() for way in (PLAIN, OPTIMISED)]
    for engine in timed:
        for way in (PLAIN, OPTIMISED):
            table.add_column(f"{engine}, {way}", justify="right")
    for template in columns[0] if columns else ():
        table.add_row(template, *[f"{of[template]:.2f} s" for of in columns])
    return table
