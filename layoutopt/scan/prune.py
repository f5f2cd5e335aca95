"""Decide which blocks a filter needs: by partition, then features, column statistics and indexes.

All blocks of a plan are decided at once, from the catalog alone. The retrieval path over the plan's layouts follows
Sun 2017, 5.6. :func:`layoutopt.skipping.cannot_match.cannot_match` is the only rule that skips blocks.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cache, cached_property, partial
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.bounds import bounds_over
from layoutopt.catalog.entries import absent_columns
from layoutopt.catalog.partition_entry import Bounds, PartitionEntry
from layoutopt.catalog.table import Catalog
from layoutopt.evaluation.expressions import is_computed_here
from layoutopt.indexes.stored import stored_indexes
from layoutopt.model.arrays import Bits, Floats, Ints, Places, number_equal, unpack_bits
from layoutopt.model.feature import SessionSettings
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import Expr, Node, describe_all
from layoutopt.model.retrieval import RetrievalPath, cheapest_path, only_path, query_cost
from layoutopt.model.schema import Column
from layoutopt.model.vectors import pack
from layoutopt.skipping.cannot_match import (
    BlockIndex,
    BlockStatistics,
    FeatureBits,
    FeatureIndex,
    Mechanisms,
    cannot_match_all,
)
from layoutopt.sql.duckdb.columns import compute_call


@dataclass(frozen=True)
class LayoutChoice:
    """A layout on a retrieval path, with the columns read from it."""

    layout: int
    columns: tuple[str, ...]


def local_layouts(plan: Plan, roots: Sequence[Node], features: FeatureIndex | None) -> Bits:
    """Return for each layout whether every row that matches a filter has one of its local features.

    Such a layout serves all its columns, and only its local rows are needed. The rows that a layout lacks are treated
    as a block without its local features, to which the usual skipping rule is applied. ``bool[queries, layouts]``.
    """
    layouts = plan.scheme.layouts
    if features is None or all(layout.is_undivided for layout in layouts):
        # each layout serves all its columns and has no separate local rows
        return np.zeros((len(roots), len(layouts)), dtype=np.bool_)
    bits = np.ones((len(layouts), len(plan.features)), dtype=np.bool_)
    for index, layout in enumerate(layouts):
        bits[index, list(layout.features)] = False
    lacked = BlockStatistics(rows=np.ones(len(layouts), dtype=np.int64), bits=FeatureBits(pack(bits)))
    (packed,) = cannot_match_all(roots, lacked, features, [Mechanisms(statistics=False)])
    return unpack_bits(packed, len(layouts))


@dataclass(frozen=True)
class ScanPath:
    """The retrieval path of a query, the cost of the greedy path, and the cheapest other path.

    Costs are cells and tids by Equation 5.1. ``exhaustive``: no other path can read less.
    """

    choice: tuple[LayoutChoice, ...]
    cells_and_tids: int
    greedy: int
    next_best: tuple[LayoutChoice, ...] | None = None
    next_best_cells_and_tids: int | None = None
    compared: int = 1
    exhaustive: bool = True


def choose_layouts(plan: Plan, columns: Sequence[str], local: Sequence[bool], rows: Sequence[int]) -> ScanPath:
    """Choose the layout to read each column from: one where it is a master column, or a local layout (5.6.1).

    ``local`` is the result of :func:`local_layouts`; ``rows`` has for each layout the rows that can't be skipped.
    """
    return _PathChooser(plan, columns, local).choose(rows)


class _PathChooser:
    """:func:`choose_layouts` for queries of the same columns and local layouts, which often have only one path."""

    def __init__(self, plan: Plan, columns: Sequence[str], local: Sequence[bool]) -> None:
        self._columns, self._layouts = columns, plan.scheme.layouts
        self._eligible = {
            name: [
                i for i, layout in enumerate(self._layouts) if name in (layout.columns if local[i] else layout.master)
            ]
            for name in columns
        }
        self._only_path = only_path(columns, self._layouts, self._eligible)
        self._only_choice = None if self._only_path is None else _to_choice(self._only_path)

    def choose(self, rows: Sequence[int]) -> ScanPath:
        if self._only_path is not None and self._only_choice is not None:
            cost = query_cost(self._only_path.reads(rows))
            return ScanPath(self._only_choice, cost, cost)
        cheapest = cheapest_path(self._columns, self._layouts, rows, self._eligible)
        path = ScanPath(
            _to_choice(cheapest.path),
            int(cheapest.cost),
            int(cheapest.greedy),
            compared=cheapest.compared,
            exhaustive=cheapest.exhaustive,
        )
        if cheapest.other is None:
            return path
        return replace(path, next_best=_to_choice(cheapest.other[0]), next_best_cells_and_tids=int(cheapest.other[1]))


def _to_choice(path: RetrievalPath) -> tuple[LayoutChoice, ...]:
    return tuple(LayoutChoice(layout, names) for layout, names in path.columns)


class PruneOutcome(IntEnum):
    """The outcome of a block: read, or the first mechanism that skips it."""

    READ = 0
    PARTITION = 1
    FEATURES = 2
    STATISTICS = 3
    # The block's layout is not on the query's retrieval path: the block is neither read nor skipped.
    OTHER_LAYOUT = 4
    INDEX = 5


@dataclass(frozen=True)
class ScanSize:
    """A number of blocks, their rows, and the compressed bytes of the columns that the query reads in them."""

    blocks: int = 0
    rows: int = 0
    bytes: int = 0

    def __add__(self, other: ScanSize) -> ScanSize:
        return ScanSize(self.blocks + other.blocks, self.rows + other.rows, self.bytes + other.bytes)


def under_zone(statistics: BlockStatistics, zone: str) -> BlockStatistics:
    """Return statistics by which functions of single values are computed in a time zone."""
    return replace(statistics, compute=partial(compute_call, zone=zone))


@dataclass(frozen=True, eq=False)
class PlanBlocks:
    """All blocks written by the loads of one plan, over all partitions.

    Attributes:
        entries: all partitions of the snapshot, including those of other plans.
        entry_of: for each block, the position of its partition in ``entries``, int64[n].
        absent: columns of the table that were added after the plan: NULL in all its rows.
    """

    plan: Plan
    entries: tuple[PartitionEntry, ...]
    blocks: BlockTable
    entry_of: Ints
    absent: tuple[Column, ...] = ()

    @cached_property
    def block_statistics(self) -> BlockStatistics:
        """Union vectors, column bounds and indexes of the blocks, under the plan's settings."""
        statistics, rows = under_zone(self.blocks.block_statistics(), self.plan.settings.time_zone), self.blocks.rows
        if self.plan.indexes:
            statistics = replace(statistics, indexes=stored_indexes(self.plan.indexes, self.blocks))
        if not self.absent:
            return statistics
        only_null = [Bounds(nulls=int(n)) for n in rows]
        absent = {column.name: bounds_over(only_null, rows, column.type) for column in self.absent}
        return replace(statistics, bounds=ChainMap(absent, statistics.bounds))  # type: ignore[arg-type]  # never written to

    def statistics_under(self, settings: SessionSettings) -> BlockStatistics:
        """Return :attr:`block_statistics` without indexes that Spark computed under other session settings."""
        if self.plan.settings == settings:
            return self.block_statistics
        if settings.time_zone not in self._by_zone:
            portable = under_zone(replace(self.block_statistics, indexes=self._portable_indexes), settings.time_zone)
            self._by_zone[settings.time_zone] = portable
        return self._by_zone[settings.time_zone]

    @cached_property
    def _by_zone(self) -> dict[str, BlockStatistics]:
        return {}

    @cached_property
    def _portable_indexes(self) -> Mapping[Expr, Sequence[BlockIndex]]:
        indexes = self.block_statistics.indexes
        return {subject: stored for subject, stored in indexes.items() if is_computed_here(subject)}

    @cached_property
    def segment_of(self) -> Ints:
        """The number of each block's (partition, segment), int64[n], dense from 0."""
        pairs = self.entry_of * (int(self.blocks.segment.max(initial=0)) + 1) + self.blocks.segment
        dense: Ints = np.unique(pairs, return_inverse=True)[1].astype(np.int64)
        return dense

    @cached_property
    def feature_text(self) -> Callable[[int], str]:
        """The text of a feature of the plan, by its position."""
        return cache(lambda position: describe_all(self.plan.features.features[position].predicates))

    @cached_property
    def _index(self) -> FeatureIndex:
        return FeatureIndex(self.plan.features)

    @cached_property
    def by_entry(self) -> tuple[Ints, Ints]:
        """The positions in ``entries`` of the partitions that have blocks, and each block's place among these."""
        entries, group = np.unique(self.entry_of, return_inverse=True)
        return entries, group.reshape(-1)

    @cached_property
    def first_of_entry(self) -> Places:
        """The first block of each partition that has blocks; blocks are in the order of their partitions."""
        return np.unique(self.entry_of, return_index=True)[1]

    @cached_property
    def by_file(self) -> tuple[Places | None, Places]:
        """The order of the blocks by file, None if they are in that order, and the place of each file's first block."""
        file = self.blocks.file
        order = None if (file[1:] >= file[:-1]).all() else np.argsort(file, kind="stable")
        return order, np.searchsorted(file if order is None else file[order], np.arange(len(self.blocks.files)))

    @cached_property
    def file_numbers(self) -> Mapping[str, int]:
        """The position of each data file in the blocks' ``files``, by path."""
        return {path: number for number, path in enumerate(self.blocks.files)}

    @cached_property
    def by_segment(self) -> tuple[Places, Places]:
        """The order of the blocks by :attr:`segment_of`, and the place of each segment's first block in it, and n."""
        order = np.argsort(self.segment_of, kind="stable")
        return order, np.searchsorted(self.segment_of[order], np.arange(int(self.segment_of.max(initial=-1)) + 2))

    def blocks_of_segment(self, path: str) -> Places:
        """Return the blocks of the segment that a data file belongs to, ascending."""
        (by_file, firsts), (order, starts) = self.by_file, self.by_segment
        first = firsts[self.file_numbers[path]]
        segment = self.segment_of[first if by_file is None else by_file[first]]
        return order[starts[segment] : starts[segment + 1]]

    @cached_property
    def by_layout(self) -> Floats:
        """1 and the rows of each block in its layout's columns: float64[n, 2 * layouts]."""
        in_layout = self.blocks.layout[:, None] == np.arange(len(self.plan.scheme.layouts))
        return np.hstack([in_layout, in_layout * self.blocks.rows[:, None]]).astype(np.float64)

    def features_under(self, settings: SessionSettings) -> FeatureIndex | None:
        """Return the plan's features, or None if they were measured under other session settings."""
        return self._index if self.plan.settings == settings else None


