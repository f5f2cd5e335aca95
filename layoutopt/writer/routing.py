"""Route the rows of a segment to the blocks of each layout, in numpy and Arrow, without Spark.

Blocks by vectors are guided by the layout's local features and by slices. Slices cut a segment into a few ranges of
one column that no feature is about, such as a date. Each set of slices that some queries reach acts as one more
feature of the blocking, weighted by those queries. Slices only guide: the statistics of the blocks decide what is
skipped.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.bounds import column_bounds
from layoutopt.catalog.statistics import block_statistics
from layoutopt.errors import PlanError
from layoutopt.evaluation.keys import stored_keys
from layoutopt.evaluation.predicates import distinct_rows
from layoutopt.features.weights import MARGINAL, WEIGHINGS, weigh_features
from layoutopt.model.arrays import Bits, Floats, Ints, Words, stable_order
from layoutopt.model.layout import CUT_BY, MIN_ROWS, PREDICATE_SORT, WEIGHTS, ByCuts, ByOrder, ByVectors, Layout, Plan
from layoutopt.model.predicates import TRUE, And, InSet, Node, Or, columns_of
from layoutopt.model.query import Query, filtered_columns
from layoutopt.model.schema import Column, Schema
from layoutopt.model.vectors import VectorCounts, any_of, bit_shares, project, unpack, with_more_bits
from layoutopt.partitioning.block_sizes import min_rows_for
from layoutopt.partitioning.objective import SkipSetObjective, assign_rows, make_skip_objective
from layoutopt.partitioning.ordered_blocks import order_blocks, order_rows
from layoutopt.partitioning.registry import WARD, find_partitioner
from layoutopt.skipping.cannot_match import BlockStatistics, ColumnBounds, cannot_match_each
from layoutopt.writer.encodings import bytes_per_row
from layoutopt.writer.value_cuts import assign_cells, cut_blocks

# Ranges of a segment at most: on TPC-H years, 18 and more make more vectors than they help.
MOST_SLICES: Final = 12

# One more range has to save this share of what queries read of the whole segment.
_MIN_GAIN: Final = 0.005

# Sets of ranges that guide at most, those that skip most first: lists of values may make thousands.
_MAX_SETS: Final = 64

# Rows of a segment on which the bytes of cells are measured.
_CELL_SAMPLE_ROWS = 10_000
# Slices may multiply the number of vectors by this.
_SLICED_VECTORS_FACTOR = 6
# Rare vectors that are compared with all kept vectors at once.
_RARE_CHUNK = 1024


@dataclass(frozen=True, eq=False)
class Slices:
    """The features that slices add to the blocking of one layout.

    Attributes:
        bits: which rows lie in each set of slices, ``bool[n_rows, e]``.
        shares: 1 where the query reaches exactly that set, ``float64[n_queries, e]``.
    """

    bits: Bits
    shares: Floats


@dataclass(frozen=True, eq=False)
class CellRows:
    """The rows of a segment by cells of one column; shared by all layouts that are cut by that column.

    Attributes:
        plan: the plan, with at least one query.
        table: the segment's rows, at least one.
        name: the column.
        cell: the cell of each row, numbered from 0 in the column's order, ``int64[n_rows]``.
    """

    plan: Plan
    table: pa.Table
    name: str
    cell: Ints
    _bounds: dict[str, ColumnBounds] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def cell_of_row(self) -> Ints:
        """Return the cell of each row among the cells that have rows, ``int64[n_rows]``."""
        return np.unique(self.cell, return_inverse=True)[1].reshape(-1)

    @cached_property
    def rows(self) -> Ints:
        """Return the number of rows of each of these cells, ``int64[cells]``."""
        return np.bincount(self.cell_of_row)

    def reached(self, columns: frozenset[str]) -> Bits:
        """Return which query reaches each cell and each gap between two, ``bool[n_queries, 2 * cells - 1]``.

        The bounds of two neighbouring cells include the gap between them. A query for a value in the gap reaches
        neither cell but reads a block with rows of both. Such a query reaches the gap. ``columns`` are those with
        bounds.
        """
        filtered = filtered_columns(self.plan.queries) & columns
        reached = np.zeros((len(self.plan.queries), 2 * len(self.rows) - 1), dtype=np.bool_)
        if self.name in filtered:
            reached[:, 1::2] = self._reached_gaps
        reached[:, ::2] = self._reached_cells(filtered)
        return reached

    @cached_property
    def _reached_gaps(self) -> Bits:
        reached_cells, offsets = self._reached_cells(frozenset({self.name})), self._offsets
        gaps = np.zeros((len(self.plan.queries), len(self.rows) - 1), dtype=np.bool_)
        schema, in_order = self.plan.schema.select([self.name]), self._column_in_order(self.name)
        for first in (0, 1):  # cells 0 and 1, 2 and 3, ... as one; then 1 and 2, 3 and 4, ...
            left = np.arange(first, len(self.rows) - 1, 2)
            pairs = np.unique(np.concatenate((offsets[[0]], offsets[first::2], offsets[[-1]])))
            reached = self._find_reached(range_statistics(schema, in_order, pairs), frozenset({self.name}))
            gaps[:, left] = reached[:, (left + first) // 2] & ~reached_cells[:, left] & ~reached_cells[:, left + 1]
        return gaps

    def _reached_cells(self, columns: frozenset[str]) -> Bits:
        """Return the cells that the bounds of these columns don't exclude, ``bool[n_queries, cells]``."""
        for name in columns - self._bounds.keys():
            schema = self.plan.schema.select([name])
            self._bounds[name] = range_statistics(schema, self._column_in_order(name), self._offsets).bounds[name]
        bounds = {name: self._bounds[name] for name in columns}
        return self._find_reached(BlockStatistics(rows=self.rows, bounds=bounds), columns)

    def _find_reached(self, statistics: BlockStatistics, columns: frozenset[str]) -> Bits:
        nodes = [_project_node(query.filter.root, columns) for query in self.plan.queries]
        return ~cannot_match_each(nodes, statistics)

    def _column_in_order(self, name: str) -> pa.Table:
        return self.table.select([name]).take(self._order)

    @cached_property
    def _order(self) -> pa.Array:
        return pa.array(stable_order(self.cell_of_row, len(self.rows)))

    @cached_property
    def _offsets(self) -> Ints:
        return np.append(0, np.cumsum(self.rows)).astype(np.int64)


