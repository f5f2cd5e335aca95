"""Every way of reading a table, and the truth: Spark over rows that lie in no file, so that nothing is pushed down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from layoutopt.errors import LayoutoptError, QueryError
from layoutopt.inspect.block_condition import block_conditions
from layoutopt.model.types import quote_name
from layoutopt.scan.table import Scan
from layoutopt.spark import disable, enable, read_table, register
from tests.hunt.compare import Answer, rows_of, same_values
from tests.hunt.queries import Ask
from tests.hunt.splicing import splice_relations
from tests.hunt.tables import Laid, World
from tests.spark.session.answers import planned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Each text is evaluated once: compiling it, or cutting it into tasks, would take longer.
_QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.parquet.filterPushdown": "true",
}


@dataclass(frozen=True)
class Refused:
    """What an engine said instead of an answer."""

    error: Exception

    def __str__(self) -> str:
        return f"{type(self.error).__name__}: {' '.join(str(self.error).split())[:600]}"


Outcome = Answer | Refused
Outcomes = dict[int, Outcome]


@dataclass(frozen=True, eq=False)
class Found:
    """What a way gave: an outcome for each text that it can be asked, and how many blocks it left out there."""

    outcomes: Outcomes
    skipped: Mapping[int, int]


class Sessions:
    """Sessions of one Spark for a world: one for the truth, one to enable, one for what needs none."""

    def __init__(self, spark: SparkSession, world: World) -> None:
        self.world = world
        self.truth, self.enabled, self.plain = (self._session(spark, world.zone) for _ in range(3))
        # In no file, so nothing is pushed down; what is tested are the ways, which push what they push by default.
        self.truth.createDataFrame(world.rows).createOrReplaceTempView("t")

    def _session(self, spark: SparkSession, zone: str) -> SparkSession:
        session = spark.newSession()
        for key, value in {**_QUICK, "spark.sql.session.timeZone": zone}.items():
            session.conf.set(key, value)
        return session


def arm(ask: Ask, text: str) -> str:
    """A query that gives the rows of a text as arrays of strings, so that many texts can be asked in one."""
    names = [f"c{place}" for place in range(len(ask.query.types))]
    cells = [
        f"hex({n})" if t == "binary" else f"CAST({n} AS string)" for n, t in zip(names, ask.query.types, strict=True)
    ]
    return f"SELECT {ask.number} AS q, array({', '.join(cells)}) AS r FROM ({text}) AS x({', '.join(names)})"


Run = Callable[[str, Mapping[str, object]], pa.Table]


def asked_together(asks: Sequence[Ask], text_of: Callable[[Ask], str], run: Run) -> Outcomes:
    """The outcomes of many texts by one query of Spark's; where it is refused, by its halves."""
    if not asks:
        return {}
    arguments = {name: value for ask in asks for name, value in ask.query.arguments.items()}
    try:
        found = run(" UNION ALL ".join(arm(ask, text_of(ask)) for ask in asks), arguments)
    except Exception as error:
        if len(asks) == 1:
            return {asks[0].number: Refused(error)}
        half = len(asks) // 2
        return {**asked_together(asks[:half], text_of, run), **asked_together(asks[half:], text_of, run)}
    answers: dict[int, Answer] = {ask.number: Counter() for ask in asks}
    for number, cells in zip(found["q"].to_pylist(), found["r"].to_pylist(), strict=True):
        answers[number][tuple(cells)] += 1
    return dict(answers)


def truth(sessions: Sessions, asks: Sequence[Ask]) -> Outcomes:
    """What Spark says of the source."""
    run = lambda text, args: sessions.truth.sql(text, args=dict(args)).toArrow()  # noqa: E731
    return asked_together(asks, lambda ask: ask.query.with_parameters, run)


def skipped_blocks(scan: Scan) -> int:
    """How many blocks a scan leaves out of the layouts that it reads."""
    count = 0
    for pruned in (pruned for read in scan.reads for pruned in read.pruned):
        on_path = np.isin(pruned.source.blocks.layout, [choice.layout for choice in pruned.choice])
        count += int((on_path & ~pruned.read).sum())
    return count


