"""Which data files of a table a filter needs: those with a block that may have a matching row.

Everything that the catalog knows decides, as for our own readers: bounds of partitions, union vectors, statistics and
indexes of blocks, by :func:`layoutopt.skipping.cannot_match.cannot_match`.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
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
from layoutopt.scan.opened_table import OpenedTable
from layoutopt.scan.prune import PlanBlocks
from layoutopt.scan.table import prune_checked
from layoutopt.serve.filters import Json, Target, residual_without
from layoutopt.skipping.cannot_match import FeatureIndex, cannot_match

# ----------------------------------------------------------------------------------------------------
# What a planned scan answers, as Iceberg's REST specification has it: files, their deletes, what is left to filter.

_EPOCH: Final = dt.date(1970, 1, 1)


class Answers:
    """The answers about some files; what is said of each is rendered once.

    Args:
        files: groups of files.
        rows: how many each has, deleted ones too.
        source: where somebody else keeps the files, what is told of them.
    """

    def __init__(
        self, files: Sequence[Sequence[FileEntry]], rows: Sequence[Sequence[int]], source: ExternalTable | None
    ) -> None:
        self._files, self._rows, self._source = files, rows, source

    def body(self, kept: Sequence[Sequence[int]], residual: Json, days: bool) -> bytes:
        """The answer.

        Args:
            kept: of each group the places of the files that are to be read.
            residual: the filter as clients apply it to rows.
            days: whether dates are told as days since 1970, not as texts.
        """
        said = self._days if days else self._texts
        tasks = [said[group][place] for group, places in enumerate(kept) for place in places]
        deletes: list[bytes] = []
        if self._source is None:
            rest = _left(residual)
            listed = (rest + b",").join(tasks) + (rest if tasks else b"")
        else:
            files = [self._files[group][place] for group, places in enumerate(kept) for place in places]
            used = sorted({place for file in files for place in file.deletes})
            deletes = [self._deletes[place] for place in used]
            listed = b",".join(_with_rests(tasks, files, residual, {place: n for n, place in enumerate(used)}))
        body = b'{"status":"completed","plan-tasks":[],"delete-files":[' + b",".join(deletes)
        return body + b'],"file-scan-tasks":[' + listed + b"]}"

    @cached_property
    def _texts(self) -> list[list[bytes]]:
        return self._said(days=False)

    @cached_property
    def _days(self) -> list[list[bytes]]:
        dated = self._source is not None and any(column.type == "date" for column in self._source.constants)
        return self._said(days=True) if dated else self._texts

    def _said(self, *, days: bool) -> list[list[bytes]]:
        return [
            [_data_file(file, count, days) for file, count in zip(files, rows, strict=True)]
            for files, rows in zip(self._files, self._rows, strict=True)
        ]

    @cached_property
    def _deletes(self) -> list[bytes]:
        assert self._source is not None, "own tables have no files of deletes"
        return [
            json.dumps(_content("position-deletes", one.path, one.size, one.rows, one.spec)).encode()
            for one in self._source.deletes
        ]


def _data_file(file: FileEntry, rows: int, days: bool) -> bytes:
    said = _content("data", file.path, file.size, rows, file.spec)
    said["partition"] = [_told(value, days) for value in file.partition]
    return b'{"data-file":' + json.dumps(said).encode()


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


def _told(value: Value, days: bool) -> Json:
    if isinstance(value, dt.date):
        return (value - _EPOCH).days if days else value.isoformat()
    return value


def _left(residual: Json) -> bytes:
    return b',"residual-filter":' + json.dumps(residual).encode() + b"}"


def _with_rests(
    tasks: Sequence[bytes], files: Sequence[FileEntry], residual: Json, places: dict[int, int]
) -> list[bytes]:
    """Each file's task, with its deletes by their places in the answer, and with the filter that is left for it."""
    rests: dict[frozenset[str], bytes] = {}
    found = []
    for task, file in zip(tasks, files, strict=True):
        if file.constants not in rests:
            lacking = frozenset(name.lower() for name in file.constants)
            rests[file.constants] = _left(residual_without(residual, lacking))
        held = [places[place] for place in file.deletes]
        refers = b',"delete-file-references":' + json.dumps(held).encode() if held else b""
        found.append(task + refers + rests[file.constants])
    return found


_LARGEST_ANSWER: Final = 64 << 20
_MOST_REMEMBERED: Final = 16 << 20
"""After so many bytes of filters what was found about them is forgotten, so that it does not grow for ever."""


@dataclass(frozen=True)
class Planned:
    """A planned scan.

    Attributes:
        paths: the files to be read, relative to the table.
        body: the answer to the client, as JSON.
        files, rows: how many the table has.
        rows_planned: how many rows the files to be read have.
    """

    paths: tuple[str, ...]
    body: bytes
    files: int
    rows: int
    rows_planned: int


@dataclass(frozen=True, eq=False)
class _PlanFiles:
    """The files that a view has of the blocks of one plan.

    Attributes:
        source: the blocks.
        here: the blocks of the view's layout, bool[blocks].
        files: the places of these blocks' files in ``source.blocks.files``, ascending, int64[files].
        rows: of these files, int64[files].
    """

    source: PlanBlocks
    here: Bits
    files: Ints
    rows: Ints

    @property
    def paths(self) -> list[str]:
        """Of the files, relative to the table."""
        return [self.source.blocks.files[place] for place in self.files.tolist()]


