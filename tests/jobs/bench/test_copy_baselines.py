"""Selective replication and full copies, the baselines of GSOP-R: what they store, and for which queries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.bench.copy_baselines import copy_selectively, make_full_copies
from layoutopt.partitioning.objective import Partition
from layoutopt.search.costs import find_families
from layoutopt.search.gsop import search_groups
from layoutopt.search.problem import Problem
from layoutopt.search.replication import ReplicatedScheme, ReplicationSearch, scheme_from_layouts
from tests.effort import examples
from tests.search.problems import WARD, crossing, found_by, problems, random_problem


def selective(search: ReplicationSearch, budget: float) -> ReplicatedScheme:
    allowed = budget * search.unit_storage
    return search.measured(copy_selectively(search.problem, search.plain, allowed, search.estimate), budget)


def full_copies(search: ReplicationSearch, copies: int, partitioner: Any = WARD) -> ReplicatedScheme:
    return search.measured(make_full_copies(search.problem, copies, partitioner, search.estimate), float(copies))


@settings(max_examples=examples(40), deadline=None)
@given(problems(), st.sampled_from([1.0, 1.3, 3.0]))
def test_selective_copies_stay_within_the_budget(problem: Problem, budget: float) -> None:
    _, search = found_by(problem)
    found = selective(search, budget)
    assert found.storage <= budget + 1e-9
    assert scheme_from_layouts(search.exact.evaluator, found.layouts, "ward").columns == set(problem.columns)


def test_a_selective_copy_holds_what_one_feature_requests() -> None:
    cost, search = found_by(crossing())
    found = selective(search, 1.6)
    copies = [layout for layout in found.layouts if layout.copy]
    # Each copy is a quarter of the rows of two columns of four: four of them fit.
    assert len(copies) == 4
    assert all(len(layout.served) == 1 and len(layout.columns) == 2 for layout in copies)
    assert found.storage == pytest.approx(1.5)
    assert found.cost < cost


@settings(max_examples=examples(40), deadline=None)
@given(problems(), st.integers(1, 3))
def test_full_copies_store_the_table_so_often(problem: Problem, copies: int) -> None:
    _, search = found_by(problem)
    found = full_copies(search, copies)
    assert found.cells == pytest.approx(copies)
    for query, reads in enumerate(problem.reads):
        held = {column for layout in found.layouts if query in layout.served for column in layout.columns}
        assert set(np.flatnonzero(reads).tolist()) <= held


def test_each_full_copy_is_for_one_family() -> None:
    _, search = found_by(crossing())
    found = full_copies(search, 2)
    assert found.cost == 8 * 40 * 2
    assert full_copies(search, 1).cost > found.cost


@pytest.mark.long
@pytest.mark.slow
def test_full_copies_of_many_families_take_a_bounded_number_of_partitionings() -> None:
    """Hardly two queries read the same columns: pairs of families are thousands, pairs of a few clusters are not."""
    problem = random_problem(3, n_columns=12, n_features=8, n_queries=60, max_vectors=20)
    calls = 0

    def counting(*args: Any, **kwargs: Any) -> Partition:
        nonlocal calls
        calls += 1
        return WARD(*args, **kwargs)

    search = ReplicationSearch(problem, counting, search_groups(problem, WARD).best.groups)
    calls = 0
    full_copies(search, 2, counting)
    assert len(find_families(problem)) > 24
    assert calls < 3_500