def plan_blocks(catalog: Catalog) -> tuple[PlanBlocks, ...]:
    """Return a table's blocks, one item for each plan that a partition was loaded with."""
    sources = []
    for digest, (blocks, entry_of) in catalog.blocks_by_plan().items():
        plan = catalog.plans[digest]
        absent = absent_columns(catalog.schema, plan.schema)
        sources.append(PlanBlocks(plan, catalog.partitions, blocks, entry_of, absent))
    return tuple(sources)


@dataclass(frozen=True, eq=False)
class PrunedPlan:
    """What a query reads of one plan's blocks. What skips the others is computed when it is asked for.

    Attributes:
        root: the filter.
        settings: the session's.
        excluded: blocks whose partition the filter excludes, bool[n].
        read: the blocks to read, bool[n].
    """

    source: PlanBlocks
    root: Node
    settings: SessionSettings
    excluded: Bits
    path: ScanPath
    read: Bits

    @property
    def choice(self) -> tuple[LayoutChoice, ...]:
        """The layouts read, with the columns of each."""
        return self.path.choice

    @property
    def on_path(self) -> Bits:
        """The blocks of the layouts read, bool[n]."""
        on_path: Bits = self.alone.on_path[0]
        return on_path

    @cached_property
    def alone(self) -> PrunedQueries:
        """The query as a batch of one."""
        return PrunedQueries(
            self.source, (self.root,), self.settings, self.excluded[None], (self.path,), self.read[None]
        )

    @cached_property
    def outcome(self) -> npt.NDArray[np.int8]:
        """A :class:`PruneOutcome` for each block, int8[n]: what skips it first."""
        outcome = np.full(self.source.blocks.n, PruneOutcome.OTHER_LAYOUT, dtype=np.int8)
        before = self.on_path
        for mechanism, (remaining,) in self.alone.remaining.items():
            outcome[before & ~remaining] = mechanism
            before = remaining
        outcome[self.read] = PruneOutcome.READ
        return outcome

    @property
    def needed_without_features(self) -> Bits:
        """The blocks that would be read if there were no features, nor indexes, bool[n]."""
        needed: Bits = self.alone.needed_without_features[0]
        return needed

    @cached_property
    def bytes(self) -> Ints:
        """The compressed bytes that the query reads in each block, tids included, int64[n]."""
        return _count_bytes(self.source.blocks, self.choice)

    def size(self, mask: Bits) -> ScanSize:
        """Return the number of masked blocks (bool[n]), with their rows and bytes."""
        rows = self.source.blocks.rows
        return ScanSize(int(np.count_nonzero(mask)), int(rows[mask].sum()), int(self.bytes[mask].sum()))

    def rows_by_layout(self, mask: Bits) -> dict[int, int]:
        """Return the rows of the masked blocks (bool[n]) in each layout on the path."""
        blocks = self.source.blocks
        return {c.layout: int(blocks.rows[mask & (blocks.layout == c.layout)].sum()) for c in self.choice}


