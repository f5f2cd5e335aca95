"""Sources whose files somebody else keeps, as tables of Iceberg's: by their names, or by the ids that they have."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa
from pyiceberg.exceptions import ValidationError
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, pyarrow_to_schema
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.name_mapping import MappedField, NameMapping, create_mapping_from_schema
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotLogEntry, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StructType,
)

from layoutopt.catalog.table import Catalog
from layoutopt.errors import PublicationError, SourceError
from layoutopt.external.listing import constant, local_path
from layoutopt.external.source_files import SourceFiles, file_key, stored_names
from layoutopt.model.schema import Column, Schema
from layoutopt.model.types import INTEGER_BITS
from layoutopt.publish.contents import View, files_of
from layoutopt.publish.iceberg_metadata import FIRST_RESERVED, ManifestFolder, data_file, iceberg_schema
from layoutopt.scan.arrow_types import any_arrow_type
from layoutopt.sources.snapshot import SnapshotFile
from layoutopt.sql.schema import arrow_type_name

# ----------------------------------------------------------------------------------------------------
# What readers of Iceberg's are told of a source's files.

Value = bool | int | float | str | object
"""A value as Python has it; a date as ``datetime.date``."""

NO_SPEC: Final = UNPARTITIONED_PARTITION_SPEC.spec_id
_MOST_WITH_NULLS: Final = 6
_TELLABLE: Final = frozenset({*INTEGER_BITS, "boolean", "double", "date", "string"})
"""Types whose values every reader takes for the same, as JSON has them."""


@dataclass(frozen=True, eq=False)
class FileTold:
    """What is told of a file beside its rows.

    Attributes:
        path: by which readers open it.
        size: in bytes.
        spec: the id of the spec of partitions that says its constants.
        partition: the constants' values, in that spec's order.
        constants: the columns that have one value in all its rows, NULL too, which the file does not say.
        deletes: places in the table's list of files of deletes, of those that its rows may be in.
    """

    path: str
    size: int
    spec: int = NO_SPEC
    partition: tuple[Value, ...] = ()
    constants: frozenset[str] = frozenset()
    deletes: tuple[int, ...] = ()


@dataclass(frozen=True)
class DeletesTold:
    """A file of Iceberg's that names rows by data file and position, which are deleted.

    ``spec`` is the id of the spec without partitions, as of the data files that it is told beside.
    """

    path: str
    size: int
    rows: int
    spec: int


class SourceTold(Protocol):
    """A source at one moment, as a table of Iceberg's."""

    @property
    def snapshot(self) -> int:
        """Iceberg's id of what is shown."""

    @property
    def files(self) -> Mapping[str, FileTold]:
        """The files, by their keys."""

    @property
    def deletes(self) -> Sequence[DeletesTold]:
        """The files of deletes."""

    @property
    def rounded(self) -> frozenset[str]:
        """Columns of doubles that some file has as floats: readers may round a filter's literals to these."""

    @property
    def constants(self) -> tuple[Column, ...]:
        """The columns that files don't say."""

    def metadata(self, manifests: ManifestFolder) -> str:
        """Iceberg's metadata as JSON; raises OSError if manifests can't be written."""


