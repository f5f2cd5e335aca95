"""`python -m jobs.bench query`: the seconds of unseen queries on plain Parquet and on the optimised table.

Each engine runs all queries on both, in turns, several times after a first time that warms everything up. Answers
are compared before anything is timed. What is timed is a dashboard's query, which came before: an open table has its
text in a cache.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import duckdb
from rich.console import Group
from rich.table import Table

from jobs.bench.brushing import ROWS, SOURCES, workload
from jobs.bench.comparison import comparison_of
from jobs.bench.experiment import TEST, LoggedQuery, Session, Source, Variant, WrongAnswerError
from jobs.bench.steps import Json, Say, Step, run, spark_when_needed
from jobs.bench.tpch import MONTH, MONTH_BLOCK_ROWS, YEAR, YEAR_BLOCK_ROWS, Tpch, tpch_at
from layoutopt.errors import SettingError, expected_names
from layoutopt.scan.table import open_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

PLAIN: Final = "plain Parquet"
OPTIMISED: Final = "optimised table"
REPEATS: Final = 5

# A query is slowed down if it takes so many times as long as on plain Parquet, and this many seconds more.
SLOWER: Final = 1.2
GRACE_SECONDS: Final = 0.02

_RANGE: Final = re.compile(r"(\w+) (?:>=|<|BETWEEN)")


@dataclass(frozen=True)
class Way:
    """One engine on one table: from a text to what runs it to its end and keeps no rows, and to its rows."""

    name: str
    plan: Callable[[str], Callable[[], object]]
    answer: Callable[[str], pa.Table]


@dataclass(frozen=True)
class Timing:
    """The seconds of queries in one way, by round and query: until the query could run, and until its last row."""

    planning: Sequence[Sequence[float]]
    total: Sequence[Sequence[float]]

    @property
    def seconds(self) -> float:
        """All queries together, the median of the rounds."""
        return median(map(sum, self.total))

    @property
    def planning_seconds(self) -> float:
        """The part of it that is planning, the median of the rounds."""
        return median(map(sum, self.planning))

    @property
    def by_query(self) -> list[float]:
        """Each query's seconds, the median of the rounds."""
        return [median(rounds) for rounds in zip(*self.total, strict=True)]

    def by_label(self, labels: Sequence[str]) -> dict[str, float]:
        """Return the seconds of the queries of each label, one a query, in the order in which labels first occur."""
        sums = dict.fromkeys(labels, 0.0)
        for label, seconds in zip(labels, self.by_query, strict=True):
            sums[label] += seconds
        return sums


def time_ways(ways: Sequence[Way], texts: Sequence[str], repeats: int) -> dict[str, Timing]:
    """Run the texts in each way, once unmeasured and then in turns; return the timing of each way by its name."""

    def measure(way: Way, text: str) -> tuple[float, float]:
        started = time.perf_counter()
        ready = way.plan(text)
        planned = time.perf_counter()
        ready()
        return planned - started, time.perf_counter() - started

    measured: dict[str, list[list[tuple[float, float]]]] = {way.name: [] for way in ways}
    for _ in range(repeats + 1):
        for way in ways:
            measured[way.name].append([measure(way, text) for text in texts])
    return {
        name: Timing(*([[pair[kind] for pair in pairs] for pairs in rounds[1:]] for kind in (0, 1)))
        for name, rounds in measured.items()
    }


def check_answers(ways: Sequence[Way], texts: Sequence[str]) -> int:
    """Compare all ways' answers to each text; return the rows of all answers together.

    Raises:
        WrongAnswerError: two differ.
    """
    rows = 0
    for text in texts:
        digests = {way.name: digest(way.answer(text)) for way in ways}
        if len(set(digests.values())) > 1:
            raise WrongAnswerError(f"{text!r} has different answers: {digests}")
        rows += next(iter(digests.values()))[0]
    return rows


def digest(answer: pa.Table) -> tuple[int, int]:
    """Return the number of rows, and a sum over them of hashes, which does not depend on the rows' order."""
    with duckdb.connect() as connection:
        connection.register("answer", answer)
        row = connection.execute("SELECT count(*), coalesce(sum(hash(answer)::HUGEINT), 0) FROM answer").fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


@contextmanager
def in_spark(session: Session, source: Source, table: Path) -> Iterator[tuple[Way, Way]]:
    """Yield Spark's own Parquet reader on the source, and an enabled session on the table."""
    from layoutopt import spark as skipping

    before, optimised = session().newSession(), session().newSession()
    before.read.parquet(str(source.path)).createOrReplaceTempView(source.table)
    skipping.register(optimised, source.table, str(table))
    skipping.enable(optimised)
    try:
        yield spark_way(PLAIN, before), spark_way(OPTIMISED, optimised)
    finally:
        skipping.disable(optimised)