# What one scan asks for: the filter and the columns.
Question = tuple[Node, Sequence[str]]


def prune(
    source: PlanBlocks, partition_out: Bits, root: Node, columns: Sequence[str], settings: SessionSettings
) -> PrunedPlan:
    """Decide what a scan of some columns under a filter reads of one plan's blocks.

    Args:
        partition_out: the partitions that the filter excludes, bool[n_entries].
        root: the filter; rows for which it is not TRUE need not be read.
        columns: the columns that are read, filter columns included; none for ``count(*)``.
        settings: the session's; features and expression values measured under other settings are not used.
    """
    return prune_all(source, partition_out[None], [(root, columns)], settings)[0]


def prune_all(
    source: PlanBlocks, partitions_out: Bits, questions: Sequence[Question], settings: SessionSettings
) -> PrunedQueries:
    """Return :func:`prune` of many scans; blocks are decided once for those with the same filter.

    ``partitions_out`` is what each filter excludes, bool[queries, n_entries].
    """
    all_roots = tuple(root for root, _ in questions)
    first, number = _find_first(all_roots)
    roots = [all_roots[place] for place in first]
    excluded: Bits = np.take(partitions_out[first], source.entry_of, axis=1)
    local = local_layouts(source.plan, roots, source.features_under(settings))
    skipped = excluded | _prove(source, roots, settings, local, [_NO_INDEXES])[0]
    # Indexes come last because they are read from files. They are combined with features and statistics, since
    # different alternatives may be excluded by different mechanisms.
    partly = np.flatnonzero(~skipped.all(axis=1)) if source.plan.indexes else ()
    if len(partly):
        skipped[partly] |= _prove(source, [roots[i] for i in partly], settings, local[partly], [Mechanisms()])[0]
    left = ~skipped
    rows = _sum_rows(source, left)[number].tolist()
    excluded, local, left = excluded[number], local[number], left[number]
    absent = {column.name for column in source.absent}
    choosers: dict[tuple[tuple[str, ...], bytes], _PathChooser] = {}
    paths = []
    for place, (_, columns) in enumerate(questions):
        key = tuple(columns), local[place].tobytes()
        if key not in choosers:
            stored = [name for name in columns if name not in absent]
            choosers[key] = _PathChooser(source.plan, stored, local[place].tolist())
        paths.append(choosers[key].choose(rows[place]))
    pruned = PrunedQueries(source, all_roots, settings, excluded, tuple(paths), left)
    return replace(pruned, read=pruned.in_every_layout(pruned.on_path & left)) if local.shape[1] > 1 else pruned