def slice_rows(cells: CellRows, columns: frozenset[str], weights: Floats) -> Slices:
    """Cut the rows of a segment into slices where that saves most.

    ``columns`` have statistics in the layout; if the sliced column is not among them there are no slices. ``weights``
    are the worth of each row that a query skips, ``float64[n_queries]``.
    """
    rows, reached = cells.rows, cells.reached(columns)
    starts = best_starts(rows, reached, weights)
    stops = np.append(starts[1:], len(rows))
    by_slice = [reached[:, 2 * a : 2 * b - 1].any(axis=1) for a, b in zip(starts, stops, strict=True)]
    slice_of_row = (np.searchsorted(starts, np.arange(len(rows)), side="right") - 1)[cells.cell_of_row]
    sets, of_query = _distinct_rows(np.stack(by_slice, axis=1))
    skipped = np.bincount(of_query, weights, len(sets)) * (~sets @ np.bincount(slice_of_row, minlength=len(starts)))
    partial = np.flatnonzero(sets.any(axis=1) & ~sets.all(axis=1))
    chosen = np.sort(partial[np.argsort(-skipped[partial], kind="stable")[:_MAX_SETS]])
    shares = (of_query[:, None] == chosen).astype(np.float64)
    return Slices(sets[chosen][:, slice_of_row].T, shares)


@lru_cache(maxsize=1 << 14)
def _project_node(node: Node, columns: frozenset[str]) -> Node:
    """Return a node without the parts that bounds of these columns can't decide, TRUE if nothing is left.

    Many nodes become equal by it.

    >>> from layoutopt.model.predicates import Col
    >>> from layoutopt.model.values import ValueSet
    >>> day, kind = (InSet(Col(name, "int"), ValueSet.point(1)) for name in ("day", "kind"))
    >>> _project_node(And((day, kind)), frozenset({"day"})) == day
    True
    >>> _project_node(Or((day, kind)), frozenset({"day"})) == TRUE
    True
    """
    match node:
        case And(children):
            parts = tuple(part for child in children if (part := _project_node(child, columns)) != TRUE)
            return And(parts) if len(parts) > 1 else parts[0] if parts else TRUE
        case Or(children):
            parts = tuple(_project_node(child, columns) for child in children)
            return TRUE if TRUE in parts else Or(parts)
        case InSet(_, values, _) if values.is_empty:
            return node
    return node if columns_of(node) <= columns else TRUE


