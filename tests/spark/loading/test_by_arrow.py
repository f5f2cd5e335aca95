"""Loads whose tasks read a source's files by Arrow: the same table as by Spark, and Spark where that is not sure."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812

from layoutopt.catalog.commit import ensure_table_root
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import NeedsSparkError, SourceError
from layoutopt.events import EventLog, Stages
from layoutopt.external.external_tables import read_schema
from layoutopt.inspect.verify import verify
from layoutopt.loading.load import LoadBasis
from layoutopt.loading.load import load as load_rows
from layoutopt.loading.local_source import open_local
from layoutopt.model.feature import FeatureSet, SessionSettings
from layoutopt.model.layout import ByVectors, Layout, Plan, Scheme
from layoutopt.scan.table import Table, open_table
from layoutopt.sources import source as source_module
from layoutopt.sources.shuffle import CutJob, Splits, assign_splits
from layoutopt.sources.source import Source
from layoutopt.sources.split import FileSplit
from layoutopt.spark.core.source import open_source, schema_of
from layoutopt.spark.core.workers import SparkTasks
from layoutopt.spark.loading import load as loading
from tests.effort import long_too
from tests.external.tables import delta_table, hinted, iceberg_table
from tests.scan.builder import feature_of
from tests.spark.settings import counting_jobs, under
from tests.spark.tables import document, every_type, is_value, plan_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("uncompiled")]

NESTED = ("list", "inner", "tags", "deep")
FEW = 90


def flat_rows(spark: SparkSession, rows: int = 500) -> DataFrame:
    """Every type of which Arrow has checksums, in rows whose order is known."""
    return every_type(spark, rows).drop(*NESTED)


def few_rows(spark: SparkSession) -> DataFrame:
    """For what has nothing to do with types."""
    return flat_rows(spark, FEW).select("year", "n", "tiny", "small", "text", "bin")


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return flat_rows(spark)


@pytest.fixture(scope="module")
def source(rows: DataFrame, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The rows in three files."""
    return written(rows, tmp_path_factory.mktemp("flat") / "source")


