"""The tree of cuts: every row in one leaf of a fitting size, and the cost of each cut as brute force counts it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from layoutopt.model.arrays import Bits, Ints
from layoutopt.partitioning.value_cuts import (
    COPIES,
    Clauses,
    CodeFilters,
    CodeRanges,
    Codes,
    CodeSets,
    CutRows,
    _Node,
    _Search,
    add_shifted_copies,
    count_copies,
    cut_rows,
)

N_CODES = 6


class CodeSet(NamedTuple):
    """A literal: the codes for which it may be TRUE, as spans from the first to a stop."""

    dimension: int
    spans: tuple[tuple[int, int], ...]
    matches_null: bool = False
    is_range: bool = False


Clause = tuple[CodeSet, ...]


def as_arrays(queries: Sequence[Sequence[Clause]]) -> tuple[CodeSets, Clauses]:
    """Number the literals of queries at each place anew."""
    literals = [literal for query in queries for clause in query for literal in clause]
    numbers = iter(range(len(literals)))
    clauses = Clauses.of([[[next(numbers) for _ in clause] for clause in query] for query in queries])
    spans = np.array([span for literal in literals for span in literal.spans], dtype=np.int64).reshape(-1, 2)
    return (
        CodeSets(
            dimension=np.array([literal.dimension for literal in literals], dtype=np.int64),
            matches_null=np.array([literal.matches_null for literal in literals], dtype=np.bool_),
            is_range=np.array([literal.is_range for literal in literals], dtype=np.bool_),
            offsets=np.append(0, np.cumsum([len(literal.spans) for literal in literals], dtype=np.int64)),
            first=spans[:, 0],
            stop=spans[:, 1],
        ),
        clauses,
    )


def shift_copies(
    queries: Sequence[Sequence[Clause]], n_codes: list[int], chances: list[float], copies: int, seed: int
) -> list[list[Clause]]:
    """Queries and their copies, read back from arrays."""
    literals, clauses = add_shifted_copies(*as_arrays(queries), np.array(n_codes), np.array(chances), copies, seed)
    shifted: list[list[Clause]] = [[() for _ in query] for _ in range(copies) for query in queries]
    first_clause = np.searchsorted(clauses.query, np.arange(len(shifted)))
    for number, clause in zip(clauses.literal.tolist(), clauses.clause.tolist(), strict=True):
        within = slice(literals.offsets[number], literals.offsets[number + 1])
        spans = tuple(zip(literals.first[within].tolist(), literals.stop[within].tolist(), strict=True))
        values = literals.dimension[number], spans, literals.matches_null[number], literals.is_range[number]
        query = int(clauses.query[clause])
        shifted[query][clause - first_clause[query]] += (CodeSet(*values),)
    return shifted


@dataclass(frozen=True, eq=False)
class Case:
    codes: Codes
    queries: list[list[Clause]]
    weights: np.ndarray

    @property
    def filters(self) -> CodeFilters:
        return CodeFilters.of(*as_arrays(self.queries), self.weights, self.codes.shape[1], N_CODES)

    @property
    def rows(self) -> CutRows:
        def is_low(dimension: int, code: int, rows: Ints) -> Bits:
            return np.asarray(self.codes[rows, dimension] <= code)

        return CutRows(len(self.codes), self.codes, is_low)


def ascending(spans: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Spans that may be empty, touch and overlap, whose ends ascend, as those of ascending intervals."""
    firsts, stops = sorted(first for first, _ in spans), sorted(stop for _, stop in spans)
    return tuple(zip(firsts, stops, strict=True))


@st.composite
def cases(draw: st.DrawFn, most_rows: int = 60) -> Case:
    """Few codes, so that many rows are alike; NULLs, empty sets, and clauses without literals too."""
    n_dimensions = draw(st.integers(1, 3))
    row = st.lists(st.integers(0, N_CODES - 1), min_size=n_dimensions, max_size=n_dimensions)
    codes = np.array(draw(st.lists(row, min_size=1, max_size=most_rows)), dtype=np.int16)
    span = st.integers(1, N_CODES - 1).flatmap(lambda first: st.tuples(st.just(first), st.integers(first, N_CODES)))
    spans = st.lists(span, max_size=3).map(ascending)
    literal = st.builds(CodeSet, st.integers(0, n_dimensions - 1), spans, st.booleans())
    clause = st.lists(literal, max_size=2, unique_by=lambda one: one.dimension).map(tuple)  # as disjunctions are
    queries = draw(st.lists(st.lists(clause, max_size=2), max_size=5))
    weights = draw(st.lists(st.integers(0, 4), min_size=len(queries), max_size=len(queries)))
    return Case(codes, queries, np.array(weights, dtype=np.float64))


