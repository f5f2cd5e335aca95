"""Iceberg schemas, metadata and manifests of a snapshot, written on demand and outside the table.

Manifests for clients that plan scans themselves go to a folder of the caller, one for each load of a partition, so
that a new snapshot writes only the changed ones. The table is shown unpartitioned: bounds of the partition column skip
as much, and every engine interprets them alike.

Column bounds leave out NaN, as the format requires. A file that may have a NaN gets no upper bound, since Spark,
DuckDB and Polars order NaN above all numbers. Zero is -0.0 as a lower bound and 0.0 as an upper bound.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from itertools import count
from threading import Lock
from typing import Final

from pyiceberg.conversions import to_bytes
from pyiceberg.io import OutputFile, load_file_io
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import (
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.name_mapping import MappedField, NameMapping, create_mapping_from_schema
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotLogEntry, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
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

from layoutopt.catalog.snapshot import PartitionEntry
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.errors import PublicationError
from layoutopt.model.schema import RESERVED, Column, Schema
from layoutopt.model.types import decimal_digits, nested_parts, struct_fields
from layoutopt.model.values import NAN_KEY, Key, from_key
from layoutopt.publish.contents import DataFile, View, find_sizes, list_entry_files
from layoutopt.publish.table_format import SNAPSHOT_PROPERTY, VIEW_PROPERTY

_CODEC: Final = "deflate"
_FORMAT: Final = 2
_LAST_PARTITION_ID: Final = 999
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
# The first field id of file columns that are not shown: readers require them to be mapped.
FIRST_RESERVED: Final = 1_000_000_001


def iceberg_type(type: str, column: str, ids: Iterator[int]) -> IcebergType:
    """Return the Iceberg type of a Spark type; nested fields take the next ids.

    Raises:
        PublicationError: Iceberg does not support the type.
    """
    kind, parts = nested_parts(type)
    if parts and kind == "array":
        return ListType(next(ids), iceberg_type(parts[0], column, ids), element_required=False)
    if parts and kind == "map":
        key, value = (iceberg_type(part, column, ids) for part in parts)
        return MapType(next(ids), key, next(ids), value, value_required=False)
    if parts and kind == "struct":
        fields = [
            NestedField(next(ids), name, iceberg_type(kind, column, ids), required=False)
            for name, kind in struct_fields(type)
        ]
        return StructType(*fields)
    digits = decimal_digits(type)
    if digits:
        return DecimalType(*digits)
    if re.fullmatch(r"varchar\(\d+\)", type):
        return StringType()
    if type not in _SIMPLE:
        raise PublicationError(
            f"column {column!r} is of type {type}, which Iceberg tables don't support; cast it and load again"
        )
    return _SIMPLE[type]


def iceberg_schema(schema: Schema, first: int = 1) -> IcebergSchema:
    """Return the columns as optional fields with ids from ``first`` on.

    Raises:
        PublicationError: Iceberg does not support a column's type.
    """
    ids = count(first)
    fields = [
        NestedField(next(ids), column.name, iceberg_type(column.type, column.name, ids), required=False)
        for column in schema.columns
    ]
    return IcebergSchema(*fields)


def spell_columns(schema: Schema) -> str:
    """Return the names and Spark types as JSON, which a table keeps to detect changes."""
    return json.dumps([[column.name, column.type] for column in schema.columns], ensure_ascii=False)


def name_mapping(schema: IcebergSchema, hidden: Schema) -> str:
    """Return the name mapping as JSON; hidden and reserved columns are mapped to unused ids."""
    reserved = [MappedField(field_id=FIRST_RESERVED + n, names=[name]) for n, name in enumerate(sorted(RESERVED))]
    unread = create_mapping_from_schema(iceberg_schema(hidden, FIRST_RESERVED + len(reserved))).root
    return NameMapping([*create_mapping_from_schema(schema).root, *unread, *reserved]).model_dump_json()


@dataclass(frozen=True)
class Metrics:
    """The column metrics of a manifest entry by field id."""

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
    """Return a data file entry with metrics; ``path`` is a path or URL, ``size`` is in bytes."""
    return IcebergFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=file.rows,
        file_size_in_bytes=size,
        spec_id=spec,
        **vars(make_metrics(file, columns, schema)),
    )


def make_metrics(file: DataFile, columns: Schema, schema: IcebergSchema) -> Metrics:
    """Return the metrics of a file's columns; nested columns have none."""
    metrics = Metrics()
    for column in columns.columns:
        field = schema.find_field(column.name)
        if field.field_type.is_primitive:
            _add_metrics(metrics, file, column, field.field_id)
    return metrics