@dataclass(frozen=True, eq=False)
class Constants:
    """Columns that have one value in all rows of each file, as specs of identity partitions tell them.

    Readers take such values for a column that a file lacks. What is NULL has no place in an answer that every reader
    understands, so a file with NULLs is of a spec without these columns: whatever a file lacks then is NULL. There is
    always a spec without any, so that no reader takes a filter for answered by the choice of files.

    Attributes:
        columns: these.
        ids: theirs in Iceberg's schema.
        first_field: the first id of partition fields that is free.
    """

    columns: tuple[Column, ...]
    ids: tuple[int, ...]
    first_field: int = 1000

    @property
    def specs(self) -> tuple[PartitionSpec, ...]:
        """All specs but the one without columns. None has an id that it has for other columns."""
        n = len(self.columns)
        masks = range(1, 1 << n) if n <= _MOST_WITH_NULLS else [(1 << n) - 1]
        return tuple(self._spec(mask) for mask in masks) if n else ()

    def _spec(self, mask: int) -> PartitionSpec:
        fields = [
            PartitionField(source_id=id, field_id=self.first_field + n, transform=IdentityTransform(), name=column.name)
            for n, (column, id) in enumerate(zip(self.columns, self.ids, strict=True))
            if mask >> n & 1
        ]
        return PartitionSpec(*fields, spec_id=self._id(mask))

    def _id(self, mask: int) -> int:
        said = repr([(column.name, column.type) for column in self.columns])
        first = 1 + int.from_bytes(hashlib.sha256(said.encode()).digest()[:3], "big")
        return (first << _MOST_WITH_NULLS) + mask % (1 << _MOST_WITH_NULLS)

    def told(self, file: SnapshotFile) -> tuple[int, tuple[Value, ...]]:
        """The id of a file's spec, and its values in that spec's order.

        Raises:
            PublicationError: it is NULL where that can't be told.
            SourceError: a value is none of the column's type.
        """
        values = [_value(file, column) for column in self.columns]
        mask = sum(1 << n for n, value in enumerate(values) if value is not None)
        if not mask:
            return NO_SPEC, ()
        if None in values and len(values) > _MOST_WITH_NULLS:
            raise PublicationError(
                f"the source's file {file.path!r} is NULL in one of {len(values)} columns that its folders say, which "
                f"is told of at most {_MOST_WITH_NULLS}; store the columns in the files"
            )
        return self._id(mask), tuple(value for value in values if value is not None)


def constants_of(
    columns: Sequence[Column], schema: IcebergSchema, names: frozenset[str], first_field: int = 1000
) -> Constants:
    """Some of a source's columns as constants of files.

    Args:
        columns: the source's.
        schema: the same in Iceberg, in the same order.
        names: which of them.
        first_field: as :class:`Constants` has it.

    Raises:
        PublicationError: values of a column's type can't be told so that all readers understand them.
    """
    chosen = [(column, field) for column, field in zip(columns, schema.fields, strict=True) if column.name in names]
    for column, _ in chosen:
        if column.type not in _TELLABLE:
            raise PublicationError(
                f"column {column.name!r} of type {column.type} stands in the names of folders or the table's metadata "
                "alone, from where readers of Iceberg's take only whole numbers, doubles, booleans, dates and texts; "
                "store it in the files"
            )
    return Constants(
        tuple(column for column, _ in chosen), tuple(field.field_id for _, field in chosen), first_field
    )  # fmt: skip


def _value(file: SnapshotFile, column: Column) -> Value:
    value: Value = constant(file.constants.get(column.name), column, any_arrow_type(column.type)).as_py()
    return value


# ----------------------------------------------------------------------------------------------------
# How readers of Iceberg's find a source's columns in files that have no ids of Iceberg's: by their names.
#
# Every file is tried: the library that clients use says which of its columns it would take for which of the table's,
# and
# that has to be what the source says. So a file that would be read otherwise is refused by its name, never read so.

_ID: Final = b"PARQUET:field_id"
_FORMAT: Final = 2


@dataclass(frozen=True, eq=False)
class HeldFile:
    """A file of a source, and the columns that it holds."""

    file: SnapshotFile
    arrow: pa.Schema


@dataclass(frozen=True, eq=False)
class NamedColumns:
    """A source's columns as Iceberg's.

    Attributes:
        schema: the columns.
        mapping: under which names files hold them.
        constants: the columns that files don't say.
        rounded: columns of doubles that some file has as floats.
    """

    schema: IcebergSchema
    mapping: NameMapping
    constants: Constants
    rounded: frozenset[str]


def columns_by_name(schema: Schema, held: Iterable[HeldFile]) -> NamedColumns:
    """How readers find a source's columns in its files.

    Args:
        schema: the source's columns.
        held: its files.

    Raises:
        PublicationError: rows of a file are deleted, a column's type is one that Iceberg does not have, or a file would
            be read otherwise than the source says; names the file or column.
        SourceError: a file has two columns that are one to Spark.
    """
    distinct = list(_distinct(held))
    iceberg = iceberg_schema(schema)
    constants = constants_of(schema.columns, iceberg, _constants(distinct))
    mapping = _mapping(schema, iceberg, distinct)
    rounded = {name for one in distinct for name in _rounded(one, schema, iceberg, mapping)}
    return NamedColumns(iceberg, mapping, constants, frozenset(rounded))


