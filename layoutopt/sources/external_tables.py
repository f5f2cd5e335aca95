"""Opening a source that is a table of another format; the format's library is imported only then."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from layoutopt.catalog.storage.filesystem import TableFiles, absolute, is_url
from layoutopt.catalog.storage.ranges import LastUsed
from layoutopt.errors import SourceError
from layoutopt.extensions import require
from layoutopt.model.schema import Schema
from layoutopt.sources.snapshot import SourceName, SourceSnapshot, source_name
from layoutopt.sql.schema import is_ddl, schema_from

# ----------------------------------------------------------------------------------------------------
# Paths that lie in a table of another format, whose files also hold rows that no longer count.

_REQUESTS_AT_ONCE: Final = 16


def check_is_no_table(source: str) -> None:
    """Refuse a path of Parquet in a table of another format: Spark would read rows that were deleted or overwritten.

    Folders that this process can't reach pass, as of a store for which only Spark has credentials.

    Args:
        source: as users name it; a table's name passes.

    Raises:
        SourceError: the path, or a folder above it, is such a table; names the prefix to use.
    """
    if source_name(source) is not None:
        return
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
        problem = next(filter(None, pool.map(_problem_of, _folders_above(source))), None)
    if problem is not None:
        raise SourceError(problem)


def _folders_above(path: str) -> Iterator[str]:
    """A path or URL, then each folder around it."""
    if not is_url(path):
        local = Path(absolute(path)).resolve()
        yield from map(str, (local, *local.parents))
        return
    scheme, _, inside = path.rstrip("/").rpartition("://")
    while inside:
        yield f"{scheme}://{inside}"
        inside = inside.rpartition("/")[0]


def _problem_of(folder: str) -> str | None:
    """Why a folder's files are not all that counts; None for plain Parquet."""
    with suppress(Exception):  # whatever a store's library raises
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


_MOST_KEPT: Final = 4
_LAST: LastUsed[SourceName, SourceSnapshot] = LastUsed(_MOST_KEPT)


def open_snapshot(name: SourceName) -> SourceSnapshot:
    """A table at the version that is named, or the newest, which the result's name says.

    The last few are remembered: a version never changes, and a load asks for the same one many times.

    Raises:
        SourceError: it does not exist, can't be read, or has what would give wrong rows if it were not understood.
        SchemaError: a column's type can't be stored.
        SettingError: the format's library is not installed.
    """
    found = None if name.version is None else _LAST.get(name)
    if found is None:
        found = _opened(name)
        at_version = source_name(found.name)
        assert at_version is not None
        _LAST.put(at_version, found, 1)
    return found


def read_schema(source: str) -> Schema:
    """Return the columns of a source by the metadata of its table or one of its files, or those of DDL.

    Raises:
        LayoutoptError: as :func:`open_snapshot`, :func:`check_is_no_table` and
            :func:`layoutopt.sql.schema.schema_from`.
    """
    name = source_name(source)
    if name is not None:
        return open_snapshot(name).schema.writable()
    if not is_ddl(source):
        check_is_no_table(source)
    return schema_from(source)


def pinned(source: str) -> str:
    """A source's name with its newest version, so that all of a load reads the same; other sources as they are.

    Raises:
        LayoutoptError: as :func:`open_snapshot`.
    """
    name = source_name(source)
    return source if name is None or name.version is not None else open_snapshot(name).name


def _opened(name: SourceName) -> SourceSnapshot:
    if name.format == "delta":
        require("deltalake", "delta")
        from layoutopt.sources.delta import delta_snapshot

        return delta_snapshot(name)
    require("pyiceberg", "iceberg")
    from layoutopt.sources.iceberg import iceberg_snapshot

    return iceberg_snapshot(name)
