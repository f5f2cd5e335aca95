"""Enable skipping in a Spark session: queries read only the blocks of registered tables that may match.

An optimiser rule finds each scan of a registered table in Spark's optimised plan, with its condition and columns, and
calls :func:`_handle_task` to replace it. So SQL texts, DataFrames, views, caches and commands are all covered.

As in Delta, the snapshot is chosen when a query is planned. All scans of a table in a query read the same snapshot, and
another action on the same plan reads it again.
"""

from __future__ import annotations

import json
import logging
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from layoutopt.config.fields import parse_bytes
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
from layoutopt.scan.cost_limit import check_bytes
from layoutopt.scan.explain import Explanation, explain
from layoutopt.scan.opened_table import OpenedTable, sum_read
from layoutopt.scan.shadow_check_texts import whole_read
from layoutopt.scan.table import SourceTable, Table, open_table, prune_with_settings
from layoutopt.scan.table_read import TableRead
from layoutopt.spark.catalyst.opaque import ComputePart
from layoutopt.spark.catalyst.predicates import Condition, read_condition
from layoutopt.spark.catalyst.rule import (
    add_rule,
    get_analyzed_plan,
    get_optimized_plan,
    has_rule,
    plan_to_dataframe,
    remove_rule,
)
from layoutopt.spark.core.functions import declare, find_declared_udfs, is_registered, select_same_code
from layoutopt.spark.core.sessions import get_own_setting, java_session
from layoutopt.spark.core.source import open_source
from layoutopt.spark.core.versions import function_identifier, is_spark_3, java_class, keep_active_session
from layoutopt.spark.session.metrics import ScanMetrics
from layoutopt.spark.session.readers import (
    SnapshotFiles,
    list_files,
    plan_narrower_part,
    plan_read,
    read_to_dataframe,
)
from layoutopt.spark.session.tables import (
    PlannedQuery,
    PlannedScan,
    Registration,
    SessionTables,
    create_view,
    find_registration,
    get_path_registration,
    get_snapshot_registration,
    has_view,
    make_relation,
    plan_full_read,
    read_all_rows,
    session_tables,
    unregister,
)
from layoutopt.sql.scans import TableScan

log = logging.getLogger("layoutopt.spark")
_ENABLING: Final = threading.RLock()
# The table function by which SQL texts read a table by its path.
FUNCTION: Final = "layoutopt"
# For IN lists longer than this setting, Spark pushes only the minimum and maximum to Parquet, which skip little.
_SETTING: Final = "spark.sql.parquet.pushdown.inFilterThreshold"
# Keys of a join narrow a scan that is about to run if it then reads at most this share of its bytes.
_MOST_KEPT: Final = 0.9
# Parquet compares values by nested calls, so much longer lists would overflow its stack.
MAX_IN_VALUES: Final = 400


def raise_in_limit(spark: SparkSession) -> str | None:
    """Raise the session's limit of IN lists; return the old setting, "" if it was unset, or None if nothing changed."""
    if int(spark.conf.get(_SETTING) or 0) >= MAX_IN_VALUES:
        return None
    before = get_own_setting(spark, _SETTING) or ""
    spark.conf.set(_SETTING, MAX_IN_VALUES)
    return before


def restore_in_limit(spark: SparkSession, before: str | None) -> None:
    """Undo :func:`raise_in_limit`, unless the setting was changed since."""
    if before is None or spark.conf.get(_SETTING) != str(MAX_IN_VALUES):
        return
    if before:
        spark.conf.set(_SETTING, before)
    else:
        spark.conf.unset(_SETTING)


