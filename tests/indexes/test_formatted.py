"""Pieces of texts: what follows for a piece from the whole text, and which blocks that denies."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from layoutopt.indexes.choosing import find_candidates
from layoutopt.indexes.measuring import measure_indexes
from layoutopt.indexes.registry import find_index
from layoutopt.indexes.stored import StoredIndex
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import Call, Col, Const, InSet, Node
from layoutopt.model.predicates.patterns import extract_group
from layoutopt.model.values import ValueSet
from layoutopt.skipping.cannot_match import BlockStatistics, cannot_match
from layoutopt.skipping.implied_literals import derive_function_literal

S = Col("code", "string")
AIRLINE = Call("regexp_extract", (S, Const("^([A-Z]{2})-(\\d+)$", "string"), Const(1, "int")), "string")
CODES: list[list[str | None]] = [["AB-1", "AB-77", "XY-3"], ["QR-1", None, "none"], ["XY-9", "AB-1"]]


def one_of(*texts: str) -> InSet:
    return InSet(S, ValueSet.of(texts))


def indexed(kind: str = "formatted") -> BlockStatistics:
    spec, offsets = IndexSpec(AIRLINE, kind), np.array([0, 3, 6, 8])
    flat = [code for block in CODES for code in block]
    pieces = [None if code is None else extract_group(code, "^([A-Z]{2})-(\\d+)$", 1) for code in flat]
    stored = measure_indexes([spec], pa.table({"code": flat}), offsets, {AIRLINE: pa.chunked_array([pieces])}).field(0)
    index = StoredIndex(spec, find_index(kind), 3, lambda: stored)
    return BlockStatistics(np.diff(offsets), indexes={AIRLINE: [index]})


@pytest.mark.parametrize("kind", ["formatted", "value-list", "bloom"])
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (InSet(AIRLINE, ValueSet.of(["QR"])), [True, False, True]),
        (InSet(AIRLINE, ValueSet.of([""])), [True, False, True]),
        (one_of("AB-5"), [False, True, False]),
        (one_of("QR-1", "ZZ-1"), [True, False, True]),
        (one_of("some other text"), [True, False, True]),
        (one_of("AB-1\n"), [False, True, False]),  # to Java, the text ends before the line does
        (InSet(S, ValueSet.of(["ZZ-1"]), null=True), [False, False, False]),
    ],
)
def test_tashma_formatted_denies_pieces_and_whole_texts(kind: str, asked: Node, expected: list[bool]) -> None:
    assert cannot_match(asked, indexed(kind), None).tolist() == expected


def test_a_filter_on_a_piece_asks_for_it() -> None:
    assert IndexSpec(AIRLINE, "formatted") in find_candidates([InSet(AIRLINE, ValueSet.of(["AB"]))])
    assert IndexSpec(S, "formatted") not in find_candidates([one_of("AB-1")])


@pytest.mark.parametrize(
    "function",
    [
        Call("split_part", (S, Const("-", "string")), "string"),
        Call("split_part", (S, Const(None, "string"), Const(1, "int")), "string"),
        Call("split_part", (S, S, Const(1, "int")), "string"),
        Call("regexp_extract", (S, Const("(a*)*", "string"), Const(1, "int")), "string"),
        Call("regexp_extract", (S, Const("a", "string"), Const(1, "int")), "string"),
        Call("get_json_object", (S, Const("$.a", "string")), "string"),
        Call("lower", (Col("other", "string"),), "string"),
        Call("length", (S,), "int"),
        Col("other", "string"),
    ],
)
def test_of_other_functions_nothing_follows(function: Call | Col) -> None:
    assert derive_function_literal(function, one_of("a-b")) is None
    assert derive_function_literal(AIRLINE, InSet(S, ValueSet.prefix("AB-"))) is None
