"""The files of an external source, under the keys that blocks use for them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import pyarrow as pa

from layoutopt.catalog.storage.filesystem import TableFiles, is_url, protocol_of
from layoutopt.errors import CatalogError, QueryError, SchemaError, SourceError
from layoutopt.evaluation.arrow_types import any_arrow_type
from layoutopt.external.listing import UNNAMED, ListedFile, local_path, to_arrow_constant
from layoutopt.external.snapshot import SnapshotFile
from layoutopt.model.schema import Schema

_KEY_DIGITS = 32

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


def file_key(path: str) -> str:
    """Return a file's key: a digest of its path, which may have any characters and be anywhere.

    >>> len(file_key("/data/a.parquet"))
    32
    """
    return hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:_KEY_DIGITS]


@dataclass(frozen=True)
class SourceFiles(TableFiles):
    """The files of a source, each under its key.

    ``marks`` has the file versions by key; ``state`` is a digest of the listing; ``native`` has the keys of files whose
    stored rows Spark's own reader reads alike.
    """

    held: Mapping[str, SnapshotFile] = field(default_factory=dict, compare=False)
    schema: Schema = field(default_factory=lambda: Schema(()), compare=False)
    state: str = ""
    marks: Mapping[str, str] = field(default_factory=dict, compare=False)
    native: frozenset[str] = field(default=frozenset(), compare=False)

    @cached_property
    def keys(self) -> None:
        """None: external files are not encrypted by layoutopt."""
        return None

    @property
    def is_plain(self) -> bool:
        """False: files are read under the source's columns, without deleted rows."""
        return False

    @property
    def is_external(self) -> bool:
        """True."""
        return True

    @property
    def has_native_files(self) -> bool:
        """Whether Spark's own reader can read any of the files."""
        return bool(self.native)

    def is_native(self, path: str) -> bool:
        """Return whether Spark's own reader can read a file; False for one with deleted rows, which it would return."""
        return path in self.native and not self.held[path].deleted_rows

    def constants(self, path: str) -> Mapping[str, object]:
        """Return the columns with one value in all rows of a file."""
        return self.held[path].constants

    @cached_property
    def folder_column(self) -> str | None:
        """The column whose values are in folder names or metadata, if it is one and that of each file."""
        names = {tuple(file.constants) for file in self.held.values()}
        (first,) = names if len(names) == 1 else ((),)
        return first[0] if len(first) == 1 else None

    def for_tasks(self, paths: Iterable[str] = ()) -> SourceFiles:
        """Return some of the files, for a task in another process."""
        return replace(self, held={path: self.held[path] for path in paths}, marks={}, native=frozenset())

    def listed_size(self, path: str) -> int:
        """Return a file's size in bytes by the listing; 0 if unknown."""
        size = self.marks[path].partition(" ")[0]
        return int(size) if size.isdecimal() else 0

    def check_plain(self) -> None:
        """Raise QueryError for files with deleted rows, which a reader of plain Parquet would return."""
        for file in self.held.values():
            if file.deleted is not None and len(file.deleted):
                raise QueryError(
                    f"{file.path!r} holds deleted rows, which only the table's metadata lists; read the table instead"
                )

    def _full(self, path: str) -> str:
        if not path:
            return super()._full(path)
        if path not in self.held:
            raise CatalogError(f"the source {self.root!r} has no file {path!r}; refresh its indexes")
        place = local_path(self.held[path].path)
        store: Any = self._store[0]
        return str(store._strip_protocol(place)) if is_url(place) else place


def file_of_source(file: SnapshotFile, schema: Schema) -> SourceFiles:
    """Return one file of a source, under its path."""
    root = file.path.rpartition("/")[0] if is_url(file.path) else "/"
    return SourceFiles(root, held={file.path: file}, schema=schema)


def external_files(files: TableFiles) -> SourceFiles:
    """Return the files of an external table with their details."""
    assert isinstance(files, SourceFiles), "the catalog is of a source's files"
    return files


def source_files(listed: Iterable[ListedFile], schema: Schema) -> SourceFiles:
    """Return listed files; raise SourceError if they are in several stores."""
    keyed = {file_key(file.file.path): file for file in listed}
    held = {key: file.file for key, file in keyed.items()}
    places = [local_path(file.path) for file in held.values()]
    stores = {protocol_of(place): place for place in places}
    if len(stores) > 1:
        first, second = sorted(stores.values())[:2]
        raise SourceError(f"{first!r} and {second!r} are in different stores; a source must be in one store")
    root = places[0].rsplit("/", 1)[0] if places else "."
    marks = {key: file.mark for key, file in keyed.items()}
    return SourceFiles(root or "/", held=held, schema=schema, marks=marks)


def stored_names(file: SnapshotFile, schema: Schema, held: Sequence[str]) -> dict[str, str]:
    """Return the names of columns in a file, by their names in the source, without missing ones and constants.

    Raises:
        SourceError: two columns of the file are the same to Spark.
    """
    folded: dict[str, str] = {}
    for name in held:
        if folded.setdefault(name.lower(), name) != name:
            raise SourceError(
                f"the source's file {file.path!r} has the columns {folded[name.lower()]!r} and {name!r}, which are the "
                "same to Spark; rename one"
            )
    file_names = schema.names if file.stored == UNNAMED else file.stored
    return {
        name: folded[stored.lower()]
        for name, stored in zip(schema.names, file_names, strict=True)
        if stored is not None and name not in file.constants and stored.lower() in folded
    }


def to_source_columns(
    rows: Rows, schema: Schema, names: Sequence[str], stored: Mapping[str, str], constants: Mapping[str, object]
) -> Rows:
    """Return a file's rows under some of a source's columns, in its types.

    Args:
        rows: the stored columns, under their names in the file.
        schema: the source's columns.
        names: those that are returned, in this order.
        stored: the names in the file of those that it has.
        constants: the values of those that are the same in all rows; others that the file lacks are NULL.

    Raises:
        SchemaError: a time has nanoseconds, which tables can't store.
        pa.ArrowException: a value does not fit the type.
    """
    arrays, fields = [], []
    for name in names:
        column = schema.find(name)
        type = any_arrow_type(column.type)
        if name in stored:
            arrays.append(_cast(rows.column(stored[name]), name, type))
        else:
            arrays.append(pa.repeat(to_arrow_constant(constants.get(name), column), rows.num_rows))
        fields.append(pa.field(name, type))
    # Types are equal whatever the names of their lists' elements; the schema's are those that are written.
    return rows.from_arrays(arrays, schema=pa.schema(fields))


def _cast(values: Any, name: str, type: pa.DataType) -> Any:
    try:
        return values if values.type == type else values.cast(type)
    except pa.ArrowInvalid as error:
        if "[ns" in str(values.type) and "would lose data" in str(error):
            raise SchemaError(
                f"column {name!r} has times of nanoseconds, and tables store microseconds; round them"
            ) from error
        raise
