"""`layoutopt bench query`: how long the unseen queries take on plain Parquet and on the optimised table.

Each engine runs the whole stream on both, in turns, several times after a first time that warms everything up. Answers
are compared before anything is timed: a fast wrong answer would be worth nothing. What is timed is a dashboard's
query: one that came before, so an open table remembers what it read in its text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import duckdb
from rich.console import Group
from rich.table import Table

from layoutopt.bench.brushing import experiment as brushing
from layoutopt.bench.brushing.logs import texts_of
from layoutopt.bench.brushing.rows import SOURCES
from layoutopt.bench.compared.workload import load_step
from layoutopt.bench.session import spark_when_needed
from layoutopt.bench.steps import Json, Step, run
from layoutopt.bench.timing import REPEATS, Timing, Way, check_answers, time_ways
from layoutopt.bench.tpch.data import DEFAULT_ROOT, TpchData
from layoutopt.bench.tpch.experiment import (
    SOP_BY_MONTH,
    Bench,
    Variant,
    stream_for_testing,
    table_step,
)
from layoutopt.bench.tpch.queries import TABLE
from layoutopt.errors import SettingError
from layoutopt.inspect.cost import scan_work
from layoutopt.model.engine_costs import BUILT_IN, Calibration, EngineCosts, Work
from layoutopt.scan.table import open_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


_RANGE: Final = re.compile(r"(\w+) (?:>=|<|BETWEEN)")


class PlainFiles(NamedTuple):
    """Parquet as it was before: the name that queries have for it, and its folder."""

    name: str
    folder: Path

    @classmethod
    def of_tpch(cls, bench: Bench) -> PlainFiles:
        """The denormalised table."""
        return cls(TABLE, bench.data.denormalised)


class Labelled(NamedTuple):
    """A query, and what it is reported under."""

    label: str
    text: str


@dataclass(frozen=True)
class Case:
    """A stream of queries, and the table that it is timed on.

    Attributes:
        queries: draws them.
        what: the table, for people to read.
        plain: the rows as they were.
        made: the step that makes the folder ``table`` beside its product.
    """

    queries: Callable[[], Sequence[Labelled]]
    what: str
    plain: PlainFiles
    made: Step

    @property
    def folder(self) -> Path:
        """That of the table, and of all its products."""
        return self.made.product.parent


def of_tpch(bench: Bench, stream: str, variant: Variant) -> Case:
    """A stream of TPC-H's templates, and one of its tables."""

    def queries() -> list[Labelled]:
        return [Labelled(query.template, query.sql) for query in stream_for_testing(stream)]

    what = f"{stream}, {variant.label}"
    return Case(queries, what, PlainFiles.of_tpch(bench), table_step(bench, stream, variant))


def of_brushing(bench: Bench, name: str) -> Case:
    """Ranges that people drag over one of the tables of `layoutopt bench brushing`, planned by `auto`."""
    of = brushing.workload(name, brushing.ROWS, bench.data.root / "brushing", bench.spark)

    def queries() -> list[Labelled]:
        return [Labelled(_ranges_of(text), text) for text in texts_of(name, "test")]

    return Case(
        queries, f"{name}, {brushing.ROWS:,} rows by auto", PlainFiles(name, Path(of.source)), load_step(of, "auto")
    )


def _ranges_of(text: str) -> str:
    return f"columns with a range: {len(set(_RANGE.findall(text)))}"


CASES: Final[Mapping[str, Callable[[Bench], Case]]] = MappingProxyType(
    {
        "chapter3": partial(of_tpch, stream="chapter3", variant=Variant("SOP by year", "sop", "o_year", 10_000)),
        "chapter3-by-month": partial(of_tpch, stream="chapter3", variant=SOP_BY_MONTH),
        "chapter4": partial(of_tpch, stream="chapter4", variant=Variant("GSOP by year", "gsop", "o_year", 10_000)),
        **{name: partial(of_brushing, name=name) for name in SOURCES},
    }
)
"""What is timed, by name: an easy case first; one of small row groups, one of several layouts; and small tables."""
SLOWER: Final = 1.2
GRACE_SECONDS: Final = 0.02
"""A query counts as slowed down if it takes so many times as long as on plain Parquet, and this beyond that."""
PLAIN: Final = "plain Parquet"
OPTIMISED: Final = "optimised table"

