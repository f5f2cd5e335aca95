"""Cut rows into blocks by a tree over codes of columns and features, fitted to the ranges of queries.

Code 0 of a column is NULL. Code ``i`` stands for the values from threshold ``i - 2`` (included) to ``i - 1``
(excluded); 1 is below the first threshold. A feature has code 1 where its bit is 0, else 2.

Nodes are cut in two, again and again, where queries then skip most (as in a qd-tree, SIGMOD 2020). A node is cut where
the weighted rows that queries read become fewest, if both sides fill a block. A query skips a side if the side's
ranges of codes exclude it. Only the dimension that is cut counts for this; the ranges of the rest are measured again
in each node. All cuts of a node are compared at once, as cumulative sums over codes.

Ranges not seen in the log are modelled by copies of its queries. In each copy, a range is new with the chance that
ranges of its column are new in the later half of the log. A new range is moved by a normal draw of its own width, on
the scale of codes. Half-open ranges, single values and lists stay: the next name in the alphabet is no likelier than
any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from layoutopt.model.arrays import Bits, Floats, Ints, Places

Codes = npt.NDArray[np.int16]

# Ranges of about equal rows into which a column is cut by default: beside the constants of 60 queries they save 1 % of
# the rows read, beside 1,500 none.
DEFAULT_QUANTILES = 128

# Constants of the log that cut a column at most, spread evenly over those among its values.
MOST_CONSTANTS = 512

# The largest number that a key may be.
LARGEST = 2**63 - 1

# Codes of a feature, with the unused 0.
FEATURE_CODES = 3

# Queries that one query stands for: on two logs of brushing, 1 % fewer rows are read unseen than with 1; from 30
# queries, up to 5 %.
COPIES = 8
# The standard deviation of a move, in widths of the range; half or twice of it is as good within 1 %.
SPREAD = 1.0
# The most literals of all copies, times codes.
_MAX_CODES = 8_000_000
# The mean leaf over the smallest, measured on ranges: nodes are cut where queries begin or end, not in halves.
MEAN_OVER_MIN = 1.33
# Cuts of a node that are tried, the best first, until one leaves enough of all rows on both sides.
_CUTS_TRIED = 8


@dataclass(frozen=True, eq=False)
class Thresholds:
    """The cuts of a column.

    Attributes:
        values: keys, or ranks, of which each begins a code; ``int64[t]``, ascending.
    """

    values: Ints

    @property
    def n_codes(self) -> int:
        """Return how many codes the column has, with that of NULL."""
        return len(self.values) + 2

    def codes(self, values: Ints, nulls: Bits | None = None) -> Codes:
        """Return the code of each value, ``int16[n]``; 0 where it is NULL.

        >>> Thresholds(np.array([10, 20])).codes(np.array([5, 10, 19, 20])).tolist()
        [1, 2, 2, 3]
        """
        codes = np.searchsorted(self.values, values, side="right").astype(np.int16) + np.int16(1)
        return codes if nulls is None else np.where(nulls, np.int16(0), codes)

    def is_low(self, code: int, values: Ints, nulls: Bits | None = None) -> Bits:
        """Return which values have at most that code, ``bool[n]``; NULL has.

        >>> Thresholds(np.array([10, 20])).is_low(2, np.array([5, 10, 19, 20])).tolist()
        [True, True, True, False]
        """
        if not 0 < code <= len(self.values):
            return np.full(len(values), code > 0) if nulls is None else nulls | (code > 0)
        low: Bits = values < self.values[code - 1]
        return low if nulls is None else low | nulls

    def first_codes(self, lows: Ints) -> Ints:
        """Return the code of each number, which is the first of the values from it on.

        >>> Thresholds(np.array([10, 20])).first_codes(np.array([5, 10, 15])).tolist()
        [1, 2, 2]
        """
        return np.searchsorted(self.values, lows, side="right") + 1

    def stop_codes(self, highs: Ints) -> Ints:
        """Return the code behind those of the values below each number.

        >>> Thresholds(np.array([10, 20])).stop_codes(np.array([10, 15, 20])).tolist()
        [2, 3, 3]
        """
        return np.searchsorted(self.values, highs, side="left") + 2


def choose_thresholds(
    values: Ints, constants: Ints, low: int, high: int, quantiles: int = DEFAULT_QUANTILES
) -> Thresholds:
    """Return thresholds at the quantiles of a column and at constants of the log among its values.

    Constants separate the rows of recurring ranges; quantiles serve ranges that the log has not seen. The smallest
    value and the successor of the largest are thresholds too, so ranges beyond them have codes without rows.
    ``values`` are a sample without NULLs; ``low`` and ``high`` are the extremes of all rows.
    """
    ordered = np.sort(values)
    places = np.arange(1, quantiles) * len(ordered) // max(1, quantiles)
    quantile_values = ordered[places] if len(ordered) else ordered
    constants_within = np.unique(constants[(low < constants) & (constants <= high)])
    if len(constants_within) > MOST_CONSTANTS:
        constants_within = constants_within[np.arange(MOST_CONSTANTS) * len(constants_within) // MOST_CONSTANTS]
    ends = np.array([low, min(high, LARGEST - 1) + 1], dtype=np.int64)
    return Thresholds(np.unique(np.concatenate((quantile_values, constants_within, ends))))


@dataclass(frozen=True, eq=False)
class CodeSets:
    """Literals over codes.

    Attributes:
        dimension: of each, ``int64[s]``.
        matches_null: whether each is TRUE for NULL, ``bool[s]``.
        is_range: whether each is one range of values, which other queries may replace by a similar one, ``bool[s]``.
        offsets: the spans of literal ``i`` are those from ``offsets[i]`` to ``offsets[i + 1]``, ``int64[s + 1]``.
        first, stop: the first of the codes in each span and the one behind them, ``int64[k]``; both ascend within a
            literal. A literal may be TRUE for the codes of its spans.
    """

    dimension: Ints
    matches_null: Bits
    is_range: Bits
    offsets: Ints
    first: Ints
    stop: Ints

    def __len__(self) -> int:
        return len(self.dimension)

    @cached_property
    def literal_of_span(self) -> Ints:
        """Return the literal of each span, ``int64[k]``."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def add(self, others: CodeSets) -> CodeSets:
        """Return these literals followed by others."""
        return CodeSets(
            dimension=np.append(self.dimension, others.dimension),
            matches_null=np.append(self.matches_null, others.matches_null),
            is_range=np.append(self.is_range, others.is_range),
            offsets=np.append(self.offsets, self.offsets[-1] + others.offsets[1:]),
            first=np.append(self.first, others.first),
            stop=np.append(self.stop, others.stop),
        )

    def without_empty_spans(self) -> CodeSets:
        """Return the literals without spans that have no code, as of a text that no row has."""
        is_kept = self.first < self.stop
        lengths = np.bincount(self.literal_of_span[is_kept], minlength=len(self))
        offsets = np.append(0, np.cumsum(lengths, dtype=np.int64))
        return replace(self, offsets=offsets, first=self.first[is_kept], stop=self.stop[is_kept])


