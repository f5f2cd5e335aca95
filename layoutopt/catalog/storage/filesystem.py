"""The files of a table's folder: local paths and any fsspec URL (``s3://``, ``gs://``, ``hdfs://``, ``memory://``).

The catalog and load tasks read and write only through this module.

Paths are relative to the table's root, ``/``-separated; paths that leave it are refused.

The catalog's files of an encrypted table are sealed and opened here, and names that reveal values are replaced here:
callers see plain contents and names. Data files are encrypted by Parquet; see :meth:`TableFiles.decryption`.

A commit needs one thing of a store, **put-if-absent**: of two writers of one path, one succeeds, the other gets
FileExistsError, and no reader ever sees half a file. By store:

- local: the content is written beside its target, synced, and hard-linked to its name, which fails if that is taken;
- object stores: fsspec's ``mode="create"``, which s3fs and gcsfs send as a conditional put;
- hdfs: a temporary file renamed, since HDFS refuses to rename onto a file.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from shutil import rmtree
from stat import S_ISDIR
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from layoutopt.catalog.paths import MARKER, hides_values, is_of_catalog, is_safe_path
from layoutopt.catalog.storage.exclusive import (
    TEMPORARY,
    create_by_rename,
    create_conditionally,
    create_local,
    replace_local,
)
from layoutopt.catalog.storage.footers import FIRST_READ, DecodedFooters, FooterTemplate, footer_by_end, read_footer
from layoutopt.catalog.storage.io_metrics import Traffic
from layoutopt.catalog.storage.ranges import FetchedFile, LastUsed, Range
from layoutopt.catalog.storage.store_errors import call_store, make_store_error
from layoutopt.errors import CatalogError, EncryptedTableError, LayoutoptError, SettingError

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from layoutopt.encryption.table_keys import TableKeys


Answer = TypeVar("Answer")

_CHAIN = re.compile("::|://")
_CODE = re.compile("%[0-9A-Fa-f]{2}")


def is_url(root: str) -> bool:
    """Return whether a table's root is a URL or a chain of them, not a local path.

    >>> is_url("s3://bucket/events"), is_url("file:///tables/events"), is_url("tables/events")
    (True, True, False)
    """
    return _CHAIN.search(root) is not None


def protocol_of(root: str) -> str:
    """Return fsspec's name of the outermost store of a table's root.

    >>> protocol_of("simplecache::s3://bucket/events"), protocol_of("tables/events")
    ('simplecache', 'file')
    """
    return _CHAIN.split(root, maxsplit=1)[0] if is_url(root) else "file"


def absolute(path: str) -> str:
    """Return a local path from the root of the disk; ``~`` is expanded, ``..`` stays, as links may precede it.

    >>> absolute("/tables/../events"), absolute("file:/events")  # as Java writes local paths
    ('/tables/../events', '/events')
    """
    path = path[len("file:") :] if path.startswith("file:/") else path
    try:
        return str(Path(path).expanduser().absolute())
    except RuntimeError:  # no user of that name has a home
        return str(Path(path).absolute())


def has_codes(path: str) -> bool:
    """Return whether a local path contains a URL escape, which other libraries may decode.

    >>> has_codes("/tables/5%20b"), has_codes("/tables/5%"), has_codes("s3://bucket/5%20b")
    (True, False, False)
    """
    return not is_url(path) and _CODE.search(absolute(path)) is not None


class _LocalStore:
    """The local disk, with those methods of an ``fsspec`` filesystem that tables need; paths are absolute.

    fsspec's own local filesystem would import an event loop and network protocols, which slows short commands.
    """

    def invalidate_cache(self) -> None:
        pass  # nothing is cached

    def cat_file(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def size(self, path: str) -> int:
        return Path(path).stat().st_size

    def ls(self, path: str, detail: bool = False) -> list[str]:
        assert not detail
        return [str(entry) for entry in Path(path).iterdir()]

    def info(self, path: str) -> dict[str, Any]:
        status = Path(path).stat()
        return {"mtime": status.st_mtime, "type": "directory" if S_ISDIR(status.st_mode) else "file"}

    def rm_file(self, path: str) -> None:
        Path(path).unlink()

    def rm(self, path: str, recursive: bool) -> None:
        assert recursive
        rmtree(path)


@dataclass(frozen=True)
class StoredFile:
    """A file in a listing; ``modified`` is in seconds since 1970 by the store's clock, None where unknown."""

    path: str
    size: int
    modified: float | None