def spark_way(name: str, spark: SparkSession, rewrite: Callable[[str], str] = str) -> Way:
    """Return a session as a way; its sink takes all rows and keeps none."""

    from layoutopt.spark.core.versions import to_arrow

    def ready(text: str) -> Callable[[], None]:
        return spark.sql(rewrite(text)).write.format("noop").mode("overwrite").save

    return Way(name, ready, lambda text: to_arrow(spark.sql(rewrite(text))))


@contextmanager
def in_duckdb(_: Session, source: Source, table: Path) -> Iterator[tuple[Way, Way]]:
    """Yield DuckDB's own Parquet reader on the source, which keeps footers, and an open table."""
    from layoutopt.sql.duckdb.translate import portable_sql

    opened = open_table(str(table))
    with duckdb.connect() as connection:
        connection.execute("SET parquet_metadata_cache = true")
        files = f"{source.path}/*.parquet".replace("'", "''")
        connection.execute(f"CREATE VIEW {source.table} AS SELECT * FROM read_parquet('{files}')")

        @cache  # users of DuckDB alone write its dialect
        def translated(text: str) -> str:
            return portable_sql(text, {source.table: opened.schema}, source.table).sql

        def before(text: str) -> Callable[[], pa.Table]:
            return connection.sql(translated(text)).to_arrow_table

        def optimised(text: str) -> Callable[[], pa.Table]:
            return opened.scan(text).to_arrow

        yield (
            Way(PLAIN, before, lambda text: before(text)()),
            Way(OPTIMISED, optimised, lambda text: optimised(text)()),
        )


Ways = Callable[[Session, Source, Path], AbstractContextManager[Sequence[Way]]]
ENGINES: Final[Mapping[str, Ways]] = {"spark": in_spark, "duckdb": in_duckdb}


def time_table(session: Session, source: Source, table: Path, texts: Sequence[str], engine: str, repeats: int) -> Json:
    """Time queries in one engine, on plain Parquet and on a table, in turns, after their answers were compared.

    The rounds that are measured follow one that warms everything up.

    Returns:
        The ``rows`` of all answers, and by way the ``timings``.

    Raises:
        WrongAnswerError: an answer from the table is not that from plain Parquet.
    """
    with ENGINES[engine](session, source, table) as ways:
        rows = check_answers(ways, texts)
        timings = time_ways(ways, texts, repeats)
    return {"rows": rows, "timings": {name: asdict(timing) for name, timing in timings.items()}}


@dataclass(frozen=True)
class Case:
    """Queries, which are reported by their templates, the source and the table, and the step that makes the table."""

    queries: Callable[[], Sequence[LoggedQuery]]
    title: str
    source: Source
    table: Path
    made: Step


def _tpch_case(stream: str, variant: Variant, tpch: Tpch) -> Case:
    """Return a stream of TPC-H's templates, on one of its tables."""
    experiment = tpch.stream(stream)
    table, title = experiment.folder(variant) / "table", f"{stream}, {variant.label}"
    return Case(partial(experiment.queries, TEST), title, experiment.source, table, experiment.load(variant))


def _brushing_case(name: str, tpch: Tpch) -> Case:
    """Return ranges of users over one of the tables of `python -m jobs.bench brushing`, planned by `auto`."""
    stream = workload(name, ROWS, tpch.data.root / "brushing", tpch.spark)
    comparison = comparison_of(stream, SOURCES[name].partition_by)

    def queries() -> list[LoggedQuery]:
        texts = [query.sql for query in stream.queries(TEST)]
        return [LoggedQuery(f"columns with a range: {len(set(_RANGE.findall(text)))}", text) for text in texts]

    def make() -> Json:
        return {"table": comparison.write_table("auto", tpch.spark, lambda _: None).name}

    made = stream.step("planning and loading by auto", "auto.json", make, stream.features())
    title = f"{name}, {ROWS:,} rows by auto"
    return Case(queries, title, stream.source, comparison.table_of("auto"), made)


# What is timed: an easy case first, then small row groups, then several layouts, then small tables.
CASES: Final[Mapping[str, Callable[[Tpch], Case]]] = {
    "chapter3": partial(_tpch_case, "chapter3", Variant("SOP by year", "sop", YEAR, YEAR_BLOCK_ROWS)),
    "chapter3-by-month": partial(_tpch_case, "chapter3", Variant("SOP", "sop", MONTH, MONTH_BLOCK_ROWS)),
    "chapter4": partial(_tpch_case, "chapter4", Variant("GSOP by year", "gsop", YEAR, YEAR_BLOCK_ROWS)),
    **{name: partial(_brushing_case, name) for name in SOURCES},
}


