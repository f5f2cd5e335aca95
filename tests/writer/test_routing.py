"""Routing a segment's rows to blocks: numpy and Arrow only."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from layoutopt.errors import PlanError
from layoutopt.model.arrays import Floats, Ints, Words
from layoutopt.model.layout import CUT_BY, WEIGHTS, Blocking, ByOrder, ByVectors, Layout, Plan, Scheme
from layoutopt.model.schema import Column, Schema
from layoutopt.model.vectors import VectorCounts, pack, unpack
from layoutopt.writer.routing import (
    Guides,
    Routing,
    blocking_key,
    feature_guides,
    find_guides,
    is_guided_by_queries,
    limit_vectors,
    measure_cell_bytes,
    route,
    route_to_one_block,
    union_words,
    weigh_reaching_queries,
)
from tests.spark.tables import document, is_value, plan_of

SCHEMA = Schema((Column("id", "int"), Column("kind", "int")))

ONES = np.ones(4)
KINDS = np.arange(200) % 5
ROWS = pa.table({"id": pa.array(np.arange(200), pa.int32()), "kind": pa.array(KINDS, pa.int32())})
WORDS = pack(KINDS[:, None] == np.arange(4))


def a_plan(block_rows: int = 20, max_vectors: int = 100) -> Plan:
    kinds = document(SCHEMA, [is_value(SCHEMA, "kind", "=", kind) for kind in range(4)])
    return plan_of(kinds, block_rows=block_rows, max_vectors=max_vectors)


def routed(plan: Plan, layout: Layout | None = None, weights: Floats = ONES, words: Words = WORDS) -> Routing:
    """The rows in blocks of a layout, by default the plan's own."""
    layout = layout or plan.scheme.layouts[0]
    return route(plan, layout, ROWS, words, feature_guides(layout, words, weights))


def guides_of(
    plan: Plan, layout: Layout, shares: Floats, table: pa.Table = ROWS, words: Words = WORDS, **options: Any
) -> Guides:
    """The guides for the queries that the bounds of the table's rows let reach it, if the layout has such guides."""
    if not is_guided_by_queries(plan, layout):
        return feature_guides(layout, words, plan.features.weights)
    reached = weigh_reaching_queries(plan.queries, plan.schema, table)
    return find_guides(plan, layout, table, words, shares, reached, **options)


def blocks_of(routing: Routing) -> list[Ints]:
    return np.split(routing.rows, routing.offsets[1:-1])


def test_rows_of_a_block_keep_the_order_of_the_source() -> None:
    routing = routed(a_plan())
    assert sorted(routing.rows.tolist()) == list(range(200))
    for block in blocks_of(routing):
        assert (np.diff(block) > 0).all()
        assert len(np.unique(block % 5)) == 1


def test_predicate_sort_puts_the_heaviest_features_first_and_keeps_equal_vectors_in_order() -> None:
    plan = a_plan(block_rows=40)
    layout = replace(plan.scheme.layouts[0], blocking=ByOrder("predicate-sort"))
    routing = routed(plan, layout, np.array([1.0, 4.0, 2.0, 3.0]))
    kinds = routing.rows.reshape(5, 40) % 5
    assert kinds[:, 0].tolist() == [1, 3, 2, 0, 4]
    assert (kinds == kinds[:, :1]).all()
    assert (np.diff(routing.rows.reshape(5, 40), axis=1) > 0).all()
    assert routing.offsets.tolist() == [0, 40, 80, 120, 160, 200]
    without_features = routed(plan, replace(layout, features=()))
    assert without_features.rows.tolist() == list(range(200))


def test_unions_are_of_the_rows_routed() -> None:
    routing = routed(a_plan())
    unions = [np.bitwise_or.reduce(WORDS[block, 0]) for block in blocks_of(routing)]
    assert union_words(WORDS, routing)[:, 0].tolist() == unions


def test_a_layout_of_copies_has_only_rows_of_its_features() -> None:
    plan, copies = a_plan(), Layout(("id", "kind"), (1, 2), ("kind",), ByVectors())
    assert set((routed(plan, copies).rows % 5).tolist()) == {1, 2}
    none = routed(plan, copies, words=np.zeros_like(WORDS))
    assert (len(none.rows), none.offsets.tolist()) == (0, [0])


@pytest.mark.parametrize("kind", ["sort", "range", "zorder", "hilbert"])
def test_every_order_has_every_row_once(kind: str) -> None:
    routing = routed(a_plan(block_rows=30), Layout(SCHEMA.names, (), SCHEMA.names, ByOrder(kind, ("kind", "id"))))
    assert sorted(routing.rows.tolist()) == list(range(200))
    assert (np.diff(routing.offsets) > 0).all()


