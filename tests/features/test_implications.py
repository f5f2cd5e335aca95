"""What filters imply for many predicates together, against predicates one by one."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from layoutopt.features.implications import Implications, find_subsumed
from layoutopt.model.feature import Feature, FeatureSet
from layoutopt.model.predicates import (
    Col,
    Comparison,
    Filter,
    InSet,
    Literal,
    Predicate,
    conjunction,
    disjunction,
)
from layoutopt.model.predicates.normal import like
from layoutopt.model.predicates.patterns import parse_like
from layoutopt.model.predicates.subsume import implies
from layoutopt.model.query import Query
from layoutopt.model.values import ValueSet

BOUNDS = st.one_of(st.none(), st.integers(-3, 12))
SETS = st.lists(st.tuples(BOUNDS, BOUNDS), max_size=3).map(lambda pairs: ValueSet.normalised(pairs, "bigint"))
LESS, MORE = Col("a", "bigint"), Col("b", "bigint")
PREFIX, *PATTERNS = (like(Col("text", "string"), parse_like(pattern)) for pattern in ("a%", "ab_", "%a", "a"))
LEAVES: st.SearchStrategy[Literal] = st.one_of(
    st.builds(InSet, st.sampled_from([LESS, MORE]), SETS, st.booleans()),
    st.just(Comparison(LESS, "<", MORE)),
    st.sampled_from([PREFIX, *PATTERNS]),
)


@example([(PREFIX,)], PATTERNS[0])
@given(st.lists(st.lists(LEAVES, min_size=1, max_size=2).map(tuple), min_size=1, max_size=6), LEAVES)
def test_what_a_leaf_implies_is_what_it_implies_one_by_one(wanted: list[tuple[Literal, ...]], leaf: Literal) -> None:
    predicates = [Predicate(literals) for literals in wanted]
    found = Implications(predicates).implied(leaf).tolist()
    assert found == [implies(leaf, each) for each in predicates]


@given(st.lists(st.lists(LEAVES, min_size=1, max_size=2), min_size=1, max_size=4), st.lists(LEAVES, max_size=4))
def test_features_subsume_what_they_do_one_by_one(nodes: list[list[Literal]], wanted: list[Literal]) -> None:
    queries = [
        Query(i, "t", (), Filter.of(conjunction(leaves) if i % 2 else disjunction(leaves)))
        for i, leaves in enumerate(nodes)
    ]
    features = FeatureSet(tuple(Feature((Predicate((leaf,)),)) for leaf in dict.fromkeys(wanted)))
    found, expected = find_subsumed(features, queries), features.matrix(queries)
    assert found.shape == expected.shape
    assert (found == expected).all()
