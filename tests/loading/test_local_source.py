"""Loads without Spark: what is loaded once, what is refused, and the second reader that proves each load."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given as generated
from hypothesis import strategies as st

from layoutopt.errors import (
    AlreadyLoadedError,
    ContentMismatchError,
    LayoutoptError,
    MissingPartitionError,
    NeedsSparkError,
    SettingError,
    SourceError,
    TableError,
)
from layoutopt.evaluation.arrow_types import any_arrow_type
from layoutopt.evaluation.checksum import value_hashes
from layoutopt.external.listing import UNNAMED
from layoutopt.external.snapshot import SnapshotFile
from layoutopt.inspect.verify import verify
from layoutopt.loading.load import LoadsReport, run_load
from layoutopt.loading.local_source import open_door, open_local
from layoutopt.model.layout import Plan
from layoutopt.model.requests import LoadRequest
from layoutopt.model.schema import Column, Schema
from layoutopt.scan.table import open_table
from layoutopt.sources import listing
from layoutopt.sources.executor import Processes
from layoutopt.sources.second_reader import read_by_duckdb, sum_rows, sum_whole_rows
from layoutopt.sources.split import FileSplit, plain_partition_values
from tests.effort import long_too
from tests.external.odd_files import shorten_row_group
from tests.scan.builder import building
from tests.scan.layouts import GROUPS, OVERLAPPING
from tests.scan.queries import FEW_QUERIES
from tests.scan.tables import CONDITIONS, SCHEMA, expected, same, some_rows


class Place:
    """A source, a plan and a table in a folder."""

    def __init__(
        self,
        root: Path,
        by: str | None = "year",
        layouts: Any = None,
        segment_rows: int = 1_000_000,
        schema: Schema = SCHEMA,
    ) -> None:
        self.root, self.table = root, str(root / "table")
        self.source = root / "source"
        self.source.mkdir()
        conditions = CONDITIONS if schema == SCHEMA else ()
        self.plan = building(schema, conditions, layouts=layouts, partition_by=by, segment_rows=segment_rows).plan
        (root / "plan.json").write_bytes(self.plan.dumps())

    def write(self, rows: pa.Table, name: str = "a", **how: Any) -> None:
        path = self.source / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(rows, path, **how)

    def load(self, **given: Any) -> LoadsReport:
        values: dict[str, Any] = {"source": str(self.source), "table_path": self.table, "plan": self.root / "plan.json"}
        return run_load(open_door, LoadRequest(**(values | given)))

    def check(self, rows: pa.Table) -> None:
        table = open_table(self.table)
        assert table.rows == rows.num_rows
        for sql in FEW_QUERIES:
            assert same(table.sql(sql).to_pylist(), expected(sql, rows)), sql
        assert verify(table).ok


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize(
    ("by", "layouts", "segment_rows", "parallel"),
    [
        ("year", None, 1_000_000, False),
        ("year", GROUPS, 90, True),
        (None, OVERLAPPING, 70, False),
        ("kind", None, 1_000_000, True),
        *long_too(("day", None, 1_000_000, False)),  # of many partitions
    ],
)
def test_every_row_is_loaded(
    by: str | None, layouts: Any, segment_rows: int, parallel: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if parallel:
        monkeypatch.setattr("layoutopt.loading.local_source.LEAST_ROWS", 1)
        monkeypatch.setattr("layoutopt.loading.local_source.Processes", lambda: Processes(2))
    place, rows = Place(tmp_path, by, layouts, segment_rows), some_rows(400)
    place.write(rows.slice(0, 150), "a", row_group_size=40)
    place.write(rows.slice(150), "b")
    report = place.load()
    assert (report.loads[0].rows, report.already) == (400, ())
    assert report.loads[0].segments >= len(report.partitions)
    place.check(rows)


def test_a_load_says_that_whole_files_skip_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.write(some_rows(400))
    monkeypatch.setattr("layoutopt.catalog.file_sizes.LEAST_BYTES", 100)
    (note,) = place.load().notes
    assert note.startswith("the rows of each partition are in one file (")
    assert "`plan --file-bytes " in note
    (place.root / "plan.json").write_bytes(replace(place.plan, file_bytes=1).dumps())
    assert place.load(replace=True).notes == ()


def test_folders_named_after_the_partition_column_are_partitions(place: Place) -> None:
    rows = some_rows(90)
    for year in (1994, 1995, 1996):
        place.write(rows.filter(pc.equal(rows["year"], year)).drop_columns(["year"]), f"year={year}/a")
    assert place.load(partition=("1995", "year=1996")).partitions == ("1995", "1996")
    assert place.load().partitions == ("1994",)
    place.check(rows)


def test_what_is_loaded_is_not_loaded_again(place: Place) -> None:
    rows = some_rows(90)
    place.write(rows)
    assert len(place.load().loads) == 1
    assert place.load().already == ("1994", "1995", "1996")
    place.write(rows.take(pa.array(np.arange(89, -1, -1))))  # the same rows in another order, by another file
    assert place.load(partition=("1994",)).already == ("1994",)
    place.check(rows)
    # two rows of a year swap a value, which no checksum of a column shows
    of_1994 = [i for i, year in enumerate(rows["year"].to_pylist()) if year == 1994 and rows["kind"][i].as_py()]
    kinds = rows["kind"].to_pylist()
    first = of_1994[0]
    second = next(i for i in of_1994 if kinds[i] != kinds[first])
    kinds[first], kinds[second] = kinds[second], kinds[first]
    changed = rows.set_column(2, "kind", pa.array(kinds))
    place.write(changed)
    with pytest.raises(AlreadyLoadedError, match=r"'1994' was loaded from other content .30 rows.; give --replace"):
        place.load(partition=("1994",))
    place.load(replace=True)
    place.check(changed)


def test_partitions_are_selected_by_texts_and_ranges(place: Place) -> None:
    place.write(some_rows(90))
    assert place.load(first="1995").partitions == ("1995", "1996")
    assert place.load(last=" 1994 ").partitions == ("1994",)
    with pytest.raises(MissingPartitionError, match="no rows for year=1993"):
        place.load(partition=("1993",))
    assert place.load(partition=("1993", "year=__null__"), allow_empty=True).loads[0].rows == 0
    for text in ("199x", "1994.0", str(2**31), "", "１９９４"):
        with pytest.raises(SettingError, match="is no int; write --partition year=VALUE"):
            place.load(partition=(f"year={text}",))
    with pytest.raises(SettingError, match="partitioned by year, not 'day'"):
        place.load(partition=("day=1994",))


def test_a_table_without_partitions_takes_none(tmp_path: Path) -> None:
    place = Place(tmp_path, by=None)
    place.write(some_rows(9))
    for given in ({"partition": ("year=1994",)}, {"first": "1994"}):
        with pytest.raises(SettingError, match="the plan has no partitions"):
            place.load(**given)


def test_a_source_without_a_row_makes_a_table(place: Place) -> None:
    place.write(some_rows(9).slice(0, 0))
    place.load()
    assert open_table(place.table).rows == 0


def test_what_needs_spark_is_said(place: Place, tmp_path: Path) -> None:
    place.write(some_rows(9).rename_columns([*some_rows(9).column_names[:-1], "YEAR"]))
    with pytest.raises(SettingError, match=r"can't be read without Spark: .*; give --executor spark"):
        place.load()
    assert not (tmp_path / "table").exists()


def _lose_a_row(table: pa.Table) -> pa.Table:
    return table.slice(1)


def _change_a_value(table: pa.Table) -> pa.Table:
    ids = table["id"].to_pylist()
    return table.set_column(0, "id", pa.array([ids[0] + 1000, *ids[1:]], pa.int32()))


@pytest.mark.parametrize("damage", [_lose_a_row, _change_a_value])
def test_rows_that_arrow_reads_otherwise_than_duckdb_are_not_committed(
    damage: Callable[[pa.Table], pa.Table], place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = FileSplit.read_rows

    def read(split: FileSplit, schema: Schema, names: Sequence[str], **more: Any) -> Iterator[tuple[pa.Table, int]]:
        for rows, low in honest(split, schema, names, **more):
            yield damage(rows) if "id" in names else rows, low  # partitions are counted by their column alone

    place.write(some_rows(90))
    monkeypatch.setattr(FileSplit, "read_rows", read)
    with pytest.raises(LayoutoptError, match="nothing was committed") as error:
        place.load()
    assert isinstance(error.value, ContentMismatchError)
    assert not list((place.root / "table").rglob("*.parquet"))


def test_rows_that_were_not_counted_are_missed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second reader sums whole files, whatever the first one counted."""
    honest = listing._count_file

    def count(*given: Any) -> Iterator[tuple[FileSplit, Any]]:
        for split, counts in honest(*given):
            yield split, {value: rows for value, rows in counts.items() if value != 1995}

    place.write(some_rows(90))
    place.write(some_rows(90).filter(pc.equal(some_rows(90)["year"], 1995)), "b")
    monkeypatch.setattr(listing, "_count_file", count)
    with pytest.raises(ContentMismatchError, match="has 120 rows in the source but 60 were written"):
        place.load()
    assert place.load(partition=("1994",)).partitions == ("1994",)


