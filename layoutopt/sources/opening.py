"""Opening a source that is a table of another format; the format's library is imported only then."""

from __future__ import annotations

from layoutopt.extensions import require
from layoutopt.sources.snapshot import SourceName, SourceSnapshot, source_name


def open_snapshot(name: SourceName) -> SourceSnapshot:
    """A table at the version that is named, or the newest, which the result's name says.

    Raises:
        SourceError: it does not exist, can't be read, or has what would give wrong rows if it were not understood.
        SchemaError: a column's type can't be stored.
        SettingError: the format's library is not installed.
    """
    if name.format == "delta":
        require("deltalake", "delta")
        from layoutopt.sources.delta import delta_snapshot

        return delta_snapshot(name)
    require("pyiceberg", "iceberg")
    from layoutopt.sources.iceberg import iceberg_snapshot

    return iceberg_snapshot(name)


def pinned(source: str) -> str:
    """A source's name with its newest version, so that all of a load reads the same; other sources as they are.

    Raises:
        LayoutoptError: as :func:`open_snapshot`.
    """
    name = source_name(source)
    return source if name is None or name.version is not None else open_snapshot(name).name
