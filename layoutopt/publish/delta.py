"""A place that is a Delta table.

The log is read by the library, and a commit is written by hand: one JSON file, created exclusively, which is what
Delta's protocol asks of a store. No library commits added and removed files of somebody else's together.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import cached_property
from typing import Any, Final
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from layoutopt.catalog.paths import load_of
from layoutopt.catalog.snapshot import Bounds, PartitionEntry
from layoutopt.catalog.storage.filesystem import TableFiles, has_codes, is_url
from layoutopt.catalog.table import Catalog
from layoutopt.errors import CommitConflictError, PublicationError
from layoutopt.model.schema import Column, Schema
from layoutopt.model.types import decimal_digits, nested_parts, struct_fields
from layoutopt.model.values import NAN_KEY, Key, from_key, key_kind
from layoutopt.publish.contents import DataFile
from layoutopt.publish.table_format import TABLE_PROPERTY, VIEW_PROPERTY, Added, Shown, Wanted

# ----------------------------------------------------------------------------------------------------
# A table's schema as Delta Lake writes it.

_SIMPLE = {
    "boolean": "boolean",
    "tinyint": "byte",
    "smallint": "short",
    "int": "integer",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
}
_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=]")

DeltaType = str | dict[str, object]


def delta_schema(schema: Schema) -> dict[str, object]:
    """The schema as Delta's log has it, every column nullable.

    Raises:
        PublicationError: a column's type or name is one that Delta does not have.
    """
    for column in schema.columns:
        if _FORBIDDEN.search(column.name):
            raise PublicationError(
                f"the column {column.name!r} has one of ` ,;{{}}()=` or white space in its name, which Delta tables "
                "can't have; rename it and load again"
            )
    return {"type": "struct", "fields": [_field(column.name, column.type, column.name) for column in schema.columns]}


def has_local_times(schema: Schema) -> bool:
    """Whether a column holds times without a zone: a feature of the protocol that readers must know."""
    return any("timestamp_ntz" in column.type for column in schema.columns)


def _field(name: str, type: str, column: str) -> dict[str, object]:
    return {"name": name, "type": _type(type, column), "nullable": True, "metadata": {}}


def _type(type: str, column: str) -> DeltaType:
    kind, parts = nested_parts(type)
    if parts and kind == "array":
        return {"type": "array", "elementType": _type(parts[0], column), "containsNull": True}
    if parts and kind == "map":
        key, value = (_type(part, column) for part in parts)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if parts and kind == "struct":
        return {"type": "struct", "fields": [_field(name, of, column) for name, of in struct_fields(type)]}
    if decimal_digits(type):
        return type
    if re.fullmatch(r"varchar\(\d+\)", type):
        return "string"
    if type not in _SIMPLE:
        raise PublicationError(
            f"column {column!r} is of type {type}, which Delta tables don't have; cast it and load again"
        )
    return _SIMPLE[type]


# ----------------------------------------------------------------------------------------------------
# What a Delta table's log says of a file's values, so that no reader skips a row by it that it asks for.
#
# Delta's protocol leaves open what readers do with NaN, and some read its JSON less exactly than it is written. So:
#
# - a float column with a NaN in a file (or perhaps with one) has no minimum and no maximum there: to Spark, DuckDB and
# Polars NaN is the largest number, to others it is none;
# - infinities are no JSON numbers, and make both unknown as well;
# - zero is -0.0 as a minimum and 0.0 as a maximum, since some readers order the two;
# - times are rounded outwards to milliseconds, to which some readers cut them;
# - decimals of more than 15 digits are rounded outwards to 15, which survive a reader's doubles;
# - texts are UTF-8: some readers take characters beyond U+FFFF, written as two escapes of JSON, for smaller ones;
# - readers are told to skip by those columns alone that have both in every file with values (deltalake's Arrow dataset
# takes a minimum that is missing in one file for a reason to skip the file).

_DOUBLE_DIGITS: Final = 15
_WITHOUT_BOUNDS: Final = ("boolean", "binary")
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)  # names that every reader finds in a list with commas
_FLOATS: Final = ("float", "double")
_TIMES: Final = ("timestamp", "timestamp_ntz")
# Texts that every reader of dates takes: four digits of a year.
_FIRST_DAY, _LAST_DAY = int(np.datetime64("0001-01-01", "D").astype(int)), int(np.datetime64("9999-12-31").astype(int))
_MILLISECOND: Final = 1000
_DAY: Final = 86_400_000_000

Extreme = float | int | str | Decimal


def delta_statistics(file: DataFile, schema: Schema, partition_by: str | None) -> str:
    """The ``stats`` of an add action: rows, and of each column NULLs and, where both are known, minimum and maximum.

    The partition column has none.
    """
    low: dict[str, Extreme] = {}
    high: dict[str, Extreme] = {}
    nulls: dict[str, int] = {}
    for column in schema.columns:
        # Of a struct Delta counts the fields' NULLs, not its own.
        if column.name == partition_by or column.type.startswith("struct<"):
            continue
        bounds = file.bounds(column)
        if bounds.nulls is not None:
            nulls[column.name] = bounds.nulls
        pair = _extremes(bounds, column)
        if pair is not None:
            low[column.name], high[column.name] = pair
    extremes = f'"minValues":{_object(low)},"maxValues":{_object(high)}'
    return f'{{"numRecords":{file.rows},{extremes},"nullCount":{_object(nulls)}}}'


def bounded_columns(catalog: Catalog, schema: Schema) -> tuple[str, ...]:
    """The columns of which every file has a minimum and a maximum, or nothing but NULL: those that readers skip by."""
    return tuple(
        column.name
        for column in schema.columns
        if _PLAIN.fullmatch(column.name) and all(_is_bounded(catalog, entry, column) for entry in catalog.partitions)
    )


def _is_bounded(catalog: Catalog, entry: PartitionEntry, column: Column) -> bool:
    if key_kind(column.type) is None or column.type in _WITHOUT_BOUNDS:
        return False
    # What is known of a partition together is known of each of its blocks.
    bounds = catalog.bounds_in(entry, column.name)
    return bounds.nulls == entry.rows or _extremes(bounds, column) is not None


def _extremes(bounds: Bounds, column: Column) -> tuple[Extreme, Extreme] | None:
    low, high, type = bounds.low, bounds.high, column.type
    if low is None or high is None or type in _WITHOUT_BOUNDS:
        return None
    if type in _FLOATS:
        return None if high == NAN_KEY else _numbers(low, high, type)
    if type == "date":
        in_range = int(low) >= _FIRST_DAY and int(high) <= _LAST_DAY
        return (str(np.datetime64(low, "D")), str(np.datetime64(high, "D"))) if in_range else None
    if type in _TIMES:
        return _times(int(low), int(high), "Z" if type == "timestamp" else "")
    digits = decimal_digits(type)
    if digits:
        return _decimals(int(low), int(high), *digits)
    assert not isinstance(low, bytes)
    assert not isinstance(high, bytes)
    return low, high


def _numbers(low: Key, high: Key, type: str) -> tuple[Extreme, Extreme] | None:
    least, most = from_key(low, type), from_key(high, type)
    assert isinstance(least, float)
    assert isinstance(most, float)
    if not np.isfinite([least, most]).all():
        return None
    return (-0.0 if least == 0 else least), (0.0 if most == 0 else most)


def _times(low: int, high: int, zone: str) -> tuple[str, str] | None:
    """Both in milliseconds, the first not after, the second not before the instants in microseconds."""
    least, most = low // _MILLISECOND, -(-high // _MILLISECOND)
    if least < _FIRST_DAY * _DAY // _MILLISECOND or most >= (_LAST_DAY + 1) * _DAY // _MILLISECOND:
        return None
    return f"{np.datetime64(least, 'ms')}{zone}", f"{np.datetime64(most, 'ms')}{zone}"


def _decimals(low: int, high: int, precision: int, scale: int) -> tuple[Extreme, Extreme] | None:
    least, most = (
        Context(prec=_DOUBLE_DIGITS, rounding=rounding).plus(Decimal(unscaled).scaleb(-scale, Context(prec=100)))
        for unscaled, rounding in ((low, ROUND_FLOOR), (high, ROUND_CEILING))
    )
    limit = Decimal(10) ** (precision - scale)
    return (least, most) if -limit < least and most < limit else None


def _object(members: Mapping[str, Extreme]) -> str:
    """A JSON object in which decimals are the numbers they are, which Python's own writer has no way to say."""
    values = {
        name: f"{value:f}" if isinstance(value, Decimal) else json.dumps(value, allow_nan=False, ensure_ascii=False)
        for name, value in members.items()
    }
    return "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{value}" for name, value in values.items()) + "}"


