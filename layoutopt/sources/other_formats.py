"""Paths that lie in a table of another format, whose files also hold rows that no longer count."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.storage.local_store import absolute, is_url
from layoutopt.errors import SourceError
from layoutopt.sources.snapshot import source_name

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
