"""The optimiser rule: partitions pruned as a query runs, plans that are equal or not, streams, what has no rule."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from layoutopt.errors import SettingError
from layoutopt.scan.table import open_table
from layoutopt.spark import disable, enable, last_scans, read_table, register, unregister, why
from layoutopt.spark.catalyst import rule
from layoutopt.spark.session import enabling, tables
from tests.scan.builder import build, building
from tests.scan.deleting import delete_ids
from tests.scan.layouts import GROUPS
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows
from tests.spark.session.answers import answer
from tests.spark.settings import under

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("by_tasks")]


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return some_rows()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, rows: pa.Table) -> Path:
    """A table by year, t, the same in column groups, g, and plain Parquet in Hive's folders, hive."""
    root = tmp_path_factory.mktemp("rule")
    build(root / "t", rows, building(SCHEMA, CONDITIONS, partition_by="year", segment_rows=60))
    build(root / "g", rows, building(SCHEMA, CONDITIONS, partition_by="year", segment_rows=60, layouts=GROUPS))
    return root


@pytest.fixture(scope="module")
def session(spark: SparkSession, root: Path, rows: pa.Table) -> Iterator[SparkSession]:
    session = spark.newSession()
    for name in "tg":
        register(session, name, str(root / name))
    enable(session)
    session.createDataFrame(rows).write.partitionBy("year").parquet(str(root / "hive"))
    session.read.parquet(str(root / "hive")).createOrReplaceTempView("hive")
    years = [(1994, "first", True), (1995, "second", False), (1996, "third", False)]
    session.createDataFrame(years, "y int, name string, holiday boolean").write.parquet(str(root / "years"))
    session.read.parquet(str(root / "years")).createOrReplaceTempView("years")
    yield session
    disable(session)


def scans(frame: DataFrame) -> list[tuple[str, int]]:
    """What each Parquet scan of a DataFrame, which has run, is called, and the rows that it gave."""
    found: list[tuple[str, int]] = []

    def visit(node: Any) -> None:
        if node.nodeName() == "AdaptiveSparkPlan":
            visit(node.executedPlan())
            return
        if "QueryStage" in node.getClass().getSimpleName():
            visit(node.plan())
        if node.nodeName().startswith("Scan parquet"):
            found.append((node.nodeName().split(":")[0], int(node.metrics().apply("numOutputRows").value())))
        for place in range(node.children().size()):
            visit(node.children().apply(place))

    visit(frame._jdf.queryExecution().executedPlan())
    return found


PRUNED = {
    "a join": "SELECT count(*), sum(id) FROM t JOIN years ON year = y WHERE name = 'second'",
    "a join with a constant": "SELECT count(*), sum(id) FROM t JOIN years ON year = y WHERE y = 1995",
    "a scalar subquery": "SELECT count(*) FROM t WHERE year = (SELECT max(y) FROM years WHERE name < 'third')",
    "a semi join": "SELECT count(*) FROM t WHERE year IN (SELECT y FROM years WHERE name = 'second')",
    "a function": "SELECT count(*) FROM t WHERE hash(year) = hash(1995)",
    "a function of several columns": "SELECT count(*) FROM t WHERE hash(year) = hash(1995) AND upper(kind) = 'AIR'",
}


@pytest.mark.parametrize("name", PRUNED)
def test_partitions_are_pruned_as_those_of_hive_folders_are(name: str, session: SparkSession) -> None:
    found, plain = session.sql(PRUNED[name]), session.sql(PRUNED[name].replace("FROM t", "FROM hive t"))
    assert found.collect() == plain.collect()
    (of_hive,) = [rows for _, rows in scans(plain) if rows > 3]  # the others are of years
    (ours,) = [rows for scan, rows in scans(found) if scan == "Scan parquet t snapshot 0"]
    assert ours <= of_hive == 100


@pytest.mark.parametrize("table", ["t", "g"])
def test_a_table_that_filters_partitions_may_be_optimised_too(table: str, session: SparkSession) -> None:
    sql = f"SELECT a.id FROM t a JOIN {table} b ON a.year = b.year WHERE b.id = 17 AND b.kind IS NOT NULL"
    found = session.sql(sql)
    assert answer(found) == answer(session.sql(sql.replace("t a", "hive a").replace(f"{table} b", "hive b")))