@pytest.fixture(scope="module")
def one_file(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Few rows in one file."""
    return written(few_rows(spark), tmp_path_factory.mktemp("flat") / "source", files=1)


@pytest.fixture(scope="module")
def another_file(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """As many rows, of which a column has other values."""
    other = few_rows(spark).withColumn("small", F.col("small") + F.lit(1).cast("smallint"))
    (path,) = Path(written(other, tmp_path_factory.mktemp("flat") / "source", files=1)).glob("*.parquet")
    return str(path)


@pytest.fixture(scope="module")
def in_folders(rows: DataFrame, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The rows with a folder a year."""
    return written(rows, tmp_path_factory.mktemp("flat") / "source", "year")


def written(rows: DataFrame, path: Path, *by: str, files: int = 3) -> str:
    """The rows as files of Parquet with several row groups."""
    kept = rows.repartitionByRange(files, "n") if files > 1 else rows.coalesce(1)
    kept.write.partitionBy(*by).option("parquet.block.size", "4096").parquet(str(path))
    return str(path)


def a_plan(rows: DataFrame, partition_by: str | None, segment_rows: int = 120, several: bool = False) -> Plan:
    schema = schema_of(rows)
    features = document(schema, [is_value(schema, "tiny", "<", 0), is_value(schema, "text", "=", "a")])
    names, some = schema.names, schema.names[:4]
    groups = [some, tuple(name for name in names if name not in some)] if several else [names]
    scheme = Scheme(tuple(Layout(group, (0, 1), group, ByVectors("ward")) for group in groups))
    return plan_of(features, partition_by=partition_by, scheme=scheme, segment_rows=segment_rows)


@dataclass
class Loaded:
    """A table that was loaded, and which reader each try took."""

    table: Table
    read_by: list[str]

    def contents(self) -> list[tuple[Any, ...]]:
        """Every block in order: where it belongs, its union vector, and its rows as they lie in the file."""
        found: list[tuple[Any, ...]] = []
        for entry in self.table.catalog.partitions:
            blocks = self.table.catalog.blocks(entry).block_index.to_pylist()
            for block in sorted(blocks, key=lambda block: (block["segment"], block["layout"], block["block"])):
                file = pq.ParquetFile(self.table.catalog.data.full_path(block["file"]))
                rows = file.read_row_group(block["row_group"]).drop_columns(["_block"])
                place = entry.key, block["segment"], block["layout"], block["words"]
                found.append((*place, rows.schema, rows.cast(_comparable(rows.schema)).to_pylist()))
        return found

    def rows(self) -> dict[tuple[str, int], list[str]]:
        """All rows of each partition and layout, in no order."""
        found: dict[tuple[str, int], list[str]] = {}
        for key, _, layout, _, _, rows in self.contents():
            values = [{name: value for name, value in row.items() if name != "_tid"} for row in rows]
            found.setdefault((key, layout), []).extend(map(str, values))
        return {place: sorted(rows) for place, rows in found.items()}


def _comparable(schema: pa.Schema) -> pa.Schema:
    """Floats as text: NaN equals itself there, and zero differs from minus zero."""
    return pa.schema([f.with_type(pa.string()) if pa.types.is_floating(f.type) else f for f in schema])


def refuse(*_: object, **__: object) -> Source:
    raise NeedsSparkError("a test lets Spark read everything")


def loaded(
    spark: SparkSession, source: DataFrame | str, path: Path, plan: Plan, *, by_arrow: bool = True, **more: Any
) -> Loaded:
    """Load by Arrow where that can read the source."""
    events = StringIO()
    with pytest.MonkeyPatch.context() as patch:
        if not by_arrow:
            patch.setattr(loading, "open_in_tasks", refuse)
        loading.load(spark, source, path, plan, stages=Stages(log=EventLog(events)), **more)
    stages = [json.loads(line) for line in events.getvalue().splitlines()]
    return Loaded(open_table(str(path)), [stage["read_by"] for stage in stages if stage.get("stage") == "write"])


def check_both(spark: SparkSession, source: str, tmp_path: Path, plan: Plan, **more: Any) -> Loaded:
    """Load by Spark, by Arrow in Spark's tasks, and without Spark, and see that nothing differs."""
    of_spark = loaded(spark, source, tmp_path / "by-spark", plan, by_arrow=False, **more)
    of_arrow = loaded(spark, source, tmp_path / "by-arrow", plan, **more)
    assert (of_spark.read_by, of_arrow.read_by) == (["spark"], ["arrow"])
    # To Arrow, files come in the order of their names, and to Spark of their sizes: segments of several files differ.
    has_one_file = len(list(Path(source.rpartition(":")[2]).rglob("*.parquet"))) == 1
    assert not has_one_file or of_arrow.contents() == of_spark.contents()
    assert of_arrow.rows() == of_spark.rows()
    assert verify(of_arrow.table).ok
    if not more and plan.settings == SessionSettings():
        local = loaded_locally(source, tmp_path / "local", plan)
        assert local.contents() == of_arrow.contents()
        assert verify(local.table).ok
    return of_arrow


def loaded_locally(source: str, path: Path, plan: Plan) -> Loaded:
    """Load without Spark."""
    base = ensure_table_root(TableFiles(str(path)))
    load_rows(open_local(source, plan), str(path), plan, LoadBasis(snapshot=base, source=source), Stages())
    return Loaded(open_table(str(path)), ["arrow"])


@pytest.mark.parametrize(
    ("partition_by", "several"),
    [("year", False), *long_too((None, True), ("text", False), ("year", True), ("day", False))],
)
@pytest.mark.parametrize("files", [1, *long_too(3)])
def test_tables_are_the_same_as_by_spark(
    spark: SparkSession, rows: DataFrame, tmp_path: Path, partition_by: str | None, several: bool, files: int
) -> None:
    source = written(rows, tmp_path / "all", files=files)
    few = {"text": "text IS NULL OR text IN ('a', '', '😀')", "day": "day IS NULL OR day < '1994-01-05'"}
    if partition_by in few:
        source = written(rows.where(few[partition_by]), tmp_path / "source")
    table = check_both(spark, source, tmp_path, a_plan(rows, partition_by, several=several)).table
    segments = {len(set(table.catalog.blocks(entry).segment)) for entry in table.catalog.partitions}
    assert max(segments) > 1 or partition_by in ("day", "text")


@pytest.mark.parametrize(
    ("format", "partition_by"), [("delta", "p"), *long_too(("delta", None), ("iceberg", "p"), ("iceberg", None))]
)
def test_tables_of_other_formats_are_read_by_arrow(
    spark: SparkSession, tmp_path: Path, format: str, partition_by: str | None
) -> None:
    """Renamed columns, values of metadata and deleted rows: Spark, which sums them, agrees."""
    root = tmp_path / "rows"
    source = f"delta:{delta_table(root, nested=False)}" if format == "delta" else hinted(iceberg_table(root))
    schema = read_schema(source)
    plan = plan_of(document(schema, [is_value(schema, "id", "<", 4)]), partition_by=partition_by)
    check_both(spark, source, tmp_path, plan)
    every = set(open_source(spark, source).inputFiles())
    if partition_by is not None and format == "delta":
        assert len(every) == 2
        some = loaded(spark, source, tmp_path / "some", plan, partitions=["p=a b"])
        assert (some.read_by, some.table.rows) == (["arrow"], 3)


@pytest.mark.parametrize("by", ["year", *long_too("text", "day")])
def test_partitions_that_are_folders_are_read_too(
    spark: SparkSession, rows: DataFrame, tmp_path: Path, by: str
) -> None:
    rows = rows.where("text IS NULL OR text = 'a'").where("day IS NULL OR day < '1994-01-05'")
    source = written(rows, tmp_path / "source", by)
    opened = open_source(spark, source)
    check_both(spark, source, tmp_path, a_plan(opened, by))


@pytest.mark.parametrize("by", ["year", *long_too(None)])
def test_nested_columns_are_loaded_without_spark(spark: SparkSession, tmp_path: Path, by: str | None) -> None:
    rows = every_type(spark, 120)
    source = written(rows, tmp_path / "source")
    plan = a_plan(rows, by)
    of_spark = loaded(spark, source, tmp_path / "by-spark", plan, by_arrow=False)
    local = loaded_locally(source, tmp_path / "local", plan)
    assert local.rows() == of_spark.rows()
    assert verify(local.table).ok
    assert {"list", "inner", "tags", "deep"} <= set(plan.schema.names)


def write_foreign(folder: Path, **columns: pa.Array) -> str:
    """Write two files of other writers' names and types; the second lacks a column of the first and adds one."""
    n = FEW
    moments = pa.array([dt.datetime(1700, 1, 1, 0, 0, 0, i) + dt.timedelta(days=2500 * i) for i in range(n)])
    common = {
        "n": pa.array(range(n), pa.int64()),
        "tiny": pa.array([i % 5 - 2 for i in range(n)], pa.int8()),
        "text": pa.array([None, "a", "", "b", "c"] * (n // 5)),
        "moment": moments.cast(pa.timestamp("us", "UTC")),
    }
    folder.mkdir()
    for name, more in (("000000_0", {"gone": common["n"]}), ("a.parq", {"added": common["text"]})):
        pq.write_table(pa.table({**common, **columns, **more}), folder / name, use_deprecated_int96_timestamps=True)
    return str(folder)


@pytest.mark.parametrize("partition_by", [*long_too(None), "tiny"])
def test_files_of_other_writers_are_read_alike(spark: SparkSession, tmp_path: Path, partition_by: str | None) -> None:
    source = write_foreign(
        tmp_path / "source",
        nothing=pa.nulls(FEW),
        wait=pa.array(range(FEW), pa.duration("us")),
        json=pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}", None, "[1]"] * (FEW // 3))),
        flag=pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, None] * (FEW // 3), pa.int8())),
        few=pa.array(["a", None, "b"] * (FEW // 3)).dictionary_encode(),
        wide=pa.array([7, None, 8] * (FEW // 3), pa.decimal256(20, 2)),
    )
    rows = open_source(spark, source)
    known = {column.name: column.type for column in read_schema(source).columns}
    assert known == {column.name: column.type for column in schema_of(rows).columns}
    check_both(spark, source, tmp_path, a_plan(rows, partition_by))


def test_nested_columns_of_other_writers_are_read_alike(spark: SparkSession, tmp_path: Path) -> None:
    moments = [dt.datetime(1899, 1, 1) + dt.timedelta(hours=i) for i in range(FEW)]
    source = write_foreign(
        tmp_path / "source",
        inner=pa.array([{"at": moment, "no": None} for moment in moments]),
        moments=pa.array([[moment, None] for moment in moments]),
        none=pa.array([[None]] * FEW),
    )
    rows = open_source(spark, source)
    assert {c.name: c.type for c in read_schema(source).columns} == {c.name: c.type for c in schema_of(rows).columns}
    plan = a_plan(rows, None)
    of_spark = loaded(spark, source, tmp_path / "by-spark", plan, by_arrow=False)
    assert loaded_locally(source, tmp_path / "local", plan).rows() == of_spark.rows()


@pytest.mark.parametrize(
    ("kept", "partition_by", "by_segment"),
    [("in_folders", "year", True), *long_too(("source", None, True), ("source", "year", False))],
)
def test_tasks_read_what_they_write_where_files_are_of_few_segments(
    spark: SparkSession,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kept: str,
    partition_by: str | None,
    by_segment: bool,
) -> None:
    source = request.getfixturevalue(kept)
    plan = a_plan(open_source(spark, source), partition_by)
    with pytest.MonkeyPatch.context() as patch:
        shuffled: list[Sequence[Splits]] = []
        shuffle = SparkTasks.shuffle

        def noted(executor: SparkTasks, cut: CutJob, tasks: Sequence[Splits], *more: Any) -> Sequence[Any]:
            shuffled.append(tasks)
            return shuffle(executor, cut, tasks, *more)

        patch.setattr(SparkTasks, "shuffle", noted)
        assert loaded(spark, source, tmp_path / "table", plan).read_by == ["arrow"]
    assert [len(tasks) for tasks in shuffled] == ([] if by_segment else [1])


def test_every_pass_over_rows_of_a_load_is_a_job_of_spark(
    spark: SparkSession, rows: DataFrame, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_here(*_: object) -> None:
        raise AssertionError("the driver reads rows")

    monkeypatch.setattr(FileSplit, "read_rows", refuse_here)
    monkeypatch.setattr(source_module, "read_by_duckdb", refuse_here)
    with counting_jobs(spark) as jobs:
        assert loaded(spark, source, tmp_path / "table", a_plan(rows, "year")).read_by == ["arrow"]
    # Partitions and chunks of these are counted, segments are written, and a second reader sums the source.
    assert len(jobs) >= 4


@pytest.mark.long
@pytest.mark.parametrize("partition_by", [None, *long_too("year")])
def test_files_may_be_read_in_splits(
    spark: SparkSession, rows: DataFrame, source: str, tmp_path: Path, partition_by: str | None
) -> None:
    with under(spark, {"spark.sql.files.maxPartitionBytes": "4000"}):
        check_both(spark, source, tmp_path, a_plan(rows, partition_by))


@pytest.mark.long
@pytest.mark.parametrize("partition_by", ["year", *long_too(None)])
def test_a_session_may_have_another_zone(
    spark: SparkSession, rows: DataFrame, source: str, tmp_path: Path, partition_by: str | None
) -> None:
    zone = "America/New_York"
    plan = a_plan(rows, partition_by)
    settings = replace(plan.settings, time_zone=zone)
    plan = replace(plan, features=replace(plan.features, settings=settings), settings=settings)
    with under(spark, {"spark.sql.session.timeZone": zone}):
        check_both(spark, source, tmp_path, plan)


@pytest.mark.parametrize("key", ["1995", *long_too("__null__")])
def test_one_partition_of_some_rows_of_files_is_read(
    spark: SparkSession, source: str, tmp_path: Path, key: str
) -> None:
    plan = a_plan(open_source(spark, source), "year")
    table = check_both(spark, source, tmp_path, plan, partitions=[f"year={key}"]).table
    assert [entry.key for entry in table.catalog.partitions] == [key]


@pytest.mark.long
def test_one_partition_of_folders_is_read_by_its_files_alone(
    spark: SparkSession, in_folders: str, tmp_path: Path
) -> None:
    plan = a_plan(open_source(spark, in_folders), "year")
    check_both(spark, in_folders, tmp_path, plan, partitions=["year=1995"])


def renamed(rows: DataFrame) -> DataFrame:
    return rows.withColumnRenamed("tiny", "TINY")


@pytest.mark.long
@pytest.mark.parametrize(
    ("why", "source_of"),
    [
        ("a plan spells a column otherwise", lambda rows, path: written(renamed(rows), path)),
        ("files have other columns", lambda rows, path: _files_of_two_schemas(rows, path)),
        *long_too(
            ("rows are computed", lambda rows, path: rows),
            ("a file's name is no plain one", lambda rows, path: written(rows, path.with_name("a b"))),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_surely_read_alike_is_left_to_spark(
    spark: SparkSession,
    tmp_path: Path,
    why: str,
    source_of: Callable[[DataFrame, Path], DataFrame | str],
) -> None:
    rows = few_rows(spark)
    source = source_of(rows, tmp_path / "source")
    plan = a_plan(rows, "year")
    table = loaded(spark, source, tmp_path / "table", plan)
    assert table.read_by == ["spark"], why
    assert sum(entry.rows for entry in table.table.catalog.partitions) == FEW


def _files_of_two_schemas(rows: DataFrame, path: Path) -> str:
    written(rows.where("n < 0"), path / "one")
    rows.where("n >= 0 OR n IS NULL").drop("bin").write.parquet(str(path / "two"))
    for file in (path / "two").glob("*.parquet"):
        file.rename(path / file.name)
    for file in (path / "one").glob("*.parquet"):
        file.rename(path / file.name)
    return str(path)


@pytest.mark.long
def test_features_of_functions_are_found_in_the_tasks(spark: SparkSession, tmp_path: Path) -> None:
    rows = few_rows(spark)
    source = written(rows, tmp_path / "source")
    check_both(
        spark, source, tmp_path, with_features(a_plan(rows, "year"), "text LIKE '%alue%'", "left(text, 1) = 'v'")
    )


def test_features_that_only_spark_knows_are_left_to_it(spark: SparkSession, tmp_path: Path) -> None:
    rows = few_rows(spark)
    source = written(rows, tmp_path / "source")
    plan = with_features(a_plan(rows, None), "text LIKE '%alue%'", "cast(cast(n AS double) AS string) = '1.0'")
    assert loaded(spark, source, tmp_path / "table", plan).read_by == ["spark"]


def with_features(plan: Plan, *conditions: str) -> Plan:
    return replace(plan, features=FeatureSet(tuple(feature_of(condition, plan.schema) for condition in conditions)))


@pytest.mark.parametrize(
    ("change", "partition_by"),
    [
        ("fewer rows", None),
        *long_too(*((change, by) for change in ("other counts", "other values") for by in (None, "year"))),
        *long_too(("fewer rows", "year")),
    ],
)
def test_what_arrow_reads_otherwise_than_spark_is_read_by_spark(
    spark: SparkSession,
    one_file: str,
    another_file: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
    partition_by: str | None,
) -> None:
    """The comparison with a second reader is what makes reading by Arrow safe; nothing of the first try is left."""

    def changed(split: FileSplit) -> FileSplit:
        if change == "other counts":
            return replace(split, read=replace(split.read, rows=(split.read.rows[0] - 1, *split.read.rows[1:])))
        return replace(split, file=replace(split.file, path=another_file))

    def assign(*args: Any) -> Any:
        tasks: Any = assign_splits(*args)
        if args[0][0].spool is not None:
            return tasks
        if change == "fewer rows":
            return ((), *tasks[1:])
        return tuple(tuple(changed(split) for split in splits) for splits in tasks)

    monkeypatch.setattr(source_module, "assign_splits", assign)
    monkeypatch.setattr(source_module, "reads_little_twice", lambda ranges, tasks: True)
    plan = a_plan(open_source(spark, one_file), partition_by, segment_rows=40)
    table = loaded(spark, one_file, tmp_path / "table", plan)
    assert table.read_by == ["arrow", "spark"]
    assert sum(entry.rows for entry in table.table.catalog.partitions) == FEW
    named = {path for entry in table.table.catalog.partitions for path in table.table.catalog.blocks(entry).files}
    assert len(list((tmp_path / "table" / "data").rglob("*.parquet"))) == len(named)
    assert verify(table.table).ok


def test_a_damaged_file_is_named(spark: SparkSession, rows: DataFrame, source: str, tmp_path: Path) -> None:
    copy = shutil.copytree(source, tmp_path / "source")
    plan = a_plan(rows, None)
    damaged = next(copy.glob("*.parquet"))
    content = bytearray(damaged.read_bytes())
    content[4:400] = bytes(396)
    damaged.write_bytes(content)
    with pytest.raises(SourceError, match=damaged.name):
        loaded(spark, str(copy), tmp_path / "table", plan)