def enable(spark: SparkSession, *, by_driver: bool = True, max_bytes: int | str | None = None) -> None:
    """Enable skipping for all queries of this session on tables registered by :func:`layoutopt.spark.register`.

    Enabling again only sets the options. Sessions from `newSession()` must be enabled themselves. SQL texts can also
    read a table by its path: ``SELECT ... FROM layoutopt('PATH')``. Enabling raises one session setting: IN lists of up
    to 400 values are pushed to Parquet (`spark.sql.parquet.pushdown.inFilterThreshold`, 10 by default).

    Args:
        spark: a classic session.
        by_driver: whether this process may read small results (16 MB at most) itself when a query is planned;
            otherwise Spark's tasks read everything when an action runs.
        max_bytes: the most compressed bytes that a query may read of these tables, like ``"10GB"``, by the catalog. A
            query above the limit fails while it is planned, with Spark's QueryExecutionException. So that nothing is
            read before, ``by_driver`` has no effect then.

    Raises:
        SettingError: the session uses Spark Connect, its Spark version is not supported, or ``max_bytes`` is no number
            of bytes.
    """
    state = session_tables(spark)
    limit = None if max_bytes is None else parse_bytes(max_bytes)
    with _ENABLING:
        state.by_driver, state.max_bytes = by_driver and limit is None, limit
        if state.enabled and has_rule(spark):
            return
        install_rule(spark, state)
        state.rule.addFunction(java_session(spark), function_identifier(spark, FUNCTION))
        state.lists_before = raise_in_limit(spark)
        state.enabled = True
        _update_views(spark, state)


def disable(spark: SparkSession) -> None:
    """Remove the rule from a session; registered tables stay as views of all their rows."""
    state = session_tables(spark)
    with _ENABLING:
        if not state.enabled:
            return
        state.enabled = False
        state.rule.dropFunction(java_session(spark), function_identifier(spark, FUNCTION))
        state.rule = None
        remove_rule(spark)
        restore_in_limit(spark, state.lists_before)
        state.lists_before = state.max_bytes = None
        state.planned.clear()
        _update_views(spark, state)


def install_rule(spark: SparkSession, state: SessionTables) -> None:
    """Add the rule to a session that lacks it; queries without registered tables are not affected."""
    with _ENABLING:
        if state.rule is None or not has_rule(spark):
            state.rule = add_rule(spark, partial(_handle_task, spark, state))


def _update_views(spark: SparkSession, state: SessionTables) -> None:
    for name, entry in list(state.tables.items()):
        if not has_view(spark, entry):
            state.tables.pop(name, None)
            continue
        try:
            create_view(spark, state, entry)
        except (LayoutoptError, PySparkException) as error:
            log.warning("%s: the view %r is dropped", error, name)
            unregister(spark, name)


def last_scans(spark: SparkSession) -> tuple[ScanMetrics, ...]:
    """Return what the last planned query of an enabled session reads and skips, an item for each scan of its tables.

    Queries of all threads count. The numbers come from the catalog, before anything is read.
    """
    state = session_tables(spark)
    with state.lock:
        for planned in reversed(state.planned.values()):
            if planned.scans:
                return tuple(scan.metrics for scan in planned.scans.values())
    return ()


def why(frame: DataFrame) -> tuple[Explanation, ...]:
    """Explain what each scan of an optimised table in a DataFrame's query skips, and why not more.

    The query is planned again but not run.

    Raises:
        SettingError: the session uses Spark Connect.
    """
    return tuple(explain(read.table, "", [read]) for read in plan_reads(frame))


def plan_reads(frame: DataFrame) -> tuple[TableRead, ...]:
    """Return the reads of optimised tables in a DataFrame's query; nothing is read."""
    spark = frame.sparkSession
    state = session_tables(spark)
    if state.rule is None:
        return ()
    token = str(state.rule.plan(java_session(spark), get_analyzed_plan(frame)))
    with state.lock:
        planned = state.planned.pop(token, PlannedQuery())
    return tuple(scan.read for scan in planned.scans.values())


def _handle_task(spark: SparkSession, state: SessionTables, text: str, scan: Any) -> Any:
    """Handle a task of the rule: return a plan that replaces a scan, or an error message.

    If the analysis of a condition fails, the whole table is read, with a warning. Damaged files are errors.
    """
    head, _, body = text.partition("\n")
    task, *place = head.split()
    try:
        if task == "refresh":
            return _refresh(spark, state, place[0])
        if task == "open":
            return make_relation(spark, state, get_path_registration(body))
        token, number = place
        if task == "keys":
            return _narrow_part(spark, state, token, int(number), json.loads(body), scan)
        return _replace_scan(spark, state, task, token, int(number), json.loads(body), scan)
    except LayoutoptError as error:
        return str(error)
    except Exception as error:
        log.warning("the task %r failed", task, exc_info=True)
        return f"unexpected error in layoutopt ({type(error).__name__}: {error}); report this as a bug"


