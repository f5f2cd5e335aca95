"""Plain Parquet as files of a snapshot: the values that the names of Hive-style folders say are constants of files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

from layoutopt.model.schema import Schema
from layoutopt.sources.snapshot import SnapshotFile
from layoutopt.sql.folder_columns import values_in_folders

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
