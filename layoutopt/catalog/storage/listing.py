"""Files as a store lists them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class StoredFile:
    """A file as a listing has it; ``modified`` is in seconds since 1970 by the store's clock, None where unknown."""

    path: str
    size: int
    modified: float | None


def walk_local(root: Path, path: str) -> Iterator[StoredFile]:
    """Every file below a folder of a local root."""
    for folder, _, names in os.walk(root / path):
        for name in names:
            file = Path(folder, name)
            with suppress(FileNotFoundError):  # removed since
                status = file.lstat()
                yield StoredFile(file.relative_to(root).as_posix(), status.st_size, status.st_mtime)


def modified_of(info: Mapping[str, Any]) -> float | None:
    """A file's time of change in a store's listing: every driver has a name of its own for it."""
    for name in ("mtime", "LastModified", "last_modified", "updated", "modified", "created"):
        value = info.get(name)
        if isinstance(value, int | float):
            return float(value)
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    return None