@dataclass(frozen=True, eq=False)
class Clauses:
    """Queries as conjunctions of clauses, and clauses as disjunctions of numbered literals.

    A query reads a block unless one of its clauses has no literal that may be TRUE there. A query that has a clause
    without literals reads nothing.

    Attributes:
        literal: the literal at each place of a clause, ``int64[l]``.
        clause: the clause of each place, ``int64[l]``, ascending.
        query: the query of each clause, ``int64[c]``, ascending.
        reads_nothing: the queries with a clause without literals, ``bool[q]``.
    """

    literal: Ints
    clause: Ints
    query: Ints
    reads_nothing: Bits

    @classmethod
    def of(cls, queries: Sequence[Sequence[Sequence[int]]]) -> Clauses:
        """Return the clauses of queries, each a sequence of literals' numbers."""
        clauses = [(q, clause) for q, query in enumerate(queries) for clause in query]
        lengths = np.array([len(clause) for _, clause in clauses], dtype=np.int64)
        return cls(
            literal=np.array([number for _, clause in clauses for number in clause], dtype=np.int64),
            clause=np.repeat(np.arange(len(clauses)), lengths),
            query=np.array([q for q, _ in clauses], dtype=np.int64),
            reads_nothing=np.array([not all(query) for query in queries], dtype=np.bool_),
        )

    def repeat(self, literals: Ints) -> Clauses:
        """Return copies of all queries, one after the other, whose places have these literals, ``int64[copies, l]``."""
        copies = np.arange(len(literals))[:, None]
        return Clauses(
            literal=literals.ravel(),
            clause=(self.clause + copies * len(self.query)).ravel(),
            query=(self.query + copies * len(self.reads_nothing)).ravel(),
            reads_nothing=np.tile(self.reads_nothing, len(literals)),
        )


