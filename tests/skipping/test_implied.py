"""What follows from a node for many predicates at once, against ``implies`` and ``subsumes`` one by one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.model.feature import Feature, FeatureSet
from layoutopt.model.predicates import FALSE, TRUE, And, Filter, InSet, Node, Or, Predicate
from layoutopt.model.predicates.subsume import implies, subsumes
from layoutopt.model.values import ValueSet
from layoutopt.skipping.cannot_match import FeatureIndex, ImpliedPredicates
from tests.effort import examples
from tests.model.conditions import col, conditions, leaves, to_node

ALWAYS = Predicate((InSet(col("i"), ValueSet.all(), null=True),))
"""TRUE of every row, though it names a column."""


@st.composite
def nodes_with_predicates(draw: st.DrawFn) -> tuple[list[Node], list[Predicate]]:
    """Nodes, some with constants in them as no normal form has, and predicates on the same columns and others."""
    plain = [to_node(one) for one in draw(st.lists(conditions("ijs", max_leaves=6), min_size=1, max_size=4))]
    chosen = draw(st.lists(conditions("ijs", max_leaves=3) | leaves("ijs"), max_size=6))
    made = [predicate for one in (*map(to_node, chosen), *plain) for predicate in Filter.of(one).predicates]
    joined: list[Node] = [And((plain[0], FALSE)), Or((plain[0], FALSE)), And((TRUE, plain[-1])), And(()), Or(())]
    return [*plain, *joined, TRUE, FALSE], list(dict.fromkeys([*made, ALWAYS]))


@settings(max_examples=examples(300))
@given(nodes_with_predicates())
def test_what_follows_is_what_implies_says(case: tuple[list[Node], list[Predicate]]) -> None:
    nodes, predicates = case
    implied = ImpliedPredicates(predicates)
    for node in nodes:
        found = implied.of(node)
        assert [bool(found >> i & 1) for i in range(len(predicates))] == [implies(node, one) for one in predicates]


@given(nodes_with_predicates(), st.data())
def test_the_features_that_an_index_finds_subsume_the_node(
    case: tuple[list[Node], list[Predicate]], data: st.DataObject
) -> None:
    nodes, predicates = case
    sets = data.draw(st.lists(st.lists(st.sampled_from(predicates), min_size=1, max_size=3, unique=True), max_size=6))
    features = FeatureSet(tuple(dict.fromkeys(Feature(tuple(one)) for one in sets)))
    index = FeatureIndex(features)
    for node in nodes:
        # A predicate on other columns is left out: it could only be one that says nothing.
        wanted = [
            i
            for i, feature in enumerate(features.features)
            if all(node.columns & one.columns for one in feature.predicates) and subsumes(feature.predicates, node)
        ]
        assert list(index.subsuming(node)) == wanted