def test_layouts_that_are_blocked_alike_have_the_same_blocks() -> None:
    reads = (("id", "kind"), ("kind",), ("id", "kind"), ("kind", "more"))
    plan = replace(a_plan(), queries=tuple(replace(q, columns=c) for q, c in zip(a_plan().queries, reads, strict=True)))
    blockings: tuple[Blocking, ...] = (
        ByVectors(),
        ByVectors("portfolio-low"),
        ByVectors("portfolio-low", ((CUT_BY, "id"),)),
        ByOrder("input"),
    )
    layouts = [
        Layout(columns, features, columns if whole else (), blocking, guides, serves)
        for columns, features, whole, blocking, guides, serves in product(
            (("id",), ("kind",), ("id", "kind")),
            ((0, 1), (0, 1, 2, 3)),
            (True, False),
            blockings,
            ((), (2,)),
            (None, (0, 2)),
        )
    ]

    def blocks(layout: Layout) -> tuple[list[int], list[int]]:
        routing = route(plan, layout, ROWS, WORDS, guides_of(plan, layout, np.eye(4)))
        return routing.rows.tolist(), routing.offsets.tolist()

    found = [(blocking_key(plan, layout), blocks(layout), layout) for layout in layouts]
    alike = [(one, other) for one, other in combinations(found, 2) if one[0] == other[0]]
    assert all(one[1] == other[1] for one, other in alike)
    assert {frozenset((one[2].columns, other[2].columns)) for one, other in alike} >= {
        frozenset((("kind",), ("id", "kind"))),  # read by the same queries
        frozenset((("id",), ("kind",))),  # where it is said which queries they serve
    }


def test_queries_weigh_where_they_reach_rows_read_columns_and_are_served() -> None:
    plan = a_plan()
    (layout,) = plan.scheme.layouts
    assert (guides_of(plan, layout, np.eye(4)).weights > 0).all()
    few = np.flatnonzero(KINDS <= 1)
    beyond_bounds = guides_of(plan, layout, np.eye(4), ROWS.take(pa.array(few)), WORDS[few]).weights
    assert (beyond_bounds > 0).tolist() == [True, True, False, False]
    served = guides_of(plan, replace(layout, serves=(1, 2)), np.eye(4)).weights
    assert (served > 0).tolist() == [False, True, True, False]
    kind_only = replace(plan, queries=tuple(replace(query, columns=("kind",)) for query in plan.queries))
    assert not guides_of(kind_only, Layout(("id",), (0, 1, 2, 3), ("id",), ByVectors()), np.eye(4)).weights.any()


def test_guides_cut_the_rows_of_a_copy_but_do_not_choose_them() -> None:
    routing = routed(a_plan(), Layout(SCHEMA.names, (0, 1), (), ByVectors(), guides=(1,)))
    assert set((routing.rows % 5).tolist()) == {0, 1}
    assert all(len(np.unique(block % 5)) == 1 for block in blocks_of(routing))


def test_a_query_weighs_by_its_local_features_alone() -> None:
    layout = Layout(SCHEMA.names, (0, 2), SCHEMA.names, ByVectors())
    guides = guides_of(a_plan(), layout, np.ones((4, 4)))
    assert unpack(guides.words, 2).tolist() == unpack(WORDS, 4)[:, [0, 2]].tolist()
    # Both match a fifth of the rows: the first has all of the four queries' weight, the second what it leaves.
    assert guides.weights.tolist() == pytest.approx([4.0, 0.8])


def test_as_written_every_subsuming_feature_has_a_querys_whole_weight() -> None:
    layout = Layout(SCHEMA.names, (0, 2), SCHEMA.names, ByVectors(params=((WEIGHTS, "subsumed"),)))
    shares = np.array([[1.0, 0, 0.5, 0], [1.0, 0, 1.0, 0], [0, 1.0, 1.0, 0], [0.5, 0, 0.5, 1.0]])
    assert guides_of(a_plan(), layout, shares).weights.tolist() == [2.0, 2.0]
    strange = replace(layout, blocking=ByVectors(params=((WEIGHTS, "mine"),)))
    with pytest.raises(PlanError, match="the plan's weights are 'mine': expected marginal or subsumed; plan again"):
        guides_of(a_plan(), strange, shares)


def test_queries_of_one_layout_weigh_by_the_bytes_that_they_read_of_a_row() -> None:
    kinds = a_plan().queries
    plan = replace(a_plan(), queries=(replace(kinds[0], columns=("id", "kind")), replace(kinds[1], columns=("kind",))))
    layout = replace(plan.scheme.layouts[0], blocking=ByVectors("portfolio-low"))
    plan = replace(plan, scheme=Scheme((layout,)))
    guides = guides_of(plan, layout, np.eye(2, 4), cell_bytes_by_column={"id": 3.0, "kind": 1.0})
    assert guides.weights.tolist() == pytest.approx([4.0, 1.0, 0, 0])
    assert guides_of(plan, layout, np.eye(2, 4)).weights.tolist() == [1, 1, 0, 0]
    assert guides.objective is not None
    assert guides.objective.weights[0] / guides.objective.weights[1] == pytest.approx(4.0, rel=1e-3)