@dataclass(frozen=True, eq=False)
class CodeRanges:
    """The code ranges of some rows, by dimension.

    Attributes:
        low, high: the smallest and the largest code that is not 0, ``int64[d]``; where all rows are NULL, ``low`` is
            above every code.
        nulls: whether any row has code 0, ``bool[d]``.
    """

    low: Ints
    high: Ints
    nulls: Bits

    @classmethod
    def of(cls, codes: Codes, n_codes: int) -> CodeRanges:
        """Return the ranges of rows, ``int16[m, d]`` with ``m > 0`` and all codes below ``n_codes``."""
        is_null = codes == 0
        low = np.where(is_null, np.int16(n_codes), codes).min(axis=0)
        return cls(low.astype(np.int64), codes.max(axis=0).astype(np.int64), is_null.any(axis=0))


@dataclass(frozen=True, eq=False)
class CodeFilters:
    """Queries over codes.

    Attributes:
        literals: those of the clauses.
        clauses: of the queries.
        weights: of the queries, ``float64[q]``; integers that sum exactly, 0 for queries that read nothing.
        n_codes: more than any code.
    """

    literals: CodeSets
    clauses: Clauses
    weights: Floats
    n_dimensions: int
    n_codes: int

    @classmethod
    def of(cls, literals: CodeSets, clauses: Clauses, weights: Floats, n_dimensions: int, n_codes: int) -> CodeFilters:
        """Return the filters of queries with these weights."""
        read = np.where(clauses.reads_nothing, 0.0, weights)
        return cls(literals.without_empty_spans(), clauses, read, n_dimensions, n_codes)

    @cached_property
    def importance(self) -> Floats:
        """Return the weight of the queries' literals about each dimension, ``float64[d]``."""
        weights = self.weights[self.clauses.query[self.clauses.clause]]
        dimensions = self.literals.dimension[self.clauses.literal]
        return np.bincount(dimensions, weights, self.n_dimensions).astype(np.float64)

    def find_following(self, literals: Ints, codes: Ints) -> Ints:
        """Return each literal's first code at or after a code, ``int64[l]``; above all codes where there is none."""
        span = np.searchsorted(self._stops, literals * self._width + codes, side="right")
        is_there = span < self.literals.offsets[literals + 1]
        return np.where(is_there, np.maximum(codes, _take(self.literals.first, span)), self.n_codes + 1)

    def find_preceding(self, literals: Ints, codes: Ints) -> Ints:
        """Return each literal's last code at or before a code, ``int64[l]``; -1 where there is none."""
        span = np.searchsorted(self._firsts, literals * self._width + codes, side="right") - 1
        is_there = span >= self.literals.offsets[literals]
        return np.where(is_there, np.minimum(codes, _take(self.literals.stop, span) - 1), -1)

    @property
    def _width(self) -> int:
        return self.n_codes + 2

    @cached_property
    def _stops(self) -> Ints:
        """The spans' stops, numbered so that they ascend over all literals."""
        return self.literals.literal_of_span * self._width + self.literals.stop

    @cached_property
    def _firsts(self) -> Ints:
        return self.literals.literal_of_span * self._width + self.literals.first


def _take(values: Ints, places: Places) -> Ints:
    """Return the values at some places; any value where there is no such place."""
    return values[np.clip(places, 0, len(values) - 1)] if len(values) else np.zeros(len(places), dtype=np.int64)


