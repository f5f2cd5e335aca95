"""Which tables are served under which names. Names that clients send are looked up, never made into paths."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from threading import Lock
from typing import Final

import pyarrow as pa

from layoutopt.catalog.paths import MARKER
from layoutopt.catalog.snapshot import check_is_table, snapshot_numbers, snapshot_states
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
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
from layoutopt.external.footers import read_footers
from layoutopt.external.indexed_source import open_indexed
from layoutopt.external.listing import Listed, list_source, state_of
from layoutopt.external.source_files import SourceFiles
from layoutopt.model.schema import Column, Schema
from layoutopt.publish.contents import View, views_of
from layoutopt.publish.external import ExternalTable, FileWithSchema, iceberg_source, named_source
from layoutopt.publish.iceberg_metadata import ManifestFolder, metadata_json
from layoutopt.scan.arrow_types import any_arrow_type
from layoutopt.scan.opened_table import OpenedTable
from layoutopt.serve.planning import Planner
from layoutopt.serve.protocol import bad_request, no_such_table
from layoutopt.sources.iceberg import open_iceberg
from layoutopt.sources.snapshot import SourceName, source_name

# ----------------------------------------------------------------------------------------------------
# One table of Iceberg's: what a client loads and has scans planned of.


@dataclass(frozen=True, eq=False)
class ShownTable:
    """A view of a table's snapshot.

    Attributes:
        table: at the snapshot.
        view: what of it is shown.
    """

    table: OpenedTable
    view: View

    @property
    def constants(self) -> tuple[Column, ...]:
        """The columns that files don't say: none."""
        return ()

    @cached_property
    def planner(self) -> Planner:
        """What plans its scans."""
        return Planner(self.table, self.view)

    def metadata(self, manifests: ManifestFolder, older: Sequence[Shown]) -> str:
        """Iceberg's metadata as JSON, with some older snapshots.

        Raises:
            CatalogError, PublicationError: the table is damaged, or can't be shown.
            OSError: its manifests can't be written.
        """
        listed = [(each.table.catalog, each.view) for each in (*older, self)]
        snapshots = [(catalog, manifests.manifest_list(catalog, view)) for catalog, view in listed]
        return metadata_json(snapshots, self.view)


@dataclass(frozen=True, eq=False)
class ShownSource:
    """Files that somebody else keeps, as they are at one moment.

    Attributes:
        table: what is known of them.
        source: what readers are told of them.
    """

    table: OpenedTable
    source: ExternalTable

    @property
    def view(self) -> View:
        """All columns."""
        return View(None, self.table.schema, None, Schema(()))

    @property
    def constants(self) -> tuple[Column, ...]:
        """The columns that some files don't say."""
        return self.source.constants

    @cached_property
    def planner(self) -> Planner:
        """What plans its scans."""
        return Planner(self.table, self.view, self.source)

    def metadata(self, manifests: ManifestFolder, older: Sequence[Shown]) -> str:
        """Iceberg's metadata as JSON; there is no older snapshot. Raises OSError if manifests can't be written."""
        return self.source.metadata(manifests)


Shown = ShownTable | ShownSource


# ----------------------------------------------------------------------------------------------------
# Files that somebody else keeps, served with what `layoutopt index` measured of them: as they are at each request.

_TRIES: Final = 3

State = tuple[int, str]
"""The number of the indexes' newest snapshot, and what tells the source from itself after a change."""


