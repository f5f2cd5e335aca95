"""Indexes of the elements of arrays, and of keys and values of maps: against brute force, row by row."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from layoutopt.errors import SettingError
from layoutopt.evaluation.expressions import evaluate, is_computed_here, select_for_spark
from layoutopt.extensions import names
from layoutopt.indexes.choosing import find_candidates, parse_indexes
from layoutopt.indexes.measuring import measure_indexes
from layoutopt.indexes.protocol import suits
from layoutopt.indexes.registry import BUILT_IN, check_index, find_index, find_parameter
from layoutopt.indexes.stored import StoredIndex
from layoutopt.model.arrays import Ints
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import ANY_STRING, And, Call, Col, Const, Expr, InSet, Like, Node, Or, like, matches
from layoutopt.model.predicates.normal import elements_of, get_element_literal, keys_of, make_exists_call, values_of
from layoutopt.model.schema import Column, Schema
from layoutopt.model.values import ValueSet, to_key
from layoutopt.skipping.cannot_match import BlockStatistics, cannot_match
from layoutopt.sql.scans import find_scans
from tests.effort import examples, long_too
from tests.indexes.columns import POOLS, literals_of
from tests.indexes.elements import ELEMENT_TYPES, FORMS, arrays, as_arrow, contains, rows_of

KINDS = names("indexes", BUILT_IN)
SCHEMA = Schema(
    (
        Column("tags", "array<string>"), Column("xs", "array<int>"), Column("m", "map<string,int>"),
        Column("mi", "map<int,int>"), Column("st", "struct<tags:array<string>>"), Column("days", "array<date>"),
        Column("xd", "array<double>"),
        Column("pairs", "array<struct<a:int>>"), Column("nested", "array<array<int>>"), Column("s", "string"),
        Column("short", "array<char(3)>"), Column("byid", "map<int,array<string>>"),
    )
)  # fmt: skip


def asked(condition: str) -> Node:
    """A condition as filters have it."""
    (scan,) = find_scans(f"SELECT s FROM t WHERE {condition}", {"t": SCHEMA})
    assert not scan.unusable, scan.unusable
    return scan.filter.root


def subject(text: str) -> Expr:
    return parse_indexes([f"{text}:bloom"], SCHEMA)[0].subject


def denied(node: Node, specs: Sequence[IndexSpec], rows: pa.Table, offsets: Ints) -> list[bool]:
    """The blocks that indexes of them deny the node to, each index measured and asked as a table's are."""
    measured = measure_indexes(specs, rows, offsets)
    found: dict[Expr, list[StoredIndex]] = {}
    for k, spec in enumerate(specs):
        stored = measured.field(k)
        index = StoredIndex(spec, find_index(spec.kind), len(offsets) - 1, lambda stored=stored: stored)  # type: ignore[misc]
        found.setdefault(spec.subject, []).append(index)
    answer: list[bool] = cannot_match(node, BlockStatistics(np.diff(offsets), indexes=found), None).tolist()
    return answer


def fitting(of: Expr) -> list[IndexSpec]:
    """Every type of index that takes an expression."""
    return [IndexSpec(of, kind) for kind in KINDS if suits(find_index(kind), of)]


@st.composite
def cut(draw: st.DrawFn, count: int) -> Ints:
    """Rows cut into blocks."""
    places = draw(st.lists(st.integers(0, count), max_size=4))
    return np.unique([0, *places, count])


def any_row(rows: Sequence[Any], offsets: Ints, test: Callable[[Any], bool | None]) -> list[bool]:
    """Whether the test is TRUE of some row, block by block."""
    return [any(test(row) is True for row in rows[a:b]) for a, b in pairwise(offsets)]


