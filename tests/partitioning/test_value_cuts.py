"""The tree of cuts: every row in one leaf of a fitting size, and the cost of each cut as brute force counts it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from layoutopt.model.arrays import Bits, Ints
from layoutopt.partitioning.value_cuts import (
    COPIES,
    Clause,
    CodeFilters,
    CodeRanges,
    Codes,
    CodeSet,
    Rows,
    _Node,
    _Search,
    add_shifted_copies,
    count_copies,
    cut_rows,
)

N_CODES = 6


@dataclass(frozen=True, eq=False)
class Case:
    codes: Codes
    queries: list[list[Clause]]
    weights: np.ndarray

    @property
    def filters(self) -> CodeFilters:
        return CodeFilters.of(self.queries, self.weights, self.codes.shape[1], N_CODES)

    @property
    def rows(self) -> Rows:
        def is_low(dimension: int, code: int, rows: Ints) -> Bits:
            return np.asarray(self.codes[rows, dimension] <= code)

        return Rows(len(self.codes), self.codes, is_low)


@st.composite
def cases(draw: st.DrawFn, most_rows: int = 60) -> Case:
    """Few codes, so that many rows are alike; NULLs, empty sets, and clauses without literals too."""
    n_dimensions = draw(st.integers(1, 3))
    row = st.lists(st.integers(0, N_CODES - 1), min_size=n_dimensions, max_size=n_dimensions)
    codes = np.array(draw(st.lists(row, min_size=1, max_size=most_rows)), dtype=np.int16)
    span = st.integers(1, N_CODES - 1).flatmap(lambda first: st.tuples(st.just(first), st.integers(first + 1, N_CODES)))
    literal = st.builds(CodeSet, st.integers(0, n_dimensions - 1), st.lists(span, max_size=2).map(tuple), st.booleans())
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
    node = _Node(np.arange(n), np.arange(n), np.arange(len(case.filters.literal)))
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
    found = add_shifted_copies(queries, [SHIFTED], [1.0], 4, seed)
    assert found == add_shifted_copies(queries, [SHIFTED], [1.0], 4, seed)
    assert found[: len(queries)] == queries
    assert len(found) == 4 * len(queries)
    for place, query in enumerate(found):
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
    copies = add_shifted_copies([query], [SHIFTED, 3], [1.0, 1.0], 20, 0)
    assert len({copy[0] for copy in copies}) > 5
    assert {copy[1] for copy in copies} == {query[1]}
    assert {copy[2] for copy in copies} == {query[2]}


def test_ranges_of_a_column_where_they_recur_stay() -> None:
    query: list[Clause] = [(CodeSet(0, ((20, 25),), is_range=True),), (CodeSet(1, ((20, 25),), is_range=True),)]
    copies = add_shifted_copies([query], [SHIFTED, SHIFTED], [0.0, 0.5], 200, 0)
    assert {copy[0] for copy in copies} == {query[0]}
    assert 60 < sum(copy[1] == query[1] for copy in copies) < 150


def test_copies_are_as_many_as_memory_allows() -> None:
    one: list[Clause] = [(CodeSet(0, ((20, 25),), is_range=True),)]
    assert count_copies([one], SHIFTED) == COPIES
    assert count_copies([one] * 5_000, 600) == 2
    assert count_copies([one] * 100_000, 600) == 1
