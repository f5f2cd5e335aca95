"""The optimised tables that a Spark session knows by name.

Each is a temporary view. In an enabled session it shows a relation that the optimiser rule replaces by the blocks that
may match, of the newest snapshot when a query is planned; in others it shows the rows of the snapshot that was newest
when it was registered. Views belong to a session (`newSession()` has none), and so does what is registered here.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from layoutopt.catalog.snapshot import newest_state
from layoutopt.errors import QueryError
from layoutopt.external.indexed_source import has_changed
from layoutopt.model.predicates import TRUE, Filter
from layoutopt.scan.opened_table import OpenedTable
from layoutopt.scan.table import Table, open_table, table_read
from layoutopt.scan.table_read import TableRead
from layoutopt.spark.catalyst.rule import frame_of, java_schema, java_session
from layoutopt.spark.session.readers import SnapshotFiles, partition_column, read_to_dataframe
from layoutopt.sql.scans import TableScan

_IDS: Final = count(1)
# Queries whose scans are remembered, for `layoutopt.spark.last_scans`.
_MOST_SCANNED: Final = 64
# Queries whose snapshots are remembered, while they are planned.
_MOST_PLANNED: Final = 2_048
# Registrations that DataFrames may still name; of names that were registered again, the oldest are forgotten.
_MOST_REGISTERED: Final = 1_024


@dataclass(eq=False)
class Registered:
    """One table under a name.

    Attributes:
        id: by which plans name it.
        name: what queries call it.
        table: the table at the newest snapshot that a query has read.
        follows: whether queries read the newest snapshot; else always this one.
        state: of the snapshot's file, as :func:`~layoutopt.catalog.snapshot.newest_state` has it.
        view: Spark's own record of the temporary view, by which a view that replaced it is told apart; None where there
            is none.
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
        """What tells its snapshots from those of other tables: the same table has one snapshot in a query."""
        files = self.table.catalog.files
        return (files.full_path(""), files.key) if self.follows else self.id

    def newest(self) -> Table:
        """Return the table at its newest snapshot, opened again where another one was committed.

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
    """What layoutopt knows of one Spark session.

    Attributes:
        tables: those registered, by folded name.
        rule: the optimiser rule, where the session has it.
        enabled: whether registered tables are read by it.
        by_driver: whether the driver reads what little a query leaves.
        lists_before: the session's setting for lists before it was enabled, if that was changed.
        planned: the scans of the newest queries, by the token that the rule gives each.
        files: the data files of the snapshots that were read.
    """

    tables: dict[str, Registered] = field(default_factory=dict)
    rule: Any = None
    enabled: bool = False
    by_driver: bool = True
    lists_before: str | None = None
    planned: OrderedDict[str, Planned] = field(default_factory=OrderedDict)
    files: WeakKeyDictionary[OpenedTable, SnapshotFiles] = field(default_factory=WeakKeyDictionary)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def planned_by(self, token: str) -> Planned:
        """Return what is noted of the query with a token."""
        with self.lock:
            found = self.planned.setdefault(token, Planned())
            self.planned.move_to_end(token)
            while len(self.planned) > _MOST_PLANNED:
                self.planned.popitem(last=False)
            for older in list(self.planned.values())[-_MOST_SCANNED - 1 : -_MOST_SCANNED]:
                older.scans.clear()
            return found


@dataclass(eq=False)
class Planned:
    """What one query reads: the snapshot of each table, by its source, and its scans in the order of planning."""

    tables: dict[object, Table] = field(default_factory=dict)
    scans: list[tuple[Registered, TableRead, str]] = field(default_factory=list)


_SESSIONS: dict[str, SessionTables] = {}
_REGISTERED: OrderedDict[str, Registered] = OrderedDict()
_LOCK: Final = threading.Lock()


def session_tables(spark: SparkSession) -> SessionTables:
    """Return what layoutopt knows of a session, whichever Python object stands for it.

    Raises:
        SettingError: the session is one of Spark Connect.
    """
    identity = str(java_session(spark).sessionUUID())
    with _LOCK:
        return _SESSIONS.setdefault(identity, SessionTables())


def registered(identity: str) -> Registered | None:
    """Return the table that plans name so."""
    return _REGISTERED.get(identity)


def register(spark: SparkSession, name: str, path: str, key: str | None = None) -> None:
    """Make an optimised table known to a session under a name, as a temporary view.

    After :func:`layoutopt.spark.enable`, every query of the session reads of it only the blocks that may match.
    Registering again under the same name replaces the view.

    Args:
        spark: the session.
        name: a plain name, without a qualifier.
        path: the table's folder or URL.
        key: where the key of an encrypted table is to be had, as :func:`layoutopt.open_table` has it.

    Raises:
        QueryError: the name is empty or qualified.
        SettingError: the session is one of Spark Connect.
        NotATableError: the path holds something else, or nothing.
        EncryptionKeyError: the key of an encrypted table can't be had, or is another one.
        CatalogError: a catalog file is damaged.
    """
    if not name or "." in name or "`" in name:
        raise QueryError(f"{name!r} is no plain name; register the table under one without dots and quotes")
    known = session_tables(spark)
    entry = _entry(name, open_table(path, key=key), follows=True)
    show(spark, known, entry)
    with known.lock:
        known.tables[name.lower()] = entry


def unregister(spark: SparkSession, name: str) -> None:
    """Take a registered table's name away; nothing happens where it is not registered."""
    known = session_tables(spark)
    with known.lock:
        entry = known.tables.pop(name.lower(), None)
    if entry is not None and has_view(spark, entry):
        spark.catalog.dropTempView(entry.name)