@dataclass(frozen=True, eq=False)
class Asking:
    """Texts to ask of a table, each with its true answer and with what the catalog says of it.

    Attributes:
        sessions: of the world.
        laid: the table.
        asks: the texts that Spark answers on the source.
        known: its answers.
        scans: what each text reads of the table; an error where it can't be analysed.
    """

    sessions: Sessions
    laid: Laid
    asks: Sequence[Ask]
    known: Mapping[int, Answer]
    scans: Mapping[int, Scan | Refused]

    @classmethod
    def of(cls, sessions: Sessions, laid: Laid, asks: Sequence[Ask], known: Mapping[int, Outcome]) -> Asking:
        """Those texts that have an answer."""
        answers = {number: answer for number, answer in known.items() if not isinstance(answer, Refused)}
        chosen = [ask for ask in asks if ask.number in answers]
        return cls(sessions, laid, chosen, answers, {ask.number: _scan(laid, ask) for ask in chosen})

    def some(self, count: int, first: int) -> Asking:
        """So many of the texts, others with another number."""
        step = max(len(self.asks) // count, 1)
        return replace(self, asks=self.asks[first % step :: step][:count])

    @property
    def scanned(self) -> list[tuple[Ask, Scan]]:
        """The texts that can be analysed."""
        pairs = [(ask, self.scans[ask.number]) for ask in self.asks]
        return [(ask, scan) for ask, scan in pairs if isinstance(scan, Scan)]

    def together(self, text_of: Callable[[Ask], str], run: Run) -> Outcomes:
        """The outcomes by queries of many texts; what can't be analysed is asked alone, for it makes all read whole."""
        found = asked_together([ask for ask, _ in self.scanned], text_of, run)
        alone = [ask for ask in self.asks if ask.number not in found]
        return {
            **found,
            **{number: one for ask in alone for number, one in asked_together([ask], text_of, run).items()},
        }

    def skipped(self) -> dict[int, int]:
        """What each text leaves out, whoever reads."""
        return {ask.number: skipped_blocks(scan) for ask, scan in self.scanned}

    def given(self, ask: Ask, rows: pa.Table) -> Answer:
        """Rows as Spark writes them: as the truth is written where they equal it."""
        expected, zone = self.known[ask.number], self.sessions.world.zone
        return expected if same_values(rows, expected, zone) else rows_of(rows, zone)


def _scan(laid: Laid, ask: Ask) -> Scan | Refused:
    try:
        return laid.table.scan(ask.sql)
    except LayoutoptError as error:
        return Refused(error)


def embedded(asking: Asking) -> Found:
    """`table.sql`: rows of DuckDB, compared in the types of the answer."""
    outcomes: Outcomes = {}
    for ask in asking.asks:
        scan = asking.scans[ask.number]
        try:
            outcomes[ask.number] = scan if isinstance(scan, Refused) else asking.given(ask, scan.to_arrow())
        except Exception as error:  # judged by who asked
            outcomes[ask.number] = Refused(error)
    return Found(outcomes, asking.skipped())


def enabled(asking: Asking) -> Found:
    """An enabled session: many texts with parameters in one query, and each text by itself as far as its plan."""
    session = asking.sessions.enabled
    register(session, "t", asking.laid.root)
    enable(session)
    skipped: dict[int, int] = {}
    try:
        outcomes = asking.together(
            lambda ask: ask.query.with_parameters, lambda text, args: session.sql(text, args=dict(args)).toArrow()
        )
        for ask in asking.asks:
            if not isinstance(outcomes[ask.number], Refused):
                scans = planned(session.sql(ask.query.with_parameters, args=dict(ask.query.arguments)))
                skipped[ask.number] = sum(scan.skipped.blocks for scan in scans)
    finally:
        disable(session)
    return Found(outcomes, skipped)


def engine(asking: Asking) -> Found:
    """`query --engine spark`."""

    def run(text: str, _: object) -> pa.Table:
        return asking.laid.table.scan(text).to_spark(asking.sessions.plain).toArrow()

    return Found(asking.together(lambda ask: ask.sql, run), asking.skipped())


def dataframe(asking: Asking) -> Found:
    """`read_table`, as a view of the session."""
    session = asking.sessions.plain
    read_table(session, asking.laid.root).createOrReplaceTempView("t")

    def run(text: str, args: Mapping[str, object]) -> pa.Table:
        return session.sql(text, args=dict(args)).toArrow()

    try:
        return Found(asked_together(asking.asks, lambda ask: ask.query.with_parameters, run), {})
    finally:
        session.catalog.dropTempView("t")


def predicate(asking: Asking) -> Found:
    """`explain --predicate`: each mention of the table becomes the plain files' rows under its condition, in Spark.

    Only of texts each of whose mentions reads one layout: rows that are put together stand in no file.
    """
    session, texts = asking.sessions.plain, {}
    whole = asking.laid.table.catalog.plans
    complete = {k for plan in whole.values() for k, layout in enumerate(plan.scheme.layouts) if layout.is_undivided}
    for ask, scan in asking.scanned:
        conditions = block_conditions(scan).conditions
        layouts, spans = {each.layout for each in conditions}, [read.scan.span for read in scan.reads]
        if len(conditions) == len(spans) and layouts <= complete and None not in spans:
            relations = {
                span: f"(SELECT {_all_columns(asking.laid)} FROM f{each.layout} WHERE {each.sql})"
                for each in conditions
                if (span := spans[each.mention]) is not None
            }
            texts[ask.number] = splice_relations(ask.sql, relations)
    for layout in complete if texts else ():
        parts = [pq.read_table(path) for path in asking.laid.table.files(layout)]
        _file_view(asking, pa.concat_tables(parts), f"f{layout}")
    chosen = [ask for ask in asking.asks if ask.number in texts]

    def run(text: str, _: object) -> pa.Table:
        return session.sql(text).toArrow()

    return Found(asked_together(chosen, lambda ask: texts[ask.number], run), asking.skipped())


def _all_columns(laid: Laid) -> str:
    return ", ".join(quote_name(name) for name in laid.table.schema.names)


def _file_view(asking: Asking, rows: pa.Table, name: str) -> None:
    """The rows of plain files; columns that they lack are NULL, so that names mean the same."""
    for given in asking.sessions.world.given:
        if given.name not in rows.column_names:
            rows = rows.append_column(given.name, pa.nulls(rows.num_rows, given.arrow))
    columns = [given.name for given in asking.sessions.world.given]
    asking.sessions.plain.createDataFrame(rows.select([*columns, "_block"])).createOrReplaceTempView(name)


def plain_files(asking: Asking) -> Found:
    """`explain --predicate` given to DuckDB over the plain files: the rows that match must be among those it leaves."""
    outcomes: Outcomes = {}
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        for ask, scan in asking.scanned:
            if not ask.flat:
                continue
            expected = asking.known[ask.number]
            found = {int(row[0]) for row in expected}
            for each in block_conditions(scan).conditions:
                if "id" in each.columns:
                    paths = [path.replace("'", "''") for path in asking.laid.table.files(each.layout)]
                    listed = ", ".join(f"'{path}'" for path in paths)
                    sql = f"SELECT id FROM read_parquet([{listed}], union_by_name = true) WHERE {each.sql}"
                    found &= {row[0] for row in connection.sql(sql).fetchall()}
            outcomes[ask.number] = Counter({row: n for row, n in expected.items() if int(row[0]) in found})
    return Found(outcomes, asking.skipped())


def dataset(asking: Asking) -> Found:
    """`Scan.to_dataset` by Arrow and by Polars: the rows that match, looked up by their `id`."""
    outcomes: Outcomes = {}
    for ask, scan in asking.scanned:
        if not ask.flat:
            continue
        wanted = [int(row[0]) for row in asking.known[ask.number]]
        data = scan.to_dataset()
        if ask.number % 2 and set(ask.columns) <= _for_polars(asking.sessions.world):
            read = pl.scan_pyarrow_dataset(data).filter(pl.col("id").is_in(wanted))
            rows = read.select(ask.columns).collect().to_arrow()
        else:
            rows = data.to_table(filter=pc.field("id").isin(pa.array(wanted, pa.int32()))).select(list(ask.columns))
        outcomes[ask.number] = asking.given(ask, rows)
    return Found(outcomes, asking.skipped())


def _for_polars(world: World) -> set[str]:
    families = ("int", "bigint", "string", "digits", "date", "double")
    return {given.name for given in world.given if given.family in families}


Way = Callable[[Asking], Found]
WAYS: Mapping[str, Way] = {
    "embedded": embedded, "enable": enabled, "engine spark": engine, "DataFrame": dataframe,
    "explain --predicate": predicate, "explain --predicate of plain files": plain_files, "dataset": dataset,
}  # fmt: skip


def refusal(outcome: Any) -> bool:
    """Whether an engine of ours said that it does not answer such texts."""
    return isinstance(outcome, Refused) and isinstance(outcome.error, QueryError)
