"""External sources as Iceberg tables: Iceberg tables by their field ids, other sources by a name mapping."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyiceberg import types
from pyiceberg.exceptions import ValidationError
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, pyarrow_to_schema
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import MappedField, NameMapping, create_mapping_from_schema
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from layoutopt.catalog.table import Catalog
from layoutopt.errors import PublicationError, SourceError
from layoutopt.external.listing import local_path, to_arrow_constant
from layoutopt.external.snapshot import SnapshotFile
from layoutopt.external.source_files import external_files, file_key, stored_names
from layoutopt.model.schema import Column, Schema
from layoutopt.model.types import INTEGER_BITS
from layoutopt.publish.contents import View, list_files
from layoutopt.publish.iceberg_metadata import (
    FIRST_RESERVED,
    ManifestFolder,
    data_file,
    iceberg_schema,
    render_metadata,
)
from layoutopt.sql.schema import arrow_type_name

# A partition value in Python; dates are ``datetime.date``.
Value = bool | int | float | str | object

NO_SPEC: Final = UNPARTITIONED_PARTITION_SPEC.spec_id
# With more constant columns than this, files with NULL constants are refused: specs grow with the powers of two.
_MOST_WITH_NULLS: Final = 6
# Types whose JSON values every Iceberg reader understands alike.
_PORTABLE_TYPES: Final = frozenset({*INTEGER_BITS, "boolean", "double", "date", "string"})
_FIELD_ID: Final = b"PARQUET:field_id"
_FORMAT: Final = 2
# Hexadecimal digits of the source's state that make its snapshot id.
_ID_DIGITS: Final = 15
_NO_MANIFEST: Final = "scans-of-this-table-are-planned-by-its-catalog-alone.avro"


@dataclass(frozen=True, eq=False)
class FileEntry:
    """A data file of a scan task.

    Attributes:
        path: the path that readers open.
        size: in bytes.
        spec: the id of its partition spec.
        partition: the values of the spec's fields.
        constants: columns that the file lacks and that have one value (or NULL) in all its rows.
        deletes: the places of its delete files in :attr:`IcebergSource.deletes`.
    """

    path: str
    size: int
    spec: int = NO_SPEC
    partition: tuple[Value, ...] = ()
    constants: frozenset[str] = frozenset()
    deletes: tuple[int, ...] = ()


@dataclass(frozen=True)
class DeleteFile:
    """An Iceberg position delete file, under the unpartitioned spec of its data files."""

    path: str
    size: int
    rows: int
    spec: int


@dataclass(frozen=True, eq=False)
class ConstantColumns:
    """Columns with one value per file, described by identity partition specs.

    Readers use partition values for columns that a file lacks, but do not agree on NULL partition values. A file with
    NULL constants therefore gets a spec without these columns, and readers fill the missing columns with NULL. The
    unpartitioned spec always exists, so no reader treats a filter as fully answered by partition pruning.

    Attributes:
        columns: the columns.
        ids: their field ids.
        first_field: the first free partition field id.
    """

    columns: tuple[Column, ...]
    ids: tuple[int, ...]
    first_field: int = 1000

    @property
    def specs(self) -> tuple[PartitionSpec, ...]:
        """All specs but the unpartitioned one; an id always means the same columns."""
        n = len(self.columns)
        masks = range(1, 1 << n) if n <= _MOST_WITH_NULLS else [(1 << n) - 1]
        return tuple(self._make_spec(mask) for mask in masks) if n else ()

    def _make_spec(self, mask: int) -> PartitionSpec:
        fields = [
            PartitionField(source_id=id, field_id=self.first_field + n, transform=IdentityTransform(), name=column.name)
            for n, (column, id) in enumerate(zip(self.columns, self.ids, strict=True))
            if mask >> n & 1
        ]
        return PartitionSpec(*fields, spec_id=self._make_id(mask))

    def _make_id(self, mask: int) -> int:
        text = repr([(column.name, column.type) for column in self.columns])
        first = 1 + int.from_bytes(hashlib.sha256(text.encode()).digest()[:3], "big")
        return (first << _MOST_WITH_NULLS) + mask % (1 << _MOST_WITH_NULLS)

    def to_partition(self, file: SnapshotFile) -> tuple[int, tuple[Value, ...]]:
        """Return the spec id of a file and its partition values.

        Raises:
            PublicationError: the file has NULL constants and too many constant columns.
            SourceError: a value is not of the column's type.
        """
        values: list[Value] = [
            to_arrow_constant(file.constants.get(column.name), column).as_py() for column in self.columns
        ]
        mask = sum(1 << n for n, value in enumerate(values) if value is not None)
        if not mask:
            return NO_SPEC, ()
        if None in values and len(values) > _MOST_WITH_NULLS:
            raise PublicationError(
                f"the source's file {file.path!r} has NULL in one of {len(values)} columns of folder names; with NULLs "
                f"at most {_MOST_WITH_NULLS} such columns can be shown; store the columns in the files"
            )
        return self._make_id(mask), tuple(value for value in values if value is not None)


def select_constants(
    columns: Sequence[Column], schema: IcebergSchema, names: frozenset[str], first_field: int = 1000
) -> ConstantColumns:
    """Return the named columns as constant columns.

    Args:
        columns: the source's columns.
        schema: the same columns in Iceberg, in the same order.
        names: the constant columns' names.
        first_field: the first free partition field id.

    Raises:
        PublicationError: readers do not agree on values of a column's type.
    """
    chosen = [(column, field) for column, field in zip(columns, schema.fields, strict=True) if column.name in names]
    for column, _ in chosen:
        if column.type not in _PORTABLE_TYPES:
            raise PublicationError(
                f"column {column.name!r} of type {column.type} is only in folder names or table metadata; Iceberg "
                "readers support integers, doubles, booleans, dates and strings there; store the column in the files"
            )
    return ConstantColumns(
        tuple(column for column, _ in chosen), tuple(field.field_id for _, field in chosen), first_field
    )


@dataclass(frozen=True, eq=False)
class FileWithSchema:
    """A file of a source and the schema of its footer."""

    file: SnapshotFile
    arrow: pa.Schema


@dataclass(frozen=True, eq=False)
class MappedColumns:
    """The columns of a source without field ids.

    Attributes:
        schema: the Iceberg schema.
        mapping: the names of the columns in files.
        constants: the columns that files lack.
        rounded: double columns that some file stores as float.
    """

    schema: IcebergSchema
    mapping: NameMapping
    constants: ConstantColumns
    rounded: frozenset[str]


def map_columns(schema: Schema, files: Iterable[FileWithSchema]) -> MappedColumns:
    """Return the columns of a source, checked against every file.

    The client library resolves the columns of each distinct file schema. If the result differs from the source's own
    meaning, the file is refused, so that it is never misread.

    Raises:
        PublicationError: rows of a file are deleted, Iceberg lacks a column's type, or readers would misread a file.
        SourceError: a file has two columns that Spark does not distinguish.
    """
    distinct = list(_distinct_files(files))
    iceberg = iceberg_schema(schema)
    constants = select_constants(schema.columns, iceberg, _find_constants(distinct))
    mapping = _map_names(schema, iceberg, distinct)
    rounded = {name for file in distinct for name in _check_file(file, schema, iceberg, mapping)}
    return MappedColumns(iceberg, mapping, constants, frozenset(rounded))


def _distinct_files(files: Iterable[FileWithSchema]) -> Iterator[FileWithSchema]:
    """Yield one file of each schema, column mapping and set of constants."""
    seen: set[object] = set()
    for item in files:
        file = item.file
        if file.deleted is not None and len(file.deleted):
            raise PublicationError(
                f"rows of {file.path!r} are deleted by a deletion vector, which Iceberg readers can't apply; "
                "rewrite the table without them, for example by REORG TABLE ... APPLY (PURGE)"
            )
        kind = (item.arrow.serialize().to_pybytes(), file.stored, frozenset(file.constants))
        if kind not in seen:
            seen.add(kind)
            yield item


def _find_constants(files: Iterable[FileWithSchema]) -> frozenset[str]:
    """Return the columns of folder names or table metadata, which must be the same for all files."""
    paths: dict[frozenset[str], str] = {}
    for item in files:
        paths.setdefault(frozenset(item.file.constants), item.file.path)
    if len(paths) > 1:
        (names, path), (second_names, second) = list(paths.items())[:2]
        raise PublicationError(
            f"the folders of {path!r} have {_join_names(names)}, but those of {second!r} {_join_names(second_names)}, "
            "which Iceberg readers can't be told; use the same names in all folders of the source"
        )
    return next(iter(paths), frozenset())


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(names))) or "no column"


def _map_names(schema: Schema, iceberg: IcebergSchema, files: Iterable[FileWithSchema]) -> NameMapping:
    """Map names in files to columns; columns that the source does not read get reserved ids."""
    columns_by_name: dict[str, str] = {}
    unread: dict[str, Column] = {}
    for item in files:
        stored = stored_names(item.file, schema, item.arrow.names)
        for column_name, name in stored.items():
            if columns_by_name.setdefault(name, column_name) != column_name:
                raise _two_meanings(item, name)
        for field in item.arrow:
            if field.name not in stored.values():
                column = Column(field.name, arrow_type_name(field.type))
                if unread.setdefault(field.name, column) != column:
                    raise _two_meanings(item, field.name)
    both = set(columns_by_name) & set(unread)
    if both:
        raise _two_meanings(next(item for item in files if min(both) in item.arrow.names), min(both))
    fields = [
        MappedField(field_id=field.field_id, names=names, fields=field.fields)
        for field in create_mapping_from_schema(iceberg).root
        if (names := sorted(name for name, column_name in columns_by_name.items() if column_name == field.names[0]))
    ]
    reserved = iceberg_schema(Schema(tuple(unread.values())), FIRST_RESERVED)
    return NameMapping([*fields, *create_mapping_from_schema(reserved).root])


def _two_meanings(item: FileWithSchema, name: str) -> PublicationError:
    return PublicationError(
        f"the column {name!r} of {item.file.path!r} differs from the column of that name in other files, and Iceberg "
        "readers find columns by name; rewrite the source"
    )


def _check_file(item: FileWithSchema, schema: Schema, iceberg: IcebergSchema, mapping: NameMapping) -> Iterator[str]:
    """Yield the double columns that a file stores as float; raise PublicationError if readers would misread it."""
    if any(map(_has_ids, item.arrow)):
        raise _refusal(item, "its columns have Iceberg field ids that differ from this table's")
    try:
        schema_of_file = pyarrow_to_schema(item.arrow, mapping, False, _FORMAT)
    except (UnsupportedPyArrowTypeException, ValidationError, ValueError, TypeError) as error:
        raise _refusal(item, " ".join(str(error).split())[:200]) from error
    by_id = {field.field_id: field for field in schema_of_file.fields}
    stored = stored_names(item.file, schema, item.arrow.names)
    for field in iceberg.fields:
        held = by_id.get(field.field_id)
        if (None if held is None else held.name) != stored.get(field.name):
            raise _refusal(item, f"the column {field.name!r} would not be found")
        if held is None:
            continue
        type = item.arrow.field(held.name).type
        is_unsigned = any(map(pa.types.is_unsigned_integer, _leaf_types(type)))
        if is_unsigned or not _can_read_as(held.field_type, field.field_type):
            raise _refusal(item, f"the column {field.name!r} has type {type}, expected {field.field_type}")
        if held.field_type == types.FloatType() and field.field_type == types.DoubleType():
            yield field.name


def _refusal(item: FileWithSchema, reason: str) -> PublicationError:
    return PublicationError(
        f"the source's file {item.file.path!r} can't be shown to Iceberg readers ({reason}); rewrite it, or query "
        "the indexes by `layoutopt query` or in Spark"
    )


def _has_ids(field: pa.Field) -> bool:
    inner: list[Any] = [field.type.field(n) for n in range(field.type.num_fields)]
    return _FIELD_ID in (field.metadata or {}) or any(map(_has_ids, inner))


def _leaf_types(type: pa.DataType) -> Iterator[pa.DataType]:
    if pa.types.is_dictionary(type):
        yield from _leaf_types(type.value_type)
    elif type.num_fields:
        for n in range(type.num_fields):
            yield from _leaf_types(type.field(n).type)
    else:
        yield type


def _can_read_as(held: types.IcebergType, wanted: types.IcebergType) -> bool:
    if isinstance(held, types.DecimalType) and isinstance(wanted, types.DecimalType):
        return held.scale == wanted.scale and held.precision <= wanted.precision
    widened = (held, wanted) in ((types.IntegerType(), types.LongType()), (types.FloatType(), types.DoubleType()))
    return widened or _is_same(held, wanted)


def _is_same(held: types.IcebergType, wanted: types.IcebergType) -> bool:
    """Return whether two types are equal, ids included, whatever their nested fields' nullability."""
    if held.is_primitive or type(held) is not type(wanted):
        return held == wanted
    pairs = list(zip(_child_types(held), _child_types(wanted), strict=False))
    same = len(_child_types(held)) == len(_child_types(wanted))
    return same and all((a[:2] == b[:2]) and _is_same(a[2], b[2]) for a, b in pairs)


