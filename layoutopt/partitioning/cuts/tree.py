"""The tree: rows cut in two again and again, each time where queries then skip the most (as in a qd-tree, SIGMOD 2020).

A node is cut where the rows that queries read, weighted, become fewest, if both sides fill a block. A query skips a
side whose ranges of codes none of its rows can lie in. Only the dimension that is cut is looked at for that: the
ranges of the others shrink too, and are measured again in each node. All cuts of a node are compared at once, as
cumulated sums over codes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.partitioning.cuts.dimensions import Codes
from layoutopt.partitioning.cuts.filters import CodeFilters, CodeRanges

MEAN_OVER_MIN = 1.33
"""The mean leaf over the smallest: nodes are cut where queries begin or end, not in halves; measured on ranges."""

# Of a node's cuts so many are tried, the best first, until one leaves enough of all rows on both sides.
_TRIED = 8


class IsLow(Protocol):
    """Which of some rows go to the low side of a cut."""

    def __call__(self, dimension: int, code: int, rows: Ints) -> Bits:
        """Those whose code in this dimension is at most ``code``, ``bool[k]`` of ``int64[k]``."""
        ...


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows that a tree cuts.

    Attributes:
        n: how many there are.
        sampled: the codes of some of them, by which every cut is chosen, ``int16[m, d]``.
        is_low: takes cuts to all rows.
    """

    n: int
    sampled: Codes
    is_low: IsLow


def cut_rows(rows: Rows, filters: CodeFilters, min_rows: int) -> Ints:
    """The leaf of each row, ``int64[n]``, numbered from left to right without gaps.

    Leaves hold ``[min_rows, 2 * min_rows)`` rows, or all rows where these are fewer.

    Args:
        rows: the rows.
        filters: what queries ask for.
        min_rows: the smallest leaf.
    """
    search = _Search(rows, filters, min_rows)
    leaf = np.empty(rows.n, dtype=np.int64)
    n_leaves = 0
    root = _Node(np.arange(rows.n), np.arange(len(rows.sampled)), np.arange(len(filters.literal)))
    open_nodes = [root]
    while open_nodes:
        node = open_nodes.pop()
        sides = search.cut(node)
        if sides is None:
            n_parts = _parts(len(node.rows), min_rows)
            leaf[node.rows] = n_leaves + np.arange(len(node.rows)) * n_parts // max(1, len(node.rows))
            n_leaves += n_parts
        else:
            open_nodes += reversed(sides)
    return leaf


