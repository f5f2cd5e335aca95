"""Skipping in `spark.sql`: each mention of an optimised table in a text reads only the blocks that may match there.

Only the names of tables are replaced in the text; everything else is Spark's to read as it was written. What can't be
analysed reads whole tables, and says so. The methods are replaced on the Python object of one session: a session from
`newSession()` has other views, and is enabled by itself.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from layoutopt.model.types import quoted, unquoted
from layoutopt.scan import check_switch as switch
from layoutopt.scan.checked import table_read
from layoutopt.scan.checking.texts import check_text
from layoutopt.scan.reads import TableRead, split_by_deletes
from layoutopt.spark.core.functions import declared
from layoutopt.spark.core.sessions import Meaning, session_meaning
from layoutopt.spark.session.by_driver import is_read_by_driver
from layoutopt.spark.session.checking import check_answer
from layoutopt.spark.session.datasource import register_format
from layoutopt.spark.session.listing import put_back, take_lists
from layoutopt.spark.session.metrics import ScanMetrics
from layoutopt.spark.session.names import Named, name_tables
from layoutopt.spark.session.read import read_to_dataframe, rows_now_or_later
from layoutopt.spark.session.relations import layouts_read, relation_of
from layoutopt.spark.session.tables import (
    FORMAT,
    Registered,
    SessionTables,
    current,
    layout_views,
    log,
    note_view,
    register_path,
    session_tables,
    unregister,
    unskipped,
)
from layoutopt.sql.parameters import Arguments, bind
from layoutopt.sql.problems import StatementError
from layoutopt.sql.references import Kind, References, Span, references_of, splice_relations

_ENABLING = threading.Lock()


def enable(spark: SparkSession, *, by_driver: bool = True) -> None:
    """Let `spark.sql` and `spark.table` of this session skip on optimised tables.

    These are the tables given a name by :func:`layoutopt.spark.register`, and those called by their path, which stands
    in backticks after the word ``layoutopt`` and a dot. Enabling twice is enabling once. The replaced methods may be
    used by several threads; what is noted for :func:`last_scans` is each thread's own. The format `layoutopt` of
    `spark.read` is made known, too. Lists of up to 400 values, by which blocks are asked for, are from then on taken to
    Parquet as they are (the session's `spark.sql.parquet.pushdown.inFilterThreshold`, 10 by default).

    Args:
        spark: a classic session (Spark Connect has no plans that files could be taken from).
        by_driver: whether this process reads what little a selective query leaves (16 MB at most) by itself, as soon as
            `spark.sql` is called; otherwise all is read by Spark's tasks, when an action runs.
    """
    with _ENABLING:
        session_tables(spark).by_driver = by_driver
        if "sql" in vars(spark):
            return
        register_format(spark)
        session_tables(spark).lists_before = take_lists(spark)

        def sql(sqlQuery: str, args: Any = None, **kwargs: Any) -> DataFrame:  # noqa: N803 (Spark's name)
            return run(spark, sqlQuery, args, kwargs)

        def table(tableName: str) -> DataFrame:  # noqa: N803
            return read_table(spark, tableName)

        sql.__doc__, table.__doc__ = SparkSession.sql.__doc__, SparkSession.table.__doc__
        vars(spark).update(sql=sql, table=table)


def disable(spark: SparkSession) -> None:
    """Put everything back as it was before :func:`enable`; registered tables stay, as views of their whole content."""
    with _ENABLING:
        for name in ("sql", "table"):
            vars(spark).pop(name, None)
        known = session_tables(spark)
        put_back(spark, known.lists_before)
        with known.lock:
            known.lists_before = None
            for name in list(known.hidden):
                unregister(spark, name)
            known.hidden.clear()
            known.views.clear()
            known.remember(())


def last_scans(spark: SparkSession) -> tuple[ScanMetrics, ...]:
    """What the last query that this thread gave to an enabled session reads and skips, one item a mention of a table.

    Empty where it named no optimised table. Numbers are the catalog's, known before anything is read.
    """
    return session_tables(spark).last()


def read_table(spark: SparkSession, name: str) -> DataFrame:
    """`spark.table` that knows tables by path, and newer snapshots."""
    known = session_tables(spark)
    qualifier, _, path = name.partition(".")
    if qualifier.lower() == FORMAT and path[:1] == path[-1:] == "`":
        name = register_path(spark, known, unquoted(path))
    entry = current(spark, known, unquoted(name))
    known.remember(() if entry is None else (unskipped(entry, spark, "spark.table reads the whole table"),))
    return SparkSession.table(spark, name)


def run(spark: SparkSession, text: str, args: Any, values: Mapping[str, Any]) -> DataFrame:
    """`spark.sql` that skips; raises what Spark raises for the text as it was written.

    Raises:
        NotATableError: a path in the text holds no table.
        CatalogError: a table's catalog is damaged.
        SkippingError: skipping is checked, and a row that the text asks for is skipped.
    """
    known = session_tables(spark)
    known.remember(())
    with _formatted(spark, text, values) as written:
        if not known.mentioned_in(written):
            return SparkSession.sql(spark, written, args)
        return _run(spark, known, written, args)


@contextmanager
def _formatted(spark: SparkSession, text: str, values: Mapping[str, Any]) -> Iterator[str]:
    """The text with Spark's own `{name}` values in it, as long as their views are there."""
    if not values:
        yield text
        return
    from pyspark.sql.sql_formatter import SQLStringFormatter

    formatter = SQLStringFormatter(spark)
    try:
        yield formatter.format(text, **values)
    finally:
        formatter.clear()


MakeRows: TypeAlias = Callable[[], DataFrame]


@dataclass(frozen=True, eq=False)
class Rewritten:
    """A text to run instead: what makes the views in it, what they skip, and whether that needs no check any more."""

    text: str
    metrics: tuple[ScanMetrics, ...]
    views: Mapping[str, MakeRows] = field(default_factory=dict)
    decided: bool = True


def _run(spark: SparkSession, known: SessionTables, written: str, args: Any) -> DataFrame:
    meaning = session_meaning(spark)
    try:
        named = name_tables(spark, known, written, meaning)
    except StatementError as error:
        # Spark may know better: the views stand for whole tables.
        log.warning("%s: its tables are read whole", error)
        known.remember(_perhaps_named(spark, known, written, str(error)))
        return SparkSession.sql(spark, written, args)
    if named.kind in (Kind.OTHER, Kind.VIEW):
        frame = SparkSession.sql(spark, named.text, args)
        note_view(spark, known, named.references, meaning)
        return frame
    rewritten = rewrite(spark, known, named, args, meaning)
    known.remember(rewritten.metrics)
    if rewritten.text == named.text:
        return SparkSession.sql(spark, named.text, args)
    try:
        frame = _run_with_views(spark, rewritten, args)
        if not rewritten.decided and named.kind is Kind.QUERY:
            check_answer(named.expanded, frame, lambda: SparkSession.sql(spark, named.text, args))
        return frame
    except AnalysisException as error:
        if named.kind is Kind.WRITE and not str(error.getCondition()).startswith("UNRESOLVED_COLUMN"):
            raise
        # What Spark says of the text should name what the user wrote, not our views.
        frame = SparkSession.sql(spark, named.text, args)
        known.remember(_left_whole(spark, named, "Spark refused the text with blocks left out").metrics)
        return frame


def _run_with_views(spark: SparkSession, rewritten: Rewritten, args: Any) -> DataFrame:
    made = []
    try:
        for view, rows in rewritten.views.items():
            rows().createTempView(view)
            made.append(view)
        return SparkSession.sql(spark, rewritten.text, args)
    finally:
        # spark.sql() has resolved the views: the DataFrame needs their names no more.
        for view in made:
            spark.catalog.dropTempView(view)


def rewrite(
    spark: SparkSession, known: SessionTables, named: Named, args: Arguments | None, meaning: Meaning
) -> Rewritten:
    """The text in which each mention of a registered table is a view of what its scan leaves over.

    A text whose meaning is not surely known is left as it is, with a warning.
    """
    why = meaning.unclear(named.expanded)
    if not named.tables or why:
        return _left_whole(spark, named, why)
    try:
        bound = bind(named.expanded, args or {})
        schemas = tuple((name, entry.table.schema) for name, entry in named.tables.items())
        scans = known.mentions(bound.sql, schemas, meaning.settings, tuple(declared(spark).items()))
    except StatementError as error:
        return _left_whole(spark, named, str(error))
    references = references_of(named.expanded)
    replaceable = {each.span for each in references.tables if each.replaceable}
    metrics = []
    reads: list[TableRead] = []
    views: dict[str, MakeRows] = {}
    relations: dict[Span, str] = {}
    for scan in scans:
        entry = named.tables[scan.table]
        read = table_read(entry.table, scan, meaning.settings)
        reads.append(read)
        span = None if scan.span is None else bound.original(scan.span)
        if span in replaceable:
            relations[span] = _relation(spark, known, entry, read, views, references)
            metrics.append(ScanMetrics.of(entry.name, read))
        else:
            metrics.append(unskipped(entry, spark, "the rows of the table are sampled"))
    decided = not switch.is_on() or check_text(bound.sql, reads, meaning.settings)
    return Rewritten(splice_relations(named.expanded, relations), tuple(metrics), views, decided)


def _relation(
    spark: SparkSession,
    known: SessionTables,
    entry: Registered,
    read: TableRead,
    views: dict[str, MakeRows],
    references: References,
) -> str:
    """What to put in the place of a table's name; a view that has to be made for it is added to ``views``."""
    view = f"_layoutopt_{uuid.uuid4().hex}"
    if known.by_driver and is_read_by_driver(read, references.explicit):
        views[view] = partial(rows_now_or_later, spark, read)
        return quoted(view)
    layouts = layouts_read(read)
    if layouts is None:
        views[view] = partial(read_to_dataframe, spark, read)
        return quoted(view)
    clean, rest = split_by_deletes(read) if read.columns else (read, None)
    alone = len(references.tables) == 1
    relation = relation_of(spark, clean, layout_views(spark, known, entry, layouts), alone)
    if rest is None:
        return relation
    views[view] = partial(read_to_dataframe, spark, rest)
    return f"(SELECT * FROM {quoted(view)} UNION ALL SELECT * FROM {relation})"


def _perhaps_named(spark: SparkSession, known: SessionTables, text: str, why: str) -> tuple[ScanMetrics, ...]:
    """The tables whose names occur in a text that can't be parsed."""
    words = set(re.findall(r"\w+", text.lower()))
    found = [current(spark, known, name) for name in sorted(known.tables) if name in words]
    return tuple(unskipped(entry, spark, why) for entry in found if entry is not None)


def _left_whole(spark: SparkSession, named: Named, why: str) -> Rewritten:
    if why:
        log.warning("%s: the tables of %.80r are read whole", why, named.text)
    return Rewritten(named.text, tuple(unskipped(entry, spark, why) for entry in named.tables.values()))