@pytest.mark.parametrize("name", ["a[1]", "a*", "a?", "[.]a", "ä b"])
def test_the_second_reader_takes_no_name_for_a_pattern(place: Place, name: str) -> None:
    rows = some_rows(90)
    place.write(rows.slice(0, 40), "a1")
    place.write(rows.slice(40), name)
    place.write(rows.slice(0, 20), ".a")  # hidden
    place.load()
    place.check(rows)


def test_rows_of_encrypted_tables_are_not_stored_in_the_clear(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAYOUTOPT_TEST_KEY", "00" * 16)
    rows = some_rows(90)
    for number in range(3):
        place.write(rows.slice(30 * number, 30), f"{number}")

    def never(*given: Any, **more: Any) -> None:
        raise AssertionError("rows are stored in a temporary folder")

    monkeypatch.setattr("layoutopt.sources.executor.TemporaryDirectory", never)
    with pytest.raises(AssertionError):
        place.load()
    secret = str(tmp_path / "secret")
    assert place.load(table_path=secret, encrypt="env:LAYOUTOPT_TEST_KEY").loads[0].rows == 90


def test_a_full_temporary_folder_and_changed_files_are_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        place.write(some_rows(90).slice(30 * number, 30), f"{number}")

    def full(*given: Any) -> list[int]:
        raise OSError(28, "No space left on device")

    def changing(*given: Any) -> list[int]:
        (place.source / "1.parquet").unlink()
        raise NeedsSparkError("the file has other rows than were counted")

    monkeypatch.setattr("layoutopt.sources.executor.write_shuffle_batches", full)
    with pytest.raises(TableError, match=r"temporary folder .* \(No space left on device\).* TMPDIR"):
        place.load()
    monkeypatch.setattr("layoutopt.sources.executor.write_shuffle_batches", changing)
    with pytest.raises(ContentMismatchError, match=r"1.parquet' was changed during the load"):
        place.load()
    for missing in ("nowhere", "nowhere.parquet"):
        with pytest.raises(SourceError, match="does not exist"):
            place.load(source=str(place.root / missing))


def test_dates_are_selected_as_spark_reads_them(tmp_path: Path) -> None:
    place = Place(tmp_path, by="day")
    place.write(some_rows(50))
    (day, *_) = (day for day in some_rows(50)["day"].to_pylist() if day is not None and day.month < 10)
    assert len(place.load(partition=(f"{day.year}-{day.month}-{day.day}",)).partitions) == 1
    for text in ("19940101", "1994-W01-1", "1994-02-30"):
        with pytest.raises(SettingError, match="is no date; write --partition day=2026-01-31"):
            place.load(partition=(f"day={text}",))
        with pytest.raises(SettingError, match="is no date; write --to 2026-01-31"):
            place.load(last=text)


NESTED = Schema((Column("id", "int"), Column("places", "array<struct<lat:double,names:map<string,string>>>")))
PLACES = [None, [], [None], [{"lat": 1.5, "names": [("de", "Rom"), ("it", None)]}, {"lat": None, "names": None}]]


def test_nested_columns_are_loaded_and_proved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path, by=None, schema=NESTED)
    ids, places = pa.array(range(40), pa.int32()), pa.array(PLACES * 10, any_arrow_type(NESTED.columns[1].type))
    place.write(pa.table({"id": ids, "places": places}))
    place.load()
    read = open_table(place.table).scan(columns=["id", "places"]).to_arrow().sort_by("id")
    assert read["places"].to_pylist() == places.to_pylist()
    assert verify(open_table(place.table)).ok
    honest = FileSplit.read_rows

    def lose_a_name(*given: Any, **more: Any) -> Iterator[tuple[pa.Table, int]]:
        for rows, low in honest(*given, **more):
            cells = rows["places"].to_pylist()
            cells[3] = cells[3][:1]
            yield rows.set_column(1, "places", pa.array(cells, rows["places"].type)), low

    monkeypatch.setattr(FileSplit, "read_rows", lose_a_name)
    with pytest.raises(ContentMismatchError, match="differs from the source in places; nothing was committed"):
        place.load(replace=True)


