"""Skipping in a Spark session: every query reads of registered tables only the blocks that may match.

Spark's own optimised plan says what a query needs: an optimiser rule finds each scan of a registered table, with the
condition and the columns that Spark left there, and asks :func:`_answer` what to read instead. SQL texts, DataFrames,
views, caches and commands are all plans, and so are read alike.

A snapshot is chosen when a query is planned, as Delta does: a DataFrame that runs a new query reads the newest one,
and all scans of a table in one query read the same. A second action on a plan that was made reads the same again.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from layoutopt.errors import LayoutoptError, QueryError, SchemaError, SkippingError
from layoutopt.model.predicates import (
    TRUE,
    And,
    Col,
    Comparison,
    Filter,
    InSet,
    Like,
    Node,
    Or,
    conjunction,
    disjunction,
)
from layoutopt.model.udf import Udfs
from layoutopt.scan import check_switch as switch
from layoutopt.scan.check_switch import TALLY
from layoutopt.scan.explain import Explanation, explain
from layoutopt.scan.opened_table import OpenedTable
from layoutopt.scan.shadow_check_texts import whole_read
from layoutopt.scan.table import Table, open_table, prune_under
from layoutopt.scan.table_read import TableRead
from layoutopt.spark.catalyst.predicates import Condition, read_condition
from layoutopt.spark.catalyst.rule import add_rule, analyzed, frame_of, has_rule, java_session, optimized, remove_rule
from layoutopt.spark.core.functions import declare, declared, is_registered, same_code
from layoutopt.spark.session.metrics import ScanMetrics
from layoutopt.spark.session.readers import SnapshotFiles, list_files, plan_read, read_to_dataframe
from layoutopt.spark.session.tables import (
    Planned,
    Registered,
    SessionTables,
    by_path,
    has_view,
    marked_relation,
    pinned,
    read_every_block,
    registered,
    session_tables,
    show,
    unregister,
    whole_rows,
)
from layoutopt.sql.scans import TableScan

# ----------------------------------------------------------------------------------------------------
# Check what a scan in Spark skips: Spark itself counts the rows that its condition finds with and without skipping.
#
# What the predicates of a condition say is checked against the rows in ``scan.checking``. Here Spark's own condition is
# asked, so that the translation of the condition is checked, too.


def check_scan(spark: SparkSession, read: TableRead, scan: Any, plan: Any) -> None:
    """Compare how many rows a scan's condition finds in what is read, and in all rows.

    Args:
        spark: the session.
        read: what is left of the table.
        scan: the rule's scan.
        plan: what stands in its place.

    Raises:
        SkippingError: they differ.
    """
    if not scan.isPlain():
        TALLY["undecided scans"] += 1
        return
    try:
        whole = scan.over(optimized(read_to_dataframe(spark, whole_read(read))))
        expected, found = (frame_of(spark, scan.ofUse(rows)).count() for rows in (whole, plan))
    except PySparkException:  # what fails will fail for the user, too
        TALLY["undecided scans"] += 1
        return
    if expected != found:
        raise SkippingError(
            f"{found} rows of {read.table.name!r} are read under a condition that {expected} rows meet; "
            "run `layoutopt verify`, and report this where nothing is found"
        )
    TALLY["scans of Spark"] += 1


# ----------------------------------------------------------------------------------------------------
# Whether a session takes lists of values to Parquet, which blocks can then be asked for by.
#
# Spark hands Parquet the values of a short list, and of a longer one the least and the greatest alone, which skip
# next to
# nothing. How long a short list may be is a setting of the session.

_SETTING: Final = "spark.sql.parquet.pushdown.inFilterThreshold"
MOST_LISTED: Final = 400
"""Parquet compares with one value after another, each a call within the last: many more would exhaust its stack."""


def take_lists(spark: SparkSession) -> str | None:
    """Let the session take lists of so many values; returns what to put back, empty where nothing was set.

    None where the session takes longer lists anyway.
    """
    if int(spark.conf.get(_SETTING) or 0) >= MOST_LISTED:
        return None
    before = dict(spark.conf.getAll).get(_SETTING, "")
    spark.conf.set(_SETTING, MOST_LISTED)
    return before


def put_back(spark: SparkSession, before: str | None) -> None:
    """Undo :func:`take_lists`, unless somebody has changed the setting since."""
    if before is None or spark.conf.get(_SETTING) != str(MOST_LISTED):
        return
    if before:
        spark.conf.set(_SETTING, before)
    else:
        spark.conf.unset(_SETTING)


log = logging.getLogger("layoutopt.spark")
_ENABLING: Final = threading.RLock()
# The table function by which SQL texts read a table by its path.
FUNCTION: Final = "layoutopt"


def enable(spark: SparkSession, *, by_driver: bool = True) -> None:
    """Let every query of this session skip on optimised tables.

    These are the tables given a name by :func:`layoutopt.spark.register`. Enabling twice is enabling once. A session
    from `newSession()` has views of its own, and is enabled by itself. SQL texts can also read a table by its path:
    ``SELECT ... FROM layoutopt('PATH')``. One setting changes: lists of up to 400 values, by which blocks are asked
    for, are given to Parquet as they are (`spark.sql.parquet.pushdown.inFilterThreshold`, 10 by default).

    Args:
        spark: a classic session.
        by_driver: whether this process reads what little a selective query leaves (16 MB at most) by itself, as soon as
            the query is planned; otherwise all is read by Spark's tasks, when an action runs.

    Raises:
        SettingError: the session is one of Spark Connect, or its Spark differs too much from those known.
    """
    known = session_tables(spark)
    with _ENABLING:
        known.by_driver = by_driver
        if known.enabled and has_rule(spark):
            return
        install_rule(spark, known)
        known.rule.addFunction(java_session(spark), FUNCTION)
        known.lists_before = take_lists(spark)
        known.enabled = True
        _show_all(spark, known)


def disable(spark: SparkSession) -> None:
    """Take the rule away from a session; registered tables stay, as views of their whole content."""
    known = session_tables(spark)
    with _ENABLING:
        if not known.enabled:
            return
        known.enabled = False
        known.rule.dropFunction(java_session(spark), FUNCTION)
        known.rule = None
        remove_rule(spark)
        put_back(spark, known.lists_before)
        known.lists_before = None
        known.planned.clear()
        _show_all(spark, known)


def install_rule(spark: SparkSession, known: SessionTables) -> None:
    """Add the rule to a session that does not have it; it leaves alone what is not registered."""
    with _ENABLING:
        if known.rule is None or not has_rule(spark):
            known.rule = add_rule(spark, partial(_answer, spark, known))


def _show_all(spark: SparkSession, known: SessionTables) -> None:
    for name, entry in list(known.tables.items()):
        if not has_view(spark, entry):
            known.tables.pop(name, None)
            continue
        try:
            show(spark, known, entry)
        except (LayoutoptError, PySparkException) as error:
            log.warning("%s: the view %r is dropped", error, name)
            unregister(spark, name)


def last_scans(spark: SparkSession) -> tuple[ScanMetrics, ...]:
    """Return what the newest query of an enabled session reads and skips, one item a scan of an optimised table.

    The newest query is the one that was planned last, in whichever thread. Numbers are the catalog's, known before
    anything is read.
    """
    known = session_tables(spark)
    with known.lock:
        for planned in reversed(known.planned.values()):
            if planned.scans:
                return tuple(
                    replace(ScanMetrics.of(entry.name, read), note=note) for entry, read, note in planned.scans
                )
    return ()


def why(frame: DataFrame) -> tuple[Explanation, ...]:
    """Explain what a DataFrame's query reads of optimised tables: what skips blocks, and why not more, a scan each.

    The query is planned once more, and not run.

    Raises:
        SettingError: the session is one of Spark Connect.
    """
    return tuple(explain(read.table, "", [read]) for read in planned_reads(frame))


def planned_reads(frame: DataFrame) -> tuple[TableRead, ...]:
    """Return what a DataFrame's query would read of optimised tables, one item a scan; nothing is read."""
    spark = frame.sparkSession
    known = session_tables(spark)
    if known.rule is None:
        return ()
    token = str(known.rule.plan(java_session(spark), analyzed(frame)))
    with known.lock:
        planned = known.planned.pop(token, Planned())
    return tuple(read for _, read, _ in planned.scans)


