"""Appends without Spark: what is read or left to Spark; every answer, every proof, every crash."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.catalog.commit import CRASH_POINTS, commit_load
from layoutopt.catalog.table import Catalog
from layoutopt.errors import ContentMismatchError, NeedsSparkError, SettingError, SourceError, TableError
from layoutopt.events import Stages
from layoutopt.inspect.verify import verify
from layoutopt.loading import append as module
from layoutopt.loading import partition_rows
from layoutopt.loading.append import AppendReport, Join, append_few_rows, append_locally
from layoutopt.loading.local_source import check_plan, check_settings, open_local
from layoutopt.model.feature import SessionSettings
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import Call, Col
from layoutopt.model.requests import AppendRequest
from layoutopt.model.schema import Column, Schema
from layoutopt.scan.table import open_table
from layoutopt.sources.parquet_files import check_columns
from layoutopt.sources.source import Source
from layoutopt.writer.task import write_and_measure
from layoutopt.writer.task_result import LoadReport, TaskResult
from tests.scan.builder import build, building
from tests.scan.layouts import GROUPS, OVERLAPPING
from tests.scan.queries import FEW_QUERIES
from tests.scan.tables import ARROW, CONDITIONS, SCHEMA, expected, same, some_rows


def no_spark(path: str, keys: Collection[str], watch: Stages) -> LoadReport | None:
    raise AssertionError("these are few rows")


class Table:
    """A table of 200 rows of three years, and the rows that it has to have."""

    def __init__(self, root: Path, layouts: Any = None, by: str | None = None) -> None:
        self.root = root
        self.path = str(root / "table")
        self.all_rows = some_rows(1000).sort_by("id")
        self.rows = 200
        made = building(SCHEMA, CONDITIONS, layouts=layouts, partition_by=by)
        build(root / "table", self.all_rows.slice(0, self.rows), made)

    def source(self, count: int) -> str:
        """The next rows, in two files."""
        folder = self.root / f"late-{self.rows}"
        folder.mkdir()
        pq.write_table(self.all_rows.slice(self.rows, count // 2), folder / "a.parquet")
        pq.write_table(self.all_rows.slice(self.rows + count // 2, count - count // 2), folder / "b.parquet")
        return str(folder)

    def append(self, count: int = 30, join: Join = no_spark, **given: Any) -> AppendReport:
        """Append the next rows."""
        settings = AppendRequest(table_path=self.path, source=self.source(count), **given)
        report = append_few_rows(settings, join)
        self.rows += count
        return report

    def check(self) -> None:
        table = open_table(self.path)
        assert table.rows == self.rows
        for sql in FEW_QUERIES:
            assert same(table.sql(sql).to_pylist(), expected(sql, self.all_rows.slice(0, self.rows))), sql
        assert verify(table).ok

    @property
    def files(self) -> set[Path]:
        return {path for path in (self.root / "table").rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("layouts", "by"), [(None, None), (GROUPS, "year"), (OVERLAPPING, None)], ids=["one", "groups", "copies"]
)
def test_rows_come_to_their_partitions_once_and_are_joined(layouts: Any, by: str | None, tmp_path: Path) -> None:
    table = Table(tmp_path, layouts, by)
    for number in range(4):
        done = table.append()
        assert done.load is not None
        assert done.load.rows == 30
        retry = AppendRequest(table_path=table.path, source=str(tmp_path / f"late-{table.rows - 30}"))
        assert append_few_rows(retry, no_spark).load is None
        assert (done.joined is not None) == (number == 3)
        assert done.not_joined is None
    table.check()
    entries = Catalog.open(table.path).snapshot.by_key
    assert {len(of_key) for of_key in entries.values()} == {2}


def test_what_is_joined_is_what_the_entries_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(tmp_path, GROUPS)
    for _ in range(3):
        table.append()
    honest = partition_rows._read_live_rows
    monkeypatch.setattr(partition_rows, "_read_live_rows", lambda *of: honest(*of).slice(1))
    done = table.append()
    assert done.load is not None
    assert "nothing was committed" in str(done.not_joined)
    table.check()


@pytest.mark.parametrize("damage", ["rows", "values", "places", "disk"])
def test_rows_that_are_not_the_sources_are_not_committed_and_leave_nothing(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(tmp_path, GROUPS)
    before, honest = table.files, write_and_measure

    def wrong(job: Any, segment: Any) -> TaskResult:
        rows = segment.table
        if damage == "disk":
            raise OSError(28, "No space left on device")
        if damage == "rows":
            return honest(job, replace(segment, table=rows.slice(1), words=segment.words[1:]))
        if damage == "values":
            return honest(job, replace(segment, table=rows.set_column(0, "id", pa.array([7] * len(rows), pa.int32()))))
        answer = honest(job, segment)
        return replace(answer, tid_sums=[[None if s is None else s + 1 for s in sums] for sums in answer.tid_sums])

    monkeypatch.setattr("layoutopt.writer.task.write_and_measure", wrong)
    with pytest.raises(
        TableError if damage == "disk" else ContentMismatchError,
        match="No space left on device.*nothing was committed" if damage == "disk" else "nothing was committed",
    ):
        table.append()
    assert table.files == before


@pytest.mark.parametrize("point", CRASH_POINTS)
def test_a_crash_leaves_the_table_as_it_was_or_with_all_rows(
    point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(tmp_path)

    class KilledError(BaseException):
        """Stands for kill -9."""

    def die(reached: str) -> None:
        if reached == point:
            raise KilledError

    settings = AppendRequest(table_path=table.path, source=table.source(30))
    dying = lambda files, load, at: commit_load(files, load, die)  # noqa: E731
    monkeypatch.setattr("layoutopt.loading.load.commit_load", dying)
    with pytest.raises(KilledError):
        append_few_rows(settings, no_spark)
    monkeypatch.undo()
    is_done = point == "snapshot-created"
    assert open_table(table.path).rows == table.rows + 30 * is_done
    assert (append_few_rows(settings, no_spark).load is None) == is_done
    table.rows += 30
    table.check()


@pytest.mark.parametrize(("bound", "value"), [("MOST_ROWS", 40), ("MOST_BYTES", 3_000)])
def test_what_is_too_much_to_join_is_joined_by_who_can(
    bound: str, value: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(tmp_path)
    asked: list[tuple[str, ...]] = []

    def join_many(path: str, keys: Collection[str], watch: Stages) -> LoadReport | None:
        asked.append(tuple(keys))
        if len(asked) == 2:
            raise RuntimeError("Java gateway process exited")
        return None

    monkeypatch.setattr(module, bound, value)  # of the 30 rows of a source less, of 120 more
    for _ in range(4):
        assert table.append(join=join_many).not_joined is None
    assert asked == [("all",)]
    table.append(keep_apart=True)
    assert len(asked) == 1
    assert "Java" in str(table.append(join=join_many).not_joined)  # which is no failure of the append
    table.check()


def test_tables_that_need_spark_are_left_to_it() -> None:
    plan = building(SCHEMA, CONDITIONS, partition_by="year").plan
    reversed_kind = IndexSpec(Call("reverse", (Col("kind", "string"),), "string"), "value-list")
    with pytest.raises(NeedsSparkError, match="an index of an expression"):
        check_plan(replace(plan, indexes=(reversed_kind,)))
    there = SessionSettings(time_zone="Europe/Berlin")
    with pytest.raises(NeedsSparkError, match=r"with time zone Europe/Berlin, ANSI mode on$"):
        check_settings(replace(plan, settings=there, features=replace(plan.features, settings=there)))


OLD = Schema((Column("p", "int"), Column("id", "int")))
NEW = Schema((*OLD.columns, Column("x", "string")))


def numbered(p: int, first: int, n: int, x: bool = False) -> pa.Table:
    columns = {"p": pa.array([p] * n, pa.int32()), "id": pa.array(range(first, first + n), pa.int32())}
    return pa.table(columns | ({"x": [f"x{i}" for i in range(n)]} if x else {}))


def test_appends_go_on_by_the_newest_plan_where_an_older_one_was_loaded_since(tmp_path: Path) -> None:
    old, new = (building(schema, ("id < 5",), partition_by="p") for schema in (OLD, NEW))
    root = tmp_path / "t"
    build(root, numbered(1, 0, 100), old, "0-1")
    build(root, numbered(2, 100, 100, x=True), new, "0-2", first=1000)
    build(root, numbered(2, 200, 20, x=True), new, "0-3", "append", first=2000)
    build(root, numbered(1, 0, 100), old, "0-4", first=3000)
    asked = []
    for number in range(3):
        source = tmp_path / f"{number}.parquet"
        pq.write_table(numbered(2, 300 + 20 * number, 20, x=True), source)
        append_few_rows(AppendRequest(table_path=str(root), source=str(source)), lambda *of: asked.append(of))
    assert not asked  # joined without Spark, by one plan
    found = open_table(str(root)).sql("SELECT count(*) AS n, count(x) AS x FROM t").to_pylist()
    assert found == [{"n": 280, "x": 180}]


def opened(source: object, by: str | None = "year", schema: Schema = SCHEMA, most_rows: int | None = None) -> Source:
    return open_local(str(source), building(schema, (), partition_by=by).plan, most_rows=most_rows)


def test_an_empty_text_names_a_partition(tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": ["b", "", None, "a"]}), tmp_path / "a.parquet")
    partitions = opened(tmp_path, "k", Schema((Column("k", "string"),))).partitions
    assert [partition.value for partition in partitions] == [None, "", "a", "b"]


def write(path: Path, rows: pa.Table, **how: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path, **how)
    return path


def test_partitions_have_the_files_with_their_rows(tmp_path: Path) -> None:
    first, second = some_rows(30, 1), some_rows(20, 2).slice(0, 7)
    write(tmp_path / "s" / "b.parquet", first.select(list(reversed(first.column_names))), row_group_size=4)
    write(tmp_path / "s" / "a.parquet", second)
    for hidden in ("_SUCCESS", ".b.parquet.crc"):
        (tmp_path / "s" / hidden).write_text("x")
    years = {name: rows["year"].to_pylist() for name, rows in (("a", second), ("b", first))}
    partitions = opened(tmp_path / "s").partitions
    assert sum(partition.rows for partition in partitions) == 37
    for partition in partitions:
        assert partition.rows == sum(values.count(partition.value) for values in years.values())
        names = [name for name, values in years.items() if partition.value in values]
        assert [file.uri for file in partition.files] == [f"file:{tmp_path}/s/{name}.parquet" for name in names]
    days = [partition.value for partition in opened(tmp_path / "s" / "a.parquet", "day").partitions]
    assert days == sorted(days, key=lambda day: -1 if day is None else int(str(day)))
    assert [partition.rows for partition in opened(tmp_path / "s", None).partitions] == [37]


def other(name: str, type: pa.DataType) -> Callable[[Path], Path]:
    """Writes rows of which a column has another type."""

    def make(folder: Path) -> Path:
        rows = some_rows(5)
        values = pa.nulls(5, type)
        return write(folder / "a.parquet", rows.set_column(rows.column_names.index(name), name, values))

    return make


def named(name: str) -> Callable[[Path], Path]:
    return lambda folder: write(folder / name, some_rows(5))


def said(key: str, value: str) -> Callable[[Path], Path]:
    """Writes rows with something of Spark's in the footer."""
    return lambda folder: write(folder / "a.parquet", some_rows(5).replace_schema_metadata({key: value}))