@dataclass(eq=False)
class ServedSource:
    """A source whose files are indexed.

    The source is listed for each request. What it is like is kept until it, or what is known of it, is something else.

    Attributes:
        root: the folder of the indexes.
        source: whose they are.
    """

    root: str
    source: str
    _opened: tuple[State, ShownSource] | None = None
    _told: tuple[Column, ...] | None = None
    _schemas: dict[str, tuple[str, pa.Schema]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def shown(self, number: int | None = None) -> tuple[ShownSource, ...]:
        """The one table that shows the source as it is now.

        Raises:
            NotATableError, CatalogError: what was measured can't be read.
            SourceError, SchemaError, PublicationError: the source can't be read, or shown.
            RefusedError: an older snapshot is asked for.
        """
        state = self._state()
        with self._lock:
            if self._opened is None or self._opened[0] != state:
                self._opened = self._open()
            shown = self._opened[1]
        if number is not None and number + 1 != shown.source.snapshot:
            raise bad_request(
                f"files of others are shown as they are now, which is snapshot {shown.source.snapshot}; load the table "
                "again"
            )
        return (shown,)

    def _state(self) -> State:
        numbers = snapshot_numbers(TableFiles(self.root))
        if not numbers:
            raise NotATableError(f"the indexes {self.root!r} were never finished; run `layoutopt index` again")
        name = self._iceberg
        return numbers[-1], state_of(list_source(self.source)) if name is None else open_iceberg(name).metadata_location

    @property
    def _iceberg(self) -> SourceName | None:
        """The source's name where it is a table of Iceberg's, whose files never change under one metadata file."""
        name = source_name(self.source)
        return name if name is not None and name.format == "iceberg" else None

    def _open(self) -> tuple[State, ShownSource]:
        """The source with what is known of it, and its state; read again if it changed meanwhile."""
        for _ in range(_TRIES):
            before = self._state()
            catalog = open_indexed(self.root, self.source, any_arrow_type)
            told = self._by_ids(catalog) if self._iceberg is not None else self._by_names(catalog)
            if self._state() == before:
                self._check_constants(told.constants)
                return before, ShownSource(OpenedTable(catalog), told)
        raise SourceError(f"{self.source!r} changes faster than it can be read; ask again")

    def _by_ids(self, catalog: Catalog) -> ExternalTable:
        assert self._iceberg is not None, "only then"
        return iceberg_source(catalog, open_iceberg(self._iceberg))

    def _by_names(self, catalog: Catalog) -> ExternalTable:
        files = catalog.data
        assert isinstance(files, SourceFiles), "the catalog is of a source's files"
        new = [key for key, mark in files.marks.items() if self._schemas.get(key, ("",))[0] != mark]
        listed = [Listed(files.held[key], files.marks[key]) for key in new]
        for key, footer in zip(new, read_footers(files, listed), strict=True):
            self._schemas[key] = (files.marks[key], footer.arrow)
        self._schemas = {key: one for key, one in self._schemas.items() if key in files.marks}
        held = [FileWithSchema(file, self._schemas[key][1]) for key, file in files.held.items()]
        return named_source(catalog, held, int(time.time() * 1000))

    def _check_constants(self, columns: tuple[Column, ...]) -> None:
        """Refuse other columns in folders' names than before: clients would take NULL for what they were not told."""
        if self._told is None:
            self._told = columns
        if self._told != columns:
            raise PublicationError(
                f"the folders of {self.source!r} say other columns, or of other types, than when it was first served; "
                "restart the server and load the table again in its clients"
            )


DEFAULT_NAMESPACE: Final = ("default",)
_NAMED: Final = re.compile(r"([\w.-]+)=(.+)", re.DOTALL)
_VIEW: Final = re.compile(r"(.+)_layout_(0|[1-9][0-9]{0,5})", re.DOTALL)
_UNSHOWN: Final = (
    NotATableError, CatalogError, PublicationError, EncryptedTableError, EncryptionKeyError, SourceError, SchemaError,
    SettingError,
)  # fmt: skip
_KEPT: Final = 4
"""So many snapshots of a table are kept open beside its history, those asked for last."""
_MOST_TABLES: Final = 1024
"""So many tables have snapshots kept open, those asked for last."""

Identifier = tuple[tuple[str, ...], str]
"""A table's namespace and name."""


def tables_named(places: Iterable[str]) -> dict[Identifier, str]:
    """Tables as settings name them: ``FOLDER`` (or a URL), called by its last part, or ``NAME=FOLDER``,
    ``NAMESPACE.NAME=FOLDER``.

    >>> tables_named(["/data/events", "sales.orders=s3://lake/o"])
    {(('default',), 'events'): '/data/events', (('sales',), 'orders'): 's3://lake/o'}

    Raises:
        SettingError: two tables have one name, or a name has an empty part.
    """
    found: dict[Identifier, str] = {}
    for place in places:
        match = _NAMED.fullmatch(place)
        path = place if match is None else match[2]
        parts = [place.rstrip("/").rpartition("/")[2]] if match is None else match[1].split(".")
        if not all(parts):
            raise SettingError(f"{place!r} names no table; write FOLDER, NAME=FOLDER or NAMESPACE.NAME=FOLDER")
        name = (tuple(parts[:-1]) or DEFAULT_NAMESPACE, parts[-1])
        if name in found:
            raise SettingError(
                f"{found[name]!r} and {path!r} would both be {'.'.join((*name[0], name[1]))!r}; write NAME=FOLDER"
            )
        found[name] = path
    return found


@dataclass(eq=False)
class ServedTable:
    """A table of ours, as new as it is: what others commit is seen by the next request.

    Attributes:
        root: its path or URL.
        kept: how many snapshots are kept open, those asked for last.
    """

    root: str
    kept: int = _KEPT
    _opened: dict[tuple[int, object], tuple[Shown, ...]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def snapshots(self) -> dict[int, object]:
        """Its snapshots, each with what tells it from one of the same number of a table that was there before."""
        return {**snapshot_states(TableFiles(self.root))}

    def shown(self, number: int | None = None) -> tuple[Shown, ...]:
        """The tables that show a snapshot, the newest by default: one, or one for each layout.

        Raises:
            NotATableError, CatalogError, PublicationError: it can't be read, or shown.
            RefusedError: there is no such snapshot.
        """
        there = self.snapshots()
        if not there:
            raise NotATableError(f"there is no loaded table at {self.root!r}")
        number = max(there) if number is None else number
        if number not in there:
            raise bad_request(f"there is no snapshot {number + 1}; the table has {min(there) + 1} to {max(there) + 1}")
        key = (number, there[number])
        with self._lock:
            found = self._opened.pop(key, None)
            if found is None:
                table = OpenedTable(Catalog.open(self.root, number))
                found = tuple(ShownTable(table, view) for view in views_of(table.catalog))
            self._opened[key] = found
            while len(self._opened) > self.kept:
                del self._opened[next(iter(self._opened))]
        return found


@dataclass(eq=False)
class Tables:
    """The tables that are served.

    Attributes:
        named: those that were named one by one, by their names.
        folder: a folder or URL whose tables are served too: ``FOLDER/TABLE`` and ``FOLDER/NAMESPACE/TABLE``.
        history: how many snapshots before the newest one clients may ask for by their ids.
    """

    named: Mapping[Identifier, str]
    folder: str | None = None
    history: int = 0
    _sources: dict[str, ServedSource] = field(default_factory=dict)
    _listed: dict[Identifier, str] = field(default_factory=dict)

    def check(self) -> None:
        """Look whether what was named is there.

        Raises:
            NotATableError: a path holds no table, or the folder is none.
            CatalogError: a table is of a version that can't be read.
            EncryptedTableError: a table is encrypted.
            PublicationError, SourceError, SchemaError: files of others can't be read, or shown.
        """
        for path in self.named.values():
            served = self._table(path)
            if isinstance(served, ServedSource):
                served.shown()
                continue
            files = TableFiles(path)
            check_is_table(files)
            files.check_plain()
        folder = None if self.folder is None else TableFiles(self.folder)
        if folder is not None and (folder.is_file("") or not folder.exists("")):
            raise NotATableError(f"{self.folder!r} is no folder of tables; name one that is there")

    def roots(self) -> dict[Identifier, str]:
        """The paths of all tables by their names, as they are now; those named one by one win."""
        self._listed = self._in_folder()
        found = {**self._listed, **self.named}
        # Only while a source is there must it be known what clients were told of its columns.
        for gone in set(self._sources) - set(found.values()):
            self._sources.pop(gone, None)
        return found

    def _in_folder(self) -> dict[Identifier, str]:
        if self.folder is None:
            return {}
        files = TableFiles(self.folder)
        found: dict[Identifier, str] = {}
        for name in files.list(""):
            if files.is_file(f"{name}/{MARKER}"):
                found[DEFAULT_NAMESPACE, name] = files.full_path(name)
                continue
            inner = [] if name.startswith((".", "_")) or files.is_file(name) else files.list(name)
            for each in inner:
                if files.is_file(f"{name}/{each}/{MARKER}"):
                    found[(name,), each] = files.full_path(f"{name}/{each}")
        return found

    def names(self) -> list[Identifier]:
        """The names that clients may ask for, sorted; a table without a layout of all columns has several."""
        found = []
        for (namespace, name), root in self.roots().items():
            try:
                for shown in self._table(root).shown():
                    found.append((namespace, shown.view.named(name)))
            except _UNSHOWN:
                continue  # who asks for it by its name is told why
        return sorted(found)

    def find(self, namespace: tuple[str, ...], name: str, snapshot: int | None = None) -> Shown:
        """The table of a name, at a snapshot's number or the newest one.

        Raises:
            RefusedError: there is none, or it has no such snapshot.
            LayoutoptError: it is damaged, or can't be shown.
        """
        for found, table in self._called(namespace, name):
            try:
                shown = table.shown(snapshot)
            except NotATableError as error:
                raise no_such_table(namespace, name) from error
            for each in shown:
                if each.view.named(found) == name:
                    return each
        raise no_such_table(namespace, name)

    def older(self, namespace: tuple[str, ...], name: str, than: Shown) -> list[Shown]:
        """The table of a name at the snapshots of its history before another, ascending; raises as above.

        Those that can't be shown are left out, as some with deletion vectors.
        """
        before = than.table.catalog.snapshot.number
        for found, table in self._called(namespace, name) if self.history else ():
            if isinstance(table, ServedSource):
                return []
            numbers = sorted(number for number in table.snapshots() if number < before)[-self.history :]
            return [each for number in numbers for each in _shown(table, number) if each.view.named(found) == name]
        return []

    def _called(self, namespace: tuple[str, ...], name: str) -> list[tuple[str, ServedTable | ServedSource]]:
        """The tables that a name may mean, with their own: of that name, or one of which it is a layout.

        The folder is looked at only for a name that was not seen there before: that costs many requests to a store.
        """
        match = _VIEW.fullmatch(name)
        own = [name] if match is None else [name, match[1]]
        known = {**self._listed, **self.named}
        if not any((namespace, each) in known for each in own):
            known = self.roots()
        return [(each, self._table(known[namespace, each])) for each in own if (namespace, each) in known]

    def _table(self, root: str) -> ServedTable | ServedSource:
        source = self._sources.get(root)
        if source is not None:
            return source
        try:
            return self._opened(root)
        except SourceIndexError as found:
            return self._sources.setdefault(root, ServedSource(root, found.source))
        except LayoutoptError:  # who asks for it is told
            return ServedTable(root)

    @cached_property
    def _opened(self) -> Callable[[str], ServedTable]:
        """Tables of ours by their paths, those asked for last."""

        def opened(root: str) -> ServedTable:
            check_is_table(TableFiles(root))
            return ServedTable(root, _KEPT + self.history)

        return lru_cache(_MOST_TABLES)(opened)


def _shown(table: ServedTable, number: int) -> tuple[Shown, ...]:
    """The tables that show a snapshot; none where none can."""
    try:
        return table.shown(number)
    except PublicationError:
        return ()
