"""Slices of a segment by a column that no feature is about, so that blocks are narrow in it and statistics skip.

Features say nothing of dates, or of constants that the log has not seen; minima and maxima do, where a block's rows lie
close together. A segment is cut into a few ranges of rows by one column, where queries of the log begin or end, such
that they reach as few rows as so many ranges allow. What the ranges' own bounds exclude, the blocks' will: each set of
ranges that some queries reach acts as one more feature of the blocking, with those queries as its weight. Such features
guide only; what is skipped is decided by the blocks' statistics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.bounds import column_bounds
from layoutopt.catalog.statistics import block_statistics
from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.model.layout import Plan
from layoutopt.model.query import filtered_columns
from layoutopt.model.schema import Schema
from layoutopt.model.sequences import stable_order
from layoutopt.skipping.cannot_match import BlockStatistics, cannot_match

MOST_SLICES: Final = 12
"""Ranges a segment: on TPC-H years 18 and more make more vectors than they help."""

_LEAST_GAIN: Final = 0.005
"""One more range has to save so much of what queries read of the segment as a whole."""


@dataclass(frozen=True, eq=False)
class Slices:
    """The features that slices add to one layout's blocking.

    Attributes:
        bits: which rows lie in each set of slices, ``bool[n_rows, e]``.
        shares: 1 where that set is what the query reaches, ``float64[n_queries, e]``.
    """

    bits: Bits
    shares: Floats


def slice_rows(plan: Plan, columns: frozenset[str], table: pa.Table, cell: Ints, weights: Floats) -> Slices:
    """Slice a segment's rows at some of the places where they may be cut.

    Args:
        plan: with its queries.
        columns: those whose statistics the layout will have.
        table: the segment's rows.
        cell: of each row, by the column that is sliced: numbered from 0 in its order, ``int64[n_rows]``.
        weights: what each query is worth for each row that it skips, ``float64[n_queries]``.
    """
    used, of_row = np.unique(cell, return_inverse=True)
    of_row = of_row.reshape(-1)
    statistics = _statistics_of_slices(plan, columns, table, of_row, len(used))
    reached = np.stack([~cannot_match(query.filter.root, statistics, None) for query in plan.queries])
    starts = best_starts(np.bincount(of_row, minlength=len(used)), reached, weights)
    slice_of_cell = np.searchsorted(starts, np.arange(len(used)), side="right") - 1
    sets, of_query = _distinct(np.logical_or.reduceat(reached, starts, axis=1))
    partial = np.flatnonzero(sets.any(axis=1) & ~sets.all(axis=1))
    shares = (of_query[:, None] == partial).astype(np.float64)
    return Slices(sets[partial][:, slice_of_cell[of_row]].T, shares)


def best_starts(rows: Ints, reached: Bits, weights: Floats, most: int = MOST_SLICES) -> Ints:
    """Where to cut cells that lie in a row into a few runs, each read whole by whoever reaches one of its cells.

    The runs by which the fewest rows are read, each as often as the weights say, by dynamic programming; as few of them
    as come within what one more saves.

    Args:
        rows: of each cell, ``int64[t]``.
        reached: which query reaches which cell, ``bool[q, t]``.
        weights: of the queries, ``float64[q]``.
        most: how many runs there may be.

    Returns:
        The first cell of each run, ascending; ``int64[runs]``.

    >>> reached = np.array([[True, True, False, False], [False, False, True, True]])
    >>> best_starts(np.array([5, 1, 1, 5]), reached, np.ones(2))
    array([0, 2])
    """
    costs = _costs_of_runs(rows, reached, weights)
    fewest = costs[0, 1:]  # of one run up to each cell
    cut_at: list[Ints] = []
    for _ in range(min(most, len(rows)) - 1):
        # one run more, that begins at cell i and ends before cell j: [i - 1, j - 1]
        ways = fewest[:-1, None] + costs[1:, 2:]
        best, least = ways.argmin(axis=0), np.append(np.inf, ways.min(axis=0))
        if not least[-1] < fewest[-1] - _LEAST_GAIN * costs[0, -1]:
            break
        cut_at.append(np.append(0, best + 1))
        fewest = least
    starts, end = [], len(rows) - 1
    for cut in reversed(cut_at):
        starts.append(int(cut[end]))
        end = starts[-1] - 1
    return np.array([0, *reversed(starts)], dtype=np.int64)


def _distinct(reached: Bits) -> tuple[Bits, Ints]:
    """The distinct rows, and which of them each row is."""
    sets, which = np.unique(reached, axis=0, return_inverse=True)
    return sets, which.reshape(-1)


def _costs_of_runs(rows: Ints, reached: Bits, weights: Floats) -> Floats:
    """What queries read of cells ``i`` up to ``j``, left out, as one run, ``float64[t, t + 1]``; infinite for none."""
    n = len(rows)
    reached, alike = _distinct(reached)
    of_sets = np.bincount(alike, weights, len(reached))
    # The first cell from each one on that a query reaches; n where there is none.
    following = np.minimum.accumulate(np.where(reached, np.arange(n), n)[:, ::-1], axis=1)[:, ::-1]
    before = np.concatenate(([0], np.cumsum(rows)))
    costs = np.full((n, n + 1), np.inf)
    for i in range(n):
        reading = np.bincount(following[:, i], of_sets, minlength=n + 1)[:n].cumsum()
        costs[i, i + 1 :] = reading[i:] * (before[i + 1 :] - before[i])
    return costs


def _statistics_of_slices(
    plan: Plan, columns: frozenset[str], table: pa.Table, slice_of: Ints, n_slices: int
) -> BlockStatistics:
    filtered = filtered_columns(plan.queries)
    names = [name for name in plan.schema.names if name in filtered and name in columns]
    in_order = stable_order(slice_of, n_slices)
    sizes = np.bincount(slice_of, minlength=n_slices)
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    return statistics_of_ranges(plan.schema.select(names), table.select(names).take(pa.array(in_order)), offsets)


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