def _child_types(type: types.IcebergType) -> list[tuple[int, str, types.IcebergType]]:
    """Return the ids, names and types of a nested type's children."""
    if isinstance(type, types.StructType):
        return [(field.field_id, field.name, field.field_type) for field in type.fields]
    if isinstance(type, types.ListType):
        return [(type.element_id, "", type.element_type)]
    assert isinstance(type, types.MapType), "no other type has children"
    return [(type.key_id, "", type.key_type), (type.value_id, "", type.value_type)]


@dataclass(frozen=True, eq=False)
class IcebergSource:
    """An indexed Iceberg table at its newest snapshot, with its own ids, manifests and delete files.

    Scan tasks name the unpartitioned spec, since the planner ignores partition transforms. Files that lack a column of
    their partition get specs of :class:`ConstantColumns`.

    Attributes:
        table: the table.
        files: its data files by file key.
        deletes: its delete files.
        constant_columns: the columns that some files lack.
        no_spec: the unpartitioned spec.
    """

    table: Table
    files: Mapping[str, FileEntry]
    deletes: Sequence[DeleteFile]
    constant_columns: ConstantColumns
    no_spec: PartitionSpec

    @property
    def snapshot(self) -> int:
        """The id of the newest snapshot; -1 if there is none yet."""
        newest = self.table.current_snapshot()
        return -1 if newest is None else newest.snapshot_id

    @property
    def rounded(self) -> frozenset[str]:
        """Double columns that were float in an older schema."""
        floats = {
            field.field_id
            for schema in self.table.schemas().values()
            for field in schema.fields
            if field.field_type == types.FloatType()
        }
        fields = self.table.schema().fields
        return frozenset(f.name for f in fields if f.field_id in floats and f.field_type == types.DoubleType())

    @property
    def constants(self) -> tuple[Column, ...]:
        """The columns that some files lack."""
        return self.constant_columns.columns

    def metadata(self, manifests: ManifestFolder) -> str:
        """Return the table's own metadata, reduced to the newest snapshot, with the added specs."""
        metadata, newest = self.table.metadata, self.table.current_snapshot()
        known = {spec.spec_id for spec in metadata.partition_specs}
        added = [spec for spec in (self.no_spec, *self.constant_columns.specs) if spec.spec_id not in known]
        fields = [field.field_id for spec in added for field in spec.fields]
        reduced = metadata.model_copy(
            update={
                "snapshots": [] if newest is None else [newest],
                "snapshot_log": [entry for entry in metadata.snapshot_log if entry.snapshot_id == self.snapshot],
                "refs": {name: ref for name, ref in metadata.refs.items() if name == MAIN_BRANCH},
                "metadata_log": [],
                "statistics": [],
                "partition_statistics": [],
                "partition_specs": [*metadata.partition_specs, *added],
                "last_partition_id": max([metadata.last_partition_id or 0, *fields]),
            }
        )
        return reduced.model_dump_json(by_alias=True, exclude_none=True)


