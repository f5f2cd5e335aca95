"""Cut a segment into blocks by a tree over its columns' values and features' bits.

Columns and bits become small integer codes, and the plan's queries become clauses over codes. The tree is computed for
each segment from its rows and from the ranges of the plan's queries; plans hold no tree.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa

from layoutopt.errors import PlanError
from layoutopt.evaluation.keys import FLOATS, ArrowValues, dense_ranks, fill_nulls, stored_keys
from layoutopt.features.stability import unseen_shares
from layoutopt.model.arrays import Bits, Floats, Ints, Places, Words
from layoutopt.model.feature import FeatureSet
from layoutopt.model.layout import QUANTILES, ByCuts, Layout, Plan
from layoutopt.model.predicates import FALSE, Col, InSet, Like, Literal, literal_prefix, literals_of
from layoutopt.model.query import Query
from layoutopt.model.values import NAN_KEY, Interval, Key, ValueSet
from layoutopt.model.vectors import feature_bit, project, unpack
from layoutopt.partitioning.objective import integer_weights
from layoutopt.partitioning.value_cuts import (
    DEFAULT_QUANTILES,
    FEATURE_CODES,
    LARGEST,
    MEAN_OVER_MIN,
    Clauses,
    CodeFilters,
    Codes,
    CodeSets,
    CutRows,
    Thresholds,
    add_shifted_copies,
    choose_thresholds,
    count_copies,
    cut_rows,
)
from layoutopt.skipping.skip_sets import skip_set_table

# A tree is chosen by at most this many codes of sampled rows, but by at least this many rows.
_SAMPLED_CODES = 2_000_000
_SAMPLED_ROWS = 50_000
# The most quantiles that a plan may ask for.
_MAX_QUANTILES = 10_000
# Quantiles at which a column that slices cut is divided into cells.
_CELL_QUANTILES = 64


@dataclass(frozen=True, eq=False)
class Numbers:
    """A column as 64-bit numbers in Spark's order, so that a tree cuts columns of all types in the same way.

    Attributes:
        values: the key of each row where keys have 64 bits, else its rank among the distinct keys, ``int64[n]``;
            undefined for NULL.
        nulls: which are NULL, ``bool[n]``; None where there is no NULL.
        distinct: the distinct keys in order, if ``values`` are ranks.
    """

    values: Ints
    nulls: Bits | None
    distinct: pa.Array | None

    @classmethod
    def of(cls, column: ArrowValues, type: str) -> Numbers:
        """Return the numbers of a column of an ordered type."""
        stored = stored_keys(column, type)
        nulls = np.asarray(stored.is_null()) if stored.null_count else None
        if stored.type == pa.int64():
            return cls(np.asarray(fill_nulls(stored, 0)), nulls, None)
        encoded = stored.dictionary_encode()
        in_order, rank = dense_ranks(encoded.dictionary)
        indices = np.asarray(fill_nulls(encoded.indices, 0))
        values = rank[indices] if len(rank) else np.zeros(len(indices), dtype=np.int64)
        return cls(values, nulls, in_order)

    def number(self, keys: Sequence[Key]) -> Ints:
        """Return the least number of values that are at least each key, ``int64[k]``."""
        if self.distinct is None:
            return np.array([max(-LARGEST - 1, min(int(key), LARGEST)) for key in keys], dtype=np.int64)
        distinct = _KeySequence(self.distinct)
        stored = (key.encode() if isinstance(key, str) else key for key in keys)
        return np.array([bisect_left(distinct, key) for key in stored], dtype=np.int64)

    def at(self, rows: Ints) -> tuple[Ints, Bits | None]:
        """Return the values of some rows, and which of them are NULL."""
        return self.values[rows], None if self.nulls is None else self.nulls[rows]


class _KeySequence(Sequence[int | bytes]):
    def __init__(self, array: pa.Array) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, place: int) -> int | bytes:  # type: ignore[override]
        value = self._array[place].as_py()
        return value if isinstance(value, bytes) else int(value)


@dataclass(frozen=True, eq=False)
class Intervals:
    """Intervals of a column's keys.

    Attributes:
        keys: their distinct ends.
        low, high: the place of each interval's ends among the keys, ``int64[k]``; -1 is unbounded.
    """

    keys: tuple[Key, ...]
    low: Ints
    high: Ints

    @classmethod
    def of(cls, intervals: Iterable[Interval]) -> Intervals:
        """Return the intervals as arrays."""
        places: dict[Key | None, int] = {None: -1}
        ends = [[places.setdefault(key, len(places) - 1) for key in interval] for interval in intervals]
        low, high = np.array(ends, dtype=np.int64).reshape(-1, 2).T
        return cls(tuple(key for key in places if key is not None), low, high)


@dataclass(frozen=True, eq=False)
class CutColumn:
    """A column that a tree may cut.

    Attributes:
        numbers: of its rows.
        thresholds: where it may be cut.
        intervals: of the log.
        ends: the numbers of the intervals' keys, ``int64[k]``.
    """

    numbers: Numbers
    thresholds: Thresholds
    intervals: Intervals
    ends: Ints

    @classmethod
    def of(
        cls, column: ArrowValues, type: str, intervals: Intervals, places: Ints, quantiles: int = DEFAULT_QUANTILES
    ) -> CutColumn:
        """Return a column cut at quantiles of the rows at ``places`` and at the ends of the log's intervals."""
        numbers = Numbers.of(column, type)
        sampled, nulls = numbers.at(places)
        present = numbers.values if numbers.nulls is None else numbers.values[~numbers.nulls]
        ends = numbers.number(intervals.keys)
        if not len(present):
            return cls(numbers, Thresholds(np.zeros(0, dtype=np.int64)), intervals, ends)
        constants = np.append(ends, NAN_KEY) if type in FLOATS else ends
        present_sample = sampled if nulls is None else sampled[~nulls]
        thresholds = choose_thresholds(present_sample, constants, int(present.min()), int(present.max()), quantiles)
        return cls(numbers, thresholds, intervals, ends)

    def sampled(self, places: Ints) -> Codes:
        """Return the codes of some rows, ``int16[k]``."""
        return self.thresholds.codes(*self.numbers.at(places))

    def is_low(self, code: int, rows: Ints) -> Bits:
        """Return which of some rows have at most that code, ``bool[k]``."""
        return self.thresholds.is_low(code, *self.numbers.at(rows))

    @cached_property
    def first(self) -> Ints:
        """The first code that holds values of each interval, ``int64[k]``."""
        codes = np.append(self.thresholds.first_codes(self.ends), 1)  # the last is that of unbounded intervals
        return codes[self.intervals.low]

    @cached_property
    def stop(self) -> Ints:
        """The code behind those that hold values of each interval, ``int64[k]``."""
        codes = np.append(self.thresholds.stop_codes(self.ends), self.thresholds.n_codes)
        return codes[self.intervals.high]