def _add_metrics(metrics: Metrics, file: DataFile, column: Column, id: int) -> None:
    bounds = file.bounds(column)
    metrics.value_counts[id] = file.rows
    size = file.bytes_of(column)
    if size:
        metrics.column_sizes[id] = size
    if bounds.nulls is not None:
        metrics.null_value_counts[id] = bounds.nulls
    nans = file.nans(column) if column.type in _FLOATS else None
    if nans is not None:
        metrics.nan_value_counts[id] = nans
    if bounds.low is None or bounds.high is None:
        return
    is_nan = column.type in _FLOATS and NAN_KEY in (bounds.low, bounds.high)
    if not (is_nan and bounds.low == NAN_KEY):
        metrics.lower_bounds[id] = _bytes(bounds.low, column.type, -0.0)
    if not is_nan:
        metrics.upper_bounds[id] = _bytes(bounds.high, column.type, 0.0)


def _bytes(key: Key, type: str, zero: float) -> bytes:
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


def snapshot_id(number: int) -> int:
    """Return the Iceberg id of a snapshot: its number plus one, since some readers treat 0 as missing."""
    return number + 1


def snapshot_number(id: int) -> int:
    """Return the number of the snapshot with an Iceberg id."""
    return id - 1


def metadata_json(snapshots: Sequence[tuple[Catalog, str]], view: View) -> str:
    """Return Iceberg's metadata of one view of a table as JSON.

    Field ids are positions. Columns are only added at the end, so an id always means the same column.

    Args:
        snapshots: ascending snapshots of the table, each with the path or URL of its manifest list; the last is
            current.
        view: the view of the last one.

    Raises:
        PublicationError: Iceberg does not support a column's type.
    """
    catalog, schema = snapshots[-1][0], _schema(view)
    entries = [_to_iceberg(snapshot, manifests) for snapshot, manifests in snapshots]
    layout = "" if view.layout is None else str(view.layout)
    location = catalog.files.full_path("").rstrip("/")
    metadata = TableMetadataV2(
        location=location,
        table_uuid=uuid.uuid5(uuid.NAMESPACE_URL, f"{location}#{layout}"),
        last_updated_ms=entries[-1].timestamp_ms,
        last_column_id=schema.highest_field_id,
        schemas=[schema],
        current_schema_id=schema.schema_id,
        partition_specs=[UNPARTITIONED_PARTITION_SPEC],
        last_partition_id=_LAST_PARTITION_ID,
        properties={
            SNAPSHOT_PROPERTY: str(catalog.snapshot.number),
            VIEW_PROPERTY: layout,
            "schema.name-mapping.default": name_mapping(schema, view.hidden),
        },
        current_snapshot_id=entries[-1].snapshot_id,
        snapshots=entries,
        snapshot_log=[SnapshotLogEntry(snapshot_id=e.snapshot_id, timestamp_ms=e.timestamp_ms) for e in entries],
        sort_orders=[UNSORTED_SORT_ORDER],
        last_sequence_number=entries[-1].sequence_number,
    )
    return metadata.model_dump_json(by_alias=True, exclude_none=True)


def _to_iceberg(catalog: Catalog, manifests: str) -> Snapshot:
    snapshot = catalog.snapshot
    return Snapshot(
        snapshot_id=snapshot_id(snapshot.number),
        sequence_number=snapshot_id(snapshot.number),
        timestamp_ms=int(datetime.fromisoformat(snapshot.created_at).timestamp() * 1000),
        manifest_list=manifests,
        summary=Summary(Operation.APPEND, **{SNAPSHOT_PROPERTY: str(snapshot.number)}),
    )


