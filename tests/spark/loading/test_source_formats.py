"""Each format of sources lives the same life; to test a new one, add a row to FORMATS."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyarrow import orc
from pyiceberg.catalog.memory import InMemoryCatalog

from layoutopt.catalog.source_lists import read_sources
from layoutopt.catalog.table import Catalog
from layoutopt.cli.app import main
from layoutopt.cli.console import BAD_USAGE, DONE
from layoutopt.errors import AlreadyLoadedError, LayoutoptError, SchemaError, SourceError
from layoutopt.external import formats
from layoutopt.external.external_tables import read_schema
from layoutopt.external.snapshot import strip_scheme
from layoutopt.scan.table import open_table
from layoutopt.spark.core.source import measure_content, open_source, schema_of
from layoutopt.spark.loading.source_files import source_partitions
from tests.effort import long_too
from tests.external.tables import hinted
from tests.spark.settings import under
from tests.versions import needs_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("uncompiled")]

SCHEMA = pa.schema(
    [
        ("id", pa.int32()), ("Kind", pa.string()), ("day", pa.date32()), ("price", pa.decimal128(12, 2)),
        ("at", pa.timestamp("us", "UTC")), ("list", pa.list_(pa.int32())), ("part", pa.struct([("A", pa.string())])),
    ]
)  # fmt: skip
FILTERS = (
    "Kind = 'k1'",
    "price > 1.50 AND Kind IS NOT NULL",
    "at < TIMESTAMP '2026-01-01 03:00:00'",
    "day = DATE'2026-01-02' AND id < 30",
)


def rows_from(first: int, rows: int = 60) -> pa.Table:
    """Rows over two days and NULL, some of whose values are NULL."""

    def row(i: int) -> dict[str, object]:
        values = {
            "Kind": f"k{i % 4}", "price": Decimal(i) / 4, "list": [i, None], "part": {"A": f"a{i % 3}"},
            "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(minutes=7 * i, microseconds=i),
        }  # fmt: skip
        day = [dt.date(2026, 1, 1), dt.date(2026, 1, 2), None][i % 3]
        return {"id": i, "day": day} | (values if i % 7 else {})

    return pa.Table.from_pylist([row(i) for i in range(first, first + rows)], SCHEMA)


def write_parquet(spark: SparkSession, folder: Path, rows: pa.Table) -> str:
    folder.mkdir()
    pq.write_table(rows, folder / "a.parquet")
    return str(folder)


def write_delta(spark: SparkSession, folder: Path, rows: pa.Table) -> str:
    write_deltalake(str(folder), rows, partition_by=["day"])
    return f"delta:{folder}"


def write_iceberg(spark: SparkSession, folder: Path, rows: pa.Table) -> str:
    catalog = InMemoryCatalog("c", warehouse=str(folder))
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", rows.schema)
    table.append(rows)
    return hinted(table)


def write_orc(spark: SparkSession, folder: Path, rows: pa.Table) -> str:
    spark.createDataFrame(rows).write.orc(str(folder))
    return f"orc:{folder}"


def write_orc_folders(spark: SparkSession, folder: Path, rows: pa.Table) -> str:
    spark.createDataFrame(rows).write.partitionBy("day").orc(str(folder))
    return f"orc:{folder}"


# For each format: writes rows to a new folder, and returns the name of the source.
FORMATS: dict[str, Callable[[SparkSession, Path, pa.Table], str]] = {
    "parquet": write_parquet, "delta": write_delta, "iceberg": write_iceberg, "orc": write_orc,
    "orc in folders": write_orc_folders,
}  # fmt: skip


def run(*words: object, code: int = DONE) -> None:
    assert main(list(map(str, words))) == code


def plan_for(source: str, place: Path) -> Path:
    log, features, plan = place / "log.sql", place / "features.json", place / "plan.json"
    log.write_text("".join(f"SELECT id, price FROM t WHERE {condition};\n" * 5 for condition in FILTERS))
    run("analyze", log, "--schema", source, "--threshold", 1, "-o", features)
    run(
        "plan",
        source,
        "--features",
        features,
        "--partition-by",
        "day",
        "--method",
        "sop",
        "--block-rows",
        8,
        "-o",
        plan,
    )
    return plan


def test_the_table_has_each_format() -> None:
    assert set(formats.FORMATS) <= set(FORMATS)


@pytest.mark.parametrize("name", ["parquet", *long_too(*(name for name in FORMATS if name != "parquet"))])
def test_a_source_lives(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    rows, more = rows_from(0), rows_from(60, 20)
    source, batch = FORMATS[name](spark, tmp_path / "rows", rows), FORMATS[name](spark, tmp_path / "more", more)
    known = {column.name: column.type for column in read_schema(source).columns}
    assert known == {column.name: column.type for column in schema_of(open_source(spark, source)).columns}

    plan, table = plan_for(source, tmp_path), tmp_path / "table"
    day = "day=2026-01-02"
    run("load", source, table, "--plan", plan, "--partition", day)
    assert sorted(open_table(str(table)).sql("SELECT id FROM t")["id"].to_pylist()) == list(range(1, 60, 3))
    run("load", source, table)
    run("verify", table, "--source", source)
    loaded = Catalog.open(str(table)).snapshot.number
    for words in (("--partition", day), ()):
        run("load", source, table, *words)
    assert Catalog.open(str(table)).snapshot.number == loaded
    run("append", table, batch)
    run("append", table, batch)
    assert Catalog.open(str(table)).snapshot.number == loaded + 1

    catalog = Catalog.open(str(table))
    lists = read_sources(catalog.files, catalog.snapshot, catalog.partitions)
    assert set(lists) == {entry.name for entry in catalog.partitions}
    for files in lists.values():
        assert all(file.source.startswith((source, batch)) and file.size and file.modified for file in files)
        assert all(strip_scheme(file.path).startswith(strip_scheme(f"{tmp_path}/")) for file in files)

    both = pa.concat_tables([rows, more])
    found = open_table(str(table)).sql(f"SELECT {', '.join(SCHEMA.names)} FROM t").cast(SCHEMA)
    assert found.sort_by("id").to_pylist() == both.to_pylist()
    open_source(spark, source).unionByName(open_source(spark, batch)).createOrReplaceTempView("both_batches")
    for condition in FILTERS:
        answer = open_table(str(table)).sql(f"SELECT id FROM t WHERE {condition}")["id"].to_pylist()
        wanted = [row["id"] for row in spark.sql(f"SELECT id FROM both_batches WHERE {condition}").collect()]
        assert sorted(answer) == sorted(wanted), condition

    if name.startswith("orc"):
        capsys.readouterr()
        run("load", source, tmp_path / "local", "--plan", plan, "--executor", "local", code=BAD_USAGE)
        said = capsys.readouterr().err
        assert "can't be read without Spark" in said
        assert said.count("\n") == 1


@pytest.fixture
def rows(spark: SparkSession, tmp_path: Path) -> Path:
    """A folder of two files of ORC."""
    spark.createDataFrame(rows_from(0)).repartition(2).write.orc(str(tmp_path / "rows"))
    for file in (tmp_path / "rows").glob(".*.crc"):
        file.unlink()
    return tmp_path / "rows"


def refuse(spark: SparkSession, folder: Path) -> str:
    """Return the one sentence by which a source of ORC is refused, when it is opened or counted."""
    with pytest.raises(LayoutoptError) as caught:
        open_source(spark, f"orc:{folder}")
    assert isinstance(caught.value, SourceError | SchemaError)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_changed_file_is_loaded_once_more(spark: SparkSession, rows: Path, tmp_path: Path) -> None:
    source, table = f"orc:{rows}", tmp_path / "table"
    plan = plan_for(source, tmp_path)
    run("load", source, table, "--plan", plan)
    loaded = Catalog.open(str(table)).snapshot.number
    file = min(rows.glob("*.orc"))
    os.utime(file, (1, 1))
    run("load", source, table)  # the same rows
    assert Catalog.open(str(table)).snapshot.number == loaded
    shutil.copy(file, rows / "again.orc")
    run("load", source, table, code=AlreadyLoadedError.exit_code)
    run("load", source, table, "--replace")
    assert open_table(str(table)).rows == 60 + orc.ORCFile(str(file)).nrows


@pytest.mark.parametrize("kept", [0, 5, -30])
def test_a_truncated_file_is_refused(spark: SparkSession, rows: Path, kept: int) -> None:
    file = max(rows.glob("*.orc"))
    file.write_bytes(file.read_bytes()[:kept])
    assert "is truncated, damaged or of another format" in refuse(spark, rows)


def test_a_damaged_file_is_refused(
    spark: SparkSession, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, file = plan_for(f"orc:{rows}", tmp_path), max(rows.glob("*.orc"))
    content = file.read_bytes()
    file.write_bytes(content[:3] + b"\xff" * (len(content) // 2) + content[3 + len(content) // 2 :])
    capsys.readouterr()
    run("load", f"orc:{rows}", tmp_path / "table", "--plan", plan, code=BAD_USAGE)
    assert f"{file.name} is truncated, damaged" in capsys.readouterr().err
    assert not (tmp_path / "table" / "data").exists()


def test_files_of_both_formats_are_refused(
    spark: SparkSession, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(rows_from(0), rows / "z.parquet")
    assert "z.parquet is truncated, damaged or of another format" in refuse(spark, rows)
    with pytest.raises(SourceError, match="of another format"):
        open_source(spark, str(rows))


def test_nothing_there_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "has no file with columns" in refuse(spark, tmp_path / "empty")
    assert "does not exist" in refuse(spark, tmp_path / "nowhere")
    for name in ("empty", "nowhere"):
        with pytest.raises(SourceError, match=name):
            read_schema(f"orc:{tmp_path / name}")


def test_a_folder_that_spark_passes_over_is_refused(spark: SparkSession, rows: Path) -> None:
    shutil.copytree(rows, rows / "HIVE_UNION_SUBDIR_1")
    assert "Spark reads no file of the folder" in refuse(spark, rows)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"_col0": [1], "_col1": [2]}, "'_col0' by their places"),
        (
            {n: [1] for n in ("operation", "originalTransaction", "bucket", "rowId", "currentTransaction", "row")},
            "transactional table of Hive",
        ),
    ],
)
def test_files_whose_columns_mean_something_else_are_refused(
    spark: SparkSession, tmp_path: Path, columns: dict[str, Any], says: str
) -> None:
    (tmp_path / "rows").mkdir()
    orc.write_table(pa.table(columns), tmp_path / "rows" / "bucket_00000")
    assert says in refuse(spark, tmp_path / "rows")


def test_folders_of_replaced_rows_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Spark reads all below folders of partitions: those of Hive's changes, too."""
    for version in (1, 2):
        folder = tmp_path / "rows" / "day=1" / f"base_{version:07}"
        folder.mkdir(parents=True)
        orc.write_table(pa.table({"x": [1]}), folder / "000000_0")
    assert "transactional table of Hive" in refuse(spark, tmp_path / "rows")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("spark.sql.files.ignoreCorruptFiles", "true"),
        ("spark.sql.files.ignoreMissingFiles", "true"),
        ("spark.sql.orc.impl", "hive"),
        ("spark.sql.sources.useV1SourceList", ""),
        ("spark.sql.orc.mergeSchema", "false"),
    ],
)
def test_settings_of_the_session_leave_no_row_out(spark: SparkSession, rows: Path, setting: str, value: str) -> None:
    with under(spark, {setting: value}):
        found = open_source(spark, f"orc:{rows}")
        assert measure_content(found, "it").rows == 60
        assert sum(partition.rows for partition in source_partitions(found, f"orc:{rows}", "day")) == 60
        file = max(rows.glob("*.orc"))
        file.write_bytes(file.read_bytes()[:-30])
        refuse(spark, rows)
        file.unlink()
        with pytest.raises(LayoutoptError):
            measure_content(found, "it")