Session = Callable[[], "SparkSession"]
Ways = Callable[[Session, PlainFiles, Path], AbstractContextManager[Sequence[Way]]]


@contextmanager
def in_spark(session: Session, before: PlainFiles, table: Path) -> Iterator[tuple[Way, Way]]:
    """Spark's own Parquet reader on the source, and a session that is enabled."""
    from layoutopt import spark as skipping

    plain, optimised = session().newSession(), session().newSession()
    plain.read.parquet(str(before.folder)).createOrReplaceTempView(before.name)
    skipping.register(optimised, before.name, str(table))
    skipping.enable(optimised)

    def ready(spark: SparkSession, text: str) -> Callable[[], None]:
        # The sink takes all rows and keeps none.
        return spark.sql(text).write.format("noop").mode("overwrite").save

    def way(name: str, spark: SparkSession) -> Way:
        return Way(name, partial(ready, spark), lambda text: spark.sql(text).toArrow())

    try:
        yield way(PLAIN, plain), way(OPTIMISED, optimised)
    finally:
        skipping.disable(optimised)


@contextmanager
def in_duckdb(_: Session, before: PlainFiles, table: Path) -> Iterator[tuple[Way, Way]]:
    """DuckDB's own Parquet reader on the source, which keeps footers, and an open table."""
    from layoutopt.sql.duckdb.translate import portable_sql

    opened = open_table(str(table))
    with duckdb.connect() as connection:
        connection.execute("SET parquet_metadata_cache = true")
        files = f"{before.folder}/*.parquet".replace("'", "''")
        connection.execute(f"CREATE VIEW {before.name} AS SELECT * FROM read_parquet('{files}')")

        @cache  # users of DuckDB alone write its dialect
        def translated(text: str) -> str:
            return portable_sql(text, {before.name: opened.schema}, before.name).sql

        def plain(text: str) -> Callable[[], pa.Table]:
            return connection.sql(translated(text)).to_arrow_table

        def optimised(text: str) -> Callable[[], pa.Table]:
            return opened.scan(text).to_arrow

        yield (
            Way(PLAIN, plain, lambda text: plain(text)()),
            Way(OPTIMISED, optimised, lambda text: optimised(text)()),
        )


ENGINES: Final[Mapping[str, Ways]] = MappingProxyType({"spark": in_spark, "duckdb": in_duckdb})


def time_table(
    session: Session, before: PlainFiles, table: Path, texts: Sequence[str], engine: str, repeats: int
) -> Json:
    """Time queries in one engine, on plain Parquet and on a table, in turns, once their answers are found equal.

    Args:
        session: gives the Spark session.
        before: the plain Parquet.
        table: the table's folder.
        texts: the queries.
        engine: one of :data:`ENGINES`.
        repeats: rounds that are measured, after one that warms everything up.

    Returns:
        The ``rows`` of all answers, ``work``, what each query asks of the table, and by way the ``timings``.

    Raises:
        WrongAnswerError: an answer from the table is not that from plain Parquet.
    """
    with ENGINES[engine](session, before, table) as ways:
        rows = check_answers(ways, texts)
        timings = time_ways(ways, texts, repeats)
    opened = open_table(str(table))
    work = [scan_work(opened.scan(text)).counts.tolist() for text in texts]
    return {"rows": rows, "work": work, "timings": {name: asdict(timing) for name, timing in timings.items()}}