def _distinct(held: Iterable[HeldFile]) -> Iterator[HeldFile]:
    """One file of each that readers find columns in alike."""
    seen: set[object] = set()
    for one in held:
        if one.file.deleted is not None and len(one.file.deleted):
            raise PublicationError(
                f"rows of {one.file.path!r} are deleted by a deletion vector, which readers of Iceberg's can't apply; "
                "write the table anew without them, such as by REORG TABLE ... APPLY (PURGE)"
            )
        kind = (one.arrow.serialize().to_pybytes(), one.file.stored, frozenset(one.file.constants))
        if kind not in seen:
            seen.add(kind)
            yield one


def _constants(files: Iterable[HeldFile]) -> frozenset[str]:
    """The columns that the files' folders, or the table's metadata, say; Spark wants them to be the same, too."""
    found: dict[frozenset[str], str] = {}
    for one in files:
        found.setdefault(frozenset(one.file.constants), one.file.path)
    if len(found) > 1:
        (names, path), (others, other) = list(found.items())[:2]
        raise PublicationError(
            f"the folders of {path!r} say {_listed(names)}, but those of {other!r} {_listed(others)}, which can't be "
            "told to readers of Iceberg's; let all folders of the source have the same names"
        )
    return next(iter(found), frozenset())


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(names))) or "no column"


def _mapping(schema: Schema, iceberg: IcebergSchema, files: Iterable[HeldFile]) -> NameMapping:
    """Which name in files is which column; what the source does not read of files is mapped to ids beside."""
    spelled: dict[str, str] = {}
    beside: dict[str, Column] = {}
    for one in files:
        stored = stored_names(one.file, schema, one.arrow.names)
        for name, of in stored.items():
            if spelled.setdefault(of, name) != name:
                raise _two_meanings(one, of)
        for field in one.arrow:
            if field.name not in stored.values():
                column = Column(field.name, arrow_type_name(field.type))
                if beside.setdefault(field.name, column) != column:
                    raise _two_meanings(one, field.name)
    both = set(spelled) & set(beside)
    if both:
        raise _two_meanings(next(one for one in files if min(both) in one.arrow.names), min(both))
    fields = [
        MappedField(field_id=of.field_id, names=names, fields=of.fields)
        for of in create_mapping_from_schema(iceberg).root
        if (names := sorted(name for name, column in spelled.items() if column == of.names[0]))
    ]
    others = iceberg_schema(Schema(tuple(beside.values())), FIRST_RESERVED)
    return NameMapping([*fields, *create_mapping_from_schema(others).root])


def _two_meanings(one: HeldFile, name: str) -> PublicationError:
    return PublicationError(
        f"the column {name!r} of {one.file.path!r} is another one than that of other files, which readers that go by "
        "names can't tell; write the source anew"
    )


def _rounded(one: HeldFile, schema: Schema, iceberg: IcebergSchema, mapping: NameMapping) -> Iterator[str]:
    """The columns of doubles that a file has as floats; refuses a file that readers would read otherwise."""
    if any(map(_has_ids, one.arrow)):
        raise _refused(one, "its columns have field ids of Iceberg's, which are not those of this table")
    try:
        found = pyarrow_to_schema(one.arrow, mapping, False, _FORMAT)
    except (UnsupportedPyArrowTypeException, ValidationError, ValueError, TypeError) as error:
        raise _refused(one, " ".join(str(error).split())[:200]) from error
    by_id = {field.field_id: field for field in found.fields}
    stored = stored_names(one.file, schema, one.arrow.names)
    for field in iceberg.fields:
        held = by_id.get(field.field_id)
        if (None if held is None else held.name) != stored.get(field.name):
            raise _refused(one, f"the column {field.name!r} would not be found")
        if held is None:
            continue
        type = one.arrow.field(held.name).type
        if any(map(pa.types.is_unsigned_integer, _leaves(type))) or not _is_read_as(held.field_type, field.field_type):
            raise _refused(one, f"the column {field.name!r} is {type} in it and {field.field_type} to them")
        if held.field_type == FloatType() and field.field_type == DoubleType():
            yield field.name