@dataclass(frozen=True, eq=False)
class PrunedQueries:
    """What many queries read of one plan's blocks: :class:`PrunedPlan` for each, in whole arrays.

    Attributes:
        roots: the filters.
        settings: the session's.
        excluded: blocks whose partition the filter excludes, bool[queries, n].
        paths: the retrieval paths.
        read: the blocks to read, bool[queries, n].
    """

    source: PlanBlocks
    roots: tuple[Node, ...]
    settings: SessionSettings
    excluded: Bits
    paths: tuple[ScanPath, ...]
    read: Bits

    def __len__(self) -> int:
        return len(self.roots)

    def __iter__(self) -> Iterator[PrunedPlan]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> PrunedPlan:
        """Return what one of the queries reads."""
        return PrunedPlan(
            self.source, self.roots[number], self.settings, self.excluded[number], self.paths[number], self.read[number]
        )

    @cached_property
    def n_columns(self) -> Ints:
        """The number of columns that each query reads from each layout, int64[queries, layouts]."""
        columns = np.zeros((len(self), len(self.source.plan.scheme.layouts)), dtype=np.int64)
        for number, path in enumerate(self.paths):
            for choice in path.choice:
                columns[number, choice.layout] = len(choice.columns)
        return columns

    @cached_property
    def chosen(self) -> Bits:
        """The layouts that each query reads, bool[queries, layouts]; without columns, for their rows alone."""
        chosen = self.n_columns > 0
        for number, path in enumerate(self.paths):
            if len(path.choice) == 1:
                chosen[number, path.choice[0].layout] = True
        return chosen

    @cached_property
    def _distinct(self) -> tuple[PrunedQueries, Ints]:
        """One query of all with the same filter and layouts, which read the same blocks; and each query's place."""
        first, number = _find_first(zip(self.roots, map(bytes, self.chosen), strict=True))
        if len(first) == len(self):
            return self, number
        roots, paths = (tuple(values[place] for place in first) for values in (self.roots, self.paths))
        return replace(self, roots=roots, excluded=self.excluded[first], paths=paths, read=self.read[first]), number

    @property
    def joined(self) -> Bits:
        """The queries that read several layouts, bool[queries]."""
        joined: Bits = self.chosen.sum(axis=1) > 1
        return joined

    @cached_property
    def opened(self) -> Bits:
        """The files of which each query reads a block, bool[queries, files]."""
        by_file, starts = self.source.by_file
        distinct, number = self._distinct
        read = distinct.read if by_file is None else distinct.read[:, by_file]
        opened: Bits = np.logical_or.reduceat(read, starts, axis=1)[number]
        return opened

    @property
    def on_path(self) -> Bits:
        """The blocks of the layouts read, bool[queries, n]."""
        layout = self.source.blocks.layout
        if self.chosen.shape[1] == 1:
            return np.broadcast_to(self.chosen, (len(self), len(layout)))
        return np.take(self.chosen, layout, axis=1)

    def in_every_layout(self, blocks: Bits) -> Bits:
        """Leave only the blocks (bool[queries, n]) whose segment still has a block in every layout of the path."""
        for number in np.flatnonzero(self.joined).tolist():
            blocks[number] = _in_every_layout(self.source, self.paths[number].choice, blocks[number])
        return blocks

    @cached_property
    def _local(self) -> Bits:
        source = self.source
        return local_layouts(source.plan, self.roots, source.features_under(self.settings))

    @cached_property
    def _proved(self) -> Bits:
        """What statistics, features, and if there are indexes both prove, bool[choices, queries, n]."""
        choices = [Mechanisms(features=False, indexes=False), Mechanisms(statistics=False, indexes=False)]
        if self.source.plan.indexes:
            choices.append(_NO_INDEXES)
        return _prove(self.source, self.roots, self.settings, self._local, choices)

    @cached_property
    def remaining(self) -> dict[PruneOutcome, Bits]:
        """The blocks on the path that each mechanism and those before it leave, bool[queries, n].

        Each mechanism is tried with those before it, and also gets the segments in which it empties a layout.
        """
        reached = self.on_path & ~self.excluded
        _, by_features, *by_both = self._proved
        return {
            PruneOutcome.PARTITION: reached,
            PruneOutcome.FEATURES: self.in_every_layout(reached & ~by_features),
            PruneOutcome.STATISTICS: self.in_every_layout(reached & ~by_both[0]) if by_both else self.read,
            PruneOutcome.INDEX: self.read,
        }

    @property
    def needed_without_features(self) -> Bits:
        """The blocks that would be read if there were no features, nor indexes, bool[queries, n]."""
        return self.in_every_layout(self.on_path & ~self.excluded & ~self._proved[0])

    @cached_property
    def _amounts(self) -> tuple[Floats, Bits]:
        """The amounts of each block, float64[n, amounts], and which of the bytes each query reads.

        The amounts are those of :attr:`PlanBlocks.by_layout`, and the bytes of the chunks that a query reads.
        """
        blocks = self.source.blocks
        places: dict[tuple[int, str | None], int] = {}  # by layout and column, None for tids
        cells = [
            (number, places.setdefault((choice.layout, name), len(places)))
            for number, path in enumerate(self.paths)
            for choice in path.choice
            for name in (*choice.columns, *([None] if len(path.choice) > 1 else []))
        ]
        sizes = np.empty((blocks.n, len(places)))
        for (layout, name), place in places.items():
            size = blocks.tid_bytes if name is None else blocks.column_bytes(name)
            sizes[:, place] = size * (blocks.layout == layout)
        reads = np.zeros((len(self), len(places)), dtype=np.bool_)
        reads[tuple(np.array(cells, dtype=np.int64).reshape(-1, 2).T)] = True
        return np.hstack([self.source.by_layout, sizes]), reads

    @cached_property
    def read_sizes(self) -> BatchSizes:
        """The sizes of what is read."""
        distinct, number = self._distinct
        return self._sum_sizes(_sum_masked(self._amounts[0], distinct.read)[number])

    @cached_property
    def path_sizes(self) -> BatchSizes:
        """The sizes of all blocks on the path."""
        return self._sum_sizes(self._amounts[0].sum(axis=0)[None])

    @cached_property
    def reached_sizes(self) -> BatchSizes:
        """The sizes of the blocks on the path whose partitions are not excluded."""
        first = self.source.first_of_entry
        by_entry = np.add.reduceat(self._amounts[0], first, axis=0) if len(first) else self._amounts[0]
        return self._sum_sizes((~self.excluded[:, first]).astype(np.float64) @ by_entry)

    def remaining_sizes(self, mechanism: PruneOutcome) -> BatchSizes:
        """Return the sizes of :attr:`remaining`."""
        if mechanism is PruneOutcome.PARTITION:
            return self.reached_sizes
        distinct, number = self._distinct
        left = distinct.remaining[mechanism]
        if left is distinct.read:
            return self.read_sizes
        return self._sum_sizes(_sum_masked(self._amounts[0], left)[number])

    def _sum_sizes(self, totals: Floats) -> BatchSizes:
        reads, layouts = self._amounts[1], self.chosen.shape[1]
        of_chunks = np.where(reads, totals[:, 2 * layouts :], 0.0).sum(axis=1)
        blocks, rows = (np.where(self.chosen, part, 0.0) for part in np.split(totals[:, : 2 * layouts], 2, axis=1))
        return BatchSizes(blocks.astype(np.int64), rows.astype(np.int64), of_chunks.astype(np.int64))

    @property
    def rows_read(self) -> Ints:
        """The rows of the blocks that each query reads, in the layout with the most, int64[queries]."""
        distinct, number = self._distinct
        rows: Ints = _sum_rows(self.source, distinct.read).max(axis=1)[number]
        return rows

    @property
    def rows_without_features(self) -> Ints:
        """The rows of :attr:`needed_without_features`, in the layout with the most, int64[queries]."""
        distinct, number = self._distinct
        rows: Ints = _sum_rows(self.source, distinct.needed_without_features).max(axis=1)[number]
        return rows


