"""Indexed files of others in Spark sessions: what is skipped, and that answers follow the files."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyspark.sql import DataFrame, SparkSession

import layoutopt.spark as skipping
from layoutopt.cli.app import main
from layoutopt.errors import SourceError, SourceIndexError
from layoutopt.spark.changes.spark_change import open_for_change
from tests.effort import long_too
from tests.external.folders import index, opened, write
from tests.external.tables import delete_positions, delta_table, first_file, hinted
from tests.spark.settings import under

pytestmark = pytest.mark.spark
SQL = "SELECT n, day, x FROM events WHERE n = 7"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for day in ("2024-01-01", "2024-01-02"):
        rows = pa.table({"n": range(40), "x": [float("nan"), None] * 20, "st": [{"a": i} for i in range(40)]})
        write(tmp_path / "rows" / f"day={day}" / "a.parquet", rows)
    index(tmp_path / "rows", tmp_path / "indexes", ["n:bloom"])
    return tmp_path


def test_an_enabled_session_skips_and_follows(spark: SparkSession, folder: Path) -> None:
    session = spark.newSession()
    skipping.register(session, "events", str(folder / "indexes"))
    skipping.enable(session)
    assert session.table("events").count() == 80
    assert sorted(map(str, session.sql(SQL).collect())) == sorted(
        f"Row(n=7, day=datetime.date(2024, 1, {day}), x=None)" for day in (1, 2)
    )
    (scan,) = skipping.last_scans(session)
    assert (scan.total.blocks, scan.read.blocks) == (8, 2)
    assert session.sql("SELECT count(*) FROM events WHERE x > 1").first() == (40,)
    assert session.sql("SELECT sum(st.a) FROM events WHERE day = '2024-01-02'").first() == (780,)
    assert session.sql("SELECT count(*) FROM events").first() == (80,)
    write(folder / "rows" / "day=2024-01-03" / "a.parquet", pa.table({"n": [7, 8]}))
    (folder / "rows" / "day=2024-01-02" / "a.parquet").unlink()
    assert session.sql("SELECT n, day FROM events WHERE n = 7 ORDER BY day").count() == 2
    (scan,) = skipping.last_scans(session)
    assert (scan.total.blocks, scan.read.blocks) == (5, 2)
    assert session.table("events").count() == 42


def test_deleted_rows_stay_deleted(spark: SparkSession, tmp_path: Path) -> None:
    assert main(["index", f"delta:{delta_table(tmp_path / 't', nested=False)}", "--into", str(tmp_path / "i")]) == 0
    session = spark.newSession()
    skipping.register(session, "t", str(tmp_path / "i"))
    skipping.enable(session)
    assert session.sql("SELECT count(*) FROM t").first() == (6,)
    assert sorted(row[0] for row in session.sql("SELECT id FROM t WHERE p = 'a b'").collect()) == [0, 2, 4]
    read = skipping.read_table(session, str(tmp_path / "i"))
    assert sorted(row["id"] for row in read.collect()) == [0, 2, 4, 7, 8, 9]


def test_rows_deleted_after_indexing_are_gone_where_sparks_reader_read_the_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    catalog = InMemoryCatalog("c", warehouse=str(tmp_path / "w"))
    catalog.create_namespace("n")
    rows = pa.table({"id": pa.array(range(6), pa.int64())})
    table = catalog.create_table("n.t", rows.schema, properties={"format-version": "2"})
    table.append(rows)
    assert main(["index", hinted(table), "--into", str(tmp_path / "i")]) == 0
    session = spark.newSession()
    skipping.register(session, "t", str(tmp_path / "i"))
    skipping.enable(session)
    assert uses_native_reader(session.table("t"))
    assert session.sql("SELECT sum(id) FROM t").first() == (15,)
    delete_positions(table, first_file(table), [1, 4])
    hinted(table)
    assert not uses_native_reader(session.table("t"))
    assert session.sql("SELECT sum(id) FROM t").first() == (10,)


def test_the_engine_of_a_scan(spark: SparkSession, folder: Path) -> None:
    table = opened(folder / "indexes")
    assert table.scan("SELECT st.a FROM t WHERE n = 7").to_spark(spark).collect() == [(7,), (7,)]


@pytest.mark.parametrize(("mode", "day"), [("CORRECTED", "1500-01-01"), ("LEGACY", "1600-01-01")])
def test_old_dates_are_what_spark_reads(spark: SparkSession, tmp_path: Path, mode: str, day: str) -> None:
    read = dates(spark, tmp_path / "rows", mode, day)
    index(tmp_path / "rows", tmp_path / "indexes", ["day:bloom"])
    asked = f"SELECT n FROM t WHERE day = date'{day}'"
    assert opened(tmp_path / "indexes").sql(asked).num_rows == read.where(f"day = date'{day}'").count() == 1


def test_dates_that_spark_moves_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    assert dates(spark, tmp_path / "rows", "LEGACY", "1500-01-01").where("day = date'1500-01-01'").count() == 1
    with pytest.raises(SourceError, match="column 'day' may have dates before 1582"):
        index(tmp_path / "rows", tmp_path / "indexes", ["day:bloom"])


def dates(spark: SparkSession, folder: Path, mode: str, day: str) -> DataFrame:
    """A date and a newer one, written by one of the two calendars, as Spark reads them."""
    with under(spark, {"spark.sql.parquet.datetimeRebaseModeInWrite": mode}):
        rows = spark.sql(f"SELECT date'{day}' AS day, 1 AS n UNION ALL SELECT date'2024-01-01', 2")
        rows.coalesce(1).write.parquet(str(folder))
    return spark.read.parquet(str(folder))


def test_such_rows_are_not_changed(spark: SparkSession, folder: Path) -> None:
    with pytest.raises(SourceIndexError):
        open_for_change(spark, str(folder / "indexes"))


def uses_native_reader(rows: DataFrame) -> bool:
    """Whether Spark's own Parquet reader reads all of a query's rows."""
    plan = str(rows._jdf.queryExecution().executedPlan())
    return "FileScan parquet" in plan and "MapInArrow" not in plan


NO_VALUE = "p=__HIVE_DEFAULT_PARTITION__"
KINDS = {
    "atoms": pa.table(
        {
            "n": pa.array(range(40), pa.int16()),
            "x": [float("nan"), -0.0, None, 1.5] * 10,
            "f": pa.array([0.0, -0.0, float("nan"), 2.5] * 10, pa.float32()),
            "s": ["é", "", None, "b%"] * 10,
            "b": [b"\x00", b"", None, b"\xff"] * 10,
            "c": pa.array([Decimal("1.10"), None, Decimal("-9.99"), Decimal("0.00")] * 10, pa.decimal128(5, 2)),
            "d": pa.array([dt.date(1500, 1, 1), None, dt.date(2024, 2, 29), dt.date(9999, 12, 31)] * 10),
            "t": pa.array([dt.datetime(1800, 1, 1), None, dt.datetime(2024, 7, 1, 12), dt.datetime(1970, 1, 1)] * 10),
            "z": pa.array([-(2**60) // 1000, None, 0, 1] * 10, pa.timestamp("us", "UTC")),
        }
    ),
    "nested": pa.table(
        {
            "n": range(40),
            "st": [{"a": i, "l": [i, None]} for i in range(40)],
            "m": pa.array([[("k", i)] for i in range(40)], pa.map_(pa.string(), pa.int64())),
        }
    ),
    "unsigned": pa.table({"n": pa.array(range(40), pa.uint32())}),
}


@pytest.mark.parametrize(
    ("folders", "kind"),
    [
        ([""], "nested"), (["p=1", "p=2", NO_VALUE], "atoms"), (["p=a b/q=1", "p=%25/q=2"], "unsigned"),
        *long_too(
            ([""], "atoms"), ([""], "unsigned"), (["p=1", "p=2", NO_VALUE], "nested"),
            (["p=1", "p=2", NO_VALUE], "unsigned"), (["p=a b/q=1", "p=%25/q=2"], "atoms"),
            (["p=a b/q=1", "p=%25/q=2"], "nested"),
        ),
    ],
)  # fmt: skip
def test_native_reads_return_the_rows_of_tasks(
    spark: SparkSession, tmp_path: Path, kind: str, folders: list[str]
) -> None:
    for folder in folders:
        write(tmp_path / "rows" / folder / "a.parquet", KINDS[kind])
    index(tmp_path / "rows", tmp_path / "indexes", [])
    session = spark.newSession()
    skipping.register(session, "t", str(tmp_path / "indexes"))
    skipping.enable(session)
    native = kind in ("atoms", "nested") and len(folders) != 2
    columns = [name for name in session.table("t").columns if name != "m"]
    for condition in ("true", "n >= 10", "n < 30 AND n > 4", *[f"{name} IS NULL" for name in columns]):
        rows = session.table("t").where(condition)
        if condition == "true":
            assert uses_native_reader(rows) is native
        expected = opened(tmp_path / "indexes").sql(f"SELECT * FROM t WHERE {condition}").to_pylist()
        assert sorted(map(repr, rows.toArrow().to_pylist())) == sorted(map(repr, expected)), condition