@given(cases(most_rows=200), st.integers(1, 40))
def test_every_row_is_in_one_leaf_that_fits(case: Case, min_rows: int) -> None:
    leaf = cut_rows(case.rows, case.filters, min_rows)
    sizes = np.bincount(leaf, minlength=1)
    assert len(leaf) == len(case.codes)
    if len(leaf) >= min_rows:
        assert sizes.min() >= min_rows
        assert sizes.max() < 2 * min_rows
    else:
        assert len(sizes) == 1


@given(cases())
def test_the_same_rows_give_the_same_leaves(case: Case) -> None:
    assert np.array_equal(cut_rows(case.rows, case.filters, 3), cut_rows(case.rows, case.filters, 3))


@given(cases())
def test_codes_are_found_as_brute_force_finds_them(case: Case) -> None:
    filters = case.filters
    codes = np.arange(N_CODES + 1)
    for number, literal in enumerate(literal for query in case.queries for clause in query for literal in clause):
        covered = [code for code in codes if any(first <= code < stop for first, stop in literal.spans)]
        numbers = np.full(len(codes), number)
        following = [min((one for one in covered if one >= code), default=N_CODES + 1) for code in codes]
        preceding = [max((one for one in covered if one <= code), default=-1) for code in codes]
        assert filters.find_following(numbers, codes).tolist() == following
        assert filters.find_preceding(numbers, codes).tolist() == preceding


def may_be_true(clause: Clause, ranges: CodeRanges) -> bool:
    for dimension, spans, of_null, _ in clause:
        if of_null and ranges.nulls[dimension]:
            return True
        for first, stop in spans:
            if any(ranges.low[dimension] <= code <= ranges.high[dimension] for code in range(first, stop)):
                return True
    return False


def weight_reading(case: Case, ranges: CodeRanges) -> float:
    reads = [all(may_be_true(clause, ranges) for clause in query) and bool(query) for query in case.queries]
    return float(case.weights @ np.array(reads, dtype=np.float64)) if reads else 0.0


@given(cases())
@example(Case(np.array([[0], [2]], dtype=np.int16), [[(CodeSet(0, ((1, 2),), True),)]], np.ones(1)))
def test_a_cut_costs_what_brute_force_counts(case: Case) -> None:
    search = _Search(case.rows, case.filters, 1)
    n = len(case.codes)
    node = _Node(np.arange(n), np.arange(n), np.arange(len(case.filters.clauses.literal)))
    reading = search._measure_reading(node)
    ranges = CodeRanges.of(case.codes, N_CODES)
    # A cut of one dimension is judged by what queries ask of any, but only its own range is narrower on a side.
    costs = search._cut_costs(reading, search._count_codes(node).cumsum(axis=1), n)
    assert reading.weight == weight_reading(case, ranges)
    for dimension in range(case.codes.shape[1]):
        for code in range(N_CODES - 1):
            low = CodeRanges(ranges.low, ranges.high.copy(), ranges.nulls)
            high = CodeRanges(ranges.low.copy(), ranges.high, ranges.nulls.copy())
            low.high[dimension] = code
            high.low[dimension] = max(code + 1, ranges.low[dimension])
            high.nulls[dimension] = False
            n_low = int((case.codes[:, dimension] <= code).sum())
            expected = n_low * weight_reading(case, low) + (n - n_low) * weight_reading(case, high)
            if 0 < n_low < n:  # of a side without rows the range means nothing
                assert costs[dimension, code] == expected


