"""Open the days of a source whose files can be read, so that a damaged file of one day does not stop the others.

:func:`list_before_spark` opens a source that Spark will read, to list its partitions before Spark starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.partition_names import PlainValue, null_first_key, parse_plain_value
from layoutopt.catalog.storage.footers import ENCRYPTED
from layoutopt.errors import LayoutoptError, NeedsSparkError, SettingError, SourceError
from layoutopt.external.formats import parse_source_name
from layoutopt.external.snapshot import SourcePartition
from layoutopt.loading.load import LoadSource
from layoutopt.loading.local_source import ArrowRows, LocalSource, select_between
from layoutopt.model.layout import Plan
from layoutopt.scan.table import Table
from layoutopt.sources.parquet_files import list_visible, resolve_local_path
from layoutopt.sql.schema import folder_values, list_files

# Reading the footers of more files takes as long as Spark takes to start, and so does counting more rows.
_MOST_FILES: Final = 1_000
_MOST_ROWS: Final = 10_000_000


def list_before_spark(source: str, plan: Plan) -> LoadSource | None:
    """Open a source whose partitions Arrow lists as Spark does; None where it is large, or only Spark knows them.

    Raises:
        SourceError: a file is damaged, and belongs to no day alone.
    """
    files: list[Path] = []
    try:
        if parse_source_name(source) is None:
            root = resolve_local_path(source)
            files = list_files(root) if root.is_dir() else [root]
        return None if len(files) > _MOST_FILES else open_readable(source, plan, _MOST_ROWS)
    except NeedsSparkError:
        are_days = bool(_find_damaged(source, plan)[1])
        problem = None if are_days else next(filter(None, (_find_problem(str(path)) for path in files)), None)
        if problem is not None:
            raise problem from None
        return None


def open_readable(source: str, plan: Plan, most_rows: int | None = None) -> LoadSource:
    """Open a source for this machine's processes, where it can be without the days whose files are damaged.

    Raises:
        LayoutoptError: as :class:`~layoutopt.loading.local_source.LocalSource`, where days are no folders.
    """
    try:
        return LocalSource(source, plan, most_rows)
    except (NeedsSparkError, SourceError) as error:
        damaged, paths = _find_damaged(source, plan)
        if not damaged or not paths:
            raise
        try:
            return _ReadableDays(LocalSource(source, plan, most_rows, only=paths), plan, damaged)
        except (NeedsSparkError, SourceError):
            raise error from None


def _find_damaged(source: str, plan: Plan) -> tuple[dict[PlainValue, LayoutoptError], list[str]]:
    """Return the errors of partitions with files that are no Parquet, and the paths of the others' files."""
    by, root = plan.partition_by, Path(source)
    if by is None or parse_source_name(source) is not None or not root.is_dir():
        return {}, []
    type = plan.schema.find(by).type
    damaged: dict[PlainValue, LayoutoptError] = {}
    paths: list[str] = []
    for folder in list_visible(root.resolve()):
        texts = {name.lower(): text for name, text in folder_values(f"{folder}/").items()}
        if not folder.is_dir() or by.lower() not in texts:
            return {}, []
        files = [str(path) for path in list_visible(folder)]
        problem = next(filter(None, map(_find_problem, files)), None)
        if problem is None:
            paths += files
            continue
        try:
            text = texts[by.lower()]
            damaged[None if text is None else parse_plain_value(text, type, "")] = problem
        except SettingError:
            return {}, []
    return damaged, paths


def _find_problem(path: str) -> LayoutoptError | None:
    try:
        pq.read_metadata(path)
    except (OSError, pa.ArrowException) as error:
        if Path(path).read_bytes()[-len(ENCRYPTED) :] == ENCRYPTED:  # which Spark may have the key of
            return None
        return SourceError(f"the source's file {path!r} can't be read as Parquet ({error}); write it again")
    return None


class _ReadableDays:
    """A source with some partitions that can't be read: a :class:`~layoutopt.loading.load.LoadSource`."""

    def __init__(self, readable: LocalSource, plan: Plan, damaged: Mapping[PlainValue, LayoutoptError]) -> None:
        self._readable, self._plan = readable, plan
        self._damaged = {value: SourcePartition(value, (), problem=error) for value, error in damaged.items()}

    def list_partitions(self) -> tuple[SourcePartition, ...]:
        """List all partitions."""
        return self._add(self._readable.list_partitions(), list(self._damaged.values()))

    def select_partitions(self, texts: Sequence[str]) -> tuple[SourcePartition, ...]:
        """Return the partitions that texts name."""
        chosen = self._readable.select_partitions(texts)
        return tuple(self._damaged.get(partition.value, partition) for partition in chosen)

    def select_range(self, first: str | None, last: str | None) -> tuple[SourcePartition, ...]:
        """Return the partitions from one value to another."""
        type = self._plan.schema.find(str(self._plan.partition_by)).type
        damaged = select_between(self._damaged.values(), type, first, last)
        return self._add(self._readable.select_range(first, last), damaged)

    @staticmethod
    def _add(readable: Sequence[SourcePartition], damaged: Sequence[SourcePartition]) -> tuple[SourcePartition, ...]:
        return tuple(sorted([*readable, *damaged], key=lambda partition: null_first_key(partition.value)))

    def check_reachable(self, partitions: Sequence[SourcePartition]) -> None:
        """Do nothing, as where all days can be read."""

    def open_rows(self, partitions: Sequence[SourcePartition] | None) -> ArrowRows:
        """Open the rows of some partitions that can be read."""
        if partitions is None:
            raise next(partition.problem for partition in self._damaged.values() if partition.problem is not None)
        return self._readable.open_rows(partitions)

    def holds_same_rows(self, partition: SourcePartition, table: Table, entries: Sequence[PartitionEntry]) -> bool:
        """Return whether a partition's entries hold its rows."""
        return self._readable.holds_same_rows(partition, table, entries)