def best_starts(rows: Ints, reached: Bits, weights: Floats, max_runs: int = MOST_SLICES) -> Ints:
    """Return where to cut a row of cells into runs so that queries read the fewest rows.

    A query that reaches any part of a run reads the whole run. Dynamic programming finds the best cut for each number
    of runs; one more run has to save a small share of all rows.

    Args:
        rows: the rows of each cell, at least one, ``int64[t]``.
        reached: which query reaches each cell and the gap after it, alternating, ``bool[q, 2 * t - 1]``.
        weights: the weights of the queries, ``float64[q]``.
        max_runs: the most runs.

    Returns:
        The first cell of each run, ascending; ``int64[runs]``.

    One query reaches the first two of four cells, another one the last two; none reaches a gap:

    >>> reached = np.array([[1, 0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0, 1]], dtype=bool)
    >>> best_starts(np.array([5, 1, 1, 5]), reached, np.ones(2))
    array([0, 2])
    """
    costs = _run_costs(rows, reached, weights)
    fewest = costs[0, 1:]  # of one run up to each cell
    cuts: list[Ints] = []
    totals = [fewest[-1]]
    for _ in range(min(max_runs, len(rows)) - 1):
        # one run more, that begins at cell i and ends before cell j: [i - 1, j - 1]
        totals_by_start = fewest[:-1, None] + costs[1:, 2:]
        cuts.append(np.append(0, totals_by_start.argmin(axis=0) + 1))
        fewest = np.append(np.inf, totals_by_start.min(axis=0))
        totals.append(fewest[-1])
    extra_runs = int((np.array(totals) + _MIN_GAIN * totals[0] * np.arange(len(totals))).argmin())
    starts, end = [], len(rows) - 1
    for cut in reversed(cuts[:extra_runs]):
        starts.append(int(cut[end]))
        end = starts[-1] - 1
    return np.array([0, *reversed(starts)], dtype=np.int64)


def _distinct_rows(reached: Bits) -> tuple[Bits, Ints]:
    _, first, which = np.unique(np.packbits(reached, axis=1), axis=0, return_index=True, return_inverse=True)
    return reached[first], which.reshape(-1)


def _run_costs(rows: Ints, reached: Bits, weights: Floats) -> Floats:
    """Return the rows that queries read of cells ``i`` to ``j - 1`` as one run, ``float64[t, t + 1]``.

    The cost is infinite where the run is empty.
    """
    n, places = len(rows), reached.shape[1]
    reached, set_of_query = _distinct_rows(reached)
    set_weights = np.bincount(set_of_query, weights, len(reached))
    # The next place that a query reaches, from each place on; past the last where there is none.
    next_place = np.minimum.accumulate(np.where(reached, np.arange(places), places)[:, ::-1], axis=1)[:, ::-1]
    by_cell = np.ascontiguousarray(next_place[:, ::2].T)
    before = np.concatenate(([0], np.cumsum(rows)))
    costs = np.full((n, n + 1), np.inf)
    for i in range(n):
        reading = np.bincount(by_cell[i], set_weights, minlength=places + 1)[:places].cumsum()[::2]
        costs[i, i + 1 :] = reading[i:] * (before[i + 1 :] - before[i])
    return costs


def range_statistics(schema: Schema, table: pa.Table, offsets: Ints) -> BlockStatistics:
    """Return the bounds of ranges of rows: range ``i`` is ``offsets[i] .. offsets[i + 1] - 1``."""
    rows = np.diff(offsets)
    if not schema.columns:  # a table without columns does not know its number of rows
        return BlockStatistics(rows=rows)
    stats = block_statistics(table, offsets, schema)
    bounds = {
        column.name: column_bounds(pc.struct_field(stats, f"c{i}"), rows, column.type)
        for i, column in enumerate(schema.columns)
    }
    return BlockStatistics(rows=rows, bounds=bounds)


