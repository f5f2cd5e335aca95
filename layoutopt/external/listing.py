"""The files of a source as they are now: all of a folder of Parquet, or those of the newest version of a table.

Every file has a *mark*, which is another one once the file holds anything else: the size and times of change that the
store tells, and its entity tag or inode. A local file's time of status change is no program's to set, so a rewriting
that keeps size and time of change is seen too.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import InvalidOperation
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from layoutopt.catalog.storage.filesystem import absolute, is_url, protocol_of
from layoutopt.errors import SettingError, SourceError
from layoutopt.model.schema import Column, Schema
from layoutopt.sources.external_tables import check_is_no_table, open_snapshot
from layoutopt.sources.snapshot import SnapshotFile, source_name
from layoutopt.sql.schema import folder_columns, is_shown, values_in_folders

# ----------------------------------------------------------------------------------------------------
# What texts in the names of Hive-style folders, and in metadata of tables, are as values.

UNNAMED: Final[tuple[str | None, ...]] = ()
"""In place of the names under which a file stores columns: they are those of its own footer."""


def constant(value: object, column: Column, type: pa.DataType) -> pa.Scalar:
    """A value that a folder's name or a table's metadata says of all rows of a file.

    Args:
        value: its text, or a value of Python's; None is NULL.
        column: what it is a value of.
        type: the column's in Arrow.

    Raises:
        SourceError: it is no value of the column's type, or of one whose texts depend on a time zone.
    """
    if value is None:
        return pa.scalar(None, type)
    text = str(value).lower() if column.type == "boolean" else str(value)
    try:
        if column.type in ("timestamp", "binary"):
            raise ValueError("such values are not read from there")
        return pa.scalar(text, pa.string()).cast(type)
    except (pa.ArrowException, ValueError, InvalidOperation) as error:
        raise SourceError(
            f"{text[:80]!r} stands for the column {column.name!r} of type {column.type} in the name of a folder or in "
            f"a table's metadata ({error}); store the column in the files"
        ) from error


_AT_ONCE: Final = 16
_ENDINGS: Final = (".parquet", ".parq", ".pq")
_UNTOLD: Final = ("", ".snappy", ".gz", ".zstd", ".lz4", ".lzo", ".brotli")
"""Endings of names that may be of Parquet files or of others, as some writers leave them."""
_TIMES: Final = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
_TAGS: Final = ("ETag", "etag", "md5Hash", "generation", "version_id", "checksum")


@dataclass(frozen=True, eq=False)
class Listed:
    """A file of the source, and what tells it from others that may stand there later, its size in bytes first."""

    file: SnapshotFile
    mark: str


@dataclass(frozen=True, eq=False)
class Listing:
    """A source as it is now.

    Attributes:
        name: the source, as users name it; the same in all working folders.
        files: its files, by path.
        schema: its columns; of a folder those alone that the names of folders say, whose files say the others.
        is_folder: whether it is plain Parquet, not a table of another format.
    """

    name: str
    files: tuple[Listed, ...]
    schema: Schema
    is_folder: bool


def canonical(source: str) -> str:
    """A source's name that means the same in every working folder; of a table without a version.

    Raises:
        SettingError: it names a version: indexes follow the newest.
    """
    name = source_name(source)
    if name is None:
        return source.rstrip("/") if is_url(source) else absolute(source)
    if name.version is not None:
        raise SettingError(f"{source!r} names a version, and indexes follow the newest one; leave @{name.version} out")
    is_path = name.format == "delta" or name.place.startswith((".", "/", "~"))
    return f"{name.format}:{absolute(name.place)}" if is_path and not is_url(name.place) else name.text


def list_source(source: str) -> Listing:
    """The source as it is now.

    Args:
        source: as :func:`canonical` has it.

    Raises:
        SourceError: it does not exist, can't be read, or has what would give wrong rows if it were not understood.
        SchemaError: a column's type can't be stored.
        SettingError: the library of its format is not installed, or its store can't be reached.
    """
    name = source_name(source)
    if name is None:
        check_is_no_table(source)
        return _folder(source)
    snapshot = open_snapshot(name)
    for column, stored in zip(snapshot.schema.columns, snapshot.stored_types, strict=True):
        if column.type != stored:
            raise SourceError(
                f"the column {column.name!r} of {source!r} has fields that its files call otherwise, which is not "
                "understood here; load the table, or write it anew without renamed fields"
            )
    marks = dict(_each(_mark_of, [file.path for file in snapshot.files]))
    files = tuple(Listed(file, marks[file.path]) for file in snapshot.files)
    return Listing(source, files, snapshot.schema, False)


def local_path(path: str) -> str:
    """A path or URL as other libraries open it: a local one as a path.

    >>> local_path("file:///data/a.parquet"), local_path("s3://bucket/a.parquet")
    ('/data/a.parquet', 's3://bucket/a.parquet')
    """
    return "/" + path.split(":", 1)[1].lstrip("/") if path.startswith("file:") else path


def _folder(source: str) -> Listing:
    marked = dict(_local_files(Path(source)) if protocol_of(source) == "file" else _remote_files(source))
    if not marked:
        raise SourceError(f"{source!r} holds no file that ends in .parquet; name a folder of Parquet, or a table")
    values = {path: values_in_folders(path.removeprefix(source)) for path in marked}
    by = folder_columns(values.values())
    names = {column.name for column in by}
    files = tuple(
        Listed(SnapshotFile(path, UNNAMED, {n: v for n, v in values[path].items() if n in names}), marked[path])
        for path in sorted(marked)
    )
    return Listing(source, files, Schema(by), True)


def _local_files(root: Path) -> Iterator[tuple[str, str]]:
    if root.is_file():
        yield str(root), _local_mark(root.stat())
        return
    if not root.is_dir():
        raise SourceError(f"there is nothing at {str(root)!r}; name a folder of Parquet, or a table")
    above: dict[str, frozenset[tuple[int, int]]] = {}  # of each folder those around it
    for folder, inside, names in os.walk(root, onerror=_unlisted, followlinks=True):
        status = Path(folder).stat()
        around = above.pop(str(Path(folder)), frozenset())
        if (status.st_dev, status.st_ino) in around:  # a link back
            inside.clear()
            continue
        inside[:] = [name for name in inside if is_shown(name)]
        around |= {(status.st_dev, status.st_ino)}
        above |= {str(Path(folder, name)): around for name in inside}
        for name in names:
            path = Path(folder, name)
            if _is_data(str(path)):
                try:
                    yield str(path), _local_mark(path.stat())
                except FileNotFoundError:
                    continue  # removed since


def _unlisted(error: OSError) -> None:
    """Refuse a source of which a folder can't be listed: its rows would be missing."""
    raise SourceError(
        f"the source's folder {str(error.filename)!r} can't be listed ({error.strerror}); see to its permissions"
    ) from error


