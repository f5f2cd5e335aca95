"""The optimised tables that a Spark session knows by name, each as a temporary view of its whole content.

A view is what `spark.table` and every text that can't be analysed reads. It follows the table: where a newer snapshot
has been committed, the view is made again before the next query. Views belong to a session (`newSession()` has none),
and so does what is registered here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Final

from pyspark.sql import SparkSession

from layoutopt.catalog.snapshots import newest_state
from layoutopt.errors import QueryError
from layoutopt.foreign.opening import has_changed
from layoutopt.model.predicates import TRUE, Filter
from layoutopt.model.types import quoted
from layoutopt.scan.checked import table_read
from layoutopt.scan.reads import Mentions, TableRead, remembered_mentions, split_by_deletes
from layoutopt.scan.table import Table, open_table
from layoutopt.spark.core.sessions import session_settings
from layoutopt.spark.session.metrics import ScanMetrics
from layoutopt.spark.session.read import read_to_dataframe
from layoutopt.spark.session.relations import LayoutViews, layouts_read, make_layout_views, relation_of
from layoutopt.sql.references import References
from layoutopt.sql.scans import TableScan

FORMAT: Final = "layoutopt"
"""The qualifier of tables called by path: layoutopt.`/path/to/TABLE`."""

log = logging.getLogger("layoutopt.spark")


@dataclass(frozen=True, eq=False)
class Registered:
    """One table under a name.

    Attributes:
        name: the temporary view's.
        table: the table at the snapshot that the view shows.
        handle: Spark's own record of the view, by which a view that somebody else put there is told apart.
        layouts: the views of single layouts that queries have needed so far.
        state: of the snapshot's file, as :func:`~layoutopt.catalog.snapshots.newest_state` has it.
    """

    name: str
    table: Table
    handle: Any
    layouts: dict[int, LayoutViews]
    state: object


@dataclass(frozen=True, eq=False)
class TextView:
    """A temporary view that was made by a text over registered tables, so that its text can stand for it.

    Attributes:
        text: the view's query, as Spark keeps it.
        columns: the names that CREATE VIEW gave; none where it gave none.
        handle: Spark's own record of the view.
        meaning: the session's settings when it was made.
        reads: the names that it reads, folded, each with what it then was.
        names: those by which it may read something, folded: none that mean common tables of its own alone.
    """

    text: str
    columns: tuple[str, ...]
    handle: Any
    meaning: object
    reads: Mapping[str, Registered | TextView]
    names: frozenset[str]


@dataclass(eq=False)
class SessionTables:
    """What layoutopt knows of one Spark session; the lock guards all of it but what is each thread's own."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    tables: dict[str, Registered] = field(default_factory=dict)
    views: dict[str, TextView] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    of_thread: threading.local = field(default_factory=threading.local)
    lists_before: str | None = None
    """The session's setting for lists before it was enabled, if that was changed."""
    mentions: Mentions = field(default_factory=remembered_mentions)
    by_driver: bool = True
    """Whether the driver reads what little a query leaves."""

    def remember(self, scans: tuple[ScanMetrics, ...]) -> None:
        """Note what this thread's last query skipped."""
        self.of_thread.scans = scans

    def last(self) -> tuple[ScanMetrics, ...]:
        """What this thread's last query skipped."""
        scans: tuple[ScanMetrics, ...] = getattr(self.of_thread, "scans", ())
        return scans

    def mentioned_in(self, text: str) -> bool:
        """Whether a text may name one of the tables; quick, and wrong in one direction only."""
        folded = text.lower()
        return FORMAT in folded or any(name in folded for name in [*self.tables, *self.views])


_SESSIONS: dict[str, SessionTables] = {}
_SESSIONS_LOCK = threading.Lock()


def session_tables(spark: SparkSession) -> SessionTables:
    """What layoutopt knows of a session, whichever Python object stands for it."""
    identity = str(_java(spark).sessionUUID())
    with _SESSIONS_LOCK:
        return _SESSIONS.setdefault(identity, SessionTables())


def register(spark: SparkSession, name: str, path: str, key: str | None = None) -> None:
    """Make an optimised table known to a session under a name, as a temporary view of its whole content.

    After :func:`layoutopt.spark.enable`, `spark.sql` reads of it only the blocks that may match. Registering again
    under the same name replaces the view.

    Args:
        spark: the session.
        name: a plain name, without a qualifier.
        path: the table's folder or URL.
        key: where the key of an encrypted table is to be had, as :func:`layoutopt.open_table` has it.

    Raises:
        QueryError: the name is empty or qualified.
        NotATableError: the path holds something else, or nothing.
        EncryptionKeyError: the key of an encrypted table can't be had, or is another one.
        CatalogError: a catalog file is damaged.
    """
    if not name or "." in name or "`" in name:
        raise QueryError(f"{name!r} is no plain name; register the table under one without dots and quotes")
    known = session_tables(spark)
    with known.lock:
        made = _with_view(spark, name, open_table(path, key=key))
        before = known.tables.pop(name.lower(), None)
        known.tables[name.lower()] = made
        if before is not None:
            _forget(spark, before)


