"""Distances to a block's origin: never a text denied that is as near as asked, and near ones told from far ones."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from layoutopt.indexes.metric_distance import MetricDistance, levenshtein_distances
from layoutopt.indexes.protocol import BlockColumn
from layoutopt.model.predicates import Call, Col, Const, InSet, Like
from layoutopt.model.values import ValueSet
from tests.effort import examples
from tests.indexes.columns import Blocks, blocks_of

S = Col("c", "string")
INDEX = MetricDistance()
words = st.text(st.sampled_from("abcé😀"), max_size=7)


def plain(a: str, b: str) -> int:
    """The distance by its definition: the cheapest of the last edits."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


def near(word: str | None, wanted: ValueSet, turned: bool = False) -> InSet:
    args = (S, Const(word, "string"))
    return InSet(Call("levenshtein", args[::-1] if turned else args, "int"), wanted)


def denied(blocks: Blocks, literal: InSet | Like, parameter: float = 64) -> list[bool]:
    found: list[bool] = INDEX.cannot_match(literal, INDEX.measure(blocks.column, parameter), parameter).tolist()
    return found


@given(st.lists(words, max_size=5), words)
@settings(max_examples=examples(200))
def test_distances_are_those_of_the_definition(texts: list[str], origin: str) -> None:
    assert levenshtein_distances(texts, origin).tolist() == [plain(text, origin) for text in texts]


@given(st.data())
@settings(max_examples=examples(300))
def test_tashma_metric_dist_denies_no_block_with_a_text_as_near_as_asked(data: st.DataObject) -> None:
    drawn = data.draw(st.lists(st.lists(words | st.none(), max_size=6), min_size=1))
    blocks = Blocks("string", tuple(map(tuple, drawn)))
    word, ends = data.draw(words), st.none() | st.integers(-1, 9)
    wanted = ValueSet.interval(data.draw(ends), data.draw(ends))
    literal = near(word, wanted, data.draw(st.booleans()))
    there = [any(text is not None and wanted.contains(plain(text, word)) for text in block) for block in blocks.rows]
    if INDEX.serves(literal):
        assert not any(np.logical_and(there, denied(blocks, literal, data.draw(st.sampled_from([2, 64])))))


@given(blocks_of("string"), st.lists(words, min_size=1, max_size=3))
@settings(max_examples=examples(100))
def test_texts_themselves_are_at_no_distance(blocks: Blocks, texts: list[str]) -> None:
    literal = InSet(S, ValueSet.of(texts))
    assert not any(np.logical_and(blocks.holds(literal), denied(blocks, literal)))


def test_blocks_of_other_words_are_denied() -> None:
    blocks = Blocks("string", (("levenshtein", "levenstein", None), ("hamming", "haming"), ("jaccard" * 20,), (None,)))
    assert denied(blocks, near("levenshtien", ValueSet.interval(None, 4)))[:3] == [False, True, False]
    assert denied(blocks, near("hammin", ValueSet.interval(None, 2)))[:3] == [True, False, False]
    assert denied(blocks, near("hammin", ValueSet.interval(9, None)))[:3] == [False, True, False]
    assert denied(blocks, InSet(S, ValueSet.point("cosine")))[:3] == [True, True, False]


@pytest.mark.parametrize(
    "literal",
    [
        near(None, ValueSet.point(1)),
        near("a", ValueSet.all()),
        InSet(Call("levenshtein", (S, S), "int"), ValueSet.point(1)),
        InSet(Call("levenshtein", (S, Const("a", "string"), Const(3, "int")), "int"), ValueSet.point(-1)),
        InSet(Call("levenshtein", (S, Const("a", "string")), "boolean"), ValueSet.point(1)),
        Like(S, ("a", "b")),
    ],
)
def test_what_it_does_not_know_it_does_not_serve(literal: InSet | Like) -> None:
    assert not INDEX.serves(literal)
    assert denied(Blocks("string", (("zzzzzzzz",),)), literal) == [False]


def test_a_text_that_is_no_utf8_spoils_its_block_alone() -> None:
    values = pa.array([b"ab\xff", b"abc", b"zzz"], pa.binary()).view(pa.string())
    stored = INDEX.measure(BlockColumn(pa.chunked_array([values]), np.array([0, 2, 3]), "string"), 64)
    assert INDEX.cannot_match(near("qqqqqq", ValueSet.interval(None, 2)), stored, 64).tolist() == [False, True]
