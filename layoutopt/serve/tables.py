"""The served tables by name. Names that clients send are looked up, never turned into paths.

Tables and external sources are checked for changes at each request.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from threading import Lock
from typing import Final

import pyarrow as pa

from layoutopt.catalog.file_sizes import describe_file_sizes
from layoutopt.catalog.paths import MARKER
from layoutopt.catalog.snapshot import snapshot_numbers, snapshot_states
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.catalog.table_root import check_is_table
from layoutopt.errors import (
    CatalogError,
    EncryptedTableError,
    EncryptionKeyError,
    LayoutoptError,
    NotATableError,
    PublicationError,
    SchemaError,
    SettingError,
    SourceError,
    SourceIndexError,
)
from layoutopt.external.external_tables import open_iceberg_source
from layoutopt.external.footers import read_footers
from layoutopt.external.indexed_source import open_indexed
from layoutopt.external.listing import ListedFile, digest_listing, list_source
from layoutopt.external.source_files import external_files
from layoutopt.model.schema import Column, Schema
from layoutopt.publish.contents import View, find_views
from layoutopt.publish.external import ExternalTable, FileWithSchema, iceberg_source, named_source
from layoutopt.publish.iceberg_metadata import ManifestFolder, metadata_json
from layoutopt.scan.opened_table import OpenedTable
from layoutopt.serve.planning import Planner
from layoutopt.serve.protocol import bad_request, no_such_table

_TRIES: Final = 3

# The newest snapshot of the indexes, and a digest or file name of the source's state.
State = tuple[int, str]
DEFAULT_NAMESPACE: Final = ("default",)
_NAMED: Final = re.compile(r"([\w.-]+)=(.+)", re.DOTALL)
_VIEW: Final = re.compile(r"(.+)_layout_(0|[1-9][0-9]{0,5})", re.DOTALL)
_UNSHOWN: Final = (
    NotATableError, CatalogError, PublicationError, EncryptedTableError, EncryptionKeyError, SourceError, SchemaError,
    SettingError,
)  # fmt: skip
# The snapshots of a table kept open besides its history, by last use.
_KEPT: Final = 4
# The tables whose snapshots are kept open, by last use.
_MOST_TABLES: Final = 1024
# A table's namespace and name.
Identifier = tuple[tuple[str, ...], str]


@dataclass(frozen=True, eq=False)
class TableView:
    """A view of a table's snapshot, which clients load and scan as one Iceberg table."""

    table: OpenedTable
    view: View

    @property
    def constants(self) -> tuple[Column, ...]:
        """The columns that files lack: none."""
        return ()

    @cached_property
    def planner(self) -> Planner:
        """The planner of its scans."""
        return Planner(self.table, self.view)

    def metadata(self, manifests: ManifestFolder, older: Sequence[ServedView]) -> str:
        """Return Iceberg's metadata as JSON, with some older snapshots.

        Raises:
            CatalogError, PublicationError: the table is damaged, or can't be shown.
            OSError: its manifests can't be written.
        """
        catalogs = [(shown.table.catalog, shown.view) for shown in (*older, self)]
        snapshots = [(catalog, manifests.manifest_list(catalog, view)) for catalog, view in catalogs]
        return metadata_json(snapshots, self.view)


@dataclass(frozen=True, eq=False)
class SourceView:
    """An external source with indexes at one moment; ``table`` has the catalog of its indexes."""

    table: OpenedTable
    source: ExternalTable

    @property
    def view(self) -> View:
        """The view of all columns."""
        return View(None, self.table.schema, None, Schema(()))

    @property
    def constants(self) -> tuple[Column, ...]:
        """The columns that some files lack."""
        return self.source.constants

    @cached_property
    def planner(self) -> Planner:
        """The planner of its scans."""
        return Planner(self.table, self.view, self.source)

    def metadata(self, manifests: ManifestFolder, older: Sequence[ServedView]) -> str:
        """Return Iceberg's metadata as JSON, without older snapshots; raises OSError if manifests can't be written."""
        return self.source.metadata(manifests)


ServedView = TableView | SourceView


