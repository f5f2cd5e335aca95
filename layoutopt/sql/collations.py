"""What Spark keeps beside the schema that all other engines read: the collations of texts, and which columns vary."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from layoutopt.model.types import VARIANT

_ROW_METADATA: Final = b"org.apache.spark.sql.parquet.row.metadata"
_COLLATIONS: Final = "__COLLATIONS"

Collations = Mapping[str, str]
"""The collation of each text in a column by its path, such as ``s`` or ``m.value``; plain texts are left out."""


def collations_of(schema: pa.Schema) -> dict[str, Collations]:
    """Each collated column's collations; fields of structs lie below the path of the struct.

    Spark writes them into the metadata of the field that holds the text: ``{"arr.element": "spark.UTF8_LCASE"}``, the
    name's first part being the provider. Metadata that is no JSON of Spark's says nothing, as it does to Spark.
    """
    found = {name: _of_field(field) for name, field in _described(schema)}
    return {name: collations for name, collations in found.items() if collations}


def variants_of(schema: pa.Schema) -> frozenset[str]:
    """The columns that are of type VARIANT to Spark, which other readers take for structs of binaries."""
    return frozenset(name for name, field in _described(schema) if field.get("type") == VARIANT)


def _described(schema: pa.Schema) -> list[tuple[str, Any]]:
    """The columns as Spark describes them; none where it does not."""
    try:
        return _fields(json.loads((schema.metadata or {}).get(_ROW_METADATA, b"null")))
    except ValueError:
        return []


def _fields(struct: Any) -> list[tuple[str, Any]]:
    fields = struct.get("fields") if isinstance(struct, dict) else None
    named = [field for field in fields if isinstance(field, dict)] if isinstance(fields, list) else []
    return [(str(field.get("name")), field) for field in named]


def _of_field(field: Mapping[str, Any]) -> dict[str, str]:
    """The collations of a field by path, the field's own name first."""
    name, metadata = str(field.get("name")), field.get("metadata")
    noted = metadata.get(_COLLATIONS) if isinstance(metadata, dict) else None
    found = (
        {str(path): str(given).rsplit(".", 1)[-1] for path, given in noted.items()} if isinstance(noted, dict) else {}
    )
    return found | _inside(name, field.get("type"))


def _inside(path: str, kind: Any) -> dict[str, str]:
    """The collations of the structs inside a type: their fields have metadata of their own."""
    found: dict[str, str] = {}
    if not isinstance(kind, dict):
        return found
    for part, inner in (("element", "elementType"), ("key", "keyType"), ("value", "valueType")):
        found |= _inside(f"{path}.{part}", kind.get(inner))
    for _, field in _fields(kind):
        found |= {f"{path}.{below}": given for below, given in _of_field(field).items()}
    return found