@given(data=st.data(), type=st.sampled_from(ELEMENT_TYPES), form=st.sampled_from(FORMS))
@settings(max_examples=examples(250))
def test_a_block_with_the_element_is_never_denied(data: st.DataObject, type: str, form: str) -> None:
    """By any type of index, of any form of arrays; a value list denies all blocks without it, and NOT denies none."""
    rows = rows_of(data.draw(arrays(type)), form)
    column, value = Col("xs", f"array<{type}>"), data.draw(st.sampled_from(POOLS[type][1]))
    offsets, table = data.draw(cut(len(rows))), pa.table({"xs": as_arrow(rows, type, form)})
    of = elements_of(column)
    assert of is not None
    holds = Call("array_contains", (column, Const(to_key(value, type), type)), "boolean")
    there = any_row(rows, offsets, lambda row: contains(row, value, type))
    lacking = any_row(rows, offsets, lambda row: contains(row, value, type) is False)
    for spec in fitting(of):
        found = denied(InSet(holds, ValueSet.point(1)), [spec], table, offsets)
        assert not any(np.logical_and(there, found)), spec
        if spec.kind == "value-list":
            assert found == [not each for each in there]
        for null in (False, True):  # NOT array_contains, and that or NULL
            found = denied(InSet(holds, ValueSet.point(0), null), [spec], table, offsets)
            assert not any(np.logical_and(lacking, found)), spec
            assert not any(found), spec
        # TRUE or NULL: nothing is known of NULL
        assert not any(denied(InSet(holds, ValueSet.point(1), null=True), [spec], table, offsets))


def is_met(literal: InSet | Like, value: Any, type: str) -> bool:
    """Whether a value makes a literal TRUE, which NULL does not."""
    if value is None:
        return False
    if isinstance(literal, Like):
        return matches(literal.pattern, value) != literal.negated
    return literal.values.contains(to_key(value, type))


def chosen(name: str, row: list[Any] | None, place: int, type: str) -> Any:
    """The element that a function gives of an array, as Spark has it; NULL where there is none."""
    if row is None:
        return None
    if name == "get":
        return row[place] if 0 <= place < len(row) else None
    if name == "try_element_at":
        at = place if place < 0 else place - 1
        return row[at] if -len(row) <= at < len(row) else None
    held = sorted((each for each in row if each is not None), key=lambda each: to_key(each, type))
    return None if not held else held[-1 if name == "array_max" else 0]


@given(data=st.data(), type=st.sampled_from(ELEMENT_TYPES), name=st.sampled_from(
    ["get", "try_element_at", "array_max", "array_min"]))  # fmt: skip
@settings(max_examples=examples(200))
def test_a_block_with_an_element_of_the_literal_is_never_denied(data: st.DataObject, type: str, name: str) -> None:
    """Of functions that give one element: places, the largest and the smallest, ranges and patterns of them."""
    rows, place = data.draw(arrays(type)), data.draw(st.sampled_from([-2, -1, 1, 2]))
    column, offsets = Col("xs", f"array<{type}>"), data.draw(cut(len(rows)))
    args = (column, Const(place, "int")) if name in ("get", "try_element_at") else (column,)
    literal = data.draw(literals_of(type, "c"))
    node = (
        Like(Call(name, args, type), literal.pattern, literal.negated)
        if isinstance(literal, Like)
        else InSet(Call(name, args, type), literal.values)
    )
    table = pa.table({"xs": as_arrow(rows, type, "list")})

    def holds(row: list[Any] | None) -> bool:
        return is_met(node, chosen(name, row, place, type), type)

    there = any_row(rows, offsets, holds)
    of = elements_of(column)
    assert of is not None
    for spec in fitting(of):
        found = denied(node, [spec], table, offsets)
        assert not any(np.logical_and(there, found)), spec


