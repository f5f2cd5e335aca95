"""Collated and CHAR columns from end to end: analysed with the types that Spark reads, loaded, and never skipped by."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from layoutopt.errors import QueryError, SchemaError
from layoutopt.features.analysis import analyze_log
from layoutopt.methods.interface import PlanRequest
from layoutopt.model.requests import AnalyzeRequest
from layoutopt.scan.table import open_table
from layoutopt.spark import disable, enable, register
from layoutopt.spark.core.source import check_partition_column, open_source, schema_of
from layoutopt.spark.loading.load import load
from layoutopt.sql.schema import schema_from
from tests.effort import long_too
from tests.spark.plans import make_plan
from tests.spark.session.answers import answer, skipped
from tests.spark.settings import UNCOMPILED, compared_here, new_session

pytestmark = pytest.mark.spark

TEXTS = ["a", "A", "a ", "A  ", "", "b", "B", "\u00df", "ss", "SS", "\u00e9", "e\u0301", "\u00c9", "e", "z", None]
COLLATED = {
    "lower": "UTF8_LCASE", "ci": "UNICODE_CI", "ciai": "UNICODE_CI_AI",
    "trim": "UTF8_BINARY_RTRIM", "lowertrim": "UTF8_LCASE_RTRIM",
}  # fmt: skip
TESTS = [
    "{c} = 'A'", "{c} = 'SS'", "{c} = '\u00c9'", "{c} = 'a'", "{c} <> 'A'", "{c} < 'B'", "{c} >= 'a '",
    "NOT ({c} > 'a')",
    "{c} IN ('A', '\u00df')", "{c} NOT IN ('b', 'ss')", "{c} BETWEEN 'A' AND 'B'", "{c} <=> 'E'", "{c} IS NULL",
    "{c} LIKE 'A%'", "upper({c}) = 'A'", "concat({c}, '') = 'A'", "coalesce({c}, 'A') = 'A'", "trim({c}) = 'A'",
    "{c} = 'A' AND id < 40", "startswith({c}, 'A')", "length({c}) = 1", "cast({c} AS STRING) = 'A'", "{c} = {c}",
]  # fmt: skip
PLAIN = [
    "plain = 'A' COLLATE UTF8_LCASE", "plain COLLATE UNICODE_CI = 'SS'", "collate(plain, 'UTF8_LCASE') = 'A'",
    "cast(plain AS STRING COLLATE UTF8_LCASE) = 'A'", "plain IN ('A' COLLATE UTF8_LCASE)", "nest.f = 'A'",
    "list[0] = 'A'", "array_contains(list, 'A')", "plain = array('A' COLLATE UTF8_LCASE)[0]",
]  # fmt: skip
STATEMENTS = [
    *(
        f"SELECT id FROM t WHERE {test.format(c=name)}"
        for name in COLLATED
        for test in TESTS
        if "LIKE" not in test or name == "lower"  # Spark has it for no other
    ),
    *(f"SELECT id FROM t WHERE {test}" for test in PLAIN),
    "SELECT a.id, b.id FROM t a JOIN t b ON a.lower = b.lower WHERE a.plain = 'a' AND b.id < 60",
    "SELECT a.id, b.id FROM t a JOIN t b USING (ci) WHERE a.id < 20 AND b.ci = 'SS'",
    "SELECT a.id FROM t a JOIN (SELECT 'A' COLLATE UTF8_LCASE AS y) u ON a.lower = u.y",
    "SELECT id FROM t WHERE lower IN (SELECT lower FROM t WHERE id = 1)",
    "SELECT count(*) FROM t GROUP BY lower",
    "SELECT count(DISTINCT ci) FROM t WHERE plain < 'b'",
    "SELECT id FROM (SELECT id, plain COLLATE UTF8_LCASE AS x FROM t) WHERE x = 'A'",
    "WITH c AS (SELECT id, lower AS plain FROM t) SELECT id FROM c WHERE plain = 'A'",
    "SELECT id FROM t ORDER BY lower, id LIMIT 40",
    "SELECT min(lower) = 'A', max(ci) = 'Z' FROM t WHERE id > 3",
]
EMBEDDED = [
    "SELECT id, lower FROM t WHERE id < 50 AND plain = 'A'",
    "SELECT id FROM t WHERE lower IS NULL",
    "SELECT count(lower) FROM t WHERE plain >= 'b'",
]


@pytest.fixture(scope="module")
def source(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each text in every column under all collations, in rows sorted by the plain one, as Spark writes them."""
    path = tmp_path_factory.mktemp("collated") / "source"
    rows = [
        (number, text) for number, text in enumerate(sorted(TEXTS * 20, key=lambda text: (text is None, text or "")))
    ]
    collated = [f"plain COLLATE {collation} AS {name}" for name, collation in COLLATED.items()]
    nested = ["array(plain COLLATE UTF8_LCASE) AS list", "named_struct('f', plain COLLATE UNICODE_CI) AS nest"]
    given = spark.createDataFrame(rows, "id int, plain string").coalesce(1)
    given.selectExpr("*", *collated, *nested).write.parquet(str(path))
    return path


