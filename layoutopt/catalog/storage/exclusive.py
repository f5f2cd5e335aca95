"""Exclusive creation of whole files: on disks, on HDFS and in object stores."""

from __future__ import annotations

import errno
import inspect
import os
import time
import uuid
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

from layoutopt.catalog.storage.store_errors import find_status
from layoutopt.errors import CatalogError

# How the names of unfinished files begin.
TEMPORARY = ".tmp-"

_MOST_RACES = 6
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


def create_local(target: Path, data: bytes) -> None:
    """Create a file on a local disk: write it beside its target, sync it, and link it to its name if that is free."""
    _make_folders(target.parent)
    for attempt in range(_MOST_RACES):
        temporary = target.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            _link(temporary, target)
            _sync_folder(target.parent)
        except OSError as error:
            # A vacuum with a short --older-than may take it for a crashed writer's file.
            if isinstance(error, FileNotFoundError) and target.parent.is_dir() and attempt < _MOST_RACES - 1:
                continue
            if error.filename in (None, str(temporary)):  # name the target instead
                error.filename = str(target)
            raise
        else:
            return
        finally:
            with suppress(OSError):  # on a read-only mount even a file that is not there can't be removed
                temporary.unlink()


def _link(temporary: Path, target: Path) -> None:
    try:
        os.link(temporary, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        raise CatalogError(
            f"the disk of {str(target)!r} has no hard links ({error.strerror}), so no file can be created "
            "exclusively there; put the table on another disk"
        ) from error


def replace_local(target: Path, data: bytes) -> None:
    """Replace a file on a local disk: write it beside its target, and rename it."""
    _make_folders(target.parent)
    temporary = target.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
    try:
        temporary.write_bytes(data)
        temporary.replace(target)
    finally:
        with suppress(OSError):
            temporary.unlink()


def _make_folders(folder: Path) -> None:
    """Create a folder and its parents, and sync each new one's parent."""
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


def create_by_rename(filesystem: Any, full: str, data: bytes) -> None:
    """Create a file on HDFS, which refuses to rename onto a file."""
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


def create_conditionally(filesystem: Any, full: str, data: bytes) -> None:
    """Create a file in an object store by a conditional put; raise CatalogError where driver or store have none."""
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
        except FileExistsError:
            raise
        except (NotImplementedError, OSError) as error:
            # Drivers report "it exists", "a concurrent write" and "not implemented" by different errors.
            status = find_status(error)
            if isinstance(error, NotImplementedError) or status == HTTPStatus.NOT_IMPLEMENTED:
                raise CatalogError(
                    f"the store of {full!r} can't create a file exclusively ({error}); use another store for tables"
                ) from error
            if status == HTTPStatus.PRECONDITION_FAILED:
                raise FileExistsError(full) from error
            if status != HTTPStatus.CONFLICT or attempt == _MOST_RACES - 1:
                raise
            time.sleep(0.05 * 2**attempt)
