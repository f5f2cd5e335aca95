"""The files of a table's folder: local paths and any fsspec URL (``s3://``, ``gs://``, ``hdfs://``, ``memory://``).

The catalog reads and writes through here alone. Loads write data files through fsspec itself, and remove them so where
they fail; datasets for other engines read them so.

Paths are relative to the table's root, ``/``-separated; those that would leave it are refused.

The one thing a commit needs from a store is **put-if-absent**: of two writers of one path, one succeeds, the other gets
FileExistsError, and no reader ever sees half a file. How, by store:

- local: the content is written beside its target, synced, and given its name by a hard link, which fails where the
  name is taken;
- object stores: fsspec's ``mode="create"``, which s3fs and gcsfs send as a conditional put;
- hdfs: a temporary file renamed, since HDFS refuses to rename onto a file.
"""

from __future__ import annotations

import errno
import inspect
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pyarrow as pa

from layoutopt.catalog.fields import is_safe_path
from layoutopt.catalog.storage.footers import DecodedFooters
from layoutopt.catalog.storage.local_store import LocalStore, absolute, is_url, protocol_of
from layoutopt.errors import CatalogError, SettingError

TEMPORARY = ".tmp-"

_MOST_RACES = 6
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


@dataclass(frozen=True)
class StoredFile:
    """A file as a listing has it; ``modified`` is in seconds since 1970 by the store's clock, None where unknown."""

    path: str
    size: int
    modified: float | None


