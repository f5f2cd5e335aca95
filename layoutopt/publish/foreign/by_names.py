"""A folder of Parquet, or a Delta table, as a table of Iceberg's whose columns are found by their names."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, ManifestFile, write_manifest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotLogEntry, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.typedef import Record

from layoutopt.catalog.table import Catalog
from layoutopt.foreign.listing import local_path
from layoutopt.foreign.source_files import SourceFiles
from layoutopt.model.schema import Column, Schema
from layoutopt.publish.contents import View, files_of
from layoutopt.publish.foreign.columns import HeldFile, NamedColumns, columns_by_name
from layoutopt.publish.foreign.told import DeletesTold, FileTold
from layoutopt.publish.iceberg_schema import data_file
from layoutopt.publish.iceberg_snapshot import ManifestFolder

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
        """As of :class:`~layoutopt.publish.foreign.told.SourceTold`."""
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
