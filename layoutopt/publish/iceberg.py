"""An Iceberg table over a table's data files, in a folder or in a catalog that pyiceberg knows.

In a folder, the newest metadata file is the table. Files are named as Hadoop tables name them
(``metadata/v3.metadata.json``, ``version-hint.text``), so that pyiceberg, DuckDB, Polars and Spark open the folder. A
commit creates the next metadata file exclusively.
"""

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
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, CreateTableTransaction, StagedTable, Table, Transaction
from pyiceberg.table.metadata import TableMetadataV1, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Properties, Record

from layoutopt.catalog.paths import load_of
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog as TableCatalog
from layoutopt.errors import CommitConflictError, PublicationError
from layoutopt.publish.contents import IN_CATALOG, DataFile
from layoutopt.publish.iceberg_metadata import data_file, iceberg_schema, iceberg_type, name_mapping, spell_columns
from layoutopt.publish.table_format import (
    SNAPSHOT_PROPERTY,
    TABLE_PROPERTY,
    VIEW_PROPERTY,
    DesiredState,
    NewFile,
    PlaceState,
)

METADATA: Final = "metadata"
HINT: Final = f"{METADATA}/version-hint.text"
_COLUMNS_PROPERTY: Final = "layoutopt.columns"
_MAPPING_PROPERTY: Final = "schema.name-mapping.default"
# A retry on top of another commit could add files twice.
_FIXED: Final = {"format-version": "2", "commit.retry.num-retries": "0"}
_FIRST_PARTITION_ID: Final = 1000
_VERSION: Final = re.compile(r"v([1-9][0-9]{0,9})\.metadata\.json")


class FolderCatalog(NoopCatalog):
    """A catalog of the one table in a folder."""

    def __init__(self, files: TableFiles) -> None:
        super().__init__("folder")
        self._files = files
        self._name = ("folder", "table")

    def newest(self) -> int:
        """Return the newest version; 0 if there is no table."""
        matches = map(_VERSION.fullmatch, self._files.list(METADATA))
        return max((int(match[1]) for match in matches if match), default=0)

    def load(self) -> Table | None:
        """Return the table, or None."""
        version = self.newest()
        if not version:
            return None
        path = self._files.full_path(_path(version))
        io = load_file_io({}, location=path)
        metadata = FromInputFile.table_metadata(io.new_input(path))
        return Table(self._name, metadata, path, load_file_io(metadata.properties, location=path), self)

    def create(self, schema: Schema, spec: PartitionSpec, properties: Properties) -> CreateTableTransaction:
        """Return a transaction that creates the table."""
        location = self._files.full_path("").rstrip("/")
        metadata = new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, location, properties)
        path = self._files.full_path(_path(1))
        io = load_file_io(properties, location=path)
        return CreateTableTransaction(StagedTable(self._name, metadata, path, io, self))

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Write the next metadata file.

        Raises:
            CommitFailedException: another process wrote it, or a requirement no longer holds.
        """
        version = self.newest()
        current = self.load()
        for requirement in requirements:
            requirement.validate(None if current is None else current.metadata)
        empty = TableMetadataV1.model_construct(last_column_id=-1, schema=Schema())  # type: ignore[call-arg]  # so far
        metadata = update_table_metadata(
            empty if current is None else current.metadata,
            updates,
            enforce_validation=current is None,
            metadata_location=None if current is None else current.metadata_location,
        )
        path = _path(version + 1)
        try:
            self._files.write_new(path, metadata.model_dump_json().encode())
        except FileExistsError as error:
            raise CommitFailedException(f"version {version + 1} is there already") from error
        self.point_to_newest()
        return CommitTableResponse(metadata=metadata, metadata_location=self._files.full_path(path))

    def point_to_newest(self) -> None:
        """Write the newest version to the hint, for readers that don't list the folder."""
        wanted = str(self.newest()).encode()
        if not self._files.is_file(HINT) or self._files.read_bytes(HINT) != wanted:
            self._files.replace(HINT, wanted)


def _path(version: int) -> str:
    return f"{METADATA}/v{version}.metadata.json"