def _answer(spark: SparkSession, known: SessionTables, text: str, scan: Any) -> Any:
    """Answer the rule: the plan that stands in a scan's place, or the sentence of an error.

    Whatever fails in the analysis leaves the table whole, with a warning. Damage of the catalog or of data is an error.
    """
    head, _, body = text.partition("\n")
    task, token = head.split()
    try:
        if task == "refresh":
            return _refresh(spark, known, token)
        if task == "open":
            return marked_relation(spark, known, by_path(body))
        return _scanned(spark, known, task, token, json.loads(body), scan)
    except LayoutoptError as error:
        return str(error)
    except Exception as error:
        log.warning("the task %r failed", task, exc_info=True)
        return f"layoutopt failed in an unexpected way ({type(error).__name__}: {error}); report this"


def _scanned(
    spark: SparkSession, known: SessionTables, task: str, token: str, asked: Mapping[str, Any], scan: Any
) -> Any:
    entry = registered(asked["id"])
    if entry is None:
        raise QueryError("a table of this query was registered again too often since; make the DataFrame again")
    planned = known.planned_by(token)
    try:
        read, note = _planned(spark, known, entry, planned, asked, scan)
        plan = None if task == "plan" else _read(spark, known, entry, read, scan)
    except LayoutoptError:
        raise
    except Exception as error:
        table, note = planned.tables.get(entry.source, entry.table), f"{type(error).__name__}: {error}"
        log.warning("%s: all of the table %r is read", note, entry.name, exc_info=True)
        read = read_every_block(table)
        plan = None if task == "plan" else scan.over(optimized(whole_rows(spark, table)))
    with known.lock:
        planned.scans.append((entry, read, note))
    return plan


