"""Enabled sessions: whatever a query is written in skips; parameters, views, paths, snapshots, threads, caches."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from layoutopt.errors import QueryError
from layoutopt.model.schema import Column, Schema
from layoutopt.spark import disable, enable, last_scans, read_table, register, unregister, why
from layoutopt.spark.catalyst.rule import has_rule
from layoutopt.spark.session import enabling
from tests.effort import one_in
from tests.scan.builder import build, building
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows
from tests.spark.session.answers import answer, skipped
from tests.spark.settings import COMPILED, new_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

AIR = "SELECT id, kind FROM t WHERE kind = 'air'"


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return some_rows()


@pytest.fixture
def path(tmp_path: Path, rows: pa.Table) -> Path:
    build(tmp_path / "t", rows, building(SCHEMA, CONDITIONS))
    return tmp_path / "t"


@pytest.fixture
def session(spark: SparkSession, path: Path) -> Iterator[SparkSession]:
    """An enabled session that compiles and knows the table as t, and its content from no file as s."""
    session = new_session(spark, COMPILED)
    register(session, "t", str(path))
    session.createDataFrame(some_rows()).createOrReplaceTempView("s")
    enable(session)
    yield session
    disable(session)


def of_source(session: SparkSession, sql: str, **given: Any) -> list[str]:
    return answer(type(session).sql(session, sql.replace(" t ", " s "), **given))


@pytest.mark.usefixtures("each_reader")
@pytest.mark.parametrize(
    ("sql", "args"),
    [
        ("SELECT id FROM t WHERE kind = :k AND price > :p", {"k": "air", "p": Decimal("50.00")}),
        ("SELECT id FROM t WHERE id BETWEEN ? AND ? OR id = - ?", [15, 18, -3]),
        ("SELECT a.id FROM t AS a WHERE a.kind = ? AND a.id IN (SELECT id FROM t WHERE price > ?)", ["air", 50]),
    ],
)
def test_parameters_skip_as_literals_do(sql: str, args: Any, session: SparkSession) -> None:
    assert answer(session.sql(sql, args=args)) == of_source(session, sql, args=args) != []
    assert skipped(session) > 0


@pytest.mark.usefixtures("each_reader")
def test_values_in_braces_are_spark_s_own(session: SparkSession) -> None:
    few = session.sql("SELECT 3 AS n UNION ALL SELECT 4")
    sql = "SELECT id FROM t WHERE kind = {k} AND id IN (SELECT n * 4 FROM {few} )"
    assert answer(session.sql(sql, k="air", few=few)) == of_source(session, sql, k="air", few=few)
    assert skipped(session) > 0


def test_a_table_called_by_its_path_skips(session: SparkSession, path: Path) -> None:
    assert answer(session.sql(AIR.replace(" t ", f" layoutopt('{path}') "))) == of_source(session, AIR)
    assert skipped(session) > 0
    assert answer(read_table(session, str(path)).where("kind = 'air'").select("id", "kind")) == of_source(session, AIR)
    assert skipped(session) > 0


def test_a_path_without_a_table_is_refused(session: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="nothing at"):
        session.sql(f"SELECT * FROM layoutopt('{tmp_path}/none')")
    with pytest.raises(PySparkException, match="expects the path"):
        session.sql("SELECT * FROM layoutopt(1)")


@pytest.mark.usefixtures("each_reader")
def test_a_snapshot_of_the_past_is_read_as_it_was(session: SparkSession, path: Path, rows: pa.Table) -> None:
    build(path, rows.slice(0, 100), building(SCHEMA, CONDITIONS), load_id="load-2")
    before, now = read_table(session, str(path), snapshot=0), read_table(session, str(path))
    assert (before.count(), now.count()) == (300, 100)
    assert before.where("kind = 'air'").count() == len(of_source(session, AIR))
    assert skipped(session) > 0


WRITTEN: dict[str, Callable[[DataFrame], DataFrame]] = {
    "where": lambda t: t.where("kind = 'air'").select("id", "kind"),
    "columns": lambda t: t.filter((F.col("kind") == "air") & (F.col("id") >= 0)).select(t.id, "kind"),
    "filter after a text": lambda t: t.sparkSession.sql("SELECT id, kind, price FROM t").filter("kind = 'air'")[
        ["id", "kind"]
    ],
    "renamed": lambda t: t.withColumnRenamed("kind", "k").where("k = 'air'").select("id", F.col("k").alias("kind")),
    "union": lambda t: t.where("kind = 'air' AND id < 100").union(t.where("kind = 'air' AND id >= 100"))[
        ["id", "kind"]
    ],
    "joined": lambda t: (
        t.join(t.sparkSession.createDataFrame([("air",)], "kind string").hint("broadcast"), "kind")
        .where("kind = 'air'")
        .select("id", "kind")
    ),
    "key carries a constant over": lambda t: t.sparkSession.sql(
        "SELECT t.id, t.kind FROM t JOIN (SELECT 'air' AS k UNION SELECT 'sea') d ON t.kind = d.k WHERE d.k = 'air'"
    ),
    "view of a DataFrame": lambda t: _view(t.where("id >= 0"), "SELECT id, kind FROM v WHERE kind = 'air'"),
    "pipes": lambda t: t.sparkSession.sql("FROM t |> LIMIT 300 |> WHERE kind = 'air' |> SELECT id, kind"),
    "pipes before a limit": lambda t: t.sparkSession.sql("FROM t |> WHERE kind = 'air' |> SELECT id, kind"),
    "identifier": lambda t: t.sparkSession.sql("SELECT id, kind FROM IDENTIFIER('t') WHERE kind = 'air'"),
    "execute immediate": lambda t: t.sparkSession.sql(
        "EXECUTE IMMEDIATE 'SELECT id, kind FROM t WHERE kind = ?' USING 'air'"
    ),
    "script": lambda t: t.sparkSession.sql("BEGIN SELECT id, kind FROM t WHERE kind = 'air'; END"),
    "values in braces": lambda t: t.sparkSession.sql("SELECT id, kind FROM {rows} WHERE kind = {k}", rows=t, k="air"),
}


def _view(frame: DataFrame, sql: str) -> DataFrame:
    frame.createOrReplaceTempView("v")
    return frame.sparkSession.sql(sql)


@pytest.mark.usefixtures("each_reader")
@pytest.mark.parametrize("name", one_in(2, WRITTEN.keys()))
def test_it_skips_however_it_is_written(name: str, session: SparkSession) -> None:
    assert answer(WRITTEN[name](session.table("t"))) == of_source(session, AIR)
    assert skipped(session) > 0 or name == "pipes"  # which limits before it filters


@pytest.mark.usefixtures("each_reader")
def test_caches_skip_when_they_are_filled(session: SparkSession) -> None:
    cached = session.table("t").where("kind = 'air'").cache()
    assert cached.count() == len(of_source(session, AIR))
    assert skipped(session) > 0
    assert cached.where("id < 100").count() == len(of_source(session, AIR + " AND id < 100"))
    cached.unpersist()


@pytest.mark.usefixtures("each_reader")
def test_functions_of_sql_skip(session: SparkSession) -> None:
    session.sql("CREATE TEMPORARY FUNCTION of_kind(k STRING) RETURNS TABLE (id INT, kind STRING) RETURN "
                "SELECT id, kind FROM t WHERE kind = k")  # fmt: skip
    session.sql("CREATE TEMPORARY FUNCTION is_air(k STRING) RETURNS BOOLEAN RETURN k = 'air'")
    session.sql("DECLARE VARIABLE wanted = 'air'")
    for sql in (
        "SELECT * FROM of_kind('air')",
        "SELECT id, kind FROM t WHERE is_air(kind)",
        "SELECT id, kind FROM t WHERE kind = wanted",
        "SELECT id, kind FROM t WHERE kind = session.wanted AND 1 = (SELECT count(*) FROM t WHERE id = 3)",
    ):
        assert answer(session.sql(sql)) == of_source(session, AIR)
        assert skipped(session) > 0, sql


def test_all_scans_of_a_query_read_one_snapshot(session: SparkSession, path: Path, rows: pa.Table) -> None:
    frame = session.sql("SELECT (SELECT count(*) FROM t) AS a, (SELECT count(id) FROM t) AS b, count(*) AS c FROM t")
    build(path, rows.slice(0, 100), building(SCHEMA, CONDITIONS), load_id="load-2")
    assert frame.collect() == [(100, 100, 100)]
    build(path, rows.slice(0, 50), building(SCHEMA, CONDITIONS), load_id="load-3")
    assert frame.collect() == [(100, 100, 100)]  # which was planned
    assert frame.count() == 1
    assert session.table("t").count() == 50


def test_what_names_the_table_anyhow_reads_the_newest_snapshot(
    session: SparkSession, path: Path, rows: pa.Table
) -> None:
    session.sql("CREATE TEMPORARY FUNCTION rows_of_t() RETURNS BIGINT RETURN (SELECT count(*) FROM t)")
    session.sql("CREATE OR REPLACE GLOBAL TEMPORARY VIEW all_of_t AS SELECT id FROM t")
    session.sql("DECLARE VARIABLE text = 'SELECT count(*) FROM t'")
    texts = ["EXECUTE IMMEDIATE 'SELECT count(*) FROM t'", "EXECUTE IMMEDIATE text", "SELECT rows_of_t()",
             "SELECT count(*) FROM global_temp.all_of_t", "SELECT count(*) FROM t"]  # fmt: skip
    held = session.table("t")
    for number, size in enumerate((300, 100)):
        if number:
            build(path, rows.slice(0, size), building(SCHEMA, CONDITIONS), load_id="load-2")
        assert [session.sql(text).collect()[0][0] for text in texts] == [size] * len(texts)
        assert held.count() == size
    session.sql("DROP VIEW global_temp.all_of_t")


def test_an_insert_meets_a_newer_snapshot_in_another_thread(
    session: SparkSession, path: Path, rows: pa.Table, tmp_path: Path
) -> None:
    names = ["copies_a", "copies_b", "copies_c"]
    for name in names:
        session.sql(f"CREATE TABLE {name} (id INT) USING parquet LOCATION '{tmp_path}/{name}'")
    try:
        with ThreadPoolExecutor(2) as pool:
            inserted = pool.map(lambda name: session.sql(f"INSERT INTO {name} SELECT id FROM t WHERE id < 50"), names)
            build(path, rows.slice(0, 100), building(SCHEMA, CONDITIONS), load_id="load-2")
            counted = list(pool.map(lambda _: session.table("t").count(), range(4)))
        assert len(list(inserted)) == 3
        assert set(counted) == {100}
        of_either = {sum(i < 50 for i in some["id"].to_pylist()) for some in (rows, rows.slice(0, 100))}
        assert {session.table(name).count() for name in names} <= of_either
    finally:
        for name in names:
            session.sql(f"DROP TABLE {name}")


def test_new_columns_are_seen_once_the_table_is_refreshed(session: SparkSession, path: Path, rows: pa.Table) -> None:
    held = session.table("t")
    wider = rows.append_column("more", pa.array(range(300), pa.int64()))
    shutil.rmtree(path)
    build(path, wider, building(Schema((*SCHEMA.columns, Column("more", "bigint"))), CONDITIONS))
    session.catalog.refreshTable("t")
    assert session.sql("SELECT max(more) FROM t").first() == (299,)
    assert held.where("kind = 'air'").count() == len(of_source(session, AIR))


def test_why_explains_a_frame(session: SparkSession) -> None:
    frame = session.table("t").join(session.table("t").where("kind = 'air'"), "id").where("id > 50")
    first, second = why(frame)
    assert {tuple(read.columns) for explained in (first, second) for read in explained.reads} == {
        tuple(SCHEMA.names), tuple(SCHEMA.names)
    }  # fmt: skip
    assert "skipped by features" in str(first) + str(second)
    assert why(session.range(3)) == ()


@pytest.mark.parametrize("by_driver", [False, True])
def test_explain_says_what_is_read(by_driver: bool, session: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    enable(session, by_driver=by_driver)
    session.table("t").where("kind = 'air'").explain()
    assert "t snapshot 0: reads 5 of 19 blocks, skipped by features 11" in capsys.readouterr().out


def test_a_common_table_around_a_view_is_not_read_in_it(session: SparkSession) -> None:
    views = {
        "v": "WITH t AS (SELECT * FROM t WHERE id > 200) SELECT id, kind FROM t",
        "w": "SELECT id, kind FROM t WHERE id NOT IN (WITH t AS (SELECT 7 AS id) SELECT id FROM t)",
    }
    for name, text in views.items():
        session.sql(f"CREATE OR REPLACE TEMP VIEW {name} AS {text}")
        found = session.sql(f"WITH t AS (SELECT 1 AS id, 'air' AS kind) SELECT count(*) FROM {name}").first()
        assert found is not None
        assert found[0] == session.table(name).count() > 90, name


def test_a_common_table_around_a_view_is_not_what_its_own_reads(session: SparkSession) -> None:
    session.range(3).createOrReplaceTempView("few")
    text = "WITH few AS (SELECT id FROM few) SELECT t.id FROM t JOIN few ON t.id = few.id"
    session.sql(f"CREATE OR REPLACE TEMP VIEW v AS {text}")
    assert session.sql("WITH few AS (SELECT 100L AS id) SELECT * FROM v").count() == 3


def test_a_global_view_is_not_the_temporary_one_of_its_name(session: SparkSession) -> None:
    session.sql("CREATE TEMP VIEW v AS SELECT id, year FROM t")
    session.sql("CREATE OR REPLACE GLOBAL TEMP VIEW v (year, id) AS SELECT id, year FROM t")
    assert session.sql("SELECT * FROM v WHERE year = 1995").count() == 100
    assert session.sql("SELECT * FROM global_temp.v WHERE id = 1995").count() == 100
    session.sql("DROP VIEW global_temp.v")


def test_a_view_of_a_dataframe_keeps_what_was_skipped(session: SparkSession) -> None:
    session.sql(AIR).createOrReplaceTempView("air")
    assert answer(session.sql("SELECT * FROM air")) == of_source(session, AIR)


def test_a_view_made_again_is_not_taken_for_the_old_one(session: SparkSession) -> None:
    session.sql("CREATE TEMP VIEW v AS SELECT * FROM t WHERE kind = 'air'")
    session.range(3).createOrReplaceTempView("v")
    assert session.sql("SELECT * FROM v").count() == 3


def test_a_name_that_got_another_meaning_is_left_alone(session: SparkSession) -> None:
    session.createDataFrame([(1, "air"), (2, "rail")], "id int, kind string").createOrReplaceTempView("t")
    assert [row.id for row in session.sql(AIR).collect()] == [1]
    assert last_scans(session) == ()


def test_a_newer_snapshot_is_read(session: SparkSession, path: Path, rows: pa.Table) -> None:
    assert session.sql("SELECT * FROM t").count() == 300
    build(path, rows.slice(0, 100), building(SCHEMA, CONDITIONS), load_id="load-2")
    assert session.sql("SELECT * FROM t").count() == 100
    assert session.table("t").count() == 100


@pytest.mark.usefixtures("by_tasks")
@pytest.mark.parametrize("sql", [AIR, "SELECT * FROM t"])
def test_a_plan_fails_clearly_once_its_files_are_deleted(sql: str, session: SparkSession, path: Path) -> None:
    session.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    frame = session.sql(sql)
    assert frame.count() > 0
    shutil.rmtree(path / "data")
    with pytest.raises(
        Exception, match=r"FAILED_READ_FILE.FILE_NOT_EXIST|a data file of the query.s snapshot is missing"
    ):
        frame.collect()


def rules_of(session: SparkSession) -> int:
    return int(session._jsparkSession.experimental().extraOptimizations().size())


def test_enabling_twice_and_disabling(session: SparkSession) -> None:
    enable(session)
    assert rules_of(session) == 1
    held = session.table("t")
    disable(session)
    disable(session)
    assert rules_of(session) == 0
    assert answer(session.sql(AIR)) == of_source(session, AIR)
    assert last_scans(session) == ()
    with pytest.raises(PySparkException, match=r"layoutopt\.spark\.enable\(spark\)"):
        held.count()
    enable(session)
    assert held.count() == 300
    assert answer(session.sql(AIR)) == of_source(session, AIR)
    assert skipped(session) > 0


def test_rules_of_others_stay(session: SparkSession) -> None:
    other = session.newSession()
    enable(other)
    ours = other._jsparkSession.experimental().extraOptimizations()
    add_other_rule(other)
    disable(other)
    assert rules_of(other) == 1
    enable(other)
    assert rules_of(other) == 2
    assert ours.size() == 1
    disable(other)


def add_other_rule(session: SparkSession) -> None:
    """Adds a rule of Spark's own, which does nothing new."""
    jvm: Any = session._jvm
    experimental = session._jsparkSession.experimental()
    rules = jvm.java.util.ArrayList()
    for place in range(experimental.extraOptimizations().size()):
        rules.add(experimental.extraOptimizations().apply(place))
    loaded: Any = jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.optimizer.CollapseProject$")
    rules.add(loaded.getField("MODULE$").get(None))
    getattr(experimental, "extraOptimizations_$eq")(jvm.PythonUtils.toSeq(rules))


