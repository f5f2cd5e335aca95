"""Register optimised tables in Spark sessions, as temporary views.

In an enabled session, a view is a relation that the optimiser rule replaces by the blocks that may match, of the newest
snapshot when a query is planned. In other sessions it has all rows of the snapshot that was newest at registration.
Views and registrations belong to one session; `newSession()` starts without any.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from layoutopt.catalog.snapshot import newest_state
from layoutopt.errors import QueryError
from layoutopt.external.indexed_source import has_changed
from layoutopt.model.feature import SessionSettings
from layoutopt.model.predicates import TRUE, Filter
from layoutopt.scan.opened_table import OpenedTable
from layoutopt.scan.table import Table, open_table, plan_read
from layoutopt.scan.table_read import TableRead
from layoutopt.spark.catalyst.rule import plan_to_dataframe, to_java_schema
from layoutopt.spark.core.sessions import java_session
from layoutopt.spark.session.metrics import ScanMetrics
from layoutopt.spark.session.readers import SnapshotFiles, partition_column, read_to_dataframe
from layoutopt.sql.scans import TableScan

_IDS: Final = count(1)
# How many queries keep their scans, for `layoutopt.spark.last_scans`.
_MOST_SCANNED: Final = 64
# How many queries keep their snapshots, while they are planned.
_MOST_PLANNED: Final = 2_048
# How many registrations are kept, since DataFrames may name them after their name was registered again.
_MOST_REGISTERED: Final = 1_024


@dataclass(eq=False)
class Registration:
    """A table under a name.

    Attributes:
        id: its id in plans.
        name: its name in queries.
        table: the table at the newest snapshot that a query has read.
        follows: whether queries read the newest snapshot, or always this one.
        state: the snapshot file's state, see :func:`~layoutopt.catalog.snapshot.newest_state`.
        view: Spark's record of the temporary view, if any, to detect that another view replaced it.
    """

    id: str
    name: str
    table: Table
    follows: bool = True
    state: object = None
    view: Any = None
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def source(self) -> object:
        """Return the table's identity: a query reads one snapshot of each source."""
        files = self.table.catalog.files
        return (files.full_path(""), files.key) if self.follows else self.id

    def newest(self) -> Table:
        """Return the table at its newest snapshot; reopen it if another snapshot was committed.

        Raises:
            NotATableError: the table is gone.
            CatalogError: a catalog file is damaged.
        """
        with self.lock:
            if not self.follows:
                return self.table
            catalog = self.table.catalog
            newest = newest_state(catalog.files)
            is_newest = newest is None or (newest == self.state and newest[0] == catalog.snapshot.number)
            if not is_newest or has_changed(catalog):
                udfs = tuple(self.table.udfs.values())
                self.table = open_table(catalog.files.full_path(""), key=catalog.files.key, udfs=udfs)
                self.state = newest_state(self.table.catalog.files)
            return self.table


@dataclass(eq=False)
class SessionTables:
    """The state of one Spark session.

    Attributes:
        tables: the registered tables, by lower-case name.
        rule: the optimiser rule, if the session has it.
        enabled: whether the rule reads registered tables.
        by_driver: whether the driver may read small results.
        max_bytes: the most compressed bytes that a query may read; None for no limit.
        lists_before: the session's IN-list limit before it was enabled, if that was changed.
        planned: the newest queries, by the rule's token.
        files: the data files of the snapshots that were read.
    """

    tables: dict[str, Registration] = field(default_factory=dict)
    rule: Any = None
    enabled: bool = False
    by_driver: bool = True
    max_bytes: int | None = None
    lists_before: str | None = None
    planned: OrderedDict[str, PlannedQuery] = field(default_factory=OrderedDict)
    files: WeakKeyDictionary[OpenedTable, SnapshotFiles] = field(default_factory=WeakKeyDictionary)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def get_planned_query(self, token: str) -> PlannedQuery:
        """Return the record of the query with a token, a new one at first."""
        with self.lock:
            query = self.planned.setdefault(token, PlannedQuery())
            self.planned.move_to_end(token)
            while len(self.planned) > _MOST_PLANNED:
                self.planned.popitem(last=False)
            for older in list(self.planned.values())[-_MOST_SCANNED - 1 : -_MOST_SCANNED]:
                older.scans.clear()
                older.parts.clear()
            return query


@dataclass(frozen=True, eq=False)
class PlannedScan:
    """A scan of a query.

    Attributes:
        settings: those under which blocks are chosen, for each plan of the table; empty if the whole table is read.
        note: why it skips less than it could.
        probes: the columns by which keys of a join may skip more while the query runs.
        credits: the keys that have skipped blocks.
    """

    registration: Registration
    read: TableRead
    settings: tuple[SessionSettings, ...] = ()
    note: str = ""
    probes: tuple[str, ...] = ()
    credits: tuple[str, ...] = ()

    @property
    def metrics(self) -> ScanMetrics:
        """What the scan reads and skips."""
        keys = "; ".join(self.credits)
        if self.probes and not keys:
            keys = f"keys of a join may skip more by {', '.join(self.probes)} while the query runs"
        return replace(ScanMetrics.of(self.registration.name, self.read), note=self.note, keys=keys)


@dataclass(eq=False)
class PlannedQuery:
    """The tables that a query reads, by source, and its scans by their numbers in it.

    Attributes:
        parts: what places in its plan read, by their numbers; keys of joins replace places by others.
    """

    tables: dict[object, Table] = field(default_factory=dict)
    scans: dict[int, PlannedScan] = field(default_factory=dict)
    parts: list[TableRead] = field(default_factory=list)

    def add_part(self, read: TableRead) -> int:
        """Keep what a place in the plan reads; return its number."""
        self.parts.append(read)
        return len(self.parts) - 1