class BatchSizes(NamedTuple):
    """The sizes of some blocks of each of many queries.

    Attributes:
        blocks: their number, by layout, int64[queries, layouts].
        rows: their rows, by layout, int64[queries, layouts].
        bytes: the compressed bytes that the query reads in them, tids included, int64[queries].
    """

    blocks: Ints
    rows: Ints
    bytes: Ints

    def __sub__(self, other: BatchSizes) -> BatchSizes:
        return BatchSizes(self.blocks - other.blocks, self.rows - other.rows, self.bytes - other.bytes)

    def over_layouts(self) -> Ints:
        """Return the blocks, rows and bytes of each query, int64[queries, 3]."""
        return np.stack([self.blocks.sum(axis=1), self.rows.sum(axis=1), self.bytes], axis=1)


_NO_INDEXES: Final = Mechanisms(indexes=False)


def _prove(
    source: PlanBlocks, roots: Sequence[Node], settings: SessionSettings, local: Bits, choices: Sequence[Mechanisms]
) -> Bits:
    """Return the blocks that are proved to have no live row that matches and is read from this block.

    Args:
        source: the blocks.
        roots: the filters.
        settings: the session's.
        local: the result of :func:`local_layouts`.
        choices: the mechanisms to use.

    Returns:
        ``bool[choices, queries, n]``.
    """
    blocks, statistics = source.blocks, source.statistics_under(settings)
    proved = unpack_bits(cannot_match_all(roots, statistics, source.features_under(settings), choices), blocks.n)
    emptied = np.flatnonzero(blocks.live_rows == 0)
    for choice, blocks_out in zip(choices, proved, strict=True):
        if choice.statistics:
            blocks_out[:, emptied] = True
        if choice.features and local.any():
            blocks_out |= (blocks.part == 1) & local[:, blocks.layout]
    return proved


