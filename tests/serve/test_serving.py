"""A stock pyiceberg reads tables through the server: fewer files, the same rows, the newest snapshot."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.exceptions import BadRequestError, NoSuchTableError

from layoutopt.catalog.commit import APPEND
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.layout import ByVectors, Layout
from layoutopt.model.predicates import Col
from layoutopt.model.schema import Column, Schema
from layoutopt.scan.table import open_table
from layoutopt.serve.app import Limits
from tests.extension_package import install_package
from tests.publish.typed import SCHEMA as TYPED
from tests.publish.typed import typed_rows
from tests.scan.builder import build, building, by_position
from tests.scan.stores import REQUESTS, noting_store, put
from tests.serve.serving import files_of, ids_of, serving

__all__ = ["noting_store"]

SCHEMA = Schema((Column("id", "int"), Column("kind", "string"), Column("x", "double")))
ODD = "kind = 'air' AND x > 0"


def rows(n: int = 40, first: int = 0) -> pa.Table:
    """Every tenth row is ODD; no column alone tells where these are."""
    ids = list(range(first, first + n))
    kind = ["air" if i % 2 == 0 else "sea" for i in ids]
    x = [1.0 if i % 2 or i % 10 == 0 else -1.0 for i in ids]
    return pa.table({"id": pa.array(ids, pa.int32()), "kind": kind, "x": x})


def laid_out(root: Path, content: pa.Table | None = None, load: str = "load-1", operation: str | None = None) -> None:
    """Files of ten rows; those that are ODD are in one."""
    by_oddness = building(SCHEMA, [ODD], blocking=by_position(5), segment_rows=10)
    content = rows() if content is None else content
    odd = [i % 10 == 0 for i in content["id"].to_pylist()]
    order = sorted(range(len(odd)), key=lambda i: not odd[i])
    build(root, content.take(pa.array(order)), by_oddness, load, operation)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("serving") / "t"
    laid_out(path)
    return path


@pytest.fixture
def root(built: Path, tmp_path: Path) -> Path:
    """A copy of the table to serve and to change."""
    return Path(shutil.copytree(built, tmp_path / "t"))


def test_features_skip_files_that_no_statistic_does(root: Path) -> None:
    with serving([root]) as served:
        table = served.table()
        assert len(files_of(table)) == 4
        assert len(files_of(table, ODD, local=True)) == 4
        assert len(files_of(table, ODD)) == 1
        assert ids_of(table, ODD) == [0, 10, 20, 30]
        assert table.scan(row_filter=ODD).count() == 4
        assert table.scan().count() == 40
        said = [line for line in served.lines if line.get("files") is not None]
        assert (said[0]["table"], said[0]["files"], said[0]["rows"]) == ("default.t", 4, 40)
        assert {(line["files_planned"], line["rows_planned"]) for line in said} == {(4, 40), (1, 10)}


def test_clients_that_plan_on_their_own_read_the_same(root: Path) -> None:
    with serving([root]) as served:
        table = served.table()
        assert files_of(table, "id = 33", local=True) == files_of(table, "id = 33")
        old = served.client(**{"scan-planning-mode": "client"}).load_table("default.t")
        assert ids_of(old, ODD) == [0, 10, 20, 30]
        assert old.inspect.files().num_rows == 4
        assert [line["method"] for line in served.lines].count("POST") == 1  # the one of the first client


@pytest.mark.filterwarnings("ignore")  # Polars says which planner it has
def test_polars_has_its_scans_planned_too(root: Path) -> None:
    with serving([root]) as served:
        found = pl.scan_iceberg(served.table()).filter((pl.col("kind") == "air") & (pl.col("x") > 0)).collect()
        assert sorted(found["id"].to_list()) == [0, 10, 20, 30]
        assert [line["files_planned"] for line in served.lines if "files" in line] == [1]


def test_nothing_is_written_into_the_table(root: Path) -> None:
    before = sorted(path for path in root.rglob("*"))
    with serving([root]) as served:
        ids_of(served.table(), ODD)
    assert sorted(root.rglob("*")) == before


def test_manifests_go_where_they_are_wanted_and_leave_with_the_server(root: Path, tmp_path: Path) -> None:
    with serving([root], manifests=str(tmp_path / "manifests")) as served:
        (snapshot,) = served.table().snapshots()
        assert Path(snapshot.manifest_list).is_relative_to(tmp_path / "manifests")
        assert Path(snapshot.manifest_list).is_file()
    assert not list((tmp_path / "manifests").rglob("*.avro"))


def test_what_is_committed_is_seen_by_the_next_request(root: Path) -> None:
    with serving([root]) as served:
        table = served.table()
        assert ids_of(table, "id >= 38") == [38, 39]
        laid_out(root, rows(10, 40), "load-2", APPEND)
        assert ids_of(table, "id >= 38") == [38, 39, *range(40, 50)]
        again = served.table()
        assert again.current_snapshot().snapshot_id == table.current_snapshot().snapshot_id + 1  # type: ignore[union-attr]
        assert len(files_of(again, local=True)) == 5


def test_a_table_that_was_made_anew_is_another(root: Path) -> None:
    with serving([root]) as served:
        table = served.table()
        assert ids_of(table, "id >= 38") == [38, 39]
        shutil.rmtree(root)
        assert not served.client().table_exists("default.t")
        laid_out(root, rows(10, 35), "load-2")
        assert ids_of(served.table(), "id >= 38") == list(range(38, 45))


def test_older_snapshots_are_read_by_their_ids(root: Path) -> None:
    for load in (4, 5, 6):
        laid_out(root, rows(10, 10 * load), f"load-{load}", APPEND)
    with serving([root], history=2) as served:
        table = served.table()
        assert [snapshot.snapshot_id for snapshot in table.snapshots()] == [2, 3, 4]
        assert [len(files_of(table, snapshot_id=id)) for id in (2, 3, 4)] == [5, 6, 7]
        assert files_of(table, ODD, snapshot_id=3) < files_of(table, ODD)
        assert table.scan(snapshot_id=3).to_arrow().num_rows == 60
        for id in (2, 4):
            assert files_of(table, snapshot_id=id, local=True) == files_of(table, snapshot_id=id)
        assert len(table.history()) == 3
    with serving([root]) as served:
        assert [snapshot.snapshot_id for snapshot in served.table().snapshots()] == [4]


def test_names(root: Path, tmp_path: Path) -> None:
    for name in ("lake/events", "lake/sales/orders", "lake/_hidden/t", "lake/sales/notes"):
        if name.endswith("notes"):
            (tmp_path / name).mkdir(parents=True)
        else:
            laid_out(tmp_path / name)
    with serving([f"eu.west.mine={root}"], tmp_path / "lake") as served:
        client = served.client()
        assert client.list_namespaces() == [("default",), ("eu",), ("sales",)]
        assert client.list_namespaces("eu") == [("eu", "west")]
        assert client.list_tables("default") == [("default", "events")]
        assert client.list_tables(("eu", "west")) == [("eu", "west", "mine")]
        assert client.load_namespace_properties("sales") == {}
        assert client.table_exists("sales.orders")
        assert not client.table_exists("sales.events")
        assert client.namespace_exists("sales")
        assert not client.namespace_exists("nowhere")
        assert ids_of(client.load_table("eu.west.mine"), ODD) == [0, 10, 20, 30]
        laid_out(tmp_path / "lake/new")
        assert client.list_tables("default") == [("default", "events"), ("default", "new")]
        with pytest.raises(NoSuchTableError, match=r"there is no table 'sales\.notes'"):
            client.load_table("sales.notes")


def test_a_table_of_several_layouts_is_several(tmp_path: Path) -> None:
    layouts = (Layout(("id", "kind"), (), ("id", "kind"), ByVectors()), Layout(("x",), (), ("x",), ByVectors()))
    build(tmp_path / "t", rows(), building(SCHEMA, layouts=layouts, blocking=by_position(5), segment_rows=10))
    with serving([tmp_path / "t"]) as served:
        client = served.client()
        assert client.list_tables("default") == [("default", "t_layout_0"), ("default", "t_layout_1")]
        first, second = (client.load_table(f"default.t_layout_{layout}") for layout in (0, 1))
        assert (first.schema().column_names, second.schema().column_names) == (["id", "kind"], ["x"])
        assert ids_of(first, "id < 3 AND kind = 'air'") == [0, 2]
        assert len(files_of(first, "id < 3")) == 1
        assert second.scan(row_filter="x > 0").to_arrow().num_rows == 24
        assert not client.table_exists("default.t")
        assert not client.table_exists("default.t_layout_2")


def test_columns_that_came_later_are_null_in_older_files(root: Path) -> None:
    grown = Schema((*SCHEMA.columns, Column("late", "string")))
    more = rows(10, 40).append_column("late", pa.array(["a"] * 10))
    build(root, more, building(grown, blocking=by_position(5), segment_rows=10), "load-2", APPEND)
    with serving([root]) as served:
        table = served.table()
        assert ids_of(table, "late = 'a'") == list(range(40, 50))
        assert len(files_of(table, "late = 'a'")) == 1
        assert ids_of(table, "late is null AND id < 2") == [0, 1]


def test_every_type_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = typed_rows(60, 1)
    build(tmp_path / "t", written, building(TYPED, blocking=by_position(5), segment_rows=10))
    with serving([tmp_path / "t"]) as served:
        found = served.table().scan().to_arrow().sort_by("id")
    for name in written.column_names:
        assert str(found[name].to_pylist()) == str(written[name].to_pylist()), name


def test_an_index_of_another_package_skips_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_package(tmp_path, monkeypatch)
    by_last_digit = rows().take(pa.array(sorted(range(40), key=lambda i: i % 10)))
    indexes = (IndexSpec(Col("id", "int"), "last-digits"),)
    build(tmp_path / "t", by_last_digit, building(SCHEMA, segment_rows=4, indexes=indexes))
    with serving([tmp_path / "t"]) as served:
        table = served.table()
        assert len(files_of(table, "id = 17", local=True)) == 10
        assert len(files_of(table, "id = 17")) == 1
        assert len(files_of(table, "id IN (17, 22)")) == 2
        assert ids_of(table, "id IN (17, 22)") == [17, 22]


@pytest.mark.usefixtures("noting_store")
@pytest.mark.unshadowed("counts readings")
def test_tables_of_an_object_store_are_named_by_their_urls(root: Path) -> None:
    put(root, "noting://lake/t")
    with serving(folder="noting://lake") as served:
        table = served.table()
        root_url = "noting:///lake/t"  # as fsspec has it for a store in memory
        assert table.location() == root_url
        found = files_of(table, ODD)
        assert len(found) == 1
        assert all(path.startswith(f"{root_url}/data/all/load-1/layout-0/") for path in found)
        REQUESTS.clear()
        assert files_of(table, ODD) == found
        assert len(REQUESTS) <= 1  # what changed is asked for, and no file is read again


def test_scans_above_a_limit_are_refused(root: Path) -> None:
    blocks = open_table(str(root)).sources[0].blocks
    size = int((blocks.column_bytes("id") + blocks.column_bytes("kind")).sum())
    with serving([root], limits=Limits(scan_bytes=size)) as served:
        table = served.table()
        assert table.scan(selected_fields=("id", "kind")).to_arrow().num_rows == 40
        assert table.scan(selected_fields=("kind",), row_filter="id < 40").to_arrow().num_rows == 40
        assert table.scan(row_filter=ODD).to_arrow().num_rows == 4
        with pytest.raises(BadRequestError, match=f"more than the limit of {size:,}; .*leave out columns like"):
            table.scan().plan_files()
    with serving([root], limits=Limits(scan_bytes=size - 1)) as served, pytest.raises(BadRequestError):
        served.table().scan(selected_fields=("kind",), row_filter="id < 40").plan_files()