def _replace_scan(
    spark: SparkSession, state: SessionTables, task: str, token: str, number: int, request: Mapping[str, Any], scan: Any
) -> Any:
    entry = find_registration(request["id"])
    if entry is None:
        raise QueryError(
            "a table of this query was registered again too many times since the DataFrame was made; make it again"
        )
    planned = state.get_planned_query(token)
    try:
        planned_scan = _plan_scan(spark, state, entry, planned, request, scan)
        plan = None if task == "plan" else _plan_replacement(spark, state, planned, planned_scan, scan)
    except LayoutoptError:
        raise
    except Exception as error:
        table, note = planned.tables.get(entry.source, entry.table), f"{type(error).__name__}: {error}"
        log.warning("%s: all of the table %r is read", note, entry.name, exc_info=True)
        planned_scan = PlannedScan(entry, plan_full_read(table), note=note)
        if task != "plan":
            _check_limit(state, planned, planned_scan.read)
        plan = None if task == "plan" else scan.over(get_optimized_plan(read_all_rows(spark, table)))
    planned_scan = replace(planned_scan, probes=tuple(filter(None, str(scan.probes()).split("\n"))))
    with state.lock:
        planned.scans[number] = planned_scan
    return plan


def _narrow_part(
    spark: SparkSession, state: SessionTables, token: str, number: int, request: Mapping[str, Any], leaf: Any
) -> Any:
    """Return a plan of the blocks with keys of a join in a part of a read, or None if it saves too little.

    The join drops all other rows. The part is about to run, perhaps not for the first time, each time with other keys.
    """
    with state.lock:
        planned = state.planned.get(token, PlannedQuery())
        scan = planned.scans.get(number)
        if scan is None or not scan.settings:
            return None
        part = planned.parts[request["part"]]
    table, settings = part.table, scan.settings[0]
    conditions = [read_condition(tree, table.schema, settings, {}) for tree in request["tests"]]
    # A key that depends on another time zone than blocks were chosen under is no key.
    tests = [condition.root for condition in conditions if condition.settings == settings]
    if request["unusual"] is not None or is_spark_3():
        tests = list(map(_drop_functions, tests))
    root = conjunction([part.scan.filter.root, *tests])
    pruned = prune_with_settings(table, root, part.scan.columns, scan.settings)
    pairs = list(zip(part.pruned, pruned, strict=True))
    if any(before.choice != after.choice for before, after in pairs):
        return None
    kept = tuple(replace(after, read=before.read & after.read) for before, after in pairs)
    if sum_read(kept).bytes > _MOST_KEPT * sum_read(part.pruned).bytes:
        return None
    keys = [f"{len(tree[3]['values']):,}" if tree[0] == "InSet" else "the bounds of many" for tree in request["tests"]]
    credit = f"from {request['from']}: {' and '.join(keys)} keys"
    narrower = replace(part, scan=replace(part.scan, filter=Filter.of(root)), pruned=kept)
    dropped = [before.read & ~after.read for before, after in pairs]
    left = tuple(
        replace(after, read=whole.read & ~mask)
        for whole, after, mask in zip(scan.read.pruned, pruned, dropped, strict=True)
    )
    credits = tuple(dict.fromkeys([*scan.credits, credit]))
    reported = replace(scan, read=replace(narrower, pruned=left), credits=credits)
    files = _list_files(spark, state, table, leaf)
    plan = plan_narrower_part(spark, narrower, leaf, files, reported.metrics.label, planned.add_part)
    if plan is not None:
        with state.lock:
            planned.scans[number] = reported
    return plan


def _check_limit(state: SessionTables, planned: PlannedQuery, read: TableRead) -> None:
    if state.max_bytes is not None:
        check_bytes([*(scan.read for scan in planned.scans.values()), read], state.max_bytes)