def test_a_rule_that_others_replaced_is_said(session: SparkSession) -> None:
    jvm: Any = session._jvm
    getattr(session._jsparkSession.experimental(), "extraOptimizations_$eq")(
        jvm.PythonUtils.toSeq(jvm.java.util.ArrayList())
    )
    with pytest.raises(PySparkException, match="no longer has"):
        session.sql(AIR).collect()
    enable(session)
    assert answer(session.sql(AIR)) == of_source(session, AIR)


def test_whatever_fails_in_the_analysis_reads_everything_and_says_so(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("no reason")

    monkeypatch.setattr(enabling, "read_condition", fails)
    with caplog.at_level(logging.WARNING, "layoutopt.spark"):
        assert answer(session.sql(AIR)) == of_source(session, AIR)
    assert "nothing is skipped" in caplog.text
    assert skipped(session) == 0
    monkeypatch.setattr(enabling, "_plan_scan", fails)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "layoutopt.spark"):
        assert answer(session.sql(AIR)) == of_source(session, AIR)
    assert "is read" in caplog.text


def test_damage_of_the_catalog_is_an_error(session: SparkSession, path: Path) -> None:
    build(path, some_rows().slice(0, 100), building(SCHEMA, CONDITIONS), load_id="load-2")
    (path / "_layoutopt/snapshots/1.json").write_text("{}")
    with pytest.raises(PySparkException, match=r"1\.json"):
        session.sql(AIR).collect()