def test_columns_are_read_by_name_though_hadoop_says_by_place(spark: SparkSession, tmp_path: Path) -> None:
    context: Any = spark.sparkContext._jsc
    key = "orc.force.positional.evolution"
    context.hadoopConfiguration().set(key, "true")
    try:
        test_files_may_spell_and_lack_columns(spark, tmp_path)
    finally:
        context.hadoopConfiguration().unset(key)


def test_a_column_in_two_types_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Read as the type of one file, the numbers of the other would become NULL."""
    (tmp_path / "rows").mkdir()
    for name, type in (("a", pa.int32()), ("b", pa.int64())):
        orc.write_table(pa.table({"x": pa.array([1], type)}), tmp_path / "rows" / f"{name}.orc")
    assert "the column x as" in refuse(spark, tmp_path / "rows")


def test_files_may_spell_and_lack_columns(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    orc.write_table(pa.table({"Id": [1], "b": [2]}), tmp_path / "rows" / "a.orc")
    orc.write_table(pa.table({"c": [7], "id": [3]}), tmp_path / "rows" / "b.orc")
    found = open_source(spark, f"orc:{tmp_path / 'rows'}").selectExpr("id", "b", "c").collect()
    assert sorted(map(tuple, found)) == [(1, 2, None), (3, None, 7)]


def test_types_that_no_table_stores_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    source = f"orc:{tmp_path / 'rows'}"
    spark.sql("SELECT 1 AS id, INTERVAL '1' DAY AS wait").write.orc(str(tmp_path / "rows"))
    assert "'wait'" in refuse(spark, tmp_path / "rows")
    with pytest.raises(SchemaError, match=r"'wait'.* 'interval day' can't be stored"):
        read_schema(source)
    (tmp_path / "union").mkdir()
    children = [pa.array([1]), pa.array(["x"])]
    union = pa.UnionArray.from_dense(pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), children)
    orc.write_table(pa.table({"either": union}), tmp_path / "union" / "a.orc")
    assert "of a type that Spark does not read" in refuse(spark, tmp_path / "union")
    with pytest.raises(SchemaError, match=r"'either'.* can't be stored"):
        read_schema(f"orc:{tmp_path / 'union'}")


def test_padded_texts_are_refused_and_bounded_texts_stored(spark: SparkSession, tmp_path: Path) -> None:
    write_texts(spark, tmp_path / "char" / "a.orc", "struct<v:varchar(5),c:char(5)>")
    assert "'c' is char(5) to Spark" in refuse(spark, tmp_path / "char")
    write_texts(spark, tmp_path / "varchar" / "a.orc", "struct<v:varchar(5),c:varchar(5)>")
    found = open_source(spark, f"orc:{tmp_path / 'varchar'}")
    assert [tuple(row) for row in found.collect()] == [("x ", "x ")]
    assert {column.type for column in schema_of(found).columns} == {"string"}
    assert {column.type for column in read_schema(f"orc:{tmp_path / 'varchar'}").columns} == {"string"}


def write_texts(spark: SparkSession, file: Path, schema: str) -> None:
    """Write one row of texts by ORC's own writer, since neither Spark nor Arrow writes these types."""
    from py4j.java_gateway import get_field

    java: Any = spark._jvm
    context: Any = spark.sparkContext._jsc
    type = java.org.apache.orc.TypeDescription.fromString(schema)
    options = java.org.apache.orc.OrcFile.writerOptions(context.hadoopConfiguration()).setSchema(type)
    writer = java.org.apache.orc.OrcFile.createWriter(java.org.apache.hadoop.fs.Path(str(file)), options)
    batch = type.createRowBatch()
    for column in get_field(batch, "cols"):
        column.setVal(0, b"x ")
    batch.getClass().getField("size").setInt(batch, 1)
    writer.addRowBatch(batch)
    writer.close()


