"""Plan scans: select the data files with a block that may match a filter, and render them as scan tasks.

As in our own readers, :func:`layoutopt.skipping.cannot_match.cannot_match` decides by partition bounds, union vectors,
block statistics and indexes.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from threading import Lock
from typing import Final

import numpy as np

from layoutopt.errors import QueryError, SkippingError
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.predicates import Node, describe
from layoutopt.publish.contents import View, find_sizes
from layoutopt.publish.external import ExternalTable, FileEntry, Value
from layoutopt.scan import check_switch as switch
from layoutopt.scan.cost_limit import above_limit
from layoutopt.scan.opened_table import OpenedTable
from layoutopt.scan.prune import PlanBlocks
from layoutopt.scan.table import prune_checked
from layoutopt.serve.filters import FilterTarget, Json, residual_without
from layoutopt.skipping.cannot_match import FeatureIndex, cannot_match

_EPOCH: Final = dt.date(1970, 1, 1)
_LARGEST_ANSWER: Final = 64 << 20
# The bytes of filters after which cached results are dropped, which bounds the cache.
_MOST_REMEMBERED: Final = 16 << 20


class Answers:
    """Responses of planned scans; each file's JSON is rendered once.

    ``files`` and ``rows`` (deleted ones included) come in the same groups; ``source`` is the source of external files.
    """

    def __init__(
        self, files: Sequence[Sequence[FileEntry]], rows: Sequence[Sequence[int]], source: ExternalTable | None
    ) -> None:
        self._files, self._rows, self._source = files, rows, source

    def body(self, kept: Sequence[Sequence[int]], residual: Json, days: bool) -> bytes:
        """Return the response's body.

        Args:
            kept: the places of the selected files in each group.
            residual: the filter that clients apply to rows.
            days: whether dates are days since 1970, not strings.
        """
        rendered = self._days if days else self._texts
        tasks = [rendered[group][place] for group, places in enumerate(kept) for place in places]
        deletes: list[bytes] = []
        if self._source is None:
            ending = _render_residual(residual)
            listed = (ending + b",").join(tasks) + (ending if tasks else b"")
        else:
            files = [self._files[group][place] for group, places in enumerate(kept) for place in places]
            used = sorted({place for file in files for place in file.deletes})
            deletes = [self._deletes[place] for place in used]
            listed = b",".join(_finish_tasks(tasks, files, residual, {place: n for n, place in enumerate(used)}))
        body = b'{"status":"completed","plan-tasks":[],"delete-files":[' + b",".join(deletes)
        return body + b'],"file-scan-tasks":[' + listed + b"]}"

    @cached_property
    def _texts(self) -> list[list[bytes]]:
        return self._render(days=False)

    @cached_property
    def _days(self) -> list[list[bytes]]:
        has_dates = self._source is not None and any(column.type == "date" for column in self._source.constants)
        return self._render(days=True) if has_dates else self._texts

    def _render(self, *, days: bool) -> list[list[bytes]]:
        return [
            [_data_file(file, count, days) for file, count in zip(files, rows, strict=True)]
            for files, rows in zip(self._files, self._rows, strict=True)
        ]

    @cached_property
    def _deletes(self) -> list[bytes]:
        assert self._source is not None, "layoutopt tables have no delete files"
        return [
            json.dumps(_content("position-deletes", file.path, file.size, file.rows, file.spec)).encode()
            for file in self._source.deletes
        ]


def _data_file(file: FileEntry, rows: int, days: bool) -> bytes:
    content = _content("data", file.path, file.size, rows, file.spec)
    content["partition"] = [_partition_value(value, days) for value in file.partition]
    return b'{"data-file":' + json.dumps(content).encode()


def _content(kind: str, path: str, size: int, rows: int, spec: int) -> dict[str, Json]:
    return {
        "spec-id": spec,
        "partition": [],
        "content": kind,
        "file-path": path,
        "file-format": "parquet",
        "file-size-in-bytes": size,
        "record-count": rows,
    }


def _partition_value(value: Value, days: bool) -> Json:
    if isinstance(value, dt.date):
        return (value - _EPOCH).days if days else value.isoformat()
    return value


def _render_residual(residual: Json) -> bytes:
    return b',"residual-filter":' + json.dumps(residual).encode() + b"}"


def _finish_tasks(
    tasks: Sequence[bytes], files: Sequence[FileEntry], residual: Json, places: dict[int, int]
) -> list[bytes]:
    endings: dict[frozenset[str], bytes] = {}
    finished = []
    for task, file in zip(tasks, files, strict=True):
        if file.constants not in endings:
            lacking = frozenset(name.lower() for name in file.constants)
            endings[file.constants] = _render_residual(residual_without(residual, lacking))
        deletes = [places[place] for place in file.deletes]
        references = b',"delete-file-references":' + json.dumps(deletes).encode() if deletes else b""
        finished.append(task + references + endings[file.constants])
    return finished


@dataclass(frozen=True)
class Planned:
    """A planned scan.

    Attributes:
        paths: the selected files, relative to the table.
        body: the response as JSON.
        files, rows: how many the table has.
        rows_planned: the rows of the selected files.
    """

    paths: tuple[str, ...]
    body: bytes
    files: int
    rows: int
    rows_planned: int


@dataclass(frozen=True, eq=False)
class _PlanFiles:
    """The files of a view that one plan's loads wrote.

    Attributes:
        source: the plan's blocks.
        here: the blocks of the view's layout, bool[blocks].
        files: the places of their files in ``source.blocks.files``, ascending, int64[files].
        rows: the rows of these files, int64[files].
    """

    source: PlanBlocks
    here: Bits
    files: Ints
    rows: Ints

    @property
    def paths(self) -> list[str]:
        return [self.source.blocks.files[place] for place in self.files.tolist()]


class Planner:
    """A planner of one view of a snapshot, which threads may share; ``source`` is the source of external files."""

    def __init__(self, table: OpenedTable, view: View, source: ExternalTable | None = None) -> None:
        self.table, self.view, self.source = table, view, source
        self._lock = Lock()
        self._filter_bytes = 0
        self._indexes: tuple[FeatureIndex | None, ...] | None = None

    @cached_property
    def target(self) -> FilterTarget:
        """The columns that filters may use."""
        columns = {column.name: column for column in self.view.columns.columns}
        unjudged = frozenset() if self.source is None else self.source.rounded
        return FilterTarget(columns, cache(self._may_be_null), cache(self._may_be_nan), unjudged)

    def _may_be_null(self, name: str) -> bool:
        catalog = self.table.catalog
        return any(catalog.bounds_in(entry, name).nulls != 0 for entry in catalog.partitions)

    def _may_be_nan(self, name: str) -> bool:
        column = self.table.schema.find(name)
        plans = {source.plan.digest: source.plan for source in self.table.sources}
        return any(self.table.may_hold_nans(column, self.view.find_layout(plan)) for plan in plans.values())

    @cached_property
    def _plans(self) -> tuple[_PlanFiles, ...]:
        plans = []
        for source in self.table.sources:
            blocks = source.blocks
            here = blocks.layout == self.view.find_layout(source.plan)
            files = np.unique(blocks.file[here])
            rows = np.bincount(blocks.file[here], blocks.rows[here], len(blocks.files)).astype(np.int64)
            plans.append(_PlanFiles(source, here, files, rows[files]))
        return tuple(plans)

    @cached_property
    def _answers(self) -> Answers:
        paths = [path for plan in self._plans for path in plan.paths]
        entries = self._make_entries(paths) if self.source is None else self.source.files
        files = [[entries[path] for path in plan.paths] for plan in self._plans]
        return Answers(files, [plan.rows.tolist() for plan in self._plans], self.source)

    def _make_entries(self, paths: Sequence[str]) -> dict[str, FileEntry]:
        catalog = self.table.catalog
        sizes = find_sizes(catalog, paths)
        return {path: FileEntry(catalog.data.full_path(path), sizes[path][0]) for path in paths}

    def plan(
        self, condition: Node, residual: Json = True, days: bool = False, columns: Collection[str] | None = None,
        max_bytes: int | None = None,
    ) -> Planned:  # fmt: skip
        """Plan a scan.

        Args:
            condition: holds for every row that a reader may match.
            residual: the filter that clients apply to rows, in Iceberg's JSON.
            days: whether dates are days since 1970, not strings.
            columns: the columns that clients read, in any case; None for all.
            max_bytes: the most compressed bytes of these columns in the selected files; None for no limit.

        Raises:
            CostLimitError: the scan would read more than ``max_bytes``.
            CatalogError: a catalog file is missing or damaged, or a data file is missing.
            QueryError: the response would be too large.
            SkippingError: a shadow check found a skipped row that matches.
        """
        size = len(json.dumps(residual))
        features = self._features(size)
        partitions_out = self.table.partitions_out(condition)
        kept = [
            _select_files(plan, condition, partitions_out, known)
            for plan, known in zip(self._plans, features, strict=True)
        ]
        if max_bytes is not None:
            sizes = self._count_column_bytes(kept, columns)
            if sum(sizes.values()) > max_bytes:
                raise above_limit(sum(sizes.values()), max_bytes, self.table, condition, sizes)
        if switch.is_on():
            self._check(condition, kept)
        count = sum(map(len, kept))
        if count * size > _LARGEST_ANSWER:
            raise QueryError(
                f"the filter has {size} bytes and would be repeated with each of {count} files; shorten its lists"
            )
        body = self._answers.body([places.tolist() for places in kept], residual, days)
        return Planned(
            tuple(
                paths[place]
                for paths, places in zip((plan.paths for plan in self._plans), kept, strict=True)
                for place in places.tolist()
            ),
            body,
            sum(len(plan.files) for plan in self._plans),
            self.table.rows,
            sum(int(plan.rows[places].sum()) for plan, places in zip(self._plans, kept, strict=True)),
        )

    def _count_column_bytes(self, kept: Sequence[Ints], columns: Collection[str] | None) -> dict[str, int]:
        """Return the bytes of columns in the selected files, which clients read unless they skip row groups in them."""
        wanted = None if columns is None else {name.lower() for name in columns}
        names = [name for name in self.view.columns.names if wanted is None or name.lower() in wanted]
        masks = [
            plan.here & np.isin(plan.source.blocks.file, plan.files[places])
            for plan, places in zip(self._plans, kept, strict=True)
        ]
        return {
            name: sum(
                int(plan.source.blocks.column_bytes(name)[mask].sum())
                for plan, mask in zip(self._plans, masks, strict=True)
                if plan.source.blocks.schema.get(name) is not None
            )
            for name in names
        }

    def _check(self, condition: Node, kept: Sequence[Ints]) -> None:
        """Compare with our own reader, which rereads what it skips; only plans of one layout can be compared."""
        pruned = prune_checked(self.table, condition, sorted(condition.columns), self.table.settings)
        for plan, places, needed in zip(self._plans, kept, pruned, strict=True):
            left_out = ~np.isin(plan.source.blocks.file, plan.files[places])
            if len(plan.source.plan.scheme.layouts) == 1 and (needed.read & left_out).any():
                raise SkippingError(f"a scan would skip a file with rows that may match {describe(condition)}")

    def _features(self, size: int) -> tuple[FeatureIndex | None, ...]:
        """Return each plan's features with cached results, or None if the session settings differ."""
        with self._lock:
            self._filter_bytes += size
            if self._indexes is None or self._filter_bytes > _MOST_REMEMBERED:
                self._filter_bytes = 0
                self._indexes = tuple(self._clear_cache(plan.source) for plan in self._plans)
            return self._indexes

    def _clear_cache(self, source: PlanBlocks) -> FeatureIndex | None:
        for statistics in (source.block_statistics, self.table.partition_statistics):
            statistics.proved.clear()
            statistics.proved_by_indexes.clear()
        return FeatureIndex(source.plan.features) if source.plan.settings == self.table.settings else None


def _select_files(plan: _PlanFiles, condition: Node, partitions_out: Bits, features: FeatureIndex | None) -> Ints:
    blocks = plan.source.blocks
    out = partitions_out[plan.source.entry_of]
    out |= cannot_match(condition, plan.source.block_statistics, features)
    return np.searchsorted(plan.files, np.unique(blocks.file[plan.here & ~out]))