@given(data=st.data(), type=st.sampled_from(ELEMENT_TYPES))
@settings(max_examples=examples(150))
def test_a_block_with_an_element_that_meets_a_test_is_never_denied(data: st.DataObject, type: str) -> None:
    """``exists``: what has some element that matches a pattern or lies in a range; NOT of it is denied to none."""
    rows, literal = data.draw(arrays(type)), data.draw(literals_of(type, "x"))
    column, offsets = Col("xs", f"array<{type}>"), data.draw(cut(len(rows)))
    call, of = make_exists_call(column, literal), elements_of(column)
    if call is None:
        return
    assert of is not None
    met = get_element_literal(call, literal.subject)
    canonical = like(literal.subject, literal.pattern) if isinstance(literal, Like) else literal
    assert met == canonical  # LIKE 'a%' is a range, LIKE '%' any text
    table = pa.table({"xs": as_arrow(rows, type, "list")})
    there = any_row(rows, offsets, lambda row: any(is_met(literal, each, type) for each in row or ()))
    for spec in fitting(of):
        found = denied(InSet(call, ValueSet.point(1)), [spec], table, offsets)
        assert not any(np.logical_and(there, found)), spec
        if spec.kind == "value-list" and find_index("value-list").serves(met):
            assert found == [not each for each in there]
        assert not any(denied(InSet(call, ValueSet.point(0)), [spec], table, offsets))


KEYS: dict[str, list[Any]] = {"m": ["", "é", "k", "zz"], "mi": [-2, 0, 1, 40]}
places_of_keys = st.dictionaries(st.integers(0, 2), st.sampled_from([None, 0, 2, 3]), max_size=3)


@pytest.mark.parametrize("name", ["m", *long_too("mi")])
@given(data=st.data(), rows=st.lists(st.one_of(st.none(), places_of_keys), min_size=1, max_size=10),
       place=st.integers(0, 3), value=st.sampled_from([0, 2, 5]))  # fmt: skip
@settings(max_examples=examples(100))
def test_a_block_with_the_key_is_never_denied(
    name: str, data: st.DataObject, rows: list[dict[int, int | None] | None], place: int, value: int
) -> None:
    of_rows = [None if row is None else [(KEYS[name][k], v) for k, v in row.items()] for row in rows]
    type = pa.map_(pa.string() if name == "m" else pa.int32(), pa.int32())
    around = [(KEYS[name][0], 7)]
    held = pa.chunked_array([pa.array([around, *of_rows, around], type).slice(1, len(rows))])
    table, offsets = pa.table({name: held}), data.draw(cut(len(rows)))
    specs = [spec for text in (f"map_keys({name})", f"map_values({name})") for spec in fitting(subject(text))]
    assert len(specs) > 5
    key = f"'{KEYS[name][place]}'" if name == "m" else str(KEYS[name][place])

    def at(row: dict[int, int | None] | None) -> int | None:
        return None if row is None else row.get(place)

    tests: dict[str, Callable[[dict[int, int | None] | None], bool | None]] = {
        f"map_contains_key({name}, {key})": lambda row: row is not None and place in row,
        f"array_contains(map_values({name}), {value})": lambda row: row is not None and value in row.values(),
        f"{name}[{key}] = {value}": lambda row: at(row) == value,
        f"{name}[{key}] <> {value}": lambda row: at(row) not in (None, value),
        f"{name}[{key}] IS NOT NULL": lambda row: at(row) is not None,
        f"{name}[{key}] IS NULL": lambda row: at(row) is None,
        f"NOT map_contains_key({name}, {key})": lambda row: row is not None and place not in row,
        f"exists(map_values({name}), v -> v > {value})": lambda row: any(
            v is not None and v > value for v in (row or {}).values()
        ),
    }
    for text, test in tests.items():
        there = any_row(rows, offsets, test)
        for spec in specs:
            assert not any(np.logical_and(there, denied(asked(text), [spec], table, offsets))), (text, spec)
    lists = [spec for spec in specs if spec.kind == "value-list"]
    has_key = np.array(any_row(rows, offsets, lambda row: row is not None and place in row))
    assert denied(asked(f"map_contains_key({name}, {key})"), lists, table, offsets) == (~has_key).tolist()
    assert all(has_key | np.array(denied(asked(f"{name}[{key}] = 1"), lists, table, offsets)))


