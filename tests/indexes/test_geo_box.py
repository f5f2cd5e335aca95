"""Boxes around points: no block is denied with a point in what is asked for, and what lies between places is free."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
from hypothesis import given, settings

from layoutopt.evaluation.expressions import make_struct
from layoutopt.indexes.geo_box import GeoBox
from layoutopt.indexes.protocol import BlockColumn
from layoutopt.indexes.stored import StoredIndex
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import Col, InSet, conjunction
from layoutopt.model.values import ValueSet
from layoutopt.skipping.cannot_match import BlockStatistics, cannot_match
from tests.effort import examples
from tests.indexes.columns import POOLS, Blocks, literals_of, offsets_of

INDEX = GeoBox()
INT_KEYS = ["bigint", "date", "decimal(15,2)", "double", "float", "int", "timestamp_ntz"]
Points = list[list[tuple[object, object]]]


def column(blocks: Points, types: tuple[str, str]) -> BlockColumn:
    flat = [point for block in blocks for point in block]
    arrays = [pa.array([point[i] for point in flat], POOLS[type][0]) for i, type in enumerate(types)]
    values = pa.chunked_array([pa.StructArray.from_arrays(arrays, names=["c0", "c1"])])
    return BlockColumn(values, offsets_of(blocks), f"struct<c0:{types[0]},c1:{types[1]}>")


def denied(blocks: Points, literals: list[InSet], boxes: float) -> list[bool]:
    types = (literals[0].subject.type, literals[1].subject.type)
    found: list[bool] = INDEX.cannot_match_all(literals, INDEX.measure(column(blocks, types), boxes), boxes).tolist()
    return found


@st.composite
def questions(draw: st.DrawFn) -> tuple[Points, list[InSet]]:
    types = draw(st.tuples(st.sampled_from(INT_KEYS), st.sampled_from(INT_KEYS)))
    point = st.tuples(*(st.none() | st.sampled_from(POOLS[type][1]) for type in types))
    literals = [draw(literals_of(type, name)) for type, name in zip(types, "ab", strict=True)]
    assert all(isinstance(each, InSet) for each in literals)
    return draw(st.lists(st.lists(point, max_size=8), min_size=1, max_size=4)), literals  # type: ignore[return-value]


@given(questions(), st.integers(1, 5))
@settings(max_examples=examples(300))
def test_tashma_geo_box_denies_no_block_with_a_point_in_what_is_asked_for(
    question: tuple[Points, list[InSet]], boxes: int
) -> None:
    blocks, literals = question
    holds = [
        [Blocks(each.subject.type, ((point[i],),)).holds(each)[0] for block in blocks for point in block]
        for i, each in enumerate(literals)
    ]
    both = iter([all(pair) for pair in zip(*holds, strict=True)])
    counted = [[next(both) for _ in block] for block in blocks]
    there = list(map(any, counted))
    assert not any(np.logical_and(there, denied(blocks, literals, boxes)))


@given(questions(), st.integers(1, 5))
@settings(max_examples=examples(60))
def test_boxes_are_of_the_points_alone(question: tuple[Points, list[InSet]], boxes: int) -> None:
    blocks, literals = question
    types = (literals[0].subject.type, literals[1].subject.type)
    stored = INDEX.measure(column(blocks, types), boxes)
    assert INDEX.measure(column([[*reversed(block), *block] for block in blocks], types), boxes).equals(stored)
    assert pa.concat_arrays([INDEX.measure(column([block], types), boxes) for block in blocks]).equals(stored)
    assert max(len(each) for each in stored.to_pylist()) <= 4 * boxes


def around(lat: float, lon: float) -> list[InSet]:
    places = zip(("lat", "lon"), (lat, lon), strict=True)
    return [InSet(Col(name, "int"), ValueSet.interval(int(at) - 2, int(at) + 3)) for name, at in places]


def test_a_block_of_two_far_places_is_denied_between_them() -> None:
    rng = np.random.default_rng(0)
    places = [np.array([40, -74]), np.array([52, 13]), np.array([40, 13])]
    york, berlin, sea = ([(int(a), int(b)) for a, b in rng.integers(-5, 6, (200, 2)) + place] for place in places)
    blocks: Points = [[*york, *berlin], [*sea], [(None, 13), (40, None)]]
    assert denied(blocks, around(46, -30), 2) == [True, True, True]
    assert denied(blocks, around(40, 13), 2) == [True, False, True]
    assert denied(blocks, around(52, 13), 2) == [False, True, True]
    assert denied(blocks, around(40, 13), 1) == [False, False, True]


def test_what_is_no_box_proves_nothing() -> None:
    stored = pa.array([[1, 2, 3], None, []], pa.large_list(pa.int64()))
    assert INDEX.cannot_match_all(around(9, 9), stored, 8).tolist() == [False] * 3
    assert not INDEX.cannot_match_all(around(9, 9)[:1], stored.slice(2), 8).any()
    assert INDEX.storage("struct<a:int,b:string>") is None
    assert INDEX.storage("struct<a:int,b:int,c:int>") is None
    assert INDEX.storage("int") is None


def test_a_point_without_a_coordinate_is_in_no_box_and_matches_where_null_does() -> None:
    types = ("int", "int")
    stored = INDEX.measure(column([[(None, 13), (40, 80)], [(40, 80)]], types), 8)
    point = make_struct([Col("lat", "int"), Col("lon", "int")])
    index = StoredIndex(IndexSpec(point, "geo-box"), INDEX, 2, lambda: stored)
    statistics = BlockStatistics(np.array([2, 1]), indexes={point: [index]})
    lat, lon = around(7, 13)
    assert cannot_match(conjunction([lat, lon]), statistics, None).tolist() == [True, True]
    or_null = InSet(lat.subject, lat.values, null=True)
    assert cannot_match(conjunction([or_null, lon]), statistics, None).tolist() == [False, False]
    assert cannot_match(lon, statistics, None).tolist() == [False, False]