def _parts(n: int, min_rows: int) -> int:
    """Into how many blocks a leaf is cut that no cut by value parts: one, but for many rows that are alike."""
    if n < 2 * min_rows:
        return 1
    return int(np.clip(round(n / (min_rows * MEAN_OVER_MIN)), -(-n // (2 * min_rows - 1)), n // min_rows))


@dataclass(frozen=True, eq=False)
class _Node:
    """Rows, ``int64[n]``; which sampled ones these are, ``int64[m]``; and the literals of queries that read them."""

    rows: Ints
    sample: Ints
    literals: Ints


@dataclass(frozen=True, eq=False)
class _Reading:
    """The queries that read a node.

    ``literals`` are theirs, ``weight`` is theirs together. The rest is about those literals on which a clause hangs,
    all its others being FALSE here: the dimension of each, its query's weight, and the first and last of its codes in
    the node. A cut that puts these codes on one side lets the query skip the other.
    """

    literals: Ints
    weight: float
    dimension: Ints
    weights: Floats
    first: Ints
    last: Ints


class _Search:
    def __init__(self, rows: Rows, filters: CodeFilters, min_rows: int) -> None:
        self.rows, self.filters, self.min_rows = rows, filters, min_rows
        self.width = filters.n_codes + 1
        self.places = rows.sampled + np.arange(filters.n_dimensions) * self.width
        asked = np.flatnonzero(filters.importance)
        self.by_importance = asked[np.argsort(-filters.importance[asked], kind="stable")]

    def cut(self, node: _Node) -> tuple[_Node, _Node] | None:
        """The two sides of the best cut, lower codes first; None where the node is a leaf."""
        if len(node.rows) < 2 * self.min_rows or not len(node.sample):
            return None
        reading = self._reading(node)
        below = self._counts(node).cumsum(axis=1)
        share = len(node.rows) / len(node.sample)
        allowed = np.minimum(below, len(node.sample) - below) * share >= self.min_rows
        costs = np.where(allowed, self._costs(reading, below, len(node.sample)), np.inf)
        for place in self._candidates(costs, reading.weight * len(node.sample), below):
            dimension, code = divmod(place, self.width)
            is_low = self.rows.is_low(dimension, code, node.rows)
            n_low = int(np.count_nonzero(is_low))
            if min(n_low, len(node.rows) - n_low) >= self.min_rows:
                return self._sides(node, reading.literals, is_low, self.rows.sampled[node.sample, dimension] <= code)
        return None

    def _sides(self, node: _Node, literals: Ints, is_low: Bits, sample_is_low: Bits) -> tuple[_Node, _Node]:
        low = _Node(node.rows[is_low], node.sample[sample_is_low], literals)
        return low, _Node(node.rows[~is_low], node.sample[~sample_is_low], literals)

    def _counts(self, node: _Node) -> Ints:
        """How many sampled rows have each code, ``int64[d, width]``."""
        counts = np.bincount(self.places[node.sample].ravel(), minlength=self.filters.n_dimensions * self.width)
        return counts.reshape(self.filters.n_dimensions, self.width)

    def _reading(self, node: _Node) -> _Reading:
        filters = self.filters
        ranges = CodeRanges.of(self.rows.sampled[node.sample], filters.n_codes)
        literal, clause = filters.literal[node.literals], filters.clause[node.literals]
        dimension, query = filters.dimension[literal], filters.query[clause]
        by_null = filters.of_null[literal] & ranges.nulls[dimension]
        first = np.where(by_null, 0, filters.following[literal, ranges.low[dimension]])
        may = first <= ranges.high[dimension]
        n_true = np.bincount(clause, may, minlength=len(filters.query))[clause]
        reads = np.zeros(len(filters.weights), dtype=np.bool_)
        reads[query] = True
        reads[query[n_true == 0]] = False
        hangs = np.flatnonzero(reads[query] & may & (n_true == 1))
        last = filters.preceding[literal[hangs], ranges.high[dimension[hangs]]]
        # No row lies between NULL and the least value.
        last = np.where(by_null[hangs] & (last < ranges.low[dimension[hangs]]), 0, last)
        # Several clauses of a query may hang on one dimension: it skips where any of them is FALSE.
        keys = query[hangs] * filters.n_dimensions + dimension[hangs]
        in_order = np.argsort(keys, kind="stable")
        starts = np.flatnonzero(np.diff(keys[in_order], prepend=-1))
        one = hangs[in_order[starts]]
        return _Reading(
            literals=node.literals[reads[query]],
            weight=float(filters.weights @ reads),
            dimension=dimension[one],
            weights=filters.weights[query[one]],
            first=np.maximum.reduceat(first[hangs[in_order]], starts) if len(one) else one,
            last=np.minimum.reduceat(last[in_order], starts) if len(one) else one,
        )

    def _costs(self, reading: _Reading, below: Ints, n: int) -> Floats:
        """What queries read after a cut behind each code, ``float64[d, width]``: sampled rows times weights."""
        by_first, by_last = self._summed(reading, reading.first), self._summed(reading, reading.last)
        reading_low = reading.weight - (by_first[:, -1:] - by_first)  # all but those that begin behind it
        reading_high = reading.weight - by_last  # all but those that end before it
        return np.asarray(below * reading_low + (n - below) * reading_high)

    def _summed(self, reading: _Reading, codes: Ints) -> Floats:
        """The weight of the queries with such a code at or before each one, ``float64[d, width]``."""
        at = reading.dimension * self.width + np.clip(codes, 0, self.width - 1)
        sums = np.bincount(at, reading.weights, minlength=self.filters.n_dimensions * self.width)
        return np.asarray(sums.reshape(self.filters.n_dimensions, self.width).cumsum(axis=1))

    def _candidates(self, costs: Floats, uncut: float, below: Ints) -> Iterator[int]:
        """Cuts as places in ``costs``, those first that lower the cost most; then such as halve the node.

        What no query of the log asks for may be asked for yet: halves are by the columns that the log filters by most.
        """
        flat = costs.ravel()
        best = np.argpartition(flat, _TRIED)[:_TRIED] if len(flat) > _TRIED else np.arange(len(flat))
        for place in best[np.lexsort((best, flat[best]))].tolist():
            if flat[place] < uncut:
                yield place
        balance = np.where(np.isfinite(costs), np.abs(2 * below - below[:, -1:]), np.iinfo(np.int64).max)
        for dimension in self.by_importance.tolist():
            code = int(balance[dimension].argmin())
            if np.isfinite(costs[dimension, code]):
                yield dimension * self.width + code
