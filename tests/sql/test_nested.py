"""Parts of nested columns in conditions."""

from __future__ import annotations

import pytest

from layoutopt.model.predicates import TRUE, Call, Col, Const, InSet, describe, to_sql
from layoutopt.model.schema import Column, Schema
from layoutopt.sql.scans import TableScan, find_scans

STRUCT = "struct<a:int,B:struct<deep:string,x y:double>,code:char(3),m:map<string,int>,a2:int,A2:int>"
SCHEMA = Schema(
    (
        Column("st", STRUCT), Column("m", "map<string,int>"), Column("byid", "map<int,struct<a:string>>"),
        Column("arr", "array<int>"), Column("words", "array<string>"), Column("a", "int"),
    )
)  # fmt: skip


def scan(condition: str, select: str = "SELECT a FROM t") -> TableScan:
    (found,) = find_scans(f"{select} WHERE {condition}", {"t": SCHEMA})
    return found


@pytest.mark.parametrize(
    ("condition", "shown", "text"),
    [
        ("st.a = 3", "st.a = 3", "`st`['a'] = 3"),
        ("t.ST.A = 3", "st.a = 3", "`st`['a'] = 3"),
        ("st['a'] > 3", "st.a >= 4", "`st`['a'] >= 4"),
        ("st.b.deep LIKE 'x%'", "st.B.deep LIKE 'x%'", "`st`['B']['deep'] LIKE 'x%'"),
        ("t.st.b.`x y` > 0", "st.B.x y > 0.0", None),
        ("st.m['k'] IN (1, 3)", "try_element_at(st.m, 'k') IN (1, 3)", None),
        ("m['k'] = 1 AND st.a IS NULL", "st.a IS NULL AND try_element_at(m, 'k') = 1", None),
        ("element_at(m, 'k') = 1", "try_element_at(m, 'k') = 1", None),
        ("byid[7].a = 'x'", "try_element_at(byid, 7).a = 'x'", "try_element_at(`byid`, 7)['a'] = 'x'"),
        ("arr[0] = 5", "get(arr, 0) = 5", None),
        ("element_at(arr, -1) = 5", "try_element_at(arr, -1) = 5", None),
        ("array_contains(words, 'it''s')", "array_contains(words, 'it''s')", None),
        ("NOT array_contains(arr, 5)", "NOT array_contains(arr, 5)", None),
        ("map_contains_key(m, 'k')", "array_contains(map_keys(m), 'k')", "array_contains(map_keys(`m`), 'k')"),
        ("NOT map_contains_key(byid, 7)", "NOT array_contains(map_keys(byid), 7)", None),
        ("array_contains(map_values(m), 3)", "array_contains(map_values(m), 3)", None),
        ("exists(map_values(st.m), v -> 3 < v)", "array_max(map_values(st.m)) >= 4", None),
        ("map_values(m)[0] = 1", "get(map_values(m), 0) = 1", None),
        ("map_keys(m) IS NULL", "map_keys(m) IS NULL", None),
        ("exists(arr, x -> x IN (5))", "array_contains(arr, 5)", None),
        (
            "exists(words, x -> x LIKE '%a_b')",
            "exists(words, x -> x LIKE '%a_b')",
            "exists(`words`, x -> `x` LIKE '%a_b')",
        ),
        ("exists(words, word -> startswith(word, 'a'))", "exists(words, x -> x LIKE 'a%')", None),
        (
            "exists(arr, x -> x > 3 AND x < 9)",
            "exists(arr, x -> x BETWEEN 4 AND 8)",
            "exists(`arr`, x -> `x` BETWEEN 4 AND 8)",
        ),
        ("exists(arr, x -> x > '3')", "array_max(arr) >= 4", None),
        ("exists(arr, X -> x > 2.5)", "array_max(arr) >= 3", None),
        ("exists(arr, x -> x <> 3)", "array_max(arr) >= 4 OR array_min(arr) <= 2", None),
        ("exists(arr, x -> x = 3 OR x < 0)", "array_contains(arr, 3) OR array_min(arr) <= -1", None),
        ("arrays_overlap(words, array('b', 'a'))", "array_contains(words, 'a') OR array_contains(words, 'b')", None),
        ("NOT arrays_overlap(array(5), arr)", "NOT array_contains(arr, 5)", None),
    ],
)
def test_parts_are_calls_that_fail_on_no_row(condition: str, shown: str, text: str | None) -> None:
    found = scan(condition)
    assert not found.unusable
    assert describe(found.filter.root).replace("\\'", "''") == shown
    assert text is None or to_sql(found.filter.root) == text


@pytest.mark.parametrize(
    "condition",
    [
        "st.none = 1", "st.code = 'abc'", "st.a2 = 1", "m[3] = 1", "byid['x'].a = 'y'", "arr['x'] = 1", "a.b = 1",
        "element_at(arr, 0) = 1", "array_contains(a, 1)", "array_contains(words, 1)", "array_contains(arr, 3000000000)",
        "array_contains(arr, a)", "m[words[0]] = 1", "st = st", "st.b = st.b", "array_contains(arr, NULL)",
        "map_keys(arr) IS NULL", "map_contains_key(m, 1)", "map_contains_key(m, words[0])", "map_values(m, m) IS NULL",
        "arrays_overlap(arr, arr)", "arrays_overlap(arr, array(a))", "arrays_overlap(arr, array(1, NULL))",
        "arrays_overlap(array(1), array(2))", "exists(arr, x -> x IS NULL)", "exists(arr, x -> x % 2 = 1)",
        "exists(words, x -> x LIKE 'a%' AND x LIKE '%b')", "NOT exists(words, x -> x LIKE 'a%')",
        "exists(arr, x -> x > 1 AND x < a)", "exists(arr, x -> x > 1 AND st.a < 3)", "exists(a, x -> x LIKE 'b')",
        "exists(words, x -> x LIKE words[0])", "exists(arr, x -> true)", "exists(words, x -> lower(x) = 'a')",
        "exists(arr, (x, i) -> x IN (1))", "NOT exists(arr, x -> x > 1)", "exists(arr, x -> x > x)",
        "exists(words, x -> x IN (SELECT 'a'))", "array_contains(arr, 1.5)", "exists(arr, x -> x IN ('a', 1))",
        # compared as numbers or dates, of which the largest text is not the largest
        "exists(words, x -> x > 5)", "exists(words, x -> 5.5 >= x)", "exists(words, x -> x < DATE '2020-01-01')",
    ],
)  # fmt: skip
def test_what_has_no_exact_meaning_is_left_out(condition: str) -> None:
    found = scan(condition)
    assert found.filter.root == TRUE
    assert len(found.unusable) == 1


def test_a_table_goes_before_a_struct_of_its_name() -> None:
    (found,) = find_scans("SELECT a FROM t AS st WHERE st.a = 3", {"t": SCHEMA})
    assert found.filter.root == scan("a = 3").filter.root
    assert found.columns == ("a",)
    assert scan("st.a = 3").columns == ("st", "a")


def test_fields_above_outer_joins_need_a_row() -> None:
    text = "SELECT 1 FROM (SELECT 1 AS one) s LEFT JOIN t ON s.one = t.a WHERE t.st.a {}"
    (with_null,) = find_scans(text.format("IS NULL"), {"t": SCHEMA})
    assert with_null.filter.root == TRUE


def test_a_field_is_of_a_struct_and_a_name() -> None:
    with pytest.raises(ValueError, match="get_field has other arguments"):
        Call("get_field", (Col("st", "struct<a:int>"), Const(1, "int")), "int")
    assert isinstance(scan("st.a = 3").filter.root, InSet)