def test_bytes_are_measured_where_one_layout_is_blocked_by_more_than_the_thesis_says() -> None:
    one = replace(a_plan().scheme.layouts[0], blocking=ByVectors("portfolio-low"))

    def measured(*layouts: Layout, rows: int = 200) -> bool:
        return measure_cell_bytes(replace(a_plan(), scheme=Scheme(layouts)), ROWS.slice(0, rows)) is not None

    assert measured(one)
    many = pa.table({"id": np.random.default_rng(0).permutation(20_000), "kind": np.arange(20_000) // 10_000})
    of_cell = measure_cell_bytes(replace(a_plan(), scheme=Scheme((one,))), many)
    assert of_cell is not None
    assert of_cell["id"] > 10 * of_cell["kind"] > 0
    assert not measured(one, rows=0)
    assert not measured(replace(one, blocking=ByVectors()))
    assert not measured(replace(one, blocking=ByOrder("input")))
    id_alone, kind_alone = (replace(one, columns=(name,), master=(name,)) for name in SCHEMA.names)
    assert not measured(id_alone, kind_alone)


class TestSlices:
    """Rows with ids 0 to 199 in order; queries for an id range are skipped by blocks that are narrow in ids."""

    @staticmethod
    def plan() -> Plan:
        ranges = document(SCHEMA, [is_value(SCHEMA, "id", "<", 50), is_value(SCHEMA, "id", ">=", 150)])
        layout = Layout(SCHEMA.names, (), SCHEMA.names, ByVectors(params=((CUT_BY, "id"),)))
        return replace(plan_of(ranges, block_rows=20, max_vectors=100), scheme=Scheme((layout,)))

    def test_slices_end_where_queries_do_and_blocks_are_narrow(self) -> None:
        plan = self.plan()
        (layout,) = plan.scheme.layouts
        guides = guides_of(plan, layout, np.zeros((2, 2)))
        assert guides.slices == 2
        assert unpack(guides.words, 2).sum(axis=0).tolist() == [50, 50]
        blocks = blocks_of(route(plan, layout, ROWS, WORDS, guides))  # ids are positions
        assert sum(block.min() < 50 for block in blocks) <= 4
        assert sum(block.max() >= 150 for block in blocks) <= 4

    def test_slices_are_for_what_features_leave(self) -> None:
        plan = self.plan()
        shares = np.array([[1.0, 0.0], [0.0, 0.0]])  # the first query skips all but the rows of one feature
        plan = replace(plan, features=replace(a_plan().features, features=a_plan().features.features[:2]))
        layout = replace(plan.scheme.layouts[0], features=(0, 1))
        none = pack(np.zeros((200, 2), dtype=np.bool_))
        guides = guides_of(plan, layout, shares, words=none)
        assert sorted(unpack(guides.words, 4)[:, 2:].sum(axis=0)) == [50, 150], "cut only where the second query begins"
        assert guides_of(plan, replace(layout, master=()), shares, words=none).slices == 2, "without a row"

    def test_without_rows_or_statistics_of_the_column_there_are_no_slices(self) -> None:
        plan = self.plan()
        (layout,) = plan.scheme.layouts
        nothing = find_guides(plan, layout, ROWS.slice(0, 0), WORDS[:0], np.zeros((2, 2)), np.ones(2))
        elsewhere = guides_of(plan, replace(layout, columns=("kind",), master=("kind",)), np.zeros((2, 2)))
        assert (nothing.slices, elsewhere.slices) == (0, 0)


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
    routing = routed(a_plan(max_vectors=2))
    assert routing.joined_vectors == 3
    assert sorted(routing.rows.tolist()) == list(range(200))


@pytest.mark.parametrize("block_rows", [20, 139, 140, 141, 280, 10_000])
@pytest.mark.parametrize("copies", [False, True])
def test_rows_of_one_block_need_no_guides(block_rows: int, copies: bool) -> None:
    plan = a_plan(block_rows=block_rows)
    (layout,) = plan.scheme.layouts
    if copies:
        layout = Layout(layout.columns, (1, 2), (), layout.blocking)
    expected, single = routed(plan, layout), route_to_one_block(plan, layout, WORDS)
    assert (single is not None) == (len(expected.offsets) == 2)
    if single is not None:
        assert (single.rows.tolist(), single.offsets.tolist()) == (expected.rows.tolist(), expected.offsets.tolist())


def test_orders_and_no_rows_are_not_routed_to_one_block() -> None:
    plan = a_plan(block_rows=10_000)
    (layout,) = plan.scheme.layouts
    assert route_to_one_block(plan, replace(layout, blocking=ByOrder("sort", ("id",))), WORDS) is None
    assert route_to_one_block(plan, layout, WORDS[:0]) is None