def _plan_scan(
    spark: SparkSession,
    state: SessionTables,
    entry: Registration,
    planned: PlannedQuery,
    request: Mapping[str, Any],
    scan: Any,
) -> PlannedScan:
    """Return what a scan reads of the query's snapshot."""
    table = planned.tables.get(entry.source)
    if table is None:
        schema = entry.table.schema
        table = planned.tables.setdefault(entry.source, entry.newest())
        if table.schema != schema and entry.view is not None and has_view(spark, entry):
            create_view(spark, state, entry)  # later queries see the new columns
    columns = _check_columns(table, request["columns"], entry)
    condition, note = _translate_condition(spark, table, request, scan)
    zone = condition.settings.time_zone
    sessions = tuple(replace(source.plan.settings, time_zone=zone) for source in table.sources)
    pruned = prune_with_settings(table, condition.root, columns, sessions)
    table_scan = TableScan(table.name, entry.name, columns, Filter.of(condition.root), condition.unusable)
    return PlannedScan(entry, TableRead(table, table_scan, pruned), sessions, note)


def _plan_replacement(
    spark: SparkSession, state: SessionTables, planned: PlannedQuery, planned_scan: PlannedScan, scan: Any
) -> Any:
    read = planned_scan.read
    _check_limit(state, planned, read)
    files = _list_files(spark, state, read.table, scan)
    label = planned_scan.metrics.label
    plan = plan_read(spark, read, scan, files, label, state.by_driver, planned.add_part)
    if switch.checks_texts() and read.scan.filter.root != TRUE:
        check_scan(spark, read, scan, plan)
    return plan


def check_scan(spark: SparkSession, read: TableRead, scan: Any, plan: Any) -> None:
    """Check with Spark's own condition that a scan's plan has as many matching rows as the whole table.

    Unlike the shadow check of the scan, this also checks the translation of the condition.

    Args:
        plan: the plan that replaces the scan.

    Raises:
        SkippingError: the numbers differ.
    """
    if not scan.isPlain():
        TALLY["undecided scans"] += 1
        return
    try:
        whole = scan.over(get_optimized_plan(read_to_dataframe(spark, whole_read(read))))
        expected, count = (plan_to_dataframe(spark, scan.withConditionsAbove(rows)).count() for rows in (whole, plan))
    except PySparkException:  # the user's query will fail, too
        TALLY["undecided scans"] += 1
        return
    if expected != count:
        raise SkippingError(
            f"skipping is wrong: a scan of {read.table.name!r} reads {count} matching rows, but {expected} rows meet "
            "its condition; run `layoutopt verify`, and report this if it finds nothing"
        )
    TALLY["scans of Spark"] += 1


def _check_columns(table: Table, names: Sequence[str], entry: Registration) -> tuple[str, ...]:
    for name in names:
        column = table.schema.get(name)
        if column is None or column.name != name:
            raise SchemaError(f"the table {entry.name!r} no longer has the column {name!r}; make the DataFrame again")
    return tuple(names)


def _translate_condition(
    spark: SparkSession, table: Table, request: Mapping[str, Any], scan: Any
) -> tuple[Condition, str]:
    """Return a scan's condition, and a note if it is weaker than it could be."""
    tree, unusual = request["condition"], request["unusual"]
    if tree is None:
        return Condition(TRUE, (), table.settings), ""
    try:
        udfs = select_same_code(spark, scan, {**table.udfs, **find_declared_udfs(spark)}, tree)
        condition = read_condition(tree, table.schema, table.settings, udfs, _compute_while_planning(scan))
    except Exception as error:
        log.warning("%s: nothing is skipped", f"{type(error).__name__}: {error}", exc_info=True)
        return Condition(TRUE, (), table.settings), f"the condition could not be analysed: {error}"
    if unusual is None and is_spark_3():
        weaker = _drop_functions(condition.root)
        note = "functions of Spark 3.5 may differ from Spark 4's; only comparisons of columns are used for skipping"
        return replace(condition, root=weaker), note if weaker != condition.root else ""
    if unusual is None:
        return condition, ""
    note = f"the session has {unusual}; with it, only comparisons of columns are used for skipping"
    return replace(condition, root=_drop_functions(condition.root)), note


def _compute_while_planning(scan: Any) -> ComputePart:
    """Return a function that computes parts of a scan's condition, and no longer keeps the scan than its planning."""
    reference = weakref.ref(scan)

    def compute(path: str, columns: str, rows: str) -> str:
        scan = reference()
        return "" if scan is None else str(scan.compute(path, columns, rows))

    return compute


