"""Where texts name tables, and whether they name all columns that they take of them."""

from __future__ import annotations

import pytest

from layoutopt.sql.references import references_of


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a FROM t", "SELECT count(*) FROM t", "SELECT a * b AS c FROM t", "SELECT a FROM t JOIN u USING (k)",
        "WITH c(x) AS (SELECT a FROM t) SELECT x FROM c", "SELECT a FROM t UNION ALL SELECT b FROM u ORDER BY a",
        "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k)", "INSERT INTO z SELECT a FROM t",
        "SELECT q.a FROM (SELECT a FROM t) AS q(a)", "SELECT a FROM t LATERAL VIEW explode(x) e AS y",
    ],
)  # fmt: skip
def test_all_columns_are_named(sql: str) -> None:
    assert references_of(sql).explicit


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM t", "SELECT t.* FROM t", "SELECT a FROM (SELECT * FROM t UNION ALL SELECT * FROM u) q",
        "SELECT * EXCEPT (a) FROM t", "SELECT struct(*) FROM t", "SELECT count(DISTINCT *) FROM t",
        "SELECT a FROM t NATURAL JOIN u", "SELECT a FROM t UNION BY NAME SELECT b FROM u", "FROM t",
        "SELECT a FROM t PIVOT (sum(b) FOR c IN (1, 2))", "SELECT a FROM t UNPIVOT (v FOR n IN (b, c))",
        "SELECT x FROM t AS s(x, y)", "WITH c AS (SELECT * FROM t) SELECT a FROM c",
        "SELECT TRANSFORM(a) USING 'cat' FROM t", "INSERT INTO z SELECT * FROM t",
    ],
)  # fmt: skip
def test_others_depend_on_which_columns_there_are(sql: str) -> None:
    assert not references_of(sql).explicit


@pytest.mark.parametrize(
    ("kind", "view"),
    [("TEMP", "v"), ("OR REPLACE TEMPORARY", "v"), ("GLOBAL TEMP", None), ("GLOBAL TEMPORARY", None), ("", None)],
)
def test_views_of_the_session_alone_have_a_name(kind: str, view: str | None) -> None:
    assert references_of(f"CREATE {kind} VIEW v AS SELECT a FROM t").view == view