def _refused(one: HeldFile, why: str) -> PublicationError:
    return PublicationError(
        f"the source's file {one.file.path!r} can't be shown to readers of Iceberg's ({why}); write it anew, or query "
        "the indexes by `layoutopt query` or in Spark"
    )


def _has_ids(field: pa.Field) -> bool:
    """Whether a field, or one inside it, has an id of Iceberg's."""
    inner: list[Any] = [field.type.field(n) for n in range(field.type.num_fields)]
    return _ID in (field.metadata or {}) or any(map(_has_ids, inner))


def _leaves(type: pa.DataType) -> Iterator[pa.DataType]:
    if pa.types.is_dictionary(type):
        yield from _leaves(type.value_type)
    elif type.num_fields:
        for n in range(type.num_fields):
            yield from _leaves(type.field(n).type)
    else:
        yield type


def _is_read_as(held: IcebergType, wanted: IcebergType) -> bool:
    """Whether readers give a file's values as they are in a column's type."""
    if isinstance(held, DecimalType) and isinstance(wanted, DecimalType):
        return held.scale == wanted.scale and held.precision <= wanted.precision
    widened = (held, wanted) in ((IntegerType(), LongType()), (FloatType(), DoubleType()))
    return widened or _same(held, wanted)


def _same(held: IcebergType, wanted: IcebergType) -> bool:
    """Whether two types are one, with the same ids, whatever is said of NULL within them."""
    if held.is_primitive or type(held) is not type(wanted):
        return held == wanted
    pairs = list(zip(_parts(held), _parts(wanted), strict=False))
    same = len(_parts(held)) == len(_parts(wanted))
    return same and all((a[:2] == b[:2]) and _same(a[2], b[2]) for a, b in pairs)


def _parts(type: IcebergType) -> list[tuple[int, str, IcebergType]]:
    """The fields of a struct, the elements of a list, the keys and values of a map: their ids, names and types."""
    if isinstance(type, StructType):
        return [(field.field_id, field.name, field.field_type) for field in type.fields]
    if isinstance(type, ListType):
        return [(type.element_id, "", type.element_type)]
    assert isinstance(type, MapType), "no other type has parts"
    return [(type.key_id, "", type.key_type), (type.value_id, "", type.value_type)]


# ----------------------------------------------------------------------------------------------------
# A table of Iceberg's whose files are indexed, as itself: its own ids, its own manifests, its own deletes.
#
# Its current snapshot alone is shown, since indexes follow the newest. A spec of partitions without any is added, of
# which answers say that all files are: values of transforms are nothing to who plans here. Files that lack a column
# which
# their partition says get specs as those of other sources have.


@dataclass(frozen=True, eq=False)
class IcebergSource:
    """Such a table at its newest snapshot.

    Attributes:
        table: the table.
        files: what is told of its files, by key.
        deletes: its files of deletes.
        told: the columns that some files lack since their partitions say them.
        no_spec: the spec without partitions.
    """

    table: Table
    files: Mapping[str, FileTold]
    deletes: Sequence[DeletesTold]
    told: Constants
    no_spec: PartitionSpec

    @property
    def snapshot(self) -> int:
        """The id of the newest snapshot; -1 where there is none yet."""
        newest = self.table.current_snapshot()
        return -1 if newest is None else newest.snapshot_id

    @property
    def rounded(self) -> frozenset[str]:
        """Columns of doubles that were once floats."""
        floats = {
            field.field_id
            for schema in self.table.schemas().values()
            for field in schema.fields
            if field.field_type == FloatType()
        }
        fields = self.table.schema().fields
        return frozenset(f.name for f in fields if f.field_id in floats and f.field_type == DoubleType())

    @property
    def constants(self) -> tuple[Column, ...]:
        """The columns that some files don't say."""
        return self.told.columns

    def metadata(self, manifests: ManifestFolder) -> str:
        """The table's own metadata, of its newest snapshot alone, with specs that say nothing of its manifests."""
        whole, newest = self.table.metadata, self.table.current_snapshot()
        known = {spec.spec_id for spec in whole.partition_specs}
        added = [spec for spec in (self.no_spec, *self.told.specs) if spec.spec_id not in known]
        fields = [field.field_id for spec in added for field in spec.fields]
        shown = whole.model_copy(
            update={
                "snapshots": [] if newest is None else [newest],
                "snapshot_log": [one for one in whole.snapshot_log if one.snapshot_id == self.snapshot],
                "refs": {name: ref for name, ref in whole.refs.items() if name == MAIN_BRANCH},
                "metadata_log": [],
                "statistics": [],
                "partition_statistics": [],
                "partition_specs": [*whole.partition_specs, *added],
                "last_partition_id": max([whole.last_partition_id or 0, *fields]),
            }
        )
        return shown.model_dump_json(by_alias=True, exclude_none=True)


