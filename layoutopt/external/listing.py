"""List the current files of a source: all of a folder of Parquet, or those of the newest version of a table.

Every file has a *version*, which changes with its content: the size and times in the store's listing, and the ETag or
inode. Programs can't set the change time (ctime) of a local file, so a rewrite that preserves size and modification
time is detected too.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from decimal import InvalidOperation
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from layoutopt.catalog.storage.filesystem import absolute, is_url, protocol_of
from layoutopt.catalog.storage.footers import MAGIC
from layoutopt.catalog.storage.store_errors import call_store
from layoutopt.errors import SettingError, SourceError
from layoutopt.evaluation.arrow_types import any_arrow_type
from layoutopt.external.external_tables import check_is_no_table, open_snapshot
from layoutopt.external.formats import check_has_row_groups, parse_table_name
from layoutopt.external.snapshot import SnapshotFile
from layoutopt.model.schema import Column, Schema
from layoutopt.sql.schema import check_folders, folder_columns, is_listed

# Stands for the names of a file's columns if they are those in its footer.
UNNAMED: Final[tuple[str | None, ...]] = ()

_REQUESTS_AT_ONCE: Final = 16
_PARQUET_SUFFIXES: Final = (".parquet", ".parq", ".pq")
# Suffixes that some writers give both Parquet and other files.
_AMBIGUOUS_SUFFIXES: Final = ("", ".snappy", ".gz", ".zstd", ".lz4", ".lzo", ".brotli")
# Names of modification times and of entity tags in the listings of stores.
_TIMES: Final = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
_TAGS: Final = ("ETag", "etag", "md5Hash", "generation", "version_id", "checksum")


@dataclass(frozen=True, eq=False)
class ListedFile:
    """A file of the source; ``mark`` is its version, which begins with its size in bytes."""

    file: SnapshotFile
    mark: str


@dataclass(frozen=True, eq=False)
class Listing:
    """The current files of a source: a folder of Parquet, or a table of another format.

    The schema of a folder has only the columns in folder names, since other columns are in the files' footers.
    """

    name: str
    files: tuple[ListedFile, ...]
    schema: Schema
    is_folder: bool


def canonical_name(source: str, *, versions: bool = False) -> str:
    """Return a source's name that is valid in every working folder.

    Args:
        source: as users name it.
        versions: whether the name may have a version, as for a query; indexes follow the newest.

    Raises:
        SettingError: the name is empty, or has a version, or layoutopt knows no row groups of the format.
    """
    check_has_row_groups(source, "query" if versions else "index")
    if not source.strip():
        raise SettingError(f"the source is {source!r}, expected a path or a table; name a file, folder or table")
    name = parse_table_name(source)
    if name is None:
        return source.rstrip("/") if protocol_of(source) != "file" else absolute(local_path(source))
    if name.version is not None and not versions:
        raise SettingError(f"{source!r} names a version, but indexes follow the newest; remove @{name.version}")
    is_path = not name.format.in_catalogs or name.place.startswith((".", "/", "~"))
    return replace(name, place=absolute(name.place)).text if is_path and not is_url(name.place) else name.text


def list_source(source: str) -> Listing:
    """List the current files of a source.

    Raises:
        SourceError: it does not exist, can't be read, or needs an unsupported feature.
        SchemaError: a column's type can't be stored.
        SettingError: the format's library is not installed, or the store can't be reached.
    """
    name = parse_table_name(source)
    if name is None:
        check_is_no_table(source)
        return _list_folder(source)
    snapshot = open_snapshot(name)
    for column, stored in zip(snapshot.schema.columns, snapshot.stored_types, strict=True):
        if column.type != stored:
            raise SourceError(
                f"the column {column.name!r} of {source!r} has fields with other names in its files, which is not "
                "supported; load the table, or rewrite it without renamed fields"
            )
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
        versions = pool.map(_read_version, [file.path for file in snapshot.files])
        files = tuple(map(ListedFile, snapshot.files, versions))
    return Listing(source, files, snapshot.schema, False)


def local_path(path: str) -> str:
    """Return a path or URL as other libraries open it: a local one as a path.

    >>> local_path("file:///data/a.parquet"), local_path("s3://bucket/a.parquet")
    ('/data/a.parquet', 's3://bucket/a.parquet')
    """
    return "/" + path.split(":", 1)[1].lstrip("/") if path.startswith("file:") else path


def _list_folder(source: str) -> Listing:
    listed = sorted(_list_local(Path(source)) if protocol_of(source) == "file" else _list_remote(source))
    if not listed:
        raise SourceError(f"{source!r} has no .parquet file; name a folder of Parquet, or a table")
    values = check_folders([relative for _, relative, _ in listed])
    columns = folder_columns(values)
    names = {column.name for column in columns}
    files = tuple(
        ListedFile(SnapshotFile(path, UNNAMED, {n: v for n, v in by_name.items() if n in names}), version)
        for (path, _, version), by_name in zip(listed, values, strict=True)
    )
    return Listing(source, files, Schema(columns), True)


def _list_local(root: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the path of each file, its path in the folder, and its version."""
    if root.is_file():
        yield str(root), root.name, _local_version(root.stat())
        return
    if not root.is_dir():
        raise SourceError(f"there is nothing at {str(root)!r}; name a folder of Parquet, or a table")
    parents_by_folder: dict[str, frozenset[tuple[int, int]]] = {}
    for folder, subfolders, names in os.walk(root, onerror=_raise_unlisted, followlinks=True):
        status = Path(folder).stat()
        parents = parents_by_folder.pop(str(Path(folder)), frozenset())
        if (status.st_dev, status.st_ino) in parents:  # a link to a parent folder
            subfolders.clear()
            continue
        subfolders[:] = [name for name in subfolders if is_listed(name)]
        parents |= {(status.st_dev, status.st_ino)}
        parents_by_folder |= {str(Path(folder, name)): parents for name in subfolders}
        for name in names:
            path = Path(folder, name)
            try:
                if _is_local_data(path):
                    yield str(path), path.relative_to(root).as_posix(), _local_version(path.stat())
            except FileNotFoundError:
                continue  # removed since it was listed