def test_plans_that_read_other_blocks_are_not_equal(session: SparkSession) -> None:
    def plan(condition: str) -> Any:
        return session.sql(f"SELECT id FROM t WHERE {condition}")._jdf.queryExecution().executedPlan()

    assert plan("kind = 'air'").sameResult(plan("kind = 'air'"))
    assert not plan("kind = 'air'").sameResult(plan("kind = 'rail'"))
    both = session.sql(
        "SELECT (SELECT count(*) FROM t WHERE kind = 'air'), (SELECT count(*) FROM t WHERE kind = 'rail'), "
        "(SELECT count(*) FROM t WHERE kind = 'air')"
    ).first()
    kinds = some_rows()["kind"].to_pylist()
    assert both == (kinds.count("air"), kinds.count("rail"), kinds.count("air"))


def test_scans_of_one_frame_under_other_subqueries_are_told_apart(session: SparkSession) -> None:
    def one(frame: DataFrame, name: str) -> DataFrame:
        return frame.where(f"year = (SELECT max(y) FROM years WHERE name = '{name}')")

    def both(table: str) -> DataFrame:
        frame = session.table(table).select("id", "year")
        return one(frame, "first").union(one(frame, "second")).union(one(frame, "first"))

    assert answer(both("t")) == answer(both("hive")) != []
    assert both("t").where("year = 1995").count() == 100


def test_equal_exchanges_are_reused(session: SparkSession) -> None:
    one = "SELECT kind, count(*) AS n FROM t WHERE price > 50 GROUP BY kind"
    found = session.sql(f"SELECT a.kind, b.n FROM ({one}) a JOIN ({one}) b ON a.kind = b.kind AND a.n = b.n")
    assert found.count() == session.sql(one).where("kind IS NOT NULL").count()


def test_a_scan_may_stand_twice_with_and_without_a_projection(session: SparkSession) -> None:
    """Spark makes a runtime filter of the other side of a join: the same scan under a projection."""
    settings = {
        "spark.sql.optimizer.runtime.bloomFilter.applicationSideScanSizeThreshold": "0",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
    }
    sql = ("SELECT a.* FROM (SELECT id, kind FROM t WHERE price >= 0) a JOIN "
           "(SELECT id AS k, year, kind AS l FROM t WHERE id > 100) d ON a.id = d.k WHERE d.l = 'air'")  # fmt: skip
    with under(session, settings):
        found, plain = session.sql(sql), session.sql(sql.replace("FROM t", "FROM hive"))
        assert answer(found) == answer(plain) != []
        assert found.count() == plain.count()


@pytest.mark.parametrize(
    ("statement", "verb"),
    [
        ("DELETE FROM t WHERE id = 1", "delete"),
        ("UPDATE t SET id = 1 WHERE id = 2", "update"),
        ("MERGE INTO t USING (SELECT 1 AS i) s ON t.id = s.i WHEN MATCHED THEN DELETE", "merge"),
    ],
)
def test_a_statement_that_changes_a_table_names_the_verb(session: SparkSession, statement: str, verb: str) -> None:
    with pytest.raises(PySparkException, match=f"the table t can't be changed by SQL: use `layoutopt {verb}`"):
        session.sql(statement)


def test_why_runs_no_command(session: SparkSession, tmp_path: Path) -> None:
    session.sql(f"CREATE TABLE written (id INT) USING parquet LOCATION '{tmp_path}/written'")
    try:
        inserted = session.sql("INSERT INTO written SELECT id FROM t WHERE id < 5")
        why(inserted)
        assert session.table("written").count() == 5
    finally:
        session.sql("DROP TABLE written")


@pytest.mark.parametrize("condition", ["rand(7) < 0.5", "rand(7) < 0.5 AND kind = 'air'"])
def test_a_random_condition_is_asked_once_beside_deleted_rows(
    condition: str, session: SparkSession, tmp_path: Path, rows: pa.Table
) -> None:
    many = pa.concat_tables([rows] * 10)
    build(tmp_path / "d", many, building(SCHEMA, CONDITIONS, segment_rows=600))
    gone = delete_ids(str(tmp_path / "d"), range(30))
    kept = [row for row in many.to_pylist() if row["id"] >= 30 and ("kind" not in condition or row["kind"] == "air")]
    found = read_table(session, gone.catalog.files.root).where(condition).count()
    assert 0.4 * len(kept) < found < 0.6 * len(kept)