def query_step(session: Session, case: Case, engine: str, repeats: int) -> Step:
    """Time a case's queries in one engine, on plain Parquet and on the table; see :func:`time_table`."""

    def make() -> Json:
        return time_table(session, case.source, case.table, [query.sql for query in case.queries()], engine, repeats)

    name = f"{case.title}: timing unseen queries in {engine}, {repeats} times on both"
    return Step(name, case.table.parent / f"queries-{engine}-{repeats}.json", make, (case.made,))


def run_queries(
    scale: float,
    *,
    root: Path,
    cases: Sequence[str] = (),
    repeats: int = REPEATS,
    say: Say = print,
) -> dict[str, dict[str, dict[str, Any]]]:
    """Time test queries in both engines, on plain Parquet and on the optimised table; see :func:`summarize`.

    Cases are of :data:`CASES`, all when empty; engines that were timed below `root` are not timed again.

    Raises:
        SettingError: a scale factor that can't be generated, or a case that is not known.
        WrongAnswerError: an answer from the table is not that from plain Parquet.
    """
    unknown = [name for name in cases if name not in CASES]
    if unknown:
        raise SettingError(f"unknown case of queries {unknown[0]!r}: {expected_names(unknown[0], CASES)}")

    def measure(case: Case) -> dict[str, dict[str, Any]]:
        labels = [query.template for query in case.queries()]
        return {engine: summarize(run(query_step(spark, case, engine, repeats), say), labels) for engine in ENGINES}

    with spark_when_needed("layoutopt-queries") as spark:
        tpch = tpch_at(scale, root, spark)
        return {name: measure(CASES[name](tpch)) for name in cases or CASES}


def summarize(product: Mapping[str, Any], labels: Sequence[str]) -> dict[str, Any]:
    """Summarize the product of a :func:`query_step`, given the labels of its queries.

    Returns:
        How many ``queries`` there are, the ``rows`` of all answers, the ``rounds`` whose median all seconds are,
        ``ratio``, how many times faster the optimised table is, ``slowed``, the queries that are slowed down,
        ``slowest``, the most times that a query takes as long, and by way the ``seconds`` of all queries, their
        ``planning_seconds``, and the seconds ``by_label``.
    """
    timings = {name: Timing(**timing) for name, timing in product["timings"].items()}
    pairs = list(zip(timings[PLAIN].by_query, timings[OPTIMISED].by_query, strict=True))
    return {
        "queries": len(labels),
        "rows": product["rows"],
        "rounds": len(timings[PLAIN].total),
        "ratio": timings[PLAIN].seconds / timings[OPTIMISED].seconds,
        "slowed": sum(optimised > SLOWER * plain + GRACE_SECONDS for plain, optimised in pairs),
        "slowest": max(optimised / plain for plain, optimised in pairs),
        **{
            name: {
                "seconds": timing.seconds,
                "planning_seconds": timing.planning_seconds,
                "by_label": timing.by_label(labels),
            }
            for name, timing in timings.items()
        },
    }


def queries_report(timed: Mapping[str, Mapping[str, Mapping[str, Any]]], scale: float) -> Group:
    """Tabulate what :func:`run_queries` returns: all queries together, and the seconds by label."""
    return Group(_totals(timed, scale), *(part for case in timed for part in ("", _by_label(case, timed[case]))))


def _totals(timed: Mapping[str, Mapping[str, Mapping[str, Any]]], scale: float) -> Table:
    (rounds,) = {totals["rounds"] for engines in timed.values() for totals in engines.values()}
    sizes = f"TPC-H at scale factor {scale:g}, brushed tables of {ROWS:,} rows"
    title = f"unseen queries ({sizes}), warm, median of {rounds} rounds"
    table = Table("queries", "engine", title=title, title_justify="left")
    for heading in (PLAIN, "of it planning", OPTIMISED, "of it planning", "times faster", "slowed down"):
        table.add_column(heading, justify="right")
    for case, engines in timed.items():
        for engine, totals in engines.items():
            queries = totals["queries"]
            cells = [
                f"{totals[way][kind]:.2f} s" for way in (PLAIN, OPTIMISED) for kind in ("seconds", "planning_seconds")
            ]
            slowed = f"{totals['slowed']} of {queries}"
            table.add_row(f"{case} ({queries})", engine, *cells, f"{totals['ratio']:.2f}x", slowed)
    return table


def _by_label(case: str, timed: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table("queries", title=f"{case}, by what the queries have in common", title_justify="left")
    columns = {(engine, way): of[way]["by_label"] for engine, of in timed.items() for way in (PLAIN, OPTIMISED)}
    for engine, way in columns:
        table.add_column(f"{engine}, {way}", justify="right")
    for label in next(iter(columns.values()), ()):
        table.add_row(label, *[f"{seconds[label]:.2f} s" for seconds in columns.values()])
    return table