@dataclass(frozen=True, eq=False)
class Routing:
    """The blocks of one layout in a segment.

    Attributes:
        rows: indices of the layout's rows in the order of writing, ``int64[k]``.
        offsets: block ``b`` is ``rows[offsets[b] : offsets[b + 1]]``; ``int64[n_blocks + 1]``.
        joined_vectors: distinct vectors beyond ``max_vectors`` that were joined to their nearest.
    """

    rows: Ints
    offsets: Ints
    joined_vectors: int = 0


@dataclass(frozen=True, eq=False)
class Guides:
    """What guides the blocking of one layout in one segment: its local features, and sets of slices.

    Attributes:
        words: the guides' bits of each row, packed, ``uint64[n, w]``.
        weights: the worth of skipping by each guide, ``float64[g]``.
        slices: how many of the guides, the last ones, are sets of slices.
        objective: what queries can't skip, over the guides; None where the partitioner uses weights alone.
    """

    words: Words
    weights: Floats
    slices: int = 0
    objective: SkipSetObjective | None = None


def route(plan: Plan, layout: Layout, table: pa.Table, words: Words, guides: Guides) -> Routing:
    """Put the rows that the layout holds whole into blocks; methods by order need no guides.

    ``words`` are the feature vectors of the segment's rows in the order of the source, ``uint64[n, w]``.
    """
    rows = np.flatnonzero(present_rows(layout, words))
    if isinstance(layout.blocking, ByOrder):
        if layout.blocking.kind == PREDICATE_SORT:
            return _route_by_bits(plan, guides, rows)
        return _route_by_order(plan, layout.blocking, table, rows)
    if isinstance(layout.blocking, ByCuts):
        return _route_by_cuts(plan, layout, table, words, rows)
    column = _find_cut_column(plan, layout.blocking)
    order = None if column is None else _dense_ranks(table[column.name], column.type)[rows]
    return _route_by_vectors(plan, layout.blocking, guides, rows, order)


def route_to_one_block(plan: Plan, layout: Layout, words: Words) -> Routing | None:
    """Return the one block of rows that are too few for two blocks by vectors; None where guides have to be found.

    Blocks have at least ``min_rows`` rows and fewer than twice as many (:mod:`layoutopt.partitioning.block_sizes`), so
    fewer rows than that are one block by every partitioner, in the order of the source.
    """
    if not isinstance(layout.blocking, ByVectors):
        return None
    rows = np.flatnonzero(present_rows(layout, words))
    if not 0 < len(rows) < 2 * _min_rows(plan, layout.blocking):
        return None
    return Routing(rows, np.array([0, len(rows)], dtype=np.int64))


def blocking_key(plan: Plan, layout: Layout) -> Hashable:
    """Return a key that is equal for layouts with the same blocks in a segment.

    Such layouts have the same rows, local features and served queries. A layout that is also cut by values of its
    columns shares its blocks with no other.
    """
    if not isinstance(layout.blocking, ByVectors) or CUT_BY in dict(layout.blocking.params):
        return layout
    features = None if layout.is_undivided else layout.features
    return (features, layout.guiding, layout.blocking, served_queries(plan, layout).tobytes())


def present_rows(layout: Layout, words: Words) -> Bits:
    """Return the rows that the layout holds whole, ``bool[n]``: all, or R_i where some columns are copies (5.4.1)."""
    if layout.is_undivided:
        return np.ones(len(words), dtype=np.bool_)
    return any_of(words, layout.features)


def cut_equally(rows: Ints, block_rows: int) -> Routing:
    """Cut rows into equal blocks, keeping their order."""
    return _cut_in_order("input", [], rows, block_rows)


def weigh_reaching_queries(queries: Sequence[Query], schema: Schema, table: pa.Table) -> Floats:
    """Return the weight of each query, ``float64[n_queries]``; 0 where the bounds of the rows exclude it."""
    statistics = segment_statistics(schema, table, filtered_columns(queries))
    excluded = cannot_match_each([query.filter.root for query in queries], statistics)[:, 0]
    return np.where(excluded, 0.0, np.array([query.weight for query in queries], dtype=np.float64))


