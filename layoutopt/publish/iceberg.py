"""A place that is an Iceberg table: in a folder, or in a catalog that pyiceberg knows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Final

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io import load_file_io
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, CreateTableTransaction, StagedTable, Table, Transaction
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Properties, Record

from layoutopt.catalog.paths import load_of
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog as TableCatalog
from layoutopt.errors import CommitConflictError, PublicationError
from layoutopt.publish.contents import IN_CATALOG, DataFile
from layoutopt.publish.iceberg_metadata import data_file, iceberg_schema, iceberg_type, name_mapping, spelled
from layoutopt.publish.table_format import SNAPSHOT_PROPERTY, TABLE_PROPERTY, VIEW_PROPERTY, Added, Shown, Wanted

# ----------------------------------------------------------------------------------------------------
# An Iceberg table in a folder, without a catalog: its newest metadata file is the table.
#
# Files are named as Hadoop's tables name them (``metadata/v3.metadata.json``, ``version-hint.text``), so that
# pyiceberg,
# DuckDB, Polars and Spark open the folder. A commit creates the next metadata file exclusively.

METADATA: Final = "metadata"
HINT: Final = f"{METADATA}/version-hint.text"
_VERSION: Final = re.compile(r"v([1-9][0-9]{0,9})\.metadata\.json")


class FolderCatalog(NoopCatalog):
    """A catalog of the one table of a folder."""

    def __init__(self, files: TableFiles) -> None:
        super().__init__("folder")
        self._files = files
        self._name = ("folder", "table")

    def newest(self) -> int:
        """The newest version; 0 where there is no table."""
        found = map(_VERSION.fullmatch, self._files.list(METADATA))
        return max((int(match[1]) for match in found if match), default=0)

    def load(self) -> Table | None:
        """The table, None where there is none."""
        version = self.newest()
        if not version:
            return None
        where = self._files.full_path(_path(version))
        io = load_file_io({}, location=where)
        metadata = FromInputFile.table_metadata(io.new_input(where))
        return Table(self._name, metadata, where, load_file_io(metadata.properties, location=where), self)

    def created(self, schema: Schema, spec: PartitionSpec, properties: Properties) -> CreateTableTransaction:
        """A transaction that makes the table."""
        location = self._files.full_path("").rstrip("/")
        metadata = new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, location, properties)
        where = self._files.full_path(_path(1))
        io = load_file_io(properties, location=where)
        return CreateTableTransaction(StagedTable(self._name, metadata, where, io, self))

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Write the next metadata file.

        Raises:
            CommitFailedException: somebody else wrote it, or what the commit was planned on is no longer there.
        """
        version = self.newest()
        now = self.load()
        for requirement in requirements:
            requirement.validate(None if now is None else now.metadata)
        metadata = update_table_metadata(
            _nothing() if now is None else now.metadata,
            updates,
            enforce_validation=now is None,
            metadata_location=None if now is None else now.metadata_location,
        )
        path = _path(version + 1)
        try:
            self._files.write_new(path, metadata.model_dump_json().encode())
        except FileExistsError as error:
            raise CommitFailedException(f"version {version + 1} is there already") from error
        self.point_to_newest()
        return CommitTableResponse(metadata=metadata, metadata_location=self._files.full_path(path))

    def point_to_newest(self) -> None:
        """Have the hint name the newest version, for readers that don't list the folder."""
        wanted = str(self.newest()).encode()
        if not self._files.is_file(HINT) or self._files.read_bytes(HINT) != wanted:
            self._files.replace(HINT, wanted)


def _nothing() -> TableMetadata:
    """Metadata of no table, to which the updates of a creation are applied."""
    return TableMetadataV1.model_construct(last_column_id=-1, schema=Schema())  # type: ignore[call-arg]  # so far


def _path(version: int) -> str:
    return f"{METADATA}/v{version}.metadata.json"


_COLUMNS_PROPERTY: Final = "layoutopt.columns"
_MAPPING_PROPERTY: Final = "schema.name-mapping.default"
# A commit that is tried again on what somebody else has committed would name files twice.
_FIXED: Final = {"format-version": "2", "commit.retry.num-retries": "0"}
_FIRST_PARTITION_ID: Final = 1000


