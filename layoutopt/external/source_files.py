"""A source's files under the names that blocks have for them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from layoutopt.catalog.storage.filesystem import TableFiles, is_url, protocol_of
from layoutopt.errors import CatalogError, QueryError, SourceError
from layoutopt.external.listing import UNNAMED, Listed, local_path
from layoutopt.model.schema import Schema
from layoutopt.sources.snapshot import SnapshotFile

_KEY_DIGITS = 32


def file_key(path: str) -> str:
    """A file's key: a digest of its path, which may have any characters and lie anywhere.

    >>> len(file_key("/data/a.parquet"))
    32
    """
    return hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:_KEY_DIGITS]


@dataclass(frozen=True)
class SourceFiles(TableFiles):
    """The files of a source, each under its key.

    Attributes:
        held: the files by key.
        schema: the source's columns.
        state: a digest of what was listed, which is another one once the source has changed.
        marks: what tells a file from others that may stand there later, by key.
    """

    held: Mapping[str, SnapshotFile] = field(default_factory=dict, compare=False)
    schema: Schema = field(default_factory=lambda: Schema(()), compare=False)
    state: str = ""
    marks: Mapping[str, str] = field(default_factory=dict, compare=False)

    @cached_property
    def keys(self) -> None:
        """None: files of others are read as they are."""
        return None

    @property
    def is_plain(self) -> bool:
        """No: files are read under the source's columns, without deleted rows."""
        return False

    def for_tasks(self) -> SourceFiles:
        """The same, without what this process has of the store."""
        return replace(self)

    def only(self, paths: Iterable[str]) -> SourceFiles:
        """Some of the files, for a task elsewhere."""
        return replace(self, held={path: self.held[path] for path in paths}, marks={})

    def listed_size(self, path: str) -> int:
        """The size of a file in bytes, as its store told when it was listed; 0 where it did not."""
        size = self.marks[path].partition(" ")[0]
        return int(size) if size.isdecimal() else 0

    def check_plain(self) -> None:
        """Refuse files of which a reader of plain Parquet would read other rows than there are.

        Raises:
            QueryError: rows of one were deleted; names it.
        """
        for file in self.held.values():
            if file.deleted is not None and len(file.deleted):
                raise QueryError(
                    f"rows of {file.path!r} were deleted, which only the table's metadata says; read the table as such"
                )

    def _full(self, path: str) -> str:
        if not path:
            return super()._full(path)
        if path not in self.held:
            raise CatalogError(f"the source {self.root!r} has no file {path!r}; refresh its indexes")
        place = local_path(self.held[path].path)
        store: Any = self._store[0]
        return str(store._strip_protocol(place)) if is_url(place) else place


def source_files(listed: Iterable[Listed], schema: Schema) -> SourceFiles:
    """Files as they are listed; all of one store.

    Raises:
        SourceError: they lie in several stores.
    """
    keyed = {file_key(one.file.path): one for one in listed}
    held = {key: one.file for key, one in keyed.items()}
    places = [local_path(file.path) for file in held.values()]
    stores = {protocol_of(place): place for place in places}
    if len(stores) > 1:
        first, second = sorted(stores.values())[:2]
        raise SourceError(f"{first!r} and {second!r} are files of one source in two stores, which is not read")
    root = places[0].rsplit("/", 1)[0] if places else "."
    marks = {key: one.mark for key, one in keyed.items()}
    return SourceFiles(root or "/", held=held, schema=schema, marks=marks)


def stored_names(file: SnapshotFile, schema: Schema, held: Sequence[str]) -> dict[str, str]:
    """The names under which a file holds columns, by theirs; those that it lacks and constants are left out.

    Args:
        file: the file.
        schema: the source's columns.
        held: the names of what the file holds.

    Raises:
        SourceError: the file has two columns that are one to Spark.
    """
    folded: dict[str, str] = {}
    for name in held:
        if folded.setdefault(name.lower(), name) != name:
            raise SourceError(
                f"the source's file {file.path!r} has the columns {folded[name.lower()]!r} and {name!r}, which are one "
                "to Spark; rename one"
            )
    wanted = schema.names if file.stored == UNNAMED else file.stored
    return {
        name: folded[stored.lower()]
        for name, stored in zip(schema.names, wanted, strict=True)
        if stored is not None and name not in file.constants and stored.lower() in folded
    }
