"""Ranges of the log that stand for their like."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from layoutopt.partitioning.value_cuts import COPIES, Clause, CodeSet, add_shifted_copies, count_copies

N_CODES = 50


@st.composite
def ranges(draw: st.DrawFn) -> CodeSet:
    first = draw(st.integers(1, N_CODES - 1))
    return CodeSet(0, ((first, draw(st.integers(first + 1, N_CODES))),), is_range=True)


@given(st.lists(ranges(), min_size=1, max_size=5), st.integers(0, 9))
def test_copies_are_ranges_among_the_codes_and_open_ends_stay_open(literals: list[CodeSet], seed: int) -> None:
    queries: list[list[Clause]] = [[(literal,)] for literal in literals]
    found = add_shifted_copies(queries, [N_CODES], [1.0], 4, seed)
    assert found == add_shifted_copies(queries, [N_CODES], [1.0], 4, seed)
    assert found[: len(queries)] == queries
    assert len(found) == 4 * len(queries)
    for place, query in enumerate(found):
        ((first, stop),) = literals[place % len(literals)].spans
        ((moved_first, moved_stop),) = query[0][0].spans
        assert 1 <= moved_first < moved_stop <= N_CODES
        assert first > 1 or moved_first == 1
        assert stop < N_CODES or moved_stop == N_CODES


def test_ranges_move_and_lists_values_and_features_stay() -> None:
    query: list[Clause] = [
        (CodeSet(0, ((20, 25),), is_range=True),),
        (CodeSet(0, ((2, 3), (7, 8))),),
        (CodeSet(1, ((2, 3),)),),
    ]
    copies = add_shifted_copies([query], [N_CODES, 3], [1.0, 1.0], 20, 0)
    assert len({copy[0] for copy in copies}) > 5
    assert {copy[1] for copy in copies} == {query[1]}
    assert {copy[2] for copy in copies} == {query[2]}


def test_ranges_of_a_column_where_they_recur_stay() -> None:
    query: list[Clause] = [(CodeSet(0, ((20, 25),), is_range=True),), (CodeSet(1, ((20, 25),), is_range=True),)]
    copies = add_shifted_copies([query], [N_CODES, N_CODES], [0.0, 0.5], 200, 0)
    assert {copy[0] for copy in copies} == {query[0]}
    assert 60 < sum(copy[1] == query[1] for copy in copies) < 150


def test_copies_are_as_many_as_memory_allows() -> None:
    one: list[Clause] = [(CodeSet(0, ((20, 25),), is_range=True),)]
    assert count_copies([one], N_CODES) == COPIES
    assert count_copies([one] * 5_000, 600) == 2
    assert count_copies([one] * 100_000, 600) == 1
