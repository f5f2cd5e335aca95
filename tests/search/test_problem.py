"""From queries and features to arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.model.feature import Feature, FeatureSet
from layoutopt.model.predicates import Col, Filter, InSet, Node, conjunction
from layoutopt.model.query import Query
from layoutopt.model.values import ValueSet, compare
from layoutopt.model.vectors import VectorCounts, pack
from layoutopt.search.grouping import grouping_cost
from layoutopt.search.local import block_sample, local_weights
from layoutopt.search.problem import Problem, Sample, make_problem
from layoutopt.search.rows import ComputedRows
from layoutopt.skipping.cannot_match import BlockStatistics, FeatureBits, cannot_match
from tests.search.problems import WARD

COLUMNS = ("a", "b", "c")


def is_in(column: str, *values: int) -> InSet:
    united = ValueSet.empty()
    for value in values:
        united = united.union(compare("=", value, "int"))
    return InSet(Col(column, "int"), united)


FEATURES = FeatureSet(
    tuple(Feature(Filter.of(node).predicates) for node in (is_in("a", 1), is_in("a", 2), is_in("b", 1, 2)))
)
NODES: list[Node] = [
    is_in("a", 1),
    is_in("a", 2),
    is_in("a", 1, 2),
    is_in("b", 1),
    is_in("b", 2),
    is_in("c", 3),
    conjunction([is_in("a", 1), is_in("b", 1)]),
]
queries = st.lists(
    st.builds(
        lambda node, columns, weight: Query(0, "t", columns, Filter.of(node), weight),
        st.sampled_from(NODES),
        st.sets(st.sampled_from(COLUMNS)).map(lambda names: tuple(n for n in COLUMNS if n in names)),
        st.integers(1, 4).map(float),
    ),
    min_size=1,
    max_size=10,
)
VECTORS = VectorCounts.of_rows(pack(np.random.default_rng(7).random((120, 3)) < 0.4), 3)


def problem_of(asked: list[Query]) -> Problem:
    sample = Sample(VECTORS, VECTORS.rows, np.array([query.weight for query in asked]))
    return make_problem(asked, FEATURES, COLUMNS, [sample], block_rows=5, max_vectors=100)


@given(queries)
def test_queries_that_read_and_skip_alike_become_one_and_keep_their_weight(asked: list[Query]) -> None:
    problem = problem_of(asked)
    assert len({row.tobytes() for row in np.concatenate([problem.reads, problem.skips], axis=1)}) == len(problem.reads)
    assert problem.weights.sum() == sum(query.weight for query in asked)
    for number, name in enumerate(COLUMNS):
        readers = sum(query.weight for query in asked if name in query.columns)
        assert problem.weights[0] @ problem.reads[:, number] == readers


@given(queries)
def test_one_group_costs_what_cannot_match_leaves_of_its_blocks(asked: list[Query]) -> None:
    """The whole way from queries: blocks are looked at by the scan's own rule, query by query."""
    problem = problem_of(asked)
    rows_read = ComputedRows(problem, WARD)
    found = grouping_cost(problem, (frozenset(range(3)),), rows_read)
    everyone = np.any(problem.reads, axis=1)
    features = rows_read.guides(everyone)
    weights = local_weights(problem, everyone)[0]
    blocks = block_sample(problem, problem.samples[0], features, weights, WARD)
    statistics = BlockStatistics(rows=blocks.rows.astype(np.int64), bits=FeatureBits(pack(blocks.unions)))
    expected = 0.0
    for query in asked:
        skipped = cannot_match(query.filter.root, statistics, FEATURES, by_statistics=False)
        expected += query.weight * len(query.columns) * float(blocks.rows[~skipped].sum())
    assert found == pytest.approx(expected)


def test_skippable_asks_for_every_member_of_some_skip_set() -> None:
    problem = problem_of([Query(i, "t", ("a",), Filter.of(node)) for i, node in enumerate([NODES[2], NODES[6]])])
    unions = np.array([[0, 0, 1], [1, 0, 1], [0, 1, 1], [1, 1, 0]], dtype=np.bool_)
    found = problem.skippable(unions)
    by_size = np.argsort(problem.skips.sum(axis=1))  # a IN (1, 2) has one skip set, the AND two
    assert found[:, by_size].tolist() == [[True, True], [False, False], [False, True], [False, True]]
    assert problem.skippable(unions, np.arange(2) == by_size[0]).tolist() == [[True], [False], [False], [False]]


def test_selectivity_is_of_all_samples_by_rows() -> None:
    one = VectorCounts(pack(np.array([[True, False, False], [False, False, False]])), np.array([30, 10]), 3)
    other = VectorCounts(pack(np.array([[False, True, False]])), np.array([60]), 3)
    samples = [Sample(one, 40, np.ones(1)), Sample(other, 600, np.ones(1))]
    query = Query(0, "t", ("a",), Filter.of(NODES[0]))
    problem = make_problem([query], FEATURES, COLUMNS, samples, block_rows=5, max_vectors=9)
    assert problem.selectivity.tolist() == [0.3, 0.6, 0.0]
    assert [sample.scale for sample in problem.samples] == [1, 10]