def _find_first(items: Iterable[Hashable]) -> tuple[Places, Ints]:
    """Return the first place of each distinct item, and for each item the place of its equal among these."""
    number = number_equal(items)
    return np.unique(number, return_index=True)[1], number


def _sum_rows(source: PlanBlocks, masks: Bits) -> Ints:
    """Return the rows of the masked blocks (bool[queries, n]) in each layout, int64[queries, layouts]."""
    rows = source.by_layout[:, len(source.plan.scheme.layouts) :]
    return _sum_masked(rows, masks).astype(np.int64)


def _sum_masked(amounts: Floats, masks: Bits) -> Floats:
    """Return the sums of the masked blocks' amounts (float64[n, k]) for each query."""
    return np.asarray(masks.astype(np.float64) @ amounts)  # exact up to 2^53


def _in_every_layout(source: PlanBlocks, choice: Sequence[LayoutChoice], read: Bits) -> Bits:
    """Return the blocks (bool[n]) whose segment still has a block in every layout of the path.

    If one layout of a segment has no block left, no row of it survives, so its other layouts need not be read.
    """
    segments = source.segment_of
    for layout_choice in choice:
        alive = np.zeros(int(segments.max(initial=-1)) + 1, dtype=np.bool_)
        alive[segments[read & (source.blocks.layout == layout_choice.layout)]] = True
        read = read & alive[segments]
    return read


def _count_bytes(blocks: BlockTable, choice: Sequence[LayoutChoice]) -> Ints:
    total = np.zeros(blocks.n, dtype=np.int64)
    for layout_choice in choice:
        mask = blocks.layout == layout_choice.layout
        selection = slice(None) if mask.all() else mask  # with one layout, masking costs more than the sum
        for name in layout_choice.columns:
            total[selection] += blocks.column_bytes(name)[selection]
        if len(choice) > 1:
            total[selection] += blocks.tid_bytes[selection]
    return total