def test_rows_that_a_query_asks_for_lie_alone() -> None:
    """One range of each column: the tree parts what it holds from the rest, whatever order the rows are in."""
    rng = np.random.default_rng(0)
    codes = rng.integers(1, 5, (4_000, 2)).astype(np.int16)
    queries: list[list[Clause]] = [[(CodeSet(0, ((2, 3),)),), (CodeSet(1, ((3, 5),)),)]]
    case = Case(codes, queries, np.ones(1))
    leaf = cut_rows(case.rows, case.filters, 100)
    wanted = (codes[:, 0] == 2) & (codes[:, 1] >= 3)
    blocks = np.unique(leaf[wanted])
    assert np.isin(leaf, blocks).sum() == wanted.sum()


def test_nulls_are_cut_apart() -> None:
    codes = np.repeat([0, 3, 0, 4], 50)[:, None].astype(np.int16)
    case = Case(codes, [[(CodeSet(0, (), True),)], [(CodeSet(0, ((1, 6),)),)]], np.ones(2))
    leaf = cut_rows(case.rows, case.filters, 40)
    assert not set(leaf[codes[:, 0] == 0]) & set(leaf[codes[:, 0] > 0])


def test_rows_that_are_alike_fill_equal_blocks() -> None:
    codes = np.ones((930, 1), dtype=np.int16)
    case = Case(codes, [[(CodeSet(0, ((1, 2),)),)]], np.ones(1))
    sizes = np.bincount(cut_rows(case.rows, case.filters, 70))
    assert len(sizes) == 10
    assert sizes.max() - sizes.min() <= 1


def test_without_a_query_columns_are_halved() -> None:
    codes = np.arange(1, 5).repeat(100)[:, None].astype(np.int16)
    case = Case(codes, [[(CodeSet(0, ((1, 5),)),)]], np.ones(1))  # TRUE of every row: no cut helps
    leaf = cut_rows(case.rows, case.filters, 60)
    assert leaf.tolist() == np.arange(4).repeat(100).tolist()


SHIFTED = 50


@st.composite
def ranges(draw: st.DrawFn) -> CodeSet:
    first = draw(st.integers(1, SHIFTED - 1))
    return CodeSet(0, ((first, draw(st.integers(first + 1, SHIFTED))),), is_range=True)


@given(st.lists(ranges(), min_size=1, max_size=5), st.integers(0, 9))
def test_copies_are_ranges_among_the_codes_and_open_ends_stay_open(literals: list[CodeSet], seed: int) -> None:
    queries: list[list[Clause]] = [[(literal,)] for literal in literals]
    shifted = shift_copies(queries, [SHIFTED], [1.0], 4, seed)
    assert shifted == shift_copies(queries, [SHIFTED], [1.0], 4, seed)
    assert shifted[: len(queries)] == queries
    assert len(shifted) == 4 * len(queries)
    for place, query in enumerate(shifted):
        ((first, stop),) = literals[place % len(literals)].spans
        ((moved_first, moved_stop),) = query[0][0].spans
        assert 1 <= moved_first < moved_stop <= SHIFTED
        assert first > 1 or moved_first == 1
        assert stop < SHIFTED or moved_stop == SHIFTED


def test_ranges_move_and_lists_values_and_features_stay() -> None:
    query: list[Clause] = [
        (CodeSet(0, ((20, 25),), is_range=True),),
        (CodeSet(0, ((2, 3), (7, 8))),),
        (CodeSet(1, ((2, 3),)),),
    ]
    copies = shift_copies([query], [SHIFTED, 3], [1.0, 1.0], 20, 0)
    assert len({copy[0] for copy in copies}) > 5
    assert {copy[1] for copy in copies} == {query[1]}
    assert {copy[2] for copy in copies} == {query[2]}


def test_ranges_of_a_column_where_they_recur_stay() -> None:
    query: list[Clause] = [(CodeSet(0, ((20, 25),), is_range=True),), (CodeSet(1, ((20, 25),), is_range=True),)]
    copies = shift_copies([query], [SHIFTED, SHIFTED], [0.0, 0.5], 200, 0)
    assert {copy[0] for copy in copies} == {query[0]}
    assert 60 < sum(copy[1] == query[1] for copy in copies) < 150


def test_copies_are_as_many_as_time_allows() -> None:
    one: list[Clause] = [(CodeSet(0, ((20, 25),), is_range=True),)]
    for queries, n_codes, copies in ((1, SHIFTED, COPIES), (5_000, 600, 2), (100_000, 600, 1)):
        assert count_copies(as_arrays([one] * queries)[1], n_codes) == copies
