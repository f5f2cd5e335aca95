"""One snapshot of a table of another format: its columns, its files, and their live rows."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

import numpy as np

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.errors import LayoutoptError
from layoutopt.model.arrays import Ints
from layoutopt.model.schema import Schema
from layoutopt.sql.schema import folder_values

_SCHEME: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:(?=/)")
_LOCAL: Final = re.compile(r"^file:/+")


@dataclass(frozen=True, eq=False)
class SnapshotFile:
    """A data file of a snapshot.

    Attributes:
        path: a path or URL as Spark opens it.
        stored: for each of the snapshot's columns its name in the file; None if the file lacks it.
        constants: columns with one value in all of the file's rows, from the table's metadata or folder names.
        deleted: the positions of deleted rows, int64[n]; None for none.
    """

    path: str
    stored: tuple[str | None, ...]
    constants: Mapping[str, object] = field(default_factory=dict)
    deleted: Ints | None = None

    @property
    def deleted_rows(self) -> int:
        """The number of deleted rows."""
        return 0 if self.deleted is None else len(np.unique(self.deleted))

    @property
    def version_suffix(self) -> str:
        """A # and a digest of the deleted rows, which follow the file's URI: with other rows deleted it is another."""
        return "" if self.deleted is None else f"#{hashlib.sha256(self.deleted.tobytes()).hexdigest()[:16]}"


@dataclass(frozen=True, eq=False)
class SourceSnapshot:
    """A table of another format at one version, which is in its name.

    ``stored_types`` has for each column its type in the files, which may have other names of nested fields.
    """

    name: str
    schema: Schema
    stored_types: tuple[str, ...]
    files: tuple[SnapshotFile, ...]


def strip_scheme(path: str) -> str:
    """Return a path or URL without its scheme and leading slashes, which can be written in several ways.

    >>> strip_scheme("file:///data/t/a b.parquet"), strip_scheme("/data/t/a b.parquet")
    ('data/t/a b.parquet', 'data/t/a b.parquet')
    """
    return _SCHEME.sub("", path).lstrip("/")


@dataclass(frozen=True)
class SourceFile:
    """A file of the source: its URI, its size in bytes, and its modification time (microseconds since 1970)."""

    uri: str
    size: int
    modified: int


@dataclass(frozen=True)
class SourcePartition:
    """A partition of the source; the plain value is None for NULL, or for a table without partitions.

    ``problem`` is why its files can't be read, where those of other partitions can.
    """

    value: PlainValue
    files: tuple[SourceFile, ...]
    rows: int = 0
    problem: LayoutoptError | None = None

    @property
    def fingerprint(self) -> str:
        """The digest of the files, 64 hexadecimal digits."""
        lines = [f"{file.uri}\n{file.size}\n{file.modified}\n" for file in self.files]
        return hashlib.sha256("".join(lines).encode()).hexdigest()


def name_batch(partitions: Sequence[SourcePartition]) -> str:
    """Return the default name of a batch: a digest of the files that it came from."""
    files = sorted({file for partition in partitions for file in partition.files}, key=lambda file: file.uri)
    return hashlib.sha256("".join(f"{file}\n" for file in files).encode()).hexdigest()[:32]


def parquet_files(uris: Iterable[str], schema: Schema) -> tuple[SnapshotFile, ...]:
    """Return the files of a folder or pattern of Parquet, with values from Hive-style folder names as constants."""
    names = {name.lower(): name for name in schema.names}
    files = []
    for uri in sorted(uris):
        values = folder_values(unquote(uri))  # Spark's URIs escape Hive's escapes once more
        constants = {names[name.lower()]: value for name, value in values.items() if name.lower() in names}
        files.append(SnapshotFile(uri_to_path(uri), schema.names, constants))
    return tuple(files)


def uri_to_path(uri: str) -> str:
    """Return a URI as other libraries open it: a local one as a path.

    >>> uri_to_path("file:///data/a%20b.parquet"), uri_to_path("s3a://bucket/a%20b.parquet")
    ('/data/a b.parquet', 's3a://bucket/a b.parquet')
    """
    return unquote(_LOCAL.sub("/", uri))


# Spark before version 3 used the Julian calendar until 1582. When Spark reads such files, it converts dates to the same
# calendar date, and times before 1900 to local time then. Other readers use the stored numbers unchanged.
_VERSION = b"org.apache.spark.version"
_DATES = b"org.apache.spark.legacyDateTime"
_INT96 = b"org.apache.spark.legacyINT96"


def has_old_dates(metadata: Mapping[bytes, bytes] | None) -> bool:
    """Return whether Spark converts a file's old dates and timestamps, by the metadata of its footer.

    >>> has_old_dates({b"org.apache.spark.version": b"2.4.8"}), has_old_dates({b"org.apache.spark.version": b"3.0.0"})
    (True, False)
    """
    return _is_old(metadata, _DATES, b"3.0.0")


def has_old_int96(metadata: Mapping[bytes, bytes] | None) -> bool:
    """Return whether Spark converts a file's old timestamps that are stored as INT96.

    >>> has_old_int96({b"org.apache.spark.version": b"3.0.0"}), has_old_int96(None)
    (True, False)
    """
    return _is_old(metadata, _INT96, b"3.1.0")


def _is_old(metadata: Mapping[bytes, bytes] | None, key: bytes, since: bytes) -> bool:
    entries = metadata or {}
    return key in entries or entries.get(_VERSION, since) < since  # versions are compared as texts, like in Spark