@dataclass(eq=False)
class ServedSource:
    """An external source and its indexes in ``root``; listed at each request, reopened after a change."""

    root: str
    source: str
    _opened: tuple[State, SourceView] | None = None
    _constants: tuple[Column, ...] | None = None
    _schemas: dict[str, tuple[str, pa.Schema]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def views(self, number: int | None = None) -> tuple[SourceView, ...]:
        """Return the one view of the current source.

        Raises:
            NotATableError, CatalogError: the indexes can't be read.
            SourceError, SchemaError, PublicationError: the source can't be read, or shown.
            RefusedError: ``number`` is an older snapshot.
        """
        state = self._state()
        with self._lock:
            if self._opened is None or self._opened[0] != state:
                self._opened = self._open()
            shown = self._opened[1]
        if number is not None and number + 1 != shown.source.snapshot:
            raise bad_request(
                f"external tables have only their current snapshot {shown.source.snapshot}; load the table again"
            )
        return (shown,)

    def _state(self) -> State:
        numbers = snapshot_numbers(TableFiles(self.root))
        if not numbers:
            raise NotATableError(f"the indexes {self.root!r} were never finished; run `layoutopt index` again")
        table = open_iceberg_source(self.source)
        return numbers[-1], digest_listing(list_source(self.source)) if table is None else table.metadata_location

    def _open(self) -> tuple[State, SourceView]:
        for _ in range(_TRIES):
            before = self._state()
            catalog = open_indexed(self.root, self.source)
            table = open_iceberg_source(self.source)
            source = self._read_named_source(catalog) if table is None else iceberg_source(catalog, table)
            if self._state() == before:
                self._check_constants(source.constants)
                return before, SourceView(OpenedTable(catalog), source)
        raise SourceError(f"{self.source!r} changes faster than it can be read; try again")

    def _read_named_source(self, catalog: Catalog) -> ExternalTable:
        files = external_files(catalog.data)
        new = [key for key, mark in files.marks.items() if self._schemas.get(key, ("",))[0] != mark]
        listed = [ListedFile(files.held[key], files.marks[key]) for key in new]
        for key, footer in zip(new, read_footers(files, listed), strict=True):
            self._schemas[key] = (files.marks[key], footer.arrow)
        self._schemas = {key: item for key, item in self._schemas.items() if key in files.marks}
        held = [FileWithSchema(file, self._schemas[key][1]) for key, file in files.held.items()]
        return named_source(catalog, held, int(time.time() * 1000))

    def _check_constants(self, columns: tuple[Column, ...]) -> None:
        """Refuse changed folder columns: clients would read columns that they do not know of as NULL."""
        if self._constants is None:
            self._constants = columns
        if self._constants != columns:
            raise PublicationError(
                f"the columns or types in the folder names of {self.source!r} changed since it was first served; "
                "restart the server and load the table again in its clients"
            )


def parse_tables(places: Iterable[str]) -> dict[Identifier, str]:
    """Return the paths of settings of the form ``FOLDER``, ``NAME=FOLDER`` or ``NAMESPACE.NAME=FOLDER``.

    A folder or URL without a name is named by its last part.

    >>> parse_tables(["/data/events", "sales.orders=s3://lake/o"])
    {(('default',), 'events'): '/data/events', (('sales',), 'orders'): 's3://lake/o'}

    Raises:
        SettingError: two tables have one name, or a name has an empty part.
    """
    tables: dict[Identifier, str] = {}
    for place in places:
        match = _NAMED.fullmatch(place)
        path = place if match is None else match[2]
        parts = [place.rstrip("/").rpartition("/")[2]] if match is None else match[1].split(".")
        if not all(parts):
            raise SettingError(f"{place!r} names no table; write FOLDER, NAME=FOLDER or NAMESPACE.NAME=FOLDER")
        name = (tuple(parts[:-1]) or DEFAULT_NAMESPACE, parts[-1])
        if name in tables:
            raise SettingError(
                f"{tables[name]!r} and {path!r} would both be {'.'.join((*name[0], name[1]))!r}; write NAME=FOLDER"
            )
        tables[name] = path
    return tables


@dataclass(eq=False)
class ServedTable:
    """A layoutopt table, of which ``kept`` snapshots stay open by last use; each request sees the newest commits."""

    root: str
    kept: int = _KEPT
    _opened: dict[tuple[int, object], tuple[ServedView, ...]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def snapshots(self) -> dict[int, object]:
        """Return the snapshots' states, which differ if another table had the same number before."""
        return {**snapshot_states(TableFiles(self.root))}

    def views(self, number: int | None = None) -> tuple[ServedView, ...]:
        """Return the views of a snapshot, by default the newest: one, or one for each layout.

        Raises:
            NotATableError, CatalogError, PublicationError: it can't be read, or shown.
            RefusedError: there is no such snapshot.
        """
        states = self.snapshots()
        if not states:
            raise NotATableError(f"there is no loaded table at {self.root!r}")
        number = max(states) if number is None else number
        if number not in states:
            raise bad_request(
                f"there is no snapshot {number + 1}; the table has {min(states) + 1} to {max(states) + 1}"
            )
        key = (number, states[number])
        with self._lock:
            views = self._opened.pop(key, None)
            if views is None:
                table = OpenedTable(Catalog.open(self.root, number))
                views = tuple(TableView(table, view) for view in find_views(table.catalog))
            self._opened[key] = views
            while len(self._opened) > self.kept:
                del self._opened[next(iter(self._opened))]
        return views


@dataclass(eq=False)
class Tables:
    """The served tables.

    Attributes:
        named: tables by name.
        folder: a folder or URL of further tables: ``FOLDER/TABLE`` and ``FOLDER/NAMESPACE/TABLE``.
        history: how many snapshots before the newest one clients may request.
    """

    named: Mapping[Identifier, str]
    folder: str | None = None
    history: int = 0
    _sources: dict[str, ServedSource] = field(default_factory=dict)
    _listed: dict[Identifier, str] = field(default_factory=dict)

    def check(self) -> None:
        """Check that the named tables and the folder exist.

        Raises:
            NotATableError: a path holds no table, or the folder does not exist.
            CatalogError: a table's version can't be read.
            EncryptedTableError: a table is encrypted.
            PublicationError, SourceError, SchemaError: an external source can't be read, or shown.
        """
        for path in self.named.values():
            served = self._table(path)
            if isinstance(served, ServedSource):
                served.views()
                continue
            files = TableFiles(path)
            check_is_table(files)
            files.check_plain()
        folder = None if self.folder is None else TableFiles(self.folder)
        if folder is not None and (folder.is_file("") or not folder.exists("")):
            raise NotATableError(f"{self.folder!r} is no folder; name an existing folder of tables")

    def notes(self) -> list[str]:
        """Return what a user should know of the named tables; those of the folder are not opened."""
        notes = []
        for (namespace, name), root in self.named.items():
            table = self._table(root)
            if isinstance(table, ServedSource):
                continue
            with suppress(*_UNSHOWN):  # requests for the table get the error
                sizes = describe_file_sizes(table.views()[0].table.catalog)
                notes += [] if sizes is None else [f"{'.'.join((*namespace, name))}: {sizes}"]
        return notes

    def roots(self) -> dict[Identifier, str]:
        """Return the current paths of all tables by name; named tables take precedence."""
        self._listed = self._list_folder()
        roots = {**self._listed, **self.named}
        # Forget the first-served columns of removed sources.
        for root in set(self._sources) - set(roots.values()):
            self._sources.pop(root, None)
        return roots

    def _list_folder(self) -> dict[Identifier, str]:
        if self.folder is None:
            return {}
        files = TableFiles(self.folder)
        roots: dict[Identifier, str] = {}
        for name in files.list(""):
            if files.is_file(f"{name}/{MARKER}"):
                roots[DEFAULT_NAMESPACE, name] = files.full_path(name)
                continue
            inner = [] if name.startswith((".", "_")) or files.is_file(name) else files.list(name)
            for table in inner:
                if files.is_file(f"{name}/{table}/{MARKER}"):
                    roots[(name,), table] = files.full_path(f"{name}/{table}")
        return roots

    def names(self) -> list[Identifier]:
        """Return the sorted names that clients may request; a table without a covering layout has several."""
        names = []
        for (namespace, name), root in self.roots().items():
            try:
                for shown in self._table(root).views():
                    names.append((namespace, shown.view.named(name)))
            except _UNSHOWN:
                continue  # requests for the table get the error
        return sorted(names)

    def find(self, namespace: tuple[str, ...], name: str, snapshot: int | None = None) -> ServedView:
        """Return the view of a name, at a snapshot's number or the newest one.

        Raises:
            RefusedError: there is no such table or snapshot.
            LayoutoptError: it is damaged, or can't be shown.
        """
        for table_name, table in self._find_tables(namespace, name):
            try:
                views = table.views(snapshot)
            except NotATableError as error:
                raise no_such_table(namespace, name) from error
            for shown in views:
                if shown.view.named(table_name) == name:
                    return shown
        raise no_such_table(namespace, name)

    def older(self, namespace: tuple[str, ...], name: str, than: ServedView) -> list[ServedView]:
        """Return a name's views at the snapshots of its history before ``than``, ascending; skip unpublishable ones."""
        before = than.table.catalog.snapshot.number
        for table_name, table in self._find_tables(namespace, name) if self.history else ():
            if isinstance(table, ServedSource):
                return []
            numbers = sorted(number for number in table.snapshots() if number < before)[-self.history :]
            views = [view for number in numbers for view in _find_views(table, number)]
            return [view for view in views if view.view.named(table_name) == name]
        return []

    def _find_tables(self, namespace: tuple[str, ...], name: str) -> list[tuple[str, ServedTable | ServedSource]]:
        """Return the tables that a name may mean, each with its own name; a name may also mean a layout.

        The folder is listed only for unknown names, since listing takes many requests to an object store.
        """
        match = _VIEW.fullmatch(name)
        names = [name] if match is None else [name, match[1]]
        roots = {**self._listed, **self.named}
        if not any((namespace, name) in roots for name in names):
            roots = self.roots()
        return [(name, self._table(roots[namespace, name])) for name in names if (namespace, name) in roots]

    def _table(self, root: str) -> ServedTable | ServedSource:
        source = self._sources.get(root)
        if source is not None:
            return source
        try:
            return self._open_table(root)
        except SourceIndexError as error:
            return self._sources.setdefault(root, ServedSource(root, error.source))
        except LayoutoptError:  # requests for the table get the error
            return ServedTable(root)

    @cached_property
    def _open_table(self) -> Callable[[str], ServedTable]:
        def open_table(root: str) -> ServedTable:
            check_is_table(TableFiles(root))
            return ServedTable(root, _KEPT + self.history)

        return lru_cache(_MOST_TABLES)(open_table)


def _find_views(table: ServedTable, number: int) -> tuple[ServedView, ...]:
    try:
        return table.views(number)
    except PublicationError:
        return ()