_SESSIONS: dict[str, SessionTables] = {}
_REGISTERED: OrderedDict[str, Registration] = OrderedDict()
_LOCK: Final = threading.Lock()


def session_tables(spark: SparkSession) -> SessionTables:
    """Return the state of a session, which all Python objects of the session share.

    Raises:
        SettingError: the session uses Spark Connect.
    """
    identity = str(java_session(spark).sessionUUID())
    with _LOCK:
        return _SESSIONS.setdefault(identity, SessionTables())


def find_registration(identity: str) -> Registration | None:
    """Return the registration with an id, if it is still kept."""
    return _REGISTERED.get(identity)


def register(spark: SparkSession, name: str, path: str, key: str | None = None) -> None:
    """Register an optimised table in a session under a name, as a temporary view.

    After :func:`layoutopt.spark.enable`, each query of the session reads only those of its blocks that may match.
    Registering the same name again replaces the view.

    Args:
        name: a name without qualifier.
        path: the table's folder or URL.
        key: the source of the key of an encrypted table, as for :func:`layoutopt.open_table`.

    Raises:
        QueryError: the name is empty or qualified.
        SettingError: the session uses Spark Connect.
        NotATableError: there is no table at the path.
        EncryptionKeyError: the key of an encrypted table is missing or wrong.
        CatalogError: a catalog file is damaged.
    """
    if not name or "." in name or "`" in name:
        raise QueryError(f"invalid table name {name!r}: expected a name without dots and backticks")
    state = session_tables(spark)
    entry = _add_registration(name, open_table(path, key=key), follows=True)
    create_view(spark, state, entry)
    with state.lock:
        state.tables[name.lower()] = entry


def unregister(spark: SparkSession, name: str) -> None:
    """Remove a registered table and its view; do nothing if it is not registered."""
    state = session_tables(spark)
    with state.lock:
        entry = state.tables.pop(name.lower(), None)
    if entry is not None and has_view(spark, entry):
        spark.catalog.dropTempView(entry.name)


def get_snapshot_registration(table: Table) -> Registration:
    """Return a registration by which a table is always read at its present snapshot."""
    files, functions = table.catalog.files, tuple(sorted(table.udfs.items()))
    key = files.full_path(""), files.key, table.catalog.snapshot.number, functions
    return _register_unnamed(key, lambda: table, follows=False)


def get_path_registration(path: str, key: str | None = None) -> Registration:
    """Return a registration of a table by its path.

    Raises:
        LayoutoptError: as :func:`layoutopt.open_table`.
    """
    return _register_unnamed((path, key), lambda: open_table(path, key=key), follows=True)


# Registrations without a view. The lifetime of plans that name them is unknown, so each table has one, which is reused.
_UNNAMED: Final[dict[tuple[object, ...], Registration]] = {}


def _register_unnamed(key: tuple[object, ...], open: Callable[[], Table], follows: bool) -> Registration:
    with _LOCK:
        entry = _UNNAMED.get(key)
    if entry is None or find_registration(entry.id) is None:  # dropped ones are made again
        table = open()
        entry = _add_registration(table.name, table, follows)
        with _LOCK:
            _UNNAMED[key] = entry
    return entry


def _add_registration(name: str, table: Table, follows: bool) -> Registration:
    entry = Registration(str(next(_IDS)), name, table, follows, newest_state(table.catalog.files))
    with _LOCK:
        _REGISTERED[entry.id] = entry
        while len(_REGISTERED) > _MOST_REGISTERED:
            _REGISTERED.popitem(last=False)
    return entry


def create_view(spark: SparkSession, state: SessionTables, entry: Registration) -> None:
    """Create the temporary view of a registered table, as the session reads it now."""
    frame = (
        plan_to_dataframe(spark, make_relation(spark, state, entry))
        if state.enabled
        else read_all_rows(spark, entry.table)
    )
    # A projection, so that Spark refuses to insert into the view.
    frame.select("*").createOrReplaceTempView(entry.name)
    entry.view = _find_view(spark, entry.name)


def make_relation(spark: SparkSession, state: SessionTables, entry: Registration) -> Any:
    """Return the relation that represents a table in plans until the rule replaces it."""
    table = entry.table
    size = sum(entry.bytes for entry in table.catalog.partitions)
    column = partition_column(table)
    return state.rule.register(
        java_session(spark),
        entry.id,
        entry.name,
        to_java_schema(spark, table.schema.columns),
        None if column is None else column.name,
        size,
    )


def read_all_rows(spark: SparkSession, table: Table) -> Any:
    """Return all rows of a table at its snapshot."""
    return read_to_dataframe(spark, plan_full_read(table))


def plan_full_read(table: Table) -> TableRead:
    """Return the read of all rows and columns of a table."""
    scan = TableScan(table.name, table.name, table.schema.names, Filter.of(TRUE))
    return plan_read(table, scan, table.settings)


def has_view(spark: SparkSession, entry: Registration) -> bool:
    """Return whether the temporary view with a table's name is still the one made for it."""
    view = _find_view(spark, entry.name)
    return view is not None and bool(view.equals(entry.view))


def _find_view(spark: SparkSession, name: str) -> Any | None:
    view = java_session(spark).sessionState().catalog().getRawTempView(name)
    return view.get() if view.isDefined() else None
