"""The files of a table's folder: local paths and any fsspec URL (``s3://``, ``gs://``, ``hdfs://``, ``memory://``).

The catalog reads and writes through here alone. Loads write data files through fsspec itself, and remove them so where
they fail; datasets for other engines read them so.

Paths are relative to the table's root, ``/``-separated; those that would leave it are refused.

Of an encrypted table the catalog's files are sealed when they are written and opened when they are read, and names that
would tell of values are stored as others, here and nowhere else: everybody above sees contents and names as they are.
Data files are Parquet, encrypted by its own rules; who opens one asks for :meth:`TableFiles.decryption`.

The one thing a commit needs from a store is **put-if-absent**: of two writers of one path, one succeeds, the other gets
FileExistsError, and no reader ever sees half a file. How, by store:

- local: the content is written beside its target, synced, and given its name by a hard link, which fails where the
  name is taken;
- object stores: fsspec's ``mode="create"``, which s3fs and gcsfs send as a conditional put;
- hdfs: a temporary file renamed, since HDFS refuses to rename onto a file.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from layoutopt.catalog.paths import MARKER, hides_values, is_of_catalog, is_safe_path
from layoutopt.catalog.storage.exclusive import (
    TEMPORARY,
    create_by_rename,
    create_conditionally,
    create_local,
    replace_local,
)
from layoutopt.catalog.storage.footers import FIRST_READ, DecodedFooters, Template, footer_by_end, read_footer
from layoutopt.catalog.storage.io_metrics import Traffic
from layoutopt.catalog.storage.ranges import FetchedFile, LastUsed, Range
from layoutopt.errors import CatalogError, EncryptedTableError, SettingError

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from layoutopt.encryption.table_keys import TableKeys


# ----------------------------------------------------------------------------------------------------
# The local disk as a store, with those of fsspec's methods that tables need.
#
# fsspec has such a store too, but importing it brings the event loop and the network's protocols along, which takes a
# good part of the time in which a short command should be done.

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


# ----------------------------------------------------------------------------------------------------
# Files as a store lists them.


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


# ----------------------------------------------------------------------------------------------------
# Files of tables that may be encrypted: contents and names between who asks for them and how they are stored.

_SEEN: Final = "_marker_seen"


class KeyedFiles:
    """What a table's files know of keys; ``root``, ``key`` and ``lent`` are those of ``TableFiles``."""

    root: str
    key: str | None
    lent: tuple[TableKeys, ...] | None

    def read_bytes(self, path: str) -> bytes:
        """A file's content."""
        raise NotImplementedError

    def full_path(self, path: str) -> str:
        """The path or URL of a file."""
        raise NotImplementedError

    def _note_marker(self, data: bytes) -> None:
        """Remember the marker, which never changes: it says whether there are keys."""
        self.__dict__[_SEEN] = data

    def _forget_keys(self) -> None:
        self.__dict__.pop("keys", None)

    @cached_property
    def keys(self) -> TableKeys | None:
        """What opens and seals the table's files; None where it is not encrypted, or not there.

        Raises:
            SettingError, EncryptionKeyError: the key can't be had, or is another one.
            CatalogError: the table's marker is damaged.
        """
        if self.lent is not None:
            return next(iter(self.lent), None)
        try:
            marker = self.__dict__.get(_SEEN) or self.read_bytes(MARKER)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if b"encryption" not in marker:
            return None
        from layoutopt.encryption.table_keys import keys_in_marker  # which takes its time to import

        return keys_in_marker(marker, self.full_path(MARKER), self.key)

    @property
    def is_plain(self) -> bool:
        """Whether engines that know nothing of the table may read its data files as they are."""
        return self.keys is None

    def check_plain(self) -> None:
        """Refuse files that a reader of plain Parquet can't read.

        Raises:
            EncryptedTableError: they are encrypted.
        """
        if self.keys is not None:
            raise EncryptedTableError(
                f"the table {self.root!r} is encrypted, and other engines have no key to its files; read it by "
                "`query`, in Python or in a Spark session that layoutopt enabled"
            )

    def encryption(self, path: str) -> pq.FileEncryptionProperties | None:
        """What pyarrow writes a data file by; None where the table is not encrypted."""
        return None if self.keys is None else self.keys.encryption(self.stored_path(path))

    def decryption(self, path: str) -> pq.FileDecryptionProperties | None:
        """What pyarrow reads a data file by; None where the table is not encrypted."""
        return None if self.keys is None else self.keys.decryption(self.stored_path(path))

    def stored_path(self, path: str) -> str:
        """Where a file is stored: an encrypted table has others for names that tell of values; a stored path stays."""
        start, name, end = hides_values(path)
        return path if not name or self.keys is None else f"{start}{self.keys.name(name)}{end}"

    def _opened(self, path: str, data: bytes) -> bytes:
        """The content of a file as it is stored.

        Raises:
            CatalogError: the table is encrypted, and this is not the file that was written there.
        """
        if not is_of_catalog(path) or self.keys is None:
            return data
        try:
            return self.keys.unseal(self.stored_path(path), data)
        except ValueError as error:
            raise CatalogError(
                f"the catalog file {self.full_path(path)} of an encrypted table can't be opened: {error}; restore it "
                "from a copy or load again"
            ) from error

    def _sealed(self, path: str, content: bytes) -> bytes:
        """A file's content as it is stored."""
        if not is_of_catalog(path) or self.keys is None:
            return content
        return self.keys.seal(self.stored_path(path), content)


