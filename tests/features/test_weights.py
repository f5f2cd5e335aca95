"""Weights: Eq. 3.1, parts of disjunctions, and marginal weights."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.features.weights import feature_shares, feature_weights
from layoutopt.model.feature import Feature, FeatureSet, SessionSettings
from tests.features.workloads import BOTH, EITHER, EXAMPLE_1, OVER_21, SHIRTS, SHOES, predicate, query

FEATURES = FeatureSet(
    (
        Feature((predicate(SHOES),), 1.0),
        Feature((predicate(BOTH), predicate(OVER_21)), 1.0),
        Feature((predicate(OVER_21),), 1.0),
    ),
    SessionSettings(),
)


def test_shares_are_one_exactly_where_the_feature_subsumes() -> None:
    assert ((feature_shares(FEATURES, EXAMPLE_1) == 1.0) == FEATURES.matrix(EXAMPLE_1)).all()


def test_a_part_of_a_disjunction_counts_as_a_part() -> None:
    shares = feature_shares(FEATURES, [query(BOTH), query(EITHER), query(SHIRTS)])
    assert shares.tolist() == [[0.5, 0.0, 0.0], [0.5, 0.0, 0.5], [0.0, 0.0, 0.0]]


def test_plain_weights_are_sums() -> None:
    matrix = np.array([[True, True], [False, True]])
    assert feature_weights(matrix, np.array([2.0, 3.0])).tolist() == [2.0, 5.0]


def test_queries_that_do_not_reach_the_partition_weigh_nothing() -> None:
    assert feature_weights(np.ones((2, 1), dtype=bool), np.array([0.0, 3.0])).tolist() == [3.0]


def test_marginal_weights_need_selectivity() -> None:
    with pytest.raises(ValueError, match="selectivity"):
        feature_weights(np.ones((1, 1), dtype=bool), np.ones(1), marginal=True)


def test_the_most_selective_feature_gets_the_whole_weight() -> None:
    weights = feature_weights(np.ones((1, 3), dtype=bool), np.ones(1), np.array([0.5, 0.1, 1.0]), marginal=True)
    assert weights == pytest.approx([0.1, 1.0, 0.05])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.integers(0, 63))
def test_marginal_skips_never_exceed_one_pass_over_the_rows(selectivity: list[float], bits: int) -> None:
    matrix = np.array([[bool(bits >> i & 1) for i in range(len(selectivity))]])
    s = np.array(selectivity)
    weights = feature_weights(matrix, np.ones(1), s, marginal=True)
    assert (weights <= matrix[0] + 1e-12).all()
    assert weights @ (1 - s) <= 1 + 1e-9