TAGS = [["red", "blue"], None, ["green", None], [], ["blue"], ["red"]]
NUMBERS = [[1, 2], None, [40, None], [], [7], [3, 100]]
ROWS = pa.table({
    "tags": pa.array(TAGS, pa.list_(pa.string())), "xs": pa.array(NUMBERS, pa.list_(pa.int32())),
    "st": pa.array([None if tags is None else {"tags": tags} for tags in TAGS],
                   pa.struct([("tags", pa.list_(pa.string()))])),
})  # fmt: skip
OFFSETS = np.array([0, 2, 4, 6])


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("array_contains(tags, 'red')", [False, True, False]),
        ("NOT array_contains(tags, 'red')", [False, False, False]),
        ("array_contains(tags, 'red') AND array_contains(tags, 'green')", [True, True, True]),
        ("array_contains(tags, 'red') OR array_contains(tags, 'green')", [False, False, False]),
        ("array_contains(st.tags, 'green')", [True, False, True]),
        ("exists(tags, x -> x = 'green')", [True, False, True]),
        ("exists(tags, x -> x IN ('green', 'pink'))", [True, False, True]),
        ("arrays_overlap(tags, array('pink', 'green'))", [True, False, True]),
        ("arrays_overlap(array('pink', 'brown'), tags)", [True, True, True]),
        ("NOT arrays_overlap(tags, array('pink'))", [False, False, False]),
        ("tags[0] LIKE '%ee%'", [True, False, True]),
        ("exists(xs, x -> x > 40)", [True, True, False]),
        ("exists(xs, x -> x BETWEEN 8 AND 39)", [True, True, True]),
        ("exists(tags, x -> x LIKE 'gre%')", [True, False, True]),
        ("exists(tags, x -> x LIKE '%l_e')", [False, True, False]),
        ("exists(xs, x -> x < 2)", [False, True, True]),
        ("exists(xs, x -> x = 50)", [True, True, True]),
        ("array_max(xs) BETWEEN 20 AND 60", [True, False, True]),
        ("size(tags) = 0 OR array_contains(tags, 'pink')", [False, False, False]),
    ],
)
def test_what_is_denied(condition: str, expected: list[bool]) -> None:
    (scan,) = find_scans(f"SELECT s FROM t WHERE {condition}", {"t": SCHEMA})
    specs = parse_indexes(["tags:value-list", "st.tags:value-list", "xs:gap-list"], SCHEMA)
    assert denied(scan.filter.root, specs, ROWS, OFFSETS) == expected


def test_elements_never_stand_in_a_filter() -> None:
    """Two elements of one array may meet two conditions that no single value meets."""
    both = asked("exists(tags, x -> x = 'red') AND exists(tags, x -> x = 'blue')")
    specs = parse_indexes(["tags:value-list"], SCHEMA)
    assert denied(both, specs, ROWS, OFFSETS) == [False, True, False]
    assert isinstance(both, And)
    assert all(isinstance(each, InSet) and each.subject.type == "boolean" for each in both.children)


