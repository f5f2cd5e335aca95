"""Blocking by cuts: a tree over values of columns and features' bits, fitted to the ranges that queries ask for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from layoutopt.model.arrays import Bits, Floats, Ints

# ----------------------------------------------------------------------------------------------------
# What a tree cuts by: columns whose values are cut into ranges, and features' bits, all as small integer codes.
#
# Code 0 of a column is NULL; code ``i`` stands for the values from threshold ``i - 2`` (included) to ``i - 1`` (left
# out), below the first threshold for 1. A feature has code 1 where its bit is 0, else 2.

Codes = npt.NDArray[np.int16]

Span = tuple[int, int]
"""Codes from the first on, up to the second, which is left out."""

DEFAULT_QUANTILES = 128
"""Ranges of about equal rows into which a column is cut, unless a plan says otherwise: beside 60 queries' constants
they save 1 % of the rows read, beside 1,500 none."""

MOST_CONSTANTS = 512
"""Constants of the log that cut a column, spread evenly over those that lie among its values."""

LARGEST = 2**63 - 1
"""The largest number that a key may be."""

OF_FEATURE = 3
"""Codes of a feature, the unused 0 among them."""


@dataclass(frozen=True, eq=False)
class Thresholds:
    """Where a column is cut.

    Attributes:
        values: keys, or ranks, of which each begins a code; ``int64[t]``, ascending.
    """

    values: Ints

    @property
    def n_codes(self) -> int:
        """How many codes the column has, that of NULL among them."""
        return len(self.values) + 2

    def codes(self, values: Ints, nulls: Bits | None = None) -> Codes:
        """The code of each value, ``int16[n]``; 0 where it is NULL.

        >>> Thresholds(np.array([10, 20])).codes(np.array([5, 10, 19, 20])).tolist()
        [1, 2, 2, 3]
        """
        found = np.searchsorted(self.values, values, side="right").astype(np.int16) + np.int16(1)
        return found if nulls is None else np.where(nulls, np.int16(0), found)

    def is_low(self, code: int, values: Ints, nulls: Bits | None = None) -> Bits:
        """Which values have at most that code, ``bool[n]``; NULL has.

        >>> Thresholds(np.array([10, 20])).is_low(2, np.array([5, 10, 19, 20])).tolist()
        [True, True, True, False]
        """
        if not 0 < code <= len(self.values):
            return np.full(len(values), code > 0) if nulls is None else nulls | (code > 0)
        low: Bits = values < self.values[code - 1]
        return low if nulls is None else low | nulls

    def covered(self, low: int | None, high: int | None) -> Span:
        """The codes that hold a value from ``low`` (included) to ``high`` (left out); None is unbounded.

        >>> Thresholds(np.array([10, 20])).covered(10, 20)
        (2, 3)
        """
        first = 1 if low is None else int(np.searchsorted(self.values, low, side="right")) + 1
        last = len(self.values) + 1 if high is None else int(np.searchsorted(self.values, high, side="left")) + 1
        return first, last + 1


def choose_thresholds(
    values: Ints, constants: Iterable[int], low: int, high: int, quantiles: int = DEFAULT_QUANTILES
) -> Thresholds:
    """Thresholds at the quantiles of a column and at constants of the log among its values.

    Cuts at constants keep the rows of a range that recurs apart from all others; those at quantiles serve ranges that
    the log has not seen. The smallest value is a threshold too, and so is what follows the largest: ranges beyond them
    have codes that no row has.

    Args:
        values: of a sample of the column's rows, NULLs left out, ``int64[m]``.
        constants: where ranges of the log begin and end.
        low, high: the smallest and the largest value of all rows.
        quantiles: into how many ranges of about equal rows the column is cut; 0 for none.
    """
    ordered = np.sort(values)
    at = np.arange(1, quantiles) * len(ordered) // max(1, quantiles)
    equal = ordered[at] if len(ordered) else ordered
    among = np.unique(np.array([c for c in constants if low < c <= high], dtype=np.int64))
    if len(among) > MOST_CONSTANTS:
        among = among[np.arange(MOST_CONSTANTS) * len(among) // MOST_CONSTANTS]
    ends = np.array([low, min(high, LARGEST - 1) + 1], dtype=np.int64)
    return Thresholds(np.unique(np.concatenate((equal, among, ends))))


# ----------------------------------------------------------------------------------------------------
# What queries ask for, over codes: which of them read a block, by the ranges of its codes.


class CodeSet(NamedTuple):
    """A literal.

    Attributes:
        dimension: which.
        spans: the codes for which it may be TRUE.
        of_null: whether it is TRUE of NULL.
        is_range: whether it is a range of values, in whose place another might have been asked for.
    """

    dimension: int
    spans: tuple[Span, ...]
    of_null: bool = False
    is_range: bool = False


Clause = tuple[CodeSet, ...]
"""A disjunction of literals."""


@dataclass(frozen=True, eq=False)
class CodeRanges:
    """What is known of some rows together: for each dimension the smallest and largest code that is not 0, and nulls.

    Attributes:
        low, high: ``int64[d]``; where all rows are NULL, ``low`` is above every code.
        nulls: whether any row has code 0, ``bool[d]``.
    """

    low: Ints
    high: Ints
    nulls: Bits

    @classmethod
    def of(cls, codes: Codes, n_codes: int) -> CodeRanges:
        """The ranges of rows, ``int16[m, d]`` with ``m > 0``, of which no code reaches ``n_codes``."""
        is_null = codes == 0
        low = np.where(is_null, np.int16(n_codes), codes).min(axis=0)
        return cls(low.astype(np.int64), codes.max(axis=0).astype(np.int64), is_null.any(axis=0))


@dataclass(frozen=True, eq=False)
class CodeFilters:
    """Queries as conjunctions of clauses, clauses as disjunctions of literals, literals as sets of codes.

    A query reads a block unless one of its clauses has no literal that may be TRUE there.

    Attributes:
        n_dimensions: how many dimensions there are.
        n_codes: more than any code.
        dimension: of each distinct literal, ``int64[s]``.
        of_null: whether each is TRUE of NULL, ``bool[s]``.
        following: the first code of each distinct literal at or after each code, ``int16[s, n_codes + 1]``; above all
            codes where there is none.
        preceding: the last one at or before it; below 0 where there is none.
        literal: of each place in a clause, which distinct literal stands there, ``int64[l]``.
        clause: of each place its clause, ``int64[l]``, ascending.
        query: of each clause its query, ``int64[c]``, ascending.
        weights: of the queries, ``float64[q]``; integers that sum exactly.
    """

    n_dimensions: int
    n_codes: int
    dimension: Ints
    of_null: Bits
    following: Codes
    preceding: Codes
    literal: Ints
    clause: Ints
    query: Ints
    weights: Floats

    @classmethod
    def of(cls, queries: Sequence[Sequence[Clause]], weights: Floats, n_dimensions: int, n_codes: int) -> CodeFilters:
        """From each query's clauses. A query with a clause without literals reads nothing, so it counts for nothing."""
        number: dict[CodeSet, int] = {}
        literal: list[int] = []
        clause: list[int] = []
        query: list[int] = []
        for q, clauses in enumerate(queries):
            for each in clauses:
                literal += [number.setdefault(one, len(number)) for one in each]
                clause += [len(query)] * len(each)
                query.append(q)
        covered = np.zeros((len(number), n_codes + 1), dtype=np.bool_)
        for one, place in number.items():
            for first, stop in one.spans:
                covered[place, first:stop] = True
        every = np.arange(n_codes + 1, dtype=np.int16)
        after = np.where(covered, every, np.int16(n_codes + 1))[:, ::-1]
        return cls(
            n_dimensions=n_dimensions,
            n_codes=n_codes,
            dimension=np.array([one.dimension for one in number], dtype=np.int64),
            of_null=np.array([one.of_null for one in number], dtype=np.bool_),
            following=np.minimum.accumulate(after, axis=1)[:, ::-1],
            preceding=np.maximum.accumulate(np.where(covered, every, np.int16(-1)), axis=1),
            literal=np.array(literal, dtype=np.int64),
            clause=np.array(clause, dtype=np.int64),
            query=np.array(query, dtype=np.int64),
            weights=np.where([all(clauses) for clauses in queries], weights, 0.0),
        )

    @cached_property
    def importance(self) -> Floats:
        """The weight of the queries' literals about each dimension, ``float64[d]``."""
        of_literals = self.weights[self.query[self.clause]]
        return np.bincount(self.dimension[self.literal], of_literals, self.n_dimensions).astype(np.float64)


