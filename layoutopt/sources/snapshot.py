"""One snapshot of a table of another format: its columns, its files, and the rows of these that count."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from layoutopt.model.arrays import Ints
from layoutopt.model.schema import Schema

_SCHEME: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:(?=/)")
_NAMED: Final = re.compile(r"(delta|iceberg):(?P<place>.+?)(?:@(?P<version>[0-9]+))?", re.DOTALL)


@dataclass(frozen=True, eq=False)
class SnapshotFile:
    """A data file of a snapshot.

    Attributes:
        path: a path or URL as Spark opens it.
        stored: for each of the snapshot's columns the name of the column in the file; None where the file has none.
        constants: columns that have one value in all of the file's rows, which the table's metadata says.
        deleted: the positions of rows that were deleted, int64[n]; None for none.
    """

    path: str
    stored: tuple[str | None, ...]
    constants: Mapping[str, object] = field(default_factory=dict)
    deleted: Ints | None = None

    @property
    def deleted_rows(self) -> int:
        """How many rows were deleted."""
        return 0 if self.deleted is None else len(np.unique(self.deleted))


@dataclass(frozen=True, eq=False)
class SourceSnapshot:
    """A table of another format at one version.

    Attributes:
        name: names table and version, as a source is named.
        schema: the columns, with Spark's types.
        stored_types: of each column the type under which files hold it; another one only in the names of fields.
        files: the data files.
    """

    name: str
    schema: Schema
    stored_types: tuple[str, ...]
    files: tuple[SnapshotFile, ...]


@dataclass(frozen=True)
class SourceName:
    """A source that is a table: ``delta:PATH`` or ``iceberg:CATALOG/NAMESPACE.TABLE``, perhaps with ``@VERSION``.

    Attributes:
        format: ``delta`` or ``iceberg``.
        place: the path, or the table's name in a catalog.
        version: None for the newest.
    """

    format: str
    place: str
    version: int | None

    @property
    def text(self) -> str:
        """The name as users write it."""
        return f"{self.format}:{self.place}" + ("" if self.version is None else f"@{self.version}")


def source_name(source: object) -> SourceName | None:
    """The table that a source names; None for anything else, such as a path of Parquet.

    >>> source_name("delta:/data/t@7"), source_name("/data/t")
    (SourceName(format='delta', place='/data/t', version=7), None)
    """
    match = _NAMED.fullmatch(source) if isinstance(source, str) else None
    if match is None:
        return None
    version = match["version"]
    return SourceName(match[1], match["place"], None if version is None else int(version))


def ending(path: str) -> str:
    """A path or URL without what may be written in more than one way: its scheme, and slashes in front.

    >>> ending("file:///data/t/a b.parquet"), ending("/data/t/a b.parquet")
    ('data/t/a b.parquet', 'data/t/a b.parquet')
    """
    return _SCHEME.sub("", path).lstrip("/")