@generated(st.integers(0, 50), st.integers(0, 10_000), st.sampled_from([None, "year", "kind", "day"]))
def test_both_readers_read_the_same(
    tmp_path_factory: pytest.TempPathFactory, n: int, seed: int, by: str | None
) -> None:
    path, rows = tmp_path_factory.mktemp("readers") / "a.parquet", some_rows(n, seed)
    pq.write_table(rows, path, row_group_size=7)
    wanted: list[Any] = [None]
    kept = rows
    if by is not None:
        values = plain_partition_values(rows, by)
        wanted = values.unique().to_pylist()[::2]
        kept = rows.filter(pc.is_in(values, value_set=pa.array(wanted, values.type)))
    partition = None if by is None else SCHEMA.find(by)
    read = pa.concat_tables(
        [kept.slice(0, 0), *read_by_duckdb(SnapshotFile(str(path), UNNAMED), SCHEMA, None, partition, wanted)]
    )
    assert str(read.to_pylist()) == str(kept.to_pylist())
    content = sum_rows([read], SCHEMA)
    assert content.rows == kept.num_rows
    for column in SCHEMA.columns:
        hashes = value_hashes(kept[column.name], column.type)
        assert hashes is not None
        assert content.sums[column.name] == int(hashes.sum(dtype=np.int64))
    assert sum_whole_rows([read], SCHEMA) == sum_whole_rows([kept.slice(0, 3), kept.slice(3)], SCHEMA)


