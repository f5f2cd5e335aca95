"""The bound of cells is below every grouping's cost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from layoutopt.partitioning.block_sizes import min_rows_for
from layoutopt.search.grouping import cells_lower_bound, grouping_cost
from layoutopt.search.gsop import one_group, single_columns
from layoutopt.search.problem import Problem
from layoutopt.search.rows import ComputedRows
from tests.effort import examples
from tests.search.problems import WARD, bits_of, problems, random_problem


@given(problems())
@settings(max_examples=examples(60))
def test_no_grouping_reads_less_than_the_rows_that_are_needed(problem: Problem) -> None:
    exact = ComputedRows(problem, WARD)
    for groups in (one_group(problem), single_columns(problem)):
        assert cells_lower_bound(problem) <= grouping_cost(problem, groups, exact) + 1e-6


def test_whole_blocks_are_read_where_a_row_is_needed() -> None:
    problem = random_problem(7, n_queries=6, n_samples=2, least_rows=30, scale=3, block_rows=70)
    needed, in_blocks = cells_lower_bound(problem), cells_lower_bound(problem, min_rows_for(70))
    expected = 0.0
    for sample, bits in zip(problem.samples, bits_of(problem), strict=True):
        for q in range(6):
            rows = 3 * int(sample.vectors.counts[~problem.skippable(bits)[:, q]].sum())
            block = min(sample.rows, 3 * round(50 / 3))
            expected += sample.query_weights[q] * (max(rows, block) if rows else 0) * problem.reads[q].sum()
    assert in_blocks == pytest.approx(expected)
    assert 0 < needed <= in_blocks
    assert np.isfinite(in_blocks)
