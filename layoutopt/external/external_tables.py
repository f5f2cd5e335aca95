"""Open sources that are tables of other formats; a format's library is imported only when needed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from layoutopt.catalog.storage.filesystem import TableFiles, absolute, is_url
from layoutopt.catalog.storage.ranges import LastUsed
from layoutopt.catalog.table_root import is_own_table
from layoutopt.errors import SourceError
from layoutopt.external.formats import PARQUET, SourceName, parse_path, parse_table_name
from layoutopt.external.snapshot import SourceSnapshot
from layoutopt.model.schema import Schema
from layoutopt.sql.schema import is_ddl, schema_from

if TYPE_CHECKING:
    from pyiceberg.table import Table

_REQUESTS_AT_ONCE: Final = 16


def check_is_no_table(source: str) -> None:
    """Refuse a path of files inside a table, also one of layoutopt: deleted rows would be read, and copies twice.

    Folders that this process can't reach pass, such as a store for which only Spark has credentials.

    Args:
        source: the source as users name it; a table's name passes.

    Raises:
        SourceError: the path, or a folder above it, is such a table; says how to name it.
    """
    if parse_table_name(source) is not None:
        return
    path = parse_path(source).path
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
        problem = next(filter(None, pool.map(_detect_table, _parent_folders(path))), None)
    if problem is not None:
        raise SourceError(problem)


def _parent_folders(path: str) -> Iterator[str]:
    """Yield a path or URL, then each of its parent folders."""
    if not is_url(path):
        local = Path(absolute(path)).resolve()
        yield from map(str, (local, *local.parents))
        return
    scheme, _, inside = path.rstrip("/").rpartition("://")
    while inside:
        yield f"{scheme}://{inside}"
        inside = inside.rpartition("/")[0]


def _detect_table(folder: str) -> str | None:
    """Return the problem if a folder is a table; None for plain Parquet."""
    with suppress(Exception):  # store libraries raise arbitrary exceptions
        if is_own_table(TableFiles(folder)):
            return (
                f"{folder!r} is a layoutopt table, whose files also hold deleted and copied rows; query it by this "
                "path (in Python by open_table), or publish it and write delta: or iceberg:"
            )
        if TableFiles(f"{folder}/_delta_log").exists(""):
            return f"{folder!r} is a Delta table, whose files also hold deleted rows; write delta:{folder}"
        if TableFiles(f"{folder}/.hoodie").exists(""):
            return f"{folder!r} is a Hudi table, which is not supported; export it to Parquet first"
        if any(name.endswith(".metadata.json") for name in TableFiles(f"{folder}/metadata").list("")):
            return (
                f"{folder!r} is an Iceberg table, whose files also hold deleted rows; write "
                "iceberg:CATALOG/NAMESPACE.TABLE"
            )
    return None


_CACHE: LastUsed[SourceName, SourceSnapshot] = LastUsed(4)


def open_snapshot(name: SourceName) -> SourceSnapshot:
    """Return a table at the named version, or at the newest, which is then in the result's name.

    The last few snapshots are cached: a version never changes, and a load opens the same one many times.

    Raises:
        SourceError: it does not exist, can't be read, or needs an unsupported feature.
        SchemaError: a column's type can't be stored.
        SettingError: the format's library is not installed.
    """
    snapshot = None if name.version is None else _CACHE.get(name)
    if snapshot is not None:
        return snapshot
    snapshot = name.format.read_snapshot(name.place, name.version)
    versioned_name = parse_table_name(snapshot.name)
    assert versioned_name is not None
    _CACHE.put(versioned_name, snapshot, 1)
    return snapshot


def read_schema(source: str, table: str | None = None) -> Schema:
    """Return the columns of a source by its table's metadata, by one of its files, or by DDL of the named table."""
    name = parse_table_name(source)
    if name is not None:
        return open_snapshot(name).schema.writable()
    if not is_ddl(source):
        check_is_no_table(source)
    files = parse_path(source)
    if files.format is PARQUET:  # or DDL
        return schema_from(files.path, table=table)
    return files.format.read_schema(files.path)


def open_iceberg_source(source: str) -> Table | None:
    """Open an Iceberg table, whose files never change under one metadata file; None for other sources."""
    name = parse_table_name(source)
    return None if name is None or name.format.open_iceberg is None else name.format.open_iceberg(name.place)


def pin_version(source: str) -> str:
    """Return a source's name with its newest version, so that all of a load reads the same; others unchanged."""
    name = parse_table_name(source)
    return source if name is None or name.version is not None else open_snapshot(name).name