# ----------------------------------------------------------------------------------------------------
# A prior for constants not seen: each range of the log stands for its like, moved along its column.
#
# Somebody who asks for 10 to 20 may as well have asked for 12 to 22. So a query counts as several that are alike. In
# each
# but the first, a range is new with the chance that ranges of its column are new in the later half of the log: it is
# then
# moved by a normal draw of its own width, on the scale of codes (about equal rows, and finer where the log has more
# constants). Where ranges recur they stay. So do those from the beginning or to the end of a column, single values, and
# lists, since the next name in the alphabet is no likelier than any other.

COPIES = 8
"""Queries that one stands for: two logs of brushing read 1 % fewer rows unseen than by 1, from 30 queries up to 5 %."""

SPREAD = 1.0
"""The standard deviation of a move, in widths of the range; half or twice as many are as good within 1 %."""

# What following and preceding codes of all literals may take, in codes.
_MOST_CODES = 8_000_000


def number_of_copies(queries: Sequence[Sequence[Clause]], n_codes: int) -> int:
    """How many queries each may stand for in bounded memory; at least itself."""
    literals = sum(len(clause) for query in queries for clause in query)
    return max(1, min(COPIES, _MOST_CODES // max(1, literals * n_codes)))


def with_shifts(
    queries: Sequence[Sequence[Clause]], n_codes: Sequence[int], chances: Sequence[float], copies: int, seed: int
) -> list[Sequence[Clause]]:
    """The queries, and then their copies, all of them once and then all again.

    Args:
        queries: of each its clauses.
        n_codes: of each dimension how many codes it has.
        chances: of each dimension the chance that a range is new.
        copies: how many queries each is to be, itself among them.
        seed: of the draws.
    """
    literals = sum(len(clause) for query in queries for clause in query)
    rng = np.random.default_rng(seed)
    draws = np.stack([rng.random(literals * (copies - 1)), rng.normal(scale=SPREAD, size=literals * (copies - 1))])
    by = iter(draws.T.tolist())
    moved = (_moved(query, n_codes, chances, by) for _ in range(copies - 1) for query in queries)
    return [*queries, *moved]


def _moved(
    query: Sequence[Clause], n_codes: Sequence[int], chances: Sequence[float], by: Iterator[list[float]]
) -> Sequence[Clause]:
    found = []
    for clause in query:
        literals = []
        for literal in clause:
            luck, widths = next(by)
            is_new = literal.is_range and luck < chances[literal.dimension]
            literals.append(_shifted(literal, n_codes[literal.dimension], widths) if is_new else literal)
        found.append(tuple(literals))
    return found


def _shifted(literal: CodeSet, n_codes: int, widths: float) -> CodeSet:
    """A range moved by so many of its widths, its ends kept within the codes that values have."""
    if len(literal.spans) != 1:
        return literal
    ((first, stop),) = literal.spans
    by = round(widths * (stop - first))
    low = first if first <= 1 else min(max(first + by, 1), n_codes - 1)
    high = stop if stop >= n_codes else min(max(stop + by, low + 1), n_codes)
    return literal._replace(spans=((low, max(high, low + 1)),))


# ----------------------------------------------------------------------------------------------------
# The tree: rows cut in two again and again, each time where queries then skip the most (as in a qd-tree, SIGMOD 2020).
#
# A node is cut where the rows that queries read, weighted, become fewest, if both sides fill a block. A query skips a
# side whose ranges of codes none of its rows can lie in. Only the dimension that is cut is looked at for that: the
# ranges of the others shrink too, and are measured again in each node. All cuts of a node are compared at once, as
# cumulated sums over codes.

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
