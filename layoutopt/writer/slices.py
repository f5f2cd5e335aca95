"""Slices of a segment by a column that no feature is about, so that blocks are narrow in it and statistics skip.

Features say nothing of dates, or of constants that the log has not seen; minima and maxima do, where a block's rows lie
close together. A segment is cut into a few ranges of rows by one column, where queries of the log begin or end, such
that they reach as few rows as so many ranges allow. A block of rows of one range is excluded where the range is: each
set of ranges that some queries reach acts as one more feature of the blocking, with those queries as its weight. Such
features guide only; what is skipped is decided by the blocks' statistics.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.bounds import column_bounds
from layoutopt.catalog.statistics import block_statistics
from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import TRUE, And, InSet, Node, Or, columns_of
from layoutopt.model.query import filtered_columns
from layoutopt.model.schema import Schema
from layoutopt.model.sequences import stable_order
from layoutopt.skipping.cannot_match import BlockStatistics, ColumnBounds, cannot_match

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