READ_THROUGH = 128 << 10
"""Bytes of a gap that are read along rather than asking once more; see docs/decisions/0040."""
_MOST_FIRST_READ = 4 << 20
_MOST_KEPT = 64 << 20

# What never changes is kept for all that open tables in this process: asking a store again takes long.
_FOOTERS = DecodedFooters()
_MOST_TEMPLATES = 100_000  # of files; alike ones share theirs
_CONTENTS: LastUsed[tuple[str, str], bytes] = LastUsed(_MOST_KEPT)


@dataclass(frozen=True)
class TableFiles(KeyedFiles):
    """The files under one table's root: a local path or a URL.

    Attributes:
        root: the path or URL.
        read_through: in an object store, the most bytes between two ranges that are read along to save a request.
        fresh: whether every file is read where it lies, though this process may know its content.
        key: the reader's own reference to the key of an encrypted table, in place of the table's.
        lent: in a task elsewhere: the keys, none where the table is not encrypted; None where they are to be found.
    """

    root: str
    read_through: int = READ_THROUGH
    fresh: bool = False
    key: str | None = None
    lent: tuple[TableKeys, ...] | None = field(default=None, repr=False)

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
        return DecodedFooters() if self.local_root is not None else _FOOTERS

    @cached_property
    def templates(self) -> LastUsed[tuple[str, str], Template]:
        """By path and digest what checked footers begin with, of files of which few chunks are read."""
        return LastUsed(_MOST_TEMPLATES)

    @cached_property
    def traffic(self) -> Traffic:
        """What was asked of the store by now; nothing is counted of a local disk."""
        return Traffic()

    def _asking(self, count: int = 1) -> AbstractContextManager[list[int]]:
        return nullcontext([]) if self.local_root is not None else self.traffic.request(count)

    def _full(self, path: str) -> str:
        if path and not is_safe_path(path):
            raise CatalogError(
                f"the path {path!r} leads out of the table {self.root!r}; restore the catalog from a copy"
            )
        return f"{self._store[1].rstrip('/')}/{self.stored_path(path)}" if path else self._store[1]

    def full_path(self, path: str) -> str:
        """The path or URL that other libraries open (with its scheme, but for local files).

        Raises:
            CatalogError: the path leaves the table.
        """
        full = self._full(path)
        return full if self.local_root is not None else str(self._store[0].unstrip_protocol(full))

    def for_tasks(self) -> TableFiles:
        """What tasks elsewhere, with other folders and variables, read and write the same table by."""
        return TableFiles(self.full_path(""), lent=() if self.keys is None else (self.keys,))

    def read_bytes(self, path: str) -> bytes:
        """A file's content.

        Raises:
            FileNotFoundError: there is no such file.
        """
        full = self._full(path)
        with self._asking() as sizes:
            data = bytes(self._store[0].cat_file(full))
            sizes.append(len(data))
        if path == MARKER:
            self._note_marker(data)
        return self._opened(path, data)

    def read_known(self, path: str, digest: str) -> bytes:
        """The content of a file that never changes and has this digest: as it was read before, where that is known.

        Whoever reads it compares it with the digest, and then says so by :meth:`keep_known`.

        Raises:
            FileNotFoundError: there is no such file.
        """
        kept = None if self.fresh or self.local_root is not None else _CONTENTS.get((self.full_path(path), digest))
        return self.read_bytes(path) if kept is None else kept

    def keep_known(self, path: str, digest: str, data: bytes) -> None:
        """Keep a content for :meth:`read_known`, where reading takes long; it has that digest."""
        if self.local_root is None:
            _CONTENTS.put((self.full_path(path), digest), data, len(data))

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        """A file for pyarrow to read at random places; in an object store each reading is a request.

        Args:
            path: the file.
            size: its bytes, or as many as will be read of it, where they are known: that saves a request.

        Raises:
            FileNotFoundError: there is no such file.
        """
        if self.local_root is not None:
            return pa.OSFile(self._full(path))
        return self.fetched(path, self.size(path) if size is None else size, [])

    def fetched(self, path: str, size: int, ranges: Sequence[Range]) -> pa.NativeFile:
        """A file in an object store of which some ranges, ascending, are fetched now, and others when they are read."""
        contents = list(zip(ranges, self.fetch(path, ranges), strict=True))
        return pa.PythonFile(FetchedFile(size, contents, lambda *span: self.fetch(path, [span])[0]), mode="r")

    def fetch(self, path: str, ranges: Sequence[Range]) -> list[bytes]:
        """The contents of some ranges of a file in an object store, each by one request, sent together.

        Raises:
            FileNotFoundError: there is no such file.
            OSError: the store failed, or the file ends before a range does.
        """
        if not ranges:
            return []
        full = self._full(path)
        starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
        with self._asking(len(ranges)) as sizes:
            found = self._store[0].cat_ranges([full] * len(ranges), starts, ends, on_error="raise")
            sizes += map(len, found)
        for (start, end), data in zip(ranges, found, strict=True):
            if len(data) != end - start:
                raise OSError(f"it has {len(data)} of the {end - start} bytes from {start} on")
        return [bytes(data) for data in found]

    def read_footer(self, path: str) -> bytes:
        """The footer of a Parquet file, with its length and magic bytes.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file does not end as a Parquet file does.
            OSError: it can't be read.
        """
        if self.local_root is not None:
            with self.open_input(path) as file:
                return read_footer(file)
        # Footers of one table are about as long: most are read by one request.
        footer = footer_by_end(lambda length: self._end(path, length), self._first_read[0])
        self._first_read[0] = min(max(self._first_read[0], len(footer)), _MOST_FIRST_READ)
        return footer

    @cached_property
    def _first_read(self) -> list[int]:
        return [FIRST_READ]

    def _end(self, path: str, length: int) -> bytes:
        full = self._full(path)
        with self._asking() as sizes:
            data = bytes(self._store[0].cat_file(full, start=-length))
            sizes.append(len(data))
        return data

    def size(self, path: str) -> int:
        """A file's size in bytes.

        Raises:
            FileNotFoundError: there is no such file.
        """
        full = self._full(path)
        with self._asking():
            return int(self._store[0].size(full))

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder of that path ("" is the root)."""
        self._store[0].invalidate_cache()
        full = self._full(path)
        with self._asking():
            return bool(self._store[0].exists(full))

    def is_file(self, path: str) -> bool:
        """Whether the path is a file."""
        self._store[0].invalidate_cache()
        full = self._full(path)
        with self._asking():
            return bool(self._store[0].isfile(full))

    def list(self, path: str) -> tuple[str, ...]:
        """The names in a folder, sorted, without temporary files; empty where there is no such folder."""
        self._store[0].invalidate_cache()
        full = self._full(path)
        try:
            with self._asking():
                found = self._store[0].ls(full, detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return ()
        names = {str(name).rstrip("/").rsplit("/", 1)[-1] for name in found}
        return tuple(sorted(name for name in names if not name.startswith(TEMPORARY)))

    def walk(self, path: str) -> Iterator[StoredFile]:
        """Every file below a folder, unfinished ones too, in no order; links are not followed."""
        if self.local_root is not None:
            yield from walk_local(self.local_root, path)
            return
        self._store[0].invalidate_cache()
        root, full = self._store[1].strip("/"), self._full(path)
        with self._asking():
            found = self._store[0].find(full, detail=True)
        for name, info in found.items():
            yield StoredFile(str(name).strip("/").removeprefix(f"{root}/"), int(info["size"] or 0), modified_of(info))

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
            changed = modified_of(self._store[0].info(self._full(name)))
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
        full = self._full(path)
        with suppress(FileNotFoundError), self._asking():
            self._store[0].rm_file(full)

    def write_new(self, path: str, data: bytes) -> None:
        """Create a file with this content, whole and durable, or not at all (put-if-absent).

        Raises:
            FileExistsError: the path is taken; its content is as it was.
            CatalogError: the path leaves the table, or the store has no way to create exclusively.
            OSError: the store failed. Whether the file is there is then unknown: look.
        """
        full, data = self._full(path), self._sealed(path, data)
        if path == MARKER:
            self._forget_keys()  # there were none, until now
        if self.local_root is not None:
            create_local(Path(full), data)
            return
        create = create_by_rename if protocol_of(self.root) in ("hdfs", "viewfs") else create_conditionally
        with self._asking() as sizes:
            create(self._store[0], full, data)
            sizes.append(len(data))

    def replace(self, path: str, data: bytes) -> None:
        """Write a file over what is there; readers see one or the other content.

        Raises:
            OSError: the store failed.
        """
        full, data = self._full(path), self._sealed(path, data)
        if self.local_root is not None:
            replace_local(Path(full), data)
            return
        with self._asking() as sizes:
            self._store[0].pipe_file(full, data)
            sizes.append(len(data))