def _raise_unlisted(error: OSError) -> None:
    raise SourceError(
        f"the source's folder {str(error.filename)!r} can't be listed ({error.strerror}); check its permissions"
    ) from error


def _is_local_data(path: Path) -> bool:
    """Return whether a local file is Parquet, by its name, or by its first bytes where its name is ambiguous."""
    if is_listed(path.name) and not path.name.lower().endswith(_PARQUET_SUFFIXES):
        with path.open("rb") as content:
            if content.read(len(MAGIC)) == MAGIC:
                return True
    return _is_data(str(path))


def _is_data(path: str) -> bool:
    """Return whether a file is Parquet, by its name; raise SourceError if that is ambiguous."""
    name = path.rpartition("/")[2]
    if not is_listed(name) or name.lower().endswith(_PARQUET_SUFFIXES):
        return is_listed(name)
    if Path(name).suffix in _AMBIGUOUS_SUFFIXES:
        raise SourceError(
            f"can't tell whether the source's file {path!r} is Parquet; let its name end in .parquet, or begin with _ "
            "or ."
        )
    return False


def _local_version(status: os.stat_result) -> str:
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_dev} {status.st_ino}"


def _list_remote(source: str) -> Iterator[tuple[str, str, str]]:
    """Yield the URL of each file, its path in the folder, and its version."""
    store, root = _open_store(source)
    store.invalidate_cache()
    try:
        infos = call_store(lambda: store.find(root, detail=True), lambda: source)
    except FileNotFoundError:
        infos = {}
    for path, info in infos.items():
        relative = str(path).strip("/").removeprefix(str(root).strip("/")).strip("/")
        if all(map(is_listed, filter(None, relative.split("/")))) and _is_data(str(path)):
            yield str(store.unstrip_protocol(path)), relative, _remote_version(info, str(path))


def _open_store(url: str) -> tuple[Any, str]:
    import fsspec

    try:
        store, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise SettingError(f"the source {url!r} can't be reached: {error}") from error
    return store, str(path)


def _remote_version(info: Mapping[str, Any], path: str) -> str:
    values = [str(info[name]) for name in (*_TAGS, *_TIMES) if info.get(name) is not None]
    if not values:
        raise SourceError(f"the store of {path!r} reports no ETag or modification time, so it can't be indexed")
    return " ".join([str(info.get("size")), *values])


def _read_version(path: str) -> str:
    local = local_path(path)
    try:
        if not is_url(local):
            return _local_version(Path(local).stat())
        store, store_path = _open_store(local)
        return _remote_version(call_store(lambda: store.info(store_path), lambda: local), local)
    except FileNotFoundError as error:
        raise SourceError(f"the source's file {path!r} is missing; repair the table") from error


def add_folder_columns(listing: Listing, columns: Iterable[Column]) -> Schema:
    """Return the columns of a folder's files, followed by those in folder names."""
    names = set(listing.schema.names)
    return Schema((*(column for column in columns if column.name not in names), *listing.schema.columns)).writable()


def digest_listing(listing: Listing) -> str:
    """Return a digest of a source's files, columns and deleted rows."""
    digest = hashlib.sha256(repr(listing.schema).encode())
    for listed in listing.files:
        file = listed.file
        deleted = b"" if file.deleted is None else file.deleted.tobytes()
        text = json.dumps([file.path, listed.mark, file.stored, sorted(map(str, file.constants.items()))])
        digest.update(hashlib.sha256(text.encode() + deleted).digest())
    return digest.hexdigest()


def digest_file(listed: ListedFile, schema: Schema, names: Sequence[str]) -> str:
    """Return a digest of a file's version and the names under which it holds some columns of the source."""
    stored = dict(zip(schema.names, listed.file.stored, strict=False))
    columns = [[name, stored.get(name), str(listed.file.constants.get(name, ""))] for name in sorted(names)]
    text = json.dumps([listed.file.path, listed.mark, columns], ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def to_arrow_constant(value: object, column: Column) -> pa.Scalar:
    """Convert a value (text, Python value or None) from a folder name or table metadata to its column's Arrow type.

    Raises:
        SourceError: it is not a value of the type, or the type's texts depend on a time zone.
    """
    type = any_arrow_type(column.type)
    if value is None:
        return pa.scalar(None, type)
    text = str(value).lower() if column.type == "boolean" else str(value)
    try:
        if column.type in ("timestamp", "binary"):
            raise ValueError("values of this type are not supported there")
        return pa.scalar(text, pa.string()).cast(type)
    except (pa.ArrowException, ValueError, InvalidOperation) as error:
        raise SourceError(
            f"invalid value {text[:80]!r} of column {column.name!r} in a folder name or table metadata: expected "
            f"{column.type} ({error}); store the column in the files"
        ) from error