REFUSED: dict[str, Callable[[Path], Path]] = {
    "has no files": lambda folder: folder.mkdir() or folder,  # type: ignore[func-returns-value]
    "folders are named after 'day' of type date": named("day=1994-01-01/a.parquet"),
    "footer of .* can't be read": lambda folder: _text(folder / "a.parquet"),
    "no file has the column 'kind'": lambda folder: write(folder / "a.parquet", some_rows(5).drop_columns(["kind"])),
    "columns than": other("id", pa.int64()),
    "no file has the column": lambda folder: write(
        folder / "a.parquet", some_rows(5).rename_columns([name.upper() for name in ARROW.names])
    ),
    "other columns than": other("seen", pa.timestamp("ns")),
    "rules": said("org.apache.spark.legacyDateTime", ""),
    "rules of its own": said("org.apache.spark.sql.parquet.row.metadata", "__CHAR_VARCHAR_TYPE_STRING"),
    "reads by rules": said("org.apache.spark.version", "2.4.8"),
}


def _text(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("PAR1, or so")
    return path


@pytest.mark.parametrize("why", REFUSED)
def test_what_spark_might_read_otherwise_is_left_to_it(why: str, tmp_path: Path) -> None:
    REFUSED[why](tmp_path / "s")
    with pytest.raises(NeedsSparkError, match=why):
        opened(tmp_path / "s")


@pytest.mark.parametrize("source", ["s3a://bucket/a.parquet", "orc:/data/events"])
def test_what_is_no_path_of_this_machine_is_left_to_spark(source: str) -> None:
    with pytest.raises(NeedsSparkError, match="no path of Parquet of this machine"):
        opened(source)


def test_with_hadoops_configuration_a_path_is_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(NeedsSparkError, match="is not surely a path of this machine"):
        opened(tmp_path, None)


@pytest.mark.parametrize(("bound", "value"), [("MOST_ROWS", 29), ("MOST_PARTITIONS", 1)])
def test_what_is_not_few_is_left_to_spark(
    bound: str, value: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, bound, value)
    with pytest.raises(NeedsSparkError, match=f"more than {value} "):
        Table(tmp_path, by="year").append(30)


def test_many_rows_are_appended_without_spark_where_that_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(tmp_path, GROUPS, "year")
    monkeypatch.setattr(module, "MOST_ROWS", 40)
    monkeypatch.setattr(module, "MOST_PARTITIONS", 1)
    for _ in range(4):
        done = append_locally(AppendRequest(table_path=table.path, source=table.source(60)))
        table.rows += 60
        assert (done.joined, done.not_joined) == (None, None)  # there are too many rows to join
    table.check()
    write(tmp_path / "x.parquet", some_rows(3).drop_columns(["kind"]))
    with pytest.raises(SettingError, match=r"can't be read without Spark: .*; give --executor spark"):
        append_locally(AppendRequest(table_path=table.path, source=str(tmp_path / "x.parquet")))


def test_a_batch_is_not_named_after_a_path_that_spark_spells_otherwise(tmp_path: Path) -> None:
    table = Table(tmp_path)
    pq.write_table(some_rows(5), tmp_path / "a b.parquet")
    with pytest.raises(NeedsSparkError, match="plain name"):
        append_few_rows(AppendRequest(table_path=table.path, source=str(tmp_path / "a b.parquet")), no_spark)


def test_a_file_that_changes_meanwhile_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(tmp_path)
    before, honest = table.files, write_and_measure

    def changing(job: Any, segment: Any) -> TaskResult:
        os.utime(tmp_path / "late-200" / "a.parquet", (1, 1))
        return honest(job, segment)

    monkeypatch.setattr("layoutopt.writer.task.write_and_measure", changing)
    with pytest.raises(ContentMismatchError, match="was changed during the load; nothing was committed"):
        table.append()
    assert table.files == before


def test_a_damaged_page_is_no_row(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", some_rows(50), compression="none", write_page_checksum=True)
    data = bytearray(path.read_bytes())
    data[len(data) // 4] ^= 0xFF
    path.write_bytes(data)
    table = Table(tmp_path / "t")
    with pytest.raises(SourceError, match=f"{path} has a damaged page"):
        append_few_rows(AppendRequest(table_path=table.path, source=str(path)), no_spark)


def test_columns_of_which_only_spark_has_checksums_are_left_to_it() -> None:
    check_columns(SCHEMA, "year")
    check_columns(Schema((*SCHEMA.columns, Column("a", "array<struct<b:int,c:map<string,date>>>"))), "year")
    for type in ("variant", "array<string collate UTF8_LCASE>", "interval month"):
        with pytest.raises(NeedsSparkError, match=f"'a' is {type}"):
            check_columns(Schema((*SCHEMA.columns, Column("a", type))), "year")
    with pytest.raises(NeedsSparkError, match="by a timestamp"):
        check_columns(SCHEMA, "seen")
