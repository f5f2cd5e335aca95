"""Publishing: one commit of the difference, nothing twice, nothing over others', whole after every crash."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.table import StaticTable

from layoutopt.catalog.commit import APPEND, restore
from layoutopt.catalog.publications import PUBLISHED, Publication, publications
from layoutopt.catalog.snapshot import snapshot_numbers
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.vacuum import vacuum
from layoutopt.errors import CommitConflictError, PublicationError
from layoutopt.model.layout import ByVectors, Layout
from layoutopt.model.schema import Column, Schema
from layoutopt.publish.publishing import PUBLISH_POINTS, PublishedTable, PublishReport, publish, stop_publishing
from tests.scan.builder import Building, build, building, by_position

SCHEMA = Schema((Column("year", "int"), Column("id", "int"), Column("x", "double")))
FORMATS = ("delta", "iceberg")


def rows_of(year: int | None, first: int, n: int = 4) -> pa.Table:
    """Some rows of a year, their ids from ``first`` on."""
    ids = range(first, first + n)
    columns = {"year": [year] * n, "id": list(ids), "x": [i / 2 for i in ids]}
    return pa.table({"year": pa.array(columns["year"], pa.int32()), "id": pa.array(ids, pa.int32()), "x": columns["x"]})


def plan_of(**how: object) -> Building:
    return building(SCHEMA, partition_by="year", blocking=by_position(2), **how)  # type: ignore[arg-type]


@pytest.fixture(params=FORMATS)
def format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "table"
    build(root, pa.concat_tables([rows_of(1994, 0), rows_of(1995, 10)]), plan_of(), "load-1")
    return root


def show(
    root: Path, format: str, location: object = None, at: Callable[[str], None] = lambda point: None
) -> PublishedTable:
    """Publishes a table that needs one table to show."""
    (shown,) = report_of(root, format, location, at).shown
    return shown


def report_of(
    root: Path, format: str, location: object = None, at: Callable[[str], None] = lambda point: None
) -> PublishReport:
    return publish(str(root), Publication(format, str(location or root)), at)


def ids_at(location: object, format: str) -> list[int]:
    """The ids that a reader of the format finds."""
    table = (
        DeltaTable(str(location)).to_pyarrow_table()
        if format == "delta"
        else StaticTable.from_metadata(str(location)).scan().to_arrow()
    )
    return sorted(table["id"].to_pylist())


def version_of(location: object, format: str) -> int:
    if format == "delta":
        return DeltaTable(str(location)).version()
    return int(StaticTable.from_metadata(str(location)).metadata.last_sequence_number)  # type: ignore[union-attr]


def test_what_changed_is_committed_at_once(root: Path, format: str) -> None:
    first = show(root, format)
    assert (first.added, first.removed, first.files, first.rows, first.committed) == (2, 0, 2, 8, True)
    build(root, pa.concat_tables([rows_of(1995, 20), rows_of(1996, 30)]), plan_of(), "load-2")
    second = show(root, format)
    assert (second.added, second.removed, second.files, second.version) == (2, 1, 3, first.version + 1)
    assert ids_at(root, format) == [*range(4), *range(20, 24), *range(30, 34)]
    build(root, rows_of(1994, 40, 1), plan_of(), "load-3", APPEND)
    third = show(root, format)
    assert (third.added, third.removed, third.version) == (1, 0, second.version + 1)
    assert ids_at(root, format) == [*range(4), *range(20, 24), *range(30, 34), 40]


def test_nothing_is_committed_where_nothing_changed(root: Path, format: str) -> None:
    first = show(root, format)
    again = show(root, format)
    assert (again.committed, again.version, again.files) == (False, first.version, first.files)
    vacuum(TableFiles(str(root)), 1, timedelta(0))  # a snapshot with the same content
    assert not show(root, format).committed
    assert version_of(root, format) == first.version


def test_files_too_large_to_be_skipped_are_told(root: Path, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert report_of(root, format).notes == ()
    monkeypatch.setattr("layoutopt.catalog.file_sizes.LEAST_BYTES", 1)
    (note,) = report_of(root, format).notes
    assert "engines that skip only whole files skip nothing" in note


def test_files_are_neither_rewritten_nor_moved(root: Path, format: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in (root / "data").rglob("*")}
    show(root, format)
    assert {path: path.stat().st_mtime_ns for path in (root / "data").rglob("*")} == before


def test_a_place_elsewhere(root: Path, format: str, tmp_path: Path) -> None:
    place = tmp_path / "elsewhere" / "t"
    shown = show(root, format, place)
    assert shown.location == str(place)
    if format == "iceberg":
        assert ids_at(place, format) == [*range(4), *range(10, 14)]
    else:  # whose readers know paths outside of the table only in part
        assert all(uri.endswith(".parquet") for uri in DeltaTable(str(place)).file_uris())
    assert not show(root, format, place).committed


@pytest.mark.parametrize("point", PUBLISH_POINTS)
def test_a_crash_at_any_point_is_healed_by_the_next_run(root: Path, format: str, point: str) -> None:
    show(root, format)
    build(root, rows_of(1995, 20), plan_of(), "load-2")

    def crash(at: str) -> None:
        if at == point:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        show(root, format, at=crash)
    assert ids_at(root, format) in ([*range(4), *range(10, 14)], [*range(4), *range(20, 24)])
    vacuum(TableFiles(str(root)), 1, timedelta(0))  # keeps whatever the place may show now
    ids_at(root, format)
    assert show(root, format).committed == (point == "noted")
    assert ids_at(root, format) == [*range(4), *range(20, 24)]


def test_a_vacuum_keeps_what_is_published_until_long_after_it_was_replaced(root: Path, format: str) -> None:
    files = TableFiles(str(root))
    show(root, format)
    for n in range(2, 5):
        build(root, rows_of(1995, 10 * n), plan_of(), f"load-{n}")
    report = vacuum(files, 1, timedelta(0))
    assert (report.published, report.snapshots) == ((0,), (1, 2))
    assert ids_at(root, format) == [*range(4), *range(10, 14)]
    show(root, format)
    age(root, lambda path: PUBLISHED not in path)
    assert vacuum(files, 1, timedelta(days=1)).published == (0,)  # its readers may still read
    age(root, lambda path: True)
    assert vacuum(files, 1, timedelta(days=1)).published == ()
    assert 0 not in snapshot_numbers(files)
    assert ids_at(root, format) == [*range(4), *range(40, 44)]
    assert not show(root, format).committed


def age(root: Path, which: Callable[[str], bool]) -> None:
    """Make files look as if they had been written more than a day ago."""
    for path in root.rglob("*.*"):
        if which(path.as_posix()):
            os.utime(path, (time.time() - 90_000,) * 2)


def test_what_is_forgotten_is_kept_no_longer(root: Path, format: str) -> None:
    files = TableFiles(str(root))
    show(root, format)
    assert publications(files) == (Publication(format, str(root)),)
    build(root, rows_of(1995, 20), plan_of(), "load-2")
    assert stop_publishing(str(root), Publication(format, str(root))) == 2
    assert publications(files) == ()
    assert vacuum(files, 1, timedelta(0)).snapshots == (0,)


def test_columns_that_come_later_are_null_in_older_files(root: Path, format: str) -> None:
    show(root, format)
    wider = Schema((*SCHEMA.columns, Column("note", "string")))
    rows = rows_of(1996, 30).append_column("note", pa.array(["a", None, "b", "c"]))
    build(root, rows, building(wider, partition_by="year"), "load-2")
    shown = show(root, format)
    assert (shown.columns, shown.added) == (4, 1)
    assert ids_at(root, format) == [*range(4), *range(10, 14), *range(30, 34)]
    if format == "delta":
        found = DeltaTable(str(root)).to_pyarrow_table(filters=[("note", "=", "b")])
    else:
        found = StaticTable.from_metadata(str(root)).scan(row_filter="note = 'b'").to_arrow()
    assert found["id"].to_pylist() == [32]


def test_a_column_of_local_times_may_come_and_go(tmp_path: Path) -> None:
    root, when = tmp_path / "table", Column("t", "timestamp_ntz")
    plain, timed = Schema((Column("id", "int"),)), Schema((Column("id", "int"), when))
    ids = pa.table({"id": pa.array([1], pa.int32())})
    build(root, ids, building(plain), "load-1")
    show(root, "delta")
    build(root, ids.append_column("t", pa.array([None], pa.timestamp("us"))), building(timed), "load-2")
    show(root, "delta")
    table = DeltaTable(str(root))
    assert (table.protocol().min_reader_version, table.to_pyarrow_table().column_names) == (3, ["id", "t"])
    files = TableFiles(str(root))
    restore(files, 0)
    show(root, "delta")
    table = DeltaTable(str(root))
    assert (table.protocol().min_reader_version, table.to_pyarrow_table().column_names) == (3, ["id"])


def test_partitions_of_null_and_of_no_text(tmp_path: Path, format: str) -> None:
    schema = Schema((Column("p", "string"), Column("id", "int")))
    plan = building(schema, partition_by="p")
    root = tmp_path / "table"
    build(root, pa.table({"p": ["a"], "id": pa.array([0], pa.int32())}), plan, "load-1")
    show(root, format)
    build(root, pa.table({"p": [None, "", "b"], "id": pa.array([1, 2, 3], pa.int32())}), plan, "load-2")
    show(root, format)
    if format == "delta":
        found = DeltaTable(str(root)).to_pyarrow_table()
    else:
        found = StaticTable.from_metadata(str(root)).scan().to_arrow()
    by_id = dict(zip(found["id"].to_pylist(), found["p"].to_pylist(), strict=True))
    assert by_id == {0: "a", 1: None, 2: "", 3: "b"}


LAYOUTS = [
    Layout(("year", "id"), (), ("year", "id"), ByVectors()),
    Layout(("x",), (), ("x",), ByVectors()),
]


def test_column_groups_are_shown_one_by_one(tmp_path: Path, format: str) -> None:
    root, place = tmp_path / "table", tmp_path / "shown"
    build(root, rows_of(1994, 0), plan_of(layouts=LAYOUTS), "load-1")
    report = report_of(root, format, place)
    assert [(one.layout, one.columns, one.rows) for one in report.shown] == [(0, 2, 4), (1, 1, 4)]
    assert "no layout holds every column" in report.notes[0]
    if format == "iceberg":
        assert ids_at(place / "layout-0", format) == [0, 1, 2, 3]
        assert StaticTable.from_metadata(str(place / "layout-1")).scan().to_arrow().column_names == ["x"]


def test_columns_of_some_rows_alone_are_not_shown(tmp_path: Path, format: str) -> None:
    first = Layout(("year", "id"), (0,), ("year", "id"), ByVectors())
    second = Layout(("year", "id", "x"), (0,), ("x",), ByVectors())
    root, place = tmp_path / "table", tmp_path / "shown"
    build(root, rows_of(1994, 0), plan_of(conditions=["id < 2"], layouts=[first, second]), "load-1")
    assert [(one.columns, one.rows) for one in report_of(root, format, place).shown] == [(2, 4), (1, 4)]
    if format == "iceberg":
        found = StaticTable.from_metadata(str(place / "layout-1")).scan(row_filter="x >= 0.5").to_arrow()
        assert found.column_names == ["x"]
        assert sorted(found["x"].to_pylist()) == [0.5, 1.0, 1.5]


def test_a_covering_layout_is_shown_alone(tmp_path: Path, format: str) -> None:
    everything = Layout(SCHEMA.names, (0,), SCHEMA.names, ByVectors())
    copy = Layout(("id", "x"), (0,), (), ByVectors())
    root = tmp_path / "table"
    build(root, rows_of(1994, 0), plan_of(conditions=["id < 2"], layouts=[copy, everything]), "load-1")
    shown = show(root, format)
    assert (shown.layout, shown.rows) == (None, 4)
    assert ids_at(root, format) == [0, 1, 2, 3]


def test_what_other_layouts_would_leave_behind_is_refused(tmp_path: Path, format: str) -> None:
    root = tmp_path / "table"
    build(root, rows_of(1994, 0), plan_of(), "load-1")
    show(root, format)
    build(root, rows_of(1994, 0), plan_of(layouts=LAYOUTS), "load-2")
    with pytest.raises(PublicationError, match="would stay behind"):
        report_of(root, format)
    stop_publishing(str(root), Publication(format, str(root)))
    if format == "iceberg":
        assert len(report_of(root, format, root / "groups").shown) == 2


def test_another_table_is_refused(root: Path, format: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    build(other, rows_of(1994, 0), plan_of(), "load-1")
    show(root, format, tmp_path / "place")
    with pytest.raises(PublicationError, match="shows another layoutopt table"):
        show(other, format, tmp_path / "place")


def test_a_table_of_somebody_else_is_refused(root: Path, format: str, tmp_path: Path) -> None:
    place = tmp_path / "theirs"
    if format == "delta":
        write_deltalake(str(place), pa.table({"id": [1]}))
    else:
        catalog = InMemoryCatalog("theirs", warehouse=str(tmp_path))
        catalog.create_namespace("n")
        table = catalog.create_table("n.t", pa.schema([("id", pa.int64())]), location=str(place))
        (place / "metadata" / "v1.metadata.json").write_bytes(Path(table.metadata_location).read_bytes())
    with pytest.raises(PublicationError, match="not published from here"):
        show(root, format, place)


def test_a_folder_with_something_else_is_refused(root: Path, format: str, tmp_path: Path) -> None:
    place = tmp_path / "full"
    place.mkdir()
    (place / "letter.txt").write_text("dear")
    with pytest.raises(PublicationError, match="holds something that is no"):
        show(root, format, place)
    assert [path.name for path in place.iterdir()] == ["letter.txt"]


def test_what_somebody_else_changed_there_is_not_overwritten(root: Path, format: str) -> None:
    show(root, format)
    if format == "delta":
        DeltaTable(str(root)).delete("id = 1")
    else:
        log = root / "metadata" / "v1.metadata.json"
        metadata = json.loads(log.read_text())
        metadata["properties"]["layoutopt.snapshot"] = "0"
        forge_iceberg(root, metadata)
    build(root, rows_of(1995, 20), plan_of(), "load-2")
    with pytest.raises(PublicationError, match="another writer"):
        show(root, format)


def forge_iceberg(root: Path, metadata: dict[str, object]) -> None:
    """A version in which a file is gone, as another writer's delete leaves it."""
    table = StaticTable.from_metadata(str(root))
    gone = next(iter(table.scan().plan_files())).file
    from layoutopt.publish.iceberg import FolderCatalog

    loaded = FolderCatalog(TableFiles(str(root))).load()
    assert loaded is not None
    with loaded.transaction() as transaction:
        change = transaction.update_snapshot().overwrite()
        change.delete_data_file(gone)
        change.commit()