def walk_local(root: Path, path: str) -> Iterator[StoredFile]:
    """Yield every file below a folder of a local root."""
    for folder, _, names in os.walk(root / path):
        for name in names:
            file = Path(folder, name)
            with suppress(FileNotFoundError):  # removed since
                status = file.lstat()
                yield StoredFile(file.relative_to(root).as_posix(), status.st_size, status.st_mtime)


def read_modified_time(info: Mapping[str, Any]) -> float | None:
    """Return a file's modification time from a store's listing: every driver has its own name for it."""
    for name in ("mtime", "LastModified", "last_modified", "updated", "modified", "created"):
        value = info.get(name)
        if isinstance(value, int | float):
            return float(value)
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    return None


# Bytes of a gap that are read along to save a request; see docs/performance.md#scan.
READ_THROUGH = 128 << 10
_MOST_FIRST_READ = 4 << 20
_MOST_KEPT = 64 << 20

# Immutable contents are cached for all tables of this process: another request takes long.
_FOOTERS = DecodedFooters()
_MOST_TEMPLATES = 100_000  # of files; similar files share one
_CONTENTS: LastUsed[tuple[str, str], bytes] = LastUsed(_MOST_KEPT)


@dataclass(frozen=True)
class TableFiles:
    """The files under one table's root: a local path or a URL.

    Attributes:
        root: the path or URL.
        read_through: in an object store, the most bytes between two ranges that are read along to save a request.
        fresh: whether to bypass this process's cache of file contents.
        key: the reader's own reference to the key of an encrypted table, instead of the table's.
        lent: in a remote task: the keys, empty where the table is not encrypted; None to find them.
    """

    root: str
    read_through: int = READ_THROUGH
    fresh: bool = False
    key: str | None = None
    lent: tuple[TableKeys, ...] | None = field(default=None, repr=False)

    @cached_property
    def _store(self) -> tuple[Any, str]:
        """Return the fsspec filesystem or :class:`LocalStore`, and the root's path in it."""
        if not is_url(self.root):
            return _LocalStore(), absolute(self.root)
        import fsspec

        try:
            filesystem, path = fsspec.core.url_to_fs(self.root)
        except (ImportError, ValueError) as error:
            raise SettingError(f"the table path {self.root!r} can't be reached: {error}") from error
        return filesystem, path.rstrip("/") or "/"

    @cached_property
    def local_root(self) -> Path | None:
        """Return the root as a local path, None for other stores."""
        return Path(self._store[1]) if protocol_of(self.root) in ("file", "local") else None

    @cached_property
    def footers(self) -> DecodedFooters:
        """Return the cache of the data files' decoded footers."""
        return DecodedFooters() if self.local_root is not None else _FOOTERS

    @cached_property
    def templates(self) -> LastUsed[tuple[str, str], FooterTemplate]:
        """Return the cache of footer templates, by path and digest."""
        return LastUsed(_MOST_TEMPLATES)

    @cached_property
    def traffic(self) -> Traffic:
        """Return the I/O metrics of the store; local disks are not counted."""
        return Traffic()

    def _request(
        self, path: str, send: Callable[[], Answer], size: Callable[[Answer], int] = lambda answer: 0, count: int = 1
    ) -> Answer:
        """Return the answer to ``count`` requests for a file, of ``size`` bytes; raises as :func:`call_store`."""
        if self.local_root is not None:
            return send()

        def send_counted() -> Answer:
            with self.traffic.request(count) as sizes:
                answer = send()
                sizes.append(size(answer))
            return answer

        return call_store(send_counted, lambda: self.full_path(path))

    def _call(self, method: str, path: str, **options: object) -> Any:
        full = self._full(path)
        return self._request(path, lambda: getattr(self._store[0], method)(full, **options))

    def _full(self, path: str) -> str:
        if path and not is_safe_path(path):
            raise CatalogError(
                f"the path {path!r} leads out of the table {self.root!r}; restore the catalog from a copy"
            )
        return f"{self._store[1].rstrip('/')}/{self.stored_path(path)}" if path else self._store[1]

    def full_path(self, path: str) -> str:
        """Return the path or URL that other libraries open (with its scheme, except for local files)."""
        full = self._full(path)
        return full if self.local_root is not None else str(self._store[0].unstrip_protocol(full))

    @cached_property
    def keys(self) -> TableKeys | None:
        """Return the keys of the table's files; None where it is not encrypted, or missing.

        Raises EncryptionKeyError or SettingError if the key is unavailable or wrong.
        """
        if self.lent is not None:
            return next(iter(self.lent), None)
        try:
            marker = self.__dict__.get("_marker") or self.read_bytes(MARKER)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if b"encryption" not in marker:
            return None
        from layoutopt.encryption.table_keys import read_keys  # slow to import

        return read_keys(marker, self.full_path(MARKER), self.key)

    @property
    def is_plain(self) -> bool:
        """Return whether other engines may read the data files directly."""
        return self.keys is None

    def check_plain(self) -> None:
        """Refuse files that a reader of plain Parquet can't read; raise EncryptedTableError if they are encrypted."""
        if self.keys is not None:
            raise EncryptedTableError(
                f"the table {self.root!r} is encrypted, and other engines have no key to its files; read it with "
                "`query`, in Python or in a Spark session that layoutopt enabled"
            )

    def encryption(self, path: str) -> pq.FileEncryptionProperties | None:
        """Return pyarrow's properties for writing a data file; None where the table is not encrypted."""
        return None if self.keys is None else self.keys.encryption(self.stored_path(path))

    def decryption(self, path: str) -> pq.FileDecryptionProperties | None:
        """Return pyarrow's properties for reading a data file; None where the table is not encrypted."""
        return None if self.keys is None else self.keys.decryption(self.stored_path(path))

    def stored_path(self, path: str) -> str:
        """Return where a file is stored: an encrypted table replaces names that reveal values. A stored path stays."""
        start, name, end = hides_values(path)
        return path if not name or self.keys is None else f"{start}{self.keys.name(name)}{end}"

    def _unseal(self, path: str, data: bytes) -> bytes:
        """Return a file's content from its stored bytes; raise CatalogError if these were changed."""
        if not is_of_catalog(path) or self.keys is None:
            return data
        try:
            return self.keys.unseal(self.stored_path(path), data)
        except ValueError as error:
            raise CatalogError(
                f"the catalog file {self.full_path(path)} of an encrypted table can't be opened: {error}; restore it "
                "from a copy or load again"
            ) from error

    def _seal(self, path: str, content: bytes) -> bytes:
        if not is_of_catalog(path) or self.keys is None:
            return content
        return self.keys.seal(self.stored_path(path), content)

    @property
    def is_external(self) -> bool:
        """Return whether other systems write the files: then columns are the source's, and rows have no block id."""
        return False

    @property
    def state(self) -> str | None:
        """Return a digest of external files; None for the files of a table, which never change."""
        return None

    @property
    def folder_column(self) -> str | None:
        """Return the column whose values are in folder names or metadata instead of in external files, if any."""
        return None

    @property
    def has_native_files(self) -> bool:
        """Return whether Spark's own reader can read any of the files."""
        return self.is_plain

    def is_native(self, path: str) -> bool:
        """Return whether Spark's own reader can read a file."""
        return self.is_plain

    def constants(self, path: str) -> Mapping[str, object]:
        """Return the columns with one value in all rows of a file, which the file lacks."""
        return {}

    def for_tasks(self, paths: Iterable[str] = ()) -> TableFiles:
        """Return the same files for remote tasks, which may have other working folders and environment variables.

        Args:
            paths: those of external files that the tasks read.
        """
        return TableFiles(self.full_path(""), lent=() if self.keys is None else (self.keys,))

    def read_bytes(self, path: str) -> bytes:
        """Return a file's content; raise FileNotFoundError if there is no such file, StoreError if it is refused."""
        full = self._full(path)
        data = self._request(path, lambda: bytes(self._store[0].cat_file(full)), len)
        if path == MARKER:
            self.__dict__["_marker"] = data  # it never changes, and says whether there are keys
        return self._unseal(path, data)

    def read_cached(self, path: str, digest: str) -> bytes:
        """Return the content of an immutable file with this digest, perhaps from a cache.

        The caller compares it with the digest, and then calls :meth:`cache_content`.
        """
        cached = None if self.fresh or self.local_root is not None else _CONTENTS.get((self.full_path(path), digest))
        return self.read_bytes(path) if cached is None else cached

    def cache_content(self, path: str, digest: str, data: bytes) -> None:
        """Cache a content with a checked digest for :meth:`read_cached`, unless the store is a local disk."""
        if self.local_root is None:
            _CONTENTS.put((self.full_path(path), digest), data, len(data))

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        """Open a file for random reads by pyarrow; in an object store each read is a request.

        ``size`` is an upper bound of the bytes that will be read, if known: that saves a request.
        """
        if self.local_root is not None:
            return pa.OSFile(self._full(path))
        return self.fetched(path, self.size(path) if size is None else size, [])

    def fetched(self, path: str, size: int, ranges: Sequence[Range]) -> pa.NativeFile:
        """Return a file in an object store with some ranges, ascending, fetched now, and others when read."""
        contents = list(zip(ranges, self.fetch(path, ranges), strict=True))
        return pa.PythonFile(FetchedFile(size, contents, lambda *span: self.fetch(path, [span])[0]), mode="r")

    def fetch(self, path: str, ranges: Sequence[Range]) -> list[bytes]:
        """Return the contents of some ranges of a file in an object store, each by one request, sent together.

        Raises StoreError if the store refused, OSError if the file ends before a range does.
        """
        if not ranges:
            return []
        full = self._full(path)
        starts, ends = [start for start, _ in ranges], [end for _, end in ranges]

        def send() -> list[bytes]:
            return list(self._store[0].cat_ranges([full] * len(ranges), starts, ends, on_error="raise"))

        contents = self._request(path, send, lambda contents: sum(map(len, contents)), len(ranges))
        for (start, end), data in zip(ranges, contents, strict=True):
            if len(data) != end - start:
                raise OSError(f"it has {len(data)} of the {end - start} bytes from {start} on")
        return [bytes(data) for data in contents]

    def read_footer(self, path: str) -> bytes:
        """Return the footer of a Parquet file with its length and magic bytes; raise ValueError if it has none."""
        if self.local_root is not None:
            with self.open_input(path) as file:
                return read_footer(file)
        # Footers of one table are about as long: most are read by one request.
        footer = footer_by_end(lambda length: self._read_end(path, length), self._first_read_bytes[0])
        self._first_read_bytes[0] = min(max(self._first_read_bytes[0], len(footer)), _MOST_FIRST_READ)
        return footer

    @cached_property
    def _first_read_bytes(self) -> list[int]:
        return [FIRST_READ]

    def _read_end(self, path: str, length: int) -> bytes:
        full = self._full(path)
        return self._request(path, lambda: bytes(self._store[0].cat_file(full, start=-length)), len)

    def size(self, path: str) -> int:
        """Return a file's size in bytes; raise FileNotFoundError if there is no such file."""
        return int(self._call("size", path))

    def stat(self, path: str) -> StoredFile:
        """Return a file's size and modification time by the store; raise FileNotFoundError if there is no such file."""
        self._store[0].invalidate_cache()
        info = self._call("info", path)
        return StoredFile(path, int(info["size"] or 0), read_modified_time(info))

    def download(self, path: str, target: Path) -> None:
        """Copy a file of an object store to a local one, as it is stored."""
        self._call("get_file", path, lpath=str(target))

    def exists(self, path: str) -> bool:
        """Return whether there is a file or folder of that path ("" is the root)."""
        return self._find_type(path) is not None

    def is_file(self, path: str) -> bool:
        """Return whether the path is a file."""
        return self._find_type(path) == "file"

    def _find_type(self, path: str) -> str | None:
        """Return what is stored under a path, None for nothing; drivers' own tests take a refusal for nothing."""
        self._store[0].invalidate_cache()
        try:
            return str(self._call("info", path)["type"])
        except (FileNotFoundError, NotADirectoryError):
            return None

    def list(self, path: str) -> tuple[str, ...]:
        """Return the names in a folder, sorted, without temporary files; empty where there is no such folder."""
        self._store[0].invalidate_cache()
        try:
            paths = self._call("ls", path, detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return ()
        names = {str(name).rstrip("/").rsplit("/", 1)[-1] for name in paths}
        return tuple(sorted(name for name in names if not name.startswith(TEMPORARY)))

    def walk(self, path: str) -> Iterator[StoredFile]:
        """Yield every file below a folder, including temporary ones, in no order; links are not followed."""
        if self.local_root is not None:
            yield from walk_local(self.local_root, path)
            return
        self._store[0].invalidate_cache()
        root = self._store[1].strip("/")
        for name, info in self._call("find", path, detail=True).items():
            relative = str(name).strip("/").removeprefix(f"{root}/")
            yield StoredFile(relative, int(info["size"] or 0), read_modified_time(info))

    def now(self, folder: str) -> float:
        """Return the time by the store's own clock, in seconds since 1970; creates and removes a file in ``folder``."""
        name = f"{folder}/{TEMPORARY}{uuid.uuid4().hex}"
        self.write_new(name, b"now")
        try:
            changed = read_modified_time(self._call("info", name))
        finally:
            self.delete(name)
        if changed is None:
            raise CatalogError(f"the store of {self.root!r} does not say when a file was changed; remove files by hand")
        return changed

    def delete_empty_folders(self, path: str) -> None:
        """Remove a folder and its subfolders that hold no file; object stores have no folders."""
        if self.local_root is None:
            return
        for folder, _, _ in os.walk(self._full(path), topdown=False):
            with suppress(OSError):  # not empty, or gone
                Path(folder).rmdir()

    def delete(self, path: str) -> None:
        """Remove a file; a no-op where there is none."""
        with suppress(FileNotFoundError):
            self._call("rm_file", path)

    def delete_folder(self, path: str) -> None:
        """Remove a folder and all files in it; a no-op where there is none."""
        with suppress(FileNotFoundError):
            self._call("rm", path, recursive=True)

    @contextmanager
    def create(self, path: str) -> Iterator[IO[bytes]]:
        """Open a new data file for writing; raise StoreError if the store refuses it, OSError if a disk does.

        Drivers repeat the requests: what was streamed can't be sent again.
        """
        import fsspec

        where = self.full_path(path)
        try:
            with fsspec.open(where, "wb", auto_mkdir=True) as file:
                yield file
        except (LayoutoptError, pa.ArrowException):
            raise
        except Exception as error:
            if self.local_root is not None:
                raise
            raise make_store_error(where, error) from error

    def write_new(self, path: str, data: bytes) -> None:
        """Create a file with this content, whole and durable, or not at all (put-if-absent).

        Raises:
            FileExistsError: the path is taken; its content is unchanged.
            CatalogError: the path leaves the table, or the store can't create files exclusively.
            StoreError, OSError: the store or disk failed. Whether the file exists is then unknown.
        """
        full, data = self._full(path), self._seal(path, data)
        if path == MARKER:
            self.__dict__.pop("keys", None)  # there were none, until now
        if self.local_root is not None:
            create_local(Path(full), data)
            return
        create = create_by_rename if protocol_of(self.root) in ("hdfs", "viewfs") else create_conditionally
        self._request(path, lambda: create(self._store[0], full, data), lambda _: len(data))

    def check_can_create(self) -> None:
        """Raise OSError if no file can be created in the root of this machine, or where it would be made."""
        if self.local_root is None:
            return
        folder = next(path for path in (self.local_root, *self.local_root.parents) if path.exists())
        try:
            TemporaryFile(dir=folder).close()
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(folder)) from error

    def replace(self, path: str, data: bytes) -> None:
        """Write a file over an existing one; readers see one or the other content."""
        full, data = self._full(path), self._seal(path, data)
        if self.local_root is not None:
            replace_local(Path(full), data)
            return
        self._request(path, lambda: self._store[0].pipe_file(full, data), lambda _: len(data))