def cut_blocks(plan: Plan, layout: Layout, table: pa.Table, words: Words, weights: Floats) -> Ints:
    """Return the block of each row, ``int64[n]``, numbered without gaps in the order of the tree's leaves.

    ``words`` are the rows' feature vectors, ``uint64[n, w]``; ``weights`` are those of the queries, 0 where the layout
    does not serve them, ``float64[n_queries]``.
    """
    assert isinstance(layout.blocking, ByCuts)
    names, local = layout.blocking.columns, layout.guiding
    places = _sample_rows(table.num_rows, len(names) + len(local), plan.seed)
    log, quantiles = _read_log(plan.queries, names, plan.features.only(local)), _read_quantiles(layout.blocking)
    columns = [
        CutColumn.of(table[name], plan.schema.find(name).type, intervals, places, quantiles)
        for name, intervals in zip(names, log.intervals, strict=True)
    ]
    bits = unpack(project(words[places], local), len(local)).astype(np.int16) + np.int16(1)
    sampled = np.column_stack([*(column.sampled(places) for column in columns), bits])
    n_codes = np.array([*(column.thresholds.n_codes for column in columns), *(FEATURE_CODES for _ in local)], np.int64)
    n_codes_max = int(n_codes.max(initial=FEATURE_CODES))
    copies = count_copies(log.clauses, n_codes_max) if quantiles else 1
    scaled = integer_weights(np.tile(weights, copies), max(1, len(places)))
    chances = _new_range_chances(plan.queries, names, len(local))
    literals, clauses = add_shifted_copies(log.to_codes(columns), log.clauses, n_codes, chances, copies, plan.seed)
    filters = CodeFilters.of(literals, clauses, scaled, len(n_codes), n_codes_max)
    rows = CutRows(table.num_rows, sampled, _LowSide(columns, local, words))
    return cut_rows(rows, filters, max(1, round(plan.block_rows / MEAN_OVER_MIN)))


