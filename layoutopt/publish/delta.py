"""A place that is a Delta table.

The log is read by the library, and a commit is written by hand: one JSON file, created exclusively, which is what
Delta's protocol asks of a store. No library commits added and removed files of somebody else's together.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from layoutopt.catalog.paths import load_of
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.storage.local_store import has_codes, is_url
from layoutopt.catalog.table import Catalog
from layoutopt.errors import CommitConflictError, PublicationError
from layoutopt.publish.contents import DataFile
from layoutopt.publish.delta_schema import delta_schema, has_local_times
from layoutopt.publish.delta_statistics import bounded_columns, delta_statistics
from layoutopt.publish.target import TABLE_PROPERTY, VIEW_PROPERTY, Added, Shown, Wanted

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