def test_constants_of_other_types_are_not_asked() -> None:
    column = Col("xs", "array<int>")
    other = Call("array_contains", (column, Const(50, "bigint")), "boolean")
    assert denied(InSet(other, ValueSet.point(1)), parse_indexes(["xs:bloom"], SCHEMA), ROWS, OFFSETS) == [False] * 3
    (scan,) = find_scans("SELECT s FROM t WHERE array_contains(xs, 3000000000)", {"t": SCHEMA})
    assert scan.unusable
    date = asked("array_contains(days, DATE '2024-01-01')")
    assert find_candidates([date])
    assert find_candidates([asked("array_contains(xd, 0.5D)")])
    assert find_scans("SELECT s FROM t WHERE array_contains(xd, 0.5)", {"t": SCHEMA})[0].unusable


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m:bloom", "m is a map; index map_keys(m) or map_values(m)"),
        ("pairs:bloom", "the elements of pairs are struct<a:int>, which have no order here"),
        ("nested:value-list", "the elements of nested are array<int>"),
        ("short:bloom", "the elements of short are char(3)"),
        ("tags:gap-list", "values of the type 'string', for which gap-list has no use"),
        ("map_keys(tags):bloom", "is not a map"),
    ],
)
def test_what_has_no_such_index_is_refused_in_a_sentence(text: str, message: str) -> None:
    with pytest.raises(SettingError, match=re.escape(message)):
        parse_indexes([text], SCHEMA)


@pytest.mark.parametrize("column", [Col("n", "int"), Col("xs", "array<int>"), Col("m", "map<string,string>")])
def test_elements_that_an_array_can_not_have_are_refused(column: Col) -> None:
    """A plan may say anything."""
    with pytest.raises(SettingError, match="is of elements of the type 'string', which"):
        check_index(IndexSpec(Call("elements", (column,), "string"), "bloom"))


def test_indexes_of_elements_are_named_by_their_array() -> None:
    texts = ["tags:value-list", "st.tags:bloom:0.05", "map_keys(m):prefix", "map_values(m):gap-list:4", "byid[3]:bloom"]
    specs = parse_indexes(texts, SCHEMA)
    assert [str(spec) for spec in specs] == [*texts[:4], "try_element_at(byid, 3):bloom"]
    assert parse_indexes(list(map(str, specs)), SCHEMA) == specs
    assert [is_computed_here(spec.subject) for spec in specs] == [True, True, True, True, False]
    (array,) = select_for_spark(spec.subject for spec in specs)
    assert array.type == "array<string>"
    computed = {array: pa.chunked_array([[["x"], None, ["y", "z"]]])}
    measured = measure_indexes(specs[4:], pa.table({"byid": pa.nulls(3)}), np.array([0, 2, 3]), computed).field(0)
    assert measured.null_count == 0
    assert measured[0] != measured[1]


def test_a_log_with_elements_asks_for_their_indexes() -> None:
    named = set(map(str, find_candidates([asked("array_contains(tags, 'a') AND exists(xs, x -> x > 3)")])))
    assert {"tags:value-list", "tags:bloom", "tags:hybrid", "xs:gap-list"} <= named
    assert "map_keys(m):bloom" in set(map(str, find_candidates([asked("m['k'] = 1")])))
    assert find_candidates([asked("NOT array_contains(tags, 'a')")]) == ()


def test_rows_that_never_had_a_value_have_no_elements() -> None:
    rows = pa.table({"tags": pa.nulls(3), "m": pa.nulls(3)})
    for text in ("tags", "map_keys(m)"):
        found = evaluate(subject(text), rows)
        assert found is not None
        assert found.starts is not None
        assert (len(found.values), found.starts.tolist()) == (0, [0, 0, 0, 0])
        specs = [IndexSpec(subject(text), kind) for kind in ("value-list", "bloom")]
        assert measure_indexes(specs, rows, np.array([0, 3])).field(0).to_pylist() == [[]]
    assert evaluate(subject("tags"), pa.table({"s": pa.nulls(1)})) is None


def test_parts_of_maps_are_of_maps() -> None:
    tags, m = Col("tags", "array<string>"), Col("m", "map<string,int>")
    assert (keys_of(tags), values_of(tags), elements_of(m)) == (None, None, None)
    assert not is_computed_here(Call("map_keys", (tags,), "array<string>"))
    assert find_parameter(IndexSpec(subject("tags"), "value-list")) == 256
    assert Or((asked("array_contains(tags, 'a')"), Like(subject("tags"), ("a", ANY_STRING, "b")))).columns == {"tags"}
