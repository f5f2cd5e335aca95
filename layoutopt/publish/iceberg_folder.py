"""An Iceberg table in a folder, without a catalog: its newest metadata file is the table.

Files are named as Hadoop's tables name them (``metadata/v3.metadata.json``, ``version-hint.text``), so that pyiceberg,
DuckDB, Polars and Spark open the folder. A commit creates the next metadata file exclusively.
"""

from __future__ import annotations

import re
from typing import Final

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, CreateTableTransaction, StagedTable, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.typedef import Properties

from layoutopt.catalog.storage.filesystem import TableFiles

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