def test_two_publishers_at_once_commit_once(root: Path, format: str) -> None:
    show(root, format)
    build(root, rows_of(1995, 20), plan_of(), "load-2")
    done: list[PublishedTable] = []

    def meanwhile(point: str) -> None:
        if point == "noted" and not done:
            done.append(show(root, format))

    with pytest.raises(CommitConflictError, match="publish again"):
        show(root, format, at=meanwhile)
    assert ids_at(root, format) == [*range(4), *range(20, 24)]
    assert not show(root, format).committed


def test_an_older_copy_of_the_table_is_refused(root: Path, format: str, tmp_path: Path) -> None:
    place, copy = tmp_path / "place", tmp_path / "copy"
    show(root, format, place)
    shutil.copytree(root, copy)
    build(root, rows_of(1995, 20), plan_of(), "load-2")
    show(root, format, place)
    with pytest.raises(PublicationError, match="an older copy"):
        show(copy, format, place)


def test_many_commits_of_a_delta_log_are_summed_up(root: Path) -> None:
    for n in range(12):
        build(root, rows_of(1995, 10 * n), plan_of(), f"load-{n + 2}")
        show(root, "delta")
    assert list((root / "_delta_log").glob("*.checkpoint.parquet"))
    assert ids_at(root, "delta") == [*range(4), *range(110, 114)]
    assert not show(root, "delta").committed


@pytest.mark.parametrize(
    ("column", "match"),
    [
        (Column("a b", "int"), "in its name"),
        (Column("c", "string collate UTF8_LCASE"), "which Delta tables don't have"),
    ],
)
def test_columns_that_delta_can_not_say_are_refused(tmp_path: Path, column: Column, match: str) -> None:
    schema, root = Schema((column,)), tmp_path / "table"
    type = pa.int32() if column.type == "int" else pa.string()
    build(root, pa.table({column.name: pa.array([None], type)}), building(schema), "load-1")
    with pytest.raises(PublicationError, match=match):
        show(root, "delta")
    assert not (root / "_delta_log").exists()