def measure_cell_bytes(plan: Plan, table: pa.Table) -> dict[str, float] | None:
    """Return the approximate compressed bytes of a cell of each column that queries read, from a sample of rows.

    Sample rows are spread evenly over the segment, so they differ about as much as the rows of a block. Return None
    where queries are not weighted by bytes: for several layouts, whose columns are read together anyway, and for
    Ward's method, which follows the thesis.
    """
    layout = plan.scheme.layouts[0]
    several = len(plan.scheme.layouts) > 1
    if several or not isinstance(layout.blocking, ByVectors) or layout.blocking.algorithm == WARD:
        return None
    read_columns = {name for query in plan.queries for name in query.columns}
    names = [name for name in table.column_names if name in read_columns]
    count = min(table.num_rows, _CELL_SAMPLE_ROWS)
    if not names or not count:
        return None
    sample = table.select(names).take(pa.array(np.arange(count) * table.num_rows // count))
    return bytes_per_row(sample, np.array([0, count]), plan.codec)


def is_guided_by_queries(plan: Plan, layout: Layout) -> bool:
    """Return whether :func:`find_guides` has guides for the layout; others are blocked by order, or cut."""
    return bool(plan.queries) and isinstance(layout.blocking, ByVectors)


def find_guides(
    plan: Plan,
    layout: Layout,
    table: pa.Table,
    words: Words,
    shares: Floats,
    reached: Floats,
    cell_bytes_by_column: Mapping[str, float] | None = None,
    cells_by_column: dict[str, CellRows] | None = None,
) -> Guides:
    """Return the guides of a layout's blocking by vectors in this segment, each with a weight.

    The layout's local features come first, then sets of slices. Both are weighted by what queries skip::

        weight(g) = sum over q of reached(q) * bytes(q) * share(q, g) * left(q, g)
        left(q, g) = product over guides h more selective than g of (1 - share(q, h) * (1 - matching(h)))

    A query counts for a guide only by the rows that its more selective guides leave; Equation 3.1 counts it whole for
    each. Only training queries that read the layout and reach the segment count (4.5). ``bytes(q)`` are those of a row
    of the query's columns. Slices are chosen for what the best feature of each query leaves.

    Args:
        words: the feature vectors of the rows, ``uint64[n, w]``.
        shares: how much of each query each feature covers, ``float64[n_queries, f]``.
        reached: from :func:`weigh_reaching_queries`, ``float64[n_queries]``.
        cell_bytes_by_column: from :func:`measure_cell_bytes`; without them ``bytes(q)`` is 1 for all.
        cells_by_column: a cache that the layouts of a segment share.
    """
    assert isinstance(layout.blocking, ByVectors)
    local, served = list(layout.guiding), served_queries(plan, layout)
    counted = np.where(served, reached, 0.0)
    if cell_bytes_by_column is not None:
        counted = counted * [
            math.fsum(cell_bytes_by_column.get(name, 0.0) for name in query.columns) for query in plan.queries
        ]
    guiding, present = project(words, local), present_rows(layout, words)
    present_places = slice(None) if present.all() else np.flatnonzero(present)
    matching = bit_shares(guiding[present_places], len(local))
    by_best_feature = (shares[:, local] * (1 - matching)).max(axis=1, initial=0.0)
    slices = _find_slices(
        plan,
        layout,
        layout.blocking,
        table,
        counted * (1 - by_best_feature),
        {} if cells_by_column is None else cells_by_column,
    )
    n_slices = slices.bits.shape[1]
    if n_slices:
        guiding = with_more_bits(guiding, len(local), slices.bits)
    share = np.hstack([shares[:, local], slices.shares])
    matching = np.append(matching, slices.bits[present_places].sum(axis=0) / max(1, np.count_nonzero(present)))
    weights = _weigh_guides(layout.blocking, share[served], counted[served], matching)
    objective = None
    if layout.blocking.algorithm != WARD:
        objective = make_skip_objective(plan.queries, plan.features.only(local), counted, len(words), slices.shares > 0)
    return Guides(guiding, weights, n_slices, objective)


def _weigh_guides(blocking: ByVectors, shares: Floats, reached: Floats, matching: Floats) -> Floats:
    weighing = dict(blocking.params).get(WEIGHTS, MARGINAL)
    if weighing not in WEIGHINGS:
        raise PlanError(f"the plan's {WEIGHTS} are {weighing!r:.80}: expected {' or '.join(WEIGHINGS)}; plan again")
    return weigh_features(str(weighing), shares, reached, matching)


def _find_slices(
    plan: Plan,
    layout: Layout,
    blocking: ByVectors,
    table: pa.Table,
    weights: Floats,
    cells_by_column: dict[str, CellRows],
) -> Slices:
    column = _find_cut_column(plan, blocking)
    if column is None or not table.num_rows:
        return Slices(np.zeros((table.num_rows, 0), dtype=np.bool_), np.zeros((len(plan.queries), 0)))
    if column.name not in cells_by_column:
        cells_by_column[column.name] = CellRows(plan, table, column.name, assign_cells(plan, column.name, table))
    return slice_rows(cells_by_column[column.name], frozenset(layout.columns), weights)


def served_queries(plan: Plan, layout: Layout) -> Bits:
    """Return the training queries that the layout's blocking is for, ``bool[n_queries]``."""
    if layout.serves is None:
        columns = set(layout.columns)
        return np.array([not columns.isdisjoint(query.columns) for query in plan.queries], dtype=np.bool_)
    served = np.zeros(len(plan.queries), dtype=np.bool_)
    served[list(layout.serves)] = True
    return served


def feature_guides(layout: Layout, words: Words, weights: Floats) -> Guides:
    """Return the layout's local features as guides; ``weights`` are those of all features, ``float64[f]``."""
    return Guides(project(words, layout.guiding), np.asarray(weights)[list(layout.guiding)])


def _find_cut_column(plan: Plan, blocking: ByVectors) -> Column | None:
    name = dict(blocking.params).get(CUT_BY)
    return None if name is None else plan.schema.find(str(name))


def segment_statistics(schema: Schema, table: pa.Table, columns: frozenset[str]) -> BlockStatistics:
    """Return the bounds of some columns over a whole segment, as of one block."""
    used = schema.select(name for name in schema.names if name in columns)
    return range_statistics(used, table.select(list(used.names)), np.array([0, table.num_rows], dtype=np.int64))


def _route_by_vectors(plan: Plan, blocking: ByVectors, guides: Guides, rows: Ints, order: Ints | None) -> Routing:
    if not len(rows):
        return Routing(rows, np.zeros(1, dtype=np.int64))
    n_guides = len(guides.weights)
    vectors, inverse, counts = distinct_rows(guides.words.take(rows, axis=0))
    max_vectors = plan.max_vectors * (_SLICED_VECTORS_FACTOR if guides.slices else 1)
    representative = limit_vectors(VectorCounts(vectors, counts, n_guides), guides.weights, max_vectors)
    distinct, which = np.unique(representative, return_inverse=True)
    summed = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(summed, which, counts)
    pairs, inverse = VectorCounts(vectors[distinct], summed, n_guides), which[inverse]
    min_rows = _min_rows(plan, blocking)
    partition = find_partitioner(blocking.algorithm)(pairs, guides.weights, min_rows, plan.seed, guides.objective)
    n_joined = int((representative != np.arange(len(representative))).sum())
    reading_order = order_blocks(unpack(partition.unions(pairs), n_guides), guides.weights)
    block = np.argsort(reading_order)[assign_rows(partition, inverse, order)]
    return _to_routing(rows, block, partition.n_blocks, n_joined)


def _min_rows(plan: Plan, blocking: ByVectors) -> int:
    min_rows = dict(blocking.params).get(MIN_ROWS, min_rows_for(plan.block_rows))
    if isinstance(min_rows, str) or min_rows < 1:
        raise PlanError(f"the plan's {MIN_ROWS} is {min_rows!r:.80}: expected a number from 1; plan again")
    return int(min_rows)


def limit_vectors(vectors: VectorCounts, weights: Floats, max_vectors: int) -> Ints:
    """Return the vector that represents each distinct vector in blocking, ``int64[d]``.

    The ``max_vectors`` vectors with the most rows represent themselves. Any other is joined to the one of these from
    which it differs by the least weight of features (``float64[f]``). Union vectors are measured from the rows, so a
    bad match costs skipping, never an answer.
    """
    stands_for = np.arange(len(vectors))
    if len(vectors) <= max_vectors:
        return stands_for
    by_rows = np.argsort(-vectors.counts, kind="stable")
    frequent, rare = np.sort(by_rows[:max_vectors]), np.sort(by_rows[max_vectors:])
    bits = vectors.bits()
    weighted = bits[frequent] * weights.astype(np.float32)
    totals = weighted.sum(axis=1)
    for start in range(0, len(rare), _RARE_CHUNK):
        chunk = rare[start : start + _RARE_CHUNK]
        # The weight of the symmetric difference, without the part that is equal for all candidates.
        stands_for[chunk] = frequent[(totals - 2 * (bits[chunk].astype(np.float32) @ weighted.T)).argmin(axis=1)]
    return stands_for


def _route_by_cuts(plan: Plan, layout: Layout, table: pa.Table, words: Words, rows: Ints) -> Routing:
    is_whole = len(rows) == table.num_rows
    present = table if is_whole else table.take(pa.array(rows))
    weights = np.array([query.weight for query in plan.queries])
    served = np.where(served_queries(plan, layout), weights, 0.0)
    block = cut_blocks(plan, layout, present, words if is_whole else words[rows], served)
    return _to_routing(rows, block, int(block.max(initial=-1)) + 1)


def _route_by_order(plan: Plan, blocking: ByOrder, table: pa.Table, rows: Ints) -> Routing:
    types = {name: plan.schema.find(name).type for name in blocking.columns}
    keys = [_dense_ranks(table[name].take(pa.array(rows)), type) for name, type in types.items()]
    return _cut_in_order(blocking.kind, keys, rows, plan.block_rows)


def _route_by_bits(plan: Plan, guides: Guides, rows: Ints) -> Routing:
    """Sort rows by their features, the heaviest first, and cut them into equal blocks; the sort is stable."""
    bits = unpack(guides.words.take(rows, axis=0), len(guides.weights))
    keys = [1 - bits[:, i].astype(np.int64) for i in np.argsort(-guides.weights, kind="stable")]
    return _cut_in_order("sort" if keys else "input", keys, rows, plan.block_rows)


def _cut_in_order(kind: str, keys: Sequence[Ints], rows: Ints, block_rows: int) -> Routing:
    ordering = order_rows(kind, keys, len(rows), block_rows)
    in_order = np.argsort(ordering.rank, kind="stable")
    return _to_routing(rows[in_order], ordering.block[in_order], ordering.n_blocks)


def _dense_ranks(column: pa.ChunkedArray, type: str) -> Ints:
    """Return dense ranks in Spark's order, ``int64[n]``; NULL first."""
    keys = stored_keys(column, type)
    ranks: Ints = np.asarray(pc.rank(keys, sort_keys="ascending", tiebreaker="dense"), dtype=np.int64)
    return np.where(np.asarray(keys.is_null()), 0, ranks) if keys.null_count else ranks - 1


def _to_routing(rows: Ints, block: Ints, n_blocks: int, joined_vectors: int = 0) -> Routing:
    """Sort rows by block. The sort is stable, so rows that compress together stay together."""
    in_order = stable_order(block, n_blocks)
    sizes = np.bincount(block, minlength=n_blocks)
    return Routing(rows[in_order], np.concatenate(([0], np.cumsum(sizes))).astype(np.int64), joined_vectors)


def union_words(words: Words, routing: Routing) -> Words:
    """Return the union vector of each block over all features, measured from its rows, ``uint64[n_blocks, w]``."""
    if len(routing.offsets) == 1:
        return np.zeros((0, words.shape[1]), dtype=np.uint64)
    return np.bitwise_or.reduceat(words.take(routing.rows, axis=0), routing.offsets[:-1], axis=0)