def test_what_fails_in_asking_reads_the_newest_snapshot(
    session: SparkSession, tmp_path: Path, rows: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path / "t", rows, building(SCHEMA, CONDITIONS))
    frame = read_table(session, str(tmp_path / "t")).where("kind = 'air'")
    build(tmp_path / "t", rows.slice(0, 100), building(SCHEMA, CONDITIONS), load_id="load-2")
    expected = rows.slice(0, 100)["kind"].to_pylist().count("air")

    def fails(*_: Any) -> None:
        raise RuntimeError("no reason")

    for module, name in ((enabling, "_translate_condition"), (enabling, "plan_read"), (enabling, "_check_columns")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, fails)
            assert frame.count() == expected
            (scan,) = last_scans(session)
            assert scan.snapshot == 1
            assert "no reason" in scan.note


def test_settings_may_change_while_others_plan(session: SparkSession) -> None:
    done = threading.Event()

    def change() -> None:
        number = 0
        while not done.is_set():
            number += 1
            session.conf.set(f"my.setting.{number % 50}", number)

    changing = threading.Thread(target=change)
    changing.start()
    try:
        for _ in range(10):
            session.sql("SELECT id FROM t WHERE kind = 'air'")._jdf.queryExecution().optimizedPlan()
    finally:
        done.set()
        changing.join()


def test_dataframes_outlive_the_name_of_their_table(session: SparkSession, root: Path) -> None:
    register(session, "again", str(root / "t"))
    frame = session.table("again").where("id < 10")
    register(session, "again", str(root / "g"))
    assert frame.count() == session.table("again").where("id < 10").count() == 10
    unregister(session, "again")
    assert frame.where("id < 5").count() == 5


def test_tables_that_are_opened_again_are_registered_once(session: SparkSession, root: Path) -> None:
    before = len(tables._REGISTERED)
    for _ in range(3):
        assert open_table(str(root / "t")).scan("SELECT id FROM t WHERE id < 3").to_spark(session).count() == 3
    assert len(tables._REGISTERED) == before + 1


def test_a_path_whose_registration_was_forgotten_is_registered_again(
    session: SparkSession, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(tables, "_REGISTERED", tables._REGISTERED.copy())
        assert read_table(session, str(root / "t")).where("id < 10").count() == 10
        tables._REGISTERED.clear()
        assert read_table(session, str(root / "t")).where("id < 10").count() == 10


def test_a_stream_joins_the_table(session: SparkSession, tmp_path: Path) -> None:
    session.createDataFrame([(17,), (18,)], "n int").write.parquet(str(tmp_path / "stream"))
    stream = session.readStream.schema("n int").parquet(str(tmp_path / "stream"))
    joined = stream.join(session.table("t").where("kind = 'air' OR id < 100"), stream.n == session.table("t").id)
    query = (
        joined.select("n", "kind").writeStream.format("memory").queryName("joined").trigger(availableNow=True).start()
    )
    query.awaitTermination()
    assert session.sql("SELECT n FROM joined ORDER BY n").collect() == [(17,), (18,)]
    assert any(scan.skipped.blocks for scan in last_scans(session))


def test_long_lists_of_blocks(spark: SparkSession, tmp_path: Path) -> None:
    """More blocks than Parquet takes in one list: each part of them with its bounds."""
    numbers = pa.table({"id": pa.array(range(3_000), pa.int32())})
    schema = type(SCHEMA)((SCHEMA.columns[0],))
    from tests.scan.builder import by_position

    build(tmp_path / "n", numbers, building(schema, ["id < 3"], blocking=by_position(2)))
    session = spark.newSession()
    register(session, "n", str(tmp_path / "n"))
    enable(session)
    even = "id % 2 = 0 AND (id < 900 OR id BETWEEN 1000 AND 2400)"
    assert session.sql(f"SELECT count(*), sum(id) FROM n WHERE {even}").first() == (
        len([i for i in range(3_000) if i % 2 == 0 and (i < 900 or 1000 <= i <= 2400)]),
        sum(i for i in range(3_000) if i % 2 == 0 and (i < 900 or 1000 <= i <= 2400)),
    )
    (scan,) = last_scans(session)
    assert scan.read.blocks > 1_000
    assert scan.skipped.blocks > 0
    disable(session)


def test_a_spark_on_which_the_rule_does_not_compile_is_said(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ReadBlocks.java").write_text("package layoutopt; public class ReadBlocks extends NoSuchRule {}")
    monkeypatch.setattr(rule, "_SOURCES", {"layoutopt.ReadBlocks": tmp_path / "ReadBlocks.java"})
    monkeypatch.setattr(rule, "_CLASSES", {})
    with pytest.raises(SettingError, match=r"does not compile on Spark [\d.]+.*NoSuchRule"):
        enable(spark.newSession())
