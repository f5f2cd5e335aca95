"""A snapshot as Iceberg's metadata without a publication: for catalogs that make it when somebody asks.

Nothing is written into the table. Manifests, which clients that plan scans on their own read, go to a folder of the
caller's: one for each load of a partition, so that a new snapshot writes those of what it changed. The table is shown
without partitions: what is known of a partition column are bounds, as of any other, which skip as well and mean the
same whichever filter an engine takes for answered by them.
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
from pyiceberg.io import FileIO, OutputFile, load_file_io
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
from layoutopt.publish.contents import DataFile, View, files_in, sizes_of
from layoutopt.publish.table_format import SNAPSHOT_PROPERTY, VIEW_PROPERTY

# ----------------------------------------------------------------------------------------------------
# A table's columns as Iceberg's types, and what its manifests say of a file's values.
#
# Bounds leave NaN out, as the format demands. A file that has a NaN in a column (or perhaps has one) gets no upper
# bound:
# Spark, DuckDB and Polars take NaN for the largest number, and would skip it by the largest other one. Zero is -0.0
# as a
# lower bound and 0.0 as an upper one, since the format orders the two.

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


_CODEC: Final = "deflate"
_FORMAT: Final = 2
_LAST_PARTITION_ID: Final = 999


def snapshot_id(number: int) -> int:
    """Iceberg's id of a snapshot: one more than its number, since readers may take 0 for none."""
    return number + 1


def snapshot_of(id: int) -> int:
    """The number of the snapshot with an id of :func:`snapshot_id`."""
    return id - 1


def metadata_json(snapshots: Sequence[tuple[Catalog, str]], view: View) -> str:
    """Iceberg's metadata of one view of a table, as JSON.

    Fields have their ids by their places. Tables grow by columns at the end, so an id means the same column later.

    Args:
        snapshots: the table at snapshots, ascending, each with the path or URL of its manifest list; the last is shown
            where a reader names none.
        view: what is shown, of the last one.

    Raises:
        PublicationError: a column's type is one that Iceberg does not have.
    """
    catalog, schema = snapshots[-1][0], _schema(view)
    shown = [_snapshot(each, manifests) for each, manifests in snapshots]
    layout = "" if view.layout is None else str(view.layout)
    location = catalog.files.full_path("").rstrip("/")
    metadata = TableMetadataV2(
        location=location,
        table_uuid=uuid.uuid5(uuid.NAMESPACE_URL, f"{location}#{layout}"),
        last_updated_ms=shown[-1].timestamp_ms,
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
        current_snapshot_id=shown[-1].snapshot_id,
        snapshots=shown,
        snapshot_log=[SnapshotLogEntry(snapshot_id=each.snapshot_id, timestamp_ms=each.timestamp_ms) for each in shown],
        sort_orders=[UNSORTED_SORT_ORDER],
        last_sequence_number=shown[-1].sequence_number,
    )
    return metadata.model_dump_json(by_alias=True, exclude_none=True)


def _snapshot(catalog: Catalog, manifests: str) -> Snapshot:
    """A snapshot as Iceberg's; older ones are read by the newest columns, which are NULL where they are not there."""
    snapshot = catalog.snapshot
    return Snapshot(
        snapshot_id=snapshot_id(snapshot.number),
        sequence_number=snapshot_id(snapshot.number),
        timestamp_ms=int(datetime.fromisoformat(snapshot.created_at).timestamp() * 1000),
        manifest_list=manifests,
        summary=Summary(Operation.APPEND, **{SNAPSHOT_PROPERTY: str(snapshot.number)}),
    )


def _schema(view: View) -> IcebergSchema:
    """The columns; the schema's id tells how many, since they only come."""
    fields = iceberg_schema(view.columns).fields
    return IcebergSchema(*fields, schema_id=len(fields))


@dataclass(frozen=True, eq=False)
class ManifestFolder:
    """A folder for manifests, of one process: those that it wrote it does not write again.

    Attributes:
        files: the folder.
    """

    files: TableFiles
    _written: dict[str, ManifestFile] = field(default_factory=dict)
    _lists: dict[str, str] = field(default_factory=dict)
    _locks: defaultdict[str, Lock] = field(default_factory=lambda: defaultdict(Lock))

    def output(self, name: str) -> OutputFile:
        """A file of the folder to write to."""
        where = self.files.full_path(name)
        return _io(where).new_output(where)

    def once(
        self, name: str, id: int, sequence: int, manifests: Callable[[ManifestFolder, str], Sequence[ManifestFile]]
    ) -> str:
        """The path or URL of a manifest list, which is written when it is first asked for.

        Args:
            name: of what it lists, and of nothing else.
            id, sequence: of its snapshot in Iceberg.
            manifests: writes what it lists into this folder, under names that begin so.

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
        """The path or URL of a snapshot's manifest list, which is written when it is first asked for.

        Raises:
            CatalogError: a file of the table is missing or damaged.
            OSError: the folder can't be written.
        """
        name = _name(catalog, view, str(catalog.snapshot.number), catalog.snapshot.created_at)
        with self._locks[_name(catalog, view)]:  # no table waits for another's
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
        files = files_in(catalog, view, entry)
        if not files:
            return None
        sizes, schema = sizes_of(catalog, files), _schema(view)
        id, output = snapshot_id(catalog.snapshot.number), self.output(f"{name}.avro")
        with write_manifest(_FORMAT, UNPARTITIONED_PARTITION_SPEC, schema, output, id, _CODEC) as writer:
            for path, file in sorted(files.items()):
                data = data_file(file, catalog.files.full_path(path), sizes[path][0], view.columns, schema, Record())
                entry_of = ManifestEntry.from_args(
                    status=ManifestEntryStatus.EXISTING,
                    snapshot_id=id,
                    sequence_number=id,
                    file_sequence_number=id,
                    data_file=data,
                )
                writer.existing(entry_of)
        manifest = writer.to_manifest_file()
        manifest.sequence_number = id
        self._written[name] = manifest
        return manifest


def _name(catalog: Catalog, view: View, *parts: str) -> str:
    """A file's name for what depends on these: of the table and the view, and of nothing else."""
    whole = [catalog.files.full_path(""), str(view.layout), spelled(view.columns), *parts]
    return hashlib.sha256("\n".join(whole).encode()).hexdigest()[:32]


def _io(where: str) -> FileIO:
    return load_file_io({}, location=where)
