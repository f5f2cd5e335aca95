"""Routing a segment's rows to blocks: numpy and Arrow only."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from layoutopt.model.layout import ByOrder, ByVectors, Layout, Plan
from layoutopt.model.schema import Column, Schema
from layoutopt.model.vectors import VectorCounts, Words, matching_share, pack
from layoutopt.spark.routing import layout_weights, limit_vectors, queries_reaching, route, union_words
from tests.spark.tables import document, is_value, plan_of

SCHEMA = Schema((Column("id", "int"), Column("kind", "int")))


def a_plan(block_rows: int = 20, max_vectors: int = 100) -> Plan:
    kinds = document(SCHEMA, [is_value(SCHEMA, "kind", "=", kind) for kind in range(4)])
    return plan_of(kinds, block_rows=block_rows, max_vectors=max_vectors)


def rows(n: int = 200) -> tuple[pa.Table, Words]:
    kinds = np.arange(n) % 5
    table = pa.table({"id": pa.array(np.arange(n), pa.int32()), "kind": pa.array(kinds, pa.int32())})
    return table, pack(kinds[:, None] == np.arange(4))


def test_rows_of_a_block_keep_the_order_of_the_source() -> None:
    table, words = rows()
    plan = a_plan(block_rows=20)
    routing = route(plan, plan.scheme.layouts[0], table, words, np.ones(4))
    assert sorted(routing.rows.tolist()) == list(range(200))
    for start, stop in zip(routing.offsets[:-1], routing.offsets[1:], strict=True):
        assert (np.diff(routing.rows[start:stop]) > 0).all()
        assert len(np.unique(routing.rows[start:stop] % 5)) == 1


def test_unions_are_of_the_rows_routed() -> None:
    table, words = rows()
    plan = a_plan(block_rows=20)
    routing = route(plan, plan.scheme.layouts[0], table, words, np.ones(4))
    for block, union in enumerate(union_words(words, routing)):
        members = words[routing.rows[routing.offsets[block] : routing.offsets[block + 1]]]
        assert union[0] == np.bitwise_or.reduce(members[:, 0])


def test_a_layout_of_copies_has_only_rows_of_its_features() -> None:
    table, words = rows()
    plan = a_plan(block_rows=20)
    copies = Layout(("id", "kind"), (1, 2), ("kind",), ByVectors())
    assert set((route(plan, copies, table, words, np.ones(4)).rows % 5).tolist()) == {1, 2}
    none = route(plan, copies, table, np.zeros_like(words), np.ones(4))
    assert (len(none.rows), none.offsets.tolist()) == (0, [0])


@pytest.mark.parametrize("kind", ["sort", "range", "zorder", "hilbert"])
def test_every_order_has_every_row_once(kind: str) -> None:
    table, words = rows()
    plan = a_plan(block_rows=30)
    layout = Layout(SCHEMA.names, (), SCHEMA.names, ByOrder(kind, ("kind", "id")))
    routing = route(plan, layout, table, words, np.ones(4))
    assert sorted(routing.rows.tolist()) == list(range(200))
    assert (np.diff(routing.offsets) > 0).all()


def test_queries_beyond_the_segments_bounds_weigh_nothing() -> None:
    table, words = rows()
    plan = a_plan()
    shares = np.eye(4)
    matching = matching_share(words, 4)
    everything = layout_weights(plan, plan.scheme.layouts[0], shares, queries_reaching(plan, table), matching)
    assert (everything > 0).all()
    few = np.flatnonzero(np.arange(200) % 5 <= 1)
    reached = queries_reaching(plan, table.take(pa.array(few)))
    weights = layout_weights(plan, plan.scheme.layouts[0], shares, reached, matching_share(words[few], 4))
    assert (weights > 0).tolist() == [True, True, False, False]


def test_queries_that_read_no_column_of_a_layout_weigh_nothing_there() -> None:
    table, words = rows()
    kind_only = tuple(replace(query, columns=("kind",)) for query in a_plan().queries)
    plan = replace(a_plan(), queries=kind_only)
    layout = Layout(("id",), (0, 1, 2, 3), ("id",), ByVectors())
    weights = layout_weights(plan, layout, np.eye(4), queries_reaching(plan, table), matching_share(words, 4))
    assert weights.tolist() == [0.0, 0.0, 0.0, 0.0]


def test_rare_vectors_join_the_nearest_by_weight() -> None:
    bits = np.array([[1, 0, 0], [0, 0, 1], [1, 1, 0]], dtype=np.bool_)
    words = pack(np.repeat(bits, [10, 10, 1], axis=0))
    vectors = VectorCounts.of_rows(words, 3)
    rare = int(np.flatnonzero(vectors.counts == 1)[0])
    near = int(np.flatnonzero((vectors.bits() == bits[0]).all(axis=1))[0])
    far = int(np.flatnonzero((vectors.bits() == bits[1]).all(axis=1))[0])
    assert limit_vectors(vectors, np.ones(3), 3).tolist() == [0, 1, 2]
    assert limit_vectors(vectors, np.ones(3), 2)[rare] == near
    assert limit_vectors(vectors, np.array([0.0, 0.0, 1.0]), 2)[rare] == near
    assert limit_vectors(vectors, np.array([1.0, 0.0, 0.0]), 2)[rare] == near
    assert set(limit_vectors(vectors, np.ones(3), 1).tolist()) <= {near, far}


def test_joined_vectors_are_counted_and_no_row_is_lost() -> None:
    table, words = rows()
    plan = a_plan(block_rows=20, max_vectors=2)
    routing = route(plan, plan.scheme.layouts[0], table, words, np.ones(4))
    assert routing.joined_vectors == 3
    assert sorted(routing.rows.tolist()) == list(range(200))