class Planner:
    """Plans the scans of one view of a table at one snapshot; several threads may ask at once.

    Args:
        table: the table.
        view: of the table.
        source: of files that somebody else keeps, what is told of these.
    """

    def __init__(self, table: OpenedTable, view: View, source: ExternalTable | None = None) -> None:
        self.table, self.view, self.source = table, view, source
        self._lock = Lock()
        self._asked = 0
        self._indexes: tuple[FeatureIndex | None, ...] | None = None

    @cached_property
    def target(self) -> Target:
        """What filters of the view are about."""
        columns = {column.name: column for column in self.view.columns.columns}
        unjudged = frozenset() if self.source is None else self.source.rounded
        return Target(columns, cache(self._may_be_null), cache(self._may_be_nan), unjudged)

    def _may_be_null(self, name: str) -> bool:
        catalog = self.table.catalog
        return any(catalog.bounds_in(entry, name).nulls != 0 for entry in catalog.partitions)

    def _may_be_nan(self, name: str) -> bool:
        column = self.table.schema.find(name)
        plans = {source.plan.digest: source.plan for source in self.table.sources}
        return any(self.table.may_hold_nans(column, self.view.find_layout(plan)) for plan in plans.values())

    @cached_property
    def _plans(self) -> tuple[_PlanFiles, ...]:
        found = []
        for source in self.table.sources:
            blocks = source.blocks
            here = blocks.layout == self.view.find_layout(source.plan)
            files = np.unique(blocks.file[here])
            rows = np.bincount(blocks.file[here], blocks.rows[here], len(blocks.files)).astype(np.int64)
            found.append(_PlanFiles(source, here, files, rows[files]))
        return tuple(found)

    @cached_property
    def _answers(self) -> Answers:
        """What answers say of each plan's files, up to the filter that is left to apply."""
        paths = [path for plan in self._plans for path in plan.paths]
        told = self._told(paths) if self.source is None else self.source.files
        files = [[told[path] for path in plan.paths] for plan in self._plans]
        return Answers(files, [plan.rows.tolist() for plan in self._plans], self.source)

    def _told(self, paths: Sequence[str]) -> dict[str, FileEntry]:
        catalog = self.table.catalog
        sizes = find_sizes(catalog, paths)
        return {path: FileEntry(catalog.data.full_path(path), sizes[path][0]) for path in paths}

    def plan(self, condition: Node, residual: Json = True, days: bool = False) -> Planned:
        """Plan a scan.

        Args:
            condition: what holds for every row that a reader may take for matching.
            residual: the filter as clients apply it to the rows of each file, in Iceberg's JSON.
            days: whether dates are told as days since 1970, not as texts.

        Raises:
            CatalogError: a file of the catalog is missing or damaged, or a data file is missing.
            QueryError: the answer would be too large.
            SkippingError: skipping is checked, and a row that matches would be left out.
        """
        asked = len(json.dumps(residual))
        features = self._features(asked)
        partitions_out = self.table.partitions_out(condition)
        kept = [
            _kept(plan, condition, partitions_out, known) for plan, known in zip(self._plans, features, strict=True)
        ]
        if switch.is_on():
            self._check(condition, kept)
        count = sum(map(len, kept))
        if count * asked > _LARGEST_ANSWER:
            raise QueryError(
                f"the filter has {asked} bytes and would go back with each of {count} files; shorten its lists"
            )
        body = self._answers.body([places.tolist() for places in kept], residual, days)
        return Planned(
            tuple(path for plan, places in zip(self._plans, kept, strict=True) for path in _at(plan.paths, places)),
            body,
            sum(len(plan.files) for plan in self._plans),
            self.table.rows,
            sum(int(plan.rows[places].sum()) for plan, places in zip(self._plans, kept, strict=True)),
        )

    def _check(self, condition: Node, kept: Sequence[Ints]) -> None:
        """Compare with what our own reader needs, which reads again what it skips; of plans of one layout."""
        pruned = prune_checked(self.table, condition, sorted(condition.columns), self.table.settings)
        for plan, places, needed in zip(self._plans, kept, pruned, strict=True):
            left_out = ~np.isin(plan.source.blocks.file, plan.files[places])
            if len(plan.source.plan.scheme.layouts) == 1 and (needed.read & left_out).any():
                raise SkippingError(f"a file with rows that may match {describe(condition)} would be left out")

    def _features(self, asked: int) -> tuple[FeatureIndex | None, ...]:
        """Each plan's features, with what was found about them so far; None where they mean something else here.

        Args:
            asked: the size in bytes of what is about to be found out.
        """
        with self._lock:
            self._asked += asked
            if self._indexes is None or self._asked > _MOST_REMEMBERED:
                self._asked = 0
                self._indexes = tuple(self._forgotten(plan.source) for plan in self._plans)
            return self._indexes

    def _forgotten(self, source: PlanBlocks) -> FeatureIndex | None:
        """A plan's features, about which nothing was found yet; of its blocks nothing is remembered either."""
        for statistics in (source.block_statistics, self.table.partition_statistics):
            statistics.proved.clear()
            statistics.proved_by_indexes.clear()
        return FeatureIndex(source.plan.features) if source.plan.settings == self.table.settings else None


def _kept(plan: _PlanFiles, condition: Node, partitions_out: Bits, features: FeatureIndex | None) -> Ints:
    """The places of the files of a plan's that have a block which may match, int64[k]."""
    blocks = plan.source.blocks
    out = partitions_out[plan.source.entry_of]
    out |= cannot_match(condition, plan.source.block_statistics, features)
    return np.searchsorted(plan.files, np.unique(blocks.file[plan.here & ~out]))


def _at(paths: Sequence[str], places: Ints) -> list[str]:
    return [paths[place] for place in places.tolist()]
