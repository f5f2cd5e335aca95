"""Augmentation against the thesis's example, and against subsumption query by query."""

from __future__ import annotations

import pytest

from layoutopt.features.augment import Augmented, Exclusion, augment, compare_strictness, predicate_subject
from layoutopt.features.implications import Implications
from layoutopt.model.predicates import InSet, Node, Predicate
from layoutopt.model.predicates.subsume import subsumes
from tests.features.workloads import (
    BOTH,
    EITHER,
    EXAMPLE_1,
    OVER_21,
    OVER_32,
    PRODUCT,
    REGION,
    SHIRTS,
    SHOES,
    is_in,
    predicate,
    query,
    workload,
)


def subsumed_by(augmented: Augmented, row: int) -> set[Predicate]:
    return {p for p, held in zip(augmented.predicates, augmented.subsumes[row], strict=True) if held}


def test_the_example_of_the_thesis() -> None:
    augmented = augment(EXAMPLE_1, threshold=1)
    shoes, shirts, both, over_32, over_21 = map(predicate, (SHOES, SHIRTS, BOTH, OVER_32, OVER_21))
    assert subsumed_by(augmented, 0) == {shoes, both}
    assert subsumed_by(augmented, 1) == {both, over_32, over_21}
    assert subsumed_by(augmented, 2) == {shirts, over_21, both}


@pytest.mark.parametrize("nodes", [(SHOES,), (BOTH, OVER_32), (EITHER,), (EITHER, OVER_21), (is_in(REGION, "x"),)])
def test_the_matrix_is_subsumption(nodes: tuple[Node, ...]) -> None:
    predicates = [predicate(p) for p in (SHOES, SHIRTS, BOTH, OVER_32, OVER_21)]
    root = query(*nodes).filter.root
    row = Implications(predicates).implied(root)
    assert row.tolist() == [subsumes((p,), root) for p in predicates]


@pytest.mark.parametrize(
    ("items", "nodes", "shares"),
    [
        ([SHOES, BOTH, OVER_21], (BOTH,), [0.5, 1.0, 0.0]),  # a value of a list covers its part
        ([SHOES, OVER_21], (BOTH, OVER_32), [0.5, 1.0]),  # the best covered conjunct counts
        ([SHOES, OVER_21, SHIRTS], (EITHER,), [0.5, 0.5, 0.0]),  # a disjunct covers its part
    ],
)
def test_parts_of_a_filter_are_covered(items: list[InSet], nodes: tuple[Node, ...], shares: list[float]) -> None:
    assert Implications([predicate(item) for item in items]).shares(query(*nodes).filter.root).tolist() == shares


def test_values_of_lists_become_items() -> None:
    lists = workload((is_in(PRODUCT, "a", "b"),), (is_in(PRODUCT, "b", "c"),))
    augmented = augment(lists, threshold=2)
    assert predicate(is_in(PRODUCT, "b")) in augmented.predicates
    assert predicate(is_in(PRODUCT, "a")) not in augmented.predicates


def test_equal_filters_are_one_row_with_their_weights_added() -> None:
    augmented = augment([query(SHOES, weight=2.0), query(SHIRTS), query(SHOES, weight=3.0, number=1)], threshold=1)
    assert augmented.weights.tolist() == [5.0, 1.0]


def test_excluded_columns_make_no_items_in_any_case() -> None:
    augmented = augment(EXAMPLE_1, threshold=1, exclusion=Exclusion.of(["REVENUE"]))
    assert set(augmented.predicates) == {predicate(SHOES), predicate(SHIRTS), predicate(BOTH)}


def test_what_helps_too_few_queries_is_left_out() -> None:
    augmented = augment(EXAMPLE_1, threshold=2)
    assert set(augmented.predicates) == {predicate(SHOES), predicate(SHIRTS), predicate(BOTH), predicate(OVER_21)}


def test_no_queries_no_items() -> None:
    augmented = augment([], threshold=1)
    assert augmented.predicates == ()
    assert augmented.subsumes.shape == (0, 0)


def test_stricter_than_is_reflexive_and_follows_subsumption() -> None:
    matrix = compare_strictness([predicate(OVER_21), predicate(OVER_32)])
    assert matrix.tolist() == [[True, False], [True, True]]


def test_a_predicate_about_one_expression_has_it_as_subject() -> None:
    assert predicate_subject(predicate(SHOES)) == PRODUCT
    (mixed,) = query(EITHER).filter.predicates
    assert predicate_subject(mixed) == frozenset({PRODUCT, OVER_32.subject})