def test_a_session_begun_again_is_enabled_again(session: SparkSession, path: Path) -> None:
    other = session.newSession()
    register(other, "t", str(path))
    enable(other)
    cloned = other._jsparkSession.cloneSession()
    assert cloned.sql(AIR).count() == len(of_source(session, AIR))
    assert not has_rule(session.newSession())
    disable(other)


def test_enabling_changes_one_setting_by_which_no_answer_changes(session: SparkSession) -> None:
    other = session.newSession()
    before = other.conf.getAll
    enable(other)
    assert other.conf.getAll == {**before, "spark.sql.parquet.pushdown.inFilterThreshold": "400"}
    disable(other)
    assert other.conf.getAll == before


def test_a_new_session_is_enabled_by_itself(session: SparkSession) -> None:
    other = session.newSession()
    assert not has_rule(other)
    assert last_scans(other) == ()
    assert not other.catalog.tableExists("t")


def test_threads_plan_side_by_side(session: SparkSession) -> None:
    def ask(kind: str) -> tuple[list[str], int]:
        found = session.sql(f"SELECT id FROM t AS {kind} WHERE kind = '{kind}'")
        (explained,) = why(found)
        return answer(found), explained.reads[0].read.blocks

    kinds = ["air", "rail", "ship", "truck"] * 2
    with ThreadPoolExecutor(4) as pool:
        results = list(zip(kinds, pool.map(ask, kinds), strict=True))
    for kind, (found, blocks) in results:
        assert found == of_source(session, f"SELECT id FROM t WHERE kind = '{kind}'")
        assert 0 < blocks < 19


