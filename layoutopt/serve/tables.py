"""Which tables are served under which names. Names that clients send are looked up, never made into paths."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from threading import Lock
from typing import Final

from layoutopt.catalog.paths import MARKER
from layoutopt.catalog.snapshots import check_is_table, snapshot_states
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
from layoutopt.publish.contents import views_of
from layoutopt.scan.opened import OpenedTable
from layoutopt.serve.refusals import bad_request, no_such_table
from layoutopt.serve.shown import Shown, ShownTable
from layoutopt.serve.sources import ServedSource

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