def _drop_functions(node: Node) -> Node:
    """Return a weaker condition without function calls."""
    match node:
        case And():
            return conjunction(map(_drop_functions, node.children))
        case Or():
            return disjunction(map(_drop_functions, node.children))
        case Comparison():
            return node if isinstance(node.left, Col) and isinstance(node.right, Col) else TRUE
        case InSet() | Like():
            return node if isinstance(node.subject, Col) else TRUE
    return node


def _list_files(spark: SparkSession, state: SessionTables, table: OpenedTable, scan: Any) -> SnapshotFiles | None:
    data = table.catalog.data
    if not data.has_native_files:
        return None
    files = state.files.get(table)
    # No lock is held, since Java may call another thread of this process meanwhile.
    return files if files is not None else state.files.setdefault(table, list_files(spark, scan, table))


def _refresh(spark: SparkSession, state: SessionTables, identity: str) -> None:
    """Update a table's view to its current columns (`REFRESH TABLE`)."""
    entry = find_registration(identity)
    if entry is None or not entry.follows:
        return
    entry.newest()
    if entry.view is not None and has_view(spark, entry):
        create_view(spark, state, entry)


def read_table(
    spark: SparkSession, path: str, *, snapshot: int | None = None, as_of: str | None = None, key: str | None = None
) -> DataFrame:
    """Return a table as a DataFrame whose queries read only the blocks that may match; no registration is needed.

    Without ``snapshot`` and ``as_of``, each query reads the newest snapshot at the time it is planned.

    Args:
        spark: a classic session.
        path: the table's folder or URL.
        snapshot: the number of the snapshot to read.
        as_of: the time of the snapshot to read (ISO 8601).
        key: the source of the key of an encrypted table, as for :func:`layoutopt.open_table`.

    Raises:
        SettingError: the session uses Spark Connect.
        LayoutoptError: as :func:`layoutopt.open_table`.
    """
    state = session_tables(spark)
    install_rule(spark, state)
    if snapshot is not None or as_of is not None:
        return table_to_dataframe(spark, open_table(path, snapshot=snapshot, as_of=as_of, key=key))
    return plan_to_dataframe(spark, make_relation(spark, state, get_path_registration(path, key)))


def table_to_dataframe(spark: SparkSession, table: Table) -> DataFrame:
    """Return a table at its snapshot as a DataFrame whose queries read only the blocks that may match."""
    state = session_tables(spark)
    install_rule(spark, state)
    return plan_to_dataframe(spark, make_relation(spark, state, get_snapshot_registration(table)))


def scan_to_dataframe(spark: SparkSession, named: Mapping[str, Table], sql: str) -> DataFrame:
    """Return the result of a SQL text over tables, which Spark parses and runs.

    The text uses the tables' names; other names are resolved in the session. The rule is added to the session, where it
    affects no other tables.

    Raises:
        SettingError: the session uses Spark Connect.
        pyspark.errors.PySparkException: Spark can't run the text.
    """
    state = session_tables(spark)
    java = java_session(spark)
    with keep_active_session(spark):  # Spark 3.5 parses by the settings of the active session
        java_class(spark, "org.apache.spark.sql.classic.SparkSession").setActiveSession(java)
        plan = java.sessionState().sqlParser().parsePlan(sql)
    for name, table in named.items():
        if isinstance(table, SourceTable):
            rows = open_source(spark, table.source)
        else:
            rows = table_to_dataframe(spark, with_functions(spark, table))
        plan = state.rule.named(plan, name, get_analyzed_plan(rows))
    return plan_to_dataframe(spark, plan)


def with_functions(spark: SparkSession, table: Table) -> Table:
    """Return the table with only the functions that the session has alike; missing ones are declared there."""
    missing = [udf for udf in table.udfs.values() if not is_registered(spark, udf.name)]
    declare(spark, *missing)
    in_session = find_declared_udfs(spark)
    same: Udfs = {name: udf for name, udf in table.udfs.items() if in_session.get(name) == udf}
    return table if same == table.udfs else replace(table, udfs=same)