def iceberg_source(catalog: Catalog, table: Table) -> IcebergSource:
    """An indexed table of Iceberg's as itself.

    Args:
        catalog: what is known of its files.
        table: the same table at the same snapshot.

    Raises:
        PublicationError: it has deletes that can't be passed on, or a file lacks a column whose value can't be told.
        SourceError: the table was changed meanwhile, or a value of a partition is none of its column's type.
    """
    files = catalog.data
    assert isinstance(files, SourceFiles), "the catalog is of a source's files"
    names = frozenset(name for file in files.held.values() for name in file.constants)
    told = constants_of(catalog.schema.columns, table.schema(), names, (table.metadata.last_partition_id or 999) + 1)
    plain = [spec for spec in table.specs().values() if spec.is_unpartitioned()]
    no_spec = plain[0] if plain else PartitionSpec(spec_id=max(table.specs()) + 1)
    tasks = [] if table.current_snapshot() is None else list(table.scan().plan_files())
    deletes = {one.file_path: _deletes(one, no_spec.spec_id) for task in tasks for one in task.delete_files}
    places = {path: place for place, path in enumerate(deletes)}
    found: dict[str, FileTold] = {}
    for task in tasks:
        file, held = task.file, files.held.get(file_key(task.file.file_path))
        if held is None:
            raise SourceError(f"the table of {file.file_path!r} was changed while it was opened; try again")
        spec, partition = told.told(held)
        found[file_key(held.path)] = FileTold(
            file.file_path, file.file_size_in_bytes, no_spec.spec_id if spec == NO_SPEC else spec, partition,
            frozenset(held.constants), tuple(sorted(places[one.file_path] for one in task.delete_files)),
        )  # fmt: skip
    return IcebergSource(table, found, tuple(deletes.values()), told, no_spec)


def _deletes(file: DataFile, spec: int) -> DeletesTold:
    if file.content != DataFileContent.POSITION_DELETES or file.file_format != FileFormat.PARQUET:
        raise PublicationError(
            f"{file.file_path!r} deletes rows by other than positions in Parquet, which can't be passed on to readers; "
            "compact the table, or query the indexes by `layoutopt query` or in Spark"
        )
    return DeletesTold(file.file_path, file.file_size_in_bytes, file.record_count, spec)


# ----------------------------------------------------------------------------------------------------
# A folder of Parquet, or a Delta table, as a table of Iceberg's whose columns are found by their names.

_ID_DIGITS: Final = 15
_PLANNED_HERE: Final = "scans-of-this-table-are-planned-by-its-catalog-alone.avro"