def _is_data(path: str) -> bool:
    """Whether a file is Parquet, by its name.

    Raises:
        SourceError: nobody can tell by that, and Spark would read it as such.
    """
    name = path.rpartition("/")[2]
    if not is_shown(name) or name.endswith(_ENDINGS):
        return is_shown(name)
    if Path(name).suffix in _UNTOLD:
        raise SourceError(
            f"the source's file {path!r} may be Parquet or not; let its name end in .parquet, or begin with _ or ."
        )
    return False


def _local_mark(status: os.stat_result) -> str:
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_dev} {status.st_ino}"


def _remote_files(source: str) -> Iterator[tuple[str, str]]:
    store, root = _store_of(source)
    store.invalidate_cache()
    try:
        found = store.find(root, detail=True)
    except FileNotFoundError:
        found = {}
    for path, info in found.items():
        parts = str(path).strip("/").removeprefix(str(root).strip("/")).split("/")
        if all(is_shown(part) for part in parts if part) and _is_data(str(path)):
            yield str(store.unstrip_protocol(path)), _remote_mark(info, str(path))


def _store_of(url: str) -> tuple[Any, str]:
    import fsspec

    try:
        store, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise SettingError(f"the source {url!r} can't be reached: {error}") from error
    return store, str(path)


def _remote_mark(info: Mapping[str, Any], path: str) -> str:
    """What a store says of a file's content, by the names that its driver has for that."""
    said = [str(info[name]) for name in (*_TAGS, *_TIMES) if info.get(name) is not None]
    if not said:
        raise SourceError(f"the store of {path!r} does not say when a file was changed, so it can't be indexed")
    return " ".join([str(info.get("size")), *said])


def _mark_of(path: str) -> str:
    local = local_path(path)
    try:
        if not is_url(local):
            return _local_mark(Path(local).stat())
        store, inside = _store_of(local)
        return _remote_mark(store.info(inside), local)
    except FileNotFoundError as error:
        raise SourceError(f"the source's file {path!r} is missing; mend the table") from error


def _each(function: Any, paths: Iterable[str]) -> list[tuple[str, str]]:
    listed = list(paths)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(zip(listed, pool.map(function, listed), strict=True))


def with_columns(listing: Listing, columns: Iterable[Column]) -> Schema:
    """The columns of a folder's files, then those that its folders' names say."""
    said = set(listing.schema.names)
    return Schema((*(column for column in columns if column.name not in said), *listing.schema.columns)).writable()


# ----------------------------------------------------------------------------------------------------
# What tells that a file of a source is as it was when it was measured.


def state_of(listing: Listing) -> str:
    """A digest that is another one once a source has other files, columns or rows.

    Args:
        listing: the source as it is.
    """
    digest = hashlib.sha256(repr(listing.schema).encode())
    for one in listing.files:
        deleted = b"" if one.file.deleted is None else one.file.deleted.tobytes()
        said = json.dumps([one.file.path, one.mark, one.file.stored, sorted(map(str, one.file.constants.items()))])
        digest.update(hashlib.sha256(said.encode() + deleted).digest())
    return digest.hexdigest()


def mark_of(one: Listed, schema: Schema, names: Sequence[str]) -> str:
    """A digest that is another one once a file holds anything else, or holds some columns under other names.

    Args:
        one: the file.
        schema: the source's columns, by whose order the file's names go.
        names: the columns.
    """
    stored = dict(zip(schema.names, one.file.stored, strict=False))
    held = [[name, stored.get(name), str(one.file.constants.get(name, ""))] for name in sorted(names)]
    said = json.dumps([one.file.path, one.mark, held], ensure_ascii=True)
    return hashlib.sha256(said.encode()).hexdigest()