def pinned(table: Table) -> Registered:
    """Return a registration of a table that is always read at the snapshot at which it was opened."""
    files, functions = table.catalog.files, tuple(sorted(table.udfs.items()))
    key = files.full_path(""), files.key, table.catalog.snapshot.number, functions
    return _nameless(key, lambda: table, follows=False)


def by_path(path: str, key: str | None = None) -> Registered:
    """Return a registration of a table by its path.

    Raises:
        LayoutoptError: as :func:`layoutopt.open_table`.
    """
    return _nameless((path, key), lambda: open_table(path, key=key), follows=True)


# Plans name registrations for as long as they live, which nothing tells: those of the same table are one.
_NAMELESS: Final[dict[tuple[object, ...], Registered]] = {}


def _nameless(key: tuple[object, ...], opened: Callable[[], Table], follows: bool) -> Registered:
    with _LOCK:
        found = _NAMELESS.get(key)
    if found is None or registered(found.id) is None:  # one that was forgotten is made again
        table = opened()
        found = _entry(table.name, table, follows)
        with _LOCK:
            _NAMELESS[key] = found
    return found


def _entry(name: str, table: Table, follows: bool) -> Registered:
    entry = Registered(str(next(_IDS)), name, table, follows, newest_state(table.catalog.files))
    with _LOCK:
        _REGISTERED[entry.id] = entry
        while len(_REGISTERED) > _MOST_REGISTERED:
            _REGISTERED.popitem(last=False)
    return entry


def show(spark: SparkSession, known: SessionTables, entry: Registered) -> None:
    """Make the temporary view of a registered table, as the session now reads it."""
    frame = frame_of(spark, marked_relation(spark, known, entry)) if known.enabled else whole_rows(spark, entry.table)
    # A projection, so that Spark refuses to insert into the view.
    frame.select("*").createOrReplaceTempView(entry.name)
    entry.view = _view(spark, entry.name)


def marked_relation(spark: SparkSession, known: SessionTables, entry: Registered) -> Any:
    """Return the relation that stands for a table in plans until the rule replaces it."""
    table = entry.table
    read = read_every_block(table)
    size = sum(int(plan.source.blocks.bytes[plan.read].sum()) for plan in read.pruned)
    column = partition_column(table)
    return known.rule.register(
        java_session(spark),
        entry.id,
        entry.name,
        java_schema(spark, table.schema.columns),
        None if column is None else column.name,
        size,
    )


def whole_rows(spark: SparkSession, table: Table) -> Any:
    """Return all rows of a table at its snapshot, as a DataFrame."""
    return read_to_dataframe(spark, read_every_block(table))


def read_every_block(table: Table) -> TableRead:
    """Return the read of all rows and columns of a table."""
    scan = TableScan(table.name, table.name, table.schema.names, Filter.of(TRUE))
    return table_read(table, scan, table.settings)


def has_view(spark: SparkSession, entry: Registered) -> bool:
    """Whether the temporary view of a table's name is still the one that was made for it."""
    found = _view(spark, entry.name)
    return found is not None and bool(found.equals(entry.view))


def _view(spark: SparkSession, name: str) -> Any | None:
    """Spark's own record of a temporary view."""
    found = java_session(spark).sessionState().catalog().getRawTempView(name)
    return found.get() if found.isDefined() else None
