"""Which blocks a filter needs: partitions first, then features, column statistics and indexes, each counted apart.

Everything is decided for all blocks of a plan at once, on the catalog alone;
:func:`layoutopt.skipping.cannot_match.cannot_match` is the only rule that skips.
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
from layoutopt.model.feature import Settings
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import And, InSet, Node, Or
from layoutopt.model.retrieval import RetrievalPath, cheapest_path
from layoutopt.model.schema import Column
from layoutopt.model.vectors import pack
from layoutopt.skipping.cannot_match import BlockStatistics, FeatureBits, FeatureIndex, cannot_match

# ----------------------------------------------------------------------------------------------------
# A query's retrieval path over a plan's layouts: which may serve it, and which do (Sun 2017, 5.6).


@dataclass(frozen=True)
class LayoutChoice:
    """One layout on a path, with the columns read from it."""

    layout: int
    columns: tuple[str, ...]


def local_layouts(plan: Plan, root: Node, features: FeatureIndex | None) -> tuple[bool, ...]:
    """For each layout whether every row that matches the filter has one of its local features.

    Such a layout serves all its columns, and of its rows only those with a local feature are needed. The rows that a
    layout lacks are like a block without its local features: it is the one skipping rule that says whether such a
    block can match.
    """
    layouts = plan.scheme.layouts
    if features is None or all(layout.is_undivided for layout in layouts):
        return (False,) * len(layouts)  # each serves all its columns as it is, and has no rows apart
    bits = np.ones((len(layouts), len(plan.features)), dtype=np.bool_)
    for index, layout in enumerate(layouts):
        bits[index, list(layout.features)] = False
    lacked = BlockStatistics(rows=np.ones(len(layouts), dtype=np.int64), bits=FeatureBits(pack(bits)))
    local: list[bool] = cannot_match(root, lacked, features, by_statistics=False).tolist()
    return tuple(local)


@dataclass(frozen=True)
class ScanPath:
    """The retrieval path of one query over one plan's layouts.

    Attributes:
        choice: the layouts read, with the columns of each.
        cells_and_tids: what it reads by Equation 5.1, on the catalog's figures.
        greedy: what the greedy path reads.
        next_best: the cheapest other path, None where there is none.
        next_best_cells_and_tids: what that reads.
        compared: how many paths were compared.
        exhaustive: whether no other path can read less.
    """

    choice: tuple[LayoutChoice, ...]
    cells_and_tids: int
    greedy: int
    next_best: tuple[LayoutChoice, ...] | None = None
    next_best_cells_and_tids: int | None = None
    compared: int = 1
    exhaustive: bool = True


def choose_layouts(plan: Plan, columns: Sequence[str], local: Sequence[bool], rows: Sequence[int]) -> ScanPath:
    """The layouts to read, each column from one that may serve it: where it is master, or in a local layout (5.6.1).

    Args:
        plan: the plan.
        columns: what the query reads.
        local: for each layout the answer of :func:`local_layouts`.
        rows: of each layout, the rows that the query can't skip.
    """
    layouts = plan.scheme.layouts
    eligible = {
        name: [i for i, layout in enumerate(layouts) if name in (layout.columns if local[i] else layout.master)]
        for name in columns
    }
    found = cheapest_path(columns, layouts, rows, eligible)
    path = ScanPath(
        _choice(found.path),
        int(found.cost),
        int(found.greedy),
        compared=found.compared,
        exhaustive=found.exhaustive,
    )
    if found.other is None:
        return path
    return replace(path, next_best=_choice(found.other[0]), next_best_cells_and_tids=int(found.other[1]))


def _choice(path: RetrievalPath) -> tuple[LayoutChoice, ...]:
    return tuple(LayoutChoice(layout, chosen) for layout, chosen in path.columns)


class PruneOutcome(IntEnum):
    """What becomes of a block; the first mechanism that skips it has it."""

    READ = 0
    PARTITION = 1
    FEATURES = 2
    STATISTICS = 3
    OTHER_LAYOUT = 4
    """Its layout is not on the query's retrieval path: neither read nor skipped."""
    INDEX = 5


@dataclass(frozen=True)
class ScanSize:
    """So many blocks, their rows, and the compressed bytes of the columns that the query reads in them."""

    blocks: int = 0
    rows: int = 0
    bytes: int = 0

    def __add__(self, other: ScanSize) -> ScanSize:
        return ScanSize(self.blocks + other.blocks, self.rows + other.rows, self.bytes + other.bytes)


