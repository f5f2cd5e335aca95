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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from itertools import count
from threading import Lock
from typing import Any, Final

from pyiceberg import types
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
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.name_mapping import MappedField, NameMapping, create_mapping_from_schema
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotLogEntry, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.typedef import Record

from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.errors import PublicationError
from layoutopt.model.schema import RESERVED, Schema
from layoutopt.model.types import decimal_digits, nested_parts, struct_fields
from layoutopt.model.values import NAN_KEY, Key, from_key
from layoutopt.publish.contents import DataFile, View, find_sizes, list_entry_files
from layoutopt.publish.table_format import SNAPSHOT_PROPERTY, VIEW_PROPERTY

_CODEC: Final = "deflate"
_FORMAT: Final = 2
_LAST_PARTITION_ID: Final = 999
_SIMPLE: Final = {
    "boolean": types.BooleanType(),
    "tinyint": types.IntegerType(),
    "smallint": types.IntegerType(),
    "int": types.IntegerType(),
    "bigint": types.LongType(),
    "float": types.FloatType(),
    "double": types.DoubleType(),
    "string": types.StringType(),
    "binary": types.BinaryType(),
    "date": types.DateType(),
    "timestamp": types.TimestamptzType(),
    "timestamp_ntz": types.TimestampType(),
}
_METRICS: Final = (
    "column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds",
)  # fmt: skip
_FLOATS: Final = {"float": "<f", "double": "<d"}
_INTEGERS: Final = {"tinyint": "<i", "smallint": "<i", "int": "<i", "date": "<i"}
# The first field id of file columns that are not shown: readers require them to be mapped.
FIRST_RESERVED: Final = 1_000_000_001


def iceberg_type(type: str, column: str, ids: Iterator[int]) -> types.IcebergType:
    """Return the Iceberg type of a Spark type; nested fields take the next ids.

    Raises:
        PublicationError: Iceberg does not support the type.
    """
    kind, parts = nested_parts(type)
    if parts and kind == "array":
        return types.ListType(next(ids), iceberg_type(parts[0], column, ids), element_required=False)
    if parts and kind == "map":
        key, value = (iceberg_type(part, column, ids) for part in parts)
        return types.MapType(next(ids), key, next(ids), value, value_required=False)
    if parts and kind == "struct":
        fields = [
            types.NestedField(next(ids), name, iceberg_type(kind, column, ids), required=False)
            for name, kind in struct_fields(type)
        ]
        return types.StructType(*fields)
    digits = decimal_digits(type)
    if digits:
        return types.DecimalType(*digits)
    if re.fullmatch(r"varchar\(\d+\)", type):
        return types.StringType()
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
        types.NestedField(next(ids), column.name, iceberg_type(column.type, column.name, ids), required=False)
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
        **_measure_columns(file, columns, schema),
    )


def _measure_columns(file: DataFile, columns: Schema, schema: IcebergSchema) -> dict[str, Any]:
    """Return the metrics of a manifest entry by field id; nested columns have none."""
    metrics: dict[str, dict[int, Any]] = {name: {} for name in _METRICS}
    for column in columns.columns:
        field = schema.find_field(column.name)
        if not field.field_type.is_primitive:
            continue
        bounds, is_float = file.bounds(column), column.type in _FLOATS
        has_bounds = bounds.low is not None and bounds.high is not None
        values = (
            file.bytes_of(column) or None,
            file.rows,
            bounds.nulls,
            file.nans(column) if is_float else None,
            _to_bytes(bounds.low, column.type, -0.0) if has_bounds else None,
            _to_bytes(bounds.high, column.type, 0.0) if has_bounds else None,
        )
        for name, value in zip(_METRICS, values, strict=True):
            if value is not None:
                metrics[name][field.field_id] = value
    return metrics


