"""Frequent predicate sets, against brute force and the pitfalls of augmentation."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.features.augment import augment, predicate_subject
from layoutopt.features.selection import MOST_TRANSACTIONS, find_candidates
from layoutopt.model.predicates import Constant, InSet, Predicate
from layoutopt.model.predicates.subsume import subsumes
from layoutopt.model.query import Query
from tests.effort import examples
from tests.features.workloads import (
    BOTH,
    EXAMPLE_1,
    OVER_21,
    OVER_32,
    PRODUCT,
    REGION,
    REVENUE,
    SHIRTS,
    SHOES,
    comparison,
    is_in,
    predicate,
    query,
    workload,
)


def sets_of(queries: list[Query], threshold: float, max_set: int = 3) -> set[frozenset[Predicate]]:
    return {frozenset(s) for s in find_candidates(queries, threshold=threshold, max_set=max_set).sets}


def test_the_example_of_the_thesis() -> None:
    found = sets_of(EXAMPLE_1, threshold=2)
    # {product in both} and {revenue > 21} subsume two queries each, together only Q2 and Q3's: all are frequent.
    assert frozenset({predicate(BOTH)}) in found
    # {BOTH, OVER_21} subsumes what {OVER_21} does and is stricter.
    assert frozenset({predicate(BOTH), predicate(OVER_21)}) in found
    assert frozenset({predicate(OVER_21)}) not in found
    assert frozenset({predicate(OVER_32)}) not in found


def test_support_counts_subsumed_queries() -> None:
    candidates = find_candidates(EXAMPLE_1, threshold=2)
    for members, column in zip(candidates.sets, candidates.subsumes.T, strict=True):
        assert column.tolist() == [subsumes(members, q.filter.root) for q in EXAMPLE_1]


def test_sets_have_one_predicate_an_expression() -> None:
    queries = workload(*[(is_in(PRODUCT, f"p{i % 6}"), comparison(REVENUE, ">", i % 4)) for i in range(48)])
    queries += workload(*[(comparison(PRODUCT, "<>", f"p{i % 6}"), OVER_21) for i in range(24)])
    candidates = find_candidates(queries, threshold=2)
    for members in candidates.sets:
        assert len({predicate_subject(p) for p in members}) == len(members)
    assert any(len(members) == 2 for members in candidates.sets)


def test_many_unequal_predicates_do_not_explode() -> None:
    # x = 'p0' is subsumed by every x <> 'pi': each `=` query has dozens of items.
    queries = workload(*[(is_in(PRODUCT, f"p{i % 30}"), is_in(REGION, f"r{i % 2}")) for i in range(60)])
    queries += workload(*[(comparison(PRODUCT, "<>", f"p{i}"),) for i in range(30)])
    candidates = find_candidates(queries, threshold=2)
    assert len(candidates.sets) < 200
    assert all(len(m) == 1 or all(_is_list(p) for p in m) for m in candidates.sets)


def _is_list(p: Predicate) -> bool:
    return isinstance(p.literals[0], InSet) and p.literals[0].values.points() is not None


def test_a_heavy_log_is_scaled_but_counted_exactly() -> None:
    heavy = 10.0 * MOST_TRANSACTIONS
    queries = [query(SHOES, is_in(REGION, "r"), weight=heavy), query(SHIRTS, weight=3.0, number=1)]
    candidates = find_candidates(queries, threshold=3)
    assert dict(zip(map(frozenset, candidates.sets), candidates.support.tolist(), strict=True)) == {
        frozenset({predicate(SHOES), predicate(is_in(REGION, "r"))}): heavy,
        frozenset({predicate(SHIRTS)}): 3.0,
    }


def test_values_of_lists_that_never_recur_are_candidates() -> None:
    queries = workload(*[(is_in(PRODUCT, a, b),) for a, b in combinations("abcd", 2)])
    candidates = find_candidates(queries, threshold=3)
    assert {frozenset(s) for s in candidates.sets} == {frozenset({predicate(is_in(PRODUCT, v))}) for v in "abcd"}
    assert candidates.support.tolist() == [0.0] * 4
    assert np.allclose(candidates.weights @ candidates.shares, 1.5)


@pytest.mark.parametrize("threshold", [1, 2, 3])
def test_no_queries_no_candidates(threshold: int) -> None:
    candidates = find_candidates([], threshold=threshold)
    assert candidates.sets == ()
    assert candidates.shares.shape == (0, 0)


LITERALS = st.one_of(
    st.builds(lambda v: is_in(PRODUCT, *v), st.sets(st.sampled_from("abc"), min_size=1, max_size=2)),
    st.builds(lambda v: comparison(REVENUE, ">", v), st.integers(0, 3)),
    st.builds(lambda v: is_in(REGION, v), st.sampled_from("xy")),
)


@settings(max_examples=examples(40))
@given(st.lists(st.lists(LITERALS, min_size=1, max_size=3), min_size=1, max_size=8), st.integers(1, 3))
def test_every_frequent_set_is_helped_by_a_candidate_as_strict(filters: list[list[InSet]], threshold: int) -> None:
    queries = workload(*filters)
    candidates = find_candidates(queries, threshold=threshold, max_set=2)
    found = {tuple(column) for column in candidates.subsumes.T.tolist()}
    items = augment(queries, threshold).predicates
    # Each single frequent predicate's queries are those of some candidate.
    roots = {q.filter: q.filter.root for q in queries}.values()
    rows = [root for root in roots if not isinstance(root, Constant)]
    for item in items:
        subsumed = tuple(subsumes((item,), root) for root in rows)
        if candidates.weights @ np.array(subsumed) >= threshold:
            assert subsumed in found
