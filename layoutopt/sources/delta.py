"""Delta tables as sources: files and deletion vectors by the library, columns by their physical names."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from layoutopt.catalog.storage.filesystem import TableFiles, has_codes
from layoutopt.errors import SchemaError, SourceError
from layoutopt.model.arrays import Ints
from layoutopt.model.schema import Column, Schema
from layoutopt.sources.snapshot import SnapshotFile, SourceName, SourceSnapshot, ending

_UNDERSTOOD: Final = frozenset(
    {
        "columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "invariants",
        "appendOnly", "variantType", "variantType-preview", "checkConstraints", "domainMetadata",
    }
)  # fmt: skip
_LATEST_VERSION: Final = 3
_TYPES: Final = {
    "boolean": "boolean", "byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "float": "float",
    "double": "double", "string": "string", "binary": "binary", "date": "date", "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
}  # fmt: skip
_PHYSICAL: Final = "delta.columnMapping.physicalName"
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def delta_snapshot(name: SourceName) -> SourceSnapshot:
    """A Delta table at a version.

    Raises:
        SourceError: it can't be read, or needs a feature of the protocol that is not understood here.
        SchemaError: a column's type can't be stored.
    """
    if has_codes(name.place):  # deltalake decodes it, be it a path or a URL
        raise SourceError(
            f"the folder {name.place!r} has a code with % in its name, which is read as another; rename it"
        )
    try:
        table = DeltaTable(name.place, version=name.version)
        _check_protocol(table, name)
        fields = json.loads(table.schema().to_json())["fields"]
        actions = pa.table(table.get_add_actions()).to_pylist()
        deleted = _deleted(table) if "deletionVectors" in (table.protocol().reader_features or ()) else {}
    except (DeltaError, OSError, ValueError) as error:
        cause = " ".join(str(error).split())[:200]
        raise SourceError(f"the Delta table {name.place!r} can't be read: {cause}") from error
    schema = Schema(tuple(Column(field["name"], _type(field["type"], field["name"], False)) for field in fields))
    by = set(table.metadata().partition_columns)
    physical = {field["name"]: field["metadata"].get(_PHYSICAL, field["name"]) for field in fields}
    stored = tuple(None if field["name"] in by else physical[field["name"]] for field in fields)
    root = TableFiles(name.place).full_path("").rstrip("/")
    files = [_file(root, action, stored, by, physical, deleted) for action in actions]
    lost = set(deleted) - {ending(file.path) for file in files}
    if lost:
        raise SourceError(
            f"the Delta table {name.place!r} has deleted rows of {min(lost)!r}, which is none of its files"
        )
    return SourceSnapshot(
        SourceName("delta", name.place, table.version()).text,
        schema,
        tuple(_type(field["type"], field["name"], True) for field in fields),
        tuple(sorted(files, key=lambda file: file.path)),
    )


def _check_protocol(table: DeltaTable, name: SourceName) -> None:
    protocol = table.protocol()
    unknown = sorted(set(protocol.reader_features or ()) - _UNDERSTOOD)
    if unknown or protocol.min_reader_version > _LATEST_VERSION:
        raise SourceError(
            f"the Delta table {name.place!r} needs {', '.join(unknown) or f'version {protocol.min_reader_version}'} of "
            "the protocol, which is not understood here; write it anew without that"
        )
    if table.metadata().configuration.get("delta.columnMapping.mode") == "id":
        raise SourceError(
            f"the Delta table {name.place!r} maps columns by id, which is not understood here; write it anew with "
            "delta.columnMapping.mode = name"
        )


def _file(
    root: str,
    action: Mapping[str, Any],
    stored: tuple[str | None, ...],
    by: set[str],
    physical: Mapping[str, str],
    deleted: Mapping[str, Ints],
) -> SnapshotFile:
    path = unquote(action["path"])
    whole = path if _SCHEME.match(path) else f"{root}/{path}"
    values = action.get("partition") or {}
    constants = {column: values[column] if column in values else values[physical[column]] for column in by}
    return SnapshotFile(whole, stored, constants, deleted.get(ending(whole)))


def _deleted(table: DeltaTable) -> dict[str, Ints]:
    """The positions of deleted rows, by :func:`ending` of the files' paths."""
    return {
        ending(unquote(row["filepath"])): np.flatnonzero(~np.array(row["selection_vector"], dtype=np.bool_))
        for row in pa.table(table.deletion_vectors()).to_pylist()
    }


def _type(type: object, column: str, physical: bool) -> str:
    """Spark's name of a type of Delta's schema; with the physical names of its fields, or those that users see."""
    if isinstance(type, str):
        if type in _TYPES or type.startswith("decimal("):
            return _TYPES.get(type, type.replace(" ", ""))
    elif isinstance(type, dict) and type["type"] == "array":
        return f"array<{_type(type['elementType'], column, physical)}>"
    elif isinstance(type, dict) and type["type"] == "map":
        return f"map<{_type(type['keyType'], column, physical)},{_type(type['valueType'], column, physical)}>"
    elif isinstance(type, dict) and type["type"] == "struct":
        names = [
            (f["metadata"].get(_PHYSICAL, f["name"]) if physical else f["name"], f["type"]) for f in type["fields"]
        ]
        return f"struct<{','.join(f'{name}:{_type(of, column, physical)}' for name, of in names)}>"
    raise SchemaError(f"column {column!r} is of Delta's type {type!r:.80}, which can't be stored; cast it")
