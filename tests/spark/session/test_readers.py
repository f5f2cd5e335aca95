"""Who reads a scan: Spark, its tasks or the driver, with the same answers and the session as it was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import QueryExecutionException
from pyspark.sql import SparkSession

from layoutopt import spark as skipping
from layoutopt.inspect.cost import count_work
from layoutopt.scan import segments
from layoutopt.scan.table import Table, open_table
from layoutopt.scan.table_read import TableRead, read_rows
from layoutopt.spark.core import versions
from layoutopt.spark.core.source import schema_of
from layoutopt.spark.loading.load import load
from layoutopt.spark.session import readers
from layoutopt.spark.session import readers as reading
from layoutopt.spark.session.readers import Reader, are_tasks_sooner, choose_reader, rows_to_dataframe
from tests.scan.builder import build, building
from tests.scan.deleting import delete_ids, kept
from tests.scan.layouts import GROUPS
from tests.scan.tables import CONDITIONS, SCHEMA, expected, same, some_rows
from tests.spark.settings import compared_here, new_session
from tests.spark.tables import document, every_type, plan_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SQL = "SELECT id, price FROM t WHERE kind = 'air' AND price > 20"


@pytest.fixture(params=[None, GROUPS], ids=["sop", "gsop"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    made = building(SCHEMA, CONDITIONS, partition_by="year", layouts=request.param, footers=True)
    return build(tmp_path / "t", some_rows(), made)


@pytest.fixture
def session(spark: SparkSession, table: Table) -> Iterator[SparkSession]:
    found = new_session(spark)
    skipping.register(found, "t", table.catalog.files.root)
    skipping.enable(found)
    with compared_here():
        yield found
    skipping.disable(found)


def read_of(table: Table, sql: str = SQL) -> TableRead:
    (read,) = table.scan(sql).reads
    return read


def is_one_layout(table: Table) -> bool:
    return all(len(plan.scheme.layouts) == 1 for plan in table.catalog.plans.values())


def rows_of(spark: SparkSession, read: TableRead) -> DataFrame:
    found = read_rows(read, readers._MOST_HELD)
    assert found is not None
    return rows_to_dataframe(spark, found, read.columns)


def plan_text(session: SparkSession, sql: str) -> str:
    return str(session.sql(sql)._jdf.queryExecution().executedPlan().toString())


def test_the_driver_reads_only_what_tasks_would(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    one_layout = is_one_layout(table)
    assert choose_reader(read_of(table)) == ((Reader.NATIVE, False) if one_layout else (Reader.TASKS, True))
    one_column = "SELECT id FROM t WHERE id > 20"
    assert choose_reader(read_of(table, one_column)) == (Reader.NATIVE, False)
    changed = delete_ids(table.catalog.files.root, range(0, 300, 7))
    assert choose_reader(read_of(changed, one_column)) == (Reader.NATIVE, True)  # and tasks beside it
    monkeypatch.setattr(readers, "are_tasks_sooner", lambda *_: True)
    assert choose_reader(read_of(table, one_column)) == (Reader.TASKS, True)


def test_the_driver_reads_few_values_and_bytes(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "are_tasks_sooner", lambda *_: True)
    for sql in (SQL, "SELECT * FROM t"):
        assert choose_reader(read_of(table, sql)) == (Reader.TASKS, True)
    for name in ("_MOST_VALUES", "_MOST_BYTES"):
        with monkeypatch.context() as patch:
            patch.setattr(readers, name, 0)
            assert choose_reader(read_of(table)) == (Reader.TASKS, False)
            patch.setattr(readers, "are_tasks_sooner", lambda *_: False)
            assert choose_reader(read_of(table)) == (Reader.NATIVE if is_one_layout(table) else Reader.TASKS, False)


@pytest.fixture
def dear_footers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_FOOTER_CHUNK", 1.0)
    monkeypatch.setattr(segments, "_MANY_CHUNKS", 0)
    monkeypatch.setattr(segments, "_MANY_ROW_GROUPS", 0)
    monkeypatch.setattr(segments, "_FEW", 0)


@pytest.fixture
def of_one_layout(tmp_path: Path) -> Table:
    return build(tmp_path / "one", some_rows(), building(SCHEMA, CONDITIONS, partition_by="year", footers=True))


def is_sooner(table: Table) -> bool:
    read = read_of(table)
    return are_tasks_sooner(read, count_work(read.pruned))


def test_tasks_of_a_small_table_are_not_worth_it(of_one_layout: Table) -> None:
    assert not is_sooner(of_one_layout)


@pytest.mark.usefixtures("dear_footers")
def test_tasks_read_where_footers_take_longer(of_one_layout: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_sooner(of_one_layout)
    monkeypatch.setattr(readers, "_VALUE", 10.0)
    assert not is_sooner(of_one_layout)


@pytest.mark.usefixtures("dear_footers")
def test_files_whose_chunks_are_not_known_are_left_to_spark(tmp_path: Path) -> None:
    older = build(tmp_path / "older", some_rows(), building(SCHEMA, CONDITIONS, partition_by="year"))
    assert not is_sooner(older)


@pytest.mark.spark
@pytest.mark.usefixtures("by_driver")
@pytest.mark.usefixtures("dear_footers")
@pytest.mark.parametrize("gone", [(), range(0, 300, 5)])
def test_tasks_answer_as_others_do(
    spark: SparkSession, of_one_layout: Table, gone: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "_MOST_VALUES", -1)
    path, rows = of_one_layout.catalog.files.root, kept(some_rows(), set(gone))
    changed = delete_ids(path, gone) if gone else of_one_layout
    assert same(changed.scan(SQL).to_spark(spark).toArrow().to_pylist(), expected(SQL, rows))
    session = spark.newSession()
    skipping.register(session, "t", path)
    skipping.enable(session)
    for frame in (session.sql(SQL), session.table("t").where("kind = 'air' AND price > 20").select("id", "price")):
        assert "MapInArrow" in frame._jdf.queryExecution().executedPlan().toString()
        assert same(frame.toArrow().to_pylist(), expected(SQL, rows))
    skipping.disable(session)


@pytest.mark.parametrize(
    ("type", "taken"),
    [
        ("bigint", True), ("double", True), ("string", True), ("binary", True), ("decimal(38,10)", True),
        ("timestamp", True), ("timestamp_ntz", True), ("date", True), ("boolean", True), ("char(3)", False),
        ("varchar(9)", False), ("string collate UTF8_LCASE", False), ("array<int>", False), ("struct<a:int>", False),
        ("void", False),
    ],
)  # fmt: skip
def test_only_types_that_arrow_and_spark_take_for_the_same(type: str, taken: bool) -> None:
    assert readers._is_same_to_both(type) == taken


@pytest.mark.spark
@pytest.mark.usefixtures("by_driver")
def test_answers_are_the_same_and_no_task_reads_a_file(session: SparkSession) -> None:
    assert same(session.sql(SQL).toArrow().to_pylist(), expected(SQL, some_rows()))
    found = plan_text(session, SQL)
    assert "isnotnull(t snapshot 0: reads" in found
    assert "FileScan" not in found
    assert "MapInArrow" not in found
    nothing = SQL.replace("'air'", "'no such kind'")
    assert session.sql(nothing).toArrow().num_rows == 0


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.usefixtures("by_driver")
def test_a_session_can_leave_all_reading_to_tasks(session: SparkSession) -> None:
    skipping.enable(session, by_driver=False)
    assert "MapInArrow" in plan_text(session, SQL) or "FileScan" in plan_text(session, SQL)
    assert same(session.sql(SQL).toArrow().to_pylist(), expected(SQL, some_rows()))
    skipping.enable(session)
    assert "LocalTableScan" in plan_text(session, SQL)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.usefixtures("by_driver")
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id FROM (SELECT * FROM t WHERE kind = 'air' UNION ALL SELECT * FROM t WHERE price > 90) q",
        "SELECT price FROM (SELECT * FROM t WHERE id < 40 UNION ALL SELECT * FROM t WHERE year = 1995) q",
        "SELECT a.* FROM t AS a NATURAL JOIN (SELECT id, kind FROM t WHERE id < 50) AS b WHERE a.price > 20",
        "SELECT n.id FROM t AS n(id, d, k, p, s, w, y) WHERE k = 'air'",
        "SELECT kind, count(*) AS n FROM t WHERE price > 50 GROUP BY ALL",
    ],
)
def test_columns_have_their_places_where_these_count(session: SparkSession, sql: str) -> None:
    found = sorted(map(repr, session.sql(sql).collect()))
    skipping.disable(session)
    assert found == sorted(map(repr, session.sql(sql).collect()))
    skipping.enable(session)


@pytest.mark.spark
@pytest.mark.usefixtures("by_driver")
def test_deleted_rows_stay_deleted(spark: SparkSession, table: Table) -> None:
    gone = set(range(0, 300, 7))
    found = delete_ids(table.catalog.files.root, gone).scan(SQL).to_spark(spark)
    assert "MapInArrow" not in found._jdf.queryExecution().executedPlan().toString()
    assert same(found.toArrow().to_pylist(), expected(SQL, kept(some_rows(), gone)))


@pytest.mark.spark
@pytest.mark.usefixtures("by_driver")
def test_rows_are_those_of_when_the_query_was_planned(session: SparkSession, table: Table) -> None:
    planned, new = session.sql(SQL), session.sql(SQL)
    before = len(expected(SQL, some_rows()))
    assert len(planned.collect()) == before
    delete_ids(table.catalog.files.root, range(0, 300, 7))
    assert len(planned.collect()) == before > len(new.collect()) == session.sql(SQL).count()


@pytest.mark.spark
@pytest.mark.usefixtures("by_driver")
def test_a_file_that_is_gone_is_said_when_the_query_is_planned(session: SparkSession, table: Table) -> None:
    for layout in range(len(table.catalog.plans and next(iter(table.catalog.plans.values())).scheme.layouts)):
        for path in table.data_files(layout):
            Path(path).unlink()
    with pytest.raises(QueryExecutionException, match=r"data/.* is missing"):
        session.sql(SQL).explain()
    with pytest.raises(QueryExecutionException, match=r"data/.* is missing"):
        session.table("t").where("kind = 'air' AND price > 20").select("id", "price").collect()


@pytest.mark.spark
@pytest.mark.usefixtures("by_driver")
def test_the_sessions_settings_are_put_back(spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    session = spark.newSession()
    session.conf.set(versions.LOCAL_ROWS, "1mb")
    before = session.conf.getAll
    rows_of(session, read_of(table))
    assert session.conf.getAll == before

    def fails(*_: object) -> None:
        assert session.conf.getAll != before
        raise RuntimeError

    read = read_of(table)
    monkeypatch.setattr(type(session), "createDataFrame", fails)
    with pytest.raises(RuntimeError):
        rows_of(session, read)
    assert session.conf.getAll == before


@pytest.mark.spark
@pytest.mark.usefixtures("by_driver")
def test_a_column_that_is_named_later_is_read(session: SparkSession) -> None:
    right = sorted(row["id"] for row in expected(SQL, some_rows()))
    frames = (
        session.sql("SELECT id FROM t WHERE kind = 'air'").filter("price > 20"),  # which Spark looks for below SELECT
        session.sql("SELECT id FROM (SELECT * FROM t WHERE kind = 'air') q").filter("price > 20"),
        session.table("t").where("kind = 'air'").where("price > 20").select("id"),
    )
    for frame in frames:
        assert sorted(row.id for row in frame.collect()) == right


@pytest.mark.spark
@pytest.mark.usefixtures("by_driver")
def test_other_sessions_and_the_active_one_play_no_part(spark: SparkSession, session: SparkSession) -> None:
    other = spark.newSession()
    other.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    other.createDataFrame([(1,)], "a int").count()
    assert SparkSession.getActiveSession() is other
    found = session.sql("SELECT id, seen FROM t WHERE kind = 'air'")
    assert found.schema["seen"].dataType.simpleString() == "timestamp"
    assert len(found.collect()) == len(expected("SELECT id, seen FROM t WHERE kind = 'air'", some_rows())) > 0
    assert SparkSession.getActiveSession() is other


@pytest.mark.spark
@pytest.mark.usefixtures("by_driver")
def test_settings_that_somebody_changes_meanwhile_stay(
    spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, made = spark.newSession(), SparkSession.createDataFrame

    def meanwhile(*given: Any) -> DataFrame:
        found = made(*given)
        session.conf.set(versions.BATCH_ROWS, "77")
        return found

    monkeypatch.setattr(SparkSession, "createDataFrame", meanwhile)
    rows_of(session, read_of(table))
    assert session.conf.get(versions.BATCH_ROWS) == "77"


@pytest.mark.spark
@pytest.mark.usefixtures("by_driver")
def test_few_rows_are_sent_to_all_tasks_of_a_join(session: SparkSession) -> None:
    session.range(10**6).createOrReplaceTempView("numbers")
    sql = "SELECT n.id FROM numbers n JOIN t ON n.id = t.id WHERE t.kind = 'air'"
    assert "BroadcastHashJoin" in plan_text(session, sql)
    session.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    assert "BroadcastHashJoin" not in plan_text(session, sql)


@pytest.mark.spark
@pytest.mark.usefixtures("by_driver")
def test_texts_of_many_bytes_are_left_to_tasks(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_MOST_HELD", 100)
    assert "MapInArrow" in plan_text(session, SQL) or "FileScan" in plan_text(session, SQL)
    assert same(session.sql(SQL).toArrow().to_pylist(), expected(SQL, some_rows()))


@pytest.mark.spark
@pytest.mark.usefixtures("by_driver")
def test_rows_are_dealt_out_to_tasks(spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rows_of(spark, read_of(table))._jdf.rdd().getNumPartitions() == 1
    monkeypatch.setattr(reading, "_HANDED_ROWS_A_TASK", 5)
    assert rows_of(spark, read_of(table))._jdf.rdd().getNumPartitions() == 2  # the cores that there are
    monkeypatch.setattr(reading, "_BYTES_A_TASK", 200)
    found = rows_of(spark, read_of(table))
    assert found._jdf.rdd().getNumPartitions() > 2
    assert same(found.select("id", "price").toArrow().to_pylist(), expected(SQL, some_rows()))


@pytest.mark.spark
@pytest.mark.usefixtures("by_driver")
def test_every_type_arrives_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    rows = every_type(spark, 90)
    schema = schema_of(rows)
    load(spark, rows, str(tmp_path / "t"), plan_of(document(schema, []), partition_by="year"))
    plain = [column.name for column in schema.columns if readers._is_same_to_both(column.type)]
    assert len(plain) > 12
    sql = f"SELECT {', '.join(plain)} FROM t WHERE year IS NULL OR year > 0"
    read = read_of(open_table(str(tmp_path / "t")), sql)
    found = rows_of(spark, read).select(plain)
    assert found.schema.simpleString() == rows.select(plain).schema.simpleString()
    assert sorted(map(repr, found.collect())) == sorted(map(repr, rows.select(plain).collect()))
