"""Scans: which columns a statement reads of a table, and which conditions may be applied to its rows first."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.errors import QueryError
from layoutopt.model.predicates import FALSE, TRUE, Call, Col, Const, InSet, conjunction
from layoutopt.model.schema import Column, Schema
from layoutopt.model.values import ValueSet, compare
from layoutopt.sql.problems import StatementError
from layoutopt.sql.scans import TableScan, find_scans
from tests.effort import examples
from tests.workload.oracle import holds

T = Schema((Column("a", "int"), Column("b", "int"), Column("c", "string"), Column("st", "struct<f:int>")))
U = Schema((Column("a", "int"), Column("y", "int"), Column("z", "string")))
TABLES = {"t": T, "u": U}


def scans(sql: str) -> list[TableScan]:
    return find_scans(sql, TABLES)


def columns(sql: str) -> list[tuple[str, tuple[str, ...]]]:
    return [(scan.table, scan.columns) for scan in scans(sql)]


def equal(name: str, value: int) -> InSet:
    return InSet(Col(name, "int"), ValueSet.point(value))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT a FROM t", [("t", ("a",))]),
        ("SELECT A, T.B FROM T", [("t", ("a", "b"))]),
        ("SELECT * FROM u", [("u", ("a", "y", "z"))]),
        ("SELECT count(*) FROM t", [("t", ())]),
        ("SELECT count(*) FROM t WHERE b = 1", [("t", ("b",))]),
        ("SELECT x.* FROM u AS x", [("u", ("a", "y", "z"))]),
        ("SELECT * EXCEPT (z) FROM u", [("u", ("a", "y", "z"))]),
        ("SELECT a AS k, count(*) FROM t GROUP BY k HAVING max(b) > 1 ORDER BY k", [("t", ("a", "b"))]),
        ("SELECT a, count(*) FROM t GROUP BY 1 ORDER BY 2", [("t", ("a",))]),
        ("SELECT st.f FROM t", [("t", ("st",))]),
        ("SELECT st.* FROM t", [("t", ("st",))]),
        ("SELECT a FROM ((SELECT * FROM u) ORDER BY y LIMIT 5) q", [("u", ("a", "y", "z"))]),
        ("SELECT transform(array(a), (v, j) -> v + j + b) FROM t", [("t", ("a", "b"))]),
        ("SELECT t.st.f FROM t", [("t", ("st",))]),
        ("SELECT t.a FROM t JOIN u USING (a)", [("t", ("a",)), ("u", ("a",))]),
        ("SELECT b FROM t NATURAL JOIN u", [("t", ("a", "b")), ("u", ("a",))]),
        ("SELECT b FROM t JOIN u ON t.a = u.y", [("t", ("a", "b")), ("u", ("y",))]),
        ("SELECT x.a FROM t x, t y WHERE x.b = y.a", [("t", ("a", "b")), ("t", ("a",))]),
        ("SELECT a FROM t WHERE EXISTS (SELECT * FROM u WHERE y = b)", [("t", ("a", "b")), ("u", ("y",))]),
        ("SELECT a FROM t WHERE b IN (SELECT y FROM u)", [("t", ("a", "b")), ("u", ("y",))]),
        ("SELECT q.a FROM (SELECT * FROM t) q WHERE q.b = 1", [("t", ("a", "b"))]),
        ("SELECT q.a FROM (SELECT DISTINCT * FROM t) q", [("t", ("a", "b", "c", "st"))]),
        ("WITH q AS (SELECT * FROM u) SELECT a FROM q UNION ALL SELECT y FROM q", [("u", ("a", "y"))]),
        ("SELECT a FROM (SELECT * FROM u UNION ALL SELECT * FROM u) q", [("u", ("a",)), ("u", ("a",))]),
        ("SELECT a FROM (SELECT * FROM u UNION SELECT * FROM u) q", [("u", ("a", "y", "z")), ("u", ("a", "y", "z"))]),
        ("SELECT a, row_number() OVER (PARTITION BY b ORDER BY c) FROM t", [("t", ("a", "b", "c"))]),
        ("SELECT e FROM t LATERAL VIEW explode(array(a, b)) v AS e", [("t", ("a", "b"))]),
        ("SELECT * FROM t LEFT SEMI JOIN u ON t.a = u.a", [("t", ("a", "b", "c", "st")), ("u", ("a",))]),
        ("SELECT b, k FROM t, other WHERE t.a = other.k", [("t", ("a", "b"))]),
        ("SELECT 1 FROM other WHERE EXISTS (SELECT 1 FROM t WHERE t.a = other.k)", [("t", ("a",))]),
        ("WITH t AS (SELECT 1 AS a) SELECT a FROM t", []),
        ("SELECT 1", []),
        ("INSERT INTO other SELECT a FROM t", [("t", ("a",))]),
        ("INSERT INTO other TABLE u", [("u", ("a", "y", "z"))]),
        ("WITH q AS (SELECT a FROM t WHERE b = 1) INSERT INTO other SELECT a FROM q", [("t", ("a", "b"))]),
        ("CACHE TABLE q AS SELECT a FROM t", [("t", ("a",))]),
        ("FROM t x INSERT INTO p SELECT x.a WHERE b = 1 INSERT INTO q SELECT c", [("t", ("a", "b")), ("t", ("c",))]),
        ("DELETE FROM other WHERE k IN (SELECT a FROM t WHERE b = 1)", [("t", ("a", "b"))]),
        (
            "UPDATE other SET v = (SELECT max(a) FROM t) WHERE EXISTS (SELECT 1 FROM u WHERE y = k)",
            [("t", ("a",)), ("u", ("y",))],
        ),
        ("MERGE INTO other o USING u ON o.k = u.a WHEN MATCHED AND y = 1 THEN DELETE", [("u", ("a", "y"))]),
        ("MERGE INTO other o USING u ON o.k = u.a WHEN MATCHED THEN UPDATE SET *", [("u", ("a", "y", "z"))]),
        (
            "MERGE INTO other o USING u ON o.k = u.a WHEN NOT MATCHED THEN INSERT (k, v) VALUES (u.a, z)",
            [("u", ("a", "z"))],
        ),
        ("SELECT to_json(u) FROM u", [("u", ("a", "y", "z"))]),
        ("SELECT to_json(q) FROM (SELECT a, y FROM u) q", [("u", ("a", "y"))]),
        ("SELECT if(u.a IS NULL, o, u).* FROM u JOIN other o ON o.k = u.a", [("u", ("a", "y", "z"))]),
        ("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM other WHERE k = to_json(t))", [("t", ("a", "b", "c", "st"))]),
        ("FROM t |> WHERE a = 1 |> SELECT b |> ORDER BY b |> LIMIT 3", [("t", ("a", "b"))]),
        ("FROM u |> DROP z |> SELECT y", [("u", ("y", "z"))]),
    ],
)
def test_columns_read(sql: str, expected: list[tuple[str, tuple[str, ...]]]) -> None:
    assert columns(sql) == expected


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT nope FROM t", "unknown-column"),
        ("SELECT t.nope FROM t", "unknown-column"),
        ("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE t.nope = 1)", "unknown-column"),
        ("SELEC a FROM t", "parse-error"),
        ("SELECT a FROM (t", "parse-error"),
        ("", "empty"),
        ("SELECT 1; SELECT 2", "several-statements"),
        ("DROP TABLE t", "not-a-query"),
        ("SELECT a FROM t VERSION AS OF 3", "unsupported"),
        ("SELECT a FROM t, VALUES (1) AS v(q) UNPIVOT (a FOR n IN (a, b)) WHERE a = 1", "unsupported"),
        ("SELECT a FROM t JOIN u ON t.a = u.a UNPIVOT (a FOR n IN (a, b)) WHERE a = 1", "unsupported"),
        ("SELECT a FROM u JOIN (t JOIN v ON a = d PIVOT (max(b) FOR c IN ('x'))) ON TRUE", "unsupported"),
        ("FROM t |> TABLESAMPLE (3 ROWS) |> WHERE a = 1", "unsupported"),
        ("FROM t |> SET a = 1 |> WHERE a = 1", "unsupported"),
        ("FROM t |> SELECTED a", "unsupported"),
        ("SELECT a FROM (FROM t |> WHERE a = 1)", "unsupported"),
        ("VALUES (1) |> WHERE a = 1", "unsupported"),
        ("FROM t JOIN u ON t.a = u.a |> LIMIT 3 |> WHERE t.a = 1", "unsupported"),
        ("FROM t |> AGGREGATE count(*) GROUP BY 1", "unsupported"),
        ("DELETE FROM t WHERE a IN (SELECT a FROM u)", "not-a-query"),
        ("MERGE INTO t USING u ON t.a = u.a WHEN MATCHED THEN DELETE", "not-a-query"),
        ("CACHE TABLE t", "not-a-query"),
        ("SELECT a FROM (t) TABLESAMPLE (5 ROWS) WHERE a = 1", "unsupported"),
        ("SELECT x.b FROM (t JOIN u ON t.a = u.a) AS x WHERE x.b = 1", "unsupported"),
        ("SELECT a FROM t WHERE c || a + 1 = '5'", "unsupported"),
        ("SELECT a FROM t WHERE true = a < 5", "unsupported"),
        ("SELECT a FROM t WHERE a BETWEEN 1 AND 5 = true", "unsupported"),
        ("SELECT " + "(" * 5000 + "1" + ")" * 5000, "parse-error"),
    ],
)
def test_unusable_statements_say_why(sql: str, code: str) -> None:
    with pytest.raises(StatementError) as caught:
        scans(sql)
    assert caught.value.code == code
    assert isinstance(caught.value, QueryError)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a FROM t WHERE b = 1 AND c <> '|>' AND c <> '' || ' '",
        "SELECT a FROM (t) WHERE b = 1",
        "SELECT a FROM (t AS y) JOIN (other JOIN another) AS x ON x.k = y.a WHERE b = 1 AND (c = 'x') = (a < 5)",
        "SELECT a FROM t WHERE a + 1 || c <> '5' AND a < 5 = true AND NOT b <> 1",
    ],
)
def test_what_looks_like_them_is_followed(sql: str) -> None:
    (scan,) = scans(sql)
    assert equal("b", 1) in (scan.filter.root, *getattr(scan.filter.root, "children", ()))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT 1 FROM t, u WHERE t.a = u.a AND t.b = 1 AND u.y = 2", [equal("b", 1), equal("y", 2)]),
        ("SELECT 1 FROM t JOIN u ON t.a = u.a AND t.b = 1 AND u.y = 2", [equal("b", 1), equal("y", 2)]),
        ("SELECT 1 FROM t LEFT JOIN u ON t.a = u.a AND t.b = 1 AND u.y = 2", [TRUE, equal("y", 2)]),
        ("SELECT 1 FROM t LEFT JOIN u ON t.a = u.a WHERE t.b = 1 AND u.y = 2", [equal("b", 1), equal("y", 2)]),
        ("SELECT 1 FROM t LEFT JOIN u ON t.a = u.a WHERE u.y IS NULL", [TRUE, TRUE]),
        ("SELECT 1 FROM t LEFT JOIN u ON t.a = u.a WHERE coalesce(u.y, 1) = 1", [TRUE, TRUE]),
        ("SELECT 1 FROM t LEFT JOIN u ON t.a = u.a WHERE u.y = 1 OR t.b = 2", [TRUE, TRUE]),
        ("SELECT 1 FROM t RIGHT JOIN u ON t.a = u.a AND t.b = 1 AND u.y = 2", [equal("b", 1), TRUE]),
        ("SELECT 1 FROM t FULL JOIN u ON t.a = u.a AND t.b = 1 AND u.y = 2", [TRUE, TRUE]),
        ("SELECT 1 FROM t FULL JOIN u ON t.a = u.a WHERE t.b = 1", [equal("b", 1), TRUE]),
        ("SELECT 1 FROM t FULL JOIN u ON t.a = u.a WHERE t.b IS NULL", [TRUE, TRUE]),
        ("SELECT 1 FROM t LEFT JOIN u ON t.a = u.a WHERE u.y = 1 OR u.z IS NULL", [TRUE, TRUE]),
        ("SELECT 1 FROM ((SELECT * FROM t) LIMIT 5) q WHERE q.a = 1", [TRUE]),
        ("SELECT 1 FROM t LEFT ANTI JOIN u ON t.a = u.a AND t.b = 1 AND u.y = 2", [TRUE, equal("y", 2)]),
        ("SELECT 1 FROM t LEFT SEMI JOIN u ON t.a = u.a AND t.b = 1 AND u.y = 2", [equal("b", 1), equal("y", 2)]),
        (
            "SELECT 1 FROM t LEFT JOIN (u JOIN u AS v ON u.a = v.a) ON t.a = u.a WHERE v.y = 2",
            [TRUE, TRUE, equal("y", 2)],
        ),
        ("SELECT 1 FROM t WHERE a NOT IN (SELECT y FROM u WHERE u.a = 3) AND b = 1", [equal("b", 1), equal("a", 3)]),
        ("SELECT 1 FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND y = 2 AND t.b = 7)", [TRUE, equal("y", 2)]),
        ("SELECT 1 FROM t WHERE a = (SELECT max(y) FROM u WHERE u.a = 3)", [TRUE, equal("a", 3)]),
        ("SELECT 1 FROM t TABLESAMPLE (5 ROWS) WHERE a = 1", [TRUE]),
        ("SELECT 1 FROM (SELECT * FROM t) q WHERE q.a = 1", [equal("a", 1)]),
        ("SELECT 1 FROM (SELECT a AS k, b FROM t WHERE b = 2) q WHERE k = 1 AND b = 2", None),
        ("SELECT 1 FROM (SELECT * FROM t LIMIT 5) q WHERE q.a = 1", [TRUE]),
        ("SELECT 1 FROM (SELECT a, sum(b) s FROM t GROUP BY a) q WHERE q.a = 1 AND q.s = 2", [equal("a", 1)]),
        ("SELECT 1 FROM (SELECT a, sum(b) s FROM t GROUP BY ROLLUP (a)) q WHERE q.a = 1", [TRUE]),
        ("SELECT 1 FROM (SELECT a, rank() OVER (ORDER BY b) r FROM t) q WHERE q.a = 1", [TRUE]),
        ("SELECT 1 FROM u LEFT JOIN (SELECT * FROM t) q ON q.a = u.a WHERE q.b = 1", [TRUE, TRUE]),
        ("WITH q AS (SELECT * FROM t) SELECT 1 FROM q WHERE a = 1", [equal("a", 1)]),
        ("WITH q AS (SELECT * FROM t) SELECT 1 FROM q JOIN q AS r ON q.a = r.b WHERE q.a = 1", [TRUE]),
        ("SELECT a FROM t WHERE a = 1 UNION ALL SELECT b FROM t WHERE b = 2", [equal("a", 1), equal("b", 2)]),
        ("SELECT 1 FROM t GROUP BY a HAVING a = 1", [TRUE]),
        ("SELECT 1 FROM t WHERE 1 = 0", [FALSE]),
        ("SELECT 1 FROM t JOIN u USING (a) WHERE a = 1", [equal("a", 1), equal("a", 1)]),
        ("FROM t |> LIMIT 3 |> WHERE a = 1", [TRUE]),
        ("FROM t |> WHERE a = 1 |> LIMIT 3", [equal("a", 1)]),
        ("FROM t x |> SELECT x.a AS k, b -- c\n |> WHERE k = 1", [equal("a", 1)]),
        ("FROM t |> AGGREGATE sum(a) AS s GROUP BY b |> WHERE b = 2 AND s = 1", [equal("b", 2)]),
        ("FROM t |> EXTEND a + 1 AS k |> WHERE t.b = 2", [equal("b", 2)]),
        ("FROM t |> EXTEND rank() OVER (ORDER BY b) AS r |> WHERE b = 2", [TRUE]),
        ("FROM t |> LEFT JOIN u ON t.a = u.a |> WHERE t.b = 1 AND u.y = 2", [equal("b", 1), equal("y", 2)]),
        ("FROM t |> LEFT JOIN u ON t.a = u.a |> WHERE u.y IS NULL", [TRUE, TRUE]),
        ("FROM t |> WHERE b = 1 |> RIGHT JOIN u ON t.a = u.a |> WHERE u.y = 2", [equal("b", 1), equal("y", 2)]),
        ("FROM t |> AS q |> WHERE q.a = 1", [equal("a", 1)]),
        ("SELECT a FROM t LIMIT 5 |> WHERE a = 1", [TRUE]),
        ("FROM t |> WHERE a = 1 |> UNION ALL (SELECT * FROM t WHERE b = 2)", [equal("a", 1), equal("b", 2)]),
        (
            "FROM t INSERT INTO p SELECT a WHERE a = 1 INSERT INTO q SELECT b WHERE b = 2",
            [equal("a", 1), equal("b", 2)],
        ),
        ("MERGE INTO o USING t ON o.k = t.a AND t.b = 2 WHEN MATCHED THEN DELETE", [equal("b", 2)]),
        ("MERGE INTO o USING t ON o.k = t.a AND t.b = 2 WHEN NOT MATCHED THEN INSERT *", [TRUE]),
        ("MERGE INTO o USING t ON o.k = t.a AND t.b = 2 WHEN NOT MATCHED BY SOURCE THEN DELETE", [equal("b", 2)]),
        (
            "MERGE INTO o USING t ON o.k = t.a AND t.b = 2 WHEN NOT MATCHED BY SOURCE THEN DELETE "
            "WHEN NOT MATCHED THEN INSERT *",
            [TRUE],
        ),
        (
            "MERGE INTO o USING (SELECT * FROM t WHERE b = 2) s ON o.k = s.a WHEN NOT MATCHED THEN INSERT *",
            [equal("b", 2)],
        ),
        ("DELETE FROM o WHERE k IN (SELECT a FROM t WHERE b = 1)", [equal("b", 1)]),
        ("DELETE FROM o WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.a = o.k AND b = 1)", [equal("b", 1)]),
        ("SELECT 1 FROM t WHERE _PARTITIONTIME > '2020-01-01' AND a = 1", [equal("a", 1)]),
        ("SELECT 1 FROM t WHERE (_TABLE_SUFFIX = '2020' OR a = 1) AND NOT b <> 1", [equal("b", 1)]),
        ("SELECT 1 FROM t WHERE a IN (SELECT explode(array(1)))", [equal("a", 1)]),
    ],
)
def test_filters_stand_where_they_change_no_answer(sql: str, expected: list[object] | None) -> None:
    found = [scan.filter.root for scan in scans(sql)]
    if expected is not None:
        assert found == expected


@pytest.mark.parametrize(
    ("dialect", "sql", "expected"),
    [
        ("postgres", "UPDATE o SET v = t.c FROM t WHERE t.a = o.k AND t.b = 1", equal("b", 1)),
        ("postgres", "DELETE FROM o USING t WHERE t.a = o.k AND t.b = 1", equal("b", 1)),
        ("mysql", "UPDATE o JOIN t ON t.a = o.k SET o.v = t.c WHERE t.b = 1", equal("b", 1)),
        ("bigquery", "FROM x.t |> WHERE b = 1 |> SELECT a", equal("b", 1)),
        ("postgres", "SELECT row_to_json(t) FROM t WHERE b = ANY(ARRAY[1])", equal("b", 1)),
        ("postgres", "SELECT a FROM t WHERE NOT b <> ALL(ARRAY[1])", equal("b", 1)),
        ("bigquery", "SELECT a FROM t WHERE b IN UNNEST([1])", equal("b", 1)),
        ("bigquery", "SELECT a FROM t WHERE b IN UNNEST([])", FALSE),
    ],
)
def test_other_dialects_statements_are_read_alike(dialect: str, sql: str, expected: object) -> None:
    (scan,) = find_scans(sql, TABLES, dialect, any_qualifier=True)
    assert scan.filter.root == expected


def test_pseudo_columns_are_left_out_with_a_reason() -> None:
    (scan,) = scans(
        "SELECT _PARTITIONTIME FROM t WHERE _PARTITIONTIME > '2020-01-01' AND a = 1 AND t._TABLE_SUFFIX = 'x'"
    )
    assert (scan.columns, scan.filter.root) == (("a",), equal("a", 1))
    assert [condition.code for condition in scan.unusable] == ["pseudo-column", "pseudo-column"]


def test_spans_are_places_in_the_text_with_pipes() -> None:
    sql = "FROM db.t AS x -- t\n|> WHERE a IN (SELECT a FROM u) |> UNION ALL (SELECT * FROM t)"
    found = [sql[slice(*scan.span)] for scan in find_scans(sql, TABLES, any_qualifier=True) if scan.span]
    assert found == ["db.t", "u", "t"]


D = Schema(
    (
        Column("id", "int"),
        Column("c", "int"),
        Column("k", "date"),
        Column("b", "struct<c:int,k:int,b:struct<c:int>>"),
        Column("x.y", "int"),
    )
)
E = Schema((Column("c", "int"), Column("e", "int"), Column("k", "date")))


def is_c(value: int) -> InSet:
    return equal("c", value)


def field_of_b(*names: str) -> Call:
    found: Col | Call = Col("b", D.find("b").type)
    for name, kind in zip(names, (("int", "struct<c:int>")[names[0] == "b"], "int"), strict=False):
        found = Call("get_field", (found, Const(name, "string")), kind)
    assert isinstance(found, Call)
    return found


def b_is(value: int, *names: str) -> InSet:
    return InSet(field_of_b(*names), ValueSet.point(value))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        # the longest qualifier that fits, then a column, and what follows are fields of structs
        ("SELECT 1 FROM d b WHERE b.b.c = 7", [b_is(7, "c")]),
        ("SELECT 1 FROM d b WHERE B.B.C = 7", [b_is(7, "c")]),
        ("SELECT 1 FROM d b WHERE b.b.b.c = 7", [b_is(7, "b", "c")]),
        ("SELECT 1 FROM d b WHERE b.b.b.b.c = 7", [TRUE]),
        ("SELECT 1 FROM d b WHERE b.c = 7", [is_c(7)]),
        ("SELECT 1 FROM d b WHERE b.`b`.`c` = 7 AND b.c = 6", [conjunction([b_is(7, "c"), is_c(6)])]),
        ("SELECT 1 FROM d WHERE b.c = 7", [b_is(7, "c")]),
        ("SELECT 1 FROM d WHERE d.c = 7", [is_c(7)]),
        ("SELECT 1 FROM d c WHERE c.c = 7", [is_c(7)]),
        ("SELECT 1 FROM d c WHERE c.b.c = 7", [b_is(7, "c")]),
        ("SELECT 1 FROM d WHERE b.b IS NULL", [InSet(field_of_b("b"), ValueSet.empty(), True)]),
        ("SELECT 1 FROM d WHERE `x.y` = 7", [equal("x.y", 7)]),
        ("SELECT 1 FROM d WHERE (b).c = 7 AND c = 6", [conjunction([b_is(7, "c"), is_c(6)])]),
        ("SELECT 1 FROM d x JOIN e b ON b.c = 7", [TRUE, is_c(7)]),
        ("SELECT 1 FROM d x JOIN e b ON x.b.c = 7 AND b.c = x.b.k", [b_is(7, "c"), TRUE]),
        ("SELECT 1 FROM d x, e b WHERE x.b.c = 7 AND b.c = 6", [b_is(7, "c"), is_c(6)]),
        # a name that another table may have, and a struct beside it
        ("SELECT 1 FROM d x, other b WHERE b.c = 7", [TRUE]),
        ("SELECT 1 FROM d x, other o WHERE x.c = 7", [is_c(7)]),
        ("SELECT 1 FROM d x, other o WHERE c = 7", [is_c(7)]),
        ("SELECT 1 FROM d x, (SELECT 1 AS z) b WHERE b.c = 7", [b_is(7, "c")]),
        # a catalog and schema that are not in the text
        ("SELECT 1 FROM d WHERE default.d.c = 7", [is_c(7)]),
        ("SELECT 1 FROM d WHERE spark_catalog.default.d.c = 7", [is_c(7)]),
        ("SELECT 1 FROM d JOIN (SELECT 1 AS b) e WHERE e.b.c = 7", [TRUE]),
        # inside first, then outside
        ("SELECT 1 FROM e WHERE EXISTS (SELECT 1 FROM d WHERE b.c = 7)", [TRUE, b_is(7, "c")]),
        ("SELECT 1 FROM e b WHERE EXISTS (SELECT 1 FROM d WHERE b.c = 7)", [TRUE, b_is(7, "c")]),
        ("SELECT 1 FROM e b WHERE EXISTS (SELECT 1 FROM d WHERE b.e = 7)", [TRUE, TRUE]),
        ("SELECT 1 FROM d WHERE EXISTS (SELECT 1 FROM e b WHERE b.c = 7)", [TRUE, is_c(7)]),
        (
            "SELECT 1 FROM e WHERE c IN (SELECT b.c FROM d b WHERE b.b.c = 7 AND c = 6)",
            [is_c(6), conjunction([b_is(7, "c"), is_c(6)])],
        ),
        # above a derived table
        ("SELECT 1 FROM (SELECT * FROM d) q WHERE q.b.c = 7", [TRUE]),
        ("SELECT 1 FROM (SELECT * FROM d) b WHERE b.b.c = 7", [TRUE]),
        ("SELECT 1 FROM (SELECT * FROM d) b WHERE b.c = 7", [is_c(7)]),
        ("SELECT 1 FROM (SELECT b.c FROM d) q WHERE q.c = 7", [b_is(7, "c")]),
        ("SELECT 1 FROM (SELECT b, c FROM d b) q WHERE b.c = 7", [TRUE]),
        ("SELECT 1 FROM (SELECT b.*, c AS c2 FROM d) q WHERE c = 7", [TRUE]),
        ("SELECT 1 FROM (SELECT * EXCEPT (b.c) FROM d) q WHERE c = 7", [TRUE]),
        ("SELECT 1 FROM (SELECT id AS c, * EXCEPT (c) FROM d) q WHERE c = 7", [TRUE]),
        ("SELECT 1 FROM (SELECT cast(cast(c AS string) AS int) FROM d) q, e WHERE c = 7", [TRUE, is_c(7)]),
        ("WITH b AS (SELECT * FROM d) SELECT 1 FROM b WHERE b.b.c = 7", [TRUE]),
        ("WITH b AS (SELECT * FROM d) SELECT 1 FROM b WHERE b.c = 7", [is_c(7)]),
        # columns that something else brings
        ("SELECT 1 FROM d LATERAL VIEW explode(array(1)) b AS c WHERE b.c = 1", [TRUE]),
        (
            "SELECT 1 FROM d LATERAL VIEW explode(array(1)) b AS z WHERE b.c = 1 AND d.c = 7",
            [conjunction([b_is(1, "c"), is_c(7)])],
        ),
        ("SELECT 1 FROM e x LEFT SEMI JOIN d ON x.c = d.c AND id = 7", [TRUE, equal("id", 7)]),
    ],
)
def test_names_mean_what_spark_takes_them_for(sql: str, expected: list[object] | None) -> None:
    found = [scan.filter.root for scan in find_scans(sql, {"d": D, "e": E})]
    assert expected is None or found == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        # a column of each side, but of FULL neither's
        ("SELECT 1 FROM e x JOIN d y USING (c) WHERE c = 7", [is_c(7), is_c(7)]),
        ("SELECT 1 FROM e x LEFT JOIN d y USING (c) WHERE c = 7", [is_c(7), is_c(7)]),
        ("SELECT 1 FROM e x RIGHT JOIN d y USING (c) WHERE c = 7", [is_c(7), is_c(7)]),
        ("SELECT 1 FROM e x FULL JOIN d y USING (c) WHERE c = 7", [TRUE, TRUE]),
        ("SELECT 1 FROM e x LEFT SEMI JOIN d y USING (c) WHERE c = 7", [is_c(7), is_c(7)]),
        ("SELECT 1 FROM e x NATURAL JOIN e y WHERE c = 7", [is_c(7), TRUE]),
        ("SELECT 1 FROM e x NATURAL RIGHT JOIN e y WHERE c = 7", [TRUE, is_c(7)]),
        ("SELECT 1 FROM e x NATURAL FULL JOIN e y WHERE c = 7", [TRUE, TRUE]),
        # qualified names still mean either side's
        ("SELECT 1 FROM e x JOIN e y USING (c) WHERE y.c = 7 AND x.c = 6", [FALSE, FALSE]),
        ("SELECT 1 FROM e x LEFT JOIN e y USING (c) WHERE y.c = 7", [TRUE, is_c(7)]),
        ("SELECT 1 FROM e x FULL JOIN e y USING (c) WHERE y.c = 7", [TRUE, is_c(7)]),
        # but a struct that can be seen comes before a key that cannot
        ("SELECT 1 FROM d x JOIN e b USING (c) WHERE b.c = 7", [b_is(7, "c"), TRUE]),
        ("SELECT 1 FROM d x JOIN e b USING (c) WHERE b.e = 7", [TRUE, equal("e", 7)]),
        ("SELECT 1 FROM d x RIGHT JOIN e b USING (c) WHERE b.c = 7", [is_c(7), is_c(7)]),
        ("SELECT 1 FROM e b RIGHT JOIN d x USING (c) WHERE b.c = 7", [TRUE, b_is(7, "c")]),
        # several joins
        ("SELECT 1 FROM e x JOIN e y USING (c) JOIN e z USING (c) WHERE c = 7", [is_c(7), is_c(7), is_c(7)]),
        ("SELECT 1 FROM e x RIGHT JOIN e y USING (c) JOIN e z USING (c) WHERE c = 7", [is_c(7), is_c(7), is_c(7)]),
        ("SELECT 1 FROM e x FULL JOIN e y USING (c) LEFT JOIN e z USING (c) WHERE c = 7", [TRUE, TRUE, TRUE]),
        ("SELECT 1 FROM e x JOIN e y USING (c) RIGHT JOIN e z USING (c) WHERE c = 7", [is_c(7), is_c(7), is_c(7)]),
        ("SELECT 1 FROM e x JOIN (e y JOIN e z USING (c)) USING (c) WHERE c = 7", [is_c(7), is_c(7), is_c(7)]),
        ("SELECT 1 FROM e x JOIN e y ON x.c = y.c JOIN e z USING (e) WHERE e = 7", None),
        # beside what is not looked at
        ("SELECT 1 FROM VALUES ('2020') v(c) JOIN d USING (c) WHERE c = 7", [is_c(7)]),
        ("SELECT 1 FROM VALUES ('2020') v(c) LEFT JOIN d USING (c) WHERE c = 7", [is_c(7)]),
        ("SELECT 1 FROM VALUES ('2020') v(c) RIGHT JOIN d USING (c) WHERE c = 7", [is_c(7)]),
        ("SELECT 1 FROM VALUES ('2020') v(c) FULL JOIN d USING (c) WHERE c = 7", [TRUE]),
        ("SELECT 1 FROM VALUES ('2020') v(c) JOIN d USING (c) WHERE d.c = 7", [is_c(7)]),
        ("SELECT 1 FROM VALUES ('2020') v(c) NATURAL JOIN d WHERE c = 7", [TRUE]),
        ("SELECT 1 FROM d JOIN other USING (c) WHERE c = 7 AND id = 8", None),
        ("SELECT 1 FROM other JOIN d USING (c) WHERE c = 7", [TRUE]),
        ("SELECT 1 FROM other NATURAL JOIN d WHERE c = 7", [TRUE]),
        ("SELECT 1 FROM d NATURAL JOIN other WHERE c = 7", [is_c(7)]),
        ("SELECT 1 FROM other NATURAL FULL JOIN d WHERE c = 7", [TRUE]),
        ("SELECT 1 FROM other o, more m JOIN d USING (c) WHERE c = 7", [TRUE]),
        # above a derived table, whose columns are in the order of the join's
        ("SELECT 1 FROM (SELECT * FROM e x JOIN e y USING (k)) q(p, q, r, s, t) WHERE q = 7", [is_c(7), TRUE]),
        ("SELECT 1 FROM (SELECT * FROM e x RIGHT JOIN e y USING (e)) q(p, q, r, s, t) WHERE p = 7", None),
        ("SELECT 1 FROM (SELECT y.* FROM e x JOIN e y USING (e)) q(p, q, r) WHERE q = 7", [TRUE, is_c(7)]),
        ("SELECT 1 FROM (SELECT b.* FROM (SELECT c, b FROM d) x JOIN e b USING (c)) q WHERE c = 7", [TRUE, TRUE]),
    ],
)
def test_merged_keys_mean_what_spark_takes_them_for(sql: str, expected: list[object] | None) -> None:
    found = [scan.filter.root for scan in find_scans(sql, {"d": D, "e": E})]
    assert expected is None or found == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT b.b.c FROM d b", [("b",)]),
        ("SELECT b.* FROM d", [("b",)]),
        ("SELECT b.* FROM e b", [("c", "e", "k")]),
        ("SELECT x.b.* FROM d x", [("b",)]),
        ("SELECT b.c FROM d x JOIN e b USING (c)", [("c", "b"), ("c",)]),
        ("SELECT 1 FROM d x JOIN e b ON x.id = b.e WHERE b.c = 1", [("id",), ("c", "e")]),
        # names that are given to columns correspond by place, as do the sides of a set operation
        ("SELECT q FROM (SELECT * FROM e) q(p, q, r)", [("e",)]),
        ("SELECT q FROM (SELECT e AS c, * FROM e) q(p, q, r, s)", [("c", "e")]),
        ("SELECT p FROM (SELECT y.* FROM e x JOIN e y USING (k)) q(p, q, r)", [("k",), ("k",)]),
        ("SELECT q FROM (SELECT * FROM e UNION ALL SELECT k, c, e FROM e) q(p, q, r)", [("e",), ("c", "e", "k")]),
        # columns that decide which rows there are
        ("SELECT c FROM (SELECT * FROM e GROUP BY ALL) q", [("c", "e", "k")]),
        ("SELECT c FROM (SELECT * FROM e ORDER BY ALL LIMIT 2) q", [("c", "e", "k")]),
    ],
)
def test_columns_read_where_names_are_shared(sql: str, expected: list[tuple[str, ...]]) -> None:
    assert [scan.columns for scan in find_scans(sql, {"d": D, "e": E})] == expected


def test_conditions_over_two_tables_leave_each_what_they_imply() -> None:
    left, right = scans("SELECT 1 FROM t, u WHERE (t.c = 'x' AND u.z = 'y') OR (t.c = 'y' AND u.z = 'x')")
    both = compare("=", "x", "string").union(compare("=", "y", "string"))
    assert left.filter.root == InSet(Col("c", "string"), both)
    assert right.filter.root == InSet(Col("z", "string"), both)
    assert left.unusable == ()


def test_reasons_are_recorded_where_a_condition_is_kept_out() -> None:
    left, right = scans("SELECT 1 FROM t LEFT JOIN u ON t.a = u.a AND t.b = 4 WHERE u.z IS NULL")
    assert [each.code for each in left.unusable] == ["outer-join"]
    assert [(each.code, each.sql) for each in right.unusable] == [("outer-join", "u.z IS NULL")]
    (sampled,) = scans("SELECT 1 FROM t TABLESAMPLE (5 ROWS) WHERE a = 1")
    assert [each.code for each in sampled.unusable] == ["sampled"]


def test_spans_point_at_the_name_in_the_text() -> None:
    sql = "SELECT 1 FROM  t AS x JOIN `u` ON x.a = u.a"
    assert [sql[slice(*(scan.span or ()))] for scan in scans(sql)] == ["t", "`u`"]
    assert [scan.span for scan in find_scans("SELECT 1 FROM t", TABLES, "postgres")] == [None]


def test_qualified_names_mean_the_table_only_where_asked() -> None:
    sql = "SELECT t.a, prod.t.b FROM prod.t"
    assert find_scans(sql, TABLES) == []
    (found,) = find_scans(sql, TABLES, any_qualifier=True)
    assert found.columns == ("a", "b")
    (exact,) = find_scans(sql, {"prod.t": T})
    assert exact.table == "prod.t"


# --- whole queries against DuckDB: prefiltered and pruned tables give the same answer

_ROWS: dict[str, list[tuple[int | None, ...]]] = {
    "t": [(1, 1), (1, 2), (2, None), (None, 1), (3, 3), (4, 2)],
    "u": [(1, 2), (2, 1), (2, None), (None, None), (5, 3)],
}
_NAMES = {"t": ("a", "b"), "u": ("a", "y")}
_SMALL = {name: Schema(tuple(Column(each, "int") for each in columns)) for name, columns in _NAMES.items()}


@st.composite
def _conditions(draw: st.DrawFn, names: Sequence[str]) -> str:
    parts: list[str] = []
    for _ in range(draw(st.integers(1, 2))):
        name, value = draw(st.sampled_from(names)), draw(st.integers(1, 3))
        shape = "{0} = {1}", "{0} <> {1}", "{0} IS NULL", "{0} IS NOT NULL", "coalesce({0}, 1) = {1}", "{0} = {2}"
        parts.append(draw(st.sampled_from(shape)).format(name, value, draw(st.sampled_from(names))))
        parts.append(draw(st.sampled_from([" AND ", " OR "])))
    return "".join(parts[:-1])


_DERIVED = ["SELECT * FROM t", "SELECT a, max(b) AS b FROM t GROUP BY a", "SELECT b AS a, a AS b FROM t"]


@st.composite
def _queries(draw: st.DrawFn) -> str:
    kind = draw(st.sampled_from(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"]))
    second = draw(st.sampled_from(["LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "JOIN"]))
    both, left = ["p.a", "p.b", "q.a", "q.y"], ["p.a", "p.b"]
    narrow = "SEMI" in kind or "ANTI" in kind
    where = draw(_conditions(left if narrow else both))
    on = draw(st.sampled_from(["p.a = q.a AND ", "p.b = q.y AND ", ""])) + draw(_conditions(both))
    form = draw(st.integers(0, 5))
    if form == 0 and not narrow:
        third = draw(_conditions([*both, "r.a"]))
        return f"SELECT p.b, q.y, r.a FROM t p {kind} u q ON {on} {second} t r ON {third} WHERE {where}"
    if form == 1:
        return f"SELECT p.a FROM t p WHERE {draw(_conditions(left))} AND p.a NOT IN (SELECT y FROM u q WHERE {where})"
    if form == 2:
        exists = draw(st.sampled_from(["EXISTS", "NOT EXISTS"]))
        return f"SELECT p.a, p.b FROM t p WHERE {exists} (SELECT * FROM u q WHERE {on}) AND {draw(_conditions(left))}"
    if form == 3:
        inner = draw(st.sampled_from(_DERIVED))
        join = "LEFT JOIN" if narrow else kind
        return f"SELECT p.b FROM ({inner}) p {join} u q ON {on} WHERE {draw(_conditions(both))}"
    if form == 4:
        above = draw(_conditions(["p.a", "q.b"]))
        common = "WITH p AS (SELECT * FROM t WHERE a <> 3)"
        return f"{common} SELECT p.a, q.b FROM p {second} p q ON p.a = q.b WHERE {above}"
    return f"SELECT p.a, p.b FROM t p {kind} u q ON {on} WHERE {where}"


def _create(connection: duckdb.DuckDBPyConnection, view: str, scan: TableScan | None, table: str) -> None:
    rows = [dict(zip(_NAMES[table], row, strict=True)) for row in _ROWS[table]]
    names: tuple[str, ...] = _NAMES[table]
    if scan is not None:
        rows = [row for row in rows if holds(scan.filter.root, row)]
        names = scan.columns or ("none_read",)
    connection.execute(f"CREATE OR REPLACE TABLE {view} ({', '.join(f'{name} INT' for name in names)})")
    values = ", ".join(f"({', '.join(str(row.get(name) or 'NULL') for name in names)})" for row in rows)
    if values:
        connection.execute(f"INSERT INTO {view} VALUES {values}")


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for table in _NAMES:
        _create(connection, table, None, table)
    return connection


def _answer(connection: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[object, ...]]:
    text = sql.replace("LEFT SEMI JOIN", "SEMI JOIN").replace("LEFT ANTI JOIN", "ANTI JOIN")
    return sorted(connection.execute(text).fetchall(), key=repr)


@settings(max_examples=examples(300))
@given(sql=_queries())
def test_prefiltered_and_pruned_tables_give_the_same_answer(database: duckdb.DuckDBPyConnection, sql: str) -> None:
    spliced = sql
    for number, scan in reversed(list(enumerate(find_scans(sql, _SMALL)))):
        _create(database, f"view_{number}", scan, scan.table)
        assert scan.span is not None
        start, end = scan.span
        spliced = f"{spliced[:start]}view_{number}{spliced[end:]}"
    assert _answer(database, spliced) == _answer(database, sql), spliced


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id FROM t JOIN o ON true WHERE strasse = 5",
        "SELECT id FROM t JOIN (SELECT 5 AS strasse) o WHERE strasse = 5",
        "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM o WHERE strasse = id)",
        "SELECT id FROM t JOIN (SELECT 5 AS σ) o WHERE σ = 5",
    ],
)
def test_names_are_one_where_spark_lowers_them_to_one(sql: str) -> None:
    """``straße`` and ``strasse`` are two, and so are the two forms of a sigma, though folding makes them one."""
    schema = Schema((Column("id", "int"), Column("straße", "int"), Column("ς", "int")))
    (scan,) = find_scans(sql, {"t": schema})
    assert scan.columns == ("id",)
    assert scan.filter.root == TRUE
    (scan,) = find_scans("SELECT ID FROM t WHERE STRAẞE = 5", {"t": schema})
    assert scan.filter.root == equal("straße", 5)


def test_columns_that_spark_tells_apart_are_told_apart() -> None:
    schema = Schema((Column("straße", "int"), Column("strasse", "int"), Column("σ", "int"), Column("ς", "int")))
    for name in schema.names:
        assert schema.find(name).name == name
        (scan,) = find_scans(f"SELECT 1 FROM t WHERE {name} = 5", {"t": schema})
        assert scan.filter.root == equal(name, 5)


def test_a_long_sum_is_read_once() -> None:
    (scan,) = find_scans("SELECT a FROM t WHERE a" + " + 1" * 40 + " > 3", {"t": Schema((Column("a", "int"),))})
    assert scan.exact
    assert scan.filter.root.columns == {"a"}