def assign_cells(plan: Plan, name: str, table: pa.Table) -> Ints:
    """Return the cell of each row by a column, ``int64[n]``, numbered in the order of values, NULL first.

    Cells begin and end where ranges of the plan's queries do, and at a few quantiles of the rows.
    """
    rows, type = np.arange(table.num_rows), plan.schema.find(name).type
    column = CutColumn.of(table[name], type, _filter_intervals(plan.queries, name), rows, _CELL_QUANTILES)
    return column.sampled(rows).astype(np.int64)


def _read_quantiles(blocking: ByCuts) -> int:
    quantiles = dict(blocking.params).get(QUANTILES, DEFAULT_QUANTILES)
    if not isinstance(quantiles, int) or not 0 <= quantiles <= _MAX_QUANTILES:
        raise PlanError(f"the plan's {QUANTILES} is {quantiles!r:.80}: expected 0 to {_MAX_QUANTILES}; plan again")
    return quantiles


def _sample_rows(n: int, dimensions: int, seed: int) -> Ints:
    """Return some of ``n`` rows, ascending, ``int64[m]``; all of them where they are few."""
    max_rows = max(_SAMPLED_ROWS, _SAMPLED_CODES // max(1, dimensions))
    if n <= max_rows:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, max_rows, replace=False, shuffle=False))


@lru_cache(maxsize=8)
def _new_range_chances(queries: tuple[Query, ...], columns: tuple[str, ...], features: int) -> Floats:
    unseen = unseen_shares(queries)
    return np.array([*(unseen.get(name, 0.0) for name in columns), *(0.0,) * features], dtype=np.float64)


@dataclass(frozen=True, eq=False)
class _LowSide:
    columns: list[CutColumn]
    features: tuple[int, ...]
    words: Words

    def __call__(self, dimension: int, code: int, rows: Ints) -> Bits:
        if dimension < len(self.columns):
            return self.columns[dimension].is_low(code, rows)
        return ~feature_bit(self.words[rows], self.features[dimension - len(self.columns)])


@dataclass(frozen=True)
class _ColumnValues:
    """A literal: its dimension and the values for which it is TRUE; without values, a feature's bit."""

    dimension: int
    values: ValueSet | None = None
    null: bool = False

    @property
    def is_range(self) -> bool:
        """Return whether it is one range of values."""
        return self.values is not None and self.values.is_range


