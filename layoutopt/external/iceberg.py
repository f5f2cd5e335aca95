"""Read Iceberg tables as sources: files and deletes by pyiceberg, columns by their field ids."""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import _read_deletes, pyarrow_to_schema  # the first has no public name in this version
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table import FileScanTask, StaticTable, Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BinaryType, DecimalType, IcebergType, ListType, MapType, NestedField, StructType

from layoutopt.errors import SchemaError, SourceError
from layoutopt.external.snapshot import SnapshotFile, SourceSnapshot, strip_scheme
from layoutopt.model.arrays import Ints
from layoutopt.model.schema import Column, Schema

_TYPES: Final = {
    "boolean": "boolean", "int": "int", "long": "bigint", "float": "float", "double": "double", "string": "string",
    "binary": "binary", "date": "date", "timestamp": "timestamp_ntz", "timestamptz": "timestamp",
}  # fmt: skip
_FOOTERS_AT_ONCE: Final = 16


def iceberg_snapshot(place: str, version: int | None) -> SourceSnapshot:
    """Return an Iceberg table at a snapshot, or at the newest.

    Raises:
        SourceError: it can't be read, has equality deletes, or columns renamed within structs.
        SchemaError: a column's type can't be stored.
    """
    table = open_iceberg(place)
    newest = table.current_snapshot()
    newest_version = None if newest is None else newest.snapshot_id
    requested, version = version, newest_version if version is None else version
    snapshot = None if version is None else table.snapshot_by_id(version)
    if snapshot is None and requested is not None:
        raise SourceError(f"the Iceberg table {place!r} has no snapshot {requested}; choose one of its history")
    # The table's schema may be newer than its newest snapshot: renaming a column writes no data.
    old = None if snapshot is None or version == newest_version else snapshot.schema_id
    schema = table.schema() if old is None else table.schemas()[old]
    columns = Schema(tuple(Column(field.name, _spark_type(field.field_type, field.name)) for field in schema.fields))
    tasks = [] if version is None else _plan_tasks(table, version, place)
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        deletes = _read_delete_files(table, tasks)
        files = list(pool.map(lambda task: _open_file(table, schema, task, deletes), tasks))
    stored_types = tuple(column.type for column in columns.columns)
    versioned_name = f"iceberg:{place}" + ("" if version is None else f"@{version}")
    return SourceSnapshot(versioned_name, columns, stored_types, tuple(sorted(files, key=lambda file: file.path)))


def open_iceberg(place: str) -> Table:
    """Return the table in a catalog (``CATALOG/NAMESPACE.TABLE``), or in a folder or metadata file."""
    match = re.fullmatch(r"([^/:.]+)/([^/]+\.[^/.]+)", place)
    try:
        if match is None:
            return StaticTable.from_metadata(place)
        return load_catalog(match[1]).load_table(match[2])
    except NoSuchTableError as error:
        raise SourceError(f"there is no Iceberg table {place!r}; check its name") from error
    except Exception as error:  # catalog libraries raise arbitrary exceptions
        cause = " ".join(str(error).split())[:200]
        raise SourceError(
            f"the Iceberg table {place!r} can't be opened ({cause}); write CATALOG/NAMESPACE.TABLE or its folder"
        ) from error


def _plan_tasks(table: Table, version: int, place: str) -> list[FileScanTask]:
    try:
        return list(table.scan(snapshot_id=version).plan_files())
    except ValueError as error:  # equality deletes, which pyiceberg does not support
        raise SourceError(
            f"the Iceberg table {place!r} can't be read ({error}); compact it to remove such files"
        ) from error


def _read_delete_files(table: Table, tasks: list[FileScanTask]) -> dict[str, dict[str, Ints]]:
    """Return for each delete file the positions of deleted rows, by :func:`strip_scheme` of the data files' paths."""
    files: dict[str, DataFile] = {file.file_path: file for task in tasks for file in task.delete_files}
    for file in files.values():
        if file.content == DataFileContent.EQUALITY_DELETES:
            raise SourceError(f"{file.file_path!r} has equality deletes, which are not supported; compact the table")
    return {
        path: {
            strip_scheme(data): rows.to_numpy().astype(np.int64) for data, rows in _read_deletes(table.io, file).items()
        }
        for path, file in files.items()
    }


