"""Slices of a segment: cut where queries begin and end, so that they read the fewest rows."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.model.layout import CUT_BY, ByVectors, Layout, Plan, Scheme
from layoutopt.model.predicates import TRUE, And, Col, InSet, Node, Or, disjunction
from layoutopt.model.schema import Column, Schema
from layoutopt.model.values import ValueSet
from layoutopt.skipping.cannot_match import cannot_match
from layoutopt.writer.routing import MOST_SLICES, CellRows, _project_node, best_starts, range_statistics, slice_rows
from layoutopt.writer.value_cuts import assign_cells
from tests.spark.tables import document, is_value, plan_of

SCHEMA = Schema((Column("id", "int"), Column("kind", "int")))


def read_by(starts: Ints, rows: Ints, reached: Bits, weights: Floats) -> float:
    """What queries read of runs of cells, each whole or not at all; of gaps those within a run count."""
    runs = pairwise((*starts.tolist(), len(rows)))
    return float(sum(rows[a:b].sum() * weights[reached[:, 2 * a : 2 * b - 1].any(axis=1)].sum() for a, b in runs))


@given(data=st.data(), cells=st.integers(1, 6), queries=st.integers(1, 5), most=st.integers(1, 6))
def test_no_other_cut_reads_fewer_rows_for_its_number_of_runs(
    data: st.DataObject, cells: int, queries: int, most: int
) -> None:
    numbers = st.integers(0, 9)
    rows = np.array(data.draw(st.lists(numbers, min_size=cells, max_size=cells)), dtype=np.int64)
    flags = st.lists(st.booleans(), min_size=2 * cells - 1, max_size=2 * cells - 1)
    reached = np.array(data.draw(st.lists(flags, min_size=queries, max_size=queries)), dtype=np.bool_)
    weights = np.array(data.draw(st.lists(numbers, min_size=queries, max_size=queries)), dtype=np.float64)
    starts = best_starts(rows, reached, weights, most)
    assert starts[0] == 0
    assert (np.diff(starts) > 0).all()
    assert len(starts) <= min(most, cells)
    whole = read_by(np.array([0]), rows, reached, weights)

    def cost(starts: Ints) -> float:
        return read_by(starts, rows, reached, weights) + 0.005 * whole * (len(starts) - 1)

    ways = [(0, *rest) for runs in range(min(most, cells)) for rest in combinations(range(1, cells), runs)]
    assert cost(starts) == pytest.approx(min(cost(np.array(way)) for way in ways))


def test_runs_that_save_nothing_cost_something() -> None:
    assert best_starts(np.full(5, 10), np.zeros((1, 9), dtype=np.bool_), np.ones(1)).tolist() == [0]
    first = np.array([[1, 0, 0]], dtype=np.bool_)
    assert best_starts(np.array([1000, 1]), first, np.ones(1)).tolist() == [0]
    assert best_starts(np.array([100, 1]), first, np.ones(1)).tolist() == [0, 1]
    # Two cuts save a third where one saves nothing.
    outside = np.array([[1, 0, 0, 0, 1]], dtype=np.bool_)
    assert best_starts(np.full(3, 10), outside, np.ones(1)).tolist() == [0, 1, 2]


def a_plan(*bounds: int) -> Plan:
    """Queries for what is below each bound."""
    plan = plan_of(document(SCHEMA, [is_value(SCHEMA, "id", "<", bound) for bound in bounds]), block_rows=20)
    layout = Layout(SCHEMA.names, (), SCHEMA.names, ByVectors(params=((CUT_BY, "id"),)))
    return replace(plan, scheme=Scheme((layout,)))


def ids(values: list[int | None]) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int32()), "kind": pa.array([0] * len(values), pa.int32())})


@pytest.mark.parametrize("values", [list(range(200)), list(range(199, -1, -1)), [None, 7, None, 3, 150], [None], [5]])
def test_cells_are_in_the_order_of_values_and_no_query_ends_within_one(values: list[int | None]) -> None:
    cell = assign_cells(a_plan(50, 51, 150), "id", ids(values))
    keys = [-1 if value is None else value for value in values]
    in_order = np.argsort(keys, kind="stable")
    assert (np.diff(cell[in_order]) >= 0).all()
    for bound in (50, 51, 150):
        below = {int(c) for c, value in zip(cell, values, strict=True) if value is not None and value < bound}
        others = {int(c) for c, value in zip(cell, values, strict=True) if value is None or value >= bound}
        assert below.isdisjoint(others)


def test_cells_end_at_ranges_that_stand_beside_other_columns() -> None:
    either = disjunction([is_value(SCHEMA, "id", "<", 70), is_value(SCHEMA, "kind", "=", 1)])
    plan = plan_of(document(SCHEMA, [either]), block_rows=20)
    cell = assign_cells(plan, "id", ids(list(range(1000))))
    assert cell[69] < cell[70]


def by_id(plan: Plan, table: pa.Table) -> CellRows:
    return CellRows(plan, table, "id", assign_cells(plan, "id", table))


def sliced(plan: Plan, table: pa.Table, weights: Floats) -> list[int]:
    """The rows of each set of slices, ascending."""
    slices = slice_rows(by_id(plan, table), frozenset(SCHEMA.names), weights)
    assert slices.shares.shape == (len(plan.queries), slices.bits.shape[1])
    return sorted(slices.bits.sum(axis=0).tolist())


def test_slices_begin_where_queries_do_and_go_by_what_they_are_worth() -> None:
    bounds = tuple(range(7, 7 * 20, 7))
    table = ids(list(range(200)))
    plan = a_plan(*bounds)
    assert sliced(a_plan(50, 120), table, np.ones(2)) == [50, 120]
    assert len(sliced(plan, table, np.ones(len(bounds)))) < MOST_SLICES < len(bounds)
    # Only one of all queries is worth anything: nothing else is cut.
    assert sliced(plan, table, np.eye(len(bounds))[4]) == [bounds[4]]


def test_nothing_to_skip_makes_no_slices() -> None:
    table = ids(list(range(200)))
    assert sliced(a_plan(1000), table, np.ones(1)) == []
    assert sliced(a_plan(50), table, np.zeros(1)) == []
    nowhere = slice_rows(by_id(a_plan(50), table), frozenset({"kind"}), np.ones(1))
    assert nowhere.bits.shape == (200, 0)


def test_values_that_no_row_has_are_cut_for_too() -> None:
    """A block with rows on both sides of such a value is read for it."""
    table = ids([*range(100), *range(200, 300)])
    plan = a_plan()
    absent = document(SCHEMA, [is_value(SCHEMA, "id", "=", value) for value in (150, 151)]).queries
    plan = replace(plan, queries=absent)
    slices = slice_rows(by_id(plan, table), frozenset(SCHEMA.names), np.ones(2))
    assert slices.bits.shape[1] == 0, "cut at the gap, no slice is reached"
    # One query for each of many values that lie between those of rows.
    sparse = ids(list(range(0, 4000, 10)))
    queries = document(SCHEMA, [is_value(SCHEMA, "id", "=", value) for value in range(5, 4000, 100)]).queries
    plan = replace(plan, queries=queries)
    slices = slice_rows(by_id(plan, sparse), frozenset(SCHEMA.names), np.ones(len(queries)))
    read = np.array([slices.bits[:, shared > 0].sum() for shared in slices.shares])
    assert (slices.shares.sum(axis=1) == 1).sum() >= len(queries) - MOST_SLICES
    assert read.mean() < 0.1 * sparse.num_rows


def test_lists_of_values_make_a_bounded_number_of_sets() -> None:
    drawn = np.random.default_rng(0)
    table = ids(list(range(1000)))
    lists = [in_list(drawn.choice(1000, 4, replace=False).tolist()) for _ in range(300)]
    plan = replace(a_plan(), queries=document(SCHEMA, lists).queries)
    slices = slice_rows(by_id(plan, table), frozenset(SCHEMA.names), np.ones(300))
    assert slices.bits.shape[1] == slices.shares.shape[1] == 64
    assert set(slices.shares.sum(axis=1).tolist()) == {0, 1}, "what has no set of its own is not said to skip"


def in_list(values: list[int]) -> Node:
    return InSet(Col("id", "int"), ValueSet.of(values))


class TestToldByBounds:
    """Leaving out what bounds of some columns say nothing of changes no answer."""

    literals = st.one_of(
        st.builds(
            is_value, st.just(SCHEMA), st.sampled_from(["id", "kind"]), st.sampled_from("<=>"), st.integers(0, 6)
        ),
        st.just(InSet(Col("id", "int"), ValueSet.empty())),
        st.just(TRUE),
    )
    nodes = st.recursive(
        literals,
        lambda children: st.builds(
            lambda kind, parts: kind(tuple(parts)),
            st.sampled_from([And, Or]),
            st.lists(children, min_size=2, max_size=3),
        ),
        max_leaves=8,
    )

    @given(nodes, st.lists(st.integers(0, 6), min_size=1, max_size=9), st.sampled_from([["id", "kind"], ["id"], []]))
    def test_no_answer_changes(self, node: Node, values: list[int], names: list[str]) -> None:
        rows = ids(list(values)).set_column(1, "kind", pa.array([value % 5 for value in values], pa.int32()))
        schema = SCHEMA.select(names)
        offsets = np.unique([0, len(values) // 3, len(values) // 2, len(values)])
        statistics = range_statistics(schema, rows.select(names), offsets.astype(np.int64))
        told = _project_node(node, frozenset(names))
        assert cannot_match(told, statistics, None).tolist() == cannot_match(node, statistics, None).tolist()