@pytest.fixture(scope="module")
def table(spark: SparkSession, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The way of a user: analyze with a file of the source, plan, load."""
    folder = tmp_path_factory.mktemp("collated_table")
    log = folder / "log.sql"
    log.write_text(";\n".join([*STATEMENTS, *["SELECT id FROM t WHERE plain = 'A'"] * 5]), encoding="utf-8")
    document = analyze_log(AnalyzeRequest(log=str(log), table="t"), schema_from(str(source))).document
    plan = make_plan(spark, str(source), document, PlanRequest(block_rows=10))
    load(spark, str(source), folder / "table", plan)
    return folder / "table"


@pytest.fixture
def enabled(spark: SparkSession, source: Path, table: Path) -> Iterator[SparkSession]:
    session = new_session(spark, {**UNCOMPILED, "spark.sql.parquet.filterPushdown": "false"})
    register(session, "t", str(table))
    session.read.parquet(str(source)).createOrReplaceTempView("s")
    enable(session)
    with compared_here():
        yield session
    disable(session)


def of_source(session: SparkSession, sql: str) -> list[str]:
    return answer(type(session).sql(session, sql.replace(" t ", " s ").replace("FROM t", "FROM s")))


def knows(session: SparkSession, sql: str) -> bool:
    """Whether Spark has the functions of a text for the collations of its columns."""
    try:
        type(session).sql(session, sql.replace("FROM t", "FROM s"))
    except Exception as error:
        if "DATATYPE_MISMATCH" in str(error):
            return False
        raise
    return True


def test_a_schema_has_the_types_that_spark_reads(spark: SparkSession, source: Path) -> None:
    (file,) = source.glob("*.parquet")
    read = [(column.name, column.type) for column in schema_of(open_source(spark, str(source))).columns]
    for given in (file, source):
        assert [(column.name, column.type) for column in schema_from(given).columns] == read


@pytest.mark.parametrize("every", [9, *long_too(1)])
def test_queries_answer_as_on_the_source(enabled: SparkSession, every: int) -> None:
    """Of each collation a ninth of the tests; and all other statements."""
    of_ids = [sql for sql in STATEMENTS if sql.startswith("SELECT id FROM t WHERE")][::every]
    of_ids = [sql for sql in of_ids if knows(enabled, sql)]
    assert len(of_ids) * every > 90
    several = [
        " UNION ALL ".join(sql.replace("id", f"{k} AS k, id", 1) for k, sql in enumerate(of_ids[start : start + 30]))
        for start in range(0, len(of_ids), 30)
    ]
    for sql in [*several, *(sql for sql in STATEMENTS if not sql.startswith("SELECT id FROM t WHERE"))]:
        assert answer(enabled.sql(sql)) == of_source(enabled, sql), sql


@pytest.mark.parametrize("every", [7, *long_too(1)])
def test_dataframes_answer_as_on_the_source(enabled: SparkSession, every: int) -> None:
    tests = [test.format(c=name) for name in COLLATED for test in TESTS if "LIKE" not in test][::every]
    tests = [test for test in [*tests, *PLAIN] if knows(enabled, f"SELECT id FROM t WHERE {test}")]
    assert len(tests) * every > 90
    for start in range(0, len(tests), 30):
        some = list(enumerate(tests[start : start + 30]))
        found, wanted = (
            reduce(DataFrame.unionAll, (rows.where(test).select(F.lit(k), "id") for k, test in some))
            for rows in (enabled.table("t"), enabled.table("s"))
        )
        assert sorted(found.collect()) == sorted(wanted.collect())


def test_plain_columns_still_skip(enabled: SparkSession) -> None:
    for condition in ("plain = 'A'", "plain > 'b' AND lower <> 'q'", "id = 7"):
        found = enabled.table("t").where(condition).select("id", "ciai")
        assert answer(found) == of_source(enabled, f"SELECT id, ciai FROM t WHERE {condition}")
        assert skipped(enabled) > 0
    for sql in ("SELECT id, lower FROM t WHERE plain = 'A'", "SELECT lower FROM t WHERE id = 7 AND lower <> 'q'"):
        assert answer(enabled.sql(sql)) == of_source(enabled, sql)
        assert skipped(enabled) > 0


def test_the_embedded_engine_answers_alike_or_refuses(enabled: SparkSession, table: Path) -> None:
    opened, refused, told = open_table(str(table)), list[str](), 0
    for sql in [*STATEMENTS, *EMBEDDED]:
        try:
            found = opened.sql(sql)
        except QueryError as error:
            refused.append(sql)
            told += "--engine spark" in str(error)
            continue
        assert sql in EMBEDDED or " IS NULL" in sql, f"{sql} depends on a collation"
        assert sorted(map(str, found.to_pylist())) == sorted(map(str, _rows_of(enabled, sql))), sql
    assert not set(refused) & set(EMBEDDED)
    assert told >= len(refused) - 1, "but for a cast with COLLATE, which can't be read"


def _rows_of(session: SparkSession, sql: str) -> list[dict[str, object]]:
    return list(type(session).sql(session, sql.replace("FROM t", "FROM s")).toArrow().to_pylist())


def test_texts_of_a_view_with_a_collation_have_it(enabled: SparkSession) -> None:
    text = "TEMPORARY VIEW {v} DEFAULT COLLATION UTF8_LCASE AS SELECT id FROM {t} WHERE 'a' = 'A' AND id < 9"
    enabled.sql("CREATE OR REPLACE " + text.format(v="v", t="t"))
    enabled.sql("CREATE OR REPLACE " + text.format(v="w", t="s"))
    assert answer(enabled.sql("SELECT * FROM v")) == answer(enabled.sql("SELECT * FROM w")) != []


def test_a_table_is_not_partitioned_by_a_collated_column(spark: SparkSession, source: Path) -> None:
    with pytest.raises(SchemaError, match=r"can't be partitioned by 'lower'.*plain text"):
        check_partition_column(open_source(spark, str(source)), "lower")


def test_char_columns_are_refused_with_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    """Spark keeps CHAR in the metadata of what it copies from a table, and pads what is compared with it."""
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW plain AS SELECT 1 AS id, 'a    ' AS c, 'b' AS v")
    given = spark.table("plain")
    for column, kind in (("c", "char(5)"), ("v", "varchar(3)")):
        given = given.withMetadata(column, {"__CHAR_VARCHAR_TYPE_STRING": kind})
    given.write.parquet(str(tmp_path / "source"))
    again = spark.read.parquet(str(tmp_path / "source"))
    assert again.where("c = 'a'").count() == 1, "Spark pads, or this test is about nothing"
    with pytest.raises(SchemaError, match=r"'c' is char\(5\) to Spark.*cast to STRING"):
        open_source(spark, str(tmp_path / "source"))
    open_source(spark, again.selectExpr("id", "cast(c AS STRING) AS c", "v"))
