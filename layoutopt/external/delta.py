"""Read Delta tables as sources: files and deletion vectors by deltalake, columns by their physical names."""

from __future__ import annotations

import json
import re
from typing import Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from layoutopt.catalog.storage.filesystem import TableFiles, has_codes
from layoutopt.errors import SchemaError, SourceError
from layoutopt.external.snapshot import SnapshotFile, SourceSnapshot, strip_scheme
from layoutopt.model.arrays import Ints
from layoutopt.model.schema import Column, Schema

_SUPPORTED_FEATURES: Final = frozenset(
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


def delta_snapshot(place: str, version: int | None) -> SourceSnapshot:
    """Return a Delta table at a version, or at the newest.

    Raises:
        SourceError: it can't be read, or needs a protocol feature that is not supported.
        SchemaError: a column's type can't be stored.
    """
    if has_codes(place):  # deltalake decodes both paths and URLs
        raise SourceError(f"the folder {place!r} has a %-code in its name, which deltalake decodes; rename it")
    try:
        table = DeltaTable(place, version=version)
        _check_protocol(table, place)
        fields = json.loads(table.schema().to_json())["fields"]
        actions = pa.table(table.get_add_actions()).to_pylist()
        deleted = _read_deletes(table) if "deletionVectors" in (table.protocol().reader_features or ()) else {}
    except (DeltaError, OSError, ValueError) as error:
        cause = " ".join(str(error).split())[:200]
        raise SourceError(f"the Delta table {place!r} can't be read: {cause}") from error
    schema = Schema(tuple(Column(field["name"], _spark_type(field["type"], field["name"], False)) for field in fields))
    partition_columns = set(table.metadata().partition_columns)
    physical = {field["name"]: field["metadata"].get(_PHYSICAL, field["name"]) for field in fields}
    stored = tuple(None if field["name"] in partition_columns else physical[field["name"]] for field in fields)
    root = TableFiles(place).full_path("").rstrip("/")
    files = []
    for action in actions:
        path = unquote(action["path"])
        path = path if _SCHEME.match(path) else f"{root}/{path}"
        values = action.get("partition") or {}
        constants = {c: values[c] if c in values else values[physical[c]] for c in partition_columns}
        files.append(SnapshotFile(path, stored, constants, deleted.get(strip_scheme(path))))
    unknown = set(deleted) - {strip_scheme(file.path) for file in files}
    if unknown:
        raise SourceError(
            f"the Delta table {place!r} has deleted rows of {min(unknown)!r}, which is not one of its files"
        )
    return SourceSnapshot(
        f"delta:{place}@{table.version()}",
        schema,
        tuple(_spark_type(field["type"], field["name"], True) for field in fields),
        tuple(sorted(files, key=lambda file: file.path)),
    )


def _check_protocol(table: DeltaTable, place: str) -> None:
    protocol = table.protocol()
    unknown = sorted(set(protocol.reader_features or ()) - _SUPPORTED_FEATURES)
    if unknown or protocol.min_reader_version > _LATEST_VERSION:
        raise SourceError(
            f"the Delta table {place!r} needs {', '.join(unknown) or f'version {protocol.min_reader_version}'} of "
            "the protocol, which is not supported; rewrite the table without it"
        )
    if table.metadata().configuration.get("delta.columnMapping.mode") == "id":
        raise SourceError(
            f"the Delta table {place!r} maps columns by id, which is not supported; rewrite it with "
            "delta.columnMapping.mode = name"
        )


def _read_deletes(table: DeltaTable) -> dict[str, Ints]:
    """Return the positions of deleted rows, by :func:`strip_scheme` of the files' paths."""
    return {
        strip_scheme(unquote(row["filepath"])): np.flatnonzero(~np.array(row["selection_vector"], dtype=np.bool_))
        for row in pa.table(table.deletion_vectors()).to_pylist()
    }


def _spark_type(type: object, column: str, physical: bool) -> str:
    """Return Spark's name of a Delta type, with the physical or the logical names of its fields."""
    if isinstance(type, str):
        if type in _TYPES or type.startswith("decimal("):
            return _TYPES.get(type, type.replace(" ", ""))
    elif isinstance(type, dict) and type["type"] == "array":
        return f"array<{_spark_type(type['elementType'], column, physical)}>"
    elif isinstance(type, dict) and type["type"] == "map":
        key, value = (_spark_type(type[part], column, physical) for part in ("keyType", "valueType"))
        return f"map<{key},{value}>"
    elif isinstance(type, dict) and type["type"] == "struct":
        names = [f["metadata"].get(_PHYSICAL, f["name"]) if physical else f["name"] for f in type["fields"]]
        types = [_spark_type(f["type"], column, physical) for f in type["fields"]]
        return f"struct<{','.join(f'{name}:{type}' for name, type in zip(names, types, strict=True))}>"
    raise SchemaError(f"column {column!r} has the Delta type {type!r:.80}, which can't be stored; cast it")