def _open_file(
    table: Table, schema: IcebergSchema, task: FileScanTask, deletes: Mapping[str, Mapping[str, Ints]]
) -> SnapshotFile:
    file = task.file
    if str(file.file_format).rpartition(".")[2].upper() != "PARQUET":
        raise SourceError(f"{file.file_path!r} is not Parquet; rewrite the table as Parquet")
    with table.io.new_input(file.file_path).open() as stream:
        file_schema = pyarrow_to_schema(pq.read_schema(stream), table.metadata.name_mapping())
    by_id = {field.field_id: field for field in file_schema.fields}
    stored = []
    constants: dict[str, object] = {}  # columns that the file lacks because the table's metadata has their values
    for field in schema.fields:
        file_field = by_id.get(field.field_id)
        if file_field is not None:
            _check_nested_names(field.field_type, file_field.field_type, field.name, file.file_path)
        elif field.initial_default is not None:
            constants[field.name] = _default_text(field, file.file_path)
        stored.append(None if file_field is None else file_field.name)
    for place, part in enumerate(table.specs()[file.spec_id].fields):
        if isinstance(part.transform, IdentityTransform) and part.source_id not in by_id:
            field, value = schema.find_field(part.source_id), file.partition[place]
            text = None if value is None else part.transform.to_human_string(field.field_type, value)
            constants[field.name] = text
    positions = [deletes[delete.file_path].get(strip_scheme(file.file_path)) for delete in task.delete_files]
    known = [rows for rows in positions if rows is not None]
    deleted = np.unique(np.concatenate(known)) if known else None
    return SnapshotFile(file.file_path, tuple(stored), constants, deleted)


def _default_text(field: NestedField, path: str) -> str:
    """Return the value that a column has in files which were written before it was added, as JSON spells it."""
    if not field.field_type.is_primitive or isinstance(field.field_type, BinaryType):
        raise SourceError(
            f"{path!r} lacks the column {field.name!r} of type {field.field_type}, whose default is not supported; "
            "rewrite the file"
        )
    return str(field.initial_default)


def _check_nested_names(type: IcebergType, file_type: IcebergType, column: str, path: str) -> None:
    """Refuse a file with other field names inside a column: Spark would read other fields, or NULL."""
    same = type.__class__ is file_type.__class__ or (type.is_primitive and file_type.is_primitive)
    if same and isinstance(type, StructType) and isinstance(file_type, StructType):
        names = {field.field_id: field.name for field in type.fields}
        file_names = {field.field_id: field.name for field in file_type.fields}
        same = all(file_names.get(id, name) == name for id, name in names.items())
        same &= all(names.get(id) == name for id, name in file_names.items() if name in names.values())
        file_types = {field.field_id: field.field_type for field in file_type.fields}
        for field in type.fields:
            if field.field_id in file_types:
                _check_nested_names(field.field_type, file_types[field.field_id], column, path)
    elif same and isinstance(type, ListType) and isinstance(file_type, ListType):
        _check_nested_names(type.element_type, file_type.element_type, column, path)
    elif same and isinstance(type, MapType) and isinstance(file_type, MapType):
        _check_nested_names(type.key_type, file_type.key_type, column, path)
        _check_nested_names(type.value_type, file_type.value_type, column, path)
    if not same:
        raise SourceError(
            f"{path!r} has other fields in the column {column!r} than the table, which is not supported; "
            "rewrite the table"
        )


def _spark_type(type: IcebergType, column: str) -> str:
    if isinstance(type, DecimalType):
        return f"decimal({type.precision},{type.scale})"
    if isinstance(type, ListType):
        return f"array<{_spark_type(type.element_type, column)}>"
    if isinstance(type, MapType):
        return f"map<{_spark_type(type.key_type, column)},{_spark_type(type.value_type, column)}>"
    if isinstance(type, StructType):
        return f"struct<{','.join(f'{field.name}:{_spark_type(field.field_type, column)}' for field in type.fields)}>"
    if str(type) not in _TYPES:
        raise SchemaError(f"column {column!r} has the Iceberg type {type}, which can't be stored; cast it")
    return _TYPES[str(type)]
