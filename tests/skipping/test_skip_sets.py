"""Skip sets against cannot_match, which they are another form of."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.model.arrays import Bits
from layoutopt.model.feature import Feature, FeatureSet
from layoutopt.model.predicates import FALSE, TRUE, Filter, InSet, Node, conjunction, disjunction
from layoutopt.model.query import Query
from layoutopt.model.values import ValueSet, compare
from layoutopt.model.vectors import pack
from layoutopt.skipping.cannot_match import BlockStatistics, FeatureBits, cannot_match
from layoutopt.skipping.skip_sets import SkipSet, SkipSetFinder, membership_matrix, skip_set_table
from tests.effort import examples
from tests.model.conditions import Both, Condition, Either, In, Not, col, conditions, leaves, to_node


def in_set(column: str, *values: int) -> InSet:
    united = ValueSet.empty()
    for value in values:
        united = united.union(compare("=", value, "int"))
    return InSet(col(column), united)


def features_of(*nodes: Node) -> FeatureSet:
    return FeatureSet(tuple(Feature(Filter.of(node).predicates) for node in nodes if Filter.of(node).predicates))


def every_vector(n_features: int) -> Bits:
    return np.array(list(product([False, True], repeat=n_features)), dtype=np.bool_).reshape(2**n_features, n_features)


def skipped_by(skip_sets: tuple[SkipSet, ...], bits: Bits) -> list[bool]:
    return [any(not row[sorted(skip_set)].any() for skip_set in skip_sets) for row in bits]


def skipped_by_rule(node: Node, features: FeatureSet, bits: Bits) -> list[bool]:
    statistics = BlockStatistics(rows=np.ones(len(bits), dtype=np.int64), bits=FeatureBits(pack(bits)))
    return [bool(skipped) for skipped in cannot_match(node, statistics, features, by_statistics=False)]


def parts_of(condition: Condition) -> list[Condition]:
    """The condition and everything in it: features made of these subsume parts of the filter."""
    match condition:
        case Not(part):
            return [condition, *parts_of(part)]
        case Both(parts) | Either(parts):
            return [condition, *(found for part in parts for found in parts_of(part))]
        case In(column, values):
            return [condition, *(In(column, (value,)) for value in values)]
    return [condition]


@st.composite
def filters_with_features(draw: st.DrawFn) -> tuple[Node, FeatureSet]:
    asked = draw(conditions("ijs", max_leaves=5))
    related = st.sampled_from(parts_of(asked))
    chosen = draw(st.lists(related | leaves("ijs"), min_size=1, max_size=6))
    return to_node(asked), features_of(*(to_node(one) for one in chosen))


@settings(max_examples=examples(300))
@given(filters_with_features())
def test_a_filter_skips_where_all_features_of_some_skip_set_are_0(case: tuple[Node, FeatureSet]) -> None:
    node, features = case
    bits = every_vector(len(features))
    skip_sets = SkipSetFinder(features).skip_sets(node)
    assert skipped_by(skip_sets, bits) == skipped_by_rule(node, features, bits)


@given(filters_with_features())
def test_skip_sets_are_minimal_and_ordered(case: tuple[Node, FeatureSet]) -> None:
    node, features = case
    skip_sets = SkipSetFinder(features).skip_sets(node)
    assert not [(a, b) for a in skip_sets for b in skip_sets if a < b]
    assert list(skip_sets) == sorted(set(skip_sets), key=lambda skip_set: (len(skip_set), sorted(skip_set)))


def test_a_list_is_skipped_by_all_of_its_values_or_by_one_feature_of_the_list() -> None:
    asked = conjunction([in_set("i", 1, 2), in_set("j", 3)])
    features = features_of(in_set("i", 1), in_set("i", 2), in_set("i", 1, 2, 4), in_set("j", 0), in_set("j", 3))
    assert SkipSetFinder(features).skip_sets(asked) == (frozenset({2}), frozenset({4}), frozenset({0, 1}))


def test_an_or_needs_a_skip_set_of_each_part() -> None:
    features = features_of(in_set("i", 1), in_set("j", 3))
    finder = SkipSetFinder(features)
    assert finder.skip_sets(disjunction([in_set("i", 1), in_set("j", 3)])) == (frozenset({0, 1}),)
    assert finder.skip_sets(disjunction([in_set("i", 1), in_set("j", 4)])) == ()


def test_constants() -> None:
    finder = SkipSetFinder(features_of(in_set("i", 1)))
    assert finder.skip_sets(TRUE) == ()
    assert finder.skip_sets(FALSE) == (frozenset(),)


def test_too_many_skip_sets_are_left_out_and_the_others_still_prove() -> None:
    values = list(range(8))
    # Two features for every value: 2 ** 8 skip sets.
    pairs = [in_set("i", value, 100 + 10 * value + k) for value in values for k in range(2)]
    features = features_of(*pairs)
    node = in_set("i", *values)
    skip_sets = SkipSetFinder(features).skip_sets(node)
    assert 0 < len(skip_sets) <= 64
    bits = np.random.default_rng(4).random((3000, len(features))) < 0.3
    by_skip_sets, by_rule = skipped_by(skip_sets, bits), skipped_by_rule(node, features, bits)
    assert sum(by_skip_sets) > 0
    assert not [1 for mine, rule in zip(by_skip_sets, by_rule, strict=True) if mine and not rule]


def test_a_workloads_table_says_which_query_has_which_skip_set() -> None:
    features = features_of(in_set("i", 1), in_set("i", 2), in_set("j", 3))
    nodes = [in_set("i", 1, 2), in_set("j", 3), conjunction([in_set("i", 1), in_set("j", 3)]), in_set("j", 9)]
    queries = [Query(i, "t", ("i", "j"), Filter.of(node)) for i, node in enumerate(nodes)]
    skip_sets, matrix = skip_set_table(queries, features)
    assert skip_sets == (frozenset({0}), frozenset({2}), frozenset({0, 1}))
    assert matrix.astype(int).tolist() == [[0, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 0]]
    assert membership_matrix(skip_sets, 3).tolist() == [[1, 0, 1], [0, 0, 1], [0, 1, 0]]


def test_a_workload_without_queries_or_features_has_no_skip_sets() -> None:
    skip_sets, matrix = skip_set_table([], features_of(in_set("i", 1)))
    assert (skip_sets, matrix.shape) == ((), (0, 0))
    skip_sets, matrix = skip_set_table([Query(0, "t", (), Filter.of(in_set("i", 1)))], FeatureSet(()))
    assert (skip_sets, matrix.shape) == ((), (1, 0))


def test_of_too_many_skip_sets_the_strictest_are_kept() -> None:
    values = list(range(10))
    general = [in_set("i", *range(start, 11)) for start in range(3)]
    features = features_of(*general, *(in_set("i", value) for value in values))
    alone = {value: features.features.index(Feature(Filter.of(in_set("i", value)).predicates)) for value in values}
    # Any value from 2 on has four skip sets; the list is best skipped by the features of its values alone.
    skip_sets = SkipSetFinder(features).skip_sets(in_set("i", 2, 4, 6, 8, 9))
    assert frozenset(alone[value] for value in (2, 4, 6, 8, 9)) in skip_sets


def test_the_values_of_a_list_are_kept_before_pairs_of_general_features() -> None:
    values = list(range(10))
    unlike = [InSet(col("j"), in_set("j", value).values.complement()) for value in (*range(8), *range(40, 56))]
    features = features_of(*unlike, *(in_set("j", value) for value in range(20)), *(in_set("i", v) for v in values))
    asked = conjunction([InSet(col("j"), in_set("j", 30).values.complement()), in_set("i", 0, 2, 4, 6, 8)])
    alone = {features.features.index(Feature(Filter.of(in_set("i", v)).predicates)) for v in (0, 2, 4, 6, 8)}
    assert frozenset(alone) in SkipSetFinder(features).skip_sets(asked)
