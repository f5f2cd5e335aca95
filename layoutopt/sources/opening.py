"""Opening a source that is a table of another format; the format's library is imported only then."""

from __future__ import annotations

from typing import Final

from layoutopt.catalog.storage.kept import LastUsed
from layoutopt.extensions import require
from layoutopt.model.schema import Schema
from layoutopt.sources.other_formats import check_is_no_table
from layoutopt.sources.snapshot import SourceName, SourceSnapshot, source_name
from layoutopt.sql.schema import is_ddl, schema_from

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