def iceberg_source(catalog: Catalog, table: Table) -> IcebergSource:
    """Return an indexed Iceberg table; ``catalog`` and ``table`` must be at the same snapshot.

    Raises:
        PublicationError: readers can't apply its deletes, or the value of a missing column can't be shown.
        SourceError: the table changed meanwhile, or a partition value is not of its column's type.
    """
    files = external_files(catalog.data)
    names = frozenset(name for file in files.held.values() for name in file.constants)
    first_field = (table.metadata.last_partition_id or 999) + 1
    constants = select_constants(catalog.schema.columns, table.schema(), names, first_field)
    plain = [spec for spec in table.specs().values() if spec.is_unpartitioned()]
    no_spec = plain[0] if plain else PartitionSpec(spec_id=max(table.specs()) + 1)
    tasks = [] if table.current_snapshot() is None else list(table.scan().plan_files())
    deletes = {file.file_path: _delete_file(file, no_spec.spec_id) for task in tasks for file in task.delete_files}
    places = {path: place for place, path in enumerate(deletes)}
    entries: dict[str, FileEntry] = {}
    for task in tasks:
        file, held = task.file, files.held.get(file_key(task.file.file_path))
        if held is None:
            raise SourceError(f"the table of {file.file_path!r} was changed while it was opened; try again")
        spec, partition = constants.to_partition(held)
        entries[file_key(held.path)] = FileEntry(
            file.file_path, file.file_size_in_bytes, no_spec.spec_id if spec == NO_SPEC else spec, partition,
            frozenset(held.constants), tuple(sorted(places[delete.file_path] for delete in task.delete_files)),
        )  # fmt: skip
    return IcebergSource(table, entries, tuple(deletes.values()), constants, no_spec)