def count_copies(clauses: Clauses, n_codes: int) -> int:
    """Return how many queries each may stand for in bounded time; at least itself."""
    return max(1, min(COPIES, _MAX_CODES // max(1, len(clauses.literal) * n_codes)))


def add_shifted_copies(
    literals: CodeSets, clauses: Clauses, n_codes: Ints, chances: Floats, copies: int, seed: int
) -> tuple[CodeSets, Clauses]:
    """Return literals and clauses of the queries, followed by ``copies - 1`` copies of each with moved ranges.

    ``n_codes`` are the codes of each dimension, ``int64[d]``, ``chances`` those that a range of it is new,
    ``float64[d]``.
    """
    rng = np.random.default_rng(seed)
    literal = np.tile(clauses.literal, (copies, 1))
    copied = literal[1:]
    luck, widths = rng.random(copied.shape), rng.normal(scale=SPREAD, size=copied.shape)
    is_new = literals.is_range[copied] & (luck < chances[literals.dimension[copied]])
    moved = _shift_ranges(literals, copied[is_new], n_codes, widths[is_new])
    copied[is_new] = len(literals) + np.arange(len(moved))
    return literals.add(moved), clauses.repeat(literal)


def _shift_ranges(literals: CodeSets, ranges: Ints, n_codes: Ints, widths: Floats) -> CodeSets:
    """Return ranges (their numbers) moved by so many of their widths, their ends within the codes that values have."""
    span, dimension = literals.offsets[ranges], literals.dimension[ranges]
    first, stop, end = literals.first[span], literals.stop[span], n_codes[dimension]
    shift = np.rint(widths * (stop - first)).astype(np.int64)
    low = np.where(first <= 1, first, np.minimum(np.maximum(first + shift, 1), end - 1))
    high = np.where(stop >= end, stop, np.minimum(np.maximum(stop + shift, low + 1), end))
    return CodeSets(
        dimension=dimension,
        matches_null=literals.matches_null[ranges],
        is_range=literals.is_range[ranges],
        offsets=np.arange(len(ranges) + 1),
        first=low,
        stop=np.maximum(high, low + 1),
    )


class IsLow(Protocol):
    """A function that returns which rows go to the low side of a cut."""

    def __call__(self, dimension: int, code: int, rows: Ints) -> Bits:
        """Return which rows (``int64[k]``) have at most ``code`` in this dimension, ``bool[k]``."""
        ...


@dataclass(frozen=True, eq=False)
class CutRows:
    """The rows that a tree cuts.

    Attributes:
        n: how many there are.
        sampled: the codes of some of them, by which every cut is chosen, ``int16[m, d]``.
        is_low: applies cuts to all rows.
    """

    n: int
    sampled: Codes
    is_low: IsLow


def cut_rows(rows: CutRows, filters: CodeFilters, min_rows: int) -> Ints:
    """Return the leaf of each row, ``int64[n]``, numbered from left to right without gaps.

    Leaves hold ``[min_rows, 2 * min_rows)`` rows, or all rows if these are fewer.
    """
    search = _Search(rows, filters, min_rows)
    leaf = np.empty(rows.n, dtype=np.int64)
    n_leaves = 0
    root = _Node(np.arange(rows.n), np.arange(len(rows.sampled)), np.arange(len(filters.clauses.literal)))
    open_nodes = [root]
    while open_nodes:
        node = open_nodes.pop()
        sides = search.cut(node)
        if sides is None:
            n_parts = _count_parts(len(node.rows), min_rows)
            leaf[node.rows] = n_leaves + np.arange(len(node.rows)) * n_parts // max(1, len(node.rows))
            n_leaves += n_parts
        else:
            open_nodes += reversed(sides)
    return leaf


def _count_parts(n: int, min_rows: int) -> int:
    """Return into how many blocks a leaf is cut without looking at values: several only for many equal rows."""
    if n < 2 * min_rows:
        return 1
    return int(np.clip(round(n / (min_rows * MEAN_OVER_MIN)), -(-n // (2 * min_rows - 1)), n // min_rows))


@dataclass(frozen=True, eq=False)
class _Node:
    """Rows, ``int64[n]``; the sampled ones among them, ``int64[m]``; and the literals of queries that read them."""

    rows: Ints
    sample: Ints
    literals: Ints


@dataclass(frozen=True, eq=False)
class _NodeReading:
    """The queries that read a node: their literals and their total weight.

    The rest is about decisive literals, on which a clause depends since all its other literals are FALSE here: the
    dimension of each, its query's weight, and the first and last of its codes in the node. A cut that puts these codes
    on one side lets the query skip the other side.
    """

    literals: Ints
    weight: float
    dimension: Ints
    weights: Floats
    first: Ints
    last: Ints


class _Search:
    def __init__(self, rows: CutRows, filters: CodeFilters, min_rows: int) -> None:
        self.rows, self.filters, self.min_rows = rows, filters, min_rows
        self.width = filters.n_codes + 1
        self.places = rows.sampled + np.arange(filters.n_dimensions) * self.width
        filtered = np.flatnonzero(filters.importance)
        self.by_importance = filtered[np.argsort(-filters.importance[filtered], kind="stable")]

    def cut(self, node: _Node) -> tuple[_Node, _Node] | None:
        """Return the two sides of the best cut, lower codes first; None where the node is a leaf."""
        if len(node.rows) < 2 * self.min_rows or not len(node.sample):
            return None
        reading = self._measure_reading(node)
        below = self._count_codes(node).cumsum(axis=1)
        share = len(node.rows) / len(node.sample)
        allowed = np.minimum(below, len(node.sample) - below) * share >= self.min_rows
        costs = np.where(allowed, self._cut_costs(reading, below, len(node.sample)), np.inf)
        for place in self._rank_cuts(costs, reading.weight * len(node.sample), below):
            dimension, code = divmod(place, self.width)
            is_low = self.rows.is_low(dimension, code, node.rows)
            n_low = int(np.count_nonzero(is_low))
            if min(n_low, len(node.rows) - n_low) >= self.min_rows:
                in_low = self.rows.sampled[node.sample, dimension] <= code
                low = _Node(node.rows[is_low], node.sample[in_low], reading.literals)
                return low, _Node(node.rows[~is_low], node.sample[~in_low], reading.literals)
        return None

    def _count_codes(self, node: _Node) -> Ints:
        """Return how many sampled rows have each code, ``int64[d, width]``."""
        counts = np.bincount(self.places[node.sample].ravel(), minlength=self.filters.n_dimensions * self.width)
        return counts.reshape(self.filters.n_dimensions, self.width)

    def _measure_reading(self, node: _Node) -> _NodeReading:
        filters, literals, clauses = self.filters, self.filters.literals, self.filters.clauses
        ranges = CodeRanges.of(self.rows.sampled[node.sample], filters.n_codes)
        literal, clause = clauses.literal[node.literals], clauses.clause[node.literals]
        dimension, query = literals.dimension[literal], clauses.query[clause]
        by_null = literals.matches_null[literal] & ranges.nulls[dimension]
        first = np.where(by_null, 0, filters.find_following(literal, ranges.low[dimension]))
        may_match = first <= ranges.high[dimension]
        n_true = np.bincount(clause, may_match, minlength=len(clauses.query))[clause]
        reads = np.zeros(len(filters.weights), dtype=np.bool_)
        reads[query] = True
        reads[query[n_true == 0]] = False
        decisive = np.flatnonzero(reads[query] & may_match & (n_true == 1))
        last = filters.find_preceding(literal[decisive], ranges.high[dimension[decisive]])
        # No value lies between NULL and the least value.
        last = np.where(by_null[decisive] & (last < ranges.low[dimension[decisive]]), 0, last)
        # Several clauses of a query may depend on one dimension: the query skips where any of them is FALSE.
        keys = query[decisive] * filters.n_dimensions + dimension[decisive]
        in_order = np.argsort(keys, kind="stable")
        starts = np.flatnonzero(np.diff(keys[in_order], prepend=-1))
        distinct = decisive[in_order[starts]]
        return _NodeReading(
            literals=node.literals[reads[query]],
            weight=float(filters.weights @ reads),
            dimension=dimension[distinct],
            weights=filters.weights[query[distinct]],
            first=np.maximum.reduceat(first[decisive[in_order]], starts) if len(distinct) else distinct,
            last=np.minimum.reduceat(last[in_order], starts) if len(distinct) else distinct,
        )

    def _cut_costs(self, reading: _NodeReading, below: Ints, n: int) -> Floats:
        """Return what queries read after a cut behind each code, ``float64[d, width]``: sampled rows times weights."""
        by_first, by_last = self._sum_weights(reading, reading.first), self._sum_weights(reading, reading.last)
        reading_low = reading.weight - (by_first[:, -1:] - by_first)  # without those that begin after the cut
        reading_high = reading.weight - by_last  # without those that end before the cut
        return np.asarray(below * reading_low + (n - below) * reading_high)

    def _sum_weights(self, reading: _NodeReading, codes: Ints) -> Floats:
        """Return the weight of the queries with such a code at or before each code, ``float64[d, width]``."""
        places = reading.dimension * self.width + np.clip(codes, 0, self.width - 1)
        sums = np.bincount(places, reading.weights, minlength=self.filters.n_dimensions * self.width)
        return np.asarray(sums.reshape(self.filters.n_dimensions, self.width).cumsum(axis=1))

    def _rank_cuts(self, costs: Floats, uncut: float, below: Ints) -> Iterator[int]:
        """Yield cuts as places in ``costs``: first those that lower the cost most, then those that halve the node.

        Halves serve ranges that the log does not have; they are by the columns that the log filters by most.
        """
        flat = costs.ravel()
        best = np.argpartition(flat, _CUTS_TRIED)[:_CUTS_TRIED] if len(flat) > _CUTS_TRIED else np.arange(len(flat))
        for place in best[np.lexsort((best, flat[best]))].tolist():
            if flat[place] < uncut:
                yield place
        balance = np.where(np.isfinite(costs), np.abs(2 * below - below[:, -1:]), np.iinfo(np.int64).max)
        for dimension in self.by_importance.tolist():
            code = int(balance[dimension].argmin())
            if np.isfinite(costs[dimension, code]):
                yield dimension * self.width + code
