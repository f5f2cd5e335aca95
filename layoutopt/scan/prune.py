"""Decide which blocks a filter needs: by partition, then features, column statistics and indexes.

All blocks of a plan are decided at once, from the catalog alone. The retrieval path over the plan's layouts follows
Sun 2017, 5.6. :func:`layoutopt.skipping.cannot_match.cannot_match` is the only rule that skips blocks.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.bounds import bounds_over
from layoutopt.catalog.entries import absent_columns
from layoutopt.catalog.snapshot import Bounds, PartitionEntry
from layoutopt.catalog.table import Catalog
from layoutopt.indexes.expressions import is_computed_here
from layoutopt.indexes.stored import stored_indexes
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.feature import SessionSettings
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import Node
from layoutopt.model.retrieval import RetrievalPath, cheapest_path
from layoutopt.model.schema import Column
from layoutopt.model.vectors import pack
from layoutopt.skipping.cannot_match import BlockStatistics, FeatureBits, FeatureIndex, cannot_match


@dataclass(frozen=True)
class LayoutChoice:
    """A layout on a retrieval path, with the columns read from it."""

    layout: int
    columns: tuple[str, ...]


def local_layouts(plan: Plan, root: Node, features: FeatureIndex | None) -> tuple[bool, ...]:
    """Return for each layout whether every row that matches the filter has one of its local features.

    Such a layout serves all its columns, and only its local rows are needed. The rows that a layout lacks are treated
    as a block without its local features, to which the usual skipping rule is applied.
    """
    layouts = plan.scheme.layouts
    if features is None or all(layout.is_undivided for layout in layouts):
        return (False,) * len(layouts)  # each layout serves all its columns and has no separate local rows
    bits = np.ones((len(layouts), len(plan.features)), dtype=np.bool_)
    for index, layout in enumerate(layouts):
        bits[index, list(layout.features)] = False
    lacked = BlockStatistics(rows=np.ones(len(layouts), dtype=np.int64), bits=FeatureBits(pack(bits)))
    local: list[bool] = cannot_match(root, lacked, features, by_statistics=False).tolist()
    return tuple(local)


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
    layouts = plan.scheme.layouts
    eligible = {
        name: [i for i, layout in enumerate(layouts) if name in (layout.columns if local[i] else layout.master)]
        for name in columns
    }
    cheapest = cheapest_path(columns, layouts, rows, eligible)
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
        """Union vectors, column bounds and indexes of the blocks."""
        statistics, rows = self.blocks.block_statistics(), self.blocks.rows
        if self.plan.indexes:
            statistics = replace(statistics, indexes=stored_indexes(self.plan.indexes, self.blocks))
        if not self.absent:
            return statistics
        only_null = [Bounds(nulls=int(n)) for n in rows]
        absent = {column.name: bounds_over(only_null, rows, column.type) for column in self.absent}
        return replace(statistics, bounds=ChainMap(absent, statistics.bounds))  # type: ignore[arg-type]  # never written to

    def statistics_under(self, settings: SessionSettings) -> BlockStatistics:
        """Return :attr:`block_statistics` without indexes that Spark computed under other session settings."""
        return self.block_statistics if self.plan.settings == settings else self._statistics_under_any

    @cached_property
    def _statistics_under_any(self) -> BlockStatistics:
        indexes = self.block_statistics.indexes
        portable = {subject: stored for subject, stored in indexes.items() if is_computed_here(subject)}
        return replace(self.block_statistics, indexes=portable)

    @cached_property
    def segment_of(self) -> Ints:
        """The number of each block's (partition, segment), int64[n], dense from 0."""
        pairs = self.entry_of * (int(self.blocks.segment.max(initial=0)) + 1) + self.blocks.segment
        dense: Ints = np.unique(pairs, return_inverse=True)[1].astype(np.int64)
        return dense

    @cached_property
    def _index(self) -> FeatureIndex:
        return FeatureIndex(self.plan.features)

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
        return _mask_layouts(self.source, self.choice)

    @cached_property
    def outcome(self) -> npt.NDArray[np.int8]:
        """A :class:`PruneOutcome` for each block, int8[n]."""
        return attribute(self)

    @property
    def needed_without_features(self) -> Bits:
        """The blocks that would be read if there were no features, nor indexes, bool[n]."""
        proved = _prove(self.source, self.root, self.settings, None, by_indexes=False)
        return _in_every_layout(self.source, self.choice, self.on_path & ~self.excluded & ~proved)

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
    blocks, excluded = source.blocks, partition_out[source.entry_of]
    local = local_layouts(source.plan, root, source.features_under(settings))
    skipped = excluded | _prove(source, root, settings, local, by_indexes=False)
    # Indexes come last because they are read from files. They are combined with features and statistics, since
    # different alternatives may be excluded by different mechanisms.
    if source.plan.indexes and not skipped.all():
        skipped |= _prove(source, root, settings, local)
    kept = np.flatnonzero(~skipped)
    rows = np.bincount(blocks.layout[kept], blocks.rows[kept], len(local)).astype(int).tolist()
    absent = {column.name for column in source.absent}
    path = choose_layouts(source.plan, [name for name in columns if name not in absent], local, rows)
    read = _in_every_layout(source, path.choice, _mask_layouts(source, path.choice) & ~skipped)
    return PrunedPlan(source, root, settings, excluded, path, read)