@pytest.mark.parametrize(
    ("sql", "conf"),
    [
        ("SELECT id FROM t WHERE kind = '${which}'", {"which": "air"}),
        ("SELECT id FROM t WHERE \"kind\" = 'air'", {"spark.sql.ansi.doubleQuotedIdentifiers": "true"}),
        (AIR, {"spark.sql.caseSensitive": "true"}),
        ("SELECT id FROM t TABLESAMPLE (100 PERCENT) WHERE kind = 'air'", {}),
        ("SELECT `k.*` AS a, id FROM t WHERE kind = 'air'", {"spark.sql.parser.quotedRegexColumnNames": "true"}),
    ],
)
def test_what_the_session_makes_of_a_text_is_what_skips(sql: str, conf: dict[str, str], session: SparkSession) -> None:
    for key, value in conf.items():
        session.conf.set(key, value)
    if "k.*" in sql:
        sql = "SELECT `k.*`, id FROM t WHERE kind = 'air'"
    assert len(session.sql(sql).collect()) == len(of_source(session, AIR)) > 0
    (scan,) = last_scans(session)
    assert scan.skipped.blocks > 0 or "TABLESAMPLE" in sql


def test_texts_that_write_read_less(session: SparkSession, tmp_path: Path) -> None:
    session.sql(f"CREATE TABLE copy_of_air USING parquet LOCATION '{tmp_path}/copy' AS {AIR}")
    try:
        assert skipped(session) > 0
        session.sql("INSERT INTO copy_of_air SELECT id, kind FROM t WHERE kind = 'rail'")
        assert skipped(session) > 0
        expected = of_source(session, "SELECT id, kind FROM t WHERE kind IN ('air', 'rail')")
        assert answer(session.sql("SELECT * FROM copy_of_air")) == expected
    finally:
        session.sql("DROP TABLE copy_of_air")


