"""Merging by readers on whole arrays is merging pair by pair."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.model.arrays import Floats
from layoutopt.search.grouping import agglomerate
from tests.effort import examples

Groups = dict[int, tuple[list[int], np.ndarray, float]]


def gain(one: Floats, other: Floats, size: Floats, others_size: Floats, common: Floats) -> Floats:
    """By chance, as it were, but a function of what it is given."""
    return common * 3 - (one + other - common) * 0.5 - np.sin(size + others_size)


def naively(readers: np.ndarray, weight: np.ndarray, size: np.ndarray, most: int | None) -> list[list[int]]:
    groups: Groups = {i: ([i], readers[i], float(size[i])) for i in range(len(readers))}
    while len(groups) > (most or 1):

        def of(i: int, j: int, groups: Groups = groups) -> float:
            (_, one, a), (_, other, b) = groups[i], groups[j]
            counts = [np.array([float(weight[mask].sum())]) for mask in (one, other, one & other)]
            return float(gain(counts[0], counts[1], np.array([a]), np.array([b]), counts[2])[0])

        i, j = min(combinations(groups, 2), key=lambda pair: (-of(*pair), pair))
        if most is None and of(i, j) <= 0:
            break
        (first, one, a), (second, other, b) = groups.pop(i), groups.pop(j)
        groups[2 * len(readers) - len(groups) - 2] = (first + second, one | other, a + b)
    return [members for members, _, _ in groups.values()]


@settings(max_examples=examples(40))
@given(st.integers(1, 9), st.integers(1, 6), st.none() | st.integers(1, 5), st.integers(0, 10_000))
def test_the_pair_that_gains_most_is_merged_again_and_again(n: int, queries: int, most: int | None, seed: int) -> None:
    rng = np.random.default_rng(seed)
    readers = rng.random((n, queries)) < 0.5
    weight, size = rng.integers(1, 5, queries).astype(np.float64), rng.integers(1, 9, n).astype(np.float64)
    found = agglomerate(readers, weight, size, gain, most)
    assert {frozenset(group) for group in found} == {frozenset(g) for g in naively(readers, weight, size, most)}
    if most is not None:
        assert len(found) == min(n, most)


@pytest.mark.parametrize("most", [None, 1, 3])
def test_one_group_stays_alone(most: int | None) -> None:
    assert agglomerate(np.ones((1, 2), dtype=np.bool_), np.ones(2), np.ones(1), gain, most) == [[0]]
