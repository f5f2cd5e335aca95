"""Features as the thesis finds them: what a stricter set has is redundant."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jobs.bench.thesis_features import eliminate_redundant, mine_by_thesis
from layoutopt.features.selection import Candidates, find_candidates
from layoutopt.model.feature import SessionSettings
from layoutopt.model.predicates import Predicate
from layoutopt.model.schema import Column, Schema
from tests.features.workloads import OVER_21, OVER_32, PRODUCT, REVENUE, comparison, is_in, predicate, query, workload


def kept(candidates: Candidates, ranked: tuple[tuple[int, float], ...]) -> list[tuple[set[Predicate], float]]:
    return [(set(candidates.sets[i]), gain) for i, gain in ranked]


def test_the_weight_is_the_number_of_queries_additionally_subsumed() -> None:
    queries = [query(is_in(PRODUCT, "a"), weight=5.0), query(comparison(PRODUCT, "<>", "b"), weight=3.0, number=1)]
    schema = Schema((Column("product", "string"),))
    features = mine_by_thesis(queries, schema, SessionSettings())
    assert [(feature.predicates, feature.weight) for feature in features] == [
        ((predicate(is_in(PRODUCT, "a")),), 5.0),
        ((predicate(comparison(PRODUCT, "<>", "b")),), 3.0),
    ]


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


def test_no_candidate_has_no_rank() -> None:
    assert eliminate_redundant(find_candidates([], threshold=1), 1) == ()


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 9)), min_size=1, max_size=8))
def test_gains_sum_to_the_workload(rows: list[tuple[int, int]]) -> None:
    queries = [query(comparison(REVENUE, ">", v), weight=float(w), number=i) for i, (v, w) in enumerate(rows)]
    added = [gain for _, gain in eliminate_redundant(find_candidates(queries, threshold=1), 1)]
    assert np.isclose(sum(added), sum(w for _, w in rows))
