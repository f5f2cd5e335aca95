"""An object store in memory that notes every request, and tables that lie in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

REQUESTS: list[tuple[str, int | None, int | None]] = []
"""Every reading of a file since the list was cleared: its path, the first byte, and the one after the last."""


class NotingStore(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A store of its own whose readings are noted."""

    protocol = "noting"
    store: dict[str, Any] = {}  # noqa: RUF012 - as fsspec has it
    pseudo_dirs = [""]  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(MemoryFileSystem._strip_protocol(path.removeprefix("noting://")))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> Any:
        REQUESTS.append((path, start, end))
        return super().cat_file(path, start, end, **options)


@pytest.fixture
def noting_store() -> Iterator[None]:
    """The store, known to fsspec as ``noting://`` while a test runs."""
    fsspec.register_implementation("noting", NotingStore, clobber=True)
    REQUESTS.clear()
    try:
        yield
    finally:
        NotingStore.store.clear()
        NotingStore.pseudo_dirs[:] = [""]


def put(folder: Path, url: str) -> str:
    """Copy a folder into the store; gives the URL."""
    filesystem, root = fsspec.core.url_to_fs(url)
    for file in folder.rglob("*"):
        if file.is_file():
            filesystem.pipe_file(f"{root}/{file.relative_to(folder).as_posix()}", file.read_bytes())
    REQUESTS.clear()
    return url
