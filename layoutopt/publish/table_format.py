"""What publishing asks of a format: to say what a place shows, and to change that in one commit."""

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

PublishHook = Callable[[str], None]
"""Called with the name of each step that was done, so that tests can end the process there."""


@dataclass(frozen=True)
class Shown:
    """What a place shows now.

    Attributes:
        table_id, snapshot, layout: which table, which of its snapshots and which layout (as text; "" for a covering
            one) were published there; None where the place holds a table that nobody published from here.
        files: the data files that it names, by path relative to our table; of each the partition value as the format
            has it.
        strangers: data files that are none of our table's, as the format names them.
        partition_by: the partition column, None for none.
        shape: the columns and the partition column as the format has them, to be compared with others.
        version: the place's newest version or snapshot.
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
class Wanted:
    """What a place is to show.

    Attributes:
        table_id, snapshot, layout: as in :class:`Shown`.
        columns: the columns to be shown.
        partition_by: the format's partition column, None for none.
        hidden: columns that are not shown, though some files hold them.
        bounded: the columns whose minima and maxima readers may rely on, where the format lists them.
    """

    table_id: str
    snapshot: int
    layout: str
    columns: Schema
    partition_by: str | None
    hidden: Schema
    bounded: tuple[str, ...] = ()


@dataclass(frozen=True)
class Added:
    """A data file that a place is to name: its size in bytes, and when it was written (seconds since 1970)."""

    file: DataFile
    size: int
    modified: float


class Target(Protocol):
    """A place where a table is shown as one of another format."""

    @property
    def location(self) -> str:
        """A folder, a URL or a name in a catalog."""

    def shown(self) -> Shown | None:
        """What is there; None for nothing yet.

        Raises:
            PublicationError: something is there that is no table of this format.
        """

    def adapted(self, wanted: Wanted, catalog: Catalog) -> Wanted:
        """What is wanted as the format can say it of a catalog's partitions: perhaps without partitions."""

    def shape(self, wanted: Wanted) -> object:
        """The columns and the partition column as the format would have them.

        Raises:
            PublicationError: it has no way to say a column.
        """

    def partition_value(self, wanted: Wanted, file: DataFile) -> object:
        """A file's partition value as the format would have it; None where there are no partitions.

        Raises:
            PublicationError: it has no way to say it.
        """

    def commit(self, before: Shown | None, wanted: Wanted, added: list[Added], removed: list[str]) -> int:
        """Make one commit of all that changes; the version that it makes.

        Raises:
            CommitConflictError: somebody else committed since ``before``.
        """