def _schema(view: View) -> IcebergSchema:
    fields = iceberg_schema(view.columns).fields
    return IcebergSchema(*fields, schema_id=len(fields))


@dataclass(frozen=True, eq=False)
class ManifestFolder:
    """A folder for manifests of one process, which writes each manifest once."""

    files: TableFiles
    _written: dict[str, ManifestFile] = field(default_factory=dict)
    _lists: dict[str, str] = field(default_factory=dict)
    _locks: defaultdict[str, Lock] = field(default_factory=lambda: defaultdict(Lock))

    def output(self, name: str) -> OutputFile:
        """Return a new output file of the folder."""
        path = self.files.full_path(name)
        return load_file_io({}, location=path).new_output(path)

    def write_list_once(
        self, name: str, id: int, sequence: int, manifests: Callable[[ManifestFolder, str], Sequence[ManifestFile]]
    ) -> str:
        """Return the path or URL of a manifest list, which the first call writes.

        Args:
            name: identifies the content.
            id, sequence: the Iceberg snapshot id and sequence number.
            manifests: writes the manifests into the folder, under names that start with ``name``.

        Raises:
            OSError: the folder can't be written.
        """
        with self._locks[name]:
            if name not in self._lists:
                written, file = manifests(self, name), f"snap-{name}.avro"
                with write_manifest_list(_FORMAT, self.output(file), id, None, sequence, _CODEC) as writer:
                    writer.add_manifests(list(written))
                self._lists[name] = self.files.full_path(file)
            return self._lists[name]

    def manifest_list(self, catalog: Catalog, view: View) -> str:
        """Return the path or URL of a snapshot's manifest list, which the first call writes.

        Raises:
            CatalogError: a file of the table is missing or damaged.
            OSError: the folder can't be written.
        """
        name = _name(catalog, view, str(catalog.snapshot.number), catalog.snapshot.created_at)
        with self._locks[_name(catalog, view)]:  # one lock a table
            if name not in self._lists:
                self._lists[name] = self._write_list(f"snap-{name}.avro", catalog, view)
            return self._lists[name]

    def _write_list(self, name: str, catalog: Catalog, view: View) -> str:
        manifests = [self._manifest(catalog, view, entry) for entry in catalog.partitions]
        id = snapshot_id(catalog.snapshot.number)
        with write_manifest_list(_FORMAT, self.output(name), id, None, id, _CODEC) as writer:
            writer.add_manifests([manifest for manifest in manifests if manifest is not None])
        return self.files.full_path(name)

    def _manifest(self, catalog: Catalog, view: View, entry: PartitionEntry) -> ManifestFile | None:
        """The manifest of one load of a partition; None where the view has no file of it."""
        name = _name(catalog, view, entry.key, entry.load_id, entry.blocks_file, entry.plan)
        if name in self._written:
            return self._written[name]
        files = list_entry_files(catalog, view, entry)
        if not files:
            return None
        sizes, schema = find_sizes(catalog, files), _schema(view)
        id, output = snapshot_id(catalog.snapshot.number), self.output(f"{name}.avro")
        with write_manifest(_FORMAT, UNPARTITIONED_PARTITION_SPEC, schema, output, id, _CODEC) as writer:
            for path, file in sorted(files.items()):
                data = data_file(file, catalog.files.full_path(path), sizes[path][0], view.columns, schema, Record())
                manifest_entry = ManifestEntry.from_args(
                    status=ManifestEntryStatus.EXISTING,
                    snapshot_id=id,
                    sequence_number=id,
                    file_sequence_number=id,
                    data_file=data,
                )
                writer.existing(manifest_entry)
        manifest = writer.to_manifest_file()
        manifest.sequence_number = id
        self._written[name] = manifest
        return manifest


def _name(catalog: Catalog, view: View, *parts: str) -> str:
    parts_of_name = [catalog.files.full_path(""), str(view.layout), spell_columns(view.columns), *parts]
    return hashlib.sha256("\n".join(parts_of_name).encode()).hexdigest()[:32]
