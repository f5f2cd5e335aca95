"""Folders of tables and of indexes: their markers, how a load claims one, and what else stands in their place."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Final

from layoutopt.catalog.paths import CATALOG, MARKER, Text, read_field
from layoutopt.catalog.snapshot import (
    ENCRYPTED,
    FORMAT,
    OLDEST_SUPPORTED,
    Snapshot,
    check_version,
    latest_snapshot,
    parse_json,
)
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import CatalogError, EncryptionKeyError, NotATableError, SourceIndexError


def check_is_table(files: TableFiles) -> None:
    """Refuse paths that hold no table.

    Raises:
        NotATableError: the path holds nothing, a file, or a folder that layoutopt did not make.
        CatalogError: the folder's marker is damaged or of a version that can't be read.
        EncryptionKeyError: the key is unavailable or wrong, or a key is given for a plain table.
    """
    if not files.exists(""):
        raise NotATableError(f"there is nothing at {files.root!r}; `layoutopt load` makes a table there")
    if files.is_file(""):
        raise NotATableError(f"{files.root!r} is a file, not a table; name the table's folder")
    if not files.exists(MARKER):
        raise NotATableError(f"{files.root!r} is not a layoutopt table (it has no {MARKER}); name a table's folder")
    _check_marker(files)


# The format in the marker of a folder that holds indexes of external files.
INDEX_FORMAT: Final = "layoutopt-index"


def not_a_table(root: str, source: str) -> SourceIndexError:
    """Return the error for a command that needs a table but got the indexes of a source."""
    return SourceIndexError(
        f"{root!r} holds the indexes of {source!r}; this command needs a layoutopt table. Indexes work with `query`, "
        "`explain`, `files`, `serve`, `refresh`, `vacuum` and Spark sessions",
        source,
    )


def _check_marker(files: TableFiles) -> None:
    where = files.full_path(MARKER)
    content = parse_json(files.read_bytes(MARKER), where)
    if content.get("format") == INDEX_FORMAT:
        check_version(content.get("version"), where, 1, 1)
        source = read_field(Text, content.get("source"), f"the source of {where}")
        raise not_a_table(files.root, source)
    if content.get("format") != FORMAT:
        raise NotATableError(f"{where} is of another format than {FORMAT!r}; name a layoutopt table's folder")
    check_version(content.get("version"), where, ENCRYPTED if "encryption" in content else ENCRYPTED - 1)
    if files.keys is None and files.key is not None:
        raise EncryptionKeyError(f"the table {files.root!r} is not encrypted, but a key is given; leave the key out")


def _is_claimed(files: TableFiles, missing: str) -> bool:
    """Return whether a folder has a marker; raise NotATableError, with what is ``missing``, if it has other files.

    A claim leaves an empty catalog folder before its marker.
    """
    if files.exists(MARKER):
        return True
    names = files.list("")
    if files.is_file("") or (names and (names != (CATALOG,) or files.list(CATALOG))):
        raise NotATableError(f"{files.root!r} holds other files, but {missing}")
    return False


def _check_exclusive(files: TableFiles) -> None:
    """Raise CatalogError if the store creates the marker again: then loads could overwrite each other's snapshot."""
    try:
        files.write_new(MARKER, files.read_bytes(MARKER))
    except FileExistsError:
        return
    raise CatalogError(
        f"the store of {files.root!r} overwrites files that should be created exclusively; put the table on one that "
        "refuses this, such as a local disk or a store with conditional puts"
    )


def is_own_table(files: TableFiles) -> bool:
    """Return whether a folder is a layoutopt table, readable or not; False for the indexes of a source."""
    if not files.exists(MARKER):
        return False
    return parse_json(files.read_bytes(MARKER), files.full_path(MARKER)).get("format") == FORMAT


def source_of_index(root: str) -> str:
    """Return the source whose indexes a folder holds; raise NotATableError if it holds something else."""
    try:
        check_is_table(TableFiles(root))
    except SourceIndexError as error:
        return error.source
    raise NotATableError(f"{root!r} is a table, not the indexes of a source; `layoutopt index` makes such a folder")


def newest_of_index(files: TableFiles, source: str) -> Snapshot | None:
    """Read the newest snapshot of a source's indexes; None where the folder is empty or missing.

    Raises NotATableError if it holds something else, SourceIndexError if it holds the indexes of another source.
    """
    if not _is_claimed(files, "no indexes; name an empty or new folder"):
        return None
    indexed = source_of_index(files.root)
    if indexed != source:
        raise SourceIndexError(
            f"{files.root!r} holds the indexes of {indexed!r}, not of {source!r}; name an empty or new folder", indexed
        )
    return latest_snapshot(files)


def claim_index_root(files: TableFiles, source: str) -> None:
    """Claim an empty folder for the indexes of a source; raises as :func:`newest_of_index`."""
    marker = json.dumps({"format": INDEX_FORMAT, "version": 1, "source": source}).encode()
    with suppress(FileExistsError):
        files.write_new(MARKER, marker)
    newest_of_index(files, source)
    _check_exclusive(files)


def _marker(key: str | None) -> bytes:
    if key is None:
        return json.dumps({"format": FORMAT, "version": OLDEST_SUPPORTED}).encode()
    from layoutopt.encryption.table_keys import new_encryption

    return json.dumps({"format": FORMAT, "version": ENCRYPTED, "encryption": new_encryption(key)}).encode()


def check_table_root(files: TableFiles) -> bool:
    """Return whether a path is a table, or else free for a new one; raise NotATableError if it holds something else."""
    return _is_claimed(files, "no layoutopt table; name an empty or new folder to load into")


def ensure_table_root(files: TableFiles) -> Snapshot | None:
    """Claim a path for a table before a load writes its first data file; return the newest snapshot, or None.

    A new table is encrypted if ``files`` name a key; an existing one must be encrypted by that key.

    Raises:
        SettingError, EncryptionKeyError: the key is unavailable, or not the table's.
        NotATableError: the path holds something else.
        CatalogError: the newest snapshot is damaged or of a version that can't be read, or the store can't create files
            exclusively.
    """
    if not check_table_root(files):
        with suppress(FileExistsError):  # a concurrent loader claimed it
            files.write_new(MARKER, _marker(files.key))
    _check_marker(files)
    _check_exclusive(files)
    return latest_snapshot(files)
