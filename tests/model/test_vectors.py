"""Packed vectors against plain boolean matrices."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from layoutopt.model.vectors import (
    VectorCounts,
    any_of,
    bit_shares,
    distinct,
    feature_bit,
    pack,
    project,
    union,
    unpack,
    with_more_bits,
    words_for,
)

matrices = hnp.arrays(np.bool_, st.tuples(st.integers(0, 30), st.integers(0, 130)))


def test_bit_order_is_the_documented_one() -> None:
    bits = np.zeros((1, 70), dtype=bool)
    bits[0, [0, 63, 64, 69]] = True
    assert pack(bits).tolist() == [[1 | 1 << 63, 1 | 1 << 5]]


@given(matrices)
def test_unpack_reverses_pack(bits: np.ndarray) -> None:
    words = pack(bits)
    assert words.dtype == np.uint64
    assert words.shape == (len(bits), words_for(bits.shape[1]))
    for stored in (words, np.asfortranarray(words)):
        np.testing.assert_array_equal(unpack(stored, bits.shape[1]), bits)


@given(hnp.arrays(np.bool_, st.tuples(st.integers(0, 20), st.integers(1, 130))), st.data())
def test_project_and_feature_bit_pick_columns(bits: np.ndarray, data: st.DataObject) -> None:
    features = data.draw(st.lists(st.integers(0, bits.shape[1] - 1), max_size=90))
    np.testing.assert_array_equal(unpack(project(pack(bits), features), len(features)), bits[:, features])
    for feature in features[:3]:
        np.testing.assert_array_equal(feature_bit(pack(bits), feature), bits[:, feature])


@given(hnp.arrays(np.bool_, st.tuples(st.integers(0, 40), st.integers(0, 70))), st.integers(1, 6))
def test_union_is_the_or_of_each_group(bits: np.ndarray, n_groups: int) -> None:
    groups = np.random.default_rng(len(bits)).integers(0, n_groups, len(bits))
    unions = unpack(union(pack(bits), groups, n_groups), bits.shape[1])
    for group in range(n_groups):
        np.testing.assert_array_equal(unions[group], bits[groups == group].any(axis=0))


@given(
    hnp.arrays(
        np.uint64, st.tuples(st.integers(0, 40), st.integers(1, 3)), elements=st.sampled_from([0, 1, 2, 3, 2**63])
    )
)
def test_distinct_is_sorted_complete_and_counted(words: np.ndarray) -> None:
    vectors, inverse, counts = distinct(words)
    assert [tuple(v) for v in vectors.tolist()] == sorted({tuple(w) for w in words.tolist()})
    np.testing.assert_array_equal(vectors[inverse], words)
    assert counts.tolist() == [int((words == v).all(axis=1).sum()) for v in vectors]


def test_counts_project_merges_vectors_that_become_equal() -> None:
    bits = np.array([[1, 0, 1], [1, 1, 1], [0, 1, 0], [1, 1, 1]], dtype=bool)
    counts = VectorCounts.of_rows(pack(bits), 3)
    assert (len(counts), counts.rows) == (3, 4)
    projected = counts.project([2, 0])
    assert projected.bits().tolist() == [[False, False], [True, True]]
    assert projected.counts.tolist() == [1, 3]


@given(hnp.arrays(bool, hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=140)), st.data())
def test_any_of_and_bit_shares_look_at_each_bit(bits: np.ndarray, data: st.DataObject) -> None:
    n_rows, n_features = bits.shape
    features = data.draw(st.lists(st.integers(0, n_features - 1), unique=True)) if n_features else []
    np.testing.assert_array_equal(any_of(pack(bits), features), bits[:, features].any(axis=1))
    expected = bits.mean(axis=0) if n_rows else np.zeros(n_features)
    np.testing.assert_array_equal(bit_shares(pack(bits), n_features), expected)


def test_long_vectors_are_projected_in_parts() -> None:
    bits = np.random.default_rng(1).random((40_000, 130)) < 0.5
    features = np.random.default_rng(2).permutation(130)[:100].tolist()
    np.testing.assert_array_equal(project(pack(bits), features), pack(bits[:, features]))
    np.testing.assert_array_equal(bit_shares(pack(bits), 130), bits.mean(axis=0))


@given(matrices, hnp.arrays(np.bool_, st.tuples(st.just(0), st.integers(0, 130))), st.randoms())
def test_more_bits_follow_those_that_are_there(bits: np.ndarray, shape: np.ndarray, random: Random) -> None:
    more = np.array([[random.random() < 0.5 for _ in range(shape.shape[1])] for _ in bits], dtype=np.bool_)
    more = more.reshape(len(bits), shape.shape[1])
    found = with_more_bits(pack(bits), bits.shape[1], more)
    assert found.tolist() == pack(np.hstack([bits, more])).tolist()


ONES = pack(np.ones((1, 64), dtype=bool))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: VectorCounts(ONES, np.ones(1, dtype=np.int64), 65), "65 features"),
        (lambda: VectorCounts(pack(np.ones((1, 128), dtype=bool)), np.ones(1, dtype=np.int64), 129), "129 features"),
        (lambda: VectorCounts(ONES, np.zeros(1, dtype=np.int64), 64), "count is 0"),
        (lambda: unpack(ONES, 65), "65 features"),
        (lambda: project(ONES, [0, 64]), "65 features"),
        (lambda: any_of(ONES, [0, 64]), "65 features"),
    ],
)
def test_bits_that_words_do_not_have_are_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()