@dataclass(frozen=True)
class IcebergTarget:
    """An Iceberg table over a table's files, which it names by all that leads to them.

    Attributes:
        files: the table's.
        location: a folder or URL, or ``iceberg:CATALOG/NAMESPACE.TABLE``.
    """

    files: TableFiles
    location: str

    @cached_property
    def _folder(self) -> FolderCatalog | None:
        """The folder that the table is in, None where it is in a catalog."""
        return None if self.location.startswith(IN_CATALOG) else FolderCatalog(TableFiles(self.location))

    @cached_property
    def _named(self) -> tuple[Catalog, str]:
        """The catalog, and the table's name in it."""
        match = re.fullmatch(r"([^/]+)/([^/]+\.[^/.]+)", self.location.removeprefix(IN_CATALOG))
        if match is None:
            raise PublicationError(
                f"{self.location!r} names no table of a catalog; write iceberg:CATALOG/NAMESPACE.TABLE"
            )
        try:
            return load_catalog(match[1]), match[2]
        except Exception as error:  # whatever the catalog's own library raises
            raise PublicationError(f"the Iceberg catalog {match[1]!r} can't be opened ({_short(error)})") from error

    @cached_property
    def _table(self) -> Table | None:
        try:
            if self._folder is not None:
                return self._folder.load()
            catalog, name = self._named
            return catalog.load_table(name)
        except NoSuchTableError:
            return None
        except (OSError, ValueError) as error:
            raise PublicationError(f"the Iceberg table at {self.location!r} can't be read: {_short(error)}") from error

    @cached_property
    def _present(self) -> Mapping[str, IcebergFile]:
        """The data files that the table names, by path relative to our table, or as they are."""
        if self._table is None:
            return {}
        tasks = list(self._table.scan().plan_files())
        deleted = [task.file.file_path for task in tasks if task.delete_files]
        if deleted:
            raise PublicationError(
                f"rows of {deleted[0]!r} were deleted from the Iceberg table at {self.location!r} by somebody else; "
                "undo that, or publish to another place"
            )
        return {self._relative(task.file.file_path): task.file for task in tasks}

    @cached_property
    def _root(self) -> str:
        return self.files.full_path("").rstrip("/") + "/"

    def _relative(self, path: str) -> str:
        return path.removeprefix(self._root)

    def shown(self) -> Shown | None:
        """What the newest metadata says."""
        table = self._table
        if table is None:
            self._check_free()
            return None
        if self._folder is not None:
            self._folder.point_to_newest()  # a crash may have left it behind
        of, snapshot = table.properties, table.properties.get(SNAPSHOT_PROPERTY)
        columns, by = table.schema(), _partition_columns(table)
        present = self._present
        return Shown(
            of.get(TABLE_PROPERTY),
            int(snapshot) if snapshot is not None and snapshot.isdecimal() else None,
            of.get(VIEW_PROPERTY),
            {path: file.partition[0] if by else None for path, file in present.items() if load_of(path)},
            tuple(sorted(path for path in present if not load_of(path))),
            next(iter(by), None),
            (of.get(_COLUMNS_PROPERTY), tuple(sorted(columns.column_names)), by),
            _version(table),
        )

    def _check_free(self) -> None:
        """Refuse a folder that holds something else."""
        if self._folder is None:
            return
        place = TableFiles(self.location)
        inside = place.full_path("").rstrip("/") == self._root.rstrip("/")
        others = [] if inside else [name for name in place.list("") if name != METADATA]
        # Manifests that a crash left behind are nobody's.
        others += [name for name in place.list(METADATA) if not name.endswith(".avro")]
        if place.is_file("") or others:
            raise PublicationError(
                f"{self.location!r} holds something that is no Iceberg table; publish to a new folder, or to the "
                "table's own"
            )

    def adapted(self, wanted: Wanted, catalog: TableCatalog) -> Wanted:
        """Without partitions where a value is NULL, on which pyiceberg's filters fail; what is there stays so."""
        present = None if self._table is None else _partition_columns(self._table)
        apart = None not in [entry.value for entry in catalog.partitions] if present is None else present != ()
        return wanted if apart else replace(wanted, partition_by=None)

    def shape(self, wanted: Wanted) -> object:
        """The columns as a text of ours and as names, and the partition columns."""
        schema = iceberg_schema(wanted.columns)
        return spelled(wanted.columns), tuple(sorted(schema.column_names)), _wanted_partition(wanted)

    def partition_value(self, wanted: Wanted, file: DataFile) -> object:
        """The value as manifests hold it."""
        return None if wanted.partition_by is None else file.partition_value(wanted.columns.find(wanted.partition_by))

    def commit(self, before: Shown | None, wanted: Wanted, added: list[Added], removed: list[str]) -> int:
        """Make one commit: columns where they changed, files, and what is shown as the table's properties."""
        try:
            transaction = self._created(wanted) if self._table is None else self._changed(self._table, before, wanted)
            schema = transaction.table_metadata.schema()
            transaction.set_properties(
                {**_shown_properties(wanted), _MAPPING_PROPERTY: name_mapping(schema, wanted.hidden)}
            )
            properties = {TABLE_PROPERTY: wanted.table_id, SNAPSHOT_PROPERTY: str(wanted.snapshot)}
            change = transaction.update_snapshot(snapshot_properties=properties).overwrite()
            for path in removed:
                change.delete_data_file(self._present[path])
            for one in added:
                change.append_data_file(self._file(one, wanted, schema, transaction.table_metadata.default_spec_id))
            change.commit()
            return _version(transaction.commit_transaction())
        except CommitFailedException as error:
            raise CommitConflictError(
                f"somebody else committed to the Iceberg table at {self.location!r} meanwhile ({_short(error)}); "
                "publish again"
            ) from error

    def _created(self, wanted: Wanted) -> Transaction:
        schema = iceberg_schema(wanted.columns)
        spec = UNPARTITIONED_PARTITION_SPEC
        if wanted.partition_by is not None:
            source = schema.find_field(wanted.partition_by)
            spec = PartitionSpec(
                PartitionField(source.field_id, _FIRST_PARTITION_ID, IdentityTransform(), wanted.partition_by)
            )
        properties: Properties = {**_FIXED, **_shown_properties(wanted)}
        if self._folder is not None:
            return self._folder.created(schema, spec, properties)
        catalog, name = self._named
        catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
        return catalog.create_table_transaction(name, schema, partition_spec=spec, properties=properties)

    def _changed(self, table: Table, before: Shown | None, wanted: Wanted) -> Transaction:
        """A transaction in which the table has the columns that are wanted.

        Raises:
            PublicationError: it is partitioned by another column.
        """
        transaction = table.transaction()
        if before is None or before.shape == self.shape(wanted):
            return transaction
        present = _partition_columns(table)
        if present != _wanted_partition(wanted):
            raise PublicationError(
                f"the Iceberg table at {self.location!r} is partitioned by {', '.join(present) or 'nothing'}, the "
                f"table now by {wanted.partition_by or 'nothing'}; publish to another place"
            )
        had = _types_of(table.properties.get(_COLUMNS_PROPERTY, "[]"))
        now = {column.name: column.type for column in wanted.columns.columns}
        with transaction.update_schema(allow_incompatible_changes=True) as update:
            for field in table.schema().fields:
                if now.get(field.name) != had.get(field.name):
                    update.delete_column((field.name,))
        kept = {field.name for field in transaction.table_metadata.schema().fields}
        with transaction.update_schema() as update:
            for name, type in now.items():
                if name not in kept:
                    update.add_column((name,), iceberg_type(type, name, count(1)))
        return transaction

    def _file(self, one: Added, wanted: Wanted, schema: IcebergSchema, spec: int) -> IcebergFile:
        partition = () if wanted.partition_by is None else (self.partition_value(wanted, one.file),)
        path = self._root + one.file.path
        return data_file(one.file, path, one.size, wanted.columns, schema, Record(*partition), spec)


def _shown_properties(wanted: Wanted) -> dict[str, str]:
    return {
        TABLE_PROPERTY: wanted.table_id,
        SNAPSHOT_PROPERTY: str(wanted.snapshot),
        VIEW_PROPERTY: wanted.layout,
        _COLUMNS_PROPERTY: spelled(wanted.columns),
    }


def _partition_columns(table: Table) -> tuple[str, ...]:
    schema = table.schema()
    return tuple(str(schema.find_column_name(part.source_id)) for part in table.spec().fields)


def _wanted_partition(wanted: Wanted) -> tuple[str, ...]:
    return () if wanted.partition_by is None else (wanted.partition_by,)


def _version(table: Table) -> int:
    """The number of commits with files, of a table of format 2."""
    return int(getattr(table.metadata, "last_sequence_number", 0))


def _types_of(text: str) -> dict[str, str]:
    return {str(name): str(type) for name, type in json.loads(text)}


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
