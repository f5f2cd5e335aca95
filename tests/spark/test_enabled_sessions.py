"""Sessions in which `spark.sql` skips: parameters, views, paths, snapshots, threads, and texts it must not trust."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from layoutopt.errors import NotATableError, QueryError
from layoutopt.spark import disable, enable, last_scans, register, unregister
from tests.scan.builder import build, building
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows
from tests.spark.session.answers import answer, skipped

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
    """An enabled session that knows the table as t, and its content from no file as s."""
    session = spark.newSession()
    register(session, "t", str(path))
    session.createDataFrame(some_rows()).createOrReplaceTempView("s")
    enable(session)
    yield session
    disable(session)


def of_source(session: SparkSession, sql: str, **given: Any) -> list[str]:
    return answer(type(session).sql(session, sql.replace(" t ", " s "), **given))


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


def test_values_in_braces_are_spark_s_own(session: SparkSession) -> None:
    few = session.sql("SELECT 3 AS n UNION ALL SELECT 4")
    sql = "SELECT id FROM t WHERE kind = {k} AND id IN (SELECT n * 4 FROM {few} )"
    assert answer(session.sql(sql, k="air", few=few)) == of_source(session, sql, k="air", few=few)
    assert skipped(session) > 0


def test_a_table_called_by_its_path_skips(session: SparkSession, path: Path) -> None:
    by_path = f"layoutopt.`{path}`"
    assert answer(session.sql(AIR.replace(" t ", f" {by_path} "))) == of_source(session, AIR)
    assert skipped(session) > 0
    assert session.table(by_path).count() == 300
    unregister(session, "t")
    disable(session)
    assert not [view.name for view in session.catalog.listTables() if view.name.startswith("_layoutopt")]


def test_a_path_without_a_table_is_refused(session: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotATableError, match="nothing at"):
        session.sql(f"SELECT * FROM layoutopt.`{tmp_path}/none`")


def test_temporary_views_of_texts_skip_by_what_is_asked_of_them(session: SparkSession, path: Path) -> None:
    session.sql(f"CREATE TEMP VIEW v AS SELECT * FROM layoutopt.`{path}` WHERE price > 50 -- dear")
    session.sql("CREATE TEMP VIEW w (a, b) AS WITH c AS (SELECT id, kind FROM v) SELECT * FROM c")
    expected = of_source(session, "SELECT id AS a FROM t WHERE price > 50 AND kind = 'air'")
    assert answer(session.sql("SELECT w.a FROM w WHERE b = 'air'")) == expected
    assert last_scans(session)[0].skipped_by["features"].blocks > 0
    more = last_scans(session)[0].skipped.blocks
    assert answer(session.sql("WITH c AS (SELECT 1) SELECT x.a FROM w x WHERE b = 'air'")) == expected
    session.sql("SELECT a FROM w")
    assert 0 < skipped(session) < more


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
    assert last_scans(session) == ()


def test_a_name_that_got_another_meaning_is_left_alone(session: SparkSession) -> None:
    session.createDataFrame([(1, "air"), (2, "rail")], "id int, kind string").createOrReplaceTempView("t")
    assert [row.id for row in session.sql(AIR).collect()] == [1]
    assert last_scans(session) == ()


def test_a_newer_snapshot_is_read(session: SparkSession, path: Path, rows: pa.Table) -> None:
    assert session.sql("SELECT * FROM t").count() == 300
    build(path, rows.slice(0, 100), building(SCHEMA, CONDITIONS), load_id="load-2")
    assert session.sql("SELECT * FROM t").count() == 100
    assert session.table("t").count() == 100


@pytest.mark.left_to_spark
@pytest.mark.parametrize("sql", [AIR, "SELECT * FROM t"])
def test_a_plan_fails_clearly_once_its_files_are_deleted(sql: str, session: SparkSession, path: Path) -> None:
    session.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    frame = session.sql(sql)
    assert frame.count() > 0
    shutil.rmtree(path / "data")
    with pytest.raises(Exception, match=r"FAILED_READ_FILE.FILE_NOT_EXIST|layout-0.* does not exist"):
        frame.collect()


def test_enabling_twice_and_disabling(session: SparkSession) -> None:
    before = vars(session)["sql"]
    enable(session)
    assert vars(session)["sql"] is before
    disable(session)
    disable(session)
    assert "sql" not in vars(session)
    assert "table" not in vars(session)
    assert answer(session.sql(AIR)) == of_source(session, AIR)
    assert last_scans(session) == ()
    enable(session)
    session.sql(AIR)
    assert skipped(session) > 0


def test_enabling_changes_one_setting_by_which_no_answer_changes(session: SparkSession) -> None:
    other = session.newSession()
    before = other.conf.getAll
    enable(other)
    assert other.conf.getAll == {**before, "spark.sql.parquet.pushdown.inFilterThreshold": "400"}
    disable(other)
    assert other.conf.getAll == before


def test_a_new_session_is_enabled_by_itself(session: SparkSession) -> None:
    other = session.newSession()
    assert "sql" not in vars(other)
    assert last_scans(other) == ()
    assert not other.catalog.tableExists("t")


def test_threads_have_their_own_last_scans(session: SparkSession) -> None:
    def ask(kind: str) -> tuple[list[str], tuple[str, ...]]:
        found = session.sql(f"SELECT id FROM t AS {kind} WHERE kind = '{kind}'")
        return answer(found), tuple(scan.alias for scan in last_scans(session))

    kinds = ["air", "rail", "ship", "truck"] * 2
    with ThreadPoolExecutor(4) as pool:
        results = dict(zip(kinds, pool.map(ask, kinds), strict=True))
    for kind, (found, aliases) in results.items():
        assert aliases == (kind,)
        assert found == of_source(session, f"SELECT id FROM t WHERE kind = '{kind}'")


@pytest.mark.parametrize(
    ("sql", "conf", "says"),
    [
        ("SELECT id FROM t WHERE kind = '${which}'", {"which": "air"}, "${...}"),
        ("SELECT id FROM t WHERE \"kind\" = 'air'", {"spark.sql.ansi.doubleQuotedIdentifiers": "true"}, "doubleQuoted"),
        (AIR, {"spark.sql.legacy.setopsPrecedence.enabled": "true"}, "setopsPrecedence"),
        ("SELECT id FROM t TABLESAMPLE (100 PERCENT) WHERE kind = 'air'", {}, "sampled"),
        ("FROM t |> LIMIT 300 |> WHERE kind = 'air' |> SELECT id", {}, "pipes"),
        ("SELECT id FROM t VERSION AS OF 1 WHERE kind = 'air'", {}, ""),
    ],
)
def test_what_is_not_surely_understood_reads_everything_and_says_so(
    sql: str, conf: dict[str, str], says: str, session: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    for key, value in conf.items():
        session.conf.set(key, value)
    with caplog.at_level(logging.WARNING, "layoutopt.spark"):
        if "VERSION" in sql:
            with pytest.raises(Exception, match=r"VERSION|TIME_TRAVEL|time travel"):
                session.sql(sql)
        else:
            assert len(session.sql(sql).collect()) == len(session.sql(AIR.replace(" t ", " s ")).collect()) > 0
            session.sql(sql)
            (scan,) = last_scans(session)
            assert scan.read == scan.total
            assert says in scan.note
            assert says in caplog.text or says == "sampled"


def test_a_text_that_only_spark_can_parse_reads_everything_and_says_so(
    session: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    scripted = "BEGIN SELECT id FROM t WHERE kind = 'air'; END"
    assert answer(session.sql(scripted)) == of_source(session, AIR.replace(", kind", ""))
    session.sql(scripted)
    assert all(scan.note and not scan.skipped.blocks for scan in last_scans(session))
    assert [scan.table for scan in last_scans(session)] == ["t"]
    assert "read whole" in caplog.text


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
    assert "_layoutopt_" not in str(caught.value).split("SQLSTATE")[0]
    with pytest.raises(Exception, match="PARSE_SYNTAX_ERROR"):
        session.sql("SELEC * FROM t")


@pytest.mark.left_to_spark
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
    with pytest.raises(QueryError, match="no plain name"):
        register(session, "a.b", str(path))
    unregister(session, "T")
    assert not session.catalog.tableExists("t")


def test_numbers_are_those_of_explain(session: SparkSession, path: Path) -> None:
    from layoutopt.scan.table import open_table

    session.sql(AIR)
    (scan,) = last_scans(session)
    (explained,) = open_table(str(path)).explain(AIR).reads
    assert (scan.total, scan.read, scan.skipped_by) == (explained.total, explained.read, explained.skipped_by)
    assert scan.read + scan.skipped == scan.total
    assert f"reads {scan.read.blocks} of {scan.total.blocks} blocks" in str(scan)
