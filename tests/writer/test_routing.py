"""Routing a segment's rows to blocks: numpy and Arrow only."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise, product

import numpy as np
import pyarrow as pa
import pytest

from layoutopt.errors import PlanError
from layoutopt.model.arrays import Words
from layoutopt.model.layout import CUT_BY, WEIGHTS, Blocking, ByOrder, ByVectors, Layout, Plan, Scheme
from layoutopt.model.schema import Column, Schema
from layoutopt.model.vectors import VectorCounts, pack, unpack
from layoutopt.writer.routing import (
    Guides,
    blocking_key,
    feature_guides,
    find_guides,
    limit_vectors,
    measure_cell_bytes,
    route,
    union_words,
    weigh_reaching_queries,
)
from tests.spark.tables import document, is_value, plan_of

SCHEMA = Schema((Column("id", "int"), Column("kind", "int")))

ONES = np.ones(4)


def a_plan(block_rows: int = 20, max_vectors: int = 100) -> Plan:
    kinds = document(SCHEMA, [is_value(SCHEMA, "kind", "=", kind) for kind in range(4)])
    return plan_of(kinds, block_rows=block_rows, max_vectors=max_vectors)


def by_features(plan: Plan, words: Words) -> Guides:
    return feature_guides(plan.scheme.layouts[0], words, ONES)


def rows(n: int = 200) -> tuple[pa.Table, Words]:
    kinds = np.arange(n) % 5
    table = pa.table({"id": pa.array(np.arange(n), pa.int32()), "kind": pa.array(kinds, pa.int32())})
    return table, pack(kinds[:, None] == np.arange(4))


def test_rows_of_a_block_keep_the_order_of_the_source() -> None:
    table, words = rows()
    plan = a_plan(block_rows=20)
    routing = route(plan, plan.scheme.layouts[0], table, words, by_features(plan, words))
    assert sorted(routing.rows.tolist()) == list(range(200))
    for start, stop in zip(routing.offsets[:-1], routing.offsets[1:], strict=True):
        assert (np.diff(routing.rows[start:stop]) > 0).all()
        assert len(np.unique(routing.rows[start:stop] % 5)) == 1


def test_predicate_sort_puts_the_heaviest_features_first_and_keeps_equal_vectors_in_order() -> None:
    table, words = rows()
    plan = a_plan(block_rows=40)
    layout = replace(plan.scheme.layouts[0], blocking=ByOrder("predicate-sort"))
    routing = route(plan, layout, table, words, feature_guides(layout, words, np.array([1.0, 4.0, 2.0, 3.0])))
    kinds = routing.rows.reshape(5, 40) % 5
    assert kinds[:, 0].tolist() == [1, 3, 2, 0, 4]
    assert (kinds == kinds[:, :1]).all()
    assert (np.diff(routing.rows.reshape(5, 40), axis=1) > 0).all()
    assert routing.offsets.tolist() == [0, 40, 80, 120, 160, 200]


def test_predicate_sort_without_features_is_the_input_order() -> None:
    table, words = rows()
    plan = a_plan(block_rows=40)
    layout = Layout(("id", "kind"), (), ("id", "kind"), ByOrder("predicate-sort"))
    routing = route(plan, layout, table, words, feature_guides(layout, words, ONES))
    assert routing.rows.tolist() == list(range(200))


def test_unions_are_of_the_rows_routed() -> None:
    table, words = rows()
    plan = a_plan(block_rows=20)
    routing = route(plan, plan.scheme.layouts[0], table, words, by_features(plan, words))
    for block, union in enumerate(union_words(words, routing)):
        members = words[routing.rows[routing.offsets[block] : routing.offsets[block + 1]]]
        assert union[0] == np.bitwise_or.reduce(members[:, 0])


def test_a_layout_of_copies_has_only_rows_of_its_features() -> None:
    table, words = rows()
    plan = a_plan(block_rows=20)
    copies = Layout(("id", "kind"), (1, 2), ("kind",), ByVectors())
    assert set((route(plan, copies, table, words, feature_guides(copies, words, ONES)).rows % 5).tolist()) == {
        1,
        2,
    }
    none = route(plan, copies, table, np.zeros_like(words), feature_guides(copies, np.zeros_like(words), ONES))
    assert (len(none.rows), none.offsets.tolist()) == (0, [0])


@pytest.mark.parametrize("kind", ["sort", "range", "zorder", "hilbert"])
def test_every_order_has_every_row_once(kind: str) -> None:
    table, words = rows()
    plan = a_plan(block_rows=30)
    layout = Layout(SCHEMA.names, (), SCHEMA.names, ByOrder(kind, ("kind", "id")))
    routing = route(plan, layout, table, words, feature_guides(layout, words, np.ones(4)))
    assert sorted(routing.rows.tolist()) == list(range(200))
    assert (np.diff(routing.offsets) > 0).all()


def test_layouts_that_are_blocked_alike_have_the_same_blocks() -> None:
    table, words = rows()
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
        guides = find_guides(
            plan, layout, table, words, np.eye(4), weigh_reaching_queries(plan.queries, plan.schema, table)
        )
        routing = route(plan, layout, table, words, guides)
        return routing.rows.tolist(), routing.offsets.tolist()

    found = [(blocking_key(plan, layout), blocks(layout), layout) for layout in layouts]
    alike = [(one, other) for one, other in combinations(found, 2) if one[0] == other[0]]
    assert all(one[1] == other[1] for one, other in alike)
    assert {frozenset((one[2].columns, other[2].columns)) for one, other in alike} >= {
        frozenset((("kind",), ("id", "kind"))),  # read by the same queries
        frozenset((("id",), ("kind",))),  # where it is said which queries they serve
    }


def test_queries_beyond_the_segments_bounds_weigh_nothing() -> None:
    table, words = rows()
    plan = a_plan()
    (layout,) = plan.scheme.layouts
    everything = find_guides(
        plan, layout, table, words, np.eye(4), weigh_reaching_queries(plan.queries, plan.schema, table)
    ).weights
    assert (everything > 0).all()
    few = np.flatnonzero(np.arange(200) % 5 <= 1)
    some = table.take(pa.array(few))
    weights = find_guides(
        plan, layout, some, words[few], np.eye(4), weigh_reaching_queries(plan.queries, plan.schema, some)
    ).weights
    assert (weights > 0).tolist() == [True, True, False, False]


def test_queries_that_read_no_column_of_a_layout_weigh_nothing_there() -> None:
    table, words = rows()
    kind_only = tuple(replace(query, columns=("kind",)) for query in a_plan().queries)
    plan = replace(a_plan(), queries=kind_only)
    layout = Layout(("id",), (0, 1, 2, 3), ("id",), ByVectors())
    weights = find_guides(
        plan, layout, table, words, np.eye(4), weigh_reaching_queries(plan.queries, plan.schema, table)
    ).weights
    assert weights.tolist() == [0.0, 0.0, 0.0, 0.0]


def test_queries_that_a_layout_is_not_for_weigh_nothing_there() -> None:
    table, words = rows()
    plan = a_plan()
    layout = plan.scheme.layouts[0]
    shares, reached = np.eye(len(plan.queries), len(plan.features)), np.ones(len(plan.queries))
    every = find_guides(plan, layout, table, words, shares, reached).weights
    some = find_guides(plan, replace(layout, serves=(1, 2)), table, words, shares, reached).weights
    assert (every > 0).all()
    assert (some > 0).tolist() == [False, True, True, False]


def test_guides_cut_the_rows_of_a_copy_but_do_not_choose_them() -> None:
    table, words = rows()
    plan = a_plan(block_rows=20)
    copy = Layout(SCHEMA.names, (0, 1), (), ByVectors(), guides=(1,))
    routing = route(plan, copy, table, words, feature_guides(copy, words, ONES))
    assert set((routing.rows % 5).tolist()) == {0, 1}
    assert all(len(np.unique(block % 5)) == 1 for block in np.split(routing.rows, routing.offsets[1:-1]))


def test_a_query_weighs_by_its_local_features_alone() -> None:
    table, words = rows()
    plan = a_plan()
    layout = Layout(SCHEMA.names, (0, 2), SCHEMA.names, ByVectors())
    shares = np.ones((4, 4))
    guides = find_guides(plan, layout, table, words, shares, weigh_reaching_queries(plan.queries, plan.schema, table))
    assert unpack(guides.words, 2).tolist() == unpack(words, 4)[:, [0, 2]].tolist()
    # Both match a fifth of the rows: the first has all of the four queries' weight, the second what it leaves.
    assert guides.weights.tolist() == pytest.approx([4.0, 0.8])


def test_as_written_every_subsuming_feature_has_a_querys_whole_weight() -> None:
    table, words = rows()
    plan = a_plan()
    layout = Layout(SCHEMA.names, (0, 2), SCHEMA.names, ByVectors(params=((WEIGHTS, "subsumed"),)))
    shares = np.array([[1.0, 0, 0.5, 0], [1.0, 0, 1.0, 0], [0, 1.0, 1.0, 0], [0.5, 0, 0.5, 1.0]])
    guides = find_guides(plan, layout, table, words, shares, weigh_reaching_queries(plan.queries, plan.schema, table))
    assert guides.weights.tolist() == [2.0, 2.0]
    strange = replace(layout, blocking=ByVectors(params=((WEIGHTS, "mine"),)))
    with pytest.raises(PlanError, match="the plan's weights are 'mine': expected marginal or subsumed; plan again"):
        find_guides(plan, strange, table, words, shares, weigh_reaching_queries(plan.queries, plan.schema, table))


def test_queries_of_one_layout_weigh_by_the_bytes_that_they_read_of_a_row() -> None:
    table, words = rows()
    kinds = a_plan().queries
    plan = replace(a_plan(), queries=(replace(kinds[0], columns=("id", "kind")), replace(kinds[1], columns=("kind",))))
    layout = replace(plan.scheme.layouts[0], blocking=ByVectors("portfolio-low"))
    plan = replace(plan, scheme=Scheme((layout,)))
    reached, of_cell = weigh_reaching_queries(plan.queries, plan.schema, table), {"id": 3.0, "kind": 1.0}
    weights = find_guides(plan, layout, table, words, np.eye(2, 4), reached, of_cell).weights
    assert weights.tolist() == pytest.approx([of_cell["id"] + of_cell["kind"], of_cell["kind"], 0, 0])
    assert find_guides(plan, layout, table, words, np.eye(2, 4), reached).weights.tolist() == [1, 1, 0, 0]
    objective = find_guides(plan, layout, table, words, np.eye(2, 4), reached, of_cell).objective
    assert objective is not None
    assert objective.weights[0] / objective.weights[1] == pytest.approx(weights[0] / weights[1], rel=1e-3)


def test_bytes_are_measured_where_one_layout_is_blocked_by_more_than_the_thesis_says() -> None:
    table, _ = rows()
    one = replace(a_plan().scheme.layouts[0], blocking=ByVectors("portfolio-low"))

    def measured(*layouts: Layout, rows: int = 200) -> bool:
        return measure_cell_bytes(replace(a_plan(), scheme=Scheme(layouts)), table.slice(0, rows)) is not None

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

    def plan(self) -> Plan:
        ranges = document(SCHEMA, [is_value(SCHEMA, "id", "<", 50), is_value(SCHEMA, "id", ">=", 150)])
        plan = plan_of(ranges, block_rows=20, max_vectors=100)
        blocking = ByVectors(params=((CUT_BY, "id"),))
        layout = Layout(SCHEMA.names, (), SCHEMA.names, blocking)
        return replace(plan, scheme=Scheme((layout,)))

    def test_sets_of_slices_that_queries_reach_guide_the_blocking(self) -> None:
        table, words = rows()
        plan = self.plan()
        (layout,) = plan.scheme.layouts
        guides = find_guides(
            plan, layout, table, words, np.zeros((2, 2)), weigh_reaching_queries(plan.queries, plan.schema, table)
        )
        assert guides.slices == 2
        reached = unpack(guides.words, 2).sum(axis=0).tolist()
        # They are cut where the queries begin and end.
        assert reached == [50, 50]

    def test_blocks_of_sliced_rows_are_narrow(self) -> None:
        table, words = rows()
        plan = self.plan()
        (layout,) = plan.scheme.layouts
        guides = find_guides(
            plan, layout, table, words, np.zeros((2, 2)), weigh_reaching_queries(plan.queries, plan.schema, table)
        )
        routing = route(plan, layout, table, words, guides)
        ids = np.asarray(table["id"])[routing.rows]
        lows = [ids[start:stop].min() for start, stop in pairwise(routing.offsets)]
        highs = [ids[start:stop].max() for start, stop in pairwise(routing.offsets)]
        assert sum(low < 50 for low in lows) <= 4
        assert sum(high >= 150 for high in highs) <= 4

    def test_slices_are_for_what_features_leave(self) -> None:
        table, _ = rows()
        plan = self.plan()
        (layout,) = plan.scheme.layouts
        shares = np.array([[1.0, 0.0], [0.0, 0.0]])  # the first query skips all but the rows of one feature
        plan = replace(plan, features=replace(a_plan().features, features=a_plan().features.features[:2]))
        layout = replace(layout, features=(0, 1))
        none = pack(np.zeros((200, 2), dtype=np.bool_))
        guides = find_guides(
            plan, layout, table, none, shares, weigh_reaching_queries(plan.queries, plan.schema, table)
        )
        assert sorted(unpack(guides.words, 4)[:, 2:].sum(axis=0)) == [50, 150], "cut only where the second query begins"
        copy = replace(layout, master=())
        assert (
            find_guides(
                plan, copy, table, none, shares, weigh_reaching_queries(plan.queries, plan.schema, table)
            ).slices
            == 2
        ), "without a row"

    def test_no_rows_make_no_slices(self) -> None:
        table, words = rows()
        (layout,) = self.plan().scheme.layouts
        reached = np.ones(2)
        assert find_guides(self.plan(), layout, table.slice(0, 0), words[:0], np.zeros((2, 2)), reached).slices == 0

    def test_columns_without_statistics_in_the_layout_make_no_slices(self) -> None:
        table, words = rows()
        plan = self.plan()
        elsewhere = replace(plan.scheme.layouts[0], columns=("kind",), master=("kind",))
        guides = find_guides(
            plan, elsewhere, table, words, np.zeros((2, 2)), weigh_reaching_queries(plan.queries, plan.schema, table)
        )
        assert guides.slices == 0


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
    routing = route(plan, plan.scheme.layouts[0], table, words, by_features(plan, words))
    assert routing.joined_vectors == 3
    assert sorted(routing.rows.tolist()) == list(range(200))
