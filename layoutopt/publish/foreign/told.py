"""What readers of Iceberg's are told of a source's files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.transforms import IdentityTransform

from layoutopt.errors import PublicationError
from layoutopt.foreign.folder_values import constant
from layoutopt.model.schema import Column
from layoutopt.model.types import INTEGER_BITS
from layoutopt.publish.iceberg_snapshot import ManifestFolder
from layoutopt.scan.arrow_types import any_arrow_type
from layoutopt.sources.snapshot import SnapshotFile

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
