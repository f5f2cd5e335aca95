"""What each type of index proves, and how small it is: soundness alone would be met by indexes that prove nothing."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from layoutopt.errors import SettingError
from layoutopt.indexes.protocol import BlockColumn
from layoutopt.indexes.registry import BUILT_IN, check_index, find_index, find_parameter
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import ANY_STRING, Col, InSet, Like, like, parse_like
from layoutopt.model.values import ValueSet
from tests.effort import examples
from tests.indexes.columns import Blocks, blocks_of, literals_of, types

S, N = Col("s", "string"), Col("n", "bigint")
WORDS = (("carefully final deposits", "quick packages"), ("slow éclairs", None), (None,), ("deposit", "pack"))


def denied(kind: str, blocks: Blocks, literal: object, parameter: float | None = None) -> list[bool]:
    assert isinstance(literal, InSet | Like)
    index = find_index(kind)
    used = index.parameter.default if parameter is None else parameter
    found: list[bool] = index.cannot_match(literal, index.measure(blocks.column, used), used).tolist()
    return found


@given(data=st.data(), type=types)
@settings(max_examples=examples(80))
def test_a_value_list_denies_whatever_is_not_there(data: st.DataObject, type: str) -> None:
    blocks, literal = data.draw(blocks_of(type)), data.draw(literals_of(type))
    assert denied("value-list", blocks, literal) == [not there for there in blocks.holds(literal)]


@pytest.mark.parametrize("kind", ["bloom", "hybrid"])
@given(data=st.data(), type=types)
@settings(max_examples=examples(30))
def test_a_filter_of_few_values_denies_single_ones(kind: str, data: st.DataObject, type: str) -> None:
    """At one in a hundred, a block of six values has hardly a false positive; every type has points to be looked up."""
    blocks, literal = data.draw(blocks_of(type)), data.draw(literals_of(type))
    if isinstance(literal, InSet) and literal.values.points() is not None:
        there, found = blocks.holds(literal), denied(kind, blocks, literal)
        assert sum(found) >= sum(not each for each in there) - 1


def test_a_filter_keeps_its_share_of_false_positives() -> None:
    """10,000 values in ten blocks, 2,000 others asked for: no more false positives than were allowed."""
    keys = np.random.default_rng(0).permutation(200_000)[:10_000]
    blocks = Blocks("bigint", tuple(tuple(part.tolist()) for part in keys.reshape(10, 1000)))
    others = np.setdiff1d(np.arange(200_000), keys)[:2000]
    for share in (0.01, 0.1):
        index = find_index("bloom")
        stored = index.measure(blocks.column, share)
        asked = [InSet(N, ValueSet.point(int(key))) for key in others]
        passed = sum(10 - index.cannot_match(each, stored, share).sum() for each in asked) / (10 * len(asked))
        assert passed < 1.3 * share
        assert stored.nbytes < 10_000 * 1.5 * np.log(1 / share) / np.log(2) ** 2 / 8


def test_values_never_seen_are_denied_in_nearly_every_block() -> None:
    """Equality on a column of 100,000 distinct values: of 100 blocks of 2,000 at least 95 % of those without it."""
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 100_000, 200_000)
    column = BlockColumn(pa.chunked_array([pa.array(rows)]), np.arange(0, 200_001, 2000), "bigint")
    index = find_index("bloom")
    stored = index.measure(column, 0.05)
    skippable = skipped = 0
    for key in rng.integers(0, 100_000, 200).tolist():
        there = (rows.reshape(100, 2000) == key).any(axis=1)
        found = index.cannot_match(InSet(N, ValueSet.point(key)), stored, 0.05)
        assert not (there & found).any()
        skippable, skipped = skippable + int((~there).sum()), skipped + int(found.sum())
    assert skipped >= 0.95 * skippable


@pytest.mark.parametrize(
    ("kind", "pattern", "expected"),
    [
        ("ngrams", "%final%", [False, True, True, True]),
        ("ngrams", "%final%packages%", [False, True, True, True]),  # in different rows: a bitmap can't tell
        ("ngrams", "%éclair%", [True, False, True, True]),
        ("ngrams", "%deposits%", [False, True, True, True]),
        ("ngrams", "%fi%", [False, False, False, False]),
        ("ngrams", "quick%", [False, True, True, True]),
        ("ngrams", "deposit", [False, True, True, False]),
        ("prefix", "quick%", [False, True, True, True]),
        ("prefix", "q%s", [False, True, True, True]),
        ("prefix", "carefully final s%", [False, True, True, True]),
        ("prefix", "dep%", [True, True, True, False]),
        ("prefix", "%dep", [False, False, False, False]),
        ("suffix", "%packages", [False, True, True, True]),
        ("suffix", "%quick packages", [False, True, True, True]),
        ("suffix", "%airs", [True, False, True, True]),
        ("suffix", "pack", [True, True, True, False]),
        ("suffix", "%pack%", [False, False, False, False]),
        ("value-list", "%pack%", [False, True, True, False]),
    ],
)
def test_words_are_denied(kind: str, pattern: str, expected: list[bool]) -> None:
    found = denied(kind, Blocks("string", WORDS), like(S, parse_like(pattern)))
    # The block of NULL alone has no value: an index may say so or not, min and max do.
    assert [*found[:2], found[3]] == [*expected[:2], expected[3]]


def test_a_prefix_denies_ranges() -> None:
    blocks = Blocks("string", (("apple", "banana"), ("cherry pie",), ("cherry tart",)))
    between = InSet(S, ValueSet.interval("b", "cherry p"))
    assert denied("prefix", blocks, between, 2) == [False, False, False]
    assert denied("prefix", blocks, between, 8) == [False, True, True]
    assert denied("prefix", blocks, InSet(S, ValueSet.interval("bz", "ca"))) == [True, True, True]


def test_gaps_deny_ranges_that_fall_into_them() -> None:
    blocks = Blocks("bigint", ((1, 2, 100, 101, 500), (-(2**63), 2**63 - 1), ()))
    for low, high, expected in [(3, 100, [True] * 3), (102, 500, [True] * 3), (100, 102, [False, True, True])]:
        assert denied("gap-list", blocks, InSet(N, ValueSet.interval(low, high))) == expected
    two = InSet(N, ValueSet.interval(3, 9).union(ValueSet.interval(200, 300)))
    assert denied("gap-list", blocks, two) == [True] * 3
    assert denied("gap-list", blocks, two, 1) == [False, True, True]  # only the widest gap is known


def test_a_block_of_too_many_values_has_no_list() -> None:
    blocks = Blocks("int", (tuple(range(5)), (1, 2)))
    assert denied("value-list", blocks, InSet(Col("c", "int"), ValueSet.point(9)), 4) == [False, True]
    stored = find_index("hybrid").measure(blocks.column, 4)
    assert stored.field("values").is_valid().to_pylist() == [False, True]
    assert stored.field("filter").is_valid().to_pylist() == [True, False]


def test_bitmaps_fold_to_what_a_block_needs() -> None:
    few = Blocks("string", (("abc",), tuple(f"{i:06d}" for i in range(2000))))
    small, large = find_index("ngrams").measure(few.column, 0.25)
    assert len(small.as_py()) == 32
    assert 256 < len(large.as_py()) < 1024


def test_all_values_of_a_type_without_order_are_refused() -> None:
    for kind in BUILT_IN:
        with pytest.raises(SettingError, match=rf"array<int>.*{kind} has no use"):
            check_index(IndexSpec(Col("c", "array<int>"), kind))
    with pytest.raises(SettingError, match="unknown type of index 'magic': expected one of value-list, bloom"):
        check_index(IndexSpec(S, "magic"))
    with pytest.raises(SettingError, match=r"parameter 2, the share of false positives; give 1e-06 to 0\.5"):
        find_parameter(IndexSpec(S, "bloom", 2))
    assert str(IndexSpec(S, "bloom", 0.5)) == "s:bloom:0.5"
    assert not denied("ngrams", Blocks("string", (("abc",),)), Like(S, (ANY_STRING, "xyz"), True))[0]
