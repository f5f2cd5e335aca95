"""Iceberg tables as sources: files and deletes by the library, columns by their field ids."""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import _read_deletes, pyarrow_to_schema  # the first has no public name in this version
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table import FileScanTask, StaticTable, Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DecimalType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
)

from layoutopt.errors import SchemaError, SourceError
from layoutopt.model.arrays import Ints
from layoutopt.model.schema import Column, Schema
from layoutopt.sources.snapshot import SnapshotFile, SourceName, SourceSnapshot, ending

_TYPES: Final = {
    "boolean": "boolean", "int": "int", "long": "bigint", "float": "float", "double": "double", "string": "string",
    "binary": "binary", "date": "date", "timestamp": "timestamp_ntz", "timestamptz": "timestamp",
}  # fmt: skip
_FOOTERS_AT_ONCE: Final = 16


def iceberg_snapshot(name: SourceName) -> SourceSnapshot:
    """An Iceberg table at a snapshot.

    Raises:
        SourceError: it can't be read, has equality deletes, or columns renamed within structs.
        SchemaError: a column's type can't be stored.
    """
    table = open_iceberg(name)
    newest = table.current_snapshot()
    newest_version = None if newest is None else newest.snapshot_id
    version = newest_version if name.version is None else name.version
    snapshot = None if version is None else table.snapshot_by_id(version)
    if snapshot is None and name.version is not None:
        raise SourceError(f"the Iceberg table {name.place!r} has no snapshot {name.version}; choose one of its history")
    # The table's own schema may be younger than its newest snapshot: a column can be renamed with no data written.
    old = None if snapshot is None or version == newest_version else snapshot.schema_id
    schema = table.schema() if old is None else table.schemas()[old]
    columns = Schema(tuple(Column(field.name, _type(field.field_type, field.name)) for field in schema.fields))
    tasks = [] if version is None else _tasks(table, version, name)
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        deletes = _deletes(table, tasks)
        files = list(pool.map(lambda task: _file(table, schema, task, deletes), tasks))
    stored_types = tuple(column.type for column in columns.columns)
    named = SourceName("iceberg", name.place, version).text
    return SourceSnapshot(named, columns, stored_types, tuple(sorted(files, key=lambda file: file.path)))


def open_iceberg(name: SourceName) -> Table:
    """The table in a catalog (``CATALOG/NAMESPACE.TABLE``), or in a folder or metadata file."""
    match = re.fullmatch(r"([^/:.]+)/([^/]+\.[^/.]+)", name.place)
    try:
        if match is None:
            return StaticTable.from_metadata(name.place)
        return load_catalog(match[1]).load_table(match[2])
    except NoSuchTableError as error:
        raise SourceError(f"there is no Iceberg table {name.place!r}; check its name") from error
    except Exception as error:  # whatever the catalog's own library raises
        cause = " ".join(str(error).split())[:200]
        raise SourceError(
            f"the Iceberg table {name.place!r} can't be opened ({cause}); write CATALOG/NAMESPACE.TABLE or its folder"
        ) from error


def _tasks(table: Table, version: int, name: SourceName) -> list[FileScanTask]:
    try:
        return list(table.scan(snapshot_id=version).plan_files())
    except ValueError as error:  # equality deletes, which the library does not know
        raise SourceError(
            f"the Iceberg table {name.place!r} can't be read ({error}); compact it, so that it has no such files"
        ) from error


def _deletes(table: Table, tasks: list[FileScanTask]) -> dict[str, dict[str, Ints]]:
    """Of each file of deletes the positions of deleted rows, by :func:`ending` of the data files' paths.

    Raises:
        SourceError: rows are deleted by equality.
    """
    files: dict[str, DataFile] = {file.file_path: file for task in tasks for file in task.delete_files}
    for file in files.values():
        if file.content == DataFileContent.EQUALITY_DELETES:
            raise SourceError(f"{file.file_path!r} deletes rows by equality, which is not read; compact the table")
    return {
        path: {ending(of): held.to_numpy().astype(np.int64) for of, held in _read_deletes(table.io, file).items()}
        for path, file in files.items()
    }


