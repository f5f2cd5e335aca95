"""From a segment's rows to blocks: what each task of a load computes, in numpy, without Spark."""

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
from layoutopt.catalog.keys import stored_keys
from layoutopt.catalog.statistics import block_statistics
from layoutopt.errors import PlanError
from layoutopt.features.weights import MARGINAL, WEIGHINGS, weights_by
from layoutopt.model.arrays import Bits, Floats, Ints, Words, stable_order
from layoutopt.model.layout import CUT_BY, MIN_ROWS, PREDICATE_SORT, WEIGHTS, ByCuts, ByOrder, ByVectors, Layout, Plan
from layoutopt.model.predicates import TRUE, And, InSet, Node, Or, columns_of
from layoutopt.model.query import Query, filtered_columns
from layoutopt.model.schema import Column, Schema
from layoutopt.model.vectors import VectorCounts, any_of, bit_shares, project, unpack, with_more_bits
from layoutopt.partitioning.block_sizes import min_rows_for
from layoutopt.partitioning.objective import SkipSetObjective, assign_rows, objective_of
from layoutopt.partitioning.order import in_reading_order, order_rows
from layoutopt.partitioning.registry import WARD, find_partitioner
from layoutopt.skipping.cannot_match import BlockStatistics, ColumnBounds, cannot_match
from layoutopt.writer.encodings import bytes_a_row
from layoutopt.writer.evaluation import distinct_rows
from layoutopt.writer.value_cuts import cells_of, cut_blocks

# ----------------------------------------------------------------------------------------------------
# Slices of a segment by a column that no feature is about, so that blocks are narrow in it and statistics skip.
#
# Features say nothing of dates, or of constants that the log has not seen; minima and maxima do, where a block's rows
# lie
# close together. A segment is cut into a few ranges of rows by one column, where queries of the log begin or end, such
# that they reach as few rows as so many ranges allow. A block of rows of one range is excluded where the range is: each
# set of ranges that some queries reach acts as one more feature of the blocking, with those queries as its weight. Such
# features guide only; what is skipped is decided by the blocks' statistics.

MOST_SLICES: Final = 12
"""Ranges a segment: on TPC-H years 18 and more make more vectors than they help."""

_LEAST_GAIN: Final = 0.005
"""One more range has to save so much of what queries read of the segment as a whole."""

_MOST_SETS: Final = 64
"""Sets of ranges that guide, those first by which most is skipped: lists of values may reach thousands."""


@dataclass(frozen=True, eq=False)
class Slices:
    """The features that slices add to one layout's blocking.

    Attributes:
        bits: which rows lie in each set of slices, ``bool[n_rows, e]``.
        shares: 1 where that set is what the query reaches, ``float64[n_queries, e]``.
    """

    bits: Bits
    shares: Floats


