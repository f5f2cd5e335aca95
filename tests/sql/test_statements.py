"""What engines are told: each in its own SQL, and only what it can keep."""

from __future__ import annotations

import pytest
import sqlglot

from layoutopt.config.settings import AdviseSettings
from layoutopt.sql.order_statements import ENGINES, HILBERT, SORT, ZORDER, engines_for, order_statement

COLUMNS = ["l_shipdate", "order", "it's"]
TYPES = ["date", "string", "string"]


@pytest.mark.parametrize(
    ("engine", "order", "said"),
    [
        ("spark-delta", ZORDER, "OPTIMIZE db.t ZORDER BY (l_shipdate, `order`, `it's`)"),
        ("databricks", HILBERT, "ALTER TABLE db.t CLUSTER BY (l_shipdate, `order`, `it's`); OPTIMIZE db.t FULL"),
        (
            "iceberg",
            SORT,
            "ALTER TABLE db.t WRITE ORDERED BY l_shipdate, `order`, `it's`; CALL system.rewrite_data_files(table => "
            "'db.t', strategy => 'sort', options => map('rewrite-all', 'true'))",
        ),
        (
            "iceberg",
            ZORDER,
            "CALL system.rewrite_data_files(table => 'db.t', strategy => 'sort', sort_order => 'zorder(l_shipdate, "
            "`order`, `it\\'s`)', options => map('rewrite-all', 'true'))",
        ),
        (
            "redshift",
            SORT,
            """CREATE TABLE db.t_sorted COMPOUND SORTKEY (l_shipdate, "order", "it's") AS SELECT * FROM db.t""",
        ),
        ("snowflake", SORT, """ALTER TABLE db.t CLUSTER BY (l_shipdate, "ORDER", "it's")"""),
        ("bigquery", SORT, "CREATE TABLE db.t_sorted CLUSTER BY l_shipdate, `order`, `it's` AS SELECT * FROM db.t"),
        ("ducklake", SORT, """ALTER TABLE db.t SET SORTED BY (l_shipdate, "order", "it's")"""),
    ],
)
def test_each_engine_is_told_in_its_own_sql(engine: str, order: str, said: str) -> None:
    assert order_statement(engine, order, "db.t", COLUMNS, TYPES) == said


@pytest.mark.parametrize("engine", ENGINES)
def test_every_statement_of_an_engine_can_be_told(engine: str) -> None:
    for order in ENGINES[engine].forms:
        assert order_statement(engine, order, "t", ["a"], ["int"])


@pytest.mark.parametrize("engine", ["spark", "redshift"])
def test_what_sqlglot_understands_it_reads_back(engine: str) -> None:
    text = order_statement(engine, SORT, "t", COLUMNS, TYPES)
    assert text is not None
    (tree,) = sqlglot.parse(text, dialect=ENGINES[engine].dialect)
    assert tree is not None
    assert {column.name for column in tree.find_all(sqlglot.exp.Identifier)} >= set(COLUMNS)


def test_nothing_is_said_that_an_engine_can_not_keep() -> None:
    assert order_statement("spark-delta", SORT, "t", ["a"], ["int"]) is None
    assert order_statement("databricks", HILBERT, "t", ["a"], ["int"], partitioned=True) is None
    assert order_statement("databricks", HILBERT, "t", list("abcde"), ["int"] * 5) is None
    assert order_statement("bigquery", SORT, "t", ["a"], ["double"]) is None
    assert order_statement("snowflake", SORT, "t", [], []) is None


def test_engines_suit_the_source_or_the_log() -> None:
    assert engines_for("delta", "redshift") == ("spark-delta", "databricks", "redshift")
    assert engines_for("iceberg", "trino") == ("iceberg",)
    assert engines_for(None, None) == tuple(ENGINES)


def test_the_help_names_every_engine() -> None:
    text = AdviseSettings.model_fields["engine"].description or ""
    assert all(name in text for name in ENGINES)