def attribute(pruned: PrunedPlan) -> npt.NDArray[np.int8]:
    """Return a :class:`PruneOutcome` for each block, int8[n]: what skips it first.

    Each mechanism is tried with those before it, and also gets the segments in which it empties a layout.
    """
    source, root, settings = pruned.source, pruned.root, pruned.settings
    outcome = np.full(source.blocks.n, PruneOutcome.OTHER_LAYOUT, dtype=np.int8)
    outcome[pruned.on_path & pruned.excluded] = PruneOutcome.PARTITION
    local = local_layouts(source.plan, root, source.features_under(settings))
    reached = remaining = pruned.on_path & ~pruned.excluded
    for mechanism, by_statistics, by_indexes in (
        (PruneOutcome.FEATURES, False, False),
        (PruneOutcome.STATISTICS, True, False),
        (PruneOutcome.INDEX, True, True),
    ):
        if not remaining.any():
            break  # indexes are read from files
        proved = _prove(source, root, settings, local, by_statistics=by_statistics, by_indexes=by_indexes)
        before, remaining = remaining, _in_every_layout(source, pruned.choice, reached & ~proved)
        outcome[before & ~remaining] = mechanism
    outcome[pruned.read] = PruneOutcome.READ
    return outcome


def _prove(
    source: PlanBlocks,
    root: Node,
    settings: SessionSettings,
    local: Sequence[bool] | None,
    *,
    by_statistics: bool = True,
    by_indexes: bool = True,
) -> Bits:
    """Return the blocks that are proved to have no live row that matches and is read from this block, bool[n].

    ``local`` is the result of :func:`local_layouts`; if None, features are not used.
    """
    blocks, statistics = source.blocks, source.statistics_under(settings)
    features = None if local is None else source.features_under(settings)
    proved = cannot_match(root, statistics, features, by_statistics=by_statistics, by_indexes=by_indexes)
    if by_statistics:
        proved |= blocks.live_rows == 0
    if local is not None and any(local):
        proved |= (blocks.part == 1) & np.array(local)[blocks.layout]
    return proved


def _mask_layouts(source: PlanBlocks, choice: Sequence[LayoutChoice]) -> Bits:
    """Return the blocks of the layouts of a path, bool[n]."""
    chosen = np.zeros(len(source.plan.scheme.layouts), dtype=np.bool_)
    chosen[[layout_choice.layout for layout_choice in choice]] = True
    return chosen[source.blocks.layout]


def _in_every_layout(source: PlanBlocks, choice: Sequence[LayoutChoice], read: Bits) -> Bits:
    """Return the blocks (bool[n]) whose segment still has a block in every layout of the path.

    If one layout of a segment has no block left, no row of it survives, so its other layouts need not be read.
    """
    segments = source.segment_of
    for layout_choice in choice if len(choice) > 1 else ():
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
