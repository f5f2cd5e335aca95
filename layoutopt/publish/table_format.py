"""The interface of a published table format: read what a location shows, and change it in one commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from layoutopt.catalog.table import Catalog
from layoutopt.model.schema import Schema
from layoutopt.publish.contents import DataFile

TABLE_PROPERTY = "layoutopt.table"
SNAPSHOT_PROPERTY = "layoutopt.snapshot"
VIEW_PROPERTY = "layoutopt.layout"

# Called with the name of each finished step, so that tests can end the process there.
PublishHook = Callable[[str], None]


@dataclass(frozen=True)
class PlaceState:
    """What a location shows now.

    Attributes:
        table_id, snapshot, layout: the published table, snapshot and layout ("" for a covering one); None if layoutopt
            did not publish the table.
        files: the partition values of its data files, in the format's own form, by path relative to our table.
        strangers: data files that are not our table's.
        partition_by: the partition column, or None.
        shape: the columns and the partition column in the format's own form, for comparison.
        version: the location's newest version or snapshot.
    """

    table_id: str | None
    snapshot: int | None
    layout: str | None
    files: Mapping[str, object]
    strangers: tuple[str, ...]
    partition_by: str | None
    shape: object
    version: int


@dataclass(frozen=True)
class DesiredState:
    """What a location is to show.

    Attributes:
        table_id, snapshot, layout: as in :class:`PlaceState`.
        columns: the published columns.
        partition_by: the format's partition column, or None.
        hidden: unpublished columns that some files hold.
        bounded: the columns with bounds that readers may rely on, if the format lists them.
    """

    table_id: str
    snapshot: int
    layout: str
    columns: Schema
    partition_by: str | None
    hidden: Schema
    bounded: tuple[str, ...] = ()


@dataclass(frozen=True)
class NewFile:
    """A data file to add, its size in bytes, and when it was written (seconds since 1970)."""

    file: DataFile
    size: int
    modified: float


class Target(Protocol):
    """A location where a table is published in another format."""

    @property
    def location(self) -> str:
        """A folder, a URL or a name in a catalog."""

    def read_state(self) -> PlaceState | None:
        """Return what the location shows, or None; raises PublicationError for anything but a table of this format."""

    def adapt(self, wanted: DesiredState, catalog: Catalog) -> DesiredState:
        """Return the state as the format can express it: perhaps without partitions."""

    def shape(self, wanted: DesiredState) -> object:
        """Return the columns and the partition column in the format's form; raises PublicationError."""

    def partition_value(self, wanted: DesiredState, file: DataFile) -> object:
        """Return a file's partition value in the format's form, or None; raises PublicationError."""

    def commit(self, before: PlaceState | None, wanted: DesiredState, added: list[NewFile], removed: list[str]) -> int:
        """Commit all changes at once and return the version; raises CommitConflictError on a conflict."""