def test_spark_s_own_errors_name_what_was_written(session: SparkSession) -> None:
    with pytest.raises(Exception, match="no_such_column") as caught:
        session.sql("SELECT no_such_column FROM t WHERE kind = 'air'")
    assert "_block" not in str(caught.value).split("SQLSTATE")[0]
    with pytest.raises(Exception, match="PARSE_SYNTAX_ERROR"):
        session.sql("SELEC * FROM t")


@pytest.mark.usefixtures("by_tasks")
def test_only_the_files_with_surviving_blocks_are_opened(session: SparkSession, tmp_path: Path, rows: pa.Table) -> None:
    build(tmp_path / "hundreds", rows.sort_by("id"), building(SCHEMA, CONDITIONS, segment_rows=100))
    register(session, "t", str(tmp_path / "hundreds"))
    for sql, files in (("SELECT id, price FROM t WHERE id BETWEEN 120 AND 130", 1), (AIR, 3)):
        frame = session.sql(sql)
        assert answer(frame) == of_source(session, sql) != []
        assert opened_files(frame) == files


def opened_files(frame: DataFrame) -> int:
    """How many files Spark's scan of the DataFrame, which has run, opened."""
    plan: Any = frame._jdf.queryExecution().executedPlan()
    while plan.children().size():
        plan = plan.children().apply(0)
    return int(plan.metrics().apply("numFiles").value())


def test_names_are_plain_and_can_be_taken_away(session: SparkSession, path: Path) -> None:
    with pytest.raises(QueryError, match="invalid table name"):
        register(session, "a.b", str(path))
    unregister(session, "T")
    assert not session.catalog.tableExists("t")


def test_numbers_are_those_of_explain(session: SparkSession, path: Path) -> None:
    from layoutopt.scan.table import open_table

    session.sql(AIR).collect()
    (scan,) = last_scans(session)
    (explained,) = open_table(str(path)).explain(AIR).reads
    assert (scan.total, scan.read, scan.skipped_by) == (explained.total, explained.read, explained.skipped_by)
    assert scan.read + scan.skipped == scan.total
    assert f"reads {scan.read.blocks} of {scan.total.blocks} blocks" in str(scan)