def _delete_file(file: DataFile, spec: int) -> DeleteFile:
    if file.content != DataFileContent.POSITION_DELETES or file.file_format != FileFormat.PARQUET:
        raise PublicationError(
            f"{file.file_path!r} is no Parquet position delete file, and other deletes can't be passed to readers; "
            "compact the table, or query the indexes by `layoutopt query` or in Spark"
        )
    return DeleteFile(file.file_path, file.file_size_in_bytes, file.record_count, spec)


@dataclass(frozen=True, eq=False)
class NamedSource:
    """A Parquet folder or Delta table as an Iceberg table, whose columns are found by name.

    Attributes:
        catalog: the catalog of its indexes.
        named: its columns.
        files: its data files by file key.
        listed_ms: when it was listed, in milliseconds since 1970.
    """

    catalog: Catalog
    named: MappedColumns
    files: Mapping[str, FileEntry]
    listed_ms: int
    deletes: Sequence[DeleteFile] = ()  # files with deleted rows are refused

    @property
    def snapshot(self) -> int:
        """The Iceberg snapshot id, which changes with the source."""
        return 1 + int(external_files(self.catalog.data).state[:_ID_DIGITS], 16)

    @property
    def rounded(self) -> frozenset[str]:
        """Double columns that some file stores as float."""
        return self.named.rounded

    @property
    def constants(self) -> tuple[Column, ...]:
        """The columns that files lack."""
        return self.named.constants.columns

    def metadata(self, manifests: ManifestFolder) -> str:
        """Return Iceberg's metadata of one snapshot as JSON; raises OSError if its manifest can't be written.

        If files lack columns, the manifest does not exist. pyiceberg treats such a column as NULL in filters unless it
        is selected. Only a catalog that plans the scans can detect this and refuse the scan.
        """
        schema, location = self.named.schema, self.catalog.files.full_path("").rstrip("/")
        specs = [UNPARTITIONED_PARTITION_SPEC, *self.named.constants.specs]
        properties = {"schema.name-mapping.default": self.named.mapping.model_dump_json()}
        return render_metadata(location, "source", schema, specs, properties, [self._make_snapshot(manifests)])

    def _make_snapshot(self, manifests: ManifestFolder) -> Snapshot:
        root = self.catalog.files.full_path("")
        parts = [root, str(self.catalog.snapshot.number), str(self.snapshot)]
        name = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
        if self.constants:
            manifest_list = f"{root.rstrip('/')}/{_NO_MANIFEST}"
        else:
            manifest_list = manifests.write_list_once(name, self.snapshot, 1, self._write_manifests)
        return Snapshot(
            snapshot_id=self.snapshot, sequence_number=1, timestamp_ms=self.listed_ms, manifest_list=manifest_list,
            summary=Summary(Operation.APPEND),
        )  # fmt: skip

    def _write_manifests(self, folder: ManifestFolder, name: str) -> list[ManifestFile]:
        columns, schema = self.catalog.schema, self.named.schema
        files = list_files(self.catalog, View(None, columns, None, Schema(())))
        entries = [
            data_file(file, self.files[key].path, self.files[key].size, columns, schema, Record())
            for key, file in sorted(files.items())
        ]
        return [folder.write_manifest(name, schema, self.snapshot, 1, entries)]


# An external source at one moment, shown as an Iceberg table.
ExternalTable: TypeAlias = IcebergSource | NamedSource


def named_source(catalog: Catalog, held: Sequence[FileWithSchema], listed_ms: int) -> NamedSource:
    """Return a source without field ids as an Iceberg table.

    Args:
        catalog: the catalog of its indexes, of the same state of the source.
        held: its files.
        listed_ms: when it was listed, in milliseconds since 1970.

    Raises:
        PublicationError: readers would misread the source; names the file or column.
        SourceError: a value in a folder's name is not of its column's type.
    """
    files = external_files(catalog.data)
    named = map_columns(catalog.schema, held)
    entries = {}
    for key, file in files.held.items():
        spec, partition = named.constants.to_partition(file)
        entries[key] = FileEntry(
            local_path(file.path), files.listed_size(key), spec, partition, frozenset(file.constants)
        )  # fmt: skip
    return NamedSource(catalog, named, entries, listed_ms)
