"""Redundancy elimination as the thesis has it, and the order that keeps general features."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.features.selection import Candidates, eliminate_redundant, find_candidates, rank_by_coverage
from layoutopt.model.predicates import Predicate
from tests.features.workloads import (
    OVER_21,
    OVER_32,
    PRODUCT,
    REVENUE,
    SHIRTS,
    SHOES,
    comparison,
    is_in,
    predicate,
    query,
    workload,
)


def kept(candidates: Candidates, ranked: tuple[tuple[int, float], ...]) -> list[tuple[set[Predicate], float]]:
    return [(set(candidates.sets[i]), gain) for i, gain in ranked]


def test_a_general_set_is_redundant_when_a_stricter_one_has_its_queries() -> None:
    queries = [query(OVER_32, weight=5.0), query(OVER_21, weight=1.0, number=1)]
    candidates = find_candidates(queries, threshold=2)
    assert kept(candidates, eliminate_redundant(candidates, 2)) == [({predicate(OVER_32)}, 5.0)]


def test_a_general_set_stays_for_what_it_adds() -> None:
    queries = [query(OVER_32, weight=5.0), query(OVER_21, weight=3.0, number=1)]
    candidates = find_candidates(queries, threshold=2)
    assert kept(candidates, eliminate_redundant(candidates, 2)) == [
        ({predicate(OVER_32)}, 5.0),
        ({predicate(OVER_21)}, 3.0),
    ]


def test_the_order_is_from_strict_to_general() -> None:
    queries = workload(*[(comparison(REVENUE, ">", v),) for v in (10, 20, 30, 40)])
    candidates = find_candidates(queries, threshold=1)
    assert [gain for _, gain in eliminate_redundant(candidates, 1)] == [1.0, 1.0, 1.0, 1.0]


def test_coverage_keeps_a_general_set_where_specific_ones_cover_the_training_queries() -> None:
    queries = [query(OVER_32, weight=8.0), query(OVER_21, weight=3.0, number=1)]
    candidates = find_candidates(queries, threshold=4)
    general = candidates.sets.index((predicate(OVER_21),))
    assert general not in [i for i, _ in eliminate_redundant(candidates, 4)]
    # Some constant between the two comes next: the general feature is there for it.
    assert general in [i for i, _ in rank_by_coverage(candidates, 5)]


def test_coverage_prefers_selective_sets() -> None:
    queries = [
        query(is_in(PRODUCT, "a"), weight=10.0),
        query(comparison(PRODUCT, "<>", "b"), weight=12.0, number=1),
        query(is_in(PRODUCT, "b"), weight=1.0, number=2),
        query(is_in(PRODUCT, "c"), weight=1.0, number=3),
    ]
    candidates = find_candidates(queries, threshold=1)
    first, gain = kept(candidates, rank_by_coverage(candidates, 1))[0]
    assert first == {predicate(is_in(PRODUCT, "a"))}
    assert gain > 6.0


def test_coverage_stops_when_nothing_is_added() -> None:
    candidates = find_candidates(workload((SHOES,), (SHOES,), (SHIRTS,), (SHIRTS,)), threshold=2)
    assert len(rank_by_coverage(candidates, 100)) == 2


def test_coverage_of_no_candidates_is_empty() -> None:
    assert rank_by_coverage(find_candidates([], threshold=1), 5) == ()
    assert eliminate_redundant(find_candidates([], threshold=1), 1) == ()


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 9)), min_size=1, max_size=8), st.integers(1, 6))
def test_gains_never_grow_and_never_exceed_the_workload(rows: list[tuple[int, int]], limit: int) -> None:
    queries = [query(comparison(REVENUE, ">", v), weight=float(w), number=i) for i, (v, w) in enumerate(rows)]
    candidates = find_candidates(queries, threshold=1)
    gains = [gain for _, gain in rank_by_coverage(candidates, limit)]
    assert len(gains) <= limit
    assert sum(gains) <= sum(w for _, w in rows)
    added = [gain for _, gain in eliminate_redundant(candidates, 1)]
    assert np.isclose(sum(added), sum(w for _, w in rows))
