"""Slices of a segment by a column that no feature is about, so that blocks are narrow in it and statistics skip.

Features say nothing of dates, or of constants that the log has not seen; minima and maxima do, where a block's rows lie
close together. A segment is cut into a few ranges of rows by one column. What the ranges' own bounds exclude, the
blocks' will: each set of ranges that some queries reach (by their bounds) acts as one more feature of the blocking,
with those queries as its weight. Such features guide only; what is skipped is decided by the blocks' statistics.
"""

from __future__ import annotations

from dataclasses import dataclass

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

SLICES = 6
"""Ranges a segment: on TPC-H years 3 to 6 halve what is scanned, 12 make more vectors than they help."""


@dataclass(frozen=True, eq=False)
class Slices:
    """The features that slices add to one layout's blocking.

    Attributes:
        bits: which rows lie in each set of slices, ``bool[n_rows, e]``.
        shares: 1 where that set is what the query reaches, ``float64[n_queries, e]``.
    """

    bits: Bits
    shares: Floats


def slice_rows(plan: Plan, columns: frozenset[str], table: pa.Table, ranks: Ints) -> Slices:
    """Slice a segment's rows by their ranks.

    Args:
        plan: with its queries.
        columns: those whose statistics the layout will have.
        table: the segment's rows.
        ranks: of the column that is sliced, dense, ``int64[n_rows]``; equal values have equal ranks.
    """
    sizes = np.bincount(ranks)
    first_of_equals = np.cumsum(sizes) - sizes
    used, of_rank = np.unique(first_of_equals * SLICES // max(1, len(ranks)), return_inverse=True)
    of_row = of_rank.reshape(-1)[ranks]
    statistics = _statistics_of_slices(plan, columns, table, of_row, len(used))
    reached = np.stack([~cannot_match(query.filter.root, statistics, None) for query in plan.queries])
    sets, of_query = np.unique(reached, axis=0, return_inverse=True)
    partial = np.flatnonzero(sets.any(axis=1) & ~sets.all(axis=1))
    shares = (of_query.reshape(-1)[:, None] == partial).astype(np.float64)
    return Slices(sets[partial][:, of_row].T, shares)


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