def _file(
    table: Table, schema: IcebergSchema, task: FileScanTask, deletes: Mapping[str, Mapping[str, Ints]]
) -> SnapshotFile:
    file = task.file
    if str(file.file_format).rpartition(".")[2].upper() != "PARQUET":
        raise SourceError(f"{file.file_path!r} is no Parquet, which alone is read; write the table anew as Parquet")
    with table.io.new_input(file.file_path).open() as stream:
        held = pyarrow_to_schema(pq.read_schema(stream), table.metadata.name_mapping())
    by_id = {field.field_id: field for field in held.fields}
    stored = []
    for field in schema.fields:
        found = by_id.get(field.field_id)
        if found is not None:
            _check_same_fields(field.field_type, found.field_type, field.name, file.file_path)
        elif field.initial_default is not None:
            raise SourceError(f"{file.file_path!r} lacks the column {field.name!r}, whose default is not understood")
        stored.append(None if found is None else found.name)
    parts = [deletes[of.file_path].get(ending(file.file_path)) for of in task.delete_files]
    known = [part for part in parts if part is not None]
    deleted = np.unique(np.concatenate(known)) if known else None
    return SnapshotFile(file.file_path, tuple(stored), _constants(table, schema, file, by_id), deleted)


def _constants(
    table: Table, schema: IcebergSchema, file: DataFile, by_id: Mapping[int, NestedField]
) -> dict[str, object]:
    """The columns that the file lacks since its partition says them."""
    spec = table.specs()[file.spec_id]
    values: dict[str, Any] = {}
    for place, part in enumerate(spec.fields):
        if isinstance(part.transform, IdentityTransform) and part.source_id not in by_id:
            field, value = schema.find_field(part.source_id), file.partition[place]
            said = None if value is None else part.transform.to_human_string(field.field_type, value)
            values[field.name] = said
    return values


def _check_same_fields(wanted: IcebergType, held: IcebergType, column: str, path: str) -> None:
    """Refuse a file whose fields inside a column are called otherwise: Spark would read others, or NULL."""
    same = type(wanted) is type(held) or (wanted.is_primitive and held.is_primitive)
    if same and isinstance(wanted, StructType) and isinstance(held, StructType):
        names = {field.field_id: field.name for field in held.fields}
        now = {field.field_id: field.name for field in wanted.fields}
        same = all(names.get(id, name) == name for id, name in now.items())
        same &= all(now.get(field.field_id) == field.name for field in held.fields if field.name in now.values())
        inside = {field.field_id: field.field_type for field in held.fields}
        for field in wanted.fields:
            if field.field_id in inside:
                _check_same_fields(field.field_type, inside[field.field_id], column, path)
    elif same and isinstance(wanted, ListType) and isinstance(held, ListType):
        _check_same_fields(wanted.element_type, held.element_type, column, path)
    elif same and isinstance(wanted, MapType) and isinstance(held, MapType):
        _check_same_fields(wanted.key_type, held.key_type, column, path)
        _check_same_fields(wanted.value_type, held.value_type, column, path)
    if not same:
        raise SourceError(
            f"{path!r} has other fields in the column {column!r} than the table has now, which is not understood; "
            "write the table anew"
        )


def _type(type: IcebergType, column: str) -> str:
    """Spark's name of an Iceberg type."""
    if isinstance(type, DecimalType):
        return f"decimal({type.precision},{type.scale})"
    if isinstance(type, ListType):
        return f"array<{_type(type.element_type, column)}>"
    if isinstance(type, MapType):
        return f"map<{_type(type.key_type, column)},{_type(type.value_type, column)}>"
    if isinstance(type, StructType):
        return f"struct<{','.join(f'{field.name}:{_type(field.field_type, column)}' for field in type.fields)}>"
    if str(type) not in _TYPES:
        raise SchemaError(f"column {column!r} is of Iceberg's type {type}, which can't be stored; cast it")
    return _TYPES[str(type)]
