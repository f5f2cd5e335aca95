"""A table of Iceberg's whose files are indexed, as itself: its own ids, its own manifests, its own deletes.

Its current snapshot alone is shown, since indexes follow the newest. A spec of partitions without any is added, of
which answers say that all files are: values of transforms are nothing to who plans here. Files that lack a column which
their partition says get specs as those of other sources have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.types import DoubleType, FloatType

from layoutopt.catalog.table import Catalog
from layoutopt.errors import PublicationError, SourceError
from layoutopt.foreign.source_files import SourceFiles, file_key
from layoutopt.model.schema import Column
from layoutopt.publish.foreign.told import NO_SPEC, Constants, DeletesTold, FileTold, constants_of
from layoutopt.publish.iceberg_snapshot import ManifestFolder


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
