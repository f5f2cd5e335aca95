"""Conditions to nodes: what they mean, and that equal conditions become equal filters."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.model.feature import SessionSettings
from layoutopt.model.predicates import (
    ANY_CHAR,
    ANY_STRING,
    FALSE,
    TRUE,
    Call,
    Col,
    Comparison,
    Const,
    Filter,
    InSet,
    Like,
    Node,
    conjunction,
    describe,
    disjunction,
)
from layoutopt.model.udf import udf
from layoutopt.model.values import NAN_KEY, ValueSet, compare, to_key
from layoutopt.model.values.keys import float_key
from layoutopt.sql.scans import TableScan, find_scans
from tests.sql.schemas import SCHEMA, TYPES
from tests.workload.oracle import holds


def scan(condition: str, **options: object) -> TableScan:
    (found,) = find_scans(f"SELECT count(*) FROM t WHERE {condition}", {"t": SCHEMA}, **options)  # type: ignore[arg-type]
    return found


def root(condition: str, **options: object) -> Node:
    found = scan(condition, **options)
    assert found.unusable == ()
    return found.filter.root


def col(name: str) -> Col:
    return Col(name, TYPES[name])


def in_set(name: str, op: str, value: object) -> InSet:
    return InSet(col(name), compare(op, value, TYPES[name]))


def test_ten_spellings_of_one_filter_are_one_predicate() -> None:
    spellings = [
        "i BETWEEN 1 AND 2",
        "i >= 1 AND i <= 2",
        "NOT (i < 1 OR i > 2)",
        "2 >= i AND 1 <= i",
        "i IN (1, 2)",
        "i = 1 OR i = 2",
        "I > 0 AND t.i < 3",
        "cast(i AS BIGINT) > 0.5 AND i < 2.5",
        "i IN (2, 1, 2) AND i IS NOT NULL",
        "NOT (i NOT IN ('1', '2'))",
        "i BETWEEN 3 - 2 AND 1 * 2",
        "i <=> 1 OR i <=> 2",
    ]
    filters = {Filter.of(root(spelling)) for spelling in spellings}
    assert len(filters) == 1
    (only,) = filters
    assert len(only.predicates) == 1


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("d = '1994-01-01'", in_set("d", "=", dt.date(1994, 1, 1))),
        ("d < '1994'", in_set("d", "<", dt.date(1994, 1, 1))),
        ("d < date '1994-01-31' + interval '1' month", in_set("d", "<", dt.date(1994, 2, 28))),
        ("d <= date '1998-12-01' - interval '90' day", in_set("d", "<=", dt.date(1998, 9, 2))),
        ("d < add_months('1996-02-29', 12)", in_set("d", "<", dt.date(1997, 2, 28))),
        ("d >= date_sub('1994-01-01', 1)", in_set("d", ">=", dt.date(1993, 12, 31))),
        ("d >= date '1994-01-01' + 7", in_set("d", ">=", dt.date(1994, 1, 8))),
        ("p >= 0.06 - 0.01", in_set("p", ">=", Decimal("0.05"))),
        ("p = 0.055", FALSE),
        ("p <> 0.055", InSet(col("p"), ValueSet.all())),
        ("i > 5.5", in_set("i", ">=", 6)),
        ("i = '7'", in_set("i", "=", 7)),
        ("i = -3", in_set("i", "=", -3)),
        ("i IN (1, 2.5)", in_set("i", "=", 1)),
        ("f = 0.1", FALSE),
        ("f = 0.5", in_set("f", "=", 0.5)),
        ("x > 0.1", in_set("x", ">", 0.1)),
        ("flag", InSet(col("flag"), ValueSet.point(1))),
        ("NOT flag", InSet(col("flag"), ValueSet.point(0))),
        ("flag = false", InSet(col("flag"), ValueSet.point(0))),
        ("s >= 'b'", InSet(col("s"), ValueSet.interval("b", None))),
        ("s = 'it''s'", in_set("s", "=", "it's")),
        ("s = 'a' || 'b'", in_set("s", "=", "ab")),
        ("s = upper('x')", in_set("s", "=", "X")),
        (r"s = 'a\tb'", in_set("s", "=", "a\tb")),
        ("1 = 0", FALSE),
        ("1 < 2", TRUE),
        ("true", TRUE),
    ],
)
def test_literals_are_typed_and_folded_as_spark_does(condition: str, expected: Node) -> None:
    assert root(condition) == expected


@pytest.mark.parametrize("condition", ["i = NULL", "i <> NULL", "NOT (i = NULL)", "i IN (NULL)", "i NOT IN (1, NULL)"])
def test_comparing_with_null_is_never_true(condition: str) -> None:
    assert root(condition) == FALSE


@pytest.mark.parametrize(
    ("condition", "values", "null"),
    [
        ("i IS NULL", ValueSet.empty(), True),
        ("i IS NOT NULL", ValueSet.all(), False),
        ("NOT (i IS NULL)", ValueSet.all(), False),
        ("isnull(i)", ValueSet.empty(), True),
        ("i <=> NULL", ValueSet.empty(), True),
        ("NOT (i <=> NULL)", ValueSet.all(), False),
        ("NOT (i <=> 5)", ValueSet.point(5).complement(), True),
        ("i IS DISTINCT FROM 5", ValueSet.point(5).complement(), True),
        ("i <> 5", ValueSet.point(5).complement(), False),
        ("i IN (1, NULL)", ValueSet.point(1), False),
        ("i = 5 OR i IS NULL", ValueSet.point(5), True),
    ],
)
def test_null_follows_three_valued_logic(condition: str, values: ValueSet, null: bool) -> None:
    assert root(condition) == InSet(col("i"), values, null)


def test_boolean_tests_know_null() -> None:
    assert root("flag IS NOT TRUE") == InSet(col("flag"), ValueSet.point(0), null=True)
    assert root("flag IS FALSE") == InSet(col("flag"), ValueSet.point(0))


def test_is_null_is_known_even_of_types_without_order() -> None:
    assert root("arr IS NULL") == InSet(col("arr"), ValueSet.empty(), null=True)


def test_nan() -> None:
    assert root("isnan(x)") == InSet(col("x"), ValueSet.point(NAN_KEY))
    # Spark's isnan(NULL) is FALSE, not NULL
    assert root("NOT isnan(x)") == InSet(col("x"), ValueSet.point(NAN_KEY).complement(), null=True)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("s LIKE 'ab%'", InSet(col("s"), ValueSet.prefix("ab"))),
        ("s LIKE 'ab'", InSet(col("s"), ValueSet.point("ab"))),
        (r"s LIKE '50\%'", InSet(col("s"), ValueSet.point("50%"))),
        (r"s LIKE 'a\_b%'", InSet(col("s"), ValueSet.prefix("a_b"))),
        ("s LIKE 'a!_b%' ESCAPE '!'", InSet(col("s"), ValueSet.prefix("a_b"))),
        ("s LIKE '%x_'", Like(col("s"), (ANY_STRING, "x", ANY_CHAR))),
        ("s NOT LIKE '%x%'", Like(col("s"), (ANY_STRING, "x", ANY_STRING), negated=True)),
        ("NOT s NOT LIKE '%x%'", Like(col("s"), (ANY_STRING, "x", ANY_STRING))),
        ("contains(s, '%')", Like(col("s"), (ANY_STRING, "%", ANY_STRING))),
        ("startswith(s, 'x')", InSet(col("s"), ValueSet.prefix("x"))),
        ("endswith(s, 'x')", Like(col("s"), (ANY_STRING, "x"))),
        ("locate('x', s) > 0", Like(col("s"), (ANY_STRING, "x", ANY_STRING))),
        ("instr(s, 'x') = 0", Like(col("s"), (ANY_STRING, "x", ANY_STRING), negated=True)),
        ("s LIKE ANY ('a%', 'b%')", InSet(col("s"), ValueSet.prefix("a").union(ValueSet.prefix("b")))),
        ("s NOT LIKE ALL ('a', 'b')", InSet(col("s"), ValueSet.of(["a", "b"]).complement())),
        ("NOT (s LIKE ANY ('a', 'b'))", InSet(col("s"), ValueSet.of(["a", "b"]).complement())),
        ("s NOT LIKE ANY ('a', 'b')", InSet(col("s"), ValueSet.all())),
        ("s ILIKE 'Ab'", InSet(Call("lower", (col("s"),), "string"), ValueSet.point("ab"))),
    ],
)
def test_patterns(condition: str, expected: Node) -> None:
    assert root(condition) == expected


@pytest.mark.parametrize(
    ("condition", "low", "high"),
    [
        ("year(d) = 1994", dt.date(1994, 1, 1), dt.date(1995, 1, 1)),
        ("cast(extract(year FROM d) AS bigint) IN (1994, 1995)", dt.date(1994, 1, 1), dt.date(1996, 1, 1)),
        ("year(d) > 1994 AND year(d) <= 1996", dt.date(1995, 1, 1), dt.date(1997, 1, 1)),
    ],
)
def test_years_are_ranges_of_dates(condition: str, low: dt.date, high: dt.date) -> None:
    assert root(condition) == InSet(col("d"), ValueSet.interval(to_key(low, "date"), to_key(high, "date")))


def test_years_no_date_reaches_bound_nothing() -> None:
    assert root("year(d) < 2000000000") == InSet(col("d"), ValueSet.all())
    assert root("year(d) > 2000000000") == FALSE


@pytest.mark.parametrize("name", ["ts", "n"])
def test_dates_of_timestamps_are_ranges(name: str) -> None:
    zone = dt.UTC if name == "ts" else None
    low, high = dt.datetime(1994, 1, 1, tzinfo=zone), dt.datetime(1994, 1, 2, tzinfo=zone)
    expected = InSet(col(name), ValueSet.interval(to_key(low, TYPES[name]), to_key(high, TYPES[name])))
    assert root(f"cast({name} AS DATE) = '1994-01-01'") == expected
    assert root(f"{name} >= '1994-01-01' AND {name} < '1994-01-02 00:00:00'") == expected
    assert root(f"{name} >= date '1994-01-01' AND {name} < date '1994-01-02'") == expected


def test_dates_beside_timestamps_are_compared_at_midnight() -> None:
    assert root("d < timestamp '1994-01-01 12:00:00'") == in_set("d", "<=", dt.date(1994, 1, 1))
    assert root("d = timestamp '1994-01-01 12:00:00'") == FALSE


def test_time_zones_move_timestamps() -> None:
    berlin = SessionSettings(time_zone="Europe/Berlin")
    midnight = to_key(dt.datetime(2003, 12, 31, 23, tzinfo=dt.UTC), "timestamp")
    assert root("ts >= '2004-01-01'", settings=berlin) == InSet(col("ts"), ValueSet.interval(midnight, None))
    assert root("ts >= '2003-12-31 23:00:00Z'", settings=berlin) == InSet(col("ts"), ValueSet.interval(midnight, None))
    # no range of instants is promised for local dates: the cast itself is the subject
    cast = Call("try_cast", (col("ts"),), "date")
    day = ValueSet.point(to_key(dt.date(1994, 1, 1), "date"))
    assert root("cast(ts AS DATE) = '1994-01-01'", settings=berlin) == InSet(cast, day)


@pytest.mark.parametrize(
    ("condition", "subject", "values"),
    [
        ("s = 5", Call("try_cast", (col("s"),), "bigint"), ValueSet.point(5)),
        ("s IN ('1', 2)", Call("try_cast", (col("s"),), "bigint"), ValueSet.of([1, 2])),
        ("s > 5.5", Call("try_cast", (col("s"),), "double"), compare(">", 5.5, "double")),
        ("cast(x AS int) = 5", Call("try_cast", (col("x"),), "int"), ValueSet.point(5)),
        ("i % 8 = 3", Call("try_mod", (col("i"), Const(8, "int")), "int"), ValueSet.point(3)),
        ("i + b = 3", Call("try_add", (col("i"), col("b")), "bigint"), ValueSet.point(3)),
        (
            "i / 2 = 1.5",
            Call("try_divide", (col("i"), Const(float_key(2.0), "double")), "double"),
            compare("=", 1.5, "double"),
        ),
        ("month(d) = 2", Call("month", (col("d"),), "int"), ValueSet.point(2)),
        ("lower(s) = 'x'", Call("lower", (col("s"),), "string"), ValueSet.point("x")),
        ("coalesce(i, 0) = 0", Call("coalesce", (col("i"), Const(0, "int")), "int"), ValueSet.point(0)),
        (
            "abs(b) = 1",
            Call("abs", (Call("try_cast", (col("b"),), "decimal(20,0)"),), "decimal(20,0)"),
            ValueSet.point(1),
        ),
    ],
)
def test_functions_are_subjects_in_a_form_that_never_fails(condition: str, subject: Call, values: ValueSet) -> None:
    assert root(condition) == InSet(subject, values)


def test_columns_are_compared_in_their_common_type() -> None:
    assert root("b > i") == Comparison(col("i"), "<", col("b"))
    assert root("s = d") == Comparison(col("d"), "=", Call("try_cast", (col("s"),), "date"))
    assert root("NOT (s <= s)") == FALSE


def test_boolean_functions_need_to_be_declared() -> None:
    good = udf("boolean", name="is_good", version="1")(len)
    declared = root("is_good(s, 1)", udfs={"is_good": good})
    assert declared == InSet(Call(good.measured_name, (col("s"), Const(1, "int")), "boolean"), ValueSet.point(1))
    assert root("rlike(s, '^a.*b$')") == InSet(
        Call("rlike", (col("s"), Const("^a.*b$", "string")), "boolean"), ValueSet.point(1)
    )


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("rand() < 0.5", "non-deterministic"),
        ("d > current_date()", "non-deterministic"),
        ("ts > now() - interval 1 day", "non-deterministic"),
        ("is_good(s)", "unsupported-function"),
        ("floor(x) IS NULL", "unsupported-function"),  # fails for doubles that no bigint holds
        ("floor(x) + 1 = 2", "unsupported-function"),
        ("floor(x) < i", "can-fail"),
        ("i IN (SELECT 1)", "subquery"),
        ("c = 'abc'", "unordered-type"),
        ("c IS NULL", "unordered-type"),
        ("l = 'abc'", "unordered-type"),
        ("arr = arr", "unordered-type"),
        ("i = 'x'", "inexact"),
        ("d = 'yesterday'", "inexact"),
        ("i = 1 / 0", "inexact"),
        ("i = 2147483647 + 1", "inexact"),
        ("flag = 1", "coercion"),
        ("p / (p * p) > 2", "coercion"),
        ("s RLIKE '(a|b)*'", "can-fail"),
        (r"s LIKE 'a\\c'", "inexact"),
    ],
)
def test_what_has_no_exact_meaning_is_left_out_with_a_reason(condition: str, code: str) -> None:
    alone = scan(condition)
    assert alone.filter.root == TRUE
    assert [each.code for each in alone.unusable] == [code]
    assert not alone.exact
    assert scan(f"i = 1 AND {condition}").filter.root == in_set("i", "=", 1)
    assert scan(f"i = 1 OR {condition}").filter.root == TRUE
    assert scan(f"NOT (i = 1 AND {condition})").filter.root == TRUE


def test_without_ansi_mode_casts_wrap_and_make_no_subject() -> None:
    found = scan("s = 5", settings=SessionSettings(ansi=False))
    assert found.filter.root == TRUE
    assert [each.code for each in found.unusable] == ["coercion"]


def test_long_chains_are_read() -> None:
    chain = " OR ".join(f"i = {number}" for number in range(5000))
    assert root(chain) == InSet(col("i"), ValueSet.interval(0, 5000))


# --- against DuckDB, where it agrees with Spark

ROWS: list[tuple[object, ...]] = [
    (i, b, s, d, p)
    for i, b, s, d, p in [
        (None, None, None, None, None),
        (0, 0, "", dt.date(1970, 1, 1), Decimal("0.00")),
        (1, 2, "a", dt.date(1994, 12, 31), Decimal("0.05")),
        (2, 1, "ab", dt.date(1995, 1, 1), Decimal("0.06")),
        (3, None, "b", None, Decimal("-1.50")),
        (None, 3, "ba", dt.date(1996, 2, 29), None),
        (-1, -1, "%", dt.date(1993, 6, 15), Decimal("9.99")),
        (2, 2, "a_b", dt.date(1994, 1, 1), Decimal("2.00")),
        (2147483647, 2147483648, "é", dt.date(2020, 1, 1), Decimal("100.00")),
    ]
]
_COLUMNS = ("i", "b", "s", "d", "p")
_KEYED = [
    {name: None if v is None else to_key(v, TYPES[name]) for name, v in zip(_COLUMNS, row, strict=True)} for row in ROWS
]
_CONSTANTS = {
    "i": ["0", "1", "2", "-1", "1.5", "2147483647", "NULL", "3 - 2"],
    "b": ["0", "2", "3.0", "2147483648"],
    "s": ["''", "'a'", "'ab'", "'b'", "NULL"],
    "d": ["'1994-12-31'", "date '1995-01-01'", "date '1994-01-31' + interval '1' month"],
    "p": ["0.05", "0.06", "0.055", "2", "-1.5", "0.06 - 0.01"],
}
_ORDERED = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])


@st.composite
def _leaf(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(_COLUMNS))
    constants = st.sampled_from(_CONSTANTS[name])
    kind = draw(st.integers(0, 8))
    if kind <= 2:
        return f"{name} {draw(_ORDERED)} {draw(constants)}"
    if kind == 3:
        items = ", ".join(draw(st.lists(constants, min_size=1, max_size=3)))
        return f"{name} {draw(st.sampled_from(['IN', 'NOT IN']))} ({items})"
    if kind == 4:
        return f"{name} {draw(st.sampled_from(['', 'NOT ']))}BETWEEN {draw(constants)} AND {draw(constants)}"
    if kind == 5:
        return f"{name} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
    if kind == 6:
        pattern = draw(st.sampled_from(["a%", "%b", "%a%", "_", "a_b", "%", ""]))
        return f"s {draw(st.sampled_from(['', 'NOT ']))}LIKE '{pattern}'"
    if kind == 7:
        return f"i {draw(_ORDERED)} b"
    # no meaning here: TRUE has to stand in for it
    return f"CASE WHEN {name} = {draw(constants)} THEN TRUE ELSE i = 1 END"


_CONDITIONS = st.recursive(
    _leaf(),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]} AND {pair[1]})"),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]} OR {pair[1]})"),
        inner.map(lambda one: f"NOT ({one})"),
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (id INT, i INT, b BIGINT, s VARCHAR, d DATE, p DECIMAL(15,2))")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", [(n, *row) for n, row in enumerate(ROWS)])
    return connection


@given(condition=_CONDITIONS)
def test_filters_hold_where_the_condition_is_true(database: duckdb.DuckDBPyConnection, condition: str) -> None:
    true_rows = {row[0] for row in database.execute(f"SELECT id FROM t WHERE {condition}").fetchall()}
    found = scan(condition)
    kept = {number for number, row in enumerate(_KEYED) if holds(found.filter.root, row)}
    assert true_rows <= kept, describe(found.filter.root)
    if found.exact:
        assert kept == true_rows, describe(found.filter.root)
    for predicate in found.filter.predicates:
        assert true_rows <= {number for number, row in enumerate(_KEYED) if holds(predicate.node, row)}


def test_nodes_are_built_by_the_model() -> None:
    one, two = in_set("i", "=", 1), in_set("s", "=", "a")
    assert root("i = 1 AND s = 'a'") == conjunction([one, two])
    assert root("NOT (i <> 1 AND s <> 'a')") == disjunction([one, two])


@pytest.mark.parametrize(
    "condition", ["i NOT IN (' 5 ')", "i <=> '9223372036854775807'", "f <> 16777217", "f = '0.1'", "abs(i) < 0"]
)
def test_comparisons_that_have_another_type_without_ansi_mode_are_left_out(condition: str) -> None:
    assert scan(condition, settings=SessionSettings(ansi=False)).filter.root == TRUE


@pytest.mark.parametrize(
    ("dialect", "condition", "path"),
    [
        ("postgres", "s ->> 'a' = 'x'", "$.a"),
        ("duckdb", "s ->> '$.a.b' = 'x'", "$.a.b"),
        ("mysql", "json_extract(s, '$.a') = 'x'", "$.a"),
        ("trino", "json_extract_scalar(s, '$.a[1]') = 'x'", "$.a[1]"),
        ("snowflake", "s:a::string = 'x'", "$.a"),
        ("databricks", "s:a = 'x'", "$.a"),
        ("redshift", "json_extract_path_text(s, 'a', 'b') = 'x'", "$.a.b"),
    ],
)
def test_what_other_dialects_take_out_of_json_is_what_get_json_object_does(
    dialect: str, condition: str, path: str
) -> None:
    (found,) = find_scans(f"SELECT i FROM t WHERE {condition}", {"t": SCHEMA}, dialect)
    taken = Call("get_json_object", (col("s"), Const(path, "string")), "string")
    assert found.filter.root == InSet(taken, ValueSet.point("x"))
    (nested,) = find_scans("SELECT i FROM t WHERE s -> 'a' ->> 'b' = 'x'", {"t": SCHEMA}, "postgres")
    assert not nested.unusable