def _to_bytes(key: Key | None, type: str, zero: float) -> bytes | None:
    """Return a bound as Iceberg's single-value serialisation, with ``zero`` for both zeros; None for NaN."""
    if key is None or (type in _FLOATS and key == NAN_KEY):
        return None
    if isinstance(key, bytes):
        return key
    if isinstance(key, str):
        return key.encode()
    if type in _FLOATS:
        return struct.pack(_FLOATS[type], from_key(key, type) or zero)
    if type == "boolean":
        return bytes([key])
    digits = decimal_digits(type)
    if digits:
        number = from_key(key, type)
        assert isinstance(number, Decimal)
        return to_bytes(types.DecimalType(*digits), number)
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
    properties = {
        SNAPSHOT_PROPERTY: str(catalog.snapshot.number),
        VIEW_PROPERTY: layout,
        "schema.name-mapping.default": name_mapping(schema, view.hidden),
    }
    return render_metadata(location, layout, schema, [UNPARTITIONED_PARTITION_SPEC], properties, entries)


def render_metadata(
    location: str,
    name: str,
    schema: IcebergSchema,
    specs: list[PartitionSpec],
    properties: dict[str, str],
    snapshots: list[Snapshot],
) -> str:
    """Return metadata as JSON; location and name identify the table, and the last snapshot is current."""
    newest = snapshots[-1]
    metadata = TableMetadataV2(
        location=location,
        table_uuid=uuid.uuid5(uuid.NAMESPACE_URL, f"{location}#{name}"),
        last_updated_ms=newest.timestamp_ms,
        last_column_id=schema.highest_field_id,
        schemas=[schema],
        current_schema_id=schema.schema_id,
        partition_specs=specs,
        last_partition_id=max((f.field_id for spec in specs for f in spec.fields), default=_LAST_PARTITION_ID),
        properties=properties,
        current_snapshot_id=newest.snapshot_id,
        snapshots=snapshots,
        snapshot_log=[SnapshotLogEntry(snapshot_id=s.snapshot_id, timestamp_ms=s.timestamp_ms) for s in snapshots],
        sort_orders=[UNSORTED_SORT_ORDER],
        last_sequence_number=newest.sequence_number,
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

    def write_manifest(
        self, name: str, schema: IcebergSchema, id: int, sequence: int, files: Iterable[IcebergFile]
    ) -> ManifestFile:
        """Write the manifest of existing data files; ``id`` and ``sequence`` are their snapshot's."""
        spec, output = UNPARTITIONED_PARTITION_SPEC, self._open_output(f"{name}.avro")
        with write_manifest(_FORMAT, spec, schema, output, id, _CODEC) as writer:
            for file in files:
                entry = ManifestEntry.from_args(
                    status=ManifestEntryStatus.EXISTING,
                    snapshot_id=id,
                    sequence_number=sequence,
                    file_sequence_number=sequence,
                    data_file=file,
                )
                writer.existing(entry)
        manifest = writer.to_manifest_file()
        manifest.sequence_number = sequence
        return manifest

    def _open_output(self, name: str) -> OutputFile:
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
                with write_manifest_list(_FORMAT, self._open_output(file), id, None, sequence, _CODEC) as writer:
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
        id = snapshot_id(catalog.snapshot.number)
        with self._locks[_name(catalog, view)]:  # the snapshots of a table share manifests
            manifests = (self._write_entry(catalog, view, entry) for entry in catalog.partitions)
            return self.write_list_once(name, id, id, lambda folder, prefix: [m for m in manifests if m is not None])

    def _write_entry(self, catalog: Catalog, view: View, entry: PartitionEntry) -> ManifestFile | None:
        name = _name(catalog, view, entry.key, entry.load_id, entry.blocks_file, entry.plan)
        files = {} if name in self._written else list_entry_files(catalog, view, entry)
        if files:
            sizes, schema, id = find_sizes(catalog, files), _schema(view), snapshot_id(catalog.snapshot.number)
            data = [
                data_file(file, catalog.files.full_path(path), sizes[path][0], view.columns, schema, Record())
                for path, file in sorted(files.items())
            ]
            self._written[name] = self.write_manifest(name, schema, id, id, data)
        return self._written.get(name)


def _name(catalog: Catalog, view: View, *parts: str) -> str:
    content = [catalog.files.full_path(""), str(view.layout), spell_columns(view.columns), *parts]
    return hashlib.sha256("\n".join(content).encode()).hexdigest()[:32]