def unregister(spark: SparkSession, name: str) -> None:
    """Take a registered table's name away; nothing happens where it is not registered."""
    known = session_tables(spark)
    with known.lock:
        entry = known.tables.pop(name.lower(), None)
        if entry is None:
            return
        _forget(spark, entry)
        if is_view(spark, entry.name, entry.handle):
            spark.catalog.dropTempView(entry.name)


def register_path(spark: SparkSession, known: SessionTables, path: str) -> str:
    """The name under which a table called by its path is known; registers it where that is new.

    Raises:
        NotATableError: the path holds something else, or nothing.
    """
    name = f"_layoutopt_table_{sha256(path.encode()).hexdigest()[:16]}"
    with known.lock:
        if current(spark, known, name) is None:
            known.tables[name] = _with_view(spark, name, open_table(path))
            known.hidden.add(name)
    return name


def current(spark: SparkSession, known: SessionTables, name: str) -> Registered | None:
    """The table registered under a name at its newest snapshot; None where the name means something else by now."""
    with known.lock:
        entry = known.tables.get(name.lower())
        if entry is None:
            return None
        if not is_view(spark, entry.name, entry.handle):
            del known.tables[name.lower()]
            _forget(spark, entry)
            return None
        catalog = entry.table.catalog
        newest = newest_state(catalog.files)
        is_newest = newest is None or (newest == entry.state and newest[0] == catalog.snapshot.number)
        if not is_newest or has_changed(catalog):
            _forget(spark, entry)
            table = open_table(catalog.files.full_path(""), key=catalog.files.key)
            entry = _with_view(spark, entry.name, table)
            known.tables[name.lower()] = entry
        return entry


def layout_views(
    spark: SparkSession, known: SessionTables, entry: Registered, layouts: Sequence[int]
) -> dict[int, LayoutViews]:
    """The views of all files of each layout; made once for a snapshot."""
    with known.lock:
        for layout in layouts:
            if layout not in entry.layouts:
                entry.layouts[layout] = make_layout_views(spark, entry.table, layout)
    return {layout: entry.layouts[layout] for layout in layouts}


def whole(entry: Registered, spark: SparkSession) -> TableRead:
    """All rows and columns of a registered table, as a read."""
    return _whole(entry.table, spark)


def note_view(spark: SparkSession, known: SessionTables, made: References, meaning: object) -> None:
    """Remember a temporary view that a text has just made, if it reads only registered tables and views like it."""
    if made.view is None:
        return
    handle = view_handle(spark, made.view)
    with known.lock:
        known.views.pop(made.view.lower(), None)
        names = {each.parts[0].lower() for each in made.tables}
        reads = {name: entry for name in names if (entry := known.tables.get(name) or known.views.get(name))}
        if handle is None or names - made.common - reads.keys() or any(len(each.parts) > 1 for each in made.tables):
            return
        text = handle.tableMeta().viewText()
        # in a view with a collation of its own, literals have it too
        if text.isDefined() and not handle.tableMeta().collation().isDefined():
            view = TextView(text.get(), made.view_columns, handle, meaning, reads, _read_by(spark, names, made))
            known.views[made.view.lower()] = view


def _read_by(spark: SparkSession, names: set[str], made: References) -> frozenset[str]:
    """The names by which a view's text may read something: a common table may be called as what it reads."""
    return frozenset(name for name in names if name not in made.common or spark.catalog.tableExists(quoted(name)))


def is_view(spark: SparkSession, name: str, handle: Any) -> bool:
    """Whether a temporary view is still the one of that record."""
    found = view_handle(spark, name)
    return found is not None and bool(found.equals(handle))


def view_handle(spark: SparkSession, name: str) -> Any | None:
    """Spark's own record of a temporary view; None where there is none of that name."""
    found = _java(spark).sessionState().catalog().getRawTempView(name)
    return found.get() if found.isDefined() else None


def _with_view(spark: SparkSession, name: str, table: Table) -> Registered:
    """Makes the view of a whole table."""
    read, layouts = _whole(table, spark), {}
    only = layouts_read(read)
    if only is None or split_by_deletes(read)[1] is not None:
        frame = read_to_dataframe(spark, read)
    else:
        layouts = {layout: make_layout_views(spark, table, layout) for layout in only}
        frame = SparkSession.sql(spark, f"SELECT * FROM {relation_of(spark, read, layouts)}")
    frame.createOrReplaceTempView(name)
    return Registered(name, table, view_handle(spark, name), layouts, newest_state(table.catalog.files))


def _forget(spark: SparkSession, entry: Registered) -> None:
    """Drops the views that nobody but us reads; plans made over them keep what they have."""
    for views in entry.layouts.values():
        for view in views.names:
            spark.catalog.dropTempView(view)


def _whole(table: Table, spark: SparkSession) -> TableRead:
    scan = TableScan(table.name, table.name, table.schema.names, Filter.of(TRUE))
    return table_read(table, scan, session_settings(spark))


def unskipped(entry: Registered, spark: SparkSession, why: str) -> ScanMetrics:
    """The metrics of a query that reads a whole table, and why."""
    return replace(ScanMetrics.of(entry.name, whole(entry, spark)), note=why)


def _java(spark: SparkSession) -> Any:
    return spark._jsparkSession