@dataclass(frozen=True)
class TableFiles:
    """The files under one table's root: a local path or a URL."""

    root: str

    @cached_property
    def _store(self) -> tuple[Any, str]:
        """The fsspec filesystem, or what stands for the local one, and the root's path in it."""
        if not is_url(self.root):
            return LocalStore(), absolute(self.root)
        import fsspec

        try:
            filesystem, path = fsspec.core.url_to_fs(self.root)
        except (ImportError, ValueError) as error:
            raise SettingError(f"the table path {self.root!r} can't be reached: {error}") from error
        return filesystem, path.rstrip("/") or "/"

    @cached_property
    def local_root(self) -> Path | None:
        """The root as a local path, None where it lies elsewhere."""
        return Path(self._store[1]) if protocol_of(self.root) in ("file", "local") else None

    @cached_property
    def footers(self) -> DecodedFooters:
        """The data files' footers that were read by now, for who reads the same files many times."""
        return DecodedFooters()

    def _full(self, path: str) -> str:
        if path and not is_safe_path(path):
            raise CatalogError(
                f"the path {path!r} leads out of the table {self.root!r}; restore the catalog from a copy"
            )
        return f"{self._store[1].rstrip('/')}/{path}" if path else self._store[1]

    def full_path(self, path: str) -> str:
        """The path or URL that other libraries open (with its scheme, but for local files).

        Raises:
            CatalogError: the path leaves the table.
        """
        full = self._full(path)
        return full if self.local_root is not None else str(self._store[0].unstrip_protocol(full))

    def read_bytes(self, path: str) -> bytes:
        """A file's content.

        Raises:
            FileNotFoundError: there is no such file.
        """
        return bytes(self._store[0].cat_file(self._full(path)))

    def open_input(self, path: str) -> pa.NativeFile:
        """A file for pyarrow to read at random places.

        Raises:
            FileNotFoundError: there is no such file.
        """
        full = self._full(path)
        if self.local_root is not None:
            return pa.OSFile(full)
        return pa.PythonFile(self._store[0].open(full, "rb"), mode="r")

    def size(self, path: str) -> int:
        """A file's size in bytes.

        Raises:
            FileNotFoundError: there is no such file.
        """
        return int(self._store[0].size(self._full(path)))

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder of that path ("" is the root)."""
        self._store[0].invalidate_cache()
        return bool(self._store[0].exists(self._full(path)))

    def is_file(self, path: str) -> bool:
        """Whether the path is a file."""
        self._store[0].invalidate_cache()
        return bool(self._store[0].isfile(self._full(path)))

    def list(self, path: str) -> tuple[str, ...]:
        """The names in a folder, sorted, without temporary files; empty where there is no such folder."""
        self._store[0].invalidate_cache()
        try:
            found = self._store[0].ls(self._full(path), detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return ()
        names = {str(name).rstrip("/").rsplit("/", 1)[-1] for name in found}
        return tuple(sorted(name for name in names if not name.startswith(TEMPORARY)))

    def walk(self, path: str) -> Iterator[StoredFile]:
        """Every file below a folder, unfinished ones too, in no order; links are not followed."""
        if self.local_root is not None:
            yield from _walk_local(self.local_root, path)
            return
        self._store[0].invalidate_cache()
        root = self._store[1].strip("/")
        for name, info in self._store[0].find(self._full(path), detail=True).items():
            yield StoredFile(str(name).strip("/").removeprefix(f"{root}/"), int(info["size"] or 0), _modified(info))

    def now(self, folder: str) -> float:
        """The time by the store's own clock, which tells when files were changed, in seconds since 1970.

        A file is made in ``folder`` for that, and removed.

        Raises:
            OSError: the store can't be written to.
            CatalogError: it does not say when files were changed.
        """
        name = f"{folder}/{TEMPORARY}{uuid.uuid4().hex}"
        self.write_new(name, b"now")
        try:
            changed = _modified(self._store[0].info(self._full(name)))
        finally:
            self.delete(name)
        if changed is None:
            raise CatalogError(f"the store of {self.root!r} does not say when a file was changed; remove files by hand")
        return changed

    def delete_empty_folders(self, path: str) -> None:
        """Remove a folder with its folders where no file is left in it; object stores have no folders."""
        if self.local_root is None:
            return
        for folder, _, _ in os.walk(self._full(path), topdown=False):
            with suppress(OSError):  # not empty, or gone
                Path(folder).rmdir()

    def delete(self, path: str) -> None:
        """Remove a file; nothing happens where there is none."""
        with suppress(FileNotFoundError):
            self._store[0].rm_file(self._full(path))

    def write_new(self, path: str, data: bytes) -> None:
        """Create a file with this content, whole and durable, or not at all (put-if-absent).

        Raises:
            FileExistsError: the path is taken; its content is as it was.
            CatalogError: the path leaves the table, or the store has no way to create exclusively.
            OSError: the store failed. Whether the file is there is then unknown: look.
        """
        full = self._full(path)
        if self.local_root is not None:
            _create_local(Path(full), data)
        elif protocol_of(self.root) in ("hdfs", "viewfs"):
            _create_by_rename(self._store[0], full, data)
        else:
            _create_conditionally(self._store[0], full, data)


def _walk_local(root: Path, path: str) -> Iterator[StoredFile]:
    for folder, _, names in os.walk(root / path):
        for name in names:
            file = Path(folder, name)
            with suppress(FileNotFoundError):  # removed since
                status = file.lstat()
                yield StoredFile(file.relative_to(root).as_posix(), status.st_size, status.st_mtime)


def _modified(info: Mapping[str, Any]) -> float | None:
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


def _create_local(target: Path, data: bytes) -> None:
    _make_folders(target.parent)
    temporary = target.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            raise CatalogError(
                f"the disk of {str(target)!r} has no hard links ({error.strerror}), so no file can be created "
                "exclusively there; put the table on another"
            ) from error
        _sync_folder(target.parent)
    except OSError as error:
        if error.filename == str(temporary):
            error.filename = str(target)  # nobody knows the other
        raise
    finally:
        with suppress(OSError):  # on a read-only mount even a file that is not there can't be removed
            temporary.unlink()


def _make_folders(folder: Path) -> None:
    """Create a folder and its parents, each made durable in the folder that holds it."""
    if folder.is_dir():
        return
    _make_folders(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _create_by_rename(filesystem: Any, full: str, data: bytes) -> None:
    folder, _ = full.rsplit("/", 1)
    filesystem.makedirs(folder, exist_ok=True)
    temporary = f"{folder}/{TEMPORARY}{uuid.uuid4().hex}"
    try:
        filesystem.pipe_file(temporary, data)
        if filesystem.exists(full):
            raise FileExistsError(full)
        try:
            filesystem.mv(temporary, full)
        except OSError as error:
            if filesystem.exists(full):
                raise FileExistsError(full) from error
            raise
    finally:
        if filesystem.exists(temporary):
            filesystem.rm_file(temporary)


def _create_conditionally(filesystem: Any, full: str, data: bytes) -> None:
    # A driver that does not know "mode" may swallow it and overwrite: two commits would both succeed.
    writer = getattr(filesystem, "_pipe_file", filesystem.pipe_file)
    if "mode" not in inspect.signature(writer).parameters:
        raise CatalogError(
            f"the driver {type(filesystem).__name__} of {full!r} can't create a file exclusively; install a newer one"
        )
    for attempt in range(_MOST_RACES):
        try:
            filesystem.pipe_file(full, data, mode="create")
            return
        except NotImplementedError as error:
            raise CatalogError(
                f"the store of {full!r} can't create a file exclusively ({error}); use another store for tables"
            ) from error
        except FileExistsError:
            raise
        except OSError as error:
            # What drivers make of the answers "there is one" and "somebody writes it just now" differs by store.
            status = _http_status(error)
            if status == HTTPStatus.PRECONDITION_FAILED:
                raise FileExistsError(full) from error
            if status != HTTPStatus.CONFLICT or attempt == _MOST_RACES - 1:
                raise
            time.sleep(0.05 * 2**attempt)


def _http_status(error: OSError) -> int | None:
    """The answer of an object store that an error was made of, by boto's convention."""
    response = getattr(error.__cause__, "response", None)
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode") if isinstance(response, dict) else None
    return status if isinstance(status, int) else None