def query_step(session: Session, case: Case, engine: str, repeats: int) -> Step:
    """Time a case's queries in one engine, on plain Parquet and on the table; the product has the seconds."""

    def make() -> Json:
        texts = [query.text for query in case.queries()]
        return time_table(session, case.plain, case.folder / "table", texts, engine, repeats)

    return Step(
        f"{case.what}: timing unseen queries in {engine}, {repeats} times on both",
        case.folder / f"queries-{engine}-{repeats}.json",
        make,
        (case.made,),
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
        By case and engine: how many ``queries`` there are, the ``rows`` of all answers, the ``rounds`` whose median
        all seconds are, ``ratio``, how many times faster the optimised table is, ``slowed``, the queries that take
        over 1.2 times as long on it and 20 ms, ``slowest``, the most times that one takes as long,
        ``predicted_seconds``, what the calibration says of it (None where it was timed before they were), and by way
        the ``seconds`` of all queries, of them the ``planning_seconds``, and the seconds ``by_label``: by template, or
        by how many columns have a range.

    Raises:
        SettingError: a scale factor that can't be generated, or a case that is not known.
        WrongAnswerError: an answer from the table is not that from plain Parquet.
    """
    unknown = [name for name in cases if name not in CASES]
    if unknown:
        raise SettingError(f"there is no case {unknown[0]!r} of queries; give one of {', '.join(CASES)}")
    with spark_when_needed("layoutopt-queries") as spark:
        bench = Bench(TpchData(scale, root), spark)
        return {name: _timed(spark, CASES[name](bench), repeats, calibration, say) for name in cases or CASES}


def _timed(
    session: Session, case: Case, repeats: int, calibration: Calibration, say: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    labels = [query.label for query in case.queries()]
    return {
        engine: summary_of(run(query_step(session, case, engine, repeats), say), labels, calibration.costs(engine))
        for engine in ENGINES
    }


def summary_of(product: Mapping[str, Any], labels: Sequence[str], costs: EngineCosts) -> dict[str, Any]:
    """What is said of one engine, from the product of its step, the labels of its queries, and what it costs."""
    timings = {name: Timing(**timing) for name, timing in product["timings"].items()}
    pairs = list(zip(timings[PLAIN].by_query, timings[OPTIMISED].by_query, strict=True))
    return {
        "queries": len(labels),
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
                "by_label": timing.by_label(labels),
            }
            for name, timing in timings.items()
        },
    }


def _predicted(work: Sequence[Sequence[float]] | None, costs: EngineCosts) -> float | None:
    return None if work is None else round(sum(costs.seconds(Work(*of)) for of in work), 6)


def queries_report(timed: Mapping[str, Mapping[str, Mapping[str, Any]]], scale: float) -> Group:
    """Tabulate what :func:`run_queries` found: all queries together, and where the time goes."""
    by_label = [part for case in timed for part in ("", _by_label(case, timed[case]))]
    return Group(_totals(timed, scale), *by_label)


def _totals(timed: Mapping[str, Mapping[str, Mapping[str, Any]]], scale: float) -> Table:
    (rounds,) = {of["rounds"] for engines in timed.values() for of in engines.values()}
    sizes = f"TPC-H at scale factor {scale:g}, brushed tables of {brushing.ROWS:,} rows"
    title = f"unseen queries ({sizes}), warm, median of {rounds} rounds"
    table = Table(title=title, title_justify="left")
    for heading in ("queries", "engine"):
        table.add_column(heading)
    for heading in (PLAIN, "of it planning", OPTIMISED, "of it planning", "predicted", "times faster", "slowed down"):
        table.add_column(heading, justify="right")
    for case, engines in timed.items():
        for engine, of in engines.items():
            queries = of["queries"]
            ways = [f"{of[way][kind]:.2f} s" for way in (PLAIN, OPTIMISED) for kind in ("seconds", "planning_seconds")]
            predicted = of["predicted_seconds"]
            ways.append("-" if predicted is None else f"{predicted:.2f} s")
            table.add_row(f"{case} ({queries})", engine, *ways, f"{of['ratio']:.2f}x", f"{of['slowed']} of {queries}")
    return table


def _by_label(case: str, timed: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(title=f"{case}, by what the queries have in common", title_justify="left")
    table.add_column("queries")
    columns = [of[way]["by_label"] for of in timed.values() for way in (PLAIN, OPTIMISED)]
    for engine in timed:
        for way in (PLAIN, OPTIMISED):
            table.add_column(f"{engine}, {way}", justify="right")
    for label in columns[0] if columns else ():
        table.add_row(label, *[f"{of[label]:.2f} s" for of in columns])
    return table