@dataclass(frozen=True, eq=False)
class PlanBlocks:
    """All blocks that one plan's loads wrote, over all its partitions.

    Attributes:
        plan: the plan.
        entries: the snapshot's partitions, those of other plans too.
        blocks: the plan's blocks.
        entry_of: the position in ``entries`` of each block's partition, int64[n].
        absent: the table's columns that came after the plan: NULL in all its rows.
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

    def statistics_under(self, settings: Settings) -> BlockStatistics:
        """:attr:`block_statistics`, without indexes of values that Spark computed under other settings than these."""
        return self.block_statistics if self.plan.settings == settings else self._statistics_under_any

    @cached_property
    def _statistics_under_any(self) -> BlockStatistics:
        indexes = self.block_statistics.indexes
        here = {subject: of_subject for subject, of_subject in indexes.items() if is_computed_here(subject)}
        return replace(self.block_statistics, indexes=here)

    @cached_property
    def segment_of(self) -> Ints:
        """A number for each block's (partition, segment), int64[n], dense from 0."""
        pairs = self.entry_of * (int(self.blocks.segment.max(initial=0)) + 1) + self.blocks.segment
        dense: Ints = np.unique(pairs, return_inverse=True)[1].astype(np.int64)
        return dense

    @cached_property
    def _index(self) -> FeatureIndex:
        return FeatureIndex(self.plan.features)

    def features_under(self, settings: Settings) -> FeatureIndex | None:
        """The plan's features, or None where they were measured under other settings."""
        return self._index if self.plan.settings == settings else None


def plan_blocks(catalog: Catalog) -> tuple[PlanBlocks, ...]:
    """A table's blocks, one item for each plan that a partition was loaded with.

    Raises:
        CatalogError: a blocks file is missing or damaged.
    """
    found = []
    for digest, (blocks, entry_of) in catalog.blocks_by_plan().items():
        plan = catalog.plans[digest]
        absent = absent_columns(catalog.schema, plan.schema)
        found.append(PlanBlocks(plan, catalog.partitions, blocks, entry_of, absent))
    return tuple(found)


@dataclass(frozen=True, eq=False)
class PrunedPlan:
    """What a query reads of one plan's blocks.

    Attributes:
        source: the blocks.
        path: which layouts give which columns, and what other paths would have read.
        outcome: a :class:`PruneOutcome` for each block, int8[n].
        needed_without_features: blocks that would be read if there were no features, bool[n].
        bytes: compressed bytes of what the query reads in each block, tids included, int64[n].
    """

    source: PlanBlocks
    path: ScanPath
    outcome: npt.NDArray[np.int8]
    needed_without_features: Bits
    bytes: Ints

    @property
    def choice(self) -> tuple[LayoutChoice, ...]:
        """Which layouts give which columns."""
        return self.path.choice

    def size(self, *outcomes: PruneOutcome) -> ScanSize:
        """Blocks, rows and bytes that had one of these outcomes."""
        return sum((self._sizes[outcome] for outcome in outcomes), ScanSize())

    @cached_property
    def _sizes(self) -> tuple[ScanSize, ...]:
        """What had each outcome."""
        chosen = [self.outcome == outcome for outcome in PruneOutcome]
        rows = self.source.blocks.rows
        return tuple(
            ScanSize(int(np.count_nonzero(these)), int(rows[these].sum()), int(self.bytes[these].sum()))
            for these in chosen
        )

    def rows_by_layout(self, chosen: Bits) -> dict[int, int]:
        """Rows of the chosen blocks (bool[n]) in each layout on the path."""
        blocks = self.source.blocks
        return {c.layout: int(blocks.rows[chosen & (blocks.layout == c.layout)].sum()) for c in self.choice}

    @property
    def read(self) -> Bits:
        """The blocks to read, bool[n]."""
        read: Bits = self.outcome == PruneOutcome.READ
        return read

    def of(self, source: PlanBlocks) -> PrunedPlan:
        """The same of blocks that differ from these in their bytes alone."""
        return replace(self, source=source, bytes=_bytes_read(source.blocks, self.choice))


