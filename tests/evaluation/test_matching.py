"""Which rows a filter holds for, on texts that only Spark can order: bytes that are no UTF-8."""

from __future__ import annotations

import operator
from functools import reduce

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.evaluation.predicates import KeyedRows, matching_rows
from layoutopt.model.predicates import (
    ANY_CHAR,
    ANY_STRING,
    Col,
    Comparison,
    InSet,
    Like,
    Node,
    canonical_pattern,
    like,
    matches,
    parse_like,
)
from layoutopt.model.values import Interval, Key, ValueSet, compare

S, T = Col("s", "string"), Col("t", "string")
EMOJI = "\U0001f600"
ROWS = pa.table(
    {
        "s": pa.array([b"a", b"\xff", EMOJI.encode(), None, b"\xed"]).view(pa.string()),
        "t": pa.array([EMOJI] * 5),
    }
)


def matching(node: Node) -> list[bool]:
    found = matching_rows(node, ROWS)
    assert found is not None
    return [bool(value) for value in found]


def test_bytes_that_are_no_utf8_compare_as_bytes() -> None:
    assert matching(InSet(S, compare(">", EMOJI, "string"))) == [False, True, False, False, False]
    assert matching(InSet(S, compare("<", EMOJI, "string"))) == [True, False, False, False, True]
    assert matching(InSet(S, ValueSet.point(EMOJI), True)) == [False, False, True, True, False]
    assert matching(Comparison(S, "<", T)) == [True, False, False, False, True]
    assert matching(Comparison(T, "<=", S)) == [False, True, True, False, False]


def test_whether_they_are_like_a_pattern_is_not_claimed() -> None:
    assert matching_rows(like(S, parse_like("%a_%")), ROWS) is None
    assert matching_rows(like(T, parse_like("%a_%")), ROWS) is not None


def value_sets(keys: st.SearchStrategy[Key]) -> st.SearchStrategy[ValueSet]:
    """Unions of points and of intervals that may be open."""
    ends = st.none() | keys
    intervals = st.tuples(ends, ends).map(lambda ends: ValueSet.interval(*ends))
    return st.lists(keys.map(ValueSet.point) | intervals, max_size=5).map(
        lambda sets: reduce(ValueSet.union, sets, ValueSet.empty())
    )


TEXTS = st.text("ab\x00é\ud7ff\uffff\U0001f600", max_size=3)
NUMBERS = st.sampled_from([-(2**63), -2, -1, 0, 1, 2, 3, 2**63 - 1])


def holds(intervals: tuple[Interval, ...], key: Key) -> bool:
    return any((low is None or low <= key) and (high is None or key < high) for low, high in intervals)  # type: ignore[operator]


@given(st.lists(st.none() | TEXTS), value_sets(TEXTS), st.booleans(), st.sampled_from(["plain", "chunks", "codes"]))
def test_texts_in_a_set_are_found(texts: list[str | None], values: ValueSet, null: bool, form: str) -> None:
    column = pa.chunked_array([texts[:2], texts[2:]] if form == "chunks" else [texts], pa.string())
    rows = KeyedRows(pa.table({"s": column.dictionary_encode() if form == "codes" else column}))
    found = matching_rows(InSet(S, values, null), rows)
    assert found is not None
    assert found.tolist() == [null if text is None else holds(values.intervals, text) for text in texts]


@pytest.mark.parametrize("type", ["bigint", "decimal(38,0)"])
@given(st.data())
def test_numbers_in_a_set_are_found(type: str, data: st.DataObject) -> None:
    column = data.draw(st.lists(st.none() | NUMBERS))
    values, null = data.draw(value_sets(st.integers(-(2**64), 2**64) | NUMBERS)), data.draw(st.booleans())
    rows = pa.table({"n": pa.array(column, pa.int64())})
    if type != "bigint":
        rows = rows.cast(pa.schema([("n", pa.decimal128(38, 0))]))
    found = matching_rows(InSet(Col("n", type), values, null), rows)
    assert found is not None
    assert found.tolist() == [null if key is None else holds(values.intervals, key) for key in column]


SIGNS = ("a", "b", ".", "\n", "\x00", "\\", "[", "é", "\U0001f600", "^-", "$", "*", "(?", " ", "#", "\t")


@given(
    st.lists(st.sampled_from([ANY_CHAR, ANY_STRING, *SIGNS]), max_size=5),
    st.lists(st.none() | st.text("".join(SIGNS), max_size=5)),
    st.booleans(),
)
def test_like_finds_what_the_pattern_matches(tokens: list[str], texts: list[str | None], negated: bool) -> None:
    pattern = canonical_pattern(tokens)
    found = matching_rows(Like(S, pattern, negated), pa.table({"s": pa.array(texts, pa.string())}))
    assert found is not None
    assert found.tolist() == [text is not None and matches(pattern, text) != negated for text in texts]


@given(st.lists(st.tuples(st.none() | TEXTS, st.none() | TEXTS)), st.sampled_from(["=", "<>", "<", "<="]))
def test_columns_of_texts_compare_as_their_bytes(pairs: list[tuple[str | None, str | None]], op: str) -> None:
    left, right = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    rows = pa.table({"s": pa.array(left, pa.string()), "t": pa.array(right, pa.string())})
    found = matching_rows(Comparison(S, op, T), rows)
    assert found is not None
    by_bytes = {"=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le}[op]
    assert found.tolist() == [a is not None and b is not None and by_bytes(a.encode(), b.encode()) for a, b in pairs]