@dataclass(frozen=True, eq=False)
class NamedSource:
    """Such a source as it was when it was listed.

    Attributes:
        catalog: what is known of it.
        named: its columns.
        files: what is told of its files, by key.
        listed_ms: when it was listed, in milliseconds since 1970.
    """

    catalog: Catalog
    named: NamedColumns
    files: Mapping[str, FileTold]
    listed_ms: int

    @property
    def snapshot(self) -> int:
        """Iceberg's id of what is shown: another one once the source has changed."""
        held = self.catalog.data
        assert isinstance(held, SourceFiles), "the catalog is of a source's files"
        return 1 + int(held.state[:_ID_DIGITS], 16)

    @property
    def deletes(self) -> Sequence[DeletesTold]:
        """None: files with deleted rows are refused."""
        return ()

    @property
    def rounded(self) -> frozenset[str]:
        """As of :class:`~layoutopt.publish.external.SourceTold`."""
        return self.named.rounded

    @property
    def constants(self) -> tuple[Column, ...]:
        """The columns that files don't say."""
        return self.named.constants.columns

    def metadata(self, manifests: ManifestFolder) -> str:
        """Iceberg's metadata as JSON, of one snapshot; its manifest is written into a folder.

        Of files that lack columns there is none: pyiceberg takes such a column for NULL in filters unless it is asked
        for, which only a catalog that plans its scans can see and refuse.

        Raises:
            OSError: they can't be written.
        """
        schema, location = self.named.schema, self.catalog.files.full_path("").rstrip("/")
        specs = [UNPARTITIONED_PARTITION_SPEC, *self.named.constants.specs]
        fields = [field.field_id for spec in specs for field in spec.fields]
        metadata = TableMetadataV2(
            location=location,
            table_uuid=uuid.uuid5(uuid.NAMESPACE_URL, f"{location}#source"),
            last_updated_ms=self.listed_ms,
            last_column_id=schema.highest_field_id,
            schemas=[schema],
            current_schema_id=schema.schema_id,
            partition_specs=specs,
            last_partition_id=max(fields, default=999),
            properties={"schema.name-mapping.default": self.named.mapping.model_dump_json()},
            current_snapshot_id=self.snapshot,
            snapshots=[self._snapshot(manifests)],
            snapshot_log=[SnapshotLogEntry(snapshot_id=self.snapshot, timestamp_ms=self.listed_ms)],
            sort_orders=[UNSORTED_SORT_ORDER],
            last_sequence_number=1,
        )
        return metadata.model_dump_json(by_alias=True, exclude_none=True)

    def _snapshot(self, manifests: ManifestFolder) -> Snapshot:
        said = [self.catalog.files.full_path(""), str(self.catalog.snapshot.number), str(self.snapshot)]
        name = hashlib.sha256("\n".join(said).encode()).hexdigest()[:32]
        if self.constants:  # who plans alone would go by these, and lose rows where it is pyiceberg
            written = f"{self.catalog.files.full_path('').rstrip('/')}/{_PLANNED_HERE}"
        else:
            written = manifests.once(name, self.snapshot, 1, self._manifests)
        return Snapshot(
            snapshot_id=self.snapshot, sequence_number=1, timestamp_ms=self.listed_ms, manifest_list=written,
            summary=Summary(Operation.APPEND),
        )  # fmt: skip

    def _manifests(self, folder: ManifestFolder, name: str) -> list[ManifestFile]:
        """The manifest of all files."""
        view, columns = View(None, self.catalog.schema, None, Schema(())), self.catalog.schema
        output, spec = folder.output(f"{name}.avro"), UNPARTITIONED_PARTITION_SPEC
        with write_manifest(2, spec, self.named.schema, output, self.snapshot, "deflate") as writer:
            for key, file in sorted(files_of(self.catalog, view).items()):
                told = self.files[key]
                data = data_file(file, told.path, told.size, columns, self.named.schema, Record())
                entry = ManifestEntry.from_args(
                    status=ManifestEntryStatus.EXISTING, snapshot_id=self.snapshot, sequence_number=1,
                    file_sequence_number=1, data_file=data,
                )  # fmt: skip
                writer.existing(entry)
        manifest = writer.to_manifest_file()
        manifest.sequence_number = 1
        return [manifest]


def named_source(catalog: Catalog, held: Sequence[HeldFile], listed_ms: int) -> NamedSource:
    """A source as a table of Iceberg's.

    Args:
        catalog: the source's, as it is now.
        held: its files.
        listed_ms: when it was listed, in milliseconds since 1970.

    Raises:
        PublicationError: readers would give other rows than the source has; names the file or column.
        SourceError: a value in a folder's name is none of its column's type.
    """
    files = catalog.data
    assert isinstance(files, SourceFiles), "the catalog is of a source's files"
    named = columns_by_name(catalog.schema, held)
    told = {}
    for key, file in files.held.items():
        spec, partition = named.constants.told(file)
        path, size = local_path(file.path), files.listed_size(key)
        told[key] = FileTold(path, size, spec, partition, frozenset(file.constants))
    return NamedSource(catalog, named, told, listed_ms)
