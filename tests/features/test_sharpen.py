"""Stricter features for the same queries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from layoutopt.features.selection import mine_all
from layoutopt.features.sharpen import add_stricter_features, drop_stricter_features, sharpest
from layoutopt.model.feature import Feature, FeatureSet
from layoutopt.model.predicates import InSet, Predicate
from layoutopt.model.query import Query
from layoutopt.model.schema import Column, Schema
from tests.features.workloads import BOTH, OVER_21, OVER_32, REGION, SHIRTS, SHOES, is_in, predicate, workload

EUROPE = is_in(REGION, "europe")
ASKED: list[InSet] = [SHOES, SHIRTS, BOTH, OVER_21, OVER_32, EUROPE]


def features(*sets: list[InSet]) -> FeatureSet:
    return FeatureSet(tuple(Feature(tuple(map(predicate, one)), 10.0 - i) for i, one in enumerate(sets)))


def predicates(*literals: InSet) -> frozenset[Predicate]:
    return frozenset(map(predicate, literals))


def sets_of(found: FeatureSet) -> list[frozenset[Predicate]]:
    return [frozenset(feature.predicates) for feature in found]


def test_a_feature_takes_in_what_all_of_its_queries_ask_for_too() -> None:
    queries = workload((SHOES, OVER_21), (SHIRTS, OVER_21), (SHOES, OVER_32))
    mined = features([OVER_21], [SHOES], [SHIRTS])
    found = add_stricter_features(mined, queries)
    assert found.features[:3] == mined.features
    assert sets_of(found)[3:] == [predicates(SHOES, OVER_21), predicates(SHIRTS, OVER_21)]
    assert [feature.weight for feature in found][3:] == [9.0, 8.0]
    assert sharpest(found, queries) == [0, 3, 4]
    assert drop_stricter_features(found, queries) == [0, 1, 2]


def test_features_with_the_same_queries_become_one_of_the_largest_weight() -> None:
    queries = workload((SHOES, OVER_32, EUROPE))
    found = add_stricter_features(features([SHOES], [OVER_32], [EUROPE]), queries)
    assert sets_of(found)[3:] == [predicates(SHOES, OVER_32, EUROPE)]
    assert found[3].weight == 10.0
    assert sharpest(found, queries) == [3]
    assert drop_stricter_features(found, queries) == [0, 1, 2]


def test_a_set_grows_no_larger_than_allowed_and_has_one_predicate_an_expression() -> None:
    queries = workload((SHOES, OVER_32, EUROPE))
    found = add_stricter_features(features([SHOES], [OVER_32], [EUROPE]), queries, max_set=2)
    assert sets_of(found)[3:] == [predicates(SHOES, OVER_32)]
    assert len(add_stricter_features(features([OVER_21], [OVER_32]), queries)) == 2
    whole = features([SHOES, OVER_32, EUROPE])
    assert add_stricter_features(whole, queries, max_set=2) == whole


def test_features_that_no_query_asks_for_stay_as_they_are() -> None:
    queries = workload((SHOES, OVER_21))
    mined = features([OVER_21], [EUROPE])
    assert add_stricter_features(mined, queries) == mined
    assert sharpest(mined, queries) == drop_stricter_features(mined, queries) == [0, 1]


def test_all_features_of_a_workload_have_their_stricter_ones_last() -> None:
    schema = Schema((Column("product", "string"), Column("revenue", "int"), Column("region", "string")))
    queries = workload(*[(SHOES, OVER_21)] * 4, *[(SHIRTS, OVER_21)] * 3)
    found = mine_all(queries, schema, threshold=2, num_features=8, date_features=2)
    assert found == add_stricter_features(
        FeatureSet(tuple(found[i] for i in drop_stricter_features(found, queries))), queries
    )
    assert len(mine_all(queries, schema, threshold=2, num_features=8, date_features=2, max_set=1)) == len(
        drop_stricter_features(found, queries)
    )


filters = st.lists(st.sampled_from(ASKED), min_size=1, max_size=3, unique=True)


@given(st.lists(filters, min_size=1, max_size=5), st.lists(filters, min_size=1, max_size=5), st.integers(1, 4))
def test_a_stricter_feature_subsumes_the_same_queries(
    asked: list[list[InSet]], sets: list[list[InSet]], max_set: int
) -> None:
    queries: list[Query] = workload(*map(tuple, asked))
    mined = features(*sets)
    found = add_stricter_features(mined, queries, max_set)
    matrix = found.matrix(queries)
    assert found.features[: len(mined)] == mined.features
    known = [column.tobytes() for column in matrix[:, : len(mined)].T]
    for column, feature in zip(matrix.T[len(mined) :], found.features[len(mined) :], strict=True):
        assert column.any()
        assert column.tobytes() in known
        assert len(feature.predicates) <= max_set
    kept = sharpest(found, queries)
    for i, column in enumerate(matrix.T):
        assert i in kept or any(matrix[:, j].tobytes() == column.tobytes() for j in kept)
