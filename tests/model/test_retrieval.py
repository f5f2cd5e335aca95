"""The retrieval path against the thesis's example and against brute force."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.model.cost import cells_scanned, query_cost
from layoutopt.model.layout import ByVectors, Layout
from layoutopt.model.retrieval import RetrievalPath, choose_path


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


@given(st.data())
def test_greedy_reads_the_fewest_cells_and_costs_at_most_twice_the_optimum(data: st.DataObject) -> None:
    columns = "abcd"
    rows = data.draw(st.lists(st.integers(0, 5), min_size=3, max_size=3))
    indexes = st.lists(st.integers(0, 2), min_size=1, unique=True)
    eligible = {column: data.draw(indexes) for column in columns}
    path = choose_path(columns, layouts("abcd", "abcd", "abcd"), rows, eligible)
    assert sorted(column for _, some in path.columns for column in some) == list(columns)
    all_paths = []
    for choice in product(*(eligible[column] for column in columns)):
        by_layout = [
            (k, tuple(c for c, chosen in zip(columns, choice, strict=True) if chosen == k)) for k in set(choice)
        ]
        all_paths.append(RetrievalPath(tuple(by_layout)).reads(rows))
    assert cells_scanned(path.reads(rows)) == min(map(cells_scanned, all_paths))
    assert query_cost(path.reads(rows)) <= 2 * min(map(query_cost, all_paths))
