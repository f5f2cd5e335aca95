"""Which rows a filter holds for, on texts that only Spark can order: bytes that are no UTF-8."""

from __future__ import annotations

import pyarrow as pa

from layoutopt.model.predicates import Col, Comparison, InSet, Node, like, parse_like
from layoutopt.model.values import ValueSet, compare
from layoutopt.scan.matching import matching_rows

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
