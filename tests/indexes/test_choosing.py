"""Which indexes a log asks for, and which of them are taken."""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from layoutopt.indexes.choosing import IndexEffect, choose_indexes, find_candidates
from layoutopt.model.arrays import Floats
from layoutopt.model.schema import Column, Schema
from layoutopt.sql.scans import find_scans
from tests.effort import examples

SCHEMA = Schema((Column("n", "bigint"), Column("s", "string"), Column("tags", "array<string>")))


def kinds(condition: str) -> set[str]:
    (scan,) = find_scans(f"SELECT n FROM t WHERE {condition}", {"t": SCHEMA})
    return {str(spec) for spec in find_candidates([scan.filter.root])}


def test_a_filter_asks_for_the_indexes_that_serve_it() -> None:
    assert kinds("n = 5") == {
        "n:bloom",
        "n:bloom:0.05",
        "n:bloom:0.2",
        "n:value-list",
        "n:value-list:16384",
        "n:hybrid",
        "n:gap-list",
    }
    assert kinds("n > 5 OR n = 3") == {"n:gap-list", "n:value-list", "n:value-list:16384", "n:hybrid"}
    assert kinds("s LIKE '%word%'") == {"s:ngrams", "s:ngrams:0.1", "s:value-list", "s:value-list:16384", "s:hybrid"}
    assert "s:suffix" in kinds("s LIKE '%word'")
    assert "s:prefix" in kinds("s LIKE 'word%'") & kinds("s LIKE 'a%b'")
    assert kinds("lower(s) = 'a'") >= {"lower(s):bloom", "lower(s):hybrid"}


def test_nothing_is_asked_for_that_no_index_serves() -> None:
    for condition in ("n IS NULL", "tags IS NOT NULL", "n + 1 < n", "true"):
        assert kinds(condition) == set()


@given(st.integers(0, 2**32), st.integers(1, 6))
@settings(max_examples=examples(100))
def test_what_is_taken_fits_the_budget_and_none_of_it_is_in_vain(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    read = rng.integers(0, 100, (3, 8)).astype(np.float64)
    found = [IndexEffect(rng.random((3, 8)) < rng.random(), *rng.integers(1, 300, 2).tolist()) for _ in range(count)]
    budget = float(rng.integers(0, 600))
    taken = choose_indexes(found, read, budget)
    assert len(set(taken)) == len(taken)
    assert sum(found[i].size for i in taken) <= budget
    for i in taken:
        others = np.logical_or.reduce([np.zeros((3, 8), dtype=bool), *(found[j].skipped for j in taken if j != i)])
        assert read[found[i].skipped & ~others].sum() > found[i].read


def saved(found: list[IndexEffect], read: Floats, taken: Sequence[int]) -> float:
    skipped = np.logical_or.reduce([np.zeros(read.shape, dtype=bool), *(found[i].skipped for i in taken)])
    return float(read[skipped].sum()) - sum(found[i].read for i in taken)


def test_a_small_index_gives_way_to_a_large_one_that_saves_more() -> None:
    read = np.full((1, 4), 100.0)
    small = IndexEffect(np.array([[True, False, False, False]]), 10.0, 10.0)
    large = IndexEffect(np.array([[True, True, True, False]]), 95.0, 95.0)
    assert choose_indexes([small, large], read, 100.0) == (1,)
    assert choose_indexes([small, large], read, 94.0) == (0,)


@given(st.integers(0, 2**32), st.integers(1, 6))
@settings(max_examples=examples(100))
def test_no_exchange_of_what_is_taken_saves_more(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    read = rng.integers(0, 100, (3, 8)).astype(np.float64)
    found = [IndexEffect(rng.random((3, 8)) < rng.random(), *rng.integers(1, 300, 2).tolist()) for _ in range(count)]
    budget = float(rng.integers(0, 600))
    taken = choose_indexes(found, read, budget)
    best = saved(found, read, taken)
    for out in (None, *taken):
        for to in (None, *set(range(count)).difference(taken)):
            other = [i for i in (*taken, to) if i is not None and i != out]
            if sum(found[i].size for i in other) <= budget:
                assert saved(found, read, other) <= best + 1e-6