def prune(
    source: PlanBlocks, partition_out: Bits, root: Node, columns: Sequence[str], settings: Settings
) -> PrunedPlan:
    """What a scan of these columns under this filter reads of one plan's blocks.

    Args:
        source: the plan's blocks.
        partition_out: the partitions that the filter excludes as a whole, bool[n_entries].
        root: the filter; rows for which it is not TRUE need not be read.
        columns: the columns that are read, filter columns included; none for ``count(*)``.
        settings: the session's; features and values of expressions measured under others are not used.
    """
    blocks, features, statistics = source.blocks, source.features_under(settings), source.statistics_under(settings)
    local = local_layouts(source.plan, root, features)
    by_partition = partition_out[source.entry_of]
    # What is deleted matches nothing, whatever it was.
    by_statistics = cannot_match(root, statistics, None, by_indexes=False) | (blocks.live_rows == 0)
    by_features, by_both = (blocks.part == 1) & np.array(local)[blocks.layout], by_statistics
    if features is not None:
        by_features |= cannot_match(root, statistics, features, by_statistics=False, by_indexes=False)
        # Together they prove more only where some alternatives fall to features and the others to statistics.
        if _has_alternatives(root):
            by_both = cannot_match(root, statistics, features, by_indexes=False)
    by_any = by_partition | by_features | by_statistics | by_both
    # Last, since an index is a file to be read, and with all the others: alternatives may fall to any of them.
    if source.plan.indexes and not by_any.all():
        by_any = by_any | cannot_match(root, statistics, features)
    rows = np.bincount(blocks.layout, blocks.rows * ~by_any, len(local)).astype(int).tolist()
    absent = {column.name for column in source.absent}
    path = choose_layouts(source.plan, [name for name in columns if name not in absent], local, rows)
    offered = np.isin(blocks.layout, [chosen.layout for chosen in path.choice])
    reached = offered & ~by_partition

    def emptied(skipped: Bits) -> Bits:
        """Blocks of segments of which some layout has nothing left once these are skipped: no row survives there."""
        left = reached & ~skipped
        return left & ~_in_every_layout(source, path.choice, left)

    # The first that holds is what becomes of a block; each mechanism is credited with what it empties by itself.
    by_help = by_statistics | by_both
    outcomes = {
        PruneOutcome.OTHER_LAYOUT: ~offered,
        PruneOutcome.PARTITION: by_partition,
        PruneOutcome.FEATURES: by_features | emptied(by_features),
        PruneOutcome.STATISTICS: by_help | emptied(by_features | by_help),
        PruneOutcome.INDEX: by_any | emptied(by_any),
    }
    outcome = np.select(list(outcomes.values()), list(outcomes), PruneOutcome.READ).astype(np.int8)
    without_features = _in_every_layout(source, path.choice, reached & ~by_statistics)
    return PrunedPlan(source, path, outcome, without_features, _bytes_read(blocks, path.choice))


def _has_alternatives(node: Node) -> bool:
    """Whether a part of a filter can hold in several ways that skipping tries one by one."""
    if isinstance(node, And):
        return any(_has_alternatives(child) for child in node.children)
    return isinstance(node, Or) or (isinstance(node, InSet) and len(node.values.intervals) + node.null > 1)


def _in_every_layout(source: PlanBlocks, choice: Sequence[LayoutChoice], read: Bits) -> Bits:
    """The blocks of these (bool[n]) in whose segment every layout of the path has some of them.

    Where one layout of a segment has nothing left, no row of it survives: its other layouts need no reading.
    """
    segments = source.segment_of
    for chosen in choice if len(choice) > 1 else ():
        alive = np.zeros(int(segments.max(initial=-1)) + 1, dtype=np.bool_)
        alive[segments[read & (source.blocks.layout == chosen.layout)]] = True
        read = read & alive[segments]
    return read


def _bytes_read(blocks: BlockTable, choice: Sequence[LayoutChoice]) -> Ints:
    total = np.zeros(blocks.n, dtype=np.int64)
    for chosen in choice:
        mine = blocks.layout == chosen.layout
        here = slice(None) if mine.all() else mine  # masks cost more than the sum where there is one layout
        for name in chosen.columns:
            total[here] += blocks.column_bytes(name)[here]
        if len(choice) > 1:
            total[here] += blocks.tid_bytes[here]
    return total