@dataclass(frozen=True, eq=False)
class _LogClauses:
    """The queries of a plan as clauses over columns and features, which are the same in all segments.

    Attributes:
        clauses: of the queries.
        literals: those of the clauses, with the codes of features' bits; :meth:`to_codes` sets those of columns.
        intervals: of each column, those of all its literals.
        spans: of each column, the places of its intervals among the spans of all literals, ``int64[k]``.
    """

    clauses: Clauses
    literals: CodeSets
    intervals: tuple[Intervals, ...]
    spans: tuple[Places, ...]

    @classmethod
    def of(cls, queries: Sequence[Sequence[Sequence[_ColumnValues]]], n_columns: int) -> _LogClauses:
        """Return the clauses of queries over so many columns, which are the first dimensions."""
        places: dict[_ColumnValues, int] = {}
        numbered = [
            [[places.setdefault(literal, len(places)) for literal in clause] for clause in query] for query in queries
        ]
        lengths = [1 if literal.values is None else len(literal.values.intervals) for literal in places]
        offsets = np.append(0, np.cumsum(lengths, dtype=np.int64))
        literals = CodeSets(
            dimension=np.array([literal.dimension for literal in places], dtype=np.int64),
            matches_null=np.array([literal.null for literal in places], dtype=np.bool_),
            is_range=np.array([literal.is_range for literal in places], dtype=np.bool_),
            offsets=offsets,
            first=np.full(offsets[-1], FEATURE_CODES - 1),
            stop=np.full(offsets[-1], FEATURE_CODES),
        )
        dimension_of_span = literals.dimension[literals.literal_of_span]
        intervals: list[list[Interval]] = [[] for _ in range(n_columns)]
        for literal in places:
            if literal.values is not None:
                intervals[literal.dimension] += literal.values.intervals
        return cls(
            clauses=Clauses.of(numbered),
            literals=literals,
            intervals=tuple(map(Intervals.of, intervals)),
            spans=tuple(np.flatnonzero(dimension_of_span == column) for column in range(n_columns)),
        )

    def to_codes(self, columns: Sequence[CutColumn]) -> CodeSets:
        """Return the literals over the codes of the columns and of features' bits."""
        first, stop = self.literals.first.copy(), self.literals.stop.copy()
        for column, spans in zip(columns, self.spans, strict=True):
            first[spans], stop[spans] = column.first, column.stop
        return replace(self.literals, first=first, stop=stop)


@lru_cache(maxsize=8)
def _read_log(queries: tuple[Query, ...], columns: tuple[str, ...], features: FeatureSet) -> _LogClauses:
    """Return the clauses of each query: predicates about these columns alone, and skip sets of these features.

    A query skips a block where it can't meet one of the predicates, or where all features of a skip set have bit 0.
    """
    place = {name: i for i, name in enumerate(columns)}
    skip_sets, has_skip_set = skip_set_table(queries, features)
    by_features = [
        tuple(_ColumnValues(len(columns) + feature) for feature in sorted(skip_set)) for skip_set in skip_sets
    ]
    clauses = []
    for query, skip_sets_of_query in zip(queries, has_skip_set, strict=True):
        never: list[tuple[_ColumnValues, ...]] = [()] if query.filter.root == FALSE else []
        by_values: list[tuple[_ColumnValues, ...]] = []
        for predicate in query.filter.predicates:
            values = [_to_column_values(literal, place) for literal in predicate.literals]
            if None not in values:
                by_values.append(tuple(value for value in values if value is not None))
        clauses.append([*never, *by_values, *(by_features[i] for i in np.flatnonzero(skip_sets_of_query))])
    return _LogClauses.of(clauses, len(columns))


def _to_column_values(literal: Literal, place: dict[str, int]) -> _ColumnValues | None:
    """Return the literal as values of a column; None where the column's bounds prove nothing about it."""
    if not isinstance(literal, InSet | Like) or not isinstance(literal.subject, Col):
        return None
    if literal.subject.name not in place:
        return None
    if isinstance(literal, InSet):
        return _ColumnValues(place[literal.subject.name], literal.values, literal.null)
    matches_any = literal.negated or not literal_prefix(literal.pattern)
    values = ValueSet.all() if matches_any else ValueSet.prefix(literal_prefix(literal.pattern))
    return _ColumnValues(place[literal.subject.name], values)


def _filter_intervals(queries: Iterable[Query], name: str) -> Intervals:
    """Return the ranges of the column anywhere in the queries' filters, whatever else the filters contain."""
    literals = (literal for query in queries for literal in literals_of(query.filter.root))
    column_values = (_to_column_values(literal, {name: 0}) for literal in literals)
    sets = (values.values for values in column_values if values is not None and values.values is not None)
    return Intervals.of(interval for value_set in sets for interval in value_set.intervals)