def _planned(
    spark: SparkSession, known: SessionTables, entry: Registered, planned: Planned, asked: Mapping[str, Any], scan: Any
) -> tuple[TableRead, str]:
    """Decide what a scan needs of the table at the snapshot that its query reads; and why not less, if known."""
    table = planned.tables.get(entry.source)
    if table is None:
        shown = entry.table.schema
        table = planned.tables.setdefault(entry.source, entry.newest())
        if table.schema != shown and entry.view is not None and has_view(spark, entry):
            show(spark, known, entry)  # later queries see the new columns
    columns = _columns(table, asked["columns"], entry)
    condition, note = _condition(spark, table, asked, scan)
    sessions = [replace(source.plan.settings, time_zone=condition.settings.time_zone) for source in table.sources]
    pruned = prune_under(table, condition.root, columns, sessions)
    mention = TableScan(table.name, entry.name, columns, Filter.of(condition.root), condition.unusable)
    return TableRead(table, mention, pruned), note


def _read(spark: SparkSession, known: SessionTables, entry: Registered, read: TableRead, scan: Any) -> Any:
    """Return the plan that stands in a scan's place."""
    label, files = ScanMetrics.of(entry.name, read).label, _files(spark, known, read.table, scan)
    plan = plan_read(spark, read, scan, files, label, known.by_driver)
    if switch.is_on() and read.scan.filter.root != TRUE:
        check_scan(spark, read, scan, plan)
    return plan


def _columns(table: Table, names: Sequence[str], entry: Registered) -> tuple[str, ...]:
    for name in names:
        column = table.schema.get(name)
        if column is None or column.name != name:
            raise SchemaError(f"the table {entry.name!r} has no column {name!r} any more; make the DataFrame again")
    return tuple(names)