@dataclass(frozen=True)
class IcebergTarget:
    """An Iceberg table (a folder, a URL or ``iceberg:CATALOG/NAMESPACE.TABLE``) that names a table's files in full."""

    files: TableFiles
    location: str

    @cached_property
    def _folder(self) -> FolderCatalog | None:
        return None if self.location.startswith(IN_CATALOG) else FolderCatalog(TableFiles(self.location))

    @cached_property
    def _named(self) -> tuple[Catalog, str]:
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
        if self._table is None:
            return {}
        tasks = list(self._table.scan().plan_files())
        deleted = [task.file.file_path for task in tasks if task.delete_files]
        if deleted:
            raise PublicationError(
                f"another writer deleted rows of {deleted[0]!r} from the Iceberg table at {self.location!r}; "
                "undo that, or publish to another place"
            )
        return {task.file.file_path.removeprefix(self._root): task.file for task in tasks}

    @cached_property
    def _root(self) -> str:
        return self.files.full_path("").rstrip("/") + "/"

    def read_state(self) -> PlaceState | None:
        """Return what the newest metadata shows."""
        table = self._table
        if table is None:
            self._check_free()
            return None
        if self._folder is not None:
            self._folder.point_to_newest()  # a crash may have left an older hint
        properties, snapshot = table.properties, table.properties.get(SNAPSHOT_PROPERTY)
        columns, by = table.schema(), _partition_columns(table)
        present = self._present
        return PlaceState(
            properties.get(TABLE_PROPERTY),
            int(snapshot) if snapshot is not None and snapshot.isdecimal() else None,
            properties.get(VIEW_PROPERTY),
            {path: file.partition[0] if by else None for path, file in present.items() if load_of(path)},
            tuple(sorted(path for path in present if not load_of(path))),
            next(iter(by), None),
            (properties.get(_COLUMNS_PROPERTY), tuple(sorted(columns.column_names)), by),
            _version(table),
        )

    def _check_free(self) -> None:
        if self._folder is None:
            return
        place = TableFiles(self.location)
        is_own = place.full_path("").rstrip("/") == self._root.rstrip("/")
        names = [] if is_own else [name for name in place.list("") if name != METADATA]
        # A crash may leave manifests.
        names += [name for name in place.list(METADATA) if not name.endswith(".avro")]
        if place.is_file("") or names:
            raise PublicationError(
                f"{self.location!r} holds something that is no Iceberg table; publish to a new folder, or to the "
                "table's own folder"
            )

    def adapt(self, wanted: DesiredState, catalog: TableCatalog) -> DesiredState:
        """Return the state without partitions if a value is NULL, on which pyiceberg's filters fail; keep a spec."""
        present = None if self._table is None else _partition_columns(self._table)
        is_partitioned = None not in [e.value for e in catalog.partitions] if present is None else present != ()
        return wanted if is_partitioned else replace(wanted, partition_by=None)

    def shape(self, wanted: DesiredState) -> object:
        """Return the columns as JSON and as names, and the partition columns."""
        schema = iceberg_schema(wanted.columns)
        return spell_columns(wanted.columns), tuple(sorted(schema.column_names)), _wanted_partition(wanted)

    def partition_value(self, wanted: DesiredState, file: DataFile) -> object:
        """Return the value as manifests store it."""
        return None if wanted.partition_by is None else file.partition_value(wanted.columns.find(wanted.partition_by))

    def commit(self, before: PlaceState | None, wanted: DesiredState, added: list[NewFile], removed: list[str]) -> int:
        """Commit changed columns, files and table properties at once."""
        try:
            transaction = self._create(wanted) if self._table is None else self._update(self._table, before, wanted)
            schema = transaction.table_metadata.schema()
            transaction.set_properties(
                {**_shown_properties(wanted), _MAPPING_PROPERTY: name_mapping(schema, wanted.hidden)}
            )
            properties = {TABLE_PROPERTY: wanted.table_id, SNAPSHOT_PROPERTY: str(wanted.snapshot)}
            change = transaction.update_snapshot(snapshot_properties=properties).overwrite()
            for path in removed:
                change.delete_data_file(self._present[path])
            for new in added:
                change.append_data_file(self._file(new, wanted, schema, transaction.table_metadata.default_spec_id))
            change.commit()
            return _version(transaction.commit_transaction())
        except CommitFailedException as error:
            raise CommitConflictError(
                f"another process committed to the Iceberg table at {self.location!r} ({_short(error)}); publish again"
            ) from error

    def _create(self, wanted: DesiredState) -> Transaction:
        schema = iceberg_schema(wanted.columns)
        spec = UNPARTITIONED_PARTITION_SPEC
        if wanted.partition_by is not None:
            source = schema.find_field(wanted.partition_by)
            spec = PartitionSpec(
                PartitionField(source.field_id, _FIRST_PARTITION_ID, IdentityTransform(), wanted.partition_by)
            )
        properties: Properties = {**_FIXED, **_shown_properties(wanted)}
        if self._folder is not None:
            return self._folder.create(schema, spec, properties)
        catalog, name = self._named
        catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
        return catalog.create_table_transaction(name, schema, partition_spec=spec, properties=properties)

    def _update(self, table: Table, before: PlaceState | None, wanted: DesiredState) -> Transaction:
        transaction = table.transaction()
        if before is None or before.shape == self.shape(wanted):
            return transaction
        present = _partition_columns(table)
        if present != _wanted_partition(wanted):
            raise PublicationError(
                f"the Iceberg table at {self.location!r} is partitioned by {', '.join(present) or 'nothing'}, the "
                f"table now by {wanted.partition_by or 'nothing'}; publish to another place"
            )
        old = {str(name): str(type) for name, type in json.loads(table.properties.get(_COLUMNS_PROPERTY, "[]"))}
        new = {column.name: column.type for column in wanted.columns.columns}
        with transaction.update_schema(allow_incompatible_changes=True) as update:
            for field in table.schema().fields:
                if new.get(field.name) != old.get(field.name):
                    update.delete_column((field.name,))
        kept = {field.name for field in transaction.table_metadata.schema().fields}
        with transaction.update_schema() as update:
            for name, type in new.items():
                if name not in kept:
                    update.add_column((name,), iceberg_type(type, name, count(1)))
        return transaction

    def _file(self, new: NewFile, wanted: DesiredState, schema: Schema, spec: int) -> IcebergFile:
        partition = () if wanted.partition_by is None else (self.partition_value(wanted, new.file),)
        path = self._root + new.file.path
        return data_file(new.file, path, new.size, wanted.columns, schema, Record(*partition), spec)


def _shown_properties(wanted: DesiredState) -> dict[str, str]:
    return {
        TABLE_PROPERTY: wanted.table_id,
        SNAPSHOT_PROPERTY: str(wanted.snapshot),
        VIEW_PROPERTY: wanted.layout,
        _COLUMNS_PROPERTY: spell_columns(wanted.columns),
    }


def _partition_columns(table: Table) -> tuple[str, ...]:
    schema = table.schema()
    return tuple(str(schema.find_column_name(part.source_id)) for part in table.spec().fields)


def _wanted_partition(wanted: DesiredState) -> tuple[str, ...]:
    return () if wanted.partition_by is None else (wanted.partition_by,)


def _version(table: Table) -> int:
    """The number of commits with files, of a table of format 2."""
    return int(getattr(table.metadata, "last_sequence_number", 0))


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