def test_many_files_are_read_by_one_database_which_remembers_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import duckdb

    opened: list[object] = []
    connect = duckdb.connect

    def counted(*args: Any, **options: Any) -> Any:
        opened.append(options)
        return connect(*args, **options)

    monkeypatch.setattr(duckdb, "connect", counted)
    file = SnapshotFile(str(tmp_path / "a.parquet"), UNNAMED)
    for seed in range(5):
        rows = some_rows(9, seed)
        pq.write_table(rows, file.path)
        os.utime(file.path, (1, 1))  # no reader could tell the change by its time
        assert str(pa.concat_tables(read_by_duckdb(file, SCHEMA)).to_pylist()) == str(rows.to_pylist())
    first, second = read_by_duckdb(file, SCHEMA), read_by_duckdb(file, SCHEMA)
    assert str(next(first).to_pylist()) == str(next(second).to_pylist()) == str(rows.to_pylist())
    assert len(opened) <= 1


def test_a_text_that_is_no_utf8_needs_spark(tmp_path: Path) -> None:
    bad = pa.array([b"\xff" * 9]).cast(pa.binary()).view(pa.string())
    pq.write_table(some_rows(1).set_column(2, "kind", bad), tmp_path / "a.parquet")
    with pytest.raises(NeedsSparkError, match="DuckDB, which reads a source a second time, can't read"):
        list(read_by_duckdb(SnapshotFile(str(tmp_path / "a.parquet"), UNNAMED), SCHEMA))


def test_a_plan_of_another_session_needs_spark(place: Place) -> None:
    place.write(some_rows(3))
    there = building(SCHEMA, CONDITIONS, partition_by="seen").plan
    with pytest.raises(NeedsSparkError, match="partitions are by a timestamp"):
        open_local(str(place.source), there)
    assert isinstance(there, Plan)


def test_a_footer_that_hides_rows_is_refused(place: Place) -> None:
    place.write(some_rows(300), "0")
    shorten_row_group(place.source / "0.parquet")
    with pytest.raises(SourceError, match="300 rows by its footer, but its row groups have"):
        place.load()
