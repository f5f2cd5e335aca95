"""A Delta table over a table's data files.

deltalake reads the log. Commits are written here as one exclusively created JSON file, as Delta's protocol requires,
because deltalake can't add and remove external files in one commit.
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

from layoutopt.catalog.partition_entry import Bounds, PartitionEntry
from layoutopt.catalog.paths import load_of
from layoutopt.catalog.storage.filesystem import TableFiles, has_codes, is_url
from layoutopt.catalog.table import Catalog
from layoutopt.errors import CommitConflictError, PublicationError
from layoutopt.model.schema import Column, Schema
from layoutopt.model.types import decimal_digits, nested_parts, struct_fields
from layoutopt.model.values import NAN_KEY, Key, from_key, key_kind
from layoutopt.publish.contents import DataFile
from layoutopt.publish.table_format import TABLE_PROPERTY, VIEW_PROPERTY, DesiredState, NewFile, PlaceState

_SAME = ("boolean", "float", "double", "string", "binary", "date", "timestamp", "timestamp_ntz")
_SIMPLE = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long", **{name: name for name in _SAME}}
_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=]")

LOG: Final = "_delta_log"
_DATE: Final = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_CHECKPOINT_EVERY: Final = 10
_BOUNDED: Final = "delta.dataSkippingStatsColumns"
_UNBOUNDED: Final = {"delta.dataSkippingNumIndexedCols": "0"}
# Keeps a Delta engine's VACUUM from deleting the files of other snapshots as garbage.
_PROTECTED: Final = {"delta.deletedFileRetentionDuration": "interval 36500 days"}

# Decimals beyond these digits are rounded outwards: readers may parse them as doubles.
_DOUBLE_DIGITS: Final = 15
_WITHOUT_BOUNDS: Final = ("boolean", "binary")
# Names that every reader finds in a list separated by commas.
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_FLOATS: Final = ("float", "double")
_TIMES: Final = ("timestamp", "timestamp_ntz")
# The days with four-digit years, which every reader of dates parses.
_FIRST_DAY, _LAST_DAY = int(np.datetime64("0001-01-01", "D").astype(int)), int(np.datetime64("9999-12-31").astype(int))
_MILLISECOND: Final = 1000
_DAY: Final = 86_400_000_000

Extreme = float | int | str | Decimal
DeltaType = str | dict[str, object]


def delta_schema(schema: Schema) -> dict[str, object]:
    """Return the schema in Delta's JSON, with every column nullable.

    Raises:
        PublicationError: Delta does not support a column's type or name.
    """
    for column in schema.columns:
        if _FORBIDDEN.search(column.name):
            raise PublicationError(
                f"the column {column.name!r} has one of ` ,;{{}}()=` or white space in its name, which Delta tables "
                "don't allow; rename the column and load again"
            )
    return {"type": "struct", "fields": [_field(column.name, column.type, column.name) for column in schema.columns]}


def has_local_times(schema: Schema) -> bool:
    """Return whether a column holds times without a zone, which need a table feature of the protocol."""
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
        return {"type": "struct", "fields": [_field(name, kind, column) for name, kind in struct_fields(type)]}
    if decimal_digits(type):
        return type
    if re.fullmatch(r"varchar\(\d+\)", type):
        return "string"
    if type not in _SIMPLE:
        raise PublicationError(
            f"column {column!r} is of type {type}, which Delta tables don't have; cast it and load again"
        )
    return _SIMPLE[type]


def delta_statistics(file: DataFile, schema: Schema, partition_by: str | None) -> str:
    """Return the ``stats`` of an add action: rows, NULLs, and minima and maxima where both are known.

    The partition column has none. Readers interpret the JSON differently, so bounds are adjusted until none of them
    skips a matching row:

    - A file with a NaN (or perhaps with one) has no bounds of that column: readers order NaN differently.
    - Infinities have no bounds, since JSON lacks them.
    - Zero is -0.0 as a minimum and 0.0 as a maximum, since some readers order the two.
    - Times are rounded outwards to milliseconds, and decimals of more than 15 digits to 15.
    - Strings are UTF-8: some readers misread characters beyond U+FFFF written as two escapes.
    - Only columns with bounds in every file that has values are listed for skipping, because deltalake's Arrow dataset
      skips files without a minimum.
    """
    low: dict[str, Extreme] = {}
    high: dict[str, Extreme] = {}
    nulls: dict[str, int] = {}
    for column in schema.columns:
        # Delta counts NULLs of a struct's fields, not of the struct.
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
    """Return the columns that readers may skip by: each file has bounds, or only NULLs."""
    return tuple(
        column.name
        for column in schema.columns
        if _PLAIN.fullmatch(column.name) and all(_is_bounded(catalog, entry, column) for entry in catalog.partitions)
    )


def _is_bounded(catalog: Catalog, entry: PartitionEntry, column: Column) -> bool:
    if key_kind(column.type) is None or column.type in _WITHOUT_BOUNDS:
        return False
    # A partition has bounds only if each of its blocks has.
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
    values = {
        name: f"{value:f}" if isinstance(value, Decimal) else json.dumps(value, allow_nan=False, ensure_ascii=False)
        for name, value in members.items()
    }
    return "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{value}" for name, value in values.items()) + "}"


@dataclass(frozen=True)
class DeltaTarget:
    """A Delta table at a folder or URL over a table's files, named relative to its folder if that is the table's."""

    files: TableFiles
    location: str

    @cached_property
    def _place(self) -> TableFiles:
        return TableFiles(self.location)

    @cached_property
    def _is_inside(self) -> bool:
        return self._place.full_path("").rstrip("/") == self.files.full_path("").rstrip("/")

    def read_state(self) -> PlaceState | None:
        """Return what the log shows."""
        if has_codes(self._place.full_path("")):  # deltalake decodes it
            raise PublicationError(
                f"the folder name {self.location!r} has a %-escape, which deltalake decodes; publish to a folder "
                "without"
            )
        if not self._place.list(LOG):
            names = [name for name in self._place.list("") if name != LOG]
            if self._place.is_file("") or (names and not self._is_inside):
                raise PublicationError(
                    f"{self.location!r} holds something that is no Delta table; publish to a new folder, or to the "
                    "table's own folder"
                )
            return None
        try:
            table = DeltaTable(self._place.full_path(""))
            metadata, schema = table.metadata(), json.loads(table.schema().to_json())
            names = ["path", "partition"] if metadata.partition_columns else ["path"]
            paths = pa.table(table.get_add_actions()).select(names).to_pylist()
        except (DeltaError, OSError, ValueError) as error:
            cause = " ".join(str(error).split())[:200]
            raise PublicationError(f"the Delta table at {self.location!r} can't be read: {cause}") from error
        return self._to_state(table, metadata, schema, paths)

    def _to_state(self, table: DeltaTable, metadata: Any, schema: Any, paths: list[dict[str, Any]]) -> PlaceState:
        properties = metadata.configuration
        values = {}
        for row in paths:
            value = next(iter((row.get("partition") or {}).values()), None)
            values[self._relative(row["path"])] = None if value is None else str(value)
        table_id = properties.get(TABLE_PROPERTY)
        return PlaceState(
            table_id,
            None if table_id is None else table.transaction_version(_application(table_id)),
            properties.get(VIEW_PROPERTY),
            {path: value for path, value in values.items() if load_of(path)},
            tuple(sorted(path for path in values if not load_of(path))),
            next(iter(metadata.partition_columns), None),
            (schema, tuple(metadata.partition_columns), properties.get(_BOUNDED, "")),
            table.version(),
        )

    def _relative(self, path: str) -> str:
        root = self._uri("")
        return unquote(path.removeprefix(root)) if path.startswith(root) else unquote(path)

    def _uri(self, path: str) -> str:
        if self._is_inside:
            return quote(path)
        root = self.files.full_path("").rstrip("/")
        return (root if is_url(root) else f"file://{quote(root)}") + f"/{quote(path)}"

    def adapt(self, wanted: DesiredState, catalog: Catalog) -> DesiredState:
        """Return the state without partitions if a value is empty (NULL in Delta) or its year is not four digits."""
        values = [entry.value for entry in catalog.partitions]
        has_dates = wanted.partition_by is not None and wanted.columns.find(wanted.partition_by).type == "date"
        is_unsupported = "" in values or (
            has_dates and any(value and not _DATE.fullmatch(str(value)) for value in values)
        )
        by = None if is_unsupported else wanted.partition_by
        bounded = tuple(name for name in bounded_columns(catalog, wanted.columns) if name != by)
        return replace(wanted, partition_by=by, bounded=bounded)

    def shape(self, wanted: DesiredState) -> object:
        """Return Delta's schema, the partition columns, and the columns that readers skip by."""
        by = () if wanted.partition_by is None else (wanted.partition_by,)
        return delta_schema(wanted.columns), by, ",".join(wanted.bounded)

    def partition_value(self, wanted: DesiredState, file: DataFile) -> object:
        """Return the value as the log spells it; NULL is None."""
        if wanted.partition_by is None:
            return None
        column = wanted.columns.find(wanted.partition_by)
        value = file.partition_value(column)
        if value is None or isinstance(value, str):
            return value
        return str(np.datetime64(value, "D")) if column.type == "date" else str(value)

    def commit(self, before: PlaceState | None, wanted: DesiredState, added: list[NewFile], removed: list[str]) -> int:
        """Write the next file of the log, and a checkpoint after every tenth."""
        version = 0 if before is None else before.version + 1
        lines = [_json(action) for action in self._actions(before, wanted, added, removed)]
        try:
            self._place.write_new(f"{LOG}/{version:020}.json", "\n".join(lines).encode())
        except FileExistsError as error:
            raise CommitConflictError(
                f"another process committed version {version} of the Delta table at {self.location!r}; publish again"
            ) from error
        if version and version % _CHECKPOINT_EVERY == 0:
            with suppress(DeltaError, OSError):  # a checkpoint only speeds readers up
                DeltaTable(self._place.full_path("")).create_checkpoint()
        return version

    def _actions(
        self, before: PlaceState | None, wanted: DesiredState, added: list[NewFile], removed: list[str]
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
            if before is None or has_local_times(wanted.columns):  # a protocol version never decreases
                yield {"protocol": _protocol(wanted)}
            yield {"metaData": self._metadata(wanted, now)}
        yield {"txn": {"appId": _application(wanted.table_id), "version": wanted.snapshot, "lastUpdated": now}}
        for path in removed:
            yield {"remove": {"path": self._uri(path), "deletionTimestamp": now, "dataChange": True}}
        for file in added:
            value = self.partition_value(wanted, file.file)
            yield {
                "add": {
                    "path": self._uri(file.file.path),
                    "partitionValues": {} if wanted.partition_by is None else {wanted.partition_by: value},
                    "size": file.size,
                    "modificationTime": int(file.modified * 1000),
                    "dataChange": True,
                    "stats": delta_statistics(file.file, wanted.columns, wanted.partition_by),
                }
            }

    def _metadata(self, wanted: DesiredState, now: int) -> dict[str, object]:
        # Streaming readers compare the id, so it stays the same for a table, layout and location.
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
    # Not in ASCII: some readers misread characters beyond U+FFFF written as two escapes.
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _protocol(wanted: DesiredState) -> dict[str, object]:
    if not has_local_times(wanted.columns):
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    features = ["timestampNtz"]
    return {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}


def _application(table_id: str) -> str:
    return f"layoutopt-{table_id}"
