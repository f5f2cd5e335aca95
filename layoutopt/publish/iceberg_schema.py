"""A table's columns as Iceberg's types, and what its manifests say of a file's values.

Bounds leave NaN out, as the format demands. A file that has a NaN in a column (or perhaps has one) gets no upper bound:
Spark, DuckDB and Polars take NaN for the largest number, and would skip it by the largest other one. Zero is -0.0 as a
lower bound and 0.0 as an upper one, since the format orders the two.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import count
from typing import Final

from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table.name_mapping import MappedField, NameMapping, create_mapping_from_schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from layoutopt.errors import PublicationError
from layoutopt.model.columns import RESERVED
from layoutopt.model.schema import Column, Schema
from layoutopt.model.types import decimal_digits, nested_parts, struct_fields
from layoutopt.model.values import NAN_KEY, Key, from_key
from layoutopt.publish.contents import DataFile

_SIMPLE: Final = {
    "boolean": BooleanType(),
    "tinyint": IntegerType(),
    "smallint": IntegerType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestamptzType(),
    "timestamp_ntz": TimestampType(),
}
_FLOATS: Final = {"float": "<f", "double": "<d"}
_INTEGERS: Final = {"tinyint": "<i", "smallint": "<i", "int": "<i", "date": "<i"}
FIRST_RESERVED: Final = 1_000_000_001
"""Field ids of what files hold beside the table's columns: mapped, as readers demand, and none of its columns."""


def iceberg_type(type: str, column: str, ids: Iterator[int]) -> IcebergType:
    """The Iceberg type of a Spark type; fields inside it take the next ids.

    Raises:
        PublicationError: Iceberg has none.
    """
    kind, parts = nested_parts(type)
    if parts and kind == "array":
        return ListType(next(ids), iceberg_type(parts[0], column, ids), element_required=False)
    if parts and kind == "map":
        key, value = (iceberg_type(part, column, ids) for part in parts)
        return MapType(next(ids), key, next(ids), value, value_required=False)
    if parts and kind == "struct":
        fields = [
            NestedField(next(ids), name, iceberg_type(of, column, ids), required=False)
            for name, of in struct_fields(type)
        ]
        return StructType(*fields)
    digits = decimal_digits(type)
    if digits:
        return DecimalType(*digits)
    if re.fullmatch(r"varchar\(\d+\)", type):
        return StringType()
    if type not in _SIMPLE:
        raise PublicationError(
            f"column {column!r} is of type {type}, which Iceberg tables don't have; cast it and load again"
        )
    return _SIMPLE[type]


def iceberg_schema(schema: Schema, first: int = 1) -> IcebergSchema:
    """The columns under ids from ``first`` on, all optional; a table gives them ids of its own.

    Raises:
        PublicationError: a column's type is one that Iceberg does not have.
    """
    ids = count(first)
    fields = [
        NestedField(next(ids), column.name, iceberg_type(column.type, column.name, ids), required=False)
        for column in schema.columns
    ]
    return IcebergSchema(*fields)


def spelled(schema: Schema) -> str:
    """The columns with their Spark types as one text, which a table keeps to tell whether they changed."""
    return json.dumps([[column.name, column.type] for column in schema.columns], ensure_ascii=False)


def name_mapping(schema: IcebergSchema, hidden: Schema) -> str:
    """Which column of a file without ids is which of the table; hidden ones and our own are mapped to nothing."""
    ours = [MappedField(field_id=FIRST_RESERVED + n, names=[name]) for n, name in enumerate(sorted(RESERVED))]
    others = create_mapping_from_schema(iceberg_schema(hidden, FIRST_RESERVED + len(ours))).root
    return NameMapping([*create_mapping_from_schema(schema).root, *others, *ours]).model_dump_json()


@dataclass(frozen=True)
class Metrics:
    """What a manifest says of a file, by field id."""

    column_sizes: dict[int, int] = field(default_factory=dict)
    value_counts: dict[int, int] = field(default_factory=dict)
    null_value_counts: dict[int, int] = field(default_factory=dict)
    nan_value_counts: dict[int, int] = field(default_factory=dict)
    lower_bounds: dict[int, bytes] = field(default_factory=dict)
    upper_bounds: dict[int, bytes] = field(default_factory=dict)


def data_file(
    file: DataFile,
    path: str,
    size: int,
    columns: Schema,
    schema: IcebergSchema,
    partition: Record,
    spec: int = UNPARTITIONED_PARTITION_SPEC.spec_id,
) -> IcebergFile:
    """A file as manifests have it: of this path or URL and size in bytes, with its metrics."""
    return IcebergFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=file.rows,
        file_size_in_bytes=size,
        spec_id=spec,
        **vars(metrics_of(file, columns, schema)),
    )


def metrics_of(file: DataFile, columns: Schema, schema: IcebergSchema) -> Metrics:
    """The metrics of a file's columns; of nested ones there are none."""
    metrics = Metrics()
    for column in columns.columns:
        found = schema.find_field(column.name)
        if found.field_type.is_primitive:
            _measure(metrics, file, column, found.field_id)
    return metrics


def _measure(metrics: Metrics, file: DataFile, column: Column, place: int) -> None:
    bounds = file.bounds(column)
    metrics.value_counts[place] = file.rows
    size = file.bytes_of(column)
    if size:
        metrics.column_sizes[place] = size
    if bounds.nulls is not None:
        metrics.null_value_counts[place] = bounds.nulls
    nans = file.nans(column) if column.type in _FLOATS else None
    if nans is not None:
        metrics.nan_value_counts[place] = nans
    if bounds.low is None or bounds.high is None:
        return
    is_nan = column.type in _FLOATS and NAN_KEY in (bounds.low, bounds.high)
    if not (is_nan and bounds.low == NAN_KEY):
        metrics.lower_bounds[place] = _bytes(bounds.low, column.type, -0.0)
    if not is_nan:
        metrics.upper_bounds[place] = _bytes(bounds.high, column.type, 0.0)


def _bytes(key: Key, type: str, zero: float) -> bytes:
    """A key as Iceberg's single-value serialisation; ``zero`` stands for both zeros."""
    if isinstance(key, bytes):
        return key
    if isinstance(key, str):
        return key.encode()
    if type in _FLOATS:
        value = from_key(key, type)
        return struct.pack(_FLOATS[type], value or zero)
    if type == "boolean":
        return bytes([key])
    digits = decimal_digits(type)
    if digits:
        value = from_key(key, type)
        assert isinstance(value, Decimal)
        return to_bytes(DecimalType(*digits), value)
    return struct.pack(_INTEGERS.get(type, "<q"), key)
