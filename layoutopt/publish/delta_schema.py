"""A table's schema as Delta Lake writes it."""

from __future__ import annotations

import re

from layoutopt.errors import PublicationError
from layoutopt.model.schema import Schema
from layoutopt.model.types import decimal_digits, nested_parts, struct_fields

_SIMPLE = {
    "boolean": "boolean",
    "tinyint": "byte",
    "smallint": "short",
    "int": "integer",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
}
_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=]")

DeltaType = str | dict[str, object]


def delta_schema(schema: Schema) -> dict[str, object]:
    """The schema as Delta's log has it, every column nullable.

    Raises:
        PublicationError: a column's type or name is one that Delta does not have.
    """
    for column in schema.columns:
        if _FORBIDDEN.search(column.name):
            raise PublicationError(
                f"the column {column.name!r} has one of ` ,;{{}}()=` or white space in its name, which Delta tables "
                "can't have; rename it and load again"
            )
    return {"type": "struct", "fields": [_field(column.name, column.type, column.name) for column in schema.columns]}


def has_local_times(schema: Schema) -> bool:
    """Whether a column holds times without a zone: a feature of the protocol that readers must know."""
    return any("timestamp_ntz" in column.type for column in schema.columns)


def _field(name: str, type: str, column: str) -> dict[str, object]:
    return {"name": name, "type": _type(type, column), "nullable": True, "metadata": {}}


def _type(type: str, column: str) -> DeltaType:
    kind, parts = nested_parts(type)
    if parts and kind == "array":
        return {"type": "array", "elementType": _type(parts[0], column), "containsNull": True}
    if parts and kind == "map":
        key, value = (_type(part, column) for part in parts)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if parts and kind == "struct":
        return {"type": "struct", "fields": [_field(name, of, column) for name, of in struct_fields(type)]}
    if decimal_digits(type):
        return type
    if re.fullmatch(r"varchar\(\d+\)", type):
        return "string"
    if type not in _SIMPLE:
        raise PublicationError(
            f"column {column!r} is of type {type}, which Delta tables don't have; cast it and load again"
        )
    return _SIMPLE[type]
