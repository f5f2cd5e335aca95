"""How readers of Iceberg's find a source's columns in files that have no ids of Iceberg's: by their names.

Every file is tried: the library that clients use says which of its columns it would take for which of the table's, and
that has to be what the source says. So a file that would be read otherwise is refused by its name, never read so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyiceberg.exceptions import ValidationError
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, pyarrow_to_schema
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table.name_mapping import MappedField, NameMapping, create_mapping_from_schema
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

from layoutopt.errors import PublicationError
from layoutopt.foreign.source_files import stored_names
from layoutopt.model.schema import Column, Schema
from layoutopt.publish.foreign.told import Constants, constants_of
from layoutopt.publish.iceberg_schema import FIRST_RESERVED, iceberg_schema
from layoutopt.sources.snapshot import SnapshotFile
from layoutopt.sql.schema import arrow_type_name

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
