"""The retrieval path against the thesis's example and against brute force."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.model.layout import ByVectors, Layout
from layoutopt.model.retrieval import (
    RetrievalPath,
    cells_scanned,
    cheapest_path,
    choose_path,
    greedy_layouts,
    query_cost,
)


def layouts(*columns: str, master: bool = True) -> list[Layout]:
    return [Layout(tuple(each), (), tuple(each) if master else (), ByVectors()) for each in columns]


def test_the_example_of_figure_5_6() -> None:
    path = choose_path(["2", "3", "4"], layouts("23", "24"), [4, 2], {"2": [0, 1], "3": [0], "4": [1]})
    assert path == RetrievalPath(((0, ("3",)), (1, ("2", "4"))))
    assert query_cost(path.reads([4, 2])) == 14


def test_equal_rows_are_read_from_the_layout_that_serves_most() -> None:
    eligible = {"a": [0, 1], "b": [1, 2], "c": [1]}
    assert choose_path("abc", layouts("a", "abc", "b"), [5, 5, 5], eligible).layouts == (1,)


def test_counting_rows_reads_a_layout_that_has_them_all() -> None:
    both = [*layouts("a", master=False), *layouts("ab", "b")]
    assert choose_path([], both, [1, 9, 7], {}) == RetrievalPath(((2, ()),))
    with pytest.raises(ValueError, match="master"):
        choose_path([], layouts("a", master=False), [1], {})


def test_a_column_that_no_layout_serves_is_named() -> None:
    with pytest.raises(ValueError, match="'b'"):
        choose_path(["a", "b"], layouts("a"), [1], {"a": [0]})


def every_path(columns: str, eligible: dict[str, list[int]]) -> list[RetrievalPath]:
    paths = []
    for choice in product(*(eligible[column] for column in columns)):
        by_layout = [
            (k, tuple(c for c, chosen in zip(columns, choice, strict=True) if chosen == k)) for k in sorted(set(choice))
        ]
        paths.append(RetrievalPath(tuple(by_layout)))
    return paths


@given(st.data(), st.booleans())
def test_greedy_reads_the_fewest_cells_and_the_best_path_is_that_of_brute_force(
    data: st.DataObject, many: bool
) -> None:
    columns = "abcd"
    rows = data.draw(st.lists(st.integers(0, 5), min_size=3, max_size=3))
    indexes = st.lists(st.integers(0, 2), min_size=1, unique=True)
    eligible = {column: data.draw(indexes) for column in columns}
    all_layouts = layouts("abcd", "abcd", "abcd")
    greedy = choose_path(columns, all_layouts, rows, eligible)
    assert sorted(column for _, some in greedy.columns for column in some) == list(columns)
    costs = {path: query_cost(path.reads(rows)) for path in every_path(columns, eligible)}
    assert cells_scanned(greedy.reads(rows)) == min(cells_scanned(path.reads(rows)) for path in costs)
    optimum = min(costs.values())
    assert costs[greedy] <= 2 * optimum
    found = cheapest_path(columns, all_layouts, rows, eligible, 0 if many else 100)
    assert found.path in costs
    assert found.cost == costs[found.path]
    assert found.greedy == costs[greedy]
    if many:
        assert optimum <= found.cost <= found.greedy
        return
    assert found.cost == optimum
    if found.other is not None:
        assert found.other[0] != found.path
        assert found.other[1] == costs[found.other[0]] >= found.cost
    assert (found.other is None) == (found.compared == 1)


def test_one_layout_for_all_may_beat_the_fewest_cells() -> None:
    eligible = {"a": [0, 2], "b": [1, 2]}
    found = cheapest_path("ab", layouts("a", "b", "ab"), [10, 10, 15], eligible)
    # Two layouts: 20 cells and 20 tids. One: 30 cells.
    assert (found.path.layouts, found.cost, found.greedy) == ((2,), 30, 40)
    assert found.other is not None
    assert found.other[1] == 40


@given(st.data())
def test_the_greedy_choice_is_fewest_rows_then_most_columns_then_the_first(data: st.DataObject) -> None:
    n_layouts, n_columns, n_queries = (data.draw(st.integers(1, 4)) for _ in range(3))
    holds = np.array(data.draw(st.lists(st.lists(st.booleans(), min_size=n_columns, max_size=n_columns),
                                        min_size=n_layouts, max_size=n_layouts)))  # fmt: skip
    rows = np.array([[data.draw(st.sampled_from([1.0, 2.0, np.inf])) for _ in range(n_queries)] for _ in holds])
    found = greedy_layouts(rows, holds)
    for column, query in product(range(n_columns), range(n_queries)):
        readable = [i for i in range(n_layouts) if holds[i, column] and rows[i, query] < np.inf]
        if readable:
            wanted = min(readable, key=lambda i: (rows[i, query], -int(holds[i].sum()), i))
            assert found[column, query] == wanted