LOG: Final = "_delta_log"
_DATE: Final = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_CHECKPOINT_EVERY: Final = 10
# A VACUUM by a Delta engine would take the files of older and later snapshots for garbage: it finds none old enough.
_BOUNDED: Final = "delta.dataSkippingStatsColumns"
_UNBOUNDED: Final = {"delta.dataSkippingNumIndexedCols": "0"}
_PROTECTED: Final = {"delta.deletedFileRetentionDuration": "interval 36500 days"}


@dataclass(frozen=True)
class DeltaTarget:
    """A Delta table over a table's files. In the table's own folder it names them relative to that, elsewhere in full.

    Attributes:
        files: the table's.
        location: a folder or URL.
    """

    files: TableFiles
    location: str

    @cached_property
    def _place(self) -> TableFiles:
        return TableFiles(self.location)

    @cached_property
    def _is_inside(self) -> bool:
        return self._place.full_path("").rstrip("/") == self.files.full_path("").rstrip("/")

    def shown(self) -> Shown | None:
        """What the log says."""
        if has_codes(self._place.full_path("")):  # deltalake decodes it
            raise PublicationError(
                f"the folder {self.location!r} has a code with % in its name, which is read as another; publish to a "
                "place without"
            )
        if not self._place.list(LOG):
            others = [name for name in self._place.list("") if name != LOG]
            if self._place.is_file("") or (others and not self._is_inside):
                raise PublicationError(
                    f"{self.location!r} holds something that is no Delta table; publish to a new folder, or to the "
                    "table's own"
                )
            return None
        try:
            table = DeltaTable(self._place.full_path(""))
            metadata, schema = table.metadata(), json.loads(table.schema().to_json())
            wanted = ["path", "partition"] if metadata.partition_columns else ["path"]
            paths = pa.table(table.get_add_actions()).select(wanted).to_pylist()
        except (DeltaError, OSError, ValueError) as error:
            cause = " ".join(str(error).split())[:200]
            raise PublicationError(f"the Delta table at {self.location!r} can't be read: {cause}") from error
        return self._shown(table, metadata, schema, paths)

    def _shown(self, table: DeltaTable, metadata: Any, schema: Any, paths: list[dict[str, Any]]) -> Shown:
        of = metadata.configuration
        named = {self._relative(row["path"]): tuple((row.get("partition") or {}).values()) for row in paths}
        table_id = of.get(TABLE_PROPERTY)
        return Shown(
            table_id,
            None if table_id is None else table.transaction_version(_application(table_id)),
            of.get(VIEW_PROPERTY),
            {path: _plain(values) for path, values in named.items() if load_of(path)},
            tuple(sorted(path for path in named if not load_of(path))),
            next(iter(metadata.partition_columns), None),
            (schema, tuple(metadata.partition_columns), of.get(_BOUNDED, "")),
            table.version(),
        )

    def _relative(self, path: str) -> str:
        """A file's path below our table, or as it is where it lies elsewhere."""
        root = self._uri("")
        return unquote(path.removeprefix(root)) if path.startswith(root) else unquote(path)

    def _uri(self, path: str) -> str:
        """How the log names a file: relative to its own folder if that is the table's, else in full."""
        if self._is_inside:
            return quote(path)
        root = self.files.full_path("").rstrip("/")
        return (root if is_url(root) else f"file://{quote(root)}") + f"/{quote(path)}"

    def adapted(self, wanted: Wanted, catalog: Catalog) -> Wanted:
        """Without partitions where a text is empty, which is NULL to the log, or a year has other than four digits."""
        values = [entry.value for entry in catalog.partitions]
        of_dates = wanted.partition_by is not None and wanted.columns.find(wanted.partition_by).type == "date"
        unsaid = "" in values or (of_dates and any(value and not _DATE.fullmatch(str(value)) for value in values))
        by = None if unsaid else wanted.partition_by
        bounded = tuple(name for name in bounded_columns(catalog, wanted.columns) if name != by)
        return replace(wanted, partition_by=by, bounded=bounded)

    def shape(self, wanted: Wanted) -> object:
        """The schema in Delta's JSON, the partition columns, and the columns that readers skip by."""
        by = () if wanted.partition_by is None else (wanted.partition_by,)
        return delta_schema(wanted.columns), by, ",".join(wanted.bounded)

    def partition_value(self, wanted: Wanted, file: DataFile) -> object:
        """The value as the log spells it; NULL is null."""
        if wanted.partition_by is None:
            return None
        column = wanted.columns.find(wanted.partition_by)
        value = file.partition_value(column)
        if value is None or isinstance(value, str):
            return value
        return str(np.datetime64(value, "D")) if column.type == "date" else str(value)

    def commit(self, before: Shown | None, wanted: Wanted, added: list[Added], removed: list[str]) -> int:
        """Write the next file of the log; every so often the library sums the log up in a checkpoint."""
        version = 0 if before is None else before.version + 1
        lines = [_json(action) for action in self._actions(before, wanted, added, removed)]
        try:
            self._place.write_new(f"{LOG}/{version:020}.json", "\n".join(lines).encode())
        except FileExistsError as error:
            raise CommitConflictError(
                f"somebody else committed version {version} of the Delta table at {self.location!r} meanwhile; "
                "publish again"
            ) from error
        if version and version % _CHECKPOINT_EVERY == 0:
            with suppress(DeltaError, OSError):  # it only saves readers time
                DeltaTable(self._place.full_path("")).create_checkpoint()
        return version

    def _actions(
        self, before: Shown | None, wanted: Wanted, added: list[Added], removed: list[str]
    ) -> Iterator[dict[str, object]]:
        now = int(time.time() * 1000)
        yield {
            "commitInfo": {
                "timestamp": now,
                "operation": "layoutopt publish",
                "operationParameters": {"snapshot": str(wanted.snapshot)},
                "engineInfo": "layoutopt",
            }
        }
        if before is None or before.shape != self.shape(wanted):
            if before is None or has_local_times(wanted.columns):  # a protocol may rise, and never falls
                yield {"protocol": _protocol(wanted)}
            yield {"metaData": self._metadata(wanted, now)}
        yield {"txn": {"appId": _application(wanted.table_id), "version": wanted.snapshot, "lastUpdated": now}}
        for path in removed:
            yield {"remove": {"path": self._uri(path), "deletionTimestamp": now, "dataChange": True}}
        for one in added:
            value = self.partition_value(wanted, one.file)
            yield {
                "add": {
                    "path": self._uri(one.file.path),
                    "partitionValues": {} if wanted.partition_by is None else {wanted.partition_by: value},
                    "size": one.size,
                    "modificationTime": int(one.modified * 1000),
                    "dataChange": True,
                    "stats": delta_statistics(one.file, wanted.columns, wanted.partition_by),
                }
            }

    def _metadata(self, wanted: Wanted, now: int) -> dict[str, object]:
        # The same id as long as the place shows the same table: readers that follow a table look at it.
        identity = uuid.uuid5(uuid.UUID(wanted.table_id), f"{self.location}\n{wanted.layout}")
        return {
            "id": str(identity),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": _json(delta_schema(wanted.columns)),
            "partitionColumns": [] if wanted.partition_by is None else [wanted.partition_by],
            "configuration": {
                **_PROTECTED,
                **({_BOUNDED: ",".join(wanted.bounded)} if wanted.bounded else _UNBOUNDED),
                TABLE_PROPERTY: wanted.table_id,
                VIEW_PROPERTY: wanted.layout,
            },
            "createdTime": now,
        }


def _json(value: object) -> str:
    # Not in ASCII: some readers take characters beyond U+FFFF, written as two escapes, for others.
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _protocol(wanted: Wanted) -> dict[str, object]:
    if not has_local_times(wanted.columns):
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    features = ["timestampNtz"]
    return {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}


def _application(table_id: str) -> str:
    """The name under which a table's snapshots are transactions of the log."""
    return f"layoutopt-{table_id}"


def _plain(values: tuple[object, ...]) -> str | None:
    """A partition value as the log spells it, from what the library makes of it."""
    return None if not values or values[0] is None else str(values[0])
