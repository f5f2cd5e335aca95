"""Files that somebody else keeps, served with what `layoutopt index` measured of them: as they are at each request."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

import pyarrow as pa

from layoutopt.catalog.snapshots import snapshot_numbers
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.errors import NotATableError, PublicationError, SourceError
from layoutopt.foreign.footers import read_footers
from layoutopt.foreign.listing import Listed, list_source
from layoutopt.foreign.marks import state_of
from layoutopt.foreign.opening import open_indexed
from layoutopt.foreign.source_files import SourceFiles
from layoutopt.model.schema import Column
from layoutopt.publish.foreign.by_ids import iceberg_source
from layoutopt.publish.foreign.by_names import named_source
from layoutopt.publish.foreign.columns import HeldFile
from layoutopt.publish.foreign.told import SourceTold
from layoutopt.scan.arrow_types import any_arrow_type
from layoutopt.scan.opened import OpenedTable
from layoutopt.serve.refusals import bad_request
from layoutopt.serve.shown import ShownSource
from layoutopt.sources.iceberg import open_iceberg
from layoutopt.sources.snapshot import SourceName, source_name

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

    def _by_ids(self, catalog: Catalog) -> SourceTold:
        assert self._iceberg is not None, "only then"
        return iceberg_source(catalog, open_iceberg(self._iceberg))

    def _by_names(self, catalog: Catalog) -> SourceTold:
        files = catalog.data
        assert isinstance(files, SourceFiles), "the catalog is of a source's files"
        new = [key for key, mark in files.marks.items() if self._schemas.get(key, ("",))[0] != mark]
        listed = [Listed(files.held[key], files.marks[key]) for key in new]
        for key, footer in zip(new, read_footers(files, listed), strict=True):
            self._schemas[key] = (files.marks[key], footer.arrow)
        self._schemas = {key: one for key, one in self._schemas.items() if key in files.marks}
        held = [HeldFile(file, self._schemas[key][1]) for key, file in files.held.items()]
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
