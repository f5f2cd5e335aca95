"""Slices of a segment: cut where queries begin and end, so that they read the fewest rows."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.model.layout import CUT_BY, ByVectors, Layout, Plan, Scheme
from layoutopt.model.schema import Column, Schema
from layoutopt.writer.cutting import cells_of
from layoutopt.writer.slices import MOST_SLICES, best_starts, slice_rows
from tests.spark.tables import document, is_value, plan_of

SCHEMA = Schema((Column("id", "int"), Column("kind", "int")))


def read_by(starts: Ints, rows: Ints, reached: Bits, weights: Floats) -> float:
    """What queries read of runs of cells, each whole or not at all."""
    runs = np.split(np.arange(len(rows)), starts[1:])
    return float(sum(rows[run].sum() * weights[reached[:, run].any(axis=1)].sum() for run in runs))


@given(data=st.data(), cells=st.integers(1, 7), queries=st.integers(1, 5), most=st.integers(1, 7))
def test_no_cut_into_as_many_runs_reads_fewer_rows(data: st.DataObject, cells: int, queries: int, most: int) -> None:
    numbers = st.integers(0, 9)
    rows = np.array(data.draw(st.lists(numbers, min_size=cells, max_size=cells)), dtype=np.int64)
    flags = st.lists(st.booleans(), min_size=cells, max_size=cells)
    reached = np.array(data.draw(st.lists(flags, min_size=queries, max_size=queries)), dtype=np.bool_)
    weights = np.array(data.draw(st.lists(numbers, min_size=queries, max_size=queries)), dtype=np.float64)
    starts = best_starts(rows, reached, weights, most)
    assert starts[0] == 0
    assert (np.diff(starts) > 0).all()
    assert len(starts) <= min(most, cells)

    def least(runs: int) -> float:
        ways = (np.array((0, *rest)) for rest in combinations(range(1, cells), runs - 1))
        return min(read_by(way, rows, reached, weights) for way in ways)

    found, whole = read_by(starts, rows, reached, weights), least(1)
    assert found == least(len(starts))
    if len(starts) < min(most, cells):
        assert least(len(starts) + 1) >= found - 0.005 * whole, "one more would have been worth it"


def a_plan(*bounds: int) -> Plan:
    """Queries for what is below each bound."""
    plan = plan_of(document(SCHEMA, [is_value(SCHEMA, "id", "<", bound) for bound in bounds]), block_rows=20)
    layout = Layout(SCHEMA.names, (), SCHEMA.names, ByVectors(params=((CUT_BY, "id"),)))
    return replace(plan, scheme=Scheme((layout,)))


def ids(values: list[int | None]) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int32()), "kind": pa.array([0] * len(values), pa.int32())})


@pytest.mark.parametrize("values", [list(range(200)), list(range(199, -1, -1)), [None, 7, None, 3, 150], [None], [5]])
def test_cells_are_in_the_order_of_values_and_no_query_ends_within_one(values: list[int | None]) -> None:
    cell = cells_of(a_plan(50, 51, 150), "id", ids(values))
    keys = [-1 if value is None else value for value in values]
    in_order = np.argsort(keys, kind="stable")
    assert (np.diff(cell[in_order]) >= 0).all()
    for bound in (50, 51, 150):
        below = {int(c) for c, value in zip(cell, values, strict=True) if value is not None and value < bound}
        others = {int(c) for c, value in zip(cell, values, strict=True) if value is None or value >= bound}
        assert below.isdisjoint(others)


def sliced(plan: Plan, table: pa.Table, weights: Floats) -> list[int]:
    """The rows of each set of slices, ascending."""
    slices = slice_rows(plan, frozenset(SCHEMA.names), table, cells_of(plan, "id", table), weights)
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