@dataclass(frozen=True, eq=False)
class CellRows:
    """A segment's rows by where one column may be cut; what is found of them serves all layouts that are cut by it.

    Attributes:
        plan: with at least one query.
        table: the segment's rows, at least one.
        name: the column.
        cell: of each row, by that column: numbered from 0 in its order, ``int64[n_rows]``.
    """

    plan: Plan
    table: pa.Table
    name: str
    cell: Ints
    _bounds: dict[str, ColumnBounds] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def of_row(self) -> Ints:
        """The cell of each row among those that have rows, ``int64[n_rows]``."""
        return np.unique(self.cell, return_inverse=True)[1].reshape(-1)

    @cached_property
    def rows(self) -> Ints:
        """How many rows each of these cells has, ``int64[cells]``."""
        return np.bincount(self.of_row)

    def reached(self, columns: frozenset[str]) -> Bits:
        """What each query reaches of cells, and of the gaps between them, ``bool[n_queries, 2 * cells - 1]``.

        Bounds of two cells hold what lies between them, too: a query for a value that no row has reaches neither cell,
        and reads a block that has rows of both. Such a query reaches the gap.

        Args:
            columns: whose bounds there are.
        """
        filtered = filtered_columns(self.plan.queries) & columns
        found = np.zeros((len(self.plan.queries), 2 * len(self.rows) - 1), dtype=np.bool_)
        if self.name in filtered:
            found[:, 1::2] = self._gaps
        found[:, ::2] = self._cells(filtered)
        return found

    @cached_property
    def _gaps(self) -> Bits:
        alone, bounds = self._cells(frozenset({self.name})), self._offsets
        found = np.zeros((len(self.plan.queries), len(self.rows) - 1), dtype=np.bool_)
        schema, in_order = self.plan.schema.select([self.name]), self._in_order(self.name)
        for first in (0, 1):  # cells 0 and 1, 2 and 3, ... as one; then 1 and 2, 3 and 4, ...
            left = np.arange(first, len(self.rows) - 1, 2)
            pairs = np.unique(np.concatenate((bounds[[0]], bounds[first::2], bounds[[-1]])))
            reached = self._reached(statistics_of_ranges(schema, in_order, pairs), frozenset({self.name}))
            found[:, left] = reached[:, (left + first) // 2] & ~alone[:, left] & ~alone[:, left + 1]
        return found

    def _cells(self, columns: frozenset[str]) -> Bits:
        """The cells that bounds of columns don't exclude, ``bool[n_queries, cells]``."""
        for name in columns - self._bounds.keys():
            schema = self.plan.schema.select([name])
            self._bounds[name] = statistics_of_ranges(schema, self._in_order(name), self._offsets).bounds[name]
        bounds = {name: self._bounds[name] for name in columns}
        return self._reached(BlockStatistics(rows=self.rows, bounds=bounds), columns)

    def _reached(self, statistics: BlockStatistics, columns: frozenset[str]) -> Bits:
        told = [_told_by(query.filter.root, columns) for query in self.plan.queries]
        found = {node: ~cannot_match(node, statistics, None) for node in dict.fromkeys(told)}
        return np.stack([found[node] for node in told])

    def _in_order(self, name: str) -> pa.Table:
        """A column of the rows, cell by cell."""
        return self.table.select([name]).take(self._order)

    @cached_property
    def _order(self) -> pa.Array:
        return pa.array(stable_order(self.of_row, len(self.rows)))

    @cached_property
    def _offsets(self) -> Ints:
        return np.append(0, np.cumsum(self.rows)).astype(np.int64)


def slice_rows(cells: CellRows, columns: frozenset[str], weights: Floats) -> Slices:
    """Slice a segment's rows at some of the places where they may be cut.

    Args:
        cells: of the rows, by the column that is sliced.
        columns: those whose statistics the layout will have; where the sliced one is not among them there are no
            slices.
        weights: what each query is worth for each row that it skips, ``float64[n_queries]``.
    """
    rows, reached = cells.rows, cells.reached(columns)
    starts = best_starts(rows, reached, weights)
    stops = np.append(starts[1:], len(rows))
    by_slice = [reached[:, 2 * a : 2 * b - 1].any(axis=1) for a, b in zip(starts, stops, strict=True)]
    slice_of_row = (np.searchsorted(starts, np.arange(len(rows)), side="right") - 1)[cells.of_row]
    sets, of_query = _distinct(np.stack(by_slice, axis=1))
    skipped = np.bincount(of_query, weights, len(sets)) * (~sets @ np.bincount(slice_of_row, minlength=len(starts)))
    partial = np.flatnonzero(sets.any(axis=1) & ~sets.all(axis=1))
    guiding = np.sort(partial[np.argsort(-skipped[partial], kind="stable")[:_MOST_SETS]])
    shares = (of_query[:, None] == guiding).astype(np.float64)
    return Slices(sets[guiding][:, slice_of_row].T, shares)


@lru_cache(maxsize=1 << 14)
def _told_by(node: Node, columns: frozenset[str]) -> Node:
    """A node without what the bounds of some columns can't tell; TRUE where nothing is left. Many nodes then are one.

    >>> from layoutopt.model.predicates import Col
    >>> from layoutopt.model.values import ValueSet
    >>> day, kind = (InSet(Col(name, "int"), ValueSet.point(1)) for name in ("day", "kind"))
    >>> _told_by(And((day, kind)), frozenset({"day"})) == day, _told_by(Or((day, kind)), frozenset({"day"})) == TRUE
    (True, True)
    """
    match node:
        case And(children):
            told = tuple(part for child in children if (part := _told_by(child, columns)) != TRUE)
            return And(told) if len(told) > 1 else told[0] if told else TRUE
        case Or(children):
            told = tuple(_told_by(child, columns) for child in children)
            return TRUE if TRUE in told else Or(told)
        case InSet(_, values, _) if values.is_empty:
            return node
    return node if columns_of(node) <= columns else TRUE


def best_starts(rows: Ints, reached: Bits, weights: Floats, most: int = MOST_SLICES) -> Ints:
    """Where to cut cells that lie in a row into a few runs, each read whole by whoever reaches anything of it.

    By dynamic programming: of all cuts into at most so many runs the one by which the fewest rows are read, each as
    often as the weights say, where one run more counts as much as a few of all rows.

    Args:
        rows: of each cell, at least one, ``int64[t]``.
        reached: which query reaches each cell and the gap to the next, in turns, ``bool[q, 2 * t - 1]``.
        weights: of the queries, ``float64[q]``.
        most: how many runs there may be.

    Returns:
        The first cell of each run, ascending; ``int64[runs]``.

    Of four cells one query reaches the first two, and one the others; none reaches a gap:

    >>> reached = np.array([[1, 0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0, 1]], dtype=bool)
    >>> best_starts(np.array([5, 1, 1, 5]), reached, np.ones(2))
    array([0, 2])
    """
    costs = _costs_of_runs(rows, reached, weights)
    fewest = costs[0, 1:]  # of one run up to each cell
    cut_at: list[Ints] = []
    totals = [fewest[-1]]
    for _ in range(min(most, len(rows)) - 1):
        # one run more, that begins at cell i and ends before cell j: [i - 1, j - 1]
        ways = fewest[:-1, None] + costs[1:, 2:]
        cut_at.append(np.append(0, ways.argmin(axis=0) + 1))
        fewest = np.append(np.inf, ways.min(axis=0))
        totals.append(fewest[-1])
    more = int((np.array(totals) + _LEAST_GAIN * totals[0] * np.arange(len(totals))).argmin())
    starts, end = [], len(rows) - 1
    for cut in reversed(cut_at[:more]):
        starts.append(int(cut[end]))
        end = starts[-1] - 1
    return np.array([0, *reversed(starts)], dtype=np.int64)


def _distinct(reached: Bits) -> tuple[Bits, Ints]:
    """The distinct rows, and which of them each row is."""
    _, first, which = np.unique(np.packbits(reached, axis=1), axis=0, return_index=True, return_inverse=True)
    return reached[first], which.reshape(-1)


def _costs_of_runs(rows: Ints, reached: Bits, weights: Floats) -> Floats:
    """What queries read of cells ``i`` up to ``j``, left out, as one run, ``float64[t, t + 1]``; infinite for none."""
    n, places = len(rows), reached.shape[1]
    reached, alike = _distinct(reached)
    of_sets = np.bincount(alike, weights, len(reached))
    # The first place from each one on that a query reaches; one beyond the last where there is none.
    following = np.minimum.accumulate(np.where(reached, np.arange(places), places)[:, ::-1], axis=1)[:, ::-1]
    by_cell = np.ascontiguousarray(following[:, ::2].T)
    before = np.concatenate(([0], np.cumsum(rows)))
    costs = np.full((n, n + 1), np.inf)
    for i in range(n):
        reading = np.bincount(by_cell[i], of_sets, minlength=places + 1)[:places].cumsum()[::2]
        costs[i, i + 1 :] = reading[i:] * (before[i + 1 :] - before[i])
    return costs


def statistics_of_ranges(schema: Schema, table: pa.Table, offsets: Ints) -> BlockStatistics:
    """The bounds of ranges of rows: range ``i`` is ``offsets[i] .. offsets[i + 1] - 1``."""
    rows = np.diff(offsets)
    if not schema.columns:  # a table without columns has forgotten its rows
        return BlockStatistics(rows=rows)
    stats = block_statistics(table, offsets, schema)
    bounds = {
        column.name: column_bounds(pc.struct_field(stats, f"c{i}"), rows, column.type)
        for i, column in enumerate(schema.columns)
    }
    return BlockStatistics(rows=rows, bounds=bounds)


# Rows of a segment by which the bytes of cells are told.
_MEASURED_ROWS = 10_000
# Slices may make so many vectors of one.
_VECTORS_BY_SLICES = 6
# Rare vectors compared with all kept ones at once.
_RARE_CHUNK = 1024


@dataclass(frozen=True, eq=False)
class Routing:
    """Where a segment's rows go in one layout.

    Attributes:
        rows: indices of the layout's rows in the order in which they are written, ``int64[k]``.
        offsets: block ``b`` is ``rows[offsets[b] : offsets[b + 1]]``; ``int64[n_blocks + 1]``.
        joined_vectors: distinct vectors beyond ``max_vectors`` that were joined to their nearest.
    """

    rows: Ints
    offsets: Ints
    joined_vectors: int = 0


@dataclass(frozen=True, eq=False)
class Guides:
    """What guides the blocking of one layout in one segment: its local features, and slices (see ``slices``).

    Attributes:
        words: the guides' bits of each row, packed, ``uint64[n, w]``.
        weights: the worth of skipping by each guide, ``float64[g]``.
        slices: how many of the guides, the last ones, are sets of slices.
        objective: what queries can't skip, over the guides; None where the partitioner goes by weights alone.
    """

    words: Words
    weights: Floats
    slices: int = 0
    objective: SkipSetObjective | None = None


def route(plan: Plan, layout: Layout, table: pa.Table, words: Words, guides: Guides) -> Routing:
    """Put the rows that the layout holds whole into blocks.

    Args:
        plan: with its parameters and seed.
        layout: one of the plan's.
        table: the segment's rows, in the order of the source.
        words: their feature vectors, ``uint64[n, w]``.
        guides: of :func:`guides_of`; methods by order need none.
    """
    rows = np.flatnonzero(present_rows(layout, words))
    if isinstance(layout.blocking, ByOrder):
        if layout.blocking.kind == PREDICATE_SORT:
            return _route_by_bits(plan, guides, rows)
        return _route_by_order(plan, layout.blocking, table, rows)
    if isinstance(layout.blocking, ByCuts):
        return _route_by_cuts(plan, layout, table, words, rows)
    ranks = _cut_ranks(plan, layout.blocking, table)
    return _route_by_vectors(plan, layout.blocking, guides, rows, None if ranks is None else ranks[rows])


def blocked_alike(plan: Plan, layout: Layout) -> Hashable:
    """Layouts for which this is equal have the same blocks in a segment.

    They have the same rows, the same local features, and the same queries to be blocked for; one that is blocked by
    values of its columns, too, is like no other.
    """
    if not isinstance(layout.blocking, ByVectors) or CUT_BY in dict(layout.blocking.params):
        return layout
    held = None if layout.is_undivided else layout.features
    return (held, layout.guiding, layout.blocking, served_queries(plan, layout).tobytes())


def present_rows(layout: Layout, words: Words) -> Bits:
    """The rows that the layout holds whole, ``bool[n]``: all, or R_i where some columns are copies (5.4.1)."""
    if layout.is_undivided:
        return np.ones(len(words), dtype=np.bool_)
    return any_of(words, layout.features)


def in_equal_blocks(rows: Ints, block_rows: int) -> Routing:
    """Rows in the order given, cut into equal blocks."""
    ordering = order_rows("input", [], len(rows), block_rows)
    return _written(rows, ordering.block, ordering.n_blocks)


def queries_reaching(plan: Plan, table: pa.Table) -> Floats:
    """The weight of each training query, ``float64[n_queries]``; 0 where the segment's own bounds exclude it."""
    return reaching(plan.queries, plan.schema, table)


def reaching(queries: Sequence[Query], schema: Schema, table: pa.Table) -> Floats:
    """The weight of each query, ``float64[n_queries]``; 0 where the bounds of the rows exclude it."""
    statistics = segment_statistics(schema, table, filtered_columns(queries))
    reached = [0.0 if cannot_match(query.filter.root, statistics, None)[0] else query.weight for query in queries]
    return np.asarray(reached, dtype=np.float64)


def cell_bytes(plan: Plan, table: pa.Table) -> dict[str, float] | None:
    """About the compressed bytes of a cell of each column that the plan's queries read, by a few of a segment's rows.

    Rows that are spread evenly over a segment are about as unlike each other as those of a block. None where queries
    are not weighed by bytes: of several layouts each has columns that queries read together, so that bytes would say no
    more than rows; and Ward's method alone is the thesis's.
    """
    (layout, *others) = plan.scheme.layouts
    if others or not isinstance(layout.blocking, ByVectors) or layout.blocking.algorithm == WARD:
        return None
    read = {name for query in plan.queries for name in query.columns}
    names = [name for name in table.column_names if name in read]
    count = min(table.num_rows, _MEASURED_ROWS)
    if not names or not count:
        return None
    some = table.select(names).take(pa.array(np.arange(count) * table.num_rows // count))
    return bytes_a_row(some, np.array([0, count]), plan.codec)


def guides_of(
    plan: Plan,
    layout: Layout,
    table: pa.Table,
    words: Words,
    shares: Floats,
    reached: Floats,
    of_cell: Mapping[str, float] | None = None,
    cells: dict[str, CellRows] | None = None,
) -> Guides:
    """What guides the layout's blocking in this segment: columns of 0 and 1 over its rows, each with a weight.

    First come the layout's local features, then sets of slices (see ``slices``): where no feature says which rows a
    query skips, ranges of one column do. All are weighed alike, by what queries skip::

        weight(g) = sum over q of reached(q) * bytes(q) * share(q, g) * left(q, g)
        left(q, g) = product over guides h more selective than g of (1 - share(q, h) * (1 - matching(h)))

    A query thus counts for a guide only by the rows that its more selective guides leave, where Equation 3.1 counts it
    whole for each. Only training queries count that read the layout and reach the segment (4.5); bytes(q) are those of
    a row of its columns. Where to slice is found for what the best feature of each query leaves.

    Args:
        plan: with its queries.
        layout: one of the plan's.
        table: the segment's rows.
        words: their feature vectors, ``uint64[n, w]``.
        shares: how much of each query each feature covers, ``float64[n_queries, f]``.
        reached: of :func:`queries_reaching`, ``float64[n_queries]``.
        of_cell: of :func:`cell_bytes`; without them bytes(q) is 1 for all.
        cells: the segment's rows by columns that layouts are cut by, as other layouts found them; this one adds its.
    """
    if not plan.queries or not isinstance(layout.blocking, ByVectors):
        return feature_guides(layout, words, plan.features.weights)
    local, served = list(layout.guiding), served_queries(plan, layout)
    counted = np.where(served, reached, 0.0)
    if of_cell is not None:
        counted = counted * [math.fsum(of_cell.get(name, 0.0) for name in query.columns) for query in plan.queries]
    guiding, present = project(words, local), present_rows(layout, words)
    held = slice(None) if present.all() else np.flatnonzero(present)
    matching = bit_shares(guiding[held], len(local))
    by_best_feature = (shares[:, local] * (1 - matching)).max(axis=1, initial=0.0)
    known = {} if cells is None else cells
    slices = _slices(plan, layout, layout.blocking, table, counted * (1 - by_best_feature), known)
    n_slices = slices.bits.shape[1]
    if n_slices:
        guiding = with_more_bits(guiding, len(local), slices.bits)
    share = np.hstack([shares[:, local], slices.shares])
    matching = np.append(matching, slices.bits[held].sum(axis=0) / max(1, np.count_nonzero(present)))
    weights = _weights(layout.blocking, share[served], counted[served], matching)
    objective = None
    if layout.blocking.algorithm != WARD:
        objective = objective_of(plan.queries, plan.features.only(local), counted, len(words), slices.shares > 0)
    return Guides(guiding, weights, n_slices, objective)


def _weights(blocking: ByVectors, shares: Floats, reached: Floats, matching: Floats) -> Floats:
    """The guides' weights, as the plan says."""
    weighing = dict(blocking.params).get(WEIGHTS, MARGINAL)
    if weighing not in WEIGHINGS:
        raise PlanError(f"the plan's {WEIGHTS} are {weighing!r:.80}; plan again, or give {' or '.join(WEIGHINGS)}")
    return weights_by(str(weighing), shares, reached, matching)


def _slices(
    plan: Plan, layout: Layout, blocking: ByVectors, table: pa.Table, weights: Floats, known: dict[str, CellRows]
) -> Slices:
    """The slices of the column that the layout is cut by; none where there is no such column, or no row."""
    column = _cut_by(plan, blocking)
    if column is None or not table.num_rows:
        return Slices(np.zeros((table.num_rows, 0), dtype=np.bool_), np.zeros((len(plan.queries), 0)))
    if column.name not in known:
        known[column.name] = CellRows(plan, table, column.name, cells_of(plan, column.name, table))
    return slice_rows(known[column.name], frozenset(layout.columns), weights)


def served_queries(plan: Plan, layout: Layout) -> Bits:
    """The training queries that the layout's blocking is for, ``bool[n_queries]``."""
    if layout.serves is None:
        columns = set(layout.columns)
        return np.array([not columns.isdisjoint(query.columns) for query in plan.queries], dtype=np.bool_)
    served = np.zeros(len(plan.queries), dtype=np.bool_)
    served[list(layout.serves)] = True
    return served


def feature_guides(layout: Layout, words: Words, weights: Floats) -> Guides:
    """The layout's local features as guides, with the weights ``float64[f]`` of all of the plan's features."""
    return Guides(project(words, layout.guiding), np.asarray(weights)[list(layout.guiding)])


def _cut_ranks(plan: Plan, blocking: ByVectors, table: pa.Table) -> Ints | None:
    """Each row's rank by the column that the layout is cut by, ``int64[n]``; None if there is none."""
    column = _cut_by(plan, blocking)
    return None if column is None else _ranks(table[column.name], column.type)


def _cut_by(plan: Plan, blocking: ByVectors) -> Column | None:
    """The column that the layout is cut by; None if there is none."""
    name = dict(blocking.params).get(CUT_BY)
    return None if name is None else plan.schema.find(str(name))


def segment_statistics(schema: Schema, table: pa.Table, columns: frozenset[str]) -> BlockStatistics:
    """The bounds of a whole segment, as of one block, for some columns."""
    used = schema.select(name for name in schema.names if name in columns)
    return statistics_of_ranges(used, table.select(list(used.names)), np.array([0, table.num_rows], dtype=np.int64))


def _route_by_vectors(plan: Plan, blocking: ByVectors, guides: Guides, rows: Ints, order: Ints | None) -> Routing:
    if not len(rows):
        return Routing(rows, np.zeros(1, dtype=np.int64))
    n_guides = len(guides.weights)
    vectors, inverse, counts = distinct_rows(guides.words.take(rows, axis=0))
    most = plan.max_vectors * (_VECTORS_BY_SLICES if guides.slices else 1)
    kept = limit_vectors(VectorCounts(vectors, counts, n_guides), guides.weights, most)
    pairs, inverse = _reduced(vectors, counts, kept, inverse, n_guides)
    min_rows = _min_rows(plan, blocking)
    partition = find_partitioner(blocking.algorithm)(pairs, guides.weights, min_rows, plan.seed, guides.objective)
    joined = int((kept != np.arange(len(kept))).sum())
    in_order = in_reading_order(unpack(partition.unions(pairs), n_guides), guides.weights)
    block = np.argsort(in_order)[assign_rows(partition, inverse, order)]
    return _written(rows, block, partition.n_blocks, joined)


def _min_rows(plan: Plan, blocking: ByVectors) -> int:
    given = dict(blocking.params).get(MIN_ROWS, min_rows_for(plan.block_rows))
    if isinstance(given, str) or given < 1:
        raise PlanError(f"the plan's {MIN_ROWS} is {given!r:.80}; plan again, or give a number from 1")
    return int(given)


def limit_vectors(vectors: VectorCounts, weights: Floats, max_vectors: int) -> Ints:
    """For each distinct vector the one that stands for it in blocking, ``int64[d]``; itself within ``max_vectors``.

    The vectors with the most rows stay; every other is joined to the one of them from which it differs in the least
    weight of features. Union vectors are measured from the rows, so a bad match costs skipping, never an answer.

    Args:
        vectors: of a segment.
        weights: of the features, ``float64[f]``.
        max_vectors: how many may stay.
    """
    stands_for = np.arange(len(vectors))
    if len(vectors) <= max_vectors:
        return stands_for
    by_rows = np.argsort(-vectors.counts, kind="stable")
    kept, rare = np.sort(by_rows[:max_vectors]), np.sort(by_rows[max_vectors:])
    bits = vectors.bits()
    weighted = bits[kept] * weights.astype(np.float32)
    totals = weighted.sum(axis=1)
    for start in range(0, len(rare), _RARE_CHUNK):
        some = rare[start : start + _RARE_CHUNK]
        # The weight of a symmetric difference, but for the part that is the same for all candidates.
        stands_for[some] = kept[(totals - 2 * (bits[some].astype(np.float32) @ weighted.T)).argmin(axis=1)]
    return stands_for


def _reduced(vectors: Words, counts: Ints, kept: Ints, inverse: Ints, n_features: int) -> tuple[VectorCounts, Ints]:
    """The pairs after vectors were joined, and each row's vector among them."""
    stay, which = np.unique(kept, return_inverse=True)
    summed = np.zeros(len(stay), dtype=np.int64)
    np.add.at(summed, which, counts)
    return VectorCounts(vectors[stay], summed, n_features), which[inverse]


def _route_by_cuts(plan: Plan, layout: Layout, table: pa.Table, words: Words, rows: Ints) -> Routing:
    whole = len(rows) == table.num_rows
    held = table if whole else table.take(pa.array(rows))
    weights = np.array([query.weight for query in plan.queries])
    served = np.where(served_queries(plan, layout), weights, 0.0)
    block = cut_blocks(plan, layout, held, words if whole else words[rows], served)
    return _written(rows, block, int(block.max(initial=-1)) + 1)


def _route_by_order(plan: Plan, blocking: ByOrder, table: pa.Table, rows: Ints) -> Routing:
    types = {name: plan.schema.find(name).type for name in blocking.columns}
    keys = [_ranks(table[name].take(pa.array(rows)), type) for name, type in types.items()]
    ordering = order_rows(blocking.kind, keys, len(rows), plan.block_rows)
    in_order = np.argsort(ordering.rank, kind="stable")
    return _written(rows[in_order], ordering.block[in_order], ordering.n_blocks)


def _route_by_bits(plan: Plan, guides: Guides, rows: Ints) -> Routing:
    """Rows sorted by their features, the heaviest first, and cut into equal blocks; equal vectors keep their order."""
    bits = unpack(guides.words.take(rows, axis=0), len(guides.weights))
    keys = [1 - bits[:, i].astype(np.int64) for i in np.argsort(-guides.weights, kind="stable")]
    ordering = order_rows("sort" if keys else "input", keys, len(rows), plan.block_rows)
    in_order = np.argsort(ordering.rank, kind="stable")
    return _written(rows[in_order], ordering.block[in_order], ordering.n_blocks)


def _ranks(column: pa.ChunkedArray, type: str) -> Ints:
    """Dense ranks in Spark's order, ``int64[n]``; NULL first."""
    keys = stored_keys(column, type)
    ranks: Ints = np.asarray(pc.rank(keys, sort_keys="ascending", tiebreaker="dense"), dtype=np.int64)
    return np.where(np.asarray(keys.is_null()), 0, ranks) if keys.null_count else ranks - 1


def _written(rows: Ints, block: Ints, n_blocks: int, joined_vectors: int = 0) -> Routing:
    """Rows sorted by block; within a block they keep their order, so what compresses together stays together."""
    in_order = stable_order(block, n_blocks)
    sizes = np.bincount(block, minlength=n_blocks)
    return Routing(rows[in_order], np.concatenate(([0], np.cumsum(sizes))).astype(np.int64), joined_vectors)


def union_words(words: Words, routing: Routing) -> Words:
    """The union vector of each block over all features of the plan, measured from its rows, ``uint64[n_blocks, w]``."""
    if len(routing.offsets) == 1:
        return np.zeros((0, words.shape[1]), dtype=np.uint64)
    return np.bitwise_or.reduceat(words.take(routing.rows, axis=0), routing.offsets[:-1], axis=0)
