"""One snapshot of a table of another format: its columns, its files, and the rows of these that count."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

import numpy as np

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.model.arrays import Ints
from layoutopt.model.schema import Schema
from layoutopt.sql.schema import values_in_folders

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


# ----------------------------------------------------------------------------------------------------
# The partitions that a source has, each with the files that its rows are from.


@dataclass(frozen=True)
class SourceFile:
    """A file of the source: its URI, its size in bytes, and when it was changed (microseconds since 1970)."""

    uri: str
    size: int
    modified: int


@dataclass(frozen=True)
class SourcePartition:
    """A partition as the source has it.

    Attributes:
        value: of the partition column, plain; None is NULL, or that the table has no partitions.
        files: those that hold rows of it, sorted.
        rows: how many it has.
    """

    value: PlainValue
    files: tuple[SourceFile, ...]
    rows: int = 0

    @property
    def fingerprint(self) -> str:
        """The digest of the files, 64 hexadecimal digits."""
        lines = [f"{file.uri}\n{file.size}\n{file.modified}\n" for file in self.files]
        return hashlib.sha256("".join(lines).encode()).hexdigest()


def batch_of(partitions: Sequence[SourcePartition]) -> str:
    """The name of a batch that nobody named: a digest of the files that it came from."""
    files = sorted({file for partition in partitions for file in partition.files}, key=lambda file: file.uri)
    return hashlib.sha256("".join(f"{file}\n" for file in files).encode()).hexdigest()[:32]


# ----------------------------------------------------------------------------------------------------
# Plain Parquet as files of a snapshot: the values that the names of Hive-style folders say are constants of files.

_LOCAL: Final = re.compile(r"^file:/+")


def parquet_files(uris: Iterable[str], schema: Schema) -> tuple[SnapshotFile, ...]:
    """The files of a folder of Parquet, or of a pattern, as Spark lists them.

    Args:
        uris: of the files, as Spark spells them.
        schema: the table's columns; a folder's name that is none of them says nothing.
    """
    names = {name.lower(): name for name in schema.names}
    return tuple(SnapshotFile(path_of(uri), schema.names, _constants(uri, names)) for uri in sorted(uris))


def path_of(uri: str) -> str:
    """A URI as other libraries open it: a local one as a path.

    >>> path_of("file:///data/a%20b.parquet"), path_of("s3a://bucket/a%20b.parquet")
    ('/data/a b.parquet', 's3a://bucket/a b.parquet')
    """
    return unquote(_LOCAL.sub("/", uri))


def _constants(uri: str, names: dict[str, str]) -> dict[str, object]:
    """The columns whose values the folders above a file say, by their names in the schema; None for NULL."""
    # Spark spells what Hive has escaped once more in its URIs.
    said = values_in_folders(unquote(uri))
    return {names[name.lower()]: value for name, value in said.items() if name.lower() in names}


# ----------------------------------------------------------------------------------------------------
# Files of Parquet with days and times of the calendar that Spark had before version 3, by what their footers say.
#
# Until 1582 that is the Julian calendar. Spark moves such values to the days of the same names when it reads them, and
# times before 1900 to what clocks then showed; other readers take the stored numbers as they are.

_VERSION = b"org.apache.spark.version"
_DATES = b"org.apache.spark.legacyDateTime"
_INT96 = b"org.apache.spark.legacyINT96"


def has_old_dates(said: Mapping[bytes, bytes] | None) -> bool:
    """Whether Spark moves a file's old dates and timestamps.

    Args:
        said: keys and values of its footer; None for none.

    >>> has_old_dates({b"org.apache.spark.version": b"2.4.8"}), has_old_dates({b"org.apache.spark.version": b"3.0.0"})
    (True, False)
    """
    return _is_old(said, _DATES, b"3.0.0")


def has_old_int96(said: Mapping[bytes, bytes] | None) -> bool:
    """Whether Spark moves a file's old timestamps that are stored as INT96; arguments as of :func:`has_old_dates`.

    >>> has_old_int96({b"org.apache.spark.version": b"3.0.0"}), has_old_int96(None)
    (True, False)
    """
    return _is_old(said, _INT96, b"3.1.0")


def _is_old(said: Mapping[bytes, bytes] | None, mark: bytes, since: bytes) -> bool:
    found = said or {}
    # Texts are compared, as Spark does.
    return mark in found or found.get(_VERSION, since) < since
