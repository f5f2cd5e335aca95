"""Equations 4.1 to 4.4 and 5.2 on the thesis's own examples."""

from __future__ import annotations

import pytest

from layoutopt.model.retrieval import Read, cells_scanned, query_cost, tids_scanned
from tests.model.costs import Stored, storage_cost, workload_cost


def test_the_path_of_figure_5_6_costs_14() -> None:
    """L2 serves c2 and c4 with 2 rows, L1 serves c3 with 4: 4 + 4 cells, 2 + 4 tids."""
    reads = [Read(rows=2, columns=2), Read(rows=4, columns=1)]
    assert (cells_scanned(reads), tids_scanned(reads), query_cost(reads)) == (8, 6, 14)


def test_a_single_layout_needs_no_tids() -> None:
    assert query_cost([Read(rows=10, columns=3)]) == 30


def test_a_workload_is_the_weighted_sum() -> None:
    assert workload_cost([([Read(10, 3)], 2.0), ([Read(8, 1), Read(2, 1)], 0.5)]) == 70


def test_the_scheme_of_figure_5_4_stores_an_eighth_more() -> None:
    assert storage_cost([Stored(4, 3), Stored(2, 2, 2, 1)], rows=4, columns=4) == 18 / 16


def test_a_source_without_cells_has_no_ratio() -> None:
    with pytest.raises(ValueError, match="0 rows and 4 columns"):
        storage_cost([], rows=0, columns=4)