def _condition(spark: SparkSession, table: Table, asked: Mapping[str, Any], scan: Any) -> tuple[Condition, str]:
    """Return what a scan's condition says, and why it says less than it could."""
    tree, unusual = asked["condition"], asked["unusual"]
    if tree is None:
        return Condition(TRUE, (), table.settings), ""
    try:
        udfs = same_code(spark, scan, {**table.udfs, **declared(spark)}, tree)
        condition = read_condition(tree, table.schema, table.settings, udfs)
    except Exception as error:
        log.warning("%s: nothing is skipped", f"{type(error).__name__}: {error}", exc_info=True)
        return Condition(TRUE, (), table.settings), f"the condition could not be analysed: {error}"
    if unusual is None:
        return condition, ""
    note = f"the session has {unusual}, under which only comparisons of columns skip"
    return replace(condition, root=_of_columns(condition.root)), note


def _of_columns(node: Node) -> Node:
    """Return a weaker condition that calls no function."""
    match node:
        case And():
            return conjunction(map(_of_columns, node.children))
        case Or():
            return disjunction(map(_of_columns, node.children))
        case Comparison():
            return node if isinstance(node.left, Col) and isinstance(node.right, Col) else TRUE
        case InSet() | Like():
            return node if isinstance(node.subject, Col) else TRUE
    return node


def _files(spark: SparkSession, known: SessionTables, table: OpenedTable, scan: Any) -> SnapshotFiles | None:
    if not table.catalog.data.is_plain:
        return None
    found = known.files.get(table)
    # Not under a lock: Java may ask another thread of this process meanwhile.
    return found if found is not None else known.files.setdefault(table, list_files(spark, scan, table))


def _refresh(spark: SparkSession, known: SessionTables, identity: str) -> None:
    """Show a table with the columns that it has now (`REFRESH TABLE`)."""
    entry = registered(identity)
    if entry is None or not entry.follows:
        return
    entry.newest()
    if entry.view is not None and has_view(spark, entry):
        show(spark, known, entry)


def read_table(
    spark: SparkSession, path: str, *, snapshot: int | None = None, as_of: str | None = None, key: str | None = None
) -> DataFrame:
    """Return a table as a DataFrame whose queries read only the blocks that may match; it needs no name.

    Without ``snapshot`` and ``as_of`` each query reads the newest snapshot, as it is when the query is planned.

    Args:
        spark: a classic session.
        path: the table's folder or URL.
        snapshot: the number of the snapshot to read.
        as_of: the time of the snapshot to read (ISO 8601).
        key: where the key of an encrypted table is to be had, as :func:`layoutopt.open_table` has it.

    Raises:
        SettingError: the session is one of Spark Connect.
        LayoutoptError: as :func:`layoutopt.open_table`.
    """
    known = session_tables(spark)
    install_rule(spark, known)
    if snapshot is not None or as_of is not None:
        return marked_rows(spark, open_table(path, snapshot=snapshot, as_of=as_of, key=key))
    return frame_of(spark, marked_relation(spark, known, by_path(path, key)))


def marked_rows(spark: SparkSession, table: Table) -> DataFrame:
    """Return a table, at its snapshot, as a DataFrame whose queries read only the blocks that may match."""
    known = session_tables(spark)
    install_rule(spark, known)
    return frame_of(spark, marked_relation(spark, known, pinned(table)))


def scan_to_dataframe(spark: SparkSession, table: Table, sql: str) -> DataFrame:
    """Return the answer to a SQL text over a table as a DataFrame: Spark parses and runs the text.

    The text calls the table by its name; other names are those of the session. The session's optimiser gets the rule,
    which concerns nothing else.

    Raises:
        SettingError: the session is one of Spark Connect.
        pyspark.errors.PySparkException: Spark can't run the text.
    """
    known = session_tables(spark)
    rows = marked_rows(spark, with_functions(spark, table))
    java = java_session(spark)
    plan = java.sessionState().sqlParser().parsePlan(sql)
    return frame_of(spark, known.rule.named(plan, table.name, analyzed(rows)))


def with_functions(spark: SparkSession, table: Table) -> Table:
    """Return the table with the functions that mean the same in the session; those that it lacks are declared there."""
    missing = [udf for udf in table.udfs.values() if not is_registered(spark, udf.name)]
    declare(spark, *missing)
    in_session = declared(spark)
    same: Udfs = {name: udf for name, udf in table.udfs.items() if in_session.get(name) == udf}
    return table if same == table.udfs else replace(table, udfs=same)
