"""A snapshot as Iceberg's metadata without a publication: for catalogs that make it when somebody asks.

Nothing is written into the table. Manifests, which clients that plan scans on their own read, go to a folder of the
caller's: one for each load of a partition, so that a new snapshot writes those of what it changed. The table is shown
without partitions: what is known of a partition column are bounds, as of any other, which skip as well and mean the
same whichever filter an engine takes for answered by them.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from threading import Lock
from typing import Final

from pyiceberg.io import FileIO, OutputFile, load_file_io
from pyiceberg.manifest import (
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotLogEntry, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.typedef import Record

from layoutopt.catalog.snapshot import PartitionEntry
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.publish.contents import View, files_in, sizes_of
from layoutopt.publish.iceberg_schema import data_file, iceberg_schema, name_mapping, spelled
from layoutopt.publish.target import SNAPSHOT_PROPERTY, VIEW_PROPERTY

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
