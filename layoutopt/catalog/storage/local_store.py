"""The local disk as a store, with those of fsspec's methods that tables need.

fsspec has such a store too, but importing it brings the event loop and the network's protocols along, which takes a
good part of the time in which a short command should be done.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_CHAIN = re.compile("::|://")
_CODE = re.compile("%[0-9A-Fa-f]{2}")


def is_url(root: str) -> bool:
    """Whether a table's root is a URL or a chain of them, not the path of a local folder.

    >>> is_url("s3://bucket/events"), is_url("file:///tables/events"), is_url("tables/events")
    (True, True, False)
    """
    return _CHAIN.search(root) is not None


def protocol_of(root: str) -> str:
    """What fsspec calls the outermost store of a table's root.

    >>> protocol_of("simplecache::s3://bucket/events"), protocol_of("tables/events")
    ('simplecache', 'file')
    """
    return _CHAIN.split(root, maxsplit=1)[0] if is_url(root) else "file"


def absolute(path: str) -> str:
    """A local path from the root of the disk; ``~`` is the home folder; ``..`` stays, as links may precede it.

    >>> absolute("/tables/../events"), absolute("file:/events")  # as Java writes paths of this machine
    ('/tables/../events', '/events')
    """
    path = path[len("file:") :] if path.startswith("file:/") else path
    try:
        return str(Path(path).expanduser().absolute())
    except RuntimeError:  # nobody of that name has a home
        return str(Path(path).absolute())


def has_codes(path: str) -> bool:
    """Whether a local path has what stands for another character in URLs, so that libraries may look elsewhere.

    >>> has_codes("/tables/5%20b"), has_codes("/tables/5%"), has_codes("s3://bucket/5%20b")
    (True, False, False)
    """
    return not is_url(path) and _CODE.search(absolute(path)) is not None


class LocalStore:
    """Files by their whole paths, named and behaving as in an ``fsspec`` filesystem."""

    def invalidate_cache(self) -> None:
        """Nothing is cached."""

    def cat_file(self, path: str) -> bytes:
        """A file's content."""
        return Path(path).read_bytes()

    def size(self, path: str) -> int:
        """A file's size in bytes."""
        return Path(path).stat().st_size

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        return Path(path).exists()

    def isfile(self, path: str) -> bool:
        """Whether there is a file."""
        return Path(path).is_file()

    def ls(self, path: str, detail: bool = False) -> list[str]:
        """The paths in a folder, in no order."""
        assert not detail
        return [str(each) for each in Path(path).iterdir()]

    def info(self, path: str) -> dict[str, Any]:
        """When a file was changed, in seconds since 1970."""
        return {"mtime": Path(path).stat().st_mtime}

    def rm_file(self, path: str) -> None:
        """Remove a file."""
        Path(path).unlink()