@needs_spark("4.2", "ORC's timestamps with a zone")
def test_types_that_say_their_zone(spark: SparkSession, tmp_path: Path) -> None:
    """A timestamp of ORC is an instant to Spark, with a zone and without, unless Spark wrote it as another type."""
    moment = dt.datetime(2026, 1, 1, 12, 0, 0, 5)
    (tmp_path / "rows").mkdir()
    types = {"zoned": pa.timestamp("us", "UTC"), "plain": pa.timestamp("us")}
    orc.write_table(pa.table({n: pa.array([moment], t) for n, t in types.items()}), tmp_path / "rows" / "a.orc")
    spark.sql("SELECT TIMESTAMP_NTZ'2026-01-01 12:00:00.000005' AS local").write.orc(str(tmp_path / "local"))
    for name, type in (("rows", "timestamp"), ("local", "timestamp_ntz")):
        found = open_source(spark, f"orc:{tmp_path / name}")
        assert {column.type for column in schema_of(found).columns} == {type}
        assert schema_of(found).columns == read_schema(f"orc:{tmp_path / name}").columns
    assert open_source(spark, f"orc:{tmp_path / 'local'}").toArrow()["local"].to_pylist() == [moment]
    zoned = open_source(spark, f"orc:{tmp_path / 'rows'}").selectExpr("unix_micros(zoned) AS at").toArrow()["at"][0]
    assert zoned.as_py() == int(moment.replace(tzinfo=dt.UTC).timestamp()) * 1_000_000 + 5


@pytest.mark.parametrize(("verb", "words"), [("advise", ["log.sql"]), ("index", ["--into", "indexes"])])
def test_verbs_that_read_footers_refuse_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str, words: list[str]
) -> None:
    run(verb, f"orc:{tmp_path}", *words, code=BAD_USAGE)
    assert f"`{verb}` reads the footers of Parquet files, which 'orc:{tmp_path}' has not" in capsys.readouterr().err
