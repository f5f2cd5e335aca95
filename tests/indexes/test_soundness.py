"""Every type of index, built in or installed: it never denies a value that is there, whatever it is asked."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from layoutopt.extensions import names
from layoutopt.indexes.protocol import BlockColumn, Index
from layoutopt.indexes.registry import BUILT_IN, find_index
from layoutopt.model.predicates import ANY_CHAR, ANY_STRING, Col, InSet, Like
from layoutopt.model.values import ValueSet
from tests.effort import examples
from tests.indexes.columns import Blocks, blocks_of, literals_of, types

KINDS = names("indexes", BUILT_IN)


@st.composite
def questions(draw: st.DrawFn) -> tuple[Blocks, InSet | Like, float]:
    type = draw(types)
    return draw(blocks_of(type)), draw(literals_of(type)), draw(st.floats(0, 1))


def indexes_of(type: str) -> list[Index]:
    """Every type of index that has a use for values of a Spark type."""
    return [index for index in map(find_index, KINDS) if index.storage(type) is not None]


@given(question=questions())
@settings(max_examples=examples(300))
def test_a_block_with_a_value_of_the_literal_is_never_denied(question: tuple[Blocks, InSet | Like, float]) -> None:
    blocks, literal, share = question
    there = blocks.holds(literal)
    for index in indexes_of(blocks.type):
        parameter = index.parameter.least + share**3 * (index.parameter.most - index.parameter.least)
        stored = index.measure(blocks.column, parameter)
        assert stored.type == index.storage(blocks.type)
        if not index.serves(literal):
            continue
        denied = index.cannot_match(literal, stored, parameter)
        assert denied.dtype == np.bool_
        assert not any(np.logical_and(there, denied)), index


@given(type=types, data=st.data())
@settings(max_examples=examples(60))
def test_what_is_measured_is_of_the_values_alone(type: str, data: st.DataObject) -> None:
    """Not of their order, nor of how often they are there; and blocks are stored alike alone and among others."""
    blocks = data.draw(blocks_of(type))
    again = Blocks(type, tuple((*reversed(block), *block) for block in blocks.rows))
    for index in indexes_of(type):
        stored = index.measure(blocks.column, index.parameter.default)
        assert index.measure(again.column, index.parameter.default).equals(stored)
        alone = [index.measure(Blocks(type, (block,)).column, index.parameter.default) for block in blocks.rows]
        assert pa.concat_arrays(alone).equals(stored)


@given(question=questions(), places=st.lists(st.integers(0, 5), max_size=8))
@settings(max_examples=examples(60))
def test_answers_are_those_of_each_block(question: tuple[Blocks, InSet | Like, float], places: list[int]) -> None:
    """Of blocks that are picked out, or put together with others or with unknown ones."""
    blocks, literal, _ = question
    for index in indexes_of(blocks.type):
        if not index.serves(literal):
            continue
        parameter = index.parameter.default
        stored = index.measure(blocks.column, parameter)
        denied = index.cannot_match(literal, stored, parameter)
        chosen = np.array([place % len(stored) for place in places], dtype=np.int64)
        picked = pa.concat_arrays([pa.nulls(1, stored.type), stored.take(pa.array(chosen)), stored.slice(1)])
        expected = [*denied[chosen].tolist(), *denied[1:].tolist()]
        assert index.cannot_match(literal, picked, parameter)[1:].tolist() == expected


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**16), literal=literals_of("string"))
@settings(max_examples=examples(30))
def test_bytes_that_no_index_wrote_are_asked_without_harm(kind: str, seed: int, literal: InSet | Like) -> None:
    """A catalog file may hold anything: no answer raises, and none has another size."""
    storage = find_index(kind).storage("string")
    if storage is None:
        return
    rng = np.random.default_rng(seed)
    texts = pa.array([rng.bytes(int(rng.integers(0, 70))) for _ in range(6)], pa.large_binary())
    lists = pa.LargeListArray.from_arrays(pa.array([0, 2, 2, 5, 6], pa.int64()), texts)
    numbers = pa.array(rng.integers(-(2**63), 2**63 - 1, 6))
    made = {pa.large_binary(): texts, pa.large_list(pa.large_binary()): lists, pa.int64(): numbers}
    stored = made.get(storage)
    if stored is None:
        stored = pa.StructArray.from_arrays([made[field.type].slice(0, 4) for field in storage], fields=list(storage))
    if not find_index(kind).serves(literal):
        return
    found = find_index(kind).cannot_match(literal, stored, find_index(kind).parameter.default)
    assert len(found) == len(stored)


@pytest.mark.parametrize("kind", KINDS)
def test_texts_that_are_no_utf8_spoil_their_block_alone(kind: str) -> None:
    index = find_index(kind)
    if index.storage("string") is None:
        return
    values = pa.array([b"ab\xff", b"abc", b"zzz"], pa.binary()).view(pa.string())
    stored = index.measure(
        BlockColumn(pa.chunked_array([values]), np.array([0, 2, 3]), "string"), index.parameter.default
    )
    word = InSet(Col("c", "string"), ValueSet.point("abc"))
    assert index.cannot_match(word, stored, index.parameter.default).tolist() == [False, True]
    pattern = Like(Col("c", "string"), ("ab", ANY_CHAR, ANY_STRING, "c"))
    assert not index.cannot_match(pattern, stored, index.parameter.default)[0]
